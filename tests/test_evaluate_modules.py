"""`evaluate` modules: both ways to load them, and the same figures as `score`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reveal_bench
from reveal_bench.masks import Rle, encode_mask
from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.records import LocalizationPrediction, read_localization
from reveal_bench.scoring import score_localization, summarize
from tests.conftest import ROOT, World

pytest.importorskip("evaluate", reason="the extra [evaluate] is not installed: see README")


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
        assert (value, got["low"], got["high"]) == (estimate.value, estimate.low, estimate.high)
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
        return summarize(rows, metrics=[metric], findings=findings, seed=4)

    hit_rate, iou = load("hit_rate"), load("mask_iou")
    points = [[list(point) for point in p.points] for p in predictions]
    check(hit_rate.compute(predictions=points, references=references, **about), "hit_rate", estimates("point_hit"))
    single = [some[0] for some in points]
    check(hit_rate.compute(predictions=single, references=references, **about), "hit_rate", estimates("point_hit"))
    cells = ["D4"] * len(predictions)
    check(hit_rate.compute(predictions=cells, references=references, **about), "hit_rate", estimates("grid_hit"))
    masks = [as_dict(p.mask) for p in predictions if p.mask]
    check(iou.compute(predictions=masks, references=references, **about), "mask_iou", estimates("mask_iou"))
    every = iou.compute(predictions=masks, references=references, slice="all", **about)
    check(every, "mask_iou", estimates("mask_iou_all"))


def test_batches_add_up() -> None:
    metric = reveal_bench.load_metric("mask_iou")
    mask = as_dict(encode_mask(np.eye(4)))
    for _ in range(3):
        metric.add_batch(predictions=[mask, mask], references=[mask, mask])
    result = metric.compute()
    assert (result["mask_iou"], result["per_finding"]["all"]["n"]) == (1.0, 6)


def test_empty_predictions_are_misses() -> None:
    metric = reveal_bench.load_metric("hit_rate")
    mask = as_dict(encode_mask(np.ones((4, 4))))
    assert metric.compute(predictions=[[], [[1.0, 1.0]]], references=[mask, mask])["hit_rate"] == 0.5
    assert metric.compute(predictions=["", "A1"], references=[mask, mask])["hit_rate"] == 0.5


def test_errors_are_in_our_words() -> None:
    mask = as_dict(encode_mask(np.ones((4, 4))))
    with pytest.raises(ValueError, match=re.escape("must lie in the image 4 x 4, got (9.0, 1.0)")):
        reveal_bench.load_metric("hit_rate").compute(predictions=[[[9.0, 1.0]]], references=[mask])
    with pytest.raises(ValueError, match=re.escape("`counts` must sum to height x width = 4 x 4 = 16, got 1")):
        reveal_bench.load_metric("mask_iou").compute(predictions=[{"size": [4, 4], "counts": "1"}], references=[mask])
    with pytest.raises(ValueError, match=re.escape("`name` must be one of ['hit_rate', 'mask_iou'], got 'dice'")):
        reveal_bench.load_metric("dice")
