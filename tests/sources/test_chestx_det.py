"""ChestX-Det: the real annotation file, and everything that can be wrong with one."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import BuildLog, build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.folder import read_rows
from reveal_bench.kinds.localization.records import read_localization
from reveal_bench.masks import decode_mask
from reveal_bench.sources import chestx_det, detect_source
from reveal_bench.sources.source import BuildError

REAL = Path(__file__).parents[3] / "shared" / "data" / "chestx_det"
needs_real = pytest.mark.skipif(not (REAL / "ChestX_Det_test.json").exists(), reason="needs ../shared/data: see README")

TWIN = [
    {"file_name": "1.png", "syms": [], "boxes": [], "polygons": []},
    {
        "file_name": "2.png",
        "syms": ["Nodule", "Effusion", "Nodule"],
        "boxes": [[10, 10, 20, 20], [500, 600, 700, 900], [15, 15, 30, 40]],
        "polygons": [
            [[10, 10], [20, 10], [20, 20], [10, 20]],
            [[500, 600], [700, 600], [600, 900]],
            [[15, 15], [30, 15], [30, 40], [15, 40]],
        ],
    },
]


def write(folder, entries):
    (folder / "ChestX_Det_test.json").write_text(json.dumps(entries))
    return folder


def filled(polygons):
    """Union of polygons by Pillow alone."""
    image = Image.new("1", (1024, 1024))
    for polygon in polygons:
        ImageDraw.Draw(image).polygon([tuple(vertex) for vertex in polygon], outline=1, fill=1)
    return np.asarray(image)


@pytest.fixture(scope="module")
def real_reading():
    """The published file, the masks of its first 81 images filled once."""
    source_data = chestx_det.read(REAL, pixels="withhold")
    return replace(source_data, splits={"test": list(islice(source_data.splits["test"], 81))})


@needs_real
def test_the_published_file_has_the_published_counts():
    inspection = chestx_det.inspect(REAL)
    assert dict(inspection.counts) == chestx_det.PUBLISHED | {"pictures": 0}
    assert [text.partition(":")[0] for text in inspection.warnings] == ["553 of 553 images have no picture here"]
    assert (list(inspection.problems), inspection.synthetic) == ([], False)
    assert detect_source(REAL).name == "chestx-det"


@pytest.mark.parametrize("source", [pytest.param("real", marks=needs_real), "twin"])
def test_masks_are_the_union_of_a_findings_polygons(request, tmp_path, source):
    root = REAL if source == "real" else write(tmp_path, TWIN)
    source_data = (
        request.getfixturevalue("real_reading") if source == "real" else chestx_det.read(root, pixels="withhold")
    )
    entries = {entry["file_name"]: entry for entry in json.loads((root / "ChestX_Det_test.json").read_text())}
    records = list(source_data.splits["test"])
    assert [f"{record.image_id}.png" for record in records] == list(entries)[:81]
    for record in records:
        entry = entries[f"{record.image_id}.png"]
        assert record.labels == sorted(set(entry["syms"]))
        assert {annotation.finding for annotation in record.annotations} == set(entry["syms"])
        for annotation in record.annotations:
            polygons = [p for s, p in zip(entry["syms"], entry["polygons"], strict=True) if s == annotation.finding]
            mask = filled(polygons)
            ys, xs = np.nonzero(mask)
            assert np.array_equal(decode_mask(annotation.rle), mask)
            assert annotation.n_instances == len(polygons)
            assert annotation.area_px == mask.sum()
            assert annotation.bbox_xywh == (xs.min(), ys.min(), np.ptp(xs) + 1, np.ptp(ys) + 1)


@needs_real
def test_the_real_file_becomes_a_valid_folder(real_reading, tmp_path):
    """Its first 81 images; the transcript in the README builds all of it, and tells halves and questions."""
    assert real_reading.warnings == [
        "553 images have no picture here, so no hash to verify a copy against",
        "the source does not identify patients: every image counts as a separate patient, also in a holdout",
    ]
    assert not real_reading.synthetic
    # 1,172 pairs of an image and a finding, the transcript's 598 + 574: the distinct labels per entry of the file
    entries = json.loads((REAL / "ChestX_Det_test.json").read_text())
    assert sum(len(set(entry["syms"])) for entry in entries) == 598 + 574
    some = real_reading.splits["test"]
    for record, entry in zip(some, entries, strict=False):
        assert len(record.annotations) == len(set(entry["syms"]))
        assert sum(a.n_instances for a in record.annotations) == len(entry["polygons"])
        assert sum(len(a.boxes_xywh) for a in record.annotations) == len(entry["boxes"])
    public, private = tmp_path / "public", tmp_path / "private"
    info = build_folder({"test": some}, public, BENCHMARKS["chestx-det"], pixels="withhold", holdout=private)
    # each image its own patient: half of them, rounded up, are private
    assert (info.splits["released"]["n_images"], info.splits["holdout"]["n_images"]) == (40, 41)
    built = read_localization(public, "released") + read_localization(private, "holdout")
    assert sorted(built, key=lambda r: r.image_id) == sorted(some, key=lambda r: r.image_id)
    assert validate_folder(public, holdout=private) == []


def test_counts_by_hand(tmp_path):
    record = list(chestx_det.read(write(tmp_path, TWIN), pixels="withhold").splits["test"])[1]
    nodule = record.reference("Nodule")
    # squares of 11 x 11 and 16 x 26 pixels (borders drawn) that share 15..20 x 15..20, 36 pixels: 121 + 416 - 36
    assert nodule.area_px == 501
    assert nodule.bbox_xywh == (10, 10, 21, 31)
    assert nodule.boxes_xywh == ((10, 10, 10, 10), (15, 15, 15, 25))  # the source's own, corners turned into sides
    assert (record.patient_id, record.study_id, record.view, record.size) == ("2", "2", "UNKNOWN", (1024, 1024))


def test_other_counts_are_warnings(tmp_path):
    warnings = chestx_det.read(write(tmp_path, TWIN), pixels="withhold").warnings
    assert warnings == [
        "test images: the source publishes 553, this download has 2",
        "test instances: the source publishes 1,734, this download has 3",
        "test images without a finding: the source publishes 64, this download has 1",
        "2 images have no picture here, so no hash to verify a copy against",
        "the source does not identify patients: every image counts as a separate patient, also in a holdout",
    ]
    assert "SYNTHETIC" not in " ".join(path.name for path in tmp_path.iterdir())
    (tmp_path / "SYNTHETIC.txt").touch()
    source_data = chestx_det.read(tmp_path, pixels="withhold")
    assert (source_data.synthetic, len(source_data.warnings)) == (True, 2)


BROKEN = [
    {"file_name": "1.png", "syms": ["Effusoin"], "boxes": [[1, 1, 2, 2]], "polygons": [[[1, 1], [2, 2]]]},
    {"file_name": "2.png", "syms": ["Mass"], "boxes": [], "polygons": [[[1, 1], [2, 2]]]},
    {"file_name": "3.png", "syms": ["Mass"], "boxes": [[1, 1, 2, 1025]], "polygons": [[[1, 1], [2, -1]]]},
    {"file_name": "4.png", "syms": [], "boxes": [], "polygons": []},
    {"file_name": "4.png", "syms": [], "boxes": [], "polygons": []},
    {"file_name": "../5.png", "syms": [], "boxes": [], "polygons": []},
    {"file_name": "6.png", "syms": []},
    {"file_name": "7.png", "syms": ["Mass"], "boxes": [[5, 5, 5, 9]], "polygons": [[[float("nan"), 1], [2, 2]]]},
]


def test_all_problems_are_named_together(tmp_path):
    with pytest.raises(BuildError, match="9 problems") as caught:
        chestx_det.read(write(tmp_path, BROKEN), pixels="withhold")
    assert [str(problem).removeprefix("ChestX_Det_test.json:") for problem in caught.value.problems] == [
        "1: `syms` must be one of the 13 findings, got 'Effusoin' (nearest: 'Effusion')",
        "2: `syms, boxes, polygons` must be lists of equal length, got 1, 0, 1",
        "3: `boxes` must be x0 < x1, y0 < y1 in [0, 1024], got [1, 1, 2, 1025]",
        "3: `polygons` must have vertices [x, y] in [0, 1024], got [2, -1]",
        "5: `file_name` must be unique, got '4.png', also entry 4",
        "6: `file_name` must be a PNG file name, got '../5.png'",
        "7: `entry` must have the keys boxes, file_name, polygons, syms, got file_name, syms",
        "8: `boxes` must be x0 < x1, y0 < y1 in [0, 1024], got [5, 5, 5, 9]",
        "8: `polygons` must have vertices [x, y] in [0, 1024], got [nan, 1]",
    ]


def test_keep_going_leaves_entries_out_and_says_so(tmp_path):
    good = {"file_name": "9.png", "syms": [], "boxes": [], "polygons": []}
    source_data = chestx_det.read(write(tmp_path, [*BROKEN, good]), pixels="withhold", keep_going=True)
    assert [record.image_id for record in source_data.splits["test"]] == ["9"]  # which entry of 4.png is right?
    assert sum(warning.startswith("left out: ChestX_Det_test.json:") for warning in source_data.warnings) == 9


@pytest.mark.parametrize("text", ["[", "{}", '"\xff'])
def test_unreadable_files(tmp_path, text):
    (tmp_path / "ChestX_Det_test.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BuildError, match=r"`file` must be (UTF-8 JSON|a JSON list)"):
        chestx_det.read(tmp_path, pixels="withhold")
    with pytest.raises(BuildError):  # a broken file is not an image that could be left out
        chestx_det.read(tmp_path, pixels="withhold", keep_going=True)
    assert len(chestx_det.inspect(tmp_path).problems) == 1


def test_an_image_is_in_one_file_only(tmp_path):
    write(tmp_path, TWIN)
    (tmp_path / "ChestX_Det_train.json").write_text(json.dumps(TWIN[:1]))
    with pytest.raises(BuildError, match=r"1 problem.*\n.*`file_name` must be unique, got '1.png', also entry 1 of "):
        chestx_det.read(tmp_path, pixels="withhold")


def test_two_pictures_of_one_name_are_a_problem(tmp_path):
    root = write(tmp_path, TWIN)
    for place in ("a/1.png", "b/1.png", "b/2.png"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    for pixels in ("embed", "withhold"):
        with pytest.raises(BuildError, match=r"must be the only file with its name, got a/1.png and b/1.png"):
            chestx_det.read(root, pixels=pixels)


def test_pictures_pass_unchanged_and_must_fit(tmp_path):
    root, pictures = write(tmp_path, TWIN), tmp_path / "pictures"
    pictures.mkdir()
    Image.new("L", (1024, 1024), 3).save(pictures / "1.png")
    Image.new("L", (512, 512), 3).save(pictures / "2.png")
    source_data = chestx_det.read(root, pixels="embed", pictures=pictures)
    assert [record.picture.source_path for record in source_data.splits["test"]] == ["1.png", "2.png"]
    log = BuildLog()
    build_folder(source_data.splits, tmp_path / "out", BENCHMARKS["chestx-det"], keep_going=True, log=log)
    (problem,) = log.left_out
    assert str(problem).endswith("the picture must have 1024 x 1024 pixels, got 512 x 512")
    shard = next((tmp_path / "out" / "localization").glob("*.parquet"))
    (row,) = read_rows(shard)
    assert row["image"]["bytes"] == (pictures / "1.png").read_bytes()
    (pictures / "1.png").unlink()
    with pytest.raises(BuildError, match=r"1 problem(.|\n)*json:1: `picture` must exist for 1, got no such file"):
        chestx_det.read(root, pixels="embed", pictures=pictures)
    (left,) = chestx_det.read(root, pixels="embed", pictures=pictures, keep_going=True).splits["test"]
    assert left.image_id == "2"


def test_arguments(tmp_path):
    for function in (chestx_det.read, chestx_det.inspect):
        with pytest.raises(ValueError, match=r"`root` must contain ChestX_Det_test.json"):
            function(tmp_path)
    with pytest.raises(
        ValueError, match=r"`pictures` must contain .png files unless `pixels` is withhold, got none below "
    ):
        chestx_det.read(write(tmp_path, TWIN))
    with pytest.raises(ValueError, match=r"`pictures` must contain .png files, got none below "):
        chestx_det.read(tmp_path, pixels="withhold", pictures=tmp_path)  # the user says that they are there
    with pytest.raises(ValueError, match="`root` must exist"):
        detect_source(tmp_path / "nothing")
    (tmp_path / "ChestX_Det_test.json").unlink()
    with pytest.raises(ValueError, match="none is recognised"):
        detect_source(tmp_path)
