"""Metadata are cut out of picture files, and not one coded byte more."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from reveal_bench.kinds.images import PictureFile
from reveal_bench.sources.pictures import CLEANED, ORIGINAL, develop, without_metadata
from tests.conftest import ROOT

SECRET = b"DOE^JANE 1950-02-03"


def film() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 32), np.uint8))


def encoded(form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    film().save(buffer, form, **options)
    return buffer.getvalue()


def with_text() -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_text("Patient", SECRET.decode())
    info.add_itxt("More", SECRET.decode(), zip=False)
    return info


def exif() -> Image.Exif:
    made = Image.Exif()
    made[0x010E] = SECRET.decode()
    return made


DIRTY = {
    "comment": encoded("JPEG", comment=SECRET),
    "exif": encoded("JPEG", exif=exif()),
    "exif of a PNG": encoded("PNG", exif=exif()),
    "after the end of a JPEG": encoded("JPEG") + SECRET,
    "after the end of a PNG": encoded("PNG") + SECRET,
    "text": encoded("PNG", pnginfo=with_text()),
    "progressive": encoded("JPEG", progressive=True, comment=SECRET),
    "xmp": encoded("JPEG", xmp=SECRET),
}


@pytest.mark.parametrize("name", DIRTY)
def test_metadata_go_and_pixels_stay(name: str) -> None:
    data = DIRTY[name]
    assert SECRET in data
    clean = without_metadata(data)
    assert SECRET not in clean
    before, after = (np.asarray(Image.open(io.BytesIO(file))) for file in (data, clean))
    assert np.array_equal(before, after)
    assert without_metadata(clean) == clean


@pytest.mark.parametrize(
    "data",
    [
        encoded("JPEG"),
        encoded("JPEG", progressive=True, quality=95, restart_marker_blocks=1),
        encoded("PNG"),
        encoded("JPEG", icc_profile=b"profile" * 9),
        b"GIF89a is passed on",
        b"",
    ],
    ids=["jpeg", "progressive with restarts", "png", "profile", "gif", "empty"],
)
def test_files_without_metadata_come_back_byte_for_byte(data: bytes) -> None:
    assert without_metadata(data) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encoded("JPEG")[:300], "a broken JPEG file"),
        (b"\xff\xd8\xff", "a broken JPEG file"),
        (encoded("JPEG")[:2] + b"\xff\xe1\x00\x01" + encoded("JPEG")[2:], "a segment of 1 bytes at byte 2"),
        (encoded("PNG")[:60], "a broken PNG file: a chunk of"),
        (encoded("PNG")[:8], "a broken PNG file"),
    ],
)
def test_broken_files(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        without_metadata(data)


def test_published_file_has_no_metadata(tmp_path: Path) -> None:
    for name, data in {"clean": encoded("JPEG"), "dirty": DIRTY["exif"]}.items():
        (tmp_path / name).write_bytes(data)
    clean, dirty = (develop(PictureFile(tmp_path / name, f"{name}.jpg", name)) for name in ("clean", "dirty"))
    assert (clean.pipeline, dirty.pipeline) == (ORIGINAL, CLEANED)
    assert clean.data == (tmp_path / "clean").read_bytes()
    assert dirty.data is not None
    assert SECRET not in dirty.data
    assert (dirty.pixel_sha256, dirty.data) == (clean.pixel_sha256, clean.data)
    assert dirty.source_sha256 != clean.source_sha256


@pytest.mark.skipif(not (ROOT.parent / "shared" / "data" / "nih").is_dir(), reason="needs ../shared/data")
def test_real_radiographs_keep_their_pixels() -> None:
    for path in sorted((ROOT.parent / "shared" / "data" / "nih").glob("*.png")):
        data = path.read_bytes()
        before, after = (np.asarray(Image.open(io.BytesIO(file))) for file in (data, without_metadata(data)))
        assert before.size > 0
        assert np.array_equal(before, after)
