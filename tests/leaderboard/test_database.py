"""Tables, clock and migrations, on both databases."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from reveal_leaderboard.store import database
from reveal_leaderboard.store.buckets import Rate, SharedBuckets
from reveal_leaderboard.store.database import connect, insert_if_absent, keep_private, migrate, moment, reading
from reveal_leaderboard.store.deliveries import Deliveries
from reveal_leaderboard.store.events import GENESIS, append, history, verify_events, verify_records
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import chains, teams
from reveal_leaderboard.store.tables import tables as metadata

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import each_database_kind, empty_database_url

__all__ = ["each_database_kind", "empty_database_url"]

TEAM = {"id": "t1", "name": "Example Lab", "name_key": "example lab", "created_at": 0.0}


def upgrade(engine: sa.Engine, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def fill_first_version(engine: sa.Engine) -> None:
    """Five submissions by three teams, two of which differ only in capitals, each with its events."""
    base = {"benchmark": "bench", "version": "1.0", "split": "holdout", "kind": "cnn", "prompt_style": None}
    base |= {"metadata": json.dumps({"model": {"name": "M"}}), "filename": "p.jsonl", "size": 10}
    base |= {"allow_missing": False, "idempotency_key": None, "lease_until": None, "worker": None, "incident": None}
    rows = [
        ("s1", "Lab", "M", "a", "scored", 1, 1, 10.0),
        ("s2", "LAB", "M", "a", "queued", 0, 0, 20.0),
        ("s3", "Other", "M", "b", "scoring", 2, 2, 30.0),
        ("s4", "Lab", "M", "c", "scored", 1, 1, 40.0),
        ("s5", "Other", "N", "d", "failed", 3, 3, 50.0),
    ]
    columns = ("id", "team", "model_name", "sha256", "status", "attempts", "fence", "created_at")
    with engine.begin() as connection:
        for row in rows:
            values = base | dict(zip(columns, row, strict=True)) | {"updated_at": row[-1] + 5}
            if values["status"] == "scoring":
                values |= {"lease_until": 99.0, "worker": "w"}
            names = ", ".join(values)
            marks = ", ".join(f":{name}" for name in values)
            connection.execute(sa.text(f"INSERT INTO submissions ({names}) VALUES ({marks})"), values)
            event = "INSERT INTO events (submission_id, at, who, from_status, to_status, why)"
            for before, after in ((None, "received"), ("received", row[4])):
                values = {"s": row[0], "a": row[-1], "b": before, "t": after, "w": "because – ü"}
                connection.execute(sa.text(f"{event} VALUES (:s, :a, 'api', :b, :t, :w)"), values)
        for submission_id in ("s1", "s4"):
            released = json.dumps({"figures": [], "of": submission_id})
            insert = "INSERT INTO scores (submission_id, released, signature, reference_hash, scored_at)"
            values = {"s": submission_id, "r": released}
            connection.execute(sa.text(f"{insert} VALUES (:s, :r, 'sig', 'h', 45.0)"), values)


def test_migrations_make_the_tables_that_the_code_uses(database_url: str) -> None:
    with connect(database_url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert {row.name: row.head for row in connection.execute(sa.select(chains))} == {
            "events": GENESIS,
            "receipts": GENESIS,
        }


def test_constraints_of_the_migrated_tables_are_those_of_the_code(database_url: str, tmp_path: Path) -> None:
    """Checks are not compared by Alembic; names of all constraints, from two databases made in the two ways."""

    def constraints(engine: sa.Engine) -> dict[str, set[object]]:
        inspector = sa.inspect(engine)
        return {
            name: {check["name"] for check in inspector.get_check_constraints(name)}
            | {unique["name"] for unique in inspector.get_unique_constraints(name)}
            | {key["name"] for key in inspector.get_foreign_keys(name)}
            | {inspector.get_pk_constraint(name)["name"]}
            for name in metadata.tables
        }

    direct = sa.create_engine(f"sqlite:///{tmp_path / 'direct.sqlite'}")
    metadata.create_all(direct)
    assert constraints(connect(database_url)) == constraints(direct)


def test_the_first_version_is_carried_over_whole(empty_database_url: str) -> None:
    engine = connect(empty_database_url)
    upgrade(engine, "0001")
    fill_first_version(engine)
    migrate(engine)
    store = Store(empty_database_url)
    by_id = {s.id: s for s in store.list_submissions()}
    assert {i: (s.team, s.status) for i, s in by_id.items()} == {
        "s1": ("Lab", "scored"),
        "s2": ("LAB (2)", "queued"),
        "s3": ("Other", "scoring"),
        "s4": ("Lab", "scored"),
        "s5": ("Other", "failed"),
    }
    assert by_id["s1"].metadata == {"model": {"name": "M"}}
    assert [s.id for s in by_id.values() if s.is_chosen] == ["s4"]
    assert [row[0].id for row in store.board_rows("bench", "1.0")] == ["s4"]
    score = store.score_of("s1")
    assert (score.version, score.part, score.shown_of, score.released["of"]) == ("1.0", "public", "s1", "s1")
    with store.read() as connection:
        jobs = connection.execute(sa.text("SELECT subject, status, fence, lease_until FROM jobs ORDER BY subject"))
        assert [tuple(row) for row in jobs] == [
            ("s1", "done", 1, None), ("s2", "queued", 0, None), ("s3", "leased", 2, 99.0), ("s4", "done", 1, None),
            ("s5", "failed", 3, None),
        ]  # fmt: skip
        spent = connection.execute(sa.text("SELECT submission_id, SUM(amount) FROM ledger GROUP BY 1 ORDER BY 1"))
        assert [tuple(row) for row in spent] == [("s1", 1), ("s2", 1), ("s3", 1), ("s4", 1), ("s5", 0)]
        assert verify_events(connection) == []
        assert [(e.at, e.to_status, e.why) for e in history(connection, "submission:s3")] == [
            (30.0, "received", "because – ü"),
            (30.0, "scoring", "because – ü"),
            (ANY, "recorded", "record at the time when events began to include records"),
        ]
        assert list(verify_records(connection)) == []
        assert connection.execute(sa.text("SELECT issuer, subject FROM users")).one() == ("local", "local")
        assert not connection.execute(sa.text("SELECT 1 FROM teams WHERE waiting_since IS NOT NULL")).all()
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_an_empty_first_version_is_carried_over(empty_database_url: str) -> None:
    engine = connect(empty_database_url)
    upgrade(engine, "0001")
    migrate(engine)
    with engine.connect() as connection:
        assert verify_events(connection) == []


def test_a_board_from_before_webhooks_is_opened_and_its_past_is_told_to_nobody(empty_database_url: str) -> None:
    engine = connect(empty_database_url)
    upgrade(engine, "0008")
    past = {"subject": "submission:s", "who": "w", "from_status": "scoring", "to_status": "scored"}
    with engine.begin() as connection:
        append(connection, **past)
    outbox = Deliveries(Store(empty_database_url).engine)
    outbox.collect("chat", ["scored"])
    assert outbox.newest(9) == []
    with engine.begin() as connection:
        append(connection, **past)
    outbox.collect("chat", ["scored"])
    assert [(one.kind, one.event_id) for one in outbox.newest(9)] == [("scored", 2)]
    assert SharedBuckets(outbox.engine).take({"a": Rate(1, 1)}, 1) == 0


def test_four_processes_may_migrate_at_once(empty_database_url: str) -> None:
    at_once(lambda _: migrate(connect(empty_database_url)), range(4))
    with connect(empty_database_url).connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(chains)).scalar_one() == 2


def test_a_database_of_a_later_version_is_refused(database_url: str) -> None:
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ValueError, match="must have version 0011 or an earlier one, got 9999"):
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
