"""Commands that set systems against each other: ``reveal-bench compare`` and ``reveal-bench rank``.

``reveal-bench metrics``: the table of metrics, for people and for scripts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reveal_bench.cli import output as terminal
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

if TYPE_CHECKING:
    from reveal_bench.evaluation.score import ScoredFile
    from reveal_bench.kinds.localization.scoring import CaseRows

__all__ = ["metrics"]

_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_BESIDE = {"submission.json", "run.json", "transcript.jsonl", "summary.json", "answers.jsonl"}
"""What stands beside predictions, in a run folder too."""
_COMPRESSED = (".gz", ".zst")


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
    as_json: AsJson = False,
) -> None:
    """Compare two prediction files on one split: paired differences with intervals and p."""
    from reveal_bench.evaluation import compare as comparison

    options: dict[str, Any] = {"allow_missing": allow_missing, "grid": grid, "unit": unit}
    scored, a = _score(file_a, folder, split, **options)
    _, b = _score(file_b, folder, split, **options)
    compared = (comparison.relative_decrease if relative else comparison.compare)(
        a,
        b,
        metrics=None if metric is None else [metric],
        n_resamples=resamples,
        seed=seed,
        unit=unit,  # type: ignore[arg-type]
    )
    same = file_a.name == file_b.name  # as in two run folders
    name_a, name_b = (f"{file.parent.name}/{file.name}" if same else file.name for file in (file_a, file_b))
    if as_json:
        document = _head(scored, resamples, seed) | {"a": name_a, "b": name_b}
        kind = "relative_decrease" if relative else "difference"
        _print_json(document | {"value": kind, "comparisons": comparison.as_records(compared)})
        return
    what = "decrease from B, (B - A) / B" if relative else "difference A - B"
    terminal.print_comparisons(
        compared,
        f"A {name_a}, B {name_b} on {_on(scored)}: percent, {what} with 95 % interval and two-sided p, "
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
    metric: Annotated[str, typer.Option(help="Metric to rank by.")] = "point_hit",
    allow_missing: AllowMissing = False,
    grid: GridSize = None,
    resamples: Resamples = 10_000,
    seed: Seed = 0,
    unit: ResamplingUnit = "patient",
    as_json: AsJson = False,
) -> None:
    """Rank all prediction files of a folder, with rank intervals and tiers of systems that are not told apart."""
    from reveal_bench.evaluation import compare as comparison

    files = _prediction_files(directory)
    scored = {
        name: _score(file, folder, split, allow_missing=allow_missing, grid=grid, unit=unit)
        for name, file in files.items()
    }
    systems = {name: rows for name, (_, rows) in scored.items() if metric in rows.values}
    left_out = [file for name, file in files.items() if name not in systems]
    terminal.warn([f"{file} is not ranked: {metric!r} does not apply to it" for file in left_out])
    ranked = comparison.rank(
        systems,
        metric=metric,
        n_resamples=resamples,
        seed=seed,
        unit=unit,  # type: ignore[arg-type]
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
        f"{systems_on}: macro over {ranked[0].n} findings in percent, 95 % intervals, "
        f"{resamples} resamples of {unit}s, seed {seed}",
    )


def _score(
    file: Path, folder: Path, split: str, *, allow_missing: bool, grid: int | None, unit: str
) -> tuple[ScoredFile, CaseRows]:
    from reveal_bench.evaluation.score import score_file
    from reveal_bench.kinds.localization.scoring import CaseRows

    # Its own intervals are not shown, so one replicate will do
    scored = score_file(file, folder, split, grid=grid, allow_missing=allow_missing, n_resamples=1, unit=unit)
    if not isinstance(scored.rows, CaseRows):
        raise ValueError(f"{folder} must be of a localization benchmark, got {scored.manifest.benchmark}")
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
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
