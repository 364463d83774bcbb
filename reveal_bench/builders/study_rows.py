"""Rows of a findings-type dataset (one per study) and of a tasks-type one (one per task): Features, and record -> row.

The columns are those of :class:`reveal_bench.study_records.StudyRecord` and
:class:`reveal_bench.task_records.TaskRecord`. `images`, `image_ids`, `views` and `image_facts` run in parallel: element
i of each is of the same image. Where pixels are withheld the elements of `images` are null.

In a *blank* row (the inputs of a holdout) everything that is an answer, or says something about the patient, is null or
empty, and so are the hashes of the source files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reveal_bench.builders.pictures import Developed
from reveal_bench.builders.rows import Row, code_of
from reveal_bench.records import SPACING_SOURCES, VIEWS
from reveal_bench.study_records import (
    AGE_BANDS,
    AGREEMENTS,
    PATIENT_CLASSES,
    RACES,
    SEXES,
    StudyImage,
    StudyRecord,
)
from reveal_bench.task_records import CATEGORIES, CRITERIA, QUESTION_SCORES, TAGS, Rating, TaskRecord

if TYPE_CHECKING:
    from datasets import Features

__all__ = [
    "blank_study",
    "blank_task",
    "rating_row",
    "ratings_features",
    "study_features",
    "study_row",
    "task_features",
    "task_row",
]

IMAGE_FACTS = (
    "image_id", "width", "height", "view_raw", "manufacturer", "manufacturer_raw", "model", "model_raw",
    "detector_type", "kvp", "exposure_mas", "source_sha256", "pixel_sha256", "pixel_pipeline",
)  # fmt: skip
"""Columns of `image_facts` that are written as they are."""


def study_features(findings: Sequence[str]) -> Features:
    """Features of the config `multilabel`."""
    from datasets import ClassLabel, Features, Image, List, Value

    return Features(
        {
            "study_id": Value("string"),
            "patient_id": Value("string"),
            "images": List(Image()),
            "image_ids": List(Value("string")),
            "views": List(ClassLabel(names=list(VIEWS))),
            "labels": List(ClassLabel(names=list(findings))),
            "label_vector": List(Value("int8"), length=len(findings)),
            "agreement": ClassLabel(names=list(AGREEMENTS)),
            "n_agree_all": Value("int8"),
            "manufacturer": Value("string"),
            "model": Value("string"),
            "age_band": ClassLabel(names=list(AGE_BANDS)),
            "sex": ClassLabel(names=list(SEXES)),
            "race": ClassLabel(names=list(RACES)),
            "patient_class": ClassLabel(names=list(PATIENT_CLASSES)),
            "image_facts": List(_facts_features()),
        }
    )


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
            "image_facts": List(_facts_features()),
            "prior_image_facts": List(_facts_features()),
        }
    )


def ratings_features() -> Features:
    """Features of the config `ratings`: one row per task, model and reader."""
    from datasets import Features, Value

    names = {name: Value("string") for name in ("task_id", "model", "reader")}
    return Features({**names, **{name: Value("int8") for name in CRITERIA}})


def study_row(record: StudyRecord, findings: Sequence[str], developed: Sequence[Developed | None]) -> Row:
    """The row of a study; `developed` holds the picture of each of its images, or None.

    Raises
    ------
    ValueError
        If a label or another coded value is outside its vocabulary.
    """
    labels = sorted(code_of(findings, label, "labels") for label in set(record.labels))
    if len(labels) != len(record.labels):
        raise ValueError(f"`labels` must name each finding once, got {', '.join(record.labels)}")
    agreement = record.agreement
    return {
        "study_id": record.study_id,
        "patient_id": record.patient_id,
        "images": [_image(picture) for picture in developed],
        "image_ids": [image.image_id for image in record.images],
        "views": [code_of(VIEWS, image.view, "view") for image in record.images],
        "labels": labels,
        "label_vector": [int(i in labels) for i in range(len(findings))],
        "agreement": None if agreement is None else code_of(AGREEMENTS, agreement, "agreement"),
        "n_agree_all": record.n_agree_all,
        "manufacturer": _one([image.manufacturer for image in record.images]),
        "model": _one([image.model for image in record.images]),
        "age_band": code_of(AGE_BANDS, record.age_band, "age_band"),
        "sex": code_of(SEXES, record.sex, "sex"),
        "race": code_of(RACES, record.race, "race"),
        "patient_class": code_of(PATIENT_CLASSES, record.patient_class, "patient_class"),
        "image_facts": [_facts(image) for image in record.images],
    }


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
        "images": [_image(picture) for picture in developed[:n_images]],
        "prior_image_ids": [image.image_id for image in record.prior_images],
        "prior_images": [_image(picture) for picture in developed[n_images:]],
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
        "image_facts": [_facts(image) for image in record.images],
        "prior_image_facts": [_facts(image) for image in record.prior_images],
    }


def rating_row(rating: Rating) -> Row:
    """The row of one reader's scores."""
    return {name: getattr(rating, name) for name in ("task_id", "model", "reader", *CRITERIA)}


def blank_study(row: Row) -> Row:
    """A study's row as an input without references: no labels, no demographics, no hash of a source file."""
    unknown = {"age_band": AGE_BANDS, "sex": SEXES, "race": RACES, "patient_class": PATIENT_CLASSES}
    return {
        **row,
        "labels": [],
        "label_vector": None,
        "agreement": None,
        "n_agree_all": None,
        **{name: len(names) - 1 for name, names in unknown.items()},
        "image_facts": _without_hashes(row["image_facts"]),
    }


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


def _facts_features() -> dict[str, Any]:
    from datasets import ClassLabel, List, Value

    kinds = {"width": "int32", "height": "int32", "kvp": "float64", "exposure_mas": "float64"}
    return {
        **{name: Value(kinds.get(name, "string")) for name in IMAGE_FACTS},
        "view": ClassLabel(names=list(VIEWS)),
        "spacing_mm": List(Value("float64"), length=2),
        "spacing_source": ClassLabel(names=list(SPACING_SOURCES)),
    }


def _facts(image: StudyImage) -> Row:
    return {
        **{name: getattr(image, name) for name in IMAGE_FACTS},
        "view": code_of(VIEWS, image.view, "view"),
        "spacing_mm": None if image.spacing_mm is None else list(image.spacing_mm),
        "spacing_source": code_of(SPACING_SOURCES, image.spacing_source, "spacing_source"),
    }


def _without_hashes(facts: Sequence[Row]) -> list[Row]:
    return [{**entry, "source_sha256": None, "pixel_sha256": None} for entry in facts]


def _image(picture: Developed | None) -> Row | None:
    return None if picture is None or picture.data is None else {"bytes": picture.data, "path": picture.name}


def _one(values: Sequence[str | None]) -> str | None:
    """What all images of a study share, else None."""
    return values[0] if len(set(values)) == 1 else None
