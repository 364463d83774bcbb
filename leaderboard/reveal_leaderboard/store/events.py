"""Hash chain of events: each change of a board is appended with the hash of the previous event.

Conventions
-----------
Events are numbered 1, 2, 3 ... without a gap. The hash of an event is SHA-256 over the JSON of its content, its number
and the hash of the previous event (:data:`GENESIS` for the first event). The table `chains` contains the number of
events and the last hash, so that :func:`verify_events` finds edits, gaps and missing last events. Anyone who can
rewrite the whole database can rewrite the chain as well, so keep its head, which `audit` prints, elsewhere.

An event also contains the hash of its subject's record after the event, if the subject exists. :func:`append` locks
the chain until the transaction ends. This must be the last lock of a transaction, after all its changes.

The record of a subject ("submission:ID", "team:ID", "user:ID", "token:ID", "invitation:ID", "flag:ID", "board:NAME")
consists of its row and the rows that belong to it: a submission's ledger entries, a team's members and grants, a
board's versions and the rows that frozen versions show. Columns that change without an event are excluded
(:data:`LEFT_OUT`). In one transaction, a change is made and then its event appended, so that the last event of a
subject has the hash of the subject's current record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.store.database import locked, moment
from reveal_leaderboard.store.tables import (
    GENESIS,
    boards,
    chains,
    events,
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

CHAIN = "events"


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a subject: time, author, status before and after, and the reason (shown to people who may see the
    subject).

    Attributes
    ----------
    id : number of the event, from 1
    subject : "submission:ID", "board:NAME", "team:ID", "user:ID", "token:ID", "invitation:ID" or "flag:ID"
    at : seconds since 1970 UTC by the database's clock
    previous, hash : hashes of the previous event and of this event, 64 hexadecimal digits
    record : hash of the subject's record, 64 hexadecimal digits; None if the event has none
    """

    id: int
    subject: str
    at: float
    who: str
    from_status: str | None
    to_status: str
    why: str
    previous: str
    hash: str
    record: str | None = None


def append(
    connection: sa.Connection, *, subject: str, who: str, to_status: str, why: str = "", from_status: str | None = None
) -> Event:
    """Append an event in the caller's transaction; all other locks must be taken before.

    Raises
    ------
    LookupError
        If the database was not migrated and so has no chain.
    """
    query = sa.select(chains.c.length, chains.c.head).where(chains.c.name == CHAIN)
    chain = connection.execute(locked(query)).one_or_none()
    if chain is None:
        raise LookupError("there is no chain of events, because the database was not migrated")
    facts: dict[str, Any] = {
        "id": chain.length + 1,
        "subject": subject,
        "at": moment(connection),
        "who": who,
        "from_status": from_status,
        "to_status": to_status,
        "why": why,
        "previous": chain.head,
        "record": record_of(connection, subject),
    }
    event = Event(**facts, hash=_hash(facts))
    connection.execute(events.insert().values(**asdict(event)))
    connection.execute(chains.update().where(chains.c.name == CHAIN).values(length=event.id, head=event.hash))
    return event


def history(connection: sa.Connection, subject: str) -> list[Event]:
    """Return the events of a subject, oldest first."""
    query = sa.select(events).where(events.c.subject == subject).order_by(events.c.id)
    return [Event(**row._mapping) for row in connection.execute(query)]


def verify_events(connection: sa.Connection) -> list[str]:
    """Return the problems of the chain as sentences; empty if the chain is intact."""
    problems = []
    n, head = 0, GENESIS
    query = sa.select(events).order_by(events.c.id).execution_options(yield_per=1000)
    for row in connection.execute(query):
        event = Event(**row._mapping)
        if event.id != n + 1:
            problems.append(f"event {n + 1} is missing: the next event is {event.id}")
        elif event.previous != head:
            problems.append(f"event {event.id} does not follow event {n}")
        facts = asdict(event)
        del facts["hash"]
        if _hash(facts) != event.hash:
            problems.append(f"event {event.id} was changed: its hash differs")
        n, head = event.id, event.hash
    chain = connection.execute(sa.select(chains.c.length, chains.c.head).where(chains.c.name == CHAIN)).one_or_none()
    if chain is None:
        problems.append("the chain of events has no recorded end")
    elif (chain.length, chain.head) != (n, head):
        problems.append(f"the chain must end with event {chain.length} ({chain.head[:12]}), but ends with {n}")
    return problems


def verify_records(connection: sa.Connection) -> Iterator[str]:
    """Yield a sentence for each subject whose record differs from its last event; nothing if no event has a record."""
    query = sa.select(events.c.subject, events.c.record).where(events.c.record.is_not(None)).order_by(events.c.id)
    left = {row.subject: row.record for row in connection.execute(query)}
    for subject in subjects(connection):
        if subject not in left:
            yield f"no event names {subject.replace(':', ' ')}"
        elif record_of(connection, subject) != left.pop(subject):
            yield f"{subject.replace(':', ' ')} differs from the record in its last event"
    for subject in left:
        yield f"{subject.replace(':', ' ')} no longer exists"


def _hash(facts: dict[str, Any]) -> str:
    if facts["record"] is None:  # the event has no subject with a record
        facts = {name: value for name, value in facts.items() if name != "record"}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


LEFT_OUT: dict[sa.FromClause, tuple[str, ...]] = {
    submissions: ("updated_at", "is_chosen"),
    tokens: ("used_at",),
    ledger: ("id",),
}
"""Columns that records exclude: time of the last change, choice of the submission to show for a model (which events
record), time of a token's last use, and ids of ledger entries.
"""
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
    """Return the SHA-256 of the current record of `subject`, 64 hexadecimal digits; None if the subject does not
    exist.
    """
    kind, _, name = subject.partition(":")
    record = [
        _rows(connection, column.table, sa.and_(column == name, where)) for column, where in _RECORDS.get(kind, ())
    ]
    if not record or not record[0]:
        return None
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def subjects(connection: sa.Connection) -> Iterator[str]:
    """Yield every subject that has a record."""
    for kind, [(column, _), *_] in _RECORDS.items():
        for name in connection.execute(sa.select(column).order_by(column)).scalars().all():
            yield f"{kind}:{name}"


def _rows(connection: sa.Connection, table: sa.FromClause, where: sa.ColumnElement[bool]) -> list[dict[str, object]]:
    columns = [column for column in table.c if column.name not in LEFT_OUT.get(table, ())]
    query = sa.select(*columns).where(where).order_by(*table.primary_key)
    return [
        {column.name: value for column, value in zip(columns, row, strict=True)} for row in connection.execute(query)
    ]
