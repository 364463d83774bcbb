"""Differences of groups of patients from all other patients, with p by permutation and intervals that agree with it.

Conventions
-----------
A group and the rest share no patient, so their difference has the variance ``se_group**2 + se_rest**2`` of two
independent samples. Patient u contributes ``n (N_u - F D_u) / sum D`` to the score F = sum N / sum D of n patients,
with numerators N and denominators D of :meth:`~reveal_bench.metrics.resampled.Resampled.ratio_parts`; contributions to
a macro are means over its findings. The squared standard error of F is the sum of the squared contributions over n**2.
The variance in the whole split counts as one further patient, otherwise 10 patients who happen to be all right would
count as certain.

There is a test if at least :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients support a finding's score on
both sides; for AUROC and average precision, :data:`LEAST_OF_BOTH` patients with the finding and as many without it. The
macros that are subtracted are over these findings alone: a rarer finding's F1 is often exactly 0 or 1. Without known
contributions of patients, as for scores of detectors, there is no test.

p and intervals are adjusted for multiple comparisons: those of macros over all groups, those of findings over all
groups and findings. Patients are randomly assigned to groups of the same sizes, and p is the proportion of permutations
in which the largest Welch statistic is at least the difference's own. The statistic that 5% of the permutations reach
is the half-length of the interval in standard errors, so the interval excludes 0 if and only if p is at most 0.05. In a
permutation, scores of findings are computed anew from N and D, and macros from the contributions to the macro of the
whole split. The statistic uses each group's own variance, because groups may vary unequally. Sign flips do not suit
unpaired groups.

Sources: Welch (1947), Biometrika 34; permutation of studentized statistics as in Janssen (1997), Stat. Probab. Lett.
36; maxima as in Westfall and Young, Resampling-Based Multiple Testing (1993).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.metrics.jackknife import LEAST_UNITS
from reveal_bench.metrics.resampled import Resampled, mean_of_defined

LEAST_OF_BOTH = 15
"""Number of patients with a finding, and without it, below which an AUROC of a group has no test."""
N_PERMUTATIONS = 2000
"""Number of random assignments of patients to groups."""
_SAME = 1e-9
_AT_ONCE = 1 << 22  # permuted patients in memory

Side = Resampled | None
"""The scores of a part of the patients by one metric; None if they have no case."""


@dataclass(frozen=True, slots=True)
class GroupDifferences:
    """Differences of groups from the rest by one metric, arrays (n_groups, 1 + n_findings) with the macro first.

    Attributes
    ----------
    values : NaN if a side has no score
    low, high, p : NaN without a test
    n_averaged : int array (n_groups,), number of findings of the macros that are subtracted
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    n_averaged: IntArray


@dataclass(frozen=True, slots=True)
class _Contributions:
    """Contributions of patients to the macro and the findings, arrays (n_patients, 1 + n_findings).

    Attributes
    ----------
    values : columns that add up to 0
    support : bool array, True if the patient counts for the score
    decisive : float array (1 + n_findings,), proportion of these patients whose contributions are large: for AUROC
        those with the finding or without it, for a macro those who count for one finding. The variance has about as
        many degrees of freedom
    ratios : numerators and denominators of the findings, (n_patients, n_findings) each
    """

    values: FloatArray
    support: BoolArray
    decisive: FloatArray
    ratios: tuple[FloatArray, FloatArray]

    @property
    def variances(self) -> FloatArray:
        """Variance of a patient's contribution to each score; NaN with one patient."""
        n = self.support.sum(axis=0)
        variances: FloatArray = np.divide((self.values**2).sum(axis=0), n - 1, out=np.full(len(n), np.nan), where=n > 1)
        return variances

    def squared_errors(self, pooled: FloatArray) -> FloatArray:
        """Return the squared standard errors of the scores; `pooled` are the variances in the whole split."""
        size = np.maximum(self.support.sum(axis=0), 1)
        squared: FloatArray = ((self.values**2).sum(axis=0) + pooled) / size**2
        return squared


def differ_from_rest(
    inside: Sequence[Side],
    outside: Sequence[Side],
    whole: Resampled,
    *,
    masks: BoolArray,
    averaged: BoolArray,
    widest: float = np.inf,
    with_test: bool = True,
) -> GroupDifferences:
    """Return the difference of every group from all other patients.

    Parameters
    ----------
    inside, outside : scores of each group, and of all other patients
    whole : scores of all patients
    masks : bool array (n_groups, n_patients), True for the patients of each group, in the order of the units of `whole`
    averaged : bool array (n_findings,), True for the findings that the macro may average
    widest : largest possible difference
    with_test : False for differences alone
    """
    shared = [_shared(*sides, averaged) for sides in zip(inside, outside, strict=True)]
    pooled = [_contributions(whole, used) if with_test else None for used in shared]
    empty = np.full(1 + len(averaged), np.nan)
    values, errors = np.full((2, len(masks), len(empty)), np.nan)
    for i, (a, b, own) in enumerate(zip(inside, outside, pooled, strict=True)):
        if a is not None and b is not None:
            values[i], errors[i] = _difference(a, b, own, shared[i])
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = np.abs(values) / errors
    is_tested = ~np.isnan(statistics)
    largest = np.concatenate(list(_permuted_maxima(pooled, masks, is_tested)), axis=1)
    # p is above 0.05 as soon as this many permutations are at least as extreme
    critical = np.sort(largest, axis=1)[:, -int(ALPHA * (1 + N_PERMUTATIONS))]
    family = np.minimum(np.arange(len(empty)), 1)
    extreme = (largest[family] >= statistics[..., None] - _SAME).sum(axis=-1)
    reach = (critical[family] + _SAME) * errors
    return GroupDifferences(
        values,
        np.maximum(values - reach, -widest),
        np.minimum(values + reach, widest),
        np.where(is_tested, (1 + extreme) / (1 + N_PERMUTATIONS), np.nan),
        np.array([own.sum() for own in shared], np.int64),
    )


def _shared(inside: Side, outside: Side, averaged: BoolArray) -> BoolArray:
    """Return True for the findings of the macros that are subtracted."""
    if inside is None or outside is None:
        return np.zeros(len(averaged), bool)
    return averaged & _is_supported(inside) & _is_supported(outside)


def _is_supported(side: Resampled) -> BoolArray:
    """Return True for the findings that enough patients support."""
    if side.behind is not None:
        return np.asarray(side.behind >= LEAST_OF_BOTH)
    if side.weights is None:
        return np.zeros(len(side.n), bool)
    return np.asarray((side.weights > 0).sum(axis=0) >= LEAST_UNITS)


def _contributions(side: Resampled, averaged: BoolArray) -> _Contributions | None:
    parts = side.ratio_parts()
    if parts is None:
        return None
    numerators, denominators = (np.nan_to_num(part) for part in parts)
    has_part = (numerators != 0) | (denominators != 0)
    total, n = denominators.sum(axis=0), has_part.sum(axis=0)
    deviations = numerators - np.nan_to_num(side.values) * denominators
    values = np.divide(deviations, total, out=np.zeros(deviations.shape), where=total != 0)
    in_macro = has_part[:, averaged].any(axis=1)
    of_macro = values[:, averaged].sum(axis=1) / max(int(averaged.sum()), 1) * in_macro.sum()
    decisive = np.ones(len(n)) if side.behind is None else side.behind / np.maximum(n, 1)
    of_macros = (decisive * n)[averaged].mean() / max(int(in_macro.sum()), 1) if averaged.any() else 1.0
    return _Contributions(
        np.column_stack([of_macro, values * n]),
        np.column_stack([in_macro, has_part]),
        np.append(of_macros, decisive),
        (numerators, denominators),
    )


def _difference(
    inside: Resampled, outside: Resampled, pooled: _Contributions | None, shared: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the differences, and their standard errors; an error is NaN without a test."""
    macros = [mean_of_defined(side.values[shared]) for side in (inside, outside)]
    values = np.append(macros[0] - macros[1], inside.values - outside.values)
    own, rest = _contributions(inside, shared), _contributions(outside, shared)
    if pooled is None or own is None or rest is None:
        return values, np.full(len(values), np.nan)
    is_enough = np.append(shared.any(), _is_supported(inside) & _is_supported(outside))
    squared = own.squared_errors(pooled.variances) + rest.squared_errors(pooled.variances)
    return values, np.sqrt(np.where(is_enough & (squared > 0), squared, np.nan))


def _permuted_maxima(
    contributions: Sequence[_Contributions | None], masks: BoolArray, is_tested: BoolArray
) -> Iterator[FloatArray]:
    """Yield the largest statistics of permuted patients, (2, n_permutations): of macros, and of findings."""
    rng = np.random.default_rng(0)
    n = masks.shape[1]
    step = max(1, _AT_ONCE // max(n, 1))
    for start in range(0, N_PERMUTATIONS, step):
        order = rng.permuted(np.tile(np.arange(n), (min(step, N_PERMUTATIONS - start), 1)), axis=1)
        largest = np.zeros((2, len(order)))
        for mask, columns, own in zip(masks, is_tested, contributions, strict=True):
            if own is not None and columns.any():
                statistics = np.where(columns, _permuted_statistics(own, mask[order]), 0)
                of_findings = statistics[:, 1:].max(axis=1, initial=0)
                largest = np.maximum(largest, [statistics[:, 0], of_findings])
        yield largest


def _permuted_statistics(own: _Contributions, inside: BoolArray) -> FloatArray:
    """Return absolute Welch statistics of groups `inside` (n_permutations, n_patients); 0 if a side has no patient.

    A finding's score is the ratio of the permuted sums; the macro's deviation is the mean of the patients'
    contributions.
    """
    numerators, denominators = own.ratios
    macro = own.values[:, :1]
    columns = [own.support, macro, numerators, denominators, macro**2, numerators**2, denominators**2]
    stacked = np.concatenate([*columns, numerators * denominators], axis=1)
    ends = np.cumsum([part.shape[1] for part in columns])
    sums = inside.astype(np.float64) @ stacked
    whole = numerators.sum(axis=0) / np.where(denominators.any(axis=0), denominators.sum(axis=0), np.nan)
    values, squared_errors = [], []
    for side in (sums, stacked.sum(axis=0) - sums):
        n, of_macro, top, bottom, macro_squares, top_squares, bottom_squares, products = np.split(side, ends, axis=1)
        size = np.maximum(n, 1)
        ratio = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
        scale = np.divide(size[:, 1:], bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
        residuals = (top_squares - 2 * ratio * products + ratio**2 * bottom_squares) * scale**2
        deviations = np.concatenate([of_macro / size[:, :1], ratio - whole], axis=1)
        squares = np.concatenate([macro_squares - of_macro**2 / size[:, :1], residuals], axis=1)
        lost = deviations**2 * size * (1 / np.maximum(own.decisive, 1 / size) - 1)
        values.append(deviations)
        squared_errors.append(np.where(n > 0, (np.maximum(squares - lost, 0) + own.variances) / size**2, np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = np.abs(values[0] - values[1]) / np.sqrt(squared_errors[0] + squared_errors[1])
    return np.asarray(np.nan_to_num(statistics))
