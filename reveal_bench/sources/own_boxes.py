"""Datasets of a user's own boxes: pictures, a table with a row per box or a COCO file, and a mapping of columns. ::

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
* For a COCO file, leave out the keys from `image` to `reader`, because COCO defines the file names, categories and
  boxes ([x, y, w, h] in pixels).
* `images` says which images were read for all findings: the images of another table, the images ``in the table`` of
  boxes (or in the COCO file), or ``all pictures``. In an image that was read, a finding without a box is absent; in any
  other image it is unlabelled.
* A row with blank cells for finding and box says that the image has no box. Such a row is a problem if the mapping has
  no key `images`.
* With `reader` but no reference reader, the boxes of different readers are not merged, see
  :mod:`reveal_bench.kinds.detection.fusion`. A finding that at least two readers drew is present; a finding that only
  one reader drew is unlabelled. A reader is taken to have read every image that has a row with the reader's name; the
  config ``readers`` lists these images.
* Sizes come from the pictures, which are needed even if pixels are withheld: DICOM files if there are any, else PNG and
  JPEG, whose metadata must not rotate them. Sizes in a COCO file must agree with the pictures. Patients come from the
  column `patient` or from DICOM headers.
* A rotated box (a column `rotation`, or `rotation` of a COCO annotation or its `attributes`, in degrees clockwise about
  the centre as in CVAT) becomes the upright box around it, with a warning that counts these boxes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import own_benchmark
from reveal_bench.dicom.header import Header
from reveal_bench.dicom.scan import film_notes
from reveal_bench.geometry import box_around
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
    box_problem,
    dicom_headers,
    read_box,
    reader_rows,
)
from reveal_bench.sources.own_boxes_files import (
    IMAGES,
    PICTURED,
    REFERENCE,
    ROTATION,
    BoxMapping,
    OwnImage,
    OwnTables,
    is_of_boxes,
    read_box_mapping,
    read_tables,
)
from reveal_bench.sources.pictures import SUFFIXES, picture_size
from reveal_bench.sources.reveal_cxr import MAPPING_NAME, Namer
from reveal_bench.sources.source import (
    READERS_PUBLISHED,
    BuildError,
    Extra,
    Inspection,
    Pixels,
    Problem,
    SourceData,
    published_texts,
)
from reveal_bench.sources.study_labels import PUBLIC_ID
from reveal_bench.sources.study_tree import marker_problems, marker_warnings
from reveal_bench.words import count_text

DICOM = (".dcm", ".dicom")
PERCENT = 100
UNFUSED = (
    "no reader is the reference, so findings have no reference boxes. Name the reference reader "
    "(`reader: {column: NAME, reference: WHO}`), or build with --task detection --fuse majority. "
    "Otherwise systems can only be scored against individual readers, with --task detection and `score --readers`"
)


@dataclass(frozen=True)
class _Own:
    """Path of the mapping and generator of ids, during one call of `inspect` or `read`."""

    mapping: Path | None = None
    namer: Namer = field(default_factory=lambda: Namer(None))

    @property
    def source(self) -> BoxSource[OwnTables]:
        """This source as a :class:`BoxSource`."""
        needs = f"{MAPPING_NAME} with the key `boxes`"
        return BoxSource(
            "own-boxes", needs, {}, self.find, self.parse, OwnTables.counts, self.pictured, self.make, True
        )

    def find(self, root: Path) -> dict[str, Path]:
        """Return files by role: the mapping, and the tables that it names, found beside the mapping or in `root`."""
        path = self.mapping if self.mapping is not None else root / MAPPING_NAME
        if not is_of_boxes(path):
            return {}
        named = read_box_mapping(path)
        tables = {"boxes": named.boxes}
        if not isinstance(named.images, str):
            tables[IMAGES] = named.images["table"]
        beside = {role: path.parent / table for role, table in tables.items()}
        return {"mapping": path} | {r: p if p.is_file() else root / tables[r] for r, p in beside.items()}

    def parse(self, files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> OwnTables:
        """Return the parsed tables of boxes and images."""
        return read_tables(read_box_mapping(files["mapping"]), files, faults, warnings)

    def pictured(self, build: BoxBuild[OwnTables]) -> dict[str, bool]:
        """Return a dict from the name of an image in the tables to True if it has a picture."""
        return _films(build)[0].present(build.parsed.images)

    def make(self, build: BoxBuild[OwnTables]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
        """Return (splits, extra tables) from the tables and pictures."""
        tables, faults = build.parsed, build.faults
        films, headers = _films(build)
        if tables.mapping.images == PICTURED:
            for name, path in films.paths.items():
                tables.images.setdefault(name, OwnImage(BoxRow(path.name, 0, {})))
        pictures = films.pictures_of({name: image.first for name, image in tables.images.items()}, faults)
        build.warnings += films.warnings(tables.images)
        if not headers and not any(image.patient for image in tables.images.values()):
            build.warnings.append(NO_PATIENTS)
        namer = self.namer
        if not tables.mapping.has_public_ids and namer.key is None:
            rule = "must be given (a secret from which ids are made) unless the mapping says `ids: public`"
            raise ArgumentError("id_key", rule, "neither")
        _check_markers(pictures, headers, build)
        maker = _OwnRecords(tables.mapping, namer, faults)
        made = {name: maker.record(name, tables.images[name], picture, headers.get(name))
                for name, picture in pictures.items()}  # fmt: skip
        records = {name: record for name, record in made.items() if record is not None}
        _check_splits(tables, records, faults)
        faults.problems += namer.problems(tables.mapping.boxes)
        build.settle()
        splits: dict[str, list[LocalizationRecord]] = {}
        for name, record in records.items():
            if name not in faults.bad:
                splits.setdefault(tables.images[name].split, []).append(record)
        if not splits:
            raise BuildError(
                [Problem(tables.mapping.boxes, None, "rows", "must include an image without a problem", "none")]
            )
        build.warnings += _percent_warning(tables.mapping, records.values())
        build.warnings += published_texts(READERS_PUBLISHED, tables.readers.keys() - {tables.mapping.reference})
        if maker.rotated:
            boxes, first = count_text(len(maker.rotated), "rotated box"), maker.rotated[0]
            build.warnings.append(
                f"{boxes}, the first at {first.file}:{first.line}: each became the upright box around it"
            )
        pairs = [
            (record.image_id, reader)
            for name, record in records.items()
            if name not in faults.bad
            for reader in tables.images[name].drawn
            if reader != REFERENCE
        ]
        return splits, reader_rows(pairs) if tables.mapping.images else []


def _check_markers(
    pictures: Mapping[str, PictureFile], headers: Mapping[str, Header], build: BoxBuild[OwnTables]
) -> None:
    """Note headers that forbid publishing an image; warn of headers that do not state that it may be published."""
    used = {name: headers[name] for name in pictures if name in headers}
    for name, header in used.items():
        for problem in marker_problems(header, pictures[name].source_path):
            build.faults.add(problem, name)
    build.warnings += marker_warnings(used.values())


def _check_splits(tables: OwnTables, records: Mapping[str, LocalizationRecord], faults: Faults) -> None:
    split_of: dict[str, str] = {}
    for name, record in records.items():
        image = tables.images[name]
        split = split_of.setdefault(record.patient_id, image.split)
        if split != image.split:
            faults.add(
                image.first.problem("split", f"must be {split}, as in earlier rows of this patient", image.split), name
            )


def _percent_warning(mapping: BoxMapping, records: Iterable[LocalizationRecord]) -> list[str]:
    """Return a warning if no coordinate exceeds 100 although all images are larger: they may be percentages."""
    pairs = [(record, box) for record in records for one in record.annotations for box in one.boxes_xywh]
    if mapping.is_normalised or not pairs or any(min(record.size) <= PERCENT for record, _ in pairs):
        return []
    if any(max(x + width, y + height) > PERCENT for _, (x, y, width, height) in pairs):
        return []
    rule = "if they are percentages, divide them by 100 and set `coordinates: normalised`"
    return [f"{mapping.boxes}: no box coordinate is above {PERCENT}, although all images are larger; {rule}"]


def detect(root: Path) -> float:
    """Return 1 if ``mapping.yaml`` in `root` describes a table of boxes, else 0."""
    return float(is_of_boxes(Path(root) / MAPPING_NAME))


def inspect(root: Path, *, mapping: Path | None = None, pictures: Path | None = None, workers: int = 1) -> Inspection:
    """Count the entries of the tables and their pictures, and list problems.

    Raises
    ------
    ValueError
        If the mapping is missing or has problems, all of which the message lists.
    """
    return _Own(mapping).source.inspect(root, pictures=pictures, workers=workers)


def read(
    root: Path,
    *,
    pixels: Pixels = "embed",
    keep_going: bool = False,
    pictures: Path | None = None,
    mapping: Path | None = None,
    id_key: bytes | None = None,
    workers: int = 1,
) -> SourceData:
    """Return the records of each split; see also :meth:`reveal_bench.sources.box_source.BoxSource.read`.

    Parameters
    ----------
    mapping : YAML file; by default ``mapping.yaml`` in `root`
    id_key : secret of the ids, see :func:`reveal_bench.sources.ids.read_id_key`; not needed with ``ids: public``

    Raises
    ------
    BuildError
        With every problem of mapping, tables and pictures.
    ValueError
        If the mapping, all pictures or a required `id_key` are missing.
    """
    own = _Own(mapping, Namer(id_key))
    how: dict[str, Any] = {"pixels": pixels, "keep_going": keep_going, "pictures": pictures, "workers": workers}
    source_data = own.source.read(root, **how)
    named = read_box_mapping(own.find(Path(root))["mapping"])
    unfused = UNFUSED if named.reader and not named.reference else ""
    benchmark = own_benchmark("own-boxes", named.findings)
    return replace(source_data, benchmark=benchmark, ids=own.namer.ids, unfused=unfused)


def _films(build: BoxBuild[OwnTables]) -> tuple[PictureFolder, dict[str, Header]]:
    """Return (pictures, headers of DICOM pictures), both by the name that the table uses for the image."""
    place = build.root if build.pictures is None else Path(build.pictures)
    is_by_uid = build.parsed.mapping.matches == "SOPInstanceUID"
    films = PictureFolder.below(place, DICOM, kind="dicom", may_be_empty=True, by_path=is_by_uid, states_sizes=True)
    if not films.paths:
        return PictureFolder.below(place, SUFFIXES, states_sizes=True, may_be_empty=build.is_inspection), {}
    names = set(films.paths)
    if not is_by_uid and build.parsed.mapping.images != PICTURED:
        names &= build.parsed.images.keys()
    pictures = {name: PictureFile(films.paths[name], name, films.paths[name].name, "dicom") for name in sorted(names)}
    headers = dicom_headers(pictures, build.faults, workers=build.workers)
    if not is_by_uid:
        return films, headers
    paths, doubles, by_uid = dict[str, Path](), dict[str, Path](), dict[str, Header]()
    for name, header in headers.items():
        uid = header.sop_uid or name
        (doubles if uid in paths else paths)[uid] = films.paths[name]
        by_uid.setdefault(uid, header)
    return replace(films, paths=paths, doubles=doubles), by_uid


@dataclass(frozen=True)
class _OwnRecords:
    mapping: BoxMapping
    namer: Namer
    faults: Faults
    rotated: list[BoxRow] = field(default_factory=list)
    """Rows whose rotated box became the upright box around it."""

    def record(
        self, name: str, image: OwnImage, picture: PictureFile, header: Header | None
    ) -> LocalizationRecord | None:
        """Return the record of an image, or None after noting why it has none."""
        size = self._size(name, picture, header)
        if size is None or name in self.faults.bad:
            return None
        self._check_size(name, image.listed, size)
        boxes = {reader: self._boxes(rows, name, size) for reader, rows in image.drawn.items()}
        if name in self.faults.bad:
            return None
        status = self._status(boxes)
        suffix = ".png" if picture.kind == "dicom" else picture.path.suffix.lower()
        image_id = self._id(name, "image", name, image.first)
        patient = image.patient or (header.patient_key if header is not None else None) or name
        return LocalizationRecord(
            image_id=image_id,
            patient_id=self._id(name, "patient", patient, image.first),
            study_id=self._id(name, "study", (header.study_uid if header is not None else None) or name, image.first),
            view="UNKNOWN" if header is None else header.view,
            view_raw=None if header is None else header.view_raw,
            width=size[1],
            height=size[0],
            label_status=status,
            annotations=annotate_readers(self.mapping.findings, boxes, size),
            missing=tuple(f for f, value in status.items() if value == 1 and f not in boxes.get(REFERENCE, {})),
            spacing_mm=None if header is None else header.spacing_mm,
            spacing_source="none" if header is None else header.spacing_source,
            picture=replace(picture, name=f"{image_id}{suffix}", notes=() if header is None else film_notes(header)),
        )

    def _id(self, name: str, kind: Literal["image", "patient", "study"], raw: str, row: BoxRow) -> str:
        if not self.mapping.has_public_ids:
            return self.namer.name(kind, raw)
        if not PUBLIC_ID.fullmatch(raw) or re.fullmatch(r"\d+(\.\d+){3,}", raw):
            rule = (
                "must be at most 64 letters, digits, _, - and dots, and no DICOM UID, because the mapping "
                "says `ids: public`"
            )
            self.faults.add(row.problem(f"{kind} id", rule, repr(raw[:80])), name)
        return raw

    def _size(self, name: str, picture: PictureFile, header: Header | None) -> tuple[int, int] | None:
        if picture.kind == "dicom":
            return None if header is None or not (header.rows and header.columns) else (header.rows, header.columns)
        try:
            return picture_size(picture.path)
        except ValueError as error:
            self.faults.add(
                Problem(picture.source_path, None, "picture", "must be a PNG or JPEG file", str(error)), name
            )
            return None

    def _check_size(self, name: str, listed: BoxRow | None, size: tuple[int, int]) -> None:
        """Note a problem if the size in a COCO file differs from the size of the picture."""
        if listed is None or not listed.values.keys() >= {"width", "height"}:
            return
        own, stated = f"{size[1]} x {size[0]}", f"{listed['width']} x {listed['height']}"
        if stated != own:
            self.faults.add(listed.problem("width, height", f"must be {own}, the size of the picture", stated), name)

    def _boxes(self, rows: Sequence[tuple[str, BoxRow]], name: str, size: tuple[int, int]) -> dict[str, list[Box]]:
        """Return the valid boxes of each finding in pixels; note invalid boxes."""
        boxes: dict[str, list[Box]] = {}
        mapping = self.mapping
        for finding, row in rows:
            box = read_box(row, mapping.box, self.faults, name, form=mapping.form, size=None)
            if box is None:
                continue
            x, y, width, height = box
            if mapping.is_normalised:
                box = x * size[1], y * size[0], width * size[1], height * size[0]
            box = self._upright(box, row, name)
            rule = box_problem(box, size)
            if rule is not None and mapping.is_normalised:
                rule = f"as fractions, {rule}"
            elif rule is not None and max(x + width, y + height) <= 1:
                rule += "; if the numbers are fractions of width and height, set `coordinates: normalised`"
            elif box in boxes.get(finding, ()):
                rule = f"must not repeat an earlier box of the same finding{' and reader' if mapping.reader else ''}"
            if rule is not None:
                texts = ", ".join(row[column] for column in mapping.box)
                texts += f" rotated by {row[ROTATION]}" if row in self.rotated else ""
                self.faults.add(row.problem(", ".join(mapping.box), rule, texts), name)
            boxes.setdefault(finding, []).append(box)
        return boxes

    def _upright(self, box: Box, row: BoxRow, name: str) -> Box:
        """Return the box, or the upright box around it if its row states a rotation."""
        text = row.values.get(ROTATION) or "0"
        try:
            degrees = float(text)
        except ValueError:
            degrees = math.nan
        if not math.isfinite(degrees):
            self.faults.add(row.problem(ROTATION, "must be a finite number of degrees", repr(text)[:80]), name)
        elif degrees % 360:
            self.rotated.append(row)
            return box_around(box, degrees)
        return box

    def _status(self, boxes: Mapping[str, Mapping[str, Any]]) -> dict[str, int | None]:
        unboxed = 0 if self.mapping.images else None
        if not self.mapping.reader or self.mapping.reference:
            reference = boxes.get(REFERENCE, {})
            return {finding: 1 if finding in reference else unboxed for finding in self.mapping.findings}
        votes = Counter(finding for reference in boxes.values() for finding in reference)
        return {finding: {0: unboxed, 1: None}.get(votes[finding], 1) for finding in self.mapping.findings}
