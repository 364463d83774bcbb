"""Scores of one submission to a localization benchmark that a board may show, and the spreads of its hit rates.

A finding is shown if it has at least `min_cell` cases. Each further score of a finding answers one more question about
the same locations, so only three are shown: the hit rate by which the board ranks, of points or of grid cells; the
overlap of masks, or else of boxes, if the finding has :data:`FOR_OVERLAP` times as many cases; and the other hit rate,
only as an average. The other hit rate is not shown for a file whose cells differ from the cells of its points, because
such a file asks about two locations. A board shows the scores that its number of cases allows
(:mod:`reveal_leaderboard.release.release`).

Intervals of hit rates are computed from the shown proportion and the numbers of cases and patients, see
:mod:`reveal_bench.kinds.scored`; overlaps keep their own intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.kinds.scored import Disclosure, disclosure_of_findings, effective_size, spread_of_share
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling

HITS = ("point_hit", "grid_hit")
"""Metrics that count cases."""
OVERLAPS = ("mask_iou_all", "box_iou")
"""Metrics of the overlap of two regions."""
FOR_OVERLAP = 2.5
"""Overlap is shown for findings with at least this multiple of `min_cell` cases; with twice `min_cell`, the simulated
gain was above 0.05.
"""


def disclose_cases(
    rows: CaseRows, released: Sequence[str], resampling: Resampling, *, min_cell: int, left_out: Collection[str] = ()
) -> Disclosure:
    """Return the scores of findings with at least `min_cell` cases; `box_iou` only if masks are not scored.

    Parameters
    ----------
    released : metrics that a board may show, the metric by which it ranks first
    """
    rows = rows.with_reference()
    ranked_by, further_hits = released[0], [name for name in HITS if name != released[0]]
    # Only the references decide where chance is defined; rows made by hand may lack it.
    n_cases = rows.n_defined("grid_chance" if "grid_chance" in rows.values else "point_hit")
    visible_findings = tuple(f for f in rows.findings if n_cases[f] >= min_cell and f not in left_out)
    many = tuple(finding for finding in visible_findings if n_cases[finding] >= FOR_OVERLAP * min_cell)
    metrics = [name for name in released if name in rows.values]
    if "mask_iou_all" in metrics and "box_iou" in metrics:
        metrics.remove("box_iou")
    asks_twice = _has_cells_beside(rows)
    if asks_twice:
        metrics = [name for name in metrics if name not in further_hits]
    overlaps = [name for name in metrics if name in OVERLAPS]
    allowed: list[Estimate] = []
    for names, findings, least in (
        ([name for name in metrics if name not in OVERLAPS], visible_findings, min_cell),
        (overlaps, many, FOR_OVERLAP * min_cell),
    ):
        if names and findings:
            # A board's scores keep percentile intervals, whatever the default of `reveal-bench score`
            estimates = summarize(rows, resampling.by("percentile"), metrics=names, findings=findings)
            thin = {e.metric for e in estimates if e.finding != MACRO and e.n < least}
            allowed += [e for e in estimates if (e.metric not in thin if e.finding == MACRO else e.n >= least)]
    allowed = [e for e in allowed if e.metric not in further_hits or e.finding == MACRO]
    disclosure = disclosure_of_findings(allowed, rows.findings, visible_findings, counted="cases", min_cell=min_cell)
    note = disclosure.note
    if rows.leading not in ("", ranked_by):
        note += f" {_OTHER_FORM[ranked_by]}"
    if asks_twice:
        (hidden,) = (METRICS[name].in_words for name in further_hits)
        note += f" The {hidden} is not shown: the file names cells other than those of its points."
    spreads = {
        (e.metric, e.finding): spread_of_share(effective_size(_patients_of(rows, e.metric, e.finding)))
        for e in allowed
        if e.finding != MACRO and e.metric in HITS
    }
    return replace(disclosure, spreads=spreads, note=note)


_OTHER_FORM = {
    "point_hit": "This board ranks by the hit rate, for which a cell counts by its centre.",
    "grid_hit": "This board ranks by the grid hit rate, for which a point counts by its cell.",
}
"""Metric by which a board ranks -> sentence for files whose own form is scored by the other."""


def _has_cells_beside(rows: CaseRows) -> bool:
    """Return True if a scored cell is not, or may not be, the cell of the case's point."""
    return any(
        cell == "cell" and point not in ("cell", "none")
        for cell, point in zip(rows.cell_kinds, rows.point_kinds, strict=True)
    )


def _patients_of(rows: CaseRows, metric: str, finding: str) -> list[str]:
    """Return the patient of each case that supports a score."""
    defined = ~np.isnan(rows.values[metric])
    cases = zip(rows.patient_ids, rows.case_findings, defined, strict=True)
    return [patient for patient, of, is_defined in cases if of == finding and is_defined]
