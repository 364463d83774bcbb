"""Estimates of labels and agreement: the same scores as the metric functions, and replicates as if each were computed
by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reveal_bench.metrics import METRICS
from reveal_bench.metrics.agreement_estimates import code_ratings, estimate_agreement
from reveal_bench.metrics.bootstrap import MACRO, bounds_of, macro_first, resampling_counts
from reveal_bench.metrics.estimates import POOLED, as_flat_result, estimate_labels
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.jackknife import evidence_of_groups

LABELS = ["Edema", "Mass", "Nodule"]


def by_hand(
    function: Callable[..., Any], a: Any, b: Any, patients: list[str], *, seed: int, n_resamples: int = 200
) -> tuple[float, float]:
    """Percentile interval of `function` with every replicate's cases written out."""
    names = sorted(set(patients))
    replicates = []
    for counts in resampling_counts(len(names), Resampling(n_resamples, seed)).astype(int):
        often = dict(zip(names, counts, strict=True))
        rows = np.repeat(np.arange(len(patients)), [often[patient] for patient in patients])
        with np.errstate(invalid="ignore"):
            values = np.asarray(function(a[rows], b[rows]), float)
        replicates.append(values if values.ndim == 0 else np.nan if np.isnan(values).all() else np.nanmean(values))
    low, high = np.nanpercentile(replicates, [2.5, 97.5])
    return float(low), float(high)


def test_unanswered_studies_are_no_correct_negatives() -> None:
    """Studies 1 to 5 lack the finding, 6 and 7 have it; 1, 2 and 7 have no answer, 3 is a false alarm.

    Of 5 studies without the finding 2 are right, of the 3 negatives that are no false alarms 1 lacks an answer; recall
    is 1 of 2. F1 is 2 / (2 + 1 + 1).
    """
    present = np.array([0, 0, 0, 0, 0, 1, 1])[:, None]
    called = np.array([0, 0, 1, 0, 0, 1, 0])[:, None]
    answered = [False, False, True, True, True, True, False]
    estimates = estimate_labels(called, present, labels=["Edema"], answered=answered, resampling=Resampling(20))
    values = {e.metric: e.value for e in estimates if e.finding in ("Edema", POOLED)}
    assert values["specificity"] == pytest.approx(2 / 5)
    assert values["npv"] == pytest.approx(2 / 3)
    assert values["balanced_accuracy"] == pytest.approx((1 / 2 + 2 / 5) / 2)
    assert (values["recall"], values["f1"], values["exact_match"]) == pytest.approx((1 / 2, 1 / 2, 3 / 7))


def test_labels_by_hand(rng: np.random.Generator) -> None:
    predictions, references = rng.random((2, 30, 3)) < 0.4
    scores = rng.integers(0, 8, (30, 3)) / 7
    patients = [f"p{i}" for i in rng.integers(0, 12, 30)]
    estimates = estimate_labels(
        predictions,
        references,
        scores=scores,
        labels=LABELS,
        patients=patients,
        resampling=Resampling(200, 5, interval="percentile"),
    )
    results = {(e.metric, e.finding): e for e in estimates}
    names = {name for name, metric in METRICS.items() if metric.family == "labels"} | {"cohen_kappa"}
    assert {metric for metric, _ in results} == names
    for name in names:
        of_scores = name in ("auroc", "average_precision", "log_loss")
        function = kappa_per_label if name == "cohen_kappa" else METRICS[name].resolve()
        inputs = scores if of_scores else predictions
        value = np.asarray(function(inputs, references))
        estimate = results[name, MACRO if value.ndim else POOLED]
        assert estimate.value == pytest.approx(value.mean())
        assert (estimate.low, estimate.high) == pytest.approx(by_hand(function, inputs, references, patients, seed=5))
        assert estimate.n + estimate.n_undefined == (3 if value.ndim else 30)
        assert estimate.signature == f"{name}|b:200|seed:5|unit:patient|v:1"
        for i, label in enumerate(LABELS if value.ndim else ()):
            assert results[name, label].value == pytest.approx(value[i])
    (first, *_) = estimate_labels(predictions, references, labels=LABELS, resampling=Resampling(20, unit="study"))
    assert first.signature == "f1|b:20|seed:0|unit:study|i:jackknife|v:1"


def test_mcc_of_one_positive_patient_has_an_interval_with_a_width() -> None:
    """Without that patient, MCC is undefined, which must not count as no variation."""
    references = np.arange(40)[:, None] == 0
    estimates = estimate_labels(np.arange(40)[:, None] < 14, references, labels=["Edema"])
    mcc, kappa = (next(e for e in estimates if e.metric == name) for name in ("mcc", "cohen_kappa"))
    assert mcc.value == pytest.approx(np.corrcoef(np.arange(40) < 14, references[:, 0])[0, 1])
    assert mcc.high - mcc.low > 0.3
    assert kappa.high - kappa.low > 0.3


def kappa_per_label(a: Any, b: Any) -> list[float]:
    kappa = METRICS["cohen_kappa"].resolve()
    return [kappa(column, held, n_categories=2) for column, held in zip(a.T, b.T, strict=True)]


def test_agreement_by_hand(rng: np.random.Generator) -> None:
    a = rng.integers(0, 4, 40)
    b = np.where(rng.random(40) < 0.6, a, rng.integers(0, 4, 40))
    patients = [f"p{i}" for i in rng.integers(0, 15, 40)]
    options = {"n_categories": 4, "patients": patients}
    estimates = estimate_agreement(a, b, **options, resampling=Resampling(200, 3, interval="percentile"))  # type: ignore[arg-type]
    assert {e.metric for e in estimates} == {name for name, m in METRICS.items() if m.family == "agreement"}
    for estimate in estimates:
        function = METRICS[estimate.metric].resolve()
        assert estimate.value == pytest.approx(function(a, b, n_categories=4))
        ends = by_hand(lambda *pair, f=function: f(*pair, n_categories=4), a, b, patients, seed=3)
        assert (estimate.low, estimate.high) == pytest.approx(ends)
    for estimate in estimate_agreement(a, b, **options, resampling=Resampling(200, 3)):  # type: ignore[arg-type]
        function = METRICS[estimate.metric].resolve()
        without = [
            function(*(np.array([x for x, p in zip(ratings, patients, strict=True) if p != out]) for ratings in (a, b)),
                     n_categories=4)
            for out in sorted(set(patients))
        ]  # fmt: skip
        columns, behind = np.array(without)[:, None], np.array([len(without)])
        evidence = evidence_of_groups(macro_first(columns), behind, bounds=bounds_of(estimate.metric))
        ends = evidence.ends(np.full(2, estimate.value))[:, int(estimate.finding != MACRO)]
        assert (estimate.low, estimate.high) == pytest.approx(tuple(ends))


def test_undefined_labels_are_counted() -> None:
    # Edema: right once, missed once: F1 2/3. Mass: never there, never said: undefined. Nodule: said once, wrongly: 0.
    predictions = [[1, 0, 1], [0, 0, 0]]
    references = [[1, 0, 0], [1, 0, 0]]
    draws = Resampling(20, interval="percentile")
    f1, edema, mass, nodule = estimate_labels(predictions, references, labels=LABELS, resampling=draws)[:4]
    assert (f1.value, f1.n, f1.n_undefined) == (pytest.approx(1 / 3), 2, 1)
    assert (edema.value, edema.n, edema.n_undefined) == (pytest.approx(2 / 3), 2, 0)
    assert np.isnan([mass.value, mass.low, mass.high]).all()
    assert (mass.n, mass.n_undefined, mass.n_empty_replicates) == (0, 2, 20)
    assert nodule.value == 0


def test_nothing_to_find() -> None:
    estimates = estimate_labels([[0]], [[0]], labels=["Mass"], resampling=Resampling(20))
    results = {(e.metric, e.finding): e for e in estimates}
    micro = results["f1_micro", POOLED]
    assert np.isnan(micro.value)
    assert (micro.n, micro.n_undefined) == (0, 1)
    assert (results["f1", MACRO].n, results["f1", MACRO].n_undefined) == (0, 1)
    assert results["exact_match", POOLED].value == 1


def test_agreement_per_finding_and_its_macro() -> None:
    # Edema: agreement 1, kappa 1; Mass: both raters constant: kappa undefined, agreement 1/1
    estimates = estimate_agreement(
        [0, 1, 0, 0],
        [0, 1, 0, 0],
        n_categories=2,
        findings=["Edema", "Edema", "Mass", "Mass"],
        resampling=Resampling(50),
    )
    results = {(e.metric, e.finding): e for e in estimates}
    assert (results["cohen_kappa", MACRO].value, results["cohen_kappa", MACRO].n_undefined) == (1, 1)
    assert (results["percent_agreement", MACRO].value, results["percent_agreement", MACRO].n) == (1, 2)
    mass = results["cohen_kappa", "Mass"]
    assert np.isnan(mass.value)
    assert (mass.n, mass.n_undefined) == (0, 2)


def test_patients_without_a_case_are_drawn_too() -> None:
    draws = Resampling(500, interval="percentile")
    few = estimate_labels([[1], [0]], [[1], [1]], labels=["Mass"], patients=["a", "b"], resampling=draws)
    more = estimate_labels(
        [[1], [0]],
        [[1], [1]],
        labels=["Mass"],
        patients=["a", "b"],
        all_patients=["a", "b", "c", "d"],
        resampling=draws,
    )
    assert few[0].value == more[0].value == pytest.approx(2 / 3)
    assert few[0].n_empty_replicates == 0
    assert 10 < more[0].n_empty_replicates < 60  # neither a nor b: (2/4)**4 of 500 is 31


def test_patients_of_every_label_support_a_score_of_all_labels() -> None:
    # 45 patients, 15 per label, and 15 without one. Wilson's bound of n without an event is n / (n + 1.96**2).
    references = np.repeat(np.vstack([np.eye(3), np.zeros(3)]), 15, axis=0)
    perfect = {e.metric: e for e in estimate_labels(references, references, labels=LABELS) if e.finding == POOLED}
    for name in ("f1_micro", "f1_weighted", "f1_samples", "precision_micro", "recall_samples"):
        assert perfect[name].low == pytest.approx(45 / 48.8415, abs=1e-4), name
    for name in ("f1_samples", "precision_samples", "recall_samples"):  # 15 studies have no label: zero_division=nan
        assert (perfect[name].n, perfect[name].n_undefined) == (45, 15), name
    assert perfect["exact_match"].low == pytest.approx(60 / 63.8415, abs=1e-4)
    assert perfect["hamming_loss"].high == pytest.approx(3.8415 / 63.8415, abs=1e-4)
    nothing = estimate_labels(np.zeros_like(references), references, labels=LABELS)
    missed = {e.metric: e for e in nothing if e.finding == POOLED}
    assert missed["f1_micro"].high == pytest.approx(3.8415 / (0.75 * 45 + 3.8415), abs=1e-4)  # as for one label
    assert missed["recall_micro"].high == pytest.approx(3.8415 / 48.8415, abs=1e-4)


def test_code_ratings() -> None:
    a, b, scale, is_ordered = code_ratings([1, 5], [2, 2])
    assert (a.tolist(), b.tolist(), scale, is_ordered) == ([0, 4], [1, 1], [1, 2, 3, 4, 5], True)  # 3 and 4 count too
    a, b, scale, is_ordered = code_ratings(["no", "yes"], ["no", "no"])
    assert (a.tolist(), b.tolist(), scale, is_ordered) == ([0, 1], [0, 0], ["no", "yes"], False)
    *_, is_ordered = code_ratings(["low", "high"], ["low", "low"], categories=["low", "high"])
    assert is_ordered
    assert code_ratings([3], [3])[2] == [3]


def test_flat_result() -> None:
    estimates = estimate_labels([[1, 0]], [[1, 1]], labels=["Edema", "Mass"], resampling=Resampling(20))
    result = as_flat_result(estimates, groups="per_label")
    assert (result["f1"], result["f1_n"], result["f1_micro"]) == (0.5, 2, pytest.approx(2 / 3))
    assert result["per_label"]["Mass"]["recall"] == 0
    assert set(result["per_label"]) == {"Edema", "Mass"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate_labels([], [], labels=[]), "`predictions` and `references` must hold at least one case"),
        (lambda: estimate_labels([[1]], [[1]], labels=["a", "b"]), "`labels` must name the 1 columns of `references`"),
        (
            lambda: estimate_labels([[1]], [[1]], labels=["a"], patients=["p", "q"]),
            "`patients` must have the length of `predictions` (1), got 2",
        ),
        (
            lambda: estimate_labels([[1]], [[1]], labels=["a"], patients=["p"], all_patients=["q"]),
            "`all_patients` must hold every patient of `patients`, 'p' is missing",
        ),
        (
            lambda: estimate_agreement([0], [0], n_categories=2, findings=[]),
            "`findings` must have the length of `predictions` (1), got 0",
        ),
        (
            lambda: estimate_agreement([0, 1], [0], n_categories=2),
            "`rater_b` must have the length of `rater_a` (2), got 1",
        ),
        (
            lambda: code_ratings([1], [7], categories=[1, 2]),
            "`references[0]` must be one of `categories` [1, 2], got 7",
        ),
        (lambda: code_ratings([1], [101]), "`categories` must be given for ratings from 1 to 101"),
        (lambda: code_ratings([1], [1], categories=[1, 1]), "`categories` must not hold one twice, got [1, 1]"),
    ],
)
def test_bad_input(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_log_loss_needs_patients_of_both_classes() -> None:
    references = np.arange(60)[:, None] < [9, 10]
    estimates = estimate_labels(
        None, references, labels=["Mass", "Edema"], scores=np.linspace(0.9, 0.1, 120).reshape(60, 2)
    )
    macro, mass, edema = (e for e in estimates if e.metric == "log_loss")
    assert [one.has_interval for one in (macro, mass, edema)] == [True, False, True]
    assert mass.missing_interval == "fewer than 10 supporting patients"
