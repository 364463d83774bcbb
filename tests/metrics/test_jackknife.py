"""Intervals by the jackknife against a plain version that deletes each patient, and when nothing is printed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, t

from reveal_bench.metrics.bootstrap import estimate_cases
from reveal_bench.metrics.estimates import estimate_agreement, estimate_labels
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.jackknife import (
    LEAST_UNITS,
    LEAST_UNITS_OF_KAPPA,
    LEAST_UNITS_OF_MEAN,
    Evidence,
    jackknife_ends,
    t_quantile,
)

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Statistic = Callable[[npt.NDArray[np.int64]], float]

N_PATIENTS = 24
PATIENTS = np.repeat(np.arange(N_PATIENTS), [1, 2, 3] * (N_PATIENTS // 3))
NAMES = [f"p{patient:02d}" for patient in PATIENTS]


def deleted(statistic: Statistic) -> tuple[float, float, float, float]:
    """Value, standard error, bias and degrees of freedom, patients deleted one after another."""
    value = statistic(np.arange(len(PATIENTS)))
    without = [statistic(np.flatnonzero(patient != PATIENTS)) for patient in range(N_PATIENTS)]
    mean = math.fsum(without) / N_PATIENTS
    total = math.fsum((v - mean) ** 2 for v in without)
    fourth = math.fsum((v - mean) ** 4 for v in without)
    error = math.sqrt((N_PATIENTS - 1) / N_PATIENTS * total)
    spread = fourth - total**2 / N_PATIENTS
    freedom = 2 * total**2 / spread if spread > 0 else math.inf
    return value, error, (N_PATIENTS - 1) * (mean - value), freedom


def wilson(share: float, n: float, z: float = norm.ppf(0.975)) -> list[float]:
    """Find where the score statistic equals the normal or the t quantile: roots, not the closed form."""

    def score(p: float) -> float:
        return float((share - p) ** 2 - z**2 * p * (1 - p) / n)

    low = 0.0 if share == 0 else brentq(score, 0, share - 1e-12, xtol=1e-14)
    return [low, 1.0 if share == 1 else brentq(score, share + 1e-12, 1, xtol=1e-14)]


def wilson_of(statistic: Statistic, *, of_t: bool) -> list[float]:
    """Return the Wilson interval for the effective size that the spread implies."""
    value, error, _, freedom = deleted(statistic)
    return wilson(value, value * (1 - value) / error**2, (t.ppf(0.975, freedom) if of_t else norm.ppf(0.975)))


def wilson_of_kappa(statistic: Statistic, one: BoolArray, other: BoolArray) -> list[float]:
    """Return the interval on a scale that begins at the lowest kappa for the two raters' own rates."""
    value, error, _, _ = deleted(statistic)
    often, often_of_other = one.mean(), other.mean()
    chance = often * often_of_other + (1 - often) * (1 - often_of_other)
    lowest = (abs(often + often_of_other - 1) - chance) / (1 - chance)
    share, error = (value - lowest) / (1 - lowest), error / (1 - lowest)
    return [lowest + (1 - lowest) * end for end in wilson(share, share * (1 - share) / error**2)]


def on_arcsine(statistic: Statistic, low: float = 0.0, high: float = 1.0) -> list[float]:
    return spread_on_arcsine(*deleted(statistic), low, high)


def spread_on_arcsine(value: float, error: float, bias: float, freedom: float, low: float, high: float) -> list[float]:
    centre = math.asin(math.sqrt((value - bias - low) / (high - low)))
    share = (value - low) / (high - low)
    reach = t.ppf(0.975, freedom) * error / (high - low) / (2 * math.sqrt(share * (1 - share)))
    return [low + (high - low) * math.sin(min(max(x, 0), math.pi / 2)) ** 2 for x in (centre - reach, centre + reach)]


def macro_on_arcsine(
    statistics: Sequence[Statistic], behind: Sequence[int], *, pooled_freedom: float = 5.0
) -> list[float]:
    """A macro's interval on the scale of a share."""
    return spread_on_arcsine(*spread_of_macro(statistics, behind, 0.0, pooled_freedom=pooled_freedom), 0.0, 1.0)


def spread_of_macro(
    statistics: Sequence[Statistic], behind: Sequence[int], low: float, *, pooled_freedom: float
) -> tuple[float, float, float, float]:
    """Repeat `deleted` sum by sum: each finding's variance is steadied by some degrees of freedom of the pooled one."""
    k = len(statistics)
    spreads = [deleted(statistic) for statistic in statistics]
    values = [[s(np.flatnonzero(patient != PATIENTS)) for patient in range(N_PATIENTS)] for s in statistics]
    variances = [error**2 for _, error, _, _ in spreads]
    pooled = sum((m - 1) * m * v for m, v in zip(behind, variances, strict=True)) / sum(m - 1 for m in behind)
    # What is at an end of the scale says nothing of its spread
    own = [0 if spread[0] in (low, 1.0) else m - 1 for spread, m in zip(spreads, behind, strict=True)]
    steadied = [
        (f * m * v + pooled_freedom * pooled) / (f + pooled_freedom) / m
        for f, m, v in zip(own, behind, variances, strict=True)
    ]
    covariances = sum(
        (N_PATIENTS - 1) / N_PATIENTS * sum((x - np.mean(a)) * (y - np.mean(b)) for x, y in zip(a, b, strict=True))
        for i, a in enumerate(values)
        for j, b in enumerate(values)
        if i != j
    )
    freedom = sum(steadied) ** 2 / sum(v**2 / (f + pooled_freedom) for v, f in zip(steadied, own, strict=True))
    value, bias = (sum(spread[i] for spread in spreads) / k for i in (0, 2))
    error = math.sqrt(sum(steadied) + covariances) / k
    return value, error, bias, min(freedom, N_PATIENTS - 1)


def behind_of(finding: int) -> int:
    return len({patient for i, patient in enumerate(PATIENTS.tolist()) if i % 2 == finding})


def mean_of(values: FloatArray, finding: int) -> Statistic:
    of_case = np.arange(len(PATIENTS)) % 2

    def statistic(kept: npt.NDArray[np.int64]) -> float:
        return float(values[kept[of_case[kept] == finding]].mean())

    return statistic


def interval(estimates: Sequence[Estimate], metric: str, finding: str) -> list[float]:
    (one,) = [e for e in estimates if (e.metric, e.finding) == (metric, finding)]
    return [one.low, one.high]


def test_hit_rates_have_the_score_interval_of_their_effective_size(rng: np.random.Generator) -> None:
    hits = (rng.random(len(PATIENTS)) < 0.7).astype(float)
    findings = [f"f{i % 2}" for i in range(len(PATIENTS))]
    got = estimate_cases("point_hit", 1, hits, findings=findings, patients=NAMES)
    for i in (0, 1):
        expected = wilson_of(mean_of(hits, i), of_t=False)
        assert interval(got, "point_hit", f"f{i}") == pytest.approx(expected, abs=1e-9)
    expected = macro_on_arcsine([mean_of(hits, i) for i in (0, 1)], [behind_of(i) for i in (0, 1)])
    assert interval(got, "point_hit", "macro") == pytest.approx(expected, abs=2e-4)
    assert "|i:jackknife|" in got[0].signature


def test_iou_has_a_score_interval_with_t_and_its_macro_one_on_the_arcsine_scale(rng: np.random.Generator) -> None:
    values = rng.random(len(PATIENTS)) ** 3
    findings = [f"f{i % 2}" for i in range(len(PATIENTS))]
    got = estimate_cases("mask_iou", 1, values, findings=findings, patients=NAMES)
    for i in (0, 1):
        assert interval(got, "mask_iou", f"f{i}") == pytest.approx(wilson_of(mean_of(values, i), of_t=True), abs=5e-4)
    expected = macro_on_arcsine([mean_of(values, i) for i in (0, 1)], [behind_of(i) for i in (0, 1)])
    assert interval(got, "mask_iou", "macro") == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("metric", ["f1", "cohen_kappa"])
def test_f1_and_kappa_equal_deletion_of_each_patient(metric: str, rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score, f1_score

    present = rng.random((len(PATIENTS), 2)) < [0.5, 0.4]
    predicted = present ^ (rng.random(present.shape) < 0.2)
    of = {"f1": f1_score, "cohen_kappa": cohen_kappa_score}[metric]

    def statistic(i: int) -> Statistic:
        return lambda kept: float(of(present[kept, i], predicted[kept, i]))

    got = estimate_labels(predicted, present, labels=["a", "b"], patients=NAMES)
    is_kappa = metric == "cohen_kappa"
    for i, name in enumerate("ab"):
        single = (
            wilson_of_kappa(statistic(i), present[:, i], predicted[:, i])
            if is_kappa
            else wilson_of(statistic(i), of_t=False)
        )
        assert interval(got, metric, name) == pytest.approx(single, abs=2e-4)
    behind = [len(set(PATIENTS[present[:, i] | predicted[:, i]].tolist())) for i in (0, 1)]
    statistics = [statistic(0), statistic(1)]
    expected = macro_on_arcsine(statistics, behind, pooled_freedom=2.0)
    if is_kappa:  # on its own scale
        value, error, bias, freedom = spread_of_macro(statistics, behind, -1.0, pooled_freedom=2.0)
        expected = [value - bias + side * t.ppf(0.975, freedom) * error for side in (-1, 1)]
    assert interval(got, metric, "macro") == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize(("weights", "suffix"), [(None, ""), ("linear", "_linear")])
@pytest.mark.parametrize("n_categories", [2, 3])
def test_kappa_of_two_readers(n_categories: int, weights: str | None, suffix: str, rng: np.random.Generator) -> None:
    """Two categories give a score interval from the lowest kappa; three give one on the arcsine scale."""
    from sklearn.metrics import cohen_kappa_score

    a = rng.integers(0, n_categories, len(PATIENTS))
    b = np.where(rng.random(len(PATIENTS)) < 0.25, rng.integers(0, n_categories, len(PATIENTS)), a)

    def statistic(kept: npt.NDArray[np.int64]) -> float:
        return float(cohen_kappa_score(a[kept], b[kept], weights=weights))

    got = estimate_agreement(a, b, n_categories=n_categories, patients=NAMES)
    expected = wilson_of_kappa(statistic, a == 1, b == 1) if n_categories == 2 else on_arcsine(statistic, -1.0)
    assert interval(got, f"cohen_kappa{suffix}", "all") == pytest.approx(expected, abs=2e-4)


def test_readers_who_never_agree_have_an_interval_from_lowest_kappa() -> None:
    # Each of 20 cases of 20 patients: 10 found by one, 5 others by the other. Chance 1/2 1/4 + 1/2 3/4 = 1/2,
    # agreement 5/20: kappa -1/2, the lowest. Wilson of 0 in .75 of 15: 0 to z2 / (11.25 + z2), on a scale of 3/2
    a, b = np.repeat([1, 0, 0], [10, 5, 5]), np.repeat([0, 1, 0], [10, 5, 5])
    square = norm.ppf(0.975) ** 2
    got = estimate_agreement(a, b, n_categories=2)
    expected = [-0.5, -0.5 + 1.5 * square / (11.25 + square)]
    assert interval(got, "cohen_kappa", "all") == pytest.approx(expected, abs=1e-9)


def test_a_macro_of_one_finding_has_its_interval(rng: np.random.Generator) -> None:
    called, truth = rng.random((2, 60, 1)) < 0.4
    for metric, values in (("point_hit", rng.random(40) < 0.8), ("mask_iou", rng.random(40) ** 3)):
        got = estimate_cases(metric, 1, np.asarray(values, float))
        assert interval(got, metric, "macro") == interval(got, metric, "all")
    for metric in ("f1", "cohen_kappa"):
        got = estimate_labels(called, truth, labels=["COPD"])
        assert interval(got, metric, "macro") == interval(got, metric, "COPD")


def test_agreement_has_no_interval_where_a_rare_category_decides_or_nobody_differs() -> None:
    a = np.repeat([1, 0], [11, 29])
    for n_ones, printed in ((11, False), (12, True)):  # whom either reader calls present, 40 rated
        got = estimate_agreement(np.repeat([1, 0], [n_ones, 40 - n_ones]), a, n_categories=2)
        assert np.isnan(interval(got, "cohen_kappa", "all")).all() != printed
        assert interval(got, "gwet_ac1", "all")[1] == pytest.approx(1)
    same = estimate_agreement(a, a, n_categories=2)
    assert np.isnan(interval(same, "mean_absolute_difference", "all")).all()


def test_a_finding_at_an_end_of_the_scale_lends_the_macro_the_pooled_spread(rng: np.random.Generator) -> None:
    values = np.where(np.arange(len(PATIENTS)) % 2, 1.0, rng.random(len(PATIENTS)))
    findings = [f"f{i % 2}" for i in range(len(PATIENTS))]
    got = estimate_cases("mask_iou", 1, values, findings=findings, patients=NAMES)
    statistics = [mean_of(values, 0), lambda kept: 1.0]
    expected = macro_on_arcsine(statistics, [behind_of(i) for i in (0, 1)])
    assert interval(got, "mask_iou", "macro") == pytest.approx(expected, abs=2e-4)


def test_a_macro_has_an_interval_though_a_finding_is_of_one_patient() -> None:
    """Its spread comes from the other finding: one patient has ten times the variance of a mean of ten."""
    values = np.array([0.0, 1.0] * 5 + [0.5])
    findings = ["often"] * 10 + ["once"]
    got = estimate_cases("mask_iou", 1, values, findings=findings)
    macro, often, once = got
    assert math.isnan(once.low)
    variance = 10 / 9 * 0.25 / 10  # of the often one's mean: sum of squares / (n (n - 1))
    per_patient = 10 * variance
    steadied = [(9 * per_patient + 5 * per_patient) / 14 / 10, per_patient]
    freedom = min(sum(steadied) ** 2 / (steadied[0] ** 2 / 14 + steadied[1] ** 2 / 5), 10)
    error = math.sqrt(sum(steadied)) / 2
    expected = spread_on_arcsine(0.5, error, 0.0, freedom, 0.0, 1.0)
    assert [macro.low, macro.high] == pytest.approx(expected, abs=0.02)
    assert often.high - often.low < macro.high - macro.low


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_constant_scores_use_the_number_of_patients(share: float) -> None:
    got = estimate_cases("mask_iou", 1, np.full(len(PATIENTS), share), patients=NAMES)
    for finding in ("all", "macro"):
        assert interval(got, "mask_iou", finding) == pytest.approx(wilson(share, N_PATIENTS), abs=1e-9)


@pytest.mark.parametrize(
    ("low", "least"), [(0.0, LEAST_UNITS), (0.1, LEAST_UNITS_OF_MEAN)], ids=["shares", "other means"]
)
@pytest.mark.parametrize("is_one_short", [True, False])
def test_too_few_patients_have_no_interval(low: float, least: int, is_one_short: bool) -> None:
    # f1 is only of the first n patients; the 60 of f0 suffice for the macro
    values, n = np.tile([low, 1.0], 40), least - is_one_short
    findings, patients = [*["f0"] * 60, *["f1"] * 20], [f"p{i:02d}" for i in [*range(60), *[j % n for j in range(20)]]]
    macro, _, rare = estimate_cases("mask_iou", 1, values, findings=findings, patients=patients)
    assert not math.isnan(macro.low)
    assert math.isnan(rare.low) == math.isnan(rare.high) == is_one_short
    assert rare.value == pytest.approx((low + 1) / 2)


def test_the_macro_of_one_finding_has_an_interval_where_that_has() -> None:
    for n in (LEAST_UNITS_OF_MEAN - 1, LEAST_UNITS_OF_MEAN):
        macro, only = estimate_cases("mask_iou", 1, np.linspace(0.1, 0.9, n), findings=["f"] * n)
        assert math.isnan(macro.low) == math.isnan(only.low) == (n < LEAST_UNITS_OF_MEAN)


@pytest.mark.parametrize("is_one_short", [True, False])
def test_kappa_needs_more_patients_than_f1(is_one_short: bool) -> None:
    n = LEAST_UNITS_OF_KAPPA - is_one_short  # called by reader or model, who differ in one
    present, predicted = (np.arange(60)[:, None] < [n - 1, 30]), np.arange(60)[:, None] < [n, 30]
    of = {e.metric: e for e in estimate_labels(predicted, present, labels=["few", "many"]) if e.finding == "few"}
    assert math.isnan(of["cohen_kappa"].low) == is_one_short
    assert not math.isnan(of["f1"].low)


def test_score_without_patients_has_no_interval_and_no_warning() -> None:
    yes, no = np.array([True]), np.array([False])
    evidence = Evidence(np.zeros((10, 1)), np.array([0]), no, yes, (0.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(jackknife_ends(np.array([0.0]), evidence)).all()


def test_no_interval_leaves_a_scale_that_ends_on_one_side() -> None:
    # nine differences of 0 and one of 1: mean and standard error 0.1, t of the least 3 degrees 3.182: -0.218 to 0.418
    rows = np.array([0.0] * 9 + [1.0])
    yes, no = np.array([True]), np.array([False])
    evidence = Evidence((rows.sum() - rows)[:, None] / 9, np.array([10]), yes, no, (0.0, np.inf))
    assert jackknife_ends(np.array([0.1]), evidence).ravel() == pytest.approx([0, 0.4182], abs=1e-3)


def test_the_quantile_of_t_is_that_of_scipy() -> None:
    freedom = np.array([3.0, 4.5, 10.0, 200.0, np.inf])
    np.testing.assert_allclose(t_quantile(freedom), t.ppf(0.975, freedom), rtol=5e-3)
    np.testing.assert_allclose(t_quantile(freedom)[1:], t.ppf(0.975, freedom[1:]), rtol=1e-3)


def test_areas_have_no_interval_where_few_have_the_label_or_few_have_it_not() -> None:
    present = np.zeros((60, 3), bool)
    present[:LEAST_UNITS, 0], present[: LEAST_UNITS - 1, 1], present[LEAST_UNITS - 1 :, 2] = True, True, True
    scores = np.random.default_rng(2).random(present.shape)
    options = {"scores": scores, "labels": ["enough", "few", "few without"]}
    for interval, bare in (("jackknife", {"few", "few without"}), ("percentile", set[str]())):
        got = estimate_labels(scores > 0.5, present, **options, resampling=Resampling(50, interval=interval))  # type: ignore[arg-type]
        for metric in ("auroc", "average_precision"):
            assert {e.finding for e in got if e.metric == metric and math.isnan(e.low)} == bare
