"""bubblewrap around a template, where it is installed and allowed: namespaces of its own, and only its own files.

Conventions
-----------
Inside there is the interpreter, the packages, the folders named, a `/proc` of the few processes inside, and no network
device. Children are forked inside, so they have no other view. Whether it works is tried once per process: containers
often forbid it, and a process that Landlock confines may not mount.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from reveal_leaderboard.confinement import is_inside, program_places

__all__ = ["bubblewrap_works", "wrap"]

_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")
_PROBE_SECONDS = 30


def wrap(command: Sequence[str], *, read: Sequence[Path], write: Sequence[Path]) -> list[str]:
    """`command` inside bubblewrap, with `read` and `write` besides the program's own files."""
    binary = shutil.which("bwrap") or "bwrap"
    wrapped = [binary, "--unshare-all", "--cap-drop", "ALL", "--new-session", "--proc", "/proc", "--dev", "/dev"]
    bound: list[Path] = []
    for name in _SYSTEM:
        place = Path(name)
        if place.is_symlink():
            wrapped += ["--symlink", os.readlink(place), name]
        elif place.exists():
            wrapped += ["--ro-bind", name, name]
            bound.append(place)
    program = [Path(sys.prefix), Path(sys.base_prefix), *program_places()]
    for place in sorted({Path(place) for place in (*program, *read)}):
        if place.exists() and not place.is_relative_to("/dev") and not is_inside(place, bound):
            wrapped += ["--ro-bind", str(place), str(place)]
            bound.append(place)
    for place in write:
        wrapped += ["--bind", str(place), str(place)]
    return [*wrapped, "--chdir", "/", "--", *command]


@functools.cache
def bubblewrap_works() -> bool:
    """Whether the `bwrap` binary is there and may do what is asked of it; tried once."""
    if shutil.which("bwrap") is None:
        return False
    command = wrap([sys.executable, "-I", "-c", "pass"], read=[], write=[])
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PROBE_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
