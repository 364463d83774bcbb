"""`report --saliency`: one page from folders of heat maps, equal to the output of the single commands."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reveal_bench as rb
from reveal_bench.analyses.relative_decrease import decreases_csv, in_printed_order
from reveal_bench.api import human_page
from reveal_bench.api.comparison_tables import Comparisons
from reveal_bench.masks import decode_mask
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.phantom import LAYOUTS
from reveal_bench.reports.style import Illustration
from tests.cli.test_score import call
from tests.conftest import made_once
from tests.reports.test_papers import files_of_paper

CHAPTERS = [
    "Localization", "Decrease from human", "Example images", "Shapes of the references",
    "Features associated with poor localization", "Confidence", "Thresholds", "Pixels", "Gates",
]  # fmt: skip


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A download with enough of a validation split to tune on, and a folder that asks for present findings."""

    def make(root: Path) -> None:
        LAYOUTS["chexlocalize"](root / "raw", 12, seed=3, long_side=64, n_val=12)
        for asks in ("present", "all"):
            call("build", root / "raw", "--asks", asks, "--images", "withhold", "--workers", 1, "--out", root / asks)

    return made_once(tmp_path_factory, "saliency-report", make)


def write_maps(folder: Path, out: Path, noise: float, *, is_sure: bool = True) -> Path:
    """Maps of both splits: the reference made coarse, under noise, with a probability that knows a little."""
    rng = np.random.default_rng(2)
    out.mkdir(parents=True)
    for split in ("validation", "test"):
        for record in rb.load(folder, split=split).kind.data.read_records(folder, split):
            for finding in record.label_status:
                reference = record.reference(finding)
                heat = noise * rng.random((8, 8))
                if reference is not None and reference.rle is not None:
                    mask = decode_mask(reference.rle)
                    rows, columns = (np.linspace(0, side - 1, 8).astype(int) for side in mask.shape)
                    heat += mask[np.ix_(rows, columns)]
                answer = (
                    {"prob": rng.uniform(0.3, 1) if reference is not None else rng.uniform(0, 0.7)} if is_sure else {}
                )
                np.savez(out / f"{record.image_id}_{finding}.npz", map=heat, **answer)
    return out


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn in other tests."""
    monkeypatch.setattr(Illustration, "file", lambda self, kind: b"")
    monkeypatch.setattr(Illustration, "for_page", lambda self: [("wide", f"<svg>{self.name}</svg>")])


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("no_drawing")
def test_one_command_makes_what_the_single_ones_make(phantom: Path, tmp_path: Path) -> None:
    folder, out = phantom / "present", tmp_path / "page"
    maps = {name: write_maps(folder, tmp_path / name, noise) for name, noise in (("cam", 0.6), ("worse", 1.4))}
    how = ("--split", "test")
    tuning = ("--tune-split", "validation")
    call(
        "report", maps["cam"], f"second={maps['worse']}", "--saliency", "--folder", folder, *how, *tuning, "--out", out
    )

    made = out / "predictions"
    for name, options in (
        ("cam", ()),
        ("cam-tuned", ("--threshold", "tuned", *tuning)),
        ("cam-gated", ("--gate", "tuned", *tuning)),
    ):
        file = tmp_path / f"{name}.jsonl"
        call("saliency", maps["cam"], folder, *how, *options, "--out", file)
        for path in tmp_path.glob(f"{name}.jsonl*"):
            assert (made / path.name).read_bytes() == path.read_bytes(), path.name
    call("baseline", "human", folder, *how, "--out", tmp_path / "human.jsonl")
    assert (made / "human.jsonl").read_bytes() == (tmp_path / "human.jsonl").read_bytes()

    page = (out / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == CHAPTERS
    drawn = re.findall(r"<svg>(.*?)</svg>", page)
    assert drawn == [
        "both_point_hit", "both_mask_iou", "decrease_point_hit", "decrease_mask_iou", "shapes", "tuning",
        "tuned_both_mask_iou", "gates", "gated_both_mask_iou_all",
    ]  # fmt: skip
    assert "of human, second and cam.</strong>" in page
    assert "Absent findings are not asked about here" in page
    named = files_of_paper("002")
    assert len(named) == 16
    assert {name for name in named if not (out / name).is_file()} == set()
    methods = rows_of(out / "tables" / "methods.csv")
    for system, file in (
        ("cam", made / "cam.jsonl"),
        ("second", made / "second.jsonl"),
        ("human", made / "human.jsonl"),
    ):
        options: dict[str, Any] = {"split": "test", "missing": "miss", "n_resamples": 1}
        visible = {(row["metric"], row["finding"]): row["value"] for row in rb.score(file, folder, **options).records}
        own = [row for row in methods if row["system"] == system]
        assert len(own) > 10
        for row in own:
            assert float(row["value"]) == pytest.approx(visible[row["metric"], row["finding"]])
    compared = rb.compare(made / "cam.jsonl", made / "human.jsonl", folder, split="test", relative=True, missing="miss")
    chosen = in_printed_order([one for one in compared.comparisons if one.metric in ("mask_iou", "point_hit")])
    assert (out / "tables" / "decrease.csv").read_text(encoding="utf-8") == decreases_csv(chosen)


@pytest.mark.usefixtures("no_drawing")
def test_a_finding_that_cannot_be_tuned_is_left_out_and_auroc_stands_beside_the_others(
    phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = phantom / "all", tmp_path / "page"
    visible: dict[str, Comparisons] = {}
    draw = human_page._figures_of_both
    monkeypatch.setattr(
        human_page, "_figures_of_both", lambda compared, word: draw(visible.setdefault(word, compared), word)
    )
    maps = write_maps(folder, tmp_path / "cam", 0.6)
    left = "Edema"
    for image in rb.load(folder, split="validation").manifest.rows:
        (maps / f"{image}_{left}.npz").unlink()
    output = call(
        "report", maps, "--saliency", "--folder", folder, "--split", "test", "--tune-split", "validation", "--out", out
    ).stderr
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "auroc" in re.findall(r"<svg>(.*?)</svg>", page)
    assert "order of their relative decrease. The AUROC is that of cam." in page
    assert "Absent findings are not asked about here" not in page
    words = " ".join(output.split())
    assert f"No gate could be tuned for {left} on split 'validation'; results" in words
    lacking = re.search(r"No threshold could be tuned for (.*?) on split", words)
    assert lacking is not None
    assert left in lacking[1].split(", ")
    for compared, names in ((visible["tuned"], lacking[1].split(", ")), (visible["gated"], [left])):
        assert not {one.finding for one in compared.comparisons} & set(names)
        metric = compared.comparisons[0].metric
        ious = {one.finding: one.value for one in compared.scored_a.estimates if one.metric == metric}
        mean = ious.pop(MACRO)
        assert not set(ious) & set(names)
        assert mean == pytest.approx(np.nanmean(list(ious.values())))
    gated = rb.score(out / "predictions" / "cam-gated.jsonl", folder, split="test", n_resamples=1)
    visible = {row["finding"]: row["n"] for row in gated.records if row["metric"] == "mask_iou_all"}
    pooled = [row for row in rows_of(out / "tables" / "confidence.csv") if row["outcome"] == "IoU"]
    for row in pooled:  # absent findings with a mask count, too
        assert int(row["n"]) == (
            visible[row["finding"]] if row["finding"] in visible else sum(visible.values()) - visible["macro"]
        )


@pytest.mark.usefixtures("no_drawing")
def test_what_cannot_be_made_is_left_out_and_told(phantom: Path, tmp_path: Path) -> None:
    folder, out = phantom / "present", tmp_path / "page"
    maps = write_maps(folder, tmp_path / "cam", 0.6, is_sure=False)
    words = ("report", maps, "--saliency", "--folder", folder, "--split", "test", "--out", out)
    assert "Thresholds and gates are missing because no split for tuning was given." in call(*words).stderr
    page = (out / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == [
        c for c in CHAPTERS if c not in ("Confidence", "Thresholds", "Gates")
    ]
    output = call(*words, "--tune-split", "validation").stderr
    assert "Gates are missing because the maps of cam have no probability." in output
    for more, message in (
        (("--reference", "cam"), "a report of `--saliency` takes no option of other reports"),
        (("--tune-split", "test"), "must not be tuned on the predicted split"),
    ):
        assert message in call(*words, *more, expect=1).stderr
    named = call("report", f"human={maps}", *words[2:], expect=1).stderr
    assert "must have names that are valid as file names, other than 'human'" in named
