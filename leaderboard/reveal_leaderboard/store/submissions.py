"""Submissions as the database keeps them, and the queries that find them.

Conventions
-----------
A submission is named by a random id, its team by its own, and `team` is the team's name as shown. `filename` is for
display only: the file lies under its `sha256`. Beside it, under `canonical`, lie its predictions as the lint found them
(:mod:`reveal_leaderboard.custody.arrays`). The file is the source of truth: where they are missing, damaged or of
another stamp, it is linted again. Functions run in their caller's transaction; only :func:`lock_known` locks.
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
    """An Idempotency-Key came back with another submission."""


class NotAllowedError(ValueError):
    """The state of the submission does not allow this now."""


class OtherThresholdsError(ValueError):
    """The file was sent before under the same name, with other thresholds."""


class UnknownSubmissionError(LookupError):
    """There is no submission with this id."""


@dataclass(frozen=True, slots=True)
class NewSubmission:
    """What is known of a submission when it is queued; `filename` is for display only, the file lies under `sha256`.

    Attributes
    ----------
    canonical : SHA-256 of its predictions as arrays; None if they are not kept
    stamp : of these arrays
    signs : what the lint saw in the file, for moderators
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
    """A row of the table of submissions, with the name of its team.

    Attributes
    ----------
    withdrawn_at : when its team took it back, before or after it was scored
    hidden_at, hidden_why : when and why an admin took it off the board
    is_chosen : it is the one of its model that is shown
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
    """Submissions, oldest first."""
    query = sa.select(submissions, teams.c.name.label("team")).join(teams, teams.c.id == submissions.c.team_id)
    query = query.where(*where).order_by(submissions.c.created_at, submissions.c.id)
    return [Submission(**row._mapping) for row in connection.execute(query)]


def find_one(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> Submission | None:
    """The first of them, if there is one."""
    return next(iter(find_all(connection, *where)), None)


def get_known(connection: sa.Connection, submission_id: str) -> Submission:
    """The submission with this id.

    Raises
    ------
    UnknownSubmissionError
        If there is none.
    """
    found = find_one(connection, submissions.c.id == submission_id)
    if found is None:
        raise UnknownSubmissionError(f"there is no submission {submission_id!r}")
    return found


def lock_known(connection: sa.Connection, submission_id: str) -> Submission:
    """The same with its team, its job and itself locked, in this order."""
    found = get_known(connection, submission_id)
    connection.execute(locked(sa.select(teams.c.id).where(teams.c.id == found.team_id))).one()
    job = sa.and_(jobs.c.kind == "score", jobs.c.subject == submission_id)
    connection.execute(locked(sa.select(jobs.c.id).where(job))).all()
    connection.execute(locked(sa.select(submissions.c.id).where(submissions.c.id == submission_id))).one()
    return get_known(connection, submission_id)


def find_repeated(connection: sa.Connection, new: NewSubmission) -> Submission | None:
    """The submission that `new` repeats: the one of its Idempotency-Key, else the same file for the same model.

    Raises
    ------
    KeyReusedError
        If the key belongs to another file, model, benchmark or version.
    """
    of_team = submissions.c.team_id == new.team_id
    same = ("benchmark", "version", "model_name", "sha256")
    if new.idempotency_key is not None:
        found = find_one(connection, of_team, submissions.c.idempotency_key == new.idempotency_key)
        if found is not None:
            if any(getattr(found, name) != getattr(new, name) for name in same):
                raise KeyReusedError(f"`Idempotency-Key` was used for submission {found.id}, which is another one")
            return found
    return find_one(connection, of_team, *(submissions.c[name] == getattr(new, name) for name in same))


def stored_names(connection: sa.Connection) -> tuple[set[str], set[str]]:
    """Hashes of all uploads, and of all predictions kept as arrays; of a database that knows no such, none of these."""
    table = submissions.c
    uploads = set(connection.execute(sa.select(table.sha256).distinct()).scalars())
    if all(column["name"] != "canonical" for column in sa.inspect(connection).get_columns("submissions")):
        return uploads, set()
    kept = sa.select(table.canonical).where(table.canonical.is_not(None)).distinct()
    return uploads, set(connection.execute(kept).scalars())


def note(
    connection: sa.Connection, submission_id: str, before: str | None, after: str, who: str, why: str = ""
) -> None:
    """Append an event of a submission."""
    subject = f"submission:{submission_id}"
    events.append(connection, subject=subject, who=who, from_status=before, to_status=after, why=why)


def waits_for_approval(name: str) -> str:
    """What is said when the team `name`, which nobody has approved yet, would submit."""
    return f"{name} waits for the maintainers’ approval and may submit once they have given it"
