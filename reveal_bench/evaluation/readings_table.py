"""What readers and a system said of the same studies, as a table for :mod:`reveal_bench.reader_studies`.

Conventions
-----------
A row per reader, study and label: 1 where it was said to be present, and the truth, which is the reference of the
dataset folder. The system stands among the readers under its own name; of probabilities its decisions are taken. What
is not read by every reader is left out, since a reader study is fully crossed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.kinds.kind import Kind, Readings

__all__ = ["ReadingRow", "readings_of"]


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """What one reader said of one label of a study: `score` and `truth` are 0 or 1."""

    reader: str
    case: str
    patient: str
    finding: str
    score: int
    truth: int


def readings_of(
    kind: Kind, readings: Readings, scored: ScoredFile, records: Sequence[Any], system: str, finding: str | None = None
) -> tuple[list[ReadingRow], int]:
    """The rows of all readers, then of the system; and how many studies not every reader had read.

    Parameters
    ----------
    readings : of :meth:`Kind.readings <reveal_bench.kinds.kind.ReadKind.readings>`
    scored : the system
    records : references
    system : its name, which no reader may have
    finding : one label; all of them unless given

    Raises
    ------
    ArgumentError
        If the kind has no labels, the label is unknown, a reader has the system's name, or no study was read by all.
    """
    if kind.uses_grid:
        rule = "must be a benchmark of findings: what is drawn has no truth of 0 and 1"
        raise ArgumentError("folder", rule, f"one of {kind.name}")
    if finding is not None and finding not in scored.rows.groups:
        raise ArgumentError("finding", f"must be one of {', '.join(scored.rows.groups)}", repr(finding))
    if system in readings:
        rule = f"of the system, by default that of its file, must be no reader's: {', '.join(readings)}"
        raise ArgumentError("name", rule, repr(system))
    by_key = {kind.key_of(record): record for record in records}
    by_all = [key for key in by_key if all(key in said for said in readings.values())]
    if not by_all:
        raise ArgumentError("folder", "must have a study that every reader read", f"none of {len(by_key):,}")
    rows: list[ReadingRow] = []
    for name, said in readings.items():
        answers = [answer for key in by_all for answer in kind.answers_of(by_key[key], said[key])]
        references = [by_key[key] for key in by_all]
        rows += _rows(name, kind.score(answers, references, scored.manifest, scored.protocol), by_all, finding)
    return rows + _rows(system, scored.rows, by_all, finding), len(by_key) - len(by_all)


def _rows(reader: str, rows: Any, studies: Sequence[str], finding: str | None) -> list[ReadingRow]:
    kept = set(studies)
    return [
        ReadingRow(
            reader,
            row["study_id"] if finding else f"{row['study_id']} {row['label']}",
            row["patient_id"],
            row["label"],
            int(row["predicted"]),
            int(row["present"]),
        )
        for row in rows.to_table().to_pylist()
        if row["study_id"] in kept and finding in (None, row["label"])
    ]
