"""Places that a baseline names as detections: the floor that a detector must beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import LocalizationPrediction, Manifest

__all__ = ["detections_of_places"]


def detections_of_places(
    places: Sequence[LocalizationPrediction], manifest: Manifest, *, shares: Mapping[str, float] | None, seed: int
) -> list[LocalizationPrediction]:
    """The box or mask of each place, of a cell its box.

    Parameters
    ----------
    places : at most one per image and finding
    shares : finding -> share of images that have it, which is the score; drawn uniformly without
    seed : of the draw
    """
    grid = Grid(manifest.grid)
    drawn = np.random.default_rng(seed).random(len(places)).round(6).tolist()
    found = []
    for place, score in zip(places, drawn, strict=True):
        size = manifest.rows[place.image_id].size
        box = place.box if place.cell is None or place.box or place.mask else grid.box(place.cell, size=size)
        own = score if shares is None else shares[place.finding]
        found.append(LocalizationPrediction(place.image_id, place.finding, box=box, mask=place.mask, score=own))
    return found
