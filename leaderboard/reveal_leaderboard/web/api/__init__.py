"""The REST API, version 1: :func:`add_api` puts its routes, errors and description on an application.

Conventions
-----------
Figures are fractions, moments UTC texts, errors problem documents (RFC 9457; see :mod:`.problems`). A route parses,
asks one part of the leaderboard, and translates its answer or its error: what may be seen is decided in
:mod:`.access`, what is shown of it in :mod:`.documents`.
"""

from __future__ import annotations

from fastapi import FastAPI

from reveal_leaderboard.web.api.access import PREFIX
from reveal_leaderboard.web.api.accounts import account_routes
from reveal_leaderboard.web.api.boards import board_routes
from reveal_leaderboard.web.api.description import add_unknown, describe
from reveal_leaderboard.web.api.health import health_routes, key_routes
from reveal_leaderboard.web.api.problems import add_problems
from reveal_leaderboard.web.api.submissions import submission_routes
from reveal_leaderboard.web.services import Services

__all__ = ["PREFIX", "add_api"]


def add_api(app: FastAPI, services: Services) -> None:
    """Add the API's routes, error answers and description to `app`; to be called before pages are mounted on it."""
    app.include_router(submission_routes(services), prefix=PREFIX, tags=["submissions"])
    app.include_router(board_routes(services), prefix=PREFIX, tags=["boards"])
    app.include_router(account_routes(services), prefix=PREFIX, tags=["account"])
    app.include_router(key_routes(services), prefix=PREFIX, tags=["receipts"])
    app.include_router(health_routes(services), tags=["health"])
    add_problems(app)
    describe(app)
    add_unknown(app)
