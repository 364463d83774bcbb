"""Tasks as cases for display: prompt, reference and answers in words, with the boxes drawn."""

from __future__ import annotations

from collections.abc import Sequence

from reveal_bench.kinds.cases import REFERENCE, Case, CaseAnswer, CaseFilm, Mark, films_of_study
from reveal_bench.kinds.tasks.records import TaskAnswer, TaskRecord


def case_of_task(record: TaskRecord) -> Case:
    """Return a task with its reference answer."""
    films = films_of_study(record.images, record.prior_images)
    group = _group(record)
    boxes = [(box.image_id, box.bbox_xywh) for box in record.reference_boxes]
    marks = _marks(films, group, boxes)
    texts = {"Prompt": record.prompt, "Indication": record.indication, "Reference answer": record.reference_answer}
    facts = tuple((name, text) for name, text in texts.items() if text)
    return Case(record.task_id, films, (group,), {REFERENCE: marks} if marks else {}, facts)


def answers_of_tasks(answers: Sequence[TaskAnswer], records: Sequence[TaskRecord]) -> dict[str, list[CaseAnswer]]:
    """Return task_id -> a system's answers, without outcomes because readers judge them."""
    by_task = {record.task_id: record for record in records}
    by_key = {}
    for answer in answers:
        record = by_task[answer.task_id]
        films = films_of_study(record.images, record.prior_images)
        marks = _marks(films, _group(record), [(box.image_id, box.box) for box in answer.boxes])
        by_key[answer.task_id] = [CaseAnswer(_group(record), None, answer.answer, marks)]
    return by_key


def _group(record: TaskRecord) -> str:
    return record.category.replace("_", " ").capitalize()


def _marks(
    films: Sequence[CaseFilm], group: str, boxes: Sequence[tuple[str | None, tuple[float, float, float, float]]]
) -> tuple[Mark, ...]:
    """Return boxes as marks; a box that names no image is drawn on the first image."""
    places = {film.image_id: n for n, film in enumerate(films)}
    return tuple(Mark(places.get(image_id or "", 0), group, boxes=(box,)) for image_id, box in boxes)
