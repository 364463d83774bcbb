"""The command ``curves``: what a detector finds at every threshold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.output import AsCsv, AsJson, AsLatex, AsMarkdown, Folder, PredictionFile, Split
from reveal_bench.cli.score import thresholds_of

__all__ = ["curves"]


def curves(
    file: PredictionFile,
    folder: Folder,
    split: Split = "released",
    out: Annotated[
        Path | None, typer.Option(help="Folder for all tables as CSV and their figures as SVG and PNG.")
    ] = None,
    metadata: Annotated[Path | None, typer.Option(help="submission.json whose `thresholds` apply; 0.5 else.")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap replicates.")] = 1000,
    as_json: AsJson = False,
    csv: AsCsv = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
) -> None:
    """Show what a detector finds at every threshold: FROC with bands, precision and recall, sensitivity by size."""
    from reveal_bench import api

    if out is not None:
        terminal.check_outside_datasets(out, "--out")
    thresholds = 0.5 if metadata is None else thresholds_of(metadata)
    result = api.curves(file, folder, split=split, thresholds=thresholds, n_resamples=resamples)
    if out is not None:
        for path in result.write(out):
            typer.echo(f"wrote {path}", err=True)
    if as_json:
        tables = {name: table.plain for name, table in result.tables.items()}
        typer.echo(json.dumps({"schema": 1, "caption": result.caption} | tables, indent=2))
    elif not terminal.printed_as(result, csv=csv, markdown=markdown, latex=latex):
        terminal.print_shown(result)
