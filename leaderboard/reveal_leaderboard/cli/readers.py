"""Commands ``reveal-leaderboard readers`` and ``readers-...``: the app in which readers judge labels, errors or
answers.

Heavy modules are imported inside functions, because the server must confine its process before libraries start threads.
The readers' server runs separately from the board's server, with its own data folder.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from reveal_bench.words import count_text
from reveal_leaderboard.cli.process import (
    AsRoot,
    Host,
    Port,
    Proxies,
    check_auth,
    check_user,
    live_in,
    lock_folder,
    log_to_stderr,
    run_server,
    secret_files,
)  # fmt: skip
from reveal_leaderboard.store.paths import make_folder

if TYPE_CHECKING:
    from fastapi import FastAPI

    from reveal_leaderboard.accounts.accounts import Accounts
    from reveal_leaderboard.readers.store import Readings

Data = Annotated[Path, typer.Option(help="The annotation page's own data folder.", show_default=False)]
Images = Annotated[Path | None, typer.Option(help="Root of the images.", exists=True, file_okay=False)]
Curation = Annotated[Path | None, typer.Option(help="Curation folder with an assignment; needed at the first start.")]
Pictures = Annotated[
    Path | None, typer.Option(help="Table with the columns study, file, view; for datasets without DICOM.")
]
Misses = Annotated[Path | None, typer.Option(help="File of a model's misses (jsonl, parquet), for --form errors.")]
Answers = Annotated[Path | None, typer.Option(help="File from `admin answers`, for --form rubric.")]
Tasks = Annotated[Path | None, typer.Option(help="Public dataset folder of the tasks, for --form rubric.")]
PerItem = Annotated[int | None, typer.Option(min=1, help="Readers per item; by default 1 for errors, 2 for answers.")]
Readers = Annotated[Path | None, typer.Option("--readers", help="Table with the columns reader and capacity.")]

log = logging.getLogger("reveal_leaderboard")


class FormName(StrEnum):
    """Kinds of questions for readers."""

    VOTES = "votes"
    ERRORS = "errors"
    RUBRIC = "rubric"


FormOption = Annotated[FormName, typer.Option("--form", help="What readers judge.")]


def add_readers(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(readers)
    app.command("readers-prepare", hidden=True)(readers_prepare)
    app.command("readers-invite")(readers_invite)
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
    answers: Answers = None,
    tasks: Tasks = None,
    capacities: Annotated[
        Path | None,
        typer.Option("--readers", help="Table with the columns reader and capacity, for errors and rubric."),
    ] = None,
    per_item: PerItem = None,
    people: Annotated[
        Path | None,
        typer.Option(help="Table with the columns subject (account id; for links, e-mail address) and reader (name)."),
    ] = None,
    auth: Annotated[str, typer.Option(help="How readers sign in: local, oidc, links or huggingface.")] = "local",
    host: Host = "127.0.0.1",
    port: Port = 7870,
    proxies: Proxies = 0,
    as_root: AsRoot = False,
) -> None:
    """Serve the page where readers judge labels, errors or answers, blinded to one another."""
    from reveal_leaderboard.custody.confinement import readable_places
    from reveal_leaderboard.custody.server import confine_server

    log_to_stderr()
    check_user(as_root)
    check_auth(auth, host, proxies)
    if auth != "local" and people is None:
        raise typer.BadParameter(f"--auth {auth} needs --people (accounts to readers)", param_hint="--people")
    if curation is not None and images is not None and curation.resolve().is_relative_to(images.resolve()):
        hint = "must not be below --images, which the server reads"
        raise typer.BadParameter(hint, param_hint="--curation")
    make_folder(data, "--data")
    data.chmod(0o700)
    sources = {"--curation": curation, "--misses": misses, "--answers": answers}
    if any(source is not None for source in sources.values()):
        others = {"--pictures": pictures, "--tasks": tasks, "--readers": capacities, "--per-item": per_item}
        _prepare_in_a_child({"--data": data, "--form": form.value, "--images": images, **sources, **others})
    data, people = data.resolve(), people.resolve() if people else None
    root = images.resolve() if images else _stored_root(data)
    lock = lock_folder(data)
    live_in(data)
    allowed = [*readable_places(), root, *secret_files(), *([people] if people else [])]
    for gap in confine_server(read=allowed, write=[data], database="sqlite://").gaps:
        log.warning("%s", gap)
    application = _build(data, root, people, auth, proxies)
    try:
        run_server(application, host, port, proxies)
    finally:
        lock.close()


def readers_prepare(
    data: Data,
    images: Images = None,
    curation: Curation = None,
    pictures: Pictures = None,
    form: FormOption = FormName.VOTES,
    misses: Misses = None,
    answers: Answers = None,
    tasks: Tasks = None,
    capacities: Readers = None,
    per_item: PerItem = None,
) -> None:
    """Copy the readers' lists and the image paths into the data folder, so that the server never opens their
    sources.
    """
    try:
        if form is FormName.VOTES:
            if per_item is not None:
                raise ValueError("`--per-item` must not be given with the form votes: the assignment has it")
            folder, root = _required_path("--curation", curation, form), _required_path("--images", images, form)
            made = _prepared_votes(data, folder, root, pictures)
        else:
            from reveal_bench.curation.assign import read_readers

            room = read_readers(_required_path("--readers", capacities, form))
            if form is FormName.ERRORS:
                from reveal_leaderboard.readers.misses import prepare_misses

                table, root = _required_path("--misses", misses, form), _required_path("--images", images, form)
                made = prepare_misses(data, table, root, room, per_item=per_item or 1)
            else:
                from reveal_leaderboard.readers.rubric_answers import READERS_PER_ANSWER, prepare_rubric

                if images is not None:
                    raise ValueError("`--images` must not be given with the form rubric: `--tasks` has the images")
                table, folder = _required_path("--answers", answers, form), _required_path("--tasks", tasks, form)
                made = prepare_rubric(data, table, folder, room, per_item=per_item or READERS_PER_ANSWER)
    except (ValueError, OSError) as error:
        _fail(error)
    listed = made.listed()
    typer.echo(f"{data}: {len({item for _, _, item in listed}):,} items, {len(listed):,} readings")


def readers_invite(
    data: Data,
    people: Annotated[Path, typer.Option(help="Table with the columns subject (e-mail address) and reader (name).")],
    reader: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Reader who gets a link; default: all readers.")
    ] = None,
    days: Annotated[int, typer.Option(help="Days until the links expire, 1 to 30.")] = 7,
) -> None:
    """Print a link for each reader that signs the reader in once (for `readers --auth links`).

    The server's address is read from REVEAL_URL. A new link replaces an unused one.
    """
    from reveal_leaderboard.accounts.accounts import AccountDisabledError
    from reveal_leaderboard.cli.admin import operator
    from reveal_leaderboard.readers.app import read_people
    from reveal_leaderboard.web.sign_in_links import link_address
    from reveal_leaderboard.web.sign_in_modes import own_address

    try:
        server = own_address(os.environ)
        subjects = read_people(people, _open(data).readers(), by_mail=True)
        addresses = {name: address for address, name in subjects.items()}
        if unknown := sorted(set(reader or ()) - set(addresses)):
            raise ValueError(f"`--reader` must be in {people.name}, got {', '.join(unknown)}")
        accounts = _accounts(data)
        for name in dict.fromkeys(reader or addresses):
            secret = accounts.sign_in_link(addresses[name], operator(), days=days)
            typer.echo(f"{name}\t{addresses[name]}\t{link_address(server, secret)}")
    except (ValueError, AccountDisabledError) as error:
        _fail(error)


def readers_status(data: Data) -> None:
    """Show the progress of every reader, and the number of studies by number of votes."""
    from reveal_leaderboard.readers.upkeep import progress

    room = progress(_open(data))
    typer.echo(f"{'reader':<24}{'list':>7}{'done':>7}{'left':>7}{'not readable':>14}  state")
    for one in room.readers:
        counts = f"{one.assigned:>7}{one.answered:>7}{one.left:>7}{one.not_readable:>14}"
        typer.echo(f"{one.reader:<24}{counts}  {one.state}")
    for n_votes, n_items in room.items_by_votes.items():
        typer.echo(f"{n_items:,} with {count_text(n_votes, 'vote')}")
    if room.version:
        typer.echo(f"lists changed {count_text(room.version, 'time')}: export with --reassigned")


def readers_close(
    data: Data,
    reader: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Reader whose list is closed; default: all readers.")
    ] = None,
    reopen: Annotated[bool, typer.Option("--reopen", help="Reopen the list instead.")] = False,
) -> None:
    """Stop accepting answers from all or the named readers."""
    readings = _open(data)
    try:
        for name in reader or readings.readers():
            readings.mark(name, "open" if reopen else "close")
    except ValueError as error:
        _fail(error)


def readers_reassign(
    data: Data,
    capacities: Annotated[
        Path,
        typer.Option(
            "--readers", help="Table with the columns reader and capacity; may have more readers or capacity."
        ),
    ],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Drop readings for which no reader has capacity.")
    ] = False,
) -> None:
    """Reassign the unread items of readers who stopped; the page shows the new lists at once."""
    from reveal_bench.curation.assign import read_readers
    from reveal_leaderboard.readers.upkeep import reassign_items

    try:
        done = reassign_items(_open(data), read_readers(capacities), allow_missing=allow_missing)
    except ValueError as error:
        _fail(error)
    typer.echo(f"{done.n_moved:,} readings were reassigned")
    if done.missing:
        typer.secho(f"{len(done.missing):,} readings found no reader and were dropped", fg="yellow")


def readers_export(
    data: Data,
    out: Annotated[Path, typer.Option(help="CSV file.", show_default=False)],
    reassigned: Annotated[Path | None, typer.Option(help="Parquet file for the current lists.")] = None,
) -> None:
    """Write votes for `reveal-bench curate import-votes`, scores for `admin ratings`, or the kinds of errors."""
    from reveal_leaderboard.readers.upkeep import export_answers, export_assignments

    readings = _open(data)
    n_answers = export_answers(readings, out)
    typer.echo(f"{out}: {n_answers:,} answers")
    if reassigned is not None:
        version = export_assignments(readings, reassigned)
        typer.echo(f"{reassigned}: the current lists, changed {count_text(version, 'time')}")
    elif readings.version() and readings.form == "votes":
        typer.secho("lists have changed: import-votes also needs --reassigned", fg="yellow")


def _prepare_in_a_child(arguments: Mapping[str, object]) -> None:
    """Prepare the data in a separate process, because the server must have one thread and must not see the sources."""
    from reveal_leaderboard.worker.supervisor import own_command

    words = [str(word) for name, value in arguments.items() if value is not None for word in (name, value)]
    if done := subprocess.run(own_command("readers-prepare", *words)).returncode:
        raise typer.Exit(done)


def _prepared_votes(data: Path, curation: Path, images: Path, pictures: Path | None) -> Readings:
    from reveal_bench.cli import output as terminal
    from reveal_leaderboard.readers.preparation import prepare_votes

    step = "looking for images"
    with terminal.progress(step) as bar:
        return prepare_votes(
            data, curation, images, pictures=pictures, progress=lambda done, total: bar(step, done, total)
        )


def _required_path(name: str, value: Path | None, form: FormName) -> Path:
    if value is None:
        raise ValueError(f"`{name}` must be given with the form {form.value}")
    return value


def _stored_root(data: Path) -> Path:
    """Return the image folder recorded at preparation; starts no threads."""
    import sqlite3

    path = data / "readings.sqlite"
    if not path.is_file():
        message = "nothing to read yet: pass --curation, --misses or --answers"
        raise typer.BadParameter(message, param_hint="--data")
    connection = sqlite3.connect(path)
    try:
        return Path(connection.execute("SELECT value FROM facts WHERE name = 'root'").fetchone()[0])
    finally:
        connection.close()


def _build(data: Path, root: Path, people: Path | None, auth: str, proxies: int) -> FastAPI:
    from reveal_leaderboard.readers.app import build_readers_app, read_people
    from reveal_leaderboard.readers.images import ImageCache
    from reveal_leaderboard.web.sign_in_modes import open_auth

    try:
        readings = _open(data)
        by_mail, is_local = auth == "links", auth == "local"
        bound = read_people(people, readings.readers(), by_mail=by_mail) if people and not is_local else {}
        accounts = open_auth(_accounts(data), auth, os.environ)
    except ValueError as error:
        _fail(error)
    return build_readers_app(readings, ImageCache(root), accounts, bound, n_proxies=proxies)


def _accounts(data: Path) -> Accounts:
    from reveal_leaderboard.accounts.accounts import Accounts
    from reveal_leaderboard.store.database import connect, migrate

    engine = connect(f"sqlite:///{data / 'accounts.sqlite'}")
    migrate(engine)
    return Accounts(engine)


def _open(data: Path) -> Readings:
    from reveal_leaderboard.readers.store import Readings

    try:
        return Readings(data)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from None


def _fail(error: Exception) -> NoReturn:
    typer.secho(f"error: {error}", fg="red", err=True)
    raise typer.Exit(1) from None
