"""The pixel pipeline: conversion of a DICOM file to an 8-bit grey PNG as viewers show it, with a record of all steps.

decode -> modality -> VOI -> invert if MONOCHROME1 -> 8 bits -> PNG. :mod:`reveal_bench.dicom.display` lists the choices
where DICOM is ambiguous. The text `pipeline` names every step for a picture. It starts with :data:`PIPELINE`, which
must change whenever the grey levels for the same file would change.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reveal_bench.dicom import decode as decoding
from reveal_bench.dicom import display
from reveal_bench.dicom.dataset import HeaderValues, quiet_pydicom, read_dataset, refuse_damage, transfer_syntax
from reveal_bench.dicom.files import DicomError, DicomFile
from reveal_bench.dicom.header import pixel_spacing

PIPELINE = "dicom-v2"


KEYWORDS: tuple[str | int, ...] = (
    *decoding.KEYWORDS, *decoding.OVERLAY_POSITIONS, *display.KEYWORDS, "PixelSpacing", "ImagerPixelSpacing",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DicomPng:
    """A PNG made from a DICOM file, with hashes.

    Attributes
    ----------
    data : bytes
        PNG, 8-bit grey, 0 is black.
    size : (int, int)
        Height, width.
    source_sha256 : str
        SHA-256 of the DICOM file or archive member.
    pixel_sha256 : str
        SHA-256 of the 8-bit grey levels, row by row.
    pipeline : str
        Every step, such as "dicom-v2: gdcm 3.2.6 -> modality slope/intercept -> voi window 1 of 3 LINEAR ->
        invert (MONOCHROME1) -> 8 bit -> png cv2 5.0.0.93".
    warnings : tuple of str
        Notes on the file's display settings that a maintainer should check; they never quote other elements.
    fault : str
        What is wrong with the contrast, such as "every pixel is black"; "" if nothing.
    """

    data: bytes = field(repr=False)
    size: tuple[int, int]
    source_sha256: str
    pixel_sha256: str
    pipeline: str
    warnings: tuple[str, ...] = ()
    fault: str = ""


def develop_dicom(file: Path | DicomFile) -> DicomPng:
    """Convert a single-frame grey DICOM file to an 8-bit PNG.

    Raises
    ------
    DicomError
        If the file cannot be read, contains no single-frame grey picture, or no permitted decoder can decode it; the
        message does not name the file.
    ImportError
        If pydicom is not installed.
    """
    source = DicomFile.of(file).read()
    picture = read_pixels(source)
    levels = picture.levels()
    data, encoder = encode_png(levels)
    return DicomPng(
        data,
        picture.size,
        hashlib.sha256(source).hexdigest(),
        hashlib.sha256(levels.data).hexdigest(),
        f"{PIPELINE}: {' -> '.join((picture.decoder, *picture.choice.steps, encoder))}",
        picture.warnings,
        picture.choice.fault,
    )


@dataclass(frozen=True, slots=True)
class StoredPicture:
    """The stored values of a DICOM file with the chosen display.

    Attributes
    ----------
    patterns : uint8 or uint16 array, shape (height, width)
        The bits of each pixel as stored.
    decoder : str
        Name and version of the decoder.
    plan : Plan
        The displays that the file offers, and its padding.
    choice : ChosenDisplay
        The display.
    warnings : tuple of str
        Notes on the values and the display.
    spacing_mm, spacing_source : (float, float) or None, str
        As in :class:`~reveal_bench.dicom.header.Header`.
    """

    patterns: npt.NDArray[np.unsignedinteger]
    decoder: str
    plan: display.Plan
    choice: display.ChosenDisplay
    warnings: tuple[str, ...]
    spacing_mm: tuple[float, float] | None
    spacing_source: str

    @property
    def size(self) -> tuple[int, int]:
        """Height, width."""
        height, width = self.patterns.shape
        return height, width

    def levels(self) -> npt.NDArray[np.uint8]:
        """Return the grey levels, shape (height, width); 0 is black."""
        table = display.grey_table(self.choice.display, container_bits=8 * self.patterns.dtype.itemsize)
        return np.take(table, self.patterns)


def read_pixels(source: bytes) -> StoredPicture:
    """Decode the bytes of a DICOM file and choose its display; raises the errors of :func:`develop_dicom`."""
    with quiet_pydicom():
        dataset, has_pixels = read_dataset(io.BytesIO(source), KEYWORDS, pixels=True)
        if not has_pixels:
            raise DicomError("no pixel data")
        with refuse_damage():
            stored = dataset.get("PixelData")
        if not stored:
            raise DicomError("no integer pixel data, or the file is truncated within them")
        if not isinstance(stored, bytes):
            raise DicomError("pixel data with a VR other than OB or OW")
        size = decoding.frame_size(dataset)
        plan = display.plan_display(dataset)
        decoded = decoding.decode(dataset, transfer_syntax(dataset), size)
        spacing = pixel_spacing(HeaderValues(dataset))
    choice = display.choose_display(plan, decoded.patterns, decoded.stream_bits)
    warnings = (*decoded.warnings, *choice.warnings)
    return StoredPicture(decoded.patterns, decoded.decoder, plan, choice, warnings, *spacing)


def encode_png(levels: npt.NDArray[np.uint8]) -> tuple[bytes, str]:
    """Return (bytes of a PNG file, name of the encoder): OpenCV if installed, else Pillow at level 1, half as fast."""
    try:
        import cv2
    except ImportError:
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(levels).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue(), f"png pillow {version('pillow')} level 1"
    _, data = cv2.imencode(".png", levels)
    return data.tobytes(), f"png cv2 {cv2.__version__}"
