"""Finished rows of a split, kept on disk in small parts until the whole build is done.

A part is complete once its ``.json`` is there, which is written last and removed first. It lists a hash of every record
that went in, and those of the part's files, so
a build that was killed goes on after the last part whose records are still the same, whatever changed meanwhile. How
rows are divided into parts has no influence on the dataset that is made of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.builders.rows import Row
from reveal_bench.builders.shards import read_rows, row_bytes
from reveal_bench.builders.source import Problem, Record
from reveal_bench.builders.workshop import Made, Workshop

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Spool"]

PART_RECORDS = 32
PART_BYTES = 16 << 20


class Spool:
    """The parts of one split in `folder`.

    Attributes
    ----------
    problems : of the records that could not be made into rows
    n_resumed : records whose rows were there already
    keys : keys of the rows, in order
    """

    def __init__(
        self, folder: Path, schema: pa.Schema, side_schema: pa.Schema | None, key_of: Callable[[Record], str]
    ) -> None:
        self.folder, self.schema, self.side_schema, self._key_of = folder, schema, side_schema, key_of
        self.problems: list[Problem] = []
        self.keys: list[str] = []
        self.n_resumed = 0
        folder.mkdir(parents=True, exist_ok=True)

    def fill(self, records: Iterable[Record], workshop: Workshop) -> Iterator[Made | None]:
        """Make what is not there yet; yields after each record: what was made, or None if it was there."""
        stream: Iterator[Record] = iter(records)
        batch: list[Made] = []
        n_parts = 0
        while (part := self._read(n_parts)) is not None:
            upcoming = list(islice(stream, len(part)))
            if [self._key_of(record) for record in upcoming] != [key for key, _ in part]:
                stream = chain(upcoming, stream)
                break
            if [workshop.digest(record) for record in upcoming] == [digest for _, digest in part]:
                self.keys += [key for key, _ in part]
                self.n_resumed += len(part)
                yield from (None for _ in part)
            else:
                batch = []
                for made in workshop.make(upcoming):
                    batch.append(made)
                    yield made
                self._write(n_parts, batch)
            n_parts += 1
        self._drop_from(n_parts)
        batch, size = [], 0
        for made in workshop.make(stream):
            batch.append(made)
            size += row_bytes(made.row) + row_bytes(made.side_rows)
            if len(batch) >= PART_RECORDS or size >= PART_BYTES:
                self._write(n_parts, batch)
                n_parts, batch, size = n_parts + 1, [], 0
            yield made
        if batch:
            self._write(n_parts, batch)

    def rows(self) -> Iterator[tuple[Row, list[str]]]:
        """Every row with the findings asked of it, in the order of the records."""
        for index in sorted(self.folder.glob("*.json")):
            asked = json.loads(index.read_text(encoding="utf-8"))["asked"]
            yield from zip(read_rows([index.with_suffix(".parquet")]), asked, strict=True)

    def side_rows(self) -> Iterator[Row]:
        """Every row of the side table."""
        yield from read_rows(sorted(self.folder.glob("*-side.parquet")))

    def _path(self, number: int, ending: str) -> Path:
        return self.folder / f"{number:06d}{ending}"

    def _read(self, number: int) -> list[tuple[str, str]] | None:
        """(key, hash) of the records of a complete part, no hash where there is no row; None if there is no part."""
        try:
            index = json.loads(self._path(number, ".json").read_text(encoding="utf-8"))
            for ending, sha256 in index["sha256"].items():
                if hashlib.sha256(self._path(number, ending).read_bytes()).hexdigest() != sha256:
                    return None
        except (OSError, ValueError):
            return None
        return [(key, digest) for key, digest in index["records"]]

    def _drop_from(self, number: int) -> None:
        for path in sorted(self.folder.iterdir(), key=lambda path: path.suffix != ".json"):  # the index first
            if not path.name[:6].isdigit() or int(path.name[:6]) >= number:
                path.unlink()

    def _write(self, number: int, batch: Sequence[Made]) -> None:
        good = [made for made in batch if made.row is not None]
        self.problems += [made.problem for made in batch if made.problem is not None]
        self.keys += [made.key for made in good]
        self._path(number, ".json").unlink(missing_ok=True)  # or it would stand for other rows after a kill
        rows = {".parquet": self._write_table(number, ".parquet", [made.row or {} for made in good], self.schema)}
        if self.side_schema is not None:
            side_rows = [row for made in good for row in made.side_rows]
            rows["-side.parquet"] = self._write_table(number, "-side.parquet", side_rows, self.side_schema)
        index = {
            "sha256": rows,
            "records": [(made.key, "" if made.row is None else made.digest) for made in batch],
            "asked": [made.asked for made in good],
        }
        _write_whole(self._path(number, ".json"), json.dumps(index).encode())

    def _write_table(self, number: int, ending: str, rows: Sequence[Row], schema: pa.Schema) -> str:
        """Write one table of a part; returns its sha256."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink, compression="none")
        data = sink.getvalue()
        _write_whole(self._path(number, ending), data)
        return hashlib.sha256(data).hexdigest()


def _write_whole(path: Path, data: bytes | pa.Buffer) -> None:
    """Write a file that is either complete or not there under its name, on disk even after a power cut."""
    new = path.with_suffix(path.suffix + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
