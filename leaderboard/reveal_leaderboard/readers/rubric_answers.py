"""Read a file of answers to open tasks for the rubric form, and copy the tasks' images.

Prompts and images are from the public dataset folder of the tasks. The images are copied into the data folder under
their SHA-256, so that the server opens neither the dataset folder nor the file of answers. Boxes are converted to
fractions of width and height, from the upper left.

``reveal-leaderboard admin answers`` writes the file of answers that wait for readers
(:func:`reveal_leaderboard.boards.reading.answers_csv`): CSV in UTF-8 with the columns of :data:`COLUMNS`, random ids of
answers, and no models or teams. Boxes are a JSON list of objects with image_id, label and box ([x, y, width, height] in
pixels of the image). Texts that were escaped against spreadsheet formulas are restored (:func:`as_written`).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.curation.assign import draw_assignment
from reveal_bench.files import write_whole
from reveal_bench.findings import hint
from reveal_bench.kinds.folder import read_folder_info, split_shards
from reveal_bench.kinds.images import VIEWS
from reveal_bench.sources.source import BuildError, Problem
from reveal_bench.tables import TableRow, open_table
from reveal_leaderboard.boards.exports import harmless
from reveal_leaderboard.readers.preparation import PreparationError, put
from reveal_leaderboard.readers.store import Item, ItemImage, Readings

COLUMNS = ("answer_id", "task_id", "answer", "boxes")
_START = r"[=+\-@|\uff1d\uff0b\uff0d\uff20\uff5c]"
_GUARD = re.compile(rf"^'(?=\s*{_START}|[\t\r\n])")
_GUARD_AFTER_SEPARATOR = re.compile(rf"([;,\t\r\n|]\s*)'(?={_START})")


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """An answer in the board's file; `line` is the line number."""

    answer_id: str
    task_id: str
    answer: str
    boxes: tuple[Mapping[str, Any], ...]
    line: int


def as_written(text: str) -> str:
    """Return a cell of the board's file without the apostrophes that escape spreadsheet formulas.

    A text is restored if escaping the result gives the same cell again. An apostrophe that the answer's author wrote
    before a formula character cannot be distinguished from the board's apostrophe, and is lost.

    >>> as_written("'=SUM(1)"), as_written("'tis"), as_written("Heart;'-5 mm")
    ('=SUM(1)', "'tis", 'Heart;-5 mm')
    """
    unguarded = _GUARD_AFTER_SEPARATOR.sub(r"\1", _GUARD.sub("", text))
    return unguarded if harmless(unguarded) == text else text


def read_answers(path: Path) -> list[AnswerRow]:
    """Return the answers of the board's file, in the order of the file.

    Raises
    ------
    BuildError
        If the file breaks a rule; the error lists every problem.
    OSError
        If the file cannot be read.
    """
    problems: list[Problem] = []
    with open_table(path, problems=problems, columns=COLUMNS, verbatim=True) as table:
        rows = list(table)
    if table.is_broken:
        raise BuildError(problems)
    by_id: dict[str, AnswerRow] = {}
    for row in rows:
        try:
            one = _answer_row(row)
            if one.answer_id in by_id:
                raise _CellError("answer_id", "must occur only once", repr(one.answer_id))
            by_id[one.answer_id] = one
        except _CellError as error:
            problems.append(row.problem(*error.fault))
    if problems or not by_id:
        raise BuildError(problems or [Problem(path.name, None, "lines", "must contain an answer", "none")])
    return list(by_id.values())


class _CellError(ValueError):
    """An invalid cell: field, rule and value."""

    def __init__(self, field: str, rule: str, value: str) -> None:
        super().__init__(field)
        self.fault = (field, rule, value[:100])


def _answer_row(row: TableRow) -> AnswerRow:
    answer_id, task_id, answer, boxes = (as_written(row[name]) for name in COLUMNS)
    for name, value in (("answer_id", answer_id), ("task_id", task_id), ("answer", answer)):
        if not value.strip():
            raise _CellError(name, "must not be blank", "a blank cell")
    try:
        drawn = json.loads(boxes) if boxes.strip() else []
    except (ValueError, RecursionError):
        raise _CellError("boxes", "must be JSON", repr(boxes)) from None
    if not isinstance(drawn, list) or not all(_is_box(box) for box in drawn):
        raise _CellError("boxes", "must be boxes with image_id, label and box (x, y, width, height)", repr(boxes))
    return AnswerRow(answer_id, task_id, answer, tuple(drawn), row.number)


def _is_box(box: Any) -> bool:
    if not isinstance(box, dict) or set(box) != {"image_id", "label", "box"}:
        return False
    texts, sides = (box["image_id"], box["label"]), box["box"]
    is_drawn = isinstance(sides, list) and len(sides) == 4 and all(type(side) in (int, float) for side in sides)
    return all(isinstance(text, str) for text in texts) and is_drawn and all(abs(side) < 1e9 for side in sides)


READERS_PER_ANSWER = 2
PICTURES = "pictures"
"""Folder for images inside the data folder."""
MAX_NAME = 100
_SUFFIXES = {b"\x89P": ".png", b"\xff\xd8": ".jpg"}
_SHOWN = 3
_FACTS = ("image_facts", "prior_image_facts")
_PLAIN_VIEWS = {"LATERAL": "Lateral", "FRONTAL": "Frontal", "UNKNOWN": "View not known"}
_PRIOR_VIEWS = {"LATERAL": "lateral", "FRONTAL": "frontal", "UNKNOWN": "view not known"}


@dataclass(frozen=True, slots=True)
class _TaskImage:
    """An image of a task, without its pixels."""

    view: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _Task:
    """A task's public facts and its shard; `pictures` is by image_id, with the prior study's images last."""

    prompt: str
    indication: str
    requires_boxes: bool
    pictures: Mapping[str, _TaskImage]
    shard: Path


def prepare_rubric(
    data: Path,
    answers: Path,
    tasks: Path,
    capacities: Mapping[str, int],
    *,
    per_item: int = READERS_PER_ANSWER,
    seed: int = 0,
) -> Readings:
    """Create the database for a file of answers, and copy the images that readers need.

    Parameters
    ----------
    data : folder of the readers' app
    answers : CSV from ``reveal-leaderboard admin answers``
    tasks : the public dataset folder of the tasks, with its images
    capacities : reader -> maximum number of answers
    per_item : number of readers per answer, which must equal the board's setting `reading.readers_per_answer`

    Raises
    ------
    BuildError
        If the file breaks a rule; the error lists every problem.
    PreparationError
        If a task has no image in the folder.
    UnpreparedError
        If the data folder was prepared from different input.
    ValueError
        If the folder is not a dataset of tasks, if the board would refuse a reader's name, or if the readers'
        capacities are too small.
    """
    for name in capacities:
        if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
            raise ValueError(f"`reader` must be a name of 1 to {MAX_NAME} characters, got {name[:40]!r}")
    rows = read_answers(answers)
    known = _read_tasks(tasks, {one.task_id for one in rows})
    problems = [Problem(answers.name, one.line, *fault) for one in rows for fault in _faults(one, known)]
    if problems:
        raise BuildError(problems)
    ids = sorted(one.answer_id for one in rows)
    drawn = draw_assignment(ids, capacities, np.random.default_rng(seed), per_study=per_item, most=len(ids))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = _copy_pictures(known, data / PICTURES)
    items = [_item(one, known[one.task_id], files[one.task_id]) for one in sorted(rows, key=lambda a: a.answer_id)]
    lists = [(one.reader, one.position, one.study_id) for one in drawn]
    return put(data, items, lists, form="rubric", seed=seed, root=data / PICTURES)


def _faults(one: AnswerRow, known: Mapping[str, _Task]) -> Iterator[tuple[str, str, str]]:
    """Yield (field, rule, value) for each task or image of an answer that is not in the dataset folder."""
    if one.task_id not in known:
        yield "task_id", "must be the id of a task in the folder", repr(one.task_id)[:100]
        return
    pictures = known[one.task_id].pictures
    for box in one.boxes:
        if box["image_id"] not in pictures:
            yield "boxes", "must be the id of an image of the task", hint(box["image_id"][:80], list(pictures))


# The folder of the tasks ----------------------------------------------------------------------------------------------


def _read_tasks(folder: Path, wanted: set[str]) -> dict[str, _Task]:
    """Return the public facts of the wanted tasks, without pixels."""
    import pyarrow.parquet as pq

    tasks = {}
    names = ["task_id", "prompt", "indication", "requires_boxes", *_FACTS]
    for shard in _shards(folder):
        for row in pq.read_table(shard, columns=names).to_pylist():
            if row["task_id"] in wanted:
                tasks[row["task_id"]] = _task(row, shard)
    return tasks


def _shards(folder: Path) -> list[Path]:
    splits = read_folder_info(folder).splits
    shards = [
        shard
        for split in splits
        for config in ("tasks", "holdout_inputs")
        for shard in split_shards(folder, config, split)
    ]
    import pyarrow.parquet as pq

    if not shards or any("prompt" not in pq.read_schema(shard).names for shard in shards):
        raise ValueError(f"`--tasks` must be the folder of a tasks-type dataset with its images, got {folder}")
    return shards


def _task(row: Mapping[str, Any], shard: Path) -> _Task:
    pictures: dict[str, _TaskImage] = {}
    for facts, is_prior in ((row["image_facts"], False), (row["prior_image_facts"], True)):
        for one in facts:
            name = VIEWS[one["view"]]
            view = f"Prior: {_PRIOR_VIEWS.get(name, name)}" if is_prior else _PLAIN_VIEWS.get(name, name)
            pictures.setdefault(one["image_id"], _TaskImage(view, one["width"], one["height"]))
    return _Task(row["prompt"], row["indication"] or "", bool(row["requires_boxes"]), pictures, shard)


def _copy_pictures(known: Mapping[str, _Task], place: Path) -> dict[str, tuple[str, ...]]:
    """Copy the missing images, and return the files of each task's images, in order."""
    place.mkdir(mode=0o700, exist_ok=True)
    by_shard: defaultdict[Path, set[str]] = defaultdict(set)
    for name, task in known.items():
        by_shard[task.shard].add(name)
    files: dict[str, tuple[str, ...]] = {}
    lacking = []
    for shard, names in by_shard.items():
        for row in _rows_with_pixels(shard, names):
            name, pictures = row["task_id"], dict(_pixels_of(row))
            if not pictures or any(data is None for data in pictures.values()):
                lacking.append(name)
                continue
            _check_sizes(name, known[name], pictures)
            files[name] = tuple(_copy(place, data) for data in pictures.values())
    if lacking:
        raise PreparationError(
            f"every task must have its images in the folder, got {len(lacking):,} without, the first of them "
            f"{', '.join(sorted(lacking)[:_SHOWN])}: pixels may be withheld there"
        )
    return files


def _rows_with_pixels(shard: Path, names: set[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    columns = ["task_id", "images", "prior_images", *_FACTS]
    for batch in pq.ParquetFile(shard).iter_batches(batch_size=8, columns=columns):
        for i, name in enumerate(batch.column("task_id").to_pylist()):
            if name in names:
                yield from batch.slice(i, 1).to_pylist()


def _pixels_of(row: Mapping[str, Any]) -> Iterable[tuple[str, bytes | None]]:
    for column, facts in zip(("images", "prior_images"), _FACTS, strict=True):
        for picture, one in zip(row[column], row[facts], strict=True):
            yield one["image_id"], (picture or {}).get("bytes")


def _check_sizes(name: str, task: _Task, pictures: Mapping[str, bytes | None]) -> None:
    """Refuse images whose size differs from the size stated in the tasks, because boxes refer to the stated size."""
    from PIL import Image, UnidentifiedImageError

    for image_id, data in pictures.items():
        wanted = task.pictures[image_id].width, task.pictures[image_id].height
        try:
            with Image.open(io.BytesIO(data or b""), formats=("PNG", "JPEG")) as image:
                size = image.size
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise PreparationError(f"task {name}: image {image_id} must be PNG or JPEG: {error}") from None
        if size != wanted:
            raise PreparationError(
                f"task {name}: image {image_id} must be {wanted[0]} x {wanted[1]}, got {size[0]} x {size[1]}"
            )


def _copy(place: Path, data: bytes | None) -> str:
    """Write an image under its hash unless the file exists; return the file's name. A crash leaves no partial file."""
    content = data or b""
    name = hashlib.sha256(content).hexdigest() + _SUFFIXES.get(content[:2], "")
    if not (place / name).exists():
        write_whole(place / name, content)
    return name


def _item(one: AnswerRow, task: _Task, files: Sequence[str]) -> Item:
    numbers = {image_id: number for number, image_id in enumerate(task.pictures)}
    boxes = []
    for box in one.boxes:
        picture = task.pictures[box["image_id"]]
        x, y, width, height = box["box"]
        sides = [x / picture.width, y / picture.height, (x + width) / picture.width, (y + height) / picture.height]
        boxes.append({"label": box["label"], "film": numbers[box["image_id"]], "rect": sides})
    content = {
        "prompt": task.prompt,
        "indication": task.indication,
        "requires_boxes": task.requires_boxes,
        "answer": one.answer,
        "boxes": boxes,
    }
    films = [ItemImage(file, None, picture.view) for file, picture in zip(files, task.pictures.values(), strict=True)]
    return Item(one.answer_id, content, tuple(films))
