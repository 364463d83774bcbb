"""Answers to tasks as arrays, see :mod:`.canonical`; and, for scoring, the same with the ratings that readers gave.

Tasks are indices into the manifest, images into those of the task, in its order. Texts are UTF-8, one after another,
with the places where they end. Ratings name their answer by its place and their reader by a number: names of readers
are needed by no child. A score of 0 stands for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.predictions.tasks import ANSWER_LIMITS
from reveal_bench.task_records import CRITERIA, AnswerBox, Rating, TaskAnswer, TaskManifest
from reveal_leaderboard.custody.archive import Fields, read_arrays, write_arrays
from reveal_leaderboard.custody.manifests import manifest_digest

__all__ = ["TASKS_FIELDS", "answer_arrays", "answers_from", "read_rated", "write_rated"]

TASKS_FIELDS: Fields = {
    "task": ("<u4", 1),
    "answer_text": ("|u1", 1),
    "answer_ends": ("<i8", 1),
    "n_boxes": ("<u2", 1),
    "box_image": ("<u2", 1),
    "boxes": ("<f8", 2),
    "label_text": ("|u1", 1),
    "label_ends": ("<i8", 1),
}
_RATINGS: Fields = {"rated": ("<u4", 1), "reader": ("<u2", 1), "scores": ("|u1", 2)}
_SHARED: Fields = {"manifest": ("u1", 1), "line": ("<i8", 1)}
MODEL = "submission"
"""What the model is called in ratings that were read back."""
Arrays = Mapping[str, npt.NDArray[Any]]


def answer_arrays(answers: Sequence[TaskAnswer], manifest: TaskManifest) -> dict[str, npt.NDArray[Any]]:
    """The arrays of checked answers."""
    places = {task.task_id: i for i, task in enumerate(manifest.tasks)}
    try:
        task = [places[answer.task_id] for answer in answers]
        images = [list(manifest.tasks[i].images) for i in task]
        box_image = [
            of_task.index(box.image_id) for answer, of_task in zip(answers, images, strict=True) for box in answer.boxes
        ]
    except (KeyError, ValueError) as error:
        raise ValueError(f"answers must be to the manifest's tasks and on their images, got {error}") from None
    boxes = [box for answer in answers for box in answer.boxes]
    answer_text, answer_ends = _joined([answer.answer for answer in answers])
    label_text, label_ends = _joined([box.label for box in boxes])
    return {
        "task": np.array(task, np.uint32),
        "answer_text": answer_text,
        "answer_ends": answer_ends,
        "n_boxes": np.array([len(answer.boxes) for answer in answers], np.uint16),
        "box_image": np.array(box_image, np.uint16),
        "boxes": np.array([box.box for box in boxes], np.float64).reshape(-1, 4),
        "label_text": label_text,
        "label_ends": label_ends,
    }


def answers_from(arrays: Arrays, manifest: TaskManifest) -> tuple[TaskAnswer, ...]:
    """The answers back; raises ValueError for anything that is not as it must be."""
    task, n_boxes, n = arrays["task"], arrays["n_boxes"], len(arrays["line"])
    total = int(n_boxes.sum(dtype=np.int64))
    _require(len(task) == len(n_boxes) == n, "`task` and `n_boxes` must have one value per answer")
    _require(bool((task < len(manifest.tasks)).all()), "`task` must be an index into the manifest")
    _require(len(np.unique(task)) == n, "each task must be answered once")
    _require(bool((n_boxes <= ANSWER_LIMITS.boxes).all()), f"an answer must have at most {ANSWER_LIMITS.boxes} boxes")
    _require(arrays["boxes"].shape == (total, 4), f"`boxes` must have shape ({total}, 4)")
    _require(len(arrays["box_image"]) == total, "`box_image` must have one value per box")
    texts = _parted(arrays["answer_text"], arrays["answer_ends"], n, ANSWER_LIMITS.characters)
    labels = _parted(arrays["label_text"], arrays["label_ends"], total, ANSWER_LIMITS.label_characters)
    drawn = iter(zip(arrays["box_image"].tolist(), arrays["boxes"].tolist(), labels, strict=True))
    answers = []
    for place, text, count, line in zip(task.tolist(), texts, n_boxes.tolist(), arrays["line"].tolist(), strict=True):
        asked = manifest.tasks[place]
        names, sizes = list(asked.images), list(asked.images.values())
        boxes = []
        for image, (x, y, width, height), label in (next(drawn) for _ in range(count)):
            _require(image < len(names), "`box_image` must be an index into the images of the task")
            rows, columns = sizes[image]
            fits = x >= 0 and y >= 0 and width > 0 and height > 0 and x + width <= columns and y + height <= rows
            _require(fits, "`boxes` must lie inside the image")
            boxes.append(AnswerBox(names[image], label, (x, y, width, height)))
        _require(bool(text.strip()), "an answer must hold text")
        answers.append(TaskAnswer(asked.task_id, text, tuple(boxes), line))
    return tuple(answers)


def write_rated(
    file: BinaryIO, answers: Sequence[TaskAnswer], ratings: Sequence[Rating], manifest: TaskManifest
) -> None:
    """Write answers with their ratings.

    Raises
    ------
    ValueError
        If a rating is of no answer.
    """
    places = {answer.task_id: i for i, answer in enumerate(answers)}
    readers = {name: i for i, name in enumerate(sorted({rating.reader for rating in ratings}))}
    strangers = sorted({rating.task_id for rating in ratings} - set(places))
    if strangers:
        raise ValueError(f"ratings must be of answers, got one of task {strangers[0]!r}, which has none")
    scores = [[getattr(rating, name) or 0 for name in CRITERIA] for rating in ratings]
    arrays: dict[str, npt.NDArray[Any]] = {
        "manifest": np.frombuffer(manifest_digest(manifest), np.uint8),
        "line": np.array([answer.line for answer in answers], np.int64),
        **answer_arrays(answers, manifest),
        "rated": np.array([places[rating.task_id] for rating in ratings], np.uint32),
        "reader": np.array([readers[rating.reader] for rating in ratings], np.uint16),
        "scores": np.array(scores, np.uint8).reshape(-1, len(CRITERIA)),
    }
    write_arrays(file, arrays)


def read_rated(file: BinaryIO, manifest: TaskManifest) -> tuple[tuple[TaskAnswer, ...], tuple[Rating, ...]]:
    """Read what :func:`write_rated` wrote; readers are numbers from "0" on, and the model is :data:`MODEL`.

    Raises
    ------
    ValueError
        If anything is not as it must be, or the file is of another manifest.
    """
    arrays = read_arrays(file, {**_SHARED, **TASKS_FIELDS, **_RATINGS})
    if arrays["manifest"].tobytes() != manifest_digest(manifest):
        raise ValueError("the rated answers must be of this manifest, got those of another")
    answers = answers_from(arrays, manifest)
    rated, reader, scores = arrays["rated"], arrays["reader"], arrays["scores"]
    _require(scores.shape == (len(rated), len(CRITERIA)), f"`scores` must have shape ({len(rated)}, {len(CRITERIA)})")
    _require(len(reader) == len(rated), "`reader` must have one value per rating")
    _require(bool((rated < len(answers)).all()), "`rated` must be an index into the answers")
    _require(bool((scores <= 5).all()), "`scores` must be from 1 to 5, or 0 for none")
    _require(bool((scores[:, :4] >= 1).all()), "`scores` must be there for every text criterion")
    pairs = rated.astype(np.int64) * (1 << 16) + reader
    _require(len(np.unique(pairs)) == len(pairs), "each reader must rate an answer once")
    ratings = []
    for place, number, row in zip(rated.tolist(), reader.tolist(), scores.tolist(), strict=True):
        ratings.append(Rating(answers[place].task_id, MODEL, f"{number:05d}", *(score or None for score in row)))
    return answers, tuple(ratings)


def _joined(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """UTF-8 of all texts, and the place where each ends."""
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(one) for one in encoded], dtype=np.int64)


def _parted(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], n: int, most: int) -> list[str]:
    _require(len(ends) == n, f"a text must end {n} times, it ends {len(ends)} times")
    places = [0, *ends.tolist()]
    _require(places == sorted(places) and places[-1] == len(text), "texts must follow one another to the end")
    data = text.tobytes()
    try:
        parts = [data[start:stop].decode() for start, stop in pairwise(places)]
    except UnicodeDecodeError:
        raise ValueError("canonical predictions: texts must be UTF-8") from None
    _require(all(len(part) <= most for part in parts), f"a text must have at most {most} characters")
    return parts


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"canonical predictions: {rule}")
