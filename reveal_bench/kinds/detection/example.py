"""A made-up benchmark of two images: what a process reads and scores to load and compile all that it takes."""

from __future__ import annotations

from reveal_bench.kinds.detection.records import DetectionManifest
from reveal_bench.kinds.detection.scoring import DetectionRows, score_detections
from reveal_bench.kinds.localization.example import example_images
from reveal_bench.kinds.localization.example import example_upload as localization_upload
from reveal_bench.kinds.localization.records import LocalizationPrediction

__all__ = ["example_rows", "example_upload"]


def example_upload() -> tuple[DetectionManifest, str]:
    """A manifest, and a file with a box, a mask and a point."""
    found, text = localization_upload()
    manifest = DetectionManifest(found.benchmark, found.version, found.split, found.grid, found.findings, found.rows)
    entry = f'{{"image_id": "b", "finding": "{found.findings[0]}", "score": 0.5, '
    lines = [line for line in text.splitlines() if '"score"' in line]
    return manifest, "\n".join([*lines, entry + '"box": [1, 1, 4, 4]}', entry + '"point": [2, 2]}'])


def example_rows() -> list[DetectionRows]:
    """Boxes and masks against boxes."""
    records = example_images(by_box=True)
    findings = tuple(records[0].label_status)
    found = [
        LocalizationPrediction(one.image_id, one.labels[0], box=(1.0, 2.0, 4.0, 4.0), score=0.5) for one in records
    ]
    return [score_detections(found, records, findings=findings)]
