"""The server cannot open the holdout, even if it knew where it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI
from reveal_leaderboard import cli
from reveal_leaderboard.cli import app
from reveal_leaderboard.custody import Custody, confinement, fork_client
from reveal_leaderboard.custody.confinement import confine, is_inside, landlock_abi, program_places, readable_places
from reveal_leaderboard.custody.fork_client import bubblewrap_works
from reveal_leaderboard.store.paths import resolve_paths
from typer.testing import CliRunner

from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from tests.conftest import in_child
from tests.leaderboard.conftest import BENCHMARK, Board, guesses

pytestmark = pytest.mark.processes
needs_landlock = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "opened"


def attempts(holdout: Path, shard: Path, public: Path, stranger: int) -> dict[str, str]:
    """Return the results of trying to reach each target, by name."""
    return {
        "public manifest": outcome(lambda: pq.read_table(public / "manifest" / "holdout.parquet")),
        "own data": outcome(lambda: Path("written-here").write_text("x")),
        "listdir": outcome(lambda: os.listdir(holdout)),
        "listdir of its parent": outcome(lambda: os.listdir(holdout.parent)),
        "open": outcome(lambda: shard.open("rb")),
        "os.open": outcome(lambda: os.open(shard, os.O_RDONLY)),
        "parquet": outcome(lambda: pq.read_table(shard)),
        "write": outcome(lambda: (holdout / "planted").write_text("x")),
        "rename away": outcome(lambda: shard.rename("stolen")),
        "hard link": outcome(lambda: os.link(shard, "stolen")),
        "symbolic link": outcome(lambda: (os.symlink(shard, "link"), Path("link").open("rb"))),
        "through its own root": outcome(lambda: Path(f"/proc/self/root{shard}").open("rb")),
        "another process": outcome(lambda: Path(f"/proc/{stranger}/cmdline").open("rb")),
        "a child process": outcome(lambda: child_reads(shard)),
    }


def child_reads(path: Path) -> None:
    if subprocess.run(["/bin/cat", path], check=False, capture_output=True).returncode != 0:
        raise PermissionError


def in_the_server(board: Board, data: Path, do: Callable[[FastAPI, Custody], None]) -> int:
    """The exit code of a copy of this process in which ``serve`` hands over its application instead of listening."""
    custodies: list[Custody] = []
    import_module("reveal_leaderboard.web.app")  # once, before the copy

    def serve() -> None:
        bubblewrap_works.cache_clear()  # the copy will be held by Landlock, under which bubblewrap may not mount
        with pytest.MonkeyPatch.context() as patch:
            # Gradio was imported before `serve` could say where its files go
            patch.setattr("gradio.routes.DEFAULT_TEMP_DIR", str(data / "gradio"))
            patch.setattr(Custody, "warm_up", lambda custody: custodies.append(custody))
            patch.setattr(cli, "run_server", lambda application, *_: do(application, custodies[0]))
            blobs = data.with_name("uploads")  # which there is not yet
            words = ["serve", "--data", str(data), "--blobs", str(blobs), "--benchmark", str(board.folder)]
            app(words, standalone_mode=False)

    return in_child(serve)


@needs_landlock
def test_the_confined_server_opens_its_own_files_and_no_others(board: Board, tmp_path: Path) -> None:
    stranger = os.getpid()
    [shard] = (board.holdout / "localization").glob("*.parquet")

    def look(application: FastAPI, custody: Custody) -> None:
        outcomes = attempts(board.holdout, shard, board.folder, stranger)
        assert {name for name, outcome in outcomes.items() if outcome == "opened"} == {"public manifest", "own data"}
        refused = {outcome for outcome in outcomes.values() if outcome != "opened"}
        assert refused <= {"PermissionError", "OSError"}  # OSError: EXDEV of a link across the border

    assert in_the_server(board, tmp_path / "data", look) == 0


@needs_landlock
def test_a_server_that_gave_up_its_rights_still_lints(board: Board, tmp_path: Path) -> None:
    """Templates start, and start again, although Landlock holds the server already."""
    data = tmp_path / "data"

    def lint(application: FastAPI, custody: Custody) -> None:
        upload, canonical = data / "upload", data / "canonical.npz"
        upload.write_text(predictions_to_jsonl(guesses(board.manifest)))
        assert custody.parse(upload, board.manifest, name="mine", canonical=canonical).report.ok
        assert canonical.exists()
        os.kill(custody.template_ids()[0], signal.SIGKILL)
        assert custody.parse(upload, board.manifest, name="mine").report.ok
        assert f"landlock-{landlock_abi()}, seccomp" in custody.confinement

    assert in_the_server(board, data, lint) == 0


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


def test_without_landlock_the_answer_is_none_and_the_server_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(confinement, "landlock_abi", lambda: 0)
    assert confine(read=[], write=[]) == "none"
    with caplog.at_level("WARNING"):
        assert cli._confine(resolve_paths(tmp_path, None, None, None), []) == "none"
    assert caplog.messages == ["this kernel has no Landlock: only file permissions keep the server from the holdout"]


@pytest.mark.parametrize("program", [None, "exit 1", "exec sleep 60"], ids=["absent", "refused", "hangs"])
def test_where_bubblewrap_fails_it_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None
) -> None:
    """A kernel may refuse it namespaces; on some it never answers."""
    if program is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if program else str(tmp_path))
    monkeypatch.setattr(fork_client, "_PROBE_SECONDS", 0.5)
    assert bubblewrap_works.__wrapped__() is False


def test_custody_without_bubblewrap_warns(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level("WARNING"), Custody(tmp_path, bubblewrap=False) as kept:
        kept.warm_up()
    assert caplog.messages == ["bubblewrap does not work here: children have no namespaces of their own"]


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
    assert_refused("must be outside the data folder", *words)


def test_migrate_makes_the_database(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["migrate", "--data", str(tmp_path / "data")]).exit_code == 0
    assert (tmp_path / "data" / "leaderboard.sqlite").exists()
