"""Routes of badges, preview cards and figures, which other sites may show.

Conventions
-----------
Every caller gets the image that visitors may see. An entry that is hidden, held back or not scored gets the same answer
as an unknown id. Images may be cached for `CACHE_SECONDS`, after which a withdrawn entry's image is gone.
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

CACHE_SECONDS = 300
MAX_PNGS = 200
MEDIA = {"svg": "image/svg+xml", "png": "image/png"}
READ = ["GET", "HEAD"]

EntityTag = Annotated[str | None, Header(alias="if-none-match")]
Form = Literal["svg", "png"]


def image_routes(services: Services) -> APIRouter:
    """Return the routes of images."""
    router = APIRouter(include_in_schema=False)
    pngs = PngCache()

    def shared(submission_id: str, version: str | None) -> SharedResult:
        """Return an entry's result if visitors may see it; otherwise raise "not-found"."""
        visible = read_visible(services, None, submission_id, version)
        if visible.score is None:
            raise ProblemError("not-found", "The entry has no scores on that version.")
        find_published(services, visible.submission.benchmark)  # raises an error if not on this server
        return read_shared(services, visible.submission, visible.score)

    @router.api_route("/badge/{submission_id}.svg", methods=READ)
    def badge_of(submission_id: str, version: Version = None, if_none_match: EntityTag = None) -> Response:
        try:
            image, status = badge(shared(submission_id, version)), 200
        except ProblemError as problem:  # sites that embed a badge need an image, not an error document
            status = PROBLEMS[problem.name].status
            image = state_badge("REVEAL leaderboard", "withdrawn" if status == 410 else "no such entry")
        return _answer(pngs, image, "svg", if_none_match, status=status)

    @router.api_route("/card/{submission_id}.png", methods=READ)
    def card_of(submission_id: SubmissionId, version: Version = None, if_none_match: EntityTag = None) -> Response:
        return _answer(pngs, card(shared(submission_id, version)), "png", if_none_match)

    @router.api_route("/figure/entry/{submission_id}.{form}", methods=READ)
    def figure_of_entry(
        submission_id: SubmissionId,
        form: Form,
        version: Version = None,
        metric: Annotated[str | None, Query(max_length=60)] = None,
        if_none_match: EntityTag = None,
    ) -> Response:
        image = entry_figure(shared(submission_id, version), metric)
        return _answer(pngs, image, form, if_none_match, name=f"{submission_id}.{form}")

    @router.api_route("/figure/board/{benchmark}.{form}", methods=READ)
    def figure_of_board(
        benchmark: str, form: Form, version: Version = None, if_none_match: EntityTag = None
    ) -> Response:
        published = find_published(services, benchmark)
        try:
            board = standings(services.store, published, version)
        except UnknownVersionError as error:
            raise ProblemError("unknown-benchmark", str(error)) from None
        name = f"{board.benchmark}-{board.version}.{form}"
        return _answer(pngs, board_figure(board), form, if_none_match, name=name)

    return router


class PngCache:
    """A cache of PNG images, since drawing takes 0.1 s of processor time and any visitor can request an image.

    One image is drawn at a time. The key is a hash of the content, so an image is drawn again after its data changed.
    """

    def __init__(self) -> None:
        self._cache: Recent[str, bytes] = Recent(MAX_PNGS)
        self._drawing = Lock()

    def body(self, image: VectorImage, svg_hash: str) -> bytes:
        """Return the PNG of `image`; `svg_hash` is the hash of its SVG document."""
        with self._drawing:
            body = self._cache.get(svg_hash) or image.to_png()
            self._cache.put(svg_hash, body)
            return body


def _answer(
    pngs: PngCache, image: VectorImage | None, form: Form, entity_tag: str | None, *, status: int = 200, name: str = ""
) -> Response:
    """Return an image, or 304 if the caller already has the image."""
    if image is None:
        raise ProblemError("not-found", "The entry has no score to show.")
    svg = image.to_svg()
    svg_hash = hashlib.sha256(svg).hexdigest()
    tag = f'"{svg_hash[:28]}-{form}"'
    headers = {
        "ETag": tag,
        "Cache-Control": f"public, max-age={CACHE_SECONDS}",
        "Cross-Origin-Resource-Policy": "cross-origin",  # other sites may show it
    }
    if status == 200 and matches_tag(tag, entity_tag):
        return Response(status_code=304, headers=headers)
    body = svg if form == "svg" else pngs.body(image, svg_hash)
    if name:
        headers["Content-Disposition"] = f'inline; filename="{name}"'
    return Response(body, status_code=status, media_type=MEDIA[form], headers=headers)
