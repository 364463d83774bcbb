"""Routes for signing in by a link from an administrator: ``GET`` and ``POST /login/link``.

Mail programs open links to check them, so opening a link does not use it up. The button on the link's page does, and
counts as a sign-in for the request limits. The page never says why a link does not work: an expired link looks like one
that never existed.
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
GONE = "The link was used before, has expired, was replaced by a newer one, or is incomplete. Ask for another."
LINKS = (("/", "Back to the start"),)


def add_links(app: FastAPI, auth: Auth) -> None:
    """Add the routes to `app`."""

    @app.get(PATH, include_in_schema=False)
    def opened(key: str = "") -> Response:
        """Show a page with a sign-in button."""
        text = "Use your link to sign in here. The link works once. You will be signed in to this browser."
        return _page(200, "Sign in", text, key=key)

    @app.post(PATH, include_in_schema=False)
    def confirmed(request: Request, key: Annotated[str, Form()] = "") -> Response:
        """Use up the link, and begin a session."""
        secret = auth.accounts.use_link(key, instead_of=auth.session_of(request))
        if secret is None:
            return _page(403, "This link does not work", GONE)
        answer = RedirectResponse("/", 303, NO_STORE)
        auth.keep(answer, auth.cookie, secret, LINK_SESSION_SECONDS)
        return answer


def link_address(server: str, secret: str) -> str:
    """Return the address that a person opens to use a link, on the server with an address."""
    return f"{server}{PATH}?key={secret}"


def how_to_sign_in() -> Response:
    """Return the page of `/login` for servers where people sign in only by link."""
    text = "You sign in here with a link from the people who run this page. Ask them for a link."
    return _page(200, "Sign in", text)


def _page(status: int, title: str, text: str, *, key: str = "") -> Response:
    button = (PATH, key, "Sign in") if key else None
    return HTMLResponse(whole_page(title, text, "", LINKS, button), status, NO_STORE)
