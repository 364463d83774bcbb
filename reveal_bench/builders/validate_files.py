"""Which files a dataset folder may have, and what may stand in a Parquet file beside its rows.

The form is closed: a file of another name, or a note in a Parquet file's metadata, could hold anything, and no check
would know how to read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reveal_bench.builders.source import Problem
from reveal_bench.builders.validate_tables import MANIFEST, SHARD, DatasetFolder, Table
from reveal_bench.records import FOLDER_INFO

__all__ = ["file_problems", "metadata_problems", "metadata_texts"]

DESCRIPTIONS = {"README.md", "croissant.json", "eval.yaml", "CHECKSUMS.json", FOLDER_INFO}
METADATA = {"huggingface", "ARROW:schema", "pandas"}
FIELD_METADATA = {"PARQUET:field_id"}


def file_problems(
    folder: DatasetFolder, names: Iterable[str], promised: Mapping[str, Mapping[str, object]]
) -> Iterator[Problem]:
    """Files that are not of the dataset form.

    Parameters
    ----------
    names : relative paths of the folder's files
    promised : config -> split -> anything, as the card lists them; if it lists none, any table has the form
    """
    for name in sorted(set(names) - DESCRIPTIONS):
        place, _, file = name.rpartition("/")
        match = SHARD.fullmatch(file)
        if place == MANIFEST:
            is_table = file.endswith(".parquet") and file.removesuffix(".parquet") in folder.info.splits
        elif not promised:
            is_table = match is not None
        else:
            is_table = match is not None and match["split"] in promised.get(place, ())
        if not is_table:
            yield Problem(name, None, "file", "must be a file of the dataset form", "another file")


def metadata_problems(table: Table) -> Iterator[Problem]:
    """Metadata of a Parquet file other than what tells its columns' types; of a damaged file nothing."""
    for place, key, value in _metadata(table.path):
        if key not in (FIELD_METADATA if place else METADATA):
            yield Problem(table.name, None, "metadata", "must tell the types of the columns alone", _short(place, key))
        elif key == "huggingface" and not _tells_features_alone(value):
            yield Problem(
                table.name, None, "metadata", "must tell the types of the columns alone", "more in huggingface"
            )


def metadata_texts(path: Path) -> Iterator[str]:
    """Every string of a Parquet file's metadata; of a damaged file none."""
    for _, key, value in _metadata(path):
        yield key
        if key != "ARROW:schema":  # the same once more, as bytes
            yield value


def _metadata(path: Path) -> Iterator[tuple[str, str, str]]:
    """(column, or "" for the file; key; value)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer, schema = pq.read_metadata(path).metadata or {}, pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return
    for key, value in {**footer, **(schema.metadata or {})}.items():
        yield "", _text(key), _text(value)
    for field in schema:
        yield from _field_metadata(field, field.name)


def _field_metadata(field: Any, place: str) -> Iterator[tuple[str, str, str]]:
    for key, value in (field.metadata or {}).items():
        yield place, _text(key), _text(value)
    for i in range(field.type.num_fields):
        inner = field.type.field(i)
        yield from _field_metadata(inner, f"{place}.{inner.name}")


def _tells_features_alone(value: str) -> bool:
    try:
        told = json.loads(value)
        return set(told) == {"info"} and set(told["info"]) == {"features"}
    except (ValueError, TypeError):
        return False


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _short(place: str, key: str) -> str:
    return f"{place}: {key[:60]}" if place else key[:60]
