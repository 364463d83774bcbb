"""The part of a score that leaves the worker."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from reveal_leaderboard.release.release import ReleasedScore, climb, primary_figure, release, split_final
from reveal_leaderboard.release.rounding import Rounding
from reveal_leaderboard.settings import ReleasePolicy

from reveal_bench.kinds.localization.scoring import CaseRows, score_localization
from reveal_bench.kinds.scored import effective_size
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.words import count_text
from tests.leaderboard.conftest import RARE, Board, guesses

EACH = ReleasePolicy(place_cell=30)
"""Policy in which findings of 30 cases also have separate scores."""


def make_rows(values: Mapping[str, Mapping[str, Sequence[float]]]) -> CaseRows:
    """Return rows from metric -> finding -> values; case i of every finding belongs to patient i."""
    first = next(iter(values.values()))
    cases = [(finding, i) for finding, numbers in first.items() for i in range(len(numbers))]
    n_patients = max(len(numbers) for numbers in first.values())
    return CaseRows(
        findings=tuple(first),
        image_ids=[f"i{i}" for _, i in cases],
        patient_ids=[f"p{i}" for _, i in cases],
        case_findings=[finding for finding, _ in cases],
        point_kinds=["point"] * len(cases),
        cell_kinds=["point"] * len(cases),
        values={
            metric: np.array([x for numbers in by_finding.values() for x in numbers], float)
            for metric, by_finding in values.items()
        },
        all_images=tuple((f"i{i}", f"p{i}") for i in range(n_patients)),
    )


def hits(n_hits: int, n: int) -> list[float]:
    return [1.0] * n_hits + [0.0] * (n - n_hits)


ROWS = make_rows({"point_hit": {"A": hits(13, 40), "B": hits(10, 10), "C": hits(77, 200)}})


def test_small_finding_is_hidden_and_not_in_the_macro() -> None:
    score = release(ROWS)
    assert (score.shown, score.hidden) == (("A", "C"), ("B",))
    assert score.figure("point_hit", "B") is None
    macro = score.figure("point_hit")
    # (13/40 + 77/200) / 2 = (0.325 + 0.385) / 2 = 0.355; all three would give 0.57. Half of A's step of 0.1 is 0.05.
    assert macro.value == 0.35
    assert macro.n == "2"
    assert "B" in score.note


def test_scores_are_rounded_and_counts_are_ranges() -> None:
    score = release(ROWS, EACH)
    figure = score.figure("point_hit", "C")
    assert figure.value == 0.38  # 77/200 = 0.385, in steps of 0.02
    assert figure.n == "120+"
    numbers = [x for f in score.figures for x in (f.value, f.low, f.high) if x is not None]
    assert [round(x, 2) for x in numbers] == numbers
    assert figure.low is not None
    assert figure.high is not None
    assert figure.low < figure.value < figure.high


def test_finding_of_few_cases_has_a_coarse_score_and_interval() -> None:
    figure = release(make_rows({"point_hit": {"A": hits(13, 40)}}), EACH).figure("point_hit", "A")
    assert (figure.value, figure.n) == (0.4, "30-59")  # 13/40 = 0.325, in steps of 2 x 0.1
    # A proportion p is possible if within 1.96 (p (1 - p) / 40 + 0.2^2 / 12)^(1/2) of 0.4: 0.228 and 0.590 (roots are
    # 0.0879 and 0.0970), not 0.227 and 0.591. Bounds are rounded outwards to steps of 0.05.
    assert (figure.low, figure.high) == (0.2, 0.6)
    assert figure.signature == "point_hit|unit:patient|i:shown|v:1"


def test_cases_of_one_patient_count_as_one() -> None:
    """20 patients with two cases each count as 20 cases."""
    rows = make_rows({"point_hit": {"A": hits(24, 40)}})
    figure = release(replace(rows, patient_ids=[f"p{i // 2}" for i in range(40)]), EACH).figure("point_hit", "A")
    # p = 0.6 -+ d with d = 1.96 (p (1 - p) / 20 + 0.2^2 / 12)^(1/2): 0.361, with a root of 0.122, and 0.806 (0.106)
    assert (figure.low, figure.high) == (0.35, 0.85)
    assert release(rows, EACH).figure("point_hit", "A").low == 0.4  # p = 0.411: the root for 40 is 0.097
    assert effective_size(["a", "b", "c", "c"]) == 16 / 6  # (1 + 1 + 2)^2 / (1 + 1 + 4)


def test_interval_bounds_reveal_no_more_than_the_value() -> None:
    """15 to 17 hits in 40 cases have the same released score; exact bounds would distinguish some of them."""
    released = set()
    for n_hits in range(15, 18):  # 0.375 to 0.425: all released as 0.4
        rows = make_rows({"point_hit": {"A": hits(n_hits, 40)}})
        figure = release(rows, EACH).figure("point_hit", "A")
        released.add((figure.value, figure.low, figure.high))
    assert len(released) == 1
    assert len({math.ceil(20 * (n / 40 + 1.96 * math.sqrt(n / 40 * (1 - n / 40) / 40))) for n in range(15, 18)}) > 1


@pytest.mark.parametrize(
    ("n_cases", "step"),
    [([30], 0.1), ([30, 40], 0.05), ([59, 60, 200, 200, 200], 0.02), ([30] * 10, 0.01), ([60, 120], 0.05), ([], 0.01)],
)
def test_no_macro_is_finer_than_its_findings(n_cases: list[int], step: float) -> None:
    """A tenth of a finding changes a macro over L findings by 0.1 / L, rounded up to 0.01, 0.02, 0.05 or 0.1."""
    assert Rounding(ReleasePolicy()).macro_step(n_cases) == step


def test_macro_over_one_finding_equals_its_score() -> None:
    for n_hits in (12, 14):  # 0.27 and 0.31: only a macro in steps of 0.1 would distinguish them
        score = release(make_rows({"point_hit": {"A": hits(n_hits, 45)}}), EACH)
        assert score.figure("point_hit").value == score.figure("point_hit", "A").value


def test_macro_is_rounded_by_its_own_findings() -> None:
    """Only one of five findings has enough cases for overlap, so the macro equals it and is as coarse."""
    cases = {"A": 80} | dict.fromkeys("BCDE", 32)
    rows = make_rows(
        {"point_hit": {name: hits(n // 2, n) for name, n in cases.items()},
         "mask_iou_all": {name: [0.33] * n for name, n in cases.items()}}
    )  # fmt: skip
    score = release(rows, EACH)
    assert score.figure("mask_iou_all", "B") is None
    assert score.figure("mask_iou_all").value == score.figure("mask_iou_all", "A").value == 0.3
    assert score.figure("point_hit").value == 0.5
    # As a third score, after the grid hit rate, it needs 3 x 30 cases of its own. The hit rates' average is worth
    # 5^2 / (1/80 + 4/32) = 182 cases, which allows six scores: five hit rates, and the average of the grid hit rate.
    values = {metric: dict.fromkeys("BCDE", [1.0] * 32) for metric in ("point_hit", "grid_hit", "mask_iou_all")}
    score = release(make_rows({metric: {"A": [0.33] * 80} | of for metric, of in values.items()}), EACH)
    assert {figure.metric for figure in score.figures if figure.finding == MACRO} == {"point_hit", "grid_hit"}
    assert score.note.endswith("Not shown, because the cases are too few: mIoU, all.")


@pytest.mark.parametrize("n_hits", [0, 1, 5, 9])
def test_hidden_finding_changes_no_released_score(n_hits: int) -> None:
    """Differencing: predictions for the hidden finding change no released score."""
    other = make_rows({"point_hit": {"A": hits(13, 40), "B": hits(n_hits, 10), "C": hits(77, 200)}})
    assert release(other) == release(ROWS)


def test_split_of_small_findings_releases_nothing() -> None:
    score = release(make_rows({"point_hit": {"A": hits(3, 29), "B": hits(1, 5)}}))
    assert score.figures == ()
    assert score.hidden == ("A", "B")
    assert "Nothing can be shown" in score.note
    assert score.signature == ""


def test_metrics_with_submission_dependent_cases_are_hidden() -> None:
    """Empty masks are undefined in `mask_iou`, so 74 of them would leave the score of one selected case."""
    one_left = [0.1] + [float("nan")] * 74
    rows = make_rows({"point_hit": {"A": hits(25, 75)}, "mask_iou": {"A": one_left}, "mask_iou_all": {"A": [0.5] * 75}})
    assert {figure.metric for figure in release(rows, EACH).figures} == {"point_hit", "mask_iou_all"}


def test_undefined_metric_has_no_score() -> None:
    nan = float("nan")
    rows = make_rows({"point_hit": {"A": hits(25, 75)}, "mask_iou_all": {"A": [nan] * 75}})
    assert {figure.metric for figure in release(rows).figures} == {"point_hit"}


def test_finding_of_few_localizations_counts_only_in_average() -> None:
    """349 cases are too few for a separate hit rate, 360 are enough; see tests/leaderboard/test_probing_places.py."""
    score = release(make_rows({"point_hit": {"A": hits(216, 360), "B": hits(0, 349)}}))
    assert [(figure.metric, figure.finding) for figure in score.figures] == [("point_hit", "macro"), ("point_hit", "A")]
    assert (score.figure("point_hit").value, score.figure("point_hit", "A").value) == (
        0.3,
        0.6,
    )  # (216/360 + 0/349) / 2
    assert (score.shown, score.hidden) == (("A", "B"), ())
    assert score.note == "All findings are shown. Counted only in averages, because the cases are too few: B."


def test_overlap_needs_more_cases() -> None:
    """With 74 cases it is neither released nor in the average; see tests/leaderboard/test_probing_places.py."""
    rows = make_rows(
        {"point_hit": {"A": hits(25, 75), "C": hits(5, 74)}, "mask_iou_all": {"A": [0.5] * 75, "C": [0.1] * 74}}
    )
    score = release(rows, EACH)
    assert (score.figure("mask_iou_all", "A").value, score.figure("mask_iou_all").value) == (0.5, 0.5)
    assert score.figure("mask_iou_all", "C") is None
    assert score.note == "All findings are shown."


@pytest.mark.parametrize(
    ("n_cases", "shown"),
    [([233] * 3, "1 average"), ([234] * 3, "2 averages"), ([350] * 2, "1 average, 2 rates"),
     ([525] * 2, "2 averages, 2 rates"), ([350, 100, 100], "1 average"), ([702, 350], "1 average, 2 rates")],
)  # fmt: skip
def test_each_score_needs_350_cases_of_its_own(n_cases: list[int], shown: str) -> None:
    """K findings of n cases are worth Kn. With the scores of all findings, their average is no further score."""
    values = {name: hits(n // 2, n) for name, n in zip("ABC", n_cases, strict=False)}
    score = release(make_rows({"point_hit": values, "grid_hit": values, "mask_iou_all": values}))
    n_averages = sum(figure.finding == MACRO for figure in score.figures)
    n_rates = len(score.figures) - n_averages
    assert shown == count_text(n_averages, "average") + (f", {count_text(n_rates, 'rate')}" if n_rates else "")


def test_box_iou_is_released_without_mask_iou() -> None:
    boxes = {"point_hit": {"A": hits(25, 75)}, "box_iou": {"A": [0.26] * 75}}
    box = release(make_rows(boxes), EACH).figure("box_iou")
    assert box.value == 0.3  # one finding in the second count range: twice 0.05, also in its macro
    masks = boxes | {"mask_iou_all": {"A": [0.5] * 75}}
    assert {figure.metric for figure in release(make_rows(masks), EACH).figures} == {"point_hit", "mask_iou_all"}


def test_mask_without_a_reference_costs_nothing() -> None:
    """If all findings are asked, the cost of such masks would reveal the absent findings."""
    nan = float("nan")
    alone = make_rows({"point_hit": {"A": hits(60, 120)}, "mask_iou_all": {"A": [0.5] * 120}})
    added = make_rows({"point_hit": {"A": hits(60, 120) + [nan] * 9}, "mask_iou_all": {"A": [0.5] * 120 + [0.0] * 9}})
    added = replace(added, all_images=alone.all_images)
    added = replace(added, patient_ids=[*alone.patient_ids, *alone.patient_ids[:9]])
    assert release(added) == release(alone)


def test_masks_add_nothing_to_a_small_finding() -> None:
    nan = float("nan")
    rows = make_rows({"point_hit": {"A": hits(9, 20) + [nan] * 40}, "mask_iou_all": {"A": [0.5] * 20 + [0.0] * 40}})
    assert release(rows).figures == ()
    assert release(rows).hidden == ("A",)


def test_hidden_findings_depend_only_on_references() -> None:
    """A submission without predictions hides the same findings as any other."""
    chance = {"grid_chance": {"A": [0.1] * 40, "B": [0.1] * 10, "C": [0.1] * 200}}
    pointed = chance | {"point_hit": {"A": hits(13, 40), "B": hits(10, 10), "C": hits(77, 200)}}
    assert release(make_rows(chance)).hidden == release(make_rows(pointed)).hidden == ("B",)


def scored(n_hits: int, *, metric: str = "point_hit", n: int = 200) -> ReleasedScore:
    return release(make_rows({metric: {"C": hits(n_hits, n)}, "grid_chance": {"C": [0.1] * n}}))


@pytest.mark.parametrize(
    ("new", "is_shown"),
    [(100, False), (101, False), (103, True), (90, False), (200, True)],  # 0.50, 0.505, 0.515 -> 0.52, 0.45, 1.00
)
def test_ladder_compares_rounded_scores(new: int, is_shown: bool) -> None:
    assert climb(scored(new), scored(100)) is is_shown


def test_ladder_without_one_of_the_scores() -> None:
    nothing = release(make_rows({"point_hit": {"A": hits(3, 20)}}))
    assert primary_figure(nothing) is None
    assert climb(scored(1), None)
    assert climb(nothing, None)
    assert climb(scored(0), nothing)
    assert not climb(nothing, scored(0))
    cells = primary_figure(scored(100, metric="grid_hit"))
    assert cells.metric == "grid_hit"


def test_ladder_without_a_step_shows_any_better_score() -> None:
    policy = ReleasePolicy(ladder_step=0.0)
    assert climb(scored(102), scored(100), policy)
    assert not climb(scored(100), scored(100), policy)


PATIENTS = [f"patient{i:05d}" for i in range(4000)]


def test_final_part_is_a_fixed_proportion_of_patients() -> None:
    final = split_final(PATIENTS, b"k" * 32, 0.3)
    assert abs(len(final) - 1200) < 4 * (4000 * 0.3 * 0.7) ** 0.5  # four standard errors
    assert split_final(PATIENTS[::-1][:2000], b"k" * 32, 0.3) == final & set(PATIENTS[2000:])
    assert split_final(PATIENTS, b"k" * 32, 0.5) > final
    other = split_final(PATIENTS, b"K" * 32, 0.3)
    assert len(final & other) < 500  # by chance 0.09 of 4000
    assert split_final(PATIENTS, b"k" * 32, 0.0) == frozenset()


def test_split_refuses_invalid_proportions() -> None:
    with pytest.raises(ValueError, match=r"`share` must be in \[0, 1\), got 1"):
        split_final(PATIENTS, b"k" * 32, 1)
    with pytest.raises(ValueError, match="`key` must have at least 16 bytes, got 3"):
        split_final(PATIENTS, b"abc", 0.3)


def test_part_is_scored_without_the_other_patients() -> None:
    rows = make_rows({"point_hit": {"C": hits(90, 120) + hits(0, 80)}})
    part = rows.of_patients({f"p{i}" for i in range(120)})
    assert release(part) == release(make_rows({"point_hit": {"C": hits(90, 120)}}))


def test_a_released_score_survives_json() -> None:
    score = release(ROWS)
    again = ReleasedScore.from_json(json.loads(json.dumps(score.to_json(), allow_nan=False)))
    assert again.figures == score.figures
    assert (again.shown, again.hidden, again.note) == (score.shown, score.hidden, score.note)


@pytest.mark.parametrize(
    ("n", "band"), [(29, "fewer than 30"), (30, "30-59"), (59, "30-59"), (60, "60-119"), (120, "120+"), (900, "120+")]
)
def test_count_ranges(n: int, band: str) -> None:
    assert Rounding(ReleasePolicy()).band(n) == band


@pytest.mark.parametrize(("value", "rounded"), [(0.1249, 0.12), (0.999, 1.0), (0.0, 0.0), (0.0049, 0.0)])
def test_rounding(value: float, rounded: float) -> None:
    assert Rounding(ReleasePolicy()).round(value) == rounded
    assert Rounding(ReleasePolicy(resolution=0.05)).round(0.12) == 0.1
    assert Rounding(ReleasePolicy()).round(float("nan")) is None


def test_predictions_for_hidden_finding_keep_a_real_score(board: Board) -> None:
    """The same with the scorer: every prediction for the hidden finding is moved."""
    records = board.records
    predictions = guesses(board.manifest)
    moved = [replace(p, points=((0.5, 0.5),), mask=None) if p.finding == RARE else p for p in predictions]
    one, other = (
        score_localization(chosen, records, findings=board.manifest.findings) for chosen in (predictions, moved)
    )
    assert not np.array_equal(one.values["point_hit"], other.values["point_hit"])
    assert RARE in release(one).hidden
    assert release(one) == release(other)


@pytest.mark.parametrize(
    ("low", "high", "step", "ends"),
    [
        (0.48, 0.52, 0.1, (0.4, 0.6)),
        (0.4, 0.6, 0.1, (0.4, 0.6)),
        (-0.12, 0.001, 0.01, (-0.12, 0.01)),
        (4.251, 4.259, 0.01, (4.25, 4.26)),
        (float("nan"), 0.52, 0.1, (None, 0.6)),
    ],
)
def test_interval_bounds_are_rounded_outwards(low, high, step, ends) -> None:
    assert Rounding(ReleasePolicy()).round_outwards(low, high, step) == ends


# Boards of cells ------------------------------------------------------------------------------------------------------

CELLS = ReleasePolicy(place_metric="grid_hit")
OTHER = {"point_hit": "grid_hit", "grid_hit": "point_hit", "point_chance": "grid_chance", "grid_chance": "point_chance"}


def places(n: int, kinds: tuple[str, str] = ("point", "point")) -> CaseRows:
    """Return rows of two findings of n cases each, with both hit rates, their chance levels and overlap."""
    rates = {"point_hit": (0.6, 0.4), "grid_hit": (0.5, 0.2)}
    values = {name: dict(zip("AB", (hits(round(x * n), n) for x in own), strict=True)) for name, own in rates.items()}
    chance = {name: dict.fromkeys("AB", [x] * n) for name, x in (("point_chance", 0.1), ("grid_chance", 0.07))}
    rows = make_rows(values | chance | {"mask_iou_all": dict.fromkeys("AB", [0.3] * n)})
    return replace(rows, point_kinds=[kinds[0]] * 2 * n, cell_kinds=[kinds[1]] * 2 * n)


@pytest.mark.parametrize("n", [60, 174, 175, 349, 350, 525, 700, 1050])
def test_either_hit_rate_is_released_by_the_same_rules(n: int) -> None:
    """Swapping the two metrics, in the rows and in the policy, swaps them in the released scores and nothing else."""
    rows = places(n)
    swapped = replace(rows, values={OTHER.get(name, name): numbers for name, numbers in rows.values.items()})
    assert release(swapped, CELLS).figures == tuple(
        replace(
            figure,
            metric=OTHER.get(figure.metric, figure.metric),
            signature=figure.signature.replace(figure.metric, OTHER.get(figure.metric, figure.metric)),
        )
        for figure in release(rows).figures
    )


@pytest.mark.parametrize("policy", [ReleasePolicy(), CELLS])
@pytest.mark.parametrize("kinds", [("point", "point"), ("cell", "cell"), ("point", "cell"), ("box", "cell")])
def test_one_hit_rate_is_released_beside_its_own_chance(policy: ReleasePolicy, kinds: tuple[str, str]) -> None:
    """Two findings of 349 cases are worth 698, so that only one average is shown, whatever the form of the answers."""
    score, metric = release(places(349, kinds), policy), policy.place_metric
    value = {"point_hit": 0.5, "grid_hit": 0.35}[metric]
    chance = {"point_hit": ("point_chance", 0.1), "grid_hit": ("grid_chance", 0.07)}[metric]
    assert [(one.metric, one.finding, one.value) for one in score.figures] == [
        (metric, MACRO, value),
        (chance[0], MACRO, chance[1]),
    ]
    assert primary_figure(score) == score.figures[0]


def test_board_of_cells_shows_the_grid_hit_of_a_file_with_other_points() -> None:
    """Such as location-prior's, whose best cell is not that of its best point: only one of both locations is scored."""
    score = release(places(700, ("point", "cell")), CELLS)
    assert {figure.metric for figure in score.figures} == {"grid_hit", "grid_chance", "mask_iou_all"}
    assert score.figure("grid_hit", "B").value == 0.2
    assert score.note.endswith("The hit rate is not shown: the file names cells other than those of its points.")
    assert release(places(700, ("point", "cell"))).figure("grid_hit") is None


@pytest.mark.parametrize(
    ("kinds", "policy", "sentence"),
    [
        (("cell", "cell"), ReleasePolicy(), "ranks by the hit rate, for which a cell counts by its centre"),
        (("point", "point"), CELLS, "ranks by the grid hit rate, for which a point counts by its cell"),
        (("cell", "cell"), CELLS, ""),
    ],
)
def test_score_says_how_answers_of_another_form_count(
    kinds: tuple[str, str], policy: ReleasePolicy, sentence: str
) -> None:
    note = release(places(350, kinds), policy).note
    assert sentence in note
    assert ("This board ranks" in note) == bool(sentence)
