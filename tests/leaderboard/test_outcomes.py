"""Released scores of a submission: its own, or those of the best one if it is not better; and notifications."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reveal_leaderboard.release.release import ReleasedScore
from reveal_leaderboard.settings import ReleasePolicy
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.store import NotAllowedError

from tests.leaderboard.databases import on_both
from tests.leaderboard.worlds import BENCHMARK, NEW, World, outcome, released, world

__all__ = ["world"]

WHO = "user:user1"


def visible_ids(world: World) -> list[str]:
    return [submission.id for submission, _ in world.store.board_rows(BENCHMARK, "1.0")]


@pytest.mark.parametrize(
    ("values", "own"),
    [  # by hand, with a step of 0.01: a score above the best by more than the step is shown
        ((0.50, 0.52), [True, True]),
        ((0.50, 0.51), [True, False]),
        ((0.50, 0.50), [True, False]),
        ((0.50, 0.40, 0.52), [True, False, True]),
        ((0.50, 0.60, 0.55, 0.61, 0.62), [True, True, False, False, True]),
        ((None, 0.10), [True, True]),
    ],
    ids=["better", "by the step", "equal", "worse between", "five", "nothing shown"],
)
def test_ladder_holds_back_scores_not_better_by_the_step(
    world: World, values: tuple[float | None, ...], own: list[bool]
) -> None:
    sent = [world.score(value, sha256=f"{n:064x}") for n, value in enumerate(values)]
    scores = [world.store.score_of(submission.id) for submission in sent]
    assert [score is not None and not score.is_held for score in scores] == own
    best = None
    for submission, score, value in zip(sent, scores, values, strict=True):
        if not score.is_held:
            best = (submission.id, value)
            continue
        assert (score.shown_of, score.released["figures"][0]["value"]) == best
        assert best[0] in world.store.events_of(submission.id)[-1].why
        assert world.kinds(submission) == ["reserved", "charged"]  # "not better" is also an answer
    assert visible_ids(world) == [best[0]]  # one per model


def test_withdrawing_does_not_reset_the_ladder(world: World) -> None:
    first = world.score(0.5)
    world.store.withdraw(first.id, who=WHO)
    second = world.score(0.4, sha256="b" * 64)
    score = world.store.score_of(second.id)
    assert score.shown_of == first.id


@pytest.mark.parametrize(("per", "is_held"), [("team", True), ("model", False)])
def test_ladder_is_per_team_or_per_model(database_url: str, per: str, is_held: bool) -> None:
    world = World(database_url, release=ReleasePolicy(ladder_per=per))  # type: ignore[arg-type]
    world.score(0.5)
    scores = [
        world.store.score_of(world.score(0.4, sha256="b" * 64, **change).id)
        for change in ({"model_name": "Other"}, {"team_id": "team2"})
    ]
    assert [score is not None and score.is_held for score in scores] == [is_held, False]


def test_the_same_predictions_cost_nothing_and_show_the_first_score(world: World) -> None:
    first = world.score(0.5, "same")
    second = world.score(0.9, "same", sha256="b" * 64, model_name="Other")
    score = world.store.score_of(second.id)
    assert (score.shown_of, score.released["figures"][0]["value"]) == (first.id, 0.5)
    assert world.kinds(second) == ["reserved", "refunded"]
    assert world.store.events_of(second.id)[-1].why.startswith(f"the same predictions as submission {first.id}")
    assert visible_ids(world) == [first.id]
    assert world.store.flags() == []


def test_score_with_nothing_to_release_is_not_charged(world: World) -> None:
    blank = ReleasedScore((), (), ("Edema",), "Nothing can be shown: it is too small.", {})
    for n, final in enumerate((None, released(0.5))):  # the final part may have released scores
        sent = world.add(sha256=f"{n:064x}")
        result = replace(outcome(content=f"{n}"), released=blank, final=final)
        assert world.queue.finish_score(world.take_score(), who="worker:w", outcome=result)
        assert world.kinds(sent) == ["reserved", "charged" if final else "refunded"]
        note = world.store.score_of(sent.id).released["note"]
        assert note == blank.note + ("" if final else " Nothing is charged.")


def test_hidden_predictions_do_not_return_under_another_name(world: World) -> None:
    hidden, other = world.score(0.5, "same"), world.score(0.7, "other", sha256="c" * 64, model_name="Other")
    world.store.hide(hidden.id, who="user:admin", why="copied")
    world.store.withdraw(hidden.id, who=WHO)
    world.score(0.5, "same", sha256="b" * 64, model_name="Renamed")
    assert visible_ids(world) == [other.id]


@on_both
def test_same_predictions_have_one_entry_on_the_board(world: World) -> None:
    first = world.score(0.5, "same")
    world.store.withdraw(first.id, who=WHO)
    second = world.score(0.5, "same", model_name="Second")
    with pytest.raises(NotAllowedError, match=f"the same predictions are on the board.*{second.id}"):
        world.store.add_submission(NEW, who=WHO)
    assert visible_ids(world) == [second.id]
    world.store.withdraw(second.id, who=WHO)
    world.store.add_submission(NEW, who=WHO)
    assert visible_ids(world) == [first.id]
    third = world.score(0.5, "same", model_name="Third")  # the first is back: later submissions are checked also
    assert world.store.score_of(third.id).is_held  # type: ignore[union-attr]
    world.store.withdraw(first.id, who=WHO)
    world.store.hide(second.id, who="user:admin", why="copied")
    with pytest.raises(NotAllowedError, match="or were hidden there"):
        world.store.add_submission(NEW, who=WHO)


@on_both
def test_look_alikes_are_flagged(world: World) -> None:
    first = world.score(0.3, "first")
    twin = world.score(0.3, "first", team_id="team2")
    for team, n in (("team2", 2), ("team1", 3)):
        world.add(team_id=team, sha256=f"{n:064x}")
        near = outcome(0.6, f"near {n}", sketch_of="first")
        assert world.queue.finish_score(world.take_score(), who="worker:w", outcome=near)
    flags = {(flag.kind, flag.other_id) for flag in world.store.flags()}
    assert flags == {
        ("duplicate", first.id),
        ("near_duplicate", first.id),
        ("probing", twin.id),
        ("near_duplicate", twin.id),
        ("probing", first.id),
    }
    [duplicate] = [flag for flag in world.store.flags() if flag.kind == "duplicate"]
    assert duplicate.submission_id == twin.id
    assert world.store.clear_flag(duplicate.id, "user:admin")
    assert not world.store.clear_flag(duplicate.id, "user:admin")
    assert len(world.store.flags()) == 4
    assert world.kinds(twin) == ["reserved", "charged"]  # another team's score is new to this team


def test_chosen_submission_of_a_model_is_shown(world: World) -> None:
    first = world.score(0.5)
    second = world.score(0.6, sha256="b" * 64)
    other = world.score(0.7, sha256="c" * 64, model_name="Other")
    held = world.score(0.6, sha256="d" * 64)
    assert visible_ids(world) == [second.id, other.id]
    assert world.store.choose(first.id, who=WHO).is_chosen
    assert visible_ids(world) == [first.id, other.id]
    world.store.withdraw(first.id, who=WHO)
    assert visible_ids(world) == [second.id, other.id]  # otherwise the newest
    for submission, rule in ((first, "not withdrawn"), (held, "scores of another submission")):
        with pytest.raises(NotAllowedError, match=rule):
            world.store.choose(submission.id, who=WHO)
    assert world.path(first)[-2:] == ["chosen", "withdrawn"]


@on_both
def test_hiding_and_restoring_an_entry(world: World) -> None:
    submission = world.score()
    hidden = world.store.hide(submission.id, who="user:admin", why="under review")
    assert (hidden.hidden_why, hidden.hidden_at is None, hidden.status) == ("under review", False, "scored")
    assert visible_ids(world) == []
    restored = world.store.restore(submission.id, who="user:admin", why="all well")
    assert (restored.hidden_why, restored.hidden_at) == (None, None)
    assert visible_ids(world) == [submission.id]
    world.store.restore(submission.id, who="user:admin", why="again")
    assert world.path(submission)[-2:] == ["hidden", "restored"]
    with pytest.raises(ValueError, match="`why` must contain the reason"):
        world.store.hide(submission.id, who="user:admin", why=" ")


def test_final_scores_are_shown_after_closing(world: World) -> None:
    submission = world.add()
    both = replace(outcome(0.5), final=outcome(0.4).released)
    assert world.queue.finish_score(world.take(), who="worker:w", outcome=both)
    assert world.store.score_of(submission.id, part="final") is None
    assert [score.part for score in world.store.scores_of(submission.id)] == ["public"]
    with world.store.write() as connection:
        boards.set_state(connection, BENCHMARK, "closed", who="user:admin", why="the round is over")
    final = world.store.score_of(submission.id, part="final")
    assert final.released["figures"][0]["value"] == 0.4
    for state in ("open", "paused"):
        with world.store.write() as connection, pytest.raises(ValueError, match=r"final scores of version 1\.0 were"):
            boards.set_state(connection, BENCHMARK, state, who="user:admin", why="again")
