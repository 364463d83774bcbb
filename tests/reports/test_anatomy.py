"""Plausible positions of findings: areas by hand, the table against the vocabularies, and files that break a rule."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reveal_bench import findings
from reveal_bench.geometry import Grid
from reveal_bench.reports.anatomy import (
    MIN_SHARE,
    PLAUSIBLE,
    REGIONS,
    Regions,
    is_plausible,
    plausible_shares,
    read_anatomy,
)


def block(x, y, width, height):
    """A contour that fills exactly these pixels: the filling includes the outline."""
    return ((x, y), (x + width - 1, y), (x + width - 1, y + height - 1), (x, y + height - 1))


# 80 x 80, cells of 10 x 10. The right lung fills B2 to C7, the left F2 to G7, the heart D4 to F6.
CHEST = Regions(
    (80, 80),
    {
        "lung_right": (block(10, 10, 20, 60),),
        "lung_left": (block(50, 10, 20, 60),),
        "heart": (block(30, 30, 30, 30),),
        "body": (block(0, 5, 80, 75),),
    },
)


@pytest.mark.parametrize(
    ("cell", "finding", "expected"),
    [
        ("B2", "Edema", True),
        ("F2", "Pneumothorax", True),
        ("F4", "Consolidation", False),  # the heart covers the lung there
        ("F7", "Pleural Effusion", True),
        ("A1", "Pneumothorax", False),
        ("E5", "Cardiomegaly", True),
        ("B2", "Cardiomegaly", False),
        ("A1", "Support Devices", True),  # half of it is body
        ("E5", "Enlarged Cardiomediastinum", None),  # the file has no mediastinum
        ("E5", "Mass", None),
        ("E5", "no such finding", None),
    ],
)
def test_plausible_cells(cell, finding, expected):
    assert is_plausible(cell, Grid(8), CHEST, finding) is expected


def test_areas_are_exact():
    lungs = plausible_shares(CHEST, ("lungs",), Grid(8))
    expected = np.zeros((8, 8))
    expected[1:7, 1:3] = expected[1:7, 5:7] = 1
    expected[3:6, 5] = 0
    assert np.array_equal(lungs, expected)
    body = plausible_shares(CHEST, ("body",), Grid(8))
    assert body[0].tolist() == [0.5] * 8
    assert body[1:].min() == 1
    # a grid of 3 cells of 80 / 3 pixels: of the lung's 20 columns from 10 on, 50 / 3 are in the first
    thirds = plausible_shares(Regions((80, 80), {"lung": CHEST.contours["lung_right"]}), ("lungs",), Grid(3))
    assert thirds[1].tolist() == pytest.approx([(80 / 3 - 10) / (80 / 3), (30 - 80 / 3) / (80 / 3), 0])


def test_regions_of_a_wide_picture_are_cut_to_its_square():
    wide = Regions((80, 120), {"heart": (block(0, 0, 30, 80),)})  # the square begins at x = 20
    shares = plausible_shares(wide, ("heart",), Grid(8))
    assert shares[:, 0].tolist() == [1.0] * 8
    assert shares[:, 1:].max() == 0


@pytest.mark.parametrize(
    ("width", "min_share", "expected"),
    [(0, 0.0, False), (1, 0.0, True), (1, 0.011, False), (4, MIN_SHARE, False), (5, MIN_SHARE, True), (100, 1.0, True)],
)
def test_threshold(width, min_share, expected):
    """A1 has 10 x 10 pixels, of which `width` are heart."""
    rows, columns = divmod(width, 10)
    contours = [block(0, y, 10, 1) for y in range(rows)] + ([block(0, rows, columns, 1)] if columns else [])
    regions = Regions((80, 80), {"heart": tuple(contours)})
    assert is_plausible("A1", Grid(8), regions, "Cardiomegaly", min_share=min_share) is expected


@pytest.mark.parametrize("min_share", [-0.1, 1.1, float("nan")])
def test_threshold_must_be_a_share(min_share):
    with pytest.raises(ValueError, match=r"`min_share` must be in \[0, 1\], got"):
        is_plausible("A1", Grid(8), CHEST, "Edema", min_share=min_share)


def test_a_lateral_has_one_outline_of_both_lungs():
    lateral = Regions((80, 80), {"lung": (block(10, 10, 20, 20),), "heart": (block(10, 10, 10, 10),)})
    assert is_plausible("B2", Grid(8), lateral, "Edema") is True  # the lungs are on both sides of the heart
    assert is_plausible("D4", Grid(8), lateral, "Edema") is False
    assert is_plausible("B2", Grid(8), Regions((80, 80), {"lung_left": (block(10, 10, 20, 20),)}), "Edema") is None


def test_every_finding_of_the_table_is_in_a_vocabulary():
    vocabularies = [one for name, one in vars(findings).items() if name.endswith("_FINDINGS") and name.isupper()]
    known = {finding for vocabulary in vocabularies for finding in vocabulary}
    assert set(PLAUSIBLE) <= known
    assert set(findings.CHEXLOCALIZE_FINDINGS) <= set(PLAUSIBLE)
    structures = {name for names in PLAUSIBLE.values() for name in names}
    assert structures - {"lungs"} <= set(REGIONS)


def write(tmp_path, *lines):
    path = tmp_path / "anatomy.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


GOOD = {"image_id": "a", "size": [80, 60], "regions": {"heart": [[1, 2], [3.5, 4], [5, -6]]}}


def test_reading(tmp_path):
    several = [[[0, 0], [9, 0], [9, 9]], [[20, 20], [29, 20], [29, 29]]]
    path = write(tmp_path, GOOD, "", {"image_id": "b", "size": [8, 8], "regions": {"lung_left": several}})
    result = read_anatomy(path)
    assert result["a"] == Regions((80, 60), {"heart": (((1, 2), (3.5, 4), (5, -6)),)})
    assert len(result["b"].contours["lung_left"]) == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "anatomy.jsonl: must have one line per image, got none"),
        (["{"], "line 1: must be JSON"),
        ([GOOD, "[1]"], "line 2: `fields` must be exactly image_id, size and regions, got 'list'"),
        ([GOOD | {"more": 1}], r"`fields` must be .*, got \['image_id', 'more', 'regions', 'size'\]"),
        ([GOOD, GOOD], "line 2: `image_id` must occur only once, got 'a'"),
        ([GOOD | {"image_id": 3}], "`image_id` must be a text, got 3"),
        ([GOOD | {"size": [80, 0]}], r"`size` must be \[height, width\], whole and above 0, got \[80, 0\]"),
        ([GOOD | {"size": [80.0, 60]}], r"`size` must be .*, got \[80.0, 60\]"),
        ([GOOD | {"size": [1 << 20, 1 << 20]}], "`size` must be at most"),
        ([GOOD | {"regions": {}}], "`regions` must have at least one region, got {}"),
        ([GOOD | {"regions": {"hart": [[1, 2]] * 3}}], r"`regions` must be among .*, got 'hart' \(nearest: 'heart'\)"),
        ([GOOD | {"regions": {"heart": []}}], "`regions.heart` must be a contour"),
        ([GOOD | {"regions": {"heart": [[1, 2], [3, 4]]}}], "`regions.heart` must have contours of at least 3 vert"),
        ([GOOD | {"regions": {"heart": [[1, 2], [3, 4], [5]]}}], r"vertices \[x, y\] .*, got \[5\]"),
        ([GOOD | {"regions": {"heart": [[1, 2], [3, 4], [5, True]]}}], r"got \[5, True\]"),
        ([json.dumps(GOOD).replace("3.5", "NaN")], r"got \[nan, 4\]"),
        ([json.dumps(GOOD).replace("3.5", "1e9")], r"within 1,000,000 pixels, got \[1000000000.0, 4\]"),
        (["[" * 100_000], "line 1: must be JSON"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        read_anatomy(write(tmp_path, *lines))
