"""CheXpert's tables of labels: references of studies and readers, without pictures."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import load_dataset
from sklearn.metrics import roc_auc_score

import reveal_bench as rb
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.findings import CHEXPERT_LABELS
from reveal_bench.phantom.layouts import LABEL_READERS, write_chexpert_labels
from reveal_bench.sources import BuildError, detect_source
from reveal_bench.sources.chexpert_labels import inspect, read
from tests.cli.test_score import call

HEAD = ["Study", *CHEXPERT_LABELS]


def table(path: Path, rows: list[tuple[str, set[str]]], head: list[str] | None = None) -> Path:
    columns = HEAD if head is None else head
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for key, labels in rows:
        writer.writerow([key, *(f"{float(name in labels)}" for name in columns[1:])])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue().rstrip("\n"), encoding="utf-8")  # as published: no line feed at the end
    return path


def place(number: int, split: str = "test") -> str:
    return f"CheXpert-v1.0/{split}/patient{number}/study1"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("chexpert")
    write_chexpert_labels(root / "raw", 40, seed=3)
    call("build", root / "raw", "--out", root / "data")
    return root / "raw", root / "data"


def test_references_and_readers_are_those_of_the_tables(built: tuple[Path, Path]) -> None:
    raw, data = built
    names = load_dataset(str(data), split="test").features["labels"].feature
    rows = {row["study_id"]: names.int2str(row["labels"]) for row in load_dataset(str(data), split="test")}
    labels = {
        (row["reader"], row["study_id"]): row["labels"] for row in load_dataset(str(data), "readers", split="test")
    }
    assert len(labels) == 3 * len(rows) == 120
    for stem in ("groundtruth", *LABEL_READERS):
        for row in csv.DictReader((raw / f"{stem}.csv").open(encoding="utf-8")):
            study_id = "_".join(row["Study"].split("/")[-2:])
            present = [name for name in CHEXPERT_LABELS if row[name] == "1.0"]
            assert (rows[study_id] if stem == "groundtruth" else labels[stem, study_id]) == present


def test_the_folder_is_valid_and_knows_sex_and_age_where_the_table_does(built: tuple[Path, Path]) -> None:
    raw, data = built
    assert validate_folder(data) == []
    (first, *_) = csv.DictReader((raw / "valid.csv").open(encoding="utf-8"))
    valid = load_dataset(str(data), split="validation")
    assert len(valid) == 16
    assert valid.features["sex"].int2str(valid[0]["sex"]) == first["Sex"][0]
    assert valid.features["age_band"].int2str(valid[0]["age_band"]).startswith(first["Age"][0])


def test_a_reader_is_scored_as_a_system(built: tuple[Path, Path]) -> None:
    from sklearn.metrics import cohen_kappa_score, f1_score

    raw, data = built
    predictions = rb.convert(raw / "bc6.csv", data, split="test").predictions
    table = rb.score(predictions, data, split="test").to_pandas()
    truth, by_reader = (
        list(csv.DictReader((raw / f"{name}.csv").open(encoding="utf-8"))) for name in ("groundtruth", "bc6")
    )
    for label in ("Edema", "Support Devices"):
        pair = [row[label] == "1.0" for row in truth], [row[label] == "1.0" for row in by_reader]
        for metric, oracle in (("f1", f1_score), ("cohen_kappa", cohen_kappa_score)):
            (value,) = table[(table["metric"] == metric) & (table["finding"] == label)]["value"]
            assert value == pytest.approx(oracle(*pair))


def test_one_table_by_itself_is_of_references(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv", [(place(1), {"Edema"}), (place(2), set())])
    assert detect_source(path).name == "chexpert-labels"
    source_data = read(path)
    assert [(one.study_id, one.labels) for one in source_data.splits["test"]] == [
        ("patient1_study1", ("Edema",)),
        ("patient2_study1", ()),
    ]
    assert not source_data.extras


def test_rows_of_radiographs_are_united_and_columns_may_be_in_any_order(tmp_path: Path) -> None:
    head = ["Path", *reversed(CHEXPERT_LABELS)]
    rows = [(f"valid/patient7/study1/view{k}_x.jpg", {"Fracture", "No Finding"}) for k in (1, 2)]
    table(tmp_path / "val_labels.csv", rows, head)
    assert [(one.study_id, one.labels) for one in read(tmp_path).splits["validation"]] == [
        ("patient7_study1", ("No Finding", "Fracture"))
    ]


def test_every_mismatched_row_is_reported(tmp_path: Path) -> None:
    good = table(tmp_path / "groundtruth.csv", [(place(n), {"Edema"}) for n in (1, 2, 3, 4, 5, 6)])
    lines = good.read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1].replace("1.0", "-1.0")
    lines[2] = lines[2].replace("1.0", "")
    lines[3] = lines[3].replace(place(3), "patient3")
    lines[5] = lines[5].replace(place(5), place(4)).replace("1.0", "0.0")
    good.write_text("\n".join(lines), encoding="utf-8")
    table(tmp_path / "bc4.csv", [(place(4), set()), (place(9), set())])
    messages = [
        "bc4.csv:patient4_study1: `study` must be in a table of references, got none",
        "bc4.csv:patient9_study1: `study` must be in a table of references, got none",
        "groundtruth.csv:2: `Edema` must be 0 or 1 unless `uncertain` (--uncertain) states what it means, got '-1.0'",
        "groundtruth.csv:3: `Edema` must be 0 or 1 unless `blank` (--blank) states what it means, got ''",
        "groundtruth.csv:4: `Study` must end like test/patient64741/study1, got 'patient3'",
        "groundtruth.csv:6: `labels` must agree in all rows of a study, got others of patient4_study1",
    ]
    assert sorted(map(str, inspect(tmp_path).problems)) == messages
    with pytest.raises(BuildError, match="6 problems"):
        read(tmp_path)
    kept = read(tmp_path, keep_going=True)
    assert [one.study_id for one in kept.splits["test"]] == ["patient6_study1"]  # contradicted studies are left out


def cells(path: Path, rows: dict[int, dict[str, str]]) -> Path:
    """Write a table in which all labels are 0 except the given cells."""
    lines = [",".join([place(n), *(own.get(name, "0.0") for name in CHEXPERT_LABELS)]) for n, own in rows.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([",".join(HEAD), *lines]), encoding="utf-8")
    return path


UNSTATED = {1: {"Edema": "1.0", "Fracture": ""}, 2: {"Edema": "-1.0", "Fracture": "1"}, 3: {"Edema": "1.0"}}


@pytest.mark.parametrize(
    ("blank", "uncertain", "expected", "unknown"),
    [
        ("negative", "positive", {1: {"Edema"}, 2: {"Edema", "Fracture"}, 3: {"Edema"}}, {}),
        ("negative", "negative", {1: {"Edema"}, 2: {"Fracture"}, 3: {"Edema"}}, {}),
        ("missing", "positive", {1: {"Edema"}, 2: {"Edema", "Fracture"}, 3: {"Edema"}}, {1: "Fracture"}),
        ("negative", "missing", {1: {"Edema"}, 2: {"Fracture"}, 3: {"Edema"}}, {2: "Edema"}),
        ("missing", "missing", {1: {"Edema"}, 2: {"Fracture"}, 3: {"Edema"}}, {1: "Fracture", 2: "Edema"}),
    ],
)
def test_blank_and_uncertain_labels_follow_the_stated_policy(
    tmp_path: Path, blank: str, uncertain: str, expected: dict[int, set[str]], unknown: dict[int, str]
) -> None:
    path = cells(tmp_path / "labels.csv", UNSTATED)
    data = read(path, blank=blank, uncertain=uncertain)
    assert {record.study_id: set(record.labels) for record in data.splits["test"]} == {
        f"patient{n}_study1": labels for n, labels in expected.items()
    }
    assert {record.study_id: record.unknown for record in data.splits["test"] if record.unknown} == {
        f"patient{n}_study1": (label,) for n, label in unknown.items()
    }
    labels = "1 label" if len(unknown) == 1 else f"{len(unknown)} labels"
    assert data.warnings == ([f"labels.csv: {labels} missing: not scored"] if unknown else [])


def test_missing_references_take_their_readings_along(tmp_path: Path) -> None:
    """A study without any reference is left out, and a reading that lacks a label."""
    cells(tmp_path / "groundtruth.csv", {**UNSTATED, 4: dict.fromkeys(CHEXPERT_LABELS, "")})
    cells(tmp_path / "bc4.csv", {1: {}, 2: {}, 3: {"Edema": ""}, 4: {}})
    data = read(tmp_path, blank="missing", uncertain="negative")
    assert [row["study_id"] for row in data.extras[0].rows] == ["patient1_study1", "patient2_study1"]
    assert data.warnings == [
        "groundtruth.csv: 1 label missing: not scored",
        "groundtruth.csv: 1 row left out: labels are missing",
        "bc4.csv: 1 row left out: labels are missing",
    ]


def test_readers_in_folders_below_are_read_and_other_tables_are_set_aside(tmp_path: Path) -> None:
    """The layout of rajpurkarlab/cheXpert-test-set-labels."""
    rows = [(place(n), {"Edema"}) for n in (1, 2)]
    five = ["Study", "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"]
    table(tmp_path / "groundtruth.csv", rows)
    table(tmp_path / "radiologists/benchmark_radiologists/bc4.csv", rows)
    table(tmp_path / "radiologists/supplementary/bc1.csv", rows)
    table(tmp_path / "radiologists/supplementary/.hidden.csv", rows)
    table(tmp_path / "labeler/vision.csv", rows)
    table(tmp_path / "example_models/predictions/a/a_predictions.csv", rows, five)
    table(tmp_path / "test/patient1/study1/notes.csv", rows)  # among pictures
    inspection = inspect(tmp_path)
    assert inspection.counts["readers"] == 2
    assert inspection.files["reader bc1"] == "radiologists/supplementary/bc1.csv"
    five_labels = "5 of the 14 labels; a system's? use `convert`"
    assert inspection.warnings == [
        f"set aside: example_models/predictions/a/a_predictions.csv: {five_labels}",
        "set aside: labeler/vision.csv: not in a folder of readers, such as radiologists; a system's? use `convert`",
    ]
    data = read(tmp_path)
    assert {row["reader"] for row in data.extras[0].rows} == {"bc4", "bc1"}
    assert [file for file, _ in data.set_aside] == [
        "example_models/predictions/a/a_predictions.csv",
        "labeler/vision.csv",
    ]


def test_readers_of_one_file_name_keep_their_folders(tmp_path: Path) -> None:
    rows = [(place(1), {"Edema"})]
    for name in ("groundtruth.csv", "readers/x/r1.csv", "readers/y/r1.csv", "readers/y/r2.CSV"):
        table(tmp_path / name, rows)
    assert {row["reader"] for row in read(tmp_path).extras[0].rows} == {"readers_x_r1", "readers_y_r1", "r2"}


def test_a_phantom_of_many_studies_has_each_once_and_labels_that_its_seed_does_not_repeat(tmp_path: Path) -> None:
    write_chexpert_labels(tmp_path, 600)
    assert {split: len(records) for split, records in read(tmp_path).splits.items()} == {"test": 600, "validation": 240}
    labels = pd.read_csv(tmp_path / "groundtruth.csv")[list(CHEXPERT_LABELS)].to_numpy()
    aurocs = roc_auc_score(labels, np.random.default_rng(0).random(labels.shape), average=None)
    assert np.all(abs(aurocs - 0.5) < 0.3)  # 0.00 to 0.03 with the generator of the labels


def test_a_table_of_studies_is_refused_with_the_command_that_converts_it(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    table = tmp_path / "my scores.csv"
    shutil.copy(built[0] / "bc4.csv", table)
    refused = call("score", table, built[1], "--split", "test", expect=1).stderr
    (command,) = re.findall(r"`reveal-bench (convert .* --out NEW\.jsonl)`", refused)
    converted = tmp_path / "scores.jsonl"
    call(*shlex.split(command)[:-1], converted)
    assert "F1, micro" in call("score", converted, built[1], "--split", "test", "--resamples", 20).stdout


def test_readers_alone_are_no_references(tmp_path: Path) -> None:
    table(tmp_path / "bc4.csv", [(place(1), set())])
    with pytest.raises(ValueError, match=r"`root` must be or contain a table of references.* got bc4\.csv"):
        read(tmp_path)


def test_studies_without_a_picture_are_refused_elsewhere(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The same rows under the name of a benchmark of pictures are refused."""
    shutil.copytree(built[1], tmp_path / "data")
    info = tmp_path / "data/manifest/benchmark.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"benchmark": "reveal-cxr"}), encoding="utf-8")
    problems = validate_folder(tmp_path / "data")
    assert any("must name at least one image" in str(problem) for problem in problems)
