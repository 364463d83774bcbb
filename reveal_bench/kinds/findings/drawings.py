"""References and predictions of a findings benchmark as labels of studies, and labels of studies as predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reveal_bench.kinds.drawings import PREDICTION, Annotations, Film, StudyLabels
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest, StudyRecord

__all__ = ["labelled_references", "labelled_predictions", "predictions_of"]

REFERENCE = "ground_truth"


def labelled_references(records: Sequence[StudyRecord], manifest: StudyManifest) -> Annotations:
    """Every label of every study, present or absent."""
    studies = tuple(
        StudyLabels(one.study_id, REFERENCE, {label: float(label in one.labels) for label in manifest.labels})
        for one in records
    )
    return _annotations(records, manifest, studies)


def labelled_predictions(
    predictions: Iterable[FindingsPrediction], records: Sequence[StudyRecord], manifest: StudyManifest
) -> Annotations:
    """What a model called, or its probabilities."""
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
        image.image_id: Film(
            image.image_id, record.study_id, record.patient_id, image.width, image.height, image.spacing_mm
        )
        for record in records
        for image in record.images
    }
    return Annotations(manifest.benchmark, manifest.version, manifest.split, films, manifest.labels, studies=studies)


def predictions_of(annotations: Annotations) -> list[FindingsPrediction]:
    """One prediction per study: its probabilities if it has them, else the labels that are present."""
    found = []
    for one in annotations.studies:
        if one.are_probabilities:
            found.append(FindingsPrediction(one.study_id, probabilities=one.values))
        else:
            labels = tuple(label for label in annotations.names if one.values.get(label))
            found.append(FindingsPrediction(one.study_id, labels))
    return found
