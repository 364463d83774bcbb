"""Set up the process of a server or worker: scratch folder, lock on the data folder, log, and orderly end.

Heavy modules are imported inside functions, because a server must confine its process before libraries start threads.

A scratch folder is removed after its process ends, even if the process is killed. A running process has a lock (flock)
on its folder, which the kernel releases when the process ends. So an unlocked scratch folder was left by a killed
process, and the next process that starts removes it. Process ids could not replace locks, because ids are reused and
differ between containers that share the parent folder. Only folders with a scratch folder's name, owned by the same
user and directly in the parent folder, are removed; links are not followed. If the file system has no locks, nothing is
removed.
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

Host = Annotated[str, typer.Option(help="Address to listen on; in local mode a loopback address.")]
Port = Annotated[int, typer.Option(min=0, max=65535)]
Proxies = Annotated[int, typer.Option(min=0, help="Number of trusted proxies in front of the server.")]

AsRoot = Annotated[
    bool, typer.Option("--as-root", envvar="REVEAL_AS_ROOT", help="Allow running as root outside a container.")
]

END_SECONDS = 20
"""Seconds in which requests in progress may finish after a signal to end."""
PREFIX = "reveal-scratch-"
CONTAINER_FILES = Path("/.dockerenv"), Path("/run/.containerenv")
UID_MAP = Path("/proc/self/uid_map")
WHOLE_SYSTEM = ["0", "0", str((1 << 32) - 1)]
"""User id map of a process outside user namespaces: first id inside, first id outside, number of ids."""

log = logging.getLogger(__name__)


def log_to_stderr(known: Iterable[str] = ()) -> None:
    """Write the log to standard error; `known` words and names of benchmarks are printed unchanged."""
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_leaderboard.custody.confinement import CHILDREN_GAPS
    from reveal_leaderboard.custody.server import GAPS
    from reveal_leaderboard.settings import LEAKS
    from reveal_leaderboard.store.journal import set_up_journal

    set_up_journal(sys.stderr, known=[*known, *BENCHMARKS, *LEAKS, *GAPS, *CHILDREN_GAPS])


def check_user(as_root: bool) -> None:
    """Refuse to run as the system's root, who can read every file; the root of a container sees only the container."""
    if os.geteuid() == 0 and not as_root and not _is_in_container():
        words = "a server must not run as root, who can read all files: start it as a separate user, or pass --as-root"
        raise typer.BadParameter(words, param_hint="--as-root")


def _is_in_container() -> bool:
    """Return True in Docker, Podman, Kubernetes, a container with the variable `container`, or a user namespace."""
    signs = any(name in os.environ for name in ("container", "KUBERNETES_SERVICE_HOST"))
    return signs or any(file.exists() for file in CONTAINER_FILES) or UID_MAP.read_text().split() != WHOLE_SYSTEM


def check_auth(auth: str, host: str, proxies: int) -> None:
    """Refuse options that would let people in without permission."""
    from reveal_leaderboard.web.sign_in_modes import ModeError, check_mode

    try:
        check_mode(auth, host, os.environ, trusts_proxy=proxies > 0)
    except ModeError as error:
        raise typer.BadParameter(str(error), param_hint="--auth") from None


def secret_files() -> list[Path]:
    """Return the files of secrets to which environment variables refer."""
    return [Path(value) for name, value in os.environ.items() if name.startswith("REVEAL_") and "_FILE" in name]


def run_server(application: FastAPI, host: str, port: int, proxies: int) -> None:
    """Serve until a signal ends the process; print the address once the server answers."""
    import uvicorn  # imported after confinement, so that libraries' threads are confined as well

    from reveal_leaderboard.web.connections import BACKLOG, limited_protocol, open_connections

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
        http=limited_protocol(open_connections(proxies)),
        ws="none",
        backlog=BACKLOG,
        log_config=None,  # uvicorn's own log would print tracebacks beside the JSON lines
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=END_SECONDS,  # otherwise a client that does not read would keep the server running
        timeout_keep_alive=75,  # longer than proxies' timeouts, so that no request meets a closing connection
    )
    server = AnnouncingServer(config)
    with suppress(KeyboardInterrupt):  # the signal, raised again after an orderly end
        server.run()
    if not server.started:
        raise SystemExit(3)  # not 0, so that a supervisor restarts the server


def lock_folder(data: Path) -> BinaryIO:
    """Lock the data folder against a second server; the kernel releases the lock when this process ends."""
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
    """Let libraries write their files to a folder below `data`, and make it the working folder."""
    home = data / "server"
    shutil.rmtree(home, ignore_errors=True)  # left by a killed server
    for name in ("TMPDIR", "GRADIO_TEMP_DIR", "HOME", "HF_HOME", "XDG_CACHE_HOME"):
        folder = home / name.lower()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[name] = str(folder)
    tempfile.tempdir = None  # makes Python read TMPDIR again
    os.chdir(home)


@contextmanager
def scratch_folder(place: Path | None = None) -> Iterator[Path]:
    """Yield a folder for this process's scratch files, after removing the folders of killed processes.

    Until the block ends, the folder is also Python's default for temporary files.

    Parameters
    ----------
    place : parent folder of the scratch folder; default: the system's folder for temporary files (``TMPDIR``)
    """
    place = Path(tempfile.gettempdir() if place is None else place)
    for left in remove_abandoned(place):
        log.info("removed %s, left by a killed process", left.name)
    folder, lock = _locked_folder(place)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned(place: Path) -> list[Path]:
    """Remove the scratch folders in `place` whose processes have ended, and return these folders."""
    removed = []
    for folder in sorted(place.glob(f"{PREFIX}*")):
        with suppress(OSError):  # locked, not a folder, or not accessible
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
    """Return a new folder and the file descriptor of its lock, which child programs do not inherit."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place.absolute()))
        with suppress(FileNotFoundError):
            handle = _open(folder)
            if _is_locked(folder, handle) and _is_at(folder, handle):
                return folder, handle
            os.close(handle)  # another process removed the folder before it was locked


def _is_locked(folder: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked (%s), so it remains if this process is killed", folder.name, error.strerror)
    return True


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: Path, handle: int) -> bool:
    """Return True if the path `folder` is still the opened folder."""
    try:
        status = os.stat(folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(handle))
