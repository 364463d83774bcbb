"""The store: which answers count, which are refused, and that nothing is ever changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.readers.store import (
    Item,
    ItemImage,
    KeyUsedError,
    ListClosedError,
    NotOnListError,
    ReaderAnswer,
    Readings,
    UnpreparedError,
    answers,
    marks,
)

from tests.leaderboard.conftest import at_once

ITEMS = [Item(name, {"labels": []}, (ItemImage(f"{name}.dcm", None, "PA"),)) for name in ("s1", "s2", "s3")]
LISTS = [("Ada", 1, "s2"), ("Ada", 2, "s1"), ("Ben", 1, "s1"), ("Ben", 2, "s3")]


@pytest.fixture
def readings(tmp_path: Path) -> Readings:
    return Readings.create(tmp_path, ITEMS, LISTS, form="votes", name="t", seed=5, digest="d", root=tmp_path)


def key(number: int) -> str:
    return f"{number:032x}"


def test_a_list_keeps_its_order_and_the_last_answer_counts(readings: Readings) -> None:
    assert [(one.position, one.item, one.answer) for one in readings.places("Ada")] == [(1, "s2", ""), (2, "s1", "")]
    readings.put(ReaderAnswer("Ada", "s1", "disagree", "first"), key(1))
    readings.put(ReaderAnswer("Ada", "s1", "agree_all"), key(2))
    assert [one.answer for one in readings.places("Ada")] == ["", "agree_all"]
    assert [one.answer for one in readings.places("Ben")] == ["", ""]  # of the same study, by another
    with readings.engine.begin() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(answers)).scalar_one() == 2


REFUSED = {
    "another's item": (ReaderAnswer("Ada", "s3", "agree_all"), NotOnListError),
    "no such item": (ReaderAnswer("Ada", "s9", "agree_all"), NotOnListError),
    "no such reader": (ReaderAnswer("Eve", "s1", "agree_all"), NotOnListError),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_is_not_on_the_list_is_refused(readings: Readings, what: str) -> None:
    answer, error = REFUSED[what]
    with pytest.raises(error, match="on your list"):
        readings.put(answer, key(1))
    assert readings.all_answers() == []


def test_one_press_is_one_answer_however_often_it_is_sent(readings: Readings) -> None:
    one = ReaderAnswer("Ada", "s1", "disagree", "no", ["COPD"], 3.5)
    assert readings.put(one, key(1))
    assert not readings.put(one, key(1))
    with pytest.raises(KeyUsedError, match="a different answer"):
        readings.put(ReaderAnswer("Ada", "s1", "agree_all"), key(1))
    kept = readings.answer("Ada", "s1")
    assert (kept.answer, kept.comment, kept.details, kept.seconds) == ("disagree", "no", ["COPD"], 3.5)
    assert abs(kept.at - Path(readings.engine.url.database or "").stat().st_mtime) < 3600


def test_many_at_once_are_all_kept(readings: Readings) -> None:
    def work(number: int) -> None:
        readings.put(ReaderAnswer("Ada", "s1", "agree_mostly", str(number)), key(number))
        readings.put(ReaderAnswer("Ada", "s1", "agree_mostly", str(number)), key(number))

    at_once(work, range(12))
    with readings.engine.begin() as connection:
        kept = connection.execute(sa.select(answers.c.comment)).scalars().all()
    assert sorted(map(int, kept)) == list(range(12))


@pytest.mark.parametrize("table", [answers, marks], ids=["answers", "marks"])
@pytest.mark.parametrize("verb", ["update", "delete"])
def test_nothing_can_be_changed_or_taken_away(readings: Readings, table: sa.Table, verb: str) -> None:
    readings.put(ReaderAnswer("Ada", "s1", "agree_all"), key(1))
    readings.mark("Ada", "stop")
    change = table.delete() if verb == "delete" else table.update().values(reader="Ben")
    with pytest.raises(sa.exc.IntegrityError, match="append-only"), readings.engine.begin() as connection:
        connection.execute(change)


def test_a_closed_list_takes_nothing_until_it_is_opened(readings: Readings) -> None:
    readings.mark("Ada", "stop")
    assert (readings.is_open("Ada"), readings.is_open("Ben")) == (False, True)
    with pytest.raises(ListClosedError, match="closed"):
        readings.put(ReaderAnswer("Ada", "s1", "agree_all"), key(1))
    readings.mark("Ada", "open")
    assert readings.put(ReaderAnswer("Ada", "s1", "agree_all"), key(1))


@pytest.mark.parametrize(("reader", "kind", "error"), [("Ada", "end", "must be one of"), ("Eve", "stop", "no list")])
def test_a_mark_must_be_one_of_a_reader(readings: Readings, reader: str, kind: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        readings.mark(reader, kind)


def test_new_lists_take_the_place_of_the_old_ones(readings: Readings) -> None:
    readings.put(ReaderAnswer("Ada", "s1", "agree_all"), key(1))
    readings.put(ReaderAnswer("Ben", "s3", "disagree"), key(2))
    version = readings.relist(lambda listed, answers, marked: [*listed[:2], ("Ben", 1, "s1"), ("Cyd", 1, "s3")])
    assert version == readings.version() == 1
    assert readings.readers() == ["Ada", "Ben", "Cyd"]
    assert [one.item for one in readings.all_answers()] == ["s1"]  # Ben's answer to s3 no longer counts
    with pytest.raises(NotOnListError, match="on your list"):
        readings.put(ReaderAnswer("Ben", "s3", "agree_all"), key(3))


def test_a_folder_is_prepared_once(readings: Readings, tmp_path: Path) -> None:
    more = {"form": "votes", "name": "t", "seed": 5, "digest": "d", "root": tmp_path}
    with pytest.raises(UnpreparedError, match="already exists"):
        Readings.create(tmp_path, ITEMS, LISTS, **more)  # type: ignore[arg-type]
    with pytest.raises(UnpreparedError, match="contains no"):
        Readings(tmp_path / "elsewhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UnpreparedError, match="lists are empty"):
        Readings.create(empty, ITEMS, [], **more)  # type: ignore[arg-type]
    with pytest.raises(UnpreparedError, match="contains no"):  # what failed left nothing that looks whole
        Readings(empty)
