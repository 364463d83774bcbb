"""The running part of the demo: server and worker as processes of their own, uploads, and the board as text."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from reveal_bench.cli import client
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.worker.supervisor import Supervisor

__all__ = ["Upload", "heed_signals", "running", "show_board", "upload"]

START_SECONDS = 120
PLACING_SECONDS = 20
Echo = Callable[[str], None]


@dataclass(frozen=True)
class Upload:
    """A file to send to a board, with what is said about it."""

    benchmark: str
    path: Path
    metadata: Mapping[str, object]


@contextmanager
def running(serve: Sequence[object], work: Sequence[object], *, port: int, log: Path) -> Iterator[str]:
    """Keep a server and a worker running, started again when they die; yields the address once it answers.

    Raises
    ------
    RuntimeError
        If there is no answer in two minutes; the message holds the end of the log.
    """
    port = port if _is_free(port) else _free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("ab") as output:
        commands = {"server": _words([*serve, "--port", port]), "worker": _words(work)}
        supervisor = Supervisor(commands, output=output)
        thread = threading.Thread(target=supervisor.run, name="supervisor", daemon=True)
        thread.start()
        try:
            _wait_until_ready(url, supervisor, log)
            yield url
        finally:
            supervisor.stopping.set()
            thread.join()


def upload(uploads: Sequence[Upload], url: str, echo: Echo) -> None:
    """Send every file by the API, and wait for its score."""
    echo("6  uploading the files for the holdouts, each as another team")
    for one in uploads:
        sent = client.submit(one.path, url=url, benchmark=one.benchmark, metadata=one.metadata)
        *_, final = client.follow(sent["id"], url=url)
        model = sent["metadata"]["model"]["name"]
        echo(f"     {one.benchmark:<14} {model:<18} {final['status']}")


def show_board(url: str, benchmark: str, echo: Echo) -> None:
    """Print a board as the API gives it."""
    board = _placed_board(url, benchmark)
    metric = board["primary"]
    title = METRICS[metric].title
    echo(f"7  the board ({board['benchmark']} {board['version']}): place, tier, macro {title} over the findings shown")
    for row in board["entries"]:
        figure = next((f for f in row["figures"] if (f["metric"], f["finding"]) == (metric, MACRO)), None)
        shown = "not shown" if figure is None else (
            f"{100 * figure['value']:3.0f} %  ({100 * figure['low']:.0f} to {100 * figure['high']:.0f})"
        )  # fmt: skip
        echo(f"     {row['place']:>5}  {row['tier'] or '-'}  {row['model']:<18} {shown}")


def _placed_board(url: str, benchmark: str) -> dict[str, Any]:
    """The board once every entry has its place, which a worker gives it a moment after the score."""
    deadline = time.monotonic() + PLACING_SECONDS
    while True:
        board: dict[str, Any] = client.leaderboard(url=url, benchmark=benchmark)
        if not any(entry["is_new"] for entry in board["entries"]) or time.monotonic() > deadline:
            return board
        time.sleep(0.5)


def _words(arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "reveal_leaderboard", *map(str, arguments)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until_ready(url: str, supervisor: Supervisor, log: Path) -> None:
    import httpx

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and supervisor.n_restarts < 3:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.3)
        else:
            time.sleep(0.3)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    raise RuntimeError(f"the leaderboard did not start; the end of {log}:\n{tail}")


def heed_signals() -> None:
    """Make Ctrl-C and SIGTERM raise KeyboardInterrupt, even where the shell that started us had them ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
