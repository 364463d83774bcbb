"""Sensitivity, specificity and heat-map points against dense masks and hand-made cases."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reveal_bench.masks import empty_rle, encode_mask, pack_masks
from reveal_bench.metrics.pixelwise import heat_map_point, sensitivity, specificity
from tests.conftest import random_masks


def test_equal_dense_masks(rng: np.random.Generator) -> None:
    references = random_masks(rng, 400)
    predictions = [rng.random(mask.shape) < rng.choice([0.0, 0.2, 0.8, 1.0]) for mask in references]
    packed = [pack_masks([encode_mask(mask) for mask in masks]) for masks in (predictions, references)]
    found, left_alone = sensitivity(*packed), specificity(*packed)
    for i, (prediction, reference) in enumerate(zip(predictions, references, strict=True)):
        expected = prediction[reference].mean() if reference.any() else np.nan
        np.testing.assert_array_equal(found[i], expected)
        expected = (~prediction[~reference]).mean() if not reference.all() else np.nan
        np.testing.assert_array_equal(left_alone[i], expected)
    assert np.isnan(found).any()
    assert np.isnan(left_alone).any()


def test_no_cases() -> None:
    none = pack_masks([])
    assert sensitivity(none, none).shape == specificity(none, none).shape == (0,)


def test_what_does_not_pair_is_refused() -> None:
    small, wide = pack_masks([empty_rle((2, 2))]), pack_masks([empty_rle((2, 3))])
    for metric in (sensitivity, specificity):
        with pytest.raises(ValueError, match=re.escape("`predictions[0]` must have the size of its reference [2, 3]")):
            metric(small, wide)
        with pytest.raises(ValueError, match=re.escape("`predictions` must have the length of `references` (0), got")):
            metric(small, pack_masks([]))


def test_heat_map_point() -> None:
    # 2 rows x 4 columns over an image 100 high and 80 wide: a pixel of the map is 20 x 50
    heat_map = [[0, 0, 0, 0], [0, 5, 5, 0]]
    assert heat_map_point(heat_map, size=(100, 80)) == (30.0, 75.0)  # the first of the two fives
    assert heat_map_point(heat_map) == (1.5, 1.5)
    assert heat_map_point(np.zeros((3, 3), np.float32)) == (0.5, 0.5)  # ties everywhere: the first pixel
    assert heat_map_point([[-np.pi]], size=(7, 9)) == (4.5, 3.5)


def test_heat_map_point_lies_in_the_image(rng: np.random.Generator) -> None:
    for _ in range(300):
        height, width, h, w = (int(side) for side in rng.integers(1, 60, 4))
        x, y = heat_map_point(rng.random((h, w)), size=(height, width))
        assert 0 <= x < width
        assert 0 <= y < height


@pytest.mark.parametrize(
    ("heat_map", "size", "message"),
    [
        ([1.0, 2.0], None, "`heat_map` must have shape (height, width) with at least one pixel, got (2,)"),
        (np.zeros((0, 3)), None, "`heat_map` must have shape (height, width) with at least one pixel, got (0, 3)"),
        ([[1.0, np.nan]], None, "`heat_map` must be finite, got nan"),
        ([[1.0, np.inf]], None, "`heat_map` must be finite, got inf"),
        ([[1.0]], (0, 4), "`size` must be (height, width) with both at least 1, got (0, 4)"),
    ],
)
def test_bad_heat_maps(heat_map: object, size: tuple[int, int] | None, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        heat_map_point(heat_map, size=size)  # type: ignore[arg-type]
