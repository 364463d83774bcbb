"""Scoring of findings-type benchmarks: build rows from predictions and reference labels, and compute estimates from the
rows.

Conventions
-----------
There is one row per study x label that has a reference. A study without a prediction counts as negative for every
label, so each of its labels is missed. Metrics that credit the absence of a label (specificity, NPV, balanced accuracy)
count it as wrong for every label, so that an unanswered study is never right. Probabilities become decisions by
thresholds that the submission fixed beforehand (0.5 by default). If probabilities are given, AUROC, average precision
and log loss are added; a study without a prediction then has probability 0. Scores on another scale than [0, 1] have no
log loss. `cohen_kappa` compares the submission with the consensus (as in paper 004).

A *stratum* is a part of the studies, defined by the readers' agreement, the view or the number of findings.

All systems, metrics and labels use the same replicates of patients (or studies), so that differences are paired.
Replicates weight the patients' counts, see :mod:`reveal_bench.metrics.labels`; nothing is scored again. Metrics of
decisions apply to every system, metrics of probabilities only to systems with probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyRecord
from reveal_bench.kinds.options import Thresholds
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.scored import Confidences, Rows
from reveal_bench.metrics.bootstrap import Counts, blocks_of_counts, needed_blocks, replicates_of
from reveal_bench.metrics.estimates import (
    OF_ABSENCE,
    OF_SUMS,
    PER_LABEL,
    SHOWN_LAST,
    DecisionSums,
    are_probabilities,
    estimate_labels,
    figures_of_labels,
    figures_of_losses,
    figures_of_ranking,
    missed_decisions,
    ranked_scores,
    rankings_resampled,
)
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.labels import apply_thresholds
from reveal_bench.metrics.resampled import Resampled
from reveal_bench.words import count_text

if TYPE_CHECKING:
    import pyarrow as pa

_FEWEST_LABELS = 3  # with fewer labels, their mean proportion of studies would reveal that of a single label


@dataclass(frozen=True, repr=False)
class StudyRows(Rows):
    """Decisions and references of one submission.

    Attributes
    ----------
    labels : tuple of str (n_labels,)
    studies : tuple of StudyRecord (n_studies,)
    predicted, present : bool arrays (n_studies, n_labels)
    probabilities : float array (n_studies, n_labels), or None if the submission gave labels
    has_prediction : bool array (n_studies,)
    has_decisions : False if probabilities are scores on another scale without thresholds; `predicted` then says nothing
    """

    kind: ClassVar[str] = "findings"

    labels: tuple[str, ...]
    studies: tuple[StudyRecord, ...]
    predicted: BoolArray
    present: BoolArray
    probabilities: FloatArray | None
    has_prediction: BoolArray
    has_decisions: bool = True

    @override
    def __len__(self) -> int:
        return len(self.studies)

    @property
    @override
    def groups(self) -> tuple[str, ...]:
        """The labels."""
        return self.labels

    @property
    @override
    def positives(self) -> dict[str, int]:
        """Label -> number of studies that have it."""
        return dict(zip(self.labels, self.present.sum(axis=0).tolist(), strict=True))

    @property
    @override
    def notes(self) -> tuple[str, ...]:
        """Number of labels that are not scored because they have no reference."""
        n = sum(len(study.unknown) for study in self.studies)
        return (f"{count_text(n, 'label')} not scored: the study has no reference for it",) if n else ()

    @property
    def asked(self) -> BoolArray | None:
        """Array (n_studies, n_labels), False where a study has no reference for a label; None if all have one."""
        if not any(study.unknown for study in self.studies):
            return None
        return np.array([[label not in study.unknown for label in self.labels] for study in self.studies], bool)

    def _asked_of(self, labels: Sequence[str]) -> BoolArray | None:
        asked = self.asked
        return None if asked is None else asked[:, [self.labels.index(label) for label in labels]]

    @override
    def metrics(self) -> list[str]:
        """Return the metrics that apply."""
        return study_metrics([self])

    @override
    def estimates(
        self,
        resampling: Resampling,
        *,
        stratum: str | None = None,
        groups: Sequence[str] | None = None,
        metrics: Collection[str] | None = None,
    ) -> list[Estimate]:
        """See :func:`summarize_studies`."""
        return summarize_studies(self, resampling, stratum=stratum, labels=groups, metrics=metrics)

    @classmethod
    @override
    def resample(
        cls, systems: Sequence[StudyRows], resampling: Resampling, *, metrics: Sequence[str], groups: Sequence[str]
    ) -> list[dict[str, Resampled]]:
        """See :func:`resample_studies`."""
        return resample_studies(systems, resampling, metrics=metrics, labels=groups)

    @classmethod
    @override
    def answers(cls, systems: Sequence[StudyRows], metric: str, groups: Sequence[str]) -> FloatArray:
        """Return the answers from which `metric` is computed, (n_systems, n_studies * n_groups)."""
        columns = [systems[0].labels.index(label) for label in groups]

        asked = systems[0]._asked_of(groups)
        counts = 1.0 if asked is None else asked.ravel().astype(np.float64)

        def own(rows: StudyRows) -> FloatArray:
            if metric in _OF_PROBABILITIES and rows.probabilities is not None:
                return rows.probabilities[:, columns].ravel()
            predicted = rows.predicted
            if metric in OF_ABSENCE:
                predicted = missed_decisions(predicted, rows.present, rows.has_prediction)
            return predicted[:, columns].ravel().astype(np.float64)

        return np.array([own(rows) for rows in systems]) * counts

    @override
    def patients(self) -> frozenset[str]:
        """Return all patients of the split."""
        return frozenset(study.patient_id for study in self.studies)

    @override
    def of_patients(self, patients: Collection[str]) -> StudyRows:
        """Return the rows as if the split contained only `patients`."""
        chosen = frozenset(patients)
        return self.take(np.array([study.patient_id in chosen for study in self.studies], bool))

    @override
    def chance(self, groups: Sequence[str]) -> dict[str, float]:
        """Return the expected scores of labels drawn at random as often as studies have them.

        F1 and recall equal the labels' mean proportion, kappa is 0 and AUROC 0.5. With one or two labels, F1 and recall
        are left out, because they would reveal how many studies have these labels.
        """
        columns = [self.labels.index(label) for label in groups]
        if not columns:
            return {}
        fixed = {"cohen_kappa": 0.0, "auroc": 0.5}
        asked = self._asked_of(groups)
        share = float(self.present[:, columns].sum() / (len(self) * len(columns) if asked is None else asked.sum()))
        return fixed if len(columns) < _FEWEST_LABELS else {"f1": share, "recall": share} | fixed

    @override
    def without(self, questions: Collection[tuple[str, str]]) -> StudyRows:
        """Return the rows without the studies of `questions`."""
        chosen = {study_id for study_id, _ in questions}
        return self.take(np.array([study.study_id not in chosen for study in self.studies], bool))

    @override
    def confidences(self) -> Confidences | None:
        """Return the confidences of studies with a prediction: the probability that each decision is right."""
        if self.probabilities is None:
            return None
        kept = np.flatnonzero(self.has_prediction)
        asked = np.ones(self.present.shape, bool) if self.asked is None else self.asked
        place, column = np.nonzero(asked[kept])
        probabilities = self.probabilities[kept][place, column]
        predicted, present = self.predicted[kept][place, column], self.present[kept][place, column]
        return Confidences(
            event="findings present",
            whole_split=True,
            groups=self.labels,
            case_groups=[self.labels[i] for i in column],
            case_patients=[self.studies[i].patient_id for i in kept[place]],
            all_patients=self.patients(),
            probabilities=probabilities,
            happened=present,
            sureness=np.where(predicted, probabilities, 1 - probabilities),
            right=predicted == present,
            n_without_confidence=int(asked[~self.has_prediction].sum()),
            are_probabilities=bool(((probabilities >= 0) & (probabilities <= 1)).all()),
        )

    @override
    def strata(self) -> dict[str, BoolArray]:
        """Return stratum -> bool array (n_studies,), for strata with at least one study."""
        agreements, parts = np.array([s.agreement for s in self.studies], object), {}
        for agreement in ("three_of_three", "two_of_three"):
            parts[f"agreement: {agreement.replace('_', ' ')}"] = agreements == agreement
        views = [s.views for s in self.studies]
        for view in ("AP", "PA", "LATERAL"):
            parts[f"view: {view}"] = np.array([view in study_views for study_views in views], bool)
        n_labels = np.array([len(s.labels) for s in self.studies])
        parts |= {f"findings: {n}": n_labels == n for n in range(4)}
        parts["findings: 4 or more"] = n_labels >= 4
        return {name: part for name, part in parts.items() if part.any()}

    def take(self, part: BoolArray) -> StudyRows:
        """Return the rows of the studies in `part`."""
        kept = np.flatnonzero(part)
        return replace(
            self,
            studies=tuple(self.studies[i] for i in kept),
            predicted=self.predicted[kept],
            present=self.present[kept],
            probabilities=None if self.probabilities is None else self.probabilities[kept],
            has_prediction=self.has_prediction[kept],
        )

    @override
    def to_table(self) -> pa.Table:
        """Return one row per study x label with a reference.

        The columns are study_id, patient_id, agreement, label, present, predicted and probability.
        """
        import pyarrow as pa

        place, column = np.nonzero(np.ones(self.present.shape, bool) if self.asked is None else self.asked)
        studies = [self.studies[i] for i in place]
        columns = {
            "study_id": [study.study_id for study in studies],
            "patient_id": [study.patient_id for study in studies],
            "agreement": pa.array([study.agreement for study in studies], pa.string()),
            "label": [self.labels[i] for i in column],
            "present": self.present[place, column],
        } | ({"predicted": self.predicted[place, column]} if self.has_decisions else {})
        if self.probabilities is not None:
            columns["probability"] = self.probabilities[place, column]
        return pa.table(columns)


def score_studies(
    predictions: Sequence[FindingsPrediction],
    records: Sequence[StudyRecord],
    *,
    labels: Sequence[str],
    thresholds: Thresholds | None = None,
) -> StudyRows:
    """Pair checked predictions with reference labels.

    Parameters
    ----------
    predictions : at most one per study, all with labels or all with probabilities
    records : references
    labels : all labels of the benchmark
    thresholds : lowest probability at which a label counts as predicted: one number, or one per label (0.5 for labels
        not named). None is 0.5 for probabilities, but scores beyond [0, 1] then make no decisions

    Raises
    ------
    ValueError
        If a study is predicted or listed twice, labels and probabilities are mixed, or a threshold is out of range or
        names an unknown label.
    """
    by_study: dict[str, FindingsPrediction] = {}
    for prediction in predictions:
        if prediction.study_id in by_study:
            raise ArgumentError("predictions", "must name each study once", f"{prediction.study_id!r} twice")
        by_study[prediction.study_id] = prediction
    if len({record.study_id for record in records}) != len(records):
        raise ArgumentError("records", "must name each study once")
    kinds = {prediction.probabilities is None for prediction in predictions}
    if len(kinds) == 2:
        raise ArgumentError("predictions", "must all give labels, or all probabilities")
    column = {label: i for i, label in enumerate(labels)}
    answers = [by_study.get(record.study_id) for record in records]
    present = _called([record.labels for record in records], column)
    predicted = _called([() if one is None else one.labels or () for one in answers], column)
    has_prediction = np.array([one is not None for one in answers], bool)
    probabilities = None
    if kinds == {False}:
        probabilities = np.zeros((len(records), len(labels)))
        given = [one.probabilities or {} for one in answers if one is not None]
        probabilities[has_prediction] = [[of_study[label] for label in labels] for of_study in given]
    has_decisions = True
    if probabilities is not None:
        cuts = _thresholds(thresholds, labels)
        if probabilities.min(initial=0) < 0 or probabilities.max(initial=0) > 1:
            has_decisions = _decides(thresholds, labels)
            lowest = np.nextafter(probabilities[has_prediction].min(axis=0), -np.inf)
            probabilities[~has_prediction] = lowest  # below every other study
            predicted = probabilities >= np.asarray(cuts)
        else:
            predicted = apply_thresholds(probabilities, cuts)
        predicted &= has_prediction[:, None]
    return StudyRows(tuple(labels), tuple(records), predicted, present, probabilities, has_prediction, has_decisions)


def _called(named: Sequence[Sequence[str]], column: Mapping[str, int]) -> BoolArray:
    """Return which labels each study names, (n_studies, n_labels)."""
    called = np.zeros((len(named), len(column)), bool)
    rows = np.repeat(np.arange(len(named)), [len(names) for names in named])
    called[rows, [column[label] for names in named for label in names]] = True
    return called


def _decides(thresholds: Thresholds | None, labels: Sequence[str]) -> bool:
    """Return True if thresholds are given for scores on another scale than [0, 1], which have no default.

    Raises
    ------
    ArgumentError
        If only some labels have a threshold.
    """
    if not isinstance(thresholds, Mapping):
        return thresholds is not None
    lacking = [label for label in labels if label not in thresholds]
    if lacking:
        rule = "must name every finding that is scored, because scores lie outside [0, 1]"
        raise ArgumentError("thresholds", rule, f"none for {', '.join(lacking)}")
    return True


def _thresholds(thresholds: Thresholds | None, labels: Sequence[str]) -> float | list[float]:
    thresholds = 0.5 if thresholds is None else thresholds
    for value in thresholds.values() if isinstance(thresholds, Mapping) else [thresholds]:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ArgumentError("thresholds", "must be a finite number, or one for each label named", repr(value))
    if not isinstance(thresholds, Mapping):
        return float(thresholds)
    unknown = sorted(set(thresholds) - set(labels))
    if unknown:
        raise ArgumentError("thresholds", "must name labels of the benchmark", unknown)
    return [float(thresholds.get(label, 0.5)) for label in labels]


def summarize_studies(
    rows: StudyRows,
    resampling: Resampling = Resampling(),
    *,
    labels: Sequence[str] | None = None,
    stratum: str | None = None,
    metrics: Collection[str] | None = None,
) -> list[Estimate]:
    """Return label metrics with 95% intervals; all metrics, labels and strata use the same replicates.

    Parameters
    ----------
    rows : StudyRows of the whole split: all its patients are resampled, also for a stratum
    resampling : unit "patient" or "study", interval "jackknife", "percentile" or "bca"
    labels : labels to report; averages are over these labels only
    stratum : key of ``rows.strata()``, or None for all studies
    metrics : metrics to return, by default all

    Returns
    -------
    list of Estimate, as from :func:`reveal_bench.metrics.estimates.estimate_labels`

    Raises
    ------
    ValueError
        If the label, stratum or unit is unknown.
    """
    unit = resampling.unit
    if unit not in ("patient", "study"):
        raise ArgumentError("unit", "must be 'patient' or 'study'", repr(unit))
    chosen = rows.labels if labels is None else tuple(labels)
    columns = _columns_of(rows, chosen)
    part = rows if stratum is None else rows.take(rows.stratum(stratum))

    unit_of = attrgetter(f"{unit}_id")
    return estimate_labels(
        part.predicted[:, columns] if rows.has_decisions else None,
        part.present[:, columns],
        scores=None if part.probabilities is None else part.probabilities[:, columns],
        labels=chosen,
        patients=list(map(unit_of, part.studies)),
        all_patients=list(map(unit_of, rows.studies)),
        answered=part.has_prediction,
        asked=part._asked_of(chosen),
        resampling=resampling,
        metrics=metrics,
    )


_OF_DECISIONS = (*PER_LABEL, "balanced_accuracy")
_OF_PROBABILITIES = ("auroc", "average_precision", "log_loss")


def study_metrics(systems: Sequence[StudyRows]) -> list[str]:
    """Return the metrics that apply to all `systems`.

    Examples
    --------
    >>> study_metrics([])
    ['f1', 'precision', 'recall', 'specificity', 'npv', 'cohen_kappa', 'auroc', 'average_precision', 'mcc', \
'balanced_accuracy', 'log_loss']
    """
    has_decisions = all(rows.has_decisions for rows in systems)
    has_probabilities = all(rows.probabilities is not None for rows in systems)
    names = [*(_OF_DECISIONS if has_decisions else ()), *(_OF_PROBABILITIES if has_probabilities else ())]
    has_losses = all(rows.probabilities is None or are_probabilities(rows.probabilities) for rows in systems)
    return sorted((name for name in names if name != "log_loss" or has_losses), key=SHOWN_LAST.__contains__)


def resample_studies(
    systems: Sequence[StudyRows], resampling: Resampling, *, metrics: Sequence[str], labels: Sequence[str]
) -> list[dict[str, Resampled]]:
    """Return scores per label of several systems on one split, in the data and in the same replicates.

    Parameters
    ----------
    systems : StudyRows of the same studies in the same order, scored against the same labels
    metrics : members of :func:`study_metrics`
    labels : labels to report

    Returns
    -------
    list with a dict from metric to the scores of every label for each system

    Raises
    ------
    ValueError
        If systems or studies are missing, a metric does not apply to all systems, a label is unknown, or the systems
        were scored on different studies or references.
    """
    _check_systems(systems, metrics, labels, resampling.unit)
    first = systems[0]
    columns = _columns_of(first, labels)
    names = [study.patient_id if resampling.unit == "patient" else study.study_id for study in first.studies]
    code = {name: i for i, name in enumerate(sorted(set(names)))}
    units = np.array([code[name] for name in names], np.int64)
    present, asked = first.present[:, columns], first._asked_of(labels)
    sums_of = [
        DecisionSums.of(rows.predicted[:, columns], present, rows.has_prediction, units, len(code), asked)
        for rows in systems
    ]
    ranked_of = [
        ranked_scores(
            missed_decisions(rows.predicted[:, columns], present, rows.has_prediction),
            None if rows.probabilities is None else rows.probabilities[:, columns],
        )
        for rows in systems
    ]

    def replicates(names: Sequence[str], counts: Counts) -> dict[tuple[int, str], FloatArray]:
        figures: dict[tuple[int, str], FloatArray] = {}
        for i, ranked in enumerate(ranked_of):
            drawn = sums_of[i].resample(counts)
            asked_for = {name: ranked[name] for name in names if name in ranked}
            of_ranks = rankings_resampled(asked_for, present, counts, units, asked)
            of_sums = {name: OF_SUMS[name](drawn.for_metric(name)) for name in names if name in PER_LABEL}
            figures |= {(i, name): values for name, values in (of_sums | of_ranks).items()}
        return figures

    # Differences in MCC, which is no ratio of sums, need replicates
    others = [name for name in metrics if name != "mcc"]
    drawn = replicates_of(partial(replicates, others), needed_blocks(len(code), resampling))
    if "mcc" in metrics:
        drawn |= replicates_of(partial(replicates, ["mcc"]), blocks_of_counts(len(code), resampling))
    results: list[dict[str, Resampled]] = []
    for i, (ranked, sums) in enumerate(zip(ranked_of, sums_of, strict=True)):
        figures: dict[str, Resampled] = {}
        for metric in metrics:
            if metric in PER_LABEL:
                figures[metric] = figures_of_labels(metric, sums.for_metric(metric), drawn[i, metric])
            elif metric in ranked:
                drawn_scores = drawn[i, metric]
                figures[metric] = figures_of_ranking(*ranked[metric], present, units, len(code), drawn_scores, asked)
            else:
                _, probabilities = ranked["auroc"]
                figures[metric] = figures_of_losses(probabilities, present, units, len(code), resampling, asked)
        results.append(figures)
    return results


def _columns_of(rows: StudyRows, labels: Sequence[str]) -> list[int]:
    unknown = [label for label in labels if label not in rows.labels]
    if unknown or not labels:
        raise ArgumentError("labels", f"must be among {list(rows.labels)}", unknown or "none")
    return [rows.labels.index(label) for label in labels]


def _check_systems(systems: Sequence[StudyRows], metrics: Sequence[str], labels: Sequence[str], unit: str) -> None:
    if unit not in ("patient", "study"):
        raise ArgumentError("unit", "must be 'patient' or 'study'", repr(unit))
    if not systems:
        raise ArgumentError("systems", "must hold at least one system", "none")
    first = systems[0]
    if not len(first):
        raise ArgumentError("systems", "must be scored on at least one study", "none")
    _columns_of(first, labels)
    missing = [name for name in metrics if name not in study_metrics(systems)]
    if missing:
        raise ArgumentError("metrics", f"must be among {study_metrics(systems)}", missing)
    studies = [(study.study_id, study.patient_id) for study in first.studies]
    for rows in systems:
        if rows.labels != first.labels or [(s.study_id, s.patient_id) for s in rows.studies] != studies:
            raise ValueError("all systems must be scored on the same studies and labels, in the same order")
        if not np.array_equal(rows.present, first.present):
            raise ValueError("all systems must be scored against the same references")
