"""Geometry in annotation files: sizes, rotations, boxes beyond the image, and names; expected boxes are by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange import form_named
from reveal_bench.exchange.row_places import RowPlaces
from reveal_bench.exchange.transfer import from_form
from reveal_bench.geometry import box_around
from reveal_bench.kinds.cases import AnnotatedImage, Annotations, Drawing, StudyLabels
from reveal_bench.kinds.detection.cases import detections_of
from reveal_bench.kinds.findings.cases import predictions_of
from tests.cli.test_score import call
from tests.conftest import ROOT, World

FILM = AnnotatedImage("p1_front", "s1", "p1", 40, 30)
KNOWN = Annotations("demo", "1.0", "test", {FILM.image_id: FILM}, ("Edema", "Nodule"))
FORMS = ("coco", "cvat", "label-studio", "fiftyone")
BOX = (10, 10, 12, 4)
CASES = ROOT.parent / "shared" / "data" / "cases"


def write(form: str, path: Path, box: Any = BOX, rotation: float = 0, size: Any = (40, 30), name: str = "p1_front.png"):
    """Write a file with one box of Edema as the form's own tool does."""
    (x, y, width, height), (wide, high) = box, size
    if form == "cvat":
        sides = f'xtl="{x}" ytl="{y}" xbr="{x + width}" ybr="{y + height}" rotation="{rotation}"'
        image = f'<image id="0" name="{name}" width="{wide}" height="{high}">'
        path.write_text(f'<annotations>{image}<box label="Edema" {sides}/></image></annotations>')
        return path
    if form == "coco":
        image = {"id": 1, "file_name": name, "width": wide, "height": high}
        row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": list(box), "attributes": {"rotation": rotation}}
        document: Any = {"images": [image], "categories": [{"id": 1, "name": "Edema"}], "annotations": [row]}
    elif form == "label-studio":
        sides = {"x": x / 0.4, "y": y / 0.3, "width": width / 0.4, "height": height / 0.3, "rotation": rotation}
        document = [task(region("rectanglelabels", sides, original_width=wide, original_height=high), name=name)]
    else:
        label = {"label": "Edema", "bounding_box": [x / 40, y / 30, width / 40, height / 30], "rotation": rotation}
        sample = {"filepath": f"data/{name}", "found": {"_cls": "Detections", "detections": [label]}}
        document = {"samples": [{**sample, "metadata": {"width": wide, "height": high}}]}
    path.write_text(json.dumps(document))
    return path


def region(kind: str, value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "value": {kind: ["Edema"], **value}, **more}


def task(*regions: dict[str, Any], name: str = "p1_front.png") -> dict[str, Any]:
    return {"data": {"image": f"/data/upload/1/{name}"}, "annotations": [{"result": list(regions)}]}


def read_tasks(path: Path, *regions: dict[str, Any], name: str = "p1_front.png") -> Annotations:
    path.write_text(json.dumps([task(*regions, name=name)]))
    return form_named("label-studio").read(path, KNOWN)


@pytest.mark.parametrize(
    ("degrees", "about", "expected"),
    [
        (90, "centre", (14, 6, 4, 12)),  # about (16, 12)
        (-90, "centre", (14, 6, 4, 12)),
        (180, "centre", BOX),
        (90, "corner", (6, 10, 4, 12)),  # about (10, 10), downwards and to the left
        (180, "corner", (-2, 6, 12, 4)),
        (45, "centre", (10.343145751, 6.343145751, 11.313708499, 11.313708499)),  # sides of 16 / sqrt(2)
    ],
)
def test_upright_box_around_a_rotated_one(degrees: float, about: Any, expected: Any) -> None:
    assert box_around(BOX, degrees, about=about) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_rotated_box_becomes_the_box_around_it_and_is_counted(form: str, tmp_path: Path) -> None:
    done = form_named(form).read(write(form, tmp_path / "a", rotation=90), KNOWN)
    expected = (6, 10, 4, 12) if form == "label-studio" else (14, 6, 4, 12)
    assert done.drawings[0].boxes[0] == pytest.approx(expected)
    assert done.notes == ("1 rotated box: a prediction has the upright box around it",)
    for whole_turn in (0, 360):
        done = form_named(form).read(write(form, tmp_path / "a", rotation=whole_turn), KNOWN)
        assert done.drawings[0].boxes[0] == pytest.approx(BOX)
        assert done.notes == ()


@pytest.mark.parametrize("size", [(30, 40), (20, 15), (80, 60), (40, None)])
@pytest.mark.parametrize("form", FORMS)
def test_other_sizes_than_the_images_are_refused(form: str, size: Any, tmp_path: Path) -> None:
    wide, high = size
    if form == "cvat" and high is None:
        high = 41
    with pytest.raises(ArgumentError, match=rf"p1_front has 40 x 30 pixels, got {wide} x {high} at "):
        form_named(form).read(write(form, tmp_path / "a", size=(wide, high)), KNOWN)


@pytest.mark.parametrize(
    ("box", "rotation", "problem"),
    [
        ((-5, 10, 12, 4), 0, "must be in the image of 40 x 30 pixels"),
        ((10, 10, 40, 4), 0, "must be in the image of 40 x 30 pixels"),
        ((10, 28, 12, 4), 0, "must be in the image of 40 x 30 pixels"),
        ((10, 10, 0, 4), 0, "must have width and height above 0"),
        ((10, 10, 12, -4), 0, "must have width and height above 0"),
        ((2, 1, 30, 4), 90, "must be in the image of 40 x 30 pixels"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_boxes_beyond_the_image_are_refused(form: str, box: Any, rotation: float, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=rf"`file` at .*1.* \(p1_front\): a box {problem}, got \["):
        form_named(form).read(write(form, tmp_path / "a", box, rotation), KNOWN)


@pytest.mark.parametrize("form", FORMS)
def test_boxes_less_than_a_pixel_beyond_the_image_are_cut_and_counted(form: str, tmp_path: Path) -> None:
    done = form_named(form).read(write(form, tmp_path / "a", (-0.5, 10, 12, 4)), KNOWN)
    assert done.drawings[0].boxes[0] == pytest.approx((0, 10, 11.5, 4))
    assert done.notes == ("1 box cut at the border of the image, by at most 1 pixel",)


@pytest.mark.parametrize("form", FORMS)
def test_rounding_at_the_border_is_not_counted(form: str, tmp_path: Path) -> None:
    done = form_named(form).read(write(form, tmp_path / "a", (28, 10, 12.0000004, 20.0000004)), KNOWN)
    assert done.drawings[0].boxes == ((28, 10, 12, 20),)
    assert done.notes == ()


def test_annotations_without_a_region_are_refused(tmp_path: Path) -> None:
    for n, row in enumerate(({"bbox": [0, 0, 0, 0]}, {"bbox": []}, {"segmentation": []})):
        document = json.loads(write("coco", tmp_path / "a").read_text())
        document["annotations"] = [{"id": 1, "image_id": 1, "category_id": 1, "score": n, **row}]
        (tmp_path / "a").write_text(json.dumps(document))
        with pytest.raises(ArgumentError, match=r"annotation 1 \(p1_front\): there must be a box, mask"):
            form_named("coco").read(tmp_path / "a", KNOWN)
    sample = {"filepath": "p1_front.png", "found": {"_cls": "Detections", "detections": [{"label": "Edema"}]}}
    (tmp_path / "a").write_text(json.dumps({"samples": [sample]}))
    with pytest.raises(ArgumentError, match=r"label 1 of sample 1 \(p1_front\): there must be a box, mask"):
        form_named("fiftyone").read(tmp_path / "a", KNOWN)


@pytest.mark.parametrize("form", [*FORMS, "dicom-sr"])
def test_points_contours_and_boxes_outside_the_image_are_refused(form: str, tmp_path: Path) -> None:
    outside = {
        "box": Drawing("p1_front", "Edema", "me", boxes=((50.0, 5.0, 4.0, 4.0),)),
        "point": Drawing("p1_front", "Edema", "me", points=((5.0, 31.0),)),
        "contour": Drawing("p1_front", "Edema", "me", polygons=(((0.0, 0.0), (3.0, 0.5), (50.0, 4.0)),)),
    }
    for what, drawing in outside.items():
        (tmp_path / what).mkdir()
        form_named(form).write(replace(KNOWN, drawings=(drawing,)), tmp_path / what, {"p1_front": "p1_front.png"})
        with pytest.raises(ArgumentError, match=rf"\(p1_front\): a {what} must be in the image of 40 x 30 pixels"):
            form_named(form).read(tmp_path / what, KNOWN)


@pytest.mark.parametrize(
    "drawn",
    [
        region("rectanglelabels", {"x": 10, "y": 10, "width": 10, "height": 10}),
        region("polygonlabels", {"points": [[10, 20], [40, 20], [40, 60]]}),
        region("keypointlabels", {"x": 10, "y": 20}),
        region("brushlabels", {"rle": []}),
    ],
)
def test_regions_of_a_rotated_view_are_refused(drawn: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must annotate p1_front upright, got rotated by 90 at region 1 of task 1"):
        read_tasks(tmp_path / "a", {**drawn, "image_rotation": 90})


def test_regions_that_are_not_boxes_may_not_be_rotated(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"region 1 of task 1 \(p1_front\): only boxes may be rotated"):
        read_tasks(tmp_path / "a", region("polygonlabels", {"points": [[1, 2], [4, 2], [4, 6]], "rotation": 10}))
    image = '<annotations><image name="p1_front.png"><polygon label="Edema" rotation="10.0" points="1,1;2,1;2,2"/>'
    (tmp_path / "a").write_text(f"{image}</image></annotations>")
    with pytest.raises(ArgumentError, match=r"<polygon> 1 \(p1_front\): only boxes may be rotated, got a rotation of"):
        form_named("cvat").read(tmp_path / "a", KNOWN)
    document = json.loads(write("coco", tmp_path / "a", rotation=10).read_text())
    document["annotations"][0]["segmentation"] = [[1, 1, 5, 1, 5, 5]]
    (tmp_path / "a").write_text(json.dumps(document))
    with pytest.raises(ArgumentError, match=r"annotation 1 \(p1_front\): only boxes may be rotated"):
        form_named("coco").read(tmp_path / "a", KNOWN)


# Names and parts of default exports ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["624cb493-p1_front.png", "p1_front_png.rf.0123456789abcdef.jpg", "deadbeef-p1_front"])
@pytest.mark.parametrize("form", FORMS)
def test_names_that_tools_give_to_uploads_are_read_and_reported(form: str, name: str, tmp_path: Path) -> None:
    done = form_named(form).read(write(form, tmp_path / "a", name=name), KNOWN)
    assert done.drawings[0].image_id == "p1_front"
    assert len(done.notes) == 1
    assert done.notes[0].startswith("1 image read under another name: '")
    assert done.notes[0].endswith(f"{name}' as 'p1_front'")


def test_ids_that_look_like_uploads_stay_and_unknown_uploads_are_refused(tmp_path: Path) -> None:
    other = replace(FILM, image_id="624cb493-p1_front")
    both = replace(KNOWN, films={**KNOWN.films, other.image_id: other})
    done = form_named("cvat").read(write("cvat", tmp_path / "a", name="624cb493-p1_front.png"), both)
    assert (done.drawings[0].image_id, done.notes) == ("624cb493-p1_front", ())
    for name in ("624cb493-p2.png", "624CB493-p1_front.png", "24cb493-p1_front.png", "p1_front.rf.01.jpg"):
        with pytest.raises(ArgumentError, match=f"must refer to images of split 'test'.*{name}"):
            form_named("cvat").read(write("cvat", tmp_path / "a", name=name), both)


def test_categories_without_annotations_may_have_any_name(tmp_path: Path) -> None:
    document = json.loads(write("coco", tmp_path / "a").read_text())
    document["categories"] += [{"id": 0, "name": "Findings-k2j1", "supercategory": "none"}]
    (tmp_path / "a").write_text(json.dumps(document))
    assert form_named("coco").read(tmp_path / "a", KNOWN).drawings[0].finding == "Edema"
    document["annotations"][0]["category_id"] = 0
    (tmp_path / "a").write_text(json.dumps(document))
    with pytest.raises(ArgumentError, match=r"must name findings of the benchmark.*got 'Findings-k2j1'"):
        form_named("coco").read(tmp_path / "a", KNOWN)


def test_results_that_are_not_drawings_are_left_out_by_count(tmp_path: Path) -> None:
    box = region("rectanglelabels", {"x": 25, "y": 50, "width": 25, "height": 20}, id="a")
    others = [
        {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right"},
        {"type": "relation", "from_id": "b", "to_id": "a", "direction": "right"},
        {"type": "textarea", "id": "a", "value": {"x": 25, "y": 50, "text": ["seen twice"]}},
        {"type": "choices", "value": {"choices": ["Good image"]}, "meta": {"text": ["a note"]}},
        {"type": "choices", "id": "a", "value": {"x": 25, "y": 50, "width": 25, "height": 20, "choices": ["Edema"]}},
        {"type": "rating", "value": {"rating": 3}},
    ]
    done = read_tasks(tmp_path / "a", box, *others)
    assert [one.boxes for one in done.drawings] == [((10, 15, 10, 6),)]
    assert done.studies == ()
    assert done.notes == ("left out: 2 relations, 1 text, 2 choices, 1 rating",)
    done = read_tasks(tmp_path / "a", {"type": "choices", "value": {"choices": ["edema"]}})
    assert done.studies == (StudyLabels("s1", "individual", {"Edema": 1.0, "Nodule": 0.0}),)
    with pytest.raises(ArgumentError, match=r"must name findings of the benchmark.*got 'Nodul'"):
        read_tasks(tmp_path / "a", {"type": "choices", "value": {"choices": ["edema", "Nodul"]}})


def test_answers_that_a_benchmark_does_not_ask_for_are_counted() -> None:
    drawing = Drawing("p1_front", "Edema", "me", boxes=((1.0, 2.0, 3.0, 4.0),), score=0.5)
    both = replace(KNOWN, drawings=(drawing,), studies=(StudyLabels("s1", "me", {"Edema": 1.0}),))
    assert detections_of(both)[1] == ["labels of 1 study: this benchmark asks for locations"]
    assert predictions_of(both)[1] == ["1 drawing: this benchmark asks for labels of studies"]


# As a user runs it ---------------------------------------------------------------------------------------------------


def test_the_command_reports_rotated_boxes_and_fails_on_wrong_ones(world: World, tmp_path: Path) -> None:
    sizes = {"name": "patient00002_study1_view1_frontal.png", "size": (64, 48)}
    out = tmp_path / "p.jsonl"
    options = ("--from", "cvat", "--file", tmp_path / "a", "--out", out)
    write("cvat", tmp_path / "a", (-9, 10, 12, 4), **sizes)
    refused = call("convert", world.folder, *options, expect=1).stderr
    assert "--file at <box> 1 (patient00002_study1_view1_frontal): a box must be in the image of 64 x 48" in refused
    assert not out.exists()
    write("cvat", tmp_path / "a", rotation=90, **sizes)
    assert "1 rotated box: a prediction has the upright box around it" in call("convert", world.folder, *options).stderr
    assert json.loads(out.read_text())["box"] == [14, 6, 4, 12]
    done = from_form("cvat", tmp_path / "a", world.folder, "released", out)
    assert done.notes == ("1 rotated box: a prediction has the upright box around it",)


BOX_OF_EDEMA = region("rectanglelabels", {"x": 10, "y": 10, "width": 20, "height": 20})
OTHERS = {"more": {"_cls": "Segmentation"}, "view": {"_cls": "Classification", "label": "PA"}}
LABEL = {"_cls": "Detection", "label": "Edema", "bounding_box": [0.25, 0.5, 0.5, 0.25], "confidence": 0.5}


@pytest.mark.parametrize(
    ("form", "document", "message"),
    [
        ("label-studio", [{**task(), "annotations": []}], "must have drawings or labels, got none"),
        (
            "label-studio",
            [{**task(), "annotations": [{"was_cancelled": True, "result": [BOX_OF_EDEMA]}]}],
            "got left out: 1 cancelled annotation",
        ),
        ("label-studio", [{**task(), "drafts": [{"result": [BOX_OF_EDEMA]}] * 2}], "got left out: 2 drafts"),
        ("label-studio", [{"image": "p1_front.png", "label": []}], "must be Label Studio's JSON, not JSON-MIN"),
        (
            "fiftyone",
            {"samples": [{"filepath": "p1_front.png", "a": {"_cls": "Heatmap"}}]},
            "left out: 1 Heatmap field",
        ),
        ("fiftyone", {"samples": [{"filepath": "p1_front.png", "a": None}]}, "must have drawings or labels, got none"),
        ("coco", {"images": [], "categories": [], "annotations": []}, "must have drawings or labels, got none"),
        ("coco", [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}], "need `--from table`"),
    ],
)
def test_files_without_a_drawing_are_refused(
    form: str, document: Any, message: str, world: World, tmp_path: Path
) -> None:
    name = "patient00002_study1_view1_frontal"
    (tmp_path / "a.json").write_text(json.dumps(document).replace("p1_front", name))
    options = ("--from", form, "--file", tmp_path / "a.json", "--out", tmp_path / "a.jsonl")
    assert message in call("convert", world.folder, *options, expect=1).stderr
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (LABEL, Drawing("p1_front", "Edema", "found", boxes=((10, 15, 20, 7.5),), score=0.5)),
        ({"_cls": "Keypoint", "label": "Edema", "points": [[0.5, 0.5]]},
         Drawing("p1_front", "Edema", "found", points=((20, 15),))),
        ({"_cls": "Polyline", "label": "Edema", "points": [[[0, 0], [0.5, 0], [0, 0.5]]]},
         Drawing("p1_front", "Edema", "found", polygons=(((0, 0), (20, 0), (0, 15)),))),
        ({"_cls": "Classification", "label": "Edema", "confidence": 0.5}, StudyLabels("s1", "found", {"Edema": 1.0})),
    ],
)  # fmt: skip
def test_single_labels_of_fiftyone(label: Any, expected: Any, tmp_path: Path) -> None:
    sample = {
        "filepath": "p1_front.png",
        "metadata": {"_cls": "ImageMetadata", "width": 40, "height": 30},
        "found": label,
    }
    (tmp_path / "samples.json").write_text(json.dumps({"samples": [sample | OTHERS]}))
    annotations = form_named("fiftyone").read(tmp_path, KNOWN)
    assert (*annotations.drawings, *annotations.studies) == (expected,)
    assert annotations.notes == ("left out: 1 Segmentation field, 1 classification",)


@pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/data: see README")
@pytest.mark.parametrize(
    ("form", "file", "expected"),
    [
        ("cvat", "cvat_rotated_box/annotations.xml", (180, 20, 40, 200)),
        ("coco", "coco_rotation_attribute/annotations.json", (180, 20, 40, 200)),
        ("label-studio", "label_studio_upload_prefix/tasks.json", (51.2, 84, 153.6, 168)),
        ("label-studio", "label_studio_other_size/polygon_image_rotation_90.json", "rotated by 90"),
        ("label-studio", "label_studio_other_size/polygon_swapped.json", "got 420 x 512"),
        ("label-studio", "label_studio_other_size/rectangle_swapped.json", "got 420 x 512"),
    ],
)
def test_files_that_were_read_wrongly(form: str, file: str, expected: Any) -> None:
    film = AnnotatedImage("patient64883_study1_view1_frontal", "s", "p", 512, 420)
    known = replace(KNOWN, films={film.image_id: film}, names=("Cardiomegaly",))
    if isinstance(expected, str):
        with pytest.raises(ArgumentError, match=expected):
            form_named(form).read(CASES / file, known)
    else:
        (drawing,) = form_named(form).read(CASES / file, known).drawings
        assert drawing.boxes == (pytest.approx(expected),)


@pytest.mark.parametrize(
    ("side", "end", "is_noted"), [(1400, 950, True), (1400, 1390, False), (1400, 300, False), (1024, 950, False)]
)
def test_coordinates_that_may_be_thousandths_are_noted(side: int, end: int, is_noted: bool) -> None:
    """Boxes of a model that answers in thousandths are inside a large image, but at other places."""
    places = RowPlaces({"a": {"width": side, "height": 1000}}, "xyxy", is_normalised=False)
    assert places.read({"box": [100, 50, end, 200]}, "a", 1)["box"] == [100, 50, end - 100, 150]
    note = "no coordinate exceeds 1000, though images have up to 1,400 pixels a side: if coordinates are thousandths "
    assert places.notes() == ([f"{note}of the sides, divide by 1000 and set `normalised`"] if is_noted else [])
