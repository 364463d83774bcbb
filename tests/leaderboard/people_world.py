"""People and teams for the tests of accounts, credentials and approvals.

Whatever a test did, the chain of events must hold at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Team, User
from reveal_leaderboard.store.events import history, verify_events
from reveal_leaderboard.web.api.accounts import account_routes
from reveal_leaderboard.web.api.problems import add_problems
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.sign_in_modes import Auth

ISSUER = "https://id.example.org"


@pytest.fixture
def engine(engine: sa.Engine) -> Iterator[sa.Engine]:
    yield engine
    with engine.connect() as connection:
        assert verify_events(connection) == []


@pytest.fixture
def accounts(engine: sa.Engine) -> Accounts:
    return Accounts(engine)


def person(accounts: Accounts, name: str, *, as_admin: bool = False) -> User:
    return accounts.sign_in(ISSUER, f"subject-{name}", name, as_admin=as_admin)


def add_me(app: FastAPI, auth: Auth) -> None:
    """``/me`` below the API: the signed-in user, or 401."""
    app.include_router(account_routes(cast(Services, SimpleNamespace(auth=auth))))
    add_problems(app)


def me(user: User) -> str:
    return f"user:{user.id}"


def team_of(accounts: Accounts, user: User, name: str = "Example Lab", *, is_asked: bool = False) -> Team:
    return accounts.create_team(name, owner=user, who=me(user), is_asked=is_asked)


def later(engine: sa.Engine, table: sa.Table, seconds: float, *columns: str) -> None:
    """Let `seconds` pass for the rows of `table`, by moving their times back."""
    with engine.begin() as connection:
        connection.execute(table.update().values({name: table.c[name] - seconds for name in columns}))


def steps(engine: sa.Engine, subject: str) -> list[str]:
    with engine.connect() as connection:
        return [event.to_status for event in history(connection, subject)]
