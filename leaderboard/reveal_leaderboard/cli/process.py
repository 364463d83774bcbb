"""The process of a server or worker: its scratch folder, its lock on the data folder, and its cleanup.

Nothing heavy is imported at the top: a server confines its process before libraries start threads.

A scratch folder is removed after its process ends, however it ends. A running process holds a lock (flock) on its
folder, which the kernel releases when the process ends. So an unlocked folder with such a name was left by a killed
process, and the next process to start removes it. Process ids would not do instead of locks: ids are reused, and mean
nothing in another container that shares the parent folder. Only folders of this name, owned by the same user, directly
in the parent folder are removed; links are not followed. If the file system has no such locks, nothing is removed.
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

AsRoot = Annotated[
    bool, typer.Option("--as-root", envvar="REVEAL_AS_ROOT", help="Accept to run as root outside a container.")
]

END_SECONDS = 20
"""Time for requests in progress to finish after a signal to end."""
PREFIX = "reveal-scratch-"
CONTAINER_FILES = Path("/.dockerenv"), Path("/run/.containerenv")
UID_MAP = Path("/proc/self/uid_map")
WHOLE_SYSTEM = ["0", "0", str((1 << 32) - 1)]
"""Map of users of a process that is in no user namespace: first, first outside, number."""

log = logging.getLogger(__name__)


def log_to_stderr(known: Iterable[str] = ()) -> None:
    """Write the journal to standard error; `known` words and names of benchmarks are printed unchanged."""
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_leaderboard.custody.confinement import CHILDREN_GAPS
    from reveal_leaderboard.custody.server import GAPS
    from reveal_leaderboard.settings import LEAKS
    from reveal_leaderboard.store.journal import set_up_journal

    set_up_journal(sys.stderr, known=[*known, *BENCHMARKS, *LEAKS, *GAPS, *CHILDREN_GAPS])


def check_user(as_root: bool) -> None:
    """Refuse to run as the system's root, who may read every file of it; a container's root sees the container only."""
    if os.geteuid() == 0 and not as_root and not _is_in_container():
        words = "a server must not run as root, who can read /etc/shadow: start it as a user of its own, or accept it"
        raise typer.BadParameter(words, param_hint="--as-root")


def _is_in_container() -> bool:
    """Return True in Docker, Podman, Kubernetes, a container that says so, or a user namespace."""
    signs = any(name in os.environ for name in ("container", "KUBERNETES_SERVICE_HOST"))
    return signs or any(file.exists() for file in CONTAINER_FILES) or UID_MAP.read_text().split() != WHOLE_SYSTEM


def check_auth(auth: str, host: str, proxies: int) -> None:
    """Refuse options that would give access to people without permission."""
    from reveal_leaderboard.web.sign_in_modes import ModeError, check_mode

    try:
        check_mode(auth, host, os.environ, trusts_proxy=proxies > 0)
    except ModeError as error:
        raise typer.BadParameter(str(error), param_hint="--auth") from None


def secret_files() -> list[Path]:
    """Return the files of secrets that the environment names."""
    return [Path(value) for name, value in os.environ.items() if name.startswith("REVEAL_") and "_FILE" in name]


def run_server(application: FastAPI, host: str, port: int, proxies: int) -> None:
    """Serve until a signal ends it; the address is printed once the server answers."""
    import uvicorn  # after confinement, which then also binds libraries' threads

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
        log_config=None,  # uvicorn's own would print tracebacks beside the journal
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=END_SECONDS,  # without it, a client who does not read keeps the server from ending
        timeout_keep_alive=75,  # longer than proxies' timeouts, otherwise a request may meet a closing connection
    )
    server = AnnouncingServer(config)
    with suppress(KeyboardInterrupt):  # raised again after an orderly end
        server.run()
    if not server.started:
        raise SystemExit(3)  # not 0, so that a supervisor restarts it


def lock_folder(data: Path) -> BinaryIO:
    """Prevent a second server on the same folder; the kernel releases the lock when this process ends."""
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
    """Make libraries write their files to a folder below `data`, and change to that folder."""
    home = data / "server"
    shutil.rmtree(home, ignore_errors=True)  # left by a killed server
    for name in ("TMPDIR", "GRADIO_TEMP_DIR", "HOME", "HF_HOME", "XDG_CACHE_HOME"):
        folder = home / name.lower()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[name] = str(folder)
    tempfile.tempdir = None  # read again from TMPDIR
    os.chdir(home)


@contextmanager
def scratch_folder(place: Path | None = None) -> Iterator[Path]:
    """Yield a folder for this process's scratch files; folders of killed processes beside it are removed first.

    Until the block ends, Python's temporary files go there by default, too.

    Parameters
    ----------
    place : parent folder of the scratch folder; by default the system's folder for temporary files (``TMPDIR``)
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
    """Remove the scratch folders in `place` whose processes are gone; return them."""
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
    """Return a new folder, and the descriptor of its lock, which started programs do not inherit."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place.absolute()))
        with suppress(FileNotFoundError):
            handle = _open(folder)
            if _is_locked(folder, handle) and _is_at(folder, handle):
                return folder, handle
            os.close(handle)  # another process removed it as abandoned before it was locked


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
    """Return True if `folder` is still the opened folder."""
    try:
        status = os.stat(folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(handle))
