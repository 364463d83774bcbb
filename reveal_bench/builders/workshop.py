"""Records -> rows, on several processes: pictures are read, developed and hashed here.

:class:`Workshop` gives the rows in the order of the records, whatever the number of processes, and holds no more than
a few records per process at a time. A record that cannot be made into a row gives a :class:`Problem` in its place.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait
from types import TracebackType

from reveal_bench import __version__
from reveal_bench.benchmarks import Benchmark
from reveal_bench.builders.kinds import KINDS, Kind
from reveal_bench.builders.pictures import CLEANED, PNG16, Developed, develop
from reveal_bench.builders.rows import Row
from reveal_bench.builders.source import Problem, Record
from reveal_bench.dicom import PIPELINE
from reveal_bench.records import LocalizationRecord

__all__ = ["Made", "Workshop", "record_digest"]

DECODERS = ("pillow", "pydicom", "python-gdcm", "pyjpegls", "pylibjpeg-openjpeg", "opencv-python-headless")
IN_FLIGHT = 3
"""Records per process that are being made or wait to be written."""


@dataclass(frozen=True)
class Made:
    """What became of one record: a row with the rows of its side table, or a problem."""

    digest: str
    key: str
    asked: list[str] = field(default_factory=list)
    row: Row | None = None
    side_rows: list[Row] = field(default_factory=list)
    problem: Problem | None = None


@dataclass(frozen=True)
class _Bench:
    """What every record of a build has in common."""

    benchmark: Benchmark
    asks: str
    embed: bool
    software: tuple[str, ...] = field(default_factory=lambda: _software())

    @property
    def kind(self) -> Kind:
        return KINDS[self.benchmark.kind]


def _software() -> tuple[str, ...]:
    """Versions of everything that has a part in a row: another version may make another one."""
    versions = [f"reveal-bench {__version__}", CLEANED, PNG16, PIPELINE]
    for name in DECODERS:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    return tuple(versions)


class Workshop:
    """Makes rows of records; a context manager.

    Parameters
    ----------
    benchmark, asks : what is built
    embed : keep the picture bytes; without it they are read and hashed, then dropped
    workers : processes; with 1 everything happens in this one
    """

    def __init__(self, benchmark: Benchmark, asks: str, *, embed: bool, workers: int) -> None:
        self.workers = workers
        self._bench = _Bench(benchmark, asks, embed)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workshop:
        if self.workers > 1:
            self._pool = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def digest(self, record: Record) -> str:
        """See :func:`record_digest`."""
        return record_digest(record, self._bench)

    def make(self, records: Iterable[Record]) -> Iterator[Made]:
        """What becomes of each record, in order. A record whose file kills a worker gives a problem as any other."""
        if self._pool is None:
            for record in records:
                yield _make(record, self._bench)
            return
        pending: deque[tuple[Record, Future[Made]]] = deque()
        for record in records:
            pending.append((record, self._submit(record)))
            if len(pending) >= IN_FLIGHT * self.workers:
                yield self._result(*pending.popleft())
        while pending:
            yield self._result(*pending.popleft())

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, context, initializer=_start_worker, initargs=(self._bench,))

    def _submit(self, record: Record) -> Future[Made]:
        assert self._pool is not None
        try:
            return self._pool.submit(_make_in_worker, record)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = self._start()
            return self._pool.submit(_make_in_worker, record)

    def _result(self, record: Record, future: Future[Made]) -> Made:
        """What was made of a record. If a worker died meanwhile, it may have been of another record's file."""
        try:
            return future.result()
        except BrokenProcessPool:
            return self._make_apart(record)

    def _make_apart(self, record: Record) -> Made:
        """Make one record in a process of its own: if that dies too, the record's file is what kills it."""
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, initializer=_start_worker, initargs=(self._bench,)) as pool:
            try:
                return pool.submit(_make_in_worker, record).result()
            except BrokenProcessPool:
                kind = self._bench.kind
                shown = next((picture.shown for picture in kind.pictures(record) if picture is not None), kind.config)
                rule, got = "must be readable", "a file that ends the process that decodes it (or memory ran out)"
                problem = Problem(shown, kind.key_of(record), "picture", rule, got)
                return Made(self.digest(record), kind.key_of(record), problem=problem)


def record_digest(record: Record, bench: _Bench) -> str:
    """A hash of everything a row depends on: the record, the state of its files, and what is built of it."""
    states = []
    for picture in bench.kind.pictures(record):
        if picture is not None:
            try:
                status = picture.path.stat()
                states.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
            except OSError:
                states.append((-1,) * 4)
    image = getattr(record, "image", None)
    pixels = None if image is None else hashlib.sha256(image).hexdigest()
    return hashlib.sha256(repr((record, states, pixels, bench)).encode()).hexdigest()


_worker_bench: _Bench | None = None


def _start_worker(bench: _Bench) -> None:
    """Remember the build; leave Ctrl-C to the parent, and end with it even if it is killed."""
    global _worker_bench
    _worker_bench = bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _make_in_worker(record: Record) -> Made:
    assert _worker_bench is not None
    return _make(record, _worker_bench)


def _make(record: Record, bench: _Bench) -> Made:
    kind = bench.kind
    digest, key = record_digest(record, bench), kind.key_of(record)
    developed: list[Developed | None] = []
    for picture in kind.pictures(record):
        try:
            found = None if picture is None else develop(picture)
        except ValueError as error:
            place = picture.shown if picture is not None else key
            return Made(digest, key, problem=Problem(place, key, "picture", "must be readable", str(error)))
        developed.append(found if bench.embed or found is None else found.withheld())
    if isinstance(record, LocalizationRecord) and not bench.embed:
        record = replace(record, image=None)
    try:
        row = kind.row(record, bench.benchmark, developed)
        side_rows = kind.side_rows(record, bench.benchmark) if kind.side_rows is not None else []
    except ValueError as error:
        return Made(digest, key, problem=Problem(kind.config, key, "record", "must fit the benchmark", str(error)))
    return Made(digest, key, kind.asked(record, bench.benchmark, bench.asks), row, side_rows)
