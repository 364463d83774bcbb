"""What of a submission's ratings may be shown.

Conventions
-----------
Ratings are readers' judgements of answers, not held-out labels, so nothing can be probed by asking again; yet a figure
of few answers is no figure, and names of readers stay with the maintainer. So

* the overall score is shown from `min_cell` tasks on; a criterion or a category of tasks from as many scored answers;
* values are rounded to `resolution`, the ends of intervals outwards; counts of answers are given in bands;
* of the shares only that of completely correct answers is shown (a content score of 5), see
  :mod:`reveal_bench.rubric_scoring`; of the agreement of readers their quadratic-weighted kappa.

In place of findings stand the criteria of the rubric and the categories of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.metrics.ordinal import CONTENT, CRITERIA, REPORTED
from reveal_bench.rubric_scoring import RubricRows, summarize_rubric
from reveal_bench.task_records import CATEGORIES
from reveal_leaderboard.release import POLICY, Figure, ReleasedScore, ReleasePolicy

__all__ = ["RELEASED_OF_TASKS", "release_rubric"]

RELEASED_OF_TASKS = ("rubric_mean", "share_of_5", "cohen_kappa_quadratic")
"""Metrics of ratings that are shown."""


def release_rubric(rows: RubricRows, policy: ReleasePolicy = POLICY) -> ReleasedScore:
    """Reduce the ratings of one submission to what may be shown of them.

    Parameters
    ----------
    rows : of one submission on all tasks, from :func:`reveal_bench.rubric_scoring.score_ratings`
    policy : ReleasePolicy
    """
    names = (*REPORTED, *CATEGORIES)
    if len(rows) < policy.min_cell:
        note = f"Nothing can be shown: this split has fewer than {policy.min_cell} tasks."
        return ReleasedScore((), (), names, note, asdict(policy))
    estimates = summarize_rubric(rows, n_resamples=policy.n_resamples, seed=policy.seed)
    counts = {e.finding: e.n for e in estimates if e.metric == "rubric_mean"}
    shown = tuple(name for name in names if counts[name] >= policy.min_cell)
    figures = tuple(_figure(e, policy) for e in _allowed(estimates, shown, policy))
    hidden = tuple(name for name in names if name not in shown)
    listed = ", ".join(name.replace("_", " ") for name in hidden)
    note = f"Fewer than {policy.min_cell} scored answers, not shown: {listed}." if hidden else "All is shown."
    return ReleasedScore(figures, shown, hidden, note, asdict(policy))


def _allowed(estimates: list[Estimate], shown: tuple[str, ...], policy: ReleasePolicy) -> Iterator[Estimate]:
    pairs = {e.finding: e.n for e in estimates if e.metric == "cohen_kappa_quadratic"}
    for e in estimates:
        if e.metric not in RELEASED_OF_TASKS or math.isnan(e.value):
            continue
        if e.metric == "share_of_5":
            is_allowed = e.finding == CONTENT and CONTENT in shown
        elif e.metric == "cohen_kappa_quadratic":
            counted = CRITERIA[:4] if e.finding == MACRO else (e.finding,)
            is_allowed = all(name in shown and pairs[name] >= policy.min_cell for name in counted)
        else:
            is_allowed = set(CRITERIA[:4]) <= set(shown) if e.finding == MACRO else e.finding in shown
        if is_allowed:
            yield e


def _figure(e: Estimate, policy: ReleasePolicy) -> Figure:
    step = policy.resolution
    value = policy.round(e.value)
    assert value is not None, "undefined figures were taken out"
    low = None if math.isnan(e.low) else policy.round(step * math.floor(e.low / step + 1e-9))
    high = None if math.isnan(e.high) else policy.round(step * math.ceil(e.high / step - 1e-9))
    n = str(e.n) if e.finding == MACRO else policy.band(e.n)
    return Figure(e.metric, e.finding, value, low, high, n, e.signature)
