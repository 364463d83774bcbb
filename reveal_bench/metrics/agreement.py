"""Agreement between two raters, and between each reader and the majority of readers.

Conventions
-----------
Ratings are integer codes in [0, n_categories), one array (n_cases,) per rater with cases in the same order. For
weighted kappa and the mean difference, codes are ordered and evenly spaced. A contingency table (k, k) counts how often
`rater_a` chose the row's category and `rater_b` the column's. Every metric can also be computed from a stack of tables
(..., k, k), with one table per label, reader or replicate. Intervals are computed from the tables of resampled units:
:func:`resample_tables` returns ``counts @ tables`` for counts from
:func:`~reveal_bench.metrics.bootstrap.resampling_counts`. Undefined values are NaN.

Metrics
-------
* :func:`cohen_kappa`                 agreement beyond chance, unweighted, linear or quadratic [1]_ [2]_
* :func:`gwet_ac1`                    agreement beyond chance, with a chance that does not grow with prevalence [3]_
* :func:`percent_agreement`           proportion of equal ratings
* :func:`mean_absolute_difference`    mean distance of the codes (paper 001, Table 3)
* :func:`reader_against_majority`     tables of each reader against the majority vote (paper 004, section 4.2)
* :func:`reader_sums`                 inputs of :func:`ac1_from_sums`, for AC1 among many readers [3]_

References
----------
.. [1] Cohen, J. (1960). Educ. Psychol. Meas. 20, 37-46. doi:10.1177/001316446002000104
.. [2] Cohen, J. (1968). Psychol. Bull. 70, 213-220. doi:10.1037/h0026256
.. [3] Gwet, K. L. (2008). Br. J. Math. Stat. Psychol. 61, 29-48. doi:10.1348/000711006X126600
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.metrics.bootstrap import weighted_sums

Counts = npt.NDArray[np.floating[Any]]
Weights = Literal["linear", "quadratic"]


def cohen_kappa(
    rater_a: npt.ArrayLike, rater_b: npt.ArrayLike, *, n_categories: int, weights: Weights | None = None
) -> float:
    """Return Cohen's kappa; the disagreement expected by chance comes from the raters' frequencies.

    Parameters
    ----------
    rater_a, rater_b : int arrays (n_cases,), values in [0, n_categories)
    n_categories : int, at least 2
    weights : None, "linear" or "quadratic"
        What a disagreement of categories i and j costs: 1, |i - j| or (i - j)**2.

    Returns
    -------
    float in [-1, 1]; NaN without cases, or if chance agreement is 1 (both raters used only one and the same category)

    Raises
    ------
    ValueError
        If the lengths differ, a code is out of range, or `weights` is unknown.

    Examples
    --------
    Three of four agree (0.75), and chance agreement is 1/2 * 3/4 + 1/2 * 1/4 = 0.5:

    >>> float(cohen_kappa([0, 0, 1, 1], [0, 0, 0, 1], n_categories=2))
    0.5
    """
    return float(kappa_from_tables(contingency_table(rater_a, rater_b, n_categories=n_categories), weights=weights))


def gwet_ac1(rater_a: npt.ArrayLike, rater_b: npt.ArrayLike, *, n_categories: int) -> float:
    """Return Gwet's AC1.

    In its formula, p is the mean of both raters' proportions of a category; k is `n_categories`, including categories
    that were not used.

    Returns
    -------
    float in [-1, 1]; NaN without cases. Arguments and errors as for :func:`cohen_kappa`.

    Examples
    --------
    >>> round(gwet_ac1([0, 0, 1, 1], [0, 0, 0, 1], n_categories=2), 3)
    0.529
    """
    return float(ac1_from_tables(contingency_table(rater_a, rater_b, n_categories=n_categories)))


def percent_agreement(rater_a: npt.ArrayLike, rater_b: npt.ArrayLike, *, n_categories: int) -> float:
    """Return the proportion of cases that both raters put into the same category.

    Returns
    -------
    float in [0, 1], a fraction; NaN without cases. Arguments and errors as for :func:`cohen_kappa`.

    Examples
    --------
    >>> percent_agreement([0, 0, 1, 1], [0, 0, 0, 1], n_categories=2)
    0.75
    """
    return float(agreement_from_tables(contingency_table(rater_a, rater_b, n_categories=n_categories)))


def mean_absolute_difference(rater_a: npt.ArrayLike, rater_b: npt.ArrayLike, *, n_categories: int) -> float:
    """Return the mean of |a - b| over the cases, in steps of the scale.

    Returns
    -------
    float in [0, n_categories - 1]; NaN without cases. Arguments and errors as for :func:`cohen_kappa`.

    Examples
    --------
    >>> mean_absolute_difference([0, 4, 2], [1, 2, 2], n_categories=5)
    1.0
    """
    return float(difference_from_tables(contingency_table(rater_a, rater_b, n_categories=n_categories)))


def contingency_table(rater_a: npt.ArrayLike, rater_b: npt.ArrayLike, *, n_categories: int) -> FloatArray:
    """Return the number of cases by category of `rater_a` (row) and of `rater_b` (column): (k, k), whole numbers."""
    units = np.zeros(np.shape(rater_a)[:1], np.int64)
    table: FloatArray = unit_tables(rater_a, rater_b, n_categories=n_categories, units=units, n_units=1)[0]
    return table


def unit_tables(
    rater_a: npt.ArrayLike, rater_b: npt.ArrayLike, *, n_categories: int, units: npt.ArrayLike, n_units: int
) -> FloatArray:
    """Return the contingency table of each resampled unit (patient, study).

    Parameters
    ----------
    rater_a, rater_b, n_categories : as for :func:`cohen_kappa`
    units : int array (n_cases,), values in [0, n_units)

    Returns
    -------
    float array (n_units, k, k), whole numbers; they sum to the number of cases

    Raises
    ------
    ValueError
        If the lengths differ or a code is out of range.
    """
    k = n_categories
    if k < 2:
        raise ArgumentError("n_categories", "must be at least 2", k)
    a = check_codes("rater_a", rater_a, low=0, limit=k)
    b = check_codes("rater_b", rater_b, low=0, limit=k)
    unit = check_codes("units", units, low=0, limit=n_units)
    for name, codes in (("rater_b", b), ("units", unit)):
        if len(codes) != len(a):
            raise ValueError(f"`{name}` must have the length of `rater_a` ({len(a)}), got {len(codes)}")
    cells = (unit * k + a) * k + b
    return np.bincount(cells, minlength=n_units * k * k).reshape(n_units, k, k).astype(np.float64)


def check_codes(name: str, codes: npt.ArrayLike, *, low: int, limit: int, n_dims: tuple[int, ...] = (1,)) -> IntArray:
    """Return `codes` as integers, after checking that they are in [low, limit) and have an allowed number of
    dimensions.

    Raises
    ------
    ValueError
        If the number of dimensions is not allowed, or a value is not a whole number or out of range.
    """
    array = np.asarray(codes)
    if array.ndim not in n_dims:
        raise ValueError(f"`{name}` must have {' or '.join(map(str, n_dims))} dimensions, got shape {array.shape}")
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"`{name}` must hold integers, got {array.dtype}")
    bad = array[~np.isfinite(array) | (array != np.floor(array))]
    if len(bad):
        raise ValueError(f"`{name}` must hold integers, got {bad[0]}")
    if array.min() < low or array.max() >= limit:
        raise ValueError(f"`{name}` must be in [{low}, {limit}), got {array.min()} to {array.max()}")
    return array.astype(np.int64)


def resample_tables(counts: Counts, tables: FloatArray) -> FloatArray:
    """Return the contingency tables of every replicate, exactly: ``counts @ tables``, for any number of tables per
    unit.

    Parameters
    ----------
    counts : float array (n_resamples, n_units), from :func:`~reveal_bench.metrics.bootstrap.resampling_counts`
    tables : float array (n_units, ...)

    Returns
    -------
    float array (n_resamples, ...)

    Raises
    ------
    ValueError
        If `tables` does not have one entry per unit of `counts`.
    """
    if len(tables) != counts.shape[1]:
        raise ArgumentError(
            "tables", f"must have one entry per unit of `counts` ({counts.shape[1]})", len(tables), ("counts",)
        )
    shape = tables.shape[1:]
    return weighted_sums(counts, tables.reshape(len(tables), math.prod(shape))).reshape(len(counts), *shape)


def kappa_from_tables(tables: FloatArray, *, weights: Weights | None = None) -> FloatArray:
    """Return :func:`cohen_kappa` of each table in a stack (..., k, k); shape (...).

    Raises
    ------
    ValueError
        If the tables are not square or contain a negative, NaN or infinite number, or `weights` is unknown.
    """
    k = _check_tables(tables)
    distance = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(np.float64)
    costs = {None: (distance > 0).astype(np.float64), "linear": distance, "quadratic": distance**2}
    if weights not in costs:
        raise ArgumentError("weights", "must be None, 'linear' or 'quadratic'", repr(weights))
    cost = costs[weights]
    observed = (tables * cost).sum(axis=(-2, -1)) * tables.sum(axis=(-2, -1))
    expected = ((tables.sum(axis=-1) @ cost) * tables.sum(axis=-2)).sum(axis=-1)
    return 1 - divide(observed, expected)  # exact, as sums of whole numbers; 0 / 0 if chance agreement is 1


def lowest_kappa(tables: FloatArray) -> FloatArray:
    """Return the lowest kappa that is possible with each rater's rate of the second of two categories.

    Raters who rarely choose this category agree in most cases even if they never choose it together, so their kappa
    cannot approach -1. If each chooses it once in ten cases, the lowest kappa is -1/9.

    Parameters
    ----------
    tables : float array (..., 2, 2)

    Returns
    -------
    float array (...), NaN if kappa is undefined

    Examples
    --------
    >>> lowest_kappa(np.array([[9.0, 0.0], [0.0, 1.0]])).round(4)
    np.float64(-0.1111)
    """
    n, one, other = tables.sum(axis=(-2, -1)), tables[..., 1, :].sum(axis=-1), tables[..., 1].sum(axis=-1)
    together = np.maximum(one + other - n, 0)
    apart = [n - one - other + together, other - together, one - together, together]
    return kappa_from_tables(np.stack(apart, axis=-1).reshape(tables.shape))


def ac1_from_tables(tables: FloatArray) -> FloatArray:
    """Return :func:`gwet_ac1` of each table in a stack (..., k, k); errors as for :func:`kappa_from_tables`."""
    agreement = agreement_from_tables(tables)
    chosen = tables.sum(axis=-1) + tables.sum(axis=-2)
    return _ac1(agreement, divide(chosen, chosen.sum(axis=-1, keepdims=True)))


def agreement_from_tables(tables: FloatArray) -> FloatArray:
    """Return :func:`percent_agreement` of each table in a stack (..., k, k); errors as :func:`kappa_from_tables`."""
    _check_tables(tables)
    return divide(np.trace(tables, axis1=-2, axis2=-1), tables.sum(axis=(-2, -1)))


def difference_from_tables(tables: FloatArray) -> FloatArray:
    """Return :func:`mean_absolute_difference` of each table in a stack (..., k, k), with the same errors."""
    k = _check_tables(tables)
    distance = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    return divide((tables * distance).sum(axis=(-2, -1)), tables.sum(axis=(-2, -1)))


def divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return `numerator / denominator`, NaN (undefined) if both are 0."""
    with np.errstate(invalid="ignore"):
        quotient: FloatArray = numerator / denominator
    return quotient


def _ac1(agreement: FloatArray, share: FloatArray) -> FloatArray:
    chance = (share * (1 - share)).sum(axis=-1) / (share.shape[-1] - 1)  # chance is at most 1 / k, so never 1
    ac1: FloatArray = (agreement - chance) / (1 - chance)
    return ac1


def _check_tables(tables: FloatArray) -> int:
    """Return the number of categories, after checking the tables."""
    if tables.ndim < 2 or tables.shape[-1] != tables.shape[-2] or tables.shape[-1] < 2:
        raise ArgumentError("tables", "must have shape (..., k, k) with k at least 2", tables.shape)
    bad = tables[~(np.isfinite(tables) & (tables >= 0))]
    if len(bad):
        raise ArgumentError("tables", "must hold finite numbers of at least 0", bad[0])
    return int(tables.shape[-1])


@dataclass(frozen=True)
class ReaderTables:
    """Counts of the pairs (reader's vote, majority vote) in each study.

    Attributes
    ----------
    tables : float array (n_studies, k, k), or (n_studies, n_labels, k, k) when votes have labels
        Rows are the reader's category, columns the majority's. Sum them over studies (and labels) for
        :func:`kappa_from_tables`; :func:`resample_tables` computes replicates.
    n_votes, n_undefined : int, or int arrays (n_labels,)
        Number of votes, and number of votes left out because there is no majority to compare them with.
    """

    tables: FloatArray
    n_votes: IntArray
    n_undefined: IntArray


def reader_against_majority(
    votes: npt.ArrayLike, *, n_categories: int, own_vote: bool = True, min_votes: int = 2
) -> ReaderTables:
    """Pair each reader's vote with the majority vote on the same study, pooled over readers (paper 004, section 4.2).

    The majority is the category that more than half of the votes chose, and at least `min_votes` of them ("at least 2
    raters selecting the same category"). Without a majority (a tie, three readers with three answers, a single reader)
    the study's votes are left out and counted; no tie is ever broken. The paper's three binary votes cannot tie.

    Parameters
    ----------
    votes : int array (n_studies, n_readers) or (n_studies, n_readers, n_labels), values in [0, n_categories), -1 for an
        absent reader Readers may differ between studies, because only votes on the same study are compared.
    n_categories : int, at least 2; merge categories beforehand (the paper: agree mostly and disagree)
    own_vote : bool
        True counts the reader's own vote in the majority, as in the paper, which increases agreement; False compares
        with the majority of only the other readers.
    min_votes : int, at least 1

    Raises
    ------
    ValueError
        If the shape is wrong, a code is out of range, or `min_votes` is below 1.

    Examples
    --------
    Two studies, three readers; the third dissents on the first study, the second is absent from the other:

    >>> pairs = reader_against_majority([[1, 1, 0], [0, -1, 0]], n_categories=2)
    >>> pairs.tables.sum(axis=0).tolist(), float(kappa_from_tables(pairs.tables.sum(axis=0)).round(3))
    ([[2.0, 1.0], [0.0, 2.0]], 0.615)
    """
    if min_votes < 1:
        raise ArgumentError("min_votes", "must be at least 1", min_votes)
    cast = _one_hot(votes, n_categories)
    present = cast.sum(axis=-1)
    others = cast.sum(axis=1, keepdims=True) - (0 if own_vote else cast)  # (n_studies, 1 or n_readers, n_labels, k)
    most = others.max(axis=-1, keepdims=True)
    is_majority = (2 * most > others.sum(axis=-1, keepdims=True)) & (most >= min_votes)
    majority = (others == most) & is_majority  # at most one category, because two cannot both have more than half
    tables = np.einsum("srli,srlj->slij", cast, np.broadcast_to(majority, cast.shape).astype(np.float64))
    n_votes = present.sum(axis=(0, 1)).astype(np.int64)
    n_undefined = n_votes - tables.sum(axis=(0, 2, 3)).astype(np.int64)
    if np.ndim(votes) == 2:
        return ReaderTables(tables[:, 0], n_votes[0], n_undefined[0])
    return ReaderTables(tables, n_votes, n_undefined)


def reader_sums(votes: npt.ArrayLike, *, n_categories: int) -> FloatArray:
    """Return each study's terms of AC1 among its readers, to be summed over studies for :func:`ac1_from_sums`.

    Paper 004 does not say between which readers the AC1 of its Table S3 is computed. They cannot be the pairs used for
    kappa, because no 2 x 2 table has an AC1 of 0.667 with a kappa of 0.756 (pleural effusion). AC1 is computed here
    between the readers of a study, as irrCAC does from raw votes.

    Parameters
    ----------
    votes, n_categories : as for :func:`reader_against_majority`

    Returns
    -------
    float array (n_studies, [n_labels,] 3 + k): agreement of the study's pairs of readers, 1 if it has a pair, 1 if it
        has a vote, proportion of its votes in each category
    """
    tally = _one_hot(votes, n_categories).sum(axis=1)
    n = tally.sum(axis=-1, keepdims=True)
    pairs = (tally * (tally - 1)).sum(axis=-1, keepdims=True) / np.maximum(n * (n - 1), 1)
    sums: FloatArray = np.concatenate([pairs, n >= 2, n >= 1, tally / np.maximum(n, 1)], axis=-1)
    return sums[:, 0] if np.ndim(votes) == 2 else sums


def ac1_from_sums(sums: FloatArray) -> FloatArray:
    """Return Gwet's AC1 among any number of readers, from summed :func:`reader_sums` (..., 3 + k); shape (...).

    Returns
    -------
    float array in [-1, 1]; NaN if no study has two votes
    """
    return _ac1(divide(sums[..., 0], sums[..., 1]), divide(sums[..., 3:], sums[..., 2, None]))


def _one_hot(votes: npt.ArrayLike, n_categories: int) -> FloatArray:
    """Return (n_studies, n_readers, n_labels, k): 1 at the category that the reader chose, all 0 if the reader is
    absent.
    """
    if n_categories < 2:
        raise ArgumentError("n_categories", "must be at least 2", n_categories)
    codes = check_codes("votes", votes, low=-1, limit=n_categories, n_dims=(2, 3))
    codes = codes[..., None] if codes.ndim == 2 else codes
    chosen: FloatArray = (codes[..., None] == np.arange(n_categories)).astype(np.float64)
    return chosen
