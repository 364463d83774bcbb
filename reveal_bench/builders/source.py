"""What every builder gives: problems with an address, an inspection, and the row of the BUILDERS table.

Conventions
-----------
A builder module has three functions:

* ``detect(root) -> float``: how sure it is, from names alone, that `root` is its download (0 to 1);
* ``inspect(root) -> Inspection``: what is here, counts, and what does not match, without reading pixels;
* ``read(root, *, pixels, keep_going) -> (records, warnings)``: one iterator of records per split. Whatever can be
  checked without pixels is checked before the first record; all of it is raised together as one :class:`BuildError`.
  What turns up while an iterator runs (an unreadable picture) is raised at its end, again all together.

With ``keep_going=True`` an entry with a problem is left out, and the returned list of warnings says which and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from reveal_bench.records import LocalizationRecord

__all__ = ["SYNTHETIC_MARKER", "BuildError", "Builder", "Inspection", "Pixels", "Problem", "Reading", "finish"]

Pixels = Literal["embed", "withhold"]
Reading = tuple[dict[str, Iterator[LocalizationRecord]], list[str]]

SYNTHETIC_MARKER = "SYNTHETIC.txt"
"""A file of this name at the root of a download says that all of it is synthetic (see :mod:`reveal_bench.phantom`)."""

SHOWN = 50
"""Problems written out in the message of a BuildError; all are in its `problems`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at one place of one file.

    Attributes
    ----------
    file : path relative to the root
    row : 1-based row, line or entry number, the id of an entry, or None for the whole file
    field, rule, value : what is concerned, what must hold, and what was found instead
    """

    file: str
    row: int | str | None
    field: str
    rule: str
    value: str

    def __str__(self) -> str:
        place = self.file if self.row is None else f"{self.file}:{self.row}"
        return f"{place}: `{self.field}` {self.rule}, got {self.value}"


class BuildError(ValueError):
    """All problems of a build; `problems` holds every one, the message the first of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        shown = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            shown.append(f"... and {len(self.problems) - SHOWN} more")
        count = f"{len(self.problems)} problem" + ("s" if len(self.problems) != 1 else "")
        super().__init__("\n".join([f"{count}:", *shown]))


@dataclass(frozen=True)
class Inspection:
    """What a builder finds in a folder.

    Attributes
    ----------
    files : dict from role ("gt_annotations_test") to path relative to the root
    counts, expected : what is here, and what the source publishes; the difference is in `warnings`
    problems : what would stop a build, as far as it shows without reading pixels
    warnings : what would not
    synthetic : whether the folder says that it is made up
    """

    builder: str
    root: Path
    files: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    warnings: Sequence[str] = ()
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class Builder:
    """One row of BUILDERS; `benchmark` is the key of :data:`reveal_bench.benchmarks.BENCHMARKS` it feeds."""

    name: str
    benchmark: str
    holdout_split: str | None
    detect: Callable[[Path], float]
    inspect: Callable[[Path], Inspection]
    read: Callable[..., Reading]


def finish(problems: list[Problem], warnings: list[str], *, keep_going: bool) -> None:
    """Raise `problems` together, or with `keep_going` turn them into warnings; either way empty the list.

    Raises
    ------
    BuildError
        If there are problems and `keep_going` is False.
    """
    found, problems[:] = list(problems), []
    if found and not keep_going:
        raise BuildError(found)
    warnings.extend(f"left out: {problem}" for problem in found)
