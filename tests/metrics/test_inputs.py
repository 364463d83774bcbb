"""Inputs of `evaluate` users in formats that tests/test_evaluate_modules.py does not cover."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reveal_bench.masks import Rle, empty_rle
from reveal_bench.metrics.inputs import (
    CATEGORIES,
    CELLS,
    INTEGERS,
    NAMES,
    POINTS,
    VECTORS,
    CheckedInputs,
    label_matrix,
    read_labels,
    read_masks,
    read_places,
    read_ratings,
    to_rles,
)


def test_absent_predictions_follow_the_others() -> None:
    assert read_places([None, [], ""]) == ([[], [], []], POINTS)
    assert read_places([None, [], ""], CELLS) == (["", "", ""], CELLS)
    assert read_places([(), "D5"]) == (["", "D5"], CELLS)
    assert read_places([np.zeros((0, 2)), (1, 2)]) == ([[], [[1.0, 2.0]]], POINTS)
    assert read_places([empty_rle((3, 4))]) == ([[]], POINTS)  # a mask of nothing says nothing


def test_ragged_points_are_refused() -> None:
    with pytest.raises(
        ValueError, match=re.escape("`predictions[0]` must be a point [x, y], a list of points, a cell")
    ):
        read_places([[[1, 2], [3]]])


def test_masks_round_trip() -> None:
    stored = read_masks("references", [Rle((2, 3), "06"), {"size": np.array([2, 3]), "counts": b"06"}])
    assert to_rles(stored) == [Rle((2, 3), "06")] * 2
    for bad in ([[1], [1, 0]], [], "06", np.zeros(3)):
        with pytest.raises(ValueError, match=re.escape("`references[0]` must be a run-length mask")):
            read_masks("references", [bad])


def test_labels() -> None:
    assert read_labels([set(), frozenset("ba")], [(), []]) == ([[], ["a", "b"]], [[], []], NAMES)
    assert read_labels([[]], [[]], VECTORS)[2] == VECTORS
    assert read_labels([np.array([True, False])], [(1, 0)]) == ([[1, 0]], [[1, 0]], VECTORS)
    predicted, actual, names = label_matrix([["b"], []], [["a"], []])
    assert (names, predicted.tolist(), actual.tolist()) == (
        ["a", "b"],
        [[False, True], [False, False]],
        [[True, False], [False, False]],
    )


def test_ratings() -> None:
    assert read_ratings([np.int64(3), 2.0], [True, np.float32(1)]) == ([3, 2], [1, 1], INTEGERS)
    assert read_ratings(["low"], ["high"], CATEGORIES) == (["low"], ["high"], CATEGORIES)
    with pytest.raises(ValueError, match="must be all integers or all names"):
        read_ratings(["low"], ["high"], INTEGERS)


def test_wrappers_must_say_how_to_read() -> None:
    with pytest.raises(NotImplementedError):
        CheckedInputs().read([1], [1], None)
