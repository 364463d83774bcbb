"""Strict parsers of the task file and the ratings file of a tasks benchmark.

The original tasks and ratings of paper 001 are not public, so these are a user's own files with the following columns.
No picture is read here.

``tasks.csv`` (or .tsv, .xlsx, .json, .jsonl; see :mod:`reveal_bench.tables`), one row per task:

=====================  ==========================================================================================
column                 meaning
=====================  ==========================================================================================
task_id *              unique name of the task
study_id *             study of MIMIC-CXR-JPG, "50414267" or "s50414267"
prior_study_id         an earlier study of the same patient that the task compares with
subject_id             patient of the study; checked against the tree
prompt *               what the model is asked
category *             broad_abnormality, diagnosis_support or measurement_temporal, or their names in paper 001
indication             what the referring physician wrote
temporal               Yes or No: the task needs the prior study. Yes without prior_study_id is an error, and so is No
                       with one; where it is blank, a task with a prior study is temporal
tag_...                eight columns, such as tag_laterality. Values are separated by a dash with blanks around it
                       (" - " or an en dash), so "Follow-up" is one value; "None" is not a value; "Multiple" is kept.
                       In json also a list
clinical_relevance     scores of the question, whole numbers from 1 to 5; answerability, complexity and clarity too
risk_flag              Yes or No
total                  the four scores together. Not stored. The source does not say how its "Conclusion" is formed;
                       where it is not the sum of the four scores, a warning says so
requires_boxes         Yes or No (No without this column): the answer must localize
reference_answer       text
reference_boxes        JSON: [{"label": "...", "bbox_xywh": [x, y, width, height], "image_id": "<dicom_id>"}, ...], in
                       pixels of that image; image_id may be left out if the task has one image only
=====================  ==========================================================================================

``ratings.csv``, one row per answer and reader: task_id *, model *, reader *, and process, execution, synthesis,
language, image_content, image_style, whole numbers from 1 to 5 or blank. A column `content` must be the smallest of
process, execution and synthesis; it is checked but not stored.

Files are recognised by their names. :mod:`reveal_bench.tables` describes how each format is read. In column names,
case, blanks, underscores, hyphens and slashes do not matter, and aliases are accepted. A blank cell, ``null`` and a
missing key all mean that the row has no value. A warning lists unknown columns, each with the most similar known
column.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from reveal_bench import tables
from reveal_bench.findings import nearest_names
from reveal_bench.kinds.localization.records import Box
from reveal_bench.kinds.tasks.records import CATEGORIES, CRITERIA, QUESTION_SCORES, TAGS, Rating, ReferenceBox
from reveal_bench.sources.source import BuildError, DownloadProblems, Problem
from reveal_bench.tables import TABLE_SUFFIXES, InputTable

SUFFIXES = TABLE_SUFFIXES
_LIMITS = tables.TableLimits(rows=250_000)


class Row(NamedTuple):
    """A row: its number (of the line, row of a sheet or entry of a list), and its cells by canonical column."""

    line: int
    cells: dict[str, str | list[Any]]


@dataclass
class CanonicalTable:
    """The rows of a table, and the canonical names of its columns."""

    file: str
    rows: list[Row] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)


def find_tables(folder: Path, stem: str) -> list[Path]:
    """Return the files of a folder that are named `stem` with one of :data:`SUFFIXES`; case does not matter."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.stem.casefold() == stem and path.suffix.casefold() in SUFFIXES
    )


def fold(name: object) -> str:
    """Return a name in lower case, with a space for each run of blanks, underscores, hyphens and slashes.

    Examples
    --------
    >>> fold("Complexity/Reasoning"), fold(" task-ID ")
    ('complexity reasoning', 'task id')
    """
    return " ".join(re.split(r"[\W_]+", str(name).casefold())).strip()


def read_table(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    required: Iterable[str],
    problems: list[Problem],
    warnings: list[str],
) -> CanonicalTable:
    """Return the rows of a table, under the canonical names of its columns.

    Parameters
    ----------
    path : a file with one of :data:`SUFFIXES`
    columns : dict from canonical name to aliases
    required : canonical names of required columns; if one is missing, no rows are returned
    problems, warnings : lists to which problems and warnings about unknown columns are added
    """
    table = CanonicalTable(path.name)
    faults = DownloadProblems()
    try:
        raw = tables.scan_table(path, path.name, faults, limits=_LIMITS)
    except ImportError as error:
        raw = None
        faults = DownloadProblems([Problem(path.name, None, "file", "must be readable", str(error))])
    if raw is None:  # the file is unreadable, so its problems are not problems of single lines
        for p in faults:
            value = p.value if p.row is None else f"{p.value} in line {p.row}"
            problems.append(replace(p, row=None, value=value))
        return table
    problems += faults
    known = _canonical(raw, columns, problems, warnings)
    table.columns = set(known.values())
    lacking = [name for name in required if name not in table.columns]
    got = ", ".join(map(repr, raw.columns))
    problems += [Problem(path.name, None, name, "must be a column", got) for name in lacking]
    for row in raw.rows if not lacking else ():
        cells = {known[name]: row.cell(name) for name, text in row.items() if name in known and text}
        if any(row.values()):
            table.rows.append(Row(row.number, cells))
    return table


def _canonical(
    raw: InputTable, columns: Mapping[str, Sequence[str]], problems: list[Problem], warnings: list[str]
) -> dict[str, str]:
    """Return a dict from column name in the table to canonical name."""
    canonical = {fold(name): column for column, aliases in columns.items() for name in (column, *aliases)}
    known: dict[str, str] = {}
    for head in raw.columns:
        column = canonical.get(fold(head))
        if column is None:
            warnings.append(f"{raw.file}: the column {_named(head, canonical)} is unknown and is ignored")
        elif column in known.values():
            first = next(other for other, other_column in known.items() if other_column == column)
            problems.append(Problem(raw.file, None, column, "must be one column", f"{first!r} and {head!r}"))
        else:
            known[head] = column
    return known


TASK_COLUMNS: dict[str, tuple[str, ...]] = {
    "task_id": ("task",),
    "study_id": ("study", "mimic_study_id"),
    "prior_study_id": ("prior_study", "prior"),
    "subject_id": ("subject", "patient_id"),
    "prompt": ("question", "task_prompt"),
    "category": (),
    "indication": (),
    "temporal": (),
    **{f"tag_{name}": (name,) for name in TAGS},
    "clinical_relevance": (),
    "answerability": ("answerability_from_image",),
    "complexity": ("complexity_reasoning",),
    "clarity": ("clarity_precision",),
    "risk_flag": ("risk",),
    "total": ("conclusion",),
    "requires_boxes": ("boxes_required",),
    "reference_answer": (),
    "reference_boxes": (),
}
RATING_COLUMNS: dict[str, tuple[str, ...]] = {
    "task_id": ("task",),
    "model": (),
    "reader": ("rater",),
    **dict.fromkeys(CRITERIA, ()),
    "content": (),
}
CATEGORY_NAMES = {
    "broad_abnormality": ("broad abnormality query", "broad abnormality queries", "broad abnormalities"),
    "diagnosis_support": ("diagnostic support", "high level diagnostic reasoning", "diagnostic reasoning"),
    "measurement_temporal": (
        "measurement", "measurements", "temporal comparison", "measurements and temporal comparisons",
        "measurement and temporal comparison", "temporal measurement",
    ),
}  # fmt: skip
"""Aliases of the categories, folded: their names in paper 001 (sections 3.1 and 6), also in the singular."""
YES, NO = {"yes", "true", "y", "1"}, {"no", "false", "n", "0"}

_DASH = re.compile(r"\s+[-\u2013]\s+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CATEGORY = {fold(name): category for category in CATEGORIES for name in (category, *CATEGORY_NAMES[category])}


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A row of the task file; values that refer to pictures are not checked yet."""

    line: int
    task_id: str
    study_id: str
    prior_study_id: str | None
    subject_id: str | None
    prompt: str
    category: str
    indication: str | None
    temporal: bool
    tags: dict[str, tuple[str, ...]]
    question_scores: dict[str, int | None] | None
    risk_flag: bool | None
    requires_boxes: bool
    reference_answer: str | None
    reference_boxes: tuple[ReferenceBox, ...]


@dataclass(frozen=True, slots=True)
class TaskRatingRow:
    """A row of the ratings file."""

    line: int
    rating: Rating


def _named(text: str, known: Mapping[str, str]) -> str:
    """Return `text` for a message, with the canonical name of the most similar folded text in `known`."""
    near = nearest_names(text, known, most=1)
    return f"{text!r}" + (f" (nearest: {known[near[0]]!r})" if near else "")


class _RowCells:
    """The cells of a row; a cell that breaks a rule is noted as a problem of the row."""

    def __init__(self, file: str, row: Row, problems: list[Problem]) -> None:
        self.file, self.line, self.cells, self.problems = file, row.line, row.cells, problems

    def refuse(self, field: str, rule: str, value: object) -> None:
        self.problems.append(Problem(self.file, self.line, field, rule, str(value)[:120]))

    def text(self, name: str, *, required: bool = False) -> str | None:
        value = self.cells.get(name)
        if value is None:
            if required:
                self.refuse(name, "must not be blank", "nothing")
            return None
        if not isinstance(value, str):
            self.refuse(name, "must be text", f"{value!r}")
            return None
        if _CONTROL.search(value):
            self.refuse(name, "must not contain control characters", repr(value))
        return value

    def name(self, name: str) -> str:
        """Return a required text of one line."""
        text = self.text(name, required=True) or ""
        if "\n" in text or "\r" in text:
            self.refuse(name, "must not contain line breaks", repr(text))
        return text

    def number(self, name: str) -> int | None:
        """Return a whole number from 1 to 5."""
        text = self.text(name)
        if text is None or re.fullmatch(r"[1-5](\.0+)?", text):
            return None if text is None else int(text[0])
        self.refuse(name, "must be a whole number from 1 to 5", repr(text))
        return None

    def flag(self, name: str) -> bool | None:
        text = self.text(name)
        if text is None or text.casefold() in YES | NO:
            return None if text is None else text.casefold() in YES
        self.refuse(name, "must be Yes or No", repr(text))
        return None

    def mimic_id(self, name: str, letter: str, *, required: bool = False) -> str | None:
        """Return the digits of a MIMIC id, which may be written with its letter, such as "s50414267"."""
        text = self.text(name, required=required)
        match = re.fullmatch(rf"{letter}?(\d+)(\.0)?", text or "", re.IGNORECASE | re.ASCII)
        if text is not None and match is None:
            self.refuse(name, f'must be digits, with or without "{letter}" before them', repr(text))
        return match[1] if match else None

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of a tag; "None" and a blank cell give ()."""
        value = self.cells.get(name)
        parts = value if isinstance(value, list) else _DASH.split(self.text(name) or "none")
        if not all(isinstance(part, str) and part.strip() for part in parts):
            self.refuse(name, "must be text or a list of texts", repr(value))
            return ()
        values = tuple(part.strip() for part in parts)
        none = [part for part in values if part.casefold() == "none"]
        if none and len(values) > 1:
            self.refuse(name, '"None" must be alone', repr(value))
        return () if none else values

    def category(self) -> str:
        text = self.text("category", required=True)
        category = _CATEGORY.get(fold(text or ""))
        if text is not None and category is None:
            self.refuse("category", f"must be one of {', '.join(CATEGORIES)}", _named(text, _CATEGORY))
        return category or ""

    def boxes(self) -> tuple[ReferenceBox, ...]:
        value: Any = self.cells.get("reference_boxes", [])
        rule = 'must be a JSON list of {"label", "bbox_xywh", "image_id"}'
        if isinstance(value, str):
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(value)
        if not isinstance(value, list):
            self.refuse("reference_boxes", rule, repr(value))
            return ()
        boxes = []
        for entry in value:
            box = _box(entry)
            if box is None:
                self.refuse("reference_boxes", f"{rule} with 4 finite numbers, width and height above 0", repr(entry))
            else:
                boxes.append(box)
        return tuple(boxes)


def _box(entry: Any) -> ReferenceBox | None:
    if not isinstance(entry, dict) or not {"label", "bbox_xywh"} <= entry.keys() <= {"label", "bbox_xywh", "image_id"}:
        return None
    label, box, image_id = entry["label"], entry["bbox_xywh"], entry.get("image_id")
    if not (isinstance(label, str) and label.strip() and isinstance(image_id, str | None)):
        return None
    if not (isinstance(box, list) and len(box) == 4 and all(type(side) in (int, float) for side in box)):
        return None
    try:
        xywh: Box = (float(box[0]), float(box[1]), float(box[2]), float(box[3]))
    except OverflowError:
        return None
    if not all(math.isfinite(side) for side in xywh) or min(xywh[2:]) <= 0:
        return None
    return ReferenceBox(label.strip(), xywh, image_id and image_id.strip().removesuffix(".jpg"))


def parse_tasks(path: Path, problems: list[Problem], warnings: list[str]) -> list[TaskLine]:
    """Return the tasks of a file, in order; a value with a problem is replaced by a blank."""
    table = read_table(path, TASK_COLUMNS, ("task_id", "study_id", "prompt", "category"), problems, warnings)
    tasks = [_task(_RowCells(table.file, row, problems)) for row in table.rows]
    _check_unique(table.file, [(task.line, (task.task_id,)) for task in tasks], "task_id", problems)
    warnings += _wrong_totals(table, tasks)
    if table.rows and "requires_boxes" not in table.columns:
        warnings.append(f"{table.file}: the column requires_boxes is missing, so no task asks for boxes")
    return tasks


def _task(cells: _RowCells) -> TaskLine:
    prior = cells.mimic_id("prior_study_id", "s")
    temporal = cells.flag("temporal")
    if temporal and prior is None:
        cells.refuse("prior_study_id", "must name a study if `temporal` is Yes", "nothing")
    if temporal is False and prior is not None:
        cells.refuse("temporal", "must be Yes or blank if there is a prior study", "No")
    scores = {name: cells.number(name) for name in QUESTION_SCORES}
    study = cells.mimic_id("study_id", "s", required=True)
    if study is not None and study == prior:
        cells.refuse("prior_study_id", "must differ from `study_id`", prior)
    return TaskLine(
        line=cells.line,
        task_id=cells.name("task_id"),
        study_id=study or "",
        prior_study_id=prior,
        subject_id=cells.mimic_id("subject_id", "p"),
        prompt=cells.text("prompt", required=True) or "",
        category=cells.category(),
        indication=cells.text("indication"),
        temporal=prior is not None,
        tags={name: cells.values(f"tag_{name}") for name in TAGS},
        question_scores=scores if any(score is not None for score in scores.values()) else None,
        risk_flag=cells.flag("risk_flag"),
        requires_boxes=bool(cells.flag("requires_boxes")),
        reference_answer=cells.text("reference_answer"),
        reference_boxes=cells.boxes(),
    )


def _wrong_totals(table: CanonicalTable, tasks: list[TaskLine]) -> list[str]:
    """Return a warning that counts totals that are not the sum of the four scores, or []."""
    wrong = []
    for row, task in zip(table.rows, tasks, strict=True):
        total = row.cells.get("total")
        scores = list((task.question_scores or {}).values())
        if total is not None and (None in scores or total != str(sum(score or 0 for score in scores))):
            wrong.append(f"line {row.line}: {total} beside {', '.join(str(s) for s in scores) or 'no scores'}")
    if not wrong:
        return []
    return [
        f"{table.file}: `total` is not the sum of the four scores in {len(wrong):,} of {len(tasks):,} rows, first "
        f"{wrong[0]} (totals are not stored; ReXecution does not define them)"
    ]


def parse_ratings(path: Path, problems: list[Problem], warnings: list[str]) -> list[TaskRatingRow]:
    """Return the ratings of a file, in order; a value with a problem is replaced by a blank."""
    table = read_table(path, RATING_COLUMNS, ("task_id", "model", "reader"), problems, warnings)
    ratings = [_rating(_RowCells(table.file, row, problems)) for row in table.rows]
    keys = [(line.line, (line.rating.task_id, line.rating.model, line.rating.reader)) for line in ratings]
    _check_unique(table.file, keys, "task_id, model, reader", problems)
    for name in ("model", "reader"):
        _check_spelling(table.file, [(line.line, getattr(line.rating, name)) for line in ratings], name, problems)
    absent = [name for name in CRITERIA if name not in table.columns]
    if ratings and absent:
        warnings.append(f"{table.file}: the columns {', '.join(absent)} are missing, so these scores are null")
    n_empty = sum(all(getattr(line.rating, name) is None for name in CRITERIA) for line in ratings)
    if n_empty:
        warnings.append(f"{table.file}: {n_empty:,} ratings have no score at all and are kept")
    return ratings


def _rating(cells: _RowCells) -> TaskRatingRow:
    scores = {name: cells.number(name) for name in CRITERIA}
    rating = Rating(cells.name("task_id"), cells.name("model"), cells.name("reader"), **scores)
    content = cells.number("content")
    if content is not None and content != rating.content:
        expected = "blank, because one of them is blank" if rating.content is None else rating.content
        cells.refuse("content", f"must be the smallest of process, execution and synthesis ({expected})", content)
    return TaskRatingRow(cells.line, rating)


def _check_unique(file: str, keys: Iterable[tuple[int, tuple[str, ...]]], field: str, problems: list[Problem]) -> None:
    first: dict[tuple[str, ...], int] = {}
    for line, key in keys:
        if key in first and all(key):
            value = f"{', '.join(key)}, also line {first[key]}"
            problems.append(Problem(file, line, field, "must be unique", value))
        first.setdefault(key, line)


def _check_spelling(file: str, names: Iterable[tuple[int, str]], field: str, problems: list[Problem]) -> None:
    """Note names that differ only in case, blanks or hyphens from the name in an earlier row.

    They would count as a different model or reader.
    """
    first: dict[str, str] = {}
    for line, name in names:
        known = first.setdefault(re.sub(r"[\s_-]+", " ", name.casefold()), name)
        if known != name:
            rule = "must be spelt the same in all rows"
            problems.append(Problem(file, line, field, rule, f"{name!r} beside {known!r}"))


def read_ratings_table(path: Path) -> list[Rating]:
    """Return the ratings of a table outside a download; :func:`parse_ratings` explains its format.

    Raises
    ------
    BuildError
        With all problems of the table.
    """
    problems = DownloadProblems()
    ratings = parse_ratings(path, problems, [])
    if problems:
        raise BuildError(problems)
    return [line.rating for line in ratings]
