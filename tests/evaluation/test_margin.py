"""Differences against a margin, by hand arithmetic with scipy's t, and what a margin must be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.compare import Comparison, as_records, compare
from reveal_bench.evaluation.margin import Margin, Verdict
from reveal_bench.metrics.intervals import Interval, Resampling
from tests.evaluation.test_comparison import case_rows

NAN = math.nan


def judged(
    a: list[float], b: list[float], margin: Margin, interval: Interval = "jackknife"
) -> tuple[Comparison, Verdict]:
    """The difference of two systems on one finding, a row per patient (a patient is one of 25)."""
    pairs = [(i, "Edema") for i in range(len(a))]
    systems = [case_rows(pairs, {"mask_iou": np.array(values)}) for values in (a, b)]
    one = compare(*systems, Resampling(400, interval=interval), margin=margin)[1]
    assert one.verdict is not None
    return one, one.verdict


def draw(shift: float) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(4)
    b = rng.uniform(0.3, 0.6, 25)
    return (b + shift + rng.normal(0, 0.08, 25)).tolist(), b.tolist()


@pytest.mark.parametrize(("shift", "word"), [(0.0, "non-inferior"), (-0.1, "not shown"), (-0.25, "inferior")])
def test_one_sided_p_is_near_that_of_students_t(shift: float, word: str) -> None:
    a, b = draw(shift)
    one, verdict = judged(a, b, Margin(0.1))
    d = np.subtract(a, b)
    error = d.std(ddof=1) / 5
    assert verdict.p == pytest.approx(t.sf((d.mean() + 0.1) / error, 24), abs=0.03)  # 400 flips
    assert verdict.word == word
    assert (verdict.p < 0.025) == (one.estimate.low > -0.1)


def test_p_is_a_fortieth_where_the_interval_ends_at_the_margin() -> None:
    a, b = draw(-0.05)
    free = judged(a, b, Margin(0.5))[0].estimate
    assert judged(a, b, Margin(-free.low))[1].p == pytest.approx(0.025, abs=1e-9)
    both = Margin(max(-free.low, free.high), equivalence=True)
    assert judged(a, b, both)[1].p == pytest.approx(0.025, abs=1e-9)


@pytest.mark.parametrize(
    ("low", "high", "equivalence", "word"),
    [
        (-0.04, 0.2, False, "non-inferior"), (-0.2, 0.04, False, "not shown"), (-0.3, -0.06, False, "inferior"),
        (-0.04, 0.04, True, "equivalent"), (-0.04, 0.2, True, "not shown"), (0.06, 0.2, True, "not equivalent"),
        (-0.2, -0.05, True, "not equivalent"), (0.0, 0.0, False, "-"), (NAN, NAN, True, "-"),
    ],
)  # fmt: skip
def test_verdict_is_that_of_the_printed_interval(low: float, high: float, equivalence: bool, word: str) -> None:
    for metric, ends in (("mask_iou", (low, high)), ("hamming_loss", (-high, -low))):  # of a loss, less is better
        assert Margin(0.05, equivalence).judge(metric, ends, 0.5, (0.01, 0.04)).word == word, metric


def test_systems_that_hardly_differ_have_no_verdict() -> None:
    a = [0.5] * 25
    for n_other in (0, 1, 5):
        one, verdict = judged(a, [0.6] * n_other + a[n_other:], Margin(0.1))
        assert (verdict.word, math.isnan(verdict.p)) == ("-", True), n_other
        assert as_records([one])[0]["p_margin"] is None
    assert judged(a, [0.6, 0.4] * 4 + a[8:], Margin(0.1))[1].word == "non-inferior"
    assert judged([0.5] * 9, [0.6, 0.4, 0.5] * 3, Margin(0.1))[1].word == "-"  # nine patients, no interval


def test_percentile_intervals_count_replicates() -> None:
    a, b = draw(0.0)
    verdict = judged(a, b, Margin(0.1), interval="percentile")[1]
    assert (verdict.word, verdict.p) == ("non-inferior", 1 / 401)


@pytest.mark.parametrize("width", [0, -0.05, NAN, math.inf, True, "0.05"])
def test_margins_that_are_none_are_refused(width: Any) -> None:
    with pytest.raises(ArgumentError, match="`margin` must be a number above 0") as caught:
        Margin(width)
    assert str(caught.value).endswith(repr(width))


def test_a_margin_wider_than_the_scale_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must be smaller than the range of mask_iou, 1"):
        judged([0.5] * 9, [0.5] * 9, Margin(5))
