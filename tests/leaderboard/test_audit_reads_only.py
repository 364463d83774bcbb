"""An audit of a database as it is: nothing is migrated, nothing can be written, and other versions are named."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.store import events
from reveal_leaderboard.store.audit import NoBoardError, audit, check_schema, opened_to_read
from reveal_leaderboard.store.database import connect
from reveal_leaderboard.store.tables import teams
from typer.testing import CliRunner

from tests.leaderboard.databases import each_database_kind, empty_database_url
from tests.leaderboard.filled_board import FilledBoard, filled

__all__ = ["each_database_kind", "empty_database_url", "filled"]

ON_SQLITE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
TEAM = {"id": "t1", "name": "Example Lab", "name_key": "example lab", "created_at": 0.0}
SET_REVISION = sa.text("UPDATE alembic_version SET version_num = :to")


def test_what_is_opened_to_read_cannot_be_written(filled: FilledBoard) -> None:
    before = filled.all_rows()
    with opened_to_read(filled.url) as connection:
        assert audit(connection, blobs=filled.blobs).problems == ()
    with pytest.raises(sa.exc.DBAPIError, match=r"(?i)read.?only"), opened_to_read(filled.url) as connection:
        connection.execute(teams.insert().values(**TEAM))
    assert filled.all_rows() == before


def test_it_sees_one_moment_and_stops_no_writer(filled: FilledBoard) -> None:
    n = sa.select(sa.func.count()).select_from(teams)
    with opened_to_read(filled.url) as connection:
        assert connection.execute(n).scalar_one() == 1
        with filled.store.write() as writer:
            writer.execute(teams.insert().values(**TEAM))
        assert connection.execute(n).scalar_one() == 1
    with opened_to_read(filled.url) as connection:
        assert connection.execute(n).scalar_one() == 2


@pytest.mark.parametrize("version", ["0010", "9999"])
def test_a_database_of_another_version_is_named_and_stays_as_it_is(database_url: str, version: str) -> None:
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.execute(SET_REVISION, {"to": version})
    message = rf"this program's version 0011, got {version}: run `reveal-leaderboard migrate`"
    with opened_to_read(database_url) as connection, pytest.raises(NoBoardError, match=message):
        check_schema(connection)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one() == version
    engine.dispose()


def test_a_database_of_this_version_is_audited(database_url: str) -> None:
    with opened_to_read(database_url) as connection:
        check_schema(connection)
        assert audit(connection).ok


@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_a_database_without_tables_is_no_board(empty_database_url: str) -> None:
    with opened_to_read(empty_database_url) as connection, pytest.raises(NoBoardError, match="its tables are missing"):
        check_schema(connection)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "with # and ?.sqlite"
    with pytest.raises(NoBoardError, match="no board at"), opened_to_read(f"sqlite:///{file}"):
        pass
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(file).close()
    file.touch()
    url = sa.URL.create("sqlite", database=str(file))
    with opened_to_read(url) as connection, pytest.raises(NoBoardError, match="its tables are missing"):
        check_schema(connection)


def test_the_command_says_what_to_do(filled: FilledBoard, tmp_path: Path) -> None:
    from reveal_leaderboard.cli import app

    where = ["--data", str(tmp_path / "data"), "--database", filled.url, "--blobs", str(filled.blobs.folder)]
    assert CliRunner().invoke(app, ["audit", *where]).exit_code == 0
    with filled.store.write() as connection:
        connection.execute(SET_REVISION, {"to": "0010"})
    before = filled.all_rows()
    done = CliRunner().invoke(app, ["audit", *where])
    assert done.exit_code == 2
    assert "run `reveal-leaderboard migrate` first" in " ".join(done.output.replace("│", " ").split())
    assert filled.all_rows() == before
    assert not (tmp_path / "data").exists()


KILLED = """
import os, signal, sys
from reveal_leaderboard.store import events
from reveal_leaderboard.store.store import Store
store = Store(sys.argv[1])
with store.write() as connection:
    events.append(connection, subject="board:b", who="test", to_status="seen", why="before it was killed")
os.kill(os.getpid(), signal.SIGKILL)
"""


@ON_SQLITE
@pytest.mark.parametrize("shared", [True, False], ids=["with its index", "without"])
def test_what_a_killed_process_left_in_the_log_is_audited(database_url: str, shared: bool) -> None:
    """Its last writes are only in SQLite's write-ahead log; they are read, and the file is not touched."""
    subprocess.run([sys.executable, "-c", KILLED, database_url], check=False, env=os.environ)
    file = Path(sa.make_url(database_url).database or "")
    log, index = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    assert log.stat().st_size > 0
    if not shared:
        index.unlink()
    before = file.read_bytes(), log.read_bytes()
    with opened_to_read(database_url) as connection:
        assert audit(connection).ok
        assert events.history(connection, "board:b")[0].why == "before it was killed"
    assert (file.read_bytes(), log.read_bytes()) == before


@ON_SQLITE
def test_a_file_that_may_only_be_read_is_audited(filled: FilledBoard, tmp_path: Path) -> None:
    """The file has no log beside it, as in a backup, and gets none."""
    copy = tmp_path / "copy" / "board.sqlite"
    copy.parent.mkdir()
    with sqlite3.connect(sa.make_url(filled.url).database or "") as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])
    copy.chmod(0o400)
    with opened_to_read(f"sqlite:///{copy}") as opened:
        assert audit(opened).ok
    assert list(copy.parent.iterdir()) == [copy]
