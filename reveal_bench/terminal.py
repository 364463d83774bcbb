"""What the command line shows: tables, progress, refusals. Imported by :mod:`reveal_bench.cli` alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from reveal_bench.metrics.bootstrap import Estimate

__all__ = ["print_refusal", "print_released", "print_scores", "progress", "queue_note", "warn"]


def print_scores(estimates: Sequence[Estimate], caption: str) -> None:
    """Scores in percent with their intervals: findings down, metrics across, the macro first."""
    from reveal_bench.metrics.bootstrap import MACRO

    first = estimates[0].metric
    n = {e.finding: e.n for e in estimates if e.metric == first}
    cells = {}
    for e in estimates:
        if e.n == 0:
            cells[e.finding, e.metric] = ("-", "")
            continue
        note = "" if e.n == n[e.finding] else f" n={e.n}"  # rows undefined for this metric alone
        interval = f"({100 * e.low:.1f} to {100 * e.high:.1f}){note}"
        cells[e.finding, e.metric] = (f"{100 * e.value:.1f}", interval)
    counts = {finding: f"{count} findings" if finding == MACRO else str(count) for finding, count in n.items()}
    _print_grid(cells, counts, caption)


def print_released(document: dict[str, Any]) -> None:
    """The figures that a leaderboard released for a submission, in the same form."""
    figures = document["score"]["figures"]
    cells = {}
    counts: dict[str, str] = {}
    for figure in figures:
        value, low, high = (100 * figure[key] for key in ("value", "low", "high"))
        cells[figure["finding"], figure["metric"]] = (f"{value:.0f}", f"({low:.0f} to {high:.0f})")
        counts.setdefault(figure["finding"], figure["n"])
    caption = f"submission {document['id']}: released figures, percent with 95 % intervals"
    _print_grid(cells, counts, caption)
    _console().print(document["score"]["note"], markup=False)


def _print_grid(cells: dict[tuple[str, str], tuple[str, str]], counts: dict[str, str], caption: str) -> None:
    """Cells (value, interval) by (finding, metric); intervals go below their value where the terminal is narrow."""
    from rich.table import Table

    from reveal_bench.metrics import METRICS
    from reveal_bench.metrics.bootstrap import MACRO

    metrics = list(dict.fromkeys(metric for _, metric in cells))
    console = _console()
    separator = " " if console.width >= 45 + 24 * len(metrics) else "\n"
    table = Table(box=None, pad_edge=False)
    table.add_column("finding")
    table.add_column("n", justify="right")
    for metric in metrics:
        table.add_column(METRICS[metric].title if metric in METRICS else metric, justify="right")
    for finding, n in counts.items():
        row = [separator.join(filter(None, cells.get((finding, metric), ("-",)))) for metric in metrics]
        table.add_row(finding, n, *row, style="bold" if finding == MACRO else None)
    console.print(caption, markup=False, soft_wrap=True)
    console.print(table)


def _console() -> Console:
    from rich.console import Console

    # A table that is piped keeps its columns: no wrapping at a made-up width of 80
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def queue_note(document: dict[str, Any]) -> str:
    """Where a submission stands in the queue, if it does."""
    position = document.get("queue_position")
    return f" (position {position})" if position else ""


def print_refusal(problem: dict[str, Any]) -> None:
    """What a problem document says in detail: fields of the metadata, or the linter's report, a line each."""
    for entry in problem.get("errors", []):
        typer.echo(f"  {entry.get('field')}: {entry.get('rule')}", err=True)
    for entry in problem.get("report", {}).get("problems", [])[:50]:
        place = f":{entry['line']}" if entry.get("line") else ""
        hint = f"  hint: {entry['hint']}" if entry.get("hint") else ""
        typer.echo(f"{entry['file']}{place}: {entry['severity']}: {entry['field']}: {entry['message']}{hint}", err=True)


@contextmanager
def progress(verb: str) -> Iterator[Callable[..., None]]:
    """A progress line on standard error: (what, images done, total or None). Quiet when not on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None = None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what if what == verb else f"{verb} {what}", total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield update


def warn(warnings: Sequence[str]) -> None:
    """Warnings, a line each, to standard error."""
    for warning in warnings:
        typer.secho(f"warning: {warning}", fg="yellow", err=True)
