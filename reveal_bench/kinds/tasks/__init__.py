"""Tasks kind of benchmark: open questions on studies, whose answers readers rate (paper 001). A row is a task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from reveal_bench.kinds.kind import Kind
from reveal_bench.kinds.parts import (
    Data,
    Display,
    Predictions,
    Questions,
    Release,
    Scoring,
    Table,
    fields_of,
    override,
)
from reveal_bench.predictions.limits import LintOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.arrays import Marks
    from reveal_bench.kinds.cases import Case, CaseAnswer
    from reveal_bench.kinds.folder import AnyFolder, FolderInfo
    from reveal_bench.kinds.images import PictureFile, PublishedPicture
    from reveal_bench.kinds.options import ScoringOptions, Thresholds
    from reveal_bench.kinds.questions import Answer, Question
    from reveal_bench.kinds.rows import Fault, Row
    from reveal_bench.kinds.scored import Disclosure
    from reveal_bench.kinds.tasks.arrays import TasksCodec
    from reveal_bench.kinds.tasks.records import Rating, TaskAnswer, TaskManifest, TaskRecord
    from reveal_bench.kinds.tasks.rows import TasksTally
    from reveal_bench.kinds.tasks.scoring import RubricRows
    from reveal_bench.metrics.intervals import Resampling
    from reveal_bench.predictions.report import LintReport

__all__ = ["TASKS"]


class TasksData(Data["TaskRecord"]):
    """Records of tasks."""

    @override
    def read_records(self, folder: AnyFolder, split: str) -> list[TaskRecord]:
        from reveal_bench.kinds.tasks.records import read_tasks

        return read_tasks(folder, split)

    @override
    def read_references(self, folder: AnyFolder, split: str) -> list[TaskRecord]:
        return self.read_records(folder, split)

    @override
    def key_of(self, record: TaskRecord) -> str:
        return record.task_id

    @override
    def pictures(self, record: TaskRecord) -> tuple[PictureFile | None, ...]:
        """Return the pictures of the study, then of the prior study."""
        return tuple(image.picture for image in (*record.images, *record.prior_images))

    @override
    def bare_record(self, entry: Row, findings: Sequence[str]) -> TaskRecord:
        """Return a task with only its category, its images and whether it asks for boxes."""
        from reveal_bench.kinds.images import bare_images
        from reveal_bench.kinds.tasks.records import TaskRecord

        images, prior_images = bare_images(entry, "image_ids"), bare_images(entry, "prior_image_ids")
        fields = {name: entry[name] for name in ("task_id", "study_id", "category", "requires_boxes")}
        return TaskRecord(patient_id="", prompt="", images=images, prior_images=prior_images, **fields)


class TasksTable(Table["TaskRecord"]):
    """The table of tasks."""

    image_columns: ClassVar = ("images", "prior_images")

    @override
    def blank(self, row: Row) -> Row:
        from reveal_bench.kinds.tasks.rows import blank_task

        return blank_task(row)

    @override
    def tally(self) -> TasksTally:
        from reveal_bench.kinds.tasks.rows import TasksTally

        return TasksTally()

    @override
    def row_faults(self, row: Row, findings: Sequence[str]) -> Iterator[Fault]:
        from reveal_bench.kinds.tasks.rows import task_faults

        return task_faults(row, findings)

    @override
    def features(self, benchmark: Benchmark) -> Features:
        """Return the Features of the config `tasks`."""
        from reveal_bench.kinds.tasks.rows import task_features

        return task_features()

    @override
    def row(self, record: TaskRecord, benchmark: Benchmark, developed: Sequence[PublishedPicture | None]) -> Row:
        """Return the row of a task; raises ValueError as :func:`~reveal_bench.kinds.tasks.rows.task_row` does."""
        from reveal_bench.kinds.images import developed_images
        from reveal_bench.kinds.tasks.rows import task_row

        n_images = len(record.images)
        images = developed_images(record.images, developed[:n_images])
        prior_images = developed_images(record.prior_images, developed[n_images:])
        return task_row(replace(record, images=images, prior_images=prior_images), developed)

    @override
    def further_features(self) -> dict[str, Features]:
        """Return the columns of readers' ratings."""
        from reveal_bench.kinds.tasks.rows import ratings_features

        return {"ratings": ratings_features()}


class TasksQuestions(Questions["TaskRecord", "TaskManifest"]):
    """Questions about tasks."""

    has_prompts: ClassVar = True
    forms: ClassVar = ("text",)
    asked_column: ClassVar = "category"

    @override
    def read_manifest(self, folder: AnyFolder, split: str) -> TaskManifest:
        from reveal_bench.kinds.tasks.records import read_task_manifest

        return read_task_manifest(folder, split)

    @override
    def asked(self, record: TaskRecord, benchmark: Benchmark, asks: str) -> list[str]:
        """Return the category of the task."""
        return [record.category]

    @override
    def manifest_schema(self) -> pa.Schema:
        """Return the columns: task_id, study_id, image ids, category and whether boxes are asked for."""
        from reveal_bench.kinds.rows import text_schema

        ids = {"image_ids": "texts", "prior_image_ids": "texts"}
        return text_schema(task_id="text", study_id="text", **ids, category="text", requires_boxes="flag")

    @override
    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        """Return a task and its images."""
        from reveal_bench.kinds.tasks.records import CATEGORIES

        names = ("task_id", "study_id", "image_ids", "prior_image_ids", "requires_boxes")
        return {**{name: row[name] for name in names}, "category": CATEGORIES[row["category"]]}

    @override
    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """Return the code of the category, as text."""
        return [str(row["category"])]

    @override
    def manifest_disclosure(self, asks: str) -> str:
        """Return the sentence that categories and requests for boxes are public."""
        return "The manifest names the category of each task and whether it asks for boxes, but not its answer."

    @override
    def read(self, folder: AnyFolder, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        """Yield one question per task, with its prompt.

        Raises
        ------
        ValueError
            If the folder lacks the inputs of a task.
        """
        from reveal_bench.kinds.questions import Question, read_inputs, viewed_images

        columns = ("task_id", "image_facts", "prior_image_facts")
        facts = {row["task_id"]: row for row in read_inputs(folder, split, "tasks", columns)}
        for task in self.read_manifest(folder, split).tasks:
            if task.task_id not in facts:
                raise ValueError(f"{folder} must hold the inputs of every task, got none of {task.task_id!r}")
            row = facts[task.task_id]
            images = (*viewed_images(row["image_facts"]), *viewed_images(row["prior_image_facts"], is_prior=True))
            fields: Row = {name: getattr(task, name) for name in ("prompt", "indication", "requires_boxes")}
            yield Question(task.task_id, form, images, **fields)

    @override
    def scope(self, manifest: TaskManifest) -> tuple[tuple[str, ...], int]:
        """Return (criteria of the rubric and categories of tasks, number of tasks)."""
        from reveal_bench.kinds.tasks.records import CATEGORIES
        from reveal_bench.metrics.ordinal import REPORTED

        return (*REPORTED, *CATEGORIES), len(manifest.tasks)

    @override
    def manifest_entries(self, manifest: TaskManifest) -> list[Row]:
        """Return a row per task with its prompt and category."""
        names = ("task_id", "prompt", "indication", "requires_boxes")
        return [{**{n: getattr(task, n) for n in names}, "asked": [task.category]} for task in manifest.tasks]


class TasksPredictions(Predictions["TaskAnswer", "TaskManifest", "RubricRows"]):
    """Prediction files of tasks."""

    @override
    def lint(self, path: Path, manifest: TaskManifest, options: LintOptions = LintOptions()) -> LintReport:
        from reveal_bench.kinds.tasks.lint import lint_tasks

        return lint_tasks(path, manifest, options)

    @override
    def to_jsonl(self, predictions: Iterable[TaskAnswer]) -> str:
        from reveal_bench.kinds.tasks.lint import answers_to_jsonl

        return answers_to_jsonl(predictions)

    @override
    def codec(self) -> TasksCodec:
        from reveal_bench.kinds.tasks.arrays import TasksCodec

        return TasksCodec()

    @override
    def from_answer(self, answer: Answer) -> list[TaskAnswer]:
        """Return one answer: its text and its boxes."""
        from reveal_bench.kinds.tasks.records import TaskAnswer

        return [TaskAnswer(answer.unit, answer.answer or "", answer.boxes)]

    @override
    def example_upload(self) -> tuple[TaskManifest, str]:
        """Return (manifest, file): one task, and a file that answers it."""
        from reveal_bench.kinds.tasks.records import CATEGORIES, TaskManifest, TaskQuestion

        task = TaskQuestion("t", CATEGORIES[0], False, "What is shown?", None, {"i": (8, 8)})
        return TaskManifest("warm-up", "1", "test", (task,)), '{"task_id": "t", "answer": "Nothing."}'

    @override
    def entries(self, key: str, answer: object) -> list[Row]:
        return [self.entry(fields_of("task_id", key, answer))]


class TasksScoring(Scoring["TaskRecord", "TaskAnswer", "TaskManifest", "RubricRows"]):
    """Scores of tasks."""

    scored_by: ClassVar = "readers"

    @override
    def protocol(self, options: ScoringOptions) -> dict[str, object]:
        """Return the option that decides how a task without an answer is scored."""
        return {"missing": "lowest"}

    @override
    def score(
        self,
        predictions: Sequence[TaskAnswer],
        records: Iterable[TaskRecord],
        manifest: TaskManifest,
        options: ScoringOptions,
        ratings: Sequence[Rating] = (),
    ) -> RubricRows:
        """Return the ratings of the answers, see :func:`~reveal_bench.kinds.tasks.scoring.score_ratings`."""
        from reveal_bench.kinds.tasks.scoring import score_ratings

        answered = [answer.task_id for answer in predictions]
        asked = [rating for rating in ratings if rating.task_id not in manifest.other_tasks]
        return score_ratings(asked, list(records), answered=answered, missing="lowest")


class TasksRelease(Release["TaskAnswer", "TaskManifest", "RubricRows"]):
    """Release policy for scores of tasks."""

    primary: ClassVar = "rubric_mean"
    metrics: ClassVar = ("rubric_mean", "share_of_5", "cohen_kappa_quadratic")
    most_answers: ClassVar = 3  # readers score answers, and no score reveals a held-out label

    @override
    def largest_cell(self, manifest: TaskManifest) -> tuple[int, str]:
        return len(manifest.tasks), "tasks"

    @override
    def disclose(
        self,
        rows: RubricRows,
        resampling: Resampling,
        *,
        min_cell: int,
        ranked_by: str = "",
        left_out: Collection[str] = (),
    ) -> Disclosure:
        from reveal_bench.kinds.tasks.scoring import disclose_ratings

        return disclose_ratings(rows, self.metrics, resampling, min_cell=min_cell, left_out=left_out)

    @override
    def marks(self, predictions: Sequence[TaskAnswer], manifest: TaskManifest, thresholds: Thresholds) -> Marks:
        from reveal_bench.kinds.tasks.arrays import marks_of

        return marks_of(predictions, manifest, thresholds)

    @override
    def signs(self, predictions: Sequence[TaskAnswer], manifest: TaskManifest) -> list[str]:
        from reveal_bench.kinds.tasks.arrays import signs_of

        return signs_of(predictions, manifest)


class TasksDisplay(Display["TaskRecord", "TaskAnswer", "RubricRows"]):
    """Display of tasks."""

    question: ClassVar = "Open questions on chest radiography studies. Readers rate the answers."
    holds: ClassVar = "prompts, pictures and reference answers, one row per task"
    picture_words: ClassVar = "pictures are"
    outcomes: ClassVar = None
    run_report: ClassVar = "answers"

    @property
    @override
    def meanings(self) -> Mapping[str, str]:
        from reveal_bench.kinds.tasks.rows import MEANINGS

        return MEANINGS

    @override
    def case(self, record: TaskRecord) -> Case:
        from reveal_bench.kinds.tasks.cases import case_of_task

        return case_of_task(record)

    @override
    def case_answers(
        self,
        predictions: Sequence[TaskAnswer],
        records: Sequence[TaskRecord],
        rows: object,
        options: ScoringOptions,
    ) -> dict[str, list[CaseAnswer]]:
        from reveal_bench.kinds.tasks.cases import answers_of_tasks

        return answers_of_tasks(predictions, records)


TASKS: Kind[TaskRecord, TaskAnswer, TaskManifest, RubricRows, object] = Kind(
    name="tasks",
    config="tasks",
    key="task_id",
    counted="n_tasks",
    unit="task",
    data=TasksData(),
    table=TasksTable(),
    questions=TasksQuestions(),
    predictions=TasksPredictions(),
    scoring=TasksScoring(),
    release=TasksRelease(),
    display=TasksDisplay(),
)
"""Answers in words, with boxes if a task asks for them."""
