"""Figures of heat maps: against scikit-learn, a plain loop over pixels, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from reveal_bench.metrics.heat_maps import at_size, largest_point
from reveal_bench.metrics.map_scores import energy_inside, pixel_average_precision, tolerant_hit


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


def test_what_is_no_map_or_tolerance_is_refused() -> None:
    reference = np.ones((2, 2), bool)
    with pytest.raises(ValueError, match="`heat_map` must be finite, got nan at row 0, column 1"):
        energy_inside([[1.0, np.nan]], reference)
    with pytest.raises(ValueError, match="`tolerance` must be at least 0, got -1"):
        tolerant_hit([[1.0]], reference, tolerance=-1)
