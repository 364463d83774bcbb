"""Hostile code in the sandbox can only compute and answer."""

from __future__ import annotations

import os
import platform
import resource
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from reveal_leaderboard.custody import sandbox as jail_module
from reveal_leaderboard.custody.confinement import landlock_abi
from reveal_leaderboard.custody.fork_client import TemplateService
from reveal_leaderboard.custody.messages import TOO_LARGE, ExitStatus, JobRequest
from reveal_leaderboard.custody.sandbox import install_filter
from reveal_leaderboard.custody.seccomp import has_seccomp

from tests.leaderboard.custody.conftest import SMALL

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(landlock_abi() == 0 or not has_seccomp(), reason="this kernel has no Landlock or no seccomp"),
]


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("holdout") / "references.parquet"
    path.write_bytes(b"canary")
    return path


def run(jail: TemplateService, name: str, secret: Path, **limits: float) -> tuple[ExitStatus, bytes | None]:
    targets = {"secret": str(secret), "folder": str(secret.parent), "pid": str(os.getpid())}
    request = JobRequest("attack", {"name": name, "targets": targets}, replace(SMALL, **limits))
    return jail.run(request)


REFUSED = [
    "open the holdout", "list the holdout", "through its own root", "the command line of another",
    "the memory of another", "its own environment", "passwords", "write beside the holdout",
    "write in a temporary folder", "append to a file", "cut a file", "make a folder", "remove a file", "rename a file",
    "hard link", "symbolic link", "change a mode", "internet socket", "unix socket", "socket pair",
    "socket in a thread", "another program", "fork", "subprocess", "signal another", "signal the group of another",
    "ptrace", "unshare", "raise its own limit", "change root",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(jail: TemplateService, secret: Path, name: str) -> None:
    ended, answer = run(jail, name, secret)
    assert ended.code == 0
    # bubblewrap hides what Landlock refuses: it is not there at all
    hidden = {b"FileNotFoundError", b"ProcessLookupError"} if jail.confinement.endswith(", bubblewrap") else set()
    assert answer in {b"PermissionError", *hidden}
    assert secret.read_bytes() == b"canary"
    assert list(secret.parent.iterdir()) == [secret]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("thread", b"done"),
        ("itself a signal", b"done"),
        ("group", b"True"),
        ("open descriptors", b"4"),  # three of /dev/null, and the pipe of the answer
    ],
)
def test_is_allowed(jail: TemplateService, secret: Path, name: str, answer: bytes) -> None:
    assert run(jail, name, secret)[1] == answer


def test_nothing_of_the_environment_is_inherited(
    scratch: Path, secret: Path, jail: TemplateService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVEAL_SECRET", "canary")
    jail.close()
    names = (run(jail, "environment", secret)[1] or b"").decode().split()
    assert "PATH" in names
    assert not [name for name in names if "REVEAL" in name or "TOKEN" in name or name in ("HOME", "PYTHONPATH")]


@pytest.mark.parametrize(
    ("name", "code", "timed_out", "limits"),
    [
        ("fill memory", TOO_LARGE, False, {}),
        ("one block of memory", TOO_LARGE, False, {}),
        ("spin", -signal.SIGXCPU, False, {"cpu_seconds": 1}),
        ("sleep", -signal.SIGKILL, True, {"wall_seconds": 0.3}),
        ("crash", -signal.SIGSEGV, False, {}),
        ("abort", -signal.SIGABRT, False, {}),
        ("kill itself", -signal.SIGKILL, False, {}),
        ("exit", 3, False, {}),
    ],
)
def test_every_end_is_told(
    jail: TemplateService, secret: Path, name: str, code: int, timed_out: bool, limits: dict[str, float]
) -> None:
    before = jail.pid
    ended, answer = run(jail, name, secret, **limits)
    assert (ended.code, ended.timed_out) == (code, timed_out)
    assert answer == b""
    assert ended.peak_bytes < 600 << 20
    assert run(jail, "hello", secret)[1] == b"hello"
    assert before in (None, jail.pid)  # the template lived through it


def test_a_child_that_says_too_much_is_cut_off(jail: TemplateService, secret: Path) -> None:
    ended, answer = run(jail, "say too much", secret)
    assert answer is None
    assert ended.code != 0


def test_a_child_writes_no_more_than_its_limit_into_the_file_it_is_given(jail: TemplateService) -> None:
    with tempfile.TemporaryFile() as file:
        assert jail.run(JobRequest("write", {"mib": 2}, SMALL), [file.fileno()])[1] == b"done"
        assert os.fstat(file.fileno()).st_size == 2 << 20
        assert jail.run(JobRequest("write", {"mib": 3}, SMALL), [file.fileno()])[0].code == TOO_LARGE


def test_files_are_handed_over_in_order_and_reopened_only_as_far_as_said(jail: TemplateService, tmp_path: Path) -> None:
    handles = []
    for i in range(3):
        (tmp_path / str(i)).write_text(f"{i};")
        handles.append(os.open(tmp_path / str(i), os.O_RDONLY))
    request = JobRequest("contents", {}, SMALL, reopened=1)
    _, answer = jail.run(request, handles, shared=b"manifest")
    for handle in handles:
        os.close(handle)
    expected = (b"0;1;2;", 3, ["opened", "PermissionError", "PermissionError"], "shared manifest")
    assert answer == repr(expected).encode()


def test_more_files_than_one_message_carries(jail: TemplateService, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    handles = [os.open(tmp_path / "one", os.O_RDONLY) for _ in range(450)]
    _, answer = jail.run(JobRequest("contents", {}, replace(SMALL, open_files=600)), handles)
    for handle in handles:
        os.close(handle)
    assert answer is not None
    assert answer.startswith(repr((b"1" * 450, 450)).encode()[:-1])


def test_a_place_that_is_named_can_be_read(jail: TemplateService, secret: Path) -> None:
    if "no bubblewrap" not in jail.confinement:
        pytest.skip("bubblewrap is told its folders when the template starts")
    targets = {"secret": str(secret), "folder": str(secret.parent), "pid": "1"}
    opened = JobRequest("attack", {"name": "open the holdout", "targets": targets}, SMALL, places=(str(secret.parent),))
    assert jail.run(opened)[1] == b"done"
    assert run(jail, "open the holdout", secret)[1] == b"PermissionError"  # the next child has no part in it


def test_the_confinement_is_said(jail: TemplateService) -> None:
    jail.start()
    parts = jail.confinement.split(", ")
    assert parts[:3] == ["rlimits", f"landlock-{landlock_abi()}", "seccomp"]
    assert parts[3:] in (["bubblewrap"], ["no bubblewrap"])


def test_address_space_is_known_without_reading_proc() -> None:
    reported = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    assert abs(jail_module._probed_address_space() - reported) < 16 << 20


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not has_seccomp()
    assert install_filter() == "none"
