"""What may be shown of the cases of one submission, and of what intervals of its hits are made.

A finding is shown if it has at least `min_cell` cases. Hits are counted, so their intervals are made of the shown share
and of how many cases and patients there are, see :mod:`reveal_bench.kinds.scored`; overlaps keep their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.kinds.scored import Disclosure, disclosure_of_findings, effective_size, spread_of_share
from reveal_bench.metrics.bootstrap import MACRO, Estimate

__all__ = ["HITS", "disclose_cases"]

HITS = ("point_hit", "grid_hit")
"""Metrics that count cases."""


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
        # What a board releases keeps percentiles, whatever the default at home
        options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed, "interval": "percentile"}
        estimates = summarize(rows, metrics=metrics, findings=shown, **options)
        thin = {e.metric for e in estimates if e.finding != MACRO and e.n < min_cell}
        allowed = [e for e in estimates if (e.metric not in thin if e.finding == MACRO else e.n >= min_cell)]
    found = disclosure_of_findings(allowed, rows.findings, shown, counted="cases", min_cell=min_cell)
    spreads = {
        (e.metric, e.finding): spread_of_share(effective_size(_patients_of(rows, e.metric, e.finding)))
        for e in allowed
        if e.finding != MACRO and e.metric in HITS
    }
    return replace(found, spreads=spreads)


def _patients_of(rows: CaseRows, metric: str, finding: str) -> list[str]:
    """The patient of each case behind a figure."""
    defined = ~np.isnan(rows.values[metric])
    cases = zip(rows.patient_ids, rows.case_findings, defined, strict=True)
    return [patient for patient, of, is_defined in cases if of == finding and is_defined]
