"""Read the runs that a report compares, and check that they answer the same split of the dataset folder.

A run is a run folder (:mod:`reveal_bench.models.run_folder`) or a prediction file in any accepted format. References of
the split must be in the dataset folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.asked_part import select_asked
from reveal_bench.evaluation.score import LintError, lint_file
from reveal_bench.files import file_sha256
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import AnyFolder, FolderInfo, OpenFolder, check_split, open_folder
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.models.controls import CONTROLS
from reveal_bench.models.questions import describe_split
from reveal_bench.models.run_folder import CONTROL_RUNS, TRANSCRIPT, Run, read_run
from reveal_bench.predictions.files import questions_of_runs
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.reports.page import Progress

MOST_RUNS = 12
"""Maximum runs of one report; figures cannot distinguish more."""
MOST_LABEL = 200


@dataclass(frozen=True)
class Split:
    """The dataset split that all runs answer, with the references of the questions that all runs asked."""

    folder: Path
    info: FolderInfo
    name: str
    dataset: OpenFolder

    @property
    def part(self) -> str:
        """Description of the questions that all runs asked; empty if they asked the whole split."""
        return self.dataset.part(self.name, self.kind.items)

    @property
    def kind(self) -> AnyKind:
        """Kind of the benchmark."""
        return KINDS[self.info.kind]

    @cached_property
    def records(self) -> Sequence[Any]:
        """References of the split."""
        return self.kind.data.read_records(self.dataset, self.name)

    @cached_property
    def manifest(self) -> Any:
        """Questions of the split."""
        return self.kind.questions.read_manifest(self.dataset, self.name)

    @property
    def description(self) -> str:
        """Benchmark, version, split and part of the split, in words."""
        part = f", {self.part}" if self.part else ""
        return f"{self.info.benchmark} {self.info.version}, split {self.name}{part}"

    @property
    def title(self) -> str:
        """Display name of the benchmark."""
        known = BENCHMARKS.get(self.info.benchmark)
        name = known.title if known is not None else self.info.benchmark
        return f"a synthetic stand-in for {name}" if self.info.synthetic else name


@dataclass(frozen=True)
class ReportRun:
    """A run in a report.

    Attributes
    ----------
    label : label, unique in the report
    model, style, grid : prompt style and cells per side; `style` is None for prediction files and for models without a
        prompt
    predictions : predictions of each epoch
    run : the run folder; None for a prediction file
    n_missing : number of questions without a prediction, over all epochs
    sha256 : SHA-256 of the prediction files, in order
    is_named : True if the user gave the label
    """

    label: str
    path: Path
    model: str
    style: str | None
    grid: int
    predictions: tuple[tuple[Any, ...], ...]
    run: Run | None
    n_missing: int
    sha256: tuple[str, ...]
    is_named: bool = False


def open_split(folder: AnyFolder, runs: Sequence[tuple[str, Path]], split: str | None = None) -> Split:
    """Open the dataset folder and the split whose questions were answered in `runs`.

    Parameters
    ----------
    folder : dataset folder, or a part of it
    split : by default the split of the run folders; without a run folder, "released" or the only split

    Raises
    ------
    ValueError
        If the folder is not a dataset folder, the split is ambiguous, or its references are private.
    """
    whole = open_folder(folder)
    info = whole.info
    if split is None:
        split = _only_split(info, [read_run(path).info.split for _, path in runs if Path(path).is_dir()])
    check_split(info, folder, split)
    parts = questions_of_runs([path for _, path in runs], split, KINDS[info.kind].key)
    dataset = select_asked(whole, split, parts)
    opened = Split(whole.path, info, split, dataset)
    _ = opened.records  # read references now, so that problems of the dataset folder are reported before those of runs
    return opened


def _only_split(info: FolderInfo, of_runs: Sequence[str]) -> str:
    if len(set(of_runs)) > 1:
        raise ValueError(f"all runs of a report must answer one split, got {', '.join(sorted(set(of_runs)))}")
    if of_runs:
        return of_runs[0]
    if "released" in info.splits:
        return "released"
    if len(info.splits) == 1:
        return next(iter(info.splits))
    raise ArgumentError("split", f"must be given: one of {', '.join(info.splits)}")


def load_runs(runs: Sequence[tuple[str, Path]], split: Split, *, progress: Progress | None = None) -> list[ReportRun]:
    """Read and check the runs.

    Parameters
    ----------
    runs : (label, run folder or prediction file); an empty label becomes the model's name, with style and grid if
        several runs have the same model

    Raises
    ------
    ValueError
        If the number of runs is out of range, two runs have the same label, a path is not a run, or a run is for
        another benchmark, version or split.
    LintError
        If a prediction file has errors; its `report` lists them.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ArgumentError("runs", f"must be 1 to {MOST_RUNS} runs", len(runs))
    for _, path in runs:
        if not Path(path).exists():
            raise ValueError(f"{path} is neither a run folder nor a prediction file: it does not exist")
    folders = [_read_folder(Path(path), split) if Path(path).is_dir() else None for _, path in runs]
    grids = [run.info.grid for run in folders if run is not None]
    main_grid = split.info.grid if split.info.grid in grids or not grids else grids[0]
    labels = _labels([label for label, _ in runs], [Path(path) for _, path in runs], folders)
    loaded = []
    for number, ((label, path), run) in enumerate(zip(runs, folders, strict=True)):
        grid = main_grid if run is None else run.info.grid
        loaded.append(_read(labels[number], Path(path), run, split, grid, is_named=bool(label)))
        if progress is not None:
            progress("runs read", number + 1, len(runs))
    return loaded


def control_runs(run: ReportRun) -> dict[str, Run | None]:
    """Return control -> its run in a run's folder, in the order of CONTROLS; None if that run was killed."""
    folders = {name: run.path / CONTROL_RUNS / name for name in CONTROLS if run.run is not None}
    return {
        name: read_run(folder) if (folder / TRANSCRIPT).is_file() else None
        for name, folder in folders.items()
        if folder.is_dir()
    }


def unfinished_controls(run: ReportRun) -> list[str]:
    """Return the controls in a run's folder that were not asked all questions of the run."""
    asked = set() if run.run is None else {one.question for one in run.run.exchanges}
    return [
        name
        for name, under in control_runs(run).items()
        if under is None or not asked <= {one.question for one in under.exchanges}
    ]


def load_controls(run: ReportRun, split: Split) -> dict[str, ReportRun]:
    """Return control -> the finished run under that control in a run's folder, in the order of CONTROLS.

    Raises
    ------
    ValueError
        If a control run has other settings than the run, or another dataset.
    LintError
        If a prediction file has errors.
    """
    controls = {}
    settings = None if run.run is None else run.run.info.settings
    unfinished = unfinished_controls(run)
    for name in (name for name in control_runs(run) if name not in unfinished):
        path = run.path / CONTROL_RUNS / name
        under = _read_folder(path, split)
        expected = None if settings is None else replace(settings, control=name)
        if under.info.settings != expected:
            raise ValueError(
                f"{path}: must have the same settings as {run.path}: repeat its `run` command with --control {name}"
            )
        controls[name] = _read(run.label, path, under, split, run.grid, is_named=run.is_named)
    return controls


def _read_folder(path: Path, split: Split) -> Run:
    run = read_run(path)
    mine = (split.info.benchmark, split.info.version, split.name)
    names = ("benchmark", "benchmark_version", "split")
    for name, expected in zip(names, mine, strict=True):
        got = getattr(run.info, name)
        if got != expected:
            raise ValueError(f"{path}: `{name}` must be {expected!r}, as in the report, got {got!r}")
    if run.info.dataset not in (None, describe_split(split.folder, split.name)["dataset"]):
        raise ValueError(
            f"{path}: must answer {split.folder} as it is now, got answers to another build of the same version"
        )
    return run


def _labels(labels: Sequence[str], paths: Sequence[Path], folders: Sequence[Run | None]) -> list[str]:
    """Return the labels; empty ones become the model's name, with style and grid if needed to be unique."""
    stems = Counter(path.stem for path in paths)
    longer: list[tuple[str, ...]] = []
    for path, run in zip(paths, folders, strict=True):
        if run is None:
            name = path.stem if stems[path.stem] == 1 else f"{path.parent.name}/{path.stem}"
            longer.append((name, name, name))
            continue
        model, settings, grid = run.info.model, run.info.settings, run.info.grid
        styled = model if settings is None else f"{model}, {settings.style}"
        on = f"{grid} × {grid}" if settings is None or settings.form == "cell" else settings.form
        longer.append((model, styled, f"{styled}, {on}"))
    filled = []
    for number, label in enumerate(labels):
        taken = [{names[level] for i, names in enumerate(longer) if i != number} for level in range(3)]
        level = next((level for level in range(3) if longer[number][level] not in taken[level]), 2)
        filled.append(label or longer[number][level])
    twice = [label for label, n in Counter(filled).items() if n > 1]
    if twice:
        raise ArgumentError("runs", "must have unique labels", f"{twice[0]!r} twice: name runs by LABEL=PATH")
    for label in filled:
        if not (label.strip() and label.isprintable() and len(label) <= MOST_LABEL):
            got = repr(label[:40])
            raise ValueError(
                f"a label must be 1 to {MOST_LABEL} printable characters, got {got}: name runs by LABEL=PATH"
            )
    return filled


def _read(label: str, path: Path, run: Run | None, split: Split, grid: int, *, is_named: bool) -> ReportRun:
    files = (path,) if run is None else run.predictions
    predictions: list[tuple[Any, ...]] = []
    n_missing = 0
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is missing: the run folder is damaged")
        report = lint_file(file, split.dataset, split.name, LintOptions(grid, allow_missing=True, any_scale=True))
        if not report.ok:
            raise LintError(report)
        predictions.append(tuple(report.predictions))
        n_missing += len(report.missing_pairs) + len(report.abstained)
    settings = None if run is None else run.info.settings
    return ReportRun(
        label=label,
        path=path,
        model=label if run is None else run.info.model,
        style=None if settings is None else settings.style,
        grid=grid,
        predictions=tuple(predictions),
        run=run,
        n_missing=n_missing,
        sha256=tuple(file_sha256(file) for file in files),
        is_named=is_named,
    )


def short_names(runs: Sequence[ReportRun]) -> list[str]:
    """Return short names for runs in a figure: the model's name if unique, unless the user gave a label."""
    models = Counter(run.model for run in runs)
    taken = {run.label for run in runs}
    return [run.label if run.is_named or models[run.model] > 1 or run.model in taken else run.model for run in runs]
