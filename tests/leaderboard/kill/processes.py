"""Processes of this machine by ``/proc``: who descends from whom, and who is still there.

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
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> set[Process]:
    """All that `pid` started, and what those started."""
    found: set[Process] = set()
    for child in children(pid):
        began = _began(child)
        if began is not None:
            found |= {(child, began)} | descendants(child)
    return found


def leaves(pid: int) -> set[int]:
    """Those that descend from `pid`, itself included, and have no children."""
    below = children(pid)
    return {leaf for child in below for leaf in leaves(child)} if below else {pid}


def is_alive(process: Process) -> bool:
    """Whether it runs; one that only waits to be reaped does not."""
    return _began(process[0]) == process[1]


def _began(pid: int) -> str | None:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[19] if fields[0] != "Z" else None
    return None
