"""Hostile Parquet: schemas, nested types, dictionaries, damaged pages and footers, tables that unpack without end."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.leaderboard.hostile.corpus import TOO_LARGE, Bad, Site
from tests.predictions.conftest import parquet

MILLION = 1_000_000


def sound(site: Site) -> pa.Table:
    return pa.table({"image_id": [site.image], "finding": [site.finding], "x": [1.5], "y": [2]})


def with_column(name: str, values: pa.Array, site: Site) -> bytes:
    """A sound table with one column added or replaced."""
    table = sound(site)
    place = table.schema.get_field_index(name)
    table = table.append_column(name, values) if place < 0 else table.set_column(place, name, values)
    return parquet(table)


COLUMNS: dict[str, tuple[str, pa.Array, str]] = {
    "numbers for images": ("image_id", pa.array([7]), "column-type"),
    "bytes for images": ("image_id", pa.array([b"p000"]), "column-type"),
    "lists for images": ("image_id", pa.array([["p000"]]), "column-type"),
    "structures for images": ("image_id", pa.array([{"a": "p000"}]), "column-type"),
    "a map for images": ("image_id", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), "column-type"),
    "texts for numbers": ("x", pa.array(["1.5"]), "column-type"),
    "truth values for numbers": ("x", pa.array([True]), "column-type"),
    "times for numbers": ("x", pa.array([1], pa.timestamp("ns")), "column-type"),
    "durations for numbers": ("x", pa.array([1], pa.duration("ns")), "column-type"),
    "decimals for numbers": ("x", pa.array([1], pa.decimal128(38, 0)), "column-type"),
    "dates beyond the calendar": ("x", pa.array([2**62], pa.timestamp("us")), "column-type"),
    "NaN": ("x", pa.array([float("nan")]), "not-finite"),
    "infinity": ("x", pa.array([float("-inf")]), "not-finite"),
    "the largest number": ("x", pa.array([2**64 - 1], pa.uint64()), "outside-image"),
    "null for a number": ("x", pa.array([None], pa.float64()), "wrong-type"),
    "null for an image": ("image_id", pa.array([None], pa.string()), "missing-field"),
    "a column of nulls for images": ("image_id", pa.nulls(1), "missing-field"),
    "an image of markup": ("image_id", pa.array(["<script>alert(1)</script>"]), "unknown-image"),
    "an image with NUL": ("image_id", pa.array(["p\x00"]), "control-character"),
    "an image of a megabyte": ("image_id", pa.array(["p" * MILLION]), "text-length"),
    "an image of 200 bytes a letter": ("image_id", pa.array(["\u0301" * 150]), "unknown-image"),
    "a column of markup": ("<script>", pa.array([1]), "unknown-column"),
    "a column of a megabyte": ("c" * MILLION, pa.array([1]), "table-syntax"),
    "a column of a control": ("\x1b[2J", pa.array([1]), "unknown-column"),
    "a list nested in lists": (
        "x", pa.array([[[[[1]]]]]), "column-type"),
    "a mask that loops for ever": (
        "counts", pa.array(["1;"]), "wrong-type"),
}  # fmt: skip


def _one(values: object, n: int) -> pa.Array:
    """A dictionary of one text, n times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([values]))


def deep(site: Site) -> bytes:
    kind: pa.DataType = pa.int8()
    for _ in range(120):
        kind = pa.struct([("a", kind)])
    return parquet(pa.table({"image_id": pa.nulls(1, kind)}), store_schema=False)


def rows_many(site: Site) -> bytes:
    part = pa.table({"image_id": pa.nulls(2 * MILLION, pa.string())})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, part.schema) as writer:
        for _ in range(50):
            writer.write_table(part, row_group_size=len(part))
    return sink.getvalue()


def groups_many(site: Site) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, sound(site).schema) as writer:
        for _ in range(2000):
            writer.write_table(sound(site))
    return sink.getvalue()


def dictionary_of(column: str, site: Site) -> bytes:
    """20,000 rows of one text of a megabyte in a column that belongs there."""
    n = 20_000
    columns = {"image_id": _one(site.image, n), "finding": _one(site.finding, n), "cell": _one("A1", n)}
    columns[column] = _one("x" * MILLION, n)
    return parquet(pa.table(columns), compression="zstd", write_statistics=False)


def dictionary_unused(site: Site) -> bytes:
    words = pa.array([f"x{i}" for i in range(300_000)])
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(50, np.int32)), words)
    return parquet(pa.table({"image_id": names, "finding": names, "cell": _one("A1", 50)}))


def dictionary_out_of_range(site: Site) -> bytes:
    """Return a page whose index is beyond its dictionary: the one index is overwritten."""
    data = bytearray(
        parquet(
            pa.table({"image_id": _one("AAAA", 99), "finding": _one("BB", 99), "cell": _one("A1", 99)}),
            compression="none",
        )
    )
    for i in range(data.index(b"AAAA") + 4, data.index(b"BB")):
        data[i] ^= 0x55
    return bytes(data)


def page_of_zeros(site: Site) -> bytes:
    """A page that holds hundreds of megabytes of zeros in a few kilobytes."""
    zeros = pa.array(["\0" * (64 * MILLION)])
    table = pa.table({"image_id": zeros, "finding": zeros, "cell": zeros})
    return parquet(table, compression="zstd", use_dictionary=False, write_statistics=False)


def list_long(site: Site) -> bytes:
    n = 20 * MILLION
    numbers = pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), pa.array(np.zeros(n, np.int8)))
    return parquet(pa.table({"image_id": ["a"], "finding": ["b"], "cell": numbers}), compression="zstd")


def bytes_changed(seed: int, n: int, start: float, site: Site) -> bytes:
    """A sound file with some bytes changed in its last part, from `start` of its length on."""
    rng = random.Random(seed)
    data = bytearray(parquet(sound(site)))
    for _ in range(n):
        data[rng.randrange(int(start * len(data)), len(data))] ^= rng.randrange(1, 256)
    return bytes(data)


def cut(share: float, site: Site) -> bytes:
    data = parquet(sound(site))
    return data[: int(share * len(data))]


def footer_of(length: int, site: Site) -> bytes:
    """A file whose footer says that it is so long."""
    data = parquet(sound(site))
    return data[:-8] + length.to_bytes(4, "little") + b"PAR1"


def values_said(n: int, site: Site) -> bytes:
    """A footer that claims other rows than there are: the row count 1 is written over wherever it is a whole field."""
    data = bytearray(parquet(sound(site)))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for i in range(start, len(data) - 8):
        if data[i : i + 2] == b"\x16\x02":  # thrift: a 64-bit field of value 1
            data[i + 1] = n
    return bytes(data)


MADE: dict[str, tuple[Callable[[Site], bytes], str]] = {
    "3,000 columns": (lambda site: parquet(pa.table({f"c{i}": [1] for i in range(3000)})), "columns"),
    "a column twice": (
        lambda site: parquet(pa.Table.from_arrays([pa.array(["a"])] * 3, names=["image_id", "image_id", "cell"])),
        "duplicate-column missing-column"),
    "structures 120 deep": (deep, "table-syntax"),
    "no rows": (lambda site: parquet(sound(site).slice(0, 0)), "empty-file"),
    "2,000 groups of rows": (groups_many, "duplicate-pair too-many-problems"),
    "a long image 20,000 times": (partial(dictionary_of, "image_id"), f"expanded-size {TOO_LARGE}"),
    "a long finding 20,000 times": (partial(dictionary_of, "finding"), f"expanded-size {TOO_LARGE}"),
    "a long cell 20,000 times": (partial(dictionary_of, "cell"), f"expanded-size {TOO_LARGE}"),
    "a dictionary of unused words": (dictionary_unused, "unknown-image unknown-finding"),
    "indices beyond the dictionary": (dictionary_out_of_range, "table-syntax"),
    "pages of zeros": (page_of_zeros, f"expanded-size {TOO_LARGE}"),
    "cut in the middle": (partial(cut, 0.5), "table-syntax"),
    "only its head": (lambda site: b"PAR1", "table-syntax"),
    "only its head and end": (lambda site: b"PAR1PAR1", "table-syntax"),
    "a footer of 4 GB": (partial(footer_of, 2**32 - 1), "table-syntax"),
    "a footer of 2 GB": (partial(footer_of, 2**31), "table-syntax"),
    "a footer of nothing": (partial(footer_of, 0), "table-syntax"),
    "fewer rows than nothing": (partial(values_said, 1), "table-syntax"),
    "encrypted": (lambda site: b"PARE" + parquet(sound(site))[4:-4] + b"PARE", "format"),
    "odd but sound: large texts and half floats": (
        lambda site: parquet(pa.table({
            "image_id": pa.array([site.image], pa.large_string()), "finding": [site.finding],
            "x": pa.array([1.5], pa.float16()), "y": pa.array([2], pa.uint8()),
        })), ""),
}  # fmt: skip


def _all() -> Iterator[Bad]:
    for name, (column, values, rules) in COLUMNS.items():
        yield Bad(f"parquet: {name}", partial(with_column, column, values), frozenset(rules.split()))
    for name, (make, rules) in MADE.items():
        yield Bad(f"parquet: {name}", make, frozenset(rules.split()))
    for seed in range(12):
        part, start = ("pages", 0.02) if seed % 2 else ("footer", 0.5)
        make = partial(bytes_changed, seed, 3 + seed, start)
        yield Bad(f"parquet: bytes of its {part} changed, {seed}", make, frozenset({"table-syntax"}))


PARQUETS = tuple(_all())
