"""Decoding of DICOM pixel data to stored values, with checks of compressed streams before a decoder gets them.

For every transfer syntax, decoders are tried in a fixed order of preference. The first installed decoder that can
decode the file is used, and its name and version become part of the picture's pipeline. For lossless syntaxes all
decoders give the same values; for JPEG Baseline they may differ by one grey level. pylibjpeg-libjpeg is never used
(GPL-3.0).

Size, bits per sample and end of a compressed stream are checked before any decoder gets the data. Otherwise a stream
that claims 60,000 x 60,000 pixels, under a header that states 2,000 x 2,000, would exhaust the memory, and some
decoders would fill the rest of a truncated picture with grey. Formats: JPEG and JPEG-LS (ITU-T T.81 B.2.2, T.87 C.2.2),
JPEG 2000 and its high-throughput form (T.800 A.5.1). Lengths of segments are in bytes and include the two bytes of the
length itself, as in the stream.

gdcm is the only permitted decoder of lossless JPEG, and is used only for JPEG. It terminates the whole process instead
of warning about the headers of a stream (stray bytes before a marker, an unknown version of JFIF) or about an unknown
precision. Therefore every marker, length and number is checked first, and any deviation from T.81 is an error. Only the
segments of a single grey frame are allowed: one frame header, one scan, the end marker.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.dicom.dataset import HeaderValues
from reveal_bench.dicom.files import DicomError

if TYPE_CHECKING:
    from pydicom import Dataset

_J2K_START = b"\xff\x4f\xff\x51"
_NO_FRAME = {0xC4, 0xC8, 0xCC}
_JPEG_LS_FRAME = 0xF7
_STANDALONE = {0x01, *range(0xD0, 0xD9)}
_END = b"\xff\xd9"


@dataclass(frozen=True, slots=True)
class Frame:
    """Size (height, width), bits per sample, samples per pixel and end marker of a compressed picture."""

    size: tuple[int, int]
    bits: int
    samples: int
    is_complete: bool


def read_frame(data: bytes) -> Frame | None:
    """Return the frame header of a JPEG, JPEG-LS or JPEG 2000 stream; None if `data` contains no such stream."""
    is_complete = _END in data[-16:]  # padding may follow
    try:
        if data[:2] == b"\xff\xd8":
            return _jpeg(data, is_complete)
        start = data.find(_J2K_START, 0, 4096)  # a JP2 box may precede the stream
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


BASELINE = (0xC0, 0xC1)
"""Markers of sequential frames (SOF0, SOF1), for transfer syntaxes .50 and .51."""
LOSSLESS = (0xC3,)
"""Marker of lossless frames (SOF3), for transfer syntaxes .57 and .70."""

_APP0, _COMMENT, _DHT, _DQT, _DRI, _SOS, _EOI = 0xE0, 0xFE, 0xC4, 0xDB, 0xDD, 0xDA, 0xD9
_MOST_PADDING = 16
"""Largest number of bytes after the end marker; a single byte often makes the length even."""


def check_jpeg(data: bytes, frames: Collection[int]) -> None:
    """Raise DicomError unless a stream is a valid JPEG with a single grey frame.

    Parameters
    ----------
    data : bytes
        The stream, which begins with the start marker; padding may follow the end marker.
    frames : collection of int
        Allowed markers of the frame header: :data:`BASELINE` or :data:`LOSSLESS`.

    Raises
    ------
    DicomError
        If the stream is not valid; the message names the problem.
    """
    try:
        reason = _Stream(data, frames).fault()
    except (IndexError, struct.error):
        reason = "a segment reaches beyond the end"
    if reason is not None:
        raise DicomError(f"the compressed picture is not a valid JPEG: {reason}")


class _Stream:
    """A walk over the segments of a JPEG stream; every method returns the problem, or None."""

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
                return f"stray bytes at {position} instead of a marker"
            while self._data[position] == 0xFF:  # any number of FF fill bytes may precede a marker
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
            return None if len(body) == 2 else "a restart interval that is not 2 bytes long"
        if marker == _SOS:
            return self._scan_header(body)
        if marker == _APP0:
            is_odd = body[:5] == b"JFIF\0" and (len(body) < 14 or body[5] != 1)
            return "a JFIF segment of an unknown version" if is_odd else None
        return None if _APP0 < marker <= 0xEF or marker == _COMMENT else f"marker {marker:02X} is not allowed here"

    def _frame(self, marker: int, body: bytes) -> str | None:
        if self._component is not None:
            return "two frame headers"
        if len(body) != 9 or body[5] != 1:
            return "a frame header without exactly one component"
        self._precision, self._component = body[0], body[6]
        lowest, highest = (2, 16) if marker in LOSSLESS else (8, 8)
        if not lowest <= self._precision <= highest:
            return f"{self._precision} bits per sample instead of {lowest} to {highest}"
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
                return "an invalid Huffman table"
            self._huffman.add(body[position])
            position += 17 + sum(counts)
        return None if position == len(body) else "a truncated Huffman table"

    def _quantization_tables(self, body: bytes) -> str | None:
        position = 0
        while position < len(body):
            if body[position] >> 4 > 1 or body[position] & 15 > 3:
                return "an invalid quantization table"
            self._quantization.add(body[position] & 15)
            position += 1 + 64 * (1 + (body[position] >> 4))
        return None if position == len(body) else "a truncated quantization table"

    def _scan_header(self, body: bytes) -> str | None:
        if self._component is None:
            return "a scan before the frame header"
        if len(body) != 6 or body[0] != 1 or body[1] != self._component:
            return "a scan header with another component than the frame"
        is_lossless = self._frames == LOSSLESS
        direct, alternating = body[2] >> 4, body[2] & 15
        needed = {direct} if is_lossless else {direct, 0x10 | alternating}
        if not needed <= self._huffman or (not is_lossless and self._needed_quantization not in self._quantization):
            return "a scan without tables"
        if is_lossless and not (1 <= body[3] <= 7 and body[4] == 0 and body[5] < self._precision):
            return "a scan with a predictor or point transform out of range"
        return None

    def _scan(self, position: int) -> str | None:
        """Return a problem of the entropy-coded data up to the end marker, or None.

        In these data each FF must be followed by 00 or by the next restart marker.
        """
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
    """Return True if a prefix code with these numbers of codes of 1 to 16 bits exists, no code all ones (T.81 C.2)."""
    used = sum(count << (16 - bits) for bits, count in enumerate(counts, start=1))
    return 0 < used < 1 << 16


KEYWORDS = (
    "Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames",
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths",
)  # fmt: skip
"""Keywords of the elements that a decoder needs."""

OVERLAY_POSITIONS = tuple((0x6000 + group) << 16 | 0x0102 for group in range(0, 0x20, 2))
"""Tags of OverlayBitPosition in the repeating groups 6000 to 601E, for overlays in bits above BitsStored."""

MOST_STRAY = 0.01
"""Largest proportion of pixels beyond BitsStored that may be dead pixels or a marker, not a sign of a wrong header."""

MAX_PIXELS = 100_000_000
"""Largest number of pixels of a picture; detectors have at most about 20 million."""

_NATIVE = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.2")
DECODERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_NATIVE, ("pydicom",)),
    "1.2.840.10008.1.2.5": ("pydicom",),  # pylibjpeg-rle aborts on damaged data
    "1.2.840.10008.1.2.4.50": ("gdcm", "pillow"),
    "1.2.840.10008.1.2.4.51": ("gdcm", "pillow"),
    "1.2.840.10008.1.2.4.57": ("gdcm",),
    "1.2.840.10008.1.2.4.70": ("gdcm",),
    "1.2.840.10008.1.2.4.80": ("pyjpegls",),
    "1.2.840.10008.1.2.4.81": ("pyjpegls",),
    "1.2.840.10008.1.2.4.90": ("pylibjpeg",),
    "1.2.840.10008.1.2.4.91": ("pylibjpeg",),
    "1.2.840.10008.1.2.4.201": ("pylibjpeg",),
    "1.2.840.10008.1.2.4.202": ("pylibjpeg",),
    "1.2.840.10008.1.2.4.203": ("pylibjpeg",),
}
"""Transfer syntax UID -> pydicom's names of the decoders, in the order in which they are tried."""

_RLE = "1.2.840.10008.1.2.5"
_JPEG_FRAMES = {
    **dict.fromkeys(("1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51"), BASELINE),
    **dict.fromkeys(("1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70"), LOSSLESS),
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """Stored values of a picture.

    Attributes
    ----------
    patterns : uint8 or uint16 array, shape (rows, columns)
        The bits of each pixel as stored; two's complement if signed.
    decoder : str
        Name and version of the decoder.
    stream_bits : int or None
        Bits per sample of the compressed stream if they take precedence over BitsStored.
    warnings : tuple of str
        Contradictions between the values and BitsStored.
    """

    patterns: npt.NDArray[Any]
    decoder: str
    stream_bits: int | None = None
    warnings: tuple[str, ...] = ()


def decode(dataset: Dataset, syntax: str, size: tuple[int, int]) -> Decoded:
    """Return the stored values of a single-frame grey picture.

    If many values in a compressed stream exceed BitsStored, or the stream has fewer bits, the stream's depth is right:
    the header was copied or rewritten, whereas the stream was decoded. Otherwise, and if an overlay is stored there,
    bits above BitsStored are ignored.

    Parameters
    ----------
    dataset : pydicom Dataset
        With Pixel Data and the elements of :data:`KEYWORDS`.
    syntax : str
        Transfer syntax UID.
    size : (int, int)
        (height, width) from :func:`frame_size`.

    Raises
    ------
    DicomError
        If the pixel data are damaged or contradict the header, or if no permitted decoder can decode them.
    """
    if syntax not in DECODERS:
        raise DicomError(f"transfer syntax {_named(syntax)}: not supported")
    data, stream_bits = dataset.PixelData, None
    if syntax in _NATIVE:
        needed = size[0] * size[1] * _allocated(dataset) // 8
        if len(data) < needed:
            raise DicomError(f"truncated: pixel data of {len(data):,} bytes instead of {needed:,}")
    else:
        stream_bits = _check_frame(dataset, syntax, size)
    stored, decoder = _decode_by_preference(dataset, syntax, stream_bits)
    if stored.shape != size:
        raise DicomError(f"decodes to {stored.shape}, but the header states {size}")
    stored = stored.astype(stored.dtype.newbyteorder("="), copy=False)
    return _with_depth(dataset, stored.view(f"u{stored.dtype.itemsize}"), decoder, stream_bits)


def _with_depth(dataset: Dataset, patterns: npt.NDArray[Any], decoder: str, stream_bits: int | None) -> Decoded:
    """Compare the values with BitsStored, which :func:`~reveal_bench.dicom.display.plan_display` checks otherwise."""
    facts = HeaderValues(dataset)
    bits = facts.integer("BitsStored")
    if bits is None or not 1 <= bits <= 8 * patterns.dtype.itemsize:
        return Decoded(patterns, decoder)
    n_beyond = _n_beyond(patterns, bits, is_signed=facts.integer("PixelRepresentation") == 1)
    if any((HeaderValues(dataset).integer(tag) or 0) >= bits for tag in OVERLAY_POSITIONS):
        return Decoded(patterns, decoder)
    is_deeper = n_beyond > MOST_STRAY * patterns.size  # many encoders write 16 bits, whatever BitsStored is
    if stream_bits is not None and (stream_bits < bits or (stream_bits > bits and is_deeper)):
        warning = f"uses {stream_bits} bits, as in the compressed picture, instead of BitsStored {bits}"
        return Decoded(patterns, decoder, stream_bits, (warning,))
    if not n_beyond:
        return Decoded(patterns, decoder)
    warning = f"{n_beyond:,} pixels have values beyond BitsStored ({bits}), whose higher bits are ignored"
    return Decoded(patterns, decoder, None, (warning,))


def _n_beyond(patterns: npt.NDArray[Any], bits: int, *, is_signed: bool) -> int:
    """Return the number of pixels whose value needs more bits; a sign repeated in the higher bits needs none."""
    if not is_signed:
        return int(np.count_nonzero(patterns >> bits)) if bits < 8 * patterns.dtype.itemsize else 0
    values, least = patterns.view(f"i{patterns.dtype.itemsize}"), -(1 << bits - 1)
    is_positive = patterns >> bits == 0  # without a repeated sign
    return int(np.count_nonzero(((values < least) | (values >= -least)) & ~is_positive)) if bits < 16 else 0


def frame_size(dataset: Dataset) -> tuple[int, int]:
    """Return (height, width) of a single grey frame.

    Raises
    ------
    DicomError
        If the header does not describe a single grey frame, or if the frame is too large.
    """
    facts = HeaderValues(dataset)
    photometric, samples = facts.word("PhotometricInterpretation"), facts.integer("SamplesPerPixel")
    frames = facts.integer("NumberOfFrames")
    rows, columns, allocated = (facts.integer(key) for key in ("Rows", "Columns", "BitsAllocated"))
    if photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise DicomError(f"PhotometricInterpretation must be MONOCHROME1 or MONOCHROME2, got {photometric}")
    if samples != 1:
        raise DicomError(f"SamplesPerPixel must be 1, got {samples}")
    if frames is not None and frames > 1:
        raise DicomError(f"contains {frames} frames instead of one")
    if not rows or not columns:
        raise DicomError(f"Rows and Columns must be above 0, got {rows} and {columns}")
    if rows * columns > MAX_PIXELS:
        raise DicomError(f"{rows} x {columns} pixels; at most {MAX_PIXELS:,} are read")
    if allocated not in (8, 16):
        raise DicomError(f"BitsAllocated must be 8 or 16, got {allocated}")
    return rows, columns


def _allocated(dataset: Dataset) -> int:
    return HeaderValues(dataset).integer("BitsAllocated") or 0  # frame_size only allows 8 and 16


def _check_frame(dataset: Dataset, syntax: str, size: tuple[int, int]) -> int | None:
    """Return the bits per sample of a compressed stream, None for RLE, which does not state them.

    Raises
    ------
    DicomError
        If the stream is truncated or contradicts the header.
    """
    from pydicom.encaps import get_frame

    try:
        data = get_frame(dataset.PixelData, 0, number_of_frames=1)
    except Exception as error:  # damaged items raise various exceptions
        raise DicomError(f"compressed pixel data cannot be parsed: {type(error).__name__}") from None
    if syntax == _RLE:
        return None
    frame, allocated = read_frame(data), _allocated(dataset)
    if frame is None:
        raise DicomError(f"pixel data do not match the transfer syntax {_named(syntax)}")
    if frame.size != size:
        raise DicomError(f"the compressed picture is {frame.size}, but the header states {size}")
    if frame.samples != 1:
        raise DicomError(f"the compressed picture has {frame.samples} samples per pixel, but the header states 1")
    if syntax.endswith(".51") and frame.bits > 8:
        raise DicomError(f"transfer syntax {_named(syntax)} with {frame.bits} bits: not supported")
    if not frame.is_complete:
        raise DicomError("truncated: the compressed picture has no end marker")
    if syntax in _JPEG_FRAMES:
        check_jpeg(data, _JPEG_FRAMES[syntax])
    if frame.bits > allocated:
        raise DicomError(f"the compressed picture has {frame.bits} bits per sample, but BitsAllocated is {allocated}")
    if syntax.endswith((".50", ".51")) and allocated != 8:
        raise DicomError(f"transfer syntax {_named(syntax)} needs BitsAllocated 8, got {allocated}: not supported")
    return frame.bits


def _decode_by_preference(dataset: Dataset, syntax: str, stream_bits: int | None) -> tuple[npt.NDArray[Any], str]:
    is_native = syntax in _NATIVE
    options: dict[str, Any] = {"correct_unused_bits": False, "view_only": is_native, "number_of_frames": 1}
    if syntax in _JPEG_FRAMES and stream_bits:
        options["bits_stored"] = stream_bits  # gdcm sets the bits above to 0
    reasons = []
    from pydicom.pixels.decoders.base import get_decoder

    decoder = get_decoder(syntax)
    for name in DECODERS[syntax]:
        if not is_native and name not in decoder.available_plugins:
            reasons.append(f"{name} is not installed")
            continue
        try:
            plugin = "" if is_native else name
            stored, _ = decoder.as_array(dataset, index=0, raw=True, decoding_plugin=plugin, **options)
        except Exception as error:  # each library has its own exceptions
            reasons.append(f"{name}: {type(error).__name__}")
        else:
            return np.asarray(stored), _with_version(name)
    raise DicomError(f"transfer syntax {_named(syntax)} could not be decoded ({'; '.join(reasons)})")


def _with_version(decoder: str) -> str:
    """Return the decoder's name and version; for pylibjpeg, those of its plugin."""
    if decoder == "pylibjpeg":
        decoder = "pylibjpeg-openjpeg"
    try:
        return f"{decoder} {version('python-gdcm' if decoder == 'gdcm' else decoder)}"
    except PackageNotFoundError:  # built from source
        return f"{decoder} of unknown version"


def _named(syntax: str) -> str:
    from pydicom.uid import UID

    name = UID(syntax).name
    return syntax if name == syntax else f"{name} ({syntax})"
