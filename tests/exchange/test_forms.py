"""Every format: round trips keep everything or report the loss, and other tools' files are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli.convert import ExchangeForm
from reveal_bench.exchange import FORMS, coco, cvat, fiftyone, form_named, label_studio
from reveal_bench.exchange.shapes import mask_of_runs, runs_of_mask
from reveal_bench.kinds.cases import AnnotatedImage, Annotations, Drawing
from reveal_bench.masks import encode_mask
from tests.exchange.drawn import (
    BOXED,
    CELLED,
    DRAWINGS,
    EMPTY,
    GUESSED,
    JUDGED,
    LABELLED,
    MASKED,
    OUTLINED,
    PARTS,
    PICTURES,
    POINTED,
    RING,
    TALL,
    WIDE,
    annotations,
)

MASKS = arrays.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9)))

HELD = {
    "coco": (MASKED, PARTS, BOXED, OUTLINED, EMPTY, GUESSED, POINTED, CELLED),
    "cvat": (MASKED, PARTS, BOXED, OUTLINED, GUESSED, POINTED, CELLED),
    "label-studio": (MASKED, PARTS, BOXED, OUTLINED, EMPTY, GUESSED, POINTED, CELLED),
    "fiftyone": (MASKED, PARTS, BOXED, OUTLINED, GUESSED, POINTED, CELLED),
    "dicom-seg": (replace(MASKED, points=()), PARTS, GUESSED),
    "dicom-sr": (replace(MASKED, mask=None), BOXED, OUTLINED, POINTED),
}
"""Parts of the drawings that each format keeps; it must name the others."""
NOT_KEPT = {
    "coco": [],
    "cvat": ["1 empty masks, which CVAT cannot store"],
    "label-studio": [],
    "fiftyone": ["1 empty masks, which FiftyOne cannot store"],
    "dicom-seg": [
        "1 empty masks, because a segment must have pixels",
        "2 drawings’ points; export them with --to dicom-sr",
        "1 drawings’ boxes; export them with --to dicom-sr",
        "1 drawings’ contours",
        "1 drawings’ cells of drawings without a mask",
    ],
    "dicom-sr": [
        "4 drawings’ masks; export them with --to dicom-seg",
        "1 drawings’ cells, the only content of these drawings",
    ],
}
LABELLING = {"cvat", "label-studio", "fiftyone", "dicom-sr"}


def known() -> Annotations:
    return annotations()


def by_key(read_back: Annotations) -> set[str]:
    return {repr(one) for one in (*read_back.drawings, *read_back.studies)}


def test_the_command_offers_the_forms_that_there_are() -> None:
    assert get_args(ExchangeForm) == ("table", *FORMS)
    assert list(FORMS) == list(HELD)


@pytest.mark.parametrize("name", FORMS)
def test_drawings_come_back_as_they_were_and_what_does_not_is_named(name: str, tmp_path: Path) -> None:
    form = form_named(name)
    lost = form.write(annotations(*DRAWINGS), tmp_path, PICTURES)
    assert lost == NOT_KEPT[name]
    assert by_key(form.read(tmp_path, known())) == {repr(one) for one in HELD[name]}


@pytest.mark.parametrize("name", FORMS)
def test_the_same_drawings_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        form_named(name).write(annotations(*DRAWINGS), folder, PICTURES)
        written.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert written[0] == written[1]


@pytest.mark.parametrize("name", FORMS)
def test_labels_of_studies(name: str, tmp_path: Path) -> None:
    form, labelled = form_named(name), annotations(studies=(LABELLED, JUDGED))
    if name not in LABELLING:
        with pytest.raises(ArgumentError, match=f"must be a form that can store labels of studies, got {name}"):
            form.write(labelled, tmp_path, PICTURES)
        return
    assert form.write(labelled, tmp_path, PICTURES) == []
    assert by_key(form.read(tmp_path, known())) == {repr(LABELLED), repr(JUDGED)}


@pytest.mark.parametrize("name", ["cvat", "label-studio", "fiftyone"])
def test_contours_from_which_a_mask_was_filled_stay_behind_and_are_counted(name: str, tmp_path: Path) -> None:
    both = replace(MASKED, polygons=OUTLINED.polygons)
    lost = form_named(name).write(annotations(both, OUTLINED), tmp_path, PICTURES)
    assert lost == ["contours of 1 drawings, whose masks are exported"]


@given(MASKS)
def test_masks_as_runs_and_as_brushes(mask: Any) -> None:
    height, width = mask.shape
    film = AnnotatedImage("i", "s", "p", width, height)
    assert mask_of_runs(runs_of_mask(mask), (0, 0, width, height), film) == encode_mask(mask)
    assert np.array_equal(label_studio.decode_brush(label_studio.encode_brush(mask), mask.shape), mask)


def test_a_long_run_of_a_brush_is_several() -> None:
    mask = np.zeros((200, 300), dtype=bool)  # 240,000 words, and a run has at most 65,536
    mask[150:, :] = True
    assert np.array_equal(label_studio.decode_brush(label_studio.encode_brush(mask), mask.shape), mask)


# Small files written by hand after each form's own description --------------------------------------------------------


def test_a_coco_file_of_another_tool(tmp_path: Path) -> None:
    document = {
        "images": [{"id": 7, "file_name": "images/b.jpg", "width": 4, "height": 6}],
        "categories": [{"id": 3, "name": "edema"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 2, 3], "score": 0.5},
            # two background pixels of the first column, then one, then the rest of 24
            {"id": 2, "image_id": 7, "category_id": 3, "segmentation": {"size": [6, 4], "counts": [2, 1, 21]}},
            {"id": 3, "image_id": 7, "category_id": 3, "segmentation": [[0, 0, 3, 0, 3, 5]], "bbox": [0, 0, 3, 5]},
        ],
    }
    (tmp_path / "any.json").write_text(json.dumps(document))
    box, mask, contour = coco.read(tmp_path / "any.json", known()).drawings
    assert (box.boxes, box.score, box.reader) == (((1.0, 2.0, 2.0, 3.0),), 0.5, "prediction")
    expected = np.zeros((6, 4), dtype=bool)
    expected[2, 0] = True
    assert mask.mask == encode_mask(expected)
    assert contour.polygons == (((0.0, 0.0), (3.0, 0.0), (3.0, 5.0)),)
    assert contour.boxes == ()


def test_a_cvat_file_of_another_tool(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(
        """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><!-- made by hand -->
  <image id="0" name="folder/b.png" width="4" height="6">
    <mask label="Edema" source="manual" occluded="0" rle="1, 2, 1" left="1" top="3" width="2" height="2" z_order="0"/>
    <polygon label="Edema" source="manual" occluded="0" points="0.00,0.00;3.00,0.50;1.50,4.00" z_order="0"/>
    <box label="Pleural Effusion" occluded="0" source="manual" xtl="0.10" ytl="1.00" xbr="3.40" ybr="2.00" z_order="0"/>
    <points label="Edema" occluded="0" source="manual" points="1.50,2.50;3.00,0.25" z_order="0"/>
    <tag label="Edema" source="manual"/>
  </image>
</annotations>"""
    )
    read_back = cvat.read(tmp_path / "export.xml", known())
    mask, polygon, box, points = read_back.drawings
    expected = np.zeros((6, 4), dtype=bool)
    expected[3, 2] = expected[4, 1] = True  # rows of the box: 0 1 / 1 0
    assert mask.mask == encode_mask(expected)
    assert polygon.polygons == OUTLINED.polygons
    assert box.boxes == ((0.1, 1.0, 3.3, 1.0),)
    assert points.points == ((1.5, 2.5), (3.0, 0.25))
    assert [(one.study_id, dict(one.values)) for one in read_back.studies] == [("s2", {"Edema": 1.0})]


def test_a_label_studio_export_of_another_person(tmp_path: Path) -> None:
    # one row of two pixels, background and foreground, each of four words of 8 bits, as two runs of 4-bit lengths
    bits = (
        f"{8:032b}{7:05b}"
        + "0011"
        + "0111"
        + "1111"
        + "1111"
        + "1"
        + "00"
        + "0011"
        + "0" * 8
        + "1"
        + "00"
        + "0011"
        + "1" * 8
    )
    brush = np.packbits(np.array([int(bit) for bit in bits], dtype=np.uint8)).tolist()
    size = {"original_width": 2, "original_height": 1, "image_rotation": 0}
    result = [
        {"type": "brushlabels", "value": {"format": "rle", "rle": brush, "brushlabels": ["Edema"]}, **size},
        {"type": "rectanglelabels", **size,
         "value": {"x": 50, "y": 0, "width": 25, "height": 100, "rotation": 0, "rectanglelabels": ["Edema"]}},
        {"type": "keypointlabels", **size, "value": {"x": 75, "y": 50, "width": 1, "keypointlabels": ["Edema"]}},
    ]  # fmt: skip
    task = {
        "data": {"image": "/data/upload/1/0a1b2c3d-tiny.png", "image_id": "tiny"},
        "annotations": [
            {"completed_by": {"id": 4, "email": "r@example.org"}, "result": result},
            {"completed_by": 5, "was_cancelled": True, "result": result},
        ],
    }
    (tmp_path / "export.json").write_text(json.dumps([task]))
    tiny = replace(known(), films={"tiny": AnnotatedImage("tiny", "s", "p", 2, 1)})
    mask, box, point = label_studio.read(tmp_path / "export.json", tiny).drawings
    assert mask.mask == encode_mask(np.array([[False, True]]))
    assert mask.reader == "individual:r@example.org"
    assert box.boxes == ((1.0, 0.0, 0.5, 1.0),)
    assert point.points == ((1.5, 0.5),)


# What must be refused -----------------------------------------------------------------------------------------------

COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "b.png"}],
    "categories": [{"id": 1, "name": "Edema"}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}],
}


def coco_with(**changes: Any) -> Callable[[Path], None]:
    document = {**COCO, **changes}
    return lambda path: path.write_text(json.dumps(document)) and None


def annotation(**more: Any) -> list[dict[str, Any]]:
    return [{"image_id": 1, "category_id": 1, **more}]


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (lambda path: path.write_text("[]"), "must be a COCO dataset with images, categories, annotations"),
        (lambda path: path.write_text('{"images": [}'), "must be JSON"),
        (lambda path: path.write_text('{"images": [], "images": []}'), "must not have a key twice"),
        (coco_with(images=[{"id": 1, "file_name": "c.png"}]), r"must refer to images of split 'test'.*got 'c.png'"),
        (coco_with(categories=[{"id": 1, "name": "Oedema"}]), r"must name findings of the benchmark.*got 'Oedema'"),
        (coco_with(annotations=[{"image_id": 2, "category_id": 1}]), "must have images and categories.*annotation 1"),
        (coco_with(annotations=[{"category_id": 1}]), "must have `image_id` in every"),
        (coco_with(annotations=annotation(bbox=[0, 0, "x", 1])), "must have finite numbers as bbox, got 'x'"),
        (coco_with(annotations=annotation(segmentation={"size": [4, 6], "counts": "n"})), r"b has \[6, 4\], got \[4"),
        (coco_with(annotations=annotation(segmentation={"size": [6, 4], "counts": "\n"})), "character|RLE|counts"),
        (coco_with(annotations=annotation(segmentation={"size": [6, 4], "counts": [5]})), "must have runs that fill"),
        (coco_with(annotations=annotation(segmentation=[[0, 0, 1, 1]])), "must have contours of three points or more"),
        (coco_with(images=COCO["images"] * 2), "must have every `id` of images and of categories once, got 1"),
        (coco_with(images=[{**COCO["images"][0], "width": 8, "height": 12}]), "full size, b has 4 x 6 .*8 x 12"),
        (coco_with(annotations=annotation(segmentation=True)), "must have an object as segmentation, got True"),
        (coco_with(annotations=annotation(bbox=[1, 2, 3])), r"must have boxes \[x, y, .* got \[1, 2, 3\]"),
        (coco_with(annotations=annotation(points=[[1, 2, 3]])), r"must have pairs \[x, y\] as points, got \[1, 2, 3\]"),
        (coco_with(annotations=annotation(points=5)), "must have a list as points, got 5"),
        (coco_with(annotations=annotation(group=[], cell="A1")), r"must have text or a number as group, got \[\]"),
        (coco_with(annotations=annotation(score=10**400)), "must have finite numbers as score, got 1000"),
        (coco_with(annotations=annotation(score="NaN", bbox=[0, 0, 1, 1])), "must have finite numbers as score"),
    ],
)  # fmt: skip
def test_a_coco_file_that_does_not_fit(write: Callable[[Path], None], match: str, tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    with pytest.raises(ValueError, match=match):
        coco.read(tmp_path / "a.json", known())


MASK = '<mask label="Edema" rle="{rle}" left="{left}" top="0" width="2" height="2"/>'


@pytest.mark.parametrize(
    ("inside", "match"),
    [
        ('<!DOCTYPE a [<!ENTITY e "eeeeeeeeee">]>', "must be XML without a DOCTYPE"),
        ("<annotations>", "must be XML: "),
        ('<?xml version="1.0" encoding="utf-7"?><annotations/>', "must be XML: "),
        ("<\0!\0", "must be UTF-8"),
        ('<annotations><image name="b.png" width="8" height="12"/></annotations>', "full size, b has 4 x 6 pixels"),
        ("<other/>", "must be exported as CVAT for images 1.1"),
        ("<annotations><track/></annotations>", "must be exported as CVAT for images 1.1, not for video"),
        ('<annotations><image name="c.png"/></annotations>', "must refer to images of split 'test'"),
        (MASK.format(rle="1, 2", left=0), "must have runs that fill the box of their mask"),
        (MASK.format(rle="-1, 5", left=0), "must have runs that fill the box of their mask"),
        (MASK.format(rle="1, 3", left=3), "must have masks within their image, b has 4 x 6 pixels"),
        (MASK.format(rle="1, 2.5", left=0), "must have whole numbers as rle"),
        ('<box label="Edema" xtl="0" ytl="0" xbr="inf" ybr="1"/>', "must have finite numbers as xbr"),
        ('<points label="Edema" points="1"/>', "must have finite numbers as points"),
        ('<ellipse label="Edema"/>', "must have shapes of mask, box, points, polygon, tag, got <ellipse>"),
        ('<box label="Mass" xtl="0" ytl="0" xbr="1" ybr="1"/>', "must name findings of the benchmark"),
    ],
)
def test_a_cvat_file_that_does_not_fit(inside: str, match: str, tmp_path: Path) -> None:
    is_whole = inside.startswith(("<annotations", "<other", "<!", "<?", "<\0"))
    text = inside if is_whole else f'<annotations><image name="b.png">{inside}</image></annotations>'
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(ArgumentError, match=match):
        cvat.read(tmp_path / "a.xml", known())


def region(kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "value": {kind: ["Edema"], **value}, **more}


@pytest.mark.parametrize(
    ("given_region", "match"),
    [
        (region("brushlabels", {"rle": [0, 0, 0, 96, 0]}), "must have brushes that are whole"),
        (region("brushlabels", {"rle": [0] * 20}), "must have brushes of four channels of 4 x 6 pixels, got 0 words"),
        (region("brushlabels", {"rle": [300]}), "must have brushes of bytes"),
        (region("brushlabels", {"rle": []}, original_width=8, original_height=6), "b has 4 x 6 pixels, got 8 x 6"),
        (region("rectanglelabels", {"x": 0, "y": 0, "width": 1}), "must have finite numbers as height, got None"),
        (region("rectanglelabels", {"x": 0, "y": 0, "width": 50, "height": 50, "rotation": 45}), "rotated by 45"),
        (region("ellipselabels", {}), "must have regions of brush, rectangle, keypoint or polygon labels"),
        ({"type": "brushlabels", "value": {"brushlabels": []}}, "must have regions with one label each"),
        ("brush", "must have an object as region, got 'brush'"),
        (region("polygonlabels", {"points": [[0, 0], [1, 1]]}), "a contour must have three points or more, got 2"),
    ],
)
def test_a_label_studio_file_that_does_not_fit(given_region: dict[str, Any], match: str, tmp_path: Path) -> None:
    task = {"data": {"image_id": "b"}, "annotations": [{"result": [given_region]}]}
    (tmp_path / "a.json").write_text(json.dumps([task]))
    with pytest.raises(ArgumentError, match=match):
        label_studio.read(tmp_path / "a.json", known())


def detection(**more: Any) -> dict[str, Any]:
    label = {"label": "Edema", "bounding_box": [0.25, 0.5, 0.5, 0.5], **more}
    return {"samples": [{"filepath": "data/b.png", "found": {"_cls": "Detections", "detections": [label]}}]}


@pytest.mark.parametrize(
    ("document", "match"),
    [
        ({}, "must be samples.json of a FiftyOneDataset"),
        (detection(label="Mass"), "must name findings of the benchmark"),
        (detection(mask_path="/etc/passwd"), "must contain its masks, not refer to files"),
        (detection(mask={"$binary": {"base64": "AAAA"}}), "must have masks that can be read"),
        (detection(confidence="high"), "must have finite numbers as confidence"),
        (detection(bounding_box=[0, 0, None, 1]), "must have finite numbers as bounding_box"),
        (detection(bounding_box=[0, 0, 1]), "must have boxes of four fractions as bounding_box"),
        ({"samples": ["b.png"]}, "must have an object as sample, got 'b.png'"),
    ],
)
def test_a_fiftyone_folder_that_does_not_fit(document: dict[str, Any], match: str, tmp_path: Path) -> None:
    (tmp_path / "samples.json").write_text(json.dumps(document))
    with pytest.raises(ArgumentError, match=match):
        fiftyone.read(tmp_path, known())


def test_a_mask_that_expands_without_end_is_not_expanded(tmp_path: Path) -> None:
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(bytes(50_000_000))).decode()
    (tmp_path / "samples.json").write_text(json.dumps(detection(mask={"$binary": {"base64": bomb}})))
    with pytest.raises(ArgumentError, match="must have masks that can be read"):
        fiftyone.read(tmp_path, known())


def test_a_box_of_fiftyone_whose_mask_is_smaller_is_refused(tmp_path: Path) -> None:
    small = fiftyone._binary(np.ones((2, 2), dtype=bool))
    (tmp_path / "samples.json").write_text(json.dumps(detection(mask=small)))
    with pytest.raises(ArgumentError, match=re.escape("(2, 2) in 2 x 3 of b")):
        fiftyone.read(tmp_path, known())


def test_parts_of_one_drawing_must_be_of_one_finding(tmp_path: Path) -> None:
    rows = [*annotation(bbox=[0, 0, 1, 1], group=1), {**annotation(bbox=[0, 0, 1, 1], group=1)[0], "category_id": 2}]
    categories = [{"id": 1, "name": "Edema"}, {"id": 2, "name": "Pleural Effusion"}]
    coco_with(annotations=rows, categories=categories)(tmp_path / "a.json")
    with pytest.raises(ArgumentError, match="must have one image, finding and reader in all parts of a drawing"):
        coco.read(tmp_path / "a.json", known())


@pytest.mark.parametrize(
    ("name", "image_id"),
    [
        ("b.png", "b"),
        ("x/y/b.dcm", "b"),
        ("C:\\films\\b.jpg", "b"),
        (PICTURES[WIDE.image_id], WIDE.image_id),
        ("b", "b"),
    ],
)
def test_an_image_is_found_by_its_files_name(name: str, image_id: str) -> None:
    assert known().film_of(name).image_id == image_id


def test_file_names_are_ones_that_every_file_system_takes_and_stand_for_one_image() -> None:
    ids = ("A", "a", "con", "a b", "a%20b", "scan", "scan.png", "\u00e9", "e\u0301", "../x", "é" * 100)
    several = replace(known(), films={image_id: AnnotatedImage(image_id, image_id, "p", 4, 6) for image_id in ids})
    names = [f"{stem}.png" for stem in several.stems.values()]
    assert len({name.casefold() for name in names}) == len(ids)
    assert names[0] == "A.png"
    assert "con.png" not in names
    assert max(map(len, names)) < 160
    assert not any("/" in name for name in names)
    assert [several.film_of(f"images/{name}").image_id for name in names] == list(ids)


def test_readers_whose_names_differ_in_signs_alone_keep_their_drawings_apart(tmp_path: Path) -> None:
    drawn = tuple(replace(OUTLINED, reader=reader) for reader in ("individual:1-2", "individual:1_2"))
    fiftyone.write(annotations(*drawn), tmp_path, PICTURES)
    assert fiftyone.read(tmp_path, known()).drawings == drawn


def test_results_for_cocos_own_evaluation(tmp_path: Path) -> None:
    from pycocotools import coco as tools

    lost = coco.write(
        annotations(GUESSED, replace(GUESSED, image_id="b", mask=PARTS.mask, score=None)), tmp_path, PICTURES
    )
    assert lost == ["1 predictions without a score: results.json gives them the score 1"]
    tool = tools.COCO(str(tmp_path / "annotations.json"))
    results = tool.loadRes(str(tmp_path / "results.json"))
    drawn = [results.annToMask(one).astype(bool) for one in results.anns.values()]
    assert np.array_equal(drawn[0], RING)
    assert [one["score"] for one in results.anns.values()] == [0.625, 1.0]
    assert [image["file_name"] for image in tool.imgs.values()] == list(PICTURES.values())
    assert PICTURES[TALL.image_id] == "b.png"


def test_readers_are_named_in_order() -> None:
    assert annotations(*DRAWINGS).readers == ["ground_truth", "individual:R2", "human_benchmark", "prediction"]
    assert annotations(studies=(JUDGED, LABELLED)).readers == ["prediction", "ground_truth"]


def test_drawings_that_are_not_one_are_kept_apart(tmp_path: Path) -> None:
    twice = (BOXED, Drawing("b", "Edema", "human_benchmark", boxes=((0.0, 0.0, 1.0, 1.0),)))
    for name in ("coco", "cvat", "label-studio", "fiftyone", "dicom-sr"):
        folder = tmp_path / name
        folder.mkdir()
        form_named(name).write(annotations(*twice), folder, PICTURES)
        assert form_named(name).read(folder, known()).drawings == twice
