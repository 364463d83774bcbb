"""Define the tables of a curation folder: a frozen dataclass per kind of row, and functions for their Parquet files.

Conventions
-----------
Labels are canonical names in the order of :data:`reveal_bench.findings.REVEAL_LABELS`; the empty tuple means no label,
and None means unknown. Ids are those of the maintainer's own input and stay in the curation folder; ``reveal-bench
build`` later makes the pseudonyms of the published dataset. Source: paper 004 (REVEAL-CXR), sections 2.1 to 2.3.
"""

from __future__ import annotations

import math
import types
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from reveal_bench.findings import REVEAL_LABELS

if TYPE_CHECKING:
    import pyarrow as pa

Labels = tuple[str, ...]

ANSWERS = ("agree_all", "agree_mostly", "disagree")
"""Possible answers of a reader to the suggested labels (paper 004, section 2.2)."""

HALVES = ("released", "holdout")


@dataclass(frozen=True, slots=True)
class Finding:
    """One abnormal finding of a report; `side` is left, right, bilateral or midline; `label` is its label, if any."""

    finding: str
    side: str | None = None
    icd10: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Labels extracted from one report; `status` is "ok" or "quarantined" (then without findings and labels)."""

    study_id: str
    patient_id: str
    findings: tuple[Finding, ...]
    labels: Labels
    status: str
    engine: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """A study that readers will see; `stratum` is its number of suggested labels."""

    study_id: str
    patient_id: str
    labels: Labels
    stratum: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A study in a reader's list; `position` counts from 1 in that reader's own random order."""

    reader: str
    position: int
    study_id: str


@dataclass(frozen=True, slots=True)
class Vote:
    """One reader's answer; `labels` are the labels that the reader wrote down, None if the reader wrote none."""

    study_id: str
    reader: str
    answer: str
    comment: str = ""
    labels: Labels | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """The labels of a vote; None if they are unknown.

    `source` is "agreed" (all suggested labels), "reader" (written down by the reader), "rules" or "model" (derived from
    the comment),
    or "nothing" (no comment, or one that does not mention labels).
    """

    study_id: str
    reader: str
    labels: Labels | None
    source: str


@dataclass(frozen=True, slots=True)
class Consensus:
    """The consensus of a study's readers.

    `n_agree_all` of `n_votes` readers agreed to all `suggested` labels; `labels` are those in more than half of the
    `n_lists` known lists, None with fewer than two lists.
    """

    study_id: str
    patient_id: str
    suggested: Labels
    n_votes: int
    n_agree_all: int
    n_lists: int
    labels: Labels | None


@dataclass(frozen=True, slots=True)
class Selected:
    """A study of the benchmark; `reason` is "less_common" or "most_findings"."""

    study_id: str
    patient_id: str
    labels: Labels
    n_agree_all: int
    reason: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A study of the benchmark and its half, one of :data:`HALVES`; `since` is the version in which it was added.

    `n_agree_all` is None once the labels were corrected, because the readers agreed on the labels before the
    correction.
    """

    study_id: str
    patient_id: str
    labels: Labels
    n_agree_all: int | None
    half: str
    since: str


@dataclass(frozen=True, slots=True)
class Released:
    """A study that was ever released, and its patient; `version` is the first version that released it."""

    study_id: str
    patient_id: str
    version: str


Row = TypeVar("Row")


def in_order(labels: Iterable[str]) -> Labels:
    """Return `labels` once each, in the order of REVEAL_LABELS.

    Raises
    ------
    ValueError
        If a label is not one of the twelve.

    Examples
    --------
    >>> in_order(["COPD", "Aneurysm", "COPD"])
    ('Aneurysm', 'COPD')
    """
    names = set(labels)
    if not names <= set(REVEAL_LABELS):
        raise ValueError(f"labels must be among the twelve, got {', '.join(sorted(names - set(REVEAL_LABELS)))}")
    return tuple(label for label in REVEAL_LABELS if label in names)


def labels_of(findings: Iterable[Finding]) -> Labels:
    """Return the labels of findings, once each, in the order of REVEAL_LABELS."""
    return in_order(finding.label for finding in findings if finding.label is not None)


def tally(numbers: Iterable[int]) -> dict[str, int]:
    """Return the frequency of each number, with the numbers as text in ascending order, for the counts of a step.

    Examples
    --------
    >>> tally([10, 2, 2])
    {'2': 2, '10': 1}
    """
    return {str(number): n for number, n in sorted(Counter(numbers).items())}


def label_counts(lists: Iterable[Labels]) -> dict[str, int]:
    """Return label -> number of lists with it, in the order of REVEAL_LABELS."""
    counts = Counter(label for one in lists for label in one)
    return {label: counts[label] for label in REVEAL_LABELS}


def json_ready(value: Any) -> Any:
    """Return `value` for a JSON file: dataclasses become objects, undefined and infinite numbers null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: json_ready(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(path: Path, rows: Sequence[Any], row: type) -> None:
    """Write rows as Parquet; equal rows give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([pa.field(name, _arrow(kind)) for name, kind in get_type_hints(row).items()])
    table = pa.Table.from_pylist([asdict(one) for one in rows], schema=schema)
    pq.write_table(table, path, compression="zstd")


def read_table(path: Path, row: type[Row]) -> list[Row]:
    """Read rows written by :func:`write_table`.

    Raises
    ------
    ValueError
        If the file has other columns.
    """
    import pyarrow.parquet as pq

    names = [one.name for one in fields(row)]  # type: ignore[arg-type]
    table = pq.read_table(path)
    if table.column_names != names:
        raise ValueError(f"{path.name} must have the columns {', '.join(names)}, got {', '.join(table.column_names)}")
    hints = get_type_hints(row)
    return [row(**{name: _python(value, hints[name]) for name, value in one.items()}) for one in table.to_pylist()]


def _arrow(kind: Any) -> pa.DataType:
    import pyarrow as pa

    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    kind = _without_none(kind)
    if kind in plain:
        return plain[kind]
    if get_origin(kind) is tuple:
        return pa.list_(_arrow(get_args(kind)[0]))
    return pa.struct([pa.field(name, _arrow(inner)) for name, inner in get_type_hints(kind).items()])


def _python(value: Any, kind: Any) -> Any:
    kind = _without_none(kind)
    if value is None:
        return None
    if get_origin(kind) is tuple:
        return tuple(_python(one, get_args(kind)[0]) for one in value)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{name: _python(inner, hints[name]) for name, inner in value.items()})
    return value


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(one for one in get_args(kind) if one is not type(None))
    return kind
