"""The command ``confidence``: what a system's confidences are worth."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.output import AllowMissing, AsCsv, AsJson, AsLatex, AsMarkdown, Folder, PredictionFile, Split
from reveal_bench.cli.score import thresholds_of

__all__ = ["confidence"]


class Bins(StrEnum):
    """How probabilities are put into bins."""

    WIDTH = "width"
    COUNT = "count"


def confidence(
    file: PredictionFile,
    folder: Folder,
    split: Split = "released",
    out: Annotated[
        Path | None, typer.Option(help="Folder for all tables as CSV and their figures as SVG and PNG.")
    ] = None,
    n_bins: Annotated[int, typer.Option("--bins", help="Bins of the probabilities.")] = 10,
    binning: Annotated[Bins, typer.Option(help="Bins of equal width, or of equal counts.")] = Bins.WIDTH,
    metadata: Annotated[Path | None, typer.Option(help="submission.json whose `thresholds` apply; 0.5 else.")] = None,
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
    csv: AsCsv = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
) -> None:
    """Judge how sure a system says it is: calibration, risk where unsure cases are left out, net benefit."""
    from reveal_bench import api
    from reveal_bench.evaluation.confidence import POOLED

    if out is not None:
        terminal.check_outside_datasets(out, "--out")
    result = api.confidence(
        file,
        folder,
        split=split,
        thresholds=0.5 if metadata is None else thresholds_of(metadata),
        allow_missing=allow_missing,
        n_bins=n_bins,
        binning=binning.value,
    )
    if out is not None:
        for path in result.write(out):
            typer.echo(f"wrote {path}", err=True)
    if as_json:
        tables = {name: table.plain for name, table in result.tables.items()}
        typer.echo(json.dumps({"schema": 1, "caption": result.caption} | tables, indent=2))
        return
    if terminal.printed_as(result, csv=csv, markdown=markdown, latex=latex):
        return
    terminal.print_shown(result)
    typer.echo()
    terminal.print_shown(result.coverage_of(POOLED))
