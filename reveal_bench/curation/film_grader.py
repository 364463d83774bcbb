"""Let a model that sees the images draft ratings; inspect_ai asks this model in the role "grader".

Conventions
-----------
The grader sees the same images as a model that answers the task, followed by the JSON object that
:class:`reveal_bench.curation.draft_ratings.Grader` sends. The logs in ``<out>/logs`` store the grader's completions,
without images, under a digest of everything that a completion depends on. An interrupted run therefore requests only
the missing completions. If an answer cannot be read, the grader is asked again with the reason, a few times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reveal_bench.curation.draft_ratings import PROMPTS, DraftRating, rating_prompt
from reveal_bench.curation.folder import Progress
from reveal_bench.curation.report_prompts import Prompt, UnreadableAnswerError
from reveal_bench.kinds.questions import Question
from reveal_bench.kinds.tasks.records import TaskRecord
from reveal_bench.models.inspect_logs import read_completions
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import compose
from reveal_bench.models.questions import AskSettings, Message, Role, describe_split, list_questions
from reveal_bench.models.run_monitor import RunWatcher
from reveal_bench.models.running import LOGS, ModelChoice, contained_environment, evaluate_task

if TYPE_CHECKING:
    from inspect_ai.solver import Solver

ROLE = "grader"
_MORE_TRIES = 2
"""Further attempts after an answer that cannot be read."""


@dataclass(frozen=True)
class RatingTask:
    """An answer to rate: the task as a question with its images, and the prompt for the scores."""

    key: str
    question: Question
    prompt: Prompt[dict[str, Any]]


class FilmGrader:
    """Rates answers with a model that sees the images.

    Parameters
    ----------
    folder, split : dataset folder with the images, and the answered split
    choice : the model
    out : folder for its logs

    Raises
    ------
    ValueError
        If the folder has no such split.
    ImportError
        If `inspect_ai` is not installed.
    """

    def __init__(self, folder: Path, split: str, choice: ModelChoice, out: Path) -> None:
        self._settings, self._pictures = AskSettings.of_folder(folder), FolderPictures(folder)
        self._questions = {one.id: one for one in list_questions(folder, split, self._settings)}
        self._choice, self._out = choice, out
        depends = [describe_split(folder, split)["dataset"], choice.parameters, self._settings.document(), _MORE_TRIES]
        self._digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def signature(self) -> str:
        """Model, task, version of the prompts, and a digest of images and settings."""
        return f"{self._choice.name}|ratings with films|prompts:{PROMPTS}|settings:{self._digest}"

    def run(
        self, answers: Sequence[tuple[str, TaskRecord, str]], progress: Progress | None = None
    ) -> Iterator[DraftRating | None]:
        """Yield one draft per (model, task, answer), in order; None for an answer without a readable draft.

        Raises
        ------
        RunStoppedError
            If the endpoint does not answer; earlier completions are kept.
        """
        asked = [self._asked(task, answer) for _, task, answer in answers]
        with contained_environment(self._out):
            replies = read_completions(self._out / LOGS)
            left = {one.key: one for one in asked if one.key not in replies}
            if left:
                replies |= self._ask(left, len(asked), progress)
        for (model, task, _), one in zip(answers, asked, strict=True):
            try:
                scores = one.prompt.read(replies.get(one.key, ""))
            except UnreadableAnswerError:
                yield None
            else:
                yield DraftRating(task.task_id, model, self.signature, **scores)

    def _asked(self, task: TaskRecord, answer: str) -> RatingTask:
        prompt = rating_prompt(task, answer, with_films=True)
        words = json.dumps([self.signature, task.task_id, prompt.request.messages])
        return RatingTask(hashlib.sha256(words.encode()).hexdigest(), self._questions[task.task_id], prompt)

    def _ask(self, left: Mapping[str, RatingTask], n: int, progress: Progress | None) -> dict[str, str]:
        from inspect_ai import Task
        from inspect_ai.dataset import MemoryDataset, Sample

        def tell(_what: str, done: int, total: int, *_: object) -> None:
            if progress is not None:
                progress(n - total + done, n)

        watcher = RunWatcher(tell, "rating", len(left), [], patience=self._choice.attempt_timeout)
        task = Task(
            dataset=MemoryDataset([Sample(input=key, id=key) for key in left], name="ratings"),
            solver=self._solver(left, watcher),
            metadata={"reveal_bench": {"grader": self.signature}},
            fail_on_error=False,
        )
        evaluate_task(task, self._out / LOGS, self._choice, self._choice.parameters, watcher, role=ROLE)
        return read_completions(self._out / LOGS)

    def _solver(self, asked: Mapping[str, RatingTask], watcher: RunWatcher) -> Solver:
        import anyio
        from inspect_ai.model import get_model
        from inspect_ai.solver import Generate, TaskState, solver

        from reveal_bench.models.inspect_tasks import NotAskedError, ask_question, chat_message

        async def answered(one: RatingTask, films: tuple[Any, ...], state: TaskState) -> TaskState:
            """Ask the grader until its answer can be read, at most ``_MORE_TRIES + 1`` times."""
            prompt = one.prompt
            for _ in range(_MORE_TRIES + 1):
                messages = [Message(cast(Role, role), (text,)) for role, text in prompt.request.messages]
                messages[1] = Message("user", (*films, *messages[1].parts))
                state.messages = [chat_message(message, self._settings.detail) for message in messages]
                state.output = await get_model(role=ROLE).generate(state.messages)
                try:
                    prompt.read(state.output.completion)
                except UnreadableAnswerError as error:
                    prompt = prompt.again(state.output.completion, str(error))
                else:
                    break
            return state

        @solver(name="rate_answer")
        def rate_answer() -> Solver:
            async def solve(state: TaskState, generate: Generate) -> TaskState:
                if watcher.is_over():
                    raise NotAskedError
                one = asked[str(state.sample_id)]
                films = await anyio.to_thread.run_sync(partial(self._films, one.question))
                state, failed = await ask_question(state, partial(answered, one, films), watcher)
                watcher.count_attempt(failed)
                watcher.count_done("answered" if failed is None else "failed")
                if failed is not None:
                    raise failed from None
                return state

            return solve

        return rate_answer()

    def _films(self, question: Question) -> tuple[Any, ...]:
        """Return the task's numbered images, without the task's text."""
        return compose(question, self._settings, pictures=self._pictures)[-1].parts[:-1]
