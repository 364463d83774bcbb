"""Look-up of selected studies in the MIMIC-CXR-JPG tree without reading all of its 377,110 images.

Source: MIMIC-CXR-JPG 2.0.0 and 2.1.0 on PhysioNet (credentialed access). ::

    files/p10/p10000032/s50414267/<dicom_id>.jpg     p + first two digits of the subject / p + subject / s + study
    IMAGE_FILENAMES                                  one path per line
    mimic-cxr-2.0.0-metadata.csv.gz                  dicom_id, subject_id, study_id, ViewPosition, Rows, Columns, ...
    mimic-cxr-2.0.0-{split,chexpert,negbio}.csv.gz   also as .csv

Conventions
-----------
* The picture folders are never listed: a picture's path is made from the subject, study and DICOM id in its metadata
  row.
* The tree may be in ``physionet.org/files/mimic-cxr-jpg/2.1.0/`` together with ``index.html`` files, as after a
  download with `wget -r`. Unused pictures may be missing.
* Without metadata the ids come from ``IMAGE_FILENAMES``, sizes from the pictures' headers, and views are unknown.
* Rows and Columns are the height and width of the original; a picture of another size was rescaled and is refused,
  because boxes refer to the original.
* Study dates (shifted by the source) only decide which of two studies is earlier. They are not stored.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TextIO

from reveal_bench.files import leads_out
from reveal_bench.kinds.images import PictureFile, StudyImage
from reveal_bench.sources.pictures import picture_size
from reveal_bench.sources.source import MissingPicture, Problem, entries_in, folders_in
from reveal_bench.tables import TableRow, open_table

Size = tuple[int, int]

REQUIRED = ("dicom_id", "subject_id", "study_id")
PROJECTIONS = {
    "AP": "AP", "AP AXIAL": "AP", "AP LLD": "AP", "AP RLD": "AP", "PA": "PA", "PA LLD": "PA", "PA RLD": "PA",
    "LATERAL": "LATERAL", "LL": "LATERAL", "RL": "LATERAL", "XTABLE LATERAL": "LATERAL",
    "ANTERO-POSTERIOR": "AP", "POSTERO-ANTERIOR": "PA", "LEFT LATERAL": "LATERAL", "RIGHT LATERAL": "LATERAL",
}  # fmt: skip
"""ViewPosition in capitals (if blank, ViewCodeSequence_CodeMeaning) -> view.

Oblique views have no entry and become UNKNOWN.
"""

_TABLE = re.compile(r"mimic-cxr-2\.\d+\.\d+-(metadata|split|chexpert|negbio|test-set-labeled)\.csv(\.gz)?")
_PATH = re.compile(r"(?:.*/)?files/p(\d\d)/p(\1\d+)/s(\d+)/([^/]+)\.jpg")
DEEPEST, MOST_FOLDERS = 5, 2_000
"""Largest depth and number of folders that :func:`find_trees` searches."""


class ImageFault(NamedTuple):
    """A problem of an image; the caller adds the row of the user's table. `missing` is the image without a picture."""

    field: str
    rule: str
    value: str
    missing: str = ""

    def problem(self, file: str, row: int) -> Problem:
        """Return the problem of a row of the user's table."""
        place = file, row, self.field, self.rule, self.value
        return MissingPicture(*place, self.missing) if self.missing else Problem(*place)


@dataclass(frozen=True, slots=True)
class MimicImage:
    """An image with its metadata; `size` is (height, width), or None if the metadata do not state it."""

    dicom_id: str
    path: Path
    source_path: str
    view: str = "UNKNOWN"
    view_raw: str | None = None
    size: Size | None = None


@dataclass(frozen=True, slots=True)
class MimicStudy:
    """A study; `split` is MIMIC-CXR-JPG's own split ("train", "validate", "test"), or None if unknown."""

    study_id: str
    subject_id: str
    images: tuple[MimicImage, ...]
    split: str | None = None
    taken: tuple[int, float] | None = field(default=None, repr=False)

    def is_before(self, other: MimicStudy) -> bool | None:
        """Return True if this study was taken before `other`, None if the date of either study is unknown."""
        return None if self.taken is None or other.taken is None else self.taken < other.taken


def find_trees(root: Path) -> list[Path]:
    """Return the folders at or below `root` that contain a metadata table or IMAGE_FILENAMES.

    Folders of pictures are not searched.
    """
    folders: list[Path] = []
    level, n_seen = [Path(root)], 0
    for _ in range(DEEPEST + 1):
        below: list[Path] = []
        for folder in level:
            n_seen += 1
            if {"metadata", "IMAGE_FILENAMES"} & tree_files(folder).keys():
                folders.append(folder)
            elif n_seen < MOST_FOLDERS:
                below += [path for path in folders_in(folder) if not re.fullmatch(r"p\d+|\..*", path.name)]
        level = below
    return folders


def tree_files(tree: Path) -> dict[str, Path]:
    """Return a dict from role to table of a tree.

    Roles are "metadata", "split", "chexpert", "negbio", "test-set-labeled" and "IMAGE_FILENAMES".

    If a table exists as ``.csv.gz`` and as ``.csv``, the former is used, because it is the published file.
    """
    files: dict[str, Path] = {}
    for path in entries_in(tree):
        match = _TABLE.fullmatch(path.name)
        if match is not None and (match[1] not in files or match[2]):
            files[match[1]] = path
        elif path.name == "IMAGE_FILENAMES":
            files[path.name] = path
    return files


def look_up_studies(
    tree: Path, study_ids: Collection[str], problems: list[Problem], warnings: list[str]
) -> dict[str, MimicStudy]:
    """Return those of `study_ids` (without "s") that the tree lists, by id; their pictures may be missing."""
    files = tree_files(tree)
    before = len(problems)
    if "metadata" in files:
        studies = _from_metadata(tree, files["metadata"], set(study_ids), problems)
    elif "IMAGE_FILENAMES" in files:
        studies = _from_names(tree, files["IMAGE_FILENAMES"], set(study_ids), problems)
        warnings.append("the MIMIC-CXR-JPG tree has no metadata table, so views are unknown")
    else:
        rule = "must contain mimic-cxr-2.*-metadata.csv.gz or IMAGE_FILENAMES"
        problems.append(Problem(tree.name, None, "folder", rule, "neither"))
        return {}
    if len(problems) == before and "split" in files:
        splits = _splits(files["split"], studies, problems)
        studies = {study_id: replace(study, split=splits.get(study_id)) for study_id, study in studies.items()}
    counts = Counter(study.split for study in studies.values() if study.split not in (None, "test"))
    warnings += [
        f"{n:,} studies belong to MIMIC-CXR-JPG's split {split!r}, on which models may have been trained"
        for split, n in sorted(counts.items(), key=str)
    ]
    return studies


def study_images(study: MimicStudy, *, need_pictures: bool) -> tuple[tuple[StudyImage, ...], list[ImageFault]]:
    """Return (images, problems) of a study; sizes are read from the pictures that are present."""
    images, faults = [], []
    for image in study.images:
        there = image.path.is_file() and not leads_out(image.path)
        size = image.size
        try:
            picture_height_width = picture_size(image.path) if there else None
        except ValueError as error:
            faults.append(ImageFault("picture", "must be readable", f"{error} in {image.source_path}"))
            continue
        if picture_height_width is None and need_pictures:
            rule = "must exist when pixels are embedded"
            faults.append(ImageFault("picture", rule, f"no {image.source_path}", image.dicom_id))
        elif picture_height_width is None and size is None:
            faults.append(
                ImageFault("size", "must be stated by the metadata or the picture", f"neither for {image.source_path}")
            )
        elif None not in (picture_height_width, size) and picture_height_width != size:
            rule = "must have the size that the metadata state (boxes do not fit rescaled pictures)"
            value = f"{_by(picture_height_width)} instead of {_by(size)} for {image.source_path}"
            faults.append(ImageFault("picture", rule, value))
        size = size or picture_height_width
        if size is not None:
            picture = PictureFile(image.path, f"{image.dicom_id}.jpg", image.source_path) if there else None
            images.append(
                StudyImage(image.dicom_id, image.view, size[1], size[0], view_raw=image.view_raw, picture=picture)
            )
    return tuple(images), faults


def _by(size: Size | None) -> str:
    return "unknown" if size is None else f"{size[1]} x {size[0]}"


def _image(tree: Path, subject: str, study: str, dicom_id: str) -> MimicImage:
    name = f"files/p{subject[:2]}/p{subject}/s{study}/{dicom_id}.jpg"
    return MimicImage(dicom_id, tree / name, name)


def _from_metadata(tree: Path, path: Path, study_ids: set[str], problems: list[Problem]) -> dict[str, MimicStudy]:
    studies: dict[str, MimicStudy] = {}
    for row in table_rows(path, REQUIRED, problems):
        study_id, subject, dicom_id = row["study_id"], row["subject_id"], row["dicom_id"]
        if study_id not in study_ids:
            continue
        if not (subject.isdecimal() and re.fullmatch(r"[\w.-]+", dicom_id)):
            rule = "must be a number and a DICOM id"
            problems.append(row.problem("subject_id, dicom_id", rule, f"{subject!r}, {dicom_id!r}"))
            continue
        image = _described(_image(tree, subject, study_id, dicom_id), row, problems)
        study = studies.setdefault(study_id, MimicStudy(study_id, subject, ()))
        if study.subject_id != subject:
            problems.append(
                row.problem("subject_id", f"must be the same for all images of a study ({study.subject_id})", subject)
            )
        if any(image.dicom_id == other.dicom_id for other in study.images):
            problems.append(row.problem("dicom_id", "must be unique", dicom_id))
            continue
        taken = _taken(row)
        known = [time for time in (study.taken, taken) if time is not None]
        studies[study_id] = replace(study, images=(*study.images, image), taken=min(known, default=None))
    return studies


def _described(image: MimicImage, row: TableRow, problems: list[Problem]) -> MimicImage:
    sides = [row.get(name, "").removesuffix(".0") for name in ("Rows", "Columns")]
    size: Size | None = None
    if all(side.isdecimal() and int(side) > 0 for side in sides):
        size = int(sides[0]), int(sides[1])
    elif any(sides):
        problems.append(row.problem("Rows, Columns", "must be whole numbers above 0", " and ".join(sides)))
    view, raw = view_of(row)
    return replace(image, view=view, view_raw=raw, size=size)


def view_of(row: TableRow) -> tuple[str, str | None]:
    """Return (view, text in the table) of a row of the metadata; ("UNKNOWN", None) if both columns are blank."""
    raw = row.get("ViewPosition") or row.get("ViewCodeSequence_CodeMeaning") or None
    return PROJECTIONS.get((raw or "").upper(), "UNKNOWN"), raw


def _taken(row: TableRow) -> tuple[int, float] | None:
    """Return (date, time) as comparable numbers, or None if unknown.

    StudyTime is HHMMSS with decimals; leading zeros may be missing.
    """
    try:
        return int(row["StudyDate"]), float(row["StudyTime"])
    except (KeyError, ValueError):
        return None


def _from_names(tree: Path, path: Path, study_ids: set[str], problems: list[Problem]) -> dict[str, MimicStudy]:
    studies: dict[str, MimicStudy] = {}
    with _text(path, problems) as file:
        for line, text in enumerate(file, start=1):
            match = _PATH.fullmatch(text.strip())
            if match is None:
                if text.strip():
                    rule = "must look like files/p10/p10000032/s50414267/<dicom_id>.jpg"
                    problems.append(Problem(path.name, line, "path", rule, repr(text.strip()[:120])))
                continue
            _, subject, study_id, dicom_id = match.groups()
            if study_id in study_ids:
                study = studies.setdefault(study_id, MimicStudy(study_id, subject, ()))
                images = (*study.images, _image(tree, subject, study_id, dicom_id))
                studies[study_id] = replace(study, images=images)
    return studies


def _splits(path: Path, studies: Collection[str], problems: list[Problem]) -> dict[str, str]:
    rows = table_rows(path, ("study_id", "split"), problems)
    return {row["study_id"]: row["split"] for row in rows if row["study_id"] in studies}


def table_rows(path: Path, required: tuple[str, ...], problems: list[Problem]) -> Iterator[TableRow]:
    """Yield the rows of a table, which may be compressed; note a problem if a `required` column is missing."""
    with open_table(path, problems=problems) as reader:
        lacking = [name for name in required if name not in reader]
        if not lacking:
            yield from reader
        elif not reader.is_broken:
            heads = ", ".join(reader.columns)[:200]
            problems.append(Problem(path.name, 1, ", ".join(lacking), "must be columns", heads))


@contextmanager
def _text(path: Path, problems: list[Problem]) -> Iterator[TextIO]:
    """Open a text file, decompressed if its content is gzip; note a problem if it is unreadable."""
    try:
        if leads_out(path):
            raise OSError("a link out of the download")
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as stream:
                yield io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        problems.append(
            Problem(path.name, None, "file", "must be a readable table, plain or compressed by gzip", str(error))
        )
