"""Cases for display, with their images, references and a system's answers, and drawings for annotation tools.

Conventions
-----------
A case is a row of a dataset folder's main config. The questions about a case are its *groups*: findings, labels, or the
category of a task. Marks are in pixels (x, y) of the case's full-size image with the index `film`. Outcomes come from
scored rows; displaying a case scores nothing.

*Drawings* are the marks and labels of readers and models in a form that does not depend on any exchange format. Their
coordinates are pixels of the full-size image, x to the right and y down; a box is [x, y, width, height]. `reader` names
who made a drawing: :data:`PREDICTION`, or a kind of reader such as "ground_truth", followed by a colon and the reader's
own id if there are several readers of that kind ("individual:R2").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.images import StudyImage
from reveal_bench.masks import Box, Rle

REFERENCE = "Reference"
"""Reader whose marks are the reference for scores."""


@dataclass(frozen=True, slots=True)
class CaseFilm:
    """An image of a case; `is_prior` is True if it was taken earlier, in a prior study."""

    image_id: str
    view: str
    width: int
    height: int
    spacing_mm: tuple[float, float] | None = None
    spacing_source: str = "none"
    is_prior: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A drawing of one group on one image; boxes are [x, y, width, height]."""

    film: int
    group: str
    masks: tuple[Rle, ...] = ()
    boxes: tuple[Box, ...] = ()
    points: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A case without answers.

    Attributes
    ----------
    key : key of the row
    groups : the groups that are asked and have a reference
    marks : reader -> marks that this reader drew; :data:`REFERENCE` first
    facts : (name, text) of each further fact about the case
    """

    key: str
    films: tuple[CaseFilm, ...]
    groups: tuple[str, ...]
    marks: dict[str, tuple[Mark, ...]]
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """The groups, followed by findings that were drawn but are not asked."""
        drawn = (mark.group for marks in self.marks.values() for mark in marks)
        return tuple(dict.fromkeys((*self.groups, *drawn)))


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """A system's answer to one group (question) of a case.

    Attributes
    ----------
    is_hit : True if the answer is right, None if answers are not judged
    words : the outcome, or the answer itself, in words
    drawn : marks of the answer, or a function that computes them, because masks need their deepest pixels
    """

    group: str
    is_hit: bool | None
    words: str
    drawn: tuple[Mark, ...] | Callable[[], tuple[Mark, ...]] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The system's drawings."""
        return self.drawn() if callable(self.drawn) else self.drawn


def films_of_study(images: Sequence[StudyImage], prior_images: Sequence[StudyImage] = ()) -> tuple[CaseFilm, ...]:
    """Return the images of a study, then the images of its prior study."""
    return tuple(
        CaseFilm(
            image.image_id, image.view, image.width, image.height, image.spacing_mm, image.spacing_source, is_prior
        )
        for part, is_prior in ((images, False), (prior_images, True))
        for image in part
    )


PREDICTION = "prediction"
_LONGEST_STEM = 150  # with a reader's name and a suffix, names stay below 255 characters, the limit of file systems
_LONGEST_NAME = 4096  # largest number of characters in a path, and in a name in messages
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
Point = tuple[float, float]
Polygons = tuple[tuple[Point, ...], ...]


@dataclass(frozen=True, slots=True)
class AnnotatedImage:
    """Image that is annotated; `patient_id` is empty if unknown."""

    image_id: str
    study_id: str
    patient_id: str
    width: int
    height: int
    spacing_mm: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """The drawing of one finding on one image by one reader or model.

    Attributes
    ----------
    mask : mask; None if only boxes or points are given
    polygons : contours that were filled to give the mask
    boxes : one box per instance
    cell : cell of the benchmark's grid, such as "D5"
    score : a model's confidence that the finding is present
    """

    image_id: str
    finding: str
    reader: str
    mask: Rle | None = None
    polygons: Polygons = ()
    boxes: tuple[Box, ...] = ()
    points: tuple[Point, ...] = ()
    cell: str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class StudyLabels:
    """The labels of a study: label -> 1 (present), 0 (absent) or a probability; unknown labels are left out."""

    study_id: str
    reader: str
    values: Mapping[str, float]
    are_probabilities: bool = False


@dataclass(frozen=True)
class Annotations:
    """Drawings and labels of a split, with the images that they belong to.

    Attributes
    ----------
    benchmark, version, split : dataset and split of the annotations
    films : image_id -> image, in the order of the dataset
    names : findings or labels of the benchmark, in table order
    by_instance : True if each drawing with a box is a lesion that is judged separately
    notes : sentences on parts that were read or are exported otherwise than written
    """

    benchmark: str
    version: str
    split: str
    films: Mapping[str, AnnotatedImage]
    names: tuple[str, ...]
    drawings: tuple[Drawing, ...] = ()
    studies: tuple[StudyLabels, ...] = ()
    by_instance: bool = False
    notes: tuple[str, ...] = ()

    @property
    def readers(self) -> list[str]:
        """The readers and models with drawings or labels, in the order of first appearance."""
        return list(dict.fromkeys([one.reader for one in self.drawings] + [one.reader for one in self.studies]))

    @property
    def first_films(self) -> dict[str, str]:
        """study_id -> the study's first image, which gets the study's labels in formats that label images."""
        first: dict[str, str] = {}
        for film in self.films.values():
            first.setdefault(film.study_id, film.image_id)
        return first

    @cached_property
    def stems(self) -> dict[str, str]:
        """Return image_id -> file name without suffix; ids may have any characters.

        A hash is added to names that file systems refuse (too long, Windows devices, differing only in case).
        """
        stems: dict[str, str] = {}
        taken = set(_DEVICES)
        for image_id in self.films:
            stem = quote(image_id, safe="")
            if stem.casefold().partition(".")[0] in _DEVICES or stem.casefold() in taken or len(stem) > _LONGEST_STEM:
                stem = f"{stem[: _LONGEST_STEM - 20]}-{hashlib.sha256(image_id.encode()).hexdigest()[:16]}"
            taken.add(stem.casefold())
            stems[image_id] = stem
        return stems

    @cached_property
    def _films_by_stem(self) -> dict[str, AnnotatedImage]:
        return {stem: self.films[image_id] for image_id, stem in self.stems.items()}

    def film_of(self, file_name: str) -> AnnotatedImage:
        """Return the image that a file name refers to; the name may have folders, a suffix and replaced characters.

        Raises
        ------
        ArgumentError
            If the id is unknown; the message names the nearest ids.
        """
        file_name = file_name[-_LONGEST_NAME:]
        name = PurePosixPath(file_name.replace("\\", "/")).name
        stem = PurePosixPath(name).stem
        if stem in self._films_by_stem:
            return self._films_by_stem[stem]
        for text in (file_name, str(PurePosixPath(file_name).with_suffix("")) if name else "", name, stem):
            for known in (text, unquote(text)):
                if known in self.films:
                    return self.films[known]
        near = get_close_matches(stem[:_LONGEST_STEM], list(self.films), n=3)
        hint = f" (perhaps {', '.join(near)})" if near else ""
        raise ArgumentError("file", f"must refer to images of split {self.split!r}{hint}", repr(file_name))

    def finding_of(self, name: object) -> str:
        """Return the benchmark's finding for a name in an exchange format.

        Raises
        ------
        ArgumentError
            If the benchmark has no such finding.
        """
        folded = {one.casefold(): one for one in self.names}
        finding = folded.get(str(name).replace("_", " ").casefold())
        if finding is None:
            raise ArgumentError(
                "file", f"must name findings of the benchmark ({', '.join(self.names)})", repr(name)[:_LONGEST_NAME]
            )
        return finding
