"""``reveal-leaderboard backup``, ``restore`` and ``audit``: copies of a board, and proof that nobody changed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_leaderboard.places import BlobsAt, Data, Database, places

if TYPE_CHECKING:
    from reveal_leaderboard.audit import Report

__all__ = ["audit", "backup", "restore"]


def backup(
    target: Annotated[Path, typer.Argument(help="New folder for the copy.")],
    data: Data,
    database: Database = None,
    blobs: BlobsAt = None,
) -> None:
    """Copy the database and every upload into a new folder, while the board runs. Vaults are not in it."""
    from reveal_leaderboard.backup import BackupError
    from reveal_leaderboard.backup import backup as make

    at = places(data, database, blobs, None)
    try:
        made = make(at.database, at.blobs, target)
    except BackupError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(f"{made.folder}: {len(made.manifest['files'])} files")
    _show(made.report)


def restore(
    source: Annotated[Path, typer.Argument(help="Folder of a backup.", exists=True, file_okay=False)],
    data: Data,
    database: Database = None,
    blobs: BlobsAt = None,
) -> None:
    """Put a backup into an empty place, check every hash, and audit the board that it makes."""
    from reveal_leaderboard.backup import BackupError
    from reveal_leaderboard.backup import restore as put_back

    at = places(data, database, blobs, None)
    at.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        made = put_back(source, at.database, at.blobs)
    except BackupError as error:
        raise typer.BadParameter(str(error)) from None
    _show(made.report)


def audit(
    data: Data,
    database: Database = None,
    blobs: BlobsAt = None,
    uploads: Annotated[bool, typer.Option(help="Hash every stored upload, too.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The whole report as JSON.")] = False,
) -> None:
    """Check the chains of events and receipts, and that scores, ledger and uploads agree with them. Writes nothing."""
    from reveal_leaderboard.audit import NoBoardError, check_schema, opened_to_read
    from reveal_leaderboard.audit import audit as check

    at = places(data, database, blobs, None)
    try:
        with opened_to_read(at.database) as connection:
            check_schema(connection)
            report = check(connection, blobs=at.open_blobs() if uploads else None)
    except NoBoardError as error:
        raise typer.BadParameter(str(error), param_hint="--database" if database else "--data") from None
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    _show(report, quiet=as_json)


def _show(report: Report, *, quiet: bool = False) -> None:
    """Print what was found; the exit code says whether there was anything."""
    if not quiet:
        counted = ", ".join(f"{n} {name}" for name, n in report.counts.items() if n is not None)
        typer.echo(f"looked at {counted}")
        for name, (length, head) in report.heads.items():
            typer.echo(f"chain of {name}: {length} links, head {head}")
        for problem in report.problems:
            typer.secho(f"{problem.area}: {problem.text}", fg="red", err=True)
        typer.echo("intact" if report.ok else f"{len(report.problems)} problems")
    if not report.ok:
        raise typer.Exit(1)
