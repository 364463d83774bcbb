"""``reveal-leaderboard readers`` and its kin: the page where readers judge suggested labels, and what comes of it.

Nothing heavy is imported at the top: the server confines its process before libraries start threads. It runs apart from
the board's server, in a data folder of its own.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from fastapi import FastAPI

    from reveal_leaderboard.annotation.store import Readings

__all__ = ["add_readers"]

Data = Annotated[Path, typer.Option(help="The annotation page's own data folder.", show_default=False)]
Images = Annotated[Path | None, typer.Option(help="Root of the pictures.", exists=True, file_okay=False)]
Curation = Annotated[Path | None, typer.Option(help="Curation folder whose assignment is done; at the first start.")]
Pictures = Annotated[Path | None, typer.Option(help="Table study, file, view: for sets without DICOM.")]
Misses = Annotated[Path | None, typer.Option(help="Misses of a model, for --form errors (jsonl, parquet).")]
Readers = Annotated[Path | None, typer.Option("--readers", help="Table with the columns reader and capacity.")]

log = logging.getLogger("reveal_leaderboard")


class FormName(StrEnum):
    """What readers are asked."""

    VOTES = "votes"
    ERRORS = "errors"


FormOption = Annotated[FormName, typer.Option("--form", help="What readers are asked.")]


def add_readers(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(readers)
    app.command("readers-prepare", hidden=True)(readers_prepare)
    app.command("readers-status")(readers_status)
    app.command("readers-close")(readers_close)
    app.command("readers-reassign")(readers_reassign)
    app.command("readers-export")(readers_export)


def readers(
    data: Data,
    images: Images = None,
    curation: Curation = None,
    pictures: Pictures = None,
    form: FormOption = FormName.VOTES,
    misses: Misses = None,
    capacities: Annotated[Path | None, typer.Option("--readers", help="For --form errors: reader, capacity.")] = None,
    people: Annotated[Path | None, typer.Option(help="Table subject, reader: who signs in reads as whom.")] = None,
    auth: Annotated[str, typer.Option(help="local, oidc or huggingface: how readers sign in.")] = "local",
    host: Annotated[str, typer.Option(help="Address to listen on; in local mode a loopback one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 7870,
    proxies: Annotated[int, typer.Option(min=0, help="Trusted proxies in front of the server.")] = 0,
) -> None:
    """Serve the page where readers judge suggested labels, blinded to one another."""
    from reveal_leaderboard.auth import ModeError, check_mode
    from reveal_leaderboard.confinement import confine, readable_places

    _log_to_stderr()
    try:
        check_mode(auth, host, os.environ, trusts_proxy=proxies > 0)
    except ModeError as error:
        raise typer.BadParameter(str(error), param_hint="--auth") from None
    if auth != "local" and people is None:
        raise typer.BadParameter(f"must be given in the mode {auth}: who reads as whom", param_hint="--people")
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if curation is not None or misses is not None:
        _prepare_in_a_child(data, images, curation, pictures, form, misses, capacities)
    data, people = data.resolve(), people.resolve() if people else None
    root = images.resolve() if images else _stored_root(data)
    from reveal_leaderboard.cli import _live_in, _lock

    lock = _lock(data)
    _live_in(data)
    secrets = [Path(value) for name, value in os.environ.items() if name.startswith("REVEAL_") and "_FILE" in name]
    allowed = [*readable_places(), root, *secrets, *([people] if people else [])]
    if confine(read=allowed, write=[data]) == "none":
        log.warning("this kernel has no Landlock: only file permissions keep the server from the curation folder")

    import uvicorn  # after confinement: threads started by libraries are bound by it too

    application = _build(data, root, people, auth, proxies)
    try:
        uvicorn.run(
            application, host=host, port=port, log_level="warning", access_log=False, server_header=False,
            proxy_headers=False, timeout_keep_alive=75,
        )  # fmt: skip
    finally:
        lock.close()


def readers_prepare(
    data: Data,
    images: Annotated[Path, typer.Option(exists=True, file_okay=False)],
    curation: Curation = None,
    pictures: Pictures = None,
    form: FormOption = FormName.VOTES,
    misses: Misses = None,
    capacities: Readers = None,
) -> None:
    """Put lists and places of pictures into the data folder: the server itself never opens the curation folder."""
    from reveal_bench import terminal
    from reveal_leaderboard.annotation.preparation import prepare_votes

    try:
        if form is FormName.VOTES:
            if curation is None:
                raise ValueError("`--curation` must be given with the form votes")
            with terminal.progress("looking for pictures") as bar:
                made = prepare_votes(
                    data,
                    curation,
                    images,
                    pictures=pictures,
                    progress=lambda done, total: bar("looking for pictures", done, total),
                )
        else:
            from reveal_bench.curation.assign import read_readers
            from reveal_leaderboard.annotation.misses import prepare_misses

            if misses is None or capacities is None:
                raise ValueError("`--misses` and `--readers` must be given with the form errors")
            made = prepare_misses(data, misses, images, read_readers(capacities))
    except (ValueError, OSError) as error:
        _fail(error)
    listed = made.listed()
    typer.echo(f"{data}: {len({item for _, _, item in listed}):,} to read, {len(listed):,} readings")


def readers_status(data: Data) -> None:
    """Show how far every reader is, and how many studies have how many votes; no answers."""
    from reveal_leaderboard.annotation.upkeep import progress

    found = progress(_open(data))
    typer.echo(f"{'reader':<24}{'list':>7}{'done':>7}{'left':>7}{'not readable':>14}  state")
    for one in found.readers:
        counts = f"{one.assigned:>7}{one.answered:>7}{one.left:>7}{one.not_readable:>14}"
        typer.echo(f"{one.reader:<24}{counts}  {one.state}")
    for n_votes, n_items in found.items_by_votes.items():
        typer.echo(f"{n_items:,} with {n_votes} vote{'s' * (n_votes != 1)}")
    if found.version:
        typer.echo(f"lists changed {found.version} times: export with --reassigned")


def readers_close(
    data: Data,
    reader: Annotated[list[str] | None, typer.Option(help="Whose list; all of them unless said.")] = None,
    reopen: Annotated[bool, typer.Option("--reopen", help="Open it again instead.")] = False,
) -> None:
    """Take no answers any more: of all readers, or of those named."""
    readings = _open(data)
    try:
        for name in reader or readings.readers():
            readings.mark(name, "open" if reopen else "close")
    except ValueError as error:
        _fail(error)


def readers_reassign(
    data: Data,
    capacities: Annotated[Path, typer.Option("--readers", help="Table reader, capacity; perhaps with more of both.")],
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Give up what finds no reader.")] = False,
) -> None:
    """Hand what readers who stopped have not read to others; the page shows it at once."""
    from reveal_bench.curation.assign import read_readers
    from reveal_leaderboard.annotation.upkeep import hand_on

    try:
        done = hand_on(_open(data), read_readers(capacities), allow_missing=allow_missing)
    except ValueError as error:
        _fail(error)
    typer.echo(f"{done.n_moved:,} readings went to other readers")
    if done.missing:
        typer.secho(f"{len(done.missing):,} readings found no reader and are given up", fg="yellow")


def readers_export(
    data: Data,
    out: Annotated[Path, typer.Option(help="CSV file.", show_default=False)],
    reassigned: Annotated[Path | None, typer.Option(help="Also the lists as they are now (Parquet).")] = None,
) -> None:
    """Write the votes for `reveal-bench curate import-votes --votes`, or the answers of another form."""
    from reveal_leaderboard.annotation.upkeep import export_answers, export_assignments

    readings = _open(data)
    n_answers = export_answers(readings, out)
    typer.echo(f"{out}: {n_answers:,} answers")
    if reassigned is not None:
        version = export_assignments(readings, reassigned)
        typer.echo(f"{reassigned}: the lists, changed {version} times")
    elif readings.version():
        typer.secho("lists have changed: import-votes needs --reassigned, too", fg="yellow")


def _prepare_in_a_child(
    data: Path, images: Path | None, curation: Path | None, pictures: Path | None, form: FormName,
    misses: Path | None, capacities: Path | None,
) -> None:  # fmt: skip
    """Prepare in a process of its own: this one is to have one thread, and no business with the curation folder."""
    if images is None:
        raise typer.BadParameter("must be given with what is to be read", param_hint="--images")
    given = {
        "--data": data, "--images": images, "--curation": curation, "--pictures": pictures, "--form": form.value,
        "--misses": misses, "--readers": capacities,
    }  # fmt: skip
    words = [str(word) for name, value in given.items() if value is not None for word in (name, value)]
    if done := subprocess.run([sys.executable, "-m", "reveal_leaderboard", "readers-prepare", *words]).returncode:
        raise typer.Exit(done)


def _stored_root(data: Path) -> Path:
    """Where the pictures were when the data folder was prepared; read without what would start threads."""
    import sqlite3

    path = data / "readings.sqlite"
    if not path.is_file():
        raise typer.BadParameter("there is nothing to read yet: give --curation and --images", param_hint="--data")
    connection = sqlite3.connect(path)
    try:
        return Path(connection.execute("SELECT value FROM facts WHERE name = 'root'").fetchone()[0])
    finally:
        connection.close()


def _build(data: Path, root: Path, people: Path | None, auth: str, proxies: int) -> FastAPI:
    from reveal_leaderboard.accounts import Accounts
    from reveal_leaderboard.annotation.app import build_readers_app
    from reveal_leaderboard.annotation.films import Darkroom
    from reveal_leaderboard.annotation.people import read_people
    from reveal_leaderboard.auth import open_auth
    from reveal_leaderboard.database import connect, migrate

    try:
        readings = _open(data)
        bound = read_people(people, readings.readers()) if people and auth != "local" else {}
        engine = connect(f"sqlite:///{data / 'accounts.sqlite'}")
        migrate(engine)
        accounts = open_auth(Accounts(engine), auth, os.environ)
    except ValueError as error:
        _fail(error)
    return build_readers_app(readings, Darkroom(root), accounts, bound, n_proxies=proxies)


def _open(data: Path) -> Readings:
    from reveal_leaderboard.annotation.store import Readings

    try:
        return Readings(data)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from None


def _fail(error: Exception) -> NoReturn:
    typer.secho(f"error: {error}", fg="red", err=True)
    raise typer.Exit(1) from None


def _log_to_stderr() -> None:
    from reveal_leaderboard.journal import set_up_journal

    set_up_journal(sys.stderr)
