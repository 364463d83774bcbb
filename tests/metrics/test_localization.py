"""Localization metrics against a dense brute-force oracle and hand-counted degenerate cases."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.geometry import Grid
from reveal_bench.masks import Rle, encode_mask, pack_masks
from reveal_bench.metrics.localization import (
    box_iou,
    cell_coverage,
    grid_chance,
    grid_hit,
    mask_iou,
    point_chance,
    point_hit,
)
from tests.conftest import random_masks

Mask = npt.NDArray[np.bool_]


def dense_iou(a: Mask, b: Mask, *, part: str) -> float:
    """Decode both, logical and / or: the way of the published CheXlocalize code."""
    intersection, union = np.logical_and(a, b).sum(), np.logical_or(a, b).sum()
    if union == 0 or (part == "true_positive" and (not a.any() or not b.any())):
        return float("nan")
    return float(intersection / union)


def dense_coverage(mask: Mask, n: int) -> list[list[Fraction]]:
    """Share of each cell that is covered, by exact overlap of unit squares with cells, in fractions."""
    height, width = mask.shape
    side = min(height, width)
    left, top = Fraction(width - side, 2), Fraction(height - side, 2)
    cell = Fraction(side, n)
    covered = [[Fraction(0)] * n for _ in range(n)]
    for y, x in np.argwhere(mask).tolist():
        for row in range(n):
            tall = min(Fraction(y + 1), top + (row + 1) * cell) - max(Fraction(y), top + row * cell)
            if tall <= 0:
                continue
            for column in range(n):
                wide = min(Fraction(x + 1), left + (column + 1) * cell) - max(Fraction(x), left + column * cell)
                if wide > 0:
                    covered[row][column] += wide * tall / cell**2
    return covered


def dense_grid_hits(mask: Mask, n: int) -> list[list[float]]:
    """Return the score of each cell, row by row."""
    covered = dense_coverage(mask, n)
    largest = max(share for line in covered for share in line)
    if not largest:
        return [[float("nan")] * n for _ in range(n)]
    if largest >= Fraction(1, 2):
        return [[float(share >= Fraction(1, 2)) for share in line] for line in covered]
    return [[float(share > 0) for share in line] for line in covered]


@pytest.mark.parametrize("part", ["true_positive", "all"])
def test_iou_equals_decoding_both_masks(part: str, rng: np.random.Generator) -> None:
    references = random_masks(rng, 1500)
    predictions = []
    for i, reference in enumerate(references):
        if i % 7 == 0:
            predictions.append(reference.copy())
        elif i % 7 == 1:
            predictions.append(~reference)
        else:
            predictions.append(rng.random(reference.shape) < rng.choice([0.0, 0.1, 0.5, 1.0]))
    got = mask_iou(
        pack_masks([encode_mask(m) for m in predictions]),
        pack_masks([encode_mask(m) for m in references]),
        slice=part,  # type: ignore[arg-type]
    )
    expected = [dense_iou(a, b, part=part) for a, b in zip(predictions, references, strict=True)]
    assert np.array_equal(got, expected, equal_nan=True)  # the very numbers: no tolerance
    assert np.isnan(got).sum() > 50
    assert (got == 1).sum() > 100


def test_point_hit_equals_indexing_the_dense_mask(rng: np.random.Generator) -> None:
    masks = random_masks(rng, 1500)
    points = []
    for mask in masks:
        height, width = mask.shape
        n = int(rng.integers(0, 4))
        points.append([(float(x) * width, float(y) * height) for x, y in rng.random((n, 2))])
    got = point_hit(points, pack_masks([encode_mask(mask) for mask in masks]))
    expected = [
        float(any(mask[int(y), int(x)] for x, y in some)) if mask.any() else float("nan")
        for mask, some in zip(masks, points, strict=True)
    ]
    assert np.array_equal(got, expected, equal_nan=True)
    assert {0.0, 1.0} <= set(got[~np.isnan(got)])


@pytest.mark.parametrize("n", [1, 3, 8])
def test_grid_hit_and_chance_equal_exact_fractions(n: int, rng: np.random.Generator) -> None:
    masks = random_masks(rng, 60, largest=21)
    grid = Grid(n)
    packed = pack_masks([encode_mask(mask) for mask in masks])
    places = rng.integers(0, n, (len(masks), 2)).tolist()
    got = grid_hit([[grid.name(column, row)] for column, row in places], packed, grid=grid)
    hits = [dense_grid_hits(mask, n) for mask in masks]
    expected = [cells[row][column] for cells, (column, row) in zip(hits, places, strict=True)]
    assert np.array_equal(got, expected, equal_nan=True)
    assert np.array_equal(grid_chance(packed, grid=grid), np.mean(hits, axis=(1, 2)), equal_nan=True)
    shares = [mask.mean() if mask.any() else np.nan for mask in masks]
    np.testing.assert_allclose(point_chance(packed), shares, rtol=1e-14)


def upscaled_hits(mask: Mask, n: int) -> Mask:
    """Hit cells by brute force: every pixel cut into 2n x 2n, cropped, and counted cell by cell in whole numbers."""
    height, width = mask.shape
    side = min(height, width)
    fine = mask.repeat(2 * n, axis=0).repeat(2 * n, axis=1)
    top, left = n * (height - side), n * (width - side)
    square = fine[top : top + 2 * n * side, left : left + 2 * n * side]
    counts = square.reshape(n, 2 * side, n, 2 * side).sum(axis=(1, 3))
    half: Mask = 2 * counts >= (2 * side) ** 2
    return half if half.any() else counts > 0


def test_grid_hit_equals_counting_in_the_upscaled_mask(rng: np.random.Generator) -> None:
    masks = random_masks(rng, 1500)
    grid = Grid(8)
    packed = pack_masks([encode_mask(mask) for mask in masks])
    good = [upscaled_hits(mask, 8) for mask in masks]
    places = rng.integers(0, 8, (len(masks), 2)).tolist()
    got = grid_hit([[grid.name(column, row)] for column, row in places], packed, grid=grid)
    expected = [
        float(hits[row, column]) if hits.any() else float("nan")
        for hits, (column, row) in zip(good, places, strict=True)
    ]
    assert np.array_equal(got, expected, equal_nan=True)
    shares = [hits.mean() if hits.any() else float("nan") for hits in good]
    assert np.array_equal(grid_chance(packed, grid=grid), shares, equal_nan=True)
    assert {0.0, 1.0} <= set(got[~np.isnan(got)])


def test_coverage_adds_up_to_the_mask_inside_the_central_square() -> None:
    # 7 x 10 px, full mask: the square is 7 px wide from x = 1.5; every cell is covered whole
    packed = pack_masks([encode_mask(np.ones((7, 10)))])
    assert (cell_coverage(packed, 0, Grid(8)) == (2 * 7) ** 2).all()


def test_coverage_of_exactly_half_is_a_hit_and_beats_the_fallback() -> None:
    # 16 x 16 px, 8 x 8 cells of 2 x 2 px: two pixels of A1 are half of it; one pixel of B1 is a quarter
    mask = np.zeros((16, 16))
    mask[0:2, 0] = 1
    mask[0, 2] = 1
    packed = pack_masks([encode_mask(mask)] * 2)
    assert grid_hit([["A1"], ["B1"]], packed).tolist() == [1, 0]
    assert grid_chance(packed)[0] == 1 / 64


def test_fallback_any_coverage_counts_when_no_cell_is_half_covered() -> None:
    mask = np.zeros((16, 16))
    mask[0, 0] = mask[15, 15] = 1
    packed = pack_masks([encode_mask(mask)] * 3)
    assert grid_hit([["A1"], ["H8"], ["B1"]], packed).tolist() == [1, 1, 0]
    assert grid_chance(packed)[0] == 2 / 64


def test_mask_outside_the_central_square_is_undefined_on_the_grid_but_not_for_points() -> None:
    mask = np.zeros((10, 30))
    mask[:, :10] = 1
    packed = pack_masks([encode_mask(mask)])
    assert np.isnan(grid_hit([["A1"]], packed)).all()
    assert np.isnan(grid_chance(packed)).all()
    assert point_hit([[(3, 3)]], packed).tolist() == [1]


def test_an_absent_prediction_is_a_miss_and_an_empty_reference_undefined() -> None:
    packed = pack_masks([encode_mask(np.ones((4, 4))), encode_mask(np.zeros((4, 4)))])
    assert np.array_equal(point_hit([[], [(1, 1)]], packed), [0, np.nan], equal_nan=True)
    assert np.array_equal(grid_hit([[], ["A1"]], packed), [0, np.nan], equal_nan=True)


def test_a_point_on_the_far_border_is_outside() -> None:
    packed = pack_masks([encode_mask(np.ones((4, 6)))])
    assert point_hit([[(5.999, 3.999)]], packed).tolist() == [1]
    with pytest.raises(ValueError, match=re.escape("`predictions[0]` must be in the image 6 x 4, got (6, 0)")):
        point_hit([[(6, 0)]], packed)


def test_no_cases_give_no_values() -> None:
    none = pack_masks([])
    assert point_hit([], none).shape == (0,)
    assert grid_hit([], none).shape == (0,)
    assert mask_iou(none, none).shape == (0,)
    assert box_iou([], []).shape == (0,)


def test_lengths_and_sizes_must_agree() -> None:
    one = pack_masks([encode_mask(np.ones((4, 4)))])
    two = pack_masks([Rle((4, 4), "0@0"), encode_mask(np.ones((4, 4)))][1:] * 2)
    with pytest.raises(ValueError, match=re.escape("`predictions` must have the length of `references` (1), got 2")):
        mask_iou(two, one)
    with pytest.raises(ValueError, match=re.escape("`predictions` must have the length of `references` (1), got 0")):
        point_hit([], one)
    other = pack_masks([encode_mask(np.ones((4, 5)))])
    with pytest.raises(ValueError, match=re.escape("size of its reference [4, 4] [height, width], got [4, 5]")):
        mask_iou(other, one)
    with pytest.raises(ValueError, match="`slice` must be 'true_positive' or 'all', got 'tp'"):
        mask_iou(one, one, slice="tp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        ([0, 0, 2, 2], [0, 0, 2, 2], 1.0),
        ([0, 0, 2, 2], [1, 1, 2, 2], 1 / 7),  # 1 common, 4 + 4 - 1 together
        ([0, 0, 2, 2], [2, 0, 2, 2], 0.0),  # touching
        ([0, 0, 0, 0], [0, 0, 0, 0], np.nan),  # neither has an area
        ([0, 0, 2, 2], [1, 1, 0, 0], 0.0),
        ([np.nan] * 4, [0, 0, 2, 2], 0.0),
        ([0, 0, 2, 2], [np.nan] * 4, np.nan),
    ],
)
def test_box_iou_by_hand(prediction: list[float], reference: list[float], expected: float) -> None:
    assert np.array_equal(box_iou([prediction], [reference]), [expected], equal_nan=True)


@pytest.mark.parametrize("bad", [[0, 0, -1, 2], [0, np.nan, 1, 2], [0, 0, np.inf, 2]])
def test_box_iou_refuses_what_is_no_box(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=re.escape("`predictions[0]` must be [x, y, width >= 0, height >= 0]")):
        box_iou([bad], [[0, 0, 1, 1]])
