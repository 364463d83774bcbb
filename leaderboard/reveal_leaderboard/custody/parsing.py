"""Job of the parse child: lint an upload, and write the predictions of a file without errors as arrays.

Nothing here receives a reference. The report depends only on the upload and the public manifest.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.parts import Manifest
from reveal_bench.predictions.limits import LintOptions
from reveal_leaderboard.custody.arrays import load_manifest, read_canonical, write_canonical
from reveal_leaderboard.custody.fork_server import Job
from reveal_leaderboard.custody.limits import BOARD_LIMITS
from reveal_leaderboard.custody.messages import memory_file


def load_shared(data: bytes) -> Manifest:
    """Return the manifest from the JSON of :func:`~reveal_leaderboard.custody.arrays.dump_manifest`."""
    return load_manifest(data)


def parse(arguments: dict[str, Any], files: list[int], manifest: Manifest) -> bytes:
    """Lint the first file; if the report has no errors and there is a second file, write the canonical arrays to it.

    Returns
    -------
    JSON object with the report (without the predictions) and the signs:
    :class:`~reveal_leaderboard.custody.replies.Parsed`
    """
    upload = Path(f"/proc/self/fd/{files[0]}")
    is_other = arguments["is_of_other_version"]
    options = LintOptions(
        allow_missing=arguments["allow_missing"] or is_other,
        leave_out_unknown=is_other,
        whole_split=True,
        limits=BOARD_LIMITS,
        name=arguments["name"],
    )
    kind = KINDS[manifest.kind]
    report = kind.predictions.lint(upload, manifest, options)
    if report.ok and len(files) > 1:
        with os.fdopen(files[1], "wb", closefd=False) as file:
            write_canonical(file, report.predictions, manifest)
    signs = kind.release.signs(report.predictions, manifest) if report.ok else []
    return json.dumps({"report": report.to_document(), "signs": signs}).encode()


JOBS: dict[str, Job] = {"parse": parse}


def warm_up() -> None:
    """Import and compile everything that linting needs, by linting built-in files."""
    import gzip  # noqa: F401 - otherwise every child would import it

    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401
    from PIL import Image, ImageDraw  # noqa: F401

    for kind in KINDS.values():
        manifest, text = kind.predictions.example_upload()
        upload = memory_file(text.encode())
        options = LintOptions(limits=BOARD_LIMITS, name="-")
        report = kind.predictions.lint(Path(f"/proc/self/fd/{upload}"), manifest, options)
        os.close(upload)
        if not report.ok:
            raise RuntimeError(f"the linter refuses its own file: {report.problems}")
        kind.release.signs(report.predictions, manifest)
        canonical = io.BytesIO()
        write_canonical(canonical, report.predictions, manifest)
        if read_canonical(canonical, manifest) != report.predictions:
            raise RuntimeError("canonical predictions are not read back unchanged")
