"""Exported folders opened with FiftyOne, datumaro and Label Studio's converter, in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reveal_bench.exchange.transfer import to_form
from reveal_bench.kinds import KINDS
from reveal_bench.masks import pack_masks

PYTHON = os.environ.get("REVEAL_EXCHANGE_PYTHON")


@pytest.mark.skipif(PYTHON is None, reason="needs FiftyOne and others in an environment of its own: make soak")
def test_the_tools_that_the_forms_are_of_find_all_that_was_drawn(built: Callable[[str], Path], tmp_path: Path) -> None:
    folder, forms = built("chexlocalize"), ("cvat", "label-studio", "fiftyone")
    for form in forms:
        to_form(form, folder, "released", tmp_path / form)
    records = KINDS["localization"].data.read_records(folder, "released")
    masks = [one.rle for record in records for one in record.annotations if one.rle is not None and one.area_px]
    n_pixels, n_points = int(pack_masks(masks).areas.sum()), sum(len(record.points) for record in records)
    process = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("own_tools.py")), *(str(tmp_path / form) for form in forms)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    opened = json.loads(process.stdout.splitlines()[-1])
    called = {
        "cvat": ("mask", "points"),
        "label-studio": ("brushlabels", "keypointlabels"),
        "fiftyone": ("Detection", "Keypoint"),
    }
    for form, (mask, point) in called.items():
        assert opened[form]["images"] == len(records)
        assert opened[form]["foreground"] == n_pixels
        assert opened[form]["kinds"][mask] == len(masks)
        assert opened[form]["kinds"][point] == n_points
