"""What of a score of labels leaves the worker."""

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
    """Labels with so many positives of 300 studies, and predictions of a fair model."""
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
    given = scores if probabilities else None
    return StudyRows(labels, studies, scores >= 0.5, present, given, np.ones(N, bool))


ROWS = make_rows()


@pytest.mark.parametrize("metric", ["f1", "recall", "cohen_kappa"])
def test_intervals_of_labels_tell_nothing_beside_the_values(metric: str) -> None:
    """Any labels of which as many studies are right: same value, same ends; a bootstrap's ends differ."""
    column, shown, exact = ROWS.labels.index("Edema"), set(), set()
    called = ROWS.predicted[:, column]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        present = ROWS.present.copy()
        for group in (called, ~called):  # so that patients have other pairs of them
            present[group, column] = rng.permutation(present[group, column])
        rows = replace(ROWS, present=present)
        figure = release(rows, FAST).figure(metric, "Edema")
        shown.add((figure.value, figure.low, figure.high))
        estimates = summarize_studies(rows, Resampling(100, interval="percentile"))
        exact |= {(round(e.low, 2), round(e.high, 2)) for e in estimates if (e.metric, e.finding) == (metric, "Edema")}
    assert len(shown) == 1
    assert len(exact) > 1


def test_spreads_of_labels_are_those_of_statsmodels_and_of_drawn_tables() -> None:
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


def test_chance_is_what_labels_have_that_are_drawn_as_often() -> None:
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


def test_figures_are_those_of_scikit_learn_rounded() -> None:
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


def test_no_metric_is_released_whose_studies_the_submission_chooses_or_that_holds_hidden_labels() -> None:
    score = release(make_rows(probabilities=True), FAST)
    assert {figure.metric for figure in score.figures} == {"f1", "recall", "cohen_kappa"}


def test_auroc_is_a_macro_over_five_labels_or_more() -> None:
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
def test_whatever_is_predicted_for_hidden_labels_every_byte_stays_the_same(kind: str, probabilities: bool) -> None:
    rows, rng = make_rows(probabilities=probabilities), np.random.default_rng(7)
    expected = json.dumps(release(rows, FAST).to_json())
    for _ in range(10):
        predicted = rows.predicted.copy()
        given = None if rows.probabilities is None else rows.probabilities.copy()
        for label in ("Nodule", "Device"):
            column = rows.labels.index(label)
            predicted[:, column] = arbitrary(rng, kind, N)
            if given is not None:
                given[:, column] = predicted[:, column] * rng.random(N)
        other = replace(rows, predicted=predicted, probabilities=given)
        assert not np.array_equal(other.predicted, rows.predicted)
        assert json.dumps(release(other, FAST).to_json()) == expected


@pytest.mark.parametrize("kind", ["all", "none", "coins", "one"])
def test_what_is_shown_never_depends_on_the_predictions(kind: str) -> None:
    rng = np.random.default_rng(8)
    predicted = np.column_stack([arbitrary(rng, kind, N) for _ in ROWS.labels])
    score = release(replace(ROWS, predicted=predicted), FAST)
    assert (score.shown, score.hidden) == (SHOWN, ("Nodule", "Device"))
    assert {f.finding for f in score.figures if f.metric == "f1"} == {"macro", *SHOWN}


def test_the_hidden_labels_references_change_nothing_either() -> None:
    """What is shown is a function of the shown columns alone, so nothing of the others can be worked out from it."""
    present = ROWS.present.copy()
    rng = np.random.default_rng(9)
    for label in ("Nodule", "Device"):
        column = ROWS.labels.index(label)
        present[:, column] = rng.permutation(present[:, column])
    assert release(replace(ROWS, present=present), FAST) == release(ROWS, FAST)


def test_nothing_is_shown_of_a_small_split() -> None:
    small = ROWS.take(np.arange(N) < 29)
    score = release(small, FAST)
    assert (score.figures, score.shown) == ((), ())
    assert "Nothing can be shown" in score.note


def test_a_part_is_scored_as_if_there_were_nobody_else() -> None:
    part = ROWS.of_patients({f"p{i}" for i in range(75)})
    assert len(part) == 150
    assert release(part, FAST) == release(ROWS.take(np.arange(N) < 150), FAST)
    assert release(part, FAST) != release(ROWS, FAST)
