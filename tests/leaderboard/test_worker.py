"""Workers that are slow, asked to end, or meet broken data; killed and stopped ones are in `kill`."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.boards.catalogue import Catalogue
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.custody.scoring import read_cases
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.release.receipts import KEY_FILE
from reveal_leaderboard.release.release import release
from reveal_leaderboard.settings import Settings, load_settings
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.boards import set_state
from reveal_leaderboard.store.metadata import read_metadata
from reveal_leaderboard.store.queue import Job, Queue
from reveal_leaderboard.store.store import NewSubmission, Store, Submission
from reveal_leaderboard.store.tables import boards, jobs, ledger, results, submissions
from reveal_leaderboard.web.submissions import Intake
from reveal_leaderboard.worker import worker as worker_module
from reveal_leaderboard.worker.answers import AnswerCount, CountDamagedError
from reveal_leaderboard.worker.worker import USED_UP, Worker, open_holdouts
from sqlalchemy.exc import OperationalError

from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.scoring import CaseRows, score_localization
from tests.leaderboard.conftest import BENCHMARK, METADATA, Board, guesses, running, wait_until
from tests.leaderboard.databases import DATABASE_SOURCE
from tests.leaderboard.forked import Process


class Desk:
    """A data folder with an intake, and workers on it."""

    def __init__(self, board: Board, root: Path, custody: Custody) -> None:
        self.board, self.root, self.data, self.vault = board, root, root / "data", root / "vault"
        self.data.mkdir()
        self.custody = custody
        (root / "settings.toml").write_text("[quota]\ntotal = 3\n", encoding="utf-8")
        settings = load_settings(root / "settings.toml")
        DATABASE_SOURCE.migrated("sqlite", self.data)
        (self.data / "board.sqlite").rename(self.data / "leaderboard.sqlite")
        self.store = Store(f"sqlite:///{self.data / 'leaderboard.sqlite'}", settings)
        self.blobs, self.accounts = Blobs(self.data / "blobs"), Accounts(self.store.engine)
        catalogue = Catalogue(self.store, [board.published])
        self.intake = Intake(self.store, self.blobs, catalogue, custody, self.accounts)

    def submit(self, file: Path) -> Submission:
        with file.open("rb") as stream:
            outcome = self.intake.submit(
                stream,
                BENCHMARK,
                read_metadata(json.dumps(METADATA)),
                actor=self.accounts.local_actor(),
                filename=file.name,
                allow_missing=False,
            )
        assert outcome.submission is not None
        return outcome.submission

    def worker(self, *options: str) -> AbstractContextManager[Process]:
        holdout = f"{BENCHMARK}={self.board.holdout}"
        arguments = ("worker", "--data", self.data, "--holdout", holdout, "--vault", self.vault, *options)
        return running(*arguments, log=self.root / "worker.log")

    def status(self, submission: Submission) -> str:
        now = self.store.get(submission.id)
        return now.status

    def job(self, submission: Submission) -> Job:
        with self.store.read() as connection:
            return Job(**connection.execute(jobs.select().where(jobs.c.subject == submission.id)).one()._mapping)

    def exact_file(self, submission: Submission) -> Path:
        return self.vault / f"{submission.id}.1.0.0.npz"

    def wait_for_result_in_hand(self, submission: Submission) -> None:
        wait_until(self.exact_file(submission).exists)

    def in_process(self, settings: Settings | None = None) -> Worker:
        holdouts = open_holdouts([(BENCHMARK, self.board.holdout)], shared=[self.data], vault=self.vault)
        return Worker(self.store, self.blobs, holdouts, self.custody, settings or self.store.settings)


@pytest.fixture
def desk(board: Board, tmp_path: Path, custody: Custody) -> Desk:
    return Desk(board, tmp_path, custody)


def rows_of(board: Board) -> CaseRows:
    return score_localization(guesses(board.manifest), board.records, findings=board.manifest.findings)


def expected(board: Board, desk: Desk) -> dict[str, object]:
    policy = desk.store.settings.of(BENCHMARK).release
    document: dict[str, object] = json.loads(json.dumps(release(rows_of(board), policy).to_json()))
    return document


@pytest.mark.processes
def test_a_heartbeat_outlives_many_leases(desk: Desk, write_file: Callable[..., Path]) -> None:
    submission = desk.submit(write_file())
    queue = Queue(desk.store.engine, desk.store.settings)
    with desk.worker("--lease-seconds", "1.2", "--pause-before-finish", "5"):
        desk.wait_for_result_in_hand(submission)
        while desk.status(submission) == "scoring":
            stolen = queue.claim("thief", served=[(BENCHMARK, "1.0.0")])
            assert stolen is None or stolen.kind == "rank"  # which is put when scoring has ended
            time.sleep(0.05)  # a lease that runs out stays so until somebody takes it
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
    path = desk.exact_file(submission)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(desk.vault.stat().st_mode) == 0o700
    with path.open("rb") as file:
        rows = read_cases(file)
    assert isinstance(rows, CaseRows)
    for metric, values in rows_of(desk.board).values.items():
        assert rows.values[metric].tobytes() == values.tobytes()
    assert not list(desk.data.rglob("*.npz"))


def test_an_entry_is_ranked_only_by_a_score_that_it_shows(desk: Desk, write_file: Callable[..., Path]) -> None:
    """After a change of `place_metric`, the ranks of earlier entries would reveal a second score of each."""
    submission = desk.submit(write_file())
    desk.in_process().run(once=True)
    (desk.root / "cells.toml").write_text('[release]\nplace_metric = "grid_hit"\n', encoding="utf-8")
    documents = []
    for settings in (desk.store.settings, load_settings(desk.root / "cells.toml")):
        with desk.store.write() as connection:
            Queue.put(connection, "rank", BENCHMARK, "1.0.0", "board")
        desk.in_process(settings).run(once=True)
        with desk.store.read() as connection:
            documents.append(connection.execute(sa.select(results.c.document)).scalar_one())
    assert [(one["metric"], one["computed_for"]) for one in documents] == [
        ("point_hit", [submission.id]),
        ("grid_hit", []),
    ]


CANARY = "canary-patient00007"


def test_a_failure_after_the_references_were_opened_is_one_fixed_sentence(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise KeyError(CANARY)

    submission = desk.submit(write_file())
    monkeypatch.setattr(desk.custody, "score", broken)
    desk.in_process().run(once=True)
    failed = desk.store.get(submission.id)
    assert failed.status == "failed"
    assert desk.store.events_of(submission.id)[-1].why == worker_module.INCIDENT.format(number=failed.incident)
    assert CANARY in (desk.vault / f"{failed.incident}.txt").read_text(encoding="utf-8")
    assert CANARY not in caplog.text
    (record,) = [one for one in caplog.records if "stopped: incident" in one.getMessage()]
    assert vars(record)["benchmark"] == BENCHMARK
    for file in (path for path in desk.data.rglob("*") if path.is_file()):
        assert CANARY.encode() not in file.read_bytes()


def test_a_file_that_does_not_pass_is_refused_before_references_are_opened(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good, bad = desk.submit(write_file()), tmp_path / "bad.jsonl"
    bad.write_text("no predictions\n", encoding="utf-8")
    with bad.open("rb") as stream, desk.blobs.receive(stream) as incoming:
        desk.blobs.keep(incoming)
    fields = {name: getattr(good, name) for name in NewSubmission.__dataclass_fields__}
    smuggled = NewSubmission(**{**fields, "sha256": incoming.sha256, "canonical": None, "model_name": "Smuggled"})
    submission, _ = desk.store.add_submission(smuggled, who="test")
    desk.store.withdraw(good.id, who="test")
    monkeypatch.setattr(desk.custody, "score", lambda *_, **__: pytest.fail("references were opened"))
    desk.in_process().run(once=True)
    assert desk.status(submission) == "refused"
    assert "linter" in desk.store.events_of(submission.id)[-1].why


def test_a_stored_file_that_was_changed_is_not_scored(desk: Desk, write_file: Callable[..., Path]) -> None:
    submission = desk.submit(write_file())
    assert submission.canonical is not None
    for name in (submission.sha256, submission.canonical):
        desk.blobs.path(name).write_bytes(write_file("other.jsonl", seed=5).read_bytes())
    desk.in_process().run(once=True)
    assert desk.status(submission) == "failed"
    assert "incident" in desk.store.events_of(submission.id)[-1].why


def spoil(desk: Desk, submission: Submission, how: str, other: Path) -> None:
    """Make a submission's stored predictions unusable."""
    assert submission.canonical is not None
    kept = desk.blobs.path(submission.canonical)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    changes: dict[str, dict[str, object]] = {
        "from before it was kept": {"canonical": None, "stamp": None, "signs": None},
        "of another format": {"stamp": "0" * 64},
    }
    if how in changes:
        with desk.store.write() as connection:
            connection.execute(submissions.update().values(**changes[how]))
    elif how == "missing":
        kept.unlink()
    elif how == "of another file":
        kept.write_bytes(desk.blobs.path(desk.submit(other).canonical or "").read_bytes())
    else:
        kept.write_bytes(kept.read_bytes()[:-1])


SPOILT = ("from before it was kept", "of another format", "missing", "of another file", "cut off")


@pytest.mark.parametrize("how", SPOILT)
def test_where_nothing_usable_was_kept_the_file_is_linted_again(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    submission = desk.submit(write_file())
    spoil(desk, submission, how, write_file("other.jsonl", seed=5))
    parsed, parse = [], desk.custody.parse
    monkeypatch.setattr(desk.custody, "parse", lambda path, *a, **o: parsed.append(path) or parse(path, *a, **o))
    desk.in_process().run(once=True)
    assert parsed == [desk.blobs.path(submission.sha256)]
    score = desk.store.score_of(submission.id)
    assert score is not None
    assert score.released == expected(desk.board, desk)


def test_thresholds_are_those_that_the_submission_fixed() -> None:
    assert worker_module._thresholds({}) == 0.5
    assert worker_module._thresholds({"thresholds": 1}) == 1.0
    assert worker_module._thresholds({"thresholds": {"COPD": 0.3}}) == {"COPD": 0.3}


def test_a_database_that_does_not_answer_is_waited_for(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = desk.submit(write_file())
    worker = desk.in_process()

    def later(function: Callable[..., Any]) -> Callable[..., Any]:
        calls = []

        def sometimes(*arguments: object, **options: object) -> Any:
            calls.append(arguments)
            if len(calls) == 1:
                raise OperationalError("BEGIN IMMEDIATE", {}, sqlite3.OperationalError("database is locked"))
            return function(*arguments, **options)

        return sometimes

    monkeypatch.setattr(worker.queue, "claim", later(worker.queue.claim))
    monkeypatch.setattr(worker_module, "answers_in_database", later(worker_module.answers_in_database))
    worker.run(once=True)
    assert desk.status(submission) == "scored"


def test_an_outage_of_storage_fails_nobody(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = desk.submit(write_file())
    worker, outages = desk.in_process(), []
    open_local = desk.blobs.open_local

    def away(sha256: str) -> AbstractContextManager[Path]:
        if len(outages) < 4:  # more often than a job may lose its worker
            outages.append(sha256)
            raise OSError(113, "No route to host")
        return open_local(sha256)

    monkeypatch.setattr(desk.blobs, "open_local", away)
    monkeypatch.setattr(worker_module, "LONGEST_PAUSE", 0.1)
    worker.run(once=True)
    assert desk.status(submission) == "scored"
    assert desk.job(submission).attempts == 1
    steps = [event.to_status for event in desk.store.events_of(submission.id)]
    assert steps == ["received", "linted", "queued", *["scoring", "queued"] * 4, "scoring", "scored"]


def test_a_server_that_rewrites_budgets_gets_no_more_answers_than_the_vault_counts(
    desk: Desk, board: Board, tmp_path: Path
) -> None:
    """The server's settings allow three files per team and 150 in all; the worker's own allow two in all."""
    (tmp_path / "own.toml").write_text("[quota]\ntotal = 2\nboard_total = 2\n", encoding="utf-8")
    own = load_settings(tmp_path / "own.toml")
    sent = []
    for n, blanks in ((1, ""), (2, ""), (3, ""), (2, " ")):
        text = predictions_to_jsonl(guesses(board.manifest, seed=n))
        (file := tmp_path / f"{len(sent)}.jsonl").write_text(text.replace("}\n", f"{blanks}}}\n", 1))
        with desk.store.write() as connection:  # as if nobody had sent anything, and no meter had paused the board
            connection.execute(ledger.update().values(amount=0))
            connection.execute(boards.update().values(state="open"))
        sent.append(desk.submit(file))
        desk.in_process(own).run(once=True)
    assert [desk.status(one) for one in sent] == ["scored", "scored", "refused", "scored"]
    assert desk.store.events_of(sent[2].id)[-1].why == USED_UP.format(limit=2)
    assert len(json.loads((desk.vault / f"answers.{BENCHMARK}.1.0.0.json").read_text())) == 2


@pytest.mark.parametrize("change", ["paused", "taken over"])
def test_a_score_that_is_not_released_is_not_counted(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    desk.submit(write_file())
    worker, score = desk.in_process(), desk.custody.score

    def meanwhile(*arguments: Any, **options: Any) -> ScoredOutcome:
        with desk.store.write() as connection:
            if change == "paused":
                set_state(connection, BENCHMARK, "paused", who="test", why="")
            else:
                connection.execute(jobs.update().values(fence=jobs.c.fence + 1))
        return score(*arguments, **options)

    monkeypatch.setattr(desk.custody, "score", meanwhile)
    worker.run(once=True)
    assert worker.answers[BENCHMARK, "1.0.0"].read() == {}


def test_answers_are_counted_once_each_and_a_refresh_apart(tmp_path: Path) -> None:
    count = AnswerCount(tmp_path, BENCHMARK, "1.1.0")
    assert [count.admit(content, "rescore", 1) for content in "aab"] == [True, True, False]
    assert [count.admit(content, "score", 2) for content in "acdb"] == [True, True, True, False]
    count.include({"a": "score", "e": "rescore"})
    assert AnswerCount(tmp_path, BENCHMARK, "1.1.0").read() == {
        "a": "rescore",
        "c": "score",
        "d": "score",
        "e": "rescore",
    }


@pytest.mark.parametrize("damage", ["", '{"a": "sco', '{"a": 1}', "[]", "\xff"])
def test_a_damaged_count_names_its_file_and_the_remedy(tmp_path: Path, damage: str) -> None:
    file = tmp_path / f"answers.{BENCHMARK}.1.0.0.json"
    file.write_bytes(damage.encode("latin-1"))
    count = AnswerCount(tmp_path, BENCHMARK, "1.0.0")
    with pytest.raises(CountDamagedError, match=f"{re.escape(str(file))} is damaged: delete this file"):
        count.admit("a", "score", 1)
    file.unlink()
    count.include({"b": "score"})
    assert not count.admit("a", "score", 1)


@pytest.mark.processes
def test_a_damaged_count_fails_no_submission_and_stops_the_next_start(
    desk: Desk, write_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    submission, worker, score = desk.submit(write_file()), desk.in_process(), desk.custody.score

    def damaging(*arguments: Any, **options: Any) -> ScoredOutcome:
        (desk.vault / f"answers.{BENCHMARK}.1.0.0.json").write_text("{")
        worker.stopping.set()
        return score(*arguments, **options)

    monkeypatch.setattr(desk.custody, "score", damaging)
    worker.run()
    assert desk.status(submission) == "queued"
    assert_refused(desk, "delete this file")


@pytest.mark.processes
def test_a_worker_refuses_a_vault_with_a_damaged_key(desk: Desk) -> None:
    desk.vault.mkdir()
    (desk.vault / KEY_FILE).touch(mode=0o600)
    assert_refused(desk, "contains no receipt key")


def assert_refused(desk: Desk, message: str) -> None:
    """A worker does not start because of its vault, and says why."""
    with desk.worker("--once") as process:
        assert process.wait(60) == 2
    assert message in " ".join((desk.root / "worker.log").read_text().replace("│", " ").split())


def test_a_worker_tells_that_it_lives(desk: Desk) -> None:
    worker = desk.in_process()
    worker.run(once=True)
    with desk.store.read() as connection:
        (row,) = Queue.workers(connection)
    seen = asdict(row)
    assert (seen["name"], [list(pair) for pair in seen["serves"]]) == (worker.name, [[BENCHMARK, "1.0.0"]])
    assert seen["receipt_key"] == next(iter(worker.signers.values())).public_key_text
