"""Differences in AUROC and average precision: DeLong's test for many patients; interval, p and margin agree."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from reveal_bench.evaluation.compare import compare, rank, relative_decrease
from reveal_bench.evaluation.margin import Margin
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.metrics.intervals import Resampling

METRICS = ["auroc", "average_precision"]
DRAWS = Resampling(2)  # nothing here depends on replicates
FloatArray = npt.NDArray[np.float64]


def rows_of(scores: FloatArray, present: npt.NDArray[np.bool_]) -> StudyRows:
    studies = tuple(StudyRecord(f"s{i:04}", f"p{i:04}", ()) for i in range(len(scores)))
    labels = tuple("abcd"[: present.shape[1]])
    return StudyRows(labels, studies, scores > 0.5, present, scores, np.ones(len(scores), bool))


def systems(rng: np.random.Generator, n: int, prevalences: tuple[float, ...], *skills: float) -> list[StudyRows]:
    """Return systems whose scores of patients with a finding are higher by their skill."""
    present = rng.random((n, len(prevalences))) < prevalences
    present[:2] = [[True], [False]]
    shared = rng.normal(size=present.shape)
    return [
        rows_of(stats.norm.cdf(shared + rng.normal(size=present.shape) + skill * present), present) for skill in skills
    ]


def test_many_patients_have_the_p_of_delong() -> None:
    rng = np.random.default_rng(3)
    a, b = systems(rng, 3000, (0.3,), 1.5, 1.7)
    assert a.probabilities is not None
    assert b.probabilities is not None
    present, placements = a.present[:, 0], []
    for side in (a.probabilities[:, 0], b.probabilities[:, 0]):
        wins = (side[present][:, None] > side[~present]) + 0.5 * (side[present][:, None] == side[~present])
        placements.append((wins.mean(axis=1), wins.mean(axis=0)))
    area_a, area_b = (own[0].mean() for own in placements)
    variance = sum(np.var(of_a - of_b, ddof=1) / len(of_a) for of_a, of_b in zip(*placements, strict=True))
    expected = 2 * stats.norm.sf(abs(area_a - area_b) / math.sqrt(variance))
    for one in compare(a, b, DRAWS, metrics=["auroc"]):  # the macro of one finding is the finding
        assert one.estimate.value == pytest.approx(area_a - area_b, abs=1e-12)
        assert one.p == pytest.approx(expected, rel=0.15)
        assert one.estimate.high - one.estimate.low == pytest.approx(2 * 1.96 * math.sqrt(variance), rel=0.03)


def test_interval_p_and_verdict_agree_for_60_pairs() -> None:
    """Rows alone and together, differences, and relative decreases."""
    rng = np.random.default_rng(8)
    words: Counter[str] = Counter()
    n_significant = 0
    for _ in range(60):
        a, b = systems(rng, 80, (0.04, 0.1, 0.3, 0.6), *rng.choice([0.5, 1.5, 3.0], 2))
        pair = (
            compare(a, b, DRAWS, metrics=METRICS, margin=Margin(0.1)),
            relative_decrease(a, b, DRAWS, metrics=METRICS),
        )
        for one, decrease in zip(*pair, strict=True):
            assert one.verdict is not None
            words[one.verdict.word] += 1
            if one.verdict.word != "-":
                is_above = one.low_adjusted > -0.1
                assert (one.verdict.word == "non-inferior") == is_above == (one.verdict.p < 0.025)
            assert decrease.p == pytest.approx(one.p, abs=1e-12, nan_ok=True)
            for row in (one, decrease):
                for estimate, p in ((row.estimate, row.p), (row.adjusted, row.p_adjusted)):
                    if estimate.has_interval:
                        assert estimate.low < estimate.value < estimate.high
                        assert (estimate.low > 0 or estimate.high < 0) == (p <= 0.05)
                assert math.isnan(row.p) or row.p_adjusted >= row.p
            n_significant += one.is_significant
    assert 50 < n_significant < 500
    assert all(words[word] > 20 for word in ("non-inferior", "inferior", "not shown", "-")), words


def test_perfect_systems_may_differ_on_other_patients() -> None:
    """Without an error in 20 patients, each AUROC may be a few points below 1."""
    present = np.arange(40)[:, None] < 20
    perfect = rows_of(present * 1.0, present)
    (macro, _) = compare(perfect, perfect, DRAWS, metrics=["auroc"])
    assert macro.p == 1
    assert -0.1 < macro.estimate.low < -0.01
    assert macro.estimate.high == -macro.estimate.low


def test_the_p_of_a_finding_does_not_depend_on_other_findings(rng: np.random.Generator) -> None:
    a, b = systems(rng, 80, (0.1, 0.3, 0.6), 1.0, 2.0)
    for metric in METRICS:
        together = {one.finding: one for one in compare(a, b, DRAWS, metrics=[metric])}
        macro, alone = compare(a, b, DRAWS, metrics=[metric], findings=["b"])
        assert macro.p == pytest.approx(alone.p, abs=1e-12)
        assert alone.p == pytest.approx(together["b"].p, abs=1e-12)
        assert macro.estimate.low == pytest.approx(together["b"].estimate.low, abs=1e-12)


def test_ranks_follow_from_the_p_of_compare(rng: np.random.Generator) -> None:
    good, same, poor = systems(rng, 100, (0.1, 0.3, 0.6), 2.5, 2.5, 0.3)
    for metric in METRICS:
        ranked = rank({"good": good, "same": same, "poor": poor}, metric=metric, resampling=DRAWS)
        assert {one.name: one.tier for one in ranked} == {"good": 1, "same": 1, "poor": 2}
        assert compare(good, poor, DRAWS, metrics=[metric])[0].p < 0.05 / 3
        assert compare(good, same, DRAWS, metrics=[metric])[0].p > 0.05


def test_macros_without_a_frequent_finding_are_not_tested(rng: np.random.Generator) -> None:
    """They have neither tiers nor possible ranks, so they do not look like systems that were found to be equal."""
    a, b = systems(rng, 60, (0.3, 0.3), 2.0, 0.0)
    few = np.arange(60)[:, None] < np.array([4, 3])
    a, b = replace(a, present=few), replace(b, present=few)
    reason = "no finding with 5 patients with it and without it"
    assert {(one.tier, one.rank_low, one.reason) for one in rank({"a": a, "b": b}, metric="auroc")} == {
        (None, None, reason)
    }
    macro = compare(a, b, DRAWS, metrics=["auroc"], margin=Margin(0.05))[0]
    assert macro.verdict is not None
    assert (macro.reason, macro.verdict.sentence) == (reason, f"nothing can be concluded: {reason}")
    assert math.isnan(macro.p)
