"""The figures of all reports: bars, marks with intervals, bars by group, stacked shares, heat maps.

After Figures 2, 3, 4 and 6 to 8 of paper 000 and Figures 3 and 4 of paper 004 (the same information; the look is this
project's). Sizes are in millimetres, see :mod:`reveal_bench.reports.style`. Shares are fractions; axes say what they
are in.

Panels of heat maps share one scale from 0 to 100 %, drawn by square root: a cell of 4 % is then still seen beside one
of 100 %. The image behind is made light, so that dark means frequent on paper too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.reports.style import (
    DASHED,
    INCH,
    INK,
    LINE,
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_HEIGHT = 48.0
PANELS = 3
"""Panels of stacked shares side by side."""
BAR_SHARE = 0.82
"""Of the room of a group, what its bars fill."""
MARKERS = "oDsv^PXhd<>*"
CATEGORY_PAINTS: dict[str, tuple[str, Paint]] = {
    "full_hit": ("full hit", Paint("#0b4f48")),
    "partial_hit": ("partial hit", Paint("#8fd0c6")),
    "position": ("position error", Paint("#f6e08a")),
    "anatomy": ("anatomy error", Paint("#c4512d", "////")),
    "miss_unreviewed": ("miss, not reviewed", Paint("#e3e6ea", "....")),
    "no_answer": ("no answer", Paint("#ffffff")),
}
"""Category of :mod:`reveal_bench.reports.run_errors` -> name and look, in the order in which bars are stacked."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with what is written at its end; None draws the words alone. `low` and `high` are its interval."""

    value: float | None
    words: str
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True)
class Point:
    """A value with its interval; a value of None is undefined, an infinite one is drawn at the end of the scale.

    `kind` is the place of its series.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    kind: int = 0


def in_percent(value: float, low: float, high: float, kind: int) -> Point:
    """The point of a share with its interval, of which NaN is undefined.

    Examples
    --------
    >>> in_percent(0.5, 0.25, math.nan, 1)
    Point(value=50.0, low=25.0, high=None, kind=1)
    """
    shares = [None if math.isnan(share) else 100 * share for share in (value, low, high)]
    return Point(shares[0], shares[1], shares[2], kind)


def bars(rows: Sequence[tuple[str, Sequence[Bar]]], width: float, *, axis: str, kinds: Sequence[str] = ()) -> Figure:
    """Horizontal bars, one per series and row.

    Parameters
    ----------
    axis : what it measures
    kinds : names of the series; a single one without a name needs no legend
    """
    n_kinds = max((len(given) for _, given in rows), default=1)
    looks = paints(n_kinds)
    names, left = _row_names([name for name, _ in rows], width, 1 + n_kinds // 2)
    ends = [_finite(bar.high, bar.value or 0.0) for _, given in rows for bar in given]
    # Words stand right of the bar, which may be as long as the scale
    room = 4 + max((width_of(bar.words) for _, given in rows for bar in given), default=0.0)
    with style():
        line = 3.8 * n_kinds + 2.4
        top = legend_height(kinds, width)
        figure = new_figure(top + line * len(rows) + 12, width)
        axes = place_axes(figure, left, 10, width - left - room, max(line * len(rows), 0.1))
        thick = 3.0 / line
        for row, (_, given) in enumerate(rows):
            for k, bar in enumerate(given):
                place = row + (k - (len(given) - 1) / 2) * 3.8 / line
                if bar.value is not None:
                    axes.barh(place, bar.value, thick, **looks[k].options)
                if not math.isnan(bar.low):
                    _whisker(axes, bar.low, bar.high, place)
                axes.annotate(
                    bar.words, (_finite(bar.high, bar.value or 0.0), place), (3, 0), textcoords="offset points",
                    va="center", annotation_clip=False,
                )  # fmt: skip
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, max(ends, default=0.0) or 1.0)
        _measure(axes, axis, whole=all(float(end).is_integer() for end in ends))
        legend(figure, [patch(name, look) for name, look in zip(kinds, looks, strict=False)])
    return figure


def dots(
    rows: Sequence[tuple[str, Sequence[Point]]],
    width: float,
    *,
    axis: str,
    kinds: Sequence[str] = (),
    ends: tuple[float, float] | None = None,
    rule: tuple[float, str] | None = None,
) -> Figure:
    """A row per name, in it a mark with its interval per point: a forest plot, or a plot of balance.

    Parameters
    ----------
    kinds : names of the series
    ends : of the scale; by default those of the values
    rule : place of a dashed line, and what it is
    """
    n_abreast = [len({point.kind for point in points}) for _, points in rows]
    n_most = max(n_abreast, default=1)
    names, left = _row_names([name for name, _ in rows], width, 1 + n_most // 2)
    looks = paints(len(MARKERS))
    with style():
        from matplotlib.lines import Line2D

        line = max(3.6 * n_most + 2.6, LINE * (1 + max((name.count("\n") for name in names), default=0)) + 1)
        words = [*kinds, *([rule[1]] if rule else [])]
        top = legend_height(words, width)
        label = wrap(axis, width - left - 6)
        foot = 7 + LINE * (label.count("\n") + 1)
        figure = new_figure(top + line * len(rows) + foot + 2, width)
        axes = place_axes(figure, left, foot, width - left - 6, max(line * len(rows), 0.1))
        low, high = ends or _ends(rows)
        for row, (_, points) in enumerate(rows):
            here = sorted({point.kind for point in points})
            for point in points:
                look, place = looks[point.kind], row + (here.index(point.kind) - (len(here) - 1) / 2) * 3.6 / line
                if point.value is None or math.isnan(point.value):
                    axes.text(low, place, " undefined", va="center", color=SOFT)
                    continue
                if point.low is not None and point.high is not None:
                    axes.plot([point.low, point.high], [place] * 2, color=INK, linewidth=1.0)
                axes.plot(
                    [min(max(point.value, low), high)], [place], MARKERS[point.kind], color=look.colour, markersize=5,
                    markeredgecolor=INK, markeredgewidth=0.5, clip_on=False,
                )  # fmt: skip
        handles: list[Any] = [
            Line2D([], [], linestyle="", marker=MARKERS[k], color=looks[k].colour, markeredgecolor=INK,
                   markeredgewidth=0.5, markersize=5, label=cut(name, width - 16))
            for k, name in enumerate(kinds)
        ]  # fmt: skip
        if rule:
            axes.axvline(rule[0], color=INK, linewidth=1.0, linestyle=DASHED)
            handles.append(_dashed(rule[1]))
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(low, high)
        _measure(axes, label)
        legend(figure, handles)
    return figure


def _row_names(names: Sequence[str], width: float, most: int) -> tuple[list[str], float]:
    """The names in lines that leave room for the figure, and the room that they take."""
    lines = [wrap(name, 0.36 * width, most=max(most, 2)) for name in names]
    return lines, 5 + max((width_of(line) for name in lines for line in name.split("\n")), default=0.0)


def _ends(rows: Sequence[tuple[str, Sequence[Point]]]) -> tuple[float, float]:
    """A scale from 0, or what is below it, to what is highest."""
    found = [end for _, points in rows for p in points for end in (p.value, p.low, p.high) if end is not None]
    finite = [end for end in found if math.isfinite(end)]
    return min([0.0, *finite]) * 1.05, max([1e-9, *finite]) * 1.08


def _finite(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value


def _whisker(axes: Axes, low: float, high: float, place: float) -> None:
    for colour, thick in (("white", 2.2), (INK, 1.0)):  # on dark bars, too
        axes.plot([low, high], [place] * 2, color=colour, linewidth=thick, solid_capstyle="butt", clip_on=False)


def _measure(axes: Axes, label: str, *, whole: bool = False) -> None:
    """The axis below rows of bars or marks: ticks with true minus signs, as many as there is room for."""
    from matplotlib.ticker import MaxNLocator

    width = axes.get_window_extent().width / axes.figure.dpi * INCH
    axes.xaxis.set_major_locator(MaxNLocator(max(2, int(width / 16)), integer=whole, steps=[1, 2, 5, 10]))
    axes.set_xlabel(label, labelpad=2)
    plain_axes(axes, across="x")
    axes.tick_params(axis="y", length=0, pad=5)


def patch(label: str, look: Paint) -> Any:
    """The handle of a series in a legend."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look.options)


def _dashed(label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=INK, linewidth=1.0, linestyle=DASHED, label=label)


def _columns_of_legend(labels: Sequence[str], width: float) -> int:
    room = [11 + width_of(label) for label in labels]
    if sum(room) <= width - 4:
        return len(labels)
    return max(1, min(len(labels), int((width - 4) // max(room))))


def legend_height(labels: Sequence[str], width: float) -> float:
    """Millimetres that a legend takes above a figure."""
    return 4 + 4.6 * math.ceil(len(labels) / _columns_of_legend(labels, width)) if labels else 3.0


def legend(figure: Figure, handles: Sequence[Any]) -> None:
    """A legend above a figure, none without handles."""
    if not handles:
        return
    width = figure.get_figwidth() * INCH
    figure.legend(
        handles=handles, loc="upper center", ncols=_columns_of_legend([h.get_label() for h in handles], width),
        frameon=False, handlelength=1.6, handleheight=0.9, columnspacing=1.6, borderaxespad=0.3, labelspacing=0.35,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """A group of bars: its key, its name and the lines below that."""

    key: str
    label: str
    below: tuple[str, ...] = ()


@dataclass(frozen=True)
class BarSeries:
    """Bars of one look, one per group.

    Attributes
    ----------
    values, deviations, chance : group key -> fraction; NaN or absent = nothing is drawn
    """

    label: str
    paint: Paint
    values: Mapping[str, float]
    deviations: Mapping[str, float]
    chance: Mapping[str, float]


def grouped_bars(groups: Sequence[Group], series: Sequence[BarSeries], width: float = WIDE) -> Figure:
    """Bars side by side with error bars and a dashed line at chance, in rows of a few groups each.

    The line at chance is drawn over neighbouring bars of one chance level without a break. All rows share one scale.
    """
    columns = columns_for(len(groups), 5 if width == WIDE else 2)
    n_rows = math.ceil(len(groups) / columns)
    slot = (width - 17) / columns
    labels = {group.key: "\n".join([wrap(group.label, slot - 2, most=3), *group.below]) for group in groups}
    lines = max(label.count("\n") + 1 for label in labels.values())
    with style():
        handles = [patch(cut(one.label, width - 16), one.paint) for one in series]
        handles += [_dashed("chance level")] * any(one.chance for one in series)
        top, bottom = legend_height([handle.get_label() for handle in handles], width), 3 + LINE * lines
        height = n_rows * ROW_HEIGHT + top + 2
        figure = new_figure(height, width)
        tops = [_end(s, g.key) for s in series for g in groups]
        highest = min(1.0, max([0.1, *(t for t in tops if not math.isnan(t))]) * 1.06)
        for row in range(n_rows):
            shown = groups[row * columns : (row + 1) * columns]
            low = height - top - (row + 1) * ROW_HEIGHT + bottom
            axes = place_axes(figure, 15, low, slot * len(shown), ROW_HEIGHT - bottom - 2)
            _draw_groups(axes, shown, series)
            axes.set_xticks(range(len(shown)), [labels[group.key] for group in shown])
            axes.set_xlim(-0.5, len(shown) - 0.5)
            axes.set_ylim(0, 100 * highest)
            axes.set_ylabel("Hit rate (%)")
        legend(figure, handles)
    return figure


def _end(series: BarSeries, key: str) -> float:
    deviation = series.deviations.get(key, 0.0)
    value = series.values.get(key, math.nan)
    return max(value + (0.0 if math.isnan(deviation) else deviation), series.chance.get(key, value))


def _draw_groups(axes: Axes, groups: Sequence[Group], series: Sequence[BarSeries]) -> None:
    width = BAR_SHARE / len(series)
    places = np.arange(len(groups))
    for number, one in enumerate(series):
        left = places - BAR_SHARE / 2 + number * width
        values = np.array([one.values.get(group.key, math.nan) for group in groups])
        spread = np.array([one.deviations.get(group.key, math.nan) for group in groups])
        axes.bar(left, 100 * values, width * 0.94, align="edge", label=one.label, **one.paint.options)
        has = ~np.isnan(spread) & ~np.isnan(values)
        middle = left + width * 0.47
        if has.any():
            # Within 0 and 1: no share lies beyond
            reach = np.array([np.minimum(spread, values)[has], np.minimum(spread, 1 - values)[has]])
            for colour, thick in (("white", 1.9), (INK, 0.8)):  # on dark bars, too
                axes.errorbar(
                    middle[has], 100 * values[has], yerr=100 * reach, fmt="none",
                    ecolor=colour, elinewidth=thick, capsize=1.3, capthick=thick,
                )  # fmt: skip
    for place, group in zip(places, groups, strict=True):
        _draw_chance(axes, float(place), [one.chance.get(group.key, math.nan) for one in series], width)
    axes.tick_params(axis="x", length=0)
    plain_axes(axes)


def _draw_chance(axes: Axes, place: float, chance: Sequence[float], width: float) -> None:
    start = 0
    for stop in range(1, len(chance) + 1):
        if stop < len(chance) and chance[stop] == chance[start]:
            continue
        if not math.isnan(chance[start]):
            ends = [place - BAR_SHARE / 2 + start * width, place - BAR_SHARE / 2 + (stop - 0.06) * width]
            level = [100 * chance[start]] * 2
            axes.plot(ends, level, color="white", linewidth=1.8, solid_capstyle="butt")
            axes.plot(ends, level, color=INK, linewidth=1.0, linestyle=DASHED)
        start = stop


def error_bars(
    groups: Sequence[Group],
    shares: Mapping[str, Mapping[str, Mapping[str, float]]],
    width: float = WIDE,
) -> Figure:
    """Stacked shares of the error categories, a panel per group and in it a bar per run.

    Parameters
    ----------
    shares : run label -> group key -> category -> share; a group without shares stays empty
    """
    labels, left = _row_names(list(shares), width, 3)
    used = [name for name in CATEGORY_PAINTS if any(g.get(name) for run in shares.values() for g in run.values())]
    columns = columns_for(len(groups), PANELS if width == WIDE else 1)
    panel = (width - left - 3) / columns
    with style():
        line = 1.0 + 1.05 * LINE * max(label.count("\n") + 1 for label in labels)
        titles = ["\n".join([wrap(group.label, panel - 4), *group.below]) for group in groups]
        rows = [titles[start : start + columns] for start in range(0, len(titles), columns)]
        heights = [LINE * max(title.count("\n") + 1 for title in row) + 12.0 + line * len(shares) for row in rows]
        handles = [patch(*CATEGORY_PAINTS[name]) for name in used]
        top = legend_height([CATEGORY_PAINTS[name][0] for name in used], width)
        height = top + sum(heights) + 2
        figure = new_figure(height, width)
        for number, group in enumerate(groups):
            row, column = divmod(number, columns)
            low = height - top - sum(heights[: row + 1]) + 8
            axes = place_axes(figure, left + column * panel, low, panel - 8, line * len(shares))
            axes.set_title(titles[number], fontsize=8, loc="left", pad=3)
            last = number + columns >= len(groups)
            _draw_stack(axes, group, list(shares.values()), used, labels if column == 0 else None, named=last)
        legend(figure, handles)
    return figure


def _draw_stack(
    axes: Axes,
    group: Group,
    runs: Sequence[Mapping[str, Mapping[str, float]]],
    used: Sequence[str],
    labels: Sequence[str] | None,
    *,
    named: bool,
) -> None:
    places = np.arange(len(runs))
    starts = np.zeros(len(runs))
    for name in used:
        widths = np.array([100 * run.get(group.key, {}).get(name, 0.0) for run in runs])
        axes.barh(places, widths, 0.74, left=starts, label=name, **CATEGORY_PAINTS[name][1].options)
        starts += widths
    axes.set_xlim(0, 100)
    axes.set_ylim(len(runs) - 0.45, -0.55)
    axes.set_xticks([0, 50, 100])
    axes.set_yticks(places, labels if labels is not None else [""] * len(runs))
    if named:
        axes.set_xlabel("Predictions (%)", labelpad=1)
    plain_axes(axes)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)


ROWS_ON_PAGE = 5
COLUMNS_ABREAST = 7
"""The truth and six runs: more would be narrower than 20 mm."""
SIDE = 256
MAP = "YlOrRd"


@dataclass(frozen=True)
class HeatColumn:
    """A column: its title, and the shares (n, n) by group key."""

    title: str
    shares: Mapping[str, FloatArray]


def overlay(shares: FloatArray, picture: FloatArray | None) -> npt.NDArray[np.uint8]:
    """RGB pixels (256, 256, 3) of shares in [0, 1], (n, n), over a grey picture (256, 256) in [0, 255].

    Cells of share 0 show the picture alone; without a picture they are white. A thin light line parts the cells.
    """
    ground = np.ones((SIDE, SIDE)) if picture is None else 0.55 + 0.45 * picture / 255
    edges = np.arange(SIDE) * len(shares) // SIDE
    pixels = _mixed(shares[np.ix_(edges, edges)], ground)
    lines = np.flatnonzero(np.diff(edges)) + 1
    pixels[lines] = pixels[lines] * 0.6 + 0.4
    pixels[:, lines] = pixels[:, lines] * 0.6 + 0.4
    return np.asarray(np.rint(255 * pixels), np.uint8)


def _mixed(shares: FloatArray, ground: FloatArray) -> FloatArray:
    """Colours (..., 3) in [0, 1] of shares over a grey ground, the more opaque the larger the share."""
    import matplotlib

    roots = np.sqrt(np.clip(shares, 0, 1))
    colour = matplotlib.colormaps[MAP](0.10 + 0.90 * roots)[..., :3]
    opacity = np.where(roots > 0, 0.62 + 0.33 * roots, 0.0)[..., None]
    mixed: FloatArray = colour * opacity + ground[..., None] * (1 - opacity)
    return mixed


def heat_maps(
    groups: Sequence[Group],
    columns: Sequence[HeatColumn],
    picture: FloatArray | None,
    width: float = WIDE,
    *,
    note: str = "",
) -> Figure:
    """Panels of all `groups` (rows) and `columns`, with one colour bar.

    Parameters
    ----------
    picture : the average image (256, 256), or None for a plain background
    note : written below the panels, such as why there is no image
    """
    if len(columns) > COLUMNS_ABREAST:
        raise ArgumentError("columns", f"must be at most {COLUMNS_ABREAST}", len(columns))
    with style():
        left, gap, below, right = 34.0, 1.5, 5.0, 18.0
        side = min(30.0, (width - left - right - gap * (len(columns) - 1)) / len(columns))
        titles = [wrap(column.title, side - 1, most=4, bold=number == 0) for number, column in enumerate(columns)]
        top = 3 + LINE * max(title.count("\n") + 1 for title in titles)
        foot = 7.0 if note else 2.0
        height = top + len(groups) * (side + below) + foot
        figure = new_figure(height, width)
        for row, group in enumerate(groups):
            low = height - top - (row + 1) * side - row * below
            for number, column in enumerate(columns):
                axes = place_axes(figure, left + number * (side + gap), low, side, side)
                _draw_panel(axes, column.shares.get(group.key), picture)
                if row == 0:
                    axes.set_title(titles[number], fontsize=8, pad=3, fontweight="bold" if number == 0 else "normal")
                if number == 0:
                    name = "\n".join([wrap(group.label, left - 4), *group.below])
                    axes.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=4)
        end = left + len(columns) * (side + gap)
        tall = min(len(groups) * (side + below) - below, 70.0)
        _draw_bar(place_axes(figure, end + 1.5, height - top - tall, 3, tall))
        if note:
            figure.text(left / width, 2.2 / height, note, fontsize=8, color=SOFT)
    return figure


def _draw_panel(axes: Axes, shares: FloatArray | None, picture: FloatArray | None) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
        spine.set_edgecolor(SOFT)
    if shares is None:
        axes.text(0.5, 0.5, "no image", ha="center", va="center", fontsize=8, color=SOFT, transform=axes.transAxes)
        return
    axes.imshow(overlay(shares, picture), extent=(0, 1, 0, 1), interpolation="nearest", aspect="auto")
    axes.set_xlabel(f"max {100 * float(shares.max()):.0f} %", fontsize=8, labelpad=1.5, color=SOFT)


def _draw_bar(axes: Axes) -> None:
    """The scale: what a share looks like on white."""
    steps = np.linspace(0, 1, 256)
    column = _mixed(steps**2, np.ones(256))[:, None]
    axes.imshow(column, origin="lower", extent=(0, 1, 0, 1), aspect="auto", interpolation="nearest")
    ticks = (0, 4, 16, 36, 64, 100)
    axes.set_yticks([(tick / 100) ** 0.5 for tick in ticks], [f"{tick} %" for tick in ticks])
    axes.yaxis.tick_right()
    axes.set_xticks([])
    axes.tick_params(length=2, width=0.5, labelsize=8, pad=1.5)
