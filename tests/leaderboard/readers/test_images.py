"""Pixels for the browser: the picture that the pixel pipeline develops is the one that a reader starts with."""

from __future__ import annotations

import base64
import gzip
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from reveal_leaderboard.readers.images import ImageCache, ImageError, packed, read_image
from reveal_leaderboard.readers.store import ItemImage

from reveal_bench.dicom import develop_dicom
from reveal_bench.dicom.write import write_dicom
from tests.leaderboard.readers.reading_world import Pool


def as_a_browser_shows(values: npt.NDArray[np.uint16], facts: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Greys by the formulas of DICOM PS3.3 C.11.2.1, value by value."""
    table = np.zeros(1 << 16)
    start = base64.b64decode(facts["table"]) if facts["table"] else None
    center, width, kind = (facts["window"][name] for name in ("center", "width", "function"))
    for value in np.unique(values):
        x = facts["slope"] * float(value) + facts["intercept"]
        if start is not None:
            grey = float(start[value])
        elif kind == "SIGMOID":
            exponent = min(-4 * (x - center) / width, 700.0)  # exp(710) is too large for a float
            grey = 255 / (1 + math.exp(exponent))
        elif kind == "LINEAR" and width == 1:
            grey = 255 * (x > center - 0.5)
        elif kind == "LINEAR":
            grey = 255 * min(1, max(0, (x - (center - 0.5)) / (width - 1) + 0.5))
        else:
            grey = 255 * min(1, max(0, (x - center) / width + 0.5))
        table[value] = 255 - grey if facts["invert"] else grey
    return table[values]


def test_every_film_starts_as_the_pixel_pipeline_develops_it(pool: Pool) -> None:
    depths = set()
    for study in pool.truth:
        for path in pool.files_of(study):
            picture = read_image(path.read_bytes())
            with Image.open(io.BytesIO(develop_dicom(path).data)) as image:
                developed = np.asarray(image).astype(float)
            assert np.abs(as_a_browser_shows(picture.values, picture.facts) - developed).max() <= 1
            depths.add(len(np.unique(picture.values)) > 256)
    assert depths == {True}  # nothing was brought down to 8 bits


GOOD = {"WindowCenter": "1500", "WindowWidth": "1200"}
OFF = {"WindowCenter": "60000", "WindowWidth": "10"}
NOTES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "good": (GOOD, []),
    "no window": ({}, ["The file has no usable display window"]),
    "no width": (
        {**GOOD, "WindowWidth": "0"},
        ["A display window of the file is unusable", "The file has no usable display window"],
    ),
    "far window": (OFF, ["The file's window shows too little: full range shown"]),
    "far window, 16 bits": (
        {**OFF, "BitsStored": 16, "HighBit": 15},
        ["The file's window shows too little: opened at the image's own range"],
    ),
    "for processing": (
        {**GOOD, "PresentationIntentType": "FOR PROCESSING"},
        ["Raw detector image, not processed for reading"],
    ),
    "inversion": (
        {**GOOD, "PresentationLUTShape": "INVERSE"},
        ["The file contradicts itself on black and white: check, invert if wrong"],
    ),
    "slope alone": ({**GOOD, "RescaleSlope": "2"}, ["Incomplete scale of values in the file: pixel values as stored"]),
    "high bit": ({**GOOD, "HighBit": None}, ["Incomplete pixel format in the file: usual format assumed"]),
    "ten bits": (
        {**GOOD, "BitsStored": 10, "HighBit": 9},
        ["Some pixels exceed the file's bit depth: their grey may be wrong"],
    ),
}


@pytest.mark.parametrize("name", NOTES)
def test_display_warning_becomes_a_note_for_readers(name: str, tmp_path: Path) -> None:
    attributes, notes = NOTES[name]
    ramp = np.tile(1000 + 10 * np.arange(100, dtype=np.uint16), (50, 1))
    write_dicom(tmp_path / "ramp.dcm", ramp, attributes, bits_stored=12)
    assert read_image((tmp_path / "ramp.dcm").read_bytes()).facts["notes"] == notes


def test_the_wire_gives_back_every_value() -> None:
    values = np.random.default_rng(1).integers(0, 1 << 16, (7, 9)).astype(np.uint16)
    planes = np.frombuffer(gzip.decompress(packed(values)), np.uint8).reshape(2, 7, 9).astype(np.int64)
    assert (np.cumsum((planes[0] << 8) + planes[1], axis=1) % (1 << 16) == values).all()


def test_plain_pictures_keep_their_depth_and_lose_their_metadata() -> None:
    deep = (np.arange(12, dtype=np.uint16) * 5000).reshape(3, 4)
    file = io.BytesIO()
    Image.fromarray(deep).save(file, "PNG")
    picture = read_image(file.getvalue())
    assert (picture.values == deep).all()
    assert picture.facts["window"] == {"center": 32767.5, "width": 65535.0, "function": "LINEAR_EXACT"}
    colour = io.BytesIO()
    Image.new("RGB", (2, 2), (255, 0, 0)).save(colour, "JPEG", comment=b"Jane Doe", quality=95)
    red = read_image(colour.getvalue())
    assert abs(int(red.values[0, 0]) - 76) <= 2  # 0.299 x 255, ITU-R 601
    assert b"Jane" not in gzip.decompress(packed(red.values))
    assert "Jane" not in str(red.facts)


def turned() -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (2, 3)).save(file, "JPEG", exif=exif)
    return file.getvalue()


BAD = {
    "nothing": (b"", "not a DICOM, PNG or JPEG"),
    "text": (b"hello " * 50, "not a DICOM, PNG or JPEG"),
    "cut png": (b"\x89PNG\r\n\x1a\n" + b"\0" * 20, "cannot be read"),
    "cut jpeg": (b"\xff\xd8\xff\xe0", "cannot be read"),
    "on its side": (turned(), "marked as rotated"),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_what_is_no_picture_is_said_to_be_none(what: str) -> None:
    data, message = BAD[what]
    with pytest.raises(ImageError, match=message):
        read_image(data)


def test_a_cut_dicom_file_is_refused(pool: Pool) -> None:
    whole = next(path for study in pool.truth for path in pool.files_of(study)).read_bytes()
    with pytest.raises(ImageError, match=r"truncated|cut off|no integer pixel|cannot be"):
        read_image(whole[: len(whole) // 2])


def test_nothing_outside_the_root_is_opened(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "root" / "link.png").symlink_to(tmp_path / "secret.png")
    images = ImageCache(tmp_path / "root")
    for name in ("../secret.png", "link.png"):
        with pytest.raises(ImageError, match="outside"):
            images.get(ItemImage(name, None, "PA"))
    with pytest.raises(ImageError, match="no such file"):
        images.get(ItemImage("none.png", None, "PA"))
