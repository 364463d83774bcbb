"""The command ``readers``: a reader study from a table of readings."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.output import AsCsv, AsJson, AsLatex, AsMarkdown

__all__ = ["readers"]


class Merit(StrEnum):
    """Figures of merit: the keys of :data:`reveal_bench.reader_studies.study.FIGURES`."""

    AUC = "auc"
    SENSITIVITY = "sensitivity"
    SPECIFICITY = "specificity"
    ACCURACY = "accuracy"
    KAPPA = "kappa"
    HIT_RATE = "hit_rate"


def readers(
    table: Annotated[
        Path,
        typer.Argument(
            help="Table with a row per reader, case and modality: reader, case, modality, score, truth, patient.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ],
    merit: Annotated[Merit, typer.Option(help="Figure of merit of a reader with a modality.")] = Merit.AUC,
    column: Annotated[
        list[str] | None, typer.Option(help="What the table calls a column, such as score=rating; several times.")
    ] = None,
    fixed_readers: Annotated[
        bool, typer.Option("--fixed-readers", help="Say it of these readers alone, not of others like them.")
    ] = False,
    fixed_cases: Annotated[
        bool, typer.Option("--fixed-cases", help="Say it of these cases alone, not of others like them.")
    ] = False,
    margin: Annotated[
        float | None, typer.Option(help="Say whether the first modality is non-inferior: how much worse it may be.")
    ] = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    markdown: AsMarkdown = False,
    latex: AsLatex = False,
) -> None:
    """Analyse a reader study: modalities compared over several readers of the same cases."""
    from reveal_bench import api

    result = api.readers(
        table,
        merit=merit.value,
        columns=_named(column or []),
        readers_are="fixed" if fixed_readers else "random",
        cases_are="fixed" if fixed_cases else "random",
        margin=margin,
    )
    if as_json:
        document = {
            "schema": 1,
            "merit": result.merit,
            "readers": result.analysis.readers_are,
            "cases": result.analysis.cases_are,
            "results": result.plain,
            "by_reader": result.by_reader(),
        }
        typer.echo(json.dumps(document, indent=2))
        return
    if terminal.printed_as(result, csv=csv, markdown=markdown, latex=latex):
        return
    terminal.print_shown(result)


def _named(columns: list[str]) -> dict[str, Any]:
    wrong = [text for text in columns if text.count("=") != 1]
    if wrong:
        raise ValueError(f"`--column` must be NAME=COLUMN, such as score=rating, got {wrong[0]!r}")
    return dict(text.split("=") for text in columns)
