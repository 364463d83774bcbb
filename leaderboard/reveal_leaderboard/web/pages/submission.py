"""The page of a submission in progress: its queue position, then its scores and rank.

Only its team and the admins see the submission; others see the same page as for an unknown id.
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
    """Build the page inside the current `gr.Blocks`."""
    handlers = SubmissionHandlers(services)
    build_header(services, page)
    progress = gr.HTML(LOADING, elem_id="progress")
    submission_id = gr.State("")
    timer = gr.Timer(POLL_SECONDS, active=False)
    page.load(handlers.open, None, [progress, timer, submission_id], **PRIVATE)
    timer.tick(handlers.watch, submission_id, [progress, timer], **QUIET)


class SubmissionHandlers(Handlers):
    """Handlers of the page's events."""

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """Return the submission that the page's address names."""
        submission_id = str(request.query_params.get("id", ""))[:64]
        return *self.watch(request, submission_id), submission_id

    def watch(self, request: gr.Request, submission_id: str) -> tuple[str, Any]:
        """Return the status of a submission; the timer runs until the status is final and the rank is known."""
        actor = self.services.actor(request)
        submission = self._own(submission_id, actor)
        if submission is None:
            link = sign_in(f"/submission?id={submission_id}" if submission_id else "/submit")
            return (OPENING + link if actor is None else UNKNOWN), gr.Timer(active=False)
        is_active = submission.status not in FINAL
        place = None if is_active else self._place(submission)
        waiting = self.services.queue.position(submission.id) if is_active else None
        score = self.services.store.score_of(submission.id)
        events = self.services.store.events_of(submission.id)
        head = page_head(submission.model_name, f"{submission.team}, {submission.benchmark} {submission.version}")
        view = progress_view(submission, waiting, score, events[-1].why if events else "", place)
        return head + view, gr.Timer(active=is_active or (place is not None and place[0].is_new))

    def _own(self, submission_id: str, actor: Actor | None) -> Submission | None:
        submission = self.services.store.get(submission_id) if submission_id else None
        return submission if submission is not None and is_own(actor, submission) else None

    def _place(self, submission: Submission) -> tuple[BoardEntry, int] | None:
        """Return the submission's row on the board and the number of rows; None if the submission is not on the
        board.
        """
        try:
            board = standings(self.services.store, self.services.catalogue.current(submission.benchmark))
        except UnknownBenchmarkError:
            return None
        row = next((entry for entry in board.entries if entry.submission_id == submission.id), None)
        return None if row is None else (row, len(board.entries))
