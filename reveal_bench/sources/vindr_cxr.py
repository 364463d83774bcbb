"""VinDr-CXR: boxes of 22 findings, drawn by three readers per image in "train" and by consensus in "test".

Source: PhysioNet (Nguyen et al. 2022), or Kaggle's edition of the training images (VinBigData Chest X-ray Abnormalities
Detection).

Conventions
-----------
* In "train" the boxes of different readers are never merged: they are annotations of the reader "individual" with a
  `reader_id`. Findings in "train" therefore have no reference and are not part of the questions. `label_status` of a
  finding is 1 if at least two readers of the image reported it, 0 if no reader did, and unlabelled if one reader did. A
  finding with status 1 is `missing` (present without a reference).
* In "test" the consensus of five readers is the ground truth; a finding without a consensus label is absent.
* A reader's findings come from ``image_labels_*.csv`` or, without that file, from the boxes. Warnings count
  contradictions between labels and boxes.
* The config ``readers`` lists the readers of every image of "train", including readers who drew no box.
* Six labels describe the whole image ("No finding", "Tuberculosis", ...) and have no location. The config
  ``image_labels`` lists all labels that are 1, including these six, per image and reader.
* Kaggle's edition leaves out eight findings, which are unlabelled in its records; its "Other lesion" includes them.
* Pictures are ``<image_id>.dicom``. Only the headers state the size of an image, so the pictures are needed even if
  pixels are withheld. A file without pixel data is a problem of its image. Headers name no patient: `patient_id` and
  `study_id` repeat the image id. The collection contains only postero-anterior views.

The tables of the two editions, parsed strictly:

============  =======================================  ==========================================
              PhysioNet                                Kaggle
============  =======================================  ==========================================
tables        ``annotations_{train,test}.csv``,        ``train.csv``
              ``image_labels_{train,test}.csv``
a row         a box of a reader, or a label without    the same, with `class_id` 0 to 13, and 14
              a box, such as "No finding"              for "No finding", whose box is blank
readers       `rad_id` in train; none in test, which   `rad_id` R1 to R17
              is the consensus of five
labels        22 with boxes, 6 without                 14 with boxes; "Other lesion" takes in the
                                                       eight that are left out
============  =======================================  ==========================================

The last label is "Other diseases" in one table and "Other disease" in the other. Boxes are corners in pixels of the
DICOM picture, and are checked when the size of the picture is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.dicom.header import Header
from reveal_bench.findings import VINBIGDATA_FINDINGS, VINDR_CXR_FINDINGS, VINDR_GLOBAL_LABELS
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    NO_PATIENTS,
    BoxRow,
    Faults,
    PictureFolder,
    annotate_readers,
    dicom_headers,
    find_file,
    find_files,
    known_finding,
    read_box,
    read_table,
    reader_rows,
)
from reveal_bench.sources.source import Extra, FindingColumn, table_features
from reveal_bench.tables import columns_of
from reveal_bench.words import count_text

CONSENSUS = ""
"""Key of the consensus in a dict from reader to boxes: in "test", five readers agreed on one set of boxes."""

BOX = ("x_min", "y_min", "x_max", "y_max")
LABELS = (*VINDR_CXR_FINDINGS, *VINDR_GLOBAL_LABELS)
"""All 28 labels; the labels with boxes come first."""
KAGGLE_TABLE = "train.csv"
KAGGLE_COLUMNS = ("image_id", "class_name", "class_id", "rad_id", *BOX)


@dataclass(frozen=True)
class VindrTables:
    """The tables of a download by role, such as "annotations_train"."""

    files: Mapping[str, Path]

    @property
    def kaggle(self) -> bool:
        """True for the Kaggle edition."""
        return "annotations_train" in self.files and self.files["annotations_train"].name == KAGGLE_TABLE

    @property
    def findings(self) -> tuple[str, ...]:
        """Findings for which the edition has boxes."""
        return VINBIGDATA_FINDINGS if self.kaggle else VINDR_CXR_FINDINGS

    @property
    def splits(self) -> list[str]:
        """Splits whose tables of boxes are in the download."""
        return [split for split in ("train", "test") if f"annotations_{split}" in self.files]


@dataclass
class ImageRows:
    """Rows of an image: the first row, and by reader the boxes and the labels that are 1."""

    first: BoxRow
    rows: dict[str, list[tuple[str, BoxRow]]] = field(default_factory=dict)
    positive: dict[str, set[str]] = field(default_factory=dict)

    @property
    def readers(self) -> list[str]:
        """Sorted names of the readers who have a row in any table."""
        return sorted(self.rows.keys() | self.positive.keys())

    def boxes(self, size: tuple[int, int], image_id: str, faults: Faults) -> dict[str, dict[str, list[Box]]]:
        """Return boxes by reader and finding; a box that is not in the picture is noted as a problem and left out."""
        by_reader: dict[str, dict[str, list[Box]]] = {}
        for reader, rows in self.rows.items():
            for finding, row in rows:
                box = read_box(row, BOX, faults, image_id, form="xyxy", size=size)
                if box is not None:
                    by_reader.setdefault(reader, {}).setdefault(finding, []).append(box)
        return by_reader


def find_tables(root: Path) -> dict[str, Path]:
    """Return a dict from role to table below `root`; Kaggle's table is recognised by its columns."""
    roles = [f"{what}_{split}" for what in ("annotations", "image_labels") for split in ("train", "test")]
    files = find_files(root, {role: [f"{role}.csv", f"{role}.csv.gz"] for role in roles})
    if any(role.startswith("annotations") for role in files):
        return files
    table = find_file(root, KAGGLE_TABLE)
    if table is not None and set(KAGGLE_COLUMNS) <= set(columns_of(table)):
        return {"annotations_train": table}
    return {}


def read_images(download: VindrTables, split: str, faults: Faults, warnings: list[str]) -> dict[str, ImageRows]:
    """Return a dict from image id to the image's rows in a split's tables, in the order of the table of boxes."""
    columns = ["image_id", "class_name", *BOX, *(["rad_id"] if split == "train" else [])]
    columns += ["class_id"] if download.kaggle else []
    table = read_table(download.files[f"annotations_{split}"], columns, faults, warnings)
    images: dict[str, ImageRows] = {}
    for row in table:
        image_id, reader = row["image_id"], row.values.get("rad_id", CONSENSUS) if split == "train" else CONSENSUS
        image = images.setdefault(image_id, ImageRows(row))
        own_boxes = image.rows.setdefault(reader, [])
        label = _label(row, download, faults)
        if label in VINDR_GLOBAL_LABELS:
            if any(row[column] for column in BOX):
                faults.add(row.problem(", ".join(BOX), f"must be blank for {label!r}", _texts(row)), image_id)
        elif label is not None:
            own_boxes.append((label, row))
    labels = download.files.get(f"image_labels_{split}")
    if labels is not None:
        _read_labels(labels, split, images, faults, warnings)
    return images


def _label(row: BoxRow, download: VindrTables, faults: Faults) -> str | None:
    """Return the canonical label of a row of boxes, or None after noting that it is unknown."""
    known = (*download.findings, "No finding") if download.kaggle else LABELS
    label, value = known_finding(row["class_name"], known)
    if label is None:
        faults.add(row.problem("class_name", f"must be one of {len(known)} labels", value), row["image_id"])
        return None
    if download.kaggle and row["class_id"] != str(known.index(label)):
        rule = f"must be {known.index(label)} for {label!r}"
        faults.add(row.problem("class_id", rule, repr(row["class_id"])), row["image_id"])
        return None
    return label


def _texts(row: BoxRow) -> str:
    return ", ".join(row[column] for column in BOX)


def _read_labels(path: Path, split: str, images: dict[str, ImageRows], faults: Faults, warnings: list[str]) -> None:
    """Add the labels from a table with a row per image and reader (in test, per image)."""
    needed = ["image_id", *(["rad_id"] if split == "train" else [])]
    table = read_table(path, needed, faults, [])
    if not table:
        return
    columns = _label_columns(path.name, list(table[0].values), needed, faults, warnings)
    for row in table:
        image_id, reader = row["image_id"], row.values.get("rad_id", CONSENSUS) if split == "train" else CONSENSUS
        image = images.setdefault(image_id, ImageRows(row))
        if reader in image.positive:
            faults.add(row.problem("rad_id", "must be unique per image", f"{reader!r} again"), image_id)
        for column in columns.values():
            if row[column] not in ("0", "1", "0.0", "1.0"):
                faults.add(row.problem(column, "must be 0 or 1", repr(row[column])), image_id)
        image.positive[reader] = {label for label, column in columns.items() if row[column] in ("1", "1.0")}


def _label_columns(
    file: str, heads: Sequence[str], needed: Sequence[str], faults: Faults, warnings: list[str]
) -> dict[str, str]:
    """Return a dict from label to the name of its column."""
    columns: dict[str, str] = {}
    for head in heads:
        label, _ = known_finding(head, LABELS)
        if label is not None:
            columns[label] = head
        elif head and head not in needed:
            warnings.append(f"{file}: the column {head!r} is unknown and is ignored")
    lacking = [label for label in LABELS if label not in columns]
    for label in lacking:
        faults.add(BoxRow(file, 1, {}).problem(label, "must be a column", ", ".join(heads)), None)
    return columns


PUBLISHED = {"train images": 15000, "test images": 3000}
READERS_EACH = 3
"""Number of readers of each image in "train"."""
SUFFIXES = [".dicom", ".dcm"]


@dataclass(frozen=True)
class _SplitTables:
    download: VindrTables
    tables: dict[str, dict[str, ImageRows]]

    def first_rows(self) -> dict[str, BoxRow]:
        """Return a dict from image id to the image's first row."""
        return {image_id: image.first for images in self.tables.values() for image_id, image in images.items()}


def _parse(files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> _SplitTables:
    download = VindrTables(files)
    return _SplitTables(download, {split: read_images(download, split, faults, warnings) for split in download.splits})


def _counts(parsed: _SplitTables) -> dict[str, int]:
    counts: dict[str, int] = {}
    for split, images in parsed.tables.items():
        counts[f"{split} images"] = len(images)
        counts[f"{split} boxes"] = sum(len(rows) for image in images.values() for rows in image.rows.values())
        counts[f"{split} readers"] = len({reader for image in images.values() for reader in image.readers})
    return counts


IMAGE_LABELS = table_features(image_id="string", reader_id="string", labels=[LABELS])
"""Features of the config ``image_labels``: a row per image and reader; reader None is the consensus."""
_COLUMN = FindingColumn("labels", lambda label: (LABELS[label],), may_be_empty=True)


def _films(build: BoxBuild[_SplitTables]) -> PictureFolder:
    place = build.pictures if build.pictures is not None else build.root
    return PictureFolder.below(place, SUFFIXES, kind="dicom", states_sizes=True, may_be_empty=build.is_inspection)


def _make(build: BoxBuild[_SplitTables]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
    tables, faults, warnings = build.parsed.tables, build.faults, build.warnings
    _check_splits(tables, faults)
    films = _films(build)
    first_rows = build.parsed.first_rows()
    pictures = films.pictures_of(first_rows, faults)
    headers = dicom_headers(pictures, faults, workers=build.workers)
    splits: dict[str, list[LocalizationRecord]] = {}
    for split, images in tables.items():
        maker = _SplitRecords(build.parsed.download, split, faults)
        splits[split] = [
            maker.record(image_id, rows, pictures[image_id], headers[image_id])
            for image_id, rows in images.items()
            if image_id in headers
        ]
        warnings += maker.warnings()
    warnings += films.warnings(first_rows)
    build.settle()
    warnings.append(NO_PATIENTS)
    retained = {
        split: [record for record in records if record.image_id not in faults.bad] for split, records in splits.items()
    }
    labels = [
        row
        for split, records in retained.items()
        for record in records
        for row in _label_rows(record.image_id, tables[split][record.image_id])
    ]
    read = [
        (record.image_id, reader)
        for split, records in retained.items()
        for record in records
        for reader in tables[split][record.image_id].readers
        if reader != CONSENSUS
    ]
    table = Extra("image_labels", IMAGE_LABELS, labels, key="image_id", findings=_COLUMN)
    tables_kept = [table] if labels else []
    return retained, [*tables_kept, *reader_rows(read)]


def _label_rows(image_id: str, image: ImageRows) -> list[dict[str, Any]]:
    return [
        {"image_id": image_id, "reader_id": reader or None, "labels": sorted(LABELS.index(label) for label in labels)}
        for reader, labels in image.positive.items()
    ]


def _check_splits(tables: dict[str, dict[str, ImageRows]], faults: Faults) -> None:
    seen: dict[str, str] = {}
    for split, images in tables.items():
        for image_id, image in images.items():
            if seen.setdefault(image_id, split) != split:
                row = image.first
                faults.add(row.problem("image_id", "must be in one split", f"{image_id}, also in train"), image_id)


class _SplitRecords:
    """Maker of the records of a split, which counts contradictions and wrong numbers of readers."""

    def __init__(self, download: VindrTables, split: str, faults: Faults) -> None:
        self.download, self.split, self.faults = download, split, faults
        self._odd: Counter[tuple[str, str]] = Counter()

    def record(self, image_id: str, image: ImageRows, picture: PictureFile, header: Header) -> LocalizationRecord:
        """Return the record of an image whose header states its size."""
        assert header.rows is not None
        assert header.columns is not None
        size = header.rows, header.columns
        boxes = image.boxes(size, image_id, self.faults)
        by_reader = {reader: self._found(reader, image, boxes) for reader in image.readers}
        status = self._status(by_reader)
        consensus = boxes.get(CONSENSUS, {})
        return LocalizationRecord(
            image_id=image_id,
            patient_id=image_id,
            study_id=image_id,
            view="PA" if header.view == "UNKNOWN" else header.view,
            view_raw=header.view_raw,
            width=header.columns,
            height=header.rows,
            label_status=status,
            annotations=annotate_readers(VINDR_CXR_FINDINGS, boxes, size),
            missing=tuple(finding for finding, value in status.items() if value == 1 and finding not in consensus),
            spacing_mm=header.spacing_mm,
            spacing_source=header.spacing_source,
            picture=picture,
        )

    def warnings(self) -> list[str]:
        """Return warnings that count contradictions in the records made so far."""
        return [f"split {self.split!r}: {count_text(n, noun)} {what}" for (noun, what), n in self._odd.items()]

    def _found(self, reader: str, image: ImageRows, boxes: dict[str, dict[str, list[Box]]]) -> set[str]:
        """Return the findings that a reader reports; note contradictions between labels and boxes."""
        findings_drawn = set(boxes.get(reader, {}))
        if reader not in image.positive:
            return findings_drawn
        findings = image.positive[reader] & set(VINDR_CXR_FINDINGS)
        self._note("finding", "with a box although the label is 0", len(findings_drawn - findings))
        self._note("finding", "without a box although the label is 1", len(findings - findings_drawn))
        return findings

    def _status(self, by_reader: dict[str, set[str]]) -> dict[str, int | None]:
        if self.split == "test":
            return {finding: int(finding in by_reader.get(CONSENSUS, ())) for finding in VINDR_CXR_FINDINGS}
        if len(by_reader) != READERS_EACH:
            self._note("image", f"with more or fewer than {READERS_EACH} readers", 1)
        votes = Counter(finding for findings in by_reader.values() for finding in findings)
        status: dict[str, int | None] = dict.fromkeys(VINDR_CXR_FINDINGS)
        for finding in self.download.findings:
            status[finding] = {0: 0, 1: None}.get(votes[finding], 1)
        return status

    def _note(self, noun: str, what: str, n: int) -> None:
        if n:
            self._odd[noun, what] += n


SOURCE = BoxSource(
    name="vindr-cxr",
    needs="annotations_train.csv or annotations_test.csv, or Kaggle's train.csv",
    published=PUBLISHED,
    find=find_tables,
    parse=_parse,
    count=_counts,
    pictured=lambda build: _films(build).present(build.parsed.first_rows()),
    make=_make,
    pictures_state_sizes=True,
)
detect, inspect, read = SOURCE.detect, SOURCE.inspect, SOURCE.read
