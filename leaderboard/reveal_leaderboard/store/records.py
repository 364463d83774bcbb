"""What the chain of events vouches for: the record of each subject, whose hash every event of the subject holds.

Conventions
-----------
The record of a subject ("submission:ID", "team:ID", "user:ID", "token:ID", "invitation:ID", "flag:ID", "board:NAME")
is its row and the rows that belong to it: of a submission its lines of the ledger, of a team its members and what it
was granted, of a board its versions and what those that are frozen show. Left out is what changes without an event
(:data:`LEFT_OUT`).
A change is made first and its event appended after it, in one transaction, so that the last event of a subject holds
the hash of the record as it must stand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import sqlalchemy as sa

from reveal_leaderboard.store.tables import (
    boards,
    flags,
    invitations,
    ledger,
    members,
    results,
    submissions,
    teams,
    tokens,
    users,
    versions,
)

__all__ = ["LEFT_OUT", "record_of", "subjects"]

LEFT_OUT: dict[sa.FromClause, tuple[str, ...]] = {
    submissions: ("updated_at", "is_chosen"),
    tokens: ("used_at",),
    ledger: ("id",),
}
"""Columns that no record holds: the time of the last change, which of a model's submissions is shown (their events
say), when a token was last used, and numbers of lines."""
_FROZEN = results.c.kind == "frozen"
_GRANTED = ledger.c.submission_id.is_(None)
_RECORDS: dict[str, list[tuple[sa.Column[str], sa.ColumnElement[bool]]]] = {
    "submission": [(submissions.c.id, sa.true()), (ledger.c.submission_id, sa.true())],
    "team": [(teams.c.id, sa.true()), (members.c.team_id, sa.true()), (ledger.c.team_id, _GRANTED)],
    "user": [(users.c.id, sa.true())],
    "token": [(tokens.c.id, sa.true())],
    "invitation": [(invitations.c.id, sa.true())],
    "flag": [(flags.c.id, sa.true())],
    "board": [(boards.c.benchmark, sa.true()), (versions.c.benchmark, sa.true()), (results.c.benchmark, _FROZEN)],
}


def record_of(connection: sa.Connection, subject: str) -> str | None:
    """SHA-256 of the record of `subject` as it stands now, 64 hexadecimal digits; None if it has no row."""
    kind, _, name = subject.partition(":")
    found = [
        _rows(connection, column.table, sa.and_(column == name, where)) for column, where in _RECORDS.get(kind, ())
    ]
    if not found or not found[0]:
        return None
    text = json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def subjects(connection: sa.Connection) -> Iterator[str]:
    """Every subject that has a record."""
    for kind, [(column, _), *_] in _RECORDS.items():
        for name in connection.execute(sa.select(column).order_by(column)).scalars().all():
            yield f"{kind}:{name}"


def _rows(connection: sa.Connection, table: sa.FromClause, where: sa.ColumnElement[bool]) -> list[dict[str, object]]:
    columns = [column for column in table.c if column.name not in LEFT_OUT.get(table, ())]
    query = sa.select(*columns).where(where).order_by(*table.primary_key)
    return [
        {column.name: value for column, value in zip(columns, row, strict=True)} for row in connection.execute(query)
    ]
