"""References and predictions of a localization benchmark as drawings, and drawings as predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from reveal_bench.kinds.drawings import PREDICTION, Annotations, Drawing, Film
from reveal_bench.kinds.localization.records import Annotation, LocalizationPrediction, LocalizationRecord, Manifest
from reveal_bench.masks import Rle, pack_masks, rasterize_polygons, union_masks

__all__ = ["drawn_references", "drawn_predictions", "predictions_of"]


def drawn_references(records: Sequence[LocalizationRecord], manifest: Manifest) -> Annotations:
    """What every reader drew; a reader's points stand beside the masks and boxes of the same finding."""
    films = {
        one.image_id: Film(one.image_id, one.study_id, one.patient_id, one.width, one.height, one.spacing_mm)
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


def drawn_predictions(predictions: Iterable[LocalizationPrediction], manifest: Manifest) -> Annotations:
    """What a model answered."""
    films = {
        row.image_id: Film(row.image_id, row.study_id, "", row.width, row.height) for row in manifest.rows.values()
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
    """One prediction per image and finding, and what that could not keep, in words.

    Masks and contours of several instances become their union, points stay side by side, of several boxes the one with
    the best score stays, the first among equals.
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
    told = f"{n_boxes} times several boxes of one finding on one image: a prediction has one, the best-scored was kept"
    return predictions, [told] if n_boxes else []


def _union(drawings: Sequence[Drawing], size: tuple[int, int]) -> Rle | None:
    masks = [one.mask for one in drawings if one.mask is not None]
    masks += [rasterize_polygons(one.polygons, size) for one in drawings if one.mask is None and one.polygons]
    if len(masks) < 2:
        return masks[0] if masks else None
    return union_masks(pack_masks(masks))
