"""Compare two entries of a board by the differences between their released scores.

Conventions
-----------
A comparison is computed only from released scores, on request. So it reveals nothing that the board does not already
show, and costs no budget. The interval of a difference is computed from the intervals of both scores, as if the two
systems were independent. Scores of two systems on the same cases are usually positively correlated, so these intervals
are wider than the paired intervals of `reveal-bench compare`, which needs the references.
:mod:`reveal_leaderboard.release.ranking` explains why a board shows no paired differences.

Source of the interval of a difference: Zou and Donner (2008, Statistics in Medicine 27).
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
"""Numbers that differ by less than this count as equal."""
NOTE = (
    "Differences A − B between the released scores. The 95% intervals are computed from the shown "
    "intervals of both scores, as if A and B were scored on different patients, and are mostly wider "
    "than paired intervals. A difference is significant if its interval excludes 0. Intervals are "
    "corrected for the number of findings per metric."
)


def compare_released(
    a: ReleasedScore, b: ReleasedScore, kind: str, *, ids: tuple[str, str] = ("a", "b")
) -> dict[str, Any]:
    """Return the differences ``a - b`` of all scores that are released for both submissions.

    Parameters
    ----------
    a, b : two scores on one version of a benchmark
    kind : key of `KINDS`; for tasks, mean scores are compared, but not the agreement of readers
    ids : ids of the two submissions

    Returns
    -------
    dict of plain JSON values
        ``rows`` has, per metric, the macro and then the findings: the released values ``a`` and ``b``, their difference
        ``value``, the bounds of its 95% interval (None without an interval), and ``told_apart``: True if the interval
        excludes 0. Intervals of findings are corrected for the number of findings per metric (Bonferroni).
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
    note = NOTE if rows else "No score is released for both submissions, so nothing can be compared."
    return {"schema": 2, "kind": kind, "a": ids[0], "b": ids[1], "rows": rows, "note": note}


def _compared(a: ReleasedScore, b: ReleasedScore, kind: str) -> Iterator[tuple[ReleasedEstimate, ReleasedEstimate]]:
    """Yield the pairs of estimates that are released in both scores, for metrics in which higher or lower is better."""
    of = KINDS[kind]
    compared = of.release.metrics if of.scoring.can_be_probed else (of.release.primary,)
    for own in a.figures:
        other = b.figure(own.metric, own.finding)
        if other is not None and own.metric in compared and METRICS[own.metric].better != "neither":
            yield own, other


def _difference(own: ReleasedEstimate, other: ReleasedEstimate, n_tests: int) -> dict[str, float | None]:
    """Return (value, low, high) of a difference; the bounds are None if a score has no interval or a zero-width one.

    The interval is corrected for `n_tests` differences (Bonferroni), and is limited to the scale of the metric.
    """
    value = round(own.value - other.value, 6) + 0.0  # no -0.0
    if own.interval is None or other.interval is None:
        return {"value": value, "low": None, "high": None}
    (low, high), (other_low, other_high) = own.interval, other.interval
    quantile = NormalDist().inv_cdf
    wider = quantile(1 - ALPHA / 2 / n_tests) / quantile(1 - ALPHA / 2)
    below = wider * math.hypot(own.value - low, other_high - other.value)
    above = wider * math.hypot(high - own.value, other.value - other_low)
    if below + above < SAME:  # an interval of constant scores would suggest certainty
        return {"value": value, "low": None, "high": None}
    widest = METRICS[own.metric].high - METRICS[own.metric].low
    return {
        "value": value,
        "low": max(math.floor((value - below) * 100 + SAME) / 100, -widest),
        "high": min(math.ceil((value + above) * 100 - SAME) / 100, widest),
    }
