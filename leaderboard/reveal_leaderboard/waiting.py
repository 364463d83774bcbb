"""Workers that live, and how long a queued submission still waits.

Conventions
-----------
A worker is alive if it was seen within :data:`ALIVE_SECONDS`. A submission stands behind every older queued one on any
board that a worker serving its own board serves too. The estimate is the median time of the board's last scorings
times the turns it must wait; there is none without a living worker or without a scoring to go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.database import insert_if_absent, moment
from reveal_leaderboard.tables import jobs, workers

__all__ = ["ALIVE_SECONDS", "Waiting", "WorkerRow", "beat", "waiting", "workers_seen"]

ALIVE_SECONDS = 90.0
RECENT = 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """Where a submission stands: 1 for the next one, None unless it is queued; and about how long until it starts."""

    position: int | None
    expected_seconds: float | None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker: what it serves, how its children are confined, and what it works on."""

    name: str
    serves: list[list[str]]
    started_at: float
    seen_at: float
    job_id: str | None
    confinement: str
    receipt_key: str | None


def beat(
    connection: sa.Connection,
    name: str,
    serves: Sequence[tuple[str, str]],
    confinement: str,
    receipt_key: str | None,
    job_id: str | None,
) -> None:
    """Write down that a worker lives."""
    at = moment(connection)
    values: dict[str, Any] = {
        "serves": [list(pair) for pair in serves],
        "seen_at": at,
        "job_id": job_id,
        "confinement": confinement[:100],
        "receipt_key": receipt_key,
    }
    if not insert_if_absent(connection, workers, {"name": name, "started_at": at} | values):
        connection.execute(workers.update().where(workers.c.name == name).values(**values))


def workers_seen(connection: sa.Connection) -> list[WorkerRow]:
    """Every worker that was ever seen, the last seen first."""
    query = sa.select(workers).order_by(workers.c.seen_at.desc(), workers.c.name)
    return [WorkerRow(**row._mapping) for row in connection.execute(query)]


def waiting(connection: sa.Connection, submission_id: str) -> Waiting:
    """Where a submission stands, and about how long until its scoring starts, in seconds."""
    mine = jobs.c.kind == "score"
    job = connection.execute(sa.select(jobs).where(mine, jobs.c.subject == submission_id).limit(1)).one_or_none()
    if job is None or job.status != "queued":
        return Waiting(None, None)
    alive_since = moment(connection) - ALIVE_SECONDS
    board = [job.benchmark, job.version]
    alive = [w for w in workers_seen(connection) if w.seen_at >= alive_since and board in w.serves]
    boards = {tuple(board), *(tuple(pair) for worker in alive for pair in worker.serves)}
    live = sa.select(jobs).where(mine, jobs.c.status.in_(("queued", "leased")))
    rivals = [row for row in connection.execute(live) if (row.benchmark, row.version) in boards]
    before = sum(row.status == "queued" and (row.created_at, row.id) < (job.created_at, job.id) for row in rivals)
    seconds = _usual_seconds(connection, job.benchmark, job.version)
    if not alive or seconds is None:
        return Waiting(before + 1, None)
    busy = sum(row.status == "leased" for row in rivals)
    return Waiting(before + 1, seconds * ((before + busy) // len(alive)))


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
