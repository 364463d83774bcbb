"""Released scores from readers' ratings, and ranks and comparisons of systems based on them."""

from __future__ import annotations

import numpy as np
import pytest
from reveal_leaderboard.boards.comparisons import compare_released
from reveal_leaderboard.release.fingerprints import fingerprint
from reveal_leaderboard.release.ranking import rank_document
from reveal_leaderboard.release.release import (
    ReleasedScore,
    climb,
    primary_figure,
    release,
)
from reveal_leaderboard.settings import ReleasePolicy

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.kinds.tasks.records import (
    CATEGORIES,
    CRITERIA,
    Rating,
    TaskAnswer,
    TaskManifest,
    TaskQuestion,
    TaskRecord,
)
from reveal_bench.kinds.tasks.scoring import RubricRows, score_ratings
from reveal_bench.metrics.ordinal import REPORTED
from tests.leaderboard.task_world import REFERENCE

POLICY = ReleasePolicy(n_resamples=200)
BROAD, DIAGNOSIS, MEASURE = CATEGORIES


def rows(n_tasks: int = 80, *, level: float = 3.0, n_pictures: int = 20, seed: int = 0, n_rare: int = 5) -> RubricRows:
    """Return rows of two readers per answer; the last `n_rare` tasks are measurements, the first images are scored."""
    rng = np.random.default_rng(seed)
    tasks = [
        TaskRecord(f"t{i:03d}", f"s{i}", f"p{i:03d}", "?", MEASURE if i >= n_tasks - n_rare else BROAD)
        for i in range(n_tasks)
    ]
    ratings = []
    for i, task in enumerate(tasks):
        for reader in "ab":
            scores = np.clip(np.rint(level + rng.normal(0, 0.8, 6)), 1, 5).astype(int).tolist()
            ratings.append(Rating(task.task_id, "m", reader, *(scores if i < n_pictures else scores[:4])))
    return score_ratings(ratings, tasks)


def test_figures_are_rounded_and_small_cells_hidden() -> None:
    score = release(rows(), POLICY)
    assert score.shown == ("content", "process", "execution", "synthesis", "language", BROAD)
    assert score.hidden == ("image_content", "image_style", DIAGNOSIS, MEASURE)
    assert "image content, image style" in score.note
    assert {figure.metric for figure in score.figures} == set(KINDS["tasks"].release.metrics)
    for figure in score.figures:
        for number in (figure.value, figure.low, figure.high):
            assert number is not None
            assert abs(number * 100 - round(number * 100)) < 1e-9
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= figure.value <= figure.high
    shares = [figure.finding for figure in score.figures if figure.metric == "share_of_5"]
    assert shares == ["content"]
    assert {figure.n for figure in score.figures if figure.finding == "process"} == {"60-119"}
    assert ReleasedScore.from_json(score.to_json()) == score


def test_overall_score_is_the_mean_of_text_criteria() -> None:
    scored = rows()
    figure = release(scored, POLICY).figure("rubric_mean")
    assert figure.value == pytest.approx(round(float(scored.scores[:, 1:5].mean()), 2))
    assert figure.n == "4"
    assert primary_figure(release(scored, POLICY)) == figure


def test_split_of_few_tasks_releases_nothing() -> None:
    score = release(rows(29), POLICY)
    assert (score.figures, score.shown, score.hidden) == ((), (), (*REPORTED, *CATEGORIES))
    assert score.note == "Nothing can be shown: this split has fewer than 30 tasks."
    assert release(rows(30), POLICY).figure("rubric_mean") is not None


def test_too_many_unrated_answers_hide_a_score() -> None:
    tasks = [TaskRecord(f"t{i}", "s", f"p{i}", "?", BROAD) for i in range(60)]
    ratings = [Rating(f"t{i}", "m", "a", 4, 4, 4, 4) for i in range(29)]
    score = release(score_ratings(ratings, tasks, answered={task.task_id for task in tasks}), POLICY)
    assert score.figures == ()


def test_better_mean_passes_the_ladder_on_its_own_scale() -> None:
    low, high = release(rows(level=2.5), POLICY), release(rows(level=3.5), POLICY)
    assert climb(high, low, POLICY)
    assert not climb(low, high, POLICY)


def test_systems_are_ranked_by_their_overall_score() -> None:
    systems = {"low": rows(level=2.0), "near": rows(level=3.5, seed=1), "high": rows(level=3.5)}
    document = rank_document(systems, POLICY)
    places = {name: (place["rank"], place["tier"]) for name, place in document["entries"].items()}
    assert document["metric"] == "rubric_mean"
    assert places == {"high": (1, "A"), "near": (1, "A"), "low": (3, "B")}
    assert rank_document({"a": rows(20)}, POLICY)["entries"] == {}


def test_two_systems_are_compared_by_criteria() -> None:
    a, b = rows(level=4.0), rows(level=2.0, seed=1)
    document = compare_released(release(a, POLICY), release(b, POLICY), "tasks")
    assert document["kind"] == "tasks"
    by_finding = {row["finding"]: row for row in document["rows"]}
    assert list(by_finding)[:6] == ["macro", "content", "process", "execution", "synthesis", "language"]
    assert {row["metric"] for row in document["rows"]} == {"rubric_mean"}
    assert all(row["told_apart"] for row in document["rows"])
    assert by_finding["macro"]["value"] == pytest.approx(by_finding["macro"]["a"] - by_finding["macro"]["b"], abs=1e-9)
    same = compare_released(release(a, POLICY), release(a, POLICY), "tasks")
    assert {(row["value"], row["told_apart"]) for row in same["rows"]} == {(0.0, False)}


def test_kinds_do_not_mix() -> None:
    cases = CaseRows((), [], [], [], [], [], {}, ())
    with pytest.raises(ValueError, match="must belong to one kind of benchmark, got tasks and localization"):
        rank_document({"a": rows(), "b": cases}, POLICY)


def test_subset_of_the_patients() -> None:
    part = rows().of_patients({"p000", "p003"})
    assert part.task_ids == ("t000", "t003")


def test_no_reference_is_in_a_score() -> None:
    assert REFERENCE not in str(release(rows(), POLICY).to_json())


MANIFEST = TaskManifest(
    "rexecution", "1", "holdout", tuple(TaskQuestion(f"t{i}", BROAD, False, "?", None, {}) for i in range(3))
)
KEY = b"k" * 32


def test_the_same_answers_have_the_same_fingerprint() -> None:
    answers = [TaskAnswer(f"t{i}", f"Answer {i}.", (), i) for i in range(3)]
    spaced = [TaskAnswer(f"t{i}", f"Answer  {i}.\n", (), 9) for i in (2, 0, 1)]
    other = [*answers[:2], TaskAnswer("t2", "Answer 3.")]
    first, second, third = (fingerprint(one, MANIFEST, KEY) for one in (answers, spaced, other))
    assert first == second
    assert first.content != third.content
    assert KINDS["tasks"].release.signs(answers, MANIFEST) == []
    same = [TaskAnswer(f"t{i}", "Normal.") for i in range(3)]
    assert KINDS["tasks"].release.signs(same, MANIFEST) == ["Every task has the same answer."]


def test_criteria_of_tables_and_records_are_equal() -> None:
    from reveal_leaderboard.store import tables

    assert tables.CRITERIA == CRITERIA
