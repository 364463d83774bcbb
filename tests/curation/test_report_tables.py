"""Tables of reports and of existing labels: every format, and every possible problem of a row."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reveal_bench.curation.report_tables import (
    ReportColumns,
    StudyReport,
    SuggestionColumns,
    read_reports,
    read_suggestions,
    texts_digest,
)
from reveal_bench.curation.tables import Suggestion
from reveal_bench.sources.source import BuildError, Problem

COLUMNS = ReportColumns("study", "patient", "report")
FILES = ReportColumns("study", "patient", file="path")
READY = SuggestionColumns("study", "patient", "labels")

ROWS = [
    {"study": "001", "patient": "P1", "report": "Left effusion,\nsmall."},
    {"study": "002", "patient": "P1", "report": 'No "mass"; clear.'},
]
EXPECTED = [StudyReport("001", "P1", "Left effusion,\nsmall."), StudyReport("002", "P1", 'No "mass"; clear.')]


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    """A table in the form of the path's suffix."""
    import openpyxl

    names = list(rows[0])
    if path.suffix in (".csv", ".tsv"):
        mark = "," if path.suffix == ".csv" else "\t"
        quoted = [['"' + str(row[name]).replace('"', '""') + '"' for name in names] for row in rows]
        path.write_text("\n".join(mark.join(cells) for cells in [names, *quoted]) + "\n", encoding="utf-8")
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for cells in [names, *([row[name] for name in names] for row in rows)]:
            book.active.append(cells)
        book.save(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def problems(path: Path, columns: ReportColumns = COLUMNS) -> list[tuple[object, str, str, str]]:
    with pytest.raises(BuildError) as caught:
        read_reports(path, columns)
    return [(one.row, one.field, one.rule, one.value) for one in caught.value.problems]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".parquet"])
def test_reports_of_every_form(tmp_path: Path, suffix: str) -> None:
    assert read_reports(written(tmp_path / f"t{suffix}", list(ROWS)), COLUMNS) == EXPECTED


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".xlsx"])
def test_whole_numbers_as_ids_keep_their_digits(tmp_path: Path, suffix: str) -> None:
    rows: list[dict[str, object]] = [{"study": 12345678901, "patient": 7, "report": "Clear."}]
    assert read_reports(written(tmp_path / f"t{suffix}", rows), COLUMNS) == [StudyReport("12345678901", "7", "Clear.")]


def test_text_files_below_the_tables_folder(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_bytes("\ufeffErguß? – Nein.\r\n".encode())
    rows: list[dict[str, object]] = [{"study": "1", "patient": "p", "path": "texts/a.txt"}]
    assert read_reports(written(tmp_path / "t.csv", rows), FILES) == [StudyReport("1", "p", "Erguß? – Nein.\n")]


def test_every_problem_of_every_row_is_told(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"study": "1", "patient": "p", "report": "Clear."},
        {"study": " ", "patient": "", "report": "Clear."},
        {"study": "2", "patient": "p", "report": "  "},
        {"study": "1", "patient": "p", "report": "Clear."},
        {"study": "a\u200bb", "patient": "p" * 129, "report": "Clear."},
        {"study": "3", "patient": "p", "report": ["Clear."]},
        {"study": "4", "patient": "p", "report": "x" * 1_000_001},
    ]
    path = written(tmp_path / "t.jsonl", rows)
    path.write_text(path.read_text() + '{"study": "5", "patient": "p", "report": "\\ud800"}\n')
    rule = "must be an id of at most 128 printable characters without blanks around it"
    assert problems(path) == [
        (2, "study", "must be an id", "a blank cell"),
        (2, "patient", "must be an id", "a blank cell"),
        (3, "report", "must contain a report", "an empty text"),
        (4, "study", "must occur in one row only", "'1' again, first in row 1"),
        (5, "study", rule, r"'a\u200bb'"),
        (5, "patient", rule, repr("p" * 80)),
        (6, "report", "must be the text of a report", "a list"),
        (7, "report", "must be a text of at most 1,000,000 characters", "1,000,001"),
        (8, "report", "must be Unicode text", "half of a surrogate pair"),
    ]


def test_every_problem_of_text_files_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.txt").write_text("Left effusion.")
    (home / "latin.txt").write_bytes(b"Ergu\xdf")
    (home / "empty.txt").write_text("\n")
    (home / "folder").mkdir()
    (home / "link.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(home / "pipe")
    names = ["none.txt", "../secret.txt", "link.txt", str(tmp_path / "secret.txt"), "latin.txt", "empty.txt", "folder"]
    names += ["pipe", "", "a\0b"]
    rows: list[dict[str, object]] = [{"study": f"s{n}", "patient": "p", "path": name} for n, name in enumerate(names)]
    raised = problems(written(home / "t.jsonl", rows), FILES)
    assert [(row, rule) for row, _, rule, _ in raised] == [
        (1, "must name an existing file"),
        (2, "must name a file below the table's folder"),
        (3, "must name a file below the table's folder"),
        (4, "must name a file below the table's folder"),
        (5, "must name a text in UTF-8"),
        (6, "must contain a report"),
        (7, "must name a regular file"),
        (8, "must name a regular file"),
        (9, "must name a text file"),
        (10, "must name a file that can be read"),
    ]
    assert raised[4][3] == "'latin.txt', which is invalid at byte 4"


@pytest.mark.parametrize(
    ("name", "text", "field", "rule"),
    [
        ("t.pdf", "%PDF-1.7\n\0\1", "column", "must be a column of t.pdf"),
        ("t.csv", "", "file", "must have a row of column names"),
        ("t.csv", "study,patient,report\n", "rows", "must contain at least one row"),
        ("t.csv", "id,patient,report\n1,p,x\n", "column", "must be a column of t.csv"),
        ("t.csv", "study,patient,report\n1,p\n", "row", "must have 3 cells, like the header"),
        ("t.json", "{}", "file", "must be a JSON list of objects"),
        ("t.parquet", "PAR1 but not really", "file", "must be readable as parquet"),
    ],
)
def test_a_table_that_cannot_be_read(tmp_path: Path, name: str, text: str, field: str, rule: str) -> None:
    (tmp_path / name).write_text(text)
    assert (field, rule) in [problem[1:3] for problem in problems(tmp_path / name)]


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    assert problems(tmp_path / "t.csv") == [(None, "file", "must exist", "none")]
    assert problems(tmp_path / "t.parquet") == [(None, "file", "must exist", "none")]


def test_parquet_columns_that_are_no_ids(tmp_path: Path) -> None:
    table = pa.table({"study": [1.5], "patient": ["p"], "report": ["Clear."]})
    pq.write_table(table, tmp_path / "t.parquet")
    rule = "must be a column of text, whole numbers or lists of text"
    assert problems(tmp_path / "t.parquet") == [(None, "study", rule, "double")]
    pq.write_table(
        table.slice(0, 0).cast(pa.schema([(n, pa.string()) for n in table.column_names])), tmp_path / "e.parquet"
    )
    assert problems(tmp_path / "e.parquet") == [(None, "rows", "must contain at least one row", "none")]


@pytest.mark.parametrize("columns", [{}, {"report": "r", "file": "f"}])
def test_a_report_is_a_cell_or_a_file(columns: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="name exactly one of `report` and `file`"):
        ReportColumns("study", "patient", **columns)


def test_digest_depends_on_every_text_and_the_order() -> None:
    a, b, ab = (StudyReport("s", "p", text) for text in ("a", "b", "ab"))
    assert len({texts_digest(one) for one in ([a, b], [b, a], [ab], [a], [])}) == 5


# Ready labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx", ".jsonl", ".parquet"])
def test_ready_labels(tmp_path: Path, suffix: str) -> None:
    rows: list[dict[str, object]] = [
        {"study": "1", "patient": "p", "labels": "pleural_effusion; COPD"},
        {"study": "2", "patient": "p", "labels": "None"},
        {"study": "3", "patient": "q", "labels": "Lung Nodule"},
    ]
    assert read_suggestions(written(tmp_path / f"t{suffix}", rows), READY) == [
        Suggestion("1", "p", (), ("COPD", "Pleural effusion"), "ok", "given"),
        Suggestion("2", "p", (), (), "ok", "given"),
        Suggestion("3", "q", (), ("Lung nodule",), "ok", "given"),
    ]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_labels_as_lists(tmp_path: Path, suffix: str) -> None:
    rows: list[dict[str, object]] = [{"study": "1", "patient": "p", "labels": ["Lung mass", "Aneurysm"]}]
    suggestions = read_suggestions(written(tmp_path / f"t{suffix}", rows), READY)
    assert suggestions[0].labels == ("Aneurysm", "Lung mass")


def test_every_problem_of_ready_labels_is_told(tmp_path: Path) -> None:
    cells: list[object] = [
        "",
        "COPD; ",
        "Cardiomegally",
        "COPD; copd",
        "None; COPD",
        [],
        ["COPD", 3],
        "Lung nodule, COPD",
    ]
    rows: list[dict[str, object]] = [{"study": str(n), "patient": "p", "labels": c} for n, c in enumerate(cells)]
    with pytest.raises(BuildError) as caught:
        read_suggestions(written(tmp_path / "t.jsonl", rows), READY)
    blank = 'must name labels, or "None" for a study without labels'
    one_of = "must be one of the twelve labels"
    assert caught.value.problems == [
        Problem("t.jsonl", 1, "labels", blank, "a blank"),
        Problem("t.jsonl", 2, "labels", blank, "a blank"),
        Problem("t.jsonl", 3, "labels", one_of, "'Cardiomegally' (nearest: 'Cardiomegaly')"),
        Problem("t.jsonl", 4, "labels", "must name each label once", "COPD again"),
        Problem("t.jsonl", 5, "labels", 'must not contain both "None" and a label', "None, COPD"),
        Problem("t.jsonl", 6, "labels", blank, "a blank"),
        Problem("t.jsonl", 7, "labels", one_of, "'3'"),
        Problem("t.jsonl", 8, "labels", one_of, "'Lung nodule, COPD' (nearest: 'Lung nodule')"),
    ]


def test_another_separator(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"study": "1", "patient": "p", "labels": "COPD|Aneurysm"}]
    path = written(tmp_path / "t.jsonl", rows)
    suggestions = read_suggestions(path, SuggestionColumns("study", "patient", "labels", "|"))
    assert suggestions[0].labels == ("Aneurysm", "COPD")
    with pytest.raises(ValueError, match="`separator` must not be empty"):
        SuggestionColumns("study", "patient", "labels", "")
