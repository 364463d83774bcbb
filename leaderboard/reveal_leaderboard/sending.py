"""Sending a linted submission: what is queued, what was there before, and what is refused.

Conventions
-----------
The same file by the same team under the same name is one submission. If it failed, was refused, or was withdrawn
before it was scored, sending it again queues it under the same id; if it was withdrawn after it was scored, it is back
on the board at no cost, unless the same predictions are there under another name, or were hidden.

:func:`check` says early what :func:`add` will refuse, so that no file is kept for nothing; what counts is :func:`add`,
which decides with the board and the team locked. Order of locks: :mod:`reveal_leaderboard.database`.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard import quota
from reveal_leaderboard.boards import BoardClosedError, check_open_board, lock_open_board, rank_again
from reveal_leaderboard.database import locked, moment
from reveal_leaderboard.outcomes import place_holder
from reveal_leaderboard.people import waits_for_approval
from reveal_leaderboard.queue import Queue
from reveal_leaderboard.quota import QuotaExceededError
from reveal_leaderboard.settings import Settings
from reveal_leaderboard.submissions import (
    NewSubmission,
    NotAllowedError,
    OtherThresholdsError,
    Submission,
    find_repeated,
    get_known,
    note,
)
from reveal_leaderboard.tables import submissions, teams

__all__ = ["add", "check"]

RESENDABLE = ("refused", "failed", "withdrawn")


def add(connection: sa.Connection, new: NewSubmission, settings: Settings, *, who: str) -> tuple[Submission, bool]:
    """Queue a submission; see :meth:`reveal_leaderboard.store.Store.add_submission`, which this is."""
    is_open = _lock_board(connection, new)
    _check_team(connection, locked(sa.select(teams).where(teams.c.id == new.team_id)))
    known = find_repeated(connection, new)
    if known is None:
        return _send(connection, new, settings, who), True
    if is_open and not _is_replay(known, new) and known.status in RESENDABLE:
        return _send_again(connection, known, new, settings, who), True
    _check_thresholds(known, new)
    if is_open and not _is_replay(known, new) and known.status == "scored" and known.withdrawn_at is not None:
        return _show_again(connection, known, who), False
    return known, False


def check(connection: sa.Connection, new: NewSubmission, settings: Settings) -> None:
    """Raise what :func:`add` would, as things are now; `connection` may be one that only reads."""
    _check_team(connection, sa.select(teams).where(teams.c.id == new.team_id))
    known = find_repeated(connection, new)
    if known is not None and (known.status not in RESENDABLE or _is_replay(known, new)):
        _check_thresholds(known, new)
        return
    try:
        check_open_board(connection, new.benchmark, new.version)
    except BoardClosedError:
        if known is None:
            raise
        _check_thresholds(known, new)
        return
    policy = settings.of(new.benchmark).quota
    balance = quota.balance(connection, new.team_id, new.benchmark, new.version, policy)
    if not balance.may_send:
        raise QuotaExceededError(balance)


def _lock_board(connection: sa.Connection, new: NewSubmission) -> bool:
    """Whether the board takes `new`; if it does not, what was sent before is found all the same."""
    try:
        lock_open_board(connection, new.benchmark, new.version)
    except BoardClosedError:
        if find_repeated(connection, new) is None:
            raise
        return False
    return True


def _check_team(connection: sa.Connection, query: sa.Select[Any]) -> None:
    team = connection.execute(query).one()
    if team.disabled_at is not None:
        raise NotAllowedError(f"the team {team.name} is disabled")
    if team.waiting_since is not None:
        raise NotAllowedError(waits_for_approval(team.name))


def _check_thresholds(known: Submission, new: NewSubmission) -> None:
    """What is scored with other thresholds is something else, and must not pass for what is there."""
    if known.metadata.get("thresholds") != new.metadata.get("thresholds"):
        raise OtherThresholdsError(f"`thresholds` must be those of submission {known.id}, which is the same file")


def _is_replay(known: Submission, new: NewSubmission) -> bool:
    """Whether `new` is the same request once more."""
    return new.idempotency_key is not None and known.idempotency_key == new.idempotency_key


def _send(connection: sa.Connection, new: NewSubmission, settings: Settings, who: str) -> Submission:
    submission_id = secrets.token_hex(16)
    at = moment(connection)
    row = asdict(new) | {"metadata": dict(new.metadata), "id": submission_id, "status": "queued"}
    row |= {"created_at": at, "updated_at": at, "is_chosen": False}
    connection.execute(submissions.insert().values(**row))
    _queue(connection, submission_id, new, settings, who)
    for before, after in ((None, "received"), ("received", "linted"), ("linted", "queued")):
        note(connection, submission_id, before, after, who)
    return get_known(connection, submission_id)


def _send_again(
    connection: sa.Connection, known: Submission, new: NewSubmission, settings: Settings, who: str
) -> Submission:
    said = ("user_id", "kind", "prompt_style", "filename", "allow_missing", "idempotency_key")
    values: dict[str, Any] = {name: getattr(new, name) for name in said}
    values |= {"metadata": dict(new.metadata), "status": "queued", "incident": None}
    values |= {"withdrawn_at": None, "updated_at": moment(connection)}
    _queue(connection, known.id, new, settings, who)
    connection.execute(submissions.update().where(submissions.c.id == known.id).values(**values))
    note(connection, known.id, known.status, "queued", who, "sent again")
    return get_known(connection, known.id)


def _show_again(connection: sa.Connection, known: Submission, who: str) -> Submission:
    holder = place_holder(connection, known, known.version)
    if holder is not None:
        raise NotAllowedError(f"the same predictions are on the board, or were hidden there, as submission {holder}")
    rank_again(connection, known)
    values = {"withdrawn_at": None, "updated_at": moment(connection)}
    connection.execute(submissions.update().where(submissions.c.id == known.id).values(**values))
    note(connection, known.id, "withdrawn", "scored", who, "sent again; it is shown again")
    return get_known(connection, known.id)


def _queue(connection: sa.Connection, submission_id: str, new: NewSubmission, settings: Settings, who: str) -> None:
    policy = settings.of(new.benchmark).quota
    quota.reserve(connection, submission_id, new.team_id, new.benchmark, new.version, policy, who=who)
    Queue.put(connection, "score", new.benchmark, new.version, submission_id)
