"""Conversion of findings predictions and study rows to arrays (:mod:`reveal_bench.kinds.arrays`), and their marks.

A file has either labels or probabilities, for all studies. Marks include thresholds, because marks must contain
everything that could change a decision. Probabilities below 0.1, which nearly every study has, are not items; otherwise
two models of rare findings would always look similar.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.arrays import Arrays, Codec, Fields, Item, Marks, exact, names_from, require, text_of_names
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest, StudyRecord
from reveal_bench.kinds.images import StudyImage
from reveal_bench.kinds.parts import override
from reveal_bench.predictions.limits import Limits

if TYPE_CHECKING:
    from reveal_bench.kinds.findings.scoring import StudyRows


class FindingsCodec(Codec[FindingsPrediction, StudyManifest, "StudyRows"]):
    """Labels or probabilities of studies."""

    predictions: ClassVar[Fields] = {
        "study": ("<u4", 1),
        "gives_labels": ("|b1", 1),
        "n_labels": ("<u2", 1),
        "labels": ("<u2", 1),
        "probabilities": ("<f8", 2),
    }
    rows: ClassVar[Fields] = {
        "text": ("|u1", 1),
        "predicted": ("|b1", 2),
        "present": ("|b1", 2),
        "probabilities": ("<f8", 2),
        "has_prediction": ("|b1", 1),
    }

    @override
    def manifest_from(self, raw: dict[str, Any]) -> StudyManifest:
        """Return a manifest; labels and studies are tuples."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
        return StudyManifest(**fields)

    @override
    def arrays_of(self, predictions: Sequence[FindingsPrediction], manifest: StudyManifest) -> Arrays:
        """Return checked predictions as arrays; raises ValueError also if labels and probabilities are mixed."""
        studies = {study: i for i, study in enumerate(manifest.studies)}
        codes = {label: i for i, label in enumerate(manifest.labels)}
        gives_labels = {prediction.labels is not None for prediction in predictions}
        if len(gives_labels) > 1 or any((p.labels is None) == (p.probabilities is None) for p in predictions):
            raise ValueError("all findings predictions must give labels, or all probabilities")
        try:
            study = [studies[p.study_id] for p in predictions]
            labels = [codes[label] for p in predictions for label in p.labels or ()]
            given_probabilities = [p.probabilities for p in predictions if p.probabilities is not None]
            probabilities = [[one[label] for label in manifest.labels] for one in given_probabilities]
        except KeyError as error:
            raise ValueError(f"predictions must have the manifest's studies and all its labels, got {error}") from None
        return {
            "study": np.array(study, np.uint32),
            "gives_labels": np.array([True in gives_labels], np.bool_),
            "n_labels": np.array([len(p.labels or ()) for p in predictions], np.uint16),
            "labels": np.array(labels, np.uint16),
            "probabilities": np.array(probabilities, np.float64).reshape(-1, len(manifest.labels)),
        }

    @override
    def predictions_from(
        self, arrays: Arrays, manifest: StudyManifest, limits: Limits
    ) -> tuple[FindingsPrediction, ...]:
        """Rebuild the predictions."""
        n, n_labels = len(arrays["line"]), arrays["n_labels"]
        probabilities, study, labels = arrays["probabilities"], arrays["study"], arrays["labels"]
        require(arrays["gives_labels"].shape == (1,), "`gives_labels` must be one value")
        gives_labels = bool(arrays["gives_labels"][0])
        wanted = (0 if gives_labels else n, len(manifest.labels))
        require(probabilities.shape == wanted, f"`probabilities` must have shape {wanted}, got {probabilities.shape}")
        require(len(study) == len(n_labels) == n, "`study` and `n_labels` must have one value per prediction")
        require(
            len(labels) == int(n_labels.sum(dtype=np.int64)), "`labels` must have as many values as `n_labels` says"
        )
        require(gives_labels or len(labels) == 0, "`labels` must be empty where probabilities are given")
        require(bool((study < len(manifest.studies)).all()), "`study` must be an index into the manifest")
        require(len(np.unique(study)) == n, "each study must be predicted once")
        require(bool((labels < len(manifest.labels)).all()), "`labels` must be indices into the manifest")
        require(bool(((probabilities >= 0) & (probabilities <= 1)).all()), "`probabilities` must be in [0, 1]")
        stops = np.cumsum(n_labels, dtype=np.int64).tolist()
        predictions = []
        for i, (code, stop, line) in enumerate(zip(study.tolist(), stops, arrays["line"].tolist(), strict=True)):
            study_id = manifest.studies[code]
            if gives_labels:
                codes = labels[stop - int(n_labels[i]) : stop].tolist()
                require(len(set(codes)) == len(codes), "a study must name each label once")
                predictions.append(FindingsPrediction(study_id, tuple(manifest.labels[c] for c in codes), None, line))
            else:
                values = dict(zip(manifest.labels, probabilities[i].tolist(), strict=True))
                predictions.append(FindingsPrediction(study_id, None, values, line))
        return tuple(predictions)

    @override
    def arrays_of_rows(self, rows: StudyRows) -> Arrays:
        """Return decisions, references and facts of the studies."""
        if not rows.has_decisions:
            raise ArgumentError("rows", "must have decisions: probabilities in [0, 1], or thresholds")
        studies = [asdict(study) for study in rows.studies]
        for study in studies:
            for image in study["images"]:
                image.pop("picture")  # `images` has paths on the maintainer's disk
        n_kept = 0 if rows.probabilities is None else len(rows)
        return {
            "text": text_of_names({"labels": rows.labels, "studies": studies}),
            "predicted": rows.predicted,
            "present": rows.present,
            "probabilities": np.zeros((n_kept, len(rows.labels))) if rows.probabilities is None else rows.probabilities,
            "has_prediction": rows.has_prediction,
        }

    @override
    def rows_from(self, arrays: Arrays) -> StudyRows:
        """Rebuild the rows."""
        from reveal_bench.kinds.findings.scoring import StudyRows

        names = names_from(arrays["text"])
        labels, studies = tuple(names["labels"]), tuple(_study(raw) for raw in names["studies"])
        shape = (len(studies), len(labels))
        table = arrays["probabilities"]
        if (
            not arrays["predicted"].shape == arrays["present"].shape == shape
            or len(arrays["has_prediction"]) != shape[0]
        ):
            raise ValueError(f"`predicted` and `present` must have shape {shape}, got {arrays['predicted'].shape}")
        if table.shape not in (shape, (0, len(labels))):
            raise ArgumentError("probabilities", f"must have shape {shape}", table.shape)
        probabilities = table if len(table) or not studies else None
        return StudyRows(
            labels, studies, arrays["predicted"], arrays["present"], probabilities, arrays["has_prediction"]
        )


def _study(raw: dict[str, Any]) -> StudyRecord:
    images = tuple(
        StudyImage(**{**image, "spacing_mm": tuple(image["spacing_mm"]) if image["spacing_mm"] else None})
        for image in raw["images"]
    )
    labels, unknown = tuple(raw["labels"]), tuple(raw["unknown"])
    return StudyRecord(**{**raw, "labels": labels, "unknown": unknown, "images": images})


def marks_of(
    predictions: Sequence[FindingsPrediction], manifest: StudyManifest, thresholds: float | Mapping[str, float]
) -> Marks:
    """Return the labels or probabilities of each study; items are labels, or probabilities rounded down to tenths."""
    studies = sorted(predictions, key=lambda p: p.study_id)
    return Marks(_study_answers(studies, manifest, thresholds), set(_study_items(studies)))


def signs_of(studies: Sequence[FindingsPrediction], manifest: StudyManifest) -> list[str]:
    """Return signs of probing: no labels at all, the same labels in every study, or labels called in every study."""
    calls = Counter(_calls(study) for study in studies)
    n_calls = Counter(label for study in studies for label in _calls(study))
    if not n_calls:
        return ["No label is called in any study."]
    signs = []
    if len(manifest.studies) > 1 and len(calls) == 1 and len(studies) == len(manifest.studies):
        signs.append("Every study has the same labels.")
    always = [label for label in manifest.labels if n_calls[label] == len(manifest.studies) > 1]
    if always:
        signs.append(f"Called in every study: {', '.join(always)}.")
    return signs


def _study_answers(
    studies: Sequence[FindingsPrediction], manifest: StudyManifest, thresholds: float | Mapping[str, float]
) -> list[Item]:
    """Return an entry for each study with labels or probabilities; empty labels are left out, like a missing
    prediction.
    """
    answers: list[Item] = []
    for p in studies:
        if p.probabilities is not None:
            answers.append((p.study_id, *(exact(p.probabilities[label]) for label in manifest.labels)))
        elif p.labels:
            answers.append((p.study_id, sorted(p.labels)))
    if any(p.probabilities is not None for p in studies):
        by_label = thresholds if isinstance(thresholds, Mapping) else dict.fromkeys(manifest.labels, thresholds)
        answers.append(("thresholds", *(exact(by_label.get(label, 0.5)) for label in manifest.labels)))
    return answers


def _study_items(studies: Sequence[FindingsPrediction]) -> Iterator[Item]:
    for p in studies:
        if p.probabilities is None:
            yield from ((p.study_id, label) for label in p.labels or ())
        else:
            yield from ((p.study_id, label, int(10 * x)) for label, x in p.probabilities.items() if x >= 0.1)


def _calls(study: FindingsPrediction) -> tuple[str, ...]:
    if study.probabilities is None:
        return tuple(sorted(study.labels or ()))
    return tuple(sorted(label for label, x in study.probabilities.items() if x >= 0.5))
