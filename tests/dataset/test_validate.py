"""``validate_folder`` finds each fault at its place, in all kinds of folders, and nothing in a sound one."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from tests.dataset.card_folders import (
    FINDINGS,
    LABELS,
    edit,
    faults,
    faults_of,
    findings_folder,
    localization_folder,
    localized,
    png,
    reseal,
    rows_of,
    study,
    tasks_folder,
)

MAKERS = {"localization": localization_folder, "multilabel": findings_folder, "tasks": tasks_folder}


@pytest.fixture(params=MAKERS)
def config(request):
    return request.param


@pytest.mark.parametrize("pixels", ["embed", "withhold"])
def test_a_sound_folder_has_no_problems(tmp_path, config, pixels):
    folder = MAKERS[config](tmp_path, holdout=True, pixels=pixels)
    seen, warnings = [], []
    problems = validate_folder(
        folder, holdout=tmp_path / "private", progress=lambda *step: seen.append(step), warnings=warnings
    )
    assert problems == []
    assert {warning.file for warning in warnings} == ({"croissant.json"} if config == "tasks" else set())
    assert validate_folder(tmp_path / "private", load=pixels == "embed") == []  # it has no pixels either way
    assert (f"{config}/released", 3 if config != "tasks" else 2, 3 if config != "tasks" else 2) in seen


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a dataset folder"):
        validate_folder(tmp_path)


def test_changed_lost_and_added_files(tmp_path):
    folder = findings_folder(tmp_path)
    (folder / "extra.txt").write_text("?")
    (folder / "eval.yaml").unlink()
    card = folder / "README.md"
    card.write_text(card.read_text() + "\n")
    problems = validate_folder(folder, load=False)
    assert [str(p).split(",")[0] for p in problems if p.file == "CHECKSUMS.json"] == [
        "CHECKSUMS.json:eval.yaml: `files` must be in the folder",
        "CHECKSUMS.json:extra.txt: `files` must list every file of the folder",
    ]
    assert ("README.md", "None", "sha256") in faults(problems)
    assert ("eval.yaml", "None", "tasks") in faults(problems)
    (folder / "CHECKSUMS.json").write_text("[]")
    assert ("CHECKSUMS.json", "None", "file") in faults_of(folder)


def test_file_other_than_parquet_is_reported(tmp_path):
    folder = findings_folder(tmp_path)
    (path,) = (folder / "multilabel").iterdir()
    path.write_bytes(b"PAR1 no more")
    reseal(folder)
    assert ("multilabel", "None", "file") in faults_of(folder)


def test_missing_extra_and_mistyped_columns(tmp_path):
    folder = findings_folder(tmp_path)
    (path,) = (folder / "multilabel").iterdir()
    table = pq.read_table(path)
    table = table.drop_columns(["race"]).append_column("colour", pa.array(["red"] * 6))
    table = table.set_column(table.schema.get_field_index("n_agree_all"), "n_agree_all", pa.array([3] * 6))
    pq.write_table(table, path)
    reseal(folder)
    problems = [str(problem) for problem in validate_folder(folder, load=False) if problem.file.startswith("multi")]
    assert [text.split(": ", 1)[1] for text in problems] == [
        "`colour` must not exist, because the schema has no such column, got string",
        "`race` must exist, got no such column",
        "`n_agree_all` must be of type int8, got int64",
    ]


def test_codes_must_keep_their_names(tmp_path):
    folder = findings_folder(tmp_path)
    (path,) = (folder / "multilabel").iterdir()
    table = pq.read_table(path)
    metadata = table.schema.metadata[b"huggingface"].replace(b'"Mass"', b'"Mess"')
    pq.write_table(table.replace_schema_metadata({b"huggingface": metadata}), path)
    reseal(folder)
    assert faults_of(folder) == [("multilabel", "None", "labels")]
    pq.write_table(table.replace_schema_metadata(None), path)
    reseal(folder)
    assert faults_of(folder) == [("multilabel", "None", "metadata")]


def test_a_config_that_no_card_lists(tmp_path):
    folder = findings_folder(tmp_path)
    (folder / "secret").mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "secret" / "test-00000-of-00001.parquet")
    reseal(folder)
    assert ("secret", "None", "config") in faults_of(folder)


@pytest.mark.parametrize(
    ("config", "manifest_column", "value"),
    [("localization", "asked", []), ("multilabel", "views", ["PA"]), ("tasks", "category", "diagnosis_support")],
)
def test_the_manifest_must_agree_with_the_references(tmp_path, config, manifest_column, value):
    folder = MAKERS[config](tmp_path)
    key = rows_of(folder, "manifest/")[1][{"localization": "image_id", "multilabel": "study_id"}.get(config, "task_id")]

    def change(row):
        if key in row.values():
            row[manifest_column] = value

    edit(folder, "manifest/test", change)
    assert faults_of(folder) == [("manifest", key, manifest_column)]


def test_manifest_and_references_must_have_the_same_rows(tmp_path):
    folder = findings_folder(tmp_path, n=3)
    (path,) = (folder / "multilabel").iterdir()
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table.slice(0, 2), table.slice(0, 1)]), path)
    reseal(folder)
    # study 0 twice, study 2 gone; study 0 has one image, study 2 had one: images, patients and labels differ
    assert [fault for fault in faults_of(folder) if fault[0] in ("multilabel", "manifest")] == [
        ("manifest", "test", "n_images"),
        ("manifest", "test", "n_patients"),
        ("multilabel", "study-0", "study_id"),
        ("multilabel", "study-2", "study_id"),
    ]


def test_sizes_in_benchmark_json(tmp_path, config):
    folder = MAKERS[config](tmp_path)
    path = folder / "manifest" / "benchmark.json"
    document = json.loads(path.read_text())
    names = sorted(name for name in document["splits"]["test"] if name.startswith("n_"))
    document["splits"]["test"] = dict.fromkeys(names, 77) | {"references": "secret"}
    path.write_text(json.dumps(document))
    reseal(folder)
    expected = sorted([("manifest", "test", name) for name in names] + [("manifest", "test", "references")])
    assert [fault for fault in faults_of(folder) if fault[0] == "manifest"] == expected


def test_a_patient_and_an_image_in_two_splits(tmp_path):
    records = {
        "a": [replace(study(tmp_path, 1), patient_id="p")],
        "b": [replace(study(tmp_path, 2), patient_id="p"), replace(study(tmp_path, 3), patient_id="p")],
    }
    build_folder(records, tmp_path / "folder", FINDINGS, pixels="withhold")
    assert faults_of(tmp_path / "folder") == [("multilabel", "p", "patient_id")]
    edit(tmp_path / "folder", "manifest/b", lambda row: row.update(image_ids=["image-10"]))
    assert ("manifest", "image-10", "image_id") in faults_of(tmp_path / "folder")


def test_references_of_an_unknown_or_private_split(tmp_path, config):
    folder = MAKERS[config](tmp_path, holdout=True)
    (private,) = (tmp_path / "private" / config).iterdir()
    (folder / config / private.name).write_bytes(private.read_bytes())
    (folder / config / "more-00000-of-00001.parquet").write_bytes(private.read_bytes())
    reseal(folder)
    fields = [fault for fault in faults_of(folder) if fault[2] == "split"]
    assert fields == [(config, "None", "split")] * 2


def test_inputs_of_a_holdout_must_be_blank(tmp_path, config):
    folder = MAKERS[config](tmp_path, holdout=True)
    change = {
        "localization": lambda row: row.update(missing=[4], source_sha256="0" * 64),
        "multilabel": lambda row: row.update(agreement=1, sex=0, label_vector=[0, 0, 0]),
        "tasks": lambda row: row.update(reference_answer="Yes.", risk_flag=False),
    }[config]
    edit(folder, "holdout_inputs/holdout", change)
    fields = {field for place, _, field in faults_of(folder) if place == "holdout_inputs"}
    assert (
        fields
        == {
            "localization": {"missing", "source_sha256"},
            "multilabel": {"agreement", "sex", "label_vector"},
            "tasks": {"reference_answer", "risk_flag"},
        }[config]
    )


def test_a_source_hash_inside_the_facts_of_an_input(tmp_path):
    folder = findings_folder(tmp_path, holdout=True)
    edit(folder, "holdout_inputs/holdout", lambda row: row["image_facts"][0].update(source_sha256="0" * 64))
    assert "image_facts.source_sha256" in {fault[2] for fault in faults_of(folder)}


def test_rows_of_side_tables_need_their_main_row(tmp_path):
    folder = tasks_folder(tmp_path, n=2)

    def change(row):
        if row["task_id"] == "task-1":
            row.update(task_id="task-9", process=6, reader="r1")

    edit(folder, "ratings/test", change)
    # of task-1 there were 4 ratings; with all readers r1, the second of each model repeats the first
    assert faults_of(folder) == sorted(
        [("ratings", "task-9", "task_id")] * 4 + [("ratings", "task-9", "process")] * 4
        + [("ratings", "task-9", "reader")] * 2
    )  # fmt: skip


def test_a_picture_twice_in_one_split_is_a_warning_and_in_two_a_problem(tmp_path, benchmark):
    first = localized(tmp_path / "pictures", 0)
    assert first.picture is not None
    twin = replace(localized(tmp_path / "pictures", 1), picture=replace(first.picture, name="img1.png"))
    build_folder({"a": [first, twin]}, tmp_path / "one", benchmark)
    warnings = []
    assert validate_folder(tmp_path / "one", load=False, warnings=warnings) == []
    assert [(w.row, w.field, w.value) for w in warnings] == [("img1", "pixel_sha256", "the pixels of img0")]
    build_folder({"a": [first], "b": [twin]}, tmp_path / "two", benchmark)
    assert faults_of(tmp_path / "two") == [("localization", "img1", "pixel_sha256")]
    Image.fromarray(np.zeros((20, 30), np.uint8)).save(first.picture.path)
    build_folder({"a": [first], "b": [twin]}, tmp_path / "black", benchmark)
    (problem,) = validate_folder(tmp_path / "black", load=False)
    assert problem.value.startswith("the pixels of img0 (which show nothing: every pixel is black) in localization/a-")
    build_folder({"a": [first], "b": [twin]}, tmp_path / "withheld", benchmark, pixels="withhold")
    assert faults_of(tmp_path / "withheld") == [("localization", "img1", "pixel_sha256")]


def test_wrong_pictures(tmp_path):
    folder = findings_folder(tmp_path, n=4)

    def change(row):
        picture = row["images"][0]
        if row["study_id"] == "study-0":
            picture.update(bytes=png(np.zeros((3, 4), np.uint8)), path="/home/me/0.png")
        elif row["study_id"] == "study-1":
            picture.update(bytes=picture["bytes"][:-40])
        elif row["study_id"] == "study-2":
            row["images"][0] = None

    edit(folder, "multilabel/test", change)
    assert faults_of(folder) == [
        ("multilabel", "study-0", "image size[image-0]"),
        ("multilabel", "study-0", "image.path[image-0]"),
        ("multilabel", "study-0", "pixel_sha256[image-0]"),
        ("multilabel", "study-0", "source_sha256[image-0]"),
        ("multilabel", "study-1", "image[image-10]"),
        ("multilabel", "study-2", "pixel_pipeline[image-20]"),
    ]


def test_vocabularies_of_the_folder_itself_count(tmp_path):
    folder = findings_folder(tmp_path)
    info = json.loads((folder / "manifest" / "benchmark.json").read_text())
    assert tuple(info["findings"]) == LABELS  # other findings than in BENCHMARKS
    assert faults_of(folder) == []


@pytest.mark.parametrize("make", [localization_folder, findings_folder])
@pytest.mark.parametrize("pixels", ["withhold", "embed"])
def test_withheld_pictures_without_any_hash_are_a_warning(tmp_path, make, pixels):
    folder = make(tmp_path, n=2, pixels=pixels)
    config = "localization" if make is localization_folder else "multilabel"
    warnings = []
    assert validate_folder(folder, load=False, warnings=warnings) == []
    assert warnings == []  # withheld pictures have their hashes

    def forget(row):
        for place in row.get("image_facts", [row]):
            place["source_sha256"] = None

    edit(folder, f"{config}/test", forget)
    validate_folder(folder, load=False, warnings=warnings)
    expected = (
        [(config, "source_sha256", "no hash, so users cannot verify their own copies")] if pixels == "withhold" else []
    )
    assert [(w.file, w.field, w.value) for w in warnings] == expected
