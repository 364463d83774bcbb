"""Picture files: size from the header, hashes, decoded pixels; and what is published of them.

:func:`develop` is the one way from a :class:`reveal_bench.records.PictureFile` to published bytes: JPEG and 8-bit PNG
pass unchanged, DICOM goes through the pipeline of :mod:`reveal_bench.dicom`, PNG of 16 bits becomes one of 8. The hash
of the pixels is sha256 over the published 8-bit grey values, row by row, as Pillow decodes them.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from reveal_bench.records import PictureFile

__all__ = ["ORIGINAL", "PNG16", "Developed", "Picture", "develop", "picture_size", "read_picture"]

ORIGINAL = "original bytes"
"""`pixel_pipeline` of a picture whose file bytes are published as they are."""
PNG16 = "png16-v1: 16-bit PNG, [lowest, highest] value of the picture -> [0, 255] linearly, rounded half to even"
"""`pixel_pipeline` of a picture of 16 bits."""
MEMBER_BYTES = 256 << 20
"""Largest picture that is read from an archive."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file: its bytes, size (height, width), and the sha256 of file and pixels."""

    data: bytes = field(repr=False)
    size: tuple[int, int]
    source_sha256: str
    pixel_sha256: str


@dataclass(frozen=True, slots=True)
class Developed:
    """A picture as it is published.

    Attributes
    ----------
    data : file bytes, or None when pixels are withheld
    name : bare file name
    size : (height, width)
    source_sha256, pixel_sha256 : of the source's file, and of the published grey values
    pipeline : how the pixels were made
    """

    data: bytes | None = field(repr=False)
    name: str
    size: tuple[int, int]
    source_sha256: str
    pixel_sha256: str
    pipeline: str

    def withheld(self) -> Developed:
        """The same without its bytes; hashes and pipeline still tell how to make them again."""
        return replace(self, data=None)


def develop(picture: PictureFile) -> Developed:
    """Read a picture and make what is published of it.

    Raises
    ------
    ValueError
        If it cannot be read to the end; the message is the reason alone.
    """
    if picture.kind == "dicom":
        from reveal_bench.dicom import DicomFile, develop_dicom

        dicom = develop_dicom(DicomFile(picture.path, picture.member))
        return Developed(dicom.data, picture.name, dicom.size, dicom.source_sha256, dicom.pixel_sha256, dicom.pipeline)
    data = _file_bytes(picture)
    if picture.kind == "png16":
        return _from_png16(picture, data)
    plain = _decode(data, picture.path)
    return Developed(data, picture.name, plain.size, plain.source_sha256, plain.pixel_sha256, ORIGINAL)


def picture_size(path: Path) -> tuple[int, int]:
    """(height, width) from the header, without decoding.

    Raises
    ------
    ValueError
        If the file is not a picture; the message is the reason alone.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.height, image.width
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, path)) from None


def read_picture(path: Path) -> Picture:
    """Read and fully decode a picture file.

    Raises
    ------
    ValueError
        If the file cannot be decoded to the end; the message is the reason alone.
    """
    try:
        return _decode(path.read_bytes(), path)
    except OSError as error:
        raise ValueError(_reason(error, path)) from None


def _file_bytes(picture: PictureFile) -> bytes:
    try:
        if picture.member is None:
            return picture.path.read_bytes()
        with zipfile.ZipFile(picture.path) as archive:
            size = archive.getinfo(picture.member).file_size
            if size > MEMBER_BYTES:
                raise ValueError(f"a member of {size:,} bytes, more than {MEMBER_BYTES:,}")
            return archive.read(picture.member)
    except KeyError:
        raise ValueError(f"no member {picture.member!r} in the archive") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(_reason(error, picture.path)) from None


def _decode(data: bytes, path: Path) -> Picture:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = image.convert("L").tobytes()
            size = (image.height, image.width)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, path)) from None
    return Picture(data, size, hashlib.sha256(data).hexdigest(), hashlib.sha256(pixels).hexdigest())


def _from_png16(picture: PictureFile, data: bytes) -> Developed:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if not image.mode.startswith("I"):
                raise ValueError(f"a picture of mode {image.mode} instead of 16 bits")
            values = np.asarray(image).astype(np.float64)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, picture.path)) from None
    low, high = values.min(), values.max()
    grey = np.rint((values - low) * (255 / max(high - low, 1))).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG", compress_level=1)
    height, width = grey.shape
    source, pixels = hashlib.sha256(data).hexdigest(), hashlib.sha256(grey.tobytes()).hexdigest()
    return Developed(buffer.getvalue(), picture.name, (height, width), source, pixels, PNG16)


def _reason(error: Exception, path: Path) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    return str(error).replace(str(path), path.name) or type(error).__name__
