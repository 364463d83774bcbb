"""Heat maps against torch, OpenCV and Pillow themselves, as the published code uses them (`make soak`).

Without fused multiplication and addition, as the torch of the paper had it, torch gives the same numbers to the last
bit wherever height and width add up to more than 128; smaller ones it blends in another order. With it, values differ
by rounding, and so does which of equal pixels is first.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.metrics.heat_maps import laid_over
from reveal_bench.saliency_maps.maps import MapFile, read_map
from tests.metrics.test_heat_maps import maps
from tests.saliency.torch_env import PYTHON, needs_torch

pytestmark = needs_torch
THRESHOLD = 0.4


def cases() -> list[dict[str, Any]]:
    """Blobs, noise, lone peaks, plateaus and rings over images of some 20,000 pixels, and constant maps."""
    rng = np.random.default_rng(0)
    heats = [np.full((4, 3), 0.1), *(heat for heat, _ in maps(rng))]
    sizes = rng.integers(65, 200, (len(heats), 2)).tolist()
    return [
        {"map": np.float32(heat).tolist(), "size": size, "threshold": THRESHOLD}
        for heat, size in zip(heats, sizes, strict=True)
    ]


def ask(asked: list[dict[str, Any]], folder: Path, **environment: str) -> Any:
    assert PYTHON is not None
    script, target = Path(__file__).with_name("torch_peers.py"), folder / "answers.npz"
    subprocess.run(
        [PYTHON, script, target, folder], input=json.dumps(asked), text=True, check=True, env=os.environ | environment
    )
    return np.load(target)


def test_maps_equal_torch_and_opencv_to_the_last_bit(tmp_path: Path) -> None:
    asked = cases()
    assert len(asked) > 450
    answer = ask(asked, tmp_path, ATEN_CPU_CAPABILITY="default")
    for i, case in enumerate(asked):
        heat = read_map(MapFile(tmp_path / f"{i}_Edema_map.pkl", "Edema"))  # as torch itself pickles it
        assert np.array_equal(heat.values, np.array(case["map"], np.float32))
        assert heat.probability == 0.25
        laid = laid_over(heat.values, tuple(case["size"]))
        otsu = laid.above_otsu(fill=True).dense(0)
        if i:  # interpolation leaves a constant map constant here; torch rounds it here and there
            assert np.array_equal(laid.fine(), answer[f"{i}_fine"])
            assert laid.place == answer[f"{i}_place"]
            assert np.array_equal(otsu, answer[f"{i}_otsu"])
            assert np.array_equal(laid.above(THRESHOLD).dense(0), answer[f"{i}_above"])
        else:
            assert not otsu.any()


def test_a_torch_that_fuses_differs_by_rounding_alone(tmp_path: Path) -> None:
    asked = cases()[1:]
    answer = ask(asked, tmp_path)
    n_pixels = n_differ = 0
    for i, case in enumerate(asked):
        laid = laid_over(np.array(case["map"], np.float32), tuple(case["size"]))
        np.testing.assert_allclose(laid.fine(), answer[f"{i}_fine"], rtol=0, atol=1e-6 * np.abs(laid.ends).max())
        n_pixels += np.prod(case["size"])
        n_differ += int((laid.above_otsu(fill=True).dense(0) != answer[f"{i}_otsu"]).sum())
        n_differ += int((laid.above(THRESHOLD).dense(0) != answer[f"{i}_above"]).sum())
    assert n_differ < 1e-4 * n_pixels
