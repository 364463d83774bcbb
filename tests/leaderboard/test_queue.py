"""Leases: every job is done once, even if workers die; and a submission's position in the queue."""

from __future__ import annotations

import time
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.store.events import verify_events
from reveal_leaderboard.store.queue import Job, Queue, QueuePosition
from reveal_leaderboard.store.store import Score, Store, Submission
from reveal_leaderboard.store.tables import jobs, results, workers

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import each_database_kind
from tests.leaderboard.worlds import BENCHMARK, SERVED, World, outcome, sha, world

__all__ = ["each_database_kind", "world"]

GONE = -1.0  # seconds of a lease that has run out already


def test_a_job_is_leased_once_and_finished_once(world: World) -> None:
    submission = world.add()
    job = world.take("first")
    assert (job.kind, job.subject, job.status, job.attempts, job.fence) == ("score", submission.id, "leased", 1, 1)
    assert job.lease_until is not None
    assert job.started_at is not None
    assert job.lease_until - job.started_at == pytest.approx(60)
    assert world.get(submission).status == "scoring"
    assert world.claim("second") is None
    assert world.finish(job)
    assert not world.finish(job)
    assert world.path(submission) == ["received", "linted", "queued", "scoring", "scored"]
    assert world.jobs() == [("score", "done"), ("rank", "queued")]


def test_the_oldest_is_served_first_and_only_of_what_is_served(world: World) -> None:
    first, second = world.add(), world.add(sha256=sha(1))
    assert world.claim(served=[]) is None
    assert world.claim(served=[(BENCHMARK, "9")]) is None
    assert [world.take().subject, world.take().subject] == [first.id, second.id]


def test_submissions_go_before_everything_else(world: World) -> None:
    with world.store.write() as connection:
        for kind, subject in (("rescore", "x"), ("rank", "board")):
            world.queue.put(connection, kind, BENCHMARK, "1.0", subject)
    world.add()
    assert [world.take().kind for _ in range(2)] == ["score", "rank"]


def test_a_heartbeat_keeps_the_lease(world: World) -> None:
    world.add()
    job = world.take(lease_seconds=GONE)
    assert world.queue.heartbeat(job, lease_seconds=60)
    assert world.claim("other") is None


def test_a_dead_workers_job_goes_to_another_and_the_zombie_is_refused(world: World) -> None:
    submission = world.add()
    zombie, heir = world.take("zombie", lease_seconds=GONE), world.take("heir")
    assert (heir.id, heir.fence, heir.attempts) == (zombie.id, 2, 2)
    late = {"who": "worker:zombie"}
    assert not world.queue.heartbeat(zombie)
    assert not world.queue.finish_score(zombie, outcome=outcome(), **late)
    assert not world.queue.refuse(zombie, why="late", **late)
    assert not world.queue.fail(zombie, why="late", incident="INC-1", **late)
    assert not world.queue.finish_result(zombie, document={})
    assert world.kinds(submission) == ["reserved"]
    assert world.store.score_of(submission.id) is None
    assert world.finish(heir)
    assert world.kinds(submission) == ["reserved", "charged"]
    events = world.store.events_of(submission.id)
    assert [event.to_status for event in events][-3:] == ["scoring", "scoring", "scored"]
    assert events[-2].why == "the previous worker stopped answering"


def test_a_job_that_stops_three_workers_is_set_aside_and_refunded(world: World) -> None:
    submission = world.add()
    for attempt in (1, 2, 3):
        assert world.take(lease_seconds=GONE).attempts == attempt
    assert world.claim() is None
    failed = world.get(submission)
    assert failed.status == "failed"
    assert failed.incident.startswith("INC-")
    assert "3 times" in world.store.events_of(submission.id)[-1].why
    assert world.kinds(submission) == ["reserved", "refunded"]
    assert world.spent() == 0
    assert world.jobs() == [("score", "failed")]


def test_several_jobs_are_set_aside_at_once(world: World) -> None:
    for n in range(3):
        world.add(sha256=sha(n))
    for _ in range(3):
        world.take()
    with world.store.write() as connection:
        connection.execute(jobs.update().values(lease_until=0.0))
    assert world.claim(max_attempts=1) is None
    assert world.jobs() == [("score", "failed")] * 3


@pytest.mark.parametrize("kind", ["rank", "rescore"])
def test_another_job_is_set_aside_without_touching_the_ledger(world: World, kind: str) -> None:
    submission = world.score()
    world.clear()
    with world.store.write() as connection:
        world.queue.put(connection, kind, BENCHMARK, "2.0", submission.id)
    for _ in range(3):
        assert world.take(lease_seconds=GONE).kind == kind
    assert world.claim() is None
    assert world.get(submission).status == "scored"
    assert world.kinds(submission) == ["reserved", "charged"]


def test_a_ranking_is_queued_once_however_many_scores(world: World) -> None:
    for n in range(3):
        world.add(sha256=sha(n))
    for n in range(3):
        assert world.finish(world.take(), 0.1 * n, str(n))
    assert world.jobs().count(("rank", "queued")) == 1


def test_what_is_asked_for_again_while_leased_is_done_once_more(world: World) -> None:
    def put() -> Job:
        with world.store.write() as connection:
            return world.queue.put(connection, "rank", BENCHMARK, "1.0", "board")

    assert put() == put()  # no doubles
    leased = world.take()
    assert put().status == "leased"
    assert world.claim() is None
    assert world.queue.finish_result(leased, document={"n": 1})
    again = world.take()
    assert (again.id, again.fence, again.attempts) == (leased.id, 2, 1)
    assert world.queue.finish_result(again, document={"n": 2})
    assert world.claim() is None
    assert put().status == "queued"  # after its end, it is queued anew
    with world.store.read() as connection:
        [row] = connection.execute(sa.select(results))
    assert (row.kind, row.subject, row.document) == ("rank", "board", {"n": 2})


def test_an_outcome_that_cannot_be_kept_undoes_everything(world: World) -> None:
    submission = world.add()
    job = world.take()

    def sign(connection: sa.Connection, submission: Submission, score: Score) -> None:
        raise OSError("no key")

    with pytest.raises(OSError, match="no key"):
        world.finish(job, sign=sign)
    assert world.get(submission).status == "scoring"
    assert world.kinds(submission) == ["reserved"]
    assert world.finish(job)


def test_the_receipt_is_made_within_the_transaction_of_the_score(world: World) -> None:
    submission = world.add()
    seen: list[tuple[str, str, str, bool]] = []

    def sign(connection: sa.Connection, submission: Submission, score: Score) -> None:
        [row] = connection.execute(sa.text("SELECT submission_id FROM scores"))
        seen.append((submission.id, score.version, score.part, row[0] == submission.id))

    assert world.finish(world.take(), sign=sign)
    assert seen == [(submission.id, "1.0", "public", True)]


def test_positions_count_from_one_and_leave_with_the_lease(world: World) -> None:
    first, second = world.add(), world.add(sha256=sha(1))
    assert [world.queue.position(s.id).position for s in (first, second)] == [1, 2]
    world.take()
    assert world.queue.position(first.id) == QueuePosition(None, None)
    assert world.queue.position(second.id) == QueuePosition(1, None)
    assert world.queue.position("nobody") == QueuePosition(None, None)


def test_the_expected_wait_is_turns_times_the_usual_time_over_living_workers(world: World) -> None:
    for n in range(3):
        world.add(sha256=sha(n))
        assert world.finish(world.take_score(), 0.1 * n, str(n))
    with world.store.write() as connection:  # they took 10, 30 and 20 seconds
        ids = connection.execute(sa.select(jobs.c.id).where(jobs.c.kind == "score")).scalars().all()
        for seconds, job_id in zip((10, 30, 20), ids, strict=True):
            times = {"started_at": 1000.0, "ended_at": 1000.0 + seconds}
            connection.execute(jobs.update().where(jobs.c.id == job_id).values(**times))
    waiting = [world.add(sha256=sha(n)) for n in range(3, 7)]
    assert world.queue.position(waiting[0].id) == QueuePosition(1, None)  # no worker lives
    world.queue.beat_worker("w1", SERVED, "rlimits")
    assert [world.queue.position(s.id).expected_seconds for s in waiting] == [0, 20, 40, 60]
    world.queue.beat_worker("w2", [(BENCHMARK, "1.0")], "rlimits")
    assert [world.queue.position(s.id).expected_seconds for s in waiting] == [0, 0, 20, 20]
    world.take_score()
    world.take_score()  # both are busy now
    assert [world.queue.position(s.id) for s in waiting[2:]] == [QueuePosition(1, 20), QueuePosition(2, 20)]
    with world.store.write() as connection:
        connection.execute(workers.update().values(seen_at=0.0))
    assert world.queue.position(waiting[2].id) == QueuePosition(1, None)


def test_workers_say_what_they_are(world: World) -> None:
    world.queue.beat_worker("w1", [("a", "1")], "rlimits", "key")
    world.queue.beat_worker("w1", [("a", "2")], "bubblewrap", "key")
    with world.store.read() as connection:
        [row] = world.queue.workers(connection)
    assert (row.name, row.serves, row.confinement, row.receipt_key) == ("w1", [["a", "2"]], "bubblewrap", "key")
    assert row.started_at <= row.seen_at


def test_four_workers_do_forty_jobs_once_each(database_url: str) -> None:
    world = World(database_url)
    sent = {world.add(sha256=sha(n), model_name=f"Model {n}").id for n in range(40)}
    done: list[str] = []

    def work(name: str) -> None:
        queue = Queue(Store(database_url, world.settings).engine, world.settings)
        while (job := queue.claim(name, served=SERVED)) is not None:
            if job.kind != "score":
                assert queue.finish_result(job, document={})
                continue
            time.sleep(0)  # let the others come between
            assert queue.finish_score(job, who=f"worker:{name}", outcome=outcome(0.5, job.subject))
            done.append(job.subject)

    at_once(work, [f"w{n}" for n in range(4)])
    assert len(done) == 40
    assert set(done) == sent
    assert world.spent() == 40
    assert {s.status for s in world.store.list_submissions()} == {"scored"}
    with world.store.read() as connection:
        assert verify_events(connection) == []
        assert set(connection.execute(sa.select(jobs.c.fence).where(jobs.c.kind == "score")).scalars()) == {1}


class Clock:
    """SQLite's clock, which a test sets: `ahead` seconds of the true time, which may be negative."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine, self.ahead = engine, 0.0

    def __enter__(self) -> Clock:
        self.engine.dispose()
        sa.event.listen(self.engine, "connect", self._take_over)
        return self

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self.engine, "connect", self._take_over)
        self.engine.dispose()

    def _take_over(self, connection: Any, _: Any) -> None:
        connection.create_function("julianday", 1, lambda _: (time.time() + self.ahead) / 86400 + 2440587.5)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("jump", [86400.0, -86400.0])
def test_a_clock_that_is_set_loses_and_doubles_nothing(world: World, jump: float) -> None:
    with Clock(world.store.engine) as clock:
        leased, waiting = world.add(), world.add(sha256=sha(1))
        before = world.take("first")
        clock.ahead = jump
        jobs_then = [world.take("second"), world.take("second")]
        assert {job.subject for job in jobs_then} == {leased.id, waiting.id}  # the first worker is taken for dead
        clock.ahead = -jump
        assert not world.finish(before)  # and its late result is refused
        assert all(world.finish(job, 0.5, job.subject) for job in jobs_then)
        later = world.score(0.6, sha256=sha(2))
        assert [world.kinds(one) for one in (leased, waiting, later)] == [["reserved", "charged"]] * 3
        clock.ahead = 0.0
        assert world.balance().charged == 3
        with world.store.read() as connection:
            assert verify_events(connection) == []
