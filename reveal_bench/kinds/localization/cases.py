"""Images of a localization benchmark as cases that are shown: what readers drew, where systems pointed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from reveal_bench.geometry import Grid
from reveal_bench.kinds.cases import REFERENCE, Case, CaseAnswer, CaseFilm, Mark
from reveal_bench.kinds.localization.points import points_of
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.scoring import CaseRows

__all__ = ["answers_of_images", "case_of_image"]

READER_NAMES = {
    "ground_truth": REFERENCE,
    "human_benchmark": "Benchmark readers",
    "individual": "Individual readers",
}
OVERLAPS = {"mask_iou_all": "IoU", "box_iou": "box IoU"}


def case_of_image(record: LocalizationRecord) -> Case:
    """An image with everything that was drawn on it."""
    marks: dict[str, list[Mark]] = {name: [] for name in READER_NAMES.values()}
    for drawn in record.annotations:
        if drawn.area_px > 0:
            masks = (drawn.rle,) if drawn.rle else ()
            boxes = () if drawn.rle else drawn.boxes_xywh
            marks[READER_NAMES[drawn.reader]].append(Mark(0, drawn.finding, masks, boxes))
    for point in record.points:
        marks[READER_NAMES[point.reader]].append(Mark(0, point.finding, points=((point.x, point.y),)))
    film = CaseFilm(record.image_id, record.view, record.width, record.height)
    shown = {name: tuple(drawn) for name, drawn in marks.items() if drawn}
    told = (("Present, but not drawn", ", ".join(record.missing)),) if record.missing else ()
    return Case(record.image_id, (film,), tuple(record.asked("present")), shown, told)


def answers_of_images(
    predictions: Sequence[LocalizationPrediction], rows: CaseRows, sizes: Mapping[str, tuple[int, int]], grid: Grid
) -> dict[str, list[CaseAnswer]]:
    """What a system answered, by image: its marks, with the point that was scored, and its hits of `rows`."""
    given = {(one.image_id, one.finding): one for one in predictions}
    answers: dict[str, list[CaseAnswer]] = {}
    for i, (image_id, finding) in enumerate(zip(rows.image_ids, rows.case_findings, strict=True)):
        prediction = given.get((image_id, finding))
        values = {name: float(column[i]) for name, column in rows.values.items()}
        hit = values.get("point_hit", math.nan)
        is_hit = None if math.isnan(hit) else hit > 0
        marks = () if prediction is None else (_mark(prediction, sizes[image_id], grid),)
        answers.setdefault(image_id, []).append(CaseAnswer(finding, is_hit, _words(prediction, is_hit, values), marks))
    return answers


def _mark(prediction: LocalizationPrediction, size: tuple[int, int], grid: Grid) -> Mark:
    boxes = [] if prediction.box is None else [prediction.box]
    if prediction.cell is not None:
        boxes.append(grid.box(prediction.cell, size=size))
    masks = () if prediction.mask is None else (prediction.mask,)
    points = tuple((float(x), float(y)) for x, y in points_of(prediction, grid=grid, size=size))
    return Mark(0, prediction.finding, masks, tuple(boxes), points)


def _words(prediction: LocalizationPrediction | None, is_hit: bool | None, values: Mapping[str, float]) -> str:
    """Such as "miss, cell C4" and "hit, IoU 0.43"."""
    if prediction is None:
        return "no answer"
    words = ["not judged" if is_hit is None else "hit" if is_hit else "miss"]
    if prediction.cell is not None:
        words.append(f"cell {prediction.cell}")
    for metric, title in OVERLAPS.items():
        is_given = prediction.mask if metric == "mask_iou_all" else prediction.box
        if is_given is not None and not math.isnan(values.get(metric, math.nan)):
            words.append(f"{title} {values[metric]:.2f}")
    return ", ".join(words)
