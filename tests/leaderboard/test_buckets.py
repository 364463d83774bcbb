"""Token buckets that several servers share, on both kinds of database."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.store.buckets import Rate, SharedBuckets
from reveal_leaderboard.store.tables import buckets
from reveal_leaderboard.web.app import guard
from reveal_leaderboard.web.rate_limits import RequestLimits
from reveal_leaderboard.web.sign_in_modes import Auth, Provider

from tests.leaderboard.api_app import Person, person
from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import each_database_kind

__all__ = ["each_database_kind"]

HERE = "https://board.example.org"
HOUR = 3600.0
SLOW = Rate(10, 0.001)


def move(engine: sa.Engine, seconds: float) -> None:
    """Make the bucket older by this much: the clock was set forward, or back if it is negative."""
    with engine.begin() as connection:
        connection.execute(buckets.update().values(at=buckets.c.at - seconds))


def count(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(buckets)).scalar_one())


def test_all_is_taken_or_nothing(engine: sa.Engine) -> None:
    shared = SharedBuckets(engine)
    assert shared.take({"a": SLOW, "b": Rate(4, 0.001)}, 3) == 0
    assert shared.take({"b": Rate(4, 0.001), "a": SLOW}, 3) == pytest.approx(2000, abs=1)
    assert shared.take({"a": SLOW}, 7) == 0  # the refused request took nothing from it
    assert shared.take({"a": SLOW}, 1) == pytest.approx(1000, abs=1)
    move(engine, HOUR)
    assert shared.take({"a": SLOW}, 3) == 0  # 3.6 have come back


def test_many_at_once_get_no_more_than_there_is(engine: sa.Engine) -> None:
    shared = SharedBuckets(engine)
    names = [{"a": SLOW, "b": SLOW}, {"b": SLOW, "c": SLOW}, {"c": SLOW, "b": SLOW, "a": SLOW}]
    waits = at_once(lambda i: shared.take(names[i % 3], 1), range(24))
    assert waits.count(0) == 10  # all of them take from b


def test_a_clock_that_is_set_back_gives_nothing_and_locks_nobody_out(engine: sa.Engine) -> None:
    shared, rate = SharedBuckets(engine), Rate(10, 1)
    assert shared.take({"a": rate}, 10) == 0
    move(engine, -10 * HOUR)
    assert 9 < shared.take({"a": rate}, 10) <= 10
    move(engine, 10)
    assert shared.take({"a": rate}, 10) == 0


def test_what_has_filled_up_is_removed(engine: sa.Engine) -> None:
    shared = SharedBuckets(engine)
    shared.take({"a": SLOW, "b": SLOW}, 1)
    move(engine, HOUR)
    shared.take({"b": SLOW}, 1)
    shared.sweep(HOUR - 1)
    assert count(engine) == 1
    assert shared.take({"b": SLOW}, 9.5) > 0


@pytest.fixture
def somebody(engine: sa.Engine) -> Iterator[Person]:
    return person(Accounts(engine), "Owners")


def server(engine: sa.Engine, somebody: Person | None, limits: RequestLimits, address: str = "192.0.2.1") -> TestClient:
    """One of several servers on a database, as it was just started."""
    provider = Provider("https://id.example.org", "c", "s", f"{HERE}/login/callback", "the provider", "the provider")
    app = FastAPI(openapi_url=None, docs_url=None)
    app.add_api_route("/api/v1/things", lambda: "done", methods=["GET", "POST"])
    app.add_api_route("/login", lambda: "go there", methods=["GET"])
    auth = Auth(Accounts(engine), "oidc", provider)
    guard(app, auth, max_body_bytes=1000, limits=limits, shared=SharedBuckets(engine))
    headers = {} if somebody is None else {"authorization": f"Bearer {somebody.token}"}
    return TestClient(app, base_url=HERE, headers=headers, client=(address, 1))


def test_two_servers_share_a_limit_and_a_restart_forgets_nothing(engine: sa.Engine, somebody: Person) -> None:
    limits = RequestLimits(actor=Rate(10, 0.001))
    first, second = (server(engine, somebody, limits, f"192.0.2.{i}") for i in range(2))
    answers = [one.post("/api/v1/things").status_code for one in (first, second) * 3]
    assert answers == [200] * 5 + [429]
    again = server(engine, somebody, limits, "192.0.2.7").post("/api/v1/things")
    assert (again.status_code, again.headers["content-type"]) == (429, "application/problem+json")
    assert 1900 < int(again.headers["retry-after"]) <= 2000
    # What was refused took nothing from what the server counts by itself, from which reading goes on.
    assert [second.get("/api/v1/things").status_code for _ in range(6)] == [200] * 6


def test_sign_ins_are_shared_by_address(engine: sa.Engine) -> None:
    limits = RequestLimits(address=Rate(60, 0.001))
    first, second = (server(engine, None, limits) for _ in range(2))
    assert [one.get("/login").status_code for one in (first, second) * 2] == [200, 200, 200, 429]


def test_reading_writes_nothing_nor_does_a_stranger(engine: sa.Engine, somebody: Person) -> None:
    for who in (None, somebody):
        one = server(engine, who, RequestLimits())
        assert one.get("/api/v1/things").status_code == 200
        assert one.post("/gradio_api/queue/join").status_code == 400  # by Gradio's gate, which comes after the limits
    assert server(engine, None, RequestLimits()).post("/api/v1/things").status_code == 200
    assert count(engine) == 0
    assert server(engine, somebody, RequestLimits()).post("/api/v1/things").status_code == 200
    assert count(engine) == 2  # the address and the person


def test_a_server_counts_by_itself_while_the_database_does_not_answer(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    one = server(engine, None, RequestLimits(address=Rate(40, 0.001)))
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE buckets RENAME TO away"))
    try:
        with caplog.at_level(logging.WARNING):
            assert [one.get("/login").status_code for _ in range(3)] == [200, 200, 429]
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE away RENAME TO buckets"))
    assert "counted by this server only" in caplog.text
