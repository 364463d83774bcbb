"""Conversion of answers to tasks, readers' ratings and rows of ratings to arrays, and the marks of answers.

See :mod:`reveal_bench.kinds.arrays`. Images are indices into the task's images, in their order. Texts are joined as
UTF-8, with the position at which each ends. Ratings identify their answer by its position and their reader by a number,
because child processes do not need readers' names. A score of 0 stands for a missing score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.arrays import Arrays, Codec, Fields, Item, Marks, names_from, require, text_of_names
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.tasks.lint import ANSWER_LIMITS
from reveal_bench.kinds.tasks.records import AnswerBox, Rating, TaskAnswer, TaskManifest, TaskQuestion
from reveal_bench.metrics.ordinal import CRITERIA
from reveal_bench.predictions.limits import Limits

if TYPE_CHECKING:
    from reveal_bench.kinds.tasks.scoring import RubricRows

MODEL = "submission"
"""Model name in ratings that were rebuilt from arrays."""


class TasksCodec(Codec[TaskAnswer, TaskManifest, "RubricRows"]):
    """Answers in words, with boxes, and their ratings."""

    predictions: ClassVar[Fields] = {
        "task": ("<u4", 1),
        "answer_text": ("|u1", 1),
        "answer_ends": ("<i8", 1),
        "n_boxes": ("<u2", 1),
        "box_image": ("<u2", 1),
        "boxes": ("<f8", 2),
        "label_text": ("|u1", 1),
        "label_ends": ("<i8", 1),
    }
    ratings: ClassVar[Fields] = {"rated": ("<u4", 1), "reader": ("<u2", 1), "scores": ("|u1", 2)}
    rows: ClassVar[Fields] = {"text": ("|u1", 1), "ratings": ("<f8", 3), "is_answered": ("|b1", 1)}

    @override
    def manifest_from(self, raw: dict[str, Any]) -> TaskManifest:
        """Return a manifest; the sizes of images are tuples."""
        tasks = (TaskQuestion(**{**task, "images": _sizes(task["images"])}) for task in raw["tasks"])
        return TaskManifest(**{**raw, "tasks": tuple(tasks), "other_tasks": tuple(raw["other_tasks"])})

    @override
    def arrays_of(self, predictions: Sequence[TaskAnswer], manifest: TaskManifest) -> Arrays:
        """Return the arrays of checked answers."""
        places = {task.task_id: i for i, task in enumerate(manifest.tasks)}
        try:
            task = [places[answer.task_id] for answer in predictions]
            images = [list(manifest.tasks[i].images) for i in task]
            box_image = [
                of_task.index(box.image_id)
                for answer, of_task in zip(predictions, images, strict=True)
                for box in answer.boxes
            ]
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"answers must be for tasks of the manifest, with boxes on their images, got {error}"
            ) from None
        boxes = [box for answer in predictions for box in answer.boxes]
        answer_text, answer_ends = _joined([answer.answer for answer in predictions])
        label_text, label_ends = _joined([box.label for box in boxes])
        return {
            "task": np.array(task, np.uint32),
            "answer_text": answer_text,
            "answer_ends": answer_ends,
            "n_boxes": np.array([len(answer.boxes) for answer in predictions], np.uint16),
            "box_image": np.array(box_image, np.uint16),
            "boxes": np.array([box.box for box in boxes], np.float64).reshape(-1, 4),
            "label_text": label_text,
            "label_ends": label_ends,
        }

    @override
    def predictions_from(self, arrays: Arrays, manifest: TaskManifest, limits: Limits) -> tuple[TaskAnswer, ...]:
        """Rebuild the answers."""
        task, n_boxes, n = arrays["task"], arrays["n_boxes"], len(arrays["line"])
        total = int(n_boxes.sum(dtype=np.int64))
        require(len(task) == len(n_boxes) == n, "`task` and `n_boxes` must have one value per answer")
        require(bool((task < len(manifest.tasks)).all()), "`task` must be an index into the manifest")
        require(len(np.unique(task)) == n, "each task must be answered once")
        require(
            bool((n_boxes <= ANSWER_LIMITS.boxes).all()), f"an answer must have at most {ANSWER_LIMITS.boxes} boxes"
        )
        require(arrays["boxes"].shape == (total, 4), f"`boxes` must have shape ({total}, 4)")
        require(len(arrays["box_image"]) == total, "`box_image` must have one value per box")
        texts = _parted(arrays["answer_text"], arrays["answer_ends"], n, ANSWER_LIMITS.characters)
        labels = _parted(arrays["label_text"], arrays["label_ends"], total, ANSWER_LIMITS.label_characters)
        drawn = iter(zip(arrays["box_image"].tolist(), arrays["boxes"].tolist(), labels, strict=True))
        answers = []
        for place, text, count, line in zip(
            task.tolist(), texts, n_boxes.tolist(), arrays["line"].tolist(), strict=True
        ):
            asked = manifest.tasks[place]
            names, sizes = list(asked.images), list(asked.images.values())
            boxes = []
            for image, (x, y, width, height), label in (next(drawn) for _ in range(count)):
                require(image < len(names), "`box_image` must be an index into the images of the task")
                rows, columns = sizes[image]
                fits = x >= 0 and y >= 0 and width > 0 and height > 0 and x + width <= columns and y + height <= rows
                require(fits, "`boxes` must be inside the image")
                boxes.append(AnswerBox(names[image], label, (x, y, width, height)))
            require(bool(text.strip()), "an answer must hold text")
            answers.append(TaskAnswer(asked.task_id, text, tuple(boxes), line))
        return tuple(answers)

    @override
    def arrays_of_ratings(self, ratings: Sequence[Rating], predictions: Sequence[TaskAnswer]) -> Arrays:
        """Return ratings of the answers."""
        places = {answer.task_id: i for i, answer in enumerate(predictions)}
        readers = {name: i for i, name in enumerate(sorted({rating.reader for rating in ratings}))}
        unknown = sorted({rating.task_id for rating in ratings} - set(places))
        if unknown:
            raise ValueError(f"ratings must rate answered tasks, got a rating of {unknown[0]!r}")
        scores = [[getattr(rating, name) or 0 for name in CRITERIA] for rating in ratings]
        return {
            "rated": np.array([places[rating.task_id] for rating in ratings], np.uint32),
            "reader": np.array([readers[rating.reader] for rating in ratings], np.uint16),
            "scores": np.array(scores, np.uint8).reshape(-1, len(CRITERIA)),
        }

    @override
    def ratings_from(self, arrays: Arrays, predictions: Sequence[TaskAnswer]) -> tuple[Rating, ...]:
        """Rebuild the ratings; readers are numbers from "00000" on, and the model is :data:`MODEL`."""
        rated, reader, scores = arrays["rated"], arrays["reader"], arrays["scores"]
        require(
            scores.shape == (len(rated), len(CRITERIA)), f"`scores` must have shape ({len(rated)}, {len(CRITERIA)})"
        )
        require(len(reader) == len(rated), "`reader` must have one value per rating")
        require(bool((rated < len(predictions)).all()), "`rated` must be an index into the answers")
        require(bool((scores <= 5).all()), "`scores` must be from 1 to 5, or 0 for none")
        require(bool((scores[:, :4] >= 1).all()), "`scores` must be given for every text criterion")
        pairs = rated.astype(np.int64) * (1 << 16) + reader
        require(len(np.unique(pairs)) == len(pairs), "each reader must rate an answer once")
        ratings = []
        for place, number, row in zip(rated.tolist(), reader.tolist(), scores.tolist(), strict=True):
            ratings.append(
                Rating(predictions[place].task_id, MODEL, f"{number:05d}", *(score or None for score in row))
            )
        return tuple(ratings)

    @override
    def arrays_of_rows(self, rows: RubricRows) -> Arrays:
        """Return ratings and facts of the tasks."""
        names = {name: getattr(rows, name) for name in ("task_ids", "patient_ids", "categories", "missing")}
        return {"text": text_of_names(names), "ratings": rows.ratings, "is_answered": rows.is_answered}

    @override
    def rows_from(self, arrays: Arrays) -> RubricRows:
        """Rebuild the rows."""
        from reveal_bench.kinds.tasks.scoring import RubricRows

        names, ratings, is_answered = names_from(arrays["text"]), arrays["ratings"], arrays["is_answered"]
        columns = [tuple(names[name]) for name in ("task_ids", "patient_ids", "categories")]
        n = len(is_answered)
        if {len(column) for column in columns} | {len(ratings)} != {n} or ratings.shape[2] != len(CRITERIA):
            raise ArgumentError("ratings", f"must have shape ({n}, readers, {len(CRITERIA)})", ratings.shape)
        return RubricRows(columns[0], columns[1], columns[2], ratings, is_answered, names["missing"])


def _sizes(images: dict[str, list[int]]) -> dict[str, tuple[int, int]]:
    return {image_id: (height, width) for image_id, (height, width) in images.items()}


def _joined(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return (text, ends): the joined UTF-8 of all texts, and the position at which each ends."""
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(one) for one in encoded], dtype=np.int64)


def _parted(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], n: int, most: int) -> list[str]:
    require(len(ends) == n, f"there must be {n} ends of texts, got {len(ends)}")
    places = [0, *ends.tolist()]
    require(
        places == sorted(places) and places[-1] == len(text), "ends of texts must rise to the end of the joined text"
    )
    data = text.tobytes()
    try:
        parts = [data[start:stop].decode() for start, stop in pairwise(places)]
    except UnicodeDecodeError:
        raise ValueError("canonical predictions: texts must be UTF-8") from None
    require(all(len(part) <= most for part in parts), f"a text must have at most {most} characters")
    return parts


def marks_of(
    predictions: Sequence[TaskAnswer], manifest: TaskManifest, thresholds: float | Mapping[str, float]
) -> Marks:
    """Return the words and boxes of each answer; each item contains one answer's words."""
    answers = sorted(predictions, key=lambda p: p.task_id)
    return Marks(_task_answers(answers), set(_task_items(answers)))


def _task_answers(answers: Sequence[TaskAnswer]) -> list[Item]:
    """Return an entry per answer; a sequence of white space counts as one space."""
    return [
        (p.task_id, " ".join(p.answer.split()), *((b.image_id, b.label, [f"{v:.9g}" for v in b.box]) for b in p.boxes))
        for p in answers
    ]


def _task_items(answers: Sequence[TaskAnswer]) -> Iterator[Item]:
    return ((p.task_id, " ".join(p.answer.casefold().split())) for p in answers)


def signs_of(answers: Sequence[TaskAnswer], manifest: TaskManifest) -> list[str]:
    """Return a sign of probing if all tasks have the same answer."""
    texts = {text for _, text in _task_items(answers)}
    return ["Every task has the same answer."] if len(answers) > 1 and len(texts) == 1 else []
