"""Published rows beside the user's own runs, where dataset and metric are the same, and words where they are not.

Which rows can stand beside which runs, :mod:`reveal_bench.evaluation.published` says. They were measured on the whole
test split; a `released` split or a holdout is a part of it, which the caption says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from reveal_bench.evaluation.published import (
    GRID,
    OwnScores,
    ReferenceRow,
    read_reference_rows,
    rows_beside,
    why_nothing_compares,
)
from reveal_bench.metrics import METRICS
from reveal_bench.reports.page import Csv, Part, Table, Text
from reveal_bench.reports.runs import World
from reveal_bench.reports.style import NOTHING

__all__ = ["published_parts"]

OWN = "this report"
"""In the place of a paper."""


def published_parts(own: Sequence[OwnScores], world: World) -> Iterator[Part]:
    """Tables of published and own rows, one per metric, and why the other rows do not stand beside these runs."""
    rows = read_reference_rows(world.info.benchmark)
    if not rows:
        return
    whole = why_nothing_compares(rows, world.info, world.split)
    if whole:
        yield Text(whole)
        return
    shown = set()
    for metric in dict.fromkeys(one.metric for one in own):
        beside = [row for row in rows if metric in row.figures]
        of_grid = [one for one in own if one.metric == metric and (metric != "grid_hit" or one.grid == GRID)]
        others = [one.label for one in own if one.metric == metric and one not in of_grid]
        if beside and of_grid:
            shown |= {id(row) for row in beside}
            yield _table(metric, beside, of_grid, world)
        if beside and others:
            cells = f"{GRID} × {GRID}"
            yield Text(f"Not comparable: {', '.join(others)}, on another grid than the {cells} of the published rows.")
    left = [row for row in rows if id(row) not in shown]
    if left:
        metrics = "; ".join(sorted({METRICS[name].title for row in left for name in row.figures}))
        names = "; ".join(dict.fromkeys(row.name for row in left))
        yield Text(f"Of other systems only metrics are published that no run here is scored by ({metrics}): {names}.")


def _table(metric: str, beside: Sequence[ReferenceRow], own: Sequence[OwnScores], world: World) -> Table:
    findings, lines = rows_beside(metric, own, beside)
    rows, plain = [], []
    for line in lines:
        name, source, figures = line.system, line.source or OWN, [line.values[finding] for finding in findings]
        shown = f"{name} ({source})" if line.source else name
        rows.append((shown, *map(_percent, (line.mean, *figures))))
        plain.append((name, source, metric, "mean", line.mean))
        plain += [(name, source, metric, finding, value) for finding, value in zip(findings, figures, strict=True)]
    part = f"; these runs answer its part {world.split}, of {len(world.records):,} images" * (world.split != "test")
    caption = (
        f"{METRICS[metric].title} in percent; published rows as printed, of the whole test split{part}. Mean: over the "
        f"{len(findings)} findings that every row has. How the papers measured: "
        f"{' '.join(dict.fromkeys(row.protocol for row in beside))}"
    )
    csv = Csv(f"published-{metric.replace('_', '-')}", ("system", "source", "metric", "finding", "value"), plain)
    head = ("System", "Mean", *(name.replace("mediastinum", "\u00admediastinum") for name in findings))
    return Table(head, rows, caption, f"Published {METRICS[metric].title.lower()}", plain=csv)


def _percent(value: Any) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.1f}"
