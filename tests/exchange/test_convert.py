"""The command on dataset folders: references out, pictures beside them, a reader's annotations in, and scored."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import app
from reveal_bench.evaluation.score import LintError
from reveal_bench.exchange import FORMS
from reveal_bench.exchange.transfer import from_form, to_form
from reveal_bench.kinds import KINDS
from reveal_bench.masks import decode_mask, encode_mask
from reveal_bench.predictions.limits import LintOptions
from tests.conftest import World


@pytest.mark.parametrize("form", [name for name in FORMS if name != "dicom-sr"])
def test_references_that_travel_score_as_themselves(form: str, built: Callable[[str], Path], tmp_path: Path) -> None:
    folder = built("chexlocalize")
    done = to_form(form, folder, "released", tmp_path / "out")
    assert done.n_pictures == done.n_images > 0
    pictures = [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".png", ".jpg", ".dcm")]
    assert len([path for path in pictures if path.parent.name in ("images", "data")]) == done.n_images
    back = from_form(form, tmp_path / "out", folder, "released", tmp_path / "back.jsonl", reader="ground_truth")
    assert back.readers == ("ground_truth",)
    kind = KINDS["localization"]
    manifest, records = kind.questions.read_manifest(folder, "released"), kind.data.read_records(folder, "released")
    report = kind.predictions.lint(tmp_path / "back.jsonl", manifest, LintOptions(allow_missing=True))
    assert report.ok, report.render()
    expected = {(one.image_id, one.finding): one.mask for one in report.predictions}
    drawn = {
        (record.image_id, one.finding): one.rle
        for record in records
        for one in record.annotations
        if one.reader == "ground_truth" and one.area_px
    }
    assert drawn.items() <= expected.items()


def test_labels_of_studies_that_travel(built: Callable[[str], Path], tmp_path: Path) -> None:
    folder = built("reveal-cxr")
    kind = KINDS["findings"]
    for form in ("cvat", "label-studio", "fiftyone", "dicom-sr"):
        to_form(form, folder, "released", tmp_path / form, with_pictures=False)
        from_form(form, tmp_path / form, folder, "released", tmp_path / f"{form}.jsonl")
        report = kind.predictions.lint(tmp_path / f"{form}.jsonl", kind.questions.read_manifest(folder, "released"))
        assert report.ok, report.render()
        expected = {one.study_id: set(one.labels) for one in report.predictions}
        assert expected == {
            record.study_id: set(record.labels) for record in kind.data.read_records(folder, "released")
        }


def test_references_as_tables(built: Callable[[str], Path], tmp_path: Path) -> None:
    folder = built("reveal-cxr")
    to_form("table", folder, "released", tmp_path / "labels", with_pictures=False)
    with (tmp_path / "labels" / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    records = KINDS["findings"].data.read_records(folder, "released")
    labels_by_study = {row["study_id"]: {name for name, cell in row.items() if cell == "1"} for row in rows}
    assert labels_by_study == {record.study_id: set(record.labels) for record in records}
    folder = built("chexlocalize")
    lost = to_form("table", folder, "released", tmp_path / "boxes", with_pictures=False).lost
    assert "masks and contours, of which only the boxes are exported" in lost
    with (tmp_path / "boxes" / "boxes.csv").open(encoding="utf-8", newline="") as file:
        boxes = [row for row in csv.DictReader(file) if row["reader"] == "ground_truth"]
    drawn = {
        (record.image_id, one.finding): one.rle
        for record in KINDS["localization"].data.read_records(folder, "released")
        for one in record.annotations
        if one.reader == "ground_truth" and one.area_px
    }
    assert {(row["image_id"], row["finding"]) for row in boxes} >= set(drawn)
    row = boxes[0]
    ys, xs = np.nonzero(decode_mask(drawn[row["image_id"], row["finding"]]))
    x, y, width, height = (float(row[name]) for name in ("x", "y", "width", "height"))
    assert (x <= xs.min(), y <= ys.min(), x + width <= xs.max() + 1, y + height <= ys.max() + 1) == (True,) * 4


def test_predictions_for_a_holdout_travel_without_its_references(world: World, tmp_path: Path) -> None:
    kind = KINDS["localization"]
    manifest = kind.questions.read_manifest(world.folder, "holdout")
    lines = [
        json.dumps({"image_id": image_id, "finding": finding, "cell": "C4", "score": 0.5})
        for image_id, finding in manifest.asked_pairs()
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ArgumentError, match="must have public references, or `predictions` must be given"):
        to_form("coco", world.folder, "holdout", tmp_path / "out")
    to_form("coco", world.folder, "holdout", tmp_path / "out", predictions=tmp_path / "p.jsonl")
    from_form("coco", tmp_path / "out", world.folder, "holdout", tmp_path / "back.jsonl")
    assert (tmp_path / "back.jsonl").read_text() == (tmp_path / "p.jsonl").read_text()


RETURNS = {"table": "boxes.csv", "coco": "annotations.json results.json", "cvat": "annotations.xml",
           "label-studio": "tasks.json", "fiftyone": "samples.json", "dicom-seg": "", "dicom-sr": ""}  # fmt: skip
"""Format -> the files of an export that ``convert --from`` reads by themselves; every export is read as a folder."""


@pytest.mark.parametrize("form", RETURNS)
def test_predictions_return_from_every_format(form: str, world: World, tmp_path: Path) -> None:
    """What ``--to`` writes, ``--from`` reads: the folder, and each of its files, with boxes (or masks) and scores."""
    manifest = KINDS["localization"].questions.read_manifest(world.folder, "released")
    lines = []
    for n, (image_id, finding) in enumerate(manifest.asked_pairs()):
        size = manifest.rows[image_id].height, manifest.rows[image_id].width
        drawn = np.zeros(size, bool)
        drawn[3:9, 4:14] = True
        rle = {"size": list(size), "counts": encode_mask(drawn).counts}
        region = {"rle": rle} if form == "dicom-seg" else {"box": [4.0, 3.0, 10.0, 6.0]}
        lines.append({"image_id": image_id, "finding": finding, **region, "score": (1 + n % 8) / 10})
    run = tmp_path / "run"
    run.mkdir()
    (run / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["convert", str(world.folder), "--split", "released", "--no-pictures", "--predictions"]
    written = CliRunner().invoke(app, [*words, str(run), "--to", form, "--out", str(tmp_path / "out")])
    assert written.exit_code == 0, written
    for name in ["", *RETURNS[form].split()]:
        out = tmp_path / f"back-{name}"
        words = ["convert", str(world.folder), "--split", "released", "--from", form]
        read = CliRunner().invoke(app, [*words, "--file", str(tmp_path / "out" / name), "--out", str(out)])
        assert read.exit_code == 0, (name, read, read.exception)
        back = out / "boxes.jsonl" if out.is_dir() else out  # a folder of tables becomes a folder
        returned = [json.loads(line) for line in back.read_text().splitlines()]
        for line in returned:
            line["box"] = line.get("box") and [float(side) for side in line["box"]]
        kept = {"image_id", "finding", "box", "score"} if form != "dicom-seg" else {"image_id", "finding", "rle"}
        assert sorted(repr({key: one[key] for key in sorted(kept)}) for one in returned) == sorted(
            repr({key: one[key] for key in sorted(kept)}) for one in lines
        ), name


def test_several_boxes_of_one_finding_become_one_prediction_and_that_is_said(world: World, tmp_path: Path) -> None:
    manifest = KINDS["localization"].questions.read_manifest(world.folder, "released")
    image_id, finding = manifest.asked_pairs()[0]
    boxes = [
        {"image_id": 1, "category_id": 1, "bbox": [x, 1, 5, 5], "score": score} for x, score in ((1, 0.2), (9, 0.9))
    ]
    document = {"images": [{"id": 1, "file_name": f"{image_id}.png"}], "categories": [{"id": 1, "name": finding}]}
    (tmp_path / "a.json").write_text(json.dumps({**document, "annotations": boxes}))
    done = from_form("coco", tmp_path / "a.json", world.folder, "released", tmp_path / "p.jsonl")
    message = (
        "1 finding with several boxes on one image: a prediction has one box, so the one with the best score was kept"
    )
    assert done.lost == (message,)
    assert json.loads((tmp_path / "p.jsonl").read_text())["box"] == [9, 1, 5, 5]


def test_what_cannot_be_converted_is_refused_before_anything_is_written(
    world: World, built: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(ArgumentError, match="must be a benchmark of localization or findings, got one of tasks"):
        to_form("cvat", built("rexecution"), "released", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ArgumentError, match="must be a new or empty folder"):
        to_form("coco", world.folder, "released", tmp_path / "full")
    (tmp_path / "p.jsonl").write_text('{"image_id": "nobody", "finding": "Edema", "cell": "A1"}\n')
    with pytest.raises(LintError, match=r"p\.jsonl was not scored"):
        to_form("coco", world.folder, "released", tmp_path / "out", predictions=tmp_path / "p.jsonl")
    to_form("coco", world.folder, "released", tmp_path / "out")
    with pytest.raises(ArgumentError, match="must be one of the readers: ground_truth, got me"):
        from_form("coco", tmp_path / "out", world.folder, "released", tmp_path / "q.jsonl", reader="me")
    assert not (tmp_path / "q.jsonl").exists()


def test_a_reader_is_named_as_in_the_dataset(world: World, tmp_path: Path) -> None:
    to_form("coco", world.folder, "released", tmp_path / "out", with_pictures=False)
    [file] = (tmp_path / "out").rglob("*.json")
    file.write_text(file.read_text().replace('"ground_truth"', '"individual:R2"'))
    done = from_form("coco", file, world.folder, "released", tmp_path / "q.jsonl", reader="R2")
    assert done.readers == ("individual:R2",)


def test_references_of_one_reader_are_what_cocoeval_takes_for_the_truth(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    from pycocotools import coco, cocoeval

    folder, out = str(built("chexlocalize")), tmp_path / "out"
    words = ["convert", folder, "--to", "coco", "--reader", "ground_truth", "--out", str(out), "--no-pictures"]
    assert CliRunner().invoke(app, words).stdout.endswith("by ground_truth\n")
    truth = coco.COCO(out / "annotations.json")
    kept = ("image_id", "category_id", "segmentation")
    results = truth.loadRes([{name: one[name] for name in kept} | {"score": 0.5} for one in truth.anns.values()])
    judged = cocoeval.COCOeval(truth, results, "segm")
    judged.evaluate()
    judged.accumulate()
    judged.summarize()
    assert judged.stats[0] == 1
    with pytest.raises(ArgumentError, match="`reader` must be one of the readers: ground_truth, human_benchmark"):
        to_form("coco", Path(folder), "released", tmp_path / "new", reader="me")


def test_the_command_says_what_it_wrote_and_what_it_lost(built: Callable[[str], Path], tmp_path: Path) -> None:
    folder, out = str(built("chexlocalize")), str(tmp_path / "out")
    done = CliRunner().invoke(app, ["convert", folder, "--to", "cvat", "--out", out, "--no-pictures"])
    assert done.exit_code == 0, done.output
    assert "0 pictures" in done.stdout
    assert "by ground_truth, human_benchmark" in done.stdout
    assert "not kept: contours of" in done.stderr
    refused = CliRunner().invoke(app, ["convert", folder, "--out", out])
    assert isinstance(refused.exception, ArgumentError)
    assert "must be given, or `form`, and not both" in str(refused.exception)
