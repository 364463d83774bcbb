"""The life of a submission: every change with its event and its line in the ledger, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from reveal_leaderboard.settings import QuotaPolicy
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.events import verify_events
from reveal_leaderboard.store.scores import on_board
from reveal_leaderboard.store.store import (
    BoardClosedError,
    KeyReusedError,
    NotAllowedError,
    OtherThresholdsError,
    QuotaExceededError,
    Submission,
    UnknownSubmissionError,
)
from reveal_leaderboard.store.tables import teams

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import each_database_kind
from tests.leaderboard.worlds import BENCHMARK, NEW, World, outcome, world

__all__ = ["each_database_kind", "world"]

WHO = "user:user1"


# Every change: from which status, by what, to which, with which lines in the ledger ---------------------------------


def send(world: World) -> Submission:
    return world.add()


def lease(world: World) -> Submission:
    submission = world.add()
    world.take()
    return submission


def finish(world: World) -> Submission:
    submission = world.add()
    world.finish(world.take())
    return submission


def refuse(world: World) -> Submission:
    submission = world.add()
    world.queue.refuse(world.take(), who="worker:w", why="no")
    return submission


def fail(world: World) -> Submission:
    submission = world.add()
    world.queue.fail(world.take(), who="worker:w", why="no", incident="INC-1")
    return submission


def withdraw(world: World) -> Submission:
    return world.store.withdraw(world.add().id, who=WHO)


def withdraw_scored(world: World) -> Submission:
    return world.store.withdraw(finish(world).id, who=WHO)


SENT = ["received", "linted", "queued"]
STATES: dict[Callable[[World], Submission], tuple[str, list[str], list[str]]] = {
    send: ("queued", SENT, ["reserved"]),
    lease: ("scoring", [*SENT, "scoring"], ["reserved"]),
    finish: ("scored", [*SENT, "scoring", "scored"], ["reserved", "charged"]),
    refuse: ("refused", [*SENT, "scoring", "refused"], ["reserved", "refunded"]),
    fail: ("failed", [*SENT, "scoring", "failed"], ["reserved", "refunded"]),
    withdraw: ("withdrawn", [*SENT, "withdrawn"], ["reserved", "refunded"]),
    withdraw_scored: ("scored", [*SENT, "scoring", "scored", "withdrawn"], ["reserved", "charged"]),
}


@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
def test_every_state_is_reached_with_its_events_and_its_ledger(world: World, make: Callable[..., Submission]) -> None:
    submission = make(world)
    status, path, kinds = STATES[make]
    stored = world.get(submission)
    assert (stored.status, world.path(submission), world.kinds(submission)) == (status, path, kinds)
    events = world.store.events_of(submission.id)
    assert [event.from_status for event in events] == [None, *path[:-1]]
    assert (events[-1].why == "no", stored.incident) == (make in (refuse, fail), "INC-1" if make is fail else None)
    assert (stored.team, stored.created_at <= stored.updated_at) == ("Team 1", True)
    with world.store.read() as connection:
        assert verify_events(connection) == []


# state -> what becomes of it when the same file is sent again (status, ledger since, is it new)
AGAIN = {
    send: ("queued", [], False),
    lease: ("scoring", [], False),
    finish: ("scored", [], False),
    refuse: ("queued", ["reserved"], True),
    fail: ("queued", ["reserved"], True),
    withdraw: ("queued", ["reserved"], True),
    withdraw_scored: ("scored", [], False),
}


@pytest.mark.parametrize("name", ["", "\0", "a\0", "A", "x" * 32, "0" * 33, "../a"])
def test_what_is_no_id_is_nobodys(world: World, name: str) -> None:
    assert world.store.get(name) is None


@pytest.mark.parametrize("make", AGAIN, ids=lambda make: make.__name__)
def test_the_same_file_sent_again(world: World, make: Callable[..., Submission]) -> None:
    submission = make(world)
    before, path = world.kinds(submission), world.path(submission)
    status, kinds, is_new = AGAIN[make]
    again, answer = world.store.add_submission(replace(NEW, filename="other.jsonl"), who=WHO)
    assert (again.id, again.status, answer) == (submission.id, status, is_new)
    assert (again.incident, again.withdrawn_at) == (None, None)
    assert world.kinds(submission) == before + kinds
    assert len(world.store.list_submissions()) == 1
    if is_new:
        event = world.store.events_of(submission.id)[-1]
        assert (event.from_status, event.to_status, event.why) == (path[-1], "queued", "sent again")
        assert again.filename == "other.jsonl"
        assert world.finish(world.take())
        assert world.kinds(submission)[-2:] == ["reserved", "charged"]
        assert world.spent() == 1


# state -> status after `withdraw`, or why it is not allowed
WITHDRAWN = {
    send: "withdrawn",
    lease: "a submission that is scoring cannot be withdrawn",
    finish: "scored",
    refuse: "a submission that is refused cannot be withdrawn",
    fail: "a submission that is failed cannot be withdrawn",
    withdraw: "withdrawn",
    withdraw_scored: "scored",
}


@pytest.mark.parametrize("make", WITHDRAWN, ids=lambda make: make.__name__)
def test_withdrawing(world: World, make: Callable[..., Submission]) -> None:
    submission = make(world)
    path, expected = world.path(submission), WITHDRAWN[make]
    if " " in expected:
        with pytest.raises(NotAllowedError, match=expected):
            world.store.withdraw(submission.id, who=WHO)
        assert world.path(submission) == path
        return
    withdrawn = world.store.withdraw(submission.id, who=WHO)
    assert withdrawn.status == expected
    assert withdrawn.withdrawn_at is not None
    assert world.path(submission) == (path if path[-1] == "withdrawn" else [*path, "withdrawn"])
    assert world.store.board_rows(BENCHMARK, "1.0") == []


def test_a_withdrawn_submissions_job_is_gone(world: World) -> None:
    withdraw(world)
    assert world.jobs() == [("score", "cancelled")]
    assert world.claim() is None


def test_a_fault_starts_the_attempts_anew_but_never_the_fence(world: World) -> None:
    submission = fail(world)
    world.store.add_submission(NEW, who=WHO)
    job = world.take()
    assert (job.subject, job.attempts, job.fence, job.incident) == (submission.id, 1, 2, None)


# Sending ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"team_id": "team2"}, {"model_name": "Other"}, {"sha256": "b" * 64}],
    ids=["team", "model", "file"],
)
def test_another_team_model_or_file_is_another_submission(world: World, change: dict[str, str]) -> None:
    assert world.add().id != world.add(**change).id


def test_a_key_returns_its_submission_and_refuses_another(world: World) -> None:
    first = world.add(idempotency_key="k1")
    again, is_new = world.store.add_submission(replace(NEW, idempotency_key="k1"), who=WHO)
    assert (again.id, is_new) == (first.id, False)
    for change in ({"sha256": "c" * 64}, {"model_name": "Other"}):
        with pytest.raises(KeyReusedError, match=first.id):
            world.store.add_submission(replace(NEW, idempotency_key="k1", **change), who=WHO)  # type: ignore[arg-type]
    world.add(idempotency_key="k1", team_id="team2")  # a key belongs to a team


def test_a_repeated_request_does_not_bring_back_what_was_withdrawn(world: World) -> None:
    submission = world.add(idempotency_key="k1")
    world.store.withdraw(submission.id, who=WHO)
    replay, is_new = world.store.add_submission(replace(NEW, idempotency_key="k1"), who=WHO)
    assert (replay.status, is_new) == ("withdrawn", False)
    again, is_new = world.store.add_submission(replace(NEW, idempotency_key="k2"), who=WHO)
    assert (again.id, again.status, is_new) == (submission.id, "queued", True)


def test_ten_threads_that_send_the_same_file_get_one_submission(world: World) -> None:
    answers = at_once(lambda _: world.store.add_submission(NEW, who=WHO), range(10))
    assert len({submission.id for submission, _ in answers}) == 1
    assert sorted(is_new for _, is_new in answers) == [False] * 9 + [True]
    assert world.spent() == 1


@pytest.mark.parametrize("state", ["paused", "closed"])
def test_a_board_that_is_not_open_takes_nothing_new_but_knows_what_it_has(world: World, state: str) -> None:
    first = fail(world)
    with world.store.write() as connection:
        boards.set_state(connection, BENCHMARK, state, who="user:admin", why="being refreshed")
    with pytest.raises(BoardClosedError, match=f"the board of bench is {state}: being refreshed"):
        world.add(sha256="b" * 64)
    again, is_new = world.store.add_submission(NEW, who=WHO)
    assert (again.id, again.status, is_new) == (first.id, "failed", False)


def test_another_version_and_an_unknown_board_take_nothing(world: World) -> None:
    with pytest.raises(BoardClosedError, match=r"accepts submissions to version 1\.0, not 2\.0"):
        world.add(version="2.0")
    with pytest.raises(BoardClosedError, match="no board of other"):
        world.add(benchmark="other")


def test_sending_again_needs_quota_too(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=1, per_day=5, board_total=5))
    first = fail(world)
    world.add(sha256="b" * 64)
    with pytest.raises(QuotaExceededError):
        world.store.add_submission(NEW, who=WHO)
    assert world.get(first).status == "failed"


def test_other_thresholds_do_not_bring_back_what_was_withdrawn(world: World) -> None:
    submission = withdraw_scored(world)
    with pytest.raises(OtherThresholdsError, match=submission.id):
        world.store.add_submission(replace(NEW, metadata={"thresholds": {"Edema": 0.6}}), who=WHO)
    assert world.get(submission).withdrawn_at is not None


def test_an_unknown_submission_is_said_to_be_unknown(world: World) -> None:
    assert world.store.get("nobody") is None
    assert (world.store.events_of("nobody"), world.store.scores_of("nobody")) == ([], [])
    for act in (world.store.withdraw, world.store.choose):
        with pytest.raises(UnknownSubmissionError, match="no submission 'nobody'"):
            act("nobody", who=WHO)


def test_lists(world: World) -> None:
    first, second = world.add(), world.add(sha256="b" * 64, team_id="team2")
    assert world.store.count_waiting() == 2
    world.finish(world.take())
    assert world.store.count_waiting() == 1
    assert [s.id for s in world.store.list_submissions()] == [first.id, second.id]
    assert [s.id for s in world.store.of_team("team2")] == [second.id]


def test_a_disabled_team_sends_nothing(world: World) -> None:
    with world.store.write() as connection:
        connection.execute(teams.update().where(teams.c.id == "team1").values(disabled_at=1.0))
    with pytest.raises(NotAllowedError, match="Team 1 is disabled"):
        world.add()


def test_a_closed_board_keeps_the_submissions_that_it_showed(world: World) -> None:
    """A team that has seen its final scores cannot put its better submission in the place of the one that counted."""
    ids = []
    for digest, public, final in (("a", 0.5, 0.9), ("b", 0.6, 0.4), ("c", 0.7, 0.5)):
        submission = world.add(sha256=digest * 64)
        both = replace(outcome(public, submission.id), final=outcome(final).released)
        assert world.queue.finish_score(world.take_score(), who="worker:w", outcome=both)
        ids.append(submission.id)
    world.store.hide(ids[2], who="local:x", why="not its own model")
    waiting = world.add(sha256="d" * 64)

    def shown() -> list[tuple[str, str]]:
        with world.store.read() as connection:
            return [(row.id, row.score_part) for row in on_board(connection, BENCHMARK, "1.0")]

    assert shown() == [(ids[1], "public")]
    with world.store.write() as connection:
        boards.set_state(connection, BENCHMARK, "closed", who="local:x", why="over")
    assert shown() == [(ids[1], "final")]
    with pytest.raises(NotAllowedError, match="no submission can be chosen once the board is closed"):
        world.store.choose(ids[0], who="user:user1")
    with pytest.raises(
        NotAllowedError, match="once final scores are shown, an unscored submission cannot be withdrawn"
    ):
        world.store.withdraw(waiting.id, who="user:user1")
    world.store.hide(ids[2], who="local:x", why="a longer reason")
    assert shown() == [(ids[1], "final")]
    world.store.withdraw(ids[1], who="user:user1")
    assert shown() == []
