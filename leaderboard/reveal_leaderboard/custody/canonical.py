"""Canonical predictions: checked predictions as arrays, the only form in which they reach a process with references.

Conventions
-----------
Images, findings, studies and labels are indices into the public manifest, whose digest is in the file: it can be read
with that manifest alone. Coordinates, scores and probabilities are float64 and pass bit for bit; NaN stands for a score
that was not given. Masks are run lengths in one spelling (:mod:`.runs`); the size of a mask is that of its image.
Predictions are as the linter hands them on, and reading gives equal ones (masks spelt as pycocotools spells them).

The reader trusts nothing: every length, range and sum is checked before use. :mod:`.archive` bounds sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.geometry import Grid, box_centre, is_inside
from reveal_bench.records import LocalizationPrediction, Manifest, ManifestRow
from reveal_bench.study_records import FindingsPrediction, StudyManifest
from reveal_bench.task_records import TaskAnswer, TaskManifest
from reveal_leaderboard.custody.archive import Fields, read_arrays, write_arrays
from reveal_leaderboard.custody.canonical_studies import FINDINGS_FIELDS, findings_arrays, findings_from
from reveal_leaderboard.custody.canonical_tasks import TASKS_FIELDS, answer_arrays, answers_from
from reveal_leaderboard.custody.limits import MOST_MASK_RUNS
from reveal_leaderboard.custody.manifests import AnyManifest, manifest_digest
from reveal_leaderboard.custody.runs import masks_from_text, text_of_masks

__all__ = ["Predictions", "read_canonical", "write_canonical"]

Predictions = Sequence[LocalizationPrediction] | Sequence[FindingsPrediction] | Sequence[TaskAnswer]
Arrays = dict[str, npt.NDArray[Any]]

_SHARED: Fields = {"manifest": ("u1", 1), "line": ("<i8", 1)}
_LOCALIZATION: Fields = {
    **_SHARED,
    "image": ("<u4", 1),
    "finding": ("<u2", 1),
    "n_points": ("<u2", 1),
    "points": ("<f8", 2),
    "cell": ("<i2", 1),
    "has_box": ("|b1", 1),
    "boxes": ("<f8", 2),
    "score": ("<f8", 1),
    "has_mask": ("|b1", 1),
    "mask_offsets": ("<i8", 1),
    "mask_text": ("|u1", 1),
}
_FINDINGS: Fields = {**_SHARED, **FINDINGS_FIELDS}
_TASKS: Fields = {**_SHARED, **TASKS_FIELDS}


def write_canonical(path: Path | BinaryIO, predictions: Predictions, manifest: AnyManifest) -> None:
    """Write checked predictions.

    Raises
    ------
    ValueError
        If they are not of this manifest, or findings predictions give labels and probabilities in turn.
    """
    shared: Arrays = {
        "manifest": np.frombuffer(manifest_digest(manifest), np.uint8),
        "line": np.array([prediction.line for prediction in predictions], np.int64),
    }
    if isinstance(manifest, StudyManifest):
        arrays = shared | findings_arrays(predictions, manifest)  # type: ignore[arg-type]
    elif isinstance(manifest, TaskManifest):
        arrays = shared | answer_arrays(predictions, manifest)  # type: ignore[arg-type]
    else:
        arrays = shared | _localization_arrays(predictions, manifest)  # type: ignore[arg-type]
    if isinstance(path, Path):
        with path.open("wb") as file:
            write_arrays(file, arrays)
    else:
        write_arrays(path, arrays)


def read_canonical(
    path: Path | BinaryIO, manifest: AnyManifest
) -> tuple[LocalizationPrediction, ...] | tuple[FindingsPrediction, ...] | tuple[TaskAnswer, ...]:
    """Read what :func:`write_canonical` wrote; equal to what it was given.

    Raises
    ------
    ValueError
        If anything is not as it must be, or the file is of another manifest.
    """
    fields = {StudyManifest: _FINDINGS, TaskManifest: _TASKS}.get(type(manifest), _LOCALIZATION)
    if isinstance(path, Path):
        with path.open("rb") as file:
            arrays = read_arrays(file, fields)
    else:
        arrays = read_arrays(path, fields)
    if arrays["manifest"].tobytes() != manifest_digest(manifest):
        raise ValueError("the canonical predictions must be of this manifest, got those of another")
    line = arrays["line"]
    _require(bool((line >= 0).all()), "`line` must not be negative")
    if isinstance(manifest, StudyManifest):
        return findings_from(arrays, manifest)
    if isinstance(manifest, TaskManifest):
        return answers_from(arrays, manifest)
    return _localization_from(arrays, manifest)


def _localization_arrays(predictions: Sequence[LocalizationPrediction], manifest: Manifest) -> Arrays:
    images = {image_id: i for i, image_id in enumerate(manifest.rows)}
    findings = {finding: i for i, finding in enumerate(manifest.findings)}
    cells = {cell: i for i, cell in enumerate(Grid(manifest.grid).cells)}
    try:
        image = [images[p.image_id] for p in predictions]
        finding = [findings[p.finding] for p in predictions]
        cell = [-1 if p.cell is None else cells[p.cell] for p in predictions]
    except KeyError as error:
        raise ValueError(f"predictions must be of the manifest's images, findings and cells, got {error}") from None
    text, offsets = text_of_masks([p.mask for p in predictions if p.mask is not None])
    return {
        "image": np.array(image, np.uint32),
        "finding": np.array(finding, np.uint16),
        "n_points": np.array([len(p.points) for p in predictions], np.uint16),
        "points": np.array([point for p in predictions for point in p.points], np.float64).reshape(-1, 2),
        "cell": np.array(cell, np.int16),
        "has_box": np.array([p.box is not None for p in predictions], np.bool_),
        "boxes": np.array([p.box for p in predictions if p.box is not None], np.float64).reshape(-1, 4),
        "score": np.array([np.nan if p.score is None else p.score for p in predictions], np.float64),
        "has_mask": np.array([p.mask is not None for p in predictions], np.bool_),
        "mask_offsets": offsets,
        "mask_text": text,
    }


def _localization_from(arrays: Arrays, manifest: Manifest) -> tuple[LocalizationPrediction, ...]:
    rows, cells = list(manifest.rows.values()), Grid(manifest.grid).cells
    _check_shapes(arrays)
    _require(bool((arrays["image"] < len(rows)).all()), "`image` must be an index into the manifest")
    _require(bool((arrays["finding"] < len(manifest.findings)).all()), "`finding` must be an index into the manifest")
    cell = arrays["cell"]
    _require(bool(((cell >= -1) & (cell < len(cells))).all()), "`cell` must lie in the grid")
    score = arrays["score"]
    _require(bool((np.isnan(score) | ((score >= 0) & (score <= 1))).all()), "`score` must lie in [0, 1]")
    _check_pairs(arrays, manifest, rows)
    sizes = [rows[i].size for i in arrays["image"][arrays["has_mask"]].tolist()]
    offsets = arrays["mask_offsets"]
    masks = iter(masks_from_text(arrays["mask_text"], offsets, sizes, most_runs=MOST_MASK_RUNS))
    points = iter(map(tuple, arrays["points"].tolist()))
    boxes = iter(map(tuple, arrays["boxes"].tolist()))
    found = []
    columns = [arrays[name].tolist() for name in ("image", "finding", "n_points", "cell", "has_box", "score", "line")]
    for image, finding, n_points, cell, has_box, score, line, has_mask in zip(
        *columns, arrays["has_mask"].tolist(), strict=True
    ):
        prediction = LocalizationPrediction(
            rows[image].image_id,
            manifest.findings[finding],
            points=tuple(next(points) for _ in range(n_points)),
            cell=None if cell < 0 else cells[cell],
            box=next(boxes) if has_box else None,
            mask=next(masks) if has_mask else None,
            score=None if score != score else score,
            line=line,
        )
        _check_place(prediction, rows[image])
        found.append(prediction)
    return tuple(found)


def _check_shapes(arrays: Arrays) -> None:
    n = len(arrays["line"])
    for name in ("image", "finding", "n_points", "cell", "has_box", "score", "has_mask"):
        _require(len(arrays[name]) == n, f"`{name}` must have one value per prediction, {n}, got {len(arrays[name])}")
    n_points, n_boxes = int(arrays["n_points"].sum(dtype=np.int64)), int(arrays["has_box"].sum())
    _require(arrays["points"].shape == (n_points, 2), f"`points` must have shape ({n_points}, 2)")
    _require(arrays["boxes"].shape == (n_boxes, 4), f"`boxes` must have shape ({n_boxes}, 4)")


def _check_pairs(arrays: Arrays, manifest: Manifest, rows: Sequence[ManifestRow]) -> None:
    pairs = arrays["image"].astype(np.int64) * len(manifest.findings) + arrays["finding"]
    _require(len(np.unique(pairs)) == len(pairs), "each (image, finding) must be predicted once")
    asked = {i * len(manifest.findings) + manifest.findings.index(f) for i, row in enumerate(rows) for f in row.asked}
    _require(asked.issuperset(pairs.tolist()), "every (image, finding) must be asked for by the manifest")


def _check_place(prediction: LocalizationPrediction, row: ManifestRow) -> None:
    for x, y in prediction.points:
        _require(is_inside(x, y, size=row.size), "`points` must lie inside the image")
    if prediction.box is not None:
        x, y, width, height = prediction.box
        fits = 0 <= x <= x + width <= row.width and 0 <= y <= y + height <= row.height and width > 0 and height > 0
        _require(fits and is_inside(*box_centre(prediction.box), size=row.size), "`boxes` must lie inside the image")
    given = prediction.points or prediction.cell or prediction.box or prediction.mask
    _require(bool(given), "a prediction must hold a point, cell, box or mask")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"canonical predictions: {rule}")
