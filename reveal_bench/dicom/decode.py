"""Pixel data -> stored values, by a decoder named in advance.

For every transfer syntax there is one order of preference; the first decoder that is installed and manages the file is
taken, and its name and version go into the picture's pipeline. Decoders of lossless syntaxes agree to the last bit;
those of JPEG Baseline may differ by one grey level. pylibjpeg-libjpeg is never used (GPL-3.0).

A decoder must survive damaged data. gdcm ends the process at some: it is used for JPEG alone, where the lossless form
has no other permitted decoder, and only after :mod:`reveal_bench.dicom.jpeg` found the stream sound.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.dicom.codestream import read_frame
from reveal_bench.dicom.facts import Facts
from reveal_bench.dicom.files import DicomError
from reveal_bench.dicom.jpeg import BASELINE, LOSSLESS, check_jpeg

if TYPE_CHECKING:
    from pydicom import Dataset

__all__ = ["DECODERS", "KEYWORDS", "MAX_PIXELS", "decode", "frame_size"]

KEYWORDS = (
    "Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames",
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths",
)  # fmt: skip
"""Elements that a decoder needs."""

MAX_PIXELS = 100_000_000
"""Rows x Columns of the largest picture; detectors have up to about 20 million."""

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
"""Transfer syntax UID -> decoders, by pydicom's names, in the order in which they are tried."""

_RLE = "1.2.840.10008.1.2.5"
_JPEG_FRAMES = {
    **dict.fromkeys(("1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51"), BASELINE),
    **dict.fromkeys(("1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70"), LOSSLESS),
}


def decode(dataset: Dataset, syntax: str, size: tuple[int, int]) -> tuple[npt.NDArray[Any], str]:
    """The stored values of a single-frame grey picture.

    Parameters
    ----------
    dataset : pydicom Dataset
        With Pixel Data and the elements of :data:`KEYWORDS`.
    syntax : str
        Transfer syntax UID.
    size : (int, int)
        What :func:`frame_size` gave.

    Returns
    -------
    patterns : uint8 or uint16 array, shape (rows, columns)
        The bits of each pixel as they are stored; two's complement where signed.
    decoder : str
        Name and version.

    Raises
    ------
    DicomError
        If the pixel data are damaged, do not fit the header, or nothing permitted decodes them.
    """
    if syntax not in DECODERS:
        raise DicomError(f"transfer syntax {_named(syntax)}: nothing decodes it")
    data = dataset.PixelData
    if syntax in _NATIVE:
        needed = size[0] * size[1] * _allocated(dataset) // 8
        if len(data) < needed:
            raise DicomError(f"truncated: pixel data of {len(data):,} bytes, {needed:,} are needed")
    else:
        _check_frame(dataset, syntax, size)
    stored, decoder = _decode_by_preference(dataset, syntax)
    if stored.shape != size:
        raise DicomError(f"decodes to {stored.shape}, the header says {size}")
    return stored.astype(stored.dtype.newbyteorder("="), copy=False).view(f"u{stored.dtype.itemsize}"), decoder


def frame_size(dataset: Dataset) -> tuple[int, int]:
    """(height, width) of a single grey frame.

    Raises
    ------
    DicomError
        If the header says that it is none, or that it is too large.
    """
    facts = Facts(dataset)
    photometric, samples = facts.word("PhotometricInterpretation"), facts.integer("SamplesPerPixel")
    frames = facts.integer("NumberOfFrames")
    rows, columns, allocated = (facts.integer(key) for key in ("Rows", "Columns", "BitsAllocated"))
    if photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise DicomError(f"PhotometricInterpretation must be MONOCHROME1 or MONOCHROME2, got {photometric}")
    if samples != 1:
        raise DicomError(f"SamplesPerPixel must be 1, got {samples}")
    if frames is not None and frames > 1:
        raise DicomError(f"holds {frames} frames, expected one")
    if not rows or not columns:
        raise DicomError(f"Rows and Columns must be above 0, got {rows} and {columns}")
    if rows * columns > MAX_PIXELS:
        raise DicomError(f"{rows} x {columns} pixels; at most {MAX_PIXELS:,} are read")
    if allocated not in (8, 16):
        raise DicomError(f"BitsAllocated must be 8 or 16, got {allocated}")
    return rows, columns


def _allocated(dataset: Dataset) -> int:
    return Facts(dataset).integer("BitsAllocated") or 0  # frame_size has refused all but 8 and 16


def _check_frame(dataset: Dataset, syntax: str, size: tuple[int, int]) -> None:
    """Refuse what the compressed stream itself shows to be wrong, before a decoder sees it."""
    from pydicom.encaps import get_frame

    try:
        data = get_frame(dataset.PixelData, 0, number_of_frames=1)
    except Exception as error:  # damaged items end in many kinds
        raise DicomError(f"compressed pixel data cannot be taken apart: {type(error).__name__}") from None
    if syntax == _RLE:
        return
    frame, allocated = read_frame(data), _allocated(dataset)
    if frame is None:
        raise DicomError(f"pixel data are not what the transfer syntax {_named(syntax)} says")
    if frame.size != size:
        raise DicomError(f"the compressed picture is {frame.size}, the header says {size}")
    if frame.samples != 1:
        raise DicomError(f"the compressed picture has {frame.samples} samples per pixel, the header says 1")
    if syntax.endswith(".51") and frame.bits > 8:
        raise DicomError(f"transfer syntax {_named(syntax)} with {frame.bits} bits: nothing permitted decodes it")
    if not frame.is_complete:
        raise DicomError("truncated: the compressed picture has no end marker")
    if syntax in _JPEG_FRAMES:
        check_jpeg(data, _JPEG_FRAMES[syntax])
    if frame.bits > allocated:
        raise DicomError(f"the compressed picture has {frame.bits} bits per sample, BitsAllocated is {allocated}")


def _decode_by_preference(dataset: Dataset, syntax: str) -> tuple[npt.NDArray[Any], str]:
    is_native = syntax in _NATIVE
    options: dict[str, Any] = {"correct_unused_bits": False, "view_only": is_native, "number_of_frames": 1}
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
        except Exception as error:  # each library has its own
            reasons.append(f"{name}: {type(error).__name__}")
        else:
            return np.asarray(stored), _with_version(name)
    raise DicomError(f"transfer syntax {_named(syntax)} could not be decoded ({'; '.join(reasons)})")


def _with_version(decoder: str) -> str:
    """The decoder's name and version; of pylibjpeg those of the package that does the work."""
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
