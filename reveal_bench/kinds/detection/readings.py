"""What single readers drew, as detections: each box by itself, and sure."""

from __future__ import annotations

from reveal_bench.kinds.localization.readings import Drawn
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord

__all__ = ["detections_of_reader"]


def detections_of_reader(record: LocalizationRecord, drawn: Drawn) -> list[LocalizationPrediction]:
    """A detection with the score 1 for each box; where a reader drew a mask alone, the mask."""
    found = []
    for finding, one in drawn.items():
        found += [LocalizationPrediction(record.image_id, finding, box=box, score=1.0) for box in one.boxes_xywh]
        if not one.boxes_xywh and one.rle is not None:
            found.append(LocalizationPrediction(record.image_id, finding, mask=one.rle, score=1.0))
    return found
