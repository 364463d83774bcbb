"""Figures of relative decreases: how far a model stays behind a reference, finding by finding (paper 002, Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from reveal_bench.evaluation.compare import Comparison
from reveal_bench.evaluation.decrease import in_printed_order, told_apart
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.reports.figures import Point, dots
from reveal_bench.reports.style import Illustration, check_extra

__all__ = ["figures_of"]

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
        axis = f"Relative decrease of the {_lower(title)} (%)"
        drawn.append(
            Illustration(
                f"decrease_{metric}",
                f"{title}: decrease from {reference} to {model}",
                f"Relative decrease of {model} from {reference} with 95 % intervals; below 0, {model} is better.",
                f"Per finding, the relative decrease of {_lower(title)} from {reference} to {model}.",
                partial(dots, rows, axis=axis, kinds=kinds, rule=(0.0, "no difference")),
            )
        )
    return drawn


def _lower(title: str) -> str:
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def _row(one: Comparison) -> tuple[str, list[Point]]:
    name = "Mean over findings" if one.finding == MACRO else one.finding
    value, low, high = (None if share != share else 100 * share for share in (one.value, one.low, one.high))
    figures = f" ({100 * one.b:.1f} to {100 * one.a:.1f})" if value is not None else ""
    kind = 0 if told_apart(one) else 1 if low is not None and high is not None else 2
    return name + figures, [Point(value, low, high, kind)]
