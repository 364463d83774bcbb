"""What a compressed picture says of itself: size, bits per sample, and whether its end is there.

Read before any decoder sees the data. A stream that claims 60,000 x 60,000 pixels under a header of 2,000 x 2,000
would make a decoder fill the memory; one that was cut off is decoded by some to a picture with a grey rest.
Formats: JPEG and JPEG-LS (ITU-T T.81 B.2.2, T.87 C.2.2), JPEG 2000 and its high-throughput form (T.800 A.5.1).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["Frame", "read_frame"]

_J2K_START = b"\xff\x4f\xff\x51"
_NO_FRAME = {0xC4, 0xC8, 0xCC}
_JPEG_LS_FRAME = 0xF7
_STANDALONE = {0x01, *range(0xD0, 0xD9)}
_END = b"\xff\xd9"


@dataclass(frozen=True, slots=True)
class Frame:
    """Size (height, width), bits per sample, samples per pixel, and whether the end marker is present."""

    size: tuple[int, int]
    bits: int
    samples: int
    is_complete: bool


def read_frame(data: bytes) -> Frame | None:
    """The frame header of a JPEG, JPEG-LS or JPEG 2000 stream; None if `data` holds none."""
    is_complete = _END in data[-16:]  # padding may follow
    try:
        if data[:2] == b"\xff\xd8":
            return _jpeg(data, is_complete)
        start = data.find(_J2K_START, 0, 4096)  # a JP2 box may stand before it
        if start >= 0:
            return _jpeg2000(data[start:], is_complete)
    except (struct.error, IndexError):
        pass
    return None


def _jpeg(data: bytes, is_complete: bool) -> Frame | None:
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF or marker in _STANDALONE:
            position += 1 if marker == 0xFF else 2
            continue
        is_frame = 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME
        if is_frame or marker == _JPEG_LS_FRAME:
            bits, height, width, samples = struct.unpack_from(">BHHB", data, position + 4)
            return Frame((height, width), bits, samples, is_complete)
        position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return None


def _jpeg2000(data: bytes, is_complete: bool) -> Frame:
    x_end, y_end, x_start, y_start = struct.unpack_from(">4I", data, 8)
    (samples,) = struct.unpack_from(">H", data, 40)
    return Frame((y_end - y_start, x_end - x_start), (data[42] & 0x7F) + 1, samples, is_complete)
