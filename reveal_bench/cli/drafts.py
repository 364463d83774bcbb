"""The command ``draft-ratings``: a model rates answers to open tasks, told beside its agreement with readers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.curate import ANSWERS, Connections, Model, ModelOptions, asker_of, counted
from reveal_bench.cli.output import Endpoint, PriceIn, PriceOut, check_outside_datasets
from reveal_bench.cli.report import labelled

__all__ = ["draft_ratings"]


def draft_ratings(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders and prediction files: MODEL=PATH, named as in --ratings.", show_default=False),
    ],
    folder: Annotated[Path, typer.Option(help="Dataset folder that the runs answered.", show_default=False)],
    ratings: Annotated[Path, typer.Option(help="Table of readers' ratings of some of the answers.")],
    out: Annotated[Path, typer.Option(help="Folder, private: drafts, agreement, and what the model answered.")],
    model: Model = None,
    endpoint: Endpoint = None,
    split: Annotated[str | None, typer.Option(help="Split with references; that of the runs by default.")] = None,
    model_options: ModelOptions = None,
    connections: Connections = 4,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
) -> None:
    """Draft ratings of answers to open tasks with a model, beside its agreement with readers; never a score."""
    from reveal_bench.api.verbs import read_ratings_given
    from reveal_bench.curation import draft_ratings as drafting
    from reveal_bench.reports.runs import load_runs, open_world

    check_outside_datasets(out, "--out")
    given = [labelled(one) for one in runs]
    world = open_world(folder, given, split)
    if world.kind.scored_by != "readers":
        rule = "must be of a benchmark whose answers readers rate"
        raise ValueError(f"`--folder` {rule}, got one of {world.kind.name}")
    readers = read_ratings_given(ratings, world.split) or ()
    asker = asker_of(out / ANSWERS, model, endpoint, model_options, connections, price_in, price_out)
    if asker is None:
        raise ValueError("`draft-ratings` needs `--model` and `--endpoint`")
    answers = {run.label: run.predictions[0] for run in load_runs(given, world)}
    with terminal.progress("drafting") as progress:
        drafts = drafting.draft_ratings(
            world.records, answers, readers, drafting.Grader(asker), progress=counted(progress, "drafting")
        )
    drafting.write_drafts(out, drafts)
    typer.echo(f"{len(drafts.drafts):,} drafts; beside readers (quadratic kappa; MAD: mean absolute difference):")
    for one in drafts.agreement:
        figures = f"kappa {one.cohen_kappa_quadratic:6.3f}  MAD {one.mean_absolute_difference:.2f}  n {one.n:,}"
        typer.echo(f"  {one.reader:<20}{one.criterion:<12}{figures}")
    if drafts.n_unread:
        terminal.warn([f"{drafts.n_unread:,} answers have no draft: the model said nothing that can be read"])
    typer.echo(f"wrote {out / 'drafts.csv'} and {out / 'agreement.csv'}; drafts are not scores")
