"""Uploaded files, stored under the SHA-256 of their content.

A file is written under a temporary name, hashed on the way, flushed to disk and renamed; the folder is flushed too. So
a name that exists always holds the whole content, whatever was killed when. Names given by clients never become paths.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["Blobs", "Incoming", "write_durably"]

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Incoming:
    """A received file that is not stored yet: its temporary path, size and hash."""

    path: Path
    size: int
    sha256: str


class Blobs:
    """The folder of uploaded files."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._incoming = self.folder / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, sha256: str) -> Path:
        """Where the content with this hash lies."""
        return self.folder / sha256[:2] / sha256

    @contextmanager
    def receive(self, stream: BinaryIO) -> Iterator[Incoming]:
        """Copy `stream` to a temporary file, which is gone afterwards unless it was kept."""
        with tempfile.NamedTemporaryFile(dir=self._incoming, delete=False) as file:
            path = Path(file.name)
            try:
                digest = hashlib.sha256()
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
                yield Incoming(path, file.tell(), digest.hexdigest())
            finally:
                path.unlink(missing_ok=True)

    def keep(self, incoming: Incoming) -> Path:
        """Store a received file for good."""
        target = self.path(incoming.sha256)
        target.parent.mkdir(exist_ok=True, mode=0o700)
        _flush_folder(target.parent.parent)
        os.replace(incoming.path, target)
        _flush_folder(target.parent)
        return target

    def sweep(self) -> int:
        """Remove what a killed server left half received; returns how many. Only before serving starts."""
        left = list(self._incoming.iterdir())
        for path in left:
            path.unlink()
        return len(left)


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, readable by its owner only, so that a crash leaves the old content or the new."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".writing-", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        finally:
            Path(file.name).unlink(missing_ok=True)
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
