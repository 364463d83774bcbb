"""Output of models and scripts, converted to predictions; expected lines are written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.tables import TableError
from tests.cli.test_score import call
from tests.conftest import World
from tests.dataset import card_folders
from tests.kinds.folders import N_STUDIES, studies

__all__ = ["studies"]

LABELS = list(card_folders.LABELS)

ONE, TWO = "patient00002_study1_view1_frontal", "patient00005_study1_view2_frontal"
"""Images of 64 x 48 pixels, width first: see `random_records`."""
BOX = {"image_id": ONE, "finding": "Edema", "box": [8, 16, 24, 32]}
SHARES = [8 / 64, 16 / 48, 24 / 64, 32 / 48]

ROBOFLOW = {"x": 20, "y": 32, "width": 24, "height": 32, "confidence": 0.5, "class": "Edema", "class_id": 4}
"""A box of Roboflow's API: "x = the horizontal center point of the detected object" (its documentation)."""

BOXES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "named corners": ([{"image": ONE, "class": "edema", "xmin": 8, "ymin": 16, "xmax": 32, "ymax": 48}], {}, BOX),
    "corners": ([{"image_id": ONE, "finding": "Edema", "bbox": [8, 16, 32, 48]}], {"boxes": "xyxy"}, BOX),
    "centres": ([{"image_id": ONE, "finding": "Edema", "bbox": [20, 32, 24, 32]}], {"boxes": "cxcywh"}, BOX),
    "shares": ([{"image_id": ONE, "finding": "Edema", "bbox": SHARES}], {"normalised": True}, BOX),
    "shares of centres": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [20 / 64, 32 / 48, 24 / 64, 32 / 48]}],
        {"normalised": True, "boxes": "cxcywh"},
        BOX,
    ),
    "Roboflow's boxes, whose x and y are the centre": (
        [{"image_path": f"{ONE}.png", "predictions": [ROBOFLOW], "image": {"width": 64, "height": 48}, "time": 0.1}],
        {},
        BOX | {"score": 0.5},
    ),
    "a flat row of Roboflow": ([{"image_id": ONE, "detection_id": "4f", **ROBOFLOW}], {}, BOX | {"score": 0.5}),
    "a path": ([{"path": "C:\\films\\" + ONE + ".PNG", "label": "Edema", "x": 8, "y": 16, "w": 24, "h": 32}], {}, BOX),
    "folders": (
        [{"path": "valid/patient00002/study1/view1_frontal.jpg", "label": "Edema", "bbox": [8, 16, 24, 32]}], {}, BOX
    ),
    "a score": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [8, 16, 24, 32], "confidence": 0.5}], {}, BOX | {"score": 0.5}
    ),
    "the best of several": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [i, 16, 24, 32], "score": i / 10} for i in (3, 8, 5)],
        {},
        BOX | {"score": 0.8},
    ),
    "columns that were named": (
        [{"bild": ONE, "befund": "Edema", "bbox": [8, 16, 24, 32]}],
        {"columns": {"bild": "image_id", "befund": "finding"}},
        BOX,
    ),
    "numbers from 1": (
        [{"image_id": ONE, "category_id": 5, "bbox": [8, 16, 24, 32]}],
        {"categories": ["a", "b", "c", "d", "Edema"]},
        BOX,
    ),
    "numbers from 0": (
        [{"image_id": ONE, "category_id": 4, "bbox": [8, 16, 24, 32]}],
        {"categories": ["a", "b", "c", "d", "Edema"], "first_category": 0},
        BOX,
    ),
    "COCO": (
        [{"image_id": 7, "category_id": 17, "bbox": [8, 16, 24, 32], "area": 768, "iscrowd": 0}],
        {
            "instances": {
                "images": [{"id": 7, "file_name": f"{ONE}.jpg", "width": 64, "height": 48},
                           {"id": 8, "file_name": f"{TWO}.jpg"}],
                "categories": [{"id": 17, "name": "Edema"}],
            }
        },
        BOX,
    ),
    "corners in capitals": (
        [{"image_id": ONE, "finding": "Edema", "XMin": 8, "YMin": 16, "XMax": 32, "YMax": 48}], {}, BOX
    ),
    "capitals": ([{"IMAGE_ID": ONE, "Finding": "Edema", "X ": 8, "Y": 16, "WIDTH": 24, "Height": 32}], {}, BOX),
    "a list as text": ([{"image_id": ONE, "finding": "Edema", "bbox": "[8, 16, 24, 32]"}], {}, BOX),
    "a tuple as text": ([{"image_id": ONE, "finding": "Edema", "BBox": "(8, 16.0, 24, 32)"}], {}, BOX),
    "an array as text": ([{"image_id": ONE, "finding": "Edema", "box": "[ 8. 16. 24. 32.]"}], {}, BOX),
    "numbers with spaces": ([{"image_id": ONE, "finding": "Edema", "bbox": "8 16 24 32"}], {}, BOX),
    "corners as text": ([{"image_id": ONE, "finding": "Edema", "bbox": "8,16,32,48"}], {"boxes": "xyxy"}, BOX),
    # [4, 20, 32, 24] about its centre (20, 32)
    "a rotated box": ([{"image_id": ONE, "finding": "Edema", "bbox": [4, 20, 32, 24], "rotation": "90"}], {}, BOX),
    "a rotation of CVAT": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [4, 20, 32, 24], "attributes": {"rotation": 270.0}}], {}, BOX
    ),
    "a whole turn": ([{"image_id": ONE, "finding": "Edema", "bbox": [8, 16, 24, 32], "Rotation": 360}], {}, BOX),
    "a box of ultralytics": (
        [{"image_id": ONE, "name": "Edema", "class": 5, "confidence": 0.5,
          "box": {"x1": 8, "y1": 16, "x2": 32, "y2": 48}}],
        {},
        BOX | {"score": 0.5},
    ),
    "a flat box of ultralytics": (
        [{"image_id": ONE, "name": "Edema", "class": 5, "box.x1": 8, "box.y1": 16, "box.x2": 32, "box.y2": 48}], {}, BOX
    ),
    "a box with named sides": (
        [{"image_id": ONE, "class": "Edema", "bbox": '{"x": 8, "y": 16, "width": 24, "height": 32}'}], {}, BOX
    ),
    "a number of a category before a name": (
        [{"image_id": ONE, "category_id": 1, "name": "front", "bbox": [8, 16, 24, 32]}], {"categories": ["Edema"]}, BOX
    ),
    "columns of Open Images": (
        [{"ImageID": ONE, "LabelName": "Edema", "Confidence": 1,
          "XMin": SHARES[0], "XMax": 0.5, "YMin": SHARES[1], "YMax": 1}],
        {"normalised": True},
        BOX | {"score": 1},
    ),
    "images without a finding": (
        [{"Image Index": f"{ONE}.png", "Finding Label": "Edema", "bbox": [8, 16, 24, 32]},
         {"Image Index": f"{TWO}.png", "Finding Label": "No finding", "bbox": None}],
        {},
        BOX,
    ),
    "a box in the corner": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [0, 0, 1, 1]}], {}, BOX | {"box": [0, 0, 1, 1]}
    ),
    "a written index": (
        [{"Unnamed: 0": i, "image_id": one, "finding": "Edema", "bbox": [8, 16, 24, 32]}
         for i, one in enumerate([ONE])],
        {},
        BOX,
    ),
}  # fmt: skip


@pytest.mark.parametrize("as_frame", [False, True])
@pytest.mark.parametrize("case", BOXES)
def test_boxes(world: World, case: str, as_frame: bool) -> None:
    rows, options, expected = BOXES[case]
    (line,) = rb.convert(pd.DataFrame(rows) if as_frame else rows, world.folder, **options).predictions
    assert line.pop("box") == pytest.approx(expected["box"])
    assert line == {name: value for name, value in expected.items() if name != "box"}


@pytest.mark.parametrize(
    ("row", "name", "expected"),
    [
        ({"x": 0.25, "y": 0.5}, "point", [16, 24]),
        ({"points": [[0.25, 0.5], [1, 0]]}, "points", [[16, 24], [64, 0]]),
        ({"segmentation": [[0.25, 0.5, 0.5, 0.5, 0.5, 1]]}, "polygons", [[[16, 24], [32, 24], [32, 48]]]),
        ({"polygons": [[[0.25, 0.5], [0.5, 0.5], [0.5, 1]]]}, "polygons", [[[16, 24], [32, 24], [32, 48]]]),
    ],
)
def test_fractions_of_the_sides_of_an_image(world: World, row: Any, name: str, expected: Any) -> None:
    rows = [{"image_id": ONE, "finding": "Edema", **row}]
    (line,) = rb.convert(rows, world.folder, normalised=True).predictions
    assert line[name] == expected
    with pytest.raises(ArgumentError, match="for fractions of the image's sides, set `normalised`, got no coordinate"):
        rb.convert(rows, world.folder)
    mixed = [*rows, {"image_id": TWO, "finding": "Edema", "point": [20, 30]}]
    assert len(rb.convert(mixed, world.folder).predictions) == 2


def test_rows_of_no_finding_are_counted(world: World) -> None:
    rows, options, _ = BOXES["images without a finding"]
    assert "1 row of no finding mark nothing" in rb.convert(rows, world.folder, **options).notes


def test_only_the_best_of_several_places_is_kept_with_a_note(world: World) -> None:
    rows, options, _ = BOXES["the best of several"]
    note = "2 more positions of an id and finding were left out: the one with the best score was kept"
    assert note in rb.convert(rows, world.folder, **options).notes


@pytest.mark.parametrize(("numbers", "counts"), [((0, 1), True), ((1, 2), True), ((2, 1), False), ((-1, 0), False)])
def test_an_unnamed_column_is_an_index_if_it_counts_from_0_or_1(
    world: World, numbers: tuple[int, int], counts: bool
) -> None:
    rows = [{"Unnamed: 0": number, "image_id": one, "finding": "Edema", "bbox": [8, 16, 24, 32]}
            for number, one in zip(numbers, (ONE, TWO), strict=True)]  # fmt: skip
    notes = rb.convert(rows, world.folder).notes
    assert ("the column `Unnamed: 0`, which numbers the rows, was left out" in notes) is counts


def test_lists_in_cells_of_a_table(world: World, tmp_path: Path) -> None:
    rows = [{"image_id": ONE, "finding": "Edema", "bbox": [8, 16, 24, 32], "point": "9, 20"},
            {"image_id": TWO, "finding": "Edema", "rle": {"size": [48, 64], "counts": "P`3"}}]  # fmt: skip
    file = as_file(tmp_path / "boxes.csv", pd.DataFrame(rows).to_csv(index=False))
    box, mask = rb.convert(file, world.folder).predictions
    assert (box["box"], box["point"], mask["rle"]) == ([8, 16, 24, 32], [9, 20], rows[1]["rle"])
    rotated = [{"image_id": ONE, "finding": "Edema", "bbox": "[4, 20, 32, 24]", "rotation": 90}]
    assert "1 rotated box: a prediction has the upright box around it" in rb.convert(rotated, world.folder).notes


def test_contours_and_masks_of_coco(world: World) -> None:
    shape = [[8, 16, 24, 16, 24, 32]]
    rle = {"size": [48, 64], "counts": "P`3"}
    rows: list[dict[str, Any]] = [
        {"image_id": ONE, "category_id": "Edema", "segmentation": shape, "score": 0.5},
        {"image_id": TWO, "category_id": "Edema", "segmentation": rle, "score": 0.5},
    ]
    polygons, mask = rb.convert(rows, world.folder).predictions
    assert polygons["polygons"] == [[(8, 16), (24, 16), (24, 32)]]
    assert mask["rle"] == rle


NAMES = {"Edema": "edema", "Mass": "MASS"}
"""Other spellings of the labels."""


def chances() -> pd.DataFrame:
    """Return the probability k / 100 + study number / 1000 for the k-th label of each study."""
    rows = [
        {"study_id": f"study-{i}", **{x: k / 100 + i / 1000 for k, x in enumerate(LABELS)}} for i in range(N_STUDIES)
    ]
    return pd.DataFrame(rows)


def as_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def file_of(name: str, write: Callable[[pd.DataFrame], str | None]) -> Callable[[pd.DataFrame, Path], Any]:
    return lambda frame, folder: (as_file(folder / name, str(write(frame))), {})


JSON: dict[str, Any] = {"double_precision": 15}
EXTRA = "Hernia of another vocabulary"
FORMS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "wide": lambda frame, _: (frame, {}),
    "ids as index": lambda frame, _: (frame.set_index("study_id"), {}),
    "other spellings": lambda frame, _: (frame.rename(columns=NAMES), {}),
    "long": lambda frame, _: (frame.melt("study_id", var_name="label", value_name="probability"), {}),
    "long, of a file": file_of("a.csv", lambda frame: frame.melt("study_id", var_name="class").to_csv(index=False)),
    "with the index": file_of("a.csv", pd.DataFrame.to_csv),
    "tabs": file_of("a.tsv", lambda frame: frame.to_csv(sep="\t", index=False)),
    "records": file_of("a.json", lambda frame: frame.to_json(orient="records", **JSON)),
    "columns": file_of("a.json", lambda frame: frame.to_json(**JSON)),
    "lines": file_of("a.jsonl", lambda frame: frame.to_json(orient="records", lines=True, **JSON)),
    "file names": lambda frame, _: (frame.assign(study_id=[f"films/{one}.dcm" for one in frame.study_id]), {}),
    "facts beside": lambda frame, _: (frame.assign(sex="F", age=50), {}),
    "an array": lambda frame, _: (frame[LABELS].to_numpy(), {"labels": LABELS, "ids": list(frame.study_id)}),
    "an array with outputs that nothing asks for": lambda frame, _: (
        frame.assign(a=0.0, b=0.0)[[*LABELS, "a", "b"]].to_numpy(),
        {"labels": [*LABELS, "", EXTRA], "ids": list(frame.study_id)},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_probabilities(studies: tuple[Path, Path], tmp_path: Path, form: str) -> None:
    source, options = FORMS[form](chances(), tmp_path)
    result = rb.convert(source, studies[0], split="test", **options)
    expected = [
        {"study_id": row["study_id"], "probabilities": {x: row[x] for x in LABELS}}
        for row in chances().to_dict("records")
    ]
    assert [line["study_id"] for line in result.predictions] == [line["study_id"] for line in expected]
    for line, wanted in zip(result.predictions, expected, strict=True):
        assert line["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-12)
    assert rb.lint(result.predictions, studies[0], split="test").ok


def test_true_and_false_of_pandas_are_labels(studies: tuple[Path, Path], tmp_path: Path) -> None:
    frame = chances()
    frame[LABELS] = frame[LABELS] > 0.5
    file = as_file(tmp_path / "called.csv", frame.to_csv(index=False))  # with the words True and False
    result = rb.convert(file, studies[0], split="test")
    assert result.lines == rb.convert(frame, studies[0], split="test").lines
    first = frame.iloc[0]
    assert result.lines[0] == {"study_id": first["study_id"], "labels": [name for name in LABELS if first[name]]}


@pytest.mark.parametrize("path", ["valid/{}/view1.png", "valid\\{}\\view1.png", "{}/a.dcm"])
def test_rows_of_a_studys_images_need_one_row(studies: tuple[Path, Path], path: str) -> None:
    frame = chances().rename(columns={"study_id": "Path"})
    frame["Path"] = [path.format(one) for one in frame["Path"]]
    with pytest.raises(ArgumentError, match="not of images in folders with these names: give one row each, such as"):
        rb.convert(frame, studies[0], split="test")


def test_notes_list_each_column_and_its_meaning(studies: tuple[Path, Path]) -> None:
    frame = chances().rename(columns={"study_id": "file", **NAMES}).assign(sex="F")
    frame.insert(0, "", 7)
    frame["file"] = [f"films/{one}.dcm" for one in frame["file"]]
    result = rb.convert(frame, studies[0], split="test")
    notes = "\n".join(result.notes)
    for part in (
        "`file` read as `study_id`",
        "columns left out because the benchmark does not ask for them: a column without a name, sex",
        f"read under another name, ids: films/study-0.dcm as study-0 and {N_STUDIES - 1} more",
        "read under another name, findings: " + ", ".join(f"{theirs} as {ours}" for ours, theirs in NAMES.items()),
    ):
        assert part in notes
    assert notes in repr(result).replace("\n  ", "\n")
    assert len(repr(result).splitlines()) <= 10


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nothing": ([], {}, "must have at least one row"),
    "a number": (5, {}, "must be a path, a DataFrame, a list of mappings"),
    "no id column": ([{"a": 1}], {}, "must say which column is `image_id`, got a"),
    "no finding": ([{"image_id": ONE, "bbox": [1, 2, 3, 4]}], {}, "must have a column `finding`, or one per finding"),
    "unknown findings": (
        [{"image_id": ONE, "finding": name, "bbox": [1, 2, 3, 4]} for name in ("Oops", "Edema", "Ach")], {},
        "must have findings of the benchmark (Enlarged Cardiomediastinum, ",
    ),
    "numbers without names": (
        [{"image_id": ONE, "category_id": 3, "bbox": [1, 2, 3, 4]}], {},
        "numbers need `categories` and `first_category`, or `instances`, got 3",
    ),
    "image numbers": (
        [{"image_id": 36199, "finding": "Edema", "bbox": [1, 2, 3, 4]}], {},
        "must have ids of the split as text, such as 'patient00002_study1_view1_frontal', got 36199",
    ),
    "unknown images": (
        [{"image_id": f"x{i}", "finding": "Edema", "bbox": [1, 2, 3, 4]} for i in range(12)], {},
        "must have ids of the split, such as 'patient00002_study1_view1_frontal', got 'x0', ",
    ),
    "three numbers": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [1, 2, 3]}], {},
        "must have four numbers in each box, got [1, 2, 3]",
    ),
    "a box as words": ([{"image_id": ONE, "finding": "Edema", "bbox": "1,2,x,4"}], {}, "got ['1,2,x,4'] in row 1"),
    "a box with a blank cell": (
        [{"image_id": one, "finding": "Edema", "xmin": 1, "ymin": 2, "xmax": 3} | more
         for one, more in ((TWO, {"ymax": 9}), (ONE, {}))], {}, "got [1, 2, 3, None] in row 2"
    ),
    "a COCO dataset of resized images": (
        [{"image_id": 7, "category_id": "Edema", "bbox": [1, 2, 3, 4]}],
        {"instances": {"images": [{"id": 7, "file_name": ONE, "width": 48, "height": 64}], "categories": []}},
        f"must have images at full size, {ONE} has 64 x 48 pixels, got 48 x 64",
    ),
    "a rotation in words": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [8, 16, 24, 8], "rotation": "left"}], {},
        "must have a number of degrees as `rotation`, got 'left' in row 1",
    ),
    "a rotated contour": (
        [{"image_id": ONE, "finding": "Edema", "segmentation": [[1, 1, 5, 1, 5, 5]], "rotation": 10}], {},
        "must have a box in each row with a `rotation`, got none in row 1",
    ),
    "one column in two spellings": (
        [{"image_id": ONE, "finding": "Edema", "xmin": 1, "XMin": 2, "ymin": 2, "xmax": 3, "ymax": 9}], {},
        "must have the column `xmin` once, got xmin and XMin",
    ),
    "fractions": (
        [{"image_id": ONE, "finding": "Edema", "bbox": SHARES}], {},
        "must have positions in pixels; for fractions of the image's sides, set `normalised`, "
        "got no coordinate above 0.666",
    ),
    "a box of other names": (
        [{"image_id": ONE, "finding": "Edema", "bbox": {"a": 1, "b": 2}}], {}, """got ["{'a': 1, 'b': 2}"] in row 1"""
    ),
    "pandas' JSON of another orientation": (
        {"columns": ["image_id"], "index": [0, 1], "data": [[ONE], [TWO]]}, {},
        "such as `to_json(orient='records')` writes",
    ),
    "a detector's output without ids": (
        [{"boxes": [[1, 2, 3, 4]], "labels": [1], "scores": [0.5]}], {}, "`ids` must be the ids of 1 images"
    ),
    "a number for a box": ([{"image_id": ONE, "finding": "Edema", "bbox": 5}], {}, "got [5] in row 1"),
    "half a point": (
        [{"image_id": ONE, "finding": "Edema", "segmentation": [[1, 2, 3]]}], {},
        "must have contours that are lists x, y, x, y, ... in `segmentation`, got [1, 2, 3] in row 1",
    ),
    "a list for an id": ([{"image_id": [1], "finding": "Edema", "bbox": [1, 2, 3, 4]}], {}, "got '[1]'"),
    "boxes of another kind": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [1, 2, 3, 4]}], {"boxes": "yolo"},
        "must be one of xywh, xyxy, cxcywh, got 'yolo'",
    ),
    "no shares": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [8, 1, 3, 4]}], {"normalised": True},
        "must have fractions in [0, 1]",
    ),
    "two boxes without a score": (
        [{"image_id": ONE, "finding": "Edema", "bbox": [1, 2, 3, i]} for i in (4, 5)], {},
        "must have each id and finding once, or a score",
    ),
    "answers in words alone": (
        [{"image_id": ONE, "finding": "Edema", "answer": "about (12, 30)"}], {},
        "must have a position in each row: `xmin, ymin, xmax, ymax`, `bbox`, `x, y`, a cell or a mask, got image_id, "
        "finding in row 1",
    ),
    "a column that is not there": ([{"image_id": ONE}], {"columns": {"b": "finding"}}, "must name columns of"),
    "an array without ids": (np.zeros((2, 1)), {"labels": ["Edema"]}, "must be given with `labels`"),
    "an array of another shape": (
        np.zeros((2, 1)), {"labels": ["Edema"], "ids": ["a"]}, "got shape (2, 1)"
    ),
    "masks as an array": (
        np.zeros((1, 2, 2)), {"labels": ["Edema"], "ids": [ONE]}, "{'image_id': ..., 'finding': ..., 'mask': array}"
    ),
    "masks of two sizes": (
        [np.zeros((2, 2)), np.zeros((3, 2))], {"labels": ["Edema"], "ids": [ONE, TWO]}, "; masks are a list of {"
    ),
    "a detector with labels": (
        [{"boxes": [[1, 2, 3, 4]], "labels": [1], "scores": [0.5]}], {"labels": ["Edema", "Mass"], "ids": [ONE]},
        "must be omitted for a detector: name its classes with `categories`, such as {1: 'Edema', 2: 'Mass'}",
    ),
    "no COCO": ([{"image_id": 1}], {"instances": {"a": []}}, "must be a COCO dataset with `images` or `categories`"),
    "two names of a number": (
        [{"image_id": 1}],
        {"instances": {"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]}},
        "must have each id once in its images, got 1 twice",
    ),
    "no form": ([], {"form": "xml"}, "must be one of table, coco, cvat, "),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_unusable_input_is_refused_with_a_full_message(world: World, case: str) -> None:
    source, options, message = WRONG[case]
    with pytest.raises(ArgumentError, match="must") as caught:
        rb.convert(source, world.folder, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [bool, np.uint8, float])
def test_masks_are_read_as_by_score(world: World, dtype: Any) -> None:
    bench = rb.load(world.folder, split="released")
    image, finding = bench.manifest.asked_pairs()[0]
    entry = next(one for one in bench.kind.questions.manifest_entries(bench.manifest) if one["image_id"] == image)
    mask = np.zeros((entry["height"], entry["width"]), dtype)
    mask[4:20, 4:20] = 1
    rows = [{"image_id": image, "finding": finding, "mask": mask, "score": 0.5}]
    for source in (rows, pd.DataFrame(rows)):
        converted = rb.convert(source, bench)
        figures = [rb.score(one, bench, allow_missing=True, n_resamples=2).to_csv() for one in (converted, rows)]
        assert figures[0] == figures[1]


def test_rows_of_one_reader_are_selected(world: World) -> None:
    image, finding = rb.load(world.folder, split="released").manifest.asked_pairs()[0]
    rows = [
        {"image_id": image, "finding": finding, "bbox": [10 * n, 5, 9, 9], "who": who} for n, who in enumerate("AB")
    ]

    def read(**options: Any) -> Any:
        return rb.convert(rows, world.folder, split="released", **options)

    assert [line["box"] for line in read(reader="B", columns={"who": "reader"}).lines] == [[10, 5, 9, 9]]
    for options, message in (
        ({"reader": "B"}, "`reader` must be omitted unless the table has a column `reader`"),
        ({"reader": "C", "columns": {"who": "reader"}}, "`reader` must be one of the table's readers: A, B, got C"),
        ({"columns": {"who": "reader"}}, "`reader` must be one of the table's readers: A, B, got none"),
    ):
        with pytest.raises(ArgumentError) as refused:
            read(**options)
        assert str(refused.value).startswith(message)


def test_two_columns_for_one_label_are_refused(studies: tuple[Path, Path]) -> None:
    frame = chances().assign(mass=0.5)
    with pytest.raises(ArgumentError, match="must say which column is 'Mass', got 'Mass' and 'mass'"):
        rb.convert(frame, studies[0], split="test")


UNSTATED = [(1, 1, 0), ("", 1, 0), (-1, 1, 0)]
"""Values of the first three labels in a labeler's table of three studies; the other labels are 0."""


def labeler(cells: list[tuple[Any, ...]], path: Path) -> Path:
    rest = [0] * (len(LABELS) - len(cells[0]))
    rows = [",".join(map(str, (f"study-{i}", *row, *rest))) for i, row in enumerate(cells)]
    return as_file(path, "\n".join([",".join(["Study", *LABELS]), *rows]))


@pytest.mark.parametrize(
    ("blank", "uncertain", "expected"),
    [
        ("negative", "negative", {0: LABELS[:2], 1: LABELS[1:2], 2: LABELS[1:2]}),
        ("negative", "positive", {0: LABELS[:2], 1: LABELS[1:2], 2: LABELS[:2]}),
        ("missing", "positive", {0: LABELS[:2], 2: LABELS[:2]}),
        ("missing", "missing", {0: LABELS[:2]}),
    ],
)
def test_blank_and_uncertain_labels_follow_the_stated_policy(
    studies: tuple[Path, Path], tmp_path: Path, blank: Any, uncertain: Any, expected: dict[int, list[str]]
) -> None:
    path = labeler(UNSTATED, tmp_path / "labeler.csv")
    for source in (path, pd.read_csv(path), pd.read_csv(path).to_dict("records")):
        result = rb.convert(source, studies[0], split="test", blank=blank, uncertain=uncertain)
        assert {line["study_id"]: line["labels"] for line in result.predictions} == {
            f"study-{i}": labels for i, labels in expected.items()
        }
        n = 3 - len(expected)
        left_out = [f"left out {'1 row' if n == 1 else f'{n} rows'} in which a label is missing"] if n else []
        assert [note for note in result.notes if "missing" in note] == left_out


def test_a_column_of_blanks_is_negative(studies: tuple[Path, Path], tmp_path: Path) -> None:
    path = labeler([("", 1)] * N_STUDIES, tmp_path / "labeler.csv")
    assert [line["labels"] for line in rb.convert(path, studies[0], split="test", blank="negative").predictions] == [
        LABELS[1:2]
    ] * N_STUDIES


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        (
            [(1, "")],
            {},
            "`blank` must state the meaning of blank cells: missing or negative, "
            f"got no value or NaN for study-0, {LABELS[1]!r}",
        ),
        ([(1, -1)], {}, "`uncertain` must state the meaning of uncertain cells (-1): missing, positive or negative"),
        ([(2.5, "")], {"blank": "negative"}, "`blank` must be missing if scores are not probabilities, got negative"),
        ([(1, "")], {"blank": "missing"}, "`source` must have a row in which no label is missing, got none"),
    ],
)
def test_unstated_labels_are_refused(
    studies: tuple[Path, Path], tmp_path: Path, cells: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError) as refused:
        rb.convert(labeler(cells, tmp_path / "labeler.csv"), studies[0], split="test", **options)
    assert str(refused.value) == message


def test_minus_one_among_scores_is_a_score(studies: tuple[Path, Path], tmp_path: Path) -> None:
    path = labeler([(-1, 0.5)], tmp_path / "scores.csv")
    (line,) = rb.convert(path, studies[0], split="test").predictions
    assert [line["probabilities"][label] for label in LABELS[:2]] == [-1, 0.5]


def test_the_command_names_the_option_of_unstated_labels(studies: tuple[Path, Path], tmp_path: Path) -> None:
    path = labeler([(1, "")], tmp_path / "labeler.csv")
    words = ("convert", studies[0], "--from", "table", "--file", path, "--out", tmp_path / "p.jsonl")
    assert "--blank must state the meaning of blank cells" in call(*words, expect=1).stderr
    call(*words, "--blank", "negative")
    assert json.loads((tmp_path / "p.jsonl").read_text()) == {"study_id": "study-0", "labels": LABELS[:1]}


def test_rows_of_other_images_are_left_out_and_counted(world: World) -> None:
    rows = [{"image_id": one, "finding": "Edema", "bbox": [8, 16, 24, 32]} for one in ("elsewhere", ONE)]
    result = rb.convert(rows, world.folder, leave_out_unknown=True)
    assert [line["image_id"] for line in result.predictions] == [ONE]
    assert (
        result.notes == ("`bbox` read as `box`",)
        or "left out 1 row with ids that the split does not have: 'elsewhere'" in result.notes
    )


def test_the_command_writes_the_same_lines(world: World, tmp_path: Path) -> None:
    rows = [{"image": f"{ONE}.png", "class": 5, "xmin": 8, "ymin": 16, "xmax": 32, "ymax": 48, "p": 0.5}]
    file = as_file(tmp_path / "boxes.csv", pd.DataFrame(rows).to_csv(index=False))
    names = ["Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Lesion", "Airspace Opacity", "Edema"]
    words = [word for name in names for word in ("--category", name)]
    options = ("--from", "table", "--file", file, "--out", tmp_path / "p.jsonl")
    output = call("convert", world.folder, *options, *words, "--column", "p=score").stdout
    assert "1 prediction for chexlocalize 1.0.0, split released" in output
    assert "`xmin, ymin, xmax, ymax` read as boxes, xyxy" in output
    assert json.loads((tmp_path / "p.jsonl").read_text()) == BOX | {"score": 0.5}
    refused = call("convert", world.folder, *options, "--column", "p", expect=1).stderr
    assert "--column must be THEIRS=OURS, got 'p'" in refused
    numbered = call("convert", world.folder, *options, expect=1).stderr
    assert "numbers need --category and --first-category, or --instances, got '5'" in numbered
    assert (
        "1 are of 'released', another --split"
        in call("convert", world.folder, "--split", "holdout", *options, *words, expect=1).stderr
    )


def test_annotations_of_a_tool_are_read_as_predictions(world: World, tmp_path: Path) -> None:
    call("convert", world.folder, "--to", "coco", "--no-pictures", "--out", tmp_path / "coco")
    converted = rb.convert(tmp_path / "coco", world.folder, form="coco", reader="ground_truth")
    result = rb.score(converted.predictions, world.folder, n_resamples=20)
    assert result.table.query("metric == 'mask_iou' and finding == 'macro'").value.item() == 1


def test_json_lines_with_another_ending_get_its_name(tmp_path: Path, world: World) -> None:
    (tmp_path / "lines.json").write_text('{"image_id": "a", "finding": "Edema"}\n{"image_id": "b"}\n')
    with pytest.raises(TableError, match=r"rename a file of JSON lines to \.jsonl, got Extra data"):
        rb.convert(tmp_path / "lines.json", world.folder, split="released")


def test_response_of_roboflow_is_read_whole(world: World) -> None:
    response = {"predictions": [{"image_path": ONE, **ROBOFLOW}], "image": {"width": 64, "height": 48}}
    assert list(rb.convert(response, world.folder).predictions) == [BOX | {"score": 0.5}]


@pytest.mark.parametrize(
    ("tool", "source"),
    [
        ("VIA", {"a.png12": {"filename": "a.png", "size": 12, "regions": []}}),
        ("VIA", {"_via_settings": {}, "_via_img_metadata": {}}),
        ("VIA", [{"filename": "a.png", "region_shape_attributes": '{"name": "ellipse", "cx": 9, "cy": 9}'}]),
        ("LabelMe", [{"version": "5.4", "imagePath": "a.png", "shapes": [{"shape_type": "circle"}]}]),
    ],
)
def test_files_of_annotation_tools_are_refused_by_name(world: World, tool: str, source: Any) -> None:
    """Their ellipses and circles would otherwise be lost."""
    with pytest.raises(ArgumentError, match=f"must not be a file of {tool}: write its shapes as COCO"):
        rb.convert(source, world.folder)
