"""Films with odd headers, padding, borders and depths, held against pydicom's display functions and numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.pixels import apply_modality_lut, apply_voi_lut
from pydicom.uid import JPEGLosslessSV1

from reveal_bench.dicom.contrast import contrast_fault, counts_within_border
from reveal_bench.dicom.pixels import read_pixels
from tests.dicom.conftest import Write, grey
from tests.dicom.jpeg_streams import lossless, write_stream

FILM = np.add.outer(np.arange(64) * 28, np.arange(64) * 29).astype(np.uint16) + 200
"""12 bits: 200 to 3791, without a border of one value."""
NOISE = np.random.default_rng(7).integers(0, 16, (64, 64))


def framed(share: float, border: int = 0, film: np.ndarray = FILM) -> np.ndarray:
    """A film of 320 x 320 with the picture in the middle `share` of its area, and a border of one value."""
    side = round(320 * share**0.5)
    index = np.arange(side) * 64 // side
    whole = np.full((320, 320), border, film.dtype)
    start = (320 - side) // 2
    whole[start : start + side, start : start + side] = film[np.ix_(index, index)]
    return whole


def marked(film: np.ndarray, value: int) -> np.ndarray:
    """The film with a marker of 3 x 5 pixels."""
    film = film.copy()
    film[2:5, 2:7] = value
    return film


def lettered(value: int) -> np.ndarray:
    """A film of one value with a letter of 20 x 15 pixels, from grey to white."""
    film = np.full((320, 320), value)
    film[5:25, 5:20] = np.linspace(60, 255, 15)
    return film


def window(center: object, width: object, function: str | None = None, **others: Any) -> dict[Any, Any]:
    return {"WindowCenter": center, "WindowWidth": width, "VOILUTFunction": function, **others}


def table(first: int, entries: np.ndarray, bits: int) -> list[dict[str, Any]]:
    return [{"LUTDescriptor": [len(entries), first, bits], "LUTData": entries.astype(int).tolist()}]


HU = {"RescaleSlope": "1", "RescaleIntercept": "-1024"}
NEGATIVE = {"RescaleSlope": "-1", "RescaleIntercept": "4095"}
GOOD = window(2000, 3600)
ROOTS = table(0, np.sqrt(np.arange(4096) / 4095) * 65535, 16)
FALLING = table(0, np.arange(4096)[::-1] * 16, 16)
ALL = (0, 4095)
LOW = marked(FILM // 16, 65535)
MONO1 = {"photometric": "MONOCHROME1"}

Case = tuple[str, dict[Any, Any], np.ndarray, dict[str, Any], Any]
CASES: list[Case] = [
    # the header's way is kept: the number of its window (0 also for a table), applied by pydicom
    ("window", GOOD, FILM, {}, 0),
    ("whole range", window(2048, 4096), FILM, {}, 0),
    ("exact", window(2000, 3600, "LINEAR_EXACT"), FILM, {}, 0),
    ("sigmoid", window(2000, 1000, "SIGMOID"), FILM, {}, 0),
    ("three windows", window([2000, 1000, 3000], [3600, 800, 500]), FILM, {}, 0),
    ("explained", window([1800, 1000], [3000, 800], WindowCenterWidthExplanation=["A", "B"]), FILM, {}, 0),
    ("more centers", window("2000\\900", "3600"), FILM, {}, 0),
    ("90% clipped", window(2000, 180), FILM, {}, 0),
    ("96% clipped", window(2000, 75), FILM, {}, 0),
    ("shifted", window(3300, 2000), FILM, {}, 0),
    ("hounsfield", window(1000, 3600) | HU, FILM, {}, 0),
    ("window of stored values", GOOD | HU, FILM, {}, 0),
    ("inverse", GOOD | {"PresentationLUTShape": "INVERSE"}, FILM, MONO1, 0),
    ("identity", GOOD | {"PresentationLUTShape": "IDENTITY"}, FILM, MONO1, 0),
    ("contradiction", GOOD | {"PresentationLUTShape": "INVERSE"}, FILM, {}, 0),
    ("voi table", {"VOILUTSequence": ROOTS}, FILM, {}, 0),
    ("voi table inverted", {"VOILUTSequence": ROOTS}, FILM, MONO1, 0),
    ("table before window", {"VOILUTSequence": ROOTS} | window(9000, 1), FILM, {}, 0),
    ("dark table", {"VOILUTSequence": table(0, np.arange(4096) * 4, 16)}, FILM, {}, 0),
    ("modality table", window(32000, 57600) | {"ModalityLUTSequence": FALLING}, FILM, {}, 0),
    ("8 bits", window(128, 256), (FILM // 16).astype(np.uint8), {"bits": 8}, 0),
    ("signed", window(-48, 3600), (FILM.astype(np.int16) - 2048), {}, 0),
    ("underexposed", window(62, 112), FILM // 32, {}, 0),
    ("overexposed", window(2048, 4096), np.minimum(FILM * 2, 4095), {}, 0),
    ("60% black border", GOOD, framed(0.4), {}, 0),
    ("hand", GOOD, framed(0.04), {}, 0),
    ("hand on white", GOOD, framed(0.04, 4095), {}, 0),
    ("hand inverted", GOOD, framed(0.04), MONO1, 0),
    ("finger", GOOD, framed(0.015), {}, 0),
    ("hand and marker", GOOD, marked(framed(0.04), 4095), {}, 0),
    ("padding", GOOD | {"PixelPaddingValue": 0}, framed(0.04), {}, 0),
    ("padding range", GOOD | {"PixelPaddingValue": 0, "PixelPaddingRangeLimit": 150}, framed(0.03, 99), {}, 0),
    ("all is padding", GOOD | {"PixelPaddingValue": 0, "PixelPaddingRangeLimit": 4095}, FILM, {}, 0),
    ("signed padding", window(-48, 3600, PixelPaddingValue=-2048),
     framed(0.04, -2048, FILM.astype(np.int16) - 2048), {}, 0),
    # another window of the header
    ("second window", window([9000, 2000], [100, 3600]), FILM, {}, 1),
    ("width 0 first", window([2000, 2000], [0, 3600]), FILM, {}, 1),
    ("no number first", window("abc\\2000", "100\\3600"), FILM, {}, (200, 3799)),
    ("third window", window([-900, 2000, 1500], [100, 1, 2000]), FILM, {}, 2),
    # (black, white) in values after the modality step
    ("no window", {}, FILM, {}, ALL),
    ("above", window(9000, 100), FILM, {}, ALL),
    ("below", window(-500, 100), FILM, {}, ALL),
    ("below inverted", window(-500, 100), FILM, MONO1, ALL),
    ("width 0", window(2000, 0), FILM, {}, ALL),
    ("0 and 1", window(0, 1), FILM, {}, ALL),
    ("width 1", window(2000, 1), FILM, {}, ALL),
    ("width 2", window(2000, 2), FILM, {}, ALL),
    ("negative width", window(2000, -3600), FILM, {}, ALL),
    ("steep sigmoid", window(2000, 1, "SIGMOID"), FILM, {}, ALL),
    ("tiny width", window(2000, "1e-308", "LINEAR_EXACT"), FILM, {}, ALL),
    ("tiny sigmoid", window(2000, "1e-308", "SIGMOID"), FILM, {}, ALL),
    ("no width", {"WindowCenter": 2000}, FILM, {}, ALL),
    ("wrong units", window(2000, 1000, RescaleSlope="0.1", RescaleIntercept="0"), FILM, {}, (0, 409.5)),
    ("negative slope", NEGATIVE, FILM, {}, ALL),
    ("negative slope inverted", NEGATIVE, FILM, MONO1, ALL),
    ("table of 4 bits", {"VOILUTSequence": table(0, np.arange(16), 4)}, FILM, {}, ALL),
    ("table of 12 bits in 16", {"VOILUTSequence": table(0, np.arange(4096), 16)}, FILM, {}, ALL),
    ("window of 12 bits", window(2048, 4096), (FILM // 16).astype(np.uint8), {"bits": 8}, (0, 255)),
    ("12 bits in 16", {}, FILM, {"bits": 16}, (200, 3791)),
    # one marker at the highest value: 98% of the pixels are between the ends
    ("marker", {}, LOW, {"bits": 16}, tuple(np.quantile(LOW, (0.01, 0.99), method="inverted_cdf"))),
    # depth: bits of the stream, then BitsStored in the header
    *[
        (f"{syntax} of {bits} in {stored}", {}, FILM, {"bits": bits, "stored": stored, "transfer_syntax": syntax}, ALL)
        for syntax in ("jpeg2000-lossless", "jpegls-lossless")
        for bits, stored in ((12, 10), (12, 16), (16, 12))
    ],
    ("signed stream", window(-48, 3600), FILM.astype(np.int16) - 2048,
     {"bits": 12, "stored": 16, "transfer_syntax": "jpeg2000-lossless"}, 0),
    # 15 of 4,096 pixels are above 12 bits: the film keeps its depth
    ("stray", {}, marked(FILM, 0xF000), {"bits": 16, "stored": 12, "transfer_syntax": "jpegls-lossless"}, ALL),
    # an overlay in bit 12 of half of the pixels
    ("overlay", {"overlay": 12}, FILM | np.uint16(0x1000) * (NOISE > 7),
     {"bits": 16, "stored": 12, "transfer_syntax": "jpegls-lossless"}, ALL),
    ("native overlay", {"overlay": 12}, FILM | np.uint16(0x1000) * (NOISE > 7), {"bits": 16, "stored": 12}, ALL),
]  # fmt: skip


def write_odd(write: Write, attributes: dict[Any, Any], pixels: np.ndarray, options: dict[str, Any]) -> Path:
    """Write the film of a case, and return its file."""
    options, attributes = dict(options), {key: value for key, value in attributes.items() if value is not None}
    stored, overlay = options.pop("stored", None), attributes.pop("overlay", None)
    path = write(attributes, pixels, **{"bits": 12, **options})
    if stored is not None:
        dataset = pydicom.dcmread(path)
        dataset.BitsStored, dataset.HighBit = stored, stored - 1
        if overlay is not None:
            dataset.add_new((0x6000, 0x0102), "US", overlay)
        dataset.save_as(path)
    return path


@pytest.mark.parametrize(("attributes", "pixels", "options", "shown"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_odd_films_are_shown_as_a_radiologist_expects(
    write: Write, attributes: dict[Any, Any], pixels: np.ndarray, options: dict[str, Any], shown: Any
) -> None:
    path = write_odd(write, attributes, pixels, options)
    dataset = pydicom.dcmread(path)
    levels, developed = grey(path)
    values = pixels.astype(np.int64) & 0xFFF if options.get("stored") == 12 else pixels.astype(np.int64)
    low, high = (0, (1 << dataset.BitsStored) - 1) if isinstance(shown, int) else shown
    if isinstance(shown, int):
        values = apply_modality_lut(values.astype(pixels.dtype), dataset)
        values = apply_voi_lut(values, dataset, index=shown)
        if "ModalityLUTSequence" in dataset:
            high = 65535
        elif "VOILUTSequence" in dataset:
            high = (1 << dataset.VOILUTSequence[0].LUTDescriptor[2]) - 1
        elif dataset.PixelRepresentation:  # pydicom's windows end at the ends of the stored bits
            low, high = low - (high + 1) // 2, high - (high + 1) // 2
        elif "RescaleIntercept" in dataset:
            low, high = low - 1024, high - 1024
    elif "RescaleSlope" in dataset:
        values = values * float(dataset.RescaleSlope) + float(dataset.RescaleIntercept)
    expected = np.clip((values - low) / (high - low), 0, 1) * 255
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        expected = 255 - expected
    assert np.abs(np.array(levels).reshape(pixels.shape) - expected).max() <= 1
    assert developed.fault == ""


@pytest.mark.parametrize(
    ("levels", "fault"),
    [
        (framed(0.015, 0, FILM // 16), ""),
        (framed(0.015, 255, FILM // 16), ""),
        (FILM // 15, ""),
        (framed(0.5, 0, FILM * 0 + 9), "every pixel is grey level 9"),  # nothing within the border
        (lettered(0), "99.7% of the pixels are black or white"),
        (lettered(9), "98% of the pixels are between grey levels 9 and 9"),
        (FILM * 0, "every pixel is black"),
        (np.where(NOISE > 7, 0, 255), "100.0% of the pixels are black or white"),
    ],
)
def test_contrast_is_measured_within_a_border_of_one_value(levels: np.ndarray, fault: str) -> None:
    assert fault in contrast_fault(counts_within_border(levels.astype(np.uint8)))


PADDING, LIMIT = (0x0028, 0x0120), (0x0028, 0x0121)


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("value", "limit"),
    [(7, None), (7, 90), (90, 7), (None, 90), (-3, None), (-40, -3), (-3, -40), (65500, 65535), (5000, None), (-1, 0)],
)
def test_padding_is_the_pixels_that_pydicom_finds(
    write: Write, bits: int, signed: bool, value: int | None, limit: int | None
) -> None:
    """In a file with implicit VR, pydicom gives the 16 bits the sign of the pixels; US and SS may be wrong."""
    ends = [(tag, end) for tag, end in ((PADDING, value), (LIMIT, limit)) if end is not None]
    attributes = {(*tag, "SS" if end < 0 else "US"): end for tag, end in ends}
    pixels = np.arange(1 << bits).reshape(16, -1) - (1 << bits - 1) * signed
    pixels = pixels.astype(f"{'i' if signed else 'u'}{1 if bits == 8 else 2}")
    implicit, explicit = (
        write(attributes, pixels, bits=bits, name=f"{syntax}.dcm", transfer_syntax=syntax)
        for syntax in ("implicit", "explicit")
    )
    dataset = pydicom.dcmread(implicit)
    first = dataset.get("PixelPaddingValue")
    low, high = sorted((first, dataset.get("PixelPaddingRangeLimit", first))) if first is not None else (1, 0)
    expected = (dataset.pixel_array >= low) & (dataset.pixel_array <= high)
    for path in (explicit, implicit):
        low, high = read_pixels(path.read_bytes()).plan.padding or (1, 0)
        assert np.array_equal((pixels >= low) & (pixels <= high), expected)


def test_counts_of_a_large_picture_are_those_of_numpy(rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 1 << 16, (1500, 1500), dtype=np.uint16)
    assert np.array_equal(counts_within_border(pixels), np.bincount(pixels.ravel(), minlength=1 << 16))


@pytest.mark.parametrize(("bits", "stored"), [(12, 10), (12, 16), (16, 12)])
def test_depth_of_a_lossless_jpeg(tmp_path: Path, bits: int, stored: int) -> None:
    path = write_stream(tmp_path / "x.dcm", lossless(FILM, bits), FILM, bits, JPEGLosslessSV1)
    dataset = pydicom.dcmread(path)
    dataset.BitsStored, dataset.HighBit = stored, stored - 1
    dataset.save_as(path)
    levels, _ = grey(path)
    assert levels == np.rint(FILM.ravel() / 4095 * 255).astype(int).tolist()
