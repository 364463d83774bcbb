"""Intervals by the jackknife against a plain version that deletes each patient, and when nothing is printed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm, t

from reveal_bench.metrics.agreement_estimates import estimate_agreement
from reveal_bench.metrics.bootstrap import estimate_cases
from reveal_bench.metrics.estimates import estimate_labels
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.jackknife import (
    LEAST_UNITS_OF_KAPPA,
    LEAST_UNITS_OF_MEAN,
    LEAST_UNITS_OF_SHARE,
    Evidence,
    share_bounds,
    t_quantile,
)

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Statistic = Callable[[npt.NDArray[np.int64]], float]

FEW_DRAWS = Resampling(2)  # the jackknife needs none
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


def macro_of_shares(
    statistics: Sequence[Statistic],
    behind: Sequence[int],
    variance: Callable[[float, float], float] = lambda p, n: p * (1 - p) / n,
    bias: Callable[[float, float], float] = lambda p, n: 0.0,
    errors_count: bool = False,
    of_means: bool = False,
) -> list[float]:
    """Find where the score statistic of a macro equals the t quantile; variances as described for macros.

    `variance` and `bias` are those of the score among n patients if its true value is p. If `errors_count`, degrees of
    freedom are at most twice the expected errors. `of_means` is True for means such as IoU.
    """
    k, macro = len(statistics), sum(deleted(statistic)[0] for statistic in statistics) / len(statistics)
    values = [deleted(statistic)[0] for statistic in statistics]
    likely = [(n * v + 2 * macro) / (n + 2) for v, n in zip(values, behind, strict=True)]
    own = [0 if v in (0, 1) else n - 1 for v, n in zip(values, behind, strict=True)]
    ratios = [  # the jackknife's variance of k of n independent patients is k (n - k) / n**2 / (n - 1)
        0.0 if f == 0 else deleted(s)[1] ** 2 / (variance(v, 1e12) * 1e12 / n) * (n - 1) / n
        for s, v, n, f in zip(statistics, values, behind, own, strict=True)
    ]
    if of_means:  # if c v (1 - v) / n is the variance S, and the mean of v (1 - v) is lower than the true one by S
        of_all = zip(statistics, values, behind, own, strict=True)
        ratios = [n / (1 + v * (1 - v) / deleted(s)[1] ** 2) if f else 0.0 for s, v, n, f in of_all]
    common = sum(f * r for f, r in zip(own, ratios, strict=True)) / sum(own)
    effects = [(f * r + 2 * common) / (f + 2) for f, r in zip(own, ratios, strict=True)]
    parts = [e * variance(m, n) for e, m, n in zip(effects, likely, behind, strict=True)]
    freedom = sum(parts) ** 2 / sum(v**2 / (f + 2) for v, f in zip(parts, own, strict=True))
    if errors_count:
        freedom = min(freedom, 2 * sum(n * m * (1 - m) for m, n in zip(likely, behind, strict=True)))
    error = math.sqrt(sum(parts) + covariance_of_two(statistics, parts)) / k
    centre = macro - sum(e * bias(m, n) for e, m, n in zip(effects, likely, behind, strict=True)) / k
    return wilson(centre, centre * (1 - centre) / error**2, t.ppf(0.975, min(freedom, N_PATIENTS - 1)))


def covariance_of_two(statistics: Sequence[Statistic], variances: Sequence[float]) -> float:
    """Return what the correlation of two findings, that of the scores without each patient, adds to their variances."""
    values = [[s(np.flatnonzero(patient != PATIENTS)) for patient in range(N_PATIENTS)] for s in statistics]
    constant = any(np.ptp(one) < 1e-12 for one in values)
    return 0.0 if constant else 2 * float(np.corrcoef(*values)[0, 1]) * math.sqrt(variances[0] * variances[1])


def f1_of(share: float) -> float:
    """F1 if a proportion of TP + FP + FN patients are TP."""
    return 2 * share / (1 + share)


def variance_of_f1(f1: float, n: float) -> float:
    """Between the exact variance of one patient, whose F1 is 0 or 1, and the delta method's, linear in 1 / n."""
    share, step = f1 / (2 - f1), 1e-6
    slope = (f1_of(share + step) - f1_of(share - step)) / (2 * step)
    of_many, of_one = share * (1 - share) * slope**2, share * (1 - share)
    return (of_many + (of_one - of_many) / n) / n


def bias_of_f1(f1: float, n: float) -> float:
    """The same for the bias: of one patient, the proportion less F1; of many, half the curvature times the variance."""
    share, step = f1 / (2 - f1), 1e-4
    curvature = (f1_of(share + step) - 2 * f1_of(share) + f1_of(share - step)) / step**2
    of_many = curvature * share * (1 - share) / 2
    return (of_many + (share - f1 - of_many) / n) / n


def spread_of_macro(
    statistics: Sequence[Statistic], behind: Sequence[int], low: float, *, pooled_freedom: float
) -> tuple[float, float, float, float]:
    """Repeat `deleted` sum by sum: each finding's variance is steadied by some degrees of freedom of the pooled one."""
    k = len(statistics)
    spreads = [deleted(statistic) for statistic in statistics]
    variances = [error**2 for _, error, _, _ in spreads]
    pooled = sum((m - 1) * m * v for m, v in zip(behind, variances, strict=True)) / sum(m - 1 for m in behind)
    own = [0 if spread[0] in (low, 1.0) else m - 1 for spread, m in zip(spreads, behind, strict=True)]
    steadied = [
        (f * m * v + pooled_freedom * pooled) / (f + pooled_freedom) / m
        for f, m, v in zip(own, behind, variances, strict=True)
    ]
    covariance = covariance_of_two(statistics, steadied)
    freedom = sum(steadied) ** 2 / sum(v**2 / (f + pooled_freedom) for v, f in zip(steadied, own, strict=True))
    value, bias = (sum(spread[i] for spread in spreads) / k for i in (0, 2))
    error = math.sqrt(sum(steadied) + covariance) / k
    whole = deleted(lambda kept: sum(statistic(kept) for statistic in statistics) / k)[3]
    return value, error, bias, min(freedom, N_PATIENTS - 1, max(whole, 3))


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
    behind = [behind_of(i) for i in (0, 1)]
    expected = macro_of_shares([mean_of(hits, i) for i in (0, 1)], behind, errors_count=True)
    assert interval(got, "point_hit", "macro") == pytest.approx(expected, abs=2e-4)
    assert "|i:jackknife|" in got[0].signature


def test_iou_has_a_score_interval_with_t(rng: np.random.Generator) -> None:
    values = rng.random(len(PATIENTS)) ** 3
    findings = [f"f{i % 2}" for i in range(len(PATIENTS))]
    got = estimate_cases("mask_iou", 1, values, findings=findings, patients=NAMES)
    for i in (0, 1):
        assert interval(got, "mask_iou", f"f{i}") == pytest.approx(wilson_of(mean_of(values, i), of_t=True), abs=5e-4)
    expected = macro_of_shares([mean_of(values, i) for i in (0, 1)], [behind_of(i) for i in (0, 1)], of_means=True)
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
    if is_kappa:  # the rarer of presence and absence
        without = [len(set(PATIENTS[~(present[:, i] & predicted[:, i])].tolist())) for i in (0, 1)]
        behind = [min(pair) for pair in zip(behind, without, strict=True)]
    statistics = [statistic(0), statistic(1)]
    expected = macro_of_shares(statistics, behind, variance_of_f1, bias_of_f1)
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


def test_macro_kappa_stays_above_the_mean_of_its_findings_lowest() -> None:
    # Rates of 1/2 and 1/4 as above, so both findings' lowest is -1/2: never both, and once. The macro is -0.4.
    a = np.repeat([1, 0, 0], [10, 5, 5])
    b = np.repeat([0, 1, 0], [10, 5, 5])
    once = np.repeat([0, 1, 0, 1, 0], [9, 1, 0, 4, 6])
    got = estimate_labels(np.stack([a, a], axis=1), np.stack([b, once], axis=1), labels=["Edema", "Mass"])
    assert next(e.value for e in got if e.metric == "cohen_kappa") == pytest.approx(-0.4)
    assert interval(got, "cohen_kappa", "macro")[0] == pytest.approx(-0.5, abs=1e-12)


def test_macro_kappa_of_constant_decisions_starts_at_0() -> None:
    """Whoever never calls a finding present has a kappa of 0 at least: Wilson of 0 in 0.75 of the most patients."""
    truth = np.stack([np.arange(60) < 20, np.arange(60) < 30], axis=1)
    got = estimate_labels(np.zeros_like(truth), truth, labels=["Edema", "Mass"])
    square = norm.ppf(0.975) ** 2
    assert interval(got, "cohen_kappa", "macro") == pytest.approx([0, square / (22.5 + square)], abs=1e-9)


def test_intervals_of_scores_at_an_end_of_the_scale_end_exactly_there() -> None:
    """With 200 patients rounding would put the end of half of these intervals 1e-16 to 1e-13 beside it."""
    present = np.arange(200)[:, None] < np.array([21, 87, 55, 99, 40])
    for called, end in ((present, 1), (~present, 0), (np.zeros_like(present), 0)):
        got = [e for e in estimate_labels(called, present, labels=list("abcde")) if e.value in (0, 1)]
        assert all(e.low <= e.value <= e.high for e in got if e.has_interval)
        f1 = [e for e in got if e.metric == "f1" and e.has_interval]
        assert [(e.low, e.high)[end] for e in f1] == [end] * 6  # the macro, too


def test_bounds_of_a_share_next_to_1_are_near_those_of_1() -> None:
    """Wilson's lower bound of 87 in 87 is 87 / (87 + z^2)."""
    lower = share_bounds(np.array([0.9999, 1.0]), np.array([0.01, 0.0]), np.array([87.0, 87.0]))[0]
    assert lower == pytest.approx(87 / (87 + norm.ppf(0.975) ** 2), abs=0.03)


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


def test_a_finding_at_an_end_of_the_scale_has_the_variance_of_a_score_nearer_to_the_macro(
    rng: np.random.Generator,
) -> None:
    values = np.where(np.arange(len(PATIENTS)) % 2, 1.0, rng.random(len(PATIENTS)))
    findings = [f"f{i % 2}" for i in range(len(PATIENTS))]
    got = estimate_cases("mask_iou", 1, values, findings=findings, patients=NAMES)
    statistics = [mean_of(values, 0), lambda kept: 1.0]
    expected = macro_of_shares(statistics, [behind_of(i) for i in (0, 1)], of_means=True)
    assert interval(got, "mask_iou", "macro") == pytest.approx(expected, abs=2e-4)


def test_a_macro_has_an_interval_though_a_finding_is_of_one_patient() -> None:
    """The design effect comes from the other finding: variances are those of ten patients and of one."""
    values = np.array([0.0, 1.0] * 5 + [0.5])
    findings = ["often"] * 10 + ["once"]
    got = estimate_cases("mask_iou", 1, values, findings=findings)
    macro, _, once = got
    assert math.isnan(once.low)
    # Both scores and the macro are 1/2. 10/9 of 0.25 / 10 of the often one's mean is 9 / 10 of 0.25 / 9: ratio 1
    parts = [0.25 / 10, 0.25]
    freedom = min(sum(parts) ** 2 / (parts[0] ** 2 / 11 + parts[1] ** 2 / 2), 10)
    expected = wilson(0.5, 0.25 / (sum(parts) / 4), t.ppf(0.975, freedom))
    assert [once.reason, macro.reason] == ["fewer than 15 supporting patients", "wider than 75% of its scale"]
    assert expected[1] - expected[0] > 0.75


def test_perfect_findings_have_the_macro_interval_of_their_patients() -> None:
    """All of 12 and all of 4 patients are hits: the macro's variance is p (1 - p) (1/12 + 1/4) / 4, of 12 patients."""
    got = estimate_cases("point_hit", 1, np.ones(16), findings=["often"] * 12 + ["rare"] * 4)
    # No finding has degrees of freedom of its own: (1/12 + 1/4)**2 / ((1/12**2 + 1/4**2) / 2) = 3.2
    assert interval(got, "point_hit", "macro") == pytest.approx(wilson(1.0, 12, t.ppf(0.975, 3.2)), abs=1e-5)


def test_five_patients_have_an_interval_of_a_share_and_eight_of_f1() -> None:
    # proportion_confint(..., method="wilson") of statsmodels 0.14: of 5 in 5, 8 in 8, and 3.2 in 4, as the variance of
    # the jackknife is that of 4 patients
    got = estimate_cases("point_hit", 1, np.ones(5))
    assert interval(got, "point_hit", "all") == pytest.approx([0.565518, 1.0], abs=1e-6)
    got = estimate_cases("point_hit", 1, np.array([1.0, 1.0, 1.0, 1.0, 0.0]))
    assert interval(got, "point_hit", "all") == pytest.approx([0.336834, 0.969232], abs=1e-6)
    for n, expected in ((7, [math.nan, math.nan]), (8, [0.675592, 1.0])):
        present = np.arange(40)[:, None] < n
        got = estimate_labels(present, present, labels=["COPD"])
        assert interval(got, "f1", "COPD") == pytest.approx(expected, abs=1e-6, nan_ok=True)
        assert interval(got, "recall", "COPD")[1] == 1.0


def test_bounds_of_one_error_among_many_are_where_most_samples_have_none() -> None:
    # The jackknife's effective size of 29 hits in 30 is 29. A Poisson variable with mean m is 0 in exp(-m) of samples,
    # and 0 or 1 in exp(-m) (1 + m) of samples: 0.92 each
    one, two = -math.log(0.92), brentq(lambda m: math.exp(-m) * (1 + m) - 0.92, 0.1, 1)
    for n_errors, mean in ((1, one), (2, two)):
        hits = (np.arange(30) >= n_errors).astype(float)
        low, high = interval(estimate_cases("point_hit", 1, hits), "point_hit", "all")
        assert low == pytest.approx(wilson(1 - n_errors / 30, 29)[0], abs=1e-9)
        assert high == pytest.approx(1 - mean / 29, abs=2e-3)
        assert high > wilson(1 - n_errors / 30, 29)[1]
        assert interval(estimate_cases("point_hit", 1, 1 - hits), "point_hit", "all") == pytest.approx(
            [1 - high, 1 - low]
        )


@pytest.mark.parametrize(("n_called", "reason"), [(1, "fewer than 5 supporting patients"), (20, "")])
def test_a_missing_interval_has_its_reason(n_called: int, reason: str) -> None:
    present = np.arange(40)[:, None] < 20
    got = estimate_labels(np.arange(40)[:, None] < n_called, present, labels=["COPD"])
    assert [e.missing_interval for e in got if e.metric == "precision"] == [reason, reason]


@pytest.mark.parametrize("f1", [0.5, 0.78, 0.9, 0.97])
def test_moments_of_f1_are_near_those_of_a_binomial_count(f1: float) -> None:
    for n in (1, 2, 3, 5, 10, 1000):
        counts = np.arange(n + 1)
        p, scores = binom.pmf(counts, n, f1 / (2 - f1)), 2 * counts / (n + counts)
        variance = p @ scores**2 - (p @ scores) ** 2
        assert variance_of_f1(f1, n) == pytest.approx(variance, rel=1e-6 if n == 1 else 0.3)
        assert bias_of_f1(f1, n) == pytest.approx(p @ scores - f1, rel=1e-6 if n == 1 else 0.15)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_constant_scores_use_the_number_of_patients(share: float) -> None:
    got = estimate_cases("mask_iou", 1, np.full(len(PATIENTS), share), patients=NAMES)
    for finding in ("all", "macro"):
        assert interval(got, "mask_iou", finding) == pytest.approx(wilson(share, N_PATIENTS), abs=1e-9)


@pytest.mark.parametrize(
    ("low", "least"), [(0.0, LEAST_UNITS_OF_SHARE), (0.1, LEAST_UNITS_OF_MEAN)], ids=["shares", "other means"]
)
@pytest.mark.parametrize("is_one_short", [True, False])
def test_too_few_patients_have_no_interval(low: float, least: int, is_one_short: bool) -> None:
    # f1 is only of the first n patients; the 60 of f0 suffice for the macro. Every patient has two rows
    n = least - is_one_short
    values, findings = np.tile([low, 1.0], 60 + n), [*["f0"] * 120, *["f1"] * 2 * n]
    patients = [f"p{i:02d}" for i in [*range(60)] * 2 + [*range(n)] * 2]
    macro, _, rare = estimate_cases("mask_iou", 1, values, findings=findings, patients=patients)
    assert not math.isnan(macro.low)
    assert math.isnan(rare.low) == math.isnan(rare.high) == is_one_short
    assert rare.value == pytest.approx((low + 1) / 2)


@pytest.mark.parametrize("is_present", [True, False])
def test_the_rarer_of_presence_and_absence_supports_kappa(is_present: bool) -> None:
    for n_rare, has_interval in ((LEAST_UNITS_OF_KAPPA, True), (LEAST_UNITS_OF_KAPPA - 1, False)):
        column = np.arange(50)[:, None] < n_rare
        both = column if is_present else ~column
        kappa = next(
            e
            for e in estimate_labels(both, both, labels=["f0"], resampling=FEW_DRAWS)
            if (e.metric, e.finding) == ("cohen_kappa", "f0")
        )
        assert kappa.has_interval == has_interval
        if has_interval:  # the lowest kappa is (|0.24 + 0.24 - 1| - 0.6352) / (1 - 0.6352)
            lowest = -0.1152 / 0.3648
            assert kappa.low == pytest.approx(lowest + (1 - lowest) * wilson(1.0, 12)[0], abs=1e-9)


def unequal(n_many: int, images: int, n_single: int) -> list[str]:
    """Patient of each case, if some have many images and the others one."""
    return [f"p{i:04d}" for i in [*range(n_many)] * (images - 1) + [*range(n_many + n_single)]]


@pytest.mark.parametrize(
    ("patients", "has_interval"),
    [
        (unequal(3, 10, 17), False),  # 47 images squared / (20 patients * 317) = 0.35
        (unequal(5, 3, 15), True),  # 30 squared / (20 * 60) = 0.75, the least if nobody has more than 3 images
        (unequal(300, 10, 1699), False),
        (unequal(300, 10, 1700), True),  # 2,000 patients suffice
    ],
)
def test_very_unequal_numbers_of_images_leave_no_interval(
    patients: list[str], has_interval: bool, rng: np.random.Generator
) -> None:
    n, labels = len(patients), ["f0", "f1"]
    a, b = rng.random((2, n, 2)) < 0.5
    estimates = estimate_cases("point_hit", 1, a[:, 0].astype(float), findings=["f0"] * n, patients=patients)
    estimates += estimate_labels(
        a, b, labels=labels, scores=rng.random((n, 2)), patients=patients, resampling=FEW_DRAWS
    )
    estimates += estimate_agreement(a[:, 0], b[:, 0], n_categories=2, patients=patients, resampling=FEW_DRAWS)
    scores = [e for e in estimates if e.metric not in ("auroc", "average_precision") or e.finding != "macro"]
    reasons = {(e.metric, e.finding): e.missing_interval for e in scores}
    assert set(reasons.values()) == {"" if has_interval else "numbers of images per patient too unequal"}, reasons


@pytest.mark.parametrize(
    ("n_studies", "n_repeated", "has_interval"),
    [(3, 0, False), (3, 2, False), (3, 3, True), (2, 2, False), (1, 0, True)],
)
def test_precision_and_f1_need_patients_with_several_supporting_studies(
    n_studies: int, n_repeated: int, has_interval: bool
) -> None:
    """The model calls one study of each of 20 patients, and two of `n_repeated` patients."""
    patients = np.repeat(np.arange(20), n_studies)
    study = np.tile(np.arange(n_studies), 20)
    called = (study == 0) | ((study == 1) & (patients < n_repeated))
    present = called & (patients % 2 == 0)
    names = [f"p{i:02d}" for i in patients]
    estimates = estimate_labels(called[:, None], present[:, None], labels=["f"], patients=names, resampling=FEW_DRAWS)
    reasons = {e.metric: e.missing_interval for e in estimates if e.finding in ("f", "macro")}
    wanted = "" if has_interval else "fewer than 3 patients with several supporting studies"
    assert (reasons["precision"], reasons["f1"], reasons["npv"]) == (wanted, wanted, reasons["specificity"])


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
        assert np.isnan(evidence.ends(np.array([0.0]))).all()


def test_no_interval_leaves_a_scale_that_ends_on_one_side() -> None:
    # nine differences of 0 and one of 1: mean and standard error 0.1. Squared deviations from the mean of the rest:
    # 0.81 and nine of 0.01, sum 0.9; of fourth powers 0.657. 2 * 0.9**2 / (0.657 - 0.9**2 / 10) = 2.8125 degrees
    rows = np.array([0.0] * 9 + [1.0])
    yes, no = np.array([True]), np.array([False])
    evidence = Evidence((rows.sum() - rows)[:, None] / 9, np.array([10]), yes, no, (0.0, np.inf))
    assert evidence.ends(np.array([0.1])).ravel() == pytest.approx([0, 0.1 + 0.1 * t.ppf(0.975, 2.8125)], abs=1e-6)


def test_the_quantile_of_t_is_that_of_scipy() -> None:
    freedom = np.array([1.0, 1.3, 2.0, 3.0, 4.5, 10.0, 200.0, np.inf])
    np.testing.assert_allclose(t_quantile(freedom), t.ppf(0.975, freedom), rtol=2e-6)
