"""The curves that tuned thresholds and gates come from, a panel per finding (paper 002, Extended Data Figs. 1a, 4)."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.arguments import ArgumentError
from reveal_bench.metrics import METRICS
from reveal_bench.reports.panels import panels
from reveal_bench.reports.style import INK, NBSP, Illustration, check_extra, paints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "figure_of", "read_curves"]

_COLUMNS = ("finding", "threshold", "metric", "value", "low", "high", "n_cases", "is_best")


@dataclass(frozen=True)
class Curve:
    """A metric of a finding at each threshold, both from 0 to 1, with 95 % intervals, and the threshold chosen."""

    metric: str
    thresholds: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    best: float
    n_cases: int


def read_curves(path: Path) -> dict[str, Curve]:
    """Finding -> its curve, of a file that ``reveal-bench saliency`` writes with a threshold or gate that is tuned.

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
            tried, *figures = (
                [float(row[name] or "nan") for row in own] for name in ("threshold", "value", "low", "high")
            )
            values, lows, highs = figures
            curves[finding] = Curve(own[0]["metric"], tried, values, lows, highs, best, int(own[0]["n_cases"]))
        except (ValueError, StopIteration):
            rule = "must have numbers, and one best threshold per finding"
            raise ArgumentError("tuning", rule, f"others for {finding!r} in {path.name}") from None
    return curves


def figure_of(curves: Mapping[str, Curve], name: str, words: str, axis: str) -> Illustration:
    """The metric over what was tried, with its 95 % interval; a cross at what was chosen.

    Parameters
    ----------
    name : of the file
    words : what was tuned, as in "thresholds"
    axis : what the axis below measures

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    metric = METRICS[next(iter(curves.values())).metric]
    return Illustration(
        name,
        words.capitalize(),
        f"{metric.title} with 95 % intervals on the split that {words} were tuned on; a cross marks what was chosen.",
        f"Per finding, the {metric.in_words} over {words} that were tried, with the best marked.",
        partial(_draw, curves, axis, f"{metric.title} (%)"),
    )


def _draw(curves: Mapping[str, Curve], x: str, y: str, width: float) -> Figure:
    drawn = [value for one in curves.values() for value in (*one.values, *one.highs) if not math.isnan(value)]
    top = 105 * max(drawn, default=1.0)

    def draw(axes: Axes, curve: Curve) -> None:
        tried, values, lows, highs = (
            [100 * number for number in numbers]
            for numbers in (curve.thresholds, curve.values, curve.lows, curve.highs)
        )
        paint = paints(1)[0].colour
        axes.fill_between(tried, lows, highs, color=paint, alpha=0.2, linewidth=0)
        axes.plot(tried, values, color=paint, linewidth=1.4)
        axes.plot(100 * curve.best, values[curve.thresholds.index(curve.best)], "X", color=INK, markersize=6,
                  clip_on=False)  # fmt: skip
        axes.set_ylim(0, top)

    titles = {f"{name} (n{NBSP}={NBSP}{curve.n_cases})": curve for name, curve in curves.items()}
    return panels(list(titles), width, lambda axes, title: draw(axes, titles[title]), x, y)
