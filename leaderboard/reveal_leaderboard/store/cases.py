"""Held-out cases that versions and boards have in common.

Conventions
-----------
Answers on the same cases add up, whichever board or version gave them. So every version's held-out studies and images
are recorded here by digests of their public ids and, where the public folder has their pictures, of the pictures. A new
version is compared with all others, also with those whose folders are no longer served.

The *share* of a version in common with another one is the fraction of its studies, of its images or of its pictures
that the other one holds out, too, whichever is most. Only versions that a program scores are recorded: readers rate
answers anew, which reveals nothing of labels.

A submission to another version of the same benchmark counts by this share, because a refresh replaces a part of the
cases. A submission to another benchmark counts in full on every board that holds out some of its cases: both boards
are open at once, and a team could answer for the common cases alone.

Every function runs in its caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from reveal_leaderboard.store.database import locked
from reveal_leaderboard.store.tables import boards, held_out, shared_cases

BATCH = 10_000
LEAST_SHARE = 0.02
"""Smallest share that counts: a few equal ids may be chance, and budgets are rounded up to whole submissions."""


@dataclass(frozen=True, slots=True)
class SharedCases:
    """Fraction of a version's held-out cases that another version holds out, too."""

    benchmark: str
    version: str
    share: float

    def weight(self, benchmark: str) -> float:
        """Return how much a submission to this version counts on a version of `benchmark` that shares its cases."""
        return self.share if self.benchmark == benchmark else 1.0


def register_cases(
    connection: sa.Connection, benchmark: str, version: str, digests: Mapping[str, Iterable[str]]
) -> None:
    """Record the held-out cases of a version, and what it shares with every other version.

    Cases that are known already stay, so a folder with the pictures may follow one without them.

    Parameters
    ----------
    digests : "study", "image" and "picture" -> hexadecimal digests
    """
    # Servers that start at once register one by one
    connection.execute(locked(sa.select(boards.c.benchmark).order_by(boards.c.benchmark)))
    own = _of(held_out, benchmark, version)
    known = {tuple(row) for row in connection.execute(sa.select(held_out.c.kind, held_out.c.digest).where(own))}
    given = {(kind, digest) for kind, of_kind in digests.items() for digest in of_kind}
    place = {"benchmark": benchmark, "version": version}
    rows = [place | {"kind": kind, "digest": digest} for kind, digest in sorted(given - known)]
    if not rows:
        return
    for start in range(0, len(rows), BATCH):
        connection.execute(held_out.insert(), rows[start : start + BATCH])
    either = _of(shared_cases, benchmark, version) | _of_other(benchmark, version)
    connection.execute(shared_cases.delete().where(either))
    shares = _shares(connection, benchmark, version)
    if shares:
        connection.execute(shared_cases.insert(), shares)


def shared_with(connection: sa.Connection, benchmark: str, version: str) -> list[SharedCases]:
    """Return the versions, of any board, that hold out some of a version's cases, by name and version."""
    columns = shared_cases.c.other, shared_cases.c.other_version, shared_cases.c.share
    query = sa.select(*columns).where(_of(shared_cases, benchmark, version)).order_by(*columns[:2])
    return [SharedCases(*row) for row in connection.execute(query)]


def boards_sharing(connection: sa.Connection, benchmark: str, version: str) -> list[tuple[str, str]]:
    """Return (benchmark, version) of the other benchmarks' boards on which submissions to a version count, by name."""
    other = _of_other(benchmark, version) & (shared_cases.c.benchmark != benchmark)
    is_visible = (boards.c.benchmark == shared_cases.c.benchmark) & (boards.c.version == shared_cases.c.version)
    query = sa.select(boards.c.benchmark, boards.c.version).join(shared_cases, is_visible).where(other)
    return [(row.benchmark, row.version) for row in connection.execute(query.order_by(boards.c.benchmark))]


def _shares(connection: sa.Connection, benchmark: str, version: str) -> list[dict[str, object]]:
    """Return the new rows of `shared_cases`: this version with each other one, both ways."""
    mine, theirs = held_out.alias(), held_out.alias()
    both = sa.and_(mine.c.kind == theirs.c.kind, mine.c.digest == theirs.c.digest)
    is_mine = _of(mine, benchmark, version)
    key = theirs.c.benchmark, theirs.c.version, theirs.c.kind
    query = sa.select(*key, sa.func.count()).join_from(mine, theirs, both).where(is_mine)
    common = [tuple(row) for row in connection.execute(query.group_by(*key))]
    of = held_out.c.benchmark, held_out.c.version, held_out.c.kind
    sizes = {tuple(row[:3]): row[3] for row in connection.execute(sa.select(*of, sa.func.count()).group_by(*of))}
    shares: dict[tuple[str, str, str, str], float] = {}
    for name, other, kind, n in common:
        if (name, other) != (benchmark, version):
            for here, there in (((benchmark, version), (name, other)), ((name, other), (benchmark, version))):
                pair = (*here, *there)
                shares[pair] = max(shares.get(pair, 0.0), n / sizes[*here, kind])
    names = ("benchmark", "version", "other", "other_version")
    common_pairs = {pair: share for pair, share in shares.items() if share >= LEAST_SHARE}
    return [dict(zip(names, pair, strict=True)) | {"share": share} for pair, share in common_pairs.items()]


def _of(table: sa.FromClause, benchmark: str, version: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.benchmark == benchmark, table.c.version == version)


def _of_other(benchmark: str, version: str) -> sa.ColumnElement[bool]:
    return sa.and_(shared_cases.c.other == benchmark, shared_cases.c.other_version == version)
