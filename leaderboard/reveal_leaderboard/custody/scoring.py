"""The jobs of the score template: canonical arrays against a holdout, and rows of the vault against each other.

Conventions
-----------
What a job answers is rounded and cut by :mod:`reveal_leaderboard.release.release` or
:mod:`reveal_leaderboard.release.ranking` before it leaves the child. Exact rows go to files of the vault that the
parent opened. No upload is ever seen here: predictions come through the strict reader of :mod:`.canonical`.

The same work is done for every question, whether or not there is something to be found: predictions of questions that
the manifest does not ask were dropped before, and a mask has at most `MOST_MASK_RUNS` runs.

Exact per-case rows in the vault, and back: what ranking and comparing are computed from.

Conventions
-----------
Numbers are arrays and pass bit for bit; names are JSON text in an array of bytes, and cases point at them. A file is
named ``<submission id>.<version>.npz`` in the vault, and never leaves it. The reader checks indices and lengths; the
files are this package's own.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.records import StudyManifest, StudyRecord, read_studies, read_study_manifest
from reveal_bench.kinds.findings.scoring import StudyRows, score_studies
from reveal_bench.kinds.folder import read_folder_info, split_shards
from reveal_bench.kinds.images import StudyImage
from reveal_bench.kinds.localization.records import (
    Annotation,
    LocalizationPrediction,
    LocalizationRecord,
    read_localization,
    read_manifest,
)
from reveal_bench.kinds.localization.scoring import CaseRows, score_localization
from reveal_bench.kinds.tasks.records import CRITERIA, TaskManifest, read_task_manifest, read_tasks
from reveal_bench.kinds.tasks.scoring import RubricRows, score_ratings
from reveal_bench.masks import encode_mask
from reveal_leaderboard.custody.arrays import Fields, list_arrays, read_arrays, write_arrays
from reveal_leaderboard.custody.canonical import Predictions, read_canonical, read_rated
from reveal_leaderboard.custody.template import Job
from reveal_leaderboard.release.fingerprints import fingerprint
from reveal_leaderboard.release.ranking import compare_document, rank_document
from reveal_leaderboard.release.release import (
    ReleasedScore,
    part_of,
    release,
    release_rubric,
    release_studies,
    split_final,
)
from reveal_leaderboard.settings import ReleasePolicy

__all__ = ["JOBS", "compare", "load_shared", "rank", "read_cases", "score", "warm_up", "write_cases"]

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


_CONFIGS = {"localization": "localization", "findings": "multilabel", "tasks": "tasks"}
"""Kind of benchmark -> folder of its references."""

Rows = CaseRows | StudyRows | RubricRows


def load_shared(data: bytes) -> None:
    """These jobs share nothing but the folders that they open."""


def policy_from(raw: dict[str, Any]) -> ReleasePolicy:
    """A policy from its fields as JSON."""
    return ReleasePolicy(**{**raw, "bands": tuple(raw["bands"])})


def score(arguments: dict[str, Any], files: list[int], _: Any) -> bytes:
    """Score the first file, canonical arrays, and write exact rows to the second, those of the final part to the third.

    Returns
    -------
    JSON object of released, final, reference_hash and fingerprint
    """
    folder, split = Path(arguments["holdout"]), arguments["split"]
    policy, key = policy_from(arguments["policy"]), bytes.fromhex(arguments["key"])
    with os.fdopen(files[0], "rb", closefd=False) as file:
        rows, manifest, predictions = _score(file, folder, split, arguments["thresholds"])
    patients = {patient for _, patient in _people(rows)}
    kept_back = split_final(patients, key, policy.final_share)
    public = part_of(rows, patients - kept_back) if kept_back else rows
    final = part_of(rows, kept_back) if kept_back else None
    for handle, part in ((files[1], public), (files[2], final)):
        if part is not None:
            with os.fdopen(handle, "wb", closefd=False) as file:
                write_cases(file, part)
    answer = {
        "released": _release(public, policy).to_json(),
        "final": None if final is None else _release(final, policy).to_json(),
        "reference_hash": _reference_hash(folder, split, manifest, key),
        "fingerprint": asdict(fingerprint(predictions, manifest, key, thresholds=arguments["thresholds"])),
    }
    return json.dumps(answer, allow_nan=False).encode()


def _score(file: Any, folder: Path, split: str, thresholds: float | dict[str, float]) -> tuple[Rows, Any, Predictions]:
    info = read_folder_info(folder)
    if _kind(info.benchmark) == "findings":
        studies = read_study_manifest(folder, split)
        labelled: Any = read_canonical(file, studies)
        records = read_studies(folder, split)
        rows: Rows = score_studies(labelled, records, labels=studies.labels, thresholds=thresholds)
        return rows, studies, labelled
    if _kind(info.benchmark) == "tasks":
        tasks = read_task_manifest(folder, split)
        answers, ratings = read_rated(file, tasks)
        answered = [answer.task_id for answer in answers]
        return score_ratings(ratings, read_tasks(folder, split), answered=answered), tasks, answers
    manifest = read_manifest(folder, split)
    located: Any = read_canonical(file, manifest)
    images = read_localization(folder, split)
    rows = score_localization(located, images, findings=info.findings, grid=info.grid, asks=info.asks)
    return rows, manifest, located


def _kind(benchmark: str) -> str:
    known = BENCHMARKS.get(benchmark)
    return "localization" if known is None else known.kind


def _people(rows: Rows) -> list[tuple[str, str]]:
    if isinstance(rows, StudyRows):
        return [(study.study_id, study.patient_id) for study in rows.studies]
    if isinstance(rows, RubricRows):
        return list(zip(rows.task_ids, rows.patient_ids, strict=True))
    return list(rows.all_images)


def _release(rows: Rows, policy: ReleasePolicy) -> ReleasedScore:
    if isinstance(rows, RubricRows):
        return release_rubric(rows, policy)
    return release_studies(rows, policy) if isinstance(rows, StudyRows) else release(rows, policy)


def _reference_hash(folder: Path, split: str, manifest: Any, key: bytes) -> str:
    """Keyed hash over the reference files of a split, so that it confirms nobody's guess at them."""
    kind = {StudyManifest: "findings", TaskManifest: "tasks"}.get(type(manifest), "localization")
    config = _CONFIGS[kind]
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for shard in split_shards(folder, config, split):
        digest.update(hashlib.sha256(shard.read_bytes()).digest())
    return digest.hexdigest()


def rank(arguments: dict[str, Any], files: list[int], _: Any) -> bytes:
    """Place the submissions whose rows are in `files`."""
    systems = dict(zip(arguments["ids"], (_read(handle) for handle in files), strict=True))
    document = rank_document(systems, policy_from(arguments["policy"]), groups=arguments["groups"])
    return json.dumps(document, allow_nan=False).encode()


def compare(arguments: dict[str, Any], files: list[int], _: Any) -> bytes:
    """Compare the two submissions whose rows are in `files`."""
    a, b = (_read(handle) for handle in files)
    ids = (arguments["ids"][0], arguments["ids"][1])
    document = compare_document(a, b, policy_from(arguments["policy"]), ids=ids, paired=arguments["paired"])
    return json.dumps(document, allow_nan=False).encode()


def _read(handle: int) -> Rows:
    with os.fdopen(handle, "rb", closefd=False) as file:
        return read_cases(file)


JOBS: dict[str, Job] = {"score": score, "rank": rank, "compare": compare}


def warm_up() -> None:
    """Import and compile all that scoring uses, on references of its own."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    finding = CHEXLOCALIZE_FINDINGS[0]
    mask = np.zeros((12, 8), np.bool_)
    mask[2:6, 1:5] = True
    box = (1.0, 2.0, 4.0, 4.0)
    drawn = Annotation(finding, "ground_truth", encode_mask(mask), (), box, 1, 16)
    boxed = Annotation(finding, "ground_truth", None, (), box, 1, 16, (box,))
    policy = ReleasePolicy(min_cell=1, bands=(1,), n_resamples=20)
    status = dict.fromkeys(CHEXLOCALIZE_FINDINGS, 0) | {finding: 1}
    for drawing in (drawn, boxed):
        records = [
            LocalizationRecord(name, name, name, "AP", 8, 12, status, annotations=(drawing,)) for name in ("a", "b")
        ]
        predictions = [
            LocalizationPrediction("a", finding, points=((1.0, 1.0),), box=box, mask=encode_mask(mask)),
            LocalizationPrediction("b", finding, mask=encode_mask(mask)),
        ]
        rows = score_localization(predictions, records, findings=CHEXLOCALIZE_FINDINGS)
        release(rows, policy)
        rank_document({"a": rows, "b": rows}, policy)
