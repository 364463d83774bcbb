"""The maintainer's work: see readers' progress, reassign the remainder, and return votes to the curation."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from reveal_leaderboard.readers.store import NotOnListError, ReaderAnswer, Readings
from reveal_leaderboard.readers.upkeep import export_answers, export_assignments, progress, reassign_items

from reveal_bench.curation.folder import CurationError, CurationFolder
from reveal_bench.curation.tables import Assignment, Vote, read_table
from reveal_bench.curation.votes import import_votes
from tests.leaderboard.readers.reading_world import READERS, Pool, prepared

NUMBERS = count()
COMMENT = 'not "small", larger;\nsee left, =1+1'
NO_FORMULA = 'not "small", larger;\nsee left, \'=1+1'


def put(readings: Readings, reader: str, item: str, answer: str, comment: str = "", details: object = None) -> None:
    readings.put(ReaderAnswer(reader, item, answer, comment, details), f"{next(NUMBERS):032x}")


def read_all(readings: Readings, *, but: tuple[str, ...] = ()) -> None:
    for reader in readings.readers():
        if reader not in but:
            for place in readings.places(reader):
                if not place.answer:
                    put(readings, reader, place.item, "agree_all")


def curation_of(pool: Pool, tmp_path: Path) -> CurationFolder:
    return CurationFolder(Path(shutil.copytree(pool.curation, tmp_path / "curation")))


@pytest.fixture
def readings(pool: Pool, tmp_path: Path) -> Readings:
    return prepared(pool, tmp_path / "data")


def test_votes_come_back_into_the_curation_as_they_were_given(readings: Readings, pool: Pool, tmp_path: Path) -> None:
    first, second = (place.item for place in readings.places(READERS[0])[:2])
    put(readings, READERS[0], first, "agree_all", "changed later")
    put(readings, READERS[0], first, "disagree", COMMENT, ["Aneurysm", "COPD"])
    put(readings, READERS[0], second, "agree_mostly", "", [])
    read_all(readings)
    out = tmp_path / "votes.csv"
    assert export_answers(readings, out) == 24
    assert out.stat().st_mode & 0o077 == 0
    folder = curation_of(pool, tmp_path)
    assert import_votes(folder, out).counts["missing"] == 0
    votes = {(one.study_id, one.reader): one for one in read_table(folder.path("votes.parquet"), Vote)}
    assert len(votes) == 24
    expected = Vote(first, READERS[0], "disagree", NO_FORMULA, ("Aneurysm", "COPD"))
    assert votes[(first, READERS[0])] == expected
    assert votes[(second, READERS[0])] == Vote(second, READERS[0], "agree_mostly", "", ())


def test_what_cannot_be_read_is_no_vote_and_is_counted_apart(readings: Readings, pool: Pool, tmp_path: Path) -> None:
    blank = readings.places(READERS[1])[3].item
    put(readings, READERS[1], blank, "cannot_read", "black film")
    read_all(readings)
    room = progress(readings)
    mine = next(one for one in room.readers if one.reader == READERS[1])
    assert (mine.assigned, mine.answered, mine.left, mine.not_readable, mine.state) == (6, 6, 0, 1, "open")
    assert room.items_by_votes == {2: 1, 3: 7}
    out = tmp_path / "votes.csv"
    assert export_answers(readings, out) == 23
    folder = curation_of(pool, tmp_path)
    with pytest.raises(CurationError, match="must have the votes of all"):
        import_votes(folder, out)
    assert import_votes(folder, out, allow_missing=True).counts["missing"] == 1


def test_who_stops_leaves_the_rest_to_others(readings: Readings, pool: Pool, tmp_path: Path) -> None:
    mine = [place.item for place in readings.places(READERS[2])]
    for item in mine[:2]:
        put(readings, READERS[2], item, "disagree", "mine")
    put(readings, READERS[2], mine[2], "cannot_read")
    readings.mark(READERS[2], "stop")
    more = dict.fromkeys(READERS, 8) | {"Reader Eve": 8}
    done = reassign_items(readings, more)
    assert (done.version, done.n_moved >= 4, done.missing) == (1, True, ())
    assert [place.item for place in readings.places(READERS[2])] == mine[:2]
    per_study = Counter(item for _, _, item in readings.listed())
    assert set(per_study.values()) == {3}
    readings.mark(READERS[2], "open")
    with pytest.raises(NotOnListError, match="on your list"):
        put(readings, READERS[2], mine[4], "agree_all")
    read_all(readings)
    votes, lists = tmp_path / "votes.csv", tmp_path / "assignments.parquet"
    assert export_answers(readings, votes) == 24
    assert export_assignments(readings, lists) == 1
    assert len(read_table(lists, Assignment)) == 24
    folder = curation_of(pool, tmp_path)
    assert import_votes(folder, votes, reassigned=lists).counts["missing"] == 0


def test_there_must_be_something_to_hand_on_and_room(readings: Readings) -> None:
    with pytest.raises(ValueError, match="no reader has stopped"):
        reassign_items(readings, dict.fromkeys(READERS, 8))
    readings.mark(READERS[0], "stop")
    with pytest.raises(ValueError, match="must have every reader who continues"):
        reassign_items(readings, {READERS[1]: 8})
    with pytest.raises(ValueError, match="6 readings find no reader with capacity"):
        reassign_items(readings, dict.fromkeys(READERS, 6))
    assert (readings.version(), len(readings.listed())) == (0, 24)
    done = reassign_items(readings, dict.fromkeys(READERS, 6), allow_missing=True)
    assert (readings.version(), len(done.missing), len(readings.listed())) == (1, 6, 18)


def test_the_same_answers_are_handed_on_in_the_same_way(pool: Pool, tmp_path: Path) -> None:
    lists = []
    for name in ("a", "b"):
        readings = prepared(pool, tmp_path / name)
        readings.mark(READERS[3], "stop")
        reassign_items(readings, dict.fromkeys(READERS, 8))
        lists.append(readings.listed())
    assert lists[0] == lists[1]


def test_progress_shows_no_answers(readings: Readings) -> None:
    put(readings, READERS[0], readings.places(READERS[0])[0].item, "disagree", "secret words")
    assert not {"disagree", "secret words"} & set(json.dumps(str(progress(readings))).split("'"))


def test_an_empty_export_has_its_columns(readings: Readings, tmp_path: Path) -> None:
    assert export_answers(readings, tmp_path / "votes.csv") == 0
    with (tmp_path / "votes.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["study", "reader", "answer", "comment", "labels"]]
