"""Supervisor of processes: starts them, restarts processes that die, and stops all of them at the end.

A process that dies is restarted after a pause, which doubles from one second up to a minute, and is one second again
once the process has run for a minute. A process that ends with exit code 0 is not restarted. The supervisor stores
nothing: the job of a dead worker is leased again from the database.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
SECONDS_TO_END = 20.0
LOOK_EVERY = 0.2

log = logging.getLogger(__name__)


def own_command(*words: object) -> list[str]:
    """Return the command line that runs this program with `arguments`; ``-P`` ignores modules in the working folder."""
    return [sys.executable, "-P", "-m", "reveal_leaderboard", *map(str, words)]


@dataclass
class SupervisedCommand:
    """A supervised command, its process, and the time from which it may be started again."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = SHORTEST_PAUSE
    next_start: float = 0.0
    is_done: bool = False


class Supervisor:
    """Runs `commands` until :attr:`stopping` is set.

    Parameters
    ----------
    commands : name for the log -> words of the command
    output : file for the processes' output; None for the output of this process
    """

    def __init__(self, commands: Mapping[str, Sequence[str]], *, output: IO[bytes] | None = None) -> None:
        self._kept = [SupervisedCommand(name, command) for name, command in commands.items()]
        self._output = output
        self.n_restarts = 0
        self.stopping = threading.Event()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the running processes."""
        return {one.name: one.process.pid for one in self._kept if one.process and one.process.poll() is None}

    def run(self) -> None:
        """Start all commands, restart processes that die, and stop all processes once :attr:`stopping` is set."""
        try:
            while not self.stopping.is_set() and not all(one.is_done for one in self._kept):
                for one in self._kept:
                    self._look_after(one)
                self.stopping.wait(LOOK_EVERY)
        finally:
            self._end_all()

    def _look_after(self, one: SupervisedCommand) -> None:
        moment = time.monotonic()
        if one.process is not None:
            if one.process.poll() is None:
                if moment - one.started > LONGEST_PAUSE:
                    one.pause = SHORTEST_PAUSE
                return
            if one.process.returncode == 0:
                one.process, one.is_done = None, True
                return
            log.warning("%s exited with code %s; restarting in %.0f s", one.name, one.process.returncode, one.pause)
            one.process, one.next_start = None, moment + one.pause
            one.pause = min(2 * one.pause, LONGEST_PAUSE)
            self.n_restarts += 1
        if moment >= one.next_start and not one.is_done:
            # A separate session, so that Ctrl-C reaches only the supervisor, which then stops the processes.
            one.process = subprocess.Popen(
                list(one.command), stdout=self._output, stderr=self._output, start_new_session=True
            )
            one.started = moment

    def _end_all(self) -> None:
        running = [one.process for one in self._kept if one.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + SECONDS_TO_END
        for process in running:
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
