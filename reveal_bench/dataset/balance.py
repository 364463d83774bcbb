"""Balance between the released and the held-out half of a dataset, and choice of the best balanced random division.

Conventions
-----------
A :class:`Column` has one text per row, "" for a missing value; missing values form a separate category. If all texts of
a column are numbers, the column is numeric. `is_holdout` is a bool array (n_rows,); differences are released minus
holdout. Undefined differences are NaN.

Differences are standardized (Austin 2009, doi:10.1080/03610910902859574). For a category with proportions p and q in
the halves, the difference is (p - q) / sqrt((p(1 - p) + q(1 - q)) / 2). For means, the variances (with n - 1) replace
p(1 - p) and q(1 - q). A difference is 0 if the halves have equal values, and infinite if each half is constant but the
two constants differ. Each random division (draw) is judged by its largest absolute difference; the draw with the
smallest value is chosen, the first in case of ties. Infinite differences count, undefined differences do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray

NAN = float("nan")
PRESENT, ABSENT = "present", "absent"
CRITERION = "the largest absolute standardized difference over all columns of the facts and all labels, smallest wins"


@dataclass(frozen=True, slots=True)
class Column:
    """A named column with one text per study, "" for a missing value."""

    name: str
    texts: tuple[str, ...]

    @property
    def numbers(self) -> FloatArray | None:
        """The column as numbers, NaN for missing values; None if all are missing or a text is no finite number."""
        numbers = [NAN if not text else _number(text) for text in self.texts]
        if all(not text for text in self.texts) or any(number is None for number in numbers):
            return None
        return np.array(numbers, np.float64)

    def categories(self) -> tuple[list[str | None], FloatArray]:
        """Return (categories, indicator).

        The categories are sorted, with None (missing) last; the indicator (n_studies, n_categories) is 1 for the
        category of each study, else 0.

        Numbers are written in their shortest form, so that 85 and 85.0 are the same category.
        """
        numbers = self.numbers
        if numbers is None:
            keys: list[str | None] = [text or None for text in self.texts]
            names: list[str | None] = [*sorted({text for text in self.texts if text})]
        else:
            keys = [None if math.isnan(number) else _format_number(number) for number in numbers.tolist()]
            names = [_format_number(number) for number in sorted(set(numbers[~np.isnan(numbers)].tolist()))]
        names += [None] if None in keys else []
        return names, np.array([[key == name for name in names] for key in keys], np.float64).reshape(
            len(keys), len(names)
        )


class Differences:
    """Function that returns the standardized differences between the halves of a division.

    A column of texts has a difference for every category. A numeric column has a difference of means and a difference
    in missing values, but none for individual numbers, which differ by chance.

    Raises
    ------
    ValueError
        If there is no column, or columns have different lengths.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        lengths = {len(column.texts) for column in columns}
        if len(lengths) != 1:
            raise ArgumentError("columns", "must be one or more columns of the same length", sorted(lengths))
        self.members, self.numbers = np.zeros((*lengths, 0)), np.zeros((*lengths, 0))
        for column in columns:
            names, members = column.categories()
            numbers = column.numbers
            if numbers is not None:
                members = members[:, [name is None for name in names]]
                self.numbers = np.column_stack([self.numbers, numbers])
            self.members = np.column_stack([self.members, members])

    def __call__(self, is_holdout: BoolArray) -> FloatArray:
        """Return the differences for one division: first of means, then of proportions."""
        of_means = mean_differences(self.numbers, is_holdout)
        return np.concatenate([of_means, proportion_differences(self.members, is_holdout)])


@dataclass(frozen=True, slots=True)
class Draws:
    """The outcome of several random divisions (draws).

    `is_holdout`, a bool array (n_rows,), marks the rows of the chosen draw; `taken` is the draw's 1-based number.
    `values` contains the largest absolute difference of every draw.
    """

    is_holdout: BoolArray
    taken: int
    values: list[float]


def best_draw(draws: Iterable[BoolArray], columns: Sequence[Column]) -> Draws:
    """Return the best of one or more draws by :data:`CRITERION`; `columns` describe the rows that are divided."""
    difference = Differences(columns)
    values: list[float] = []
    taken, best = 0, np.zeros(0, bool)
    for i, is_holdout in enumerate(draws, start=1):
        values.append(float(np.fmax.reduce(np.abs(difference(is_holdout)), initial=NAN)))  # NaN if all are undefined
        if i == 1 or values[-1] < values[taken - 1]:
            taken, best = i, is_holdout
    return Draws(best, taken, values)


def proportion_differences(members: FloatArray, is_holdout: BoolArray) -> FloatArray:
    """Return the standardized difference of each 0/1 column of `members` (n_studies, n_columns).

    Differences are NaN if a half is empty.
    """
    p, q = (_column_means(members[half]) for half in (~is_holdout, is_holdout))
    return _standardized(p - q, (p * (1 - p) + q * (1 - q)) / 2)


def mean_differences(numbers: FloatArray, is_holdout: BoolArray) -> FloatArray:
    """Return the standardized difference of means of each column of `numbers` (n_studies, n_columns; NaN if missing).

    A difference is NaN if a half has fewer than two numbers.
    """
    differences = []
    for column in numbers.T:
        halves = [half[~np.isnan(half)] for half in (column[~is_holdout], column[is_holdout])]
        if min(len(half) for half in halves) < 2:
            differences.append(NAN)
            continue
        origin = halves[0][0]  # avoids rounding errors: the variance of a constant is exactly 0
        a, b = ((half - origin) for half in halves)
        differences.append(float(_standardized(a.mean() - b.mean(), (a.var(ddof=1) + b.var(ddof=1)) / 2)))
    return np.array(differences, np.float64)


def _standardized(difference: npt.ArrayLike, variance: npt.ArrayLike) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        standardized = np.asarray(difference, np.float64) / np.sqrt(np.asarray(variance, np.float64))
    return np.where(np.asarray(difference) == 0, 0.0, standardized)


def _column_means(members: FloatArray) -> FloatArray:
    return members.mean(axis=0) if len(members) else np.full(members.shape[1], NAN)


def _format_number(number: float) -> str:
    return repr(number).removesuffix(".0")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


@dataclass(frozen=True, slots=True)
class CategoryShare:
    """Number of rows of each half that have a category, and the standardized difference of the two proportions."""

    column: str
    category: str | None
    released: int
    holdout: int
    difference: float


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance between the two halves of a build.

    Attributes
    ----------
    released, holdout : numbers of rows
    values, taken : largest absolute difference of each draw, and 1-based number of the chosen draw
    categories : categories of all columns, by decreasing absolute difference
    """

    released: int
    holdout: int
    values: tuple[float, ...]
    taken: int
    categories: tuple[CategoryShare, ...]


def balance_of(draws: Draws, columns: Sequence[Column]) -> Balance:
    """Return the balance of the chosen draw by category; absence of a label and "no" are omitted."""
    shares = []
    for column in columns:
        names, members = column.categories()
        differences = proportion_differences(members, draws.is_holdout)
        released, holdout = (members[half].sum(axis=0) for half in (~draws.is_holdout, draws.is_holdout))
        for name, *counts, difference in zip(names, released, holdout, differences, strict=True):
            if name != ABSENT:
                shares.append(CategoryShare(column.name, name, int(counts[0]), int(counts[1]), float(difference)))
    shares.sort(key=lambda share: -abs(share.difference))
    n_holdout = int(draws.is_holdout.sum())
    return Balance(len(draws.is_holdout) - n_holdout, n_holdout, tuple(draws.values), draws.taken, tuple(shares))


def compared_columns(features: Mapping[str, Any]) -> list[str]:
    """Return the names of the main config's columns by which halves are compared.

    They are `labels`, `manufacturer`, and all columns with codes or booleans.
    """
    from datasets import ClassLabel, Value

    return [
        name
        for name, feature in features.items()
        if name in ("labels", "manufacturer") or isinstance(feature, ClassLabel) or feature == Value("bool")
    ]


def columns_of(rows: Sequence[Mapping[str, Any]], features: Mapping[str, Any]) -> list[Column]:
    """Return the compared columns as texts; `labels` becomes one column per label.

    Parameters
    ----------
    rows : all rows with the columns of :func:`compared_columns`, in which categories are codes
    features : features of `datasets`, which name the codes
    """
    columns = []
    for name in compared_columns(features):
        if name == "labels":
            for code, label in enumerate(features[name].feature.names):
                columns.append(Column(label, tuple(PRESENT if code in row[name] else ABSENT for row in rows)))
        else:
            words = getattr(features[name], "names", None)
            columns.append(Column(name, tuple(_word(row[name], words) for row in rows)))
    return columns


def _word(value: Any, words: Sequence[str] | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return PRESENT if value else ABSENT
    return words[value] if words is not None else str(value)
