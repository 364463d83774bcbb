"""Messages to webhooks, created from the chain of events; each is sent at least once.

Conventions
-----------
The chain of events serves as an outbox: an event exists exactly if its change was committed, and events appear in the
order of their numbers, since each transaction locks the chain until it ends. The table `webhooks` records the last
processed event of each webhook. :meth:`Deliveries.collect` creates the deliveries of later events and updates this
record in one transaction. So no event is lost, no undone change is announced, and code that makes changes need not
mention webhooks. A new webhook gets the events after the first start of the program with that webhook in the settings.

A sender *claims* a delivery, which other senders may claim after :data:`LEASE_SECONDS`. So if a sender is killed before
it records the answer, the delivery is sent a second time under the same id. Ids are random, since the number of an
event can be used again after a board is restored. The pauses between attempts are :data:`PAUSES`; a delivery fails
after the last attempt, or at once if the receiver answers 410 (gone). Finished deliveries are deleted after
:data:`KEPT_SECONDS`. All times are by the database's clock.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.store.database import insert_if_absent, locked, moment, now, reading
from reveal_leaderboard.store.tables import chains, deliveries, events, webhooks

PAUSES = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0)
"""Seconds after each attempt, as the Standard Webhooks specification recommends."""
LEASE_SECONDS = 60.0
KEPT_SECONDS = 30 * 86_400.0
AT_ONCE = 500
GONE = 410

KIND = sa.case(
    (sa.and_(events.c.subject.like("flag:%"), events.c.to_status == "raised"), "flagged"),
    (sa.and_(events.c.from_status == "scoring", events.c.to_status == "scored"), "scored"),
    (sa.and_(events.c.subject.like("submission:%"), events.c.to_status == "withdrawn"), "withdrawn"),
    else_=None,
)
"""Return the type of message for an event; None for most events, including scoring against another version."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message to a webhook, as a row of the table of deliveries.

    Attributes
    ----------
    event_id : number of the event; None for a test message
    kind : "scored", "withdrawn", "flagged" or "test"
    status : "waiting", "delivered" or "failed"
    next_at : time from which a waiting delivery may be sent
    answer : HTTP status code of the last answer; None without an answer
    """

    id: str
    webhook: str
    event_id: int | None
    kind: str
    status: str
    attempts: int
    next_at: float
    answer: int | None
    created_at: float
    ended_at: float | None


class Deliveries:
    """Table of deliveries to webhooks, shared by all processes."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine, self._reading = engine, reading(engine)

    def collect(self, webhook: str, kinds: Collection[str]) -> None:
        """Create the deliveries of events since the last call."""
        with self._reading.begin() as connection:
            mark = connection.execute(_read_to(webhook)).scalar_one_or_none()
            if mark is not None and mark >= _last_event(connection):
                return
        with self.engine.begin() as connection:
            _open(connection, webhook)
            mark = connection.execute(locked(_read_to(webhook))).scalar_one()
            query = sa.select(events.c.id, KIND).where(events.c.id > mark).order_by(events.c.id).limit(AT_ONCE)
            rows = connection.execute(query).all()
            for event_id, kind in rows:
                if kind in kinds:
                    _put(connection, webhook, kind, event_id)
            if rows:
                mine = webhooks.c.name == webhook
                connection.execute(webhooks.update().where(mine).values(read_to=rows[-1].id))
            old = deliveries.c.ended_at < moment(connection) - KEPT_SECONDS
            connection.execute(deliveries.delete().where(deliveries.c.webhook == webhook, old))

    def add_test(self, webhook: str) -> str:
        """Add a test message, and return its id."""
        with self.engine.begin() as connection:
            _open(connection, webhook)
            return _put(connection, webhook, "test", None)

    def claim(self, webhook: str, *, only: str | None = None) -> Delivery | None:
        """Claim the first delivery that is due, for sending now; return None if none is due.

        With `only`, claim only the delivery with this id.
        """
        table = deliveries.c
        where = [table.webhook == webhook, table.status == "waiting", _is_due()]
        if only is not None:
            where.append(table.id == only)
        query = sa.select(deliveries).where(*where).order_by(table.created_at, table.event_id, table.id).limit(1)
        with self._reading.begin() as connection:
            if connection.execute(query).first() is None:
                return None
        with self.engine.begin() as connection:
            row = connection.execute(locked(query, skip=True)).one_or_none()
            if row is None:
                return None
            values = {"attempts": row.attempts + 1, "next_at": moment(connection) + LEASE_SECONDS}
            connection.execute(deliveries.update().where(table.id == row.id).values(**values))
            return Delivery(**{**row._mapping, **values})

    def note(self, delivery: Delivery, answer: int | None) -> None:
        """Record the answer to a claimed delivery, unless the delivery was claimed or requested again in the
        meantime.
        """
        table = deliveries.c
        mine = sa.and_(
            table.id == delivery.id, table.status == "waiting", table.attempts == delivery.attempts,
            table.next_at == delivery.next_at,
        )  # fmt: skip
        with self.engine.begin() as connection:
            at = moment(connection)
            values: dict[str, object] = {"answer": answer}
            if answer is not None and 200 <= answer < 300:
                values |= {"status": "delivered", "ended_at": at}
            elif answer == GONE or delivery.attempts > len(PAUSES):
                values |= {"status": "failed", "ended_at": at}
            else:
                values["next_at"] = at + PAUSES[delivery.attempts - 1]
            connection.execute(deliveries.update().where(mine).values(**values))

    def retry(self, delivery_id: str) -> None:
        """Make a delivery due now, whatever its status.

        Raises
        ------
        LookupError
            If no delivery has this id.
        """
        values = {"status": "waiting", "attempts": 0, "next_at": now(), "ended_at": None}
        with self.engine.begin() as connection:
            update = deliveries.update().where(deliveries.c.id == delivery_id).values(**values)
            if connection.execute(update).rowcount != 1:
                raise LookupError(f"no delivery {delivery_id!r}")

    def newest(self, n: int) -> list[Delivery]:
        """Return the last `n` deliveries, newest first."""
        query = (
            sa.select(deliveries)
            .order_by(deliveries.c.created_at.desc(), deliveries.c.event_id.desc(), deliveries.c.id)
            .limit(n)
        )
        with self._reading.begin() as connection:
            return [Delivery(**row._mapping) for row in connection.execute(query)]


def _open(connection: sa.Connection, webhook: str) -> None:
    insert_if_absent(connection, webhooks, {"name": webhook, "read_to": _last_event(connection)})


def _read_to(webhook: str) -> sa.Select[Any]:
    return sa.select(webhooks.c.read_to).where(webhooks.c.name == webhook)


def _last_event(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(chains.c.length).where(chains.c.name == "events")).scalar_one())


def _put(connection: sa.Connection, webhook: str, kind: str, event_id: int | None) -> str:
    delivery_id, at = secrets.token_hex(16), moment(connection)
    values: dict[str, Any] = {"id": delivery_id, "webhook": webhook, "event_id": event_id, "kind": kind}
    values |= {"status": "waiting", "attempts": 0, "next_at": at, "created_at": at}
    connection.execute(deliveries.insert().values(**values))
    return delivery_id


def _is_due() -> sa.ColumnElement[bool]:
    """Return the condition that a delivery is due.

    If a delivery's time is further away than the longest pause, the clock was set back, and the delivery is due as
    well.
    """
    return sa.or_(deliveries.c.next_at <= now(), deliveries.c.next_at > now() + PAUSES[-1])
