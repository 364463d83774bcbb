"""Pixel statistics: counted by hand on small masks, and against decoded masks on random ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.pixels import STATISTICS, PixelStatistic, pixel_statistics
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_localization
from reveal_bench.masks import decode_mask, encode_mask
from tests.cli.test_score import call
from tests.conftest import World
from tests.dataset.card_folders import findings_folder
from tests.kinds.test_scoring import record, square


def by_name(rows: list[PixelStatistic]) -> dict[tuple[str, str], PixelStatistic]:
    return {(one.finding, one.statistic): one for one in rows}


def test_pixels_counted_by_hand() -> None:
    # Images of 16 x 16 = 256 pixels. Edema: i1 has a reference of 4 x 4 = 16 pixels and a mask of 16 that shares
    # 2 x 4 = 8; i2 has none of Edema, and a mask of 2 x 2 = 4; i3 has nothing drawn and does not count. Atelectasis: i2
    # has 9 pixels, and no mask.
    records = [
        record("i1", {"Edema": square(4, 4, 4)}),
        record("i2", {"Atelectasis": square(0, 0, 3)}),
        record("i3", {}),
    ]
    given = [("i1", square(6, 4, 4)), ("i2", square(1, 1, 2)), ("i3", square(0, 0, 9))]
    predictions = [LocalizationPrediction(i, "Edema", mask=encode_mask(mask)) for i, mask in given]
    found = by_name(pixel_statistics(predictions, records, ["Edema", "Atelectasis"]))
    counts = {name: (found["Edema", name].right, found["Edema", name].wrong) for name in STATISTICS}
    # In all 512 pixels: 8 true positives, 8 + 4 false positives, 8 false negatives, 484 true negatives
    assert counts == {"precision": (8, 12), "recall": (8, 8), "specificity": (484, 12), "npv": (484, 8)}
    assert found["Edema", "precision"].pooled.value == 8 / 20
    assert found["Edema", "specificity"].pooled.value == 484 / 496
    # Per image: precision 8 / 16 and 0 / 4, recall 8 / 16 alone, specificity 232 / 240 and 252 / 256
    assert (found["Edema", "precision"].mean.value, found["Edema", "precision"].n) == (0.25, 2)
    assert (found["Edema", "recall"].mean.value, found["Edema", "recall"].n) == (0.5, 1)
    assert found["Edema", "specificity"].mean.value == (232 / 240 + 252 / 256) / 2
    # Atelectasis: nothing predicted, so no precision; 9 pixels missed
    assert np.isnan(found["Atelectasis", "precision"].pooled.value)
    assert (found["Atelectasis", "recall"].pooled.value, found["Atelectasis", "npv"].pooled.value) == (0.0, 503 / 512)
    assert found["macro", "precision"].pooled.value == 8 / 20  # over the findings where it is defined
    assert found["macro", "recall"].pooled.value == (0.5 + 0.0) / 2
    assert np.isnan(found["Edema", "recall"].pooled.low)  # one patient


def test_pooled_figures_are_those_of_decoded_masks(world: World, rng: np.random.Generator, tmp_path: Path) -> None:
    records = [one for one in read_localization(world.folder, "released") if one.annotations]
    counts = {finding: np.zeros(4, int) for finding in CHEXLOCALIZE_FINDINGS}
    predictions = []
    for one in records:
        for finding in CHEXLOCALIZE_FINDINGS:
            annotation = one.reference(finding)
            truth, mask = np.zeros(one.size, bool), np.zeros(one.size, bool)
            if annotation is not None and annotation.rle is not None:
                truth = decode_mask(annotation.rle).astype(bool)
                x, y, side = (int(v) for v in rng.integers(0, 30, 3))
                mask[y : y + side, x : x + side] = True
                predictions.append(LocalizationPrediction(one.image_id, finding, mask=encode_mask(mask)))
            counts[finding] += [
                (mask & truth).sum(),
                (mask & ~truth).sum(),
                (~mask & truth).sum(),
                (~mask & ~truth).sum(),
            ]
    file = tmp_path / "masks.jsonl"
    file.write_text(predictions_to_jsonl(predictions), encoding="utf-8")
    call("score", file, world.folder, "--pixels", tmp_path / "pixels.csv")
    written = pd.read_csv(tmp_path / "pixels.csv").set_index(["finding", "statistic"])
    for finding, (tp, fp, fn, tn) in counts.items():
        expected = {
            "precision": tp / (tp + fp),
            "recall": tp / (tp + fn),
            "specificity": tn / (tn + fp),
            "npv": tn / (tn + fn),
        }
        for name, value in expected.items():
            row = written.loc[(finding, name)]
            assert row["pooled"] == pytest.approx(value, rel=1e-12)
            assert np.isnan(row["pooled_low"]) or row["pooled_low"] < value < row["pooled_high"]
    assert written["pooled_low"].notna().sum() > 20
    macro = written.loc[("macro", "recall")]
    assert macro["pooled"] == pytest.approx(written.xs("recall", level=1)["pooled"][1:].mean(), rel=1e-12)
    table = rb.pixels(file, world.folder).rows_shown()
    assert [row["finding"] for row in table] == ["macro", *CHEXLOCALIZE_FINDINGS]


def test_what_has_no_masks_is_refused(world: World, tmp_path: Path) -> None:
    file = tmp_path / "chance.jsonl"
    call("baseline", "chance", world.folder, "--out", file)
    with pytest.raises(ArgumentError, match="`predictions` must have masks, whose pixels are counted"):
        rb.pixels(file, world.folder)
    folder = findings_folder(tmp_path)
    with pytest.raises(ArgumentError, match="`bench` must be of localization"):
        rb.pixels([{"study_id": "s", "labels": []}], folder, allow_missing=True)
