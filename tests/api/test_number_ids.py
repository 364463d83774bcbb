"""Ids of digits that pandas or another program has turned into numbers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.predictions.number_ids import advice_on_numbers
from tests.cli.test_score import call

IDS = ("36199", "7", "007", "012", "40")
"""Only 36199 and 40 are the text of a number that no other id has: 7 may be 007, and 12 is not an id."""
CSV = "image_id,finding,x,y,width,height,score\n{},Effusion,10,20,100,120,0.5\n40,Nodule,10,20,100,120,0.5\n"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return ChestX-Det folders of five images for detection and localization."""
    root = tmp_path_factory.mktemp("digits")
    entries = [
        {
            "file_name": f"{one}.png",
            "syms": ["Effusion", "Nodule"],
            "boxes": [[10, 20, 110, 140]] * 2,
            "polygons": [[[10, 20], [110, 20], [110, 140], [10, 140]]] * 2,
        }
        for one in IDS
    ]
    (root / "ChestX_Det_test.json").write_text(json.dumps(entries))
    tasks = {task: root / task for task in ("detection", "localization")}
    for task, out in tasks.items():
        call("build", root, "--out", out, "--images", "withhold", "--task", task)
    return tasks


def table(image_id: Any) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(CSV.format(image_id)))


FORMS: dict[str, Callable[[], Any]] = {
    "integers": lambda: table(36199),
    "floats": lambda: table(36199).astype({"image_id": float}),
    "small integers": lambda: table(36199).astype({"image_id": "int32"}),
    "nullable integers": lambda: table(36199).astype({"image_id": "Int64"}),
    "Arrow": lambda: pa.Table.from_pandas(table(36199)),
    "named index": lambda: table(36199).set_index("image_id"),
    "unnamed index": lambda: table(36199).set_index("image_id").rename_axis(None),
    "numpy integers in a list": lambda: [
        {"image_id": np.int64(one), "finding": finding, "box": [10, 20, 100, 120], "score": 0.5}
        for one, finding in ((36199, "Effusion"), (40, "Nodule"))
    ],
    "keys of a mapping": lambda: {
        36199: {"Effusion": [([10, 20, 100, 120], 0.5)]},
        40.0: {"Nodule": [([10, 20, 100, 120], 0.5)]},
    },
}


@pytest.mark.parametrize(
    ("form", "task"),
    [("keys of a mapping", "detection")]  # a list of boxes: localization has one answer per finding
    + [(form, task) for form in FORMS if form != "keys of a mapping" for task in ("detection", "localization")],
)
def test_numbers_that_are_one_id_are_read_as_its_text(folders: dict[str, Path], form: str, task: str) -> None:
    report = rb.lint(FORMS[form](), folders[task], allow_missing=True)
    assert report.ok, report
    assert {(one.image_id, one.finding) for one in report.predictions} == {("36199", "Effusion"), ("40", "Nodule")}


@pytest.mark.parametrize("image_id", ["36199", "36199.0"])
def test_convert_reads_the_same_numbers(folders: dict[str, Path], tmp_path: Path, image_id: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(CSV.format(image_id))
    for source in (table(image_id), file):
        done = rb.convert(source, folders["detection"])
        assert [line["image_id"] for line in done.predictions] == ["36199", "40"]
        assert any("read under another name" in note for note in done.notes) == (image_id == "36199.0")


def test_convert_reads_points_in_columns_x_and_y(folders: dict[str, Path]) -> None:
    table = pd.DataFrame([{"image_id": 40, "finding": "Mass", "x": 5, "y": 6}])
    (line,) = rb.convert(table, folders["localization"]).predictions
    assert line == {"image_id": "40", "finding": "Mass", "point": [5, 6]}


@pytest.mark.parametrize("image_id", [7, 12, 12.0, 99, 36199.5])
def test_other_numbers_get_advice_on_reading_ids(folders: dict[str, Path], image_id: float) -> None:
    for call_function in (rb.score, rb.convert):
        with pytest.raises(ArgumentError, match="as text, such as '36199': read ids with dtype=str") as caught:
            call_function(table(image_id), folders["detection"])  # type: ignore[operator]
        assert "COCO" not in str(caught.value)


@pytest.mark.parametrize(
    ("image_id", "is_row"), [(0, True), (4, True), (2.0, True), (5, False), (-1, False), (1.5, False)]
)
def test_only_numbers_of_rows_get_advice_on_rows(folders: dict[str, Path], image_id: float, *, is_row: bool) -> None:
    folder = folders["detection"]  # of five images
    for read in (
        lambda: rb.Accumulator(folder).update([{"boxes": [], "labels": [], "scores": []}], [image_id]),
        lambda: rb.convert(table(image_id), folder),
    ):
        with pytest.raises(ArgumentError, match="as text") as caught:
            read()
        assert is_row == ("if they number the rows of the dataset, give its column `image_id`" in str(caught.value))


def test_numbers_of_another_split_are_named_with_it(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reveal_bench.api.inputs.ids_of_other_splits", lambda *_: {"12": "val"})
    with pytest.raises(ArgumentError, match="must have ids of split 'test', got 12, which belongs to split 'val'"):
        rb.score(table(12), folders["detection"])


def test_refused_frames_are_named_and_get_advice_for_python(folders: dict[str, Path]) -> None:
    rendered = rb.lint(table("a").rename(columns={"x": "left"}), folders["detection"]).render()
    assert "another layout? rb.convert(predictions, bench) reads many" in rendered
    assert "predictions (DataFrame): " in rendered
    assert "reveal-bench convert" not in rendered


def test_convert_does_not_leave_out_every_row_because_of_numbers(folders: dict[str, Path]) -> None:
    rows = [{"image_id": one, "finding": "Nodule", "bbox": [1, 2, 3, 4], "score": 0.5} for one in (12, 99)]
    with pytest.raises(ArgumentError, match="read ids with dtype=str"):
        rb.convert(rows, folders["detection"], leave_out_unknown=True)


@pytest.mark.parametrize(
    ("ids", "advice"),
    [
        (["p1_study1"], ""),
        (["p1", "0012"], ": read ids with dtype=str"),
        (["study-0f4c9d21a7b3e856"], "; `build --id-table FILE` lists the source's name of each id"),
    ],
)
def test_advice_on_numbers_fits_the_ids(ids: list[str], advice: str) -> None:
    assert advice_on_numbers([99], ids, "study_id") == advice


def test_numbers_of_coco_results_are_no_ids(folders: dict[str, Path]) -> None:
    rows = [{"image_id": 40, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]
    with pytest.raises(ArgumentError, match="numbers need `instances`, a COCO dataset"):
        rb.convert(rows, folders["detection"], categories=["Nodule"])


@pytest.mark.parametrize(
    ("image_id", "hint"),
    [
        ("36199.0", "did you mean 36199? Ids became floats: write them with df[column].astype(int)"),
        ("12", "did you mean 012? Then read ids with dtype=str"),
    ],
)
def test_linter_names_the_id_behind_a_number_in_a_file(
    folders: dict[str, Path], tmp_path: Path, image_id: str, hint: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_text(CSV.format(image_id))
    assert hint in rb.lint(file, folders["detection"]).render()


@pytest.mark.parametrize(
    ("task", "cells"),
    [
        ("localization", [(5, 6), None]),
        ("localization", ["B3", None]),
        ("detection", [[([10, 20, 100, 120], 0.5)], None]),
    ],
)
def test_tables_have_a_column_for_each_finding(folders: dict[str, Path], task: str, cells: list[Any]) -> None:
    bench = rb.load(folders[task])
    assert set(bench.findings) >= {"Effusion", "Nodule"}
    frame = pd.DataFrame({"Effusion": cells, "Nodule": cells[::-1]}, index=[36199, 40])
    report = rb.lint(frame, bench, allow_missing=True)
    assert report.ok, report
    pairs = {(one.image_id, one.finding) for one in report.predictions}
    assert pairs == {("36199", "Effusion"), ("40", "Nodule")}


def test_missing_file_is_named(folders: dict[str, Path]) -> None:
    for function in (rb.score, rb.lint, rb.convert):
        with pytest.raises(FileNotFoundError, match=r"^nowhere\.csv does not exist$"):
            function("nowhere.csv", folders["detection"])  # type: ignore[operator]
    for words in (("score", "nowhere.csv", folders["detection"]), ("lint", "nowhere.csv", folders["detection"])):
        assert "nowhere.csv does not exist" in call(*words, expect=1).stderr


def test_commands_name_their_own_arguments_in_errors() -> None:
    for words, message in (
        (("inspect", "benchmarks"), "ROOT must be a download of one of "),
        (("build", "benchmarks", "--out", "never"), "ROOT must be a download of one of "),
        (("baseline", "chance", "benchmarks", "--out", "never"), "benchmarks is not a dataset folder"),
    ):
        refused = call(*words, expect=1).stderr
        assert message in refused
        assert "`" not in refused
