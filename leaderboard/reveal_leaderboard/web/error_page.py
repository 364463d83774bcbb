"""Error answers as pages, for people who follow an address in a browser; programs keep getting problem documents.

What is asked for by a browser says so: it is a GET whose Accept header names HTML. The API answers everybody alike.
"""

from __future__ import annotations

import json

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reveal_leaderboard.web.gate import PROBLEM_TYPE
from reveal_leaderboard.web.pages.drawing import whole_page

__all__ = ["ErrorPages", "error_page"]

FOR_PROGRAMS = ("/api/", "/gradio_api/", "/metrics", "/healthz", "/readyz")
MAX_DOCUMENT = 64 * 1024
LOST = "Nothing here has this address. It may be incomplete, or out of date."
WAYS = (("/", "To the board"), ("/submit", "Submit"), ("/about", "About"))


def error_page(status: int, title: str, detail: str) -> str:
    """A whole page with the way back to the board."""
    return whole_page(title, detail, f"HTTP status {status}", WAYS)


class ErrorPages:
    """Answers people with pages where programs are answered with problem documents (RFC 9457)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or not _is_for_people(scope):
            await self.app(scope, receive, send)
            return
        start: Message | None = None  # of the problem document that is being replaced
        body = b""

        async def replaced(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
                return
            if start is None:
                await send(message)
                return
            if len(body) < MAX_DOCUMENT:
                body += message.get("body", b"")
            if not message.get("more_body", False):
                await _send_page(start, body, send, has_body=scope["method"] != "HEAD")

        await self.app(scope, receive, replaced)


def _is_for_people(scope: Scope) -> bool:
    if scope["method"] not in ("GET", "HEAD") or scope["path"].startswith(FOR_PROGRAMS):
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")


def _is_problem(message: Message) -> bool:
    kind = Headers(raw=message.get("headers", [])).get("content-type", "")
    return message["status"] >= 400 and kind.startswith(PROBLEM_TYPE)


async def _send_page(start: Message, body: bytes, send: Send, *, has_body: bool) -> None:
    status = start["status"]
    try:
        document = json.loads(body)
        title, detail = str(document["title"]), str(document["detail"])
    except (ValueError, TypeError, KeyError):  # cut off
        title, detail = "Something went wrong", "The page cannot be shown."
    if status == 404 and detail == title:  # the framework's own words
        title, detail = "There is no such page", LOST
    page = error_page(status, title, detail).encode()
    told = [pair for pair in start["headers"] if pair[0].lower() not in (b"content-type", b"content-length")]
    kind = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(page)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*told, *kind]})
    await send({"type": "http.response.body", "body": page if has_body else b""})
