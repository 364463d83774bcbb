"""Commands that compare systems: compare and rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.analyses import ReaderNames, reader_inputs
from reveal_bench.cli.board import own_metadata
from reveal_bench.cli.inputs import OUTPUT, require_files
from reveal_bench.cli.output import (
    AllowMissing,
    AsJson,
    FindingGroups,
    Findings,
    FirstItems,
    Folder,
    Format,
    GridSize,
    Missing,
    PredictionFile,
    Ratings,
    Resamples,
    ResamplingUnit,
    Seed,
    Split,
    Subset,
    Wide,
)
from reveal_bench.cli.score import thresholds_of, unused_thresholds
from reveal_bench.cli.score_tables import Compat

if TYPE_CHECKING:
    from reveal_bench.api.bench import AnyBench
    from reveal_bench.api.score_tables import Scores
    from reveal_bench.evaluation.score import ScoredFile
    from reveal_bench.kinds.options import ScoringOptions

OwnThresholds = Annotated[
    bool,
    typer.Option("--own-thresholds", help="Apply the thresholds of FILE.submission.json or submission.json."),
]
PairedInterval = Annotated[Literal["jackknife", "percentile"], typer.Option(help="Method for intervals, p and tiers.")]


def compare(
    file_a: PredictionFile,
    file_b: PredictionFile,
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    limit: FirstItems = None,
    metric: Annotated[str | None, typer.Option(help="Metric to compare; by default all that apply.")] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="Show the relative decrease (B - A) / B instead of A - B.")
    ] = False,
    margin: Annotated[
        float | None, typer.Option(help="Test whether A is non-inferior to B; 0.05 allows a loss of 5 points.")
    ] = None,
    equivalence: Annotated[
        bool, typer.Option("--equivalence", help="Test equivalence: a gain must also be below the margin.")
    ] = False,
    compat: Annotated[Compat | None, typer.Option(help="Compute --relative as in a paper's published code.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for tables (CSV) and figures (SVG, PNG) of --relative.", show_default=False),
        OUTPUT,
    ] = None,
    own_thresholds: OwnThresholds = False,
    allow_missing: AllowMissing = False,
    missing: Missing = None,
    grid: GridSize = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    unit: ResamplingUnit = "patient",
    interval: PairedInterval = "jackknife",
    finding_groups: FindingGroups = None,
    ratings: Ratings = None,
    form: Format = None,
    as_json: AsJson = False,
    wide: Wide = False,
) -> None:
    """Compare two models on one split: paired differences with intervals and p values, non-inferiority."""
    from reveal_bench.api.bench import as_asked_bench
    from reveal_bench.api.scoring import compare_with
    from reveal_bench.kinds.options import ScoringOptions

    form = terminal.format_of(form, as_json)
    if out is not None and not relative:
        raise ArgumentError("out", "needs `relative`, whose tables it is for", str(out), ("relative",))
    terminal.check_outside_datasets(out, "--out")
    options = ScoringOptions(
        resamples,
        seed,
        unit,
        interval,
        grid,
        allow_missing=allow_missing,
        missing=missing,
        finding_groups=finding_groups or None,
    )
    asked = terminal.asked_part(folder, split, findings, subset, [file_a, file_b], limit=limit)
    systems: list[Path | Scores] = [file_a, file_b]
    if own_thresholds:
        asked = as_asked_bench(asked, split, runs=[file_a, file_b])
        systems = [_at_own_thresholds(file, asked, options, split=split, ratings=ratings) for file in (file_a, file_b)]
    result = compare_with(
        systems[0],
        systems[1],
        asked,
        options,
        split=split,
        metric=metric,
        relative=relative,
        ratings=ratings,
        margin=margin,
        equivalence=equivalence,
        compat=compat,
    )
    _warn_of([(file_a, result.scored_a), (file_b, result.scored_b)], own_thresholds)
    terminal.write_tables(result, out)
    same = file_a.name == file_b.name  # files in run folders have the same name
    name_a, name_b = (f"{file.parent.name}/{file.name}" if same else file.name for file in (file_a, file_b))
    _warn_of_shortest({name_a: file_a, name_b: file_b}, result.scored_b)
    if form == "json":
        document = _head(result.scored_b, resamples, seed) | {"a": name_a, "b": name_b}
        if own_thresholds:
            document["protocol"] |= _thresholds({name_a: result.scored_a, name_b: result.scored_b})
        kind = "relative_decrease" if relative else "difference"
        _print_json(document | {"value": kind, "comparisons": result.records})
        return
    if terminal.printed_as(result, form):
        return
    result = replace(result, a=name_a, b=name_b)
    terminal.print_comparisons(result.comparisons, result.caption, what="decrease" if relative else "A - B", wide=wide)
    for sentence in (*result.remarks, *result.verdicts):
        terminal.say(sentence)


def rank(
    systems: Annotated[
        list[str],
        typer.Argument(
            help="Folder of prediction files, of folders with one file each, or of run folders; or several runs and "
            "prediction files, optionally with names: NAME=PATH.",
            show_default=False,
        ),
    ],
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    limit: FirstItems = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric to rank by; by default the leaderboard's.", show_default=False)
    ] = None,
    own_thresholds: OwnThresholds = False,
    allow_missing: AllowMissing = False,
    grid: GridSize = None,
    resamples: Resamples = 10_000,
    seed: Seed = 0,
    unit: ResamplingUnit = "patient",
    interval: PairedInterval = "jackknife",
    finding_groups: FindingGroups = None,
    ratings: Ratings = None,
    reader: ReaderNames = None,
    printed: Annotated[
        Path | None, typer.Option(help="Table of a published board to show beside: `system` and its printed values.")
    ] = None,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Rank runs and prediction files, with rank intervals and tiers of statistically tied systems."""
    from reveal_bench.api.bench import as_asked_bench
    from reveal_bench.api.scoring import rank_with
    from reveal_bench.kinds.options import ScoringOptions
    from reveal_bench.predictions.files import folders_without_predictions, prediction_files, split_of_runs
    from reveal_bench.viewer.gallery import named_files

    form = terminal.format_of(form, as_json)
    directory = Path(systems[0]) if len(systems) == 1 else None
    require_files(*filter(None, [directory]))
    files = named_files(systems) if directory is None else prediction_files(directory)
    other = {name: own for name, file in files.items() if (own := split_of_runs([file])) not in (None, split)}
    if split is not None:
        terminal.warn(
            [f"{files.pop(name)} is not ranked: its run answered split {own!r}" for name, own in other.items()]
        )
    options = ScoringOptions(
        resamples, seed, unit, interval, grid, allow_missing=allow_missing, finding_groups=finding_groups or None
    )
    asked = terminal.asked_part(folder, split, findings, subset, files.values(), limit=limit)
    inputs: dict[str, Path | Scores] = dict(files)
    if own_thresholds:
        asked = as_asked_bench(asked, split, runs=files.values())
        inputs = {
            name: _at_own_thresholds(file, asked, options, split=split, ratings=ratings)
            if file.stat().st_size
            else file
            for name, file in files.items()
        }
    readers = reader_inputs(reader)
    result = rank_with(
        inputs, asked, options, split=split, metric=metric, ratings=ratings, readers=readers, printed=printed
    )
    _warn_of([(files[name], scored) for name, scored in result.scored.items()], own_thresholds)
    terminal.warn([f"{files[name]} is not ranked: the file contains no predictions" for name in result.empty])
    without = {} if directory is None else folders_without_predictions(directory)
    terminal.warn([f"{entry} is not ranked: it has no predictions{why}" for entry, why in without.items()])
    _warn_of_shortest(files, next(iter(result.scored.values())))
    terminal.warn([f"{printed}: {name} is not among the ranked systems" for name in result.not_ranked])
    if form == "json":
        terminal.warn(result.not_applying)
        first = next(iter(result.scored.values()))
        sources = {name: file.relative_to(directory) if directory else file for name, file in files.items()}
        records = [record | {"file": sources[record["name"]].as_posix()} for record in result.records]
        document = _head(first, resamples, seed) | {"metric": result.metric, "systems": records}
        if result.by_group:
            document["finding_groups"] = {name: result.of_group(name).records for name in result.by_group}
        if own_thresholds:
            document["protocol"] |= _thresholds(result.scored)
        _print_json(document)
        return
    if terminal.printed_as(result, form):
        return
    groups = {name: result.of_group(name) for name in result.by_group}
    for name, one in {"": result, **groups}.items():
        if name:
            typer.echo(f"\n{name}")
        terminal.print_shown(one)
        for remark in (*[one.note] * bool(one.note), *one.remarks):
            terminal.say(remark)


def _thresholds(scored: Mapping[str, ScoredFile]) -> dict[str, Any]:
    """Return system -> thresholds, for the protocol in the JSON output."""
    return {"thresholds": {name: one.protocol.get("thresholds") for name, one in scored.items()}}


def _warn_of_shortest(files: Mapping[str, Path], scored: ScoredFile) -> None:
    """Name the runs that asked the fewest questions, if only a part of the questions could be scored."""
    if scored.options.part:
        from reveal_bench.kinds import KINDS
        from reveal_bench.predictions.files import shortest_runs

        shortest = shortest_runs(files, scored.manifest.split, KINDS[scored.rows.kind].key)
        terminal.warn([shortest] if shortest else [])


def _warn_of(files: Sequence[tuple[Path, ScoredFile]], own_thresholds: bool) -> None:
    for _, scored in files:
        terminal.warn([f"{scored.report.file}: {note}" for note in scored.rows.notes])
        terminal.warn([*scored.tuning_notes, *terminal.warnings_of(scored.report.problems, scored.report.format)])
    if not own_thresholds:  # files of one folder share a submission.json
        terminal.warn([*dict.fromkeys(text for one in files for text in unused_thresholds(*one, "--own-thresholds"))])


def _head(scored: ScoredFile, resamples: int, seed: int) -> dict[str, Any]:
    manifest = scored.manifest
    return {
        "schema": 1,
        "benchmark": manifest.benchmark,
        "version": manifest.version,
        "split": manifest.split,
        "references_sha256": scored.references_sha256,
        "protocol": scored.protocol | {"n_resamples": resamples, "seed": seed},
    }


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2))


def _at_own_thresholds(
    file: Path, folder: AnyBench, options: ScoringOptions, *, split: str | None, ratings: Path | None
) -> Scores:
    from reveal_bench.api.scoring import once, score_with
    from reveal_bench.predictions.files import metadata_path

    thresholds = thresholds_of(own_metadata(file))
    if thresholds is None:
        remedy = f"`tune` on another split writes them with `--metadata {metadata_path(file)}`"
        terminal.warn([f"{file.name} has no thresholds of its own, so 0.5 applies: {remedy}"])
    return score_with(file, folder, replace(once(options), thresholds=thresholds), split=split, ratings=ratings)
