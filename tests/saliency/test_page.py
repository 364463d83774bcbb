"""docs/saliency.md: the example without torch, run on a phantom of CheXlocalize."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reveal_bench as rb
from tests.cli.test_score import call
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "saliency.md").read_text(encoding="utf-8")


def test_the_example_makes_maps_and_scores_them(twin_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call(
        "build", twin_of("chexlocalize"), "--source", "chexlocalize", "--images", "withhold", "--out", tmp_path / "data"
    )
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE)
    made: dict[str, object] = {}
    exec(code, made)
    asked = rb.load("data", split="test").manifest.asked_pairs()
    done = made["done"]
    assert done.n_predictions + len(done.missing) == len(asked)
    assert done.n_predictions > 0
    assert {row["metric"] for row in made["scores"].records} >= {"point_hit", "mask_iou"}
