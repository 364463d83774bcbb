"""Command line ``reveal-leaderboard``: parse options, call the package, and report errors.

Heavy modules are imported inside functions, because `serve` must confine its process before libraries start threads.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reveal_leaderboard.cli.admin import admin, webhooks
from reveal_leaderboard.cli.backups import audit, backup, restore
from reveal_leaderboard.cli.health import add_health
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
from reveal_leaderboard.cli.readers import add_readers
from reveal_leaderboard.custody.confinement import is_inside, landlock_abi, readable_places
from reveal_leaderboard.custody.server import ServerConfinement, confine_server
from reveal_leaderboard.store.paths import BlobsAt, Data, Database, DataPaths, SettingsFile, make_folder, resolve_paths

if TYPE_CHECKING:
    from fastapi import FastAPI

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serve boards and readers' pages, score submissions, back up and audit.",
)
app.add_typer(admin, name="admin", rich_help_panel="Run a board")
app.command()(backup)
app.command()(restore)
app.command()(audit)
app.command()(webhooks)
add_readers(app)
add_health(app)
log = logging.getLogger("reveal_leaderboard")


@dataclass(frozen=True)
class _Listening:
    """The server's file access rules and limits."""

    auth: str
    proxies: int
    max_upload_mb: int
    galleries: tuple[Path, ...] = ()


@app.command()
def serve(
    data: Data,
    benchmark: Annotated[
        list[str],
        typer.Option(metavar="FOLDER[:SPLIT]", help="Public dataset folder; the split is `holdout` by default."),
    ],
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            file_okay=False,
            metavar="FOLDER",
            help="Public folders of your other servers' boards, to find shared cases.",
        ),
    ] = None,
    database: Database = None,
    blobs: BlobsAt = None,
    settings: SettingsFile = None,
    auth: Annotated[str, typer.Option(help="How people sign in: local, oidc, links or huggingface.")] = "local",
    host: Host = "127.0.0.1",
    port: Port = 7860,
    proxies: Proxies = 0,
    max_upload_mb: Annotated[int, typer.Option(min=1, help="Largest request, in megabytes.")] = 200,
    gallery: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            file_okay=False,
            metavar="FOLDER",
            help="Folder of released cases from `gallery`; once per benchmark.",
        ),
    ] = None,
    as_root: AsRoot = False,
) -> None:
    """Serve the pages and the API. The process gives up access to files that it does not need."""
    log_to_stderr()
    check_user(as_root)
    listening = _Listening(auth, proxies, max_upload_mb, tuple(folder.resolve() for folder in gallery or ()))
    check_auth(auth, host, proxies)
    at = resolve_paths(data, database, blobs, settings)
    folders = [_folder_and_split(text) for text in benchmark]
    elsewhere = [folder.resolve() for folder in beside or ()]
    lock = lock_folder(at.data)
    for folder in at.shared:
        make_folder(folder, "--blobs")  # created now, because Landlock rules need existing paths
    live_in(at.data)
    confinement = _confine(at, [*(folder for folder, _ in folders), *elsewhere, *listening.galleries])
    try:
        application, close = _build(at, folders, elsewhere, listening, confinement)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        run_server(application, host, port, proxies)
    finally:
        close()
        lock.close()


def _build(
    at: DataPaths,
    folders: list[tuple[Path, str]],
    beside: list[Path],
    listening: _Listening,
    confinement: ServerConfinement,
) -> tuple[FastAPI, Callable[[], None]]:
    from reveal_leaderboard.accounts.accounts import Accounts
    from reveal_leaderboard.boards.catalogue import Catalogue, journal_words, read_published_boards
    from reveal_leaderboard.boards.galleries import open_galleries
    from reveal_leaderboard.custody import Custody
    from reveal_leaderboard.settings import case_key
    from reveal_leaderboard.web.app import Front, build_app
    from reveal_leaderboard.web.sign_in_modes import open_auth

    store, blobs = at.open_store(), at.open_blobs()
    blobs.sweep()
    auth = open_auth(Accounts(store.engine), listening.auth, os.environ)
    published = list(read_published_boards(folders, beside, case_key(os.environ)).values())
    galleries = open_galleries(listening.galleries, published)
    log_to_stderr(journal_words(store, published))
    catalogue = Catalogue(store, published, checked=True)
    custody = Custody(at.data / "custody")
    threading.Thread(target=custody.warm_up, name="warm-up", daemon=True).start()
    front = Front(
        n_proxies=listening.proxies,
        confinement=f"{confinement.summary}; children: {custody.confinement}",
        gaps=confinement.gaps,
        blocked=at.private,
        max_upload_bytes=listening.max_upload_mb * 1_000_000,
        metrics_token=os.environ.get("REVEAL_METRICS_TOKEN") or None,
        galleries=galleries,
    )
    return build_app(store, blobs, catalogue, custody, auth, front), custody.close


@app.command()
def worker(
    data: Data,
    holdout: Annotated[
        list[str],
        typer.Option(metavar="NAME=FOLDER", help="Private references of a benchmark; once per version that is scored."),
    ],
    database: Database = None,
    blobs: BlobsAt = None,
    settings: SettingsFile = None,
    vault: Annotated[
        Path | None,
        typer.Option(help="Folder for exact scores, incidents and keys; default: `vault` beside the holdout."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Parallel workers; a worker that dies is restarted.")] = 1,
    once: Annotated[bool, typer.Option("--once", help="Stop when the queue is empty.")] = False,
    lease_seconds: Annotated[
        float, typer.Option(min=0.3, help="Time after which a silent worker loses its job.")
    ] = 60.0,
    pause_before_finish: Annotated[
        float, typer.Option(min=0, help="For tests: seconds to wait before a result is stored.")
    ] = 0.0,
    unconfined: Annotated[
        bool,
        typer.Option("--unconfined", help="Also start without Landlock and bubblewrap: children can read holdouts."),
    ] = False,
) -> None:
    """Score queued submissions. Only the worker knows where the holdouts are."""
    log_to_stderr()
    at = resolve_paths(data, database, blobs, settings)
    from reveal_leaderboard.cli.process import scratch_folder
    from reveal_leaderboard.custody import Custody
    from reveal_leaderboard.release import receipts
    from reveal_leaderboard.settings import SettingsError, case_key
    from reveal_leaderboard.worker.answers import CountDamagedError
    from reveal_leaderboard.worker.webhooks import delivering, open_senders
    from reveal_leaderboard.worker.worker import Worker, check_final_shares, open_holdouts, register_patients

    _check_confinement(unconfined)
    if at.settings and is_inside(at.settings, at.shared):
        words = (
            f"must be outside the data folder, where the server could change the worker's limits: move {at.settings}, "
            "and give server and worker the new path"
        )
        raise typer.BadParameter(words, param_hint="--settings")
    try:
        holdouts = open_holdouts((_name_and_folder(text) for text in holdout), shared=at.shared, vault=vault)
    except OSError as error:
        raise typer.BadParameter(f"{error.filename} must be accessible to this user: {error.strerror}") from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if processes > 1:
        _supervise(processes)
        return
    with scratch_folder() as scratch, Custody(scratch / "custody") as custody:
        store = at.open_store()
        times = {"lease_seconds": lease_seconds, "pause_before_finish": pause_before_finish}
        try:
            process = Worker(store, at.open_blobs(), holdouts, custody, store.settings, **times)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--vault") from None
        log_to_stderr([process.name, *store.settings.webhooks, *(word for key in holdouts for word in key)])
        try:
            senders = open_senders(store, os.environ)
            register_patients(store, holdouts, case_key(os.environ))
            check_final_shares(store, holdouts)
        except SettingsError as error:
            raise typer.BadParameter(str(error), param_hint="--settings") from None
        with store.read() as connection:
            for key in receipts.with_other_keys(connection, process.signers):
                log.warning("earlier receipts of %s %s have a different key: check --vault", *key)
        custody.warm_up([one.folder for one in holdouts.values()])
        _on_end_signals(process.stopping)
        try:
            with delivering(senders, to_the_end=once):
                process.run(once=once)
        except CountDamagedError as error:
            raise typer.BadParameter(str(error), param_hint="--vault") from None


def _check_confinement(unconfined: bool) -> None:
    """Refuse to start a worker whose child processes would not be confined, unless the option accepts it."""
    from reveal_leaderboard.custody.confinement import children_gaps
    from reveal_leaderboard.custody.fork_client import bubblewrap_works
    from reveal_leaderboard.custody.sandbox import confinement_here

    if landlock_abi() > 0 or bubblewrap_works():
        return
    (gap, *_) = children_gaps(confinement_here())
    if not unconfined:
        remedy = "use Linux 5.13 or newer with Landlock, install bubblewrap, or accept it with this option"
        raise typer.BadParameter(f"{gap}: {remedy}", param_hint="--unconfined")
    log.warning("%s", gap)


def _supervise(processes: int) -> None:
    """Run this command as `processes` single workers, and restart workers that die."""
    from reveal_leaderboard.worker.supervisor import Supervisor, own_command

    words = own_command(*sys.argv[1:], "--processes", "1")
    supervisor = Supervisor({f"worker {number}": words for number in range(1, processes + 1)})
    _on_end_signals(supervisor.stopping)
    supervisor.run()


@app.command()
def migrate(data: Data, database: Database = None) -> None:
    """Migrate the database to this version, as server and workers also do at start."""
    resolve_paths(data, database, None, None).open_store()


@app.command("gallery")
def make_gallery(
    benchmark: Annotated[str, typer.Argument(help="Name of the board's benchmark.", show_default=False)],
    dataset: Annotated[Path, typer.Option(help="Public dataset folder with images.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Option(help="New or empty folder, for `serve --gallery`.", show_default=False)],
    split: Annotated[str, typer.Option(help="Split whose references are public.")] = "released",
    predictions: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="Prediction file of a system; once per system.")
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Most cases to show, spread over the split.")] = None,
    max_side: Annotated[int, typer.Option(min=64, help="Longer side of an image in pixels.")] = 2048,
) -> None:
    """Prepare images, references and answers of released cases for browsing. Check the licence of the images first."""
    from reveal_bench.cli.output import progress
    from reveal_bench.viewer.gallery import named_files
    from reveal_leaderboard.boards.galleries import prepare_board_gallery

    step = "preparing"
    try:
        with progress(step) as bar:
            n = prepare_board_gallery(
                benchmark, dataset, split, named_files(predictions or []), out, max_side=max_side, most=most,
                progress=lambda done, total: bar(step, done, total),
            )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(f"{out}: {n:,} cases; `serve --gallery {out}` shows them")


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Folder of the demo; created if missing.")] = Path("demo-data"),
    images: Annotated[int, typer.Option(min=40, help="Images of the synthetic test split.")] = 400,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port; if it is in use, another port.")] = 7860,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete an existing demo first.")] = False,
    stay: Annotated[bool, typer.Option(help="Keep the board running until Ctrl-C.")] = True,
) -> None:
    """Demonstrate on synthetic data: build, predict, score, upload, and boards with private holdouts."""
    from reveal_leaderboard.cli.demo import BENCHMARK, STUDIES, Demo, arm_signals, disarm_signals, show_board, upload

    arm_signals()
    show = Demo(folder, n_images=images, seed=seed, echo=typer.echo)
    try:
        if fresh:
            show.remove()
        show.prepare()
        show.score_at_home()
        with show.running(port) as url:
            upload(show.uploads(), url, typer.echo)
            for name in (BENCHMARK, STUDIES):
                show_board(url, name, typer.echo)
            show.say_what_next(url)
            if stay:
                threading.Event().wait()  # until Ctrl-C; dead processes are restarted
    except KeyboardInterrupt:
        disarm_signals()
        typer.echo("stopped")
    except (ValueError, RuntimeError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise typer.Exit(1) from None


def _on_end_signals(stopping: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())


def _folder_and_split(text: str) -> tuple[Path, str]:
    folder, _, split = text.rpartition(":")
    if not folder or Path(text).is_dir():
        folder, split = text, "holdout"
    if not Path(folder).is_dir():
        raise typer.BadParameter(f"no folder {folder}", param_hint="--benchmark")
    return Path(folder).resolve(), split


def _name_and_folder(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not name or not Path(folder).is_dir():
        raise typer.BadParameter(f"must be NAME=FOLDER of an existing folder, got {text!r}", param_hint="--holdout")
    return name, Path(folder).resolve()


def _confine(at: DataPaths, public: list[Path]) -> ServerConfinement:
    from reveal_bench.benchmarks import bundled

    settings = [at.settings] if at.settings else []
    reading = [*readable_places(), *public, *settings, *secret_files(), bundled("submissions")]
    confinement = confine_server(read=reading, write=at.shared, database=at.database)
    for gap in confinement.gaps:
        log.warning("%s", gap)
    return confinement


PANELS = {
    "Run a board": ("serve", "worker", "demo", "gallery", "webhooks", "migrate", "health"),
    "Back up and check": ("backup", "restore", "audit"),
}
"""Title -> commands, in the order of ``--help``; the other commands are about readers."""

_PANEL_OF = {name: title for title, names in PANELS.items() for name in names}
for command in app.registered_commands:
    command.name = command.name or getattr(command.callback, "__name__", None)
    command.rich_help_panel = _PANEL_OF.get(command.name or "", "Have readers judge")
app.registered_commands.sort(key=lambda command: [*_PANEL_OF, command.name].index(command.name))


if __name__ == "__main__":
    app()
