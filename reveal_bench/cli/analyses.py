"""The commands ``confidence``, ``curves`` and ``shapes``: what one system's answers are worth, beyond its score."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.output import (
    AllowMissing,
    AsCsv,
    AsJson,
    AsLatex,
    AsMarkdown,
    Folder,
    Metadata,
    Missing,
    PredictionFile,
    Split,
)
from reveal_bench.cli.score import thresholds_of

__all__ = ["confidence", "curves", "shapes"]


class Bins(StrEnum):
    """How probabilities are put into bins."""

    WIDTH = "width"
    COUNT = "count"


def confidence(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for all tables as CSV, figures as SVG and PNG; replaces those there.")
    ] = None,
    n_bins: Annotated[int, typer.Option("--bins", help="Bins of the probabilities.")] = 10,
    binning: Annotated[Bins, typer.Option(help="Bins of equal width, or of equal counts.")] = Bins.WIDTH,
    metadata: Metadata = None,
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
    csv: AsCsv = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
) -> None:
    """Judge how sure a system says it is: calibration, risk where unsure cases are left out, net benefit."""
    from reveal_bench import api
    from reveal_bench.evaluation.confidence import POOLED

    terminal.check_outside_datasets(out, "--out")
    result = api.confidence(
        file,
        folder,
        split=split,
        thresholds=thresholds_of(metadata),
        allow_missing=allow_missing,
        n_bins=n_bins,
        binning=binning.value,
    )
    terminal.write_tables(result, out)
    if as_json:
        terminal.print_tables(result)
        return
    if terminal.printed_as(result, csv=csv, markdown=markdown, latex=latex):
        return
    terminal.print_shown(result)
    typer.echo()
    terminal.print_shown(result.coverage_of(POOLED))


def curves(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for all tables as CSV, figures as SVG and PNG; replaces those there.")
    ] = None,
    metadata: Metadata = None,
    beside: Annotated[
        list[Path] | None, typer.Option(help="Prediction file of another detector, for the figures alone; repeatable.")
    ] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap replicates.")] = 1000,
    as_json: AsJson = False,
    csv: AsCsv = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
) -> None:
    """Show what a detector finds at every threshold: FROC with bands, precision and recall, sensitivity by size."""
    from reveal_bench import api
    from reveal_bench.api.given import name_of

    terminal.check_outside_datasets(out, "--out")
    thresholds = thresholds_of(metadata)
    others = {name_of(other, "other"): other for other in beside or ()}
    result = api.curves(file, folder, split=split, thresholds=thresholds, n_resamples=resamples, beside=others)
    terminal.write_tables(result, out)
    if as_json:
        terminal.print_tables(result)
    elif not terminal.printed_as(result, csv=csv, markdown=markdown, latex=latex):
        terminal.print_shown(result)


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
    split: Split = None,
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

    terminal.check_outside_datasets(out, "--out")
    result = api.shapes(
        folder, model, human, split=split, missing=missing, scale=scale.value, score_scale=score_scale.value
    )
    terminal.write_tables(result, out)
    if as_json:
        terminal.print_tables(result)
        return
    if terminal.printed_as(result, csv=csv, markdown=markdown, latex=latex):
        return
    # One regression of several: the others are in the files
    shown = result.tables | ({"regressions": result.regressions_of("simple")} if result.slopes else {})
    for table in shown.values():
        terminal.print_shown(table)
        typer.echo()
