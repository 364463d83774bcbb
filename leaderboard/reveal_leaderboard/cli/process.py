"""The process of a server or a worker: where it writes, so that one per folder does, and nothing stays behind.

Nothing heavy is imported at the top: a server confines its process before libraries start threads.

Scratch folders end with their process, whatever ends it. A process that lives holds a lock (flock) on its folder, of
which the kernel lets go when the process is no more. So a folder of that name that nobody locks was left by one that
was killed, and the next to start removes it. A number of a process would not do: it is given again, and says nothing in
another container that shares the place. Nothing is removed but folders of this name, of the same user, directly in the
place; links are not followed. Where the file system knows no such locks, nothing is removed at all.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

if TYPE_CHECKING:
    from fastapi import FastAPI

Host = Annotated[str, typer.Option(help="Address to listen on; in local mode a loopback one.")]
Port = Annotated[int, typer.Option(min=0, max=65535)]
Proxies = Annotated[int, typer.Option(min=0, help="Trusted proxies in front of the server.")]

PREFIX = "reveal-scratch-"

log = logging.getLogger(__name__)


def log_to_stderr(known: Iterable[str] = ()) -> None:
    """Write the journal to the standard error; `known` words may stand in it as they are."""
    from reveal_leaderboard.store.journal import set_up_journal

    set_up_journal(sys.stderr, known=known)


def check_auth(auth: str, host: str, proxies: int) -> None:
    """Refuse options that would let in whom the server must not let in."""
    from reveal_leaderboard.web.sign_in_modes import ModeError, check_mode

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

    class AnnouncingServer(uvicorn.Server):
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
    server = AnnouncingServer(config)
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


@contextmanager
def scratch_folder(place: Path | None = None) -> Iterator[Path]:
    """A folder for all that this process writes for a while; what killed processes left beside it is removed first.

    Until the block ends, Python's temporary files go there, too, unless they are told another place.

    Parameters
    ----------
    place : where to make it; the system's folder for temporary files (``TMPDIR``) unless given
    """
    place = Path(tempfile.gettempdir() if place is None else place)
    for left in remove_abandoned(place):
        log.info("removed %s, which a killed process had left", left.name)
    folder, lock = _locked_folder(place)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned(place: Path) -> list[Path]:
    """Remove the scratch folders in `place` whose processes are gone; returns those removed."""
    removed = []
    for folder in sorted(place.glob(f"{PREFIX}*")):
        with suppress(OSError):  # a lock that is held; no folder; not ours to open
            handle = _open(folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle).st_uid == os.geteuid() and _is_at(folder, handle):
                    shutil.rmtree(folder)
                    removed.append(folder)
            finally:
                os.close(handle)
    return removed


def _locked_folder(place: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock, which no program that is started inherits."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place.absolute()))
        with suppress(FileNotFoundError):
            handle = _open(folder)
            if _is_locked(folder, handle) and _is_at(folder, handle):
                return folder, handle
            os.close(handle)  # somebody took it for an abandoned one before it was locked


def _is_locked(folder: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked (%s): it stays if this process is killed", folder.name, error.strerror)
    return True


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: Path, handle: int) -> bool:
    """Whether `folder` is what was opened, and still there."""
    try:
        status = os.stat(folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(handle))
