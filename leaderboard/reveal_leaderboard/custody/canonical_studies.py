"""Findings predictions as arrays, see :mod:`.canonical`: either labels or probabilities, for the whole file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.study_records import FindingsPrediction, StudyManifest

__all__ = ["FINDINGS_FIELDS", "findings_arrays", "findings_from"]

FINDINGS_FIELDS: Mapping[str, tuple[str, int]] = {
    "study": ("<u4", 1),
    "gives_labels": ("|b1", 1),
    "n_labels": ("<u2", 1),
    "labels": ("<u2", 1),
    "probabilities": ("<f8", 2),
}


def findings_arrays(predictions: Sequence[FindingsPrediction], manifest: StudyManifest) -> dict[str, npt.NDArray[Any]]:
    """The arrays of checked findings predictions."""
    studies = {study: i for i, study in enumerate(manifest.studies)}
    codes = {label: i for i, label in enumerate(manifest.labels)}
    gives_labels = {prediction.labels is not None for prediction in predictions}
    if len(gives_labels) > 1 or any((p.labels is None) == (p.probabilities is None) for p in predictions):
        raise ValueError("all findings predictions must give labels, or all probabilities")
    try:
        study = [studies[p.study_id] for p in predictions]
        labels = [codes[label] for p in predictions for label in p.labels or ()]
        given = [p.probabilities for p in predictions if p.probabilities is not None]
        probabilities = [[one[label] for label in manifest.labels] for one in given]
    except KeyError as error:
        raise ValueError(f"predictions must be of the manifest's studies and all its labels, got {error}") from None
    return {
        "study": np.array(study, np.uint32),
        "gives_labels": np.array([True in gives_labels], np.bool_),
        "n_labels": np.array([len(p.labels or ()) for p in predictions], np.uint16),
        "labels": np.array(labels, np.uint16),
        "probabilities": np.array(probabilities, np.float64).reshape(-1, len(manifest.labels)),
    }


def findings_from(arrays: Mapping[str, npt.NDArray[Any]], manifest: StudyManifest) -> tuple[FindingsPrediction, ...]:
    """The predictions back; raises ValueError for anything that is not as it must be."""
    n, n_labels = len(arrays["line"]), arrays["n_labels"]
    probabilities, study, labels = arrays["probabilities"], arrays["study"], arrays["labels"]
    _require(arrays["gives_labels"].shape == (1,), "`gives_labels` must be one value")
    gives_labels = bool(arrays["gives_labels"][0])
    wanted = (0 if gives_labels else n, len(manifest.labels))
    _require(probabilities.shape == wanted, f"`probabilities` must have shape {wanted}, got {probabilities.shape}")
    _require(len(study) == len(n_labels) == n, "`study` and `n_labels` must have one value per prediction")
    _require(len(labels) == int(n_labels.sum(dtype=np.int64)), "`labels` must have as many values as `n_labels` says")
    _require(gives_labels or len(labels) == 0, "`labels` must be empty where probabilities are given")
    _require(bool((study < len(manifest.studies)).all()), "`study` must be an index into the manifest")
    _require(len(np.unique(study)) == n, "each study must be predicted once")
    _require(bool((labels < len(manifest.labels)).all()), "`labels` must be indices into the manifest")
    _require(bool(((probabilities >= 0) & (probabilities <= 1)).all()), "`probabilities` must lie in [0, 1]")
    stops = np.cumsum(n_labels, dtype=np.int64).tolist()
    found = []
    for i, (code, stop, line) in enumerate(zip(study.tolist(), stops, arrays["line"].tolist(), strict=True)):
        study_id = manifest.studies[code]
        if gives_labels:
            codes = labels[stop - int(n_labels[i]) : stop].tolist()
            _require(len(set(codes)) == len(codes), "a study must name each label once")
            found.append(FindingsPrediction(study_id, tuple(manifest.labels[c] for c in codes), None, line))
        else:
            values = dict(zip(manifest.labels, probabilities[i].tolist(), strict=True))
            found.append(FindingsPrediction(study_id, None, values, line))
    return tuple(found)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"canonical predictions: {rule}")
