"""Runs the real command line, and dies where ordered to.

Conventions
-----------
The product has no hooks. Here named seams of it are wrapped before it starts; each wrapper calls what it wraps and does
nothing else, unless the orders name its point. The process then says so and kills itself with SIGKILL, which nothing
can catch; in the middle of a child's work, a thread kills the child, its template or the process. A server goes without
pages, which nobody opens here and which take the longest part of its start.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from tests.leaderboard.forked import begin
from tests.leaderboard.kill.orders import Desk, Orders
from tests.leaderboard.kill.processes import leaves

ARCHIVE = b"PK"
"""First bytes of a file of arrays."""
STAGES = {"claim": "claim", "finish_score": "finish", "finish_result": "rank"}
"""Method of the queue -> the name of its transaction."""


class Seams:
    """Counts passages of points, and dies as the orders at `desk` say."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.writing = threading.RLock()  # whoever beats holds it, so that nobody is stopped in a transaction
        self._lock = threading.Lock()
        self._number, self._passed = -1, 0

    def reach(self, point: str) -> None:
        """Pass `point`, or die there. No order stops a process within a transaction."""
        orders = self.due(point)
        if orders is None:
            return
        time.sleep(orders.delay)
        if orders.target == "stop":
            with self.writing:
                self.desk.report(orders.number)
                os.kill(os.getpid(), signal.SIGSTOP)
            return
        self.desk.report(orders.number)
        os.kill(os.getpid(), signal.SIGKILL)

    def due(self, point: str) -> Orders | None:
        """Count a passage; the orders if they are to be carried out at this one."""
        orders = self.desk.orders()
        if orders.point != point:
            return None
        with self._lock:
            if orders.number != self._number:
                self._number, self._passed = orders.number, 0
            self._passed += 1
            return orders if self._passed == orders.nth else None

    def missed(self) -> None:
        """The passage that was due came to nothing; the next one counts."""
        with self._lock:
            self._passed -= 1

    @contextmanager
    def middle(self, point: str, template: Callable[[], int | None]) -> Iterator[None]:
        """While the block runs, wait for a child of `template` and kill whom the orders name."""
        orders = self.due(point)
        pid = None if orders is None else template()
        if orders is None or pid is None:
            yield
            return
        over = threading.Event()
        idle = leaves(pid)
        watch = threading.Thread(target=self._watch, args=(orders, pid, idle, over), daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _watch(self, orders: Orders, template: int, idle: set[int], over: threading.Event) -> None:
        while not (busy := leaves(template) - idle):
            if over.wait(0.001):
                self.missed()
                return
        time.sleep(orders.delay)
        victims = {"child": busy, "template": idle, "self": {os.getpid()}}[orders.target]
        if over.is_set():
            self.missed()
            return
        self.desk.report(orders.number)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)


class Watched:
    """A stream that says when its second part is asked for: the first was written by then."""

    def __init__(self, stream: BinaryIO, say: Callable[[], None]) -> None:
        self._stream, self._say, self._n = stream, say, 0

    def seek(self, place: int) -> int:
        return self._stream.seek(place)

    def read(self, size: int) -> bytes:
        self._n += 1
        if self._n == 2:
            self._say()
        return self._stream.read(size)


def wrap(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put ``around(method)`` in the place of a method."""
    setattr(owner, name, around(getattr(owner, name)))


def wrap_transactions(seams: Seams) -> None:
    """Points right before a transaction that wrote something is committed, and right after its method."""
    import sqlalchemy as sa
    from reveal_leaderboard.store.queue import Queue
    from reveal_leaderboard.store.store import Store

    here = threading.local()

    @sa.event.listens_for(sa.Engine, "begin")
    def begin(connection: sa.Connection) -> None:
        here.has_written = False

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def execute(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        here.has_written = getattr(here, "has_written", False) or statement.startswith(("INSERT", "UPDATE"))

    @sa.event.listens_for(sa.Engine, "commit")
    def commit(connection: sa.Connection) -> None:
        stage = getattr(here, "stage", "")
        if stage and here.has_written:
            seams.reach(f"before-{stage}-commit")

    def staged(stage: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                here.stage = stage
                try:
                    answer = method(*arguments, **options)
                finally:
                    here.stage = ""
                if answer:
                    seams.reach(f"after-{stage}")
                return answer

            return call

        return around

    for name, stage in STAGES.items():
        wrap(Queue, name, staged(stage))
    wrap(Store, "add_submission", staged("submission"))


def wrap_queue(seams: Seams) -> None:
    """A held worker finds no job; a worker that beats cannot be stopped just then."""
    from reveal_leaderboard.store.queue import Queue

    def hold(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: None if seams.desk.orders().is_held else method(*arguments, **options)

    def beat(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with seams.writing:
                return method(*arguments, **options)

        return call

    wrap(Queue, "claim", hold)
    wrap(Queue, "heartbeat", beat)
    wrap(Queue, "beat_worker", beat)


def wrap_custody(seams: Seams) -> None:
    """Points around and in the middle of parsing, scoring and ranking."""
    from reveal_leaderboard.custody import custody as module

    def template(custody: module.Custody, kind: str, holdout: Path | None) -> Callable[[], int | None]:
        def pid() -> int | None:
            service = custody._parser if kind == "parse" else custody._scorer(holdout)
            service.start()
            return service.pid

        return pid

    def around(kind: str, before: str, after: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(custody: module.Custody, *arguments: Any, **options: Any) -> Any:
                seams.reach(before)
                holdout = arguments[1] if kind == "score" else None
                with seams.middle(f"mid-{kind}", template(custody, kind, holdout)):
                    answer = method(custody, *arguments, **options)
                seams.reach(after)
                return answer

            return call

        return wrapped

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: BinaryIO, path: Path) -> None:
            is_of_vault = path.name != "canonical.npz"
            function(Watched(file, lambda: seams.reach("rows-half-kept")) if is_of_vault else file, path)

        return call

    wrap(module.Custody, "parse", around("parse", "parse-start", "parsed"))
    wrap(module.Custody, "score", around("score", "score-start", "scored"))
    wrap(module.Custody, "rank", around("rank", "rank-start", "ranked"))
    wrap(module, "_keep", keep)


def wrap_blobs(seams: Seams) -> None:
    """Points while an upload is received, and it and its predictions are kept; these are not, if so ordered."""
    from reveal_leaderboard.store.blobs import Blobs, ReceivedFile
    from reveal_leaderboard.store.store import Store

    def receive(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda blobs, stream: method(blobs, Watched(stream, lambda: seams.reach("mid-receive")))

    def keep(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(blobs: Blobs, incoming: ReceivedFile) -> None:
            with incoming.path.open("rb") as file:
                what = "predictions" if file.read(len(ARCHIVE)) == ARCHIVE else "blob"
            if what == "predictions" and seams.desk.orders().keeps_nothing:
                return
            seams.reach(f"before-{what}-kept")
            method(blobs, incoming)
            seams.reach(f"{what}-kept")

        return call

    def add(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(store: Store, new: Any, **options: Any) -> Any:
            keeps_nothing = seams.desk.orders().keeps_nothing
            return method(store, replace(new, canonical=None, stamp=None) if keeps_nothing else new, **options)

        return call

    wrap(Blobs, "receive", receive)
    wrap(Blobs, "keep", keep)
    wrap(Store, "add_submission", add)


def run(desk: Desk, log: Path, environ: Mapping[str, str], words: Sequence[str]) -> None:
    """Run a command of the leaderboard in this process, which was forked for it."""
    from reveal_leaderboard import cli
    from reveal_leaderboard.web import app

    begin(log, environ)
    seams = Seams(desk)
    for part in (wrap_transactions, wrap_queue, wrap_custody, wrap_blobs):
        part(seams)
    wrap(app, "_mount_pages", lambda method: lambda *arguments: [])
    cli.app(words)
