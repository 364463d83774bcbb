"""Small multiples: a panel per finding, all with the same axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reveal_bench.reports.figures import legend, legend_height, patch
from reveal_bench.reports.style import (
    INK,
    LINE,
    WIDE,
    Paint,
    columns_for,
    new_figure,
    place_axes,
    plain_axes,
    style,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
) -> Figure:
    """A panel per name in rows, their titles above; `x` and `y` say what the axes measure.

    The axis below is in percent unless `scale` makes it another; `series` are named in a legend.
    """
    columns = columns_for(len(names), _PANELS if width == WIDE else 2)
    label, ticks = 5.0, 10.0  # room for the name of the axis, and for the numbers left of each panel
    slot = (width - label) / columns
    with style():
        from matplotlib.ticker import MaxNLocator

        titles = [wrap(name, slot - ticks) for name in names]
        rows = [titles[start : start + columns] for start in range(0, len(titles), columns)]
        tops = [LINE * max(title.count("\n") + 1 for title in row) + 3 for row in rows]
        top = legend_height([label for label, _ in series], width) if series else 0.0
        figure = new_figure(top + sum(tops) + _HEIGHT * len(rows) + 6 * (len(rows) - 1) + 13, width)
        height = figure.get_figheight() * 25.4
        for number, name in enumerate(names):
            row, column = divmod(number, columns)
            low = height - top - sum(tops[: row + 1]) - (_HEIGHT + 6) * row - _HEIGHT
            axes = place_axes(figure, label + column * slot + ticks, low, slot - ticks - 4, _HEIGHT)
            axes.set_title(titles[number], fontsize=8, loc="left", pad=5)
            draw(axes, name)
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            (scale or _percent)(axes)
            plain_axes(axes)
        legend(figure, [patch(label, look) for label, look in series])
        figure.supxlabel(x, fontsize=8, color=INK, y=1.5 / height)
        figure.supylabel(y, fontsize=8, color=INK, x=0.5 / width)
    return figure


def _percent(axes: Axes) -> None:
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 50, 100])
