"""Answers to open tasks scored on the readers' page: from the board's file to the board's own reader of ratings."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from reveal_leaderboard.boards.exports import harmless
from reveal_leaderboard.boards.reading import import_ratings
from reveal_leaderboard.cli import app as command
from reveal_leaderboard.readers.app import build_readers_app
from reveal_leaderboard.readers.forms import FORMS, ReaderAnswerError
from reveal_leaderboard.readers.images import ImageCache, read_image
from reveal_leaderboard.readers.preparation import PreparationError
from reveal_leaderboard.readers.rubric_answers import as_written, prepare_rubric, read_answers
from reveal_leaderboard.readers.store import ReaderAnswer, UnpreparedError
from reveal_leaderboard.readers.upkeep import export_answers
from reveal_leaderboard.store.ratings import ratings_of
from typer.testing import CliRunner

from reveal_bench.curation.folder import CurationError
from reveal_bench.metrics.ordinal import CRITERIA
from reveal_bench.sources.source import BuildError
from tests.leaderboard.readers.reading_world import HERE, accounts_in, signed_in_auth
from tests.leaderboard.readers.rubric_world import (
    HEIGHT,
    LABEL,
    MODELS,
    ROOM,
    TEAMS,
    WIDTH,
    Waiting,
)
from tests.leaderboard.task_world import REFERENCE

FULL = dict.fromkeys(CRITERIA, 4)
TEXT = dict.fromkeys(CRITERIA[:4], 3)


# From the board's file ------------------------------------------------------------------------------------------------


def test_what_is_shown_is_what_the_board_and_the_folder_hold(waiting: Waiting, tmp_path: Path) -> None:
    readings = waiting.prepared(tmp_path / "data")
    manifest = {task.task_id: task for task in waiting.room.board.manifest.tasks}
    rows = read_answers(waiting.answers)
    assert len(rows) == 2 * len(manifest)
    per_answer = Counter(item for _, _, item in readings.listed())
    assert per_answer == {one.answer_id: 2 for one in rows}
    with_boxes = 0
    for one in rows:
        item, task = readings.item(one.answer_id), manifest[one.task_id]
        assert item.content["prompt"] == task.prompt
        assert item.content["indication"] == (task.indication or "")
        assert item.content["requires_boxes"] == task.requires_boxes
        assert re.fullmatch(
            r"=It looks (clear|dense) in \d+\.\n- first <i>finding</i>\n- second; -5 mm\n\n'Quoted', \| and a bar",
            item.content["answer"],
        )
        views = [film.view for film in item.films]
        assert views == ["PA", "Lateral", "Prior: AP"][: len(task.images)]
        if task.requires_boxes:
            with_boxes += 1
            first, last = item.content["boxes"]
            assert first == {"label": LABEL, "film": 0, "rect": [0.125, 0.2, 0.5, 0.6]}  # 10/80, 20/100, 40/80, 60/100
            assert last == {"label": "old", "film": len(views) - 1, "rect": [0, 0, 1, 0.5]}
        else:
            assert item.content["boxes"] == []
    assert 0 < with_boxes < len(rows)


def test_the_pictures_are_those_of_the_tasks(waiting: Waiting, tmp_path: Path) -> None:
    readings = waiting.prepared(tmp_path / "data")
    assert readings.root == (tmp_path / "data" / "pictures").resolve()
    for one in read_answers(waiting.answers):
        number = int(one.task_id[-3:])
        names = [f"image-{number:03d}-PA", f"image-{number:03d}-LATERAL", f"prior-{number:03d}"]
        films = readings.item(one.answer_id).films
        for film, name in zip(films, names, strict=False):
            source = waiting.room.board.folder.parent / "download" / f"{name}.png"
            kept = read_image((readings.root / film.file).read_bytes()).values
            assert (kept == read_image(source.read_bytes()).values).all()


def test_prepared_again_it_is_the_same_and_of_other_answers_it_is_refused(waiting: Waiting, tmp_path: Path) -> None:
    readings = waiting.prepared(tmp_path / "data")
    readings.put(ReaderAnswer("Dr Ada", readings.places("Dr Ada")[0].item, "cannot_read"), "0" * 32)
    assert len(waiting.prepared(tmp_path / "data").all_answers()) == 1
    lines = waiting.answers.read_text(encoding="utf-8").replace("clear", "unclear")
    other = tmp_path / "other.csv"
    other.write_text(lines, encoding="utf-8", newline="")
    with pytest.raises(UnpreparedError, match="form rubric"):
        prepare_rubric(tmp_path / "data", other, waiting.room.board.folder, ROOM)


def test_each_reader_has_an_order_of_their_own(waiting: Waiting, tmp_path: Path) -> None:
    readings = waiting.prepared(tmp_path / "data")
    orders = [[place.item for place in readings.places(name)] for name in ROOM]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1] != sorted(orders[1])
    with pytest.raises(CurationError, match="are missing"):
        waiting.prepared(tmp_path / "more", per_item=3)


def test_texts_are_as_they_were_before_the_board_made_them_harmless() -> None:
    draw = random.Random(5)
    for _ in range(3000):
        text = "".join(draw.choice("a=+-@|;, \t\n\r\uff1d") for _ in range(draw.randint(0, 9)))
        assert as_written(harmless(text)) == text
    assert as_written("it's 'so'; 'tis") == "it's 'so'; 'tis"


HEAD = "answer_id,task_id,answer,boxes\r\n"
BAD_FILES: dict[str, tuple[str, str]] = {
    "empty": ("", "`file` must have a row of column names"),
    "no line": (HEAD, "`lines` must contain an answer"),
    "other columns": ("answer_id,answer\r\na,b\r\n", "`columns` must be"),
    "cell too few": (f"{HEAD}a,{{t}},x\r\n", ":2: `row` must have 4 cells, like the header, got 3"),
    "cell too many": (f"{HEAD}a,{{t}},x,,y\r\n", ":2: `row` must have 4 cells, like the header, got 5"),
    "blank id": (f"{HEAD} ,{{t}},x,\r\n", ":2: `answer_id` must not be blank"),
    "blank answer": (f"{HEAD}a,{{t}}, ,\r\n", ":2: `answer` must not be blank"),
    "twice": (f"{HEAD}a,{{t}},x,\r\na,{{t}},x,\r\n", ":3: `answer_id` must occur only once, got 'a'"),
    "unknown task": (f"{HEAD}a,t9,x,\r\n", ":2: `task_id` must be the id of a task in the folder, got 't9'"),
    "boxes no JSON": (f"{HEAD}a,{{t}},x,[\r\n", ":2: `boxes` must be JSON"),
    "boxes no boxes": (f'{HEAD}a,{{t}},x,"[1,2]"\r\n', ":2: `boxes` must be boxes with image_id, label and box"),
    "sides of text": (
        f'{HEAD}a,{{t}},x,"[{{""image_id"": ""i"", ""label"": ""l"", ""box"": [1, 2, 3, ""4""]}}]"\r\n',
        ":2: `boxes` must be boxes with image_id, label and box",
    ),
    "side of nothing": (
        f'{HEAD}a,{{t}},x,"[{{""image_id"": ""i"", ""label"": ""l"", ""box"": [1, 2, 3, NaN]}}]"\r\n',
        ":2: `boxes` must be boxes with image_id, label and box",
    ),
    "another's image": (
        f'{HEAD}a,{{t}},x,"[{{""image_id"": ""i"", ""label"": ""l"", ""box"": [1, 2, 3, 4]}}]"\r\n',
        ":2: `boxes` must be the id of an image of the task, got 'i'",
    ),
    "open quote": (f'{HEAD}a,"b\r\n', "`file` must be readable as csv in UTF-8"),
}


@pytest.mark.parametrize("what", sorted(BAD_FILES))
def test_a_bad_file_is_refused_and_nothing_is_made(waiting: Waiting, tmp_path: Path, what: str) -> None:
    text, message = BAD_FILES[what]
    (tmp_path / "answers.csv").write_text(
        text.replace("{t}", waiting.room.board.manifest.tasks[0].task_id), encoding="utf-8", newline=""
    )
    with pytest.raises(BuildError) as error:
        prepare_rubric(tmp_path / "data", tmp_path / "answers.csv", waiting.room.board.folder, ROOM)
    assert message in str(error.value)
    assert not (tmp_path / "data").exists()


def test_a_reader_whom_the_board_would_refuse_is_refused_at_once(waiting: Waiting, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`reader` must be a name of 1 to 100 characters"):
        prepare_rubric(tmp_path / "data", waiting.answers, waiting.room.board.folder, {"x" * 101: 50})


def test_the_folder_must_be_of_tasks_and_hold_their_pictures(waiting: Waiting, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a dataset folder"):
        prepare_rubric(tmp_path / "data", waiting.answers, tmp_path, ROOM)
    folder = tmp_path / "folder"
    (folder / "manifest").mkdir(parents=True)
    public = waiting.room.board.folder
    (folder / "manifest" / "benchmark.json").write_bytes((public / "manifest" / "benchmark.json").read_bytes())
    with pytest.raises(ValueError, match="must be the folder of a tasks-type dataset"):
        prepare_rubric(tmp_path / "data", waiting.answers, folder, ROOM)
    (folder / "holdout_inputs").mkdir()
    for shard in (public / "holdout_inputs").glob("holdout-*.parquet"):
        table = pq.read_table(shard)
        at, kind = table.schema.get_field_index("images"), table.schema.field("images").type
        empty = pa.array([[None, None]] * len(table), kind)
        pq.write_table(table.set_column(at, "images", empty), folder / "holdout_inputs" / shard.name)
    with pytest.raises(PreparationError, match=r"every task must have its images .* got 6 without"):
        prepare_rubric(tmp_path / "data", waiting.answers, folder, ROOM)
    assert not (tmp_path / "data" / "readings.sqlite").exists()


# What readers send ----------------------------------------------------------------------------------------------------

CONTENT: dict[str, Any] = {
    "prompt": "P", "indication": "", "requires_boxes": False, "answer": "A",
    "boxes": [{"label": "l", "film": 0, "rect": [0, 0, 1, 1]}],
}  # fmt: skip
NO_BOXES = CONTENT | {"boxes": []}
BAD_SCORES: dict[str, tuple[dict[str, Any], str, str, Any, str]] = {
    "missing": (CONTENT, "scored", "", FULL | {"synthesis": None}, "Synthesis must be scored"),
    "not there": (CONTENT, "scored", "", TEXT, "Image content must be scored: the answer has boxes"),
    "zero": (CONTENT, "scored", "", FULL | {"process": 0}, "Process must be a whole number from 1 to 5, got 0"),
    "six": (CONTENT, "scored", "", FULL | {"language": 6}, "Language must be a whole number from 1 to 5, got 6"),
    "text": (CONTENT, "scored", "", FULL | {"process": "4"}, "Process must be a whole number from 1 to 5, got '4'"),
    "half": (CONTENT, "scored", "", FULL | {"process": 3.5}, "Process must be a whole number"),
    "true": (CONTENT, "scored", "", FULL | {"process": True}, "Process must be a whole number"),
    "of no boxes": (NO_BOXES, "scored", "", FULL, "Image content must be empty: the answer has no boxes"),
    "another": (CONTENT, "scored", "", FULL | {"content": 4}, "scores must name the rubric's criteria, got 'content'"),
    "a list": (CONTENT, "scored", "", [4] * 6, "`details` must be the scores by criterion"),
    "nothing": (CONTENT, "scored", "", None, "`details` must be the scores by criterion"),
    "unread": (CONTENT, "cannot_read", "", FULL, "an answer that cannot be read must have no scores"),
    "vote": (CONTENT, "agree_all", "", FULL, "the answer must be one of scored, cannot_read"),
    "comment": (CONTENT, "scored", "good", FULL, "scores must have no comment"),
}


@pytest.mark.parametrize("what", sorted(BAD_SCORES))
def test_bad_scores_are_refused(what: str) -> None:
    content, answer, comment, details, message = BAD_SCORES[what]
    with pytest.raises(ReaderAnswerError, match=re.escape(message)):
        FORMS["rubric"].read(content, answer, comment, details)


def test_scores_and_what_cannot_be_read_are_taken() -> None:
    read = FORMS["rubric"].read
    assert read(CONTENT, "scored", "", FULL) == ("scored", "", FULL)
    assert read(NO_BOXES, "scored", "", TEXT) == ("scored", "", TEXT)
    assert read(CONTENT, "cannot_read", " black ", None) == ("cannot_read", "black", None)


def test_the_criteria_of_pictures_are_asked_where_there_are_boxes() -> None:
    panel = FORMS["rubric"].panel(CONTENT)
    assert [one["name"] for one in panel["scales"]] == list(CRITERIA)
    assert panel["overlays"] == [{"kind": "model", "label": "l", "film": 0, "rect": [0, 0, 1, 1]}]
    assert [one["name"] for one in FORMS["rubric"].panel(NO_BOXES)["scales"]] == list(CRITERIA[:4])
    first = panel["scales"][0]["scores"]
    assert [one["score"] for one in first] == [5, 4, 3, 2, 1]
    assert first[-1]["text"].startswith("Did not grasp what was asked")


# Back to the board ----------------------------------------------------------------------------------------------------


def test_the_export_is_what_the_board_takes(waiting: Waiting, tmp_path: Path) -> None:
    """Ada changes her first scores to 5; Ben cannot read his first answer. At the end all is rolled back."""
    readings = waiting.prepared(tmp_path / "data")
    unread = readings.places("Dr Ben")[0].item
    key = iter(f"{n:032x}" for n in range(100))
    for reader in ROOM:
        for place in readings.places(reader):
            scores = FULL if readings.item(place.item).content["boxes"] else TEXT
            if (reader, place.item) == ("Dr Ben", unread):
                readings.put(ReaderAnswer(reader, place.item, "cannot_read", "black"), next(key))
                continue
            readings.put(ReaderAnswer(reader, place.item, "scored", "", scores), next(key))
    first = readings.places("Dr Ada")[0].item
    changed = dict.fromkeys(CRITERIA if readings.item(first).content["boxes"] else CRITERIA[:4], 5)
    readings.put(ReaderAnswer("Dr Ada", first, "scored", "", changed), next(key))
    out = tmp_path / "ratings.csv"
    assert export_answers(readings, out) == 23
    lines = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
    mine = next(line for line in lines if (line["answer_id"], line["reader"]) == (first, "Dr Ada"))
    assert mine["process"] == "5"
    assert (unread, "Dr Ben") not in {(line["answer_id"], line["reader"]) for line in lines}
    with waiting.room.store.engine.connect() as connection:
        done = import_ratings(connection, out, waiting.room.settings, who="cli:boss")
        assert (done.new, done.changed, len(done.complete)) == (23, 0, 1)  # the other one lacks Ben's rating
        kept = [one for name in waiting.submissions for one in ratings_of(connection, name)]
        connection.rollback()
    assert Counter(one.reader for one in kept) == {"file:Dr Ada": 12, "file:Dr Ben": 11}
    assert {one.process for one in kept} == {3, 4, 5}
    assert all((one.image_content is None) == (one.process == 3) for one in kept if one.process != 5)


def test_commands_from_the_boards_file_to_the_boards_file(waiting: Waiting, tmp_path: Path) -> None:
    data, out, readers = tmp_path / "data", tmp_path / "ratings.csv", tmp_path / "readers.csv"
    readers.write_text("reader,capacity\nDr Ada,12\nDr Ben,12\n", encoding="utf-8")
    run = CliRunner()
    words = ["readers-prepare", "--form", "rubric", "--data", str(data), "--answers", str(waiting.answers)]
    lacking = run.invoke(command, [*words, "--readers", str(readers)])
    assert lacking.exit_code == 1
    assert "`--tasks` must be given with the form rubric" in lacking.output
    words += ["--readers", str(readers), "--tasks", str(waiting.room.board.folder)]
    images = run.invoke(command, [*words, "--images", str(tmp_path)])
    assert "`--images` must not be given with the form rubric" in images.output
    done = run.invoke(command, [*words, "--per-item", "1"])
    assert done.exit_code == 0, done.output
    assert "12 items, 12 readings" in done.output
    assert run.invoke(command, ["readers-export", "--data", str(data), "--out", str(out)]).exit_code == 0
    assert out.read_text().strip() == ",".join(("answer_id", "reader", *CRITERIA))


# Blinding -------------------------------------------------------------------------------------------------------------


def test_nothing_that_a_reader_is_sent_tells_whose_answer_it_is(waiting: Waiting, tmp_path: Path) -> None:
    readings = waiting.prepared(tmp_path / "data")
    accounts = accounts_in(tmp_path / "accounts")
    people = {"subject-1": "Dr Ada"}
    app = build_readers_app(readings, ImageCache(readings.root), signed_in_auth(accounts), people)
    ada = TestClient(app, base_url=HERE, headers={"Origin": HERE}, raise_server_exceptions=False)
    user = accounts.sign_in("the provider", "subject-1", "subject-1")
    ada.cookies.set("__Host-reveal", accounts.new_session(user), domain="readers.example.org")
    sent = [ada.get(path) for path in ("/", "/api/who", "/api/list", "/nowhere")]
    tokens = [one["token"] for one in ada.get("/api/list").json()["items"]]
    assert len(tokens) == 12
    n_films = 0
    for token in tokens:
        item_response = ada.get(f"/api/items/{token}")
        sent.append(item_response)
        for number, facts in enumerate(item_response.json()["films"]):
            assert (facts["fault"], facts["width"], facts["height"]) == ("", WIDTH, HEIGHT)
            sent.append(ada.get(f"/api/items/{token}/films/{number}"))
            n_films += 1
        scores = {scale["name"]: 4 for scale in item_response.json()["panel"]["scales"]}
        body = {"key": token, "answer": "scored", "comment": "", "details": scores, "seconds": 1.0}
        answered = ada.post(f"/api/items/{token}/answers", json=body)
        assert answered.json() == {"saved": True, "answer": "scored"}
        sent += [answered, ada.post(f"/api/items/{token}/answers", json=body | {"details": scores | {"process": 6}})]
        assert ada.get(f"/api/items/{token}").json()["own"]["details"] == scores
    assert n_films >= 24
    secrets = [*MODELS, *TEAMS, *waiting.submissions, REFERENCE, "Owner of", "Dr Ben", "reference"]
    rows = read_answers(waiting.answers)
    secrets += [one.answer_id for one in rows] + [one.task_id for one in rows]
    secrets += [name for task in waiting.room.board.manifest.tasks for name in task.images]
    for response in sent:
        sent_text = f"{response.headers} {response.text}"
        assert [secret for secret in secrets if secret in sent_text] == []
    asked = json.dumps([one.text for one in sent])
    assert "It looks" in asked
    assert "0.125" in asked  # the left side of a box
    content = (tmp_path / "data" / "readings.sqlite").read_bytes()
    assert all(secret.encode() not in content for secret in (*MODELS, *TEAMS, *waiting.submissions, REFERENCE))
