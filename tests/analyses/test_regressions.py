"""Regressions against the textbook's formulas, computed here by numpy and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from reveal_bench.analyses.shapes import Assurance, Slope, assurances, regress, scaled
from reveal_bench.arrays import FloatArray

pytest.importorskip("statsmodels")
N = 120


@pytest.fixture
def cases(rng: np.random.Generator) -> dict[str, FloatArray]:
    """Two features that go together, an IoU that follows them, and hits; three cases to a patient, four findings."""
    a = rng.normal(size=N)
    b = 0.6 * a + rng.normal(size=N)
    iou = 0.4 + 0.1 * a - 0.05 * b + np.repeat(rng.normal(size=N // 3), 3) * 0.1 + rng.normal(size=N) * 0.1
    return {"a": a, "b": b, "IoU": iou, "hit": (iou + rng.normal(size=N) * 0.2 > 0.4).astype(float)}


PATIENTS = [f"p{i // 3}" for i in range(N)]
FINDINGS = [("Edema", "Atelectasis", "Cardiomegaly", "Pneumothorax")[i % 4] for i in range(N)]


def fit(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Coefficients and residuals of least squares."""
    coefficients = np.linalg.solve(x.T @ x, x.T @ y)
    return coefficients, y - x @ coefficients


def slopes(cases: dict[str, FloatArray], **options: str) -> dict[tuple[str, str, str], Slope]:
    features = {"a": cases["a"], "b": cases["b"]}
    outcomes = {"IoU": cases["IoU"], "hit": cases["hit"]}
    results = regress(outcomes, features, FINDINGS, PATIENTS, **options)  # type: ignore[arg-type]
    return {(one.outcome, one.model, one.feature): one for one in results}


def test_published_slopes_have_the_t_interval_of_least_squares(cases: dict[str, FloatArray]) -> None:
    one = slopes(cases)["IoU", "published", "a"]
    x = np.column_stack([(cases["a"] - cases["a"].min()) / np.ptp(cases["a"]), np.ones(N)])
    coefficients, left = fit(x, cases["IoU"])
    error = math.sqrt((left @ left) / (N - 2) * np.linalg.inv(x.T @ x)[0, 0])
    reach = stats.t.ppf(0.975, N - 2) * error
    p = 2 * stats.t.sf(abs(coefficients[0]) / error, N - 2)
    assert (one.estimate.value, one.estimate.low, one.estimate.high) == pytest.approx(
        (coefficients[0], coefficients[0] - reach, coefficients[0] + reach)
    )
    assert (one.p, one.p_corrected) == pytest.approx((p, min(1, 2 * p)))
    assert (one.n, one.n_patients) == (N, N // 3)


@pytest.mark.parametrize("model", ["simple", "fixed effects", "multiple"])
def test_our_slopes_have_errors_clustered_by_patient(cases: dict[str, FloatArray], model: str) -> None:
    one = slopes(cases)["IoU", model, "a"]
    a, b = (scaled(cases[name], "minmax") for name in "ab")
    of_finding = np.array(FINDINGS)
    intercepts = np.column_stack([of_finding == name for name in sorted(set(FINDINGS))]).astype(float)
    x = {
        "simple": np.column_stack([a, np.ones(N)]),
        "fixed effects": np.column_stack([a, intercepts]),
        "multiple": np.column_stack([a, b, np.ones(N)]),
    }[model]
    coefficients, left = fit(x, cases["IoU"])
    # The sandwich of sums per patient, with the correction G / (G - 1) (n - 1) / (n - k) for few of them
    sums = np.stack(
        [(x * left[:, None])[[p == patient for p in PATIENTS]].sum(axis=0) for patient in dict.fromkeys(PATIENTS)]
    )
    bread, n_groups = np.linalg.inv(x.T @ x), len(sums)
    correction = n_groups / (n_groups - 1) * (N - 1) / (N - x.shape[1])
    error = math.sqrt(correction * (bread @ sums.T @ sums @ bread)[0, 0])
    reach = stats.t.ppf(0.975, n_groups - 1) * error
    assert (one.estimate.value, one.estimate.low, one.estimate.high) == pytest.approx(
        (coefficients[0], coefficients[0] - reach, coefficients[0] + reach)
    )
    r = np.corrcoef(a, b)[0, 1]
    assert one.inflation == pytest.approx(1 / (1 - r**2)) if model == "multiple" else math.isnan(one.inflation)


def test_a_logistic_slope_solves_its_equation(cases: dict[str, FloatArray]) -> None:
    results = slopes(cases)
    assert ("IoU", "logistic", "a") not in results
    one = results["hit", "logistic", "a"]
    x = np.column_stack([scaled(cases["a"], "minmax"), np.ones(N)])
    coefficients = np.zeros(2)
    for _ in range(50):  # Newton
        p = 1 / (1 + np.exp(-x @ coefficients))
        coefficients += np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (cases["hit"] - p))
    assert one.estimate.value == pytest.approx(coefficients[0], rel=1e-6)
    assert one.estimate.low < one.estimate.value < one.estimate.high


def test_scales_change_slopes_by_their_unit_alone(cases: dict[str, FloatArray]) -> None:
    by_range, by_deviation = slopes(cases), slopes(cases, scale="zscore")
    for key in [("IoU", "published", "a"), ("hit", "logistic", "b")]:
        unit = np.ptp(cases[key[2]]) / cases[key[2]].std(ddof=1)
        assert by_range[key].estimate.value == pytest.approx(by_deviation[key].estimate.value * unit, rel=1e-6)
        assert by_range[key].p == pytest.approx(by_deviation[key].p, rel=1e-5)


def test_undetermined_slopes_are_undefined(cases: dict[str, FloatArray]) -> None:
    still = {"a": np.ones(N), "b": cases["b"]}
    results = regress({"hit": np.ones(N), "IoU": cases["IoU"]}, still, FINDINGS, PATIENTS)
    by_key = {(one.outcome, one.model, one.feature): one for one in results}
    assert math.isnan(by_key["IoU", "published", "a"].estimate.value)
    assert math.isnan(by_key["IoU", "multiple", "b"].estimate.value)
    assert math.isnan(by_key["hit", "logistic", "b"].estimate.value)
    assert by_key["IoU", "published", "b"].stars == "" or by_key["IoU", "published", "b"].p_corrected < 0.05
    few = regress({"IoU": np.array([0.1, 0.2])}, {"a": np.array([1.0, 2.0])}, ["Edema"] * 2, ["p", "q"])
    assert all(math.isnan(one.estimate.value) for one in few)
    all_missing = regress({"IoU": np.full(4, np.nan)}, {"a": np.arange(4.0)}, ["Edema"] * 4, list("pqrs"))
    assert all(math.isnan(one.estimate.value) and one.n == 0 for one in all_missing)


def by_name(rows: list[Assurance]) -> dict[str, Assurance]:
    return {one.finding: one for one in rows}


def test_assurance_has_spearman_with_the_interval_of_its_own_cases() -> None:
    # Ranks 1 2 3 4 5 6 against 2 1 4 3 6 5: six differences of 1, so rho = 1 - 6 * 6 / (6 * 35) = 29 / 35
    x = np.array([0.1, 0.2, 0.3, 0.5, 0.6, 0.9, 0.4, 0.7])
    y = np.array([0.2, 0.1, 0.4, 0.3, 0.6, 0.5, 0.5, np.nan])
    names = ["Edema"] * 6 + ["Lung Lesion"] * 2
    results = by_name(assurances({"IoU": y}, x, names, order=["Lung Lesion", "Edema", "Consolidation"]))
    assert list(results) == ["Lung Lesion", "Edema", "all"]
    edema = results["Edema"]
    assert edema.rho.value == pytest.approx(29 / 35)
    half = 1.959964 * math.sqrt((1 + (29 / 35) ** 2 / 2) / 3)  # Bonett and Wright
    assert (edema.rho.low, edema.rho.high) == pytest.approx(
        tuple(math.tanh(math.atanh(29 / 35) + s * half) for s in (-1, 1))
    )
    assert edema.slope.value == pytest.approx(np.polyfit(x[:6], y[:6], 1)[0])
    assert (results["Lung Lesion"].n, math.isnan(results["Lung Lesion"].rho.value)) == (1, True)
    assert results["all"].n == 7


def test_scores_are_scaled_per_finding_where_asked() -> None:
    x = np.array([0.2, 0.4, 0.6, 0.6, 0.7, 0.8])
    y = np.array([0.0, 0.1, 0.3, 0.0, 0.2, 0.3])
    names = ["Edema"] * 3 + ["Cardiomegaly"] * 3
    raw, ranged = (
        by_name(assurances({"IoU": y}, x, names, order=["Edema", "Cardiomegaly"], scale=scale))  # type: ignore[arg-type]
        for scale in ("raw", "minmax")
    )
    assert ranged["Edema"].slope.value == pytest.approx(raw["Edema"].slope.value * 0.4)
    assert ranged["Cardiomegaly"].slope.value == pytest.approx(raw["Cardiomegaly"].slope.value * 0.2)
    assert ranged["all"].slope.value == pytest.approx(np.polyfit([0, 0.5, 1] * 2, y, 1)[0])
    assert math.isnan(raw["Edema"].rho.low)  # three cases
