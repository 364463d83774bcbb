"""Masks of a localization folder, and the pictures of the config `masks`."""

import numpy as np
import pytest

from reveal_bench.dataset.validate import validate_folder
from reveal_bench.dataset.validate_rows import picture_hash
from reveal_bench.masks import encode_mask
from tests.dataset.card_folders import digest, edit, faults, localization_folder, pixels, png, rows_of


@pytest.fixture
def folder(tmp_path):
    return localization_folder(tmp_path, n=2)


def faults_of(folder):
    return [fault for fault in faults(validate_folder(folder, load=False)) if fault[0] != "README.md"]


def first(change):
    """`change` for image img0 alone."""
    return lambda row: change(row) if row["image_id"] == "img0" else None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"area_px": 13}, ["area_px"]),
        ({"bbox_xywh": [2.0, 5.0, 3.0, 5.0]}, ["bbox_xywh"]),
        ({"bbox_xywh": None}, ["bbox_xywh"]),
        ({"rle": {"size": [20, 30], "counts": "not a mask!"}}, ["rle"]),
    ],
)
def test_masks_agree_with_their_area_and_box(folder, change, expected):
    edit(folder, "localization/test", first(lambda row: row["annotations"][0].update(change)))
    fields = [field for place, _, field in faults_of(folder) if place == "localization"]
    assert fields == [f"annotations[Edema, ground_truth].{name}" for name in expected]


def test_a_mask_of_another_size(folder):
    other = encode_mask(np.pad(np.ones((4, 3), bool), ((5, 12), (2, 25))))  # one row more than the picture
    rle = {"size": list(other.size), "counts": other.counts}
    edit(folder, "localization/test", first(lambda row: row["annotations"][0].update(rle=rle)))
    assert faults_of(folder) == [
        ("localization", "img0", "annotations[Edema, ground_truth].rle.size"),
        ("masks", "img0", "mask[Edema]"),
    ]


def test_an_empty_mask_has_no_box(folder):
    empty = encode_mask(np.zeros((20, 30), bool))
    change = {"rle": {"size": [20, 30], "counts": empty.counts}, "area_px": 0, "bbox_xywh": None}
    edit(folder, "localization/test", first(lambda row: row["annotations"][0].update(change)))
    # nothing is asked of the image any more, and the picture of the mask is one too many
    assert faults_of(folder) == [
        ("manifest", "img0", "asked"),
        ("manifest", "test", "n_asked"),
        ("masks", "img0", "mask[Edema]"),
        ("preview", "img0", "image"),
        ("preview", "img0", "reference"),
    ]


@pytest.mark.parametrize(
    "picture",
    [
        png(np.zeros((20, 30), np.uint8)),
        png(np.full((20, 30), 255, np.uint8)),
        png(np.pad(np.full((4, 3), 254, np.uint8), ((5, 11), (2, 25)))),
        png(np.zeros((20, 30, 3), np.uint8)),
        b"no picture",
        None,
    ],
)
def test_a_picture_of_a_mask_must_show_that_mask(folder, picture):
    edit(folder, "masks/test", first(lambda row: row["mask"].update(bytes=picture)))
    assert faults_of(folder) == [("masks", "img0", "mask[Edema]")]


def test_every_mask_has_one_picture(folder):
    edit(folder, "masks/test", first(lambda row: row.update(image_id="img1")))
    # img1 twice, of which the first shows another mask; img0 not at all
    assert faults_of(folder) == [("masks", "img0", "mask[Edema]")] + [("masks", "img1", "mask[Edema]")] * 2


def test_the_hash_of_pixels_is_that_of_the_grey_values():
    values = pixels(5)
    assert picture_hash(png(values)) == ((12, 10), digest(values.tobytes()), "")
    with pytest.raises(ValueError, match="cannot identify image file"):
        picture_hash(b"?")
    with pytest.raises(ValueError, match=r"truncated|broken|end"):
        picture_hash(png(values)[:-30])


def test_a_wrong_hash_of_pixels(folder):
    edit(folder, "localization/test", first(lambda row: row.update(pixel_sha256="0" * 64)))
    assert faults_of(folder) == [("localization", "img0", "pixel_sha256")]
    (row,) = [row for row in rows_of(folder, "localization/") if row["image_id"] == "img1"]
    assert row["pixel_sha256"] == digest(pixels(1, 30, 20).tobytes())
