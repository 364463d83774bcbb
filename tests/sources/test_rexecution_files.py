"""Task and ratings files: every form gives the same rows, and every broken cell its own message."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.kinds.tasks.records import Rating, ReferenceBox
from reveal_bench.sources.rexecution_files import parse_ratings, parse_tasks

TASK: dict[str, Any] = {
    "task_id": "t1",
    "study_id": "50414267",
    "prompt": "Look.\nSay what you see.",
    "category": "diagnosis_support",
}
RATING: dict[str, Any] = {"task_id": "t1", "model": "m", "reader": "r", "process": 4, "execution": 2, "synthesis": 5}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows in the form that the suffix names; None is a blank cell."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    elif path.suffix == ".xlsx":
        book = pytest.importorskip("openpyxl", reason="workbooks are read by openpyxl").Workbook()
        for cells in [heads, *([row.get(name) for name in heads] for row in rows)]:
            book.active.append(cells)
        book.save(path)
    else:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, heads, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(buffer.getvalue(), encoding="utf-8", newline="")
    return path


def tasks_of(path: Path) -> tuple[list[Any], list[str], list[str]]:
    problems: list[Any] = []
    warnings: list[str] = []
    return parse_tasks(path, problems, warnings), [str(problem) for problem in problems], warnings


def ratings_of(path: Path) -> tuple[list[Any], list[str], list[str]]:
    problems: list[Any] = []
    warnings: list[str] = []
    return parse_ratings(path, problems, warnings), [str(problem) for problem in problems], warnings


FULL = {
    **TASK,
    "prior_study_id": "s50000001",
    "subject_id": "p10000032",
    "indication": "___ with cough",
    "tag_laterality": "Left \u2013 Right",
    "tag_subtype": "Follow-up - Descriptive",
    "tag_question_type": "Multiple",
    "tag_imaging_finding": "None",
    "clinical_relevance": 5,
    "answerability": 4,
    "complexity": 5,
    "clarity": 4,
    "risk_flag": "No",
    "total": 18,
    "requires_boxes": "Yes",
    "reference_answer": 'It says "clear", which is it.',
    "reference_boxes": '[{"label": "Heart", "bbox_xywh": [1, 2.5, 3, 4], "image_id": "abc.jpg"}]',
}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx", ".json", ".jsonl"])
def test_every_form_gives_the_same_task(tmp_path: Path, suffix: str) -> None:
    second = {**TASK, "task_id": "t2", "category": "Measurements and temporal comparisons", "requires_boxes": "no"}
    (task, other), problems, warnings = tasks_of(write(tmp_path / f"tasks{suffix}", [FULL, second]))
    assert (problems, warnings) == ([], [])
    assert (task.task_id, task.study_id, task.prior_study_id, task.subject_id) == (
        "t1", "50414267", "50000001", "10000032",
    )  # fmt: skip
    assert (task.prompt, task.indication) == (TASK["prompt"], "___ with cough")
    assert {name: values for name, values in task.tags.items() if values} == {
        "laterality": ("Left", "Right"), "subtype": ("Follow-up", "Descriptive"), "question_type": ("Multiple",),
    }  # fmt: skip
    assert task.question_scores == {"clinical_relevance": 5, "answerability": 4, "complexity": 5, "clarity": 4}
    assert (task.risk_flag, task.requires_boxes, task.temporal) == (False, True, True)
    assert task.reference_answer == FULL["reference_answer"]
    assert task.reference_boxes == (ReferenceBox("Heart", (1.0, 2.5, 3.0, 4.0), "abc"),)
    assert (other.category, other.temporal, other.question_scores) == ("measurement_temporal", False, None)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx", ".json", ".jsonl"])
def test_every_form_gives_the_same_rating(tmp_path: Path, suffix: str) -> None:
    rows = [{**RATING, "content": 2, "language": None}, {**RATING, "reader": "r2", "language": 1, "execution": None}]
    ratings, problems, warnings = ratings_of(write(tmp_path / f"ratings{suffix}", rows))
    assert problems == []
    assert [line.rating for line in ratings] == [
        Rating("t1", "m", "r", 4, 2, 5), Rating("t1", "m", "r2", 4, None, 5, 1),
    ]  # fmt: skip
    assert warnings == [
        (f"ratings{suffix}: the columns image_content, image_style are missing, so these scores are null")
    ]


def test_json_may_give_lists_and_booleans(tmp_path: Path) -> None:
    row = {
        **TASK,
        "study_id": 50414267,
        "tag_laterality": ["Left", "Follow-up - x"],
        "requires_boxes": True,
        "reference_boxes": [{"label": "a", "bbox_xywh": [0, 0, 1, 1]}],
    }
    (task,), problems, _ = tasks_of(write(tmp_path / "tasks.json", [row]))
    assert problems == []
    assert (task.study_id, task.requires_boxes, task.tags["laterality"]) == (
        "50414267",
        True,
        ("Left", "Follow-up - x"),
    )
    assert task.reference_boxes[0].image_id is None


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("broad_abnormality", "broad_abnormality"),
        ("Broad abnormality query", "broad_abnormality"),
        ("DIAGNOSIS-SUPPORT", "diagnosis_support"),
        ("High-level diagnostic reasoning", "diagnosis_support"),
        ("Measurement/temporal", "measurement_temporal"),
        ("Measurements and temporal comparisons", "measurement_temporal"),
    ],
)
def test_spellings_of_categories(tmp_path: Path, text: str, category: str) -> None:
    (task,), problems, _ = tasks_of(write(tmp_path / "tasks.csv", [{**TASK, "category": text}]))
    assert (task.category, problems) == (category, [])


BOX = {"label": "a", "bbox_xywh": [0, 0, 1, 1]}
BROKEN_CELLS = [
    ({"task_id": ""}, "`task_id` must not be blank, got nothing"),
    ({"task_id": "a\nb"}, "`task_id` must not contain line breaks, got 'a\\nb'"),
    ({"study_id": "5.04E+07"}, "`study_id` must be digits, with or without \"s\" before them, got '5.04E+07'"),
    ({"study_id": "p50414267"}, "`study_id` must be digits"),
    ({"prior_study_id": "50414267"}, "`prior_study_id` must differ from `study_id`, got 50414267"),
    ({"temporal": "Yes"}, "`prior_study_id` must name a study if `temporal` is Yes, got nothing"),
    ({"temporal": "No", "prior_study_id": "1"}, "`temporal` must be Yes or blank if there is a prior study"),
    ({"temporal": "perhaps"}, "`temporal` must be Yes or No, got 'perhaps'"),
    ({"prompt": " "}, "`prompt` must not be blank, got nothing"),
    ({"prompt": "a\x00b"}, "`prompt` must not contain control characters, got 'a\\x00b'"),
    ({"category": "diagnosis_suport"}, "got 'diagnosis_suport' (nearest: 'diagnosis_support')"),
    ({"category": ""}, "`category` must not be blank"),
    ({"tag_laterality": "None \u2013 Left"}, '`tag_laterality` "None" must be alone'),
    ({"clarity": "6"}, "`clarity` must be a whole number from 1 to 5, got '6'"),
    ({"clarity": "4.5"}, "`clarity` must be a whole number from 1 to 5, got '4.5'"),
    ({"clarity": "\u0664"}, "`clarity` must be a whole number from 1 to 5"),
    ({"risk_flag": "maybe"}, "`risk_flag` must be Yes or No, got 'maybe'"),
    ({"requires_boxes": "2"}, "`requires_boxes` must be Yes or No, got '2'"),
    ({"reference_boxes": "[1"}, "`reference_boxes` must be a JSON list of"),
    ({"reference_boxes": "{}"}, "`reference_boxes` must be a JSON list of"),
    ({"reference_boxes": json.dumps([{**BOX, "label": " "}])}, "`reference_boxes` must be a JSON list of"),
    ({"reference_boxes": json.dumps([{**BOX, "colour": 1}])}, "`reference_boxes` must be a JSON list of"),
    ({"reference_boxes": json.dumps([{**BOX, "bbox_xywh": [0, 0, 1]}])}, "4 finite numbers"),
    ({"reference_boxes": json.dumps([{**BOX, "bbox_xywh": [0, 0, 0, 1]}])}, "width and height above 0"),
    ({"reference_boxes": json.dumps([{**BOX, "bbox_xywh": [0, 0, 1, float("nan")]}])}, "4 finite numbers"),
    ({"reference_boxes": json.dumps([{**BOX, "bbox_xywh": [0, 0, 1, 10**400]}])}, "4 finite numbers"),
    ({"reference_boxes": json.dumps([{**BOX, "bbox_xywh": [0, 0, 1, True]}])}, "4 finite numbers"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN_CELLS, ids=[f"{c}"[:60] for c, _ in BROKEN_CELLS])
def test_a_broken_cell_is_named_by_its_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {**TASK, "task_id": "t0"}  # lines 2 and 3, because its prompt has a line break
    _, problems, _ = tasks_of(write(tmp_path / "tasks.csv", [good, {**TASK, **change}]))
    assert len(problems) == 1
    assert problems[0].startswith("tasks.csv:4: ")
    assert message in problems[0]


BROKEN_RATINGS = [
    ({"process": "0"}, "`process` must be a whole number from 1 to 5, got '0'"),
    ({"language": "good"}, "`language` must be a whole number from 1 to 5, got 'good'"),
    ({"content": 3}, "`content` must be the smallest of process, execution and synthesis (2), got 3"),
    ({"content": 2, "synthesis": ""}, "(blank, because one of them is blank), got 2"),
    ({"model": ""}, "`model` must not be blank"),
    ({"reader": ""}, "`reader` must not be blank"),
    ({"task_id": "t0", "reader": "r"}, "`task_id, model, reader` must be unique, got t0, m, r, also line 2"),
    ({"model": "M"}, "`model` must be spelt the same in all rows, got 'M' beside 'm'"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN_RATINGS)
def test_a_broken_rating_is_named_by_its_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    _, problems, _ = ratings_of(write(tmp_path / "ratings.csv", [{**RATING, "task_id": "t0"}, {**RATING, **change}]))
    assert len(problems) == 1
    assert problems[0].startswith("ratings.csv:3: ")
    assert message in problems[0]


def test_all_problems_come_together(tmp_path: Path) -> None:
    rows = [{**TASK, **change} for change, _ in BROKEN_CELLS[:6]] + [TASK, TASK]
    _, problems, _ = tasks_of(write(tmp_path / "tasks.jsonl", rows))
    unique = "`task_id` must be unique, got t1, also line 3"
    assert [problem.split(": ")[0] for problem in problems if unique not in problem] == [
        f"tasks.jsonl:{i}" for i in range(1, 7)
    ]
    assert sum(unique in problem for problem in problems) == 5  # lines 4 to 8


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tasks.csv", "", "tasks.csv: `file` must have a row of column names"),
        ("tasks.csv", "task_id,study_id,prompt,category\n", "tasks.csv: `rows` must contain at least one"),
        ("tasks.csv", "task_id,study_id\nt1,5\n", "`prompt` must be a column, got 'task_id', 'study_id'"),
        ("tasks.csv", "task_id,study_id,prompt,category\nt,5,p\n", "`row` must have 4 cells"),
        ("tasks.csv", "task_id,study_id,prompt,category\nt,5,p,q,r\n", "`row` must have 4 cells"),
        ("tasks.csv", 'task_id,study_id,prompt,category\nt,5,"p,c\n', "tasks.csv: `file` must be readable as csv"),
        ("tasks.csv", "task_id,Task-ID,study_id,prompt,category\n1,1,5,p,c\n", "got 'task_id' and 'Task-ID'"),
        ("tasks.csv", "task_id,task_id,study_id,prompt,category\n1,1,5,p,c\n", "must have different names"),
        ("tasks.csv", b"\xff\xfet\x00a\x00", "tasks.csv: `file` must be UTF-8: save the table as CSV UTF-8"),
        ("tasks.json", "{}", "must be a JSON list of objects, got dict"),
        ("tasks.json", "[[]]", "must be a JSON object, got list"),
        ("tasks.json", '[{"task_id": "t", "study_id": 1, "prompt": {}, "category": "x"}]', "got an object"),
        ("tasks.json", "[1", "tasks.json: `file` must be readable as json"),
        ("tasks.jsonl", '{"task_id": "t"\n', "`line` must be JSON"),
        ("tasks.xlsx", "no workbook", "tasks.xlsx: `file` must be readable as xlsx"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    tasks, problems, _ = tasks_of(path)
    assert any(message in problem for problem in problems), problems
    assert [task for task in tasks if task.task_id == "t1"] == []


def test_unknown_columns_are_reported_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text(",task_id,study_id,prompt,category,Risk flagg,\n0,t1,5,p,broad_abnormality,No,\n")
    (task,), problems, warnings = tasks_of(path)
    assert (task.risk_flag, problems) == (None, [])
    assert "tasks.csv: the column 'Risk flagg' (nearest: 'risk_flag') is unknown and is ignored" in warnings
    assert "tasks.csv: the column '' is unknown and is ignored" in warnings
    assert "tasks.csv: the column requires_boxes is missing, so no task asks for boxes" in warnings


def test_totals_are_compared_and_not_stored(tmp_path: Path) -> None:
    scores = {"clinical_relevance": 5, "answerability": 3, "complexity": 4, "clarity": 5}
    rows = [
        {**TASK, **scores, "total": 17, "requires_boxes": "No"},
        {**TASK, **scores, "task_id": "t2", "total": 13},
        {**TASK, "task_id": "t3", "total": 20},
    ]
    _, problems, warnings = tasks_of(write(tmp_path / "tasks.json", rows))
    assert problems == []
    assert warnings == [
        (
            "tasks.json: `total` is not the sum of the four scores in 2 of 3 rows, first line 2: 13 beside "
            "5, 3, 4, 5 (totals are not stored; ReXecution does not define them)"
        )
    ]


def test_ratings_without_a_score_are_kept_with_a_warning(tmp_path: Path) -> None:
    row = {"task_id": "t1", "model": "m", "reader": "r", "process": None, "language": None}
    ratings, problems, warnings = ratings_of(write(tmp_path / "ratings.csv", [row]))
    assert ([line.rating for line in ratings], problems) == ([Rating("t1", "m", "r")], [])
    assert "ratings.csv: 1 ratings have no score at all and are kept" in warnings


def test_a_workbook_with_several_sheets_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.xlsx", [{**TASK, "requires_boxes": "No"}])
    openpyxl = pytest.importorskip("openpyxl", reason="workbooks are read by openpyxl")
    book = openpyxl.load_workbook(path)
    book.create_sheet("more").append(["task_id"])
    book.save(path)
    tasks, problems, _ = tasks_of(path)
    assert tasks == []
    assert problems[0].endswith("or be the only sheet of its workbook, got Sheet, more")


def test_a_broken_line_of_many_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.jsonl", [TASK, {**TASK, "task_id": "t2"}])
    path.write_text(path.read_text().replace('"t1"', '"t1'))
    tasks, problems, _ = tasks_of(path)
    assert [task.task_id for task in tasks] == ["t2"]
    assert problems[0].startswith("tasks.jsonl:1: `line` must be JSON")


def test_what_excel_makes_of_a_table(tmp_path: Path) -> None:
    """Semicolons, a byte order mark, blank lines at the end."""
    path = tmp_path / "tasks.csv"
    path.write_bytes("\ufefftask_id;study_id;prompt;category\r\nt1;50414267;Was?;Measurement\r\n;;;\r\n".encode())
    (task,), problems, _ = tasks_of(path)
    assert (task.task_id, task.study_id, task.category, problems) == ("t1", "50414267", "measurement_temporal", [])
