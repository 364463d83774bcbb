"""Exact per-case rows in the vault, and back: what ranking and comparing are computed from.

Conventions
-----------
Numbers are arrays and pass bit for bit; names are JSON text in an array of bytes, and cases point at them. A file is
named ``<submission id>.<version>.npz`` in the vault, and never leaves it. The reader checks indices and lengths; the
files are this package's own.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.rubric_scoring import RubricRows
from reveal_bench.scoring import CaseRows
from reveal_bench.study_records import StudyImage, StudyRecord
from reveal_bench.study_scoring import StudyRows
from reveal_bench.task_records import CRITERIA
from reveal_leaderboard.custody.archive import Fields, list_arrays, read_arrays, write_arrays

__all__ = ["read_cases", "write_cases"]

_KINDS = ("point", "box", "cell", "mask", "none")
_CASES: Fields = {
    "text": ("|u1", 1),
    "image": ("<u4", 1),
    "finding": ("<u2", 1),
    "point_kind": ("|u1", 1),
    "cell_kind": ("|u1", 1),
    "values": ("<f8", 2),
}
_STUDIES: Fields = {
    "text": ("|u1", 1),
    "predicted": ("|b1", 2),
    "present": ("|b1", 2),
    "probabilities": ("<f8", 2),
    "has_prediction": ("|b1", 1),
}


_RATINGS: Fields = {"text": ("|u1", 1), "ratings": ("<f8", 3), "is_answered": ("|b1", 1)}


def write_cases(file: BinaryIO, rows: CaseRows | StudyRows | RubricRows) -> None:
    """Write the rows of one submission."""
    if isinstance(rows, RubricRows):
        names = {name: getattr(rows, name) for name in ("task_ids", "patient_ids", "categories", "missing")}
        write_arrays(file, {"text": _text(names), "ratings": rows.ratings, "is_answered": rows.is_answered})
        return
    write_arrays(file, _study_arrays(rows) if isinstance(rows, StudyRows) else _case_arrays(rows))


def read_cases(file: BinaryIO) -> CaseRows | StudyRows | RubricRows:
    """Read what :func:`write_cases` wrote.

    Raises
    ------
    ValueError
        If the file is damaged or something else.
    """
    found = list_arrays(file)
    if "ratings" in found:
        return _rubric_rows(read_arrays(file, _RATINGS))
    if "predicted" in found:
        return _study_rows(read_arrays(file, _STUDIES))
    return _case_rows(read_arrays(file, _CASES))


def _case_arrays(rows: CaseRows) -> dict[str, npt.NDArray[Any]]:
    images = {pair: i for i, pair in enumerate(rows.all_images)}
    findings = {finding: i for i, finding in enumerate(rows.findings)}
    names = {
        "findings": rows.findings,
        "metrics": list(rows.values),
        "all_images": rows.all_images,
        "notes": rows.notes,
    }
    pairs = zip(rows.image_ids, rows.patient_ids, strict=True)
    return {
        "text": _text(names),
        "image": np.array([images[pair] for pair in pairs], np.uint32),
        "finding": np.array([findings[finding] for finding in rows.case_findings], np.uint16),
        "point_kind": np.array([_KINDS.index(kind) for kind in rows.point_kinds], np.uint8),
        "cell_kind": np.array([_KINDS.index(kind) for kind in rows.cell_kinds], np.uint8),
        "values": np.array(list(rows.values.values()), np.float64).reshape(len(rows.values), len(rows)),
    }


def _case_rows(arrays: dict[str, npt.NDArray[Any]]) -> CaseRows:
    names = _names(arrays["text"])
    images = tuple((image, patient) for image, patient in names["all_images"])
    findings = tuple(names["findings"])
    n = len(arrays["image"])
    if arrays["values"].shape != (len(names["metrics"]), n):
        raise ValueError(f"`values` must have shape ({len(names['metrics'])}, {n}), got {arrays['values'].shape}")
    limits = {"image": len(images), "finding": len(findings), "point_kind": len(_KINDS), "cell_kind": len(_KINDS)}
    for name, limit in limits.items():
        if len(arrays[name]) != n or (n and int(arrays[name].max()) >= limit):
            raise ValueError(f"`{name}` must be {n} indices below {limit}")
    chosen = [images[i] for i in arrays["image"].tolist()]
    return CaseRows(
        findings=findings,
        image_ids=[image for image, _ in chosen],
        patient_ids=[patient for _, patient in chosen],
        case_findings=[findings[i] for i in arrays["finding"].tolist()],
        point_kinds=[_KINDS[i] for i in arrays["point_kind"].tolist()],
        cell_kinds=[_KINDS[i] for i in arrays["cell_kind"].tolist()],
        values=dict(zip(names["metrics"], arrays["values"], strict=True)),
        all_images=images,
        notes=tuple(names["notes"]),
    )


def _study_arrays(rows: StudyRows) -> dict[str, npt.NDArray[Any]]:
    studies = [asdict(study) for study in rows.studies]
    for study in studies:
        for image in study["images"]:
            image.pop("picture")  # where pixels lie on the maintainer's disk
    n_kept = 0 if rows.probabilities is None else len(rows)
    return {
        "text": _text({"labels": rows.labels, "studies": studies}),
        "predicted": rows.predicted,
        "present": rows.present,
        "probabilities": np.zeros((n_kept, len(rows.labels))) if rows.probabilities is None else rows.probabilities,
        "has_prediction": rows.has_prediction,
    }


def _study_rows(arrays: dict[str, npt.NDArray[Any]]) -> StudyRows:
    names = _names(arrays["text"])
    labels, studies = tuple(names["labels"]), tuple(_study(raw) for raw in names["studies"])
    shape = (len(studies), len(labels))
    given = arrays["probabilities"]
    if not arrays["predicted"].shape == arrays["present"].shape == shape or len(arrays["has_prediction"]) != shape[0]:
        raise ValueError(f"`predicted` and `present` must have shape {shape}, got {arrays['predicted'].shape}")
    if given.shape not in (shape, (0, len(labels))):
        raise ValueError(f"`probabilities` must have shape {shape}, got {given.shape}")
    probabilities = given if len(given) or not studies else None
    return StudyRows(labels, studies, arrays["predicted"], arrays["present"], probabilities, arrays["has_prediction"])


def _rubric_rows(arrays: dict[str, npt.NDArray[Any]]) -> RubricRows:
    names, ratings, is_answered = _names(arrays["text"]), arrays["ratings"], arrays["is_answered"]
    columns = [tuple(names[name]) for name in ("task_ids", "patient_ids", "categories")]
    n = len(is_answered)
    if {len(column) for column in columns} | {len(ratings)} != {n} or ratings.shape[2] != len(CRITERIA):
        raise ValueError(f"`ratings` must have shape ({n}, readers, {len(CRITERIA)}), got {ratings.shape}")
    return RubricRows(columns[0], columns[1], columns[2], ratings, is_answered, names["missing"])


def _study(raw: dict[str, Any]) -> StudyRecord:
    images = tuple(
        StudyImage(**{**image, "spacing_mm": tuple(image["spacing_mm"]) if image["spacing_mm"] else None})
        for image in raw["images"]
    )
    return StudyRecord(**{**raw, "labels": tuple(raw["labels"]), "images": images})


def _text(names: dict[str, Any]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


def _names(text: npt.NDArray[np.uint8]) -> dict[str, Any]:
    names: dict[str, Any] = json.loads(text.tobytes())
    return names
