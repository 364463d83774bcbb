"""The panels of the admin page: what each one reads, drawn by :mod:`.admin_view`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import sqlalchemy as sa

from reveal_leaderboard import boards
from reveal_leaderboard.database import moment
from reveal_leaderboard.exposure import exposure
from reveal_leaderboard.pages import admin_view
from reveal_leaderboard.pages.desk import Desk
from reveal_leaderboard.pages.drawing import message, part, plural
from reveal_leaderboard.pages.exposure_view import exposure_view
from reveal_leaderboard.people import Actor, Team
from reveal_leaderboard.queue import Job
from reveal_leaderboard.tables import jobs

__all__ = ["LIVE", "PANELS", "Panels"]

PANELS = {
    "boards": "Boards",
    "versions": "Versions",
    "exposure": "Exposure",
    "queue": "Queue",
    "workers": "Workers",
    "incidents": "Incidents",
    "flags": "Flags",
    "submissions": "All submissions",
    "waiting": "Teams that wait for approval",
    "teams": "Teams",
    "users": "People",
    "tokens": "API tokens in use",
}
LIVE = ("versions", "queue", "workers", "incidents")
"""What changes by itself while somebody looks; the others are drawn again when something was done."""

MOST_JOBS = 500

log = logging.getLogger(__name__)


class Panels:
    """Reads and draws the panels; the caller has asked whether an admin is there."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def drawn(self, actor: Actor, search: str, names: Iterable[str] = PANELS) -> list[str]:
        """The panels of these names, in this order; one that fails says so and leaves the others alone."""
        draw: dict[str, Callable[[], str]] = {
            "boards": self._boards,
            "versions": self._versions,
            "exposure": self._exposure,
            "queue": self._queue,
            "workers": self._workers,
            "incidents": self._incidents,
            "flags": self._flags,
            "submissions": lambda: admin_view.submissions_view(self.desk.store.list_submissions(), search),
            "waiting": self._waiting,
            "teams": lambda: admin_view.teams_view(self.desk.accounts.teams()),
            "users": lambda: admin_view.users_view(self.desk.accounts.users(), actor.user),
            "tokens": lambda: admin_view.live_tokens_view(self.desk.accounts.live_tokens()),
        }
        return [part(PANELS[name]) + self._drawn(name, draw[name]) for name in names]

    @staticmethod
    def _drawn(name: str, draw: Callable[[], str]) -> str:
        try:
            return draw()
        except Exception:
            log.exception("the panel %s could not be drawn", name)
            return message("bad", "This cannot be read now.", "The fault is in the server’s log.")

    def _boards(self) -> str:
        with self.desk.store.read() as connection:
            return admin_view.boards_view(boards.list_boards(connection))

    def _versions(self) -> str:
        with self.desk.store.read() as connection:
            rows = [
                (version, boards.progress(connection, name, version.version))
                for name in self.desk.names
                for version in boards.list_versions(connection, name, shown=False)
            ]
        return admin_view.versions_view(rows)

    def _exposure(self) -> str:
        with self.desk.store.read() as connection:
            return "".join(
                exposure_view(one.name, exposure(connection, one.name, one.version, self.desk.settings))
                for one in map(self.desk.catalogue.current, self.desk.names)
            )

    def _queue(self) -> str:
        live = sa.select(jobs).where(jobs.c.status.in_(("queued", "leased"))).order_by(jobs.c.created_at)
        with self.desk.store.read() as connection:
            found = [Job(**row._mapping) for row in connection.execute(live.limit(MOST_JOBS))]
        return admin_view.queue_view(found)

    def _workers(self) -> str:
        with self.desk.store.read() as connection:
            return admin_view.workers_view(self.desk.queue.workers(connection), moment(connection))

    def _incidents(self) -> str:
        """Of the jobs that ended in one: number and time, nothing else is selected."""
        query = sa.select(jobs.c.incident, jobs.c.ended_at).where(jobs.c.incident.is_not(None))
        with self.desk.store.read() as connection:
            rows = connection.execute(query.order_by(jobs.c.ended_at.desc()).limit(MOST_JOBS)).all()
        return admin_view.incidents_view([(str(row.incident), float(row.ended_at or 0)) for row in rows])

    def notice(self) -> str:
        """What an admin who opens the page is told first."""
        n = len(self._waiting_teams())
        if not n:
            return ""
        title = f"{plural(n, 'team')} {'waits' if n == 1 else 'wait'} for approval."
        return message("info", title, "Approve or refuse under People.")

    def _waiting_teams(self) -> list[Team]:
        teams = self.desk.accounts.teams()
        return [team for team in teams if team.waiting_since is not None and team.disabled_at is None]

    def _waiting(self) -> str:
        waiting = [(team, self.desk.accounts.members(team)) for team in self._waiting_teams()]
        is_asked = self.desk.settings.accounts.new_teams == "asked"
        return admin_view.waiting_view(waiting, is_asked=is_asked)

    def _flags(self) -> str:
        flags = self.desk.store.flags()
        ids = {one for flag in flags for one in (flag.submission_id, flag.other_id) if one is not None}
        found = [one for one in map(self.desk.store.get, sorted(ids)) if one is not None]
        return admin_view.flags_view(flags, {one.id: f"{one.model_name}, {one.team}" for one in found})
