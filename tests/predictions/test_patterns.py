"""Warnings about patterns in a whole file, and file statistics."""

from __future__ import annotations

import numpy as np
import pytest

from reveal_bench.masks import encode_mask
from tests.predictions.test_linter import SMALL, _line

# --- patterns of the whole file


def _many(points):
    return [{"image_id": f"p{i:02}", "finding": "Edema", "point": list(point)} for i, point in enumerate(points)]


def _warnings(report):
    return {problem.rule for problem in report.problems if problem.severity == "warning"} - {"missing-pairs"}


def test_normalised_coordinates_warn(lint, large_manifest):
    points = np.random.default_rng(0).uniform(0, 1, (40, 2))
    assert _warnings(lint(_many(points), against=large_manifest)) == {"normalised-coordinates"}


def test_boxes_in_the_first_pixel_are_refused(lint, large_manifest):
    boxes = np.random.default_rng(0).uniform(0.1, 0.5, (10, 4)).tolist()
    lines = [{"image_id": f"p{i:02}", "finding": "Edema", "box": box} for i, box in enumerate(boxes)]
    report = lint(lines, against=large_manifest)
    assert {p.rule for p in report.problems if p.severity == "error"} == {"normalised-boxes"}
    assert "fractions of the image `--normalised`" in report.render()
    lines[3]["box"] = [0, 0, 2, 1]  # one is larger
    assert "normalised-boxes" not in {p.rule for p in lint(lines, against=large_manifest).problems}


def test_resized_coordinates_warn(lint, large_manifest):
    points = np.random.default_rng(0).uniform(2, 1024, (40, 2))
    assert _warnings(lint(_many(points), against=large_manifest)) == {"resized-coordinates"}


def test_exchanged_axes_warn(lint, large_manifest):
    points = np.random.default_rng(0).uniform((0, 0), (2320, 2828), (40, 2))  # (y, x) of images 2828 wide
    report = lint(_many(points), against=large_manifest)
    n_outside = int((points[:, 1] >= 2320).sum())
    assert n_outside >= 5
    assert _warnings(report) == {"exchanged-axes"}
    assert report.n_errors == n_outside
    assert all("exchanged" in p.hint for p in report.problems if p.severity == "error")


def test_ordinary_coordinates_have_no_pattern(lint, large_manifest):
    points = np.random.default_rng(0).uniform((0, 0), (2828, 2320), (40, 2))
    assert _warnings(lint(_many(points), against=large_manifest)) == set()


@pytest.mark.parametrize(("n_same", "warns"), [(40, True), (37, True), (36, False)])
def test_same_cell_for_more_than_nine_in_ten_warns(lint, large_manifest, n_same, warns):
    # 36 of 40 are 90%, which is not more than 90%
    cells = ["D4"] * n_same + ["A1", "B2", "C3", "E5"][: 40 - n_same]
    lines = [{"image_id": f"p{i:02}", "finding": "Edema", "cell": cell} for i, cell in enumerate(cells)]
    report = lint(lines, against=large_manifest)
    assert _warnings(report) == ({"same-answer"} if warns else set())
    assert report.statistics["same_answer_share"] == {"Edema": n_same / 40}
    if warns:
        (problem,) = report.problems
        assert (problem.field, problem.value) == ("cell", '"D4"')


def test_statistics(lint):
    quarter = np.zeros((96, 80), bool)
    quarter[:48, :40] = True  # 1920 of 7680 pixels: exactly 0.25
    mask = encode_mask(quarter)
    report = lint(
        [
            _line(),
            _line(finding="Cardiomegaly", cell="C3"),
            _line(image_id=SMALL, finding="Airspace Opacity", point=..., rle={"size": [96, 80], "counts": mask.counts}),
        ]
    )
    assert report.statistics == {
        "per_finding": {"Cardiomegaly": 1, "Airspace Opacity": 1, "Edema": 1},
        "kinds": {"point": 2, "cell": 1, "rle": 1},
        "mask_area_share": {"0.1-0.25": 1},
        "same_answer_share": {"Airspace Opacity": 1.0, "Cardiomegaly": 1.0, "Edema": 1.0},
        "share_missing": 0.25,
    }
