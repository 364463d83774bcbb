"""Rows of a localization dataset: the Features, and record -> row.

The columns are those of :class:`reveal_bench.records.LocalizationRecord`, one row per image. ClassLabel codes are
positions in the benchmark's findings and in `records.READERS`, `records.VIEWS`, `records.SPACING_SOURCES`.
Coordinates are float64: a polygon rounded to float32 no longer fills to the mask that was published with it.

In a *blank* row (the inputs of a holdout) every column that says something about findings is null or empty, and so is
the hash of the source file, which would tell who holds the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reveal_bench.records import READERS, SPACING_SOURCES, VIEWS, Annotation, LocalizationRecord, SalientPoint

if TYPE_CHECKING:
    from datasets import Features

__all__ = ["Row", "blank_row", "localization_features", "localization_row", "row_bytes"]

Row = dict[str, Any]


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


def localization_row(record: LocalizationRecord, findings: Sequence[str], *, embed: bool) -> Row:
    """The row of `record`; without `embed` the picture is left out and `pixel_pipeline` says so.

    Raises
    ------
    ValueError
        If a finding, reader, view or spacing source is outside its vocabulary.
    """
    code = {finding: i for i, finding in enumerate(findings)}
    unknown = (set(record.label_status) ^ set(findings)) | _findings_used(record) - set(findings)
    if unknown:
        raise ValueError(f"`label_status` must have one entry per finding of the benchmark, differs in {unknown}")
    image = {"bytes": record.image, "path": record.image_name} if embed and record.image is not None else None
    return {
        "image": image,
        "image_id": record.image_id,
        "patient_id": record.patient_id,
        "study_id": record.study_id,
        "view": _code(VIEWS, record.view, "view"),
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
        "spacing_source": _code(SPACING_SOURCES, record.spacing_source, "spacing_source"),
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
    }
    return {**row, **empty}


def row_bytes(row: Row) -> int:
    """About how many bytes a row takes in memory; for the sizes of row groups and shards."""
    n_image = len(row["image"]["bytes"]) if row["image"] else 0
    n_counts = sum(len(annotation["rle"]["counts"]) for annotation in row["annotations"] if annotation["rle"])
    n_vertices = sum(len(contour) for annotation in row["annotations"] for contour in annotation["polygons"])
    return 500 + n_image + n_counts + 16 * n_vertices


def _findings_used(record: LocalizationRecord) -> set[str]:
    used = {annotation.finding for annotation in record.annotations} | {point.finding for point in record.points}
    return used | set(record.missing)


def _code(names: Sequence[str], name: str, what: str) -> int:
    if name not in names:
        raise ValueError(f"`{what}` must be one of {', '.join(names)}, got {name!r}")
    return names.index(name)


def _annotation_row(annotation: Annotation, code: dict[str, int]) -> Row:
    rle = annotation.rle
    return {
        "label": code[annotation.finding],
        "reader": _code(READERS, annotation.reader, "reader"),
        "rle": {"size": list(rle.size), "counts": rle.counts} if rle is not None else None,
        "polygons": [[list(point) for point in contour] for contour in annotation.polygons],
        "bbox_xywh": list(annotation.bbox_xywh) if annotation.bbox_xywh is not None else None,
        "n_instances": annotation.n_instances,
        "area_px": annotation.area_px,
    }


def _point_row(point: SalientPoint, code: dict[str, int]) -> Row:
    return {
        "label": code[point.finding],
        "reader": _code(READERS, point.reader, "reader"),
        "x": point.x,
        "y": point.y,
    }
