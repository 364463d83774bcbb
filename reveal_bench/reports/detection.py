"""Figures of a detector: FROC curves with their bands, precision against recall, sensitivity by size of lesions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.scored import Curve, Curves
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.reports.figures import panels
from reveal_bench.reports.style import DASHED, INK, Illustration, Paint, check_extra, paints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEAST, _MOST = 1 / 8, 8.0  # false alarms per image between which FROC is drawn, as LUNA16 does, if few are made
_FEWEST = 5  # lesions with an interval


def figures_of(systems: Mapping[str, Curves]) -> list[Illustration]:
    """FROC, precision and recall, and sensitivity by size of one system or several, by name.

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
            "Share of lesions found against false alarms of the finding per image, over all thresholds; bands are 95 % "
            "intervals, at 1/8 to 8. Dashed: no threshold gives more false alarms.",
            "Per finding, the share of lesions found over false alarms per image.",
            lambda width: _froc(systems, width),
        ),
        Illustration(
            "precision_recall",
            "Precision and recall",
            "Precision against recall of hits by an IoU of 0.5 or more: after every hit by falling score (thin), and "
            "the best at that recall or a higher one (thick), whose mean is AP. The macro is the mean over findings.",
            "Per finding, the precision over the recall.",
            lambda width: _precision(systems, width),
        ),
    ]
    if any(curves.sizes for curves in systems.values()):
        drawn.append(
            Illustration(
                "sizes",
                "Sensitivity by size of lesions",
                "Share of lesions found at the threshold fixed beforehand, by the share of the image that their box "
                "covers, with 95 % intervals where there are five or more, hollow else; numbers are lesions.",
                "Per finding, the share of lesions found, by size.",
                lambda width: _sizes(systems, width),
            )
        )
    return drawn


def _looks(systems: Mapping[str, Curves]) -> list[tuple[str, Paint]]:
    return list(zip(systems, paints(len(systems)), strict=True))


def _macro_froc(curves: Curves) -> Curve:
    """The mean over findings at every number of false alarms."""
    alarms = np.unique(np.concatenate([x for x, _ in curves.froc.values()]))
    return alarms, np.mean([np.interp(alarms, *curve) for curve in curves.froc.values()], axis=0)


def _least_alarms(systems: Mapping[str, Curves]) -> float:
    """Where the axis begins: at 1/8, or three octaves below the end of most curves if that is lower."""
    last = np.median([x[-1] for curves in systems.values() for x, _ in curves.froc.values()])
    return float(np.clip(2.0 ** np.floor(np.log2(max(last, 2.0**-10))) / 8, 2.0**-10, _LEAST))


def _froc(systems: Mapping[str, Curves], width: float) -> Figure:
    looks, least = _looks(systems), _least_alarms(systems)

    def draw(axes: Axes, name: str) -> None:
        for system, paint in looks:
            curves = systems[system]
            bands = [one for one in curves.bands if one.finding == name]
            rates = [one.false_alarms for one in bands]
            low, high = [100 * one.sensitivity.low for one in bands], [100 * one.sensitivity.high for one in bands]
            axes.fill_between(rates, low, high, color=paint.colour, alpha=0.2, linewidth=0)
            alarms, shares = curves.froc[name] if name in curves.froc else _macro_froc(curves)
            last = float(alarms[-1])
            # Thresholds are joined by straight lines, which are curves where the axis is logarithmic
            between = np.geomspace(least, max(least, last), 100)
            x, y = np.append(alarms, between), np.append(shares, np.interp(between, alarms, shares))
            order = np.lexsort((y, x))[np.sum(x < least) : np.sum(x <= last)]
            axes.plot(x[order], 100 * y[order], color=paint.colour, linewidth=1.4)
            rest = [100 * np.interp(last, alarms, shares), 100 * shares[-1]]
            axes.plot([max(last, least), _MOST], rest, color=paint.colour, linewidth=1.2, linestyle=DASHED)
        axes.set_ylim(0, 100)

    def scale(axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xlim(least, _MOST)
        first, last = round(np.log2(least)), round(np.log2(_MOST))
        octaves = range(last, first - 1, -math.ceil((last - first) / 3))
        axes.set_xticks([2.0**k for k in octaves], [f"{2**k:g}" if k >= 0 else f"1/{2**-k:g}" for k in octaves])
        axes.minorticks_off()

    names = list(dict.fromkeys(one.finding for curves in systems.values() for one in curves.bands))
    return panels(
        names, width, draw, "False alarms of the finding per image; dashed: no threshold gives more",
        "Lesions found (%)", scale=scale, series=looks,
    )  # fmt: skip


_RECALLS = np.linspace(0, 1, 101)


def _best_precision(recall: FloatArray, precision: FloatArray) -> FloatArray:
    """The best at each of COCO's recalls or a higher one; 0 beyond the last."""
    best = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return best[np.searchsorted(recall, _RECALLS)]


def _precision(systems: Mapping[str, Curves], width: float) -> Figure:
    looks = _looks(systems)

    def draw(axes: Axes, name: str) -> None:
        for system, paint in looks:
            curves = systems[system]
            if name in curves.precision:
                recall, precision = curves.precision[name]
                axes.plot(100 * recall, 100 * precision, color=paint.colour, linewidth=0.6, alpha=0.7, clip_on=False)
                best = np.maximum.accumulate(precision[::-1])[::-1]
                x, y = np.append(0, recall), np.append(best[:1], best)
            else:
                x, y = _RECALLS, np.mean([_best_precision(*curve) for curve in curves.precision.values()], axis=0)
            if len(y) == len(x):  # shorter where no threshold gives a hit
                axes.step(100 * x, 100 * y, color=paint.colour, linewidth=1.4, clip_on=False)
        is_high = any((y[x > 50] > 60).any() for x, y in (np.asarray(line.get_data()) for line in axes.lines))
        for i, (system, paint) in enumerate(looks):
            if name in systems[system].average_precision:
                told = f"AP {100 * systems[system].average_precision[name]:.1f}"
                place: dict[str, Any] = {"ha": "right", "va": "top", "transform": axes.transAxes}
                height = (0.35 if is_high else 0.95) - 0.13 * i  # where the curves leave room
                axes.text(0.97, height, told, color=paint.colour, fontsize=7, **place)
        axes.set_ylim(0, 100)

    names = [MACRO, *dict.fromkeys(name for curves in systems.values() for name in curves.precision)]
    return panels(
        names, width, draw,
        "Recall (%) of hits by an IoU of 0.5; thick: best precision from there on, thin: as measured", "Precision (%)",
        series=looks,
    )  # fmt: skip


def _sizes(systems: Mapping[str, Curves], width: float) -> Figure:
    looks = _looks(systems)
    found = [one for curves in systems.values() for one in curves.sizes]
    sizes = list(dict.fromkeys(one.size for one in sorted(found, key=lambda one: _by_size(one.size))))
    names = list(dict.fromkeys(one.finding for one in found))

    def draw(axes: Axes, name: str) -> None:
        for i, (system, paint) in enumerate(looks):
            for one in (one for one in systems[system].sizes if one.finding == name):
                x = sizes.index(one.size) + 0.18 * (i - (len(looks) - 1) / 2)
                own, is_few = one.sensitivity.times(100), one.n < _FEWEST
                if not is_few:
                    axes.plot([x, x], [own.low, own.high], color=paint.colour, linewidth=1.4)
                face = "white" if is_few else paint.colour
                axes.plot(x, own.value, "o", color=paint.colour, markerfacecolor=face, markersize=4, clip_on=False)
                if i == len(looks) - 1:
                    axes.annotate(
                        str(one.n), (x, own.value), (5, 0), textcoords="offset points", fontsize=6, color=INK,
                        va="center",
                    )  # fmt: skip
        axes.set_ylim(0, 100)

    def scale(axes: Axes) -> None:
        axes.set_xlim(-0.5, len(sizes) - 0.3)
        axes.set_xticks(range(len(sizes)), [_short(size) for size in sizes], fontsize=6)

    threshold = next(iter(systems.values())).threshold
    at = "each finding's threshold" if threshold != threshold else f"a score of {threshold:g} or more"
    return panels(
        names, width, draw,
        f"Box of the lesion, share of the image; numbers: lesions; hollow: fewer than {_FEWEST}, no interval",
        f"Lesions found at {at} (%)", scale=scale, series=looks,
    )  # fmt: skip


def _short(size: str) -> str:
    """Such as "< 2 %", "2–10 %" and "≥ 10 %"."""
    least = "≥ " if size.endswith(" or more") else ""
    return least + size.removesuffix(" or more").removesuffix(" of the image").replace("below ", "< ").replace(
        " to ", "–"
    )


def _by_size(size: str) -> tuple[int, str]:
    return (0 if size.startswith("below") else 2 if size.endswith("or more") else 1, size)
