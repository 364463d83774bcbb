"""What single readers said of studies, the config ``readers``: labels, as references and as answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reveal_bench.kinds.findings.records import FindingsPrediction, StudyRecord
from reveal_bench.kinds.folder import read_rows, split_shards

__all__ = ["agreed_labels", "label_readings", "predictions_of_reader", "study_by_reading"]


def label_readings(folder: Path, split: str, records: Sequence[StudyRecord]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Reader -> study -> labels said to be present."""
    known = {record.study_id for record in records}
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for shard in split_shards(folder, "readers", split):
        for row in read_rows(shard, ["study_id", "reader", "labels"]):
            if row["study_id"] in known:
                found.setdefault(row["reader"], {})[row["study_id"]] = tuple(row["labels"])
    return found


def agreed_labels(said: Sequence[Sequence[str]], at_least: int) -> tuple[str, ...]:
    """The labels that at least so many readers gave.

    Examples
    --------
    >>> agreed_labels([["Edema"], ["Edema", "Pneumonia"], []], 2)
    ('Edema',)
    """
    votes = Counter(label for labels in said for label in labels)
    return tuple(label for label, n in votes.items() if n >= at_least)


def study_by_reading(record: StudyRecord, labels: Sequence[str]) -> StudyRecord:
    """The study with these labels as its reference."""
    return replace(record, labels=tuple(labels), agreement=None, n_agree_all=None)


def predictions_of_reader(record: StudyRecord, labels: Sequence[str]) -> list[FindingsPrediction]:
    """The labels as a prediction."""
    return [FindingsPrediction(record.study_id, tuple(labels))]
