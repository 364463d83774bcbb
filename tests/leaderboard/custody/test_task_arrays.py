"""Answers to tasks as arrays: they come back as they were, and nothing else is taken."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reveal_leaderboard.custody.arrays import (
    _SHARED,
    dump_manifest,
    load_manifest,
    read_arrays,
    read_canonical,
    read_rated,
    stamp_of,
    write_arrays,
    write_canonical,
)
from reveal_leaderboard.custody.scoring import read_cases, write_cases

from reveal_bench.kinds.tasks.arrays import MODEL, TasksCodec
from reveal_bench.kinds.tasks.records import AnswerBox, Rating, TaskAnswer, TaskManifest, TaskQuestion, TaskRecord
from reveal_bench.kinds.tasks.scoring import score_ratings

MANIFEST = TaskManifest(
    "rexecution",
    "1.0.0",
    "holdout",
    tuple(
        TaskQuestion(f"t{i}", "broad_abnormality", True, "?", None, {f"a{i}": (80, 100), f"b{i}": (50, 60)})
        for i in range(4)
    ),
)
ANSWERS = (
    TaskAnswer("t2", "One.\nTwo ü 肺", (AnswerBox("b2", "é", (0.0, 0.5, 60.0, 49.5)),), 3),
    TaskAnswer("t0", "x", (), 1),
    TaskAnswer("t3", "y", (AnswerBox("a3", "", (1.0, 2.0, 3.0, 4.0)), AnswerBox("b3", "z", (0.0, 0.0, 1.0, 1.0))), 2),
)
RATINGS = (
    Rating("t2", "m", "zoe", 1, 2, 3, 4, 5, 1),
    Rating("t2", "m", "amy", 5, 5, 5, 5, 1, 1),
    Rating("t0", "m", "amy", 2, 2, 2, 2),
)


def test_manifests_come_back_and_their_order_counts_and_so_do_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_manifest(dump_manifest(MANIFEST)) == MANIFEST
    other = TaskManifest("rexecution", "1.0.0", "holdout", MANIFEST.tasks[::-1])
    images = dict(list(MANIFEST.tasks[0].images.items())[::-1])
    first = TaskQuestion("t0", "broad_abnormality", True, "?", None, images)
    turned = TaskManifest("rexecution", "1.0.0", "holdout", (first, *MANIFEST.tasks[1:]))
    stamps = [stamp_of(m) for m in (MANIFEST, other, turned)]
    monkeypatch.setattr(TasksCodec, "predictions", {**TasksCodec.predictions, "more": ("<u4", 1)})
    assert len({*stamps, stamp_of(MANIFEST)}) == 4


def test_answers_come_back_as_they_were() -> None:
    file = io.BytesIO()
    write_canonical(file, ANSWERS, MANIFEST)
    assert read_canonical(file, MANIFEST) == ANSWERS
    with pytest.raises(ValueError, match="are for a different manifest"):
        read_canonical(file, TaskManifest("rexecution", "1.0.1", "holdout", MANIFEST.tasks))


CHARACTERS = st.characters(codec="utf-8")
TEXTS = st.text(CHARACTERS, max_size=40).filter(str.strip)
BOXES = st.builds(
    lambda label, x, y: AnswerBox("a1", label, (x, y, 1.5, 2.0)),
    st.text(CHARACTERS, max_size=10),
    st.floats(0, 98),
    st.floats(0, 78),
)


@given(TEXTS, st.lists(BOXES, max_size=5))
def test_any_answer_comes_back(text: str, boxes: list[AnswerBox]) -> None:
    answers = (TaskAnswer("t1", text, tuple(boxes), 7),)
    file = io.BytesIO()
    write_canonical(file, answers, MANIFEST)
    assert read_canonical(file, MANIFEST) == answers


def test_ratings_come_back_with_numbers_for_readers() -> None:
    file = io.BytesIO()
    write_canonical(file, ANSWERS, MANIFEST, RATINGS)
    answers, ratings = read_rated(file, MANIFEST)
    assert answers == ANSWERS
    assert [(r.task_id, r.model, r.reader, r.process, r.image_content) for r in ratings] == [
        ("t2", MODEL, "00001", 1, 5),
        ("t2", MODEL, "00000", 5, 1),
        ("t0", MODEL, "00000", 2, None),
    ]


def test_what_is_of_no_task_or_answer_is_not_written() -> None:
    with pytest.raises(ValueError, match="must be for tasks of the manifest"):
        write_canonical(io.BytesIO(), [TaskAnswer("t9", "x")], MANIFEST)
    with pytest.raises(ValueError, match="must be for tasks of the manifest"):
        write_canonical(io.BytesIO(), [TaskAnswer("t1", "x", (AnswerBox("a2", "", (0, 0, 1, 1)),))], MANIFEST)
    with pytest.raises(ValueError, match="must rate answered tasks, got a rating of 't1'"):
        write_canonical(io.BytesIO(), ANSWERS, MANIFEST, [Rating("t1", "m", "r", 1, 1, 1, 1)])


Change = Callable[[dict[str, Any]], None]


def setting(name: str, value: Any) -> Change:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = np.array(value, arrays[name].dtype)

    return change


SPOILED: dict[str, tuple[Change, str]] = {
    "unknown task": (setting("task", [2, 0, 9]), "`task` must be an index"),
    "task twice": (setting("task", [2, 0, 0]), "each task must be answered once"),
    "a task fewer": (setting("task", [2, 0]), "`task` and `n_boxes` must have one value"),
    "a box more": (setting("n_boxes", [1, 1, 2]), r"`boxes` must have shape \(4, 4\)"),
    "many boxes": (setting("n_boxes", [60000, 0, 2]), "at most 100 boxes"),
    "unknown image": (setting("box_image", [1, 0, 7]), "an index into the images of the task"),
    "box outside": (setting("boxes", [[0, 0.5, 60, 50], [1, 2, 3, 4], [0, 0, 1, 1]]), "must be inside the image"),
    "box is not a number": (setting("boxes", [[np.nan] * 4, [1, 2, 3, 4], [0, 0, 1, 1]]), "must be inside"),
    "ends go back": (setting("answer_ends", [16, 10, 17]), "must rise to the end"),
    "ends beyond": (setting("answer_ends", [16, 17, 99]), "must rise to the end"),
    "an end fewer": (setting("answer_ends", [16, 18]), "there must be 3 ends of texts"),
    "ends in a character": (setting("label_ends", [1, 2, 3]), "texts must be UTF-8"),
    "empty answer": (setting("answer_ends", [16, 16, 17]), "an answer must hold text"),
    "line below 0": (setting("line", [3, 1, -2]), "`line` must not be negative"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_file_is_refused(name: str) -> None:
    change, match = SPOILED[name]
    file, spoiled = io.BytesIO(), io.BytesIO()
    write_canonical(file, ANSWERS, MANIFEST)
    arrays = dict(read_arrays(file, {**_SHARED, **TasksCodec.predictions}))
    change(arrays)
    write_arrays(spoiled, arrays)
    with pytest.raises(ValueError, match=match):
        read_canonical(spoiled, MANIFEST)


SPOILED_RATINGS: dict[str, tuple[Change, str]] = {
    "unknown answer": (setting("rated", [0, 0, 3]), "`rated` must be an index into the answers"),
    "six": (setting("scores", [[6] * 6] * 3), "must be from 1 to 5"),
    "no language": (setting("scores", [[1, 1, 1, 0, 0, 0]] * 3), "must be given for every text criterion"),
    "twice": (setting("reader", [0, 0, 0]), "each reader must rate an answer once"),
    "a reader fewer": (setting("reader", [0, 1]), "`reader` must have one value per rating"),
    "five criteria": (setting("scores", [[1] * 5] * 3), r"`scores` must have shape \(3, 6\)"),
}


@pytest.mark.parametrize("name", SPOILED_RATINGS)
def test_spoiled_ratings_are_refused(name: str) -> None:
    change, match = SPOILED_RATINGS[name]
    file, spoiled = io.BytesIO(), io.BytesIO()
    write_canonical(file, ANSWERS, MANIFEST, RATINGS)
    arrays = dict(read_arrays(file, {**_SHARED, **TasksCodec.predictions, **TasksCodec.ratings}))
    change(arrays)
    write_arrays(spoiled, arrays)
    with pytest.raises(ValueError, match=match):
        read_rated(spoiled, MANIFEST)


def test_rows_come_back_from_the_vault() -> None:
    tasks = [TaskRecord(f"t{i}", "s", f"p{i}", "?", "broad_abnormality") for i in range(4)]
    rows = score_ratings(RATINGS, tasks)
    file = io.BytesIO()
    write_cases(file, rows)
    back: Any = read_cases(file)
    assert (back.task_ids, back.patient_ids, back.categories, back.missing) == (
        rows.task_ids, rows.patient_ids, rows.categories, rows.missing,
    )  # fmt: skip
    np.testing.assert_array_equal(back.ratings, rows.ratings)
    np.testing.assert_array_equal(back.is_answered, [True, False, True, False])
