"""Grey tables of every branch, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reveal_bench.dicom.display import DisplaySettings, Lut, Rescale, Window, grey_table

FULL = [0, 17, 34, 51, 68, 85, 102, 119, 136, 153, 170, 187, 204, 221, 238, 255]
"""Four bits without any step: 255 / 15 = 17 per value."""


def first16(display: DisplaySettings) -> list[int]:
    return grey_table(display, container_bits=8)[:16].tolist()


@pytest.mark.parametrize(
    ("display", "expected"),
    [
        (DisplaySettings(4, is_signed=False), FULL),
        (DisplaySettings(4, is_signed=False, invert=True), FULL[::-1]),
        # slope and intercept move values and range alike, so without a window nothing changes ...
        (DisplaySettings(4, is_signed=False, modality=Rescale(2.5, -100)), FULL),
        # ... and a negative slope turns the picture over
        (DisplaySettings(4, is_signed=False, modality=Rescale(-1, 15)), FULL[::-1]),
        # LINEAR, centre 8, width 9: middle 7.5, span 8, from 3.5 to 11.5; (x - 3.5) / 8 * 255 =
        # 4: 15.94, 5: 47.81, 6: 79.69, 7: 111.56, 8: 143.44, 9: 175.31, 10: 207.19, 11: 239.06
        (
            DisplaySettings(4, is_signed=False, voi=Window(8, 9)),
            [0, 0, 0, 0, 16, 48, 80, 112, 143, 175, 207, 239, 255, 255, 255, 255],
        ),
        # LINEAR_EXACT, centre 8, width 8: from 4 to 12; (x - 4) / 8 * 255 = 31.875 per value
        (
            DisplaySettings(4, is_signed=False, voi=Window(8, 8, "LINEAR_EXACT")),
            [0, 0, 0, 0, 0, 32, 64, 96, 128, 159, 191, 223, 255, 255, 255, 255],
        ),
        # LINEAR of width 1 is a threshold: x <= centre - 0.5 is black
        (DisplaySettings(4, is_signed=False, voi=Window(8, 1)), [0] * 8 + [255] * 8),
        # the window is in units after slope and intercept: 3x - 20 in [-8, 16] is x in [4, 12]
        (
            DisplaySettings(4, is_signed=False, modality=Rescale(3, -20), voi=Window(4, 24, "LINEAR_EXACT")),
            [0, 0, 0, 0, 0, 32, 64, 96, 128, 159, 191, 223, 255, 255, 255, 255],
        ),
        # a negative slope below the same window: 15 - x in [4, 12]
        (
            DisplaySettings(4, is_signed=False, modality=Rescale(-1, 15), voi=Window(8, 8, "LINEAR_EXACT")),
            [255, 255, 255, 255, 223, 191, 159, 128, 96, 64, 32, 0, 0, 0, 0, 0],
        ),
        # VOI table: first 2, entries 0, 64, 128, 255 of 8 bits; before it the first, after it the last
        (
            DisplaySettings(4, is_signed=False, voi=Lut(2, np.array([0, 64, 128, 255]), 8)),
            [0, 0, 0, 64, 128, *[255] * 11],
        ),
        # the same, inverted afterwards
        (
            DisplaySettings(4, is_signed=False, voi=Lut(2, np.array([0, 64, 128, 255]), 8), invert=True),
            [255, 255, 255, 191, 127, *[0] * 11],
        ),
        # entries of 10 bits: 512 / 1023 * 255 = 127.62
        (DisplaySettings(4, is_signed=False, voi=Lut(0, np.array([0, 512, 1023]), 10)), [0, 128, *[255] * 14]),
        # modality table alone: shown over the range of its 8 bits
        (DisplaySettings(4, is_signed=False, modality=Lut(0, np.array([200, 100, 0]), 8)), [200, 100, *[0] * 14]),
        # modality table, then a window from 50 to 150 over its output: 200, 100, 0 -> 1, 0.5, 0
        (
            DisplaySettings(
                4, is_signed=False, modality=Lut(0, np.array([200, 100, 0]), 8), voi=Window(100, 100, "LINEAR_EXACT")
            ),
            [255, 128, *[0] * 14],
        ),
        # signed: patterns 0 to 7 are 0 to 7, patterns 8 to 15 are -8 to -1
        (DisplaySettings(4, is_signed=True), FULL[8:] + FULL[:8]),
        # signed, threshold at 0: x <= -0.5 is black
        (DisplaySettings(4, is_signed=True, voi=Window(0, 1)), [255] * 8 + [0] * 8),
    ],
)
def test_by_hand(display: DisplaySettings, expected: list[int]) -> None:
    assert first16(display) == expected


def test_sigmoid_by_hand() -> None:
    # centre 8, width 16: 255 / (1 + exp(-(x - 8) / 4)): x = 0: 30.40, 4: 68.58, 8: 127.5 -> 128 (even), 12: 186.42
    table = first16(DisplaySettings(4, is_signed=False, voi=Window(8, 16, "SIGMOID")))
    assert [table[x] for x in (0, 4, 8, 12)] == [30, 69, 128, 186]
    # a sigmoid of next to no width must not overflow
    assert first16(DisplaySettings(4, is_signed=False, voi=Window(8, 1e-6, "SIGMOID"))) == [0] * 8 + [128] + [255] * 7


@pytest.mark.parametrize("bits", range(1, 17))
@pytest.mark.parametrize("is_signed", [False, True])
def test_every_depth_spans_black_to_white_and_never_falls(bits: int, is_signed: bool) -> None:
    display = DisplaySettings(bits, is_signed)
    container = 8 if bits <= 8 else 16
    table = grey_table(display, container_bits=container)
    low, high = display.stored_range
    by_value = table[np.arange(low, high + 1) % (1 << container)].astype(int)
    assert len(table) == 1 << container
    assert (by_value[0], by_value[-1]) == (0, 255)
    assert (np.diff(by_value) >= 0).all()


def test_bits_above_bits_stored_are_ignored() -> None:
    table = grey_table(DisplaySettings(4, is_signed=False), container_bits=8)
    assert table.tolist() == FULL * 16


@pytest.mark.parametrize("voi", [None, Window(900, 700), Window(900, 700, "SIGMOID"), Window(900, 3, "LINEAR_EXACT")])
@pytest.mark.parametrize("modality", [None, Rescale(0.5, -30)])
def test_inverting_the_picture_twice_gives_it_back(voi: Window | None, modality: Rescale | None) -> None:
    plain = grey_table(DisplaySettings(11, False, modality, voi), container_bits=16).astype(int)
    turned = grey_table(DisplaySettings(11, False, modality, voi, invert=True), container_bits=16).astype(int)
    assert np.abs(plain + turned - 255).max() <= 1  # both sides may round a tie to even
