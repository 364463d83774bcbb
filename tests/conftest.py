"""Shared test set-up: where things are, and a small random world of masks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

# No test reaches beyond loopback; Hugging Face libraries must not try.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261121)


def random_masks(rng: np.random.Generator, n: int, *, largest: int = 40) -> list[npt.NDArray[np.bool_]]:
    """Random and degenerate masks: empty, full, one pixel wide, speckled, blobs, blobs at the border."""
    masks = []
    for i in range(n):
        height, width = (int(side) for side in rng.integers(1, largest + 1, 2))
        if i % 10 == 0:
            width = 1
        if i % 15 == 0:
            height = 1
        if i % 3 == 0:
            y, x = np.mgrid[:height, :width]
            centre = rng.uniform(0, height), rng.uniform(0, width)
            mask = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < rng.integers(1, largest**2 // 4)
        else:
            mask = rng.random((height, width)) < rng.choice([0.0, 0.05, 0.3, 0.7, 1.0])
        masks.append(mask)
    return masks
