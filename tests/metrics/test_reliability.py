"""Fleiss' kappa, Krippendorff's alpha and intraclass correlations: printed examples, statsmodels, degenerate inputs.

Two other libraries are oracles outside the tests, because their licence is the GPL: on 2,000 random and degenerate
tables krippendorff 0.9.0 gave the same alphas to 5e-16 (5,340 values), pingouin 0.7.0 the same correlations to 4e-15
(10,048 values of 1,880 tables), except for 14 of ICC(2,k) with a denominator below 0, undefined here. A few of their
values are below.
"""

from __future__ import annotations

import numpy as np
import pytest

from reveal_bench.arguments import ArgumentError
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.reliability import (
    IccForm,
    Level,
    fleiss_kappa,
    intraclass_correlation,
    krippendorff_alpha,
    rating_counts,
)
from reveal_bench.metrics.reliability_estimates import NOMINAL, estimate_reliability

NAN = float("nan")
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")
FORMS: tuple[IccForm, ...] = ("1,1", "2,1", "3,1", "1,k", "2,k", "3,k")


def from_counts(rows: list[list[int]]) -> list[list[int]]:
    return [[category for category, n in enumerate(row) for _ in range(n)] for row in rows]


def test_fleiss_kappa_of_a_printed_example() -> None:
    # 14 raters of 10 subjects, five categories; the kappa printed with this table is 0.210
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1], [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    assert fleiss_kappa(from_counts(table), n_categories=5) == pytest.approx(0.20993070442195527, abs=1e-15)


def test_intraclass_correlations_of_shrout_and_fleiss() -> None:
    # Table 2: six targets, four judges; Table 4: .17 .29 .71 .44 .62 .91. pingouin's digits
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    values = [intraclass_correlation(ratings, form=form) for form in FORMS]
    assert np.round(values, 2).tolist() == [0.17, 0.29, 0.71, 0.44, 0.62, 0.91]
    assert intraclass_correlation([*ratings, [1, 1, 1, NAN]]) == values[1]  # a case that not all rated does not count


def test_krippendorff_alpha_of_the_printed_example() -> None:
    # Krippendorff 2011, section C; alphas .743, .815, .849
    rows = ["11 1", "2232", "3333", "3333", "2222", "1234", "4444", "1121", "2222", " 555", "  11", " 3  "]
    ratings = [[-1 if code == " " else int(code) - 1 for code in row] for row in rows]
    values = [krippendorff_alpha(ratings, n_categories=5, level=level) for level in LEVELS]
    assert values == pytest.approx([0.743421052631579, 0.8153875037548814, 0.8491071428571428], abs=1e-12)
    assert krippendorff_alpha(ratings, n_categories=9, level="ordinal") == pytest.approx(values[1], abs=1e-15)


def test_fleiss_kappa_equals_statsmodels(rng: np.random.Generator) -> None:
    from statsmodels.stats.inter_rater import fleiss_kappa as expected

    for _ in range(100):
        n, m, k = (int(rng.integers(low, high)) for low, high in ((1, 50), (2, 7), (2, 6)))
        ratings = np.where(rng.random((n, m)) < 0.6, rng.integers(0, k, (n, 1)), rng.integers(0, k, (n, m)))
        counts = rating_counts(ratings, n_categories=k)
        if (counts.sum(axis=0) > 0).sum() > 1:
            assert fleiss_kappa(ratings, n_categories=k) == pytest.approx(expected(counts), abs=1e-12)


@pytest.mark.parametrize(
    ("ratings", "kappa", "alpha"),
    [
        (np.zeros((0, 2), int), NAN, NAN),  # no case
        ([[0, -1], [-1, 1]], NAN, NAN),  # no case with two ratings
        ([[0], [1]], NAN, NAN),  # one reader
        ([[1, 1], [1, 1]], NAN, NAN),  # one category
        ([[1, 1], [1, 1], [0, -1]], NAN, NAN),  # a single rating does not count
        ([[0, 0], [1, 1]], 1, 1),  # perfect
        ([[0, 1], [1, 0]], -1, -0.5),  # alpha: 1 - 3 * 4 / (2 * 2 * 2)
    ],
)
def test_degenerate_ratings(ratings: list[list[int]], kappa: float, alpha: float) -> None:
    assert fleiss_kappa(ratings, n_categories=2) == pytest.approx(kappa, nan_ok=True)
    for level in LEVELS:
        assert krippendorff_alpha(ratings, n_categories=2, level=level) == pytest.approx(alpha, nan_ok=True)


@pytest.mark.parametrize(
    ("ratings", "values"),
    [
        (np.zeros((0, 3)), [NAN] * 6),
        ([[1, 2]], [NAN] * 6),  # one case
        ([[1], [2]], [NAN] * 6),  # one reader
        ([[0.1, 0.1]] * 3, [NAN] * 6),  # no variation
        ([[1, 1], [2, 2], [3, 3]], [1] * 6),
        ([[1, 2], [1, 2]], [-1, 0, NAN, NAN, 0, NAN]),  # readers differ by a constant, cases do not differ
        ([[0, 1], [1, 0]], [-1, NAN, -1, NAN, NAN, NAN]),  # cases have equal means: nothing between them
    ],
)
def test_degenerate_correlations(ratings: list[list[float]], values: list[float]) -> None:
    results = [intraclass_correlation(ratings, form=form) for form in FORMS]
    assert results == pytest.approx(values, abs=1e-12, nan_ok=True)


def test_shift_and_scale_change_no_correlation(rng: np.random.Generator) -> None:
    ratings = rng.normal(size=(30, 1)) + rng.normal(size=(30, 4))
    for form in FORMS:
        once = intraclass_correlation(ratings, form=form)
        assert intraclass_correlation(1e6 + 3 * ratings, form=form) == pytest.approx(once, abs=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fleiss_kappa([0, 1], n_categories=2), "`ratings` must have 2 dimensions"),
        (lambda: fleiss_kappa([[0, 2]], n_categories=2), r"`ratings` must be in \[-1, 2\), got 0 to 2"),
        (lambda: krippendorff_alpha([[0]], n_categories=1), "`n_categories` must be at least 2, got 1"),
        (lambda: krippendorff_alpha([[0]], n_categories=2, level="ratio"), "`level` must be one of nominal, ordinal"),
        (lambda: intraclass_correlation([1, 2]), r"`ratings` must have shape \(n_cases, n_readers\), got \(2,\)"),
        (lambda: intraclass_correlation([[1, np.inf]]), "`ratings` must be finite"),
        (lambda: intraclass_correlation([[1, 2]], form="4,1"), "`form` must be one of 1,1; 2,1; "),
        (lambda: estimate_reliability([[0, 1]], n_categories=2, findings=[]), "`findings` must have the length of"),
        (lambda: estimate_reliability(np.zeros((0, 2)), n_categories=2), "at least one case"),
    ],
)
def test_bad_input_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
    assert issubclass(ArgumentError, ValueError)


def estimated(ratings, **options) -> dict[tuple[str, str], Estimate]:
    estimates = estimate_reliability(ratings, **{"n_categories": 4, **options})
    return {(one.metric, one.finding): one for one in estimates}


def draw(rng: np.random.Generator, n: int) -> np.ndarray:
    latent = rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, 3))
    return np.where(rng.random((n, 3)) < 0.1, -1, np.searchsorted([-1, 0, 1], latent))


def test_estimates_are_the_metrics_with_intervals_over_patients(rng: np.random.Generator) -> None:
    ratings, n = draw(rng, 120), 120
    findings = ["a", "b"] * 60
    rows = estimated(ratings, findings=findings, patients=[f"p{i // 4}" for i in range(n)])
    numbers = np.where(ratings < 0, np.nan, ratings)
    for name in (name for name, metric in METRICS.items() if metric.family == "reliability"):
        function, is_icc = METRICS[name].resolve(), name.startswith("icc")
        values = []
        for i, finding in enumerate("ab"):
            own = rows[name, finding]
            values.append(function(numbers[i::2]) if is_icc else function(ratings[i::2], n_categories=4))
            assert own.value == pytest.approx(values[-1], abs=1e-12)
            used = (ratings[i::2] >= 0).sum(axis=1) >= (3 if is_icc else 2)
            assert own.n == used.sum()
            assert own.low < own.value < own.high
        assert rows[name, MACRO].value == pytest.approx(np.mean(values), abs=1e-12)
        assert rows[name, MACRO].low < rows[name, MACRO].value < rows[name, MACRO].high
    # The mean of three readers: Spearman and Brown's formula, bounds included
    one, mean = rows["icc_2_1", "a"], rows["icc_2_k", "a"]
    for single, stepped in ((one.value, mean.value), (one.low, mean.low), (one.high, mean.high)):
        assert stepped == pytest.approx(3 * single / (1 + 2 * single), abs=1e-12)
    # As many cases of fewer patients say less
    alone = estimated(ratings, findings=findings)["fleiss_kappa", "a"]
    assert alone.high - alone.low != pytest.approx(rows["fleiss_kappa", "a"].high - rows["fleiss_kappa", "a"].low)


def test_names_have_no_metric_that_needs_an_order(rng: np.random.Generator) -> None:
    assert {name for name, _ in estimated(draw(rng, 20), is_ordered=False)} == set(NOMINAL)
    assert {name for name, _ in estimated(draw(rng, 20), metrics=["icc_2_1"])} == {"icc_2_1"}


@pytest.mark.parametrize("interval", ["percentile", "bca"])
def test_replicates_are_those_of_the_metric(interval, rng: np.random.Generator) -> None:
    ratings = draw(rng, 60)
    rows = estimated(ratings, resampling=Resampling(300, 1, interval=interval))
    for one in rows.values():
        assert one.low < one.value < one.high


def test_few_supporting_patients_leave_no_interval() -> None:
    def interval(n_equal: int, n_unequal: int = 8) -> Estimate:
        ratings = [[1, 1]] * n_equal + [[0, 1]] * n_unequal + [[0, 0]] * 60
        return estimated(ratings, n_categories=2)["fleiss_kappa", "all"]

    assert interval(15).has_interval
    assert not interval(14).has_interval
    assert not interval(15, 1).has_interval  # without the only patient with unequal ratings, kappa is 1
    assert interval(15, 0).value == 1
    assert not interval(15, 0).has_interval


def test_interval_is_that_of_the_jackknife_on_fishers_scale(rng: np.random.Generator) -> None:
    from scipy.stats import t

    ratings = draw(rng, 80)
    own = estimated(ratings)["fleiss_kappa", "all"]
    without = np.arctanh([fleiss_kappa(np.delete(ratings, i, axis=0), n_categories=4) for i in range(80)])
    centre, d = np.arctanh(own.value), without - without.mean()
    total, bias = (d**2).sum(), 79 * (without.mean() - np.arctanh(own.value))
    reach = t.ppf(0.975, 2 * total**2 / ((d**4).sum() - total**2 / 80)) * np.sqrt(79 / 80 * total)
    expected = np.tanh([centre - bias - reach, centre - bias + reach])
    np.testing.assert_allclose([own.low, own.high], expected, atol=1e-5)  # the t quantile is an expansion
