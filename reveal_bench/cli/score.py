"""Commands for prediction files: baseline, lint, score, compare, rank; and ``metrics``, the list of metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.board import read_json
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import (
    AllowMissing,
    AsJson,
    FindingGroups,
    Findings,
    FirstItems,
    Folder,
    Format,
    GridSize,
    Metadata,
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
from reveal_bench.cli.score_tables import (
    Compat,
    replacing_file,
    write_published_tables,
    write_tables,
)
from reveal_bench.predictions.files import metadata_beside

if TYPE_CHECKING:
    from reveal_bench.evaluation.score import AnsweredOnly, ScoredFile
    from reveal_bench.kinds.options import Thresholds
    from reveal_bench.metrics.intervals import Estimate


def baseline(
    name: Annotated[
        Literal["chance", "location-prior", "human"], typer.Argument(help="Which baseline.", show_default=False)
    ],
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Prediction file to write (JSONL).", show_default=False), OUTPUT],
    split: Split = None,
    fit_split: Annotated[str, typer.Option(help="Split that location-prior learns from.")] = "released",
    seed: Seed = 0,
) -> None:
    """Write baseline answers: made without the image, as a lower bound for models, or the benchmark readers'."""
    from reveal_bench.evaluation.baselines import (
        chance_baseline,
        fit_location_prior,
        human_baseline,
        location_prior_baseline,
    )
    from reveal_bench.kinds import KINDS
    from reveal_bench.kinds.folder import check_split, chosen_split, read_folder_info

    split = chosen_split(folder, split)
    kind = KINDS[read_folder_info(folder).kind]
    if not kind.predictions.names_places:
        raise ValueError(
            f"baselines need positions on images, but {folder} is a benchmark of {kind.name} without positions"
        )
    manifest = kind.questions.read_manifest(folder, split)
    shares: dict[str, float] | None = None
    if name == "location-prior" and fit_split == split:
        terminal.warn([f"location-prior learns from the split that it answers, {split!r}, so its score is too good"])
    if name == "chance":
        predictions = chance_baseline(manifest, seed=seed)
    elif name == "human":
        predictions = human_baseline(manifest, list(kind.data.read_references(folder, split)))
        shares = dict.fromkeys(manifest.findings, 1.0)
        n_asked = len(manifest.asked_pairs())
        n_missing, n_unmasked = n_asked - len(predictions), sum(one.mask is None for one in predictions)
        if n_missing or n_unmasked:
            left_out = f"the readers left out {n_missing} of {n_asked} questions, and the masks of {n_unmasked} others"
            terminal.warn([f"{left_out}: score the file with --missing miss, or empty as the published code has it"])
    else:
        check_split(read_folder_info(folder), folder, fit_split, argument="fit_split")
        records = kind.data.read_records(folder, fit_split)
        shares = {finding: sum(finding in record.labels for record in records) / max(len(records), 1)
                  for finding in manifest.findings}  # fmt: skip
        priors = fit_location_prior(records, manifest.findings, grid=manifest.grid)
        pooled = sorted(finding for finding, prior in priors.items() if prior.n == 0)
        if pooled:
            terminal.warn(
                [f"split {fit_split!r} has no mask of {', '.join(pooled)}: the prior of all findings is used"]
            )
        predictions = location_prior_baseline(manifest, priors)
    predictions = kind.predictions.answers_at(predictions, manifest, shares=shares, seed=seed)
    with replacing_file(out) as new:
        new.write_text(kind.predictions.to_jsonl(predictions), encoding="utf-8")
    typer.echo(f"wrote {len(predictions)} predictions to {out}")


def lint(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    limit: FirstItems = None,
    allow_missing: AllowMissing = False,
    grid: GridSize = None,
    every: Annotated[bool, typer.Option("--all", help="Show every problem instead of one line per rule.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a prediction file against the public manifest, and list all problems with line numbers."""
    from reveal_bench import api

    asked = terminal.asked_part(folder, split, findings, subset, [file], limit=limit)
    report = api.lint(file, asked, split=split, grid=grid, allow_missing=allow_missing)
    most = len(report.problems) if every else 50
    if as_json:
        typer.echo(report.to_json().rstrip())
    else:
        terminal.say(report.render(most, every=every).rstrip())
    if not report.ok:
        raise typer.Exit(1)


def score(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    limit: FirstItems = None,
    allow_missing: AllowMissing = False,
    missing: Missing = None,
    criterion: Annotated[
        str | None,
        typer.Option(help="Criterion for a hit in FROC: centre (default), mask, iou_50, iobb_50."),
    ] = None,
    grid: GridSize = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    unit: ResamplingUnit = "patient",
    interval: Annotated[
        str | None,
        typer.Option(
            help="Kind of interval: jackknife, percentile, bca or chexlocalize; for detection shifted or "
            "percentile. The first is the default."
        ),
    ] = None,
    strata: Annotated[
        bool | None, typer.Option("--strata/--no-strata", help="Also score strata of the split, such as views.")
    ] = None,
    finding_groups: FindingGroups = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Also score groups of patients by a column, such as sex, or by two: sex,age. Repeatable."),
    ] = None,
    bands: Annotated[
        str | None, typer.Option(help="Limits that divide a numeric column of --by into groups: 40,65.")
    ] = None,
    readers: Annotated[
        bool, typer.Option("--readers", help="Also score against single readers, and against their consensus.")
    ] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Also show published results on the same data and metrics.")
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Only show these metrics, separated by commas (--json has all). --by and --readers show only one, by "
            "default the ranking metric."
        ),
    ] = None,
    ratings: Ratings = None,
    form: Format = None,
    as_json: AsJson = False,
    wide: Wide = False,
    rows: Annotated[Path | None, typer.Option(help="Also write scores per case to this Parquet file."), OUTPUT] = None,
    pixels: Annotated[
        Path | None,
        typer.Option(help="Also write precision, recall, specificity and NPV of pixels to this CSV file."),
        OUTPUT,
    ] = None,
    boundaries: Annotated[
        Path | None,
        typer.Option(help="Also write Dice and boundary agreement of masks (NSD, HD95) to this CSV file."),
        OUTPUT,
    ] = None,
    box_accuracy: Annotated[
        Path | None,
        typer.Option(help="Also write accuracy of boxes at IoU and IoBB above 0.1 to 0.9 to this CSV file."),
        OUTPUT,
    ] = None,
    metadata: Metadata = None,
    compat: Annotated[Compat | None, typer.Option(help="Also write the tables of a paper's published code.")] = None,
    tables: Annotated[Path | None, typer.Option(help="Folder for the tables of --compat."), OUTPUT] = None,
    human: Annotated[bool, typer.Option("--human", help="Name the tables as for the human benchmark.")] = False,
) -> None:
    """Score a prediction file locally: every metric per finding and as macro mean, with 95% intervals."""
    from reveal_bench.api.bench import as_asked_bench
    from reveal_bench.api.scoring import score_with
    from reveal_bench.kinds.options import ScoringOptions
    from reveal_bench.metrics.scales import intervals_text

    form = terminal.format_of(form, as_json)
    if (compat is None) != (tables is None):
        raise ArgumentError("compat", "must be given if and only if `tables` is", others=("tables",))
    options = ScoringOptions(
        resamples,
        seed,
        unit,
        interval,
        grid,
        thresholds_of(metadata),
        allow_missing,
        missing,
        criterion,
        strata,
        finding_groups=finding_groups or None,
    )
    asked = terminal.asked_part(folder, split, findings, subset, [file], limit=limit)
    result = score_with(
        file,
        asked,
        options,
        split=split,
        ratings=ratings,
        by=by,
        bands=None if bands is None else terminal.numbers_of("bands", bands),
        readers=readers,
        published=published,
        metric=metric,
    )
    scored = result.scored
    if compat is not None and tables is not None:
        write_published_tables(scored, compat, tables, human=human)
    paths = {"rows": rows, "pixels": pixels, "boundaries": boundaries, "box_accuracy": box_accuracy}
    write_tables(file, as_asked_bench(asked, split, runs=[file]), scored, **paths)
    if form == "json":
        typer.echo(json.dumps(result.to_document(), indent=2))
        return
    terminal.warn([*scored.notes, *terminal.warnings_of(scored.report.problems, scored.report.format)])
    terminal.warn(unused_thresholds(file, scored, "--metadata FILE") if metadata is None else [])
    _tell_of_tuning(file, scored)
    printed = result.subgroups or result.readers or result.published or result
    if terminal.printed_as(printed, form):
        return
    terminal.print_scores(
        result.estimates,
        lambda units: f"{file.name} on {scored.place}: {units} with {intervals_text(scored.options.resampling)}",
        None if result.selected else scored.leading_in_strata,
        positives=scored.rows.positives,
        wide=wide,
    )
    for remark in result.remarks:
        terminal.say(remark)
    if scored.options.finding_groups:
        terminal.print_group_macros(result.finding_groups, wide=wide)
    if scored.answered is not None:
        _print_answered(file, scored.answered, result.answered_estimates, wide=wide)
    for part in (result.subgroups, result.readers, result.published):
        if part is not None:
            typer.echo()
            terminal.print_shown(part, wide=None if part is result.readers else wide)


def _print_answered(file: Path, answered: AnsweredOnly, estimates: Sequence[Estimate], *, wide: bool) -> None:
    """Print the scores of answered questions alone, for a system that abstained on others."""
    typer.echo()
    about = f"{file.name}, answered questions alone: {answered.in_words}"
    if estimates:
        terminal.print_scores(estimates, lambda _: about, wide=wide)
    else:
        typer.echo(f"{about}: none")


def thresholds_of(metadata: Path | None) -> Thresholds | None:
    """Return the thresholds of a submission.json, None if it has none, and the record of their tuning if any."""
    from reveal_bench.kinds.options import TunedThresholds, Tuning

    document = {} if metadata is None else read_json(metadata)
    stated, tuning = document.get("thresholds"), document.get("tuning")
    if not isinstance(stated, dict) or tuning is None:
        return cast("Thresholds | None", stated)
    try:
        return TunedThresholds(stated, Tuning(**tuning))
    except TypeError:
        rule = "must be in the format of `reveal-bench tune`: tune again, or remove this field"
        raise ArgumentError("tuning", f"of {metadata} {rule}", repr(tuning)[:80]) from None


def unused_thresholds(file: Path, scored: ScoredFile, option: str) -> list[str]:
    """Return a warning of unused thresholds beside the file, which a leaderboard would apply."""
    beside = metadata_beside(file)
    if beside is None or "thresholds" not in scored.protocol or thresholds_of(beside) in (None, 0.5):
        return []
    return [f"{beside} has thresholds that were not applied: `{option}` applies these thresholds"]


def _tell_of_tuning(file: Path, scored: ScoredFile) -> None:
    """Warn if the file was made from heat maps with settings tuned on the scored split."""
    beside = file.with_name(f"{file.name}.options.json")
    if beside.is_file():
        record = read_json(beside)
        same = [f"its {name} was" for name, how in record.get("tuned", {}).items() if how["split"] == record["split"]]
        if same and record["split"] == scored.manifest.split:
            terminal.warn([f"{one} tuned on this split, so the score is too good (see {beside.name})" for one in same])


def metrics(
    names: Annotated[
        list[str] | None, typer.Argument(help="Metrics to show; by default all.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all metrics with range, direction, undefined cases, formula and source."""
    from reveal_bench.metrics import FAMILIES, METRICS
    from reveal_bench.metrics.scales import range_text

    unknown = [name for name in names or () if name not in METRICS]
    if unknown:
        raise ArgumentError("names", f"must be among {', '.join(METRICS)}", repr(unknown[0]))
    listed = [metric for metric in METRICS.values() if not names or metric.name in names]
    if as_json:
        typer.echo(json.dumps({"schema": 1, "metrics": [metric.to_dict() for metric in listed]}, indent=2))
        return
    for family, about in FAMILIES.items():
        rows = [metric for metric in listed if metric.family == family]
        if not rows:
            continue
        terminal.say(f"{family}: {about}")
        for metric in rows:
            better = {"higher": "up", "lower": "down", "neither": "-"}[metric.better]
            terminal.say(f"  {metric.name:<29}{range_text(metric):<12}{better:<6}{metric.title}: {metric.formula}")
            terminal.say(f"    undefined: {metric.undefined}; source: {metric.source}")
        typer.echo()
