"""The files of MS-CXR, parsed strictly: one row per box, from the CSV file or from the COCO JSON file.

Traps handled here:

* the CSV was made from the JSON by cutting coordinates to whole pixels;
* a picture occurs under several entries of the JSON file's ``images``;
* the files of version 1.0.0 have no splits;
* all rows of a picture must agree on its size, path and split.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reveal_bench.boxes import Box
from reveal_bench.builders.box_files import Faults, TableRow, find_file, known_finding, read_box, read_table
from reveal_bench.builders.source import Problem
from reveal_bench.builders.strict_json import parse_json
from reveal_bench.findings import MS_CXR_FINDINGS

__all__ = ["PhraseBox", "alignment_files", "read_rows"]

PATTERNS = {"boxes": "MS_CXR_Local_Alignment_v1.[01].0.csv", "coco": "MS_CXR_Local_Alignment_v1.[01].0.json"}
BOX = ("x", "y", "w", "h")
SIZE = ("image_width", "image_height")
COLUMNS = ("dicom_id", "category_name", "label_text", "path", *BOX, *SIZE)
SPLITS = {"train": "train", "val": "validation", "validate": "validation", "validation": "validation", "test": "test"}
_PATH = re.compile(r"(?:.*/)?p\d{2}/(p\d+)/(s\d+)/([0-9a-f-]+)\.(?:jpg|dcm)")


@dataclass(frozen=True, slots=True)
class PhraseBox:
    """One box with the phrase it belongs to; `line` is the row, or the number of the annotation, in `file`."""

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
    line: int


def alignment_files(root: Path) -> dict[str, Path]:
    """The CSV file ("boxes") and the JSON file ("coco"), those that are there."""
    found = {role: find_file(root, pattern) for role, pattern in PATTERNS.items()}
    return {role: path for role, path in found.items() if path is not None}


def read_rows(files: dict[str, Path], faults: Faults, warnings: list[str]) -> list[PhraseBox]:
    """Boxes of the CSV file, or of the JSON file where there is no CSV; where both are there, they must agree."""
    rows: dict[str, list[PhraseBox]] = {}
    if "boxes" in files:
        table = read_table(files["boxes"], COLUMNS, faults, warnings, optional=("split", "subject_id", "study_id"))
        rows["boxes"] = _checked(table, faults)
    if "coco" in files:
        rows["coco"] = _checked(_coco_table(files["coco"], faults), faults)
    if len(rows) == 2 and not faults.problems:
        _compare(rows["boxes"], rows["coco"], faults)
    chosen = next(iter(rows.values()))
    if chosen and not any(row.split for row in chosen):
        warnings.append(f"{chosen[0].file}: no splits (as in version 1.0.0), all images are of the split 'test'")
        return [replace(row, split="test") for row in chosen]
    return chosen


def _coco_table(path: Path, faults: Faults) -> list[TableRow]:
    """The annotations of the JSON file with the columns of the CSV file."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
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
            rule = "must have a known image_id and category_id, a label_text and a bbox of four"
            faults.add(Problem(path.name, number, "annotation", rule, f"{type(error).__name__}: {error}"), None)
            continue
        table.append(TableRow(path.name, number, values))
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


def _checked(table: Sequence[TableRow], faults: Faults) -> list[PhraseBox]:
    rows: list[PhraseBox] = []
    first_of: dict[str, PhraseBox] = {}
    for raw in table:
        row = _checked_row(raw, faults)
        if row is None:
            continue
        rows.append(row)
        first = first_of.setdefault(row.image_id, row)
        for name in ("size", "path", "split"):
            got, wanted = getattr(row, name), getattr(first, name)
            if got != wanted:
                faults.add(raw.problem(name, f"must be that of line {first.line}, {wanted}", got), row.image_id)
    return rows


def _checked_row(raw: TableRow, faults: Faults) -> PhraseBox | None:
    """The row, or None after noting all that is wrong with it."""
    image_id, n_before = raw["dicom_id"], len(faults.problems)
    finding, shown = known_finding(raw["category_name"], MS_CXR_FINDINGS)
    if finding is None:
        faults.add(raw.problem("category_name", f"must be one of {len(MS_CXR_FINDINGS)} categories", shown), image_id)
    match = _PATH.fullmatch(raw["path"])
    if match is None or match[3] != image_id:
        rule = f"must end in p<2 digits>/p<subject>/s<study>/{image_id}.jpg"
        faults.add(raw.problem("path", rule, repr(raw["path"])), image_id)
    if not raw["label_text"]:
        faults.add(raw.problem("label_text", "must be a phrase", "none"), image_id)
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
    """A whole number above 0; some tools write 2544 as 2544.0."""
    match = re.fullmatch(r"([1-9]\d{0,5})(?:\.0+)?", text)
    return None if match is None else int(match[1])


def _compare(table: list[PhraseBox], coco: list[PhraseBox], faults: Faults) -> None:
    """Every box of the one must be in the other, cut to whole pixels."""

    def keys(rows: list[PhraseBox]) -> Counter[tuple[Any, ...]]:
        return Counter((row.image_id, row.finding, row.phrase, *(int(value) for value in row.box)) for row in rows)

    for here, there in ((table, coco), (coco, table)):
        for image_id, finding, phrase, *box in keys(here) - keys(there):
            other = there[0].file if there else "the other file"
            value = f"{finding}, {phrase!r}, {box}"
            faults.add(Problem(here[0].file, image_id, "box", f"must be in {other} too", value), image_id)
