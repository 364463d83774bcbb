"""Nothing of a private holdout may be in the public folder: each way of leaking it is found."""

import io

import pytest
from PIL import Image

from reveal_bench.builders.leaks import find_leaks
from reveal_bench.builders.validate import validate_folder
from tests.builders.card_folders import (
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
    with pytest.raises(ValueError, match=r"`holdout` must be of the kind of .*, findings, got tasks"):
        find_leaks(folder, tmp_path / "b" / "private")
    with pytest.raises(ValueError, match="must be neither inside"):
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
    """A picture of the holdout, written again: other bytes, no hash that says so."""
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
    assert len(held["reference_answer"]) >= 40
    edit(folder, "tasks/released", first_only(lambda row: row.update(indication=f" {held['reference_answer']}")))
    assert leaks(folder, private) == {("tasks", "indication")}
    edit(folder, "ratings/released", first_only(lambda row: row.update(task_id=held["task_id"])))
    assert ("ratings", "task_id") in leaks(folder, private)


def test_a_short_answer_is_no_leak(tmp_path):
    folder = tasks_folder(tmp_path, holdout=True)
    for place in (folder, tmp_path / "private"):
        edit(place, "tasks/", lambda row: row.update(reference_answer="No."))
    assert leaks(folder, tmp_path / "private") == set()


def test_a_mask_shown_as_a_picture(tmp_path):
    folder = localization_folder(tmp_path, holdout=True)
    held = rows_of(tmp_path / "private", "localization/")[0]["image_id"]
    edit(folder, "masks/released", first_only(lambda row: row.update(image_id=held)))
    assert leaks(folder, tmp_path / "private") == {("masks", "image_id")}


def test_a_damaged_table_does_not_stop_the_search(tmp_path):
    folder = tasks_folder(tmp_path, holdout=True)
    (folder / "ratings" / "released-00000-of-00001.parquet").write_bytes(b"no")
    assert leaks(folder, tmp_path / "private") == set()
