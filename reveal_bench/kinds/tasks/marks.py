"""Marks of answers to tasks, see :mod:`reveal_bench.kinds.marks`, and signs that a file is not a model's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reveal_bench.kinds.marks import Item, Marks
from reveal_bench.kinds.tasks.records import TaskAnswer, TaskManifest

__all__ = ["marks_of", "signs_of"]


def marks_of(predictions: Sequence[TaskAnswer], manifest: TaskManifest) -> Marks:
    """Words and boxes of each answer; items are its words."""
    answers = sorted(predictions, key=lambda p: p.task_id)
    return Marks(_task_answers(answers), set(_task_items(answers)))


def _task_answers(answers: Sequence[TaskAnswer]) -> list[Item]:
    """Runs of white space count as one space."""
    return [
        (p.task_id, " ".join(p.answer.split()), *((b.image_id, b.label, [f"{v:.9g}" for v in b.box]) for b in p.boxes))
        for p in answers
    ]


def _task_items(answers: Sequence[TaskAnswer]) -> Iterator[Item]:
    return ((p.task_id, " ".join(p.answer.casefold().split())) for p in answers)


def signs_of(answers: Sequence[TaskAnswer], manifest: TaskManifest) -> list[str]:
    """One answer to all tasks."""
    texts = {text for _, text in _task_items(answers)}
    return ["Every task has the same answer."] if len(answers) > 1 and len(texts) == 1 else []
