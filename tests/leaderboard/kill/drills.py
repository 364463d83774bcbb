"""The kill tests for each kind of database: SIGKILL at every point in the life of a submission.

Each seed of a database has one arena, in which the points are met one after the other: after each kill everything that
the board holds is checked. One seed is run, or as many as REVEAL_KILL_SEEDS says, from REVEAL_KILL_FIRST_SEED on. With
one seed, SQLite meets one point for each state that a kill leaves, and PostgreSQL those within a transaction; with more
(``make soak``), both meet all. With SQLite the uploads are in a folder, with PostgreSQL in a bucket. ``make soak``
also has the many kills of :mod:`tests.leaderboard.kill.many_kills`.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.leaderboard.conftest import Board, wait_until
from tests.leaderboard.databases import DATABASE_SOURCE
from tests.leaderboard.kill.arena import PATIENCE, Arena, Send, arena
from tests.leaderboard.kill.orders import SERVER_POINTS, WORKER_POINTS

FIRST_SEED = int(os.environ.get("REVEAL_KILL_FIRST_SEED", "0"))
N_SEEDS = int(os.environ.get("REVEAL_KILL_SEEDS", "1"))
DROPPED = "this result is dropped"


@pytest.fixture(scope="class", params=range(FIRST_SEED, FIRST_SEED + N_SEEDS), ids=lambda seed: f"seed{seed}")
def place(request: pytest.FixtureRequest, board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """An arena for each seed, on the kind of database that the class of tests names."""
    root = tmp_path_factory.mktemp("arena")
    (root / "data").mkdir()
    url = DATABASE_SOURCE.migrated(request.cls.kind, root / "data")
    is_bucket = request.cls.kind == "postgresql"  # as on several machines
    blobs = (
        f"s3://{request.getfixturevalue('bucket')}/{root.name}" if is_bucket else f"file://{root / 'data' / 'blobs'}"
    )
    with arena(board, url, blobs, root, seed=request.param) as opened:
        yield opened
    DATABASE_SOURCE.drop(url)


@contextmanager
def half_sent(place: Arena, send: Send, *, share: float) -> Iterator[None]:
    """While the block runs, a server has a part of a request."""
    request = place.request(send)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    body = request.read()
    with socket.create_connection(("127.0.0.1", place.port)) as connection:
        connection.sendall(f"POST {request.url.path} HTTP/1.1\r\n{head}\r\n".encode())
        connection.sendall(body[: int(share * len(body))])
        yield


WAKING_POINTS = ("after-claim", "parsed", "scored") if N_SEEDS > 1 else ("scored",)
PARSING = ("parse-start", "mid-parse", "parsed")


class Drills:
    """The drills in the arena `place` on a database of `kind`, at all points or, with one seed, at `few`."""

    kind: str
    few: tuple[str, ...]
    """Points of death that are met with one seed."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        drill = {
            "test_killed_at_work": WORKER_POINTS,
            "test_killed_at_the_door": SERVER_POINTS,
            "test_a_worker_that_wakes_after_its_lease_writes_nothing": WAKING_POINTS,
        }[metafunc.function.__name__]
        is_met_always = N_SEEDS > 1 or drill is WAKING_POINTS
        metafunc.parametrize("point", [point for point in drill if is_met_always or point in self.few])

    def test_killed_at_work(self, place: Arena, point: str) -> None:
        armed, spare = place.workers
        is_middle = point.startswith("mid-")
        target = place.draw.choice(["child", "template", "self"]) if is_middle else "self"
        n = place.draw.randint(1, 3)
        sends = [place.new_send() for _ in range(n)]
        nth = 1 if "rank" in point else place.draw.randint(1, n)
        delay = place.draw.choice([0.0, place.draw.uniform(0, 0.02 if is_middle else 0.1)])
        place.order(place.server, keeps_nothing=point in PARSING)
        place.order(spare, is_held=True)
        orders = place.order(armed, point=point, nth=nth, delay=delay, target=target)
        assert place.post_all(sends) == [True] * n
        place.wait_met(armed, orders)
        if target == "self":
            armed.wait_killed()
            place.lapse(armed)
            left = place.half_written()
            assert bool(left) == (point == "rows-half-kept")
            for path in left:
                os.utime(path, (0, 0))  # so long ago that nobody can be writing it still
            place.workers = [spare, place.start_worker()]
            wait_until(lambda: not place.half_written(), seconds=PATIENCE)
        place.order(spare)
        place.wait_idle()
        place.check()

    def test_killed_at_the_door(self, place: Arena, point: str) -> None:
        """Up to three send at the same time; whoever got no answer sends again, and so does whoever got one."""
        server, n = place.server, place.draw.randint(1, 3)
        sends = [place.new_send() for _ in range(n)]
        for worker in place.workers:
            place.order(worker)
        delay = place.draw.choice([0.0, place.draw.uniform(0, 0.1)])
        if point == "mid-upload":
            with half_sent(place, sends[-1], share=place.draw.random()):
                answers = place.post_all(sends[:-1]) if n > 1 else []
                assert None not in answers
                time.sleep(delay)
                server.look()
                server.process.kill()
        else:
            orders = place.order(server, point=point, nth=place.draw.randint(1, n), delay=delay)
            server.look()
            assert None in place.post_all(sends)
            assert server.desk.is_done(orders.number)
        server.wait_killed()
        there = place.check_books(sends)
        place.server = place.start_server()
        for send, is_new in zip(sends, place.post_all(sends), strict=True):
            assert is_new is (send.key not in there)
        place.wait_idle()
        place.check()

    def test_a_worker_that_wakes_after_its_lease_writes_nothing(self, place: Arena, point: str) -> None:
        sleeper, spare = place.workers
        place.order(place.server, keeps_nothing=point in PARSING)
        send = place.new_send()
        place.order(spare, is_held=True)
        orders = place.order(sleeper, point=point, target="stop")
        assert place.post(send) is True
        wait_until(lambda: sleeper.desk.is_done(orders.number), seconds=PATIENCE)
        place.lapse(sleeper)
        place.order(spare)
        place.wait_idle()
        place.check()
        place.order(sleeper, is_held=True)
        dropped = place.log("worker").count(DROPPED)
        os.kill(sleeper.pid, signal.SIGCONT)
        wait_until(lambda: place.log("worker").count(DROPPED) == dropped + 1, seconds=PATIENCE)
        place.check()
