"""An audit of a good board finds no problem; an audit of a changed board finds the changes."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.boards.refresh import start_refresh, switch_version
from reveal_leaderboard.release import receipts as signing
from reveal_leaderboard.release.fingerprints import Fingerprint
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.store.audit import AuditReport, NoBoardError, audit, check_schema, opened_to_read, read_heads
from reveal_leaderboard.store.boards import register_version
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import chains, events, ledger, receipts, scores, submissions, tables, teams, users

from tests.leaderboard.databases import on_both
from tests.leaderboard.filled_board import BENCHMARK, FilledBoard, filled, released

__all__ = ["filled"]


def report(board: FilledBoard) -> AuditReport:
    with board.store.read() as connection:
        return audit(connection, blobs=board.blobs)


@on_both
def test_a_good_board_passes(filled: FilledBoard) -> None:
    result = report(filled)
    assert result.problems == ()
    assert result.counts["receipts"] == 4
    assert result.counts["submissions"] == 6
    assert result.counts["uploads"] == 6
    assert result.heads["receipts"][0] == 4
    assert result.keys == (filled.signer.key_id,)
    assert json.loads(json.dumps(result.to_json()))["ok"] is True


def test_uploads_are_looked_at_only_if_asked(filled: FilledBoard) -> None:
    for submission in filled.store.list_submissions():
        filled.blobs.remove(submission.sha256)
    with filled.store.read() as connection:
        assert audit(connection).ok
    assert len(report(filled).problems) == 6


def change_receipt(connection: sa.Connection) -> None:
    text = connection.execute(sa.select(receipts.c.document).where(receipts.c.id == 2)).scalar_one()
    changed = text.replace("Example Laboratory", "Another Laboratory")
    connection.execute(receipts.update().where(receipts.c.id == 2).values(document=changed))


def resign_receipt(connection: sa.Connection) -> None:
    connection.execute(receipts.update().where(receipts.c.id == 2).values(signature="AAAA" * 21 + "AA=="))


def swap_scores(connection: sa.Connection) -> None:
    raised = connection.execute(sa.select(scores.c.released).limit(1)).scalar_one()
    raised = {**raised, "figures": [{**figure, "value": 0.99} for figure in raised["figures"]]}
    connection.execute(scores.update().values(released=raised))


def give_to_another_team(connection: sa.Connection) -> None:
    other = {"id": "other", "name": "Another Laboratory", "name_key": "another laboratory", "created_at": 0.0}
    connection.execute(teams.insert().values(**other))
    connection.execute(submissions.update().where(submissions.c.status == "scored").values(team_id="other"))


CHANGES: dict[str, tuple[Callable[[sa.Connection], object], str, str]] = {
    "event-edited": (
        lambda c: c.execute(events.update().where(events.c.id == 3).values(why="nothing happened")),
        "events",
        "event 3 was changed",
    ),
    "event-cut": (
        lambda c: c.execute(
            events.delete().where(events.c.id == sa.select(sa.func.max(events.c.id)).scalar_subquery())
        ),
        "events",
        "the chain must end with",
    ),
    "receipt-edited": (change_receipt, "receipts", "receipt 2: the text of receipt 2 was changed"),
    "receipt-resigned": (resign_receipt, "receipts", "receipt 2: the signature of receipt 2 was not made with the key"),
    "receipt-removed": (
        lambda c: c.execute(receipts.delete().where(receipts.c.id == 2)),
        "receipts",
        "receipt 2 is missing: the next receipt is 3",
    ),
    "receipts-cut": (
        lambda c: c.execute(receipts.delete().where(receipts.c.id == 4)),
        "receipts",
        "the chain must end with receipt 4",
    ),
    "receipts-without-end": (
        lambda c: c.execute(chains.delete().where(chains.c.name == "receipts")),
        "receipts",
        "has no recorded end",
    ),
    "score-raised": (swap_scores, "scores", "`released` differs from its receipt"),
    "score-removed": (lambda c: c.execute(scores.delete()), "scores", "there is a receipt, but no score"),
    "status": (
        lambda c: c.execute(submissions.update().where(submissions.c.status == "queued").values(status="scored")),
        "submissions",
        "is scored, but its events imply queued",
    ),
    "unhidden": (
        lambda c: c.execute(submissions.update().values(hidden_at=None)),
        "submissions",
        "is hidden by its events, its row says otherwise",
    ),
    "back-on-the-board": (
        lambda c: c.execute(submissions.update().values(withdrawn_at=None)),
        "submissions",
        "is withdrawn by its events, its row says otherwise",
    ),
    "refund-forged": (
        lambda c: c.execute(ledger.update().where(ledger.c.kind == "charged").values(kind="refunded", amount=-2)),
        "ledger",
        "is refunded with the amount -2, which is impossible",
    ),
    "never-charged": (
        lambda c: c.execute(ledger.delete().where(ledger.c.kind == "charged")),
        "ledger",
        "is scored, but the ledger says reserved",
    ),
    "given-to-another-team": (
        give_to_another_team,
        "scores",
        "`team` differs from its receipt",
    ),
    "renamed": (
        lambda c: c.execute(submissions.update().where(submissions.c.status == "scored").values(model_name="Mine")),
        "scores",
        "`model` differs from its receipt",
    ),
    "incomplete": (
        lambda c: c.execute(submissions.update().values(allow_missing=sa.not_(submissions.c.allow_missing))),
        "scores",
        "`allow_missing` differs from its receipt",
    ),
    "dated-back": (
        lambda c: c.execute(scores.update().values(scored_at=scores.c.scored_at - 86400)),
        "scores",
        "`time` differs from its receipt",
    ),
    "ledger-moved": (
        lambda c: c.execute(ledger.update().where(ledger.c.kind == "charged").values(version="0.9.0")),
        "ledger",
        "under another team, benchmark or version",
    ),
    "grant-invented": (
        lambda c: c.execute(
            sa.insert(ledger).from_select(
                ["team_id", "benchmark", "version", "sending", "kind", "amount", "why", "who", "at"],
                sa.select(
                    teams.c.id, *map(sa.literal, (BENCHMARK, "1.0.0", 0, "granted", -5, "", "user:x", 0.0))
                ).limit(1),
            )
        ),
        "ledger",
        "without an event",
    ),
    "no-number": (
        lambda c: c.exec_driver_sql("UPDATE scores SET scored_at = 'x'"),
        "scores",
        "cannot be read to the end",
    ),
    "hash-that-is-none": (
        lambda c: c.execute(submissions.update().values(sha256="../" + sa.func.substr(submissions.c.sha256, 4))),
        "uploads",
        "`sha256` must be 64 hexadecimal digits",
    ),
    "never-sent": (lambda c: c.execute(ledger.delete()), "ledger", "must number its reservations from 1, got"),
}


OF_ROWS = {
    "a member goes": ("DELETE FROM members WHERE role = 'reader'", "team"),
    "a grant is another's": ("UPDATE ledger SET who = 'user:x' WHERE kind = 'granted'", "team"),
    "a token is gone": ("DELETE FROM tokens", "token"),
    "what a frozen version showed": (
        "INSERT INTO results VALUES ('frozen', 'chexlocalize', '0.9.0', 'board', '{\"entries\": []}', 1.0)", "board"
    ),
}  # fmt: skip
"""Single changes of whole rows -> the subject whose record changes; columns are walked below."""


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_row_that_was_changed_is_found(filled: FilledBoard, name: str) -> None:
    statement, subject = OF_ROWS[name]
    with filled.store.write() as connection:
        connection.exec_driver_sql(statement)
    sentences = [problem.text for problem in report(filled).problems if problem.area == "records"]
    assert sentences
    assert all(text.startswith(f"{subject} ") for text in sentences)


def test_a_person_whom_no_event_knows_is_found(filled: FilledBoard) -> None:
    with filled.store.write() as connection:
        row = {"issuer": "i", "subject": "s", "name": "n", "is_admin": True, "created_at": 0.0}
        connection.execute(users.insert().values(id="f" * 24, **row))
    assert [problem.text for problem in report(filled).problems] == [f"no event names user {'f' * 24}"]


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_found(filled: FilledBoard, name: str) -> None:
    change, area, text = CHANGES[name]
    with filled.store.write() as connection:
        change(connection)
    result = report(filled)
    assert not result.ok
    assert any(problem.area == area and text in problem.text for problem in result.problems), result.problems


NOT_COVERED = {
    "fingerprints": {"version", "benchmark", "content", "sketch"},
    "jobs": set(tables.tables["jobs"].columns.keys()) - {"kind", "status"},  # in which the database knows few words
    "submissions": {"updated_at", "is_chosen"},
    "tokens": {"used_at"},
}
"""Columns of this board's rows that no chain covers, as `docs/operating.md` says."""


def changed(value: Any, kind: sa.types.TypeEngine[Any]) -> Any:
    if isinstance(kind, sa.Boolean):
        return not value
    if isinstance(kind, sa.Numeric | sa.Float | sa.Integer):
        return (value or 0) + 1000
    return '{"x": 1}' if isinstance(kind, sa.JSON) else f"{value or ''}x"


EMPTY = {
    "answers", "buckets", "deliveries", "held_out", "overlaps", "ratings", "results", "sessions", "shared_cases",
    "webhooks", "workers",
}  # fmt: skip
"""Tables of which this board has no row, so that this says nothing of them."""


RECORD = {
    "boards": "board", "flags": "flag", "invitations": "invitation", "ledger": "submission", "members": "team",
    "submissions": "submission", "teams": "team", "tokens": "token", "users": "user", "versions": "board",
}  # fmt: skip
"""Whose record the first row of a table is part of."""
CHAINED = {"chains", "events", "receipts", "scores"}
"""Columns that are part of a chain, or compared with one."""


def test_each_column_of_a_filled_table_is_covered_or_said_not_to_be(filled: FilledBoard) -> None:
    """The first row of each table, one column after the other; what the database refuses to change is left out."""
    empty = set()
    passed: dict[str, set[str]] = {}
    n_found = 0
    with filled.store.engine.connect() as connection:
        for column in (column for table in tables.sorted_tables for column in table.columns):
            table = column.table
            row = connection.exec_driver_sql(f"SELECT rowid AS number, * FROM {table.name}").mappings().first()
            if row is None:
                empty.add(table.name)
                continue
            change = f"UPDATE {table.name} SET {column.name} = ? WHERE rowid = ?"
            attempt = connection.begin_nested()
            with suppress(sa.exc.IntegrityError):
                connection.exec_driver_sql(change, (changed(row[column.name], column.type), row["number"]))
                result = audit(connection)
                if result.ok:
                    passed.setdefault(table.name, set()).add(column.name)
                n_found += not result.ok
                subjects = {problem.text.split()[0] for problem in result.problems if problem.area == "records"}
                assert table.name in CHAINED or result.ok or RECORD.get(table.name) in subjects, column
            attempt.rollback()
    assert empty == EMPTY
    assert passed == NOT_COVERED
    assert n_found > 90


def test_every_damaged_page_is_told_in_words(filled: FilledBoard, tmp_path: Path) -> None:
    """Whatever lay there, an index or rows: SQLite's own check finds it, and nothing ends the audit."""
    file = tmp_path / "copy.sqlite"
    with sqlite3.connect(str(filled.store.engine.url.database)) as whole:
        whole.execute("VACUUM INTO ?", [str(file)])
        (size,) = whole.execute("PRAGMA page_size").fetchone()
    content = file.read_bytes()
    sentences = []
    for page in range(0, len(content) // size, 4):
        file.write_bytes(content[: page * size] + b"\xff" * size + content[(page + 1) * size :])
        with opened_to_read(f"sqlite:///{file}") as connection:
            try:
                check_schema(connection)
                sentences.append("; ".join(problem.text for problem in audit(connection).problems))
            except NoBoardError as error:
                sentences.append(str(error))
    assert sentences[0] == "the database cannot be read: file is not a database"
    # New versions of SQLite name the page, and raise nothing where it is an index's
    assert all(
        re.search(r"database disk image is malformed|page \d+: btreeInitPage", text) for text in sentences[1:]
    ), sentences


@on_both
def test_a_chain_goes_on_from_the_heads_that_were_kept(filled: FilledBoard) -> None:
    kept = read_heads(json.dumps(report(filled).to_json()))
    filled.score_next(0.93)
    with filled.store.read() as connection:
        assert audit(connection, kept=kept).ok
        other = {"events": (kept["events"][0], "0" * 64), "receipts": (99, "0" * 64)}
        sentences = [problem.text for problem in audit(connection, kept=other).problems]
    assert sentences == [
        f"the hash of number {kept['events'][0]} differs from an earlier report: the chain was rewritten",
        "the chain ends before number 99, which an earlier report contains: entries are lost",
    ]
    with pytest.raises(ValueError, match="must be a report of `audit --json`"):
        read_heads('{"heads": []}')


def test_what_a_damaged_log_lost_is_found_by_what_was_kept(filled: FilledBoard, tmp_path: Path) -> None:
    """SQLite reads its write-ahead log up to the first damage, and takes what comes after it for never written."""
    file, log = tmp_path / "own.sqlite", tmp_path / "own.sqlite-wal"
    with sqlite3.connect(str(filled.store.engine.url.database)) as whole:
        whole.execute("VACUUM INTO ?", [str(file)])
    own = FilledBoard(Store(f"sqlite:///{file}"), filled.blobs, filled.signer)
    own.score_next(0.93)
    kept = report(own).heads
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (file, log):
        shutil.copy(name, copy)
    damaged = copy / log.name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    with opened_to_read(f"sqlite:///{copy / file.name}") as connection:
        result = audit(connection, kept=kept)
        assert audit(connection).ok  # by itself it looks whole
    own.store.engine.dispose()
    assert {problem.area for problem in result.problems} == {"events", "receipts"}
    assert all("which an earlier report contains: entries are lost" in problem.text for problem in result.problems)


def test_a_damaged_upload_is_found(filled: FilledBoard) -> None:
    sha256 = filled.store.list_submissions()[0].sha256
    filled.blobs.path(sha256).write_bytes(b"firsT")
    (problem,) = report(filled).problems
    assert (problem.area, f"{sha256} is damaged" in problem.text) == ("uploads", True)


def test_damaged_predictions_are_found_and_missing_ones_may_be_missing(filled: FilledBoard) -> None:
    missing, damaged = (one.canonical or "" for one in filled.store.list_submissions()[:2])
    filled.blobs.remove(missing)
    assert report(filled).problems == ()
    filled.blobs.path(damaged).write_bytes(b"another's")
    (problem,) = report(filled).problems
    assert (problem.area, f"predictions {damaged}: " in problem.text) == ("uploads", True)


def test_a_key_that_nobody_signed_for_is_found(filled: FilledBoard) -> None:
    """An attacker with the database but not the vault continues the chain with another key."""
    file = filled.signer._file
    file.unlink()
    filled.signer = signing.Signer(file.parent)
    filled.score_next(0.93)
    (problem,) = report(filled).problems
    assert problem.area == "receipts"
    assert "for which the key before it on chexlocalize 1.0.0 did not sign" in problem.text


def test_a_rotation_is_no_problem(filled: FilledBoard) -> None:
    filled.signer.rotate()
    filled.score_next(0.93)
    result = report(filled)
    assert result.ok
    assert len(result.keys) == 2


@on_both
def test_a_refresh_leaves_an_audit_clean(filled: FilledBoard) -> None:
    """A held submission has no receipt of its own on the new version: it shows the other one's figures."""
    with filled.store.write() as connection:
        register_version(connection, BENCHMARK, "1.1.0", "holdout", {})
        n = start_refresh(connection, BENCHMARK, "1.1.0", who="user:admin")
    assert n == 3
    for number in range(n):
        job = filled.queue.claim("test", served=[(BENCHMARK, "1.1.0")])
        assert job.kind in ("rescore", "rank")
        while job.kind == "rank":
            filled.queue.finish_result(job, document={"schema": 1})
            job = filled.queue.claim("test", served=[(BENCHMARK, "1.1.0")])
            assert job is not None
        mark = Fingerprint(f"{number:064x}", (number,) * 128)
        outcome = ScoredOutcome(released(0.5), None, "cd" * 32, mark)
        assert filled.queue.finish_score(job, who="worker:test", outcome=outcome, sign=filled.sign)
    filled.score_next(0.93)  # what waited was sent to the old version
    with filled.store.write() as connection:
        start_refresh(connection, BENCHMARK, "1.1.0", who="user:admin")
    job = filled.queue.claim("test", served=[(BENCHMARK, "1.1.0")])
    while job is not None and job.kind != "rescore":
        filled.queue.finish_result(job, document={"schema": 1})
        job = filled.queue.claim("test", served=[(BENCHMARK, "1.1.0")])
    assert job is not None
    outcome = ScoredOutcome(released(0.6), None, "cd" * 32, Fingerprint("f" * 64, (9,) * 128))
    assert filled.queue.finish_score(job, who="worker:test", outcome=outcome, sign=filled.sign)
    with filled.store.write() as connection:
        switch_version(connection, BENCHMARK, "1.1.0", who="user:admin")
    result = report(filled)
    assert result.problems == ()
    assert (result.counts["receipts"], result.counts["scores"]) == (9, 10)
