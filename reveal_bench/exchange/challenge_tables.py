"""Read the tables that participants of challenges uploaded, with all answers to an image in one cell.

Conventions
-----------
============================  ========================================================================================
`PredictionString`            in a benchmark of one finding, RSNA's (2018): confidence, x, y, width, height of each box;
                              otherwise VinBigData's (2021): class, confidence, xmin, ymin, xmax, ymax. Boxes are in
                              pixels. Empty if nothing is marked; the class "No finding" marks nothing
`Target`                      of RSNA's labels, beside x, y, width, height: 1 for a box, 0 for an image without one
`EncodedPixels`               SIIM-ACR's (2019): pairs of gap and length, column by column, a row per mask; -1 if
                              nothing is marked
============================  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from reveal_bench.arguments import ArgumentError
from reveal_bench.predictions.tables import parse_number
from reveal_bench.words import count_text

BOXES, MASK, TARGET = "PredictionString", "EncodedPixels", "Target"
_NO_SCORE = "have no confidence: each got the score 1"
VINBIGDATA_CLASSES = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD", "Infiltration",
    "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax",
    "Pulmonary fibrosis", "No finding",
)  # fmt: skip
"""Classes of the challenge of 2021, whose numbers count from 0."""
NO_FINDING = "no finding"
"""Class of images without a mark, in lower case."""
_Cell = tuple[dict[str, Any], str]
"""Columns beside a cell, and its text."""


@dataclass(frozen=True)
class ChallengeRows:
    """Rows with one box or mask each, and the rows of images on which nothing is marked.

    Attributes
    ----------
    rows : rows with `finding`, and `score` and `bbox` (xywh), or the text of a mask as `EncodedPixels`
    unmarked : rows without these fields
    categories : number of a class -> its name
    notes : sentences on how cells were read
    """

    rows: list[dict[str, Any]]
    unmarked: list[dict[str, Any]]
    categories: Mapping[int, str]
    notes: list[str]


def challenge_rows(
    rows: Sequence[Mapping[str, Any]], findings: Sequence[str], categories: Mapping[int, str], *, separate: bool
) -> ChallengeRows | None:
    """Return the marks in the cells of a challenge's table; None for other tables.

    Parameters
    ----------
    findings : findings of the benchmark
    categories : number of a class -> its name; VinBigData's classes if empty
    separate : whether several masks of an image stay separate, each with the score 1, or are one mask

    Raises
    ------
    ArgumentError
        If a cell breaks the format, or a table of masks is for a benchmark of several findings.
    """
    names = {name for row in rows for name in row}
    columns = (BOXES, MASK, *((TARGET,) if {"x", "y", "width", "height"} <= names else ()))
    column = next((name for name in columns if name in names), None)
    if column is None:
        return None
    if column != BOXES and len(findings) != 1:
        raise ArgumentError("source", f"must have one finding in its benchmark to have `{column}`", len(findings))
    cells = [
        (
            {name: value for name, value in row.items() if name != column},
            str("" if row.get(column) is None else row[column]).strip(),
        )
        for row in rows
    ]
    if column == BOXES:
        result = _boxes(cells, findings, categories)
    else:
        result = (_masks if column == MASK else _targets)(cells, findings[0], separate)
    if not result.rows:
        raise ArgumentError("source", f"must have a mark in a row of `{column}`", "none")
    if result.unmarked:
        result.notes.append(f"{count_text(len(result.unmarked), 'row')} without a mark")
    return result


def _masks(cells: Sequence[_Cell], finding: str, separate: bool) -> ChallengeRows:
    notes = [f"`{MASK}` read as pairs of gap and length, column by column"]
    unmarked = [own for own, text in cells if text == "-1"]
    marked = [(own, text) for own, text in cells if text != "-1"]
    if separate:
        notes.append(f"masks {_NO_SCORE}")
        rows = [{**own, "finding": finding, "score": 1.0, MASK: [text]} for own, text in marked]
        return ChallengeRows(rows, unmarked, {}, notes)
    together: dict[tuple[str, ...], dict[str, Any]] = {}
    for own, text in marked:
        row = together.setdefault(tuple(map(str, own.values())), {**own, "finding": finding, MASK: []})
        row[MASK].append(text)
    return ChallengeRows(list(together.values()), unmarked, {}, notes)


def _targets(cells: Sequence[_Cell], finding: str, separate: bool) -> ChallengeRows:
    notes = [f"`{TARGET}` read as 1 for a row with a box, 0 for an image without", *[f"boxes {_NO_SCORE}"] * separate]
    result = ChallengeRows([], [], {}, notes)
    for number, (own, text) in enumerate(cells, start=1):
        if text not in ("0", "1"):
            raise ArgumentError("source", f"must have 0 or 1 as `{TARGET}`", f"{text!r} in row {number}")
        if text == "1":
            result.rows.append({**own, "finding": finding} | ({"score": 1.0} if separate else {}))
        else:
            result.unmarked.append({name: value for name, value in own.items() if value is not None})
    return result


def _boxes(cells: Sequence[_Cell], findings: Sequence[str], categories: Mapping[int, str]) -> ChallengeRows:
    only = findings[0] if len(findings) == 1 else None
    form = "confidence, x, y, width, height" if only else "class, confidence, xmin, ymin, xmax, ymax"
    notes = [f"`{BOXES}` read as {form} of each box, in pixels"]
    if not only and not categories:
        categories = dict(enumerate(VINBIGDATA_CLASSES))
        notes.append("class numbers read as VinBigData's of 2021, from 0")
    result = ChallengeRows([], [], categories, notes)
    n_without = 0
    for number, (own, text) in enumerate(cells, start=1):
        every = list(_boxes_of_cell(text.split(), only, number))
        marks = [
            mark for mark in every if str(categories.get(mark["finding"], mark["finding"])).casefold() != NO_FINDING
        ]
        n_without += len(every) - len(marks)
        result.rows.extend({**own, **mark} for mark in marks)
        result.unmarked.extend([] if marks else [own])
    if n_without:
        notes.append(f"{count_text(n_without, 'mark')} of no finding left out; docs/sources.md has their score")
    return result


def _boxes_of_cell(tokens: Sequence[str], only: str | None, number: int) -> Iterator[dict[str, Any]]:
    width = 5 if only else 6
    if len(tokens) % width:
        rule = f"must have {width} values for each box in `{BOXES}`"
        raise ArgumentError("source", rule, f"{len(tokens)} in row {number}")
    for start in range(0, len(tokens), width):
        *named, score, x, y, c, d = values = [cast(Any, parse_number(token)) for token in tokens[start : start + width]]
        if not all(isinstance(value, int | float) for value in values[-5:]):
            rule = f"must have numbers for each box in `{BOXES}`"
            raise ArgumentError("source", rule, f"{' '.join(tokens[start : start + width])!r} in row {number}")
        box = [x, y, c, d] if only else [x, y, c - x, d - y]
        yield {"finding": only or named[0], "score": score, "bbox": box}
