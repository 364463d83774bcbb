"""Label metrics against scikit-learn on many random inputs; degenerate inputs first."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.arguments import PROBABILITY_RULE
from reveal_bench.metrics.bootstrap import resampling_counts
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.labels import (
    Average,
    Ranking,
    Ratio,
    apply_thresholds,
    auroc,
    average_precision,
    balanced_accuracy,
    exact_match,
    exact_match_from_sums,
    hamming_from_sums,
    hamming_loss,
    kappa_from_sums,
    label_sums,
    lowest_mcc,
    mcc,
    multilabel_f1,
    npv,
    precision,
    ranking_replicates,
    ratio_from_sums,
    recall,
    specificity,
)
from reveal_bench.metrics.probabilities import log_loss

NAN = float("nan")
Bools = npt.NDArray[np.bool_]
AVERAGES: tuple[Average | None, ...] = (None, "macro", "micro", "weighted", "samples")
RATIOS: dict[Ratio, tuple[Callable[..., Any], int]] = {
    "f1": (multilabel_f1, 2),
    "precision": (precision, 0),
    "recall": (recall, 1),
}
"""Function of this package, and the position of its value in scikit-learn's `precision_recall_fscore_support`."""
OF_NEGATIVES: dict[Ratio, tuple[Callable[..., Any], int]] = {"specificity": (specificity, 1), "npv": (npv, 0)}
"""The same with scikit-learn's `pos_label=0`: all labels inverted."""
RANKINGS: dict[Ranking, tuple[Callable[..., Any], str]] = {
    "auroc": (auroc, "roc_auc_score"),
    "average_precision": (average_precision, "average_precision_score"),
}
"""Function of this package, and its name in scikit-learn."""


def random_labels(rng: np.random.Generator, n_inputs: int) -> Iterator[tuple[Bools, Bools]]:
    """Prediction and reference pairs, 2 to 6 labels, some labels rare, never or always present."""
    for _ in range(n_inputs):
        shape = int(rng.integers(1, 40)), int(rng.integers(2, 7))
        prevalence = rng.choice([0.0, 0.05, 0.3, 0.7, 1.0], shape[1])
        references = rng.random(shape) < prevalence
        yield np.where(rng.random(shape) < rng.random(), references, rng.random(shape) < prevalence), references


@pytest.mark.parametrize(
    ("predictions", "references", "f1", "p", "r", "exact", "hamming", "kappa"),
    [
        (np.empty((0, 1), bool), np.empty((0, 1), bool), NAN, NAN, NAN, NAN, NAN, NAN),  # no study
        ([[0]], [[0]], NAN, NAN, NAN, 1, 0, NAN),  # one study, nothing there, nothing said
        ([[1]], [[1]], 1, 1, 1, 1, 0, NAN),  # both constant: chance agreement is 1
        ([[1]], [[0]], 0, 0, NAN, 0, 1, 0),
        ([[0]], [[1]], 0, NAN, 0, 0, 1, 0),
        ([[0], [0]], [[0], [0]], NAN, NAN, NAN, 1, 0, NAN),  # never positive in either
        ([[0], [0]], [[0], [1]], 0, NAN, 0, 0.5, 0.5, 0),  # predictions constant
        ([[1], [0]], [[1], [0]], 1, 1, 1, 1, 0, 1),  # perfect
        ([[1], [0]], [[0], [1]], 0, 0, 0, 0, 1, -1),  # worst
    ],
)
def test_degenerate_inputs(
    predictions: Any, references: Any, f1: float, p: float, r: float, exact: float, hamming: float, kappa: float
) -> None:
    expected = [f1, p, r, exact, hamming, kappa]
    for average in AVERAGES[:3]:  # with one label, they are one
        got = [
            *(float(function(predictions, references, average=average).item()) for function, _ in RATIOS.values()),
            exact_match(predictions, references),
            hamming_loss(predictions, references),
            float(kappa_from_sums(label_sums(predictions, references).total, average="macro")),
        ]
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("scores", "references", "area", "ap"),
    [
        (np.empty((0, 1)), np.empty((0, 1), bool), NAN, NAN),
        ([[0.3]], [[1]], NAN, NAN),  # one class
        ([[0.3], [0.9]], [[0], [0]], NAN, NAN),
        ([[0.3], [0.9]], [[1], [1]], NAN, NAN),
        ([[0.5], [0.5], [0.5], [0.5]], [[1], [0], [0], [0]], 0.5, 0.25),  # ties everywhere: chance, prevalence
        ([[0.9], [0.1]], [[1], [0]], 1, 1),
        ([[0.1], [0.9]], [[1], [0]], 0, 0.5),
        # positives 4 and 1; negatives 2 and 1: pairs 1, 1, 0, half; precision at 4: 1/1, at 1: 2/4
        ([[4], [1], [2], [1]], [[1], [1], [0], [0]], 2.5 / 4, (1 + 0.5) / 2),
    ],
)
def test_degenerate_rankings(scores: Any, references: Any, area: float, ap: float) -> None:
    for average in (None, "macro", "micro"):
        assert float(auroc(scores, references, average=average).item()) == pytest.approx(area, nan_ok=True)
        got = float(average_precision(scores, references, average=average).item())
        assert got == pytest.approx(ap, nan_ok=True)


def test_an_undefined_label_stays_out_of_the_macro() -> None:
    # label 0: F1 = 2 / 3; label 1 never; label 2: missed once, F1 = 0
    predictions, references = [[1, 0, 0], [0, 0, 0]], [[1, 0, 0], [1, 0, 1]]
    np.testing.assert_allclose(multilabel_f1(predictions, references), [2 / 3, NAN, 0])
    assert multilabel_f1(predictions, references, average="macro") == pytest.approx(1 / 3)
    assert multilabel_f1(predictions, references, average="macro", zero_division=1) == pytest.approx(5 / 9)
    assert multilabel_f1(predictions, references, average="weighted") == pytest.approx((2 / 3 * 2 + 0) / 3)
    assert multilabel_f1(predictions, references, average="micro") == pytest.approx(2 / 4)
    assert multilabel_f1(predictions, references, average="samples") == pytest.approx((1 + 0) / 2)
    # weighted by positives: none at all leaves it undefined, whatever a lone label is worth
    assert math.isnan(multilabel_f1([[1, 0]], [[0, 0]], average="weighted"))


@pytest.mark.parametrize("zero_division", [NAN, 0, 1])
def test_ratios_equal_scikit_learn(zero_division: float, rng: np.random.Generator) -> None:
    from sklearn import metrics as oracle
    from sklearn.exceptions import UndefinedMetricWarning

    for predictions, references in random_labels(rng, 40):
        defined = {
            metric: ~np.isnan(ours(predictions, references, zero_division=zero_division))
            for metric, (ours, _) in RATIOS.items()
        }
        for average in AVERAGES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndefinedMetricWarning)
                theirs = oracle.precision_recall_fscore_support(
                    references, predictions, average=average, zero_division=zero_division
                )
            for metric, (ours, place) in RATIOS.items():
                got = ours(predictions, references, average=average, zero_division=zero_division)
                if average == "weighted" and not references[:, defined[metric]].any():
                    assert math.isnan(got)
                    continue  # no weight at all: scikit-learn takes the unweighted mean
                np.testing.assert_allclose(got, theirs[place], rtol=0, atol=1e-12)


@pytest.mark.parametrize("zero_division", [NAN, 0, 1])
def test_specificity_and_npv_equal_scikit_learn(zero_division: float, rng: np.random.Generator) -> None:
    from sklearn import metrics as oracle
    from sklearn.exceptions import UndefinedMetricWarning

    for predictions, references in random_labels(rng, 25):
        defined = {
            metric: ~np.isnan(ours(predictions, references, zero_division=zero_division))
            for metric, (ours, _) in OF_NEGATIVES.items()
        }
        for average in AVERAGES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndefinedMetricWarning)
                theirs = oracle.precision_recall_fscore_support(
                    ~references, ~predictions, average=average, zero_division=zero_division
                )
            for metric, (ours, place) in OF_NEGATIVES.items():
                got = ours(predictions, references, average=average, zero_division=zero_division)
                if average == "weighted" and not (~references)[:, defined[metric]].any():
                    assert math.isnan(got)
                    continue  # no weight at all: scikit-learn takes the unweighted mean
                np.testing.assert_allclose(got, theirs[place], rtol=0, atol=1e-12)


def test_specificity_and_npv_by_hand() -> None:
    # Label 0: TN 2, FP 1, FN 1; label 1: always present, called once; label 2: never present, always called
    predictions = [[1, 1, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    references = [[0, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0]]
    np.testing.assert_array_equal(specificity(predictions, references), [2 / 3, NAN, 0])
    np.testing.assert_array_equal(npv(predictions, references), [2 / 3, 0, NAN])


def test_balanced_accuracy_and_mcc_equal_scikit_learn_where_defined(rng: np.random.Generator) -> None:
    from sklearn import metrics as oracle

    for predictions, references in random_labels(rng, 40):
        one_class = references.all(axis=0) | ~references.any(axis=0)
        constant = one_class | predictions.all(axis=0) | ~predictions.any(axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            columns = list(zip(references.T, predictions.T, strict=True))
            accuracies = np.array([oracle.balanced_accuracy_score(*column) for column in columns])
            correlations = np.array([oracle.matthews_corrcoef(*column) for column in columns])
        expected = np.where(one_class, NAN, accuracies)
        np.testing.assert_allclose(balanced_accuracy(predictions, references), expected, rtol=0, atol=1e-12)
        expected = np.where(constant, NAN, correlations)
        np.testing.assert_allclose(mcc(predictions, references), expected, rtol=0, atol=1e-12)
        pooled = mcc(predictions, references, average="micro")
        if not np.isnan(pooled):
            by_hand = np.corrcoef(predictions.ravel(), references.ravel())[0, 1]
            assert float(pooled) == pytest.approx(by_hand, abs=1e-12)


def test_log_loss_equals_scikit_learn(rng: np.random.Generator) -> None:
    from sklearn import metrics as oracle

    for _, references in random_labels(rng, 40):
        # certain and wrong, certain and right, below the smallest probability, and in between
        probabilities = rng.choice([0.0, 1.0, 1e-300, 1e-17, 0.3, 0.999], references.shape)
        expected = [
            oracle.log_loss(present, own, labels=[0, 1])
            for present, own in zip(references.T, probabilities.T, strict=True)
        ]
        np.testing.assert_allclose(log_loss(probabilities, references), expected, rtol=1e-12, atol=1e-12)
        assert log_loss(probabilities, references, average="macro") == pytest.approx(np.mean(expected))
    with pytest.raises(ValueError, match=r"`probabilities` must be in \[0, 1\]; for logits, .*, got 1\.5"):
        log_loss([[1.5]], [[1]])


def test_lowest_mcc_is_that_of_least_overlap() -> None:
    """Every order of the predictions, of which one overlaps the references least."""
    from itertools import permutations

    for n_called, n_positive in ((1, 1), (2, 3), (4, 3), (1, 4)):
        references = np.arange(5) < n_positive
        all_orders = set(permutations((np.arange(5) < n_called).tolist()))
        values = [float(mcc(np.array(order)[:, None], references[:, None])[0]) for order in all_orders]
        sums = label_sums((np.arange(5) < n_called)[:, None], references[:, None]).total
        assert float(lowest_mcc(sums)[0]) == pytest.approx(min(values))


def test_exact_match_hamming_and_kappa_equal_scikit_learn(rng: np.random.Generator) -> None:
    from sklearn import metrics as oracle
    from sklearn.exceptions import UndefinedMetricWarning

    for predictions, references in random_labels(rng, 40):
        assert exact_match(predictions, references) == oracle.accuracy_score(references, predictions)
        assert hamming_loss(predictions, references) == pytest.approx(
            oracle.hamming_loss(references, predictions), abs=1e-12
        )
        sums = label_sums(predictions, references).total
        np.testing.assert_array_equal(hamming_from_sums(sums), (predictions != references).mean(axis=0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            columns = zip(predictions.T, references.T, strict=True)
            kappas = [oracle.cohen_kappa_score(a, b, labels=[0, 1]) for a, b in columns]
            pooled = oracle.cohen_kappa_score(predictions.ravel(), references.ravel(), labels=[0, 1])
        np.testing.assert_allclose(kappa_from_sums(sums), kappas, rtol=0, atol=1e-12)
        assert float(kappa_from_sums(sums, average="micro")) == pytest.approx(pooled, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("metric", list(RANKINGS))
def test_rankings_equal_scikit_learn(metric: Ranking, rng: np.random.Generator) -> None:
    from sklearn import metrics as oracle

    ours, name = RANKINGS[metric]
    theirs = getattr(oracle, name)
    for trial in range(60):
        n, n_labels = int(rng.integers(2, 60)), int(rng.integers(2, 5))
        references = rng.random((n, n_labels)) < rng.choice([0.0, 0.1, 0.5, 1.0], n_labels, p=[0.1, 0.4, 0.4, 0.1])
        scores = rng.normal(size=(n, n_labels)) + references
        if trial % 2:
            scores = np.round(scores)  # many ties
        two = references.any(axis=0) & ~references.all(axis=0)
        values = ours(scores, references)
        np.testing.assert_array_equal(np.isnan(values), ~two)
        for i in np.flatnonzero(two):
            assert values[i] == pytest.approx(theirs(references[:, i], scores[:, i]), abs=1e-12)
        if two.any():
            for average in ("macro", "weighted"):
                if two.sum() > 1:
                    expected = theirs(references[:, two], scores[:, two], average=average)
                    assert ours(scores[:, two], references[:, two], average=average) == pytest.approx(
                        expected, abs=1e-12
                    )
            expected = theirs(references.ravel(), scores.ravel())
            assert float(ours(scores, references, average="micro")) == pytest.approx(expected, abs=1e-12)
            assert float(ours(scores, references, average="macro")) == pytest.approx(values[two].mean(), abs=1e-12)


@pytest.fixture
def world(rng: np.random.Generator) -> tuple[Bools, Bools, npt.NDArray[np.int64], int]:
    """Predictions, references, patients of studies (two patients without any), number of patients."""
    references = rng.random((70, 4)) < [0.5, 0.2, 0.05, 0.0]
    predictions = np.where(rng.random((70, 4)) < 0.7, references, rng.random((70, 4)) < 0.3)
    return predictions, references, rng.integers(0, 28, 70), 30


def draws_of(
    units: npt.NDArray[np.int64], n_units: int, n_resamples: int, seed: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Studies of every replicate: patient after patient, in plain Python."""
    for draw in np.random.default_rng(seed).integers(0, n_units, (n_resamples, n_units)):
        yield np.concatenate([np.flatnonzero(units == unit) for unit in draw])


def test_replicates_of_decisions_equal_a_loop_over_the_same_draws(
    world: tuple[Bools, Bools, npt.NDArray[np.int64], int],
) -> None:
    from sklearn import metrics as oracle
    from sklearn.exceptions import UndefinedMetricWarning

    predictions, references, units, n_units = world
    counts = resampling_counts(n_units, Resampling(20, 3))
    replicates = label_sums(predictions, references, units=units, n_units=n_units).resample(counts)
    for b, rows in enumerate(draws_of(units, n_units, 20, 3)):
        p, r = predictions[rows], references[rows]
        for average in AVERAGES:
            for zero_division in (NAN, 0, 1):
                for metric, (function, _) in RATIOS.items():
                    got = ratio_from_sums(metric, replicates, average, zero_division)[b]
                    expected = function(p, r, average=average, zero_division=zero_division)
                    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
        assert exact_match_from_sums(replicates)[b] == exact_match(p, r)
        assert hamming_from_sums(replicates, average="micro")[b] == pytest.approx(hamming_loss(p, r), abs=1e-14)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            kappas = [oracle.cohen_kappa_score(p[:, i], r[:, i], labels=[0, 1]) for i in range(4)]
        np.testing.assert_allclose(kappa_from_sums(replicates)[b], kappas, rtol=0, atol=1e-12)
        assert kappa_from_sums(replicates, average="macro")[b] == pytest.approx(np.nanmean(kappas), abs=1e-12)


@pytest.mark.parametrize("average", [None, "macro", "micro", "weighted"])
@pytest.mark.parametrize("metric", list(RANKINGS))
def test_replicates_of_rankings_equal_a_loop_over_the_same_draws(
    metric: Ranking,
    average: Average | None,
    world: tuple[Bools, Bools, npt.NDArray[np.int64], int],
    rng: np.random.Generator,
) -> None:
    _, references, units, n_units = world
    scores = np.round(rng.normal(size=references.shape) + references, 1)  # ties
    counts = resampling_counts(n_units, Resampling(60, 4))
    got = ranking_replicates(metric, scores, references, counts, units=units, average=average)
    ours, _ = RANKINGS[metric]
    for b, rows in enumerate(draws_of(units, n_units, 60, 4)):
        np.testing.assert_allclose(got[b], ours(scores[rows], references[rows], average=average), rtol=0, atol=1e-12)
    # one replicate at a time, and each study its own unit
    assert np.isnan(got).any() == (average is None)
    alone = [ranking_replicates(metric, scores, references, row[None], units=units, average=average) for row in counts]
    np.testing.assert_allclose(np.concatenate(alone), got, rtol=1e-14)
    once = ranking_replicates(metric, scores, references, np.ones((1, 70)), average=average)
    np.testing.assert_allclose(once[0], ours(scores, references, average=average))


def test_many_replicates_go_by_blocks(rng: np.random.Generator) -> None:
    # 2**21 weights at a time: 3,000 studies make blocks of 699 replicates
    from sklearn import metrics as oracle

    references, scores = rng.random((3000, 1)) < 0.3, rng.random((3000, 1))
    counts = resampling_counts(3000, Resampling(800))
    got = ranking_replicates("auroc", scores, references, counts)
    for b in (0, 698, 699, 799):
        rows = np.repeat(np.arange(3000), counts[b].astype(int))
        assert got[b, 0] == pytest.approx(oracle.roc_auc_score(references[rows, 0], scores[rows, 0]), abs=1e-12)


def test_order_of_studies_labels_and_doubling_do_not_matter(rng: np.random.Generator) -> None:
    for predictions, references in random_labels(rng, 15):
        scores = rng.random(references.shape).round(1)
        studies, labels = rng.permutation(len(references)), rng.permutation(references.shape[1])
        for average in AVERAGES:
            for function, _ in RATIOS.values():
                same = function(predictions, references, average=average)
                moved = function(predictions[studies], references[studies], average=average)
                twice = function(np.tile(predictions, (2, 1)), np.tile(references, (2, 1)), average=average)
                other = function(predictions[:, labels], references[:, labels], average=average)
                for got in (moved, twice):
                    np.testing.assert_allclose(got, same, rtol=1e-13)
                np.testing.assert_allclose(other, same[labels] if average is None else same, rtol=1e-13)
        for ranked in (auroc, average_precision):
            same = ranked(scores, references)
            np.testing.assert_allclose(ranked(scores[studies], references[studies]), same, rtol=1e-12)
            np.testing.assert_allclose(ranked(np.tile(scores, (2, 1)), np.tile(references, (2, 1))), same, rtol=1e-12)
            np.testing.assert_array_equal(ranked(scores[:, labels], references[:, labels]), same[labels])
            np.testing.assert_allclose(ranked(2 * scores + 3, references), same, rtol=1e-12)  # only the order counts
        np.testing.assert_allclose(auroc(-scores, references), 1 - auroc(scores, references), atol=1e-12)


def test_thresholds_are_reached_or_not() -> None:
    np.testing.assert_array_equal(apply_thresholds([[0.5, 0.49], [1.0, 0.0]]), [[True, False], [True, False]])
    np.testing.assert_array_equal(apply_thresholds([[0.5, 0.5]], [0.6, 0.5]), [[False, True]])
    for probabilities, thresholds, message in (
        ([[1.5]], 0.5, f"`probabilities` {PROBABILITY_RULE}, got 1.5"),
        ([[NAN]], 0.5, f"`probabilities` {PROBABILITY_RULE}, got nan"),
        ([[0.5]], NAN, "`thresholds` must be in [0, 1], because the scores are probabilities, got nan"),
        ([[0.5]], [0.1, 0.2], "`thresholds` must be () or (n_labels,) for (n_studies, n_labels), got (2,)"),
        ([0.5], 0.5, "got () for `probabilities` (1,)"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            apply_thresholds(probabilities, thresholds)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: multilabel_f1([[1]], [[1], [0]]),
            "`predictions` must have the shape of `references` (2, 1), got (1, 1)",
        ),
        (lambda: multilabel_f1([1, 0], [1, 0]), "`predictions` must have 2 dimensions, got shape (2,)"),
        (lambda: multilabel_f1([[0.7]], [[1]]), "`predictions` must hold integers, got 0.7"),
        (lambda: multilabel_f1([[NAN]], [[1]]), "`predictions` must hold integers, got nan"),
        (lambda: multilabel_f1([[1]], [[2]]), "`references` must be in [0, 2), got 2 to 2"),
        (
            lambda: multilabel_f1([[1]], [[1]], average="mean"),  # type: ignore[arg-type]
            "`average` must be one of None, 'macro', 'micro', 'weighted', 'samples', got 'mean'",
        ),
        (lambda: recall([[1]], [[1]], zero_division=0.5), "`zero_division` must be NaN, 0 or 1, got 0.5"),
        (lambda: auroc([[1]], [[1]], average="samples"), "one of None, 'macro', 'micro', 'weighted', got 'samples'"),
        (lambda: auroc([[math.inf]], [[1]]), "`scores` must be finite, got inf"),
        (lambda: average_precision([[NAN]], [[1]]), "`scores` must be finite, got nan"),
        (lambda: auroc([[1, 2]], [[1]]), "`scores` must have the shape of `references` (1, 1), got (1, 2)"),
        (
            lambda: ranking_replicates("auroc", [[1], [2]], [[1], [0]], np.ones((1, 3))),
            "`units` must be given unless there is one per study (2), got none for 3 units",
        ),
        (
            lambda: label_sums([[1]], [[1]], units=[0, 0], n_units=1),
            "`units` must have the length of `references` (1), got 2",
        ),
        (lambda: label_sums([[1]], [[1]], units=[3], n_units=3), "`units` must be in [0, 3), got 3 to 3"),
        (
            lambda: label_sums([[1], [1]], [[1], [1]]).resample(np.ones((1, 3))),
            "`tables` must have one entry per unit of `counts` (3), got 2",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
