"""The Space: its entry reads the settings, keeps tokens from server and worker, and starts a board that is ready."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import yaml

from tests.conftest import ROOT
from tests.leaderboard.conftest import ASKING, BENCHMARK, Board, free_port, running, wait_until

FOLDER = ROOT / "leaderboard"
SECRETS = {"HF_HOLDOUT_TOKEN": "canary-holdout-token", "HF_TOKEN": "canary-token"}
SIGN_IN = {"OAUTH_CLIENT_SECRET": "canary-sign-in"}
WEBHOOK = {"REVEAL_WEBHOOK_CHAT_SECRET": "canary-webhook"}


@pytest.fixture(scope="module")
def entry() -> ModuleType:
    """leaderboard/app.py, which is not a module of a package."""
    spec = importlib.util.spec_from_file_location("space_entry", FOLDER / "app.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def space(tmp_path: Path) -> dict[str, str]:
    """What a Space's environment holds."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "home").mkdir()
    return {
        "SPACE_ID": "example/board", "SPACE_HOST": "example-board.hf.space", "OAUTH_CLIENT_ID": "client",
        "REVEAL_PUBLIC": "example/chexlocalize@v1.0.0", "REVEAL_DATA": str(tmp_path / "storage"),
        "REVEAL_HOLDOUTS": f"{BENCHMARK}=example/chexlocalize-holdout@v1.0.0", **SECRETS, **SIGN_IN, **WEBHOOK,
    }  # fmt: skip


class Hub:
    """A hub whose repositories are local folders; remembers who asked with which token."""

    def __init__(self, **folders: Path) -> None:
        self.folders = folders
        self.asked: list[tuple[str, str, str | None]] = []

    def __call__(
        self, repo_id: str, revision: str, folder: Path, token: str | None, patterns: list[str] | None
    ) -> None:
        self.asked.append((repo_id, revision, token))
        if self.folders:
            shutil.copytree(self.folders["holdout" if "holdout" in repo_id else "public"], folder)


def test_the_holdout_s_token_is_used_for_the_holdout_only(
    entry: ModuleType, space: dict[str, str], tmp_path: Path
) -> None:
    hub = Hub()
    commands = entry.plan(space, tmp_path / "home", hub)
    assert hub.asked == [
        ("example/chexlocalize", "v1.0.0", "canary-token"),
        ("example/chexlocalize-holdout", "v1.0.0", "canary-holdout-token"),
    ]
    assert not any("canary" in word for words in commands.values() for word in words)
    assert "--holdout" not in commands["server"]
    assert "--vault" not in commands["server"]


WRONG = {
    "no-space": ({"SPACE_ID": ""}, "SPACE_ID must be set"),
    "no-oauth": ({"OAUTH_CLIENT_SECRET": ""}, "OAUTH_CLIENT_SECRET must be set"),
    "no-public": ({"REVEAL_PUBLIC": ""}, "REVEAL_PUBLIC must name at least one dataset, got nothing"),
    "no-revision": ({"REVEAL_PUBLIC": "a/b"}, r"OWNER/DATASET@REVISION\[:SPLIT\].* got 'a/b'"),
    "no-name": ({"REVEAL_HOLDOUTS": "a/b@v1"}, "NAME=OWNER/DATASET@REVISION, several .* got 'a/b@v1'"),
    "no-token": ({"HF_HOLDOUT_TOKEN": ""}, "HF_HOLDOUT_TOKEN must be set"),
    "no-storage": ({"REVEAL_DATA": "/nowhere/at/all"}, "persistent storage, got /nowhere/at/all"),
}


@pytest.mark.parametrize("name", WRONG)
def test_settings_that_are_missing_or_wrong(
    entry: ModuleType, space: dict[str, str], tmp_path: Path, name: str
) -> None:
    changes, message = WRONG[name]
    with pytest.raises(entry.SpaceError, match=message):
        entry.plan({**space, **changes}, tmp_path / "home", Hub())


@pytest.mark.processes
def test_a_space_becomes_ready_without_its_secrets(
    entry: ModuleType, space: dict[str, str], board: Board, tmp_path: Path
) -> None:
    port = free_port()
    hub = Hub(public=board.folder, holdout=board.holdout)
    environ = {**os.environ, **space, "PORT": str(port)}
    commands = entry.plan(environ, tmp_path / "home", hub)
    logs = [tmp_path / "server.log", tmp_path / "worker.log"]

    def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(words, env=environ, stdout=output, stderr=output)

    with (
        running(*commands["server"], log=logs[0], start=start) as server,
        running(*commands["worker"], log=logs[1], start=start) as worker,
    ):

        def ready() -> dict[str, Any] | None:
            assert server.poll() is None, logs[0].read_text()
            assert worker.poll() is None, logs[1].read_text()
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30, verify=False)
            except httpx.TransportError:
                return None
            document: dict[str, Any] = answer.json()
            return document if answer.status_code == 200 and document["live_workers"] else None

        state = wait_until(ready, seconds=240, pause=ASKING)
        assert state["benchmarks"] == [BENCHMARK]
        told = [Path(f"/proc/{process.pid}/environ").read_bytes() for process in (server, worker)]
    assert not any(secret.encode() in text for secret in SECRETS.values() for text in told)
    assert SIGN_IN["OAUTH_CLIENT_SECRET"].encode() in told[0]
    assert SIGN_IN["OAUTH_CLIENT_SECRET"].encode() not in told[1]
    assert [b"canary-webhook" in text for text in told] == [False, True]


def test_the_card_is_that_of_a_docker_space_with_sign_in() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---")[1])
    assert (front["sdk"], front["app_port"], front["hf_oauth"]) == ("docker", 7860, True)
    assert len(front["short_description"]) <= 60  # the Hub's limit
