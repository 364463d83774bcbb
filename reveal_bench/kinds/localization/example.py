"""A made-up benchmark of two images: what a process reads and scores to load and compile all that it takes."""

from __future__ import annotations

import json

import numpy as np

from reveal_bench.arrays import BoolArray
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.records import (
    Annotation,
    LocalizationPrediction,
    LocalizationRecord,
    Manifest,
    ManifestRow,
)
from reveal_bench.kinds.localization.scoring import CaseRows, score_localization
from reveal_bench.masks import empty_rle, encode_mask, pack_masks, rasterize_polygons, union_masks

__all__ = ["example_images", "example_rows", "example_upload"]


def example_upload() -> tuple[Manifest, str]:
    """A manifest, and a file with a mask as run lengths, one as a contour, and a point."""
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
    return manifest, "\n".join(lines)


def example_images(*, by_box: bool = False) -> list[LocalizationRecord]:
    """Two images with a finding, drawn as a mask or as a box."""
    finding, box = CHEXLOCALIZE_FINDINGS[0], (1.0, 2.0, 4.0, 4.0)
    rle, boxes = (None, (box,)) if by_box else (encode_mask(_mask()), ())
    drawn = Annotation(finding, "ground_truth", rle, (), box, 1, 16, boxes)
    status = dict.fromkeys(CHEXLOCALIZE_FINDINGS, 0) | {finding: 1}
    return [LocalizationRecord(name, name, name, "AP", 8, 12, status, annotations=(drawn,)) for name in ("a", "b")]


def example_rows() -> list[CaseRows]:
    """Points, boxes and masks against masks, and against boxes."""
    finding, mask = CHEXLOCALIZE_FINDINGS[0], encode_mask(_mask())
    predictions = [
        LocalizationPrediction("a", finding, points=((1.0, 1.0),), box=(1.0, 2.0, 4.0, 4.0), mask=mask),
        LocalizationPrediction("b", finding, mask=mask),
    ]
    both = (example_images(by_box=by_box) for by_box in (False, True))
    return [score_localization(predictions, images, findings=CHEXLOCALIZE_FINDINGS) for images in both]


def _mask() -> BoolArray:
    mask = np.zeros((12, 8), np.bool_)
    mask[2:6, 1:5] = True
    return mask
