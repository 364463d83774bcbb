"""What happened, in the order it happened: events that are only ever appended, each with the hash of the one before.

Conventions
-----------
Events are numbered 1, 2, 3 ... without a gap. The hash of an event is SHA-256 over the JSON of all that it says, its
number and the hash of the event before; the first one follows :data:`GENESIS`. The table `chains` holds how many there
are and the last hash, so that an edit, a gap and a cut-off end are all found by :func:`verify_events`. Whoever can
rewrite the whole database can rewrite the chain too: keep its head elsewhere now and then (`audit` prints it).

:func:`append` locks the chain until the transaction ends: it is the last lock that a transaction takes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.store.database import locked, moment
from reveal_leaderboard.store.tables import chains, events

__all__ = ["GENESIS", "Event", "append", "history", "verify_events"]

GENESIS = "0" * 64
CHAIN = "events"


@dataclass(frozen=True, slots=True)
class Event:
    """One change: of what, when, by whom, from where to where, and why (shown to whoever may see the subject).

    Attributes
    ----------
    id : 1 for the first of all
    subject : "submission:ID", "board:NAME", "team:ID", "user:ID", "token:ID" or "flag:ID"
    at : seconds since 1970 UTC by the database's clock
    previous, hash : 64 hexadecimal digits
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


def append(
    connection: sa.Connection, *, subject: str, who: str, to_status: str, why: str = "", from_status: str | None = None
) -> Event:
    """Append an event within the caller's transaction; to be called after all other locks are taken.

    Raises
    ------
    LookupError
        If the database was not migrated: there is no chain to append to.
    """
    query = sa.select(chains.c.length, chains.c.head).where(chains.c.name == CHAIN)
    chain = connection.execute(locked(query)).one_or_none()
    if chain is None:
        raise LookupError("the chain of events must be there, the database was not migrated")
    facts: dict[str, Any] = {
        "id": chain.length + 1,
        "subject": subject,
        "at": moment(connection),
        "who": who,
        "from_status": from_status,
        "to_status": to_status,
        "why": why,
        "previous": chain.head,
    }
    event = Event(**facts, hash=_hash(facts))
    connection.execute(events.insert().values(**asdict(event)))
    connection.execute(chains.update().where(chains.c.name == CHAIN).values(length=event.id, head=event.hash))
    return event


def history(connection: sa.Connection, subject: str) -> list[Event]:
    """What happened to a subject, oldest first."""
    query = sa.select(events).where(events.c.subject == subject).order_by(events.c.id)
    return [Event(**row._mapping) for row in connection.execute(query)]


def verify_events(connection: sa.Connection) -> list[str]:
    """The problems of the chain, one sentence each; empty if it is intact."""
    problems = []
    n, head = 0, GENESIS
    query = sa.select(events).order_by(events.c.id).execution_options(yield_per=1000)
    for row in connection.execute(query):
        event = Event(**row._mapping)
        if event.id != n + 1:
            problems.append(f"event {n + 1} is missing: the next one is {event.id}")
        elif event.previous != head:
            problems.append(f"event {event.id} does not follow event {n}")
        facts = asdict(event)
        del facts["hash"]
        if _hash(facts) != event.hash:
            problems.append(f"event {event.id} was changed: its hash is another")
        n, head = event.id, event.hash
    chain = connection.execute(sa.select(chains.c.length, chains.c.head).where(chains.c.name == CHAIN)).one_or_none()
    if chain is None:
        problems.append("the chain of events has no end written down")
    elif (chain.length, chain.head) != (n, head):
        problems.append(f"the chain must end with event {chain.length} ({chain.head[:12]}), it ends with {n}")
    return problems


def _hash(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
