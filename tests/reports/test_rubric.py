"""The report of ratings: figures of other libraries and of hand, on ratings of two models by three readers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wilcoxon
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.multitest import multipletests

from reveal_bench import api
from reveal_bench.kinds.tasks.records import Rating
from reveal_bench.reports.rubric import _distribution
from tests.dataset.card_folders import tasks_folder
from tests.reports.conftest import rows_of

N = 12
TEXT = ("process", "execution", "synthesis", "language")


def drawn() -> list[Rating]:
    """Reader r1 reads all answers of "a" and ten of "b", r2 every second of these, and r3 one; "b" has no boxes."""
    rng = np.random.default_rng(7)
    result = []
    for model, n in (("a", N), ("b", 10)):
        for i in range(n):
            for reader in ("r1", "r2", "r3")[: 2 if i % 2 == 0 else 1] if i else ("r1", "r2", "r3"):
                text = [int(score) for score in rng.integers(1, 6, 4)]
                result.append(Rating(f"task-{i}", model, reader, *text, *([4, 2] if model == "a" else [])))
    return result


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Rating], Path]:
    root = tmp_path_factory.mktemp("rubric")
    ratings = drawn()
    written = api.report([], tasks_folder(root, n=N), out=root / "report", split="test", ratings=ratings)
    assert written.warnings == ()
    return ratings, root / "report"


def means(ratings: list[Rating], model: str) -> dict[str, dict[str, float]]:
    """Criterion -> task -> mean of its readers; content is the least of three such means."""
    result: dict[str, dict[str, float]] = {name: {} for name in (*TEXT, "content")}
    for task in {one.task_id for one in ratings if one.model == model}:
        own = [one for one in ratings if (one.task_id, one.model) == (task, model)]
        for name in TEXT:
            result[name][task] = sum(getattr(one, name) for one in own) / len(own)
        result["content"][task] = min(result[name][task] for name in TEXT[:3])
    return result


def test_scores_are_means_of_readers_with_their_spread(reported: tuple[list[Rating], Path]) -> None:
    ratings, report = reported
    rows = {(row["model"], row["criterion"]): row for row in rows_of(report, "scores")}
    assert {criterion for model, criterion in rows if model == "b"} == {*TEXT, "content"}
    for model, n in (("a", N), ("b", 10)):
        for criterion, of_tasks in means(ratings, model).items():
            values, row = list(of_tasks.values()), rows[model, criterion]
            wanted = (
                np.mean(values),
                np.std(values, ddof=1),
                np.mean(np.equal(values, 5)),
                np.mean(np.less(values, 3)),
            )
            got = [float(row[name]) for name in ("mean", "sd", "share_of_5", "share_below_3")]
            assert got == pytest.approx(wanted)
            assert int(row["n"]) == n


def test_models_are_compared_as_scipy_and_statsmodels_do(reported: tuple[list[Rating], Path]) -> None:
    ratings, report = reported
    a, b = means(ratings, "a"), means(ratings, "b")
    rows = rows_of(report, "differences")
    assert [row["criterion"] for row in rows] == ["content", *TEXT]
    p = [wilcoxon([a[name][t] for t in b[name]], [b[name][t] for t in b[name]]).pvalue for name in ("content", *TEXT)]
    assert [float(row["p_value"]) for row in rows] == pytest.approx(p)
    assert [float(row["p_adjusted"]) for row in rows] == pytest.approx(multipletests(p, method="fdr_bh")[1])
    assert {row["n"] for row in rows} == {"10"}


def test_pairs_of_readers_are_compared_the_one_with_most_in_common_first(reported: tuple[list[Rating], Path]) -> None:
    ratings, report = reported
    rows = rows_of(report, "agreement")
    assert (rows[0]["reader_a"], rows[0]["reader_b"], rows[0]["n"]) == ("r1", "r2", "11")
    assert {(row["reader_a"], row["reader_b"]) for row in rows} == {("r1", "r2"), ("r1", "r3"), ("r2", "r3")}
    for row in rows[:4]:
        by_reader: dict[str, dict[tuple[str, str], int]] = {"r1": {}, "r2": {}}
        for one in ratings:
            by_reader.get(one.reader, {})[one.task_id, one.model] = getattr(one, row["criterion"])
        second = list(by_reader["r2"].values())
        first = [by_reader["r1"][answer] for answer in by_reader["r2"]]
        apart = np.abs(np.subtract(first, second))
        wanted = (
            cohen_kappa_score(first, second, labels=range(1, 6), weights="quadratic"),
            apart.mean(),
            (apart <= 1).mean(),
        )
        got = [float(row[n]) for n in ("cohen_kappa_quadratic", "mean_absolute_difference", "share_within_1")]
        assert got == pytest.approx(wanted)
        assert float(row["sd_b"]) == pytest.approx(np.std(second, ddof=1))


@pytest.mark.usefixtures("undrawn")
def test_the_page_counts_answers_and_says_what_content_is(reported: tuple[list[Rating], Path], tmp_path: Path) -> None:
    (of_a, of_b), page = rows_of(reported[1], "answers"), (reported[1] / "report.html").read_text(encoding="utf-8")
    assert (of_a["answered"], of_a["unanswered"], of_b["answered"], of_b["unanswered"]) == ("12", "0", "10", "2")
    # A task read as 5 2 5 and 2 5 5 has the means 3.5 3.5 5, so a content of 3.5; the least of each reader is 2
    ratings = [Rating("task-0", "m", "x", 5, 2, 5, 3), Rating("task-0", "m", "y", 2, 5, 5, 3)]
    api.report([], tasks_folder(tmp_path, n=1), out=tmp_path / "report", split="test", ratings=ratings)
    assert float(rows_of(tmp_path / "report", "scores")[0]["mean"]) == 3.5
    assert "mean content would be: m 2.00." in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert {path.name for path in (reported[1] / "figures").glob("*.png")} >= {"distributions.png", "agreement-1.png"}
    assert "r1 and r2" in page


def test_scores_are_drawn_at_half_points() -> None:
    # 1, 2.5, 2.5, 5 and, of three readers, 10 / 3, which is nearest to 3.5
    shares = _distribution(np.array([1, 2.5, 2.5, 5, 10 / 3, np.nan]))
    assert shares.tolist() == [0.2, 0, 0, 0.4, 0, 0.2, 0, 0, 0.2]


def test_ratings_of_what_was_not_asked_are_refused(tmp_path: Path) -> None:
    folder = tasks_folder(tmp_path, n=2)
    with pytest.raises(ValueError, match=r"`ratings` must rate tasks of the split, got 'task-9'"):
        api.report([], folder, out=tmp_path / "report", split="test", ratings=[Rating("task-9", "m", "x", 5)])
    with pytest.raises(ValueError, match="`ratings` must hold at least one rating"):
        api.report([], folder, out=tmp_path / "report", split="test", ratings=[])
    assert not (tmp_path / "report").exists()


def test_tags_and_scores_of_the_questions_are_counted(reported: tuple[list[Rating], Path]) -> None:
    _, report = reported
    rows = {(row["tag"], row["value"]): (row["tasks"], row["share"]) for row in rows_of(report, "tags")}
    half = (str(N // 2), "0.5")  # every other task is temporal
    assert rows == {
        ("category", "diagnosis support"): half,
        ("category", "measurement temporal"): half,
        ("laterality", "left"): (str(N), "1.0"),
    }
    page = (report / "report.html").read_text(encoding="utf-8")
    assert "Means: Clinical relevance 5.00; Answerability 4.00; Complexity 3.00; Clarity 2.00." in page
