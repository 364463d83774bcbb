"""The top line of every page: the user, sign-in or sign-out, and links to pages that only some users may see.

On Gradio's pages the line also loads `site.js`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import gradio as gr

from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.boards.reading import may_read
from reveal_leaderboard.web.pages.drawing import QUIET, draw
from reveal_leaderboard.web.services import Services

SCRIPT = (files("reveal_leaderboard.web.pages") / "site.js").read_text(encoding="utf-8")


def build_header(services: Services, page: gr.Blocks) -> None:
    """Build the line inside the current `gr.Blocks`."""
    line = gr.HTML(draw("pieces.html", "header_to_come"), elem_id="strip", js_on_load=SCRIPT)

    def show(request: gr.Request) -> str:
        return header_of(services, request)

    page.load(show, None, line, **QUIET)


def header_of(services: Services, request: Any) -> str:
    """Return the line as HTML for the sender of a request (Starlette's or Gradio's)."""
    actor = services.actor(request)
    reads = any(may_read(actor, services.settings.of(name).reading) for name in services.read_boards)
    return header_view(actor, reads=reads)


def header_view(actor: Actor | None, *, reads: bool = False) -> str:
    """Return the line as HTML for an actor or a visitor; `reads` adds the link to the readers' page."""
    return draw("pieces.html", "header", actor, reads)
