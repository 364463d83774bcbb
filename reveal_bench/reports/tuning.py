"""The curves that tuned thresholds come from, a panel per finding (paper 002, Extended Data Fig. 1a)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.arguments import ArgumentError
from reveal_bench.reports.panels import panels
from reveal_bench.reports.style import INK, NBSP, Illustration, check_extra, paints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "figure_of", "read_curves"]

_COLUMNS = ("finding", "threshold", "mean_iou", "n_cases", "is_best")


@dataclass(frozen=True)
class Curve:
    """Mean IoU of a finding at each threshold, both from 0 to 1, and the threshold that was chosen."""

    thresholds: Sequence[float]
    values: Sequence[float]
    best: float
    n_cases: int


def read_curves(path: Path) -> dict[str, Curve]:
    """Finding -> its curve, of the file that ``reveal-bench saliency --threshold tuned`` writes.

    Raises
    ------
    ArgumentError
        If the file has other columns, a finding has no best threshold, or a field is not a number.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != _COLUMNS:
            got = ", ".join(reader.fieldnames or ("none",))
            raise ArgumentError("tuning", f"must have the columns {', '.join(_COLUMNS)}", f"{got} in {path.name}")
        rows = list(reader)
    curves = {}
    for finding in dict.fromkeys(row["finding"] for row in rows):
        own = [row for row in rows if row["finding"] == finding]
        try:
            best = next(float(row["threshold"]) for row in own if row["is_best"] == "1")
            values = [float(row["mean_iou"] or "nan") for row in own]
            curves[finding] = Curve([float(row["threshold"]) for row in own], values, best, int(own[0]["n_cases"]))
        except (ValueError, StopIteration):
            rule = "must have numbers, and one best threshold per finding"
            raise ArgumentError("tuning", rule, f"others for {finding!r} in {path.name}") from None
    return curves


def figure_of(curves: Mapping[str, Curve]) -> Illustration:
    """Mean IoU over the threshold; a cross at the one that was chosen.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    highest = max((value for one in curves.values() for value in one.values if value == value), default=1.0)
    return Illustration(
        "thresholds",
        "Thresholds",
        "Mean IoU of true positives on the split that thresholds were tuned on; a cross marks the one that was chosen.",
        "Per finding, the mean IoU over the threshold of the heat map, with the best threshold marked.",
        partial(_draw, curves, highest),
    )


def _draw(curves: Mapping[str, Curve], highest: float, width: float) -> Figure:
    def draw(axes: Axes, name: str) -> None:
        curve = curves[name]
        at = list(curve.thresholds).index(curve.best)
        axes.plot(
            [100 * x for x in curve.thresholds],
            [100 * y for y in curve.values],
            color=paints(1)[0].colour,
            linewidth=1.4,
        )
        axes.plot(100 * curve.best, 100 * curve.values[at], "X", color=INK, markersize=6, clip_on=False)
        axes.set_ylim(0, 110 * highest)

    titles = {name: f"{name} (n{NBSP}={NBSP}{curve.n_cases})" for name, curve in curves.items()}
    named = {title: name for name, title in titles.items()}
    return panels(
        list(named), width, lambda axes, title: draw(axes, named[title]), "Threshold (% of the map's range)", "mIoU (%)"
    )
