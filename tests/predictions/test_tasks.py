"""Files of answers to tasks, and linter reports on them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.benchmarks import bundled
from reveal_bench.kinds.tasks.lint import ANSWER_LIMITS, answers_to_jsonl, lint_tasks
from reveal_bench.kinds.tasks.records import AnswerBox, TaskAnswer, TaskManifest, TaskQuestion
from reveal_bench.predictions import LintReport
from reveal_bench.predictions.limits import Limits, LintOptions
from reveal_bench.predictions.rules import RULES

MANIFEST = TaskManifest(
    "rexecution",
    "1.0.0",
    "holdout",
    (
        TaskQuestion("t1", "broad_abnormality", True, "Describe.", None, {"i1": (80, 100), "i2": (50, 60)}),
        TaskQuestion("t2", "diagnosis_support", False, "Why?", "Cough.", {"i3": (80, 100)}),
    ),
)
BOX = {"image_id": "i1", "label": "heart", "box": [10, 20, 30, 40]}
GOOD: list[dict[str, Any]] = [
    {"task_id": "t1", "answer": "No.\n\tNone.", "boxes": [BOX]},
    {"task_id": "t2", "answer": "Because."},
]
Lint = Callable[..., LintReport]


@pytest.fixture
def lint(tmp_path: Path) -> Lint:
    def run(lines: list[Any] | bytes, **options: Any) -> LintReport:
        path = tmp_path / "answers.jsonl"
        data = lines if isinstance(lines, bytes) else "".join(json.dumps(line) + "\n" for line in lines).encode()
        path.write_bytes(data)
        return lint_tasks(path, MANIFEST, LintOptions(**options))

    return run


def problems_of(report: LintReport) -> list[tuple[str, int | None, str]]:
    return [(p.rule, p.line, p.field) for p in report.problems]


def test_valid_file_has_no_problem(lint: Lint) -> None:
    report = lint(GOOD)
    assert report.ok, report.render()
    assert report.problems == ()
    assert report.predictions == (
        TaskAnswer("t1", "No.\n\tNone.", (AnswerBox("i1", "heart", (10.0, 20.0, 30.0, 40.0)),), 1),
        TaskAnswer("t2", "Because.", (), 2),
    )
    assert report.statistics["characters"] == {"shortest": 8, "median": 9.0, "longest": 10}
    assert report.statistics["boxes"] == {"answers_with_boxes": 1, "all": 1}
    assert json.loads(report.to_json())["n_predictions"] == 2


def test_written_answers_are_read_as_written(lint: Lint) -> None:
    answers = (
        TaskAnswer("t1", 'Quotes " and \\ and ü 肺 🫁\r\nline', (AnswerBox("i2", "l", (0.0, 0.25, 60.0, 49.75)),), 1),
        TaskAnswer("t2", "x", (), 2),
    )
    assert lint(answers_to_jsonl(answers).encode()).predictions == answers
    assert lint(gzip.compress(answers_to_jsonl(answers).encode())).predictions == answers


def with_box(**changes: Any) -> list[Any]:
    return [{**GOOD[0], "boxes": [{**BOX, **changes}]}, GOOD[1]]


def with_first(**changes: Any) -> list[Any]:
    return [{**GOOD[0], **changes}, GOOD[1]]


BROKEN: dict[str, tuple[Any, tuple[str, int | None, str]]] = {
    "not a text": (with_first(answer=3), ("wrong-type", 1, "answer")),
    "no answer": ([{"task_id": "t1"}, GOOD[1]], ("missing-field", 1, "answer")),
    "empty answer": (with_first(answer=" \n"), ("empty-answer", 1, "answer")),
    "long answer": (with_first(answer="x" * (ANSWER_LIMITS.characters + 1)), ("text-length", 1, "answer")),
    "nul": (with_first(answer="a\x00b"), ("control-character", 1, "answer")),
    "escape": (with_first(answer="a\x1b[2Jb"), ("control-character", 1, "answer")),
    "turned writing": (with_first(answer="a\u202eb"), ("control-character", 1, "answer")),
    "half a character": (b'{"task_id": "t1", "answer": "a\\ud800"}', ("control-character", 1, "answer")),
    "unknown task": (with_first(task_id="t9"), ("unknown-task", 1, "task_id")),
    "task id is a number": (with_first(task_id=1), ("missing-field", 1, "task_id")),
    "task twice": ([GOOD[0], GOOD[1], GOOD[1]], ("duplicate-task", 3, "task_id")),
    "unknown field": (with_first(confidence=1), ("unknown-field", 1, "confidence")),
    "boxes are not a list": (with_first(boxes=BOX), ("wrong-type", 1, "boxes")),
    "too many boxes": (with_first(boxes=[BOX] * (ANSWER_LIMITS.boxes + 1)), ("boxes", 1, "boxes")),
    "box is a list": (with_first(boxes=[[1, 2, 3, 4]]), ("wrong-type", 1, "boxes[0]")),
    "box with more": (with_box(score=1), ("wrong-type", 1, "boxes[0]")),
    "three sides": (with_box(box=[1, 2, 3]), ("wrong-type", 1, "boxes[0].box")),
    "side is a text": (with_box(box=[1, 2, "3", 4]), ("wrong-type", 1, "boxes[0].box[2]")),
    "side is true": (with_box(box=[1, 2, True, 4]), ("wrong-type", 1, "boxes[0].box[2]")),
    "huge side": (with_box(box=[1, 2, 1e300, 4]), ("not-finite", 1, "boxes[0].box[2]")),
    "no width": (with_box(box=[1, 2, 0, 4]), ("box-size", 1, "boxes[0].box")),
    "outside": (with_box(box=[90, 2, 11, 4]), ("outside-image", 1, "boxes[0].box")),
    "before the image": (with_box(box=[-1, 2, 11, 4]), ("outside-image", 1, "boxes[0].box")),
    "image of another task": (with_box(image_id="i3"), ("unknown-image", 1, "boxes[0].image_id")),
    "image is a list": (with_box(image_id=["i1"]), ("unknown-image", 1, "boxes[0].image_id")),
    "label is null": (with_box(label=None), ("missing-field", 1, "boxes[0].label")),
    "label is empty": (with_box(label=" "), ("missing-field", 1, "boxes[0].label")),
    "label of two lines": (with_box(label="a\nb"), ("control-character", 1, "boxes[0].label")),
    "label is long": (with_box(label="x" * 201), ("text-length", 1, "boxes[0].label")),
    "a list of answers": (json.dumps(GOOD).encode(), ("format", None, "")),
    "a table": (b"task_id,answer\nt1,x\n", ("format", None, "")),
    "no line": (b"\n\n", ("empty-file", None, "")),
    "not JSON": (b'{"task_id": "t1"\n', ("json-syntax", 1, "")),
    "key twice": (b'{"task_id": "t1", "task_id": "t2", "answer": "x"}\n', ("duplicate-key", 1, "task_id")),
    "not an object": (b'{"task_id": "t1", "answer": "x"}\n3\n', ("not-an-object", 2, "")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_names_line_and_field(lint: Lint, name: str) -> None:
    lines, problem = BROKEN[name]
    report = lint(lines)
    assert problem in problems_of(report), report.render()
    assert not report.ok
    assert report.predictions == ()
    assert {p.rule for p in report.problems} <= set(RULES)


def test_nan_is_refused(lint: Lint) -> None:
    report = lint(json.dumps(with_box(box=[1, 2, float("nan"), 4])[0]).encode())
    assert ("not-finite", 1, "boxes[0].box[2]") in problems_of(report)


def test_boxes_that_look_like_corners_get_a_hint(lint: Lint) -> None:
    (problem,) = lint(with_box(box=[50, 40, 90, 70])).problems
    assert problem.hint == "[x1, y1, x2, y2]? boxes are [x, y, width, height]"
    assert problem.message == "must be inside the image, 100 x 80 pixels, got [50, 40, 90, 70]"


def test_all_problems_at_once(lint: Lint) -> None:
    lines = [{"task_id": "t9", "answer": "\x00", "boxes": 3, "x": 1}, {"task_id": "t2", "answer": ""}]
    rules = {p.rule for p in lint(lines).problems}
    assert rules == {
        "unknown-task",
        "control-character",
        "wrong-type",
        "unknown-field",
        "empty-answer",
        "missing-tasks",
    }


def test_missing_tasks_are_an_error_unless_allowed(lint: Lint) -> None:
    report = lint(GOOD[1:])
    assert problems_of(report) == [("missing-tasks", None, "")]
    assert "1 of 2 tasks have no answer: t1" in report.problems[0].message
    allowed = lint(GOOD[1:], allow_missing=True)
    assert allowed.ok
    assert allowed.missing_pairs == (("t1", ""),)
    assert "lowest score" in allowed.problems[0].hint


def test_task_without_requested_boxes_is_a_warning(lint: Lint) -> None:
    report = lint([{**GOOD[0], "boxes": []}, GOOD[1]])
    assert (report.ok, problems_of(report)) == (True, [("missing-boxes", None, "boxes")])


def test_the_same_answer_throughout_is_a_warning(tmp_path: Path) -> None:
    tasks = tuple(TaskQuestion(f"t{i}", "broad_abnormality", False, "?", None, {}) for i in range(20))
    path = tmp_path / "same.jsonl"
    path.write_text(answers_to_jsonl(TaskAnswer(task.task_id, "Normal.") for task in tasks), encoding="utf-8")
    report = lint_tasks(path, TaskManifest("b", "1", "s", tasks))
    assert (report.ok, problems_of(report)) == (True, [("same-answer", None, "answer")])
    assert report.statistics["same_answer_share"] == 1.0


def test_limits_stop_parsing(lint: Lint) -> None:
    assert problems_of(lint(GOOD, limits=Limits(entries=1)))[0][0] == "entries"
    assert problems_of(lint(GOOD, limits=Limits(file_bytes=10)))[0][0] == "file-size"
    many = [{"task_id": f"x{i}", "answer": "y"} for i in range(20)]
    rules = [p.rule for p in lint(many, limits=Limits(problems=5)).problems]
    assert rules == ["unknown-task"] * 5 + ["too-many-problems"]


def test_linter_accepts_the_example_of_the_schema(tmp_path: Path) -> None:
    """The example in the schema, against a manifest with exactly its tasks."""
    example = bundled("submissions") / "examples" / "tasks.jsonl"
    rows = [json.loads(line) for line in example.read_text(encoding="utf-8").splitlines()]
    sizes = {box["image_id"]: (100, 100) for row in rows for box in row.get("boxes", ())}
    tasks = tuple(TaskQuestion(row["task_id"], "broad_abnormality", False, "?", None, sizes) for row in rows)
    report = lint_tasks(example, TaskManifest("b", "1", "s", tasks))
    assert report.problems == ()
    assert len(report.predictions) == len(rows) == 3


def test_limits_equal_those_in_the_schema() -> None:
    schema = json.loads((bundled("submissions") / "schema" / "tasks.schema.json").read_text(encoding="utf-8"))
    answer, boxes = schema["properties"]["answer"], schema["properties"]["boxes"]
    label = boxes["items"]["properties"]["label"]
    limits = (answer["maxLength"], boxes["maxItems"], label["maxLength"])
    assert limits == (ANSWER_LIMITS.characters, ANSWER_LIMITS.boxes, ANSWER_LIMITS.label_characters)
