"""The operator's commands, on a filled board of each kind of database."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.cli import app
from reveal_leaderboard.store.boards import register_version
from reveal_leaderboard.store.scores import raise_flag
from typer.testing import CliRunner

from tests.conftest import in_child
from tests.leaderboard.databases import on_both
from tests.leaderboard.filled_board import BENCHMARK, FilledBoard, filled
from tests.leaderboard.test_two_users import SERVING, place

__all__ = ["filled", "place"]


class Operator:
    """A user at the command line of the machine."""

    def __init__(self, board: FilledBoard, data: Path) -> None:
        self.board = board
        url = board.store.engine.url.render_as_string(hide_password=False)
        self.where = ["--data", str(data), "--database", url]
        self.blobs = ["--blobs", str(board.blobs.folder)]

    def run(self, *words: str, code: int = 0, blobs: bool = False) -> str:
        done = CliRunner().invoke(app, [*words, *self.where, *(self.blobs if blobs else [])])
        assert done.exit_code == code, done.output
        return done.output


def in_one_line(output: str) -> str:
    """Return a command's boxed message, without the box."""
    return " ".join(output.replace("│", " ").split())


@pytest.fixture
def operator(filled: FilledBoard, tmp_path: Path) -> Operator:
    return Operator(filled, tmp_path / "data")


@on_both
def test_boards_are_listed_paused_and_opened(operator: Operator) -> None:
    assert re.search(rf"{BENCHMARK} +1\.0\.0 +open", operator.run("admin", "boards"))
    assert "is paused" in operator.run("admin", "set-board", BENCHMARK, "paused", "--why", "a look")
    assert re.search(r"paused +a look", operator.run("admin", "boards"))
    assert "must be one of open, paused, closed" in operator.run(
        "admin", "set-board", BENCHMARK, "ajar", "--why", "x", code=1
    )
    assert "no board of nih" in operator.run("admin", "set-board", "nih", "open", "--why", "x", code=1)


def test_teams_and_people(operator: Operator) -> None:
    accounts = operator.board.accounts
    other = accounts.sign_in("https://id.example.org", "2", "Other Person")
    operator.run("admin", "add-team", "Second Laboratory", other.id)
    operator.run("admin", "add-member", "second laboratory", operator.board.user.id, "--role", "reader")
    listed = operator.run("admin", "people")
    assert "Second Laboratory" in listed
    assert "Other Person (owner)" in listed
    assert "Example Person (reader)" in listed
    operator.run("admin", "remove-member", "Second Laboratory", operator.board.user.id)
    assert "Example Person (reader)" not in operator.run("admin", "people")
    operator.run("admin", "set-admin", other.id)
    assert accounts.user(other.id).is_admin  # type: ignore[union-attr]
    operator.run("admin", "set-admin", other.id, "--no")
    operator.run("admin", "set-person", other.id, "--closed", "--why", "left")
    assert accounts.user(other.id).disabled_at is not None  # type: ignore[union-attr]
    operator.run("admin", "set-person", other.id, "--open", "--why", "back")
    assert accounts.user(other.id).disabled_at is None  # type: ignore[union-attr]
    assert "no person nobody" in operator.run("admin", "set-admin", "nobody", code=1)
    assert "no team 'Nobody'" in operator.run("admin", "add-member", "Nobody", other.id, code=1)


def test_a_team_that_waits_is_listed_first_and_approved(operator: Operator) -> None:
    accounts = operator.board.accounts
    other = accounts.sign_in("https://id.example.org", "2", "Other Person")
    made = accounts.create_team("Zebra Laboratory", owner=other, who=f"user:{other.id}", is_asked=True)
    teams = operator.run("admin", "people").split("team ")[-1].splitlines()
    assert re.search(r"Zebra Laboratory +Other Person \(owner\) +\d{4}-\d\d-\d\d \d\d:\d\d +-", teams[1])
    operator.run("admin", "set-team", "zebra laboratory", "--closed", "--why", "who are you?")
    assert [why for _, why in accounts.closed_teams_of(other)] == ["who are you?"]
    assert "open it again before" in operator.run("admin", "approve-team", "Zebra Laboratory", code=1)
    operator.run("admin", "set-team", "Zebra Laboratory", "--open", "--why", "they said")
    assert "may submit now" in operator.run("admin", "approve-team", "zebra laboratory")
    assert "has already been approved" in operator.run("admin", "approve-team", "Zebra Laboratory")
    assert accounts.team(made.id).waiting_since is None  # type: ignore[union-attr]
    assert "no team 'Nobody'" in operator.run("admin", "approve-team", "Nobody", code=1)


@pytest.mark.parametrize("named", ["id", "secret"])
def test_one_leaked_token_is_revoked(operator: Operator, named: str) -> None:
    accounts, user = operator.board.accounts, operator.board.user
    token, secret = accounts.issue_token(user, operator.board.team, name="cluster")
    _, other = accounts.issue_token(user, operator.board.team, name="laptop", scopes=["read"])
    listed = operator.run("admin", "tokens")
    assert re.search(rf"{token.id} +cluster +Example Person +Example Laboratory +read submit +\d{{4}}-", listed)
    assert secret not in listed
    output = operator.run("admin", "revoke-token", token.id if named == "id" else secret, "--why", "in a notebook")
    assert output == f"token {token.id} is revoked\n"
    assert accounts.token_actor(secret) is None
    assert accounts.token_actor(other) is not None
    assert "cluster" not in operator.run("admin", "tokens")
    assert accounts.why_revoked(user) == {token.id: "in a notebook"}
    refused = operator.run("admin", "revoke-token", secret, "--why", "again", code=1)
    assert "no valid token has this id" in refused
    assert secret not in refused


def test_entries_are_hidden_and_restored(operator: Operator) -> None:
    store = operator.board.store
    (entry, _), *_ = store.board_rows(BENCHMARK, "1.0.0")
    operator.run("admin", "hide", entry.id, "--why", "a claim")
    assert entry.id not in [row.id for row, _ in store.board_rows(BENCHMARK, "1.0.0")]
    operator.run("admin", "restore", entry.id, "--why", "settled")
    assert entry.id in [row.id for row, _ in store.board_rows(BENCHMARK, "1.0.0")]
    history = [(event.who.split(":")[0], event.why) for event in store.events_of(entry.id)[-2:]]
    assert history == [("cli", "a claim"), ("cli", "settled")]
    assert operator.run("admin", "hide", "0" * 24, "--why", "x", code=1).startswith("error: ")


def test_a_flag_is_settled_once(operator: Operator) -> None:
    store = operator.board.store
    with store.write() as connection:
        flag = raise_flag(connection, store.list_submissions()[0].id, "probing", None, "rather alike")
    assert "rather alike" in operator.run("admin", "flags")
    assert "rather alike" not in operator.run("admin", "flags", "--clear", flag)
    assert "no open flag" in operator.run("admin", "flags", "--clear", flag, code=1)


def test_a_grant_raises_the_budget(operator: Operator) -> None:
    from reveal_leaderboard.store import quota

    def left() -> int:
        with operator.board.store.read() as connection:
            return quota.balance(
                connection, operator.board.team.id, BENCHMARK, "1.0.0", operator.board.store.settings
            ).left

    before = left()
    assert "may have 2 more" in operator.run("admin", "grant", "Example Laboratory", BENCHMARK, "2", "--why", "outage")
    assert left() == before + 2


@on_both
def test_the_exposure_meter_and_the_workers_are_read(operator: Operator) -> None:
    assert re.search(
        rf"{BENCHMARK} 1\.0\.0: (low|watch|close)\. [A-Z0-9]", operator.run("admin", "exposure", BENCHMARK)
    )
    assert operator.run("admin", "workers") == ""
    operator.board.queue.beat_worker("w-1", [(BENCHMARK, "1.0.0")], "rlimits")
    assert re.search(r"w-1: chexlocalize 1\.0\.0; since .*; rlimits", operator.run("admin", "workers"))


def test_a_refresh_of_a_version_that_is_not_there(operator: Operator) -> None:
    for switch in ([], ["--switch"]):
        output = operator.run("admin", "refresh", BENCHMARK, "--to", "9.9.9", *switch, code=1)
        assert output.startswith("error: ")
        assert "9.9.9" in output


def test_a_switch_with_nothing_ranked_says_so(operator: Operator) -> None:
    with operator.board.store.write() as connection:
        register_version(connection, "empty", "1.0.0", "holdout", {})
        register_version(connection, "empty", "1.1.0", "holdout", {})
    output = operator.run("admin", "refresh", "empty", "--to", "1.1.0", "--switch")
    assert output == "the board of empty now shows 1.1.0; no submission was or is ranked\n"


def test_an_audit_finds_what_was_changed(operator: Operator) -> None:
    assert operator.run("audit", blobs=True).endswith("intact\n")
    report = json.loads(operator.run("audit", "--json", blobs=True))
    assert report["ok"]
    from reveal_leaderboard.store.tables import scores

    with operator.board.store.write() as connection:
        connection.execute(scores.update().values(signature="another"))
    assert "problems" in operator.run("audit", blobs=True, code=1)


def test_an_audit_goes_on_from_a_report_that_was_kept(operator: Operator, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(operator.run("audit", "--json", blobs=True))
    assert operator.run("audit", "--kept", str(kept), blobs=True).endswith("intact\n")
    report = json.loads(kept.read_text())
    report["heads"]["receipts"]["length"] += 1
    kept.write_text(json.dumps(report))
    assert "entries are lost" in operator.run("audit", "--kept", str(kept), blobs=True, code=1)
    kept.write_text("[]")
    assert "must be a report of `audit --json`" in in_one_line(operator.run("audit", "--kept", str(kept), code=2))


def test_an_audit_compares_with_the_last_backup(operator: Operator, tmp_path: Path) -> None:
    """A damaged log loses the newest entries without a trace, as if the database were an older one."""
    database = str(operator.board.store.engine.url.database)
    with sqlite3.connect(database) as before, sqlite3.connect(tmp_path / "before.sqlite") as copy:
        before.backup(copy)
    assert "and no backup was made with this --data" in operator.run("audit", blobs=True)
    operator.board.score_next(0.93)
    (tmp_path / "data").mkdir(exist_ok=True)
    operator.run("backup", str(tmp_path / "monday"), blobs=True)
    for options in ([], ["--kept", str(tmp_path / "monday")]):
        output = operator.run("audit", *options, blobs=True)
        assert "not checked: whether entries after" in output
        assert str(tmp_path / "monday") in output
        assert output.endswith("intact\n")
    operator.board.store.engine.dispose()
    with sqlite3.connect(tmp_path / "before.sqlite") as copy, sqlite3.connect(database) as after:
        copy.backup(after)
    assert "entries are lost" in operator.run("audit", blobs=True, code=1)
    assert "entries are lost" in operator.run("backup", str(tmp_path / "tuesday"), blobs=True, code=1)
    assert "entries are lost" in operator.run("audit", blobs=True, code=1)  # still compared with Monday


@pytest.mark.parametrize("words", [["serve", "--benchmark", "."], ["migrate"], ["readers"]], ids=lambda words: words[0])
def test_a_folder_that_cannot_be_written_is_said(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = logging.getLogger().handlers[:]
    done = CliRunner().invoke(app, [*words, "--data", str(tmp_path / "file" / "data")])
    logging.getLogger().handlers[:] = before  # the command's log went to a stream that is closed now
    assert done.exit_code == 2
    assert "must be a folder that this user may write to: Not a directory" in in_one_line(done.output)


def test_a_database_that_refuses_is_told_in_a_line(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sa.exc.OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr("reveal_leaderboard.store.boards.set_state", refuse)
    output = operator.run("admin", "set-board", "chexlocalize", "paused", "--why", "full", code=1)
    assert output == "error: the database refused the change (database or disk is full); nothing was changed\n"


def test_an_audit_of_a_database_that_does_not_answer(tmp_path: Path) -> None:
    nowhere = "postgresql+psycopg://board@127.0.0.1:9/board"
    done = CliRunner().invoke(app, ["audit", "--data", str(tmp_path), "--database", nowhere])
    assert done.exit_code == 2
    assert "the database cannot be read: connection failed" in in_one_line(done.output)


EVERY_COMMAND = (["migrate"], ["admin", "workers"], ["audit"])


def test_a_damaged_database_is_said_by_every_command(tmp_path: Path) -> None:
    file = tmp_path / "leaderboard.sqlite"
    file.write_bytes(b"\xff" * 8192)
    for words in (*EVERY_COMMAND, ["backup", str(tmp_path / "copy")]):
        done = CliRunner().invoke(app, [*words, "--data", str(tmp_path)])
        assert done.exit_code == 2
        assert "file is not a database" in in_one_line(done.output)
    assert file.read_bytes() == b"\xff" * 8192


def test_a_folder_that_may_only_be_read_is_said_and_can_be_audited(filled: FilledBoard, place: Path) -> None:
    """The command runs as another user than root, whom no file mode stops."""
    filled.store.engine.dispose()  # and with it the write-ahead log, which could not be read without being written
    data, messages = place / "data", place / "said"
    shutil.copytree(filled.blobs.folder.parent, data)
    shutil.copy(str(filled.store.engine.url.database), data / "leaderboard.sqlite")
    before = (data / "leaderboard.sqlite").read_bytes()
    messages.touch()
    for path in (data, *data.rglob("*"), messages):
        os.chown(path, SERVING, SERVING)
        path.chmod(0o700 if path == messages else path.stat().st_mode & 0o555)

    def ask() -> None:
        os.setgroups([])
        os.setgid(SERVING)
        os.setuid(SERVING)
        done = [CliRunner().invoke(app, [*words, "--data", str(data)]) for words in EVERY_COMMAND]
        messages.write_text(json.dumps([[one.exit_code, in_one_line(one.output)] for one in done]))

    assert in_child(ask) == 0
    migrating, asking, auditing = json.loads(messages.read_text())
    for code, text in (migrating, asking):
        assert code == 2
        assert "the database cannot be opened (attempt to write a readonly database); nothing was changed" in text
    assert auditing[0] == 0, auditing[1]
    assert (data / "leaderboard.sqlite").read_bytes() == before


def test_where_no_board_is_none_is_made(tmp_path: Path) -> None:
    for words in (["audit"], ["admin", "boards"], ["admin", "orphans"]):
        done = CliRunner().invoke(app, [*words, "--data", str(tmp_path / "typo")])
        assert done.exit_code == 2
        assert "no board at" in in_one_line(done.output)
    assert not (tmp_path / "typo").exists()


def test_a_key_is_rotated_in_the_vault_and_nowhere_else(operator: Operator, tmp_path: Path) -> None:
    signer = operator.board.signer
    before = signer.key_id
    vault = Path(operator.board.blobs.folder).parent / "vault"
    done = CliRunner().invoke(app, ["admin", "rotate-receipt-key", "--vault", str(vault)])
    assert done.exit_code == 0, done.output
    assert done.output.split() == [signer.key_id, signer.public_key_text]
    assert signer.key_id != before
    done = CliRunner().invoke(app, ["admin", "rotate-receipt-key", "--vault", str(tmp_path)])
    assert done.exit_code == 2
    assert list(tmp_path.glob("*.json")) == []


def test_orphans_are_young_uploads_never(operator: Operator) -> None:
    assert operator.run("admin", "orphans", blobs=True) == ""


def test_a_serving_machine_must_not_be_reached_by_others_in_local_mode(tmp_path: Path) -> None:
    words = ["serve", "--data", str(tmp_path), "--benchmark", str(tmp_path), "--host", "0.0.0.0"]
    before = logging.getLogger().handlers[:]
    done = CliRunner().invoke(app, words)
    logging.getLogger().handlers[:] = before  # the command's log went to a stream that is closed now
    assert done.exit_code == 2
    assert "anyone who reaches the server is its administrator" in in_one_line(done.output)
