"""A part of a detection split: marks on other images and findings are left out and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reveal_bench as rb
from tests.kinds.test_detection import detections, root

__all__ = ["root"]


def test_detections_are_scored_on_the_findings_and_images_asked(root: Path, tmp_path: Path) -> None:
    folder = root / "public"
    bench = rb.load(folder)
    marks = detections(folder, "released", share=0.6)
    images = sorted(bench.manifest.rows)[::2]
    part = bench.select("Effusion", ids=images)
    asked = [one for one in marks if one["category_id"] == "Effusion" and one["image_id"] in images]
    assert len(asked) < len(marks)
    scores = {}
    for name, lines in (("all", marks), ("asked", asked)):
        (tmp_path / f"{name}.json").write_text(json.dumps(lines))
        scored = rb.score(tmp_path / f"{name}.json", part, n_resamples=20).scored
        scores[name] = {(one.metric, one.finding): one.value for one in scored.estimates}
        warned = [one.message for one in scored.report.problems if one.rule == "not-asked"]
        n = len(marks) - len(asked)
        assert warned == ([] if name == "asked" else [f"left out {n:,} entries outside the asked part"])
    assert scores["all"] == pytest.approx(scores["asked"], nan_ok=True)
    assert {finding for _, finding in scores["all"]} <= {"macro", "Effusion", "all"}
    with_all = {
        (one.metric, one.finding): one.value
        for one in rb.score(tmp_path / "all.json", bench.select("Effusion"), n_resamples=20).scored.estimates
    }
    whole = {
        (one.metric, one.finding): one.value
        for one in rb.score(tmp_path / "all.json", bench, n_resamples=20).scored.estimates
    }
    key = ("ap_50", "Effusion")
    assert with_all[key] == pytest.approx(whole[key], abs=1e-12)
