"""Boxes of one's own: pictures, a table with a row per box or a COCO file, and a mapping that says what they mean. ::

    boxes: boxes.csv                  # .tsv, .xlsx, .parquet, .json, .jsonl; or COCO, a .json file of annotations
    image: {column: image, matches: file}          # or SOPInstanceUID
    finding: {column: finding}
    xyxy: [x1, y1, x2, y2]            # the columns; or xywh: [x, y, w, h]
    coordinates: pixels               # or normalised: fractions of width and height
    reader: {column: reader}          # who drew the box; reference: NAME if one reader's boxes are the reference
    images: {table: images.csv, column: image, patient: patient, split: set}
    findings: [Nodule, {name: Pneumothorax, synonyms: [PTX]}]
    ids: public                       # ids are the names in the table; otherwise hashes with a secret key

Conventions
-----------
* Of a COCO file the keys from `image` to `reader` are left out: `file_name`, categories and boxes [x, y, w, h] in
  pixels have one meaning.
* `images` says which images were read for all findings: those of a table, those ``in the table`` of boxes (or listed by
  the COCO file), or ``all pictures``. There a finding without a box is absent. Without the key it is unlabelled.
* A row without finding and numbers is an image without a box; it is a problem unless `images` is ``in the table``.
* With `reader` and without a reference nothing is merged: boxes are those of individual readers, see
  :mod:`reveal_bench.kinds.detection.fusion`. A finding of two readers is present, that of one is unknown.
* Sizes come from the pictures, which are needed even where pixels are withheld: DICOM files if there is any, else PNG
  and JPEG. Patients come from the column `patient` or from DICOM headers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import own_benchmark
from reveal_bench.dicom.header import Header
from reveal_bench.findings import conflict
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    NO_PATIENTS,
    Faults,
    PictureFolder,
    TableRow,
    annotate_boxes,
    box_problem,
    dicom_headers,
    known_finding,
    read_box,
)
from reveal_bench.sources.mapping import MappingParser, is_split_name, load_mapping
from reveal_bench.sources.pictures import SUFFIXES, picture_size
from reveal_bench.sources.reveal_cxr import MAPPING_NAME, UNDIVIDED, Namer
from reveal_bench.sources.source import BuildError, Extra, Inspection, Pixels, Problem, Reading, read_json
from reveal_bench.sources.study_labels import NO_LABEL, PUBLIC_ID, image_stem
from reveal_bench.sources.study_table import missing_columns, read_table

__all__ = ["BoxMapping", "detect", "inspect", "is_of_boxes", "read", "read_box_mapping"]

DICOM = (".dcm", ".dicom")
KEYS = ("boxes", "sheet", "image", "finding", "xyxy", "xywh", "coordinates", "reader", "images", "findings", "ids")
OF_COCO = ("boxes", "images", "findings", "ids")
LISTED, PICTURED = "in the table", "all pictures"
COCO_BOX = ("x", "y", "w", "h")
REFERENCE = ""
"""The reader of boxes that are the reference."""


@dataclass(frozen=True)
class BoxMapping:
    """A mapping that was read; see the module. `image` to `reader` are columns, "" where there is none."""

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
        """Whether no columns are named, for COCO has none."""
        return not self.image


def is_of_boxes(path: Path) -> bool:
    """Whether a mapping is one of boxes."""
    try:
        return re.search(r"^boxes *:", path.read_text(encoding="utf-8-sig"), re.MULTILINE) is not None
    except (OSError, UnicodeDecodeError):
        return False


def read_box_mapping(path: Path) -> BoxMapping:
    """Read a mapping.

    Raises
    ------
    BuildError
        With everything that is wrong with it.
    """
    problems: list[Problem] = []
    content = load_mapping(path, problems)
    found = _BoxParser(path.name, problems).boxes(content) if content is not None else None
    if found is None or problems:
        raise BuildError(problems)
    return found


class _BoxParser(MappingParser):
    """Plain YAML -> BoxMapping; everything that is wrong goes to `problems`."""

    def boxes(self, content: dict[str, Any]) -> BoxMapping:
        is_coco = "image" not in content and str(content.get("boxes")).endswith(".json")
        self._only(content, OF_COCO if is_coco else KEYS, "mapping")
        if content.get("ids", "public") != "public":
            self._fail("ids", "must be public, or left out", str(content["ids"])[:80])
        found = BoxMapping(
            file=self.file,
            boxes=self._path_within(content.get("boxes"), "boxes"),
            findings=self._own_findings(content.get("findings")),
            images=self._images(content.get("images", LISTED if is_coco else "")),
            has_public_ids="ids" in content,
            image="",
        )
        return found if is_coco else self._columns(content, found)

    def _images(self, given: Any) -> Mapping[str, str] | str:
        if isinstance(given, dict):
            self._only(given, ("table", "column", "patient", "split"), "images")
            for name in {"column", *given} - {"table"}:
                self._text(given.get(name), f"images.{name}")
            return {**given, "table": self._path_within(given.get("table"), "images.table")}
        if given not in ("", LISTED, PICTURED):
            self._fail("images", f"must be {LISTED}, {PICTURED}, or a mapping with table and column", str(given)[:80])
        return str(given)

    def _columns(self, content: dict[str, Any], found: BoxMapping) -> BoxMapping:
        image = self._mapping(content.get("image"), "image", ("column", "matches"))
        if image.get("matches", "file") not in ("file", "SOPInstanceUID"):
            self._fail("image.matches", "must be file or SOPInstanceUID", str(image["matches"])[:80])
        forms = [form for form in ("xyxy", "xywh") if form in content]
        columns = content[forms[0]] if len(forms) == 1 else None
        if not isinstance(columns, list) or len(columns) != 4 or not all(isinstance(c, str) and c for c in columns):
            self._fail("xyxy", "or xywh, one of them, must list four columns", str(columns or " and ".join(forms))[:80])
            columns = []
        if content.get("coordinates") not in ("pixels", "normalised"):
            self._fail("coordinates", "must be pixels or normalised", str(content.get("coordinates"))[:80])
        reader = self._mapping(content.get("reader", {}), "reader", ("column", "reference"))
        return replace(
            found,
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
class _Image:
    """What the tables say of one image: where it stands first, its boxes by reader, its patient and split."""

    first: TableRow
    drawn: dict[str, list[tuple[str, TableRow]]] = field(default_factory=dict)
    patient: str = ""
    split: str = UNDIVIDED


@dataclass(frozen=True)
class _Tables:
    mapping: BoxMapping
    images: dict[str, _Image]

    def counts(self) -> dict[str, int]:
        """Of images, boxes and readers."""
        drawn = [image.drawn for image in self.images.values()]
        return {
            "images": len(drawn),
            "images with boxes": sum(any(found.values()) for found in drawn),
            "boxes": sum(len(rows) for found in drawn for rows in found.values()),
            "readers": len({reader for found in drawn for reader in found if reader != REFERENCE}),
        }


@dataclass(frozen=True)
class _Own:
    """One reading: where mapping and tables are, and what makes ids."""

    mapping: Path | None = None
    namer: Namer = field(default_factory=lambda: Namer(None))

    @property
    def source(self) -> BoxSource[_Tables]:
        """The skeleton of sources of boxes, filled in."""
        needs = f"{MAPPING_NAME} with the key `boxes`"
        return BoxSource("own-boxes", needs, {}, self.find, self.parse, _Tables.counts, self.make)

    def find(self, root: Path) -> dict[str, Path]:
        """The mapping; it names the tables, which lie beside it or in `root`."""
        path = self.mapping if self.mapping is not None else root / MAPPING_NAME
        if not is_of_boxes(path):
            return {}
        named = read_box_mapping(path)
        tables = {"boxes": named.boxes}
        if not isinstance(named.images, str):
            tables["images"] = named.images["table"]
        beside = {role: path.parent / table for role, table in tables.items()}
        return {"mapping": path} | {r: p if p.is_file() else root / tables[r] for r, p in beside.items()}

    def parse(self, files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> _Tables:
        """Every image that a table names."""
        mapping = read_box_mapping(files["mapping"])
        tables = _Tables(mapping, {})
        if "images" in files and not isinstance(mapping.images, str):
            _read_images(files["images"], mapping.images, tables, faults)
        rows, listed = (
            _coco_rows(files["boxes"], faults) if mapping.is_coco else (_box_rows(files, mapping, faults), [])
        )
        for row in listed:
            tables.images.setdefault(image_stem(row["image"]), _Image(row))
        for row in rows:
            _add_box(row, tables, faults)
        return tables

    def make(self, build: BoxBuild[_Tables]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
        """Records of every split."""
        tables, faults = build.parsed, build.faults
        films, headers = _films(build)
        if tables.mapping.images == PICTURED:
            for name, path in films.paths.items():
                tables.images.setdefault(name, _Image(TableRow(path.name, 0, {})))
        found = films.pictures_of({name: image.first for name, image in tables.images.items()}, faults)
        build.warnings += films.warnings(tables.images)
        if not headers and not any(image.patient for image in tables.images.values()):
            build.warnings.append(NO_PATIENTS)
        namer = self.namer
        if not tables.mapping.has_public_ids and namer.key is None:
            rule = "must be given, a secret to make ids with, or the mapping must say `ids: public`"
            raise ArgumentError("id_key", rule, "neither")
        splits: dict[str, list[LocalizationRecord]] = {}
        for name, picture in found.items():
            record = _Maker(tables.mapping, namer, faults).record(name, tables.images[name], picture, headers.get(name))
            if record is not None:
                splits.setdefault(tables.images[name].split, []).append(record)
        faults.problems += namer.problems(tables.mapping.boxes)
        build.settle()
        if not splits:
            raise BuildError(
                [Problem(tables.mapping.boxes, None, "rows", "must leave an image without a problem", "none")]
            )
        return splits, []


def detect(root: Path) -> float:
    """1 if ``mapping.yaml`` in `root` is a mapping of boxes, else 0."""
    return float(is_of_boxes(Path(root) / MAPPING_NAME))


def inspect(root: Path, *, mapping: Path | None = None, pictures: Path | None = None, workers: int = 1) -> Inspection:
    """Count what the tables hold, and list what is wrong with them; pictures are not looked at.

    Raises
    ------
    ValueError
        If there is no mapping of boxes, or with all that is wrong with it.
    """
    return _Own(mapping).source.inspect(root)


def read(
    root: Path,
    *,
    pixels: Pixels = "embed",
    keep_going: bool = False,
    pictures: Path | None = None,
    mapping: Path | None = None,
    id_key: bytes | None = None,
    workers: int = 1,
) -> Reading:
    """Records per split; parameters as of :meth:`reveal_bench.sources.box_source.BoxSource.read`.

    Parameters
    ----------
    mapping : YAML file; by default ``mapping.yaml`` in `root`
    id_key : secret of the ids, see :func:`reveal_bench.sources.ids.read_id_key`; not needed with ``ids: public``

    Raises
    ------
    BuildError
        With every problem of mapping, tables and pictures.
    ValueError
        If there is no mapping of boxes, no picture, or no `id_key` where ids have to be made.
    """
    own = _Own(mapping, Namer(id_key))
    how: dict[str, Any] = {"pixels": pixels, "keep_going": keep_going, "pictures": pictures, "workers": workers}
    reading = own.source.read(root, **how)
    named = read_box_mapping(own.find(Path(root))["mapping"])
    return replace(reading, benchmark=own_benchmark("own-boxes", named.findings), ids=own.namer.ids)


def _rows(path: Path, sheet: str | None, columns: Sequence[str], named_in: str, faults: Faults) -> list[TableRow]:
    """Rows of a table with the columns that a mapping names; none after noting what is wrong with it."""
    problems: list[Problem] = []
    table = read_table(path, path.name, problems, sheet=sheet)
    problems += [] if table is None else missing_columns(table, columns, named_in=named_in)
    for problem in problems:
        faults.add(problem, None)
    if table is None or problems:
        return []
    return [TableRow(table.file, row.number, {column: row.text(column) for column in columns}) for row in table.rows]


def _box_rows(files: Mapping[str, Path], mapping: BoxMapping, faults: Faults) -> list[TableRow]:
    columns = [mapping.image, mapping.finding, *mapping.box, *filter(None, [mapping.reader])]
    return _rows(files["boxes"], mapping.sheet, columns, mapping.file, faults)


def _read_images(path: Path, named: Mapping[str, str], tables: _Tables, faults: Faults) -> None:
    columns = [named[name] for name in ("column", "patient", "split") if name in named]
    for row in _rows(path, None, columns, tables.mapping.file, faults):
        name = image_stem(row[named["column"]])
        patient, split = (row[named[key]] if key in named else default for key, default in
                          (("patient", ""), ("split", UNDIVIDED)))  # fmt: skip
        if not name or name in tables.images:
            faults.add(row.problem(named["column"], "must name each image once", repr(row[named["column"]])), None)
        elif not is_split_name(split):
            faults.add(row.problem(named["split"], "must be the name of a split", repr(split)), name)
        else:
            tables.images[name] = _Image(row, patient=patient, split=split)


def _coco_rows(path: Path, faults: Faults) -> tuple[list[TableRow], list[TableRow]]:
    """Annotations of a COCO file as rows of boxes, and its images; a row's number is its place in the file's list."""
    content = read_json(path, dict, lambda problem: faults.add(problem, None))
    rows, listed = list[TableRow](), list[TableRow]()
    try:
        images = {entry["id"]: str(entry["file_name"]) for entry in content.get("images", ())}
        names = {entry["id"]: str(entry["name"]) for entry in content.get("categories", ())}
        listed = [TableRow(path.name, i, {"image": name}) for i, name in enumerate(images.values(), start=1)]
        for number, entry in enumerate(content.get("annotations", ()), start=1):
            row = TableRow(path.name, number, {"finding": names.get(entry["category_id"], str(entry["category_id"]))})
            box = [str(value) for value in entry["bbox"]]
            if entry["image_id"] not in images:
                faults.add(row.problem("image_id", "must be the id of an image", entry["image_id"]), None)
            elif len(box) != 4:
                faults.add(row.problem("bbox", "must be [x, y, width, height]", entry["bbox"]), None)
            else:
                image = images[entry["image_id"]]
                rows.append(
                    replace(row, values={**row.values, "image": image, **dict(zip(COCO_BOX, box, strict=True))})
                )
    except (TypeError, KeyError, AttributeError) as error:
        rule = "must be COCO: images with id and file_name, categories with id and name, annotations with image_id, "
        rule += "category_id and bbox"
        faults.add(Problem(path.name, None, "file", rule, f"{type(error).__name__} {error}"[:200]), None)
    return rows, listed


def _add_box(row: TableRow, tables: _Tables, faults: Faults) -> None:
    mapping = tables.mapping
    column, finding_column = mapping.image or "image", mapping.finding
    name, said = image_stem(row[column]), row[finding_column]
    if not name:
        faults.add(row.problem(column, "must name an image", "a blank cell"), None)
        return
    if mapping.images and mapping.images not in (LISTED, PICTURED) and name not in tables.images:
        rule = f"must be in {mapping.images['table']}"  # type: ignore[index]
        faults.add(row.problem(column, rule, repr(row[column])), name)
    image = tables.images.setdefault(name, _Image(row))
    reader = row[mapping.reader] if mapping.reader else REFERENCE
    if mapping.reader and not reader:
        faults.add(row.problem(mapping.reader, "must name who drew the box", "a blank cell"), name)
    drawn = image.drawn.setdefault(REFERENCE if reader == mapping.reference else reader, [])
    is_blank = not any(row[column] for column in mapping.box)
    finding, shown = known_finding(said, mapping.findings)
    if is_blank and (not said or said.casefold() in NO_LABEL or conflict((finding or "", ""), mapping.findings)):
        if mapping.images != LISTED:
            rule = f"must name a finding, unless the mapping says images: {LISTED}"
            faults.add(row.problem(finding_column, rule, repr(said) if said else "a blank cell"), name)
    elif finding is None:
        faults.add(row.problem(finding_column, "must be one of the mapping's findings", shown), name)
    else:
        drawn.append((finding, row))


def _films(build: BoxBuild[_Tables]) -> tuple[PictureFolder, dict[str, Header]]:
    """Pictures, and headers of DICOM files, by what images are called in the table."""
    place = build.root if build.pictures is None else Path(build.pictures)
    films = PictureFolder.below(place, DICOM, kind="dicom", may_be_empty=True)
    if not films.paths:
        return PictureFolder.below(place, SUFFIXES), {}
    is_by_uid = build.parsed.mapping.matches == "SOPInstanceUID"
    wanted = films.paths if is_by_uid else films.paths.keys() & build.parsed.images.keys()
    if build.parsed.mapping.images == PICTURED:
        wanted = films.paths
    pictures = {stem: PictureFile(films.paths[stem], stem, films.paths[stem].name, "dicom") for stem in sorted(wanted)}
    headers = dicom_headers(pictures, build.faults, workers=build.workers)
    if not is_by_uid:
        return films, headers
    by_uid = {header.sop_uid or stem: stem for stem, header in headers.items()}
    paths = {uid: films.paths[stem] for uid, stem in by_uid.items()}
    return replace(films, paths=paths, doubles={}), {uid: headers[stem] for uid, stem in by_uid.items()}


@dataclass(frozen=True)
class _Maker:
    mapping: BoxMapping
    namer: Namer
    faults: Faults

    def record(
        self, name: str, image: _Image, picture: PictureFile, header: Header | None
    ) -> LocalizationRecord | None:
        """The record of an image; None after noting why there is none."""
        size = self._size(name, picture, header)
        if size is None or name in self.faults.bad:
            return None
        boxes = {reader: self._boxes(rows, name, size) for reader, rows in image.drawn.items()}
        if name in self.faults.bad:
            return None
        status = self._status(boxes)
        suffix = ".png" if picture.kind == "dicom" else picture.path.suffix.lower()
        image_id = self._id("image", name, image.first)
        patient = image.patient or (header.patient_key if header is not None else None) or name
        return LocalizationRecord(
            image_id=image_id,
            patient_id=self._id("patient", patient, image.first),
            study_id=self._id("study", (header.study_uid if header is not None else None) or name, image.first),
            view="UNKNOWN" if header is None else header.view,
            view_raw=None if header is None else header.view_raw,
            width=size[1],
            height=size[0],
            label_status=status,
            annotations=tuple(
                annotate_boxes(
                    finding,
                    drawn[finding],
                    size,
                    reader="individual" if reader else "ground_truth",
                    reader_id=reader or None,
                )
                for finding in self.mapping.findings
                for reader, drawn in sorted(boxes.items())
                if finding in drawn
            ),
            missing=tuple(f for f, value in status.items() if value == 1 and f not in boxes.get(REFERENCE, {})),
            spacing_mm=None if header is None else header.spacing_mm,
            spacing_source="none" if header is None else header.spacing_source,
            picture=replace(picture, name=f"{image_id}{suffix}"),
        )

    def _id(self, kind: Literal["image", "patient", "study"], raw: str, row: TableRow) -> str:
        if not self.mapping.has_public_ids:
            return self.namer.name(kind, raw)
        if not PUBLIC_ID.fullmatch(raw) or re.fullmatch(r"\d+(\.\d+){3,}", raw):
            rule = "must be at most 64 letters, digits, _, - and dots, and no UID, where ids are public"
            self.faults.add(row.problem(f"{kind} id", rule, repr(raw[:80])), raw)
        return raw

    def _size(self, name: str, picture: PictureFile, header: Header | None) -> tuple[int, int] | None:
        if picture.kind == "dicom":
            return None if header is None or not (header.rows and header.columns) else (header.rows, header.columns)
        try:
            return picture_size(picture.path)
        except ValueError as error:
            self.faults.add(Problem(picture.shown, None, "picture", "must be a PNG or JPEG file", str(error)), name)
            return None

    def _boxes(self, rows: Sequence[tuple[str, TableRow]], name: str, size: tuple[int, int]) -> dict[str, list[Box]]:
        """Boxes by finding in pixels, checked."""
        found: dict[str, list[Box]] = {}
        mapping, fractions = self.mapping, self.mapping.is_normalised
        for finding, row in rows:
            box = read_box(row, mapping.box, self.faults, name, form=mapping.form, size=None if fractions else size)
            if box is not None and fractions:
                x, y, width, height = box
                box = x * size[1], y * size[0], width * size[1], height * size[0]
                rule = box_problem(box, size)
                if rule is not None:
                    texts = ", ".join(row[column] for column in mapping.box)
                    self.faults.add(row.problem(", ".join(mapping.box), f"as fractions, {rule}", texts), name)
            if box is not None:
                found.setdefault(finding, []).append(box)
        return found

    def _status(self, boxes: Mapping[str, Mapping[str, Any]]) -> dict[str, int | None]:
        unboxed = 0 if self.mapping.images else None
        if not self.mapping.reader or self.mapping.reference:
            drawn = boxes.get(REFERENCE, {})
            return {finding: 1 if finding in drawn else unboxed for finding in self.mapping.findings}
        votes = Counter(finding for drawn in boxes.values() for finding in drawn)
        return {finding: {0: unboxed, 1: None}.get(votes[finding], 1) for finding in self.mapping.findings}
