"""Plot reliability, net benefit, FROC, ROC, precision-recall and threshold-tuning curves, one panel per finding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.analyses.confidence import POOLED, CalibrationResult, NetBenefit
from reveal_bench.analyses.roc import LabelCurves, ReaderPoint
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.scored import Curve, Curves
from reveal_bench.metrics import METRICS, Metric
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.reports.figures import (
    NO_INTERVAL,
    by_cases,
    cases_note,
    dashed_line,
    line_handle,
    mark_handle,
    panels,
    patch,
)
from reveal_bench.reports.style import (
    DASHED,
    INK,
    SOFT,
    Illustration,
    Paint,
    check_extra,
    paints,
)
from reveal_bench.tables import read_table
from reveal_bench.words import percent_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAND = "#8fd0c6"  # colour of 95% intervals in figures of one system


def confidence_figures(judged: CalibrationResult) -> list[Illustration]:
    """Return figures of risk against coverage, and of reliability and net benefit if defined.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    own = judged.confidences
    found = [one for one in judged.calibration if one.finding != MACRO]
    answers = dict.fromkeys(own.groups, 0) | {one.finding: one.n for one in found}
    n_cases = answers | {one.finding: one.n_events for one in found} if own.whole_split else answers
    note = cases_note(n_cases, "cases with the finding" if own.whole_split else "answers")
    figures = [
        Illustration(
            "coverage",
            "Risk and coverage",
            f"Share of wrong answers if only the most confident cases are answered. {cases_note(answers, 'answers')}",
            "Per finding, the share of wrong answers against the share of cases that are answered.",
            partial(_coverage, judged, answers),
        )
    ]
    if any(n_cases.values()):
        figures.insert(0, Illustration(
            "reliability",
            "Reliability",
            f"Rate of {own.event} against the stated probability, in bins with 95% intervals. {note}",
            f"Per finding, the rate of {own.event} in bins of the stated probability; the diagonal is perfect "
            "calibration.",
            partial(_reliability, judged, n_cases),
        ))  # fmt: skip
    if any(n_cases.values()) and judged.benefits:
        figures.append(
            Illustration(
                "net_benefit",
                "Net benefit",
                f"Net benefit of acting at or above a probability threshold. {note}",
                "Per finding, the net benefit of the system and of always acting, against the threshold.",
                partial(_benefit, judged, n_cases),
            )
        )
    return figures


def _draw_estimates(axes: Axes, places: Sequence[float], estimates: Sequence[Estimate], colour: str) -> None:
    """Draw proportions as percentages with their intervals; marks without interval are hollow."""
    for x, one in zip(places, (one.times(100) for one in estimates), strict=True):
        axes.plot([x, x], [one.low, one.high], color=colour, linewidth=1.0, clip_on=False)
        face = colour if one.has_interval else "white"
        axes.plot(x, one.value, "o", color=colour, markerfacecolor=face, markersize=3.5, clip_on=False)


def _estimate_handles(estimates: Iterable[Estimate], label: str) -> list[Any]:
    """Return the legend handles of marks with an interval, named `label`, and of hollow marks."""
    handles = {True: line_handle(label, INK, marker="o", markersize=3.5), False: mark_handle(NO_INTERVAL)}
    drawn = {one.has_interval for one in estimates if not math.isnan(one.value)}
    return [handle for has_interval, handle in handles.items() if has_interval in drawn]


def _reliability(judged: CalibrationResult, n_cases: Mapping[str, int], width: float) -> Figure:
    names = by_cases(n_cases)

    def draw(axes: Axes, name: str) -> None:
        bins = judged.bins[name]
        axes.plot([0, 100], [0, 100], color=SOFT, linewidth=0.8, linestyle=DASHED)
        _draw_estimates(axes, [100 * one.said for one in bins], [one.rate for one in bins], paints(1)[0].colour)
        axes.set_ylim(0, 100)

    rates = [one.rate for name in names for one in judged.bins[name]]
    return panels(
        names, width, draw, "Predicted probability (%)", f"Rate of {judged.confidences.event} (%)", n_cases=n_cases,
        marks=[*_estimate_handles(rates, "bin with 95% interval"), dashed_line("perfect calibration")],
    )  # fmt: skip


def _coverage(judged: CalibrationResult, answers: Mapping[str, int], width: float) -> Figure:
    names = ([POOLED] if len(judged.curves) > 2 else []) + by_cases(answers)
    colour = paints(1)[0].colour
    shown = [one for one in judged.answered if one.finding in names]
    ends = [one.risk.high if one.risk.has_interval else one.risk.value for one in shown]
    highest = max(*ends, *(max(judged.curves[name][1]) for name in names), 0.01)

    def draw(axes: Axes, name: str) -> None:
        coverage, risk = judged.curves[name]
        axes.plot(100 * coverage, 100 * risk, color=_BAND, linewidth=1.4)
        axes.axhline(100 * risk[-1], color=SOFT, linewidth=0.8, linestyle=DASHED)
        own = [one for one in shown if one.finding == name]
        _draw_estimates(axes, [100 * one.coverage for one in own], [one.risk for one in own], colour)
        axes.set_ylim(0, min(100, 105 * highest))

    marks = [
        line_handle("every coverage", _BAND),
        *_estimate_handles([one.risk for one in shown], "50 to 100% answered, with 95% interval"),
        dashed_line("all answered"),
    ]
    whole = {POOLED: sum(answers.values()), **answers}
    return panels(names, width, draw, "Cases answered (%)", "Wrong answers (%)", n_cases=whole, marks=marks)


def _benefit(judged: CalibrationResult, n_cases: Mapping[str, int], width: float) -> Figure:
    names = by_cases(n_cases)
    of_finding = {name: [row for row in judged.benefits if row.finding == name] for name in names}
    marks = [
        line_handle("system", paints(1)[0].colour),
        patch("95% interval", Paint(_BAND)),
        dashed_line("acting always"),
        line_handle("acting never", INK, linewidth=0.6),
    ]
    if not any(row.system.has_interval for rows in of_finding.values() for row in rows):
        del marks[1]
    return panels(
        names, width, partial(_draw_benefit, of_finding), "Threshold probability for acting (%)",
        "Net benefit per 100 cases", marks=marks, n_cases=n_cases,
    )  # fmt: skip


def _draw_benefit(of_finding: Mapping[str, Sequence[NetBenefit]], axes: Axes, name: str) -> None:
    rows = of_finding[name]
    places = [100 * row.threshold for row in rows]
    known = [row.system.has_interval for row in rows]
    low, high = [100 * row.system.low for row in rows], [100 * row.system.high for row in rows]
    axes.fill_between(places, low, high, where=known, color=_BAND, alpha=0.5, linewidth=0)
    axes.plot(places, [100 * row.system.value for row in rows], color=paints(1)[0].colour, linewidth=1.4)
    axes.plot(places, [100 * row.act_always for row in rows], color=SOFT, linewidth=0.8, linestyle=DASHED)
    axes.axhline(0, color=INK, linewidth=0.6)
    # always acting has an unbounded loss, so the axis only covers attainable net benefit
    best = max(max(row.system.value for row in rows), rows[0].act_always, 0.01)
    axes.set_ylim(-40 * best, 115 * best)


_LEAST, _MOST = 1 / 8, 8.0  # default range of false alarms per image on FROC axes, as in LUNA16


def detection_figures(systems: Mapping[str, Curves]) -> list[Illustration]:
    """Return figures of FROC, precision-recall and sensitivity by lesion size for named systems.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    n_cases = {
        one.finding: one.sensitivity.n for curves in systems.values() for one in curves.bands if one.finding != MACRO
    }
    if not any(n_cases.values()):
        return []
    left_out = {name: "no lesion" for curves in systems.values() for name in curves.without_lesions}
    note = cases_note(n_cases, "lesions", left_out)
    figures = [
        Illustration(
            "froc",
            "FROC",
            "Share of lesions found against false alarms for the finding per image, over all thresholds, with marks "
            f"from 1/8 to 8 false alarms. The macro is the mean over findings. {note}",
            "Per finding, the share of lesions found against false alarms per image.",
            partial(_froc, systems, n_cases),
        ),
        Illustration(
            "precision_recall",
            "Precision and recall",
            "Precision against recall; a box is a hit at an IoU of 0.5 or more. The mean of a thick line is AP; AP "
            f"values are in the order of the legend. The macro is the mean over findings. {note}",
            "Per finding, precision against recall.",
            partial(_precision, systems, n_cases),
        ),
    ]
    if any(curves.sizes for curves in systems.values()):
        figures.append(
            Illustration(
                "sizes",
                "Sensitivity by size of lesions",
                "Share of lesions found at the prespecified threshold, by the share of the image that their box "
                f"covers. Numbers count lesions. {note}",
                "Per finding, the share of lesions found, by size.",
                partial(_sizes, systems, n_cases),
            )
        )
    return figures


def label_figures(systems: Mapping[str, LabelCurves], readers: Sequence[ReaderPoint] = ()) -> list[Illustration]:
    """Return figures of ROC and of precision-recall curves of findings, for named systems.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    n_cases = {one.finding: one.area.n for curves in systems.values() for one in curves.areas}
    reasons = {name: reason for curves in systems.values() for name, reason in curves.left_out.items()}
    is_banded = any(one.height.has_interval for curves in systems.values() for one in curves.roc_bands)
    bands = ", with pointwise 95% intervals of findings that at least 10 patients have and at least 10 lack"
    end = f"{bands if is_banded else ''}. {cases_note(n_cases, 'cases with the finding', reasons)}"
    return [
        Illustration(
            "roc",
            "ROC",
            f"Sensitivity against the false positive rate over all thresholds{end}",
            "Per finding, sensitivity against the false positive rate.",
            lambda width: _label_panels(systems, n_cases, width, is_roc=True, readers=readers),
        ),
        Illustration(
            "precision_recall",
            "Precision and recall",
            f"Precision against recall over all thresholds{end}",
            "Per finding, precision against recall.",
            lambda width: _label_panels(systems, n_cases, width, is_roc=False),
        ),
    ]


def _label_panels(
    systems: Mapping[str, LabelCurves],
    n_cases: Mapping[str, int],
    width: float,
    *,
    is_roc: bool,
    readers: Sequence[ReaderPoint] = (),
) -> Figure:
    looks = list(zip(systems, paints(len(systems)), strict=True))

    def draw(axes: Axes, name: str) -> None:
        if is_roc:
            axes.plot([0, 100], [0, 100], color=SOFT, linewidth=0.8, linestyle=DASHED)
        for system, paint in looks:
            curves = systems[system]
            points, bands = (
                (curves.roc, curves.roc_bands) if is_roc else (curves.precision_recall, curves.precision_bands)
            )
            own = [one for one in bands if one.finding == name]
            low, high = [100 * one.height.low for one in own], [100 * one.height.high for one in own]
            axes.fill_between([100 * one.at for one in own], low, high, color=paint.colour, alpha=0.2, linewidth=0)
            x, y = points.get(name, (np.zeros(0), np.zeros(0)))
            # Linear interpolation is valid for sensitivity, not for precision, which is drawn as steps
            kind = "default" if is_roc else "steps-pre"
            axes.plot(100 * x, 100 * y, color=paint.colour, linewidth=1.4, drawstyle=kind, clip_on=False)
        points_of = [one for one in readers if one.finding == name]
        rates = [100 * one.false_positive_rate for one in points_of], [100 * one.sensitivity for one in points_of]
        axes.plot(*rates, "o", color=INK, markersize=3, clip_on=False)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)

    labels = ("False positive rate (%)", "Sensitivity (%)") if is_roc else ("Recall (%)", "Precision (%)")
    marks = [dashed_line("chance")] * is_roc + [mark_handle("reader", INK)] * bool(readers)
    return panels(by_cases(n_cases), width, draw, *labels, series=looks, marks=marks, n_cases=n_cases)


def _looks(systems: Mapping[str, Curves]) -> list[tuple[str, Paint]]:
    return list(zip(systems, paints(len(systems)), strict=True))


def _macro_froc(curves: Curves) -> Curve:
    """Return the FROC curve averaged over findings at every number of false alarms."""
    alarms = np.unique(np.concatenate([x for x, _ in curves.froc.values()]))
    return alarms, np.mean([np.interp(alarms, *curve) for curve in curves.froc.values()], axis=0)


def _least_alarms(systems: Mapping[str, Curves]) -> float:
    """Return the start of the axis: 1/8, or about an eighth of the curves' median end if that is less."""
    last = np.median([x[-1] for curves in systems.values() for x, _ in curves.froc.values()])
    return float(np.clip(2.0 ** np.floor(np.log2(max(last, 2.0**-10))) / 8, 2.0**-10, _LEAST))


def _froc(systems: Mapping[str, Curves], n_cases: Mapping[str, int], width: float) -> Figure:
    looks, least = _looks(systems), _least_alarms(systems)

    def draw(axes: Axes, name: str) -> None:
        for i, (system, paint) in enumerate(looks):
            curves = systems[system]
            alarms, shares = curves.froc[name] if name in curves.froc else _macro_froc(curves)
            last = float(alarms[-1])
            # Straight lines between thresholds look curved on a logarithmic axis
            between = np.geomspace(least, max(least, last), 100)
            x, y = np.append(alarms, between), np.append(shares, np.interp(between, alarms, shares))
            order = np.lexsort((y, x))[np.sum(x < least) : np.sum(x <= last)]
            axes.plot(x[order], 100 * y[order], color=paint.colour, linewidth=1.4)
            rest = [100 * np.interp(last, alarms, shares), 100 * shares[-1]]
            axes.plot([max(last, least), _MOST], rest, color=paint.colour, linewidth=1.2, linestyle=DASHED)
            bands = [one for one in curves.bands if one.finding == name]
            beside = 2 ** (0.2 * (i - (len(looks) - 1) / 2))  # separates the intervals of several systems
            rates = [beside * one.false_alarms for one in bands]
            _draw_estimates(axes, rates, [one.sensitivity for one in bands], paint.colour)
        axes.set_ylim(0, 100)

    def scale(axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xlim(least, _MOST)
        first, last = round(np.log2(least)), round(np.log2(_MOST))
        octaves = range(last, first - 1, -math.ceil((last - first) / 3))
        axes.set_xticks([2.0**k for k in octaves], [f"{2**k:g}" if k >= 0 else f"1/{2**-k:g}" for k in octaves])
        axes.minorticks_off()

    bands = [one for curves in systems.values() for one in curves.bands]
    names = [name for name in (MACRO, *by_cases(n_cases)) if any(one.finding == name for one in bands)]
    marks = _estimate_handles([one.sensitivity for one in bands], "95% interval")
    return panels(
        names, width, draw, "False alarms for the finding per image", "Lesions found (%)", scale=scale, series=looks,
        marks=[*marks, dashed_line("beyond the lowest threshold")], n_cases=n_cases,
    )  # fmt: skip


_RECALLS = np.linspace(0, 1, 101)


def _best_precision(recall: FloatArray, precision: FloatArray) -> FloatArray:
    """Return the best precision at or above each of COCO's 101 recalls; 0 beyond the highest recall reached."""
    best = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return best[np.searchsorted(recall, _RECALLS)]


def _precision(systems: Mapping[str, Curves], n_cases: Mapping[str, int], width: float) -> Figure:
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
            if len(y) == len(x):  # `y` is shorter if no threshold gives a hit
                axes.step(100 * x, 100 * y, color=paint.colour, linewidth=1.4, clip_on=False)
        axes.set_ylim(0, 100)

    names = [MACRO, *by_cases(n_cases)]
    of_systems = [curves.average_precision for curves in systems.values()]
    values = {name: [percent_number(own[name]) for own in of_systems if name in own] for name in names}
    marks = [
        line_handle("best precision at that recall or higher", INK),
        line_handle("as measured", INK, linewidth=0.6, alpha=0.7),
    ]
    return panels(
        names, width, draw, "Recall (%) at an IoU of 0.5", "Precision (%)", series=looks, marks=marks, n_cases=n_cases,
        below={name: f"AP {', '.join(own)}" for name, own in values.items() if own},
    )  # fmt: skip


def _sizes(systems: Mapping[str, Curves], n_cases: Mapping[str, int], width: float) -> Figure:
    looks = _looks(systems)
    strata = [one for curves in systems.values() for one in curves.sizes]
    sizes = list(dict.fromkeys(one.size for one in sorted(strata, key=lambda one: _by_size(one.size))))
    names = [name for name in by_cases(n_cases) if any(one.finding == name for one in strata)]

    def draw(axes: Axes, name: str) -> None:
        for i, (system, paint) in enumerate(looks):
            for one in (one for one in systems[system].sizes if one.finding == name):
                x = sizes.index(one.size) + 0.18 * (i - (len(looks) - 1) / 2)
                _draw_estimates(axes, [x], [one.sensitivity], paint.colour)
                if i == len(looks) - 1:
                    axes.annotate(
                        str(one.n), (x, 100 * one.sensitivity.value), (5, 0), textcoords="offset points", fontsize=6,
                        color=INK, va="center",
                    )  # fmt: skip
        axes.set_ylim(0, 100)

    def scale(axes: Axes) -> None:
        axes.set_xlim(-0.5, len(sizes) - 0.3)
        axes.set_xticks(range(len(sizes)), [_short(size) for size in sizes], fontsize=6)

    threshold = next(iter(systems.values())).threshold
    at = "each finding's threshold" if threshold != threshold else f"a score of {threshold:g} or more"
    return panels(
        names, width, draw,
        "Share of the image covered by the lesion's box", f"Lesions found at {at} (%)", scale=scale,
        series=looks, marks=_estimate_handles([one.sensitivity for one in strata], "95% interval"), n_cases=n_cases,
    )  # fmt: skip


def _short(size: str) -> str:
    """Return a size such as "< 2%", "2–10%" and "≥ 10%"."""
    least = "≥ " if size.endswith(" or more") else ""
    return least + size.removesuffix(" or more").removesuffix(" of the image").replace("below ", "< ").replace(
        " to ", "–"
    )


def _by_size(size: str) -> tuple[int, str]:
    return (0 if size.startswith("below") else 2 if size.endswith("or more") else 1, size)


_COLUMNS = ("finding", "threshold", "metric", "value", "low", "high", "n_cases", "is_best")


@dataclass(frozen=True)
class TuningCurve:
    """A finding's metric at each tried threshold in [0, 1], with 95% intervals; `best` is the chosen threshold."""

    metric: str
    thresholds: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    best: float | None
    n_cases: int


def read_curves(path: Path) -> dict[str, TuningCurve]:
    """Read each finding's tuning curve from a file that ``reveal-bench saliency`` wrote.

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
            best = [float(row["threshold"]) for row in own if row["is_best"] == "1"]
            if len(best) > 1:
                raise ValueError(best)
            tried, *figures = (
                [float(row[name] or "nan") for row in own] for name in ("threshold", "value", "low", "high")
            )
            values, lows, highs = figures
            curves[finding] = TuningCurve(
                own[0]["metric"], tried, values, lows, highs, next(iter(best), None), int(own[0]["n_cases"])
            )
        except ValueError:
            rule = "must have numbers, and one best threshold per finding at most"
            raise ArgumentError("tuning", rule, f"others for {finding!r} in {path.name}") from None
    return curves


def figure_of_curves(curves: Mapping[str, TuningCurve], name: str, words: str, axis: str) -> Illustration:
    """Return a figure of a metric against tried thresholds, with 95% intervals and a cross at the chosen threshold.

    Parameters
    ----------
    name : name of the file
    words : plural noun for the tried values, such as "thresholds"
    axis : quantity of the horizontal axis

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    metric = METRICS[next(iter(curves.values())).metric]
    how = " with 95% intervals" if any(low == low for one in curves.values() for low in one.lows) else ""
    note = cases_note({finding: curve.n_cases for finding, curve in curves.items()}, "cases with the finding")
    return Illustration(
        name,
        words.capitalize(),
        f"{metric.title}{how} on the split that tunes {words}; {note}",
        f"Per finding, the {metric.in_words} against tested {words}, with the best marked.",
        partial(_draw_curves, curves, axis, metric),
    )


def _draw_curves(curves: Mapping[str, TuningCurve], x: str, metric: Metric, width: float) -> Figure:
    is_share = metric.high < math.inf
    factor, y = (100, f"{metric.title} (%)") if is_share else (1, f"{metric.title} (pixels, or mm)")
    values_shown = [value for one in curves.values() for value in (*one.values, *one.highs) if not math.isnan(value)]
    top = 1.05 * factor * max(values_shown, default=1.0)

    def draw(axes: Axes, name: str) -> None:
        curve = curves[name]
        tried = [100 * number for number in curve.thresholds]
        values, lows, highs = ([factor * one for one in own] for own in (curve.values, curve.lows, curve.highs))
        paint = paints(1)[0].colour
        axes.fill_between(tried, lows, highs, color=paint, alpha=0.2, linewidth=0)
        axes.plot(tried, values, color=paint, linewidth=1.4)
        if curve.best is not None:
            best = values[curve.thresholds.index(curve.best)]
            axes.plot(100 * curve.best, best, "X", color=INK, markersize=6, clip_on=False)
        axes.set_ylim(0, top)

    n_cases = {name: curve.n_cases for name, curve in curves.items()}
    cross = line_handle("selected", INK, linewidth=0, marker="X", markersize=6)
    marks = [cross] * any(one.best is not None for one in curves.values())
    return panels(by_cases(n_cases), width, draw, x, y, marks=marks, n_cases=n_cases)
