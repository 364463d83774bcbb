"""Image files: reading of sizes and pixels, removal of metadata, and the bytes and hashes that are published.

:func:`develop` is the only function that makes published bytes from a :class:`reveal_bench.kinds.images.PictureFile`.
JPEG and 8-bit PNG files are published without their metadata and otherwise unchanged, DICOM files are converted by
:mod:`reveal_bench.dicom`, and 16-bit grey PNG files become 8-bit PNG files. The hash of the pixels is the sha256 of the
published 8-bit grey values, row by row, as Pillow decodes them.

Metadata (EXIF, comments, text chunks, thumbnails, and any bytes after the end marker) can contain names, dates and
paths. They are removed without changing the coded pixels, so a file without metadata stays the same, byte for byte. A
JPEG keeps the segments that decoding needs (JFIF and Adobe headers, ICC profile, tables, scans); a PNG keeps the
critical chunks and those that change how pixels are shown.

Sources: ITU T.81 (JPEG markers), W3C PNG third edition (chunks).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reveal_bench.dicom.contrast import contrast_fault, counts_within_border
from reveal_bench.dicom.files import DicomFile
from reveal_bench.kinds.images import MOST_PIXELS, PictureFile, PublishedPicture

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg")
"""Suffixes of PNG and JPEG files, in lower case."""

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
GREY_OF_16_BITS = b"\x10\x00"
"""Bytes 24 and 25 of a 16-bit grey PNG file: its bit depth and colour type."""
_ORIENTATION = 0x0112  # EXIF
_PNG_KEPT = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"sBIT", b"bKGD", b"pHYs"}
_JPEG_KEPT_APP = {0xE0: (b"JFIF\0",), 0xE2: (b"ICC_PROFILE\0",), 0xEE: (b"Adobe",)}
"""JPEG's APPn markers that are kept, if their contents begin with these bytes."""


def without_metadata(data: bytes) -> bytes:
    """Return `data` without metadata if it is a JPEG or PNG file, and unchanged if it is anything else.

    Raises
    ------
    ValueError
        If the file's structure is broken; the message does not name the file.

    Examples
    --------
    >>> tables = bytes.fromhex("ffdb0004abcd")
    >>> comment = bytes.fromhex("fffe0007") + b"Doe J"
    >>> end = bytes.fromhex("ffda0002") + b"scan" + bytes.fromhex("ffd9")
    >>> start = bytes.fromhex("ffd8")
    >>> without_metadata(start + comment + tables + end + b"tail") == start + tables + end
    True
    """
    if data.startswith(_JPEG):
        return _jpeg(data)
    if data.startswith(_PNG):
        return _png(data)
    return data


def _jpeg(data: bytes) -> bytes:
    segments = [data[:2]]
    place, n_scans = 2, 0
    while True:
        if data[place : place + 1] != b"\xff" or place + 1 >= len(data):
            raise ValueError(f"a broken JPEG file: no marker at byte {place:,}")
        marker = data[place + 1]
        if marker == 0xFF:  # fill byte
            place += 1
            continue
        if marker == 0xD9:
            segments.append(b"\xff\xd9")
            return b"".join(segments)
        length = int.from_bytes(data[place + 2 : place + 4], "big")
        end = place + 2 + length
        if length < 2 or end > len(data):
            raise ValueError(f"a broken JPEG file: a segment of {length:,} bytes at byte {place:,}")
        if marker == 0xDA:
            end = _end_of_scan(data, end)
            n_scans += 1
            if n_scans > _MOST_SCANS:
                raise ValueError(f"a JPEG file of more than {_MOST_SCANS} scans")
        if not _is_metadata(marker, data[place + 4 : end]):
            segments.append(data[place:end])
        place = end


def _is_metadata(marker: int, content: bytes) -> bool:
    if marker == 0xFE:
        return True
    if not 0xE0 <= marker <= 0xEF:
        return False
    return not content.startswith(_JPEG_KEPT_APP.get(marker, ()))


def _end_of_scan(data: bytes, place: int) -> int:
    """Return the position of the marker that ends the coded data, skipping stuffed bytes and restart markers."""
    while (place := data.find(b"\xff", place)) >= 0 and place + 1 < len(data):
        follower = data[place + 1]
        if follower != 0 and not 0xD0 <= follower <= 0xD7:
            return place
        place += 2
    raise ValueError("a broken JPEG file: the coded data do not end")


def _png(data: bytes) -> bytes:
    chunks = [_PNG]
    place = len(_PNG)
    while True:
        length, kind = int.from_bytes(data[place : place + 4], "big"), data[place + 4 : place + 8]
        end = place + 12 + length
        if len(kind) < 4 or end > len(data):
            raise ValueError(f"a broken PNG file: a chunk of {length:,} bytes at byte {place:,}")
        if kind in _PNG_KEPT:
            chunks.append(data[place:end])
        if kind == b"IEND":
            return b"".join(chunks)
        place = end


ORIGINAL = "original bytes"
"""`pixel_pipeline` of a picture whose file is published unchanged."""
CLEANED = "original pixels: metadata cut out of the file, coded data unchanged"
"""`pixel_pipeline` of a picture whose metadata were removed from the file."""
PNG16 = "png16-v1: 16-bit PNG, [lowest, highest] value of the picture -> [0, 255] linearly, rounded half to even"
"""`pixel_pipeline` of a 16-bit PNG file."""
FORMATS = ("JPEG", "PNG")
"""The only formats that are opened, whatever the suffix of a file: some of Pillow's readers start other programs."""
_MOST_SCANS = 100  # in a JPEG file; each takes as long as decoding the whole picture, and encoders write at most ten


def develop(picture: PictureFile) -> PublishedPicture:
    """Return the published version of a picture: its bytes, size, hashes and pipeline.

    Raises
    ------
    ValueError
        If the picture cannot be read to the end; the message does not name the file.
    """
    file = DicomFile(picture.path, picture.member)
    if picture.kind == "dicom":
        from reveal_bench.dicom import develop_dicom

        dicom = develop_dicom(file)
        return PublishedPicture(
            dicom.data,
            picture.name,
            dicom.size,
            dicom.source_sha256,
            dicom.pixel_sha256,
            dicom.pipeline,
            dicom.warnings,
            dicom.fault,
        )
    data = file.read()
    if picture.kind == "png16" or (data.startswith(_PNG) and data[24:26] == GREY_OF_16_BITS):
        return _from_png16(picture, data)
    _check_upright_bytes(data)
    published = without_metadata(data)
    grey = _decode(published, picture.path)
    pipeline = ORIGINAL if published == data else CLEANED
    source_sha256 = hashlib.sha256(data).hexdigest()
    return _published(published, picture, grey, source_sha256, pipeline)


def film_fault(picture: PictureFile) -> str:
    """Return why a picture cannot be read or shows nothing; "" if :func:`develop` gives a picture without a fault."""
    try:
        if picture.kind != "dicom":
            return develop(picture).fault
        from reveal_bench.dicom.pixels import read_pixels

        return read_pixels(DicomFile(picture.path, picture.member).read()).choice.fault  # without writing a PNG
    except ValueError as error:
        return str(error)


def _published(
    data: bytes, picture: PictureFile, grey: npt.NDArray[np.uint8], source_sha256: str, pipeline: str
) -> PublishedPicture:
    """Return the published version of a picture without display settings, from its grey levels."""
    size, pixels = (grey.shape[0], grey.shape[1]), hashlib.sha256(grey.data).hexdigest()
    fault = contrast_fault(counts_within_border(grey))
    return PublishedPicture(data, picture.name, size, source_sha256, pixels, pipeline, fault=fault)


def _check_upright(image: Image) -> None:
    """Raise ValueError if the EXIF orientation of a picture rotates or mirrors its pixels.

    The orientation is not published, and coordinates refer to the pixels as stored.
    """
    if image.format == "PNG" and "exif" not in image.info:
        return  # Pillow would decode the pixels to look for metadata behind them
    turned = image.getexif().get(_ORIENTATION, 1)
    if turned != 1:
        raise ValueError(
            f"rotated by its metadata (EXIF orientation {turned}): rotate the pixels themselves and save the file"
        )


def _check_upright_bytes(data: bytes) -> None:
    """Raise ValueError if :func:`_check_upright` does; a damaged file passes, because decoding rejects it later."""
    from PIL import Image

    with suppress(OSError, SyntaxError, Image.DecompressionBombError), open_picture(io.BytesIO(data)) as image:
        _check_upright(image)


def picture_size(path: Path) -> tuple[int, int]:
    """Return (height, width) from the header, without decoding.

    Raises
    ------
    ValueError
        If the file is not a picture, or its metadata rotate it; the message does not name the file.
    """
    from PIL import Image

    try:
        with open_picture(path) as image:
            _check_upright(image)
            return image.height, image.width
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, path)) from None


@contextmanager
def open_picture(file: Path | IO[bytes]) -> Iterator[Image]:
    """Open a PNG or JPEG file.

    Raises
    ------
    ValueError
        If the picture has more pixels than :data:`reveal_bench.kinds.images.MOST_PIXELS`.
    OSError, SyntaxError, PIL.Image.DecompressionBombError
        If the file is neither PNG nor JPEG, or damaged.
    """
    from PIL import Image

    with Image.open(file, formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels; at most {MOST_PIXELS:,} are read")
        yield image


def _decode(data: bytes, path: Path) -> npt.NDArray[np.uint8]:
    """Return the 8-bit grey levels (height, width) of a completely decoded picture."""
    from PIL import Image

    try:
        with open_picture(io.BytesIO(data)) as image:
            return np.asarray(image.convert("L"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, path)) from None


def grey_of_16_bits(image: Image) -> npt.NDArray[np.uint8]:
    """Return the pixels of a 16-bit picture as 8-bit array (height, width).

    The lowest value of the picture becomes 0, the highest 255.
    """
    values = np.asarray(image)
    low, high = int(values.min()), int(values.max())
    every_grey: npt.NDArray[np.uint8] = np.rint(np.arange(high - low + 1) * (255 / max(high - low, 1))).astype(np.uint8)
    grey: npt.NDArray[np.uint8] = every_grey[values - values.dtype.type(low)]
    return grey


def _from_png16(picture: PictureFile, data: bytes) -> PublishedPicture:
    from PIL import Image

    try:
        with open_picture(io.BytesIO(data)) as image:
            if not image.mode.startswith("I"):
                raise ValueError(f"a picture of mode {image.mode} instead of 16-bit grey")
            grey = grey_of_16_bits(image)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, picture.path)) from None
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG", compress_level=1)
    return _published(buffer.getvalue(), picture, grey, hashlib.sha256(data).hexdigest(), PNG16)


def _reason(error: Exception, path: Path) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    return str(error).replace(str(path), path.name) or type(error).__name__
