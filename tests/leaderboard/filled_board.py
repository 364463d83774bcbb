"""A board with all that an audit or a backup must hold: scored, held, queued, failed, withdrawn, sent again.

Nothing is scored here: the outcomes are written down, and go through the real store, queue and signer.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts import invitations
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.release import receipts
from reveal_leaderboard.release.fingerprints import Fingerprint
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store import quota
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.boards import register_version
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.scores import Score, raise_flag
from reveal_leaderboard.store.store import NewSubmission, Store, Submission

from tests.leaderboard.databases import DATABASE_SOURCE, Kept

BENCHMARK, VERSION = "chexlocalize", "1.0.0"
SERVED = [(BENCHMARK, VERSION)]
WHO = "worker:test"


def released(value: float) -> ReleasedScore:
    figures = (
        ReleasedEstimate(
            "point_hit", "macro", value, round(value - 0.05, 2), round(value + 0.05, 2), "4 findings", "point_hit|v:1"
        ),
        ReleasedEstimate("point_hit", "Edema", value, None, None, "60-119", "point_hit|v:1"),
    )
    return ReleasedScore(figures, ("Edema",), ("Pneumothorax",), "hidden: Pneumothorax", {"resolution": 0.01})


@dataclass
class FilledBoard:
    """A store with its uploads and the signer of its worker."""

    store: Store
    blobs: Blobs
    signer: receipts.Signer

    @property
    def url(self) -> str:
        """Address of the database, with its password."""
        return self.store.engine.url.render_as_string(hide_password=False)

    def __post_init__(self) -> None:
        self.queue = Queue(self.store.engine, self.store.settings)
        self.accounts = Accounts(self.store.engine)

    def begin(self) -> None:
        """The board, and the team that submits to it, unless they are there."""
        self.user = self.accounts.sign_in("https://id.example.org", "1", "Example Person")
        teams = [membership.team for membership in self.accounts.teams_of(self.user)]
        if teams:
            (self.team,) = teams
            return
        self.team = self.accounts.create_team("Example Laboratory", owner=self.user, who=f"user:{self.user.id}")
        with self.store.write() as connection:
            register_version(connection, BENCHMARK, VERSION, "holdout", {})

    def send(self, content: bytes, model: str) -> Submission:
        for stored in (b"predictions of " + content, content):
            with self.blobs.receive(io.BytesIO(stored)) as incoming:
                self.blobs.keep(incoming)
        canonical = hashlib.sha256(b"predictions of " + content).hexdigest()
        new = NewSubmission(
            benchmark=BENCHMARK, version=VERSION, split="holdout", team_id=self.team.id, user_id=self.user.id,
            model_name=model, kind="cnn", prompt_style=None, metadata={"model": {"name": model}},
            filename="predictions.jsonl", sha256=incoming.sha256, size=incoming.size, allow_missing=False,
            idempotency_key=None, canonical=canonical, stamp="0" * 64, signs=["looks odd"],
        )  # fmt: skip
        return self.store.add_submission(new, who=f"user:{self.user.id}")[0]

    def sign(self, connection: sa.Connection, submission: Submission, score: Score) -> None:
        receipts.append(connection, self.signer, submission, score)

    def score(self, content: bytes, model: str, value: float) -> Submission:
        sent = self.send(content, model)
        assert self.score_next(value) == sent.id
        return sent

    def score_next(self, value: float, *, final: float | None = None) -> str:
        """Score the submission that is next in the queue, with final figures if given; returns its id."""
        job = self.queue.claim("test", served=SERVED)
        while job is not None and job.kind != "score":
            self.queue.finish_result(job, document={"schema": 1})
            job = self.queue.claim("test", served=SERVED)
        mark = Fingerprint(job.subject.ljust(64, "0"), tuple(int(digit, 16) for digit in job.subject) * 4)
        kept_back = None if final is None else released(final)
        outcome = ScoredOutcome(released(value), kept_back, "ab" * 32, mark)
        assert self.queue.finish_score(job, who=WHO, outcome=outcome, sign=self.sign)
        return job.subject

    def fill(self) -> None:
        """Submissions in every state; a second member, a token, a flag and a grant."""
        me, reader = f"user:{self.user.id}", self.accounts.sign_in("https://id.example.org", "2", "Example Reader")
        with self.store.write() as connection:
            invited = invitations.invite(connection, self.team, reader, "reader", me)
            invitations.accept(connection, invited, reader)
        self.accounts.issue_token(self.user, self.team, name="laptop")
        self.score(b"first", "Model A", 0.47)
        self.score(b"not better", "Model A", 0.47)  # held by the ladder
        withdrawn = self.score(b"better", "Model B", 0.58)
        self.store.withdraw(withdrawn.id, who=f"user:{self.user.id}")
        failed = self.send(b"fails", "Model C")
        job = self.queue.claim("test", served=SERVED)
        assert job is not None
        self.queue.fail(job, who=WHO, why="stopped", incident="INC-00000000")
        assert self.send(b"fails", "Model C").id == failed.id  # sent again
        self.store.withdraw(failed.id, who=f"user:{self.user.id}")
        hidden = self.score(b"best", "Model D", 0.71)
        self.store.hide(hidden.id, who="user:admin", why="asked for by its team")
        self.send(b"waits", "Model E")
        with self.store.write() as connection:
            raise_flag(connection, hidden.id, "probing", None, "nearly the predictions of another")
            quota.grant(connection, self.team.id, BENCHMARK, VERSION, 2, who="user:admin", why="for the challenge")

    def all_rows(self) -> dict[str, list[Any]]:
        """Every row of every table."""
        from reveal_leaderboard.store.tables import tables

        with self.store.read() as connection:
            return {
                table.name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=repr)
                for table in tables.sorted_tables
            }


A_DAY = "[quota]\ntotal = 10\nper_day = 10\n"


@cache
def filled_once(kind: str) -> tuple[Path, Store, Kept]:
    """A filled board on a kind of database: the folder with its uploads, vault and settings, for tests to copy."""
    root = Path(tempfile.mkdtemp(prefix="filled-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    files = root / "files"
    (files / "vault").mkdir(mode=0o700, parents=True)
    (files / "settings.toml").write_text(A_DAY)
    store = Store(DATABASE_SOURCE.migrated(kind, root), load_settings(files / "settings.toml"))
    board = opened(store, files)
    board.begin()
    board.fill()
    return files, store, Kept(store.engine)


def opened(store: Store, root: Path) -> FilledBoard:
    """A board with its uploads and vault below `root`."""
    return FilledBoard(store, Blobs(root / "blobs"), receipts.Signer(root / "vault"))


@pytest.fixture
def filled(database_kind: str, tmp_path: Path) -> Iterator[FilledBoard]:
    """A filled board; its database is one of all tests on its kind, put back after each."""
    files, store, kept = filled_once(database_kind)
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    board = opened(store, tmp_path)
    board.begin()
    yield board
    kept.put_back()
