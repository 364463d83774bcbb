"""Developing synthetic 4 x 4 files: every display branch from header to PNG, and everything that must be refused."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.dicom import PIPELINE, DicomError, develop_dicom, write_dicom
from tests.dicom.conftest import RAMP, Write, grey

FULL = [17 * value for value in range(16)]
LUT = {"LUTDescriptor": [4, 2, 8], "LUTData": [0, 64, 128, 255]}
LUT_GREY = [0, 0, 0, 64, 128, *[255] * 11]


@pytest.mark.parametrize(
    ("attributes", "options", "expected", "steps"),
    [
        ({}, {}, FULL, "no modality step -> full range -> 8 bit"),
        ({}, {"photometric": "MONOCHROME1"}, FULL[::-1], "no modality step -> full range -> invert (MONOCHROME1)"),
        (
            {"PresentationLUTShape": "INVERSE"},
            {"photometric": "MONOCHROME1"},
            FULL[::-1],
            "full range -> invert (MONOCHROME1) -> 8 bit",
        ),
        ({"PresentationLUTShape": "INVERSE"}, {}, FULL, "full range -> 8 bit"),
        # black and white only, then black only: the window in the middle is the first that shows something
        ({"WindowCenter": "8\\100\\8", "WindowWidth": "1\\50\\16"}, {}, FULL, "voi window 3 of 3 LINEAR ->"),
        ({"WindowCenter": "8\\100\\200", "WindowWidth": "1\\50\\50"}, {}, FULL, "full range ->"),
        (
            {"WindowCenter": [8], "WindowWidth": [8], "VOILUTFunction": "LINEAR_EXACT"},
            {},
            [0, 0, 0, 0, 0, 32, 64, 96, 128, 159, 191, 223, 255, 255, 255, 255],
            "voi window 1 of 1 LINEAR_EXACT ->",
        ),
        ({"RescaleSlope": "-1", "RescaleIntercept": "15"}, {}, FULL[::-1], "modality slope/intercept -> full range"),
        ({"VOILUTSequence": [LUT]}, {}, LUT_GREY, "voi lut 1 of 1 ->"),
        # a table goes before a window, and the first of two is taken
        (
            {
                "VOILUTSequence": [LUT, {"LUTDescriptor": [1, 0, 8], "LUTData": [9]}],
                "WindowCenter": 8,
                "WindowWidth": 1,
            },
            {},
            LUT_GREY,
            "voi lut 1 of 2 ->",
        ),
        (
            {"ModalityLUTSequence": [{"LUTDescriptor": [3, 0, 8], "LUTData": [200, 100, 0]}]},
            {},
            [200, 100, *[0] * 14],
            "modality lut -> full range ->",
        ),
        # padding takes the grey of its value
        ({"PixelPaddingValue": 3}, {}, FULL, "full range -> 8 bit"),
    ],
)
@pytest.mark.parametrize("transfer_syntax", ["explicit", "implicit", "deflated"])
def test_display_by_hand(
    write: Write, attributes: dict[str, Any], options: dict[str, Any], expected: list[int], steps: str,
    transfer_syntax: str,
) -> None:  # fmt: skip
    levels, developed = grey(write(attributes, transfer_syntax=transfer_syntax, **options))
    assert levels == expected
    assert steps in developed.pipeline
    assert developed.pipeline.startswith(f"{PIPELINE}: pydicom ")


@pytest.mark.parametrize("transfer_syntax", ["explicit", "deflated", "rle", "jpeg2000-lossless", "jpegls-lossless"])
@pytest.mark.parametrize(("bits", "kind"), [(8, "u1"), (10, "u2"), (12, "u2"), (15, "u2"), (16, "u2"), (12, "i2")])
def test_lossless_syntaxes_give_the_same_grey_levels(
    write: Write, rng: np.random.Generator, transfer_syntax: str, bits: int, kind: str
) -> None:
    low, high = (-(1 << bits - 1), 1 << bits - 1) if kind[0] == "i" else (0, 1 << bits)
    pixels = rng.integers(low, high, (40, 33)).astype(kind)
    attributes = {"HighBit": None} if bits == 10 else {}  # missing in some collections; no decoder may need it
    levels, _ = grey(write(attributes, pixels, bits=bits, transfer_syntax=transfer_syntax))
    expected = np.rint((pixels.astype(float) - low) / (high - 1 - low) * 255)
    assert levels == expected.ravel().astype(int).tolist()


def test_a_table_of_bytes_packed_in_words(write: Write) -> None:
    item = {"LUTDescriptor": [4, 2, 8], (0x0028, 0x3006, "OW"): bytes([0, 64, 128, 255])}
    assert grey(write({"VOILUTSequence": [item]}))[0] == LUT_GREY


def test_first_value_of_a_table_is_signed_where_its_input_is(write: Write) -> None:
    item = {"LUTDescriptor": [3, 65534, 8], "LUTData": [0, 100, 255]}  # 65534 is -2
    signed = write({"VOILUTSequence": [item]}, np.array([[-3, -2, -1, 0, 1]], dtype=np.int8), bits=4)
    assert grey(signed)[0] == [0, 0, 100, 255, 255]
    shifted = {"VOILUTSequence": [item], "RescaleSlope": 1, "RescaleIntercept": -8}
    assert grey(write(shifted))[0] == [0] * 7 + [100] + [255] * 8


def test_hashes_are_those_of_file_and_grey_levels(write: Write) -> None:
    path = write({})
    levels, developed = grey(path)
    assert developed.source_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert developed.pixel_sha256 == hashlib.sha256(bytes(levels)).hexdigest()
    assert developed.size == (4, 4)
    assert develop_dicom(path) == developed


def test_a_file_without_preamble_and_meta_header(write: Write) -> None:
    for transfer_syntax in ("implicit", "explicit"):
        path = write({"Modality": "CR"}, transfer_syntax=transfer_syntax, meta_header=False)
        assert path.read_bytes()[:2] == b"\x08\x00"
        assert grey(path)[0] == FULL


@pytest.mark.parametrize(
    ("attributes", "options", "warning"),
    [
        ({}, {}, "no usable VOI LUT or window"),
        ({"HighBit": None}, {}, "HighBit is missing, so BitsStored - 1 is used"),
        ({"PresentationLUTShape": "INVERSE"}, {}, "contradicts MONOCHROME2 and is ignored: not inverted, got INVERSE"),
        (
            {"PresentationLUTShape": "IDENTITY"},
            {"photometric": "MONOCHROME1"},
            "contradicts MONOCHROME1 and is ignored: inverted, got IDENTITY",
        ),
        ({"RescaleSlope": 2}, {}, "only one of RescaleSlope and RescaleIntercept is given"),
        ({"WindowWidth": 2}, {}, "only one of WindowCenter and WindowWidth is given"),
        ({"PresentationIntentType": "FOR PROCESSING"}, {}, "raw detector values"),
        (
            {"VOILUTSequence": [{"LUTDescriptor": [2, 0, 16], "LUTData": [0, 4095]}]},
            {},
            "VOILUTSequence only reaches 4095 of 65535, so the picture is dark",
        ),
    ],
)
def test_facts_for_the_maintainer_are_warnings(
    write: Write, attributes: dict[str, Any], options: dict[str, Any], warning: str
) -> None:
    assert any(warning in text for text in develop_dicom(write(attributes, **options)).warnings)


def test_a_tidy_file_gives_no_warning(write: Write) -> None:
    tidy = {"WindowCenter": 8, "WindowWidth": 16, "PresentationLUTShape": "IDENTITY", "RescaleSlope": 1}
    assert develop_dicom(write({**tidy, "RescaleIntercept": 0})).warnings == ()


REFUSED: list[tuple[dict[Any, Any], str]] = [
    # missing elements
    ({"PixelData": None}, "no pixel data"),
    ({"PixelData": b""}, "no pixel data"),
    ({"Rows": None}, "Rows and Columns must be above 0, got None and 4"),
    ({"BitsStored": None}, r"BitsStored must be in \[1, 16\], got None"),
    ({"BitsAllocated": None}, "BitsAllocated must be 8 or 16, got None"),
    ({"PixelRepresentation": None}, "PixelRepresentation must be 0 or 1, got None"),
    ({"PhotometricInterpretation": None}, "must be MONOCHROME1 or MONOCHROME2, got None"),
    # anything but a single grey frame
    ({"SamplesPerPixel": 3}, "SamplesPerPixel must be 1, got 3"),
    ({"PhotometricInterpretation": "RGB"}, "must be MONOCHROME1 or MONOCHROME2, got RGB"),
    ({"PhotometricInterpretation": "PALETTE COLOR"}, "got PALETTE COLOR"),
    ({"NumberOfFrames": "3"}, "contains 3 frames instead of one"),
    # wrong sizes
    ({"Rows": 0}, "must be above 0, got 0 and 4"),
    ({"Rows": 5}, "truncated: pixel data of 16 bytes instead of 20"),
    ({"Rows": 60000, "Columns": 60000}, "60000 x 60000 pixels; at most 100,000,000"),
    ({"BitsAllocated": 32}, "BitsAllocated must be 8 or 16, got 32"),
    ({"BitsStored": 17}, r"BitsStored must be in \[1, 16\], got 17"),
    ({"BitsStored": 12, "HighBit": 11}, "BitsStored 12 is more than BitsAllocated 8"),
    ({"HighBit": 7}, r"HighBit must be BitsStored - 1 \(3\), got 7"),
    # modality steps that cannot be followed
    ({"RescaleSlope": "0", "RescaleIntercept": "1"}, "RescaleSlope must not be 0"),
    ({"RescaleSlope": "1e308", "RescaleIntercept": "0"}, "must keep the values finite and different"),
    ({"RescaleSlope": "1", "RescaleIntercept": "1e30"}, "must keep the values finite and different"),
    ({"ModalityLUTSequence": [{"LUTDescriptor": [2, 0], "LUTData": [0, 1]}]}, "a descriptor of 2 values instead of 3"),
]


@pytest.mark.parametrize(("attributes", "reason"), REFUSED)
def test_refused(write: Write, attributes: dict[Any, Any], reason: str) -> None:
    with pytest.raises(DicomError, match=reason):
        develop_dicom(write(attributes))


def test_files_that_are_none(tmp_path: Path) -> None:
    for data, reason in (
        (b"", "an empty file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "not DICOM"),
        (b"a,b\n", "not DICOM"),
    ):
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(DicomError, match=reason):
            develop_dicom(tmp_path / "x")
    with pytest.raises(DicomError, match="no such file"):
        develop_dicom(tmp_path / "y")
    with pytest.raises(DicomError, match="not a regular file"):
        develop_dicom(tmp_path)


@pytest.mark.parametrize(
    "transfer_syntax", ["explicit", "implicit", "deflated", "rle", "jpeg2000-lossless", "jpegls-lossless"]
)
def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, rng: np.random.Generator, transfer_syntax: str) -> None:
    path = tmp_path / "x.dcm"
    pixels = rng.integers(0, 4096, (32, 32)).astype(np.uint16)
    write_dicom(path, pixels, {"Modality": "CR"}, bits_stored=12, transfer_syntax=transfer_syntax)
    data = path.read_bytes()
    for share in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        path.write_bytes(data[: int(share * len(data))])
        with pytest.raises(DicomError):
            develop_dicom(path)


def test_a_compressed_stream_larger_than_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "x.dcm"
    for transfer_syntax in ("jpeg2000-lossless", "jpegls-lossless"):
        pixels = np.zeros((64, 64), np.uint16)
        write_dicom(path, pixels, {"Rows": 8, "Columns": 8}, bits_stored=12, transfer_syntax=transfer_syntax)
        with pytest.raises(DicomError, match=r"the compressed picture is \(64, 64\), but the header states \(8, 8\)"):
            develop_dicom(path)


def test_pixel_data_of_another_syntax_than_declared(tmp_path: Path) -> None:
    path = tmp_path / "x.dcm"
    write_dicom(path, RAMP, {}, bits_stored=8, transfer_syntax="rle")
    declared, other = b"1.2.840.10008.1.2.5\x00", b"1.2.840.10008.1.2.4.90"
    data = path.read_bytes()
    at = data.index(declared)
    path.write_bytes(data[: at - 2] + len(other).to_bytes(2, "little") + other + data[at + len(declared) :])
    with pytest.raises(DicomError, match=r"do not match the transfer syntax JPEG 2000"):
        develop_dicom(path)


def test_an_unknown_transfer_syntax(tmp_path: Path) -> None:
    path = tmp_path / "x.dcm"
    write_dicom(path, RAMP, {}, bits_stored=8)
    path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.1.2.1\x00", b"1.2.840.10008.1.2.7\x00"))
    with pytest.raises(DicomError, match=r"transfer syntax 1.2.840.10008.1.2.7: not supported"):
        develop_dicom(path)


def test_without_opencv_pillow_writes_the_same_grey_levels(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    path = write({})
    levels, with_opencv = grey(path)
    monkeypatch.setitem(sys.modules, "cv2", None)
    again, without = grey(path)
    assert again == levels
    assert without.pixel_sha256 == with_opencv.pixel_sha256
    assert "png pillow" in without.pipeline
    assert "png cv2" in with_opencv.pipeline


def jpeg_baseline(write: Write, picture: np.ndarray) -> tuple[Path, io.BytesIO]:
    """A DICOM file with a baseline JPEG, and the JPEG."""
    import pydicom
    from PIL import Image
    from pydicom.encaps import encapsulate

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=90)
    path = write({}, picture, bits=8)
    dataset = pydicom.dcmread(path)
    dataset.PixelData = encapsulate([buffer.getvalue()])
    dataset["PixelData"].VR = "OB"
    dataset["PixelData"].is_undefined_length = True
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.JPEGBaseline8Bit
    dataset.save_as(path)
    return path, buffer


SMOOTH = np.add.outer(np.arange(48) * 2, np.arange(64) * 2).astype(np.uint8)


def test_jpeg_baseline_as_pillow_shows_it(write: Write) -> None:
    from PIL import Image

    path, buffer = jpeg_baseline(write, SMOOTH)
    levels, developed = grey(path)
    grey_levels = np.asarray(Image.open(buffer)).ravel().astype(int)
    assert np.abs(np.array(levels) - grey_levels).max() <= 1
    assert developed.pipeline.startswith("dicom-v2: gdcm ")


def test_a_baseline_jpeg_in_16_bits_is_refused_in_our_words(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    import pydicom

    path, _ = jpeg_baseline(write, SMOOTH)
    dataset = pydicom.dcmread(path)
    dataset.BitsAllocated = 16
    dataset.save_as(path)
    with pytest.raises(DicomError, match=r"needs BitsAllocated 8, got 16: not supported"):
        develop_dicom(path)
    assert capfd.readouterr().err == ""


UNUSABLE: list[tuple[dict[Any, Any], str]] = [
    ({"WindowCenter": "abc", "WindowWidth": "8"}, "WindowCenter must be a number, got 'abc'"),
    ({"WindowCenter": "nan", "WindowWidth": "8"}, "WindowCenter must be a number, got 'nan'"),
    ({"WindowCenter": "8", "WindowWidth": "0"}, "WindowWidth must be at least 1 for LINEAR, got 0"),
    ({"WindowCenter": "8", "WindowWidth": "0.5"}, "WindowWidth must be at least 1 for LINEAR, got 0.5"),
    (
        {"WindowCenter": "8", "WindowWidth": "0", "VOILUTFunction": "SIGMOID"},
        "WindowWidth must be above 0 for SIGMOID, got 0",
    ),
    ({"WindowCenter": "8", "WindowWidth": "8", "VOILUTFunction": "CUBIC"}, "VOILUTFunction must be one of LINEAR"),
    ({"VOILUTSequence": [{}]}, "VOILUTSequence has no usable LUTDescriptor"),
    (
        {"VOILUTSequence": [{"LUTDescriptor": [4, 0, 10], "LUTData": [0, 1]}]},
        "contains 2 entries, but its descriptor states 4",
    ),
    ({"VOILUTSequence": [{"LUTDescriptor": [2, 0, 10], "LUTData": [0, 1024]}]}, "which exceeds its 10 bits"),
    ({"VOILUTSequence": [{"LUTDescriptor": [1, 0, 4], "LUTData": [0]}]}, "entries of 8 to 16 bits, got 4"),
]


@pytest.mark.parametrize(("attributes", "reason"), UNUSABLE)
def test_an_unusable_window_or_table_leaves_the_film_with_a_warning(
    write: Write, attributes: dict[Any, Any], reason: str
) -> None:
    levels, developed = grey(write(attributes))
    assert levels == FULL
    assert any("is unusable" in text and reason in text for text in developed.warnings)


LIFTED = np.arange(100, 116, dtype=np.uint16).reshape(4, 4)
"""Values 100 to 115 of 4,096: almost nothing of the full range."""


@pytest.mark.parametrize(
    ("attributes", "pixels", "expected", "warning"),
    [
        # a window far above the values, one far below, and a negative film
        ({"WindowCenter": 60000, "WindowWidth": 100}, RAMP, FULL, "voi window 1 of 1 LINEAR: every pixel is black, so"),
        ({"WindowCenter": -500, "WindowWidth": 100}, RAMP, FULL, "voi window 1 of 1 LINEAR: every pixel is white, so"),
        ({"VOILUTSequence": [{"LUTDescriptor": [2, 0, 8], "LUTData": [7, 7]}]}, RAMP, FULL, "grey level 7, so it uses"),
        ({}, LIFTED, FULL, "between grey levels 6 and 7 of 255, so it uses the range of the picture's values"),
        # padding does not count, but keeps the grey of its value: 0 is far below 100 to 115
        ({"PixelPaddingValue": 0}, np.where(LIFTED < 104, 0, LIFTED), None, "range of the picture's values"),
        ({}, np.full((4, 4), 7, np.uint16), [0] * 16, "full range: every pixel is black, and no other way shows more"),
        ({"PixelPaddingValue": 7}, np.full((4, 4), 7, np.uint16), [0] * 16, "full range: every pixel is black, and no"),
    ],
)
def test_a_film_that_would_show_nothing_is_shown_another_way(
    write: Write, attributes: dict[Any, Any], pixels: np.ndarray, expected: list[int] | None, warning: str
) -> None:
    bits = 4 if pixels is RAMP else 12
    levels, developed = grey(write(attributes, pixels, bits=bits))
    if expected is None:  # 104 to 115 from black to white: 255 / 11 a step, half to even
        expected = [0] * 4 + [round(255 * i / 11) for i in range(12)]
    assert levels == expected
    assert any(warning in text for text in developed.warnings), developed.warnings
    assert bool(developed.fault) == (len(set(levels)) == 1)


@pytest.mark.parametrize("transfer_syntax", ["jpeg2000-lossless", "jpegls-lossless"])
@pytest.mark.parametrize("bits_stored", [10, 16])
def test_depth_of_a_compressed_stream_takes_precedence(write: Write, transfer_syntax: str, bits_stored: int) -> None:
    pixels = (np.arange(4096, dtype=np.uint16) % 4096).reshape(64, 64)
    path = write({}, pixels, bits=12, transfer_syntax=transfer_syntax)
    import pydicom

    dataset = pydicom.dcmread(path)
    dataset.BitsStored, dataset.HighBit = bits_stored, bits_stored - 1
    dataset.save_as(path)
    levels, developed = grey(path)
    assert levels == np.rint(pixels.ravel() / 4095 * 255).astype(int).tolist()
    assert f"uses 12 bits, as in the compressed picture, instead of BitsStored {bits_stored}" in developed.warnings


@pytest.mark.parametrize("transfer_syntax", ["explicit", "rle"])
@pytest.mark.parametrize("has_overlay", [False, True])
def test_values_beyond_bits_stored_without_an_overlay_are_warned_of(
    write: Write, transfer_syntax: str, has_overlay: bool
) -> None:
    pixels = np.arange(64, dtype=np.uint16).reshape(8, 8)
    path = write({}, pixels, bits=6, transfer_syntax=transfer_syntax)
    import pydicom

    dataset = pydicom.dcmread(path)
    dataset.BitsStored, dataset.HighBit = 5, 4
    if has_overlay:
        dataset.add_new((0x6000, 0x0102), "US", 5)
    dataset.save_as(path)
    levels, developed = grey(path)
    assert levels == [round(255 * (i % 32) / 31) for i in range(64)]
    assert (
        "32 pixels have values beyond BitsStored (5), whose higher bits are ignored" in developed.warnings
    ) != has_overlay
