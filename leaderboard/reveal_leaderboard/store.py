"""Submissions and what happens to them: every change is one transaction that also appends an event.

Conventions
-----------
``received -> linted -> queued -> scoring -> scored | refused | failed``. The row of a submission is only the summary of
its events. A worker *leases* a queued submission: the lease carries a number (the fence) that grows with every lease,
and whatever the worker reports later counts only while the row still bears that number. So a worker that was presumed
dead cannot write after its successor, and a result is written once. Clock: the database's, see
:mod:`reveal_leaderboard.database`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from reveal_leaderboard.database import connect, events, migrate, now, scores, submissions

__all__ = ["Event", "KeyReusedError", "NewSubmission", "Score", "Store", "Submission"]

LEASE_SECONDS = 60.0
MAX_ATTEMPTS = 3


class KeyReusedError(ValueError):
    """An Idempotency-Key came back with another submission."""


@dataclass(frozen=True, slots=True)
class NewSubmission:
    """What is known of a submission when it is queued; `filename` is for display only, the file lies under `sha256`."""

    benchmark: str
    version: str
    split: str
    team: str
    model_name: str
    kind: str
    prompt_style: str | None
    metadata: Mapping[str, Any]
    filename: str
    sha256: str
    size: int
    allow_missing: bool = False
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Submission(NewSubmission):
    """A row of the table of submissions."""

    id: str = ""
    status: str = "queued"
    attempts: int = 0
    fence: int = 0
    lease_until: float | None = None
    worker: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    incident: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a submission: when, by whom, from where to where, and why (shown to the public)."""

    at: float
    who: str
    from_status: str | None
    to_status: str
    why: str


@dataclass(frozen=True, slots=True)
class Score:
    """A released score: `released` is the JSON form of :class:`reveal_leaderboard.release.ReleasedScore`."""

    submission_id: str
    released: Mapping[str, Any]
    signature: str
    reference_hash: str
    scored_at: float


class Store:
    """Queries on the database at `url`, whose tables are brought up to date first."""

    def __init__(self, url: str) -> None:
        self.engine = connect(url)
        self._reading = self.engine.execution_options(reading=True)
        migrate(self.engine)

    def add_submission(self, new: NewSubmission, *, who: str) -> tuple[Submission, bool]:
        """Queue a linted submission; the same file by the same team under the same name is queued once.

        Returns
        -------
        (submission, whether it is new)

        Raises
        ------
        KeyReusedError
            If the team used this Idempotency-Key for another submission.
        """
        try:
            return self._insert(new, who), True
        except IntegrityError:
            existing = self._existing(new)
            if existing is None:
                raise
            return existing, False

    def _insert(self, new: NewSubmission, who: str) -> Submission:
        with self.engine.begin() as connection:
            moment = _now(connection)
            row = Submission(**asdict(new), id=secrets.token_hex(12), created_at=moment, updated_at=moment)
            connection.execute(submissions.insert().values(**asdict(row)))
            steps: list[tuple[str | None, str, str]] = [
                (None, "received", f"{new.size} bytes, sha256 {new.sha256}"),
                ("received", "linted", "no errors"),
                ("linted", "queued", ""),
            ]
            for before, after, why in steps:
                _append(connection, row.id, moment, who, before, after, why)
        return row

    def _existing(self, new: NewSubmission) -> Submission | None:
        table = submissions.c
        content = [
            table.team == new.team,
            table.benchmark == new.benchmark,
            table.version == new.version,
            table.model_name == new.model_name,
            table.sha256 == new.sha256,
        ]
        with self._reading.begin() as connection:
            row = connection.execute(sa.select(submissions).where(*content)).one_or_none()
            if row is not None:
                return Submission(**row._mapping)
            if new.idempotency_key is None:
                return None
            key = [table.team == new.team, table.idempotency_key == new.idempotency_key]
            reused = connection.execute(sa.select(table.id).where(*key)).scalar_one_or_none()
        if reused is not None:
            raise KeyReusedError(f"this Idempotency-Key belongs to submission {reused}, which is another file or model")
        return None

    def claim(
        self,
        worker: str,
        *,
        served: Sequence[tuple[str, str]],
        lease_seconds: float = LEASE_SECONDS,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> Submission | None:
        """Lease the oldest submission to one of the `served` (benchmark, version) pairs; None if there is none.

        A submission whose lease ran out `max_attempts` times stopped its worker each time: it fails.
        """
        table = submissions.c
        with self.engine.begin() as connection:
            moment = _now(connection)
            abandoned = sa.and_(table.status == "scoring", table.lease_until < moment)
            self._fail_exhausted(connection, moment, abandoned, max_attempts)
            ours = sa.or_(sa.false(), *(sa.and_(table.benchmark == b, table.version == v) for b, v in served))
            candidate = (
                sa.select(submissions)
                .where(ours, sa.or_(table.status == "queued", abandoned))
                .order_by(table.created_at, table.id)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            row = connection.execute(candidate).one_or_none()
            if row is None:
                return None
            changes = {
                "status": "scoring",
                "attempts": row.attempts + 1,
                "fence": row.fence + 1,
                "lease_until": moment + lease_seconds,
                "worker": worker,
                "updated_at": moment,
            }
            connection.execute(submissions.update().where(table.id == row.id).values(**changes))
            why = "" if row.status == "queued" else "the worker before went silent"
            _append(connection, row.id, moment, f"worker:{worker}", row.status, "scoring", why)
        return Submission(**{**row._mapping, **changes})

    def _fail_exhausted(
        self, connection: sa.Connection, moment: float, abandoned: sa.ColumnElement[bool], max_attempts: int
    ) -> None:
        query = sa.select(submissions).where(abandoned, submissions.c.attempts >= max_attempts)
        for row in connection.execute(query.with_for_update(skip_locked=True)).all():
            why = f"scoring stopped without an answer {row.attempts} times; the submission is set aside"
            _move(connection, moment, row.id, "failed", who="store", why=why)

    def heartbeat(self, submission_id: str, fence: int, *, lease_seconds: float = LEASE_SECONDS) -> bool:
        """Prolong a lease; False if it is no longer the caller's."""
        with self.engine.begin() as connection:
            update = submissions.update().where(*_leased(submission_id, fence))
            return connection.execute(update.values(lease_until=_now(connection) + lease_seconds)).rowcount == 1

    def finish(
        self,
        submission_id: str,
        fence: int,
        *,
        who: str,
        released: Mapping[str, Any],
        signature: str,
        reference_hash: str,
    ) -> bool:
        """Write the result and mark the submission scored, in one transaction; False if the lease is another's."""
        with self.engine.begin() as connection:
            moment = _now(connection)
            if not _move(connection, moment, submission_id, "scored", who=who, why="", fence=fence):
                return False
            score = Score(submission_id, released, signature, reference_hash, moment)
            connection.execute(scores.insert().values(**asdict(score)))
        return True

    def refuse(self, submission_id: str, fence: int, *, who: str, why: str) -> bool:
        """End a submission because of its file; False if the lease is another's."""
        with self.engine.begin() as connection:
            return _move(connection, _now(connection), submission_id, "refused", who=who, why=why, fence=fence)

    def fail(self, submission_id: str, fence: int, *, who: str, why: str, incident: str) -> bool:
        """End a submission because of us; False if the lease is another's."""
        with self.engine.begin() as connection:
            moment = _now(connection)
            return _move(connection, moment, submission_id, "failed", who=who, why=why, fence=fence, incident=incident)

    def get(self, submission_id: str) -> Submission | None:
        """The submission, if there is one."""
        with self._reading.begin() as connection:
            row = connection.execute(sa.select(submissions).where(submissions.c.id == submission_id)).one_or_none()
        return None if row is None else Submission(**row._mapping)

    def events_of(self, submission_id: str) -> list[Event]:
        """What happened to a submission, oldest first."""
        columns = [events.c[name] for name in Event.__slots__]
        query = sa.select(*columns).where(events.c.submission_id == submission_id).order_by(events.c.id)
        with self._reading.begin() as connection:
            return [Event(**row._mapping) for row in connection.execute(query)]

    def score_of(self, submission_id: str) -> Score | None:
        """The released score, once there is one."""
        with self._reading.begin() as connection:
            row = connection.execute(sa.select(scores).where(scores.c.submission_id == submission_id)).one_or_none()
        return None if row is None else Score(**row._mapping)

    def scored(self, benchmark: str, version: str, split: str) -> list[tuple[Submission, Score]]:
        """Scored submissions to one split with their scores, oldest first."""
        table = submissions.c
        query = (
            sa.select(submissions, scores)
            .join(scores, scores.c.submission_id == table.id)
            .where(table.benchmark == benchmark, table.version == version, table.split == split)
            .order_by(table.created_at, table.id)
        )
        with self._reading.begin() as connection:
            rows = connection.execute(query).all()
        width = len(submissions.columns)
        names = [column.name for column in submissions.columns]
        return [(Submission(**dict(zip(names, row[:width], strict=True))), Score(*row[width:])) for row in rows]

    def list_submissions(self, *, status: str | None = None) -> list[Submission]:
        """Submissions, oldest first; of one status if asked."""
        query = sa.select(submissions).order_by(submissions.c.created_at, submissions.c.id)
        if status is not None:
            query = query.where(submissions.c.status == status)
        with self._reading.begin() as connection:
            return [Submission(**row._mapping) for row in connection.execute(query)]

    def queue_position(self, submission: Submission) -> int | None:
        """1 for the next to be scored; None unless queued."""
        if submission.status != "queued":
            return None
        table = submissions.c
        before = sa.or_(
            table.created_at < submission.created_at,
            sa.and_(table.created_at == submission.created_at, table.id < submission.id),
        )
        query = sa.select(sa.func.count()).select_from(submissions).where(table.status == "queued", before)
        with self._reading.begin() as connection:
            return int(connection.execute(query).scalar_one()) + 1


def _now(connection: sa.Connection) -> float:
    return float(connection.execute(sa.select(now())).scalar_one())


def _leased(submission_id: str, fence: int) -> list[sa.ColumnElement[bool]]:
    table = submissions.c
    return [table.id == submission_id, table.status == "scoring", table.fence == fence]


def _move(
    connection: sa.Connection,
    moment: float,
    submission_id: str,
    status: str,
    *,
    who: str,
    why: str,
    fence: int | None = None,
    incident: str | None = None,
) -> bool:
    """Take a submission out of scoring, and append the event; False if its fence is not `fence`."""
    table = submissions.c
    where = [table.id == submission_id, table.status == "scoring"] if fence is None else _leased(submission_id, fence)
    changes = {"status": status, "lease_until": None, "updated_at": moment, "incident": incident}
    if connection.execute(submissions.update().where(*where).values(**changes)).rowcount != 1:
        return False
    _append(connection, submission_id, moment, who, "scoring", status, why)
    return True


def _append(
    connection: sa.Connection, submission_id: str, at: float, who: str, before: str | None, after: str, why: str
) -> None:
    event = Event(at, who, before, after, why)
    connection.execute(events.insert().values(submission_id=submission_id, **asdict(event)))
