"""bootstrap against a plain Python loop over the same draws, and its degenerate inputs."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from reveal_bench.metrics.agreement_estimates import estimate_agreement
from reveal_bench.metrics.bootstrap import (
    MACRO,
    blocks_of_counts,
    bootstrap_columns,
    bootstrap_means,
    estimate_cases,
    estimate_means,
    needed_blocks,
    resampling_counts,
)
from reveal_bench.metrics.estimates import estimate_labels, estimate_ranking
from reveal_bench.metrics.intervals import Estimate, Resampling, find_intervals

NAN = float("nan")


def loop_replicates(
    values: list[float], groups: list[int], units: list[int], n_units: int, n_groups: int, n_resamples: int, seed: int
) -> list[list[float]]:
    """Draw patients one after another and average what their rows say, in plain Python."""
    draws = np.random.default_rng(seed).integers(0, n_units, (n_resamples, n_units)).tolist()
    table = []
    for draw in draws:
        means = []
        for group in range(n_groups):
            drawn = [
                value
                for unit in draw
                for value, g, u in zip(values, groups, units, strict=True)
                if u == unit and g == group and not math.isnan(value)
            ]
            means.append(math.fsum(drawn) / len(drawn) if drawn else NAN)
        table.append(means)
    return table


def test_replicates_equal_a_plain_loop_with_the_same_draws(rng: np.random.Generator) -> None:
    n, n_units, n_groups = 60, 25, 3
    values = np.where(rng.random(n) < 0.2, NAN, rng.random(n))
    groups, units = rng.integers(0, n_groups, n), rng.integers(0, n_units - 3, n)  # three patients have no row
    counts = resampling_counts(n_units, Resampling(200, 7))
    got = bootstrap_means(values, groups, units, n_groups=n_groups, counts=counts)
    loop = loop_replicates(values.tolist(), groups.tolist(), units.tolist(), n_units, n_groups, 200, 7)
    np.testing.assert_allclose(got.replicates, loop, rtol=1e-13)
    macro, macros = got.macro()
    np.testing.assert_allclose(macros, np.nanmean(loop, axis=1), rtol=1e-13)
    np.testing.assert_allclose(macro, np.mean([np.nanmean(values[groups == g]) for g in range(n_groups)]), rtol=1e-14)

    estimates = estimate_means(
        values,
        [f"finding {g}" for g in groups],
        [f"patient {u:02d}" for u in units],
        findings=["finding 0", "finding 1", "finding 2"],
        units=[f"patient {u:02d}" for u in range(n_units)],
        counts=counts,
        recipe="point_hit|b:200|seed:7|unit:patient|v:1",
    )
    for g, estimate in enumerate(estimates[1:]):
        column = [row[g] for row in loop if not math.isnan(row[g])]
        assert (estimate.low, estimate.high) == pytest.approx(tuple(np.percentile(column, [2.5, 97.5])), rel=1e-12)


def test_many_patients_are_drawn_in_blocks_and_nothing_changes(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_units, n_groups = 20_000, 3
    hits, shares = (rng.random(30_000) < 0.3).astype(float), np.where(rng.random(30_000) < 0.1, NAN, rng.random(30_000))
    groups, units = rng.integers(0, n_groups, 30_000), rng.integers(0, n_units, 30_000)
    counts = resampling_counts(n_units, Resampling(50, 3))
    monkeypatch.setattr("reveal_bench.metrics.bootstrap._COUNTS_AT_ONCE", 20 * n_units)
    blocks = list(blocks_of_counts(n_units, Resampling(50, 3)))
    assert [len(block) for block in blocks] == [16, 16, 16, 2]
    assert np.array_equal(np.concatenate(blocks), counts)
    shape = {"n_groups": n_groups, "n_units": n_units}
    results = bootstrap_columns([hits, shares], groups, units, blocks=blocks, **shape)
    for got, values in zip(results, (hits, shares), strict=True):
        wanted = bootstrap_means(values, groups, units, n_groups=n_groups, counts=counts)
        assert np.array_equal(got.replicates, wanted.replicates)
        assert np.array_equal(got.values, wanted.values)


def test_the_jackknife_needs_no_replicates() -> None:
    (none,) = needed_blocks(3, Resampling(60))
    (some,) = needed_blocks(3, Resampling(60, interval="percentile"))
    assert (none.shape, some.shape) == ((0, 3), (60, 3))
    (means,) = bootstrap_columns([np.ones(3)], np.zeros(3, int), np.arange(3), n_groups=1, n_units=3, blocks=[none])
    assert (means.values.tolist(), means.replicates.shape) == ([1.0], (0, 1))


def test_figures_of_labels_and_raters_are_those_of_one_draw_held_at_once(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, present = rng.random((90, 2)), rng.random((90, 2)) < 0.4
    patients, names = [f"p{k // 2}" for k in range(90)], [f"finding {k % 3}" for k in range(90)]
    raters = rng.integers(0, 4, (2, 90))

    def figures() -> list[Estimate]:
        how: dict[str, Any] = {"patients": patients, "resampling": Resampling(50, interval="percentile")}
        labels, ranked = scores > 0.5, (scores[:, 0], present[:, 0])
        return [
            *estimate_labels(labels, present, labels=["a", "b"], scores=scores, **how),
            *estimate_ranking("auroc", *ranked, findings=names, groups=names[:3], **how),
            *estimate_agreement(*raters, n_categories=4, **how),
        ]

    wanted = figures()
    monkeypatch.setattr("reveal_bench.metrics.bootstrap._MANY_UNITS", 1)
    monkeypatch.setattr("reveal_bench.metrics.bootstrap._COUNTS_AT_ONCE", 1)
    assert [len(block) for block in blocks_of_counts(45, Resampling(50))] == [16, 16, 16, 2]
    assert repr(figures()) == repr(wanted)


def test_a_replicate_without_a_defined_row_is_left_out_and_counted() -> None:
    # one of four patients has the only row: a replicate misses that patient with probability (3/4)^4
    counts = resampling_counts(4, Resampling(2000, 1))
    got = bootstrap_means(np.array([0.7]), np.array([0]), np.array([2]), n_groups=1, counts=counts)
    results, n_empty = find_intervals(np.full(1, NAN), got.replicates), np.isnan(got.replicates).sum()
    assert (results.low[0], results.high[0]) == pytest.approx((0.7, 0.7))
    assert results.n_empty[0] == n_empty == (counts[:, 2] == 0).sum()
    assert n_empty / 2000 == pytest.approx(0.75**4, abs=0.03)


def test_degenerate_inputs() -> None:
    one = estimate_cases("point_hit", 1, np.array([1.0]), resampling=Resampling(interval="percentile"))
    assert (one[0].value, one[0].low, one[0].high, one[0].n) == (1.0, 1.0, 1.0, 1)
    undefined = estimate_cases("point_hit", 1, np.array([NAN, NAN]), resampling=Resampling(interval="percentile"))
    assert math.isnan(undefined[0].value)
    assert math.isnan(undefined[0].low)
    assert (undefined[0].n, undefined[0].n_undefined, undefined[0].n_empty_replicates) == (0, 1, 1000)
    assert (undefined[1].n, undefined[1].n_undefined) == (0, 2)
    single_patient = estimate_cases(
        "point_hit", 1, np.array([1.0, 0.0]), patients=["p", "p"], resampling=Resampling(interval="percentile")
    )
    assert (single_patient[0].low, single_patient[0].high) == (0.5, 0.5)
    few = estimate_cases("point_hit", 1, np.array([1.0, 0.0, 1.0]), resampling=Resampling(3, interval="percentile"))
    assert few[0].low <= few[0].high
    four = estimate_cases("point_hit", 1, np.array([1.0, 0.0, 1.0, 1.0]))  # fewer than five patients: no interval
    assert math.isnan(four[0].low)
    assert math.isnan(four[1].high)


def test_a_finding_without_defined_rows_stays_out_of_the_macro() -> None:
    estimates = estimate_cases("point_hit", 1, np.array([1.0, 0.0, NAN]), findings=["A", "A", "B"])
    assert [e.finding for e in estimates] == [MACRO, "A", "B"]
    assert (estimates[0].value, estimates[0].n, estimates[0].n_undefined) == (0.5, 1, 1)


def test_the_macro_is_a_mean_over_findings_not_rows() -> None:
    values, findings = np.array([1.0, 1.0, 1.0, 0.0]), ["A", "A", "A", "B"]
    assert estimate_cases("point_hit", 1, values, findings=findings)[0].value == 0.5


def test_patients_are_resampled_whole() -> None:
    # ten images of one patient and one of another: by patient the mean is 0, 10/11 or 1, never between
    values = np.array([1.0] * 10 + [0.0])
    counts = resampling_counts(2, Resampling(500))
    means = bootstrap_means(values, np.zeros(11, np.int64), np.array([0] * 10 + [1]), n_groups=1, counts=counts)
    assert set(np.round(means.replicates[:, 0], 6)) == {0.0, round(10 / 11, 6), 1.0}


def test_order_of_cases_does_not_matter(rng: np.random.Generator) -> None:
    values = rng.random(30)
    findings = [f"f{i % 3}" for i in range(30)]
    patients = [f"p{i % 11}" for i in range(30)]
    order = rng.permutation(30)
    straight = estimate_cases("m", 1, values, findings=findings, patients=patients)
    mixed = estimate_cases(
        "m", 1, values[order], findings=[findings[i] for i in order], patients=[patients[i] for i in order]
    )
    for a, b in zip(sorted(straight, key=by_finding), sorted(mixed, key=by_finding), strict=True):
        assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high), rel=1e-12)


def by_finding(estimate: Estimate) -> str:
    return estimate.finding


@pytest.mark.parametrize(
    ("values", "groups", "units", "message"),
    [
        ([1.0, np.inf], [0, 0], [0, 0], "`values` must be finite or NaN, got inf"),
        ([1.0], [0, 0], [0], "`groups` must have the length of `values` (1), got 2"),
        ([1.0], [0], [0, 1], "`units` must have the length of `values` (1), got 2"),
        ([1.0], [1], [0], "`groups` must be in [0, 1), got 1 to 1"),
        ([1.0], [0], [-1], "`units` must be in [0, 2), got -1 to -1"),
    ],
)
def test_bad_input_is_refused(values: list[float], groups: list[int], units: list[int], message: str) -> None:
    counts = resampling_counts(2, Resampling(5))
    with pytest.raises(ValueError, match=re.escape(message)):
        bootstrap_means(np.array(values), np.array(groups), np.array(units), n_groups=1, counts=counts)


def test_no_units_no_cases_and_strangers_are_refused() -> None:
    with pytest.raises(ValueError, match="`n_units` must be at least 1, got 0"):
        resampling_counts(0)
    with pytest.raises(ValueError, match="must hold at least one case, got none"):
        estimate_cases("m", 1, np.array([]))
    with pytest.raises(ValueError, match="`units` must hold every unit of `case_units`, 'p2' is missing"):
        estimate_cases("m", 1, np.array([1.0, 0.0]), patients=["p1", "p2"], all_patients=["p1"])
