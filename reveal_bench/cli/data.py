"""Commands for finished dataset folders: ``validate``, ``diff``, ``attach`` and ``publish``.

``publish`` checks a folder, shows what it would upload, asks for confirmation, and uploads it. Tokens are read from the
environment, a file, or ``hf auth login``. Tokens cannot be passed as options, because the shell's history and other
processes can read the command line.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_bench.cli import output as terminal
from reveal_bench.cli.build import cores
from reveal_bench.cli.engine import EngineName, ExecutorFile, StoragePlace, tasks_of
from reveal_bench.cli.inputs import OUTPUT
from reveal_bench.cli.output import AsJson, Folder
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from reveal_bench.dataset.hub import Publication, PublishResult
    from reveal_bench.sources import Problem


def validate(
    folder: Folder,
    holdout: Annotated[Path | None, typer.Option(help="Private folder of the holdout, to check for leaks.")] = None,
    load: Annotated[bool, typer.Option(help="Also load the whole folder with `datasets` and mlcroissant.")] = True,
    engine: EngineName = "pool",
    storage: StoragePlace = None,
    executor: ExecutorFile = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes of --engine datatrove; all cores by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a dataset folder: tables, masks, images, ids, card, leaks, and loading with `load_dataset` offline."""
    from reveal_bench.dataset.validate import validate_folder
    from reveal_bench.scale.validate import TaskReader

    warnings: list[Problem] = []
    with (
        tasks_of(engine, storage, executor, "validate", target=folder, workers=cores(workers)) as tasks,
        terminal.progress("checking") as progress,
    ):
        reader = None if tasks is None else TaskReader(folder, tasks, progress)
        problems = validate_folder(
            folder, holdout=holdout, load=load, progress=progress, warnings=warnings, reader=reader
        )
    if as_json:
        document = {"schema": 1, "problems": list(map(asdict, problems)), "warnings": list(map(asdict, warnings))}
        typer.echo(json.dumps(document, indent=2))
    else:
        terminal.warn(terminal.shortened([str(warning) for warning in warnings]))
        for line in terminal.shortened([str(problem) for problem in problems]):
            typer.secho(f"error: {line}", fg="red")
    if problems:
        raise typer.Exit(1)
    if not as_json:
        besides = " besides the warnings above" if warnings else ""
        typer.secho(f"{folder}: no problems{besides}", fg="green")


def diff(
    before: Annotated[Path, typer.Argument(help="Dataset folder of the older version.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="Dataset folder of the newer version.", show_default=False)],
    holdout_before: Annotated[Path | None, typer.Option(help="Private holdout of the older version.")] = None,
    holdout_after: Annotated[Path | None, typer.Option(help="Private holdout of the newer version.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two versions of a dataset: rows, splits, labels, drawings, pixels, columns.

    For a private holdout, only the public manifests are compared, unless you give both private folders.
    """
    from reveal_bench.reports.version_diff import diff_folders

    if (holdout_before is None) != (holdout_after is None):
        raise ValueError("`--holdout-before` and `--holdout-after` go together")
    holdouts = None if holdout_before is None or holdout_after is None else (holdout_before, holdout_after)
    difference = diff_folders(before, after, holdouts=holdouts)
    typer.echo(json.dumps(difference.to_document(), indent=2) if as_json else difference.to_text().rstrip("\n"))


def attach(
    folder: Folder,
    root: Annotated[Path, typer.Argument(help="Your own download of the source's images.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Dataset folder to write, with embedded images.", show_default=False), OUTPUT
    ],
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Omit images that are missing or do not match, and list them.")
    ] = False,
) -> None:
    """Add images to a dataset that was published without them, verifying each by its hash."""
    from reveal_bench.dataset.attach import AttachLog, attach_images

    log = AttachLog()
    with terminal.progress("attaching") as progress:
        attach_images(folder, root, out=out, keep_going=keep_going, progress=progress, log=log)
    terminal.warn(terminal.shortened([f"left out: {problem}" for problem in log.problems]))
    if log.unverified:
        names = ", ".join(terminal.shortened(log.unverified))
        terminal.warn([f"matched by name but not verified, because the dataset has no hashes for: {names}"])
    images = "image" if log.n_verified == 1 else "images"
    counts = (
        f"{log.n_verified:,} {images} verified, {len(log.unverified):,} not verified, {len(log.problems):,} left out"
    )
    typer.echo(f"wrote {out}: {counts}")


HOLDOUT_TOKEN = "HF_HOLDOUT_TOKEN"


def publish(
    folder: Folder,
    repo_id: Annotated[str, typer.Argument(help="Repository, as organization/name.", show_default=False)],
    private: Annotated[
        bool,
        typer.Option("--private/--public", help="Visibility of the repository; an existing one must already have it."),
    ] = True,
    tag: Annotated[
        str | None, typer.Option(help="Tag of the version; by default `v` and the folder's version.")
    ] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(help="Private folder of the holdout, which must not leak into FOLDER; required for --public."),
    ] = None,
    holdout_repo: Annotated[str | None, typer.Option(help="Also publish --holdout to this private repository.")] = None,
    retire_holdout: Annotated[
        bool, typer.Option("--retire-holdout", help="Allow this version to release an earlier holdout.")
    ] = False,
    accept_film: Annotated[
        list[str] | None, typer.Option(help="Id of an image that may show nothing, such as a blank film. Repeatable.")
    ] = None,
    message: Annotated[str | None, typer.Option(help="Commit message.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with your token; by default HF_TOKEN or `hf auth login`.")
    ] = None,
    holdout_token_file: Annotated[
        Path | None, typer.Option(help=f"File with the separate token of the holdout; by default {HOLDOUT_TOKEN}.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and preview, without network.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Publish a dataset folder to the Hugging Face Hub: check it, then upload one commit and one tag."""
    from reveal_bench.dataset import hub

    if holdout_repo is not None and holdout is None:
        raise ValueError("`--holdout-repo` needs `--holdout`, the folder to publish in that repository")
    if holdout_repo == repo_id:
        raise ValueError(f"`--holdout-repo` must be another repository than {repo_id}")
    token = holdout_token = None
    if not dry_run:  # find missing tokens before the slow checks
        token = hub.find_token(None if token_file is None else _read_token(token_file))
        if holdout_repo is not None:
            holdout_token = _holdout_token(holdout_token_file)
            hub.check_holdout_token(holdout_token, token)
    with terminal.progress(f"checking {folder.name}") as progress:
        public = hub.prepare(
            folder,
            repo_id,
            private=private,
            tag=tag,
            holdout=holdout,
            retire_holdout=retire_holdout,
            accepted_films=accept_film or (),
            progress=progress,
        )
    if holdout is None and any(entry.get("references") == "private" for entry in public.info.splits.values()):
        terminal.warn(["the folder was not compared with the holdout: give --holdout"])
    vault = None
    if holdout_repo is not None and holdout is not None:
        with terminal.progress(f"checking {holdout.name}") as progress:
            vault = hub.prepare_holdout(
                holdout, holdout_repo, tag=tag, accepted_films=accept_film or (), progress=progress
            )
    for publication in filter(None, (vault, public)):
        _show(publication)
    if dry_run:
        typer.echo("dry run: nothing was sent")
        return
    _ask(yes)
    # Publish the holdout first: a public version without published references could not be scored.
    if vault is not None:
        # Check first, or the holdout's tag would remain if the public folder were refused
        hub.check_there(public, token=token)
        _send(vault, holdout_token, message)
    published = _send(public, token, message)
    typer.echo(f"load it with {published.load_line}")


def _show(publication: Publication) -> None:
    info = publication.info
    what = f"{info.benchmark} {info.version}" + (" (synthetic)" if info.synthetic else "")
    kind = "holdout, private" if publication.is_holdout else "private" if publication.private else "PUBLIC"
    kind += ", gated: access must be requested" if publication.gated else ""
    typer.echo(f"{publication.folder}: {what}, no problems -> {publication.repo_id} ({kind}), tag {publication.tag}")
    n_files: Counter[str] = Counter()
    n_bytes: Counter[str] = Counter()
    for name in publication.files:
        place = name.split("/")[0] + "/" if "/" in name else name
        n_files[place] += 1
        n_bytes[place] += (publication.folder / name).stat().st_size
    for place, count in n_files.items():
        typer.echo(f"  {place:<24} {count_text(count, 'file'):>12} {_size(n_bytes[place]):>10}")
    typer.echo(f"  {'in all':<24} {count_text(len(publication.files), 'file'):>12} {_size(publication.n_bytes):>10}")


def _size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ValueError("No terminal: pass --yes to publish, or --dry-run to preview")
    typer.confirm("Publish?", abort=True)


def _send(publication: Publication, token: str | None, message: str | None) -> PublishResult:
    from reveal_bench.dataset import hub

    with terminal.progress("uploading") as progress:
        published = hub.send(publication, token=token, message=message, progress=progress)
    counts = f"{count_text(published.n_uploaded, 'file')} uploaded, {published.n_unchanged:,} unchanged"
    if published.n_removed:
        counts += f", {published.n_removed:,} removed"
    typer.echo(f"{published.url} at {published.commit[:12]}: {counts}")
    return published


def _holdout_token(file: Path | None) -> str:
    token = os.environ.get(HOLDOUT_TOKEN, "").strip() if file is None else _read_token(file)
    if not token:
        raise ValueError(f"a holdout needs a separate token: set {HOLDOUT_TOKEN}, or give --holdout-token-file")
    return token


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{file} must contain a token as text") from None
    if not token or len(token.split()) > 1:
        raise ValueError(f"{file} must contain one token and nothing else")
    return token
