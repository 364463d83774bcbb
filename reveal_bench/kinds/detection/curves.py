"""Curves of a detector: FROC with bands, precision against recall, and sensitivity by the size of lesions."""

from __future__ import annotations

from reveal_bench.kinds.curves import Band, Curves, OfSize
from reveal_bench.kinds.detection.scoring import DetectionRows
from reveal_bench.metrics.detection import FROC_RATES, froc_points, precision_recall

__all__ = ["curves_of_detections"]


def curves_of_detections(rows: DetectionRows, *, n_resamples: int, seed: int, unit: str) -> Curves:
    """Curves of the findings that have a lesion, with the intervals that scores have."""
    found = {finding: rows.matched(finding) for finding in rows.findings}
    shown = [finding for finding, one in found.items() if one.n_lesions]
    options = {"n_resamples": n_resamples, "seed": seed, "unit": unit}
    estimates = rows.estimates(**options, interval="shifted", groups=shown) if shown else []  # type: ignore[arg-type]
    by_name = {(one.metric, one.finding): one for one in estimates}
    bands = [
        Band(finding, rate, one.value, one.low, one.high)
        for finding in shown
        for name, rate in FROC_RATES.items()
        for one in [by_name[name, finding]]
    ]
    sizes = []
    for name in rows.strata():
        kind, _, size = name.partition(": ")
        if kind == "size":
            of_size = rows.estimates(**options, interval="shifted", stratum=name, groups=shown)  # type: ignore[arg-type]
            sizes += [
                OfSize(one.finding, size, one.n, one.value, one.low, one.high)
                for one in of_size
                if one.metric == "lesion_sensitivity" and one.n
            ]
    order = {finding: i for i, finding in enumerate(("macro", *shown))}
    return Curves(
        {finding: froc_points(found[finding]) for finding in shown},
        bands,
        {finding: precision_recall(found[finding], "iou_50") for finding in shown},
        sorted(sizes, key=lambda one: order[one.finding]),
    )
