"""Template process: loads libraries and compiles kernels once, then forks a confined child for each request.

Conventions
-----------
The template reads only requests and shared documents, which this package writes, and never an upload or a reference. It
must have one thread, because a fork copies only the calling thread; this is checked before the first fork. The template
ends when the other end of its socket closes, which the kernel does however the owner ends. Its children are then
killed.

A child inherits only the files of its own request. A child is killed when its time is up, or when no client waits for
its answer.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from reveal_leaderboard.custody.confinement import count_threads
from reveal_leaderboard.custody.messages import TOO_LARGE, ExitStatus, JobRequest, receive_files
from reveal_leaderboard.custody.sandbox import confinement_here, enter_jail

Job = Callable[[dict[str, Any], list[int], Any], bytes]
"""Function of a job: (arguments, files, shared document) -> answer."""

_DOCUMENTS_KEPT = 8
_TRACEBACK_CHARACTERS = 60_000


def main(module_name: str, handle: int) -> None:
    """Serve the jobs of a module over the socket `handle` until the other end closes.

    The module must have ``JOBS`` (name -> :data:`Job`), ``warm_up()`` and ``load_shared(data)``.
    """
    with contextlib.suppress(OSError):  # when memory is short, the kernel kills this process before the server
        Path("/proc/self/oom_score_adj").write_text("500")
    control = socket.socket(fileno=handle)
    control.set_inheritable(False)
    gc.disable()  # also for children, which end early; garbage collection would double the time to parse JSON
    module = importlib.import_module(module_name)
    module.warm_up()
    n_threads = count_threads()
    if n_threads != 1:
        raise RuntimeError(f"a template must have one thread when it forks, got {n_threads}")
    gc.collect()
    gc.freeze()  # keeps existing memory shared with the children
    _Template(control, module).serve()


@dataclass(slots=True)
class _Running:
    end: int  # pipe on which the child's end is reported
    started: float
    deadline: float
    timed_out: bool = False


class _Template:
    def __init__(self, control: socket.socket, module: ModuleType) -> None:
        self._control, self._module = control, module
        self._children: dict[int, _Running] = {}
        self._shared: OrderedDict[str, Any] = OrderedDict()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler the signal would not wake the loop
        signal.set_wakeup_fd(self._wake_write)
        self._control.send(json.dumps({"confinement": confinement_here()}).encode())
        while self._wait():
            self._reap()
            self._kill_the_late()
        for pid in self._children:
            _kill(pid)

    def _wait(self) -> bool:
        """Wait for an event; return False when the other end of the socket is closed."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        for child in self._children.values():
            poller.register(child.end, 0)  # an error event: the reader of the answer is gone
        nearest = min((child.deadline for child in self._children.values() if not child.timed_out), default=None)
        timeout = None if nearest is None else max(0.0, nearest - time.monotonic()) * 1000 + 1
        ready = dict(poller.poll(timeout))
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        for pid, child in self._children.items():
            if child.end in ready:
                _kill(pid)
        if self._control.fileno() not in ready:
            return True
        try:
            files = receive_files(self._control)
        except OSError:
            return False
        if files:
            self._start(files)
        return bool(files)

    def _start(self, files: list[int]) -> None:
        answer, end, request_file, shared_file, *inputs = files
        request = JobRequest.from_json(json.loads(_read_all(request_file)))
        shared = self._document(request.shared, shared_file) if request.shared else None
        template = os.getpid()
        now = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _live(self._module.JOBS[request.job], request, inputs, shared, answer, template)
        for handle in (answer, request_file, shared_file, *inputs):
            os.close(handle)
        self._children[pid] = _Running(end, now, now + request.limits.wall_seconds)

    def _document(self, digest: str, handle: int) -> Any:
        if digest not in self._shared:
            self._shared[digest] = self._module.load_shared(_read_all(handle))
            if len(self._shared) > _DOCUMENTS_KEPT:
                self._shared.popitem(last=False)
        self._shared.move_to_end(digest)
        return self._shared[digest]

    def _reap(self) -> None:
        while self._children:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid)
            code, seconds = os.waitstatus_to_exitcode(status), time.monotonic() - child.started
            ended = ExitStatus(code, child.timed_out, usage.ru_maxrss * 1024, seconds)
            with contextlib.suppress(OSError):
                os.write(child.end, json.dumps(asdict(ended)).encode())
            os.close(child.end)

    def _kill_the_late(self) -> None:
        now = time.monotonic()
        for pid, child in self._children.items():
            if child.deadline <= now and not child.timed_out:
                child.timed_out = True
                _kill(pid)


def _live(job: Job, request: JobRequest, files: list[int], shared: Any, answer: int, template: int) -> None:
    """Run as the child from the fork to the exit; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _close_all_but([answer, *files])
        places = [Path(place) for place in request.places]
        enter_jail(request.limits, template=template, places=places, files=files[: request.reopened])
        _write_all(answer, job(request.arguments, files, shared))
        code = 0
    except MemoryError:
        code = TOO_LARGE
    except BaseException as error:
        code = TOO_LARGE if isinstance(error, OSError) and error.errno == errno.EFBIG else 1
        with contextlib.suppress(BaseException):
            _write_all(answer, traceback.format_exc()[-_TRACEBACK_CHARACTERS:].encode("utf-8", "backslashreplace"))
    finally:
        os._exit(code)


def _close_all_but(kept: Sequence[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    edges = sorted({2, *kept})
    for low, high in zip(edges, [*edges[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # the child may not have its own process group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _read_all(handle: int) -> bytes:
    return os.pread(handle, os.fstat(handle).st_size, 0)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
