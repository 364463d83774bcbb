"""Signing in by a link that an administrator sent: ``GET`` and ``POST /login/link``.

Programs that deliver mail open links to look at them. So opening one looks nothing up and changes nothing; the button
on its page uses it, and counts as a sign-in for the limits of requests. Why a link does not work is not told, since a
link that never was looks like one that is over.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from reveal_leaderboard.accounts.links import LINK_SESSION_SECONDS
from reveal_leaderboard.web.pages.drawing import whole_page
from reveal_leaderboard.web.sign_in_modes import Auth

PATH = "/login/link"
NO_STORE = {"Cache-Control": "no-store"}
GONE = "It was used before, is too old, was replaced by a newer one, or is incomplete. Ask for another."
WAYS = (("/", "Back to the board"),)


def add_links(app: FastAPI, auth: Auth) -> None:
    """Add the routes to `app`."""

    @app.get(PATH, include_in_schema=False)
    def opened(key: str = "") -> Response:
        """Ask whether to sign in."""
        text = "You were sent a link to this board. It works once, in the browser where you want to be signed in."
        return _page(200, "Sign in", text, key=key)

    @app.post(PATH, include_in_schema=False)
    def confirmed(request: Request, key: Annotated[str, Form()] = "") -> Response:
        """Use the link up, and begin a session."""
        secret = auth.accounts.use_link(key, instead_of=auth.session_of(request))
        if secret is None:
            return _page(403, "This link does not work", GONE)
        answer = RedirectResponse("/", 303, NO_STORE)
        auth.keep(answer, auth.cookie, secret, LINK_SESSION_SECONDS)
        return answer


def how_to_sign_in() -> Response:
    """What `/login` says where links are the only way."""
    text = "People sign in here with a link that the operators of this board send them. Ask them for one."
    return _page(200, "Sign in", text)


def _page(status: int, title: str, text: str, *, key: str = "") -> Response:
    button = (PATH, key, "Sign in") if key else None
    return HTMLResponse(whole_page(title, text, "", WAYS, button), status, NO_STORE)
