"""Picture files: size from the header, hashes, decoded pixels; and what is published of them.

:func:`develop` is the one way from a :class:`reveal_bench.records.PictureFile` to published bytes: JPEG and 8-bit PNG
pass unchanged but for metadata (:mod:`.picture_metadata`), DICOM goes through the pipeline of
:mod:`reveal_bench.dicom`, PNG of 16 bits becomes one of 8. The hash of the pixels is sha256 over the published 8-bit
grey values, row by row, as Pillow decodes them.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from reveal_bench.builders.picture_metadata import without_metadata
from reveal_bench.records import PictureFile

__all__ = ["CLEANED", "ORIGINAL", "PNG16", "Developed", "develop", "picture_size"]

ORIGINAL = "original bytes"
"""`pixel_pipeline` of a picture whose file bytes are published as they are."""
CLEANED = "original pixels: metadata cut out of the file, coded data unchanged"
"""`pixel_pipeline` of a picture whose file held something besides the picture."""
PNG16 = "png16-v1: 16-bit PNG, [lowest, highest] value of the picture -> [0, 255] linearly, rounded half to even"
"""`pixel_pipeline` of a picture of 16 bits."""
FORMATS = ("JPEG", "PNG")
"""No other is opened, whatever a file's name says: some of Pillow's readers start other programs."""
MEMBER_BYTES = 256 << 20
"""Largest picture that is read from an archive."""


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
    published = without_metadata(data)
    size, pixel_sha256 = _decode(published, picture.path)
    pipeline = ORIGINAL if published == data else CLEANED
    source_sha256 = hashlib.sha256(data).hexdigest()
    return Developed(published, picture.name, size, source_sha256, pixel_sha256, pipeline)


def picture_size(path: Path) -> tuple[int, int]:
    """(height, width) from the header, without decoding.

    Raises
    ------
    ValueError
        If the file is not a picture; the message is the reason alone.
    """
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as image:
            return image.height, image.width
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
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
    except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError) as error:
        raise ValueError(_reason(error, picture.path)) from None


def _decode(data: bytes, path: Path) -> tuple[tuple[int, int], str]:
    """(height, width) and the hash of the pixels of a picture, decoded to its end."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            pixels = image.convert("L").tobytes()
            return (image.height, image.width), hashlib.sha256(pixels).hexdigest()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, path)) from None


def _from_png16(picture: PictureFile, data: bytes) -> Developed:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
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
