"""The runs that a report compares: read, checked against the folder, scored and resampled together.

Conventions
-----------
A run is a run folder (:mod:`reveal_bench.models.run_folder`) or a bare prediction file of any accepted format. All runs
answer one split of one dataset folder that holds its references. An unanswered question is a miss.

What is a hit depends on what a run predicts, as in paper 000 (section 3.3): for cells `grid_hit` at the run's own grid,
for points, boxes and masks `point_hit`. A run of several epochs has, for each question, the mean of its epochs; a run
that answered nothing at all has a miss everywhere. One draw of resampled units serves all runs, so that they can be
compared replicate by replicate; the standard deviation of a run is that of its replicates.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.score import LintError, lint_file
from reveal_bench.kinds.folder import FolderInfo, read_folder_info
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord, read_localization
from reveal_bench.kinds.localization.scoring import CaseRows, resample_systems, score_localization
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import (
    MACRO,
    BootstrapMeans,
    Estimate,
    estimates_from,
    percentile_interval,
    signature,
)
from reveal_bench.models.questions import describe_split
from reveal_bench.models.run_folder import Run, read_run

__all__ = ["MOST_RUNS", "ReportRun", "Scores", "World", "core_runs", "load_runs", "macro_of", "open_world",
           "score_runs", "short_names"]  # fmt: skip

MOST_RUNS = 12
"""Runs of one report; more cannot be told apart in a figure."""
MOST_LABEL = 200
PROTOCOLS = ("cell", "point", "box", "mask")
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class World:
    """What all runs answer: a split with its references."""

    folder: Path
    info: FolderInfo
    split: str
    records: Sequence[LocalizationRecord]

    @property
    def title(self) -> str:
        """Name of the benchmark for people."""
        known = BENCHMARKS.get(self.info.benchmark)
        name = known.title if known is not None else self.info.benchmark
        return f"a synthetic stand-in for {name}" if self.info.synthetic else name


@dataclass(frozen=True)
class ReportRun:
    """One run with its scored cases.

    Attributes
    ----------
    label : unique in the report
    model, style, grid : `style` is None for a prediction file and for models that get no prompt
    protocol : what it predicts: "cell", "point", "box", "mask", or "none" if it answered nothing
    predictions : per epoch
    rows : cases; `grid_hit`, `point_hit` and `grid_chance` alone, means over epochs
    epochs : the same per epoch
    run : the run folder; None for a prediction file
    n_missing : questions with a reference and without a prediction, over all epochs
    sha256 : of the prediction files, in order
    is_named : whether the user gave the label
    """

    label: str
    path: Path
    model: str
    style: str | None
    grid: int
    protocol: str
    predictions: tuple[tuple[LocalizationPrediction, ...], ...]
    rows: CaseRows
    epochs: tuple[CaseRows, ...]
    run: Run | None
    n_missing: int
    sha256: tuple[str, ...]
    is_named: bool = False

    @property
    def metric(self) -> str:
        """What a hit of this run is."""
        return "point_hit" if self.protocol in ("point", "box", "mask") else "grid_hit"


@dataclass(frozen=True)
class Scores:
    """Hit rates of runs on the findings that have cases, from one draw.

    Attributes
    ----------
    findings : those with at least one case, in the order of the vocabulary
    hits, chance : per run, a group per finding
    """

    runs: Sequence[ReportRun]
    findings: tuple[str, ...]
    hits: Sequence[BootstrapMeans]
    chance: Sequence[BootstrapMeans]
    n_resamples: int
    seed: int
    unit: str = "patient"

    def recipe(self, metric: str) -> str:
        """The signature of every number of `metric` here."""
        version = METRICS[metric].version
        return signature(metric, version, n_resamples=self.n_resamples, seed=self.seed, unit=self.unit)

    def estimates(self, index: int, *, chance: bool = False) -> dict[str, Estimate]:
        """Estimates of a run, or of its chance level, by finding and "macro"."""
        means = (self.chance if chance else self.hits)[index]
        metric = "grid_chance" if chance else self.runs[index].metric
        return {e.finding: e for e in estimates_from(means, self.findings, recipe=self.recipe(metric))}

    def deviations(self, index: int, *, chance: bool = False) -> dict[str, float]:
        """Standard deviation (ddof 1) over the defined replicates, by finding and "macro"."""
        means = (self.chance if chance else self.hits)[index]
        columns = {MACRO: means.macro()[1], **dict(zip(self.findings, means.replicates.T, strict=True))}
        return {name: _deviation(column) for name, column in columns.items()}

    def difference(self, a: int, b: int) -> tuple[float, float, float]:
        """Macro of run `a` minus that of run `b` with the ends of its paired 95 % interval."""
        (value_a, draws_a), (value_b, draws_b) = self.hits[a].macro(), self.hits[b].macro()
        low, high, _ = percentile_interval(draws_a - draws_b)
        return value_a - value_b, low, high


def _deviation(replicates: FloatArray) -> float:
    defined = replicates[~np.isnan(replicates)]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else float("nan")


def open_world(folder: Path, runs: Sequence[tuple[str, Path]], split: str | None = None) -> World:
    """The folder and split that `runs` answer.

    Parameters
    ----------
    split : by default that of the run folders; of prediction files alone, "released" or the only split

    Raises
    ------
    ValueError
        If the folder is not of kind localization, the split is not clear, or its references are private.
    """
    info = read_folder_info(folder)
    known = BENCHMARKS.get(info.benchmark)
    if known is not None and known.kind != "localization":
        raise ValueError(f"`folder` must be of a localization benchmark, got {info.benchmark}, of kind {known.kind}")
    if split is None:
        split = _only_split(info, [read_run(path).info.split for _, path in runs if Path(path).is_dir()])
    return World(Path(folder), info, split, read_localization(folder, split))


def _only_split(info: FolderInfo, of_runs: Sequence[str]) -> str:
    if len(set(of_runs)) > 1:
        raise ValueError(f"all runs of a report must answer one split, got {', '.join(sorted(set(of_runs)))}")
    if of_runs:
        return of_runs[0]
    if "released" in info.splits:
        return "released"
    if len(info.splits) == 1:
        return next(iter(info.splits))
    raise ValueError(f"`split` must be given: one of {', '.join(info.splits)}")


def load_runs(runs: Sequence[tuple[str, Path]], world: World, *, progress: Progress | None = None) -> list[ReportRun]:
    """Read, check and score the runs.

    Parameters
    ----------
    runs : (label, run folder or prediction file); an empty label is filled in from the model, and where these are equal
        from its style and grid too

    Raises
    ------
    ValueError
        If there are no or too many runs, two have one label, a path is neither kind of run, or a run is of another
        benchmark, version or split.
    LintError
        If a prediction file has errors; its `report` lists them.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"`runs` must be 1 to {MOST_RUNS} runs, got {len(runs)}")
    for _, path in runs:
        if not Path(path).exists():
            raise ValueError(f"{path} is neither a run folder nor a prediction file: there is nothing")
    folders = [_read_folder(Path(path), world) if Path(path).is_dir() else None for _, path in runs]
    grids = [run.info.grid for run in folders if run is not None]
    main_grid = world.info.grid if world.info.grid in grids or not grids else grids[0]
    labels = _labels([label for label, _ in runs], [Path(path) for _, path in runs], folders)
    loaded = []
    for number, ((_, path), run) in enumerate(zip(runs, folders, strict=True)):
        scored = _score(labels[number], Path(path), run, world, main_grid)
        loaded.append(replace(scored, is_named=bool(runs[number][0])))
        if progress is not None:
            progress("scored runs", number + 1, len(runs))
    return loaded


def _read_folder(path: Path, world: World) -> Run:
    run = read_run(path)
    mine = (world.info.benchmark, world.info.version, world.split)
    names = ("benchmark", "benchmark_version", "split")
    for name, wanted in zip(names, mine, strict=True):
        got = getattr(run.info, name)
        if got != wanted:
            raise ValueError(f"{path}: `{name}` must be that of the report, {wanted!r}, got {got!r}")
    if run.info.dataset not in (None, describe_split(world.folder, world.split)["dataset"]):
        raise ValueError(
            f"{path}: must answer {world.folder} as it is now, got answers to another build of that version"
        )
    return run


def _labels(given: Sequence[str], paths: Sequence[Path], folders: Sequence[Run | None]) -> list[str]:
    """The labels given; else the shortest of model, model and style, and model, style and grid that is its own."""
    stems = Counter(path.stem for path in paths)
    longer: list[tuple[str, ...]] = []
    for path, run in zip(paths, folders, strict=True):
        if run is None:
            name = path.stem if stems[path.stem] == 1 else f"{path.parent.name}/{path.stem}"
            longer.append((name, name, name))
            continue
        model, settings, grid = run.info.model, run.info.settings, run.info.grid
        styled = model if settings is None else f"{model}, {settings.style}"
        longer.append((model, styled, f"{styled}, {grid} × {grid}"))
    chosen = []
    for number, label in enumerate(given):
        taken = [{names[level] for i, names in enumerate(longer) if i != number} for level in range(3)]
        level = next((level for level in range(3) if longer[number][level] not in taken[level]), 2)
        chosen.append(label or longer[number][level])
    twice = [label for label, n in Counter(chosen).items() if n > 1]
    if twice:
        raise ValueError(f"`runs` must have labels of their own, got {twice[0]!r} twice: give LABEL=PATH")
    for label in chosen:
        if not (label.strip() and label.isprintable() and len(label) <= MOST_LABEL):
            got = repr(label[:40])
            raise ValueError(f"a label must be 1 to {MOST_LABEL} printable characters, got {got}: give LABEL=PATH")
    return chosen


def _score(label: str, path: Path, run: Run | None, world: World, main_grid: int) -> ReportRun:
    grid = main_grid if run is None else run.info.grid
    files = (path,) if run is None else run.predictions
    cases = {(record.image_id, finding) for record in world.records for finding in record.asked("present")}
    predictions, n_missing = [], 0
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not there: the run folder is damaged")
        if run is not None and not file.read_bytes().strip():  # nothing was answered: the file says so by being empty
            predictions.append(())
            n_missing += len(cases)
            continue
        report = lint_file(file, world.folder, world.split, grid=grid, allow_missing=True)
        if not report.ok:
            raise LintError(report)
        predictions.append(tuple(report.predictions))
        n_missing += len(cases.intersection(report.missing_pairs))
    epochs = tuple(_rows(part, world, grid) for part in predictions)
    kinds = Counter(kind for rows in epochs for kind in rows.cell_kinds if kind != "none")
    settings = None if run is None else run.info.settings
    return ReportRun(
        label=label,
        path=path,
        model=label if run is None else run.info.model,
        style=None if settings is None else settings.style,
        grid=grid,
        protocol=next((kind for kind in PROTOCOLS if kinds[kind]), "none"),
        predictions=tuple(predictions),
        rows=_mean(epochs),
        epochs=epochs,
        run=run,
        n_missing=n_missing,
        sha256=tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files),
    )


def _rows(predictions: Sequence[LocalizationPrediction], world: World, grid: int) -> CaseRows:
    """The cases; of their values what a report shows. Without any prediction, a miss wherever chance is defined."""
    # Rows without a reference, which some benchmarks add for masks, have neither a hit nor a chance level
    rows = score_localization(predictions, world.records, findings=world.info.findings, grid=grid, asks="present")
    chance = rows.values["grid_chance"]
    misses = np.where(np.isnan(chance), np.nan, 0.0)
    shown = {name: rows.values.get(name, misses) for name in ("grid_hit", "point_hit")}
    return replace(rows, values={"grid_chance": chance, **shown})


def _mean(epochs: Sequence[CaseRows]) -> CaseRows:
    """The mean of each case over epochs; which cases are defined depends on the references alone."""
    if len(epochs) == 1:
        return epochs[0]
    names = epochs[0].values
    return replace(epochs[0], values={n: np.mean([rows.values[n] for rows in epochs], axis=0) for n in names})


def score_runs(
    runs: Sequence[ReportRun],
    world: World,
    *,
    findings: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Scores:
    """Hit rates and chance levels of all runs on the same replicates of patients.

    Parameters
    ----------
    findings : those to report; the macro is over these alone. All of the benchmark by default

    Raises
    ------
    ValueError
        If a finding is not of the benchmark, or none has a case.
    """
    asked = tuple(world.info.findings if findings is None else findings)
    unknown = [name for name in asked if name not in world.info.findings]
    if unknown:
        raise ValueError(f"`findings` must be among {list(world.info.findings)}, got {unknown}")
    have = runs[0].rows.n_defined("grid_chance")
    shown = tuple(name for name in asked if have[name])
    if not shown:
        raise ValueError(f"`findings` must have at least one case in split {world.split!r}, got none")
    systems = [
        replace(run.rows, values={"hit": run.rows.values[run.metric], "chance": run.rows.values["grid_chance"]})
        for run in runs
    ]
    means = resample_systems(
        systems, metrics=["hit", "chance"], findings=shown, n_resamples=n_resamples, seed=seed, unit="patient"
    )
    return Scores(runs, shown, [m["hit"] for m in means], [m["chance"] for m in means], n_resamples, seed)


def macro_of(rows: CaseRows, metric: str, findings: Sequence[str]) -> float:
    """The macro of one epoch over `findings`, without an interval."""
    (means,) = resample_systems([rows], metrics=[metric], findings=findings, n_resamples=1, seed=0, unit="image")
    return means[metric].macro()[0]


def short_names(runs: Sequence[ReportRun]) -> list[str]:
    """Names of the runs of one figure: the model's alone, if the user gave none and no other run here is of it."""
    models = Counter(run.model for run in runs)
    taken = {run.label for run in runs}
    return [run.label if run.is_named or models[run.model] > 1 or run.model in taken else run.model for run in runs]


def core_runs(runs: Sequence[ReportRun], main_grid: int) -> list[int]:
    """Which runs the main figures show: those on the main grid, of each model those in the style it comes with first.

    A model's other styles are shown in the comparison of prompts, its other grids in that of grids.
    """
    chosen: list[int] = []
    first_style: dict[str, str | None] = {}
    for number, run in enumerate(runs):
        if run.grid == main_grid and first_style.setdefault(run.model, run.style) == run.style:
            chosen.append(number)
    return chosen
