"""Commands of prediction files: baseline, lint, score, compare, rank; and ``metrics``, the table of metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.board import read_json
from reveal_bench.cli.output import (
    AllowMissing,
    AsJson,
    Folder,
    GridSize,
    PredictionFile,
    Ratings,
    Resamples,
    ResamplingUnit,
    Seed,
    Split,
)
from reveal_bench.files import replacing

if TYPE_CHECKING:
    from reveal_bench.evaluation.score import ScoredFile
    from reveal_bench.kinds.kind import Rows
    from reveal_bench.kinds.tasks.records import Rating

_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_BESIDE = {"submission.json", "run.json", "transcript.jsonl", "summary.json", "answers.jsonl"}
"""What stands beside predictions, in a run folder too."""
_COMPRESSED = (".gz", ".zst")


class Baseline(StrEnum):
    """Baselines that see no image."""

    CHANCE = "chance"
    LOCATION_PRIOR = "location-prior"


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
    from reveal_bench.kinds import kind_of
    from reveal_bench.kinds.folder import read_folder_info
    from reveal_bench.kinds.localization.records import read_localization, read_manifest
    from reveal_bench.predictions import predictions_to_jsonl

    kind = kind_of(read_folder_info(folder))
    if not kind.uses_grid:
        raise ValueError(f"baselines name a place on an image: {folder} is of {kind.name}, which has none")
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
    strata: Annotated[
        bool | None, typer.Option("--strata/--no-strata", help="Also score parts of the split, such as views.")
    ] = None,
    ratings: Ratings = None,
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
        thresholds=0.5 if metadata is None else read_json(metadata).get("thresholds", 0.5),
        allow_missing=allow_missing,
        n_resamples=resamples,
        seed=seed,
        unit=unit,
        interval=interval,
        strata=strata,
        ratings=ratings_of(read_ratings_file(ratings), file.name.split(".")[0]),
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


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new file beside `target` that takes its place when the block succeeds; until then `target` is untouched."""
    if target.exists() and not target.is_file():
        raise ValueError(f"{target} must be a file or not exist yet")
    with replacing(target) as new:
        yield new


def compare(
    file_a: PredictionFile,
    file_b: PredictionFile,
    folder: Folder,
    split: Split = "released",
    metric: Annotated[str | None, typer.Option(help="Metric to compare by; all that apply by default.")] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="Show the relative decrease from B, (B - A) / B, not A - B.")
    ] = False,
    allow_missing: AllowMissing = False,
    grid: GridSize = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    unit: ResamplingUnit = "patient",
    ratings: Ratings = None,
    as_json: AsJson = False,
) -> None:
    """Compare two prediction files on one split: paired differences with intervals and p."""
    from reveal_bench.evaluation import compare as comparison

    given = read_ratings_file(ratings)
    same = file_a.name == file_b.name  # as in two run folders
    names = [file.parent.name if same else _stem(file) for file in (file_a, file_b)]
    options: dict[str, Any] = {"allow_missing": allow_missing, "grid": grid, "unit": unit}
    scored, a = _score(file_a, folder, split, ratings=ratings_of(given, names[0]), **options)
    _, b = _score(file_b, folder, split, ratings=ratings_of(given, names[1]), **options)
    compared = (comparison.relative_decrease if relative else comparison.compare)(
        a,
        b,
        metrics=None if metric is None else [metric],
        n_resamples=resamples,
        seed=seed,
        unit=unit,
    )
    name_a, name_b = (f"{file.parent.name}/{file.name}" if same else file.name for file in (file_a, file_b))
    if as_json:
        document = _head(scored, resamples, seed) | {"a": name_a, "b": name_b}
        kind = "relative_decrease" if relative else "difference"
        _print_json(document | {"value": kind, "comparisons": comparison.as_records(compared)})
        return
    what = "decrease from B, (B - A) / B" if relative else "difference A - B"
    terminal.print_comparisons(
        compared,
        f"A {name_a}, B {name_b} on {_on(scored)}: {what} with 95 % interval and two-sided p, "
        f"{resamples} resamples of {unit}s, seed {seed}",
        what="decrease" if relative else "A - B",
    )


def rank(
    directory: Annotated[
        Path,
        typer.Argument(
            help="Folder of prediction files, of folders with one each, or of run folders.", show_default=False
        ),
    ],
    folder: Folder,
    split: Split = "released",
    metric: Annotated[
        str | None, typer.Option(help="Metric to rank by; that of the leaderboard by default.", show_default=False)
    ] = None,
    allow_missing: AllowMissing = False,
    grid: GridSize = None,
    resamples: Resamples = 10_000,
    seed: Seed = 0,
    unit: ResamplingUnit = "patient",
    ratings: Ratings = None,
    as_json: AsJson = False,
) -> None:
    """Rank all prediction files of a folder, with rank intervals and tiers of systems that are not told apart."""
    from reveal_bench.evaluation import compare as comparison
    from reveal_bench.kinds import kind_of
    from reveal_bench.kinds.folder import read_folder_info

    files = _prediction_files(directory)
    given = read_ratings_file(ratings)
    options: dict[str, Any] = {"allow_missing": allow_missing, "grid": grid, "unit": unit}
    scored = {
        name: _score(file, folder, split, ratings=ratings_of(given, name), **options) for name, file in files.items()
    }
    metric = kind_of(read_folder_info(folder)).primary if metric is None else metric
    systems = {name: rows for name, (_, rows) in scored.items() if metric in rows.metrics()}
    left_out = [file for name, file in files.items() if name not in systems]
    terminal.warn([f"{file} is not ranked: {metric!r} does not apply to it" for file in left_out])
    ranked = comparison.rank(
        systems,
        metric=metric,
        n_resamples=resamples,
        seed=seed,
        unit=unit,
    )
    first, _ = next(iter(scored.values()))
    if as_json:
        sources = {name: file.relative_to(directory).as_posix() for name, file in files.items()}
        records = [record | {"file": sources[record["name"]]} for record in comparison.as_records(ranked)]
        _print_json(_head(first, resamples, seed) | {"metric": metric, "systems": records})
        return
    systems_on = f"{len(ranked)} system{'s' * (len(ranked) > 1)} on {_on(first)}"
    terminal.print_ranking(
        ranked,
        f"{systems_on}: macro over {ranked[0].n} {terminal.groups_of(metric)}, 95 % intervals, "
        f"{resamples} resamples of {unit}s, seed {seed}",
    )


def read_ratings_file(path: Path | None) -> list[Rating] | None:
    """The ratings of a table, None without one."""
    if path is None:
        return None
    from reveal_bench.sources.rexecution_files import read_ratings_table

    return read_ratings_table(path)


def ratings_of(ratings: list[Rating] | None, model: str) -> list[Rating] | None:
    """Those of `model`; all of them where the table is of one model alone."""
    if ratings is None or len({rating.model for rating in ratings}) == 1:
        return ratings
    found = [rating for rating in ratings if rating.model == model]
    if not found:
        known = ", ".join(sorted({rating.model for rating in ratings}))
        raise ValueError(f"`ratings` must have ratings of {model!r}, the name of the file, got those of {known}")
    return found


def _score(
    file: Path,
    folder: Path,
    split: str,
    *,
    ratings: list[Rating] | None,
    allow_missing: bool,
    grid: int | None,
    unit: str,
) -> tuple[ScoredFile, Rows]:
    from reveal_bench.evaluation.score import score_file

    # Its own intervals are not shown, so one replicate will do
    options: dict[str, Any] = {"n_resamples": 1, "unit": unit, "strata": False}
    scored = score_file(file, folder, split, ratings=ratings, grid=grid, allow_missing=allow_missing, **options)
    return scored, scored.rows


def _prediction_files(directory: Path) -> dict[str, Path]:
    """Name -> prediction file: of each file its name without endings, of each sub-folder its own name."""
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder")
    files: dict[str, Path] = {}
    for entry in sorted(directory.iterdir()):
        found = sorted(filter(_is_prediction_file, entry.iterdir() if entry.is_dir() else [entry]))
        if len(found) > 1:
            raise ValueError(f"{entry} must hold one prediction file, got {', '.join(path.name for path in found)}")
        for path in found:
            name = entry.name if entry.is_dir() else _stem(path)
            if name in files:
                raise ValueError(
                    f"{directory} must hold one prediction file for {name!r}, got {files[name]} and {path}"
                )
            files[name] = path
    if not files:
        raise ValueError(f"{directory} must hold prediction files ({', '.join(_SUFFIXES)}), got none")
    return files


def _is_prediction_file(path: Path) -> bool:
    return path.is_file() and path.name not in _BESIDE and _stem(path) != path.name


def _stem(path: Path) -> str:
    """The name without the ending of a format; the whole name where it has none."""
    name = path.name
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return path.name


def _on(scored: ScoredFile) -> str:
    manifest = scored.manifest
    return f"{manifest.benchmark} {manifest.version}, split {manifest.split}"


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


def metrics(
    names: Annotated[
        list[str] | None, typer.Argument(help="Metrics to show; all by default.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every metric: range, direction, when it is undefined, formula and source."""
    from reveal_bench.metrics import FAMILIES, METRICS
    from reveal_bench.metrics.docs import range_text

    unknown = [name for name in names or () if name not in METRICS]
    if unknown:
        raise ValueError(f"`names` must be among {', '.join(METRICS)}, got {unknown[0]!r}")
    chosen = [metric for metric in METRICS.values() if not names or metric.name in names]
    if as_json:
        typer.echo(json.dumps({"schema": 1, "metrics": [metric.to_dict() for metric in chosen]}, indent=2))
        return
    for family, about in FAMILIES.items():
        rows = [metric for metric in chosen if metric.family == family]
        if not rows:
            continue
        typer.echo(f"{family}: {about}")
        for metric in rows:
            better = {"higher": "up", "lower": "down", "neither": "-"}[metric.better]
            typer.echo(f"  {metric.name:<26}{range_text(metric):<12}{better:<6}{metric.title}: {metric.formula}")
            typer.echo(f"  {'':<44}undefined: {metric.undefined}; source: {metric.source}")
        typer.echo()
