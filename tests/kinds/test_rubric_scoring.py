"""Ratings of one submission as rows and summaries; expected values by hand or from scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from reveal_bench.evaluation.compare import compare
from reveal_bench.kinds.tasks.records import CATEGORIES, Rating, TaskRecord
from reveal_bench.kinds.tasks.scoring import (
    RubricRows,
    resample_rubrics,
    score_ratings,
    summarize_rubric,
)
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.ordinal import CRITERIA, rubric_summary

BROAD, DIAGNOSIS, MEASURE = CATEGORIES


def task(name: str, patient: str = "", category: str = BROAD) -> TaskRecord:
    return TaskRecord(name, f"s{name}", patient or f"p{name}", "?", category)


def rating(name: str, scores: Sequence[int | None], reader: str = "r1", model: str = "m") -> Rating:
    return Rating(name, model, reader, *scores)


def figures(estimates: list[Estimate]) -> dict[tuple[str, str], Estimate]:
    return {(e.metric, e.finding): e for e in estimates}


def drawn(n_tasks: int = 60, n_readers: int = 2, seed: int = 0) -> tuple[list[TaskRecord], list[Rating]]:
    """Return random tasks, two per patient, and ratings of readers who differ little."""
    rng = np.random.default_rng(seed)
    tasks = [task(f"t{i:03d}", f"p{i // 2}", CATEGORIES[i % 3]) for i in range(n_tasks)]
    ratings = []
    for one in tasks:
        base = rng.integers(1, 6, 6)
        for reader in range(n_readers):
            scores = np.clip(base + rng.integers(-1, 2, 6), 1, 5).tolist()
            ratings.append(rating(one.task_id, scores, f"r{reader}"))
    return tasks, ratings


def test_one_task_two_readers() -> None:
    """Means are 4, 2.5, 5, 4, 2 and undefined; content is min(4, 2.5, 5); overall is (4 + 2.5 + 5 + 4) / 4."""
    rows = score_ratings([rating("a", [5, 2, 5, 4, 2, None]), rating("a", [3, 3, 5, 4, 2, None], "r2")], [task("a")])
    assert rows.scores[0, :6].tolist() == [2.5, 4, 2.5, 5, 4, 2]
    assert math.isnan(rows.scores[0, 6])
    assert rows.overall.tolist() == [3.875]
    result = figures(summarize_rubric(rows, Resampling(50)))
    assert result["rubric_mean", "macro"].value == 3.875
    assert (result["rubric_mean", "macro"].n, result["rubric_mean", "image_style"].n_undefined) == (4, 1)
    assert result["rubric_mean", BROAD].value == 3.875
    assert math.isnan(result["rubric_mean", MEASURE].value)
    assert result["rubric_mean", MEASURE].n_undefined == 0
    assert (result["share_of_5", "synthesis"].value, result["share_below_3", "content"].value) == (1.0, 1.0)


def test_means_equal_the_paper_tables() -> None:
    """Rated answers have the same numbers as in :func:`rubric_summary`, which follows Tables 1 and 2."""
    tasks, ratings = drawn()
    rows = score_ratings(ratings, tasks)
    result = figures(summarize_rubric(rows, Resampling(50)))
    for one in rubric_summary({"m": rows.scores[:, 1:]}):
        assert result["rubric_mean", one.criterion].value == pytest.approx(one.mean, abs=1e-12)
        assert result["share_of_5", one.criterion].value == pytest.approx(one.share_of_5, abs=1e-12)
        assert result["share_below_3", one.criterion].value == pytest.approx(one.share_below_3, abs=1e-12)


def test_overall_per_category_and_macro() -> None:
    scores = {"a": ([5] * 6, BROAD), "b": ([3] * 6, BROAD), "c": ([1] * 6, DIAGNOSIS)}
    tasks = [task(name, category=category) for name, (_, category) in scores.items()]
    rows = score_ratings([rating(name, values) for name, (values, _) in scores.items()], tasks)
    result = figures(summarize_rubric(rows, Resampling(50)))
    assert [result["rubric_mean", name].value for name in ("macro", BROAD, DIAGNOSIS)] == [3, 4, 1]
    assert result["rubric_mean", BROAD].n == 2


def test_agreement_of_two_readers_equals_scikit_learn() -> None:
    from sklearn.metrics import cohen_kappa_score

    tasks, ratings = drawn()
    result = figures(summarize_rubric(score_ratings(ratings, tasks), Resampling(50)))
    for name in CRITERIA:
        one, two = ([getattr(r, name) for r in ratings if r.reader == reader] for reader in ("r0", "r1"))
        kappa = cohen_kappa_score(one, two, weights="quadratic", labels=[1, 2, 3, 4, 5])
        assert result["cohen_kappa_quadratic", name].value == pytest.approx(kappa, abs=1e-12)
        difference = np.abs(np.subtract(one, two)).mean()
        assert result["mean_absolute_difference", name].value == pytest.approx(difference, abs=1e-12)
        assert result["cohen_kappa_quadratic", name].n == 60
    text = [result["cohen_kappa_quadratic", name].value for name in CRITERIA[:4]]
    assert result["cohen_kappa_quadratic", "macro"].value == pytest.approx(np.mean(text), abs=1e-12)


def test_three_readers_are_pooled_over_their_pairs() -> None:
    from sklearn.metrics import cohen_kappa_score

    tasks, ratings = drawn(n_readers=3)
    result = figures(summarize_rubric(score_ratings(ratings, tasks), Resampling(50)))
    by_reader = [[r.process for r in ratings if r.reader == f"r{i}"] for i in range(3)]
    one = by_reader[0] + by_reader[0] + by_reader[1]
    two = by_reader[1] + by_reader[2] + by_reader[2]
    kappa = cohen_kappa_score(one, two, weights="quadratic", labels=[1, 2, 3, 4, 5])
    assert result["cohen_kappa_quadratic", "process"].value == pytest.approx(kappa, abs=1e-12)
    assert result["cohen_kappa_quadratic", "process"].n == 180


def test_task_without_an_answer_scores_one_or_is_left_out() -> None:
    tasks = [task("a"), task("b")]
    ratings = [rating("a", [5] * 6)]
    lowest = score_ratings(ratings, tasks)
    assert lowest.scores[1, :5].tolist() == [1] * 5
    assert np.isnan(lowest.scores[1, 5:]).all()
    result = figures(summarize_rubric(lowest, Resampling(50)))
    assert (result["rubric_mean", "macro"].value, result["share_of_5", "content"].value) == (3.0, 0.5)
    left_out = figures(summarize_rubric(score_ratings(ratings, tasks, missing="leave_out"), Resampling(50)))
    assert (left_out["rubric_mean", "macro"].value, left_out["rubric_mean", "content"].n_undefined) == (5.0, 1)


def test_criterion_without_ratings_is_not_asked() -> None:
    """Of three text criteria, the answer has means 4, 2, 3 and the other task 1: the macro is (2.5 + 1.5 + 2) / 3."""
    rows = score_ratings([rating("a", [4, 2, 3, None, None, None])], [task("a"), task("b")])
    result = figures(summarize_rubric(rows, Resampling(50)))
    assert (result["rubric_mean", "macro"].value, result["rubric_mean", "macro"].n) == (2, 3)
    assert (result["rubric_mean", "language"].n, result["rubric_mean", BROAD].value) == (0, 2)
    assert rows.notes == ("no rating has language, which enters no macro",)
    all_missing = score_ratings([], [task("a")], answered=())
    assert figures(summarize_rubric(all_missing, Resampling(50)))["rubric_mean", "macro"].value == 1


def test_ratings_of_a_part_of_the_answers_leave_unanswered_tasks_out() -> None:
    """One of three tasks is rated, one is only answered, and one has no answer."""
    rows = score_ratings([rating("a", [5] * 6)], [task("a"), task("b"), task("c")], answered={"a", "b"})
    assert figures(summarize_rubric(rows, Resampling(50)))["rubric_mean", "content"].value == 5
    assert rows.settled == {"missing": "leave_out"}
    assert rows.notes == ("scores are of the 1 rated task: 1 answered task has no rating, and 1 task has no answer",)


def test_unrated_answer_is_undefined() -> None:
    rows = score_ratings([rating("a", [5] * 6)], [task("a"), task("b")], answered={"a", "b"})
    assert np.isnan(rows.scores[1]).all()
    assert figures(summarize_rubric(rows, Resampling(50)))["rubric_mean", "content"].n_undefined == 1


def test_patients_are_resampled_with_all_their_tasks() -> None:
    """If all tasks are of one patient, every replicate is the data; by task, the mean of 1 and 5 would vary."""
    tasks = [task("a", "p"), task("b", "p")]
    rows = score_ratings([rating("a", [1] * 6), rating("b", [5] * 6)], tasks)
    by_patient = figures(summarize_rubric(rows, Resampling(200, interval="percentile")))["rubric_mean", "macro"]
    assert (by_patient.low, by_patient.value, by_patient.high) == (3, 3, 3)
    of_tasks = summarize_rubric(rows, Resampling(200, unit="task", interval="percentile"))
    by_task = figures(of_tasks)["rubric_mean", "macro"]
    assert (by_task.low, by_task.high) == (1, 5)
    assert by_task.signature == "rubric_mean|b:200|seed:0|unit:task|v:1"


def test_intervals_equal_a_bootstrap_by_hand() -> None:
    tasks, ratings = drawn(12)
    rows = score_ratings(ratings, tasks)
    means = []
    generator = np.random.default_rng(7)
    patients = sorted({one.patient_id for one in tasks})
    for draw in generator.integers(0, len(patients), (300, len(patients))):
        chosen = [i for j in draw for i, one in enumerate(tasks) if one.patient_id == patients[j]]
        means.append(rows.overall[chosen].mean())
    result = figures(summarize_rubric(rows, Resampling(300, 7, interval="percentile")))["rubric_mean", "macro"]
    assert (result.low, result.high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])), abs=1e-12)


UNDEFINED: dict[str, tuple[list[Rating], list[str]]] = {
    "one reader: no agreement": ([rating("a", [4] * 6), rating("b", [5] * 6)], ["cohen_kappa_quadratic"]),
    "constant readers": (
        [rating(name, [4] * 6, reader) for name in "ab" for reader in ("r1", "r2")],
        ["cohen_kappa_quadratic"],
    ),
    "readers of different answers": ([rating("a", [4] * 6), rating("b", [5] * 6, "r2")], ["cohen_kappa_quadratic"]),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_undefined_metrics_are_nan(name: str) -> None:
    ratings, metrics = UNDEFINED[name]
    result = figures(summarize_rubric(score_ratings(ratings, [task("a"), task("b")]), Resampling(50)))
    for metric in metrics:
        assert all(math.isnan(result[metric, finding].value) for finding in ("macro", *CRITERIA))
    assert not math.isnan(result["rubric_mean", "macro"].value)


def test_no_ratings_at_all() -> None:
    rows = score_ratings([], [task("a")], answered={"a"})
    assert rows.ratings.shape == (1, 0, 6)
    assert all(math.isnan(e.value) for e in summarize_rubric(rows, Resampling(50)))


BAD: dict[str, tuple[list[Rating], dict[str, Any], str]] = {
    "another model": ([rating("a", [4] * 6), rating("b", [4] * 6, model="n")], {}, "must all rate the same model"),
    "unknown task": ([rating("z", [4] * 6)], {"answered": {"a"}}, "must rate tasks of the split, got 'z'"),
    "unanswered task": ([rating("a", [4] * 6)], {"answered": {"b"}}, "must rate answered tasks, got a rating of 'a'"),
    "twice": ([rating("a", [4] * 6), rating("a", [5] * 6)], {}, "must hold one per task and reader"),
    "zero": ([rating("a", [0] * 6)], {}, "`process` must be a whole number from 1 to 5"),
    "six": ([rating("a", [1, 6, 1, 1, 1, 1])], {}, "`execution` must be a whole number"),
    "half": ([rating("a", [1.5] * 6)], {}, "got 1.5"),  # type: ignore[list-item]
    "true": ([rating("a", [True] * 6)], {}, "got True"),
    "unknown answered": ([], {"answered": {"q"}}, "`answered` must be tasks of the split, got 'q'"),
    "unknown missing": ([], {"missing": "drop"}, "`missing` must be 'lowest' or 'leave_out'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_ratings_are_refused(name: str) -> None:
    ratings, options, match = BAD[name]
    with pytest.raises(ValueError, match=match):
        score_ratings(ratings, [task("a"), task("b")], **options)


def test_empty_list_of_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="`tasks` must hold at least one task"):
        score_ratings([], [])


def test_systems_are_compared_in_the_same_replicates() -> None:
    tasks, ratings = drawn()
    rows = score_ratings(ratings, tasks)
    lower = score_ratings([rating(r.task_id, [1] * 6, r.reader) for r in ratings], tasks)
    same = compare(rows, rows, Resampling(100, interval="percentile"))
    assert {(c.estimate.value, c.p) for c in same} == {(0.0, 1.0)}
    compared = {c.finding: c for c in compare(rows, lower, Resampling(100, interval="percentile"))}
    assert list(compared) == ["macro", "content", *CRITERIA]
    assert compared["macro"].estimate.value == pytest.approx(rows.overall.mean() - 1, abs=1e-12)
    assert compared["macro"].p == pytest.approx(2 / 101, abs=1e-12)  # 0 of 100 replicates are at or below 0


def test_systems_on_other_tasks_are_refused() -> None:
    rows = score_ratings([rating("a", [4] * 6)], [task("a")])
    other = score_ratings([rating("b", [4] * 6)], [task("b")])
    with pytest.raises(ValueError, match="rated on the same tasks"):
        resample_rubrics([rows, other])
    with pytest.raises(ValueError, match="`systems` must hold at least one"):
        resample_rubrics([])
    with pytest.raises(ValueError, match="`columns` must be among"):
        resample_rubrics([rows], columns=["Edema"])
    with pytest.raises(ValueError, match="`unit` must be 'patient' or 'task', got 'image'"):
        summarize_rubric(rows, Resampling(unit="image"))


def test_subset_of_the_tasks() -> None:
    tasks, ratings = drawn(6)
    rows = score_ratings(ratings, tasks)
    kept: RubricRows = rows.take(np.array([True, False] * 3))
    assert kept.task_ids == ("t000", "t002", "t004")
    np.testing.assert_array_equal(kept.scores, rows.scores[::2])
