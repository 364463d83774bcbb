"""Studies of a findings benchmark as cases for display and as annotations; single readers' labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from reveal_bench.kinds.cases import (
    PREDICTION,
    AnnotatedImage,
    Annotations,
    Case,
    CaseAnswer,
    StudyLabels,
    films_of_study,
)
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest, StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.folder import AnyFolder, open_folder, read_rows, split_shards
from reveal_bench.words import count_text


def case_of_study(record: StudyRecord) -> Case:
    """Return a study with its labels."""
    agreement = (("Agreement", record.agreement.replace("_", " ")),) if record.agreement else ()
    facts = (("Reference labels", ", ".join(record.labels) or "none"), *agreement)
    return Case(record.study_id, films_of_study(record.images), record.labels, {}, facts)


def answers_of_studies(
    predictions: Sequence[FindingsPrediction],
    records: Sequence[StudyRecord],
    rows: StudyRows,
) -> dict[str, list[CaseAnswer]]:
    """Return study_id -> a system's decision on every label."""
    answers: dict[str, list[CaseAnswer]] = {}
    for i, study in enumerate(rows.studies):
        of_study = answers.setdefault(study.study_id, [])
        for j, label in enumerate(rows.labels):
            if label in study.unknown:
                continue
            is_present, is_called = bool(rows.present[i, j]), bool(rows.predicted[i, j])
            is_right = is_present == is_called if rows.has_decisions else None
            words = "no answer" if not rows.has_prediction[i] else "called" if is_called else "not called"
            if rows.probabilities is not None and rows.has_prediction[i]:
                value = f"{rows.probabilities[i, j]:.2f}"
                words = f"{words}, probability {value}" if rows.has_decisions else f"score {value}"
            of_study.append(CaseAnswer(label, is_right, words))
    return answers


REFERENCE = "ground_truth"


def labelled_references(records: Sequence[StudyRecord], manifest: StudyManifest) -> Annotations:
    """Return every label of every study, present or absent, without those that have no reference."""
    known = ((one, [label for label in manifest.labels if label not in one.unknown]) for one in records)
    studies = tuple(
        StudyLabels(one.study_id, REFERENCE, {label: float(label in one.labels) for label in labels})
        for one, labels in known
    )
    return _annotations(records, manifest, studies)


def labelled_predictions(
    predictions: Iterable[FindingsPrediction], records: Sequence[StudyRecord], manifest: StudyManifest
) -> Annotations:
    """Return a model's labels or probabilities."""
    studies = []
    for one in predictions:
        if one.probabilities is not None:
            studies.append(StudyLabels(one.study_id, PREDICTION, dict(one.probabilities), are_probabilities=True))
        else:
            called = one.labels or ()
            values = {label: float(label in called) for label in manifest.labels}
            studies.append(StudyLabels(one.study_id, PREDICTION, values))
    return _annotations(records, manifest, tuple(studies))


def _annotations(
    records: Sequence[StudyRecord], manifest: StudyManifest, studies: tuple[StudyLabels, ...]
) -> Annotations:
    films = {
        image.image_id: AnnotatedImage(
            image.image_id, record.study_id, record.patient_id, image.width, image.height, image.spacing_mm
        )
        for record in records
        for image in record.images
    }
    return Annotations(manifest.benchmark, manifest.version, manifest.split, films, manifest.labels, studies=studies)


def predictions_of(annotations: Annotations) -> tuple[list[FindingsPrediction], list[str]]:
    """Return (predictions, losses): one per study, with its probabilities or otherwise the labels present.

    Drawings are lost.
    """
    predictions = []
    for one in annotations.studies:
        if one.are_probabilities:
            predictions.append(FindingsPrediction(one.study_id, probabilities=one.values))
        else:
            labels = tuple(label for label in annotations.names if one.values.get(label))
            predictions.append(FindingsPrediction(one.study_id, labels))
    n = len(annotations.drawings)
    return predictions, [f"{count_text(n, 'drawing')}: this benchmark asks for labels of studies"] if n else []


def label_readings(
    folder: AnyFolder, split: str, records: Sequence[StudyRecord]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return reader -> study_id -> labels that this reader called present, of the labels asked."""
    asked = open_folder(folder).findings
    known = {record.study_id for record in records}
    readings: dict[str, dict[str, tuple[str, ...]]] = {}
    for shard in split_shards(folder, "readers", split):
        for row in read_rows(shard, ["study_id", "reader", "labels"]):
            if row["study_id"] in known:
                readings.setdefault(row["reader"], {})[row["study_id"]] = tuple(
                    label for label in row["labels"] if label in asked
                )
    return readings


def agreed_labels(record: StudyRecord, readings: Sequence[Sequence[str]], at_least: int) -> tuple[str, ...]:
    """Return the labels that at least `at_least` readers gave to a study.

    Examples
    --------
    >>> agreed_labels(StudyRecord("a", "p", ()), [["Edema"], ["Edema", "Pneumonia"], []], 2)
    ('Edema',)
    """
    votes = Counter(label for labels in readings for label in labels)
    return tuple(label for label, n in votes.items() if n >= at_least)


def study_by_reading(record: StudyRecord, labels: Sequence[str]) -> StudyRecord:
    """Return the study with a reader's labels as its reference."""
    return replace(record, labels=tuple(labels), agreement=None, n_agree_all=None, unknown=())


def predictions_of_reader(record: StudyRecord, labels: Sequence[str]) -> list[FindingsPrediction]:
    """Return a reader's labels as a prediction."""
    return [FindingsPrediction(record.study_id, tuple(labels))]
