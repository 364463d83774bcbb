"""Landlock: a process gives up its own right to open files, except for a short list.

Conventions
-----------
The web process never needs the holdout, so before the first request it gives up the right to open other files, which
the kernel enforces. :func:`readable_places` lists the files that remain readable: the interpreter, the installed
packages, the operating system's own folders and a few devices. In ``/proc``, only the process's own entry and facts
about the machine are readable, which excludes the command lines of other processes. Landlock restricts opening and
listing, but not `stat`, so the existence of a path remains visible. Landlock applies to the calling thread and
everything that it starts later, so it must be set while the process has one thread.

The children of :mod:`reveal_leaderboard.custody` have a shorter list (:func:`program_places`) and, with Landlock 4 or
later, no TCP. With Landlock 6 or later, neither servers nor children can send signals to other processes or connect to
their abstract sockets. :mod:`reveal_leaderboard.custody.server` adds what Landlock does not cover.

Source: Linux ``Documentation/userspace-api/landlock.rst``; system call numbers are the same on every architecture.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import stat
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_TCP, _ABI_OF_TCP = (1 << 0) | (1 << 1), 4  # bind, connect
_SCOPES, ABI_OF_SCOPES = (1 << 0) | (1 << 1), 6  # abstract sockets of, and signals to, other processes

RESOLVER = ("/run/systemd/resolve", "/run/resolvconf")  # possible targets of the link /etc/resolv.conf
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/sys/devices/system", "/sys/fs/cgroup", *RESOLVER)
PROC = ("self", "cpuinfo", "meminfo", "stat", "loadavg", "uptime", "filesystems", "sys")
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
PACKAGES = ("reveal_bench", "reveal_leaderboard")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _layout_ = "ms"  # default with `_pack_`, but required from Python 3.19
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def landlock_abi() -> int:
    """Return the Landlock version (ABI) of the kernel; 0 without Landlock."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def readable_places() -> list[Path]:
    """Return the files and folders that a server may read besides its data and the public benchmarks.

    The list does *not* contain the whole import path, which may include a checkout or the current folder with a holdout
    beside the code. It contains only the folders of installed packages and of this project's two packages.
    """
    places = [Path(name) for name in (*SYSTEM, sys.prefix, sys.base_prefix)]
    places += [Path("/proc") / name for name in PROC] + [Path("/dev") / name for name in DEVICES]
    return _distinct([*places, *_program()])


def program_places() -> list[Path]:
    """Return the files that a child process needs: the interpreter, installed packages and shared libraries."""
    places = [Path(name) for name in LIBRARIES] + [Path("/dev") / name for name in DEVICES]
    return _distinct([*places, *_program()])


def _program() -> list[Path]:
    places = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places += [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return places


def _distinct(places: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(place.resolve() if "proc" not in place.parts else place for place in places))


def count_threads() -> int:
    """Return the number of this process's threads.

    The number is from `stat`, which Landlock allows even where listing a folder is refused.
    """
    return os.stat("/proc/self/task").st_nlink - 2


def is_inside(path: Path, places: Iterable[Path]) -> bool:
    """Return True if `path` is one of `places` or below one of them."""
    resolved = Path(path).resolve()
    return any(resolved.is_relative_to(place.resolve()) for place in places)


def confine(
    *,
    read: Sequence[Path],
    write: Sequence[Path],
    files: Sequence[int] = (),
    network: bool = True,
    scoped: bool = False,
) -> str:
    """Permanently give up opening files, except for reading below `read`, and for reading and writing below `write`.

    Parameters
    ----------
    files : file descriptors whose files may be opened again, to read
    network : False to give up TCP as well, if the kernel supports this
    scoped : True to give up signals to other processes and their abstract sockets as well, if the kernel supports this

    Returns
    -------
    str
        "landlock-<ABI>", or "none" where the kernel has no Landlock.

    Raises
    ------
    RuntimeError
        If the process has more than one thread, since the other threads would stay unconfined.
    """
    abi = landlock_abi()
    if abi == 0:
        return "none"
    n_threads = count_threads()
    if n_threads != 1:
        raise RuntimeError(f"`confine` must be called while the process has one thread, got {n_threads}")
    rights = _RIGHTS_BY_ABI[min(abi, max(_RIGHTS_BY_ABI))]
    attributes = _Ruleset(rights, 0, 0)
    if not network and abi >= _ABI_OF_TCP:
        attributes.network = _TCP
    if scoped and abi >= ABI_OF_SCOPES:
        attributes.scoped = _SCOPES
    size = ctypes.sizeof(ctypes.c_uint64) * (3 if attributes.scoped else 2 if attributes.network else 1)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for handle in files:
            _allow_handle(ruleset, handle, _READ_FILE)
        for place in read:
            _allow(ruleset, place, _READ & rights)
        for place in (*write, Path("/dev/null")):
            _allow(ruleset, place, rights & ~_IOCTL)
        if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return f"landlock-{abi}"


CHILDREN_GAPS = (
    "children that open uploads can read holdouts and vaults (there is neither Landlock nor bubblewrap)",
    "children that open uploads can start programs and reach the network (no seccomp)",
)


def children_gaps(summary: str) -> list[str]:
    """Return a sentence for each gap that a confinement such as "rlimits, no landlock" leaves for children."""
    parts = summary.split(", ")
    gaps = []
    if not any(part == "bubblewrap" or part.startswith("landlock-") for part in parts):
        gaps.append(CHILDREN_GAPS[0])
    if "seccomp" not in parts:
        gaps.append(CHILDREN_GAPS[1])
    return gaps


def _allow(ruleset: int, place: Path, rights: int) -> None:
    try:
        handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the path does not exist
    try:
        _allow_handle(ruleset, handle, rights)
    finally:
        os.close(handle)


def _allow_handle(ruleset: int, handle: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        rights &= _ON_FILES
    rule = _PathBeneath(rights, handle)
    _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    answer = int(_libc().syscall(number, *arguments))
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock system call {number} failed: {os.strerror(ctypes.get_errno())}")
    return answer
