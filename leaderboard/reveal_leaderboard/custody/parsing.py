"""The jobs of the parse template: lint one upload, and hand on what is clean as arrays.

Nothing here knows that references exist. The report is made of the upload and the public manifest alone.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.localization.records import LocalizationPrediction, Manifest, ManifestRow
from reveal_bench.kinds.tasks.records import TaskManifest
from reveal_bench.masks import empty_rle, pack_masks, rasterize_polygons, union_masks
from reveal_bench.predictions import LintReport, Problem, lint_findings, lint_predictions, lint_tasks
from reveal_leaderboard.custody.arrays import count_codes
from reveal_leaderboard.custody.canonical import read_canonical, write_canonical
from reveal_leaderboard.custody.limits import BOARD_LIMITS, MOST_MASK_RUNS
from reveal_leaderboard.custody.manifests import AnyManifest, load_manifest
from reveal_leaderboard.custody.messages import memory_file
from reveal_leaderboard.custody.template import Job
from reveal_leaderboard.release.fingerprints import tripwires

__all__ = ["JOBS", "load_shared", "parse", "warm_up"]


def load_shared(data: bytes) -> AnyManifest:
    """The manifest, as :func:`~reveal_leaderboard.custody.manifests.dump_manifest` wrote it."""
    return load_manifest(data)


def parse(arguments: dict[str, Any], files: list[int], manifest: AnyManifest) -> bytes:
    """Lint the first file; write canonical arrays to the second, if there is one and the report is clean.

    Returns
    -------
    JSON object of report (as text, without the predictions) and signs (what the tripwires of
    :mod:`reveal_leaderboard.release.fingerprints` say)
    """
    upload = Path(f"/proc/self/fd/{files[0]}")
    is_other = arguments["is_of_other_version"]
    options: dict[str, Any] = {"allow_missing": arguments["allow_missing"] or is_other, "name": arguments["name"]}
    if isinstance(manifest, StudyManifest):
        report = lint_findings(upload, manifest, limits=BOARD_LIMITS, leave_out_unknown=is_other, **options)
    elif isinstance(manifest, TaskManifest):
        report = lint_tasks(upload, manifest, limits=BOARD_LIMITS, **options)
    else:
        report = lint_predictions(upload, manifest, limits=BOARD_LIMITS, leave_out_unknown=is_other, **options)
        report = _check_runs(report)
    if report.ok and len(files) > 1:
        with os.fdopen(files[1], "wb", closefd=False) as file:
            write_canonical(file, report.predictions, manifest)
    signs = tripwires(report.predictions, manifest) if report.ok else []
    return json.dumps({"report": report.to_json(), "signs": signs}).encode()


def _check_runs(report: LintReport) -> LintReport:
    """The report, refused if a mask has more runs than a board takes: what merging them costs must not tell."""
    problems: list[Problem] = []
    for prediction in report.predictions:
        mask = prediction.mask
        if mask is None or len(mask.counts) <= MOST_MASK_RUNS:
            continue
        n_runs = count_codes(mask)
        if n_runs > MOST_MASK_RUNS and len(problems) < BOARD_LIMITS.problems:
            message = f"a mask may have at most {MOST_MASK_RUNS} runs here, got {n_runs}"
            hint = "smooth the mask, or give it at a lower resolution scaled up"
            problems.append(
                Problem("error", report.file, prediction.line, "rle", "rle-runs", str(n_runs), message, hint)
            )
    return replace(report, problems=(*report.problems, *problems), predictions=()) if problems else report


JOBS: dict[str, Job] = {"parse": parse}


def warm_up() -> None:
    """Import and compile all that linting uses, on a file and manifest of its own."""
    import gzip  # noqa: F401 - imported where it is used, which a child would have to do again

    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401
    from PIL import Image, ImageDraw  # noqa: F401

    finding = CHEXLOCALIZE_FINDINGS[0]
    rows = {name: ManifestRow(name, name, "AP", 8, 8, (finding,)) for name in ("a", "b")}
    manifest = Manifest("warm-up", "1", "test", 8, CHEXLOCALIZE_FINDINGS, rows)
    square = rasterize_polygons([[(1, 1), (5, 1), (5, 5)]], (8, 8))
    union_masks(pack_masks([square, empty_rle((8, 8))]))
    rle = json.dumps({"size": list(square.size), "counts": square.counts})
    lines = [
        f'{{"image_id": "a", "finding": "{finding}", "rle": {rle}, "point": [1, 1], "score": 0.5}}',
        f'{{"image_id": "b", "finding": "{finding}", "polygons": [[[1, 1], [5, 1], [5, 5]]]}}',
    ]
    upload = memory_file("\n".join(lines).encode())
    report = lint_predictions(Path(f"/proc/self/fd/{upload}"), manifest, limits=BOARD_LIMITS, name="-")
    os.close(upload)
    if not report.ok:
        raise RuntimeError(f"the linter refuses its own file: {report.problems}")
    tripwires(report.predictions, manifest)
    _round_trip(report.predictions, manifest)
    lint_findings(Path(os.devnull), StudyManifest("warm-up", "1", "test", ("Normal",), ("a",)), limits=BOARD_LIMITS)
    lint_tasks(Path(os.devnull), TaskManifest("warm-up", "1", "test", ()), limits=BOARD_LIMITS)


def _round_trip(predictions: tuple[LocalizationPrediction, ...], manifest: Manifest) -> None:
    import io

    buffer = io.BytesIO()
    write_canonical(buffer, predictions, manifest)
    if read_canonical(buffer, manifest) != predictions:
        raise RuntimeError("canonical predictions do not come back as they were")
