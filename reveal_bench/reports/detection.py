"""Figures of a detector: FROC curves with their bands, precision against recall, sensitivity by size of lesions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.kinds.scored import Curves
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.reports.panels import panels
from reveal_bench.reports.style import INK, Illustration, check_extra, paints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figures_of"]

_LEAST, _MOST = 1 / 32, 8.0  # false alarms per image between which FROC is drawn

_FEWEST = 5  # lesions, or findings of a macro, with an interval


def figures_of(curves: Curves) -> list[Illustration]:
    """FROC, precision and recall, and sensitivity by size.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    drawn = [
        Illustration(
            "froc",
            "FROC",
            "Share of lesions found against false alarms per image, over all thresholds; bands are 95 % intervals, "
            "taken at 1/8 to 8 false alarms per image.",
            "Per finding, the share of lesions found over false alarms per image.",
            lambda width: _froc(curves, width),
        ),
        Illustration(
            "precision_recall",
            "Precision and recall",
            "Precision against recall of hits by an IoU of 0.5 or more, after every hit by falling score.",
            "Per finding, the precision over the recall.",
            lambda width: _precision(curves, width),
        ),
    ]
    if curves.sizes:
        drawn.append(
            Illustration(
                "sizes",
                "Sensitivity by size of lesions",
                "Share of lesions found at the threshold fixed beforehand, by the share of the image that their box "
                "covers, with 95 % intervals where there are five or more; numbers are lesions.",
                "Per finding, the share of lesions found, by size.",
                lambda width: _sizes(curves, width),
            )
        )
    return drawn


def _froc(curves: Curves, width: float) -> Figure:
    colour, _, light = (paint.colour for paint in paints(3))

    def draw(axes: Axes, name: str) -> None:
        alarms, shares = curves.froc[name]
        bands = [one for one in curves.bands if one.finding == name]
        axes.fill_between(
            [one.false_alarms for one in bands],
            [100 * one.low for one in bands],
            [100 * one.high for one in bands],
            color=light,
            alpha=0.5,
            linewidth=0,
        )
        # From the last threshold on the curve is level
        ends = [max(_LEAST, float(alarms[-1])), _MOST]
        axes.plot(alarms, 100 * shares, color=colour, linewidth=1.4)
        axes.plot(ends, [100 * shares[-1]] * 2, color=colour, linewidth=1.4)
        axes.set_ylim(0, 100)

    def scale(axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xlim(_LEAST, _MOST)
        axes.set_xticks([1 / 32, 1 / 8, 1 / 2, 2, 8], ["1/32", "1/8", "1/2", "2", "8"])
        axes.minorticks_off()

    return panels(list(curves.froc), width, draw, "False alarms per image", "Lesions found (%)", scale=scale)


def _precision(curves: Curves, width: float) -> Figure:
    colour = paints(1)[0].colour

    def draw(axes: Axes, name: str) -> None:
        recall, precision = curves.precision[name]
        axes.plot(100 * recall, 100 * precision, color=colour, linewidth=1.4, clip_on=False)
        if len(recall) == 1:
            axes.plot(100 * recall, 100 * precision, "o", color=colour, markersize=3, clip_on=False)
        axes.set_ylim(0, 100)

    return panels(list(curves.precision), width, draw, "Recall (%)", "Precision (%)")


def _sizes(curves: Curves, width: float) -> Figure:
    colour = paints(1)[0].colour
    sizes = list(dict.fromkeys(one.size for one in sorted(curves.sizes, key=lambda one: _by_size(one.size))))
    short = {size: _short(size) for size in sizes}
    names = list(dict.fromkeys(one.finding for one in curves.sizes))

    def draw(axes: Axes, name: str) -> None:
        for one in curves.sizes:
            if one.finding == name:
                x = sizes.index(one.size)
                if one.n >= _FEWEST:
                    axes.plot([x, x], [100 * one.low, 100 * one.high], color=colour, linewidth=1.4)
                axes.plot(x, 100 * one.sensitivity, "o", color=colour, markersize=4, clip_on=False)
                told = "" if name == MACRO else str(one.n)
                axes.annotate(
                    told, (x, 100 * one.sensitivity), (5, 0), textcoords="offset points", fontsize=6, color=INK,
                    va="center",
                )  # fmt: skip
        axes.set_ylim(0, 100)

    def scale(axes: Axes) -> None:
        axes.set_xlim(-0.5, len(sizes) - 0.3)
        axes.set_xticks(range(len(sizes)), [short[size] for size in sizes], fontsize=6)

    return panels(names, width, draw, "Box of the lesion, share of the image", "Lesions found (%)", scale=scale)


def _short(size: str) -> str:
    """Such as "< 2 %", "2–10 %" and "≥ 10 %"."""
    least = "≥ " if size.endswith(" or more") else ""
    return least + size.removesuffix(" or more").removesuffix(" of the image").replace("below ", "< ").replace(
        " to ", "–"
    )


def _by_size(size: str) -> tuple[int, str]:
    return (0 if size.startswith("below") else 2 if size.endswith("or more") else 1, size)
