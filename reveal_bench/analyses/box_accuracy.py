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
from reveal_bench.metrics.bootstrap import bootstrap_means, intervals_of, macro_first, resampling_counts
from reveal_bench.metrics.detection_matching import box_overlaps, box_shares
from reveal_bench.metrics.intervals import Resampling

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
    accuracy, low, high : proportion of located reference boxes, and its interval
    false_boxes : mean number of false boxes per image with the finding
    n : number of reference boxes; for a macro, of findings
    """

    finding: str
    overlap: str
    threshold: float
    accuracy: float
    low: float
    high: float
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
    cases = [(record, code) for record in records for code, name in enumerate(findings) if instances(record, name)]
    if not cases:
        raise ArgumentError("bench", "must have references with boxes, which are compared", "none")
    patients = {patient: i for i, patient in enumerate(sorted({record.patient_id for record in records}))}
    groups, units, best, case_groups, own_best = [], [], [], [], []
    for record, code in cases:
        drawn = np.array(instances(record, findings[code]))
        own = np.array(boxes.get((record.image_id, findings[code]), [])).reshape(-1, 4)
        overlaps = _overlaps(own, drawn)
        groups += [code] * len(drawn)
        units += [patients[record.patient_id]] * len(drawn)
        best.append(overlaps.max(axis=1, initial=0.0))
        case_groups.append(code)
        own_best.append(overlaps.max(axis=2, initial=0.0))
    present = sorted(set(groups))
    code_of = {code: i for i, code in enumerate(present)}
    of_box, of_unit = np.array([code_of[code] for code in groups]), np.array(units)
    of_case = np.array([code_of[code] for code in case_groups])
    located_by, n_images = np.concatenate(best, axis=1), np.bincount(of_case)
    counts = resampling_counts(len(patients), Resampling(1))  # the jackknife needs no replicates
    rows = []
    for k, overlap in enumerate(OVERLAPS):
        for threshold in THRESHOLDS:
            located = (located_by[k] > threshold).astype(np.float64)
            means = bootstrap_means(located, of_box, of_unit, n_groups=len(present), counts=counts)
            estimates = intervals_of(means, "jackknife", bounds=means.bounds).estimates()
            n_false = np.array([(one[k] <= threshold).sum() for one in own_best])
            false = macro_first(np.bincount(of_case, n_false) / n_images)
            for i, name in enumerate(("macro", *(findings[code] for code in present))):
                one, n = estimates[i], len(present) if i == 0 else int(means.n[i - 1])
                rows.append(BoxAccuracy(name, overlap, threshold, one.value, one.low, one.high, float(false[i]), n))
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


def _overlaps(own: FloatArray, drawn: FloatArray) -> FloatArray:
    """Return IoU and IoBB of every predicted box with every reference box, (2, n_predicted, n_drawn)."""
    pairs = np.repeat(own, len(drawn), axis=0), np.tile(drawn, (len(own), 1))
    shape = (len(own), len(drawn))
    return np.stack([box_overlaps(*pairs).reshape(shape), box_shares(*pairs).reshape(shape)])
