"""Rows of the first version in the tables of the second: the data half of migration 0002.

The first version's data are carried over: its teams, which were texts, become teams of one local user; leases become
jobs; scored submissions are charged, refused and failed ones are refunded; events get their chain. Two texts that
differ only in capitals would be one team by the new rule, but nobody can tell whether they were one team, so the later
one gets a number.

This module must not follow later changes of the package: a migration stays as it was when it was written.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

GENESIS = "0" * 64
JOB_OF = {"queued": "queued", "scoring": "leased", "scored": "done", "refused": "refused", "failed": "failed"}
LEASE = ("attempts", "fence", "lease_until", "worker")
Row = dict[str, Any]


def take_out(bind: sa.Connection) -> dict[str, list[Row]]:
    """Return all rows of the first version, by table, oldest first."""
    return {name: _rows(bind, name) for name in ("submissions", "events", "scores")}


def carry(bind: sa.Connection, old: dict[str, list[Row]]) -> None:
    """Insert the rows into the new, empty tables."""
    _insert(bind, "chains", [{"name": "receipts", "length": 0, "head": GENESIS}])
    submissions = old["submissions"]
    if submissions:
        user_id, team_ids = _carry_people(bind, submissions)
        _carry_boards(bind, submissions, max(row["updated_at"] for row in submissions))
        _carry_submissions(bind, submissions, user_id, team_ids)
        _carry_scores(bind, old["scores"], {row["id"]: row["version"] for row in submissions})
    _carry_events(bind, old["events"])


def _rows(bind: sa.Connection, name: str) -> list[Row]:
    table = sa.Table(name, sa.MetaData(), autoload_with=bind)
    key = next(iter(table.primary_key))
    order = table.c.created_at if name == "submissions" else key
    return [dict(row._mapping) for row in bind.execute(sa.select(table).order_by(order, key))]


def _insert(bind: sa.Connection, name: str, rows: list[Row]) -> None:
    if rows:
        bind.execute(sa.Table(name, sa.MetaData(), autoload_with=bind, resolve_fks=False).insert(), rows)


def _carry_people(bind: sa.Connection, submissions: list[Row]) -> tuple[str, dict[str, str]]:
    """Insert one local user, who owns a team for each name."""
    start = submissions[0]["created_at"]
    user = {"id": secrets.token_hex(16), "issuer": "local", "subject": "local", "name": "Local user"}
    _insert(bind, "users", [user | {"is_admin": True, "created_at": start, "disabled_at": None}])
    team_ids, keys, teams = {}, set(), []
    for text in dict.fromkeys(row["team"] for row in submissions):
        name, n = text, 1
        while name.casefold() in keys:
            n += 1
            name = f"{text[:90]} ({n})"
        keys.add(name.casefold())
        team_ids[text] = secrets.token_hex(16)
        teams.append({"id": team_ids[text], "name": name, "name_key": name.casefold(), "created_at": start})
    _insert(bind, "teams", [team | {"disabled_at": None} for team in teams])
    member = {"user_id": user["id"], "role": "owner", "since": start}
    _insert(bind, "members", [member | {"team_id": team["id"]} for team in teams])
    return user["id"], team_ids


def _carry_boards(bind: sa.Connection, submissions: list[Row], at: float) -> None:
    """Insert boards that show the version of their latest submission; earlier versions are frozen."""
    by_name = itemgetter("benchmark")
    for benchmark, group in groupby(sorted(submissions, key=by_name), key=by_name):  # stable: oldest first within
        rows = list(group)
        current = rows[-1]["version"]
        board = {"benchmark": benchmark, "version": current, "state": "open", "why": "", "changed_at": at}
        _insert(bind, "boards", [board])
        first = {row["version"]: row for row in reversed(rows)}
        start = {version: row["created_at"] for version, row in first.items()}
        _insert(
            bind,
            "versions",
            [
                {"benchmark": benchmark, "version": version, "split": row["split"], "facts": {}}
                | {"added_at": start[version], "shown_at": start[version]}
                | {"frozen_at": None if version == current else at}
                for version, row in first.items()
            ],
        )


def _carry_submissions(bind: sa.Connection, submissions: list[Row], user_id: str, team_ids: dict[str, str]) -> None:
    """Insert submissions, their jobs and ledger lines; the latest scored one of a model is shown."""
    latest = {}
    for row in submissions:
        if row["status"] == "scored":
            latest[row["team"], row["benchmark"], row["version"], row["model_name"]] = row["id"]
    rows, jobs, ledger = [], [], []
    for old in submissions:
        new = {name: value for name, value in old.items() if name not in ("team", *LEASE)}
        rows.append(
            new
            | {"team_id": team_ids[old["team"]], "user_id": user_id, "withdrawn_at": None, "hidden_at": None}
            | {"hidden_why": None, "is_chosen": old["id"] in latest.values()}
        )
        if old["status"] in JOB_OF:
            jobs.append(_job(old))
            ledger += _ledger(old, team_ids[old["team"]])
    _insert(bind, "submissions", rows)
    _insert(bind, "jobs", jobs)
    _insert(bind, "ledger", ledger)


def _job(old: Row) -> Row:
    is_over, is_begun = old["status"] not in ("queued", "scoring"), old["status"] != "queued"
    place = {"kind": "score", "benchmark": old["benchmark"], "version": old["version"], "subject": old["id"]}
    times = {"created_at": old["created_at"], "started_at": old["updated_at"] if is_begun else None}
    times["ended_at"] = old["updated_at"] if is_over else None
    state = {"id": secrets.token_hex(16), "status": JOB_OF[old["status"]], "why": "", "incident": old["incident"]}
    return place | times | state | {"is_stale": False} | {name: old[name] for name in LEASE}


def _ledger(old: Row, team_id: str) -> list[Row]:
    row = {"team_id": team_id, "benchmark": old["benchmark"], "version": old["version"], "submission_id": old["id"]}
    row |= {"sending": 1, "who": "migration"}
    why = "carried over from the first version"
    rows = [row | {"kind": "reserved", "amount": 1, "why": why, "at": old["created_at"]}]
    if old["status"] == "scored":
        rows.append(row | {"kind": "charged", "amount": 0, "why": why, "at": old["updated_at"]})
    if old["status"] in ("refused", "failed"):
        rows.append(row | {"kind": "refunded", "amount": -1, "why": why, "at": old["updated_at"]})
    return rows


def _carry_scores(bind: sa.Connection, scores: list[Row], version_of: dict[str, str]) -> None:
    _insert(
        bind,
        "scores",
        [
            row | {"version": version_of[row["submission_id"]], "part": "public", "shown_of": row["submission_id"]}
            for row in scores
        ],
    )


def _carry_events(bind: sa.Connection, events: list[Row]) -> None:
    """Number and chain the events in the order in which they were written."""
    rows, head = [], GENESIS
    for number, old in enumerate(events, start=1):
        facts = {name: old[name] for name in ("at", "who", "from_status", "to_status", "why")}
        facts |= {"id": number, "subject": f"submission:{old['submission_id']}", "previous": head}
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        head = hashlib.sha256(text.encode("ascii")).hexdigest()
        rows.append(facts | {"hash": head})
    _insert(bind, "events", rows)
    _insert(bind, "chains", [{"name": "events", "length": len(rows), "head": head}])
