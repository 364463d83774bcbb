"""Finding an image among the files of a download: by name, or by the sha256 of its bytes.

A name fits if it is the image's id, or if the last parts of the path, joined by "_", are: ``train/p1/s2/v3.jpg`` fits
``p1_s2_v3``, ``s2_v3``, ``v3`` and ``v3.jpg``. Of several files the one with the right hash counts. Zip archives are
searched like folders. Files are hashed only when names do not lead to the image, and then each one once.
"""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from reveal_bench.builders.pictures import Developed, develop
from reveal_bench.builders.rows import Row
from reveal_bench.builders.source import Problem
from reveal_bench.records import PictureFile

__all__ = ["Found", "SourceFiles"]

SUFFIXES = {".jpg", ".jpeg", ".png", ".dcm", ".dicom", ".dic", ""}
PARTS = 4
"""Last parts of a path that may make up an id."""
HEAD_BYTES = 132


@dataclass(frozen=True, slots=True)
class Found:
    """The picture of an image, as it is published."""

    data: bytes = field(repr=False)
    name: str
    size: tuple[int, int]
    pipeline: str
    is_verified: bool


class SourceFiles:
    """All files under `root` that may be pictures; `progress` is told of each file that is hashed."""

    def __init__(self, root: Path, progress: Callable[[str, int, int | None], None] | None = None) -> None:
        self.root, self._progress = root, progress
        self._named: dict[str, list[PictureFile]] = {}
        self._files: list[PictureFile] = []
        self._hashed: dict[str, PictureFile] | None = None
        self._lock = threading.Lock()
        for file in _pictures_under(root):
            self._files.append(file)
            for name in _names(PurePosixPath(file.shown)):
                self._named.setdefault(name, []).append(file)

    def find(self, facts: Row) -> Found | Problem:
        """The picture of an image; `facts` has image_id, width, height and, where they are known, the hashes."""
        image_id, source = facts["image_id"], facts["source_sha256"]
        candidates = self._named.get(image_id.casefold(), [])
        faults = []
        for file in candidates:
            found = _checked(file, facts)
            if isinstance(found, Found):
                return found
            faults.append(found)
        same = self._by_hash().get(source) if source is not None else None
        if same is not None:
            return _checked(same, facts)
        if faults:
            return faults[0]
        rule = "must be in the download, by name" + (" or by its hash" if source is not None else "")
        return Problem(self.root.name, image_id, "image", rule, f"none of {len(self._files):,} files")

    def _by_hash(self) -> dict[str, PictureFile]:
        with self._lock:
            if self._hashed is None:
                self._hashed = {}
                for n_done, file in enumerate(self._files, start=1):
                    self._hashed.setdefault(_sha256(file), file)
                    if self._progress is not None:
                        self._progress("hashing", n_done, len(self._files))
            return self._hashed


def _checked(file: PictureFile, facts: Row) -> Found | Problem:
    """The file's picture, if it is the right one."""
    image_id, source, pixels = facts["image_id"], facts["source_sha256"], facts["pixel_sha256"]
    try:
        made = develop(_with_kind(file))
    except ValueError as error:
        return Problem(file.shown, image_id, "image", "must be a readable picture", str(error))
    if source is not None and made.source_sha256 != source and made.pixel_sha256 != pixels:
        rule = f"must be {source}, as the dataset states"
        return Problem(file.shown, image_id, "source_sha256", rule, made.source_sha256)
    if pixels is not None and made.pixel_sha256 != pixels:
        rule = f"must be {pixels} after {made.pipeline!r}"
        return Problem(file.shown, image_id, "pixel_sha256", rule, made.pixel_sha256)
    return _of_size(file, facts, made, is_verified=source is not None or pixels is not None)


def _of_size(file: PictureFile, facts: Row, made: Developed, *, is_verified: bool) -> Found | Problem:
    height, width = made.size
    if facts["width"] is not None and (width, height) != (facts["width"], facts["height"]):
        rule = f"must be {facts['width']} x {facts['height']} pixels"
        return Problem(file.shown, facts["image_id"], "size", rule, f"{width} x {height}")
    return Found(made.data or b"", made.name, made.size, made.pipeline, is_verified)


def _pictures_under(root: Path) -> Iterator[PictureFile]:
    for path in sorted(root.rglob("*")):
        shown = path.relative_to(root).as_posix()
        if any(part.startswith(".") for part in PurePosixPath(shown).parts) or not path.is_file():
            continue
        if path.suffix.lower() == ".zip":
            yield from _members(path, shown)
        elif path.suffix.lower() in SUFFIXES:
            yield PictureFile(path, path.name, shown)


def _members(archive: Path, shown: str) -> Iterator[PictureFile]:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [entry.filename for entry in opened.infolist() if not entry.is_dir()]
    except (OSError, zipfile.BadZipFile):
        return  # not an archive after all: what should have come from it is then reported as missing
    folder = PurePosixPath(shown).parent
    for name in names:
        member = PurePosixPath(name)
        if member.suffix.lower() in SUFFIXES:
            yield PictureFile(archive, member.name, (folder / member).as_posix(), member=name)


def _names(shown: PurePosixPath) -> Iterator[str]:
    yield shown.name.casefold()
    stem = (*shown.parts[:-1], shown.name[: len(shown.name) - len(shown.suffix)])
    for n in range(1, min(PARTS, len(stem)) + 1):
        yield "_".join(stem[-n:]).casefold()


def _with_kind(file: PictureFile) -> PictureFile:
    """The file with its kind, by its first bytes."""
    from dataclasses import replace

    head = _head(file)
    if head[128:132] == b"DICM" or file.path.suffix.lower() in (".dcm", ".dicom", ".dic"):
        return replace(file, kind="dicom")
    is_png16 = head.startswith(b"\x89PNG\r\n\x1a\n") and head[24:25] == b"\x10"
    return replace(file, kind="png16" if is_png16 else "picture")


def _head(file: PictureFile) -> bytes:
    try:
        if file.member is None:
            with file.path.open("rb") as opened:
                return opened.read(HEAD_BYTES)
        with zipfile.ZipFile(file.path) as archive, archive.open(file.member) as member:
            return member.read(HEAD_BYTES)
    except (OSError, KeyError, zipfile.BadZipFile):
        return b""  # `develop` says why


def _sha256(file: PictureFile) -> str:
    try:
        if file.member is None:
            with file.path.open("rb") as opened:
                return hashlib.file_digest(opened, "sha256").hexdigest()
        with zipfile.ZipFile(file.path) as archive, archive.open(file.member) as member:
            return hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, KeyError, zipfile.BadZipFile):
        return ""
