"""SIIM-ACR Pneumothorax: masks of pneumothorax on images of NIH ChestX-ray14.

Source: Kaggle, SIIM-ACR Pneumothorax Segmentation: ``train-rle.csv`` (or ``stage_2_train.csv``) with the columns
``ImageId`` and `` EncodedPixels`` (with a space before it in the former), and DICOM files nested by UIDs in
``dicom-images-train/<study>/<series>/<image>.dcm``.

Conventions
-----------
* Every picture is 1024 x 1024 pixels. A mask is a list of pairs *gap length*: the number of pixels to skip after the
  previous run, and the number of foreground pixels. Pixels are counted column by column from the top left. ``-1`` means
  no pneumothorax.
* An image may have several rows, one per region drawn; its mask is their union, and `n_instances` counts them.
* There is one finding, "Pneumothorax", which is present if the image has a mask, else absent.
* Image ids are UIDs that the challenge published. If the pictures are present, images with the same PatientID in the
  header get the same `patient_id`: the id of the first of these images. Otherwise `patient_id` repeats the image id.
* The view is read from the header. The pixel spacing in the header refers to the original image before downscaling, so
  records have no spacing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reveal_bench.dicom.header import Header
from reveal_bench.findings import SIIM_FINDINGS
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box, PackedMasks, Rle, union_masks
from reveal_bench.masks.relative_runs import MaskError, decode_relative
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    NIH_SIDE,
    NO_PATIENTS,
    BoxRow,
    Faults,
    annotate_mask,
    dicom_headers,
    find_file,
    nih_record,
    read_table,
)
from reveal_bench.sources.source import Extra
from reveal_bench.tables import columns_of
from reveal_bench.words import count_text

PUBLISHED = {"rows": 12954, "images": 12047}
"""Counts of the published table."""

NAMED, UNNAMED = ("train-rle.csv", "train-rle.csv.gz"), ("stage_2_train.csv", "stage_2_train.csv.gz")
COLUMNS = ("ImageId", "EncodedPixels")
(FINDING,) = SIIM_FINDINGS


@dataclass(frozen=True)
class _Table:
    """Masks by image id ([] for an image without a pneumothorax), and rows by image id."""

    masks: dict[str, list[PackedMasks]] = field(default_factory=dict)
    rows_of: dict[str, list[BoxRow]] = field(default_factory=dict)


def _make(build: BoxBuild[_Table]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
    masks, rows_of = build.parsed.masks, build.parsed.rows_of
    films = build.films([".dcm"], kind="dicom")
    pictures = films.pictures_of({image_id: rows[0] for image_id, rows in rows_of.items()}, build.faults)
    headers = dicom_headers(pictures, build.faults, workers=build.workers)
    build.warnings += films.warnings(masks)
    build.settle()
    image_ids = [image_id for image_id in masks if image_id not in build.faults.bad]
    patients = _patients(image_ids, headers, build.warnings)
    records = [
        _record(image_id, masks[image_id], patients[image_id], pictures.get(image_id), headers.get(image_id))
        for image_id in image_ids
    ]
    return {"train": records}, []


def _files(root: Path) -> dict[str, Path]:
    named = find_file(root, *NAMED)
    if named is not None:
        return {"masks": named}
    other = find_file(root, *UNNAMED)
    if other is None or other.suffix == ".gz":
        return {} if other is None else {"masks": other}
    return {"masks": other} if set(COLUMNS) <= set(columns_of(other)) else {}


def _parse(files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> _Table:
    table = _Table()
    for row in read_table(files["masks"], COLUMNS, faults, warnings):
        image_id, text = row["ImageId"], row["EncodedPixels"]
        own = table.masks.setdefault(image_id, [])
        rows = table.rows_of.setdefault(image_id, [])
        rows.append(row)
        if (text == "-1" and len(rows) > 1) or "-1" in (earlier["EncodedPixels"] for earlier in rows[:-1]):
            rule = "must not be -1 if the image has several rows"
            faults.add(row.problem("EncodedPixels", rule, f"{len(rows)} rows of {image_id}"), image_id)
        elif text != "-1":
            try:
                own.append(decode_relative(text, (NIH_SIDE, NIH_SIDE)))
            except MaskError as error:
                faults.add(row.problem("EncodedPixels", error.rule, error.value), image_id)
    return table


def _counts(table: _Table) -> dict[str, int]:
    return {
        "rows": sum(map(len, table.rows_of.values())),
        "images": len(table.masks),
        "images with a mask": sum(bool(own) for own in table.masks.values()),
    }


def _patients(image_ids: list[str], headers: Mapping[str, Header], warnings: list[str]) -> dict[str, str]:
    """Return a dict from image id to patient id, which is the id of the first image with the same PatientID."""
    first_of: dict[str, str] = {}
    patients = dict(zip(image_ids, image_ids, strict=True))
    n_alone = 0
    for image_id in image_ids:
        key = headers[image_id].patient_key if image_id in headers else None
        n_alone += key is None
        if key is not None:
            patients[image_id] = first_of.setdefault(key, image_id)
    if n_alone == len(image_ids):
        warnings.append(NO_PATIENTS)
    elif n_alone:
        warnings.append(f"{count_text(n_alone, 'image')} without a patient id; each counts as a separate patient")
    return patients


def _record(
    image_id: str, masks: list[PackedMasks], patient_id: str, picture: PictureFile | None, header: Header | None
) -> LocalizationRecord:
    return nih_record(
        image_id,
        {FINDING: int(bool(masks))},
        [annotate_mask(FINDING, _union(masks), len(masks), boxes=_boxes(masks))] if masks else [],
        picture,
        patient_id=patient_id,
        header=header,
    )


def _boxes(masks: list[PackedMasks]) -> list[Box]:
    """Return the tight box of each mask."""
    return [(x, y, width, height) for mask in masks for x, y, width, height in mask.boxes_xywh().tolist()]


def _union(masks: list[PackedMasks]) -> Rle:
    ends = np.concatenate([mask.ends for mask in masks])
    offsets = np.cumsum([0, *(len(mask.ends) for mask in masks)]).astype(np.int64)
    return union_masks(PackedMasks(np.concatenate([mask.sizes for mask in masks]), ends, offsets))


SOURCE = BoxSource(
    name="siim-acr",
    needs="train-rle.csv or stage_2_train.csv",
    published=PUBLISHED,
    find=_files,
    parse=_parse,
    count=_counts,
    pictured=lambda build: build.films([".dcm"], kind="dicom").present(build.parsed.rows_of),
    make=_make,
)
detect, inspect, read = SOURCE.detect, SOURCE.inspect, SOURCE.read
