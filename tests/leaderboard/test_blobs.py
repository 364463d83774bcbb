"""Uploads on disk: whole or not at all, under the hash of their content."""

from __future__ import annotations

import hashlib
import io
import stat
from pathlib import Path

import pytest
from reveal_leaderboard.blobs import Blobs, write_durably


def test_a_kept_file_lies_under_its_hash(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    content = b"x" * 3_000_000
    with blobs.receive(io.BytesIO(content)) as incoming:
        path = blobs.keep(incoming)
    assert incoming.sha256 == hashlib.sha256(content).hexdigest()
    assert incoming.size == len(content)
    assert path == blobs.path(incoming.sha256)
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_not_kept_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    with blobs.receive(io.BytesIO(b"refused")):
        pass
    with pytest.raises(OSError, match="network gone"), blobs.receive(Broken()):
        pass
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Broken(io.BytesIO):
    """A stream that breaks."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError("network gone")


def test_sweeping_removes_what_a_killed_server_left(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    with blobs.receive(io.BytesIO(b"kept")) as incoming:
        kept = blobs.keep(incoming)
    (tmp_path / "blobs" / "incoming" / "left").write_bytes(b"half")
    assert blobs.sweep() == 1
    assert kept.exists()


def test_a_durable_write_replaces_whole_files_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "exact.json"
    write_durably(path, b"old")
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
