"""Production of dataset rows from records in several processes, and storage of finished rows during a build.

:class:`RowPool` reads, converts and hashes pictures. Rows are in the order of the records regardless of the number of
processes, and only a few records per process are in memory at a time. If a row cannot be made from a record, a
:class:`Problem` takes its place.

:class:`Spool` keeps rows on disk in small files ("parts"). A part is complete if its ``.json`` file exists, which is
written last and removed first. This file lists hashes of every record and of the part's files, so that a resumed build
only repeats parts whose records changed. The division of rows into parts does not affect the dataset.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from reveal_bench import __version__
from reveal_bench.benchmarks import Benchmark
from reveal_bench.dataset.build_log import FilmNote
from reveal_bench.dataset.layout import row_bytes
from reveal_bench.dicom import PIPELINE
from reveal_bench.files import write_whole
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import read_rows
from reveal_bench.kinds.images import PictureFile, PublishedPicture
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.rows import Row, image_facts_of, length_faults
from reveal_bench.sources.pictures import CLEANED, PNG16, develop
from reveal_bench.sources.source import Problem, Record

if TYPE_CHECKING:
    import pyarrow as pa

Item = TypeVar("Item")
Result = TypeVar("Result")

DECODERS = ("pillow", "pydicom", "python-gdcm", "pyjpegls", "pylibjpeg-openjpeg", "opencv-python-headless")
IN_FLIGHT = 3
"""Largest number of items per process that are being processed or whose results are waiting."""
KILLED = "a file on which the decoding process died (or memory ran out)"
"""What is said of a file for which :meth:`WorkerPool.ask` has no answer."""


@dataclass(frozen=True)
class RowResult:
    """The result for one record: a row with the rows of its side table, or only problems.

    Attributes
    ----------
    problems : why there is no row; or if there is one, which pictures of the record were left out
    films : notes on its pictures
    """

    digest: str
    key: str
    asked: list[str] = field(default_factory=list)
    row: Row | None = None
    side_rows: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    films: list[FilmNote] = field(default_factory=list)


@dataclass(frozen=True)
class BuildContext:
    """Facts of a build on which its rows depend."""

    benchmark: Benchmark
    asks: str
    embed: bool
    software: tuple[str, ...] = field(default_factory=lambda: software_versions())

    @property
    def kind(self) -> AnyKind:
        """The kind of the benchmark."""
        return KINDS[self.benchmark.kind]


def software_versions() -> tuple[str, ...]:
    """Return the versions of all software on which rows and pictures depend."""
    versions = [f"reveal-bench {__version__}", CLEANED, PNG16, PIPELINE]
    for name in DECODERS:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    return tuple(versions)


class WorkerPool:
    """Pool of processes that answer questions; a context manager.

    Parameters
    ----------
    answer : returns the answer to a question, never None; a function that can be pickled
    workers : number of processes; with 1, all work is done in the calling process
    """

    def __init__(self, answer: Callable[[Any], Any], workers: int) -> None:
        self._answer, self.workers = answer, workers
        self._threads: ThreadPoolExecutor | None = None
        self._started: list[WorkerProcess] = []
        self._idle: list[WorkerProcess] = []
        self._ended = False

    def __enter__(self) -> Self:
        if self.workers > 1:
            self._threads = ThreadPoolExecutor(self.workers)
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._ended = True
            self._threads.shutdown(wait=False, cancel_futures=True)
            for worker in self._started:
                worker.kill()
            self._threads.shutdown()

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the result of `work` for each item, in order; `work` may :meth:`ask`, and runs in several threads."""
        if self._threads is None:
            yield from map(work, items)
            return
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(self._threads.submit(work, item))
            if len(pending) >= IN_FLIGHT * self.workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def ask(self, question: Any) -> Any:
        """Return a process's answer; None if the process died, and then a second one as well."""
        if self._threads is None:
            return self._answer(question)
        for _ in range(2):
            if self._ended:
                break
            try:
                worker = self._idle.pop()
            except IndexError:
                worker = WorkerProcess(self._answer)
                self._started.append(worker)
            answer = worker.ask(question)
            if answer is not None:
                self._idle.append(worker)
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return None


class WorkerProcess:
    """A process that calls `answer` on one question at a time; only one thread at a time may call :meth:`ask`.

    No other process has the other end of its pipe, so the pipe breaks if the process dies, even in the middle of an
    answer. (The processes of a ``ProcessPoolExecutor`` share queues: a killed process can leave a queue locked or half
    written, so that the caller waits for ever.)
    """

    def __init__(self, answer: Callable[[Any], Any], *, daemon: bool = True) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, answer), daemon=daemon)
        self._process.start()
        theirs.close()

    def ask(self, question: Any) -> Any:
        """Return the process's answer, or the exception that it raised; None if the process died."""
        try:
            self._pipe.send(question)
            return self._pipe.recv()
        except (EOFError, OSError):
            return None

    def kill(self) -> None:
        """Kill the process, which has no unfinished files because it writes none."""
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, answer: Callable[[Any], Any]) -> None:
    """Answer questions until the parent closes the pipe or dies; ignore Ctrl-C, which the parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            question = pipe.recv()
            try:
                reply = answer(question)
            except Exception as error:
                error.add_note(traceback.format_exc())
                reply = error
            pipe.send(reply)
    except (EOFError, OSError):
        return


class RowPool(WorkerPool):
    """Pool of processes that make rows from records.

    Parameters
    ----------
    benchmark, asks : the benchmark to build, and the findings that it asks for
    embed : True to keep the bytes of pictures; otherwise pictures are only read and hashed
    workers : number of processes; with 1, all work is done in the calling process
    """

    def __init__(self, benchmark: Benchmark, asks: str, *, embed: bool, workers: int) -> None:
        self.build = BuildContext(benchmark, asks, embed)
        super().__init__(partial(_make, build=self.build), workers)

    def digest(self, record: Record) -> str:
        """Return the :func:`record_digest` of a record in this build."""
        return record_digest(record, self.build)

    def make(self, records: Iterable[Record]) -> Iterator[RowResult]:
        """Yield the result for each record, in order; a record whose file kills a worker process gives a problem."""
        return self.map(self._result, records)

    def _result(self, record: Record) -> RowResult:
        kind = self.build.kind
        pictures = [picture for picture in kind.data.pictures(record) if picture is not None]
        made: RowResult | None = self.ask(record) if pictures else _make(record, self.build)
        if made is not None:
            return made
        problem = Problem(pictures[0].source_path, kind.data.key_of(record), "picture", "must be readable", KILLED)
        return RowResult(self.digest(record), kind.data.key_of(record), problems=[problem])


def file_state(path: Path) -> tuple[int, int, int, int]:
    """Return numbers that change when a file changes; all are -1 for a missing file."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1, -1, -1
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def record_digest(record: Record, build: BuildContext) -> str:
    """Return a hash of everything a row depends on: the record, the state of its files, and the build."""
    states = [file_state(picture.path) for picture in build.kind.data.pictures(record) if picture is not None]
    image = getattr(record, "image", None)
    pixels = None if image is None else hashlib.sha256(image).hexdigest()
    return hashlib.sha256(repr((record, states, pixels, build)).encode()).hexdigest()


def _make(record: Record, build: BuildContext) -> RowResult:
    kind = build.kind
    digest, key = record_digest(record, build), kind.data.key_of(record)
    made: list[tuple[PictureFile, PublishedPicture] | None] = []
    lost: dict[int, Problem] = {}
    for i, picture in enumerate(kind.data.pictures(record)):
        try:
            made.append(None if picture is None else (picture, develop(picture)))
        except ValueError as error:
            assert picture is not None
            lost[i] = Problem(picture.source_path, key, "picture", "must be readable", str(error))
    problems = list(lost.values())
    if lost:
        remaining = kind.data.without_pictures(record, lost)
        if remaining is None:
            return RowResult(digest, key, problems=problems)
        record = remaining
    if not build.embed:
        record = kind.data.without_image_bytes(record)
    developed = [None if one is None else one[1] if build.embed else one[1].withheld() for one in made]
    try:
        row = kind.table.row(record, build.benchmark, developed)
        side_rows = kind.table.side_rows(record, build.benchmark)
    except ValueError as error:
        problem = Problem(kind.config, key, "record", "must be valid for the benchmark", str(error))
        return RowResult(digest, key, problems=[*problems, problem])
    for fault in length_faults(row):
        return RowResult(digest, key, problems=[*problems, Problem(kind.config, key, *fault)])
    asked = kind.questions.asked(record, build.benchmark, build.asks)
    films = [
        FilmNote(one[0].source_path, key, facts["image_id"], (*one[0].notes, *one[1].warnings), one[1].fault)
        for one, facts in zip(made, image_facts_of(row), strict=True)
        if one is not None and (one[0].notes or one[1].warnings or one[1].fault)
    ]
    return RowResult(digest, key, asked, row, side_rows, problems, films)


PART_RECORDS = 32
PART_BYTES = 16 << 20
"""Size of a part, which is read at once; the pictures of one row may take megabytes."""


class Spool:
    """The finished parts of a split, stored in `folder`.

    Attributes
    ----------
    problems : problems of records from which no row could be made, and of pictures that were left out of rows
    films : notes on pictures
    n_resumed : number of records whose rows an earlier, interrupted run had made
    keys : keys of the rows, in order
    """

    def __init__(
        self, folder: Path, schema: pa.Schema, side_schema: pa.Schema | None, key_of: Callable[[Record], str]
    ) -> None:
        self.folder, self.schema, self.side_schema, self._key_of = folder, schema, side_schema, key_of
        self.problems: list[Problem] = []
        self.films: list[FilmNote] = []
        self.keys: list[str] = []
        self.n_resumed = 0
        folder.mkdir(parents=True, exist_ok=True)

    def fill(self, records: Iterable[Record], pool: RowPool) -> Iterator[RowResult | None]:
        """Make the missing rows; yield for each record its result, or None if its row existed already."""
        stream: Iterator[Record] = iter(records)
        batch: list[RowResult] = []
        n_parts = 0
        while (part := self._read(n_parts)) is not None:
            upcoming = list(islice(stream, len(part)))
            if [self._key_of(record) for record in upcoming] != [key for key, _ in part]:
                stream = chain(upcoming, stream)
                break
            if [pool.digest(record) for record in upcoming] == [digest for _, digest in part]:
                self.keys += [key for key, _ in part]
                self.films += [FilmNote(**film) for film in self._index(n_parts)["films"]]
                self.n_resumed += len(part)
                yield from (None for _ in part)
            else:
                batch = []
                for made in pool.make(upcoming):
                    batch.append(made)
                    yield made
                self.write(n_parts, batch)
            n_parts += 1
        self._drop_from(n_parts)
        batch, size = [], 0
        for made in pool.make(stream):
            batch.append(made)
            size += row_bytes(made.row) + row_bytes(made.side_rows)
            if len(batch) >= PART_RECORDS or size >= PART_BYTES:
                self.write(n_parts, batch)
                n_parts, batch, size = n_parts + 1, [], 0
            yield made
        if batch:
            self.write(n_parts, batch)

    def rows(self) -> Iterator[tuple[Row, list[str]]]:
        """Yield (row, findings that are asked for the row), in the order of the records."""
        for index in sorted(self.folder.glob("*.json")):
            asked = json.loads(index.read_text(encoding="utf-8"))["asked"]
            rows = read_rows(index.with_suffix(".parquet"), at_once=PART_RECORDS)
            yield from zip(rows, asked, strict=True)

    def facts(self, columns: Sequence[str]) -> list[Row]:
        """Return the named columns of every row."""
        return [{name: row[name] for name in columns} for row, _ in self.rows()]

    def side_rows(self) -> Iterator[Row]:
        """Yield every row of the side table."""
        for path in sorted(self.folder.glob("*-side.parquet")):
            yield from read_rows(path, at_once=PART_RECORDS)

    def _path(self, number: int, ending: str) -> Path:
        return self.folder / f"{number:06d}{ending}"

    def _read(self, number: int) -> list[tuple[str, str]] | None:
        """Return (key, hash) of the records of a part; None if the part is missing or incomplete.

        For a record with problems the hash is "", so that it is made again.
        """
        try:
            index = self._index(number)
            for ending, sha256 in index["sha256"].items():
                if hashlib.sha256(self._path(number, ending).read_bytes()).hexdigest() != sha256:
                    return None
        except (OSError, ValueError):
            return None
        return [(key, digest) for key, digest in index["records"]]

    def _index(self, number: int) -> dict[str, Any]:
        index: dict[str, Any] = json.loads(self._path(number, ".json").read_text(encoding="utf-8"))
        return index

    def _drop_from(self, number: int) -> None:
        for path in sorted(self.folder.iterdir(), key=lambda path: path.suffix != ".json"):  # the index first
            if not path.name[:6].isdigit() or int(path.name[:6]) >= number:
                path.unlink()

    def write(self, number: int, batch: Sequence[RowResult]) -> None:
        """Write a part."""
        good = [made for made in batch if made.row is not None]
        self.problems += [problem for made in batch for problem in made.problems]
        self.films += [film for made in batch for film in made.films]
        self.keys += [made.key for made in good]
        self._path(number, ".json").unlink(
            missing_ok=True
        )  # otherwise, after a kill, this file could describe other rows
        rows = {".parquet": self._write_table(number, ".parquet", [made.row or {} for made in good], self.schema)}
        if self.side_schema is not None:
            side_rows = [row for made in good for row in made.side_rows]
            rows["-side.parquet"] = self._write_table(number, "-side.parquet", side_rows, self.side_schema)
        index = {
            "sha256": rows,
            "records": [(made.key, "" if made.problems else made.digest) for made in batch],
            "asked": [made.asked for made in good],
            "films": [asdict(film) for made in batch for film in made.films],
        }
        write_whole(self._path(number, ".json"), json.dumps(index).encode(), single_writer=True)

    def _write_table(self, number: int, ending: str, rows: Sequence[Row], schema: pa.Schema) -> str:
        """Write a table of a part; return the sha256 of the file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink, compression="none")
        data = sink.getvalue()
        write_whole(self._path(number, ending), data, single_writer=True)
        return hashlib.sha256(data).hexdigest()
