"""Drawings as detections: each by itself, none joined to another."""

from __future__ import annotations

from collections.abc import Iterator

from reveal_bench.kinds.drawings import Annotations, Drawing
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.masks import rasterize_polygons

__all__ = ["detections_of"]


def detections_of(annotations: Annotations) -> tuple[list[LocalizationPrediction], list[str]]:
    """A detection for each box, mask and point that was drawn; without a score it gets 1, which is told."""
    found = [one for drawing in annotations.drawings for one in _detections(drawing, annotations)]
    n_cells = sum(drawing.cell is not None for drawing in annotations.drawings)
    n_unsure = sum(drawing.score is None for drawing in annotations.drawings)
    told = [f"{n_cells} cells: a detection is a box, a mask or a point"] if n_cells else []
    told += [f"{n_unsure} drawings say no score: each got 1"] if n_unsure else []
    return found, told


def _detections(drawing: Drawing, annotations: Annotations) -> Iterator[LocalizationPrediction]:
    score = 1.0 if drawing.score is None else drawing.score
    film = annotations.films[drawing.image_id]
    mask = drawing.mask
    if mask is None and drawing.polygons:
        mask = rasterize_polygons(drawing.polygons, (film.height, film.width))
    if mask is not None:
        box = drawing.boxes[0] if len(drawing.boxes) == 1 else None
        yield LocalizationPrediction(drawing.image_id, drawing.finding, box=box, mask=mask, score=score)
    else:
        for box in drawing.boxes:
            yield LocalizationPrediction(drawing.image_id, drawing.finding, box=box, score=score)
    if mask is None and not drawing.boxes:
        for point in drawing.points:
            yield LocalizationPrediction(drawing.image_id, drawing.finding, points=(point,), score=score)
