"""Cases of localization: an image, a finding that is present in it, and the mask or boxes of its reference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box, Rle, empty_rle


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference of a case, with which a prediction is compared.

    Attributes
    ----------
    size : (height, width) of the image
    region : the mask, or the boxes whose union is the reference
    box : box around the boxes; None for a mask, whose tight box is computed when it is decoded
    """

    size: tuple[int, int]
    region: Rle | tuple[Box, ...]
    box: Box | None = None

    @property
    def is_mask(self) -> bool:
        """True if masks can be compared with this reference."""
        return isinstance(self.region, Rle)

    @property
    def weight(self) -> int:
        """The cost of unpacking the region: characters of its run-length string, or columns of its boxes."""
        return len(self.region.counts) if isinstance(self.region, Rle) else sum(int(box[2]) for box in self.region)


Case = tuple[LocalizationRecord, str, Reference]


def list_cases(records: Sequence[LocalizationRecord]) -> list[Case]:
    """Return (record, finding, reference) of every case with a ground truth, in the order of the records.

    Raises
    ------
    ValueError
        If an image is listed twice, or a reference is neither a mask nor boxes.
    """
    return list(each_case(records, ()))


def each_case(records: Iterable[LocalizationRecord], also: Collection[tuple[str, str]]) -> Iterator[Case]:
    """Yield the cases; pairs (image_id, finding) in `also` without a drawing are cases with an empty reference."""
    seen: set[str] = set()
    for record in records:
        if record.image_id in seen:
            raise ArgumentError("records", "must name each image once", f"{record.image_id!r} twice")
        seen.add(record.image_id)
        present = set(record.asked("present"))
        for finding in record.label_status:
            if finding in present:
                yield record, finding, _reference(record, finding)
            elif (record.image_id, finding) in also and finding not in record.missing:
                yield record, finding, Reference(record.size, empty_rle(record.size))


def draws_boxes_alone(records: Sequence[LocalizationRecord]) -> bool:
    """Return True if the references are boxes, without any mask."""
    drawn = [a for record in records for a in record.annotations if a.reader == "ground_truth" and a.area_px > 0]
    return bool(drawn) and all(annotation.rle is None for annotation in drawn)


def _reference(record: LocalizationRecord, finding: str) -> Reference:
    annotation = record.reference(finding)
    if annotation is not None and annotation.rle is not None:
        return Reference(annotation.rle.size, annotation.rle)
    if annotation is None or annotation.bbox_xywh is None or not annotation.boxes_xywh:
        raise ValueError(f"the reference of ({record.image_id}, {finding}) must be a mask or boxes, got none")
    return Reference(record.size, annotation.boxes_xywh, annotation.bbox_xywh)
