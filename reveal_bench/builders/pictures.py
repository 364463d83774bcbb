"""Picture files: size from the header, hashes, decoded pixels. Bytes are passed on unchanged.

The hash of the pixels is sha256 over the 8-bit grey values, row by row, as Pillow decodes them.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ORIGINAL", "Picture", "picture_size", "read_picture"]

ORIGINAL = "original bytes"
"""`pixel_pipeline` of a picture whose file bytes are published as they are."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file: its bytes, size (height, width), and the sha256 of file and pixels."""

    data: bytes = field(repr=False)
    size: tuple[int, int]
    source_sha256: str
    pixel_sha256: str


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
    from PIL import Image

    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data)) as image:
            pixels = image.convert("L").tobytes()
            size = (image.height, image.width)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(_reason(error, path)) from None
    return Picture(data, size, hashlib.sha256(data).hexdigest(), hashlib.sha256(pixels).hexdigest())


def _reason(error: Exception, path: Path) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    return str(error).replace(str(path), path.name) or type(error).__name__
