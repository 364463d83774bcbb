"""What the builders of box sources share: tables with line numbers, pictures by name, checked boxes, left-out images.

Conventions
-----------
* A problem belongs to an image or to a file. With ``keep_going`` an image with a problem is left out whole, with all
  its boxes, since a reference that lacks a box is a wrong one; a broken file stops the build.
* A box is ``[x, y, width, height]``, kept as the source draws it. It may stick out of its image by rounding
  (:data:`SLACK` pixels); what lies outside has no pixels. `area_px` counts the pixels whose centres lie in the union of
  a finding's boxes, `bbox_xywh` is the box around them all.
* Files are found below the root by name; a folder with very many folders is a tree of pictures and is not searched.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from reveal_bench.boxes import Box, pack_boxes, tight_box
from reveal_bench.builders.source import SYNTHETIC_MARKER, BuildError, Problem
from reveal_bench.findings import canonical_finding, nearest_names
from reveal_bench.records import Annotation, PictureFile, Reader

if TYPE_CHECKING:
    from reveal_bench.dicom.header import Header

__all__ = [
    "SLACK",
    "Faults",
    "Gallery",
    "TableRow",
    "annotate_boxes",
    "box_problem",
    "count_warnings",
    "dicom_header",
    "find_file",
    "is_synthetic",
    "known_finding",
    "read_box",
    "read_table",
    "relative_names",
    "xyxy_to_xywh",
]

PictureKind = Literal["picture", "dicom", "png16"]

SLACK = 1.0
"""Pixels that a box may stick out of its image."""
DEPTH, MANY = 5, 60
"""How deep tables are looked for, and how many folders in one make it a tree of pictures."""


@dataclass
class Faults:
    """Problems found while reading, and the images that they make unusable."""

    problems: list[Problem] = field(default_factory=list)
    bad: set[str] = field(default_factory=set)
    is_fatal: bool = False

    def add(self, problem: Problem, image_id: str | None) -> None:
        """Note a problem of an image, or with None of a whole file."""
        self.problems.append(problem)
        if image_id is None:
            self.is_fatal = True
        else:
            self.bad.add(image_id)

    def settle(self, warnings: list[str], *, keep_going: bool) -> None:
        """Raise all problems together, or turn them into warnings; the images to leave out are `bad`.

        Raises
        ------
        BuildError
            If there are problems, unless `keep_going` is True and each belongs to an image.
        """
        if self.problems and (self.is_fatal or not keep_going):
            raise BuildError(self.problems)
        warnings.extend(f"left out: {problem}" for problem in self.problems)
        if self.bad:
            warnings.append(f"{len(self.bad):,} images are left out for these problems")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table: its 1-based line in the file, and its values by column, stripped."""

    file: str
    line: int
    values: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values[column]

    def problem(self, column: str, rule: str, value: object) -> Problem:
        """A problem of this row."""
        return Problem(self.file, self.line, column, rule, str(value))


def find_file(root: Path, *patterns: str) -> Path | None:
    """The file below `root` (or `root` itself) that fits the first pattern that any fits; the shallowest of several."""
    root = Path(root)
    if root.is_file():
        return root if any(fnmatch(root.name, pattern) for pattern in patterns) else None
    names = [(folder, name) for folder, files in _folders(root) for name in files]
    for pattern in patterns:
        for folder, name in names:
            if fnmatch(name, pattern):
                return folder / name
    return None


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders with their visible files, shallow ones first; picture trees are not entered."""
    level = [root] if root.is_dir() else []
    for _ in range(DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                continue
            inner = [Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
            below += inner if len(inner) <= MANY else []
            yield folder, [entry.name for entry in entries if not entry.name.startswith(".") and not entry.is_dir()]
        level = below


def is_synthetic(path: Path) -> bool:
    """Whether a notice beside `path`, or in a folder above it as far as downloads are nested, says it is made up."""
    folders = [path if path.is_dir() else path.parent, *path.parents][: DEPTH + 1]
    return any((folder / SYNTHETIC_MARKER).exists() for folder in folders)


def relative_names(root: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Paths by role, as an Inspection shows them: relative to the root, or the name of a root that is a file."""
    return {role: p.relative_to(root).as_posix() if root.is_dir() else p.name for role, p in files.items()}


def read_table(
    path: Path, columns: Sequence[str], faults: Faults, warnings: list[str], *, optional: Sequence[str] = ()
) -> list[TableRow]:
    """Rows of a CSV file: plain, gzip or alone in a zip.

    Columns are found by name, whatever their order, case and outer spaces. A missing one is a problem of the file and
    gives no rows; one that is not known is a warning. Unnamed ones at the end may have no fields below them.
    """
    rows: list[TableRow] = []
    try:
        with _open_text(path) as file:
            reader = csv.reader(file, strict=True)
            spelling = {column.casefold(): column for column in (*columns, *optional)}
            heads = [spelling.get(head.strip().casefold(), head.strip()) for head in next(reader, [])]
            lacking = [column for column in columns if column not in heads]
            for column in lacking:
                faults.add(Problem(path.name, 1, column, "must be a column", ", ".join(heads) or "no header"), None)
            if lacking:
                return []
            unknown = [head for head in heads if head and head not in (*columns, *optional)]
            warnings += [f"{path.name}: the column {head!r} is not known and is not read" for head in unknown]
            n_named = len("\n".join(heads).rstrip("\n").split("\n"))
            for fields in reader:
                if not any(fields):
                    continue
                row = TableRow(path.name, reader.line_num, dict(zip(heads, map(str.strip, fields), strict=False)))
                if len(fields) < n_named or any(fields[len(heads) :]):
                    rule = f"must have {n_named} fields"
                    faults.add(row.problem("row", rule, len(fields)), None)
                    continue
                rows.append(row)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zipfile.BadZipFile) as error:
        faults.add(Problem(path.name, None, "file", "must be a readable CSV file in UTF-8", str(error)), None)
    return rows


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".csv") and not name.startswith("__MACOSX")]
            if len(names) != 1:
                raise OSError(f"{len(names)} CSV files in the archive instead of one")
            return io.StringIO(archive.read(names[0]).decode("utf-8-sig"), newline="")
    return path.open(encoding="utf-8-sig", newline="")


def known_finding(name: str, vocabulary: Sequence[str]) -> tuple[str | None, str]:
    """Canonical spelling of a label, or None; and what an error message shows of it."""
    finding = canonical_finding(name, vocabulary)
    near = nearest_names(name, vocabulary, most=1) if finding is None else []
    hint = f" (nearest: {near[0]!r})" if near else ""
    return finding, f"{name!r}{hint}"


def read_box(
    row: TableRow,
    columns: Sequence[str],
    faults: Faults,
    image_id: str,
    *,
    form: Literal["xywh", "xyxy"],
    size: tuple[int, int] | None,
) -> Box | None:
    """The box of a row, checked; None after noting what is wrong. With `size` None only its form is checked."""
    texts = [row[column] for column in columns]
    try:
        values = [float(text) for text in texts]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        faults.add(
            row.problem(", ".join(columns), "must be four finite numbers", ", ".join(map(repr, texts))), image_id
        )
        return None
    a, b, c, d = values
    box = (a, b, c, d) if form == "xywh" else xyxy_to_xywh((a, b, c, d))
    rule = box_problem(box, size)
    if rule is not None:
        faults.add(row.problem(", ".join(columns), rule, ", ".join(texts)), image_id)
        return None
    return box


def xyxy_to_xywh(corners: Box) -> Box:
    """[left, top, right, bottom] -> [x, y, width, height]."""
    left, top, right, bottom = corners
    return left, top, right - left, bottom - top


def box_problem(box: Box, size: tuple[int, int] | None) -> str | None:
    """The rule that a box of finite numbers breaks in an image of `size` (height, width), or None."""
    x, y, width, height = box
    if width <= 0 or height <= 0:
        return "must have width and height above 0"
    if size is None:
        return None
    if min(x, y) < -SLACK or x + width > size[1] + SLACK or y + height > size[0] + SLACK:
        return f"must lie in the image of {size[1]} x {size[0]} pixels"
    if pack_boxes([[box]], [size]).areas[0] == 0:
        return "must cover the centre of a pixel"
    return None


def annotate_boxes(
    finding: str,
    boxes: Sequence[Box],
    size: tuple[int, int],
    *,
    reader: Reader = "ground_truth",
    reader_id: str | None = None,
) -> Annotation:
    """The annotation of one finding by one reader from its boxes, at least one, all checked."""
    return Annotation(
        finding=finding,
        reader=reader,
        rle=None,
        bbox_xywh=tight_box(boxes),
        n_instances=len(boxes),
        area_px=int(pack_boxes([boxes], [size]).areas[0]),
        boxes_xywh=tuple(boxes),
        reader_id=reader_id,
    )


@dataclass(frozen=True)
class Gallery:
    """Pictures below a folder by the stem of their file names; a stem that occurs twice is in `doubles`."""

    root: Path
    paths: Mapping[str, Path]
    doubles: Mapping[str, Path]
    kind: PictureKind = "picture"

    @classmethod
    def below(
        cls, root: Path, suffixes: Sequence[str], *, kind: PictureKind = "picture", skip: Sequence[str] = ()
    ) -> Gallery:
        """All visible files with one of the `suffixes` (lower case) at any depth, but in folders named in `skip`.

        Raises
        ------
        ValueError
            If there is none.
        """
        paths: dict[str, Path] = {}
        doubles: dict[str, Path] = {}
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in skip)
            for name in sorted(files):
                stem, suffix = os.path.splitext(name)
                if suffix.lower() in suffixes and not name.startswith("."):
                    (doubles if stem in paths else paths)[stem] = Path(folder, name)
        if not paths:
            raise ValueError(f"`pictures` must hold {' or '.join(suffixes)} files, got none below {root}")
        return cls(Path(root), paths, doubles, kind)

    def picture(self, image_id: str, faults: Faults, row: TableRow | None = None) -> PictureFile | None:
        """The picture of an image, published as PNG unless its bytes pass unchanged; None after noting a problem."""
        path = self.paths.get(image_id)
        if path is None or image_id in self.doubles:
            rule, value = f"must be there for {image_id}", "no such file"
            if path is not None:
                both = f"{self._shown(path)} and {self._shown(self.doubles[image_id])}"
                rule, value = "must be the only one of its name", both
            file, place = (row.file, row.line) if row is not None else ("pictures", image_id)
            faults.add(Problem(file, place, "picture", rule, value), image_id)
            return None
        name = path.name if self.kind == "picture" else f"{image_id}.png"
        return PictureFile(path, name, self._shown(path), self.kind)

    def unused(self, used: Iterable[str]) -> list[str]:
        """A warning that counts the pictures that are none of `used`."""
        n_left = len(self.paths.keys() - set(used))
        return [f"{n_left:,} pictures have no label here and are no part of the dataset"] if n_left else []

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def dicom_header(picture: PictureFile, image_id: str, faults: Faults) -> Header | None:
    """The header of a DICOM picture; None after noting that it cannot be read or has no pixels."""
    from reveal_bench.dicom import DicomError, read_header

    reason = None
    try:
        header = read_header(picture.path)
        if not header.has_pixels:
            reason = "no pixel data"
        elif header.rows is None or header.columns is None:
            reason = "no Rows and Columns"
    except DicomError as error:
        reason = str(error)
    if reason is not None:
        faults.add(Problem(picture.shown, image_id, "picture", "must be a readable DICOM file", reason), image_id)
        return None
    return header


def count_warnings(counts: Mapping[str, int], published: Mapping[str, int]) -> list[str]:
    """Where the counts of a download differ from the published ones."""
    return [
        f"{what}: published are {expected:,}, here are {counts[what]:,}"
        for what, expected in published.items()
        if what in counts and counts[what] != expected
    ]
