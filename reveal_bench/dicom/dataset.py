"""Opens a file with pydicom without warnings and within bounds, and reads the values of only the requested elements.

A file without preamble and meta header is read as a bare data set: explicit VR if its first element shows one,
otherwise Implicit VR Little Endian, the default of DICOM (PS3.5 section 10).

:class:`HeaderValues` reads single values tolerantly: a value of the wrong kind counts as absent, and no method raises.
Text is decoded from the raw bytes and not converted by pydicom, which raises an error if a decimal string has letters.
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
"""Float, Double Float and integer Pixel Data. Elements after them are not needed."""


@contextmanager
def quiet_pydicom() -> Iterator[ModuleType]:
    """Yield pydicom with its warnings silenced, because our own errors report all that matters.

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
    """Import pydicom, and prevent that gdcm imports a user's folder ``dl`` as the module of Python 2."""
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
    """Turn the errors that pydicom raises about a damaged file, which are of many kinds, into a :class:`DicomError`.

    pydicom converts an element when its value is accessed, so this is needed there as well as for reading the file.
    Errors of the disk pass unchanged.
    """
    try:
        yield
    except DicomError:
        raise
    except MemoryError:
        raise DicomError("an element claims more bytes than memory holds") from None
    except Exception as error:  # its text may quote header values
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DicomError(f"damaged: pydicom stops with {type(error).__name__}") from None


def read_dataset(stream: BinaryIO, keywords: Iterable[str], *, pixels: bool) -> tuple[Dataset, bool]:
    """Read only the meta header and the elements named `keywords`; with `pixels`, also Pixel Data.

    The caller must be within :func:`quiet_pydicom`, also while it accesses values of the data set.

    Returns
    -------
    dataset : pydicom Dataset
    has_pixels : bool
        True if the file has a non-empty pixel data element, which is not read.

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

    tags: list[BaseTag | int] = [tag for keyword in keywords if (tag := tag_for_keyword(keyword)) is not None]
    with refuse_damage():
        _check_inflated_size(stream)
        dataset = read_partial(stream, is_at_pixels, force=True, specific_tags=[*tags, *PIXEL_TAGS])
    if not len(dataset) and not offsets:
        raise DicomError("holds no element that a radiograph has")
    return dataset, bool(offsets and offsets[0])


def _check_inflated_size(stream: BinaryIO) -> None:
    """Refuse a deflated data set that is too large, because pydicom inflates without a limit.

    Rewind `stream` to its start.
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
    """Return the transfer syntax UID of the meta header or, if it is missing, the one found when reading the data set.

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
"""Largest number of characters of a value in the representations read here (LO, UI)."""

_TEXT_VRS = {
    "AE", "AS", "CS", "DA", "DS", "DT", "IS", "LO", "LT", "PN", "SH", "ST", "TM", "UC", "UI", "UR", "UT",
}  # fmt: skip


class HeaderValues:
    """The values of `dataset`, by keyword."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def texts(self, keyword: str) -> list[str]:
        """Return all values as text without padding; [] if absent or empty.

        Overlong or unprintable values are returned as empty text.
        """
        values = [str(value).strip(" \0") for value in self._values(keyword)]
        values = [value if len(value) <= _LONGEST and value.isprintable() else "" for value in values]
        return values if any(values) else []

    def text(self, keyword: str) -> str | None:
        """Return the value as text; None if it is absent or empty, or if there are several."""
        values = self.texts(keyword)
        return values[0] if len(values) == 1 else None

    def word(self, keyword: str) -> str | None:
        """Return the value in capitals."""
        text = self.text(keyword)
        return text.upper() if text else None

    def numbers(self, keyword: str) -> list[float]:
        """Return all values as finite numbers; [] if absent or one is not a number."""
        try:
            numbers = [float(text) for text in self.texts(keyword)]
        except ValueError:
            return []
        return numbers if all(map(math.isfinite, numbers)) else []

    def positive(self, keyword: str) -> float | None:
        """Return the value if it is one number above 0."""
        numbers = self.numbers(keyword)
        return numbers[0] if len(numbers) == 1 and numbers[0] > 0 else None

    def integer(self, keyword: str) -> int | None:
        """Return the value if it is one whole number."""
        numbers = self.numbers(keyword)
        return int(numbers[0]) if len(numbers) == 1 and numbers[0] == int(numbers[0]) else None

    def yes_or_no(self, keyword: str) -> bool | None:
        """Return True for YES, False for NO and None for anything else."""
        return {"YES": True, "NO": False}.get(self.word(keyword) or "")

    def items(self, sequence: str, keyword: str) -> list[str]:
        """Return the values of `keyword` in the items of a sequence; items without a value are left out."""
        try:
            texts = [HeaderValues(item).text(keyword) for item in self._dataset.get(sequence) or ()]
        except Exception:  # a damaged sequence, or not a sequence
            return []
        return [text for text in texts if text]

    def _values(self, keyword: str) -> list[Any]:
        from pydicom.datadict import dictionary_VR
        from pydicom.dataelem import RawDataElement

        try:
            element = self._dataset.get_item(keyword)
            if isinstance(element, RawDataElement):
                vr = dictionary_VR(element.tag) if element.VR in (None, "UN") else element.VR
                if vr in _TEXT_VRS:
                    return _decoded(element.value or b"").split("\\")
            value = self._dataset[keyword].value
        except Exception:  # absent, damaged, or in no representation of its kind
            return []
        if value is None or isinstance(value, bytes):
            return []
        return list(value) if isinstance(value, list | tuple) or hasattr(value, "append") else [value]


def _decoded(data: bytes) -> str:
    """Decode text as UTF-8 or else Latin-1: of the values read here only a manufacturer's name may not be ASCII."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
