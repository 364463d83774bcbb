"""Attacks on the account of a case, over HTTP: by a manifest, a refresh, another board, and free accounts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from reveal_leaderboard.boards.catalogue import Catalogue, read_published_boards
from reveal_leaderboard.boards.refresh import start_refresh, switch_version
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.worker.worker import GuardedOutcome

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.overlaps import OverlapError
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from tests.leaderboard.api_app import World, api_world, person, problem, released
from tests.leaderboard.conftest import BENCHMARK, Board, guesses, make_records
from tests.leaderboard.databases import Kept
from tests.leaderboard.test_overlaps import labels_of
from tests.leaderboard.worlds import outcome

OTHER = "ms-cxr"
BUDGETS = "[quota]\ntotal = 2\nper_day = 2\nboard_total = 8\n"
ADMIN = "user:admin"


def build(root: Path, name: str = BENCHMARK, version: str = "1.1.0") -> Board:
    """Build the cases of the fixture `board`, held out by the same draw, as another version or benchmark."""
    records, findings = make_records(120, seed=11), BENCHMARKS[name].findings
    if name != BENCHMARK:
        records = [
            replace(
                record,
                label_status={finding: record.label_status.get(finding, 0) for finding in findings},
                annotations=tuple(note for note in record.annotations if note.finding in findings),
            )
            for record in records
        ]
    private = root / "private" / "references"
    build_folder(
        {"test": records}, root / "public", BENCHMARKS[name], version=version, pixels="withhold", holdout=private,
        seed=3, synthetic=True,
    )  # fmt: skip
    return Board(root / "public", private)


@pytest.fixture(scope="module")
def kept_world(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One application for all attacks, with a later version of the board and another board on the same cases."""
    root = tmp_path_factory.mktemp("accounts")
    further = [build(root / "later"), build(root / "other", OTHER)]
    with api_world(board, root, settings=BUDGETS, further=further) as made:
        yield made


@pytest.fixture
def world(kept_world: World) -> Iterator[World]:
    kept = Kept(kept_world.services.store.engine)
    yield kept_world
    kept.put_back()


def send(world: World, folder: Path, seed: int, name: str = BENCHMARK, **options: object) -> httpx.Response:
    """POST guesses, other ones for each seed, to a board."""
    manifest = world.services.intake.catalogue.current(name).manifest
    file = folder / f"{name}{seed}.jsonl"
    file.write_text(predictions_to_jsonl(guesses(manifest, seed=seed, masks=False)), encoding="utf-8")
    return world.send(file, f"Model {seed}", fields={"benchmark": name}, **options)


def score_all(world: World) -> None:
    """Score what is queued, each with a higher score, and pause boards that are used up, as a worker does."""
    queue, served = world.services.queue, [(BENCHMARK, "1.0.0"), (BENCHMARK, "1.1.0"), (OTHER, "1.1.0")]
    while (job := queue.claim("hand", served=served)) is not None:
        if job.kind == "rank":
            queue.finish_result(job, document={"schema": 1, "entries": {}, "computed_for": []})
        else:
            world.n_scored += 1
            scored = replace(outcome(content=job.subject), released=released(0.02 * world.n_scored))
            guarded = GuardedOutcome(scored, world.services.settings, admit=lambda: None)
            assert queue.finish_score(job, who="worker:hand", outcome=guarded)


def test_a_manifest_that_decodes_another_board_is_refused_by_the_server(
    world: World, board: Board, tmp_path: Path
) -> None:
    """Without a model, the downloaded manifest gives every label of the studies, so both boards are never served."""
    rows = world.client().get(f"/api/v1/benchmarks/{BENCHMARK}/manifest", params={"format": "json"}).json()["rows"]
    decoded = {(row["study_id"], finding) for row in rows for finding in row["asked"]}
    labels = {(record.study_id, note.finding) for record in board.records for note in record.annotations}
    assert decoded == labels
    published = read_published_boards(
        [(board.folder, "holdout"), (labels_of(board, tmp_path / "labels", is_held=True), "holdout")]
    )
    store = Store(f"sqlite:///{tmp_path / 'board.sqlite'}", load_settings())
    with pytest.raises(OverlapError, match=r"the manifest of chexlocalize 1\.0\.0 reveals references of"):
        Catalogue(store, published.values(), checked=True)


def test_a_refresh_hands_out_no_budget_again(world: World, tmp_path: Path) -> None:
    for seed in (1, 2):
        assert send(world, tmp_path, seed).status_code == 202
    score_all(world)
    assert "2 of 2 used" in problem(send(world, tmp_path, 3), 429, "quota")["detail"]
    with world.services.store.write() as connection:
        assert start_refresh(connection, BENCHMARK, "1.1.0", who=ADMIN) == 2
    score_all(world)
    with world.services.store.write() as connection:
        switch_version(connection, BENCHMARK, "1.1.0", who=ADMIN)
    refused = problem(send(world, tmp_path, 4), 429, "quota")["detail"]
    assert "2 of 2 used, of which 2 for the same cases in another version" in refused
    assert send(world, tmp_path, 4, who=world.other).status_code == 202


@pytest.mark.parametrize("order", [(BENCHMARK, OTHER), (OTHER, BENCHMARK)])
def test_another_board_gives_no_more_answers_on_the_same_cases(
    world: World, tmp_path: Path, order: tuple[str, str]
) -> None:
    for seed, name in enumerate(order):
        assert send(world, tmp_path, seed, name).status_code == 202
    score_all(world)
    for seed, name in enumerate(order, 2):
        assert "no scored submission left" in problem(send(world, tmp_path, seed, name), 429, "quota")["detail"]


def test_fifty_free_accounts_wait_and_a_used_up_board_pauses(world: World, tmp_path: Path) -> None:
    """By default none of the teams may submit; once approved, they stop when the board's 8 answers are used up."""
    services = world.services
    is_asked = services.settings.accounts.new_teams == "asked"
    free = [person(services.accounts, f"Free {n}", is_asked=is_asked) for n in range(50)]
    answers = [send(world, tmp_path, 0, who=one) for one in free]
    assert {answer.status_code for answer in answers} == {409}
    assert "may submit once approved" in answers[0].json()["detail"]
    statuses = []
    for n, one in enumerate(free[:9]):
        services.accounts.approve_team(one.team, f"user:{world.admin.user.id}")
        statuses.append(send(world, tmp_path, n, who=one).status_code)
        score_all(world)
    assert statuses == [202] * 8 + [409]
    board = world.client().get("/api/v1/benchmarks").json()["benchmarks"][0]
    assert (board["name"], board["state"]) == (BENCHMARK, "paused")
    assert board["state_why"].startswith(
        "The held-out labels are used up until they are refreshed. 8 of 8 submissions are used"
    )
