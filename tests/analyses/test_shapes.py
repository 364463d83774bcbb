"""Shapes of masks drawn by hand: their figures follow from arithmetic, or were typed from OpenCV 5.0."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.analyses.shapes import outline_of, shapes_of
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_localization
from reveal_bench.masks import encode_mask
from tests.cli.test_score import call
from tests.conftest import World
from tests.dataset.card_folders import findings_folder
from tests.kinds.test_scoring import record

pytest.importorskip("cv2")


def blank(height: int = 40, width: int = 50) -> npt.NDArray[np.bool_]:
    return np.zeros((height, width), bool)


def rectangle() -> npt.NDArray[np.bool_]:
    mask = blank()
    mask[2:6, 3:10] = True  # 4 x 7 pixels, whose centres span 3 x 6
    return mask


def diamond(radius: int) -> npt.NDArray[np.bool_]:
    y, x = np.mgrid[:40, :50]
    return np.asarray(abs(x - 30) + abs(y - 20) <= radius)


def ell() -> npt.NDArray[np.bool_]:
    mask = blank()
    mask[2:8, 3:5] = mask[6:8, 3:9] = True
    return mask


def test_a_rectangle() -> None:
    n, (outline,) = outline_of(rectangle())
    assert (n, outline.n_points, outline.perimeter, outline.area) == (1, 18, 18.0, 18.0)
    assert (outline.elongation, outline.irrectangularity) == (2.0, 0.0)


def test_a_diamond_has_the_rectangle_that_is_turned() -> None:
    n, (outline,) = outline_of(diamond(9))
    assert (n, outline.n_points, outline.area) == (1, 36, 162.0)  # 2 r^2
    assert outline.perimeter == pytest.approx(36 * math.sqrt(2))
    assert outline.sides == pytest.approx((9 * math.sqrt(2),) * 2, rel=1e-6)
    assert outline.elongation == pytest.approx(1, rel=1e-6)
    assert outline.irrectangularity == pytest.approx(0, abs=1e-6)


def test_an_ell_as_opencv_measures_it() -> None:
    _, (outline,) = outline_of(ell())
    assert (outline.n_points, outline.area, outline.sides) == (19, 9.5, (5.0, 5.0))
    assert outline.perimeter == pytest.approx(19.41421353816986)
    assert outline.irrectangularity == 1 - 9.5 / 25


def test_a_ring_has_two_contours_and_is_one_part() -> None:
    mask = blank()
    mask[2:9, 3:10] = True
    mask[4:7, 5:8] = False
    n, outlines = outline_of(mask)
    assert (n, sorted((one.n_points, one.area) for one in outlines)) == (1, [(12, 14.0), (24, 36.0)])


@pytest.mark.parametrize("side", [1, 6])
def test_a_line_and_a_dot_have_no_shape(side: int) -> None:
    mask = blank()
    mask[3, 3 : 3 + side] = True
    _, (outline,) = outline_of(mask)
    assert math.isnan(outline.elongation)
    assert math.isnan(outline.irrectangularity)


def test_parts_that_touch_at_a_corner_are_one() -> None:
    mask = blank()
    mask[2:4, 2:4] = mask[4:6, 4:6] = mask[10:12, 2:4] = True
    assert outline_of(mask)[0] == 2


def test_the_two_rules_of_the_dominant_contour_differ() -> None:
    # 5 x 6 pixels have 18 boundary points and a perimeter of 18; a diamond of radius 4 has 16 points and 16 sqrt(2)
    mask = diamond(4)
    mask[2:7, 3:9] = True
    (shape,) = shapes_of([record("i", {"Edema": mask})])
    assert shape.elongation == 5 / 4
    assert shape.elongation_by_perimeter == pytest.approx(1, rel=1e-6)
    assert (shape.components, shape.size) == (2, (30 + 41) / 2000)


def test_contours_of_the_heart_are_counted_with_and_without() -> None:
    one = record("i", {"Cardiomegaly": rectangle(), "Enlarged Cardiomediastinum": rectangle() | ell()})
    heart, around = ((3.0, 2.0), (9.0, 2.0), (9.0, 5.0)), ((3.0, 2.0), (9.0, 2.0), (9.0, 9.0))
    drawn = {"Cardiomegaly": (heart,), "Enlarged Cardiomediastinum": (around, heart)}
    annotations = [replace(a, polygons=drawn[a.finding], n_instances=len(drawn[a.finding])) for a in one.annotations]
    shapes = {shape.finding: shape for shape in shapes_of([replace(one, annotations=tuple(annotations))])}
    of_heart, of_all = shapes["Cardiomegaly"], shapes["Enlarged Cardiomediastinum"]
    assert (of_heart.polygons, of_heart.polygons_without_heart) == (1, 1)
    assert (of_all.polygons, of_all.polygons_without_heart) == (2, 1)


def test_the_command_writes_all_tables(world: World, rng: np.random.Generator, tmp_path: Path) -> None:
    pytest.importorskip("statsmodels")
    records = [one for one in read_localization(world.folder, "released") if one.annotations]
    predictions = []
    for one in records:
        for annotation in one.annotations:
            mask = np.zeros(one.size, bool)
            x, y, side = (int(v) for v in rng.integers(1, 30, 3))
            mask[y : y + side, x : x + side] = True
            score = float(rng.random())
            predictions.append(
                LocalizationPrediction(one.image_id, annotation.finding, mask=encode_mask(mask), score=score)
            )
    file = tmp_path / "model.jsonl"
    file.write_text(predictions_to_jsonl(predictions), encoding="utf-8")
    call("shapes", world.folder, "--model", file, "--human", file, "--out", tmp_path / "out")
    shapes = pd.read_csv(tmp_path / "out" / "shapes.csv")
    # References are squares of side s: size s^2, centres span s - 1 both ways
    assert len(shapes) == sum(len(one.annotations) for one in records)
    assert shapes["elongation"].to_numpy() == pytest.approx(1)
    slopes = pd.read_csv(tmp_path / "out" / "regressions.csv").set_index(["outcome", "model", "feature"])
    assert set(slopes.index.unique("outcome")) == {"IoU", "IoU gap", "hit", "hit gap"}
    scored = rb.score(file, world.folder).rows.to_pandas().set_index(["image_id", "finding"])["mask_iou"]
    size = shapes.set_index(["image_id", "finding"])["size"].reindex(scored.index)
    known = scored.notna()
    x = ((size - size.min()) / (size.max() - size.min()))[known]
    slope, _ = np.polyfit(x, scored[known], 1)
    assert slopes.loc[("IoU", "published", "size"), "value"] == pytest.approx(slope, rel=1e-9)
    assert slopes.loc[("IoU gap", "published", "size"), "value"] == pytest.approx(0, abs=1e-12)  # from itself
    confidence = pd.read_csv(tmp_path / "out" / "confidence.csv")
    assert list(confidence["finding"])[-1] == "all"
    assert (tmp_path / "out" / "shapes.svg").is_file()


def test_wrong_options_are_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="`human` needs `model`"):
        rb.shapes(world.folder, human="x")
    with pytest.raises(ArgumentError, match="`scale` must be 'minmax', 'zscore' or 'raw', got 'no'"):
        rb.shapes(world.folder, scale="no")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`bench` must be a localization benchmark with masks"):
        rb.shapes(findings_folder(tmp_path))
