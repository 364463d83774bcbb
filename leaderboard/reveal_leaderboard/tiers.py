"""Tiers and ranks from a joint test of all pairs; what they mean is said in :mod:`reveal_leaderboard.ranking`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.comparison import ALPHA

__all__ = ["SAME", "pairable", "places", "told_apart"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SAME = 1e-12
"""Numbers that differ by less are one number."""
_PRODUCTS = 1 << 22  # pairs x replicates at a time: some 32 MB


def pairable(names: Sequence[str], groups: Mapping[str, object]) -> BoolArray:
    """Which two of `names` are not of one group, (n, n)."""
    code = {group: i for i, group in enumerate(dict.fromkeys(groups.values()))}
    own = np.array([code[groups[name]] if name in groups else -1 - i for i, name in enumerate(names)])
    different: BoolArray = own[:, None] != own[None, :]
    return different


def told_apart(
    values: FloatArray, macros: FloatArray, is_tested: BoolArray, is_paired: BoolArray, n_patients: int
) -> BoolArray:
    """Pairs (n_systems, n_systems) that the joint test tells apart.

    Parameters
    ----------
    values : (n_systems,), the macros
    macros : (n_systems, n_resamples), the same in replicates of the patients
    is_tested : (n_systems, n_systems), pairs to test; the others are not told apart
    is_paired : (n_systems, n_systems), pairs whose spread is that of their difference; of the others it is that of two
        independent systems
    n_patients : behind the replicates
    """
    apart = np.zeros(is_tested.shape, bool)
    i, j = np.nonzero(np.triu(is_tested, 1))
    macros = macros[:, ~np.isnan(macros).any(axis=0)]
    if not len(i) or not macros.shape[1] or n_patients < 2:
        return apart
    differences = values[i] - values[j]
    spreads, largest = np.empty(len(i)), np.zeros(macros.shape[1])
    alone = macros.var(axis=1)
    step = max(1, _PRODUCTS // macros.shape[1])
    for part in (slice(start, start + step) for start in range(0, len(i), step)):
        drawn = macros[i[part]] - macros[j[part]]
        spreads[part] = np.where(
            is_paired[i[part], j[part]], drawn.std(axis=1), np.sqrt(alone[i[part]] + alone[j[part]])
        )
        excess = np.abs(drawn - differences[part, None])
        varies = (spreads[part] > SAME) & is_paired[i[part], j[part]]
        if varies.any():
            largest = np.maximum(largest, (excess[varies] / spreads[part][varies, None]).max(axis=0))
    joint = float(np.quantile(largest, 1 - ALPHA, method="higher"))
    alone_limit = NormalDist().inv_cdf(
        1 - ALPHA / (2 * len(i))
    )  # Bonferroni: no replicate of a difference is looked at
    limits = np.where(is_paired[i, j], _for_few(joint, n_patients), _for_few(alone_limit, n_patients))
    found = np.abs(differences) > limits * spreads + SAME
    apart[i[found], j[found]] = apart[j[found], i[found]] = True
    return apart


def _for_few(limit: float, n: int) -> float:
    """`limit` on the scale of the normal distribution, for a spread that is known from `n` patients only.

    The quantile of Student's t with n - 1 degrees of freedom at the same share (Abramowitz and Stegun, 26.7.5), where
    the bootstrap's spread divides by n and not by n - 1.
    """
    z, freedom = limit * math.sqrt(n / (n - 1)), n - 1
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def places(values: FloatArray, apart: BoolArray) -> list[dict[str, Any]]:
    """Rank, interval and tier of each system; members of a tier share all three."""
    better = values[None, :] > values[:, None]
    low = 1 + (apart & better).sum(axis=1)
    high = len(values) - (apart & ~better).sum(axis=1)
    tiers: list[list[int]] = []
    for i in np.argsort(-values, kind="stable").tolist():
        if not tiers or apart[i, tiers[-1]].any():
            tiers.append([])
        tiers[-1].append(i)
    found: dict[int, dict[str, Any]] = {}
    n_before = 0
    for number, members in enumerate(tiers):
        place = {
            "rank": n_before + 1,
            "rank_low": int(low[members].min()),
            "rank_high": int(high[members].max()),
            "tier": _letters(number),
        }
        found |= {i: dict(place) for i in members}
        n_before += len(members)
    return [found[i] for i in range(len(values))]


def _letters(number: int) -> str:
    """A, B ... Z, AA, AB ... of 0, 1, 2 ..."""
    letters = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters
