"""A board of tasks from the file to the page: real children, real holdout, readers, receipts, audit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from jsonschema import Draft7Validator
from reveal_leaderboard.boards.exports import to_csv, to_parquet
from reveal_leaderboard.boards.standings import standings
from reveal_leaderboard.release.receipts import receipt_file
from reveal_leaderboard.release.release import ReleasedScore
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.audit import audit
from reveal_leaderboard.store.ratings import answers_of
from reveal_leaderboard.store.tables import flags
from reveal_leaderboard.store.tables import tables as metadata
from reveal_leaderboard.web.api import documents
from reveal_leaderboard.web.pages import rubric_view
from reveal_leaderboard.web.pages.board_view import View

from reveal_bench.exchange.every_eval_ever import Evaluation, every_eval_ever
from reveal_bench.exchange.facts import of_receipt
from reveal_bench.exchange.receipts import verify_receipt
from reveal_bench.kinds.tasks.lint import answers_to_jsonl
from reveal_bench.kinds.tasks.records import TaskAnswer
from tests.exchange.schemas import EVERY_EVAL_EVER
from tests.leaderboard.elements import text_of
from tests.leaderboard.task_world import (
    BENCHMARK,
    REFERENCE,
    Room,
    TaskBoard,
    answers_to,
    kept_room,
    room,
    task_board,
)

__all__ = ["kept_room", "room", "task_board"]


def released_of(room: Room, submission: Any) -> ReleasedScore:
    score = room.store.score_of(submission.id)
    return ReleasedScore.from_json(score.released)


def read_by_two(room: Room, submission: Any, **scores: int) -> None:
    """Have two readers give 4 to every criterion, except for the scores passed for the first."""
    room.worker.run(once=True)
    assert room.status(submission) == "reading"
    room.rate_all(submission, room.person("one", role="reader"), scores)
    assert room.rate_all(submission, room.person("two", role="reader"))
    room.worker.run(once=True)


def test_a_board_of_tasks(task_board: TaskBoard) -> None:
    published = task_board.published
    assert (published.kind, published.items, published.n_items) == ("tasks", "tasks", 20)
    assert published.findings[:2] == ("content", "process")
    facts = json.loads(json.dumps(published.facts()))
    assert (facts["kind"], facts["n_tasks"], facts["synthetic"]) == ("tasks", 20, True)


def test_from_the_upload_to_the_board(room: Room) -> None:
    """One reader gives 2 for execution and the other 4: 3, so the overall score is (4 + 3 + 4 + 4) / 4."""
    ada = room.person("Ada", team="Northern Lab")
    alpha = room.submit(ada, "Northern Lab", "Alpha")
    read_by_two(room, alpha, execution=2)
    assert room.status(alpha) == "scored"
    score = released_of(room, alpha)
    values = {f.finding: f.value for f in score.figures if f.metric == "rubric_mean"}
    assert (values["macro"], values["content"], values["execution"], values["image_style"]) == (3.75, 3, 3, 4)
    beta = room.submit(ada, "Northern Lab", "Beta")
    read_by_two(room, beta, process=5, language=5)
    board = standings(room.store, room.board.published)
    assert [(e.model, e.place, e.tier) for e in board.entries] == [("Beta", "1", "A"), ("Alpha", "2", "B")]
    assert [metric.name for metric in board.metrics] == ["rubric_mean", "share_of_5", "cohen_kappa_quadratic"]
    assert documents.Board.model_validate(board).entries[0].model == "Beta"
    assert "rexecution,1.0.0,2,2,2,B,false" in to_csv(board)
    assert len(to_parquet(board)) > 0
    with room.store.read() as connection:
        report = audit(connection, blobs=room.blobs)
        receipt = receipt_file(connection, beta.id, "1.0.0", "public")
    assert report.problems == ()
    assert verify_receipt(receipt).receipt["metric_signature"].startswith("cohen_kappa_quadratic|")
    shown_value = board.entries[0].score.figure("rubric_mean")
    assert shown_value is not None
    headline = of_receipt(receipt).headline()
    assert (headline.metric, float(headline.value)) == ("rubric_mean", shown_value.value)
    assert headline.count == f"{shown_value.n} criteria"
    Draft7Validator(EVERY_EVAL_EVER).validate(every_eval_ever(of_receipt(receipt), Evaluation(0)).document)


def test_tasks_without_an_answer_score_one(room: Room) -> None:
    """Ten of twenty answered with 4: the mean is 2.5."""
    ada = room.person("Ada", team="Northern Lab")
    half = answers_to(room.board.manifest, boxes=False)[:10]
    submission = room.submit(ada, "Northern Lab", "Half", half, allow_missing=True)
    read_by_two(room, submission)
    figure = released_of(room, submission).figure("rubric_mean")
    assert figure.value == 2.5


def test_the_same_answer_throughout_is_flagged(room: Room) -> None:
    ada = room.person("Ada", team="Northern Lab")
    same = [TaskAnswer(task.task_id, "Normal chest.") for task in room.board.manifest.tasks]
    submission = room.submit(ada, "Northern Lab", "Lazy", same)
    read_by_two(room, submission)
    with room.store.read() as connection:
        details = set(connection.execute(sa.select(flags.c.detail)).scalars())
    assert "Every task has the same answer." in details


def test_answers_are_not_scored_against_the_tasks_of_another_version(room: Room) -> None:
    ada = room.person("Ada", team="Northern Lab")
    submission = room.submit(ada, "Northern Lab", "Alpha")
    read_by_two(room, submission)
    with room.store.write() as connection:
        boards.register_version(connection, BENCHMARK, "2.0.0", "holdout", {})
        room.queue.put(connection, "rescore", BENCHMARK, "1.0.0", submission.id)
    room.worker.run(once=True)
    assert "must be answered and rated again" in room.store.events_of(submission.id)[-1].why
    assert room.status(submission) == "scored"


def test_no_reference_reaches_the_database(room: Room) -> None:
    ada = room.person("Ada", team="Northern Lab")
    read_by_two(room, room.submit(ada, "Northern Lab", "Alpha"))
    with room.store.read() as connection:
        for table in metadata.sorted_tables:
            assert REFERENCE not in str(connection.execute(sa.select(table)).all())
            assert "p000" not in str(connection.execute(sa.select(table)).all()), "patients are of the holdout"


# Displayed scores ----------------------------------------------------------------------------------------------------


def test_scores_are_shown_on_their_own_scale(room: Room) -> None:
    """4.0 is three quarters of the way from 1 to 5."""
    ada = room.person("Ada", team="Lab")
    submission = room.submit(ada, "Lab", "Alpha")
    read_by_two(room, submission)
    board = standings(room.store, room.board.published)
    for markup in (rubric_view.render_board(board), rubric_view.render_score(board.entries[0].score)):
        assert "4.00 no variation" in text_of(markup)
        assert "left:75.0%" in markup
        assert "400" not in re.sub("[0-9a-f]{32}", "", markup)  # ids are random
    marked = replace(board, entries=(replace(board.entries[0], model="<i>Alpha</i>", team="<b>"),))
    assert "&lt;i&gt;Alpha&lt;/i&gt;" in rubric_view.render_board(marked)
    assert "<i>Alpha" not in rubric_view.render_board(marked)
    assert "No entry matches." in rubric_view.render_board(board, View(search="zzz"))
    assert rubric_view.is_rubric(board.entries[0].score)


def test_a_board_and_a_score_without_figures(room: Room) -> None:
    assert "No submission is scored yet." in rubric_view.render_board(standings(room.store, room.board.published))
    empty = ReleasedScore((), (), ("content",), "Nothing can be shown: few tasks.", {})
    assert "Nothing can be shown: few tasks." in rubric_view.render_score(empty)
    assert rubric_view.is_rubric(empty)


def test_answers_wait_in_the_database_as_they_were_sent(room: Room) -> None:
    ada = room.person("Ada", team="Northern Lab")
    sent = answers_to(room.board.manifest, "ü\t肺")
    submission = room.submit(ada, "Northern Lab", "Alpha", sent)
    room.worker.run(once=True)
    with room.store.read() as connection:
        kept = [answer.to_answer() for answer in answers_of(connection, submission.id)]
    assert answers_to_jsonl(kept) == answers_to_jsonl(sorted(sent, key=lambda answer: answer.task_id))
