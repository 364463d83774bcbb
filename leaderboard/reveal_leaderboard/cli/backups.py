"""Commands ``reveal-leaderboard backup``, ``restore`` and ``audit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_bench.words import count_text
from reveal_leaderboard.store.paths import BlobsAt, Data, Database, make_folder, resolve_paths

if TYPE_CHECKING:
    from reveal_leaderboard.store.audit import AuditReport, Heads
    from reveal_leaderboard.store.backup import Backup


def backup(
    target: Annotated[Path, typer.Argument(help="New folder for the backup.")],
    data: Data,
    database: Database = None,
    blobs: BlobsAt = None,
) -> None:
    """Back up the database and all uploads into a new folder, while the board runs. Vaults are not included."""
    from reveal_leaderboard.store.backup import backup as make
    from reveal_leaderboard.store.backup import last_backup

    at = resolve_paths(data, database, blobs, None)
    try:
        last = last_backup(at.data)
        made = make(at.database, at.blobs, target, kept=last.heads if last else None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(f"{made.folder}: {count_text(len(made.manifest['files']), 'file')}")
    if made.report.ok:
        _remember(at.data, made)
    _show_audit(made.report)


def restore(
    source: Annotated[Path, typer.Argument(help="Folder of a backup.", exists=True, file_okay=False)],
    data: Data,
    database: Database = None,
    blobs: BlobsAt = None,
) -> None:
    """Restore a backup into an empty folder and database, then check all hashes and audit the board."""
    from reveal_leaderboard.store.backup import restore as put_back

    at = resolve_paths(data, database, blobs, None)
    make_folder(at.data, "--data")
    try:
        made = put_back(source, at.database, at.blobs)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _remember(at.data, made)
    _show_audit(made.report)


def _remember(data: Path, made: Backup) -> None:
    """Record a backup for later audits; if the record fails, the backup is still valid."""
    from reveal_leaderboard.store.backup import remember

    try:
        remember(data, made)
    except OSError as error:
        words = f"{data} cannot be written ({error.strerror}): pass --kept {made.folder} to later audits"
        typer.secho(words, fg="yellow", err=True)


def audit(
    data: Data,
    database: Database = None,
    blobs: BlobsAt = None,
    uploads: Annotated[bool, typer.Option(help="Also check the hash of every stored file.")] = True,
    kept: Annotated[
        Path | None,
        typer.Option(
            help="Earlier backup folder or report (--json) with which the chains must agree; default: the last backup."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the complete report as JSON.")] = False,
) -> None:
    """Check that nobody changed the board: hash chains, scores, ledger and uploads. Writes nothing."""
    from sqlalchemy.exc import DatabaseError

    from reveal_leaderboard.store.audit import NoBoardError, check_schema, opened_to_read
    from reveal_leaderboard.store.audit import audit as check

    at = resolve_paths(data, database, blobs, None)
    compared, heads = _known_heads(at.data, kept)
    try:
        with opened_to_read(at.database) as connection:
            check_schema(connection)
            report = check(connection, blobs=at.open_blobs() if uploads else None, kept=heads)
    except NoBoardError as error:
        raise typer.BadParameter(str(error), param_hint="--database" if database else "--data") from None
    except DatabaseError as error:
        raise typer.BadParameter(f"the database cannot be read: {error.orig}") from None
    not_checked = f"whether entries are missing at the ends of the chains: {NOTHING_KEPT}"
    if heads:
        ends = " and ".join(f"{length} {name}" for name, (length, _) in heads.items())
        not_checked = f"whether entries after {ends} are missing, which {compared} had"
    if as_json:
        typer.echo(json.dumps({**report.to_json(), "compared_with": compared, "not_checked": not_checked}, indent=2))
    _show_audit(report, quiet=as_json, not_checked=not_checked)


NOTHING_KEPT = "--kept was not given, and no backup was made with this --data"


def _known_heads(data: Path, kept: Path | None) -> tuple[str | None, Heads]:
    """Return the name and the heads of the earlier report or backup with which the chains are compared."""
    from reveal_leaderboard.store.audit import read_heads
    from reveal_leaderboard.store.backup import MANIFEST, last_backup

    place = kept
    try:
        if kept is None:
            last = last_backup(data)
            return (None, {}) if last is None else (f"the backup of {last.made_at} in {last.folder}", last.heads)
        place = kept / MANIFEST if kept.is_dir() else kept
        return str(place), read_heads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "--data" if kept is None else "--kept"
        raise typer.BadParameter(f"{place}: {error}" if place else str(error), param_hint=hint) from None


def _show_audit(report: AuditReport, *, quiet: bool = False, not_checked: str = "") -> None:
    """Print the audit's report, and exit with code 1 if there are problems."""
    if not quiet:
        counted = ", ".join(f"{n} {name}" for name, n in report.counts.items() if n is not None)
        typer.echo(f"checked {counted}")
        for name, (length, head) in report.heads.items():
            typer.echo(f"chain of {name}: {count_text(length, 'link')}, head {head}")
        if not_checked:
            typer.echo(f"not checked: {not_checked}")
        for problem in report.problems:
            typer.secho(f"{problem.area}: {problem.text}", fg="red", err=True)
        typer.echo("intact" if report.ok else count_text(len(report.problems), "problem"))
    if not report.ok:
        raise typer.Exit(1)
