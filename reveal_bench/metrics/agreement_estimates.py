"""Agreement of two raters with its intervals, for data that do not come from a dataset folder.

Conventions are those of :mod:`reveal_bench.metrics.estimates`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.metrics.agreement import (
    ac1_from_tables,
    agreement_from_tables,
    difference_from_tables,
    kappa_from_tables,
    lowest_kappa,
    resample_tables,
    unit_tables,
)
from reveal_bench.metrics.bootstrap import (
    Counts,
    blocks_of_counts,
    bounds_of,
    estimates_from,
    macro_first,
    replicates_of,
)
from reveal_bench.metrics.estimates import POOLED, check_length, resampled_units
from reveal_bench.metrics.intervals import Estimate, Resampling, check_interval
from reveal_bench.metrics.jackknife import evidence_of_groups, has_uneven_rows
from reveal_bench.metrics.resampled import Figures

MAX_CATEGORIES = 100
"""Largest number of categories inferred from integers if `categories` are not given."""

_OF_TABLES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "cohen_kappa": kappa_from_tables,
    "cohen_kappa_linear": partial(kappa_from_tables, weights="linear"),
    "cohen_kappa_quadratic": partial(kappa_from_tables, weights="quadratic"),
    "gwet_ac1": ac1_from_tables,
    "percent_agreement": agreement_from_tables,
    "mean_absolute_difference": difference_from_tables,
}
_NEED_ORDER = ("cohen_kappa_linear", "cohen_kappa_quadratic", "mean_absolute_difference")


def estimate_agreement(
    rater_a: npt.ArrayLike,
    rater_b: npt.ArrayLike,
    *,
    n_categories: int,
    is_ordered: bool = True,
    findings: Sequence[str] | None = None,
    patients: Sequence[str] | None = None,
    all_patients: Sequence[str] | None = None,
    resampling: Resampling = Resampling(),
) -> list[Estimate]:
    """Return kappa with every weighting, AC1, percent agreement and mean absolute difference of two raters.

    Parameters
    ----------
    rater_a, rater_b : int arrays (n_cases,), values in [0, n_categories)
    is_ordered : True if categories have an order; otherwise weighted kappas and the difference are left out
    findings : a name per case; one finding :data:`POOLED` by default
    patients, all_patients, resampling : as for :func:`estimate_labels`

    Returns
    -------
    list of Estimate: per metric the macro over findings, then one per finding

    Raises
    ------
    ValueError
        If the input is empty, lengths differ, a code is out of range, or the interval does not apply.

    Examples
    --------
    >>> kappa, *_ = estimate_agreement([0, 0, 1, 1], [0, 0, 0, 1], n_categories=2)
    >>> kappa.metric, kappa.finding, kappa.value
    ('cohen_kappa', 'macro', 0.5)
    """
    check_interval(resampling.interval, resampling.n_resamples)
    n_cases = len(np.asarray(rater_a))
    units, n_units = resampled_units(n_cases, patients, all_patients)
    names = [POOLED] * n_cases if findings is None else list(findings)
    check_length("findings", names, n_cases)
    labels = list(dict.fromkeys(names))
    a, b, of_case = np.asarray(rater_a), np.asarray(rater_b), np.array(names)
    check_length("rater_b", b, n_cases, of="rater_a")
    tables = []
    for finding in labels:
        rows = of_case == finding
        tables.append(unit_tables(a[rows], b[rows], n_categories=n_categories, units=units[rows], n_units=n_units))
    stacked = np.stack(tables, axis=1)
    total = stacked.sum(axis=0)

    def replicates(counts: Counts) -> dict[str, FloatArray]:
        tables_drawn = resample_tables(counts, stacked)
        return {name: _OF_TABLES[name](tables_drawn) for name in chosen}

    chosen = [name for name in _OF_TABLES if is_ordered or name not in _NEED_ORDER]
    drawn = replicates_of(replicates, blocks_of_counts(n_units, resampling))
    n = total.sum(axis=(-2, -1)).astype(np.int64)
    rated = stacked.sum(axis=(-2, -1))
    commonest = np.argmax(total.sum(axis=-1) + total.sum(axis=-2), axis=-1)
    apart = rated - stacked[:, np.arange(len(labels)), commonest, commonest]
    without = total - stacked
    estimates = []
    for name in chosen:
        statistic, is_kappa = _OF_TABLES[name], name.startswith("cohen_kappa")
        values, left_out = statistic(total), statistic(without)
        undefined = np.isnan(values)
        support = evidence_of_groups(
            macro_first(left_out),
            ((apart if is_kappa else rated) > 0).sum(axis=0),  # kappa depends most on the rarer categories
            averaged=np.flatnonzero(~undefined),
            bounds=bounds_of(name),
            lowest=lowest_kappa(total) if n_categories == 2 and is_kappa else None,
            of_overlap=n_categories == 2 and is_kappa,
            is_uneven=has_uneven_rows(rated),
        )
        n_defined, n_undefined = np.where(undefined, 0, n), np.where(undefined, n, 0)
        figures = Figures(values, drawn[name], n_defined, left_out, support=support, n_undefined=n_undefined)
        estimates += estimates_from(figures, labels, recipe=resampling.signature(name), interval=resampling.interval)
    return estimates


def code_ratings(
    predictions: Sequence[Any], references: Sequence[Any], *, categories: Sequence[Any] | None = None
) -> tuple[IntArray, IntArray, list[Any], bool]:
    """Return the ratings of two raters as codes.

    Parameters
    ----------
    predictions, references : one integer or one name per case
    categories : the scale, in order; by default all integers from the smallest to the largest rating, or the names
        that occur, which then have no order

    Returns
    -------
    codes of `predictions` and of `references` (n_cases,), the categories, and True if these have an order

    Raises
    ------
    ValueError
        If a rating is not in `categories`, a category is given twice, or integers span more than
        :data:`MAX_CATEGORIES`.

    Examples
    --------
    >>> code_ratings([1, 4], [2, 2])
    (array([0, 3]), array([1, 1]), [1, 2, 3, 4], True)
    """
    seen = [*predictions, *references]
    is_ordered = categories is not None or not any(isinstance(rating, str) for rating in seen)
    if categories is not None:
        scale = list(categories)
    elif is_ordered and seen:
        if max(seen) - min(seen) >= MAX_CATEGORIES:
            raise ArgumentError("categories", f"must be given for ratings from {min(seen)} to {max(seen)}")
        scale = list(range(min(seen), max(seen) + 1))
    else:
        scale = sorted(set(seen))
    if len(set(scale)) != len(scale):
        raise ArgumentError("categories", "must not hold one twice", scale)
    # All ratings are equal: on a scale of one category, there is no agreement beyond chance
    scale = scale if len(scale) > 1 else [*scale, None]
    code: dict[Hashable, int] = {category: i for i, category in enumerate(scale)}
    columns = []
    for name, ratings in (("predictions", predictions), ("references", references)):
        unlisted = next((i for i, rating in enumerate(ratings) if rating not in code), None)
        if unlisted is not None:
            raise ValueError(f"`{name}[{unlisted}]` must be one of `categories` {scale}, got {ratings[unlisted]!r}")
        columns.append(np.array([code[rating] for rating in ratings], np.int64))
    return columns[0], columns[1], [category for category in scale if category is not None], is_ordered
