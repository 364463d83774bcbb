"""What must hold of a row of the configs `tasks` and `ratings`; pictures are checked elsewhere.

A fault is (field, rule, value). Codes have names and lists are there: that is checked before.
"""

from __future__ import annotations

from collections.abc import Iterator

from reveal_bench.kinds.rows import Fault, Row, facts_faults, parallel_faults
from reveal_bench.kinds.tasks.records import QUESTION_SCORES
from reveal_bench.metrics.ordinal import CRITERIA

__all__ = ["rating_faults", "task_faults"]


def task_faults(row: Row) -> Iterator[Fault]:
    """What is wrong in the row of a task."""
    yield from parallel_faults(row, "image_ids", {"images": "images", "image_facts": "image_facts"})
    yield from parallel_faults(row, "prior_image_ids", {"prior_images": "images", "prior_image_facts": "image_facts"})
    yield from facts_faults(row["image_facts"], row["image_ids"], "image_facts")
    yield from facts_faults(row["prior_image_facts"], row["prior_image_ids"], "prior_image_facts")
    if not row["image_ids"]:
        yield "image_ids", "must name at least one image", "none"
    if not (row["prompt"] or "").strip():
        yield "prompt", "must not be empty", repr(row["prompt"])
    for name in QUESTION_SCORES:
        score = (row["question_scores"] or {}).get(name)
        if score is not None and not 1 <= score <= 5:
            yield f"question_scores.{name}", "must lie in 1 to 5", str(score)
    sizes = {f["image_id"]: (f["width"], f["height"]) for f in (*row["image_facts"], *row["prior_image_facts"])}
    for box in row["reference_boxes"]:
        if box["image_id"] is not None and box["image_id"] not in sizes:
            yield "reference_boxes", "must be on an image of the task", str(box["image_id"])
            continue
        x, y, wide, high = box["bbox_xywh"]
        fits = [x >= 0 and y >= 0 and x + wide <= width and y + high <= height
                for width, height in ([sizes[box["image_id"]]] if box["image_id"] else sizes.values())]  # fmt: skip
        if not (wide > 0 and high > 0 and any(fits)):
            yield "reference_boxes", "must have an area inside its image", str(box["bbox_xywh"])


def rating_faults(row: Row) -> Iterator[Fault]:
    """Scores of a rating that are out of range."""
    for name in CRITERIA:
        if row[name] is not None and not 1 <= row[name] <= 5:
            yield name, "must lie in 1 to 5", str(row[name])
