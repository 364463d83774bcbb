"""One submission on its way: its place in the queue, then its figures and its rank. It has an address of its own.

It is for its team and the admins alone; to others it looks like one that never was.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.boards.standings import BoardEntry, standings
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.web.api.visibility import is_own
from reveal_leaderboard.web.pages.drawing import PRIVATE, QUIET, draw, message, page_head, sign_in
from reveal_leaderboard.web.pages.first_sentences import opening
from reveal_leaderboard.web.pages.handlers import Handlers
from reveal_leaderboard.web.pages.header import build_header
from reveal_leaderboard.web.pages.submission_view import FINAL, progress_view
from reveal_leaderboard.web.services import Services

PAGE = "submission.html"
POLL_SECONDS = 1.0
OPENING = opening("/submission")
LOADING = OPENING + message("busy", "Reading the submission …")
UNKNOWN = OPENING + draw(PAGE, "unknown")


def build(services: Services, page: gr.Blocks) -> None:
    """Lay out the page inside the present Blocks."""
    handlers = SubmissionHandlers(services)
    build_header(services, page)
    shown = gr.HTML(LOADING, elem_id="progress")
    asked = gr.State("")
    timer = gr.Timer(POLL_SECONDS, active=False)
    page.load(handlers.open, None, [shown, timer, asked], **PRIVATE)
    timer.tick(handlers.watch, asked, [shown, timer], **QUIET)


class SubmissionHandlers(Handlers):
    """What happens on the page's events; each asks anew who is there."""

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """The submission that the address names."""
        asked = str(request.query_params.get("id", ""))[:64]
        return *self.watch(request, asked), asked

    def watch(self, request: gr.Request, asked: str) -> tuple[str, Any]:
        """The state of a submission; the timer runs until it is final and has its place."""
        actor = self.services.actor(request)
        submission = self._own(asked, actor)
        if submission is None:
            way = sign_in(f"/submission?id={asked}" if asked else "/submit")
            return (OPENING + way if actor is None else UNKNOWN), gr.Timer(active=False)
        is_on = submission.status not in FINAL
        place = None if is_on else self._place(submission)
        waiting = self.services.queue.position(submission.id) if is_on else None
        score = self.services.store.score_of(submission.id)
        events = self.services.store.events_of(submission.id)
        head = page_head(submission.model_name, f"{submission.team}, {submission.benchmark} {submission.version}")
        shown = progress_view(submission, waiting, score, events[-1].why if events else "", place)
        return head + shown, gr.Timer(active=is_on or (place is not None and place[0].is_new))

    def _own(self, asked: str, actor: Actor | None) -> Submission | None:
        submission = self.services.store.get(asked) if asked else None
        return submission if submission is not None and is_own(actor, submission) else None

    def _place(self, submission: Submission) -> tuple[BoardEntry, int] | None:
        """Its row of the board and the number of rows, if it has one."""
        try:
            board = standings(self.services.store, self.services.catalogue.current(submission.benchmark))
        except UnknownBenchmarkError:
            return None
        row = next((one for one in board.entries if one.submission_id == submission.id), None)
        return None if row is None else (row, len(board.entries))
