"""Suggest a mapping for a folder of images with a table of boxes, or with a COCO file.

A suggestion is the text of a ``mapping.yaml`` for :mod:`reveal_bench.sources.own_boxes`. It is a guess from names of
columns and of files, so a person must check it; it is never used by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.exchange.row_places import BOX_COLUMNS
from reveal_bench.files import reading_download
from reveal_bench.sources.boxes import PictureFolder
from reveal_bench.sources.own_boxes_files import LISTED
from reveal_bench.sources.pictures import SUFFIXES
from reveal_bench.sources.source import DownloadProblems, read_json
from reveal_bench.sources.study_labels import NO_LABEL, image_stem
from reveal_bench.sources.study_tree import tables_below
from reveal_bench.tables import InputTable, scan_table

_FINDING = re.compile(r"finding|label|class|categor|patholog|disease|diagnos|abnormal", re.IGNORECASE)
_READER = re.compile(r"reader|rater|radiologist|annotator|rad_id", re.IGNORECASE)
_MOST_FINDINGS = 100
_LARGEST_FRACTION = 1.01  # fractions may exceed 1 by rounding


def suggest_box_mapping(root: Path) -> str | None:
    """Return the text of a mapping for the boxes in a folder of images; None if no table of boxes names its images."""
    root = Path(root)
    if not root.is_dir():
        return None
    with reading_download(root, None, None, None):
        stems = set(PictureFolder.below(root, (*SUFFIXES, ".dcm", ".dicom"), may_be_empty=True).paths)
        for path in tables_below(root) if stems else ():
            name = path.relative_to(root).as_posix()
            content = _of_coco(path, name, stems) if path.suffix == ".json" else None
            if content is None:
                table = scan_table(path, name, DownloadProblems())
                content = None if table is None else _of_table(table, stems)
            if content is not None:
                return _text(content, name)
    return None


def _of_coco(path: Path, name: str, stems: set[str]) -> dict[str, Any] | None:
    document = read_json(path, dict, lambda _: None)
    images, categories = (document.get(part) for part in ("images", "categories"))
    if not isinstance(images, list) or not isinstance(categories, list) or "annotations" not in document:
        return None
    names = [str(image.get("file_name")) for image in images if isinstance(image, dict)]
    if not _name_pictures(names, stems):
        return None
    findings = [category.get("name") for category in categories if isinstance(category, dict)]
    return {"boxes": name, "images": LISTED, "findings": findings}


def _of_table(table: InputTable, stems: set[str]) -> dict[str, Any] | None:
    by_name = {column.casefold(): column for column in table.columns}
    box = next(
        (names for names in BOX_COLUMNS if set(names) <= by_name.keys() and BOX_COLUMNS[names] != "cxcywh"), None
    )
    cells = {column: [row[column] for row in table.rows] for column in table.columns}
    image = next((column for column, texts in cells.items() if _name_pictures(texts, stems)), None)
    if box is None or image is None:
        return None
    columns = [by_name[name] for name in box]
    others = {column: texts for column, texts in cells.items() if column not in (image, *columns)}
    finding = next((column for column in others if _FINDING.search(column) and not _are_numbers(others[column])), None)
    content: dict[str, Any] = {"boxes": table.file, "image": {"column": image, "matches": "file"}}
    content["finding"] = {"column": finding or "WHICH COLUMN"}
    content[BOX_COLUMNS[box]] = columns
    numbers = [abs(float(text)) for column in columns for text in cells[column] if _are_numbers([text])]
    content["coordinates"] = "normalised" if numbers and max(numbers) <= _LARGEST_FRACTION else "pixels"
    readers = [column for column in others if _READER.search(column)]
    if readers:
        content["reader"] = {"column": readers[0]}
    texts = dict.fromkeys(others.get(finding or "", ()))
    has_empty = any(not cells[column][i] for column in columns for i in range(len(table.rows)))
    if has_empty or any(text.casefold() in NO_LABEL for text in texts):
        content["images"] = LISTED
    content["findings"] = [text for text in texts if text and text.casefold() not in NO_LABEL][:_MOST_FINDINGS]
    return content


def _name_pictures(texts: Sequence[str], stems: set[str]) -> bool:
    """Return True if at least half of the texts are names of the pictures."""
    return bool(texts) and 2 * sum(image_stem(text) in stems for text in texts) >= len(texts)


def _are_numbers(texts: Sequence[str]) -> bool:
    return all(re.fullmatch(r"-?\d*\.?\d+(e-?\d+)?", text, re.IGNORECASE) for text in texts)


def _text(content: Mapping[str, Any], name: str) -> str:
    import yaml

    notes = [f"# Guessed from {name}: read every line before you use it."]
    if "images" not in content:
        notes.append(
            "# Images without a box are left out. If others were read, and have none, add `images: all pictures`."
        )
    notes.append("# Build with --id-key FILE, which makes ids from a secret, or add `ids: public` to keep the names.")
    return "\n".join(notes) + "\n" + yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=110)
