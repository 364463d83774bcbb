"""Figures of heat maps: against scikit-learn, a plain loop over pixels, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from reveal_bench.metrics.heat_maps import at_size, largest_point
from reveal_bench.metrics.map_scores import (
    contrast_to_noise,
    energy_inside,
    grounding_iou,
    pixel_average_precision,
    pooled_pixel_average_precision,
    tolerant_hit,
)


def test_average_precision_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        heat = rng.integers(0, 5, rng.integers(1, 6, 2)) / 4 if rng.random() < 0.5 else rng.random((4, 3))
        reference = rng.random((int(rng.integers(1, 30)), int(rng.integers(1, 30)))) < 0.3
        results = pixel_average_precision(heat, reference)
        if not reference.any():
            assert np.isnan(results)
        else:
            fine = at_size(heat, (reference.shape[0], reference.shape[1]))
            assert results == pytest.approx(average_precision_score(reference.ravel(), fine.ravel()))


def test_a_hit_may_be_off_by_the_tolerance() -> None:
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(200):
        heat = rng.random((6, 5))
        reference = rng.random((18, 20)) < rng.choice([0, 0.02])
        x, y = largest_point(heat, (18, 20)) or (0, 0)
        far = [np.hypot((j - int(y)) * 0.5, (i - int(x)) * 2.0) for j, i in zip(*np.nonzero(reference), strict=True)]
        results = tolerant_hit(heat, reference, tolerance=3, spacing=(0.5, 2.0))
        assert np.isnan(results) if not far else results == (min(far) <= 3)
        seen.add(str(results))
    assert seen == {"nan", "0.0", "1.0"}
    assert tolerant_hit(np.ones((3, 3)), np.ones((6, 6), bool)) == 0  # a constant map has no point


def test_energy_counts_what_is_positive() -> None:
    reference = np.zeros((2, 2), bool)
    reference[0, 0] = True
    assert energy_inside([[2, 1], [-9, 1]], reference) == 0.5
    assert np.isnan(energy_inside([[-1, -2], [-3, -4]], reference))
    assert np.isnan(energy_inside([[1, 2], [3, 4]], ~np.ones((2, 2), bool)))


def test_contrast_to_noise_by_hand() -> None:
    # Inside 1 and 3 (mean 2, variance 1), outside 0 and 4 and 2 (mean 2, variance 8/3), then outside 0, 0, 0
    inside = np.array([[True, True, False, False, False]])
    assert contrast_to_noise([[1, 3, 0, 4, 2]], inside) == 0
    assert contrast_to_noise([[1, 3, 0, 1, 2]], inside) == pytest.approx(1 / np.sqrt(1 + 2 / 3))
    assert contrast_to_noise([[-1, -3, 0, -1, -2]], inside) == pytest.approx(1 / np.sqrt(1 + 2 / 3))
    assert contrast_to_noise([[7, 7, 7, 7, 7]], inside) == 0
    assert np.isnan(contrast_to_noise([[1, 1, 0, 0, 0]], inside))
    assert np.isnan([contrast_to_noise([[1, 3]], np.full((1, 2), side)) for side in (True, False)]).all()


def test_grounding_iou_by_hand() -> None:
    reference = np.array([[True, True, False, False]])
    # 0.1 itself is not above 0.1: IoU 2/3, then 1, 1/2, 1/2, 0 at 0.5
    assert grounding_iou([[0.45, 0.25, 0.15, 0.1]], reference) == pytest.approx((2 / 3 + 1 + 0.5 + 0.5 + 0) / 5)
    assert grounding_iou([[-1, -1, 0.05, 0]], reference) == 0
    assert np.isnan(grounding_iou([[1, 1]], np.zeros((1, 2), bool)))


def test_pooled_precision_compares_pixels_of_all_images() -> None:
    """By scikit-learn from the pixels of all maps, scaled and rounded down to thousandths."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        maps = [rng.normal(size=(4, 5)) * 3**k for k in range(3)]
        references = [rng.random((4, 5)) < share for share in (0.0, 0.3, 0.3)]
        results = pooled_pixel_average_precision(maps, references)
        on_scale = [(one - one.min()) / max(np.ptp(one), 1e-9) for one in maps]
        pixels = np.concatenate([np.floor(one * 1000) for one in on_scale], axis=None)
        is_inside = np.concatenate(references, axis=None)
        expected = average_precision_score(is_inside, pixels) if is_inside.any() else np.nan
        assert results == pytest.approx(expected, nan_ok=True)


def test_what_is_no_map_or_tolerance_is_refused() -> None:
    reference = np.ones((2, 2), bool)
    with pytest.raises(ValueError, match="`heat_map` must be finite, got nan at row 0, column 1"):
        energy_inside([[1.0, np.nan]], reference)
    with pytest.raises(ValueError, match="`tolerance` must be at least 0, got -1"):
        tolerant_hit([[1.0]], reference, tolerance=-1)
