"""Are two halves alike? Counts per category, a test of each column, and standardized differences.

Conventions
-----------
Columns and differences are those of :mod:`reveal_bench.dataset.balance`, with a study for a row: a column of numbers is
compared per value, as in paper 004 (Table S2), and by its mean.

Tests
-----
* chi-square, where every expected count is at least 5: Pearson's, with Yates's correction in tables of two by two. That
  is scipy's default, and with it come out the p values that the paper prints (0.726, 0.115, 0.066, 0.220).
* Fisher's exact test, where one is smaller; beyond two by two, by :data:`SIMULATED` tables of the same margins. Tables
  are as extreme as they are improbable (Freeman and Halton 1951); p is (1 + as extreme) / (1 + simulated).
* Of any table the p value of chi-square is given besides, as the paper has it.

The table of facts
------------------
What is known of studies: acquisition and demographics, one row per study, every cell a text. Any table of
:mod:`reveal_bench.tables` will do; it may hold studies that are not asked for. A blank cell is missing,
and so is everything of a study without a row; both are counted where they are compared. Columns named as the
demographics of a study record (age_band, sex, race, patient_class) must hold their words, as they are published.
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
"""Expected counts below this are small."""
_SAME = 1e-7  # logarithms of probabilities this near to one another are of equally probable tables


@dataclass(frozen=True, slots=True)
class CategoryBalance:
    """How many studies of each half are of a category; None is the missing."""

    category: str | None
    released: int
    holdout: int
    standardized_difference: float


@dataclass(frozen=True, slots=True)
class CountsTest:
    """Whether two rows of counts may have one distribution.

    Attributes
    ----------
    test : "chi-square", "fisher", "fisher, simulated", or "none" with fewer than two rows or columns that are not empty
    p_value, chi_square_p_value : of `test`, and of chi-square whatever the expected counts
    statistic, degrees_of_freedom : of chi-square
    smallest_expected : count
    n_simulated : tables behind "fisher, simulated", else 0
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
    """A column in both halves; the means and their difference are NaN but for numbers."""

    name: str
    is_number: bool
    categories: tuple[CategoryBalance, ...]
    mean_released: float
    mean_holdout: float
    standardized_mean_difference: float
    largest_difference: float
    test: CountsTest


def compare_halves(column: Column, is_holdout: BoolArray, rng: np.random.Generator) -> ColumnBalance:
    """A column in both halves.

    Parameters
    ----------
    rng : of the simulated tables

    Raises
    ------
    ValueError
        If there is not one text per study.
    ImportError
        If scipy is not installed.
    """
    if len(column.texts) != len(is_holdout):
        raise ValueError(f"`{column.name}` must have {len(is_holdout)} texts, got {len(column.texts)}")
    names, members = column.categories()
    released, holdout = members[~is_holdout].sum(axis=0), members[is_holdout].sum(axis=0)
    found = zip(names, released, holdout, proportion_differences(members, is_holdout), strict=True)
    numbers = column.numbers
    means = [NAN, NAN] if numbers is None else [_mean(numbers[~is_holdout]), _mean(numbers[is_holdout])]
    of_means = NAN if numbers is None else float(mean_differences(numbers[:, None], is_holdout)[0])
    return ColumnBalance(
        name=column.name,
        is_number=numbers is not None,
        categories=tuple(CategoryBalance(name, int(a), int(b), float(d)) for name, a, b, d in found),
        mean_released=means[0],
        mean_holdout=means[1],
        standardized_mean_difference=of_means,
        largest_difference=_largest(Differences([column])(is_holdout)),
        test=compare_counts(np.stack([released, holdout]), rng),
    )


def compare_counts(table: npt.ArrayLike, rng: np.random.Generator, *, n_simulated: int = SIMULATED) -> CountsTest:
    """Whether the two rows of `table` (2, n_categories) may have one distribution; empty columns do not matter.

    Raises
    ------
    ValueError
        If there are not two rows of whole numbers of at least 0.
    ImportError
        If scipy is not installed.
    """
    given = np.asarray(table, np.float64)
    if given.ndim != 2 or len(given) != 2 or not (np.isfinite(given) & (given >= 0) & (np.floor(given) == given)).all():
        raise ArgumentError("table", "must be two rows of counts", np.asarray(table).tolist())
    counts = given[:, given.any(axis=0)].astype(np.int64)
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
    """Share of tables with these margins that are no more probable than this one, which counts among them."""
    totals, size = counts.sum(axis=0), int(counts[0].sum())
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, counts.sum() + 1)))])

    def log_probability(first: npt.NDArray[np.int64]) -> FloatArray:
        """Of a table, but for what the margins fix."""
        found: FloatArray = -(log_factorial[first] + log_factorial[totals - first]).sum(axis=-1)
        return found

    drawn = rng.multivariate_hypergeometric(totals, size, size=n_simulated, method="marginals")
    n_extreme = int((log_probability(drawn) <= log_probability(counts[0]) + _SAME).sum())
    return (1 + n_extreme) / (1 + n_simulated)


def _mean(numbers: FloatArray) -> float:
    defined = numbers[~np.isnan(numbers)]
    return float(defined.mean()) if len(defined) else NAN


def _largest(values: FloatArray) -> float:
    """Largest absolute value that is defined; NaN without one."""
    defined = np.abs(values[~np.isnan(values)])
    return float(defined.max()) if len(defined) else NAN


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
        With everything that is wrong: the table, its columns, a study in two rows, an unknown word.
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
    found = (
        Column(name, tuple(_text(rows[study], name) if study in rows else "" for study in studies)) for name in names
    )
    return Facts(tuple(found), sum(study not in rows for study in studies), n_others)


def _check_columns(table: InputTable, key: str, names: Sequence[str], problems: list[Problem]) -> None:
    problems += missing_columns(table, (key, *names))
    twice = sorted({name for name in names if name == key or names.count(name) > 1})
    problems += [Problem(table.file, None, "columns", "must be named once", f"{name!r} again") for name in twice]


def _rows_of(
    table: InputTable, key: str, studies: set[str], problems: list[Problem]
) -> tuple[dict[str, TableRow], int]:
    """The rows of `studies`, and the number of the others."""
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
        problems.append(Problem(table.file, None, key, "must name a study that was selected", value))
    return rows, n_others


def _check_words(file: str, name: str, rows: Iterable[TableRow], problems: list[Problem]) -> None:
    words = VOCABULARIES[name]
    known = {folded(word) for word in words} | {""}
    for row in rows:
        if folded(row[name]) not in known:
            rule = f"must be blank or one of {', '.join(words)}"
            problems.append(Problem(file, row.number, name, rule, hint(row[name], words)))


def _text(row: TableRow, name: str) -> str:
    """A cell; of a vocabulary its own spelling."""
    text = row[name]
    own = {folded(word): word for word in VOCABULARIES.get(name, ())}
    return own.get(folded(text), text)
