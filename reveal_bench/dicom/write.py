"""Writing of DICOM files for synthetic data and tests; the same input always gives the same bytes.

UIDs, dates and names come from `attributes` or are absent. Malformed files (a missing tag, text instead of a number,
wrong sizes) can be written, because real collections contain such files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.dicom.dataset import quiet_pydicom

if TYPE_CHECKING:
    from pydicom import DataElement, Dataset

TRANSFER_SYNTAXES = {
    "implicit": "1.2.840.10008.1.2",
    "explicit": "1.2.840.10008.1.2.1",
    "deflated": "1.2.840.10008.1.2.1.99",
    "rle": "1.2.840.10008.1.2.5",
    "jpeg2000-lossless": "1.2.840.10008.1.2.4.90",
    "jpegls-lossless": "1.2.840.10008.1.2.4.80",
}
"""Name -> UID of the transfer syntaxes that can be written. The extra ``[dicom]`` installs the encoders."""

_ENCODERS = {"rle": "pylibjpeg", "jpeg2000-lossless": "pylibjpeg", "jpegls-lossless": "pyjpegls"}
_IMPLEMENTATION_UID = "2.25.283412071903347563415907733290211530497"
_IMPLEMENTATION = "REVEAL_BENCH"
_SMALLEST_J2K = 32  # smallest side in pixels, because OpenJPEG halves a picture five times

Attributes = Mapping[str, Any] | Mapping[str | tuple[int, int, str], Any]


def write_dicom(
    path: Path,
    pixels: npt.NDArray[np.integer[Any]],
    attributes: Attributes,
    *,
    bits_stored: int,
    photometric: str = "MONOCHROME2",
    transfer_syntax: str = "explicit",
    meta_header: bool = True,
) -> None:
    """Write a single-frame grey picture as a DICOM file.

    Parameters
    ----------
    path : Path
        File to write; an existing file is replaced.
    pixels : integer array, shape (height, width)
        Stored values, in two's complement for a signed type. They are not inverted for MONOCHROME1.
    attributes : mapping
        DICOM keyword, or (group, element, VR) for a private or ill-typed element, -> value. A sequence is a list of
        mappings. Text is written unchanged, even for an element that should have a number. Attributes replace the
        elements that this function writes by default; None removes an element (``{"HighBit": None}``).
    bits_stored : int in [1, 16]
        Up to 8 bits are stored in bytes, more in words.
    photometric : str
        ``MONOCHROME1`` or ``MONOCHROME2``.
    transfer_syntax : str
        A key of :data:`TRANSFER_SYNTAXES`.
    meta_header : bool
        False to omit preamble and group 0002; only for ``implicit`` and ``explicit``.

    Raises
    ------
    ValueError
        If the pixels are not a 2-D array of integers within `bits_stored`, or an option is unknown.
    """
    pixels = np.asarray(pixels)
    _check(pixels, bits_stored, transfer_syntax, meta_header)
    with quiet_pydicom() as pydicom:
        dataset = _picture(pixels, bits_stored, photometric)
        is_compressed = transfer_syntax in _ENCODERS
        dataset.file_meta = _meta(TRANSFER_SYNTAXES["explicit" if is_compressed else transfer_syntax])
        if is_compressed:
            dataset.compress(
                TRANSFER_SYNTAXES[transfer_syntax],
                encoding_plugin=_ENCODERS[transfer_syntax],
                generate_instance_uid=False,
            )
        _apply(dataset, attributes)
        for name in ("SOPClassUID", "SOPInstanceUID"):
            setattr(dataset.file_meta, f"MediaStorage{name}", str(dataset.get(name, "")))
        buffer = io.BytesIO()
        if meta_header:
            dataset.preamble = bytes(128)
        else:
            del dataset.file_meta
        pydicom.dcmwrite(buffer, dataset, implicit_vr=transfer_syntax == "implicit", little_endian=True)
    path.write_bytes(buffer.getvalue())


def _check(pixels: npt.NDArray[Any], bits_stored: int, transfer_syntax: str, meta_header: bool) -> None:
    if pixels.ndim != 2 or pixels.dtype.kind not in "iu" or not pixels.size:
        raise ArgumentError("pixels", "must be a 2-D integer array", f"shape {pixels.shape} of {pixels.dtype}")
    if not 1 <= bits_stored <= 16:
        raise ArgumentError("bits_stored", "must be in [1, 16]", bits_stored)
    if transfer_syntax not in TRANSFER_SYNTAXES:
        raise ArgumentError("transfer_syntax", f"must be one of {', '.join(TRANSFER_SYNTAXES)}", repr(transfer_syntax))
    if transfer_syntax == "jpeg2000-lossless" and min(pixels.shape) < _SMALLEST_J2K:
        raise ArgumentError("pixels", f"must have sides of at least {_SMALLEST_J2K} for JPEG 2000", pixels.shape)
    if not meta_header and transfer_syntax not in ("implicit", "explicit"):
        raise ValueError(f"`transfer_syntax` {transfer_syntax!r} needs a meta header")
    signed = pixels.dtype.kind == "i"
    low, high = (-(1 << bits_stored - 1), (1 << bits_stored - 1) - 1) if signed else (0, (1 << bits_stored) - 1)
    if pixels.min() < low or pixels.max() > high:
        value_range = f"[{pixels.min()}, {pixels.max()}]"
        raise ArgumentError("pixels", f"must be in [{low}, {high}] ({bits_stored} bits)", value_range)


def _picture(pixels: npt.NDArray[Any], bits_stored: int, photometric: str) -> Dataset:
    """Return the elements of DICOM's Image Pixel module."""
    from pydicom import Dataset

    allocated = 8 if bits_stored <= 8 else 16
    dataset = Dataset()
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = photometric
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = allocated, bits_stored, bits_stored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    data = pixels.astype(f"<{pixels.dtype.kind}{allocated // 8}").tobytes()
    dataset.PixelData = data + bytes(len(data) % 2)
    dataset["PixelData"].VR = "OB" if allocated == 8 else "OW"
    return dataset


def _meta(transfer_syntax: str) -> Any:
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import UID

    meta = FileMetaDataset()
    meta.FileMetaInformationVersion = b"\x00\x01"
    meta.TransferSyntaxUID = UID(transfer_syntax)
    meta.ImplementationClassUID = UID(_IMPLEMENTATION_UID)
    meta.ImplementationVersionName = _IMPLEMENTATION
    return meta


def _apply(dataset: Dataset, attributes: Attributes) -> None:
    from pydicom.datadict import tag_for_keyword

    for key, value in attributes.items():
        tag = tag_for_keyword(key) if isinstance(key, str) else (key[0] << 16) + key[1]
        if tag is None:
            raise ArgumentError("attributes", f"has no DICOM keyword {key!r}")
        if value is None:
            dataset.pop(tag, None)
        else:
            dataset[tag] = _element(tag, key, value)


def _element(tag: int, key: str | tuple[int, int, str], value: Any) -> DataElement:
    from pydicom import DataElement, Dataset
    from pydicom.datadict import dictionary_VR

    vr = dictionary_VR(tag) if isinstance(key, str) else key[2]
    if vr == "SQ":
        items = []
        for mapping in value:
            item = Dataset()
            _apply(item, mapping)
            items.append(item)
        return DataElement(tag, vr, items)
    vr = {"US or SS": "US", "OB or OW": "OW", "US or OW": "US", "US or SS or OW": "US"}.get(vr, vr)
    if vr == "US" and _has_negative(value):
        vr = "SS"
    return DataElement(tag, vr, value, already_converted=isinstance(value, str) and vr != "PN")


def _has_negative(value: Any) -> bool:
    return any(isinstance(v, int) and v < 0 for v in (value if isinstance(value, list | tuple) else [value]))
