"""Scratch folders of killed processes are removed; folders of running processes and other programs stay."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from reveal_leaderboard.cli import process as scratch
from reveal_leaderboard.cli.process import PREFIX, remove_abandoned, scratch_folder

HOLDS = """
import sys, tempfile
from pathlib import Path
from reveal_leaderboard.cli.process import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    file = tempfile.NamedTemporaryFile(delete=False)
    print(folder, file.name, flush=True)
    sys.stdin.read()
"""


def hold(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a scratch folder, and this folder."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(place)], text=True, env=os.environ, **pipes)  # type: ignore[call-overload]
    folder, file = process.stdout.readline().split()
    assert Path(file).parent == Path(folder)  # what it writes for a while goes there by itself
    return process, Path(folder)


def abandoned(place: Path, name: str = "dead") -> Path:
    """A folder as a killed process leaves it."""
    folder = place / f"{PREFIX}{name}"
    (folder / "custody").mkdir(parents=True)
    (folder / "custody" / "canonical.npz").write_bytes(b"predictions")
    return folder


def test_it_goes_with_the_block_and_so_does_what_is_in_it(tmp_path: Path) -> None:
    before = tempfile.gettempdir()
    with scratch_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        assert tempfile.gettempdir() == str(folder)
        (folder / "a").mkdir()
        (folder / "a" / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == before


def test_it_goes_when_the_block_fails(tmp_path: Path) -> None:
    before = tempfile.gettempdir()
    with pytest.raises(RuntimeError, match="stop"), scratch_folder(tmp_path):
        raise RuntimeError("stop")
    assert (list(tmp_path.iterdir()), tempfile.gettempdir()) == ([], before)


def test_that_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    (killed, left), (living, kept) = hold(tmp_path), hold(tmp_path)
    killed.kill()
    killed.wait()
    assert left.is_dir()
    with scratch_folder(tmp_path) as own:
        assert set(tmp_path.iterdir()) == {own, kept}
    living.send_signal(signal.SIGSTOP)  # one that answers nothing lives still
    assert remove_abandoned(tmp_path) == []
    living.send_signal(signal.SIGCONT)
    living.communicate("")
    assert living.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_outlives_its_starter_does_not_keep_the_folder(tmp_path: Path) -> None:
    """Children get no descriptor of the lock."""
    with scratch_folder(tmp_path) as folder:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=False)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"x")
        assert child.stdout.read(1) == b"x"  # from here on it opens and closes nothing
        handles = [os.readlink(f"/proc/{child.pid}/fd/{n}") for n in os.listdir(f"/proc/{child.pid}/fd")]
        child.kill()
        child.communicate()
    assert str(folder) not in handles


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data").write_text("precious")
    place = tmp_path / "place"
    place.mkdir()
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / f"{PREFIX}file").write_text("a file")
    (place / "reveal-worker-old").mkdir()
    (place / "tmpabc").mkdir()
    dead = abandoned(place)
    before = set(place.iterdir()) - {dead}
    assert remove_abandoned(place) == [dead]
    assert set(place.iterdir()) == before
    assert (elsewhere / "data").read_text() == "precious"
    assert remove_abandoned(tmp_path / "none") == []


def test_that_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = abandoned(tmp_path)
    monkeypatch.setattr(scratch.os, "geteuid", lambda: dead.stat().st_uid + 1)
    assert remove_abandoned(tmp_path) == []
    assert dead.is_dir()


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = abandoned(tmp_path)

    def refuse(handle: int, how: int) -> None:
        raise OSError(9, "Bad file descriptor")  # as some network file systems say of a folder

    monkeypatch.setattr(scratch.fcntl, "flock", refuse)
    with scratch_folder(tmp_path) as own:
        assert set(tmp_path.iterdir()) == {own, dead}


@pytest.mark.parametrize("how", ["locked", "removed"])
def test_one_that_is_taken_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another process may look for abandoned folders between the creation of a folder and its lock."""
    make = tempfile.mkdtemp
    handles: list[int] = []

    def overtaken(**options: object) -> str:
        name = make(**options)  # type: ignore[call-overload]
        if not handles:
            handles.append(os.open(name, os.O_RDONLY))
            fcntl.flock(handles[0], fcntl.LOCK_EX)
            if how == "removed":
                shutil.rmtree(name)
        return str(name)

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", overtaken)
    with scratch_folder(tmp_path) as own:
        assert own.is_dir()
        assert not os.path.samestat(own.stat(), os.fstat(handles[0]))
        assert remove_abandoned(tmp_path) == []
    os.close(handles[0])


def test_many_that_start_at_once_do_not_remove_each_other(tmp_path: Path) -> None:
    for n in range(20):
        abandoned(tmp_path, f"dead{n}")
    lost: list[Path] = []
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait()
        for _ in range(50):
            remove_abandoned(tmp_path)
            folder, handle = scratch._locked_folder(tmp_path)
            (folder / "file").write_text("x")
            remove_abandoned(tmp_path)
            if not (folder / "file").exists():
                lost.append(folder)
            shutil.rmtree(folder)
            os.close(handle)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert list(tmp_path.iterdir()) == []
