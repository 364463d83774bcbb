"""Records of detection are images of localization; instances and unknown findings are defined differently.

An instance is a box of the ground truth as its source draws it, or a contour. Whether a finding is on an image is
*unknown* where its label is missing or uncertain, and where it is present but was not drawn: nothing that a model marks
there is right or wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reveal_bench.kinds.folder import AnyFolder
from reveal_bench.kinds.localization.records import Box, ImageManifest, LocalizationRecord, read_manifest
from reveal_bench.masks import Rle, rasterize_polygons


@dataclass(frozen=True)
class DetectionManifest(ImageManifest):
    """The questions of a split: every finding of every image."""

    kind: ClassVar[str] = "detection"


@dataclass(frozen=True, slots=True)
class ScoredBox:
    """A box [x, y, width, height] in pixels of the full image, and how sure a system is of it, in [0, 1]."""

    box: Box
    score: float


def read_detection_manifest(folder: AnyFolder, split: str) -> DetectionManifest:
    """Read the public manifest of `split`; raises as :func:`~reveal_bench.kinds.localization.records.read_manifest`."""
    manifest = read_manifest(folder, split)
    return DetectionManifest(
        manifest.benchmark, manifest.version, split, manifest.grid, manifest.findings, manifest.rows
    )


def instances(record: LocalizationRecord, finding: str) -> tuple[Box, ...]:
    """Return boxes [x, y, width, height] of a finding on an image, one for each instance that the ground truth has."""
    drawn = record.reference(finding)
    if drawn is None or drawn.area_px == 0:
        return ()
    if drawn.boxes_xywh or drawn.bbox_xywh is None:
        return drawn.boxes_xywh
    return (drawn.bbox_xywh,)


def instance_masks(record: LocalizationRecord, finding: str) -> tuple[Rle, ...]:
    """Return masks of the instances: of each contour, or the whole mask where its instances were not drawn apart.

    None where the source draws boxes alone.
    """
    drawn = record.reference(finding)
    if drawn is None or drawn.area_px == 0 or drawn.rle is None:
        return ()
    if len(drawn.polygons) > 1 and len(drawn.polygons) == len(drawn.boxes_xywh):
        return tuple(rasterize_polygons([contour], record.size) for contour in drawn.polygons)
    return (drawn.rle,)


def is_known(record: LocalizationRecord, finding: str) -> bool:
    """Return True if the references locate the finding on an image, or say that it is absent."""
    status = record.label_status[finding]
    return status == 0 or (status == 1 and finding not in record.missing and bool(instances(record, finding)))
