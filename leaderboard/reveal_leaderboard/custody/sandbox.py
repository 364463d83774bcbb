"""Confine a child process; runs in the child after the fork and before it reads any input.

Conventions
-----------
The steps are, in this order: a separate session, so that a signal reaches the whole process group; death together with
the parent; limits on memory, processor time, file size and descriptors; Landlock, after which only the program's own
files and the named files can be opened; seccomp, after which no socket, program or other process can be reached. Steps
that a platform does not support are skipped, and listed in `Custody.confinement`.

The memory limit is *in addition* to the template's address space, because a fork starts with a copy of this address
space, most of which is reserved and never used. There is no limit on processes, because Linux would count all threads
of the same user, and seccomp refuses new processes.

The seccomp filter allows only listed system calls. All other calls fail with EPERM; nothing is killed. The listed calls
cannot create sockets, files or namespaces, or reach other programs or processes. Some calls are allowed only with
certain arguments: ``clone`` for threads but not processes, ``open`` for reading, signals to the process itself.
``clone3``, whose arguments a filter cannot see, is reported as missing, so that the C library uses ``clone``.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path

from reveal_leaderboard.custody.confinement import confine, landlock_abi, program_places
from reveal_leaderboard.custody.limits import JailLimits
from reveal_leaderboard.custody.seccomp import (
    ALLOW,
    JUMP_BITS,
    JUMP_EQUAL,
    REFUSE,
    Rule,
    argument,
    failing,
    has_seccomp,
    install,
    jump,
    numbers_of,
    only_if_equal,
)

_CLONE_THREAD = 0x00010000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PR_SET_NAME, _PR_SET_VMA = 15, 0x53564D41

# name, number on x86_64, number on aarch64; "-" if the architecture does not have the call
_ALLOWED = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
pwritev 296 70, lseek 8 62, close 3 57, close_range 436 436, dup 32 23, dup2 33 -, dup3 292 24, fcntl 72 25,
fstat 5 80, stat 4 -, lstat 6 -, newfstatat 262 79, statx 332 291, fstatfs 138 44, statfs 137 43, access 21 -,
faccessat 269 48, faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents64 217 61, getcwd 79 17,
ftruncate 77 46, mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, brk 12 214,
mincore 27 232, membarrier 324 283, futex 202 98, futex_waitv 449 449, set_robust_list 273 99,
get_robust_list 274 100, rseq 334 293, set_tid_address 218 96, gettid 186 178, getpid 39 172, getppid 110 173,
getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getpgid 121 155, getsid 124 156,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigtimedwait 128 137, sigaltstack 131 132,
restart_syscall 219 128, exit 60 93, exit_group 231 94, clock_gettime 228 113, clock_getres 229 114,
clock_nanosleep 230 115, nanosleep 35 101, gettimeofday 96 169, time 201 -, times 100 153, getrusage 98 165,
sysinfo 99 179, uname 63 160, getrandom 318 278, getrlimit 97 163, arch_prctl 158 -, sched_yield 24 124,
sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, getcpu 309 168, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72
"""
_CLONE, _CLONE3, _IOCTL, _PRCTL, _PRLIMIT = (56, 220), (435, 435), (16, 29), (157, 167), (302, 261)
_OPEN, _OPENAT, _KILL, _TGKILL = (2, None), (257, 56), (62, 129), (234, 131)


def install_filter() -> str:
    """Permanently restrict this thread and the threads that it starts to the listed calls; return "seccomp", or "none"
    if the system has no seccomp.

    Raises
    ------
    OSError
        If the kernel refuses the filter.
    """
    return install(_rules(os.getpid()), otherwise=REFUSE)


def _rules(pid: int) -> list[Rule]:
    own = only_if_equal([pid])
    reading = [jump(JUMP_BITS, _WRITING, 1, 0), ALLOW, REFUSE]
    return [
        *((numbers, [ALLOW]) for numbers in numbers_of(_ALLOWED)),
        (_CLONE, [argument(0), jump(JUMP_BITS, _CLONE_THREAD, 0, 1), ALLOW, REFUSE]),
        (_CLONE3, [failing(errno.ENOSYS)]),
        (_IOCTL, [failing(errno.ENOTTY)]),
        (_OPEN, [argument(1), *reading]),
        (_OPENAT, [argument(2), *reading]),
        (_KILL, [argument(0), *own]),
        (_TGKILL, [argument(0), *own]),
        (_PRCTL, [argument(0), *only_if_equal([_PR_SET_NAME, _PR_SET_VMA])]),
        # only for reading limits: the pointer to new limits, checked in two halves, must be null
        (_PRLIMIT, [argument(2), jump(JUMP_EQUAL, 0, 1, 0), REFUSE, argument(2, high=True), *only_if_equal([0])]),
    ]


_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_GRACE_SECONDS = 5  # seconds of processor time between the signal that asks a child to end and the signal that kills it


def confinement_here() -> str:
    """Return the confinement of a child on this system, such as "rlimits, landlock-7, seccomp"."""
    parts = ["rlimits"]
    parts += [f"landlock-{abi}"] if (abi := landlock_abi()) else ["no landlock"]
    parts += ["seccomp" if has_seccomp() else "no seccomp"]
    return ", ".join(parts)


def enter_jail(limits: JailLimits, *, template: int, places: Sequence[Path], files: Sequence[int]) -> None:
    """Confine this process permanently.

    Parameters
    ----------
    template : process id of the template, which must still be the parent
    places : folders and files that may be opened for reading, besides the program's own files
    files : descriptors of files that may be opened again for reading

    Raises
    ------
    OSError, RuntimeError
        If a step that this system supports fails.
    """
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # prevents core dumps and debugging
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != template:
        raise RuntimeError("the template is gone")
    _set_limits(limits)
    confine(read=[*program_places(), *places], write=[], files=files, network=False, scoped=True)
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
    """Return the bytes of address space in use."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except PermissionError:  # Landlock allows only the server's own entry of /proc
        return _probed_address_space()


def _probed_address_space() -> int:
    """Return the bytes of address space in use, to within a MiB: the lowest limit that still allows one more page."""
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
