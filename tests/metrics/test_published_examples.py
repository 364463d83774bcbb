"""Worked examples of the statistical literature: data and results as published.

Fleiss' kappa, Krippendorff's alpha and the ICC of Shrout and Fleiss are in test_reliability.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reveal_bench.metrics.bootstrap import estimate_cases
from reveal_bench.metrics.estimates import figures_of_ranking
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.labels import auroc

# DeLong, DeLong and Clarke-Pearson (1988, Biometrics 44): 43 patients with three tests before surgery, as the SAS/STAT
# User's Guide prints them (LOGISTIC procedure, "Comparing Receiver Operating Characteristic Curves"):
# albumin, total protein, K-G score (low is good), outcome
SURGERY_TEXT = """
    3.0 5.8 10 0  3.2 6.3 5 1  3.9 6.8 3 1  2.8 4.8 6 0  3.2 5.8 3 1  0.9 4.0 5 0  2.5 5.7 8 0  1.6 5.6 5 1
    3.8 5.7 5 1  3.7 6.7 6 1  3.2 5.4 4 1  3.8 6.6 6 1  4.1 6.6 5 1  3.6 5.7 5 1  4.3 7.0 4 1  3.6 6.7 4 0
    2.3 4.4 6 1  4.2 7.6 4 0  4.0 6.6 6 0  3.5 5.8 6 1  3.8 6.8 7 1  3.0 4.7 8 0  4.5 7.4 5 1  3.7 7.4 5 1
    3.1 6.6 6 1  4.1 8.2 6 1  4.3 7.0 5 1  4.3 6.5 4 1  3.2 5.1 5 1  2.6 4.7 6 1  3.3 6.8 6 0  1.7 4.0 7 0
    3.7 6.1 5 1  3.3 6.3 7 1  4.2 7.7 6 1  3.5 6.2 5 1  2.9 5.7 9 0  2.1 4.8 7 1  2.8 6.2 8 0  4.0 7.0 7 1
    3.3 5.7 6 1  3.7 6.9 5 1  3.6 6.6 5 1
"""
SURGERY = np.array(SURGERY_TEXT.split(), np.float64).reshape(43, 4)


def test_auroc_of_delong_and_others() -> None:
    scores = np.column_stack([SURGERY[:, 0], 10 - SURGERY[:, 2], SURGERY[:, 1]])  # albumin, K-G score, total protein
    good = SURGERY[:, 3] == 1
    present = np.repeat(good[:, None], 3, axis=1)
    parts = figures_of_ranking("auroc", scores, present, np.arange(43), 43, np.empty((0, 3))).parts
    assert parts is not None
    areas = parts[0].sum(axis=0) / parts[1].sum(axis=0)
    # DeLong's covariance: that of the means of the placements of positives and of negatives, which are independent
    influences = (parts[0] - areas) / 43
    covariance = sum(n / (n - 1) * own.T @ own for own in (influences[good], influences[~good]) for n in [len(own)])

    wins = (scores[good][:, None] > scores[~good]) + 0.5 * (scores[good][:, None] == scores[~good])  # of every pair
    assert areas == pytest.approx(wins.mean(axis=(0, 1)), abs=1e-12)
    placed = [wins.mean(axis=1), wins.mean(axis=0)]
    assert covariance == pytest.approx(sum(np.cov(v.T) / len(v) for v in placed), abs=1e-12)

    assert np.sqrt(np.diag(covariance))[:2].round(4).tolist() == [0.0927, 0.1028]  # the guide's standard errors
    contrast = np.array([[1, -1, 0], [0, -1, 1]])  # albumin and total protein against the K-G score
    differences = contrast @ areas
    chi_square = differences @ np.linalg.solve(contrast @ covariance @ contrast.T, differences)
    assert round(float(chi_square), 4) == 2.5340
    assert round(float(stats.chi2.sf(chi_square, 2)), 4) == 0.2817


def test_auroc_of_hanley_and_mcneil() -> None:
    # 1982, Radiology 143, Table I: CT images on a scale of five, area .893
    normal, abnormal = (33, 6, 6, 11, 2), (3, 2, 2, 11, 33)
    ratings = np.repeat([*range(5), *range(5)], [*normal, *abnormal])
    assert len(ratings) == 109
    present = np.arange(109) >= sum(normal)
    assert float(auroc(ratings[:, None], present[:, None])[0]) == pytest.approx(0.893, abs=5e-4)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_proportions_of_newcombe(k: int, n: int, low: float, high: float) -> None:
    """Newcombe (1998, Statistics in Medicine 17) prints Wilson's interval for four proportions.

    Ours takes the percentile of t for the spread of the hits in place of 1.96, and goes further towards an end of the
    scale from which only one or two of many patients keep it: wider than Wilson's, by 0.0005 at most but for 1 of 29.
    """
    hits = (np.arange(n) < k).astype(float)
    own = estimate_cases("point_hit", 1, hits, patients=[str(i) for i in range(n)], resampling=Resampling())[1]
    assert own.low <= low + 5e-5
    assert own.high >= high - 5e-5
    assert (own.low, own.high) == pytest.approx((low, high), abs=0.004 if k == 1 else 5e-4)
