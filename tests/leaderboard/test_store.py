"""The life of a submission in the database: queued once, leased with a number, finished once."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from reveal_leaderboard.database import tables
from reveal_leaderboard.store import KeyReusedError, NewSubmission, Store, Submission

SERVED = [("bench", "1.0")]
NEW = NewSubmission(
    benchmark="bench",
    version="1.0",
    split="holdout",
    team="Example Lab",
    model_name="Model",
    kind="cnn",
    prompt_style=None,
    metadata={"model": {"name": "Model"}},
    filename="p.jsonl",
    sha256="a" * 64,
    size=10,
)
RESULT = {"released": {"figures": []}, "signature": "s", "reference_hash": "h"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'board.sqlite'}")


def add(store: Store, **changes: object) -> Submission:
    submission, is_new = store.add_submission(replace(NEW, **changes), who="test")  # type: ignore[arg-type]
    assert is_new
    return submission


def claim(store: Store, worker: str = "w", **options: float) -> Submission | None:
    return store.claim(worker, served=SERVED, **options)  # type: ignore[arg-type]


def path_of(store: Store, submission_id: str) -> list[str]:
    return [event.to_status for event in store.events_of(submission_id)]


def test_migrations_make_the_tables_that_the_code_uses(store: Store) -> None:
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, tables) == []


def test_sqlite_is_set_up_for_durability(store: Store, tmp_path: Path) -> None:
    with store.engine.connect() as connection:
        modes = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
        }
        assert modes == {"journal_mode": "wal", "synchronous": 2}  # 2 = FULL
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_the_same_file_under_the_same_name_is_queued_once(store: Store) -> None:
    first = add(store)
    again, is_new = store.add_submission(replace(NEW, filename="other-name.jsonl"), who="test")
    assert (again.id, is_new) == (first.id, False)
    assert len(store.list_submissions()) == 1


@pytest.mark.parametrize(
    "change",
    [{"team": "Other"}, {"model_name": "Other"}, {"sha256": "b" * 64}, {"version": "2.0"}, {"benchmark": "b2"}],
)
def test_another_team_model_file_or_version_is_another_submission(store: Store, change: dict[str, str]) -> None:
    assert add(store).id != add(store, **change).id


def test_a_key_returns_its_submission_and_refuses_another(store: Store) -> None:
    first = add(store, idempotency_key="k1")
    again, is_new = store.add_submission(replace(NEW, idempotency_key="k1"), who="test")
    assert (again.id, is_new) == (first.id, False)
    with pytest.raises(KeyReusedError, match=first.id):
        store.add_submission(replace(NEW, sha256="c" * 64, idempotency_key="k1"), who="test")


def test_ten_threads_that_send_the_same_file_get_one_submission(store: Store) -> None:
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.append(store.add_submission(NEW, who="test")[0].id)) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 10
    assert len(set(ids)) == 1


def test_a_submission_goes_from_received_to_scored(store: Store) -> None:
    submission = add(store)
    claimed = claim(store)
    assert claimed is not None
    assert (claimed.id, claimed.status, claimed.attempts, claimed.fence) == (submission.id, "scoring", 1, 1)
    assert store.finish(claimed.id, claimed.fence, who="worker:w", **RESULT)
    assert path_of(store, submission.id) == ["received", "linted", "queued", "scoring", "scored"]
    score = store.score_of(submission.id)
    assert score is not None
    assert score.released == {"figures": []}
    [(scored, _)] = store.scored("bench", "1.0", "holdout")
    assert scored.id == submission.id
    assert scored.lease_until is None


def test_the_oldest_is_served_first_and_positions_count_from_one(store: Store) -> None:
    first, second = add(store), add(store, sha256="b" * 64)
    assert [store.queue_position(s) for s in (first, second)] == [1, 2]
    claimed = claim(store)
    assert claimed is not None
    assert claimed.id == first.id
    assert store.queue_position(claimed) is None
    assert store.queue_position(second) == 1


def test_a_worker_takes_only_the_benchmarks_it_serves(store: Store) -> None:
    add(store, version="2.0")
    assert claim(store) is None
    assert store.claim("w", served=[]) is None


def test_a_leased_submission_is_not_leased_again(store: Store) -> None:
    add(store)
    assert claim(store) is not None
    assert claim(store) is None


def test_a_dead_workers_submission_goes_to_another_and_the_zombie_is_refused(store: Store) -> None:
    add(store)
    zombie = claim(store, "zombie", lease_seconds=-1)  # a lease that has run out already
    heir = claim(store, "heir")
    assert zombie is not None
    assert heir is not None
    assert (heir.id, heir.fence, heir.attempts) == (zombie.id, 2, 2)
    assert not store.heartbeat(zombie.id, zombie.fence)
    assert not store.finish(zombie.id, zombie.fence, who="worker:zombie", **RESULT)
    assert not store.refuse(zombie.id, zombie.fence, who="worker:zombie", why="late")
    assert not store.fail(zombie.id, zombie.fence, who="worker:zombie", why="late", incident="INC-1")
    assert store.score_of(heir.id) is None
    assert store.heartbeat(heir.id, heir.fence)
    assert store.finish(heir.id, heir.fence, who="worker:heir", **RESULT)
    assert not store.finish(heir.id, heir.fence, who="worker:heir", **RESULT)
    assert path_of(store, heir.id)[-3:] == ["scoring", "scoring", "scored"]


def test_a_heartbeat_keeps_the_lease(store: Store) -> None:
    add(store)
    mine = claim(store, lease_seconds=-1)
    assert mine is not None
    assert store.heartbeat(mine.id, mine.fence, lease_seconds=60)
    assert claim(store, "other") is None


def test_a_submission_that_stops_three_workers_fails_and_stays_failed(store: Store) -> None:
    submission = add(store)
    for attempt in (1, 2, 3):
        claimed = claim(store, lease_seconds=-1)
        assert claimed is not None
        assert claimed.attempts == attempt
    assert claim(store) is None
    failed = store.get(submission.id)
    assert failed is not None
    assert failed.status == "failed"
    assert "3 times" in store.events_of(submission.id)[-1].why


def test_a_refused_submission_says_why(store: Store) -> None:
    add(store)
    mine = claim(store)
    assert mine is not None
    assert store.refuse(mine.id, mine.fence, who="worker:w", why="2 errors")
    assert store.events_of(mine.id)[-1].why == "2 errors"


def test_what_is_committed_survives_another_connection(store: Store, tmp_path: Path) -> None:
    submission = add(store)
    with sqlite3.connect(tmp_path / "board.sqlite") as connection:
        rows = connection.execute("SELECT id FROM submissions").fetchall()
    assert rows == [(submission.id,)]


def test_an_unknown_status_and_an_orphan_event_are_refused_by_the_database(store: Store) -> None:
    row = {**{name: getattr(NEW, name) for name in NEW.__slots__}, "id": "x", "status": "odd"}
    row |= {"attempts": 0, "fence": 0, "created_at": 0.0, "updated_at": 0.0}
    event = {"submission_id": "nobody", "at": 0.0, "who": "x", "to_status": "queued", "why": ""}
    for table, values, rule in (("submissions", row, "ck_submissions_status"), ("events", event, "FOREIGN KEY")):
        insert = tables.tables[table].insert().values(**values)
        with store.engine.begin() as connection, pytest.raises(sa.exc.IntegrityError, match=rule):
            connection.execute(insert)
