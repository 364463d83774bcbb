"""Plots as HTML with small SVG drawings, made here and without scripts.

Conventions
-----------
All scales run from 0 to 100 %. A submission is a filled dot, a reference row a hollow diamond, a human reader a hollow
square: shape says it, colour repeats it. Names and figures stand beside the marks as real text, so a plot is read out
as its list of rows; only the marks themselves are hidden from those who hear the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reveal_leaderboard.web.pages.drawing import percent, text

__all__ = ["Mark", "difference_bar", "forest", "small_multiples"]

ROW_HEIGHT = 22
TICKS = (0, 25, 50, 75, 100)
PANEL_WIDTH, PANEL_ROW, PANEL_LEFT, PANEL_RIGHT = 230, 15, 24, 12


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
    def spoken(self) -> str:
        """Value and interval in words."""
        interval = "" if self.low is None or self.high is None else f", {percent(self.low)} to {percent(self.high)} %"
        return f"{percent(self.value)} %{interval}"


def forest(marks: Sequence[Mark], *, title: str, note: str = "") -> str:
    """A row per mark: its name, value and interval on one common scale, its figures."""
    if not marks:
        return ""
    rows = "".join(_forest_row(mark) for mark in marks)
    axis = "".join(
        f'<text x="{tick}%" y="11" text-anchor="{_anchor(tick)}">{tick}{" %" if tick == 100 else ""}</text>'
        for tick in TICKS
    )
    caption = f"<figcaption>{text(title)}{f'<span>{text(note)}</span>' if note else ''}</figcaption>"
    return (
        f'<figure class="rv-forest">{caption}<ul>{rows}</ul><div class="rv-axis" aria-hidden="true"><span></span>'
        f'<svg width="100%" height="14">{axis}</svg><span></span></div></figure>'
    )


def _anchor(tick: int) -> str:
    return {0: "start", 100: "end"}.get(tick, "middle")


def _forest_row(mark: Mark) -> str:
    interval = (
        "" if mark.low is None or mark.high is None else f"<small>{percent(mark.low)}–{percent(mark.high)}</small>"
    )
    note = f"<small>{text(mark.note)}</small>" if mark.note else ""
    return (
        f'<li class="rv-is-{text(mark.kind)}"><span class="rv-forest-name">{text(mark.name)}{note}</span>{_track(mark)}'
        f'<span class="rv-forest-value">{percent(mark.value)}{interval}</span></li>'
    )


def _track(mark: Mark) -> str:
    """One row's drawing; it stretches with the page, so every place along it is a percentage. Its grid is CSS."""
    middle = ROW_HEIGHT // 2
    shapes = []
    if mark.low is not None and mark.high is not None:
        low, high = _place(mark.low), _place(mark.high)
        shapes.append(f'<line x1="{low}%" x2="{high}%" y1="{middle}" y2="{middle}" class="rv-whisker"/>')
    at = _place(mark.value)
    # A path cannot use percentages: it is drawn round 0 inside an SVG of its own, which stands at the place.
    shapes.append(f'<svg x="{at}%" y="{middle}" overflow="visible">{_symbol(mark.kind, 5)}</svg>')
    return f'<svg class="rv-track" width="100%" height="{ROW_HEIGHT}" aria-hidden="true">{"".join(shapes)}</svg>'


def _place(fraction: float) -> str:
    return f"{100 * min(max(fraction, 0.0), 1.0):.1f}"


def _symbol(kind: str, r: int) -> str:
    if kind == "submission":
        return f'<circle r="{r}" class="rv-dot"/>'
    if kind == "human":
        return f'<rect x="{-r + 1}" y="{-r + 1}" width="{2 * r - 2}" height="{2 * r - 2}" class="rv-hollow"/>'
    return f'<path d="M0 {-r}L{r} 0L0 {r}L{-r} 0Z" class="rv-hollow"/>'


def small_multiples(panels: Iterable[tuple[str, Sequence[Mark]]], *, title: str, note: str = "") -> str:
    """A small panel per finding, the rows in the same order in each; a row is told by its `short` text."""
    drawn = "".join(_panel(name, marks) for name, marks in panels if marks)
    if not drawn:
        return ""
    caption = f"<figcaption>{text(title)}{f'<span>{text(note)}</span>' if note else ''}</figcaption>"
    return f'<figure class="rv-multiples">{caption}<div>{drawn}</div></figure>'


def _panel(name: str, marks: Sequence[Mark]) -> str:
    height = len(marks) * PANEL_ROW + 18
    bottom = len(marks) * PANEL_ROW + 3
    grid = "".join(
        f'<line x1="{_across(x)}" x2="{_across(x)}" y1="0" y2="{bottom}" class="rv-grid"/>'
        f'<text x="{_across(x)}" y="{height - 3}" text-anchor="middle">{round(100 * x)}</text>'
        for x in (0.0, 0.5, 1.0)
    )
    rows = "".join(_panel_row(mark, i * PANEL_ROW + PANEL_ROW // 2 + 2) for i, mark in enumerate(marks))
    spoken = f"{name}: " + "; ".join(f"{mark.name} {mark.spoken}" for mark in marks)
    return (
        f'<div class="rv-panel"><h3>{text(name)}</h3><svg viewBox="0 0 {PANEL_WIDTH} {height}" '
        f'width="{PANEL_WIDTH}" height="{height}" role="img" aria-label="{text(spoken)}">{grid}{rows}</svg></div>'
    )


def _panel_row(mark: Mark, y: int) -> str:
    whisker = ""
    if mark.low is not None and mark.high is not None:
        whisker = f'<line x1="{_across(mark.low)}" x2="{_across(mark.high)}" y1="{y}" y2="{y}" class="rv-whisker"/>'
    return (
        f'<g class="rv-is-{text(mark.kind)}"><title>{text(f"{mark.name}: {mark.spoken}")}</title>'
        f'<text x="0" y="{y + 4}">{text(mark.short)}</text>{whisker}'
        f'<g transform="translate({_across(mark.value)} {y})">{_symbol(mark.kind, 4)}</g></g>'
    )


def _across(fraction: float) -> str:
    span = PANEL_WIDTH - PANEL_LEFT - PANEL_RIGHT
    return f"{PANEL_LEFT + span * min(max(fraction, 0.0), 1.0):.1f}"


def difference_bar(value: float, low: float, high: float, reach: float) -> str:
    """A difference and its interval round a zero in the middle; `reach` is the end of the scale on both sides."""

    def at(difference: float) -> str:
        return f"{50 + 50 * min(max(difference / reach, -1.0), 1.0):.1f}"

    middle = ROW_HEIGHT // 2
    return (
        f'<svg class="rv-track rv-difference" width="100%" height="{ROW_HEIGHT}" aria-hidden="true">'
        f'<line x1="50%" x2="50%" y1="0" y2="100%" class="rv-zero"/>'
        f'<line x1="{at(low)}%" x2="{at(high)}%" y1="{middle}" y2="{middle}" class="rv-whisker"/>'
        f'<svg x="{at(value)}%" y="{middle}" overflow="visible">{_symbol("submission", 4)}</svg></svg>'
    )
