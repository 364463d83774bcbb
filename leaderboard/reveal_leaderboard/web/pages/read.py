"""Where readers score answers to tasks: one at a time, blinded, with the words of the rubric.

A reader is shown the task, the answer as plain text and its boxes as figures; pictures are not on this server, so their
ids are told. Nothing says whose answer it is. Every handler asks anew who is there; what the browser sends back is the
scores alone, and the answer that they are of is kept on the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gradio as gr

from reveal_bench.kinds.tasks.records import TaskQuestion
from reveal_leaderboard.accounts.people import Actor, NotPermittedError
from reveal_leaderboard.boards import reading
from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.store.ratings import StoredAnswer, own_scores
from reveal_leaderboard.store.rubric import QUESTIONS, CriterionQuestion, RatingError, questions
from reveal_leaderboard.store.submissions import NotAllowedError, get_known
from reveal_leaderboard.web.pages.drawing import PRIVATE, message, sign_in
from reveal_leaderboard.web.pages.first_sentences import opening
from reveal_leaderboard.web.pages.handlers import OUR_ERROR, Handlers
from reveal_leaderboard.web.pages.header import build_header
from reveal_leaderboard.web.pages.rubric_view import answer_view, progress_bar
from reveal_leaderboard.web.services import Services

SIGN_IN = sign_in("/read")
NOT_A_READER = message(
    "info", "This page is for readers.", "The maintainers name the readers of a board; you are not one of them."
)
NOTHING_LEFT = message("good", "Nothing is left for you to read.", "Later answers will appear here.")
NO_BOARD = message("info", "No board here is scored by readers.")
FAULT = message("bad", "Not saved.", OUR_ERROR)
# After an answer was saved the next one is read from its start: the heading of the task gets the focus.
TO_THE_TASK = "() => setTimeout(() => document.getElementById('task')?.focus(), 150)"

log = logging.getLogger(__name__)


def build(services: Services, page: gr.Blocks) -> None:
    """Lay out the page inside the present Blocks."""
    handlers = ReadHandlers(services)
    build_header(services, page)
    gr.HTML(opening("/read"))
    names = services.read_boards
    benchmark = gr.Dropdown(names, value=names[0] if names else None, label="Benchmark", visible=len(names) > 1)
    told = gr.HTML("", elem_id="answer")
    shown = gr.HTML("", elem_id="reading")
    chosen = gr.State("")
    with gr.Column(visible=False, elem_id="rubric") as form:
        radios = [_radio(question) for question in QUESTIONS]
        with gr.Row():
            save = gr.Button("Save and go on", variant="primary", elem_id="save")
            back = gr.Button("Change my last scores", elem_id="back")
    outputs = [told, shown, form, chosen, *radios]
    page.load(handlers.open, benchmark, outputs, **PRIVATE)
    benchmark.input(handlers.open, benchmark, outputs, **PRIVATE)
    save.click(handlers.save, [benchmark, chosen, *radios], outputs, **PRIVATE).then(None, js=TO_THE_TASK, **PRIVATE)
    back.click(handlers.back, benchmark, outputs, **PRIVATE).then(None, js=TO_THE_TASK, **PRIVATE)


class ReadHandlers(Handlers):
    """What happens on the page's events."""

    def open(self, request: gr.Request, benchmark: str | None) -> tuple[Any, ...]:
        """The next answer of the reader."""
        return self._page(request, benchmark, lambda actor: ("", self._next(actor, str(benchmark))))

    def save(self, request: gr.Request, benchmark: str | None, answer_id: str, *given: Any) -> tuple[Any, ...]:
        """Keep the scores of the answer shown, and show the next one; the same again with what is missing."""

        def do(actor: Actor) -> tuple[str, StoredAnswer | None]:
            scores = dict(zip((question.name for question in QUESTIONS), given, strict=True))
            try:
                with self.services.store.write() as connection:
                    is_over = reading.rate(connection, actor, answer_id, scores, self.services.settings)
            except RatingError as error:
                raise _AgainError(message("bad", "Not saved.", f"{error}."), scores) from None
            except NotAllowedError as error:
                return message("bad", "Not saved.", f"{error}."), self._next(actor, str(benchmark))
            more = "With it, a submission is completely scored." if is_over else ""
            return message("good", "Saved.", more), self._next(actor, str(benchmark))

        return self._page(request, benchmark, do, again=answer_id)

    def back(self, request: gr.Request, benchmark: str | None) -> tuple[Any, ...]:
        """The answer that the reader scored last, with its scores, while they may still be changed."""

        def do(actor: Actor) -> tuple[str, StoredAnswer | None]:
            policy = self.services.settings.of(str(benchmark)).reading
            with self.services.store.read() as connection:
                last = reading.last_rated(connection, actor, str(benchmark), policy)
            if last is None:
                told = message("info", "There is nothing to change.", "A completely scored submission stays as it is.")
                return told, self._next(actor, str(benchmark))
            return message("info", "These are your last scores.", "Change them and save."), last

        return self._page(request, benchmark, do)

    # What the handlers do -------------------------------------------------------------------------------------------

    def _page(
        self,
        request: gr.Request,
        benchmark: str | None,
        do: Callable[[Actor], tuple[str, StoredAnswer | None]],
        *,
        again: str = "",
    ) -> tuple[Any, ...]:
        """All outputs; nothing of an answer for somebody who may not read."""
        actor = self.services.actor(request)
        if actor is None:
            return _empty(SIGN_IN)
        if benchmark not in self.services.read_boards:
            return _empty(NO_BOARD)
        if not reading.may_read(actor, self.services.settings.of(benchmark).reading):
            return _empty(NOT_A_READER)
        try:
            told, answer = do(actor)
            return self._shown(actor, benchmark, told, answer)
        except _AgainError as error:
            return self._shown(actor, benchmark, error.told, self._of_reader(actor, benchmark, again), error.scores)
        except NotPermittedError as error:
            return _empty(message("bad", "Not done.", f"{error}."))
        except Exception:
            log.exception("the page of readers failed")
            return _empty(FAULT)

    def _next(self, actor: Actor, benchmark: str) -> StoredAnswer | None:
        policy = self.services.settings.of(benchmark).reading
        with self.services.store.read() as connection:
            return reading.next_answer(connection, actor, benchmark, policy)

    def _of_reader(self, actor: Actor, benchmark: str, answer_id: str) -> StoredAnswer | None:
        """The answer once more, if it is one that the reader may be shown."""
        policy = self.services.settings.of(benchmark).reading
        with self.services.store.read() as connection:
            found = reading.readable(connection, actor, answer_id, policy)
        return found or self._next(actor, benchmark)

    def _shown(
        self,
        actor: Actor,
        benchmark: str,
        told: str,
        answer: StoredAnswer | None,
        scores: dict[str, Any] | None = None,
    ) -> tuple[Any, ...]:
        policy = self.services.settings.of(benchmark).reading
        with self.services.store.read() as connection:
            done = reading.progress(connection, actor, benchmark, policy)
            so_far = progress_bar(done) if done.rated + done.left else ""
            if answer is not None and scores is None:
                scores = own_scores(connection, answer.id, actor.name)
        if answer is None:
            return told + NOTHING_LEFT, so_far, gr.update(visible=False), "", *_radios(None, False)
        shown = so_far + answer_view(self._task(benchmark, answer), answer)
        return told, shown, gr.update(visible=True), answer.id, *_radios(scores, bool(answer.boxes))

    def _task(self, benchmark: str, answer: StoredAnswer) -> TaskQuestion | None:
        with self.services.store.read() as connection:
            version = get_known(connection, answer.submission_id).version
        published = self.services.catalogue.get(benchmark, version)
        if published is None or published.scored_by != "readers":
            raise UnknownBenchmarkError(f"{benchmark} {version} is not served here")
        return next((task for task in published.manifest.tasks if task.task_id == answer.task_id), None)


class _AgainError(Exception):
    """Scores that were not kept: what to say, and the scores to be shown again."""

    def __init__(self, told: str, scores: dict[str, Any]) -> None:
        super().__init__(told)
        self.told, self.scores = told, scores


def _empty(told: str) -> tuple[Any, ...]:
    return told, "", gr.update(visible=False), "", *_radios(None, False)


def _radios(scores: dict[str, Any] | None, has_boxes: bool) -> list[Any]:
    """Values of the six questions; those of pictures only where there are boxes."""
    values, asked = scores or {}, questions(has_boxes=has_boxes)
    return [gr.update(value=values.get(question.name), visible=question in asked) for question in QUESTIONS]


def _radio(question: CriterionQuestion) -> gr.Radio:
    choices = [(f"{score} – {text}", score) for score, text in question.scale]
    return gr.Radio(choices, label=question.title, elem_id=f"score-{question.name}")
