"""Decreases from the human benchmark: the order of paper 002's figures, and its code against a plain script."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from pycocotools import mask as coco

import reveal_bench as rb
from reveal_bench.analyses.relative_decrease import in_printed_order
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.baselines import human_baseline
from reveal_bench.evaluation.compare import Comparison
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_localization, read_manifest
from reveal_bench.masks import Rle
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.phantom import LAYOUTS
from reveal_bench.reports.beside_readers import choose_cases, figures_of_decreases
from reveal_bench.reports.curves import figure_of_curves, read_curves
from reveal_bench.reports.style import Illustration
from reveal_bench.saliency_maps.tuning import Tuned
from tests.cli.test_score import call
from tests.conftest import made_once


def one(finding: str, value: float, low: float, high: float) -> Comparison:
    return Comparison("mask_iou", finding, 0.0, 0.0, Estimate(value, low, high), math.nan, 0, 0, 0, "")


# Paper 002, Extended Data Figs. 5 and 6, from top to bottom (Atelectasis of Fig. 6 is printed as fractions)
FIG_5 = [
    one("Lung Lesion", 76.2, 59.1, 87.5), one("Support Devices", 63.3, 60.8, 65.8),
    one("Pneumothorax", 51.0, 14.6, 69.5), one("Cardiomegaly", 37.2, 34.0, 40.4),
    one("Enlarged Cardiomediastinum", 33.4, 29.0, 37.4), one("Airspace Opacity", 4.6, -5.8, 14.6),
    one("Pleural Effusion", -6.8, -25.6, 13.3), one("Edema", -7.4, -16.4, 2.6),
    one("Atelectasis", -51.2, -57.3, -43.9), one("Consolidation", -56.1, -69.4, -42.7),
    one("macro", 26.6, 18.1, 35.0),
]  # fmt: skip
FIG_6 = [
    one("Lung Lesion", 65.9, 35.3, 91.7), one("Support Devices", 62.0, 56.2, 67.5),
    one("Pneumothorax", 60.8, 27.3, 92.3), one("Atelectasis", 42.4, 30, 50),
    one("Pleural Effusion", 29.4, 14.3, 42.5), one("Enlarged Cardiomediastinum", 14.5, 9.6, 19.2),
    one("Cardiomegaly", 7.1, 2.1, 11.8), one("Airspace Opacity", 10.9, -2.0, 23.1), one("Edema", 3.0, -11.7, 18.5),
    one("Consolidation", -44.7, -56.5, 0.5), one("macro", 29.4, 15.0, 43.2),
]  # fmt: skip


@pytest.mark.parametrize("printed", [FIG_5, FIG_6], ids=["Fig. 5", "Fig. 6"])
def test_the_order_is_that_of_the_paper(printed: list[Comparison], rng: np.random.Generator) -> None:
    shuffled = [printed[i] for i in rng.permutation(len(printed))]
    assert [c.finding for c in in_printed_order(shuffled)] == [c.finding for c in printed]


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A download with a human benchmark, and the dataset folder of its test split."""

    def make(root: Path) -> None:
        LAYOUTS["chexlocalize"](root / "raw", 45, seed=4, long_side=64, n_val=2)
        call("build", root / "raw", "--out", root / "folder", "--images", "withhold", "--workers", 1)

    return made_once(tmp_path_factory, "human-benchmark", make)


@pytest.fixture(scope="module")
def model(phantom: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A system that predicts squares; it answers every question, sometimes with an empty mask."""
    rng = np.random.default_rng(3)
    predictions = []
    manifest = read_manifest(phantom / "folder", "test")
    for image_id, finding in manifest.asked_pairs():
        height, width = manifest.rows[image_id].size
        mask = np.zeros((height, width), np.uint8, order="F")
        x, y, side = int(rng.integers(0, width // 2)), int(rng.integers(0, height // 2)), int(rng.integers(0, 40))
        mask[y : y + side, x : x + side] = 1
        rle = coco.encode(mask)
        point = (float(rng.integers(0, width)), float(rng.integers(0, height)))
        counts = rle["counts"].decode()
        predictions.append(
            LocalizationPrediction(image_id, finding, points=(point,), mask=Rle((height, width), counts))
        )
    path = tmp_path_factory.mktemp("model") / "model.jsonl"
    path.write_text(predictions_to_jsonl(predictions), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def human(phantom: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("human") / "human.jsonl"
    call("baseline", "human", phantom / "folder", "--split", "test", "--out", path)
    return path


def published_rows(phantom: Path, masks: dict, points: dict) -> tuple[pd.DataFrame, pd.DataFrame]:  # type: ignore[type-arg]
    """IoU and hits per image and finding as the published code has them; masks and points by image and finding."""
    results = next((phantom / "raw").rglob("gt_segmentations_test.json"))
    truth = json.loads(results.read_text(encoding="utf-8"))
    tables = [pd.DataFrame(np.nan, index=sorted(truth), columns=list(CHEXLOCALIZE_FINDINGS)) for _ in range(2)]
    for image_id, own in truth.items():
        for finding, rle in own.items():
            drawn = coco.decode(rle)
            if not drawn.any():
                continue
            inputs = masks.get(image_id, {}).get(finding)
            inputs = np.zeros_like(drawn) if inputs is None else coco.decode(inputs)
            if inputs.any():
                tables[0].loc[image_id, finding] = (inputs & drawn).sum() / (inputs | drawn).sum()
            text = points.get(image_id, {}).get(finding, [])
            tables[1].loc[image_id, finding] = float(any(drawn[int(y), int(x)] for x, y in text))
    return tables[0], tables[1]


def published_decrease(model: pd.DataFrame, human: pd.DataFrame) -> pd.DataFrame:
    """Follow the plain script: one stream for both systems, decreases per replicate, order statistics, rounding."""
    replicates = []
    for table in (model, human):
        draws: npt.NDArray[np.int64] = np.random.RandomState(0).randint(0, len(table), (1000, len(table)))
        with np.errstate(invalid="ignore"), warnings.catch_warnings(action="ignore"):  # replicates without an image
            means = np.nanmean(table.to_numpy()[draws], axis=1)
        replicates.append(pd.DataFrame(means, columns=table.columns))
    pred, hb = replicates

    def ends(column: pd.Series) -> tuple[float, float]:  # type: ignore[type-arg]
        ordered = column.sort_values().reset_index(drop=True)
        return round(ordered[24], 3), round(ordered[974], 3)

    shares = (hb - pred) / hb
    rows = {}
    for finding in shares.columns:
        a, b, (low, high) = pred[finding].mean(), hb[finding].mean(), ends(shares[finding])
        rows[finding] = b, a, round((b - a) / b * 100, 3), round(low * 100, 3), round(high * 100, 3)
    ordered = pd.DataFrame(rows, index=["hb", "pred", "pct_diff", "pct_diff_lower", "pct_diff_upper"]).T
    ordered = ordered.sort_values("pct_diff", ascending=False)
    a, b = round(pred.mean().mean(), 3), round(hb.mean().mean(), 3)
    low, high = ends(100 * (hb.mean(axis=1) - pred.mean(axis=1)) / hb.mean(axis=1))
    ordered.loc["Average"] = [b, a, round((b - a) / b * 100, 3), low, high]
    return ordered


def test_the_published_convention_is_that_of_a_plain_script(
    phantom: Path, model: Path, human: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Illustration, "file", lambda self, kind: b"")  # figures are drawn in other tests
    lines = [json.loads(line) for line in model.read_text(encoding="utf-8").splitlines()]
    masks: dict[str, dict[str, object]] = {}
    points: dict[str, dict[str, list[list[float]]]] = {}
    for line in lines:
        masks.setdefault(line["image_id"], {})[line["finding"]] = line["rle"]
        points.setdefault(line["image_id"], {})[line["finding"]] = [line["point"]]
    raw = {name: json.loads(next((phantom / "raw").rglob(f"{name}_test.json")).read_text()) for name in HUMAN_FILES}
    of_model = published_rows(phantom, masks, points)
    of_human = published_rows(phantom, *raw.values())
    assert of_human[0].isna().sum().sum() > of_model[1].isna().sum().sum()  # some masks of readers are missing

    folder = phantom / "folder"
    options = ("--split", "test", "--relative", "--compat", "chexlocalize", "--missing", "empty", "--out", tmp_path)
    call("compare", model, human, folder, *options)
    for name, a, b in zip(("miou", "hitrate"), of_model, of_human, strict=True):
        written = pd.read_csv(tmp_path / f"{name}_pct_decrease.csv", index_col=0)
        plain = published_decrease(a, b).replace([np.inf, -np.inf], np.nan)
        assert written.index[-1] == "Average"
        assert written["pct_diff"][:-1].dropna().is_monotonic_decreasing
        written = written.reindex(plain.index)  # the order of equal decreases is left open
        percents = ["pct_diff", "pct_diff_lower", "pct_diff_upper"]
        pd.testing.assert_frame_equal(written[percents], plain[percents], check_exact=True, check_names=False)
        pd.testing.assert_frame_equal(written, plain, rtol=1e-12, check_names=False)


HUMAN_FILES = ("hb_segmentations", "hb_salient_pt")


def test_readers_who_left_out_a_mask_are_scored_two_ways(phantom: Path, human: Path) -> None:
    means: dict[str, dict[str, float]] = {}
    n: dict[str, dict[str, int]] = {}
    for missing in ("miss", "empty"):
        results = rb.score(human, phantom / "folder", split="test", missing=missing).estimates
        means[missing] = {e.finding: e.value for e in results if e.metric == "mask_iou"}
        n[missing] = {e.finding: e.n for e in results if e.metric == "mask_iou"}
    fewer = {finding for finding in CHEXLOCALIZE_FINDINGS if n["empty"][finding] < n["miss"][finding]}
    assert fewer
    for finding in fewer:  # the same sum over fewer images
        sums = [means[missing][finding] * n[missing][finding] for missing in ("miss", "empty")]
        assert sums[0] == pytest.approx(sums[1] if n["empty"][finding] else 0.0, rel=1e-12)
    protocol = rb.score(human, phantom / "folder", split="test", missing="empty").scored.protocol
    assert (protocol["missing"], protocol["allow_missing"]) == ("empty", True)


def test_decreases_without_any_interval_are_not_called_significant() -> None:
    (figure,) = figures_of_decreases([one("Edema", 0.5, math.nan, math.nan)], "model", "readers")
    svg = figure.file("svg").decode()
    assert "no interval" in svg
    assert "excludes 0" not in svg


def test_human_answers_are_those_of_the_download(phantom: Path) -> None:
    folder = phantom / "folder"
    raw = {name: json.loads(next((phantom / "raw").rglob(f"{name}_test.json")).read_text()) for name in HUMAN_FILES}
    predictions = human_baseline(read_manifest(folder, "test"), read_localization(folder, "test"))
    for p in predictions:
        rle = raw["hb_segmentations"].get(p.image_id, {}).get(p.finding)
        assert (p.mask and p.mask.counts) == (rle and rle["counts"])
        text = raw["hb_salient_pt"].get(p.image_id, {}).get(p.finding, [])
        assert p.points == tuple((x, y) for x, y in text)


def test_tables_and_figures_are_written_in_the_printed_order(
    phantom: Path, model: Path, human: Path, tmp_path: Path
) -> None:
    folder = phantom / "folder"
    options = ("--split", "test", "--relative", "--missing", "empty", "--metric", "mIoU", "--out", tmp_path / "out")
    call("compare", model, human, folder, *options)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "decrease.csv").read_text(encoding="utf-8"))))
    apart = [row["excludes_zero"] == "True" and row["value"][0] != "-" for row in rows[:-1]]
    assert apart == sorted(apart, reverse=True)
    assert any(apart)
    assert rows[-1]["finding"] == "macro"
    svg = (tmp_path / "out" / "decrease_mask_iou.svg").read_text(encoding="utf-8")
    places = [svg.index(row["finding"].split()[-1]) for row in rows if row["finding"] in ("Edema", "Cardiomegaly")]
    assert len(places) == 2
    assert not (tmp_path / "out" / "miou_pct_decrease.csv").exists()
    assert ">human<" in (tmp_path / "out" / "both_mask_iou.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compat": "chexlocalize"}, "`compat` must be given with `relative`"),
        ({"relative": True, "missing": "no"}, "`missing` must be 'miss' or 'empty' for a benchmark of localization"),
        (
            {"relative": True, "missing": "empty", "compat": "chexlocalize", "metric": "grid_hit"},
            "`metric` must be a metric with tables in 'chexlocalize', for both systems: point_hit, mask_iou",
        ),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, object], message: str, phantom: Path, model: Path, human: Path
) -> None:
    with pytest.raises(ArgumentError, match=message.replace("(", r"\(")):
        rb.compare(model, human, phantom / "folder", split="test", **options)  # type: ignore[arg-type]


def test_files_without_masks_have_no_empty_masks(phantom: Path, tmp_path: Path) -> None:
    folder, file = phantom / "folder", tmp_path / "chance.jsonl"
    call("baseline", "chance", folder, "--split", "test", "--out", file)
    statements = call("score", file, folder, "--split", "test", "--missing", "empty", expect=1).stderr
    assert "--missing must be 'miss' if no mask is predicted, got 'empty'" in statements


def test_one_page_holds_everything(
    phantom: Path, model: Path, human: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Illustration, "file", lambda self, kind: b"")  # figures are drawn in other tests
    monkeypatch.setattr(Illustration, "for_page", lambda self: [("wide", f"<svg>{self.name}</svg>")])
    lines = [json.loads(line) for line in model.read_text(encoding="utf-8").splitlines()]
    scored = tmp_path / "a<b>.jsonl"
    scored.write_text("".join(json.dumps({**line, "score": i % 7 / 7}) + "\n" for i, line in enumerate(lines)))
    curves = {"Edema": np.array([0.1, 0.25, np.nan]), "Atelectasis": np.array([0.3, 0.2, 0.1])}
    best, n_cases = {"Edema": 0.3, "Atelectasis": 0.2}, {"Edema": 4, "Atelectasis": 9}
    ends = {finding: np.column_stack([curve - 0.05, curve + 0.05]) for finding, curve in curves.items()}
    tuned = Tuned("validation", (0.2, 0.3, 0.4), best, curves, ends, n_cases)
    Path(f"{scored}.tuning.csv").write_text(tuned.to_csv(), encoding="utf-8")
    out = tmp_path / "out"
    options = ("--split", "test", "--human", human, "--missing", "empty", "--out", out)
    call("report", scored, "--folder", phantom / "folder", *options)
    page = (out / "report.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headings == [
        "Localization", "Decrease from human", "Example images", "Shapes of the references",
        "Features associated with poor localization", "Confidence", "Thresholds", "Pixels",
    ]  # fmt: skip
    assert "<b>" not in page
    assert re.findall(r"<svg>(.*?)</svg>", page)[0] == "both_point_hit"
    assert "a&lt;b&gt;" in page
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} - {"report.html"}
    assert set(re.findall(r'href="((?:figures|tables)/[^"]+)"', page)) == files
    macro = rb.pixels(human, phantom / "folder", split="test", allow_missing=True).printed_rows()[0]
    assert macro["recall"] in page
    assert str(tmp_path) not in page
    assert "3 Edema: human" in page or "3 Atelectasis: human" in page or "3 Support Devices: human" in page
    assert "pixels withheld" in page
    examples = re.findall(r"Example of ([^<]+)<.*?([\w-]+): IoU \d+% of", page, re.DOTALL)
    assert examples
    for file in (scored, human):
        answers = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert {(one["finding"], one["image_id"]) for one in answers if "rle" in one} >= set(examples)

    Path(f"{scored}.options.json").write_text('{"options": {"threshold": "otsu"}}', encoding="utf-8")
    call("report", f"Ours={scored}", "--folder", phantom / "folder", *options)
    assert "Ours beside human" in (out / "report.html").read_text(encoding="utf-8")
    assert ">Thresholds</h2>" not in (out / "report.html").read_text(encoding="utf-8")  # not this run's


@pytest.mark.parametrize(
    ("words", "statements"),
    [
        (
            ("{model}", "{model}", "--folder", "{folder}", "--human", "{human}", "--out", "x"),
            "takes one prediction file",
        ),
        (("{model}", "--folder", "{folder}", "--human", "{human}"), "a report of runs needs `--out`"),
        (("{folder}", "--human", "{human}"), "a report of runs needs `--folder`"),
        (
            ("{model}", "--folder", "{folder}", "--human", "{human}", "--out", "{folder}/x"),
            "must not be in the dataset",
        ),
    ],
)
def test_a_page_asked_wrongly_is_refused(
    words: tuple[str, ...], statements: str, phantom: Path, model: Path, human: Path
) -> None:
    named = {"model": model, "human": human, "folder": phantom / "folder"}
    assert statements in call("report", *(word.format(**named) for word in words), "--split", "test", expect=1).stderr


def test_images_show_the_largest_gaps_of_different_findings() -> None:
    ious = {
        ("i1", "Edema"): (0.1, 0.9), ("i2", "Edema"): (0.2, 0.9), ("i3", "Atelectasis"): (0.3, 0.5),
        ("i4", "Pneumothorax"): (0.0, 0.1), ("i5", "Lung Lesion"): (0.05, 0.1), ("i6", "Cardiomegaly"): (0.9, 0.6),
        ("i7", "Consolidation"): (0.4, 0.4), ("i8", "Cardiomegaly"): (math.nan, 0.6), ("i9", "Edema"): (0.6, 0.5),
    }  # fmt: skip
    chosen = [(one.image_id, one.finding) for one in choose_cases(ious)]
    behind = [("i1", "Edema"), ("i3", "Atelectasis"), ("i4", "Pneumothorax")]
    assert chosen == [*behind, ("i6", "Cardiomegaly"), ("i9", "Edema")]
    assert choose_cases({("i7", "Consolidation"): (0.4, 0.4)}) == []


def test_curves_of_thresholds_are_read_and_drawn(tmp_path: Path) -> None:
    curves = {"Edema": np.array([0.1, 0.25, np.nan])}
    ends = {"Edema": np.array([[0.05, 0.2], [0.2, 0.35], [np.nan, np.nan]])}
    file = tmp_path / "tuning.csv"
    tuned = Tuned("validation", (0.2, 0.3, 0.4), {"Edema": 0.3}, curves, ends, {"Edema": 4})
    file.write_text(tuned.to_csv(), encoding="utf-8")
    (curve,) = read_curves(file).values()
    assert (curve.metric, curve.lows[:2], curve.highs[:2]) == ("mask_iou", [0.05, 0.2], [0.2, 0.35])
    assert (curve.best, curve.n_cases, list(curve.thresholds)) == (0.3, 4, [0.2, 0.3, 0.4])
    assert curve.values[:2] == [0.1, 0.25]
    (axes,) = figure_of_curves({"Edema": curve}, "tuning", "thresholds", "Threshold").draw(180.0).axes
    line, mark = axes.lines
    assert line.get_ydata()[0] == pytest.approx(10)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == pytest.approx((30, 25))
    for text, statements in [
        ("finding,threshold\nEdema,0.2\n", "wrong.csv:1: `columns` must be finding,threshold,metric,"),
        (file.read_text().replace(",0\n", ",1\n"), "one best threshold per finding at most, got others for 'Edema'"),
        (file.read_text().replace("0.25", "a quarter"), "must have numbers"),
    ]:
        file.with_name("wrong.csv").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=statements):
            read_curves(file.with_name("wrong.csv"))
