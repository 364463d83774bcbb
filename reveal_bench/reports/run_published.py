"""Published rows beside the user's own runs, where dataset and metric are the same, and words where they are not.

The rows are those of ``submissions/reference/`` (:mod:`reveal_bench.evaluation.published`), as printed; nothing of them
is computed anew but the mean over the findings that all rows of the table have. They were measured on the whole test
split; a `released` split or a holdout is a part of it, which the caption says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reveal_bench.evaluation.published import ReferenceRow, read_reference_rows
from reveal_bench.metrics import METRICS
from reveal_bench.reports.page import Csv, Part, Table, Text
from reveal_bench.reports.runs import World
from reveal_bench.reports.style import NOTHING

__all__ = ["OwnScores", "published_parts"]

PARTS_OF_TEST = ("test", "released", "holdout")
OWN = "this report"
"""In the place of a paper."""
PUBLISHED_GRID = 8
"""Cells per side of the published cell hits (paper 000, section 3.2)."""


@dataclass(frozen=True)
class OwnScores:
    """What a run reaches by one metric, by finding; `grid` are the cells per side that it answers in, if it does."""

    label: str
    metric: str
    values: Mapping[str, float]
    grid: int | None = None


def published_parts(own: Sequence[OwnScores], world: World) -> Iterator[Part]:
    """Tables of published and own rows, one per metric, and why the other rows do not stand beside these runs."""
    rows = read_reference_rows(world.info.benchmark)
    if not rows:
        return
    whole = _why_nothing_compares(rows, world)
    if whole:
        yield Text(whole)
        return
    shown = set()
    for metric in dict.fromkeys(one.metric for one in own):
        beside = [row for row in rows if metric in row.figures]
        of_grid = [one for one in own if one.metric == metric and (metric != "grid_hit" or one.grid == PUBLISHED_GRID)]
        others = [one.label for one in own if one.metric == metric and one not in of_grid]
        if beside and of_grid:
            shown |= {id(row) for row in beside}
            yield _table(metric, beside, of_grid, world)
        if beside and others:
            cells = f"{PUBLISHED_GRID} × {PUBLISHED_GRID}"
            yield Text(f"Not comparable: {', '.join(others)}, on another grid than the {cells} of the published rows.")
    left = [row for row in rows if id(row) not in shown]
    if left:
        metrics = "; ".join(sorted({METRICS[name].title for row in left for name in row.figures}))
        names = "; ".join(dict.fromkeys(row.name for row in left))
        yield Text(f"Of other systems only metrics are published that no run here is scored by ({metrics}): {names}.")


def _why_nothing_compares(rows: Sequence[ReferenceRow], world: World) -> str:
    """Words; "" if rows can stand beside these runs."""
    names = "; ".join(dict.fromkeys(row.name for row in rows))
    if world.info.synthetic:
        return f"Rows are published of the real data ({names}); they do not stand beside runs on a synthetic stand-in."
    if world.split not in PARTS_OF_TEST or not any(row.is_of_test_split for row in rows):
        measured = " and ".join(sorted({row.measured_on for row in rows}))
        return f"Not comparable with split {world.split}: the published rows ({names}) are of the split {measured}."
    return ""


def _table(metric: str, beside: Sequence[ReferenceRow], own: Sequence[OwnScores], world: World) -> Table:
    columns: list[Mapping[str, float]] = [*(one.values for one in own), *(row.figures[metric] for row in beside)]
    findings = [name for name in own[0].values if all(name in values for values in columns)]
    told = [*((one.label, OWN) for one in own), *((_name(row), _paper(row)) for row in beside)]
    rows, plain = [], []
    for (name, source), values in zip(told, columns, strict=True):
        figures = [values[finding] for finding in findings]
        mean = sum(figures) / len(figures) if figures else math.nan
        rows.append((name if source == OWN else f"{name} ({source})", _percent(mean), *map(_percent, figures)))
        plain.append((name, source, metric, "mean", mean))
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


def _name(row: ReferenceRow) -> str:
    return f"{row.name}, {row.prompt_style}" if row.prompt_style else row.name


def _paper(row: ReferenceRow) -> str:
    """Short, as "Gosai et al., Table 2"."""
    return f"{row.citation.split()[0]} et al., {row.place}"


def _percent(value: Any) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.1f}"
