"""The command line ``reveal-bench``: parse, call one library function, print.

Imports that take time stay inside the commands, so that ``reveal-bench --help`` answers at once. What a command is for
goes to standard output, all else (progress, warnings) to standard error; progress shows only on a terminal.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reveal_bench.cli import board as cli_receipt
from reveal_bench.cli import board as cli_submit
from reveal_bench.cli import curate as cli_curate
from reveal_bench.cli import data as cli_build
from reveal_bench.cli import data as cli_folder
from reveal_bench.cli import data as cli_publish
from reveal_bench.cli import output as terminal
from reveal_bench.cli import run as cli_report
from reveal_bench.cli import run as cli_run
from reveal_bench.cli import score as cli_compare
from reveal_bench.cli import score as cli_metrics
from reveal_bench.cli.output import (
    AllowMissing,
    AsJson,
    Folder,
    GridSize,
    PredictionFile,
    Resamples,
    ResamplingUnit,
    Seed,
    Split,
)
from reveal_bench.files import replacing

app = typer.Typer(
    name="reveal-bench",
    help="Benchmark datasets and metrics for chest-radiograph AI.",
    rich_markup_mode=None,  # plain help: importing rich would double the start-up time
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Baseline(StrEnum):
    """Baselines that see no image."""

    CHANCE = "chance"
    LOCATION_PRIOR = "location-prior"


def main() -> None:
    """Run the command line; an error that the user can mend is one message and exit code 1, without a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that half-written files are removed
    try:
        app()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, ImportError) as error:  # the last: an extra that is not installed
        typer.secho(f"error: {_as_options(str(error))}", fg="red", err=True)
        report = getattr(error, "report", None)
        if report is not None:
            typer.echo(report.render(), err=True)
        sys.exit(1)


REMEDIES = {
    "pictures": "give --pictures FOLDER, or --images withhold to build without them",
    "id_key": "give --id-key FILE: ids are made of UIDs with a secret; the file is made if it is missing",
    "mapping": "give --mapping FILE",
}


def _as_options(message: str) -> str:
    """A message of the library in the words of the command line: arguments become options, with a remedy."""
    for name in re.findall(r"`([a-z_]+)`", message):
        if name in ARGUMENTS:
            message = message.replace(f"`{name}`", f"--{name.replace('_', '-')}")
            if name in REMEDIES and REMEDIES[name] not in message:
                message += f"\n{REMEDIES[name]}"
    return message


ARGUMENTS = {
    "overwrite", "holdout", "holdout_split", "holdout_fraction", "previous", "previous_holdout", "version", "pictures",
    "id_key", "mapping", "out", "source", "retire_holdout",
}  # fmt: skip
"""Arguments of library functions that are options of the same name."""


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new file beside `target` that takes its place when the block succeeds; until then `target` is untouched."""
    if target.exists() and not target.is_file():
        raise ValueError(f"{target} must be a file or not exist yet")
    with replacing(target) as new:
        yield new


app.command()(cli_build.phantom)
app.command()(cli_build.inspect)
app.command()(cli_build.build)
app.command()(cli_folder.validate)
app.command()(cli_folder.diff)
app.command()(cli_report.report)
app.command()(cli_report.misses)
app.command()(cli_folder.attach)


@app.command()
def baseline(
    name: Annotated[Baseline, typer.Argument(help="Which baseline.", show_default=False)],
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Prediction file to write (JSONL).", show_default=False)],
    split: Split = "holdout",
    fit_split: Annotated[str, typer.Option(help="Split that location-prior learns from.")] = "released",
    seed: Seed = 0,
) -> None:
    """Answer every question of a split without looking: the floor that a model must beat."""
    from reveal_bench.evaluation.baselines import chance_baseline, fit_location_prior, location_prior_baseline
    from reveal_bench.kinds.localization.records import read_localization, read_manifest
    from reveal_bench.predictions import predictions_to_jsonl

    manifest = read_manifest(folder, split)
    if name is Baseline.LOCATION_PRIOR and fit_split == split:
        terminal.warn([f"location-prior learns from the split that it answers, {split!r}: it flatters itself there"])
    if name is Baseline.CHANCE:
        predictions = chance_baseline(manifest, seed=seed)
    else:
        records = read_localization(folder, fit_split)
        priors = fit_location_prior(records, manifest.findings, grid=manifest.grid)
        pooled = sorted(finding for finding, prior in priors.items() if prior.n == 0)
        if pooled:
            terminal.warn(
                [f"split {fit_split!r} has no mask of {', '.join(pooled)}: the prior of all findings stands in"]
            )
        predictions = location_prior_baseline(manifest, priors)
    with _replacing(out) as new:
        new.write_text(predictions_to_jsonl(predictions), encoding="utf-8")
    typer.echo(f"wrote {len(predictions)} predictions to {out}")


@app.command()
def lint(
    file: PredictionFile,
    folder: Folder,
    split: Split = "holdout",
    allow_missing: AllowMissing = False,
    grid: GridSize = None,
    as_json: AsJson = False,
) -> None:
    """Check a prediction file against the public manifest: all problems at once, with their lines."""
    from reveal_bench.evaluation.score import lint_file

    report = lint_file(file, folder, split, grid=grid, allow_missing=allow_missing)
    typer.echo((report.to_json() if as_json else report.render()).rstrip())
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def score(
    file: PredictionFile,
    folder: Folder,
    split: Split = "released",
    allow_missing: AllowMissing = False,
    grid: GridSize = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    unit: ResamplingUnit = "patient",
    interval: Annotated[str, typer.Option(help="Kind of interval: percentile, bca or chexlocalize.")] = "percentile",
    as_json: AsJson = False,
    rows: Annotated[Path | None, typer.Option(help="Also write the per-case rows to this Parquet file.")] = None,
    metadata: Annotated[Path | None, typer.Option(help="submission.json whose `thresholds` apply; 0.5 else.")] = None,
) -> None:
    """Score a prediction file at home: every metric per finding and as a macro, with 95 % intervals."""
    from reveal_bench.evaluation.score import score_file

    scored = score_file(
        file,
        folder,
        split,
        grid=grid,
        thresholds=0.5 if metadata is None else cli_submit.read_json(metadata).get("thresholds", 0.5),
        allow_missing=allow_missing,
        n_resamples=resamples,
        seed=seed,
        unit=unit,
        interval=interval,
    )
    if rows is not None:
        import pyarrow.parquet as pq

        with _replacing(rows) as new:
            pq.write_table(scored.rows.to_table(), new)
    if as_json:
        typer.echo(json.dumps(scored.to_document(), indent=2))
        return
    manifest = scored.manifest
    caption = (
        f"{file.name} on {manifest.benchmark} {manifest.version}, split {split}: percent with 95 % intervals, "
        f"{resamples} resamples of {unit}s, seed {seed}"
    )
    terminal.warn(scored.notes)
    if scored.strata:
        terminal.print_labels(scored.estimates, scored.strata, caption)
    else:
        terminal.print_scores(scored.estimates, caption)


app.command()(cli_run.run)
app.command(name="import-inspect")(cli_run.import_inspect)
app.command(name="export-lmms")(cli_run.export_lmms)
app.command(name="import-lmms")(cli_run.import_lmms)
app.command()(cli_compare.compare)
app.command()(cli_compare.rank)
app.command()(cli_metrics.metrics)
app.command()(cli_publish.publish)
app.command()(cli_submit.submit)
app.command()(cli_submit.status)
app.command()(cli_submit.withdraw)
app.command()(cli_submit.receipt)
app.command(name="verify-receipt")(cli_receipt.verify_receipt)
app.add_typer(cli_curate.app, name="curate")
