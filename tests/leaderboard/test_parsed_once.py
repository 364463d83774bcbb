"""From an upload over HTTP to a row of the board a file is parsed once, and again only for another version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from reveal_leaderboard.boards.catalogue import Catalogue
from reveal_leaderboard.boards.refresh import start_refresh, switch_version
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.custody import arrays as canonical_module
from reveal_leaderboard.custody.arrays import read_canonical
from reveal_leaderboard.custody.fork_client import TemplateService
from reveal_leaderboard.custody.messages import ExitStatus, JobRequest
from reveal_leaderboard.store.audit import audit
from reveal_leaderboard.store.tables import flags
from reveal_leaderboard.worker.worker import Worker, open_holdouts

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.localization.lint import lint_predictions
from tests.leaderboard.api_app import World, api_world
from tests.leaderboard.conftest import BENCHMARK, Board, make_records


@pytest.fixture(scope="module")
def next_board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """The next version of `board`, which asks the same."""
    root = tmp_path_factory.mktemp("next")
    board = Board(root / "public", root / "private" / "references")
    build_folder(
        {"test": iter(make_records(120, seed=11))}, board.folder, BENCHMARKS[BENCHMARK], pixels="withhold",
        version="1.1.0", holdout=board.holdout, seed=3, synthetic=True,
    )  # fmt: skip
    return board


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs of all children."""
    jobs: list[str] = []
    run = TemplateService.run

    def noted(
        self: TemplateService, request: JobRequest, files: Sequence[int] = (), *, shared: bytes = b""
    ) -> tuple[ExitStatus, bytes | None]:
        jobs.append(request.job)
        return run(self, request, files, shared=shared)

    monkeypatch.setattr(TemplateService, "run", noted)
    return jobs


def work(world: World, custody: Custody, root: Path, *boards: Board) -> None:
    """Do all that is queued."""
    holdouts = open_holdouts([(BENCHMARK, one.holdout) for one in boards], shared=[], vault=root / "vault")
    services = world.services
    Worker(services.store, services.intake.blobs, holdouts, custody, services.settings).run(once=True)


def test_a_file_is_parsed_once_and_again_for_another_version(
    board: Board, next_board: Board, custody: Custody, write_file: Callable[..., Path], tmp_path: Path, asked: list[str]
) -> None:
    (tmp_path / "world").mkdir()
    with api_world(board, tmp_path / "world", children=custody) as world:
        store, blobs = world.services.store, world.services.intake.blobs
        answer = world.send(write_file())
        assert answer.status_code == 202, answer.text
        assert asked == ["parse"]
        submission = store.get(answer.json()["id"])
        assert submission is not None
        with blobs.open_local(submission.canonical or "") as kept:
            assert read_canonical(kept, board.manifest) == lint_predictions(write_file(), board.manifest).predictions
        work(world, custody, tmp_path, board)
        assert asked == ["parse", "score", "rank"]
        assert world.client(world.owner).get(answer.json()["url"]).json()["status"] == "scored"
        assert [entry.id for entry, _ in store.board_rows(BENCHMARK, "1.0.0")] == [submission.id]
        assert world.send(write_file()).json()["is_new"] is False  # linted before it is known to be there

        asked.clear()
        Catalogue(store, [board.published, next_board.published])
        with store.write() as connection:
            assert start_refresh(connection, BENCHMARK, "1.1.0", who="cli:test") == 1
        work(world, custody, tmp_path, board, next_board)
        assert sorted(set(asked)) == ["parse", "rank", "score"]
        assert (asked.count("parse"), asked.count("score")) == (1, 1)
        with store.write() as connection:
            switch_version(connection, BENCHMARK, "1.1.0", who="cli:test")
        assert [entry.id for entry, _ in store.board_rows(BENCHMARK, "1.1.0")] == [submission.id]

        assert blobs.orphans(store, older_than=-5) == []
        with store.read() as connection:
            assert audit(connection, blobs=blobs).problems == ()


def test_signs_for_moderators_are_those_of_the_one_parse(
    board: Board, custody: Custody, write_file: Callable[..., Path], tmp_path: Path, asked: list[str]
) -> None:
    lines = write_file(masks=False).read_text().splitlines()
    point = lines[0][lines[0].index('"point') :]
    file = tmp_path / "same.jsonl"
    file.write_text("".join(line[: line.index('"point')] + point + "\n" for line in lines))
    (tmp_path / "world").mkdir()
    with api_world(board, tmp_path / "world", children=custody) as world:
        submission_id = world.send(file).json()["id"]
        submission = world.services.store.get(submission_id)
        assert submission is not None
        assert submission.signs
        with world.services.store.read() as connection:
            assert connection.execute(sa.select(flags)).all() == []  # flags are reported when it is scored
        work(world, custody, tmp_path, board)
        assert asked[:2] == ["parse", "score"]
        assert [flag.detail for flag in world.services.store.flags() if flag.kind == "degenerate"] == list(
            submission.signs
        )


def test_another_format_is_another_stamp(
    board: Board, custody: Custody, write_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "canonical.npz"
    custody.parse(write_file(), board.manifest, name="mine", canonical=kept)
    before = canonical_module.stamp_of(board.manifest)
    monkeypatch.setattr(canonical_module, "FORMAT", canonical_module.FORMAT + 1)
    assert canonical_module.stamp_of(board.manifest) != before
    with pytest.raises(ValueError, match="for a different manifest or format"):
        read_canonical(kept, board.manifest)
