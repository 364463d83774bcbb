"""Tilted bounds against Wilson's interval, and Student's t against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t

from reveal_bench.evaluation.tilting import Student, distances_of, student_of


@pytest.mark.parametrize("freedom", [3.0, 4.5, 10.0, 200.0])
def test_students_t_is_near_scipys(freedom: float) -> None:
    student = Student(freedom)
    assert student.critical == pytest.approx(t.ppf(0.975, freedom), rel=0.013)
    for statistic in (0.0, 0.5, 2.0, 4.0):
        assert student.upper_tail(statistic) == pytest.approx(t.sf(statistic, freedom), abs=0.0025)


@pytest.mark.parametrize(("n", "hits", "z"), [(40, 3, 1.96), (100, 20, 1.96), (60, 55, 2.5)])
def test_bounds_of_a_proportion_are_wilsons_unless_the_data_vary_more(n: int, hits: int, z: float) -> None:
    """Weighted data of 0 and 1 with mean p have variance p (1 - p), so the statistic is that of the score test."""
    share = hits / n
    influences = (np.repeat([1.0, 0.0], [hits, n - hits]) - share) / n
    error = math.sqrt(share * (1 - share) / n)
    centre, half = share + z**2 / 2 / n, z * math.sqrt(share * (1 - share) / n + z**2 / 4 / n**2)
    wilson = {side: abs((centre + side * half) / (1 + z**2 / n) - share) for side in (-1, 1)}
    for side in (-1, 1):
        one = distances_of(influences, error, side)
        assert one.reach(z) == pytest.approx(max(wilson[side], z * error), rel=0.01)
        assert one.statistic(one.reach(z)) == pytest.approx(z, abs=1e-9)


def test_a_difference_without_variance_has_no_length() -> None:
    constant = distances_of(np.zeros(12), 0.0, 1)
    assert constant.reach(2.0) == 0
    assert constant.statistic(0.1) == math.inf


def test_few_deciding_units_have_few_degrees_of_freedom() -> None:
    spread = np.array([1.0, -1.0] * 30)
    assert student_of(spread).freedom > 1000  # squares are equal: their sum is known exactly
    one_decides = np.append(np.full(59, 0.01), -0.59)
    assert student_of(one_decides).freedom == 3
