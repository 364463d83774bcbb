"""Score cases from standard input with MONAI and panoptica; run by the python that `make soak` gives them.

A case of boxes is ``{"images": [{"lesions": [[x, y, w, h], ...], "marks": [[x, y, w, h, score], ...]}, ...]}`` with
whole numbers and lesions apart from each other, as are marks: FROC at its rates, and panoptic quality of rectangles.
A case of masks is ``{"a": rows, "b": rows, "tolerance": t, "spacing": [row, column]}``: surface Dice and Hausdorff 95.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

SIDE = 64
RATES = (0.125, 0.25, 0.5, 1, 2, 4, 8)


def labelled(boxes: list[list[float]]) -> Any:
    mask = np.zeros((SIDE, SIDE), np.uint16)
    for label, (x, y, width, height, *_) in enumerate(boxes, start=1):
        mask[int(y) : int(y + height), int(x) : int(x + width)] = label
    return mask


def froc(images: list[dict[str, Any]]) -> list[float]:
    from monai.metrics.froc import compute_fp_tp_probs, compute_froc_curve_data

    false, true, n = [], [], 0
    for image in images:
        marks = np.array(image["marks"], float).reshape(-1, 5)
        x, y = marks[:, 0] + marks[:, 2] / 2, marks[:, 1] + marks[:, 3] / 2
        f, t, targets = compute_fp_tp_probs(
            marks[:, 4].astype(np.float32), y, x, labelled(image["lesions"]).astype(int)
        )
        false.append(f)
        true.append(t)
        n += targets
    rates, shares = compute_froc_curve_data(np.concatenate(false), np.concatenate(true), int(n), len(images))
    return np.interp(RATES, rates[::-1], shares[::-1]).tolist()


def panoptic(image: dict[str, Any]) -> list[float]:
    """Return panoptic, segmentation and recognition quality of one image."""
    from panoptica import InputType, NaiveThresholdMatching, Panoptica_Evaluator

    evaluator = Panoptica_Evaluator(
        expected_input=InputType.UNMATCHED_INSTANCE, instance_matcher=NaiveThresholdMatching(matching_threshold=0.5)
    )
    results = evaluator.evaluate(labelled(image["marks"]), labelled(image["lesions"]), verbose=False)["ungrouped"]
    return [float(results.pq), float(results.sq), float(results.rq)]


def surfaces(case: dict[str, Any]) -> list[float]:
    import torch
    from monai.metrics import compute_hausdorff_distance, compute_surface_dice

    a, b = (torch.tensor(case[name], dtype=torch.bool)[None, None] for name in ("a", "b"))
    how = {"include_background": True, "spacing": case["spacing"]}
    share = compute_surface_dice(a, b, class_thresholds=[case["tolerance"]], **how)
    return [float(share), float(compute_hausdorff_distance(a, b, percentile=95, **how))]


def main() -> None:
    answers = []
    for case in json.load(sys.stdin):
        if "a" in case:
            answers.append(surfaces(case))
        else:
            answers.append([froc(case["images"]), *([panoptic(case["images"][0])] if case.get("panoptic") else [])])
    sys.stdout.write("\n" + json.dumps(answers))  # panoptica writes there, too


if __name__ == "__main__":
    main()
