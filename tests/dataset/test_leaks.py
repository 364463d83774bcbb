"""Nothing of a private holdout may be in the public folder: each way of leaking it is found."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.leaks import find_leaks
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.sources.source import Extra
from tests.dataset.card_folders import (
    edit,
    findings_folder,
    localization_folder,
    pixels,
    png,
    reseal,
    rows_of,
    tasks_folder,
)

MAKERS = {"localization": localization_folder, "multilabel": findings_folder, "tasks": tasks_folder}
NIH = BENCHMARKS["nih-boxes"]
KEYS = {"localization": "image_id", "multilabel": "study_id", "tasks": "task_id"}


@pytest.fixture(params=MAKERS)
def pair(request, tmp_path):
    folder = MAKERS[request.param](tmp_path, holdout=True)
    return folder, tmp_path / "private", request.param


def leaks(folder, private):
    return {(problem.file.split("/")[0], problem.field) for problem in find_leaks(folder, private)}


def first_only(change):
    """`change` for the first row alone."""
    rows = iter([change])
    return lambda row: next(rows, lambda _: None)(row)


def test_a_sound_pair_has_no_leak(pair):
    folder, private, _ = pair
    assert find_leaks(folder, private) == []


def test_folders_of_two_kinds_or_in_each_other_are_refused(tmp_path):
    folder = findings_folder(tmp_path / "a")
    tasks_folder(tmp_path / "b", holdout=True)
    with pytest.raises(ValueError, match=r"`holdout` must have the same kind of benchmark as .*, findings, got tasks"):
        find_leaks(folder, tmp_path / "b" / "private")
    with pytest.raises(ValueError, match="must neither be inside"):
        find_leaks(folder, folder)


def test_ids_of_the_holdout(pair):
    folder, private, config = pair
    held = rows_of(private, f"{config}/")[0]
    key = KEYS[config]
    edit(folder, f"{config}/released", first_only(lambda row: row.update({key: held[key]})))
    edit(folder, "manifest/released", first_only(lambda row: row.update(study_id=held["study_id"])))
    expected = {(config, key), ("manifest", "study_id")}
    assert leaks(folder, private) == expected
    edit(folder, f"{config}/released", first_only(lambda row: row.update(patient_id=held["patient_id"])))
    assert (config, "patient_id") in leaks(folder, private)


@pytest.mark.parametrize("name", ["source_sha256", "pixel_sha256"])
def test_hashes_of_the_holdout(pair, name):
    folder, private, config = pair
    held = rows_of(private, f"{config}/")[0]
    secret = held[name] if name in held else held["image_facts"][0][name]
    assert secret is not None

    def change(row):
        (row if name in row else row["image_facts"][0])[name] = secret

    edit(folder, f"{config}/released", first_only(change))
    place = name if config == "localization" else f"image_facts.{name}"
    assert leaks(folder, private) == {(config, place)}
    (folder / "notes.txt").write_text(f"see {secret}")
    assert ("notes.txt", "text") in leaks(folder, private)


def test_the_very_file_of_the_holdout(pair):
    folder, private, config = pair
    inputs = rows_of(folder, "holdout_inputs/")[0]
    picture = inputs["image"] if config == "localization" else inputs["images"][0]

    def change(row):
        if config == "localization":
            row["image"] = picture
        else:
            row["images"] = [picture, *row["images"][1:]]

    edit(folder, f"{config}/released", first_only(change))
    assert leaks(folder, private) == {(config, "image")}


def test_the_same_pixels_in_another_file(tmp_path):
    """A picture of the holdout, encoded again: other bytes, so no hash matches."""
    folder = findings_folder(tmp_path, holdout=True)
    held = rows_of(tmp_path / "private", "multilabel/")[0]["image_ids"][0]
    number = int(held.removeprefix("image-"))
    buffer = io.BytesIO()
    Image.fromarray(pixels(number)).save(buffer, "BMP")
    assert buffer.getvalue() != png(pixels(number))

    def change(row):
        row["images"] = [{"bytes": buffer.getvalue(), "path": "a.bmp"}, *row["images"][1:]]
        row["image_facts"][0].update(pixel_sha256=None, source_sha256=None)

    edit(folder, "multilabel/released", first_only(change))
    assert leaks(folder, tmp_path / "private") == set()
    problems = validate_folder(folder, holdout=tmp_path / "private", load=False)
    # with decoded pixels: seen in two splits, and known to be the holdout's
    assert ("image", f"the pixels of {held_study(tmp_path)}") in {(p.field, p.value) for p in problems}


def held_study(tmp_path):
    return rows_of(tmp_path / "private", "multilabel/")[0]["study_id"]


def test_masks_contours_and_points(tmp_path):
    folder = localization_folder(tmp_path, holdout=True)
    private = tmp_path / "private"
    spike = [[float(i), float(i * i)] for i in range(9)]
    edit(private, "localization/", first_only(lambda row: row["annotations"][0].update(polygons=[spike])))
    held = rows_of(private, "localization/")[0]
    edit(folder, "localization/released", first_only(lambda row: row["annotations"][0].update(polygons=[spike])))
    assert leaks(folder, private) == {("localization", "annotations.polygons")}

    def points(row):
        if row["image_id"] == held["image_id"]:
            row["points"] = held["points"]

    edit(folder, "holdout_inputs/", points)
    assert ("holdout_inputs", "points") in leaks(folder, private)
    (folder / "notes.md").write_text(held["annotations"][0]["rle"]["counts"])
    reseal(folder)
    assert ("notes.md", "text") in leaks(folder, private)


def test_a_simple_shape_may_occur_twice_by_chance(tmp_path):
    folder = localization_folder(tmp_path, holdout=True)
    held = rows_of(tmp_path / "private", "localization/")[0]["annotations"][0]
    edit(folder, "localization/released", first_only(lambda row: row["annotations"][0].update(rle=held["rle"])))
    assert leaks(folder, tmp_path / "private") == set()
    # but nothing excuses it in another column
    edit(folder, "localization/released", first_only(lambda row: row.update(view_raw=held["rle"]["counts"])))
    assert leaks(folder, tmp_path / "private") == {("localization", "view_raw")}


def test_answers_and_ratings_of_the_holdout(tmp_path):
    folder = tasks_folder(tmp_path, holdout=True)
    private = tmp_path / "private"
    held = rows_of(private, "tasks/")[0]
    answer = held["reference_answer"]
    assert 40 <= len(answer) < 120

    def tell(row):
        if row["task_id"] == held["task_id"]:
            row["indication"] = f" {answer}"

    edit(folder, "holdout_inputs/", tell)
    assert leaks(folder, private) == {("holdout_inputs", "indication")}
    (folder / "notes.csv").write_text(f"3;{answer}")
    assert ("notes.csv", "text") in leaks(folder, private)
    edit(folder, "ratings/released", first_only(lambda row: row.update(task_id=held["task_id"])))
    assert ("ratings", "task_id") in leaks(folder, private)


def test_short_answer_is_not_a_leak(tmp_path):
    folder = tasks_folder(tmp_path, holdout=True)
    for place in (folder, tmp_path / "private"):
        edit(place, "tasks/", lambda row: row.update(reference_answer="No."))
    assert leaks(folder, tmp_path / "private") == set()


@pytest.mark.parametrize(("length", "expected"), [(119, set()), (120, {("tasks", "reference_answer")})])
def test_two_tasks_may_have_the_same_templated_answer(tmp_path, length, expected):
    folder = tasks_folder(tmp_path, holdout=True)
    answer = ("No change since the earlier study. " * 5)[:length].rstrip().ljust(length, ".")
    edit(tmp_path / "private", "tasks/", first_only(lambda row: row.update(reference_answer=answer)))
    edit(folder, "tasks/released", first_only(lambda row: row.update(reference_answer=answer)))
    assert leaks(folder, tmp_path / "private") == expected


BOX = (225.084745, 547.019217, 86.779661, 79.186441)


@pytest.fixture
def boxed(tmp_path):
    """A benchmark of boxes alone: six images of 1024 x 1024, half of them held out; a phrase for each."""
    from datasets import Features, List, Value

    records = []
    for i in range(6):
        box = (10.5 + i, 20.25, 31.125 + i, 40.0625)
        drawn = Annotation("Mass", "ground_truth", None, (), box, 1, round(box[2] * box[3]), (box,))
        status = {name: int(name == "Mass") for name in NIH.findings}
        fields = {"view": "AP", "width": 1024, "height": 1024, "label_status": status, "annotations": (drawn,)}
        records.append(LocalizationRecord(image_id=f"i{i}", patient_id=f"p{i}", study_id=f"s{i}", **fields))
    rows = [
        {"image_id": f"i{i}", "phrase": f"small round mass number {i}", "bbox_xywh": [1.0, 2, 3, 4 + i]}
        for i in range(6)
    ]
    features = Features({"image_id": Value("string"), "phrase": Value("string"), "bbox_xywh": List(Value("float64"))})
    options = {"holdout": tmp_path / "private", "pixels": "withhold"}
    build_folder(
        {"test": records},
        tmp_path / "folder",
        NIH,
        extras=[Extra("phrases", lambda: features, rows, key="image_id")],
        **options,
    )
    return tmp_path / "folder", tmp_path / "private"


def draw(*box, label=None):
    """Give the first drawing of a row this box."""

    def change(row):
        drawing = row["annotations"][0]
        drawing.update(bbox_xywh=list(box), boxes_xywh=[list(box)])
        drawing["label"] = drawing["label"] if label is None else label

    return change


def test_boxes_of_a_sound_pair_are_no_leak(boxed):
    assert find_leaks(*boxed) == []


def test_a_box_of_the_holdout_on_another_image(boxed):
    folder, private = boxed
    edit(private, "localization/", first_only(draw(*BOX)))
    edit(folder, "localization/released", first_only(draw(*BOX)))
    expected = {("localization", "annotations.bbox_xywh"), ("localization", "annotations.boxes_xywh")}
    assert leaks(folder, private) == expected
    edit(folder, "localization/released", draw(*BOX, label=0))  # of another finding: chance
    assert leaks(folder, private) == set()
    edit(folder, "phrases/released", first_only(lambda row: row.update(bbox_xywh=list(BOX))))  # without a finding
    assert leaks(folder, private) == set()


@pytest.mark.parametrize(
    "box",
    [
        (0.0, 0.0, 1023.987, 1023.987),  # the whole image
        (100.0, 200.0, 300.0, 400.0),  # round numbers
        (12.0, 34.0, 56.0, 78.0),  # eight digits
    ],
)
def test_a_box_without_detail_may_occur_twice(boxed, box):
    folder, private = boxed
    edit(private, "localization/", first_only(draw(*box)))
    edit(folder, "localization/released", first_only(draw(*box)))
    assert leaks(folder, private) == set()


def test_boxes_and_phrases_of_the_very_image(boxed):
    folder, private = boxed
    held = rows_of(private, "phrases/")[0]
    columns = {"image_id": [held["image_id"]], "note": [held["phrase"]], "boxes_xywh": [[held["bbox_xywh"]]]}
    (folder / "notes").mkdir()
    pq.write_table(pa.table(columns), folder / "notes" / "released.parquet")
    expected = {("notes", "image_id"), ("notes", "note"), ("notes", "boxes_xywh")}
    assert leaks(folder, private) == expected
    # of another image: round numbers and a short phrase are chance
    pq.write_table(pa.table({**columns, "image_id": ["another"]}), folder / "notes" / "released.parquet")
    assert leaks(folder, private) == set()


def test_a_long_phrase_of_another_image(boxed):
    folder, private = boxed
    phrase = "a round mass of two centimetres in the left upper lobe, " * 3
    edit(private, "phrases/", first_only(lambda row: row.update(phrase=phrase)))
    edit(folder, "phrases/released", first_only(lambda row: row.update(phrase=phrase)))
    assert leaks(folder, private) == {("phrases", "phrase")}


def test_reference_boxes_of_a_task(tmp_path):
    folder = tasks_folder(tmp_path, holdout=True)
    box = {"label": "opacity", "bbox_xywh": list(BOX), "image_id": "image-0"}
    edit(tmp_path / "private", "tasks/", first_only(lambda row: row.update(reference_boxes=[box])))
    edit(folder, "tasks/released", first_only(lambda row: row.update(reference_boxes=[{**box, "label": "Opacity"}])))
    assert leaks(folder, tmp_path / "private") == {("tasks", "reference_boxes.bbox_xywh")}


@pytest.mark.parametrize("make", MAKERS.values())
def test_without_the_private_folder_ids_are_looked_for(tmp_path, make):
    folder = make(tmp_path, holdout=True)
    assert find_leaks(folder, None) == []
    study_id = rows_of(tmp_path / "private", "manifest/")[0]["study_id"]
    (folder / "notes").mkdir()
    pq.write_table(pa.table({"study_id": [study_id]}), folder / "notes" / "released.parquet")
    assert [(p.file, p.field, p.value) for p in find_leaks(folder, None)] == [
        ("notes/released.parquet", "study_id", study_id)
    ]


def test_pictures_that_were_decoded_are_not_hashed_again(tmp_path, monkeypatch):
    folder = findings_folder(tmp_path, holdout=True)
    held = rows_of(folder, "holdout_inputs/")[0]["images"][0]
    edit(folder, "multilabel/released", first_only(lambda row: row["images"].__setitem__(0, held)))

    def none_left(row):
        assert "images" not in row
        return ()

    monkeypatch.setattr("reveal_bench.dataset.leaks._file_bytes", none_left)
    problems = validate_folder(folder, holdout=tmp_path / "private", load=False)
    assert f"the file of {held_study(tmp_path)}" in {p.value for p in problems}


def test_a_mask_shown_as_a_picture(tmp_path):
    folder = localization_folder(tmp_path, holdout=True)
    held = rows_of(tmp_path / "private", "localization/")[0]["image_id"]
    edit(folder, "masks/released", first_only(lambda row: row.update(image_id=held)))
    assert leaks(folder, tmp_path / "private") == {("masks", "image_id")}


def test_a_damaged_table_does_not_stop_the_search(tmp_path):
    folder = tasks_folder(tmp_path, holdout=True)
    (folder / "ratings" / "released-00000-of-00001.parquet").write_bytes(b"no")
    assert leaks(folder, tmp_path / "private") == set()
