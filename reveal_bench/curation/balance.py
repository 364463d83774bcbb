"""Are two halves alike? Counts per category, a test of each column, and standardized differences.

Conventions
-----------
A :class:`Column` has one text per study, "" where it is missing; missing is a category of its own. A column whose texts
are all numbers is a column of numbers: it is compared per value, as in paper 004 (Table S2), and by its mean.
`is_holdout` is a bool array (n_studies,); differences are released minus holdout. Undefined is NaN.

Tests
-----
* chi-square, where every expected count is at least 5: Pearson's, with Yates's correction in tables of two by two. That
  is scipy's default, and with it come out the p values that the paper prints (0.726, 0.115, 0.066, 0.220).
* Fisher's exact test, where one is smaller; beyond two by two, by :data:`SIMULATED` tables of the same margins. Tables
  are as extreme as they are improbable (Freeman and Halton 1951); p is (1 + as extreme) / (1 + simulated).
* Of any table the p value of chi-square is given besides, as the paper has it.

Differences
-----------
Of a category (p - q) / sqrt((p(1 - p) + q(1 - q)) / 2), of means the same with the variances over n - 1 (Austin 2009,
doi:10.1080/03610910902859574); 0 where the halves are equal, infinite where both are constant and differ.

The table of facts
------------------
What is known of studies: acquisition and demographics, one row per study, every cell a text. Any table of
:mod:`reveal_bench.sources.study_table` will do; it may hold studies that are not asked for. A blank cell is missing,
and so is everything of a study without a row; both are counted where they are compared. Columns named as the
demographics of a study record (age_band, sex, race, patient_class) must hold their words, as they are published.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.findings import hint
from reveal_bench.sources.mapping import VOCABULARIES, folded
from reveal_bench.sources.source import BuildError, Problem
from reveal_bench.sources.study_table import StudyTable, TableRow, missing_columns, read_table

__all__ = [
    "CategoryBalance",
    "Column",
    "ColumnBalance",
    "CountsTest",
    "Differences",
    "Facts",
    "SIMULATED",
    "compare_counts",
    "compare_halves",
    "mean_differences",
    "proportion_differences",
    "read_facts",
]


SIMULATED = 9_999
SMALL = 5.0
"""Expected counts below this are small."""
_SAME = 1e-7  # logarithms of probabilities this near to one another are of equally probable tables
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Column:
    """A text per study, "" where it is missing."""

    name: str
    texts: tuple[str, ...]

    @property
    def numbers(self) -> FloatArray | None:
        """Its numbers, NaN where missing; None if a text is not a finite number, or all are missing."""
        found = [NAN if not text else _number(text) for text in self.texts]
        if all(not text for text in self.texts) or any(number is None for number in found):
            return None
        return np.array(found, np.float64)

    def categories(self) -> tuple[list[str | None], FloatArray]:
        """Categories in order, None (missing) last, and (n_studies, n_categories): 1 where a study is of one.

        Numbers are written as the shortest text that stands for them, so that 85 and 85.0 are one.
        """
        numbers = self.numbers
        if numbers is None:
            keys: list[str | None] = [text or None for text in self.texts]
            names: list[str | None] = [*sorted({text for text in self.texts if text})]
        else:
            keys = [None if math.isnan(number) else _shown(number) for number in numbers.tolist()]
            names = [_shown(number) for number in sorted(set(numbers[~np.isnan(numbers)].tolist()))]
        names += [None] if None in keys else []
        return names, np.array([[key == name for name in names] for key in keys], np.float64).reshape(
            len(keys), len(names)
        )


class Differences:
    """The standardized differences that a split is judged by.

    Of every category of `columns`; of numbers the means and whether they are missing, as their single values would be
    judged by chance.

    Raises
    ------
    ValueError
        If there is no column, or they are not of the same studies.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        lengths = {len(column.texts) for column in columns}
        if len(lengths) != 1:
            raise ArgumentError("columns", "must be one or more of the same number of studies", sorted(lengths))
        self.members, self.numbers = np.zeros((*lengths, 0)), np.zeros((*lengths, 0))
        for column in columns:
            names, members = column.categories()
            numbers = column.numbers
            if numbers is not None:
                members = members[:, [name is None for name in names]]
                self.numbers = np.column_stack([self.numbers, numbers])
            self.members = np.column_stack([self.members, members])

    def __call__(self, is_holdout: BoolArray) -> FloatArray:
        """Of one split, float array."""
        of_means = mean_differences(self.numbers, is_holdout)
        return np.concatenate([of_means, proportion_differences(self.members, is_holdout)])


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


def proportion_differences(members: FloatArray, is_holdout: BoolArray) -> FloatArray:
    """Standardized differences of the columns of `members` (n_studies, n_columns), 0 or 1; NaN if a half is empty."""
    p, q = (_column_means(members[half]) for half in (~is_holdout, is_holdout))
    return _standardized(p - q, (p * (1 - p) + q * (1 - q)) / 2)


def mean_differences(numbers: FloatArray, is_holdout: BoolArray) -> FloatArray:
    """Standardized differences of means of (n_studies, n_columns), NaN = missing.

    NaN if a half has fewer than two numbers.
    """
    found = []
    for column in numbers.T:
        halves = [half[~np.isnan(half)] for half in (column[~is_holdout], column[is_holdout])]
        if min(len(half) for half in halves) < 2:
            found.append(NAN)
            continue
        origin = halves[0][0]  # constants have a variance of exactly 0
        a, b = ((half - origin) for half in halves)
        found.append(float(_standardized(a.mean() - b.mean(), (a.var(ddof=1) + b.var(ddof=1)) / 2)))
    return np.array(found, np.float64)


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


def _standardized(difference: npt.ArrayLike, variance: npt.ArrayLike) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.asarray(difference, np.float64) / np.sqrt(np.asarray(variance, np.float64))
    return np.where(np.asarray(difference) == 0, 0.0, found)


def _column_means(members: FloatArray) -> FloatArray:
    return members.mean(axis=0) if len(members) else np.full(members.shape[1], NAN)


def _mean(numbers: FloatArray) -> float:
    defined = numbers[~np.isnan(numbers)]
    return float(defined.mean()) if len(defined) else NAN


def _largest(values: FloatArray) -> float:
    """Largest absolute value that is defined; NaN without one."""
    defined = np.abs(values[~np.isnan(values)])
    return float(defined.max()) if len(defined) else NAN


def _shown(number: float) -> str:
    return repr(number).removesuffix(".0")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


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
    problems += missing_columns(table, (key, *names))
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
        if folded(row.text(name)) not in known:
            rule = f"must be blank or one of {', '.join(words)}"
            problems.append(Problem(file, row.number, name, rule, hint(row.text(name), words)))


def _text(row: TableRow, name: str) -> str:
    """A cell; of a vocabulary its own spelling."""
    text = row.text(name)
    own = {folded(word): word for word in VOCABULARIES.get(name, ())}
    return own.get(folded(text), text)
