"""Messages between a template and its client: packets with open files over a Unix socket.

Conventions
-----------
A request consists of one or more packets, each with some of the files; the first byte of a packet says whether it is
the last. The files are, in order: the pipe for the answer, the pipe for the exit status, the request as JSON, the
shared document (empty if there is none), and the files of the job. Only this package writes the JSON; the only value in
it that a sender chooses is the displayed name of a file.
"""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reveal_leaderboard.custody.limits import JailLimits

TOO_LARGE = 70
"""Exit code of a child that ran out of memory or file space."""

_FILES_AT_ONCE = 200  # the kernel passes at most 253 files per packet
_MORE, _LAST = b"m", b"l"
_ONE = array.array("i").itemsize


@dataclass(frozen=True)
class JobRequest:
    """A request to run a job in a child.

    Attributes
    ----------
    job : key of the job in the template's module
    arguments : plain JSON values
    places : folders and files that the child may open for reading
    reopened : number of the request's files, counted from the first, that the child may open again by ``/proc/self/fd``
    shared : digest of the shared document, or ""
    """

    job: str
    arguments: dict[str, Any]
    limits: JailLimits
    places: tuple[str, ...] = ()
    reopened: int = 0
    shared: str = ""

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> JobRequest:
        """Return the request from its fields as plain JSON values."""
        return cls(**{**raw, "limits": JailLimits(**raw["limits"]), "places": tuple(raw["places"])})


@dataclass(frozen=True)
class ExitStatus:
    """How a child ended.

    Attributes
    ----------
    code : exit code, or the negative number of a signal
    timed_out : whether the template killed the child because its time was up
    peak_bytes : peak memory, including memory shared with the template
    seconds : time from the fork to the end
    """

    code: int
    timed_out: bool
    peak_bytes: int
    seconds: float


def send_files(control: socket.socket, files: Sequence[int]) -> None:
    """Send one request's files."""
    for start in range(0, len(files), _FILES_AT_ONCE):
        part = files[start : start + _FILES_AT_ONCE]
        word = _LAST if start + len(part) == len(files) else _MORE
        control.sendmsg([word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", part))])


def receive_files(control: socket.socket) -> list[int]:
    """Receive one request's files, in order; an empty list if the other end is closed."""
    files: list[int] = []
    word = _MORE
    while word == _MORE:
        word, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(_FILES_AT_ONCE * _ONE), socket.MSG_CMSG_CLOEXEC)
        if not word:
            return []
        for _, kind, data in ancillary:
            if kind == socket.SCM_RIGHTS:
                part = array.array("i")
                part.frombytes(data[: len(data) // _ONE * _ONE])
                files += part
    return files


def memory_file(data: bytes) -> int:
    """Return the descriptor of an unnamed file in memory that contains `data`."""
    handle = os.memfd_create("reveal", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    return handle
