"""What a page says of itself before any script runs: its title and description for links to it, its status, its table.

Conventions
-----------
Gradio serves the same document at every address, with its own name in it and status 200. :class:`Heads` puts the page's
own words into that document: title, description and picture as others preview a link, 404 where the address names what
is not here, and for readers without JavaScript the table of the board. All of it is what any visitor sees.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urljoin

from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reveal_leaderboard.boards.standings import standings
from reveal_leaderboard.web.pages import board_notes, entry
from reveal_leaderboard.web.pages.board_view import render
from reveal_leaderboard.web.pages.rubric_view import render_board
from reveal_leaderboard.web.services import Services

__all__ = ["Head", "Heads"]

SITE = "REVEAL leaderboard"
SCRIPTLESS = "The pages of this board need JavaScript; what follows is the table. The same is at /api/v1/leaderboard."
THEIRS = re.compile(rb"<meta\s+(?:property|name)=\"(?:og|twitter):[^>]*>|<title>[^<]*</title>")
BODY = re.compile(rb"<body[^>]*>")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Head:
    """What a page says of itself.

    Attributes
    ----------
    picture : path of an image of 1200 x 630 pixels
    body : HTML for readers without JavaScript
    """

    title: str
    description: str
    picture: str = ""
    status: int = 200
    body: str = ""


LOST = Head("Not found", "There is no such page on this board.", status=404)
OF_PAGE = {
    "/submit": Head("Submit", "Check a prediction file for free, and have it scored against the held-out references."),
    "/mine": Head("My submissions", "What your team sent, what it cost, and what became of it."),
    "/compare": Head("Compare", "Two models side by side, finding by finding, with intervals."),
    "/about": Head("About", "How figures are made, rounded and released on this board, and how to cite them."),
    "/admin": Head("Admin", "For administrators of this board."),
    "/read": Head("Read answers", "For the readers of this board."),
}


def of_board(services: Services, asked: Mapping[str, str]) -> Head:
    """The board: what it ranks, and its table."""
    name = asked.get("benchmark") or services.names[0]
    if name not in services.names:
        return LOST
    board = standings(services.store, services.catalogue.current(name))
    draw = render_board if board.scored_by == "readers" else render
    told = board_notes.opening(board)
    return Head(board.title, _text(told), body=told + draw(board))


def of_entry(services: Services, asked: Mapping[str, str]) -> Head:
    """An entry that any visitor may see; of all others nothing is told."""
    found = services.store.get(asked.get("id", "")[:64])
    scores = [] if found is None else services.store.scores_of(found.id)
    if found is None or not entry.may_see(found, scores, None):
        return LOST if found is None or "id" not in asked else Head("Entry", "An entry of this board.")
    board = services.catalogue.current(found.benchmark).title
    return Head(f"{found.model_name}, {found.team}", f"A scored entry of {board}, with every released figure.")


DESCRIBED: dict[str, Callable[[Services, Mapping[str, str]], Head]] = {"/": of_board, "/entry": of_entry}


class Heads:
    """Puts each page's own words into the document that Gradio serves for it."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self.app, self.services = app, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        path = scope.get("path", "")
        if scope["type"] != "http" or scope["method"] != "GET" or not (path in DESCRIBED or path in OF_PAGE):
            await self.app(scope, receive, send)
            return
        head = await run_in_threadpool(self._head, path, scope["query_string"].decode("latin-1"))
        server = f"{scope['scheme']}://{Headers(scope=scope).get('host', '')}"
        started: Message = {}
        parts: list[bytes] = []

        async def written(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
                return
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            document = b"".join(parts)
            headers = MutableHeaders(raw=started["headers"])
            if headers.get("content-type", "").startswith("text/html") and started["status"] == 200:
                document, started["status"] = _rewritten(document, head, server + path), head.status
                headers["content-length"] = str(len(document))
            await send(started)
            await send({"type": "http.response.body", "body": document})

        await self.app(scope, receive, written)

    def _head(self, path: str, query: str) -> Head:
        if path in OF_PAGE:
            return OF_PAGE[path]
        try:
            return DESCRIBED[path](self.services, dict(parse_qsl(query)))
        except Exception:  # a page that cannot be described is still a page, and says itself what is wrong
            log.exception("a page could not be described")
            return Head(SITE, "A board of models that read chest radiographs.")


def _rewritten(document: bytes, head: Head, address: str) -> bytes:
    title = SITE if head.title == SITE else f"{head.title} · {SITE}"
    told = {"og:title": title, "og:description": head.description, "og:type": "website", "og:site_name": SITE}
    if head.picture:
        told["og:image"] = urljoin(address, head.picture)
    tags = [f"<title>{escape(title)}</title>", f'<meta name="description" content="{escape(head.description)}">']
    tags += [f'<meta property="{name}" content="{escape(value)}">' for name, value in told.items()]
    tags.append(f'<meta name="twitter:card" content="{"summary_large_image" if head.picture else "summary"}">')
    document = THEIRS.sub(b"", document).replace(b"</head>", "".join(tags).encode() + b"</head>", 1)
    if not head.body:
        return document
    body = f"<noscript><p>{SCRIPTLESS}</p>{head.body}</noscript>".encode()
    return BODY.sub(lambda found: found.group() + body, document, count=1)


def _text(markup: str) -> str:
    """The words of a piece of HTML of ours, at most 300 characters."""
    return " ".join(Markup(markup).striptags().split())[:300]
