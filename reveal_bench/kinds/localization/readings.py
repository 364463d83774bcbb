"""What single readers drew on images: masks or boxes of the findings asked, as references and as answers.

Readers are those whom models are compared with ("human benchmark"), and individual readers by their id. What a reader
drew of a finding that is not asked has no part; a finding that is asked and that a reader did not draw is absent there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from reveal_bench.kinds.localization.records import Annotation, LocalizationPrediction, LocalizationRecord
from reveal_bench.masks import encode_mask, pack_regions

__all__ = ["agreed_regions", "drawn_readings", "image_by_reading", "predictions_of_reader"]

Drawn = Mapping[str, Annotation]
"""Finding -> what was drawn of it."""


def drawn_readings(records: Sequence[LocalizationRecord]) -> dict[str, dict[str, Drawn]]:
    """Reader -> image -> what that reader drew of the findings asked; images that a reader left empty are there too."""
    found: dict[str, dict[str, dict[str, Annotation]]] = {}
    for record in records:
        asked = set(record.asked("present"))
        for annotation in record.annotations:
            if annotation.reader == "ground_truth":
                continue
            name = annotation.reader_id or annotation.reader.replace("_", " ")
            of_image = found.setdefault(name, {}).setdefault(record.image_id, {})
            is_drawn = annotation.area_px > 0 and (annotation.rle is not None or annotation.boxes_xywh)
            if annotation.finding in asked and is_drawn:
                of_image[annotation.finding] = annotation
    return {name: dict(images) for name, images in found.items()}


def agreed_regions(size: tuple[int, int], said: Sequence[Drawn], at_least: int) -> Drawn:
    """Finding -> the pixels that at least so many readers drew, where there is one."""
    agreed = {}
    for finding in dict.fromkeys(finding for drawn in said for finding in drawn):
        of_finding = [drawn[finding] for drawn in said if finding in drawn]
        if len(of_finding) < at_least:
            continue
        regions = pack_regions([one.rle or one.boxes_xywh for one in of_finding], [size] * len(of_finding))
        votes = sum(regions.dense(i).astype(np.uint8) for i in range(len(of_finding)))
        mask = np.asarray(votes) >= at_least
        if mask.any():
            agreed[finding] = Annotation(finding, "individual", encode_mask(mask), area_px=int(mask.sum()))
    return agreed


def image_by_reading(record: LocalizationRecord, drawn: Drawn) -> LocalizationRecord:
    """The image with what was drawn as its references."""
    references = tuple(replace(one, reader="ground_truth", reader_id=None) for one in drawn.values())
    return replace(record, annotations=references, missing=())


def predictions_of_reader(record: LocalizationRecord, drawn: Drawn) -> list[LocalizationPrediction]:
    """Masks, and boxes around boxes, as predictions."""
    return [
        LocalizationPrediction(record.image_id, finding, mask=one.rle, box=None if one.rle else one.bbox_xywh)
        for finding, one in drawn.items()
    ]
