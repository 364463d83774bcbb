"""study_comparison against scikit-learn on the studies that each replicate draws, and hand arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.evaluation.compare import compare
from reveal_bench.evaluation.permutation import LEAST_DIFFERING
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import (
    StudyRows,
    resample_studies,
    study_metrics,
    summarize_studies,
)
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling

LABELS = ("Aneurysm", "COPD", "Nodule")
N = 40
STUDIES = tuple(StudyRecord(f"study{i:02d}", f"patient{i * 3 // 5:02d}", ()) for i in range(N))
PRESENT = np.random.default_rng(3).random((N, 3)) < (0.5, 0.4, 0.6)
NAN = float("nan")
BoolArray = npt.NDArray[np.bool_]


def system(seed: int, right: float = 0.8, *, with_probabilities: bool = True) -> StudyRows:
    """Decisions that are right with a chance of `right`, and probabilities on their side of one half."""
    rng = np.random.default_rng(seed)
    predicted = PRESENT ^ (rng.random(PRESENT.shape) > right)
    probabilities = (predicted + rng.random(PRESENT.shape).round(1)) / 2
    return StudyRows(
        LABELS, STUDIES, predicted, PRESENT, probabilities if with_probabilities else None, np.ones(N, bool)
    )


def drawn_studies(n_resamples: int, seed: int) -> list[list[int]]:
    """The studies of every replicate: patients drawn one after another, in plain Python."""
    patients = sorted({study.patient_id for study in STUDIES})
    draws = np.random.default_rng(seed).integers(0, len(patients), (n_resamples, len(patients))).tolist()
    of_patient = {p: [i for i, study in enumerate(STUDIES) if study.patient_id == p] for p in patients}
    return [[i for k in draw for i in of_patient[patients[k]]] for draw in draws]


OF_DECISIONS = {name: f"{name}_score" for name in ("f1", "precision", "recall", "cohen_kappa")}
OF_DECISIONS |= {"specificity": "recall_score", "npv": "precision_score"}
OF_DECISIONS |= {"balanced_accuracy": "balanced_accuracy_score", "mcc": "matthews_corrcoef"}
OF_PROBABILITIES = {"auroc": "roc_auc_score", "average_precision": "average_precision_score", "log_loss": "log_loss"}
OPTIONS = {"specificity": {"pos_label": 0}, "npv": {"pos_label": 0}, "log_loss": {"labels": [0, 1]}}
"""Metrics of this package -> names in scikit-learn."""


def with_sklearn(metric: str, rows: StudyRows, studies: list[int]) -> list[float]:
    from sklearn import metrics as oracle

    values = []
    for column in range(3):
        truth = rows.present[studies, column]
        if metric in OF_DECISIONS:
            score, options = getattr(oracle, OF_DECISIONS[metric]), OPTIONS.get(metric, {})
            values.append(float(score(truth, rows.predicted[studies, column], **options)))
        else:
            assert rows.probabilities is not None
            score, options = getattr(oracle, OF_PROBABILITIES[metric]), OPTIONS.get(metric, {})
            values.append(float(score(truth, rows.probabilities[studies, column], **options)))
    return values


def n_patients_who_differ(a: StudyRows, b: StudyRows, label: int, metric: str) -> int:
    """Patients in whose studies that the metric counts the systems have different numbers of calls."""
    if metric in OF_PROBABILITIES:
        return len(STUDIES)
    counted = {"recall": PRESENT, "specificity": ~PRESENT}.get(metric, np.ones_like(PRESENT))[:, label]
    balance: dict[str, int] = {}
    for study, more in zip(STUDIES, counted * (a.predicted[:, label] * 1 - b.predicted[:, label]), strict=True):
        balance[study.patient_id] = balance.get(study.patient_id, 0) + int(more)
    return sum(n != 0 for n in balance.values())


@pytest.mark.parametrize("metric", [*OF_DECISIONS, *OF_PROBABILITIES])
def test_differences_and_intervals_are_those_of_scikit_learn_on_the_drawn_studies(metric: str) -> None:
    a, b = system(1, 0.85), system(2, 0.7)
    got = {c.finding: c for c in compare(a, b, Resampling(40, 5, interval="percentile"), metrics=[metric])}
    replicates = np.array(
        [np.subtract(with_sklearn(metric, a, s), with_sklearn(metric, b, s)) for s in drawn_studies(40, 5)]
    )
    on_data = np.subtract(with_sklearn(metric, a, list(range(N))), with_sklearn(metric, b, list(range(N))))
    for finding, value, drawn in [
        (MACRO, on_data.mean(), replicates.mean(axis=1)),
        *((label, on_data[i], replicates[:, i]) for i, label in enumerate(LABELS)),
    ]:
        if finding != MACRO and 0 < n_patients_who_differ(a, b, LABELS.index(finding), metric) < LEAST_DIFFERING:
            assert all(math.isnan(x) for x in (got[finding].estimate.low, got[finding].estimate.high, got[finding].p))
            continue
        low, high = np.percentile(drawn, [2.5, 97.5])
        if got[finding].p > 0.05:  # a bound that excludes 0 only by interpolation agrees with p
            low, high = min(low, 0), max(high, 0)
        assert got[finding].estimate.value == pytest.approx(value, abs=1e-12)
        assert (got[finding].estimate.low, got[finding].estimate.high) == pytest.approx((low, high), abs=1e-12)
        n_low, n_high = (drawn <= 1e-12).sum(), (drawn >= -1e-12).sum()
        assert got[finding].p == pytest.approx(min(1, 2 * (min(n_low, n_high) + 1) / 41))
    assert got[MACRO].signature.startswith(f"{metric}|b:40|seed:5|unit:patient|v:")
    assert (got[MACRO].n_a, got["COPD"].n_a) == (3, N)


def test_figures_of_one_system_are_those_of_its_own_summary() -> None:
    a, draws = system(1), Resampling(30, 1, interval="percentile")
    (figures,) = resample_studies([a], draws, metrics=study_metrics([a]), labels=LABELS)
    summary = {(e.metric, e.finding): e for e in summarize_studies(a, draws)}
    for metric, of in figures.items():
        for i, label in enumerate(LABELS):
            low, high = np.percentile(of.replicates[:, i], [2.5, 97.5])
            estimate = summary[metric, label]
            assert (of.values[i], low, high) == pytest.approx((estimate.value, estimate.low, estimate.high))


def test_all_systems_share_one_draw() -> None:
    from sklearn.metrics import f1_score

    a, b, c = system(1), system(2), system(3)
    draw = {"metrics": ["f1"], "labels": ["COPD", "Aneurysm"], "resampling": Resampling(25, 9, interval="percentile")}
    together, alone = resample_studies([a, b, c], **draw), resample_studies([c], **draw)  # type: ignore[arg-type]
    assert together[2]["f1"].replicates.tolist() == alone[0]["f1"].replicates.tolist()
    assert together[2]["f1"].values[0] == pytest.approx(f1_score(PRESENT[:, 1], c.predicted[:, 1]))


def test_equal_systems_differ_by_nothing() -> None:
    for comparison in compare(system(1), system(1), Resampling(50, interval="percentile")):
        assert (comparison.estimate.value, comparison.p) == (0, 1)
        assert math.isnan(comparison.estimate.low)  # how rarely they differ is unknown


def test_a_perfect_system_and_one_that_is_always_wrong_differ_without_an_interval() -> None:
    """All patients agree on a precision of 1 against 0, so the data show nothing of how much other patients could
    differ.
    """
    right = replace(system(1), predicted=PRESENT, probabilities=None)
    pairs = compare(right, replace(right, predicted=~PRESENT), Resampling(200, unit="study"), metrics=["precision"])
    for one in pairs:
        assert one.estimate.value == 1
        assert one.p < 0.01
        assert math.isnan(one.estimate.low)
        assert math.isnan(one.high_adjusted)


def test_no_end_lies_beyond_the_largest_difference() -> None:
    """F1 runs from 0 to 1, kappa from -1 to 1: a perfect system and one that is always wrong differ by the most."""
    rare = np.random.default_rng(0).random((N, 3)) < 0.12
    a = StudyRows(LABELS, STUDIES, rare, rare, None, np.ones(N, bool))
    b = StudyRows(LABELS, STUDIES, rare ^ (np.random.default_rng(1).random((N, 3)) < 0.3), rare, None, np.ones(N, bool))
    for metric, largest in (("f1", 1), ("cohen_kappa", 2)):
        highs = [one.estimate.high for one in compare(a, b, Resampling(40), metrics=[metric])]
        assert max(highs) <= largest
    present = np.ones((N, 1), bool)
    right = StudyRows(("COPD",), STUDIES, present, present, None, np.ones(N, bool))
    wrong = replace(right, predicted=np.arange(N)[:, None] < N // 8)
    assert compare(right, wrong, Resampling(40), metrics=["recall"])[1].estimate.high == 1


def test_a_ranking_of_few_patients_has_its_difference_and_nothing_else() -> None:
    few = np.arange(N) == 7  # one study has the first label
    a, b = (replace(system(seed), present=np.column_stack([few, PRESENT[:, 1:]])) for seed in (1, 2))
    for resampling, is_known in ((Resampling(40), False), (Resampling(40, interval="percentile"), True)):
        rare, common = compare(a, b, resampling, metrics=["auroc"])[1:3]
        assert rare.estimate.value == rare.a - rare.b
        assert common.estimate.low < common.estimate.high
        assert [not np.isnan(x) for x in (rare.estimate.low, rare.estimate.high, rare.p)] == [is_known] * 3


def test_a_difference_of_recall_rests_on_those_who_have_the_label() -> None:
    studies = tuple(replace(study, patient_id=study.study_id) for study in STUDIES)
    for n_present, printed in ((9, False), (10, True)):
        present = np.repeat([[True], [False]], [n_present, N - n_present], axis=0)
        a = StudyRows(("COPD",), studies, present, present, None, np.ones(N, bool))
        b = replace(a, predicted=present & (np.arange(N) % 3 == 0)[:, None])
        _, one = compare(a, b, Resampling(40), metrics=["recall"])
        assert (one.estimate.low < one.estimate.value < one.estimate.high) is printed


def test_a_label_that_one_system_leaves_undefined_enters_no_macro() -> None:
    present = PRESENT.copy()
    present[:, 2] = False  # F1 is undefined for who never calls it
    a, b = (replace(system(seed), present=present) for seed in (1, 2))
    calls_none = a.predicted.copy()
    calls_none[:, 2] = False
    a = replace(a, predicted=calls_none)
    macro, *labels = compare(a, b, Resampling(20), metrics=["f1"])
    assert (macro.n_a, macro.n_b) == (2, 2)
    assert macro.estimate.value == pytest.approx((labels[0].estimate.value + labels[1].estimate.value) / 2)
    assert np.isnan(labels[2].estimate.value)
    assert (labels[2].n_a, labels[2].n_b) == (0, N)


def test_ranking_metrics_need_probabilities_of_both() -> None:
    a, b = system(1), system(2, with_probabilities=False)
    assert {c.metric for c in compare(a, b, Resampling(10))} == set(OF_DECISIONS)
    assert {c.metric for c in compare(a, a, Resampling(10))} == {*OF_DECISIONS, *OF_PROBABILITIES}
    with pytest.raises(ValueError, match=r"`metrics` must be among .*, got \['auroc'\]"):
        compare(a, b, Resampling(10), metrics=["auroc"])


def test_scores_on_another_scale_have_no_log_loss() -> None:
    a = system(1)
    assert a.probabilities is not None
    logits = replace(a, probabilities=8 * a.probabilities - 4)
    assert "log_loss" not in logits.metrics()
    assert {c.metric for c in compare(a, logits, Resampling(10))} == {*OF_DECISIONS, *OF_PROBABILITIES} - {"log_loss"}
    assert not {e.metric for e in summarize_studies(logits, Resampling(10))} & {"log_loss"}


def test_units_may_be_studies() -> None:
    (macro, *_) = compare(system(1), system(2), Resampling(10, unit="study"), metrics=["f1"])
    assert "unit:study" in macro.signature
    with pytest.raises(ValueError, match="`unit` must be 'patient' or 'study', got 'image'"):
        compare(system(1), system(2), Resampling(unit="image"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"studies": STUDIES[::-1]}, "same studies and labels, in the same order"),
        ({"labels": ("Aneurysm", "COPD", "Mass")}, "same studies and labels, in the same order"),
        ({"present": ~PRESENT}, "against the same references"),
    ],
    ids=["order", "labels", "references"],
)
def test_systems_of_other_data_are_refused(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        compare(system(1), replace(system(2), **changes), findings=LABELS[:2])  # type: ignore[arg-type]


def test_nothing_to_compare_is_refused() -> None:
    draw = {"metrics": ["f1"], "resampling": Resampling(5)}
    with pytest.raises(ValueError, match="`systems` must hold at least one system"):
        resample_studies([], labels=LABELS, **draw)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on at least one study"):
        resample_studies([system(1).take(np.zeros(N, bool))], labels=LABELS, **draw)  # type: ignore[arg-type]
    for labels, got in (((), "none"), (("Mass",), r"\['Mass'\]")):
        with pytest.raises(ValueError, match=f"`labels` must be among .*, got {got}"):
            resample_studies([system(1)], labels=labels, **draw)  # type: ignore[arg-type]
