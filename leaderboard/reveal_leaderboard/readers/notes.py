"""Notes on an image's display in words for a reader: the pixel pipeline's warnings without names of DICOM elements.

The warnings are those of :mod:`reveal_bench.dicom.display` and :mod:`reveal_bench.dicom.decode`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOTES = (
    (r"no usable VOI LUT or window", "The file has no usable display window"),
    (r"voi .* is unusable", "A display window of the file is unusable"),
    (r".*, and no other way shows more", "No window shows this image well"),
    (r"full range: .*, so it uses", "Full range shows too little: opened at the image's own range"),
    (r".*, so it uses the full range", "The file's window shows too little: full range shown"),
    (r".*, so it uses the range of", "The file's window shows too little: opened at the image's own range"),
    (r".*, so it uses the voi", "The file's first window shows too little: another one shown"),
    (r"VOILUTSequence only reaches", "Dark by the file's own display table"),
    (r"FOR PROCESSING", "Raw detector image, not processed for reading"),
    (r"PresentationLUTShape", "The file contradicts itself on black and white: check, invert if wrong"),
    (r"only one of RescaleSlope", "Incomplete scale of values in the file: pixel values as stored"),
    (r"HighBit is missing", "Incomplete pixel format in the file: usual format assumed"),
    (r"uses \d+ bits", "The file contradicts itself on bit depth: check the contrast"),
    (r".*beyond BitsStored", "Some pixels exceed the file's bit depth: their grey may be wrong"),
)
"""Pattern at the start of a warning -> note. The first that matches is used."""


def reader_notes(warnings: Iterable[str]) -> list[str]:
    """Return each different note once; a warning without a note stays as it is.

    >>> reader_notes(["FOR PROCESSING: raw detector values, not yet processed for display", "HighBit is odd"])
    ['Raw detector image, not processed for reading', 'HighBit is odd']
    """
    return list(dict.fromkeys(map(_note, warnings)))


def _note(warning: str) -> str:
    return next((note for pattern, note in _NOTES if re.match(pattern, warning)), warning)
