"""Tiers and rank intervals of systems, from the pairs that differ significantly.

Conventions
-----------
A tier is a run of systems, from the best downwards, of which no two differ significantly. So tiers follow the order on
the data, and systems in the same tier do not differ significantly. Systems in neighbouring tiers need not differ
significantly either, because "not significantly different" is not transitive.

Two systems differ significantly if the p of their paired difference, corrected for all pairs (Holm), is at most 0.05.
The correction is valid for any dependence between the pairs. A joint test of all pairs by common flips of signs would
assume that all differences of a patient are jointly symmetric, which is false for three systems with skewed scores.

Source: Holm (1979), Scandinavian Journal of Statistics 6.

A system's rank is between 1 + the number of significantly better systems and the number of all systems minus the number
of significantly worse systems.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.metrics.multiplicity import holm


def significant_pairs(p: FloatArray) -> BoolArray:
    """Return True for pairs that differ after Holm's correction for all pairs, (n_systems, n_systems).

    Parameters
    ----------
    p : of each pair, (n_systems, n_systems), symmetric
    """
    differs = np.zeros(p.shape, bool)
    i, j = np.triu_indices(len(p), 1)
    differs[i, j] = differs[j, i] = holm(p[i, j]) <= ALPHA
    return differs


def find_tiers(order: Sequence[int], differs: BoolArray) -> list[list[int]]:
    """Return the tiers, best first, as lists of systems; a system that differs from a member opens the next tier.

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
    """Return the best and the worst rank that each system may have, both (n_systems,).

    Parameters
    ----------
    is_better : (n_systems, n_systems), True if the column's system is better than the row's on the data
    differs : as for :func:`find_tiers`
    """
    return 1 + (differs & is_better).sum(axis=1), len(differs) - (differs & is_better.T).sum(axis=1)
