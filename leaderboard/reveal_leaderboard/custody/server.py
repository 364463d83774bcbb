"""Confine a web server by Landlock (files) and by a seccomp filter for everything that Landlock does not cover.

Conventions
-----------
A server never needs the holdout. So before the first request it gives up the ability to reach the holdout, in case an
attacker takes over the server. Landlock covers opening, creating and renaming files, debugging other processes and,
from Linux 6.12, signals and abstract sockets. The seccomp filter allows everything except a list of system calls:

* sockets other than internet sockets, because another program of the same user, such as a session bus or a container
  engine, could read the holdout on the server's behalf. Pairs of connected Unix sockets remain allowed. If the database
  is at a Unix socket, all Unix sockets remain allowed, since a filter cannot see a path;
* changes of a mode, owner or attribute by path. Changes by an open descriptor are allowed, because Landlock decides
  which files can be opened;
* namespaces and mounts, if the kernel has Landlock. Without Landlock, bubblewrap needs them to confine the server's
  children;
* watching files, which would show when a worker opens a file of the holdout;
* memory, limits and priorities of other processes, io_uring, keys, BPF, and parts of the kernel that no server needs.

What the system cannot prevent is listed as *gaps*, for the log and ``/readyz``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from socket import AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, SOCK_SEQPACKET, SOCK_STREAM
from typing import Any

from reveal_leaderboard.custody.confinement import ABI_OF_SCOPES, confine, landlock_abi
from reveal_leaderboard.custody.seccomp import (
    ALLOW,
    JUMP_BITS,
    JUMP_EQUAL,
    REFUSE,
    Rule,
    argument,
    failing,
    install,
    jump,
    keep_bits,
    numbers_of,
    only_if_equal,
)

# name, number on x86_64, number on aarch64; "-" if the architecture does not have the call
_REFUSED = """
chmod 90 -, fchmodat 268 53, fchmodat2 452 452, chown 92 -, lchown 94 -, fchownat 260 54, setxattr 188 5,
lsetxattr 189 6, setxattrat 463 463, removexattr 197 14, lremovexattr 198 15, removexattrat 466 466,
file_setattr 469 469, truncate 76 45, open_by_handle_at 304 265, fanotify_init 300 262,
inotify_add_watch 254 27,
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
process_mrelease 448 448, pidfd_getfd 438 438, pidfd_send_signal 424 424, kcmp 312 272, setpriority 141 140,
ioprio_set 251 30, sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274,
sched_setaffinity 203 122, move_pages 279 239, migrate_pages 256 238,
io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
keyctl 250 219, add_key 248 217, request_key 249 218, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282,
shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semtimedop 220 192, semctl 66 191,
msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181,
kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106,
swapon 167 224, swapoff 168 225, reboot 169 142, acct 163 89, syslog 103 116, quotactl 179 60, quotactl_fd 443 443,
iopl 172 -, ioperm 173 -, modify_ldt 154 -
"""
_NAMESPACES = """
unshare 272 97, setns 308 268, mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429,
fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, open_tree 428 428, open_tree_attr 467 467,
mount_setattr 442 442
"""
_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
_PRLIMIT, _IOCTL = (302, 261), (16, 29)
_CLONE_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
_SOCKET_TYPE = 0xF  # the other bits of the type are flags
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # these requests insert input into the terminal, which the worker may share

NO_LANDLOCK = "this kernel has no Landlock: only file permissions keep the server from its user's other files"
NO_SCOPES = "this kernel lets the server send signals to its user's other processes; Linux 6.12 and later prevent this"
NO_SECCOMP = (
    "this system has no seccomp: the server can connect to Unix sockets, create namespaces, and change the modes of "
    "its user's files"
)
UNIX_DATABASE = (
    "the database is at a Unix socket, so the server can also connect to other Unix sockets: use a "
    "host address for the database, such as localhost"
)
AS_ROOT = "the server runs as root"
GAPS = (NO_LANDLOCK, NO_SCOPES, NO_SECCOMP, UNIX_DATABASE, AS_ROOT)


@dataclass(frozen=True)
class ServerConfinement:
    """Confinement of a server: a short text such as "landlock-7, seccomp", and a sentence for each gap."""

    summary: str
    gaps: tuple[str, ...]


def confine_server(*, read: Sequence[Path], write: Sequence[Path], database: str) -> ServerConfinement:
    """Permanently give up access to everything that a server does not need.

    Parameters
    ----------
    read, write : paths that remain readable, and paths that remain readable and writable
    database : URL of the database; if it is at a Unix socket, Unix sockets remain allowed

    Raises
    ------
    RuntimeError
        If the process has more than one thread, since the other threads would stay unconfined.
    """
    has_unix_sockets = is_at_unix_socket(database)
    landlock = confine(read=read, write=write, scoped=True)
    seccomp = install(_rules(has_unix_sockets, has_namespaces=landlock == "none"), otherwise=ALLOW)
    if seccomp != "none":  # libraries that copy a file also copy its mode
        os.chmod = _chmod_by_descriptor
    holds = (
        (landlock == "none", NO_LANDLOCK),
        (landlock_abi() < ABI_OF_SCOPES, NO_SCOPES),
        (seccomp == "none", NO_SECCOMP),
        (has_unix_sockets and seccomp != "none", UNIX_DATABASE),
        (os.geteuid() == 0, AS_ROOT),
    )
    parts = ("no landlock" if landlock == "none" else landlock, "no seccomp" if seccomp == "none" else seccomp)
    return ServerConfinement(", ".join(parts), tuple(sentence for is_open, sentence in holds if is_open))


def is_at_unix_socket(database: str) -> bool:
    """Return True if the PostgreSQL database at a URL is reached through a Unix socket, which is libpq's default.

    Host and address that the URL lacks are taken from the environment. A host with a `hostaddr` is reached at this
    address, by TCP.
    """
    from sqlalchemy import make_url

    url = make_url(database)
    if url.get_backend_name() != "postgresql":
        return False
    query, environ = url.normalized_query, os.environ
    hosts = ",".join(query.get("host", ())) or url.host or environ.get("PGHOST", "")
    addresses = ",".join(query.get("hostaddr", ())) or environ.get("PGHOSTADDR", "")
    places = zip_longest(hosts.split(","), addresses.split(","), fillvalue="")
    return any(not address and (not host or host[0] in "/@") for host, address in places)


def _rules(has_unix_sockets: bool, *, has_namespaces: bool) -> list[Rule]:
    families = [AF_INET, AF_INET6, AF_NETLINK, *([AF_UNIX] if has_unix_sockets else [])]
    rules: list[Rule] = [(numbers, [REFUSE]) for numbers in numbers_of(_REFUSED)]
    if not has_namespaces:
        rules += [(numbers, [REFUSE]) for numbers in numbers_of(_NAMESPACES)]
        rules.append((_CLONE, [argument(0), jump(JUMP_BITS, _CLONE_NAMESPACES, 0, 1), REFUSE, ALLOW]))
        rules.append((_CLONE3, [failing(errno.ENOSYS)]))  # a filter cannot see its flags; the C library then uses clone
    if not has_unix_sockets:  # a pair of datagram sockets can send to any other socket
        pair = [argument(1), keep_bits(_SOCKET_TYPE), *only_if_equal([SOCK_STREAM, SOCK_SEQPACKET])]
        rules.append((_SOCKETPAIR, pair))
    rules.append((_SOCKET, [argument(0), *only_if_equal(families)]))
    rules.append((_PRLIMIT, [argument(0), *only_if_equal([0])]))  # only for the process itself
    terminal = [jump(JUMP_EQUAL, _TIOCSTI, 1, 0), jump(JUMP_EQUAL, _TIOCLINUX, 0, 1), REFUSE, ALLOW]
    rules.append((_IOCTL, [argument(1), *terminal]))
    return rules


def _chmod_by_descriptor(path: Any, mode: int, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> None:
    """Change a file's mode like :func:`os.chmod`, but by a descriptor of the opened file."""
    if isinstance(path, int):
        os.fchmod(path, mode)
        return
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a named pipe would wait for its writer
    handle = os.open(path, flags if follow_symlinks else flags | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        os.fchmod(handle, mode)
    finally:
        os.close(handle)
