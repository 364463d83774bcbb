"""Bars: hit rates by pathology, categories of errors, and prompts against each other.

After paper 000, Figures 2, 3 and 6 (the same information; the look is this project's). Values are fractions, axes are
in percent. Sizes are in millimetres; see :mod:`reveal_bench.reports.figure_style`.

Heat maps over the average frontal image, a row per pathology, a column for the truth and for each run.

After paper 000, Figures 4, 7 and 8 (the same information; the look is this project's). All panels share one scale from
0 to 100 %, drawn by square root: a cell of 4 % is then still seen beside one of 100 %. The image behind is made light,
so that dark means frequent on paper too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import FloatArray
from reveal_bench.reports.figure_style import (
    INK,
    SOFT,
    WIDTH,
    Paint,
    columns_for,
    cut,
    new_figure,
    plain_axes,
    style,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BarSeries",
    "CATEGORY_PAINTS",
    "COLUMNS_ABREAST",
    "Group",
    "HeatColumn",
    "PromptScore",
    "ROWS_ON_PAGE",
    "error_bars",
    "grouped_bars",
    "heat_maps",
    "overlay",
    "place_axes",
    "prompt_scores",
]

GROUPS_ABREAST = 5
"""Groups of bars side by side: their labels then have 33 mm each, enough for 17 characters at 8 pt."""
ROW_HEIGHT = 44.0
BAR_SHARE = 0.82
"""Of the room of a group, what its bars fill."""
CATEGORY_PAINTS: dict[str, tuple[str, Paint]] = {
    "full_hit": ("full hit", Paint("#17305e")),
    "partial_hit": ("partial hit", Paint("#8cc0e6")),
    "position": ("position error", Paint("#f6e08a")),
    "anatomy": ("anatomy error", Paint("#c4512d", "////")),
    "miss_unreviewed": ("miss, not reviewed", Paint("#e3e6ea", "....")),
    "no_answer": ("no answer", Paint("#ffffff")),
}
"""Category of :mod:`reveal_bench.reports.run_errors` -> name and look, in the order in which bars are stacked."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of bars: its key and what is written below it."""

    key: str
    label: str


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


def grouped_bars(groups: Sequence[Group], series: Sequence[BarSeries], *, ylabel: str = "Hit rate (%)") -> Figure:
    """Bars side by side with error bars and a dashed line at chance, in rows of a few groups each.

    The line at chance is drawn over neighbouring bars of one chance level without a break. All rows share one scale.
    """
    columns = columns_for(len(groups), GROUPS_ABREAST)
    n_rows = math.ceil(len(groups) / columns)
    with style():
        top, bottom = _legend_height([cut(s.label) for s in series] + ["chance level"]), 13.0
        height = n_rows * ROW_HEIGHT + top + 2
        figure = new_figure(height)
        tops = [_end(s, g.key) for s in series for g in groups]
        highest = min(1.0, max([0.1, *(t for t in tops if not math.isnan(t))]) * 1.06)
        for row in range(n_rows):
            shown = groups[row * columns : (row + 1) * columns]
            low = height - top - (row + 1) * ROW_HEIGHT + bottom
            width = (WIDTH - 17) * len(shown) / columns
            axes = place_axes(figure, 15, low, width, ROW_HEIGHT - bottom - 2)
            _draw_groups(axes, shown, series)
            axes.set_xlim(-0.5, len(shown) - 0.5)
            axes.set_ylim(0, 100 * highest)
            axes.set_ylabel(ylabel)
        _legend(figure, series, dashed=any(s.chance for s in series))
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
    axes.set_xticks(places, [group.label for group in groups])
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
            axes.plot(ends, level, color=INK, linewidth=1.0, linestyle=(0, (2.2, 1.2)))
        start = stop


def place_axes(figure: Figure, left: float, low: float, width: float, height: float) -> Axes:
    """Axes at a place in millimetres from the lower left corner."""
    whole_width, whole_height = (side * 25.4 for side in figure.get_size_inches())
    return figure.add_axes((left / whole_width, low / whole_height, width / whole_width, height / whole_height))


def _columns_of_legend(labels: Sequence[str]) -> int:
    if sum(11 + 1.6 * len(label) for label in labels) <= WIDTH - 6:
        return len(labels)
    longest = max(len(label) for label in labels)
    return max(1, min(len(labels), int((WIDTH - 10) // (12 + 1.75 * longest))))


def _legend_height(labels: Sequence[str]) -> float:
    return 4 + 4.6 * math.ceil(len(labels) / _columns_of_legend(labels))


def _legend(figure: Figure, series: Sequence[BarSeries], *, dashed: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(label=cut(one.label), **one.paint.options) for one in series]
    if dashed:
        handles.append(Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (2.2, 1.2)), label="chance level"))
    _place_legend(figure, handles)


def _place_legend(figure: Figure, handles: Sequence[Any]) -> None:
    figure.legend(
        handles=handles, loc="upper center", ncols=_columns_of_legend([h.get_label() for h in handles]),
        frameon=False, handlelength=1.6, handleheight=0.9, columnspacing=1.6, borderaxespad=0.3, labelspacing=0.35,
    )  # fmt: skip


def error_bars(
    groups: Sequence[Group], shares: Mapping[str, Mapping[str, Mapping[str, float]]], *, panels: int = 3
) -> Figure:
    """Stacked shares of the error categories, a panel per group and in it a bar per run.

    Parameters
    ----------
    shares : run label -> group key -> category -> share; a group without shares stays empty
    panels : side by side
    """
    labels = [wrap(label, 22) for label in shares]
    used = [name for name in CATEGORY_PAINTS if any(g.get(name) for run in shares.values() for g in run.values())]
    columns = columns_for(len(groups), panels)
    with style():
        left = 4 + 1.75 * max(len(line) for label in labels for line in label.split("\n"))
        line = 4.2 + 2.9 * max(label.count("\n") for label in labels)
        titles = [wrap(group.label, int((WIDTH - left) / columns / 1.5) - 3) for group in groups]
        rows = [titles[start : start + columns] for start in range(0, len(titles), columns)]
        heights = [3.4 * max(title.count("\n") + 1 for title in row) + 10.0 + line * len(shares) for row in rows]
        top = _legend_height([CATEGORY_PAINTS[name][0] for name in used]) if used else 4
        height = top + sum(heights) + 2
        figure = new_figure(height)
        width = (WIDTH - left - 3) / columns
        for number, group in enumerate(groups):
            row, column = divmod(number, columns)
            low = height - top - sum(heights[: row + 1]) + 7
            axes = place_axes(figure, left + column * width, low, width - 8, line * len(shares))
            axes.set_title(titles[number], fontsize=8, loc="left", pad=3)
            last = number + columns >= len(groups)
            _draw_stack(axes, group, list(shares.values()), used, labels if column == 0 else None, named=last)
        if used:
            from matplotlib.patches import Patch

            _place_legend(figure, [Patch(label=CATEGORY_PAINTS[n][0], **CATEGORY_PAINTS[n][1].options) for n in used])
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


@dataclass(frozen=True, slots=True)
class PromptScore:
    """The mean hit rate of a model with one prompt style, with its 95 % interval; fractions."""

    model: str
    style: str
    value: float
    low: float
    high: float


def prompt_scores(scores: Sequence[PromptScore], *, chance: float) -> Figure:
    """A line per model, a marker per style with its interval, and chance."""
    models = list(dict.fromkeys(score.model for score in scores))
    styles = list(dict.fromkeys(score.style for score in scores))
    with style():
        height = 24.0 + (3.5 + 4.2 * len(styles)) * len(models)
        figure = new_figure(height, width=WIDTH)
        labels = [wrap(model, 24) for model in models]
        left = 6 + 1.75 * max(len(line) for label in labels for line in label.split("\n"))
        axes = place_axes(figure, left, 11, WIDTH - left - 6, height - 21)
        looks = dict(
            zip(styles, zip("osD^v", ("#17305e", "#e0792f", "#2f7f6f", "#8a2f55", SOFT), strict=True), strict=False)
        )
        for score in scores:
            step = (styles.index(score.style) - (len(styles) - 1) / 2) * 0.7 / max(1, len(styles))
            marker, colour = looks[score.style]
            reach = np.array([[score.value - score.low], [score.high - score.value]])
            axes.errorbar(
                [100 * score.value], [models.index(score.model) + step], xerr=100 * reach, fmt=marker,
                color=colour, markersize=4.5, elinewidth=1.0, capsize=2,
            )  # fmt: skip
        axes.axvline(100 * chance, color=INK, linewidth=1.0, linestyle=(0, (2.2, 1.2)))
        axes.set_yticks(range(len(models)), labels)
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.set_xlim(0, 100 * min(1.0, max([2 * chance, *(s.high for s in scores)]) * 1.08))
        axes.set_xlabel("Mean hit rate over pathologies (%)")
        plain_axes(axes)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x", color="#d0d7de", linewidth=0.5)
        _prompt_legend(figure, looks)
    return figure


def _prompt_legend(figure: Figure, looks: Mapping[str, tuple[str, str]]) -> None:
    from matplotlib.lines import Line2D

    handles: list[Any] = [
        Line2D([], [], linestyle="", marker=marker, color=colour, markersize=4.5, label=name)
        for name, (marker, colour) in looks.items()
    ]
    handles.append(Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (2.2, 1.2)), label="chance level"))
    _place_legend(figure, handles)


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
    groups: Sequence[Group], columns: Sequence[HeatColumn], picture: FloatArray | None, *, note: str = ""
) -> Figure:
    """Panels of all `groups` (rows) and `columns`, with one colour bar.

    Parameters
    ----------
    picture : the average image (256, 256), or None for a plain background
    note : written below the panels, such as why there is no image
    """
    if len(columns) > COLUMNS_ABREAST:
        raise ValueError(f"`columns` must be at most {COLUMNS_ABREAST}, got {len(columns)}")
    with style():
        left, gap, below, right = 31.0, 1.5, 5.0, 18.0
        side = min(30.0, (WIDTH - left - right - gap * (len(columns) - 1)) / len(columns))
        titles = [wrap(column.title, max(8, int(side / 1.62))) for column in columns]
        top = 3 + 3.4 * max(title.count("\n") + 1 for title in titles)
        foot = 7.0 if note else 2.0
        height = top + len(groups) * (side + below) + foot
        figure = new_figure(height)
        for row, group in enumerate(groups):
            low = height - top - (row + 1) * side - row * below
            for number, column in enumerate(columns):
                axes = place_axes(figure, left + number * (side + gap), low, side, side)
                _draw_panel(axes, column.shares.get(group.key), picture)
                if row == 0:
                    axes.set_title(titles[number], fontsize=8, pad=3, fontweight="bold" if number == 0 else "normal")
                if number == 0:
                    axes.set_ylabel(group.label, rotation=0, ha="right", va="center", labelpad=4)
        end = left + len(columns) * (side + gap)
        tall = min(len(groups) * (side + below) - below, 70.0)
        _draw_bar(place_axes(figure, end + 1.5, height - top - tall, 3, tall))
        if note:
            figure.text(left / WIDTH, 2.2 / height, note, fontsize=8, color=SOFT)
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
