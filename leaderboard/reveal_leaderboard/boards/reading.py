"""How readers rate answers: get a reader's next answer, save a rating, and complete a submission.

Conventions
-----------
The status of a submission is ``queued -> scoring -> reading -> queued -> scoring -> scored``. First a worker reads the
answers from the file, and the answers wait for readers. After the last rating the submission is queued once more, and a
worker releases its mean ratings. The budget stays reserved until the mean ratings are released, and is then charged.

Readers are blinded: they see a task and an answer, but nothing else about the submission. The order of answers differs
between readers. Readers do not rate answers of their own teams, except in local mode, where one person rates all
answers.

The setting `reading.readers_per_answer` is the number of readers per answer. If two readers rate the last answer at the
same time, both ratings count. A reader may change a rating until the submission is complete. For the clock and the
order of locks see :mod:`reveal_leaderboard.store.database`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from reveal_leaderboard.accounts.people import Actor, NotPermittedError, team_key
from reveal_leaderboard.settings import ReadingPolicy, Settings
from reveal_leaderboard.store.database import moment
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.ratings import (
    READ_TO_THE_END,
    StoredAnswer,
    count_ratings,
    digest_of,
    find_answer,
    put_rating,
    ratings_of,
    read_ratings_file,
    refuse_lines,
)
from reveal_leaderboard.store.rubric import RatingError, Scores
from reveal_leaderboard.store.submissions import NotAllowedError, Submission, get_known, lock_known, note
from reveal_leaderboard.store.tables import answers, ratings, submissions

READERS = "readers"
"""Name of the readers in events, which the team sees; only the maintainer knows who the readers were."""


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """A reader's progress on a benchmark: rated answers, answers left for this reader, and all waiting answers of the
    board.
    """

    rated: int
    left: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of importing a file of ratings: numbers of new ratings, changed ratings and completed submissions."""

    new: int
    changed: int
    complete: tuple[str, ...]


def may_read(actor: Actor | None, policy: ReadingPolicy) -> bool:
    """Return True if `actor` may rate answers: an admin, or a reader of the team named in the settings."""
    if actor is None or not actor.may("submit"):
        return False
    wanted = team_key(policy.team)
    open_ones = (m for m in actor.memberships if m.team.disabled_at is None and m.team.waiting_since is None)
    readers = (m for m in open_ones if m.role == "reader")
    return actor.is_admin or (bool(wanted) and any(team_key(m.team.name) == wanted for m in readers))


def next_answer(connection: sa.Connection, actor: Actor, benchmark: str, policy: ReadingPolicy) -> StoredAnswer | None:
    """Return the next answer for `actor` to rate; None if nothing is left.

    Answers with the most ratings come first, so that submissions are completed. Among answers with equally many
    ratings, the order differs between readers and is fixed for each reader.

    Raises
    ------
    NotPermittedError
        If the actor may not read.
    """
    left = _left(connection, actor, benchmark, policy)
    first = min(left, key=lambda one: (-left[one], _shuffled(actor, one)), default=None)
    return None if first is None else find_answer(connection, first)


def last_rated(connection: sa.Connection, actor: Actor, benchmark: str, policy: ReadingPolicy) -> StoredAnswer | None:
    """Return the answer that `actor` rated last, if its submission is still being rated.

    Raises
    ------
    NotPermittedError
        If the actor may not read.
    """
    _permit(actor, policy)
    answer_ids = _rated_by(connection, actor.name, benchmark)
    return find_answer(connection, answer_ids[0]) if answer_ids else None


def readable(connection: sa.Connection, actor: Actor, answer_id: str, policy: ReadingPolicy) -> StoredAnswer | None:
    """Return the answer with this id if it waits for readers and was not sent by a team of `actor`; None otherwise.

    Raises
    ------
    NotPermittedError
        If the actor may not read.
    """
    _permit(actor, policy)
    answer = find_answer(connection, answer_id)
    if answer is None:
        return None
    submission = get_known(connection, answer.submission_id)
    is_open = submission.status == "reading" and submission.hidden_at is None
    return answer if is_open and submission.team_id not in _own_teams(actor) else None


def progress(connection: sa.Connection, actor: Actor, benchmark: str, policy: ReadingPolicy) -> ReadingProgress:
    """Return the reader's progress on a benchmark.

    Raises
    ------
    NotPermittedError
        If the actor may not read.
    """
    left = _left(connection, actor, benchmark, policy)
    counts = count_ratings(connection, *_is_read(benchmark))
    mine = _rated_by(connection, actor.name, benchmark)
    waiting = sum(n < policy.readers_per_answer for n in counts.values())
    return ReadingProgress(len(mine), len(left), waiting)


def rate(connection: sa.Connection, actor: Actor, answer_id: str, scores: Scores, settings: Settings) -> bool:
    """Save the reader's scores of an answer; return True if this completed the submission, which is then queued.

    Raises
    ------
    NotPermittedError
        If the actor may not read, or belongs to the team that sent the answer.
    NotAllowedError
        If the answer is unknown, or its submission no longer waits for readers.
    RatingError
        If the scores break a rule.
    """
    answer = find_answer(connection, answer_id)
    if answer is None:
        raise NotAllowedError("unknown answer")
    submission = lock_known(connection, answer.submission_id)
    policy = settings.of(submission.benchmark).reading
    _permit(actor, policy)
    if submission.team_id in _own_teams(actor):
        raise NotPermittedError("readers must not rate answers of their own team")
    _write(connection, submission, answer, actor.name, scores, who=actor.name)
    return _end_if_complete(connection, submission, policy, who=READERS)


def import_ratings(connection: sa.Connection, path: Path, settings: Settings, *, who: str) -> Imported:
    """Save the ratings of a file, either all or none.

    Parameters
    ----------
    path : CSV file, see :mod:`reveal_leaderboard.store.ratings`; its ids of answers are from :func:`answers_csv`

    Raises
    ------
    RatingError
        If an answer is unknown or no longer waits for readers, or if scores break a rule; the message names the line.
    """
    lines = read_ratings_file(path)
    known = {line.answer_id: find_answer(connection, line.answer_id) for line in lines}
    ids = {answer.submission_id for answer in known.values() if answer is not None}
    in_order = sorted((get_known(connection, one) for one in ids), key=lambda one: (one.team_id, one.id))
    touched = {one.id: lock_known(connection, one.id) for one in in_order}
    problems, n_new = [], 0
    for line in lines:
        answer = known[line.answer_id]
        try:
            if answer is None:
                raise RatingError(f"`answer_id` must be the id of an answer on this board, got {line.answer_id[:40]!r}")
            n_new += _write(connection, touched[answer.submission_id], answer, line.reader, line.scores, who=who)
        except (RatingError, NotAllowedError) as error:
            problems.append(f"line {line.line}: {error}")
    refuse_lines(path, problems)
    complete = []
    for one, submission in touched.items():
        if _end_if_complete(connection, submission, settings.of(submission.benchmark).reading, who=who):
            complete.append(one)
    return Imported(n_new, len(lines) - n_new, tuple(complete))


def answers_csv(connection: sa.Connection, benchmark: str) -> str:
    """Return the waiting answers as CSV for readers who work outside the board, blinded and sorted by random id.

    Columns: answer_id, task_id, answer, boxes (JSON); the tasks are in the dataset. Texts are escaped against
    spreadsheet formulas.
    """
    from reveal_leaderboard.boards.exports import harmless

    query = sa.select(answers).join(submissions, submissions.c.id == answers.c.submission_id)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("answer_id", "task_id", "answer", "boxes"))
    for row in connection.execute(query.where(*_is_read(benchmark)).order_by(answers.c.id)):
        boxes = json.dumps(row.boxes) if row.boxes else ""
        writer.writerow([row.id, *map(harmless, (row.task_id, row.answer, boxes))])
    return text.getvalue()


def is_complete(connection: sa.Connection, submission_id: str, policy: ReadingPolicy) -> bool:
    """Return True if every answer of a submission has enough ratings; False if no answers are stored yet."""
    counts = count_ratings(connection, submissions.c.id == submission_id)
    return bool(counts) and min(counts.values()) >= policy.readers_per_answer


# Shared queries and checks ---------------------------------------------------------------------------------------


def _permit(actor: Actor, policy: ReadingPolicy) -> None:
    if not may_read(actor, policy):
        raise NotPermittedError("only readers of this board and admins may score answers")


def _own_teams(actor: Actor) -> set[str]:
    return set() if actor.via == "local" else {m.team.id for m in actor.memberships}


def _is_read(benchmark: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the SQL conditions for submissions whose answers wait for readers, which excludes hidden submissions."""
    of_board = submissions.c.benchmark == benchmark
    return of_board, submissions.c.status == "reading", submissions.c.hidden_at.is_(None)


def _rated_by(connection: sa.Connection, reader: str, benchmark: str) -> Sequence[str]:
    """Return the ids of the answers that a reader rated in incomplete submissions, the last rated first."""
    query = (
        sa.select(ratings.c.answer_id)
        .join(answers, answers.c.id == ratings.c.answer_id)
        .join(submissions, submissions.c.id == answers.c.submission_id)
        .where(ratings.c.reader == reader, *_is_read(benchmark))
        .order_by(ratings.c.rated_at.desc(), ratings.c.answer_id)
    )
    return connection.execute(query).scalars().all()


def _left(connection: sa.Connection, actor: Actor, benchmark: str, policy: ReadingPolicy) -> dict[str, int]:
    """Return answer id -> number of ratings, for the answers that `actor` may still rate."""
    _permit(actor, policy)
    others = submissions.c.team_id.not_in(sorted(_own_teams(actor)))
    counts = count_ratings(connection, *_is_read(benchmark), others)
    mine = set(_rated_by(connection, actor.name, benchmark))
    return {one: n for one, n in counts.items() if n < policy.readers_per_answer and one not in mine}


def _shuffled(actor: Actor, answer_id: str) -> bytes:
    return hashlib.sha256(f"{actor.name}\0{answer_id}".encode()).digest()


def _write(
    connection: sa.Connection, submission: Submission, answer: StoredAnswer, reader: str, scores: Scores, *, who: str
) -> bool:
    if submission.status != "reading" or submission.hidden_at is not None:
        raise NotAllowedError("this answer no longer waits for readers")
    return put_rating(connection, answer, reader, scores, who=who)


def _end_if_complete(connection: sa.Connection, submission: Submission, policy: ReadingPolicy, *, who: str) -> bool:
    """Queue a submission if it has all its ratings, and record their digest; return True if so."""
    if not is_complete(connection, submission.id, policy):
        return False
    scores = ratings_of(connection, submission.id)
    mine = submissions.c.id == submission.id
    connection.execute(submissions.update().where(mine).values(status="queued", updated_at=moment(connection)))
    why = f"{READ_TO_THE_END}: {len(scores)} ratings, SHA-256 {digest_of(scores)}"
    note(connection, submission.id, "reading", "queued", who, why)
    Queue.put(connection, "score", submission.benchmark, submission.version, submission.id)
    return True
