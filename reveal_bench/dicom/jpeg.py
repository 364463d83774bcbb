"""Whether a JPEG stream is built, from its first byte to its last, as ITU-T T.81 says.

gdcm, the only permitted decoder of lossless JPEG, ends the whole process at a stream whose headers it would have to
warn of (stray bytes before a marker, a JFIF of an unknown version) or whose precision it does not know. So every
marker, length and number is looked at first, and what is not as it must be is refused. Only what a single grey frame
needs is let through: one frame header, one scan, the end marker.

Lengths are in bytes and count themselves, as in the stream.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from reveal_bench.dicom.files import DicomError

__all__ = ["BASELINE", "LOSSLESS", "check_jpeg"]

BASELINE = (0xC0, 0xC1)
"""Sequential frames (SOF0, SOF1), for transfer syntaxes .50 and .51."""
LOSSLESS = (0xC3,)
"""Lossless frames (SOF3), for .57 and .70."""

_APP0, _COMMENT, _DHT, _DQT, _DRI, _SOS, _EOI = 0xE0, 0xFE, 0xC4, 0xDB, 0xDD, 0xDA, 0xD9
_MOST_PADDING = 16
"""Bytes after the end marker; one is usual, to make the length even."""


def check_jpeg(data: bytes, frames: Collection[int]) -> None:
    """Refuse a stream that is not built as it must be.

    Parameters
    ----------
    data : bytes
        From the start marker on; padding may follow the end marker.
    frames : collection of int
        Markers of the frame header, one of which must be there: :data:`BASELINE` or :data:`LOSSLESS`.

    Raises
    ------
    DicomError
        If not; the message says what is wrong.
    """
    try:
        reason = _Stream(data, frames).fault()
    except (IndexError, struct.error):
        reason = "a segment reaches beyond the end"
    if reason is not None:
        raise DicomError(f"the compressed picture is no sound JPEG: {reason}")


class _Stream:
    """A walk over the segments; every method gives what is wrong, or None."""

    def __init__(self, data: bytes, frames: Collection[int]) -> None:
        self._data, self._frames = data, frames
        self._component: int | None = None
        self._precision = 0
        self._huffman: set[int] = set()
        self._quantization: set[int] = set()
        self._restarts_after = 0

    def fault(self) -> str | None:
        if self._data[:2] != b"\xff\xd8":
            return "no start marker"
        position = 2
        while True:
            if self._data[position] != 0xFF:
                return f"stray bytes at {position}, where a marker must be"
            while self._data[position] == 0xFF:  # more than one may fill
                position += 1
            marker = self._data[position]
            (length,) = struct.unpack_from(">H", self._data, position + 1)
            body = self._data[position + 3 : position + 1 + length]
            if length < 2 or len(body) != length - 2:
                return f"segment {marker:02X} of length {length} does not fit"
            reason = self._segment(marker, body)
            if reason is not None or marker == _SOS:
                return reason or self._scan(position + 1 + length)
            position += 1 + length

    def _segment(self, marker: int, body: bytes) -> str | None:
        if marker in self._frames:
            return self._frame(marker, body)
        if marker == _DHT:
            return self._huffman_tables(body)
        if marker == _DQT:
            return self._quantization_tables(body)
        if marker == _DRI:
            self._restarts_after = struct.unpack_from(">H", body)[0]
            return None if len(body) == 2 else "a restart interval of another length than 2"
        if marker == _SOS:
            return self._scan_header(body)
        if marker == _APP0:
            is_odd = body[:5] == b"JFIF\0" and (len(body) < 14 or body[5] != 1)
            return "a JFIF segment of an unknown version" if is_odd else None
        return None if _APP0 < marker <= 0xEF or marker == _COMMENT else f"marker {marker:02X} has no place here"

    def _frame(self, marker: int, body: bytes) -> str | None:
        if self._component is not None:
            return "two frame headers"
        if len(body) != 9 or body[5] != 1:
            return "a frame header of other than one component"
        self._precision, self._component = body[0], body[6]
        lowest, highest = (2, 16) if marker in LOSSLESS else (8, 8)
        if not lowest <= self._precision <= highest:
            return f"{self._precision} bits per sample, must be {lowest} to {highest}"
        if not (1 <= body[7] >> 4 <= 4 and 1 <= body[7] & 15 <= 4 and body[8] <= 3):
            return "sampling factors or table out of range"
        if marker not in LOSSLESS:
            self._needed_quantization = body[8]
        return None

    def _huffman_tables(self, body: bytes) -> str | None:
        position = 0
        while position < len(body):
            counts = body[position + 1 : position + 17]
            is_possible = len(counts) == 16 and _is_prefix_code(counts)
            if body[position] >> 4 > 1 or body[position] & 15 > 3 or not is_possible:
                return "a Huffman table that is none"
            self._huffman.add(body[position])
            position += 17 + sum(counts)
        return None if position == len(body) else "a Huffman table that is cut off"

    def _quantization_tables(self, body: bytes) -> str | None:
        position = 0
        while position < len(body):
            if body[position] >> 4 > 1 or body[position] & 15 > 3:
                return "a quantization table that is none"
            self._quantization.add(body[position] & 15)
            position += 1 + 64 * (1 + (body[position] >> 4))
        return None if position == len(body) else "a quantization table that is cut off"

    def _scan_header(self, body: bytes) -> str | None:
        if self._component is None:
            return "a scan before the frame header"
        if len(body) != 6 or body[0] != 1 or body[1] != self._component:
            return "a scan header of another component than the frame's"
        is_lossless = self._frames == LOSSLESS
        direct, alternating = body[2] >> 4, body[2] & 15
        needed = {direct} if is_lossless else {direct, 0x10 | alternating}
        if not needed <= self._huffman or (not is_lossless and self._needed_quantization not in self._quantization):
            return "a scan without its tables"
        if is_lossless and not (1 <= body[3] <= 7 and body[4] == 0 and body[5] < self._precision):
            return "a scan with a predictor or point transform out of range"
        return None

    def _scan(self, position: int) -> str | None:
        """From the entropy-coded data to the end marker: in them FF is followed by 00, or by restarts in order."""
        n_restarts = 0
        while True:
            position = self._data.find(b"\xff", position)
            if position < 0:
                return "no end marker"
            while self._data[position] == 0xFF:
                position += 1
            marker = self._data[position]
            if 0xD0 <= marker <= 0xD7 and self._restarts_after and marker & 7 == n_restarts % 8:
                n_restarts += 1
            elif marker == _EOI:
                n_after = len(self._data) - position - 1
                return None if n_after <= _MOST_PADDING else f"{n_after:,} bytes after the end marker"
            elif marker != 0:
                return f"marker {marker:02X} within the scan"
            position += 1


def _is_prefix_code(counts: bytes) -> bool:
    """Whether there can be so many codes of 1 to 16 bits, the one of all ones kept free (T.81 C.2)."""
    used = sum(count << (16 - bits) for bits, count in enumerate(counts, start=1))
    return 0 < used < 1 << 16
