"""Read-only pages: whole documents from the server, which need no script.

A page is a function from the services and a request to a :class:`ReadPage`. Its address determines the view: links and
forms with GET change it, and `site.js` sends a changed form at once. These pages have neither inline scripts nor
compiled templates, so their content policy forbids both. Gradio serves the pages that perform actions.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup

from reveal_leaderboard.web.link_preview import Preview, server_of
from reveal_leaderboard.web.pages.drawing import draw, message
from reveal_leaderboard.web.pages.first_sentences import OPENINGS, SITE, opening
from reveal_leaderboard.web.pages.header import SCRIPT, header_of

if TYPE_CHECKING:
    from reveal_leaderboard.web.services import Services

READ = ["GET", "HEAD"]
HEADERS = {"Content-Security-Policy": "script-src 'self'", "Vary": "Cookie"}  # the cookie decides who is signed in
FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}  # an address names one content
DARK = re.compile(r"\.dark (\{[^}]*\})")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadPage:
    """A page: its preview, its content below the menu as HTML, and the HTTP status."""

    preview: Preview
    content: str
    status: int = 200


Show = Callable[["Services", Request], ReadPage]


def titled(path: str, content: str, status: int = 200) -> ReadPage:
    """Return a page with the fixed heading of `path` as its title."""
    title = SITE if path == "/" else f"{OPENINGS[path].heading} · {SITE}"
    return ReadPage(Preview(path, title), content, status)


def add_read_pages(
    app: FastAPI, services: Services, pages: Mapping[str, Show], menu: Sequence[tuple[str, str]]
) -> None:
    """Add the pages by their paths, with a menu of (name, address) pairs."""
    assets = [
        _add_asset(app, "pages.css", stylesheet(), "text/css"),
        _add_asset(app, "site.js", SCRIPT, "text/javascript"),
    ]
    for path, show in pages.items():
        app.add_api_route(path, _endpoint(services, path, show, menu, assets), methods=READ, include_in_schema=False)


def _endpoint(
    services: Services, path: str, show: Show, menu: Sequence[tuple[str, str]], assets: Sequence[str]
) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        try:
            page = show(services, request)
        except Exception:
            log.exception("the page %s could not be drawn", path)
            page = titled(path, opening(path) + unavailable(), 503)
        tags, strip = Markup(page.preview.tags(server_of(request))), Markup(header_of(services, request))
        text = draw("frame.html", "page", tags, assets, menu, path, strip, Markup(page.content))
        return HTMLResponse(text, page.status, HEADERS)

    return endpoint


def _add_asset(app: FastAPI, name: str, text: str, media: str) -> str:
    """Serve a text file, and return its address."""

    @app.api_route(f"/assets/{name}", methods=READ, include_in_schema=False)
    def asset() -> Response:
        return Response(text, media_type=media, headers=FOR_EVER)

    return f"/assets/{name}?{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def stylesheet() -> str:
    """Return the shared styles, light or dark by the system's setting, followed by the styles of these pages."""
    shared, own = (
        (files("reveal_leaderboard.web.pages") / f"{name}.css").read_text(encoding="utf-8")
        for name in ("style", "plain")
    )
    return DARK.sub(r"@media screen and (prefers-color-scheme: dark) { :root \1 }", shared, count=1) + own


def unavailable() -> str:
    """Return the message that a page cannot be read."""
    return message("bad", "This page cannot be read now.", "Reload the page in a moment.")
