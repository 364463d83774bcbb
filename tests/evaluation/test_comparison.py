"""Comparison against plain loops over the same draws, scipy, hand arithmetic and published scores."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.evaluation.compare import (
    Comparison,
    as_records,
    compare,
    compare_resampled,
    decrease,
    rank,
    relative_decrease,
)
from reveal_bench.evaluation.permutation import LEAST_DIFFERING
from reveal_bench.evaluation.tiers import find_tiers
from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.multiplicity import holm
from reveal_bench.metrics.resampled import Figures
from tests.evaluation.test_reference_rows import EXTENDED_DATA_FIG_5, EXTENDED_DATA_FIG_6, pair

NAN = float("nan")
FINDINGS = ("Edema", "Consolidation", "Lung Lesion")
N_IMAGES, N_PATIENTS = 60, 25
IMAGES = tuple((f"image{i:02d}", f"patient{(i * 7) % N_PATIENTS:02d}") for i in range(N_IMAGES))
FloatArray = npt.NDArray[np.float64]


def system(rng: np.random.Generator, share: float, *, rare: int = 3, undefined: float = 0.0) -> CaseRows:
    """Hits with probability `share`; the last finding has `rare` rows, the same ones for every system."""
    places = np.random.default_rng(1)
    pairs = [(i, finding) for i in range(50) for finding in FINDINGS[:2] if places.random() < 0.7]
    pairs += [(i, FINDINGS[2]) for i in range(rare)]
    hits = (rng.random(len(pairs)) < share).astype(float)
    hits[rng.random(len(pairs)) < undefined] = NAN
    return case_rows(pairs, {"point_hit": hits, "mask_iou": hits * rng.random(len(pairs))})


def case_rows(pairs: list[tuple[int, str]], values: dict[str, FloatArray]) -> CaseRows:
    return CaseRows(
        findings=FINDINGS,
        image_ids=[IMAGES[i][0] for i, _ in pairs],
        patient_ids=[IMAGES[i][1] for i, _ in pairs],
        case_findings=[finding for _, finding in pairs],
        point_kinds=["point"] * len(pairs),
        cell_kinds=["point"] * len(pairs),
        values=values,
        all_images=IMAGES,
    )


def constant(*values: float) -> CaseRows:
    """A value per finding, the same in ten images."""
    pairs = [(i, finding) for finding in FINDINGS for i in range(10)]
    return case_rows(pairs, {"point_hit": np.repeat(values, 10).astype(float)})


def loop_means(rows: CaseRows, metric: str, n_resamples: int, seed: int) -> list[list[float]]:
    """Means per finding of every replicate: patients drawn one after another, in plain Python."""
    patients = sorted({patient for _, patient in IMAGES})
    replicates = []
    for draw in np.random.default_rng(seed).integers(0, len(patients), (n_resamples, len(patients))).tolist():
        means = []
        for finding in FINDINGS:
            drawn = [
                value
                for k in draw
                for value, p, f in zip(rows.values[metric], rows.patient_ids, rows.case_findings, strict=True)
                if p == patients[k] and f == finding and not math.isnan(value)
            ]
            means.append(math.fsum(drawn) / len(drawn) if drawn else NAN)
        replicates.append(means)
    return replicates


def n_patients_who_differ(a: CaseRows, b: CaseRows, metric: str, finding: str) -> int:
    """Patients with a case of the finding, or any for the macro, to which the systems have different values."""
    rows = zip(a.patient_ids, a.case_findings, a.values[metric], b.values[metric], strict=True)
    return len(
        {p for p, f, x, y in rows if finding in (MACRO, f) and not (x == y or (math.isnan(x) and math.isnan(y)))}
    )


@pytest.mark.parametrize("function", [compare, relative_decrease])
@pytest.mark.parametrize("metric", ["point_hit", "mask_iou"])
def test_paired_intervals_and_p_equal_a_plain_loop(
    function: Callable[..., list[Comparison]], metric: str, rng: np.random.Generator
) -> None:
    a, b = system(rng, 0.6, undefined=0.1), system(rng, 0.45)
    of_a, of_b = (loop_means(rows, metric, 120, 5) for rows in (a, b))

    def combined(x: float, y: float) -> float:
        if function is compare:
            return x - y
        return (y - x) / y if y else NAN

    def macro(x: list[float], y: list[float]) -> float:
        both = [i for i in range(3) if not math.isnan(x[i] + y[i])]
        return combined(sum(x[i] for i in both) / len(both), sum(y[i] for i in both) / len(both))

    expected = {MACRO: [macro(x, y) for x, y in zip(of_a, of_b, strict=True)]}
    for i, finding in enumerate(FINDINGS):
        expected[finding] = [combined(x[i], y[i]) for x, y in zip(of_a, of_b, strict=True)]
    got = function(a, b, Resampling(120, 5, interval="percentile"), metrics=[metric])
    assert [c.finding for c in got] == [MACRO, *FINDINGS]
    n_empty: list[int] = []
    few: list[str] = []
    for c, loop in zip(got, expected.values(), strict=True):
        defined = [value for value in loop if not math.isnan(value)]
        n_empty.append(120 - len(defined))
        if 0 < n_patients_who_differ(a, b, metric, c.finding) < LEAST_DIFFERING:
            few.append(c.finding)
            assert all(math.isnan(x) for x in (c.estimate.low, c.estimate.high, c.p))
            continue
        low, high = np.percentile(defined, [2.5, 97.5])
        fewer = min(sum(v <= 1e-12 for v in defined), sum(v >= -1e-12 for v in defined))
        assert (c.estimate.low, c.estimate.high) == pytest.approx((low, high), rel=1e-9, abs=1e-12)
        assert c.p == min(1, 2 * (fewer + 1) / (len(defined) + 1))
        assert c.n_empty_replicates == n_empty[-1]
        assert c.signature == f"{metric}|b:120|seed:5|unit:patient|v:1"
    assert few == [FINDINGS[2]]
    assert n_empty[3] > 0  # the rare finding is missing, or 0 in the reference, in some replicates


def test_values_are_those_of_each_system(rng: np.random.Generator) -> None:
    a, b = system(rng, 0.7, undefined=0.2), system(rng, 0.4)
    own = [{(e.metric, e.finding): e for e in summarize(rows)} for rows in (a, b)]
    compared = compare(a, b)
    assert len(compared) == 8
    for c in compared:
        of_a, of_b = (estimates[c.metric, c.finding] for estimates in own)
        assert (c.a, c.b, c.n_a, c.n_b) == (of_a.value, of_b.value, of_a.n, of_b.n)
        assert c.estimate.value == pytest.approx(of_a.value - of_b.value)
    for c in relative_decrease(a, b):
        assert c.estimate.value == pytest.approx((c.b - c.a) / c.b, nan_ok=True)


def test_no_decrease_exceeds_one(rng: np.random.Generator) -> None:
    highs = [c.estimate.high for c in relative_decrease(system(rng, 0.05), system(rng, 0.5), metrics=["point_hit"])]
    assert np.nanmax(highs) == 1


def test_hand_arithmetic_of_constant_systems() -> None:
    # every replicate has the value of the data, which makes no interval, and p = 2 (0 + 1) / (99 + 1)
    a, b = constant(0.5, 0.25, 0.75), constant(1.0, 0.25, 0.5)
    got = {c.finding: c for c in compare(a, b, Resampling(99, interval="percentile"))}
    expected = {MACRO: 0.5 - 1.75 / 3, "Edema": -0.5, "Consolidation": 0.0, "Lung Lesion": 0.25}
    for finding, value in expected.items():
        c = got[finding]
        assert (c.estimate.value, c.estimate.low, c.estimate.high) == pytest.approx((value, NAN, NAN), nan_ok=True), (
            finding
        )
        assert c.p == (1 if finding == "Consolidation" else 0.02)
    shares = {c.finding: c.estimate.value for c in relative_decrease(a, b)}
    assert shares == pytest.approx({MACRO: 1 - 1.5 / 1.75, "Edema": 0.5, "Consolidation": 0, "Lung Lesion": -0.5})


@pytest.mark.parametrize(("n", "p"), [(1, NAN), (LEAST_DIFFERING - 1, NAN), (LEAST_DIFFERING, 0.02)])
def test_percentiles_of_too_few_patients_who_differ_have_no_p_either(n: int, p: float) -> None:
    """A hit on the same image in every replicate that draws it, as sign flips of so few patients have no p."""
    pairs = [(i, FINDINGS[0]) for i in range(10)]
    hits = np.arange(10) < n
    a, b = (case_rows(pairs, {"point_hit": values.astype(float)}) for values in (hits, hits & False))
    one = compare(a, b, Resampling(99, interval="percentile"), metrics=["point_hit"], findings=FINDINGS[:1])[1]
    assert one.p == pytest.approx(p, nan_ok=True)
    assert one.estimate.has_interval == (n >= LEAST_DIFFERING)


def test_equal_systems_do_not_differ(rng: np.random.Generator) -> None:
    a = system(rng, 0.5)
    by_jackknife = [c for c in compare(a, a) if c.finding in FINDINGS[:2]]  # the third is too rare for a p
    for c in [*compare(a, a, Resampling(interval="percentile")), *by_jackknife]:
        assert (c.estimate.value, c.p) == (0, 1)
        assert math.isnan(c.estimate.low)  # how rarely they differ is unknown
        assert math.isnan(c.estimate.high)


def test_a_reference_of_zero_has_no_decrease() -> None:
    got = {c.finding: c for c in relative_decrease(constant(0.5, 0.5, 0.5), constant(0.0, 1.0, 1.0), Resampling(50))}
    edema = got["Edema"]
    assert all(
        math.isnan(figure) for figure in (edema.estimate.value, edema.estimate.low, edema.estimate.high, edema.p)
    )
    assert (edema.a, edema.b, edema.n_empty_replicates) == (0.5, 0, 0)
    assert got[MACRO].estimate.value == pytest.approx((2 / 3 - 0.5) / (2 / 3))
    assert json.loads(json.dumps(as_records([edema]), allow_nan=False))[0]["value"] is None


def test_a_reference_of_zero_on_the_data_alone_has_no_decrease() -> None:
    """A detector's score of 0 may exceed 0 in replicates; their decreases must not become the interval of an undefined
    value.
    """
    model, reference = (
        Figures(np.array([value]), np.linspace(0.1, 0.9, 50)[:, None], np.array([20])) for value in (0.5, 0.0)
    )
    recipe = Resampling(50).by("percentile").signature("froc_0125", "1")
    for one in compare_resampled(model, reference, ["Edema"], recipe=recipe, combine=decrease):
        ends = one.estimate.value, one.estimate.low, one.estimate.high, one.p, one.low_adjusted, one.p_adjusted
        assert np.isnan(ends).all()


def test_a_macro_is_over_the_findings_that_both_have() -> None:
    # the second finding of b is undefined: its 0.25 of a takes no part in either macro
    got = compare(constant(0.5, 0.25, 0.75), constant(1.0, NAN, 0.5), Resampling(50, interval="percentile"))
    assert (got[0].a, got[0].b, got[0].n_a, got[0].n_b) == (0.625, 0.75, 2, 2)
    assert (got[2].a, got[2].n_b, got[2].n_empty_replicates) == (0.25, 0, 50)
    assert math.isnan(got[2].estimate.value)
    assert math.isnan(got[2].p)


@pytest.mark.parametrize(
    ("metric", "table"), [("mask_iou", EXTENDED_DATA_FIG_5), ("point_hit", EXTENDED_DATA_FIG_6)], ids=["Fig 5", "Fig 6"]
)
def test_published_relative_decreases(metric: str, table: dict[str, tuple[str, str]]) -> None:
    # The denominators are from submissions/reference/chexlocalize/README.md. Over the saliency column, (h - s) / s
    # is the decrease from saliency to human with its sign turned. The printed columns have three digits, hence 0.1.
    human, saliency = ({f: float(v) for f, v in column.items()} for column in pair(metric))
    assert set(table) == set(human)
    for finding, (printed, denominator) in table.items():
        h, s = human[finding], saliency[finding]
        got = decrease(s, h) if denominator == "human" else -decrease(h, s)
        assert 100 * got == pytest.approx(float(printed), abs=0.1001), finding
    # ours always divides by the human figure: the four findings of Fig. 5 where saliency is better read lower there
    ours = decrease([saliency[f] for f in table], [human[f] for f in table])
    differ = [f for f, value in zip(table, 100 * ours, strict=True) if abs(value - float(table[f][0])) > 0.1001]
    assert differ == [f for f, (_, denominator) in table.items() if denominator == "saliency"]


def test_holm_by_hand() -> None:
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04 -> the last may not fall below 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1, 1])
    assert holm([]).tolist() == []


def test_intervals_of_a_ranking_equal_those_of_a_loop(rng: np.random.Generator) -> None:
    systems = {name: system(rng, share) for name, share in (("x", 0.45), ("y", 0.5), ("z", 0.9))}
    macros = [[np.nanmean(means) for means in loop_means(rows, "point_hit", 130, 2)] for rows in systems.values()]
    ranked = rank(systems, metric="point_hit", resampling=Resampling(130, 2, interval="percentile"))
    assert [r.name for r in ranked] == sorted(systems, key=lambda name: -summarize(systems[name])[0].value)
    for i, name in enumerate(systems):
        (r,) = [r for r in ranked if r.name == name]
        assert (r.estimate.low, r.estimate.high) == pytest.approx(
            tuple(np.percentile(macros[i], [2.5, 97.5])), rel=1e-9
        )
        assert (r.estimate.value, r.n) == (summarize(systems[name], metrics=["point_hit"])[0].value, 3)
        assert r.signature == "point_hit|b:130|seed:2|unit:patient|v:1"


def test_rank_and_score_give_a_macro_the_same_interval(rng: np.random.Generator) -> None:
    rows = system(rng, 0.6)
    (ranked,) = rank({"alone": rows}, metric="point_hit")
    macro = summarize(rows, metrics=["point_hit"])[0]
    assert macro.high - macro.low > 0.05
    assert (ranked.estimate.low, ranked.estimate.high) == pytest.approx((macro.low, macro.high), rel=1e-9)


def test_tiers_of_clear_and_of_equal_systems() -> None:
    systems = {
        "low": constant(0.1, 0.1, 0.1),
        "best": constant(0.9, 0.9, 0.9),
        "twin": constant(0.9, 0.9, 0.9),
        "middle": constant(0.5, 0.5, 0.5),
    }
    ranked = rank(systems, metric="point_hit")
    assert [(r.name, r.rank, r.rank_low, r.rank_high, r.tier) for r in ranked] == [
        ("best", 1, 1, 2, 1),
        ("twin", 1, 1, 2, 1),
        ("middle", 3, 3, 3, 2),
        ("low", 4, 4, 4, 3),
    ]
    assert ranked[0].signature == "point_hit|b:10000|seed:0|unit:patient|i:jackknife|v:1"


def test_tiers_are_those_of_the_pairwise_comparisons(rng: np.random.Generator) -> None:
    systems = {f"s{k}": system(rng, share) for k, share in enumerate((0.9, 0.8, 0.65, 0.6, 0.5, 0.2))}
    resampling = Resampling(2000, interval="percentile")
    ranked = rank(systems, metric="point_hit", resampling=resampling)
    names = [r.name for r in ranked]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    p = [compare(systems[a], systems[b], resampling, metrics=["point_hit"])[0].p for a, b in pairs]
    apart = {pair for pair, corrected in zip(pairs, holm(p), strict=True) if corrected <= 0.05}
    for i, r in enumerate(ranked):
        worse = sum((r.name, other) in apart for other in names[i + 1 :])
        assert r.rank_low == 1 + sum((other, r.name) in apart for other in names[:i])
        assert r.rank_high == len(names) - worse
    tier = {r.name: r.tier for r in ranked}
    assert [r.tier for r in ranked] == sorted(r.tier for r in ranked)
    assert 1 < ranked[-1].tier < len(systems)
    for a, b in pairs:
        assert tier[a] != tier[b] or (a, b) not in apart
    for k in range(2, ranked[-1].tier + 1):  # each tier is opened by a system that differs from a member above
        opener = next(name for name in names if tier[name] == k)
        assert any((a, opener) in apart for a in names if tier[a] == k - 1)


def test_system_different_from_any_member_opens_a_tier() -> None:
    # Best to worst 2, 0, 1, 3: only 0 and 1 differ; 1 opens a tier although it does not differ from 2, the best
    differs = np.zeros((4, 4), bool)
    differs[0, 1] = differs[1, 0] = True
    assert find_tiers([2, 0, 1, 3], differs) == [[2, 0], [1, 3]]


def test_lower_is_better_if_the_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "point_hit", dataclasses.replace(METRICS["point_hit"], better="lower"))
    systems = {"high": constant(0.9, 0.9, 0.9), "low": constant(0.2, 0.2, 0.2)}
    assert [(r.name, r.rank_high) for r in rank(systems, metric="point_hit", resampling=Resampling(40))] == [
        ("low", 1),
        ("high", 2),
    ]


def test_one_system_is_first(rng: np.random.Generator) -> None:
    (only,) = rank({"alone": system(rng, 0.5)}, metric="mask_iou", resampling=Resampling(1))
    assert (only.rank, only.rank_low, only.rank_high, only.tier) == (1, 1, 1, 1)


def test_incomparable_systems_are_refused(rng: np.random.Generator) -> None:
    a = system(rng, 0.5)
    elsewhere = dataclasses.replace(a, all_images=(*IMAGES, ("image99", "patient99")))
    no_mask = dataclasses.replace(a, values={"point_hit": a.values["point_hit"]})
    no_point = dataclasses.replace(a, values={"mask_iou": a.values["mask_iou"]})
    for call, message in (
        (lambda: compare(a, elsewhere), "scored on the same images, got 'image99' in only some of them"),
        (lambda: compare(no_mask, no_point), "a metric must apply to both systems, got ['point_hit'] and ['mask_iou']"),
        (lambda: compare(a, no_mask, metrics=["mask_iou"]), "`metrics` must be among ['point_hit'], got ['mask_iou']"),
        (lambda: compare(a, a, findings=["Edma"]), "got ['Edma']"),
        (lambda: rank({}, metric="point_hit"), "`systems` must contain at least one system, got none"),
        (
            lambda: rank({"a": a}, metric="grid_chance"),
            "`metric` must be a metric for which higher or lower is better, got 'grid_chance'",
        ),
        (lambda: rank({"a": a, "b": no_mask}, metric="mask_iou"), "got 'mask_iou', which does not apply to 'b'"),
        (
            lambda: rank({"a": constant(NAN, 1, 1), "b": constant(1, NAN, NAN)}, metric="point_hit"),
            "must have a finding with a score of every system, got none",
        ),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
