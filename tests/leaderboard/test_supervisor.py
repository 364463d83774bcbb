"""The supervisor, over small real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from reveal_leaderboard.worker.supervisor import Supervisor, own_command

from tests.leaderboard.conftest import wait_until

pytestmark = pytest.mark.processes

SLEEPER = "import time; time.sleep(600)"


@contextmanager
def supervised(*scripts: str) -> Iterator[Supervisor]:
    supervisor = Supervisor({f"p{i}": [sys.executable, "-c", script] for i, script in enumerate(scripts)})
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stopping.set()
        thread.join()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_process_is_started_again_and_its_neighbour_is_left_alone() -> None:
    with supervised(SLEEPER, SLEEPER) as supervisor:
        before = wait_until(lambda: supervisor.pids if len(supervisor.pids) == 2 else None)
        os.kill(before["p0"], signal.SIGKILL)
        after = wait_until(lambda: supervisor.pids if supervisor.n_restarts and len(supervisor.pids) == 2 else None)
        assert after["p0"] != before["p0"]
        assert after["p1"] == before["p1"]
    assert not any(map(is_alive, after.values()))


def test_a_process_that_ends_at_once_is_started_ever_more_rarely(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with supervised(f"open({str(starts)!r}, 'a').write('x'); raise SystemExit(3)") as supervisor:
        wait_until(lambda: supervisor.n_restarts == 2)
        (kept,) = supervisor._kept
        assert kept.pause == 4.0  # 1, 2, then 4 seconds
    assert 2 <= len(starts.read_text()) <= 3


def test_a_process_that_does_not_end_when_asked_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("reveal_leaderboard.worker.supervisor.SECONDS_TO_END", 0.5)
    ready = tmp_path / "ready"
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(ready)!r}, 'w'); {SLEEPER}"
    with supervised(deaf) as supervisor:
        wait_until(ready.exists)
        (pid,) = supervisor.pids.values()
    assert not is_alive(pid)


def test_what_ends_by_itself_with_success_is_done(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    supervisor = Supervisor({"once": [sys.executable, "-c", f"open({str(starts)!r}, 'a').write('x')"]})
    supervisor.run()  # returns when all are done
    assert (starts.read_text(), supervisor.n_restarts) == ("x", 0)


def test_what_lies_in_the_working_folder_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('imported from the working folder')")
    done = subprocess.run(own_command("serve", "--help"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Serve the pages" in done.stdout
