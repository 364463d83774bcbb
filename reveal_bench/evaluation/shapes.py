"""Shapes of what was drawn: number of instances, size, elongation and irrectangularity (paper 002, Fig. 3 and Methods).

Conventions
-----------
There is one row per image and finding with a reference mask. Contours are those of OpenCV, of all levels and with every
boundary point; a contour's area is that of the polygon through the centres of its pixels.

* `polygons` are the contours that were drawn, which the published code counts as instances; `components` the parts of
  the mask that do not touch, which the paper's words count. The released polygons of Enlarged Cardiomediastinum hold
  the heart's too: `polygons_without_heart` counts those that are not also drawn for Cardiomegaly.
* `size` is the share of the image that the mask covers.
* The rectangle of least area around the dominant contour has sides w and h: `elongation` is the longer one over the
  shorter one, `irrectangularity` 1 less the contour's area over w h. Both are undefined where a side is 0, as of a
  line; the published code ends there.
* The dominant contour is the one with most boundary points (published), which may be that of a hole, or the one with
  the largest perimeter (the paper's words): `elongation_by_perimeter` and `irrectangularity_by_perimeter`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reveal_bench.arrays import BoolArray
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import decode_mask

__all__ = ["FEATURES", "Outline", "Shape", "outline_of", "shapes_of"]

FEATURES = ("polygons", "size", "elongation", "irrectangularity")
"""The four of the paper, as its code has them."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What one contour says: the sides of its rectangle and its area."""

    n_points: int
    perimeter: float
    area: float
    sides: tuple[float, float]

    @property
    def elongation(self) -> float:
        """The longer side over the shorter one; NaN where that is 0."""
        short, long = sorted(self.sides)
        return long / short if short > 0 else math.nan

    @property
    def irrectangularity(self) -> float:
        """Share of the rectangle that the contour leaves empty; NaN where a side is 0."""
        of_rectangle = self.sides[0] * self.sides[1]
        return 1 - self.area / of_rectangle if of_rectangle > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one finding in one image; see the module for what the fields mean."""

    image_id: str
    patient_id: str
    finding: str
    polygons: int
    polygons_without_heart: int
    components: int
    size: float
    elongation: float
    irrectangularity: float
    elongation_by_perimeter: float
    irrectangularity_by_perimeter: float


def shapes_of(records: Sequence[LocalizationRecord]) -> list[Shape]:
    """Shapes of all ground-truth masks that are not empty, in the order of the records.

    Raises
    ------
    ImportError
        Without OpenCV, which the extra [saliency] brings.
    """
    return [
        _shape(record, annotation)
        for record in records
        for annotation in record.annotations
        if annotation.reader == "ground_truth" and annotation.rle is not None and annotation.area_px > 0
    ]


def _shape(record: LocalizationRecord, annotation: Annotation) -> Shape:
    assert annotation.rle is not None
    mask = decode_mask(annotation.rle)
    x, y, width, height = (int(side) for side in annotation.bbox_xywh or (0, 0, mask.shape[1], mask.shape[0]))
    n_components, outlines = outline_of(mask[y : y + height, x : x + width])
    published = max(outlines, key=lambda one: one.n_points)  # the first of equal ones, as argmax takes it
    longest = max(outlines, key=lambda one: one.perimeter)
    heart = record.reference("Cardiomegaly") if annotation.finding == "Enlarged Cardiomediastinum" else None
    of_heart = set(heart.polygons) if heart is not None else set()
    return Shape(
        image_id=record.image_id,
        patient_id=record.patient_id,
        finding=annotation.finding,
        polygons=annotation.n_instances,
        polygons_without_heart=annotation.n_instances - sum(polygon in of_heart for polygon in annotation.polygons),
        components=n_components,
        size=annotation.area_px / mask.size,
        elongation=published.elongation,
        irrectangularity=published.irrectangularity,
        elongation_by_perimeter=longest.elongation,
        irrectangularity_by_perimeter=longest.irrectangularity,
    )


def outline_of(mask: BoolArray) -> tuple[int, list[Outline]]:
    """Number of parts of a mask that do not touch, not even at corners, and all its contours in OpenCV's order."""
    cv2 = _opencv()
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    cut = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    padded = np.pad(cut.astype(np.uint8), 1)
    n_labels, _ = cv2.connectedComponents(padded, connectivity=8)
    contours, _ = cv2.findContours(padded, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    outlines = []
    for contour in contours:
        _, sides, _ = cv2.minAreaRect(contour)
        perimeter, area = cv2.arcLength(contour, True), cv2.contourArea(contour)
        outlines.append(Outline(len(contour), float(perimeter), float(area), (float(sides[0]), float(sides[1]))))
    return n_labels - 1, outlines


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ImportError("shapes of masks need OpenCV: pip install 'reveal-bench[saliency]'") from error
    return cv2
