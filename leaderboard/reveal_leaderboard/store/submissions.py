"""Submissions as plain data, and the database queries that find them.

Conventions
-----------
Submissions and teams have random ids; `team` is the team's displayed name. `filename` is for display only: the file is
stored under its `sha256`. The parsed predictions are stored under the hash `canonical`
(:mod:`reveal_leaderboard.custody.arrays`). If the parsed predictions are missing, damaged or have another stamp, the
file is parsed again. Functions run in their caller's transaction; only :func:`lock_known` takes locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.store import events
from reveal_leaderboard.store.database import locked
from reveal_leaderboard.store.tables import jobs, submissions, teams


class KeyReusedError(ValueError):
    """The Idempotency-Key was used for another submission."""


class NotAllowedError(ValueError):
    """The status of the submission or its team does not allow the action now."""


class OtherThresholdsError(ValueError):
    """The file was sent before under the same name with other thresholds."""


class UnknownSubmissionError(LookupError):
    """No submission has this id."""


@dataclass(frozen=True, slots=True)
class NewSubmission:
    """A submission to be queued; `filename` is for display only, the file is stored under `sha256`.

    Attributes
    ----------
    canonical : SHA-256 of the parsed predictions; None if they are not stored
    stamp : manifest and format with which the parsed predictions can be read
    signs : unusual patterns that the linter found in the file, as sentences for moderators
    """

    benchmark: str
    version: str
    split: str
    team_id: str
    user_id: str
    model_name: str
    kind: str
    prompt_style: str | None
    metadata: Mapping[str, Any]
    filename: str
    sha256: str
    size: int
    allow_missing: bool = False
    idempotency_key: str | None = None
    canonical: str | None = None
    stamp: str | None = None
    signs: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Submission(NewSubmission):
    """A stored submission, with the name of its team.

    Attributes
    ----------
    withdrawn_at : time when the team withdrew the submission, before or after scoring
    hidden_at, hidden_why : time when an admin hid the submission from the board, and the reason
    is_chosen : whether the team chose this submission to be shown for its model
    """

    id: str = ""
    status: str = "queued"
    incident: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    withdrawn_at: float | None = None
    hidden_at: float | None = None
    hidden_why: str | None = None
    is_chosen: bool = False
    team: str = ""


def find_all(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Submission]:
    """Return the selected submissions, oldest first."""
    query = sa.select(submissions, teams.c.name.label("team")).join(teams, teams.c.id == submissions.c.team_id)
    query = query.where(*where).order_by(submissions.c.created_at, submissions.c.id)
    return [Submission(**row._mapping) for row in connection.execute(query)]


def find_one(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> Submission | None:
    """Return the oldest selected submission, or None."""
    return next(iter(find_all(connection, *where)), None)


def get_known(connection: sa.Connection, submission_id: str) -> Submission:
    """Return the submission with this id.

    Raises
    ------
    UnknownSubmissionError
        If it does not exist.
    """
    submission = find_one(connection, submissions.c.id == submission_id)
    if submission is None:
        raise UnknownSubmissionError(f"no submission {submission_id!r}")
    return submission


def lock_known(connection: sa.Connection, submission_id: str) -> Submission:
    """Lock the submission's team, its job and the submission, in this order, and return the submission."""
    submission = get_known(connection, submission_id)
    connection.execute(locked(sa.select(teams.c.id).where(teams.c.id == submission.team_id))).one()
    job = sa.and_(jobs.c.kind == "score", jobs.c.subject == submission_id)
    connection.execute(locked(sa.select(jobs.c.id).where(job))).all()
    connection.execute(locked(sa.select(submissions.c.id).where(submissions.c.id == submission_id))).one()
    return get_known(connection, submission_id)


def find_repeated(connection: sa.Connection, new: NewSubmission) -> Submission | None:
    """Return the earlier submission with the Idempotency-Key of `new`, or else with its file and model; None if there
    is none.

    Raises
    ------
    KeyReusedError
        If the key belongs to another file, model, benchmark or version.
    """
    of_team = submissions.c.team_id == new.team_id
    same = ("benchmark", "version", "model_name", "sha256")
    if new.idempotency_key is not None:
        same_key = find_one(connection, of_team, submissions.c.idempotency_key == new.idempotency_key)
        if same_key is not None:
            if any(getattr(same_key, name) != getattr(new, name) for name in same):
                raise KeyReusedError(f"`Idempotency-Key` was used for the different submission {same_key.id}")
            return same_key
    return find_one(connection, of_team, *(submissions.c[name] == getattr(new, name) for name in same))


def stored_names(connection: sa.Connection) -> tuple[set[str], set[str]]:
    """Return (hashes of all uploads, hashes of all parsed predictions)."""
    table = submissions.c
    uploads = set(connection.execute(sa.select(table.sha256).distinct()).scalars())
    kept = sa.select(table.canonical).where(table.canonical.is_not(None)).distinct()
    return uploads, set(connection.execute(kept).scalars())


def note(
    connection: sa.Connection, submission_id: str, before: str | None, after: str, who: str, why: str = ""
) -> None:
    """Append an event about a submission."""
    subject = f"submission:{submission_id}"
    events.append(connection, subject=subject, who=who, from_status=before, to_status=after, why=why)


def waits_for_approval(name: str) -> str:
    """Return the message for a team that tries to submit before it is approved."""
    return f"{name} awaits the maintainers’ approval and may submit once approved"
