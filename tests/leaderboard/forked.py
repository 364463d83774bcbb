"""Processes of the leaderboard's command line, forked by one that has its imports behind it, most of a start.

That the command starts by itself, the tests of the Space, of two users and of the entrance show.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["reveal_leaderboard.web.app", "reveal_leaderboard.worker.worker"])
atexit.register(forkserver._forkserver._stop)  # type: ignore[attr-defined]  # it ends, and is waited for, with the tests


def begin(log: Path, environ: Mapping[str, str]) -> None:
    """Let this process, which was forked for it, write to `log` and live in `environ`."""
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None
    with log.open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())


class Forked:
    """``reveal-leaderboard WORDS``, in `folder`, with what :class:`subprocess.Popen` offers to look after it."""

    def __init__(self, words: Sequence[str], log: Path, folder: Path | None = None) -> None:
        self._process = FORKS.Process(target=_live, args=(words, log, dict(os.environ), folder))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Its exit code, or minus its signal, once it has ended."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end; what :meth:`poll` says then."""
        self._process.join(seconds)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("reveal-leaderboard", seconds or 0)
        return code

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def started(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """``python -m reveal_leaderboard WORDS``, for tests that change what it imports."""
    with log.open("ab") as output:
        return subprocess.Popen([sys.executable, "-m", "reveal_leaderboard", *words], stdout=output, stderr=output)


Process = Forked | subprocess.Popen[bytes]


def _live(words: Sequence[str], log: Path, environ: Mapping[str, str], folder: Path | None) -> None:
    from reveal_leaderboard.cli import app

    begin(log, environ)
    if folder is not None:
        os.chdir(folder)
    sys.argv = ["reveal-leaderboard", *words]
    app()
