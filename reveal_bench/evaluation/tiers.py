"""Tiers and rank intervals of systems, from the pairs that differ significantly.

Conventions
-----------
A tier is a run of systems, from the best downwards, of which no two differ significantly. So tiers follow the order on
the data, and systems that share one do not differ significantly. The converse need not hold: neighbours across a border
may not differ either, because "not significantly different" is not transitive.

A system's rank is between 1 + the number of significantly better systems and the number of all systems less the number
of significantly worse ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from reveal_bench.arrays import BoolArray, IntArray


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
    is_better : (n_systems, n_systems), whether the column's system is better than the row's on the data
    differs : as of :func:`find_tiers`
    """
    return 1 + (differs & is_better).sum(axis=1), len(differs) - (differs & is_better.T).sum(axis=1)
