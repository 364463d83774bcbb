"""MS-CXR: boxes for phrases of radiology reports, in eight categories, on pictures of MIMIC-CXR-JPG.

Source: PhysioNet (Boecking et al. 2022), ``MS_CXR_Local_Alignment_v1.1.0.csv`` or the same boxes as COCO ``.json``;
version 1.0.0 is also read. The pictures are those of MIMIC-CXR-JPG, published unchanged.

Conventions
-----------
* Either the CSV or the JSON file suffices. If the download has both files, they must contain the same boxes, and the
  CSV file is used.
* Boxes are in pixels of the full-size JPEG, whose size every row states; a picture of another size is an error.
* A phrase may have several boxes, one per row. Boxes of the same category and picture become one annotation. The config
  ``phrases`` has each phrase with its box.
* The boxes show phrases of reports, not every finding, so a category without a box is unlabelled, not absent.
* Patient and study are read from ``path``, ``files/p10/p<subject>/s<study>/<dicom>.jpg``. The view comes from the
  metadata table of MIMIC-CXR-JPG if that table is present: ``view_raw`` is the text in the table, ``view`` the
  standardised term. MS-CXR describes all pictures as frontal, so a picture without a view is FRONTAL. A picture that
  the metadata describe as lateral or oblique gets that view (LATERAL or UNKNOWN). Both are counted in warnings.
* `pictures` is the root folder of MIMIC-CXR-JPG, which contains ``files``. It is required when pixels are embedded; if
  pixels are withheld, its default is the download.

Traps handled here:

* the CSV file was made from the JSON file by truncating coordinates to whole pixels;
* several entries of ``images`` in the JSON file may describe the same picture;
* the files of version 1.0.0 have no splits;
* all rows of a picture must agree on its size, path and split.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import leads_out, parse_json
from reveal_bench.findings import MS_CXR_FINDINGS
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    UNLESS_WITHHELD,
    BoxRow,
    Faults,
    annotate_boxes,
    count_views,
    find_file,
    find_files,
    known_finding,
    no_pictures,
    read_box,
    read_table,
)
from reveal_bench.sources.mimic_cxr_jpg import table_rows, view_of
from reveal_bench.sources.source import (
    DownloadProblems,
    Extra,
    FindingColumn,
    MissingPicture,
    Problem,
    read_document,
    table_features,
)
from reveal_bench.words import count_text

PATTERNS = {"boxes": ["MS_CXR_Local_Alignment_v1.[01].0.csv"], "coco": ["MS_CXR_Local_Alignment_v1.[01].0.json"]}
BOX = ("x", "y", "w", "h")
SIZE = ("image_width", "image_height")
COLUMNS = ("dicom_id", "category_name", "label_text", "path", *BOX, *SIZE)
SPLITS = {"train": "train", "val": "validation", "validate": "validation", "validation": "validation", "test": "test"}
_PATH = re.compile(r"(?:.*/)?p\d{2}/(p\d+)/(s\d+)/([0-9a-f-]+)\.(?:jpg|dcm)")


@dataclass(frozen=True, slots=True)
class PhraseBox:
    """A box and its phrase; `line` is the number of the row, or of the annotation, in `file`."""

    image_id: str
    patient_id: str
    study_id: str
    finding: str
    phrase: str
    box: Box
    path: str
    size: tuple[int, int]
    split: str
    file: str
    line: int | str


def read_rows(files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> list[PhraseBox]:
    """Return the boxes of the CSV file or, without it, of the JSON file; note differences between the two files."""
    rows: dict[str, list[PhraseBox]] = {}
    if "boxes" in files:
        table = read_table(files["boxes"], COLUMNS, faults, warnings, optional=("split", "subject_id", "study_id"))
        rows["boxes"] = _checked(table, faults)
    if "coco" in files:
        rows["coco"] = _checked(_coco_table(files["coco"], faults), faults)
    if len(rows) == 2 and not faults.problems:
        _compare(rows["boxes"], rows["coco"], faults)
    boxes = next(iter(rows.values()))
    if boxes and not any(row.split for row in boxes):
        warnings.append(f"{boxes[0].file}: no splits (as in version 1.0.0), so all images are in the split 'test'")
        return [replace(row, split="test") for row in boxes]
    return boxes


def _coco_table(path: Path, faults: Faults) -> list[BoxRow]:
    """Return the annotations of the JSON file as rows with the columns of the CSV file."""
    try:
        content = parse_json(read_document(path))
        images = {image["id"]: image for image in content["images"]}
        categories = {category["id"]: category["name"] for category in content["categories"]}
        annotations = list(content["annotations"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        rule = "must be COCO JSON with images, annotations and categories"
        faults.add(Problem(path.name, None, "file", rule, f"{type(error).__name__}: {error}"), None)
        return []
    table = []
    for number, annotation in enumerate(annotations, start=1):
        try:
            values = _coco_values(annotation, images[annotation["image_id"]], categories)
        except (KeyError, TypeError, ValueError) as error:
            rule = "must have a known image_id and category_id, a label_text and a bbox of four numbers"
            faults.add(Problem(path.name, number, "annotation", rule, f"{type(error).__name__}: {error}"), None)
            continue
        table.append(BoxRow(path.name, number, values))
    return table


def _coco_values(annotation: dict[str, Any], image: dict[str, Any], categories: dict[Any, str]) -> dict[str, str]:
    values = {
        "dicom_id": Path(image.get("file_name") or image["path"]).stem,
        "category_name": categories[annotation["category_id"]],
        "label_text": annotation["label_text"],
        "path": image["path"],
        "image_width": image["width"],
        "image_height": image["height"],
        "split": annotation.get("split") or image.get("split") or "",
        **dict(zip(BOX, annotation["bbox"], strict=True)),
    }
    return {name: str(value) for name, value in values.items()}


def _checked(table: Sequence[BoxRow], faults: Faults) -> list[PhraseBox]:
    rows: list[PhraseBox] = []
    first_of: dict[str, PhraseBox] = {}
    for raw in table:
        row = _checked_row(raw, faults)
        if row is None:
            continue
        rows.append(row)
        first = first_of.setdefault(row.image_id, row)
        for name in ("size", "path", "split"):
            got, expected = getattr(row, name), getattr(first, name)
            if got != expected:
                faults.add(raw.problem(name, f"must be {expected}, as in line {first.line}", got), row.image_id)
    return rows


def _checked_row(raw: BoxRow, faults: Faults) -> PhraseBox | None:
    """Return the box of a row, or None after noting all problems of the row."""
    image_id, n_before = raw["dicom_id"], len(faults.problems)
    finding, value = known_finding(raw["category_name"], MS_CXR_FINDINGS)
    if finding is None:
        faults.add(raw.problem("category_name", f"must be one of {len(MS_CXR_FINDINGS)} categories", value), image_id)
    match = _PATH.fullmatch(raw["path"])
    if match is None or match[3] != image_id:
        rule = f"must end in p<2 digits>/p<subject>/s<study>/{image_id}.jpg"
        faults.add(raw.problem("path", rule, repr(raw["path"])), image_id)
    if not raw["label_text"]:
        faults.add(raw.problem("label_text", "must not be blank", "none"), image_id)
    split = raw.values.get("split", "")
    if split and split.casefold() not in SPLITS:
        faults.add(raw.problem("split", "must be train, val or test", repr(split)), image_id)
    width, height = (_whole(raw[column]) for column in SIZE)
    size = None if width is None or height is None else (height, width)
    if size is None:
        texts = ", ".join(repr(raw[column]) for column in SIZE)
        faults.add(raw.problem(", ".join(SIZE), "must be whole numbers above 0", texts), image_id)
    box = read_box(raw, BOX, faults, image_id, form="xywh", size=size)
    if len(faults.problems) > n_before or finding is None or match is None or size is None or box is None:
        return None
    return PhraseBox(
        image_id=image_id,
        patient_id=match[1],
        study_id=match[2],
        finding=finding,
        phrase=raw["label_text"],
        box=box,
        path=raw["path"],
        size=size,
        split=SPLITS.get(split.casefold(), ""),
        file=raw.file,
        line=raw.line,
    )


def _whole(text: str) -> int | None:
    """Return a text such as "2544" or "2544.0" as a whole number above 0, or None."""
    match = re.fullmatch(r"([1-9]\d{0,5})(?:\.0+)?", text)
    return None if match is None else int(match[1])


def _compare(table: list[PhraseBox], coco: list[PhraseBox], faults: Faults) -> None:
    """Note a problem for each box that only one of the two files has, after truncation to whole pixels."""

    def keys(rows: list[PhraseBox]) -> Counter[tuple[Any, ...]]:
        return Counter((row.image_id, row.finding, row.phrase, *(int(value) for value in row.box)) for row in rows)

    for here, there in ((table, coco), (coco, table)):
        for image_id, finding, phrase, *box in keys(here) - keys(there):
            other = there[0].file if there else "the other file"
            value = f"{finding}, {phrase!r}, {box}"
            faults.add(Problem(here[0].file, image_id, "box", f"must also be in {other}", value), image_id)


PUBLISHED = {"boxes": 1448, "images": 1047}
"""Numbers of boxes and images in version 1.1.0."""

View = tuple[str, str | None]
FRONTAL = ("AP", "PA")
BLANK: View = "UNKNOWN", None
METADATA = ("mimic-cxr-2.*-metadata.csv.gz", "mimic-cxr-2.*-metadata.csv")


PHRASES = table_features(image_id="string", label=MS_CXR_FINDINGS, phrase="string", bbox_xywh=["float64"])
"""Features of the config ``phrases``: a row per box."""
_COLUMN = FindingColumn("label", lambda label: (MS_CXR_FINDINGS[label],))


def _picture_root(build: BoxBuild[list[PhraseBox]]) -> Path:
    root, pictures = build.root, build.pictures
    return Path(pictures) if pictures is not None else root if root.is_dir() else root.parent


def _pictured(build: BoxBuild[list[PhraseBox]]) -> dict[str, bool]:
    pictures = _pictures(build.parsed, _picture_root(build), build.faults, need_all=False)
    return {row.image_id: row.image_id in pictures for row in build.parsed}


def _make(build: BoxBuild[list[PhraseBox]]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
    rows = build.parsed
    if build.pixels == "embed" and build.pictures is None:
        raise ArgumentError("pictures", f"must name the MIMIC-CXR-JPG folder{UNLESS_WITHHELD}", "None", ("pixels",))
    place = _picture_root(build)
    images = _pictures(rows, place, build.faults, need_all=build.pixels == "embed")
    views = _read_views(place, {row.image_id for row in rows}, build.faults, build.warnings)
    build.settle()
    by_image: dict[str, list[PhraseBox]] = {}
    for row in rows:
        if row.image_id not in build.faults.bad:
            by_image.setdefault(row.image_id, []).append(row)
    splits: dict[str, list[LocalizationRecord]] = {split: [] for split in ("train", "validation", "test")}
    for image_id, own in by_image.items():
        splits[own[0].split].append(_record(own, views.get(image_id, BLANK), images.get(image_id)))
    if build.pixels == "withhold":
        build.warnings += no_pictures(len(by_image.keys() - images.keys()))
    phrases = [_phrase(row) for own in by_image.values() for row in own]
    filled_splits = {split: records for split, records in splits.items() if records}
    return filled_splits, [Extra("phrases", PHRASES, phrases, key="image_id", findings=_COLUMN)]


def _phrase(row: PhraseBox) -> dict[str, Any]:
    label = MS_CXR_FINDINGS.index(row.finding)
    return {"image_id": row.image_id, "label": label, "phrase": row.phrase, "bbox_xywh": list(row.box)}


def _counts(rows: list[PhraseBox]) -> dict[str, int]:
    return {
        "boxes": len(rows),
        "images": len({row.image_id for row in rows}),
        "patients": len({row.patient_id for row in rows}),
        "phrases": len({(row.image_id, row.finding, row.phrase) for row in rows}),
    }


def _pictures(rows: list[PhraseBox], root: Path, faults: Faults, *, need_all: bool) -> dict[str, PictureFile]:
    """Return a dict from image id to JPEG file; `root` is the folder ``files`` or the folder that contains it."""
    pictures: dict[str, PictureFile] = {}
    for row in {row.image_id: row for row in rows}.values():
        tail = Path(row.path).with_suffix(".jpg")
        places = (root / tail, root / Path(*tail.parts[-4:]), root / "files" / Path(*tail.parts[-4:]))
        path = next((place for place in places if place.is_file() and not leads_out(place)), None)
        if path is None and need_all:
            rule = f"must exist for {row.image_id}"
            missing = MissingPicture(row.file, row.line, "picture", rule, f"no file {tail}", row.image_id)
            faults.add(missing, row.image_id)
        elif path is not None:
            pictures[row.image_id] = PictureFile(path, path.name, path.relative_to(root).as_posix())
    return pictures


def _read_views(place: Path, image_ids: set[str], faults: Faults, warnings: list[str]) -> dict[str, View]:
    """Return a dict from image id to view from the metadata table of MIMIC-CXR-JPG; {} without that table."""
    path = find_file(place, *METADATA)
    if path is None:
        return {}
    problems = DownloadProblems()
    rows = table_rows(path, ("dicom_id", "ViewPosition"), problems)
    views = {row["dicom_id"]: view_of(row) for row in rows if row["dicom_id"] in image_ids}
    for problem in problems:
        faults.add(problem, None)
    if problems:
        return {}
    odd = [raw for view, raw in views.values() if raw and view not in FRONTAL]
    warnings += count_views(path.name, odd, "with a view that is not frontal (kept)")
    n_blank = sum(raw is None for _, raw in views.values())
    for n, lacking in ((len(image_ids - views.keys()), "row"), (n_blank, "view")):
        if n:
            warnings.append(f"{path.name}: {count_text(n, 'image')} without a {lacking}; their view is set to FRONTAL")
    return views


def _record(rows: list[PhraseBox], view: View, picture: PictureFile | None) -> LocalizationRecord:
    first, (term, raw) = rows[0], view
    boxes: dict[str, list[Box]] = {}
    for row in rows:
        boxes.setdefault(row.finding, []).append(row.box)
    height, width = first.size
    return LocalizationRecord(
        image_id=first.image_id,
        patient_id=first.patient_id,
        study_id=first.study_id,
        view=term if raw else "FRONTAL",
        view_raw=raw,
        width=width,
        height=height,
        label_status={finding: 1 if finding in boxes else None for finding in MS_CXR_FINDINGS},
        annotations=tuple(annotate_boxes(f, boxes[f], first.size) for f in MS_CXR_FINDINGS if f in boxes),
        picture=picture,
    )


SOURCE = BoxSource(
    name="ms-cxr",
    needs="MS_CXR_Local_Alignment_v1.1.0.csv or .json",
    published=PUBLISHED,
    find=lambda root: find_files(root, PATTERNS),
    parse=read_rows,
    count=_counts,
    pictured=_pictured,
    make=_make,
)
detect, inspect, read = SOURCE.detect, SOURCE.inspect, SOURCE.read
