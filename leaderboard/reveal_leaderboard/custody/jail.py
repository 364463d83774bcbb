"""How a child gives up its rights, in the child itself, between the fork and the first byte from a stranger.

Conventions
-----------
In this order: own session, so that a signal reaches the whole group; death with the parent; limits of memory, processor
time, file size and descriptors; Landlock, after which only the program's own files and those named can be opened; and
seccomp, after which there is no way to a socket, a program or another process. What a platform lacks is left out, and
said in `Custody.confinement`.

The limit of memory is on address space *beyond* that of the template: a fork begins with its template's, most of which
is reserved and never used. There is no limit on processes: Linux counts threads of the same user towards it, wherever
they run, and seccomp refuses processes anyway.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path

from reveal_leaderboard.confinement import confine, landlock_abi, program_places
from reveal_leaderboard.custody.limits import JailLimits
from reveal_leaderboard.custody.seccomp import has_seccomp, install_filter

__all__ = ["confinement_here", "enter_jail"]

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_GRACE_SECONDS = 5  # of processor time between the signal that ends a child and the one that nothing survives


def confinement_here() -> str:
    """What holds a child on this system, such as "rlimits, landlock-7, seccomp"."""
    parts = ["rlimits"]
    parts += [f"landlock-{abi}"] if (abi := landlock_abi()) else ["no landlock"]
    parts += ["seccomp" if has_seccomp() else "no seccomp"]
    return ", ".join(parts)


def enter_jail(limits: JailLimits, *, template: int, places: Sequence[Path], files: Sequence[int]) -> None:
    """Give up everything but computing; cannot be undone.

    Parameters
    ----------
    template : process id of the template, which must still be the parent
    places : folders and files that may be opened to read, besides the program's own
    files : descriptors whose files may be opened again to read

    Raises
    ------
    OSError, RuntimeError
        If any part that this system has does not hold.
    """
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no memory image, no debugger
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != template:
        raise RuntimeError("the template is gone")
    _set_limits(limits)
    confine(read=[*program_places(), *places], write=[], files=files, network=False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files))
    install_filter()


def _set_limits(limits: JailLimits) -> None:
    memory, seconds = _address_space() + limits.memory, limits.cpu_seconds
    for what, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, seconds, seconds + _GRACE_SECONDS),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
    ):
        allowed = resource.getrlimit(what)[1]
        if allowed != resource.RLIM_INFINITY:
            soft, hard = min(soft, allowed), min(hard, allowed)
        resource.setrlimit(what, (soft, hard))


def _address_space() -> int:
    """Bytes of address space in use."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except PermissionError:  # Landlock knows the server's own entry alone
        return _probed_address_space()


def _probed_address_space() -> int:
    """The same, to a MiB: the least limit under which one more page can be had."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 47 if before[0] == resource.RLIM_INFINITY else before[0]
    try:
        while high - low > 1 << 20:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, before[1]))
            try:
                mmap.mmap(-1, resource.getpagesize()).close()
                high = middle
            except (OSError, MemoryError):
                low = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    return high
