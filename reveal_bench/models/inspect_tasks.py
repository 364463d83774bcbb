"""Tasks for inspect_ai: ``inspect eval reveal_bench/grid_localization -T folder=... -T split=... --model ...``.

Conventions
-----------
A sample is a question; its metadata says which one and which examples it shows, never a reference or a path. The
messages with their pictures are made when the question is put, so that neither memory nor log fills with them. What the
log holds is read back by :mod:`reveal_bench.models.inspect_logs`.

inspect's own score says only whether a reply could be read. Hits are counted by ``reveal-bench score``, whose numbers
alone are meant to be published: its denominator is the manifest, inspect's are the samples that did not fail.

This module is the entry point `inspect_ai` of the package, and together with :mod:`reveal_bench.models.running`,
:mod:`reveal_bench.models.inspect_logs` and :mod:`reveal_bench.curation.film_grader` the only one that imports that
library.
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

from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.calibration import Drawings
from reveal_bench.models.control_pictures import control_pictures
from reveal_bench.models.coordinates import AUTO
from reveal_bench.models.endpoints import names_content_filter, reason_text
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.models.prompts import compose
from reveal_bench.models.questions import AskSettings, Message, PictureSource, Shown, describe_split, list_questions
from reveal_bench.models.shots import Shot, ShotPool
from reveal_bench.version import __version__

PICTURE = "data:image/png;base64,"
ROLES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


class Watcher(Protocol):
    """Follows how a task goes, and may end it."""

    def putting(self) -> AbstractContextManager[anyio.CancelScope]:
        """A question is put meanwhile; the scope is cancelled when nothing is to be asked any more."""
        ...

    def tried(self, error: Exception | None) -> None:
        """A question was put, and answered unless there is an error; it may be put again."""

    def done(self, status: str) -> None:
        """A question is done with."""

    def is_over(self) -> bool:
        """Whether what is left is not to be asked any more."""
        ...


@dataclass(frozen=True)
class Asking:
    """All that is needed to put some questions: the questions, their pictures and examples.

    Attributes
    ----------
    settings : how they are put
    questions : in the order in which they are put
    facts : what they belong to, for the log
    pictures : for a question, of it and its examples
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
        folder: Path,
        split: str,
        settings: AskSettings,
        *,
        limit: int | None = None,
        counterfactuals: Path | None = None,
    ) -> Asking:
        """The questions of a split of a dataset folder, the first `limit` of them if it is given.

        `counterfactuals` are the pictures of the control "without-finding".

        Raises
        ------
        ValueError
            If folder, split or settings are not what they must be, or a picture is missing that a question shows.
        """
        every = list_questions(folder, split, settings)
        questions = list_questions(folder, split, settings, limit=limit)
        pictures = FolderPictures(folder)
        held = set(pictures.ids)
        lacking = [view.image_id for question in questions for view in question.images if view.image_id not in held]
        if lacking:
            raise ValueError(f"{folder} must hold the picture of every image asked, {len(lacking)} lack: {lacking[0]}")
        pool = ShotPool(folder, settings)
        facts = {**describe_split(folder, split), "n_questions": len(every)}
        shots = {question.id: pool.pick(question) for question in questions}
        changed = control_pictures(
            folder, split, settings, pictures, held=pictures.ids, counterfactuals=counterfactuals
        )
        return cls(settings, questions, facts, changed, shots)

    @classmethod
    def of_drawings(cls, settings: AskSettings) -> Asking:
        """The drawings that tell which coordinates a model is used to, asked about as `settings` say."""
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
        """A task of `questions`, all by default.

        Parameters
        ----------
        epoch : that of inspect's first
        facts : to be added to the log
        keep_pictures : in the log
        """
        told = {"settings": self.settings.document(), "reveal_bench": __version__}
        samples = [self._sample(question, epoch) for question in (self.questions if questions is None else questions)]
        return Task(
            dataset=MemoryDataset(samples, name=f"{self.facts['benchmark']}-{self.facts['split']}"),
            solver=_putting(self, watcher, keep_pictures=keep_pictures),
            scorer=None if self.settings.coordinates == AUTO else _answering(self.settings, watcher),
            metadata={"reveal_bench": {**self.facts, **told, **(facts or {})}},
            fail_on_error=False,
        )

    def messages(self, question: Question) -> list[ChatMessage]:
        """The messages of a question, with their pictures."""
        composed = compose(question, self.settings, pictures=self.pictures(question), shots=self.shots[question.id])
        return [chat_message(message, self.settings.detail) for message in composed]

    def _sample(self, question: Question, epoch: int) -> Sample:
        shots = [asdict(shot.used) for shot in self.shots[question.id]]
        metadata = {"question": question.document(), "shots": shots, "first_epoch": epoch}
        return Sample(input=question.id, id=_safe(question.id), metadata=metadata)


def _safe(question_id: str) -> str:
    """A name that a file in the log may have; the question itself is in the metadata."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", question_id)
    return f"{plain[:100]}-{hashlib.sha256(question_id.encode()).hexdigest()[:8]}"


def chat_message(message: Message, detail: Any) -> ChatMessage:
    """A turn of the conversation, as inspect_ai has it."""
    content = [
        ContentImage(image=f"{PICTURE}{base64.b64encode(part.png).decode()}", detail=detail)
        if isinstance(part, Shown)
        else ContentText(text=part)
        for part in message.parts
    ]
    if message.role == "system":  # several APIs take nothing but a text here
        return ChatMessageSystem(content="\n\n".join(part for part in message.parts if isinstance(part, str)))
    made: ChatMessage = ROLES[message.role](content=content)
    return made


class NotAskedError(Exception):
    """The run was over before the question's turn."""


class UnansweredError(Exception):
    """A request was given up; `message`, all that the log says of it, holds no key, and not the request itself.

    `status` is that of HTTP, of the last attempt; None if there was no answer, or the provider's SDK does not tell.
    """

    def __init__(self, raised: Exception) -> None:
        attempt = getattr(raised, "last_attempt", None)  # of the library that tries again
        last = raised if attempt is None else attempt.exception() or raised
        told = getattr(last, "provider_message", None) or f"{type(last).__name__}: {last}"
        self.message = reason_text(told)
        self.status: int | None = getattr(last, "status_code", None)
        super().__init__(self.message)

    @property
    def is_filtered(self) -> bool:
        """Whether a content filter refused this one question, see :func:`names_content_filter`."""
        return names_content_filter(self.status, self.message)


def _putting(asking: Asking, watcher: Watcher | None, *, keep_pictures: bool) -> Solver:
    @solver(name="put_question")
    def put_question() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            if watcher is not None and watcher.is_over():
                raise NotAskedError
            question = Question.from_document(state.metadata["question"])
            state.messages = await anyio.to_thread.run_sync(partial(asking.messages, question))
            state, error = await put(state, generate, watcher, keep_pictures=keep_pictures)
            if error is not None and error.is_filtered:  # as inspect_ai has it where there is a code for it
                name = str(state.model)
                state.output = ModelOutput.from_content(name, error.message, stop_reason="content_filter")
                error = None
            if watcher is not None:
                watcher.tried(error)
            if error is not None:
                raise error from None  # a traceback with the messages of others would be logged, too
            return state

        return solve

    return put_question()


async def put(
    state: TaskState,
    ask: Callable[[TaskState], Awaitable[TaskState]],
    watcher: Watcher | None = None,
    *,
    keep_pictures: bool = False,
) -> tuple[TaskState, UnansweredError | None]:
    """The state after asking, and why there is no answer: whatever a provider's client raises leaves it unanswered.

    Raises
    ------
    NotAskedError
        If the run was stopped meanwhile.
    """
    error: UnansweredError | None = None
    with anyio.CancelScope() if watcher is None else watcher.putting() as scope:
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
    """Keep what of the sampling was sent (a provider drops what its model does not take); then let pictures go."""
    for event in transcript().events:
        if isinstance(event, ModelEvent):
            if event.call is not None:
                state.metadata["sent"] = {"temperature": event.call.request.get("temperature")}
            if not keep_pictures:
                event.input, event.call = [_without_pictures(message) for message in event.input], None
            event.error, event.traceback, event.traceback_ansi = event.error and reason_text(event.error), None, None
    if not keep_pictures:
        held = transcript().attachments  # of requests, as some providers hand them over whole
        for name in [name for name, text in held.items() if PICTURE in text]:
            del held[name]
        state.messages = [_without_pictures(message) for message in state.messages]


def _without_pictures(message: ChatMessage) -> ChatMessage:
    if isinstance(message.content, str):
        return message
    content = [ContentText(text="(picture)") if isinstance(part, ContentImage) else part for part in message.content]
    return message.model_copy(update={"content": content})


def _answering(settings: AskSettings, watcher: Watcher | None) -> Scorer:
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
                watcher.done(status)
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
    """Where a finding is, as a cell of a grid (paper 000); parameters as of ``AskSettings.of_folder``."""
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
    """Where a finding is, as a point."""
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
    """Where a finding is, as a box."""
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
    """Whether and where a finding is, as any number of boxes with scores."""
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
    """Which of a benchmark's labels a study shows."""
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
    """Open tasks on studies (paper 001), answered in words and, where they want them, boxes."""
    options = {"style": style, "side": side, "detail": detail, "coordinates": coordinates, "views": views}
    return _task(folder, split, "text", **options)
