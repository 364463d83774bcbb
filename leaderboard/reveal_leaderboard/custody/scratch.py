"""Scratch folders that end with their process, whatever ends it.

Conventions
-----------
A process that lives holds a lock (flock) on its folder, of which the kernel lets go when the process is no more. So a
folder of this module's name that nobody locks was left by one that was killed, and the next to start removes it. A
number of a process would not do: it is given again, and says nothing in another container that shares the place.

Nothing is removed but folders of this name, of the same user, directly in the place; links are not followed. Where the
file system knows no such locks, nothing is removed at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PREFIX", "remove_abandoned", "scratch_folder"]

PREFIX = "reveal-scratch-"

log = logging.getLogger(__name__)


@contextlib.contextmanager
def scratch_folder(place: Path | None = None) -> Iterator[Path]:
    """A folder for all that this process writes for a while; what killed processes left beside it is removed first.

    Until the block ends, Python's temporary files go there, too, unless they are told another place.

    Parameters
    ----------
    place : where to make it; the system's folder for temporary files (``TMPDIR``) unless given
    """
    place = Path(tempfile.gettempdir() if place is None else place)
    for left in remove_abandoned(place):
        log.info("removed %s, which a killed process had left", left.name)
    folder, lock = _locked_folder(place)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned(place: Path) -> list[Path]:
    """Remove the scratch folders in `place` whose processes are gone; returns those removed."""
    removed = []
    for folder in sorted(place.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):  # a lock that is held; no folder; not ours to open
            handle = _open(folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle).st_uid == os.geteuid() and _is_at(folder, handle):
                    shutil.rmtree(folder)
                    removed.append(folder)
            finally:
                os.close(handle)
    return removed


def _locked_folder(place: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock, which no program that is started inherits."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place.absolute()))
        with contextlib.suppress(FileNotFoundError):
            handle = _open(folder)
            if _is_locked(folder, handle) and _is_at(folder, handle):
                return folder, handle
            os.close(handle)  # somebody took it for an abandoned one before it was locked


def _is_locked(folder: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked (%s): it stays if this process is killed", folder.name, error.strerror)
    return True


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: Path, handle: int) -> bool:
    """Whether `folder` is what was opened, and still there."""
    try:
        found = os.stat(folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(handle))
