"""Client of a template process: starts the template, inside bubblewrap if possible, and requests children from it.

Conventions
-----------
A service may be used from many threads; at most `lanes` requests run at a time, and further requests wait. A dead
template restarts on the next request; an interrupted request is retried once. A template that does not report a child's
end in time is killed.

Inside bubblewrap, a template has its own namespaces and no network device. It sees only the interpreter, the packages,
the named folders, and a `/proc` with the processes inside. Its children see the same. Whether bubblewrap works is
tested once per process, because containers often forbid it, and a process confined by Landlock must not mount.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from reveal_leaderboard.custody.confinement import PACKAGES, is_inside, program_places
from reveal_leaderboard.custody.limits import JailLimits
from reveal_leaderboard.custody.messages import ExitStatus, JobRequest, memory_file, send_files

_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")
_PROBE_SECONDS = 30


def wrap(command: Sequence[str], *, read: Sequence[Path]) -> list[str]:
    """Return a command that runs `command` inside bubblewrap, where only the program's own files and `read` are
    readable.
    """
    binary = shutil.which("bwrap") or "bwrap"
    wrapped = [binary, "--unshare-all", "--cap-drop", "ALL", "--new-session", "--proc", "/proc", "--dev", "/dev"]
    bound: list[Path] = []
    for name in _SYSTEM:
        place = Path(name)
        if place.is_symlink():
            wrapped += ["--symlink", os.readlink(place), name]
        elif place.exists():
            wrapped += ["--ro-bind", name, name]
            bound.append(place)
    program = [Path(sys.prefix), Path(sys.base_prefix), *program_places()]
    for place in sorted({Path(place) for place in (*program, *read)}):
        if place.exists() and not place.is_relative_to("/dev") and not is_inside(place, bound):
            wrapped += ["--ro-bind", str(place), str(place)]
            bound.append(place)
    return [*wrapped, "--chdir", "/", "--", *command]


@functools.cache
def bubblewrap_works() -> bool:
    """Return True if the `bwrap` program exists and works on this machine; tested once."""
    if shutil.which("bwrap") is None:
        return False
    command = wrap([sys.executable, "-I", "-c", "pass"], read=[])
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PROBE_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


_START_SECONDS = 180  # enough for a busy machine
_GRACE_SECONDS = 15
_CHUNK = 1 << 16
# Packages are loaded from their own folders, because a server confined by Landlock must not list the parent folder.
_BOOT = """
import importlib.util as tools, os, sys
module, handle, n, *places = sys.argv[1:]
sys.path[:0] = places[int(n):]
for place in places[:int(n)]:
    name = os.path.basename(place)
    spec = tools.spec_from_file_location(name, place + "/__init__.py", submodule_search_locations=[place])
    sys.modules[name] = tools.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
from reveal_leaderboard.custody.fork_server import main
main(module, int(handle))
"""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

log = logging.getLogger(__name__)


class TemplateError(RuntimeError):
    """A template does not start or keep running; the message contains the end of its error output.

    The template wrote this output before its first request, so the output contains no data of an upload or a reference.
    """

    loggable = True


class _TemplateDiedError(Exception):
    """The template died during a request."""


class TemplateService:
    """One template and its children.

    Parameters
    ----------
    module : name of the module whose jobs the template runs
    scratch : folder for unnamed files
    lanes : maximum number of children at once
    limits : limits of each child
    read : folders that children may read if their request names them
    paths : more folders to import from
    wrapped : whether to run inside bubblewrap; None to do so if it works on this machine
    """

    def __init__(
        self,
        module: str,
        scratch: Path,
        *,
        lanes: int,
        limits: JailLimits,
        read: Sequence[Path] = (),
        paths: Sequence[Path] = (),
        wrapped: bool | None = None,
    ) -> None:
        self.limits = limits
        self._module, self._scratch, self._read, self._paths = module, scratch, list(read), list(paths)
        self._lanes = threading.BoundedSemaphore(lanes)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._confinement = ""
        self._is_wrapped = bubblewrap_works() if wrapped is None else wrapped

    @property
    def confinement(self) -> str:
        """The confinement of the children; "" before the first start."""
        return self._confinement

    @property
    def pid(self) -> int | None:
        """Process id of the running template (of bubblewrap, if wrapped), or None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the template if it is not running."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the template; its children are killed with it."""
        with self._lock:
            self._drop(self._process)

    def run(
        self, request: JobRequest, files: Sequence[int] = (), *, shared: bytes = b""
    ) -> tuple[ExitStatus, bytes | None]:
        """Run a job in a child, and wait for the child's end.

        Returns
        -------
        ended : how the child ended
        answer : bytes of the child's answer; None if the answer exceeded the limit

        Raises
        ------
        TemplateError
            If the template cannot be started, or died twice during this request.
        """
        request = replace(request, shared=hashlib.sha256(shared).hexdigest() if shared else "")
        with self._lanes:
            for _ in range(2):
                try:
                    return self._attempt(request, files, shared)
                except _TemplateDiedError:
                    log.warning("the template of %s died; it is started again", self._module)
        raise TemplateError(f"the template of {self._module} died twice during a request")

    def _attempt(self, request: JobRequest, files: Sequence[int], shared: bytes) -> tuple[ExitStatus, bytes | None]:
        answer_read, answer_write = os.pipe2(os.O_CLOEXEC)
        end_read, end_write = os.pipe2(os.O_CLOEXEC)
        handed = [answer_write, end_write]
        try:
            handed.append(memory_file(json.dumps(asdict(request)).encode()))
            handed.append(memory_file(shared))
            with self._lock:
                process, control = self._running()
                try:
                    send_files(control, [*handed, *files])
                except OSError:
                    self._drop(process)
                    raise _TemplateDiedError from None
            for handle in handed:
                os.close(handle)
            handed = []
            deadline = time.monotonic() + request.limits.wall_seconds + _GRACE_SECONDS
            answer = _read_bounded(answer_read, request.limits.answer_bytes, deadline)
            os.close(answer_read)  # closing the pipe kills a child that writes too much
            answer_read = -1
            end = _read_bounded(end_read, _CHUNK, deadline)
            if not end:
                with self._lock:
                    self._drop(process)
                raise _TemplateDiedError
            return ExitStatus(**json.loads(end)), answer
        finally:
            for handle in [answer_read, end_read, *handed]:
                if handle >= 0:
                    os.close(handle)

    def _running(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        if self._process is None or self._control is None or self._process.poll() is not None:
            self._drop(self._process)
            self._launch()
        assert self._process is not None
        assert self._control is not None
        return self._process, self._control

    def _drop(self, process: subprocess.Popen[bytes] | None) -> None:
        """End the template `process`, unless another process has already replaced it."""
        if process is None or process is not self._process:
            return
        if self._control is not None:
            self._control.close()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = self._control = None

    def _launch(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        packages = _packages()
        places = [str(path) for path in (*packages, *self._paths)]
        command = [sys.executable, "-I", "-c", _BOOT, self._module, str(theirs.fileno()), str(len(packages)), *places]
        if self._is_wrapped:
            command = wrap(command, read=[*self._read, *self._paths])
        with tempfile.TemporaryFile(dir=self._scratch) as errors:
            self._process = subprocess.Popen(
                command,
                env=_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            self._control = ours
            theirs.close()
            ours.settimeout(_START_SECONDS)
            try:
                hello = ours.recv(_CHUNK)
            except OSError:
                hello = b""
            if not hello:
                self._process.kill()
                self._drop(self._process)
                errors.seek(0)
                end = errors.read()[-2000:].decode("utf-8", "replace")
                raise TemplateError(f"the template of {self._module} does not start: {end}")
        ours.settimeout(_GRACE_SECONDS)
        suffix = "bubblewrap" if self._is_wrapped else "no bubblewrap"
        self._confinement = f"{json.loads(hello)['confinement']}, {suffix}"


def _environment() -> dict[str, str]:
    """Return the environment of a template, which contains no variable of the server."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # other allocators keep freed memory, which counts towards the limit
        "JE_ARROW_MALLOC_CONF": "background_thread:false",  # for Arrow's allocator, which is created at import
        "MALLOC_ARENA_MAX": "2",
        **dict.fromkeys(_ONE_THREAD, "1"),
    }


def _packages() -> list[Path]:
    """Return the folders of this project's packages, wherever they are installed."""
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    return [Path(spec.origin).resolve().parent for spec in specs if spec is not None and spec.origin]


def _read_bounded(handle: int, most: int, deadline: float) -> bytes | None:
    """Read until the other end closes and return the bytes; None if they exceed `most`, b"" if time runs out."""
    data = bytearray()
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if not poller.poll(left * 1000):
            break
        chunk = os.read(handle, _CHUNK)
        if not chunk:
            return bytes(data)
        data += chunk
        if len(data) > most:
            return None
    return b""
