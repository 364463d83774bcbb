"""Database queries on answers to tasks and on readers' ratings of answers, and files of ratings.

Conventions
-----------
Answers have random ids, so that readers cannot tell whose answer they rate. A rating contains one reader's scores of
one answer (:mod:`reveal_leaderboard.store.rubric`). A reader is stored as "user:ID", or as "file:NAME" for a name in a
file of ratings. Functions run in their caller's transaction; rights and consequences are in
:mod:`reveal_leaderboard.boards.reading`.

A file of ratings is CSV in UTF-8 with the columns of :data:`COLUMNS`; a cell of an image criterion may be empty.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reveal_bench.arguments import Problem
from reveal_bench.kinds.tasks.records import AnswerBox, Rating, TaskAnswer
from reveal_bench.tables import TableLimits, TableRow, open_table
from reveal_leaderboard.store.database import insert_if_absent, moment
from reveal_leaderboard.store.rubric import RatingError, Scores, check_scores
from reveal_leaderboard.store.tables import CRITERIA, answers, ratings, submissions

COLUMNS = ("answer_id", "reader", *CRITERIA)
READ_TO_THE_END = "read to the end"
"""First words of the event at the end of a submission's rating, before the digest of the ratings."""
MOST_LINES, MOST_BYTES = 100_000, 32 << 20
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer to a task, as a row of the table of answers."""

    id: str
    submission_id: str
    task_id: str
    answer: str
    boxes: Sequence[Mapping[str, Any]]

    def to_answer(self) -> TaskAnswer:
        """Return the answer in the linter's format."""
        boxes = [AnswerBox(box["image_id"], box["label"], tuple(box["box"])) for box in self.boxes]
        return TaskAnswer(self.task_id, self.answer, tuple(boxes))


@dataclass(frozen=True, slots=True)
class RatingRow:
    """A line of a file of ratings."""

    line: int
    answer_id: str
    reader: str
    scores: Scores


def put_answers(connection: sa.Connection, submission_id: str, task_answers: Iterable[TaskAnswer]) -> None:
    """Store the answers of a submission; existing answers keep their ids and ratings."""
    for answer in task_answers:
        boxes = [{"image_id": box.image_id, "label": box.label, "box": list(box.box)} for box in answer.boxes]
        row = {"submission_id": submission_id, "task_id": answer.task_id, "answer": answer.answer, "boxes": boxes}
        insert_if_absent(connection, answers, {"id": secrets.token_hex(16)} | row)


def answers_of(connection: sa.Connection, submission_id: str) -> list[StoredAnswer]:
    """Return the answers of a submission, sorted by task."""
    query = sa.select(answers).where(answers.c.submission_id == submission_id).order_by(answers.c.task_id)
    return [StoredAnswer(**row._mapping) for row in connection.execute(query)]


def find_answer(connection: sa.Connection, answer_id: str) -> StoredAnswer | None:
    """Return the answer with this id, or None."""
    row = connection.execute(sa.select(answers).where(answers.c.id == answer_id)).one_or_none()
    return None if row is None else StoredAnswer(**row._mapping)


def count_ratings(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> dict[str, int]:
    """Return answer id -> number of readers who rated the answer, for the submissions selected by `where`."""
    counted = sa.func.count(ratings.c.reader)
    query = (
        sa.select(answers.c.id, counted)
        .join(submissions, submissions.c.id == answers.c.submission_id)
        .join(ratings, ratings.c.answer_id == answers.c.id, isouter=True)
        .where(*where)
        .group_by(answers.c.id)
    )
    return {row[0]: int(row[1]) for row in connection.execute(query)}


def ratings_of(connection: sa.Connection, submission_id: str) -> list[Rating]:
    """Return all ratings of a submission's answers, sorted by task and reader."""
    query = (
        sa.select(answers.c.task_id, ratings)
        .join(answers, answers.c.id == ratings.c.answer_id)
        .where(answers.c.submission_id == submission_id)
        .order_by(answers.c.task_id, ratings.c.reader)
    )
    rows = connection.execute(query)
    return [Rating(row.task_id, submission_id, row.reader, *(getattr(row, name) for name in CRITERIA)) for row in rows]


def own_scores(connection: sa.Connection, answer_id: str, reader: str) -> dict[str, int | None] | None:
    """Return a reader's scores of an answer, or None."""
    mine = (ratings.c.answer_id == answer_id, ratings.c.reader == reader)
    row = connection.execute(sa.select(ratings).where(*mine)).one_or_none()
    return None if row is None else {name: getattr(row, name) for name in CRITERIA}


def digest_of(all_ratings: Sequence[Rating]) -> str:
    """Return the SHA-256 of ratings sorted by task and reader, 64 hexadecimal digits."""
    rows = sorted([r.task_id, r.reader, *(getattr(r, name) for name in CRITERIA)] for r in all_ratings)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def put_rating(connection: sa.Connection, answer: StoredAnswer, reader: str, scores: Scores, *, who: str) -> bool:
    """Store a reader's scores of an answer, replacing the reader's earlier ones; return True if there were none.

    Raises
    ------
    RatingError
        If :func:`~reveal_leaderboard.store.rubric.check_scores` refuses the scores.
    """
    check_scores(scores, has_boxes=bool(answer.boxes))
    key = {"answer_id": answer.id, "reader": reader}
    values = {name: scores.get(name) for name in CRITERIA} | {"who": who, "rated_at": moment(connection)}
    if insert_if_absent(connection, ratings, key | values):
        return True
    mine = (ratings.c.answer_id == answer.id, ratings.c.reader == reader)
    connection.execute(ratings.update().where(*mine).values(**values))
    return False


def read_ratings_file(path: Path) -> list[RatingRow]:
    """Read a file of ratings, reporting all problems at once.

    Raises
    ------
    RatingError
        If the file is too large or not CSV, its columns are wrong, or a line breaks a rule.
    OSError
        If the file cannot be read.
    """
    table_problems: list[Problem] = []
    lines: list[RatingRow] = []
    problems: list[str] = []
    limits = TableLimits(file_bytes=MOST_BYTES, rows=MOST_LINES)
    with open_table(path, problems=table_problems, columns=COLUMNS, limits=limits) as table:
        lines = [_line(row, problems) for row in table]
    if table.is_broken:
        raise RatingError(str(table_problems[-1]))
    problems += [f"line {problem.row}: {problem.rule}, got {problem.value}" for problem in table_problems]
    first: dict[tuple[str, str], int] = {}
    for line in lines:
        before = first.setdefault((line.answer_id, line.reader), line.line)
        if before != line.line:
            problems.append(f"line {line.line}: the reader already rated this answer in line {before}")
    refuse_lines(path, problems)
    return lines


def refuse_lines(path: Path, problems: Sequence[str]) -> None:
    """Raise an error that lists the first problems of a file, and the number of further problems."""
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise RatingError(f"{path.name}: {'; '.join(problems[:_SHOWN])}{more}")


def _line(row: TableRow, problems: list[str]) -> RatingRow:
    scores: dict[str, int | None] = {}
    number = row.number
    for name in CRITERIA:
        cell = row[name]
        if cell not in ("", "1", "2", "3", "4", "5"):
            problems.append(f"line {number}: `{name}` must be 1, 2, 3, 4 or 5, got {cell[:40]!r}")
        scores[name] = int(cell) if cell in ("1", "2", "3", "4", "5") else None
    name = row["reader"]
    if not 1 <= len(name) <= 100 or not name.isprintable():
        problems.append(f"line {number}: `reader` must be a name of 1 to 100 characters, got {name[:40]!r}")
    return RatingRow(number, row["answer_id"], f"file:{name}", scores)
