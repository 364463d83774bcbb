"""What the maintainers see, as HTML: boards, versions, the queue, workers, incidents, flags, people, exposure.

The markup is in ``admin.html``; here is what of the rows is shown, and in which order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from reveal_leaderboard.accounts.people import Team, Token, User
from reveal_leaderboard.boards.refresh import Progress
from reveal_leaderboard.release.exposure import Exposure
from reveal_leaderboard.store.boards import BoardRow, VersionRow
from reveal_leaderboard.store.queue import ALIVE_SECONDS, Job, WorkerRow
from reveal_leaderboard.store.store import Flag, Submission
from reveal_leaderboard.web.pages.drawing import draw, message, percent

__all__ = [
    "boards_view", "exposure_view", "flags_view", "incidents_view", "live_tokens_view", "queue_view",
    "submissions_view", "teams_view", "users_view", "versions_view", "waiting_view", "workers_view",
]  # fmt: skip

PAGE = "admin.html"
ROWS_SHOWN = 200
LEVELS = {"low": "low", "watch": "watch", "close": "close the board for a refresh"}


def boards_view(rows: Sequence[BoardRow]) -> str:
    """Every board and its state."""
    return draw(PAGE, "boards", rows)


def versions_view(rows: Sequence[tuple[VersionRow, Progress]]) -> str:
    """Versions with what can be done to each: a new one is scored in the background, then shown at once."""
    return draw(PAGE, "versions", rows)


def queue_view(jobs: Sequence[Job]) -> str:
    """Jobs that wait or run, the oldest first."""
    return draw(PAGE, "queue", jobs, ROWS_SHOWN)


def workers_view(workers: Sequence[WorkerRow], now: float) -> str:
    """Workers, and whether they are alive."""
    alive = {worker.name for worker in workers if now - worker.seen_at < ALIVE_SECONDS}
    return draw(PAGE, "workers", workers, alive, ROWS_SHOWN)


def incidents_view(incidents: Sequence[tuple[str, float]]) -> str:
    """Incidents: number and time only. What happened is in the worker's own log, since it may tell of references."""
    return draw(PAGE, "incidents", incidents, ROWS_SHOWN)


def flags_view(flags: Sequence[Flag], named: Mapping[str, str]) -> str:
    """Open flags; `named` maps submission ids to "model, team"."""
    return draw(PAGE, "flags", flags, named, ROWS_SHOWN)


def submissions_view(submissions: Sequence[Submission], search: str = "") -> str:
    """Submissions of everybody, newest first; `search` looks in model, team and id."""
    words = search.casefold().split()
    kept = [one for one in submissions if all(w in f"{one.model_name} {one.team} {one.id}".casefold() for w in words)]
    if not kept:
        return message("info", "No submission matches." if submissions else "There is no submission yet.")
    return draw(PAGE, "submissions", sorted(kept, key=lambda one: one.created_at, reverse=True), ROWS_SHOWN)


def waiting_view(waiting: Sequence[tuple[Team, Sequence[tuple[User, str]]]], *, is_asked: bool) -> str:
    """Teams that wait for approval with their members, who asked first standing first.

    Parameters
    ----------
    is_asked : whether teams made now wait, too
    """
    if not waiting:
        told = "New teams wait here." if is_asked else "By the settings, new teams may submit at once."
        return message("good", "No team waits.", told)
    return draw(PAGE, "waiting", sorted(waiting, key=lambda one: one[0].waiting_since or 0.0))


def teams_view(teams: Sequence[Team]) -> str:
    """All teams but those that wait for approval."""
    shown = [team for team in teams if team.waiting_since is None or team.disabled_at is not None]
    return draw(PAGE, "teams", shown) if shown else message("info", "There is no team yet.")


def users_view(users: Sequence[User], me: User) -> str:
    """Everybody who ever signed in; nobody can close their own account."""
    return draw(PAGE, "users", users, me)


def live_tokens_view(tokens: Sequence[tuple[Token, str]]) -> str:
    """Tokens that work, each with its owner's name; what is known of one says nothing of its secret."""
    return draw(PAGE, "tokens", tokens, ROWS_SHOWN)


def exposure_view(benchmark: str, meter: Exposure) -> str:
    """One benchmark: how much of a holdout version the scores shown could have told, and who sent how many."""
    known = f"{percent(meter.share)} %" if math.isfinite(meter.share) else "more than all"
    return draw(PAGE, "exposure", benchmark, LEVELS[meter.level], meter, known)
