"""Assemble and install seccomp filters, which allow or refuse system calls.

Conventions
-----------
A filter is a list of rules. A rule has the number of a system call and instructions, every path of which ends in a
return. Calls without a rule get the filter's default. A refused call fails with EPERM; nothing is killed. A filter
applies to the calling thread and everything that it starts later, and cannot be removed. Calls of other architectures
(32-bit, x32) are refused.

The filter programs are short, so they are assembled here. The packages on PyPI need the system library libseccomp
(LGPL), which knows a new system call only if the library is recent enough.

Source: numbers of system calls from Linux ``asm/unistd_64.h`` (x86_64) and ``asm-generic/unistd.h`` (aarch64); layout
of the program from ``linux/filter.h`` and ``linux/seccomp.h``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable

Numbers = tuple[int | None, int | None]
"""A system call's numbers on x86_64 and on aarch64; None if the architecture does not have the call."""
Rule = tuple[Numbers, list[bytes]]

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH of each
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_GET_SECCOMP, _MODE_FILTER = 38, 22, 21, 2
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
JUMP_EQUAL, JUMP_AT_LEAST, JUMP_BITS = 0x15, 0x35, 0x45
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets into struct seccomp_data
_X32 = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def failing(error: int) -> bytes:
    """Return the instruction that makes a call fail with `error`."""
    return _instruction(_RETURN, 0x00050000 | error)


ALLOW = _instruction(_RETURN, 0x7FFF0000)
REFUSE = failing(errno.EPERM)


def argument(place: int, *, high: bool = False) -> bytes:
    """Return the instruction that loads the lower or higher half of an argument; both architectures are
    little-endian.
    """
    return _instruction(_LOAD, _ARGUMENTS + 8 * place + (4 if high else 0))


def keep_bits(mask: int) -> bytes:
    """Return the instruction that clears all bits of the loaded value that are not in `mask`."""
    return _instruction(_AND, mask)


def jump(kind: int, value: int, if_true: int, if_false: int) -> bytes:
    """Return the instruction that compares the loaded value with `value` and skips `if_true` or `if_false`
    instructions.
    """
    return _instruction(kind, value, if_true, if_false)


def only_if_equal(values: Iterable[int]) -> list[bytes]:
    """Return instructions that allow the call if the loaded value is one of `values`, and otherwise refuse it."""
    return [word for value in values for word in (jump(JUMP_EQUAL, value, 0, 1), ALLOW)] + [REFUSE]


def numbers_of(table: str) -> list[Numbers]:
    """Return the numbers from a table such as "read 0 63, dup2 33 -": name, number on x86_64, number on aarch64."""
    rows = (entry.split() for entry in table.split(","))
    return [(_number(x86_64), _number(aarch64)) for _, x86_64, aarch64 in rows]


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def has_seccomp() -> bool:
    """Return True if this system supports :func:`install`."""
    known = sys.platform.startswith("linux") and platform.machine() in _ARCHITECTURES and sys.maxsize > 1 << 32
    return known and ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def install(rules: Iterable[Rule], *, otherwise: bytes) -> str:
    """Permanently filter the system calls of this thread and of everything that it starts.

    Parameters
    ----------
    otherwise : instruction for calls without a rule: :data:`ALLOW` or :data:`REFUSE`

    Returns
    -------
    str
        "seccomp", or "none" if this system has no seccomp.

    Raises
    ------
    OSError
        If the kernel refuses the filter.
    """
    if not has_seccomp():
        return "none"
    program = _assemble(platform.machine(), rules, otherwise)
    libc = ctypes.CDLL(None, use_errno=True)
    installed = _Program(len(program) // 8, program)
    for words in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(installed), 0, 0)):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({words[0]}) failed: {os.strerror(ctypes.get_errno())}")
    return "seccomp"


def _assemble(machine: str, rules: Iterable[Rule], otherwise: bytes) -> bytes:
    column = 0 if machine == "x86_64" else 1
    program = [_instruction(_LOAD, _ARCH), jump(JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0), REFUSE]
    program.append(_instruction(_LOAD, _NUMBER))
    if column == 0:
        program += [jump(JUMP_AT_LEAST, _X32, 0, 1), REFUSE]
    for numbers, body in rules:
        number = numbers[column]
        if number is not None:
            program += [jump(JUMP_EQUAL, number, 0, len(body)), *body]
    return b"".join([*program, otherwise])
