"""Comparison of two entries of a board: differences of their released scores, and nothing else.

Conventions
-----------
A comparison is a function of two released scores, so it reveals nothing that the board does not already show, costs no
budget, and is computed on request. Its intervals treat the two systems as independent: each bound is as far from the
difference as the two released intervals together allow. Scores of two systems on the same cases mostly vary together,
so these intervals are wider than the ones that `reveal-bench compare` prints, for owners of the references, for paired
differences. :mod:`reveal_leaderboard.release.ranking` explains why a board shows no paired differences.

Source of the intervals of differences, computed from the intervals of both scores: Zou and Donner (2008, Statistics in
Medicine 27).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore

SAME = 1e-9
"""Numbers that differ by less are equal."""
NOTE = (
    "Differences of the released figures, A − B. The 95% intervals are computed from the two intervals shown, as if "
    "the two were scored on different patients; they are mostly wider than paired intervals. A difference "
    "is significant if its interval excludes 0. Intervals of findings hold for all findings of a metric together."
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
        difference ``value``, the bounds of its 95% interval (None without one) and ``told_apart``: True if the
        interval excludes 0. Intervals of findings hold for all findings of a metric together (Bonferroni).
    """
    compared = list(_compared(a, b, kind))
    n_findings = Counter(
        own.metric for own, other in compared if own.finding != MACRO and own.interval and other.interval
    )
    rows = []
    for own, other in compared:
        n_tests = 1 if own.finding == MACRO else max(n_findings[own.metric], 1)
        difference = _difference(own, other, n_tests)
        low, high = difference["low"], difference["high"]
        is_apart = low is not None and high is not None and (low > SAME or high < -SAME)
        row = {"metric": own.metric, "finding": own.finding, "a": own.value, "b": other.value}
        rows.append(row | difference | {"told_apart": is_apart})
    note = NOTE if rows else "They have no released figure in common, so nothing can be compared."
    return {"schema": 2, "kind": kind, "a": ids[0], "b": ids[1], "rows": rows, "note": note}


def _compared(a: ReleasedScore, b: ReleasedScore, kind: str) -> Iterator[tuple[ReleasedEstimate, ReleasedEstimate]]:
    """Yield the pairs of estimates that both scores release, if their metric is compared and has a better direction."""
    of = KINDS[kind]
    compared = of.release.metrics if of.scoring.can_be_probed else (of.release.primary,)
    for own in a.figures:
        other = b.figure(own.metric, own.finding)
        if other is not None and own.metric in compared and METRICS[own.metric].better != "neither":
            yield own, other


def _difference(own: ReleasedEstimate, other: ReleasedEstimate, n_tests: int) -> dict[str, float | None]:
    """Return (value, low, high) of a difference; only the value without an interval or with one of width zero.

    The interval holds for `n_tests` differences together, and ends where the scale of the metric does.
    """
    value = round(own.value - other.value, 6) + 0.0  # no -0.0
    if own.interval is None or other.interval is None:
        return {"value": value, "low": None, "high": None}
    (low, high), (other_low, other_high) = own.interval, other.interval
    quantile = NormalDist().inv_cdf
    wider = quantile(1 - ALPHA / 2 / n_tests) / quantile(1 - ALPHA / 2)
    below = wider * math.hypot(own.value - low, other_high - other.value)
    above = wider * math.hypot(high - own.value, other.value - other_low)
    if below + above < SAME:  # constant scores: certainty would be claimed from no variation
        return {"value": value, "low": None, "high": None}
    widest = METRICS[own.metric].high - METRICS[own.metric].low
    return {
        "value": value,
        "low": max(math.floor((value - below) * 100 + SAME) / 100, -widest),
        "high": min(math.ceil((value + above) * 100 - SAME) / 100, widest),
    }
