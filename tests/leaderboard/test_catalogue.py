"""The version of a benchmark that a board shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from reveal_leaderboard.boards import refresh
from reveal_leaderboard.boards.catalogue import Catalogue, LeakError, Published, TooSmallError, UnknownBenchmarkError
from reveal_leaderboard.settings import ReleasePolicy, load_settings
from reveal_leaderboard.store import boards, quota
from reveal_leaderboard.store.cases import shared_with
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import held_out

from reveal_bench.kinds import KINDS
from tests.leaderboard.conftest import BENCHMARK, Board
from tests.leaderboard.databases import on_both


@pytest.fixture
def versions(board: Board) -> list[Published]:
    now = board.published
    info, manifest = replace(now.info, version="1.1.0"), replace(now.manifest, version="1.1.0")
    return [now, replace(now, info=info, manifest=manifest)]


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
    with pytest.raises(UnknownBenchmarkError, match="Benchmarks on this server: chexlocalize"):
        lagging.current(BENCHMARK)
    with pytest.raises(UnknownBenchmarkError, match=r"chexlocalize shows version 1\.1\.0: add the --benchmark folder"):
        lagging.check_policy()  # when it starts anew


def test_versions_without_recorded_cases_are_logged(
    database_url: str, versions: list[Published], caplog: pytest.LogCaptureFixture
) -> None:
    """A new version is not compared with them, so that it would give another budget for the same cases."""
    store = Store(database_url)
    for served, n_messages in ((versions[:1], 0), (versions[1:], 1), (versions, 0)):
        with store.write() as connection:
            connection.execute(held_out.delete())  # as migration 0011 does
        Catalogue(store, served)
        assert len(caplog.messages) == n_messages
        assert all(text.startswith(f"the cases of {BENCHMARK} 1.0.0 are not recorded") for text in caplog.messages)
        caplog.clear()


def test_what_is_not_served_is_said(database_url: str, board: Board) -> None:
    catalogue = Catalogue(Store(database_url), [board.published])
    assert catalogue.get(BENCHMARK, "9.9.9") is None
    with pytest.raises(UnknownBenchmarkError, match="Benchmarks on this server: chexlocalize"):
        catalogue.current("nih")


def check(database_url: str, path: Path, text: str, published: list[Published]) -> None:
    path.write_text(text, encoding="utf-8")
    Catalogue(Store(database_url, load_settings(path)), published, checked=True)


def remedy(error: ValueError) -> str:
    """Return the line that an error's message says to write above the file's tables."""
    return str(error).split("write above its first [table]:\n")[1]


def test_board_that_leaks_or_can_show_nothing_is_refused(
    database_url: str, versions: list[Published], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    old, path = versions[0], tmp_path / "settings.toml"
    check(database_url, path, "", [old])
    assert caplog.messages == [], "cases enough, and a budget that follows the kind"
    for text, rule in (
        ("[release]\nplace_cell = 50\n", "must have `release.place_cell` 350, got 50; otherwise five colluding"),
        ("[release]\nmin_cell = 20\n", "must have `release.min_cell` 30, got 20; otherwise five colluding"),
        ("[release]\nmin_cell = 50\n", r"must have 350 cases in its average .*, got \d+; otherwise five"),
        ("[quota]\ntotal = 2\n", r"`quota.total` 1, got 2; .* gain more than 0.05. Leave out `quota.total`, or accept"),
    ):
        with pytest.raises(LeakError, match=rule) as leak:
            check(database_url, path, text, [old])
        assert caplog.messages == []
        check(database_url, path, f"{remedy(leak.value)}\n{text}", [old])
        assert len(caplog.messages) == 1
        caplog.clear()
    asks_all = replace(old, info=replace(old.info, asks="all"))
    with pytest.raises(LeakError, match="must ask only for findings that are present, or its number of cases is unk"):
        check(database_url, path, "", [asks_all])
    counts = Counter(finding for row in old.manifest.rows.values() for finding in row.asked)
    thrice = {f"{name} {i}": row for i in range(3) for name, row in old.manifest.rows.items()}
    of_both = [3 * n for n in counts.values() if 3 * n >= 120]  # a quarter, and three quarters, are at least 30
    worth = len(of_both) ** 2 / sum(1 / n for n in of_both)
    with pytest.raises(LeakError, match=rf"350 cases in its average \(outside `release.final_.*, got {worth / 4:.0f};"):
        check(
            database_url,
            path,
            "[release]\nfinal_share = 0.75\n",
            [replace(old, manifest=replace(old.manifest, rows=thrice))],
        )
    most = max(counts.values())
    few = '[exposure]\naccepted_leaks = ["few cases"]\n'
    check(database_url, path, f"{few}[release]\nmin_cell = {most}\n", versions)
    caplog.clear()
    rule = f"^{BENCHMARK} 1.0.0 must hold out at least {most + 1}, .*, got {most} cases"
    with pytest.raises(TooSmallError, match=rule) as e:
        check(database_url, path, f"{few}[release]\nmin_cell = {most + 1}\n", versions[::-1])
    assert f"{BENCHMARK} 1.1.0 has too small a holdout: a board could never show a score" in caplog.messages
    check(database_url, path, f"{remedy(e.value)}\n{few}", versions)
    few_rows = replace(old, manifest=replace(old.manifest, rows=dict(list(old.manifest.rows.items())[:9])))
    assert few_rows.too_small_for(ReleasePolicy()).endswith("The smallest possible number is 10, so hold out more.")
    with pytest.raises(
        TooSmallError, match=r"at least 60, .*= 30 images, in both parts of `release.final_share`\. Hold out"
    ):
        check(database_url, path, f"{few}[release]\nfinal_share = 0.5\n", [old])
    # A label needs as many studies without it as with it, and so does a finding of detection on images
    assert [KINDS[name].release.least_items(30) for name in ("localization", "findings", "detection")] == [30, 60, 60]


def test_refused_version_opens_no_board(database_url: str, versions: list[Published], tmp_path: Path) -> None:
    """The corrected version is then the first, and shares its cases with no other."""
    with pytest.raises(LeakError):
        check(database_url, tmp_path / "settings.toml", "[quota]\ntotal = 2\n", versions[:1])
    check(database_url, tmp_path / "settings.toml", "", versions[1:])
    with Store(database_url).read() as connection:
        assert [(row.benchmark, row.version) for row in boards.list_boards(connection)] == [(BENCHMARK, "1.1.0")]
        assert shared_with(connection, BENCHMARK, "1.1.0") == []


def test_the_published_quota_is_enforced(database_url: str, board: Board) -> None:
    """Pages and API take it from the folder, sending from the database."""
    store = Store(database_url)
    Catalogue(store, [board.published])
    limits = board.published.quota(store.settings.of(BENCHMARK))
    assert limits.total == 1, "one answer of marked places"
    with store.read() as connection:
        balance = quota.balance(connection, "nobody", BENCHMARK, "1.0.0", store.settings)
    assert (balance.total, balance.per_day, balance.board_left) == (limits.total, limits.per_day, limits.board_total)
