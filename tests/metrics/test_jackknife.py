"""Intervals by the jackknife against a plain version that deletes each patient, and when nothing is printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, t

from reveal_bench.metrics.bootstrap import Estimate, estimate_cases
from reveal_bench.metrics.estimates import estimate_labels
from reveal_bench.metrics.jackknife import LEAST_UNITS, t_quantile

FloatArray = npt.NDArray[np.float64]
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
    return value, error, (N_PATIENTS - 1) * (mean - value), 2 * total**2 / (fourth - total**2 / N_PATIENTS)


def wilson(share: float, n: float) -> list[float]:
    """Where the score statistic is the normal quantile: roots, not the closed form."""
    z = norm.ppf(0.975)

    def score(p: float) -> float:
        return float((share - p) ** 2 - z**2 * p * (1 - p) / n)

    low = 0.0 if share == 0 else brentq(score, 0, share - 1e-12, xtol=1e-14)
    return [low, 1.0 if share == 1 else brentq(score, share + 1e-12, 1, xtol=1e-14)]


def on_arcsine(statistic: Statistic, low: float = 0.0, high: float = 1.0) -> list[float]:
    value, error, bias, freedom = deleted(statistic)
    centre = math.asin(math.sqrt((value - bias - low) / (high - low)))
    share = (value - low) / (high - low)
    reach = t.ppf(0.975, freedom) * error / (high - low) / (2 * math.sqrt(share * (1 - share)))
    return [low + (high - low) * math.sin(min(max(x, 0), math.pi / 2)) ** 2 for x in (centre - reach, centre + reach)]


def mean_of(values: FloatArray, finding: int | None) -> Statistic:
    of_case = np.arange(len(PATIENTS)) % 2

    def statistic(kept: npt.NDArray[np.int64]) -> float:
        means = [values[kept[of_case[kept] == f]].mean() for f in (0, 1)]
        return float(np.mean(means) if finding is None else means[finding])

    return statistic


def found(estimates: Sequence[Estimate], metric: str, finding: str) -> list[float]:
    (one,) = [e for e in estimates if (e.metric, e.finding) == (metric, finding)]
    return [one.low, one.high]


def test_hit_rates_have_the_score_interval_of_their_effective_size(rng: np.random.Generator) -> None:
    hits = (rng.random(len(PATIENTS)) < 0.7).astype(float)
    findings = [f"f{i % 2}" for i in range(len(PATIENTS))]
    got = estimate_cases("point_hit", 1, hits, findings=findings, patients=NAMES, interval="jackknife")
    for i in (0, 1):
        value, error, _, _ = deleted(mean_of(hits, i))
        expected = wilson(value, value * (1 - value) / error**2)
        assert found(got, "point_hit", f"f{i}") == pytest.approx(expected, abs=1e-9)
    assert found(got, "point_hit", "macro") == pytest.approx(on_arcsine(mean_of(hits, None)), abs=2e-4)
    assert "|i:jackknife|" in got[0].signature


def test_iou_has_a_t_interval_on_the_arcsine_scale(rng: np.random.Generator) -> None:
    values = rng.random(len(PATIENTS)) ** 3
    findings = [f"f{i % 2}" for i in range(len(PATIENTS))]
    got = estimate_cases("mask_iou", 1, values, findings=findings, patients=NAMES, interval="jackknife")
    for name, finding in (("macro", None), ("f0", 0), ("f1", 1)):
        assert found(got, "mask_iou", name) == pytest.approx(on_arcsine(mean_of(values, finding)), abs=2e-4)


@pytest.mark.parametrize("metric", ["f1", "cohen_kappa"])
def test_f1_and_kappa_equal_deletion_of_each_patient(metric: str, rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score, f1_score

    present = rng.random((len(PATIENTS), 2)) < [0.5, 0.4]
    predicted = present ^ (rng.random(present.shape) < 0.2)
    of = {"f1": f1_score, "cohen_kappa": cohen_kappa_score}[metric]

    def statistic(labels: Sequence[int]) -> Statistic:
        return lambda kept: float(np.mean([of(present[kept, i], predicted[kept, i]) for i in labels]))

    got = estimate_labels(predicted, present, labels=["a", "b"], patients=NAMES, interval="jackknife")
    for name, labels in (("macro", [0, 1]), ("a", [0]), ("b", [1])):
        expected = on_arcsine(statistic(labels), low=-1.0 if metric == "cohen_kappa" else 0.0)
        assert found(got, metric, name) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_an_end_of_the_scale_the_patients_are_the_sample(share: float) -> None:
    got = estimate_cases("mask_iou", 1, np.full(len(PATIENTS), share), patients=NAMES, interval="jackknife")
    assert found(got, "mask_iou", "all") == pytest.approx(wilson(share, N_PATIENTS), abs=1e-9)


@pytest.mark.parametrize("n", [LEAST_UNITS - 1, LEAST_UNITS])
def test_too_few_patients_have_no_interval(n: int) -> None:
    # f1 is only of the first n patients; 5 of them suffice for the macro
    values = np.tile([0.0, 1.0], 40)
    findings, patients = [*["f0"] * 60, *["f1"] * 20], [f"p{i:02d}" for i in [*range(60), *[j % n for j in range(20)]]]
    macro, _, rare = estimate_cases("point_hit", 1, values, findings=findings, patients=patients, interval="jackknife")
    assert not math.isnan(macro.low)
    assert math.isnan(rare.low) == math.isnan(rare.high) == (n < LEAST_UNITS)
    assert rare.value == 0.5


def test_the_quantile_of_t_is_that_of_scipy() -> None:
    freedom = np.array([3.0, 4.5, 10.0, 200.0, np.inf])
    np.testing.assert_allclose(t_quantile(freedom), t.ppf(0.975, freedom), rtol=5e-3)
    np.testing.assert_allclose(t_quantile(freedom)[1:], t.ppf(0.975, freedom[1:]), rtol=1e-3)
