"""SIGKILL at every point in the life of a submission, on both databases, with as many seeds as REVEAL_KILL_SEEDS says.

Each seed of a database has one arena, in which the points are met one after the other: after each kill everything that
the board holds is checked. `make soak` runs 20 seeds.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.tables import events

from tests.leaderboard.conftest import Board, wait_until
from tests.leaderboard.databases import DATABASE_SOURCE, DATABASES
from tests.leaderboard.kill.arena import Arena, arena
from tests.leaderboard.kill.orders import SERVER_POINTS, WORKER_POINTS

pytestmark = pytest.mark.processes

SEEDS = range(int(os.environ.get("REVEAL_KILL_SEEDS", "1")))
FIRST = int(os.environ.get("REVEAL_KILL_FIRST_SEED", "0"))
ARENAS = [
    pytest.param((kind, FIRST + seed), id=f"{kind}-{FIRST + seed}", marks=pytest.mark.xdist_group(f"{kind}-{seed}"))
    for seed in SEEDS
    for kind in DATABASES
]


@pytest.fixture(scope="module", params=ARENAS)
def place(
    request: pytest.FixtureRequest, board: Board, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Arena]:
    kind, seed = request.param
    root = tmp_path_factory.mktemp("arena")
    (root / "data").mkdir()
    url = DATABASE_SOURCE.migrated(kind, root / "data")
    with arena(board, url, root, seed) as opened:
        yield opened
    DATABASE_SOURCE.drop(url)


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_killed_at_work(place: Arena, point: str) -> None:
    armed, spare = place.workers
    is_middle = point.startswith("mid-")
    target = place.draw.choice(["child", "template", "self"]) if is_middle else "self"
    n = place.draw.randint(1, 3)
    sends = [place.new_send() for _ in range(n)]
    nth = 1 if "rank" in point else place.draw.randint(1, n)
    delay = place.draw.choice([0.0, place.draw.uniform(0, 0.1)])
    place.order(spare, is_held=True)
    orders = place.order(armed, point=point, nth=nth, delay=delay, target=target)
    assert place.post_all(sends) == [True] * n
    wait_until(lambda: armed.look() and armed.desk.is_done(orders.number) or armed.process.poll() is not None)
    assert armed.desk.is_done(orders.number)
    if target == "self":
        armed.wait_killed()
        place.workers = [spare, place.start_worker()]
    place.order(spare)
    wait_until(place.is_idle)
    place.check()
