"""Request limits, with a clock that only the tests move."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from reveal_leaderboard.accounts.people import Actor, Membership, Team, User
from reveal_leaderboard.web import rate_limits
from reveal_leaderboard.web.rate_limits import Rate, RateLimit, RequestLimits, cost_of
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

UNLIMITED = Rate(1e9, 1e9)


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Known:
    """Knows people by their cookie, such as ``user1 lab`` for one of the team "lab", and how often it was asked."""

    n_asked: int = 0

    async def find_actor(self, scope: Scope) -> Actor | None:
        self.n_asked += 1
        name, *teams = dict(scope["headers"]).get(b"cookie", b"-").decode().split()
        user = User(name, "i", name, name)
        memberships = tuple(Membership(Team(team, team), "member") for team in teams)
        return Actor(user, memberships, frozenset(), "session") if name.startswith("user") else None


@dataclass
class Board:
    """A limited application, and what it answered last."""

    limits: RequestLimits
    clock: Clock = field(default_factory=Clock)
    known: Known = field(default_factory=Known)

    def __post_init__(self) -> None:
        self.app = RateLimit(PlainTextResponse("fine"), self.known, self.limits, clock=self.clock)  # type: ignore[arg-type]

    def ask(
        self, path: str = "/", *, method: str = "GET", address: str | None = "10.0.0.1", cookie: str = ""
    ) -> tuple[int, int | None]:
        """(status, seconds of Retry-After) of one request."""
        headers = [(b"cookie", cookie.encode())] if cookie else []
        client = None if address is None else (address, 1)
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "client": client}
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        retry_after = dict(sent[0]["headers"]).get(b"retry-after")
        if sent[0]["status"] == 429:
            assert dict(sent[0]["headers"])[b"content-type"] == b"application/problem+json"
        return sent[0]["status"], None if retry_after is None else int(retry_after)


@pytest.mark.parametrize(
    ("method", "path", "cost"),
    [
        ("GET", "/", 1),
        ("HEAD", "/api/v1/leaderboard", 1),
        ("GET", "/assets/index-1.js", 0),
        ("GET", "/static/fonts/a.woff2", 0),
        ("POST", "/assets/index-1.js", 2),
        ("POST", "/gradio_api/queue/join", 2),
        ("POST", "/gradio_api/upload", 20),
        ("POST", "/api/v1/submissions", 20),
        ("POST", "/api/v1/submissions/", 20),
        ("GET", "/api/v1/submissions/abc", 1),
        ("DELETE", "/api/v1/submissions/abc", 2),
        ("GET", "/login", 20),
        ("GET", "/login/callback", 20),
        ("POST", "/api/v1/me/tokens", 20),
        ("GET", "/api/v1/me/tokens", 1),
    ],
)
def test_what_a_request_costs(method: str, path: str, cost: int) -> None:
    assert cost_of(method, path) == cost


def test_probes_of_a_supervisor_are_answered_whatever_its_address_has_open() -> None:
    board = Board(RequestLimits(address=Rate(1, 0.5), open_requests=0))
    assert [board.ask(path)[0] for path in ("/readyz", "/healthz", "/")] == [200, 200, 429]


def test_an_address_empties_its_bucket_and_waits() -> None:
    board = Board(RequestLimits(address=Rate(3, 0.5)))
    assert [board.ask()[0] for _ in range(4)] == [200, 200, 200, 429]
    assert board.ask() == (429, 2)  # one unit at half a unit per second
    assert board.ask(address="10.0.0.2")[0] == 200
    board.clock.seconds = 1.9
    assert board.ask() == (429, 1)
    board.clock.seconds = 2.0  # the refused request took nothing
    assert [board.ask()[0] for _ in range(2)] == [200, 429]
    board.clock.seconds = 1000.0  # never fuller than full
    assert [board.ask()[0] for _ in range(4)] == [200, 200, 200, 429]


def test_dear_requests_wait_longer_and_static_files_pass() -> None:
    board = Board(RequestLimits(address=Rate(40, 1)))
    assert [board.ask("/api/v1/submissions", method="POST")[0] for _ in range(2)] == [200, 200]
    assert board.ask("/api/v1/submissions", method="POST") == (429, 20)
    assert board.ask() == (429, 1)
    assert board.ask("/assets/index.js")[0] == 200
    assert board.known.n_asked == 0  # nobody was looked up for requests without credentials


def test_a_person_is_limited_from_every_address() -> None:
    board = Board(RequestLimits(address=UNLIMITED, actor=Rate(2, 1)))
    asked = [board.ask(cookie="user1", address=f"10.0.0.{i}")[0] for i in range(3)]
    assert asked == [200, 200, 429]
    assert board.ask(cookie="user2")[0] == 200
    assert [board.ask(cookie="no session of ours")[0] for _ in range(3)] == [200] * 3


UPLOADS = ["/api/v1/submissions", "/gradio_api/upload"]


@pytest.mark.parametrize("path", UPLOADS)
def test_a_team_is_limited_whoever_of_it_uploads(path: str) -> None:
    board = Board(RequestLimits(address=UNLIMITED, actor=UNLIMITED, team=Rate(40, 0.5)))

    def upload(cookie: str) -> tuple[int, int | None]:
        return board.ask(path, method="POST", cookie=cookie)

    assert [upload(f"user{i} lab")[0] for i in range(3)] == [200, 200, 429]
    assert upload("user4 lab") == (429, 40)  # twenty units at half a unit per second
    assert upload("user5 other")[0] == 200
    assert upload("user6")[0] == 200  # without a team
    board.clock.seconds = 39.9
    assert upload("user1 lab") == (429, 1)
    board.clock.seconds = 40.0
    assert upload("user1 lab")[0] == 200


def test_who_is_of_two_teams_takes_from_both_or_neither() -> None:
    board = Board(RequestLimits(address=UNLIMITED, actor=UNLIMITED, team=Rate(40, 0.001)))

    def upload(cookie: str) -> int:
        return board.ask("/api/v1/submissions", method="POST", cookie=cookie)[0]

    assert [upload("user1 lab other") for _ in range(2)] == [200, 200]
    assert upload("user2 lab") == upload("user3 other") == 429
    assert upload("user3 third") == 200
    assert upload("user4 third lab") == 429  # and nothing was taken from the third
    assert [upload("user3 third") for _ in range(2)] == [200, 429]


def test_a_teams_limit_is_for_uploads_alone() -> None:
    board = Board(RequestLimits(address=UNLIMITED, actor=UNLIMITED, team=Rate(20, 0.001)))
    asked = [("GET", "/api/v1/submissions"), ("POST", "/gradio_api/queue/join"), ("DELETE", "/api/v1/submissions/abc")]
    assert {board.ask(path, method=method, cookie="user1 lab")[0] for method, path in asked * 20} == {200}
    assert board.ask("/api/v1/submissions/", method="POST", cookie="user1 lab")[0] == 200
    assert board.ask("/api/v1/submissions", method="POST", cookie="user1 lab")[0] == 429


def test_a_team_may_upload_more_than_one_of_it() -> None:
    limits = RequestLimits()
    assert (limits.team.burst, limits.team.per_second) == (2 * limits.actor.burst, 2 * limits.actor.per_second)
    board = Board(limits)
    answers = [board.ask("/api/v1/submissions", method="POST", address=f"10.0.{i}.1", cookie=f"user{i % 3} lab")[0]
               for i in range(61)]  # fmt: skip
    assert answers == [200] * 60 + [429]  # 1200 units, 20 to an upload


def test_an_empty_address_costs_no_look_up() -> None:
    board = Board(RequestLimits(address=Rate(1, 1)))
    assert [board.ask(cookie="user1")[0] for _ in range(3)] == [200, 429, 429]
    assert board.known.n_asked == 1


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("nonsense", "other nonsense", True),
        (None, "nonsense", True),
        ("10.0.0.1", "10.0.0.2", False),
    ],
    ids=range(6),
)
def test_what_counts_as_one_address(one: str | None, other: str, is_same: bool) -> None:
    board = Board(RequestLimits(address=Rate(1, 1)))
    assert board.ask(address=one)[0] == 200
    assert (board.ask(address=other)[0] == 429) is is_same


def test_memory_is_bounded_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 100)
    board = Board(RequestLimits(address=Rate(1, 0.001)))
    assert board.ask(address="192.0.2.1")[0] == 200
    for i in range(100):
        assert board.ask(address=f"10.0.0.{i}")[0] == 200
    assert len(board.app._buckets._contents) == 100
    assert board.ask(address="10.0.0.99")[0] == 429
    assert board.ask(address="192.0.2.1")[0] == 200


def test_requests_under_way_are_counted() -> None:
    """Heartbeats and event streams stay open: an address has so many at once."""
    finish = asyncio.Event()
    statuses: list[int] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await finish.wait()
        await PlainTextResponse("fine")(scope, receive, send)

    async def nothing() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def note(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def all_at_once() -> None:
        app = RateLimit(slow, Known(), RequestLimits(open_requests=2))  # type: ignore[arg-type]
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("10.0.0.1", 1)}
        waiting = [asyncio.create_task(app(dict(scope), nothing, note)) for _ in range(2)]
        await asyncio.sleep(0)
        await app(dict(scope), nothing, note)
        assert statuses == [429]
        finish.set()
        await asyncio.gather(*waiting)
        await app(dict(scope), nothing, note)
        assert statuses == [429, 200, 200, 200]
        assert not app._open

    asyncio.run(all_at_once())
