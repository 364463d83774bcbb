"""Server and worker as two users of one machine, who share a database and a bucket and no folder."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from tests.leaderboard.conftest import ACCEPTED, BENCHMARK, Board, Server, free_port, guesses, wait_ready
from tests.leaderboard.databases import DATABASE_SOURCE

SERVING, WORKING = 61001, 61002
"""Numbers of users who need no account."""


def interpreter(folder: Path) -> Path | None:
    """Create a Python for every user in `folder`, since this one may be in a private home."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (Path(sys.base_prefix) / "bin" / name, Path("/usr/bin") / name):
        if python.exists() and all(stat.S_IMODE(one.stat().st_mode) & 0o001 for one in python.resolve().parents):
            subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
            (packages,) = folder.glob("lib/*/site-packages")
            packages.rmdir()
            packages.symlink_to(sysconfig.get_path("purelib"))
            return folder / "bin" / "python"
    return None


@dataclass(frozen=True)
class User:
    """A user of the system with their own number, Python and home."""

    number: int
    python: Path
    home: Path

    def start(self, *arguments: str | Path, log: Path) -> subprocess.Popen[bytes]:
        own = {"HOME": str(self.home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        with log.open("ab") as output:
            return subprocess.Popen(
                [self.python, *arguments], stdout=output, stderr=output, cwd="/", env=os.environ | own,
                user=self.number, group=self.number, extra_groups=[],
            )  # fmt: skip

    def give(self, *folders: Path) -> None:
        """Make folders accessible only to their owner."""
        for folder in folders:
            folder.mkdir(exist_ok=True)
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.number, self.number)
            folder.chmod(0o700)


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder that every user may enter, unlike pytest's."""
    if os.geteuid() != 0:
        pytest.skip("only root may start processes as two users")
    folder = Path(tempfile.mkdtemp(prefix="two-users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.processes
def test_two_users_serve_and_score_and_neither_reads_what_is_the_others(board: Board, bucket: str, place: Path) -> None:
    python = interpreter(place / "python")
    if python is None:
        pytest.skip("no Python of this version can be run by every user")
    server, worker = (User(number, python, place / str(number)) for number in (SERVING, WORKING))
    shutil.copytree(board.folder, place / "public")
    shutil.copytree(board.holdout, place / "private")
    for user in (server, worker):
        user.give(user.home)
    worker.give(place / "private", place / "vault")
    database = DATABASE_SOURCE.migrated("postgresql", place)
    DATABASE_SOURCE.server.folder.chmod(0o711)  # its socket is there
    shared = ("--database", database, "--blobs", f"s3://{bucket}/two-users")
    port, log = free_port(), place / "log"
    words = ("-m", "reveal_leaderboard", "serve", "--benchmark", place / "public", "--data", server.home)
    (place / "settings.toml").write_text(f"[exposure]\n{ACCEPTED}", encoding="utf-8")
    words += ("--settings", place / "settings.toml")
    process = server.start(*words, "--port", str(port), *shared, log=log)
    try:
        running = Server(f"http://127.0.0.1:{port}", server.home, process, log, board)
        wait_ready(running.url, process, log)
        (place / "mine.jsonl").write_text(predictions_to_jsonl(guesses(board.manifest)), encoding="utf-8")
        sent = running.post(place / "mine.jsonl").json()
        words = ("-m", "reveal_leaderboard", "worker", "--once", "--data", worker.home, "--vault", place / "vault")
        scoring = worker.start(*words, "--holdout", f"{BENCHMARK}={place / 'private'}", *shared, log=log)
        assert scoring.wait(120) == 0, log.read_text()
        assert running.wait_scored(sent["id"])["status"] == "scored", log.read_text()
        assert httpx.get(f"{running.url}/readyz", verify=False).json()["confinement"].startswith("landlock-")
    finally:
        process.terminate()
        process.wait(20)
    for user, others in ((server, (place / "private", place / "vault", worker.home)), (worker, (server.home,))):
        for folder in others:
            attempt = user.start("-c", f"import os; os.listdir({str(folder)!r})", log=place / "refused")
            assert attempt.wait(20) == 1
    assert (place / "refused").read_text().count("PermissionError") == 4
