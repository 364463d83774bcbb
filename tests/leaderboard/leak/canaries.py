"""Search for secrets in any data and in many encodings.

Secret texts are searched for as they are, in capitals, in hexadecimal digits, in base64 at each of the three offsets in
a group, percent-encoded, as UTF-16 and as JSON escapes; secret numbers as text with nine digits, also in per cent, and
as the eight bytes of a double. Packed data are unpacked first: gzip, zlib, zip (also NumPy's .npz), Parquet.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MOST_UNPACKED = 64 << 20
DECIMALS = re.compile(rb"\.(\d{9})")
PER_CENT = re.compile(rb"(?<![\d.])(?<!\d:)(\d\d)\.(\d{7})")  # but not seconds after minutes


@dataclass(frozen=True, order=True)
class Leak:
    """A leaked secret: its name, form, location and context."""

    secret: str
    dress: str
    place: str
    around: str


def dresses(secret: str | bytes) -> dict[str, bytes]:
    """Return encoding -> bytes for every encoding of a text or of raw bytes."""
    plain = secret.encode() if isinstance(secret, str) else secret
    forms = {"plain": plain, "hex": plain.hex().encode(), "HEX": plain.hex().upper().encode()}
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + plain)
        # characters with bits of their neighbours are left out
        stop = len(whole) - (0, 3, 2)[(shift + len(plain)) % 3]
        forms[f"base64 at {shift}"] = whole[(0, 2, 3)[shift] : stop]
        forms[f"base64url at {shift}"] = forms[f"base64 at {shift}"].translate(bytes.maketrans(b"+/", b"-_"))
    forms["percent-encoded"] = "".join(f"%{byte:02X}" for byte in plain).encode()
    forms["percent-encoded, small"] = forms["percent-encoded"].lower()
    if isinstance(secret, str):
        forms |= {
            "capitals": secret.upper().encode(),
            "small": secret.lower().encode(),
            "quoted": quote(secret, safe="").encode(),
            "UTF-16": secret.encode("utf-16-le"),
            "UTF-16, high byte first": secret.encode("utf-16-be"),
            "JSON string": json.dumps(secret)[1:-1].encode(),
            "JSON escapes": "".join(f"\\u{ord(c):04x}" for c in secret).encode(),
            "HTML numbers": "".join(f"&#{ord(c)};" for c in secret).encode(),
        }
    return forms


def is_telling(value: float) -> bool:
    """Return True if a figure is recognisable: in (0, 1), and not a common one such as 1/3 or 0.98."""
    return 0.001 < value < 0.999 and all(abs(value * n - round(value * n)) > 1e-6 for n in (*range(1, 26), 100))


class Search:
    """A combined search for many secrets.

    Parameters
    ----------
    texts : name -> text or raw bytes
    numbers : exact scores; common numbers are skipped
    """

    def __init__(self, texts: Mapping[str, str | bytes], numbers: Iterable[float] = ()) -> None:
        self._forms = {form: (name, dress) for name, secret in texts.items() for dress, form in dresses(secret).items()}
        telling = [value for value in numbers if is_telling(value)]
        self._decimals = {form: v for v in telling for form in (f"{v:.9f}"[2:].encode(), f"{v:.17f}"[2:11].encode())}
        self._per_cent = {form: v for v in telling for form in _in_per_cent(v)}
        doubles = np.unique(np.array(telling, "<f8").view("<u8"))
        # 11/64 and similar are mostly zero bytes, like database pages: search for them only as decimals
        self._doubles = doubles[(doubles & np.uint64(0xFFFF_FFFF)) != 0]
        self.n_numbers = len(self._doubles)

    def within(self, data: bytes, place: str) -> list[Leak]:
        """Return all secrets in `data` and in its unpacked content."""
        return [leak for layer, content in unpacked(data, place) for leak in self._within(content, layer)]

    def texts_within(self, data: bytes, place: str, *, only: Collection[str] = ()) -> Iterator[Leak]:
        """Yield every secret text in `data`, only in the forms `only` if there are any."""
        for form, (name, dress) in self._forms.items():
            if only and dress not in only:
                continue
            at = data.find(form)
            if at >= 0:
                yield Leak(name, dress, place, _around(data, at, len(form)))

    def _within(self, data: bytes, place: str) -> Iterator[Leak]:
        yield from self.texts_within(data, place)
        for pattern, known, dress in ((DECIMALS, self._decimals, "decimals"), (PER_CENT, self._per_cent, "per cent")):
            for match in pattern.finditer(data):
                value = known.get(match[0].lstrip(b"."))
                if value is not None:
                    yield Leak(f"exact figure {value!r}", dress, place, _around(data, match.start(), 12))
        for at, value in self._doubles_in(data):
            yield Leak(f"exact figure {value!r}", "double", place, f"byte {at}")

    def _doubles_in(self, data: bytes) -> Iterator[tuple[int, float]]:
        if not len(self._doubles):
            return
        for shift in range(min(8, max(len(data) - 7, 0))):
            for order in ("<", ">"):
                words = np.frombuffer(data, f"{order}u8", offset=shift, count=(len(data) - shift) // 8)
                exponents = words >> np.uint64(52)
                likely = np.flatnonzero((exponents >= 0x3F5) & (exponents <= 0x3FE))  # 2**-10 to 1
                nearest = np.searchsorted(self._doubles[:-1], words[likely])  # already sorted; np.isin would sort again
                for i in likely[self._doubles[nearest] == words[likely]].tolist():
                    yield shift + 8 * i, struct.unpack_from(f"{order}d", data, shift + 8 * i)[0]

    def within_folder(self, folder: Path, *, besides: Iterable[Path] = ()) -> list[Leak]:
        """Return all secrets in names and contents of files below `folder`, except those below `besides`."""
        left_out = [place.resolve() for place in besides]
        leaks = []
        for path in sorted(folder.rglob("*")):
            if any(path.resolve().is_relative_to(place) for place in left_out):
                continue
            name = path.relative_to(folder).as_posix()
            leaks += self.within(name.encode(), f"name of {name}")
            if path.is_file():
                leaks += self.within(path.read_bytes(), name)
        return leaks


def _in_per_cent(value: float) -> set[bytes]:
    return {f"{100 * value:.{n}f}".zfill(n + 3)[:10].encode() for n in (7, 14)}


def _around(data: bytes, at: int, length: int) -> str:
    return data[max(at - 40, 0) : at + length + 40].decode("utf-8", "backslashreplace")


def unpacked(data: bytes, place: str, depth: int = 3) -> Iterator[tuple[str, bytes]]:
    """Yield (place, bytes) for `data` itself and for everything packed in it, down to `depth`."""
    yield place, data
    if depth == 0:
        return
    if data[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            yield from unpacked(file.read(MOST_UNPACKED), f"{place} (gzip)", depth - 1)
    elif data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield from unpacked(archive.read(member), f"{place}:{member}", depth - 1)
    elif data[:4] == b"PAR1" and data[-4:] == b"PAR1":
        yield from _parquet(data, place)
    elif data[:1] == b"\x78":
        try:
            yield from unpacked(zlib.decompress(data), f"{place} (zlib)", depth - 1)
        except zlib.error:
            return


def _parquet(data: bytes, place: str) -> Iterator[tuple[str, bytes]]:
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError):
        return
    yield f"{place} (rows)", json.dumps(table.to_pylist(), default=repr).encode()
    for name in table.column_names:
        if table.schema.field(name).type == pa.float64():
            values = table[name].drop_null().to_pylist()
            yield f"{place} (numbers of {name})", b"".join(struct.pack("<d", value) for value in values)
