"""Baselines that see no image: what a score means is measured against them.

* ``chance``: a uniformly drawn grid cell per question (paper 000, section 4.1).
* ``location-prior``: where the finding usually is. From the released half, the mean mask of each finding in coordinates
  relative to the image gives its most probable point and a thresholded mask; its most probable cell is the one that
  would most often have been a hit.

Both answer every question of a manifest and are scored like any other prediction file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reveal_bench.geometry import Grid
from reveal_bench.masks import PackedMasks, Rle, encode_mask, pack_masks
from reveal_bench.metrics.localization import cell_coverage, hit_cells
from reveal_bench.records import LocalizationPrediction, LocalizationRecord, Manifest

__all__ = ["LocationPrior", "chance_baseline", "fit_location_prior", "location_prior_baseline"]

_BINS = 128
"""Side of the raster, relative to the image, on which masks are averaged."""

FloatArray = npt.NDArray[np.float64]


def chance_baseline(manifest: Manifest, *, seed: int = 0) -> list[LocalizationPrediction]:
    """One uniformly drawn cell per question of `manifest`."""
    cells = Grid(manifest.grid).cells
    pairs = manifest.asked_pairs()
    drawn = np.random.default_rng(seed).integers(0, len(cells), len(pairs))
    return [
        LocalizationPrediction(image_id, finding, cell=cells[k])
        for (image_id, finding), k in zip(pairs, drawn, strict=True)
    ]


@dataclass(frozen=True)
class LocationPrior:
    """Where a finding usually is.

    Attributes
    ----------
    point : (x, y) in [0, 1), relative to width and height
    cell : grid cell
    mask : bool array (128, 128), relative raster
    n : int
        Masks it was learnt from; 0 when the released half has none of this finding and all findings were pooled.
    """

    point: tuple[float, float]
    cell: str
    mask: npt.NDArray[np.bool_]
    n: int


def fit_location_prior(
    records: Sequence[LocalizationRecord], findings: Sequence[str], *, grid: int = 8
) -> dict[str, LocationPrior]:
    """Learn the prior of each finding from the ground-truth masks of `records`.

    Returns
    -------
    dict from finding to LocationPrior; a finding without any mask gets the prior of all findings pooled, with n = 0

    Raises
    ------
    ValueError
        If `records` hold no mask at all, or one of a finding that is not in `findings`.
    """
    by_finding: dict[str, list[Rle]] = {finding: [] for finding in findings}
    for record in records:
        for annotation in record.annotations:
            if annotation.reader == "ground_truth" and annotation.rle and annotation.area_px:
                if annotation.finding not in by_finding:
                    raise ValueError(
                        f"`findings` must hold every finding of `records`, {annotation.finding!r} is missing"
                    )
                by_finding[annotation.finding].append(annotation.rle)
    everything = [rle for rles in by_finding.values() for rle in rles]
    if not everything:
        raise ValueError(f"`records` must hold at least one ground-truth mask, got none in {len(records)} images")
    pooled = None
    priors = {}
    for finding, rles in by_finding.items():
        if rles:
            priors[finding] = _fit(pack_masks(rles), Grid(grid))
        else:
            pooled = pooled or replace(_fit(pack_masks(everything), Grid(grid)), n=0)
            priors[finding] = pooled
    return priors


def _fit(masks: PackedMasks, grid: Grid) -> LocationPrior:
    rasters = _relative_rasters(masks)
    mean = rasters.mean(axis=0)
    # Ties are common: of the most probable pixels the one deepest among them, of equal cells the one best covered
    column, row = pack_masks([encode_mask(mean == mean.max())]).deepest_xy([0])[0].tolist()
    point = ((column + 0.5) / _BINS, (row + 0.5) / _BINS)
    hits = hit_cells(masks, grid).mean(axis=0)
    covered = np.sum([cell_coverage(masks, i, grid) / masks.sizes[i].min() ** 2 for i in range(len(masks))], axis=0)
    best = np.lexsort((-covered.ravel(), -hits.ravel()))[0]
    cell_row, cell_column = divmod(int(best), grid.n)
    return LocationPrior(point, grid.name(cell_column, cell_row), _best_mask(mean, rasters), len(masks))


def _relative_rasters(masks: PackedMasks) -> npt.NDArray[np.bool_]:
    """Every mask sampled at the centres of the relative raster's pixels, shape (n, 128, 128), without decoding it."""
    from reveal_bench import kernels

    centres = (np.arange(_BINS) + 0.5) / _BINS
    rasters = np.zeros((len(masks), _BINS, _BINS), bool)
    for i, (height, width) in enumerate(masks.sizes.tolist()):
        rows, columns = (centres * height).astype(np.int64), (centres * width).astype(np.int64)
        positions = (columns[None, :] * height + rows[:, None]).ravel()
        which = np.full(positions.size, i)
        rasters[i] = kernels.contains(masks.ends, masks.offsets, which, positions).reshape(_BINS, _BINS)
    return rasters


def _best_mask(mean: FloatArray, rasters: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The mean mask cut at the share (of its maximum, in steps of 0.05) that has the best mean IoU on the rasters."""
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


def location_prior_baseline(manifest: Manifest, priors: dict[str, LocationPrior]) -> list[LocalizationPrediction]:
    """Point, cell and mask of the prior for every question of `manifest`."""
    masks: dict[tuple[str, tuple[int, int]], Rle] = {}
    predictions = []
    for image_id, finding in manifest.asked_pairs():
        size = manifest.rows[image_id].size
        prior = priors[finding]
        if (finding, size) not in masks:
            masks[finding, size] = _at_size(prior.mask, size)
        point = (prior.point[0] * size[1], prior.point[1] * size[0])
        predictions.append(
            LocalizationPrediction(image_id, finding, points=(point,), cell=prior.cell, mask=masks[finding, size])
        )
    return predictions


def _at_size(mask: npt.NDArray[np.bool_], size: tuple[int, int]) -> Rle:
    height, width = size
    rows = ((np.arange(height) + 0.5) / height * _BINS).astype(np.int64)
    columns = ((np.arange(width) + 0.5) / width * _BINS).astype(np.int64)
    return encode_mask(mask[np.ix_(rows, columns)])
