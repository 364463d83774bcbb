"""Reading of selected elements of a DICOM file with pydicom, without warnings and within limits.

A file without preamble and meta header is read as a bare data set: with explicit VR if its first element has a VR,
otherwise as Implicit VR Little Endian, DICOM's default (PS3.5 section 10).

:class:`HeaderValues` reads values tolerantly: an invalid value counts as absent, and no method raises. Text is decoded
from the raw bytes instead of converted by pydicom, which raises an error if, for example, a decimal string has letters.
"""

from __future__ import annotations

import importlib
import math
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

from reveal_bench.dicom.files import MAX_BYTES, DicomError, is_dicom

if TYPE_CHECKING:
    from pydicom import Dataset
    from pydicom.tag import BaseTag

DEFLATED = "1.2.840.10008.1.2.1.99"
PIXEL_TAGS = (0x7FE00008, 0x7FE00009, 0x7FE00010)
"""Tags of Float, Double Float and integer Pixel Data; elements after these are not needed."""


@contextmanager
def quiet_pydicom() -> Iterator[ModuleType]:
    """Yield pydicom with its warnings disabled, because this package's errors report what matters.

    Raises
    ------
    ImportError
        If pydicom is not installed.
    """
    pydicom = _import_pydicom()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pydicom


def _import_pydicom() -> ModuleType:
    """Import pydicom; prevent gdcm from importing a user's folder ``dl`` instead of Python 2's module."""
    is_hidden = "dl" not in sys.modules
    if is_hidden:
        sys.modules["dl"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("pydicom")
    except ImportError:
        raise ImportError("DICOM files need pydicom: pip install 'reveal-bench[dicom]'") from None
    finally:
        if is_hidden:
            del sys.modules["dl"]


@contextmanager
def refuse_damage() -> Iterator[None]:
    """Turn the various exceptions that pydicom raises about a damaged file into a :class:`DicomError`.

    pydicom converts an element when its value is accessed, so this is also needed for accessing values. Errors of the
    disk are raised unchanged.
    """
    try:
        yield
    except DicomError:
        raise
    except MemoryError:
        raise DicomError("an element claims more bytes than fit into memory") from None
    except Exception as error:  # the text of the exception may quote header values
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DicomError(f"damaged: pydicom stops with {type(error).__name__}") from None


def read_dataset(stream: BinaryIO, keywords: Iterable[str | int], *, pixels: bool) -> tuple[Dataset, bool]:
    """Return (dataset, has_pixels) with the meta header and the elements `keywords`; with `pixels`, also Pixel Data.

    Elements of repeating groups have no keyword, and are named by their tag.

    The call, and every later access to a value of the data set, must be within :func:`quiet_pydicom`.

    Returns
    -------
    dataset : pydicom Dataset
    has_pixels : bool
        True if the file has a non-empty pixel data element.

    Raises
    ------
    DicomError
        If the bytes are not DICOM, end too early, or inflate beyond :data:`~reveal_bench.dicom.files.MAX_BYTES`.
    """
    start = stream.read(140)
    stream.seek(0)
    if not start:
        raise DicomError("an empty file")
    if not is_dicom(start):
        raise DicomError("not DICOM")
    offsets: list[int] = []

    def is_at_pixels(tag: BaseTag, vr: str | None, length: int) -> bool:
        if tag in PIXEL_TAGS:
            offsets.append(length)
        return tag >= PIXEL_TAGS[0] and not pixels

    from pydicom.datadict import tag_for_keyword
    from pydicom.filereader import read_partial

    found = (tag_for_keyword(keyword) if isinstance(keyword, str) else keyword for keyword in keywords)
    tags: list[BaseTag | int] = [tag for tag in found if tag is not None]
    with refuse_damage():
        _check_inflated_size(stream)
        dataset = read_partial(stream, is_at_pixels, force=True, specific_tags=[*tags, *PIXEL_TAGS])
    if not len(dataset) and not offsets:
        raise DicomError("contains no element of a radiograph")
    return dataset, bool(offsets and offsets[0])


def _check_inflated_size(stream: BinaryIO) -> None:
    """Raise DicomError if a deflated data set is too large, because pydicom inflates without a limit.

    `stream` is rewound to its start.
    """
    from pydicom.filereader import read_dataset as parse
    from pydicom.filereader import read_preamble

    read_preamble(stream, force=True)
    meta = parse(stream, False, True, stop_when=lambda tag, vr, length: tag >> 16 != 2)
    if str(meta.get("TransferSyntaxUID", "")) == DEFLATED:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        size = len(inflater.decompress(stream.read(), MAX_BYTES))
        if inflater.unconsumed_tail:
            raise DicomError(f"inflates to more than {size:,} bytes")
    stream.seek(0)


def transfer_syntax(dataset: Dataset) -> str:
    """Return the transfer syntax UID in the meta header or, without one, the syntax used for reading the data set.

    Raises
    ------
    DicomError
        If the element is damaged.
    """
    with refuse_damage():
        declared = dataset.file_meta.get("TransferSyntaxUID")
        if declared:
            return str(declared)
    is_implicit, is_little_endian = dataset.original_encoding
    if is_implicit:
        return "1.2.840.10008.1.2"
    return "1.2.840.10008.1.2.1" if is_little_endian else "1.2.840.10008.1.2.2"


_LONGEST = 64
"""Largest length of a text value (VR LO or UI), in characters."""

_TEXT_VRS = {
    "AE", "AS", "CS", "DA", "DS", "DT", "IS", "LO", "LT", "PN", "SH", "ST", "TM", "UC", "UI", "UR", "UT",
}  # fmt: skip


class HeaderValues:
    """Tolerant access to the values of `dataset` by keyword or tag."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def texts(self, keyword: str | int) -> list[str]:
        """Return all values of an element as texts without padding; [] if it is absent or empty.

        Overlong or unprintable values are returned as "".
        """
        values = [str(value).strip(" \0") for value in self._values(keyword)]
        values = [value if len(value) <= _LONGEST and value.isprintable() else "" for value in values]
        return values if any(values) else []

    def text(self, keyword: str) -> str | None:
        """Return the single value of an element as text; None if it is absent or empty, or has several values."""
        values = self.texts(keyword)
        return values[0] if len(values) == 1 else None

    def word(self, keyword: str) -> str | None:
        """Return the single value of an element as text in capitals, or None."""
        text = self.text(keyword)
        return text.upper() if text else None

    def numbers(self, keyword: str | int) -> list[float]:
        """Return all values of an element as finite numbers; [] if it is absent or any value is not a finite number."""
        try:
            numbers = [float(text) for text in self.texts(keyword)]
        except ValueError:
            return []
        return numbers if all(map(math.isfinite, numbers)) else []

    def positive(self, keyword: str) -> float | None:
        """Return the value of an element if it is a single number above 0, else None."""
        numbers = self.numbers(keyword)
        return numbers[0] if len(numbers) == 1 and numbers[0] > 0 else None

    def integer(self, keyword: str | int) -> int | None:
        """Return the value of an element if it is a single whole number, else None."""
        numbers = self.numbers(keyword)
        return int(numbers[0]) if len(numbers) == 1 and numbers[0] == int(numbers[0]) else None

    def yes_or_no(self, keyword: str) -> bool | None:
        """Return True if an element is YES, False for NO, and None for anything else."""
        return {"YES": True, "NO": False}.get(self.word(keyword) or "")

    def items(self, sequence: str, keyword: str) -> list[str]:
        """Return the texts of `keyword` in the items of a sequence; items without a value are left out."""
        try:
            texts = [HeaderValues(item).text(keyword) for item in self._dataset.get(sequence) or ()]
        except Exception:  # a damaged sequence, or no sequence
            return []
        return [text for text in texts if text]

    def _values(self, keyword: str | int) -> list[Any]:
        from pydicom.datadict import dictionary_VR
        from pydicom.dataelem import RawDataElement

        try:
            element = self._dataset.get_item(keyword)
            if isinstance(element, RawDataElement):
                vr = dictionary_VR(element.tag) if element.VR in (None, "UN") else element.VR
                if vr in _TEXT_VRS:
                    return _decoded(element.value or b"").split("\\")
            value = self._dataset[keyword].value
        except Exception:  # absent, damaged, or not convertible
            return []
        if value is None or isinstance(value, bytes):
            return []
        return list(value) if isinstance(value, list | tuple) or hasattr(value, "append") else [value]


def _decoded(data: bytes) -> str:
    """Decode text as UTF-8 or else Latin-1; only manufacturers' names may contain non-ASCII characters."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
