"""Which version of a benchmark a board shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from reveal_leaderboard.boards import refresh
from reveal_leaderboard.boards.catalogue import Catalogue, Published, UnknownBenchmarkError
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store import spending
from reveal_leaderboard.store.store import Store

from reveal_bench.kinds import KINDS
from tests.leaderboard.conftest import BENCHMARK, Board
from tests.leaderboard.databases import on_both


def at_version(published: Published, version: str) -> Published:
    return replace(
        published,
        info=replace(published.info, version=version),
        manifest=replace(published.manifest, version=version),
    )


@pytest.fixture
def versions(board: Board) -> list[Published]:
    return [board.published, at_version(board.published, "1.1.0")]


def test_a_new_board_starts_with_the_first_version_and_stays_with_it(
    database_url: str, versions: list[Published]
) -> None:
    first = Catalogue(Store(database_url), versions)
    assert first.names == (BENCHMARK,)
    assert first.current(BENCHMARK).version == "1.0.0"
    assert [one.version for one in first.versions(BENCHMARK)] == ["1.0.0", "1.1.0"]
    again = Catalogue(Store(database_url), versions[::-1])  # another order does not move the board
    assert again.current(BENCHMARK).version == "1.0.0"


@on_both
def test_every_server_follows_a_switch_at_once(database_url: str, versions: list[Published]) -> None:
    one, other = (Catalogue(Store(database_url), versions) for _ in range(2))
    with one.store.write() as connection:
        refresh.start_refresh(connection, BENCHMARK, "1.1.0", who="test")
    with one.store.write() as connection:
        refresh.switch_version(connection, BENCHMARK, "1.1.0", who="test")
    assert other.current(BENCHMARK).version == "1.1.0"
    lagging = Catalogue(Store(database_url), versions[:1])  # a server that was not given the new folder
    with pytest.raises(UnknownBenchmarkError, match="This board serves: chexlocalize"):
        lagging.current(BENCHMARK)


def test_what_is_not_served_is_said(database_url: str, board: Board) -> None:
    catalogue = Catalogue(Store(database_url), [board.published])
    assert catalogue.get(BENCHMARK, "9.9.9") is None
    with pytest.raises(UnknownBenchmarkError, match="This board serves: chexlocalize"):
        catalogue.current("nih")


def test_a_budget_too_large_or_a_holdout_too_small_is_warned_of(
    database_url: str, board: Board, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    Catalogue(Store(database_url), [board.published]).warn_of_policy()
    assert caplog.messages == [], "by itself a budget follows the holdout"
    path = tmp_path / "settings.toml"
    path.write_text("[quota]\ntotal = 3\n", encoding="utf-8")
    Catalogue(Store(database_url, load_settings(path)), [board.published]).warn_of_policy()
    n = board.published.n_items
    assert caplog.messages == [
        f"{BENCHMARK} 1.0.0 holds out {n} cases: teams who collude learn too much from `quota.total` = 3, set it to 1"
    ]
    caplog.clear()
    path.write_text("[release]\nmin_cell = 500\nbands = [500, 600]\nband_resolution = [0.05, 0.02]\n", encoding="utf-8")
    Catalogue(Store(database_url, load_settings(path)), [board.published]).warn_of_policy()
    assert n < 500
    assert [message.split(";")[0] for message in caplog.messages] == [
        f"{BENCHMARK} 1.0.0 holds out {n} images: with `release.min_cell` = 500 no score of fewer than 500 can be shown"
    ]
    # A label needs as many studies without it as with it, and so does a finding of detection on images
    assert [KINDS[name].least_items(30) for name in ("localization", "findings", "detection")] == [30, 60, 60]


def test_what_is_told_of_a_budget_is_what_holds(database_url: str, board: Board) -> None:
    """Pages and API take it from the folder, sending from the database."""
    store = Store(database_url)
    Catalogue(store, [board.published])
    told = board.published.quota(store.settings.of(BENCHMARK))
    assert told.total == 1, "one answer of marked places"
    with store.read() as connection:
        policy = store.settings.of(BENCHMARK).quota
        balance = spending.balance(connection, "nobody", BENCHMARK, "1.0.0", policy)
    assert (balance.total, balance.per_day, balance.board_left) == (told.total, told.per_day, told.board_total)
