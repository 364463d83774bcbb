"""The ledger of scored submissions: a team's remaining budget and how it was spent.

Conventions
-----------
A budget belongs to a team and to one version of one benchmark. Scored submissions to other versions and boards that
hold out some of the same cases count, too (:mod:`reveal_leaderboard.store.cases`), rounded up to whole submissions. So
a submission needs a place in the budget of its own version and of every board that holds out some of its cases, and
no order of submissions reveals more about these cases than their boards allow.

Sending a submission *reserves* one (+1), and a released score *charges* it (0: the reservation becomes final). An
error, a refusal, a timely withdrawal, a repetition or a score of which nothing can be shown *refunds* it (-1), and an
admin may *grant* more (-n). So the sum of a team's amounts, without grants, is the number of its submissions that are
charged or in progress. Every row has a reason, and no row is ever changed.

Repetitions and scores of which nothing can be shown are not counted in the total, but they count for their day, because
scoring them has a cost. They differ from other refunds in that their submission was scored; a scored submission is
never reserved again.

Days are UTC days by the database's clock. :func:`reserve` locks the team's row, and its caller holds the locks of all
boards concerned, so that two simultaneous submissions cannot both take the last place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from reveal_bench.kinds import KINDS
from reveal_leaderboard.settings import Quota, QuotaPolicy, Settings
from reveal_leaderboard.store import events
from reveal_leaderboard.store.cases import boards_sharing, shared_with
from reveal_leaderboard.store.database import locked, moment
from reveal_leaderboard.store.tables import ledger, submissions, teams, versions

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class QuotaBalance:
    """A team's remaining budget of scored submissions on one version of a benchmark.

    Attributes
    ----------
    total : allowed scored submissions, grants included
    charged, pending : submissions scored and in progress
    carried : submissions that count here because other versions or boards hold out the same cases
    left : number of submissions that remain of `total`, and of the totals of boards that hold out the same cases
    per_day, left_today : the day's limit, and the remainder of today
    next_at : when the next one is possible, seconds since 1970 UTC: now or the next midnight; None for never
    board_left : remaining submissions of all teams together
    why : these facts as a sentence
    """

    total: int
    charged: int
    pending: int
    carried: int
    left: int
    per_day: int
    left_today: int
    next_at: float | None
    board_left: int
    why: str

    @property
    def may_send(self) -> bool:
        """True if one more may be sent now."""
        return min(self.left, self.left_today, self.board_left) > 0


class QuotaExceededError(ValueError):
    """No more submissions may be scored now; `balance` says why and until when."""

    def __init__(self, balance: QuotaBalance) -> None:
        super().__init__(balance.why)
        self.balance = balance


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line of the ledger: `kind` is "reserved" (+1), "charged" (0), "refunded" (-1) or "granted" (-n)."""

    id: int
    team_id: str
    benchmark: str
    version: str
    submission_id: str | None
    sending: int
    kind: str
    amount: int
    why: str
    who: str
    at: float


@dataclass(frozen=True, slots=True)
class _Budget:
    """Used parts of the budgets of one version, by a team and by all teams; `today` is about the team."""

    benchmark: str
    quota: Quota
    charged: int
    pending: int
    carried: int
    today: int
    of_all: int

    @property
    def left(self) -> int:
        return max(0, self.quota.total - self.charged - self.pending - self.carried)

    @property
    def left_today(self) -> int:
        return max(0, self.quota.per_day - self.today)

    @property
    def board_left(self) -> int:
        return max(0, self.quota.board_total - self.of_all)


def balance(connection: sa.Connection, team_id: str, benchmark: str, version: str, settings: Settings) -> QuotaBalance:
    """Return a team's current budget: the smallest of the budgets in which a submission takes a place."""
    at = moment(connection)
    midnight = at - at % DAY
    keys = [(benchmark, version), *boards_sharing(connection, benchmark, version)]
    accounts = [_account(connection, team_id, *key, settings, midnight) for key in keys]
    own = accounts[0]
    left, left_today, board_left = (
        min(getattr(account, name) for account in accounts) for name in ("left", "left_today", "board_left")
    )
    next_at = None if not left or not board_left or not own.quota.per_day else at if left_today else midnight + DAY
    return QuotaBalance(
        *(own.quota.total, own.charged, own.pending, own.carried, left, own.quota.per_day, left_today, next_at),
        *(board_left, _sentence(accounts)),
    )


def _account(
    connection: sa.Connection, team_id: str, benchmark: str, version: str, settings: Settings, midnight: float
) -> _Budget:
    quota = _on_version(connection, benchmark, version, settings.of(benchmark).quota)
    is_own = ledger.c.team_id == team_id
    amount, kind = ledger.c.amount, ledger.c.kind
    where = _lines(benchmark, version) & is_own
    by_kind = sa.select(kind, sa.func.sum(amount), sa.func.count()).where(where).group_by(kind)
    lines = {name: (int(total), n) for name, total, n in connection.execute(by_kind)}
    granted = -lines.pop("granted", (0, 0))[0]
    charged = lines.get("charged", (0, 0))[1]
    is_use, is_today = kind != "granted", (ledger.c.at >= midnight) & _STANDS
    carried = _carried(connection, benchmark, version, is_own & is_use)
    today = _sum(connection, where & is_today) + _carried(connection, benchmark, version, is_own & is_today)
    of_all = _sum(connection, _lines(benchmark, version) & is_use) + _carried(connection, benchmark, version, is_use)
    pending = sum(total for total, _ in lines.values()) - charged
    quota = replace(quota, total=quota.total + granted)
    return _Budget(benchmark, quota, charged, pending, carried, today, of_all)


def _carried(connection: sa.Connection, benchmark: str, version: str, where: sa.ColumnElement[bool]) -> int:
    """Return how many submissions on other versions and boards, of those that `where` selects, count on a version."""
    weighted = sum(
        other.weight(benchmark) * _sum(connection, _lines(other.benchmark, other.version) & where)
        for other in shared_with(connection, benchmark, version)
    )
    return math.ceil(round(weighted, 6))


def reserve(
    connection: sa.Connection,
    submission_id: str,
    team_id: str,
    benchmark: str,
    version: str,
    settings: Settings,
    *,
    who: str,
) -> QuotaBalance:
    """Reserve one scored submission for `submission_id`, within the caller's transaction.

    Returns
    -------
    the balance before the reservation

    Raises
    ------
    QuotaExceededError
        If the team's total, its day or the board's total is used up; undo the caller's transaction then.
    ValueError
        If the submission already has a reservation.
    """
    connection.execute(locked(sa.select(teams.c.id).where(teams.c.id == team_id))).one()
    last = _last(connection, submission_id)
    if last is not None and last.kind != "refunded":
        raise ValueError(f"`submission_id` must have nothing reserved, got {submission_id}, {last.kind}")
    before = balance(connection, team_id, benchmark, version, settings)
    if not before.may_send:
        raise QuotaExceededError(before)
    sending = 1 if last is None else last.sending + 1
    row = {"team_id": team_id, "benchmark": benchmark, "version": version, "submission_id": submission_id}
    why = "sent to be scored" if sending == 1 else "sent again"
    _write(connection, row | {"sending": sending}, "reserved", 1, why, who)
    return before


def charge(connection: sa.Connection, submission_id: str, *, who: str, why: str) -> None:
    """Charge the reservation of a submission.

    Raises
    ------
    ValueError
        If nothing is reserved for it.
    """
    _close(connection, submission_id, "charged", 0, why, who)


def refund(connection: sa.Connection, submission_id: str, *, who: str, why: str) -> None:
    """Refund the reservation of a submission.

    Raises
    ------
    ValueError
        If nothing is reserved for it.
    """
    _close(connection, submission_id, "refunded", -1, why, who)


def grant(connection: sa.Connection, team_id: str, benchmark: str, version: str, n: int, *, who: str, why: str) -> None:
    """Grant a team `n` more scored submissions.

    Raises
    ------
    ValueError
        If `n` is less than 1.
    """
    if n < 1:
        raise ValueError(f"`n` must be at least 1, got {n}")
    row = {"team_id": team_id, "benchmark": benchmark, "version": version, "submission_id": None, "sending": 0}
    _write(connection, row, "granted", -n, why, who)
    text = granted_words(n, benchmark, version, why)
    events.append(connection, subject=f"team:{team_id}", who=who, to_status="granted", why=text)


def granted_words(n: int, benchmark: str, version: str, why: str) -> str:
    """Return the text of a grant's event, with which an audit compares the ledger."""
    return f"{n} more on {benchmark} {version}" + (f": {why}" if why else "")


def statement(connection: sa.Connection, team_id: str, benchmark: str, version: str) -> list[LedgerEntry]:
    """Return every line of a team's budget, oldest first."""
    query = sa.select(ledger).where(_lines(benchmark, version), ledger.c.team_id == team_id).order_by(ledger.c.id)
    return [LedgerEntry(**row._mapping) for row in connection.execute(query)]


def _on_version(connection: sa.Connection, benchmark: str, version: str, policy: QuotaPolicy) -> Quota:
    """Return the budgets of `policy` in numbers, for the version's kind.

    If its kind is unknown, the holdout is taken to allow one scored submission per team.
    """
    query = sa.select(versions.c.facts).where(versions.c.benchmark == benchmark, versions.c.version == version)
    facts = connection.execute(query).scalar_one_or_none() or {}
    kind = KINDS.get(facts.get("kind", ""))
    return policy.on(1 if kind is None else kind.release.most_answers)


def _lines(benchmark: str, version: str) -> sa.ColumnElement[bool]:
    return (ledger.c.benchmark == benchmark) & (ledger.c.version == version)


def _sum(connection: sa.Connection, where: sa.ColumnElement[bool]) -> int:
    total = sa.func.coalesce(sa.func.sum(ledger.c.amount), 0)
    return int(connection.execute(sa.select(total).where(where)).scalar_one())


def _refunded() -> sa.ColumnElement[bool]:
    """Return the condition that a reservation was refunded at any time, except for submissions that were scored."""
    back, later = ledger.alias("back"), ledger.alias("later")
    is_again = sa.exists().where(later.c.submission_id == back.c.submission_id, later.c.sending > back.c.sending)
    is_scored = sa.exists().where(submissions.c.id == back.c.submission_id, submissions.c.status == "scored")
    return sa.exists().where(
        back.c.submission_id == ledger.c.submission_id,
        back.c.sending == ledger.c.sending,
        back.c.kind == "refunded",
        ~is_scored | is_again,  # otherwise it is the last refund of a scored submission
    )


_STANDS = (ledger.c.kind == "reserved") & ~_refunded()
"""The condition that a line of the ledger is a reservation that was charged for a scored submission or never refunded;
building it takes longer than running it.
"""


def _sentence(accounts: Sequence[_Budget]) -> str:
    own, *others = accounts
    quota = own.quota
    if not own.left:
        used = f"{quota.total} of {quota.total} used"
        if own.carried:
            used += (
                f", {min(own.carried, quota.total)} of them on the same cases in another version or on another board"
            )
        return f"Your team has no scored submission left for this version of the benchmark ({used})."
    if full := next((other for other in others if not other.left), None):
        total = full.quota.total
        return (
            f"Your team has no scored submission left for the cases that the board of {full.benchmark} holds out, too "
            f"({total} of {total} used)."
        )
    if not all(account.board_left for account in accounts):
        return "All scored submissions to these cases, which all teams share, are used."
    if full := next((account for account in accounts if not account.left_today), None):
        per_day = full.quota.per_day
        return (
            f"Your team has no submission left today ({per_day} of {per_day} used); the next day starts at 00:00 UTC."
        )
    left, left_today = (min(getattr(account, name) for account in accounts) for name in ("left", "left_today"))
    return f"Scored submissions left for your team: {left} of {quota.total}, {min(left, left_today)} of them today."


def _last(connection: sa.Connection, submission_id: str) -> sa.Row[Any] | None:
    query = sa.select(ledger).where(ledger.c.submission_id == submission_id).order_by(ledger.c.id.desc()).limit(1)
    return connection.execute(query).one_or_none()


def _close(connection: sa.Connection, submission_id: str, kind: str, amount: int, why: str, who: str) -> None:
    last = _last(connection, submission_id)
    if last is None or last.kind != "reserved":
        state = "nothing" if last is None else last.kind
        raise ValueError(f"`submission_id` must have one reserved to be {kind}, got {submission_id}, {state}")
    names = ("team_id", "benchmark", "version", "submission_id", "sending")
    _write(connection, {name: getattr(last, name) for name in names}, kind, amount, why, who)


def _write(connection: sa.Connection, row: dict[str, Any], kind: str, amount: int, why: str, who: str) -> None:
    at = moment(connection)
    connection.execute(ledger.insert().values(**row, kind=kind, amount=amount, why=why, who=who, at=at))
