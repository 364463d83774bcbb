"""The page of a submission in progress: its queue position, then its scores and rank.

Only its team and the admins see the submission; others see the same page as for an unknown id. Until the status is
final and the rank is known, `site.js` reads the page again every second.
"""

from __future__ import annotations

from fastapi import Request

from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.boards.standings import BoardEntry, standings
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.web.api.visibility import is_own
from reveal_leaderboard.web.link_preview import Preview
from reveal_leaderboard.web.pages.drawing import draw, page_head, sign_in
from reveal_leaderboard.web.pages.first_sentences import SITE, opening
from reveal_leaderboard.web.pages.plain import ReadPage, titled
from reveal_leaderboard.web.pages.submission_view import FINAL, progress_view
from reveal_leaderboard.web.services import Services

PATH, PAGE = "/submission", "submission.html"


def show(services: Services, request: Request) -> ReadPage:
    """Return the page of the submission that the address names."""
    submission_id = request.query_params.get("id", "")[:64]
    actor = services.actor(request)
    submission = services.store.get(submission_id) if submission_id else None
    if submission is None or not is_own(actor, submission):
        link = sign_in(f"{PATH}?id={submission_id}" if submission_id else "/submit")
        return titled(PATH, opening(PATH) + (link if actor is None else draw(PAGE, "unknown")), 404)
    is_active = submission.status not in FINAL
    place = None if is_active else _place(services, submission)
    waiting = services.queue.position(submission.id) if is_active else None
    score = services.store.score_of(submission.id)
    events = services.store.events_of(submission.id)
    head = page_head(submission.model_name, f"{submission.team}, {submission.benchmark} {submission.version}")
    view = progress_view(submission, waiting, score, events[-1].why if events else "", place)
    refreshes = " data-refresh" if is_active or (place is not None and place[0].is_new) else ""
    content = f'<div id="progress"{refreshes}>{head}{view}</div>'
    return ReadPage(Preview(PATH, f"{submission.model_name} · {SITE}"), content)


def _place(services: Services, submission: Submission) -> tuple[BoardEntry, int] | None:
    """Return the submission's row on the board and the number of rows; None if the submission is not on the board."""
    try:
        board = standings(services.store, services.catalogue.current(submission.benchmark))
    except UnknownBenchmarkError:
        return None
    row = next((entry for entry in board.entries if entry.submission_id == submission.id), None)
    return None if row is None else (row, len(board.entries))
