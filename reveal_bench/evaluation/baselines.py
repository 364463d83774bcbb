"""Baselines, for comparison with scores.

* ``chance``: a uniformly drawn grid cell per question (paper 000, section 4.1).
* ``location-prior``: the usual position of the finding. On the released half, the mean mask of each finding in
  coordinates relative to the image gives its most probable point and a thresholded mask; its most probable cell is the
  cell that would most often have been a hit. Box references count by their union, and lead to a box instead of a mask.
* ``human``: masks and points of the readers of the human benchmark (paper 002). The other baselines see no image.

Chance and prior answer every question of a manifest; readers leave out what they did not annotate. All are scored like
any other prediction file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import (
    Annotation,
    ImageManifest,
    LocalizationPrediction,
    LocalizationRecord,
)
from reveal_bench.masks import Box, PackedMasks, Rle, encode_mask, pack_masks, pack_regions
from reveal_bench.metrics.localization import box_iou, cell_coverage, hit_cells

_BINS = 128
"""Side of the raster, relative to the image, on which masks are averaged."""


def chance_baseline(manifest: ImageManifest, *, seed: int = 0) -> list[LocalizationPrediction]:
    """Return one uniformly drawn cell per question of `manifest`."""
    cells = Grid(manifest.grid).cells
    pairs = manifest.asked_pairs()
    drawn = np.random.default_rng(seed).integers(0, len(cells), len(pairs))
    return [
        LocalizationPrediction(image_id, finding, cell=cells[k])
        for (image_id, finding), k in zip(pairs, drawn, strict=True)
    ]


def human_baseline(manifest: ImageManifest, records: Sequence[LocalizationRecord]) -> list[LocalizationPrediction]:
    """Return mask and points of the benchmark readers, for the questions of `manifest` that they answered.

    If contours are released without their mask, the mask is missing, as in the published code. The answer of readers
    who drew boxes is the box around these.

    Raises
    ------
    ValueError
        If the readers answered no question.
    """
    by_image = {record.image_id: record for record in records}
    predictions = []
    for image_id, finding in manifest.asked_pairs():
        record = by_image[image_id]
        drawn = record.reference(finding, "human_benchmark")
        points = tuple((p.x, p.y) for p in record.points if (p.finding, p.reader) == (finding, "human_benchmark"))
        mask = drawn.rle if drawn is not None else None
        box = drawn.bbox_xywh if drawn is not None and drawn.boxes_xywh else None
        if points or mask is not None or box is not None:
            predictions.append(LocalizationPrediction(image_id, finding, points=points, mask=mask, box=box))
    if not predictions:
        got = f"{manifest.split!r} of {manifest.benchmark}, which has none for what it asks"
        raise ArgumentError("split", "must have masks or points of benchmark readers", got)
    return predictions


@dataclass(frozen=True)
class LocationPrior:
    """Usual position of a finding.

    Attributes
    ----------
    point : (x, y) in [0, 1), relative to width and height
    cell : grid cell
    mask : bool array (128, 128), relative raster
    n : int
        Number of references that it was learnt from; 0 if the released half has none for this finding, so that all
        findings were pooled.
    box : [x, y, width, height], relative to width and height; None unless all references are boxes
    """

    point: tuple[float, float]
    cell: str
    mask: npt.NDArray[np.bool_]
    n: int
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Reference in the released half; `box` surrounds its boxes, relative to the image, None for a mask."""

    region: Rle | tuple[Box, ...]
    size: tuple[int, int]
    box: Box | None


def fit_location_prior(
    records: Sequence[LocalizationRecord], findings: Sequence[str], *, grid: int = 8
) -> dict[str, LocationPrior]:
    """Learn the prior of each finding from the ground-truth masks, or boxes, of `records`.

    Returns
    -------
    dict from finding to LocationPrior; a finding without a reference gets the prior of all findings pooled, with n = 0

    Raises
    ------
    ValueError
        If `records` have no reference, or a reference for a finding that is not in `findings`.
    """
    by_finding: dict[str, list[_Drawn]] = {finding: [] for finding in findings}
    for record in records:
        for annotation in record.annotations:
            drawn = _drawn(record, annotation)
            if drawn is None:
                continue
            if annotation.finding not in by_finding:
                raise ArgumentError(
                    "findings",
                    f"must hold every finding of `records`, {annotation.finding!r} is missing",
                    None,
                    ("records",),
                )
            by_finding[annotation.finding].append(drawn)
    everything = [drawn for cells in by_finding.values() for drawn in cells]
    if not everything:
        rule = "must hold at least one ground-truth mask"
        raise ValueError(f"`records` {rule}, got none in {len(records)} images (boxes count too)")
    pooled = None
    priors = {}
    for finding, cells in by_finding.items():
        if cells:
            priors[finding] = _fit(cells, Grid(grid))
        else:
            pooled = pooled or replace(_fit(everything, Grid(grid)), n=0)
            priors[finding] = pooled
    return priors


def _drawn(record: LocalizationRecord, annotation: Annotation) -> _Drawn | None:
    if annotation.reader != "ground_truth" or not annotation.area_px:
        return None
    if annotation.rle is not None:
        return _Drawn(annotation.rle, record.size, None)
    if annotation.bbox_xywh is None:
        return None
    x, y, width, height = annotation.bbox_xywh
    relative = (x / record.width, y / record.height, width / record.width, height / record.height)
    return _Drawn(annotation.boxes_xywh, record.size, relative)


def _fit(cells: Sequence[_Drawn], grid: Grid) -> LocationPrior:
    masks = pack_regions([drawn.region for drawn in cells], [drawn.size for drawn in cells])
    rasters = _relative_rasters(masks)
    mean = rasters.mean(axis=0)
    # Ties are common: of the most probable pixels the one deepest among them, of equal cells the one best covered
    column, row = pack_masks([encode_mask(mean == mean.max())]).deepest_xy([0])[0].tolist()
    point = ((column + 0.5) / _BINS, (row + 0.5) / _BINS)
    hits = hit_cells(masks, grid).mean(axis=0)
    covered = np.sum([cell_coverage(masks, i, grid) / masks.sizes[i].min() ** 2 for i in range(len(masks))], axis=0)
    best = np.lexsort((-covered.ravel(), -hits.ravel()))[0]
    cell_row, cell_column = divmod(int(best), grid.n)
    boxes = [drawn.box for drawn in cells if drawn.box is not None]
    box = _best_box(mean, boxes) if len(boxes) == len(cells) else None
    return LocationPrior(point, grid.name(cell_column, cell_row), _best_mask(mean, rasters), len(masks), box)


def _relative_rasters(masks: PackedMasks) -> npt.NDArray[np.bool_]:
    """Return every mask sampled at the centres of the relative raster's pixels, shape (n, 128, 128), without decoding
    it.
    """
    from reveal_bench.masks import kernels

    centres = (np.arange(_BINS) + 0.5) / _BINS
    rasters = np.zeros((len(masks), _BINS, _BINS), bool)
    for i, (height, width) in enumerate(masks.sizes.tolist()):
        rows, columns = (centres * height).astype(np.int64), (centres * width).astype(np.int64)
        positions = (columns[None, :] * height + rows[:, None]).ravel()
        which = np.full(positions.size, i)
        rasters[i] = kernels.contains(masks.ends, masks.offsets, which, positions).reshape(_BINS, _BINS)
    return rasters


def _best_mask(mean: FloatArray, rasters: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mean mask cut at the fraction of its maximum (in steps of 0.05) with the best mean IoU."""
    best: npt.NDArray[np.bool_] = mean >= mean.max()
    best_iou = -1.0
    flat = rasters.reshape(len(rasters), -1).astype(np.float64)
    areas = flat.sum(axis=1)
    for share in np.arange(0.05, 1.0, 0.05):
        candidate = mean >= share * mean.max()
        common = flat @ candidate.ravel()
        iou = float((common / np.maximum(areas + candidate.sum() - common, 1)).mean())
        if iou > best_iou:
            best, best_iou = candidate, iou
    return best


def _best_box(mean: FloatArray, boxes: Sequence[Box]) -> Box:
    """Return the box around the mean mask, over the same cuts, with the best mean IoU with `boxes`."""
    cuts = pack_masks([encode_mask(mean >= share * mean.max()) for share in np.arange(0.05, 1.05, 0.05)])
    candidates = cuts.boxes_xywh() / _BINS
    ious = [box_iou(np.tile(candidate, (len(boxes), 1)), boxes).mean() for candidate in candidates]
    x, y, width, height = candidates[int(np.argmax(ious))].tolist()
    return x, y, width, height


def location_prior_baseline(manifest: ImageManifest, priors: dict[str, LocationPrior]) -> list[LocalizationPrediction]:
    """Return point, cell and mask (a box if references are boxes) of the prior for every question."""
    masks: dict[tuple[str, tuple[int, int]], Rle] = {}
    predictions = []
    for image_id, finding in manifest.asked_pairs():
        size = manifest.rows[image_id].size
        prior = priors[finding]
        height, width = size
        point = (prior.point[0] * width, prior.point[1] * height)
        prediction = LocalizationPrediction(image_id, finding, points=(point,), cell=prior.cell)
        if prior.box is not None:
            x, y, box_width, box_height = prior.box
            prediction = replace(prediction, box=(x * width, y * height, box_width * width, box_height * height))
        else:
            if (finding, size) not in masks:
                masks[finding, size] = _at_size(prior.mask, size)
            prediction = replace(prediction, mask=masks[finding, size])
        predictions.append(prediction)
    return predictions


def _at_size(mask: npt.NDArray[np.bool_], size: tuple[int, int]) -> Rle:
    height, width = size
    rows = ((np.arange(height) + 0.5) / height * _BINS).astype(np.int64)
    columns = ((np.arange(width) + 0.5) / width * _BINS).astype(np.int64)
    return encode_mask(mask[np.ix_(rows, columns)])
