"""A small encoder of lossless JPEG (ITU-T T.81 H): predictor 1, one Huffman table whose 17 codes all have 5 bits.

No permitted library writes such streams. What it encodes is what a decoder must give.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from reveal_bench.dicom import write_dicom

LOSSLESS_57, LOSSLESS_70 = "1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70"
BASELINE_50 = "1.2.840.10008.1.2.4.50"


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def frame(size: tuple[int, int], bits: int, marker: int = 0xC3) -> bytes:
    return segment(marker, struct.pack(">BHHB", bits, *size, 1) + bytes([1, 0x11, 0]))


HUFFMAN = segment(0xC4, bytes([0]) + bytes([0, 0, 0, 0, 17, *[0] * 11]) + bytes(range(17)))
SCAN = segment(0xDA, bytes([1, 1, 0, 1, 0, 0]))


def lossless(pixels: np.ndarray, bits: int) -> bytes:
    """Stream of unsigned values of `bits` bits."""
    head = b"\xff\xd8" + frame(pixels.shape, bits) + HUFFMAN + SCAN
    return head + entropy_coded(pixels, bits) + b"\xff\xd9"


def entropy_coded(pixels: np.ndarray, bits: int) -> bytes:
    values = pixels.astype(int)
    predicted = np.empty_like(values)
    predicted[:, 1:] = values[:, :-1]
    predicted[1:, 0] = values[:-1, 0]
    predicted[0, 0] = 1 << (bits - 1)
    text = "".join(_code(int(difference)) for difference in (values - predicted).ravel())
    text += "1" * (-len(text) % 8)
    data = bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))
    return data.replace(b"\xff", b"\xff\x00")


def _code(difference: int) -> str:
    difference = (difference + (1 << 15)) % (1 << 16) - (1 << 15)
    if difference == -(1 << 15):
        return format(16, "05b")
    size = abs(difference).bit_length()
    bits = difference if difference > 0 else difference + (1 << size) - 1
    return format(size, "05b") + (format(bits, f"0{size}b") if size else "")


def baseline(pixels: np.ndarray, **options: int) -> bytes:
    """As Pillow writes it."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def write_stream(path: Path, stream: bytes, pixels: np.ndarray, bits: int, syntax: str) -> Path:
    """A DICOM file that holds `stream`, said to be of `pixels`."""
    import pydicom
    from pydicom.encaps import encapsulate

    write_dicom(path, pixels, {}, bits_stored=bits)
    dataset = pydicom.dcmread(path)
    dataset.PixelData = encapsulate([stream])
    dataset["PixelData"].VR = "OB"
    dataset["PixelData"].is_undefined_length = True
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    dataset.save_as(path)
    return path
