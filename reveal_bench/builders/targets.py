"""Where a build works, and how its folders get their names.

A build works in ``.<name>.building`` beside its target: ``parts/`` holds finished rows, ``folder/`` the dataset folder
that is made of them at the end and takes the target's name once it is complete. After a kill, an interruption or
problems with the data the parts stay, so that the same command goes on from there; nothing is ever under the target's
name but a complete folder. Two builds of one target exclude each other by a lock.

A build with a holdout has two targets, which change together: what stood under their names waits in ``replaced`` until
both are in place. A build that was killed in between is undone by the next one, which makes the folders again from the
parts that are still there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Workplace", "drop_unused", "replace_targets", "workplace"]


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

    @property
    def replaced(self) -> Path:
        """What stood under the target's name."""
        return self.root / "replaced"

    @property
    def marker(self) -> Path:
        """There while the target is being replaced; says whether something stood there before."""
        return self.root / "replacing.json"

    def undo(self) -> None:
        """Put back what an interrupted replacement left."""
        try:
            had_target = json.loads(self.marker.read_text(encoding="utf-8"))["had_target"]
        except FileNotFoundError:
            return
        if self.replaced.exists():
            if self.target.exists():
                shutil.rmtree(self.target)
            self.replaced.rename(self.target)
        elif not had_target and self.target.exists() and not self.folder.exists():
            shutil.rmtree(self.target)
        self.marker.unlink()

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
    if root.is_symlink() or not root.is_dir() or root.stat().st_uid != os.getuid():
        raise ValueError(f"{root}, where the build would work, must be a folder of your own: remove it")
    root.chmod(mode & root.stat().st_mode)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{target} is being built by another process") from None
        place = Workplace(root, target)
        place.undo()
        shutil.rmtree(place.replaced, ignore_errors=True)  # of a build that was killed while it cleared up
        place.clear_folder()
        is_done = False
        try:
            yield place
            is_done = True
        finally:
            if is_done or not any(place.parts.rglob("*.json")):
                shutil.rmtree(root, ignore_errors=True)


def replace_targets(places: Sequence[Workplace]) -> None:
    """Give every finished folder its target's name, or none of them if anything fails."""
    try:
        for place in places:
            had_target = place.target.exists()
            place.marker.write_text(json.dumps({"had_target": had_target}), encoding="utf-8")
            if had_target:
                place.target.rename(place.replaced)
            place.folder.rename(place.target)
    except BaseException:
        for place in places:
            place.undo()
        raise
    for place in places:  # from here on the folders stand, whatever happens while the parts are removed
        place.marker.unlink()


def drop_unused(parts: Path, used: set[str]) -> None:
    """Remove the parts of splits that are no longer built."""
    for path in parts.glob("*"):
        if path.name not in used:
            shutil.rmtree(path)
