"""Build a dataset folder by tasks on several machines; the folder equals, byte for byte, that of a single machine.

First, each task makes the rows of consecutive records. A task reads and converts the images of its records, writes
these images into one file, and writes the rows as a part of a spool. In the spool, every image is a reference: the
file, the position in the file, and a checksum. The rows pass through the ordinary build (splits, counts, manifest),
which is fast without images and decides where shards end. Then each shard is written by one task, with the images'
bytes instead of the references. Finally the shards get their names, and the build writes the other files of the folder
as usual.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.dataset.build_log import FilmNote
from reveal_bench.dataset.layout import SHARD_BYTES, ShardWriter, row_bytes
from reveal_bench.dataset.row_pool import BuildContext, RowPool, RowResult, Spool
from reveal_bench.kinds.folder import read_rows
from reveal_bench.kinds.rows import Row
from reveal_bench.scale.engine import Done, TaskEngine
from reveal_bench.scale.storage import TaskStorage
from reveal_bench.scale.tasks import Task, TaskError, TaskPlace
from reveal_bench.sources.source import Problem, Record

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TaskBuild:
    """Engine for :func:`reveal_bench.dataset.build.build_folder` that runs tasks."""

    tasks: TaskEngine

    @property
    def spool(self) -> Callable[..., Spool]:
        """Function that creates a spool whose parts tasks write."""
        return partial(TaskSpool, tasks=self.tasks)

    @property
    def shards(self) -> Callable[..., ShardWriter]:
        """Function that creates a writer whose shards tasks write."""
        return partial(TaskShardWriter, tasks=self.tasks)


def pictures_of(row: Row) -> Iterator[Row]:
    """Yield every image in a row, {"bytes", "path"}, from columns of images and of lists of images."""
    for value in row.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and one.keys() == {"bytes", "path"} and one["bytes"] is not None:
                yield one


@dataclass(frozen=True, slots=True)
class PictureReference:
    """The location of an image: `size` bytes from `start` in the file `piece`, and their CRC-32."""

    piece: str
    start: int
    size: int
    crc32: int

    def to_bytes(self) -> bytes:
        """Return the reference as bytes, which replace the image in a row."""
        return json.dumps([self.piece, self.start, self.size, self.crc32]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> PictureReference:
        """Read the reference from a row."""
        return cls(*json.loads(data))


# Rows


@dataclass(frozen=True)
class RowsTask:
    """The work of a task: records, from which it makes rows."""

    build: BuildContext
    records: Sequence[Record]
    schema: pa.Schema
    side_schema: pa.Schema | None


def make_rows(place: TaskPlace, work: RowsTask) -> dict[str, Any]:
    """Write the rows of some records as one part of a spool, and the records' images into one file.

    Raises
    ------
    TaskError
        If the installed software differs from that of the machine that started the build, because rows could then
        differ.
    """
    build = work.build
    # An image may have killed the first attempt, so a later attempt decodes images in separate processes and reports
    # the record.
    workers = 1 if place.attempt == 1 else 2
    with (
        tempfile.TemporaryDirectory() as name,
        RowPool(build.benchmark, build.asks, embed=build.embed, workers=workers) as pool,
    ):
        if pool.build != build:
            differ = sorted(set(pool.build.software) ^ set(build.software))
            raise TaskError(f"machines must have the same software, but these differ: {', '.join(differ)}")
        folder = Path(name)
        pictures = folder / "pictures"
        made = []
        with pictures.open("wb") as file:
            for one in pool.make(work.records):
                for row in [one.row or {}, *one.side_rows]:
                    _take_out(row, file, place.name(".pictures"))
                made.append(one)
        spool = Spool(folder / "parts", work.schema, work.side_schema, work.build.kind.data.key_of)
        spool.write(place.number, made)
        for path in spool.folder.iterdir():
            place.keep(path, path.name[6:])
        place.keep(pictures, ".pictures")
    return {
        "keys": spool.keys,
        "problems": [asdict(problem) for problem in spool.problems],
        "films": [asdict(film) for film in spool.films],
    }


def _take_out(row: Row, file: Any, piece: str) -> None:
    """Move the images of a row into a file, and replace them with references."""
    for picture in pictures_of(row):
        data = picture["bytes"]
        picture["bytes"] = PictureReference(piece, file.tell(), len(data), zlib.crc32(data)).to_bytes()
        file.write(data)


class TaskSpool(Spool):
    """A spool whose parts are each written by a task."""

    def __init__(self, *arguments: Any, tasks: TaskEngine) -> None:
        super().__init__(*arguments)
        self._tasks = tasks

    def fill(self, records: Iterable[Record], pool: RowPool) -> Iterator[RowResult | None]:
        """Run tasks that make the missing parts; yield once per record."""
        self._drop_from(0)
        sizes: list[int] = []
        done: dict[int, Done] = {}
        for one in self._tasks.run(f"rows-{self.folder.name}", self._plan(records, pool, sizes)):
            done[one.number] = one
            for name in one.files:
                if not name.endswith(".pictures"):
                    number = name.rpartition("/")[2]
                    self._tasks.storage.fetch(name, self.folder / f"0{number}")
            failed = [RowResult("", "", problems=[Problem(**problem)]) for problem in one.result["problems"]]
            yield from [*failed, *[None] * sizes[one.number]][: sizes[one.number]]
        for _, one in sorted(done.items()):
            self.keys += one.result["keys"]
            self.problems += [Problem(**problem) for problem in one.result["problems"]]
            self.films += [FilmNote(**film) for film in one.result["films"]]
            self.n_resumed += sizes[one.number] if one.was_done else 0

    def _plan(self, records: Iterable[Record], pool: RowPool, sizes: list[int]) -> Iterator[Task]:
        stream = iter(records)
        while batch := list(islice(stream, self._tasks.task_size)):
            sizes.append(len(batch))
            digests = [pool.digest(record) for record in batch]
            work = RowsTask(pool.build, batch, self.schema, self.side_schema)
            yield Task(hashlib.sha256("".join(digests).encode()).hexdigest(), make_rows, work)


# Shards

AHEAD_BYTES = 8 << 20
"""Minimum bytes of a request, because a bucket answers a few large requests faster than many small ones."""


@dataclass(frozen=True)
class ShardTask:
    """The work of a task: a shard's rows, a Parquet file with references in the storage."""

    rows: str
    split: str
    schema: pa.Schema


def write_shard(place: TaskPlace, work: ShardTask) -> dict[str, Any]:
    """Write one shard with its images."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = folder / "rows"
        place.storage.fetch(work.rows, rows)
        shards = ShardWriter(folder, work.split, work.schema, max_shard_bytes=1 << 62)
        pictures = PictureReader(place.storage)
        for row in read_rows(rows):  # these columns contain references instead of images
            for picture in pictures_of(row):
                picture["bytes"] = pictures.read(PictureReference.from_bytes(picture["bytes"]))
            shards.add(row)
        place.keep(shards.close()[0], ".parquet")
    return {"n_bytes": shards.n_bytes}


class PictureReader:
    """Reader of images in stored files; a request also reads the following bytes, which are usually needed next."""

    def __init__(self, storage: TaskStorage) -> None:
        self._storage = storage
        self._piece, self._start, self._data = "", 0, b""

    def read(self, reference: PictureReference) -> bytes:
        """Return the bytes of an image.

        Raises
        ------
        TaskError
            If the bytes are not those that were written.
        """
        start, end = reference.start, reference.start + reference.size
        if reference.piece != self._piece or not self._start <= start <= end <= self._start + len(self._data):
            self._data = self._storage.read_range(reference.piece, start, max(end, start + AHEAD_BYTES))
            self._piece, self._start = reference.piece, start
        data = self._data[start - self._start : end - self._start]
        if len(data) != reference.size or zlib.crc32(data) != reference.crc32:
            raise TaskError(f"{reference.piece} was changed: {reference.size} bytes from {reference.start} differ")
        return data


class TaskShardWriter(ShardWriter):
    """Gathers rows, which have references instead of images, into shards, and runs tasks that write the shards."""

    def __init__(
        self,
        folder: Path,
        split: str,
        schema: pa.Schema,
        *,
        target: str,
        tasks: TaskEngine,
        max_shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self._planned = tempfile.TemporaryDirectory()
        super().__init__(Path(self._planned.name), split, schema, max_shard_bytes=max_shard_bytes)
        self._target, self._stage, self._tasks = folder, f"shards-{target}-{folder.name}-{split}", tasks
        self._target.mkdir(parents=True, exist_ok=True)

    def close(self) -> list[Path]:
        """Run tasks that write the shards, and give the shards their names."""
        planned = super().close()
        shards = [self._target / path.name for path in planned]
        self.n_bytes = 0
        for one in self._tasks.run(self._stage, self._plan(planned)):
            ((name, (sha256, _)),) = one.files.items()
            self._tasks.storage.fetch(name, shards[one.number])
            self.sums[shards[one.number]] = sha256
            self.n_bytes += one.result["n_bytes"]
        self._planned.cleanup()
        return shards

    def _plan(self, planned: Sequence[Path]) -> Iterator[Task]:
        for number, path in enumerate(planned):
            rows = f"{self._stage}/rows/{number:05d}.parquet"
            work = ShardTask(rows, self.split, self.schema)
            identity = hashlib.sha256(pickle.dumps(work) + path.read_bytes()).hexdigest()
            yield Task(identity, write_shard, work, {rows: path})

    def _size_of(self, row: Row) -> int:
        """Return the bytes of a row with its images instead of references."""
        references = [picture["bytes"] for picture in pictures_of(row)]
        return row_bytes(row) + sum(PictureReference.from_bytes(data).size - len(data) for data in references)
