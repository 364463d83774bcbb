"""docs/saliency.md: its examples, run on a phantom of CheXlocalize; that with torch where `make soak` has torch."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

import reveal_bench as rb
from tests.cli.test_score import call
from tests.conftest import ROOT
from tests.markdown import blocks
from tests.saliency.torch_env import PYTHON, needs_torch

PLAIN, WITH_TORCH = (block.text for block in blocks(ROOT / "docs" / "saliency.md", "python"))


def test_the_example_makes_maps_and_scores_them(twin_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call(
        "build", twin_of("chexlocalize"), "--source", "chexlocalize", "--images", "withhold", "--out", tmp_path / "data"
    )
    made: dict[str, object] = {}
    exec(PLAIN, made)
    asked = rb.load("data", split="test").manifest.asked_pairs()
    done = made["done"]
    assert done.n_predictions + len(done.missing) == len(asked)
    assert done.n_predictions > 0
    assert {row["metric"] for row in made["scores"].records} >= {"point_hit", "mask_iou"}


@needs_torch
def test_the_example_with_torch_runs_in_the_environment_that_has_it(twin_of, tmp_path: Path) -> None:
    """Its python has torch and not this package: what else it needs comes from here, after its own."""
    call("build", twin_of("chexlocalize"), "--source", "chexlocalize", "--asks", "all", "--out", tmp_path / "data")
    script = tmp_path / "example.py"
    begin = f"import sys\nsys.path += {[str(ROOT), sysconfig.get_path('purelib')]!r}\n"
    end = "\nprint(done.n_predictions, done.n_constant)\n"
    script.write_text(begin + WITH_TORCH + end, encoding="utf-8")
    output = subprocess.run([str(PYTHON), script], cwd=tmp_path, text=True, capture_output=True, check=False)
    assert output.returncode == 0, output.stderr
    n_predictions, n_constant = map(int, output.stdout.split()[-2:])
    asked = rb.load(tmp_path / "data", split="test").manifest.asked_pairs()
    assert n_predictions == len(asked)
    assert n_constant < len(asked)
    scores = rb.score(tmp_path / "gradcam.jsonl", tmp_path / "data", split="test", n_resamples=1)
    assert {row["metric"] for row in scores.records} >= {"point_hit", "mask_iou", "auroc"}
