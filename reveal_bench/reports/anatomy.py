"""Decide whether a finding is anatomically plausible in a grid cell, from contours of lungs, heart and mediastinum.

Conventions
-----------
An anatomy file is JSON Lines, one image per line: ``{"image_id": ..., "size": [height, width], "regions": {"lung_left":
[[x, y], ...], ...}}``. Contours are closed, in pixels of the full-size image (:mod:`reveal_bench.geometry`), and may
extend beyond it; a region may also be a list of contours, meaning their union. Names are in :data:`REGIONS`; left and
right are the patient's. The contour of a lung covers the whole pleural space, down to the costophrenic angles,
including fluid or a collapsed lung. Contours that omit these regions turn other errors into anatomy errors.

In paper 000 (section 3.4) a radiologist decides whether a cell is plausible. Figure 5 of paper 000 shows anatomy
errors: a consolidation located over the heart and mediastinum, and a pneumothorax at the shoulder. On a frontal image,
lungs therefore exclude the area of heart and mediastinum if the file has their contours. The paper does not define
:data:`PLAUSIBLE`; it is this project's choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.findings import hint
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import Point, Polygons
from reveal_bench.masks import MAX_PIXELS, pack_masks, rasterize_polygons
from reveal_bench.metrics.localization import cell_coverage

REGIONS = (
    "body", "heart", "lung", "lung_left", "lung_right", "mediastinum", "shoulder_left", "shoulder_right", "trachea",
)  # fmt: skip
"""Names of regions; "lung" is the single outline of both lungs on a lateral image."""

_LUNGS, _HEART, _BOTH, _BODY = ("lungs",), ("heart",), ("heart", "mediastinum"), ("body",)
_IN_THE_LUNGS = (
    "Airspace Opacity", "Alveolar pattern", "Atelectasis", "Bronchiectasis", "Consolidation", "Diffuse Nodule", "Edema",
    "Emphysema", "Fibrosis", "Fissure thickening", "Hyperinflation", "ILD", "Infiltrates", "Infiltration",
    "Interstitial pattern", "Lung Lesion", "Lung Opacity", "Lung cavity", "Lung cyst", "Nodule", "Nodule/Mass",
    "Pneumonia", "Pulmonary fibrosis", "Volume loss",
)  # fmt: skip
_IN_THE_PLEURA = (
    "Costophrenic angle blunting", "Effusion", "Pleural Effusion", "Pleural Thickening", "Pleural effusion",
    "Pleural thickening", "Pneumothorax",
)  # fmt: skip
PLAUSIBLE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*_IN_THE_LUNGS, *_IN_THE_PLEURA), _LUNGS),
    "Cardiomegaly": _HEART,
    "Artificial heart valve": _HEART,
    "Enlarged Cardiomediastinum": _BOTH,
    **dict.fromkeys(("Aortic elongation", "Aortic enlargement"), _BOTH),
    "Mediastinal enlargement": ("mediastinum",),
    "Support Devices": _BODY,
}
"""Finding -> structures in which the finding is plausible: lungs (with the pleura), heart, mediastinum or body.

Devices may be anywhere in or on the body. Findings that are not listed ("Mass", "Calcification", fractures) occur in
more structures than contours usually cover. Misses of these findings are not classified automatically.
"""

MIN_SHARE = 0.05
"""Minimum proportion of a cell inside a plausible structure that makes the cell plausible.

Paper 000 requires overlap, but states no minimum. Contours are inexact: on a 256-pixel image with 8 x 8 cells, a
contour displaced by 1.6 pixels along one side of a cell adds 5% of the cell.
"""


_FILLED_AT = 1024


@dataclass(frozen=True, slots=True)
class Regions:
    """The anatomy of one image: its `size` (height, width) and the `contours` of each region, in full-image pixels."""

    size: tuple[int, int]
    contours: Mapping[str, Polygons]
    _known: dict[tuple[tuple[str, ...], int], FloatArray | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    def structure(self, name: str) -> Polygons | None:
        """Return the contours of a structure named in :data:`PLAUSIBLE`; None if the file lacks any of its contours."""
        if name != "lungs":
            return self.contours.get(name)
        sides = [self.contours.get("lung_right"), self.contours.get("lung_left")]
        if None in sides:
            return self.contours.get("lung")
        return tuple(contour for side in sides for contour in side or ())


def plausible_shares(regions: Regions, structures: tuple[str, ...], grid: Grid) -> FloatArray | None:
    """Return the proportion of each grid cell inside any of `structures`, counted in pixels.

    Images with a longer short side are reduced to 1,024 pixels, which moves an edge by at most a thousandth of the
    side. `regions` caches the result for the next models.

    Parameters
    ----------
    regions : anatomy of the image
    structures : one of the values of :data:`PLAUSIBLE`
    grid : Grid

    Returns
    -------
    float array (n rows, n columns) in [0, 1], or None if the anatomy lacks a structure
    """
    if (structures, grid.n) not in regions._known:
        regions._known[structures, grid.n] = _shares(regions, structures, grid)
    return regions._known[structures, grid.n]


def _shares(regions: Regions, structures: tuple[str, ...], grid: Grid) -> FloatArray | None:
    outlines = [regions.structure(name) for name in structures]
    if None in outlines:
        return None
    inside = [contour for contours in outlines for contour in contours or ()]
    # Heart and mediastinum are subtracted from the lungs as a difference of two unions, without rounding. On a lateral
    # image, where lung is on both sides of the heart, nothing is subtracted.
    is_covered = structures == _LUNGS and "lung_right" in regions.contours
    covering = [contour for name in _BOTH for contour in regions.contours.get(name, ())] if is_covered else []
    scale = min(1.0, _FILLED_AT / min(regions.size))
    size = round(regions.size[0] * scale), round(regions.size[1] * scale)
    filled = [
        rasterize_polygons([[(x * scale, y * scale) for x, y in contour] for contour in part], size)
        for part in ([*inside, *covering], covering)
    ]
    masks = pack_masks(filled)
    covered = cell_coverage(masks, 0, grid) - cell_coverage(masks, 1, grid)
    shares: FloatArray = covered / (2 * min(size)) ** 2
    return shares


def is_plausible(cell: str, grid: Grid, regions: Regions, finding: str, *, min_share: float = MIN_SHARE) -> bool | None:
    """Return True if `finding` is plausible in `cell`.

    Parameters
    ----------
    cell : name of a cell of `grid`
    min_share : minimum proportion in [0, 1] of the cell that is in a plausible structure; 0 requires any overlap

    Returns
    -------
    bool, or None if :data:`PLAUSIBLE` lacks the finding or the anatomy lacks a structure

    Raises
    ------
    ValueError
        If the cell is not in the grid, or `min_share` is out of range.

    Examples
    --------
    >>> heart = Regions((80, 80), {"heart": (((30, 40), (59, 40), (59, 69), (30, 69)),)})
    >>> [is_plausible(cell, Grid(8), heart, "Cardiomegaly") for cell in ("D5", "A1")]
    [True, False]
    >>> is_plausible("D5", Grid(8), heart, "Edema") is None
    True
    """
    check_share(min_share)
    column, row = grid.parse(cell)
    structures = PLAUSIBLE.get(finding)
    shares = None if structures is None else plausible_shares(regions, structures, grid)
    return None if shares is None else is_enough(float(shares[row, column]), min_share)


def is_enough(share: float, min_share: float) -> bool:
    """Return True if a cell is plausible, given its proportion `share` inside plausible structures."""
    return share > 0 and share >= min_share


def check_share(min_share: float) -> None:
    """Raise ValueError unless `min_share` is in [0, 1]."""
    if not 0 <= min_share <= 1:
        raise ArgumentError("min_share", "must be in [0, 1]", min_share)


def read_anatomy(path: Path) -> dict[str, Regions]:
    """Read an anatomy file (see the module's conventions).

    Returns
    -------
    dict from image_id to Regions

    Raises
    ------
    ValueError
        At the first line that breaks a rule; the message names file, line, field, rule and value.
    OSError
        If the file cannot be read.
    """
    path = Path(path)
    regions_by_image: dict[str, Regions] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                image_id, regions = _read_line(line)
                if image_id in regions_by_image:
                    _refuse("image_id", "must occur only once", image_id)
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from None
            regions_by_image[image_id] = regions
    if not regions_by_image:
        raise ValueError(f"{path.name}: must have one line per image, got none")
    return regions_by_image


def _read_line(line: str) -> tuple[str, Regions]:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be JSON: {error}") from None
    if not isinstance(raw, dict) or set(raw) != {"image_id", "size", "regions"}:
        got = sorted(raw) if isinstance(raw, dict) else type(raw).__name__
        _refuse("fields", "must be exactly image_id, size and regions", got)
    image_id, size, regions = raw["image_id"], raw["size"], raw["regions"]
    if not isinstance(image_id, str) or not image_id:
        _refuse("image_id", "must be a text", image_id)
    if not isinstance(size, list) or len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
        _refuse("size", "must be [height, width], whole and above 0", size)
    if size[0] * size[1] > MAX_PIXELS:
        _refuse("size", f"must be at most {MAX_PIXELS} pixels", size)
    if not isinstance(regions, dict) or not regions:
        _refuse("regions", "must have at least one region", regions)
    contours = {name: _read_region(name, region) for name, region in regions.items()}
    return image_id, Regions((size[0], size[1]), contours)


def _read_region(name: str, region: Any) -> Polygons:
    if name not in REGIONS:
        raise ArgumentError("regions", f"must be among {', '.join(REGIONS)}", hint(name[:60], REGIONS))
    field = f"regions.{name}"
    if not isinstance(region, list) or not region or not all(isinstance(part, list) and part for part in region):
        _refuse(field, "must be a contour [[x, y], ...], or a list of contours", region)
    several = region if isinstance(region[0][0], list) else [region]
    return tuple(_read_contour(field, contour) for contour in several)


def _read_contour(field: str, contour: Any) -> tuple[Point, ...]:
    if not isinstance(contour, list) or len(contour) < 3:
        _refuse(field, "must have contours of at least 3 vertices", contour)
    for vertex in contour:
        if not isinstance(vertex, list) or len(vertex) != 2 or not all(map(_is_coordinate, vertex)):
            _refuse(field, f"must have vertices [x, y] of numbers within {_FAR:,} pixels", vertex)
    return tuple((float(x), float(y)) for x, y in contour)


_FAR = 1_000_000


def _is_coordinate(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= _FAR


def _refuse(field: str, rule: str, got: object) -> NoReturn:
    raise ValueError(f"`{field}` {rule}, got {repr(got)[:100]}")
