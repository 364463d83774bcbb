"""Differences between a group of patients and all other patients, with permutation p and intervals that agree with
them.

Conventions
-----------
A group and the rest share no patient, so the variance of their difference is ``se_group**2 + se_rest**2``, as for two
independent samples. Patient u contributes ``n (N_u - F D_u) / sum D`` to the score F = sum N / sum D of n patients. N
and D are the numerators and denominators of :meth:`~reveal_bench.metrics.resampled.Resampled.ratio_parts`.
Contributions to a macro are means over its findings. The squared standard error of F is the sum of the squared
contributions over n**2. The variance in the whole split is added as one further patient; otherwise, 10 patients who all
happen to be answered correctly would have a standard error of 0.

A finding is tested if at least :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients support its score in the
group and in the rest. For AUROC and average precision, each side needs :data:`LEAST_OF_BOTH` patients with the finding
and as many without it. The macros that are compared average only these findings, because a rarer finding's F1 is often
exactly 0 or 1. Scores with unknown contributions of patients, such as detection scores, are not tested.

p and intervals are adjusted for multiple comparisons: for macros over all groups, for findings over all groups and
findings. Patients are randomly assigned to groups of the same sizes, and p is the proportion of permutations in which
the largest Welch statistic is at least that of the observed difference. The interval extends to each side by the
statistic that 5% of the permutations reach, times the standard error, so the interval excludes 0 if and only if p is at
most 0.05. In each permutation, scores of findings are computed again from N and D, and macros from the contributions to
the macro of the whole split. The statistic uses each group's own variance, because variances may differ between groups.
Sign flips would not be valid, because the groups are not paired.

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
"""Smallest number of patients with a finding, and of patients without it, for testing AUROC or average precision."""
N_PERMUTATIONS = 2000
"""Number of random assignments of patients to groups."""
_SAME = 1e-9
_AT_ONCE = 1 << 22  # largest number of permuted patients in memory

Side = Resampled | None
"""Scores of some patients by one metric; None if these patients have no case."""


@dataclass(frozen=True, slots=True)
class GroupDifferences:
    """Differences between each group and the rest for one metric: arrays (n_groups, 1 + n_findings), macro first.

    Attributes
    ----------
    values : differences; NaN if the group or the rest has no score
    low, high, p : adjusted intervals and p; NaN without a test
    n_averaged : int array (n_groups,), number of findings that the compared macros average
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
    values : contributions; each column adds up to 0
    support : bool array, True if the patient counts for the score
    decisive : float array (1 + n_findings,), proportion of these patients who decide the variance; their number is
        about its degrees of freedom. For AUROC and average precision, they are the patients of the smaller class; for a
        macro, the mean over its findings is used
    ratios : numerators and denominators of the findings, (n_patients, n_findings) each
    """

    values: FloatArray
    support: BoolArray
    decisive: FloatArray
    ratios: tuple[FloatArray, FloatArray]

    @property
    def variances(self) -> FloatArray:
        """Variance of a patient's contribution to each score; NaN for fewer than two patients."""
        n = self.support.sum(axis=0)
        variances: FloatArray = np.divide((self.values**2).sum(axis=0), n - 1, out=np.full(len(n), np.nan), where=n > 1)
        return variances

    def squared_errors(self, pooled: FloatArray) -> FloatArray:
        """Return the squared standard errors of the scores; `pooled` contains the variances in the whole split."""
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
    """Return the difference between each group and all other patients.

    Parameters
    ----------
    inside, outside : for each group, the scores of its patients, and of all other patients
    whole : scores of all patients
    masks : bool array (n_groups, n_patients), True for the patients of each group, in the order of the units of `whole`
    averaged : bool array (n_findings,), True for the findings that the macro may average
    widest : largest possible difference
    with_test : False to compute only differences
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
    # with this many permutations at least as extreme, p is just above 0.05
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
    """Return a bool array, True for the findings that the compared macros average."""
    if inside is None or outside is None:
        return np.zeros(len(averaged), bool)
    return averaged & _is_supported(inside) & _is_supported(outside)


def _is_supported(side: Resampled) -> BoolArray:
    """Return a bool array, True for the findings that enough patients support."""
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
    """Return the differences and their standard errors, which are NaN without a test."""
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
    """Yield arrays (2, n_permutations): in each permutation the largest statistic of the macros, and that of the
    findings.
    """
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
    """Return the absolute Welch statistics of permuted groups, (n_permutations, 1 + n_findings); 0 if a side has no
    patient.

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
