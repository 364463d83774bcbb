"""A withdrawn entry's address for visitors: its team and dates if it was public, and no score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reveal_leaderboard.boards.standings import WithdrawnEntry, read_withdrawn
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.web.pages.entry import withdrawn_view

from tests.leaderboard.browser.world import IMAGES, World

WHO = "test"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, versions=("1.0.0", "2.0.0"))
    yield world
    world.store.engine.dispose()


@pytest.fixture
def scored(world: World) -> Submission:
    submission = world.send(*world.member("Ada", "Northern Lab"), "Net")
    world.score(0.7)
    return submission


def left_of(world: World, submission: Submission) -> WithdrawnEntry | None:
    row = world.store.get(submission.id)
    return read_withdrawn(world.store, row)


def test_whose_it_was_and_when_without_its_figures(world: World, scored: Submission) -> None:
    at = world.store.withdraw(scored.id, who=WHO).withdrawn_at
    gone = left_of(world, scored)
    expected = (scored.id, "Net", "Northern Lab", IMAGES, ("1.0.0",), (), scored.created_at, at)
    assert gone == WithdrawnEntry(*expected)
    markup = withdrawn_view(gone)
    assert "Its team has withdrawn this entry." in markup
    assert "Net, Northern Lab" in markup
    assert "<table" not in markup
    assert "/receipt" not in markup


def never_withdrawn(world: World, scored: Submission) -> Submission:
    return scored


def withdrawn_before_it_was_scored(world: World, scored: Submission) -> Submission:
    waiting = world.send(*world.member("Bo", "Southern Lab"), "Other")
    return world.store.withdraw(waiting.id, who=WHO)


def hidden_by_an_admin_too(world: World, scored: Submission) -> Submission:
    world.store.withdraw(scored.id, who=WHO)
    return world.store.hide(scored.id, who=WHO, why="looked at")


@pytest.mark.parametrize("became", [never_withdrawn, withdrawn_before_it_was_scored, hidden_by_an_admin_too])
def test_nothing_is_left_of_what_is_public_or_never_was_or_is_hidden(
    world: World, scored: Submission, became: Callable[[World, Submission], Submission]
) -> None:
    assert left_of(world, became(world, scored)) is None


@pytest.mark.parametrize("was_there", [True, False], ids=["withdrawn-after", "withdrawn-before"])
def test_the_frozen_board_that_lists_it_is_named(world: World, scored: Submission, was_there: bool) -> None:
    if not was_there:
        world.store.withdraw(scored.id, who=WHO)
    world.refresh("2.0.0", 0.5)
    world.store.withdraw(scored.id, who=WHO)
    gone = left_of(world, scored)
    assert gone.versions == (("1.0.0", "2.0.0") if was_there else ("1.0.0",))
    assert gone.frozen_on == (("1.0.0",) if was_there else ())
    is_linked = f"/?benchmark={IMAGES}&amp;version=1.0.0" in withdrawn_view(gone)
    assert is_linked is was_there
