"""The rows of a table that begins a curation: one per study, every problem of every row found at once.

Besides the forms of :mod:`reveal_bench.builders.study_table` a table may be a Parquet file, whose ids are text or whole
numbers (a floating-point number has lost digits of an id, or made some up) and whose labels may be lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from reveal_bench.builders.source import BuildError, Problem
from reveal_bench.builders.study_table import TABLE_SUFFIXES, StudyTable, TableRow, read_table
from reveal_bench.findings import hint

__all__ = ["Fail", "OfStudy", "read_rows"]

Fail = Callable[[str, str, str], None]
"""Told of (field, rule, value)."""


class OfStudy(Protocol):
    """What a row becomes."""

    @property
    def study_id(self) -> str:
        """Its key; "" if the row has none."""


Read = TypeVar("Read", bound=OfStudy)


def read_rows(
    path: Path, columns: Sequence[str], sheet: str | None, read: Callable[[TableRow, Fail], Read]
) -> list[Read]:
    """Every row, read by `read`, which is told how to report what is wrong.

    Parameters
    ----------
    columns : those that must be there; the first is that of the study
    sheet : name of an xlsx file's sheet; needed if it has several

    Raises
    ------
    BuildError
        With all that is wrong with all rows, or with the table itself.
    """
    problems: list[Problem] = []
    table = _table(path, columns, sheet, problems)
    if table is None or not _has_columns(table, columns, problems):
        raise BuildError(problems)
    found: list[Read] = []
    first_row: dict[str, int] = {}
    for row in table.rows:
        fail = _failing(path.name, row.number, problems)
        one = read(row, fail)
        first = first_row.setdefault(one.study_id, row.number)
        if one.study_id and first != row.number:
            fail(columns[0], "must stand in one row only", f"{one.study_id!r} again, first in row {first}")
        found.append(one)
    if problems:
        raise BuildError(sorted(problems, key=lambda problem: -1 if problem.row is None else int(problem.row)))
    return found


def _failing(file: str, row: int | None, problems: list[Problem]) -> Fail:
    def fail(field: str, rule: str, value: str) -> None:
        problems.append(Problem(file, row, field, rule, value))

    return fail


def _table(path: Path, columns: Sequence[str], sheet: str | None, problems: list[Problem]) -> StudyTable | None:
    suffix, fail = path.suffix.lower(), _failing(path.name, None, problems)
    if suffix == ".parquet":
        return _parquet(path, columns, fail)
    if suffix not in TABLE_SUFFIXES:
        fail("suffix", f"must be one of {', '.join((*TABLE_SUFFIXES, '.parquet'))}", suffix or "none")
        return None
    return read_table(path, path.name, problems, sheet=sheet)


def _has_columns(table: StudyTable, columns: Sequence[str], problems: list[Problem]) -> bool:
    missing = [name for name in dict.fromkeys(columns) if name not in table.columns]
    for name in missing:
        value = f"{hint(name, table.columns)}; it has {', '.join(table.columns)}"[:300]
        problems.append(Problem(table.file, None, "column", f"must be a column of {table.file}", value))
    return not missing


def _parquet(path: Path, columns: Sequence[str], fail: Fail) -> StudyTable | None:
    """Those of `columns` that are there; rows are counted from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        fail("file", "must be there", "none")
        return None
    try:
        schema = pq.read_schema(path)
        table = pq.read_table(path, columns=[name for name in schema.names if name in columns])
    except (OSError, pa.ArrowException) as error:
        fail("file", "must be readable as parquet", str(error)[:200])
        return None
    for column in table.schema:
        if not _is_plain(column.type):
            fail(column.name, "must be a column of text, whole numbers or lists of text", str(column.type))
            return None
    if not table.num_rows:
        fail("rows", "must hold at least one study", "none")
    rows = (
        TableRow(number, {name: _cell(value) for name, value in row.items()})
        for number, row in enumerate(table.to_pylist(), start=1)
    )
    return StudyTable(path.name, tuple(schema.names), tuple(rows))


def _is_plain(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))


def _cell(value: Any) -> str | list[Any]:
    if value is None:
        return ""
    return value if isinstance(value, list) else str(value)
