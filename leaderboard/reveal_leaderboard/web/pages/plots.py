"""Plots without scripts: HTML with small SVG drawings, from the template ``plots.html``.

Conventions
-----------
Scales run from 0 to 100%, or from -100% for kappa. A filled dot is a submission, a hollow diamond a published row, a
hollow square a human reader; colours repeat the same distinction. Names and scores are text, so screen readers read a
plot as a list of rows, without the symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from reveal_leaderboard.web.pages.drawing import draw, percent

PAGE = "plots.html"


@dataclass(frozen=True)
class PlotRow:
    """One row of a plot.

    Attributes
    ----------
    name, note : name, and a second line in small print
    value, interval : fractions; the interval may be missing
    kind : "submission", "reference" or "human"
    key : equal for all rows of an entry, so that pointing at a row highlights the entry's other rows
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
        """Value and interval as text."""
        if self.interval is None or not self.has_interval:
            return f"{percent(self.value)}%"
        low, high = self.interval
        return f"{percent(self.value)}%, {percent(low)} to {percent(high)}%"


def forest(marks: Sequence[PlotRow], *, metric: str, title: str, note: str = "") -> str:
    """Return one row per value: name, value and interval drawn on the scale of `metric`, and the numbers."""
    return draw(PAGE, "forest", marks, title, note, metric) if marks else ""


@dataclass(frozen=True)
class HeatRow:
    """A row of a heat map: name, values by finding, and the `key` as in :class:`PlotRow`."""

    name: str
    note: str
    cells: Mapping[str, PlotRow]
    kind: str = "submission"
    key: str = ""


def heat_map(rows: Sequence[HeatRow], findings: Sequence[str], *, title: str, note: str = "") -> str:
    """Return a heat map with one row per system and one column per finding that has a value."""
    columns = [finding for finding in findings if any(finding in row.cells for row in rows)]
    return draw(PAGE, "heat_map", rows, columns, title, note) if columns else ""


@dataclass(frozen=True)
class Day:
    """A system's score and the day on which the score became known.

    Attributes
    ----------
    day : ISO date
    name : the system
    value : fraction
    is_record : whether the score is better than all earlier scores
    """

    day: str
    name: str
    value: float
    is_record: bool = False


def best_over_time(days: Sequence[Day], *, better: str, title: str) -> str:
    """Return a plot of scores over time, with the best score so far as a step line; empty for fewer than two days."""
    points = sorted(days, key=lambda point: point.day)
    if len({point.day for point in points}) < 2:
        return ""
    first, last = (date.fromisoformat(points[k].day) for k in (0, -1))
    best: float | None = None
    marks = []
    for point in points:
        is_record = best is None or (point.value > best if better == "higher" else point.value < best)
        best = point.value if is_record else best
        share = (date.fromisoformat(point.day) - first) / (last - first)
        marks.append((replace(point, is_record=is_record), share, best))
    return draw(PAGE, "best_over_time", marks, title)
