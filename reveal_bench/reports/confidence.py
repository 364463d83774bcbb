"""Figures of what a system's confidences are worth: a panel per finding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from reveal_bench.evaluation.confidence import POOLED, CalibrationResult, NetBenefit
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.reports.figures import dots, in_percent, panels
from reveal_bench.reports.style import DASHED, INK, RULE, SOFT, Illustration, check_extra, paints
from reveal_bench.words import NBSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BESIDE_AUROC = ("auroc", "point_hit", "mask_iou")
_LARGEST = 7.0  # diameter in points of the bin with most cases


def figures_of(judged: CalibrationResult) -> list[Illustration]:
    """Reliability, risk and coverage and, where it is defined, net benefit.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    check_extra("matplotlib")
    event = judged.confidences.event
    drawn = [
        Illustration(
            "reliability",
            "Reliability",
            f"Rate of {event} against the probability that was said; marks are bins, larger ones with more cases.",
            f"Per finding, the rate of {event} in bins of the stated probability; the diagonal is perfect calibration.",
            lambda width: _reliability(judged, width),
        ),
        Illustration(
            "coverage",
            "Risk and coverage",
            "Share of wrong answers if only the most confident cases are answered; dashed: all answered.",
            "Per finding, the share of wrong answers over the share of cases that are answered.",
            lambda width: _coverage(judged, width),
        ),
    ]
    if judged.benefits:
        drawn.append(
            Illustration(
                "net_benefit",
                "Net benefit",
                "Net benefit of acting from a probability on, with 95 % intervals; dashed: acting always; 0: never.",
                "Per finding, the net benefit of the system and of acting always, over the threshold.",
                lambda width: _benefit(judged, width),
            )
        )
    return drawn


def figure_beside_auroc(estimates: Sequence[Estimate], system: str) -> Illustration:
    """Per finding the AUROC of the scores, the hit rate and the IoU of true positives; best told findings first.

    Parameters
    ----------
    estimates : of the three metrics
    system : whose they are

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
        points = [in_percent(e, kind) for kind, e in own if e is not None]
        rows.append((auroc.finding + n, points))
    kinds = [METRICS[metric].title for metric in _BESIDE_AUROC]
    return Illustration(
        "auroc",
        "Recognizing a finding and locating it",
        f"AUROC of the scores of {system}, hit rate and IoU of its maps, with 95 % intervals; the findings that it "
        "recognizes best come first, with the number of images that have them.",
        "Per finding, AUROC, hit rate and IoU.",
        partial(dots, rows, axis="AUROC, hit rate and IoU (%)", kinds=kinds, ends=(0.0, 100.0)),
    )


def _reliability(judged: CalibrationResult, width: float) -> Figure:
    event = judged.confidences.event

    def draw(axes: Axes, name: str) -> None:
        bins = judged.bins[name]
        most = max(one.n for one in bins)
        axes.plot([0, 100], [0, 100], color=SOFT, linewidth=0.8, linestyle=DASHED)
        axes.plot([100 * one.said for one in bins], [100 * one.rate for one in bins], color=RULE, linewidth=0.8)
        for one in bins:
            size = _LARGEST * max(math.sqrt(one.n / most), 0.3)
            axes.plot(
                100 * one.said, 100 * one.rate, "o", color=paints(1)[0].colour, markersize=size, clip_on=False,
                markeredgecolor="white", markeredgewidth=0.4,
            )  # fmt: skip
        axes.set_ylim(0, 100)

    return panels(list(judged.bins), width, draw, "Predicted probability (%)", f"Rate of {event} (%)")


def _coverage(judged: CalibrationResult, width: float) -> Figure:
    highest = max(max(risk) for _, risk in judged.curves.values())

    def draw(axes: Axes, name: str) -> None:
        coverage, risk = judged.curves[name]
        axes.plot(100 * coverage, 100 * risk, color=paints(1)[0].colour, linewidth=1.4)
        axes.axhline(100 * risk[-1], color=SOFT, linewidth=0.8, linestyle=DASHED)
        axes.set_ylim(0, 105 * max(highest, 0.01))

    names = [name for name in judged.curves if name != POOLED or len(judged.curves) > 2]
    return panels(names, width, draw, "Cases answered (%)", "Wrong answers (%)")


def _benefit(judged: CalibrationResult, width: float) -> Figure:
    of_finding: dict[str, list[NetBenefit]] = {}
    for row in judged.benefits:
        of_finding.setdefault(row.finding, []).append(row)
    return panels(
        list(of_finding),
        width,
        partial(_draw_benefit, of_finding),
        "Acting from a probability of (%)",
        "Net benefit per 100 cases",
    )


def _draw_benefit(of_finding: dict[str, list[NetBenefit]], axes: Axes, name: str) -> None:
    rows = of_finding[name]
    places = [100 * row.threshold for row in rows]
    colour = paints(1)[0].colour
    known = [row.system.has_interval for row in rows]
    low, high = [100 * row.system.low for row in rows], [100 * row.system.high for row in rows]
    axes.fill_between(places, low, high, where=known, color=paints(3)[2].colour, alpha=0.5, linewidth=0)
    axes.plot(places, [100 * row.system.value for row in rows], color=colour, linewidth=1.4)
    axes.plot(places, [100 * row.act_always for row in rows], color=SOFT, linewidth=0.8, linestyle=DASHED)
    axes.axhline(0, color=INK, linewidth=0.6)
    # Acting always falls without end: the scale is that of what can be gained
    best = max(max(row.system.value for row in rows), rows[0].act_always, 0.01)
    axes.set_ylim(-40 * best, 115 * best)
