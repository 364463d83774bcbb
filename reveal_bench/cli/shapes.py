"""The command ``shapes``: shapes of references, and how localization goes with them."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.output import AsCsv, AsJson, AsLatex, AsMarkdown, Folder, Missing, Split

__all__ = ["shapes"]


class FeatureScale(StrEnum):
    """How features are scaled over all cases."""

    MINMAX = "minmax"
    ZSCORE = "zscore"
    RAW = "raw"


def shapes(
    folder: Folder,
    model: Annotated[
        Path | None, typer.Option(help="Prediction file whose IoU and hits are regressed on the shapes.")
    ] = None,
    human: Annotated[
        Path | None, typer.Option(help="That of `baseline human`: also regress the gap from it to the model.")
    ] = None,
    split: Split = "released",
    missing: Missing = None,
    scale: Annotated[FeatureScale, typer.Option(help="How features are scaled.")] = FeatureScale.MINMAX,
    score_scale: Annotated[
        FeatureScale, typer.Option(help="How the scores of a finding are scaled.")
    ] = FeatureScale.RAW,
    out: Annotated[
        Path | None, typer.Option(help="Folder for all tables as CSV and the figure as SVG and PNG.")
    ] = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
) -> None:
    """Measure the shapes of reference masks, and how localization goes with them and with confidence."""
    from reveal_bench import api

    if out is not None:
        terminal.check_outside_datasets(out, "--out")
    result = api.shapes(
        folder, model, human, split=split, missing=missing, scale=scale.value, score_scale=score_scale.value
    )
    if out is not None:
        for path in result.write(out):
            typer.echo(f"wrote {path}", err=True)
    if as_json:
        tables = {name: json.loads(table.to_json()) for name, table in result.tables.items()}
        typer.echo(json.dumps({"schema": 1, "caption": result.caption} | tables, indent=2))
        return
    if terminal.printed_as(result, csv=csv, markdown=markdown, latex=latex):
        return
    # One regression of several: the others are in the files
    shown = result.tables | ({"regressions": result.regressions_of("simple")} if result.slopes else {})
    for table in shown.values():
        terminal.print_shown(table)
        typer.echo()
