"""Permutation tests that swap two systems' answers, for the p and the interval of a paired difference.

Conventions
-----------
Scores are ratios of sums over patients (:meth:`~reveal_bench.metrics.resampled.Resampled.ratio_parts`). With numerators
N, denominators D and scores F = sum N / sum D of systems A and B, the contribution of patient u to their difference is

    d_u = (N_Au - N_Bu - (F_A + F_B) / 2 * (D_Au - D_Bu)) / ((sum D_A + sum D_B) / 2)

The contributions add up to F_A - F_B exactly and are 0 for a patient on whom the systems agree. Contributions to a
macro are means over its findings. If neither system is better, the two systems' answers for any patient could equally
have been swapped. A flip is a choice of patients whose answers are swapped.

* t is ``|F_A - F_B| / sqrt(sum d**2)``. t* is the same statistic after a flip, with both scores computed again and the
  d of the data. For means, the signs of the d are changed instead, which is equivalent. p is the proportion of flips
  with t* > t, with ties counting half (mid-p), interpolated linearly between the values of t*. If the systems differ on
  fewer than 12 patients, all flips are used; otherwise one random sample of flips, shared by all metrics and findings.
  A p below :data:`TAIL` / (number of sampled flips) is extrapolated with the tail of the normal distribution, so that
  it can be corrected for thousands of pairs of systems.
* The critical value q is the t whose p is 0.05. If t > q, the bound nearer to 0 is also determined by the flips, so the
  interval excludes 0 if and only if p <= 0.05. This bound is computed from ``t / sqrt(1 - t**2 / n)`` for n patients,
  which is Student's t, because the standard error is estimated. All other bounds come from
  :mod:`reveal_bench.evaluation.tilting`, with the influences of each system's own linearization. In a macro, each
  finding's variance is averaged with the common variance of the findings, which counts as one further patient.
  Otherwise, a finding with few patients, on whom a good system happens to make no error, would have variance 0.
* For several findings of two systems, the largest t* of any finding in each flip is used, so p and intervals hold for
  all findings together.
* If the systems differ on fewer than :data:`LEAST_DIFFERING` patients, p is undefined; if they differ on none, p is 1.
  p is also undefined if one patient outweighs all on whom the systems differ (:func:`outweighed`).

AUROC and average precision are tested differently (:mod:`reveal_bench.evaluation.ranking_differences`).

Sources: Lehmann and Romano, Testing Statistical Hypotheses (2005), section 15.2; mid-p as in Lancaster (1961), J. Am.
Stat. Assoc. 56; maxima as in Westfall and Young, Resampling-Based Multiple Testing (1993), section 2.3; extrapolated p
as in Knijnenburg et al. (2009), Bioinformatics 25, but with the tail of the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.resampled import Resampled, mean_of_defined

ALPHA = 0.05
"""Largest p at which two systems differ significantly."""
LEAST_DIFFERING = 6
"""p is undefined if two systems differ on fewer patients than this. If five patients all prefer one system, 2 of the 32
flips are as extreme as the data, which is more than 0.05."""
LEAST_POSITIVE = 5
"""p is undefined if fewer patients than this have the finding, and patients without it contribute to the score."""
OUTWEIGHED = "one patient outweighs all on whom the systems differ"
"""Reason why a group is not tested if :func:`outweighed` is True for it."""
TAIL = 10
"""p is extrapolated if fewer flips than this are as extreme as the data."""

Signs = npt.NDArray[np.float32]

_EXACT_BELOW = 12  # patients; with fewer, all patterns (at most 2**11) are fewer than the usual number of draws
_NORMAL_REACH = 1.96  # half-length of a 95% interval in standard errors
_SIGNS = 1 << 21  # in a block: 16 MiB in double precision
_SAME = 1e-9
_TIE = 1e-5  # smaller differences of t* are ties, because t* is computed in single precision


@dataclass(frozen=True, slots=True)
class Swaps:
    """Sums that give two systems' scores after swapping their answers to some units (patients or images).

    Attributes
    ----------
    halves : two float arrays (n_units, n_groups), half of A's minus B's numerators, and half of A's minus B's
        denominators
    sums : two float arrays (n_groups,), half of the sum of both systems' numerators, and of both systems' denominators;
        NaN for undefined groups
    """

    halves: tuple[Signs, Signs]
    sums: tuple[FloatArray, FloatArray]

    @classmethod
    def of(
        cls, a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray], undefined: BoolArray
    ) -> Swaps | None:
        """Return the swaps of two systems' numerators and denominators; None if their denominators are equal, as for
        means.
        """
        if np.array_equal(a[1], b[1]):
            return None
        of_both, rows = (np.where(undefined, np.nan, (x + y).sum(axis=0) / 2) for x, y in zip(a, b, strict=True))
        half_of, half_rows = (((x - y) / 2).astype(np.float32) for x, y in zip(a, b, strict=True))
        return cls((half_of, half_rows), (of_both, rows))

    def changed(self) -> BoolArray:
        """Return a bool array (n_units, n_groups), True where the systems' answers differ."""
        changed: BoolArray = (self.halves[0] != 0) | (self.halves[1] != 0)
        return changed

    def of_units(self, units: BoolArray) -> Swaps:
        """Return the swaps of a subset of units that includes all on which the systems differ."""
        return replace(self, halves=(self.halves[0][units], self.halves[1][units]))

    def differences(self, signs: npt.NDArray[np.floating], *, only_macro: bool = False) -> FloatArray:
        """Return A minus B after every flip, (1 + n_groups, n_flips), the macro first; NaN if a score is undefined.

        With `only_macro`, return the macro alone, (1, n_flips).
        """
        both = np.hstack(self.halves).astype(signs.dtype).T @ signs.T
        moved, moved_rows = np.split(both.astype(np.float64), 2)
        groups = _after_swaps(self.sums, (moved, moved_rows))
        macro = _macro_of(groups[~np.isnan(self.sums[1])])
        return macro[None] if only_macro else np.vstack([macro, groups])


def _after_swaps(sums: tuple[FloatArray, FloatArray], moved: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Return the difference of two systems after every flip, (n_groups, n_flips).

    Parameters
    ----------
    sums : half of the sum of both systems' numerators, and of both systems' denominators, (n_groups,) each
    moved : half of A's minus B's numerators, and denominators, after every flip, (n_groups, n_flips) each
    """
    (of_both, rows), (of_moved, rows_moved) = (own[:, None] for own in sums), moved
    with np.errstate(divide="ignore", invalid="ignore"):
        groups: FloatArray = (of_both + of_moved) / (rows + rows_moved) - (of_both - of_moved) / (rows - rows_moved)
    return groups


def _macro_of(groups: FloatArray) -> FloatArray:
    """Return the mean over the defined groups, (n_flips,)."""
    macro: FloatArray = groups.sum(axis=0) / max(len(groups), 1)
    return mean_of_defined(groups.T) if np.isnan(macro).any() else macro


@dataclass(frozen=True, slots=True)
class Paired:
    """Contributions of units (patients or images) to the differences between two systems; the first column is the
    macro.

    Attributes
    ----------
    contributions : float array (n_units, 1 + n_groups), which add up to the differences; NaN if undefined
    swaps : the differences after every flip; None if the contributions change signs
    influences : float arrays (n_units, 1 + n_groups) of A and of B: contribution of each unit to the deviation of the
        system's score from its true score
    steadied : float array (1 + n_groups,), factor that corrects the variance of the macro, which is too small if its
        findings have few units; 1 for a finding
    support : number of units that count for the score, (1 + n_groups,)
    """

    contributions: FloatArray
    swaps: Swaps | None
    influences: tuple[FloatArray, FloatArray]
    steadied: FloatArray
    support: IntArray


def draw_signs(n_units: int, resampling: Resampling) -> Signs:
    """Return random flips as 1 and -1, (n_resamples, n_units); -1 swaps the answers to a unit."""
    return np.concatenate([block.astype(np.float32) for block in blocks_of_signs(n_units, resampling)])


def blocks_of_signs(n_units: int, resampling: Resampling) -> Iterator[npt.NDArray[np.int8]]:
    """Yield the flips of :func:`draw_signs` in blocks."""
    generator, n = np.random.default_rng(resampling.seed), resampling.n_resamples
    step = 4 * max(1, _SIGNS // n_units // 4)  # NumPy draws four of these numbers at a time
    for start in range(0, n, step):
        yield 2 * generator.integers(0, 2, (min(step, n - start), n_units), np.int8) - 1


def pair_up(a: Resampled, b: Resampled) -> Paired | None:
    """Return the contributions of units to ``a - b``; None if a score cannot be written as a ratio of sums."""
    parts_a, parts_b = a.ratio_parts(), b.ratio_parts()
    if parts_a is None or parts_b is None:
        return None
    (of_a, rows_a), (of_b, rows_b) = parts_a, parts_b
    total_a, total_b = rows_a.sum(axis=0), rows_b.sum(axis=0)
    undefined = (total_a <= 0) | (total_b <= 0) | np.isnan(a.values) | np.isnan(b.values)
    total_a, total_b = (np.where(undefined, np.nan, total) for total in (total_a, total_b))
    values_a, values_b = of_a.sum(axis=0) / total_a, of_b.sum(axis=0) / total_b
    contributions = _contributions(parts_a, parts_b, undefined)
    own_a, own_b = (of_a - values_a * rows_a) / total_a, (of_b - values_b * rows_b) / total_b
    behind = ((rows_a > 0) | (rows_b > 0)) & ~undefined
    n_behind = behind.sum(axis=0)
    support = np.concatenate([[behind.any(axis=1).sum()], n_behind]).astype(np.int64)
    steadied = np.ones(len(support))
    steadied[0] = _steadied(own_a - own_b, n_behind)
    with_macro = [_macro_first(columns) for columns in (contributions, own_a, own_b)]
    swaps = Swaps.of(parts_a, parts_b, undefined)
    return Paired(with_macro[0], swaps, (with_macro[1], with_macro[2]), steadied, support)


def _contributions(
    parts_a: tuple[FloatArray, FloatArray], parts_b: tuple[FloatArray, FloatArray], undefined: BoolArray
) -> FloatArray:
    """Return the contribution of each unit to each group's difference, (n_units, n_groups); NaN if undefined."""
    (of_a, rows_a), (of_b, rows_b) = parts_a, parts_b
    total_a, total_b = (np.where(undefined, np.nan, rows.sum(axis=0)) for rows in (rows_a, rows_b))
    slope = (of_a.sum(axis=0) / total_a + of_b.sum(axis=0) / total_b) / 2
    contributions: FloatArray = (of_a - of_b - slope * (rows_a - rows_b)) / ((total_a + total_b) / 2)
    return contributions


def _macro_first(columns: FloatArray) -> FloatArray:
    """Return the columns after a first column, the mean of the defined ones."""
    defined = ~np.isnan(columns).any(axis=0)
    macro = columns[:, defined].mean(axis=1) if defined.any() else np.full(len(columns), np.nan)
    return np.column_stack([macro, columns])


def _steadied(influences: FloatArray, n_behind: IntArray) -> float:
    """Return the factor by which averaging each finding's variance with the common one raises a macro's variance."""
    defined = ~np.isnan(influences).any(axis=0) & (n_behind > 0)
    own, n = influences[:, defined], n_behind[defined]
    variance = float((own.sum(axis=1) ** 2).sum())
    if variance <= 0:
        return 1.0
    per_unit = (own**2).sum(axis=0) * n
    common = (per_unit * n).sum() / n.sum()
    further = ((common - per_unit) / (n + 1) / n).sum()
    return float(max(1.0, 1 + further / variance))


@dataclass(frozen=True, slots=True)
class FlipDistribution:
    """Distribution of t*: its values in rising order, the p of each, and the index of the last p that is not
    extrapolated.
    """

    values: FloatArray
    p_values: FloatArray
    last: int

    @classmethod
    def of(cls, flipped: FloatArray, *, is_exact: bool = False) -> FlipDistribution:
        """Return the distribution of the t* of all flips; if the flips are a sample, the data count as one further
        flip.
        """
        ordered = np.sort(flipped[~np.isnan(flipped)])
        last = np.append(np.flatnonzero(np.diff(ordered) > _TIE), len(ordered) - 1)
        n_up_to = last + 1
        n_tied = np.diff(n_up_to, prepend=0)
        above = len(ordered) - n_up_to + n_tied / 2
        p_values = above / len(ordered) if is_exact else (above + 0.5) / (len(ordered) + 1)
        is_tail = p_values <= min(TAIL / len(ordered), ALPHA / 2)
        is_tail[-1] = True
        return cls(ordered[last], p_values, len(last) - 1 if is_exact else int(is_tail.argmax()))

    def p(self, t: FloatArray) -> FloatArray:
        """Return the p of `t`."""
        above_none = self.values[0] > _TIE
        known = slice(0, self.last + 1)
        values = np.append(0.0, self.values[known]) if above_none else self.values[known]
        p_values = np.append(1.0, self.p_values[known]) if above_none else self.p_values[known]
        known_p = np.interp(t, values, p_values)
        farther = [normal_tail(float(one), float(values[-1])) for one in np.ravel(t)]
        return np.where(t > values[-1] + _TIE, p_values[-1] * np.reshape(farther, np.shape(t)), known_p)

    def critical(self, alpha: float = ALPHA) -> float:
        """Return the t whose p is `alpha`; infinite if no flip has such a small p."""
        if self.p_values[-1] > alpha:
            return float("inf")
        values, p_values = np.append(0.0, self.values), np.append(1.0, self.p_values)
        return float(np.interp(-alpha, -p_values, values)) - _SAME


def normal_tail(t: float, start: float) -> float:
    """Return the probability that a standard normal variable exceeds `t`, given that it exceeds `start`; at most 1.

    Examples
    --------
    >>> round(normal_tail(3.0, 2.0), 4)
    0.0593
    """
    whole = math.erfc(start / math.sqrt(2))
    return min(1.0, math.erfc(t / math.sqrt(2)) / whole) if whole > 0 else 1.0


def flip_distributions(
    contributions: FloatArray, flipped: FloatArray, swaps: Swaps | None = None
) -> list[FlipDistribution | None]:
    """Return the distribution of t* for each difference; None if the difference is undefined or too few units differ.

    Parameters
    ----------
    contributions : float array (n_units, n_differences); with `swaps`, the macro's column first
    flipped : result of :func:`flipped_t`
    swaps : swaps of the groups; None if flips change the signs of the contributions

    Examples
    --------
    Two of the 256 flips of eight equal differences are as extreme as the data, and count half:

    >>> equal = np.ones((8, 1))
    >>> (distribution,) = flip_distributions(equal, flipped_t(equal, draw_signs(8, Resampling(1))))
    >>> distribution.p(np.sqrt([8.0])) * 256
    array([1.])
    """
    differ = [_units_that_differ(contributions, column, swaps) for column in range(contributions.shape[1])]
    has_few = [n_differing(column) < LEAST_DIFFERING for column in contributions.T]
    is_sampled = [not few and units.sum() >= _EXACT_BELOW for few, units in zip(has_few, differ, strict=True)]
    return [
        None if few else FlipDistribution.of(own) if drawn else _of_all_flips(contributions, column, units, swaps)
        for column, (few, drawn, own, units) in enumerate(zip(has_few, is_sampled, flipped.T, differ, strict=True))
    ]


def _units_that_differ(contributions: FloatArray, column: int, swaps: Swaps | None) -> BoolArray:
    """Return a bool array (n_units,), True for units whose flip changes the difference."""
    if swaps is None:
        return _differ(contributions[:, column])
    changed = swaps.changed()
    if column == 0:
        of_any: BoolArray = np.any(changed[:, ~np.isnan(swaps.sums[1])], axis=1)
        return of_any
    return np.asarray(changed[:, column - 1])


def _of_all_flips(contributions: FloatArray, column: int, units: BoolArray, swaps: Swaps | None) -> FlipDistribution:
    """Return the distribution of t* over every flip of the units on which the systems differ, which must be few."""
    flips = np.array(list(product((1.0, -1.0), repeat=int(units.sum()))))
    if swaps is None:
        return FlipDistribution.of(flipped_t(contributions[units, column : column + 1], flips)[:, 0], is_exact=True)
    flipped = flipped_t(contributions, flips, swaps.of_units(units))[:, column]
    return FlipDistribution.of(flipped, is_exact=True)


def flipped_t(contributions: FloatArray, signs: npt.NDArray[np.floating], swaps: Swaps | None = None) -> FloatArray:
    """Return t* of each difference after every flip, (n_flips, n_differences)."""
    scale = np.sqrt((contributions**2).sum(axis=0))
    scale = np.where(scale > 0, scale, np.nan)
    if swaps is None:
        flipped: FloatArray = np.abs(signs @ (contributions / scale).astype(signs.dtype)).astype(np.float64)
        return flipped
    differences = swaps.differences(signs, only_macro=len(scale) == 1)
    return (np.abs(differences) / scale[:, None]).T


def _differ(contributions: FloatArray) -> BoolArray:
    scale = np.abs(contributions).max(initial=0.0)
    differ: BoolArray = np.abs(contributions) > max(_SAME * scale, _SAME**2)
    return differ


def n_differing(contributions: FloatArray) -> int:
    """Return the number of units with a contribution that is not 0; 0 if a contribution is undefined."""
    return 0 if np.isnan(contributions).any() else int(np.count_nonzero(_differ(contributions)))


def t_of(contributions: FloatArray) -> float:
    """Return the statistic t, ``|sum d| / sqrt(sum d**2)``."""
    scale = float(np.sqrt((contributions**2).sum()))
    return abs(float(contributions.sum())) / scale if scale > 0 else 0.0


def pairs_p(systems: Sequence[Resampled], blocks: Iterable[npt.NDArray[Any]]) -> FloatArray | None:
    """Return the p of the macro's difference for every pair of systems, (n_systems, n_systems), not corrected for
    pairs.

    Macros average the groups that are defined for all systems. p is 1 for systems that differ on no unit or on too few.
    Returns None if a score cannot be written as a ratio of sums. `blocks` are those of :func:`blocks_of_signs`.
    """
    parts = [known for system in systems if (known := system.ratio_parts()) is not None]
    if len(parts) < len(systems):
        return None
    undefined = np.zeros(len(systems[0].values), np.bool_)
    for system, (_, rows) in zip(systems, parts, strict=True):
        undefined |= np.isnan(system.values) | (rows.sum(axis=0) <= 0)
    systems_moved = _moved([(of[:, ~undefined], rows[:, ~undefined]) for of, rows in parts], blocks)
    p_values = np.ones((len(systems), len(systems)))
    for i, j in combinations(range(len(systems)), 2):
        macro, distribution = _of_pair(systems_moved[i], systems_moved[j])
        if distribution is not None:
            p_values[i, j] = p_values[j, i] = distribution.p(np.array([t_of(macro)]))[0]
    return p_values


@dataclass(frozen=True, slots=True)
class _Moved:
    """Numerators and denominators of one system by unit, (n_units, n_groups), and sums of both after every flip,
    (n_groups, n_flips). The sums for a pair of systems are computed from the differences between the two systems' sums.
    """

    parts: tuple[FloatArray, FloatArray]
    flipped: tuple[FloatArray, FloatArray]


def _moved(systems: Sequence[tuple[FloatArray, FloatArray]], blocks: Iterable[npt.NDArray[Any]]) -> list[_Moved]:
    """Return the sums of each system, in double precision because the sums of similar systems are subtracted."""
    together = np.hstack([np.hstack(parts) for parts in systems])  # one large product is faster than many small ones
    flipped = np.concatenate([block.astype(np.float64) @ together for block in blocks]).T
    sums = np.split(flipped, 2 * len(systems))
    return [_Moved(parts, both) for parts, both in zip(systems, zip(sums[::2], sums[1::2], strict=True), strict=True)]


def _of_pair(a: _Moved, b: _Moved) -> tuple[FloatArray, FlipDistribution | None]:
    """Return the units' contributions to the macro of ``a - b``, and the distribution of t*, None if too few units
    differ.
    """
    none = np.zeros(a.parts[0].shape[1], np.bool_)
    macro = _macro_first(_contributions(a.parts, b.parts, none))[:, :1]
    if n_differing(macro[:, 0]) < LEAST_DIFFERING:
        return macro[:, 0], None
    swaps = Swaps.of(a.parts, b.parts, none)
    units = _units_that_differ(macro, 0, swaps)
    if units.sum() < _EXACT_BELOW:
        return macro[:, 0], _of_all_flips(macro, 0, units, swaps)
    sums = [(one + other).sum(axis=0) / 2 for one, other in zip(a.parts, b.parts, strict=True)]
    moved = [(one - other) / 2 for one, other in zip(a.flipped, b.flipped, strict=True)]
    macros = _macro_of(_after_swaps((sums[0], sums[1]), (moved[0], moved[1])))
    return macro[:, 0], FlipDistribution.of(np.abs(macros) / np.sqrt((macro**2).sum()))


def lacks_positives(system: Resampled) -> BoolArray:
    """Return a bool array (1 + n_groups,), True for findings that too few patients have for a p; False for the macro
    (first).
    """
    positive = system.positive_units
    few = np.zeros(len(system.values), bool) if positive is None else positive < LEAST_POSITIVE
    return np.concatenate([[False], few])


def outweighed(paired: Paired) -> BoolArray:
    """Return a bool array (1 + n_groups,), True if one unit may change a score by more than all units that differ.

    This concerns scores whose denominator depends on the system, such as NPV. If the systems have the same false
    negatives, different true negatives change NPV by next to nothing, but one more false negative changes it by 1 / n.
    The array is False for the macro, which is first, and for means over the same cases.
    """
    largest = np.abs(np.concatenate(paired.influences)).max(axis=0)
    reach = _NORMAL_REACH * np.sqrt((paired.contributions**2).sum(axis=0))
    exceeds: BoolArray = (reach > 0) & (reach < largest) & (paired.swaps is not None)
    exceeds[0] = False
    return exceeds
