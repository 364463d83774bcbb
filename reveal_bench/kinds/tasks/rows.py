"""Rows of a tasks dataset, one per task, and rows of its ratings: their Features, conversion from records, rules and
counts.

The columns are the fields of :class:`~reveal_bench.kinds.tasks.records.TaskRecord`; `image_ids`, `images` and
`image_facts` are parallel. In a *blank* row (the inputs of a holdout) all answers and hashes are null or empty.

A fault is a tuple (field, rule, value). Pictures are checked elsewhere. Codes without a name and missing lists are
reported by an earlier check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from reveal_bench.kinds.images import PublishedPicture
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.rows import (
    Fault,
    Row,
    code_of,
    facts_faults,
    image_cell,
    image_facts_features,
    image_facts_row,
    parallel_faults,
    without_hashes,
)
from reveal_bench.kinds.split_counts import Tally, markdown_table, mean_score
from reveal_bench.kinds.tasks.records import CATEGORIES, QUESTION_SCORES, TAGS, Rating, TaskRecord
from reveal_bench.metrics.ordinal import CRITERIA

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
"""Column -> its meaning, for the card; columns that other kinds share are in `dataset/card_tables.py`."""


def task_features() -> Features:
    """Return the Features of the config `tasks`."""
    from datasets import ClassLabel, Features, Image, List, Value

    text = Value("string")
    scores = {name: Value("int8") for name in QUESTION_SCORES}
    box = {"label": text, "bbox_xywh": List(Value("float64")), "image_id": text}
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
    """Return the Features of the config `ratings`, which has a row per task, model and reader."""
    from datasets import Features, Value

    names = {name: Value("string") for name in ("task_id", "model", "reader")}
    return Features({**names, **{name: Value("int8") for name in CRITERIA}})


def task_row(record: TaskRecord, developed: Sequence[PublishedPicture | None]) -> Row:
    """Return the row of a task; `developed` contains the pictures of its images and then of its prior images.

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
    """Return the row of one reader's scores."""
    return {name: getattr(rating, name) for name in ("task_id", "model", "reader", *CRITERIA)}


def blank_task(row: Row) -> Row:
    """Return a task's row without reference answer, tags and scores of the question, and hashes of source files.

    Tags and scores are left out because they may have been given by people who knew the answers.
    """
    return {
        **row,
        "tags": {name: [] for name in TAGS},
        "question_scores": None,
        "risk_flag": None,
        "reference_answer": None,
        "reference_boxes": [],
        "image_facts": without_hashes(row["image_facts"]),
        "prior_image_facts": without_hashes(row["prior_image_facts"]),
    }


def task_faults(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    """Yield the problems of a task's row."""
    yield from parallel_faults(row, "image_ids", {"images": "images", "image_facts": "image_facts"})
    yield from parallel_faults(row, "prior_image_ids", {"prior_images": "images", "prior_image_facts": "image_facts"})
    yield from facts_faults(row["image_facts"], row["image_ids"], "image_facts")
    yield from facts_faults(row["prior_image_facts"], row["prior_image_ids"], "prior_image_facts")
    if not (row["prompt"] or "").strip():
        yield "prompt", "must not be empty", repr(row["prompt"])
    for name in QUESTION_SCORES:
        score = (row["question_scores"] or {}).get(name)
        if score is not None and not 1 <= score <= 5:
            yield f"question_scores.{name}", "must be from 1 to 5", str(score)
    sizes = {f["image_id"]: (f["width"], f["height"]) for f in (*row["image_facts"], *row["prior_image_facts"])}
    for box in row["reference_boxes"]:
        if box["image_id"] is not None and box["image_id"] not in sizes:
            yield "reference_boxes", "must be on an image of the task", str(box["image_id"])
            continue
        x, y, wide, high = box["bbox_xywh"]
        fits = [x >= 0 and y >= 0 and x + wide <= width and y + high <= height
                for width, height in ([sizes[box["image_id"]]] if box["image_id"] else sizes.values())]  # fmt: skip
        if not (wide > 0 and high > 0 and any(fits)):
            yield "reference_boxes", "must have an area inside its image", str(box["bbox_xywh"])


def rating_faults(row: Row) -> Iterator[Fault]:
    """Yield a problem for each score of a rating that is out of range."""
    for name in CRITERIA:
        if row[name] is not None and not 1 <= row[name] <= 5:
            yield name, "must be from 1 to 5", str(row[name])


@dataclass
class TasksTally(Tally):
    """Counts of the tasks of a split; `positives` are per category.

    Attributes
    ----------
    temporal, with_boxes, with_answer, risky : tasks that need a prior study, ask for boxes, have a reference answer,
        were judged risky
    question_scores : per name, score -> number of tasks
    ratings : per (model, criterion), score -> number of ratings; `raters` are the readers
    """

    items: ClassVar[str] = "tasks"

    temporal: int = 0
    with_boxes: int = 0
    with_answer: int = 0
    risky: int = 0
    question_scores: dict[str, Counter[int]] = field(
        default_factory=lambda: {name: Counter() for name in QUESTION_SCORES}
    )
    ratings: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    raters: set[str] = field(default_factory=set)

    @override
    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one task."""
        super().add(row, asked)
        self.positives[row["category"]] += 1
        self.temporal += bool(row["temporal"])
        self.with_boxes += bool(row["requires_boxes"])
        self.with_answer += row["reference_answer"] is not None
        self.risky += bool(row["risk_flag"])
        for name, counts in self.question_scores.items():
            score = (row["question_scores"] or {}).get(name)
            if score is not None:
                counts[score] += 1

    @override
    def add_extra(self, config: str, row: Row) -> None:
        """Count one row of an extra table; for a rating, also count its scores."""
        super().add_extra(config, row)
        if config != "ratings":
            return
        self.raters.add(row["reader"])
        for name in CRITERIA:
            scores = self.ratings.setdefault((row["model"], name), Counter())
            if row[name] is not None:
                scores[row[name]] += 1

    @override
    def missing(self, findings: Sequence[str]) -> str:
        """Return, in words, how many tasks have no reference answer."""
        return f"{self.n_rows - self.with_answer:,} of {self.n_rows:,} tasks have no reference answer"

    @override
    def categories(self) -> dict[str, object]:
        """Return the number of tasks per category and per need, and mean scores of the questions."""
        counts: dict[str, object] = {
            name.replace("_", " "): self.positives[code] for code, name in enumerate(CATEGORIES)
        }
        counts |= {
            "needs the earlier study": self.temporal,
            "must localize": self.with_boxes,
            "has a reference answer": self.with_answer,
            "judged risky": self.risky,
        }
        means = {
            f"mean {name.replace('_', ' ')}": mean_score(scores) if scores else None
            for name, scores in self.question_scores.items()
        }
        return counts | means

    @override
    def ratings_text(self) -> str:
        """Return the number of ratings, and the mean per model and criterion, in Markdown."""
        if not self.ratings:
            return ""
        models = sorted({model for model, _ in self.ratings})
        rows = [[model, *(mean_score(self.ratings[model, name]) for name in CRITERIA)] for model in models]
        table = markdown_table(["model", *(name.replace("_", " ") for name in CRITERIA)], rows)
        return f"{self.extras['ratings']:,} ratings by {len(self.raters)} readers; means of 1 to 5:\n\n{table}"

    @override
    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return [*row["image_facts"], *row["prior_image_facts"]]
