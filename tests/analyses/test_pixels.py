"""Pixel statistics: counted by hand on small masks, and against decoded masks on random ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.analyses.pixels import STATISTICS, PixelStatistic, boundary_means, pixel_statistics
from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import (
    Annotation,
    LocalizationPrediction,
    LocalizationRecord,
    read_localization,
)
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
    inputs = [("i1", square(6, 4, 4)), ("i2", square(1, 1, 2)), ("i3", square(0, 0, 9))]
    predictions = [LocalizationPrediction(i, "Edema", mask=encode_mask(mask)) for i, mask in inputs]
    results = by_name(pixel_statistics(predictions, records, ["Edema", "Atelectasis"]))
    counts = {name: (results["Edema", name].right_px, results["Edema", name].wrong_px) for name in STATISTICS}
    # In all 512 pixels: 8 true positives, 8 + 4 false positives, 8 false negatives, 484 true negatives
    assert counts == {"precision": (8, 12), "recall": (8, 8), "specificity": (484, 12), "npv": (484, 8)}
    assert results["Edema", "precision"].pooled.value == 8 / 20
    assert results["Edema", "specificity"].pooled.value == 484 / 496
    # Per image: precision 8 / 16 and 0 / 4, recall 8 / 16 alone, specificity 232 / 240 and 252 / 256
    assert (results["Edema", "precision"].mean_of_images.value, results["Edema", "precision"].n) == (0.25, 2)
    assert (results["Edema", "recall"].mean_of_images.value, results["Edema", "recall"].n) == (0.5, 1)
    assert results["Edema", "specificity"].mean_of_images.value == (232 / 240 + 252 / 256) / 2
    # Atelectasis: nothing predicted, so no precision; 9 pixels missed
    assert np.isnan(results["Atelectasis", "precision"].pooled.value)
    pooled = [results["Atelectasis", name].pooled.value for name in ("recall", "npv")]
    assert pooled == [0.0, 503 / 512]
    assert results["macro", "precision"].pooled.value == 8 / 20  # over the findings where it is defined
    assert results["macro", "recall"].pooled.value == (0.5 + 0.0) / 2
    assert np.isnan(results["Edema", "recall"].pooled.low)  # one patient


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
    call("score", file, world.folder, "--pixels", tmp_path / "pixels.csv", "--boundaries", tmp_path / "edges.csv",
         "--box-accuracy", tmp_path / "boxes.csv")  # fmt: skip
    located = (tmp_path / "boxes.csv").read_text().splitlines()
    assert located[0] == "finding,overlap,threshold,accuracy,accuracy_low,accuracy_high,false_boxes,n"
    assert located[1].startswith("macro,iou,0.1,")
    edges = pd.read_csv(tmp_path / "edges.csv")
    assert set(edges["metric"]) == {"dice", "boundary_iou", "surface_distance", "hausdorff_95"}
    assert edges["finding"][0] == "macro"
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
    table = rb.pixels(file, world.folder).printed_rows()
    assert [row["finding"] for row in table] == ["macro", *CHEXLOCALIZE_FINDINGS]


@pytest.mark.parametrize(
    ("spacing", "unit", "far", "near"), [(None, "pixels", 3.0, 44 / 72), ((0.5, 0.5), "mm", 1.5, 1)]
)
def test_boundaries_by_hand(spacing: tuple[float, float] | None, unit: str, far: float, near: float) -> None:
    """Edema: found as drawn, and not at all. Atelectasis: a square of 10 x 10 that is found 3 columns to the right.

    There 70 of 100 pixels are shared: Dice 140 / 200. Of 36 pixels of either boundary 14 are 3 pixels from the other:
    the 10 of the outer side, and of the inner side the 4 in its middle, which upper and lower edge are not nearer to.
    """
    square, moved = np.zeros((2, 40, 40), bool)
    square[10:20, 10:20] = moved[10:20, 13:23] = True
    drawn, results = encode_mask(square), encode_mask(moved)

    def image(name: str, *findings: str) -> LocalizationRecord:
        status: dict[str, int | None] = {one: int(one in findings) for one in ("Edema", "Atelectasis")}
        own = tuple(Annotation(one, "ground_truth", drawn, (), (10, 10, 10, 10), 1, 100) for one in findings)
        return LocalizationRecord(name, name, name, "PA", 40, 40, status, spacing_mm=spacing, annotations=own)

    records = [image("a", "Edema", "Atelectasis"), image("b", "Edema")]
    predictions = [
        LocalizationPrediction("a", "Edema", mask=drawn),
        LocalizationPrediction("a", "Atelectasis", mask=results),
    ]
    means = boundary_means(predictions, records, ("Edema", "Atelectasis"))
    values = {(one.metric, one.finding): (one.value, one.n, one.n_infinite) for one in means}
    assert {one.unit for one in means} == {unit}
    for metric in ("dice", "boundary_iou", "surface_distance"):
        assert values[metric, "Edema"] == (0.5, 2, 0)
    assert values["hausdorff_95", "Edema"] == (0, 1, 1)
    assert values["dice", "Atelectasis"] == (0.7, 1, 0)
    assert values["dice", "macro"] == (0.6, 2, 0)
    assert values["hausdorff_95", "Atelectasis"] == (far, 1, 0)
    assert values["surface_distance", "Atelectasis"][0] == pytest.approx(near)
    with pytest.raises(ArgumentError, match="must have masks, whose boundaries are compared"):
        boundary_means([], records, ("Edema",))


def test_predictions_without_masks_are_refused(world: World, tmp_path: Path) -> None:
    file = tmp_path / "chance.jsonl"
    call("baseline", "chance", world.folder, "--out", file)
    with pytest.raises(ArgumentError, match="`predictions` must have masks, whose pixels are counted"):
        rb.pixels(file, world.folder)
    folder = findings_folder(tmp_path)
    with pytest.raises(ArgumentError, match="`bench` must be a localization benchmark"):
        rb.pixels([{"study_id": "s", "labels": []}], folder, allow_missing=True)
