"""Sign flips against plain loops over the same patterns, and significant pairs of systems."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, cohen_kappa_score, f1_score, precision_score, roc_auc_score

from reveal_bench.evaluation.compare import compare
from reveal_bench.evaluation.margin import Margin
from reveal_bench.evaluation.permutation import (
    LEAST_DIFFERING,
    LEAST_POSITIVE,
    blocks_of_signs,
    draw_signs,
    flip_distributions,
    flipped_t,
    pair_up,
    pairs_p,
    t_of,
)
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.metrics.estimates import figures_of_ranking
from reveal_bench.metrics.intervals import TOO_WIDE, Interval, Resampling
from reveal_bench.metrics.labels import label_sums, ratio_parts
from tests.evaluation.test_comparison import FINDINGS, system


def p_of(differences: list[float]) -> float:
    column = np.array(differences)[:, None]
    (distribution,) = flip_distributions(column, flipped_t(column, draw_signs(len(differences), Resampling(9))))
    return math.nan if distribution is None else float(distribution.p(np.array([t_of(np.array(differences))]))[0])


def plain_p(differences: list[float], patterns: list[tuple[float, ...]], *, exact: bool) -> float:
    """Return the share of patterns as extreme as the data, ties counting half; a draw counts the data as one more."""
    observed = abs(math.fsum(differences))
    extreme = 0.0 if exact else 0.5
    for pattern in patterns:
        flipped = abs(math.fsum(s * d for s, d in zip(pattern, differences, strict=True)))
        extreme += 0.5 if math.isclose(flipped, observed, abs_tol=1e-7) else float(flipped > observed)
    return extreme / (len(patterns) + (not exact))


@pytest.mark.parametrize("metric", ["point_hit", "mask_iou"])
def test_p_equals_a_plain_loop_over_the_same_signs(metric: str, rng: np.random.Generator) -> None:
    a, b = system(rng, 0.75), system(rng, 0.45)
    patients = sorted({patient for _, patient in a.all_images})
    common = FINDINGS[:2]  # the third is too rare for a p
    got = {c.finding: c for c in compare(a, b, Resampling(150, 4), metrics=[metric], findings=common)}
    signs = draw_signs(len(patients), Resampling(150, 4))
    shares = []
    n_printed = 0
    for finding in common:
        of_patient = dict.fromkeys(patients, 0.0)
        cases = [i for i, f in enumerate(a.case_findings) if f == finding]
        for i in cases:
            of_patient[a.patient_ids[i]] += (a.values[metric][i] - b.values[metric][i]) / len(cases)
        differences = list(of_patient.values())
        shares.append(differences)
        n_differ = sum(abs(d) > 1e-12 for d in differences)
        if n_differ < LEAST_DIFFERING:
            assert math.isnan(got[finding].p)
            continue
        n_printed += 1
        kept = [d for d in differences if d]
        exact = n_differ < 12
        patterns = list(product((1.0, -1.0), repeat=n_differ)) if exact else [tuple(row) for row in signs.tolist()]
        assert got[finding].p == pytest.approx(
            plain_p(kept if exact else differences, patterns, exact=exact), abs=1 / 151
        )
    assert n_printed
    macro = [math.fsum(column) / len(common) for column in zip(*shares, strict=True)]
    patterns = [tuple(row) for row in signs.tolist()]
    assert got["macro"].p == pytest.approx(plain_p(macro, patterns, exact=False), abs=1 / 151)


def test_equal_differences_make_the_sign_test() -> None:
    # of 11 patients 9 prefer one system: mid-p of the binomial, whose ends scipy knows
    p = p_of([0.1] * 9 + [-0.1] * 2)
    tails = binomtest(9, 11).pvalue, binomtest(10, 11).pvalue
    assert p == pytest.approx(sum(tails) / 2)


@pytest.mark.parametrize("n", [LEAST_DIFFERING - 1, LEAST_DIFFERING])
def test_too_few_patients_who_differ_have_no_p(n: int) -> None:
    # Six of one sign: 2 of 64 flips are as extreme, which count half. Five have at best 2 of 32, more than 0.05.
    p = p_of([0.25] * n + [0.0] * 30)
    assert math.isnan(p) if n < LEAST_DIFFERING else p == 1 / 64


def test_a_finding_that_few_patients_have_has_no_p() -> None:
    """The systems call it in enough other patients to differ; docs/statistics.md has the rate of errors."""
    n = 60
    present = np.arange(n)[:, None] < (LEAST_POSITIVE - 1, LEAST_POSITIVE)
    studies = tuple(StudyRecord(f"s{i}", f"p{i}", ()) for i in range(n))
    a, b = (
        StudyRows(
            ("rare", "enough"), studies, present | (np.arange(n)[:, None] % k == 0), present, None, np.ones(n, bool)
        )
        for k in (2, 3)
    )
    results = {(c.metric, c.finding): c for c in compare(a, b, Resampling(200), metrics=["f1", "cohen_kappa"])}
    for metric in ("f1", "cohen_kappa"):
        assert math.isnan(results[metric, "rare"].p)
        assert math.isnan(results[metric, "rare"].estimate.low)
        assert 0 < results[metric, "enough"].p < 1
        assert 0 < results[metric, "macro"].p < 1


@pytest.mark.parametrize("interval", ["jackknife", "percentile"])
def test_a_predictive_value_needs_errors_that_differ(interval: Interval) -> None:
    """Of 100 patients 14 have Edema. Both systems miss the first, and 12 of the others are called by one of them only.

    NPV is 81 of 82 and 79 of 80: another miss would change it by 0.012, the 12 patients change it by 0.0003.
    """
    present = np.arange(100)[:, None] < 14
    a, b = present & (np.arange(100)[:, None] > 0), present & (np.arange(100)[:, None] > 0)
    a[14:19], b[20:27] = True, True
    studies = tuple(StudyRecord(f"s{i}", f"p{i:02d}", ()) for i in range(100))
    systems = [StudyRows(("Edema",), studies, own, present, None, np.ones(100, bool)) for own in (a, b)]
    by_metric = {
        one.metric: one for one in compare(*systems, Resampling(200, interval=interval)) if one.finding != "macro"
    }
    npv = by_metric["npv"]
    assert (npv.a, npv.b) == (81 / 82, 79 / 80)
    assert np.isnan([npv.p, npv.p_adjusted, npv.estimate.low]).all()
    assert npv.reason == "one patient outweighs all on whom the systems differ"
    assert not np.isnan([by_metric[name].p for name in ("specificity", "precision", "f1")]).any()
    assert not by_metric["precision"].reason


def test_ratios_of_every_unit_add_up_to_the_score(rng: np.random.Generator) -> None:
    present, called = rng.random((40, 2)) < 0.4, rng.random((40, 2)) < 0.5
    scores = rng.integers(0, 9, (40, 2)) / 8
    units = rng.integers(0, 15, 40)
    sums = label_sums(called, present, units=units, n_units=15)
    for metric, value in (
        ("f1", f1_score(present, called, average=None)),
        ("cohen_kappa", [cohen_kappa_score(present[:, k], called[:, k]) for k in range(2)]),
    ):
        numerators, denominators = ratio_parts(metric, sums)
        assert numerators.sum(axis=0) / denominators.sum(axis=0) == pytest.approx(value, abs=1e-12)
    for ranking, of_scores in (("auroc", roc_auc_score), ("average_precision", average_precision_score)):
        parts = figures_of_ranking(ranking, scores, present, units, 15, np.empty((0, 2))).parts
        assert parts is not None
        numerators, denominators = parts
        expected = of_scores(present, scores, average=None)
        assert numerators.sum(axis=0) / denominators.sum(axis=0) == pytest.approx(expected, abs=1e-12)
        for unit in range(15):  # a unit that weighs a little more
            weights = np.where(units == unit, 1 + 1e-6, 1.0)
            heavier = of_scores(present, scores, average=None, sample_weight=weights)
            influence = (numerators[unit] - expected) / denominators[:, 0].sum() if denominators[unit, 0] else 0
            assert (heavier - expected) / 1e-6 == pytest.approx(influence, abs=1e-5)


def test_contributions_add_up_and_are_those_of_patients_who_differ(rng: np.random.Generator) -> None:
    present = rng.random((60, 3)) < 0.3
    a, b = (present ^ (rng.random((60, 3)) < 0.15) for _ in range(2))
    studies = tuple(StudyRecord(f"s{i:02}", f"p{i:02}", ()) for i in range(60))
    systems = [StudyRows(("x", "y", "z"), studies, own, present, None, np.ones(60, bool)) for own in (a, b)]
    figures = StudyRows.resample(systems, Resampling(1), metrics=["f1", "cohen_kappa"], groups=("x", "y", "z"))
    for metric in ("f1", "cohen_kappa"):
        paired = pair_up(figures[0][metric], figures[1][metric])
        assert paired is not None
        expected = figures[0][metric].values - figures[1][metric].values
        assert paired.contributions.sum(axis=0) == pytest.approx([expected.mean(), *expected], abs=1e-12)
        assert np.array_equal(np.abs(paired.contributions[:, 1:]) > 1e-12, a != b)


def test_p_of_ratios_counts_swapped_answers_with_scores_computed_anew() -> None:
    """Every swap of the six patients on whom the systems differ, by scikit-learn."""
    rng = np.random.default_rng(6)
    n, n_differ = 24, 6
    present = rng.random((n, 2)) < 0.5
    shared = present ^ (rng.random((n, 2)) < 0.2)
    a, b = shared.copy(), shared.copy()
    b[:n_differ] ^= rng.random((n_differ, 2)) < (0.9, 0.5)
    b[:n_differ, 0] |= a[:n_differ, 0] == b[:n_differ, 0]
    differ = (a != b).any(axis=1)
    assert LEAST_DIFFERING <= differ.sum() <= n_differ
    studies = tuple(StudyRecord(f"s{i:02}", f"p{i:02}", ()) for i in range(n))
    systems = [StudyRows(("x", "y"), studies, own, present, None, np.ones(n, bool)) for own in (a, b)]
    for metric, score in (("f1", f1_score), ("cohen_kappa", cohen_kappa_score), ("precision", precision_score)):
        differences = []
        for flips in product((False, True), repeat=int(differ.sum())):
            is_swapped = np.zeros(n, bool)
            is_swapped[differ] = flips
            one, other = (np.where(is_swapped[:, None], y, x) for x, y in ((a, b), (b, a)))
            differences.append(np.mean([score(present[:, k], one[:, k]) - score(present[:, k], other[:, k])
                                        for k in range(2)]))  # fmt: skip
        size, observed = np.abs(differences), abs(differences[0])
        expected = np.mean(np.where(np.abs(size - observed) < 1e-9, 0.5, size > observed))
        macro, *_ = compare(*systems, Resampling(100), metrics=[metric])
        assert macro.p == pytest.approx(expected, abs=1e-9), metric


def test_p_intervals_and_adjusted_ones_agree_for_200_pairs() -> None:
    """Interval, p and verdict of a row never disagree, whatever the systems; adjusted p are not smaller."""
    rng = np.random.default_rng(8)
    studies = tuple(StudyRecord(f"s{i:02}", f"p{i:02}", ()) for i in range(60))
    labels = ("a", "b", "c", "d")
    n_significant = 0
    words: Counter[str] = Counter()
    for trial in range(200):
        present = rng.random((60, 4)) < (0.08, 0.2, 0.4, 0.7)
        errors = rng.choice([0.02, 0.1, 0.3], 2)
        systems = [
            StudyRows(labels, studies, present ^ (rng.random((60, 4)) < share), present, None, np.ones(60, bool))
            for share in errors
        ]
        interval: Interval = "percentile" if trial % 4 == 0 else "jackknife"
        draws, margin = Resampling(200, trial, interval=interval), Margin(0.1)
        for one in compare(*systems, draws, metrics=["f1", "recall"], margin=margin):
            assert one.verdict is not None
            words[one.verdict.word] += 1
            if one.verdict.word != "-":  # it is that of the printed interval
                is_above = one.low_adjusted > -0.1
                assert (one.verdict.word == "non-inferior") == is_above
                assert is_above == (one.verdict.p < 0.025) or interval == "percentile", (trial, one)
            rows = (one.estimate, one.p), (one.adjusted, one.p_adjusted)
            for estimate, p in rows:
                if estimate.has_interval:
                    assert (estimate.low > 0 or estimate.high < 0) == (p <= 0.05), (trial, one)
            assert math.isnan(one.p) or one.p_adjusted >= one.p
            n_significant += one.is_significant
    assert 100 < n_significant < 1500
    assert all(words[word] > 50 for word in ("non-inferior", "inferior", "not shown", "-")), words


def test_a_difference_that_may_be_nearly_anything_has_p_but_no_interval() -> None:
    """Of 20 patients five have the finding; A finds two, B three others, each with three other false alarms."""
    n = np.arange(20)[:, None]
    calls = np.isin(n, [0, 1, 5, 6, 7]), np.isin(n, [2, 3, 4, 8, 9, 10])
    studies = tuple(StudyRecord(f"s{i:02}", f"p{i:02}", ()) for i in range(20))
    systems = [StudyRows(("a",), studies, called, n < 5, None, np.ones(20, bool)) for called in calls]
    one = compare(*systems, Resampling(2000), metrics=["f1"], margin=Margin(0.1))[1]
    # the interval would be -0.87 to 0.67; of the 2,048 swaps of the 11 who differ, 11 of 16 count for p
    assert (one.estimate.value, one.p) == (pytest.approx(4 / 10 - 6 / 11), pytest.approx(11 / 16))
    assert (math.isnan(one.low_adjusted), math.isnan(one.estimate.low), one.reason) == (True, True, TOO_WIDE)
    assert one.verdict is not None
    assert (one.verdict.word, one.verdict.sentence) == ("-", f"nothing can be concluded: {TOO_WIDE}")


def test_equal_systems_never_differ_significantly(rng: np.random.Generator) -> None:
    twin = system(rng, 0.5)
    other = system(rng, 0.99)
    figures = [own["point_hit"] for own in twin.resample([twin, twin, other], Resampling(1), metrics=["point_hit"],
               groups=twin.findings)]  # fmt: skip
    n_units = len({patient for _, patient in twin.all_images})
    p = pairs_p(figures, blocks_of_signs(n_units, Resampling(999)))
    assert p is not None
    assert p[0, 1] == 1
    assert p[0, 2] == p[1, 2] < 0.01


def test_few_swaps_give_the_small_p_of_many_pairs() -> None:
    """Of 30 patients, all prefer the first system: 2 of 2**30 flips are as extreme, far fewer than 1 in 1,000."""
    equal = np.ones((30, 1))
    (distribution,) = flip_distributions(equal, flipped_t(equal, draw_signs(30, Resampling(1000))))
    assert distribution is not None
    p = float(distribution.p(np.array([math.sqrt(30)]))[0])
    assert 2 / 2**30 < p < 0.05 / 4950  # the 4,950 pairs of 100 systems
    exact = 2 * stats.binom.sf(24, 30, 0.5) + stats.binom.pmf(24, 30, 0.5)  # 24 prefer it: t = 18 / sqrt(30)
    assert exact / 2.5 < float(distribution.p(np.array([18 / math.sqrt(30)]))[0]) < 2.5 * exact
