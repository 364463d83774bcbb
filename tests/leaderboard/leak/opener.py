"""Run hostile code in a confined process and report the files it could open; copied to a folder the server may read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from reveal_leaderboard.custody.fork_client import TemplateService
from reveal_leaderboard.custody.limits import JailLimits
from reveal_leaderboard.custody.messages import JobRequest

LIMITS = JailLimits(memory=256 << 20, cpu_seconds=5, wall_seconds=30.0, file_bytes=1 << 20)


def opened(files: Mapping[str, str], scratch: Path, modules: Path, *, places: Sequence[str] = ()) -> dict[str, str]:
    """Return name -> "done" or the error for every file, in confined processes whose request names `places`.

    Parameters
    ----------
    modules : folder with ``hostile.py``, the code that opens the files
    """
    jail = TemplateService("hostile", scratch, lanes=1, limits=LIMITS, paths=[modules], wrapped=False)
    results = {}
    try:
        for name, path in files.items():
            targets = {"secret": path, "folder": str(Path(path).parent), "pid": str(os.getpid())}
            arguments = {"name": "open the holdout", "targets": targets}
            ended, answer = jail.run(JobRequest("attack", arguments, LIMITS, places=tuple(places)))
            results[name] = (answer or b"").decode() if ended.code == 0 else f"ended with {ended.code}"
    finally:
        jail.close()
    return results
