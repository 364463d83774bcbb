"""The search itself finds hidden secrets in every form."""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.leaderboard.leak.canaries import Search, is_telling

SECRET = "qvzkwjxhpatient"
FIGURE = 0.46491228070175439
SEARCH = Search({"patient": SECRET, "salt": bytes(range(200, 232))}, [FIGURE])


def parquet(**columns: list[object]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    return buffer.getvalue()


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a member", data)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, values=np.array([0.5, FIGURE]))
    return buffer.getvalue()


HIDDEN: dict[str, tuple[bytes, str]] = {
    "plain": (b"KeyError: 'qvzkwjxhpatient0007'", "patient"),
    "capitals": (b"QVZKWJXHPATIENT", "patient"),
    "hexadecimal": (SECRET.encode().hex().encode(), "patient"),
    "base64 from the start": (base64.b64encode(SECRET.encode() + b"-and-more"), "patient"),
    "base64 after one": (base64.b64encode(b"x" + SECRET.encode() + b"yz"), "patient"),
    "base64 after two": (base64.b64encode(b"xy" + SECRET.encode() + b"z"), "patient"),
    "base64 after four": (base64.b64encode(b"xyzx" + SECRET.encode()), "patient"),
    "percent": ("".join(f"%{ord(c):02x}" for c in SECRET).encode(), "patient"),
    "UTF-16": (SECRET.encode("utf-16"), "patient"),
    "JSON escapes": ("".join(f"\\u{ord(c):04x}" for c in SECRET).encode(), "patient"),
    "HTML numbers": ("".join(f"&#{ord(c)};" for c in SECRET).encode(), "patient"),
    "gzip": (gzip.compress(b"before " + SECRET.encode()), "patient"),
    "zlib": (zlib.compress(SECRET.encode()), "patient"),
    "zip in gzip": (gzip.compress(zipped(SECRET.encode())), "patient"),
    "Parquet": (parquet(who=["a", SECRET]), "patient"),
    "raw bytes": (b"..." + bytes(range(200, 232)) + b"...", "salt"),
    "raw bytes in hexadecimal": (bytes(range(200, 232)).hex().encode(), "salt"),
    "a figure": (json.dumps({"f1": FIGURE}).encode(), "exact figure"),
    "a figure at nine digits": (b"F1 0.464912281", "exact figure"),
    "a figure in per cent": (b"46.4912281%", "exact figure"),
    "a double": (b"\0\1" + struct.pack("<d", FIGURE), "exact figure"),
    "a double in an array": (npz(), "exact figure"),
    "a double in Parquet": (parquet(f1=[0.5, FIGURE]), "exact figure"),
}


@pytest.mark.parametrize("how", list(HIDDEN))
def test_secret_is_detected(how: str) -> None:
    data, secret = HIDDEN[how]
    assert [leak for leak in SEARCH.within(data, "here") if leak.secret.startswith(secret)]


@pytest.mark.parametrize("data", [b"", b"0.46", b"0.4649", b"qvzkwjxhpatien", b"PAR1 no table PAR1", b"\x78 no zlib"])
def test_common_numbers_are_skipped(data: bytes) -> None:
    assert SEARCH.within(data, "here") == []


def test_file_names_are_searched_except_in_excluded_folders(tmp_path: Path) -> None:
    for folder in ("shown", "private"):
        (tmp_path / folder / f"of-{SECRET}").mkdir(parents=True)
        (tmp_path / folder / f"of-{SECRET}" / "a.txt").write_text("46.4912281")
    leaks = SEARCH.within_folder(tmp_path, besides=[tmp_path / "private"])
    assert {(leak.secret.split()[0], leak.place) for leak in leaks} == {
        ("patient", f"name of shown/of-{SECRET}"),
        ("patient", f"name of shown/of-{SECRET}/a.txt"),
        ("exact", f"shown/of-{SECRET}/a.txt"),
    }


@pytest.mark.parametrize(
    ("value", "expected"), [(FIGURE, True), (1 / 3, False), (7 / 12, False), (0.98, False), (0.0, False)]
)
def test_common_fraction_is_not_secret(value: float, expected: bool) -> None:
    assert is_telling(value) == expected
