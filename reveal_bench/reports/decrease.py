"""Figures of relative decreases: how far a model stays behind a reference, finding by finding (paper 002, Fig. 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from reveal_bench.evaluation.compare import Comparison
from reveal_bench.evaluation.decrease import in_printed_order, told_apart
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.reports.figures import Point, dots, in_percent
from reveal_bench.reports.style import NBSP, Illustration, check_extra

__all__ = ["figures_of", "figures_of_both"]

_KINDS = ("interval leaves out 0", "interval holds 0", "too few cases for an interval")


def figures_of(comparisons: Sequence[Comparison], model: str, reference: str) -> list[Illustration]:
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
                rows.append((_name(one) + beside, [in_percent(e.value, e.low, e.high, k) for k, e in enumerate(own)]))
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
    figures = "" if math.isnan(one.value) else f" ({100 * one.b:.1f}{NBSP}to{NBSP}{100 * one.a:.1f})"
    kind = 0 if told_apart(one) else 2 if math.isnan(one.low + one.high) else 1
    return _name(one) + figures, [in_percent(one.value, one.low, one.high, kind)]
