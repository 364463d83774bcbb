"""Read the table of reports or ready labels with which a curation starts, and define what an extraction engine is.

Conventions
-----------
A table is .csv, .tsv, .xlsx, .json, .jsonl or .parquet; the caller names its columns. Ids are text and are never
converted to numbers. In a Parquet file, ids are text or whole numbers, because floating-point numbers lose or add
digits; labels may be lists. A report is a cell of the table, or a UTF-8 text file below the table's folder whose path
is in a cell. There is one row per study. The problems of all rows are raised together as one
:class:`~reveal_bench.sources.source.BuildError`; nothing is repaired, and no row is skipped.

A :class:`ReportEngine` extracts labels from reports, in any order; the step that runs it restores the order.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.curation.folder import Progress
from reveal_bench.curation.tables import Suggestion
from reveal_bench.sources.source import BuildError, Problem
from reveal_bench.sources.study_labels import Fail, labels_of_cell
from reveal_bench.tables import InputTable, TableLimits, TableRow, missing_columns, scan_table


class OfStudy(Protocol):
    """A parsed table row about one study."""

    @property
    def study_id(self) -> str:
        """The study id; "" if the row has none."""


Read = TypeVar("Read", bound=OfStudy)
# The table may contain the texts of all reports.
_OWN_ARCHIVE = TableLimits(file_bytes=1 << 30, unpacked_bytes=1 << 30, cells=50_000_000)


def read_rows(
    path: Path, columns: Sequence[str], sheet: str | None, read: Callable[[TableRow, Fail], Read], *, hint: str = ""
) -> list[Read]:
    """Parse every row with `read`, which also gets a function that reports problems.

    Parameters
    ----------
    columns : required columns; the first identifies the study
    sheet : name of an xlsx file's sheet; needed if it has several
    hint : what the user can do if a column is missing

    Raises
    ------
    BuildError
        If the table or a row has problems; the error lists all of them.
    """
    problems: list[Problem] = []
    table = _table(path, columns, sheet, problems)
    missing = [] if table is None else missing_columns(table, columns)
    if table is None or missing:
        raise BuildError([*problems, *missing], hint=hint if missing else None)
    rows: list[Read] = []
    first_row: dict[str, int] = {}
    for row in table.rows:
        fail = _failing(path.name, row.number, problems)
        one = read(row, fail)
        first = first_row.setdefault(one.study_id, row.number)
        if one.study_id and first != row.number:
            fail(columns[0], "must occur in one row only", f"{one.study_id!r} again, first in row {first}")
        rows.append(one)
    if problems:
        raise BuildError(sorted(problems, key=lambda problem: -1 if problem.row is None else int(problem.row)))
    return rows


def _failing(file: str, row: int | None, problems: list[Problem]) -> Fail:
    def fail(field: str, rule: str, value: str) -> None:
        problems.append(Problem(file, row, field, rule, value))

    return fail


def _table(path: Path, columns: Sequence[str], sheet: str | None, problems: list[Problem]) -> InputTable | None:
    if path.suffix.lower() == ".parquet" and not _are_plain(path, columns, _failing(path.name, None, problems)):
        return None
    return scan_table(path, path.name, problems, sheet=sheet, only=columns, limits=_OWN_ARCHIVE)


def _are_plain(path: Path, columns: Sequence[str], fail: Fail) -> bool:
    """Return True if the columns of a Parquet file have types that preserve ids, or the file is unreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return True  # `scan_table` will report the error
    for column in schema:
        if column.name in columns and not _is_plain(column.type):
            fail(column.name, "must be a column of text, whole numbers or lists of text", str(column.type))
            return False
    return True


def _is_plain(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))


GIVEN = "given"
"""Engine name of suggestions that were read from a table."""

MOST_CHARACTERS = 1_000_000
"""The maximum length of one study's report."""
MOST_ID_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class StudyReport:
    """The original report of one study."""

    study_id: str
    patient_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A report whose labels could not be read; `reason` says why, `answer` is the engine's raw output, if any.

    A person must decide on the report's labels, because nothing is guessed.
    """

    study_id: str
    patient_id: str
    reason: str
    engine: str
    answer: str = ""


class ReportEngine(Protocol):
    """An extractor of labels from reports.

    An engine may also have a method ``counts() -> dict``, which returns tokens, cost and the like.
    """

    @property
    def signature(self) -> str:
        """Name and version, such as "rules|v:2"; engines with different signatures may give different labels."""

    def settings(self) -> dict[str, Any]:
        """Return everything that the answers depend on, as JSON."""

    def run(
        self, reports: Iterable[StudyReport], scratch: Path, progress: Progress | None = None
    ) -> Iterator[Suggestion | Quarantined]:
        """Yield one answer per report, in any order.

        Parameters
        ----------
        reports : reports with different study ids
        scratch : a folder that survives an interruption; it is removed when the step is done
        progress : called with (done, total)
        """


@dataclass(frozen=True, slots=True)
class ReportColumns:
    """Column names of a table of reports, with exactly one of `report` (texts) and `file` (paths of text files)."""

    study: str
    patient: str
    report: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        if (self.report is None) == (self.file is None):
            raise ValueError(f"name exactly one of `report` and `file`, got {self.report!r} and {self.file!r}")


@dataclass(frozen=True, slots=True)
class SuggestionColumns:
    """Column names of a table of ready labels; `separator` separates the labels of a cell."""

    study: str
    patient: str
    labels: str
    separator: str = ";"

    def __post_init__(self) -> None:
        if not self.separator:
            raise ArgumentError("separator", "must not be empty")


def read_reports(path: Path, columns: ReportColumns, *, sheet: str | None = None) -> list[StudyReport]:
    """Read the reports of a table, in order.

    Parameters
    ----------
    path : .csv, .tsv, .xlsx, .json, .jsonl or .parquet; paths of text files are relative to its folder
    sheet : name of an xlsx file's sheet; needed if it has several

    Raises
    ------
    BuildError
        If a study is blank or repeated, a patient is blank, a report is empty, or a text file is missing, outside the
        folder or not UTF-8; the error lists the problems of all rows.
    ImportError
        If the file is an xlsx and openpyxl is not installed.
    """

    def read(row: TableRow, fail: Fail) -> StudyReport:
        study, patient = _id(row, columns.study, fail), _id(row, columns.patient, fail)
        if columns.file is not None:
            text = _file_text(row, columns.file, path.parent, fail)
        else:
            text = _cell_text(row, str(columns.report), fail)
        return StudyReport(study, patient, text)

    named = [columns.study, columns.patient, columns.file if columns.file is not None else str(columns.report)]
    return read_rows(path, named, sheet, read, hint="`--study`, `--patient` and `--report` or `--file` name columns")


def read_suggestions(path: Path, columns: SuggestionColumns, *, sheet: str | None = None) -> list[Suggestion]:
    """Read the ready labels of a table, in order; the suggestions have the engine :data:`GIVEN` and unknown findings.

    A study without any of the twelve labels must have "None", "Normal" or "No finding"; a blank cell is a problem.
    Labels are spelt as :func:`reveal_bench.findings.canonical_finding` accepts; a cell of JSON or Parquet may be a
    list.

    Raises
    ------
    BuildError
        If a row has a problem that :func:`read_reports` reports, or a label is not one of the twelve, is repeated, or
        occurs with "None"; the error lists the problems of all rows.
    ImportError
        If the file is an xlsx and openpyxl is not installed.
    """

    def read(row: TableRow, fail: Fail) -> Suggestion:
        study, patient = _id(row, columns.study, fail), _id(row, columns.patient, fail)
        return Suggestion(study, patient, (), labels_of_cell(_entries(row, columns), columns.labels, fail), "ok", GIVEN)

    named = [columns.study, columns.patient, columns.labels]
    return read_rows(path, named, sheet, read, hint="`--study`, `--patient` and `--labels` name columns")


def texts_digest(reports: Iterable[StudyReport]) -> str:
    """Return the SHA-256 of the reports' texts in order, because the table's own digest does not cover text files."""
    digest = sha256()
    for report in reports:
        digest.update(sha256(report.text.encode()).digest())
    return digest.hexdigest()


def _id(row: TableRow, column: str, fail: Fail) -> str:
    cell = row.cell(column)
    if not isinstance(cell, str) or not cell.strip():
        fail(column, "must be an id", "a blank cell" if isinstance(cell, str) else "a list")
        return ""
    if cell != cell.strip() or not cell.isprintable() or len(cell) > MOST_ID_CHARACTERS:
        rule = f"must be an id of at most {MOST_ID_CHARACTERS} printable characters without blanks around it"
        fail(column, rule, repr(cell[:80]))
        return ""
    return cell


def _cell_text(row: TableRow, column: str, fail: Fail) -> str:
    cell = row.cell(column)
    if not isinstance(cell, str):
        fail(column, "must be the text of a report", "a list")
        return ""
    return _checked(cell, column, fail)


def _file_text(row: TableRow, column: str, root: Path, fail: Fail) -> str:
    """Return the text of the file named in a cell."""
    cell = row[column]
    if not cell.strip():
        fail(column, "must name a text file", "a blank cell")
        return ""
    try:
        path = (root / cell).resolve()
        if not path.is_relative_to(root.resolve()):
            fail(column, "must name a file below the table's folder", repr(cell[:120]))
        elif not path.exists():
            fail(column, "must name an existing file", repr(cell[:120]))
        elif not stat.S_ISREG(os.stat(path).st_mode):
            fail(column, "must name a regular file", repr(cell[:120]))
        elif path.stat().st_size > 4 * MOST_CHARACTERS:
            fail(column, f"must name a text of at most {MOST_CHARACTERS:,} characters", repr(cell[:120]))
        else:
            return _checked(path.read_text(encoding="utf-8-sig"), column, fail)
    except UnicodeDecodeError as error:
        fail(column, "must name a text in UTF-8", f"{cell[:120]!r}, which is invalid at byte {error.start}")
    except (OSError, ValueError) as error:  # the name contains NUL or is too long, or reading is not permitted
        fail(column, "must name a file that can be read", f"{cell[:120]!r}: {error}"[:250])
    return ""


def _checked(text: str, column: str, fail: Fail) -> str:
    if not text.strip():
        fail(column, "must contain a report", "an empty text")
    elif len(text) > MOST_CHARACTERS:
        fail(column, f"must be a text of at most {MOST_CHARACTERS:,} characters", f"{len(text):,}")
    elif any("\ud800" <= letter <= "\udfff" for letter in text):
        fail(column, "must be Unicode text", "half of a surrogate pair")
    return text


def _entries(row: TableRow, columns: SuggestionColumns) -> list[object]:
    cell = row.cell(columns.labels)
    return (cell or [""]) if isinstance(cell, list) else [entry.strip() for entry in cell.split(columns.separator)]
