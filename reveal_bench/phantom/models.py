"""Make predictions of imaginary models of a chosen quality.

A prediction is either informed, which means derived from the reference, or a guess independent of the image. The
proportion of informed predictions grows with `quality`: quality 0 is chance, and 1 is near the human reader of paper
002. As with real models, a few answers are clearly wrong at any quality, and answers can be missing on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.geometry import Grid
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyRecord
from reveal_bench.kinds.localization.records import (
    Annotation,
    ImageManifest,
    LocalizationPrediction,
    LocalizationRecord,
)
from reveal_bench.masks import Rle, pack_masks, rasterize_polygons
from reveal_bench.phantom.curves import Points, blob
from reveal_bench.phantom.readers import perturb

INFORMED = 0.9
"""Proportion of informed answers at quality 1."""
WRONG = 0.02
"""Proportion of answers that are guesses at any quality."""

Kind = Literal["cell", "point", "mask", "all"]


def model_predictions(
    records: Iterable[LocalizationRecord],
    manifest: ImageManifest,
    *,
    quality: float,
    kind: Kind = "cell",
    seed: int = 0,
    missing_rate: float = 0.0,
) -> list[LocalizationPrediction]:
    """Return predictions for every question of a manifest.

    Parameters
    ----------
    records : the references of the split
    manifest : the questions
    quality : in [0, 1]
    kind : content of the predictions; "all" means cell, point, box and mask at once
    seed : seed of the random numbers; an answer depends on the seed and on the question's position in the manifest
    missing_rate : proportion of questions left unanswered, in [0, 1]

    Raises
    ------
    ValueError
        If an argument is out of range or an image of the manifest has no record.
    """
    if not (0 <= quality <= 1 and 0 <= missing_rate <= 1):
        raise ValueError(f"`quality` and `missing_rate` must be in [0, 1], got {quality} and {missing_rate}")
    if kind not in ("cell", "point", "mask", "all"):
        raise ArgumentError("kind", "must be 'cell', 'point', 'mask' or 'all'", repr(kind))
    by_id = {record.image_id: record for record in records}
    unknown = [image_id for image_id in manifest.rows if image_id not in by_id]
    if unknown:
        raise ArgumentError("records", f"must have every image of the manifest, {unknown[0]!r} is missing")
    grid = Grid(manifest.grid)
    predictions = []
    for number, (image_id, finding) in enumerate(manifest.asked_pairs(), start=1):
        rng = np.random.default_rng([seed, number])
        record = by_id[image_id]
        reference = record.reference(finding)
        if rng.random() < missing_rate:
            continue
        drawn = reference is not None and reference.area_px > 0
        informed = drawn and rng.random() < INFORMED * quality and rng.random() >= WRONG
        aim = _aim(reference) if informed and reference is not None else None
        score = float(np.clip(rng.normal(0.35 + 0.4 * quality * drawn, 0.15), 0.01, 0.99))
        predictions.append(_answer(rng, record, finding, aim, reference, grid, kind, quality, round(score, 4)))
    return predictions


def study_predictions(
    studies: Iterable[StudyRecord], labels: Sequence[str], *, quality: float, seed: int = 0
) -> list[FindingsPrediction]:
    """Return a probability for every label of every study; probabilities discriminate better with larger `quality`.

    The log odds of present labels are 4 x `quality` above those of absent labels on average, both with a standard
    deviation of 1. The AUROC is therefore near Phi(4 x quality / sqrt 2): 0.5 at quality 0 and 0.92 at quality 0.5.

    Raises
    ------
    ValueError
        If `quality` is outside [0, 1].
    """
    if not 0 <= quality <= 1:
        raise ArgumentError("quality", "must be in [0, 1]", quality)
    predictions = []
    for number, study in enumerate(studies):
        rng = np.random.default_rng([seed, number])
        present = np.array([label in study.labels for label in labels])
        odds = rng.normal(4 * quality * (present - 0.5) - 1 + quality, 1)
        probabilities = 1 / (1 + np.exp(-odds))
        values = {label: round(float(p), 4) for label, p in zip(labels, probabilities, strict=True)}
        predictions.append(FindingsPrediction(study.study_id, None, values))
    return predictions


def _aim(reference: Annotation) -> tuple[float, float]:
    """Return the point of a perfect model: the point deepest inside the mask, or the middle of the box."""
    if reference.rle is not None:
        deepest = pack_masks([reference.rle]).deepest_xy([0])[0]
        if deepest is not None:
            return float(deepest[0]), float(deepest[1])
    x, y, width, height = reference.bbox_xywh or (0.0, 0.0, 1.0, 1.0)
    return x + width / 2, y + height / 2


def _answer(
    rng: np.random.Generator,
    record: LocalizationRecord,
    finding: str,
    aim: tuple[float, float] | None,
    reference: Annotation | None,
    grid: Grid,
    kind: Kind,
    quality: float,
    score: float,
) -> LocalizationPrediction:
    height, width = record.size
    left, top, side = grid.square(record.size)
    point = aim
    if point is None:
        # rounding to two decimals must not reach the far edge
        x, y = left + side * rng.uniform(0.02, 0.98), top + side * rng.uniform(0.02, 0.98)
        point = round(min(x, width - 1), 2), round(min(y, height - 1), 2)
    cell = mask = box = None
    if kind in ("cell", "all"):
        inside = (min(max(point[0], left), left + side - 1e-6), min(max(point[1], top), top + side - 1e-6))
        cell = grid.cell_at(*inside, size=record.size)
    if kind in ("mask", "all"):
        mask, box = _mask(rng, record, point, reference if aim else None, quality)
    return LocalizationPrediction(
        image_id=record.image_id,
        finding=finding,
        points=(point,) if kind in ("point", "all") else (),
        cell=cell,
        box=box if kind == "all" else None,
        mask=mask,
        score=score,
    )


def _mask(
    rng: np.random.Generator,
    record: LocalizationRecord,
    point: tuple[float, float],
    reference: Annotation | None,
    quality: float,
) -> tuple[Rle, tuple[float, float, float, float]]:
    """Return the reference's contours, more perturbed at lower quality; without a reference, a blob at `point`."""
    height, width = record.size
    contours: list[Points]
    if reference is not None and reference.polygons:
        magnitude = 1.6 - 1.2 * quality
        contours = [perturb(rng, np.array(polygon), magnitude) for polygon in reference.polygons]
    else:
        radius = 0.12 * min(height, width) * rng.uniform(0.6, 1.6)
        radii = (radius, radius * rng.uniform(0.6, 1.4))
        if reference is not None and reference.bbox_xywh is not None:
            radii = (reference.bbox_xywh[2] / 2, reference.bbox_xywh[3] / 2)
        contours = [blob(rng, point, radii, wobble=0.1)]
    inside = [np.clip(contour, 0, (width - 1, height - 1)).tolist() for contour in contours]
    rle = rasterize_polygons(inside, record.size)
    x, y, w, h = pack_masks([rle]).boxes_xywh()[0].tolist()
    return rle, (x, y, w, h)
