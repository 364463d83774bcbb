"""Cases that boards and versions have in common: refused, or counted in the budgets and by the exposure meter."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.boards.catalogue import (
    Catalogue,
    Published,
    TooSmallError,
    journal_words,
    read_published_boards,
)
from reveal_leaderboard.boards.refresh import carried_words, start_refresh, switch_version
from reveal_leaderboard.boards.standings import standings
from reveal_leaderboard.cli.process import log_to_stderr
from reveal_leaderboard.release.exposure import exposure, pause_used_up
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore
from reveal_leaderboard.settings import QuotaPolicy, load_settings
from reveal_leaderboard.store import boards, quota
from reveal_leaderboard.store.boards import RefreshError
from reveal_leaderboard.store.cases import SharedCases, register_cases, shared_with
from reveal_leaderboard.store.queue import Job
from reveal_leaderboard.store.store import QuotaExceededError, Store
from reveal_leaderboard.store.tables import held_out, scores
from reveal_leaderboard.worker.worker import GuardedOutcome, open_holdouts, register_patients

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.overlaps import Overlap, OverlapError
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.kinds.findings.records import StudyRecord
from tests.leaderboard.conftest import BENCHMARK, Board, at_once
from tests.leaderboard.databases import on_both
from tests.leaderboard.worlds import FixedSettings, World, outcome

LABELS = "reveal-cxr"


def labels_of(board: Board, folder: Path, *, is_held: bool, n: int = 0) -> Path:
    """Build labels of the studies that `board` holds out, themselves held out or public; of the first `n` if not 0."""
    studies = sorted({record.study_id: record.patient_id for record in board.records}.items())
    records = [StudyRecord(study, patient, (REVEAL_LABELS[0],)) for study, patient in studies[: n or None]]
    others = [StudyRecord(f"other{i}", f"somebody{i}", (REVEAL_LABELS[1],)) for i in range(5)]
    splits = {"released": others, "holdout": records} if is_held else {"released": records, "holdout": others}
    place = {"holdout": folder.with_name("private"), "holdout_split": "holdout"}
    build_folder(splits, folder, BENCHMARKS[LABELS], pixels="withhold", synthetic=True, **place)
    return folder


def serve(database_url: str, published: Mapping[tuple[str, str], Published], settings: str, path: Path) -> Store:
    path.write_text(settings, encoding="utf-8")
    store = Store(database_url, load_settings(path))
    Catalogue(store, published.values()).check_policy()
    return store


@pytest.mark.parametrize("n", [1, 0])
def test_a_public_split_of_another_board_tells_references(
    database_url: str, board: Board, tmp_path: Path, n: int
) -> None:
    labels = labels_of(board, tmp_path / "labels", is_held=False, n=n)
    published = read_published_boards([(board.folder, "holdout"), (labels, "holdout")])
    rule = "chexlocalize 1.0.0 must have .*, but the public split 'released' of reveal-cxr 1.0.0 reveals references of"
    with pytest.raises(OverlapError, match=rule) as e:
        serve(database_url, published, '[exposure]\naccepted_overlaps = ["nih"]\n', tmp_path / "settings.toml")
    assert str(e.value).endswith(f'\nbenchmarks.{BENCHMARK}.exposure.accepted_overlaps = ["nih", "{LABELS}"]')


def test_an_overlap_accepted_by_name_is_said_on_the_board(database_url: str, board: Board, tmp_path: Path) -> None:
    labels = labels_of(board, tmp_path / "labels", is_held=False)
    published = read_published_boards([(board.folder, "holdout"), (labels, "holdout")])
    accepted = f'[benchmarks.{BENCHMARK}.exposure]\naccepted_overlaps = ["{LABELS}"]\n'
    small = f"[benchmarks.{LABELS}.release]\nmin_cell = 2\nplace_cell = 2\n"
    with pytest.raises(ValueError, match="min_cell"):  # the labels' board is too small to show anything
        serve(database_url, published, accepted + small, tmp_path / "settings.toml")
    store = Store(database_url)
    Catalogue(store, published.values())
    notes = standings(store, published[BENCHMARK, "1.0.0"]).notes
    assert any(note.startswith("Note that the public split 'released' of reveal-cxr 1.0.0 reveals") for note in notes)
    assert not any("reveals references" in note for note in standings(store, published[LABELS, "1.0.0"]).notes)


def test_other_cases_overlap_with_nothing(board: Board, tmp_path: Path) -> None:
    others = [StudyRecord(f"other{i}", f"somebody{i}", (REVEAL_LABELS[1],)) for i in range(6)]
    build_folder(
        {"test": others}, tmp_path / "labels", BENCHMARKS[LABELS], pixels="withhold", holdout=tmp_path / "private"
    )
    published = read_published_boards([(board.folder, "holdout"), (tmp_path / "labels", "holdout")])
    assert [one.overlaps for one in published.values()] == [(), ()]


def test_a_version_that_an_earlier_one_reveals_is_never_shown(database_url: str, tmp_path: Path) -> None:
    """Version 2 holds out what version 1 released; version 3 publishes the holdout of version 1, as when it retires."""
    studies = [[StudyRecord(f"{half}{i}", f"{half}{i}", (REVEAL_LABELS[0],)) for i in range(3)] for half in "abcd"]
    halves = {"1.0.0": (studies[0], studies[1]), "2.0.0": (studies[3], studies[0]), "3.0.0": (studies[1], studies[2])}
    folders = []
    for version, (released, held) in halves.items():
        place = {"holdout": tmp_path / version / "private", "holdout_split": "holdout", "pixels": "withhold"}
        splits = {"released": released, "holdout": held}
        build_folder(splits, tmp_path / version / "public", BENCHMARKS[LABELS], version=version, **place)  # type: ignore[arg-type]
        folders.append((tmp_path / version / "public", "holdout"))
    published = read_published_boards(folders)
    with pytest.raises(TooSmallError):  # the versions that wait are no reason not to start
        serve(database_url, published, "", tmp_path / "settings.toml")
    store = Store(database_url)
    Catalogue(store, [replace(published[LABELS, "2.0.0"], overlaps=())])  # a start without the other folders
    with store.write() as connection:
        with pytest.raises(
            RefreshError,
            match=r"version 2\.0\.0 must have references .*, but the public split 'released' of reveal-cxr",
        ):
            start_refresh(connection, LABELS, "2.0.0", who="user:admin")
        with pytest.raises(
            RefreshError, match=r"of reveal-cxr 3\.0\.0 reveals references of 3 of 3 .*: pause the board first"
        ):
            start_refresh(connection, LABELS, "3.0.0", who="user:admin")
        boards.set_state(connection, LABELS, "paused", who="user:admin", why="the holdout is retired")
        assert start_refresh(connection, LABELS, "3.0.0", who="user:admin") == 0
        switch_version(connection, LABELS, "3.0.0", who="user:admin")
    with pytest.raises(TooSmallError):  # the frozen version is public now
        serve(database_url, published, "", tmp_path / "settings.toml")
    accepted = f'[benchmarks.{LABELS}.exposure]\naccepted_overlaps = ["{LABELS}"]\n'
    with pytest.raises(TooSmallError):
        serve(database_url, published, accepted, tmp_path / "settings.toml")
    with store.write() as connection:
        assert start_refresh(connection, LABELS, "2.0.0", who="user:admin") == 0


def test_boards_of_two_servers_are_compared(database_url: str, board: Board, tmp_path: Path) -> None:
    """Either server refuses: the manifest of CheXlocalize names the labels of the other board's studies."""
    labels = labels_of(board, tmp_path / "labels", is_held=True)
    for own, other in ((labels, board.folder), (board.folder, labels)):
        published = read_published_boards([(own, "holdout")], beside=[other])
        with pytest.raises(
            OverlapError, match=r"reveal-cxr 1\.0\.0 must have references .*, but the manifest of chexlocalize"
        ):
            serve(database_url, published, "", tmp_path / "settings.toml")


def test_warnings_of_a_start_are_readable_in_the_journal(
    database_url: str, board: Board, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It replaces unknown texts by their lengths: the boards elsewhere, a waiting version, and an accepted leak."""
    log_to_stderr()
    beside = [labels_of(board, tmp_path / "labels", is_held=True)]
    published = read_published_boards([(board.folder, "holdout")], beside)
    key = (BENCHMARK, "1.0.0")
    published = {key: replace(published[key], overlaps=(Overlap(key, (BENCHMARK, "1.1.0"), "a sentence"),))}
    log_to_stderr(journal_words(Store(database_url), published.values()))
    settings = '[quota]\ntotal = 2\n[exposure]\naccepted_leaks = ["more submissions"]\n'
    serve(database_url, published, settings, tmp_path / "settings.toml")
    shared, waiting, leak = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert re.match(r"reveal-cxr also holds out (\d+) of the \1 cases of chexlocalize: budgets", shared)
    assert waiting.startswith("the public folder of chexlocalize 1.1.0 reveals references of chexlocalize 1.0.0; see")
    assert leak == "colluding teams can gain more than 0.05 on chexlocalize 1.0.0: more submissions"


def digests(*studies: str) -> dict[str, list[str]]:
    return {"study": list(studies), "image": [f"{study}-image" for study in studies], "picture": []}


def test_patients_are_recorded_only_under_a_key(database_url: str, board: Board) -> None:
    """The private folder names 40 to 60 patients of the 60 held-out images; only its studies are public."""
    store = Store(database_url)
    Catalogue(store, [board.published])
    holdouts = open_holdouts([(BENCHMARK, board.holdout)], shared=[], vault=board.holdout.parent / "vault-of-patients")
    query = sa.select(sa.func.count()).where(held_out.c.kind == "patient")
    for key, n in ((b"", 0), (b"k" * 32, len({record.patient_id for record in board.records}))):
        register_patients(store, holdouts, key)
        with store.read() as connection:
            assert connection.execute(query).scalar_one() == n


def test_a_public_split_with_held_out_patients_is_refused(database_url: str, board: Board, tmp_path: Path) -> None:
    """The other board released another study of a held-out patient; the worker with the key knows the patient."""
    patient = board.records[0].patient_id
    records = {name: [StudyRecord(name, who, (REVEAL_LABELS[0],))] for name, who in (("a", patient), ("b", "nobody"))}
    place = {"holdout": tmp_path / "private", "holdout_split": "holdout", "pixels": "withhold"}
    splits = {"released": records["a"], "holdout": records["b"]}
    build_folder(splits, tmp_path / "labels", BENCHMARKS[LABELS], **place)  # type: ignore[arg-type]
    key, store = b"k" * 32, Store(database_url)
    published = read_published_boards([(board.folder, "holdout"), (tmp_path / "labels", "holdout")], key=key)
    Catalogue(store, published.values())
    holdouts = open_holdouts([(BENCHMARK, board.holdout)], shared=[], vault=tmp_path / "vault")
    register_patients(store, holdouts, key)
    with pytest.raises(
        OverlapError,
        match=r"chexlocalize 1\.0\.0 must have references .* reveals references of 1 of \d+ held-out patients",
    ):
        serve(database_url, published, "", tmp_path / "settings.toml")


@on_both
def test_shares_both_ways(database_url: str) -> None:
    """Version 2 keeps two of the three cases of version 1 and adds two; another board has one of the new ones."""
    store = Store(database_url)
    with store.write() as connection:
        for name, version in (("a", "1"), ("a", "2"), ("b", "1")):
            boards.register_version(connection, name, version, "holdout")
        register_cases(connection, "a", "1", digests("x", "y", "z"))
        register_cases(connection, "a", "2", digests("y", "z", "v", "w"))
        register_cases(connection, "b", "1", digests("w"))
        register_cases(connection, "b", "1", digests("w"))  # known already
        assert shared_with(connection, "a", "1") == [SharedCases("a", "2", 2 / 3)]
        assert shared_with(connection, "a", "2") == [SharedCases("a", "1", 0.5), SharedCases("b", "1", 0.25)]
        assert shared_with(connection, "b", "1") == [SharedCases("a", "2", 1.0)]
        assert carried_words(connection, "a", "2") == [
            "2 shares 50% of its cases with a 1: submissions scored there count by that share, and a team's sum is "
            "rounded up",
            "2 shares 25% of its cases with b 1: submissions scored there count in full",
        ]


@on_both
def test_budgets_carry_over_by_the_share_of_cases(database_url: str) -> None:
    """Three used of three: on a version with half of these cases, two are used (1.5 rounded up), and one is left."""
    world = World(database_url, quota=QuotaPolicy(total=3, per_day=3, board_total=5))
    for n in range(3):
        world.add(sha256=f"{n:064x}")
    with world.store.write() as connection:
        register_cases(connection, "bench", "1.0", digests("x", "y"))
        for version, studies in (("2.0", "yz"), ("3.0", "xy"), ("4.0", "z")):
            boards.register_version(connection, "bench", version, "holdout")
            register_cases(connection, "bench", version, digests(*studies))
        left = {}
        for version in ("2.0", "3.0", "4.0"):
            balance = quota.balance(connection, "team1", "bench", version, world.settings)
            left[version] = balance.carried, balance.left, balance.board_left
        other = quota.balance(connection, "team2", "bench", "3.0", world.settings)
    assert left == {"2.0": (2, 1, 3), "3.0": (3, 0, 2), "4.0": (0, 3, 5)}
    assert (other.carried, other.left, other.board_left) == (0, 3, 2)
    assert balance.why.startswith("Scored submissions left for your team: 3 of 3")
    with world.store.read() as connection:
        used_up = quota.balance(connection, "team1", "bench", "3.0", world.settings)
    assert "(3 of 3 used, of which 3 for the same cases in another version or on another board)" in used_up.why


CONTAINED = {"bench": digests("x", "y"), "other": digests("x", "y", "z", "v")}
IN_PART = {"bench": digests("x", "y"), "other": digests("y", "z")}


@pytest.mark.parametrize("held_out", [CONTAINED, IN_PART], ids=["contained", "in part"])
@pytest.mark.parametrize("order", [("bench", "other"), ("other", "bench")], ids=["one first", "other first"])
def test_no_order_reveals_more_of_a_case(
    database_url: str, held_out: dict[str, dict[str, list[str]]], order: tuple[str, str]
) -> None:
    """Two answers on the common cases, and no third one on either board, today or later."""
    world = World(database_url, quota=QuotaPolicy(total=2, per_day=2, board_total=5))
    with world.store.write() as connection:
        boards.register_version(connection, "other", "1.0", "holdout", {"n_images": 60})
        for name, cases in held_out.items():
            register_cases(connection, name, "1.0", cases)
    first, second = order
    world.add(benchmark=first)
    world.add(benchmark=second, sha256="b" * 64)
    with world.store.read() as connection:
        balances = [quota.balance(connection, "team1", name, "1.0", world.settings) for name in order]
        other = quota.balance(connection, "team2", first, "1.0", world.settings)
    assert [(balance.left, balance.left_today, balance.board_left) for balance in balances] == [(0, 0, 3)] * 2
    assert (other.left, other.board_left) == (2, 3)
    for name in order:
        with pytest.raises(QuotaExceededError, match="no scored submission left"):
            world.add(benchmark=name, sha256="c" * 64)


def test_a_small_board_that_is_used_up_closes_a_large_one_for_the_team(database_url: str) -> None:
    """The small board's three cases are below the share of the large one that counts, yet all of them are in it."""
    world = World(database_url, quota=QuotaPolicy(total=2, per_day=9, board_total=9))
    with world.store.write() as connection:
        boards.register_version(connection, "large", "1.0", "holdout", {"n_images": 60})
        register_cases(connection, "bench", "1.0", digests("x", "y", "z"))
        register_cases(connection, "large", "1.0", digests("x", "y", "z", *(f"other{i}" for i in range(200))))
        assert shared_with(connection, "large", "1.0") == []
    for n in range(2):
        world.add(sha256=f"{n:064x}")
    with world.store.read() as connection:
        balance = quota.balance(connection, "team1", "large", "1.0", world.settings)
    assert (balance.total, balance.carried, balance.left) == (2, 0, 0)
    assert balance.why.endswith("for the cases that this board shares with bench (2 of 2 used).")


def test_the_meter_counts_answers_on_the_same_cases(database_url: str) -> None:
    world = World(database_url)
    world.score(0.5, "one")
    world.score(0.6, "two", sha256="b" * 64)
    with world.store.write() as connection:
        register_cases(connection, "bench", "1.0", digests("x", "y"))
        boards.register_version(connection, "bench", "2.0", "holdout")
        register_cases(connection, "bench", "2.0", digests("y", "z"))
        before, after = (exposure(connection, "bench", version, world.settings) for version in ("1.0", "2.0"))
    assert (before.n_scored, after.n_scored) == (2, 1)


def test_the_meter_knows_findings_by_other_names(database_url: str) -> None:
    """ "lung_opacity" of the other board is the "Airspace Opacity" of this one; one answer of 30 to 59 cases each."""
    world = World(database_url)
    figure = ReleasedEstimate("f1", "lung_opacity", 0.6, 0.5, 0.7, "30-59", "")
    facts = {"kind": "findings", "n_studies": 100}
    with world.store.write() as connection:
        for name, finding in (("here", "Airspace Opacity"), ("there", "lung_opacity")):
            boards.register_version(connection, name, "1.0", "holdout", {**facts, "findings": [finding]})
            register_cases(connection, name, "1.0", digests("x", "y"))
    for n, (name, finding) in enumerate((("here", "Airspace Opacity"), ("there", "lung_opacity"))):
        world.add(benchmark=name, sha256=f"{n:064x}", team_id=f"team{n + 1}", user_id=f"user{n + 1}")
        job = world.take(served=[(name, "1.0")])
        score = ReleasedScore((replace(figure, finding=finding),), (finding,), (), "", {})
        assert world.queue.finish_score(job, who="worker:w", outcome=replace(outcome(content=name), released=score))
    with world.store.read() as connection:
        meter = exposure(connection, "here", "1.0", world.settings)
    assert (meter.finding, meter.bits_out) == ("Airspace Opacity", round(2 * math.log2(11), 1))  # 0.0, 0.1 ... 1.0


def test_a_few_equal_ids_do_not_count(database_url: str) -> None:
    world = World(database_url)
    with world.store.write() as connection:
        boards.register_version(connection, "other", "1.0", "holdout", {"n_images": 60})
        register_cases(connection, "bench", "1.0", digests(*(f"a{i}" for i in range(98)), "x", "y"))
        register_cases(connection, "other", "1.0", digests(*(f"b{i}" for i in range(98)), "x", "y"))
        register_cases(connection, "other", "0.9", digests(*(f"c{i}" for i in range(99)), "x"))
        assert [one.share for one in shared_with(connection, "bench", "1.0")] == [0.02]  # 1% does not count


def test_pictures_that_follow_are_compared(database_url: str) -> None:
    """A server with the manifests alone registers first; the pictures of the next one show the common case."""
    store = Store(database_url)
    with store.write() as connection:
        for name in ("a", "b"):
            boards.register_version(connection, name, "1", "holdout")
        register_cases(connection, "a", "1", {"study": ["x"], "image": ["x1"], "picture": ["same"]})
        register_cases(connection, "b", "1", {"study": ["y"], "image": ["y1"], "picture": []})
        assert shared_with(connection, "b", "1") == []
        register_cases(connection, "b", "1", {"study": ["y"], "image": ["y1"], "picture": ["same"]})
        assert shared_with(connection, "b", "1") == [SharedCases("a", "1", 1.0)]
        assert shared_with(connection, "a", "1") == [SharedCases("b", "1", 1.0)]


def test_a_submission_scored_again_counts_once(database_url: str) -> None:
    world = World(database_url)
    submission = world.score(0.5, "one")
    with world.store.write() as connection:
        register_cases(connection, "bench", "1.0", digests("x", "y"))
        boards.register_version(connection, "bench", "2.0", "holdout")
        register_cases(connection, "bench", "2.0", digests("y", "z", "w"))
        row = dict(connection.execute(sa.select(scores)).mappings().one())
        connection.execute(scores.insert().values({**row, "version": "2.0"}))
        meter = exposure(connection, "bench", "2.0", world.settings)
    assert (meter.n_scored, submission.status) == (1, "scored")


def test_a_board_whose_budget_is_used_up_is_paused_with_the_reason(database_url: str) -> None:
    world = World(database_url, quota=QuotaPolicy(total=3, per_day=3, board_total=2))

    def pause(version: str) -> boards.BoardRow:
        with world.store.write() as connection:
            pause_used_up(connection, "bench", version, world.settings, who="worker:w")
            board = boards.board(connection, "bench")
        assert board is not None
        return board

    world.score(0.5, "one")
    assert pause("1.0").state == "open"
    world.score(0.6, "two", sha256="b" * 64)
    assert pause("2.0").state == "open"  # not the version on the board
    board = pause("1.0")
    assert board.state == "paused"
    assert pause("1.0") == board  # it is paused already
    assert board.why.startswith("The held-out labels are used up until they are refreshed. 2 of 2 submissions are used")


@on_both
@pytest.mark.parametrize("other", ["bench", "other"], ids=["one board", "boards with the same cases"])
def test_workers_that_finish_at_once_release_only_the_score_that_fits(database_url: str, other: str) -> None:
    """One of two answers is given. The meter is "close" after either of two more, so the second waits for a refresh."""
    world = World(database_url)
    allowed = FixedSettings(world.settings._document, quota=QuotaPolicy(total=2, per_day=2, board_total=2))
    with world.store.write() as connection:
        for name in {"bench", other}:
            boards.register_version(connection, name, "1.0", "holdout", {"n_images": 60})
            register_cases(connection, name, "1.0", digests("x", "y"))
    world.score(0.5)
    leased = []
    for n, name in enumerate(("bench", other), 1):
        world.add(benchmark=name, team_id=f"team{n}", user_id=f"user{n}", sha256=f"{n:064x}")
        leased.append(world.take(served=[(name, "1.0")]))

    def finish(job: Job) -> bool:
        guarded = GuardedOutcome(outcome(0.6, job.subject), allowed, admit=lambda: None)
        return world.queue.finish_score(job, who="worker:w", outcome=guarded)

    assert sorted(at_once(finish, leased)) == [False, True]
    assert sorted(submission.status for submission in world.store.list_submissions()) == ["queued", "scored", "scored"]
    with world.store.read() as connection:
        assert {board.state for board in boards.list_boards(connection)} == {"paused"}
