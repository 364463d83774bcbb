"""RSNA Pneumonia: boxes of lung opacities suspicious of pneumonia, on images of NIH ChestX-ray14.

Source: Kaggle, RSNA Pneumonia Detection Challenge, stage 2 (Shih et al. 2019): ``stage_2_train_labels.csv`` (patientId,
x, y, width, height, Target), ``stage_2_detailed_class_info.csv`` (patientId, class), ``stage_2_train_images/*.dcm``.

Conventions
-----------
* Every picture is 1024 x 1024 pixels. An image has one row per box (Target 1), or one row without a box (Target 0).
* There is one finding, "Lung Opacity", which is present if the image has boxes, else absent. The config ``classes`` has
  one of three classes per image: "Normal", "No Lung Opacity / Not Normal" or "Lung Opacity". For the first two classes
  the finding is absent.
* A "patientId" identifies an image, not a patient. RSNA's mapping to ChestX-ray14, published beside the challenge as
  ``pneumonia-challenge-dataset-mappings_2018.json``, names the patient of each image. Without this file `patient_id`
  repeats the image id, so a patient with several images counts as several patients.
* The view is read from the DICOM header. The pixel spacing in the header refers to the original image before
  downscaling, so records have no spacing. The images of the challenge's test set have no public labels and are not part
  of the dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reveal_bench.dicom.header import Header
from reveal_bench.files import parse_json
from reveal_bench.findings import RSNA_FINDINGS
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    NIH_SIDE,
    NO_PATIENTS,
    BoxRow,
    Faults,
    annotate_boxes,
    dicom_headers,
    find_files,
    nih_record,
    read_box,
    read_table,
)
from reveal_bench.sources.source import Extra, Problem, read_document, table_features
from reveal_bench.words import count_text

CLASSES = ("Normal", "No Lung Opacity / Not Normal", "Lung Opacity")
PUBLISHED = {"images": 26684, "images with boxes": 6012, "boxes": 9555}
"""Counts of the published training set."""

PATTERNS = {
    "boxes": ["stage_2_train_labels.csv*"],
    "classes": ["stage_2_detailed_class_info.csv*"],
    "patients": ["pneumonia-challenge-dataset-mappings*.json"],
}
BOX = ("x", "y", "width", "height")
(FINDING,) = RSNA_FINDINGS
Boxes = dict[str, list[Box]]


@dataclass(frozen=True)
class _RsnaTables:
    """Parsed tables, by image id.

    `boxes` has [] for an image without a box; `classes` and `patients` lack images whose class or patient is unknown.
    """

    boxes: Boxes
    first_of: dict[str, BoxRow]
    classes: dict[str, str]
    patients: dict[str, str]


def _make(build: BoxBuild[_RsnaTables]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
    tables = build.parsed
    films = build.films([".dcm"], kind="dicom")
    pictures = films.pictures_of(tables.first_of, build.faults)
    headers = dicom_headers(pictures, build.faults, workers=build.workers)
    build.warnings += films.warnings(tables.boxes)
    build.settle()
    records = [
        _record(image_id, own, tables.patients.get(image_id, image_id), pictures.get(image_id), headers.get(image_id))
        for image_id, own in tables.boxes.items()
        if image_id not in build.faults.bad
    ]
    rows = [
        {"image_id": record.image_id, "class": CLASSES.index(tables.classes[record.image_id])}
        for record in records
        if record.image_id in tables.classes
    ]
    return {"train": records}, [
        Extra("classes", table_features(image_id="string", **{"class": CLASSES}), rows, key="image_id")
    ] if rows else []


def _files(root: Path) -> dict[str, Path]:
    files = find_files(root, PATTERNS)
    if root.is_file():
        files |= find_files(root.parent, {role: PATTERNS[role] for role in ("classes", "patients")})
    return files if "boxes" in files else {}


def _parse(files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> _RsnaTables:
    boxes, first_of = _read_boxes(files["boxes"], faults, warnings)
    classes = _read_classes(files.get("classes"), boxes, faults, warnings)
    patients = _read_patients(files.get("patients"), boxes, faults, warnings)
    return _RsnaTables(boxes, first_of, classes, patients)


def _read_boxes(path: Path, faults: Faults, warnings: list[str]) -> tuple[Boxes, dict[str, BoxRow]]:
    """Return (boxes, first rows), both by image id; an image without a box has an empty list of boxes."""
    boxes: Boxes = {}
    first_of: dict[str, BoxRow] = {}
    for row in read_table(path, ("patientId", *BOX, "Target"), faults, warnings):
        image_id, target = row["patientId"], row["Target"]
        first = first_of.setdefault(image_id, row)
        own_boxes = boxes.setdefault(image_id, [])
        if target not in ("0", "1"):
            faults.add(row.problem("Target", "must be 0 or 1", repr(target)), image_id)
        elif target != first["Target"]:
            faults.add(row.problem("Target", f"must be the same as in line {first.line}", target), image_id)
        elif target == "1":
            box = read_box(row, BOX, faults, image_id, form="xywh", size=(NIH_SIDE, NIH_SIDE))
            own_boxes += [box] if box is not None else []
        elif any(row[column] for column in BOX):
            texts = ", ".join(row[column] for column in BOX)
            faults.add(row.problem(", ".join(BOX), "must be blank if Target is 0", texts), image_id)
        elif row is not first:
            faults.add(row.problem("patientId", "must have only one row if Target is 0", image_id), image_id)
    return boxes, first_of


def _counts(tables: _RsnaTables) -> dict[str, int]:
    boxes = tables.boxes
    return {
        "images": len(boxes),
        "images with boxes": sum(bool(own_boxes) for own_boxes in boxes.values()),
        "boxes": sum(len(own_boxes) for own_boxes in boxes.values()),
    }


def _read_classes(path: Path | None, boxes: Boxes, faults: Faults, warnings: list[str]) -> dict[str, str]:
    """Return a dict from image id to class; the table has a row for each box of an image."""
    if path is None:
        warnings.append("stage_2_detailed_class_info.csv is missing, so there is no config 'classes'")
        return {}
    classes: dict[str, str] = {}
    for row in read_table(path, ("patientId", "class"), faults, warnings):
        image_id, name = row["patientId"], row["class"]
        if name not in CLASSES:
            rule = f"must be one of {', '.join(map(repr, CLASSES))}"
            faults.add(row.problem("class", rule, repr(name)), image_id)
        elif image_id not in boxes:
            faults.add(row.problem("patientId", "must be in the table of labels", repr(image_id)), image_id)
        elif classes.setdefault(image_id, name) != name:
            faults.add(
                row.problem(
                    "class", f"must be the same in all rows of an image, here {classes[image_id]!r}", repr(name)
                ),
                image_id,
            )
        elif (name == FINDING) != bool(boxes[image_id]) and image_id not in faults.bad:
            value = f"{name!r} and {len(boxes[image_id])} boxes"
            faults.add(row.problem("class", f"must be {FINDING!r} if and only if the image has boxes", value), image_id)
    return classes


def _read_patients(path: Path | None, boxes: Boxes, faults: Faults, warnings: list[str]) -> dict[str, str]:
    """Return a dict from image id to patient id in ChestX-ray14."""
    if path is None:
        warnings.append(f"without the mapping to ChestX-ray14, {NO_PATIENTS}")
        return {}
    patients: dict[str, str] = {}
    try:
        for entry in parse_json(read_document(path)):
            patients[str(entry["subset_img_id"])] = str(entry["img_id"]).split("_")[0]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        rule = "must be a JSON list of entries with subset_img_id and img_id"
        faults.add(Problem(path.name, None, "file", rule, f"{type(error).__name__}: {error}"), None)
        return {}
    n_lacking = len(boxes.keys() - patients.keys())
    if n_lacking:
        alone = f"{path.name}: {count_text(n_lacking, 'image')} without an entry"
        warnings.append(f"{alone}; each counts as a separate patient")
    return patients


def _record(
    image_id: str, boxes: list[Box], patient_id: str, picture: PictureFile | None, header: Header | None
) -> LocalizationRecord:
    return nih_record(
        image_id,
        {FINDING: int(bool(boxes))},
        [annotate_boxes(FINDING, boxes, (NIH_SIDE, NIH_SIDE))] if boxes else [],
        picture,
        patient_id=patient_id,
        header=header,
    )


SOURCE = BoxSource(
    name="rsna-pneumonia",
    needs="stage_2_train_labels.csv",
    published=PUBLISHED,
    find=_files,
    parse=_parse,
    count=_counts,
    pictured=lambda build: build.films([".dcm"], kind="dicom").present(build.parsed.first_of),
    make=_make,
)
detect, inspect, read = SOURCE.detect, SOURCE.inspect, SOURCE.read
