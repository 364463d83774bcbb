"""Let a model draft ratings of answers to open tasks, reported only together with their agreement with readers.

Conventions
-----------
A model reads a task, its reference answer and an answer to rate, and gives this answer four scores from 1 to 5, as
readers do (paper 001, section 3.3; the wording of the prompts is this project's). Only
:class:`reveal_bench.curation.film_grader.FilmGrader` shows the model the images. A draft is never a score. The table of
drafts has a column `grader` and no column `reader`, so that no command mistakes drafts for readers' ratings. The table
is written only if a reader rated at least one of these answers. The score `content` is the minimum of process,
execution and synthesis. Answers without a readable draft are counted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.curation.folder import Progress
from reveal_bench.curation.model_engine import NoAnswer, RetryingClient
from reveal_bench.curation.report_prompts import (
    DATA_ALONE,
    ONE_OBJECT,
    Prompt,
    as_json,
    line_of,
    object_schema,
    parse_object,
)
from reveal_bench.kinds.tasks.records import (
    Rating,
    TaskAnswer,
    TaskRecord,
    meaning,
    rated_answers,
    rating_array,
)
from reveal_bench.metrics.ordinal import CRITERIA, HIGHEST, LOWEST, REPORTED_OF_TEXT, reader_agreement
from reveal_bench.models.model_client import Dialogue, ModelClient, ModelRequest

TEXT_CRITERIA = tuple(name for name in CRITERIA if name in REPORTED_OF_TEXT)
SCORES = range(LOWEST, HIGHEST + 1)
MOST_CHARACTERS = 500
PROMPTS = 1
"""Version of the prompts' wording."""

DRAFT_SCHEMA = object_schema(
    why={"type": "string"}, **{name: {"type": "integer", "enum": list(SCORES)} for name in TEXT_CRITERIA}
)

_SCALE = "\n".join(
    f'"{name}":\n' + "\n".join(f"  {score}: {meaning(name, score)}" for score in SCORES) for name in TEXT_CRITERIA
)
_SENDS = """The user sends a JSON object: a task on a chest radiograph, the reason for the study, a reference answer
by a radiologist, which may be missing, and an answer to rate. Rate the answer by what the reference answer says; you
do not see the images. Whole numbers:"""
_SENDS_FILMS = """The user sends the pictures of a chest radiograph, then a JSON object: a task on them, the reason for
the study, a reference answer by a radiologist, which may be missing, and an answer to rate. Rate the answer by what the
reference answer says and by what the pictures show. Whole numbers:"""
_FORM = f"""{_SCALE}
"why" is one sentence on what decided.

{ONE_OBJECT}
{{"why": "It misses the effusion.", "process": 4, "execution": 2, "synthesis": 3, "language": 5}}
{DATA_ALONE}"""


@dataclass(frozen=True, slots=True)
class DraftRating:
    """A model's scores for one answer to a task, with the model's reason."""

    task_id: str
    model: str
    grader: str
    process: int
    execution: int
    synthesis: int
    language: int
    why: str


@dataclass(frozen=True, slots=True)
class DraftAgreement:
    """Agreement of the drafts with one reader's ratings, on one criterion.

    Attributes
    ----------
    n : number of answers that both model and reader scored
    cohen_kappa_quadratic, mean_absolute_difference : from
        :func:`~reveal_bench.metrics.ordinal.reader_agreement`; NaN if kappa is undefined
    """

    reader: str
    criterion: str
    n: int
    cohen_kappa_quadratic: float
    mean_absolute_difference: float


@dataclass(frozen=True)
class DraftRatings:
    """Drafts in the order of the answers, agreement with every reader, and the number of answers without a draft."""

    drafts: tuple[DraftRating, ...]
    agreement: tuple[DraftAgreement, ...]
    n_unread: int


class Rater(Protocol):
    """A source of draft ratings."""

    @property
    def signature(self) -> str:
        """Model, task, version of the prompts, and a digest of all settings."""
        ...

    def run(
        self, answers: Sequence[tuple[str, TaskRecord, str]], progress: Progress | None = None
    ) -> Iterator[DraftRating | None]:
        """Yield one draft per (model, task, answer); None for an answer without a readable draft."""
        ...


class Grader(RetryingClient):
    """Rates answers with a model."""

    prompts: ClassVar[int] = PROMPTS

    def __init__(self, client: ModelClient) -> None:
        super().__init__(client, "ratings")

    def run(
        self, answers: Sequence[tuple[str, TaskRecord, str]], progress: Progress | None = None
    ) -> Iterator[DraftRating | None]:
        """Yield one draft per (model, task, answer), in order of completion; None if no draft is readable."""
        return self.run_dialogues([self._dialogue(*one) for one in answers], progress)

    def _dialogue(self, model: str, task: TaskRecord, answer: str) -> Dialogue[DraftRating | None]:
        try:
            scores = yield from self.read(rating_prompt(task, answer), [])
        except NoAnswer:
            return None
        return DraftRating(task.task_id, model, self.signature, **scores)


def rating_prompt(task: TaskRecord, answer: str, *, with_films: bool = False) -> Prompt[dict[str, Any]]:
    """Return the prompt that asks to rate an answer to a task; `with_films` means that images precede the prompt."""
    asked = {
        "task": task.prompt,
        "reason_for_the_study": task.indication,
        "reference_answer": task.reference_answer,
        "answer": answer,
    }

    system = f"{_SENDS_FILMS if with_films else _SENDS}\n{_FORM}"

    def read(text: str) -> dict[str, Any]:
        scores = parse_object(text, DRAFT_SCHEMA)
        return {**scores, "why": line_of(scores["why"], "why", MOST_CHARACTERS)}

    return Prompt(ModelRequest((("system", system), ("user", as_json(asked))), "rating", DRAFT_SCHEMA), read)


def draft_ratings(
    tasks: Sequence[TaskRecord],
    answers: Mapping[str, Sequence[TaskAnswer]],
    ratings: Sequence[Rating],
    grader: Rater,
    *,
    progress: Progress | None = None,
) -> DraftRatings:
    """Draft a rating of every answer.

    Parameters
    ----------
    tasks : the tasks, with their reference answers, if any
    answers : model name in the ratings -> the model's answers to these tasks
    ratings : readers' ratings of at least one of the answers

    Raises
    ------
    ArgumentError
        If no reader rated any of the answers.
    RunStoppedError
        If the endpoint does not answer; earlier completions are kept.
    """
    rateable = [(model, one.task_id, one.answer) for model, own in answers.items() for one in own]
    rated = {(task_id, model) for task_id, model in rated_answers(ratings)}
    if not any((task_id, model) in rated for model, task_id, _ in rateable):
        rule = "must rate some of these answers: drafts are shown only with their agreement with readers"
        raise ArgumentError("ratings", rule, f"none of {', '.join(answers)}")
    by_id = {task.task_id: task for task in tasks}
    asked = [(model, by_id[task_id], answer) for model, task_id, answer in rateable]
    by_key = {(one.model, one.task_id): one for one in grader.run(asked, progress) if one is not None}
    drafts = tuple(by_key[key] for model, task_id, _ in rateable if (key := (model, task_id)) in by_key)
    return DraftRatings(drafts, tuple(_agreement(drafts, ratings)), len(rateable) - len(drafts))


def _agreement(drafts: Sequence[DraftRating], ratings: Sequence[Rating]) -> Iterator[DraftAgreement]:
    """Yield the agreement with every reader who rated a drafted answer, in the order of their names."""
    as_ratings = [
        Rating(one.task_id, one.model, one.grader, one.process, one.execution, one.synthesis, one.language)
        for one in drafts
    ]
    answers = rated_answers(as_ratings)
    drafted = set(answers)
    for reader in sorted({one.reader for one in ratings if (one.task_id, one.model) in drafted}):
        theirs = rating_array(ratings, reader=reader, answers=answers)
        ours = rating_array(as_ratings, reader=drafts[0].grader, answers=answers)
        for one in reader_agreement(ours, theirs, criteria=REPORTED_OF_TEXT):
            if one.n:
                yield DraftAgreement(reader, one.criterion, one.n, one.kappa, one.mean_absolute_difference)


def write_drafts(out: Path, drafts: DraftRatings) -> None:
    """Write ``drafts.csv`` and ``agreement.csv`` into `out`."""
    for name, rows, kind in (
        ("drafts.csv", drafts.drafts, DraftRating),
        ("agreement.csv", drafts.agreement, DraftAgreement),
    ):
        with (out / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, kind.__dataclass_fields__, lineterminator="\n")
            writer.writeheader()
            writer.writerows(_filled(asdict(row)) for row in rows)


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``drafts.csv`` or ``agreement.csv``, with undefined values blank."""
    return {name: "" if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}
