"""A real board for the browser: server and worker as processes, people who sign in with a loopback OpenID provider.

The benchmark has two versions; the second one moves the masks of some images, so that ranks may change while
every stored file stays valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import User
from reveal_leaderboard.cli import app
from reveal_leaderboard.store.database import connect
from typer.testing import CliRunner

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationRecord
from tests.conftest import annotate
from tests.leaderboard.conftest import (
    ASKING,
    BENCHMARK,
    Board,
    free_port,
    guesses,
    make_records,
    running,
    wait_ready,
    wait_until,
)
from tests.leaderboard.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider

OLD, NEW = "1.0.0", "1.1.0"
SETTINGS = """
[quota]
total = 40
per_day = 40
board_total = 500
[release]
place_cell = 30
ladder_step = 0.0
ladder_per = "model"
[exposure]
close_bits = 1000.0
accepted_leaks = ["more submissions", "few cases"]
[accounts]
new_teams = "open"
"""


def moved(record: LocalizationRecord) -> LocalizationRecord:
    """The same findings, each in the upper left corner."""
    mask = np.zeros((48, 64), bool)
    mask[2:12, 2:12] = True
    return replace(record, annotations=tuple(annotate(one.finding, mask) for one in record.annotations))


def build_versions(root: Path) -> tuple[Board, Board]:
    """120 images in two versions with the same division; in the second one a quarter of the images is marked anew."""
    records = make_records(120, seed=11)
    boards = [Board(root / v / "public", root / v / "private" / "references-kept-here") for v in (OLD, NEW)]
    for version, board in zip((OLD, NEW), boards, strict=True):
        before = boards[0] if version == NEW else None
        records_of_version = [moved(one) if version == NEW and i % 4 == 0 else one for i, one in enumerate(records)]
        build_folder(
            {"test": iter(records_of_version)},
            board.folder,
            BENCHMARKS[BENCHMARK],
            version=version,
            pixels="withhold",
            holdout=board.holdout,
            previous=None if before is None else before.folder,
            previous_holdout=None if before is None else before.holdout,
            seed=3,
            synthetic=True,
        )
    return boards[0], boards[1]


@dataclass
class RealBoard:
    """The address of the board, its data, the provider that people sign in with, and ways to fill it."""

    url: str
    data: Path
    root: Path
    board: Board
    provider: Provider
    accounts: Accounts
    n_files: int = field(default=0)

    def file(self, *, broken: Mapping[int, str] | None = None) -> Path:
        """A prediction file that no other one equals, with broken lines put in if asked."""
        self.n_files += 1
        lines = predictions_to_jsonl(guesses(self.board.manifest, seed=self.n_files)).splitlines()
        for number, line in (broken or {}).items():
            lines[number - 1] = line
        path = self.root / f"predictions-{self.n_files}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def member(self, name: str, team: str) -> tuple[User, str]:
        """A person who owns a team, and a token with which a program submits for it."""
        user = self.accounts.sign_in(self.provider.issuer, name, name)
        made = self.accounts.create_team(team, owner=user, who=f"user:{user.id}")
        _, secret = self.accounts.issue_token(user, made, name="tests", scopes=["read", "submit"], days=1)
        return user, secret

    def send(self, secret: str, team: str, model: str, *, wait: bool = True) -> str:
        """Submit a new file through the API and return the submission's id, by default once it is scored."""
        metadata = {"model": {"name": model, "version": "1"}, "organization": team, "kind": "cnn"}
        with self.file().open("rb") as stream:
            answer = httpx.post(
                f"{self.url}/api/v1/submissions",
                data={"benchmark": BENCHMARK, "metadata": json.dumps(metadata)},
                files={"file": ("predictions.jsonl", stream)},
                headers={"Authorization": f"Bearer {secret}"},
                timeout=60,
                verify=False,
            )
        assert answer.status_code in (200, 201, 202), answer.text
        submission: str = answer.json()["id"]
        if wait:
            wait_until(lambda: self._is_scored(submission, secret), pause=ASKING)
        return submission

    def _is_scored(self, submission: str, secret: str) -> bool:
        headers = {"Authorization": f"Bearer {secret}"}
        answer = httpx.get(f"{self.url}/api/v1/submissions/{submission}", headers=headers, verify=False)
        status = answer.json()["status"]
        assert status in ("queued", "scoring", "scored"), status
        return bool(status == "scored")

    def wait_until_placed(self, *submissions: str) -> None:
        """Wait until the ranks take these submissions into account."""

        def are_placed() -> bool:
            board = httpx.get(f"{self.url}/api/v1/leaderboard?benchmark={BENCHMARK}", verify=False)
            entries = board.json()["entries"]
            placed = {entry["submission_id"] for entry in entries if entry["rank"] is not None}
            return placed >= set(submissions)

        wait_until(are_placed, pause=ASKING)

    def sign_in(self, page: Any, name: str, *, to: str = "/mine") -> None:
        """Through the provider, as a person would."""
        self.provider.person = {"sub": name, "preferred_username": name}
        page.goto(f"{self.url}/login?next={to}")
        page.wait_for_selector("#strip b")
        assert page.inner_text("#strip b") == name

    def admin(self, *words: str) -> str:
        """Run ``reveal-leaderboard admin`` as an operator would; what it printed."""
        done = CliRunner().invoke(app, ["admin", *words, "--data", str(self.data)])
        assert done.exit_code == 0, done.output
        return done.output


@contextmanager
def running_board(root: Path) -> Iterator[RealBoard]:
    """Server, worker and provider on loopback until the end."""
    old, new = build_versions(root)
    (root / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    port, data = free_port(), root / "data"
    url = f"http://127.0.0.1:{port}"
    where = ("--data", data, "--settings", root / "settings.toml")
    folders = ("--benchmark", old.folder, "--benchmark", new.folder)
    holdouts = [word for one in (old, new) for word in ("--holdout", f"{BENCHMARK}={one.holdout}")]
    with ExitStack() as stack:
        provider = stack.enter_context(running_provider())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {
            "REVEAL_OIDC_ISSUER": provider.issuer,
            "REVEAL_OIDC_CLIENT_ID": CLIENT_ID,
            "REVEAL_OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "REVEAL_URL": url,
        }.items():
            patch.setenv(name, value)
        log = root / "server.log"
        serve = ("serve", *folders, *where, "--auth", "oidc", "--port", str(port))
        server = stack.enter_context(running(*serve, log=log))
        wait_ready(url, server, log)
        stack.enter_context(running("worker", *where, *holdouts, log=root / "worker.log"))
        engine = connect(f"sqlite:///{data / 'leaderboard.sqlite'}")
        stack.callback(engine.dispose)
        yield RealBoard(url, data, root, old, provider, Accounts(engine))
