"""``reveal-bench metrics``: the table of metrics, for people and for scripts."""

from __future__ import annotations

import json
from typing import Annotated

import typer

__all__ = ["metrics"]


def metrics(
    names: Annotated[
        list[str] | None, typer.Argument(help="Metrics to show; all by default.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every metric: range, direction, when it is undefined, formula and source."""
    from reveal_bench.metrics import FAMILIES, METRICS
    from reveal_bench.metrics.docs import range_text

    unknown = [name for name in names or () if name not in METRICS]
    if unknown:
        raise ValueError(f"`names` must be among {', '.join(METRICS)}, got {unknown[0]!r}")
    chosen = [metric for metric in METRICS.values() if not names or metric.name in names]
    if as_json:
        typer.echo(json.dumps({"schema": 1, "metrics": [metric.to_dict() for metric in chosen]}, indent=2))
        return
    for family, about in FAMILIES.items():
        rows = [metric for metric in chosen if metric.family == family]
        if not rows:
            continue
        typer.echo(f"{family}: {about}")
        for metric in rows:
            better = {"higher": "up", "lower": "down", "neither": "-"}[metric.better]
            typer.echo(f"  {metric.name:<26}{range_text(metric):<12}{better:<6}{metric.title}: {metric.formula}")
            typer.echo(f"  {'':<44}undefined: {metric.undefined}; source: {metric.source}")
        typer.echo()
