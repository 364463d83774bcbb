"""Health report for the maintainers: queue, workers, disks and messages, each with a verdict.

Conventions
-----------
A verdict is "bad" if submissions are not scored or cannot be sent, "watch" if that may happen soon or a maintainer
should look, and "good" otherwise. Sizes are in bytes, times in seconds. The texts contain no path, address or person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import sqlalchemy as sa

from reveal_bench.words import count_text
from reveal_leaderboard.boards.catalogue import Catalogue
from reveal_leaderboard.custody.confinement import children_gaps
from reveal_leaderboard.store.blobs import DiskSpace
from reveal_leaderboard.store.database import moment, size_of
from reveal_leaderboard.store.queue import WorkerRow
from reveal_leaderboard.store.tables import deliveries, flags, jobs, submissions
from reveal_leaderboard.web.api.health import LEAST_ROOM
from reveal_leaderboard.web.pages.drawing import draw
from reveal_leaderboard.web.services import Services

State = Literal["good", "watch", "bad"]
DAY = 24 * 3600.0
WAITED_LONG, WAITED_TOO_LONG = 120.0, 900.0
LITTLE_ROOM, SMALL_SHARE = 2 * 10**9, 0.05
UNITS = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class HealthPart:
    """Health of one part of the leaderboard: verdict, measured value and explanation."""

    name: str
    state: State
    value: str
    explanation: str


def read_health(services: Services) -> list[HealthPart]:
    """Return the current health of every part of the leaderboard, the queue first."""
    with services.store.read() as connection:
        now = moment(connection)
        parts = [
            _queue(connection, now),
            _workers(services.queue.alive(connection), services.catalogue),
            _uploads(connection, services.intake.blobs.room()),
            _database(connection),
            _incidents(connection, now),
            _flags(connection),
        ]
        return [*parts, _webhooks(connection, now)] if services.settings.webhooks else parts


def health_view(parts: Sequence[HealthPart]) -> str:
    """Return a summary, then the parts as a list."""
    worst = {state: [part.name for part in parts if part.state == state] for state in ("bad", "watch")}
    return draw("admin.html", "health", parts, worst["bad"], worst["watch"])


def _queue(connection: sa.Connection, now: float) -> HealthPart:
    scorings = jobs.c.kind == "score"
    waiting = sa.select(sa.func.count(), sa.func.min(jobs.c.created_at)).where(scorings, jobs.c.status == "queued")
    n, oldest = connection.execute(waiting).one()
    ended = sa.select(jobs.c.created_at, jobs.c.ended_at)
    ended = ended.where(scorings, jobs.c.status == "done", jobs.c.ended_at >= now - DAY)
    lasted = [max(0.0, end - start) for start, end in connection.execute(ended)]
    text = f"{count_text(len(lasted), 'submission')} scored in the last day"
    text += f", half of them within {in_time(median(lasted))} of upload." if lasted else "."
    waited = 0.0 if oldest is None else max(0.0, now - oldest)
    if n:
        text = f"The first submission has waited {in_time(waited)}. {text}"
    state: State = "bad" if waited > WAITED_TOO_LONG else "watch" if waited > WAITED_LONG else "good"
    return HealthPart("Queue", state, f"{n} waiting", text)


def _workers(alive: Sequence[WorkerRow], catalogue: Catalogue) -> HealthPart:
    value = f"{len(alive)} alive"
    if not alive:
        return HealthPart("Workers", "bad", value, "Nothing is scored until you start a worker.")
    served = {tuple(pair) for worker in alive for pair in worker.serves}
    current = [catalogue.current(name) for name in catalogue.names]
    unserved = [f"{board.name} {board.version}" for board in current if (board.name, board.version) not in served]
    if unserved:
        return HealthPart(
            "Workers", "bad", value, f"No worker scores {', '.join(unserved)}. Start a worker with the holdout."
        )
    gaps = [f"{worker.name}: {gap}." for worker in alive for gap in children_gaps(worker.confinement)]
    if gaps:
        return HealthPart("Workers", "watch", value, " ".join(gaps))
    return HealthPart("Workers", "good", value, "Every board has a worker that scores in confined processes.")


def _uploads(connection: sa.Connection, room: DiskSpace | None) -> HealthPart:
    once = sa.select(submissions.c.sha256, sa.func.max(submissions.c.size).label("size"))
    files = once.group_by(submissions.c.sha256).subquery()
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(files.c.size), 0)).select_from(files)
    n, total = connection.execute(query).one()
    text = f"{count_text(n, 'uploaded file')}, {in_bytes(total)} in total."
    if room is None:
        return HealthPart(
            "Uploads", "bad", "no folder", "The folder of uploads is missing or unreadable, so nothing can be sent."
        )
    value = f"{in_bytes(room.free)} free"
    if room.is_read_only or room.free < LEAST_ROOM:
        reason = "is read-only" if room.is_read_only else "is full"
        return HealthPart("Uploads", "bad", value, f"The disk of uploads {reason}, so nothing can be sent. {text}")
    is_little = room.free < LITTLE_ROOM or room.free < SMALL_SHARE * room.total
    return HealthPart("Uploads", "watch" if is_little else "good", value, f"Of {in_bytes(room.total)}. {text}")


def _database(connection: sa.Connection) -> HealthPart:
    return HealthPart("Database", "good", in_bytes(size_of(connection)), f"{connection.dialect.name}, reachable.")


def _incidents(connection: sa.Connection, now: float) -> HealthPart:
    query = sa.select(sa.func.count()).where(jobs.c.incident.is_not(None), jobs.c.ended_at >= now - DAY)
    n = connection.execute(query).scalar_one()
    text = "Incidents are listed below, with their numbers in the worker’s log." if n else "None in the last day."
    return HealthPart("Incidents", "watch" if n else "good", str(n), text)


def _flags(connection: sa.Connection) -> HealthPart:
    n = connection.execute(sa.select(sa.func.count()).where(flags.c.cleared_at.is_(None))).scalar_one()
    text = "Review the flags under Submissions." if n else "Nothing is flagged."
    return HealthPart("Flags", "watch" if n else "good", f"{n} open", text)


def _webhooks(connection: sa.Connection, now: float) -> HealthPart:
    table = deliveries.c
    tried = sa.select(sa.func.count()).where(table.status == "waiting", table.attempts > 1)
    n_tried = connection.execute(tried).scalar_one()
    failed = sa.select(sa.func.count()).where(table.status == "failed", table.ended_at >= now - DAY)
    n_failed = connection.execute(failed).scalar_one()
    n_waiting = connection.execute(sa.select(sa.func.count()).where(table.status == "waiting")).scalar_one()
    text = f"{n_failed} failed in the last day, {n_tried} are being retried: see reveal-leaderboard webhooks."
    if not n_failed and not n_tried:
        return HealthPart(
            "Webhooks", "good", f"{n_waiting} waiting", "Every message was delivered at the first attempt."
        )
    return HealthPart("Webhooks", "watch", f"{n_waiting} waiting", text)


def in_time(seconds: float) -> str:
    """Return a duration such as "8 s", "12 min", "3.5 h" or "2 days"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 120 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"


def in_bytes(n: float) -> str:
    """Return a size such as "12 MB", in powers of 1000."""
    for unit in UNITS[:-1]:
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.1f} {UNITS[-1]}"
