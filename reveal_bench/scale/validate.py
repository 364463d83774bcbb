"""Check a dataset folder by tasks: one task per file does the slow part, then the usual rules are applied.

A task reads one Parquet file, and records the file's sha256 and observations of each row's images and masks. Then
:func:`reveal_bench.dataset.validate.validate_folder` reads the tables without images, and uses these observations to
find the same problems.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench import __version__
from reveal_bench.dataset.tables import (
    INPUTS,
    DatasetFolder,
    TableFile,
    expected_features,
    open_folder,
    read_table,
    schema_problems,
    tables_of,
)
from reveal_bench.dataset.validate import Reader
from reveal_bench.dataset.validate_card import read_promise
from reveal_bench.dataset.validate_rows import DrawnMasks, inspect_mask, inspect_picture, value_faults
from reveal_bench.files import FOLDER_INFO, file_sha256
from reveal_bench.kinds.rows import Row
from reveal_bench.scale.engine import TaskEngine
from reveal_bench.scale.tasks import Task, TaskPlace
from reveal_bench.sources.source import Problem

MASK = "mask"
Drawn = tuple[list[Problem], dict[tuple[str, str, int], str]]
"""Problems and digests of a row's masks, as :class:`DrawnMasks` finds them."""


@dataclass(frozen=True)
class Sight:
    """Observations of a row: column -> observations that replace the images, and the results of the masks."""

    seen: dict[str, Any]
    masks: Drawn | None


class SeenRow(dict[str, Any]):
    """A row with the results of its masks."""

    masks: Drawn | None = None


class KnownMasks(DrawnMasks):
    """Checker of masks that returns the results of tasks."""

    def check(self, rows: Sequence[Row], table: TableFile, findings: Sequence[str]) -> Iterator[Problem]:
        """Yield the problems that tasks found in the masks of the rows."""
        for row in rows:
            assert isinstance(row, SeenRow)
            assert row.masks is not None
            problems, digests = row.masks
            yield from problems
            self.digests |= digests


def look_at_table(place: TaskPlace, work: tuple[Path, str]) -> dict[str, str]:
    """Check one Parquet file of a folder in a task; store the observations, and return the file's sha256."""
    opened = open_folder(work[0])
    (table,) = (table for table in tables_of(opened) if table.name == work[1])
    promised = read_promise(opened.path)[0].features
    sights: list[Sight] = []
    if _columns(opened, table) and not list(schema_problems(opened, table, promised)):
        features = expected_features(opened, promised)[table.config]
        sights = [_sight(row, opened, table, features) for batch in read_table(table) for row in batch]
    place.write(pickle.dumps(sights), ".sights")
    return {"sha256": file_sha256(table.path)}


def _columns(folder: DatasetFolder, table: TableFile) -> tuple[str, ...]:
    """Return a table's columns of images that are checked."""
    kind = folder.kind
    if table.config in (kind.config, INPUTS):
        return kind.table.image_columns
    return (MASK,) if table.config == kind.table.side_config else ()


def _sight(row: Row, folder: DatasetFolder, table: TableFile, features: Any) -> Sight:
    look = inspect_mask if table.config == folder.kind.table.side_config else inspect_picture
    seen = {name: _each(row[name], look) for name in _columns(folder, table)}
    masks_seen = None
    is_drawn = folder.kind.table.side_config is not None and table.config == folder.kind.config
    if is_drawn and not any(value_faults(row, features)):  # a row's masks are checked without other rows
        masks = DrawnMasks()
        masks_seen = list(masks.check([row], table, folder.benchmark.findings)), masks.digests
    return Sight(seen, masks_seen)


def _each(value: Any, look: Callable[[Row], Any]) -> Any:
    if isinstance(value, list):
        return [None if one is None else look(one) for one in value]
    return None if value is None else look(value)


class TaskReader(Reader):
    """Reader of a dataset folder whose files tasks have checked.

    Parameters
    ----------
    folder : dataset folder, at a path that all machines see
    tasks : engine that runs the tasks, which it does immediately
    progress : called with ("files", number done, total)

    Raises
    ------
    ValueError
        If `folder` is not a dataset folder.
    """

    def __init__(self, folder: Path, tasks: TaskEngine, progress: Callable[..., None] | None = None) -> None:
        super().__init__()
        self.masks = KnownMasks()
        self._folder, self._tasks = open_folder(Path(folder).resolve()), tasks
        tables = tables_of(self._folder)
        self._sums: dict[str, str] = {}
        self._sights: dict[str, str] = {}
        for n_done, one in enumerate(tasks.run("look", self._plan(tables)), start=1):
            name = tables[one.number].name
            self._sums[name] = one.result["sha256"]
            (self._sights[name],) = one.files
            if progress is not None:
                progress("files", n_done, len(tables))

    def _plan(self, tables: Sequence[TableFile]) -> Iterator[Task]:
        contents = [(self._folder.path / name).read_bytes() for name in ("README.md", FOLDER_INFO)]
        for table in tables:
            status = table.path.stat()
            state = (table.name, status.st_size, status.st_mtime_ns, status.st_ino, __version__, contents)
            identity = hashlib.sha256(repr(state).encode()).hexdigest()
            yield Task(identity, look_at_table, (self._folder.path, table.name))

    def sha256(self, path: Path) -> str:
        """Return the hexadecimal sha256 of a file, which for a Parquet file a task has computed."""
        name = path.resolve().relative_to(self._folder.path).as_posix()
        return self._sums.get(name) or super().sha256(path)

    def rows(self, table: TableFile) -> Iterator[list[Row]]:
        """Yield the rows of a table with observations instead of images."""
        import pyarrow.parquet as pq

        hidden = _columns(self._folder, table)
        if not hidden:
            yield from super().rows(table)
            return
        sights = iter(pickle.loads(self._tasks.storage.read(self._sights[table.name])))
        names = [name for name in pq.read_schema(table.path).names if name not in hidden]
        for batch in read_table(table, names):
            yield [_seen(row, next(sights)) for row in batch]


def _seen(row: Row, sight: Sight) -> SeenRow:
    seen = SeenRow({**row, **sight.seen})
    seen.masks = sight.masks
    return seen
