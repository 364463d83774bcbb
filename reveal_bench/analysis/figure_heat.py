"""Heat maps over the average frontal image, a row per pathology, a column for the truth and for each run.

After paper 000, Figures 4, 7 and 8 (the same information; the look is this project's). All panels share one scale from
0 to 100 %, drawn by square root: a cell of 4 % is then still seen beside one of 100 %. The image behind is made light,
so that dark means frequent on paper too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reveal_bench.analysis.figure_bars import Group, place_axes
from reveal_bench.analysis.figure_style import SOFT, WIDTH, new_figure, style, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLUMNS_ABREAST", "ROWS_ON_PAGE", "HeatColumn", "heat_maps", "overlay"]

ROWS_ON_PAGE = 5
COLUMNS_ABREAST = 7
"""The truth and six runs: more would be narrower than 20 mm."""
FloatArray = npt.NDArray[np.float64]
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
