"""A table of what is known of studies: acquisition and demographics, one row per study, every cell a text.

Any table of :mod:`reveal_bench.builders.study_table` will do; it may hold studies that are not asked for. A blank cell
is missing, and so is everything of a study without a row; both are counted where they are compared. Columns named as
the demographics of a study record (age_band, sex, race, patient_class) must hold their words, as they are published.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reveal_bench.builders.mapping import VOCABULARIES, folded
from reveal_bench.builders.source import BuildError, Problem
from reveal_bench.builders.study_table import StudyTable, TableRow, read_table
from reveal_bench.curation.balance import Column
from reveal_bench.findings import hint

__all__ = ["Facts", "read_facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Columns in the order of the studies asked for, and how many rows and studies did not meet."""

    columns: tuple[Column, ...]
    n_studies_without_row: int
    n_rows_of_others: int


def read_facts(
    path: Path, studies: Sequence[str], *, key: str = "study", columns: Sequence[str] | None = None
) -> Facts:
    """Read the facts of `studies`.

    Parameters
    ----------
    key : the column with the ids of studies
    columns : those to read; all but `key` by default

    Raises
    ------
    BuildError
        With everything that is wrong: the table, its columns, a study in two rows, a word that is none.
    """
    problems: list[Problem] = []
    table = read_table(path, path.name, problems)
    if table is None or problems:
        raise BuildError(problems)
    names = [name for name in table.columns if name != key] if columns is None else list(columns)
    _check_columns(table, key, names, problems)
    if problems:
        raise BuildError(problems)
    rows, n_others = _rows_of(table, key, set(studies), problems)
    for name in names:
        if name in VOCABULARIES:
            _check_words(table.file, name, rows.values(), problems)
    if problems:
        raise BuildError(problems)
    found = (
        Column(name, tuple(_text(rows[study], name) if study in rows else "" for study in studies)) for name in names
    )
    return Facts(tuple(found), sum(study not in rows for study in studies), n_others)


def _check_columns(table: StudyTable, key: str, names: Sequence[str], problems: list[Problem]) -> None:
    for name in (key, *names):
        if name not in table.columns:
            value = f"{hint(name, table.columns)}; it has {', '.join(table.columns)}"[:300]
            problems.append(Problem(table.file, None, "column", f"must be a column of {table.file}", value))
    twice = sorted({name for name in names if name == key or names.count(name) > 1})
    problems += [Problem(table.file, None, "columns", "must be named once", f"{name!r} again") for name in twice]


def _rows_of(
    table: StudyTable, key: str, studies: set[str], problems: list[Problem]
) -> tuple[dict[str, TableRow], int]:
    """The rows of `studies`, and the number of the others."""
    rows: dict[str, TableRow] = {}
    n_others = 0
    for row in table.rows:
        study = row.text(key)
        if study not in studies:
            n_others += 1
        elif study in rows:
            value = f"{study!r} again, first in row {rows[study].number}"
            problems.append(Problem(table.file, row.number, key, "must stand in one row only", value))
        else:
            rows[study] = row
    if not rows:
        value = f"none of {len(table.rows):,} rows"
        problems.append(Problem(table.file, None, key, "must name a study that was selected", value))
    return rows, n_others


def _check_words(file: str, name: str, rows: Iterable[TableRow], problems: list[Problem]) -> None:
    words = VOCABULARIES[name]
    known = {folded(word) for word in words} | {""}
    for row in rows:
        if folded(row.text(name)) not in known:
            rule = f"must be blank or one of {', '.join(words)}"
            problems.append(Problem(file, row.number, name, rule, hint(row.text(name), words)))


def _text(row: TableRow, name: str) -> str:
    """A cell; of a vocabulary its own spelling."""
    text = row.text(name)
    own = {folded(word): word for word in VOCABULARIES.get(name, ())}
    return own.get(folded(text), text)
