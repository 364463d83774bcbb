"""The process of a server: one per folder, and all that its libraries write stays below that folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

import typer


def lock_folder(data: Path) -> BinaryIO:
    """Keep a second server from the same folder; the kernel lets go of it when this process ends."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (data / "server.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise typer.BadParameter(f"another server uses {data}", param_hint="--data") from None
    return lock


def live_in(data: Path) -> None:
    """Point everything that libraries write to a folder below `data`, and go there."""
    home = data / "server"
    shutil.rmtree(home, ignore_errors=True)  # what a killed server left
    for name in ("TMPDIR", "GRADIO_TEMP_DIR", "HOME", "HF_HOME", "XDG_CACHE_HOME"):
        folder = home / name.lower()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[name] = str(folder)
    tempfile.tempdir = None  # asked for again from TMPDIR
    os.chdir(home)
