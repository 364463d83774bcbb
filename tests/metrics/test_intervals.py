"""Intervals against scipy and plain loops, degenerate inputs, and how often they cover the truth."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.metrics.bootstrap import (
    MACRO,
    bootstrap_means,
    code_cases,
    estimate_cases,
    estimate_means,
    macro_first,
    resampling_counts,
)
from reveal_bench.metrics.intervals import INTERVALS, Estimate, Resampling, find_intervals
from reveal_bench.metrics.resampled import mean_of_defined
from reveal_bench.metrics.scales import estimate_text

NAN = float("nan")
FloatArray = npt.NDArray[np.float64]

N_PATIENTS, N_FINDINGS = 40, 3


def study(rng: np.random.Generator, *, hits: bool) -> tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Values, findings and patients of 150 cases; some values undefined, some patients without a case."""
    values = rng.integers(0, 2, 150).astype(float) if hits else rng.random(150) ** 3
    values[rng.random(150) < 0.1] = NAN
    return values, rng.integers(0, N_FINDINGS, 150), rng.integers(0, N_PATIENTS - 4, 150)


def tables(values: FloatArray, findings: npt.NDArray[np.int64], patients: npt.NDArray[np.int64]) -> list[FloatArray]:
    """Sum and number of defined rows of every patient, (n_patients,), a pair per finding."""
    result = []
    for finding in range(N_FINDINGS):
        own = [values[(findings == finding) & (patients == p) & ~np.isnan(values)] for p in range(N_PATIENTS)]
        result += [np.array([v.sum() for v in own]), np.array([float(len(v)) for v in own])]
    return result


def statistic_of(column: int) -> Callable[..., Any]:
    """Column 0 is the macro, column i + 1 finding i, of the tables above."""

    def statistic(*sums_and_rows: FloatArray, axis: int = -1) -> FloatArray:
        means = [s.sum(axis=axis) / r.sum(axis=axis) for s, r in zip(*[iter(sums_and_rows)] * 2, strict=True)]
        return np.asarray(np.mean(means, axis=0) if column == 0 else means[column - 1], np.float64)

    return statistic


@pytest.mark.parametrize("hits", [True, False])
@pytest.mark.parametrize("method", ["bca", "percentile"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ends_equal_scipy_with_the_same_draws(method: str, hits: bool, seed: int) -> None:
    # scipy draws `integers(0, n, (n_resamples, n))` too, so the same seed makes the same replicates and nothing is left
    # to chance: replicates and ends agree to rounding
    from scipy import stats

    values, findings, patients = study(np.random.default_rng(100 + seed), hits=hits)
    counts = resampling_counts(N_PATIENTS, Resampling(999, seed))
    means = bootstrap_means(values, findings, patients, n_groups=N_FINDINGS, counts=counts)
    replicates = macro_first(means.replicates)
    got = find_intervals(
        macro_first(means.values),
        replicates,
        interval=method,  # type: ignore[arg-type]
        left_out=macro_first(means.left_out()),
    )
    for column in range(N_FINDINGS + 1):
        oracle = stats.bootstrap(
            tables(values, findings, patients),
            statistic_of(column),
            paired=True,
            vectorized=True,
            n_resamples=999,
            method=method,
            rng=np.random.default_rng(seed),
        )
        np.testing.assert_allclose(replicates[:, column], oracle.bootstrap_distribution, rtol=1e-13)
        ends = (got.low[column], got.high[column])
        assert ends == pytest.approx(tuple(oracle.confidence_interval), rel=1e-9)


def test_shifted_bounds_subtract_twice_the_bias_of_the_replicates() -> None:
    """Replicates 0, 1, ... 100 thousandths above .5, by hand: mean .55, percentiles .5025 and .5975, value .54."""
    from scipy import stats

    replicates = np.column_stack([0.5 + np.arange(101) / 1000] * 2)
    got = find_intervals(np.array([0.54, 0.54]), replicates, interval="shifted", behind=np.array([np.inf, 20.0]))
    centre, reach = 0.54 - 2 * 0.01, 0.0475
    wider = stats.t.ppf(0.975, 19) / stats.norm.ppf(0.975) * np.sqrt(20 / 19)
    assert (got.low[0], got.high[0]) == pytest.approx((centre - reach, centre + reach))
    assert (got.low[1], got.high[1]) == pytest.approx((centre - wider * reach, centre + wider * reach), abs=1e-6)


def test_estimates_carry_the_interval_asked_for_and_say_so(rng: np.random.Generator) -> None:
    from scipy import stats

    values = (rng.random(60) < 0.9).astype(float)
    patients = [f"p{i // 2:02d}" for i in range(60)]
    ends = {}
    for interval in INTERVALS:
        macro, _ = estimate_cases("point_hit", 1, values, patients=patients, resampling=Resampling(interval=interval))
        part = "" if interval == "percentile" else f"|i:{interval}"
        assert macro.signature == f"point_hit|b:1000|seed:0|unit:patient{part}|v:1"
        assert macro.low < values.mean() < macro.high
        ends[interval] = macro.low, macro.high
    sums = values.reshape(30, 2).sum(axis=1)
    oracle = stats.bootstrap((sums / 2,), np.mean, n_resamples=1000, method="BCa", rng=np.random.default_rng(0))
    assert ends["bca"] == pytest.approx(tuple(oracle.confidence_interval), rel=1e-9)
    assert ends["bca"] != ends["percentile"]


def test_the_means_without_one_patient_equal_a_loop_that_leaves_one_out(rng: np.random.Generator) -> None:
    values, findings, patients = study(rng, hits=False)
    counts = resampling_counts(N_PATIENTS, Resampling(1))
    got = bootstrap_means(values, findings, patients, n_groups=N_FINDINGS, counts=counts).left_out()
    for patient in range(N_PATIENTS):
        for finding in range(N_FINDINGS):
            rest = values[(patients != patient) & (findings == finding)]
            assert got[patient, finding] == pytest.approx(np.nanmean(rest), rel=1e-12)


def test_bca_of_degenerate_columns() -> None:
    columns = {
        "all replicates equal": ([0.7] * 50, 0.7, [0.7] * 5, (0.7, 0.7)),
        "equal except for rounding": ([0.7, 0.7 + 1e-16, 0.7 - 1e-16] * 10, 0.7, [0.7] * 5, (0.7, 0.7)),
        "none defined": ([NAN] * 50, NAN, [NAN] * 5, (NAN, NAN)),
        "all above the value": ([0.6, 0.7] * 25, 0.5, [0.4, 0.6], (NAN, NAN)),
        "one unit holds all rows": ([0.7, NAN] * 25, 0.7, [0.7, 0.7, NAN], (0.7, 0.7)),
        # half of the replicates on each side, no acceleration: plain percentiles
        "symmetric": ([*np.linspace(0, 1, 101)], 0.5, [0.4, 0.5, 0.6], (0.025, 0.975)),
        "equal without any unit": ([*np.linspace(0, 1, 101)], 0.5, [0.5] * 3, (0.025, 0.975)),
        "alone": ([*np.linspace(0, 1, 101)], 0.5, [NAN], (0.025, 0.975)),
    }
    for name, (replicates, value, left_out, ends) in columns.items():
        got = find_intervals(
            np.array([value]), np.array(replicates)[:, None], interval="bca", left_out=np.array(left_out)[:, None]
        )
        assert (got.low[0], got.high[0]) == pytest.approx(ends, nan_ok=True), name
        assert got.n_empty[0] == np.isnan(replicates).sum(), name


def test_single_patient_and_undefined_cases_for_every_interval() -> None:
    for interval in INTERVALS:
        resampling = Resampling(interval=interval)
        one = estimate_cases("point_hit", 1, np.array([1.0, 0.0]), patients=["p", "p"], resampling=resampling)
        end = NAN if interval in ("jackknife", "shifted") else 0.5  # one patient is too few for them
        assert [e.value for e in one] == [0.5, 0.5]
        assert [*(e.low for e in one), *(e.high for e in one)] == pytest.approx([end] * 4, nan_ok=True)
        none = estimate_cases("point_hit", 1, np.array([NAN, NAN]), resampling=resampling)
        assert all(math.isnan(figure) for e in none for figure in (e.value, e.low, e.high))


@pytest.mark.parametrize("n", [40, 100, 999, 1000])
def test_the_published_rule_takes_order_statistics(n: int, rng: np.random.Generator) -> None:
    replicates = rng.random((n, 2))
    replicates[0, 1] = NAN  # stays in the count and sorts last
    got = find_intervals(np.array([NAN, NAN]), replicates, interval="chexlocalize")
    for i, column in enumerate(replicates.T.tolist()):
        ordered = sorted(column, key=lambda value: (math.isnan(value), value))
        assert got.low[i] == np.round(ordered[int(0.025 * n) - 1], 3)
        assert got.high[i] == pytest.approx(np.round(ordered[int(0.975 * n) - 1], 3), nan_ok=True)
        assert got.values[i] == round(math.fsum(v for v in column if not math.isnan(v)) / (n - i), 3)
    assert got.n_empty.tolist() == [0, 1]


def test_an_interval_of_one_bound_is_not_missing() -> None:
    # The published rule may leave one bound undefined
    estimates = Estimate(0.5, 0.25, NAN), Estimate(0.5), Estimate(NAN)
    assert [one.missing_interval for one in estimates] == ["", "too few patients", ""]
    assert estimate_text("point_hit", 0.5, 0.25, NAN) == "50.0 (25.0 to -)"


def test_percentiles_leave_undefined_replicates_out(rng: np.random.Generator) -> None:
    replicates = rng.random((200, 4))
    replicates[rng.random((200, 4)) < 0.2] = NAN
    replicates[:, 0] = rng.random(200)
    replicates[:, 3] = NAN
    got = find_intervals(np.zeros(4), replicates)
    for i in range(3):
        assert (got.low[i], got.high[i]) == tuple(np.nanpercentile(replicates[:, i], [2.5, 97.5]))
    assert math.isnan(got.low[3])
    assert got.n_empty.tolist() == np.isnan(replicates).sum(axis=0).tolist()


def test_what_cannot_be_computed_is_refused() -> None:
    replicates = np.zeros((39, 1))
    for options, message in (
        ({"interval": "normal"}, f"`interval` must be one of {', '.join(INTERVALS)}, got 'normal'"),
        ({"interval": "chexlocalize"}, "`n_resamples` must be at least 40 for interval 'chexlocalize'"),
        ({"interval": "jackknife"}, "`evidence` must be given for interval 'jackknife', got None"),
        ({"interval": "bca"}, "`left_out` must be given for interval 'bca', got None"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            find_intervals(np.zeros(1), replicates, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape("element int(0.025 * n_resamples) - 1, got 39")):
        estimate_cases("point_hit", 1, np.ones(3), resampling=Resampling(39, interval="chexlocalize"))
    assert estimate_cases("point_hit", 1, np.ones(3), resampling=Resampling(40, interval="chexlocalize"))[0].low == 1


def test_names_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("`case_findings` must have the length of `values` (2), got 1")):
        estimate_means(
            np.ones(2), ["f"], ["p"], findings=["f"], units=["p"], counts=resampling_counts(1), recipe="m|v:1"
        )
    with pytest.raises(ValueError, match=re.escape("`case_units` must have the length of `case_findings` (1), got 2")):
        code_cases(["f"], ["p", "p"], findings=["f"], units=["p"])


def test_the_default_interval_has_no_part_in_the_signature() -> None:
    draw = Resampling(10, 3, "image", "percentile")
    assert draw.signature("m", 2) == "m|b:10|seed:3|unit:image|v:2"
    assert draw.by("bca").signature("m", 2) == "m|b:10|seed:3|unit:image|i:bca|v:2"


@pytest.mark.parametrize("n_units", [1, 7, 668, 70_001])
def test_drawing_in_blocks_is_one_draw(n_units: int) -> None:
    # 70,001 units are more than a block holds; 668 leave a rest
    counts = resampling_counts(n_units, Resampling(203, 11))
    draws = np.random.default_rng(11).integers(0, n_units, (203, n_units))
    for replicate, drawn in zip(counts, draws, strict=True):
        assert np.array_equal(replicate, np.bincount(drawn, minlength=n_units))


@pytest.mark.parametrize("scale", [1.0, 2.0**20 + 1, 1 / 3])
def test_replicates_equal_those_of_double_precision(scale: float, rng: np.random.Generator) -> None:
    # 1: hits, added up in single precision; 2**20 + 1: whole, but sums pass 2**24; 1/3: not whole
    values = np.asarray(scale * rng.integers(0, 2, 500), np.float64)
    findings, units = rng.integers(0, 4, 500), rng.integers(0, 300, 500)
    counts = resampling_counts(300, Resampling(400))
    got = bootstrap_means(values, findings, units, n_groups=4, counts=counts).replicates
    double = counts.astype(np.float64)
    for finding in range(4):
        own = findings == finding
        sums = np.bincount(units[own], weights=values[own], minlength=300)
        rows = np.bincount(units[own], minlength=300).astype(float)
        expected = (double @ sums) / (double @ rows)
        if scale == 1 / 3:
            np.testing.assert_allclose(got[:, finding], expected, rtol=1e-14)
        else:
            assert np.array_equal(got[:, finding], expected)


def test_the_mean_of_defined_values_does_not_depend_on_the_layout(rng: np.random.Generator) -> None:
    values = rng.random((50, 20))
    values[rng.random((50, 20)) < 0.3] = NAN
    got = mean_of_defined(values)
    assert np.array_equal(got, mean_of_defined(np.asfortranarray(values)))
    assert np.array_equal(got, [mean_of_defined(row) for row in values])
    np.testing.assert_allclose(got, np.nanmean(values, axis=1), rtol=1e-14)


def test_the_interval_by_patient_covers_the_truth_and_the_one_by_image_covers_less() -> None:
    # 500 trials of 100 patients with 1 to 4 images; a patient's images are hit with a probability of their own, drawn
    # from a beta distribution with mean 0.6 and intra-patient correlation 1 / (1 + 0.9 + 0.6) = 0.4. A trial is a
    # group. With twelve other seeds the coverage was 0.93 to 0.97 by patient and 0.83 to 0.90 by image.
    n_trials, truth = 500, 0.6
    patients = np.repeat(np.arange(100), 1 + np.arange(100) % 4)
    rng = np.random.default_rng(2026)
    chance = rng.beta(0.9, 0.6, (n_trials, 100))
    hits = (rng.random((n_trials, len(patients))) < chance[:, patients]).astype(float).ravel()
    trials = np.repeat(np.arange(n_trials), len(patients))
    coverage = {}
    for unit, codes in (("patient", patients), ("image", np.arange(len(patients)))):
        counts = resampling_counts(int(codes.max()) + 1, Resampling(seed=1))
        means = bootstrap_means(hits, trials, np.tile(codes, n_trials), n_groups=n_trials, counts=counts)
        results = find_intervals(means.values, means.replicates)
        coverage[unit] = ((results.low <= truth) & (truth <= results.high)).mean()
    assert 0.92 <= coverage["patient"] <= 0.97
    assert coverage["image"] < coverage["patient"] - 0.05


def test_the_macro_comes_first(rng: np.random.Generator) -> None:
    values = rng.random(30)
    findings = [f"f{i % 3}" for i in range(30)]
    for interval in INTERVALS:
        results = estimate_cases("point_hit", 1, values, findings=findings, resampling=Resampling(interval=interval))
        assert [e.finding for e in results] == [MACRO, "f0", "f1", "f2"]
