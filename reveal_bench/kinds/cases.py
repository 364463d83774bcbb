"""A case as it is shown to people: its films, what the references say, and what a system answered, with its outcome.

Conventions
-----------
A case is a row of a dataset folder's main config. What is asked of it is its *groups*: findings, labels, or the
category of a task. Marks are in pixels (x, y) of the full picture of film number `film` of the case. Outcomes are those
of scored rows; nothing is scored for being shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reveal_bench.kinds.images import StudyImage
from reveal_bench.masks import Box, Rle

__all__ = ["REFERENCE", "Case", "CaseAnswer", "CaseFilm", "Mark", "films_of_study"]

REFERENCE = "Reference"
"""Whose marks answers are scored against."""


@dataclass(frozen=True, slots=True)
class CaseFilm:
    """A picture of a case; `is_prior` of one that was taken earlier."""

    image_id: str
    view: str
    width: int
    height: int
    is_prior: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """What somebody drew for one group on one film; boxes are [x, y, width, height]."""

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
    key : of the row
    groups : what is asked and has a reference
    marks : reader -> what that reader drew; :data:`REFERENCE` first
    told : (name, text) of what else is known of it
    """

    key: str
    films: tuple[CaseFilm, ...]
    groups: tuple[str, ...]
    marks: dict[str, tuple[Mark, ...]]
    told: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """What a system answered to one group of a case.

    Attributes
    ----------
    is_hit : whether it is right, None where that is not judged
    words : the outcome, or the answer itself, in words
    """

    group: str
    is_hit: bool | None
    words: str
    marks: tuple[Mark, ...] = ()


def films_of_study(images: Sequence[StudyImage], prior_images: Sequence[StudyImage] = ()) -> tuple[CaseFilm, ...]:
    """The films of a study, then those of the one before it."""
    return tuple(
        CaseFilm(image.image_id, image.view, image.width, image.height, is_prior)
        for part, is_prior in ((images, False), (prior_images, True))
        for image in part
    )
