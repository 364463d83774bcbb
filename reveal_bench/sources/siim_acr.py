"""SIIM-ACR Pneumothorax: masks of pneumothorax on frames of NIH ChestX-ray14.

Source: Kaggle, SIIM-ACR Pneumothorax Segmentation: ``train-rle.csv`` (or ``stage_2_train.csv``) with the columns
``ImageId`` and `` EncodedPixels`` (with a space before it in the former), and DICOM files nested by UIDs in
``dicom-images-train/<study>/<series>/<image>.dcm``.

Conventions
-----------
* Every picture is 1024 x 1024 pixels. A mask is a list of pairs *gap length*: so many pixels are passed over since the
  end of the last run, so many are foreground, column by column from the top left. ``-1`` means no pneumothorax.
* An image may have several rows, one per region drawn; its mask is their union, and `n_instances` counts them.
* One finding, "Pneumothorax": present with a mask, else absent.
* Images are named by UIDs that the challenge published. Where their pictures are there, embedded or not, images with
  one PatientID share a `patient_id`, that of the first of them; else `patient_id` repeats the image id.
* The view is read from the header. The spacing in it belongs to the original before it was made smaller: none is given.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reveal_bench.findings import SIIM_FINDINGS
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import PackedMasks, Rle, union_masks
from reveal_bench.sources.boxes import (
    NO_PATIENTS,
    Faults,
    Gallery,
    TableRow,
    annotate_mask,
    count_warnings,
    counted,
    dicom_headers,
    find_file,
    inspection,
    is_synthetic,
    read_table,
)
from reveal_bench.sources.source import Inspection, Pixels, Reading

if TYPE_CHECKING:
    from reveal_bench.dicom.header import Header

__all__ = ["PUBLISHED", "SIDE", "decode_relative", "detect", "inspect", "read"]

SIDE = 1024
"""Width and height of every picture, in pixels."""

PUBLISHED = {"rows": 12954, "images": 12047}
"""Counts of the published table."""

NAMED, UNNAMED = ("train-rle.csv", "train-rle.csv.gz"), ("stage_2_train.csv", "stage_2_train.csv.gz")
COLUMNS = ("ImageId", "EncodedPixels")
(FINDING,) = SIIM_FINDINGS
Masks = dict[str, list[PackedMasks]]


def detect(root: Path) -> float:
    """1 if `root` is, or holds, the table of masks under a published name and with its columns; else 0."""
    return 1.0 if _table(Path(root)) is not None else 0.0


def inspect(root: Path, *, pictures: Path | None = None, workers: int = 1) -> Inspection:
    """Count rows, images and masks, and list what is wrong with the table; `pictures` are not looked at."""
    root = Path(root)
    path = _required(root)
    faults = Faults()
    warnings: list[str] = []
    masks, rows_of = _read_masks(path, faults, warnings)
    counts = {**_counts(masks, rows_of), "images with a mask": sum(bool(own) for own in masks.values())}
    return inspection("siim-acr", root, {"masks": path}, counts, PUBLISHED, faults, warnings)


def read(
    root: Path,
    *,
    pixels: Pixels = "embed",
    keep_going: bool = False,
    pictures: Path | None = None,
    workers: int = 1,
) -> Reading:
    """Records of the one split, "train".

    Parameters
    ----------
    root : folder of the download, or its table
    pixels : "withhold" needs no pictures, but reads those that are there
    keep_going : leave out images with a problem instead of raising
    pictures : folder with the DICOM files at any depth; `root` itself by default
    workers : processes that read headers

    Raises
    ------
    BuildError
        With every problem of the table, and every picture that is not there or has no readable header.
    ValueError
        If there is no table, or no picture although pixels are to be embedded.
    """
    root = Path(root)
    path = _required(root)
    faults = Faults()
    warnings: list[str] = []
    masks, rows_of = _read_masks(path, faults, warnings)
    synthetic = is_synthetic(root, [path])
    if not synthetic:
        warnings += count_warnings(_counts(masks, rows_of), PUBLISHED)
    gallery = Gallery.of_build(root, pictures, [".dcm"], pixels=pixels, kind="dicom")
    found = gallery.pictures_of({image_id: rows[0] for image_id, rows in rows_of.items()}, faults)
    headers = dicom_headers(found, faults, workers=workers)
    warnings += gallery.warnings(masks)
    faults.settle(warnings, keep_going=keep_going)
    kept = [image_id for image_id in masks if image_id not in faults.bad]
    patients = _patients(kept, headers, warnings)
    records = [
        _record(image_id, masks[image_id], patients[image_id], found.get(image_id), headers.get(image_id))
        for image_id in kept
    ]
    return Reading({"train": records}, warnings, synthetic=synthetic)


def decode_relative(text: str, *, side: int = SIDE) -> PackedMasks:
    """One mask of `side` x `side` pixels from the challenge's pairs of a gap and a length.

    Raises
    ------
    ValueError
        If it is not made of such pairs or runs beyond the picture; the message is the rule and the value.

    Examples
    --------
    >>> decode_relative("1 2 3 1", side=3).dense(0).astype(int)
    array([[0, 0, 1],
           [1, 0, 0],
           [1, 0, 0]])
    """
    tokens = text.split()
    if not tokens or len(tokens) % 2 or not all(token.isascii() and token.isdigit() for token in tokens):
        raise ValueError(f"must be -1 or pairs of a gap and a length, got {text[:40]!r}")
    if max(map(len, tokens)) > len(str(side * side)):
        raise ValueError(f"must be numbers of at most {side * side}, got {max(tokens, key=len)[:40]}")
    runs = np.array(tokens, np.int64)
    if (runs[1::2] == 0).any():
        raise ValueError("must have lengths above 0, got 0")
    if runs.sum() > side * side:
        raise ValueError(f"must end within {side} x {side} = {side * side} pixels, got {runs.sum()}")
    ends = np.cumsum(runs)
    ends = ends if ends[-1] == side * side else np.append(ends, side * side)
    return PackedMasks(np.array([[side, side]], np.int64), ends.astype(np.int32), np.array([0, len(ends)], np.int64))


def _table(root: Path) -> Path | None:
    named = find_file(root, *NAMED)
    if named is not None:
        return named
    other = find_file(root, *UNNAMED)
    if other is None or other.suffix == ".gz":
        return other
    with other.open(encoding="utf-8-sig", newline="") as file:
        heads = {head.strip() for head in next(csv.reader(file), [])}
    return other if set(COLUMNS) <= heads else None


def _required(root: Path) -> Path:
    path = _table(root)
    if path is None:
        raise ValueError(f"`root` must hold train-rle.csv or stage_2_train.csv, got {root}")
    return path


def _read_masks(path: Path, faults: Faults, warnings: list[str]) -> tuple[Masks, dict[str, list[TableRow]]]:
    """Masks by image, none for an image without; and the rows of each image."""
    masks: Masks = {}
    rows_of: dict[str, list[TableRow]] = {}
    for row in read_table(path, COLUMNS, faults, warnings):
        image_id, text = row["ImageId"], row["EncodedPixels"]
        own = masks.setdefault(image_id, [])
        rows = rows_of.setdefault(image_id, [])
        rows.append(row)
        if (text == "-1" and len(rows) > 1) or "-1" in (earlier["EncodedPixels"] for earlier in rows[:-1]):
            rule = "must be the only row of an image without a pneumothorax"
            faults.add(row.problem("EncodedPixels", rule, f"{len(rows)} rows of {image_id}"), image_id)
        elif text != "-1":
            try:
                own.append(decode_relative(text))
            except ValueError as error:
                rule, _, value = str(error).partition(", got ")
                faults.add(row.problem("EncodedPixels", rule, value), image_id)
    return masks, rows_of


def _counts(masks: Masks, rows_of: dict[str, list[TableRow]]) -> dict[str, int]:
    return {"rows": sum(map(len, rows_of.values())), "images": len(masks)}


def _patients(image_ids: list[str], headers: Mapping[str, Header], warnings: list[str]) -> dict[str, str]:
    """Patient by image: the first image with its PatientID, which itself is not published."""
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
        warnings.append(f"{counted(n_alone, 'image')} without a patient: each counts as a patient of its own")
    return patients


def _record(
    image_id: str, masks: list[PackedMasks], patient_id: str, picture: PictureFile | None, header: Header | None
) -> LocalizationRecord:
    return LocalizationRecord(
        image_id=image_id,
        patient_id=patient_id,
        study_id=image_id,
        view="UNKNOWN" if header is None else header.view,
        view_raw=None if header is None else header.view_raw,
        width=SIDE,
        height=SIDE,
        label_status={FINDING: int(bool(masks))},
        annotations=(annotate_mask(FINDING, _union(masks), len(masks)),) if masks else (),
        picture=picture,
    )


def _union(masks: list[PackedMasks]) -> Rle:
    ends = np.concatenate([mask.ends for mask in masks])
    offsets = np.cumsum([0, *(len(mask.ends) for mask in masks)]).astype(np.int64)
    return union_masks(PackedMasks(np.concatenate([mask.sizes for mask in masks]), ends, offsets))
