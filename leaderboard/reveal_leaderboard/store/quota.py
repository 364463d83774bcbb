"""Budgets of scored submissions: a ledger of used submissions, and a team's remaining budget.

Conventions
-----------
A team has a budget for each version of a benchmark. Scored submissions to other versions and boards that share held-out
cases also count (:mod:`reveal_leaderboard.store.cases`), rounded up to whole submissions. So a submission is possible
only if the budget of its version, and of every board that shares held-out cases, allows one more. No order of
submissions reveals more about these cases than their boards allow.

The ledger has an entry for each change. Sending a submission *reserves* one (+1). A released score *charges* the
reservation (0), which makes it final. An error, a refusal, a withdrawal before scoring, a repetition or a score of
which nothing can be shown *refunds* the reservation (-1). An admin may *grant* more submissions (-n). So the sum of a
team's amounts, without grants, is the number of its submissions that are charged or in progress. Every entry has a
reason, and no entry is ever changed.

Repetitions and scores of which nothing can be shown do not count in the total, but count for their day, because scoring
costs time. Such a refund is recognised by the status "scored" of its submission; a scored submission is never reserved
again.

Days are UTC days by the database's clock. :func:`reserve` locks the team's row, and its caller must hold the locks of
all boards concerned, so that two simultaneous submissions cannot both use the last of a budget.
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
    total : number of allowed scored submissions, including grants
    charged, pending : numbers of submissions that are charged, and in progress
    carried : number of submissions to other versions or boards that count here, because they share held-out cases
    left : number of submissions that are left of `total` and of the totals of boards that share held-out cases
    per_day, left_today : limit per day, and number of submissions left today
    next_at : time when the next submission is possible (now or the next midnight), in seconds since 1970 UTC; None for
        never
    board_left : number of submissions left for all teams together
    why : sentence on these numbers
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
        """True if one more submission may be sent now."""
        return min(self.left, self.left_today, self.board_left) > 0


class QuotaExceededError(ValueError):
    """The budget allows no more submissions now; `balance` has the reason and the time of the next one."""

    def __init__(self, balance: QuotaBalance) -> None:
        super().__init__(balance.why)
        self.balance = balance


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry of the ledger; `kind` is "reserved" (+1), "charged" (0), "refunded" (-1) or "granted" (-n)."""

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
    """Used submissions on a version, by a team (also `today`) and by all teams together."""

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
    """Return a team's current budget: the smallest of all budgets that a submission uses."""
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
    """Return how many of the selected submissions to other versions and boards count on a version."""
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
    """Reserve a scored submission for `submission_id`, in the caller's transaction.

    Returns
    -------
    the balance before the reservation

    Raises
    ------
    QuotaExceededError
        If the team's total, the team's day or the board's total is used up; the caller must then undo its transaction.
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
    """Count a submission's reserved place as used, because its score was released.

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
    """Return the text of a grant's event, which an audit compares with the ledger."""
    return f"{n} more on {benchmark} {version}" + (f": {why}" if why else "")


def statement(connection: sa.Connection, team_id: str, benchmark: str, version: str) -> list[LedgerEntry]:
    """Return all ledger entries of a team for a version, oldest first."""
    query = sa.select(ledger).where(_lines(benchmark, version), ledger.c.team_id == team_id).order_by(ledger.c.id)
    return [LedgerEntry(**row._mapping) for row in connection.execute(query)]


def _on_version(connection: sa.Connection, benchmark: str, version: str, policy: QuotaPolicy) -> Quota:
    """Return the budgets of `policy` as numbers for a version.

    If the version's kind is unknown, the total by holdout is one scored submission per team.
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
    """Return the SQL condition that a reservation was refunded at any time and its submission was not scored."""
    back, later = ledger.alias("back"), ledger.alias("later")
    is_again = sa.exists().where(later.c.submission_id == back.c.submission_id, later.c.sending > back.c.sending)
    is_scored = sa.exists().where(submissions.c.id == back.c.submission_id, submissions.c.status == "scored")
    return sa.exists().where(
        back.c.submission_id == ledger.c.submission_id,
        back.c.sending == ledger.c.sending,
        back.c.kind == "refunded",
        ~is_scored | is_again,  # otherwise this is the last refund of a scored submission
    )


_STANDS = (ledger.c.kind == "reserved") & ~_refunded()
"""SQL condition that a ledger entry is a reservation for a scored submission, or was never refunded.

Cached, because building the condition takes longer than running the query.
"""


def _sentence(accounts: Sequence[_Budget]) -> str:
    own, *others = accounts
    quota = own.quota
    if not own.left:
        used = f"{quota.total} of {quota.total} used"
        if own.carried:
            used += (
                f", of which {min(own.carried, quota.total)} for the same cases in another version or on another board"
            )
        return f"Your team has no scored submission left for this version of the benchmark ({used})."
    if full := next((other for other in others if not other.left), None):
        total = full.quota.total
        return (
            f"Your team has no scored submission left for the cases that this board shares with "
            f"{full.benchmark} ({total} of {total} used)."
        )
    if not all(account.board_left for account in accounts):
        return "All scored submissions for these cases are used; all teams share this budget."
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
