"""Database of the held-out cases that versions and boards share.

Conventions
-----------
Scores on the same cases disclose the same labels, whichever board or version they are from. So the held-out cases of
every version are recorded, as digests of their ids and, if the public folder has the images, of the images
(:mod:`reveal_bench.dataset.overlaps`). A new version is compared with all other versions, including those whose folders
are no longer served, unless their digests were lost (:func:`versions_without_cases`).

The *share* of a version A in common with a version B is the fraction of A's patients, studies, image ids or images that
B also holds out, whichever fraction is largest. Versions whose answers are rated by readers are not recorded, because
ratings reveal no labels.

A submission to another version of the same benchmark counts by this share, because a refresh replaces only a part of
the cases. A submission to another benchmark counts fully on every board that shares held-out cases, because both boards
are open at the same time, and a team could answer only for the shared cases.

Every function runs in its caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reveal_bench.kinds import KINDS
from reveal_leaderboard.store.database import locked
from reveal_leaderboard.store.tables import boards, held_out, overlaps, shared_cases, versions

BATCH = 10_000
READ_KINDS = frozenset(name for name, kind in KINDS.items() if kind.scoring.scored_by == "readers")
"""Kinds of benchmarks whose answers are rated by readers, and whose cases are not recorded."""
LEAST_SHARE = 0.02
"""Smallest share that counts.

A few equal ids or blank images may be chance, and budgets are rounded up to whole submissions, so a single shared case
would close a board of any size to the teams of another board.
"""


@dataclass(frozen=True, slots=True)
class SharedCases:
    """Fraction of a version's held-out cases that another version also holds out."""

    benchmark: str
    version: str
    share: float

    def weight(self, benchmark: str) -> float:
        """Return how much a submission to this version counts on a version of `benchmark` that shares its cases."""
        return self.share if self.benchmark == benchmark else 1.0


def register_cases(
    connection: sa.Connection, benchmark: str, version: str, digests: Mapping[str, Iterable[str]]
) -> None:
    """Record the held-out cases of a version, and its shares in common with every other version.

    Digests replace earlier digests of their kind, for example after a change of the key. Kinds without new digests are
    kept, so that images can be recorded later. A known share never decreases, since the cases of a version never
    change.

    Parameters
    ----------
    digests : "patient", "study", "image" and "picture" -> hexadecimal digests
    """
    # servers that start at the same time register one after the other
    connection.execute(locked(sa.select(boards.c.benchmark).order_by(boards.c.benchmark)))
    own = _of(held_out, benchmark, version)
    keys = {(kind, digest) for kind, of_kind in digests.items() for digest in of_kind}
    replaced = own & held_out.c.kind.in_(sorted({kind for kind, _ in keys}))
    known = {tuple(row) for row in connection.execute(sa.select(held_out.c.kind, held_out.c.digest).where(replaced))}
    if keys == known:
        return
    place = {"benchmark": benchmark, "version": version}
    rows = [place | {"kind": kind, "digest": digest} for kind, digest in sorted(keys)]
    connection.execute(held_out.delete().where(replaced))
    for start in range(0, len(rows), BATCH):
        connection.execute(held_out.insert(), rows[start : start + BATCH])
    either = _of(shared_cases, benchmark, version) | _of_other(benchmark, version)
    names = ("benchmark", "version", "other", "other_version")
    columns = [shared_cases.c[name] for name in names]
    before = {
        tuple(row[:4]): row[4] for row in connection.execute(sa.select(*columns, shared_cases.c.share).where(either))
    }
    after = _shares(connection, benchmark, version)
    shares = {pair: max(before.get(pair, 0.0), after.get(pair, 0.0)) for pair in before | after}
    connection.execute(shared_cases.delete().where(either))
    common = [dict(zip(names, pair, strict=True)) | {"share": share} for pair, share in shares.items()]
    if common := [row for row in common if row["share"] >= LEAST_SHARE]:
        connection.execute(shared_cases.insert(), common)


def versions_without_cases(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return the versions without recorded held-out cases that a board shows or has shown.

    After migration 0011, this is the case until a server has the folders of these versions. Until then, later versions
    cannot be compared with them.
    """
    own = _of(held_out, versions.c.benchmark, versions.c.version)
    is_recorded = sa.exists().where(own & (held_out.c.kind != "patient"))  # a worker records patients
    query = sa.select(versions).where(versions.c.shown_at.is_not(None), ~is_recorded)
    rows = connection.execute(query.order_by(versions.c.benchmark, versions.c.added_at))
    return [(row.benchmark, row.version) for row in rows if row.facts.get("kind") not in READ_KINDS]


def record_overlaps(
    connection: sa.Connection, benchmark: str, version: str, sentences: Mapping[tuple[str, str], str]
) -> None:
    """Record which public folders reveal references of a version, replacing the earlier record.

    Parameters
    ----------
    sentences : (benchmark, version) of the public folder -> clause that describes the overlap
    """
    connection.execute(overlaps.delete().where(_of(overlaps, benchmark, version)))
    for (other, other_version), sentence in sentences.items():
        row = {"benchmark": benchmark, "version": version, "other": other, "other_version": other_version}
        connection.execute(overlaps.insert().values(**row, sentence=sentence))


def overlaps_of(connection: sa.Connection, benchmark: str, version: str) -> dict[tuple[str, str], str]:
    """Return the public folders that reveal references of a version, as recorded by :func:`record_overlaps`."""
    query = sa.select(overlaps).where(_of(overlaps, benchmark, version))
    return {(row.other, row.other_version): row.sentence for row in connection.execute(query)}


def patients_of(connection: sa.Connection, benchmark: str, version: str) -> set[str]:
    """Return the digests of a version's held-out patients; empty if no worker recorded them."""
    mine = _of(held_out, benchmark, version) & (held_out.c.kind == "patient")
    return set(connection.execute(sa.select(held_out.c.digest).where(mine)).scalars())


def shared_with(connection: sa.Connection, benchmark: str, version: str) -> list[SharedCases]:
    """Return the versions of all boards that share held-out cases with a version, sorted by name and version."""
    columns = shared_cases.c.other, shared_cases.c.other_version, shared_cases.c.share
    query = sa.select(*columns).where(_of(shared_cases, benchmark, version)).order_by(*columns[:2])
    return [SharedCases(*row) for row in connection.execute(query)]


def boards_sharing(connection: sa.Connection, benchmark: str, version: str) -> list[tuple[str, str]]:
    """Return (benchmark, version) of boards of other benchmarks on which submissions to a version count, sorted by
    name.
    """
    other = _of_other(benchmark, version) & (shared_cases.c.benchmark != benchmark)
    is_visible = (boards.c.benchmark == shared_cases.c.benchmark) & (boards.c.version == shared_cases.c.version)
    query = sa.select(boards.c.benchmark, boards.c.version).join(shared_cases, is_visible).where(other)
    return [(row.benchmark, row.version) for row in connection.execute(query.order_by(boards.c.benchmark))]


def lock_boards(connection: sa.Connection, benchmark: str, version: str) -> dict[str, sa.Row[Any]]:
    """Lock a benchmark's board, and the boards on which submissions to `version` count, in the order of their names.

    Returns
    -------
    dict
        Name -> row of the board; without `benchmark` if it has no board.
    """
    names = {benchmark, *(name for name, _ in boards_sharing(connection, benchmark, version))}
    query = sa.select(boards).where(boards.c.benchmark.in_(sorted(names))).order_by(boards.c.benchmark)
    return {row.benchmark: row for row in connection.execute(locked(query))}


def _shares(connection: sa.Connection, benchmark: str, version: str) -> dict[tuple[str, ...], float]:
    """Return the shares between this version and each other version in both directions, by (benchmark, version, other
    benchmark, other version).
    """
    mine, theirs = held_out.alias(), held_out.alias()
    both = sa.and_(mine.c.kind == theirs.c.kind, mine.c.digest == theirs.c.digest)
    is_mine = _of(mine, benchmark, version)
    key = theirs.c.benchmark, theirs.c.version, theirs.c.kind
    query = sa.select(*key, sa.func.count()).join_from(mine, theirs, both).where(is_mine)
    common = [tuple(row) for row in connection.execute(query.group_by(*key))]
    of = held_out.c.benchmark, held_out.c.version, held_out.c.kind
    sizes = {tuple(row[:3]): row[3] for row in connection.execute(sa.select(*of, sa.func.count()).group_by(*of))}
    shares: dict[tuple[str, ...], float] = {}
    for name, other, kind, n in common:
        if (name, other) != (benchmark, version):
            for here, there in (((benchmark, version), (name, other)), ((name, other), (benchmark, version))):
                pair = (*here, *there)
                shares[pair] = max(shares.get(pair, 0.0), n / sizes[*here, kind])
    return shares


Word = str | sa.Column[str]


def _of(table: sa.FromClause, benchmark: Word, version: Word) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.benchmark == benchmark, table.c.version == version)


def _of_other(benchmark: str, version: str) -> sa.ColumnElement[bool]:
    return sa.and_(shared_cases.c.other == benchmark, shared_cases.c.other_version == version)
