"""Parsers of the files of a user's own boxes: the YAML mapping, and the tables that the mapping names.

docs/sources.md explains the keys of the mapping.

Every image in the tables becomes an :class:`OwnImage` with the boxes of each reader. It also lists the readers who drew
no box. :mod:`reveal_bench.sources.own_boxes` checks the boxes when the size of the image is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reveal_bench.findings import conflict
from reveal_bench.geometry import stated_rotation
from reveal_bench.sources.boxes import LIMITS, BoxRow, Faults, known_finding
from reveal_bench.sources.mapping import MappingParser, is_split_name, load_mapping
from reveal_bench.sources.reveal_cxr import UNDIVIDED
from reveal_bench.sources.source import BuildError, DownloadProblems, Problem, read_document, read_json
from reveal_bench.sources.study_labels import NO_LABEL, image_stem
from reveal_bench.tables import missing_columns, scan_table
from reveal_bench.words import count_text

KEYS = ("boxes", "sheet", "image", "finding", "xyxy", "xywh", "coordinates", "reader", "images", "findings", "ids")
OF_COCO = ("boxes", "images", "findings", "ids")
IMAGES = "table of images"
LISTED, PICTURED = "in the table", "all pictures"
COCO_BOX = ("bbox[0]", "bbox[1]", "bbox[2]", "bbox[3]")
ROTATION = "rotation"
"""Column, or field of a COCO annotation, with the clockwise rotation of a box about its centre, in degrees."""
REFERENCE = ""
"""Key of the reference boxes in a dict from reader to boxes."""


@dataclass(frozen=True)
class BoxMapping:
    """A parsed mapping. The fields from `image` to `reader` are names of columns; "" means no column."""

    file: str
    boxes: str
    findings: tuple[str, ...]
    sheet: str | None = None
    image: str = "image"
    matches: Literal["file", "SOPInstanceUID"] = "file"
    finding: str = "finding"
    box: tuple[str, ...] = COCO_BOX
    form: Literal["xywh", "xyxy"] = "xywh"
    is_normalised: bool = False
    reader: str = ""
    reference: str = ""
    images: Mapping[str, str] | str = ""
    has_public_ids: bool = False

    @property
    def is_coco(self) -> bool:
        """True if the boxes are in a COCO file, so that the mapping names no columns."""
        return not self.image


def is_of_boxes(path: Path) -> bool:
    """Return True if a mapping file describes a table of boxes (has the key ``boxes``)."""
    try:
        return re.search(r"^boxes *:", read_document(path), re.MULTILINE) is not None
    except (OSError, UnicodeDecodeError):
        return False


def read_box_mapping(path: Path) -> BoxMapping:
    """Return the parsed mapping of a table of boxes.

    Raises
    ------
    BuildError
        With all problems of the mapping.
    """
    problems = DownloadProblems()
    content = load_mapping(path, problems)
    mapping = _BoxParser(path.name, problems).boxes(content) if content is not None else None
    if mapping is None or problems:
        raise BuildError(problems)
    return mapping


class _BoxParser(MappingParser):
    """Converter of parsed YAML to a :class:`BoxMapping`; it adds all problems to `problems`."""

    def boxes(self, content: dict[str, Any]) -> BoxMapping:
        is_coco = "image" not in content and str(content.get("boxes")).endswith(".json")
        self._only(content, OF_COCO if is_coco else KEYS, "mapping")
        if content.get("ids", "public") != "public":
            self._fail("ids", "must be 'public' or left out", str(content["ids"])[:80])
        mapping = BoxMapping(
            file=self.file,
            boxes=self._path_within(content.get("boxes"), "boxes"),
            findings=self._own_findings(content.get("findings")),
            images=self._images(content.get("images", LISTED if is_coco else "")),
            has_public_ids="ids" in content,
            image="",
        )
        return mapping if is_coco else self._columns(content, mapping)

    def _images(self, entry: Any) -> Mapping[str, str] | str:
        if isinstance(entry, dict):
            self._only(entry, ("table", "column", "patient", "split"), "images")
            for name in {"column", *entry} - {"table"}:
                self._text(entry.get(name), f"images.{name}")
            return {**entry, "table": self._path_within(entry.get("table"), "images.table")}
        if entry not in ("", LISTED, PICTURED):
            self._fail(
                "images",
                f"must be {LISTED!r}, {PICTURED!r}, or a mapping with the keys table and column",
                str(entry)[:80],
            )
        return str(entry)

    def _columns(self, content: dict[str, Any], mapping: BoxMapping) -> BoxMapping:
        image = self._mapping(content.get("image"), "image", ("column", "matches"))
        if image.get("matches", "file") not in ("file", "SOPInstanceUID"):
            self._fail("image.matches", "must be 'file' or 'SOPInstanceUID'", str(image["matches"])[:80])
        forms = [form for form in ("xyxy", "xywh") if form in content]
        columns = content[forms[0]] if len(forms) == 1 else None
        if not isinstance(columns, list) or len(columns) != 4 or not all(isinstance(c, str) and c for c in columns):
            self._fail(
                "xyxy",
                "or `xywh` must list four columns, and the other key must be left out",
                str(columns or " and ".join(forms))[:80],
            )
            columns = []
        if content.get("coordinates") not in ("pixels", "normalised"):
            self._fail("coordinates", "must be 'pixels' or 'normalised'", str(content.get("coordinates"))[:80])
        reader = self._mapping(content.get("reader", {}), "reader", ("column", "reference"))
        return replace(
            mapping,
            sheet=content.get("sheet") or None,
            image=self._text(image.get("column"), "image.column"),
            matches=image.get("matches", "file"),
            finding=self._text(
                self._mapping(content.get("finding"), "finding", ("column",)).get("column"), "finding.column"
            ),
            box=tuple(columns),
            form="xyxy" if forms == ["xyxy"] else "xywh",
            is_normalised=content.get("coordinates") == "normalised",
            reader=self._text(reader.get("column"), "reader.column") if reader else "",
            reference=self._text(reader["reference"], "reader.reference") if "reference" in reader else "",
        )


@dataclass
class OwnImage:
    """An image with its boxes, as the tables state them.

    Attributes
    ----------
    first : the first row that names the image
    drawn : dict from reader to (finding, row) of each box; an empty list for a reader who drew no box
    empty : dict from reader to the row that says that this reader drew no box
    listed : the image's entry in a COCO file, with `width` and `height`
    """

    first: BoxRow
    drawn: dict[str, list[tuple[str, BoxRow]]] = field(default_factory=dict)
    empty: dict[str, BoxRow] = field(default_factory=dict)
    listed: BoxRow | None = None
    patient: str = ""
    split: str = UNDIVIDED


@dataclass
class OwnTables:
    """Every image that the tables name, and every reader with the first row that names the reader."""

    mapping: BoxMapping
    images: dict[str, OwnImage] = field(default_factory=dict)
    readers: dict[str, BoxRow] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return the numbers of images, images with boxes, boxes and readers."""
        by_reader = [image.drawn for image in self.images.values()]
        return {
            "images": len(by_reader),
            "images with boxes": sum(any(boxes.values()) for boxes in by_reader),
            "boxes": sum(len(rows) for boxes in by_reader for rows in boxes.values()),
            "readers": len(self.readers),
        }


def read_tables(mapping: BoxMapping, files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> OwnTables:
    """Return the parsed tables, and note their problems."""
    tables = OwnTables(mapping)
    if IMAGES in files and not isinstance(mapping.images, str):
        _read_images(files[IMAGES], mapping.images, tables, faults, warnings)
    if mapping.is_coco:
        content = read_json(files["boxes"], dict, lambda problem: faults.add(problem, None))
        rows = _coco_rows(files["boxes"].name, content, tables, faults)
        warnings += _unread_fields(files["boxes"].name, content)
    else:
        rows = _box_rows(files["boxes"], mapping, faults, warnings)
    for row in rows:
        _add_box(row, tables, faults)
    _check_readers(tables, faults)
    is_said = any(image.empty for image in tables.images.values())
    if tables.readers.keys() - {mapping.reference} and mapping.images and not is_said:
        warnings.append(
            "no row says that a reader drew no box, so each reader is assumed to have read only the "
            "images with a box by that reader"
        )
    return tables


def _rows(
    path: Path, sheet: str | None, columns: Sequence[str], named_in: str, faults: Faults
) -> tuple[list[BoxRow], tuple[str, ...]]:
    """Return (rows with only `columns` and a rotation, names of all columns of the table).

    Both are empty after a problem.
    """
    problems = DownloadProblems()
    table = scan_table(path, path.name, problems, sheet=sheet, limits=LIMITS)
    problems += [] if table is None else missing_columns(table, columns, named_in=named_in)
    for problem in problems:
        faults.add(problem, None)
    if table is None or problems:
        return [], ()
    used = [*columns, *([ROTATION] if ROTATION in table else [])]
    cells = ({column: row[column] for column in used} for row in table.rows)
    rows = [BoxRow(table.file, row.number, values) for row, values in zip(table.rows, cells, strict=True)]
    return rows, table.columns


def _box_rows(path: Path, mapping: BoxMapping, faults: Faults, warnings: list[str]) -> list[BoxRow]:
    columns = [mapping.image, mapping.finding, *mapping.box, *filter(None, [mapping.reader])]
    rows, all_columns = _rows(path, mapping.sheet, columns, mapping.file, faults)
    warnings += _unused(path.name, all_columns, mapping, columns)
    return rows


def _unused(file: str, columns: Sequence[str], mapping: BoxMapping, named: Sequence[str]) -> list[str]:
    """Return a warning for each unused column whose name begins with "patient" or "split"."""
    keys = [key for key in ("patient", "split") if isinstance(mapping.images, str) or key not in mapping.images]
    return [
        (
            f"{file}: the column {column!r} is not read; to use it, name a table with a row per image in the "
            f"mapping: images: {{table: FILE, column: NAME, {key}: {column}}}"
        )
        for column in columns
        for key in keys
        if column.casefold().startswith(key) and column.casefold() not in {name.casefold() for name in named}
    ]


def _read_images(path: Path, named: Mapping[str, str], tables: OwnTables, faults: Faults, warnings: list[str]) -> None:
    columns = [named[name] for name in ("column", "patient", "split") if name in named]
    rows, all_columns = _rows(path, None, columns, tables.mapping.file, faults)
    warnings += _unused(path.name, all_columns, tables.mapping, columns)
    for row in rows:
        name = image_stem(row[named["column"]])
        patient, split = (row[named[key]] if key in named else default for key, default in
                          (("patient", ""), ("split", UNDIVIDED)))  # fmt: skip
        if not name or name in tables.images:
            rule = "must name an image, and each only once"
            faults.add(row.problem(named["column"], rule, repr(row[named["column"]])), None)
            continue
        tables.images[name] = OwnImage(row, patient=patient, split=split)
        if not is_split_name(split):
            faults.add(row.problem(named["split"], "must be the name of a split", repr(split)), name)
        if "patient" in named and not patient:
            faults.add(row.problem(named["patient"], "must name the image's patient", "a blank cell"), name)


def _coco_rows(file: str, content: Mapping[str, Any], tables: OwnTables, faults: Faults) -> list[BoxRow]:
    """Return the annotations of a COCO file as rows of boxes, and add its images to `tables`.

    Instead of a line number, a row has the position in the file, such as ``annotations[3]``.
    """
    try:
        images: dict[Any, str] = {}
        for row, entry in _entries(file, content, "images"):
            row = replace(row, values={"image": str(entry["file_name"]), **_size_of(entry)})
            if entry["id"] in images:
                faults.add(row.problem("id", "must be unique among images", entry["id"]), None)
            images[entry["id"]] = row["image"]
            _list_image(row, tables, faults)
        names = {entry["id"]: str(entry["name"]) for entry in content.get("categories", ())}
        rows, seen = list[BoxRow](), set[Any]()
        for row, entry in _entries(file, content, "annotations"):
            problem = _coco_problem(row, entry, images, names, seen)
            if problem is not None:
                faults.add(problem, image_stem(images[entry["image_id"]]) if entry["image_id"] in images else None)
                continue
            values = {"image": images[entry["image_id"]], "finding": names[entry["category_id"]]}
            box = dict(zip(COCO_BOX, map(str, entry["bbox"]), strict=True))
            rows.append(replace(row, values={**values, **box, ROTATION: str(stated_rotation(entry))}))
    except (TypeError, KeyError, AttributeError) as error:
        rule = "must be COCO: images with id and file_name, categories with id and name, annotations with image_id, "
        rule += "category_id and bbox"
        faults.add(Problem(file, None, "file", rule, f"{type(error).__name__} {error}"[:200]), None)
        return []
    return rows


def _unread_fields(file: str, content: Mapping[str, Any]) -> list[str]:
    """Return a warning for each field of COCO annotations that states more than a box by a reader."""
    annotations = content.get("annotations")
    annotations = annotations if isinstance(annotations, list) else []
    consequences = {
        "segmentation": "only the bbox of each is read",
        "score": "is this the output of a model, and not a reference?",
    }
    counts = {
        name: sum(isinstance(one, dict) and one.get(name) not in (None, [], {}) for one in annotations)
        for name in consequences
    }
    return [
        f"{file}: {count_text(n, 'annotation')} with a `{name}`: {consequences[name]}"
        for name, n in counts.items()
        if n
    ]


def _entries(file: str, content: Mapping[str, Any], key: str) -> Iterator[tuple[BoxRow, Mapping[str, Any]]]:
    return ((BoxRow(file, f"{key}[{i}]", {}), entry) for i, entry in enumerate(content.get(key, ())))


def _size_of(entry: Mapping[str, Any]) -> dict[str, str]:
    return {side: str(entry[side]) for side in ("width", "height") if side in entry}


def _coco_problem(
    row: BoxRow, entry: Mapping[str, Any], images: Mapping[Any, str], names: Mapping[Any, str], seen: set[Any]
) -> Problem | None:
    """Return the problem of an annotation, or None.

    `seen` contains the ids of earlier annotations.
    """
    if entry["image_id"] not in images:
        return row.problem("image_id", "must be the id of an image", entry["image_id"])
    if entry["category_id"] not in names:
        return row.problem("category_id", "must be the id of a category", entry["category_id"])
    if len(entry["bbox"]) != 4:
        return row.problem("bbox", "must be [x, y, width, height]", entry["bbox"])
    if entry.get("iscrowd"):
        return row.problem(
            "iscrowd", "must be 0, because a region with several lesions cannot be one box", entry["iscrowd"]
        )
    if "id" in entry and entry["id"] in seen:
        return row.problem("id", "must be unique among annotations", entry["id"])
    seen.add(entry.get("id"))
    return None


def _list_image(row: BoxRow, tables: OwnTables, faults: Faults) -> None:
    """Add an image of a COCO file to the tables."""
    name = image_stem(row["image"])
    _check_table(name, row, "image", tables, faults)
    image = tables.images.setdefault(name, OwnImage(row))
    if image.listed is not None:
        rule = f"must be listed once, but is also at {image.listed.line}"
        faults.add(row.problem("file_name", rule, row["image"]), name)
    image.listed = row


def _check_table(name: str, row: BoxRow, column: str, tables: OwnTables, faults: Faults) -> None:
    """Note a problem if the mapping names a table of images that does not list the image."""
    images = tables.mapping.images
    if not isinstance(images, str) and name not in tables.images:
        faults.add(row.problem(column, f"must be in {images['table']}", repr(row[column])), name)


def _add_box(row: BoxRow, tables: OwnTables, faults: Faults) -> None:
    mapping = tables.mapping
    column, finding_column = mapping.image or "image", mapping.finding
    name, label = image_stem(row[column]), row[finding_column]
    if not name:
        faults.add(row.problem(column, "must name an image", "a blank cell"), None)
        return
    _check_table(name, row, column, tables, faults)
    image = tables.images.setdefault(name, OwnImage(row))
    reader = row[mapping.reader] if mapping.reader else REFERENCE
    if mapping.reader and not reader:
        faults.add(row.problem(mapping.reader, "must name who drew the box", "a blank cell"), name)
    elif reader:
        tables.readers.setdefault(reader, row)
    reader = REFERENCE if reader == mapping.reference else reader
    own_boxes = image.drawn.setdefault(reader, [])
    is_blank = not any(row[column] for column in mapping.box)
    finding, value = known_finding(label, mapping.findings)
    if is_blank and (not label or label.casefold() in NO_LABEL or conflict((finding or "", ""), mapping.findings)):
        image.empty[reader] = row
        if not mapping.images:
            rule = "must name a finding unless the mapping says with `images` which images were read"
            faults.add(row.problem(finding_column, rule, repr(label) if label else "a blank cell"), name)
    elif finding is None:
        faults.add(row.problem(finding_column, "must be one of the mapping's findings", value), name)
    else:
        own_boxes.append((finding, row))


def _check_readers(tables: OwnTables, faults: Faults) -> None:
    """Note contradictory rows of a reader, reader names that differ only in case, and an unknown reference reader."""
    mapping = tables.mapping
    for name, image in tables.images.items():
        for reader, row in image.empty.items():
            if image.drawn[reader]:
                by = "the same reader's" if mapping.reader else "this image's"
                rule = f"must not be blank, because {by} box is in line {image.drawn[reader][0][1].line}"
                faults.add(row.problem(mapping.finding, rule, "a blank cell"), name)
    spelt: dict[str, str] = {}
    for reader, row in tables.readers.items():
        first = spelt.setdefault(reader.casefold(), reader)
        if first != reader:
            rule = f"must be spelt as in line {tables.readers[first].line}: {first}"
            faults.add(row.problem(mapping.reader, rule, reader), None)
    if mapping.reference and tables.readers and mapping.reference not in tables.readers:
        rule = f"must be one of {', '.join(sorted(tables.readers))}"
        faults.add(Problem(mapping.file, None, "reader.reference", rule, repr(mapping.reference)), None)
