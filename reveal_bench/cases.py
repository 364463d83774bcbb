"""What is scored: the pairs of an image and a finding, each with its reference.

There is a case per pair whose ground truth is not empty. A reference is a mask, or the boxes that the source drew where
it drew no mask.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reveal_bench.boxes import Box
from reveal_bench.masks import Rle, empty_rle
from reveal_bench.records import LocalizationRecord

__all__ = ["Case", "Reference", "list_cases"]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a prediction is compared with.

    Attributes
    ----------
    size : (height, width) of the image
    region : mask, or the boxes whose union it is
    box : around the boxes; None for a mask, whose tight box shows when it is decoded
    """

    size: tuple[int, int]
    region: Rle | tuple[Box, ...]
    box: Box | None = None

    @property
    def is_mask(self) -> bool:
        """Whether masks can be compared with it."""
        return isinstance(self.region, Rle)

    @property
    def weight(self) -> int:
        """What it takes to unpack it: characters of its run-length string, or columns of its boxes."""
        return len(self.region.counts) if isinstance(self.region, Rle) else sum(int(box[2]) for box in self.region)


Case = tuple[LocalizationRecord, str, Reference]


def list_cases(records: Sequence[LocalizationRecord], predicted_masks: Collection[tuple[str, str]] = ()) -> list[Case]:
    """(record, finding, reference) of every case, in the order of the records.

    Parameters
    ----------
    records : references; ground truth only is used
    predicted_masks : (image_id, finding) pairs that are cases, with an empty mask, even where nothing is drawn; not
        where a finding is present but was not drawn, and not where the source draws boxes alone

    Raises
    ------
    ValueError
        If an image is listed twice, or a reference is neither a mask nor boxes.
    """
    cases: list[Case] = []
    seen: set[str] = set()
    also = set() if _draws_boxes_alone(records) else set(predicted_masks)
    for record in records:
        if record.image_id in seen:
            raise ValueError(f"`records` must name each image once, got {record.image_id!r} twice")
        seen.add(record.image_id)
        present = set(record.asked("present"))
        for finding in record.label_status:
            if finding in present:
                cases.append((record, finding, _reference(record, finding)))
            elif (record.image_id, finding) in also and finding not in record.missing:
                cases.append((record, finding, Reference(record.size, empty_rle(record.size))))
    return cases


def _draws_boxes_alone(records: Sequence[LocalizationRecord]) -> bool:
    drawn = [a for record in records for a in record.annotations if a.reader == "ground_truth" and a.area_px > 0]
    return bool(drawn) and all(annotation.rle is None for annotation in drawn)


def _reference(record: LocalizationRecord, finding: str) -> Reference:
    annotation = record.reference(finding)
    if annotation is not None and annotation.rle is not None:
        return Reference(annotation.rle.size, annotation.rle)
    if annotation is None or annotation.bbox_xywh is None or not annotation.boxes_xywh:
        raise ValueError(f"the reference of ({record.image_id}, {finding}) must be a mask or boxes, got none")
    return Reference(record.size, annotation.boxes_xywh, annotation.bbox_xywh)
