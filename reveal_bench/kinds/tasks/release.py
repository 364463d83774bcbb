"""What may be shown of the ratings of one submission.

The overall score is shown from `min_cell` tasks on; a criterion or a category of tasks from as many scored answers. Of
the shares only that of completely correct answers is shown (a content score of 5), see
:mod:`reveal_bench.kinds.tasks.scoring`; of the agreement of readers their quadratic-weighted kappa.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from reveal_bench.kinds.disclosure import Disclosure
from reveal_bench.kinds.tasks.records import CATEGORIES
from reveal_bench.kinds.tasks.scoring import OVERALL_CRITERIA, RubricRows, summarize_rubric
from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.metrics.ordinal import CONTENT, REPORTED

__all__ = ["disclose_ratings"]


def disclose_ratings(
    rows: RubricRows, released: Collection[str], *, min_cell: int, n_resamples: int, seed: int
) -> Disclosure:
    """Figures of the criteria and categories with at least `min_cell` scored answers."""
    names = (*REPORTED, *CATEGORIES)
    if len(rows) < min_cell:
        return Disclosure((), (), names, f"Nothing can be shown: this split has fewer than {min_cell} tasks.")
    estimates = summarize_rubric(rows, n_resamples=n_resamples, seed=seed)
    counts = {e.finding: e.n for e in estimates if e.metric == "rubric_mean"}
    shown = tuple(name for name in names if counts[name] >= min_cell)
    hidden = tuple(name for name in names if name not in shown)
    listed = ", ".join(name.replace("_", " ") for name in hidden)
    note = f"Fewer than {min_cell} scored answers, not shown: {listed}." if hidden else "All is shown."
    allowed = (e for e in _allowed(estimates, shown, min_cell) if e.metric in released and not math.isnan(e.value))
    return Disclosure(tuple(allowed), shown, hidden, note)


def _allowed(estimates: Sequence[Estimate], shown: Collection[str], min_cell: int) -> Iterator[Estimate]:
    pairs = {e.finding: e.n for e in estimates if e.metric == "cohen_kappa_quadratic"}
    for e in estimates:
        if e.metric == "share_of_5":
            is_allowed = e.finding == CONTENT and CONTENT in shown
        elif e.metric == "cohen_kappa_quadratic":
            counted = OVERALL_CRITERIA if e.finding == MACRO else (e.finding,)
            is_allowed = all(name in shown and pairs[name] >= min_cell for name in counted)
        elif e.metric == "rubric_mean":
            is_allowed = set(OVERALL_CRITERIA) <= set(shown) if e.finding == MACRO else e.finding in shown
        else:
            continue
        if is_allowed:
            yield e
