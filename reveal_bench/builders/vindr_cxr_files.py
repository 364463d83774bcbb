"""The tables of VinDr-CXR, parsed strictly: the PhysioNet edition and the Kaggle edition (VinBigData).

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
DICOM picture; they are checked once its size is known.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.boxes import Box
from reveal_bench.builders.box_files import Faults, TableRow, find_file, known_finding, read_box, read_table
from reveal_bench.findings import VINBIGDATA_FINDINGS, VINDR_CXR_FINDINGS, VINDR_GLOBAL_LABELS

__all__ = ["CONSENSUS", "LABELS", "Download", "ImageRows", "find_download", "read_images"]

CONSENSUS = ""
"""Stands for the reader of the test split, where five readers agreed on one set of boxes."""

BOX = ("x_min", "y_min", "x_max", "y_max")
LABELS = (*VINDR_CXR_FINDINGS, *VINDR_GLOBAL_LABELS)
"""All 28, those with boxes first."""
KAGGLE_COLUMNS = ("image_id", "class_name", "class_id", "rad_id", *BOX)


@dataclass(frozen=True)
class Download:
    """Which tables are there, by role such as "annotations_train"; `kaggle` tells the edition."""

    kaggle: bool
    files: dict[str, Path]

    @property
    def findings(self) -> tuple[str, ...]:
        """Findings that the readers of this edition were asked for."""
        return VINBIGDATA_FINDINGS if self.kaggle else VINDR_CXR_FINDINGS

    @property
    def splits(self) -> list[str]:
        """Splits whose boxes are there."""
        return [split for split in ("train", "test") if f"annotations_{split}" in self.files]


@dataclass
class ImageRows:
    """What the tables say of one image; its first row, and by reader its boxes and its labels that are 1."""

    first: TableRow
    rows: dict[str, list[tuple[str, TableRow]]] = field(default_factory=dict)
    positive: dict[str, set[str]] = field(default_factory=dict)

    @property
    def readers(self) -> list[str]:
        """Readers with a row in any table, in order."""
        return sorted(self.rows.keys() | self.positive.keys())

    def boxes(self, size: tuple[int, int], image_id: str, faults: Faults) -> dict[str, dict[str, list[Box]]]:
        """Boxes by reader and finding, checked against the size of the picture."""
        found: dict[str, dict[str, list[Box]]] = {}
        for reader, rows in self.rows.items():
            for finding, row in rows:
                box = read_box(row, BOX, faults, image_id, form="xyxy", size=size)
                if box is not None:
                    found.setdefault(reader, {}).setdefault(finding, []).append(box)
        return found


def find_download(root: Path) -> Download | None:
    """The tables below `root`: PhysioNet's by their names, Kaggle's ``train.csv`` by its columns."""
    roles = [f"{what}_{split}" for what in ("annotations", "image_labels") for split in ("train", "test")]
    found = {role: find_file(root, f"{role}.csv", f"{role}.csv.gz") for role in roles}
    files = {role: path for role, path in found.items() if path is not None}
    if any(role.startswith("annotations") for role in files):
        return Download(False, files)
    table = find_file(root, "train.csv")
    if table is not None and set(KAGGLE_COLUMNS) <= set(_header(table)):
        return Download(True, {"annotations_train": table})
    return None


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [head.strip() for head in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def read_images(download: Download, split: str, faults: Faults, warnings: list[str]) -> dict[str, ImageRows]:
    """What the tables of a split say, by image, in the order of the boxes' table."""
    columns = ["image_id", "class_name", *BOX, *(["rad_id"] if split == "train" else [])]
    columns += ["class_id"] if download.kaggle else []
    table = read_table(download.files[f"annotations_{split}"], columns, faults, warnings)
    images: dict[str, ImageRows] = {}
    for row in table:
        image_id, reader = row["image_id"], row.values.get("rad_id", CONSENSUS) if split == "train" else CONSENSUS
        image = images.setdefault(image_id, ImageRows(row))
        drawn = image.rows.setdefault(reader, [])
        label = _label(row, download, faults)
        if label in VINDR_GLOBAL_LABELS:
            if any(row[column] for column in BOX):
                faults.add(row.problem(", ".join(BOX), f"must be blank for {label!r}", _texts(row)), image_id)
        elif label is not None:
            drawn.append((label, row))
    labels = download.files.get(f"image_labels_{split}")
    if labels is not None:
        _read_labels(labels, split, images, faults, warnings)
    return images


def _label(row: TableRow, download: Download, faults: Faults) -> str | None:
    """Canonical label of a row of boxes, None after noting that it is none."""
    known = (*download.findings, "No finding") if download.kaggle else LABELS
    label, shown = known_finding(row["class_name"], known)
    if label is None:
        faults.add(row.problem("class_name", f"must be one of {len(known)} labels", shown), row["image_id"])
        return None
    if download.kaggle and row["class_id"] != str(known.index(label)):
        rule = f"must be {known.index(label)} for {label!r}"
        faults.add(row.problem("class_id", rule, repr(row["class_id"])), row["image_id"])
        return None
    return label


def _texts(row: TableRow) -> str:
    return ", ".join(row[column] for column in BOX)


def _read_labels(path: Path, split: str, images: dict[str, ImageRows], faults: Faults, warnings: list[str]) -> None:
    """Add the labels of the whole image, one row per image and reader (per image in test)."""
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
    """Label -> column name."""
    columns: dict[str, str] = {}
    for head in heads:
        label, _ = known_finding(head, LABELS)
        if label is not None:
            columns[label] = head
        elif head and head not in needed:
            warnings.append(f"{file}: the column {head!r} is not known and is not read")
    lacking = [label for label in LABELS if label not in columns]
    for label in lacking:
        faults.add(TableRow(file, 1, {}).problem(label, "must be a column", ", ".join(heads)), None)
    return columns
