"""Comparison of two entries of a board: differences of their released scores, and nothing else.

Conventions
-----------
A comparison is a function of two released scores, so it reveals nothing that the board does not already show, costs no
budget, and is computed on request. Its intervals treat the two systems as independent: each bound is as far from the
difference as the two released intervals together allow. Scores of two systems on the same cases mostly vary together,
so these intervals are wider than those of the paired differences that `reveal-bench compare` prints for owners of the
references. :mod:`reveal_leaderboard.release.ranking` explains why a board shows no paired differences.

Source: intervals of differences from the intervals of both parts: Zou and Donner (2008, Statistics in Medicine 27).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.evaluation.tiers import holm
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore

SAME = 1e-9
"""Numbers that differ by less are equal."""
NOTE = (
    "Differences of the released figures, A − B. The 95 % intervals are computed from the two intervals shown, as if "
    "the two were scored on different patients; they are mostly wider than those of paired differences. Significant: p "
    "at most 0.05 after Holm's correction over all {n} of them."
)


def compare_released(
    a: ReleasedScore, b: ReleasedScore, kind: str, *, ids: tuple[str, str] = ("a", "b")
) -> dict[str, Any]:
    """Return the differences ``a - b`` of all scores released for both.

    Parameters
    ----------
    a, b : two scores on one version of a benchmark
    kind : key of KINDS; for tasks the mean scores are compared, but not the agreement of readers
    ids : their submission ids

    Returns
    -------
    dict of plain JSON values
        ``rows`` has, per metric, the macro and then the findings: the released figures ``a`` and ``b``, their
        difference ``value``, the bounds of its 95 % interval (None without one) and ``told_apart``: whether it is
        significant after Holm's correction over all rows of the document.
    """
    compared = list(_compared(a, b, kind))
    differences = [_difference(own, other) for own, other in compared]
    tested = [i for i, (_, p) in enumerate(differences) if p is not None]
    corrected = holm([p for _, p in differences if p is not None]).tolist()
    significant = {i for i, p in zip(tested, corrected, strict=True) if p <= ALPHA}
    rows = [
        {"metric": own.metric, "finding": own.finding, "a": own.value, "b": other.value}
        | difference
        | {"told_apart": i in significant}
        for i, ((own, other), (difference, _)) in enumerate(zip(compared, differences, strict=True))
    ]
    note = NOTE.format(n=len(tested)) if rows else "They have no released figure in common, so nothing can be compared."
    return {"schema": 2, "kind": kind, "a": ids[0], "b": ids[1], "rows": rows, "note": note}


def _compared(a: ReleasedScore, b: ReleasedScore, kind: str) -> Iterator[tuple[ReleasedEstimate, ReleasedEstimate]]:
    """Yield the pairs of estimates that both scores release, if their metric is compared and has a better direction."""
    of = KINDS[kind]
    compared = of.release.metrics if of.scoring.can_be_probed else (of.release.primary,)
    for own in a.figures:
        other = b.figure(own.metric, own.finding)
        if other is not None and own.metric in compared and METRICS[own.metric].better != "neither":
            yield own, other


def _difference(own: ReleasedEstimate, other: ReleasedEstimate) -> tuple[dict[str, float | None], float | None]:
    """Return (value, low, high, p) of a difference; only the value unless both estimates have intervals."""
    value = round(own.value - other.value, 6) + 0.0  # no -0.0
    if own.interval is None or other.interval is None:
        return {"value": value, "low": None, "high": None}, None
    (low, high), (other_low, other_high) = own.interval, other.interval
    below = math.hypot(own.value - low, other_high - other.value)
    above = math.hypot(high - own.value, other.value - other_low)
    difference: dict[str, float | None] = {
        "value": value,
        "low": math.floor((value - below) * 100 + SAME) / 100,
        "high": math.ceil((value + above) * 100 - SAME) / 100,
    }
    towards_none = below if value > 0 else above
    if abs(value) < SAME or towards_none < SAME:
        return difference, float(abs(value) < SAME)
    z = NormalDist().inv_cdf(1 - ALPHA / 2) * abs(value) / towards_none
    return difference, math.erfc(z / math.sqrt(2))
