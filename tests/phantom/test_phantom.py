"""The synthetic world: deterministic, exact where stated, and of the requested quality."""

import csv
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import Annotation, ImageManifest, LocalizationRecord, ManifestRow
from reveal_bench.masks import decode_mask, encode_mask
from reveal_bench.phantom import LAYOUTS, model_predictions, write_chexlocalize
from reveal_bench.phantom.patients import N_NORMAL, N_TEST, PREVALENCE, draw_film, films
from reveal_bench.phantom.radiograph import render
from reveal_bench.phantom.readers import MASK_IOU, POINT_HIT
from tests.cli.test_score import call
from tests.conftest import files_of


def test_same_seed_same_bytes(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_chexlocalize(tmp_path / name, n_images=4, n_val=2, seed=seed, long_side=160)
    a, b, c = (files_of(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c


def test_an_image_does_not_depend_on_how_many_are_made(tmp_path):
    for name, n in (("few", 5), ("many", 9)):
        write_chexlocalize(tmp_path / name, n_images=n, n_val=None, seed=1, long_side=160, traps=False)
    few, many = files_of(tmp_path / "few"), files_of(tmp_path / "many")
    pictures = [name for name in few if name.endswith(".jpg")]
    assert len(pictures) == 5
    assert all(few[name] == many[name] for name in pictures)
    short, long = (json.loads(f["CheXlocalize/gt_segmentations_test.json"]) for f in (few, many))
    assert short.items() <= long.items()


def test_layout_is_that_of_the_download(tmp_path):
    counts = write_chexlocalize(tmp_path, n_images=6, n_val=3, seed=0, long_side=128, traps=False)
    names = set(files_of(tmp_path))
    assert counts["test films"] == 6
    assert {name for name in names if not name.endswith(".jpg")} == {
        "SYNTHETIC.txt",
        "CheXpert/val_labels.csv",
        "CheXpert/test_labels.csv",
        *(f"CheXlocalize/gt_{name}_val.json" for name in ("annotations", "segmentations")),
        *(f"CheXlocalize/gt_{name}_test.json" for name in ("annotations", "segmentations")),
        *(f"CheXlocalize/hb_{name}_test.json" for name in ("annotations", "segmentations", "salient_pt")),
        "CheXlocalize/gradcam_segmentations_val.json",
    }  # fmt: skip
    assert "CheXpert/test/patient64741/study1/view1_frontal.jpg" in names
    assert "CheXpert/val/patient64541/study1/view1_frontal.jpg" in names
    with (tmp_path / "CheXpert" / "val_labels.csv").open() as file:
        row = next(csv.DictReader(file))
    assert row["Path"].startswith("CheXpert-v1.0/valid/patient64541/")
    assert list(row)[1:5] == ["Sex", "Age", "Frontal/Lateral", "AP/PA"]


def test_pictures_have_the_size_of_their_masks(tmp_path):
    write_chexlocalize(tmp_path, n_images=8, n_val=None, seed=4, long_side=200, traps=False)
    for image_id, entry in json.loads((tmp_path / "CheXlocalize/gt_annotations_test.json").read_text()).items():
        patient, study, name = image_id.split("_", 2)
        with Image.open(tmp_path / "CheXpert" / "test" / patient / study / f"{name}.jpg") as image:
            assert [image.height, image.width] == entry["img_size"]
            assert max(image.size) == 200


def test_without_pixels_everything_else_is_the_same(tmp_path):
    for name, pixels in (("with", True), ("without", False)):
        write_chexlocalize(tmp_path / name, n_images=5, n_val=None, seed=1, long_side=160, traps=False, pixels=pixels)
    with_pixels, without = files_of(tmp_path / "with"), files_of(tmp_path / "without")
    assert without == {name: content for name, content in with_pixels.items() if not name.endswith(".jpg")}


def test_progress_counts_to_the_end(tmp_path):
    seen = []
    write_chexlocalize(
        tmp_path, n_images=3, n_val=2, long_side=64, pixels=False, progress=lambda n, m: seen.append((n, m))
    )
    assert seen == [(i, 5) for i in range(1, 6)]


@pytest.mark.parametrize(
    ("change", "got"), [({"n_images": 0}, "be at least 1, got 0"), ({"long_side": 9}, "be in .64, 8192., got 9")]
)
def test_bad_arguments(tmp_path, change, got):
    with pytest.raises(ValueError, match=f"must {got}"):
        write_chexlocalize(tmp_path / "new", **{"n_images": 5, "n_val": None, "long_side": 128, **change})


def test_a_full_folder_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="`out` must be a new or empty folder"):
        write_chexlocalize(tmp_path, n_images=1)


def test_prevalence_is_the_papers():
    """4,000 films: each count within 4 standard deviations, for patients with 1.34 films each, of the paper's share."""
    made = list(islice(films("test", seed=0), 4000))
    for finding, n in PREVALENCE.items():
        share = n / N_TEST
        n_images = sum(finding in film.study.findings for film in made) / 4000
        assert abs(n_images - share) < 4 * (share * (1 - share) * 1.6 / 4000) ** 0.5, finding
    assert abs(sum(not film.study.findings for film in made) / 4000 - N_NORMAL / N_TEST) < 0.04
    assert 0.11 < sum(film.view == "LATERAL" for film in made) / 4000 < 0.15
    assert 1.29 < 4000 / len({film.study.patient for film in made}) < 1.39  # 668 / 500 = 1.336


def test_hierarchy_of_findings():
    for film in islice(films("test", seed=1), 500):
        findings = film.study.findings
        assert "Cardiomegaly" not in findings or "Enlarged Cardiomediastinum" in findings
        assert not findings & {"Edema", "Consolidation", "Atelectasis", "Lung Lesion"} or "Airspace Opacity" in findings


def test_no_patient_is_in_both_splits():
    val = {film.study.patient for film in islice(films("val", seed=0), 400)}
    test = {film.study.patient for film in islice(films("test", seed=0), 1500)}
    assert not val & test


@pytest.fixture(scope="module")
def drawings(tmp_path_factory):
    """Drawings of 150 films, of the ground truth and of the reader; contents of the JSON files."""
    out = tmp_path_factory.mktemp("drawings")
    write_chexlocalize(out, n_images=150, n_val=None, seed=6, long_side=200, traps=False, pixels=False)
    return [
        json.loads((out / f"CheXlocalize/{name}_test.json").read_text())
        for name in ("gt_segmentations", "hb_segmentations", "hb_salient_pt")
    ]


def test_the_cardiomediastinum_contains_the_heart(drawings):
    from pycocotools import mask as coco

    n = 0
    for entry in drawings[0].values():
        heart, whole = coco.decode(entry["Cardiomegaly"]), coco.decode(entry["Enlarged Cardiomediastinum"])
        if heart.any():
            assert not (heart & ~whole & 1).any()
            n += 1
    assert n >= 30


def test_findings_are_in_the_pixels():
    """Where an opacity or effusion was drawn, the film is brighter than the same film without it."""
    n = 0
    for film in islice(films("test", seed=5), 60):
        if not film.study.findings & {"Consolidation", "Pleural Effusion"} or "Support Devices" in film.study.findings:
            continue
        anatomy, drawn = draw_film(film)
        size = round(film.size[0] * 200), round(film.size[1] * 200)
        with_it, without = render(anatomy, drawn.shapes, film.rng(1), size), render(anatomy, [], film.rng(1), size)
        for finding in ("Consolidation", "Pleural Effusion"):
            for contour in drawn.contours.get(finding, ()):
                inside = decode_mask(_filled(contour * 200, size))
                assert with_it[inside].mean() > without[inside].mean() + 4, finding
                n += 1
    assert n >= 3


def _filled(contour, size):
    from reveal_bench.masks import rasterize_polygons

    return rasterize_polygons([contour.tolist()], size)


def test_readers_agree_as_much_as_the_papers(drawings):
    """Mean over findings with 20 or more images, within 0.12 of the human benchmark of paper 002."""
    from pycocotools import mask as coco

    (gt, hb, points), n_checked = drawings, 0
    for finding in MASK_IOU:
        pairs = [(hb[i][finding], gt[i][finding], points[i].get(finding)) for i in gt if coco.area(gt[i][finding]) > 0]
        if len(pairs) < 20:
            continue
        iou = np.mean([coco.iou([reader], [truth], [0])[0, 0] for reader, truth, _ in pairs])
        hits = np.mean([any(coco.decode(truth)[int(y), int(x)] for x, y in xy) for _, truth, xy in pairs])
        assert abs(iou - MASK_IOU[finding]) < 0.2, finding
        assert abs(hits - POINT_HIT[finding]) < 0.15, finding
        n_checked += 1
    assert n_checked >= 5


@pytest.fixture(scope="module")
def world():
    """400 images of 80 x 100 with one square of 10 x 10 pixels: a fraction 1/80 of the picture, 1/64 of its middle."""
    records, rows = [], {}
    rng = np.random.default_rng(0)
    for i in range(400):
        x, y = int(rng.integers(12, 78)), int(rng.integers(0, 70))
        mask = np.zeros((80, 100), bool)
        mask[y : y + 10, x : x + 10] = True
        polygon = ((float(x), float(y)), (x + 9.0, float(y)), (x + 9.0, y + 9.0), (float(x), y + 9.0))
        annotation = Annotation("Edema", "ground_truth", encode_mask(mask), (polygon,), (x, y, 10, 10), 1, 100)
        name = f"i{i}"
        records.append(LocalizationRecord(name, name, name, "AP", 100, 80, {"Edema": 1}, (annotation,)))
        rows[name] = ManifestRow(name, name, "AP", 100, 80, ("Edema",))
    return records, ImageManifest("chexlocalize", "1.0.0", "test", 8, ("Edema",), rows)


def few(world, n):
    """The first `n` images of the world."""
    records, manifest = world
    return records[:n], replace(manifest, rows=dict(islice(manifest.rows.items(), n)))


def hit_rate(records, predictions):
    masks = {record.image_id: decode_mask(record.annotations[0].rle) for record in records}
    return np.mean([masks[p.image_id][int(p.points[0][1]), int(p.points[0][0])] for p in predictions])


def test_quality_goes_from_chance_to_near_a_reader(world):
    records, manifest = world
    rates = [hit_rate(records, model_predictions(records, manifest, quality=q, kind="point")) for q in (0, 0.5, 1)]
    # a blind guess hits 1 in 64; an informed answer always; 2% of those are wrong anyway: 0.9 * 0.98 = 0.882
    assert rates[0] < 0.05
    assert abs(rates[1] - 0.441) < 0.08
    assert abs(rates[2] - 0.882) < 0.06


def test_predictions_are_complete_valid_and_repeatable(world):
    records, manifest = few(world, 60)
    predictions = model_predictions(records, manifest, quality=0.7, kind="all", seed=3)
    assert [(p.image_id, p.finding) for p in predictions] == manifest.asked_pairs()
    assert predictions == model_predictions(records, manifest, quality=0.7, kind="all", seed=3)
    assert predictions != model_predictions(records, manifest, quality=0.7, kind="all", seed=4)
    grid = Grid(8)
    for p in predictions:
        ((x, y),) = p.points
        assert 0 <= x < 100
        assert 0 <= y < 80
        grid.parse(p.cell)
        assert p.mask.size == (80, 100)
        assert 0 < p.score < 1
        ys, xs = np.nonzero(decode_mask(p.mask))
        assert p.box == (xs.min(), ys.min(), np.ptp(xs) + 1, np.ptp(ys) + 1)


def test_masks_get_better_with_quality(world):
    records, manifest = few(world, 150)
    truth = {record.image_id: record.annotations[0].rle for record in records}

    def mean_iou(quality):
        predictions = model_predictions(records, manifest, quality=quality, kind="mask")
        pairs = [(decode_mask(p.mask), decode_mask(truth[p.image_id])) for p in predictions]
        return np.mean([(a & b).sum() / (a | b).sum() for a, b in pairs])

    ious = [mean_iou(quality) for quality in (0, 0.5, 1)]
    assert ious[0] < 0.05 < ious[1] < ious[2]
    assert 0.35 < ious[2] < 0.8


def test_kinds_and_missing_answers(world):
    records, manifest = world
    cell = model_predictions(records, manifest, quality=0.5, kind="cell")
    assert all(p.cell and not p.points and p.mask is None and p.box is None for p in cell)
    some = model_predictions(records, manifest, quality=0.5, missing_rate=0.25)
    assert abs(len(some) - 300) < 40


def test_model_arguments(world):
    records, manifest = world
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], got 2 and 0.0"):
        model_predictions(records, manifest, quality=2)
    with pytest.raises(ValueError, match="`kind` must be 'cell', 'point', 'mask' or 'all', got 'box'"):
        model_predictions(records, manifest, quality=0.5, kind="box")
    with pytest.raises(ValueError, match="`records` must have every image of the manifest, 'i399' is missing"):
        model_predictions(records[:-1], manifest, quality=0.5)


def test_phantom_without_pydicom_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(out: Path, *_: object, **__: object) -> None:
        out.mkdir()
        (out / "begun.txt").touch()
        raise ImportError("DICOM files need pydicom")

    monkeypatch.setitem(LAYOUTS, "rsna-pneumonia", write)
    call("phantom", tmp_path / "raw", "--style", "rsna-pneumonia", expect=1)
    assert not (tmp_path / "raw").exists()
    (tmp_path / "own").mkdir()
    monkeypatch.setitem(LAYOUTS, "rsna-pneumonia", lambda out, *_, **__: write(out / "part"))
    call("phantom", tmp_path / "own", "--style", "rsna-pneumonia", expect=1)
    assert (tmp_path / "own" / "part").exists()
