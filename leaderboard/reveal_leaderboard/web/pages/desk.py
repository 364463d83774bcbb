"""What the pages work with: the stores, the queue, the accounts, and who is asking.

Conventions
-----------
A handler never trusts what the browser holds: it asks :meth:`Desk.actor` anew at every event, and every rule about who
may do what is applied to that answer. `gr.State` keeps ids at most.

The line at the top of every page: who is signed in, the way in or out, and to the pages that only some may open.

It also brings the small script that all pages share (`site.js`: a skip link, and titles that follow the headings).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import gradio as gr

from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.boards.reading import may_read
from reveal_leaderboard.web.pages.drawing import link, text

if TYPE_CHECKING:
    from reveal_leaderboard.accounts.accounts import Accounts
    from reveal_leaderboard.accounts.people import Actor
    from reveal_leaderboard.boards.catalogue import Catalogue
    from reveal_leaderboard.settings import Settings
    from reveal_leaderboard.store.queue import Queue
    from reveal_leaderboard.store.store import Store
    from reveal_leaderboard.web.auth import Auth
    from reveal_leaderboard.web.intake import Intake

__all__ = ["Desk", "NotAdminError", "SCRIPT", "build_strip", "strip_view"]


class NotAdminError(PermissionError):
    """An admin's action asked for by somebody else."""


@dataclass(frozen=True)
class Desk:
    """Everything a page may reach; no holdout, no vault and no signing key is among it."""

    store: Store
    queue: Queue
    intake: Intake
    accounts: Accounts
    auth: Auth
    settings: Settings
    catalogue: Catalogue

    def actor(self, request: gr.Request) -> Actor | None:
        """Who sent the event, from its cookie or token; None for a visitor."""
        return self.auth.actor(request.request)

    def admin(self, request: gr.Request) -> Actor:
        """Who sent the event, if that is an admin.

        Raises
        ------
        NotAdminError
            For everybody else.
        """
        actor = self.actor(request)
        if actor is None or not actor.is_admin:
            raise NotAdminError("only an admin may do this")
        return actor

    @property
    def names(self) -> list[str]:
        """Names of the benchmarks served."""
        return list(self.catalogue.names)


SCRIPT = (files("reveal_leaderboard.web.pages") / "site.js").read_text(encoding="utf-8")


def build_strip(desk: Desk, page: gr.Blocks) -> None:
    """Lay out the line inside the present Blocks."""
    shown = gr.HTML('<p class="rv-strip">&nbsp;</p>', elem_id="strip", js_on_load=SCRIPT)

    def show(request: gr.Request) -> str:
        actor = desk.actor(request)
        return strip_view(actor, reads=_reads(desk, actor))

    page.load(show, None, shown, api_visibility="private", show_progress="hidden")


def _reads(desk: Desk, actor: Actor | None) -> bool:
    """Whether there is a board whose answers `actor` may score."""
    scored_by_readers = (name for name in desk.names if any(v.kind == "tasks" for v in desk.catalogue.versions(name)))
    return any(may_read(actor, desk.settings.of(name).reading) for name in scored_by_readers)


def strip_view(actor: Actor | None, *, reads: bool = False) -> str:
    """The line for this actor, or for a visitor; `reads`: with the way to the page of readers."""
    if actor is None:
        return f'<p class="rv-strip">{link("/login", "Sign in")}</p>'
    more = f" · {link('/read', 'Read answers')}" if reads else ""
    more += f" · {link('/admin', 'Admin')}" if actor.is_admin else ""
    if actor.via == "local":
        return f'<p class="rv-strip">Local mode, one user{more}</p>'
    out = '<form method="post" action="/logout"><button type="submit" class="rv-action">Sign out</button></form>'
    return f'<div class="rv-strip">Signed in as <b>{text(actor.user.name)}</b>{more} {out}</div>'
