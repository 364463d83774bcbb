"""Many kills during many uploads, at named points and at random moments, while everything else goes on.

Two seeds (``REVEAL_KILL_SEEDS=2``) are 66 kills during 120 uploads on each kind of database.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.leaderboard.conftest import wait_until
from tests.leaderboard.kill.arena import PATIENCE, Arena, Player, Send
from tests.leaderboard.kill.drills import N_SEEDS, PARSING
from tests.leaderboard.kill.orders import SERVER_POINTS, WORKER_POINTS

N_KILLS, N_UPLOADS = 33, 60
LIFE_SECONDS = 0.2, 2.5
"""Range of a process's lifetime in seconds if it has not passed the point where it is to die."""
RANDOM_MOMENT = ""


takes_minutes = pytest.mark.skipif(N_SEEDS == 1, reason="takes minutes: part of `make soak`")


class ManyKills:
    """Many kills in the arena `place` on a database of `kind`."""

    kind: str

    def test_nothing_is_lost_or_doubled(self, place: Arena) -> None:
        """In each round, clients send at the same time until they get answers; a worker and the server die meanwhile.

        All work is done before the next round: a submission that stops three workers is rightly set aside.
        """
        for worker in place.workers:
            place.order(worker)
        n_rounds, n_sent_before = (N_KILLS + 1) // 2, len(place.sends)
        n_killed = n_at_points = 0
        for k in range(n_rounds):
            n = N_UPLOADS * (k + 1) // n_rounds - (len(place.sends) - n_sent_before)
            sends = [place.new_send() for _ in range(n)]
            doomed = place.draw.sample(["server", "worker"], 2)[: N_KILLS - n_killed]
            with ThreadPoolExecutor(n) as senders:
                answered = [senders.submit(send_until_answered, place, send) for send in sends]
                for role in doomed:
                    n_at_points += kill_and_replace(place, role)
                    n_killed += 1
            assert all(one.result() for one in answered)
            place.wait_idle()
            place.check()
        assert (n_killed, len(place.sends) - n_sent_before) == (N_KILLS, N_UPLOADS)
        assert 0 < n_at_points < N_KILLS


def send_until_answered(place: Arena, send: Send) -> bool:
    """Submit again and again, as a client does, until there is an answer."""
    wait_until(lambda: place.post(send) is not None, seconds=PATIENCE, pause=0.5)
    return bool(send.id)


def kill_and_replace(place: Arena, role: str) -> bool:
    """Kill the server or a worker at a named point or a random moment, and start another; whether it met the point."""
    victim: Player = place.server if role == "server" else place.draw.choice(place.workers)
    points = SERVER_POINTS if role == "server" else WORKER_POINTS
    named = [point for point in points if point not in (*PARSING, "mid-upload")]
    orders = place.order(victim, point=place.draw.choice([RANDOM_MOMENT, *named]))
    end = time.monotonic() + place.draw.uniform(*LIFE_SECONDS)
    while victim.look() and time.monotonic() < end:
        time.sleep(0.02)
    victim.process.kill()
    victim.wait_killed()
    if role == "server":
        place.server = place.start_server()
    else:
        successor = place.start_worker()
        place.order(successor)
        place.workers = [successor, *(worker for worker in place.workers if worker is not victim)]
    return victim.desk.is_done(orders.number)
