"""Command ``reveal-leaderboard health``: health check of a container that runs any long-running command.

The check needs no configuration, because it reads command and port from the command lines of process 1 and its
descendants. A server (``serve``, ``readers``) must answer ``/healthz`` at its own address. A worker or a sender of
webhooks has no port, and is healthy while it runs. A process that restarts others (``worker --processes N``, the
Space's ``app.py``) is healthy only while a supervised process runs.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

PROGRAMS = ("reveal-leaderboard", "reveal_leaderboard")
SPACE_ENTRY = "app.py"
SERVERS = ("serve", "readers")
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
SECONDS = 4.0
PROC = Path("/proc")


class UnhealthyError(Exception):
    """The container is unhealthy; the message says why."""


@dataclass(frozen=True)
class Role:
    """A long-running command: its name, the address that it serves, and the command that it restarts."""

    name: str
    host: str = ""
    port: int = 0
    keeps: str = ""


def add_health(app: typer.Typer) -> None:
    """Add the command to `app`."""

    @app.command()
    def health(
        pid: Annotated[int, typer.Option(min=1, help="Process to check, with its descendants.")] = 1,
    ) -> None:
        """Check a running container: its server must answer, or its worker must run. For Docker's HEALTHCHECK."""
        try:
            for line in check(pid, app):
                typer.echo(line)
        except UnhealthyError as error:
            typer.secho(f"unhealthy: {error}", fg="red", err=True)
            raise typer.Exit(1) from None


def check(pid: int, app: typer.Typer) -> list[str]:
    """Return one line per long-running command among `pid` and its descendants.

    Raises
    ------
    UnhealthyError
        If there is no such command, a server does not answer, or a supervised process is gone.
    """
    lines = [_command_line(process) for process in _descendants(pid)]
    roles = {role for words in lines if (role := _role(words, app))}
    if not roles:
        raise UnhealthyError(f"process {pid} must run serve, readers, worker, webhooks deliver or {SPACE_ENTRY}")
    names = {role.name for role in roles if not role.keeps}
    for role in roles:
        if role.keeps and role.keeps not in names:
            raise UnhealthyError(f"{role.name} must keep a process `{role.keeps}` running, but it is gone")
    return sorted(_checked(role) for role in roles)


def _checked(role: Role) -> str:
    if role.name not in SERVERS:
        return f"{role.name} is running"
    address = f"{role.host}:{role.port}"
    connection = http.client.HTTPConnection(role.host, role.port, timeout=SECONDS)  # urllib would use a proxy
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise UnhealthyError(f"{role.name} must answer at {address}/healthz: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if status != 200:
        raise UnhealthyError(f"{role.name} must answer 200 at {address}/healthz, got {status}")
    return f"{role.name} answers at {address}"


def _role(words: list[str], app: typer.Typer) -> Role | None:
    """Return the role of a command line; None for other programs, and for commands that are not long-running."""
    names = [Path(word).name for word in words]
    start = next((index for index, name in enumerate(names) if name in PROGRAMS), None)
    if start is None:
        return Role(SPACE_ENTRY, keeps="serve") if SPACE_ENTRY in names[:2] else None
    name, options = "".join(words[start + 1 : start + 2]), words[start + 2 :]
    match name:
        case "serve" | "readers":
            host, port = _options(name, options, app, "host", "port")
            return Role(name, LOOPBACK.get(host, host), port)
        case "worker":
            (processes,) = _options(name, options, app, "processes")
            return Role("worker") if processes == 1 else Role("worker --processes", keeps="worker")
        case "webhooks":
            (action,) = _options(name, options, app, "action")
            return Role("webhooks deliver") if action == "deliver" else None
    return None


def _options(name: str, words: list[str], app: typer.Typer, *wanted: str) -> list[Any]:
    """Return the values of options, parsed as the command itself parses them."""
    program: Any = typer.main.get_command(app)
    command = program.commands[name]
    values = command.make_context(name, list(words), resilient_parsing=True).params
    defaults = {parameter.name: parameter.default for parameter in command.params}
    return [defaults[option] if values.get(option) is None else values[option] for option in wanted]


def _descendants(pid: int) -> Iterator[int]:
    """Yield `pid` and the ids of its descendants."""
    parents = {int(folder.name): _parent(folder) for folder in PROC.iterdir() if folder.name.isdigit()}
    if pid not in parents:
        raise UnhealthyError(f"process {pid} is gone")
    reached = [pid]
    for process in reached:
        yield process
        reached.extend(child for child, parent in parents.items() if parent == process)


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return 0


def _command_line(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []
