"""Commands for decision thresholds: ``tune`` and ``operating-points``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import (
    AsJson,
    Findings,
    Folder,
    Format,
    Metadata,
    PredictionFile,
    Resamples,
    Seed,
    Split,
    Subset,
    Wide,
)
from reveal_bench.cli.score import thresholds_of
from reveal_bench.predictions.files import metadata_path

Metric = Annotated[
    Literal["f1", "youden", "cohen_kappa"] | None,
    typer.Option(help="Choose the threshold with the highest value of this metric."),
]
Sensitivity = Annotated[
    float | None, typer.Option(help="Minimum sensitivity; the threshold with the highest specificity is chosen.")
]
Specificity = Annotated[
    float | None, typer.Option(help="Minimum specificity; the threshold with the highest sensitivity is chosen.")
]
Ppv = Annotated[float | None, typer.Option(help="Minimum PPV; the threshold with the highest sensitivity is chosen.")]


def tune(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    metric: Metric = None,
    sensitivity: Sensitivity = None,
    specificity: Specificity = None,
    ppv: Ppv = None,
    otherwise: Annotated[
        float | None,
        typer.Option(
            help="Threshold for findings where none can be chosen, such as findings without a positive study."
        ),
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option(help="File to write; by default FILE.submission.json, or submission.json of one file."),
        OUTPUT,
    ] = None,
    form: Format = None,
    as_json: AsJson = False,
    wide: Wide = False,
) -> None:
    """Choose a threshold per finding on one split, and write these to a file for scoring another split."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    result = api.tune_thresholds(
        file,
        terminal.asked_part(folder, split, findings, subset, [file]),
        split=split,
        metric=metric,
        sensitivity=sensitivity,
        specificity=specificity,
        ppv=ppv,
        otherwise=otherwise,
    )
    target = metadata or metadata_path(file)
    replaced = result.write(target)
    terminal.warn([*result.warnings, *([f"{target}: {replaced}"] if replaced else [])])
    if not terminal.printed_as(result, form):
        terminal.print_shown(result, wide=wide)
    typer.echo(f"wrote thresholds to {target}: `score --metadata {target}` applies them", err=True)


def operating_points(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    metadata: Metadata = None,
    sensitivity: Sensitivity = None,
    specificity: Specificity = None,
    prevalence: Annotated[
        list[str] | None,
        typer.Option(help="Also show PPV and NPV at this prevalence, such as 0.02 or Edema=0.02; repeatable."),
    ] = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    form: Format = None,
    as_json: AsJson = False,
    wide: Wide = False,
) -> None:
    """Show sensitivity, specificity and predictive values at fixed thresholds, or at one fixed rate."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    result = api.operating_points(
        file,
        terminal.asked_part(folder, split, findings, subset, [file]),
        split=split,
        thresholds=thresholds_of(metadata),
        sensitivity=sensitivity,
        specificity=specificity,
        prevalence=_prevalences_of(prevalence),
        n_resamples=resamples,
        seed=seed,
    )
    if not terminal.printed_as(result, form):
        terminal.print_shown(result, wide=wide)
        if result.no_interval:
            terminal.say(f"{result.no_interval}: docs/confidence.md")


def _prevalences_of(words: list[str] | None) -> float | dict[str, float] | None:
    """Return one prevalence, or finding -> prevalence, from the values of ``--prevalence``."""
    if not words:
        return None
    pairs = [word.rpartition("=") for word in words]
    try:
        by_finding = {name: float(value) for name, _, value in pairs}
    except ValueError:
        raise ArgumentError("prevalence", "must be a number, or FINDING=NUMBER", " ".join(words)) from None
    if "" in by_finding and len(words) > 1:
        raise ArgumentError("prevalence", "must be one number, or FINDING=NUMBER for each finding", " ".join(words))
    return by_finding.get("", by_finding)
