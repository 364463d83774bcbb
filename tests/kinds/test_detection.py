"""Detection from a download to a board: built, loaded, linted, scored, compared, converted, uploaded, ranked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.worker.worker import Worker, open_holdouts

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.compare import compare
from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.detection.records import instance_masks, instances, is_known
from reveal_bench.kinds.detection.scoring import DetectionRows, score_detections
from reveal_bench.kinds.localization.records import Annotation, LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.scored import Band, Curves, SizeStratum
from reveal_bench.masks import encode_mask
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.detection_matching import CENTRE
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.predictions.limits import Limits
from reveal_bench.reports.curves import detection_figures
from tests.cli.test_score import call
from tests.leaderboard.api_app import api_world
from tests.leaderboard.conftest import Board

KIND = KINDS["detection"]
FINDINGS = ("Effusion", "Nodule")
Box = tuple[float, float, float, float]


def download(n: int) -> Iterator[dict[str, Any]]:
    """Write ChestX-Det entries: up to four instances of three findings, drawn as rectangles."""
    rng = np.random.default_rng(7)
    for i in range(n):
        boxes = [[x, y, x + w, y + h] for x, y, w, h in rng.integers(60, 400, (rng.integers(0, 5), 4)).tolist()]
        polygons = [[[a, b], [c, b], [c, d], [a, d]] for a, b, c, d in boxes]
        names = rng.choice(["Effusion", "Nodule", "Mass"], len(boxes)).tolist()
        yield {"file_name": f"{i}.png", "syms": names, "boxes": boxes, "polygons": polygons}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a download, its public dataset folder and the private folder of its holdout."""
    root = tmp_path_factory.mktemp("detection")
    (root / "download").mkdir()
    (root / "download" / "ChestX_Det_test.json").write_text(json.dumps(list(download(300))))
    words = ("--task", "detection", "--images", "withhold", "--holdout", root / "private")
    call("build", root / "download", "--out", root / "public", *words)
    return root


def detections(folder: Path, split: str, *, share: float, seed: int = 0) -> list[dict[str, Any]]:
    """Return COCO results: a proportion of the lesions, each slightly off, and mostly lower-scored false alarms."""
    rng = np.random.default_rng(seed)
    lines: list[dict[str, Any]] = []
    for record in KIND.data.read_records(folder, split):
        for finding in record.label_status:
            for x, y, width, height in instances(record, finding):
                if rng.random() < share:
                    box = [x, y, max(1.0, 0.9 * width), max(1.0, 0.9 * height)]
                    lines.append({"image_id": record.image_id, "category_id": finding, "bbox": box,
                                  "score": round(0.5 + rng.random() / 2, 4)})  # fmt: skip
            if rng.random() < 0.1:
                lines.append({"image_id": record.image_id, "category_id": finding, "bbox": [5, 5, 60, 60],
                              "score": round(0.7 * rng.random(), 4)})  # fmt: skip
    return lines


@pytest.fixture(scope="module")
def files(root: Path) -> tuple[Path, Path]:
    for name, share in (("sharp", 0.9), ("fair", 0.4)):
        text = json.dumps(detections(root / "public", "released", share=share))
        (root / f"{name}.json").write_text(text)
    return root / "sharp.json", root / "fair.json"


def test_folder_asks_for_every_finding_and_loads(root: Path) -> None:
    assert "no problems" in call("validate", root / "public").stdout
    rows = datasets.load_dataset(str(root / "public"), "detection", split="released")
    manifest = KIND.questions.read_manifest(root / "public", "released")
    assert rows["image_id"] == list(manifest.rows)
    assert {row.asked for row in manifest.rows.values()} == {manifest.findings}
    drawn = [one for row in rows["annotations"] for one in row]
    assert drawn
    assert all(len(one["boxes_xywh"]) == one["n_instances"] for one in drawn)
    card = (root / "public" / "README.md").read_text()
    assert "every finding is asked of every image, and a false alarm counts" in " ".join(card.split())
    assert "{{" not in card
    words = ("--images", "withhold", "--task", "findings")
    refused = call("build", root / "download", "--out", root / "never", *words, expect=1).stderr
    assert "--task must be localization or detection for ChestX-Det, got 'findings'" in refused


@pytest.mark.parametrize("style", ["nih-boxes", "ms-cxr", "vindr-cxr", "rsna-pneumonia", "siim-acr", "padchest-gr"])
def test_every_other_source_scores_its_own_boxes(style: str, twin_of: Callable[[str], Path], tmp_path: Path) -> None:
    """Its phantom builds, is valid, and its own boxes as predictions are all hits."""
    words = ("--task", "detection", "--images", "withhold", "--keep-going")
    call("build", twin_of(style), "--out", tmp_path / "data", *words)
    assert "no problems" in call("validate", tmp_path / "data", "--no-load").stdout
    splits = json.loads((tmp_path / "data" / "manifest" / "benchmark.json").read_text())["splits"]
    read = [KIND.data.read_records(tmp_path / "data", split) for split in splits]
    records = next(some for some in read if any(a.reader == "ground_truth" for one in some for a in one.annotations))
    own = [LocalizationPrediction(record.image_id, finding, box=box, score=0.9) for record in records
           for finding in record.label_status for box in instances(record, finding)]  # fmt: skip
    assert own
    assert all(record.label_status[finding] == 1 for record in records for finding in record.label_status
               if instances(record, finding))  # fmt: skip
    rows = score_detections(own, records, findings=tuple(records[0].label_status))
    figures = rows.estimates(Resampling(5, unit="image", interval="percentile"))
    assert {
        e.value for e in figures if (e.metric, e.finding) in (("ap_50", "macro"), ("lesion_sensitivity", "macro"))
    } == {1}
    assert {e.value for e in figures if e.metric == "false_alarms" and e.n} == {0}


def test_two_systems_are_scored_compared_and_ranked(root: Path, files: tuple[Path, Path]) -> None:
    folder, words = root / "public", ("--split", "released", "--resamples", 100)
    document = json.loads(call("score", files[0], folder, *words, "--json").stdout)
    figures = {(one["metric"], one["finding"]): one["value"] for one in document["estimates"]}
    assert document["protocol"]["interval"] == "shifted"
    assert document["protocol"]["thresholds"] == 0.5
    assert 0.6 < figures["ap_50", "macro"] <= 1
    assert 0.8 < figures["lesion_sensitivity", "macro"] <= 1
    table = call("score", files[0], folder, *words).stdout
    assert "false alarms of each finding per image, everything else in percent, with 95% intervals (shifted)" in table
    assert re.search("finding +n +AP 50 +CPM", table)
    strata = json.loads(call("score", files[0], folder, *words, "--strata", "--json").stdout)["strata"]
    assert any(name.startswith("size: ") for name in strata)
    text = call("score", files[0], folder, *words, "--by", "view").stdout
    assert "AP 50 by view, with 95% intervals" in text
    compared = json.loads(call("compare", *files, folder, *words, "--json").stdout)["comparisons"]
    (macro,) = [one for one in compared if (one["metric"], one["finding"]) == ("cpm", "macro")]
    assert macro["value"] > 0.2
    assert macro["p"] < 0.05
    assert "95% interval (percentile) and two-sided p" in call("compare", *files, folder, *words).stdout
    ranking = rb.rank({"sharp": files[0], "fair": files[1]}, folder, split="released", n_resamples=100)
    assert [one["name"] for one in json.loads(ranking.to_json())] == ["sharp", "fair"]
    assert "95% intervals (shifted), 100 resamples" in ranking.caption
    (ap,) = [e for e in document["estimates"] if (e["metric"], e["finding"]) == ("ap_50", "macro")]
    assert (ranking.ranked[0].estimate.low, ranking.ranked[0].estimate.high) == pytest.approx((ap["low"], ap["high"]))
    confident = call("confidence", files[0], folder, "--split", "released").stdout
    assert "Brier" in confident


def test_columns_of_100_are_kept_and_wide_cuts_nothing(root: Path, tmp_path: Path) -> None:
    """For a perfect detector AP 50, CPM and most other metrics are 100%."""
    folder = root / "public"
    perfect = [{"image_id": record.image_id, "category_id": finding, "bbox": box, "score": 0.9}
               for record in KIND.data.read_records(folder, "released") for finding in record.label_status
               for box in instances(record, finding)]  # fmt: skip
    (tmp_path / "perfect.json").write_text(json.dumps(perfect))
    words = ("score", tmp_path / "perfect.json", folder, "--resamples", 20)
    assert re.search("finding +n +AP 50 +CPM", call(*words).stdout)
    wide = call(*words, "--wide").stdout
    assert wide.splitlines()[2].count("100.0") == 19  # all but false alarms
    assert all(METRICS[name].title in wide for name in ("cpm", "froc_8", "rsna_precision"))
    assert "…" not in wide


def test_scores_do_not_depend_on_the_file_format(root: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    """COCO results, our lines and a mapping in Python get the same scores."""
    folder = root / "public"
    entries = json.loads(files[0].read_text())
    report = rb.lint(files[0], folder, split="released")
    (tmp_path / "lines.jsonl").write_text(KIND.predictions.to_jsonl(report.predictions))
    mapping: dict[str, dict[str, list[Any]]] = {}
    for one in entries:
        own = mapping.setdefault(one["image_id"], {}).setdefault(one["category_id"], [])
        own.append((one["bbox"], one["score"]))
    whole = score_file(files[0], folder, "released", ScoringOptions(n_resamples=20))
    for other in (tmp_path / "lines.jsonl", mapping, pd.DataFrame(entries)):
        again = rb.score(other, folder, split="released", n_resamples=20)
        assert {e.metric: e.value for e in again.estimates if e.finding == "macro"} == pytest.approx(
            {e.metric: e.value for e in whole.estimates if e.finding == "macro"}
        )


def test_tables_of_other_programs_keep_every_box(root: Path, files: tuple[Path, Path]) -> None:
    """Corners and class names in other spellings: each box is a detection."""
    entries = json.loads(files[0].read_text())
    rows = [{"image": one["image_id"], "class": one["category_id"].upper(), "confidence": one["score"],
             "xmin": one["bbox"][0], "ymin": one["bbox"][1], "xmax": one["bbox"][0] + one["bbox"][2],
             "ymax": one["bbox"][1] + one["bbox"][3]} for one in entries]  # fmt: skip
    result = rb.convert(rows, root / "public", split="released", boxes="xyxy")
    assert len(result.lines) == len(entries)
    folder = root / "public"
    values = [
        [e.value for e in rb.score(inputs, folder, split="released", n_resamples=5).estimates if e.finding == "macro"]
        for inputs in (result.lines, files[0])
    ]
    assert values[0] == pytest.approx(values[1], nan_ok=True)


def test_tables_without_positions_are_refused(root: Path) -> None:
    folder = root / "public"
    manifest = KIND.questions.read_manifest(folder, "released")
    image, finding = next(iter(manifest.rows)), manifest.findings[0]
    box = {"image_id": image, "finding": finding, "XMin": 1, "YMin": 2, "XMax": 5, "YMax": 8, "score": 0.5}
    (line,) = rb.convert([box], folder, split="released").lines
    assert line == {"image_id": image, "finding": finding, "box": [1, 2, 4, 6], "score": 0.5}
    bare = {"image_id": image, "finding": finding, "score": 0.5}
    for rows, problem in (
        ([bare], "must have a position in each row.* got image_id, finding, score in row 1"),
        ([box, bare], "must have a position in each row.* in row 2"),
        ([{"image_id": image, "finding": finding, "probability": 0.5}], "must have a position in each row"),
        ([{"image_id": image, finding: 0.5}], r"must have a list of \(box, score\), .*, got 0.5"),
    ):
        with pytest.raises(ArgumentError, match=problem):
            rb.convert(rows, folder, split="released")


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"bbox": [1, 1, 9, 9]}, "missing-score"),
        ({"bbox": [1, 1, 9, 9], "score": 1.5}, "score-range"),
        ({"bbox": [1, 1, 9, 9], "score": float("nan")}, "not-finite"),
        ({"bbox": [1, 1, 0, 9], "score": 0.5}, "box-size"),
        ({"bbox": [1000, 1, 99, 9], "score": 0.5}, "outside-image"),
        ({"score": 0.5}, "missing-geometry"),
        ({"bbox": [1, 1, 9, 9], "score": 0.5, "category_id": "Broken heart"}, "unknown-finding"),
        ({"bbox": [1, 1, 9, 9], "score": 0.5, "image_id": "nobody"}, "unknown-image"),
    ],
)
def test_wrong_entry_is_named(root: Path, tmp_path: Path, fields: dict[str, Any], rule: str) -> None:
    manifest = KIND.questions.read_manifest(root / "public", "released")
    entry = {"image_id": next(iter(manifest.rows)), "category_id": manifest.findings[0], **fields}
    (tmp_path / "wrong.json").write_text(json.dumps([entry]))
    report = KIND.predictions.lint(tmp_path / "wrong.json", manifest)
    assert rule in [problem.rule for problem in report.problems if problem.severity == "error"]
    assert not report.predictions


def test_unusual_files_warn_and_crowds_are_refused(root: Path, tmp_path: Path) -> None:
    manifest = KIND.questions.read_manifest(root / "public", "released")
    image, finding = next(iter(manifest.rows)), manifest.findings[0]
    line = json.dumps({"image_id": image, "finding": finding, "box": [1, 1, 9, 9], "score": 0.5}) + "\n"
    (tmp_path / "same.jsonl").write_text(line * 100)
    report = KIND.predictions.lint(tmp_path / "same.jsonl", manifest)
    assert report.ok
    assert {problem.rule for problem in report.problems} == {"repeated-detection", "constant-score"}
    assert report.statistics["most_on_image"] == 100
    assert report.statistics["images_without"] == len(manifest.rows) - 1
    (tmp_path / "crowd.jsonl").write_text(line * 101)
    assert [
        p.rule for p in KIND.predictions.lint(tmp_path / "crowd.jsonl", manifest).problems if p.severity == "error"
    ] == ["crowd"]
    cell = json.dumps({"image_id": image, "finding": finding, "cell": "A1", "score": 0.5})
    (tmp_path / "cell.jsonl").write_text(cell)
    assert [problem.rule for problem in KIND.predictions.lint(tmp_path / "cell.jsonl", manifest).problems] == [
        "one-place"
    ]


def image(name: str, status: dict[str, int | None], *drawn: Annotation, missing: tuple[str, ...] = ()) -> Any:
    return LocalizationRecord(name, f"patient {name}", name, "PA", 100, 100, status, annotations=drawn, missing=missing)


def drawing(finding: str, *boxes: Box) -> Annotation:
    return Annotation(finding, "ground_truth", None, (), boxes[0], len(boxes), 100, boxes)


def test_unknown_findings_are_not_scored() -> None:
    """Image a: two effusion boxes; b: nodule present, no box; c: effusion uncertain; d: no finding."""
    both: dict[str, int | None] = {"Effusion": 0, "Nodule": 0}
    records = [
        image("a", both | {"Effusion": 1}, drawing("Effusion", (0, 0, 10, 10), (50, 50, 10, 10))),
        image("b", both | {"Nodule": 1}, missing=("Nodule",)),
        image("c", both | {"Effusion": -1}),
        image("d", both),
    ]
    assert [[is_known(record, finding) for finding in FINDINGS] for record in records] == [
        [True, True], [True, False], [False, True], [True, True],
    ]  # fmt: skip
    alarms = [LocalizationPrediction(name, f, box=(20, 20, 5, 5), score=0.9) for name in "abcd" for f in FINDINGS]
    hit = LocalizationPrediction("a", "Effusion", box=(0, 0, 10, 10), score=0.6)
    rows = score_detections([*alarms, hit], records, findings=FINDINGS)
    estimates = rows.estimates(Resampling(10, unit="image", interval="shifted"))
    assert np.isnan([e.low for e in estimates]).all()  # too few images for an interval
    figures = {(e.metric, e.finding): (e.value, e.n) for e in estimates}
    assert figures["false_alarms", "Effusion"] == (1, 3)
    assert figures["false_alarms", "Nodule"] == (1, 3)
    assert figures["lesion_sensitivity", "Effusion"] == (0.5, 2)
    assert figures["image_auroc", "Effusion"] == (0.5, 3)  # .9 on all of a, b and d
    assert np.isnan(figures["image_auroc", "Nodule"][0])  # b, which has it, is not scored
    assert figures["froc_05", "Effusion"] == (0, 2)
    assert figures["froc_1", "Effusion"] == (0.5, 2)
    assert np.isnan(figures["ap_50", "Nodule"][0])
    assert all(np.isnan([e.low, e.high]).all() for e in estimates)  # one image with a lesion, or three
    assert figures["ap_50", "Effusion"][0] == pytest.approx(51 / 101 / 4)  # precision 1/4 up to recall 1/2
    assert rows.to_table().column("hit_centre").null_count == 2
    none = score_detections([], records, findings=FINDINGS)
    assert {e.value for e in none.estimates(Resampling(5, unit="image", interval="percentile"))
            if (e.metric, e.finding) == ("ap_50", "macro")} == {0.0}  # fmt: skip


def test_masks_count_by_their_box_and_instances_by_their_contours() -> None:
    mask = np.zeros((100, 100), bool)
    mask[10:20, 30:50] = True
    drawn = Annotation("Effusion", "ground_truth", encode_mask(mask), (), (30, 10, 20, 10), 1, 200)
    record = image("a", {"Effusion": 1}, drawn)
    assert instances(record, "Effusion") == ((30, 10, 20, 10),)
    assert instance_masks(record, "Effusion") == (drawn.rle,)
    one = LocalizationPrediction("a", "Effusion", mask=drawn.rle, score=0.5)
    rows = score_detections([one, replace(one, mask=encode_mask(~mask))], [record], findings=("Effusion",))
    assert (rows.mark_hit[:CENTRE] >= 0).all(axis=0).tolist() == [True, False]
    resampling = Resampling(5, unit="image", interval="percentile")
    figures = {e.metric: e.value for e in rows.estimates(resampling) if e.finding == "Effusion"}
    assert (figures["pq"], figures["sq"], figures["rq"]) == pytest.approx((1 / 1.5, 1, 1 / 1.5))
    smaller = mask.copy()
    smaller[10:16] = False  # 80 of 200 pixels left: no match; 120 left: a match
    for part, expected in ((smaller, 0.0), (mask & ~smaller, 0.6)):
        (rows,) = [score_detections([replace(one, mask=encode_mask(part))], [record], findings=("Effusion",))]
        assert {e.metric: e.value for e in rows.estimates(resampling) if e.finding == "Effusion"}["pq"] == expected
    point = replace(one, mask=None, points=((31.0, 11.0),))
    rows = score_detections([point], [record], findings=("Effusion",))
    assert "ap_50" not in rows.metrics()
    assert "cpm" in rows.metrics()
    assert rows.mark_hit[CENTRE].tolist() == [0]
    assert "detections are points" in rows.notes[0]


def test_hit_criterion_can_be_selected(root: Path, files: tuple[Path, Path]) -> None:
    """A crescent-shaped lesion: its box, unlike its mask, contains the centre of a box with a quarter inside."""
    mask = np.zeros((100, 100), bool)
    mask[10:50, 10:50] = True
    mask[10:40, 10:40] = False
    drawn = Annotation("Effusion", "ground_truth", encode_mask(mask), (), (10, 10, 40, 40), 1, int(mask.sum()))
    record = image("a", {"Effusion": 1}, drawn)
    boxes: list[Box] = [(20, 20, 8, 8), (44, 44, 4, 4), (0, 0, 90, 90), (40, 0, 18, 18)]
    predictions = [LocalizationPrediction("a", "Effusion", box=box, score=0.9) for box in boxes]

    def hits(criterion: str, one: LocalizationPrediction) -> bool:
        rows = score_detections([one], [record], findings=("Effusion",), criterion=criterion)
        resampling = Resampling(2, unit="image", interval="percentile")
        values = {e.metric: e.value for e in rows.estimates(resampling) if e.finding == "Effusion"}
        assert values["lesion_sensitivity"] == 1 - values["false_alarms"]
        return bool(values["lesion_sensitivity"])

    # By hand: inside the box; in the corner; around it, IoU 1600 / 8100, centre (45, 45); IoBB 10 * 8 / 324
    expected = {
        "centre": [True, True, True, False],
        "mask": [False, True, True, False],
        "iou_50": [False, False, False, False],
        "iobb_50": [True, True, False, False],
    }
    assert {criterion: [hits(criterion, one) for one in predictions] for criterion in expected} == expected
    words = ("--split", "released", "--resamples", 5, "--json")
    document = json.loads(call("score", files[0], root / "public", *words, "--criterion", "iou_50").stdout)
    assert document["protocol"]["criterion"] == "iou_50"
    refused = call("score", files[0], root / "public", *words, "--criterion", "iou", expect=1).stderr
    assert "--criterion must be 'centre' or 'mask' or 'iou_50' or 'iobb_50' for a benchmark of detection" in refused


def test_near_miss_files_are_refused_with_the_next_step(root: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    """COCO numbers, torchvision boxes, corners, an unnamed split, a localization folder."""
    entries, folder = json.loads(files[0].read_text()), root / "public"
    (tmp_path / "numbered.json").write_text(json.dumps([one | {"image_id": int(one["image_id"])} for one in entries]))
    refused = call("lint", tmp_path / "numbered.json", folder, expect=1).stdout
    assert "image_id: must be the id of an image, as text" in refused
    assert f'hint: write "{entries[0]["image_id"]}"' in refused
    assert "`--instances INSTANCES.json`" in refused
    one = {"boxes": [[1, 2, 3, 4]], "labels": [1], "scores": [0.5]}
    output = {entries[0]["image_id"]: one}
    for number, document in enumerate((one, [one], output)):
        (tmp_path / f"torchvision{number}.json").write_text(json.dumps(document))
        refused = call("lint", tmp_path / f"torchvision{number}.json", folder, expect=1).stdout
        assert "the output of a torchvision detector (boxes, labels and scores) is not a file of predictions" in refused
        assert "`reveal-bench convert FOLDER --from table --boxes xyxy`" in refused
    with pytest.raises(rb.LintError) as caught:
        rb.score([{"image_id": entries[0]["image_id"], **one}], folder)
    assert "rb.convert(outputs, bench, ids=image_ids, categories=names)" in str(caught.value)
    other = [{**entries[0], "image_id": next(iter(rb.load(root / "public", split="holdout").manifest.rows))}]
    with pytest.raises(
        ArgumentError, match=r"must have ids of the split, such as '[^']+'; 1 are of 'holdout', another `split`"
    ):
        rb.convert(other, folder, split="released")
    with pytest.raises(ArgumentError, match="where numbers count from 0, `first_category` must be 0, got 0"):
        rb.convert([{**entries[0], "category_id": 0}], folder, categories=["Effusion", "Mass"])
    with pytest.raises(ArgumentError, match=r"are converted by rb\.convert\(outputs, bench, categories=names\)"):
        rb.score(output, folder, split="released")
    corners = [{**one, "bbox": [*one["bbox"][:2], one["bbox"][0] + one["bbox"][2], one["bbox"][1] + one["bbox"][3]]}
               for one in entries]  # fmt: skip
    (tmp_path / "corners.json").write_text(json.dumps(corners))
    words = ("--from", "table", "--file", tmp_path / "corners.json", "--out", tmp_path / "new.jsonl")
    assert "the linter refuses the output" in call("convert", folder, *words, expect=1).stderr
    assert "the linter refuses" not in call("convert", folder, *words, "--boxes", "xyxy").stderr
    with pytest.raises(rb.LintError, match="was not scored"):
        rb.score(corners, folder, split="released")
    assert "is not an image of chestx-det-detection holdout" in call(
        "lint", files[0], root / "private", expect=1).stdout  # fmt: skip
    call("build", root / "download", "--out", tmp_path / "places", "--images", "withhold")
    message = call("lint", files[0], tmp_path / "places", "--allow-missing").stdout
    assert "a folder built with `--task detection`" in message
    metrics = call("score", files[0], folder, "--by", "view", "--metric", "nonsense", expect=1).stderr
    assert "--metric must be one that applies: ap_50, cpm" in metrics
    assert "point_hit" not in metrics


def test_figures_name_systems_thresholds_and_measures(root: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    words = ("--split", "released", "--resamples", 20, "--beside", files[1], "--out", tmp_path / "curves")
    table = call("curves", files[0], root / "public", *words).stdout
    assert re.search("macro +[0-9.]+", table)
    drawn = {path.stem: path.read_text() for path in (tmp_path / "curves").glob("*.svg")}
    texts = {
        "froc": ("macro", "False alarms for the finding per image", "beyond the lowest threshold", "95% interval"),
        "precision_recall": ("AP ", "best precision at that recall or higher", "as measured"),
        "sizes": ("Lesions found at a score of 0.5 or more (%)", "Numbers count lesions."),
    }
    assert drawn.keys() == texts.keys()
    for name, labels in texts.items():
        assert all(words in drawn[name] for words in ("sharp", "fair", "Nodule", *labels))
    document = json.loads(call("score", files[0], root / "public", *words[:4], "--json").stdout)
    (ap,) = [e for e in document["estimates"] if (e["metric"], e["finding"]) == ("ap_50", "Nodule")]
    assert f"AP {100 * ap['value']:.1f}" in drawn["precision_recall"]


def test_report_counts_findings_of_means_and_bolds_no_false_alarms_without_lesions(
    root: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    words = ("--folder", root / "public", "--split", "released", "--resamples", 5)
    call("report", *files, *words, "--out", tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Mean over the 13 findings (with a defined score: 3 for AP 50, CPM" in page
    (table,) = re.findall(r"False alarms per image\.</strong>.*?</table>", page, re.DOTALL)
    rows = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', table)
    assert {name for name, cells in rows if "best" in cells} == {"Mean", "Effusion", "Mass", "Nodule"}
    assert len(rows) == 14


def test_froc_is_interpolated_and_draws_a_system_without_hits() -> None:
    """Two thresholds with a straight line between them: 40% of the way to 0.8 at 0.4 false alarms per image."""
    ends = np.array([0.0, 1.0]), np.array([0.0, 0.8])
    nothing = np.zeros(0), np.zeros(0)
    bands = [Band("Mass", rate, Estimate(0.8 * min(rate, 1), 0, 1, n=12)) for rate in (0.125, 0.25, 0.5, 1, 2, 4, 8)]
    froc, precision, *_ = detection_figures({"flat": Curves({"Mass": ends}, bands, {"Mass": nothing}, {}, [], 0.5)})
    (panel,) = froc.draw(170).axes
    measured, beyond, *_ = panel.lines
    assert panel.get_xlim() == (1 / 8, 8)
    assert np.interp([0.2, 0.4], measured.get_xdata(), measured.get_ydata()) == pytest.approx([16, 32], abs=0.1)
    assert (list(beyond.get_xdata()), list(beyond.get_ydata())) == ([1, 8], [80, 80])
    assert len(precision.draw(170).axes[1].lines) == 1  # only the empty line of the finding


def test_froc_labels_one_false_alarm_as_a_whole_number() -> None:
    """The curve ends at 1/2 false alarm per image, so the axis starts three octaves below, at 1/16."""
    ends = np.array([0.0, 0.5]), np.array([0.0, 0.8])
    bands = [Band("Mass", rate, Estimate(0.8, 0, 1, n=12)) for rate in (0.125, 8)]
    froc, *_ = detection_figures({"a": Curves({"Mass": ends}, bands, {"Mass": ends}, {}, [], 0.5)})
    (panel,) = froc.draw(170).axes
    assert [text.get_text() for text in panel.get_xticklabels()] == ["8", "1", "1/8"]


def test_figures_start_where_good_detectors_rise() -> None:
    """The last false alarms are at 1/32 and 1/64 per image; one curve is perfect, one ends at a recall of 0.5."""
    froc = {"Mass": (np.array([0, 1 / 32]), np.array([0.5, 1])), "Nodule": (np.array([0, 1 / 64]), np.array([0.5, 1]))}
    sensitivities = np.linspace(0.25, 1, 4)
    precision = {"Mass": (sensitivities, np.ones(4)), "Nodule": (sensitivities[:2], np.array([0.5, 0.8]))}
    bands = [Band(name, rate, Estimate(1, 1, 1, n=12)) for name in (MACRO, *froc) for rate in (0.125, 8)]
    curves = Curves(froc, bands, precision, {MACRO: (1 + 0.8 * 51 / 101) / 2}, [], 0.5)
    of_froc, of_precision, *_ = detection_figures({"good": curves})
    panel = of_froc.draw(170).axes[0]
    assert panel.get_xlim() == (2**-9, 8)
    assert [text.get_text() for text in panel.get_xticklabels()] == ["8", "1/2", "1/32", "1/512"]
    macro = panel.lines[0]
    assert np.interp(1 / 64, macro.get_xdata(), macro.get_ydata()) == pytest.approx((75 + 100) / 2)
    panel = of_precision.draw(170).axes[0]
    assert np.mean(panel.lines[0].get_ydata()) / 100 == pytest.approx(curves.average_precision[MACRO])
    assert panel.get_title(loc="left") == f"macro\nAP {100 * curves.average_precision[MACRO]:.1f}"
    assert not panel.texts  # numbers are not written over curves


def test_marks_of_sizes_are_hollow_exactly_without_an_interval_and_findings_without_lesions_named() -> None:
    strata = [SizeStratum("Mass", "below 2% of the image", 10, Estimate(0.5)),
              SizeStratum("Mass", "2% or more of the image", 4, Estimate(0.5, 0.2, 0.8))]  # fmt: skip
    curve = np.array([0.0, 1.0]), np.array([0.0, 0.8])
    bands = [Band(name, 1, Estimate(0.5, 0.2, 0.8, n=n)) for name, n in ((MACRO, 2), ("Edema", 9), ("Mass", 14))]
    both = {"Edema": curve, "Mass": curve}
    figures = detection_figures({"a": Curves(both, bands, both, {}, strata, 0.5, ("Nodule",))})
    froc, _, sizes = figures
    n = "(n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
    assert [axes.get_title(loc="left") for axes in froc.draw(170).axes] == ["macro", f"Mass {n}14)", f"Edema {n}9)"]
    (panel,) = sizes.draw(170).axes
    faces = [line.get_markerfacecolor() for line in panel.lines if line.get_marker() == "o"]
    assert [face == "white" for face in faces] == [True, False]
    end = "n: lesions; grey: fewer than 10. Not drawn: Nodule (no lesion)."
    assert all(one.caption.endswith(end) for one in figures)


def test_cocoeval_with_our_references_agrees(root: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    """Each lesion is an annotation with its own box and contour, so COCOeval returns our AP for the same images."""
    from pycocotools import coco, cocoeval

    folder, lesions = root / "public", KIND.data.read_records(root / "public", "released")
    call("convert", folder, "--to", "coco", "--no-pictures", "--out", tmp_path / "truth")
    call("convert", folder, "--to", "coco", "--predictions", files[0], "--no-pictures", "--out", tmp_path / "found")
    truth = coco.COCO(str(tmp_path / "truth" / "annotations.json"))
    n = sum(len(instances(record, finding)) for record in lesions for finding in record.label_status)
    assert (len(truth.anns), {len(one["segmentation"]) for one in truth.anns.values()}) == (n, {1})
    judged = cocoeval.COCOeval(truth, truth.loadRes(str(tmp_path / "found" / "results.json")), "bbox")
    judged.evaluate()
    judged.accumulate()
    (ap,) = [one.value for one in rb.score(files[0], folder, n_resamples=5).estimates
             if (one.metric, one.finding) == ("ap_50", MACRO)]  # fmt: skip
    precision = judged.eval["precision"][0, :, :, 0, 2]
    assert ap == pytest.approx(precision[:, (precision > -1).all(axis=0)].mean(), abs=1e-12)


def scored(root: Path, file: Path) -> DetectionRows:
    rows = score_file(file, root / "public", "released", ScoringOptions(n_resamples=5)).rows
    assert isinstance(rows, DetectionRows)
    return rows


def test_arrays_give_equal_predictions_and_rows(root: Path, files: tuple[Path, Path]) -> None:
    manifest = KIND.questions.read_manifest(root / "public", "released")
    predictions = rb.lint(files[0], root / "public", split="released").predictions
    codec = KIND.predictions.codec()
    arrays = {**codec.arrays_of(predictions, manifest), "line": np.array([p.line for p in predictions], np.uint32)}
    assert codec.predictions_from(arrays, manifest, Limits()) == predictions
    rows = scored(root, files[0])
    again = codec.rows_from(codec.arrays_of_rows(rows))
    resampling = Resampling(20, interval="percentile")
    assert repr(again.estimates(resampling)) == repr(rows.estimates(resampling))  # text, so NaN equals NaN
    wrong = {**codec.arrays_of_rows(rows), "mark_score": np.zeros(1)}
    with pytest.raises(ValueError, match="`mark_score` must have shape"):
        codec.rows_from(wrong)
    with pytest.raises(ValueError, match="each detection must have a score"):
        codec.predictions_from({**arrays, "score": np.full(len(predictions), np.nan)}, manifest, Limits())


def test_removing_patients_scores_like_a_smaller_split(root: Path, files: tuple[Path, Path]) -> None:
    rows = scored(root, files[0])
    some = sorted(rows.patients())[::2]
    part = rows.of_patients(some)
    records = [r for r in KIND.data.read_records(root / "public", "released") if r.patient_id in set(some)]
    predictions = rb.lint(files[0], root / "public", split="released").predictions
    fresh = score_detections(predictions, records, findings=rows.findings)
    resampling = Resampling(20, interval="percentile")
    assert repr(part.estimates(resampling)) == repr(fresh.estimates(resampling))  # text, so NaN equals NaN
    assert compare(part, fresh, Resampling(20))[0].estimate.value == 0


def test_board_releases_only_macros(root: Path, files: tuple[Path, Path]) -> None:
    disclosure = KIND.release.disclose(scored(root, files[0]), Resampling(50), min_cell=3)
    assert {estimate.finding for estimate in disclosure.estimates} == {"macro"}
    assert {estimate.metric for estimate in disclosure.estimates} == {"ap_50", "cpm"}
    hidden = KIND.release.disclose(scored(root, files[0]), Resampling(50), min_cell=1000)
    assert not hidden.estimates
    assert "Nothing can be shown" in hidden.note


def test_on_a_board(root: Path, tmp_path: Path) -> None:
    """Two uploads over the API are linted and scored by confined processes and ranked in the table."""
    board, name = Board(root / "public", root / "private"), "chestx-det-detection"
    with Custody(tmp_path / "custody") as custody, api_world(board, tmp_path, children=custody) as world:
        for model, share, sender in (("fair", 0.3, world.owner), ("sharp", 0.95, world.other)):
            file = tmp_path / f"{model}.json"
            file.write_text(json.dumps(detections(root / "private", "holdout", share=share)))
            answer = world.send(file, model, who=sender, fields={"benchmark": name})
            assert answer.status_code == 202, answer.text
        services, holdouts = world.services, open_holdouts([(name, board.holdout)], shared=[], vault=tmp_path / "vault")
        Worker(services.store, services.intake.blobs, holdouts, custody, services.settings).run(once=True)
        board_document = world.client().get(f"/api/v1/leaderboard?benchmark={name}").json()
    assert [(entry["model"], entry["tier"]) for entry in board_document["entries"]] == [("sharp", "A"), ("fair", "B")]
