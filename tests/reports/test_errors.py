"""Categories of errors: every one by hand on small grids, and their shares by hand arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.records import (
    ImageManifest,
    LocalizationPrediction,
    LocalizationRecord,
    ManifestRow,
)
from reveal_bench.kinds.localization.scoring import score_localization, summarize
from reveal_bench.masks import empty_rle, encode_mask
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.phantom import model_predictions
from reveal_bench.reports.anatomy import Regions
from reveal_bench.reports.run_errors import CATEGORIES, CaseError, CaseErrors, categorize, reading_order, shares
from tests.conftest import annotate, random_records

EDEMA = "Edema"


def record_of(*rectangles, image_id="a", patient="p1", view="PA", size=(80, 80), finding=EDEMA):
    """An image with a mask of rectangles (x, y, width, height); a cell of the 8 x 8 grid of 80 x 80 is 10 x 10."""
    mask = np.zeros(size, bool)
    for x, y, width, height in rectangles:
        mask[y : y + height, x : x + width] = True
    height, width = size
    return LocalizationRecord(
        image_id, patient, f"{patient}_s1", view, width, height, {finding: 1}, (annotate(finding, mask),)
    )


def says(image_id="a", finding=EDEMA, **answer):
    return LocalizationPrediction(image_id, finding, **answer)


# Edema fills C3 and 40% of D3 (x 20 to 34, y 20 to 30). The lungs are two blocks; the heart covers E4 and E5 of them.
RECORD = record_of((20, 20, 14, 10))
LUNGS = Regions(
    (80, 80),
    {
        "lung_right": (((10, 10), (29, 10), (29, 69), (10, 69)),),
        "lung_left": (((40, 10), (69, 10), (69, 69), (40, 69)),),
        "heart": (((40, 30), (49, 30), (49, 49), (40, 49)),),
    },
)


@pytest.mark.parametrize(
    ("answer", "category", "cell", "coverage", "source"),
    [
        ({"cell": "C3"}, "full_hit", "C3", 1.0, "overlap"),
        ({"cell": "D3"}, "partial_hit", "D3", 0.4, "overlap"),
        ({"cell": "G3"}, "position", "G3", 0.0, "anatomy"),  # the other lung
        ({"cell": "A1"}, "anatomy", "A1", 0.0, "anatomy"),  # the corner
        ({"cell": "E4"}, "anatomy", "E4", 0.0, "anatomy"),  # the heart: paper 000, Figure 5a
        ({"points": ((25.0, 25.0),)}, "full_hit", "C3", 1.0, "overlap"),
        ({"points": ((5.0, 5.0), (31.0, 21.0))}, "partial_hit", "D3", 0.4, "overlap"),
        ({"box": (30.0, 20.0, 6.0, 6.0)}, "partial_hit", "D3", 0.4, "overlap"),
        ({"mask": "C3"}, "full_hit", "C3", 1.0, "overlap"),
        ({"mask": "empty"}, "no_answer", None, 0.0, "none"),
        (None, "no_answer", None, 0.0, "none"),
    ],
    ids=str,
)
def test_each_category(answer, category, cell, coverage, source):
    if answer and "mask" in answer:
        drawn = np.zeros((80, 80), bool)
        drawn[20:30, 20:30] = True
        answer = {"mask": encode_mask(drawn) if answer["mask"] == "C3" else empty_rle((80, 80))}
    predictions = [] if answer is None else [says(**answer)]
    (case,) = categorize(predictions, [RECORD], grid=8, anatomy={"a": LUNGS})
    assert case == CaseError("a", "p1", EDEMA, "PA", category, cell, coverage, source)


def test_without_anatomy_or_reader_a_miss_is_not_reviewed():
    (case,) = categorize([says(cell="A1")], [RECORD], grid=8)
    assert (case.category, case.source) == ("miss_unreviewed", "none")
    (case,) = categorize(
        [says(cell="A1")], [RECORD], grid=8, anatomy={"a": Regions((80, 80), {"heart": LUNGS.contours["heart"]})}
    )
    assert (case.category, case.source) == ("miss_unreviewed", "none")


def test_a_reader_outweighs_the_anatomy_but_not_an_overlap():
    reviews = {("a", EDEMA, 8, "A1"): "position", ("a", EDEMA, 8, "C3"): "anatomy", ("a", EDEMA, 16, "G3"): "anatomy"}
    result = [
        categorize([says(cell=cell)], [RECORD], grid=8, anatomy={"a": LUNGS}, reviews=reviews)[0].category
        for cell in ("A1", "C3", "G3")
    ]
    assert result == ["position", "full_hit", "position"]  # the review of G3 is about another grid


def test_a_small_reference_is_hit_by_any_touch():
    record = record_of((19, 20, 4, 4))  # 4% of B3, 12% of C3: no cell reaches half
    result = [categorize([says(cell=cell)], [record], grid=8)[0] for cell in ("B3", "C3", "D3")]
    assert [case.category for case in result] == ["full_hit", "full_hit", "miss_unreviewed"]
    assert [case.coverage for case in result] == [0.04, 0.12, 0.0]


def test_what_cannot_be_judged_is_left_out_and_counted():
    wide = (80, 120)  # the central square is x 20 to 100
    records = [
        record_of((0, 0, 10, 10), image_id="out", size=wide),
        record_of((20, 0, 10, 10), image_id="in", size=wide, patient="p2"),
        record_of((20, 20, 10, 10), image_id="side", view="LATERAL", patient="p3"),
        record_of((20, 20, 10, 10), image_id="unknown", view="UNKNOWN", patient="p4"),
    ]
    predictions = [says(image_id=record.image_id, cell="A1") for record in records]
    result = categorize(predictions, records, grid=8)
    assert [(case.image_id, case.category) for case in result] == [("in", "full_hit"), ("unknown", "miss_unreviewed")]
    assert (result.n_lateral, result.n_undefined, result.patients) == (1, 1, ("p1", "p2", "p4"))
    both = categorize(predictions, records, grid=8, frontal_only=False)
    assert [case.image_id for case in both] == ["in", "side", "unknown"]
    assert (both.n_lateral, both.n_undefined) == (0, 1)


def test_a_point_outside_the_square_is_a_category_of_its_own():
    record = record_of((20, 0, 10, 10), size=(80, 120))
    (case,) = categorize(
        [says(points=((5.0, 5.0),))], [record], grid=8, anatomy={"a": Regions((80, 120), LUNGS.contours)}
    )
    assert (case.category, case.cell, case.source) == ("outside", None, "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predictions": [says(cell="A1")] * 2}, r"once, got \('a', 'Edema'\) twice"),
        ({"predictions": [says(cell="J1")]}, "`cell` must be in the 8 x 8 grid"),
        ({"records": [RECORD, RECORD]}, "each image once, got 'a' twice"),
        ({"reviews": {("a", EDEMA, 8, "A1"): "wrong"}}, "'position' or 'anatomy', got 'wrong'"),
        ({"anatomy": {"a": Regions((80, 81), {"lung": ()})}}, r"size \[80, 80\] .*, got \[80, 81\]"),
        ({"min_share": 1.5}, r"`min_share` must be in \[0, 1\], got 1.5"),
        ({"grid": 0}, r"`n` must be in \[1, 26\], got 0"),
    ],
    ids=str,
)
def test_bad_input_is_refused(options, message):
    inputs = {"predictions": [says(cell="A1")], "records": [RECORD], "grid": 8, **options}
    with pytest.raises(ValueError, match=message):
        categorize(inputs.pop("predictions"), inputs.pop("records"), **inputs)


@pytest.fixture(scope="module")
def random_world():
    records = random_records(np.random.default_rng(1), 40)
    rows = {r.image_id: ManifestRow(r.image_id, r.study_id, r.view, *r.size[::-1], tuple(r.labels)) for r in records}
    return records, ImageManifest("chexlocalize", "1", "test", 8, CHEXLOCALIZE_FINDINGS, rows)


@pytest.mark.parametrize("kind", ["cell", "point", "mask"])
@pytest.mark.parametrize("grid", [8, 16])
def test_full_hits_are_the_hits_that_scoring_counts(random_world, kind, grid):
    records, manifest = random_world
    if kind == "cell" and grid == 16:
        manifest = ImageManifest("chexlocalize", "1", "test", 16, CHEXLOCALIZE_FINDINGS, manifest.rows)
    predictions = model_predictions(records, manifest, quality=0.6, kind=kind, seed=4, missing_rate=0.1)
    predictions += [says("patient00000_study1_view1_frontal", "no such finding", cell="A1")]
    result = categorize(predictions, records, grid=grid, frontal_only=False)
    rows = score_localization(predictions, records, findings=CHEXLOCALIZE_FINDINGS, grid=grid)
    hits = rows.values["grid_hit"]
    defined = ~np.isnan(hits)
    assert [case.category == "full_hit" for case in result] == (hits[defined] == 1).tolist()
    assert result.n_undefined == (~defined).sum()
    assert 0.2 < hits[defined].mean() < 0.9
    estimates = summarize(rows, Resampling(200, interval="percentile"), metrics=["grid_hit"])
    wanted = {e.finding: (e.value, e.low, e.high) for e in estimates}
    inputs = {
        s.finding: (s.estimate.value, s.estimate.low, s.estimate.high)
        for s in shares(result, resampling=Resampling(200))
        if s.category == "full_hit"
    }
    for finding in CHEXLOCALIZE_FINDINGS:
        n_patients = len({case.patient_id for case in result if case.finding == finding})
        bounds = wanted[finding][1:] if n_patients >= 10 else (math.nan, math.nan)  # `score` has none of fewer patients
        assert inputs[finding] == pytest.approx((wanted[finding][0], *bounds), abs=1e-12, nan_ok=True)
    macro = shares(result, findings=CHEXLOCALIZE_FINDINGS, resampling=Resampling(200))[0]
    assert (macro.estimate.value, macro.estimate.low, macro.estimate.high) == pytest.approx(wanted["macro"], abs=1e-12)


def cases_of(finding, **counts):
    """Cases by category; `position_read` and `anatomy_read` are a reader's, every case its own patient."""
    cases = []
    for name, n in counts.items():
        category, _, by = name.partition("__")
        source = {"read": "reader", "": "none"}.get(by, by)
        for i in range(n):
            image_id = f"{finding}-{name}-{i}"
            cases.append(CaseError(image_id, image_id, finding, "PA", category, "A1", 0.0, source))
    return cases


def values_of(results, finding):
    return [share.estimate.value for share in results if share.finding == finding]


def test_shares_by_hand():
    # Edema: 10 cases, 1 outside the square, 4 cells not overlapping of which a reader judged 3 (2 position, 1 anatomy):
    # 4/10 is split 2 : 1.
    # Pneumothorax: 4 cases, all decided by the anatomy. Macro: the mean of the two.
    cases = cases_of(
        EDEMA, full_hit=2, partial_hit=2, position__read=2, anatomy__read=1, miss_unreviewed=1, outside=1, no_answer=1
    ) + cases_of("Pneumothorax", full_hit=1, anatomy__anatomy=2, position__anatomy=1)
    result = shares(cases, resampling=Resampling(50))
    assert [share.category for share in result[:7]] == list(CATEGORIES)
    assert values_of(result, EDEMA) == pytest.approx([0.2, 0.2, 0.4 * 2 / 3, 0.4 / 3, 0, 0.1, 0.1])
    assert values_of(result, "Pneumothorax") == pytest.approx([0.25, 0, 0.25, 0.5, 0, 0, 0])
    assert values_of(result, "macro") == pytest.approx([0.225, 0.1, 0.2 * 2 / 3 + 0.125, 0.2 / 3 + 0.25, 0, 0.05, 0.05])
    for finding in (EDEMA, "Pneumothorax", "macro"):
        assert sum(values_of(result, finding)) == pytest.approx(1)
    evidence = {share.finding: (share.n, share.n_misses, share.n_reviewed) for share in result}
    assert evidence == {"macro": (2, 7, 6), EDEMA: (10, 4, 3), "Pneumothorax": (4, 3, 3)}
    with_interval = [share for share in result if share.estimate.has_interval]
    assert {share.finding for share in with_interval} == {"macro", EDEMA}  # four patients have Pneumothorax
    assert all(share.estimate.low <= share.estimate.value <= share.estimate.high for share in with_interval)


def test_what_the_anatomy_decided_stands_for_nothing_else():
    cases = cases_of(EDEMA, anatomy__anatomy=4, position__read=1, anatomy__read=1, miss_unreviewed=4)
    # the 6 that the anatomy leaves are divided 1 : 1
    assert values_of(shares(cases, resampling=Resampling(20)), EDEMA) == pytest.approx([0, 0, 0.3, 0.7, 0, 0, 0])
    cases = cases_of(EDEMA, anatomy__anatomy=4, miss_unreviewed=1)
    assert values_of(shares(cases, resampling=Resampling(20)), EDEMA) == pytest.approx([0, 0, 0, 0.8, 0.2, 0, 0])


def test_without_any_review_the_kind_of_error_is_undefined():
    cases = cases_of(EDEMA, full_hit=1, miss_unreviewed=1) + cases_of("Atelectasis", full_hit=2)
    result = shares(cases, resampling=Resampling(20))
    assert np.array_equal(values_of(result, EDEMA), [0.5, 0, math.nan, math.nan, 0.5, 0, 0], equal_nan=True)
    assert np.isnan(
        [s.estimate.low for s in result if s.finding == EDEMA and s.category in ("position", "anatomy")]
    ).all()
    assert values_of(result, "Atelectasis") == [1, 0, 0, 0, 0, 0, 0]
    macro = {share.category: (share.estimate.value, share.n) for share in result if share.finding == "macro"}
    assert macro["position"] == (0.0, 1)
    assert macro["miss_unreviewed"] == (0.25, 2)


def test_at_most_max_reviewed_are_used_in_reading_order():
    cases = cases_of(EDEMA, position__read=30, anatomy__read=30, miss_unreviewed=40)
    read = sorted((c for c in cases if c.source == "reader"), key=lambda case: reading_order(case, 3))[:10]
    n_position = sum(case.category == "position" for case in read)
    result = shares(cases, max_reviewed=10, resampling=Resampling(20, 3))
    assert values_of(result, EDEMA)[2:4] == pytest.approx([n_position / 10, 1 - n_position / 10])
    assert result[-1].n_reviewed == 10
    everything = cases_of(EDEMA, position__read=45, anatomy__read=15)  # nothing is left to estimate: all are used
    assert values_of(shares(everything, max_reviewed=10, resampling=Resampling(20)), EDEMA)[2:4] == [0.75, 0.25]


def test_interval_of_an_estimated_share_covers_that_of_complete_reading():
    cases = cases_of(EDEMA, full_hit=50, position__read=25, anatomy__read=25)
    some = cases_of(EDEMA, full_hit=50, position__read=5, anatomy__read=5, miss_unreviewed=40)
    by_all, by_some = (next(s for s in shares(inputs) if s.category == "anatomy") for inputs in (cases, some))
    assert by_all.estimate.value == by_some.estimate.value == 0.25
    # by hand: sqrt(0.25 * 0.75 / 100) = 0.0433; with ten read, 0.5 * sqrt(0.25 / 10) = 0.079 and the misses' own
    assert by_all.sd == pytest.approx(0.0433, abs=0.004)
    assert by_some.sd == pytest.approx(math.hypot(0.079, 0.025), abs=0.012)
    assert by_some.estimate.low < by_all.estimate.low < by_all.estimate.high < by_some.estimate.high


def test_degenerate_shares():
    assert shares([], findings=[EDEMA], resampling=Resampling(5))[6].n == 0
    assert all(math.isnan(share.estimate.value) for share in shares([], resampling=Resampling(5)))
    assert shares(CaseErrors(grid=8, patients=["p"]), findings=(), resampling=Resampling(5))[0].n == 0
    one = shares(cases_of(EDEMA, full_hit=1), resampling=Resampling(5))
    of_edema = next(s for s in one if s.finding == EDEMA)
    assert (of_edema.estimate.value, of_edema.estimate.has_interval, of_edema.sd) == (1, False, 0)
    with pytest.raises(ValueError, match="`max_reviewed` must be at least 1, got 0"):
        shares([], max_reviewed=0)


def test_the_order_of_reading_does_not_depend_on_the_model():
    ours, theirs = cases_of(EDEMA, miss_unreviewed=5)[1:], cases_of(EDEMA, miss_unreviewed=5)[:-1]
    order = [case.image_id for case in sorted(ours, key=lambda case: reading_order(case, 0))]
    other = [case.image_id for case in sorted(theirs, key=lambda case: reading_order(case, 0))]
    common = set(order) & set(other)
    assert [name for name in order if name in common] == [name for name in other if name in common]
    assert len(common) == 3
