"""Commands on finished dataset folders: ``reveal-bench validate``, ``diff`` and ``attach``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reveal_bench import terminal
from reveal_bench.options import AsJson, Folder

SHOWN = 50
"""Problems or names that are printed; the rest are counted."""


def validate(
    folder: Folder,
    holdout: Annotated[Path | None, typer.Option(help="Private folder of its holdout, to look for leaks.")] = None,
    load: Annotated[bool, typer.Option(help="Also load all of it with `datasets` and mlcroissant.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check a dataset folder: tables, masks, pictures, ids, card, leaks, and that `load_dataset` loads it offline."""
    from dataclasses import asdict

    from reveal_bench.builders.source import Problem
    from reveal_bench.builders.validate import validate_folder

    warnings: list[Problem] = []
    with terminal.progress("checking") as progress:
        problems = validate_folder(folder, holdout=holdout, load=load, progress=progress, warnings=warnings)
    if as_json:
        document = {"schema": 1, "problems": list(map(asdict, problems)), "warnings": list(map(asdict, warnings))}
        typer.echo(json.dumps(document, indent=2))
    else:
        terminal.warn(_some([str(warning) for warning in warnings]))
        for line in _some([str(problem) for problem in problems]):
            typer.secho(f"error: {line}", fg="red")
    if problems:
        raise typer.Exit(1)
    if not as_json:
        typer.secho(f"{folder}: no problems", fg="green")


def diff(
    before: Annotated[Path, typer.Argument(help="Dataset folder of the older version.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="Dataset folder of the newer version.", show_default=False)],
    holdout_before: Annotated[Path | None, typer.Option(help="Private holdout of the older version.")] = None,
    holdout_after: Annotated[Path | None, typer.Option(help="Private holdout of the newer version.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what changed between two versions of a dataset: rows, splits, labels, drawings, pixels, columns.

    Of a private holdout only what the public manifests name is told, unless both private folders are given.
    """
    from reveal_bench.builders.folder_diff import diff_folders

    if (holdout_before is None) != (holdout_after is None):
        raise ValueError("`--holdout-before` and `--holdout-after` go together")
    holdouts = None if holdout_before is None or holdout_after is None else (holdout_before, holdout_after)
    found = diff_folders(before, after, holdouts=holdouts)
    typer.echo(json.dumps(found.to_document(), indent=2) if as_json else found.to_text().rstrip("\n"))


def attach(
    folder: Folder,
    root: Annotated[Path, typer.Argument(help="Your own download of the source's pictures.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Dataset folder to write, with the pictures embedded.", show_default=False)],
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out images that are missing or do not match, and say so.")
    ] = False,
) -> None:
    """Add the pictures to a dataset that was published without them, each verified by its hash."""
    from reveal_bench.builders.attach import AttachLog, attach_images

    log = AttachLog()
    with terminal.progress("attaching") as progress:
        attach_images(folder, root, out=out, keep_going=keep_going, progress=progress, log=log)
    terminal.warn(_some([f"left out: {problem}" for problem in log.problems]))
    if log.unverified:
        names = ", ".join(_some(log.unverified))
        terminal.warn([f"matched by name and not verified, for the dataset states no hash of them: {names}"])
    images = "image" if log.n_verified == 1 else "images"
    counts = (
        f"{log.n_verified:,} {images} verified, {len(log.unverified):,} not verified, {len(log.problems):,} left out"
    )
    typer.echo(f"wrote {out}: {counts}")


def _some(lines: list[str]) -> list[str]:
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"... and {len(lines) - SHOWN:,} more"]
