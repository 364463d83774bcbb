"""The closed form of a dataset folder: its files, codes, ids and numbers, and agreement with its holdout."""

import json
import zlib

import pyarrow.parquet as pq
import pytest

from reveal_bench.arguments import Problem
from reveal_bench.dataset.build_log import BuildLog, FilmNote, FilmRecord
from reveal_bench.dataset.leaks import distinctive_ids, folded, ids_in_text
from reveal_bench.dataset.tables import file_problems, open_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.files import FILMS
from tests.dataset.card_folders import edit, faults_of, findings_folder, localization_folder, reseal, rows_of


@pytest.fixture
def pair(tmp_path):
    return findings_folder(tmp_path, holdout=True), tmp_path / "private"


def of_row(key, change):
    return lambda row: change(row) if row["study_id"] == key else None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda row: row.update(views=[17] * len(row["views"])), "views"),
        (lambda row: row.update(labels=[3]), "labels"),
        (lambda row: row.update(labels=None), "labels"),
        (lambda row: row.update(agreement=-2), "agreement"),
        (lambda row: row.update(sex=99), "sex"),
        (lambda row: row.update(race=None), "race"),
        (lambda row: row["image_facts"][0].update(kvp=float("inf")), "image_facts.kvp"),
        (lambda row: row["image_facts"][0].update(kvp=-5.0), "image_facts[image-0].kvp"),
        (lambda row: row["image_facts"][0].update(exposure_mas=0.0), "image_facts[image-0].exposure_mas"),
        (lambda row: row["image_facts"][0].update(spacing_mm=[0.1, -1.0]), "image_facts[image-0].spacing_mm"),
        (lambda row: row.update(patient_id=" A^B "), "patient_id"),
        (lambda row: row.update(patient_id=None), "patient_id"),
    ],
)
def test_values_that_no_rule_can_read(tmp_path, change, field):
    folder = findings_folder(tmp_path)
    edit(folder, "multilabel/test", of_row("study-0", change))
    faults = {fault for fault in faults_of(folder) if fault[0] == "multilabel"}
    assert faults == ({("multilabel", "study-0", field)})


@pytest.mark.parametrize(("name", "code"), [("label", 99), ("reader", -1)])
def test_codes_of_a_drawing(tmp_path, name, code):
    folder = localization_folder(tmp_path)
    edit(folder, "localization/test", lambda row: row["annotations"][0].update({name: code}))
    assert ("localization", "img0", f"annotations.{name}") in faults_of(folder)


@pytest.mark.parametrize("name", ["notes.html", "LICENSE", "data.zip", "x.pq", "manifest/more.parquet", "b/a.parquet"])
def test_files_of_another_form(tmp_path, name):
    folder = findings_folder(tmp_path)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes((folder / "manifest/test.parquet").read_bytes())
    reseal(folder)
    rules = [(p.file, p.rule) for p in validate_folder(folder, load=False)]
    assert (name, "must be a file that belongs in a dataset folder") in rules


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"notes": {"HighBit is missing, so BitsStored - 1 is used": ["image-0", "elsewhere"]}}, "elsewhere"),
        ({"faults": {"every pixel is white": ["study-0"]}}, "study-0"),
        ({"left_out": {"DOE_JOHN/1.dcm": 2}}, "DOE_JOHN/1.dcm"),
        ({"faults": {"every pixel is white": ["elsewhere", 5]}}, "5 elsewhere"),
        ({"left_out": {"a reason": "many"}}, "TypeError"),
        ({"notes": ["image-0"]}, "TypeError"),
        ({"patients": ["A^B"]}, "TypeError"),
        ({}, "RecursionError"),
    ],
)
def test_the_record_of_films_names_only_images_of_the_folder(tmp_path, changes, values):
    folder = findings_folder(tmp_path)
    path = folder / FILMS
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) if changes else "[" * 100_000)
    reseal(folder)
    assert [p.value for p in validate_folder(folder, load=False) if p.file == FILMS] == values.split(" ")


def test_a_build_keeps_no_value_that_a_problem_quotes():
    place = "files/p10/p10000032/s50414267/02aa804e.jpg"
    unread = [("picture", "must be readable", f"no such file: {place}"), ("Dr Roe's labels", "must be 0 or 1", "DOE")]
    log = BuildLog(
        set_aside=[(place, "the modality is neither CR nor DX, got DOE"), (place, f"duplicate of {place}: the same")],
        left_out=[Problem(place, "s50414267", *fault) for fault in unread],
        films=[FilmNote(place, "s50414267", "image-0", (f"voi lut 1 of 2 is unusable: {place}", place), place)],
    )  # fmt: skip
    assert json.loads(FilmRecord.of(log).to_json()) == {
        "notes": {"other, see the log of the build": ["image-0"], "voi lut 1 of 2 is unusable": ["image-0"]},
        "faults": {"other, see the log of the build": ["image-0"]},
        "left_out": {
            "other, see the log of the build": 1,
            "set aside: duplicate": 1,
            "set aside: the modality is neither CR nor DX": 1,
            "unreadable picture": 1,
        },
    }


def test_card_without_configs_allows_every_table(tmp_path):
    folder = open_folder(findings_folder(tmp_path))
    names = ["multilabel/test-00000-of-00001.parquet", "notes.html"]
    assert [problem.file for problem in file_problems(folder, names, {})] == ["notes.html"]


def test_ids_in_text_and_in_the_metadata_of_a_table(pair):
    folder, private = pair
    patient = rows_of(private, "multilabel/")[0]["patient_id"]
    card = folder / "README.md"
    card.write_text(f"{card.read_text()}\nsee {patient.upper()}_image7.png\n")
    (path,) = (folder / "multilabel").glob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"note": patient.encode()}), path)
    reseal(folder)
    faults = [(p.file.split("/")[0], p.field, p.value) for p in validate_folder(folder, holdout=private, load=False)]
    assert sorted(faults) == [
        ("README.md", "text", patient), ("multilabel", "metadata", "note"), ("multilabel", "metadata", patient)
    ]  # fmt: skip


def test_what_counts_as_an_id_in_text():
    ids = distinctive_ids({"p1", "10000032", "12345", "1.2.840.7", "patient0007"})
    assert sorted(ids.values()) == ["1.2.840.7", "10000032", "patient0007"]
    assert list(ids_in_text("PATIENT0007_study1, 1.2.840.71 and 12345 (10000032).", ids)) == ["10000032", "patient0007"]
    assert folded(" A\n  mass ") == "a mass"


def test_a_picture_is_named_after_its_image(tmp_path):
    folder = localization_folder(tmp_path)
    edit(folder, "localization/test", lambda row: row["image"].update(path=f"{row['image_id']}_Edema.png"))
    assert faults_of(folder) == [("localization", f"img{i}", "image.path") for i in range(6)]


def test_manifest_and_sizes_must_be_those_of_the_private_folder(pair):
    folder, private = pair
    first = rows_of(private, "multilabel/")[0]["study_id"]
    edit(folder, "manifest/holdout", of_row(first, lambda row: row.update(views=["PA"] * len(row["views"]))))
    path = folder / "manifest/benchmark.json"
    document = json.loads(path.read_text())
    document["splits"]["holdout"]["n_patients"] += 50
    path.write_text(json.dumps(document))
    reseal(folder)
    problems = faults_of(folder, holdout=private)
    assert ("manifest", first, "views") in problems
    assert ("manifest", "holdout", "n_patients") in problems


def test_inputs_must_show_the_pictures_of_the_private_folder(tmp_path):
    folder = localization_folder(tmp_path, holdout=True)
    rows = rows_of(folder, "holdout_inputs/")
    other = {row["image_id"]: rows[i - 1]["image"]["bytes"] for i, row in enumerate(rows)}
    edit(folder, "holdout_inputs/", lambda row: row["image"].update(bytes=other[row["image_id"]]))
    expected = sorted(("holdout_inputs", row["image_id"], "image") for row in rows)
    assert faults_of(folder, holdout=tmp_path / "private") == expected


def test_every_row_of_the_holdout_has_one_input(pair):
    folder, private = pair
    (path,) = (folder / "holdout_inputs").glob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    reseal(folder)
    problems = faults_of(folder, holdout=private)
    assert ("holdout_inputs", table["study_id"][0].as_py(), "study_id") in problems


def test_a_picture_file_holds_nothing_but_the_picture(tmp_path):
    folder = findings_folder(tmp_path, n=4)

    def add_text(row):
        data = row["images"][0]["bytes"]
        chunk = b"tEXtwho\0DOE"
        text = (7).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        row["images"][0]["bytes"] = data[:33] + text + data[33:]  # behind the header

    edit(folder, "multilabel/test", add_text)
    rules = {problem.rule for problem in validate_folder(folder, load=False) if problem.field.startswith("image")}
    assert any("must only contain a picture" in rule for rule in rules)
