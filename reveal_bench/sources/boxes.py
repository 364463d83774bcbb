"""Code shared by sources of boxes: read tables with line numbers, find pictures, check boxes, leave out images.

Conventions
-----------
* A problem belongs to an image or to a file. With ``keep_going`` an image with a problem is left out with all its
  boxes, because a reference without one of its boxes would be wrong. A broken file stops the build.
* A box is ``[x, y, width, height]``, stored as the source drew it. Because of rounding, a box may extend beyond its
  image by :data:`reveal_bench.geometry.SLACK` pixels; the part outside covers no pixels. `area_px` counts the pixels
  whose centres are in the union of a finding's boxes; `bbox_xywh` is the smallest box around all of them.
* Files are found below the root by name; a folder with more than :data:`MANY` subfolders is assumed to contain pictures
  and is not searched.
* A picture belongs to the image whose id is the stem of its file name; two pictures with the same stem are a problem of
  that image.
* If pixels are embedded, every image needs its picture. If pixels are withheld, pictures are still used where present,
  because their hashes let users verify their own copies; a warning counts the images without a picture.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.dicom.header import Header
from reveal_bench.dicom.scan import in_chunks
from reveal_bench.findings import canonical_finding, hint
from reveal_bench.geometry import extent_problem
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord, Polygons
from reveal_bench.masks import Box, Rle, pack_boxes, pack_masks, tight_box
from reveal_bench.sources import source
from reveal_bench.sources.source import (
    BuildError,
    DownloadProblems,
    Extra,
    MissingPicture,
    Problem,
    problem_lines,
    table_features,
)
from reveal_bench.tables import TableLimits, scan_table
from reveal_bench.words import count_text

NO_PATIENTS = "the source does not identify patients: every image counts as a separate patient, also in a holdout"
"""Warning for sources that do not identify patients: two images of one patient look like two patients."""
NIH_SIDE = 1024
"""Width and height, in pixels, of the NIH ChestX-ray14 images that several sources annotate."""
LIMITS = TableLimits(rows=500_000)
"""Limits on a table of boxes; each of its rows becomes several Python objects."""
DEPTH, MANY = 5, 60
"""Levels of folders searched for tables, and number of subfolders above which a folder counts as a tree of pictures."""


@dataclass
class Faults:
    """Problems of a download, and the ids of the images that they make unusable (`bad`)."""

    problems: DownloadProblems = field(default_factory=DownloadProblems)
    bad: set[str] = field(default_factory=set)
    is_fatal: bool = False

    def add(self, problem: Problem, image_id: str | None) -> None:
        """Note a problem of an image, or of a whole file if `image_id` is None."""
        self.problems.append(problem)
        if image_id is None:
            self.is_fatal = True
        else:
            self.bad.add(image_id)

    def settle(self, warnings: list[str], *, keep_going: bool) -> None:
        """Raise one error with all problems, or turn them into warnings; the caller leaves out the images in `bad`.

        Raises
        ------
        BuildError
            If there are problems, unless `keep_going` is True and each belongs to an image.
        """
        if self.problems and (self.is_fatal or not keep_going):
            raise BuildError(self.problems)
        warnings.extend(f"left out: {line}" for line in problem_lines(self.problems))
        if self.bad:
            verb = "is" if len(self.bad) == 1 else "are"
            warnings.append(f"{count_text(len(self.bad), 'image')} {verb} left out because of these problems")


@dataclass(frozen=True, slots=True)
class BoxRow:
    """A table row: its 1-based line number (in JSON, the entry's name) and its stripped values by column."""

    file: str
    line: int | str
    values: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values[column]

    def problem(self, column: str, rule: str, value: object) -> Problem:
        """Return a problem with this row's file and line."""
        return Problem(self.file, self.line, column, rule, str(value))


def find_file(root: Path, *patterns: str) -> Path | None:
    """Return the file below `root`, or `root` itself, that matches one of `patterns`; None without a match.

    Earlier patterns take precedence. If several files match the same pattern, the file in the shallowest folder is
    returned.
    """
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
    """Yield (folder, names of its visible files), shallow folders first; trees of pictures are not entered."""
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


def find_files(root: Path, patterns: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Return a dict from role to the file that :func:`find_file` finds; roles without a match are left out."""
    paths = {role: find_file(root, *names) for role, names in patterns.items()}
    return {role: path for role, path in paths.items() if path is not None}


def is_synthetic(root: Path, files: Iterable[Path] = ()) -> bool:
    """Return True if a download says that it is synthetic.

    A notice must be in `root`, or for each of `files` in its folder or in a parent folder within `root`, because
    archives may have been unpacked into subfolders.

    Folders above `root` are ignored: a notice beside real data must not mark the data as synthetic.
    """
    if source.is_synthetic(root):
        return True
    inside = [[folder for folder in path.parents if folder.is_relative_to(root)] for path in files]
    return bool(inside) and all(any(map(source.is_synthetic, folders)) for folders in inside)


def read_table(
    path: Path, columns: Sequence[str], faults: Faults, warnings: list[str], *, optional: Sequence[str] = ()
) -> list[BoxRow]:
    """Return the rows of a table, which may be compressed by gzip or be the only file of a zip archive.

    If a column is missing, note a problem of the file and return no rows. An unknown column causes a warning.
    """
    problems = DownloadProblems()
    table = scan_table(path, path.name, problems, may_be_empty=True, limits=LIMITS)
    if table is not None:
        heads = ", ".join(table.columns)
        lacking = [column for column in columns if column not in table]
        problems += [Problem(path.name, 1, column, "must be a column", heads) for column in lacking]
        known = {column.casefold() for column in (*columns, *optional)}
        unknown = [head for head in table.columns if head and head.casefold() not in known]
        warnings += [f"{path.name}: the column {head!r} is unknown and is ignored" for head in unknown]
    for problem in problems:
        faults.add(problem, None)
    if table is None or lacking:
        return []
    return [BoxRow(path.name, row.number, row) for row in table.rows]


def known_finding(name: str, vocabulary: Sequence[str]) -> tuple[str | None, str]:
    """Return (label, text): the canonical spelling, or None if the name is unknown, and a text for an error message."""
    finding = canonical_finding(name, vocabulary)
    return finding, repr(name) if finding is not None else hint(name, vocabulary)


def read_box(
    row: BoxRow,
    columns: Sequence[str],
    faults: Faults,
    image_id: str,
    *,
    form: Literal["xywh", "xyxy"],
    size: tuple[int, int] | None,
) -> Box | None:
    """Return the box of a row, or None after noting why it is invalid.

    Without a `size`, only the numbers are checked.
    """
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
    """Convert [left, top, right, bottom] to [x, y, width, height]."""
    left, top, right, bottom = corners
    return left, top, right - left, bottom - top


def box_problem(box: Box, size: tuple[int, int] | None) -> str | None:
    """Return the rule broken by a reference box of finite numbers in an image of `size`; None if it is valid."""
    problem = extent_problem(box, size)
    if problem is None and size is not None and pack_boxes([[box]], [size]).areas[0] == 0:
        return "must cover the centre of a pixel"
    return problem


def annotate_readers(
    findings: Iterable[str], boxes: Mapping[str, Mapping[str, Sequence[Box]]], size: tuple[int, int]
) -> tuple[Annotation, ...]:
    """Return an annotation of each finding by each reader who drew it, from valid boxes by reader ("" if reference)."""
    return tuple(
        annotate_boxes(finding, drawn[finding], size, reader)
        for finding in findings
        for reader, drawn in sorted(boxes.items())
        if drawn.get(finding)
    )


def annotate_boxes(finding: str, boxes: Sequence[Box], size: tuple[int, int], reader: str = "") -> Annotation:
    """Return a reader's annotation of a finding from at least one box; the boxes must be valid."""
    return Annotation(
        finding=finding,
        reader="individual" if reader else "ground_truth",
        rle=None,
        bbox_xywh=tight_box(boxes),
        n_instances=len(boxes),
        area_px=int(pack_boxes([boxes], [size]).areas[0]),
        boxes_xywh=tuple(boxes),
        reader_id=reader or None,
    )


def annotate_mask(
    finding: str, rle: Rle, n_instances: int, *, polygons: Polygons = (), boxes: Sequence[Box] = ()
) -> Annotation:
    """Return the ground-truth annotation of a finding from its mask and the source's contours and boxes, if any."""
    mask = pack_masks([rle])
    x, y, width, height = mask.boxes_xywh()[0].tolist()
    return Annotation(
        finding=finding,
        reader="ground_truth",
        rle=rle,
        polygons=polygons,
        bbox_xywh=(x, y, width, height),
        n_instances=n_instances,
        area_px=int(mask.areas[0]),
        boxes_xywh=tuple(boxes),
    )


def reader_rows(pairs: Iterable[tuple[str, str]]) -> list[Extra]:
    """Return the extra table ``readers`` of `pairs` (image_id, reader who read the image); [] without pairs."""
    rows = [{"image_id": image_id, "reader_id": reader} for image_id, reader in pairs]
    features = table_features(image_id="string", reader_id="string")
    return [Extra("readers", features, rows, key="image_id")] if rows else []


def count_views(file: str, views: Iterable[str], which: str) -> list[str]:
    """Return a warning that counts images by the text of their view; [] without images."""
    counts = Counter(repr(view) if view else "blank" for view in views)
    texts = ", ".join(f"{view} {n:,}" for view, n in counts.most_common())
    return [f"{file}: {count_text(counts.total(), 'image')} {which}: {texts}"] if counts else []


def nih_record(
    image_id: str,
    label_status: Mapping[str, int | None],
    annotations: Iterable[Annotation],
    picture: PictureFile | None,
    *,
    patient_id: str | None = None,
    header: Header | None = None,
    view: str = "UNKNOWN",
    view_raw: str | None = None,
) -> LocalizationRecord:
    """Return the record of an image of NIH ChestX-ray14, whose view is that of the header if there is one.

    The image id is also the `study_id` and, if the patient is unknown, the `patient_id`.
    """
    return LocalizationRecord(
        image_id=image_id,
        patient_id=patient_id or image_id,
        study_id=image_id,
        view=view if header is None else header.view,
        view_raw=view_raw if header is None else header.view_raw,
        width=NIH_SIDE,
        height=NIH_SIDE,
        label_status=label_status,
        annotations=tuple(annotations),
        picture=picture,
    )


def count_warnings(counts: Mapping[str, int], published: Mapping[str, int]) -> list[str]:
    """Return a warning for each count that differs from the published count."""
    return [
        f"{what}: the source publishes {expected:,}, this download has {counts[what]:,}"
        for what, expected in published.items()
        if what in counts and counts[what] != expected
    ]


UNLESS_WITHHELD = " unless `pixels` is withhold"
"""End of a rule that pictures must exist, which only holds for builds that embed them."""
PictureKind = Literal["picture", "dicom", "png16"]


@dataclass(frozen=True)
class PictureFolder:
    """Pictures below a folder by the stems of their file names; `doubles` has a further file for a repeated stem.

    `need_all` is True if an image without a picture is a problem; `states_sizes` is True if only the pictures state the
    sizes of images, so that builds that withhold images also need them.
    """

    root: Path
    paths: Mapping[str, Path]
    doubles: Mapping[str, Path]
    kind: PictureKind = "picture"
    need_all: bool = True
    states_sizes: bool = False

    @classmethod
    def below(
        cls,
        root: Path,
        suffixes: Sequence[str],
        *,
        kind: PictureKind = "picture",
        skip: Sequence[str] = (),
        need_all: bool = True,
        states_sizes: bool = False,
        may_be_empty: bool = False,
        by_path: bool = False,
    ) -> PictureFolder:
        """Return the visible files below `root` with one of the `suffixes` (lower case).

        Folders named in `skip` are not entered, and links that lead out of `root` are ignored.

        With `by_path`, pictures are keyed by their paths below `root`, because stems may repeat.

        Raises
        ------
        ValueError
            If there is no such file and `may_be_empty` is False.
        """
        paths: dict[str, Path] = {}
        doubles: dict[str, Path] = {}
        real_root = Path(root).resolve()
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in skip)
            for name in sorted(files):
                stem, suffix = os.path.splitext(name)
                if suffix.lower() in suffixes and not name.startswith("."):
                    path = Path(folder, name)
                    if not path.is_file() or (path.is_symlink() and not path.resolve().is_relative_to(real_root)):
                        continue
                    key = path.relative_to(root).as_posix() if by_path else stem
                    (doubles if key in paths else paths)[key] = path
        if not paths and not may_be_empty:
            unless = UNLESS_WITHHELD if need_all and not states_sizes else ""
            rule = f"must contain {' or '.join(suffixes)} files{unless}"
            raise ArgumentError("pictures", rule, f"none below {root}", ("pixels",))
        return cls(Path(root), paths, doubles, kind, need_all, states_sizes)

    def picture(
        self, image_id: str, faults: Faults, *, file: str = "pictures", row: int | str | None = None
    ) -> PictureFile | None:
        """Return the picture of an image, or None if it is missing or if two files have its name.

        A missing picture is noted as a problem if `need_all`; two files are always a problem. The problem names `file`
        and `row`, or the image id if `row` is None.
        """
        path = self.paths.get(image_id)
        if path is None and not self.need_all:
            return None
        if path is None or image_id in self.doubles:
            place = file, image_id if row is None else row, "picture"
            if path is None:
                rule = f"must exist for {image_id}"
                problem: Problem = MissingPicture(*place, rule, "no such file", image_id, self.states_sizes)
            else:
                both = f"{self._relative_name(path)} and {self._relative_name(self.doubles[image_id])}"
                problem = Problem(*place, "must be the only file with its name", both)
            faults.add(problem, image_id)
            return None
        name = path.name if self.kind == "picture" else f"{image_id}.png"
        return PictureFile(path, name, self._relative_name(path), self.kind)

    def pictures_of(self, first_rows: Mapping[str, BoxRow], faults: Faults) -> dict[str, PictureFile]:
        """Return a dict from image id to picture; problems name the first row of the image."""
        pictures = {
            image_id: self.picture(image_id, faults, file=row.file, row=row.line)
            for image_id, row in first_rows.items()
        }
        return {image_id: picture for image_id, picture in pictures.items() if picture is not None}

    def present(self, image_ids: Iterable[str]) -> dict[str, bool]:
        """Return a dict from image id to True if the image has a picture."""
        return {image_id: image_id in self.paths for image_id in image_ids}

    def warnings(self, image_ids: Iterable[str]) -> list[str]:
        """Return warnings that count unused pictures and, if `need_all` is False, images without a picture."""
        ids = set(image_ids)
        n_unused = len(self.paths.keys() - ids)
        messages = []
        if n_unused:
            verbs = "has no label here and is" if n_unused == 1 else "have no label here and are"
            messages.append(f"{count_text(n_unused, 'picture')} {verbs} not part of the dataset")
        if self.need_all:
            return messages
        return messages + no_pictures(
            len(ids - self.paths.keys()), "no view from its header" if self.kind == "dicom" else ""
        )

    def _relative_name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def no_pictures(n_images: int, what_else: str = "") -> list[str]:
    """Return a warning that `n_images` have no picture in a build with withheld pixels; [] if `n_images` is 0."""
    if not n_images:
        return []
    verb = "has" if n_images == 1 else "have"
    lost = "no hash to verify a copy against" + (f" and {what_else}" if what_else else "")
    return [f"{count_text(n_images, 'image')} {verb} no picture here, so {lost}"]


def absent_pictures(pictured: Iterable[bool], *, state_sizes: bool = False) -> list[str]:
    """Return a warning that images of a download have no picture; [] if all have one.

    With `state_sizes`, only the pictures state the sizes of images.
    """
    flags = list(pictured)
    n_absent = len(flags) - sum(flags)
    if not n_absent:
        return []
    verb = "has" if n_absent == 1 else "have"
    remedy = "which states the image sizes" if state_sizes else "or withhold images in the build"
    return [
        f"{n_absent:,} of {count_text(len(flags), 'image')} {verb} no picture here: name the folder of the pictures, "
        f"{remedy}"
    ]


def dicom_headers(pictures: Mapping[str, PictureFile], faults: Faults, *, workers: int = 1) -> dict[str, Header]:
    """Return a dict from image id to DICOM header; a picture that is unreadable or has no pixels is noted as a problem.

    Parameters
    ----------
    pictures : image id -> picture
    workers : number of reading processes; with more than one, the calling script needs the ``__main__`` guard of
        `multiprocessing`
    """
    paths = [picture.path for picture in pictures.values()]
    results = [header for chunk in in_chunks(_read_headers, paths, workers) for header in chunk]
    headers: dict[str, Header] = {}
    for image_id, header in zip(pictures, results, strict=True):
        if isinstance(header, str):
            rule = "must be a readable DICOM file"
            faults.add(Problem(pictures[image_id].source_path, image_id, "picture", rule, header), image_id)
        else:
            headers[image_id] = header
    return headers


def _read_headers(paths: Sequence[Path]) -> list[Header | str]:
    """Return for each path the header, or the reason why the file is unusable."""
    from reveal_bench.dicom import DicomError, read_header

    headers: list[Header | str] = []
    for path in paths:
        try:
            header = read_header(path)
        except DicomError as error:
            headers.append(str(error))
            continue
        if not header.has_pixels:
            headers.append("no pixel data")
        else:
            headers.append(header if header.rows and header.columns else "no Rows and Columns")
    return headers
