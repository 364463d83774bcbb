"""Baseline predictions that a system should beat: chance, the usual location, and human readers.

* ``chance``: a random grid cell for each question, uniformly distributed (paper 000, section 4.1).
* ``location-prior``: the usual location of the finding. The location is learned from the released half: the mean mask
  of each finding, in coordinates relative to the image, gives the most probable point and a thresholded mask. The most
  probable cell is the one that would most often have been a hit. If references are boxes, the union of a case's boxes
  is used, and the answer is a box instead of a mask.
* ``human``: the masks and points of the human benchmark readers (paper 002). ``chance`` and ``location-prior`` use no
  image.

``chance`` and ``location-prior`` answer every question of a manifest; readers leave out what they did not annotate. All
baselines are scored like any other prediction file.
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
"""Number of rows and of columns of the raster, relative to the image, on which masks are averaged."""


def chance_baseline(manifest: ImageManifest, *, seed: int = 0) -> list[LocalizationPrediction]:
    """Return a random grid cell for each question of `manifest`."""
    cells = Grid(manifest.grid).cells
    pairs = manifest.asked_pairs()
    drawn = np.random.default_rng(seed).integers(0, len(cells), len(pairs))
    return [
        LocalizationPrediction(image_id, finding, cell=cells[k])
        for (image_id, finding), k in zip(pairs, drawn, strict=True)
    ]


def human_baseline(manifest: ImageManifest, records: Sequence[LocalizationRecord]) -> list[LocalizationPrediction]:
    """Return the masks and points of the benchmark readers for the questions of `manifest` that they answered.

    If contours were released without their mask, the mask is missing, as in the published code. If a reader drew boxes,
    the answer is the box around them.

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
        got = f"{manifest.split!r} of {manifest.benchmark}, which has none for its questions"
        raise ArgumentError("split", "must have masks or points of benchmark readers", got)
    return predictions


@dataclass(frozen=True)
class LocationPrior:
    """Usual location of a finding.

    Attributes
    ----------
    point : (x, y) in [0, 1), relative to width and height
    cell : grid cell
    mask : bool array (128, 128), relative raster
    n : int
        Number of references from which the location was learned; 0 if the finding has none in the released half, so
        that the references of all findings were used.
    box : [x, y, width, height], relative to width and height; None unless all references are boxes
    """

    point: tuple[float, float]
    cell: str
    mask: npt.NDArray[np.bool_]
    n: int
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Reference in the released half; `box` is the box around its boxes, relative to the image, or None for a mask."""

    region: Rle | tuple[Box, ...]
    size: tuple[int, int]
    box: Box | None


def fit_location_prior(
    records: Sequence[LocalizationRecord], findings: Sequence[str], *, grid: int = 8
) -> dict[str, LocationPrior]:
    """Learn the usual location of each finding from the reference masks or boxes of `records`.

    Returns
    -------
    dict from finding to LocationPrior; a finding without a reference gets the location learned from all findings
    together, with n = 0

    Raises
    ------
    ValueError
        If `records` contain no reference, or one for a finding that is not in `findings`.
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
                    f"must contain every finding of `records`, {annotation.finding!r} is missing",
                    None,
                    ("records",),
                )
            by_finding[annotation.finding].append(drawn)
    everything = [drawn for cells in by_finding.values() for drawn in cells]
    if not everything:
        rule = "must contain at least one reference mask or box"
        raise ValueError(f"`records` {rule}, got none in {len(records)} images")
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
    # Ties are common. Among the most probable pixels, choose the deepest; among cells with equal hits, the best covered
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
    """Return every mask sampled at the pixel centres of the relative raster: bool array (n, 128, 128).

    Masks are sampled without decoding them.
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
    """Return the mean mask thresholded at the fraction of its maximum (in steps of 0.05) with the best mean IoU."""
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
    """Return the box around the thresholded mean mask whose mean IoU with `boxes` is best; thresholds are as for the
    mask.
    """
    cuts = pack_masks([encode_mask(mean >= share * mean.max()) for share in np.arange(0.05, 1.05, 0.05)])
    candidates = cuts.boxes_xywh() / _BINS
    ious = [box_iou(np.tile(candidate, (len(boxes), 1)), boxes).mean() for candidate in candidates]
    x, y, width, height = candidates[int(np.argmax(ious))].tolist()
    return x, y, width, height


def location_prior_baseline(manifest: ImageManifest, priors: dict[str, LocationPrior]) -> list[LocalizationPrediction]:
    """Return the usual point, cell and mask (or box, if references are boxes) of the finding for every question."""
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
