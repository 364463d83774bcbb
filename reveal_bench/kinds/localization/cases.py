"""Images of a localization benchmark: cases for display, drawings for annotation tools, and single readers' drawings.

Single readers are the human benchmark readers, with whom models are compared, and individual readers, who are named by
their id. A reader's drawings of findings that are not asked are ignored. A finding that is asked, but that a reader did
not draw, is absent for that reader.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from reveal_bench.geometry import Grid
from reveal_bench.kinds.cases import (
    PREDICTION,
    REFERENCE,
    AnnotatedImage,
    Annotations,
    Case,
    CaseAnswer,
    CaseFilm,
    Drawing,
    Mark,
)
from reveal_bench.kinds.folder import AnyFolder, read_rows, split_shards
from reveal_bench.kinds.localization.points import points_of
from reveal_bench.kinds.localization.records import (
    Annotation,
    ImageManifest,
    LocalizationPrediction,
    LocalizationRecord,
)
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.masks import Rle, encode_mask, pack_masks, pack_regions, rasterize_polygons, union_masks
from reveal_bench.words import count_text

READER_NAMES = {
    "ground_truth": REFERENCE,
    "human_benchmark": "Benchmark readers",
    "individual": "Individual readers",
}
OVERLAPS = {"mask_iou_all": "IoU", "box_iou": "box IoU"}


def case_of_image(record: LocalizationRecord) -> Case:
    """Return an image with all drawings on it, grouped by reader."""
    marks: dict[str, list[Mark]] = {name: [] for name in READER_NAMES.values()}
    for drawn in sorted(record.annotations, key=lambda one: _counted(one.reader_id or "")):
        if drawn.area_px > 0:
            masks = (drawn.rle,) if drawn.rle else ()
            boxes = () if drawn.rle else drawn.boxes_xywh
            name = f"Reader {drawn.reader_id}" if drawn.reader_id else READER_NAMES[drawn.reader]
            marks.setdefault(name, []).append(Mark(0, drawn.finding, masks, boxes))
    for point in record.points:
        marks[READER_NAMES[point.reader]].append(Mark(0, point.finding, points=((point.x, point.y),)))
    film = CaseFilm(record.image_id, record.view, record.width, record.height, record.spacing_mm, record.spacing_source)
    drawings = {name: tuple(drawn) for name, drawn in marks.items() if drawn}
    facts = (("Present, without a reference", ", ".join(record.missing)),) if record.missing else ()
    return Case(record.image_id, (film,), tuple(record.asked("present")), drawings, facts)


def _counted(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts R2 before R10."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def answers_of_images(
    predictions: Sequence[LocalizationPrediction],
    records: Sequence[LocalizationRecord],
    rows: CaseRows,
    grid: Grid,
) -> dict[str, list[CaseAnswer]]:
    """Return image_id -> a system's answers: its drawings, with the scored point, and its hits according to `rows`."""
    sizes = {record.image_id: record.size for record in records}
    by_pair = {(one.image_id, one.finding): one for one in predictions}
    answers: dict[str, list[CaseAnswer]] = {}
    for i, (image_id, finding) in enumerate(zip(rows.image_ids, rows.case_findings, strict=True)):
        prediction = by_pair.get((image_id, finding))
        values = {name: float(column[i]) for name, column in rows.values.items()}
        hit = values.get("point_hit", math.nan)
        is_hit = None if math.isnan(hit) else hit > 0
        drawn = () if prediction is None else partial(_marks, prediction, sizes[image_id], grid)
        answers.setdefault(image_id, []).append(CaseAnswer(finding, is_hit, _words(prediction, is_hit, values), drawn))
    return answers


def _marks(prediction: LocalizationPrediction, size: tuple[int, int], grid: Grid) -> tuple[Mark]:
    boxes = [] if prediction.box is None else [prediction.box]
    if prediction.cell is not None:
        boxes.append(grid.box(prediction.cell, size=size))
    masks = () if prediction.mask is None else (prediction.mask,)
    points = tuple((float(x), float(y)) for x, y in points_of(prediction, grid=grid, size=size))
    return (Mark(0, prediction.finding, masks, tuple(boxes), points),)


def _words(prediction: LocalizationPrediction | None, is_hit: bool | None, values: Mapping[str, float]) -> str:
    """Return an outcome such as "miss, cell C4" or "hit, IoU 0.43"."""
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


def drawn_references(records: Sequence[LocalizationRecord], manifest: ImageManifest) -> Annotations:
    """Return the drawings of every reader; a reader's point is in that reader's drawing of the same finding."""
    films = {
        one.image_id: AnnotatedImage(one.image_id, one.study_id, one.patient_id, one.width, one.height, one.spacing_mm)
        for one in records
    }
    drawings: list[Drawing] = []
    for record in records:
        points: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for point in record.points:
            points[point.finding, point.reader].append((point.x, point.y))
        drawings += [
            _of_reader(record.image_id, one, tuple(points.pop((one.finding, one.reader), ())))
            for one in record.annotations
        ]
        drawings += [
            Drawing(record.image_id, finding, reader, points=tuple(of)) for (finding, reader), of in points.items()
        ]
    return Annotations(manifest.benchmark, manifest.version, manifest.split, films, manifest.findings, tuple(drawings))


def _of_reader(image_id: str, one: Annotation, points: tuple[tuple[float, float], ...]) -> Drawing:
    reader = one.reader if one.reader_id is None else f"{one.reader}:{one.reader_id}"
    return Drawing(image_id, one.finding, reader, one.rle, one.polygons, one.boxes_xywh, points)


def drawn_predictions(
    predictions: Iterable[LocalizationPrediction], records: Sequence[LocalizationRecord], manifest: ImageManifest
) -> Annotations:
    """Return a model's answers as drawings."""
    films = {
        row.image_id: AnnotatedImage(row.image_id, row.study_id, "", row.width, row.height)
        for row in manifest.rows.values()
    }
    drawings = tuple(
        Drawing(
            one.image_id,
            one.finding,
            PREDICTION,
            one.mask,
            boxes=() if one.box is None else (one.box,),
            points=one.points,
            cell=one.cell,
            score=one.score,
        )
        for one in predictions
    )
    return Annotations(manifest.benchmark, manifest.version, manifest.split, films, manifest.findings, drawings)


def predictions_of(annotations: Annotations) -> tuple[list[LocalizationPrediction], list[str]]:
    """Return (predictions, losses): one prediction per image and finding, and sentences on the losses.

    Masks and contours of several instances become their union. All points are kept. If a finding has several boxes,
    only the one with the highest score is kept, or the first of equal scores.
    """
    together: dict[tuple[str, str], list[Drawing]] = defaultdict(list)
    for drawing in annotations.drawings:
        together[drawing.image_id, drawing.finding].append(drawing)
    predictions, n_boxes = [], 0
    for (image_id, finding), drawings in together.items():
        film = annotations.films[image_id]
        best = sorted(drawings, key=lambda one: -1.0 if one.score is None else one.score, reverse=True)
        boxes = [box for one in best for box in one.boxes]
        n_boxes += len(boxes) > 1
        scores = [one.score for one in drawings if one.score is not None]
        predictions.append(
            LocalizationPrediction(
                image_id,
                finding,
                tuple(point for one in drawings for point in one.points),
                next((one.cell for one in best if one.cell is not None), None),
                boxes[0] if boxes else None,
                _union(drawings, (film.height, film.width)),
                max(scores, default=None),
            )
        )
    loss = (
        f"{count_text(n_boxes, 'finding')} with several boxes on one image: a prediction has one box, so the one "
        "with the best score was kept"
    )
    return predictions, [*([loss] if n_boxes else []), *lost_labels(annotations)]


def lost_labels(annotations: Annotations) -> list[str]:
    """Return a sentence that counts labels of studies, for which a location is no answer; [] without labels."""
    n = len(annotations.studies)
    return [f"labels of {count_text(n, 'study')}: this benchmark asks for locations"] if n else []


def _union(drawings: Sequence[Drawing], size: tuple[int, int]) -> Rle | None:
    masks = [one.mask for one in drawings if one.mask is not None]
    masks += [rasterize_polygons(one.polygons, size) for one in drawings if one.mask is None and one.polygons]
    if len(masks) < 2:
        return masks[0] if masks else None
    return union_masks(pack_masks(masks))


Drawn = Mapping[str, Annotation]
"""Finding -> its drawing."""


def drawn_readings(folder: AnyFolder, split: str, records: Sequence[LocalizationRecord]) -> dict[str, dict[str, Drawn]]:
    """Return reader -> image_id -> that reader's drawings of the findings asked; empty for images without a drawing."""
    readings: dict[str, dict[str, Drawn]] = {}
    for reader, record in images_read(folder, split, records):
        readings.setdefault(reader, {})[record.image_id] = {}
    for record in records:
        asked = set(record.asked("present"))
        for reader, drawn in drawn_by_reader(record).items():
            of_asked = {finding: one for finding, one in drawn.items() if finding in asked}
            readings.setdefault(reader, {})[record.image_id] = of_asked
    return readings


def images_read(
    folder: AnyFolder, split: str, records: Sequence[LocalizationRecord]
) -> Iterator[tuple[str, LocalizationRecord]]:
    """Yield (reader, record) for each image that a reader read, whether drawn on or not, according to the config
    `readers`.
    """
    known = {record.image_id: record for record in records}
    for shard in split_shards(folder, "readers", split):
        for row in read_rows(shard, ["image_id", "reader_id"]):
            if row["image_id"] in known:
                yield row["reader_id"], known[row["image_id"]]


def drawn_by_reader(record: LocalizationRecord) -> dict[str, dict[str, Annotation]]:
    """Return reader -> finding -> drawing by that reader; the dict is empty for a reader who drew only empty masks."""
    readings: dict[str, dict[str, Annotation]] = {}
    for one in record.annotations:
        if one.reader == "ground_truth":
            continue
        of_reader = readings.setdefault(one.reader_id or one.reader.replace("_", " "), {})
        if one.area_px > 0 and (one.rle is not None or one.boxes_xywh):
            of_reader[one.finding] = one
    return readings


def agreed_regions(record: LocalizationRecord, readings: Sequence[Drawn], at_least: int) -> Drawn:
    """Return finding -> the pixels that at least `at_least` readers drew; findings without such pixels are left out."""
    agreed = {}
    for finding in dict.fromkeys(finding for drawn in readings for finding in drawn):
        of_finding = [drawn[finding] for drawn in readings if finding in drawn]
        if len(of_finding) < at_least:
            continue
        regions = pack_regions([one.rle or one.boxes_xywh for one in of_finding], [record.size] * len(of_finding))
        votes = sum(regions.dense(i).astype(np.uint8) for i in range(len(of_finding)))
        mask = np.asarray(votes) >= at_least
        if mask.any():
            agreed[finding] = Annotation(finding, "individual", encode_mask(mask), area_px=int(mask.sum()))
    return agreed


def image_by_reading(record: LocalizationRecord, drawn: Drawn) -> LocalizationRecord:
    """Return the image with the drawings as its references."""
    references = tuple(replace(one, reader="ground_truth", reader_id=None) for one in drawn.values())
    return replace(record, annotations=references, missing=())


def predictions_of_reader(record: LocalizationRecord, drawn: Drawn) -> list[LocalizationPrediction]:
    """Return a reader's drawings as predictions, each the mask or otherwise a box around all boxes."""
    return [
        LocalizationPrediction(record.image_id, finding, mask=one.rle, box=None if one.rle else one.bbox_xywh)
        for finding, one in drawn.items()
    ]
