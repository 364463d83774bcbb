"""Studies with labels: the records of findings-type benchmarks, and how they are read from a dataset folder.

Conventions
-----------
The unit is the study, which may hold several images (paper 004). Of a dataset folder this module reads

* ``manifest/<split>.parquet``: study_id (string) and, if known, views (list of strings);
* ``multilabel/<split>-*.parquet``: study_id, patient_id, labels (list of ClassLabel codes into the folder's findings),
  agreement (ClassLabel code into :data:`AGREEMENTS`, or null), views (list of codes into VIEWS, may be absent).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench.records import VIEWS, check_split, read_folder_info

__all__ = [
    "AGREEMENTS",
    "FindingsPrediction",
    "StudyManifest",
    "StudyRecord",
    "read_studies",
    "read_study_manifest",
]

AGREEMENTS = ("two_of_three", "three_of_three")
"""How many of the three readers agreed to all labels (paper 004, section 2.4)."""


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """One study with its reference labels."""

    study_id: str
    patient_id: str
    labels: tuple[str, ...]
    agreement: str | None = None
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class StudyManifest:
    """What a findings-type split asks: every label of every study; all that a linter may know."""

    benchmark: str
    version: str
    split: str
    labels: tuple[str, ...]
    studies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindingsPrediction:
    """One study as the linter hands it on: either `labels`, or `probabilities` of all labels.

    Attributes
    ----------
    labels : canonical labels said to be present, or None when probabilities are given
    probabilities : dict from every canonical label to a number in [0, 1], or None when labels are given
    line : line of the file it came from
    """

    study_id: str
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] | None = None
    line: int = 0


def read_study_manifest(folder: Path, split: str) -> StudyManifest:
    """Read the public manifest of a findings-type split.

    Raises
    ------
    ValueError
        If the folder has no such split, or is of a localization benchmark.
    """
    import pyarrow.parquet as pq

    info = read_folder_info(folder)
    check_split(info, folder, split)
    path = Path(folder) / "manifest" / f"{split}.parquet"
    if "study_id" not in pq.read_schema(path).names or "image_id" in pq.read_schema(path).names:
        raise ValueError(f"{folder} is no findings-type dataset: its manifest is of images, not of studies")
    studies = pq.read_table(path, columns=["study_id"])["study_id"].to_pylist()
    return StudyManifest(info.benchmark, info.version, split, info.findings, tuple(studies))


def read_studies(folder: Path, split: str) -> list[StudyRecord]:
    """Read the reference labels of `split`, in file order.

    Raises
    ------
    ValueError
        If the folder has no such split, or holds only its manifest because its references are private.
    """
    import pyarrow.parquet as pq

    info = read_folder_info(folder)
    check_split(info, folder, split)
    shards = sorted((Path(folder) / "multilabel").glob(f"{split}-*.parquet"))
    if not shards:
        raise ValueError(f"{folder} holds no labels of split {split!r}: they are private, kept by the maintainer")
    records = []
    for shard in shards:
        wanted = ("study_id", "patient_id", "labels", "agreement", "views")
        columns = [name for name in pq.read_schema(shard).names if name in wanted]
        records += [_record(row, info.findings) for row in pq.read_table(shard, columns=columns).to_pylist()]
    return records


def _record(row: dict[str, Any], findings: tuple[str, ...]) -> StudyRecord:
    agreement = row.get("agreement")
    return StudyRecord(
        study_id=row["study_id"],
        patient_id=row["patient_id"],
        labels=tuple(findings[code] for code in row["labels"]),
        agreement=None if agreement is None else AGREEMENTS[agreement],
        views=tuple(VIEWS[code] for code in row.get("views") or ()),
    )
