"""The hospital's leaderboard as in production: server and worker processes that write below one folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_leaderboard.cli import app
from typer.testing import CliRunner

from tests.leaderboard.conftest import ASKING, free_port, running, wait_ready, wait_until
from tests.leaderboard.forked import Process
from tests.leaderboard.leak.hospital import Hospital
from tests.leaderboard.leak.wire import Wire

ENDS = ("scored", "refused", "failed", "withdrawn")


@dataclass
class Deployment:
    """A running server for a hospital's public folders; `root` contains its data, logs and all other files."""

    hospital: Hospital
    root: Path
    wire: Wire
    server: Process

    @property
    def data(self) -> Path:
        return self.root / "data"

    @contextmanager
    def worker(self, *options: str) -> Iterator[Process]:
        """Run a worker for all holdouts, with its temporary files below `root`."""
        arguments: list[str | Path] = ["worker", "--data", self.data, "--settings", self.root / "settings.toml"]
        arguments += ["--vault", self.hospital.vault, *options]
        for name, folder in self.hospital.holdouts:
            arguments += ["--holdout", f"{name}={folder}"]
        scratch = self.root / "worker's temporary files"
        scratch.mkdir(exist_ok=True)
        with environment(TMPDIR=str(scratch)), running(*arguments, log=self.root / "worker.log") as process:
            yield process

    def submit(self, content: bytes, benchmark: str, metadata: Any, *, name: str = "mine.jsonl", **fields: str) -> str:
        """Send a valid file and return the submission id."""
        answer = self.wire.send((name, content), benchmark, metadata, **fields)
        assert answer.status_code == 202, answer.text
        submission_id: str = answer.json()["id"]
        return submission_id

    def document(self, submission_id: str) -> dict[str, Any]:
        document: dict[str, Any] = self.wire.get(f"/api/v1/submissions/{submission_id}").json()
        return document

    def wait(self, *submission_ids: str) -> list[dict[str, Any]]:
        """Wait until each submission has a final status."""
        return [wait_until(lambda one=one: self._ended(one), pause=ASKING) for one in submission_ids]  # type: ignore[misc]

    def _ended(self, submission_id: str) -> dict[str, Any] | None:
        document = self.document(submission_id)
        return document if document["status"] in ENDS else None

    def wait_ranked(self, benchmark: str) -> dict[str, Any]:
        """Return the board once every entry has a rank."""

        def ranked() -> dict[str, Any] | None:
            board = self.wire.get(f"/api/v1/leaderboard?benchmark={benchmark}").json()
            return board if all(entry["tier"] for entry in board["entries"]) else None

        board: dict[str, Any] = wait_until(ranked, pause=ASKING)
        return board

    def compare(self, a: str, b: str) -> dict[str, Any]:
        """Return the comparison of two submissions."""
        answer = self.wire.get(f"/api/v1/compare?a={a}&b={b}")
        assert answer.status_code == 200, answer.text
        comparison: dict[str, Any] = answer.json()
        return comparison

    def command(self, *words: str | Path) -> str:
        """Run ``reveal-leaderboard WORDS --data DATA``; return its output, which is also saved in a file.

        It runs in this process, because imports in a new one take a second.
        """
        done = CliRunner().invoke(app, [*map(str, words), "--data", str(self.data)])
        with (self.root / "commands.log").open("a") as log:
            log.write(done.output)
        assert done.exit_code == 0, done.output + str(done.exception or "")
        return done.stdout

    def admin(self, *words: str | Path) -> str:
        """Run ``reveal-leaderboard admin WORDS`` and return its output."""
        return self.command("admin", *words)


@contextmanager
def environment(**changes: str) -> Iterator[None]:
    """Set environment variables until the context ends."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def deployed(hospital: Hospital, root: Path, settings: str, *options: str, **variables: str) -> Iterator[Deployment]:
    """Start the server on a free port, with `settings` in its TOML file and `variables` in its environment."""
    (root / "settings.toml").write_text(settings)
    port, log = free_port(), root / "server.log"
    places = ["--data", root / "data", "--settings", root / "settings.toml", "--port", str(port)]
    benchmarks = [word for folder in hospital.publics for word in ("--benchmark", folder)]
    with environment(**variables), running("serve", *places, *benchmarks, *options, log=log) as server:
        wire = Wire(f"http://127.0.0.1:{port}")
        wait_ready(wire.url, server, log)
        try:
            yield Deployment(hospital, root, wire, server)
        finally:
            wire.client.close()
