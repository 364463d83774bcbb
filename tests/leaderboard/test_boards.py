"""Versions of a board: made known, scored in the background, and switched all at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa
from reveal_leaderboard.boards.refresh import Progress, RankChange, RankChanges, progress, start_refresh, switch_version
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.boards import BoardClosedError, RefreshError
from reveal_leaderboard.store.events import history
from reveal_leaderboard.store.queue import QueuePosition
from reveal_leaderboard.store.store import NotAllowedError, Submission
from reveal_leaderboard.store.tables import scores

from tests.leaderboard.conftest import wait_until
from tests.leaderboard.databases import on_both
from tests.leaderboard.worlds import BENCHMARK, World, outcome, world

__all__ = ["world"]

ADMIN = "user:admin"


def register(world: World, version: str = "2.0", split: str = "holdout") -> boards.BoardRow:
    with world.store.write() as connection:
        return boards.register_version(connection, BENCHMARK, version, split, {"n_images": 70})


def refresh(world: World) -> int:
    with world.store.write() as connection:
        return start_refresh(connection, BENCHMARK, "2.0", who=ADMIN)


def switch(world: World) -> RankChanges:
    with world.store.write() as connection:
        return switch_version(connection, BENCHMARK, "2.0", who=ADMIN)


def progress_of(world: World) -> Progress:
    with world.store.read() as connection:
        return progress(connection, BENCHMARK, "2.0")


def rescore(world: World, values: dict[str, float]) -> None:
    """Do all jobs of the refresh; a submission without a value is refused."""
    while (job := world.claim()) is not None:
        if job.kind == "rank":
            assert world.queue.finish_result(job, document={})
        elif job.subject in values:
            assert job.kind == "rescore"
            assert world.finish(job, values[job.subject], job.subject)
        else:
            assert world.queue.refuse(job, who="worker:w", why="the file lacks new images")


def board_values(world: World, version: str) -> dict[str, float]:
    return {
        submission.id: score.released["figures"][0]["value"]
        for submission, score in world.store.board_rows(BENCHMARK, version)
    }


def three(world: World) -> list[Submission]:
    """Two models of one team and one of another."""
    return [
        world.score(0.5),
        world.score(0.6, model_name="Other", sha256="b" * 64),
        world.score(0.55, team_id="team2"),
    ]


def test_the_first_version_opens_its_board_and_later_ones_wait(world: World) -> None:
    assert (register(world).version, register(world).state) == ("1.0", "open")  # and twice is once
    with world.store.read() as connection:
        assert [row.version for row in boards.list_versions(connection, BENCHMARK)] == ["1.0"]
        both = boards.list_versions(connection, BENCHMARK, shown_only=False)
        assert [(row.version, row.shown_at is None, row.facts) for row in both] == [
            ("1.0", False, {"n_images": 60}),
            ("2.0", True, {"n_images": 70}),
        ]
        assert [row.benchmark for row in boards.list_boards(connection)] == [BENCHMARK]
        assert boards.board(connection, "other") is None
        assert [e.to_status for e in history(connection, f"board:{BENCHMARK}")] == ["open", "registered"]
    with pytest.raises(ValueError, match=r"`split` of bench 2\.0 must be 'holdout', got 'test'"):
        register(world, split="test")


def test_states_are_changed_with_a_reason_and_an_event(world: World) -> None:
    with world.store.write() as connection:
        row = boards.set_state(connection, BENCHMARK, "paused", who=ADMIN, why="holiday")
        assert (row.state, row.why) == ("paused", "holiday")
        with pytest.raises(ValueError, match="`state` must be one of open, paused, closed, got 'shut'"):
            boards.set_state(connection, BENCHMARK, "shut", who=ADMIN, why="")
        with pytest.raises(LookupError, match="no board of other"):
            boards.set_state(connection, "other", "open", who=ADMIN, why="")
        [_, event] = history(connection, f"board:{BENCHMARK}")
    assert (event.from_status, event.to_status, event.why, event.who) == ("open", "paused", "holiday", ADMIN)


@on_both
def test_a_refresh_scores_in_the_background_and_switches_all_at_once(world: World) -> None:
    first, second, third = three(world)
    ledger_before = world.spent()
    register(world)
    assert refresh(world) == 3
    assert refresh(world) == 3  # all are queued still, none twice
    assert progress_of(world) == Progress(total=3, done=0, failed=0, left=3)
    with pytest.raises(RefreshError, match="3 submissions of bench are still to be scored against the new version"):
        switch(world)
    rescore(world, {first.id: 0.7, second.id: 0.65, third.id: 0.65})
    assert progress_of(world) == Progress(total=3, done=3, failed=0, left=0)
    assert board_values(world, "2.0") == {}  # not shown yet
    assert world.store.score_of(first.id, "2.0") is None
    old = {first.id: 0.5, second.id: 0.6, third.id: 0.55}
    assert board_values(world, "1.0") == old

    changes = switch(world)
    assert (changes.old, changes.new, changes.dropped) == ("1.0", "2.0", ())
    assert set(changes.changes) == {  # by hand: 0.5, 0.6, 0.55 -> 0.7, 0.65, 0.65
        RankChange(first.id, 3, 1), RankChange(second.id, 1, 2), RankChange(third.id, 2, 2),
    }  # fmt: skip
    assert board_values(world, "2.0") == {first.id: 0.7, second.id: 0.65, third.id: 0.65}
    assert board_values(world, "1.0") == old  # frozen
    latest, frozen = world.store.score_of(first.id), world.store.score_of(first.id, "1.0")
    assert (latest.version, frozen.version) == ("2.0", "1.0")
    assert [score.version for score in world.store.scores_of(first.id)] == ["1.0", "2.0"]
    with world.store.read() as connection:
        one, two = boards.list_versions(connection, BENCHMARK)
        assert (one.frozen_at is None, two.frozen_at is None) == (False, True)
        assert two.facts == {"n_images": 70, "rank_changes": changes.to_json()}
    assert (world.spent(), world.get(first).status) == (ledger_before, "scored")
    assert world.path(first)[-2:] == ["scored", "scored"]
    with pytest.raises(BoardClosedError, match=r"accepts submissions to version 2\.0, not 1\.0"):
        world.add(sha256="e" * 64)
    with pytest.raises(RefreshError, match="is or was already on the board"):
        switch(world)
    world.add(version="2.0", sha256="e" * 64)  # a budget of its own


def test_a_refresh_that_is_started_again_while_it_runs_scores_nothing_twice(world: World) -> None:
    submission = world.score(0.5)
    register(world)
    refresh(world)
    job = world.take_score()
    assert refresh(world) == 1
    assert world.finish(job, 0.4, submission.id)
    world.clear()
    assert progress_of(world) == Progress(total=1, done=1, failed=0, left=0)
    with world.store.write() as connection:  # even if it were
        world.queue.put(connection, "rescore", BENCHMARK, "2.0", submission.id)
    assert world.finish(world.take(), 0.9, submission.id)
    switch(world)
    assert board_values(world, "2.0") == {submission.id: 0.4}


def test_what_cannot_be_scored_again_is_dropped_and_named(world: World) -> None:
    first, second, third = three(world)
    register(world)
    refresh(world)
    rescore(world, {first.id: 0.7, third.id: 0.6})
    assert progress_of(world) == Progress(total=3, done=2, failed=1, left=0)
    assert world.kinds(second) == ["reserved", "charged"]
    assert "not scored against version 2.0: the file lacks" in world.store.events_of(second.id)[-1].why
    assert refresh(world) == 1  # may be tried again
    rescore(world, {})
    changes = switch(world)
    assert changes.dropped == (second.id,)
    assert RankChange(second.id, 1, None) in changes.changes
    assert set(board_values(world, "2.0")) == {first.id, third.id}
    kept = world.store.score_of(second.id)
    assert kept.version == "1.0"


def test_what_was_held_back_stays_so_on_the_new_version(world: World) -> None:
    best = world.score(0.6)
    held = world.score(0.6, sha256="b" * 64)
    register(world)
    assert refresh(world) == 1
    rescore(world, {best.id: 0.3})
    switch(world)
    score = world.store.score_of(held.id, "2.0")
    assert (score.shown_of, score.released["figures"][0]["value"]) == (best.id, 0.3)
    assert board_values(world, "2.0") == {best.id: 0.3}


def test_what_was_scored_meanwhile_is_scored_again_before_the_switch(world: World) -> None:
    register(world)
    assert refresh(world) == 0
    submission = world.add()
    with pytest.raises(RefreshError, match="still to be scored against the old one; pause the board"):
        switch(world)
    assert world.finish(world.take_score(), 0.5, "late")
    with pytest.raises(RefreshError, match="1 submissions of bench are not queued to be scored"):
        switch(world)
    assert refresh(world) == 1
    rescore(world, {submission.id: 0.4})
    switch(world)
    assert board_values(world, "2.0") == {submission.id: 0.4}


def test_a_paused_board_scores_nothing_and_a_switch_returns_what_waits(world: World) -> None:
    """One file waits in the queue and one is being scored when the board is paused."""
    register(world)
    leased, queued = world.add(), world.add(sha256="b" * 64)
    job = world.take_score()
    with world.store.write() as connection:
        boards.set_state(connection, BENCHMARK, "paused", who=ADMIN, why="used up")
    assert world.queue.position(queued.id) == QueuePosition(1, None, is_paused=True)
    with pytest.raises(RefreshError, match="1 submissions of bench are still to be scored against the old one"):
        switch(world)
    assert not world.finish(job, 0.5, "late")
    assert world.claim() is None
    switch(world)
    assert [world.get(one).status for one in (leased, queued)] == ["refused", "refused"]
    assert world.path(leased) == ["received", "linted", "queued", "scoring", "queued", "refused"]
    assert world.spent() == 0
    with world.store.write() as connection:
        boards.set_state(connection, BENCHMARK, "open", who=ADMIN, why="refreshed")
    assert world.score(0.5, version="2.0").status == "scored"


def test_after_a_switch_the_newest_of_a_model_is_shown_and_the_old_board_stays(world: World) -> None:
    old = world.score(0.5)
    register(world)
    refresh(world)
    rescore(world, {old.id: 0.5})
    switch(world)
    new = world.score(0.6, version="2.0", sha256="b" * 64)
    assert board_values(world, "2.0") == {new.id: 0.6}
    assert board_values(world, "1.0") == {old.id: 0.5}


def test_a_frozen_board_moves_only_for_an_admin(world: World) -> None:
    first, second = world.score(0.4), world.score(0.5, sha256="b" * 64)
    register(world)
    refresh(world)
    rescore(world, {second.id: 0.5})
    switch(world)
    with pytest.raises(NotAllowedError, match="without a score on the board's version"):
        world.store.choose(first.id, who="user:user1")
    world.store.withdraw(second.id, who="user:user1")
    assert (board_values(world, "1.0"), board_values(world, "2.0")) == ({second.id: 0.5}, {})
    world.store.hide(second.id, who=ADMIN, why="copied")
    assert board_values(world, "1.0") == {}


def test_the_split_is_that_of_the_version(world: World) -> None:
    register(world, split="test")
    with world.store.read() as connection:
        assert [boards.split_of(connection, BENCHMARK, v) for v in ("1.0", "2.0")] == ["holdout", "test"]
        with pytest.raises(RefreshError, match=r"version 3\.0 of bench is unknown"):
            boards.split_of(connection, BENCHMARK, "3.0")


def test_a_closed_board_is_paused_by_a_version_whose_final_figures_nobody_saw(world: World) -> None:
    submission = world.score(0.5)
    register(world)
    refresh(world)
    both = replace(outcome(0.5, submission.id), final=outcome(0.4).released)
    assert world.queue.finish_score(world.take_score(), who="worker:w", outcome=both)
    world.clear()
    with world.store.write() as connection:
        boards.set_state(connection, BENCHMARK, "closed", who=ADMIN, why="the round is over")
    switch(world)
    assert world.store.score_of(submission.id, "2.0", "final") is None
    with world.store.write() as connection:
        assert boards.set_state(connection, BENCHMARK, "open", who=ADMIN, why="").version == "2.0"


@on_both
def test_withdrawn_and_hidden_ones_are_scored_again_but_not_ranked(world: World) -> None:
    first, second, third = three(world)
    world.store.withdraw(second.id, who="user:user1")
    world.store.hide(third.id, who=ADMIN, why="review")
    register(world)
    assert refresh(world) == 3
    rescore(world, {first.id: 0.5, second.id: 0.6, third.id: 0.7})
    assert switch(world).changes == (RankChange(first.id, 1, 1),)
    world.store.restore(third.id, who=ADMIN, why="fine")
    assert board_values(world, "2.0") == {first.id: 0.5, third.id: 0.7}


@pytest.mark.parametrize("act", [refresh, switch], ids=["refresh", "switch"])
def test_a_version_must_be_registered_and_not_shown(world: World, act: object) -> None:
    with pytest.raises(RefreshError, match=r"version 2\.0 of bench is unknown"):
        act(world)  # type: ignore[operator]
    for function in (start_refresh, switch_version):
        with world.store.write() as connection, pytest.raises(RefreshError, match="is or was already on the board"):
            function(connection, BENCHMARK, "1.0", who=ADMIN)
        with world.store.write() as connection, pytest.raises(LookupError, match="no board of other"):
            function(connection, "other", "1.0", who=ADMIN)


@on_both
def test_a_switch_that_breaks_off_leaves_the_old_board(world: World) -> None:
    [first, *_] = three(world)
    register(world)
    refresh(world)
    rescore(world, dict.fromkeys([s.id for s in world.store.list_submissions()], 0.5))
    with world.store.engine.connect() as connection, connection.begin() as transaction:
        switch_version(connection, BENCHMARK, "2.0", who=ADMIN)
        transaction.rollback()
    assert board_values(world, "2.0") == {}
    score = world.store.score_of(first.id)
    assert score.version == "1.0"
    with world.store.read() as connection:
        row = boards.board(connection, BENCHMARK)
        assert row.version == "1.0"
        assert len(connection.execute(scores.select()).all()) == 6


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_a_second_switch_waits_for_the_first_and_is_refused(world: World) -> None:
    """SQLite has only one writer at a time; on PostgreSQL the second must wait for the lock of the board's row."""
    register(world)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    def is_waiting() -> bool:
        with world.store.engine.connect() as connection:
            return connection.execute(sa.text(waiting)).scalar_one() == 1

    with ThreadPoolExecutor(1) as pool, world.store.engine.connect() as first:
        switch_version(first, BENCHMARK, "2.0", who=ADMIN)
        second = pool.submit(switch, world)
        wait_until(lambda: is_waiting() or second.done())
        first.commit()
        with pytest.raises(RefreshError, match="is or was already on the board"):
            second.result(20)
    with world.store.read() as connection:
        assert [event.to_status for event in history(connection, f"board:{BENCHMARK}")].count("switched") == 1
