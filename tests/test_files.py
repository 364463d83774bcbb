"""Files that are complete or absent: what reaches the disk, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reveal_bench.files import write_whole


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(call, path at the time) of every flush and rename."""
    noted: list[tuple[str, str]] = []
    flush, rename = os.fsync, os.replace

    def noted_flush(handle: int) -> None:
        noted.append(("flush", os.readlink(f"/proc/self/fd/{handle}")))
        flush(handle)

    def noted_rename(old: Path, new: Path) -> None:
        noted.append(("rename", str(new)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_flush)
    monkeypatch.setattr(os, "replace", noted_rename)
    return noted


@pytest.mark.parametrize("durable", [False, True])
def test_data_is_flushed_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, calls: list[tuple[str, str]], durable: bool
) -> None:
    path = tmp_path / "new" / "folder" / "a.json"
    write_whole(path, "{}", durable=durable, single_writer=True)
    in_place = [("flush", f"{path.parent}/.writing-a.json"), ("rename", str(path))]
    assert calls == in_place + ([("flush", str(path.parent))] if durable else [])
