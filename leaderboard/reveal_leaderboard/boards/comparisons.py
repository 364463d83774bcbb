"""Two entries of a board side by side: differences of what is released of each, and nothing else.

Conventions
-----------
A comparison is a function of two released scores, so it tells nobody anything that the board does not show already,
costs no budget, and is made when it is asked for. Its intervals take the two systems as independent: each end lies as
far from the difference as the two released intervals allow together. Two systems on the same cases mostly vary
together, so these intervals are wider than those of the paired differences that `reveal-bench compare` prints for
whoever holds the references. Why a board shows none of those: :mod:`reveal_leaderboard.release.ranking`.

Source: intervals of differences from those of both parts: Zou and Donner (2008, Statistics in Medicine 27).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

from reveal_bench.evaluation.compare import ALPHA, holm
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS
from reveal_leaderboard.release.release import Figure, ReleasedScore

SAME = 1e-9
"""Numbers that differ by less are one number."""
NOTE = (
    "Differences of the released figures, A − B. The 95 % intervals are computed from the two intervals shown, as if "
    "the two were scored on different patients; they are mostly wider than those of paired differences. Significant: p "
    "at most 0.05 after Holm's correction over all {n} of them."
)


class _Difference(NamedTuple):
    """A - B of one figure; without both intervals the difference alone."""

    a: Figure
    b: Figure
    value: float
    low: float | None
    high: float | None
    p: float | None


def compare_released(
    a: ReleasedScore, b: ReleasedScore, kind: str, *, ids: tuple[str, str] = ("a", "b")
) -> dict[str, Any]:
    """Differences ``a - b`` of all figures that are released of both.

    Parameters
    ----------
    a, b : of one version of one benchmark
    kind : key of KINDS; of tasks the mean scores are compared, not how far readers agreed
    ids : their submission ids

    Returns
    -------
    dict of plain JSON values
        ``rows`` has, per metric, the macro and then the findings: the released figures ``a`` and ``b``, their
        difference ``value``, the ends of its 95 % interval (None where a figure has none) and ``told_apart``: whether
        Holm's correction over all rows of the document leaves it.
    """
    differences = list(_differences(a, b, kind))
    p_of = {id(one): one.p for one in differences if one.p is not None}
    corrected = holm(list(p_of.values())).tolist() if p_of else []
    told = {key for key, p in zip(p_of, corrected, strict=True) if p <= ALPHA}
    rows = [
        {
            "metric": one.a.metric, "finding": one.a.finding, "a": one.a.value, "b": one.b.value,
            "value": one.value, "low": one.low, "high": one.high, "told_apart": id(one) in told,
        }
        for one in differences
    ]  # fmt: skip
    note = NOTE.format(n=len(p_of)) if rows else "They have no released figure in common, so nothing can be compared."
    return {"schema": 2, "kind": kind, "a": ids[0], "b": ids[1], "rows": rows, "note": note}


def _differences(a: ReleasedScore, b: ReleasedScore, kind: str) -> Iterator[_Difference]:
    of = KINDS[kind]
    compared = of.release.metrics if of.scoring.can_be_probed else (of.release.primary,)
    for own in a.figures:
        other = b.figure(own.metric, own.finding)
        if other is not None and own.metric in compared and METRICS[own.metric].better != "neither":
            yield _difference(own, other)


def _difference(own: Figure, other: Figure) -> _Difference:
    value = round(own.value - other.value, 6) + 0.0  # no -0.0
    if own.low is None or own.high is None or other.low is None or other.high is None:
        return _Difference(own, other, value, None, None, None)
    below = math.hypot(own.value - own.low, other.high - other.value)
    above = math.hypot(own.high - own.value, other.value - other.low)
    low, high = math.floor((value - below) * 100 + SAME) / 100, math.ceil((value + above) * 100 - SAME) / 100
    towards_none = below if value > 0 else above
    if abs(value) < SAME or towards_none < SAME:
        return _Difference(own, other, value, low, high, float(abs(value) < SAME))
    z = NormalDist().inv_cdf(1 - ALPHA / 2) * abs(value) / towards_none
    return _Difference(own, other, value, low, high, math.erfc(z / math.sqrt(2)))
