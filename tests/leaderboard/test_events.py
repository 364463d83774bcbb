"""The chain of events: it has no gaps, and every change to it is detected."""

from __future__ import annotations

import hashlib

import pytest
import sqlalchemy as sa
from reveal_leaderboard.store.events import append, history, verify_events
from reveal_leaderboard.store.tables import GENESIS

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import each_database_kind

__all__ = ["each_database_kind"]


def write(engine: sa.Engine, n: int = 5) -> None:
    for number in range(n):
        with engine.begin() as connection:
            append(connection, subject=f"team:{number % 2}", who="user:u", to_status=f"s{number}", why="für alle")


def test_events_are_numbered_and_each_holds_the_hash_of_the_one_before(engine: sa.Engine) -> None:
    write(engine)
    with engine.connect() as connection:
        first, third, fifth = history(connection, "team:0")
        [second, _] = history(connection, "team:1")
        assert [event.id for event in (first, second, third, fifth)] == [1, 2, 3, 5]
        assert (first.previous, second.previous, third.previous) == (GENESIS, first.hash, second.hash)
        assert history(connection, "team:2") == []
        assert verify_events(connection) == []


def test_the_hash_is_sha256_of_the_written_form(engine: sa.Engine) -> None:
    write(engine, 1)
    with engine.connect() as connection:
        [event] = history(connection, "team:0")
    text = (  # JSON with sorted keys and no blanks, written out by hand
        f'{{"at":{event.at!r},"from_status":null,"id":1,"previous":"{GENESIS}","subject":"team:0","to_status":"s0",'
        '"who":"user:u","why":"f\\u00fcr alle"}'
    )
    assert event.hash == hashlib.sha256(text.encode()).hexdigest()


def test_an_undone_transaction_leaves_no_gap(engine: sa.Engine) -> None:
    write(engine, 2)
    with engine.connect() as connection, connection.begin() as transaction:
        append(connection, subject="team:0", who="user:u", to_status="lost")
        transaction.rollback()
    write(engine, 1)
    with engine.connect() as connection:
        assert [event.id for event in history(connection, "team:0")] == [1, 3]
        assert verify_events(connection) == []


@pytest.mark.parametrize(
    ("damage", "problems"),
    [
        ("UPDATE events SET why = 'other' WHERE id = 3", ["event 3 was changed"]),
        ("UPDATE events SET at = at + 1 WHERE id = 3", ["event 3 was changed"]),
        ("UPDATE events SET from_status = '' WHERE id = 1", ["event 1 was changed"]),
        ("DELETE FROM events WHERE id = 3", ["event 3 is missing: the next event is 4"]),
        ("DELETE FROM events WHERE id = 1", ["event 1 is missing: the next event is 2"]),
        ("DELETE FROM events WHERE id = 5", ["the chain must end with event 5"]),
        ("DELETE FROM events", ["the chain must end with event 5"]),
        ("UPDATE events SET id = 6 WHERE id = 5", ["event 5 is missing", "event 6 was changed", "must end with"]),
        ("UPDATE events SET hash = 'x', why = '' WHERE id = 2", ["event 2 was changed", "event 3 does not follow"]),
        ("UPDATE chains SET length = 4 WHERE name = 'events'", ["the chain must end with event 4"]),
        ("DELETE FROM chains", ["no recorded end"]),
    ],
    ids=["why", "at", "from", "middle", "first", "last", "all", "moved", "rehashed", "shortened", "no end"],
)
def test_every_damage_is_found(engine: sa.Engine, damage: str, problems: list[str]) -> None:
    write(engine)
    with engine.begin() as connection:
        connection.execute(sa.text(damage))
    with engine.connect() as connection:
        sentences = verify_events(connection)
    assert len(sentences) == len(problems)
    for problem, part in zip(sentences, problems, strict=True):
        assert part in problem


def test_without_a_chain_nothing_is_appended(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM chains"))
    with engine.begin() as connection, pytest.raises(LookupError, match="the database was not migrated"):
        append(connection, subject="team:0", who="user:u", to_status="s")


def test_four_threads_append_to_one_chain(engine: sa.Engine) -> None:
    at_once(lambda _: write(engine, 10), range(4))
    with engine.connect() as connection:
        assert verify_events(connection) == []
        assert len(history(connection, "team:0")) + len(history(connection, "team:1")) == 40
