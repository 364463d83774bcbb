"""Plots as HTML with small SVG drawings, without scripts; ``plots.html`` draws them.

Conventions
-----------
All scales run from 0 to 100 %. A submission is a filled dot, a reference row a hollow diamond, a human reader a hollow
square: shape says it, colour repeats it. Names and figures stand beside the marks as real text, so a plot is read out
as its list of rows; only the marks themselves are hidden from those who hear the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reveal_leaderboard.web.pages.drawing import draw, percent

__all__ = ["Mark", "forest", "small_multiples"]

PAGE = "plots.html"


@dataclass(frozen=True)
class Mark:
    """One row of a plot.

    Attributes
    ----------
    name, note : what the row is called, and a second line in small print
    value, low, high : fractions; the interval may be missing
    kind : "submission", "reference" or "human"
    short : one or two characters that stand for the row in small panels
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    kind: str = "submission"
    note: str = ""
    short: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether both ends are known, and are two."""
        return self.low is not None and self.high is not None and self.low < self.high

    @property
    def spoken(self) -> str:
        """Value and interval in words."""
        if not self.has_interval or self.low is None or self.high is None:
            return f"{percent(self.value)} %"
        interval = f", {percent(self.low)} to {percent(self.high)} %"
        return f"{percent(self.value)} %{interval}"


def forest(marks: Sequence[Mark], *, title: str, note: str = "") -> str:
    """A row per mark: its name, value and interval on one common scale, its figures."""
    return draw(PAGE, "forest", marks, title, note) if marks else ""


def small_multiples(panels: Iterable[tuple[str, Sequence[Mark]]], *, title: str, note: str = "") -> str:
    """A small panel per finding, the rows in the same order in each; a row is told by its `short` text."""
    shown = [(name, marks) for name, marks in panels if marks]
    return draw(PAGE, "multiples", shown, title, note) if shown else ""
