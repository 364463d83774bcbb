"""Rows of a localization dataset: the Features, and record -> row.

The columns are those of :class:`reveal_bench.kinds.localization.records.LocalizationRecord`, one row per image.
ClassLabel codes are positions in the benchmark's findings and in `records.READERS`, `records.VIEWS`,
`records.SPACING_SOURCES`. Coordinates are float64: a polygon rounded to float32 no longer fills to the mask that was
published with it.

In a *blank* row (the inputs of a holdout) every column that says something about findings is null or empty, and so is
the hashes of file and pixels, which would tell who holds the file.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reveal_bench.kinds.images import SPACING_SOURCES, VIEWS
from reveal_bench.kinds.localization.records import READERS, Annotation, LocalizationRecord, SalientPoint
from reveal_bench.kinds.rows import Row, code_of
from reveal_bench.masks import Rle, decode_mask

if TYPE_CHECKING:
    from datasets import Features

__all__ = ["MEANINGS", "blank_row", "localization_features", "localization_row", "mask_features", "mask_rows"]

MEANINGS = {
    "label_status": "per finding 1 present, 0 absent, -1 uncertain, null unlabelled",
    "annotations": (
        "per finding and reader: mask (COCO run lengths), contours (x, y), tight box, instances drawn, area, boxes as "
        "the source draws them"
    ),
    "points": "most representative point (x, y) of a finding, per reader",
    "missing": "findings that are present but were not drawn: unknown masks, not empty ones",
}
"""Column -> what it means, on the card; those that other kinds have too are in `dataset/card_tables.py`."""


def localization_features(findings: Sequence[str]) -> Features:
    """Features of the config `localization` for a vocabulary of findings."""
    from datasets import ClassLabel, Features, Image, List, Value

    label = ClassLabel(names=list(findings))
    reader = ClassLabel(names=list(READERS))
    return Features(
        {
            "image": Image(),
            "image_id": Value("string"),
            "patient_id": Value("string"),
            "study_id": Value("string"),
            "view": ClassLabel(names=list(VIEWS)),
            "view_raw": Value("string"),
            "width": Value("int32"),
            "height": Value("int32"),
            "labels": List(label),
            "label_status": {finding: Value("int8") for finding in findings},
            "annotations": List(
                {
                    "label": label,
                    "reader": reader,
                    "rle": {"size": List(Value("int32"), length=2), "counts": Value("string")},
                    "polygons": List(List(List(Value("float64"), length=2))),
                    "bbox_xywh": List(Value("float64"), length=4),
                    "n_instances": Value("int32"),
                    "area_px": Value("int64"),
                    "boxes_xywh": List(List(Value("float64"), length=4)),
                    "reader_id": Value("string"),
                }
            ),
            "points": List({"label": label, "reader": reader, "x": Value("float64"), "y": Value("float64")}),
            "missing": List(label),
            "source_sha256": Value("string"),
            "pixel_sha256": Value("string"),
            "pixel_pipeline": Value("string"),
            "spacing_mm": List(Value("float64"), length=2),
            "spacing_source": ClassLabel(names=list(SPACING_SOURCES)),
        }
    )


def localization_row(record: LocalizationRecord, findings: Sequence[str]) -> Row:
    """The row of `record`; where it has no image, `pixel_pipeline` says that pixels are withheld.

    Raises
    ------
    ValueError
        If a finding, reader, view or spacing source is outside its vocabulary.
    """
    code = {finding: i for i, finding in enumerate(findings)}
    unknown = (set(record.label_status) ^ set(findings)) | _findings_used(record) - set(findings)
    if unknown:
        raise ValueError(f"`label_status` must have one entry per finding of the benchmark, differs in {unknown}")
    image = {"bytes": record.image, "path": record.image_name} if record.image is not None else None
    return {
        "image": image,
        "image_id": record.image_id,
        "patient_id": record.patient_id,
        "study_id": record.study_id,
        "view": code_of(VIEWS, record.view, "view"),
        "view_raw": record.view_raw,
        "width": record.width,
        "height": record.height,
        "labels": sorted(code[finding] for finding in record.labels),
        "label_status": {finding: record.label_status[finding] for finding in findings},
        "annotations": [_annotation_row(annotation, code) for annotation in record.annotations],
        "points": [_point_row(point, code) for point in record.points],
        "missing": [code[finding] for finding in record.missing],
        "source_sha256": record.source_sha256,
        "pixel_sha256": record.pixel_sha256,
        "pixel_pipeline": record.pixel_pipeline if image is not None else "withheld",
        "spacing_mm": list(record.spacing_mm) if record.spacing_mm is not None else None,
        "spacing_source": code_of(SPACING_SOURCES, record.spacing_source, "spacing_source"),
    }


def blank_row(row: Row) -> Row:
    """`row` as an input without references: nothing of its findings and no hash of its source file."""
    empty: Row = {
        "labels": [],
        "label_status": None,
        "annotations": [],
        "points": [],
        "missing": [],
        "source_sha256": None,
        "pixel_sha256": None,
    }
    return {**row, **empty}


def mask_features(findings: Sequence[str]) -> Features:
    """Features of the config `masks`, which is there to be looked at: a picture per image and finding."""
    from datasets import ClassLabel, Features, Image, Value

    label = ClassLabel(names=list(findings))
    return Features({"image_id": Value("string"), "label": label, "mask": Image(mode="L")})


def mask_rows(record: LocalizationRecord, findings: Sequence[str]) -> list[Row]:
    """The ground-truth masks of an image as PNG pictures of its size, 255 where the finding is and 0 elsewhere."""
    rows = []
    for annotation in record.annotations:
        if annotation.reader != "ground_truth" or annotation.rle is None or annotation.area_px == 0:
            continue
        picture = {"bytes": _mask_png(annotation.rle), "path": f"{record.image_id}_{annotation.finding}.png"}
        label = code_of(findings, annotation.finding, "label")
        rows.append({"image_id": record.image_id, "label": label, "mask": picture})
    return sorted(rows, key=lambda row: row["label"])


def _mask_png(rle: Rle) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(decode_mask(rle)).convert("L").save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _findings_used(record: LocalizationRecord) -> set[str]:
    used = {annotation.finding for annotation in record.annotations} | {point.finding for point in record.points}
    return used | set(record.missing)


def _annotation_row(annotation: Annotation, code: dict[str, int]) -> Row:
    rle = annotation.rle
    return {
        "label": code[annotation.finding],
        "reader": code_of(READERS, annotation.reader, "reader"),
        "rle": {"size": list(rle.size), "counts": rle.counts} if rle is not None else None,
        "polygons": [[list(point) for point in contour] for contour in annotation.polygons],
        "bbox_xywh": list(annotation.bbox_xywh) if annotation.bbox_xywh is not None else None,
        "n_instances": annotation.n_instances,
        "area_px": annotation.area_px,
        "boxes_xywh": [list(box) for box in annotation.boxes_xywh],
        "reader_id": annotation.reader_id,
    }


def _point_row(point: SalientPoint, code: dict[str, int]) -> Row:
    return {
        "label": code[point.finding],
        "reader": code_of(READERS, point.reader, "reader"),
        "x": point.x,
        "y": point.y,
    }
