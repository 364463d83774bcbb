"""Compare the released and the holdout half: counts per category, and a test and a standardized difference per column.

Conventions
-----------
Columns and differences follow :mod:`reveal_bench.dataset.balance`, with one row per study. A numeric column is compared
per value, as in paper 004 (Table S2), and by its mean.

Tests
-----
* chi-square if every expected count is at least 5: Pearson's, with Yates's correction in 2 by 2 tables. This is the
  default of scipy, and reproduces the p values printed in the paper (0.726, 0.115, 0.066, 0.220).
* Fisher's exact test if an expected count is smaller; beyond 2 by 2, with :data:`SIMULATED` simulated tables of the
  same margins. Less probable tables are more extreme (Freeman and Halton 1951); p is (1 + number at least as extreme) /
  (1 + number simulated).
* The p value of chi-square is reported for every table, as in the paper.

The table of facts
------------------
The table contains acquisition and demographic data, with one row per study and text in every cell. Any table that
:mod:`reveal_bench.tables` reads is accepted, and may contain further studies. Blank cells, and all values of a study
without a row, are missing values; each comparison counts them. Columns named like the demographics of a study record
(age_band, sex, race, patient_class) must use the published vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.dataset.balance import NAN, Column, Differences, mean_differences, proportion_differences
from reveal_bench.findings import hint
from reveal_bench.sources.mapping import VOCABULARIES, folded
from reveal_bench.sources.source import BuildError, Problem
from reveal_bench.tables import InputTable, TableRow, missing_columns, scan_table

SIMULATED = 9_999
SMALL = 5.0
"""Expected counts below this limit are small."""
_SAME = 1e-7  # tables whose log probabilities differ by less are equally probable


@dataclass(frozen=True, slots=True)
class CategoryBalance:
    """Studies per half in one category; None is the category of missing values."""

    category: str | None
    released: int
    holdout: int
    standardized_difference: float


@dataclass(frozen=True, slots=True)
class CountsTest:
    """A test that two rows of counts have the same distribution.

    Attributes
    ----------
    test : "chi-square", "fisher", "fisher, simulated", or "none" with fewer than two nonempty rows or columns
    p_value, chi_square_p_value : p of `test`, and p of chi-square regardless of expected counts
    statistic, degrees_of_freedom : values of the chi-square test
    smallest_expected : smallest expected count
    n_simulated : number of tables for "fisher, simulated", otherwise 0
    """

    test: Literal["chi-square", "fisher", "fisher, simulated", "none"]
    p_value: float
    chi_square_p_value: float
    statistic: float
    degrees_of_freedom: int
    smallest_expected: float
    n_simulated: int


@dataclass(frozen=True, slots=True)
class ColumnBalance:
    """A column compared between the halves; the means and their difference are NaN unless the column is numeric."""

    name: str
    is_number: bool
    categories: tuple[CategoryBalance, ...]
    mean_released: float
    mean_holdout: float
    standardized_mean_difference: float
    largest_difference: float
    test: CountsTest


def compare_halves(column: Column, is_holdout: BoolArray, rng: np.random.Generator) -> ColumnBalance:
    """Compare a column between halves.

    Parameters
    ----------
    rng : random numbers for the simulated tables

    Raises
    ------
    ValueError
        If the column does not have one text per study.
    ImportError
        If scipy is not installed.
    """
    if len(column.texts) != len(is_holdout):
        raise ValueError(f"`{column.name}` must have {len(is_holdout)} texts, got {len(column.texts)}")
    names, members = column.categories()
    released, holdout = members[~is_holdout].sum(axis=0), members[is_holdout].sum(axis=0)
    counts = zip(names, released, holdout, proportion_differences(members, is_holdout), strict=True)
    numbers = column.numbers
    means = [NAN, NAN] if numbers is None else [_mean(numbers[~is_holdout]), _mean(numbers[is_holdout])]
    of_means = NAN if numbers is None else float(mean_differences(numbers[:, None], is_holdout)[0])
    return ColumnBalance(
        name=column.name,
        is_number=numbers is not None,
        categories=tuple(CategoryBalance(name, int(a), int(b), float(d)) for name, a, b, d in counts),
        mean_released=means[0],
        mean_holdout=means[1],
        standardized_mean_difference=of_means,
        largest_difference=_largest(Differences([column])(is_holdout)),
        test=compare_counts(np.stack([released, holdout]), rng),
    )


def compare_counts(table: npt.ArrayLike, rng: np.random.Generator, *, n_simulated: int = SIMULATED) -> CountsTest:
    """Test whether the two rows of `table` (2, n_categories) have the same distribution; empty columns are ignored.

    Raises
    ------
    ValueError
        If the table does not have two rows, or a count is not a whole number of at least 0.
    ImportError
        If scipy is not installed.
    """
    cells = np.asarray(table, np.float64)
    if cells.ndim != 2 or len(cells) != 2 or not (np.isfinite(cells) & (cells >= 0) & (np.floor(cells) == cells)).all():
        raise ArgumentError("table", "must be two rows of counts", np.asarray(table).tolist())
    counts = cells[:, cells.any(axis=0)].astype(np.int64)
    if counts.shape[1] < 2 or not counts.any(axis=1).all():
        return CountsTest("none", NAN, NAN, NAN, 0, NAN, 0)
    try:
        from scipy.stats import chi2_contingency, fisher_exact
    except ImportError:
        raise ImportError("tests of balance need scipy: pip install 'reveal-bench[curate]'") from None
    chi_square = chi2_contingency(counts)
    smallest = float(chi_square.expected_freq.min())
    shared = float(chi_square.pvalue), float(chi_square.statistic), int(chi_square.dof), smallest
    if smallest >= SMALL:
        return CountsTest("chi-square", shared[0], *shared, 0)
    if counts.shape[1] == 2:
        return CountsTest("fisher", float(fisher_exact(counts).pvalue), *shared, 0)
    return CountsTest("fisher, simulated", _simulated(counts, rng, n_simulated), *shared, n_simulated)


def _simulated(counts: npt.NDArray[np.int64], rng: np.random.Generator, n_simulated: int) -> float:
    """Return the proportion of tables with these margins that are at most as probable as this one, itself included."""
    totals, size = counts.sum(axis=0), int(counts[0].sum())
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, counts.sum() + 1)))])

    def log_probability(first: npt.NDArray[np.int64]) -> FloatArray:
        """Return the log probability of a table, without the constant that depends only on its margins."""
        log_p: FloatArray = -(log_factorial[first] + log_factorial[totals - first]).sum(axis=-1)
        return log_p

    drawn = rng.multivariate_hypergeometric(totals, size, size=n_simulated, method="marginals")
    n_extreme = int((log_probability(drawn) <= log_probability(counts[0]) + _SAME).sum())
    return (1 + n_extreme) / (1 + n_simulated)


def _mean(numbers: FloatArray) -> float:
    defined = numbers[~np.isnan(numbers)]
    return float(defined.mean()) if len(defined) else NAN


def _largest(values: FloatArray) -> float:
    """Return the largest absolute value; NaN if none is defined."""
    defined = np.abs(values[~np.isnan(values)])
    return float(defined.max()) if len(defined) else NAN


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """Columns of facts with one text per requested study, in order, and counts of unmatched rows and studies."""

    columns: tuple[Column, ...]
    n_studies_without_row: int
    n_rows_of_others: int


def read_facts(
    path: Path, studies: Sequence[str], *, key: str = "study", columns: Sequence[str] | None = None
) -> StudyFacts:
    """Read the facts about `studies`.

    Parameters
    ----------
    key : the column with the study ids
    columns : columns to read; all but `key` by default

    Raises
    ------
    BuildError
        If the table or its columns are invalid, a study has two rows, or a word is unknown; the error lists all
        problems.
    """
    problems: list[Problem] = []
    table = scan_table(path, path.name, problems)
    if table is None or problems:
        raise BuildError(problems)
    usual = {name.casefold(): name for name in VOCABULARIES}
    others = [usual.get(name.casefold(), name) for name in table.columns if name.casefold() != key.casefold()]
    names = others if columns is None else list(columns)
    _check_columns(table, key, names, problems)
    if problems:
        raise BuildError(problems)
    rows, n_others = _rows_of(table, key, set(studies), problems)
    for name in names:
        if name in VOCABULARIES:
            _check_words(table.file, name, rows.values(), problems)
    if problems:
        raise BuildError(problems)
    facts = (
        Column(name, tuple(_text(rows[study], name) if study in rows else "" for study in studies)) for name in names
    )
    return StudyFacts(tuple(facts), sum(study not in rows for study in studies), n_others)


def _check_columns(table: InputTable, key: str, names: Sequence[str], problems: list[Problem]) -> None:
    problems += missing_columns(table, (key, *names))
    twice = sorted({name for name in names if name == key or names.count(name) > 1})
    problems += [Problem(table.file, None, "columns", "must be named once", f"{name!r} again") for name in twice]


def _rows_of(
    table: InputTable, key: str, studies: set[str], problems: list[Problem]
) -> tuple[dict[str, TableRow], int]:
    """Return the rows of `studies`, and the number of other rows."""
    rows: dict[str, TableRow] = {}
    n_others = 0
    for row in table.rows:
        study = row[key]
        if study not in studies:
            n_others += 1
        elif study in rows:
            value = f"{study!r} again, first in row {rows[study].number}"
            problems.append(Problem(table.file, row.number, key, "must occur in one row only", value))
        else:
            rows[study] = row
    if not rows:
        value = f"none of {len(table.rows):,} rows"
        problems.append(Problem(table.file, None, key, "must name a selected study", value))
    return rows, n_others


def _check_words(file: str, name: str, rows: Iterable[TableRow], problems: list[Problem]) -> None:
    words = VOCABULARIES[name]
    known = {folded(word) for word in words} | {""}
    for row in rows:
        if folded(row[name]) not in known:
            rule = f"must be blank or one of {', '.join(words)}"
            problems.append(Problem(file, row.number, name, rule, hint(row[name], words)))


def _text(row: TableRow, name: str) -> str:
    """Return the text of a cell; words of the vocabularies get their published spelling."""
    text = row[name]
    own = {folded(word): word for word in VOCABULARIES.get(name, ())}
    return own.get(folded(text), text)
