"""Commands that lead to a dataset folder: ``phantom``, ``inspect`` and ``build``."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as AnyMapping
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.engine import EngineName, ExecutorFile, StoragePlace, TaskSize, seen_by, tasks_of
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import Seed
from reveal_bench.files import write_whole

if TYPE_CHECKING:
    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.dataset.build_log import FilmNote
    from reveal_bench.sources import Problem, SourceData, SourceModule
    from reveal_bench.sources.source import Extra, Record, Records

Root = Annotated[Path, typer.Argument(help="Your download: a folder or a file.", show_default=False)]
SourceName = Annotated[
    str | None,
    typer.Option(help="Source of the download, or its `phantom` style; by default detected from the files."),
]
Mapping = Annotated[Path | None, typer.Option(help="YAML file that assigns a meaning to each column.")]
Pictures = Annotated[Path | None, typer.Option(help="Folder of the images, if they are elsewhere.")]
Secondary = Annotated[
    bool | None,
    typer.Option("--include-secondary", help="Accept secondary captures as radiographs (DICOM sources)."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of processes; by default all cores.")]

KEEP_GOING = "--keep-going omits rows with problems; repeating the command continues where it stopped"
SHOWN = 20
"""Number of lines about set-aside files to print; the log lists all files."""


Blank = Annotated[
    Literal["missing", "negative"] | None, typer.Option(help="Meaning of blank cells in a table of labels.")
]
Uncertain = Annotated[
    Literal["missing", "positive", "negative"] | None, typer.Option(help="Meaning of -1 in a table of labels.")
]


def phantom(
    out: Annotated[Path, typer.Argument(help="New folder for the synthetic download.", show_default=False), OUTPUT],
    style: Annotated[
        str, typer.Option(help="Layout to imitate, such as chexlocalize; any other word prints the list.")
    ] = "chexlocalize",
    images: Annotated[int, typer.Option(min=1, help="Number of images (studies, tasks) to make.")] = 200,
    val_images: Annotated[
        int | None, typer.Option(help="Number of CheXlocalize validation images; by default 35% of --images.")
    ] = None,
    seed: Seed = 0,
    long_side: Annotated[
        int | None,
        typer.Option(help="Longer side in pixels (default 2828); fixed-size images, as in ChestX-Det, keep theirs."),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Draw the radiographs, or write only their annotations.")] = True,
    anatomy: Annotated[
        Path | None, typer.Option(help="Also write contours of organs to this file (JSONL), for `report`."), OUTPUT
    ] = None,
    counterfactuals: Annotated[
        Path | None,
        typer.Option(help="Also write images with one finding removed to this folder, for `run --control`."),
        OUTPUT,
    ] = None,
) -> None:
    """Write a synthetic download in the layout of a real one: images, masks, readers, headers, typical pitfalls."""
    from reveal_bench.phantom import LAYOUTS, write_anatomy, write_counterfactuals

    if style not in LAYOUTS:
        raise ValueError(f"`--style` must be one of {', '.join(LAYOUTS)}, got {style!r}")
    only = {"--val-images": val_images, "--anatomy": anatomy, "--counterfactuals": counterfactuals}
    for option, value in only.items():
        if value is not None and style != "chexlocalize":
            raise ValueError(f"`{option}` is only for --style chexlocalize")
    further = _picture_options(style, long_side, pictures=pictures)
    if style == "chexlocalize":
        further["n_val"] = round(0.35 * images) if val_images is None else val_images
    is_new = not out.exists()
    with terminal.progress("drawing") as progress:
        try:
            LAYOUTS[style](
                out,
                images,
                seed=seed,
                progress=lambda done, total: progress("drawing", done, total),
                **further,
            )
        except ImportError:  # of pydicom: the repeated command needs a new folder
            if is_new:
                shutil.rmtree(out, ignore_errors=True)
            raise
    typer.echo(f"wrote a synthetic {style} download to {out}")
    if anatomy is not None:
        write_anatomy(anatomy, images, n_val=further["n_val"], seed=seed, long_side=further["long_side"])
        typer.echo(f"wrote contours of organs to {anatomy}")
    if counterfactuals is not None:
        with terminal.progress("drawing") as progress:
            n = write_counterfactuals(
                counterfactuals,
                images,
                n_val=further["n_val"],
                seed=seed,
                long_side=further["long_side"],
                progress=lambda done, total: progress("counterfactuals", done, total),
            )
        typer.echo(f"wrote {n:,} images with one finding removed to {counterfactuals}")


def _picture_options(style: str, long_side: int | None, *, pictures: bool) -> dict[str, Any]:
    """Return the options on images that the layout of a style has; others must not be given."""
    from reveal_bench.phantom import LAYOUTS

    accepted = signature(LAYOUTS[style]).parameters
    if "long_side" not in accepted and long_side is not None:
        raise ArgumentError("long_side", f"must be left out for --style {style}, which has no images", long_side)
    if "pixels" not in accepted and not pictures:
        raise ValueError("`--no-pictures` is only for --style chexlocalize and reveal-pool")
    options = {"long_side": 2828 if long_side is None else long_side, "pixels": pictures}
    return {name: value for name, value in options.items() if name in accepted}


def inspect(
    root: Root,
    source: SourceName = None,
    pictures: Pictures = None,
    mapping: Mapping = None,
    include_secondary: Secondary = None,
    blank: Blank = None,
    uncertain: Uncertain = None,
    workers: Workers = None,
) -> None:
    """Show the contents of a download, which source fits, and what does not match."""
    from reveal_bench.sources.source import problem_lines

    text = _suggested_boxes(root, source, mapping)
    if text:
        typer.echo(f"{root}: own-boxes")
        terminal.warn([f"no mapping explains the columns of the table. {text}"])
        return
    module = _source_module(root, source, mapping)
    options: dict[str, Any] = {"pictures": pictures, "mapping": mapping, "include_secondary": include_secondary}
    options |= {"blank": blank, "uncertain": uncertain}
    inspection = module.inspect(root, **_options(module, **options, workers=cores(workers)))
    typer.echo(f"{root}: {inspection.source}" + (" (synthetic)" if inspection.synthetic else ""))
    width = max((len(name) for name in (*inspection.files, *inspection.counts)), default=0)
    for role, path in inspection.files.items():
        terminal.say(f"  {role:<{width}}  {path}")
    for name, count in inspection.counts.items():
        expected = None if inspection.synthetic else inspection.expected.get(name)
        note = "" if expected in (None, count) else f"   (published: {expected:,})"
        typer.echo(f"  {name:<{width}}  {count:,}{note}")
    terminal.warn(inspection.warnings)
    if inspection.problems:
        for line in terminal.shortened(problem_lines(inspection.problems, merged=True)):
            typer.secho(f"error: {line}", fg="red", err=True)
        raise typer.Exit(1)


def build(
    root: Root,
    out: Annotated[Path, typer.Option(help="Dataset folder to write.", show_default=False), OUTPUT],
    source: SourceName = None,
    task: Annotated[
        str | None,
        typer.Option(help="Build a `detection` benchmark from a source with separate instances."),
    ] = None,
    fuse: Annotated[
        str | None,
        typer.Option(help="Detection without consensus: fuse readers' boxes by union, majority or wbf."),
    ] = None,
    fuse_iou: Annotated[float, typer.Option(help="Minimum IoU of two readers' boxes for the same lesion.")] = 0.5,
    images: Annotated[Literal["embed", "withhold"], typer.Option(help="Embed the images, or withhold them.")] = "embed",
    pictures: Pictures = None,
    mapping: Mapping = None,
    include_secondary: Secondary = None,
    blank: Blank = None,
    uncertain: Uncertain = None,
    id_key: Annotated[
        Path | None,
        typer.Option(help="File with the secret key for ids (DICOM sources); created if missing."),
        OUTPUT,
    ] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(help="Private folder for the holdout's references; without it, no holdout."),
        OUTPUT,
    ] = None,
    holdout_fraction: Annotated[float, typer.Option(help="Proportion of the split's patients in the holdout.")] = 0.5,
    holdout_split: Annotated[
        str | None,
        typer.Option(help="Split to take the holdout from; by default `holdout`, else the test split."),
    ] = None,
    best_of: Annotated[int, typer.Option(min=1, help="Number of random divisions; the best balanced is used.")] = 1,
    seed: Seed = 0,
    previous: Annotated[
        Path | None, typer.Option(help="Previous version of the dataset; its released patients stay released.")
    ] = None,
    previous_holdout: Annotated[
        Path | None, typer.Option(help="Private folder of --previous; its private patients stay private.")
    ] = None,
    retire_holdout: Annotated[
        bool,
        typer.Option(
            "--retire-holdout", help="If the source defines the splits, allow private patients to be released."
        ),
    ] = False,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            help="Your other benchmarks and versions to check for overlap, besides those beside --out and --holdout; "
            "repeatable."
        ),
    ] = None,
    accept_overlap: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Allow this benchmark and NAME to reveal each other's references."),
    ] = None,
    version: Annotated[str, typer.Option(help="Dataset version, such as 1.2.0.")] = "1.0.0",
    asks: Annotated[str | None, typer.Option(help="Findings to ask about: only those `present`, or `all`.")] = None,
    findings: Annotated[
        str | None,
        typer.Option(help="Ask only these findings or groups, separated by commas; the others are left out."),
    ] = None,
    finding_groups: Annotated[
        list[str] | None,
        typer.Option(
            help="Groups of findings with macro means: prevalence, NAME=FINDING,FINDING (repeatable), or a JSON file."
        ),
    ] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Omit unreadable rows, and list them.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folders if they exist.")] = False,
    workers: Workers = None,
    engine: EngineName = "pool",
    storage: StoragePlace = None,
    executor: ExecutorFile = None,
    task_size: TaskSize = 256,
    card: Annotated[
        Path | None, typer.Option(help="Dataset card instead of the source's: see docs/sources.md.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Write all problems and set-aside files to this file (JSONL)."), OUTPUT
    ] = None,
    id_table: Annotated[
        Path | None,
        typer.Option(help="Private CSV file to write with the new ids of studies, images and patients."),
        OUTPUT,
    ] = None,
) -> None:
    """Turn a download, or files of your own, into a Hugging Face dataset folder; with a holdout on request.

    A build that was interrupted or killed resumes when you repeat the same command.
    """
    from reveal_bench.benchmarks import BENCHMARKS, of_task
    from reveal_bench.dataset.build import BuildLog, build_folder
    from reveal_bench.dataset.card import with_card
    from reveal_bench.dataset.citation import render_citation
    from reveal_bench.dataset.holdout import HOLDOUT
    from reveal_bench.dataset.origin import describe_origin
    from reveal_bench.dataset.overlaps import dataset_folders_beside
    from reveal_bench.scale.build import TaskBuild
    from reveal_bench.sources import BuildError

    root, pictures = seen_by(engine, root), None if pictures is None else seen_by(engine, pictures)
    module = _mapped_source_module(root, source, mapping)
    of_task(BENCHMARKS[module.benchmark], task)  # check the kind of benchmark before reading the download
    if card is not None:
        own = with_card(BENCHMARKS[module.benchmark], card)
        render_citation(own, version=version, synthetic=False)
        describe_origin(own, synthetic=False)
    options: dict[str, Any] = {"pictures": pictures, "mapping": mapping, "include_secondary": include_secondary}
    options |= {"blank": blank, "uncertain": uncertain}
    options = _options(module, **options, workers=cores(workers))
    _check_private("--log", log, out, holdout)
    _check_private("--id-table", id_table, out, holdout)
    is_new = id_table is None or not (id_table.exists() or id_table in (log, id_key))
    if id_table is not None and not (is_new and os.access(id_table.parent, os.W_OK)):
        raise ValueError(f"--id-table must be a new file in a writable folder, got {id_table}")
    if log is not None:
        if log == id_key:
            raise ValueError(f"--log must not be the file of --id-key, got {log}")
        log.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600))
    if id_key is not None:
        if "id_key" not in module.options:
            raise ValueError(f"--id-key is not for {module.name}, whose ids are already public")
        options["id_key"] = _read_key(id_key, out)
    options |= _read_only(findings, module, finding_groups)
    build_log = BuildLog()
    source_data = None
    try:
        source_data = module.read(root, pixels=images, keep_going=keep_going, **options)
        if id_table is not None and not source_data.ids:
            raise ValueError("--id-table needs --id-key, but the ids of this dataset are already public")
        build_log.set_aside, build_log.not_read = source_data.set_aside, source_data.left_out
        benchmark = of_task(source_data.benchmark or BENCHMARKS[module.benchmark], task)
        benchmark = _with_finding_groups(benchmark if card is None else with_card(benchmark, card), finding_groups)
        source_data.warnings += [source_data.unfused] if fuse is None and source_data.unfused else []
        own_holdout = HOLDOUT if HOLDOUT in source_data.splits else module.holdout_split or "test"
        splits, benchmark = (
            (source_data.splits, benchmark) if fuse is None else _fused(source_data, benchmark, fuse, fuse_iou)
        )
        benchmark, splits, extras = _asked(findings, benchmark, splits, source_data)
        with (
            tasks_of(
                engine, storage, executor, "build", target=out, workers=cores(workers), task_size=task_size
            ) as tasks,
            terminal.progress("building") as progress,
        ):
            info = build_folder(
                splits,
                out,
                benchmark,
                version=version,
                asks=_asks(asks),
                pixels=images if benchmark.has_pictures else "withhold",
                holdout=holdout,
                holdout_fraction=holdout_fraction,
                holdout_split=holdout_split or own_holdout,
                best_of=best_of,
                retire_holdout=retire_holdout,
                previous=previous,
                previous_holdout=previous_holdout,
                seed=seed,
                synthetic=source_data.synthetic,
                overwrite=overwrite,
                keep_going=keep_going,
                workers=cores(workers),
                extras=extras,
                log=build_log,
                progress=progress,
                engine=None if tasks is None else TaskBuild(tasks),
                beside=[*(beside or ()), *dataset_folders_beside(out, holdout)],
                accepted_overlaps=accept_overlap or (),
            )
    except BuildError as error:
        _write_log(log, error.problems, source_data)
        terminal.warn(error.warnings if source_data is None else source_data.warnings)
        raise BuildError(error.problems, hint=_remedies(error.problems)) from None
    _write_log(log, [*build_log.not_read, *build_log.left_out], source_data, build_log.films)
    if id_table is not None:
        _write_ids(id_table, source_data)
    terminal.warn(build_log.shared)
    _tell(source_data, build_log)
    for split, facts in info.splits.items():
        place = f"references are only in {holdout}" if facts["references"] == "private" else "public"
        sizes = " ".join(f"{n:>7} {what[2:]}" for what, n in facts.items() if what in SIZES)
        typer.echo(f"{split:<12} {sizes}   {place}".replace("asked", "questions"))
    if build_log.balance is not None:
        terminal.print_balance(build_log.balance)
    public = [split for split, facts in info.splits.items() if facts["references"] != "private"]
    load = f'; load it with datasets.load_dataset("{out}", split="{public[0]}")' if public else ""
    typer.echo(f"wrote {out}{load}")


def _remedies(problems: Iterable[Problem]) -> str:
    """Return the options with which a build can go on without repairing these problems."""
    from reveal_bench.sources.source import MissingPicture

    missing = [problem for problem in problems if isinstance(problem, MissingPicture)]
    if not missing:
        return KEEP_GOING
    withhold = "" if any(problem.states_size for problem in missing) else ", or --images withhold to build without them"
    return f"give --pictures FOLDER with the missing pictures{withhold}\n{KEEP_GOING}"


def _fused(source_data: SourceData, benchmark: Benchmark, how: str, iou: float) -> tuple[dict[str, Records], Benchmark]:
    """Return the splits with readers' boxes fused, and the benchmark with a card that describes the fusion."""
    from reveal_bench.kinds import KINDS
    from reveal_bench.sources.source import Records

    kind = KINDS[benchmark.kind]
    note = kind.data.fused((), how, iou)[1]

    def made(records: Any) -> Records:
        return Records(lambda: kind.data.fused(records, how, iou)[0], len(records))

    return {split: made(records) for split, records in source_data.splits.items()}, replace(benchmark, note=note)


def _read_only(findings: str | None, module: SourceModule, finding_groups: list[str] | None) -> dict[str, Any]:
    """Return the option `findings` of a source that can read only these; {} for other sources."""
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_bench.dataset.asked_findings import ask_findings

    if findings is None or "findings" not in module.options:
        return {}
    benchmark = _with_finding_groups(BENCHMARKS[module.benchmark], finding_groups)
    return {"findings": ask_findings(benchmark, findings).findings}


def _asked(
    findings: str | None, benchmark: Benchmark, splits: AnyMapping[str, Iterable[Record]], source_data: SourceData
) -> tuple[Benchmark, AnyMapping[str, Iterable[Record]], Sequence[Extra]]:
    """Return benchmark, records and further tables with only the findings of ``--findings``; None for all."""
    from reveal_bench.dataset.asked_findings import ask_findings, asked_extras, asked_records

    if findings is None:
        return benchmark, splits, source_data.extras
    benchmark = ask_findings(benchmark, findings)
    return benchmark, asked_records(splits, benchmark), asked_extras(source_data.extras, benchmark)


SIZES = ("n_tasks", "n_studies", "n_images", "n_asked")


def _source_module(root: Path, source: str | None, mapping: Path | None) -> SourceModule:
    from reveal_bench.sources import SOURCE_MODULES, detect_source

    if source is None:
        return detect_source(root, mapping)
    if source not in SOURCE_MODULES:
        raise ValueError(f"`--source` must be one of {', '.join(SOURCE_MODULES)}, got {source!r}")
    return SOURCE_MODULES[source]


def _mapped_source_module(root: Path, source: str | None, mapping: Path | None) -> SourceModule:
    text = _suggested_boxes(root, source, mapping)
    if text:
        raise ArgumentError("mapping", f"must explain the columns of the table, got none. {text}")
    return _source_module(root, source, mapping)


def _suggested_boxes(root: Path, source: str | None, mapping: Path | None) -> str:
    """Return a text with a suggested mapping if a folder of images and boxes is of no known source; "" otherwise."""
    from reveal_bench.api.suggested_mapping import suggest_box_mapping
    from reveal_bench.sources import SOURCE_MODULES

    known = [module for name, module in SOURCE_MODULES.items() if source in (None, name)]
    is_known = mapping is not None or source not in (None, "own-boxes") or any(one.detect(root) > 0 for one in known)
    text = None if is_known else suggest_box_mapping(root)
    return f"Save this text as mapping.yaml, then check and correct it:\n{text}" if text else ""


def cores(workers: int | None) -> int:
    """Return the number of processes: at least two, so that a crash in a decoder ends only one of them."""
    return workers or max(os.cpu_count() or 1, 2)


def _check_private(option: str, path: Path | None, out: Path, holdout: Path | None) -> None:
    """Raise ValueError if a file that identifies patients would be inside a dataset folder."""
    if path is None:
        return
    for folder in (out, holdout):
        if folder is not None and folder.resolve() in (path.resolve(), *path.resolve().parents):
            raise ValueError(f"{option} must be outside {folder}, got {path}")


def _options(module: SourceModule, **given: Any) -> dict[str, Any]:
    """Return the given options of the source. Raises
    ------
    ValueError
        If an option was given that the source does not have.
    """
    for name, value in given.items():
        if value is not None and name not in module.options and name != "workers":
            raise ValueError(f"--{name.replace('_', '-')} is not an option of the source {module.name}")
    return {name: value for name, value in given.items() if value is not None and name in module.options}


def _read_key(path: Path, out: Path) -> bytes:
    from reveal_bench.sources.ids import read_id_key

    if out.resolve() in path.resolve().parents:
        raise ValueError(f"`--id-key` must be outside the dataset folder, got {path}")
    is_new = not path.exists()
    key = read_id_key(path, create=True)
    if is_new:
        typer.echo(f"wrote the secret key {path}: keep it, in private; a refresh needs the same key", err=True)
    return key


def _with_finding_groups(benchmark: Benchmark, texts: list[str] | None) -> Benchmark:
    from reveal_bench.kinds.finding_groups import parse_finding_groups

    return replace(benchmark, finding_groups=parse_finding_groups(texts, benchmark.findings)) if texts else benchmark


def _asks(text: str | None) -> Any:
    if text not in (None, "present", "all"):
        raise ValueError(f"`--asks` must be 'present' or 'all', got {text!r}")
    return text


def _tell(source_data: SourceData, build_log: Any) -> None:
    from reveal_bench.sources.source import set_aside_lines

    if build_log.resumed:
        typer.echo(f"{build_log.resumed:,} records had been finished by an earlier run", err=True)
    aside = set_aside_lines(source_data.set_aside)
    if len(aside) > SHOWN:
        aside[SHOWN:] = [f"set aside: files for {len(aside) - SHOWN:,} more reasons (--log lists all files)"]
    left_out = [f"left out: {problem}" for problem in build_log.left_out]
    terminal.warn([*source_data.warnings, *aside, *left_out, *_film_warnings(build_log.films)])


def _film_warnings(films: Sequence[FilmNote]) -> list[str]:
    """Return the notes on pictures, each with its number of pictures and one of them; numbers in notes may differ."""
    from reveal_bench.reports.noted_films import alike
    from reveal_bench.words import count_text

    notes = alike((text, film.file) for film in films for text in film.warnings)
    lines = [f"{count_text(len(files), 'picture')}, such as {files[0]}: {text}" for text, files in notes.items()]
    blank = [f"{film.file} ({film.fault})" for film in films if film.fault]
    if blank:
        named = ", ".join(blank[:SHOWN_FILMS]) + f" and {len(blank) - SHOWN_FILMS:,} more" * (len(blank) > SHOWN_FILMS)
        lines.append(f"{count_text(len(blank), 'picture')} may show nothing: {named}; look at them before you publish")
    return lines


SHOWN_FILMS = 10


def _write_log(
    path: Path | None, problems: Iterable[Problem], source_data: SourceData | None, films: Iterable[FilmNote] = ()
) -> None:
    if path is None:
        return
    entries = [{"what": "problem", **asdict(problem)} for problem in problems]
    entries += [{"what": "picture", **asdict(film)} for film in films]
    if source_data is not None:
        entries += [{"what": "set aside", "file": file, "rule": reason} for file, reason in source_data.set_aside]
        entries += [{"what": "warning", "rule": warning} for warning in source_data.warnings]
    write_whole(path, "".join(json.dumps(entry) + "\n" for entry in entries), private=True)


def _write_ids(path: Path, source_data: SourceData) -> None:
    """Write a table that maps the download's identifiers to the new ids."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "own_id", "id"])
        table.writerows([kind, own, made] for (kind, own), made in sorted(source_data.ids.items()))
