"""Define tasks for inspect_ai: ``inspect eval reveal_bench/grid_localization -T folder=... -T split=... --model ...``.

Conventions
-----------
A sample is a question; the sample's metadata contain the question and the examples, but no reference or path. The
messages and their images are made only when the question is asked, so that they fill neither memory nor log.
:mod:`reveal_bench.models.inspect_logs` reads the logs.

inspect's own score says only whether a reply could be parsed. ``reveal-bench score`` counts hits, and only its scores
are meant to be published: they divide by all questions of the manifest, whereas inspect divides by the samples that
succeeded.

This module is the package's entry point `inspect_ai`. Besides this module, only :mod:`reveal_bench.models.running`,
:mod:`reveal_bench.models.inspect_logs` and :mod:`reveal_bench.curation.film_grader` import inspect_ai.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from reveal_bench.kinds.folder import AnyFolder
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.calibration import Drawings
from reveal_bench.models.control_pictures import control_pictures
from reveal_bench.models.coordinates import AUTO
from reveal_bench.models.endpoints import names_content_filter, reason_text
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import compose
from reveal_bench.models.questions import (
    AskSettings,
    Message,
    PictureSource,
    PromptImage,
    describe_split,
    list_questions,
)
from reveal_bench.models.shots import Shot, ShotPool
from reveal_bench.version import __version__

PICTURE = "data:image/png;base64,"
ROLES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


class Watcher(Protocol):
    """Monitors a task, and may stop it."""

    def asking_scope(self) -> AbstractContextManager[anyio.CancelScope]:
        """Return a scope for asking one question, which is cancelled when the run stops."""
        ...

    def count_attempt(self, error: Exception | None) -> None:
        """Count an attempt at a question, which was answered if `error` is None, and otherwise may be asked again."""

    def count_done(self, status: str) -> None:
        """Count a finished question."""

    def is_over(self) -> bool:
        """Return True if the remaining questions must not be asked."""
        ...


@dataclass(frozen=True)
class Asking:
    """A set of questions with everything needed to ask them.

    Attributes
    ----------
    settings : how the questions are asked
    questions : the questions, in the order of asking
    facts : facts about the origin of the questions, for the log
    pictures : question -> its images and the images of its examples
    shots : question -> its examples
    """

    settings: AskSettings
    questions: Sequence[Question]
    facts: Mapping[str, Any]
    pictures: Callable[[Question], PictureSource]
    shots: Mapping[str, Sequence[Shot]]

    @classmethod
    def of_folder(
        cls,
        folder: AnyFolder,
        split: str,
        settings: AskSettings,
        *,
        limit: int | None = None,
        counterfactuals: Path | None = None,
    ) -> Asking:
        """Return the questions of a split, or of the part that `folder` selects, or only the first `limit` of these.

        `counterfactuals` are the images of the control "without-finding".

        Raises
        ------
        ValueError
            If folder, split or settings are invalid, or an image of a question is missing.
        """
        questions, folder = list_questions(folder, split, settings, limit=limit), Path(folder)
        every = list_questions(folder, split, settings)
        pictures = FolderPictures(folder)
        held = set(pictures.ids)
        lacking = [view.image_id for question in questions for view in question.images if view.image_id not in held]
        if lacking:
            raise ValueError(f"{folder} must have the images of all questions, {len(lacking)} lack: {lacking[0]}")
        pool = ShotPool(folder, settings)
        facts = {**describe_split(folder, split), "n_questions": len(every)}
        shots = {question.id: pool.pick(question) for question in questions}
        changed = control_pictures(
            folder, split, settings, pictures, held=pictures.ids, counterfactuals=counterfactuals
        )
        return cls(settings, questions, facts, changed, shots)

    @classmethod
    def of_drawings(cls, settings: AskSettings) -> Asking:
        """Return the questions about drawings that show which coordinates a model uses; `settings` apply otherwise."""
        drawings = Drawings(settings.form)
        own = replace(
            settings, coordinates=AUTO, corners=False, control=None, style="zero-shot", shots=0, shots_split=None
        )
        shots = {question.id: () for question in drawings.questions}
        return cls(
            own, drawings.questions, {"benchmark": "drawings", "split": settings.form}, lambda _: drawings, shots
        )

    def task(
        self,
        questions: Sequence[Question] | None = None,
        *,
        epoch: int = 1,
        facts: dict[str, Any] | None = None,
        watcher: Watcher | None = None,
        keep_pictures: bool = False,
    ) -> Task:
        """Return a task that asks `questions`, by default all.

        Parameters
        ----------
        epoch : number of inspect's first epoch
        facts : added to the log
        keep_pictures : log the images
        """
        versions = {"settings": self.settings.document(), "reveal_bench": __version__}
        samples = [self._sample(question, epoch) for question in (self.questions if questions is None else questions)]
        return Task(
            dataset=MemoryDataset(samples, name=f"{self.facts['benchmark']}-{self.facts['split']}"),
            solver=_asking_solver(self, watcher, keep_pictures=keep_pictures),
            scorer=None if self.settings.coordinates == AUTO else _parsing_scorer(self.settings, watcher),
            metadata={"reveal_bench": {**self.facts, **versions, **(facts or {})}},
            fail_on_error=False,
        )

    def messages(self, question: Question) -> list[ChatMessage]:
        """Return the messages of a question, with their images."""
        composed = compose(question, self.settings, pictures=self.pictures(question), shots=self.shots[question.id])
        return [chat_message(message, self.settings.detail) for message in composed]

    def _sample(self, question: Question, epoch: int) -> Sample:
        shots = [asdict(shot.used) for shot in self.shots[question.id]]
        metadata = {"question": question.document(), "shots": shots, "first_epoch": epoch}
        return Sample(input=question.id, id=_safe(question.id), metadata=metadata)


def _safe(question_id: str) -> str:
    """Return a sample id that is a valid file name for the log; the question is in the metadata."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", question_id)
    return f"{plain[:100]}-{hashlib.sha256(question_id.encode()).hexdigest()[:8]}"


def chat_message(message: Message, detail: Any) -> ChatMessage:
    """Return a message of the conversation as an inspect_ai message."""
    content = [
        ContentImage(image=f"{PICTURE}{base64.b64encode(part.png).decode()}", detail=detail)
        if isinstance(part, PromptImage)
        else ContentText(text=part)
        for part in message.parts
    ]
    if message.role == "system":  # several APIs accept only text in a system message
        return ChatMessageSystem(content="\n\n".join(part for part in message.parts if isinstance(part, str)))
    made: ChatMessage = ROLES[message.role](content=content)
    return made


class NotAskedError(Exception):
    """The run ended before the question was asked."""


class UnansweredError(Exception):
    """A failed request; only `message` is logged, which contains neither a key nor the request itself.

    `status` is the HTTP status of the last attempt; None without a response, or if the provider's SDK does not say.
    """

    def __init__(self, raised: Exception) -> None:
        attempt = getattr(raised, "last_attempt", None)  # set by the retry library
        last = raised if attempt is None else attempt.exception() or raised
        message = getattr(last, "provider_message", None) or f"{type(last).__name__}: {last}"
        self.message = reason_text(message)
        self.status: int | None = getattr(last, "status_code", None)
        super().__init__(self.message)

    @property
    def is_filtered(self) -> bool:
        """True if a content filter refused this question, see :func:`names_content_filter`."""
        return names_content_filter(self.status, self.message)


def _asking_solver(asking: Asking, watcher: Watcher | None, *, keep_pictures: bool) -> Solver:
    @solver(name="put_question")
    def put_question() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            if watcher is not None and watcher.is_over():
                raise NotAskedError
            question = Question.from_document(state.metadata["question"])
            state.messages = await anyio.to_thread.run_sync(partial(asking.messages, question))
            # A tool call is not answered: inspect would ask again and again.
            ask = partial(generate, tool_calls="none")
            state, error = await ask_question(state, ask, watcher, keep_pictures=keep_pictures)
            if error is not None and error.is_filtered:  # inspect_ai does so itself if the provider sends a code
                name = str(state.model)
                state.output = ModelOutput.from_content(name, error.message, stop_reason="content_filter")
                error = None
            if watcher is not None:
                watcher.count_attempt(error)
            if error is not None:
                raise error from None  # a logged traceback would contain the provider's messages
            return state

        return solve

    return put_question()


async def ask_question(
    state: TaskState,
    ask: Callable[[TaskState], Awaitable[TaskState]],
    watcher: Watcher | None = None,
    *,
    keep_pictures: bool = False,
) -> tuple[TaskState, UnansweredError | None]:
    """Ask a question; return (state, error). `error` is any exception that the provider's client raised, or None.

    Raises
    ------
    NotAskedError
        If the run stopped meanwhile.
    """
    error: UnansweredError | None = None
    with anyio.CancelScope() if watcher is None else watcher.asking_scope() as scope:
        try:
            state = await ask(state)
        except Exception as raised:
            error = UnansweredError(raised)
        finally:
            _clear_pictures(state, keep_pictures=keep_pictures)
    if scope.cancelled_caught:
        raise NotAskedError
    return state, error


def _clear_pictures(state: TaskState, *, keep_pictures: bool) -> None:
    """Keep the sampling options that were sent (providers drop unsupported ones), and drop the images."""
    for event in transcript().events:
        if isinstance(event, ModelEvent):
            if event.call is not None:
                state.metadata["sent"] = {"temperature": event.call.request.get("temperature")}
            if not keep_pictures:
                event.input, event.call = [_without_pictures(message) for message in event.input], None
            event.error, event.traceback, event.traceback_ansi = event.error and reason_text(event.error), None, None
    if not keep_pictures:
        held = transcript().attachments  # some providers attach whole requests
        for name in [name for name, text in held.items() if PICTURE in text]:
            del held[name]
        state.messages = [_without_pictures(message) for message in state.messages]


def _without_pictures(message: ChatMessage) -> ChatMessage:
    if isinstance(message.content, str):
        return message
    content = [ContentText(text="(picture)") if isinstance(part, ContentImage) else part for part in message.content]
    return message.model_copy(update={"content": content})


def _parsing_scorer(settings: AskSettings, watcher: Watcher | None) -> Scorer:
    @scorer(metrics=[mean()], name="answered")
    def answered() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            question = Question.from_document(state.metadata["question"])
            if not state.output.choices:
                status, note = "failed", None
            else:
                stop_reason = state.output.stop_reason
                reply = read_reply(state.output.completion, question, settings, stop_reason=stop_reason)
                status, note = reply.status, reply.note
            if watcher is not None:
                watcher.count_done(status)
            return Score(value=int(status == "answered"), answer=status, explanation=note)

        return score

    return answered()


def _task(folder: str, split: str, form: str, **options: Any) -> Task:
    settings = AskSettings.of_folder(Path(str(folder)), form=form, **options)
    return Asking.of_folder(Path(str(folder)), str(split), settings).task()


@task
def grid_localization(
    folder: str,
    split: str,
    style: str = "zero-shot",
    grid: int | None = None,
    side: int | None = None,
    shots: int = 3,
    shots_split: str | None = None,
    seed: int = 0,
    detail: str = "high",
) -> Task:
    """The position of a finding, as a cell of a grid (paper 000); parameters as in ``AskSettings.of_folder``."""
    options = {"style": style, "grid": grid, "side": side, "shots": shots, "shots_split": shots_split}
    return _task(folder, split, "cell", seed=seed, detail=detail, **options)


@task
def localization_point(
    folder: str,
    split: str,
    style: str = "zero-shot",
    side: int | None = None,
    shots: int = 3,
    shots_split: str | None = None,
    seed: int = 0,
    detail: str = "high",
    coordinates: str = "pixels",
) -> Task:
    """The position of a finding, as a point."""
    options = {"style": style, "side": side, "shots": shots, "shots_split": shots_split, "coordinates": coordinates}
    return _task(folder, split, "point", seed=seed, detail=detail, **options)


@task
def localization_box(
    folder: str,
    split: str,
    style: str = "zero-shot",
    side: int | None = None,
    shots: int = 3,
    shots_split: str | None = None,
    seed: int = 0,
    detail: str = "high",
    coordinates: str = "pixels",
) -> Task:
    """The position of a finding, as a box."""
    options = {"style": style, "side": side, "shots": shots, "shots_split": shots_split, "coordinates": coordinates}
    return _task(folder, split, "box", seed=seed, detail=detail, **options)


@task
def detection_boxes(
    folder: str,
    split: str,
    style: str = "zero-shot",
    side: int | None = None,
    detail: str = "high",
    coordinates: str = "pixels",
) -> Task:
    """The presence and position of a finding, as any number of boxes with scores."""
    return _task(folder, split, "boxes", style=style, side=side, detail=detail, coordinates=coordinates)


@task
def findings_labels(
    folder: str,
    split: str,
    style: str = "zero-shot",
    side: int | None = None,
    detail: str = "high",
    views: str = "all",
) -> Task:
    """The benchmark's labels present in a study."""
    return _task(folder, split, "labels", style=style, side=side, detail=detail, views=views)


@task
def open_tasks(
    folder: str,
    split: str,
    style: str = "zero-shot",
    side: int | None = None,
    detail: str = "high",
    coordinates: str = "pixels",
    views: str = "all",
) -> Task:
    """Open tasks on studies (paper 001), answered in words and, if a task asks for boxes, with boxes."""
    options = {"style": style, "side": side, "detail": detail, "coordinates": coordinates, "views": views}
    return _task(folder, split, "text", **options)
