"""Find every file under a folder, archives as their members.

Zip archives (suffix ``.zip``) are looked into, archives within archives are not. Hidden files and unfinished downloads
are passed over. Links are followed as long as they stay within the folder, and each folder is visited once. Only
regular files are ever opened: reading from a pipe would wait for ever, reading from a device never end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from reveal_bench.dicom.files import NO_REGULAR_FILE, DicomError, DicomFile, archive_at

__all__ = ["walk"]

MAX_MEMBERS = 1_000_000
"""Largest number of files in one archive that is looked into."""

_UNFINISHED = (".part", ".partial", ".crdownload", ".download", ".aria2", ".tmp", "~")

Entries = list[tuple[DicomFile, str]]
"""Files, each with a reason."""


def walk(root: Path, aside: Entries, unreadable: Entries) -> Iterator[DicomFile]:
    """Every file below `root` that may be opened, in no order.

    Parameters
    ----------
    aside : list
        Grows by what is not opened: links that lead out of `root`, and what is no regular file.
    unreadable : list
        Grows by what cannot be listed, and by links that lead nowhere.
    """

    def note(error: OSError) -> None:
        unreadable.append((DicomFile(Path(error.filename)), error.strerror or type(error).__name__))

    real_root, seen = root.resolve(), set()
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=note):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            subfolders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        subfolders[:] = [
            name
            for name in subfolders
            if not _is_passed_over(name) and not _leads_out(Path(folder, name), real_root, aside)
        ]
        for path in (Path(folder, name) for name in names if not _is_passed_over(name)):
            if _leads_out(path, real_root, aside) or not _is_regular(path, aside, unreadable):
                continue
            if path.name.lower().endswith(".zip"):
                yield from _members(path, unreadable)
            else:
                yield DicomFile(path)


def _leads_out(path: Path, real_root: Path, aside: Entries) -> bool:
    """Whether it is a link to a place that is not below the folder. Then that is noted."""
    if not path.is_symlink():
        return False  # the folder it lies in was looked at before
    try:
        is_out = not path.resolve().is_relative_to(real_root)
    except (OSError, RuntimeError):  # links that lead to one another
        return False
    if is_out:
        aside.append((DicomFile(path), "a link that leads out of the folder"))
    return is_out


def _is_regular(path: Path, aside: Entries, unreadable: Entries) -> bool:
    """Whether it is a file with bytes of its own. If not, that is noted."""
    try:
        is_regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        unreadable.append((DicomFile(path), "no such file"))
        return False
    except OSError as error:
        unreadable.append((DicomFile(path), error.strerror or type(error).__name__))
        return False
    if not is_regular:
        aside.append((DicomFile(path), NO_REGULAR_FILE))
    return is_regular


def _members(path: Path, unreadable: Entries) -> Iterator[DicomFile]:
    try:
        names = [name for name in archive_at(path).NameToInfo if not name.endswith("/")]
    except DicomError as error:
        unreadable.append((DicomFile(path), str(error)))
        return
    except OSError as error:
        unreadable.append((DicomFile(path), error.strerror or type(error).__name__))
        return
    if len(names) > MAX_MEMBERS:
        unreadable.append((DicomFile(path), f"holds {len(names):,} files; at most {MAX_MEMBERS:,} are read"))
        return
    for name in names:
        if not any(_is_passed_over(part) for part in name.split("/")):
            yield DicomFile(path, name)


def _is_passed_over(name: str) -> bool:
    return name.startswith((".", "__MACOSX")) or name.lower().endswith(_UNFINISHED)
