"""Addresses of badges, cards and figures: pictures of results that anybody may show elsewhere.

Conventions
-----------
A picture is that which a visitor may see, whoever asks. An entry that is hidden, held back or not scored answers as one
that never was. They may be kept for `KEPT_SECONDS`, so a withdrawn entry's picture is gone after that.
"""

from __future__ import annotations

import hashlib
from threading import Lock
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response

from reveal_leaderboard.boards.standings import UnknownVersionError, standings
from reveal_leaderboard.web.api.boards import Version
from reveal_leaderboard.web.api.problems import PROBLEMS, ProblemError
from reveal_leaderboard.web.api.visibility import SubmissionId, find_published, matches_tag, read_visible
from reveal_leaderboard.web.recent import Recent
from reveal_leaderboard.web.result_images import badge, board_figure, card, entry_figure, state_badge
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.shared_result import SharedResult, read_shared
from reveal_leaderboard.web.vector_image import VectorImage

KEPT_SECONDS = 300
KEPT_PNGS = 200
MEDIA = {"svg": "image/svg+xml", "png": "image/png"}
READ = ["GET", "HEAD"]

Known = Annotated[str | None, Header(alias="if-none-match")]
Form = Literal["svg", "png"]


def picture_routes(services: Services) -> APIRouter:
    """The routes of pictures."""
    router = APIRouter(include_in_schema=False)
    pngs = DrawnPNGs()

    def shared(submission_id: str, version: str | None) -> SharedResult:
        """The result, if a visitor may see it."""
        visible = read_visible(services, None, submission_id, version)
        if visible.score is None:
            raise ProblemError("not-found", "It has no figures of that version.")
        find_published(services, visible.submission.benchmark)  # refused here if another server's
        return read_shared(services, visible.submission, visible.score)

    @router.api_route("/badge/{submission_id}.svg", methods=READ)
    def badge_of(submission_id: str, version: Version = None, if_none_match: Known = None) -> Response:
        try:
            drawn, status = badge(shared(submission_id, version)), 200
        except ProblemError as problem:  # whoever shows it wants a picture, not a document
            status = PROBLEMS[problem.name].status
            drawn = state_badge("REVEAL leaderboard", "withdrawn" if status == 410 else "no such entry")
        return _answer(pngs, drawn, "svg", if_none_match, status=status)

    @router.api_route("/card/{submission_id}.png", methods=READ)
    def card_of(submission_id: SubmissionId, version: Version = None, if_none_match: Known = None) -> Response:
        return _answer(pngs, card(shared(submission_id, version)), "png", if_none_match)

    @router.api_route("/figure/entry/{submission_id}.{form}", methods=READ)
    def figure_of_entry(
        submission_id: SubmissionId,
        form: Form,
        version: Version = None,
        metric: Annotated[str | None, Query(max_length=60)] = None,
        if_none_match: Known = None,
    ) -> Response:
        drawn = entry_figure(shared(submission_id, version), metric)
        return _answer(pngs, drawn, form, if_none_match, name=f"{submission_id}.{form}")

    @router.api_route("/figure/board/{benchmark}.{form}", methods=READ)
    def figure_of_board(benchmark: str, form: Form, version: Version = None, if_none_match: Known = None) -> Response:
        published = find_published(services, benchmark)
        try:
            board = standings(services.store, published, version)
        except UnknownVersionError as error:
            raise ProblemError("unknown-benchmark", str(error)) from None
        name = f"{board.benchmark}-{board.version}.{form}"
        return _answer(pngs, board_figure(board), form, if_none_match, name=name)

    return router


class DrawnPNGs:
    """The PNGs asked for last: a processor draws one for a tenth of a second, which visitors must not ask for at will.

    One is drawn at a time. They are kept by what they show, so a change of an entry or its board draws them anew.
    """

    def __init__(self) -> None:
        self._kept: Recent[str, bytes] = Recent(KEPT_PNGS)
        self._drawing = Lock()

    def body(self, drawn: VectorImage, shown: str) -> bytes:
        """The PNG of `drawn`; `shown` is the hash of its SVG document."""
        with self._drawing:
            body = self._kept.get(shown) or drawn.to_png()
            self._kept.put(shown, body)
            return body


def _answer(
    pngs: DrawnPNGs, drawn: VectorImage | None, form: Form, known: str | None, *, status: int = 200, name: str = ""
) -> Response:
    """A picture; one that is the same as the one kept is answered by 304."""
    if drawn is None:
        raise ProblemError("not-found", "No figure of that is shown.")
    svg = drawn.to_svg()
    shown = hashlib.sha256(svg).hexdigest()
    tag = f'"{shown[:28]}-{form}"'
    headers = {
        "ETag": tag,
        "Cache-Control": f"public, max-age={KEPT_SECONDS}",
        "Cross-Origin-Resource-Policy": "cross-origin",  # other sites show it
    }
    if status == 200 and matches_tag(tag, known):
        return Response(status_code=304, headers=headers)
    body = svg if form == "svg" else pngs.body(drawn, shown)
    if name:
        headers["Content-Disposition"] = f'inline; filename="{name}"'
    return Response(body, status_code=status, media_type=MEDIA[form], headers=headers)
