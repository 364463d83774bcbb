"""Differences between two versions: each change is named once, with numbers from hand arithmetic."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reveal_bench.dataset.build import build_folder
from reveal_bench.masks import encode_mask
from reveal_bench.reports.version_diff import Moved, Redrawn, Relabelled, diff_folders
from tests.dataset.card_folders import (
    FINDINGS,
    edit,
    findings_folder,
    localization_folder,
    localized,
    rows_of,
    study,
    tasks_folder,
)

EDEMA, CARDIOMEGALY = 4, 1


@pytest.fixture
def before(tmp_path):
    return localization_folder(tmp_path, n=4)


@pytest.fixture
def after(before, tmp_path):
    copy = tmp_path / "after"
    shutil.copytree(before, copy)
    return copy


def only(image_id, change):
    return lambda row: change(row) if row["image_id"] == image_id else None


@pytest.mark.parametrize("make", [localization_folder, findings_folder, tasks_folder])
def test_a_folder_does_not_differ_from_itself(tmp_path, make):
    folder = make(tmp_path, holdout=True)
    diff = diff_folders(folder, folder, holdouts=(tmp_path / "private", tmp_path / "private"))
    assert diff.is_empty
    assert diff.to_text().endswith("1.0.0 -> 1.0.0\n\nNo differences in the data.\n")


def test_two_benchmarks_cannot_be_compared(tmp_path, benchmark):
    a = findings_folder(tmp_path / "a", holdout=True)
    with pytest.raises(ValueError, match=r"must have the benchmark of .*, reveal-cxr, got rexecution"):
        diff_folders(a, tasks_folder(tmp_path / "b"))
    records = [localized(tmp_path / "pictures", i) for i in range(2)]
    build_folder({"test": records}, tmp_path / "c", benchmark)
    build_folder({"test": records}, tmp_path / "d", replace(benchmark, name="chestx-det"))
    with pytest.raises(ValueError, match=r"must have the benchmark of .*, chexlocalize, got chestx-det"):
        diff_folders(tmp_path / "c", tmp_path / "d")
    with pytest.raises(ValueError, match=r"a/private must be the holdout of chexlocalize, got that of reveal-cxr"):
        diff_folders(tmp_path / "c", tmp_path / "c", holdouts=(tmp_path / "a" / "private", tmp_path / "a" / "private"))


def test_added_removed_and_moved(tmp_path, benchmark):
    records = [localized(tmp_path / "pictures", i) for i in range(5)]
    build_folder({"a": records[:3], "b": records[3:4]}, tmp_path / "old", benchmark)
    build_folder({"a": records[1:2], "b": records[2:]}, tmp_path / "new", benchmark, version="1.1.0")
    diff = diff_folders(tmp_path / "old", tmp_path / "new")
    assert diff.versions == ("1.0.0", "1.1.0")
    assert (diff.added, diff.removed) == ({"b": ["img4"]}, {"a": ["img0"]})
    assert diff.moved == [Moved("img2", "a", "b")]
    assert diff.rows == {("localization", "a"): (3, 1), ("localization", "b"): (1, 3), ("masks", "a"): (3, 1),
                         ("masks", "b"): (1, 3)}  # fmt: skip
    text = diff.to_text()
    assert text.startswith("chexlocalize 1.0.0 -> 1.1.0\nlocalization/a: 3 -> 1 row\n")
    assert "\nAdded to b (1):\n  img4\n" in text
    assert "\nMoved (1):\n  img2: a -> b\n" in text


def test_relabelled(before, after):
    def change(row):
        row["label_status"].update(Edema=0, Cardiomegaly=1)
        row["labels"] = [CARDIOMEGALY]

    edit(after, "localization/test", only("img1", change))
    diff = diff_folders(before, after)
    assert diff.relabelled == [
        Relabelled("img1", "Cardiomegaly", "absent", "present"),
        Relabelled("img1", "Edema", "present", "absent"),
    ]
    assert [diff.other, diff.redrawn, diff.repictured, diff.rows] == [{}, [], [], {}]
    assert "img1: Edema present -> absent" in diff.to_text()


def test_relabelled_studies(tmp_path):
    old = [study(tmp_path, 0, ("Edema",)), study(tmp_path, 1, ("Edema",))]
    new = [study(tmp_path, 0, ("Edema", "Nodule"), agreement="two_of_three", n_agree_all=2), old[1]]
    build_folder({"test": old}, tmp_path / "old", FINDINGS)
    build_folder({"test": new}, tmp_path / "new", FINDINGS)
    diff = diff_folders(tmp_path / "old", tmp_path / "new")
    assert diff.relabelled == [Relabelled("study-0", "Nodule", "absent", "present")]
    assert diff.other == {"agreement": ["study-0"], "n_agree_all": ["study-0"]}


def test_redrawn_masks_have_their_iou(before, after):
    # img1 has columns 2 to 5 of rows 5 to 8: 16 pixels; the new mask has columns 4 to 7: 8 in both, 24 in either
    mask = np.zeros((20, 30), bool)
    mask[5:9, 4:8] = True
    rle = encode_mask(mask)
    changed = {"rle": {"size": [20, 30], "counts": rle.counts}, "bbox_xywh": [4.0, 5.0, 4.0, 4.0]}
    edit(after, "localization/test", only("img1", lambda row: row["annotations"][0].update(changed)))
    assert diff_folders(before, after).redrawn == [Redrawn("img1", "Edema", "ground_truth", "changed", 8 / 24)]


def test_redrawn_boxes_have_the_iou_of_the_boxes(before, after):
    for folder, x in ((before, 0.0), (after, 5.0)):
        box = {"rle": None, "bbox_xywh": [x, 0.0, 10.0, 4.0], "boxes_xywh": [[x, 0.0, 10.0, 4.0]]}
        edit(folder, "localization/test", only("img2", lambda row, box=box: row["annotations"][0].update(box)))
    # 10 x 4 each, 5 x 4 in both: 20 of 60
    (redrawn,) = diff_folders(before, after).redrawn
    assert redrawn.iou == pytest.approx(1 / 3)
    assert diff_folders(before, after).to_text().count("IoU 0.333") == 1


def test_drawings_that_came_and_went(before, after):
    edit(after, "localization/test", only("img0", lambda row: row.update(annotations=[])))
    diff, back = diff_folders(before, after), diff_folders(after, before)
    assert diff.redrawn == [Redrawn("img0", "Edema", "ground_truth", "removed")]
    assert back.redrawn == [Redrawn("img0", "Edema", "ground_truth", "added")]


def test_individual_readers_are_distinguished(before, after):
    def change(row):
        drawing = row["annotations"][0]
        row["annotations"] = [{**drawing, "reader": 2, "reader_id": name} for name in ("R1", "R2")]

    edit(before, "localization/test", only("img0", change))
    edit(after, "localization/test", only("img0", change))
    edit(after, "localization/test", only("img0", lambda row: row["annotations"][1].update(n_instances=3)))
    assert diff_folders(before, after).redrawn == [Redrawn("img0", "Edema", "R2", "changed", 1.0)]


def test_other_pixels_and_other_columns(before, after):
    edit(after, "localization/test", only("img3", lambda row: row.update(pixel_sha256="0" * 64, view=1)))
    diff = diff_folders(before, after)
    assert diff.repictured == ["img3"]
    assert diff.other == {"view": ["img3"]}


def test_columns(before, after):
    (path,) = (after / "masks").iterdir()
    table = pq.read_table(path)
    table = table.append_column("note", pa.array(["x"] * len(table))).drop_columns(["label"])
    pq.write_table(table, path)
    diff = diff_folders(before, after)
    assert diff.columns == [("masks", "label", "int64", None), ("masks", "note", None, "string")]
    assert "masks: column label was removed\nmasks: new column note\n" in diff.to_text()


def test_another_vocabulary_is_not_taken_for_other_labels(tmp_path):
    wider = replace(FINDINGS, findings=("Aneurysm", *FINDINGS.findings))
    records = [study(tmp_path, i) for i in range(2)]
    build_folder({"test": records}, tmp_path / "old", FINDINGS)
    build_folder({"test": records}, tmp_path / "new", wider)
    diff = diff_folders(tmp_path / "old", tmp_path / "new")
    assert diff.findings == ([], ["Aneurysm"])
    assert {change.finding for change in diff.relabelled} == {"Aneurysm"}
    assert diff.other == {}


def test_nothing_of_a_private_holdout_unless_it_is_given(tmp_path):
    folder = localization_folder(tmp_path, holdout=True)
    private = tmp_path / "private"
    shutil.copytree(folder, tmp_path / "after")
    shutil.copytree(private, tmp_path / "after_private")
    key = rows_of(private, "localization/")[0]["image_id"]
    change = only(key, lambda row: row.update(annotations=[]))
    edit(tmp_path / "after_private", "localization/", change)
    assert diff_folders(folder, tmp_path / "after").is_empty
    both = diff_folders(folder, tmp_path / "after", holdouts=(private, tmp_path / "after_private"))
    assert [drawing.key for drawing in both.redrawn] == [key]
    assert key not in diff_folders(folder, tmp_path / "after").to_text()


def test_a_row_that_went_into_the_holdout_is_not_removed(tmp_path, benchmark):
    records = [localized(tmp_path / "pictures", i) for i in range(6)]
    build_folder({"released": records}, tmp_path / "old", benchmark)
    build_folder({"test": records}, tmp_path / "new", benchmark, holdout=tmp_path / "p")
    held = {row["image_id"] for row in rows_of(tmp_path / "p", "localization/")}
    diff = diff_folders(tmp_path / "old", tmp_path / "new")
    assert {split: set(keys) for split, keys in diff.held.items()} == {"released": held}
    assert (diff.removed, diff.released, diff.moved) == ({}, {}, [])
    assert diff.rows["manifest", "holdout"] == (None, 3)
    text = diff.to_text()
    assert "\nmanifest/holdout: new, 3 rows\n" in text
    assert "\nMoved from released to the private holdout (3):\n" in text
    assert "Removed" not in text
    back = diff_folders(tmp_path / "new", tmp_path / "old")
    assert {split: set(keys) for split, keys in back.released.items()} == {"released": held}
    assert back.added == {}
    assert "\nmanifest/holdout: removed, had 3 rows\n" in back.to_text()


def test_a_hash_that_came_is_not_other_pixels(before, after):
    edit(before, "localization/test", only("img0", lambda row: row.update(pixel_sha256=None)))
    diff = diff_folders(before, after)
    assert (diff.repictured, diff.unhashed, diff.other) == ([], ["img0"], {})
    assert diff_folders(after, before).unhashed == ["img0"]
    assert "\nNo hash to compare pixels (1):\n  img0\n" in diff.to_text()


def test_hashes_of_a_study_with_several_pictures(tmp_path):
    folder = findings_folder(tmp_path, n=2)
    shutil.copytree(folder, tmp_path / "after")

    def change(row):
        if row["study_id"] == "study-1":
            row["image_facts"][0]["pixel_sha256"] = None
            row["image_facts"][1]["pixel_sha256"] = "0" * 64

    edit(tmp_path / "after", "multilabel/test", change)
    diff = diff_folders(folder, tmp_path / "after")
    assert (diff.repictured, diff.unhashed) == (["study-1"], ["study-1"])


def test_one_row_is_singular(tmp_path, benchmark):
    records = [localized(tmp_path / "pictures", i) for i in range(3)]
    build_folder({"a": records[:2]}, tmp_path / "old", benchmark, pixels="withhold")
    build_folder({"a": records[:1], "b": records[2:]}, tmp_path / "new", benchmark, pixels="withhold")
    text = diff_folders(tmp_path / "old", tmp_path / "new").to_text()
    assert "\nlocalization/a: 2 -> 1 row\n" in text
    assert "\nlocalization/b: new, 1 row\n" in text


def test_the_document_is_json(before, after):
    edit(after, "localization/test", only("img0", lambda row: row.update(annotations=[])))
    document = json.loads(json.dumps(diff_folders(before, after).to_document()))
    assert document["schema"] == 1
    assert document["redrawn"] == [
        {"key": "img0", "finding": "Edema", "reader": "ground_truth", "change": "removed", "iou": None}
    ]


def test_long_lists_are_cut_in_the_text_alone(tmp_path, benchmark):
    records = [localized(tmp_path / "pictures", i) for i in range(24)]
    build_folder({"test": records[:1]}, tmp_path / "old", benchmark, pixels="withhold")
    build_folder({"test": records}, tmp_path / "new", benchmark, pixels="withhold")
    diff = diff_folders(tmp_path / "old", tmp_path / "new")
    assert len(diff.added["test"]) == 23
    assert "  ... and 3 more" in diff.to_text()
