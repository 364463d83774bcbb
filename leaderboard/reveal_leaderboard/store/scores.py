"""Database queries on scores, receipts, the entries that a board shows, and flags for moderators.

Conventions
-----------
The column `shown_of` of a score is the id of the submission whose released scores are shown: the same submission, or
another one of the team (decided in :mod:`reveal_leaderboard.release.outcomes`). Every function runs in its caller's
transaction.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import sqlalchemy as sa

from reveal_leaderboard.settings import BenchmarkSettings
from reveal_leaderboard.store import events
from reveal_leaderboard.store.database import moment
from reveal_leaderboard.store.submissions import Submission
from reveal_leaderboard.store.tables import boards, fingerprints, flags, results, scores, submissions, versions

Part = Literal["public", "final"]


@dataclass(frozen=True, slots=True)
class Score:
    """A stored score; `released` is :class:`reveal_leaderboard.release.release.ReleasedScore` as JSON.

    Attributes
    ----------
    part : "public" or "final"
    shown_of : id of the submission whose scores are shown
    """

    submission_id: str
    version: str
    part: str
    released: Mapping[str, Any]
    shown_of: str
    signature: str
    reference_hash: str
    scored_at: float

    @property
    def is_held(self) -> bool:
        """True if the scores of another submission are shown."""
        return self.shown_of != self.submission_id


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A stored receipt; `document` is the signed text, `hash` its SHA-256."""

    id: int
    submission_id: str
    version: str
    part: str
    document: str
    signature: str
    key_id: str
    previous: str
    hash: str

    def to_file(self) -> dict[str, Any]:
        """Return the receipt file, which ``reveal-bench verify-receipt`` reads."""
        return {"receipt": json.loads(self.document), "hash": self.hash, "signature": self.signature}


Signing = Callable[[sa.Connection, Submission, Score], object]
"""Function that writes the receipt of a score in the transaction that writes the score."""


@dataclass(frozen=True, slots=True)
class ScoringVerdict:
    """Consequences for a scored submission: whether it is charged, the id of the submission whose scores it shows, and
    the reason if these are not its own.
    """

    is_charged: bool
    shown_of: str
    why: str


class RecordableOutcome(Protocol):
    """A result of scoring that can write itself into the database."""

    def record(
        self,
        connection: sa.Connection,
        submission_id: str,
        version: str,
        settings: BenchmarkSettings,
        *,
        is_first: bool,
        who: str,
        sign: Signing | None,
    ) -> ScoringVerdict:
        """Write the scores of a submission and everything that follows from them, in the caller's transaction."""


def ranked_part(connection: sa.Connection, benchmark: str, version: str) -> Part:
    """Return the part of the holdout that ranks a version: "final" once its final scores are shown, otherwise "public".

    Final scores are shown once the version's board is closed or shows another version.
    """
    is_over = sa.or_(
        versions.c.frozen_at.is_not(None),
        sa.and_(boards.c.state == "closed", boards.c.version == versions.c.version),
    )
    query = (
        sa.select(versions.c.version)
        .join(boards, boards.c.benchmark == versions.c.benchmark)
        .where(versions.c.benchmark == benchmark, versions.c.version == version, is_over)
    )
    is_shown = connection.execute(query).one_or_none() is not None
    return "final" if is_shown and has_final(connection, benchmark, version) else "public"


def ranking_scores(shown: Iterable[Score]) -> list[Score]:
    """Return a submission's score on each version that counts for its rank: the final one if it is `shown`."""
    by_version: dict[str, Score] = {}
    for score in shown:
        if score.part == "final" or score.version not in by_version:
            by_version[score.version] = score
    return list(by_version.values())


def has_final(connection: sa.Connection, benchmark: str, version: str) -> bool:
    """Return True if the version has final scores."""
    query = (
        sa.select(scores.c.submission_id)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version, scores.c.part == "final")
        .limit(1)
    )
    return connection.execute(query).one_or_none() is not None


def final_share_of(connection: sa.Connection, benchmark: str, version: str) -> float | None:
    """Return the share of patients that a version's latest score reserved for final scores; None without scores."""
    query = (
        sa.select(scores.c.released)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version)
        .order_by(scores.c.scored_at.desc())
        .limit(1)
    )
    released = connection.execute(query).scalar_one_or_none()
    return None if released is None else float(released["policy"].get("final_share", 0.0))


def on_board(connection: sa.Connection, benchmark: str, version: str, part: Part | None = None) -> list[sa.Row[Any]]:
    """Return the rows that a version shows (submission columns, then score columns as `score_NAME`), oldest first.

    These are scores on `part` (by default the part that ranks the version) of submissions that show their own scores
    and are neither withdrawn nor hidden. For each model of a team, the chosen submission is shown, otherwise the
    newest. A frozen version keeps the rows that it showed when frozen (:func:`freeze`), except for rows hidden later.
    Later choices and withdrawals affect only the next version. A row that is withdrawn or hidden after the board closed
    leaves it without a successor, because its team has seen the final scores of the others.
    """
    kept = _frozen(connection, benchmark, version)
    closed_at = _closed_at(connection, benchmark, version)
    columns = [column.label(f"score_{column.name}") for column in scores.columns]
    query = (
        sa.select(submissions, *columns)
        .join(scores, scores.c.submission_id == submissions.c.id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version)
        .where(scores.c.part == (part or ranked_part(connection, benchmark, version)))
        .where(scores.c.shown_of == scores.c.submission_id, submissions.c.status == "scored")
        .order_by(submissions.c.created_at, submissions.c.id)
    )
    if kept is not None:
        return [row for row in connection.execute(query) if row.id in kept and row.hidden_at is None]
    for left_at in (submissions.c.withdrawn_at, submissions.c.hidden_at):
        query = query.where(left_at.is_(None) if closed_at is None else sa.or_(left_at.is_(None), left_at > closed_at))
    by_model: dict[tuple[str, str], sa.Row[Any]] = {}
    for row in connection.execute(query):
        model = (row.team_id, row.model_name)
        if model not in by_model or row.is_chosen or not by_model[model].is_chosen:
            by_model[model] = row
    shown = [row for row in by_model.values() if row.withdrawn_at is None and row.hidden_at is None]
    return sorted(shown, key=lambda row: (row.created_at, row.id))


def _closed_at(connection: sa.Connection, benchmark: str, version: str) -> float | None:
    """Return the time at which the board of this version closed; None if it is not closed, or shows another version."""
    is_closed = (boards.c.benchmark == benchmark, boards.c.version == version, boards.c.state == "closed")
    time: float | None = connection.execute(sa.select(boards.c.changed_at).where(*is_closed)).scalar_one_or_none()
    return time


def freeze(connection: sa.Connection, benchmark: str, version: str) -> None:
    """Freeze a version: record the rows that it shows now, so that it never shows other rows."""
    document = {"entries": [row.id for row in on_board(connection, benchmark, version)]}
    key = {"kind": "frozen", "benchmark": benchmark, "version": version, "subject": "board"}
    connection.execute(results.insert().values(**key, document=document, computed_at=moment(connection)))


def place_holder(connection: sa.Connection, submission: Submission, version: str) -> str | None:
    """Return another submission of the team with the same predictions that keeps this scored submission off the board,
    or None. The other submission is shown instead, or was hidden: hidden predictions must not return under another
    name.
    """
    mine = (fingerprints.c.submission_id == submission.id, fingerprints.c.version == version)
    content = connection.execute(sa.select(fingerprints.c.content).where(*mine)).scalar_one_or_none()
    holder = None if content is None else holder_of(twins_of(connection, submission, version, content))
    return None if holder is None else str(holder.submission_id)


def raise_flag(
    connection: sa.Connection, submission_id: str, kind: str, other_id: str | None, detail: str, *, who: str = "store"
) -> str:
    """Flag a submission for the moderators, and return the flag's id."""
    flag_id = secrets.token_hex(16)
    values = {"submission_id": submission_id, "kind": kind, "other_id": other_id, "detail": detail[:500]}
    connection.execute(flags.insert().values(id=flag_id, raised_at=moment(connection), **values))
    why = f"{kind} of submission {submission_id}"
    events.append(connection, subject=f"flag:{flag_id}", who=who, to_status="raised", why=why)
    return flag_id


def twins_of(connection: sa.Connection, submission: Submission, version: str, content: str) -> Sequence[sa.Row[Any]]:
    """Return the scores of the team's submissions with the same predictions, oldest first."""
    query = (
        sa.select(scores, submissions.c.withdrawn_at, submissions.c.hidden_at)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .join(
            fingerprints,
            sa.and_(fingerprints.c.submission_id == scores.c.submission_id, fingerprints.c.version == scores.c.version),
        )
        .where(submissions.c.team_id == submission.team_id, submissions.c.benchmark == submission.benchmark)
        .where(scores.c.version == version, scores.c.part == "public", fingerprints.c.content == content)
        .where(submissions.c.id != submission.id)
        .order_by(scores.c.scored_at, scores.c.submission_id)
    )
    return connection.execute(query).all()


def holder_of(twins: Sequence[sa.Row[Any]]) -> sa.Row[Any] | None:
    """Return the score that keeps its duplicates off the board: that of a hidden submission, otherwise one not
    withdrawn.
    """
    hidden = [twin for twin in twins if twin.hidden_at is not None]
    there = [twin for twin in twins if shows_its_own(twin) and twin.withdrawn_at is None]
    return next(iter([*hidden, *there]), None)


def shows_its_own(score: sa.Row[Any]) -> bool:
    """Return the SQL condition that a score shows the values of its own submission."""
    return bool(score.shown_of == score.submission_id)


def _frozen(connection: sa.Connection, benchmark: str, version: str) -> frozenset[str] | None:
    """Return the ids of submissions that a frozen version shows; None if the version is not frozen."""
    key = {"kind": "frozen", "benchmark": benchmark, "version": version, "subject": "board"}
    document = connection.execute(sa.select(results.c.document).filter_by(**key)).scalar_one_or_none()
    return None if document is None else frozenset(document["entries"])
