"""Files written for tests and phantoms: pydicom reads them back, the bytes are always the same, and faults are as
requested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.dicom import write_dicom
from reveal_bench.dicom.write import TRANSFER_SYNTAXES
from tests.dicom.conftest import RAMP, Write


@pytest.mark.parametrize("transfer_syntax", TRANSFER_SYNTAXES)
@pytest.mark.parametrize("kind", ["u1", "u2", "i2"])
def test_pydicom_reads_the_same_values(
    tmp_path: Path, rng: np.random.Generator, transfer_syntax: str, kind: str
) -> None:
    import pydicom

    bits = 8 if kind == "u1" else 13
    low, high = (-(1 << bits - 1), 1 << bits - 1) if kind == "i2" else (0, 1 << bits)
    pixels = rng.integers(low, high, (33, 35)).astype(kind)
    path = tmp_path / "x.dcm"
    write_dicom(path, pixels, {"Modality": "DX", "KVP": 85}, bits_stored=bits, transfer_syntax=transfer_syntax)
    data = path.read_bytes()
    dataset = pydicom.dcmread(path)
    assert dataset.file_meta.TransferSyntaxUID == TRANSFER_SYNTAXES[transfer_syntax]
    assert (dataset.Modality, dataset.KVP, dataset.BitsStored, dataset.HighBit) == ("DX", 85, bits, bits - 1)
    assert np.array_equal(dataset.pixel_array, pixels)
    write_dicom(path, pixels, {"Modality": "DX", "KVP": 85}, bits_stored=bits, transfer_syntax=transfer_syntax)
    assert path.read_bytes() == data


def test_attributes_have_the_last_word(write: Write) -> None:
    import pydicom

    attributes: dict[Any, Any] = {
        "SOPInstanceUID": "1.2.3",
        "HighBit": None,
        "Rows": 7,
        "PatientName": "A^B",
        "WindowCenter": "10\\20",
        "PixelSpacing": [0.1, 0.25],
        "ViewCodeSequence": [{"CodeValue": "R-10206", "CodingSchemeDesignator": "SRT"}],
        (0x0019, 0x0010, "LO"): "MAKER",
        (0x0019, 0x1010, "DS"): "1.5",
    }
    dataset = pydicom.dcmread(write(attributes))
    assert dataset.file_meta.MediaStorageSOPInstanceUID == dataset.SOPInstanceUID == "1.2.3"
    assert "HighBit" not in dataset
    assert (dataset.Rows, dataset.Columns, str(dataset.PatientName)) == (7, 4, "A^B")
    assert (list(dataset.WindowCenter), list(dataset.PixelSpacing)) == ([10, 20], [0.1, 0.25])
    assert dataset.ViewCodeSequence[0].CodeValue == "R-10206"
    assert dataset[0x00191010].value == 1.5


def test_text_is_written_unchanged_where_a_number_belongs(write: Write) -> None:
    assert b"KVP?" not in write({}).read_bytes()
    assert b"DS\x04\x00KVP?" in write({"KVP": "KVP?"}).read_bytes()


def test_negative_values_of_ambiguous_elements_are_signed(write: Write) -> None:
    import pydicom

    dataset = pydicom.dcmread(write({"PixelPaddingValue": -2}, RAMP.astype(np.int8) - 8))
    assert (dataset["PixelPaddingValue"].VR, dataset.PixelPaddingValue) == ("SS", -2)


@pytest.mark.parametrize(
    ("pixels", "options", "message"),
    [
        (RAMP[0], {}, r"`pixels` must be a 2-D integer array, got shape \(4,\)"),
        (RAMP / 2, {}, "of float64"),
        (RAMP[:0], {}, r"got shape \(0, 4\)"),
        (RAMP, {"bits_stored": 3}, r"must be in \[0, 7\] \(3 bits\), got \[0, 15\]"),
        (RAMP.astype(np.int16), {}, r"must be in \[-8, 7\] \(4 bits\), got \[0, 15\]"),
        (RAMP, {"bits_stored": 17}, r"`bits_stored` must be in \[1, 16\], got 17"),
        (RAMP, {"transfer_syntax": "jpeg"}, "must be one of implicit, explicit"),
        (RAMP, {"transfer_syntax": "rle", "meta_header": False}, "needs a meta header"),
        (RAMP, {"transfer_syntax": "jpeg2000-lossless"}, "sides of at least 32"),
    ],
)
def test_refused(tmp_path: Path, pixels: np.ndarray, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_dicom(tmp_path / "x.dcm", pixels, {}, **{"bits_stored": 4, **options})
    assert not (tmp_path / "x.dcm").exists()


def test_an_unknown_keyword(write: Write) -> None:
    with pytest.raises(ValueError, match="no DICOM keyword 'KvP'"):
        write({"KvP": 1})
