"""Tables, clock and migrations, on both databases."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from reveal_leaderboard.store.database import connect, insert_if_absent, keep_private, migrate, moment, reading
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import GENESIS, chains, teams
from reveal_leaderboard.store.tables import tables as metadata

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import each_database_kind, empty_database_url

__all__ = ["each_database_kind", "empty_database_url"]

TEAM = {"id": "t1", "name": "Example Lab", "name_key": "example lab", "created_at": 0.0}


def test_a_new_database_has_the_tables_and_two_empty_chains(database_url: str) -> None:
    with connect(database_url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert {row.name: row.head for row in connection.execute(sa.select(chains))} == {
            "events": GENESIS,
            "receipts": GENESIS,
        }


def test_four_processes_may_migrate_at_once(empty_database_url: str) -> None:
    at_once(lambda _: migrate(connect(empty_database_url)), range(4))
    with connect(empty_database_url).connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(chains)).scalar_one() == 2


@pytest.mark.parametrize("version", ["9999", "0010"])
def test_a_database_that_no_migration_starts_from_is_refused(database_url: str, version: str) -> None:
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": version})
    with pytest.raises(ValueError, match=f"must have version 0011 or one that it can be migrated from, got {version}"):
        migrate(engine)


@pytest.mark.parametrize("url", ["mysql://root@localhost/x", "postgresql+psycopg2://x/y", "sqlite+aiosqlite:///x"])
def test_another_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="`url` must start with sqlite:/// or postgresql\\+psycopg://"):
        connect(url)


def test_the_clock_is_in_utc_seconds_and_moves_within_a_transaction(database_url: str) -> None:
    with connect(database_url).begin() as connection:
        first = moment(connection)
        time.sleep(0.02)
        assert abs(first - time.time()) < 5  # both clocks are this machine's
        assert 0.01 < moment(connection) - first < 5


def test_a_row_is_put_in_once(database_url: str) -> None:
    with connect(database_url).begin() as connection:
        assert insert_if_absent(connection, teams, TEAM)
        assert not insert_if_absent(connection, teams, TEAM)
        assert not insert_if_absent(connection, teams, TEAM | {"id": "t2"})  # the same name_key


def test_a_reader_sees_one_moment_and_cannot_stop_a_writer(database_url: str) -> None:
    engine = connect(database_url)
    n = sa.select(sa.func.count()).select_from(teams)
    with reading(engine).begin() as reader:
        assert reader.execute(n).scalar_one() == 0
        with engine.begin() as writer:
            writer.execute(teams.insert().values(**TEAM))
        assert reader.execute(n).scalar_one() == 0
    with reading(engine).begin() as reader:
        assert reader.execute(n).scalar_one() == 1


def test_sqlite_is_set_up_for_durability(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'board.sqlite'}")
    with store.engine.connect() as connection:
        modes = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
        }
        assert modes == {"journal_mode": "wal", "synchronous": 2}  # 2 = FULL
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


@pytest.mark.parametrize(
    ("insert", "rule"),
    [
        ("INSERT INTO boards VALUES ('b', '1', 'odd', '', 0)", "ck_boards_state"),
        ("INSERT INTO members VALUES ('nobody', 'nobody', 'owner', 0)", "FOREIGN KEY|fk_members"),
        ("INSERT INTO members VALUES ('t1', 'u1', 'king', 0)", "ck_members_role"),
        ("INSERT INTO chains VALUES ('events', 0, '')", "UNIQUE|pk_chains"),
    ],
    ids=["state", "orphan", "role", "chain"],
)
def test_the_database_itself_refuses_what_breaks_a_rule(database_url: str, insert: str, rule: str) -> None:
    with connect(database_url).connect() as connection, pytest.raises(sa.exc.IntegrityError, match=rule):
        connection.execute(sa.text(insert))


def test_a_database_is_its_owners_alone(tmp_path: Path) -> None:
    """It has people's addresses, so a file that others can read is closed to them, with its log and its index."""
    file = tmp_path / "board.sqlite"
    file.touch(0o644)
    for _ in range(2):
        keep_private(f"sqlite:///{file}")
        engine = connect(f"sqlite:///{file}")
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE IF NOT EXISTS t (x)"))
            connection.execute(sa.text("INSERT INTO t VALUES (1)"))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == dict.fromkeys(("board.sqlite", "board.sqlite-wal", "board.sqlite-shm"), 0o600)
        for path in tmp_path.iterdir():
            path.chmod(0o644)
        engine.dispose()


def test_a_database_of_another_that_all_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "board.sqlite"
    file.touch(0o644)

    def refused(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(ValueError, match=r"board\.sqlite must be readable by its owner only"):
        keep_private(f"sqlite:///{file}")
