"""What must hold of a row of the config `localization`; masks and pictures are checked elsewhere.

A fault is (field, rule, value). Codes have names and lists are there: that is checked before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.rows import Fault, Row, size_faults

__all__ = ["findings_drawn", "image_faults"]

INDIVIDUAL = READERS.index("individual")
GROUND_TRUTH = READERS.index("ground_truth")
TOLERANCE_PX = 1e-6


def image_faults(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    """What is wrong in the row of an image."""
    yield from size_faults(row["width"], row["height"], "size")
    statuses = list((row["label_status"] or {}).values())
    present = [code for code, status in enumerate(statuses) if status == 1]
    if sorted(row["labels"]) != present:
        yield "labels", f"must be {present}, the codes whose `label_status` is 1", str(row["labels"])
    if stray := sorted({str(status) for status in statuses} - {"-1", "0", "1", "None"}):
        yield "label_status", "must be 1, 0, -1 or null", ", ".join(stray)
    yield from _drawings(row, findings)
    for point in row["points"]:
        if not (0 <= point["x"] < row["width"] and 0 <= point["y"] < row["height"]):
            yield "points", "must lie in the image", f"({point['x']}, {point['y']})"
    drawn = {a["label"] for a in row["annotations"] if a["reader"] == GROUND_TRUTH and a["area_px"] > 0}
    for code in row["missing"]:
        if code in drawn:
            yield "missing", "must have no ground-truth mask", findings[code]
        if code not in row["labels"]:
            yield "missing", "must be present", findings[code]


def _drawings(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    seen = set()
    for annotation in row["annotations"]:
        name = f"{findings[annotation['label']]}, {READERS[annotation['reader']]}"
        who = (annotation["label"], annotation["reader"], annotation["reader_id"])
        if who in seen:
            yield "annotations", "must be one per finding and reader", f"{name} again"
        seen.add(who)
        if (annotation["reader"] == INDIVIDUAL) != (annotation["reader_id"] is not None):
            rule = "must name the reader of an individual's drawing, and of no other"
            yield f"annotations[{name}].reader_id", rule, str(annotation["reader_id"])
        yield from _boxes(annotation, row["width"], row["height"], f"annotations[{name}]")
        for contour in annotation["polygons"]:
            if len(contour) < 2 or not all(math.isfinite(value) for point in contour for value in point):
                yield f"annotations[{name}].polygons", "must have two or more finite points", str(contour)[:60]


def _boxes(annotation: Row, width: int, height: int, name: str) -> Iterator[Fault]:
    boxes = annotation["boxes_xywh"]
    for box in boxes:
        x, y, wide, high = box
        # a source's boxes may stick out of the picture: they must only have a part in it
        if not (wide > 0 and high > 0 and x < width and y < height and x + wide > 0 and y + high > 0):
            yield f"{name}.boxes_xywh", "must have an area in the image", str(box)
    if annotation["rle"] is not None or not boxes:
        return
    if annotation["n_instances"] != len(boxes):
        yield f"{name}.n_instances", f"must be {len(boxes)}, the number of boxes", str(annotation["n_instances"])
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    whole = [left, top, right - left, bottom - top]
    given = annotation["bbox_xywh"]
    if given is None or any(abs(a - b) > TOLERANCE_PX for a, b in zip(given, whole, strict=True)):
        yield f"{name}.bbox_xywh", f"must be {whole}, around all boxes", str(given)


def findings_drawn(row: Row, findings: Sequence[str]) -> list[str]:
    """The findings that have a ground truth."""
    drawn = {a["label"] for a in row["annotations"] if a["reader"] == GROUND_TRUTH and a["area_px"] > 0}
    return [finding for code, finding in enumerate(findings) if code in drawn]
