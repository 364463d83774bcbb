"""A model beside the benchmark readers (paper 002): decreases, shapes of references, tuned curves, example films."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.arguments import ArgumentError
from reveal_bench.dataset.drawings import FindingDrawing
from reveal_bench.evaluation.compare import Comparison
from reveal_bench.evaluation.relative_decrease import excludes_zero, in_printed_order
from reveal_bench.evaluation.shapes import FEATURES, Shape
from reveal_bench.kinds.folder import split_shards
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.metrics import METRICS, Metric
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.reports.figures import Point, dots, in_percent, panels
from reveal_bench.reports.films import Example, Shown, legend_of, make_film
from reveal_bench.reports.page import Custom
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
from reveal_bench.tables import read_table
from reveal_bench.words import NBSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KINDS = ("interval leaves out 0", "interval holds 0", "too few cases for an interval")


def figures_of_decreases(comparisons: Sequence[Comparison], model: str, reference: str) -> list[Illustration]:
    """A figure per metric: decreases that are told apart first, then by size; figures of both beside the names.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    drawn = []
    for metric in dict.fromkeys(one.metric for one in comparisons):
        rows = [_row(one) for one in in_printed_order(comparisons) if one.metric == metric]
        kinds = _KINDS[: 1 + max(points[0].kind for _, points in rows)]
        title = METRICS[metric].title
        axis = f"Relative decrease of the {METRICS[metric].in_words} (%)"
        drawn.append(
            Illustration(
                f"decrease_{metric}",
                f"{title}: decrease from {reference} to {model}",
                f"Relative decrease of {model} from {reference} with 95 % intervals; below 0, {model} is better.",
                f"Per finding, the relative decrease of {METRICS[metric].in_words} from {reference} to {model}.",
                partial(dots, rows, axis=axis, kinds=kinds, rule=(0.0, "no difference")),
            )
        )
    return drawn


def figures_of_both(
    comparisons: Sequence[Comparison], estimates: Mapping[str, Sequence[Estimate]]
) -> list[Illustration]:
    """A figure per metric of both systems with their own intervals, in the order of their decreases.

    Parameters
    ----------
    comparisons : decreases
    estimates : name of a system -> its figures; the AUROC of the last stands beside the findings, where it has one
    """
    check_extra("matplotlib")
    kinds = list(estimates)
    aurocs = {e.finding: e.value for e in estimates[kinds[-1]] if e.metric == "auroc" and not math.isnan(e.value)}
    figures = {(k, e.metric, e.finding): e for k, name in enumerate(kinds) for e in estimates[name]}
    drawn = []
    for metric in dict.fromkeys(one.metric for one in comparisons):
        rows = []
        for one in in_printed_order(comparisons):
            own = [figures[k, metric, one.finding] for k in range(len(kinds)) if one.metric == metric]
            if own:
                beside = f" (AUROC{NBSP}{aurocs[one.finding]:.2f})" if one.finding in aurocs else ""
                rows.append((_name(one) + beside, [in_percent(e, k) for k, e in enumerate(own)]))
        title = METRICS[metric].title
        drawn.append(
            Illustration(
                f"both_{metric}",
                f"{title} of {' and '.join(kinds)}",
                "Figures of both systems with 95 % intervals; findings in the order of their relative decrease.",
                f"Per finding, the {METRICS[metric].in_words} of {' and '.join(kinds)}.",
                partial(dots, rows, axis=f"{title} (%)", kinds=kinds, ends=(0.0, 100.0)),
            )
        )
    return drawn


def _name(one: Comparison) -> str:
    return "Mean over findings" if one.finding == MACRO else one.finding


def _row(one: Comparison) -> tuple[str, list[Point]]:
    figures = "" if math.isnan(one.estimate.value) else f" ({100 * one.b:.1f}{NBSP}→{NBSP}{100 * one.a:.1f})"
    kind = 0 if excludes_zero(one) else 1 if one.estimate.has_interval else 2
    return _name(one) + figures, [in_percent(one.estimate, kind)]


_TITLES = {
    "polygons": "Number of instances",
    "size": "Size (% of the image)",
    "elongation": "Elongation",
    "irrectangularity": "Irrectangularity",
}
_ROW, _GAP = 5.0, 18.0


def figure_of_shapes(shapes: Sequence[Shape], findings: Sequence[str]) -> Illustration:
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
        partial(_draw_shapes, drawn, values),
    )


def _draw_shapes(names: Sequence[str], values: dict[str, list[list[float]]], width: float) -> Figure:
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
                boxprops={"facecolor": paints(3)[2].colour, "edgecolor": INK, "linewidth": 0.6},
                whiskerprops={"color": INK, "linewidth": 0.8}, capprops={"color": INK, "linewidth": 0.8},
            )  # fmt: skip
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), names if column == 0 else [""] * len(names))
            axes.set_xlim(left=0 if feature != "elongation" else 1)
            axes.locator_params(axis="x", integer=feature == "polygons")
            axes.set_title(_TITLES[feature], fontsize=8, loc="left", pad=4)
            plain_axes(axes, across="x")
            axes.tick_params(axis="y", length=0)
    return figure


_COLUMNS = ("finding", "threshold", "metric", "value", "low", "high", "n_cases", "is_best")


@dataclass(frozen=True)
class Curve:
    """A metric of a finding at each threshold, both from 0 to 1, with 95 % intervals; the threshold chosen, if any."""

    metric: str
    thresholds: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    best: float | None
    n_cases: int


def read_curves(path: Path) -> dict[str, Curve]:
    """Finding -> its curve, of a file that ``reveal-bench saliency`` writes with a threshold or gate that is tuned.

    Raises
    ------
    TableError
        If the file has other columns.
    ArgumentError
        If a finding has several best thresholds, or a field is not a number.
    """
    rows = read_table(path, columns=_COLUMNS).rows
    curves = {}
    for finding in dict.fromkeys(row["finding"] for row in rows):
        own = [row for row in rows if row["finding"] == finding]
        try:
            chosen = [float(row["threshold"]) for row in own if row["is_best"] == "1"]
            if len(chosen) > 1:
                raise ValueError(chosen)
            tried, *figures = (
                [float(row[name] or "nan") for row in own] for name in ("threshold", "value", "low", "high")
            )
            values, lows, highs = figures
            curves[finding] = Curve(
                own[0]["metric"], tried, values, lows, highs, next(iter(chosen), None), int(own[0]["n_cases"])
            )
        except ValueError:
            rule = "must have numbers, and one best threshold per finding at most"
            raise ArgumentError("tuning", rule, f"others for {finding!r} in {path.name}") from None
    return curves


def figure_of_curves(curves: Mapping[str, Curve], name: str, words: str, axis: str) -> Illustration:
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
        partial(_draw_curves, curves, axis, metric),
    )


def _draw_curves(curves: Mapping[str, Curve], x: str, metric: Metric, width: float) -> Figure:
    is_share = metric.high < math.inf
    factor, y = (100, f"{metric.title} (%)") if is_share else (1, f"{metric.title} (pixels, or mm)")
    drawn = [value for one in curves.values() for value in (*one.values, *one.highs) if not math.isnan(value)]
    top = 1.05 * factor * max(drawn, default=1.0)

    def draw(axes: Axes, curve: Curve) -> None:
        tried = [100 * number for number in curve.thresholds]
        values, lows, highs = ([factor * one for one in own] for own in (curve.values, curve.lows, curve.highs))
        paint = paints(1)[0].colour
        axes.fill_between(tried, lows, highs, color=paint, alpha=0.2, linewidth=0)
        axes.plot(tried, values, color=paint, linewidth=1.4)
        if curve.best is not None:
            best = values[curve.thresholds.index(curve.best)]
            axes.plot(100 * curve.best, best, "X", color=INK, markersize=6, clip_on=False)
        axes.set_ylim(0, top)

    titles = {f"{name} (n{NBSP}={NBSP}{curve.n_cases})": curve for name, curve in curves.items()}
    return panels(list(titles), width, lambda axes, title: draw(axes, titles[title]), x, y)


Pair = tuple[str, str]

_MOST_BEHIND, _MOST_AHEAD = 3, 2


@dataclass(frozen=True)
class ExampleCase:
    """An image and a finding with the IoU of both systems."""

    image_id: str
    finding: str
    model: float
    human: float


def choose_cases(ious: Mapping[Pair, tuple[float, float]]) -> list[ExampleCase]:
    """The cases in which the model is furthest behind, each of another finding, then those in which it is ahead.

    Parameters
    ----------
    ious : (image_id, finding) -> IoU of the model and of the readers; NaN is left out
    """
    cases = [ExampleCase(*pair, *own) for pair, own in ious.items() if own[0] == own[0] and own[1] == own[1]]
    ordered = sorted(cases, key=lambda one: (one.model - one.human, one.image_id, one.finding))
    behind = _each_another(ordered, _MOST_BEHIND, ahead=False)
    return behind + _each_another(ordered[::-1], _MOST_AHEAD, ahead=True)


def _each_another(cases: Sequence[ExampleCase], most: int, *, ahead: bool) -> list[ExampleCase]:
    found: dict[str, ExampleCase] = {}
    for one in cases:
        if (one.model > one.human) == ahead and one.model != one.human and len(found) < most:
            found.setdefault(one.finding, one)
    return list(found.values())


def films_of(
    cases: Sequence[ExampleCase],
    folder: Path,
    split: str,
    records: Sequence[LocalizationRecord],
    systems: Mapping[str, Sequence[LocalizationPrediction]],
) -> Custom:
    """The films of the cases; `systems` are the predictions of model and readers by name."""
    by_image = {record.image_id: record for record in records}
    answers = [(name, {(p.image_id, p.finding): p for p in given}) for name, given in systems.items()]
    pictures = _pictures(folder, split, [one.image_id for one in cases])
    shown = []
    for one in cases:
        record, pair = by_image[one.image_id], (one.image_id, one.finding)
        reference = record.reference(one.finding)
        drawn = [
            FindingDrawing(
                1, one.finding, "reference", True, rles=[reference.rle] if reference and reference.rle else []
            )
        ]
        for number, (name, given) in enumerate(answers, start=2):
            answer = given.get(pair)
            if answer is not None:
                masks = [] if answer.mask is None else [answer.mask]
                drawn.append(FindingDrawing(number, one.finding, name, False, rles=masks, points=list(answer.points)))
        film = make_film(pictures.get(one.image_id), record.width, record.height, drawn)
        names = list(systems)
        caption = f"IoU {100 * one.model:.0f} % of {names[0]}, {100 * one.human:.0f} % of {names[1]}"
        spoken = f"Radiograph with {one.finding} as drawn by the reference, {names[0]} and {names[1]}"
        shown.append(Example([one.finding], [Shown(film, caption, spoken, legend_of(drawn))]))
    return Custom("examples", {"rows": shown, "has_layer": bool(shown)})


def _pictures(folder: Path, split: str, image_ids: Sequence[str]) -> dict[str, bytes]:
    """image_id -> bytes of its picture; those whose pixels are withheld are not there."""
    import pyarrow.parquet as pq

    found = {}
    for shard in split_shards(folder, "localization", split):
        table = pq.read_table(shard, columns=["image_id", "image"], filters=[("image_id", "in", list(image_ids))])
        for row in table.to_pylist():
            if row["image"] is not None and row["image"]["bytes"] is not None:
                found[row["image_id"]] = row["image"]["bytes"]
    return found
