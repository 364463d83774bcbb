"""Figures that compare a model with benchmark readers (paper 002): relative decreases, reference shapes, examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.analyses.relative_decrease import excludes_zero, in_printed_order
from reveal_bench.analyses.shapes import FEATURES, MaskShape
from reveal_bench.dataset.drawings import FindingDrawing
from reveal_bench.evaluation.compare import Comparison
from reveal_bench.kinds.folder import split_shards
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.reports.figures import ForestRow, forest
from reveal_bench.reports.films import Example, ExampleImage, legend_of, render_image
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
from reveal_bench.words import NBSP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = ("interval excludes 0", "interval contains 0")


def figures_of_decreases(comparisons: Sequence[Comparison], model: str, reference: str) -> list[Illustration]:
    """Return one figure per metric with the relative decreases, significant and large ones first.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    figures = []
    for metric in dict.fromkeys(one.metric for one in comparisons):
        rows = [_row(one) for one in in_printed_order(comparisons) if one.metric == metric]
        has_interval = any(own[0][1].has_interval for _, own in rows)
        kinds = _KINDS[: 1 + max(own[0][0] for _, own in rows)] if has_interval else ("no interval",)
        title = METRICS[metric].title
        is_adjusted = any(not math.isnan(one.p_adjusted) for one in comparisons if one.metric == metric)
        adjusted = ", those of findings adjusted for all findings" if is_adjusted else ""
        axis = f"Relative decrease of the {METRICS[metric].in_words} (%)"
        figures.append(
            Illustration(
                f"decrease_{metric}",
                f"{title}: decrease from {reference} to {model}",
                f"Relative decrease of {model} from {reference} with 95% intervals{adjusted}; "
                f"below 0, {model} is better.",
                f"Per finding, the relative decrease of {METRICS[metric].in_words} from {reference} to {model}.",
                partial(forest, rows, axis=axis, scale=100, kinds=kinds, rule=(0.0, "no difference")),
            )
        )
    return figures


def figures_of_both(
    comparisons: Sequence[Comparison], estimates: Mapping[str, Sequence[Estimate]]
) -> list[Illustration]:
    """Return one figure per metric with all systems' scores and intervals; findings are ordered by relative decrease.

    Parameters
    ----------
    comparisons : decreases
    estimates : name of a system -> its scores; the AUROC of the last system is shown beside the findings, if it has one
    """
    check_extra("matplotlib")
    kinds = list(estimates)
    names = " and ".join([", ".join(kinds[:-1]), kinds[-1]])
    aurocs = {e.finding: e.value for e in estimates[kinds[-1]] if e.metric == "auroc" and not math.isnan(e.value)}
    by_key = {(k, e.metric, e.finding): e for k, name in enumerate(kinds) for e in estimates[name]}
    figures = []
    for metric in dict.fromkeys(one.metric for one in comparisons):
        rows = []
        for one in in_printed_order(comparisons):
            own = [by_key[k, metric, one.finding] for k in range(len(kinds)) if one.metric == metric]
            if own:
                beside = f" (AUROC{NBSP}{aurocs[one.finding]:.2f})" if one.finding in aurocs else ""
                rows.append((_name(one) + beside, list(enumerate(own))))
        title = METRICS[metric].title
        figures.append(
            Illustration(
                f"both_{metric}",
                f"{title} of {names}",
                "Scores of each system with 95% intervals; findings in the order of their relative decrease."
                + f" The AUROC is that of {kinds[-1]}." * bool(aurocs),
                f"Per finding, the {METRICS[metric].in_words} of {names}.",
                partial(forest, rows, axis=f"{title} (%)", scale=100, kinds=kinds, ends=(0.0, 100.0)),
            )
        )
    return figures


def _name(one: Comparison) -> str:
    return "Mean over findings" if one.finding == MACRO else one.finding


def _row(one: Comparison) -> ForestRow:
    figures = "" if math.isnan(one.estimate.value) else f" ({100 * one.b:.1f}{NBSP}→{NBSP}{100 * one.a:.1f})"
    kind = 1 if one.adjusted.has_interval and not excludes_zero(one.adjusted) else 0
    return _name(one) + figures, [(kind, one.adjusted)]


_BESIDE_AUROC = ("auroc", "point_hit", "mask_iou")


def figure_beside_auroc(estimates: Sequence[Estimate], system: str) -> Illustration:
    """Return a figure of AUROC, hit rate and true-positive IoU per finding, highest AUROC first.

    Parameters
    ----------
    estimates : estimates of the three metrics
    system : name of the system

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    figures = {(e.metric, e.finding): e for e in estimates if e.finding != MACRO and not math.isnan(e.value)}
    aurocs = [e for (metric, _), e in figures.items() if metric == "auroc"]
    rows = []
    for auroc in sorted(aurocs, key=lambda e: (-e.value, e.finding)):
        own = [(kind, figures.get((metric, auroc.finding))) for kind, metric in enumerate(_BESIDE_AUROC)]
        hits = figures.get(("point_hit", auroc.finding))
        n = f" (n{NBSP}={NBSP}{hits.n})" if hits is not None else ""
        points = [(kind, e) for kind, e in own if e is not None]
        rows.append((auroc.finding + n, points))
    kinds = [METRICS[metric].title for metric in _BESIDE_AUROC]
    return Illustration(
        "auroc",
        "Recognizing a finding and locating it",
        f"AUROC of the scores of {system}, hit rate and IoU of its maps, with 95% intervals. Findings are in the "
        "order of decreasing AUROC, with their numbers of positive images.",
        "Per finding, AUROC, hit rate and IoU.",
        partial(forest, rows, axis="AUROC, hit rate and IoU (%)", scale=100, kinds=kinds, ends=(0.0, 100.0)),
    )


_TITLES = {
    "polygons": "Number of instances",
    "size": "Size (% of the image)",
    "elongation": "Elongation",
    "irrectangularity": "Irrectangularity",
}
_ROW, _GAP = 5.0, 18.0


def figure_of_shapes(shapes: Sequence[MaskShape], findings: Sequence[str]) -> Illustration:
    """Return box plots of reference shapes per finding: quartiles, and whiskers to the 5th and 95th percentiles.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    names = [name for name in findings if any(shape.finding == name for shape in shapes)]
    values = {
        feature: [[float(getattr(s, feature)) for s in shapes if s.finding == name] for name in names]
        for feature in FEATURES
    }
    return Illustration(
        "shapes",
        "Shapes of the references",
        "Median, quartiles and 5th to 95th percentile of four features of the reference masks, per finding.",
        "Per finding, the distribution of the number of instances, size, elongation and irrectangularity.",
        partial(_draw_shapes, names, values),
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
            own = [[scale * value for value in features if value == value] for features in values[feature]]
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


Pair = tuple[str, str]

_MOST_BEHIND, _MOST_AHEAD = 3, 2


@dataclass(frozen=True)
class ExampleCase:
    """An image and a finding, with the IoUs of the model and of the readers."""

    image_id: str
    finding: str
    model: float
    human: float


def choose_cases(ious: Mapping[Pair, tuple[float, float]]) -> list[ExampleCase]:
    """Return the cases in which the model trails readers most, then those in which it leads; one case per finding each.

    Parameters
    ----------
    ious : (image_id, finding) -> IoU of the model and of the readers; NaN is ignored
    """
    cases = [ExampleCase(*pair, *own) for pair, own in ious.items() if own[0] == own[0] and own[1] == own[1]]
    ordered = sorted(cases, key=lambda one: (one.model - one.human, one.image_id, one.finding))
    behind = _each_another(ordered, _MOST_BEHIND, ahead=False)
    return behind + _each_another(ordered[::-1], _MOST_AHEAD, ahead=True)


def _each_another(cases: Sequence[ExampleCase], most: int, *, ahead: bool) -> list[ExampleCase]:
    by_finding: dict[str, ExampleCase] = {}
    for one in cases:
        if (one.model > one.human) == ahead and one.model != one.human and len(by_finding) < most:
            by_finding.setdefault(one.finding, one)
    return list(by_finding.values())


def films_of(
    cases: Sequence[ExampleCase],
    folder: Path,
    split: str,
    records: Sequence[LocalizationRecord],
    systems: Mapping[str, Sequence[LocalizationPrediction]],
) -> Custom:
    """Return radiographs of the cases with drawings; `systems` maps names of the model and readers to predictions."""
    by_image = {record.image_id: record for record in records}
    answers = [(name, {(p.image_id, p.finding): p for p in predictions}) for name, predictions in systems.items()]
    pictures = _pictures(folder, split, [one.image_id for one in cases])
    examples = []
    for one in cases:
        record, pair = by_image[one.image_id], (one.image_id, one.finding)
        reference = record.reference(one.finding)
        drawings = [
            FindingDrawing(
                1, one.finding, "reference", True, rles=[reference.rle] if reference and reference.rle else []
            )
        ]
        for number, (name, predictions) in enumerate(answers, start=2):
            answer = predictions.get(pair)
            if answer is not None:
                masks = [] if answer.mask is None else [answer.mask]
                drawings.append(
                    FindingDrawing(number, one.finding, name, False, rles=masks, points=list(answer.points))
                )
        film = render_image(pictures.get(one.image_id), record.width, record.height, drawings)
        names = list(systems)
        caption = f"{one.image_id}: IoU {100 * one.model:.0f}% of {names[0]}, {100 * one.human:.0f}% of {names[1]}"
        spoken = f"Radiograph with {one.finding} as drawn by the reference, {names[0]} and {names[1]}"
        examples.append(Example([one.finding], [ExampleImage(film, caption, spoken, legend_of(drawings))]))
    return Custom("examples", {"rows": examples, "has_layer": bool(examples)})


def _pictures(folder: Path, split: str, image_ids: Sequence[str]) -> dict[str, bytes]:
    """Return image_id -> encoded image; images whose pixels are withheld are omitted."""
    import pyarrow.parquet as pq

    images = {}
    for shard in split_shards(folder, "localization", split):
        table = pq.read_table(shard, columns=["image_id", "image"], filters=[("image_id", "in", list(image_ids))])
        for row in table.to_pylist():
            if row["image"] is not None and row["image"]["bytes"] is not None:
                images[row["image_id"]] = row["image"]["bytes"]
    return images
