"""Records of detection, which are localization records with other definitions of instances and unknown findings.

An instance is a box of the ground truth as its source draws it, or otherwise a contour. A finding is *unknown* on an
image if its label is missing or uncertain, or if it is present but was not drawn; marks of the finding on that image
are neither right nor wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
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
    """A box [x, y, width, height] in pixels of the full image, and a system's confidence in it, in [0, 1]."""

    box: Box
    score: float


def read_detection_manifest(folder: AnyFolder, split: str) -> DetectionManifest:
    """Read the public manifest of `split`; raises the errors of
    :func:`~reveal_bench.kinds.localization.records.read_manifest`.
    """
    manifest = read_manifest(folder, split)
    return DetectionManifest(**{field.name: getattr(manifest, field.name) for field in fields(manifest)})


def instances(record: LocalizationRecord, finding: str) -> tuple[Box, ...]:
    """Return a box [x, y, width, height] for each instance of a finding in the ground truth of an image."""
    drawn = record.reference(finding)
    if drawn is None or drawn.area_px == 0:
        return ()
    if drawn.boxes_xywh or drawn.bbox_xywh is None:
        return drawn.boxes_xywh
    return (drawn.bbox_xywh,)


def instance_masks(record: LocalizationRecord, finding: str) -> tuple[Rle, ...]:
    """Return a mask for each instance, or the whole mask if its instances were not drawn separately.

    Masks are missing if the source draws only boxes.
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
