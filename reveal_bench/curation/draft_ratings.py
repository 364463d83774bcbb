"""Draft ratings of answers to open tasks by a model, told only beside their agreement with readers.

Conventions
-----------
A model reads the task, the reference answer and the answer, and gives the four scores of a text from 1 to 5 as readers
do (paper 001, section 3.3; the words are this project's). It sees the films with
:class:`reveal_bench.curation.film_grader.FilmGrader` alone. A draft is never a score: its table has a
column `grader` and none `reader`, so that nothing here takes it for readers' ratings, and it is not written where no
reader rated any of these answers. Content is the least of process, execution and synthesis. An answer to which the
model said nothing that can be read has no draft, and is counted.
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
    held,
    line_of,
    object_schema,
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
"""Version of the words."""

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
class Draft:
    """A model's scores of one answer to one task, and why."""

    task_id: str
    model: str
    grader: str
    process: int
    execution: int
    synthesis: int
    language: int
    why: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """Drafts beside one reader's ratings, on one criterion.

    Attributes
    ----------
    n : answers that both scored
    cohen_kappa_quadratic, mean_absolute_difference : as
        :func:`~reveal_bench.metrics.ordinal.reader_agreement` gives them; NaN where kappa is undefined
    """

    reader: str
    criterion: str
    n: int
    cohen_kappa_quadratic: float
    mean_absolute_difference: float


@dataclass(frozen=True)
class Drafts:
    """Drafts in the order of the answers, their agreement with every reader, and how many answers have none."""

    drafts: tuple[Draft, ...]
    agreement: tuple[Agreement, ...]
    n_unread: int


class Rater(Protocol):
    """What drafts."""

    @property
    def signature(self) -> str:
        """Model, task, version of the prompts, and a digest of all settings."""
        ...

    def run(
        self, answers: Sequence[tuple[str, TaskRecord, str]], progress: Progress | None = None
    ) -> Iterator[Draft | None]:
        """One draft per (model, task, answer); None for an answer without a readable one."""
        ...


class Grader(RetryingClient):
    """Rates answers with a model."""

    prompts: ClassVar[int] = PROMPTS

    def __init__(self, client: ModelClient) -> None:
        super().__init__(client, "ratings")

    def run(
        self, answers: Sequence[tuple[str, TaskRecord, str]], progress: Progress | None = None
    ) -> Iterator[Draft | None]:
        """One draft per (model, task, answer), as they come; None for an answer without a readable one."""
        return self.run_dialogues([self._dialogue(*one) for one in answers], progress)

    def _dialogue(self, model: str, task: TaskRecord, answer: str) -> Dialogue[Draft | None]:
        try:
            found = yield from self.read(rating_prompt(task, answer), [])
        except NoAnswer:
            return None
        return Draft(task.task_id, model, self.signature, **found)


def rating_prompt(task: TaskRecord, answer: str, *, with_films: bool = False) -> Prompt[dict[str, Any]]:
    """A task and an answer to it -> the scores, and why; `with_films` says that the films are shown before."""
    asked = {
        "task": task.prompt,
        "reason_for_the_study": task.indication,
        "reference_answer": task.reference_answer,
        "answer": answer,
    }

    system = f"{_SENDS_FILMS if with_films else _SENDS}\n{_FORM}"

    def read(text: str) -> dict[str, Any]:
        found = held(text, DRAFT_SCHEMA)
        return {**found, "why": line_of(found["why"], "why", MOST_CHARACTERS)}

    return Prompt(ModelRequest((("system", system), ("user", as_json(asked))), "rating", DRAFT_SCHEMA), read)


def draft_ratings(
    tasks: Sequence[TaskRecord],
    answers: Mapping[str, Sequence[TaskAnswer]],
    ratings: Sequence[Rating],
    grader: Rater,
    *,
    progress: Progress | None = None,
) -> Drafts:
    """Draft a rating of every answer.

    Parameters
    ----------
    tasks : with their reference answers, where there are any
    answers : model, as the ratings name it -> its answers, of these tasks
    ratings : of readers, of at least one of the answers

    Raises
    ------
    ArgumentError
        If no reader rated any of the answers.
    RunStoppedError
        If the endpoint does not answer; the answers so far are kept.
    """
    given = [(model, one.task_id, one.answer) for model, found in answers.items() for one in found]
    rated = {(task_id, model) for task_id, model in rated_answers(ratings)}
    if not any((task_id, model) in rated for model, task_id, _ in given):
        rule = "must be of some of these answers: drafts are shown only with their agreement with readers"
        raise ArgumentError("ratings", rule, f"none of {', '.join(answers)}")
    by_id = {task.task_id: task for task in tasks}
    asked = [(model, by_id[task_id], answer) for model, task_id, answer in given]
    found = {(one.model, one.task_id): one for one in grader.run(asked, progress) if one is not None}
    drafts = tuple(found[key] for model, task_id, _ in given if (key := (model, task_id)) in found)
    return Drafts(drafts, tuple(_agreement(drafts, ratings)), len(given) - len(drafts))


def _agreement(drafts: Sequence[Draft], ratings: Sequence[Rating]) -> Iterator[Agreement]:
    """With every reader who rated some of what was drafted, in the order of their names."""
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
                yield Agreement(reader, one.criterion, one.n, one.kappa, one.mean_absolute_difference)


def write_drafts(out: Path, drafts: Drafts) -> None:
    """Write ``drafts.csv`` and, beside it, ``agreement.csv`` into `out`."""
    for name, rows, kind in (("drafts.csv", drafts.drafts, Draft), ("agreement.csv", drafts.agreement, Agreement)):
        with (out / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, kind.__dataclass_fields__, lineterminator="\n")
            writer.writeheader()
            writer.writerows(_filled(asdict(row)) for row in rows)


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a table has it: undefined is blank."""
    return {name: "" if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}
