"""Distribution of shapes per finding (paper 002, Extended Data Fig. 8): a panel per feature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from reveal_bench.evaluation.shapes import FEATURES, Shape
from reveal_bench.reports.style import (
    INK,
    NARROW,
    Illustration,
    check_extra,
    new_figure,
    paints,
    place_axes,
    plain_axes,
    style,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure_of"]

_TITLES = {
    "polygons": "Number of instances",
    "size": "Size (% of the image)",
    "elongation": "Elongation",
    "irrectangularity": "Irrectangularity",
}
_ROW, _GAP = 5.0, 18.0


def figure_of(shapes: Sequence[Shape], findings: Sequence[str]) -> Illustration:
    """Boxes of the quartiles with whiskers to the 5th and 95th percentile, per finding that was drawn.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    drawn = [name for name in findings if any(shape.finding == name for shape in shapes)]
    values = {
        feature: [[float(getattr(s, feature)) for s in shapes if s.finding == name] for name in drawn]
        for feature in FEATURES
    }
    return Illustration(
        "shapes",
        "Shapes of the references",
        "Median, quartiles and 5th to 95th percentile of four features of the reference masks, per finding.",
        "Per finding, the distribution of the number of instances, size, elongation and irrectangularity.",
        partial(_draw, drawn, values),
    )


def _draw(names: Sequence[str], values: dict[str, list[list[float]]], width: float) -> Figure:
    columns = 1 if width == NARROW else 2
    n_rows = -(-len(FEATURES) // columns)
    high = _ROW * len(names)
    left = 4 + max(width_of(name) for name in names)
    panel = (width - left - 4 - (columns - 1) * 6) / columns
    with style():
        figure = new_figure(n_rows * (high + _GAP), width)
        for number, feature in enumerate(FEATURES):
            row, column = divmod(number, columns)
            low = (n_rows - row - 1) * (high + _GAP) + _GAP - 8
            axes = place_axes(figure, left + column * (panel + 6), low, panel, high)
            scale = 100 if feature == "size" else 1
            own = [[scale * value for value in given if value == value] for given in values[feature]]
            axes.boxplot(
                own, orientation="horizontal", whis=(5, 95), showfliers=False, widths=0.6, patch_artist=True,
                positions=range(len(names)), medianprops={"color": INK}, manage_ticks=False,
                boxprops={"facecolor": paints(3)[2].colour, "linewidth": 0.6}, whiskerprops={"linewidth": 0.8},
            )  # fmt: skip
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), names if column == 0 else [""] * len(names))
            axes.set_xlim(left=0 if feature != "elongation" else 1)
            axes.set_title(_TITLES[feature], fontsize=8, loc="left", pad=4)
            plain_axes(axes, across="x")
            axes.tick_params(axis="y", length=0)
    return figure
