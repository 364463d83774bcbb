"""Draw the bar charts, forest plots, small multiples and legends that several reports use.

The figures show the same information as those of papers 000 and 004, in a style of their own. Sizes are in millimetres
(:mod:`reveal_bench.reports.style`). Axes name quantity and unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reveal_bench.metrics.intervals import Estimate
from reveal_bench.reports.page import FEWEST_CASES
from reveal_bench.reports.style import (
    DASHED,
    INCH,
    INK,
    LINE,
    PANEL,
    SOFT,
    WIDE,
    Paint,
    columns_for,
    cut,
    new_figure,
    paints,
    place_axes,
    plain_axes,
    style,
    width_of,
    wrap,
)
from reveal_bench.words import NBSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "oDsv^PXhd<>*"


@dataclass(frozen=True, slots=True)
class ValueBar:
    """A bar with a label at its end. A value of None draws only the label; NaN bounds draw no interval."""

    value: float | None
    words: str
    interval: tuple[float, float] = (math.nan, math.nan)


ForestRow = tuple[str, Sequence[tuple[int, Estimate]]]
"""(Name, [(index of the series, estimate), ...]). NaN is not drawn; infinity is drawn at the end of the axis."""


def bars(
    rows: Sequence[tuple[str, Sequence[ValueBar]]], width: float, *, axis: str, kinds: Sequence[str] = ()
) -> Figure:
    """Draw horizontal bars: in each row, one per series.

    Parameters
    ----------
    axis : quantity and unit of the axis
    kinds : names of the series for the legend; empty for a single series
    """
    n_kinds = max((len(own) for _, own in rows), default=1)
    looks = paints(n_kinds)
    names, left = row_names([name for name, _ in rows], width, 1 + n_kinds // 2)
    ends = [_finite(bar.interval[1], bar.value or 0.0) for _, own in rows for bar in own]
    # Labels are right of the bars, and a bar may be as long as the axis
    room = 4 + max((width_of(bar.words) for _, own in rows for bar in own), default=0.0)
    with style():
        line = 3.8 * n_kinds + 2.4
        top = legend_height(kinds, width)
        figure = new_figure(top + line * len(rows) + 12, width)
        axes = place_axes(figure, left, 10, width - left - room, max(line * len(rows), 0.1))
        thick = 3.0 / line
        for row, (_, own) in enumerate(rows):
            for k, bar in enumerate(own):
                place = row + (k - (len(own) - 1) / 2) * 3.8 / line
                if bar.value is not None:
                    axes.barh(place, bar.value, thick, **looks[k].options)
                if not math.isnan(bar.interval[0]):
                    _whisker(axes, *bar.interval, place)
                axes.annotate(
                    bar.words, (_finite(bar.interval[1], bar.value or 0.0), place), (3, 0), textcoords="offset points",
                    va="center", annotation_clip=False,
                )  # fmt: skip
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, max(ends, default=0.0) or 1.0)
        _measure(axes, axis, whole=all(float(end).is_integer() for end in ends))
        legend(figure, [patch(name, look) for name, look in zip(kinds, looks, strict=False)])
    return figure


def forest(
    rows: Sequence[ForestRow],
    width: float,
    *,
    axis: str,
    scale: float = 1.0,
    kinds: Sequence[str] = (),
    ends: tuple[float, float] | None = None,
    rule: tuple[float, str] | None = None,
) -> Figure:
    """Draw a forest plot: one row per name, one mark with interval per estimate.

    Marks of estimates without an interval are hollow, unless no estimate has one.

    Parameters
    ----------
    axis : quantity and unit of the axis
    scale : factor from estimates to the axis, 100 for percent
    kinds : names of the series
    ends : bounds of the axis, by default computed from the estimates
    rule : (position, name) of a dashed line on the axis
    """
    scaled = [(name, [(kind, estimate.times(scale)) for kind, estimate in own]) for name, own in rows]
    n_most = max((len({kind for kind, _ in own}) for _, own in rows), default=1)
    names, left = row_names([name for name, _ in rows], width, 1 + n_most // 2)
    with_interval = {estimate.has_interval for _, own in rows for _, estimate in own if not math.isnan(estimate.value)}
    hollow = [NO_INTERVAL] if len(with_interval) > 1 else []
    with style():
        line = max(3.6 * n_most + 2.6, LINE * (1 + max((name.count("\n") for name in names), default=0)) + 1)
        top = legend_height([*kinds, *hollow, *([rule[1]] if rule else [])], width)
        label = wrap(axis, width - left - 6)
        foot = 7 + LINE * (label.count("\n") + 1)
        figure = new_figure(top + line * len(rows) + foot + 2, width)
        axes = place_axes(figure, left, foot, width - left - 6, max(line * len(rows), 0.1))
        low, high = ends or _ends(scaled)
        axes.set_xlim(low, high)
        for row, (_, own) in enumerate(scaled):
            abreast = sorted({kind for kind, _ in own})
            for kind, estimate in own:
                y = row + (abreast.index(kind) - (len(abreast) - 1) / 2) * 3.6 / line
                colour, marker = _mark_of(kind)
                _draw_mark(axes, estimate, y, marker, "white" if hollow and not estimate.has_interval else colour)
        handles = [mark_handle(cut(name, width - 16), *_mark_of(k)) for k, name in enumerate(kinds)]
        handles += [mark_handle(name) for name in hollow]
        if rule:
            axes.axvline(rule[0], color=INK, linewidth=1.0, linestyle=DASHED)
            handles.append(dashed_line(rule[1]))
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        _measure(axes, label)
        legend(figure, handles)
    return figure


NO_INTERVAL = "hollow: no interval"


def _mark_of(kind: int) -> tuple[str, str]:
    """Return colour and marker of a series; a marker that repeats has another colour."""
    turn, place = divmod(kind, len(MARKERS))
    return paints(1 + place + turn)[-1].colour, MARKERS[place]


def _draw_mark(axes: Axes, estimate: Estimate, y: float, marker: str, fill: str) -> None:
    low, high = axes.get_xlim()
    if math.isnan(estimate.value):
        axes.text(low, y, " undefined", va="center", color=SOFT)
        return
    if estimate.has_interval:
        axes.plot([estimate.low, estimate.high], [y] * 2, color=INK, linewidth=1.0)
    axes.plot(
        [min(max(estimate.value, low), high)], [y], marker, color=fill, markersize=5, markeredgecolor=INK,
        markeredgewidth=0.5 if fill != "white" else 0.9, clip_on=False,
    )  # fmt: skip


def mark_handle(label: str, fill: str = "white", marker: str = MARKERS[0]) -> Any:
    """Return the legend handle of a series of marks."""
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", marker=marker, color=fill, markeredgecolor=INK, markeredgewidth=0.5,
                  markersize=5, label=label)  # fmt: skip


def row_names(names: Sequence[str], width: float, most: int) -> tuple[list[str], float]:
    """Return the names, wrapped to leave space for the figure, and their width in mm."""
    lines = [wrap(name, 0.36 * width, most=max(most, 2)) for name in names]
    return lines, 5 + max((width_of(line) for name in lines for line in name.split("\n")), default=0.0)


def _ends(rows: Sequence[ForestRow]) -> tuple[float, float]:
    """Return the bounds of an axis: the lowest number, at most 0, and the highest number."""
    finite = [end for _, own in rows for _, e in own for end in (e.value, e.low, e.high) if math.isfinite(end)]
    return min([0.0, *finite]) * 1.05, max([1e-9, *finite]) * 1.08


def _finite(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value


def _whisker(axes: Axes, low: float, high: float, place: float) -> None:
    for colour, thick in (("white", 2.2), (INK, 1.0)):  # a white outline keeps the interval visible on dark bars
        axes.plot([low, high], [place] * 2, color=colour, linewidth=thick, solid_capstyle="butt", clip_on=False)


def _measure(axes: Axes, label: str, *, whole: bool = False) -> None:
    """Set up the horizontal axis below the rows, with as many ticks as fit."""
    from matplotlib.ticker import MaxNLocator

    width = axes.get_window_extent().width / axes.figure.dpi * INCH
    axes.xaxis.set_major_locator(MaxNLocator(max(2, int(width / 16)), integer=whole, steps=[1, 2, 5, 10]))
    axes.set_xlabel(label, labelpad=2)
    plain_axes(axes, across="x")
    axes.tick_params(axis="y", length=0, pad=5)


def patch(label: str, look: Paint) -> Any:
    """Return the legend handle of a series of bars."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look.options)


def line_handle(label: str, colour: str, **look: Any) -> Any:
    """Return the legend handle of a solid line, or of one with another `look`."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, label=label, **{"linewidth": 1.4, **look})


def dashed_line(label: str) -> Any:
    """Return the legend handle of a dashed line."""
    return line_handle(label, INK, linewidth=1.0, linestyle=DASHED)


def _columns_of_legend(labels: Sequence[str], width: float) -> int:
    room = [11 + width_of(label) for label in labels]
    if sum(room) <= width - 4:
        return len(labels)
    return max(1, min(len(labels), int((width - 4) // max(room))))


def legend_height(labels: Sequence[str], width: float) -> float:
    """Return the height in millimetres of a legend above a figure."""
    return 4 + 4.6 * math.ceil(len(labels) / _columns_of_legend(labels, width)) if labels else 3.0


def legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Add a legend above a figure, if it has handles."""
    if not handles:
        return
    width = figure.get_figwidth() * INCH
    figure.legend(
        handles=handles, loc="upper center", ncols=_columns_of_legend([h.get_label() for h in handles], width),
        frameon=False, handlelength=1.6, handleheight=0.9, columnspacing=1.6, borderaxespad=0.3, labelspacing=0.35,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BarGroup:
    """A group of bars, with its key, its name, and lines of text below the name."""

    key: str
    label: str
    below: tuple[str, ...] = ()


def by_cases(n_cases: Mapping[str, int]) -> list[str]:
    """Return the findings that have a case; those with fewer than :data:`FEWEST_CASES` cases come last.

    Examples
    --------
    >>> by_cases({"Edema": 9, "Fracture": 0, "Mass": 10})
    ['Mass', 'Edema']
    """
    return sorted((name for name, n in n_cases.items() if n), key=lambda name: n_cases[name] < FEWEST_CASES)


def cases_note(n_cases: Mapping[str, int], counted: str, left_out: Mapping[str, str] | None = None) -> str:
    """Return the sentences of a caption on n, grey panels, and findings that are `left_out` with the reason.

    Examples
    --------
    >>> cases_note({"Edema": 9, "Fracture": 0, "Mass": 10}, "cases")
    'n: cases; grey: fewer than 10. Not drawn: Fracture (no case).'
    """
    few = f"; grey: fewer than {FEWEST_CASES}" if any(0 < n < FEWEST_CASES for n in n_cases.values()) else ""
    missing: dict[str, list[str]] = {}
    for name, reason in ({name: "no case" for name, n in n_cases.items() if not n} | dict(left_out or {})).items():
        missing.setdefault(reason, []).append(name)
    names = "; ".join(f"{', '.join(own)} ({reason})" for reason, own in missing.items())
    return f"n: {counted}{few}." + (f" Not drawn: {names}." if names else "")


_PANELS = 4
_HEIGHT = 34.0


def panels(
    names: Sequence[str],
    width: float,
    draw: Callable[[Axes, str], None],
    x: str,
    y: str,
    *,
    scale: Callable[[Axes], None] | None = None,
    series: Sequence[tuple[str, Paint]] = (),
    marks: Sequence[Any] = (),
    n_cases: Mapping[str, int] | None = None,
    below: Mapping[str, str] | None = None,
) -> Figure:
    """Draw one panel per name, in rows; `x` and `y` are the labels of the axes.

    Parameters
    ----------
    scale : function that sets up the horizontal axis, which is in percent by default
    series : names and looks of the systems, for the legend
    marks : handles of other marks, for the legend
    n_cases : name -> number of cases; a panel with fewer than :data:`FEWEST_CASES` is grey
    below : name -> second line of the panel's title
    """
    n_cases, below = n_cases or {}, below or {}
    handles = [*(patch(cut(name, width - 16), look) for name, look in series), *marks]
    columns = columns_for(len(names), _PANELS if width == WIDE else 2)
    label, ticks = 5.0, 10.0  # space for the name of the axis, and for the numbers left of each panel
    slot = (width - label) / columns
    with style():
        from matplotlib.ticker import MaxNLocator

        whole = [f"{name} (n{NBSP}={NBSP}{n_cases[name]:,})" if name in n_cases else name for name in names]
        titles = ["\n".join(wrap(line, slot - ticks) for line in (title, below.get(name, "")) if line)
                  for name, title in zip(names, whole, strict=True)]  # fmt: skip
        rows = [titles[start : start + columns] for start in range(0, len(titles), columns)]
        tops = [LINE * max(title.count("\n") + 1 for title in row) + 3 for row in rows]
        top = legend_height([one.get_label() for one in handles], width) if handles else 0.0
        x = wrap(x, width - label - ticks)
        foot = 13 + LINE * x.count("\n")
        figure = new_figure(top + sum(tops) + _HEIGHT * len(rows) + 6 * (len(rows) - 1) + foot, width)
        height = figure.get_figheight() * 25.4
        for number, name in enumerate(names):
            row, column = divmod(number, columns)
            low = height - top - sum(tops[: row + 1]) - (_HEIGHT + 6) * row - _HEIGHT
            axes = place_axes(figure, label + column * slot + ticks, low, slot - ticks - 4, _HEIGHT)
            axes.set_title(titles[number], fontsize=8, loc="left", pad=5)
            axes.set_facecolor(PANEL if n_cases.get(name, FEWEST_CASES) < FEWEST_CASES else "none")
            draw(axes, name)
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            (scale or _percent)(axes)
            plain_axes(axes)
        legend(figure, handles)
        half = width_of(y) / 2
        middle = max(min((low + height - top - tops[0]) / 2, height - half), half)
        figure.supxlabel(x, fontsize=8, color=INK, x=(label + ticks + width - 4) / 2 / width, y=1.5 / height)
        figure.supylabel(y, fontsize=8, color=INK, x=0.5 / width, y=middle / height)
    return figure


def _percent(axes: Axes) -> None:
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 50, 100])
