"""The health check of a container, over processes that have the command lines of every role.

The processes are stand-ins that sleep, beside a small server. The tests of the Space check a real server and worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from reveal_leaderboard.cli import app
from reveal_leaderboard.cli.health import UnhealthyError, check
from typer.testing import CliRunner

from tests.leaderboard.conftest import free_port

pytestmark = pytest.mark.processes

STAND_IN = """
import os, subprocess, sys, time
if child := os.environ.pop("CHILD", ""):
    subprocess.Popen([sys.executable, *child.split()])
print(flush=True)
time.sleep(600)
"""
Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``python WORDS`` with a child ``python CHILD``, both sleeping; returns its number."""
    for name in ("reveal-leaderboard", "app.py", "other"):
        (tmp_path / name).write_text(STAND_IN, encoding="utf-8")
    with ExitStack() as stack:

        def start(words: str, child: str = "") -> int:
            process = subprocess.Popen(
                [sys.executable, *words.split()],
                stdout=subprocess.PIPE,
                cwd=tmp_path,
                env={**os.environ, "CHILD": child},
                start_new_session=True,
            )
            stack.enter_context(process)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            assert process.stdout is not None
            for _ in filter(None, (words, child)):
                process.stdout.readline()  # each of them runs
            return process.pid

        yield start


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a server that answers `status` at ``/healthz``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SERVE = "reveal-leaderboard serve --data board --benchmark public --auth oidc --proxies 1"
WORKER = "reveal-leaderboard worker --data board --holdout chexlocalize=private --vault vault"
HEALTHY = {
    "serve": (f"{SERVE} --host 0.0.0.0 --port {{port}}", "", ["serve answers at 127.0.0.1:{port}"]),
    "readers": ("reveal-leaderboard readers --data r --port={port}", "", ["readers answers at 127.0.0.1:{port}"]),
    "worker": (WORKER, "", ["worker is running"]),
    "workers": (
        f"{WORKER} --processes 2", f"{WORKER} --processes 2 --processes 1",
        ["worker --processes is running", "worker is running"],
    ),
    "webhooks": ("reveal-leaderboard webhooks deliver --data board", "", ["webhooks deliver is running"]),
    "space": ("app.py", f"{SERVE} --port {{port}}", ["app.py is running", "serve answers at 127.0.0.1:{port}"]),
    "shell": ("other", f"{SERVE} --port {{port}}", ["serve answers at 127.0.0.1:{port}"]),
}  # fmt: skip


@pytest.mark.parametrize("role", HEALTHY)
def test_a_role_is_healthy(start: Start, role: str) -> None:
    words, child, expected = HEALTHY[role]
    with answering(200) as port:
        pid = start(words.format(port=port), child.format(port=port))
        assert check(pid, app) == [line.format(port=port) for line in expected]


UNHEALTHY = {
    "silent-server": (f"{SERVE} --port {{port}}", "", r"serve must answer at 127.0.0.1:\d+/healthz: .*refused"),
    "lost-workers": (f"{WORKER} --processes 2", "", "worker --processes must keep a process `worker` running"),
    "lost-server": ("app.py", WORKER, r"app.py must keep a process `serve` running"),
    "command-that-ends": ("reveal-leaderboard webhooks --data board", "", "must run serve, readers, worker"),
    "other-program": ("other", "", "must run serve, readers, worker"),
}


@pytest.mark.parametrize("case", UNHEALTHY)
def test_a_role_is_unhealthy(start: Start, case: str) -> None:
    words, child, message = UNHEALTHY[case]
    pid = start(words.format(port=free_port()), child)
    with pytest.raises(UnhealthyError, match=message):
        check(pid, app)


def test_a_server_that_answers_another_status_is_unhealthy(start: Start) -> None:
    with (
        answering(503) as port,
        pytest.raises(UnhealthyError, match=r"must answer 200 at 127.0.0.1:\d+/healthz, got 503"),
    ):
        check(start(f"{SERVE} --port {port}"), app)


def test_default_ports_are_those_of_the_commands(start: Start) -> None:
    for words, port in (
        (SERVE, 7860),
        ("reveal-leaderboard readers --data r", 7870),
    ):  # docs/operating.md, annotation.md
        try:
            (line,) = check(start(words), app)
        except UnhealthyError as error:
            line = str(error)
        assert f"at 127.0.0.1:{port}" in line


def test_the_exit_code_says_it(start: Start) -> None:
    done = CliRunner().invoke(app, ["health", "--pid", str(start(WORKER))])
    assert (done.exit_code, done.output) == (0, "worker is running\n")
    done = CliRunner().invoke(app, ["health", "--pid", str(start("other"))])
    assert done.exit_code == 1
    assert done.output.startswith("unhealthy: process ")
