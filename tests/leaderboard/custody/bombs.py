"""Files that cost a server dearly when they are read without limits, made cheaply."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MIB = 1 << 20


def _parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


def parquet_dictionary() -> bytes:
    """20,000 rows of one text of 1 MB: a few hundred bytes that become 20 GB."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 1_000_000]))
    return _parquet(pa.table({"image_id": text}), write_statistics=False, store_schema=False)


def parquet_dictionary_of_known_columns() -> bytes:
    """The same in a table that looks as it should."""
    one = pa.array(np.zeros(20_000, np.int32))
    long = pa.DictionaryArray.from_arrays(one, pa.array(["x" * 1_000_000]))
    number = pa.array(np.ones(20_000))
    columns = {"image_id": long, "finding": long, "x": number, "y": number}
    return _parquet(pa.table(columns), write_statistics=False, store_schema=False)


def parquet_list() -> bytes:
    """One row: a list of 20 million whole numbers."""
    offsets = pa.array([0, 20_000_000], pa.int32())
    numbers = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(20_000_000, np.int8)))
    return _parquet(pa.table({"image_id": numbers}), write_statistics=False)


def parquet_constants() -> bytes:
    """A hundred million rows of one number."""
    part = pa.table({"x": pa.array(np.zeros(2_000_000, np.int64))})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, part.schema, compression="zstd", write_statistics=False) as writer:
        for _ in range(50):
            writer.write_table(part, row_group_size=len(part))
    return sink.getvalue()


def csv_in_gzip() -> bytes:
    """Gigabytes of one row in some megabytes: members of gzip one after the other are one file."""
    member = gzip.compress(b"image_id,finding,x,y\n" + b"a,b,1,1\n" * (8 * MIB), 6)
    return member * 128


def deep_json() -> bytes:
    return b"[" * 100_000 + b"]" * 100_000


def deep_jsonl() -> bytes:
    return b'{"image_id":' * 100_000 + b"1" + b"}" * 100_000 + b"\n"


def json_of_empty_lists() -> bytes:
    return b"[" + b"[]," * (16 * MIB) + b"[]]"


def json_of_empty_objects() -> bytes:
    return b"[" + b"{}," * (16 * MIB) + b"{}]"


def csv_of_columns() -> bytes:
    return b",".join(b"%d" % i for i in range(1_000_000)) + b"\n" + b"1," * 999_999 + b"1\n"


def jsonl_of_one_line() -> bytes:
    return b'{"image_id": "' + b"x" * (90 * MIB) + b'"}'


def huge_numbers() -> bytes:
    line = {"image_id": "p000", "finding": "Edema"}
    return json.dumps(line).encode()[:-1] + b', "point": [' + b"9" * 1_000_000 + b", 1e999999]}\n"


def zeros() -> bytes:
    return bytes(90 * MIB)


def noise() -> bytes:
    return np.random.default_rng(0).bytes(8 * MIB)


def masks_of_noise() -> bytes:
    """Long run-length strings that are well formed but for their sum."""
    line = {"image_id": "p000", "finding": "Edema", "rle": {"size": [48, 64], "counts": "1" * 140_000}}
    return (json.dumps(line) + "\n").encode() * 300


BOMBS: dict[str, Callable[[], bytes]] = {
    make.__name__: make
    for make in (
        parquet_dictionary, parquet_dictionary_of_known_columns, parquet_list, parquet_constants, csv_in_gzip,
        deep_json, deep_jsonl, json_of_empty_lists, json_of_empty_objects, csv_of_columns, jsonl_of_one_line,
        huge_numbers, zeros, noise, masks_of_noise,
    )
}  # fmt: skip


def write_bomb(name: str, folder: Path) -> Path:
    """Write one, and return where."""
    path = folder / name
    path.write_bytes(BOMBS[name]())
    return path
