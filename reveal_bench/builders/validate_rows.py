"""What must hold of one row of a main config, by kind of benchmark; pictures and masks are checked elsewhere.

A rule yields (field, rule, value); :func:`row_problems` adds the file and the key of the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from reveal_bench.builders.rows import Row
from reveal_bench.builders.source import Problem
from reveal_bench.records import READERS
from reveal_bench.study_records import AGREEMENTS
from reveal_bench.task_records import CRITERIA, QUESTION_SCORES

__all__ = ["asked_of", "rating_problems", "row_problems"]

Fault = tuple[str, str, str]
INDIVIDUAL = READERS.index("individual")
GROUND_TRUTH = READERS.index("ground_truth")
N_AGREE_ALL = {0: 2, 1: 3}
"""Code of AGREEMENTS -> how many readers that is."""
TOLERANCE_PX = 1e-6


def row_problems(kind_name: str, row: Row, key: str, findings: Sequence[str], file: str) -> Iterator[Problem]:
    """Everything that is wrong in a row of the main config of a kind of benchmark."""
    for field, rule, value in _RULES[kind_name](row, findings):
        yield Problem(file, row[key], field, rule, value)


def asked_of(kind_name: str, row: Row, findings: Sequence[str], asks: str) -> list[str]:
    """What is asked of a row, as the manifest must say."""
    if kind_name == "tasks":
        return [str(row["category"])]
    if kind_name == "findings" or asks == "all":
        return list(findings)
    drawn = {a["label"] for a in row["annotations"] if a["reader"] == GROUND_TRUTH and a["area_px"] > 0}
    return [finding for code, finding in enumerate(findings) if code in drawn]


def rating_problems(row: Row, file: str) -> Iterator[Problem]:
    """Scores of a rating that are out of range."""
    for name in CRITERIA:
        if row[name] is not None and not 1 <= row[name] <= 5:
            yield Problem(file, row["task_id"], name, "must lie in 1 to 5", str(row[name]))


def _localization(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    yield from _size(row["width"], row["height"], "size")
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


def _study(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    yield from _parallel(row, "image_ids", {"images": "images", "views": "views", "image_facts": "image_facts"})
    if not row["image_ids"]:
        yield "image_ids", "must name at least one image", "none"
    yield from _facts(row["image_facts"], row["image_ids"], "image_facts")
    if [facts["view"] for facts in row["image_facts"]] != row["views"]:
        yield "views", "must be those of `image_facts`", str(row["views"])
    vector = [int(code in row["labels"]) for code in range(len(findings))]
    if row["label_vector"] != vector:
        yield "label_vector", f"must be {vector}, as `labels` say", str(row["label_vector"])
    if row["labels"] != sorted(set(row["labels"])):
        yield "labels", "must be in order, each once", str(row["labels"])
    n_agree = row["n_agree_all"]
    if n_agree is not None and not 0 <= n_agree <= 3:
        yield "n_agree_all", "must lie in 0 to 3", str(n_agree)
    if n_agree is not None and row["agreement"] is not None and N_AGREE_ALL[row["agreement"]] != n_agree:
        yield "agreement", f"must fit `n_agree_all`, which is {n_agree}", AGREEMENTS[row["agreement"]]


def _task(row: Row, _: Sequence[str]) -> Iterator[Fault]:
    yield from _parallel(row, "image_ids", {"images": "images", "image_facts": "image_facts"})
    yield from _parallel(row, "prior_image_ids", {"prior_images": "images", "prior_image_facts": "image_facts"})
    yield from _facts(row["image_facts"], row["image_ids"], "image_facts")
    yield from _facts(row["prior_image_facts"], row["prior_image_ids"], "prior_image_facts")
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


def _size(width: int, height: int, name: str) -> Iterator[Fault]:
    if width < 1 or height < 1:
        yield name, "must be at least 1 x 1", f"{width} x {height}"


def _parallel(row: Row, ids: str, columns: dict[str, str]) -> Iterator[Fault]:
    for column in columns:
        if len(row[column] or ()) != len(row[ids]):
            rule = f"must be one per entry of `{ids}`, which has {len(row[ids])}"
            yield column, rule, str(len(row[column] or ()))
    if len(set(row[ids])) != len(row[ids]):
        yield ids, "must be unique in the row", ", ".join(row[ids])


def _facts(facts: Sequence[Any], ids: Sequence[str], name: str) -> Iterator[Fault]:
    if [entry["image_id"] for entry in facts] != list(ids):
        yield f"{name}.image_id", f"must be {', '.join(ids)}", ", ".join(str(entry["image_id"]) for entry in facts)
    for entry in facts:
        yield from _size(entry["width"], entry["height"], f"{name}[{entry['image_id']}].size")


_RULES: dict[str, Callable[[Row, Sequence[str]], Iterator[Fault]]] = {
    "localization": _localization,
    "findings": _study,
    "tasks": _task,
}
