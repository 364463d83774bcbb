"""Heat maps at the size of their image: hand arithmetic, a slow plain version of the published rules, OpenCV."""

from __future__ import annotations

import math
import re
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy import ndimage

from reveal_bench.arguments import ArgumentError
from reveal_bench.masks import encode_mask, pack_masks
from reveal_bench.metrics.heat_maps import (
    at_size,
    laid_over,
    largest_point,
    mask_above,
    otsu_level,
    otsu_mask,
    scaled,
    smoothed,
    smoothed_as_published,
)
from reveal_bench.saliency_maps.pickles import parse_pickle
from tests.saliency.published import published_pickle

cv2.ipp.setUseIPP(False)  # Intel's library parts symmetric histograms by a rounding of its own


def plain_at_size(coarse: Any, size: tuple[int, int]) -> Any:
    """Bilinear between pixel centres, edges continued, pixel by pixel in double precision."""
    rows, columns = np.shape(coarse)
    fine = np.empty(size)
    for y in range(size[0]):
        for x in range(size[1]):
            v = max((y + 0.5) * rows / size[0] - 0.5, 0)
            u = max((x + 0.5) * columns / size[1] - 0.5, 0)
            i, j = min(int(v), rows - 1), min(int(u), columns - 1)
            k, m = min(i + 1, rows - 1), min(j + 1, columns - 1)
            dv, du = v - i, u - j
            upper = coarse[i][j] * (1 - du) + coarse[i][m] * du
            lower = coarse[k][j] * (1 - du) + coarse[k][m] * du
            fine[y, x] = upper * (1 - dv) + lower * dv
    return fine


def published(levels: Any) -> Any:
    """Repeat the steps of the authors' code after scaling: OpenCV's Otsu and contours, filled by Pillow."""
    _, above = cv2.threshold(levels, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    contours, _ = cv2.findContours(above, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
    canvas = Image.new("L", levels.shape[::-1])
    for contour in contours:
        if len(contour) > 1:
            ImageDraw.Draw(canvas).polygon([tuple(map(int, p[0])) for p in contour], outline=1, fill=1)
    return np.asarray(canvas, bool)


def maps(rng: np.random.Generator) -> Any:
    """500 maps, as pickles have them, and sizes: blobs, noise, peaks, plateaus, rings, one pixel wide, small images."""
    for i in range(500):
        h, w = (int(n) for n in rng.integers(1, 12, 2))
        size = tuple(int(n) for n in rng.integers(1, 40, 2))
        kind = i % 5
        if kind == 0:
            heat = rng.random((h, w)) ** rng.integers(1, 6)
        elif kind == 1:
            heat = (rng.random((h, w)) < 0.15).astype(float)
        elif kind == 2:
            heat = np.round(rng.random((h, w)) * 3)
        elif kind == 3:
            y, x = np.mgrid[:9, :9] - 4
            heat = np.exp(-((np.hypot(x, y) - 3) ** 2))
        else:
            heat = rng.normal(size=(h, w)) * 1e-6
        if heat.min() < heat.max():
            data = published_pickle(heat.astype(np.float32), task="Edema", probability=0.5, size=size)
            yield parse_pickle(data, "it")["map"][0, 0], size


def test_maps_at_size_equal_a_plain_loop_and_opencv(rng: np.random.Generator) -> None:
    for heat, size in maps(rng):
        results = at_size(heat, size)
        assert results.dtype == np.float32
        np.testing.assert_allclose(results, plain_at_size(heat, size), rtol=0, atol=2e-6 * np.abs(heat).max())
        if min(size) >= max(heat.shape):
            resized = cv2.resize(heat.astype(np.float32), size[::-1], interpolation=cv2.INTER_LINEAR)
            np.testing.assert_allclose(results, resized, rtol=0, atol=2e-6 * np.abs(heat).max())


def test_masks_equal_the_published_steps(rng: np.random.Generator) -> None:
    n_filled = 0
    for heat, size in maps(rng):
        fine = at_size(heat, size)
        if fine.min() == fine.max():
            continue
        levels = (np.float32(255) * scaled(fine)).astype(np.uint8)
        kept = otsu_mask(heat, size, fill=False)
        level, _ = cv2.threshold(levels, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
        assert np.array_equal(kept, levels > level)
        filled = otsu_mask(heat, size, fill=True)
        assert np.array_equal(filled, published(levels))
        n_filled += int((filled & ~kept).sum())
        for threshold in (0.0, 0.2, 0.5, 0.95):
            assert np.array_equal(mask_above(heat, size, threshold), scaled(fine) > np.float32(threshold))
    assert n_filled > 100


def test_levels_are_those_of_opencv_where_histograms_are_symmetric(rng: np.random.Generator) -> None:
    """Levels that part them equally well: rounding chooses among these."""
    for i in range(3000):
        half = rng.integers(0, 120, rng.integers(1, 5))
        levels = np.repeat(np.concatenate([half, 255 - half]) if i % 2 else half, rng.integers(1, 60)).astype(np.uint8)
        level, _ = cv2.threshold(levels[None], 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
        assert otsu_level(np.bincount(levels, minlength=256)) == level


def test_a_ring_is_filled_and_lone_pixels_vanish() -> None:
    y, x = np.mgrid[:60, :60] - 29.5
    ring = (np.hypot(x, y) < 20) & (np.hypot(x, y) >= 12)
    ring[2, 2] = ring[30, 30] = True
    filled = otsu_mask(ring.astype(float), (60, 60), fill=True)
    assert np.array_equal(filled, np.hypot(x, y) < 20)


@pytest.mark.parametrize(
    ("heat_map", "size", "point"),
    [
        ([[0, 1], [0, 0]], (40, 20), (15.5, 0.5)),  # flat beyond the centre: the first of equals, by rows
        ([[0, 1], [1, 1]], (4, 4), (3.5, 0.5)),
        ([[0, 0], [3, 0]], (40, 20), (0.5, 30.5)),
        ([[-5, -4, -6]], (3, 3), (1.5, 0.5)),
        ((np.eye(40)[::-1] * 1.0), (40, 40), (39.5, 0.5)),
        ([[-1e308, 1e308]], (2, 4), (3.5, 0.5)),
        ([[1, 1], [1, 1]], (40, 20), None),
        ([[7]], (40, 20), None),
    ],
)
def test_points(heat_map: Any, size: tuple[int, int], point: tuple[float, float] | None) -> None:
    assert largest_point(heat_map, size) == point


def test_points_are_the_first_largest_pixel_of_a_plain_loop(rng: np.random.Generator) -> None:
    for heat, size in maps(rng):
        results = largest_point(heat, size)
        assert results is not None
        fine = plain_at_size(heat, size)
        x, y = int(results[0]), int(results[1])
        assert fine[y, x] >= fine.max() - 2e-6 * np.abs(heat).max()
        assert (x + 0.5, y + 0.5) == results


@pytest.mark.parametrize("threshold", [0.5, "otsu"])
def test_a_constant_map_has_an_empty_mask(threshold: Any) -> None:
    for value, shape, size in ((3.0, (4, 4), (10, 12)), (0.1, (13, 19), (300, 300)), (-7.3, (3, 1), (50, 41))):
        constant = np.full(shape, value)
        mask = otsu_mask(constant, size, fill=True) if threshold == "otsu" else mask_above(constant, size, threshold)
        assert not mask.any()
        assert (at_size(constant, size) == np.float32(value)).all()
        assert largest_point(constant, size) is None


def test_smoothing_is_the_mean_over_a_box(rng: np.random.Generator) -> None:
    heat = rng.random((9, 9))
    results = smoothed(heat, (9, 9), 3)
    assert results[4, 4] == pytest.approx(heat[3:6, 3:6].mean(), rel=1e-6)
    assert results[0, 0] == pytest.approx(np.pad(heat, 1, mode="reflect")[:3, :3].mean(), rel=1e-6)
    bell = smoothed(heat, (9, 9), 1, gaussian=True)
    np.testing.assert_allclose(bell, ndimage.gaussian_filter(heat, 1, mode="mirror"), atol=2e-5)


def test_published_smoothing_does_not_rise_with_its_input() -> None:
    levels = np.repeat(np.array([0, 96, 128, 255], np.uint8), 9).reshape(4, 3, 3)
    assert [int(smoothed_as_published(level, 1)[1, 1]) for level in levels] == [217, 29, 53, 240]


def test_masks_of_published_smoothing_equal_the_published_steps(rng: np.random.Generator) -> None:
    for heat, size in maps(rng):
        fine = at_size(heat, size)
        if fine.min() == fine.max():
            continue
        levels = (np.float32(255) * scaled(fine)).astype(np.uint8)
        grey = cv2.cvtColor(cv2.applyColorMap(levels, cv2.COLORMAP_JET), cv2.COLOR_RGB2GRAY)
        expected = published(255 - cv2.blur(grey, (5, 5)))
        assert np.array_equal(otsu_mask(heat, size, fill=True, published_smoothing=5), expected)


@pytest.mark.parametrize(
    ("heat_map", "size", "message"),
    [
        (
            [1.0, 2.0],
            (3, 3),
            "must be a two-dimensional array of numbers with at least one pixel, got float64 of shape (2,)",
        ),
        (np.zeros((0, 3)), (3, 3), "with at least one pixel, got float64 of shape (0, 3)"),
        ([["a"]], (3, 3), "must be a two-dimensional array of numbers"),
        ([[1, 2], [3]], (3, 3), "must be readable by numpy, got list"),
        ([[1.0, math.nan]], (3, 3), "must be finite, got nan at row 0, column 1"),
        ([[1.0], [math.inf]], (3, 3), "must be finite, got inf at row 1, column 0"),
        ([[1.0, 2.0]], (0, 4), "`size` must be (height, width) with both at least 1, got (0, 4)"),
    ],
)
def test_invalid_maps_are_refused(heat_map: Any, size: tuple[int, int], message: str) -> None:
    for call in (lambda: at_size(heat_map, size), lambda: mask_above(heat_map, size, 0.5)):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


@pytest.mark.parametrize("threshold", [1.0, -0.1, math.nan, True])
def test_thresholds_lie_below_one(threshold: Any) -> None:
    with pytest.raises(ValueError, match=r"`threshold` must be in \[0, 1\)"):
        mask_above([[0, 1]], (2, 2), threshold)


def test_pixels_are_counted_against_a_mask_of_the_image_alone() -> None:
    laid = laid_over([[0.0, 1.0]], (4, 4))
    for sizes in ([(9, 9)], [(4, 4), (4, 4)]):
        with pytest.raises(ArgumentError, match=r"`reference` must be one mask of \(4, 4\)"):
            laid.counts_above([0.5], pack_masks([encode_mask(np.ones(size, bool)) for size in sizes]))
