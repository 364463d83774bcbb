"""Fork servers that die, are killed, get many requests at once or have none for long; requests are answered
nevertheless.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.custody import fork_client as service_module
from reveal_leaderboard.custody.fork_client import TemplateError, TemplateService
from reveal_leaderboard.custody.messages import ExitStatus, JobRequest

from tests.leaderboard.conftest import wait_until
from tests.leaderboard.custody.conftest import ROOT, SMALL, make_jail

pytestmark = pytest.mark.processes


@pytest.fixture
def jail(scratch: Path) -> Iterator[TemplateService]:
    made = make_jail(scratch)
    yield made
    made.close()


def ask(jail: TemplateService, name: str, **limits: float) -> tuple[ExitStatus, bytes | None]:
    return jail.run(JobRequest("attack", {"name": name, "targets": {}}, replace(SMALL, **limits)))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> Callable[[], bool]:
    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    return gone


def asleep(jail: TemplateService, pool: ThreadPoolExecutor) -> tuple[Future[Any], int]:
    """A request that sleeps, and its child."""
    jail.start()
    assert jail.pid is not None
    future = pool.submit(ask, jail, "sleep")
    (child,) = wait_until(lambda: children_of(jail.pid or 0))
    return future, child


def test_a_template_that_was_killed_is_started_again(jail: TemplateService) -> None:
    assert ask(jail, "hello")[1] == b"hello"
    before = jail.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert ask(jail, "hello")[1] == b"hello"
    assert jail.pid not in (None, before)


def test_a_request_whose_template_dies_under_it_is_run_once_more(jail: TemplateService) -> None:
    with ThreadPoolExecutor(1) as pool:
        future, child = asleep(jail, pool)
        before = jail.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_until(is_gone(child))  # its child goes with it
        wait_until(lambda: jail.pid not in (None, before) and children_of(jail.pid or 0))
        for again in children_of(jail.pid or 0):
            os.kill(again, signal.SIGKILL)
        ended, _ = future.result()
    assert ended.code == -signal.SIGKILL
    assert not ended.timed_out


def test_a_child_that_was_killed_is_told_as_that(jail: TemplateService) -> None:
    with ThreadPoolExecutor(1) as pool:
        future, child = asleep(jail, pool)
        before = jail.pid
        os.kill(child, signal.SIGKILL)
        ended, answer = future.result()
    assert (ended.code, ended.timed_out, answer) == (-signal.SIGKILL, False, b"")
    assert ask(jail, "hello")[1] == b"hello"
    assert jail.pid == before


def test_closing_ends_template_and_children(jail: TemplateService) -> None:
    with ThreadPoolExecutor(1) as pool:
        future, child = asleep(jail, pool)
        template = jail.pid
        assert template is not None
        os.kill(template, signal.SIGSTOP)  # even one that does not listen
        jail.close()
        wait_until(is_gone(template))
        wait_until(is_gone(child))
        wait_until(lambda: jail.pid is not None and children_of(jail.pid))  # the request is run once more
        for again in children_of(jail.pid or 0):
            os.kill(again, signal.SIGKILL)
        assert future.result()[0].code == -signal.SIGKILL


PARENT = """
import sys, threading
from pathlib import Path
from tests.leaderboard.custody.conftest import SMALL, make_jail
from reveal_leaderboard.custody.messages import JobRequest

jail = make_jail(Path(sys.argv[1]))
jail.start()
print(jail.pid, flush=True)
jail.run(JobRequest("attack", {"name": "sleep", "targets": {}}, SMALL))
"""


def test_nothing_outlives_a_killed_server(scratch: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(scratch)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    template = int(process.stdout.readline())
    (child,) = wait_until(lambda: children_of(template))
    process.kill()
    process.communicate()
    wait_until(is_gone(template))
    wait_until(is_gone(child))


def test_many_at_once_are_all_answered_each_with_its_own(scratch: Path) -> None:
    jail = make_jail(scratch, lanes=3)
    handles = []
    try:
        with ThreadPoolExecutor(12) as pool:
            for i in range(24):
                handles.append(os.memfd_create("test"))
                os.write(handles[i], f"{i};".encode())
                os.lseek(handles[i], 0, os.SEEK_SET)
            made = [pool.submit(jail.run, JobRequest("contents", {}, SMALL), [handle]) for handle in handles]
            answers = [future.result()[1] for future in made]
    finally:
        jail.close()
        for handle in handles:
            os.close(handle)
    assert [(answer or b"").split(b";")[0] for answer in answers] == [f"(b'{i}".encode() for i in range(24)]


def test_no_more_children_than_lanes(scratch: Path) -> None:
    jail = make_jail(scratch, lanes=2)
    jail.start()
    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(ask, jail, "sleep", wall_seconds=0.4) for _ in range(6)]
        most = 0
        while not all(future.done() for future in futures):
            most = max(most, len(children_of(jail.pid or 0)))
            time.sleep(0.01)
    jail.close()
    assert most == 2
    assert all(future.result()[0].timed_out for future in futures)


def test_a_template_that_does_not_tell_the_end_in_time_is_replaced(
    jail: TemplateService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_GRACE_SECONDS", 0.2)
    jail.start()
    before = jail.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    ended, _ = ask(jail, "exit", wall_seconds=0.3)
    assert ended.code == 3
    assert jail.pid != before
    wait_until(is_gone(before))


def test_no_descriptor_is_left_behind(jail: TemplateService) -> None:
    ask(jail, "hello")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("hello", "exit", "say too much", "crash"):
        ask(jail, name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_module_that_does_not_start_says_why(scratch: Path) -> None:
    jail = TemplateService(
        "tests.leaderboard.custody.nothing_here", scratch, lanes=1, limits=SMALL, paths=[ROOT], wrapped=False
    )
    with pytest.raises(TemplateError, match=r"No module named 'tests\.leaderboard\.custody\.nothing_here'"):
        jail.run(JobRequest("attack", {}, SMALL))
