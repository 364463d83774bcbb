"""From a curation folder to lists and pictures; from a file of misses to questions for readers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from reveal_leaderboard.readers.app import PeopleError, read_people, token_of
from reveal_leaderboard.readers.forms import DEFINITIONS, FORMS, ReaderAnswerError
from reveal_leaderboard.readers.misses import prepare_misses, read_misses
from reveal_leaderboard.readers.preparation import PreparationError, prepare_votes, read_pictures
from reveal_leaderboard.readers.store import ReaderAnswer, UnpreparedError
from reveal_leaderboard.readers.upkeep import export_answers

from reveal_bench.curation.assign import assign
from reveal_bench.curation.folder import CurationError, CurationFolder
from reveal_bench.curation.tables import Assignment, read_table
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.sources.source import BuildError
from tests.leaderboard.readers.reading_world import READERS, Pool, prepared


def test_lists_labels_and_films_are_those_of_the_curation(pool: Pool, tmp_path: Path) -> None:
    readings = prepared(pool, tmp_path / "data")
    assignments = read_table(pool.curation / "assignments.parquet", Assignment)
    assert readings.listed() == [(one.reader, one.position, one.study_id) for one in assignments]
    for study in {one.study_id for one in assignments}:
        item = readings.item(study)
        assert set(item.content["labels"]) == set(pool.truth[study]["suggested"])
        assert sorted(film.file for film in item.films) == sorted(one["file"] for one in pool.truth[study]["images"])
        assert [film.view for film in item.films].index("LATERAL") == 1 if len(item.films) == 2 else True
    assert b"EXAMINATION" not in (tmp_path / "data" / "readings.sqlite").read_bytes()  # a heading of every report


def test_prepared_again_it_is_the_same_and_of_other_lists_it_is_refused(pool: Pool, tmp_path: Path) -> None:
    readings = prepared(pool, tmp_path / "data")
    readings.put(ReaderAnswer(READERS[0], readings.places(READERS[0])[0].item, "agree_all"), "0" * 32)
    assert len(prepare_votes(tmp_path / "data", pool.curation, pool.images).all_answers()) == 1
    folder = CurationFolder(Path(shutil.copytree(pool.curation, tmp_path / "curation")))
    readers = tmp_path / "readers.csv"
    readers.write_text(pool.readers.read_text(encoding="utf-8") + "Reader Eve,6\n", encoding="utf-8")
    assign(folder, readers, redo=True)
    with pytest.raises(UnpreparedError, match="has changed"):
        prepare_votes(tmp_path / "data", folder.root, pool.images)


def test_a_study_without_a_picture_is_named(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(PreparationError, match=r"got 8 without, the first of them 2\.25\."):
        prepare_votes(tmp_path / "data", pool.curation, tmp_path / "images")
    assert not (tmp_path / "data" / "readings.sqlite").exists()


def test_assign_must_be_done(tmp_path: Path) -> None:
    CurationFolder.create(tmp_path / "c", name="x")
    with pytest.raises(CurationError, match="must be done first"):
        prepare_votes(tmp_path / "data", tmp_path / "c", tmp_path)


def test_pictures_come_from_a_table_too(tmp_path: Path) -> None:
    Image.new("L", (2, 2)).save(tmp_path / "a.png")
    table = tmp_path / "pictures.csv"
    table.write_text("study,file,view\ns1,a.png,PA\ns1,a.png,\n")
    assert [film.view for film in read_pictures(table, tmp_path)["s1"]] == ["PA", "UNKNOWN"]
    table.write_text("study,file\ns1,../b.png\n,a.png\n")
    with pytest.raises(BuildError) as error:
        read_pictures(table, tmp_path)
    assert [(one.row, one.field) for one in error.value.problems] == [(1 + 1, "file"), (2 + 1, "study, file")]


PEOPLE = {
    "columns": ("person,reader\n", "people.csv:1: `columns` must be subject,reader, got person,reader"),
    "no such reader": ("subject,reader\n1,Eve\n", "`reader` must have a list, got 'Eve'"),
    "twice": ("subject,reader\n1,Ada\n2,Ada\n", "line 3: subject and reader must not be repeated"),
    "two names": ("subject,reader\n1,Ada\n1,Ben\n", "line 3: subject and reader must not be repeated"),
    "blank": ("subject,reader\n,Ada\n", "line 2: must have a subject and a reader"),
    "too many": ("subject,reader\n1,Ada,x\n", "people.csv:2: `row` must have 2 cells, like the header, got 3"),
}


@pytest.mark.parametrize("what", sorted(PEOPLE))
def test_a_wrong_table_of_people_is_refused(tmp_path: Path, what: str) -> None:
    text, message = PEOPLE[what]
    (tmp_path / "people.csv").write_text(text)
    with pytest.raises(PeopleError, match=message):
        read_people(tmp_path / "people.csv", ["Ada", "Ben"])


def test_tokens_differ_by_everything_they_are_made_of() -> None:
    made = {token_of(k, s, r, i) for k in (b"1", b"2") for s in "ab" for r in "ab" for i in "ab"}
    assert len(made) == 16


def test_every_label_has_a_definition() -> None:
    assert all(len(DEFINITIONS[label]) > 20 for label in REVEAL_LABELS)


MISS: dict[str, Any] = {
    "id": "m1", "image": "a.png", "finding": "Pneumothorax", "grid": [3, 4], "reference": [[0, 3], [1, 3]],
    "cell": [2, 0],
}  # fmt: skip


def write_misses(tmp_path: Path, *changes: dict[str, Any]) -> Path:
    Image.new("L", (8, 6)).save(tmp_path / "a.png")
    path = tmp_path / "misses.jsonl"
    path.write_text("".join(json.dumps(MISS | one) + "\n" for one in changes))
    return path


def test_partial_hits_are_found_and_not_asked_of_readers(tmp_path: Path) -> None:
    table = write_misses(
        tmp_path,
        {},
        {"id": "m2", "cell": [1, 3]},  # a cell of the reference
        {"id": "m3", "cell": None, "point": [0.99, 0.34]},  # row 1, column 3
        {"id": "m4", "cell": None, "point": [0.74, 0.34]},  # row 1, column 2
        {"id": "m5", "cell": None, "point": [1.0, 1.0], "reference": [[2, 3]]},  # the far edge is the last cell's
    )
    readings = prepare_misses(tmp_path / "data", table, tmp_path, {"Ada": 5})
    assert sorted(item for _, _, item in readings.listed()) == ["m1", "m4"]
    panel = FORMS["errors"].panel(readings.item("m1").content)
    assert [one["rect"] for one in panel["overlays"] if one["kind"] == "model"] == [[0, 2 / 3, 0.25, 1]]
    (reference,) = (one for one in panel["overlays"] if one["kind"] == "reference")  # one outline for two cells
    assert len(reference["edges"]) == 6
    assert [0.75, 1 / 3, 1.0, 1 / 3] not in reference["edges"]  # between the two
    assert "partial" not in json.dumps(panel)
    readings.put(ReaderAnswer("Ada", "m1", "anatomy_error"), "1" * 32)
    readings.put(ReaderAnswer("Ada", "m4", "cannot_read", "rotated"), "2" * 32)
    assert export_answers(readings, tmp_path / "errors.csv") == 5
    assert (tmp_path / "errors.csv").read_text().splitlines() == [
        "id,finding,reader,category,comment",
        "m1,Pneumothorax,Ada,anatomy_error,",
        "m2,Pneumothorax,,partial_hit,",
        "m3,Pneumothorax,,partial_hit,",
        "m4,Pneumothorax,Ada,cannot_read,rotated",
        "m5,Pneumothorax,,partial_hit,",
    ]


BAD_MISSES: dict[str, tuple[dict[str, Any], str]] = {
    "image": ({"image": "../a.png"}, "image"),
    "grid": ({"grid": [0, 4]}, "grid"),
    "grid of text": ({"grid": "3x4"}, "grid"),
    "reference outside": ({"reference": [[3, 0]]}, "reference"),
    "cell outside": ({"cell": [0, 4]}, "cell"),
    "both": ({"point": [0.5, 0.5]}, "cell, point"),
    "neither": ({"cell": None}, "cell, point"),
    "point in pixels": ({"cell": None, "point": [512, 3]}, "point"),
    "no finding": ({"finding": ""}, "fields"),
}


@pytest.mark.parametrize("what", sorted(BAD_MISSES))
def test_a_bad_miss_is_refused(tmp_path: Path, what: str) -> None:
    change, field = BAD_MISSES[what]
    with pytest.raises(BuildError) as error:
        read_misses(write_misses(tmp_path, {"id": "m0"}, change), tmp_path)
    assert [(one.row, one.field) for one in error.value.problems] == [(2, field)]


def test_errors_take_their_own_answers_only() -> None:
    for answer, details in (("agree_all", None), ("position_error", ["COPD"])):
        with pytest.raises(ReaderAnswerError):
            FORMS["errors"].read({}, answer, "", details)
    assert FORMS["errors"].read({}, "position_error", " x ", None) == ("position_error", "x", None)
