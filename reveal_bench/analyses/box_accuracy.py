"""Accuracy of boxes at thresholds of IoU and IoBB (Wang et al. 2017, ChestX-ray8).

A reference box is located if a predicted box of its image and finding overlaps it by more than the threshold T: by IoU,
or by IoBB, the proportion of the predicted box that is inside the reference box. Accuracy is the proportion of located
reference boxes, with 95% intervals by the jackknife over patients. A predicted box that locates no reference box is
false; as in the paper, its number per image is over the images with the finding. A mask counts as its tight box, and
all boxes count, whatever their score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.detection.records import instances
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.masks import Box, pack_masks
from reveal_bench.metrics.bootstrap import MACRO, bootstrap_means, intervals_of, macro_first, no_counts
from reveal_bench.metrics.detection_matching import box_overlaps, box_shares
from reveal_bench.metrics.intervals import Estimate

THRESHOLDS = tuple(k / 10 for k in range(1, 10))
"""Thresholds T(IoU) and T(IoBB)."""
OVERLAPS = ("iou", "iobb")


@dataclass(frozen=True, slots=True)
class BoxAccuracy:
    """Accuracy of the boxes of a finding at one threshold.

    Attributes
    ----------
    finding : name of the finding, or "macro" for the unweighted mean over findings
    overlap : "iou" or "iobb"
    threshold : overlap that a located box exceeds
    accuracy : proportion of located reference boxes
    false_boxes : mean number of false boxes per image with the finding
    n : number of reference boxes; for a macro, of findings
    """

    finding: str
    overlap: str
    threshold: float
    accuracy: Estimate
    false_boxes: float
    n: int


def box_accuracies(
    predictions: Sequence[LocalizationPrediction], records: Sequence[LocalizationRecord], findings: Sequence[str]
) -> list[BoxAccuracy]:
    """Return the accuracy by each overlap and threshold: the macro, then every finding with a reference box.

    Raises
    ------
    ArgumentError
        If no box or mask is predicted, or no reference has a box.
    """
    boxes = _boxes_by_case(predictions)
    present = [name for name in findings if any(instances(record, name) for record in records)]
    cases = [(record, name) for record in records for name in present if instances(record, name)]
    if not cases:
        raise ArgumentError("bench", "must have references with boxes, which are compared", "none")
    overlaps = [_overlaps(boxes.get((record.image_id, name), []), instances(record, name)) for record, name in cases]
    of_case = np.array([present.index(name) for _, name in cases])
    patients = sorted({record.patient_id for record in records})
    of_patient = np.searchsorted(patients, [record.patient_id for record, _ in cases])
    n_drawn = [one.shape[2] for one in overlaps]
    of_box, of_unit = np.repeat(of_case, n_drawn), np.repeat(of_patient, n_drawn)
    counts = no_counts(len(patients))
    rows = []
    for k, overlap in enumerate(OVERLAPS):
        best = np.concatenate([one[k].max(axis=0, initial=0.0) for one in overlaps])
        own_best = [one[k].max(axis=1, initial=0.0) for one in overlaps]
        for threshold in THRESHOLDS:
            located = (best > threshold).astype(np.float64)
            means = bootstrap_means(located, of_box, of_unit, n_groups=len(present), counts=counts)
            accuracies = intervals_of(means, "jackknife", bounds=means.bounds).estimates()
            n_false = np.array([(one <= threshold).sum() for one in own_best])
            false = macro_first(np.bincount(of_case, n_false) / np.bincount(of_case)).tolist()
            by_name = zip((MACRO, *present), accuracies, false, (len(present), *means.n.tolist()), strict=True)
            rows += [BoxAccuracy(name, overlap, threshold, *figures) for name, *figures in by_name]
    return rows


def _boxes_by_case(predictions: Sequence[LocalizationPrediction]) -> Mapping[tuple[str, str], list[Box]]:
    boxes: dict[tuple[str, str], list[Box]] = {}
    for one in predictions:
        box = one.box
        if box is None and one.mask is not None:
            x, y, width, height = pack_masks([one.mask]).boxes_xywh()[0].tolist()
            box = (x, y, width, height) if width == width else None  # NaN for an empty mask
        if box is not None:
            boxes.setdefault((one.image_id, one.finding), []).append(box)
    if not boxes:
        raise ArgumentError("predictions", "must have boxes or masks, which are compared", "none")
    return boxes


def _overlaps(own: Sequence[Box], drawn: Sequence[Box]) -> FloatArray:
    """Return IoU and IoBB of every predicted box with every reference box, (2, n_predicted, n_drawn)."""
    pairs = np.repeat(np.reshape(own, (-1, 4)), len(drawn), axis=0), np.tile(drawn, (len(own), 1))
    shape = (len(own), len(drawn))
    return np.stack([box_overlaps(*pairs).reshape(shape), box_shares(*pairs).reshape(shape)])
