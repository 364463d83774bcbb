"""The process of a server: one per folder, and all that its libraries write stays below that folder.

Nothing heavy is imported at the top: a server confines its process before libraries start threads.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

if TYPE_CHECKING:
    from fastapi import FastAPI

Host = Annotated[str, typer.Option(help="Address to listen on; in local mode a loopback one.")]
Port = Annotated[int, typer.Option(min=0, max=65535)]
Proxies = Annotated[int, typer.Option(min=0, help="Trusted proxies in front of the server.")]


def log_to_stderr(known: Iterable[str] = ()) -> None:
    """Write the journal to the standard error; `known` words may stand in it as they are."""
    from reveal_leaderboard.store.journal import set_up_journal

    set_up_journal(sys.stderr, known=known)


def check_auth(auth: str, host: str, proxies: int) -> None:
    """Refuse options that would let in whom the server must not let in."""
    from reveal_leaderboard.web.auth import ModeError, check_mode

    try:
        check_mode(auth, host, os.environ, trusts_proxy=proxies > 0)
    except ModeError as error:
        raise typer.BadParameter(str(error), param_hint="--auth") from None


def secret_files() -> list[Path]:
    """The files of secrets that the environment names."""
    return [Path(value) for name, value in os.environ.items() if name.startswith("REVEAL_") and "_FILE" in name]


def run_server(application: FastAPI, host: str, port: int) -> None:
    """Serve until a signal ends it; the address is printed once it answers."""
    import uvicorn  # after confinement: threads started by libraries are bound by it too

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                taken = self.servers[0].sockets[0].getsockname()[1]
                typer.echo(f"listening at http://{f'[{host}]' if ':' in host else host}:{taken}")
                sys.stdout.flush()

    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,  # longer than proxies keep theirs, else a request meets a connection that closes
    )
    server = Server(config)
    with suppress(KeyboardInterrupt):  # raised once more after an orderly end
        server.run()
    if not server.started:
        raise SystemExit(3)  # not 0: whoever supervises it is to start it again


def lock_folder(data: Path) -> BinaryIO:
    """Keep a second server from the same folder; the kernel releases it when this process ends."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (data / "server.lock").open("ab")
    except OSError as error:
        words = f"{data} must be a folder that this user may write to: {error.strerror}"
        raise typer.BadParameter(words, param_hint="--data") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise typer.BadParameter(f"another server uses {data}", param_hint="--data") from None
    return lock


def live_in(data: Path) -> None:
    """Point everything that libraries write to a folder below `data`, and go there."""
    home = data / "server"
    shutil.rmtree(home, ignore_errors=True)  # what a killed server left
    for name in ("TMPDIR", "GRADIO_TEMP_DIR", "HOME", "HF_HOME", "XDG_CACHE_HOME"):
        folder = home / name.lower()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[name] = str(folder)
    tempfile.tempdir = None  # asked for again from TMPDIR
    os.chdir(home)
