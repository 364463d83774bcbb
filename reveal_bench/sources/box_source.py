"""The skeleton of a source of boxes. The module of a source fills a :class:`BoxSource` with the parts that differ: how
to find the files of the download, how to parse them, and how to make records once the pictures are found. The order of
the steps is the same for all sources: read all tables, compare their counts with the published ones, look for the
pictures, raise all problems together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.sources.boxes import Faults, PictureFolder, PictureKind, count_warnings, is_synthetic
from reveal_bench.sources.source import Extra, Inspection, Pixels, Record, SourceData

Parsed = TypeVar("Parsed")
"""Contents of a source's tables, in a form of its own."""


@dataclass
class BoxBuild(Generic[Parsed]):
    """The state of one `read`: its options, the contents of the tables, and the problems noted so far."""

    root: Path
    files: Mapping[str, Path]
    parsed: Parsed
    faults: Faults
    warnings: list[str]
    pixels: Pixels
    keep_going: bool
    pictures: Path | None
    workers: int

    def films(self, suffixes: Sequence[str], *, kind: PictureKind = "picture") -> PictureFolder:
        """Return the pictures in the folder that the user names, or else in the download.

        Raises
        ------
        ValueError
            If the folder that the user names has no pictures, or pictures are needed and missing.
        """
        folder = self.root if self.root.is_dir() else self.root.parent
        embed = self.pixels == "embed"
        return PictureFolder.below(
            folder if self.pictures is None else Path(self.pictures),
            suffixes,
            kind=kind,
            need_all=embed,
            may_be_empty=not embed and self.pictures is None,
        )

    def settle(self) -> None:
        """Raise all problems together, or turn them into warnings.

        ``faults.bad`` then has the ids of images to leave out.
        """
        self.faults.settle(self.warnings, keep_going=self.keep_going)


Splits = Mapping[str, Iterable[Record]]


@dataclass(frozen=True)
class BoxSource(Generic[Parsed]):
    """A source of boxes or masks whose annotations are a few tables; its module fills in the attributes.

    Attributes
    ----------
    name : name of the source
    needs : contents that `root` must have, as the error message puts it
    published : counts that the source publishes
    find : returns role -> file of a download; an empty dict if `root` is not a download
    parse : returns the contents of the files, and notes problems
    count : returns counts of the parsed contents, which are compared with `published` as far as that has them
    make : returns splits and extra tables, after finding the pictures and settling all problems
    """

    name: str
    needs: str
    published: Mapping[str, int]
    find: Callable[[Path], dict[str, Path]]
    parse: Callable[[Mapping[str, Path], Faults, list[str]], Parsed]
    count: Callable[[Parsed], Mapping[str, int]]
    make: Callable[[BoxBuild[Parsed]], tuple[Splits, Sequence[Extra]]]

    def detect(self, root: Path) -> float:
        """Return 1 if `root` is, or holds, the annotations under a published name; else 0."""
        return 1.0 if self.find(Path(root)) else 0.0

    def inspect(self, root: Path, *, pictures: Path | None = None, workers: int = 1) -> Inspection:
        """Count the entries of the tables, and list their problems; `pictures` are ignored.

        Raises
        ------
        ValueError
            If `root` does not hold the annotations.
        """
        root = Path(root)
        files, faults = self._files(root), Faults()
        warnings: list[str] = []
        counts = self.count(self.parse(files, faults, warnings))
        synthetic = is_synthetic(root, files.values())
        warnings += [] if synthetic else count_warnings(counts, self.published)
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
        """Return records per split, and the extra tables of the source.

        Parameters
        ----------
        root : folder of the download, or its main file
        pixels : with "withhold", pictures are needed only if no table has their sizes; pictures that are present are
            hashed
        keep_going : leave out images with a problem instead of raising
        pictures : folder with the pictures at any depth, `root` by default
        workers : processes that read headers of DICOM files

        Raises
        ------
        BuildError
            With every problem of the tables, and every picture that is not there or cannot be read.
        ValueError
            If `root` does not hold the annotations, or pictures are needed and missing.
        """
        root = Path(root)
        files, faults = self._files(root), Faults()
        warnings: list[str] = []
        parsed = self.parse(files, faults, warnings)
        synthetic = is_synthetic(root, files.values())
        warnings[:0] = [] if synthetic else count_warnings(self.count(parsed), self.published)
        build = BoxBuild(root, files, parsed, faults, warnings, pixels, keep_going, pictures, workers)
        splits, extras = self.make(build)
        return SourceData(splits, warnings, extras, synthetic=synthetic)

    def _files(self, root: Path) -> dict[str, Path]:
        files = self.find(root)
        if not files:
            raise ArgumentError("root", f"must hold {self.needs}", root)
        return files
