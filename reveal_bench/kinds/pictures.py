"""Pictures of a dataset folder, read as the bytes of their files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from threading import Lock

from reveal_bench.kinds.kind import AnyKind


class StoredPictures:
    """Pictures of rows, read a row group at a time; the last group stays in memory, because requests are often for
    neighbours.

    Parameters
    ----------
    shards : files of the kind's main config
    keys : keys of the rows to read
    """

    def __init__(self, kind: AnyKind, shards: Sequence[Path], keys: Collection[str]) -> None:
        import pyarrow.parquet as pq

        self.kind = kind
        self._groups: dict[str, tuple[Path, int]] = {}
        for shard in shards:
            with pq.ParquetFile(shard) as file:
                for number in range(file.num_row_groups):
                    column = file.read_row_group(number, columns=[kind.key]).column(kind.key)
                    self._groups |= {key: (shard, number) for key in column.to_pylist() if key in keys}
        self._kept: tuple[tuple[Path, int], dict[str, list[bytes | None]]] | None = None
        self._lock = Lock()

    @property
    def order(self) -> list[str]:
        """Keys in the order of the files."""
        return list(self._groups)

    def of(self, key: str) -> list[bytes | None]:
        """Return the pictures of a row, in the order of its films."""
        group = self._groups[key]
        with self._lock:
            if self._kept is None or self._kept[0] != group:
                self._kept = group, self._read(*group)
            return self._kept[1][key]

    def _read(self, shard: Path, number: int) -> dict[str, list[bytes | None]]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(shard) as file:
            rows = file.read_row_group(number, columns=[self.kind.key, *self.kind.table.image_columns]).to_pylist()
        pictures = {}
        for row in rows:
            cells = [row[name] for name in self.kind.table.image_columns]
            flat = [one for cell in cells for one in (cell if isinstance(cell, list) else [cell])]
            pictures[row[self.kind.key]] = [None if one is None else one["bytes"] for one in flat]
        return pictures
