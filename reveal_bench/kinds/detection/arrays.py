"""Conversion of detections and their scored rows to arrays (:mod:`reveal_bench.kinds.arrays`), and marks of detections.

Predictions are stored as in localization. In marks, the score is part of an answer, because it decides which detections
count. Items are rounded locations with scores in tenths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from reveal_bench.kinds.arrays import Arrays, Fields, Marks, exact, names_from, require, text_of_names
from reveal_bench.kinds.detection.lint import MOST_ON_IMAGE
from reveal_bench.kinds.detection.records import DetectionManifest
from reveal_bench.kinds.detection.scoring import DetectionRows, score_detections
from reveal_bench.kinds.localization.arrays import (
    ImageCodec,
    case_answer,
    case_items,
    example_images,
    manifest_fields,
    signs_of,
)
from reveal_bench.kinds.localization.arrays import example_upload as localization_upload
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction
from reveal_bench.kinds.parts import override
from reveal_bench.metrics.detection_matching import RULES


class DetectionCodec(ImageCodec[DetectionManifest, DetectionRows]):
    """Boxes, masks and points, each with a score."""

    rows: ClassVar[Fields] = {
        "text": ("|u1", 1),
        "known": ("|b1", 2),
        "lesion_image": ("<u4", 1),
        "lesion_finding": ("<u2", 1),
        "lesion_share": ("<f8", 1),
        "mark_image": ("<u4", 1),
        "mark_finding": ("<u2", 1),
        "mark_score": ("<f8", 1),
        "mark_hit": ("<i4", 2),
        "mask_hit": ("<i4", 1),
        "mask_iou": ("<f8", 1),
        "thresholds": ("<f8", 1),
    }

    @override
    def manifest_from(self, raw: dict[str, Any]) -> DetectionManifest:
        """Return the manifest, whose rows are by image id, in order."""
        return DetectionManifest(**manifest_fields(raw))

    @override
    def check_pairs(self, arrays: Arrays, manifest: DetectionManifest) -> None:
        """Raise ValueError unless each detection has a score and a location, and no image has too many of a finding."""
        require(not np.isnan(arrays["score"]).any(), "each detection must have a score")
        require(bool((arrays["cell"] == -1).all()), "no detection may be a cell")
        require(bool((arrays["n_points"] <= 1).all()), "a detection may have one point")
        pairs = arrays["image"].astype(np.int64) * len(manifest.findings) + arrays["finding"]
        most = int(np.unique(pairs, return_counts=True)[1].max(initial=0))
        require(most <= MOST_ON_IMAGE, f"an image may have at most {MOST_ON_IMAGE} detections of a finding")

    @override
    def arrays_of_rows(self, rows: DetectionRows) -> Arrays:
        """Return the arrays of rows: names as text, lesions and detections as indices."""
        names = {"findings": rows.findings, "images": rows.images, "notes": rows.notes, "metrics": rows.metrics()}
        columns = {name: np.asarray(getattr(rows, name), self.rows[name][0]) for name in _columns()}
        return {"text": text_of_names(names), **columns}

    @override
    def rows_from(self, arrays: Arrays) -> DetectionRows:
        """Rebuild the rows."""
        names = names_from(arrays["text"])
        findings, images = tuple(names["findings"]), tuple((image, patient) for image, patient in names["images"])
        limits = {"image": len(images), "finding": len(findings)}
        for name in ("lesion", "mark"):
            n = len(arrays[f"{name}_image"])
            for part, limit in limits.items():
                column = arrays[f"{name}_{part}"]
                if len(column) != n or (n and int(column.max()) >= limit):
                    raise ValueError(f"`{name}_{part}` must be {n} indices below {limit}")
        shapes = {
            "known": (len(images), len(findings)),
            "lesion_share": (len(arrays["lesion_image"]),),
            "mark_score": (len(arrays["mark_image"]),),
            "mark_hit": (len(RULES), len(arrays["mark_image"])),
            "mask_iou": (len(arrays["mask_hit"]),),
            "thresholds": (len(findings),),
        }
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise ValueError(f"`{name}` must have shape {shape}, got {arrays[name].shape}")
        if len(arrays["mask_hit"]) not in (0, len(arrays["mark_image"])):
            raise ValueError(f"`mask_hit` must be empty, or have shape ({len(arrays['mark_image'])},)")
        for name in ("mark_hit", "mask_hit"):
            if not ((arrays[name] >= -1) & (arrays[name] < len(arrays["lesion_image"]))).all():
                raise ValueError(f"`{name}` must be indices of lesions, or -1")
        wide = {"lesion_image", "lesion_finding", "mark_image", "mark_finding"}
        columns: dict[str, Any] = {
            name: arrays[name].astype(np.int64) if name in wide else arrays[name] for name in _columns()
        }
        return DetectionRows(findings, images, **columns, notes=tuple(names["notes"]))


def _columns() -> Sequence[str]:
    return [name for name in DetectionCodec.rows if name != "text"]


MANY = 20
"""Mean number of detections of a finding per image from which a file looks like a search for the references."""


def marks_of_detections(
    predictions: Sequence[LocalizationPrediction], manifest: ImageManifest, thresholds: float | Mapping[str, float]
) -> Marks:
    """Return the location and score of each detection, in a fixed order; items are rounded."""
    answers = sorted(([*case_answer(p), exact(p.score or 0.0)] for p in predictions), key=repr)
    return Marks([tuple(answer) for answer in answers], set(case_items(predictions, manifest)))


def signs_of_detections(predictions: Sequence[LocalizationPrediction], manifest: ImageManifest) -> list[str]:
    """Return signs of probing: those of localization, very many detections per image, and nearly constant scores."""
    signs = signs_of(predictions, manifest)
    pairs = Counter((p.image_id, p.finding) for p in predictions)
    if pairs and len(predictions) >= MANY * len(pairs):
        signs.append(f"{MANY} detections or more of a finding on an image, on average.")
    if len(predictions) >= MANY and len({p.score for p in predictions}) <= 2:
        signs.append("All detections have one or two scores.")
    return signs


def example_upload() -> tuple[DetectionManifest, str]:
    """Return (manifest, file): the file has a box, a mask and a point."""
    image_manifest, text = localization_upload()
    manifest = DetectionManifest(
        image_manifest.benchmark,
        image_manifest.version,
        image_manifest.split,
        image_manifest.grid,
        image_manifest.findings,
        image_manifest.rows,
    )
    entry = f'{{"image_id": "b", "finding": "{image_manifest.findings[0]}", "score": 0.5, '
    lines = [line for line in text.splitlines() if '"score"' in line]
    return manifest, "\n".join([*lines, entry + '"box": [1, 1, 4, 4]}', entry + '"point": [2, 2]}'])


def example_rows() -> list[DetectionRows]:
    """Return example rows of boxes and masks, scored against boxes."""
    records = example_images(by_box=True)
    findings = tuple(records[0].label_status)
    predictions = [
        LocalizationPrediction(one.image_id, one.labels[0], box=(1.0, 2.0, 4.0, 4.0), score=0.5) for one in records
    ]
    return [score_detections(predictions, records, findings=findings)]
