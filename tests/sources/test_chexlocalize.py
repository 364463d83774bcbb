"""CheXlocalize: the synthetic twin of the download, trap by trap. Expectations come from plain json and csv."""

import csv
import hashlib
import pickle
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.records import read_localization
from reveal_bench.sources import chexlocalize, detect_source
from tests.dataset.conftest import change, load

INNER = "chexlocalize/chexlocalize"


@pytest.fixture(scope="module")
def everything(download):
    source_data = chexlocalize.read(download)
    return {
        split: {r.image_id: r for r in records} for split, records in source_data.splits.items()
    }, source_data.warnings


def labels(root, split):
    with (root / "CheXpert" / f"{split}_labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {"_".join(row["Path"].removesuffix(".jpg").split("/")[-3:]): row for row in rows}


def rle_area(rle):
    from pycocotools import mask as coco

    return int(coco.area(rle))


def test_nested_roots_are_found(download):
    for root in (download, download / "chexlocalize", download / INNER):
        assert detect_source(root).name == "chexlocalize"
    assert chexlocalize.detect(download / INNER / "CheXpert") == 0


def test_every_picture_of_both_label_files_is_a_record(download, everything):
    by_split, _ = everything
    for split, short in (("validation", "val"), ("test", "test")):
        assert list(by_split[split]) == list(labels(download / INNER, short))


def test_labels_are_read_by_column_name_and_alias(download, everything):
    by_split, _ = everything
    column = {name: "Lung Opacity" if name == "Airspace Opacity" else name for name in CHEXLOCALIZE_FINDINGS}
    for image_id, row in labels(download / INNER, "test").items():
        expected = {name: int(float(row[column[name]])) for name in CHEXLOCALIZE_FINDINGS}
        assert by_split["test"][image_id].label_status == expected
    heads = (download / INNER / "CheXpert" / "test_labels.csv").read_text().split("\n")[0].split(",")
    assert heads.index("Lung Lesion") < heads.index("Lung Opacity")  # the trap is there
    assert "Sex" not in heads


def test_views_come_from_the_column_or_the_name(download, everything):
    by_split, _ = everything
    for image_id, row in labels(download / INNER, "val").items():
        record = by_split["validation"][image_id]
        assert (record.view, record.view_raw) == (row["AP/PA"] or "LATERAL", row["AP/PA"] or "lateral")
    assert {r.view for r in by_split["test"].values()} <= {"FRONTAL", "LATERAL"}


def test_masks_and_contours_are_the_files(download, everything):
    from pycocotools import mask as coco

    by_split, _ = everything
    root, n = download / INNER, 0
    for split, short in (("validation", "val"), ("test", "test")):
        masks, polygons = load(root, f"gt_segmentations_{short}"), load(root, f"gt_annotations_{short}")
        for image_id, record in by_split[split].items():
            drawn = {a.finding: a for a in record.annotations if a.reader == "ground_truth"}
            present = {f for f, rle in masks.get(image_id, {}).items() if rle_area(rle) > 0}
            assert set(drawn) == present
            for finding, annotation in drawn.items():
                rle = masks[image_id][finding]
                ys, xs = np.nonzero(coco.decode(rle))
                assert annotation.rle.counts == rle["counts"]
                assert annotation.area_px == len(xs)
                assert annotation.bbox_xywh == (xs.min(), ys.min(), np.ptp(xs) + 1, np.ptp(ys) + 1)
                contours = polygons[image_id][finding]
                assert [[list(v) for v in c] for c in annotation.polygons] == contours
                assert annotation.n_instances == len(contours)
                n += 1
    assert n > 40


def test_published_rule_polygon_to_mask(download):
    """PIL with outline and fill gives the file's bytes; pycocotools' own polygons do not."""
    from pycocotools import mask as coco

    masks, n_differ = load(download / INNER, "gt_segmentations_test"), 0
    for image_id, entry in load(download / INNER, "gt_annotations_test").items():
        height, width = entry.pop("img_size")
        for finding, contours in entry.items():
            image = Image.new("1", (width, height))
            for contour in contours:
                ImageDraw.Draw(image).polygon([tuple(v) for v in contour], outline=1, fill=1)
            rle = coco.encode(np.asfortranarray(np.asarray(image), dtype=np.uint8))
            assert rle["counts"].decode() == masks[image_id][finding]["counts"]
            flat = [[c for v in contour for c in v] for contour in contours]
            other = coco.merge(coco.frPyObjects(flat, height, width))
            n_differ += other["counts"].decode() != masks[image_id][finding]["counts"]
    assert n_differ > 0


def test_empty_masks_are_no_annotation(download, everything):
    by_split, _ = everything
    masks = load(download / INNER, "gt_segmentations_test")
    assert all(len(entry) == 10 for entry in masks.values())
    strings = {rle["counts"] for entry in masks.values() for rle in entry.values() if rle_area(rle) == 0}
    assert len(strings) > 1  # the string of an empty mask depends on its size
    assert all(a.area_px > 0 for r in by_split["test"].values() for a in r.annotations)


def test_images_without_an_entry_have_no_finding(download, everything):
    by_split, _ = everything
    masks, rows = load(download / INNER, "gt_segmentations_test"), labels(download / INNER, "test")
    normal = [i for i, row in rows.items() if row["No Finding"] == "1.0" and i not in masks]
    assert normal
    for image_id in normal:
        record = by_split["test"][image_id]
        assert (record.labels, record.annotations, record.missing) == ([], (), ())


def test_a_positive_without_a_mask_is_missing_not_empty(download, everything):
    by_split, warnings = everything
    masks, n_missing = load(download / INNER, "gt_segmentations_test"), 0
    for image_id, row in labels(download / INNER, "test").items():
        present = {"Airspace Opacity" if f == "Lung Opacity" else f for f, v in row.items() if v == "1.0"}
        entry = masks.get(image_id, {})
        drawn = {finding for finding, rle in entry.items() if rle_area(rle) > 0}
        expected = (present & set(CHEXLOCALIZE_FINDINGS)) - drawn
        assert set(by_split["test"][image_id].missing) == expected
        n_missing += len(expected)
    assert n_missing >= 3  # one finding of one image, all (two or more) of another
    assert f"split 'test': {n_missing} findings labelled present, without a mask (kept as `missing`)" in warnings


def test_a_mask_of_an_absent_finding_is_kept_and_counted(everything):
    by_split, warnings = everything
    kept = [
        (r.image_id, a.finding)
        for r in by_split["test"].values()
        for a in r.annotations
        if a.reader == "ground_truth" and r.label_status[a.finding] != 1
    ]
    assert len(kept) == 1
    assert "split 'test': 1 finding with a mask, not labelled present (kept)" in warnings


def test_readers_without_segmentation_keep_their_contours(download, everything):
    by_split, warnings = everything
    root = download / INNER
    polygons, masks = load(root, "hb_annotations_test"), load(root, "hb_segmentations_test")
    lacking = sorted(set(polygons) - set(masks))
    assert len(lacking) == 3
    assert any("3 images with a reader's contours but no segmentation" in warning for warning in warnings)
    for image_id in lacking:
        for finding, contours in polygons[image_id].items():
            if finding == "img_size":
                continue
            annotation = by_split["test"][image_id].reference(finding, "human_benchmark")
            xs, ys = ([int(v[k]) for c in contours for v in c] for k in (0, 1))
            assert annotation.rle is None
            assert annotation.n_instances == len(contours)
            assert annotation.bbox_xywh == (min(xs), min(ys), max(xs) - min(xs) + 1, max(ys) - min(ys) + 1)


def test_an_image_without_any_reader(download, everything):
    by_split, _ = everything
    gt, hb = load(download / INNER, "gt_annotations_test"), load(download / INNER, "hb_annotations_test")
    (image_id,) = set(gt) - set(hb)
    record = by_split["test"][image_id]
    assert {a.reader for a in record.annotations} == {"ground_truth"}
    assert record.points == ()


def test_points_are_the_readers(download, everything):
    by_split, _ = everything
    points = load(download / INNER, "hb_salient_pt_test")
    for image_id, record in by_split["test"].items():
        expected = [[f, *xy] for f, clicks in points.get(image_id, {}).items() for xy in clicks]
        assert [[p.finding, p.x, p.y] for p in record.points] == expected
        assert {p.reader for p in record.points} <= {"human_benchmark"}


def test_pictures_are_the_files_bytes(download, everything):
    by_split, _ = everything
    for image_id, record in by_split["test"].items():
        patient, study, name = image_id.split("_", 2)
        path = download / INNER / "CheXpert" / "test" / patient / study / f"{name}.jpg"
        with Image.open(path) as image:
            assert (record.width, record.height) == image.size
        assert record.picture.path == path
        assert record.picture.name == f"{image_id}.jpg"
        assert record.picture.source_path == f"CheXpert/test/{patient}/{study}/{name}.jpg"
        assert (record.image, record.source_sha256) == (None, None)  # the folder writer reads pictures
        assert (record.patient_id, record.study_id) == (patient, f"{patient}_{study}")


def test_partial_downloads_are_passed_over_and_pickles_never_opened(download, copy):
    (pickled,) = copy.rglob("*.pkl")
    pickled.unlink()
    pickled.mkdir()  # opening a folder fails on every system
    inspection = chexlocalize.inspect(copy)
    aside = [text for text in inspection.warnings if text.startswith("set aside: ")]
    assert sum(text.endswith(" and 2 more files: interrupted download") for text in aside) == 1
    assert (
        sum(text.endswith(".pkl: pickled heat map, never opened because a pickle can run code") for text in aside) == 1
    )
    assert inspection.problems == []
    assert [r.image_id for r in chexlocalize.read(copy).splits["test"]]


def test_inspection_counts(download):
    inspection = chexlocalize.inspect(download)
    root = download / INNER
    assert inspection.synthetic
    assert inspection.counts["test images"] == 24
    assert inspection.counts["test pictures"] == 24
    assert inspection.counts["validation images"] == 6
    assert inspection.counts["test images with masks"] == len(load(root, "gt_segmentations_test"))
    assert inspection.files["gt_annotations_val"] == f"{INNER}/CheXlocalize/gt_annotations_val.json"
    assert not [warning for warning in inspection.warnings if "published" in warning]


def test_a_whole_build_is_valid_and_says_synthetic(download, tmp_path):
    source_data = chexlocalize.read(download)
    public, private = tmp_path / "public", tmp_path / "private"
    build_folder(source_data.splits, public, BENCHMARKS["chexlocalize"], holdout=private, synthetic=True)
    # loaded they are in test_box_sources
    assert validate_folder(public, holdout=private, load=False) == []
    assert validate_folder(private, load=False) == []
    card = (public / "README.md").read_text()
    assert "**SYNTHETIC.**" in card
    assert "contains the heart" in card


def test_folder_without_a_download_is_refused(tmp_path):
    for function in (chexlocalize.inspect, chexlocalize.read):
        with pytest.raises(ValueError, match="`root` must contain CheXlocalize/gt_segmentations"):
            function(tmp_path)


def test_a_build_embeds_the_files_bytes(download, tmp_path):
    build_folder(chexlocalize.read(download).splits, tmp_path / "out", BENCHMARKS["chexlocalize"], synthetic=True)
    rows = pq.read_table(tmp_path / "out" / "localization", columns=["image_id", "image"]).to_pylist()
    assert len(rows) == 30
    for row in rows:
        patient, study, name = row["image_id"].split("_", 2)
        (path,) = (download / INNER / "CheXpert").glob(f"*/{patient}/{study}/{name}.jpg")
        assert row["image"]["bytes"] == path.read_bytes()
    masks = pq.read_table(tmp_path / "out" / "masks", columns=["image_id"]).num_rows
    by_file = [load(download / INNER, f"gt_segmentations_{short}") for short in ("val", "test")]
    assert masks == sum(rle_area(rle) > 0 for file in by_file for entry in file.values() for rle in entry.values())


def test_withheld_pixels_leave_hashes_only(download, tmp_path):
    source_data = chexlocalize.read(download, pixels="withhold")
    build_folder(source_data.splits, tmp_path / "out", BENCHMARKS["chexlocalize"], pixels="withhold", synthetic=True)
    for record in read_localization(tmp_path / "out", "test"):
        (path,) = (download / INNER / "CheXpert" / "test").glob("/".join(record.image_id.split("_", 2)) + ".jpg")
        assert record.source_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert record.pixel_pipeline == "withheld"


def test_records_can_be_iterated_again_and_sent_to_other_processes(download):
    source_data = chexlocalize.read(download)
    assert len(source_data.splits["test"]) == 24
    first, second = list(source_data.splits["test"]), list(source_data.splits["test"])
    assert first == second
    assert pickle.loads(pickle.dumps(first[0])) == first[0]


def test_contours_that_do_not_fill_to_their_mask_are_counted(copy):
    def shift(content):
        entry = next(iter(content.values()))
        finding = next(name for name in entry if name != "img_size")
        entry[finding][0] = [[x / 2, y] for x, y in entry[finding][0]]

    change(copy, "gt_annotations_val", shift)
    source_data = chexlocalize.read(copy)
    for _ in range(2):  # told once
        list(source_data.splits["validation"])
    warnings = [warning for warning in source_data.warnings if "when filled" in warning]
    compared = sum(len(entry) - 1 for entry in load(copy, "gt_annotations_val").values())
    assert len(warnings) == 1
    assert warnings[0].startswith(f"split 'validation': 1 of {compared} ground-truth contours differ")


def test_uncertain_labels_stay_and_blank_ones_are_unlabelled(copy):
    path = copy / "CheXpert" / "test_labels.csv"
    path.write_text(path.read_text().replace(",0.0", ",-1.0", 6).replace(",0.0", ",", 6))
    source_data = chexlocalize.read(copy)
    n_before = Counter(v for row in labels(copy, "test").values() for k, v in row.items() if k != "Path")
    assert (n_before["-1.0"], n_before[""]) == (6, 6)
    findings = {"Lung Opacity" if f == "Airspace Opacity" else f for f in BENCHMARKS["chexlocalize"].findings}
    in_findings = Counter(v for row in labels(copy, "test").values() for k, v in row.items() if k in findings)
    assert in_findings["-1.0"] > 0
    n = f"{in_findings['-1.0']} uncertain label" + ("s" if in_findings["-1.0"] > 1 else "")
    assert f"test_labels.csv: {n} (-1); an uncertain finding does not count as present" in source_data.warnings
    records = list(source_data.splits["test"])
    statuses = Counter(status for record in records for status in record.label_status.values())
    assert (statuses[-1], statuses[None]) == (in_findings["-1.0"], in_findings[""])
    for record in records:
        uncertain = {finding for finding, status in record.label_status.items() if status == -1}
        assert not uncertain & {*record.labels, *record.missing}
        drawn = {a.finding for a in record.annotations if a.reader == "ground_truth"}
        assert uncertain & {*record.asked("present")} == uncertain & drawn  # as with 0: a mask is a reference


def test_files_of_one_split_are_enough(copy):
    for path in [copy / "CheXpert" / "val_labels.csv", *copy.glob("CheXlocalize/*_val.json")]:
        path.unlink()
    source_data = chexlocalize.read(copy)
    assert list(source_data.splits) == ["test"]
    assert source_data.warnings[0].startswith("split 'validation' is missing")
