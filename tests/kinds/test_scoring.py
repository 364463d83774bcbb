"""scoring: points, misses and undefined values; intervals against a plain loop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

import reveal_bench as rb
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.localization.records import Annotation, LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.scoring import score_localization, summarize
from reveal_bench.masks import encode_mask
from reveal_bench.metrics.bootstrap import MACRO, resampling_counts
from reveal_bench.metrics.intervals import Estimate, Resampling

FINDINGS = ("Edema", "Cardiomegaly")
Prediction = LocalizationPrediction


def square(x: int, y: int, side: int, *, size: tuple[int, int] = (16, 16)) -> npt.NDArray[np.bool_]:
    mask = np.zeros(size, bool)
    mask[y : y + side, x : x + side] = True
    return mask


def record(
    image_id: str,
    masks: Mapping[str, npt.NDArray[np.bool_]],
    *,
    patient_id: str | None = None,
    missing: tuple[str, ...] = (),
) -> LocalizationRecord:
    annotations = tuple(
        Annotation(finding, "ground_truth", encode_mask(mask), area_px=int(mask.sum()))
        for finding, mask in masks.items()
    )
    height, width = next(iter(masks.values())).shape if masks else (16, 16)
    return LocalizationRecord(
        image_id=image_id,
        patient_id=patient_id or image_id,
        study_id=image_id,
        view="PA",
        width=width,
        height=height,
        label_status={finding: int(finding in masks or finding in missing) for finding in FINDINGS},
        annotations=annotations,
        missing=missing,
    )


def values(
    predictions: list[Prediction], records: list[LocalizationRecord], **options: object
) -> dict[str, list[float]]:
    rows = score_localization(predictions, records, findings=FINDINGS, **options)  # type: ignore[arg-type]
    return {name: column.tolist() for name, column in rows.values.items()}


@pytest.mark.parametrize(
    ("prediction", "kind", "point_hit", "grid_hit"),
    [
        # the reference is the 4 x 4 square at (4, 4): cells C3, D3, C4, D4 of the 8 x 8 grid (2 px each)
        (Prediction("a", "Edema", points=((5, 5),)), "point", 1, 1),
        (Prediction("a", "Edema", points=((0, 0), (7.9, 7.9))), "point", 1, 1),
        (Prediction("a", "Edema", points=((8.0, 8.0),)), "point", 0, 0),
        (Prediction("a", "Edema", box=(0, 0, 16, 10)), "box", 0, 0),  # its centre is (8, 5)
        (Prediction("a", "Edema", box=(4, 4, 4, 4)), "box", 1, 1),
        (Prediction("a", "Edema", cell="C3"), "cell", 1, 1),
        (Prediction("a", "Edema", cell="H8"), "cell", 0, 0),
        (Prediction("a", "Edema", mask=encode_mask(square(3, 3, 3))), "mask", 1, 1),  # deepest pixel (4, 4)
        (Prediction("a", "Edema", mask=encode_mask(square(0, 0, 16))), "mask", 1, 1),  # deepest pixel (7, 7)
        (Prediction("a", "Edema", mask=encode_mask(square(9, 9, 3))), "mask", 0, 0),
        (Prediction("a", "Edema", mask=encode_mask(np.zeros((16, 16)))), "mask", 0, 0),
        (Prediction("a", "Edema", points=((5, 5),), cell="H8"), "point", 1, 0),  # each metric uses its own kind
    ],
)
def test_points_and_cells_are_derived_from_predictions(
    prediction: Prediction, kind: str, point_hit: float, grid_hit: float
) -> None:
    rows = score_localization([prediction], [record("a", {"Edema": square(4, 4, 4)})], findings=FINDINGS)
    assert rows.point_kinds == [kind]
    assert rows.values["point_hit"].tolist() == [point_hit]
    assert rows.values["grid_hit"].tolist() == [grid_hit]
    assert rows.values["grid_chance"].tolist() == [4 / 64]


@pytest.mark.parametrize(
    ("prediction", "kind"),
    [
        (Prediction("a", "Edema", points=((5, 5),), cell="C3"), "point"),
        (Prediction("a", "Edema", points=((5, 5), (4.5, 4)), cell="C3"), "point"),
        (Prediction("a", "Edema", points=((5, 5), (7.9, 7.9)), cell="C3"), "cell"),  # the points have two cells
        (Prediction("a", "Edema", points=((5, 5),), cell="D3"), "cell"),
        (Prediction("a", "Edema", box=(2, 2, 6, 6), cell="C3"), "box"),  # its centre is (5, 5)
        (Prediction("a", "Edema", box=(2, 2, 6, 6), cell="B2"), "cell"),
        (Prediction("a", "Edema", mask=encode_mask(square(4, 4, 2)), cell="C3"), "cell"),  # its cell is the answer
    ],
)
def test_cell_of_the_point_counts_as_the_point(prediction: Prediction, kind: str) -> None:
    rows = score_localization([prediction], [record("a", {"Edema": square(4, 4, 4)})], findings=FINDINGS)
    assert rows.cell_kinds == [kind]


def test_point_outside_the_central_square_hits_only_the_mask() -> None:
    wide = record("a", {"Edema": np.ones((16, 32), bool)})
    got = values([Prediction("a", "Edema", points=((2, 2),))], [wide])
    assert (got["point_hit"], got["grid_hit"]) == ([1], [0])


def test_chance_is_a_random_cell_or_point() -> None:
    """The mean over findings of the mean over cases: areas are 16 and 64 of 256 pixels, then 4."""
    records = [
        record("a", {"Edema": square(4, 4, 4), "Cardiomegaly": square(4, 4, 2)}),
        record("b", {"Edema": square(4, 4, 8)}),
    ]
    rows = score_localization([Prediction("a", "Edema", cell="C3")], records, findings=FINDINGS)
    expected = {"point_hit": ((16 + 64) / 2 + 4) / 256 / 2, "grid_hit": ((4 + 16) / 2 + 1) / 64 / 2}
    assert rows.chance(["Edema", "Cardiomegaly"]) == pytest.approx(expected, abs=1e-12)
    assert rows.chance(["Edema", "Consolidation"]) == rows.chance([]) == {}  # undefined without cases
    codec = KINDS["localization"].predictions.codec()
    again = codec.rows_from(codec.arrays_of_rows(rows))
    assert (again.values.keys(), again.chance(FINDINGS)) == (rows.values.keys(), rows.chance(FINDINGS))
    before = codec.rows_from(
        codec.arrays_of_rows(replace(rows, shares=np.zeros(0)))
    )  # as an earlier program wrote them
    assert before.chance(FINDINGS) == {"grid_hit": rows.chance(FINDINGS)["grid_hit"]}


def test_missing_predictions_miss_and_empty_masks_are_undefined() -> None:
    records = [record(name, {"Edema": square(0, 0, 4)}) for name in "abc"]
    predictions = [
        Prediction("a", "Edema", mask=encode_mask(square(0, 0, 4))),
        Prediction("b", "Edema", mask=encode_mask(np.zeros((16, 16)))),
    ]
    got = values(predictions, records)
    assert got["point_hit"] == [1, 0, 0]
    assert np.array_equal(got["mask_iou"], [1, np.nan, 0], equal_nan=True)
    assert got["mask_iou_all"] == [1, 0, 0]


def test_inapplicable_metric_is_absent() -> None:
    assert set(values([Prediction("a", "Edema", cell="A1")], [record("a", {"Edema": square(0, 0, 4)})])) == {
        "grid_chance",
        "grid_hit",
        "point_chance",
        "point_hit",
    }
    hits = {"point_hit": [0], "grid_hit": [0], "point_chance": [16 / 256], "grid_chance": [4 / 64]}
    assert values([], [record("a", {"Edema": square(0, 0, 4)})]) == hits


def test_boxes_are_scored_against_the_tight_reference_box() -> None:
    records = [record(name, {"Edema": square(4, 4, 4)}) for name in "abc"]
    predictions = [Prediction("a", "Edema", box=(4, 4, 4, 8)), Prediction("b", "Edema", cell="C3")]
    got = values(predictions, records)
    assert got["box_iou"] == [0.5, 0, 0]  # 16 of 32 pixels; no box; no prediction
    assert "mask_iou" not in got


def test_rows_exist_for_references_with_pixels() -> None:
    records = [
        record("a", {"Edema": square(0, 0, 4), "Cardiomegaly": np.zeros((16, 16), bool)}),
        record("b", {}, missing=("Edema",)),
        record("c", {}),
    ]
    rows = score_localization([], records, findings=FINDINGS)
    assert (rows.image_ids, rows.case_findings) == (["a"], ["Edema"])
    assert [image for image, _ in rows.all_images] == ["a", "b", "c"]


def test_mask_without_reference_scores_zero_in_the_full_slice() -> None:
    records = [record("a", {"Edema": square(0, 0, 4)}), record("b", {}), record("c", {}, missing=("Edema",))]
    predictions = [Prediction(name, "Edema", mask=encode_mask(square(0, 0, 4))) for name in "abc"]
    got = values(predictions, records, asks="all")  # a: Edema, Cardiomegaly; b: Edema, Cardiomegaly; c: Cardiomegaly
    np.testing.assert_array_equal(got["mask_iou"], [1, np.nan, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(got["mask_iou_all"], [1, np.nan, 0, np.nan, np.nan])
    np.testing.assert_array_equal(got["point_hit"], [1, np.nan, np.nan, np.nan, np.nan])
    assert values(predictions, records)["mask_iou_all"] == [1]  # only present findings are asked: no such row


def test_batches_score_like_one_pass(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    predictions, records = study(rng, 30)
    predictions[::2] = [Prediction(p.image_id, p.finding, mask=encode_mask(square(2, 2, 9))) for p in predictions[::2]]
    whole = score_localization(predictions, records, findings=FINDINGS)
    monkeypatch.setattr("reveal_bench.kinds.localization.scoring._TEXT_AT_ONCE", 40)
    parts = score_localization(predictions, records, findings=FINDINGS)
    assert whole.to_table().equals(parts.to_table())


def test_duplicates_are_refused() -> None:
    twice = [Prediction("a", "Edema", cell="A1")] * 2
    with pytest.raises(ValueError, match=re.escape("each (image, finding) once, got ('a', 'Edema') twice")):
        score_localization(twice, [], findings=FINDINGS)
    same = [record("a", {"Edema": square(0, 0, 4)})] * 2
    with pytest.raises(ValueError, match="`records` must name each image once, got 'a' twice"):
        score_localization([], same, findings=FINDINGS)


def test_rows_can_be_written_as_a_table() -> None:
    rows = score_localization(
        [Prediction("a", "Edema", mask=encode_mask(np.zeros((16, 16))))],
        [record("a", {"Edema": square(0, 0, 4)}, patient_id="p")],
        findings=FINDINGS,
    )
    table = rows.to_table().to_pylist()
    assert table == [
        {
            "image_id": "a",
            "patient_id": "p",
            "finding": "Edema",
            "point_kind": "mask",
            "cell_kind": "mask",
            "point_hit": 0.0,
            "point_chance": 16 / 256,
            "grid_hit": 0.0,
            "grid_chance": 4 / 64,
            "mask_iou": None,
            "mask_iou_all": 0.0,
        }
    ]


def study(rng: np.random.Generator, n: int) -> tuple[list[Prediction], list[LocalizationRecord]]:
    records, predictions = [], []
    for i in range(n):
        masks = {finding: square(*rng.integers(0, 10, 2), 6) for finding in FINDINGS if rng.random() < 0.6}
        records.append(record(f"image{i:03d}", masks, patient_id=f"patient{i // 2:03d}"))
        for finding in masks:
            x, y = rng.integers(0, 16, 2).tolist()
            predictions.append(Prediction(f"image{i:03d}", finding, points=((x, y),)))
    return predictions, records


def test_intervals_equal_a_plain_loop_over_patients(rng: np.random.Generator) -> None:
    predictions, records = study(rng, 40)
    rows = score_localization(predictions, records, findings=FINDINGS)
    patients = sorted({r.patient_id for r in records})  # patients without rows are resampled also
    macros: list[float] = []
    per_finding: dict[str, list[float]] = {finding: [] for finding in FINDINGS}
    for draw in np.random.default_rng(3).integers(0, len(patients), (100, len(patients))).tolist():
        means = []
        for finding in FINDINGS:
            drawn = [
                hit
                for k in draw
                for hit, p, f in zip(rows.values["point_hit"], rows.patient_ids, rows.case_findings, strict=True)
                if p == patients[k] and f == finding
            ]
            means.append(sum(drawn) / len(drawn))
            per_finding[finding].append(means[-1])
        macros.append(sum(means) / len(means))
    got = {e.finding: e for e in summarize(rows, Resampling(100, 3, interval="percentile"), metrics=["point_hit"])}
    public = rb.summarize(rows, metrics=["point_hit"], n_resamples=100, seed=3, interval="percentile")
    assert public == list(got.values())
    for name, loop in {MACRO: macros, **per_finding}.items():
        assert (got[name].low, got[name].high) == pytest.approx(tuple(np.percentile(loop, [2.5, 97.5])), rel=1e-12)
    assert got[MACRO].signature == "point_hit|b:100|seed:3|unit:patient|v:1"


def test_subset_of_findings_has_its_own_macro_and_same_intervals(rng: np.random.Generator) -> None:
    predictions, records = study(rng, 30)
    rows = score_localization(predictions, records, findings=FINDINGS)
    whole = {e.finding: e for e in summarize(rows, metrics=["point_hit"])}
    part = {e.finding: e for e in summarize(rows, metrics=["point_hit"], findings=["Edema"])}
    assert part["Edema"] == whole["Edema"]
    assert (part[MACRO].value, part[MACRO].n) == (whole["Edema"].value, 1)


def test_images_can_be_the_unit(rng: np.random.Generator) -> None:
    predictions, records = study(rng, 30)
    rows = score_localization(predictions, records, findings=FINDINGS)
    by_image: list[Estimate] = summarize(rows, Resampling(unit="image"), metrics=["point_hit"])
    assert by_image[0].value == summarize(rows, metrics=["point_hit"])[0].value
    assert by_image[0].signature.split("|")[3] == "unit:image"
    for options, message in (
        ({"resampling": Resampling(unit="study")}, "`unit` must be 'patient' or 'image', got 'study'"),
        ({"findings": ["Edma"]}, "got ['Edma']"),
        ({"metrics": ["mask_iou"]}, "got ['mask_iou']"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            summarize(rows, **options)  # type: ignore[arg-type]


def test_size_strata_use_the_proportion_of_the_image() -> None:
    sides = {"a": 1, "b": 3, "c": 5, "d": 8, "e": 16}  # of 256 pixels: .4, 3.5, 9.8, 25, 100%
    records = [record(name, {"Edema": square(0, 0, side)}) for name, side in sides.items()]
    empty = record("f", {"Cardiomegaly": square(0, 0, 4)})
    predictions = [Prediction("f", "Edema", mask=encode_mask(square(0, 0, 2)))]
    rows = score_localization(predictions, [*records, empty], findings=FINDINGS, asks="all")
    sizes = {
        name: [rows.image_ids[i] for i in np.flatnonzero(part) if rows.case_findings[i] == "Edema"]
        for name, part in rows.strata().items()
    }
    assert sizes == {
        "view: PA": ["a", "b", "c", "d", "e", "f"],
        "size: below 2% of the image": ["a"],
        "size: 2 to 10% of the image": ["b", "c"],
        "size: 10% of the image or more": ["d", "e"],
    }
    large = rows.take(rows.strata()["size: 10% of the image or more"])
    assert large.strata()["size: 10% of the image or more"].all()


def test_auroc_of_image_scores_equals_scikit_learn(rng: np.random.Generator) -> None:
    """Two images per patient; Cardiomegaly is always present, one image has no label for Edema, one no score."""
    records, predictions, scored_cases = [], [], []
    for i in range(60):
        has = i % 3 == 0
        masks = {"Cardiomegaly": square(1, 1, 3)} | ({"Edema": square(4, 4, 4)} if has else {})
        one = record(str(i), masks, patient_id=str(i // 2))
        if i == 5:
            one = replace(one, label_status={**one.label_status, "Edema": None})
        score = round(float(rng.random()) + 0.2 * has, 1) / 1.2
        records.append(one)
        if i != 7:
            predictions.append(Prediction(str(i), "Edema", points=((5, 5),), score=score))
            scored_cases += [(i // 2, has, score)] if i != 5 else []
        predictions.append(Prediction(str(i), "Cardiomegaly", points=((2, 2),), score=0.5))
    rows = score_localization(predictions, records, findings=FINDINGS, asks="all")
    resampling = Resampling(200, 3, interval="percentile")
    macro, edema, heart = (e for e in rows.estimates(resampling) if e.metric == "auroc")
    patients, present, scores = (np.array(column) for column in zip(*scored_cases, strict=True))
    assert macro.value == edema.value == pytest.approx(roc_auc_score(present, scores))
    assert (edema.n, macro.n, macro.n_undefined) == (58, 1, 1)
    assert np.isnan(heart.value)
    assert edema.signature == "auroc|b:200|seed:3|unit:patient|v:1"  # percentiles
    names = sorted({one.patient_id for one in records})
    drawn = []
    for row in resampling_counts(len(names), Resampling(200, 3)):
        times = [int(row[names.index(str(patient))]) for patient in patients]
        drawn.append(roc_auc_score(np.repeat(present, times), np.repeat(scores, times)))
    assert (edema.low, edema.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])))
    assert rows.notes == ("1 of 119 questions have no score, and do not count in AUROC",)
    few = rows.of_patients({"0", "1", "2"}).estimates(resampling)
    assert next(e.n for e in few if (e.metric, e.finding) == ("auroc", "Edema")) == 5
    disclosure = KINDS["localization"].release.disclose(rows, Resampling(20), min_cell=1)
    assert "auroc" not in {e.metric for e in disclosure.estimates}  # a board releases nothing about absence
    present_alone = score_localization(predictions, records, findings=FINDINGS)
    assert "auroc" not in {e.metric for e in present_alone.estimates(resampling)}


def test_siim_dice_counts_every_labelled_image() -> None:
    """An empty answer to an image without the finding scores 1, a mask there 0, and no answer counts as empty.

    By hand: a overlaps by 8 of 16 and 16 pixels, b is missed, c and d are empty in both, e has a false mask, f has no
    label: (0.5 + 0 + 1 + 1 + 0) / 5.
    """
    empty, whole = np.zeros((16, 16), bool), square(0, 0, 4)
    records = [record("a", {"Edema": whole}), record("b", {"Edema": whole}), *(record(name, {}) for name in "cdef")]
    records[-1] = replace(records[-1], label_status={**records[-1].label_status, "Edema": None})
    masks = {"a": square(0, 2, 4), "d": empty, "e": whole, "f": whole}
    predictions = [Prediction(name, "Edema", mask=encode_mask(mask)) for name, mask in masks.items()]
    rows = score_localization(predictions, records, findings=FINDINGS, asks="all")
    values = {
        image: value
        for image, finding, value in zip(rows.image_ids, rows.case_findings, rows.values["siim_dice"], strict=True)
        if finding == "Edema"
    }
    assert values == pytest.approx({"a": 0.5, "b": 0, "c": 1, "d": 1, "e": 0, "f": np.nan}, nan_ok=True)
    (estimate,) = (e for e in rows.estimates(Resampling(1)) if (e.metric, e.finding) == ("siim_dice", "Edema"))
    assert (estimate.value, estimate.n, estimate.n_undefined) == (0.5, 5, 1)
    assert "siim_dice" not in score_localization(predictions, records, findings=FINDINGS).values
    points = [Prediction("a", "Edema", points=((1.0, 1.0),))]
    assert "siim_dice" not in score_localization(points, records, findings=FINDINGS, asks="all").values
