"""Comparisons of two entries, which a worker makes when somebody asks for one.

Conventions
-----------
A pair is stored once, under its ids in order, and turned round for whoever asks the other way about. One that could not
be made is not asked for again by those who look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.queue import Queue
from reveal_leaderboard.store import Store
from reveal_leaderboard.tables import jobs, results

__all__ = ["ComparisonFailedError", "flipped", "read_comparison"]


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
    if status in ("failed", "refused", "cancelled"):
        raise ComparisonFailedError(status)
    if status is None:
        with store.write() as connection:
            Queue.put(connection, **key)
    return None


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
