"""Confines a child: run in the child itself, between the fork and the first byte of an upload.

Conventions
-----------
The steps, in this order: a session of its own, so that a signal reaches the whole group; death together with the
parent; limits on memory, processor time, file size and descriptors; Landlock, after which only the program's own files
and the named ones can be opened; seccomp, after which no socket, program or other process can be reached. Parts that a
platform lacks are left out and named in `Custody.confinement`.

The memory limit counts address space *beyond* the template's: a fork starts with a copy of the template's address
space, most of which is reserved and never used. There is no limit on processes: Linux counts all threads of the same
user towards it, and seccomp refuses processes anyway.

The seccomp filter is for children that compute: only listed system calls are allowed, everything else is refused. Calls
not on the list fail with EPERM; nothing is killed. The list contains no way to a socket, another program, another
process, a new name in a folder, or a namespace. Some calls are allowed for some arguments only: ``clone`` makes threads
and no processes, ``open`` reads and never writes, signals reach only the process itself. ``clone3``, whose arguments a
filter cannot see, is reported as missing, so that the C library uses ``clone``.

The filter applies to every later thread and cannot be removed. Numbers of system calls: Linux ``asm/unistd_64.h``
(x86_64) and ``asm-generic/unistd.h`` (aarch64); layout of the program: ``linux/filter.h``, ``linux/seccomp.h``.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from reveal_leaderboard.custody.confinement import confine, landlock_abi, program_places
from reveal_leaderboard.custody.limits import JailLimits

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH of each
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_GET_SECCOMP, _MODE_FILTER = 38, 22, 21, 2
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets into struct seccomp_data
_CLONE_THREAD = 0x00010000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PR_SET_NAME, _PR_SET_VMA = 15, 0x53564D41
_X32 = 0x40000000

# name, number on x86_64, number on aarch64; "-" where the architecture has no such call
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


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def has_seccomp() -> bool:
    """Return True if :func:`install_filter` can work here."""
    known = sys.platform.startswith("linux") and platform.machine() in _ARCHITECTURES and sys.maxsize > 1 << 32
    return known and ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def install_filter() -> str:
    """Restrict this thread, and the threads that it starts, to the list permanently.

    Returns
    -------
    str
        "seccomp", or "none" if this system has none.

    Raises
    ------
    OSError
        If the kernel refuses the filter.
    """
    if not has_seccomp():
        return "none"
    program = b"".join(_instructions(platform.machine(), os.getpid()))
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = _Program(len(program) // 8, program)
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(wanted), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({arguments[0]}) failed: {os.strerror(ctypes.get_errno())}")
    return "seccomp"


def _instructions(machine: str, pid: int) -> list[bytes]:
    column = 0 if machine == "x86_64" else 1
    refuse = _return(_ERRNO | errno.EPERM)
    program = [_load(_ARCH), _jump(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0), refuse, _load(_NUMBER)]
    if column == 0:
        program += [_jump(_JUMP_AT_LEAST, _X32, 0, 1), refuse]
    numbers_here = (entry.split()[1 + column] for entry in _ALLOWED.split(","))
    for allowed in sorted(int(text) for text in numbers_here if text != "-"):
        program += [_jump(_JUMP_EQUAL, allowed, 0, 1), _return(_ALLOW)]
    own = [_jump(_JUMP_EQUAL, pid, 0, 1), _return(_ALLOW), refuse]
    reading = [_jump(_JUMP_BITS, _WRITING, 1, 0), _return(_ALLOW), refuse]
    rules: Sequence[tuple[tuple[int | None, int | None], list[bytes]]] = (
        (_CLONE, [_argument(0), _jump(_JUMP_BITS, _CLONE_THREAD, 0, 1), _return(_ALLOW), refuse]),
        (_CLONE3, [_return(_ERRNO | errno.ENOSYS)]),
        (_IOCTL, [_return(_ERRNO | errno.ENOTTY)]),
        (_OPEN, [_argument(1), *reading]),
        (_OPENAT, [_argument(2), *reading]),
        (_KILL, [_argument(0), *own]),
        (_TGKILL, [_argument(0), *own]),
        (_PRCTL, [_argument(0), _jump(_JUMP_EQUAL, _PR_SET_NAME, 1, 0), *_allow_if_equal(_PR_SET_VMA), refuse]),
        # only to read limits: the pointer to new ones, in two halves, must be null
        (_PRLIMIT, [_argument(2), _jump(_JUMP_EQUAL, 0, 1, 0), refuse, _argument(2, high=True),
                    *_allow_if_equal(0), refuse]),
    )  # fmt: skip
    for numbers, body in rules:
        number = numbers[column]
        if number is not None:  # every path through the body ends in a return
            program += [_jump(_JUMP_EQUAL, number, 0, len(body)), *body]
    return [*program, refuse]


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD, 0, 0, offset)


def _argument(place: int, *, high: bool = False) -> bytes:
    """Load the lower (or higher) half of an argument; both architectures are little-endian."""
    return _load(_ARGUMENTS + 8 * place + (4 if high else 0))


def _jump(kind: int, value: int, if_true: int, if_false: int) -> bytes:
    """Skip `if_true` or `if_false` instructions."""
    return struct.pack("=HBBI", kind, if_true, if_false, value)


def _allow_if_equal(value: int) -> list[bytes]:
    return [_jump(_JUMP_EQUAL, value, 0, 1), _return(_ALLOW)]


def _return(action: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, action)


_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_GRACE_SECONDS = 5  # seconds of processor time between the signal that asks a child to end and the signal that kills it


def confinement_here() -> str:
    """Return the confinement of a child on this system, such as "rlimits, landlock-7, seccomp"."""
    parts = ["rlimits"]
    parts += [f"landlock-{abi}"] if (abi := landlock_abi()) else ["no landlock"]
    parts += ["seccomp" if has_seccomp() else "no seccomp"]
    return ", ".join(parts)


def enter_jail(limits: JailLimits, *, template: int, places: Sequence[Path], files: Sequence[int]) -> None:
    """Give up everything except computing, irreversibly.

    Parameters
    ----------
    template : process id of the template, which must still be the parent
    places : folders and files that may be opened to read, besides the program's own
    files : descriptors whose files may be opened again to read

    Raises
    ------
    OSError, RuntimeError
        If any part that this system has fails.
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
    """Return the bytes of address space in use."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except PermissionError:  # Landlock allows only the server's own entry
        return _probed_address_space()


def _probed_address_space() -> int:
    """Return the bytes of address space in use to within a MiB, found as the lowest limit that still allows one more
    page.
    """
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
