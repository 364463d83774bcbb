"""How the board does, for its maintainers: its queue, its workers and its disks, each with a verdict in words.

Conventions
-----------
A part is "bad" when submissions are not scored or cannot be sent, "watch" when that is near or something wants looking
at, and "good" otherwise. Sizes are bytes, times seconds. What is said names no path, no address and no person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import sqlalchemy as sa

from reveal_bench.words import count_text
from reveal_leaderboard.boards.catalogue import Catalogue
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
    """One part of the board: its figure, and what it means."""

    name: str
    state: State
    value: str
    told: str


def read_health(services: Services) -> list[HealthPart]:
    """Every part, as it is now; what waits for scoring comes first."""
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
    """The parts as a list, after a sentence about them all."""
    worst = {state: [part.name for part in parts if part.state == state] for state in ("bad", "watch")}
    return draw("admin.html", "health", parts, worst["bad"], worst["watch"])


def _queue(connection: sa.Connection, now: float) -> HealthPart:
    scorings = jobs.c.kind == "score"
    waiting = sa.select(sa.func.count(), sa.func.min(jobs.c.created_at)).where(scorings, jobs.c.status == "queued")
    n, oldest = connection.execute(waiting).one()
    ended = sa.select(jobs.c.created_at, jobs.c.ended_at)
    ended = ended.where(scorings, jobs.c.status == "done", jobs.c.ended_at >= now - DAY)
    lasted = [max(0.0, end - start) for start, end in connection.execute(ended)]
    told = f"{count_text(len(lasted), 'submission')} scored within a day"
    told += f", half of them in {in_time(median(lasted))} from upload to score." if lasted else "."
    waited = 0.0 if oldest is None else max(0.0, now - oldest)
    if n:
        told = f"The first of them has waited {in_time(waited)}. {told}"
    state: State = "bad" if waited > WAITED_TOO_LONG else "watch" if waited > WAITED_LONG else "good"
    return HealthPart("Queue", state, f"{n} waiting", told)


def _workers(alive: Sequence[WorkerRow], catalogue: Catalogue) -> HealthPart:
    value = f"{len(alive)} alive"
    if not alive:
        return HealthPart("Workers", "bad", value, "Nothing is scored until a worker is started.")
    served = {tuple(pair) for worker in alive for pair in worker.serves}
    current = [catalogue.current(name) for name in catalogue.names]
    left = [f"{one.name} {one.version}" for one in current if (one.name, one.version) not in served]
    if left:
        return HealthPart("Workers", "bad", value, f"No worker scores {', '.join(left)}: start one with its holdout.")
    bare = [worker.name for worker in alive if "landlock" not in worker.confinement]
    if bare:
        told = f"The files of submitters are opened without Landlock by {', '.join(bare)}."
        return HealthPart("Workers", "watch", value, told)
    return HealthPart("Workers", "good", value, "Every board is scored, and files of submitters are opened confined.")


def _uploads(connection: sa.Connection, room: DiskSpace | None) -> HealthPart:
    once = sa.select(submissions.c.sha256, sa.func.max(submissions.c.size).label("size"))
    files = once.group_by(submissions.c.sha256).subquery()
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(files.c.size), 0)).select_from(files)
    n, total = connection.execute(query).one()
    told = f"{count_text(n, 'uploaded file')}, {in_bytes(total)} in all."
    if room is None:
        return HealthPart("Uploads", "bad", "no folder", "Their folder is gone or cannot be read: nothing can be sent.")
    value = f"{in_bytes(room.free)} free"
    if room.is_read_only or room.free < LEAST_ROOM:
        why = "may only be read" if room.is_read_only else "is full"
        return HealthPart("Uploads", "bad", value, f"The disk that receives uploads {why}: nothing can be sent. {told}")
    is_little = room.free < LITTLE_ROOM or room.free < SMALL_SHARE * room.total
    return HealthPart("Uploads", "watch" if is_little else "good", value, f"Of {in_bytes(room.total)}. {told}")


def _database(connection: sa.Connection) -> HealthPart:
    return HealthPart("Database", "good", in_bytes(size_of(connection)), f"{connection.dialect.name}, answers.")


def _incidents(connection: sa.Connection, now: float) -> HealthPart:
    query = sa.select(sa.func.count()).where(jobs.c.incident.is_not(None), jobs.c.ended_at >= now - DAY)
    n = connection.execute(query).scalar_one()
    told = "Each is listed below with its number, as in the worker’s log." if n else "None within a day."
    return HealthPart("Incidents", "watch" if n else "good", str(n), told)


def _flags(connection: sa.Connection) -> HealthPart:
    n = connection.execute(sa.select(sa.func.count()).where(flags.c.cleared_at.is_(None))).scalar_one()
    told = "Look at them under Submissions." if n else "Nothing is flagged."
    return HealthPart("Flags", "watch" if n else "good", f"{n} open", told)


def _webhooks(connection: sa.Connection, now: float) -> HealthPart:
    table = deliveries.c
    tried = sa.select(sa.func.count()).where(table.status == "waiting", table.attempts > 1)
    n_tried = connection.execute(tried).scalar_one()
    failed = sa.select(sa.func.count()).where(table.status == "failed", table.ended_at >= now - DAY)
    n_failed = connection.execute(failed).scalar_one()
    n_waiting = connection.execute(sa.select(sa.func.count()).where(table.status == "waiting")).scalar_one()
    told = f"{n_failed} failed within a day, {n_tried} are tried again: see reveal-leaderboard webhooks."
    if not n_failed and not n_tried:
        return HealthPart("Webhooks", "good", f"{n_waiting} waiting", "Every message was delivered at once.")
    return HealthPart("Webhooks", "watch", f"{n_waiting} waiting", told)


def in_time(seconds: float) -> str:
    """Such as "8 s", "12 min", "3.5 h" and "2 days"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 120 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"


def in_bytes(n: float) -> str:
    """Such as "12 MB", in powers of 1000."""
    for unit in UNITS[:-1]:
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.1f} {UNITS[-1]}"
