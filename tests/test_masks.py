"""masks: against pycocotools, scipy and Pillow on valid input, and refusing what makes pycocotools misbehave."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

from reveal_bench.masks import (
    MAX_RUNS,
    Rle,
    decode_mask,
    empty_rle,
    encode_mask,
    pack_masks,
    parse_masks,
    rasterize_polygons,
    union_masks,
)
from tests.conftest import random_masks


def test_encoding_equals_pycocotools_and_round_trips(rng: np.random.Generator) -> None:
    from pycocotools import mask as coco

    masks = random_masks(rng, 600)
    rles = [encode_mask(mask) for mask in masks]
    packed = pack_masks(rles)
    for i, (mask, rle) in enumerate(zip(masks, rles, strict=True)):
        oracle = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
        assert rle == Rle(tuple(oracle["size"]), oracle["counts"].decode())
        assert np.array_equal(packed.dense(i), mask)
        assert packed.areas[i] == mask.sum()


def test_tight_boxes_equal_pycocotools(rng: np.random.Generator) -> None:
    from pycocotools import mask as coco

    masks = [mask for mask in random_masks(rng, 400) if mask.any()]
    boxes = pack_masks([encode_mask(mask) for mask in masks]).boxes_xywh()
    oracle = [coco.toBbox(coco.encode(np.asfortranarray(mask.astype(np.uint8)))) for mask in masks]
    assert np.array_equal(boxes, np.array(oracle))


def hard_masks(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Wandering edges, pinholes, lattices, checkers, unions of rectangles, speckled discs; at most 89 pixels a side."""
    masks = []
    for i in range(n):
        height, width = (int(side) for side in rng.integers(1, 90, 2))
        y, x = np.mgrid[:height, :width]
        low, high = (np.cumsum(rng.normal(0, 3, width)) + height * share for share in (0.25, 0.75))
        across, down = (int(side) for side in rng.integers(1, 20, 2))
        rectangles = np.zeros((height, width), bool)
        for _ in range(int(rng.integers(1, 5))):
            top, left = int(rng.integers(0, height)), int(rng.integers(0, width))
            rectangles[top : top + int(rng.integers(1, height + 1)), left : left + int(rng.integers(1, width + 1))] = 1
        radius = rng.uniform(1, max(height, width))
        kinds = [
            (y >= low) & (y < high),
            rng.random((height, width)) < rng.choice([0.5, 0.9, 0.99, 0.999]),
            (y % down != 0) | (x % across != 0),
            (y // down + x // across) % 2 == 0,
            rectangles,
            ((y - height / 2) ** 2 + (x - width / 2) ** 2 < radius**2) ^ (rng.random((height, width)) < 0.01),
        ]
        masks.append(kinds[i % len(kinds)])
    return masks


def test_pictures_show_their_masks(rng: np.random.Generator) -> None:
    masks = random_masks(rng, 100) + hard_masks(rng, 100)
    packed = pack_masks([encode_mask(mask) for mask in masks])
    for i, mask in enumerate(masks):
        with Image.open(io.BytesIO(packed.png(i))) as picture:
            assert picture.mode == "1"
            assert np.array_equal(np.asarray(picture), mask)


def test_deepest_pixel_is_the_first_maximum_of_the_distance_transform(rng: np.random.Generator) -> None:
    from scipy.ndimage import distance_transform_edt

    blown_up = [np.kron(mask, np.ones((8, 8), bool)) for mask in hard_masks(rng, 60)]  # most have several equals
    masks = [mask for mask in random_masks(rng, 400) + hard_masks(rng, 1200) + blown_up if mask.any()]
    deepest = pack_masks([encode_mask(mask) for mask in masks]).deepest_xy(range(len(masks)))
    for i, mask in enumerate(masks):
        squared = np.round(distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1] ** 2)
        y, x = np.unravel_index(int(squared.argmax()), mask.shape)
        assert deepest[i].tolist() == [x, y]


@pytest.mark.parametrize(
    ("mask", "deepest"),
    [
        (np.zeros((4, 4)), (-1, -1)),
        (np.ones((5, 5)), (2, 2)),  # the border counts as outside: the centre
        (np.ones((1, 7)), (0, 0)),  # every pixel of a line is 1 away from outside: the first
        (np.ones((1, 1)), (0, 0)),
    ],
)
def test_deepest_pixel_of_degenerate_masks(mask: np.ndarray, deepest: tuple[int, int]) -> None:
    assert tuple(pack_masks([encode_mask(mask)]).deepest_xy([0])[0]) == deepest


def test_deepest_pixel_survives_runs_of_zero_length() -> None:
    # 5 zeros, 0 ones, 4 zeros: legal, empty
    assert pack_masks([Rle((3, 3), "504")]).deepest_xy([0]).tolist() == [[-1, -1]]


def test_runs_of_zero_length_change_nothing(rng: np.random.Generator) -> None:
    from pycocotools import mask as coco

    for mask in random_masks(rng, 300, largest=12):
        canonical = pack_masks([encode_mask(mask)])
        runs = np.diff(canonical.ends, prepend=0).tolist()
        split: list[int] = []  # each run now and then as a, 0, b
        for k, run in enumerate(runs):
            cut = int(rng.integers(0, run + 1))
            split += [cut, 0, run - cut] if rng.random() < 0.4 and (k or cut) else [run]
        rle = coco.frPyObjects([{"size": list(mask.shape), "counts": split}], *mask.shape)[0]
        packed = pack_masks([Rle(mask.shape, rle["counts"].decode())])
        assert np.array_equal(packed.ends, canonical.ends)
        assert packed.deepest_xy([0]).tolist() == canonical.deepest_xy([0]).tolist()


def test_take_repeats_and_reorders(rng: np.random.Generator) -> None:
    masks = random_masks(rng, 6)
    taken = pack_masks([encode_mask(mask) for mask in masks]).take([5, 0, 0, 3])
    assert all(np.array_equal(taken.dense(i), masks[k]) for i, k in enumerate([5, 0, 0, 3]))


def test_empty_masks_of_the_released_sizes() -> None:
    # The strings that mean "empty" in CheXlocalize's files (research/data.md, trap 6)
    assert empty_rle((2320, 2828)).counts == "PVWX6"
    assert empty_rle((2022, 2021)).counts == "nefl3"


@pytest.mark.parametrize(
    ("rle", "rule"),
    [
        (Rle((0, 0), ""), "`size` must be [height, width] with both at least 1, got [0, 0]"),
        (Rle((0, 10), "0"), "`size` must be [height, width] with both at least 1, got [0, 10]"),
        (Rle((-3, 10), "0"), "`size` must be [height, width] with both at least 1, got [-3, 10]"),
        (Rle((50000, 50000), "0"), "`size` must be at most"),
        (Rle((100, 100), ""), "`counts` must sum to height x width = 100 x 100 = 10000, got 0"),
        (Rle((100, 100), "1;"), "`counts` must sum to height x width = 100 x 100 = 10000, got 12"),
        (Rle((2, 2), "5"), "`counts` must sum to height x width = 2 x 2 = 4, but run 0 exceeds it"),
        (Rle((2, 2), "22ooooooo0"), "`counts` has a run code of more than 7 characters"),
        (Rle((100, 100), "o" * 5000), "`counts` has a run code of more than 7 characters"),
        (Rle((2, 2), "2Q"), "`counts` ends in the middle of a run, at position 2"),
        (Rle((2, 2), "2 2"), "`counts` may only contain '0' to 'o', got ' ' at position 1"),
        (Rle((2, 2), "2\x002"), "`counts` may only contain '0' to 'o', got '\\x00' at position 1"),
        (Rle((2, 2), "2é2"), "`counts` may only contain '0' to 'o', got 'é' at position 1"),
        (Rle((2, 2), "2\ud8002"), "`counts` may only contain '0' to 'o', got '\\ud800' at position 1"),
        (Rle((2, 2), "2中2"), "`counts` may only contain '0' to 'o', got '中' at position 1"),
        (Rle((2, 2), "2pp"), "`counts` may only contain '0' to 'o', got 'p' at position 1"),
        (Rle((2, 2), "2O"), "`counts` has a negative run, run 1"),
        (Rle((1000, 1001), "1" * (MAX_RUNS + 1)), f"`counts` may have at most {MAX_RUNS} runs, got {MAX_RUNS + 1}"),
    ],
)
def test_malformed_masks_are_refused(rle: Rle, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        decode_mask(rle)


def test_every_problem_is_collected_and_good_masks_survive() -> None:
    good = encode_mask(np.eye(3))
    masks, problems = parse_masks([Rle((2, 2), "5"), good, Rle((0, 1), ""), good])
    assert sorted(problems) == [0, 2]
    assert np.array_equal(masks.dense(3), np.eye(3))


def test_random_strings_never_give_a_wrong_sized_mask(rng: np.random.Generator) -> None:
    texts = ["".join(map(chr, rng.integers(48, 112, rng.integers(0, 12)))) for _ in range(20_000)]
    masks, problems = parse_masks([Rle((6, 7), text) for text in texts])
    accepted = [i for i in range(len(texts)) if i not in problems]
    assert accepted
    for i in accepted:
        assert masks.dense(i).shape == (6, 7)
        assert 0 <= masks.areas[i] <= 42


def test_polygon_fill_includes_its_outline_and_is_a_union() -> None:
    # Released masks: a square from 1 to 5 has 25 pixels (research/peers.md, Pillow note)
    square = [(1, 1), (5, 1), (5, 5), (1, 5)]
    assert decode_mask(rasterize_polygons([square], (8, 8))).sum() == 25
    assert decode_mask(rasterize_polygons([square, square], (8, 8))).sum() == 25


def test_polygons_are_filled_as_on_the_whole_canvas(rng: np.random.Generator) -> None:
    for trial in range(300):
        height, width = (int(side) for side in rng.integers(1, 1200 if trial % 10 == 0 else 40, 2))
        n = int(rng.integers(1, 4))
        contours = [(rng.uniform(-0.4, 1.4, (int(rng.integers(2, 7)), 2)) * (width, height)).tolist() for _ in range(n)]
        canvas = Image.new("1", (width, height))
        for contour in contours:
            ImageDraw.Draw(canvas).polygon([tuple(vertex) for vertex in contour], outline=1, fill=1)
        assert np.array_equal(decode_mask(rasterize_polygons(contours, (height, width))), np.asarray(canvas))


def test_no_polygon_is_an_empty_mask() -> None:
    assert rasterize_polygons([], (3, 4)) == empty_rle((3, 4))


def test_union_equals_numpy(rng: np.random.Generator) -> None:
    for _ in range(200):
        height, width = (int(side) for side in rng.integers(1, 12, 2))
        shares = rng.choice([0.0, 0.1, 0.5, 1.0], int(rng.integers(1, 5)))
        masks = [rng.random((height, width)) < share for share in shares]
        union = union_masks(pack_masks([encode_mask(mask) for mask in masks]))
        assert union == encode_mask(np.any(masks, axis=0))


def test_union_needs_masks_of_one_size() -> None:
    with pytest.raises(ValueError, match=re.escape("`masks` must all have the same size, got no mask")):
        union_masks(pack_masks([]))
    with pytest.raises(ValueError, match=re.escape("got [(1, 2), (2, 1)]")):
        union_masks(pack_masks([encode_mask(np.ones((1, 2))), encode_mask(np.ones((2, 1)))]))


def test_polygon_of_one_vertex_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("`polygons[0]` must have at least 2 vertices, got 1")):
        rasterize_polygons([[(1, 1)]], (8, 8))


@pytest.mark.parametrize("shape", [(0, 3), (3,), (2, 2, 2)])
def test_encoding_refuses_invalid_masks(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="`mask` must have shape"):
        encode_mask(np.zeros(shape))
