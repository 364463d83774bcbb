"""Fusion of several readers' boxes into the reference of an image, for sources without a consensus.

Ways
----
* ``union``: boxes of different readers are one lesion if they overlap by an IoU of at least the threshold, directly or
  through other boxes. The lesion's box surrounds them all. A box that overlaps no other reader's box is also a lesion.
* ``majority``: the lesions of ``union`` that at least two readers drew; a lesion's box is the mean of its boxes.
* ``wbf``: weighted boxes fusion with equal weights (Solovyev, Wang and Gabruseva 2021): one after another, each box
  joins the lesion whose mean box it overlaps most, if the IoU is at least the threshold, and changes this mean.
  Otherwise, the box starts a new lesion. All lesions are kept.

Readers' drawings stay in the record next to the reference. A finding that nobody drew keeps its label. Under
``majority``, a finding that was drawn, but not by two readers at the same location, becomes unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.localization.records import Annotation, Box, LocalizationRecord
from reveal_bench.masks import pack_boxes, tight_box
from reveal_bench.metrics.detection_matching import box_overlaps

Fusion = Literal["union", "majority", "wbf"]
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)


def fuse_readers(records: Iterable[LocalizationRecord], how: Fusion, iou: float = 0.5) -> Iterator[LocalizationRecord]:
    """Return the records; a record without a ground truth gets one that is fused from individual readers' boxes.

    Raises
    ------
    ValueError
        If `how` is unknown, or `iou` is not in (0, 1].
    """
    check_fusion(how, iou)
    return (_fused(record, how, iou) for record in records)


def check_fusion(how: str, iou: float) -> None:
    """Raise ValueError unless `how` and `iou` are valid."""
    if how not in FUSIONS:
        raise ArgumentError("fuse", f"must be one of {', '.join(FUSIONS)}", repr(how))
    if not 0 < iou <= 1:
        raise ArgumentError("fuse_iou", "must be above 0 and at most 1", iou)


def fusion_in_words(how: Fusion, iou: float) -> str:
    """Return the sentence about the fusion for the dataset card.

    Examples
    --------
    >>> fusion_in_words("majority", 0.5)
    'Where the source has no consensus, boxes of single readers were fused: of boxes that overlap by an IoU of 0.5 or \
more the mean, if two readers drew them.'
    """
    overlap = f"overlap by an IoU of {iou:g} or more"
    ways = {
        "union": f"of boxes that {overlap} the box around all of them",
        "majority": f"of boxes that {overlap} the mean, if two readers drew them",
        "wbf": f"of boxes that {overlap} the mean, by weighted boxes fusion with equal weights",
    }
    return f"Where the source has no consensus, boxes of single readers were fused: {ways[how]}."


def _fused(record: LocalizationRecord, how: Fusion, iou: float) -> LocalizationRecord:
    status, missing, made = dict(record.label_status), list(record.missing), []
    for finding in record.label_status:
        drawn = [one for one in record.annotations if one.finding == finding and one.reader == "individual"]
        if not drawn or record.reference(finding) is not None:
            continue
        boxes = fuse_boxes([one.boxes_xywh for one in drawn], how, iou)
        if boxes:
            made.append(_annotation(finding, boxes, record.size))
            status[finding] = 1
            missing = [name for name in missing if name != finding]
        elif finding not in missing:
            status[finding] = None
    return replace(record, label_status=status, missing=tuple(missing), annotations=(*made, *record.annotations))


def agreed_lesions(
    record: LocalizationRecord, readings: Sequence[Mapping[str, Annotation]], at_least: int
) -> dict[str, Annotation]:
    """Return finding -> the lesions that `at_least` readers drew, matched as under ``majority`` with an IoU of 0.5.

    A finding without such a lesion gets an empty annotation, which means absent, if every reader drew it or said that
    it is absent.
    """
    agreed = {}
    for finding in dict.fromkeys(finding for words in readings for finding in words):
        annotations = [words[finding] for words in readings if finding in words]
        drawn = [one.boxes_xywh or filter(None, [one.bbox_xywh]) for one in annotations]
        boxes = fuse_boxes(drawn, "majority", at_least=at_least)
        if boxes:
            agreed[finding] = _annotation(finding, boxes, record.size)
        elif len(annotations) == len(readings):
            agreed[finding] = Annotation(finding, "individual", None)
    return agreed


def _annotation(finding: str, boxes: tuple[Box, ...], size: tuple[int, int]) -> Annotation:
    area = int(pack_boxes([boxes], [size]).areas[0])
    return Annotation(finding, "ground_truth", None, (), tight_box(boxes), len(boxes), area, boxes)


def fuse_boxes(
    readers: Iterable[Iterable[Box]], how: Fusion, iou: float = 0.5, *, at_least: int = 2
) -> tuple[Box, ...]:
    """Return the fused lesions of one finding on one image, as boxes [x, y, width, height].

    Under ``majority``, only lesions that at least `at_least` readers drew are returned.

    Examples
    --------
    >>> fuse_boxes([[(0, 0, 10, 10)], [(2, 0, 10, 10), (50, 50, 5, 5)]], "union")
    ((0.0, 0.0, 12.0, 10.0), (50.0, 50.0, 5.0, 5.0))
    >>> fuse_boxes([[(0, 0, 10, 10)], [(2, 0, 10, 10), (50, 50, 5, 5)]], "majority")
    ((1.0, 0.0, 10.0, 10.0),)
    """
    pairs = [(reader, box) for reader, boxes in enumerate(readers) for box in boxes]
    if not pairs:
        return ()
    boxes: FloatArray = np.array([box for _, box in pairs], np.float64)
    owners = [reader for reader, _ in pairs]
    fused = []
    for members in _by_mean(boxes, iou) if how == "wbf" else _linked(boxes, owners, iou):
        if how == "majority" and len({owners[i] for i in members}) < at_least:
            continue
        own = boxes[members]
        fused.append(tight_box([_box(row) for row in own]) if how == "union" else _box(_mean(own)))
    return tuple(fused)


def _linked(boxes: FloatArray, owners: list[int], iou: float) -> list[list[int]]:
    """Return groups of boxes that overlap across readers, directly or through others, ordered by their first box."""
    n = len(boxes)
    leader = list(range(n))

    def find(i: int) -> int:
        while leader[i] != i:
            i = leader[i]
        return i

    for i in range(n):
        for j in np.flatnonzero(box_overlaps(np.tile(boxes[i], (i, 1)), boxes[:i]) >= iou).tolist():
            if owners[i] != owners[j]:
                first, second = sorted((find(i), find(j)))
                leader[second] = first
    together: dict[int, list[int]] = {}
    for i in range(n):
        together.setdefault(find(i), []).append(i)
    return list(together.values())


def _by_mean(boxes: FloatArray, iou: float) -> list[list[int]]:
    """Return the boxes grouped into lesions: each joins the lesion whose mean box it overlaps most, or starts one."""
    lesions: list[list[int]] = []
    for i, box in enumerate(boxes):
        means = np.array([_mean(boxes[members]) for members in lesions]).reshape(-1, 4)
        overlaps = box_overlaps(np.tile(box, (len(means), 1)), means)
        best = int(np.argmax(overlaps)) if len(means) else -1
        if best >= 0 and overlaps[best] >= iou:
            lesions[best].append(i)
        else:
            lesions.append([i])
    return lesions


def _mean(boxes: FloatArray) -> FloatArray:
    mean: FloatArray = boxes.mean(axis=0)
    return mean


def _box(values: FloatArray) -> Box:
    x, y, width, height = values.tolist()
    return x, y, width, height
