"""Detections and their rows as arrays, see :mod:`reveal_bench.kinds.canonical`: predictions as in localization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from reveal_bench.kinds.canonical import Arrays, Fields, names_from, require, text_of_names
from reveal_bench.kinds.detection.lint import MOST_ON_IMAGE
from reveal_bench.kinds.detection.records import DetectionManifest
from reveal_bench.kinds.localization.canonical import LocalizationCodec
from reveal_bench.kinds.localization.records import Manifest, ManifestRow

if TYPE_CHECKING:
    from reveal_bench.kinds.detection.scoring import DetectionRows

__all__ = ["DetectionCodec"]


class DetectionCodec(LocalizationCodec):
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

    def manifest_from(self, raw: dict[str, Any]) -> DetectionManifest:
        """A manifest; the rows are by image, in order."""
        rows = {key: ManifestRow(**{**row, "asked": tuple(row["asked"])}) for key, row in raw["rows"].items()}
        return DetectionManifest(**{**raw, "findings": tuple(raw["findings"]), "rows": rows})

    def check_pairs(self, arrays: Arrays, manifest: Manifest) -> None:
        """Raise ValueError unless each detection has a score and a place, and no image has too many of a finding."""
        require(not np.isnan(arrays["score"]).any(), "each detection must have a score")
        require(bool((arrays["cell"] == -1).all()), "no detection may be a cell")
        require(bool((arrays["n_points"] <= 1).all()), "a detection may have one point")
        pairs = arrays["image"].astype(np.int64) * len(manifest.findings) + arrays["finding"]
        most = int(np.unique(pairs, return_counts=True)[1].max(initial=0))
        require(most <= MOST_ON_IMAGE, f"an image may have at most {MOST_ON_IMAGE} detections of a finding")

    def arrays_of_rows(self, rows: DetectionRows) -> Arrays:  # type: ignore[override]
        """Names as text, what was found as indices."""
        names = {"findings": rows.findings, "images": rows.images, "notes": rows.notes, "metrics": rows.metrics()}
        columns = {name: np.asarray(getattr(rows, name), self.rows[name][0]) for name in _columns()}
        return {"text": text_of_names(names), **columns}

    def rows_from(self, arrays: Arrays) -> DetectionRows:  # type: ignore[override]
        """The rows back."""
        from reveal_bench.kinds.detection.scoring import RULES, DetectionRows

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
