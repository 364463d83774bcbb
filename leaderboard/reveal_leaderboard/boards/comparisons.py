"""Comparisons of two entries, which a worker makes when somebody asks for one.

Conventions
-----------
A pair is stored once, under its ids in order, and turned round for whoever asks the other way about. One that failed is
not asked for again by those who look; one that was refused, for an entry had left the board, is, once they look again.

Entries of one group, teams that may be one person's, are not paired, see :mod:`reveal_leaderboard.release.ranking`.
Groups are those of the exposure meter, at the time when the comparison is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.release.exposure import groups_of_scored
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import jobs, results

__all__ = ["ComparisonFailedError", "flipped", "groups", "may_pair", "read_comparison"]


class ComparisonFailedError(RuntimeError):
    """The job of a comparison ended without a result."""


def read_comparison(store: Store, benchmark: str, version: str, a: str, b: str) -> dict[str, Any] | None:
    """The comparison of `a` with `b`; None as long as a worker has not made it: it is asked for then.

    Raises
    ------
    ComparisonFailedError
        If a worker could not make it.
    """
    first, second = sorted((a, b))
    key = {"kind": "compare", "benchmark": benchmark, "version": version, "subject": f"{first}:{second}"}
    with store.read() as connection:
        done = sa.select(results.c.document).where(*(results.c[name] == value for name, value in key.items()))
        document = connection.execute(done).scalar_one_or_none()
        job = sa.select(jobs.c.status).where(*(jobs.c[name] == value for name, value in key.items()))
        status = connection.execute(job).scalar_one_or_none()
    if document is not None:
        return document if a == first else flipped(document)
    if status == "failed":
        raise ComparisonFailedError(status)
    if status in (None, "refused", "cancelled"):
        with store.write() as connection:
            Queue.put(connection, **key)
    return None


def groups(store: Store, benchmark: str, version: str) -> dict[str, str]:
    """Id of each scored submission -> the group that its team belongs to: one team, or several that may be one.

    Teams are of one group if they share a person, or if their predictions are near-identical.
    """
    with store.read() as connection:
        return groups_of_scored(connection, benchmark, version, store.settings)


def may_pair(store: Store, benchmark: str, version: str, a: str, b: str) -> bool:
    """Whether two scored submissions are of different groups, so that a paired comparison is nobody's extra answer."""
    found = groups(store, benchmark, version)
    return a in found and b in found and found[a] != found[b]


def flipped(document: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison seen from the other side: the entries exchanged, every difference with its sign turned."""

    def turned(value: float | None) -> float | None:
        return None if value is None else 0.0 - value

    rows = [
        {**row, "a": row["b"], "b": row["a"], "value": turned(row["value"])}
        | {"low": turned(row["high"]), "high": turned(row["low"])}
        for row in document["rows"]
    ]
    return {**document, "a": document["b"], "b": document["a"], "rows": rows}
