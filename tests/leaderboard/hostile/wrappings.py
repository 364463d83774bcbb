"""Problems before the first prediction: encodings, compression, other kinds of files, file names."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa

from tests.leaderboard.hostile.corpus import BROKE_OFF, TOO_LARGE, Bad, Site, prediction
from tests.leaderboard.hostile.lines import HOSTILE_TEXTS
from tests.leaderboard.hostile.parquets import list_long, parquet, rows_many, sound

MIB = 1 << 20


def good(site: Site) -> bytes:
    return site.fill(prediction('"cell": "A1"')).encode()


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def zst(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def with_byte(data: bytes, place: int, byte: int) -> bytes:
    return data[:place] + bytes([byte]) + data[place + 1 :]


def zipped(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(zipfile.ZipInfo("../../predictions.jsonl"), data)
    return sink.getvalue()


def tarred(data: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        info = tarfile.TarInfo("../predictions.jsonl")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


class Runs:
    """Code that would run if the file were unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (exec, ("raise SystemExit",))


MADE: dict[str, tuple[Callable[[Site], bytes], str]] = {
    "empty": (lambda site: b"", "empty-file"),
    "one byte": (lambda site: b"\n", "empty-file"),
    "blanks": (lambda site: b" \n\t" * 1000, "empty-file"),
    "only a mark": (lambda site: b"\xef\xbb\xbf", "missing-column"),
    "UTF-16": (lambda site: good(site).decode().encode("utf-16"), "encoding"),
    "UTF-16 without a mark": (lambda site: good(site).decode().encode("utf-16-le"), "encoding"),
    "UTF-32": (lambda site: good(site).decode().encode("utf-32"), "encoding"),
    "UTF-7": (lambda site: "ä{+AGEAYgBj-}".encode("utf-7"), "unknown-column missing-column"),
    "Latin-1": (lambda site: good(site).replace(b"A1", b"\xc4"), "encoding"),
    "half a UTF-8 character": (lambda site: good(site).replace(b"A1", b"A\xe2\x82"), "encoding"),
    "an overlong UTF-8 character": (lambda site: good(site).replace(b"A1", b"\xc0\xaf"), "encoding"),
    "a surrogate in UTF-8": (lambda site: good(site).replace(b"A1", b"\xed\xa0\x80"), "encoding"),
    "a character beyond Unicode": (lambda site: good(site).replace(b"A1", b"\xf5\x80\x80\x80"), "encoding"),
    "gzip cut off": (lambda site: gz(good(site))[:-12], "compression"),
    "gzip without its sum": (lambda site: gz(good(site))[:-8], "compression"),
    "gzip with a wrong sum": (lambda site: with_byte(gz(good(site)), len(gz(good(site))) - 6, 0x55), "compression"),
    "gzip with a damaged block": (lambda site: with_byte(gz(good(site)), 12, 0xFF), "compression"),
    "gzip of another method": (lambda site: with_byte(gz(good(site)), 2, 7), "compression"),
    "gzip with a name of a path": (
        lambda site: with_byte(gz(good(site)), 3, 8)[:10] + b"../../etc/cron.d/x\x00" + gz(good(site))[10:], ""),
    "gzip with rubbish behind": (lambda site: gz(good(site)) + b"<script>alert(1)</script>", "compression"),
    "gzip of nothing": (lambda site: gz(b""), "empty-file"),
    "gzip of gzip": (lambda site: gz(gz(good(site))), "compression"),
    "gzip of zstd": (lambda site: gz(zst(good(site))), "compression"),
    "zstd of gzip": (lambda site: zst(gz(good(site))), "compression"),
    "only gzip's mark": (lambda site: b"\x1f\x8b", "compression"),
    "zstd cut off": (lambda site: zst(good(site) * 9)[:-3], "compression"),
    "zstd damaged": (lambda site: with_byte(zst(good(site)), 5, 0xFF), "compression"),
    "only zstd's mark": (lambda site: b"\x28\xb5\x2f\xfd", "compression"),
    "zstd that asks for a dictionary": (
        lambda site: b"\x28\xb5\x2f\xfd\x23\x39\x30\x00\x00\x05\x29\x00\x00hello", "compression"),
    "bare deflate": (lambda site: zlib.compress(good(site)), "format"),
    "bzip2": (lambda site: bz2.compress(good(site)), "format"),
    "xz": (lambda site: lzma.compress(good(site)), "format"),
    "a ZIP archive": (lambda site: zipped(good(site)), "format"),
    "a tar archive": (lambda site: tarred(good(site)), "unknown-column missing-column"),
    "a pickle": (lambda site: pickle.dumps(Runs(), protocol=4), "format"),
    "a pickle of old": (lambda site: pickle.dumps(Runs(), protocol=0), "unknown-column missing-column"),
    "arrays of numpy": (lambda site: b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'shape': (1,)}", "format"),
    "HDF5": (lambda site: b"\x89HDF\r\n\x1a\n" + bytes(99), "format"),
    "an Arrow file": (lambda site: b"ARROW1\x00\x00" + bytes(99), "unknown-column missing-column"),
    "a picture": (lambda site: b"\x89PNG\r\n\x1a\n" + bytes(99), "format"),
    "a program": (lambda site: b"\x7fELF\x02\x01\x01" + bytes(99), "unknown-column missing-column"),
    "DICOM": (lambda site: bytes(128) + b"DICM" + bytes(99), "encoding"),
    "a PDF": (lambda site: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "encoding"),
    "a web page": (lambda site: b"<!doctype html><script>alert(1)</script>", "unknown-column missing-column"),
    "XML with an entity": (
        lambda site: b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        "unknown-column missing-column"),
    "YAML that makes objects": (
        lambda site: b"!!python/object/apply:os.system ['true']", "unknown-column missing-column"),
    "a script": (lambda site: b"#!/bin/sh\nexit 0\n", "unknown-column missing-column"),
    "Parquet behind JSON": (lambda site: good(site) + parquet(sound(site)), "format"),
    "JSON inside Parquet's marks": (lambda site: b"PAR1" + good(site) + b"PAR1", "table-syntax"),
    "a ZIP archive behind JSON": (lambda site: good(site) + zipped(good(site)), "format"),
    "odd but sound: a byte order mark": (lambda site: b"\xef\xbb\xbf" + good(site), ""),
    "odd but sound: gzip in members": (lambda site: gz(good(site)[:20]) + gz(good(site)[20:]), ""),
    "odd but sound: zstd": (lambda site: zst(good(site)), ""),
}  # fmt: skip

LARGE: dict[str, tuple[Callable[[Site], bytes], str]] = {
    "gzip of 600 MB of nothing": (lambda site: gz(b"\n" * (6 * MIB)) * 100, "expanded-size"),
    "gzip of 200 MB of lines": (lambda site: gz(good(site) * 50_000) * 60, "expanded-size"),
    "gzip of 4 GB of rows": (lambda site: gz(b"image_id,finding,x,y\n" + b"a,b,1,1\n" * MIB) * 512, "expanded-size"),
    "zstd of 512 MB of nothing": (lambda site: zst(bytes(512 * MIB)), "expanded-size"),
    "gzip in ten thousand members": (lambda site: gz(b"\n") * 10_000, "empty-file"),
    "larger than a file may be": (lambda site: bytes(96 * MIB + 1), "file-size"),
    "90 MB of nothing": (lambda site: bytes(90 * MIB), "encoding"),
    "90 MB in one line": (lambda site: b'{"image_id": "' + b"x" * (90 * MIB) + b'"}', "line-length"),
    "90 MB of quotation marks": (lambda site: b'{"image_id": "' + b'\\"' * (45 * MIB), "line-length"),
    "90 MB of brackets": (lambda site: b"[" * (90 * MIB), "containers"),
    "90 MB of one number": (lambda site: b"[" + b"9" * (90 * MIB) + b"]", f"number-size {TOO_LARGE}"),
    "90 MB of line ends": (lambda site: b"{" + b"\n" * (90 * MIB), "entries"),
    "8 MB of noise": (lambda site: random.Random(0).randbytes(8 * MIB), "format"),
    "16 million empty objects": (lambda site: b"[" + b"{}," * (16 * MIB) + b"{}]", "containers"),
    "a million columns": (
        lambda site: b",".join(b"%d" % i for i in range(1_000_000)) + b"\n" + b"1," * 999_999 + b"1\n",
        "line-length"),
    "40 MB of masks that are too long": (
        lambda site: site.fill(prediction(f'"rle": {{"size": [48, 64], "counts": "{"1" * 140_000}"}}')).encode() * 300,
        "duplicate-pair rle-overflow"),
    "a table of a hundred million rows": (rows_many, "entries"),
    "a table with a list of twenty million": (list_long, f"column-type {TOO_LARGE}"),
    "a text of 80 MB in a document": (lambda site: b'["' + b"x" * (80 * MIB) + b'"]', f"not-an-object {TOO_LARGE}"),
    "a text of 40 MB of escapes": (
        lambda site: b'["' + b"\\ud83d" * (7 * MIB) + b'"]', f"not-an-object {TOO_LARGE}"),
    "two million keys": (
        lambda site: b'{"a": {' + b",".join(b'"%d":{}' % i for i in range(1_900_000)) + b"}}",
        f"{TOO_LARGE} {BROKE_OFF}"),
}  # fmt: skip


def _made(table: dict[str, tuple[Callable[[Site], bytes], str]]) -> Iterator[Bad]:
    for name, (make, rules) in table.items():
        yield Bad(f"files: {name}", make, frozenset(rules.split()))


def _names() -> Iterator[Bad]:
    more = {"of nothing": "", "a dot file": ".htaccess", "a device": "/dev/stdin", "with NUL": "a\x00.jsonl"}
    for number, (name, text) in enumerate({**HOSTILE_TEXTS, **more}.items()):
        odd = number % 2 == 0
        content, rules = ('"cell": "A1"', "") if odd else ('"cell": "Z9"', "cell")
        make = lambda site, content=content, number=number: (  # noqa: E731
            site.fill(prediction(content)) + "\n" * number
        ).encode()
        yield Bad(f"file names: {name}", make, frozenset(rules.split()), "images", text)


WRAPPINGS = (*_made(MADE), *_names())
LARGE_WRAPPINGS = tuple(_made(LARGE))
