"""The part of a label score that leaves the worker."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from reveal_leaderboard.release.release import POLICY, release
from reveal_leaderboard.settings import ReleasePolicy
from sklearn.metrics import cohen_kappa_score, f1_score, recall_score, roc_auc_score
from statsmodels.stats.inter_rater import cohens_kappa

from reveal_bench.kinds.findings.disclosure import SPREADS, shown_labels
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows, summarize_studies
from reveal_bench.metrics.intervals import Resampling

N = 300
POSITIVES = {"Edema": 130, "Nodule": 29, "Mass": 30, "Opacity": 270, "Device": 271}
SHOWN = ("Edema", "Mass", "Opacity")
FAST = ReleasePolicy(n_resamples=100)
BoolArray = npt.NDArray[np.bool_]


def make_rows(*, seed: int = 0, probabilities: bool = False, positives: dict[str, int] = POSITIVES) -> StudyRows:
    """Return labels with these counts of positives in 300 studies, and predictions of a fair model."""
    rng = np.random.default_rng(seed)
    labels = tuple(positives)
    present = np.column_stack([np.arange(N) < n for n in positives.values()])
    scores = np.clip(rng.normal(0.35, 0.2, present.shape) + 0.3 * present, 0, 1)
    studies = tuple(
        StudyRecord(
            f"s{i}", f"p{i // 2}", tuple(label for label, is_there in zip(labels, row, strict=True) if is_there)
        )
        for i, row in enumerate(present)
    )
    values = scores if probabilities else None
    return StudyRows(labels, studies, scores >= 0.5, present, values, np.ones(N, bool))


ROWS = make_rows()


@pytest.mark.parametrize("metric", ["f1", "recall", "cohen_kappa"])
def test_label_intervals_reveal_no_more_than_values(metric: str) -> None:
    """Labels with equal numbers of correct studies have equal values and bounds; bootstrap bounds would differ."""
    column, released, exact = ROWS.labels.index("Edema"), set(), set()
    called = ROWS.predicted[:, column]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        present = ROWS.present.copy()
        for group in (called, ~called):  # so that patients have other pairs of studies
            present[group, column] = rng.permutation(present[group, column])
        rows = replace(ROWS, present=present)
        figure = release(rows, FAST).figure(metric, "Edema")
        released.add((figure.value, figure.low, figure.high))
        estimates = summarize_studies(rows, Resampling(100, interval="percentile"))
        exact |= {(round(e.low, 2), round(e.high, 2)) for e in estimates if (e.metric, e.finding) == (metric, "Edema")}
    assert len(released) == 1
    assert len(exact) > 1


def test_label_variances_equal_statsmodels_and_simulation() -> None:
    """300 studies of 300 patients; 75 have the label, 85 are called, 60 of these are right."""
    cells = np.array([[200, 25], [15, 60]])
    options = {"n": 300, "n_with": 75, "n_called": 85, "by": 1.0}
    kappa = cohens_kappa(cells)
    spread = SPREADS["cohen_kappa"](np.array([kappa.kappa]), **options)
    assert spread == pytest.approx([kappa.std_kappa], rel=1e-4)
    _, wrongly, missed, right = np.random.default_rng(0).multinomial(300, cells.ravel() / 300, 100_000).T
    drawn = {"f1": 2 * right / (2 * right + wrongly + missed), "recall": right / (right + missed)}
    for metric, values in drawn.items():
        assert SPREADS[metric](values.mean(keepdims=True), **options) == pytest.approx([values.std()], rel=0.02)


def test_chance_equals_random_labels_of_the_same_prevalence() -> None:
    rng = np.random.default_rng(3)
    drawn = np.column_stack([rng.permuted(np.tile(column, (400, 1)), axis=1).ravel() for column in ROWS.present.T])
    present = np.tile(ROWS.present, (400, 1))
    chance = ROWS.chance(SHOWN)
    columns = [ROWS.labels.index(label) for label in SHOWN]
    for metric, oracle in (("f1", f1_score), ("recall", recall_score), ("cohen_kappa", cohen_kappa_score)):
        values = [oracle(present[:, i], drawn[:, i]) for i in columns]
        assert chance[metric] == pytest.approx(np.mean(values), abs=0.005)
    assert chance["auroc"] == 0.5
    assert ROWS.chance(SHOWN[:2]) == {"cohen_kappa": 0, "auroc": 0.5}, "a mean share of two would tell of each"


def test_a_label_needs_enough_studies_with_it_and_without_it() -> None:
    score = release(ROWS, FAST)
    assert shown_labels(ROWS, POLICY.min_cell) == score.shown == SHOWN
    assert score.hidden == ("Nodule", "Device")  # 29 with it; 29 without it
    assert {figure.finding for figure in score.figures} == {"macro", *SHOWN}
    assert score.note.endswith("not shown and not in any macro: Nodule, Device.")


def test_scores_equal_rounded_scikit_learn() -> None:
    score = release(ROWS, FAST)
    for metric, oracle in (("f1", f1_score), ("recall", recall_score), ("cohen_kappa", cohen_kappa_score)):
        values = [oracle(ROWS.present[:, ROWS.labels.index(x)], ROWS.predicted[:, ROWS.labels.index(x)]) for x in SHOWN]
        for label, value in zip(SHOWN, values, strict=True):
            figure = score.figure(metric, label)
            step = 0.1 if label == "Mass" else 0.01  # 30 studies
            assert abs(figure.value - value) <= step / 2 + 1e-9
            assert figure.value == round(figure.value, 1 if label == "Mass" else 2)
        macro = score.figure(metric)
        assert abs(macro.value - np.mean(values)) <= 0.025 + 1e-9  # 0.1 / 3 labels: steps of 0.05
    assert [f.n for f in score.figures if f.metric == "f1"] == ["3", "120+", "30-59", "120+"]


def test_metrics_with_selectable_or_hidden_labels_are_hidden() -> None:
    score = release(make_rows(probabilities=True), FAST)
    assert {figure.metric for figure in score.figures} == {"f1", "recall", "cohen_kappa"}


def test_auroc_is_a_macro_over_at_least_five_labels() -> None:
    rows = make_rows(probabilities=True, positives={name: 60 + 10 * i for i, name in enumerate("ABCDE")})
    score = release(rows, FAST)
    (figure,) = [figure for figure in score.figures if figure.metric == "auroc"]
    expected = np.mean([roc_auc_score(rows.present[:, i], rows.probabilities[:, i]) for i in range(5)])
    assert (figure.finding, figure.value) == ("macro", round(float(expected), 2))


def arbitrary(rng: np.random.Generator, kind: str, n: int) -> BoolArray:
    kinds: dict[str, BoolArray] = {
        "all": np.ones(n, bool),
        "none": np.zeros(n, bool),
        "coins": rng.random(n) < 0.5,
        "one": np.arange(n) == rng.integers(n),
    }
    return kinds[kind]


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("kind", ["all", "none", "coins", "one"])
def test_predictions_for_hidden_labels_change_no_byte(kind: str, probabilities: bool) -> None:
    rows, rng = make_rows(probabilities=probabilities), np.random.default_rng(7)
    expected = json.dumps(release(rows, FAST).to_json())
    for _ in range(10):
        predicted = rows.predicted.copy()
        changed = None if rows.probabilities is None else rows.probabilities.copy()
        for label in ("Nodule", "Device"):
            column = rows.labels.index(label)
            predicted[:, column] = arbitrary(rng, kind, N)
            if changed is not None:
                changed[:, column] = predicted[:, column] * rng.random(N)
        other = replace(rows, predicted=predicted, probabilities=changed)
        assert not np.array_equal(other.predicted, rows.predicted)
        assert json.dumps(release(other, FAST).to_json()) == expected


@pytest.mark.parametrize("kind", ["all", "none", "coins", "one"])
def test_released_labels_do_not_depend_on_predictions(kind: str) -> None:
    rng = np.random.default_rng(8)
    predicted = np.column_stack([arbitrary(rng, kind, N) for _ in ROWS.labels])
    score = release(replace(ROWS, predicted=predicted), FAST)
    assert (score.shown, score.hidden) == (SHOWN, ("Nodule", "Device"))
    assert {f.finding for f in score.figures if f.metric == "f1"} == {"macro", *SHOWN}


def test_references_of_hidden_labels_change_nothing() -> None:
    """The released score is a function of the released columns only, so it reveals nothing about the others."""
    present = ROWS.present.copy()
    rng = np.random.default_rng(9)
    for label in ("Nodule", "Device"):
        column = ROWS.labels.index(label)
        present[:, column] = rng.permutation(present[:, column])
    assert release(replace(ROWS, present=present), FAST) == release(ROWS, FAST)


def test_small_split_releases_nothing() -> None:
    small = ROWS.take(np.arange(N) < 29)
    score = release(small, FAST)
    assert (score.figures, score.shown) == ((), ())
    assert "Nothing can be shown" in score.note


def test_part_is_scored_without_the_other_patients() -> None:
    part = ROWS.of_patients({f"p{i}" for i in range(75)})
    assert len(part) == 150
    assert release(part, FAST) == release(ROWS.take(np.arange(N) < 150), FAST)
    assert release(part, FAST) != release(ROWS, FAST)
