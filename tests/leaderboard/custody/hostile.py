"""Hostile jobs for the sandbox; a template is started with this module instead of the linter.

Each attack returns "done" if it succeeds; otherwise it returns the class name of the error that stopped it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from reveal_leaderboard.custody.fork_server import Job

TARGETS: dict[str, str] = {}


def attack(arguments: dict[str, Any], files: list[int], shared: Any) -> bytes:
    TARGETS.update(arguments["targets"])
    try:
        answer = ATTACKS[arguments["name"]]()
    except OSError as error:
        return type(error).__name__.encode()
    return str("done" if answer is None else answer).encode()


def _syscall(number: int, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _open(path: str, flags: int = os.O_RDONLY) -> None:
    os.close(os.open(path, flags))


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _descriptors() -> str:
    descriptors = []
    for handle in range(256):
        try:
            os.fstat(handle)
        except OSError:
            continue
        descriptors.append(handle)
    return str(len(descriptors))


def _spin() -> None:
    while True:
        pass


def _fill(handle_bytes: int) -> None:
    kept = []
    while True:
        kept.append(bytearray(handle_bytes))


def _raise_limit() -> None:
    try:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError as error:  # what Python makes of EPERM here
        raise PermissionError from error


def _thread() -> str:
    replies: list[str] = []
    thread = threading.Thread(target=lambda: replies.append("done"))
    thread.start()
    thread.join()
    return replies[0]


def _socket_in_a_thread() -> str:
    replies: list[str] = []

    def run() -> None:
        try:
            socket.socket()
            replies.append("done")
        except OSError as error:
            replies.append(type(error).__name__)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return replies[0]


ATTACKS: dict[str, Callable[[], Any]] = {
    "open the holdout": lambda: _open(TARGETS["secret"]),
    "list the holdout": lambda: os.listdir(TARGETS["folder"]) and None,
    "through its own root": lambda: _open("/proc/self/root" + TARGETS["secret"]),
    "the command line of another": lambda: _open(f"/proc/{TARGETS['pid']}/cmdline"),
    "the memory of another": lambda: _open(f"/proc/{TARGETS['pid']}/mem"),
    "its own environment": lambda: _open("/proc/self/environ"),
    "passwords": lambda: _open("/etc/passwd"),
    "write beside the holdout": lambda: _open(TARGETS["folder"] + "/planted", os.O_WRONLY | os.O_CREAT),
    "write in a temporary folder": lambda: _open("/tmp/planted", os.O_WRONLY | os.O_CREAT),
    "append to a file": lambda: _open(TARGETS["secret"], os.O_WRONLY | os.O_APPEND),
    "cut a file": lambda: os.truncate(TARGETS["secret"], 0),
    "make a folder": lambda: os.mkdir(TARGETS["folder"] + "/planted"),
    "remove a file": lambda: os.unlink(TARGETS["secret"]),
    "rename a file": lambda: os.rename(TARGETS["secret"], TARGETS["secret"] + "2"),
    "hard link": lambda: os.link(TARGETS["secret"], TARGETS["secret"] + "2"),
    "symbolic link": lambda: os.symlink(TARGETS["secret"], TARGETS["folder"] + "/link"),
    "change a mode": lambda: os.chmod(TARGETS["secret"], 0o777),
    "internet socket": lambda: socket.socket(socket.AF_INET).close(),
    "unix socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "socket pair": lambda: socket.socketpair() and None,
    "socket in a thread": _socket_in_a_thread,
    "another program": lambda: os.execv("/bin/true", ["true"]),
    "fork": _fork,
    "subprocess": lambda: subprocess.run(["/bin/true"], check=True) and None,
    "signal another": lambda: os.kill(int(TARGETS["pid"]), 0),
    "signal the group of another": lambda: os.killpg(int(TARGETS["pid"]), 0),
    "ptrace": lambda: _syscall(101 if os.uname().machine == "x86_64" else 117, 16, int(TARGETS["pid"])),
    "unshare": lambda: _syscall(272 if os.uname().machine == "x86_64" else 97, 0x10000000),
    "raise its own limit": _raise_limit,
    "change root": lambda: os.chroot("/"),
    "thread": _thread,
    "itself a signal": lambda: os.kill(os.getpid(), 0),
    "open descriptors": _descriptors,
    "environment": lambda: " ".join(sorted(os.environ)),
    "group": lambda: str(os.getpgid(0) == os.getpid() == os.getsid(0)),
    "spin": _spin,
    "sleep": lambda: time.sleep(600),
    "fill memory": lambda: _fill(1 << 24),
    "one block of memory": lambda: bytearray(64 << 30) and None,
    "say too much": lambda: "x" * (3 << 20),
    "crash": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "kill itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
    "hello": lambda: "hello",
}


def write(arguments: dict[str, Any], files: list[int], shared: Any) -> bytes:
    """Write as many bytes as asked to the file that was handed over."""
    for _ in range(arguments["mib"]):
        os.write(files[0], bytes(1 << 20))
    return b"done"


def contents(arguments: dict[str, Any], files: list[int], shared: Any) -> bytes:
    """Report the contents of the files and the shared document, and which of the two files can be reopened."""
    again = []
    for handle in files:
        try:
            _open(f"/proc/self/fd/{handle}")
            again.append("opened")
        except OSError as error:
            again.append(type(error).__name__)
    return repr((b"".join(os.read(handle, 100) for handle in files), len(files), again, shared)).encode()


JOBS: dict[str, Job] = {"attack": attack, "write": write, "contents": contents}


def load_shared(data: bytes) -> str:
    return f"shared {data.decode()}"


def warm_up() -> None:
    """Nothing to warm."""
