"""Plots as HTML with small SVG drawings, without scripts; ``plots.html`` draws them.

Conventions
-----------
Scales run from 0 to 100 %, that of kappa from -100. A submission is a filled dot, a reference row a hollow diamond, a
human reader a hollow square: shape says it, colour repeats it. Names and figures stand beside the marks as real text,
so a plot is read out as its list of rows; only the marks themselves are hidden from those who hear the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from reveal_leaderboard.web.pages.drawing import draw, percent

PAGE = "plots.html"


@dataclass(frozen=True)
class PlotRow:
    """One row of a plot.

    Attributes
    ----------
    name, note : what the row is called, and a second line in small print
    value, interval : fractions; the interval may be missing
    kind : "submission", "reference" or "human"
    key : what all marks of one row share, so that pointing at one of them lights up all
    """

    name: str
    value: float
    interval: tuple[float, float] | None = None
    kind: str = "submission"
    note: str = ""
    key: str = ""

    @property
    def has_interval(self) -> bool:
        """True if both bounds are known and differ."""
        return self.interval is not None and self.interval[0] < self.interval[1]

    @property
    def spoken(self) -> str:
        """Value and interval in words."""
        if self.interval is None or not self.has_interval:
            return f"{percent(self.value)} %"
        low, high = self.interval
        return f"{percent(self.value)} %, {percent(low)} to {percent(high)} %"


def forest(marks: Sequence[PlotRow], *, metric: str, title: str, note: str = "") -> str:
    """A row per mark: its name, value and interval on the scale of `metric`, its figures."""
    return draw(PAGE, "forest", marks, title, note, metric) if marks else ""


@dataclass(frozen=True)
class HeatRow:
    """A row of a heat map: what it is called, and its marks by finding; `key` is that of its marks elsewhere."""

    name: str
    note: str
    cells: Mapping[str, PlotRow]
    kind: str = "submission"
    key: str = ""


def heat_map(rows: Sequence[HeatRow], findings: Sequence[str], *, title: str, note: str = "") -> str:
    """A row per system, a column per finding that any row has; the figure stands in its cell, the shade repeats it."""
    shown = [finding for finding in findings if any(finding in row.cells for row in rows)]
    return draw(PAGE, "heat_map", rows, shown, title, note) if shown else ""


@dataclass(frozen=True)
class Day:
    """A figure that became known on a day.

    Attributes
    ----------
    day : ISO date
    name : the system whose figure it is
    value : fraction
    is_record : whether no figure before it was as good
    """

    day: str
    name: str
    value: float
    is_record: bool = False


def best_over_time(days: Sequence[Day], *, better: str, title: str) -> str:
    """Every figure at its day and the best one so far as a line of steps; nothing before there are two days."""
    points = sorted(days, key=lambda one: one.day)
    if len({one.day for one in points}) < 2:
        return ""
    first, last = (date.fromisoformat(points[k].day) for k in (0, -1))
    best: float | None = None
    marks = []
    for one in points:
        is_record = best is None or (one.value > best if better == "higher" else one.value < best)
        best = one.value if is_record else best
        share = (date.fromisoformat(one.day) - first) / (last - first)
        marks.append((Day(one.day, one.name, one.value, is_record), share, best))
    return draw(PAGE, "best_over_time", marks, title)
