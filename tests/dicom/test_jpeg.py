"""JPEG streams: sound ones are decoded, others are refused before gdcm, which would end the process, sees them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import DicomError, develop_dicom
from reveal_bench.dicom.decode import BASELINE, DECODERS, LOSSLESS, check_jpeg
from tests.conftest import in_child
from tests.dicom.conftest import grey
from tests.dicom.jpeg_streams import (
    BASELINE_50,
    HUFFMAN,
    LOSSLESS_57,
    LOSSLESS_70,
    SCAN,
    baseline,
    entropy_coded,
    frame,
    lossless,
    segment,
    write_stream,
)

SIZE = (40, 36)
RANDOM = np.random.default_rng(5).integers(0, 4096, SIZE).astype(np.uint16)
SOUND = lossless(RANDOM, 12)
CODED = entropy_coded(RANDOM, 12)
FRAME = frame(SIZE, 12)
START, END = b"\xff\xd8", b"\xff\xd9"
RESTARTS = segment(0xDD, b"\0\x14")


@pytest.mark.parametrize("syntax", [LOSSLESS_57, LOSSLESS_70])
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_lossless_jpeg_gives_what_was_encoded(tmp_path: Path, syntax: str, bits: int) -> None:
    pixels = np.random.default_rng(bits).integers(0, 1 << bits, SIZE).astype(np.uint8 if bits == 8 else np.uint16)
    levels, developed = grey(write_stream(tmp_path / "x.dcm", lossless(pixels, bits), pixels, bits, syntax))
    assert levels == np.rint(pixels / ((1 << bits) - 1) * 255).astype(int).ravel().tolist()
    assert developed.pipeline.startswith("dicom-v2: gdcm ")


@pytest.mark.parametrize(
    "stream",
    [
        SOUND,
        SOUND + b"\0",  # padded to an even length
        START + segment(0xE0, b"JFIF\0\1\2" + bytes(7)) + segment(0xFE, b"text") + SOUND[2:],
        START + b"\xff\xff" + SOUND[2:],  # markers may be filled up
        START + HUFFMAN + segment(0xEE, b"Adobe") + FRAME + HUFFMAN + SCAN + CODED + END,
        START + RESTARTS + FRAME + HUFFMAN + SCAN + b"\1\xff\xd0\2\xff\xd1\3" + END,
    ],
)
def test_sound_streams(stream: bytes) -> None:
    check_jpeg(stream, LOSSLESS)


@pytest.mark.parametrize("options", [{}, {"quality": 10}, {"optimize": 1}, {"restart_marker_blocks": 2}])
def test_baseline_streams_of_another_library_are_sound(options: dict[str, int]) -> None:
    check_jpeg(baseline(RANDOM.astype(np.uint8), **options), BASELINE)


TABLE_OF_TOO_MANY = segment(0xC4, bytes([0, 3, *[0] * 15]) + bytes(3))
UNSOUND: list[tuple[bytes, str]] = [
    (b"", "no start marker"),
    (SOUND[2:], "no start marker"),
    (START, "a segment reaches beyond the end"),
    (START + b"\xff", "a segment reaches beyond the end"),
    (START + b"\xff\xe1\xff\xff", "segment E1 of length 65535 does not fit"),
    (START + b"\xff\xe1\0\1" + SOUND[2:], "segment E1 of length 1 does not fit"),
    # what gdcm warns of, and then ends the process
    (START + b"\0" + SOUND[2:], "stray bytes at 2"),
    (START + FRAME + HUFFMAN + b"\x12\x34" + SCAN + CODED + END, "stray bytes at"),
    (START + segment(0xE0, b"JFIF\0\x80\1" + bytes(7)) + SOUND[2:], "a JFIF segment of an unknown version"),
    (START + segment(0xE0, b"JFIF\0\1") + SOUND[2:], "a JFIF segment of an unknown version"),
    *[
        (START + frame(SIZE, bits) + HUFFMAN + SCAN + CODED + END, f"{bits} bits per sample instead of 2 to 16")
        for bits in (0, 1, 17, 128, 255)
    ],
    # headers that do not fit one grey frame
    (START + frame(SIZE, 12, 0xC2) + HUFFMAN + SCAN + CODED + END, "marker C2 is not allowed here"),
    (START + FRAME + FRAME + HUFFMAN + SCAN + CODED + END, "two frame headers"),
    (START + segment(0xC3, FRAME[4:] + bytes(3)), "a frame header without exactly one component"),
    (START + segment(0xC3, FRAME[4:-2] + b"\x05\0"), "sampling factors or table out of range"),
    (START + HUFFMAN + SCAN + CODED + END, "a scan before the frame header"),
    (START + FRAME + SCAN + CODED + END, "a scan without tables"),
    (START + FRAME + HUFFMAN + segment(0xDA, bytes([1, 2, 0, 1, 0, 0])), "a scan header with another component"),
    (START + FRAME + HUFFMAN + segment(0xDA, bytes([1, 1, 0, 8, 0, 0])), "a predictor or point transform out of"),
    (START + FRAME + HUFFMAN + segment(0xDA, bytes([1, 1, 0, 1, 0, 12])), "a predictor or point transform out of"),
    (START + FRAME + TABLE_OF_TOO_MANY, "an invalid Huffman table"),
    (START + FRAME + segment(0xC4, b"\x20" + HUFFMAN[5:]), "an invalid Huffman table"),
    (START + FRAME + segment(0xC4, HUFFMAN[4:-1]), "a truncated Huffman table"),
    (START + segment(0xDB, bytes(64)), "a truncated quantization table"),
    (START + segment(0xDB, b"\x04" + bytes(64)), "an invalid quantization table"),
    (START + segment(0xDD, b"\0\1\2"), "a restart interval that is not 2 bytes long"),
    # data that end early, or hold foreign parts
    (SOUND[:-2], "no end marker"),
    (START + FRAME + HUFFMAN + SCAN + CODED[:20] + END + CODED[20:] + END, "bytes after the end marker"),
    (START + FRAME + HUFFMAN + SCAN + CODED[:20] + b"\xff\xd0" + CODED[20:] + END, "marker D0 within the scan"),
    (START + RESTARTS + FRAME + HUFFMAN + SCAN + b"\1\xff\xd1\2" + END, "marker D1 within the scan"),
    (START + FRAME + HUFFMAN + SCAN + CODED[:20] + FRAME + END, "marker C3 within the scan"),
]


@pytest.mark.parametrize(("stream", "reason"), UNSOUND)
def test_unsound_streams(stream: bytes, reason: str) -> None:
    with pytest.raises(DicomError, match=f"not a valid JPEG: .*{reason}"):
        check_jpeg(stream, LOSSLESS)


def test_mismatch_of_stream_and_transfer_syntax_is_refused(tmp_path: Path) -> None:
    eight = (RANDOM >> 4).astype(np.uint8)
    path = write_stream(tmp_path / "x.dcm", baseline(eight), eight, 8, LOSSLESS_70)
    with pytest.raises(DicomError, match="not a valid JPEG: marker C0 is not allowed here"):
        develop_dicom(path)
    path = write_stream(tmp_path / "x.dcm", lossless(eight, 8), eight, 8, BASELINE_50)
    with pytest.raises(DicomError, match="not a valid JPEG: marker C3 is not allowed here"):
        develop_dicom(path)


def test_a_picture_deeper_than_its_container(tmp_path: Path) -> None:
    path = write_stream(tmp_path / "x.dcm", SOUND, (RANDOM >> 4).astype(np.uint8), 8, LOSSLESS_70)
    with pytest.raises(DicomError, match="has 12 bits per sample, but BitsAllocated is 8"):
        develop_dicom(path)


def test_gdcm_decodes_nothing_but_jpeg() -> None:
    assert {syntax.rpartition(".")[2] for syntax, names in DECODERS.items() if "gdcm" in names} == {
        "50", "51", "57", "70",
    }  # fmt: skip


def n_refused(path: Path) -> int:
    """Return how many of 200 damaged copies of a file are refused."""
    data, dice, changed = path.read_bytes(), random.Random(1), path.with_suffix(".changed")
    start, refused = data.rindex(b"\xe0\x7f\x10\x00") + 12, 0
    for _ in range(200):
        damaged = bytearray(data)
        for _ in range(dice.randrange(1, 4)):
            end = dice.choice((start + 100, len(data)))
            damaged[dice.randrange(start, end)] = dice.choice((0, 1, 128, 255, dice.randrange(256)))
        changed.write_bytes(damaged)
        try:
            develop_dicom(changed)
        except DicomError:
            refused += 1
    return refused


@pytest.mark.parametrize("syntax", [BASELINE_50, LOSSLESS_70, "jpegls-lossless", "jpeg2000-lossless"])
def test_no_damage_ends_the_process(tmp_path: Path, syntax: str) -> None:
    """gdcm alone ends at about one of a hundred such files (measured on 15,000); one is enough to stop a build."""
    from reveal_bench.dicom import write_dicom

    path, eight = tmp_path / "x.dcm", (RANDOM >> 4).astype(np.uint8)
    if syntax.startswith("jpeg"):
        write_dicom(path, RANDOM, {}, bits_stored=12, transfer_syntax=syntax)
    elif syntax == BASELINE_50:
        write_stream(path, baseline(eight), eight, 8, syntax)
    else:
        write_stream(path, SOUND, RANDOM, 12, syntax)
    flag = tmp_path / "refused"
    assert in_child(lambda: flag.write_text(str(n_refused(path)))) == 0
    assert 0 < int(flag.read_text()) < 200
