"""The board's file of answers that wait for readers, read back.

``reveal-leaderboard admin answers`` writes it (:func:`reveal_leaderboard.reading.answers_csv`): CSV in UTF-8 with the
columns of :data:`COLUMNS`, random ids of answers, and nothing of models and teams. Boxes are a JSON list of objects
with image_id, label and box ([x, y, width, height] in pixels of the image). Texts that the file keeps from being
formulas in a spreadsheet become what they were (:func:`as_written`).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench.builders.source import BuildError, Problem
from reveal_leaderboard.exports import harmless

__all__ = ["COLUMNS", "Given", "as_written", "read_answers"]

COLUMNS = ("answer_id", "task_id", "prompt", "answer", "boxes")
MAX_CELL = 1 << 24
_START = r"[=+\-@|\uff1d\uff0b\uff0d\uff20\uff5c]"
_GUARD = re.compile(rf"^'(?=\s*{_START}|[\t\r\n])")
_GUARD_AFTER_SEPARATOR = re.compile(rf"([;,\t\r\n|]\s*)'(?={_START})")


@dataclass(frozen=True, slots=True)
class Given:
    """An answer as the board's file has it; `line` is that of the file."""

    answer_id: str
    task_id: str
    answer: str
    boxes: tuple[Mapping[str, Any], ...]
    line: int


def as_written(text: str) -> str:
    """A cell of the board's file without the apostrophes that keep spreadsheet programs from taking it for a formula.

    Texts are taken back where that makes the same cell again; an apostrophe that its writer set at such a place cannot
    be told from the board's, and is lost.

    >>> as_written("'=SUM(1)"), as_written("'tis"), as_written("Heart;'-5 mm")
    ('=SUM(1)', "'tis", 'Heart;-5 mm')
    """
    found = _GUARD_AFTER_SEPARATOR.sub(r"\1", _GUARD.sub("", text))
    return found if harmless(found) == text else text


def read_answers(path: Path) -> list[Given]:
    """The answers of the board's file, in its order.

    Raises
    ------
    BuildError
        With everything that is wrong with it.
    OSError
        If it cannot be read.
    """
    before = csv.field_size_limit(MAX_CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                value = ", ".join(map(str, rows.fieldnames or ())) or "none"
                raise BuildError([Problem(path.name, 1, "columns", f"must be {','.join(COLUMNS)}", value[:100])])
            numbered = [(rows.line_num, row) for row in rows]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BuildError([Problem(path.name, None, "file", "must be CSV in UTF-8", str(error)[:100])]) from None
    finally:
        csv.field_size_limit(before)
    problems: list[Problem] = []
    found: dict[str, Given] = {}
    for number, row in numbered:
        try:
            one = _given(row, number)
            if one.answer_id in found:
                raise _CellError("answer_id", "must be there once", repr(one.answer_id))
            found[one.answer_id] = one
        except _CellError as error:
            problems.append(Problem(path.name, number, *error.fault))
    if problems or not found:
        raise BuildError(problems or [Problem(path.name, None, "lines", "must hold an answer", "none")])
    return list(found.values())


class _CellError(ValueError):
    """Field, rule and value of a cell that is wrong."""

    def __init__(self, field: str, rule: str, value: str) -> None:
        super().__init__(field)
        self.fault = (field, rule, value[:100])


def _given(row: Mapping[str | None, Any], number: int) -> Given:
    if None in row or None in row.values():
        raise _CellError("cells", f"must be {len(COLUMNS)}", "more" if None in row else "fewer")
    answer_id, task_id, _, answer, boxes = (as_written(row[name]) for name in COLUMNS)
    for name, value in (("answer_id", answer_id), ("task_id", task_id), ("answer", answer)):
        if not value.strip():
            raise _CellError(name, "must not be blank", "a blank cell")
    try:
        drawn = json.loads(boxes) if boxes.strip() else []
    except (ValueError, RecursionError):
        raise _CellError("boxes", "must be JSON", repr(boxes)) from None
    if not isinstance(drawn, list) or not all(_is_box(box) for box in drawn):
        raise _CellError("boxes", "must be boxes with image_id, label and box (x, y, width, height)", repr(boxes))
    return Given(answer_id, task_id, answer, tuple(drawn), number)


def _is_box(box: Any) -> bool:
    if not isinstance(box, dict) or set(box) != {"image_id", "label", "box"}:
        return False
    texts, sides = (box["image_id"], box["label"]), box["box"]
    is_drawn = isinstance(sides, list) and len(sides) == 4 and all(type(side) in (int, float) for side in sides)
    return all(isinstance(text, str) for text in texts) and is_drawn and all(abs(side) < 1e9 for side in sides)
