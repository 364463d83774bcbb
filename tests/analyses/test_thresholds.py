"""Operating points against scikit-learn's ROC curve and hand arithmetic; degenerate inputs."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score, precision_recall_curve, roc_curve

from reveal_bench.analyses.thresholds import (
    Criterion,
    Cuts,
    at_prevalence,
    cuts_of,
    predictive_bounds,
    ratio_bounds,
)

# Positives at 0.9, 0.8, 0.5, 0.2; negatives at 0.8, 0.4, 0.3, 0.1, 0.1. Falling thresholds call
# 0.9: 1 and 0; 0.8: 2 and 1; 0.5: 3 and 1; 0.4: 3 and 2; 0.3: 3 and 3; 0.2: 4 and 3; 0.1: 4 and 5
SCORES = np.array([0.9, 0.8, 0.5, 0.2, 0.8, 0.4, 0.3, 0.1, 0.1])
PRESENT = np.arange(9) < 4
UNREACHED = "no threshold reaches the target"


@pytest.mark.parametrize(
    ("criterion", "threshold", "rates"),
    [
        (Criterion("youden"), 0.5, [3 / 4, 4 / 5, 3 / 4, 4 / 5]),  # 0.55; at 0.9 0.25, at 0.2 0.4
        (Criterion("f1"), 0.5, [3 / 4, 4 / 5, 3 / 4, 4 / 5]),  # 6 / 8; at 0.2 8 / 11
        (Criterion("cohen_kappa"), 0.5, [3 / 4, 4 / 5, 3 / 4, 4 / 5]),
        (Criterion("sensitivity", 0.75), 0.5, [3 / 4, 4 / 5, 3 / 4, 4 / 5]),
        (Criterion("sensitivity", 0.76), 0.2, [1, 2 / 5, 4 / 7, 1]),
        (Criterion("specificity", 0.8), 0.5, [3 / 4, 4 / 5, 3 / 4, 4 / 5]),  # 0.8 has the same specificity, calls fewer
        (Criterion("specificity", 0.9), 0.9, [1 / 4, 1, 1, 5 / 8]),
        (Criterion("ppv", 0.7), 0.5, [3 / 4, 4 / 5, 3 / 4, 4 / 5]),
        (Criterion("ppv", 0.9), 0.9, [1 / 4, 1, 1, 5 / 8]),
    ],
)
def test_thresholds_by_hand(criterion: Criterion, threshold: float, rates: list[float]) -> None:
    cuts = cuts_of(SCORES, PRESENT)
    chosen = cuts.choose(criterion)
    assert cuts.thresholds[chosen] == threshold
    np.testing.assert_allclose(cuts.rates(chosen, criterion), rates, rtol=1e-15)
    assert cuts.why_none(criterion) == ""


@pytest.mark.parametrize(
    ("scores", "present", "criterion", "reason"),
    [
        ([0.2, 0.4], [0, 0], Criterion("f1"), "no case has it"),
        ([0.2, 0.4], [1, 1], Criterion("youden"), "all cases have it"),
        ([0.4, 0.4, 0.4], [0, 1, 1], Criterion("sensitivity", 0.9), "all probabilities are equal"),
        ([0.9, 0.1], [0, 1], Criterion("youden"), "no threshold has a Youden's index above 0"),
        ([0.9, 0.1], [0, 1], Criterion("cohen_kappa"), "no threshold has a kappa above 0"),
        ([0.9, 0.1], [0, 1], Criterion("ppv", 0.6), UNREACHED),
        ([0.9, 0.9, 0.1], [0, 1, 0], Criterion("specificity", 0.9), f"{UNREACHED} with a true positive"),
    ],
)  # fmt: skip
def test_no_threshold_has_a_reason(scores: list[float], present: list[int], criterion: Criterion, reason: str) -> None:
    cuts = cuts_of(np.array(scores), np.array(present, bool))
    assert cuts.why_none(criterion) == reason
    assert cuts.choose(criterion) == -1
    rates = cuts.rates(cuts.choose(criterion), criterion)
    if criterion.name == "specificity":  # always reached without a positive call; NPV is then 2 of 3
        np.testing.assert_allclose(rates, [0, 1, math.nan, 2 / 3])
    else:
        assert np.isnan(rates).all()


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return scores with ties and both classes."""
    while True:
        n = int(rng.integers(3, 60))
        present = rng.random(n) < rng.choice([0.05, 0.3, 0.8])
        scores = np.round(rng.random(n) + 0.5 * present, int(rng.integers(1, 4)))
        if 0 < present.sum() < n and len(set(scores)) > 1:
            return scores, present


def test_thresholds_equal_scikit_learn(rng: np.random.Generator) -> None:
    for i in range(60):
        scores, present = drawn(rng)
        target = float(rng.choice([0.5, 0.8, 0.9, 1.0]))
        cuts = cuts_of(scores, present)

        def rates(name: str, target: float | None = None, cuts: Cuts = cuts) -> list[float]:
            criterion = Criterion(name, target)  # type: ignore[arg-type]
            return list(cuts.rates(cuts.choose(criterion), criterion))

        fpr, tpr, thresholds = roc_curve(present, scores, drop_intermediate=False)
        reached = 1 - fpr >= target - 1e-12
        assert rates("specificity", target)[0] == pytest.approx(tpr[reached].max(), abs=1e-12)
        assert rates("sensitivity", target)[1] == pytest.approx(1 - fpr[tpr >= target - 1e-12].min(), abs=1e-12)
        youden = tpr - fpr
        if youden.max() > 1e-12:
            chosen = cuts.choose(Criterion("youden"))
            assert cuts.thresholds[chosen] == thresholds[np.argmax(youden > youden.max() - 1e-12)]
        precision, recall, _ = precision_recall_curve(present, scores)
        reached = (precision[:-1] >= target - 1e-12) & (recall[:-1] > 0)
        if reached.any():
            assert rates("ppv", target)[0] == pytest.approx(recall[:-1][reached].max(), abs=1e-12)
        for name, score in (("f1", f1_score), ("cohen_kappa", cohen_kappa_score)) if i % 12 == 0 else ():
            values = [score(present, scores >= threshold) for threshold in cuts.thresholds]
            chosen = cuts.choose(Criterion(name))  # type: ignore[arg-type]
            assert max(values) <= 1e-12 or values[chosen] == pytest.approx(max(values), abs=1e-12)


def test_replicates_equal_repeated_cases(rng: np.random.Generator) -> None:
    scores, present = drawn(rng)
    weights = rng.integers(0, 3, (20, len(scores)))
    for criterion in (Criterion("youden"), Criterion("specificity", 0.8), Criterion("sensitivity", 0.8)):
        cuts = cuts_of(scores, present, weights.astype(np.float64))
        rates = cuts.rates(cuts.choose(criterion), criterion)
        for own, counts in zip(rates, weights, strict=True):
            repeated = np.repeat(np.arange(len(scores)), counts)
            alone = cuts_of(scores[repeated], present[repeated])
            np.testing.assert_allclose(own, alone.rates(alone.choose(criterion), criterion), rtol=1e-12)


def test_predictive_values_by_bayes() -> None:
    # Of 1,000 patients 20 have it: 18 found, 98 of 980 wrongly: 18 / 116; 882 of 884 negatives are right
    np.testing.assert_allclose(at_prevalence(0.9, 0.9, 0.02), [18 / 116, 882 / 884], rtol=1e-12)
    np.testing.assert_allclose(at_prevalence(0, 1, 0.5), [math.nan, 0.5])  # nothing is called
    assert np.isnan(at_prevalence(0.9, 0.9, math.nan)).all()


def test_bounds_of_ratios_and_predictive_values() -> None:
    # Donner and Zou's formula, term by term: 0.5 (0.4 to 0.6) over 0.8 (0.7 to 0.9)
    low = (0.4 - math.sqrt(0.16 - 0.4 * 0.9 * 0.6 * 0.7)) / (0.9 * 0.7)
    high = (0.4 + math.sqrt(0.16 - 0.6 * 0.7 * 0.4 * 0.9)) / (0.7 * 0.9)
    assert ratio_bounds((0.5, 0.4, 0.6), (0.8, 0.7, 0.9)) == pytest.approx((low, high), rel=1e-12)
    assert ratio_bounds((0.0, 0.0, 0.1), (0.5, 0.0, 1.0)) == (0.0, math.inf)
    exact = (0.9, 0.9, 0.9)
    np.testing.assert_allclose(predictive_bounds(exact, exact, 0.02), [[18 / 116] * 2, [882 / 884] * 2], rtol=1e-12)
    (low, high), _ = predictive_bounds((1.0, 0.9, 1.0), (1.0, 0.95, 1.0), 0.02)
    assert 0 < low < high == 1


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("auc", None, "`metric` must be one of f1, youden, cohen_kappa, got 'auc'"),
        ("sensitivity", 1.5, "`sensitivity` must be in (0, 1], got 1.5"),
        ("f1", 0.5, "`target` must be given for sensitivity, specificity, ppv, and only for these, got 0.5 for f1"),
    ],
)
def test_criteria_are_checked(name: str, target: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Criterion(name, target)  # type: ignore[arg-type]
