"""``reveal-bench report``, of a dataset folder or of what models answered, and ``misses``, for readers to judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reveal_bench import terminal
from reveal_bench.options import Resamples, Seed, check_outside_datasets

__all__ = ["misses", "report"]

Anatomy = Annotated[Path | None, typer.Option(help="Where the organs are in every image (JSONL).")]
Reviews = Annotated[Path | None, typer.Option(help="Readers' answers about misses, with key.jsonl beside them.")]


def misses(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders and prediction files: LABEL=PATH.", show_default=False)
    ],
    folder: Annotated[Path, typer.Option(help="Dataset folder that the runs answered.", show_default=False)],
    out: Annotated[Path, typer.Option(help="New folder, private: pictures, and which model missed.")],
    split: Annotated[str | None, typer.Option(help="Split with references; that of the runs by default.")] = None,
    anatomy: Anatomy = None,
    most: Annotated[int, typer.Option(min=1, help="Misses of a model and a finding that are read.")] = 50,
    seed: Seed = 0,
) -> None:
    """Write the complete misses of models for readers to tell position errors from anatomy errors.

    `reveal-leaderboard readers --form errors` shows them; models are not named there.
    """
    from reveal_bench.analysis.anatomy import read_anatomy
    from reveal_bench.analysis.errors import categorize
    from reveal_bench.analysis.misses import write_misses
    from reveal_bench.analysis.runs import load_runs, open_world
    from reveal_bench.runner.pictures import FolderPictures

    check_outside_datasets(out, "--out")
    labelled = [_labelled(one) for one in runs]
    world = open_world(folder, labelled, split)
    regions = None if anatomy is None else read_anatomy(anatomy)
    grid = world.info.grid
    cases = {
        f"{run.label} {epoch}": categorize(predictions, world.records, grid=grid, anatomy=regions)
        for run in load_runs(labelled, world)
        for epoch, predictions in enumerate(run.predictions, start=1)
        if run.grid == grid
    }
    if not cases:
        raise ValueError(f"`runs` must hold one on a grid of {grid} cells per side, the dataset's")
    counts = write_misses(
        out, cases, world.records, FolderPictures(folder).open, grid=grid, seed=seed, max_per_finding=most
    )
    for finding, n in counts.items():
        typer.echo(f"{n:>6,} {finding}")
    typer.echo(
        f"wrote {sum(counts.values()):,} misses to {out}; readers: reveal-leaderboard readers --form errors "
        f"--misses {out / 'for_readers' / 'misses.jsonl'} --images {out / 'for_readers'}"
    )


def report(
    what: Annotated[
        list[str],
        typer.Argument(
            help="A dataset folder; or run folders and prediction files, each with a label if you like: LABEL=PATH.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path | None, typer.Option(help="Dataset folder that the runs answered; without it, WHAT is a dataset folder.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write, `<folder>-report.html` by default; of runs, the folder for all of it."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split with references; all of them, or that of the runs.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Label of the run that the findings are ordered against; the last by default.")
    ] = None,
    finding: Annotated[
        list[str] | None, typer.Option(help="Finding to report, as often as there are some; all of them by default.")
    ] = None,
    anatomy: Anatomy = None,
    reviews: Reviews = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
) -> None:
    """Write a page to look at: of a dataset its counts and films, of runs their scores, errors and heat maps."""
    if folder is None:
        if len(what) != 1 or any(option is not None for option in (reference, finding, anatomy, reviews)):
            raise ValueError("a report of runs needs `--folder`, the dataset that they answered")
        _of_dataset(Path(what[0]), out, split)
        return
    from reveal_bench.analysis.anatomy import read_anatomy
    from reveal_bench.analysis.misses import read_reviews
    from reveal_bench.analysis.report import PAGE, write_run_report

    if out is None:
        raise ValueError("a report of runs needs `--out`, the folder to write it to")
    with terminal.progress("reporting") as progress:
        warnings = write_run_report(
            [_labelled(one) for one in what],
            folder,
            out,
            split=split,
            reference=reference,
            findings=finding or None,
            anatomy=None if anatomy is None else read_anatomy(anatomy),
            reviews=None if reviews is None else read_reviews(reviews),
            n_resamples=resamples,
            seed=seed,
            progress=progress,
        )
    terminal.warn(warnings)
    typer.echo(f"wrote {out / PAGE}")


def _of_dataset(folder: Path, out: Path | None, split: str | None) -> None:
    from reveal_bench.builders.report import write_report

    target = out or folder.resolve().with_name(f"{folder.resolve().name}-report.html")
    with terminal.progress("reading") as progress:
        warnings = write_report(folder, target, split=split, progress=progress)
    terminal.warn([f"{target}: {warning}" for warning in warnings])
    typer.echo(f"wrote {target}")


def _labelled(argument: str) -> tuple[str, Path]:
    """LABEL=PATH, or PATH with an empty label, for which the report finds one; a path may hold an equals sign."""
    label, sign, path = argument.partition("=")
    if not sign or Path(argument).exists():
        return "", Path(argument)
    return label, Path(path)
