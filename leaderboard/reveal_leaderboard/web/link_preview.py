"""Head of every page: title, tags for link previews and print styles; and additions to Gradio's document.

Read-only pages (:mod:`reveal_leaderboard.web.pages.plain`) are rendered with these tags. For pages that perform
actions, Gradio serves one document with its own tags; :class:`LinkPreviews` replaces the tags, and adds a note that the
page needs JavaScript.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import escape
from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from reveal_leaderboard.web.middleware import Gate, gathered
from reveal_leaderboard.web.pages.first_sentences import OPENINGS, SITE

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

GRADIOS_OWN = re.compile(rb'<meta\s+(?:property|name)="(?:og|twitter):[^>]*>')
TITLE, HEAD, BODY = (re.compile(tag) for tag in (rb"<title>[^<]*</title>", rb"<head[^>]*>", rb"<body[^>]*>"))
WITHOUT_SCRIPTS = (
    b'<noscript><p style="margin:2rem">This page needs JavaScript. The board is also available <a href="/">as a table'
    b'</a> and <a href="/api/v1/leaderboard">as data</a>.</p></noscript>'
)
STILL = (
    "<style>@keyframes rv-show{to{visibility:visible}}"
    "gradio-app:not(:has(.rv-head h1):has(nav a):has(.rv-strip :is(a,button))) *"
    "{visibility:hidden;animation:rv-show 0s 4s forwards}</style>"
)
"""Hides a page for at most four seconds, until Gradio has assembled it, so that nothing moves."""
PRINTED = (
    "<style>@media print{"
    ".nav-holder,.rv-site,.rv-strip,.rv-controls,.rv-action,.rv-films,.rv-sort .rv-arrow{display:none!important}"
    "*{print-color-adjust:exact}gradio-app,gradio-app *,.rv-scroll{overflow:visible!important}"
    ".rv-scroll :is(th,td){padding:.3rem .4rem}.rv-scroll thead{display:table-row-group}"
    ".rv-scroll tr,.rv-places li{break-inside:avoid}gradio-app .gradio-container{min-height:0!important}}</style>"
)
"""Print styles: interval bars are printed, and controls are hidden.

In Gradio's own styles they would affect only a part of the page.
"""
DESCRIPTION = (
    "Models that read chest radiographs, ranked with 95% intervals on cases that only the scoring worker sees."
)


@dataclass(frozen=True)
class Preview:
    """Preview of a link to a page; `path` and `image` are addresses below the server's."""

    path: str
    title: str = SITE
    description: str = DESCRIPTION
    image: str = ""

    def tags(self, server: str) -> str:
        """Return the title, the meta tags and the print styles; `server` is the server's address."""
        tags = {"og:site_name": SITE, "og:type": "website", "og:title": self.title, "og:description": self.description}
        tags |= {"og:url": f"{server}{self.path}", "description": self.description}
        tags |= {"twitter:card": "summary_large_image" if self.image else "summary"}
        if self.image:
            tags |= {"og:image": f"{server}{self.image}", "og:image:width": "1200", "og:image:height": "630"}
            tags |= {"og:image:alt": self.description}
        lines = [f"<title>{escape(self.title)}</title>", PRINTED]
        for name, text in tags.items():
            attribute = "property" if name.startswith("og:") else "name"
            lines.append(f'<meta {attribute}="{name}" content="{escape(text)}">')
        return "\n".join(lines)


def server_of(request: Request) -> str:
    """Return the server's address as the visitor's browser sees it.

    The address is trustworthy, because the middleware refuses unknown host names.
    """
    return f"{request.url.scheme}://{request.url.netloc}"


class LinkPreviews(Gate):
    """Replaces the tags in every page that Gradio serves."""

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(start: Message, body: bytes) -> None:
            if GRADIOS_OWN.search(body):
                body = _with_tags(Request(scope), body)
                MutableHeaders(raw=start["headers"])["content-length"] = str(len(body))
            await send(start)
            await send({"type": "http.response.body", "body": body})

        is_read = scope["method"] in ("GET", "HEAD")
        await self.app(scope, receive, gathered(send, _is_page, answer) if is_read else send)


def _with_tags(request: Request, body: bytes) -> bytes:
    path = request.url.path
    preview = Preview(path, f"{OPENINGS[path].name} · {SITE}" if path in OPENINGS else SITE)
    tags = (STILL + preview.tags(server_of(request))).encode()
    body = TITLE.sub(b"", GRADIOS_OWN.sub(b"", body))
    body = HEAD.sub(lambda head: head[0] + b"\n" + tags, body, count=1)
    return BODY.sub(lambda tag: tag[0] + WITHOUT_SCRIPTS, body, count=1)


def _is_page(start: Message) -> bool:
    """Return True for Gradio's document; the server's own pages have a content policy of their own."""
    headers = MutableHeaders(raw=start["headers"])
    is_html = headers.get("content-type", "").startswith("text/html")
    is_own = "content-security-policy" in headers
    return bool(start["status"] == 200 and is_html and not is_own and "content-encoding" not in headers)
