"""Finds a secret wherever it was put, and in whatever dress.

A secret text is looked for as it is, in capitals, in hexadecimal digits, in base64 at each of its three places in a
group, percent-encoded, as UTF-16 and as JSON escapes; a secret number as text with eight digits or more, as a percentage,
and as the eight bytes of a double. What is packed is unpacked first: gzip, zlib, zip (NumPy's .npz too), Parquet.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

MOST_UNPACKED = 64 << 20


@dataclass(frozen=True, order=True)
class Leak:
    """A secret that was found: which, in what dress, where, and what stands round it."""

    secret: str
    dress: str
    place: str
    around: str


def dresses(secret: str | bytes) -> dict[str, bytes]:
    """Name -> bytes of every form of a text, or of raw bytes."""
    plain = secret.encode() if isinstance(secret, str) else secret
    found = {"plain": plain, "hex": plain.hex().encode(), "HEX": plain.hex().upper().encode()}
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + plain)
        # characters that hold bits of what stands before or after are left out
        inner = whole[[0, 2, 3][shift] : len(whole) - [0, 3, 2][(len(plain) + shift) % 3] - (whole[-1:] == b"=") * 0]
        found[f"base64 at {shift}"] = inner.rstrip(b"=")
        found[f"base64url at {shift}"] = found[f"base64 at {shift}"].translate(bytes.maketrans(b"+/", b"-_"))
    found["percent-encoded"] = "".join(f"%{byte:02X}" for byte in plain).encode()
    found["percent-encoded, small"] = found["percent-encoded"].lower()
    if isinstance(secret, str):
        found |= {
            "capitals": secret.upper().encode(),
            "small": secret.lower().encode(),
            "quoted": quote(secret, safe="").encode(),
            "UTF-16": secret.encode("utf-16-le"),
            "UTF-16, high byte first": secret.encode("utf-16-be"),
            "JSON string": json.dumps(secret)[1:-1].encode(),
            "JSON escapes": "".join(f"\\u{ord(c):04x}" for c in secret).encode(),
            "HTML numbers": "".join(f"&#{ord(c)};" for c in secret).encode(),
        }
    return found


def number_dresses(value: float) -> dict[str, bytes]:
    """Name -> bytes of every form of an exact figure in (0, 1)."""
    digits = f"{value:.17f}"
    per_cent = f"{100 * value:.15f}"
    return {
        "decimals": digits[1:10].encode(),  # .46491228
        "per cent": b"" if 100 * value < 10 else per_cent[:9].encode(),  # 46.491228
        "double": struct.pack("<d", value),
        "double, high byte first": struct.pack(">d", value),
    }


def is_telling(value: float) -> bool:
    """Whether a figure can be known again: in (0, 1), and no fraction that others write down too, such as 1/3."""
    return 0.001 < value < 0.999 and all(abs(value * n - round(value * n)) > 1e-6 for n in range(1, 26))


class Search:
    """A search for many secrets at once."""

    def __init__(self, texts: Mapping[str, str | bytes], numbers: Iterable[float] = ()) -> None:
        self._wanted: dict[bytes, tuple[str, str]] = {}
        for name, secret in texts.items():
            for dress, form in dresses(secret).items():
                self._wanted.setdefault(form, (name, dress))
        for value in {value for value in numbers if is_telling(value)}:
            for dress, form in number_dresses(value).items():
                if form:
                    self._wanted.setdefault(form, (f"exact figure {value!r}", dress))

    def __len__(self) -> int:
        return len(self._wanted)

    def within(self, data: bytes, place: str) -> list[Leak]:
        """Every secret in `data` or in what it unpacks to."""
        found = []
        for layer, content in unpacked(data, place):
            for form, (name, dress) in self._wanted.items():
                at = content.find(form)
                if at >= 0:
                    around = content[max(at - 40, 0) : at + len(form) + 40].decode("utf-8", "backslashreplace")
                    found.append(Leak(name, dress, layer, around))
        return found

    def within_folder(self, folder: Path, *, besides: Iterable[Path] = ()) -> list[Leak]:
        """Every secret in the names and contents of the files below `folder`, those below `besides` left out."""
        left_out = [place.resolve() for place in besides]
        found = []
        for path in sorted(folder.rglob("*")):
            if any(path.resolve().is_relative_to(place) for place in left_out):
                continue
            name = path.relative_to(folder).as_posix()
            found += self.within(name.encode(), f"name of {name}")
            if path.is_file():
                found += self.within(path.read_bytes(), name)
        return found


def unpacked(data: bytes, place: str, depth: int = 3) -> Iterator[tuple[str, bytes]]:
    """(place, bytes) of `data` itself and of all that it holds, down to `depth`."""
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
