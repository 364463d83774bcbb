"""Commands from a download to a dataset folder: ``reveal-bench phantom``, ``inspect`` and ``build``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reveal_bench import terminal
from reveal_bench.options import Seed

if TYPE_CHECKING:
    from reveal_bench.builders import Builder, Problem, Reading

Root = Annotated[Path, typer.Argument(help="What you downloaded: a folder or a file.", show_default=False)]
STYLES = (
    "chexlocalize", "reveal-cxr", "reveal-pool", "midrc", "rexecution", "chestx-det", "nih-boxes", "ms-cxr",
    "vindr-cxr", "vinbigdata", "rsna-pneumonia", "siim-acr", "padchest-gr",
)  # fmt: skip
"""Keys of `phantom.LAYOUTS`; written here because help must not import it."""
SourceName = Annotated[
    str | None,
    typer.Option(help="Builder to use, found from the files by default: a style of `phantom` or its source."),
]
Mapping = Annotated[Path | None, typer.Option(help="YAML file that says which column means what.", exists=True)]
Pictures = Annotated[Path | None, typer.Option(help="Folder of the pictures, if they lie elsewhere.", exists=True)]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; all cores by default.")]

KEEP_GOING = "--keep-going leaves out what has a problem of its own; the same command goes on with what is finished"
SHOWN = 20
"""Files set aside that are shown; all of them go to the log."""


class Images(StrEnum):
    """What to do with pixels."""

    EMBED = "embed"
    WITHHOLD = "withhold"


def phantom(
    out: Annotated[Path, typer.Argument(help="New folder for the synthetic download.", show_default=False)],
    style: Annotated[
        str, typer.Option(help="Whose layout: chexlocalize, reveal-cxr, rexecution, ...")
    ] = "chexlocalize",
    images: Annotated[int, typer.Option(min=1, help="Images (studies, tasks) to make.")] = 200,
    val_images: Annotated[
        int | None, typer.Option(help="Images of CheXlocalize's val split; 35 % of --images by default.")
    ] = None,
    seed: Seed = 0,
    long_side: Annotated[int, typer.Option(help="Longer side of a picture in pixels; 2828 as in the original.")] = 2828,
    pictures: Annotated[bool, typer.Option(help="Draw the radiographs, or only their annotations.")] = True,
    anatomy: Annotated[
        Path | None, typer.Option(help="Also write where the organs are to this file (JSONL), for `report`.")
    ] = None,
) -> None:
    """Write a synthetic download in the layout of a real one: pictures, masks, readers, headers, traps."""
    from reveal_bench.phantom import LAYOUTS, write_anatomy

    if style not in LAYOUTS:
        raise ValueError(f"`--style` must be one of {', '.join(LAYOUTS)}, got {style!r}")
    further: dict[str, Any] = {}
    if style in ("chexlocalize", "reveal-pool"):
        further["pixels"] = pictures
    elif not pictures:
        raise ValueError("`--no-pictures` is for --style chexlocalize and reveal-pool alone")
    if style == "chexlocalize":
        further["n_val"] = round(0.35 * images) if val_images is None else val_images
    elif val_images is not None:
        raise ValueError("`--val-images` is for --style chexlocalize alone")
    if anatomy is not None and style != "chexlocalize":
        raise ValueError("`--anatomy` is for --style chexlocalize alone")
    with terminal.progress("drawing") as progress:
        LAYOUTS[style](
            out,
            images,
            seed=seed,
            long_side=long_side,
            progress=lambda done, total: progress("drawing", done, total),
            **further,
        )
    typer.echo(f"wrote a synthetic {style} download to {out}")
    if anatomy is not None:
        write_anatomy(anatomy, images, n_val=further["n_val"], seed=seed, long_side=long_side)
        typer.echo(f"wrote where the organs are to {anatomy}")


def inspect(
    root: Root, source: SourceName = None, pictures: Pictures = None, mapping: Mapping = None, workers: Workers = None
) -> None:
    """Say what a download holds, which builder fits, and what does not match."""
    builder = _builder(root, source)
    found = builder.inspect(root, **_options(builder, pictures=pictures, mapping=mapping, workers=_cores(workers)))
    typer.echo(f"{root}: {found.builder}" + (" (synthetic)" if found.synthetic else ""))
    width = max((len(name) for name in (*found.files, *found.counts)), default=0)
    for role, path in found.files.items():
        typer.echo(f"  {role:<{width}}  {path}")
    for name, count in found.counts.items():
        expected = None if found.synthetic else found.expected.get(name)
        note = "" if expected in (None, count) else f"   (published: {expected:,})"
        typer.echo(f"  {name:<{width}}  {count:,}{note}")
    terminal.warn(found.warnings)
    if found.problems:
        for problem in found.problems:
            typer.secho(f"error: {problem}", fg="red", err=True)
        raise typer.Exit(1)


def build(
    root: Root,
    out: Annotated[Path, typer.Option(help="Dataset folder to write.", show_default=False)],
    source: SourceName = None,
    images: Annotated[Images, typer.Option(help="Embed the pictures or withhold them.")] = Images.EMBED,
    pictures: Pictures = None,
    mapping: Mapping = None,
    id_key: Annotated[
        Path | None, typer.Option(help="File with the secret of the ids (DICOM sources); made if it is missing.")
    ] = None,
    holdout: Annotated[
        Path | None, typer.Option(help="Private folder for the references of a holdout; none by default.")
    ] = None,
    holdout_fraction: Annotated[float, typer.Option(help="Share of its patients that become private.")] = 0.5,
    holdout_split: Annotated[
        str | None,
        typer.Option(help="Split to take it from: by default `holdout` if there is one, else the test split."),
    ] = None,
    seed: Seed = 0,
    previous: Annotated[
        Path | None, typer.Option(help="Earlier version of the dataset: who was released stays released.")
    ] = None,
    previous_holdout: Annotated[
        Path | None, typer.Option(help="Its private folder: who was private stays private.")
    ] = None,
    retire_holdout: Annotated[
        bool, typer.Option("--retire-holdout", help="With splits that come divided: who was private may be released.")
    ] = False,
    version: Annotated[str, typer.Option(help="Version of the dataset, such as 1.2.0.")] = "1.0.0",
    asks: Annotated[str | None, typer.Option(help="Ask for findings `present`, or `all`.")] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out what cannot be read, and say so.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folders if they exist.")] = False,
    workers: Workers = None,
    log: Annotated[
        Path | None, typer.Option(help="Write every problem and every file set aside to this file (JSONL).")
    ] = None,
) -> None:
    """Turn a download into a Hugging Face dataset folder, with a private holdout if asked.

    A build that was interrupted or killed goes on where it stopped when the same command is given again.
    """
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_bench.builders import BuildError
    from reveal_bench.builders.folder import BuildLog, build_folder

    builder = _builder(root, source)
    options = _options(builder, mapping=mapping, pictures=pictures, workers=_cores(workers))
    _check_log(log, out, holdout)
    if id_key is not None:
        if "id_key" not in builder.options:
            raise ValueError(f"--id-key is not for {builder.name}: its ids are public already")
        options["id_key"] = _read_key(id_key, out)
    build_log = BuildLog()
    reading = None
    try:
        reading = builder.read(root, pixels=images.value, keep_going=keep_going, **options)
        with terminal.progress("building") as progress:
            info = build_folder(
                reading.splits,
                out,
                BENCHMARKS[builder.benchmark],
                version=version,
                asks=_asks(asks),
                pixels=images.value,
                holdout=holdout,
                holdout_fraction=holdout_fraction,
                holdout_split=holdout_split or _holdout_split(builder, reading),
                retire_holdout=retire_holdout,
                previous=previous,
                previous_holdout=previous_holdout,
                seed=seed,
                synthetic=reading.synthetic,
                overwrite=overwrite,
                keep_going=keep_going,
                workers=_cores(workers),
                extras=reading.extras,
                log=build_log,
                progress=progress,
            )
    except BuildError as error:
        _write_log(log, error.problems, reading)
        if reading is not None:
            terminal.warn(reading.warnings)
        raise BuildError(error.problems, hint=KEEP_GOING) from None
    _write_log(log, build_log.left_out, reading)
    _tell(reading, build_log)
    for split, facts in info.splits.items():
        place = f"references in {holdout} alone" if facts["references"] == "private" else "public"
        sizes = " ".join(f"{n:>7} {what[2:]}" for what, n in facts.items() if what in SIZES)
        typer.echo(f"{split:<12} {sizes}   {place}".replace("asked", "questions"))
    typer.echo(f'wrote {out}; load it with datasets.load_dataset("{out}", split="{next(iter(info.splits))}")')


SIZES = ("n_tasks", "n_studies", "n_images", "n_asked")


def _builder(root: Path, source: str | None) -> Builder:
    from reveal_bench.builders import BUILDERS, detect_builder

    if source is None:
        return detect_builder(root)
    if source not in BUILDERS:
        raise ValueError(f"`--source` must be one of {', '.join(BUILDERS)}, got {source!r}")
    return BUILDERS[source]


def _cores(workers: int | None) -> int:
    """Processes to use: at least two, so that a decoder that crashes takes no more than one of them along."""
    return workers or max(os.cpu_count() or 1, 2)


def _check_log(log: Path | None, out: Path, holdout: Path | None) -> None:
    """The log names files of the download, which may say whose they are: it must not become part of a dataset."""
    if log is None:
        return
    for folder in (out, holdout):
        if folder is not None and folder.resolve() in (log.resolve(), *log.resolve().parents):
            raise ValueError(f"--log must not lie in {folder}, got {log}")
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600))


def _options(builder: Builder, **given: Any) -> dict[str, Any]:
    """Those of the given options that the builder takes.

    Raises
    ------
    ValueError
        If an option was given that means nothing to the builder.
    """
    for name, value in given.items():
        if value is not None and name not in builder.options and name != "workers":
            raise ValueError(f"--{name.replace('_', '-')} is not an option of the source {builder.name}")
    return {name: value for name, value in given.items() if value is not None and name in builder.options}


def _read_key(path: Path, out: Path) -> bytes:
    from reveal_bench.builders.ids import read_id_key

    if out.resolve() in path.resolve().parents:
        raise ValueError(f"`--id-key` must not lie in the dataset folder, got {path}")
    is_new = not path.exists()
    key = read_id_key(path, create=True)
    if is_new:
        typer.echo(f"made the secret file {path}: keep it, and keep it private; a refresh needs the same one", err=True)
    return key


def _asks(text: str | None) -> Any:
    if text not in (None, "present", "all"):
        raise ValueError(f"`--asks` must be 'present' or 'all', got {text!r}")
    return text


def _holdout_split(builder: Builder, reading: Reading) -> str:
    from reveal_bench.builders.folder import HOLDOUT

    return HOLDOUT if HOLDOUT in reading.splits else builder.holdout_split or "test"


def _tell(reading: Reading, build_log: Any) -> None:
    if build_log.resumed:
        typer.echo(f"{build_log.resumed:,} records were finished by an earlier run", err=True)
    aside = [f"set aside: {file}: {reason}" for file, reason in reading.set_aside]
    if len(aside) > SHOWN:
        aside[SHOWN:] = [f"set aside: {len(aside) - SHOWN:,} more files (--log lists all of them)"]
    terminal.warn([*reading.warnings, *aside, *(f"left out: {problem}" for problem in build_log.left_out)])


def _write_log(path: Path | None, problems: Iterable[Problem], reading: Reading | None) -> None:
    if path is None:
        return
    entries = [{"what": "problem", **asdict(problem)} for problem in problems]
    if reading is not None:
        entries += [{"what": "set aside", "file": file, "rule": reason} for file, reason in reading.set_aside]
        entries += [{"what": "warning", "rule": warning} for warning in reading.warnings]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
