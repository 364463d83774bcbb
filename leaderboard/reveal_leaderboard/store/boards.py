"""Database rows of boards and their versions: the shown version, and whether a board accepts submissions.

Conventions
-----------
A board shows one version of its benchmark at a time, and submissions go to that version. For switching to the next
version see :mod:`reveal_leaderboard.boards.refresh`. Every function runs in its caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.settings import RoundPolicy
from reveal_leaderboard.store import events
from reveal_leaderboard.store.cases import lock_boards
from reveal_leaderboard.store.database import insert_if_absent, locked, moment
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.scores import has_final
from reveal_leaderboard.store.submissions import Submission
from reveal_leaderboard.store.tables import BOARD_STATES, boards, versions


class BoardClosedError(ValueError):
    """The board does not accept submissions now."""


class RefreshError(ValueError):
    """A version cannot be rescored or shown yet."""


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A board: the shown version, and the state ("open", "paused" or "closed") with reason and time."""

    benchmark: str
    version: str
    state: str
    why: str
    changed_at: float


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version: public facts, and the times when it was registered, shown and frozen (None: not yet)."""

    benchmark: str
    version: str
    split: str
    facts: Mapping[str, Any]
    added_at: float
    shown_at: float | None
    frozen_at: float | None


def board(connection: sa.Connection, benchmark: str) -> BoardRow | None:
    """Return the board of a benchmark, or None."""
    row = connection.execute(sa.select(boards).where(boards.c.benchmark == benchmark)).one_or_none()
    return None if row is None else BoardRow(**row._mapping)


def list_boards(connection: sa.Connection) -> list[BoardRow]:
    """Return all boards, sorted by name."""
    return [BoardRow(**row._mapping) for row in connection.execute(sa.select(boards).order_by(boards.c.benchmark))]


def list_versions(connection: sa.Connection, benchmark: str, *, shown_only: bool = True) -> list[VersionRow]:
    """Return the versions of a benchmark, oldest first; with `shown_only`, only versions that are or were on the
    board.
    """
    query = sa.select(versions).where(versions.c.benchmark == benchmark).order_by(versions.c.added_at)
    if shown_only:
        query = query.where(versions.c.shown_at.is_not(None))
    return [VersionRow(**row._mapping) for row in connection.execute(query)]


def register_version(
    connection: sa.Connection, benchmark: str, version: str, split: str, facts: Mapping[str, Any] | None = None
) -> BoardRow:
    """Register a version; the first version of a benchmark opens its board. A known version is not changed.

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
    if not is_new and (known_split := version_row(connection, benchmark, version).split) != split:
        raise ValueError(f"`split` of {benchmark} {version} must be {known_split!r}, got {split!r}")
    if is_new:
        why = f"version {version} is known" + (" and shown" if is_first else "")
        to_status = "open" if is_first else "registered"
        events.append(connection, subject=f"board:{benchmark}", who="server", to_status=to_status, why=why)
    return BoardRow(**board_row(connection, benchmark)._mapping)


def set_state(connection: sa.Connection, benchmark: str, state: str, *, who: str, why: str) -> BoardRow:
    """Open, pause or close a board, with a reason.

    Closing a board announces the end of the round: the board shows and ranks by the final scores of its version, if
    there are any, and the version accepts no more submissions.

    Raises
    ------
    LookupError
        If the board does not exist.
    ValueError
        If `state` is not open, paused or closed, or if a closed board has shown the final scores of its version.
    """
    if state not in BOARD_STATES:
        raise ValueError(f"`state` must be one of {', '.join(BOARD_STATES)}, got {state!r}")
    before = board_row(connection, benchmark, lock=True)
    if before.state == "closed" != state and has_final(connection, benchmark, before.version):
        raise ValueError(
            f"`state` of {benchmark} must stay closed, got {state!r}: the final scores of version "
            f"{before.version} were shown; show another version to continue"
        )
    changed_at = before.changed_at if state == before.state else moment(connection)
    values = {"state": state, "why": why, "changed_at": changed_at}
    connection.execute(boards.update().where(boards.c.benchmark == benchmark).values(**values))
    events.append(connection, subject=f"board:{benchmark}", who=who, from_status=before.state, to_status=state, why=why)
    if "closed" in (before.state, state):
        # A closed board is ranked by paired tests and by its final scores, since nobody can submit any more.
        Queue.put(connection, "rank", benchmark, before.version, "board")
    return BoardRow(**{**before._mapping, **values})


def shown_state(connection: sa.Connection, row: BoardRow, times: RoundPolicy) -> tuple[str, str]:
    """Return a board's state now and its reason; an open board outside of the times of its round is paused."""
    if row.state == "open" and not times.includes(moment(connection)):
        return "paused", times.sentence
    return row.state, row.why


def check_open_board(
    connection: sa.Connection, benchmark: str, version: str, times: RoundPolicy, *, lock: bool = False
) -> None:
    """Check that a board accepts submissions to `version` now, within the `times` of its round.

    With `lock`, the board and all boards that share held-out cases are locked, in the order of their names, until the
    transaction ends.

    Raises
    ------
    BoardClosedError
        If the board does not accept them.
    """
    if lock:
        row = lock_boards(connection, benchmark, version).get(benchmark)
    else:
        row = connection.execute(sa.select(boards).where(boards.c.benchmark == benchmark)).one_or_none()
    if row is None:
        raise BoardClosedError(f"no board of {benchmark}")
    state, why = shown_state(connection, BoardRow(**row._mapping), times)
    if state != "open":
        raise BoardClosedError(f"the board of {benchmark} is {state}" + (f": {why}" if why else ""))
    if row.version != version:
        raise BoardClosedError(f"the board of {benchmark} accepts submissions to version {row.version}, not {version}")


def is_over(connection: sa.Connection, benchmark: str, version: str) -> bool:
    """Return True if a version no longer accepts submissions: its board is closed or shows another version."""
    row = board_row(connection, benchmark)
    return bool(row.state == "closed" or row.version != version)


def split_of(connection: sa.Connection, benchmark: str, version: str) -> str:
    """Return the name of the scored split of a version, which may differ between versions.

    Raises
    ------
    RefreshError
        If the version is unknown.
    """
    return str(version_row(connection, benchmark, version).split)


def rank_again(connection: sa.Connection, changed: Submission) -> None:
    """Queue a new ranking of the board if the submission `changed` was scored."""
    current = board(connection, changed.benchmark)
    if current is not None and changed.status == "scored":
        Queue.put(connection, "rank", changed.benchmark, current.version, "board")


def board_row(connection: sa.Connection, benchmark: str, *, lock: bool = False) -> sa.Row[Any]:
    """Return the row of an existing board; with `lock`, lock the row for a change."""
    query = sa.select(boards).where(boards.c.benchmark == benchmark)
    row = connection.execute(locked(query) if lock else query).one_or_none()
    if row is None:
        raise LookupError(f"no board of {benchmark}")
    return row


def version_row(connection: sa.Connection, benchmark: str, version: str) -> sa.Row[Any]:
    """Return the row of a registered version."""
    query = sa.select(versions).where(versions.c.benchmark == benchmark, versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise RefreshError(f"version {version} of {benchmark} is unknown: start a server with it first")
    return row
