"""Accuracy of boxes at thresholds of IoU and IoBB, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reveal_bench.analyses.box_accuracy import box_accuracies
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.localization.records import Annotation, LocalizationPrediction, LocalizationRecord
from reveal_bench.masks import Box, encode_mask

FINDINGS = ("Mass", "Nodule")


def record(name: str, *boxes: Box, finding: str = "Mass") -> LocalizationRecord:
    around: Box = boxes[0]
    drawn = Annotation(finding, "ground_truth", None, (), around, len(boxes), 1, boxes)
    status = dict.fromkeys(FINDINGS, None) | {finding: 1}
    return LocalizationRecord(name, name, name, "PA", 200, 200, status, annotations=(drawn,))


def test_located_boxes_exceed_the_threshold() -> None:
    """Image a has two boxes of 100 x 100. A prediction of 50 x 100 is in the first: IoU 0.5, IoBB 1. The other misses.

    Image b has a box of 100 x 100 and a prediction twice as high: IoU 0.5, IoBB 0.5. Image c has no prediction.
    """
    records = [
        record("a", (0, 0, 100, 100), (100, 100, 100, 100)),
        record("b", (0, 0, 100, 100)),
        record("c", (0, 0, 9, 9), finding="Nodule"),
    ]
    predictions = [
        LocalizationPrediction("a", "Mass", box=(0, 0, 50, 100)),
        LocalizationPrediction("a", "Mass", box=(150, 0, 20, 20)),
        LocalizationPrediction("b", "Mass", box=(0, 0, 100, 200)),
    ]
    rows = {
        (row.finding, row.overlap, row.threshold): (row.accuracy.value, row.false_boxes, row.n)
        for row in box_accuracies(predictions, records, FINDINGS)
    }
    assert len(rows) == 3 * 2 * 9
    for threshold in (0.1, 0.4):
        assert rows["Mass", "iou", threshold] == (pytest.approx(2 / 3), 0.5, 3)
    assert rows["Mass", "iou", 0.5] == (0, 1.5, 3)  # 0.5 does not exceed 0.5
    assert rows["Mass", "iobb", 0.4] == (pytest.approx(2 / 3), 0.5, 3)
    assert rows["Mass", "iobb", 0.5] == rows["Mass", "iobb", 0.9] == (pytest.approx(1 / 3), 1.0, 3)
    assert rows["Nodule", "iou", 0.1] == (0, 0, 1)
    assert rows["macro", "iou", 0.1] == (pytest.approx(1 / 3), 0.25, 2)


def test_masks_count_as_their_tight_boxes_and_empty_ones_as_none() -> None:
    mask = np.zeros((200, 200), bool)
    mask[0, 0] = mask[99, 99] = True
    records = [record("a", (0, 0, 100, 100)), record("b", (0, 0, 100, 100))]
    predictions = [
        LocalizationPrediction("a", "Mass", mask=encode_mask(mask)),
        LocalizationPrediction("b", "Mass", mask=encode_mask(np.zeros((200, 200), bool))),
    ]
    row = next(row for row in box_accuracies(predictions, records, FINDINGS) if row.finding == "Mass")
    assert (row.accuracy.value, row.false_boxes) == (0.5, 0)
    with pytest.raises(ArgumentError, match="must have boxes or masks"):
        box_accuracies(predictions[1:], records, FINDINGS)


def test_intervals_are_those_of_proportions() -> None:
    """Twenty patients with one box each, eight located: Wilson's interval."""
    from statsmodels.stats.proportion import proportion_confint

    records = [record(f"p{i:02}", (0, 0, 100, 100)) for i in range(20)]
    predictions = [LocalizationPrediction(f"p{i:02}", "Mass", box=(0, 0, 100, 100)) for i in range(8)]
    row = next(row for row in box_accuracies(predictions, records, FINDINGS) if row.finding == "Mass")
    assert (row.accuracy.low, row.accuracy.high) == pytest.approx(proportion_confint(8, 20, method="wilson"), abs=0.02)
