"""Sensitivity, specificity and heat-map points against dense masks and hand-made cases."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reveal_bench.masks import empty_rle, encode_mask, pack_masks
from reveal_bench.metrics.pixelwise import sensitivity, specificity
from tests.conftest import random_masks


def test_equal_dense_masks(rng: np.random.Generator) -> None:
    references = random_masks(rng, 400)
    predictions = [rng.random(mask.shape) < rng.choice([0.0, 0.2, 0.8, 1.0]) for mask in references]
    packed = [pack_masks([encode_mask(mask) for mask in masks]) for masks in (predictions, references)]
    results, left_alone = sensitivity(*packed), specificity(*packed)
    for i, (prediction, reference) in enumerate(zip(predictions, references, strict=True)):
        expected = prediction[reference].mean() if reference.any() else np.nan
        np.testing.assert_array_equal(results[i], expected)
        expected = (~prediction[~reference]).mean() if not reference.all() else np.nan
        np.testing.assert_array_equal(left_alone[i], expected)
    assert np.isnan(results).any()
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
