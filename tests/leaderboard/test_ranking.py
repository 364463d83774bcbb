"""ranking against a plain reading of its rules, hand-made systems, and what must not be revealed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reveal_leaderboard.release import ranking as tiers
from reveal_leaderboard.release.ranking import FEWEST_DIFFERING, Rows, rank_document
from reveal_leaderboard.settings import ReleasePolicy
from scipy import stats

from reveal_bench.evaluation.compare import rank
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.metrics.intervals import Resampling

POLICY = ReleasePolicy(n_resamples=300, band_resolution=(0.01, 0.01, 0.01), place_cell=50)
SHOWN, HIDDEN = ("Edema", "Cardiomegaly"), "Lung Lesion"
IMAGES = tuple((f"image{i:03d}", f"patient{i * 2 // 3:03d}") for i in range(90))
PAIRS = [(i, f) for i in range(90) for f in SHOWN if i % 3 or f == "Edema"] + [(i, HIDDEN) for i in range(12)]
LABELS = ("COPD", "Edema", "Nodule", "Rare")
STUDIES = tuple(StudyRecord(f"study{i:03d}", f"patient{i * 2 // 3:03d}", ()) for i in range(100))
PRESENT = np.random.default_rng(8).random((100, 4)) < (0.5, 0.45, 0.55, 0.1)
FloatArray = npt.NDArray[np.float64]


def cases(hits: FloatArray | list[float], *, iou: FloatArray | None = None) -> CaseRows:
    hits = np.asarray(hits, np.float64)
    return CaseRows(
        findings=(*SHOWN, HIDDEN),
        image_ids=[IMAGES[i][0] for i, _ in PAIRS],
        patient_ids=[IMAGES[i][1] for i, _ in PAIRS],
        case_findings=[finding for _, finding in PAIRS],
        point_kinds=["point"] * len(PAIRS),
        cell_kinds=["point"] * len(PAIRS),
        values={"point_hit": hits, "grid_hit": 1 - hits, "grid_chance": np.full(len(PAIRS), 0.25)}
        | ({} if iou is None else {"mask_iou_all": iou}),
        all_images=IMAGES,
    )


def pointer(share: float, seed: int) -> CaseRows:
    return cases((np.random.default_rng(seed).random(len(PAIRS)) < share).astype(float))


def reader(right: float, seed: int) -> StudyRows:
    rng = np.random.default_rng(seed)
    predicted = PRESENT ^ (rng.random(PRESENT.shape) > right)
    return StudyRows(LABELS, STUDIES, predicted, PRESENT, None, np.ones(100, bool))


def walk(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from walk(inner)
    else:
        yield value


def test_board_of_cells_ranks_by_the_grid_hit_rate() -> None:
    """The grid hits of these rows are the points' misses, so the order is reversed."""
    systems = {"a": pointer(0.1, 1), "b": pointer(0.95, 2)}
    points, cells = (rank_document(systems, replace(POLICY, place_metric=one)) for one in ("point_hit", "grid_hit"))
    assert [points["entries"][name]["rank"] for name in "ab"] == [2, 1]
    assert ([cells["entries"][name]["rank"] for name in "ab"], cells["metric"]) == ([1, 2], "grid_hit")


# Places ---------------------------------------------------------------------------------------------------------------


def test_far_apart_systems_have_places_of_their_own() -> None:
    document = rank_document({"c": pointer(0.1, 1), "a": pointer(0.95, 2), "b": pointer(0.5, 3)}, POLICY)
    assert document["entries"] == {
        name: {"rank": place, "rank_low": place, "rank_high": place, "tier": tier}
        for place, (name, tier) in enumerate(zip("abc", "ABC", strict=True), start=1)
    }
    assert (document["metric"], document["findings"], document["computed_for"]) == ("point_hit", [*SHOWN], [*"abc"])
    assert (document["n_resamples"], document["seed"], document["schema"]) == (300, 0, 1)


def test_chance_and_patients_are_those_of_the_holdout_in_whole_numbers() -> None:
    """A quarter of the cells of every image; of the labels with 10 studies or more, the share that has each."""
    document = rank_document({"a": pointer(0.9, 1), "b": pointer(0.1, 2)}, POLICY)
    assert (document["n_patients"], document["chance"]) == (60, {"grid_hit": 25})
    studies = rank_document({"a": reader(0.9, 1)}, POLICY)
    share = round(100 * PRESENT[:, [LABELS.index(label) for label in studies["findings"]]].mean())
    assert studies["chance"] == {"f1": share, "recall": share, "cohen_kappa": 0, "auroc": 50}


def test_members_of_a_tier_share_their_place() -> None:
    systems: dict[str, Rows] = {f"good{i}": reader(0.9, i) for i in range(3)}
    systems |= {f"poor{i}": reader(0.55, 10 + i) for i in range(2)}
    entries = rank_document(systems, POLICY)["entries"]
    assert all(entries[f"good{i}"] == {"rank": 1, "rank_low": 1, "rank_high": 3, "tier": "A"} for i in range(3))
    assert all(entries[f"poor{i}"] == {"rank": 4, "rank_low": 4, "rank_high": 5, "tier": "B"} for i in range(2))


def test_a_system_between_two_tiers_widens_the_ranks_of_its_own() -> None:
    # 0 differs significantly only from 2. 1 joins the tier of 0; 2 does not, but may be as good as 1: ranks 2 to 3.
    apart = np.zeros((3, 3), bool)
    apart[0, 2] = apart[2, 0] = True
    places = tiers.ranks(np.array([0.9, 0.8, 0.7]), apart)
    assert [(p["tier"], p["rank"], p["rank_low"], p["rank_high"]) for p in places] == [
        ("A", 1, 1, 3),  # 0 alone would be 1-2, 1 alone 1-3
        ("A", 1, 1, 3),
        ("B", 3, 2, 3),
    ]


@pytest.mark.parametrize("kind", ["cases", "studies"])
def test_a_closed_board_has_the_ranks_of_rank(kind: str) -> None:
    make: Any = pointer if kind == "cases" else reader
    named = {str(i): make(s, i) for i, s in enumerate((0.9, 0.75, 0.7, 0.35))}
    metric, findings = ("point_hit", SHOWN) if kind == "cases" else ("f1", LABELS[:3])
    ranked = rank(named, metric=metric, findings=findings, resampling=Resampling(400))
    document = rank_document(named, replace(POLICY, n_resamples=400), paired=True)
    assert document["findings"] == list(findings)
    entries = document["entries"]
    assert 1 < max(one.tier or 0 for one in ranked) < 4, "some pairs, but not all, must differ significantly"
    for tier in {one.tier for one in ranked}:
        members = [one for one in ranked if one.tier == tier]
        bounds = min(one.rank_low or 0 for one in members), max(one.rank_high or 0 for one in members)
        assert {(entries[one.name]["rank_low"], entries[one.name]["rank_high"]) for one in members} == {bounds}
        assert {entries[one.name]["tier"] for one in members} == {"ABCD"[(tier or 1) - 1]}


def test_equal_skill_rarely_differs_significantly() -> None:
    # 5% of such boards may have a significant pair; more than 6 of 40 at that rate has a chance below 0.4%.
    n_wrong = 0
    for seed in range(40):
        systems = {str(i): pointer(0.6, 1000 + 10 * seed + i) for i in range(5)}
        entries = rank_document(systems, POLICY, paired=True)["entries"]
        n_wrong += any(entry["rank_low"] != 1 or entry["rank_high"] != 5 for entry in entries.values())
    assert n_wrong <= 6


def test_a_place_holds_no_figure_and_no_order_beyond_the_tier() -> None:
    systems: dict[str, Rows] = {str(i): reader(0.5 + i / 25, i) for i in range(10)}
    document = rank_document(systems, POLICY)
    assert not any(isinstance(value, float) for value in walk(document))
    json.dumps(document, allow_nan=False)
    places: dict[str, set[str]] = {}
    for entry in document["entries"].values():
        places.setdefault(entry["tier"], set()).add(json.dumps(entry))
        assert entry["rank_low"] <= entry["rank"] <= entry["rank_high"]
    assert all(len(different) == 1 for different in places.values())


@pytest.mark.parametrize("n", [30, 60, 100, 1000])
@pytest.mark.parametrize("limit", [2.0, 3.2, 4.5])
def test_few_patients_ask_for_more_as_student_has_it(limit: float, n: int) -> None:
    exact = stats.t.isf(stats.norm.sf(limit * math.sqrt(n / (n - 1))), n - 1)
    assert tiers._for_few(limit, n) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(("number", "letters"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (702, "AAA")])
def test_tiers_are_lettered_on_and_on(number: int, letters: str) -> None:
    assert tiers._letters(number) == letters


def test_near_copies_never_differ_significantly() -> None:
    # One differing in 9 cases, all of them hits of the other, would differ significantly by its spread alone.
    hits = pointer(0.5, 4).values["point_hit"].copy()
    better = hits.copy()
    better[np.flatnonzero(hits == 0)[: FEWEST_DIFFERING - 1]] = 1
    entries = rank_document({"a": cases(better), "b": cases(hits), "c": cases(hits)}, POLICY, paired=True)["entries"]
    assert {entry["tier"] for entry in entries.values()} == {"A"}


@pytest.mark.parametrize("rows", [cases([1.0] * len(PAIRS)), reader(1.0, 0)], ids=["cases", "studies"])
def test_one_system_alone_is_first(rows: Rows) -> None:
    entries = rank_document({"only": rows}, POLICY)["entries"]
    assert entries == {"only": {"rank": 1, "rank_low": 1, "rank_high": 1, "tier": "A"}}


def test_a_constant_difference_has_no_spread_and_tells_apart() -> None:
    entries = rank_document({"all": cases([1.0] * len(PAIRS)), "none": cases([0.0] * len(PAIRS))}, POLICY)["entries"]
    assert [entries[name]["rank_low"] for name in ("all", "none")] == [1, 2]


def test_boards_without_anything_to_rank() -> None:
    assert rank_document({}, POLICY)["entries"] == {}
    strict = ReleasePolicy(min_cell=1000)
    for rows in (pointer(0.5, 1), reader(0.8, 1)):
        document = rank_document({"a": rows}, strict)
        assert (document["entries"], document["findings"], document["computed_for"]) == ({}, [], ["a"])


def test_a_system_without_any_prediction_is_not_placed() -> None:
    empty = pointer(0.5, 1)
    empty = replace(empty, values={"grid_chance": empty.values["grid_chance"]})
    document = rank_document({"empty": empty, "full": pointer(0.5, 2)}, POLICY)
    assert (list(document["entries"]), document["computed_for"]) == (["full"], ["empty", "full"])


def test_other_cases_and_other_kinds_are_refused() -> None:
    other = replace(pointer(0.5, 1), all_images=IMAGES[:-1])
    with pytest.raises(ValueError, match="must be scored on the same images"):
        rank_document({"a": pointer(0.5, 1), "b": other}, POLICY)
    with pytest.raises(ValueError, match="one kind of benchmark"):
        rank_document({"a": pointer(0.5, 1), "b": reader(0.5, 1)}, POLICY)


def test_hidden_findings_change_nothing() -> None:
    hits = pointer(0.7, 1).values["point_hit"]
    other = np.where([finding == HIDDEN for _, finding in PAIRS], 1 - hits, hits)
    places = [rank_document({"a": cases(own), "b": pointer(0.4, 2)}, POLICY) for own in (hits, other)]
    assert places[0] == places[1]
    assert HIDDEN not in json.dumps(places)
    calls = reader(0.8, 1)
    flipped = calls.predicted.copy()
    flipped[:, 3] = ~flipped[:, 3]
    own = [replace(calls, predicted=predicted) for predicted in (calls.predicted, flipped)]
    documents = [rank_document({"a": one, "b": reader(0.6, 2)}, POLICY) for one in own]
    assert documents[0] == documents[1]
    assert "Rare" not in json.dumps(documents)


def test_a_mask_without_a_reference_is_no_case() -> None:
    # Where all findings are asked, a wrong mask elsewhere adds a row with an IoU of 0, which release takes out.
    rng = np.random.default_rng(1)
    a, b = (cases(rng.random(len(PAIRS)).round(), iou=rng.random(len(PAIRS))) for _ in range(2))
    extra = replace(
        a,
        image_ids=[*a.image_ids, IMAGES[0][0]],
        patient_ids=[*a.patient_ids, IMAGES[0][1]],
        case_findings=[*a.case_findings, "Cardiomegaly"],
        point_kinds=[*a.point_kinds, "mask"],
        cell_kinds=[*a.cell_kinds, "mask"],
        values={name: np.append(v, 0.0 if name == "mask_iou_all" else np.nan) for name, v in a.values.items()},
    )
    assert rank_document({"a": extra, "b": b}, POLICY) == rank_document({"a": a, "b": b}, POLICY)


def test_the_overlap_of_two_has_a_part_in_their_places_only_once_the_board_is_closed() -> None:
    # The same two hit rates, once nested and once as far apart as possible: paired, the nested ones differ clearly.
    low, nested, far = np.zeros((3, len(PAIRS)))
    for finding in SHOWN:
        own = [i for i, (_, of) in enumerate(PAIRS) if of == finding]
        half, more = len(own) // 2, len(own) // 2 + len(own) // 8
        low[own[:half]] = nested[own[:more]] = far[own[-more:]] = 1
    tiers_of = {}
    for name, other in (("nested", nested), ("far", far)):
        for paired in (False, True):
            document = rank_document({"a": cases(other), "b": cases(low)}, POLICY, paired=paired)
            assert document["paired"] is paired
            tiers_of[name, paired] = document["entries"]["b"]["tier"]
    assert tiers_of["nested", True] == "B"
    assert tiers_of["nested", False] == tiers_of["far", False] == "A"


def test_places_of_an_open_board_follow_from_rounded_macros() -> None:
    """Macros that differ by less than the step of .005 have the same places, whatever their tail."""
    rng = np.random.default_rng(0)
    macros = np.stack([level + rng.normal(0, 0.002, 200) for level in (0.5, 0.5, 0.5)])
    apart = tiers.differ_unpaired(np.array([0.5, 0.505, 0.53]), macros, 1000)
    # spreads of .002 count as .005: a difference needs 2.4 (Bonferroni, three pairs) x .0071 = .017
    assert apart.tolist() == [[False, False, True], [False, False, True], [True, True, False]]


def test_an_edit_of_one_answer_changes_no_place_on_an_open_board() -> None:
    hits = pointer(0.6, 1).values["point_hit"].copy()
    hits[0], edited = 0.0, hits.copy()
    edited[0] = 1.0
    systems: dict[str, Rows] = {"same": cases(hits.copy()), "own": cases(hits)}
    for other in (hits, edited):
        assert {e["tier"] for e in rank_document(systems | {"x": cases(other)}, POLICY)["entries"].values()} == {"A"}
