"""Token buckets for rate limits: per process in memory, or shared by all servers in the database.

Conventions
-----------
A bucket contains at most `burst` units and gains `per_second` units per second; a new bucket is full. A cost is taken
from all buckets of a request or from none. In the database, this is one short transaction, by the database's clock,
that locks the buckets in the order of their names. If a bucket was written at a time later than now, the clock was set
back. Such a bucket keeps its content and fills from now on, so that nobody waits for the old time and nobody gains
units. Buckets that have had the time to fill are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from reveal_leaderboard.store.database import insert_if_absent, locked, moment
from reveal_leaderboard.store.tables import buckets


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate of a bucket: at most `burst` units, filled by `per_second` units per second."""

    burst: float
    per_second: float

    def filled(self, units: float, seconds: float) -> float:
        """Return the content of a bucket that contained `units` this many seconds ago."""
        return min(self.burst, units + max(0.0, seconds) * self.per_second)

    def wait(self, units: float, cost: float) -> float:
        """Return the seconds until a bucket with `units` contains `cost`; 0 if it already does."""
        return max(0.0, (cost - units) / self.per_second)


class SharedBuckets:
    """Token buckets in a database, shared by all servers."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def take(self, rates: Mapping[str, Rate], cost: float) -> float:
        """Take `cost` from every named bucket and return 0; if any contains less, take nothing and return the seconds
        to wait.
        """
        with self._engine.begin() as connection:
            at = moment(connection)
            for name in sorted(rates):
                insert_if_absent(connection, buckets, {"name": name, "units": rates[name].burst, "at": at})
            query = sa.select(buckets).where(buckets.c.name.in_(rates)).order_by(buckets.c.name)
            rows = connection.execute(locked(query)).all()
            held = {row.name: rates[row.name].filled(row.units, at - row.at) for row in rows}
            # A bucket that was removed in the meantime was full.
            wait = max((rates[name].wait(units, cost) for name, units in held.items()), default=0.0)
            for row in rows:
                if not wait or row.at > at:
                    units = held[row.name] - (0.0 if wait else cost)
                    mine = buckets.c.name == row.name
                    connection.execute(buckets.update().where(mine).values(units=units, at=at))
        return wait

    def sweep(self, seconds: float) -> None:
        """Remove buckets that were not used for this many seconds, except locked ones."""
        with self._engine.begin() as connection:
            old = sa.select(buckets.c.name).where(buckets.c.at < moment(connection) - seconds)
            connection.execute(buckets.delete().where(buckets.c.name.in_(locked(old, skip=True))))
