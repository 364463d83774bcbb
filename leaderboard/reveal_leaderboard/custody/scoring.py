"""The jobs of the score template: canonical arrays against a holdout, and rows of the vault against each other.

Conventions
-----------
What a job answers is rounded and cut by :mod:`reveal_leaderboard.release` or :mod:`reveal_leaderboard.ranking` before
it leaves the child. Exact rows go to files of the vault that the parent opened. No upload is ever seen here:
predictions come through the strict reader of :mod:`.canonical`.

The same work is done for every question, whether or not there is something to be found: predictions of questions that
the manifest does not ask were dropped before, and a mask has at most `MOST_MASK_RUNS` runs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.masks import encode_mask
from reveal_bench.records import (
    Annotation,
    LocalizationPrediction,
    LocalizationRecord,
    read_folder_info,
    read_localization,
    read_manifest,
)
from reveal_bench.rubric_scoring import RubricRows, score_ratings
from reveal_bench.scoring import CaseRows, score_localization
from reveal_bench.study_records import StudyManifest, read_studies, read_study_manifest
from reveal_bench.study_scoring import StudyRows, score_studies
from reveal_bench.task_records import TaskManifest, read_task_manifest, read_tasks
from reveal_leaderboard.custody.canonical import Predictions, read_canonical
from reveal_leaderboard.custody.canonical_tasks import read_rated
from reveal_leaderboard.custody.cases import read_cases, write_cases
from reveal_leaderboard.custody.template import Job
from reveal_leaderboard.fingerprints import fingerprint
from reveal_leaderboard.ranking import compare_document, rank_document
from reveal_leaderboard.release import ReleasedScore, ReleasePolicy, part_of, release, release_studies, split_final
from reveal_leaderboard.release_rubric import release_rubric

__all__ = ["JOBS", "compare", "load_shared", "rank", "score", "warm_up"]

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
    for shard in sorted((folder / config).glob(f"{split}-*.parquet")):
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
