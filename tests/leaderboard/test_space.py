"""The Space: its entry reads the settings, keeps tokens from server and worker, and starts a board that is ready.

The Hub's client is the real one, over a server on loopback that answers as the Hub does.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import httpx
import pytest
import yaml
from reveal_leaderboard.cli import app
from reveal_leaderboard.cli.health import check

from tests.conftest import ROOT
from tests.leaderboard.conftest import ACCEPTED, ASKING, BENCHMARK, Board, free_port, running, wait_until

FOLDER = ROOT / "leaderboard"
SECRETS = {"HF_HOLDOUT_TOKEN": "canary-holdout-token", "HF_TOKEN": "canary-token"}
TOKEN = "hf_" + "canary" * 6
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


DEMO = {"REVEAL_HOLDOUTS": f"{BENCHMARK}=example/chexlocalize-holdout@v1.0.0", **SECRETS}
STORES = {
    "REVEAL_DATABASE": "postgresql+psycopg://board:canary-database@db.example.org:443/board?sslmode=require",
    "REVEAL_BLOBS": "s3://uploads/board", "AWS_ACCESS_KEY_ID": "canary-id", "AWS_SECRET_ACCESS_KEY": "canary-bucket",
}  # fmt: skip
SERVER = {"HF_TOKEN": SECRETS["HF_TOKEN"], **STORES}


@pytest.fixture
def space() -> dict[str, str]:
    """The settings that a server and a demo have in common."""
    return {
        "SPACE_ID": "example/board", "SPACE_HOST": "example-board.hf.space", "OAUTH_CLIENT_ID": "client",
        "REVEAL_PUBLIC": "example/chexlocalize@v1.0.0", **SIGN_IN, **WEBHOOK,
    }  # fmt: skip


class Hub:
    """A hub whose repositories are local folders; remembers who asked with which token."""

    def __init__(self, **folders: Path) -> None:
        self.folders = folders
        self.asked: list[tuple[str, str, str | None]] = []

    def __call__(self, source: Any, access: Any, folder: Path, patterns: list[str] | None) -> None:
        self.asked.append((source.repo_id, source.revision, access.token))
        if self.folders:
            shutil.copytree(self.folders["holdout" if "holdout" in source.repo_id else "public"], folder)


def test_a_demo_uses_the_holdouts_token_for_the_holdouts_only(
    entry: ModuleType, space: dict[str, str], tmp_path: Path
) -> None:
    hub = Hub()
    commands = entry.plan(space | DEMO, tmp_path, hub)
    assert hub.asked == [
        ("example/chexlocalize", "v1.0.0", "canary-token"),
        ("example/chexlocalize-holdout", "v1.0.0", "canary-holdout-token"),
    ]
    assert not any("canary" in word for words in commands.values() for word in words)
    assert "--holdout" not in commands["server"]
    assert "--vault" not in commands["server"]


def test_a_server_has_no_worker_and_shows_no_secret(entry: ModuleType, space: dict[str, str], tmp_path: Path) -> None:
    hub = Hub()
    commands = entry.plan(space | SERVER, tmp_path, hub)
    assert set(commands) == {"server"}
    assert hub.asked == [("example/chexlocalize", "v1.0.0", "canary-token")]
    assert not any("canary" in word for word in commands["server"])


WRONG: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "no-space": (SERVER, {"SPACE_ID": ""}, "SPACE_ID must be set"),
    "no-oauth": (SERVER, {"OAUTH_CLIENT_SECRET": ""}, "OAUTH_CLIENT_SECRET must be set"),
    "no-public": (SERVER, {"REVEAL_PUBLIC": ""}, "REVEAL_PUBLIC must name at least one dataset, got nothing"),
    "no-revision": (SERVER, {"REVEAL_PUBLIC": "a/b"}, r"OWNER/DATASET@REVISION\[:SPLIT\].* word 1 "),
    "token-alone": (SERVER, {"REVEAL_PUBLIC": f"a/b@v1 {TOKEN}"}, "REVEAL_PUBLIC must contain OWNER/.* word 2 does"),
    "address": (SERVER, {"REVEAL_PUBLIC": f"https://canary:{TOKEN}@hub/a/b@v1"}, "REVEAL_PUBLIC .* word 1 does"),
    "token-as-revision": (SERVER, {"REVEAL_PUBLIC": f"a/b@{TOKEN}"}, "REVEAL_PUBLIC .* word 1 does"),
    "no-owner": (SERVER, {"REVEAL_PUBLIC": "/b@v1"}, "REVEAL_PUBLIC .* word 1 does"),
    "no-dataset": (SERVER, {"REVEAL_PUBLIC": "a/@v1"}, "REVEAL_PUBLIC .* word 1 does"),
    "option": (SERVER, {"REVEAL_PUBLIC": "a/b@--x"}, "REVEAL_PUBLIC .* word 1 does"),
    "port": (SERVER, {"PORT": "canary"}, "PORT must be a whole number from 1 to 65535"),
    "port-beyond": (SERVER, {"PORT": "65536"}, "PORT must be a whole number from 1 to 65535"),
    "no-database": (SERVER, {"REVEAL_DATABASE": ""}, "REVEAL_DATABASE must be set, since a Space keeps no files"),
    "no-bucket": (SERVER, {"REVEAL_BLOBS": ""}, "REVEAL_BLOBS must be set, since a Space keeps no files"),
    "no-key": (SERVER, {"AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY must be set"),
    "sqlite": (SERVER, {"REVEAL_DATABASE": "sqlite:////data/canary"}, r"REVEAL_DATABASE must start with postgresql\+"),
    "folder": (SERVER, {"REVEAL_BLOBS": "/data/canary"}, "REVEAL_BLOBS must start with s3://"),
    "demo-and-database": (SERVER, DEMO, "REVEAL_DATABASE must not be set with REVEAL_HOLDOUTS: .* the worker's vault"),
    "no-name": (DEMO, {"REVEAL_HOLDOUTS": "a/b@v1"}, "NAME=OWNER/DATASET@REVISION, .* word 1 "),
    "token-as-holdout": (
        DEMO,
        {"REVEAL_HOLDOUTS": f"chex={TOKEN}"},
        "REVEAL_HOLDOUTS must contain NAME=.* word 1 does",
    ),
    "name-twice": (DEMO, {"REVEAL_HOLDOUTS": "x=a/b@v1 y=a/c@v1 x=a/d@v1"}, "each NAME once per .* word 3 is a rep"),
    "dataset-twice": (
        SERVER,
        {"REVEAL_PUBLIC": "a/b@v1:test a/b@v1 a/b@v1:holdout"},
        "each dataset .* word 3 is a rep",
    ),
    "split-of-holdout": (DEMO, {"REVEAL_HOLDOUTS": "x=a/b@v1:test"}, "REVEAL_HOLDOUTS .* word 1 does"),
    "one-token": (DEMO, {"HF_HOLDOUT_TOKEN": SECRETS["HF_TOKEN"]}, "HF_HOLDOUT_TOKEN must differ from HF_TOKEN"),
    "no-token": (DEMO, {"HF_HOLDOUT_TOKEN": ""}, "HF_HOLDOUT_TOKEN must be set"),
}


@pytest.mark.parametrize("name", WRONG)
def test_settings_that_are_missing_or_wrong(
    entry: ModuleType, space: dict[str, str], tmp_path: Path, name: str
) -> None:
    good, changes, message = WRONG[name]
    hub = Hub()
    with pytest.raises(entry.SpaceError, match=message) as error:
        entry.plan({**space, **good, **changes}, tmp_path, hub)
    assert "canary" not in str(error.value)
    assert hub.asked == []  # all settings are checked before the first download


def test_a_refreshed_benchmark_has_two_revisions(entry: ModuleType, space: dict[str, str], tmp_path: Path) -> None:
    hub = Hub()
    commands = entry.plan(space | DEMO | {"REVEAL_HOLDOUTS": "x=a/b@v1 x=a/b@v2"}, tmp_path, hub)
    assert [revision for repo, revision, _ in hub.asked if repo == "a/b"] == ["v1", "v2"]
    assert commands["worker"].count("--holdout") == 2


class Answers(BaseHTTPRequestHandler):
    """Refuses every request with `status` and the Hub's headers `error_code` and `error_message`."""

    status, error_code, error_message = 500, "", ""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("X-Error-Code", self.error_code)
        self.send_header("X-Error-Message", self.error_message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of loopback at which the Hub's client looks for the Hub."""
    from huggingface_hub import constants

    port = free_port()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return port


@pytest.fixture
def hub(hub_port: int) -> Iterator[type[Answers]]:
    """The handler of a hub, which says how it answers."""
    handler = type("Handler", (Answers,), {})
    server = HTTPServer(("127.0.0.1", hub_port), handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


INVALID = "Invalid credentials in Authorization header"
REFUSED = {  # status, X-Error-Code, X-Error-Message, token, sentence
    "revision": (404, "RevisionNotFound", "", "canary", "but the dataset has no such revision: name one of its tags, "),
    "gated": (403, "GatedRepo", "", "canary", "a gated dataset: accept its terms and set HF_HOLDOUT_TOKEN to that "),
    "repository": (
        404,
        "RepoNotFound",
        "",
        "canary",
        "but this dataset does not exist or HF_HOLDOUT_TOKEN cannot read ",
    ),
    "anonymous": (
        401,
        "",
        "",
        None,
        "but this dataset does not exist or an anonymous visitor cannot read it: correct ",
    ),
    "token": (401, "", INVALID, "canary", "but the Hub refuses the token in HF_HOLDOUT_TOKEN: replace it with a "),
    "forbidden": (403, "", "", "canary", "but HF_HOLDOUT_TOKEN may not read it: set HF_HOLDOUT_TOKEN to a token "),
    "fault": (501, "", "", "canary", r"but the download failed \(HTTP 501\): check that the Hub is reachable, then "),
    "header": (200, "", "", "canary\nin two lines", r"but the download failed \(\w+\): check that the Hub is "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_failed_download_is_one_sentence_without_the_token(
    entry: ModuleType, hub: type[Answers], tmp_path: Path, name: str
) -> None:
    hub.status, hub.error_code, hub.error_message, token, message = REFUSED[name]
    access = entry.Access("REVEAL_HOLDOUTS", "HF_HOLDOUT_TOKEN", token)
    expected = f"^REVEAL_HOLDOUTS names example/chexlocalize@v1.0.0, {message}"
    with pytest.raises(entry.SpaceError, match=expected) as error:
        entry.fetch(entry.Source("example/chexlocalize", "v1.0.0"), access, tmp_path / "out", None)
    assert not re.search("canary|\n", str(error.value))
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__  # a traceback would not show it either


@pytest.mark.usefixtures("hub_port")
def test_a_hub_out_of_reach_is_one_sentence(entry: ModuleType, tmp_path: Path) -> None:
    access = entry.Access("REVEAL_PUBLIC", "HF_TOKEN", None)
    with pytest.raises(
        entry.SpaceError, match=r"^REVEAL_PUBLIC names a/b@v1, but the download failed \(ConnectError\)"
    ):
        entry.fetch(entry.Source("a/b", "v1"), access, tmp_path / "out", None)


def test_a_full_disk_is_not_an_unreachable_hub(entry: ModuleType) -> None:
    source, access = entry.Source("a/b", "v1"), entry.Access("REVEAL_PUBLIC", "HF_TOKEN", None)
    full = OSError(errno.ENOSPC, "No space left on device")
    wrapped = ValueError("canary")
    wrapped.__cause__ = full
    compiled = RuntimeError("canary: I/O error: No space left on device (os error 28)")
    for error in (full, wrapped, compiled):
        message = entry.explain(error, source, access)
        assert message.startswith("REVEAL_PUBLIC names a/b@v1, but the disk is full: ")
        assert "canary" not in message


def test_the_entry_ends_with_the_sentence(
    entry: ModuleType, space: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (space | SERVER | {"REVEAL_BLOBS": ""}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("REVEAL_HOLDOUTS", raising=False)
    with pytest.raises(SystemExit, match=r"^error: REVEAL_BLOBS must be set"):
        entry.main()


@pytest.mark.processes
def test_a_demo_becomes_ready_without_its_secrets(
    entry: ModuleType, space: dict[str, str], board: Board, tmp_path: Path
) -> None:
    port = free_port()
    hub = Hub(public=board.folder, holdout=board.holdout)
    (tmp_path / "settings.toml").write_text(f"[exposure]\n{ACCEPTED}", encoding="utf-8")
    environ = {**os.environ, **space, **DEMO, "PORT": str(port), "REVEAL_SETTINGS": str(tmp_path / "settings.toml")}
    commands = entry.plan(environ, tmp_path, hub)
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
        environments = [Path(f"/proc/{process.pid}/environ").read_bytes() for process in (server, worker)]
        assert check(server.pid, app) == [f"serve answers at 127.0.0.1:{port}"]
        assert check(worker.pid, app) == ["worker is running"]
    assert not any(secret.encode() in text for secret in SECRETS.values() for text in environments)
    assert SIGN_IN["OAUTH_CLIENT_SECRET"].encode() in environments[0]
    assert SIGN_IN["OAUTH_CLIENT_SECRET"].encode() not in environments[1]
    assert [b"canary-webhook" in text for text in environments] == [False, True]


def test_the_card_is_that_of_a_docker_space_with_sign_in() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---")[1])
    assert (front["sdk"], front["app_port"], front["hf_oauth"]) == ("docker", 7860, True)
    assert len(front["short_description"]) <= 60  # the Hub's limit
    # https://huggingface.co/docs/hub/spaces-config-reference: what a Docker Space may have
    assert set(front) <= {
        "title", "emoji", "colorFrom", "colorTo", "sdk", "app_port", "base_path", "fullWidth", "header", "license",
        "short_description", "models", "datasets", "tags", "thumbnail", "pinned", "hf_oauth", "hf_oauth_scopes",
        "hf_oauth_expiration_minutes", "hf_oauth_authorized_org", "disable_embedding", "startup_duration_timeout",
        "custom_headers", "preload_from_hub", "suggested_hardware",
    }  # fmt: skip
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {front["colorFrom"], front["colorTo"]} <= colours
