"""A user's own table with one documented set of columns: found by its name, read by canonical column.

How each form is read is said in :mod:`reveal_bench.builders.study_table`. In a column name case, blanks, underscores,
hyphens and slashes do not matter, and a table of aliases applies. A blank cell, ``null`` and a missing key are the
same: the cell is left out of its row. Columns that nobody knows are told with the nearest one that is known.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from reveal_bench.builders import study_table
from reveal_bench.builders.source import Problem
from reveal_bench.builders.study_table import TABLE_SUFFIXES, Cell, StudyTable

__all__ = ["SUFFIXES", "Row", "Table", "find_tables", "fold", "read_table"]

SUFFIXES = TABLE_SUFFIXES


class Row(NamedTuple):
    """One row: its line (row of a sheet, entry of a list), and its cells by canonical column."""

    line: int
    cells: dict[str, Cell]


@dataclass
class Table:
    """Rows, and the canonical columns that the table has."""

    file: str
    rows: list[Row] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)


def find_tables(folder: Path, stem: str) -> list[Path]:
    """Files of a folder with this stem and one of :data:`SUFFIXES`, whatever their case."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.stem.casefold() == stem and path.suffix.casefold() in SUFFIXES
    )


def fold(name: object) -> str:
    """A name without what does not matter in it.

    Examples
    --------
    >>> fold("Complexity/Reasoning"), fold(" task-ID ")
    ('complexity reasoning', 'task id')
    """
    return " ".join(re.split(r"[\W_]+", str(name).casefold())).strip()


def read_table(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    required: Iterable[str],
    problems: list[Problem],
    warnings: list[str],
) -> Table:
    """Rows of a table.

    Parameters
    ----------
    path : a file with one of :data:`SUFFIXES`
    columns : canonical name -> further names that mean the same
    required : canonical names without which there are no rows
    problems, warnings : grow by what is wrong, and by columns that nobody knows
    """
    table = Table(path.name)
    found: list[Problem] = []
    try:
        raw = study_table.read_table(path, path.name, found)
    except ImportError as error:
        raw = None
        found = [Problem(path.name, None, "file", "must be readable", str(error))]
    if raw is None:  # nothing of it is good, so no line can be left out
        rule = "must be the only one of its workbook"
        problems += [replace(p, row=None, rule=rule if p.field == "sheet" else p.rule) for p in found]
        return table
    problems += found
    known = _canonical(raw, columns, problems, warnings)
    table.columns = set(known.values())
    lacking = [name for name in required if name not in table.columns]
    got = ", ".join(map(repr, raw.columns))
    problems += [Problem(path.name, None, name, "must be a column", got) for name in lacking]
    for row in raw.rows if not lacking else ():
        cells = {known[name]: cell for name, cell in row.cells.items() if name in known and cell != ""}
        if any(cell != "" for cell in row.cells.values()):
            table.rows.append(Row(row.number, cells))
    return table


def _canonical(
    raw: StudyTable, columns: Mapping[str, Sequence[str]], problems: list[Problem], warnings: list[str]
) -> dict[str, str]:
    """Column as written -> canonical."""
    canonical = {fold(name): column for column, aliases in columns.items() for name in (column, *aliases)}
    known: dict[str, str] = {}
    for head in raw.columns:
        column = canonical.get(fold(head))
        if column is None:
            near = difflib.get_close_matches(fold(head), canonical, n=1)
            hint = f" (nearest: {canonical[near[0]]})" if near else ""
            warnings.append(f"{raw.file}: the column {head!r} is not known and is not read{hint}")
        elif column in known.values():
            first = next(other for other, other_column in known.items() if other_column == column)
            problems.append(Problem(raw.file, None, column, "must be one column", f"{first!r} and {head!r}"))
        else:
            known[head] = column
    return known
