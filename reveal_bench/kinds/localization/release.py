"""What may be shown of the cases of one submission.

Only metrics in which every asked case counts are released. `mask_iou` leaves out the cases for which a submission hands
in an empty mask: its sender would choose the cases that count, down to one. Where a benchmark asks for all findings, a
mask without a reference would add a case and thereby tell what is absent; such rows are taken out: a wrong mask
elsewhere costs nothing, and hits are averaged over the cases with a reference alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from reveal_bench.kinds.disclosure import Disclosure, disclosure_of_findings
from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.metrics.bootstrap import MACRO, Estimate

__all__ = ["disclose_cases"]


def disclose_cases(
    rows: CaseRows, released: Sequence[str], *, min_cell: int, n_resamples: int, seed: int
) -> Disclosure:
    """Figures of the findings with at least `min_cell` cases, and the macros; `box_iou` only where no mask counts."""
    rows = rows.with_reference()
    # Where chance is defined follows from the references alone; a row made by hand may lack it.
    n_cases = rows.n_defined("grid_chance" if "grid_chance" in rows.values else "point_hit")
    shown = tuple(finding for finding in rows.findings if n_cases[finding] >= min_cell)
    metrics = [name for name in released if name in rows.values]
    if "mask_iou_all" in metrics and "box_iou" in metrics:
        metrics.remove("box_iou")
    allowed: list[Estimate] = []
    if shown:
        estimates = summarize(rows, metrics=metrics, findings=shown, n_resamples=n_resamples, seed=seed)
        thin = {e.metric for e in estimates if e.finding != MACRO and e.n < min_cell}
        allowed = [e for e in estimates if (e.metric not in thin if e.finding == MACRO else e.n >= min_cell)]
    return disclosure_of_findings(allowed, rows.findings, shown, counted="cases", min_cell=min_cell)
