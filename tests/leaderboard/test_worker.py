"""Workers as processes: killed, stopped and asked to end; and what one says when something breaks."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from reveal_leaderboard import worker as worker_module
from reveal_leaderboard.intake import Intake, open_data
from reveal_leaderboard.metadata import read_metadata
from reveal_leaderboard.release import release
from reveal_leaderboard.store import Store, Submission
from reveal_leaderboard.worker import Worker, open_holdouts
from sqlalchemy.exc import OperationalError

from reveal_bench.scoring import score_localization, summarize
from tests.leaderboard.conftest import BENCHMARK, METADATA, Board, guesses, running, wait_until


class Desk:
    """A data folder with a way in, and workers on it."""

    def __init__(self, board: Board, root: Path) -> None:
        self.board, self.root, self.data, self.vault = board, root, root / "data", root / "vault"
        self.store: Store
        self.store, blobs = open_data(self.data)
        self.intake = Intake(self.store, blobs, {BENCHMARK: board.published})

    def submit(self, file: Path) -> Submission:
        with file.open("rb") as stream:
            outcome = self.intake.submit(
                stream,
                BENCHMARK,
                read_metadata(json.dumps(METADATA)),
                filename=file.name,
                allow_missing=False,
                who="test",
            )
        assert outcome.submission is not None
        return outcome.submission

    def worker(self, *options: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        holdout = f"{BENCHMARK}={self.board.holdout}"
        arguments = ("worker", "--data", self.data, "--holdout", holdout, "--vault", self.vault, *options)
        return running(*arguments, log=self.root / "worker.log")

    def status(self, submission: Submission) -> str:
        now = self.store.get(submission.id)
        assert now is not None
        return now.status

    def wait_for_result_in_hand(self, submission: Submission) -> None:
        wait_until((self.vault / f"{submission.id}.json").exists)

    def stop_outside_a_transaction(self, process: subprocess.Popen[bytes]) -> None:
        """SIGSTOP at a moment when the process does not hold SQLite's write lock: nobody could write then."""

        def stopped() -> bool:
            process.send_signal(signal.SIGSTOP)
            try:
                with sqlite3.connect(self.data / "leaderboard.sqlite", timeout=0.2, isolation_level=None) as probe:
                    probe.execute("BEGIN IMMEDIATE")
                    probe.execute("ROLLBACK")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
                return False
            return True

        wait_until(stopped)

    def in_process(self) -> Worker:
        holdouts = open_holdouts({BENCHMARK: self.board.holdout}, data=self.data, vault=self.vault)
        return Worker(self.data, holdouts)


@pytest.fixture
def desk(board: Board, tmp_path: Path) -> Desk:
    return Desk(board, tmp_path)


def expected(board: Board) -> dict[str, object]:
    rows = score_localization(guesses(board.manifest), board.records, findings=board.manifest.findings)
    document: dict[str, object] = json.loads(json.dumps(release(rows).to_json()))
    return document


@pytest.mark.processes
def test_a_worker_killed_with_the_result_in_hand_loses_nothing_and_scores_once(
    desk: Desk, write_file: Callable[..., Path]
) -> None:
    submission = desk.submit(write_file())
    with desk.worker("--lease-seconds", "1", "--pause-before-finish", "600") as victim:
        desk.wait_for_result_in_hand(submission)
        assert desk.status(submission) == "scoring"
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    assert desk.status(submission) == "scoring"
    with desk.worker("--lease-seconds", "1"):
        wait_until(lambda: desk.status(submission) == "scored")
    path = [event.to_status for event in desk.store.events_of(submission.id)]
    assert path == ["received", "linted", "queued", "scoring", "scoring", "scored"]
    [(scored, score)] = desk.store.scored(BENCHMARK, "1.0.0", "holdout")
    assert scored.attempts == 2
    assert score.released == expected(desk.board)


@pytest.mark.processes
def test_a_worker_that_wakes_after_its_lease_cannot_write(desk: Desk, write_file: Callable[..., Path]) -> None:
    submission = desk.submit(write_file())
    with desk.worker("--lease-seconds", "1", "--pause-before-finish", "3") as zombie:
        desk.wait_for_result_in_hand(submission)
        desk.stop_outside_a_transaction(zombie)
        with desk.worker("--lease-seconds", "1"):
            wait_until(lambda: desk.status(submission) == "scored")
        zombie.send_signal(signal.SIGCONT)
        log = desk.root / "worker.log"
        wait_until(lambda: "this result is dropped" in log.read_text())
    assert [event.to_status for event in desk.store.events_of(submission.id)].count("scored") == 1


@pytest.mark.processes
def test_a_heartbeat_outlives_many_leases(desk: Desk, write_file: Callable[..., Path]) -> None:
    submission = desk.submit(write_file())
    with desk.worker("--lease-seconds", "0.6", "--pause-before-finish", "3"):
        desk.wait_for_result_in_hand(submission)
        while desk.status(submission) == "scoring":
            assert desk.store.claim("thief", served=[(BENCHMARK, "1.0.0")]) is None
    assert desk.status(submission) == "scored"


@pytest.mark.processes
def test_asked_to_end_a_worker_finishes_what_it_has(desk: Desk, write_file: Callable[..., Path]) -> None:
    submission = desk.submit(write_file())
    with desk.worker("--pause-before-finish", "600") as process:
        desk.wait_for_result_in_hand(submission)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert desk.status(submission) == "scored"


def test_exact_figures_stay_in_the_vault(desk: Desk, write_file: Callable[..., Path]) -> None:
    submission = desk.submit(write_file())
    desk.in_process().run(once=True)
    path = desk.vault / f"{submission.id}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(desk.vault.stat().st_mode) == 0o700
    exact = json.loads(path.read_text(encoding="utf-8"))
    rows = score_localization(guesses(desk.board.manifest), desk.board.records, findings=desk.board.manifest.findings)
    assert [e["value"] for e in exact] == [e.value for e in summarize(rows)]
    figures = {repr(e[name]) for e in exact for name in ("value", "low", "high")}
    raw = [figure for figure in figures if len(figure) > 8]
    assert raw
    for file in (path for path in desk.data.rglob("*") if path.is_file()):
        content = file.read_bytes()
        assert not [figure for figure in raw if figure.encode() in content], file


CANARY = "canary-patient00007"


def test_a_failure_after_the_references_were_opened_is_one_fixed_sentence(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise KeyError(CANARY)

    monkeypatch.setattr(worker_module, "score_localization", broken)
    submission = desk.submit(write_file())
    desk.in_process().run(once=True)
    failed = desk.store.get(submission.id)
    assert failed is not None
    assert failed.status == "failed"
    assert failed.incident is not None
    assert desk.store.events_of(submission.id)[-1].why == worker_module.INCIDENT.format(number=failed.incident)
    assert CANARY in (desk.vault / f"{failed.incident}.txt").read_text(encoding="utf-8")
    assert CANARY not in caplog.text
    for file in (path for path in desk.data.rglob("*") if path.is_file()):
        assert CANARY.encode() not in file.read_bytes()


def test_a_file_that_no_longer_passes_is_refused_before_references_are_opened(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = desk.submit(write_file())
    desk.intake.blobs.path(submission.sha256).write_text("no predictions\n", encoding="utf-8")
    monkeypatch.setattr(worker_module, "read_localization", lambda *_: pytest.fail("references were opened"))
    desk.in_process().run(once=True)
    assert desk.status(submission) == "refused"
    assert "linter" in desk.store.events_of(submission.id)[-1].why


def test_the_reference_hash_is_salted(desk: Desk, board: Board) -> None:
    holdout = desk.in_process().holdouts[BENCHMARK]
    once = holdout.reference_hash("holdout")
    assert once == holdout.reference_hash("holdout")
    (desk.vault / "salt").unlink()
    assert once != holdout.reference_hash("holdout")


def test_a_holdout_that_a_server_could_read_is_refused(board: Board, tmp_path: Path) -> None:
    holdout, data = board.holdout, tmp_path / "data"
    with pytest.raises(ValueError, match="holdout must lie apart"):
        open_holdouts({BENCHMARK: holdout}, data=holdout.parent, vault=None)
    with pytest.raises(ValueError, match="holdout must lie apart"):
        open_holdouts({BENCHMARK: holdout}, data=holdout / "data", vault=None)
    with pytest.raises(ValueError, match="vault must lie apart"):
        open_holdouts({BENCHMARK: holdout}, data=data, vault=data / "vault")
    with pytest.raises(ValueError, match="reads as a program"):
        open_holdouts({BENCHMARK: Path("/usr/share")}, data=data, vault=tmp_path / "vault")
    with pytest.raises(ValueError, match="must be that benchmark"):
        open_holdouts({"chestx-det": holdout}, data=data, vault=tmp_path / "vault")


def test_a_database_that_does_not_answer_is_waited_for(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = desk.submit(write_file())
    worker = desk.in_process()
    claim, calls = worker.store.claim, []

    def sometimes(*arguments: object, **options: object) -> Submission | None:
        calls.append(arguments)
        if len(calls) == 1:
            raise OperationalError("BEGIN IMMEDIATE", {}, sqlite3.OperationalError("database is locked"))
        return claim(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(worker.store, "claim", sometimes)
    worker.run(once=True)
    assert desk.status(submission) == "scored"


def test_a_public_folder_is_no_holdout(board: Board, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must hold the references of its split 'holdout'"):
        open_holdouts({BENCHMARK: board.folder}, data=tmp_path / "data", vault=tmp_path / "vault")
