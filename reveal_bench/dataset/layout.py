"""Parquet shards, written row by row.

Rows are gathered to row groups of at most 100 rows and 32 MB (the Hub's viewer reads one group at a time, and no more
than one is ever held in memory) and row groups to shards of at most about 500 MB. The number of shards is in their
names, so they get their names when the last row is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.kinds.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["ShardWriter", "read_rows", "row_bytes"]

GROUP_ROWS = 100
GROUP_BYTES = 32 << 20
SHARD_BYTES = 500 << 20


class ShardWriter:
    """Writes ``<folder>/<split>-00000-of-000NN.parquet``.

    Parameters
    ----------
    folder : Path
        Made if it is missing.
    schema : pyarrow schema of the rows
    max_shard_bytes : a shard is closed by the row group that reaches it

    Attributes
    ----------
    n_rows, n_bytes : rows added so far, and their size in Arrow memory
    """

    def __init__(self, folder: Path, split: str, schema: pa.Schema, *, max_shard_bytes: int = SHARD_BYTES) -> None:
        self.folder, self.split, self.schema, self.max_shard_bytes = folder, split, schema, max_shard_bytes
        self.n_rows = self.n_bytes = 0
        self._rows: list[Row] = []
        self._rows_bytes = self._shard_bytes = 0
        self._parts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Add one row."""
        self._rows.append(row)
        self._rows_bytes += row_bytes(row)
        self.n_rows += 1
        if len(self._rows) >= GROUP_ROWS or self._rows_bytes >= GROUP_BYTES:
            self._write_group()

    def close(self) -> list[Path]:
        """Write what is left and give the shards their names; returns their paths."""
        if self._rows or not self._parts:
            self._write_group()
        self._close_shard()
        total = len(self._parts)
        shards = [self.folder / f"{self.split}-{i:05d}-of-{total:05d}.parquet" for i in range(total)]
        for part, shard in zip(self._parts, shards, strict=True):
            part.rename(shard)
        return shards

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist(self._rows, schema=self.schema)
        if self._writer is None:
            part = self.folder / f".{self.split}-{len(self._parts):05d}.part"
            self._parts.append(part)
            self._writer = pq.ParquetWriter(part, self.schema, compression="zstd", write_page_index=True)
        self._writer.write_table(table, row_group_size=GROUP_ROWS)
        self.n_bytes += table.nbytes
        self._shard_bytes += self._rows_bytes
        self._rows, self._rows_bytes = [], 0
        if self._shard_bytes >= self.max_shard_bytes:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._shard_bytes = None, 0


def row_bytes(value: Any) -> int:
    """About how many bytes a row takes in memory; for the sizes of row groups and shards."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, dict):
        return sum(row_bytes(inner) for inner in value.values())
    if isinstance(value, list):
        return sum(row_bytes(inner) for inner in value)
    return 8


def read_rows(shards: Sequence[Path]) -> Iterator[Row]:
    """The rows of `shards` in order, a few in memory at a time."""
    import pyarrow.parquet as pq

    for shard in shards:
        for batch in pq.ParquetFile(shard).iter_batches(batch_size=8):
            yield from batch.to_pylist()
