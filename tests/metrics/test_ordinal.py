"""Rubric scores against scipy, hand arithmetic and paper 001's tables; degenerate inputs first."""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.metrics.ordinal import (
    CRITERIA,
    REPORTED,
    REPORTED_OF_TEXT,
    compare_models,
    content_score,
    reader_agreement,
    rubric_summary,
)

NAN = float("nan")
Scores = npt.NDArray[np.float64]


def random_ratings(rng: np.random.Generator, n: int, *, absent: float = 0.2) -> Scores:
    """Ratings of n tasks; a model answers a task in all criteria or in none, and images may be missing alone."""
    ratings = rng.integers(1, 6, (n, len(CRITERIA))).astype(np.float64)
    ratings[rng.random(n) < absent] = NAN
    ratings[rng.random(n) < absent, 4:] = NAN
    return ratings


def test_degenerate_summaries() -> None:
    nobody = rubric_summary({"m": np.empty((0, 6))}, criteria=["language"])[0]
    assert (nobody.n, nobody.n_undefined) == (0, 0)
    unrated = rubric_summary({"m": np.full((3, 6), NAN)}, criteria=["content"])[0]
    assert (unrated.n, unrated.n_undefined) == (0, 3)
    for row in (nobody, unrated):
        assert all(math.isnan(value) for value in (row.mean, row.sd, row.share_of_5, row.share_below_3))
    one = rubric_summary({"m": [[5, 2, 4, 3, NAN, NAN]]}, criteria=["content", "process"])
    assert [(row.mean, row.share_of_5, row.share_below_3, row.n) for row in one] == [(2, 0, 1, 1), (5, 1, 0, 1)]
    assert math.isnan(one[0].sd)


def test_degenerate_comparisons() -> None:
    a = np.array([[3.0, 3, 3, 3, NAN, NAN], [4, 4, 4, 4, NAN, NAN]])
    same = compare_models(a, a)
    assert [(row.n, row.n_differ, row.mean_difference) for row in same] == [(2, 0, 0.0)] * 5
    assert all(math.isnan(row.p_value) and math.isnan(row.p_adjusted) for row in same)
    never = compare_models(a, np.full((2, 6), NAN))
    assert all(row.n == 0 and math.isnan(row.mean_difference) and math.isnan(row.p_value) for row in never)
    # a criterion that differs nowhere takes no part in the adjustment of the others
    b = a.copy()
    b[:, 3] += 1
    b[:, 0] += 1  # process; content stays 3 and 4, the minimum of the other two
    p = {row.criterion: (row.p_value, row.p_adjusted) for row in compare_models(a, b)}
    assert math.isnan(p["content"][1])
    assert p["process"] == p["language"] == (0.5, 0.5)  # two differences of one sign: 2 * (1/2)^2


def test_degenerate_agreement() -> None:
    constant = np.full((4, 6), 3.0)
    for row in reader_agreement(constant, constant):
        assert math.isnan(row.kappa)
        assert (row.mean_absolute_difference, row.n) == (0, 4)
    for row in reader_agreement(constant, np.full((4, 6), NAN)):
        assert math.isnan(row.kappa)
        assert math.isnan(row.mean_absolute_difference)
        assert row.n == 0
    # one reader constant: as good as chance; from 1 to 5 throughout: four steps apart
    assert reader_agreement(constant, np.tile([[2.0], [4.0]], (2, 6)))[0].kappa == 0
    worst = reader_agreement(np.full((4, 6), 1.0), np.full((4, 6), 5.0))[0]
    assert (worst.kappa, worst.mean_absolute_difference) == (0, 4)


def test_content_is_the_weakest_of_three_after_averaging_readers() -> None:
    np.testing.assert_array_equal(content_score([5, 4, NAN], [3, 2, 5], [4, 3, 5]), [3, 2, NAN])
    # readers 5 3 4 and 3 5 4: means 4 4 4, so content is 4, though either reader alone gives 3
    mean = np.array([[4, 4, 4, 5, NAN, 1.5]])
    assert rubric_summary({"m": mean}, criteria=["content"])[0].mean == 4


def test_summary_by_hand() -> None:
    # language 5 4.5 2 2.5: mean 3.5, squared deviations 2.25 1 2.25 1 = 6.5 over 3; one 5, two below 3
    scores = np.full((5, 6), NAN)
    scores[:4, 3] = [5, 4.5, 2, 2.5]
    row = rubric_summary({"m": scores}, criteria=["language"])[0]
    assert (row.mean, row.share_of_5, row.share_below_3, row.n, row.n_undefined) == (3.5, 0.25, 0.5, 4, 1)
    assert row.sd == pytest.approx(math.sqrt(6.5 / 3))


def test_summary_has_a_row_per_model_and_criterion(rng: np.random.Generator) -> None:
    rows = rubric_summary({"a": random_ratings(rng, 20), "b": random_ratings(rng, 30)})
    assert [(row.model, row.criterion) for row in rows] == [(m, c) for m in "ab" for c in REPORTED]
    assert [row.n + row.n_undefined for row in rows] == [20] * 7 + [30] * 7


# Paper 001, Table 3: mean and SD of integer scores, n = 51 (text) and 15 (images).
TABLE_3 = [
    (51, 4.118, 0.840), (51, 4.510, 0.784), (51, 2.961, 1.399), (51, 3.176, 1.337), (51, 3.824, 1.014),
    (51, 3.902, 0.878), (51, 4.235, 0.862), (51, 4.078, 0.771), (15, 2.733, 1.438), (15, 1.933, 1.223),
    (15, 3.667, 1.047), (15, 2.933, 1.438),
]  # fmt: skip


@pytest.mark.parametrize(("n", "mean", "sd"), TABLE_3)
def test_paper_001_divides_squared_deviations_by_n_less_one(n: int, mean: float, sd: float) -> None:
    def fits(ddof: int) -> bool:
        totals = [s for s in range(n, 5 * n + 1) if round(s / n, 3) == mean]
        squares = [(s, q) for s in totals for q in range(s, 25 * n + 1) if (q - s) % 2 == 0 and q >= s * s / n]
        return any(round(math.sqrt((q - s * s / n) / (n - ddof)), 3) == sd for s, q in squares)

    assert fits(1)
    assert not fits(0)


def test_comparison_equals_scipy(rng: np.random.Generator) -> None:
    from scipy.stats import false_discovery_control, wilcoxon

    for trial in range(40):
        n = int(rng.integers(5, 12) if trial < 3 else rng.integers(60, 120))  # scipy enumerates signs for few tasks
        a, b = random_ratings(rng, n), random_ratings(rng, n)
        if trial % 2:  # means of two readers: halves
            a = (a + random_ratings(rng, n)) / 2
        rows = compare_models(a, b, criteria=REPORTED)
        p_values = []
        for criterion, row in zip(REPORTED, rows, strict=True):
            x, y = (s[:, :3].min(axis=1) if criterion == "content" else s[:, CRITERIA.index(criterion)] for s in (a, b))
            both = ~np.isnan(x) & ~np.isnan(y)
            expected = wilcoxon(x[both], y[both])
            p_values.append(expected.pvalue)
            assert (row.statistic, row.p_value) == (expected.statistic, expected.pvalue)
            assert (row.n, row.n_differ) == (both.sum(), (x[both] != y[both]).sum())
            assert row.mean_difference == pytest.approx((x[both] - y[both]).mean(), abs=1e-12)
        np.testing.assert_array_equal([row.p_adjusted for row in rows], false_discovery_control(p_values))


def test_the_family_is_the_five_text_scores_unless_named(rng: np.random.Generator) -> None:
    a, b = random_ratings(rng, 60), random_ratings(rng, 60)
    rows = compare_models(a, b)
    assert [row.criterion for row in rows] == list(REPORTED_OF_TEXT)
    alone = compare_models(a, b, criteria=["language"])[0]
    assert alone.p_adjusted == alone.p_value == rows[4].p_value
    # swapping the models changes the sign alone
    for there, back in zip(rows, compare_models(b, a), strict=True):
        assert (there.p_value, there.p_adjusted) == (back.p_value, back.p_adjusted)
        assert there.mean_difference == -back.mean_difference


def test_agreement_equals_scikit_learn(rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score

    for _ in range(60):
        n = int(rng.integers(10, 60))
        a, b = random_ratings(rng, n), random_ratings(rng, n)
        b = np.where((rng.random(a.shape) < 0.5) & ~np.isnan(b), a, b)
        for criterion, row in zip(CRITERIA, reader_agreement(a, b), strict=True):
            x, y = a[:, CRITERIA.index(criterion)], b[:, CRITERIA.index(criterion)]
            both = ~np.isnan(x) & ~np.isnan(y)
            expected = cohen_kappa_score(x[both], y[both], labels=[1, 2, 3, 4, 5], weights="quadratic")
            assert row.kappa == pytest.approx(expected, abs=1e-12, nan_ok=True)
            assert row.mean_absolute_difference == pytest.approx(np.abs(x - y)[both].mean(), abs=1e-12)
            assert row.n == both.sum()


def test_content_can_be_compared_between_readers() -> None:
    row = reader_agreement([[5, 3, 4, 5, 5, 5]], [[2, 5, 5, 5, 5, 5]], criteria=["content"])[0]
    assert (row.mean_absolute_difference, row.n) == (1, 1)


def test_order_of_tasks_does_not_matter(rng: np.random.Generator) -> None:
    a, b = random_ratings(rng, 40), random_ratings(rng, 40)
    order = rng.permutation(40)
    assert [r.p_value for r in compare_models(a, b)] == [r.p_value for r in compare_models(a[order], b[order])]
    assert reader_agreement(a, b) == reader_agreement(a[order], b[order])
    for x, y in zip(rubric_summary({"m": a}), rubric_summary({"m": a[order]}), strict=True):
        assert (x.mean, x.sd, x.n) == pytest.approx((y.mean, y.sd, y.n), rel=1e-14)


def test_bad_input_is_refused() -> None:
    good = np.full((2, 6), 3.0)
    with pytest.raises(ValueError, match=re.escape("`scores['m']` must have shape (n_tasks, 6), got (2, 5)")):
        rubric_summary({"m": good[:, :5]})
    with pytest.raises(ValueError, match=re.escape("`scores_b` must be in [1, 5] or be NaN, got 6.0")):
        compare_models(good, good + 3)
    with pytest.raises(ValueError, match=re.escape("`scores_a` must be in [1, 5] or be NaN, got inf")):
        compare_models(good + np.inf, good)
    with pytest.raises(ValueError, match=re.escape("`scores_b` must have the length of `scores_a` (2), got 1")):
        compare_models(good, good[:1])
    with pytest.raises(ValueError, match=re.escape("`second` must hold integers from 1 to 5 or NaN, got 3.5")):
        reader_agreement(good, good + 0.5)
    with pytest.raises(ValueError, match=re.escape("`second` must have the length of `first` (2), got 1")):
        reader_agreement(good, good[:1])
    with pytest.raises(ValueError, match=r"`criteria` must be among content, process, .*, got 'accuracy'"):
        rubric_summary({"m": good}, criteria=["accuracy"])
