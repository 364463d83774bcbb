"""The server cannot open the holdout, even if it knew where it is."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from importlib import import_module
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI
from reveal_leaderboard import cli
from reveal_leaderboard.cli import app, process
from reveal_leaderboard.custody import Custody, confinement, fork_client, sandbox, server
from reveal_leaderboard.custody.confinement import (
    children_gaps,
    confine,
    is_inside,
    landlock_abi,
    program_places,
    readable_places,
)
from reveal_leaderboard.custody.fork_client import bubblewrap_works
from reveal_leaderboard.custody.seccomp import has_seccomp
from reveal_leaderboard.custody.server import confine_server, is_at_unix_socket
from reveal_leaderboard.store.paths import resolve_paths
from typer import BadParameter
from typer.testing import CliRunner

from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from tests.conftest import in_child
from tests.leaderboard.conftest import ACCEPTED, BENCHMARK, Board, guesses

pytestmark = pytest.mark.processes
needs_landlock = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "opened"


def call(name: str, *arguments: object) -> None:
    """Make a system call by its name, in the numbers of this machine."""
    libc, machine = ctypes.CDLL(None, use_errno=True), platform.machine()
    number = NUMBERS[name][0 if machine == "x86_64" else 1]
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


NUMBERS = {
    "chmod": (90, None), "fchmodat": (268, 53), "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220),
    "io_uring_setup": (425, 425), "ptrace": (101, 117), "process_vm_readv": (310, 270), "prlimit64": (302, 261),
    "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241), "truncate": (76, 45),
    "inotify_add_watch": (254, 27),
}  # fmt: skip
"""System calls with their numbers in the kernel's headers, on x86_64 and on aarch64."""
USER_NAMESPACE = 0x10000000


def connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)


def send_from_pair(address: str) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"hello", address)


def takeovers(shard: Path, vault: Path, sockets: Mapping[str, str], stranger: int) -> dict[str, Callable[[], object]]:
    """Return what a taken-over server would try beyond opening files."""
    root = os.fsencode(shard.parent)
    limits = (ctypes.c_uint64 * 2)(1 << 20, 1 << 20)
    return {
        "connect to a socket": lambda: connect(sockets["stream"]),
        "connect to an abstract socket": lambda: connect(sockets["abstract"]),
        "send to a socket from a pair": lambda: send_from_pair(sockets["datagram"]),
        "change a mode": lambda: os.chmod(shard, 0o777),
        "change a folder's mode": lambda: os.chmod(vault, 0o777),
        "change a mode by the system call": lambda: call("fchmodat", -100, root, 0o777),
        "change an owner": lambda: os.chown(shard, os.getuid(), os.getgid()),
        "cut off a file": lambda: call("truncate", os.fsencode(shard), ctypes.c_long(0)),
        "signal a process": lambda: os.kill(stranger, 0),
        "limit a process": lambda: call("prlimit64", stranger, 7, limits, None),
        "debug a process": lambda: call("ptrace", 16, stranger, None, None),
        "read a process's memory": lambda: call("process_vm_readv", stranger, None, 0, None, 0, 0),
        "new namespace": lambda: call("unshare", USER_NAMESPACE),
        "fork into a namespace": lambda: call("clone", USER_NAMESPACE | signal.SIGCHLD, None, None, None, None),
        "enter a namespace": lambda: call("setns", -1, 0),
        "io_uring": lambda: call("io_uring_setup", 0, None),
        "keys": lambda: call("keyctl", 0, -3, 0),
        "bpf": lambda: call("bpf", -1, None, 0),
        "watch a file": lambda: call("inotify_add_watch", -1, os.fsencode(shard), 1),
        "performance events": lambda: call("perf_event_open", None, 0, -1, -1, 0),
    }


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
            settings = data.with_name("settings.toml")
            settings.write_text(f"[exposure]\n{ACCEPTED}", encoding="utf-8")
            words = ["serve", "--data", str(data), "--blobs", str(blobs), "--benchmark", str(board.folder)]
            words += ["--settings", str(settings)]
            app(words, standalone_mode=False)

    return in_child(serve)


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the addresses at which another process listens, as a session bus or a container engine does."""
    addresses = {"stream": f"{tmp_path}/s", "abstract": f"\0{tmp_path}", "datagram": f"{tmp_path}/d"}
    with ExitStack() as stack:
        for name, address in addresses.items():
            kind = socket.SOCK_DGRAM if name == "datagram" else socket.SOCK_STREAM
            server = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            server.bind(address)
            if kind == socket.SOCK_STREAM:
                server.listen()
        yield addresses


@needs_landlock
@pytest.mark.skipif(not has_seccomp(), reason="this system has no seccomp")
def test_a_taken_over_server_opens_its_own_files_and_reaches_no_other_process(
    board: Board, tmp_path: Path, sockets: dict[str, str]
) -> None:
    [shard] = (board.holdout / "localization").glob("*.parquet")
    stranger, mode = os.getpid(), shard.stat().st_mode
    (vault := tmp_path / "vault").mkdir(mode=0o700)

    def look(application: FastAPI, custody: Custody) -> None:
        outcomes = attempts(board.holdout, shard, board.folder, stranger)
        assert {name for name, outcome in outcomes.items() if outcome == "opened"} == {"public manifest", "own data"}
        refused = {outcome for outcome in outcomes.values() if outcome != "opened"}
        assert refused <= {"PermissionError", "OSError"}  # OSError: EXDEV of a link across the border
        acts = takeovers(shard, vault, sockets, stranger)
        allowed = {name for name, act in acts.items() if outcome(act) != "PermissionError"}
        assert allowed == ({"signal a process"} if landlock_abi() < 6 else set())
        own = Path("own")
        own.write_text("x")
        shutil.copy2(own, "copy")  # as Gradio does
        os.mkfifo(pipe := Path("pipe"))
        for path in (own, pipe):
            path.chmod(0o640)
            assert stat.S_IMODE(path.stat().st_mode) == 0o640

    assert in_the_server(board, tmp_path / "data", look) == 0
    assert (shard.stat().st_mode, stat.S_IMODE(vault.stat().st_mode)) == (mode, 0o700)


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
from reveal_leaderboard.custody.confinement import children_gaps, confine, program_places

handed, other = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
confine(read=program_places(), write=[], files=[handed], network=False, scoped=True)


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
    for module in (confinement, server):
        monkeypatch.setattr(module, "landlock_abi", lambda: 0)
    monkeypatch.setattr(server, "install", lambda *_, **__: "none")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert confine(read=[], write=[]) == "none"
    with caplog.at_level("WARNING"):
        confined = cli._confine(resolve_paths(tmp_path, None, None, None), [])
    assert confined.summary == "no landlock, no seccomp"
    assert caplog.messages == list(confined.gaps) == [server.NO_LANDLOCK, server.NO_SCOPES, server.NO_SECCOMP]


def test_older_kernels_lose_only_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scopes came with the sixth version of Landlock; sockets and modes are seccomp's."""
    monkeypatch.setattr(server, "confine", lambda **_: "landlock-5")
    monkeypatch.setattr(server, "landlock_abi", lambda: 5)
    monkeypatch.setattr(server, "install", lambda *_, **__: "none")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    gaps = confine_server(read=[], write=[], database="sqlite:///board.sqlite").gaps
    assert gaps == (server.NO_SCOPES, server.NO_SECCOMP)


@pytest.mark.parametrize(
    ("database", "is_unix"),
    [
        ("sqlite:////srv/board/leaderboard.sqlite", False),
        ("postgresql+psycopg://board@db.example.org/board", False),
        ("postgresql+psycopg://board@/board?host=/run/postgresql", True),
        ("postgresql+psycopg://board@/board?host=localhost", False),
        ("postgresql+psycopg://board@/board", True),
        ("postgresql+psycopg://board@/board?host=localhost,/run/postgresql", True),
        ("postgresql+psycopg://board@/board?host=localhost&host=/run/postgresql", True),
        ("postgresql+psycopg://board:pass[word@db.example.org/board", False),
        ("postgresql+psycopg://board@/board?hostaddr=127.0.0.1", False),
        ("postgresql+psycopg://board@/board?host=/run/postgresql&hostaddr=127.0.0.1", False),
        ("postgresql+psycopg://board@/board?host=localhost,/run/postgresql&hostaddr=127.0.0.1,", True),
    ],
)
def test_only_a_database_at_a_unix_socket_keeps_them_open(
    monkeypatch: pytest.MonkeyPatch, database: str, is_unix: bool
) -> None:
    for name in ("PGHOST", "PGHOSTADDR"):
        monkeypatch.delenv(name, raising=False)
    assert is_at_unix_socket(database) is is_unix
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1,127.0.0.1")  # libpq's default for any URL without one
    assert is_at_unix_socket(database) is (is_unix and "hostaddr" in database)


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
    assert_refused("contains the references", *words)


def test_a_worker_refuses_a_holdout_inside_the_data_folder(board: Board) -> None:
    words = ("worker", "--data", str(board.holdout.parent), "--holdout", f"{BENCHMARK}={board.holdout}", "--once")
    assert_refused("must be outside the data folder", *words)


def test_a_worker_whose_children_could_read_the_holdout_refuses(
    board: Board, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for module in (cli, sandbox):
        monkeypatch.setattr(module, "landlock_abi", lambda: 0)
    monkeypatch.setattr(fork_client, "bubblewrap_works", lambda: False)
    words = ["worker", "--data", str(tmp_path / "data"), "--holdout", f"{BENCHMARK}={board.holdout}", "--once"]
    assert_refused("children that open uploads can read holdouts and vaults", *words)
    with caplog.at_level("WARNING"):
        cli._check_confinement(unconfined=True)
    assert caplog.messages == children_gaps("no landlock, seccomp, no bubblewrap")


@pytest.mark.parametrize(("uids", "signs", "is_refused"), [
    ("0 0 4294967295", {}, True),
    ("0 0 4294967295", {"container": "podman"}, False),
    ("0 100000 65536", {}, False),
])  # fmt: skip
def test_a_server_refuses_to_run_as_the_systems_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uids: str, signs: dict[str, str], is_refused: bool
) -> None:
    (tmp_path / "uid_map").write_text(uids)
    monkeypatch.setattr(process, "UID_MAP", tmp_path / "uid_map")
    monkeypatch.setattr(process, "CONTAINER_FILES", ())
    monkeypatch.setattr(os, "environ", signs)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    process.check_user(as_root=True)
    with pytest.raises(BadParameter, match="must not run as root") if is_refused else nullcontext():
        process.check_user(as_root=False)


def test_a_worker_refuses_settings_that_the_server_could_change(board: Board, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").touch()
    words = ("worker", "--data", str(tmp_path), "--holdout", f"{BENCHMARK}={board.holdout}", "--settings")
    assert_refused("and give server and worker the new path", *words, str(tmp_path / "settings.toml"))


def test_migrate_makes_the_database(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["migrate", "--data", str(tmp_path / "data")]).exit_code == 0
    assert (tmp_path / "data" / "leaderboard.sqlite").exists()
