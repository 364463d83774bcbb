"""Box references: their pixels, and the metrics that use or skip them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reveal_bench.evaluation.baselines import fit_location_prior, location_prior_baseline
from reveal_bench.kinds.localization.records import Annotation, LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.scoring import score_localization, summarize
from reveal_bench.masks import Box, encode_mask, pack_boxes, pack_regions, tight_box
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling
from tests.evaluation.test_baselines import manifest
from tests.kinds.test_scoring import FINDINGS, Prediction, square

LEFT: Box = (2, 2, 4, 4)
RIGHT: Box = (10, 2, 4, 6)


def boxed(image_id: str, boxes: dict[str, list[Box]], *, missing: tuple[str, ...] = ()) -> LocalizationRecord:
    """Return an image of 16 x 16 pixels with only boxes as references."""
    annotations = tuple(
        Annotation(
            finding,
            "ground_truth",
            None,
            bbox_xywh=tight_box(own),
            n_instances=len(own),
            area_px=int(pack_boxes([own], [(16, 16)]).areas[0]),
            boxes_xywh=tuple(own),
        )
        for finding, own in boxes.items()
    )
    status = {finding: int(finding in boxes or finding in missing) for finding in FINDINGS}
    return LocalizationRecord(
        image_id, image_id, image_id, "PA", 16, 16, status, annotations=annotations, missing=missing
    )


@pytest.mark.parametrize(
    ("box", "columns", "rows"),
    [
        ((2, 3, 4, 5), range(2, 6), range(3, 8)),
        ((0.5, 0.0, 1.0, 1.0), range(1), range(1)),  # the centre 0.5 is in [0.5, 1.5), 1.5 is not
        ((0.6, 0.0, 1.0, 1.0), range(1, 2), range(1)),
        ((0.4, 0.4, 2.2, 0.2), range(3), range(1)),  # 0.5, 1.5 and 2.5 are in [0.4, 2.6)
        ((0.6, 0.6, 0.8, 0.8), range(0), range(0)),  # between the centres of pixels 0 and 1
        ((-3, -3, 5, 5), range(2), range(2)),
        ((14, 15, 50, 50), range(14, 16), range(15, 16)),
        ((0, 0, 16, 16), range(16), range(16)),
        ((20, 20, 3, 3), range(0), range(0)),
    ],
)
def test_a_pixel_belongs_to_a_box_if_its_centre_does(box: Box, columns: range, rows: range) -> None:
    expected = np.zeros((16, 16), bool)
    expected[np.ix_(list(rows), list(columns))] = True
    packed = pack_boxes([[box]], [(16, 16)])
    assert np.array_equal(packed.dense(0), expected)
    assert packed.areas.tolist() == [len(columns) * len(rows)]


def test_unions_equal_a_dense_loop(rng: np.random.Generator) -> None:
    for _ in range(300):
        height, width = (int(side) for side in rng.integers(1, 24, 2))
        corners = rng.uniform(-4, 24, (int(rng.integers(0, 4)), 2))
        boxes = [(x, y, *rng.uniform(0.1, 20, 2).tolist()) for x, y in corners.tolist()]
        if rng.random() < 0.3:
            boxes = [(round(x), round(y), round(w) + 1, round(h) + 1) for x, y, w, h in boxes]
        y, x = np.mgrid[:height, :width] + 0.5
        dense = np.zeros((height, width), bool)
        for left, top, w, h in boxes:
            dense |= (x >= left) & (x < left + w) & (y >= top) & (y < top + h)
        rle = encode_mask(dense)
        mixed = pack_regions([rle, boxes, encode_mask(~dense), boxes], [(height, width)] * 4)
        assert [np.array_equal(mixed.dense(i), m) for i, m in enumerate((dense, dense, ~dense, dense))] == [True] * 4
        # the same runs as in a mask, so every metric gets the same input
        assert mixed.take([0]).ends.tolist() == mixed.take([1]).ends.tolist()


def test_bad_boxes_and_sizes_are_refused() -> None:
    for boxes, sizes, message in (
        ([[(0, 0, 0, 1)]], [(2, 2)], "`boxes[0]` must be finite [x, y, width > 0, height > 0], got [0, 0, 0, 1]"),
        ([[], [(0, np.nan, 1, 1)]], [(2, 2)] * 2, "`boxes[1]` must be finite"),
        ([[]], [(0, 2)], "`sizes[0]` must be [height, width] of 1 to 268435456 pixels, got [0, 2]"),
        ([[]], [], "`boxes` must have the length of `sizes` (0), got 1"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            pack_boxes(boxes, sizes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`boxes` must have at least one box, got none"):
        tight_box([])
    assert tight_box([(1, 1, 0.1, 0.2)]) == (1, 1, 0.1, 0.2)  # not 1.1 - 1


@pytest.mark.parametrize(
    ("prediction", "point", "cell", "iou"),
    [
        # cells of 2 px: LEFT is B2, C2, B3, C3 and RIGHT is F2, G2, F3, G3, F4, G4 of the 8 x 8 grid
        (Prediction("a", "Edema", points=((5.9, 5.9),)), 1, 1, None),
        (Prediction("a", "Edema", points=((6.0, 5.0),)), 0, 0, None),
        (Prediction("a", "Edema", points=((13.5, 7.5),)), 1, 1, None),
        (Prediction("a", "Edema", cell="G4"), 1, 1, None),
        (Prediction("a", "Edema", cell="D2"), 0, 0, None),
        (Prediction("a", "Edema", box=(2, 2, 12, 6)), 0, 0, 1),  # around both; its centre (8, 5) is in neither
        (Prediction("a", "Edema", box=LEFT), 1, 1, 16 / 72),
        (Prediction("a", "Edema", box=(2, 2, 6, 6)), 1, 1, 36 / 72),
        (Prediction("a", "Edema", mask=encode_mask(square(9, 2, 7))), 1, 1, None),  # deepest pixel (12, 5)
    ],
)
def test_points_hit_the_union_and_a_box_meets_the_outer_box(
    prediction: LocalizationPrediction, point: int, cell: int, iou: float | None
) -> None:
    rows = score_localization([prediction], [boxed("a", {"Edema": [LEFT, RIGHT]})], findings=FINDINGS)
    assert rows.values["point_hit"].tolist() == [point]
    assert rows.values["grid_hit"].tolist() == [cell]
    assert rows.values["grid_chance"].tolist() == [10 / 64]
    assert rows.values.get("box_iou", np.array([])).tolist() == ([] if iou is None else [pytest.approx(iou)])


def test_box_iou_uses_unrounded_source_boxes() -> None:
    record = boxed("a", {"Edema": [(1.25, 1.25, 2.5, 2.5)]})
    rows = score_localization([Prediction("a", "Edema", box=(1.25, 1.25, 2.5, 1.25))], [record], findings=FINDINGS)
    assert rows.values["box_iou"].tolist() == [0.5]


def test_mask_is_not_compared_with_boxes_and_rows_note_it() -> None:
    record = boxed("a", {"Edema": [LEFT]})
    rows = score_localization(
        [Prediction("a", "Edema", mask=encode_mask(square(2, 2, 4)))], [record], findings=FINDINGS
    )
    assert set(rows.values) == {"grid_chance", "grid_hit", "point_chance", "point_hit"}
    assert rows.notes == (
        "masks were not compared: the references are boxes, so mask IoU is not defined; a mask counts by its point",
    )
    assert {e.metric for e in summarize(rows, Resampling(50))} == set(rows.values)
    assert score_localization([Prediction("a", "Edema", cell="B2")], [record], findings=FINDINGS).notes == ()


def test_box_reference_among_masks_has_undefined_mask_iou() -> None:
    masked = LocalizationRecord(
        "m", "m", "m", "PA", 16, 16, {"Edema": 1, "Cardiomegaly": 0},
        annotations=(Annotation("Edema", "ground_truth", encode_mask(square(2, 2, 4)), area_px=16),),
    )  # fmt: skip
    predictions = [Prediction(i, "Edema", mask=encode_mask(square(2, 2, 4)), box=LEFT) for i in ("b", "m")]
    rows = score_localization(predictions, [boxed("b", {"Edema": [LEFT]}), masked], findings=FINDINGS)
    assert np.array_equal(rows.values["mask_iou"], [np.nan, 1], equal_nan=True)
    assert np.array_equal(rows.values["mask_iou_all"], [np.nan, 1], equal_nan=True)
    assert rows.values["box_iou"].tolist() == [1, 1]
    assert rows.notes == ()


def test_missing_prediction_is_a_miss_missing_reference_no_case() -> None:
    records = [boxed("a", {"Edema": [LEFT]}), boxed("b", {"Edema": [RIGHT]}), boxed("c", {}, missing=("Edema",))]
    rows = score_localization([Prediction("a", "Edema", box=LEFT)], records, findings=FINDINGS)
    assert rows.image_ids == ["a", "b"]
    assert rows.values["box_iou"].tolist() == [1, 0]
    assert rows.values["point_hit"].tolist() == [1, 0]


def test_mask_adds_no_case_to_box_references() -> None:
    records = [boxed("a", {"Edema": [LEFT]}), boxed("b", {})]
    predictions = [Prediction(i, "Edema", mask=encode_mask(square(2, 2, 4))) for i in "ab"]
    rows = score_localization(predictions, records, findings=FINDINGS, asks="all")
    assert rows.image_ids == ["a"]


def test_reference_without_mask_and_boxes_is_refused() -> None:
    bare = boxed("a", {"Edema": [LEFT]})
    bare = LocalizationRecord(
        "a", "a", "a", "PA", 16, 16, bare.label_status,
        annotations=(Annotation("Edema", "ground_truth", None, bbox_xywh=LEFT, area_px=16),),
    )  # fmt: skip
    with pytest.raises(ValueError, match=re.escape("the reference of (a, Edema) must be a mask or boxes, got none")):
        score_localization([], [bare], findings=FINDINGS)


def test_batches_score_like_one_pass(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    records, predictions = [], []
    for i in range(30):
        x, y, width, height = rng.integers(1, 8, 4).tolist()
        records.append(boxed(str(i), {"Edema": [(x, y, width, height), RIGHT]}))
        predictions.append(Prediction(str(i), "Edema", box=tuple(rng.integers(1, 8, 4).tolist())))
    whole = score_localization(predictions, records, findings=FINDINGS)
    monkeypatch.setattr("reveal_bench.kinds.localization.scoring._TEXT_AT_ONCE", 10)
    assert score_localization(predictions, records, findings=FINDINGS).to_table().equals(whole.to_table())


def test_location_prior_learns_from_boxes_and_returns_one() -> None:
    records = [boxed(f"r{k}", {"Edema": [LEFT]}) for k in range(3)] + [boxed("r3", {"Edema": [RIGHT]})]
    priors = fit_location_prior(records, FINDINGS)
    assert priors["Edema"].n == 4
    # candidates near the mean: only LEFT has a mean IoU of 3/4, the box around both (3 * 16 + 24) / 72 / 4
    assert priors["Edema"].box == (2 / 16, 2 / 16, 4 / 16, 4 / 16)
    (prediction,) = location_prior_baseline(manifest(1, size=(32, 64)), priors)
    assert prediction.box == (8, 4, 16, 8)
    assert prediction.mask is None
    assert prediction.cell in {"B2", "C2", "B3", "C3"}
    assert priors["Cardiomegaly"].box == priors["Edema"].box
    assert priors["Cardiomegaly"].n == 0
    asked = [Prediction(f"r{k}", "Edema", box=LEFT, points=((3, 3),)) for k in range(4)]
    estimates = summarize(score_localization(asked, records, findings=["Edema"]), Resampling(50))
    assert {e.metric: e.value for e in estimates if e.finding == MACRO}["box_iou"] == 0.75
