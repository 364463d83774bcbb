"""Page content that needs no JavaScript: title, tags for link previews, status code, and first content.

Gradio serves one document for all pages, with its own tags and always with status 200. This middleware replaces the
tags. It answers 404 for an unknown board or an entry that the visitor may not see, and 410 for an entry that its team
withdrew. The board's table or the entry's headline is visible at once, until Gradio has drawn the page; without
JavaScript it remains visible. Gradio's page itself is unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi.concurrency import run_in_threadpool
from markupsafe import Markup, escape
from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.boards.standings import read_withdrawn, standings
from reveal_leaderboard.web.api.visibility import with_score
from reveal_leaderboard.web.middleware import Gate, gathered
from reveal_leaderboard.web.pages import entry
from reveal_leaderboard.web.pages.board import N_THUMBNAILS
from reveal_leaderboard.web.pages.board_view import render
from reveal_leaderboard.web.pages.drawing import query_text
from reveal_leaderboard.web.pages.first_sentences import OPENINGS, SITE, board_opening, entry_opening
from reveal_leaderboard.web.pages.rubric_view import render_board
from reveal_leaderboard.web.shared_result import read_shared

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from reveal_leaderboard.store.store import Submission
    from reveal_leaderboard.web.services import Services

ENTRY = "/entry"
GRADIOS_OWN = re.compile(rb'<meta\s+(?:property|name)="(?:og|twitter):[^>]*>')
TITLE, HEAD, BODY = (re.compile(tag) for tag in (rb"<title>[^<]*</title>", rb"<head[^>]*>", rb"<body[^>]*>"))
WITHOUT_SCRIPTS = (
    "<style>#rv-early{position:static!important;animation:none!important}</style>"
    '<p style="margin:2rem">This page needs JavaScript. The board is also available <a href="/">as a table</a> '
    'and <a href="/api/v1/leaderboard">as data</a>.</p>'
)
STILL = (
    "<style>@keyframes rv-show{to{visibility:visible}}"
    "gradio-app:not(:has(.rv-head h1):has(nav a):has(.rv-strip :is(a,button))) *"
    "{visibility:hidden;animation:rv-show 0s 4s forwards}</style>"
)
"""Hides a page for at most four seconds, until Gradio has assembled it, so that nothing moves."""
PRINTED = (
    "<style>@media print{"
    ".nav-holder,.rv-strip,.rv-controls,.rv-action,.rv-films,.rv-sort .rv-arrow{display:none!important}"
    "*{print-color-adjust:exact}gradio-app,gradio-app *{overflow:visible!important}"
    ".rv-scroll :is(th,td){padding:.3rem .4rem}.rv-scroll thead{display:table-row-group}"
    ".rv-scroll tr,.rv-places li{break-inside:avoid}"
    "#entry,#compare,gradio-app .gradio-container{min-height:0!important}}</style>"
)
"""Print styles: interval bars are printed, and controls are hidden.

In Gradio's own styles they would affect only a part of the page.
"""
EARLY = (
    "<style>@keyframes rv-gone{{to{{visibility:hidden}}}}#rv-early{{position:absolute;inset:0 0 auto;min-height:100vh;"
    "z-index:9;pointer-events:none;animation:rv-gone 0s 10s forwards}}"
    "body:has(gradio-app :is(.rv-board tbody tr,.rv-headline)) #rv-early{{display:none}}</style>"
    '<div id="rv-early"><template shadowrootmode="closed"><style>{style}</style>'
    '<header class="rv-site">{site}</header><main>{first}</main></template></div>'
)
"""First content, drawn over the page until Gradio has drawn the page, which takes seconds on a slow connection.

The closed shadow tree keeps out the page's styles and scripts.
"""
EARLY_LAYOUT = (
    ":host{background:var(--rv-page);color:var(--rv-ink);font:16px/1.5 system-ui,sans-serif}"
    ".rv-site{border-bottom:1px solid var(--rv-line);padding:1rem 2rem .95rem;font-weight:700}.rv-head>p{margin:0}"
    "a{pointer-events:auto}"  # links stay clickable
    "main{max-width:1400px;margin:0 auto;padding:4.35rem 2rem 2rem;font-size:14px}"
    "#opening{min-height:10rem}#opening+*{margin-top:7.95rem}"  # space for the page's controls
    "@media (max-width:900px){#opening+*{margin-top:13.2rem}}"
    "@media (prefers-color-scheme:dark){:host{background:#0a0f1e}}"  # as on Gradio's pages
    "@media (max-width:640px){main{padding:3.8rem .8rem}.rv-site{padding:.6rem .8rem}#opening+*{margin-top:11rem}}"
)
DARK = re.compile(r"\.dark (\{[^}]*\})")
DESCRIPTION = (
    "Models that read chest radiographs, ranked with 95% intervals on cases that only the scoring worker sees."
)


@dataclass(frozen=True)
class Preview:
    """Preview of a link to a page; `path` and `image` are addresses below the server's.

    Attributes
    ----------
    first : first content of the page, as HTML for browsers without JavaScript
    is_early : whether browsers with JavaScript also show `first` until Gradio has drawn the page
    """

    path: str
    title: str = SITE
    description: str = DESCRIPTION
    image: str = ""
    status: int = 200
    first: str = ""
    is_early: bool = False

    def tags(self, server: str) -> bytes:
        """Return the title and the meta tags of the preview; `server` is the server's address."""
        tags = {"og:site_name": SITE, "og:type": "website", "og:title": self.title, "og:description": self.description}
        tags |= {"og:url": f"{server}{self.path}", "description": self.description}
        tags |= {"twitter:card": "summary_large_image" if self.image else "summary"}
        if self.image:
            tags |= {"og:image": f"{server}{self.image}", "og:image:width": "1200", "og:image:height": "630"}
            tags |= {"og:image:alt": self.description}
        lines = [f"<title>{escape(self.title)}</title>", STILL, PRINTED]
        for name, text in tags.items():
            attribute = "property" if name.startswith("og:") else "name"
            lines.append(f'<meta {attribute}="{name}" content="{escape(text)}">')
        return "\n".join(lines).encode()


class LinkPreviews(Gate):
    """Replaces the tags in every page that Gradio serves, and sets the status code of boards and entries."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        super().__init__(app)
        self.services = services

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(start: Message, body: bytes) -> None:
            await self._send(scope, start, body, send)

        is_read = scope["method"] in ("GET", "HEAD")
        await self.app(scope, receive, gathered(send, _is_page, answer) if is_read else send)

    async def _send(self, scope: Scope, start: Message, body: bytes, send: Send) -> None:
        request = Request(scope)
        preview = await run_in_threadpool(self._preview, request)
        if GRADIOS_OWN.search(body):
            tags = preview.tags(f"{request.url.scheme}://{request.url.netloc}")
            body = TITLE.sub(b"", GRADIOS_OWN.sub(b"", body))
            body = HEAD.sub(lambda head: head[0] + b"\n" + tags, body, count=1)
            first = f"<noscript>{WITHOUT_SCRIPTS}{'' if preview.is_early else preview.first}</noscript>"
            if preview.is_early:
                first += EARLY.format(style=_early_style(), site=SITE, first=preview.first)
            body = BODY.sub(lambda tag: tag[0] + first.encode(), body, count=1)
            MutableHeaders(raw=start["headers"])["content-length"] = str(len(body))
        await send({**start, "status": preview.status})
        await send({"type": "http.response.body", "body": body})

    def _preview(self, request: Request) -> Preview:
        path = request.url.path
        if path == "/":
            preview = self._of_board(request.query_params.get("benchmark"))
            is_first = not set(request.query_params) - {"benchmark"}  # otherwise the page shows another view
            return preview if is_first else replace(preview, is_early=False)
        if path.rstrip("/") != ENTRY:
            return Preview(path, f"{OPENINGS[path].name} · {SITE}" if path in OPENINGS else SITE)
        entry_id, version = request.query_params.get("id", "")[:64], request.query_params.get("version")
        submission = self.services.store.get(entry_id)
        if submission is None:
            return Preview(path, status=404)
        scores = self.services.store.scores_of(submission.id)
        if not entry.may_see(submission, scores, self.services.auth.actor(request)):
            return Preview(path, status=404 if read_withdrawn(self.services.store, submission) is None else 410)
        return self._of_entry(submission, version)

    def _of_board(self, name: str | None) -> Preview:
        """Return the preview of a board: its leader and its table."""
        catalogue = self.services.catalogue
        if name and name not in catalogue.names:
            return Preview("/", f"Not found · {SITE}", "This board does not exist.", status=404)
        try:
            board = standings(self.services.store, catalogue.current(name or catalogue.names[0]))
        except UnknownBenchmarkError:  # the board's current version is on another server
            return Preview("/")
        galleries = self.services.galleries
        opening = board_opening(board, galleries.strip(board.benchmark, N_THUMBNAILS))
        words = " ".join(Markup(opening).striptags().split())
        table = render_board(board) if board.scored_by == "readers" else render(board)
        address = f"/?{query_text({'benchmark': board.benchmark})}"
        is_early = bool(board.entries)
        films = "rv-with-films" if galleries.names else ""
        first = f'<div id="opening" class="{films}">{opening}</div>{table}'
        return Preview(address, f"{board.title} · {SITE}", words, first=first, is_early=is_early)

    def _of_entry(self, submission: Submission, version: str | None) -> Preview:
        """Return the preview of an entry; an entry that visitors may not see has an empty preview."""
        visible = with_score(self.services, submission, version)
        if not visible.is_public or visible.score is None:
            return Preview(ENTRY)
        try:
            result = read_shared(self.services, submission, visible.score)
        except UnknownBenchmarkError:  # the version is on another server
            return Preview(ENTRY, status=404)
        title = f"{result.model}, {result.team} · {SITE}"
        first = entry_opening(submission, visible.score.version, result)
        return Preview(result.path, title, result.spoken, result.card, first=first, is_early=True)


@cache
def _early_style() -> str:
    """Return the pages' stylesheet for a shadow tree, with light or dark colours by the system's setting."""
    sheet = (files("reveal_leaderboard.web.pages") / "style.css").read_text(encoding="utf-8")
    sheet = re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)
    own = DARK.sub(r"@media (prefers-color-scheme:dark){:host\1}", sheet.replace(":root {", ":host {", 1), count=1)
    return own + EARLY_LAYOUT


def _is_page(start: Message) -> bool:
    headers = MutableHeaders(raw=start["headers"])
    is_html = headers.get("content-type", "").startswith("text/html")
    return bool(start["status"] == 200 and is_html and "content-encoding" not in headers)
