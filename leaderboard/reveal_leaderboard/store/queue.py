"""Queue of scoring jobs, which are leased to workers and finish once; also live workers and expected waiting times.

Conventions
-----------
A worker *leases* a job. Each lease has a number, the fence, which increases with every lease of the job and is never
reset. A worker's result is accepted only while the job still has the worker's fence, so that a worker presumed dead
cannot overwrite the result of its successor. A lease that is not prolonged in time (:meth:`Queue.heartbeat`) expires,
and another worker may lease the job. If the lease of a job expired `max_attempts` times, the job probably stopped its
worker each time, so the job fails and is refunded.

A job of kind "score" changes the status of its submission: queued, scoring, then scored, refused or failed. Answers to
tasks wait for readers in between and are queued a second time (:mod:`reveal_leaderboard.boards.reading`). While a board
is paused, its jobs wait, and a job that was leased before returns to the queue instead of finishing. A job of kind
"rescore" scores a submission against another version and changes neither its status nor the ledger. A job of kind
"rank" writes the ranking into the table of results. There is one job per kind and subject. A job that is requested
again after its end runs again. A ranking that is requested again while it is computed is computed once more afterwards.
All times are by the database's clock. A worker is alive if it was seen within :data:`ALIVE_SECONDS`. A submission waits
for every older queued submission, of any board, that a worker of its board can score. The expected waiting time is the
median duration of the board's last scorings times the number of turns to wait. It is unknown without a live worker or
an earlier scoring.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

import sqlalchemy as sa

from reveal_bench.kinds.tasks.records import TaskAnswer
from reveal_leaderboard.settings import Settings
from reveal_leaderboard.store import quota
from reveal_leaderboard.store.cases import lock_boards
from reveal_leaderboard.store.database import insert_if_absent, locked, moment, now, reading
from reveal_leaderboard.store.ratings import put_answers
from reveal_leaderboard.store.scores import RecordableOutcome, Signing
from reveal_leaderboard.store.submissions import note
from reveal_leaderboard.store.tables import boards, jobs, results, submissions, teams, workers

ALIVE_SECONDS = 90.0
RECENT = 20


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A submission's position in the queue from 1 (None unless queued), the expected seconds until scoring starts, and
    whether its board is paused.
    """

    position: int | None
    expected_seconds: float | None
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker: the boards that it serves, and the confinement of its child processes."""

    name: str
    serves: list[list[str]]
    started_at: float
    seen_at: float
    confinement: str
    receipt_key: str | None


def _usual_seconds(connection: sa.Connection, benchmark: str, version: str) -> float | None:
    query = (
        sa.select(jobs.c.started_at, jobs.c.ended_at)
        .where(jobs.c.kind == "score", jobs.c.benchmark == benchmark, jobs.c.version == version)
        .where(jobs.c.status == "done")
        .order_by(jobs.c.ended_at.desc())
        .limit(RECENT)
    )
    took = [row.ended_at - row.started_at for row in connection.execute(query)]
    return median(took) if took else None


LEASE_SECONDS = 60.0
LONGEST_LEASE = 3600.0
"""Longest lease in seconds; a lease with more time left was made before the clock was set back, and is void."""
MAX_ATTEMPTS = 3
STANDS_BACK = {"score": 0.0, "rank": 15.0, "rescore": 120.0}
"""Seconds by which a kind of job is postponed: submissions are first, but no job waits for ever on a busy board."""

FRESH = {
    "status": "queued", "attempts": 0, "lease_until": None, "worker": None, "started_at": None, "ended_at": None,
    "why": "", "incident": None, "is_stale": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as a row of the table of jobs.

    Attributes
    ----------
    subject : id of the submission, or "board" for a ranking
    attempts : number of leases since the job was queued
    fence : number of all leases of the job so far
    is_stale : True if the job was requested again while it was leased
    """

    id: str
    kind: str
    benchmark: str
    version: str
    subject: str
    status: str
    attempts: int
    fence: int
    lease_until: float | None
    worker: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    why: str
    incident: str | None
    is_stale: bool


class Queue:
    """The queue of jobs in a database, shared by servers and workers."""

    def __init__(self, engine: sa.Engine, settings: Settings) -> None:
        self.engine, self.settings = engine, settings
        self._reading = reading(engine)

    @staticmethod
    def put(connection: sa.Connection, kind: str, benchmark: str, version: str, subject: str) -> Job:
        """Queue a job in the caller's transaction; for an existing job see the module's description."""
        key = {"kind": kind, "benchmark": benchmark, "version": version, "subject": subject}
        fresh = FRESH | {"created_at": moment(connection)}
        if not insert_if_absent(connection, jobs, {"id": secrets.token_hex(16), "fence": 0} | key | fresh):
            mine = sa.and_(*(jobs.c[name] == value for name, value in key.items()))
            there = connection.execute(locked(sa.select(jobs.c.id, jobs.c.status).where(mine))).one()
            if there.status == "leased":
                is_document = kind == "rank"  # a score does not depend on the time of scoring
                connection.execute(jobs.update().where(jobs.c.id == there.id).values(is_stale=is_document))
            elif there.status != "queued":
                connection.execute(jobs.update().where(jobs.c.id == there.id).values(**fresh))
        return _job(connection, *(jobs.c[name] == value for name, value in key.items()))

    def claim(
        self,
        worker: str,
        *,
        served: Sequence[tuple[str, str]],
        lease_seconds: float = LEASE_SECONDS,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> Job | None:
        """Lease the next job of the `served` (benchmark, version) pairs; return None if there is none."""
        while self._set_aside_one(max_attempts):
            pass
        table = jobs.c
        ours = sa.or_(sa.false(), *(sa.and_(table.benchmark == b, table.version == v) for b, v in served))
        with self.engine.begin() as connection:
            at = moment(connection)
            free = sa.or_(table.status == "queued", sa.and_(_abandoned(at), table.attempts < max_attempts))
            order = table.created_at + sa.case(STANDS_BACK, value=table.kind)
            waits = sa.and_(table.kind == "score", sa.exists().where(_is_paused(table.benchmark)))
            query = sa.select(jobs).where(ours, free, ~waits).order_by(order, table.id).limit(1)
            row = connection.execute(locked(query, skip=True)).one_or_none()
            if row is None:
                return None
            job = Job(**row._mapping)
            changes: dict[str, Any] = {
                "status": "leased",
                "attempts": job.attempts + 1,
                "fence": job.fence + 1,
                "lease_until": at + lease_seconds,
                "worker": worker,
                "started_at": at,
                "is_stale": False,
            }
            connection.execute(jobs.update().where(table.id == job.id).values(**changes))
            if job.kind == "score":
                before = "queued" if job.status == "queued" else "scoring"
                why = "" if job.status == "queued" else "the previous worker stopped answering"
                _move(connection, job.subject, before, "scoring", who=f"worker:{worker}", why=why)
        return replace(job, **changes)

    def heartbeat(self, job: Job, *, lease_seconds: float = LEASE_SECONDS) -> bool:
        """Prolong a lease; return False if the caller no longer has the lease."""
        with self.engine.begin() as connection:
            update = jobs.update().where(*_lease(job)).values(lease_until=now() + lease_seconds)
            return int(connection.execute(update).rowcount) == 1

    def give_back(self, job: Job, *, who: str, why: str) -> bool:
        """Requeue a job that cannot run now, without counting the attempt; return False if another worker has it."""
        is_score = job.kind == "score"
        with self.engine.begin() as connection:
            if is_score:
                _lock_team(connection, job.subject)
            return _requeue(connection, job, who=who, why=why)

    def finish_score(
        self,
        job: Job,
        *,
        who: str,
        outcome: RecordableOutcome,
        sign: Signing | None = None,
    ) -> bool:
        """Write a score and all its consequences in one transaction.

        Return False if another worker has the lease, or if the board was paused and the job returned to the queue.

        A job of kind "score" also ends its submission and charges the ledger. `sign` writes the receipt of each score,
        see :meth:`reveal_leaderboard.release.outcomes.ScoredOutcome.record`. If `outcome.record` raises, nothing
        changes. The boards on which the submission counts are locked, so that two scores are not released at the same
        time if their meter allows only one.
        """
        with self.engine.begin() as connection:
            is_first = job.kind == "score"
            board = lock_boards(connection, job.benchmark, job.version).get(job.benchmark)
            _lock_team(connection, job.subject)
            if is_first and board is not None and board.state == "paused":
                _requeue(connection, job, who=who, why="the board is paused")
                return False
            if not _end(connection, job, "done"):
                return False
            self.put(connection, "rank", job.benchmark, job.version, "board")
            settings = self.settings.of(job.benchmark)
            verdict = outcome.record(
                connection, job.subject, job.version, settings, is_first=is_first, who=who, sign=sign
            )
            if not is_first:
                why = f"scored against version {job.version}" + (f"; {verdict.why}" if verdict.why else "")
                note(connection, job.subject, "scored", "scored", who, why)
                return True
            if verdict.is_charged:
                quota.charge(connection, job.subject, who=who, why=verdict.why or "scored")
            else:
                quota.refund(connection, job.subject, who=who, why=verdict.why)
            _move(connection, job.subject, "scoring", "scored", who=who, why=verdict.why)
        return True

    def await_readers(self, job: Job, *, who: str, answers: Iterable[TaskAnswer]) -> bool:
        """Store a submission's answers, which then wait for readers; return False if another worker has the lease.

        The budget stays reserved; for the next steps see :mod:`reveal_leaderboard.boards.reading`.
        """
        with self.engine.begin() as connection:
            _lock_team(connection, job.subject)
            if not _end(connection, job, "done"):
                return False
            put_answers(connection, job.subject, answers)
            _move(connection, job.subject, "scoring", "reading", who=who, why="the answers wait for readers")
        return True

    def finish_result(self, job: Job, *, document: Mapping[str, Any]) -> bool:
        """Write a ranking; return False if another worker has the lease.

        A job that was requested again in the meantime is queued once more.
        """
        key = {"kind": job.kind, "benchmark": job.benchmark, "version": job.version, "subject": job.subject}
        with self.engine.begin() as connection:
            if not _end(connection, job, "done"):
                return False
            values = {"document": dict(document), "computed_at": moment(connection)}
            if not insert_if_absent(connection, results, key | values):
                mine = (results.c[name] == value for name, value in key.items())
                connection.execute(results.update().where(*mine).values(**values))
        return True

    def refuse(self, job: Job, *, who: str, why: str) -> bool:
        """End a job because of the submitted file, and refund the submission; return False if another worker has the
        lease.
        """
        return self._give_up(job, "refused", who=who, why=why, incident=None)

    def fail(self, job: Job, *, who: str, why: str, incident: str) -> bool:
        """End a job because of an internal error, and refund the submission; return False if another worker has the
        lease.
        """
        return self._give_up(job, "failed", who=who, why=why, incident=incident)

    @staticmethod
    def return_queued(connection: sa.Connection, benchmark: str, version: str, *, who: str, why: str) -> int:
        """Refuse and refund the submissions to a version that wait to be scored; return their number.

        The board must be paused, and locked by the caller.
        """
        mine = sa.and_(jobs.c.kind == "score", jobs.c.benchmark == benchmark, jobs.c.version == version)
        waiting = sa.and_(mine, jobs.c.status == "queued")
        of_jobs = sa.select(submissions.c.team_id).where(submissions.c.id.in_(sa.select(jobs.c.subject).where(waiting)))
        connection.execute(locked(sa.select(teams.c.id).where(teams.c.id.in_(of_jobs)).order_by(teams.c.id)))
        rows = connection.execute(locked(sa.select(jobs).where(waiting).order_by(jobs.c.id))).all()
        for row in rows:
            ended = {"status": "refused", "ended_at": moment(connection), "why": why[:500]}
            connection.execute(jobs.update().where(jobs.c.id == row.id).values(**ended))
            quota.refund(connection, row.subject, who=who, why=why)
            _move(connection, row.subject, "queued", "refused", who=who, why=why)
        return len(rows)

    def position(self, submission_id: str) -> QueuePosition:
        """Return a submission's position in the queue and the expected seconds until its scoring starts."""
        mine = jobs.c.kind == "score"
        with self._reading.begin() as connection:
            job = connection.execute(sa.select(jobs).where(mine, jobs.c.subject == submission_id)).first()
            if job is None or job.status != "queued":
                return QueuePosition(None, None)
            board = [job.benchmark, job.version]
            alive = [worker for worker in self.alive(connection) if board in worker.serves]
            served = {tuple(board), *(tuple(pair) for worker in alive for pair in worker.serves)}
            live = sa.select(jobs).where(mine, jobs.c.status.in_(("queued", "leased")))
            rivals = [row for row in connection.execute(live) if (row.benchmark, row.version) in served]
            seconds = _usual_seconds(connection, job.benchmark, job.version)
            is_paused = connection.execute(sa.select(sa.exists().where(_is_paused(job.benchmark)))).scalar_one()
        before = sum(row.status == "queued" and (row.created_at, row.id) < (job.created_at, job.id) for row in rivals)
        if not alive or seconds is None or is_paused:
            return QueuePosition(before + 1, None, is_paused)
        busy = sum(row.status == "leased" for row in rivals)
        return QueuePosition(before + 1, seconds * ((before + busy) // len(alive)))

    def beat_worker(
        self,
        name: str,
        serves: Sequence[tuple[str, str]],
        confinement: str,
        receipt_key: str | None = None,
    ) -> None:
        """Record that a worker is alive, and which boards it serves."""
        with self.engine.begin() as connection:
            at = moment(connection)
            values: dict[str, Any] = {
                "serves": [list(pair) for pair in serves],
                "seen_at": at,
                "confinement": confinement[:100],
                "receipt_key": receipt_key,
            }
            if not insert_if_absent(connection, workers, {"name": name, "started_at": at} | values):
                connection.execute(workers.update().where(workers.c.name == name).values(**values))

    @staticmethod
    def workers(connection: sa.Connection) -> list[WorkerRow]:
        """Return all known workers, the one seen last first."""
        columns = [workers.c[field.name] for field in fields(WorkerRow)]
        query = sa.select(*columns).order_by(workers.c.seen_at.desc(), workers.c.name)
        return [WorkerRow(**row._mapping) for row in connection.execute(query)]

    def alive(self, connection: sa.Connection) -> list[WorkerRow]:
        """Return the live workers, the one seen last first."""
        since = moment(connection) - ALIVE_SECONDS
        return [worker for worker in self.workers(connection) if worker.seen_at >= since]

    def _set_aside_one(self, max_attempts: int) -> bool:
        """End a job that stopped its worker too often; each job in its own transaction, because each locks a team."""
        table = jobs.c
        spent = sa.and_(_abandoned(now()), table.attempts >= max_attempts)
        with self._reading.begin() as connection:
            row = connection.execute(sa.select(jobs).where(spent).order_by(table.id).limit(1)).one_or_none()
        if row is None:
            return False
        job = Job(**row._mapping)
        why = f"scoring stopped without an answer {job.attempts} times and is not tried again; nothing is charged"
        number = f"INC-{secrets.token_hex(4).upper()}"
        self._give_up(job, "failed", who="store", why=why, incident=number, only=spent)
        return True

    def _give_up(
        self,
        job: Job,
        status: str,
        *,
        who: str,
        why: str,
        incident: str | None,
        only: sa.ColumnElement[bool] | None = None,
    ) -> bool:
        is_of_submission = job.kind in ("score", "rescore")
        with self.engine.begin() as connection:
            if is_of_submission:
                _lock_team(connection, job.subject)
            if not _end(connection, job, status, why=why, incident=incident, only=only):
                return False
            if job.kind == "score":
                quota.refund(connection, job.subject, who=who, why=why)
                _move(connection, job.subject, "scoring", status, who=who, why=why, incident=incident)
            elif is_of_submission:
                reason = f"not scored against version {job.version}: {why}"
                note(connection, job.subject, "scored", "scored", who, reason)
        return True


def _job(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> Job:
    return Job(**connection.execute(sa.select(jobs).where(*where)).one()._mapping)


def _abandoned(at: Any) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a job's lease has expired at the time `at`."""
    until = jobs.c.lease_until
    return sa.and_(jobs.c.status == "leased", sa.or_(until < at, until > at + LONGEST_LEASE))


def _lease(job: Job) -> list[sa.ColumnElement[bool]]:
    return [jobs.c.id == job.id, jobs.c.status == "leased", jobs.c.fence == job.fence]


def _end(
    connection: sa.Connection,
    job: Job,
    status: str,
    *,
    why: str = "",
    incident: str | None = None,
    only: sa.ColumnElement[bool] | None = None,
) -> bool:
    """End a lease, and requeue a job that was requested again in the meantime; return False if another worker has the
    job.
    """
    where = _lease(job) if only is None else [*_lease(job), only]
    stale = connection.execute(locked(sa.select(jobs.c.is_stale).where(*where))).scalar_one_or_none()
    if stale is None:
        return False
    at = moment(connection)
    ended = {"status": status, "lease_until": None, "ended_at": at, "why": why[:500], "incident": incident}
    values = FRESH | {"created_at": at} if stale else ended
    connection.execute(jobs.update().where(jobs.c.id == job.id).values(**values))
    return True


def _is_paused(benchmark: Any) -> sa.ColumnElement[bool]:
    return sa.and_(boards.c.benchmark == benchmark, boards.c.state == "paused")


def _requeue(connection: sa.Connection, job: Job, *, who: str, why: str) -> bool:
    values = {"status": "queued", "attempts": job.attempts - 1, "lease_until": None, "worker": None}
    if connection.execute(jobs.update().where(*_lease(job)).values(**values)).rowcount != 1:
        return False
    if job.kind == "score":
        _move(connection, job.subject, "scoring", "queued", who=who, why=why)
    return True


def _lock_team(connection: sa.Connection, submission_id: str) -> None:
    mine = sa.select(submissions.c.team_id).where(submissions.c.id == submission_id).scalar_subquery()
    connection.execute(locked(sa.select(teams.c.id).where(teams.c.id == mine))).one()


def _move(
    connection: sa.Connection, submission_id: str, before: str, after: str, *, who: str, why: str,
    incident: str | None = None,
) -> None:  # fmt: skip
    """Change the status of a submission, and append the event."""
    mine = sa.and_(submissions.c.id == submission_id, submissions.c.status == before)
    values = {"status": after, "updated_at": moment(connection), "incident": incident}
    if connection.execute(submissions.update().where(mine).values(**values)).rowcount != 1:
        raise LookupError(f"submission {submission_id} must be {before} to become {after}")
    note(connection, submission_id, before, after, who, why)
