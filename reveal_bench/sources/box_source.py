"""Steps shared by the sources of bounding boxes: find files, parse tables, check counts, find pictures, make records.

The module of a source fills a :class:`BoxSource` with what differs: how to find the files of its download, how to parse
them, and how to make records once the pictures are found. Every source first reads all tables and compares their counts
with the published counts. It then searches for the pictures and raises all problems together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.sources.boxes import (
    Faults,
    PictureFolder,
    PictureKind,
    absent_pictures,
    count_warnings,
    is_synthetic,
)
from reveal_bench.sources.source import Extra, Inspection, Pixels, Record, SourceData

Parsed = TypeVar("Parsed")
"""Parsed tables of a source; each source has its own type for them."""


@dataclass
class BoxBuild(Generic[Parsed]):
    """Options, parsed tables and problems so far of one call of :meth:`BoxSource.read` or :meth:`BoxSource.inspect`.

    With `is_inspection`, pictures are only counted, so all may be missing.
    """

    root: Path
    files: Mapping[str, Path]
    parsed: Parsed
    faults: Faults
    warnings: list[str]
    pixels: Pixels
    keep_going: bool
    pictures: Path | None
    workers: int
    is_inspection: bool = False

    def films(self, suffixes: Sequence[str], *, kind: PictureKind = "picture") -> PictureFolder:
        """Return the pictures below the folder that the user named, by default below the download.

        Raises
        ------
        ValueError
            If no picture is found although the user named a folder or pixels are embedded.
        """
        folder = self.root if self.root.is_dir() else self.root.parent
        embed = self.pixels == "embed"
        return PictureFolder.below(
            folder if self.pictures is None else Path(self.pictures),
            suffixes,
            kind=kind,
            need_all=embed,
            may_be_empty=self.is_inspection or (not embed and self.pictures is None),
        )

    def settle(self) -> None:
        """Raise one error with all problems, or turn them into warnings if `keep_going`.

        ``faults.bad`` then contains the ids of the images to leave out.
        """
        self.faults.settle(self.warnings, keep_going=self.keep_going)


Splits = Mapping[str, Iterable[Record]]


@dataclass(frozen=True)
class BoxSource(Generic[Parsed]):
    """A source of boxes or masks whose annotations are in a few tables; each source sets the attributes.

    Attributes
    ----------
    name : name of the source
    needs : contents that `root` must have, in the words of the error message
    published : counts that the source publishes
    find : returns a dict from role to file, which is empty if `root` is not a download of this source
    parse : returns the parsed files, and notes their problems
    count : returns counts of the parsed files; the counts that `published` also has are compared with it
    pictured : finds the pictures, and returns a dict from image id to True if the image has a picture
    make : finds the pictures, settles all problems, and returns (splits, extra tables)
    pictures_state_sizes : True if only the pictures state the sizes of images
    """

    name: str
    needs: str
    published: Mapping[str, int]
    find: Callable[[Path], dict[str, Path]]
    parse: Callable[[Mapping[str, Path], Faults, list[str]], Parsed]
    count: Callable[[Parsed], Mapping[str, int]]
    pictured: Callable[[BoxBuild[Parsed]], Mapping[str, bool]]
    make: Callable[[BoxBuild[Parsed]], tuple[Splits, Sequence[Extra]]]
    pictures_state_sizes: bool = False

    def detect(self, root: Path) -> float:
        """Return 1 if `root` is or contains an annotation file with its published name, else 0."""
        return 1.0 if self.find(Path(root)) else 0.0

    def inspect(self, root: Path, *, pictures: Path | None = None, workers: int = 1) -> Inspection:
        """Count the entries of the tables and their pictures, and list problems.

        Raises
        ------
        ValueError
            If `root` does not contain the annotations.
        """
        root = Path(root)
        files, faults = self._files(root), Faults()
        warnings: list[str] = []
        parsed = self.parse(files, faults, warnings)
        synthetic = is_synthetic(root, files.values())
        counts = dict(self.count(parsed))
        warnings += [] if synthetic else count_warnings(counts, self.published)
        build = BoxBuild(
            root, files, parsed, faults, warnings, "withhold", False, pictures, workers, is_inspection=True
        )
        pictured = self.pictured(build)
        counts["pictures"] = sum(pictured.values())
        warnings += absent_pictures(pictured.values(), state_sizes=self.pictures_state_sizes)
        names = {r: p.relative_to(root).as_posix() if root in p.parents else p.name for r, p in files.items()}
        return Inspection(
            self.name, root, names, counts, self.published, faults.problems, warnings, synthetic=synthetic
        )

    def read(
        self,
        root: Path,
        *,
        pixels: Pixels = "embed",
        keep_going: bool = False,
        pictures: Path | None = None,
        workers: int = 1,
    ) -> SourceData:
        """Return the records of each split and the source's extra tables.

        Parameters
        ----------
        root : folder of the download, or its main file
        pixels : with "withhold", pictures are needed only if no table states their sizes; pictures that are present are
            hashed
        keep_going : leave out images with a problem instead of raising
        pictures : folder with the pictures at any depth, `root` by default
        workers : processes that read headers of DICOM files

        Raises
        ------
        BuildError
            With every problem of the tables, and every missing or unreadable picture.
        ValueError
            If `root` does not contain the annotations, or all pictures are missing although they are needed.
        """
        root = Path(root)
        files, faults = self._files(root), Faults()
        warnings: list[str] = []
        parsed = self.parse(files, faults, warnings)
        synthetic = is_synthetic(root, files.values())
        warnings[:0] = [] if synthetic else count_warnings(self.count(parsed), self.published)
        build = BoxBuild(root, files, parsed, faults, warnings, pixels, keep_going, pictures, workers)
        splits, extras = self.make(build)
        return SourceData(splits, warnings, extras, synthetic=synthetic, left_out=faults.problems)

    def _files(self, root: Path) -> dict[str, Path]:
        files = self.find(root)
        if not files:
            raise ArgumentError("root", f"must contain {self.needs}", root)
        return files
