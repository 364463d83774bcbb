"""Conversion of a kind's checked predictions and scored rows to arrays, and back.

Predictions reach a process that has references only as these canonical arrays. Images, findings, studies and labels are
stored as indices into the manifest. Numbers are float64 and keep every bit; NaN means that a number was not given.
Predictions are written as the linter returns them, and reading them back returns equal predictions.

Code that reads predictions trusts nothing: it checks every length, range and sum before use. Code that reads rows
checks only indices and lengths, because the leaderboard writes these files itself.

*Marks* of files are compared to find files with equal or nearly equal answers. Marks do not depend on references.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from reveal_bench.predictions.limits import Limits

if TYPE_CHECKING:
    from reveal_bench.kinds.tasks.records import Rating

Fields = Mapping[str, tuple[str, int]]
"""Name of an array -> (dtype such as "<f8", number of axes)."""
Arrays = Mapping[str, npt.NDArray[Any]]


PredictionT = TypeVar("PredictionT")
ManifestT = TypeVar("ManifestT")
RowsT = TypeVar("RowsT")


class Codec(ABC, Generic[PredictionT, ManifestT, RowsT]):
    """Converter of a kind's predictions, ratings, rows and manifest to arrays or JSON values, and back.

    Every method that reads arrays raises ValueError for malformed content.

    Attributes
    ----------
    predictions, ratings, rows : names and types of the arrays; predictions also have ``line``, the line of each
        prediction in its file
    """

    predictions: ClassVar[Fields]
    ratings: ClassVar[Fields] = {}
    rows: ClassVar[Fields]

    @abstractmethod
    def manifest_from(self, raw: dict[str, Any]) -> ManifestT:
        """Return a manifest from its fields as JSON values."""

    @abstractmethod
    def arrays_of(self, predictions: Sequence[PredictionT], manifest: ManifestT) -> Arrays:
        """Return checked predictions as arrays; raises ValueError if they do not belong to this manifest."""

    @abstractmethod
    def predictions_from(self, arrays: Arrays, manifest: ManifestT, limits: Limits) -> tuple[PredictionT, ...]:
        """Rebuild the predictions."""

    def arrays_of_ratings(self, ratings: Sequence[Rating], predictions: Sequence[PredictionT]) -> Arrays:
        """Return readers' ratings of the predictions as arrays; raise ValueError for a rating of another prediction."""
        return {}

    def ratings_from(self, arrays: Arrays, predictions: Sequence[PredictionT]) -> tuple[Rating, ...]:
        """Rebuild the ratings, with numbers instead of readers' names."""
        return ()

    @abstractmethod
    def arrays_of_rows(self, rows: RowsT) -> Arrays:
        """Return exact rows as arrays."""

    @abstractmethod
    def rows_from(self, arrays: Arrays) -> RowsT:
        """Rebuild the rows."""


def require(holds: bool, rule: str) -> None:
    """Raise ValueError with `rule` as its message unless `holds` is true."""
    if not holds:
        raise ValueError(f"canonical predictions: {rule}")


def text_of_names(names: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Return JSON values as an array of bytes."""
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


def names_from(text: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """Rebuild the JSON values."""
    names: dict[str, Any] = json.loads(text.tobytes())
    return names


Item = tuple[Any, ...]
"""A tuple of JSON values."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Answers of a file, in the form that is compared to find equal and nearly equal files.

    Attributes
    ----------
    answers : everything that is scored, exactly and in a fixed order
    items : rounded answers: (id, finding, answer)
    """

    answers: list[Item]
    items: set[Item]


def exact(number: float) -> str:
    """Return all bits of a number as text, with -0 as +0."""
    return (float(number) + 0.0).hex()
