"""Sign flips against plain loops over the same patterns, and significant pairs of systems."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import binomtest

from reveal_bench.evaluation.compare import compare
from reveal_bench.evaluation.permutation import LEAST_DIFFERING, LEAST_POSITIVE, draw_signs, sign_flip_p, step_down_p
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.metrics.intervals import Resampling
from tests.evaluation.test_comparison import FINDINGS, system


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
        assert got[finding].p == pytest.approx(plain_p(kept if exact else differences, patterns, exact=exact), abs=1e-9)
    assert n_printed
    macro = [math.fsum(column) / len(common) for column in zip(*shares, strict=True)]
    patterns = [tuple(row) for row in signs.tolist()]
    assert got["macro"].p == pytest.approx(plain_p(macro, patterns, exact=False), abs=1e-9)


def test_equal_differences_make_the_sign_test() -> None:
    # of 11 patients 9 prefer one system: mid-p of the binomial, whose ends scipy knows
    p = sign_flip_p(np.array([0.1] * 9 + [-0.1] * 2), draw_signs(11, Resampling(1)), np.ones(11, bool))
    tails = binomtest(9, 11).pvalue, binomtest(10, 11).pvalue
    assert p == pytest.approx(sum(tails) / 2)


@pytest.mark.parametrize("n", [LEAST_DIFFERING - 1, LEAST_DIFFERING])
def test_too_few_patients_who_differ_have_no_p(n: int) -> None:
    differences = np.array([0.25] * n + [0.0] * 30)
    p = sign_flip_p(differences, draw_signs(n + 30, Resampling(9)), np.ones(n + 30, bool))
    assert math.isnan(p) == (n < LEAST_DIFFERING)


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
        assert not math.isnan(results[metric, "rare"].estimate.low)
        assert 0 < results[metric, "enough"].p < 1
        assert 0 < results[metric, "macro"].p < 1


def test_step_down_maxima_equal_a_plain_loop(rng: np.random.Generator) -> None:
    parts = rng.normal(size=(4, 25)) + np.array([0, 0, 0.4, 1.0])[:, None]
    signs = draw_signs(25, Resampling(199, 1))
    pairs = list(combinations(range(4), 2))

    def statistic(pair: tuple[int, int], pattern: list[float]) -> float:
        d = parts[pair[0]] - parts[pair[1]]
        return abs(math.fsum(s * x for s, x in zip(pattern, d, strict=True))) / math.sqrt(math.fsum(x * x for x in d))

    on_data = {pair: statistic(pair, [1.0] * 25) for pair in pairs}
    left, p = sorted(pairs, key=lambda pair: -on_data[pair]), 0.0
    got = step_down_p(parts, signs)
    while left:
        first = left[0]
        n = sum(max(statistic(pair, row) for pair in left) >= on_data[first] for row in signs.tolist())
        p = max(p, (1 + n) / 200)
        assert got[first] == got[first[::-1]] == pytest.approx(p)
        left.pop(0)
    assert np.diag(got).tolist() == [1.0] * 4


def test_equal_systems_never_differ_significantly(rng: np.random.Generator) -> None:
    twin = rng.random(20)
    got = step_down_p(np.array([twin, twin, twin + 1]), draw_signs(20, Resampling(999)))
    assert got[0, 1] == 1
    assert got[0, 2] == got[1, 2] < 0.01
