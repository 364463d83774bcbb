"""Agreement of masks against plain loops over all pairs of boundary pixels, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.masks import encode_mask, pack_masks
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.mask_agreement import boundary_iou, dice, hausdorff_95, surface_distance

SPACING = (0.5, 0.25)


def boundary(mask: BoolArray) -> list[tuple[int, int]]:
    height, width = mask.shape
    results = []
    for y, x in zip(*np.nonzero(mask), strict=True):
        around = [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
        if not all(0 <= j < height and 0 <= i < width and mask[j, i] for j, i in around):
            results.append((int(y), int(x)))
    return results


def nearest(a: BoolArray, b: BoolArray) -> tuple[FloatArray, FloatArray]:
    def far(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> FloatArray:
        return np.array([min(np.hypot((y - j) * SPACING[0], (x - i) * SPACING[1]) for j, i in other) for y, x in one])

    return far(boundary(a), boundary(b)), far(boundary(b), boundary(a))


def band(mask: BoolArray, width: int) -> BoolArray:
    """Pixels that reach the outside in so many steps of a king."""
    padded = np.pad(mask, width)
    results = np.zeros_like(mask)
    for y, x in zip(*np.nonzero(mask), strict=True):
        results[y, x] = not padded[y : y + 2 * width + 1, x : x + 2 * width + 1].all()
    return results


def blobs(rng: np.random.Generator) -> BoolArray:
    mask = np.zeros((14, 18), bool)
    for _ in range(rng.integers(0, 3)):
        y, x = rng.integers(0, 12), rng.integers(0, 16)
        mask[y : y + rng.integers(1, 9), x : x + rng.integers(1, 9)] = True
    return mask & (rng.random(mask.shape) < rng.choice([1.0, 0.9]))


def test_dice_of_siim_acr_counts_empty_answers_to_empty_images_as_right() -> None:
    """Per image, over pixels that are listed one by one: 2 |X and Y| / (|X| + |Y|), and 1 if X and Y are empty."""
    rng = np.random.default_rng(1)
    nothing, full = np.zeros((14, 18), bool), np.ones((14, 18), bool)
    pairs = [(nothing, nothing), (nothing, full), (full, nothing), (full, full)]
    pairs += [(blobs(rng), blobs(rng)) for _ in range(200)]
    values = []
    for pair in pairs:
        x, y = ({(row, column) for row in range(14) for column in range(18) if mask[row, column]} for mask in pair)
        values.append(2 * len(x & y) / (len(x) + len(y)) if x or y else 1.0)
    first, second = (pack_masks([encode_mask(pair[k]) for pair in pairs]) for k in (0, 1))
    results = METRICS["siim_dice"].resolve()(first, second)
    np.testing.assert_allclose(results, values, rtol=1e-12)
    assert results[:4].tolist() == [1, 0, 0, 1]
    assert results.mean() == pytest.approx(sum(values) / len(values))
    assert np.isnan(dice(first, second)).sum() == sum(not (a.any() or b.any()) for a, b in pairs) > 5


def test_every_figure_is_that_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    pairs = [(blobs(rng), blobs(rng)) for _ in range(200)]
    first, second = (pack_masks([encode_mask(pair[k]) for pair in pairs]) for k in (0, 1))
    results = np.column_stack([
        dice(first, second), boundary_iou(first, second, band=0.1),
        surface_distance(first, second, tolerance=0.5, spacing=SPACING), hausdorff_95(first, second, spacing=SPACING),
    ])  # fmt: skip
    for (a, b), row in zip(pairs, results, strict=True):
        if not a.any() and not b.any():
            assert np.isnan(row).all()
            continue
        near, inner = (a & b).sum() * 2 / (a.sum() + b.sum()), [band(a, 2), band(b, 2)]
        expected = [near, (inner[0] & inner[1]).sum() / (inner[0] | inner[1]).sum(), 0, np.inf]
        if a.any() and b.any():
            there, back = nearest(a, b)
            expected[2] = ((there <= 0.5).sum() + (back <= 0.5).sum()) / (len(there) + len(back))
            expected[3] = max(np.percentile(there, 95), np.percentile(back, 95))
        np.testing.assert_allclose(row, expected, rtol=1e-12)


def test_a_square_moved_by_hand() -> None:
    """A square of 4 x 4 pixels and the same two pixels to the right: 8 of 12 boundary pixels are within one pixel."""
    a, b = np.zeros((10, 10), bool), np.zeros((10, 10), bool)
    a[2:6, 2:6], b[2:6, 4:8] = True, True
    first, second = pack_masks([encode_mask(a)]), pack_masks([encode_mask(b)])
    assert dice(first, second)[0] == 0.5
    assert hausdorff_95(first, second)[0] == pytest.approx(2)
    assert surface_distance(first, second, tolerance=2)[0] == 1
    assert surface_distance(first, second, tolerance=0)[0] == pytest.approx(4 / 12)


def test_what_cannot_be_computed_is_refused() -> None:
    one = pack_masks([encode_mask(np.ones((2, 2)))])
    other = pack_masks([encode_mask(np.ones((2, 3)))])
    with pytest.raises(ValueError, match="must have the sizes of `references`"):
        dice(one, other)
    with pytest.raises(ValueError, match="`tolerance` must be at least 0, got -1"):
        surface_distance(one, one, tolerance=-1)
    with pytest.raises(ValueError, match="`band` must be above 0, got 0"):
        boundary_iou(one, one, band=0)
