"""The command ``reveal-bench publish``: check a dataset folder, show what would go, ask, publish.

Tokens come from the environment, a file, or ``hf auth login``, never from the command line, where every process of the
machine and the shell's history would see them.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_bench import terminal
from reveal_bench.options import Folder

if TYPE_CHECKING:
    from reveal_bench.builders.hub import Publication, Published

HOLDOUT_TOKEN = "HF_HOLDOUT_TOKEN"


def publish(
    folder: Folder,
    repo_id: Annotated[str, typer.Argument(help="Repository, as organization/name.", show_default=False)],
    private: Annotated[
        bool, typer.Option("--private/--public", help="Visibility that the repository has, or gets if it is made.")
    ] = True,
    tag: Annotated[str | None, typer.Option(help="Tag of the version; v and the folder's version by default.")] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(help="Private folder of its holdout, nothing of which may be in FOLDER; --public needs it."),
    ] = None,
    holdout_repo: Annotated[str | None, typer.Option(help="Publish --holdout too, to this private repository.")] = None,
    message: Annotated[str | None, typer.Option(help="Message of the commit.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token; else HF_TOKEN or `hf auth login`.")
    ] = None,
    holdout_token_file: Annotated[
        Path | None, typer.Option(help=f"File with the holdout's own token; else {HOLDOUT_TOKEN}.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show, without network.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Publish a dataset folder to the Hugging Face Hub: checks, one commit, one tag."""
    from reveal_bench.builders import hub

    if holdout_repo is not None and holdout is None:
        raise ValueError("`--holdout-repo` needs `--holdout`, the folder to publish there")
    if holdout_repo == repo_id:
        raise ValueError(f"`--holdout-repo` must be another repository than {repo_id}")
    token = holdout_token = None
    if not dry_run:  # before the checks, which take longer
        token = hub.find_token(None if token_file is None else _read_token(token_file))
        if holdout_repo is not None:
            holdout_token = _holdout_token(holdout_token_file)
            hub.check_holdout_token(holdout_token, token)
    with terminal.progress(f"checking {folder.name}") as progress:
        public = hub.prepare(folder, repo_id, private=private, tag=tag, holdout=holdout, progress=progress)
    if holdout is None and any(entry.get("references") == "private" for entry in public.info.splits.values()):
        terminal.warn(["the holdout was not compared: give --holdout"])
    vault = None
    if holdout_repo is not None and holdout is not None:
        with terminal.progress(f"checking {holdout.name}") as progress:
            vault = hub.prepare_holdout(holdout, holdout_repo, tag=tag, progress=progress)
    for publication in filter(None, (vault, public)):
        _show(publication)
    if dry_run:
        typer.echo("dry run: nothing was sent")
        return
    _ask(yes)
    # The holdout first: a public version whose references are nowhere could not be scored.
    if vault is not None:
        _send(vault, holdout_token, message)
    published = _send(public, token, message)
    typer.echo(f"load it with {published.load_line}")


def _show(publication: Publication) -> None:
    info = publication.info
    what = f"{info.benchmark} {info.version}" + (" (synthetic)" if info.synthetic else "")
    kind = "holdout, private" if publication.is_holdout else "private" if publication.private else "PUBLIC"
    typer.echo(f"{publication.folder}: {what}, no problems -> {publication.repo_id} ({kind}), tag {publication.tag}")
    n_files: Counter[str] = Counter()
    n_bytes: Counter[str] = Counter()
    for name in publication.files:
        place = name.split("/")[0] + "/" if "/" in name else name
        n_files[place] += 1
        n_bytes[place] += (publication.folder / name).stat().st_size
    for place, count in n_files.items():
        typer.echo(f"  {place:<24} {_files(count):>12} {_size(n_bytes[place]):>10}")
    typer.echo(f"  {'in all':<24} {_files(len(publication.files)):>12} {_size(publication.n_bytes):>10}")


def _files(count: int) -> str:
    return f"{count:,} file" + ("s" if count != 1 else "")


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
        raise ValueError("there is no terminal to ask on: say --yes to publish, or --dry-run to look")
    typer.confirm("Publish?", abort=True)


def _send(publication: Publication, token: str | None, message: str | None) -> Published:
    from reveal_bench.builders import hub

    with terminal.progress("uploading") as progress:
        published = hub.send(publication, token=token, message=message, progress=progress)
    counts = f"{_files(published.n_uploaded)} uploaded, {published.n_unchanged:,} unchanged"
    if published.n_removed:
        counts += f", {published.n_removed:,} removed"
    typer.echo(f"{published.url} at {published.commit[:12]}: {counts}")
    return published


def _holdout_token(file: Path | None) -> str:
    token = os.environ.get(HOLDOUT_TOKEN, "").strip() if file is None else _read_token(file)
    if not token:
        raise ValueError(f"a holdout needs a token of its own: set {HOLDOUT_TOKEN}, or give --holdout-token-file")
    return token


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{file} must hold a token as text") from None
    if not token or len(token.split()) > 1:
        raise ValueError(f"{file} must hold one token and nothing else")
    return token
