"""The published tables against a plain pandas re-implementation, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.analyses.compat import COMPAT, chexlocalize_tables, published_tables
from reveal_bench.arguments import ArgumentError
from reveal_bench.cli.score_tables import Compat
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.records import read_localization
from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.masks import empty_rle
from reveal_bench.metrics.intervals import Resampling
from tests.cli.test_score import call
from tests.conftest import World
from tests.dataset.card_folders import findings_folder

N_IMAGES = 57
IMAGES = tuple((f"patient{(i * 7919) % 65000:05d}_study1_view1_frontal", f"patient{i // 2}") for i in range(N_IMAGES))


@pytest.fixture
def rows(rng: np.random.Generator) -> CaseRows:
    """Hits and IoU of a third of all pairs, out of order; one finding is rare, the last five images have no row."""
    pairs = [
        (image, finding)
        for image in range(N_IMAGES - 5)
        for finding in CHEXLOCALIZE_FINDINGS
        if rng.random() < (0.04 if finding == "Pneumothorax" else 0.4) or finding == "Edema"
    ]
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    iou = rng.random(len(pairs))
    iou[rng.random(len(pairs)) < 0.3] = np.nan
    return CaseRows(
        findings=CHEXLOCALIZE_FINDINGS,
        image_ids=[IMAGES[image][0] for image, _ in pairs],
        patient_ids=[IMAGES[image][1] for image, _ in pairs],
        case_findings=[finding for _, finding in pairs],
        point_kinds=["mask"] * len(pairs),
        cell_kinds=["mask"] * len(pairs),
        values={"point_hit": rng.integers(0, 2, len(pairs)).astype(float), "mask_iou": iou},
        all_images=IMAGES,
    )


def published(rows: CaseRows, metric: str, images: list[str], folder: Path) -> dict[str, bytes]:
    """The three files as the published code makes them: a table of images, resampled and averaged by pandas."""
    per_cxr = pd.DataFrame(np.nan, index=sorted(images), columns=sorted(CHEXLOCALIZE_FINDINGS))
    for image, finding, value in zip(rows.image_ids, rows.case_findings, rows.values[metric], strict=True):
        per_cxr.loc[image, finding] = value
    per_cxr["img_id"] = per_cxr.index
    stream = np.random.RandomState(0)
    replicates = []
    for _ in range(1000):
        resampled = per_cxr.iloc[stream.choice(len(per_cxr), size=len(per_cxr), replace=True)]
        replicates.append({finding: resampled[finding].mean() for finding in CHEXLOCALIZE_FINDINGS})
    bootstrap = pd.DataFrame(replicates)
    summary = []
    for finding in CHEXLOCALIZE_FINDINGS:
        ordered = bootstrap[finding].sort_values()
        low, high = (ordered.iloc[int(share * 1000) - 1].round(3) for share in (0.025, 0.975))
        summary.append({"name": finding, "lower": low, "mean": ordered.mean().round(3), "upper": high})
    tables = {
        "results_per_cxr.csv": per_cxr,
        "bootstrap_results_per_cxr.csv": bootstrap,
        "summary_results.csv": pd.DataFrame(summary).sort_values("name"),
    }
    for name, table in tables.items():
        table.to_csv(folder / name, index=False)
    return {name: (folder / name).read_bytes() for name in tables}


@pytest.mark.parametrize(
    ("metric", "human", "start"), [("point_hit", True, "hitmiss_humanbenchmark_"), ("mask_iou", False, "iou_")]
)
@pytest.mark.parametrize("everything", [False, True])
def test_the_files_equal_those_of_pandas_byte_for_byte(
    metric: str, human: bool, start: str, everything: bool, rows: CaseRows, tmp_path: Path
) -> None:
    # by default images with a positive finding alone, as in the ground-truth file; or all of the split
    images = [image for image, _ in IMAGES] if everything else sorted(set(rows.image_ids))
    assert len(images) == (N_IMAGES if everything else N_IMAGES - 5)
    tables = chexlocalize_tables(rows, metric, images=images if everything else None)
    written = tables.write(tmp_path / "ours", human=human)
    expected = published(rows, metric, images, tmp_path)
    assert {path.name.removeprefix(start): path.read_bytes() for path in written} == expected
    rare = tables.findings.index("Pneumothorax")
    assert np.isnan(tables.replicates[:, rare]).sum() > 25  # so that the published upper end is undefined
    assert np.isnan(tables.summary[rare, 2])


def test_the_stream_is_one_draw_over_images_sorted_by_id(rows: CaseRows) -> None:
    tables = chexlocalize_tables(rows, "point_hit", Resampling(40, 3))
    assert tables.image_ids == sorted(set(rows.image_ids))
    draws = np.random.RandomState(3).randint(0, len(tables.image_ids), (40, len(tables.image_ids)))
    edema = tables.findings.index("Edema")  # every image with a row has it
    assert tables.replicates[:, edema].tolist() == [tables.per_image[draw, edema].mean() for draw in draws]


def test_images_can_be_a_part_of_those_with_rows(rows: CaseRows) -> None:
    some = sorted(set(rows.image_ids))[:7]
    part, whole = chexlocalize_tables(rows, "mask_iou", images=some), chexlocalize_tables(rows, "mask_iou")
    assert part.image_ids == some
    assert np.array_equal(part.per_image, whole.per_image[:7], equal_nan=True)


def test_the_rule_without_the_draws_is_an_interval_of_summarize(rows: CaseRows) -> None:
    got = {
        e.finding: e for e in summarize(rows, Resampling(unit="image", interval="chexlocalize"), metrics=["point_hit"])
    }
    plain = {
        e.finding: e for e in summarize(rows, Resampling(unit="image", interval="percentile"), metrics=["point_hit"])
    }
    assert got["Edema"].signature == "point_hit|b:1000|seed:0|unit:image|i:chexlocalize|v:1"
    for finding, estimate in got.items():
        assert estimate.value == round(estimate.value, 3)
        assert estimate.value == pytest.approx(plain[finding].value, abs=0.02)
        assert estimate.low == pytest.approx(plain[finding].low, abs=0.01)


def test_what_cannot_be_tabulated_is_refused(rows: CaseRows) -> None:
    for options, message in (
        ({"metric": "grid_hit"}, "`metric` must be among ['point_hit', 'mask_iou'], got 'grid_hit'"),
        ({"metric": "mask_iou", "resampling": Resampling(39)}, "`n_resamples` must be at least 40"),
        ({"metric": "mask_iou", "images": ["nobody"]}, "images of the split, at least one, got 'nobody'"),
        ({"metric": "mask_iou", "images": []}, "images of the split, at least one, got 'none'"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            chexlocalize_tables(rows, **options)


def test_the_command_writes_the_tables_of_a_file(world: World, tmp_path: Path) -> None:
    """Three images are drawn upon, one of them empty; a fourth has no answer: it is undefined, and a missed point."""
    records = [record for record in read_localization(world.folder, "released") if record.annotations][:4]
    lines = []
    for i, record in enumerate(records[:3]):
        for annotation in record.annotations:
            mask = empty_rle(record.size) if i == 2 else annotation.rle
            shape = {"size": list(mask.size), "counts": mask.counts}
            lines.append({"image_id": record.image_id, "finding": annotation.finding, "rle": shape})
    file = tmp_path / "masks.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ("--allow-missing", "--resamples", 40)
    call("score", file, world.folder, *options, "--compat", "chexlocalize", "--tables", tmp_path / "out", "--human")
    start = "iou_humanbenchmark"
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("iou")) == [
        f"{start}_bootstrap_results_per_cxr.csv", f"{start}_results_per_cxr.csv", f"{start}_summary_results.csv"
    ]  # fmt: skip
    table = pd.read_csv(tmp_path / "out" / f"{start}_results_per_cxr.csv").set_index("img_id")
    for record, value in zip(records, (1, 1, np.nan, np.nan), strict=True):
        results = table.loc[record.image_id, [annotation.finding for annotation in record.annotations]]
        assert results.tolist() == pytest.approx([value] * len(results), nan_ok=True)
    refused = call(
        "score", file, world.folder, *options, "--compat", "chexlocalize-full", "--tables", tmp_path, expect=1
    )
    assert "needs a dataset that asks every finding of every image: build one with `asks` set to all" in refused.stderr
    assert (
        "--compat must be given if and only if --tables is"
        in call("score", file, world.folder, "--tables", "x", expect=1).stderr
    )


def test_command_lists_conventions_and_labels_have_none(tmp_path: Path) -> None:
    assert get_args(Compat) == tuple(COMPAT)
    folder = findings_folder(tmp_path)
    labels = {f"study-{i}": ["Edema"] for i in range(6)}
    with pytest.raises(ArgumentError, match="`compat` must be used with a localization benchmark, got one of findings"):
        published_tables(rb.score(labels, folder, split="test", n_resamples=2).scored, "chexlocalize")
