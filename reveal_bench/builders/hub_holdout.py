"""Does a public folder tell anything of its holdout? The checks that need no more than the folders' tables.

They read every Parquet file of the folder, whatever its config, so a table that is added later is checked as well.
:mod:`reveal_bench.builders.leaks` looks for the references themselves (masks, contours, points).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.builders.source import Problem
from reveal_bench.records import FOLDER_INFO, FolderInfo, read_folder_info

__all__ = ["INPUT_COLUMNS", "holdout_problems"]

ID_COLUMNS = {
    "image_id": "image",
    "image_ids": "image",
    "prior_image_ids": "image",
    "study_id": "study",
    "patient_id": "patient",
    "task_id": "task",
}
"""Columns that hold ids, with what they are ids of."""

IMAGE_COLUMNS = ("image", "images", "prior_images")
HASHES = ("source_sha256", "pixel_sha256")

INPUT_COLUMNS = {
    *ID_COLUMNS,
    *IMAGE_COLUMNS,
    *("view", "views", "view_raw", "width", "height", "pixel_sha256", "pixel_pipeline", "spacing_mm", "spacing_source"),
    *("image_facts", "prior_image_facts", "manufacturer", "model", "detector_type", "kvp", "exposure_mas"),
    *("age_band", "sex", "race", "patient_class"),
    *("prompt", "indication", "category", "temporal", "tags", "requires_boxes"),
}
"""Columns that may hold something in a row without references; every other one must be empty there."""

_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}\.parquet")


def holdout_problems(folder: Path, info: FolderInfo, holdout: Path | None) -> Iterator[Problem]:
    """Everything that a public folder tells of the splits whose references are private.

    Parameters
    ----------
    folder, info : the public folder, and what its ``manifest/benchmark.json`` says
    holdout : private folder of its holdout, if it is at hand; else the ids in the folder's own manifest are used
    """
    tables = [(path, _split(path)) for path in sorted(folder.rglob("*.parquet")) if path.is_file()]
    closed = {split for split, entry in info.splits.items() if entry.get("references") == "private"}
    secret = _HeldOut()
    for path, split in tables:
        if split in closed:
            secret.add_ids(path)
            if not _is_manifest(path, folder):
                yield from _reference_problems(path, path.relative_to(folder).as_posix())
    if holdout is not None:
        yield from _other_holdout_problems(folder, info, holdout)
        for path in sorted(holdout.rglob("*.parquet")):
            secret.add_ids(path)
            secret.add_hashes(path)
    for path, split in tables:
        if split not in closed:
            yield from _leaked(path, path.relative_to(folder).as_posix(), secret)


def _split(path: Path) -> str:
    match = _SHARD.fullmatch(path.name)
    return match["split"] if match else path.stem


def _is_manifest(path: Path, folder: Path) -> bool:
    return path.parent == folder / "manifest"


@dataclass
class _HeldOut:
    """Ids (per kind) and file hashes that belong to the holdout."""

    ids: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in ID_COLUMNS.values()})
    hashes: set[str] = field(default_factory=set)

    def add_ids(self, path: Path) -> None:
        for row in _rows(path, ID_COLUMNS):
            for column, value in row.items():
                self.ids[ID_COLUMNS[column]].update(_texts(value))

    def add_hashes(self, path: Path) -> None:
        for row in _rows(path, (*HASHES, "image_facts", "prior_image_facts")):
            self.hashes.update(_hashes(row, HASHES))


def _rows(path: Path, columns: Collection[str], *, at_once: int = 1024) -> Iterator[dict[str, Any]]:
    """Rows with those of `columns` that the file has; a broken file has none, and `validate_folder` says so."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        names = [name for name in file.schema_arrow.names if name in columns]
        if names:
            for batch in file.iter_batches(batch_size=at_once, columns=names):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError):
        return


def _reference_problems(path: Path, name: str) -> Iterator[Problem]:
    """Columns of a split without public references that hold something all the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = [column for column in pq.read_schema(path).names if column not in IMAGE_COLUMNS]
    except (pa.ArrowException, OSError):
        return
    counts: dict[str, int] = {}
    for row in _rows(path, columns):
        given = {column for column, value in row.items() if column not in INPUT_COLUMNS and not _is_empty(value)}
        if any(True for _ in _hashes(row, ("source_sha256",))):
            given.add("source_sha256")
        for column in given:
            counts[column] = counts.get(column, 0) + 1
    for column, n_rows in sorted(counts.items()):
        rule = "must be empty in a split whose references are private"
        yield Problem(name, None, column, rule, f"a value in {n_rows} row" + ("s" if n_rows > 1 else ""))


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_empty(inner) for inner in value.values())
    if isinstance(value, list):
        return all(_is_empty(inner) for inner in value)
    return value is None or value == ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _hashes(value: Any, names: tuple[str, ...]) -> Iterator[str]:
    """Every hash under one of `names`, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in names:
                yield from _texts(inner)
            else:
                yield from _hashes(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _hashes(inner, names)


def _other_holdout_problems(folder: Path, info: FolderInfo, holdout: Path) -> Iterator[Problem]:
    """A holdout of something else would find no leak, whatever there is."""
    private = read_folder_info(holdout)
    if private.benchmark != info.benchmark:
        rule = f"must be of the same benchmark as the folder, {info.benchmark}"
        yield Problem(f"{holdout.name}/{FOLDER_INFO}", None, "benchmark", rule, private.benchmark)
    for split in private.splits:
        name = f"manifest/{split}.parquet"
        if not (folder / name).is_file():
            rule = f"must be a split of {folder.name}, with its manifest"
            yield Problem(f"{holdout.name}/{FOLDER_INFO}", split, "splits", rule, "no manifest")
        elif _manifest_ids(folder / name) != _manifest_ids(holdout / name):
            yield Problem(name, None, "ids", f"must be those of the manifest in {holdout.name}", "others")


def _manifest_ids(path: Path) -> set[tuple[str, str]]:
    rows = _rows(path, ID_COLUMNS)
    return {(column, text) for row in rows for column, value in row.items() for text in _texts(value)}


def _leaked(path: Path, name: str, secret: _HeldOut) -> Iterator[Problem]:
    """Ids and hashes of the holdout among the rows of another split."""
    found: dict[str, set[str]] = {}
    for row in _rows(path, ID_COLUMNS):
        for column, value in row.items():
            found.setdefault(column, set()).update(secret.ids[ID_COLUMNS[column]].intersection(_texts(value)))
    if secret.hashes:
        for row in _rows(path, (*HASHES, "image_facts", "prior_image_facts")):
            found.setdefault("sha256", set()).update(secret.hashes.intersection(_hashes(row, HASHES)))
        for row in _rows(path, IMAGE_COLUMNS, at_once=8):
            digests = {hashlib.sha256(data).hexdigest() for data in _file_bytes(row)}
            found.setdefault("image", set()).update(secret.hashes & digests)
    for column, values in found.items():
        if values:
            some = ", ".join(sorted(values)[:3]) + (f" and {len(values) - 3} more" if len(values) > 3 else "")
            yield Problem(name, None, column, "must not be in the holdout", some)


def _file_bytes(row: dict[str, Any]) -> Iterator[bytes]:
    for value in row.values():
        for image in value if isinstance(value, list) else [value]:
            if isinstance(image, dict) and image.get("bytes"):
                yield image["bytes"]
