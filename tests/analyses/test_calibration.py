"""Calibration, risk and net benefit: hand arithmetic, and scikit-learn where it has them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from reveal_bench.analyses.calibration import (
    area_under_risk,
    calibration_error,
    net_benefits,
    recalibration,
    reliability,
    risk_coverage,
)
from reveal_bench.arguments import ArgumentError

RNG = np.random.default_rng(7)
P = RNG.random(500).round(3)
Y = RNG.random(500) < P**1.5


@pytest.mark.parametrize(("binning", "strategy"), [("width", "uniform"), ("count", "quantile")])
def test_bins_are_those_of_scikit_learn(binning, strategy) -> None:
    p = (np.argsort(np.argsort(P, kind="stable")) + 0.5) / 500  # none on a limit, no ties
    bins = reliability(p, Y, n_bins=10, binning=binning)
    rate, statements = calibration_curve(Y, p, n_bins=10, strategy=strategy)
    np.testing.assert_allclose([one.rate.value for one in bins], rate)
    np.testing.assert_allclose([one.said for one in bins], statements)
    assert sum(one.n for one in bins) == 500


def test_limits_belong_to_the_bin_above_and_one_to_the_last() -> None:
    bins = reliability(np.array([0.0, 0.5, 1.0]), np.array([False, True, True]), n_bins=2)
    rows = [(one.low, one.high, one.n, one.said, one.rate.value) for one in bins]
    assert rows == [(0, 0.5, 1, 0, 0), (0.5, 1, 2, 0.75, 1)]


def test_decimals_on_a_limit_are_above_it() -> None:
    p = np.array([i / 100 for i in range(100)])  # 0.29 * 100 is 28.999...
    assert [one.n for one in reliability(p, p > 0.5, n_bins=100)] == [1] * 100


def test_equal_probabilities_share_a_bin() -> None:
    p, y = np.array([0.2] * 6 + [0.9] * 2), np.array([True] * 3 + [False] * 5)
    bins = reliability(p, y, n_bins=4, binning="count")
    assert [(one.low, one.high, one.n, one.rate.value) for one in bins] == [(0.2, 0.2, 6, 0.5), (0.9, 0.9, 2, 0.0)]
    assert calibration_error(bins) == pytest.approx((6 * 0.3 + 2 * 0.9) / 8)


def test_the_area_is_the_mean_over_all_orders_of_equally_sure_cases() -> None:
    sure = np.array([0.9, 0.7, 0.7, 0.7, 0.4])
    right = np.array([True, False, True, True, False])
    areas = []
    for middle in permutations(range(1, 4)):
        wrong = np.cumsum([not right[i] for i in (0, *middle, 4)])
        areas.append(np.mean(wrong / np.arange(1, 6)))
    assert area_under_risk(sure, right) == pytest.approx(np.mean(areas))
    coverage, risk = risk_coverage(sure, right)
    assert coverage.tolist() == [0.2, 0.8, 1.0]
    assert risk.tolist() == [0.0, 0.25, 0.4]


def test_net_benefit_is_that_of_vickers_and_elkin() -> None:
    # 100 cases: acting from .25 on acts on 30, of which 20 have it: (20 - 10 * .25 / .75) / 100
    p = np.concatenate([np.full(30, 0.25), np.full(70, 0.2)])
    y = np.concatenate([np.full(20, True), np.full(80, False)])
    assert net_benefits(p, y, np.array([0.25])).mean() == pytest.approx((20 - 10 / 3) / 100)
    assert net_benefits(p, y, np.array([0.26])).mean() == 0


def test_recalibration_is_that_of_statsmodels(rng: np.random.Generator) -> None:
    import statsmodels.api as sm

    family, n_defined = sm.families.Binomial(), 0
    for n in rng.integers(5, 200, 60).tolist():
        logits = rng.normal(rng.normal(), rng.choice([0.1, 1, 3]), n)
        p = 1 / (1 + np.exp(-logits))
        y = rng.random(n) < 1 / (1 + np.exp(-(rng.normal() + rng.choice([0, 0.5, 2]) * logits)))
        fit = recalibration(p, y)
        if fit.reason:
            continue
        n_defined += 1
        design = np.column_stack([np.ones(n), np.log(p / (1 - p))])
        whole = sm.GLM(y.astype(float), design, family=family).fit(tol=1e-14, maxiter=200)
        assert fit.slope == pytest.approx(whole.params[1], rel=1e-8, abs=1e-8)
        large = sm.GLM(y.astype(float), design[:, :1], offset=design[:, 1], family=family).fit(tol=1e-14, maxiter=200)
        assert fit.intercept == pytest.approx(large.params[0], rel=1e-8, abs=1e-8)
    assert n_defined > 30


def test_recalibration_without_a_patient_is_nearly_a_new_fit(rng: np.random.Generator) -> None:
    p = rng.random(120).clip(0.02, 0.98)
    y, units = rng.random(120) < p, np.arange(120) // 2
    fit = recalibration(p, y, units=units, n_units=60)
    again = [recalibration(p[units != unit], y[units != unit]) for unit in range(60)]
    np.testing.assert_allclose(fit.slopes, [one.slope for one in again], atol=0.02)
    np.testing.assert_allclose(fit.intercepts, [one.intercept for one in again], atol=0.002)


@pytest.mark.parametrize(
    ("p", "y", "reason", "has_intercept"),
    [
        ([0.0, 0.4, 0.6], [0, 1, 0], "a probability is 0 or 1", False),
        ([1.0, 0.4, 0.6], [1, 1, 0], "a probability is 0 or 1", False),
        ([0.3, 0.4], [1, 1], "all cases have the event", False),
        ([0.3, 0.4], [0, 0], "no case has the event", False),
        ([0.3, 0.3, 0.3], [0, 1, 0], "all probabilities are equal", True),
        ([0.2, 0.3, 0.6], [0, 0, 1], "a threshold separates the cases with the event from the others", True),
        ([0.2, 0.3, 0.3, 0.6], [0, 0, 1, 1], "a threshold separates the cases with the event from the others", True),
        ([0.2, 0.3, 0.6], [1, 1, 0], "a threshold separates the cases with the event from the others", True),
    ],
)
def test_recalibration_is_undefined_with_a_reason(p, y, reason, has_intercept) -> None:
    fit = recalibration(np.array(p), np.array(y, bool))
    assert np.isnan(fit.slope)
    assert np.isnan(fit.slopes).all()
    assert (fit.reason, not np.isnan(fit.intercept)) == (reason, has_intercept)


def test_calibration_in_the_large_of_equal_probabilities() -> None:
    # All say 0.2 and 3 of 4 happen: logit(3/4) - logit(1/5) = log 3 + log 4
    fit = recalibration(np.full(4, 0.2), np.array([True, True, True, False]))
    assert fit.intercept == pytest.approx(np.log(12))


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: reliability(np.array([]), np.array([], bool)), "`probabilities` must be as many as `happened`"),
        (lambda: reliability(np.array([0.5]), np.array([True, False])), "must be as many as `happened`"),
        (lambda: reliability(np.array([1.5]), np.array([True])), r"must be in \[0, 1\]; for logits, .*, got 1.5"),
        (lambda: reliability(np.array([np.nan]), np.array([True])), r"must be in \[0, 1\]; .*, got nan"),
        (lambda: reliability(P, Y, n_bins=0), r"`n_bins` must be a whole number in \[1, 100\], got 0"),
        (lambda: reliability(P, Y, n_bins=True), "must be a whole number"),
        (lambda: reliability(P, Y, binning="height"), "must be 'width' or 'count', got 'height'"),  # type: ignore[arg-type]
        (lambda: net_benefits(P, Y, np.array([0.5, 1.0])), "must be between 0 and 1, both excluded"),
    ],
)
def test_what_has_no_value_is_refused(call, rule) -> None:
    with pytest.raises(ArgumentError, match=rule):
        call()
