"""Processes of this machine by ``/proc``: their descendants, and which are still running.

Conventions
-----------
A process is (pid, ticks since the machine's start when it began), so that a number given anew is not taken for it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

Process = tuple[int, str]


def children(pid: int) -> list[int]:
    """Process ids of the children of all threads of `pid`."""
    ids: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                ids += map(int, (task / "children").read_text().split())
    return ids


def descendants(pid: int) -> set[Process]:
    """Return the children of `pid`, and their children."""
    processes: set[Process] = set()
    for child in children(pid):
        began = _began(child)
        if began is not None:
            processes |= {(child, began)} | descendants(child)
    return processes


def leaves(pid: int) -> set[int]:
    """Those that descend from `pid`, itself included, and have no children."""
    below = children(pid)
    return {leaf for child in below for leaf in leaves(child)} if below else {pid}


def is_alive(process: Process) -> bool:
    """Return True if it runs; a process that waits to be reaped does not."""
    return _began(process[0]) == process[1]


def _began(pid: int) -> str | None:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[19] if fields[0] != "Z" else None
    return None
