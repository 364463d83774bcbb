"""Submissions in the database and their changes; every change is one transaction that appends an event.

Conventions
-----------
The status of a submission is ``received -> linted -> queued -> scoring -> scored | refused | failed``, or `withdrawn`
while queued; answers to tasks wait for readers in between (`reading`, see :mod:`reveal_leaderboard.boards.reading`). A
submission's row summarises its events. A scored submission that is withdrawn leaves the board, but stays charged.
Scores on a version are not shown before the version is on the board, and final scores not before their version is
frozen or its board is closed.

The same file by the same team under the same model name is one submission. If this submission failed, was refused, or
was withdrawn before it was scored, sending the file again queues the submission under the same id. If it was withdrawn
after it was scored, sending the file again returns it to the board at no cost, unless the same predictions are shown
under another name or were hidden.

:meth:`Store.check_sending` refuses early what :meth:`Store.add_submission` would refuse, so that no file is stored
needlessly. The decision is made in :meth:`Store.add_submission`, which locks the board and the team. For the order of
locks see :mod:`reveal_leaderboard.store.database`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.settings import Settings, load_settings
from reveal_leaderboard.store import events, quota
from reveal_leaderboard.store.boards import BoardClosedError, board, check_open_board, rank_again
from reveal_leaderboard.store.database import connect, keep_private, locked, migrate, moment, reading
from reveal_leaderboard.store.events import Event
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.quota import QuotaExceededError
from reveal_leaderboard.store.scores import Part, Score, on_board, place_holder, ranked_part, ranking_scores
from reveal_leaderboard.store.submissions import (
    KeyReusedError,
    NewSubmission,
    NotAllowedError,
    OtherThresholdsError,
    Submission,
    UnknownSubmissionError,
    find_all,
    find_one,
    find_repeated,
    get_known,
    lock_known,
    note,
    waits_for_approval,
)
from reveal_leaderboard.store.tables import boards, flags, jobs, scores, submissions, teams, versions

__all__ = [
    "BoardClosedError",
    "Event",
    "Flag",
    "KeyReusedError",
    "NewSubmission",
    "NotAllowedError",
    "OtherThresholdsError",
    "QuotaExceededError",
    "Score",
    "Store",
    "Submission",
    "UnknownSubmissionError",
]

_ID = re.compile(r"[0-9a-f]{1,32}")
RESENDABLE = ("refused", "failed", "withdrawn")


def _lock_board(connection: sa.Connection, new: NewSubmission, settings: Settings) -> bool:
    """Return True if the board accepts `new`; earlier submissions are found even if it does not."""
    try:
        check_open_board(connection, new.benchmark, new.version, settings.of(new.benchmark).round, lock=True)
    except BoardClosedError:
        if find_repeated(connection, new) is None:
            raise
        return False
    return True


def _check_team(connection: sa.Connection, query: sa.Select[Any]) -> None:
    team = connection.execute(query).one()
    if team.disabled_at is not None:
        raise NotAllowedError(f"the team {team.name} is disabled")
    if team.waiting_since is not None:
        raise NotAllowedError(waits_for_approval(team.name))


def _check_thresholds(known: Submission, new: NewSubmission) -> None:
    """Refuse a known file with other thresholds, because one submission id would then have two different scores."""
    if known.metadata.get("thresholds") != new.metadata.get("thresholds"):
        raise OtherThresholdsError(f"`thresholds` must equal those of submission {known.id}, which is the same file")


def _is_replay(known: Submission, new: NewSubmission) -> bool:
    """Return True if `new` and `known` have the same Idempotency-Key, so that the request is a repetition."""
    return new.idempotency_key is not None and known.idempotency_key == new.idempotency_key


def _send(connection: sa.Connection, new: NewSubmission, settings: Settings, who: str) -> Submission:
    submission_id = secrets.token_hex(16)
    at = moment(connection)
    row = asdict(new) | {"metadata": dict(new.metadata), "id": submission_id, "status": "queued"}
    row |= {"created_at": at, "updated_at": at, "is_chosen": False}
    connection.execute(submissions.insert().values(**row))
    _queue(connection, submission_id, new, settings, who)
    for before, after in ((None, "received"), ("received", "linted"), ("linted", "queued")):
        note(connection, submission_id, before, after, who)
    return get_known(connection, submission_id)


def _send_again(
    connection: sa.Connection, known: Submission, new: NewSubmission, settings: Settings, who: str
) -> Submission:
    columns = ("user_id", "kind", "prompt_style", "filename", "allow_missing", "idempotency_key")
    values: dict[str, Any] = {name: getattr(new, name) for name in (*columns, "canonical", "stamp", "signs")}
    values |= {"metadata": dict(new.metadata), "status": "queued", "incident": None}
    values |= {"withdrawn_at": None, "updated_at": moment(connection)}
    _queue(connection, known.id, new, settings, who)
    connection.execute(submissions.update().where(submissions.c.id == known.id).values(**values))
    note(connection, known.id, known.status, "queued", who, "sent again")
    return get_known(connection, known.id)


def _show_again(connection: sa.Connection, known: Submission, who: str) -> Submission:
    holder = place_holder(connection, known, known.version)
    if holder is not None:
        raise NotAllowedError(f"the same predictions are on the board, or were hidden there, as submission {holder}")
    rank_again(connection, known)
    values = {"withdrawn_at": None, "updated_at": moment(connection)}
    connection.execute(submissions.update().where(submissions.c.id == known.id).values(**values))
    note(connection, known.id, "withdrawn", "scored", who, "sent again; it is shown again")
    return get_known(connection, known.id)


def _queue(connection: sa.Connection, submission_id: str, new: NewSubmission, settings: Settings, who: str) -> None:
    quota.reserve(connection, submission_id, new.team_id, new.benchmark, new.version, settings, who=who)
    Queue.put(connection, "score", new.benchmark, new.version, submission_id)


@dataclass(frozen=True, slots=True)
class Flag:
    """A notice about a submission for the moderators."""

    id: str
    submission_id: str
    kind: str
    other_id: str | None
    detail: str
    raised_at: float
    cleared_at: float | None
    cleared_by: str | None


class Store:
    """Submissions, scores and flags in the database at `url`, whose tables are migrated first.

    Parameters
    ----------
    url : ``sqlite:///FILE`` or ``postgresql+psycopg://...``
    settings : settings of the boards, by default the packaged settings
    """

    def __init__(self, url: str | sa.URL, settings: Settings | None = None) -> None:
        self.settings = load_settings() if settings is None else settings
        keep_private(url)
        self.engine = connect(url)
        self._reading = reading(self.engine)
        migrate(self.engine)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Yield a connection that sees one snapshot of the database and cannot write."""
        with self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Yield a connection whose changes are committed together at the end of the block, or not at all."""
        with self.engine.begin() as connection:
            yield connection

    # Sending --------------------------------------------------------------------------------------------------------

    def add_submission(self, new: NewSubmission, *, who: str) -> tuple[Submission, bool]:
        """Queue a linted submission; a file that the team sent before under the same model name is not queued twice.

        Returns
        -------
        (submission, whether it was queued by this call)

        Raises
        ------
        KeyReusedError
            If the team used this Idempotency-Key for a different submission.
        BoardClosedError
            If the board does not accept submissions to this version now.
        NotAllowedError
            If the team is disabled, or if the submission was scored and withdrawn, and its predictions are now shown
            under another name.
        OtherThresholdsError
            If the file was sent before under this name with other thresholds, and need not be scored again.
        QuotaExceededError
            If a budget is used up: the team's total, the team's day, or the board's total.
        """
        with self.write() as connection:
            is_open = _lock_board(connection, new, self.settings)
            _check_team(connection, locked(sa.select(teams).where(teams.c.id == new.team_id)))
            known = find_repeated(connection, new)
            if known is None:
                return _send(connection, new, self.settings, who), True
            is_new_wish = is_open and not _is_replay(known, new)
            if is_new_wish and known.status in RESENDABLE:
                return _send_again(connection, known, new, self.settings, who), True
            _check_thresholds(known, new)
            if is_new_wish and known.status == "scored" and known.withdrawn_at is not None:
                return _show_again(connection, known, who), False
            return known, False

    def check_sending(self, new: NewSubmission) -> None:
        """Raise the error that :meth:`add_submission` would raise now; write nothing."""
        with self.read() as connection:
            _check_team(connection, sa.select(teams).where(teams.c.id == new.team_id))
            known = find_repeated(connection, new)
            if known is not None and (known.status not in RESENDABLE or _is_replay(known, new)):
                _check_thresholds(known, new)
                return
            try:
                check_open_board(connection, new.benchmark, new.version, self.settings.of(new.benchmark).round)
            except BoardClosedError:
                if known is None:
                    raise
                _check_thresholds(known, new)
                return
            balance = quota.balance(connection, new.team_id, new.benchmark, new.version, self.settings)
            if not balance.may_send:
                raise QuotaExceededError(balance)

    # Looking --------------------------------------------------------------------------------------------------------

    def get(self, submission_id: str) -> Submission | None:
        """Return the submission, or None."""
        if not _ID.fullmatch(submission_id):  # such as a text with a NUL, which PostgreSQL refuses
            return None
        with self.read() as connection:
            return find_one(connection, submissions.c.id == submission_id)

    def events_of(self, submission_id: str) -> list[Event]:
        """Return a submission's events, oldest first."""
        with self.read() as connection:
            return events.history(connection, f"submission:{submission_id}")

    def score_of(self, submission_id: str, version: str | None = None, part: str | None = None) -> Score | None:
        """Return a submission's score on a version, if it may be shown; by default on the part that ranks.

        Without `version`, return the score on the board's version or else the latest score.
        """
        shown = self.scores_of(submission_id)
        matches = ranking_scores(shown) if part is None else [score for score in shown if score.part == part]
        if version is not None:
            return next((score for score in matches if score.version == version), None)
        return matches[-1] if matches else None

    def scores_of(self, submission_id: str) -> list[Score]:
        """Return all scores of a submission that may be shown, in the order of their versions."""
        is_final_shown = sa.or_(versions.c.frozen_at.is_not(None), boards.c.state == "closed")
        query = (
            sa.select(scores)
            .join(submissions, submissions.c.id == scores.c.submission_id)
            .join(
                versions,
                sa.and_(versions.c.benchmark == submissions.c.benchmark, versions.c.version == scores.c.version),
            )
            .join(boards, boards.c.benchmark == submissions.c.benchmark)
            .where(scores.c.submission_id == submission_id, versions.c.shown_at.is_not(None))
            .where(sa.or_(scores.c.part == "public", is_final_shown))
            .order_by(versions.c.shown_at, scores.c.part)
        )
        with self.read() as connection:
            return [Score(**row._mapping) for row in connection.execute(query)]

    def board_rows(self, benchmark: str, version: str, part: Part | None = None) -> list[tuple[Submission, Score]]:
        """Return the entries that the board shows for a version, oldest first; none if the version was never shown.

        See :func:`reveal_leaderboard.store.scores.on_board`.
        """
        with self.read() as connection:
            is_shown = sa.select(versions.c.shown_at).where(
                versions.c.benchmark == benchmark, versions.c.version == version
            )
            if connection.execute(is_shown).scalar_one_or_none() is None:
                return []
            names = {row.id: row.name for row in connection.execute(sa.select(teams.c.id, teams.c.name))}
            rows = on_board(connection, benchmark, version, part)
        pairs = []
        for row in rows:
            fields = {column.name: getattr(row, column.name) for column in submissions.columns}
            score = Score(**{column.name: getattr(row, f"score_{column.name}") for column in scores.columns})
            pairs.append((Submission(**fields, team=names[row.team_id]), score))
        return pairs

    def of_team(self, team_id: str) -> list[Submission]:
        """Return all submissions of a team, oldest first."""
        with self.read() as connection:
            return find_all(connection, submissions.c.team_id == team_id)

    def list_submissions(self) -> list[Submission]:
        """Return all submissions, oldest first."""
        with self.read() as connection:
            return find_all(connection)

    def count_waiting(self) -> int:
        """Return the number of submissions that are queued or being scored."""
        waiting = submissions.c.status.in_(("queued", "scoring"))
        with self.read() as connection:
            return int(connection.execute(sa.select(sa.func.count()).where(waiting)).scalar_one())

    # Changing -------------------------------------------------------------------------------------------------------

    def withdraw(self, submission_id: str, *, who: str) -> Submission:
        """Withdraw a submission.

        Before it is scored, the submission is refunded; a scored submission leaves the board, but stays charged.
        Withdrawing twice does nothing.

        Raises
        ------
        UnknownSubmissionError
            If the submission does not exist.
        NotAllowedError
            If the submission is being scored, was refused or failed; or if it is not scored yet but final scores are
            shown, because its team has seen those of its other submissions.
        """
        with self.write() as connection:
            submission = lock_known(connection, submission_id)
            if submission.status == "withdrawn" or submission.withdrawn_at is not None:
                return submission
            values: dict[str, Any] = {"withdrawn_at": moment(connection), "updated_at": moment(connection)}
            is_in_time = submission.status in ("queued", "reading")
            if is_in_time and ranked_part(connection, submission.benchmark, submission.version) == "final":
                raise NotAllowedError("once final scores are shown, an unscored submission cannot be withdrawn")
            if is_in_time:
                ended = {"status": "cancelled", "ended_at": moment(connection), "why": "withdrawn"}
                job = sa.and_(jobs.c.kind == "score", jobs.c.subject == submission_id, jobs.c.status == "queued")
                connection.execute(jobs.update().where(job).values(**ended))
                quota.refund(connection, submission_id, who=who, why="withdrawn before it was scored")
                values["status"] = "withdrawn"
            elif submission.status == "scored":
                rank_again(connection, submission)
            else:
                raise NotAllowedError(f"a submission that is {submission.status} cannot be withdrawn")
            why = "before it was scored" if is_in_time else "off the board; it stays charged"
            return self._change(connection, submission, values, "withdrawn", who, why)

    def choose(self, submission_id: str, *, who: str) -> Submission:
        """Choose this submission to be shown instead of the team's others under the same model name.

        Raises
        ------
        UnknownSubmissionError
            If the submission does not exist.
        NotAllowedError
            If the submission cannot be on the board: not scored, withdrawn, shows another submission's scores, or has
            no score on the board's version; or if the board is closed, because its team has seen the final scores.
        """
        with self.write() as connection:
            submission = lock_known(connection, submission_id)
            board_now = board(connection, submission.benchmark)
            mine = sa.select(scores.c.version).where(
                scores.c.submission_id == submission_id, scores.c.shown_of == submission_id
            )
            own = set(connection.execute(mine).scalars())
            if submission.status != "scored" or submission.withdrawn_at is not None:
                raise NotAllowedError("only a scored submission that is not withdrawn can be chosen")
            if not own:
                raise NotAllowedError("a submission that shows the scores of another submission cannot be chosen")
            if board_now is None or board_now.version not in own:
                raise NotAllowedError("a submission without a score on the board's version cannot be chosen")
            if board_now.state == "closed":
                raise NotAllowedError("no submission can be chosen once the board is closed")
            names = ("team_id", "benchmark", "model_name")
            same = (submissions.c[name] == getattr(submission, name) for name in names)
            rank_again(connection, submission)
            connection.execute(submissions.update().where(*same, submissions.c.is_chosen).values(is_chosen=False))
            why = "chosen to be shown for its model"
            return self._change(connection, submission, {"is_chosen": True}, "chosen", who, why)

    def hide(self, submission_id: str, *, who: str, why: str) -> Submission:
        """Hide a submission from the board, with a reason; for admins.

        Raises
        ------
        UnknownSubmissionError
            If the submission does not exist.
        ValueError
            If the reason is empty.
        """
        if not why.strip():
            raise ValueError("`why` must contain the reason, got nothing")
        with self.write() as connection:
            submission = lock_known(connection, submission_id)
            rank_again(connection, submission)
            values = {"hidden_at": submission.hidden_at or moment(connection), "hidden_why": why[:500]}
            return self._change(connection, submission, values, "hidden", who, why)

    def restore(self, submission_id: str, *, who: str, why: str) -> Submission:
        """Show a hidden submission again; for admins. A visible submission is not changed.

        Raises
        ------
        UnknownSubmissionError
            If the submission does not exist.
        """
        with self.write() as connection:
            submission = lock_known(connection, submission_id)
            if submission.hidden_at is None:
                return submission
            rank_again(connection, submission)
            return self._change(connection, submission, {"hidden_at": None, "hidden_why": None}, "restored", who, why)

    @staticmethod
    def _change(
        connection: sa.Connection, submission: Submission, values: Mapping[str, Any], to_status: str, who: str, why: str
    ) -> Submission:
        mine = submissions.c.id == submission.id
        connection.execute(submissions.update().where(mine).values(**{"updated_at": moment(connection), **values}))
        note(connection, submission.id, submission.status, to_status, who, why)
        return get_known(connection, submission.id)

    # Flags ----------------------------------------------------------------------------------------------------------

    def flags(self) -> list[Flag]:
        """Return the open flags for moderators, newest first."""
        query = sa.select(flags).where(flags.c.cleared_at.is_(None)).order_by(flags.c.raised_at.desc(), flags.c.id)
        with self.read() as connection:
            return [Flag(**row._mapping) for row in connection.execute(query)]

    def clear_flag(self, flag_id: str, who: str) -> bool:
        """Record that a moderator handled a flag; return False if the flag is unknown or was cleared before."""
        with self.write() as connection:
            mine = sa.and_(flags.c.id == flag_id, flags.c.cleared_at.is_(None))
            values = {"cleared_at": moment(connection), "cleared_by": who}
            if connection.execute(flags.update().where(mine).values(**values)).rowcount != 1:
                return False
            subject = f"flag:{flag_id}"
            events.append(connection, subject=subject, who=who, from_status="raised", to_status="cleared")
            return True
