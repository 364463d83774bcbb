"""Pictures of the box sources: found by name below a folder, and the headers of those that are DICOM.

Conventions
-----------
* A picture belongs to the image whose id is the stem of its file name; two of one name are a problem of that image.
* Where pixels are embedded every image needs its picture. Where they are withheld a picture is still looked for, to
  have the hashes that an own copy is verified with; what has none is counted in a warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reveal_bench.builders.box_files import Faults, TableRow, counted
from reveal_bench.builders.source import Pixels, Problem
from reveal_bench.records import PictureFile

if TYPE_CHECKING:
    from reveal_bench.dicom.header import Header

__all__ = ["Gallery", "dicom_headers", "no_pictures"]

PictureKind = Literal["picture", "dicom", "png16"]

CHUNK = 64
"""Headers that a process reads at a time."""


@dataclass(frozen=True)
class Gallery:
    """Pictures below a folder by the stem of their file names; a stem that occurs twice is in `doubles`.

    `need_all` says whether an image without a picture is a problem.
    """

    root: Path
    paths: Mapping[str, Path]
    doubles: Mapping[str, Path]
    kind: PictureKind = "picture"
    need_all: bool = True

    @classmethod
    def below(
        cls,
        root: Path,
        suffixes: Sequence[str],
        *,
        kind: PictureKind = "picture",
        skip: Sequence[str] = (),
        need_all: bool = True,
        may_be_empty: bool = False,
    ) -> Gallery:
        """All visible files with one of the `suffixes` (lower case) at any depth, but in folders named in `skip`.

        Raises
        ------
        ValueError
            If there is none, unless it `may_be_empty`.
        """
        paths: dict[str, Path] = {}
        doubles: dict[str, Path] = {}
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in skip)
            for name in sorted(files):
                stem, suffix = os.path.splitext(name)
                if suffix.lower() in suffixes and not name.startswith("."):
                    (doubles if stem in paths else paths)[stem] = Path(folder, name)
        if not paths and not may_be_empty:
            raise ValueError(f"`pictures` must hold {' or '.join(suffixes)} files, got none below {root}")
        return cls(Path(root), paths, doubles, kind, need_all)

    @classmethod
    def of_build(
        cls,
        root: Path,
        pictures: Path | None,
        suffixes: Sequence[str],
        *,
        pixels: Pixels,
        kind: PictureKind = "picture",
    ) -> Gallery:
        """The pictures of a download at `root`, or of the folder that the user names, as `pixels` needs them.

        Raises
        ------
        ValueError
            If there is none where the user says they are, or where they are needed.
        """
        folder = root if root.is_dir() else root.parent
        embed = pixels == "embed"
        return cls.below(
            folder if pictures is None else Path(pictures),
            suffixes,
            kind=kind,
            need_all=embed,
            may_be_empty=not embed and pictures is None,
        )

    def picture(
        self, image_id: str, faults: Faults, *, file: str = "pictures", row: int | str | None = None
    ) -> PictureFile | None:
        """The picture of an image, published as PNG unless its bytes pass unchanged.

        None if it is not there, or after noting a problem, which stands in `row` (or the image's) of `file`.
        """
        path = self.paths.get(image_id)
        if path is None and not self.need_all:
            return None
        if path is None or image_id in self.doubles:
            rule, value = f"must be there for {image_id}", "no such file"
            if path is not None:
                both = f"{self._shown(path)} and {self._shown(self.doubles[image_id])}"
                rule, value = "must be the only one of its name", both
            faults.add(Problem(file, image_id if row is None else row, "picture", rule, value), image_id)
            return None
        name = path.name if self.kind == "picture" else f"{image_id}.png"
        return PictureFile(path, name, self._shown(path), self.kind)

    def pictures_of(self, first_rows: Mapping[str, TableRow], faults: Faults) -> dict[str, PictureFile]:
        """The pictures of images by image id, those that have one; problems stand in the first row of the image."""
        found = {
            image_id: self.picture(image_id, faults, file=row.file, row=row.line)
            for image_id, row in first_rows.items()
        }
        return {image_id: picture for image_id, picture in found.items() if picture is not None}

    def warnings(self, image_ids: Iterable[str]) -> list[str]:
        """How many pictures are of no image, and how many images have no picture although they need none."""
        ids = set(image_ids)
        n_unused = len(self.paths.keys() - ids)
        found = []
        if n_unused:
            verbs = "has no label here and is" if n_unused == 1 else "have no label here and are"
            found.append(f"{counted(n_unused, 'picture')} {verbs} no part of the dataset")
        if self.need_all:
            return found
        return found + no_pictures(
            len(ids - self.paths.keys()), "no view from a header" if self.kind == "dicom" else ""
        )

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def no_pictures(n_images: int, what_else: str = "") -> list[str]:
    """The warning of a build with withheld pixels in which so many images have no picture."""
    if not n_images:
        return []
    verb = "has" if n_images == 1 else "have"
    lost = "no hash to verify an own copy with" + (f", {what_else}" if what_else else "")
    return [f"{counted(n_images, 'image')} {verb} no picture here: {lost}"]


def dicom_headers(pictures: Mapping[str, PictureFile], faults: Faults, *, workers: int = 1) -> dict[str, Header]:
    """The headers of DICOM pictures by image id, but for those noted as unreadable or without pixels.

    Parameters
    ----------
    pictures : by image id
    workers : processes that read; with more than one the calling script needs the ``__main__`` guard of
        `multiprocessing`
    """
    ids = list(pictures)
    chunks = [[pictures[image_id].path for image_id in ids[i : i + CHUNK]] for i in range(0, len(ids), CHUNK)]
    found: list[Header | str] = []
    if workers <= 1 or len(chunks) < 2:
        for chunk in chunks:
            found += _read_headers(chunk)
    else:
        with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=get_context("spawn")) as pool:
            for part in pool.map(_read_headers, chunks):
                found += part
    headers: dict[str, Header] = {}
    for image_id, header in zip(ids, found, strict=True):
        if isinstance(header, str):
            rule = "must be a readable DICOM file"
            faults.add(Problem(pictures[image_id].shown, image_id, "picture", rule, header), image_id)
        else:
            headers[image_id] = header
    return headers


def _read_headers(paths: Sequence[Path]) -> list[Header | str]:
    """Headers, or the reasons why there is none that can be used."""
    from reveal_bench.dicom import DicomError, read_header

    found: list[Header | str] = []
    for path in paths:
        try:
            header = read_header(path)
        except DicomError as error:
            found.append(str(error))
            continue
        if not header.has_pixels:
            found.append("no pixel data")
        else:
            found.append(header if header.rows and header.columns else "no Rows and Columns")
    return found
