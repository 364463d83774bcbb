"""VinDr-CXR: boxes of 22 findings, by three readers each in train and by consensus in test.

Source: PhysioNet (Nguyen et al. 2022), or the Kaggle edition of its training half (VinBigData Chest X-ray Abnormalities
Detection). The tables and what differs are in :mod:`reveal_bench.builders.vindr_cxr_files`.

Conventions
-----------
* In "train" every reader's boxes stay that reader's: annotations of the reader "individual" with a `reader_id`. They
  are never merged, so no finding of "train" has a reference and none is asked. `label_status` is 1 if at least two of
  the readers of the image found it, 0 if none did, and unlabelled between; what is 1 is `missing` a reference.
* In "test" the consensus of five readers is the ground truth; a finding without it is absent.
* What a reader found is read from ``image_labels_*.csv``, or from the boxes where that file is not there.
  Contradictions between the two are counted in the warnings.
* The six labels of the whole image ("No finding", "Tuberculosis", ...) have no place: they are in the config
  ``image_labels``, with all labels that are 1 per image and reader.
* In the Kaggle edition the eight findings that it left out are unlabelled; its "Other lesion" takes them in.
* Pictures are ``<image_id>.dicom``. Their headers give the size, which no table does, so they are needed even where
  pixels are withheld. A file without pixel data is a problem of its image. Headers name no patient: `patient_id` and
  `study_id` repeat the image id. The collection holds postero-anterior views only.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.boxes import Box
from reveal_bench.builders.box_files import (
    NO_PATIENTS,
    Faults,
    annotate_boxes,
    count_warnings,
    counted,
    inspection,
    is_synthetic,
)
from reveal_bench.builders.box_pictures import Gallery, dicom_headers
from reveal_bench.builders.source import Extra, Inspection, Pixels, Reading
from reveal_bench.builders.vindr_cxr_files import CONSENSUS, LABELS, Download, ImageRows, find_download, read_images
from reveal_bench.findings import VINDR_CXR_FINDINGS
from reveal_bench.records import LocalizationRecord, PictureFile

if TYPE_CHECKING:
    from datasets import Features

    from reveal_bench.dicom.header import Header

__all__ = ["PUBLISHED", "detect", "image_label_features", "inspect", "read"]

PUBLISHED = {"train images": 15000, "test images": 3000}
READERS_EACH = 3
"""Readers of an image in train."""
SUFFIXES = [".dicom", ".dcm"]


def detect(root: Path) -> float:
    """1 if `root` holds the tables of either edition; else 0."""
    return 1.0 if find_download(Path(root)) is not None else 0.0


def inspect(root: Path, *, pictures: Path | None = None, workers: int = 1) -> Inspection:
    """Count images, boxes and readers, and list what is wrong with the tables.

    `pictures` are not looked at, so that no box is held against the size of its picture.
    """
    root = Path(root)
    download = _download(root)
    faults = Faults()
    warnings: list[str] = []
    counts: dict[str, int] = {}
    for split in download.splits:
        images = read_images(download, split, faults, warnings)
        counts[f"{split} images"] = len(images)
        counts[f"{split} boxes"] = sum(len(rows) for image in images.values() for rows in image.rows.values())
        counts[f"{split} readers"] = len({reader for image in images.values() for reader in image.readers})
    return inspection("vindr-cxr", root, download.files, counts, PUBLISHED, faults, warnings)


def read(
    root: Path,
    *,
    pixels: Pixels = "embed",
    keep_going: bool = False,
    pictures: Path | None = None,
    workers: int = 1,
) -> Reading:
    """Records per split ("train", "test": those whose boxes are there) and the config ``image_labels``.

    Parameters
    ----------
    root : folder of the download, of either edition
    pixels : the DICOM files are needed either way, for their sizes
    keep_going : leave out images with a problem instead of raising
    pictures : folder with the DICOM files at any depth; `root` by default
    workers : processes that read headers

    Raises
    ------
    BuildError
        With every problem of the tables, every box outside its picture, and every picture without a readable header or
        without pixel data.
    ValueError
        If there are no tables or no DICOM files.
    """
    root = Path(root)
    download = _download(root)
    faults = Faults()
    warnings: list[str] = []
    tables = {split: read_images(download, split, faults, warnings) for split in download.splits}
    synthetic = is_synthetic(root, download.files.values())
    if not synthetic:
        warnings += count_warnings({f"{split} images": len(images) for split, images in tables.items()}, PUBLISHED)
    _check_splits(tables, faults)
    gallery = Gallery.below(pictures if pictures is not None else root, SUFFIXES, kind="dicom")
    first_rows = {image_id: image.first for images in tables.values() for image_id, image in images.items()}
    found = gallery.pictures_of(first_rows, faults)
    headers = dicom_headers(found, faults, workers=workers)
    splits: dict[str, list[LocalizationRecord]] = {}
    for split, images in tables.items():
        maker = _Maker(download, split, faults)
        splits[split] = [
            maker.record(image_id, rows, found[image_id], headers[image_id])
            for image_id, rows in images.items()
            if image_id in headers
        ]
        warnings += maker.warnings()
    warnings += gallery.warnings(first_rows)
    faults.settle(warnings, keep_going=keep_going)
    warnings.append(NO_PATIENTS)
    kept = {
        split: [record for record in records if record.image_id not in faults.bad] for split, records in splits.items()
    }
    labels = [
        row
        for split, records in kept.items()
        for record in records
        for row in _label_rows(record.image_id, tables[split][record.image_id])
    ]
    extras = [Extra("image_labels", image_label_features, labels, key="image_id")] if labels else []
    return Reading(kept, warnings, extras, synthetic=synthetic)


def image_label_features() -> Features:
    """Features of the config ``image_labels``: a row per image and reader; no reader means the consensus."""
    from datasets import ClassLabel, Features, List, Value

    labels = List(ClassLabel(names=list(LABELS)))
    return Features({"image_id": Value("string"), "reader_id": Value("string"), "labels": labels})


def _label_rows(image_id: str, image: ImageRows) -> list[dict[str, Any]]:
    return [
        {"image_id": image_id, "reader_id": reader or None, "labels": sorted(LABELS.index(label) for label in labels)}
        for reader, labels in image.positive.items()
    ]


def _download(root: Path) -> Download:
    download = find_download(root)
    if download is None:
        raise ValueError(
            f"`root` must hold annotations_train.csv or annotations_test.csv, or Kaggle's train.csv: {root}"
        )
    return download


def _check_splits(tables: dict[str, dict[str, ImageRows]], faults: Faults) -> None:
    seen: dict[str, str] = {}
    for split, images in tables.items():
        for image_id, image in images.items():
            if seen.setdefault(image_id, split) != split:
                row = image.first
                faults.add(row.problem("image_id", "must be in one split", f"{image_id}, also in train"), image_id)


class _Maker:
    """Makes the records of one split and counts what is odd about them."""

    def __init__(self, download: Download, split: str, faults: Faults) -> None:
        self.download, self.split, self.faults = download, split, faults
        self._odd: Counter[tuple[str, str]] = Counter()

    def record(self, image_id: str, image: ImageRows, picture: PictureFile, header: Header) -> LocalizationRecord:
        """The record of an image whose header has a size."""
        assert header.rows is not None
        assert header.columns is not None
        size = header.rows, header.columns
        boxes = image.boxes(size, image_id, self.faults)
        found = {reader: self._found(reader, image, boxes) for reader in image.readers}
        status = self._status(found)
        drawn = boxes.get(CONSENSUS, {})
        return LocalizationRecord(
            image_id=image_id,
            patient_id=image_id,
            study_id=image_id,
            view="PA" if header.view == "UNKNOWN" else header.view,
            view_raw=header.view_raw,
            width=header.columns,
            height=header.rows,
            label_status=status,
            annotations=tuple(
                annotate_boxes(
                    finding,
                    boxes[reader][finding],
                    size,
                    reader="individual" if reader else "ground_truth",
                    reader_id=reader or None,
                )
                for finding in VINDR_CXR_FINDINGS
                for reader in sorted(boxes)
                if finding in boxes[reader]
            ),
            missing=tuple(finding for finding, value in status.items() if value == 1 and finding not in drawn),
            spacing_mm=header.spacing_mm,
            spacing_source=header.spacing_source,
            picture=picture,
        )

    def warnings(self) -> list[str]:
        """What was odd, counted over the records made so far."""
        return [f"split {self.split!r}: {counted(n, noun)} {what}" for (noun, what), n in self._odd.items()]

    def _found(self, reader: str, image: ImageRows, boxes: dict[str, dict[str, list[Box]]]) -> set[str]:
        """Findings that a reader says are there."""
        drawn = set(boxes.get(reader, {}))
        if reader not in image.positive:
            return drawn
        found = image.positive[reader] & set(VINDR_CXR_FINDINGS)
        self._note("finding", "with a box although the label is 0", len(drawn - found))
        self._note("finding", "without a box although the label is 1", len(found - drawn))
        return found

    def _status(self, found: dict[str, set[str]]) -> dict[str, int | None]:
        if self.split == "test":
            return {finding: int(finding in found.get(CONSENSUS, ())) for finding in VINDR_CXR_FINDINGS}
        if len(found) != READERS_EACH:
            self._note("image", f"with more or fewer than {READERS_EACH} readers", 1)
        votes = Counter(finding for findings in found.values() for finding in findings)
        status: dict[str, int | None] = dict.fromkeys(VINDR_CXR_FINDINGS)
        for finding in self.download.findings:
            status[finding] = {0: 0, 1: None}.get(votes[finding], 1)
        return status

    def _note(self, noun: str, what: str, n: int) -> None:
        if n:
            self._odd[noun, what] += n
