"""Boards, their versions, and how one version takes the place of another.

Conventions
-----------
A board shows one version of its benchmark at a time, and submissions go to that one. A refresh goes in three steps:
:func:`register_version` makes the next version known, :func:`start_refresh` has the stored submissions scored again
against it, and :func:`switch_version` shows it, all at once, when no such job is left. Until then no score against it
is shown to anybody; from then on the old version is frozen: its scores stay where they were, and say what changed.

A submission that the ladder held back on the old version shows the figures of the same other submission on the new one:
scoring it by itself would release what was held. Every function runs in its caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.release.release import ReleasedScore, primary_figure
from reveal_leaderboard.store import events
from reveal_leaderboard.store.database import insert_if_absent, locked, moment
from reveal_leaderboard.store.outcomes import freeze, on_board
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.submissions import Submission
from reveal_leaderboard.store.tables import BOARD_STATES, boards, jobs, scores, submissions, versions

__all__ = [
    "BoardClosedError", "BoardRow", "Progress", "RankChange", "RankChanges", "RefreshError", "VersionRow", "board",
    "check_open_board", "list_boards", "list_versions", "lock_open_board", "progress", "rank_again",
    "register_version", "set_state", "split_of", "start_refresh", "switch_version",
]  # fmt: skip


class BoardClosedError(ValueError):
    """The board takes no submissions now."""


class RefreshError(ValueError):
    """A version cannot be started or shown yet."""


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A board: the version it shows, whether it is "open", "paused" or "closed", and why since when."""

    benchmark: str
    version: str
    state: str
    why: str
    changed_at: float


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version: what is public of it, and when it was made known, shown and frozen (None: not yet)."""

    benchmark: str
    version: str
    split: str
    facts: Mapping[str, Any]
    added_at: float
    shown_at: float | None
    frozen_at: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the stored submissions to be scored again: all, those done, those that could not be, those left."""

    total: int
    done: int
    failed: int
    left: int


@dataclass(frozen=True, slots=True)
class RankChange:
    """Where a submission stood and stands, by its rounded primary figure, ties sharing the better rank; None: not."""

    submission_id: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class RankChanges:
    """How a switch moved the board: `dropped` are the submissions that the new version has no score of."""

    benchmark: str
    old: str
    new: str
    changes: tuple[RankChange, ...]
    dropped: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self) | {"changes": [asdict(change) for change in self.changes], "dropped": list(self.dropped)}


def board(connection: sa.Connection, benchmark: str) -> BoardRow | None:
    """The board of a benchmark, if there is one."""
    row = connection.execute(sa.select(boards).where(boards.c.benchmark == benchmark)).one_or_none()
    return None if row is None else BoardRow(**row._mapping)


def list_boards(connection: sa.Connection) -> list[BoardRow]:
    """All boards, by name."""
    return [BoardRow(**row._mapping) for row in connection.execute(sa.select(boards).order_by(boards.c.benchmark))]


def list_versions(connection: sa.Connection, benchmark: str, *, shown: bool = True) -> list[VersionRow]:
    """The versions of a benchmark, oldest first; with `shown`, those that are or were on the board."""
    query = sa.select(versions).where(versions.c.benchmark == benchmark).order_by(versions.c.added_at)
    if shown:
        query = query.where(versions.c.shown_at.is_not(None))
    return [VersionRow(**row._mapping) for row in connection.execute(query)]


def register_version(
    connection: sa.Connection, benchmark: str, version: str, split: str, facts: Mapping[str, Any] | None = None
) -> BoardRow:
    """Make a version known; the first one of a benchmark opens its board. Nothing happens if it is known already.

    Raises
    ------
    ValueError
        If the version is known with another split.
    """
    at = moment(connection)
    row = {"benchmark": benchmark, "version": version, "state": "open", "why": "", "changed_at": at}
    is_first = insert_if_absent(connection, boards, row)
    known = {"benchmark": benchmark, "version": version, "split": split, "facts": dict(facts or {}), "added_at": at}
    is_new = insert_if_absent(connection, versions, known | {"shown_at": at if is_first else None, "frozen_at": None})
    if not is_new and (found := _version(connection, benchmark, version).split) != split:
        raise ValueError(f"`split` of {benchmark} {version} must be {found!r}, got {split!r}")
    if is_new:
        why = f"version {version} is known" + (" and shown" if is_first else "")
        to_status = "open" if is_first else "registered"
        events.append(connection, subject=f"board:{benchmark}", who="server", to_status=to_status, why=why)
    return BoardRow(**_board(connection, benchmark)._mapping)


def set_state(connection: sa.Connection, benchmark: str, state: str, *, who: str, why: str) -> BoardRow:
    """Open, pause or close a board, and say why.

    Closing shows the final figures of its version, if it has any: after that nobody may send to this version again.

    Raises
    ------
    LookupError
        If there is no such board.
    ValueError
        If `state` is none of those, or a closed board's version has final figures.
    """
    if state not in BOARD_STATES:
        raise ValueError(f"`state` must be one of {', '.join(BOARD_STATES)}, got {state!r}")
    before = _board(connection, benchmark, lock=True)
    if before.state == "closed" != state and _has_final(connection, benchmark, before.version):
        raise ValueError(
            f"`state` of {benchmark} must stay closed, got {state!r}: the final figures of version {before.version} "
            "were shown; show another version to go on"
        )
    values = {"state": state, "why": why, "changed_at": moment(connection)}
    connection.execute(boards.update().where(boards.c.benchmark == benchmark).values(**values))
    events.append(connection, subject=f"board:{benchmark}", who=who, from_status=before.state, to_status=state, why=why)
    return BoardRow(**{**before._mapping, **values})


def lock_open_board(connection: sa.Connection, benchmark: str, version: str) -> BoardRow:
    """The board, locked until the transaction ends, if it takes submissions to `version` now.

    Raises
    ------
    BoardClosedError
        If it does not.
    """
    return _taking(connection, locked(sa.select(boards).where(boards.c.benchmark == benchmark)), benchmark, version)


def check_open_board(connection: sa.Connection, benchmark: str, version: str) -> BoardRow:
    """As :func:`lock_open_board`, for a connection that only reads: it may be otherwise a moment later.

    Raises
    ------
    BoardClosedError
        If the board takes no submissions to `version` now.
    """
    return _taking(connection, sa.select(boards).where(boards.c.benchmark == benchmark), benchmark, version)


def _taking(connection: sa.Connection, query: sa.Select[Any], benchmark: str, version: str) -> BoardRow:
    row = connection.execute(query).one_or_none()
    if row is None:
        raise BoardClosedError(f"there is no board of {benchmark}")
    if row.state != "open":
        raise BoardClosedError(f"the board of {benchmark} is {row.state}" + (f": {row.why}" if row.why else ""))
    if row.version != version:
        raise BoardClosedError(f"the board of {benchmark} takes submissions to version {row.version}, not {version}")
    return BoardRow(**row._mapping)


def start_refresh(connection: sa.Connection, benchmark: str, version: str, *, who: str) -> int:
    """Have every submission that the board scored by itself scored against `version` too, where it is not yet.

    Returns
    -------
    how many jobs were put; it may be called again, for submissions that were scored since or could not be

    Raises
    ------
    LookupError
        If there is no such board.
    RefreshError
        If the version is not known, or is or was on the board already.
    """
    shown = _board(connection, benchmark, lock=True)
    _waiting_version(connection, benchmark, version)
    wanted = [row.submission_id for row in _own_scores(connection, benchmark, shown.version)]
    there = {row.submission_id for row in _own_scores(connection, benchmark, version)}
    put = [Queue.put(connection, "rescore", benchmark, version, i) for i in sorted(set(wanted) - there)]
    n = len(put)
    why = f"{n} submissions are scored against version {version}"
    events.append(connection, subject=f"board:{benchmark}", who=who, to_status="refreshing", why=why)
    return n


def progress(connection: sa.Connection, benchmark: str, version: str) -> Progress:
    """How far the scoring against `version` is."""
    query = (
        sa.select(jobs.c.status, sa.func.count())
        .where(jobs.c.kind == "rescore", jobs.c.benchmark == benchmark, jobs.c.version == version)
        .group_by(jobs.c.status)
    )
    n = {row[0]: int(row[1]) for row in connection.execute(query)}
    total, done = sum(n.values()), n.get("done", 0)
    left = n.get("queued", 0) + n.get("leased", 0)
    return Progress(total, done, total - done - left, left)


def switch_version(connection: sa.Connection, benchmark: str, version: str, *, who: str) -> RankChanges:
    """Show `version` from now on, and freeze the one before.

    Returns
    -------
    how the ranks moved; also kept, for everybody, as `rank_changes` in the facts of the version

    Notes
    -----
    A closed board whose new version has final figures is paused by this: they are for the end of the next round.

    Raises
    ------
    LookupError
        If there is no such board.
    RefreshError
        If the version is not known, is or was on the board, or if anything is still to be scored.
    """
    shown = _board(connection, benchmark, lock=True)
    facts = _waiting_version(connection, benchmark, version).facts
    _check_nothing_is_left(connection, benchmark, shown.version, version)
    _copy_held(connection, benchmark, shown.version, version)
    before, after = (_ranks(connection, benchmark, v) for v in (shown.version, version))
    ids = sorted(before | after, key=lambda i: (after.get(i) or len(after) + 1, before.get(i) or 0, i))
    moves = tuple(RankChange(i, before.get(i), after.get(i)) for i in ids)
    dropped = tuple(change.submission_id for change in moves if change.after is None)
    changes = RankChanges(benchmark, shown.version, version, moves, dropped)
    at = moment(connection)
    of_board = versions.c.benchmark == benchmark
    freeze(connection, benchmark, shown.version)
    connection.execute(versions.update().where(of_board, versions.c.version == shown.version).values(frozen_at=at))
    show = versions.update().where(of_board, versions.c.version == version)
    connection.execute(show.values(shown_at=at, facts={**facts, "rank_changes": changes.to_json()}))
    connection.execute(boards.update().where(boards.c.benchmark == benchmark).values(version=version, changed_at=at))
    if shown.state == "closed" and _has_final(connection, benchmark, version):
        set_paused = boards.update().where(boards.c.benchmark == benchmark)
        connection.execute(set_paused.values(state="paused", why=f"version {version} was shown; its round begins"))
    Queue.put(connection, "rank", benchmark, version, "board")
    why = f"version {version} took the place of {shown.version}; {len(dropped)} submissions dropped"
    events.append(connection, subject=f"board:{benchmark}", who=who, to_status="switched", why=why)
    return changes


def split_of(connection: sa.Connection, benchmark: str, version: str) -> str:
    """The split that submissions are scored on against a version; its name may change from one version to the next.

    Raises
    ------
    RefreshError
        If the version is not known.
    """
    return str(_version(connection, benchmark, version).split)


def rank_again(connection: sa.Connection, changed: Submission) -> None:
    """Have the ranks of the board computed anew, if `changed` was scored: what the board shows has changed."""
    shown = board(connection, changed.benchmark)
    if shown is not None and changed.status == "scored":
        Queue.put(connection, "rank", changed.benchmark, shown.version, "board")


def _has_final(connection: sa.Connection, benchmark: str, version: str) -> bool:
    query = (
        sa.select(scores.c.submission_id)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version, scores.c.part == "final")
        .limit(1)
    )
    return connection.execute(query).one_or_none() is not None


def _board(connection: sa.Connection, benchmark: str, *, lock: bool = False) -> sa.Row[Any]:
    query = sa.select(boards).where(boards.c.benchmark == benchmark)
    row = connection.execute(locked(query) if lock else query).one_or_none()
    if row is None:
        raise LookupError(f"there is no board of {benchmark}")
    return row


def _version(connection: sa.Connection, benchmark: str, version: str) -> sa.Row[Any]:
    query = sa.select(versions).where(versions.c.benchmark == benchmark, versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise RefreshError(f"version {version} of {benchmark} must be registered first")
    return row


def _waiting_version(connection: sa.Connection, benchmark: str, version: str) -> sa.Row[Any]:
    row = _version(connection, benchmark, version)
    if row.shown_at is not None:
        raise RefreshError(f"version {version} of {benchmark} is or was on the board already")
    return row


def _own_scores(connection: sa.Connection, benchmark: str, version: str) -> list[sa.Row[Any]]:
    """Public scores against a version that the ladder let pass, oldest first."""
    query = (
        sa.select(scores)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version, scores.c.part == "public")
        .where(scores.c.shown_of == scores.c.submission_id)
        .order_by(scores.c.scored_at, scores.c.submission_id)
    )
    return list(connection.execute(query))


def _check_nothing_is_left(connection: sa.Connection, benchmark: str, old: str, new: str) -> None:
    live = jobs.c.status.in_(("queued", "leased"))
    for kind, version, what in (("rescore", new, "against the new version"), ("score", old, "against the old one")):
        query = sa.select(sa.func.count()).select_from(jobs).where(live, jobs.c.benchmark == benchmark)
        n = connection.execute(query.where(jobs.c.kind == kind, jobs.c.version == version)).scalar_one()
        if n:
            hint = "; pause the board and wait" if kind == "score" else ""
            raise RefreshError(f"{n} submissions of {benchmark} are still to be scored {what}{hint}")
    tried = sa.select(jobs.c.subject).where(
        jobs.c.kind == "rescore", jobs.c.benchmark == benchmark, jobs.c.version == new
    )
    subjects = set(connection.execute(tried).scalars())
    missing = [row for row in _own_scores(connection, benchmark, old) if row.submission_id not in subjects]
    if missing:
        raise RefreshError(f"{len(missing)} submissions of {benchmark} were not sent to be scored again: start again")


def _copy_held(connection: sa.Connection, benchmark: str, old: str, new: str) -> None:
    """Give each submission that was held back the new figures of the one whose old figures it shows."""
    own = {row.submission_id: row for row in _own_scores(connection, benchmark, new)}
    query = (
        sa.select(scores.c.submission_id, scores.c.shown_of)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == old, scores.c.part == "public")
        .where(scores.c.shown_of != scores.c.submission_id)
    )
    for held in connection.execute(query).all():
        if held.shown_of in own:
            values = {**own[held.shown_of]._mapping, "submission_id": held.submission_id}
            insert_if_absent(connection, scores, values)


def _ranks(connection: sa.Connection, benchmark: str, version: str) -> dict[str, int]:
    """Ranks of what the board shows of a version, by the rounded primary figure; what has none is not ranked."""
    values: dict[str, float] = {}
    for row in on_board(connection, benchmark, version):
        figure = primary_figure(ReleasedScore.from_json(row.score_released))
        if figure is not None:
            values[row.id] = figure.value
    return {i: 1 + sum(other > value for other in values.values()) for i, value in values.items()}
