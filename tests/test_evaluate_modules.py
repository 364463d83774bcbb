"""`evaluate` modules: both ways to load them, and the same figures as `score`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reveal_bench
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_localization
from reveal_bench.kinds.localization.scoring import score_localization, summarize
from reveal_bench.masks import Rle, encode_mask
from reveal_bench.metrics.agreement_estimates import estimate_agreement
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.estimates import as_flat_result, estimate_labels
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.reliability_estimates import estimate_reliability
from tests.conftest import ROOT, World

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("evaluate") is None, reason="the extra [evaluate] is not installed: see README"
)


def as_dict(rle: Rle) -> dict[str, Any]:
    return {"size": list(rle.size), "counts": rle.counts}


def by_path(name: str) -> Any:
    import evaluate

    before = Path.cwd()
    os.chdir(ROOT)
    try:
        return evaluate.load(f"reveal_bench/evaluate_modules/{name}")
    finally:
        os.chdir(before)


def check(result: dict[str, Any], name: str, estimates: list[Estimate]) -> None:
    for estimate in estimates:
        got = result if estimate.finding == MACRO else result["per_finding"][estimate.finding]
        value = got[name] if estimate.finding == MACRO else got["value"]
        np.testing.assert_equal((value, got["low"], got["high"]), (estimate.value, estimate.low, estimate.high))
        assert (got["n"], got["n_undefined"]) == (estimate.n, estimate.n_undefined)
    assert result["signature"] == estimates[0].signature


@pytest.mark.parametrize("load", [reveal_bench.load_metric, by_path])
def test_same_figures_as_score(load: Any, world: World, rng: np.random.Generator) -> None:
    records = read_localization(world.folder, "released")
    pairs = [(record, finding) for record in records for finding in record.asked("present")]
    predictions = []
    for record, finding in pairs:
        x, y = rng.uniform(0, record.width), rng.uniform(0, record.height)
        mask = rng.random(record.size) < rng.choice([0.0, 0.3])
        predictions.append(
            LocalizationPrediction(record.image_id, finding, points=((x, y),), cell="D4", mask=encode_mask(mask))
        )
    findings = list(dict.fromkeys(record_finding for _, record_finding in pairs))
    rows = score_localization(predictions, records, findings=findings)
    references = [as_dict(record.reference(finding).rle) for record, finding in pairs]  # type: ignore[union-attr,arg-type]
    about = {
        "findings": [finding for _, finding in pairs],
        "patients": [record.patient_id for record, _ in pairs],
        "all_patients": [record.patient_id for record in records],
        "seed": 4,
    }

    def estimates(metric: str) -> list[Estimate]:
        return summarize(rows, Resampling(seed=4), metrics=[metric], findings=findings)

    hit_rate, iou = load("hit_rate"), load("mask_iou")
    points = [[list(point) for point in p.points] for p in predictions]
    check(hit_rate.compute(predictions=points, references=references, **about), "hit_rate", estimates("point_hit"))
    single = [some[0] for some in points]
    check(hit_rate.compute(predictions=single, references=references, **about), "hit_rate", estimates("point_hit"))
    cells = ["D4"] * len(predictions)
    check(hit_rate.compute(predictions=cells, references=references, **about), "hit_rate", estimates("grid_hit"))
    masks = [as_dict(p.mask) for p in predictions if p.mask]
    check(iou.compute(predictions=masks, references=references, **about), "mask_iou", estimates("mask_iou"))
    groups = {"first": findings[:1], "others": findings[1:]}
    grouped = hit_rate.compute(predictions=points, references=references, **about, finding_groups=groups)
    check(grouped, "hit_rate", estimates("point_hit"))
    for name, macros in rows.group_macros(Resampling(seed=4), groups).items():
        (macro,) = (one for one in macros if one.metric == "point_hit")
        own = grouped["per_group"][name]
        np.testing.assert_equal((own["hit_rate"], own["low"], own["high"]), (macro.value, macro.low, macro.high))
    every = iou.compute(predictions=masks, references=references, slice="all", **about)
    check(every, "mask_iou", estimates("mask_iou_all"))


ALL = ("hit_rate", "mask_iou", "multilabel_f1", "rater_agreement")
FULL = {"size": [4, 4], "counts": "0`0"}  # 16 pixels of 16
LEFT = {"size": [4, 4], "counts": "088"}  # the two left columns
INPUTS: dict[str, tuple[list[Any], list[Any]]] = {
    "hit_rate": ([[[1.0, 1.0]], [[3.0, 0.0]], []], [FULL, LEFT, LEFT]),
    "mask_iou": ([FULL, LEFT, LEFT], [FULL, FULL, LEFT]),
    "multilabel_f1": ([["Edema"], [], ["Mass"]], [["Edema", "Mass"], [], []]),
    "rater_agreement": ([1, 2, 3], [1, 2, 2]),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("load", [reveal_bench.load_metric, by_path])
def test_batches_add_up(name: str, load: Any) -> None:
    predictions, references = INPUTS[name]
    metric = load(name)
    assert metric.name == name
    whole = metric.compute(predictions=predictions, references=references, n_resamples=50)
    metric.add_batch(predictions=predictions[:2], references=references[:2])
    metric.add_batch(predictions=[], references=[])
    metric.add(prediction=predictions[2], reference=references[2])
    np.testing.assert_equal(metric.compute(n_resamples=50), whole)
    metric.add_batch(predictions=predictions[:2], references=references[:2])
    rest = metric.compute(predictions=predictions[2:], references=references[2:], n_resamples=50)
    np.testing.assert_equal(rest, whole)


def test_empty_predictions_are_misses() -> None:
    metric = reveal_bench.load_metric("hit_rate")
    assert metric.compute(predictions=[[], [[1.0, 1.0]]], references=[FULL, FULL])["hit_rate"] == 0.5
    assert metric.compute(predictions=["", "A1"], references=[FULL, FULL])["hit_rate"] == 0.5
    assert metric.compute(predictions=[None, "A1"], references=[FULL, FULL])["hit_rate"] == 0.5
    assert metric.compute(predictions=[None], references=[FULL])["hit_rate"] == 0


@pytest.mark.parametrize(
    "predictions",
    [
        [[1.0, 1.0], [3.0, 1.0]],
        [(1, 1), (3, 1)],
        [[[1, 1]], [[3, 1], [2, 2]]],
        np.array([[1.0, 1.0], [3.0, 1.0]]),
        np.array([[[1, 1], [3, 3]], [[3, 1], [3, 3]]]),
        [np.float32([1, 1]), np.array([[3, 1]])],
        [LEFT, {"size": (4, 4), "counts": b"<4"}],  # masks: the left half, and the last column
        [np.array([[1, 1, 0, 0]] * 4, bool), np.array([[0, 0, 0, 1]] * 4, bool)],
    ],
    ids=["lists", "tuples", "several", "array", "array of several", "mixed", "masks", "dense"],
)
def test_points_in_every_form(predictions: Any) -> None:
    # the first is in the left half, the second is not
    result = reveal_bench.load_metric("hit_rate").compute(predictions=predictions, references=[LEFT, LEFT])
    assert (result["hit_rate"], result["signature"].split("|")[0]) == (0.5, "point_hit")


def test_masks_in_every_form() -> None:
    dense = np.array([[1, 1, 0, 0]] * 4)
    forms = [LEFT, dense, dense.astype(bool), dense.tolist(), Rle((4, 4), "088"), LEFT | {"counts": b"088"}]
    forms.append({"size": np.array([4, 4]), "counts": "088"})
    result = reveal_bench.load_metric("mask_iou").compute(predictions=forms, references=[LEFT] * len(forms))
    assert (result["mask_iou"], result["per_finding"]["all"]["n"]) == (1, len(forms))


def test_multilabel_f1_by_hand() -> None:
    # Edema: right once, said once too often: F1 = 2/3; Mass: missed once: 0; Nodule: nowhere: undefined
    names = ["Edema", "Mass", "Nodule"]
    metric = reveal_bench.load_metric("multilabel_f1")
    predictions, references = [["Edema"], ["Edema"], []], [["Edema"], [], ["Mass"]]
    result = metric.compute(predictions=predictions, references=references, labels=names, patients=["a", "a", "b"])
    assert result["f1"] == pytest.approx((2 / 3 + 0) / 2)
    assert (result["f1_n"], result["f1_micro"], result["exact_match"]) == (2, 0.5, pytest.approx(1 / 3))
    assert result["hamming_loss"] == pytest.approx(2 / 9)
    assert result["per_label"]["Edema"]["precision"] == 0.5
    assert np.isnan(result["per_label"]["Nodule"]["f1"])
    vectors = [[int(name in row) for name in names] for row in predictions]
    bools = np.array([[name in row for name in names] for row in references])
    same = metric.compute(predictions=vectors, references=bools, labels=names, patients=["a", "a", "b"])
    np.testing.assert_equal(same, result)
    library = estimate_labels(np.array(vectors), bools, labels=names, patients=["a", "a", "b"])
    np.testing.assert_equal(as_flat_result(library, groups="per_label"), result)
    groups = {"head": ["edema"], "others": ["Mass", "Nodule"]}  # F1 of 2/3, and of 0 and nothing
    grouped = metric.compute(predictions=vectors, references=bools, labels=names, finding_groups=groups)["per_group"]
    assert (grouped["head"]["f1"], grouped["head"]["f1_n"]) == (pytest.approx(2 / 3), 1)
    assert (grouped["others"]["f1"], grouped["others"]["f1_n"], grouped["others"]["npv_n"]) == (0, 1, 2)
    with pytest.raises(ValueError, match="must only have findings of the benchmark"):
        metric.compute(predictions=vectors, references=bools, labels=names, finding_groups={"tail": ["Hernia"]})
    unnamed = metric.compute(predictions=vectors, references=bools, patients=["a", "a", "b"])
    assert list(unnamed["per_label"]) == ["0", "1", "2"]


def test_first_case_without_labels_does_not_fix_the_form() -> None:
    """`evaluate` alone would choose the form by the first case, which fits both."""
    metric = reveal_bench.load_metric("multilabel_f1")
    for _ in range(2):
        assert metric.compute(predictions=[[], ["7"]], references=[[], ["7"]])["f1"] == 1
        assert metric.compute(predictions=[[0, 1]], references=[[0, 1]])["per_label"]["1"]["f1"] == 1


def test_rater_agreement_by_hand() -> None:
    # 3 of 4 agree; chance 1/2 * 3/4 + 1/2 * 1/4 = 1/2: kappa (3/4 - 1/2) / (1/2). AC1: p = 5/8, 3/8, e = 15/32
    metric = reveal_bench.load_metric("rater_agreement")
    result = metric.compute(predictions=[0, 0, 1, 1], references=np.array([0, 0, 0, 1]))
    assert (result["percent_agreement"], result["cohen_kappa"]) == (0.75, 0.5)
    assert result["gwet_ac1"] == pytest.approx((3 / 4 - 15 / 32) / (1 - 15 / 32))
    assert result["mean_absolute_difference"] == 0.25
    named = metric.compute(predictions=["no", "no", "yes", "yes"], references=["no", "no", "no", "yes"])
    assert named["cohen_kappa"] == 0.5
    assert "cohen_kappa_linear" not in named  # names have no order ...
    scale = ["no", "yes"]  # ... unless it is given
    ordered = metric.compute(predictions=["no", "yes"], references=["no", "no"], categories=scale)
    assert ordered["mean_absolute_difference"] == 0.5
    library = estimate_agreement([0, 0, 1, 1], [0, 0, 0, 1], n_categories=2)
    library += estimate_reliability([[0, 0], [0, 0], [1, 0], [1, 1]], n_categories=2)
    np.testing.assert_equal(as_flat_result(library, groups="per_finding"), result)
    assert result["fleiss_kappa"] == pytest.approx((3 / 4 - 34 / 64) / (1 - 34 / 64))  # Scott's pi: e = p^2 + (1 - p)^2
    assert "fleiss_kappa" in named
    assert "icc_2_1" not in named
    by_finding = metric.compute(predictions=[0, 1, 1, 1], references=[0, 1, 1, 0], findings=["a", "a", "b", "b"])
    assert by_finding["percent_agreement"] == 0.75
    assert by_finding["per_finding"]["b"]["percent_agreement"] == 0.5


def test_combined() -> None:
    """Points of masks and the masks themselves from one pair of inputs; names that clash get a prefix."""
    import evaluate

    both = evaluate.combine([reveal_bench.load_metric("hit_rate"), by_path("mask_iou")])
    predictions, references = INPUTS["mask_iou"]
    about = {"findings": ["a", "b", "b"], "patients": ["p", "p", "q"], "seed": 1}
    result = both.compute(predictions=predictions, references=references, **about)
    assert (result["hit_rate"], result["mask_iou"]) == (1, (1 + (0.5 + 1) / 2) / 2)
    assert result["hit_rate_n"] == result["mask_iou_n"] == 2
    both.add_batch(predictions=predictions[:2], references=references[:2])
    both.add(prediction=predictions[2], reference=references[2])
    np.testing.assert_equal(both.compute(**about), result)
    by_name = evaluate.combine({"points": reveal_bench.load_metric("hit_rate")}, force_prefix=True)
    assert by_name.compute(predictions=predictions, references=references)["points_hit_rate"] == 1


def test_evaluation_suite_is_whole() -> None:
    import evaluate

    reveal_bench.load_metric("hit_rate")

    class Suite(evaluate.EvaluationSuite):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("suite")
            self.suite: list[Any] = []

    with pytest.raises(ValueError, match="No evaluation tasks found"):
        Suite().run("model")


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("hit_rate", {"predictions": [[[9.0, 1.0]]], "references": [FULL]}, "must be in the image 4 x 4, got (9.0, 1.0)"),
    ("hit_rate", {"predictions": [[1.0]], "references": [FULL]}, "`predictions[0]` must be a point [x, y], a list of"),
    ("hit_rate", {"predictions": [5], "references": [FULL]}, "`predictions[0]` must be a point [x, y], a list of"),
    (
        "hit_rate",
        {"predictions": ["A1", [1, 1]], "references": [FULL] * 2},
        "must be all points or all cells, got both",
    ),
    ("hit_rate", {"predictions": ["Z9"], "references": [FULL]}, "`cell` must be in the 8 x 8 grid (A1 to H8)"),
    ("hit_rate", {"predictions": "A1", "references": [FULL]}, "`predictions` must be a list with one entry per case"),
    (
        "mask_iou",
        {"predictions": [FULL | {"counts": "1"}], "references": [FULL]},
        "`counts` must sum to height x width = 4 x 4 = 16, got 1",
    ),
    ("mask_iou", {"predictions": [FULL], "references": [None]}, "`references[0]` must be a run-length mask"),
    ("mask_iou", {"predictions": [{"size": [4, 4]}], "references": [FULL]}, "must have the keys size and counts"),
    ("mask_iou", {"predictions": [FULL | {"counts": [16]}], "references": [FULL]}, "must be a COCO compressed string"),
    ("mask_iou", {"predictions": [FULL | {"size": [4]}], "references": [FULL]}, "must be [height, width], got [4]"),
    ("mask_iou", {"predictions": [FULL], "references": [FULL], "slice": "some"}, "`slice` must be 'true_positive' or"),
    ("multilabel_f1", {"predictions": [["a"]], "references": [[1]]}, "must be all label names or all vectors of 0 and"),
    ("multilabel_f1", {"predictions": ["a"], "references": [["a"]]}, "`predictions[0]` must be a list of label names"),
    ("multilabel_f1", {"predictions": [["a", "a"]], "references": [["a"]]}, "`predictions[0]` must name a label once"),
    ("multilabel_f1", {"predictions": [[0, 1]], "references": [[1]]}, "`references[0]` must have as many entries as"),
    ("multilabel_f1", {"predictions": [[0.5]], "references": [[1]]}, "`predictions[0]` must hold 0 and 1, got 0.5"),
    ("multilabel_f1", {"predictions": [[]], "references": [[]]}, "`labels` must be given when no study has a label"),
    (
        "multilabel_f1",
        {"predictions": [["b"]], "references": [["a"]], "labels": ["a"]},
        "`predictions[0]` must be in `labels` ['a'], got 'b'",
    ),
    ("multilabel_f1", {"predictions": [[1]], "references": [[1]], "labels": ["a", "b"]}, "one entry per label (2)"),
    ("multilabel_f1", {"predictions": [[1]], "references": [[1]], "labels": ["a", "a"]}, "`labels` must not hold one"),
    (
        "rater_agreement",
        {"predictions": [1.5], "references": [1]},
        "`predictions[0]` must be an integer or the name of",
    ),
    ("rater_agreement", {"predictions": ["a"], "references": [1]}, "must be all integers or all names of categories"),
    ("rater_agreement", {"predictions": [7], "references": [1], "categories": [1, 2]}, "must be one of `categories`"),
]


@pytest.mark.parametrize(("name", "inputs", "message"), MISTAKES)
def test_errors_are_in_our_words(name: str, inputs: dict[str, Any], message: str) -> None:
    metric = reveal_bench.load_metric(name)
    with pytest.raises(ValueError, match=re.escape(message)):
        metric.compute(**inputs)
    predictions, references = INPUTS[name]  # the wrong inputs are forgotten
    assert metric.compute(predictions=predictions, references=references)


@pytest.mark.parametrize("name", ALL)
def test_errors_of_all_modules(name: str) -> None:
    predictions, references = INPUTS[name]
    metric = reveal_bench.load_metric(name)
    for inputs, message in (
        ({}, "`predictions` and `references` must hold at least one case, got none"),
        ({"predictions": [], "references": []}, "`predictions` and `references` must hold at least one case, got none"),
        ({"predictions": predictions}, "`references` must be a list with one entry per case, got None"),
        ({"predictions": predictions, "references": references[:2]}, "must have the length of `references` (2), got 3"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            metric.compute(**inputs)
    for options, message in (
        ({"patients": ["a"]}, "`patients` must have the length of `predictions` (3), got 1"),
        (
            {"patients": ["a"] * 3, "all_patients": ["b"]},
            "`all_patients` must hold every patient of `patients`, 'a' is",
        ),
        ({"all_patients": ["b"]}, "`all_patients` must hold every patient of `patients`"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            metric.compute(predictions=predictions, references=references, **options)
        assert len(metric) == 0  # nothing refused stays behind
    with pytest.raises(ValueError, match=re.escape("`patients` must be given to compute(), not with a batch")):
        metric.add_batch(predictions=predictions, references=references, patients=["a"] * 3)


def test_forms_do_not_change_between_batches() -> None:
    metric = reveal_bench.load_metric("hit_rate")
    metric.add(prediction="A1", reference=FULL)
    with pytest.raises(ValueError, match="must be all points or all cells, got both"):
        metric.add(prediction=[1, 1], reference=FULL)
    metric.add(prediction=None, reference=FULL)
    assert metric.compute()["hit_rate"] == 0.5


def test_unknown_module() -> None:
    with pytest.raises(ValueError, match=re.escape(f"`name` must be one of {sorted(ALL)}, got 'dice'")):
        reveal_bench.load_metric("dice")


@pytest.mark.parametrize("name", ALL)
def test_widget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's app.py opens, and computes the values typed into its table."""
    gradio = pytest.importorskip("gradio")
    pandas = pytest.importorskip("pandas")
    opened: list[Any] = []
    monkeypatch.setattr(gradio.Interface, "launch", lambda self, *_, **__: opened.append(self))
    folder = ROOT / "reveal_bench" / "evaluate_modules" / name
    monkeypatch.setattr("sys.path", [str(folder), *sys.path])
    runpy.run_path(str(folder / "app.py"), run_name="__main__")
    predictions, references = INPUTS[name]
    typed = {"predictions": map(json.dumps, predictions), "references": map(json.dumps, references)}
    if name == "rater_agreement":
        typed = {"predictions": predictions, "references": references}
    table = opened[0].fn(pandas.DataFrame(typed))
    expected = reveal_bench.load_metric(name).compute(predictions=predictions, references=references)
    np.testing.assert_equal(table, expected)
    assert "# " in opened[0].article  # the README
