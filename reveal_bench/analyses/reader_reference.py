"""Scores of a system against single readers and against combinations of readers, and scores of readers themselves.

Conventions
-----------
References are derived from the single readers' annotations in the dataset folder:

* each reader's own annotations, on the cases that this reader annotated;
* combinations of all readers of a case: findings of at least one reader, of more than half, or of all;
* for each reader, the findings of more than half of the other readers, on the cases that this reader and at least one
  other annotated. This reader is scored against the same reference, so that a system can be ranked among readers. The
  difference is the system's score minus the reader's, with interval and p as in :mod:`reveal_bench.evaluation.compare`.

With two readers, more than half means both. Scores are macros of one metric over the findings of each reference, with
the intervals of ``reveal-bench score``.

The table for :mod:`reveal_bench.reader_studies` has one row per reader, study and label. The score is 1 if the reader
called the label present; the truth is the reference of the dataset folder. The system is in the table as a further
reader; if it gives probabilities, its decisions are used. Cases that were not annotated by every reader are left out,
because a reader study is fully crossed.

Source: readers are compared with the majority of the others as in Rajpurkar et al. 2018 (PLoS Med. 15) and Irvin et al.
2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.compare import compare
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.kinds.kind import AnyKind, Readings
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.parts import Manifest, Readers
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import UNDEFINED, Estimate


@dataclass(frozen=True, slots=True)
class AgainstReference:
    """Scores of a system, and possibly of a reader, against one reference.

    Attributes
    ----------
    reference : such as "reader A", "at least one", "others than A"
    metric : metric of the macro
    n : number of cases (studies or images) with this reference
    estimate : the system's estimate
    reader : name of the reader scored on the same cases, or None
    reader_value, difference, p : the reader's score, and the difference system minus reader with its p; NaN without a
        reader
    """

    reference: str
    metric: str
    n: int
    estimate: Estimate
    reader: str | None = None
    reader_value: float = math.nan
    difference: Estimate = UNDEFINED
    p: float = math.nan


@dataclass(frozen=True)
class _Setting:
    """Inputs shared by all references."""

    kind: AnyKind
    readers: Readers[Any, Any, Any]
    predictions: Sequence[Any]
    records: Mapping[str, Any]
    manifest: Manifest
    options: ScoringOptions
    metric: str

    def rows(self, predictions: Sequence[Any], by_record: Mapping[str, Any]) -> Rows:
        """Return the rows of `predictions` scored against the annotations of some records."""
        references = [self.readers.by_reading(self.records[key], words) for key, words in by_record.items()]
        rows: Rows = self.kind.scoring.score(predictions, references, self.manifest, self.options)
        return rows

    def agreed(self, readings: Sequence[Mapping[str, Any]], at_least: Callable[[int], int]) -> dict[str, Any]:
        """Return record key -> findings that at least `at_least(n)` of the record's n readers annotated; only annotated
        records are included.
        """
        read = [key for key in self.records if any(key in words for words in readings)]
        agreed = {}
        for key in read:
            ratings = [words[key] for words in readings if key in words]
            agreed[key] = self.readers.agreed(self.records[key], ratings, at_least(len(ratings)))
        return agreed

    def against(self, reference: str, by_record: Mapping[str, Any]) -> AgainstReference:
        """Score the system against one reference."""
        rows = self.rows(self.predictions, by_record)
        if self.metric not in rows.metrics():
            raise ArgumentError("metric", f"must be one of {', '.join(rows.metrics())}", repr(self.metric))
        estimates = rows.estimates(self.options.resampling, metrics=[self.metric])
        macros = (e for e in estimates if e.finding == MACRO)
        return AgainstReference(reference, self.metric, len(by_record), next(macros, UNDEFINED))


_SHARES: dict[str, Callable[[int], int]] = {
    "at least one": lambda n: 1,
    "more than half": lambda n: n // 2 + 1,
    "all": lambda n: n,
}


def score_against_readers(
    kind: AnyKind,
    readings: Readings,
    predictions: Sequence[Any],
    records: Sequence[Any],
    manifest: Manifest,
    options: ScoringOptions,
    metric: str,
) -> list[AgainstReference]:
    """Score a system against each reader, against all readers combined, and, next to each reader, against the other
    readers.

    Parameters
    ----------
    readings : result of :meth:`Readers.readings <reveal_bench.kinds.parts.Readers.readings>`
    predictions, records, manifest, options : inputs of the system's scores
    metric : metric of the macros

    Raises
    ------
    ArgumentError
        If readings are missing, or the metric does not apply.
    """
    if kind.readers is None or not readings:
        raise ArgumentError("readers", "must be used with a dataset folder that contains single readers' annotations")
    by_key = {kind.data.key_of(record): record for record in records}
    setting = _Setting(kind, kind.readers, predictions, by_key, manifest, options, metric)
    names = sorted(readings)
    rows = [setting.against(f"reader {name}", readings[name]) for name in names]
    if len(names) == 1:
        return rows
    everyone = [readings[name] for name in names]
    rows += [setting.against(title, setting.agreed(everyone, share)) for title, share in _SHARES.items()]
    return rows + [_beside(setting, readings, name) for name in names]


def _beside(setting: _Setting, readings: Readings, name: str) -> AgainstReference:
    """Score the system and the reader `name` against the other readers."""
    own = readings[name]
    others = [
        {key: annotation for key, annotation in words.items() if key in own}
        for other, words in readings.items()
        if other != name
    ]
    reference = setting.agreed(others, _SHARES["more than half"])
    placed = setting.against(f"others than {name}", reference)
    if not reference:
        return placed
    answers = [answer for key in reference for answer in setting.readers.answers_of(setting.records[key], own[key])]
    system, reader = setting.rows(setting.predictions, reference), setting.rows(answers, reference)
    if setting.metric not in reader.metrics():  # a reader gives no probabilities
        return placed
    resampling = setting.options.resampling.by("jackknife")
    (macro,) = [c for c in compare(system, reader, resampling, metrics=[setting.metric]) if c.finding == MACRO]
    return replace(placed, reader=name, reader_value=macro.b, difference=macro.estimate, p=macro.p)


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """Answer of one reader for a study and label; `truth` is 0 or 1, and so is `score` if decisions were given."""

    reader: str
    case: str
    patient: str
    finding: str
    score: float
    truth: int


def readings_of(
    kind: AnyKind,
    readings: Readings,
    scored: ScoredFile,
    records: Sequence[Any],
    system: str,
    finding: str | None = None,
) -> tuple[list[ReadingRow], int]:
    """Return (rows, n): the rows of all readers and then of the system, and the number of studies not read by all
    readers.

    Parameters
    ----------
    readings : result of :meth:`Readers.readings <reveal_bench.kinds.parts.Readers.readings>`
    scored : the system's scored predictions
    records : references
    system : name of the system, which must differ from the readers' names
    finding : label of the rows; by default all labels

    Raises
    ------
    ArgumentError
        If the kind has no labels, the label is unknown, a reader has the system's name, or no study was read by all.
    """
    if kind.readers is None or kind.questions.uses_grid:
        rule = "must be a benchmark of findings, because drawings have no truth of 0 or 1"
        raise ArgumentError("folder", rule, f"one of {kind.name}")
    if finding is not None and finding not in scored.rows.groups:
        raise ArgumentError("finding", f"must be one of {', '.join(scored.rows.groups)}", repr(finding))
    if system in readings:
        rule = f"of the system (by default its file's name) must differ from the readers' names: {', '.join(readings)}"
        raise ArgumentError("name", rule, repr(system))
    by_key = {kind.data.key_of(record): record for record in records}
    by_all = [key for key in by_key if all(key in by_record for by_record in readings.values())]
    if not by_all:
        raise ArgumentError("folder", "must have a study that every reader read", f"none of {len(by_key):,}")
    rows: list[ReadingRow] = []
    for name, by_record in readings.items():
        answers = [answer for key in by_all for answer in kind.readers.answers_of(by_key[key], by_record[key])]
        references = [by_key[key] for key in by_all]
        rows += _rows(name, kind.scoring.score(answers, references, scored.manifest, scored.options), by_all, finding)
    return rows + _rows(system, scored.rows, by_all, finding), len(by_key) - len(by_all)


def _rows(reader: str, rows: Any, studies: Sequence[str], finding: str | None) -> list[ReadingRow]:
    kept = set(studies)
    return [
        ReadingRow(
            reader,
            row["study_id"] if finding else f"{row['study_id']} {row['label']}",
            row["patient_id"],
            row["label"],
            row["probability"] if "predicted" not in row else int(row["predicted"]),
            int(row["present"]),
        )
        for row in rows.to_table().to_pylist()
        if row["study_id"] in kept and finding in (None, row["label"])
    ]
