"""The server cannot open the holdout, even if it knew where it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reveal_leaderboard.cli import app
from reveal_leaderboard.custody import confinement
from reveal_leaderboard.custody.confinement import confine, is_inside, landlock_abi, program_places, readable_places
from typer.testing import CliRunner

from tests.conftest import in_child
from tests.leaderboard.conftest import BENCHMARK, Board

pytestmark = pytest.mark.processes
needs_landlock = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")

ATTEMPTS = """
import json, os, sys
from pathlib import Path

holdout, public, stranger = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
shard = sys.argv[4]


def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "opened"


def attempts():
    import pyarrow.parquet as pq

    return {
        "public manifest": outcome(lambda: pq.read_table(public / "manifest" / "holdout.parquet")),
        "own data": outcome(lambda: Path("written-here").write_text("x")),
        "listdir": outcome(lambda: os.listdir(holdout)),
        "listdir of its parent": outcome(lambda: os.listdir(holdout.parent)),
        "open": outcome(lambda: open(shard, "rb")),
        "os.open": outcome(lambda: os.open(shard, os.O_RDONLY)),
        "parquet": outcome(lambda: pq.read_table(shard)),
        "write": outcome(lambda: (holdout / "planted").write_text("x")),
        "rename away": outcome(lambda: os.rename(shard, "stolen")),
        "hard link": outcome(lambda: os.link(shard, "stolen")),
        "symbolic link": outcome(lambda: (os.symlink(shard, "link"), open("link", "rb"))),
        "through its own root": outcome(lambda: open("/proc/self/root" + shard, "rb")),
        "another process": outcome(lambda: open(f"/proc/{stranger}/cmdline", "rb")),
        "a child process": outcome(lambda: _child()),
    }


def _child():
    import subprocess

    subprocess.run(["/bin/cat", shard], check=False, capture_output=True).returncode == 0 or _denied()


def _denied():
    raise PermissionError
"""

IN_THE_SERVER = """
import uvicorn

uvicorn.run = lambda *a, **k: print(json.dumps(attempts()))
from reveal_leaderboard import cli

cli.app(["serve", "--data", sys.argv[5], "--benchmark", str(public)])
"""


@needs_landlock
def test_the_confined_server_opens_its_own_files_and_no_others(board: Board, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    [shard] = (board.holdout / "localization").glob("*.parquet")
    arguments = (board.holdout, board.folder, str(os.getpid()), shard, data)
    command = [sys.executable, "-c", ATTEMPTS + IN_THE_SERVER, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, outcome in outcomes.items() if outcome == "opened"} == {"public manifest", "own data"}
    refused = {outcome for outcome in outcomes.values() if outcome != "opened"}
    assert refused <= {"PermissionError", "OSError"}  # OSError: EXDEV of a link across the border


@needs_landlock
def test_a_process_with_threads_is_not_confined_halfway() -> None:
    code = (
        "import threading; from reveal_leaderboard.custody.confinement import confine\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "confine(read=[], write=[])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "must be called while the process has one thread, got 2" in done.stderr


SHORT_LIST = """
import os, socket, sys
from reveal_leaderboard.custody.confinement import confine, program_places

handed, other = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
confine(read=program_places(), write=[], files=[handed], network=False)


def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "done"


print(outcome(lambda: open(f"/proc/self/fd/{handed}")))
print(outcome(lambda: open(f"/proc/self/fd/{other}")))
print(outcome(lambda: open("/etc/passwd")))
print(outcome(lambda: open(os.devnull)))
print(outcome(lambda: socket.create_server(("127.0.0.1", 0))))
print(outcome(lambda: os.kill(os.getppid(), 0)))
"""


@needs_landlock
def test_the_short_list_opens_what_is_handed_over_and_no_network(tmp_path: Path) -> None:
    for name in ("handed", "other"):
        (tmp_path / name).write_text(name)
    arguments = [str(tmp_path / "handed"), str(tmp_path / "other")]
    done = subprocess.run([sys.executable, "-c", SHORT_LIST, *arguments], capture_output=True, text=True, check=False)
    refused = "PermissionError"
    network = refused if landlock_abi() >= 4 else "done"
    signals = refused if landlock_abi() >= 6 else "done"
    assert done.stdout.split() == ["done", refused, refused, "done", network, signals], done.stderr


def test_the_short_list_is_on_the_long_one() -> None:
    assert [place for place in program_places() if not is_inside(place, readable_places())] == []


def test_without_landlock_the_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "landlock_abi", lambda: 0)
    assert confine(read=[], write=[]) == "none"


def test_the_import_path_as_a_whole_is_not_readable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not is_inside(tmp_path / "holdout", readable_places())


def assert_refused(match: str, *arguments: str) -> None:
    """A command refuses its arguments and says why; in a copy of this process, as it may confine its own."""

    def invoke() -> None:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2, done.output
        assert match in " ".join(done.output.replace("│", " ").split())

    assert in_child(invoke) == 0


def test_the_server_refuses_a_folder_with_the_references(board: Board, tmp_path: Path) -> None:
    words = ("serve", "--data", str(tmp_path / "data"), "--benchmark", str(board.holdout))
    assert_refused("holds the references", *words)


def test_a_worker_refuses_a_holdout_inside_the_data_folder(board: Board) -> None:
    words = ("worker", "--data", str(board.holdout.parent), "--holdout", f"{BENCHMARK}={board.holdout}", "--once")
    assert_refused("must lie apart from the data folder", *words)


def test_migrate_makes_the_database(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["migrate", "--data", str(tmp_path / "data")]).exit_code == 0
    assert (tmp_path / "data" / "leaderboard.sqlite").exists()
