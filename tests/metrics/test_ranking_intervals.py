"""Intervals of AUROC and average precision, against bounds computed from the published formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, t
from sklearn.metrics import average_precision_score, roc_auc_score
from statsmodels.stats.proportion import proportion_confint

from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.estimates import estimate_labels
from reveal_bench.metrics.intervals import Estimate, Resampling

Z = norm.ppf(0.975)
DRAWS = Resampling(40, interval="jackknife")


def estimates(metric: str, scores: Any, present: Any, **options: Any) -> dict[str, Estimate]:
    scores, present = np.array(scores, float).T, np.array(present, bool).T
    labels = [f"finding {i}" for i in range(scores.shape[1])]
    got = estimate_labels(scores > 0.5, present, scores=scores, labels=labels, resampling=DRAWS, **options)
    return {e.finding: e for e in got if e.metric == metric}


def column(n_positive: int, n_negative: int, seed: int, skill: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    present = np.arange(n_positive + n_negative) < n_positive
    return norm.cdf(np.random.default_rng(seed).normal(skill * present)), present


def newcombe(area: float, m: int, n: int) -> float:
    """The variance of Newcombe's (2006) method 5."""
    size = (m + n) / 2 - 1
    return area * (1 - area) * (1 + size * (1 - area) / (2 - area) + size * area / (1 + area)) / (m * n)


def delong(scores: np.ndarray, present: np.ndarray) -> float:
    """The variance by DeLong et al. (1988), with n instead of n - 1, times N / (N - 1) for all N studies."""
    wins = (scores[present][:, None] > scores[~present]) + 0.5 * (scores[present][:, None] == scores[~present])
    m, n = wins.shape
    return (wins.mean(1).var() / m + wins.mean(0).var() / n) * (m + n) / (m + n - 1)


@pytest.mark.parametrize(("m", "n", "seed"), [(6, 30, 1), (12, 40, 2), (40, 15, 3), (200, 300, 4)])
def test_bounds_of_one_area(m: int, n: int, seed: int) -> None:
    scores, present = column(m, n, seed)
    area = roc_auc_score(present, scores)
    freedom = min(m, n) - 1
    ratio = (freedom * delong(scores, present) / newcombe(min(area, 1 - 1 / (4 * m)), m, n) + 12) / (freedom + 12)
    bounds = [
        brentq(lambda x: (area - x) ** 2 - Z**2 * ratio * newcombe(x, m, n), *between)
        for between in ((1e-9, area), (area, 1 - 1e-9))
    ]
    got = estimates("auroc", [scores], [present])
    assert got["finding 0"].value == pytest.approx(area)
    assert (got["finding 0"].low, got["finding 0"].high) == pytest.approx(bounds, abs=1e-6)
    assert (got[MACRO].low, got[MACRO].high) == (got["finding 0"].low, got["finding 0"].high)


def test_a_perfect_area_has_an_interval_with_width() -> None:
    """As many patients as the variance of Newcombe needs to reach 1 from below, with no ratio of DeLong's."""
    present = np.arange(30) < 8
    got = estimates("auroc", [present * 0.9], [present])["finding 0"]
    low = brentq(lambda x: (1 - x) ** 2 - Z**2 * newcombe(x, 8, 22), 1e-9, 1 - 1e-9)
    assert (got.value, got.high) == (1.0, 1.0)
    assert got.low == pytest.approx(low, abs=1e-6)


def test_bounds_of_one_average_precision() -> None:
    """Six of 16 with the finding; ranks of the positives 1, 2, 4, 5, 7 and 9.

    Precision there is 1, 1, 3/4, 4/5, 5/7 and 6/9. The others above them, times 6/5, are 0, 6/5, 12/5, 18/5, 24/5 and
    6, and 0, 0, 1, 1, 2 and 3 negatives are above.
    """
    present = np.array([1, 1, 0, 1, 1, 0, 1, 0, 1, 0] + [0] * 6, bool)
    scores = np.linspace(0.95, 0.05, 16)
    value = np.mean([1, 1, 3 / 4, 4 / 5, 5 / 7, 6 / 9])
    others = np.arange(6) * 6 / 5
    called = others + np.array([0, 0, 1, 1, 2, 3]) + 1
    without = np.mean(others / called) / (1 - np.mean(1 / called))
    got = estimates("average_precision", [scores], [present])["finding 0"]
    assert got.value == pytest.approx(value) == average_precision_score(present, scores)
    ratio = _ratio_of_precision(scores, present, value)
    centre, size = value + 0.4 * (without - value), 6 / ratio
    low = proportion_confint(size * centre, size, 2 * norm.sf(t.ppf(0.975, 5)), method="wilson")[0]
    high = proportion_confint(size * centre, size, method="wilson")[1]
    assert (got.low, got.high) == pytest.approx((low, max(high, value)), abs=1e-6)


def test_average_precision_of_a_common_finding_has_t_of_patients_without_it() -> None:
    """Of 62 patients, 12 lack the finding: 11 degrees of freedom."""
    scores, present = column(50, 12, 11)
    value = average_precision_score(present, scores)
    positive = np.sort(scores[present])[::-1]
    others = np.arange(50) * 50 / 49
    called = others + (scores[~present][:, None] > positive).sum(0) + 1
    without = np.mean(others / called) / (1 - np.mean(1 / called))
    centre, size = value + 0.4 * (without - value), 50 / _ratio_of_precision(scores, present, value)
    alpha = 2 * norm.sf(t.ppf(0.975, 11))
    low, high = proportion_confint(size * centre, size, alpha, method="wilson")
    got = estimates("average_precision", [scores], [present])["finding 0"]
    assert (got.low, got.high) == pytest.approx((low, max(high, value)), abs=1e-6)


def test_bounds_of_a_macro_of_average_precision() -> None:
    """Two copies of a finding that 20 of 80 patients have: their covariance is the variance by the derivatives."""
    scores, present = column(20, 60, 12)
    value = average_precision_score(present, scores)
    others = np.arange(20) * 20 / 19
    called = others + (scores[~present][:, None] > np.sort(scores[present])[::-1]).sum(0) + 1
    centre = value + 0.4 * (np.mean(others / called) / (1 - np.mean(1 / called)) - value)
    common = (2 * 20 * centre + 0.5) / (2 * 20 + 1)
    drawn = (20 * centre + common) / 21
    one = _ratio_of_precision(scores, present, value) * drawn * (1 - drawn) / 20
    variance = (one + _variance_of_precision(scores, present, value)) / 2 * (1 + 5 / 80) ** 2
    size, alpha = drawn * (1 - drawn) / variance, 2 * norm.sf(t.ppf(0.975, 2 * (20 - 1 + 12)))
    low, high = proportion_confint(size * centre, size, alpha, method="wilson")
    got = estimates("average_precision", [scores] * 2, [present] * 2)[MACRO]
    assert (got.low, got.high) == pytest.approx((low, max(high, value)), abs=1e-5)


def _variance_of_precision(scores: np.ndarray, present: np.ndarray, value: float) -> float:
    """The variance by derivatives, which are differences of weighted scores."""
    step, n = 1e-6, len(scores)
    moved = [average_precision_score(present, scores, sample_weight=1 + step * (np.arange(n) == i)) for i in range(n)]
    return float(n / (n - 1) * (((np.array(moved) - value) / step) ** 2).sum())


def _ratio_of_precision(scores: np.ndarray, present: np.ndarray, value: float) -> float:
    m = present.sum()
    own = _variance_of_precision(scores, present, value)
    return float(((m - 1) * own / (value * (1 - value) / m) + 12) / (m - 1 + 12))


def test_a_macro_of_two_like_findings_is_narrower_than_each() -> None:
    one, other = column(20, 40, 5), column(20, 40, 6)
    for metric in ("auroc", "average_precision"):
        got = estimates(metric, [one[0], other[0]], [one[1], other[1]])
        widths = [got[name].high - got[name].low for name in (MACRO, "finding 0", "finding 1")]
        assert widths[0] < 0.9 * np.mean(widths[1:])
        assert got[MACRO].low < got[MACRO].value < got[MACRO].high


def influences(scores: np.ndarray, present: np.ndarray) -> np.ndarray:
    """DeLong's structural components of every study, each divided by the size of its class."""
    wins = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    area = roc_auc_score(present, scores)
    of_positive, of_negative = wins[:, ~present].mean(1) - area, wins[present].mean(0) - area
    return np.where(present, of_positive / present.sum(), of_negative / (~present).sum())


def test_bounds_of_a_macro_of_areas() -> None:
    """Each finding's ratio is averaged with that of all findings and of one further finding with the ratio 1.

    The third finding's ranking is perfect and says nothing about ratios.
    """
    columns = [column(12, 48, 9), column(30, 30, 10, skill=2.5), (np.linspace(1, 0, 60), np.arange(60) < 8)]
    areas, sizes = [roc_auc_score(present, scores) for scores, present in columns], np.array([12, 30, 8])
    own = [
        delong(scores, present) / newcombe(min(area, 1 - 1 / (4 * present.sum())), present.sum(), (~present).sum())
        for (scores, present), area in zip(columns, areas, strict=True)
    ]
    weights = (sizes - 1) / (sizes - 1 + 12)
    mean = ((weights * own)[:2].sum() + 1) / (weights[:2].sum() + 1)
    ratios = weights * np.append(own[:2], mean) + (1 - weights) * mean
    common = ((sizes * areas).sum() + 0.5) / (sizes.sum() + 1)
    drawn = (sizes * areas + common) / (sizes + 1)
    parts = ratios * [newcombe(x, m, 60 - m) for x, m in zip(drawn, sizes, strict=True)]
    one, other, _ = (influences(*each) for each in columns)  # those of a perfect ranking are 0
    variance = (parts.sum() + 2 * 60 / 59 * one @ other) / 9
    freedom = parts.sum() ** 2 / (parts**2 / (sizes - 1 + 12)).sum()
    macro, quantile = np.mean(areas), t.ppf(0.975, freedom)
    size = drawn.mean() * (1 - drawn.mean()) / variance
    bounds = [
        brentq(lambda x: (macro - x) ** 2 - quantile**2 * x * (1 - x) / size, *between)
        for between in ((1e-9, macro), (macro, 1 - 1e-9))
    ]
    got = estimates("auroc", *zip(*columns, strict=True))[MACRO]
    assert (got.low, got.high) == pytest.approx(bounds, abs=1e-5)


def test_copies_of_a_finding_have_its_interval_as_their_macro() -> None:
    """Perfectly correlated findings average out nothing; Wilson's form differs from Newcombe's by little here."""
    scores, present = column(60, 80, 7)
    got = estimates("auroc", [scores] * 3, [present] * 3)
    assert got[MACRO].low == pytest.approx(got["finding 0"].low, abs=0.01)
    assert got[MACRO].high == pytest.approx(got["finding 0"].high, abs=0.01)


def test_patients_with_several_images_count_once() -> None:
    """Five copies of every study, each patient's own, leave the interval as it was."""
    scores, present = column(15, 30, 8)
    patients = [f"p{i}" for i in range(45)]
    for metric in ("auroc", "average_precision"):
        one = estimates(metric, [scores], [present], patients=patients)["finding 0"]
        five = estimates(metric, [np.tile(scores, 5)], [np.tile(present, 5)], patients=patients * 5)["finding 0"]
        assert five.value == pytest.approx(one.value, abs=0.01)  # the copies tie
        assert (five.low, five.high) == pytest.approx((one.low, one.high), abs=0.02)


def test_few_patients_have_no_interval_and_the_reason() -> None:
    columns = [column(5, 55, 1), column(4, 56, 2), column(56, 4, 3)]
    for metric in ("auroc", "average_precision"):
        got = estimates(metric, *zip(*columns, strict=True))
        assert not math.isnan(got["finding 0"].low)
        for name in ("finding 1", "finding 2"):
            assert math.isnan(got[name].low)
            assert got[name].missing_interval == "fewer than 5 patients with it or without it"
        assert math.isnan(got[MACRO].low) is (metric == "average_precision")
    assert got[MACRO].missing_interval == "2 of 3 findings have fewer than 5 patients with it or without it"
    none = estimates("auroc", *zip(*columns[1:], strict=True))
    assert none[MACRO].missing_interval == "no finding with 5 patients with it and without it"
