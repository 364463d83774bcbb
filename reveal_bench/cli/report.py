"""Commands ``report`` (HTML reports), ``misses`` (wrong answers for readers) and ``view`` (cases in a browser)."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.inputs import OUTPUT, require_files
from reveal_bench.cli.output import Findings, Folder, Missing, Resamples, Seed, Split, Subset, check_outside_datasets
from reveal_bench.words import count_text

Anatomy = Annotated[Path | None, typer.Option(help="Contours of organs in every image (JSONL).")]
Reviews = Annotated[Path | None, typer.Option(help="Readers' answers about misses, with key.jsonl in the same folder.")]


def misses(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders and prediction files, as LABEL=PATH.", show_default=False)
    ],
    folder: Annotated[Path, typer.Option(help="Dataset folder that the runs answered.", show_default=False)],
    out: Annotated[Path, typer.Option(help="New private folder for images, and for the models' names."), OUTPUT],
    split: Annotated[str | None, typer.Option(help="Split with references; by default the runs' split.")] = None,
    anatomy: Anatomy = None,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of misses to read per model and finding.")] = 50,
    seed: Seed = 0,
) -> None:
    """Write models' predictions without overlap, for readers to classify as position or anatomy errors.

    `reveal-leaderboard readers --form errors` shows these to readers without model names.
    """
    from reveal_bench.models.pictures import FolderPictures
    from reveal_bench.reports.anatomy import read_anatomy
    from reveal_bench.reports.misses import write_misses
    from reveal_bench.reports.run_errors import categorize
    from reveal_bench.reports.runs import load_runs, open_split

    check_outside_datasets(out, "--out")
    labelled_runs = [labelled(one) for one in runs]
    opened = open_split(folder, labelled_runs, split)
    if not opened.kind.questions.uses_grid:
        rule = "must contain a localization benchmark"
        raise ValueError(f"`--folder` {rule}, got one of {opened.kind.name}")
    regions = None if anatomy is None else read_anatomy(anatomy)
    grid = opened.info.grid
    cases = {
        f"{run.label} {epoch}": categorize(predictions, opened.records, grid=grid, anatomy=regions)
        for run in load_runs(labelled_runs, opened)
        for epoch, predictions in enumerate(run.predictions, start=1)
        if run.grid == grid
    }
    if not cases:
        raise ArgumentError("runs", f"must include a run on the dataset's grid of {grid} cells per side")
    counts = write_misses(
        out, cases, opened.records, FolderPictures(folder).open, grid=grid, seed=seed, max_per_finding=most
    )
    terminal.say("misses to read by finding:")
    for finding, n in counts.items():
        terminal.say(f"{n:>6,} {finding}")
    terminal.say(
        f"wrote {sum(counts.values()):,} misses to {out}; readers: reveal-leaderboard readers --form errors "
        f"--misses {out / 'for_readers' / 'misses.jsonl'} --images {out / 'for_readers'}"
    )
    categories = Counter(case.category for errors in cases.values() for case in errors)
    others = {
        "lateral question": sum(errors.n_lateral for errors in cases.values()),
        "partial hit": categories["partial_hit"],
        "unanswered question": categories["no_answer"],
    }
    if left_out := ", ".join(count_text(n, what) for what, n in others.items() if n):
        terminal.say(f"not for readers: {left_out}; `reveal-bench score --rows FILE` has every question")


def report(
    what: Annotated[
        list[str],
        typer.Argument(
            help="A dataset folder; or run folders and prediction files, optionally with labels: LABEL=PATH.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path | None, typer.Option(help="Dataset folder that the runs answered; needed unless WHAT is a dataset folder.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder; for a dataset also an HTML file, by default `<folder>-report.html`."),
        OUTPUT,
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split with references; by default all, or the runs' split.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Label of the run with which others are compared; by default the last.")
    ] = None,
    findings: Findings = None,
    subset: Subset = None,
    anatomy: Anatomy = None,
    reviews: Reviews = None,
    human: Annotated[
        Path | None,
        typer.Option(help="Prediction file of benchmark readers to compare WHAT with, as in paper 002."),
    ] = None,
    saliency: Annotated[
        bool,
        typer.Option("--saliency", help="Write the report of paper 002 from WHAT, which are folders of heat maps."),
    ] = False,
    tune_split: Annotated[
        str | None, typer.Option(help="Split on which thresholds and gates are tuned, with --saliency.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Number of processes that read and threshold maps.")] = 1,
    ratings: Annotated[
        Path | None,
        typer.Option(help="Report readers' ratings of open tasks: a table, or a dataset folder with ratings."),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, max=12, help="Number of example images to show with every run's cell.")
    ] = 0,
    missing: Missing = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
) -> None:
    """Write a report as HTML, figures and tables: a dataset's counts and images, or runs' scores and errors."""
    from reveal_bench import api

    others = (reference, findings, subset, anatomy, reviews)
    is_other = any(option is not None for option in others)
    if ratings is not None:
        is_other = is_other or human is not None or missing is not None or saliency
        if out is None or is_other or (folder is None and len(what) != 1):
            rule = "needs `--out`, a dataset folder or runs with `--folder`, and no option of other reports"
            raise ValueError(f"a report of `--ratings` {rule}")
        runs = [] if folder is None else [labelled(one) for one in what]
        written = api.report(runs, folder or what[0], out=out, split=split, ratings=ratings)
    elif folder is None:
        if len(what) != 1 or is_other or human is not None or missing is not None:
            raise ValueError("a report of runs needs `--folder`, the dataset that the runs answered")
        if Path(what[0]).is_file() or (Path(what[0]) / "run.json").is_file():
            raise ValueError(f"a report of {what[0]} needs `--folder`, the dataset that the run answered")
        with terminal.progress("reading") as progress:
            written = api.report(what[0], out=out, split=split, progress=progress)
        written = replace(written, warnings=tuple(f"{written.path}: {warning}" for warning in written.warnings))
    else:
        from reveal_bench.reports.anatomy import read_anatomy
        from reveal_bench.reports.misses import read_reviews

        if out is None:
            raise ValueError("a report of runs needs `--out`, the folder to write")
        asked: dict[str, Any] = {"missing": missing or "miss", "n_resamples": resamples, "seed": seed}
        runs = [labelled(one) for one in what]
        if saliency:
            if is_other:
                raise ValueError("a report of `--saliency` takes no option of other reports")
            asked |= {"human": human, "tune_split": tune_split, "n_processes": processes}
            with terminal.progress("reading") as progress:
                written = api.report(runs, folder, out=out, split=split, saliency=True, progress=progress, **asked)
        elif human is not None:
            if len(what) != 1 or is_other:
                raise ValueError("a report with `--human` takes one prediction file, and no option of other reports")
            written = api.report(runs, folder, out=out, split=split, human=human, **asked)
        else:
            with terminal.progress("reporting") as progress:
                written = api.report(
                    runs,
                    terminal.asked_part(folder, split, findings, subset, [path for _, path in runs]),
                    out=out,
                    split=split,
                    progress=progress,
                    reference=reference,
                    anatomy=None if anatomy is None else read_anatomy(anatomy),
                    reviews=None if reviews is None else read_reviews(reviews),
                    examples=examples,
                    n_resamples=resamples,
                    seed=seed,
                )
    terminal.warn(written.warnings)
    terminal.say(f"wrote {written.path}")


def labelled(argument: str) -> tuple[str, Path]:
    """Return (label, path) from LABEL=PATH, or an empty label and PATH; a path may contain an equals sign.

    Raises
    ------
    FileNotFoundError
        If the path does not exist.
    """
    label, sign, path = argument.partition("=")
    if not sign or Path(argument).exists():
        label, path = "", argument
    require_files(Path(path))
    return label, Path(path)


def view(
    folder: Folder,
    predictions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[[NAME=]FILE...]", help="Prediction files of systems.", show_default=False),
    ] = None,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    most: Annotated[int | None, typer.Option(min=1, help="Number of cases to show, spread over the split.")] = None,
    max_side: Annotated[int, typer.Option(min=64, help="Longer side of an image in pixels.")] = 2048,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; any free one by default.")] = 0,
) -> None:
    """View cases in a browser, on this machine only: images, references, answers, hits and misses."""
    from reveal_bench.api.bench import as_asked_bench
    from reveal_bench.viewer.gallery import CaseSource, named_files
    from reveal_bench.viewer.serving import PATH, Galleries, Gallery, loopback_server

    files = named_files(predictions or [])
    asked = terminal.asked_part(folder, split, findings, subset, files.values())
    bench = as_asked_bench(asked, split, runs=files.values())
    source = CaseSource(bench.dataset, bench.split, files, max_side=max_side, most=most, private=True, blank=True)
    with loopback_server(Galleries([Gallery(source.index, source.read)]), port) as server:
        terminal.say(f"{len(source.cases):,} cases: http://127.0.0.1:{server.server_port}{PATH}  (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
