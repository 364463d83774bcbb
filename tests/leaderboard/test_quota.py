"""The ledger: reservations, charges, refunds and grants, and when the next submission is possible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.settings import QuotaPolicy
from reveal_leaderboard.store import boards, quota
from reveal_leaderboard.store.cases import register_cases
from reveal_leaderboard.store.events import history
from reveal_leaderboard.store.quota import QuotaExceededError
from reveal_leaderboard.store.tables import ledger

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import on_both
from tests.leaderboard.worlds import BENCHMARK, NEW, World, sha

DAY = 86_400


def test_a_new_team_has_everything(database_url: str) -> None:
    balance = World(database_url, quota=QuotaPolicy(10, 2, 500)).balance()
    assert (balance.total, balance.charged, balance.pending, balance.left) == (10, 0, 0, 10)
    assert (balance.per_day, balance.left_today, balance.board_left) == (2, 2, 500)
    assert balance.may_send
    assert balance.why == "Scored submissions left for your team: 10 of 10, 2 of them today."


def test_pending_then_charged(database_url: str) -> None:
    world = World(database_url)
    submission = world.add()
    assert (world.balance().pending, world.balance().charged, world.balance().left) == (1, 0, 999)
    world.finish(world.take())
    assert (world.balance().pending, world.balance().charged, world.balance().left) == (0, 1, 999)
    assert world.kinds(submission) == ["reserved", "charged"]
    assert world.spent() == 1


@on_both
def test_the_day_is_full_until_midnight_utc(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=10, per_day=2, board_total=500))
    world.add(sha256=sha(1))
    world.add(sha256=sha(2))
    with pytest.raises(QuotaExceededError, match=r"no submission left today \(2 of 2 used\); .* 00:00 UTC") as error:
        world.add(sha256=sha(3))
    next_at = error.value.balance.next_at
    assert next_at is not None
    assert next_at % DAY == 0
    with world.store.read() as connection:
        first = connection.execute(sa.select(sa.func.min(ledger.c.at))).scalar_one()
    assert 0 < next_at - first <= DAY
    assert len(world.store.list_submissions()) == 2  # the third left nothing behind
    assert [job for job in world.jobs() if job[0] == "score"] == [("score", "queued")] * 2
    assert world.balance("team2").left_today == 2


def test_yesterdays_do_not_count_today_but_in_total(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=3, per_day=2, board_total=500))
    for n in (1, 2):
        world.add(sha256=sha(n))
    with world.store.write() as connection:
        connection.execute(ledger.update().values(at=ledger.c.at - DAY))
    balance = world.balance()
    assert (balance.left, balance.left_today) == (1, 2)
    world.add(sha256=sha(3))
    with pytest.raises(QuotaExceededError, match=r"no scored submission left .*\(3 of 3 used\)") as error:
        world.add(sha256=sha(4))
    assert error.value.balance.next_at is None


def test_a_refund_frees_the_day_it_was_reserved_on(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=2, per_day=1, board_total=500))
    first = world.add()
    assert world.balance().left_today == 0
    world.store.withdraw(first.id, who="user:user1")
    assert (world.balance().left, world.balance().left_today) == (2, 1)
    world.add(sha256=sha(2))


def test_a_repetition_costs_nothing_but_counts_for_its_day(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=10, per_day=3, board_total=500))
    world.store.withdraw(world.add(sha256=sha(1)).id, who="user:user1")
    first = world.score(0.5, "same", sha256=sha(1))  # sent again: the refund of the first time stays one
    assert (world.balance().left, world.balance().left_today) == (9, 2)
    for n in (2, 3):
        world.score(0.5, "same", sha256=sha(n))
    assert (world.balance().left, world.balance().left_today) == (9, 0)
    assert world.kinds(first) == ["reserved", "refunded", "reserved", "charged"]


def test_yesterdays_refund_today_does_not_make_room_today(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=5, per_day=1, board_total=500))
    first = world.add(sha256=sha(1))
    with world.store.write() as connection:
        connection.execute(ledger.update().values(at=ledger.c.at - DAY))
    world.add(sha256=sha(2))
    world.store.withdraw(first.id, who="user:user1")  # reserved yesterday, refunded today
    assert world.balance().left_today == 0


def test_the_board_has_a_total_for_all_teams(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=10, per_day=10, board_total=2))
    world.add()
    world.add(team_id="team2", user_id="user2")
    with pytest.raises(QuotaExceededError, match="for these cases are used"):
        world.add(sha256=sha(3))


@on_both
def test_a_grant_adds_to_the_total(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=1, per_day=10, board_total=10))
    world.add(sha256=sha(1))
    with world.store.write() as connection:
        quota.grant(connection, "team1", BENCHMARK, "1.0", 2, who="user:admin", why="our fault")
    balance = world.balance()
    assert (balance.total, balance.left, balance.pending) == (3, 2, 1)
    world.add(sha256=sha(2))
    with world.store.read() as connection:
        rows = quota.statement(connection, "team1", BENCHMARK, "1.0")
    assert [(row.kind, row.amount, row.submission_id is None) for row in rows] == [
        ("reserved", 1, False),
        ("granted", -2, True),
        ("reserved", 1, False),
    ]
    assert rows[1].why == "our fault"
    with world.store.read() as connection:
        [event] = history(connection, "team:team1")
    assert (event.who, event.to_status, event.why) == ("user:admin", "granted", "2 more on bench 1.0: our fault")


@pytest.mark.parametrize("n", [0, -1])
def test_a_grant_of_nothing_is_refused(database_url: str, n: int) -> None:
    world = World(database_url)
    with world.store.write() as connection, pytest.raises(ValueError, match=f"`n` must be at least 1, got {n}"):
        quota.grant(connection, "team1", BENCHMARK, "1.0", n, who="user:admin", why="")


@pytest.mark.parametrize("close", [quota.charge, quota.refund], ids=["charge", "refund"])
def test_what_is_not_reserved_is_neither_charged_nor_refunded(database_url: str, close: object) -> None:
    world = World(database_url)
    submission = world.add()
    world.store.withdraw(submission.id, who="user:user1")
    for submission_id, state in ((submission.id, "refunded"), ("nobody", "nothing")):
        with world.store.write() as connection, pytest.raises(ValueError, match=f"must have one reserved.*{state}"):
            close(connection, submission_id, who="x", why="")  # type: ignore[operator]


def test_nothing_is_reserved_twice(database_url: str) -> None:
    world = World(database_url)
    submission = world.add()
    with world.store.write() as connection, pytest.raises(ValueError, match="must have nothing reserved"):
        quota.reserve(connection, submission.id, "team1", BENCHMARK, "1.0", world.settings, who="user:user1")


def test_budgets_belong_to_a_version(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=1, per_day=1, board_total=1))
    world.add()
    with world.store.read() as connection:
        assert quota.balance(connection, "team1", BENCHMARK, "2.0", world.settings).left == 1


@pytest.mark.parametrize(
    ("facts", "total"),
    [
        ({"kind": "findings", "n_studies": 300}, 1),
        ({"kind": "localization", "n_images": 5000}, 1),
        ({"kind": "detection", "n_images": 60}, 1),
        ({"kind": "tasks", "n_tasks": 20}, 3),
        ({}, 1),
    ],
)
def test_default_budget_follows_the_kind(database_url: str, facts: dict[str, object], total: int) -> None:
    world = World(database_url, quota=QuotaPolicy())
    with world.store.write() as connection:
        boards.register_version(connection, BENCHMARK, "3.0", "holdout", facts)
        balance = quota.balance(connection, "team1", BENCHMARK, "3.0", world.settings)
        assert (balance.total, balance.left_today) == (total, 2)
        fixed = replace(world.settings, quota=QuotaPolicy(total=7))
        assert quota.balance(connection, "team1", BENCHMARK, "3.0", fixed).total == 7


@pytest.mark.parametrize(
    ("policy", "teams"),
    [(QuotaPolicy(1, 9, 9), (1, 1)), (QuotaPolicy(9, 1, 9), (1, 1)), (QuotaPolicy(9, 9, 1), (1, 2))],
    ids=["total", "day", "board"],
)
@on_both
def test_of_two_at_once_at_the_edge_one_passes(
    database_url: str, policy: QuotaPolicy, teams: tuple[int, int], tmp_path: Path
) -> None:
    world = World(database_url, quota=policy)

    def is_taken(sent: tuple[int, int]) -> bool:
        n, team = sent
        new = replace(NEW, sha256=sha(n), team_id=f"team{team}", user_id=f"user{team}")
        try:
            world.store.add_submission(new, who=f"user:user{team}")
        except QuotaExceededError:
            return False
        return True

    assert sorted(at_once(is_taken, list(enumerate(teams)))) == [False, True]
    assert world.spent() == 1


@on_both
def test_of_two_at_once_on_boards_with_the_same_cases_one_passes(database_url: str) -> None:
    """Two teams, the last place of all teams, and two boards, each of which holds out all cases of the other."""
    world = World(database_url, quota=QuotaPolicy(9, 9, 1))
    with world.store.write() as connection:
        boards.register_version(connection, "other", "1.0", "holdout", {"n_images": 60})
        for name in (BENCHMARK, "other"):
            register_cases(connection, name, "1.0", {"study": ["x", "y"]})

    def is_taken(sent: tuple[str, int]) -> bool:
        name, team = sent
        try:
            world.add(benchmark=name, team_id=f"team{team}", user_id=f"user{team}")
        except QuotaExceededError:
            return False
        return True

    assert sorted(at_once(is_taken, [(BENCHMARK, 1), ("other", 2)])) == [False, True]
    assert world.spent() == 1
