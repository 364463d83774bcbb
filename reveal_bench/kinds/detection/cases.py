"""Cases for display and detector curves of detection, and conversion of drawings and locations to detections.

Detections are made from the locations that baselines give, and from the drawings of readers and annotation tools.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from reveal_bench.geometry import Grid
from reveal_bench.kinds.cases import AnnotatedImage, Annotations, CaseAnswer, Drawing, Mark
from reveal_bench.kinds.detection.scoring import DetectionRows
from reveal_bench.kinds.folder import AnyFolder
from reveal_bench.kinds.localization import cases as of_images
from reveal_bench.kinds.localization.cases import Drawn, drawn_by_reader, image_by_reading, images_read
from reveal_bench.kinds.localization.records import (
    Annotation,
    ImageManifest,
    LocalizationPrediction,
    LocalizationRecord,
)
from reveal_bench.kinds.scored import Band, Curves, SizeStratum
from reveal_bench.masks import rasterize_polygons
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.detection import FROC_RATES, froc_points, precision_recall
from reveal_bench.metrics.detection_matching import RULES
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.words import count_text

SHOWN_BY = "iou_50"
"""Rule by which a detection is shown as a hit."""


def answers_of_detections(
    predictions: Sequence[LocalizationPrediction],
    records: Sequence[LocalizationRecord],
    rows: DetectionRows,
) -> dict[str, list[CaseAnswer]]:
    """Return image -> answers: one for each finding that the system marked at its threshold or that is present.

    An answer is right if every lesion of the finding is hit, by an IoU of a half, and nothing else is marked.
    """
    hits = rows.mark_hit[RULES.index(SHOWN_BY)]
    lesions = np.zeros(rows.known.shape, np.int64)
    np.add.at(lesions, (rows.lesion_image, rows.lesion_finding), 1)
    drawn: dict[tuple[int, int], list[int]] = {}
    counts = rows.mark_score >= rows.thresholds[rows.mark_finding]
    for i in np.flatnonzero(counts).tolist():
        drawn.setdefault((int(rows.mark_image[i]), int(rows.mark_finding[i])), []).append(i)
    answers: dict[str, list[CaseAnswer]] = {}
    for image, (image_id, _) in enumerate(rows.images):
        for finding, name in enumerate(rows.findings):
            marked, n = drawn.get((image, finding), []), int(lesions[image, finding])
            if not marked and not n:
                continue
            n_hit = int((hits[marked] >= 0).sum())
            n_false = len(marked) - n_hit
            is_known = bool(rows.known[image, finding])
            is_right = (n_hit == n and not n_false) if is_known else None
            words = _words(n, n_hit, n_false) if is_known else f"not judged, {len(marked)} marked"
            marks = tuple(_mark(predictions[rows.place_of[i]]) for i in marked)
            answers.setdefault(image_id, []).append(CaseAnswer(name, is_right, words, marks))
    return answers


def _mark(one: LocalizationPrediction) -> Mark:
    boxes = () if one.box is None else (one.box,)
    return Mark(0, one.finding, () if one.mask is None else (one.mask,), boxes, one.points)


def _words(n: int, n_hit: int, n_false: int) -> str:
    """Return a summary such as "1 of 2 found, 3 false alarms"."""
    hits = f"{n_hit} of {n} found" if n else "absent"
    return f"{hits}, {count_text(n_false, 'false alarm')}" if n_false else hits


def curves_of_detections(rows: DetectionRows, resampling: Resampling) -> Curves:
    """Return curves of the findings that have a lesion, with the same kind of interval as scores."""
    matched = {finding: rows.matched(finding) for finding in rows.findings}
    findings = [finding for finding, one in matched.items() if one.n_lesions]
    estimates = rows.estimates(resampling.by("shifted"), groups=findings) if findings else []
    by_name = {(one.metric, one.finding): one for one in estimates}
    names = (MACRO, *findings) if findings else ()
    bands = [Band(name, rate, by_name[metric, name]) for name in names for metric, rate in FROC_RATES.items()]
    sizes = []
    for name in rows.strata():
        kind, _, size = name.partition(": ")
        if kind == "size":
            shifted, only = resampling.by("shifted"), ["lesion_sensitivity"]
            of_size = rows.estimates(shifted, stratum=name, groups=findings, metrics=only)
            sizes += [SizeStratum(one.finding, size, one.n, one) for one in of_size if one.n and one.finding != MACRO]
    thresholds = set(rows.thresholds.tolist())
    return Curves(
        {finding: froc_points(matched[finding]) for finding in findings},
        bands,
        {finding: precision_recall(matched[finding], "iou_50") for finding in findings},
        {name: by_name["ap_50", name].value for name in names if ("ap_50", name) in by_name},
        sorted(sizes, key=lambda one: findings.index(one.finding)),
        thresholds.pop() if len(thresholds) == 1 else math.nan,
        [finding for finding in rows.findings if finding not in findings],
    )


def drawn_instances(records: Sequence[LocalizationRecord], manifest: ImageManifest) -> Annotations:
    """Return a drawing of each lesion by each reader; masks of several lesions are left out and counted."""
    by_finding = of_images.drawn_references(records, manifest)
    drawings = [lesion for one in by_finding.drawings for lesion in _lesions(one, by_finding.films[one.image_id])]
    n_united = sum(one.mask is not None and _is_united(one) for one in by_finding.drawings)
    notes = (f"{count_text(n_united, 'mask')} of several lesions: only their boxes are exported",) if n_united else ()
    return replace(by_finding, drawings=tuple(drawings), by_instance=True, notes=notes)


def _is_united(drawing: Drawing) -> bool:
    """Return True if a drawing has several boxes, but not one contour for each."""
    return len(drawing.boxes) > 1 and len(drawing.polygons) != len(drawing.boxes)


def _lesions(drawing: Drawing, film: AnnotatedImage) -> Iterator[Drawing]:
    """Yield a drawing for each box, with its contour and the mask within; points stay with the first box."""
    if len(drawing.boxes) < 2:
        yield drawing
        return
    for i, box in enumerate(drawing.boxes):
        contours = () if _is_united(drawing) else drawing.polygons[i : i + 1]
        mask = rasterize_polygons(contours, (film.height, film.width)) if contours and drawing.mask else None
        yield replace(drawing, mask=mask, polygons=contours, boxes=(box,), points=drawing.points if i == 0 else ())


def detected_readings(
    folder: AnyFolder, split: str, records: Sequence[LocalizationRecord]
) -> dict[str, dict[str, Drawn]]:
    """Return reader -> image -> finding -> annotation by that reader.

    On an image that the reader is known to have read, a finding without a drawing gets an empty annotation, which means
    absent. On other images, findings without a drawing are unknown.
    """
    readings: dict[str, dict[str, Drawn]] = {}
    for record in records:
        for reader, drawn in drawn_by_reader(record).items():
            readings.setdefault(reader, {})[record.image_id] = drawn
    for reader, record in images_read(folder, split, records):
        read = {finding for finding, status in record.label_status.items() if status is not None}
        read |= {one.finding for one in record.annotations}
        absent = {finding: Annotation(finding, "individual", None) for finding in sorted(read)}
        of_reader = readings.setdefault(reader, {})
        of_reader[record.image_id] = absent | dict(of_reader.get(record.image_id, {}))
    return readings


def detected_by_reading(record: LocalizationRecord, drawn: Drawn) -> LocalizationRecord:
    """Return the image with the drawings as its references; findings neither drawn nor absent become unknown."""
    status = {finding: 0 if label == 0 else None for finding, label in record.label_status.items()}
    status |= {finding: int(one.area_px > 0) for finding, one in drawn.items()}
    lesions = {finding: one for finding, one in drawn.items() if one.area_px > 0}
    return replace(image_by_reading(record, lesions), label_status=status)


def detections_of_reader(record: LocalizationRecord, drawn: Drawn) -> list[LocalizationPrediction]:
    """Return a detection with the score 1 for each box, or for the mask if a reader drew only a mask."""
    detections = []
    for finding, one in drawn.items():
        detections += [LocalizationPrediction(record.image_id, finding, box=box, score=1.0) for box in one.boxes_xywh]
        if not one.boxes_xywh and one.rle is not None:
            detections.append(LocalizationPrediction(record.image_id, finding, mask=one.rle, score=1.0))
    return detections


def detections_of(annotations: Annotations) -> tuple[list[LocalizationPrediction], list[str]]:
    """Return (detections, losses): a detection for each box, mask or point drawn, and sentences on the losses.

    A drawing without a score gets the score 1. A mask of several boxes is left out, because it is no single lesion.
    """
    detections = [one for drawing in annotations.drawings for one in _detections(drawing, annotations)]
    n_united = sum(len(drawing.boxes) > 1 and drawing.mask is not None for drawing in annotations.drawings)
    n_cells = sum(drawing.cell is not None for drawing in annotations.drawings)
    n_unsure = sum(drawing.score is None for drawing in annotations.drawings)
    losses = [f"{n_cells} cells: a detection is a box, a mask or a point"] if n_cells else []
    losses += [f"{count_text(n_unsure, 'drawing')} without a score: each got 1"] if n_unsure else []
    losses += [f"{count_text(n_united, 'mask')} of several boxes: each box is a detection"] if n_united else []
    losses += of_images.lost_labels(annotations)
    return detections, losses


def _detections(drawing: Drawing, annotations: Annotations) -> Iterator[LocalizationPrediction]:
    score = 1.0 if drawing.score is None else drawing.score
    film = annotations.films[drawing.image_id]
    mask = drawing.mask
    if mask is None and drawing.polygons:
        mask = rasterize_polygons(drawing.polygons, (film.height, film.width))
    if mask is not None and len(drawing.boxes) < 2:
        box = drawing.boxes[0] if drawing.boxes else None
        yield LocalizationPrediction(drawing.image_id, drawing.finding, box=box, mask=mask, score=score)
    else:
        for box in drawing.boxes:
            yield LocalizationPrediction(drawing.image_id, drawing.finding, box=box, score=score)
    if mask is None and not drawing.boxes:
        for point in drawing.points:
            yield LocalizationPrediction(drawing.image_id, drawing.finding, points=(point,), score=score)


def detections_of_places(
    places: Sequence[LocalizationPrediction], manifest: ImageManifest, *, shares: Mapping[str, float] | None, seed: int
) -> list[LocalizationPrediction]:
    """Return a detection for each location: its box or mask, or the box of its cell.

    Parameters
    ----------
    places : locations, at most one per image and finding
    shares : finding -> proportion of images that have it, used as the score; None for uniformly random scores
    seed : seed of the random scores
    """
    grid = Grid(manifest.grid)
    drawn = np.random.default_rng(seed).random(len(places)).round(6).tolist()
    detections = []
    for place, score in zip(places, drawn, strict=True):
        size = manifest.rows[place.image_id].size
        box = place.box if place.cell is None or place.box or place.mask else grid.box(place.cell, size=size)
        own = score if shares is None else shares[place.finding]
        detections.append(LocalizationPrediction(place.image_id, place.finding, box=box, mask=place.mask, score=own))
    return detections
