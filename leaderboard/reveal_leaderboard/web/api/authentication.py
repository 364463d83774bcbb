"""Check that a caller may use a route: 401 without a valid session or token, 403 for a token without the scope.

:class:`reveal_leaderboard.web.sign_in_modes.Auth` finds the actor of a request. This module answers requests without a
valid actor, including uploads from the pages. :mod:`.visibility` decides what an actor may see of a submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.types import Send

from reveal_leaderboard.web.api.problems import ProblemError
from reveal_leaderboard.web.middleware import send_problem

if TYPE_CHECKING:
    from reveal_leaderboard.accounts.people import Actor
    from reveal_leaderboard.web.services import Services

SIGN_IN = [
    Security(HTTPBearer(auto_error=False, scheme_name="token", description="created on the page My submissions")),
    Security(APIKeyCookie(name="__Host-reveal", auto_error=False, scheme_name="session", description="after /login")),
]
"""The accepted kinds of credentials in the API's description; :func:`require_actor` checks credentials."""

ANYBODY: dict[str, Any] = {"security": [{}]}
"""Marks a route in the API's description as open to visitors."""


def require_actor(services: Services, request: Request, scope: str) -> Actor:
    """Return the signed-in actor of a request.

    Raises
    ------
    ProblemError
        "sign-in" (401) without a valid session or token, "scope" (403) if the actor lacks `scope`.
    """
    return _check(services.auth.actor(request), scope)


def find_visitor(services: Services, request: Request) -> Actor | None:
    """Return the actor of a request to a route that is open to visitors; None for a visitor.

    Raises
    ------
    ProblemError
        If the request has an invalid token, because its owner would mistake the visitors' answer for the full answer.
    """
    actor = services.auth.actor(request)
    if actor is None and "authorization" not in request.headers:
        return None
    return _check(actor, "read")


def _check(actor: Actor | None, scope: str) -> Actor:
    if actor is None:
        raise ProblemError("sign-in")
    if not actor.may(scope):
        raise ProblemError("scope", f"The token lacks the scope `{scope}`.")
    return actor


async def refuse_anonymous_upload(send: Send) -> None:
    """Answer 401 to an upload from a page by a visitor who is not signed in."""
    await send_problem(send, 401, "Sign in to upload a file.", {"WWW-Authenticate": "Bearer"})
