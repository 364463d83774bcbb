"""The canonical form: JSON lines, one prediction per line. Its fields, its reader and its writer.

Conventions
-----------
A reader of any format yields :class:`Entry` objects whose `fields` have the names and shapes of the canonical form, so
that one set of checks serves all formats. What a reader cannot turn into them it reports to the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from reveal_bench.predictions.report import ProblemLog
from reveal_bench.predictions.source import Limits
from reveal_bench.predictions.strict_json import JsonError, parse_json
from reveal_bench.records import LocalizationPrediction
from reveal_bench.study_records import FindingsPrediction

__all__ = ["FIELDS", "GEOMETRIES", "Entry", "check_entries", "findings_to_jsonl", "predictions_to_jsonl", "read_jsonl"]

Checked = TypeVar("Checked")

GEOMETRIES = ("point", "points", "cell", "box", "rle", "polygons")
FIELDS = ("image_id", "finding", *GEOMETRIES, "score")


@dataclass(frozen=True, slots=True)
class Entry:
    """One prediction as read, unchecked.

    Attributes
    ----------
    line : line, row or 1-based entry of the file
    fields : canonical name -> value of any JSON type
    path : where it stands in a JSON document, such as ``patient1_study1_view1_frontal.Edema``
    """

    line: int
    fields: Mapping[str, Any]
    path: str = ""


def check_entries(entries: Iterable[Entry], check: Callable[[Entry], Checked], log: ProblemLog) -> list[Checked]:
    """What `check` makes of each entry, until reading is given up."""
    checked = []
    for entry in entries:
        checked.append(check(entry))
        if log.stopped:
            break
    return checked


def read_jsonl(data: bytes, limits: Limits, log: ProblemLog) -> Iterator[Entry]:
    """Yield the predictions of a JSONL file; lines that are none are reported. Blank lines are skipped."""
    if data.count(b"\n") > limits.entries:
        log.refuse("entries", f"a file may have at most {limits.entries} lines", value=data.count(b"\n"))
        return
    for number, line in enumerate(data.split(b"\n"), start=1):
        if len(line) > limits.line_bytes:
            log.error(
                "line-length", f"a line must have at most {limits.line_bytes} bytes", line=number, value=len(line)
            )
        elif line and not line.isspace():
            entry = _entry_of_line(line, number, log)
            if entry is not None:
                yield entry
        if log.stopped:
            return


def _entry_of_line(line: bytes, number: int, log: ProblemLog) -> Entry | None:
    try:
        value, duplicate_keys = parse_json(line)
    except JsonError as fault:
        log.error(fault.rule, str(fault), line=number, hint=fault.hint)
        return None
    if not isinstance(value, dict):
        hint = 'such as {"image_id": "...", "finding": "...", "point": [x, y]}'
        log.error("not-an-object", "a line must hold one JSON object", line=number, value=value, hint=hint)
        return None
    for key in duplicate_keys:
        log.error("duplicate-key", "a key may stand only once in an object", line=number, field=key, value=key)
    return Entry(number, value)


def predictions_to_jsonl(predictions: Iterable[LocalizationPrediction]) -> str:
    r"""The canonical text of `predictions`, in their order; the same predictions always give the same bytes.

    Whole coordinates are written without a decimal point.

    Examples
    --------
    >>> predictions_to_jsonl([LocalizationPrediction("a", "Edema", points=((3.0, 4.5),), score=0.5)])
    '{"image_id": "a", "finding": "Edema", "point": [3, 4.5], "score": 0.5}\n'
    """
    return "".join(json.dumps(_line_fields(prediction)) + "\n" for prediction in predictions)


def findings_to_jsonl(predictions: Iterable[FindingsPrediction]) -> str:
    r"""The canonical text of findings-type `predictions`: labels, or probabilities of all labels, a study a line.

    Examples
    --------
    >>> findings_to_jsonl([FindingsPrediction("s", ("COPD",)), FindingsPrediction("t", None, {"COPD": 0.25})])
    '{"study_id": "s", "labels": ["COPD"]}\n{"study_id": "t", "probabilities": {"COPD": 0.25}}\n'
    """
    lines = []
    for prediction in predictions:
        answer = (
            {"labels": list(prediction.labels)}
            if prediction.labels is not None
            else {"probabilities": dict(prediction.probabilities or {})}
        )
        lines.append(json.dumps({"study_id": prediction.study_id, **answer}) + "\n")
    return "".join(lines)


def _line_fields(prediction: LocalizationPrediction) -> dict[str, Any]:
    fields: dict[str, Any] = {"image_id": prediction.image_id, "finding": prediction.finding}
    points = [[_plain(x), _plain(y)] for x, y in prediction.points]
    if len(points) == 1:
        fields["point"] = points[0]
    elif points:
        fields["points"] = points
    if prediction.cell is not None:
        fields["cell"] = prediction.cell
    if prediction.box is not None:
        fields["box"] = [_plain(side) for side in prediction.box]
    if prediction.mask is not None:
        fields["rle"] = {"size": list(prediction.mask.size), "counts": prediction.mask.counts}
    if prediction.score is not None:
        fields["score"] = _plain(prediction.score)
    return fields


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else float(value)
