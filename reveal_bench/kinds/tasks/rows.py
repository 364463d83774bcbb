"""Rows of a tasks dataset, one per task, and of its ratings: the Features, and record -> row.

The columns are those of :class:`~reveal_bench.kinds.tasks.records.TaskRecord`; `image_ids`, `images` and `image_facts`
run in parallel. In a *blank* row (the inputs of a holdout) every answer is null or empty, and so are the hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reveal_bench.kinds.findings.rows import _without_hashes
from reveal_bench.kinds.images import Developed
from reveal_bench.kinds.rows import Row, code_of, image_cell, image_facts_features, image_facts_row
from reveal_bench.kinds.tasks.records import CATEGORIES, QUESTION_SCORES, TAGS, Rating, TaskRecord
from reveal_bench.metrics.ordinal import CRITERIA

__all__ = ["MEANINGS", "blank_task", "rating_row", "ratings_features", "task_features", "task_row"]
if TYPE_CHECKING:
    from datasets import Features

MEANINGS = {
    "task_id": "id of the task; predictions name it",
    "prior_image_ids": "ids of the radiographs of an earlier study",
    "prior_images": "file bytes of those radiographs (null where pixels are withheld)",
    "prior_image_facts": "the same as `image_facts`, of the earlier study",
    "prompt": "what the model is asked",
    "indication": "reason for the examination as the referring physician wrote it",
    "category": "kind of question",
    "temporal": "whether the answer needs the earlier study",
    "tags": "eight lists: region, pathology, imaging finding, laterality, intent, time, question type, subtype",
    "question_scores": "1 to 5 of the question itself: clinical relevance, answerability, complexity, clarity",
    "risk_flag": "whether the question was judged risky",
    "requires_boxes": "whether the answer must localize",
    "reference_answer": "the answer of a radiologist",
    "reference_boxes": "its boxes, [x, y, width, height] in pixels of `image_id`",
}
"""Column -> what it means, on the card; those that other kinds have too are in `dataset/card_tables.py`."""


def task_features() -> Features:
    """Features of the config `tasks`."""
    from datasets import ClassLabel, Features, Image, List, Value

    text = Value("string")
    scores = {name: Value("int8") for name in QUESTION_SCORES}
    box = {"label": text, "bbox_xywh": List(Value("float64"), length=4), "image_id": text}
    return Features(
        {
            "task_id": text,
            "study_id": text,
            "patient_id": text,
            "image_ids": List(text),
            "images": List(Image()),
            "prior_image_ids": List(text),
            "prior_images": List(Image()),
            "prompt": text,
            "indication": text,
            "category": ClassLabel(names=list(CATEGORIES)),
            "temporal": Value("bool"),
            "tags": {name: List(text) for name in TAGS},
            "question_scores": scores,
            "risk_flag": Value("bool"),
            "requires_boxes": Value("bool"),
            "reference_answer": text,
            "reference_boxes": List(box),
            "image_facts": List(image_facts_features()),
            "prior_image_facts": List(image_facts_features()),
        }
    )


def ratings_features() -> Features:
    """Features of the config `ratings`: one row per task, model and reader."""
    from datasets import Features, Value

    names = {name: Value("string") for name in ("task_id", "model", "reader")}
    return Features({**names, **{name: Value("int8") for name in CRITERIA}})


def task_row(record: TaskRecord, developed: Sequence[Developed | None]) -> Row:
    """The row of a task; `developed` holds the pictures of its images and then of its prior images.

    Raises
    ------
    ValueError
        If a coded value is outside its vocabulary, or a tag or score has an unknown name.
    """
    stray = (set(record.tags) - set(TAGS)) | (set(record.question_scores or ()) - set(QUESTION_SCORES))
    if stray:
        raise ValueError(f"`tags` and `question_scores` must have known names, got {', '.join(sorted(stray))}")
    scores = record.question_scores
    n_images = len(record.images)
    return {
        "task_id": record.task_id,
        "study_id": record.study_id,
        "patient_id": record.patient_id,
        "image_ids": [image.image_id for image in record.images],
        "images": [image_cell(picture) for picture in developed[:n_images]],
        "prior_image_ids": [image.image_id for image in record.prior_images],
        "prior_images": [image_cell(picture) for picture in developed[n_images:]],
        "prompt": record.prompt,
        "indication": record.indication,
        "category": code_of(CATEGORIES, record.category, "category"),
        "temporal": record.temporal,
        "tags": {name: list(record.tags.get(name, ())) for name in TAGS},
        "question_scores": None if scores is None else {name: scores.get(name) for name in QUESTION_SCORES},
        "risk_flag": record.risk_flag,
        "requires_boxes": record.requires_boxes,
        "reference_answer": record.reference_answer,
        "reference_boxes": [
            {"label": box.label, "bbox_xywh": list(box.bbox_xywh), "image_id": box.image_id}
            for box in record.reference_boxes
        ],
        "image_facts": [image_facts_row(image) for image in record.images],
        "prior_image_facts": [image_facts_row(image) for image in record.prior_images],
    }


def rating_row(rating: Rating) -> Row:
    """The row of one reader's scores."""
    return {name: getattr(rating, name) for name in ("task_id", "model", "reader", *CRITERIA)}


def blank_task(row: Row) -> Row:
    """A task's row as an input: no reference answer, no tags or scores of the question, no hash of a source file.

    Whoever tagged the questions may have known the answers.
    """
    return {
        **row,
        "tags": {name: [] for name in TAGS},
        "question_scores": None,
        "risk_flag": None,
        "reference_answer": None,
        "reference_boxes": [],
        "image_facts": _without_hashes(row["image_facts"]),
        "prior_image_facts": _without_hashes(row["prior_image_facts"]),
    }
