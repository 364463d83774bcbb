"""Command line of the leaderboard: parse, call, translate errors.

Nothing heavy is imported at the top: `serve` confines its process before libraries start threads.
"""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from reveal_leaderboard.confinement import confine, readable_places

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="The REVEAL leaderboard."
)
log = logging.getLogger("reveal_leaderboard")

Data = Annotated[Path, typer.Option(help="Folder of the database and the uploads, shared by server and workers.")]


@app.command()
def serve(
    data: Data,
    benchmark: Annotated[
        list[str],
        typer.Option(metavar="FOLDER[:SPLIT]", help="Public dataset folder; the split is `holdout` unless said."),
    ],
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 7860,
    max_upload_mb: Annotated[int, typer.Option(min=1, help="Largest request, in megabytes.")] = 200,
) -> None:
    """Serve the pages and the API on this machine. The process gives up opening files it has no business with."""
    _log_to_stderr()
    _check_loopback(host)
    folders = [_folder_and_split(text) for text in benchmark]
    data = data.resolve()
    lock = _lock(data)
    _live_in(data)
    confinement = _confine(data, [folder for folder, _ in folders])

    import uvicorn  # after confinement: threads started by libraries are bound by it too

    from reveal_leaderboard.app import build_app
    from reveal_leaderboard.intake import read_published, warm_up

    try:
        published = {p.name: p for p in (read_published(folder, split) for folder, split in folders)}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    application = build_app(data, published, confinement=confinement, max_upload_bytes=max_upload_mb * 1_000_000)
    threading.Thread(target=warm_up, name="warm-up", daemon=True).start()
    uvicorn.run(application, host=host, port=port, log_level="warning", server_header=False, proxy_headers=False)
    lock.close()


@app.command()
def worker(
    data: Data,
    holdout: Annotated[list[str], typer.Option(metavar="NAME=FOLDER", help="Private references of a benchmark.")],
    vault: Annotated[
        Path | None, typer.Option(help="For exact scores and incidents; `vault` beside the holdout unless said.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the queue is empty.")] = False,
    lease_seconds: Annotated[float, typer.Option(min=0.3, help="How long a silent worker keeps a submission.")] = 60.0,
    pause_before_finish: Annotated[
        float, typer.Option(min=0, help="For drills: wait so many seconds with a result in hand.")
    ] = 0.0,
) -> None:
    """Score queued submissions. This process alone is told where the holdout is."""
    from reveal_leaderboard.worker import Worker, open_holdouts

    _log_to_stderr()
    try:
        holdouts = open_holdouts(dict(_name_and_folder(text) for text in holdout), data=data.resolve(), vault=vault)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    process = Worker(data.resolve(), holdouts, lease_seconds=lease_seconds, pause_before_finish=pause_before_finish)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stopping.set())
    process.run(once=once)


@app.command()
def migrate(data: Data) -> None:
    """Bring the database to this version (server and workers do so at start, too)."""
    from reveal_leaderboard.intake import open_data

    open_data(data.resolve())


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Folder of the demo; made if missing.")] = Path("demo-data"),
    images: Annotated[int, typer.Option(min=20, help="Images of the synthetic test split.")] = 400,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Another is taken if it is in use.")] = 7860,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away the demo that is there.")] = False,
    stay: Annotated[bool, typer.Option(help="Keep the board running until Ctrl-C.")] = True,
) -> None:
    """Show everything on synthetic data: build, predict, score at home, upload, and a board with a private holdout."""
    from reveal_leaderboard.demo import Demo, heed_signals

    heed_signals()
    show = Demo(folder, n_images=images, seed=seed, say=typer.echo)
    try:
        if fresh:
            show.remove()
        show.prepare()
        show.score_at_home()
        with show.running(port) as url:
            show.upload(url)
            show.show_board(url)
            show.say_what_next(url)
            if stay:
                show.watch()
    except KeyboardInterrupt:
        typer.echo("stopped")
    except (ValueError, RuntimeError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise typer.Exit(1) from None


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    log.setLevel(logging.INFO)


def _check_loopback(host: str) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise typer.BadParameter(
            f"there are no accounts yet, so the server listens on this machine only: "
            f"use 127.0.0.1, ::1 or localhost, got {host!r}",
            param_hint="--host",
        )


def _folder_and_split(text: str) -> tuple[Path, str]:
    folder, _, split = text.rpartition(":")
    if not folder or Path(text).is_dir():
        folder, split = text, "holdout"
    if not Path(folder).is_dir():
        raise typer.BadParameter(f"there is no folder {folder}", param_hint="--benchmark")
    return Path(folder).resolve(), split


def _name_and_folder(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not name or not Path(folder).is_dir():
        raise typer.BadParameter(f"must be NAME=FOLDER of an existing folder, got {text!r}", param_hint="--holdout")
    return name, Path(folder).resolve()


def _lock(data: Path) -> BinaryIO:
    """Keep a second server from the same folder; the kernel lets go of it when this process ends."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (data / "server.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise typer.BadParameter(f"another server uses {data}", param_hint="--data") from None
    return lock


def _live_in(data: Path) -> None:
    """Point everything that libraries write to a folder below `data`, and go there."""
    home = data / "server"
    shutil.rmtree(home, ignore_errors=True)  # what a killed server left
    for name in ("TMPDIR", "GRADIO_TEMP_DIR", "HOME", "HF_HOME", "XDG_CACHE_HOME"):
        folder = home / name.lower()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[name] = str(folder)
    tempfile.tempdir = None  # asked for again from TMPDIR
    os.chdir(home)


def _confine(data: Path, public: list[Path]) -> str:
    from reveal_bench.benchmarks import bundled

    confinement = confine(read=[*readable_places(), *public, bundled("submissions")], write=[data])
    if confinement == "none":
        log.warning("this kernel has no Landlock: only file permissions keep the server from the holdout")
    return confinement


if __name__ == "__main__":
    app()
