"""``reveal-bench report``: a page to look at, of a dataset folder or of what models answered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reveal_bench import terminal
from reveal_bench.options import Resamples, Seed

__all__ = ["report"]


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
    anatomy: Annotated[Path | None, typer.Option(help="Where the organs are, by image (JSONL).")] = None,
    reviews: Annotated[Path | None, typer.Option(help="What readers said of the misses.")] = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
) -> None:
    """Write a page to look at: of a dataset its counts and films, of runs their scores, errors and heat maps."""
    if folder is None:
        if len(what) != 1 or any(option is not None for option in (reference, anatomy, reviews)):
            raise ValueError("a report of runs needs `--folder`, the dataset that they answered")
        _of_dataset(Path(what[0]), out, split)
        return
    from reveal_bench.analysis.report import write_run_report

    if out is None:
        raise ValueError("a report of runs needs `--out`, the folder to write it to")
    with terminal.progress("reporting") as progress:
        warnings = write_run_report(
            [_labelled(one) for one in what],
            folder,
            out,
            split=split,
            reference=reference,
            anatomy=anatomy,
            reviews=reviews,
            n_resamples=resamples,
            seed=seed,
            progress=progress,
        )
    terminal.warn(warnings)
    typer.echo(f"wrote {out / 'index.html'}")


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
