"""Rotated boxes and rotated pictures of own boxes: expected boxes are by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reveal_bench.sources import BuildError, own_boxes
from tests.sources.test_own_sets import AS_FRACTIONS, BOX_MAPPING, COCO, FRACTIONS, write_boxes

OF_COCO = "boxes: boxes.json\nids: public\nfindings: [Nodule, {name: Pneumothorax, synonyms: [PTX]}]\n"
CORNERS = "image,finding,x1,y1,x2,y2,Rotation\nfilm1,Nodule,10,20,30,44,{}\nfilm2,,,,,,\nfilm3,Nodule,40,40,50,60,0\n"
ROTATED = (8, 22, 24, 20)  # [10, 20, 20, 24] about its centre (20, 32)
WARNING = "1 rotated box, the first at {}: each became the upright box around it"


def write_coco(root: Path, **of_first: Any) -> Path:
    content = json.loads(json.dumps(COCO))
    content["annotations"][0] |= of_first
    write_boxes(root, None, OF_COCO)
    (root / "boxes.json").write_text(json.dumps(content))
    return root


def first_boxes(root: Path) -> tuple[Any, list[str]]:
    source = own_boxes.read(root)
    return source.splits["test"][0].annotations[0].boxes_xywh, [w for w in source.warnings if "rotated" in w]


@pytest.mark.parametrize("stated", [{"attributes": {"occluded": False, "rotation": 90.0}}, {"rotation": "-90"}])
def test_rotation_of_a_coco_annotation_reaches_the_reference(stated: dict[str, Any], tmp_path: Path) -> None:
    boxes, warnings = first_boxes(write_coco(tmp_path, **stated))
    assert boxes == (ROTATED,)
    assert warnings == [WARNING.format("boxes.json:annotations[0]")]


def test_rotation_of_a_table_reaches_the_reference(tmp_path: Path) -> None:
    boxes, warnings = first_boxes(write_boxes(tmp_path / "a", CORNERS.format(90)))
    assert (boxes, warnings) == ((ROTATED,), [WARNING.format("boxes.csv:2")])
    fractions = FRACTIONS.replace("w,h\n", "w,h,rotation\n").replace("0.3\n", "0.3,270\n").replace("35\n", "35,\n")
    fractions = fractions.replace(",,,,\n", ",,,,,\n").replace("0.25\n", "0.25,360\n")
    boxes, warnings = first_boxes(write_boxes(tmp_path / "b", fractions, AS_FRACTIONS))
    assert (boxes, warnings) == ((ROTATED,), [WARNING.format("boxes.csv:2")])


@pytest.mark.parametrize("unrotated", [{}, {"attributes": {"rotation": 0.0}}, {"rotation": 360}, {"attributes": None}])
def test_boxes_without_a_rotation_stay(unrotated: dict[str, Any], tmp_path: Path) -> None:
    assert first_boxes(write_coco(tmp_path, **unrotated)) == (((10, 20, 20, 24),), [])


@pytest.mark.parametrize(
    ("stated", "warning"),
    [
        (
            {"segmentation": [[10, 20, 30, 20, 30, 44]]},
            "1 annotation with a `segmentation`: only the bbox of each is read",
        ),
        ({"segmentation": {"size": [64, 64], "counts": "a"}}, "1 annotation with a `segmentation`: only the bbox"),
        ({"score": 0.0}, "1 annotation with a `score`: is this the output of a model, and not a reference?"),
        ({"segmentation": []}, None),
        ({"segmentation": None, "score": None}, None),
    ],
)
def test_fields_of_coco_that_are_not_read(stated: dict[str, Any], warning: str | None, tmp_path: Path) -> None:
    source = own_boxes.read(write_coco(tmp_path, **stated))
    warnings = [one for one in source.warnings if "annotation" in one]
    assert [one.startswith(f"boxes.json: {warning}") for one in warnings] == ([] if warning is None else [True])
    assert source.splits["test"][0].annotations[0].boxes_xywh == ((10, 20, 20, 24),)


def test_wrong_rotations_are_refused_with_their_row(tmp_path: Path) -> None:
    tall = {"bbox": [2, 30, 60, 4], "rotation": 90}  # about (32, 32): from y = 2 to y = 62
    assert first_boxes(write_coco(tmp_path / "tall", **tall))[0] == ((30, 2, 4, 60),)
    for n, (stated, problem) in enumerate(
        (
            (
                {"bbox": [2, 4, 60, 4], "rotation": 90},
                "must be in the image of 64 x 80 pixels, got 2, 4, 60, 4 rotated by 90",
            ),
            ({"rotation": "left"}, "`rotation` must be a finite number of degrees, got 'left'"),
            ({"attributes": {"rotation": "nan"}}, "`rotation` must be a finite number of degrees, got 'nan'"),
        )
    ):
        with pytest.raises(BuildError, match=r"boxes\.json:annotations\[0\]: .*" + re.escape(problem)):
            own_boxes.read(write_coco(tmp_path / str(n), **stated))


@pytest.mark.parametrize(("suffix", "pixels"), [(".png", "embed"), (".png", "withhold"), (".jpg", "withhold")])
def test_pictures_that_their_metadata_rotate_are_refused(suffix: str, pixels: Any, tmp_path: Path) -> None:
    root = write_boxes(tmp_path, mapping=BOX_MAPPING)
    (root / "film1.png").unlink()
    turned = Image.Exif()
    turned[0x0112] = 3
    Image.new("L", (64, 80)).save(root / f"film1{suffix}", exif=turned)
    with pytest.raises(BuildError, match=r"film1\.\w+: `picture` .*rotated by its metadata \(EXIF orientation 3\)"):
        own_boxes.read(root, pixels=pixels)
