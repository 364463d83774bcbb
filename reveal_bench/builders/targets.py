"""Where a build works, and how its folders get their names.

A build works in ``.<name>.building`` beside its target: ``parts/`` holds finished rows, ``folder/`` the dataset folder
that is made of them at the end and takes the target's name once it is complete. After a kill, an interruption or
problems with the data the parts stay, so that the same command goes on from there; nothing is ever under the target's
name but a complete folder. Two builds of one target exclude each other by a lock.
"""

from __future__ import annotations

import fcntl
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Workplace", "drop_unused", "in_place", "workplace"]


@dataclass(frozen=True, slots=True)
class Workplace:
    """The working folder of one target."""

    root: Path
    target: Path

    @property
    def parts(self) -> Path:
        """Finished rows."""
        return self.root / "parts"

    @property
    def folder(self) -> Path:
        """The dataset folder while it is written."""
        return self.root / "folder"

    def clear_folder(self) -> None:
        """Start the dataset folder from nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(self.root.stat().st_mode & self.folder.stat().st_mode)


@contextmanager
def workplace(target: Path, mode: int = 0o777) -> Iterator[Workplace]:
    """The locked working folder of `target`; it stays if the block fails and has parts, and is removed otherwise.

    Raises
    ------
    ValueError
        If another process is building the same target.
    """
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    root = target.with_name(f".{target.name}.building")
    root.mkdir(mode=mode, exist_ok=True)
    root.chmod(mode & root.stat().st_mode)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{target} is being built by another process") from None
        place = Workplace(root, target)
        place.clear_folder()
        is_done = False
        try:
            yield place
            is_done = True
        finally:
            if is_done or not any(place.parts.rglob("*.json")):
                shutil.rmtree(root, ignore_errors=True)


@contextmanager
def in_place(places: list[Workplace]) -> Iterator[None]:
    """Rename every finished folder to its target, or none; what stood there is put back if anything fails."""
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(_renamed(place.folder, place.target))
        yield


@contextmanager
def _renamed(new: Path, target: Path) -> Iterator[None]:
    old = None
    if target.exists():
        old = target.with_name(f".{target.name}.replaced-{uuid.uuid4().hex[:8]}")
        target.rename(old)
    try:
        new.rename(target)
        yield
    except BaseException:
        if not new.exists() and target.exists():
            target.rename(new)
        if old is not None:
            old.rename(target)
        raise
    if old is not None:
        shutil.rmtree(old)


def drop_unused(parts: Path, used: set[str]) -> None:
    """Remove the parts of splits that are no longer built."""
    for path in parts.glob("*"):
        if path.name not in used:
            shutil.rmtree(path)
