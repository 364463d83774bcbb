"""The page where readers rate answers to tasks: one answer at a time, without its author, by the rubric.

A reader sees the task, the answer as plain text and the coordinates of its boxes. This server has no images, so the
page shows image ids. Nothing reveals the author of an answer. The browser sends only scores; the server remembers which
answer the reader is rating.
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
    "info", "This page is for readers.", "The maintainers appoint the readers of a board, and you are not among them."
)
NOTHING_LEFT = message("good", "You have scored all answers.", "New answers will appear here.")
NO_BOARD = message("info", "No board on this server is scored by readers.")
NOT_SAVED = message("bad", "Not saved.", OUR_ERROR)
# After a save, the heading of the next task gets the focus, so that screen readers start there.
TO_THE_TASK = "() => setTimeout(() => document.getElementById('task')?.focus(), 150)"

log = logging.getLogger(__name__)


def build(services: Services, page: gr.Blocks) -> None:
    """Build the page inside the current `gr.Blocks`."""
    handlers = ReadHandlers(services)
    build_header(services, page)
    gr.HTML(opening("/read"))
    names = services.read_boards
    benchmark = gr.Dropdown(names, value=names[0] if names else None, label="Benchmark", visible=len(names) > 1)
    notice = gr.HTML("", elem_id="answer")
    task = gr.HTML("", elem_id="reading")
    answer_id = gr.State("")
    with gr.Column(visible=False, elem_id="rubric") as form:
        radios = [_radio(question) for question in QUESTIONS]
        with gr.Row():
            save = gr.Button("Save and continue", variant="primary", elem_id="save")
            back = gr.Button("Change my last scores", elem_id="back")
    outputs = [notice, task, form, answer_id, *radios]
    page.load(handlers.open, benchmark, outputs, **PRIVATE)
    benchmark.input(handlers.open, benchmark, outputs, **PRIVATE)
    save.click(handlers.save, [benchmark, answer_id, *radios], outputs, **PRIVATE).then(None, js=TO_THE_TASK, **PRIVATE)
    back.click(handlers.back, benchmark, outputs, **PRIVATE).then(None, js=TO_THE_TASK, **PRIVATE)


class ReadHandlers(Handlers):
    """Handlers of the page's events."""

    def open(self, request: gr.Request, benchmark: str | None) -> tuple[Any, ...]:
        """Return the next answer for the reader."""
        return self._page(request, benchmark, lambda actor: ("", self._next(actor, str(benchmark))))

    def save(self, request: gr.Request, benchmark: str | None, answer_id: str, *values: Any) -> tuple[Any, ...]:
        """Save the scores of the current answer and return the next answer; if the scores are refused, return the same
        answer with a notice.
        """

        def do(actor: Actor) -> tuple[str, StoredAnswer | None]:
            scores = dict(zip((question.name for question in QUESTIONS), values, strict=True))
            try:
                with self.services.store.write() as connection:
                    is_over = reading.rate(connection, actor, answer_id, scores, self.services.settings)
            except RatingError as error:
                raise _AgainError(message("bad", "Not saved.", f"{error}."), scores) from None
            except NotAllowedError as error:
                return message("bad", "Not saved.", f"{error}."), self._next(actor, str(benchmark))
            more = "This completes the scoring of a submission." if is_over else ""
            return message("good", "Saved.", more), self._next(actor, str(benchmark))

        return self._page(request, benchmark, do, again=answer_id)

    def back(self, request: gr.Request, benchmark: str | None) -> tuple[Any, ...]:
        """Return the last answer that the reader scored, with its scores, if they can still be changed."""

        def do(actor: Actor) -> tuple[str, StoredAnswer | None]:
            policy = self.services.settings.of(str(benchmark)).reading
            with self.services.store.read() as connection:
                last = reading.last_rated(connection, actor, str(benchmark), policy)
            if last is None:
                notice = message(
                    "info", "There are no scores to change.", "Scores are final once a submission is completely scored."
                )
                return notice, self._next(actor, str(benchmark))
            return message("info", "These are your last scores.", "Change them and save."), last

        return self._page(request, benchmark, do)

    # Actions of the handlers ----------------------------------------------------------------------------------------

    def _page(
        self,
        request: gr.Request,
        benchmark: str | None,
        do: Callable[[Actor], tuple[str, StoredAnswer | None]],
        *,
        again: str = "",
    ) -> tuple[Any, ...]:
        """Return the values of all outputs; only readers of the board get an answer to rate."""
        actor = self.services.actor(request)
        if actor is None:
            return _empty(SIGN_IN)
        if benchmark not in self.services.read_boards:
            return _empty(NO_BOARD)
        if not reading.may_read(actor, self.services.settings.of(benchmark).reading):
            return _empty(NOT_A_READER)
        try:
            notice, answer = do(actor)
            return self._outputs(actor, benchmark, notice, answer)
        except _AgainError as error:
            return self._outputs(actor, benchmark, error.notice, self._of_reader(actor, benchmark, again), error.scores)
        except NotPermittedError as error:
            return _empty(message("bad", "Not done.", f"{error}."))
        except Exception:
            log.exception("the page of readers failed")
            return _empty(NOT_SAVED)

    def _next(self, actor: Actor, benchmark: str) -> StoredAnswer | None:
        policy = self.services.settings.of(benchmark).reading
        with self.services.store.read() as connection:
            return reading.next_answer(connection, actor, benchmark, policy)

    def _of_reader(self, actor: Actor, benchmark: str, answer_id: str) -> StoredAnswer | None:
        """Return the answer with this id if the reader may still see it, otherwise the next answer."""
        policy = self.services.settings.of(benchmark).reading
        with self.services.store.read() as connection:
            answer = reading.readable(connection, actor, answer_id, policy)
        return answer or self._next(actor, benchmark)

    def _outputs(
        self,
        actor: Actor,
        benchmark: str,
        notice: str,
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
            return notice + NOTHING_LEFT, so_far, gr.update(visible=False), "", *_radios(None, False)
        task = so_far + answer_view(self._task(benchmark, answer), answer)
        return notice, task, gr.update(visible=True), answer.id, *_radios(scores, bool(answer.boxes))

    def _task(self, benchmark: str, answer: StoredAnswer) -> TaskQuestion | None:
        with self.services.store.read() as connection:
            version = get_known(connection, answer.submission_id).version
        published = self.services.catalogue.get(benchmark, version)
        if published is None or published.scored_by != "readers":
            raise UnknownBenchmarkError(f"{benchmark} {version} is not served here")
        return next((task for task in published.manifest.tasks if task.task_id == answer.task_id), None)


class _AgainError(Exception):
    """Scores that were not saved, and are shown again with a notice."""

    def __init__(self, notice: str, scores: dict[str, Any]) -> None:
        super().__init__(notice)
        self.notice, self.scores = notice, scores


def _empty(notice: str) -> tuple[Any, ...]:
    return notice, "", gr.update(visible=False), "", *_radios(None, False)


def _radios(scores: dict[str, Any] | None, has_boxes: bool) -> list[Any]:
    """Return the rubric's six questions with their scores; questions on images are hidden if the answer has no
    boxes.
    """
    values, visible = scores or {}, questions(has_boxes=has_boxes)
    return [gr.update(value=values.get(question.name), visible=question in visible) for question in QUESTIONS]


def _radio(question: CriterionQuestion) -> gr.Radio:
    choices = [(f"{score} – {text}", score) for score, text in question.scale]
    return gr.Radio(choices, label=question.title, elem_id=f"score-{question.name}")
