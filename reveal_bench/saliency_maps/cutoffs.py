"""Tune the probability below which a heat map's mask is emptied, by the mean IoU over all images of a split.

A saliency method marks every image, so a *gate* empties masks if the finding is improbable. Images with and without the
finding count. If the finding is absent, a remaining mask has an IoU of 0, and the IoU of an empty mask is undefined; if
the finding is present, an empty mask has an IoU of 0. Masks are cut at Otsu's threshold. Images in which the finding is
present but not drawn, or not labelled, are left out.

There are two rules. Rule "ours" keeps masks whose probability reaches the cut-off, in tuning and in prediction. Rule
"published" is that of the published code. In tuning, the published rule keeps only masks above the cut-off; in
prediction, it also keeps masks at the cut-off. The published rule rounds means to three digits, uses the first of equal
means, and begins at 0.1 for Lung Lesion.

Source: paper 002, Methods and Extended Data Fig. 4, and its published code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import pack_regions
from reveal_bench.metrics.heat_maps import laid_over
from reveal_bench.metrics.localization import mask_iou
from reveal_bench.saliency_maps.maps import FoundMaps, read_map
from reveal_bench.saliency_maps.tuning import Case, Tuned, check_grid, mean_curves

GateRule = Literal["ours", "published"]
GATES = tuple(round(0.1 * i, 1) for i in range(9))
"""Cut-offs to try."""
_FIRST_PUBLISHED = {"Lung Lesion": 0.1}


def tune_gates(
    maps: FoundMaps,
    records: Sequence[LocalizationRecord],
    split: str,
    *,
    rule: GateRule = "ours",
    fill: bool = True,
    grid: Sequence[float] = GATES,
    progress: Callable[..., None] | None = None,
) -> Tuned:
    """Return the best cut-off of each finding that has maps; the cut-offs are the result's `thresholds`.

    Parameters
    ----------
    maps : maps with probabilities, for images with and without the finding
    fill : as in :func:`reveal_bench.metrics.heat_maps.otsu_mask`
    grid : increasing cut-offs in [0, 1)

    Raises
    ------
    ArgumentError
        If an option is invalid, a map has no probability, or a finding has no value at any cut-off.
    ValueError
        If a map is damaged; the message names its file.
    """
    if rule not in get_args(GateRule):
        raise ArgumentError("gate_rule", "must be 'ours' or 'published'", repr(rule))
    tried = check_grid(grid)
    jobs = [
        (record, finding)
        for record in records
        for finding, status in record.label_status.items()
        if status is not None and finding not in record.missing and (record.image_id, finding) in maps.files
    ]
    if not jobs:
        raise ArgumentError("maps", f"must include maps of split {split!r}", "none")
    cases: dict[str, list[Case]] = {}
    for i, (record, finding) in enumerate(jobs, start=1):
        probability, iou, empty_iou = _case(maps, record, finding, fill)
        is_kept = [probability > cut_off if rule == "published" else probability >= cut_off for cut_off in tried]
        cases.setdefault(finding, []).append((record.patient_id, np.where(is_kept, iou, empty_iou)))
        if progress is not None:
            progress("maps", i, len(jobs))
    curves, intervals = mean_curves("mask_iou_all", cases, records)
    best = {finding: _best(finding, curve, tried, rule) for finding, curve in curves.items()}
    n_cases = {finding: len(own) for finding, own in cases.items()}
    return Tuned(split, tried, best, curves, intervals, n_cases, "mask_iou_all")


def _case(maps: FoundMaps, record: LocalizationRecord, finding: str, fill: bool) -> tuple[float, float, float]:
    """Return (probability, IoU if the mask is kept, IoU if the mask is emptied) for one map."""
    file = maps.files[record.image_id, finding]
    heat = read_map(file)
    if heat.probability is None:
        raise ArgumentError("maps", "must each have a probability, without which gates cannot be tuned", file.path.name)
    mask = laid_over(heat.values, record.size).above_otsu(fill=fill)
    annotation = record.reference(finding)
    region = None if annotation is None or not annotation.area_px else annotation.rle or annotation.boxes_xywh
    if region is None:
        return heat.probability, 0.0 if mask.areas.any() else np.nan, np.nan
    reference = pack_regions([region], [record.size])
    return heat.probability, float(mask_iou(mask, reference, slice="all")[0]), 0.0


def _best(finding: str, curve: FloatArray, grid: tuple[float, ...], rule: GateRule) -> float:
    if np.isnan(curve).all():
        raise ArgumentError("maps", "must leave a mask or a reference at some cut-off", f"none of {finding}")
    if rule == "published":
        begins = _FIRST_PUBLISHED.get(finding, 0.0)
        curve = np.where(np.array(grid) >= begins, np.round(curve, 3), np.nan)
    return grid[int(np.nanargmax(curve))]
