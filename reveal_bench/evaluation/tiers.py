"""Tiers and rank intervals of systems, from the pairs that differ significantly.

Conventions
-----------
A tier is a run of systems in rank order, of which no two differ significantly. So tiers follow the order of the scores
in the data. Systems in neighbouring tiers need not differ significantly, either, because "not significantly different"
is not transitive.

Two systems differ significantly if the p of their paired difference, corrected for all pairs (Holm), is at most 0.05.
The correction is valid for any dependence between the pairs. A joint test that flips the signs of all pairs together
would assume that all differences of a patient are jointly symmetric, which is false for three systems with skewed
scores.

p comes from swapped answers, or for AUROC and average precision from a closed form. For other scores, p is the
proportion of replicates beyond 0, extrapolated with the tail of the normal distribution if fewer than ten replicates
are beyond 0.

Source: Holm (1979), Scandinavian Journal of Statistics 6.

A system's rank is at least 1 + the number of significantly better systems, and at most the number of all systems minus
the number of significantly worse systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.evaluation.differences import has_enough, two_sided, units_behind
from reveal_bench.evaluation.permutation import ALPHA, TAIL, blocks_of_signs, normal_tail, pairs_p
from reveal_bench.evaluation.ranking_differences import ranking_of, ranking_pairs_p, untested_ranking
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.jackknife import FEW
from reveal_bench.metrics.multiplicity import holm
from reveal_bench.metrics.resampled import Resampled

SWAPS = 10_000
"""Smallest number of flips for a pair of systems, so that a p corrected for 45 pairs needs no extrapolation."""
MOST_SWAPS = 50_000_000
"""Largest number of flips for all pairs together; above it, a pair gets fewer, but as many as there are replicates."""


@dataclass(frozen=True, slots=True)
class PairTests:
    """Tests of the macro's difference for every pair of systems.

    Attributes
    ----------
    p : (n_systems, n_systems), not corrected for the number of pairs; symmetric
    untested : why no pair is tested; empty if pairs are tested
    """

    p: FloatArray
    untested: str = ""


def compare_pairs(
    figures: Sequence[Resampled], values: FloatArray, macros: FloatArray, resampling: Resampling
) -> PairTests:
    """Return the tests of the macro's difference for every pair of systems.

    Parameters
    ----------
    figures : resampled scores of each system
    values : (n_systems, 1 + n_groups), macro first; NaN for a finding if a system has no score
    macros : (n_systems, n_resamples), the macro in every replicate
    resampling : with interval "percentile", only replicates are used
    """
    if resampling.interval != "percentile":
        rankings = [known for one in figures if (known := ranking_of(one)) is not None]
        if len(rankings) == len(figures):
            untested = untested_ranking(rankings[0], values[0]) if len(figures) > 1 else ""
            return PairTests(ranking_pairs_p(rankings, values), untested)
        parts = figures[0].ratio_parts()
        swaps = replace(resampling, n_resamples=_n_swaps(len(figures), resampling.n_resamples))
        by_swaps = None if parts is None else pairs_p(figures, blocks_of_signs(len(parts[0]), swaps))
        if by_swaps is not None:
            few = _with_few(figures, values)
            is_untested = len(figures) > 1 and few[np.triu_indices(len(few), 1)].all()
            return PairTests(np.where(few, 1.0, by_swaps), FEW if is_untested else "")
    defined = macros[:, ~np.isnan(macros).any(axis=0)]
    p = np.ones((len(macros), len(macros)))
    for i, j in combinations(range(len(macros)), 2):
        p[i, j] = p[j, i] = _of_replicates(defined[i] - defined[j])
    return PairTests(p)


def _with_few(figures: Sequence[Resampled], values: FloatArray) -> BoolArray:
    """Return a symmetric bool array (n_systems, n_systems), True for pairs with too few patients for a test."""
    few, shared = np.zeros((len(figures), len(figures)), np.bool_), ~np.isnan(values[:, 1:]).any(axis=0)
    for i, j in combinations([i for i, one in enumerate(figures) if one.weights is not None], 2):
        few[i, j] = few[j, i] = not has_enough(units_behind(figures[i], figures[j])[shared])
    return few


def _n_swaps(n_systems: int, least: int) -> int:
    n_pairs = max(n_systems * (n_systems - 1) // 2, 1)
    return max(least, min(SWAPS, MOST_SWAPS // n_pairs))


def _of_replicates(differences: FloatArray) -> float:
    """Return the two-sided p from replicates of a difference, extrapolated if few replicates are beyond 0."""
    p, n = two_sided(differences), len(differences)
    spread = float(differences.std()) if n else 0.0
    few = min(TAIL, n // 100)
    if spread <= 0 or not few or p > 2 * (few + 1) / (n + 1):
        return p if n else 1.0
    towards_zero = np.sort(differences * np.sign(differences.mean()))
    centre = float(towards_zero.mean())
    start = (centre - float(towards_zero[few - 1])) / spread
    return 2 * (few + 1) / (n + 1) * normal_tail(centre / spread, start)


def significant_pairs(p: FloatArray) -> BoolArray:
    """Return a bool array (n_systems, n_systems), True for pairs that differ after Holm's correction for all pairs.

    Parameters
    ----------
    p : p of each pair, (n_systems, n_systems), symmetric
    """
    differs = np.zeros(p.shape, bool)
    i, j = np.triu_indices(len(p), 1)
    differs[i, j] = differs[j, i] = holm(p[i, j]) <= ALPHA
    return differs


def find_tiers(order: Sequence[int], differs: BoolArray) -> list[list[int]]:
    """Return the tiers, best first, as lists of systems; a system that differs from a member starts the next tier.

    Parameters
    ----------
    order : systems from the best to the worst
    differs : (n_systems, n_systems), symmetric: the pairs that differ significantly

    Examples
    --------
    >>> import numpy as np
    >>> differs = np.zeros((3, 3), bool)
    >>> differs[0, 2] = differs[2, 0] = True
    >>> find_tiers([2, 1, 0], differs)
    [[2, 1], [0]]
    """
    tiers: list[list[int]] = []
    for system in order:
        if not tiers or differs[system, tiers[-1]].any():
            tiers.append([])
        tiers[-1].append(system)
    return tiers


def rank_bounds(is_better: BoolArray, differs: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the best and the worst rank that each system can have, both (n_systems,).

    Parameters
    ----------
    is_better : (n_systems, n_systems), True if the column's system is better than the row's on the data
    differs : as for :func:`find_tiers`
    """
    return 1 + (differs & is_better).sum(axis=1), len(differs) - (differs & is_better.T).sum(axis=1)
