"""Ratings as arrays, the content score and the rubric, by hand and against the metrics' own names."""

from __future__ import annotations

import numpy as np
import pytest

from reveal_bench.kinds.tasks import records as rubric
from reveal_bench.kinds.tasks import records as task_records
from reveal_bench.kinds.tasks.records import Rating, rated_answers, rating_array
from reveal_bench.metrics import ordinal
from reveal_bench.metrics.ordinal import CRITERIA


def test_criteria_equal_those_of_the_metrics() -> None:
    assert task_records.CRITERIA == ordinal.CRITERIA
    assert {entry.criterion for entry in rubric.RUBRIC} == set(ordinal.CRITERIA)


def test_the_rubric_has_five_different_scores_per_criterion() -> None:
    pairs = [(entry.criterion, entry.score) for entry in rubric.RUBRIC]
    assert pairs == [(name, score) for name in ordinal.CRITERIA for score in (1, 2, 3, 4, 5)]
    assert len({entry.description for entry in rubric.RUBRIC}) == 30
    assert all(20 < len(entry.description) < 220 for entry in rubric.RUBRIC)


@pytest.mark.parametrize(("criterion", "score"), [("content", 3), ("process", 0), ("process", 6)])
def test_unknown_criterion_or_score_is_refused(criterion: str, score: int) -> None:
    with pytest.raises(ValueError, match="`criterion` must be one of process, execution"):
        rubric.meaning(criterion, score)


@pytest.mark.parametrize(
    ("scores", "content"),
    [((5, 2, 4), 2), ((3, 3, 3), 3), ((5, 5, 1), 1), ((None, 5, 5), None), ((None, None, None), None)],
)
def test_content_is_the_smallest_of_three(scores: tuple[int | None, ...], content: int | None) -> None:
    rating = Rating("t", "m", "r", *scores, language=1, image_content=1)
    assert rating.content == content
    row = rating_array([rating], reader="r", answers=[("t", "m")])
    expected = np.nan if content is None else content
    np.testing.assert_array_equal(ordinal.content_score(*row.T[:3]), [expected])


RATINGS = [
    Rating("t1", "a", "first", 5, 4, 3, 2, 1, 5),
    Rating("t2", "a", "first", 1, None, 2, 3),
    Rating("t1", "b", "first", 2, 2, 2, 2),
    Rating("t1", "a", "second", 4, 4, 4, 4),
]
NAN = np.nan


def test_array_has_one_row_per_answer() -> None:
    answers = rated_answers(RATINGS)
    assert answers == [("t1", "a"), ("t2", "a"), ("t1", "b")]
    first = rating_array(RATINGS, reader="first", answers=answers)
    np.testing.assert_array_equal(first, [[5, 4, 3, 2, 1, 5], [1, NAN, 2, 3, NAN, NAN], [2, 2, 2, 2, NAN, NAN]])
    second = rating_array(RATINGS, reader="second", answers=answers)
    np.testing.assert_array_equal(second, [[4, 4, 4, 4, NAN, NAN], [NAN] * 6, [NAN] * 6])
    assert [row.n for row in ordinal.reader_agreement(first, second)] == [1, 1, 1, 1, 0, 0]


def test_no_answers_are_an_empty_array() -> None:
    assert rating_array(RATINGS, reader="first", answers=[]).shape == (0, len(CRITERIA))


def test_unknown_reader_is_refused() -> None:
    with pytest.raises(ValueError, match=r"readers of the ratings \(first, second\), got 'third'"):
        rating_array(RATINGS, reader="third", answers=[])
    with pytest.raises(ValueError, match=r"\(none\), got 'third'"):
        rating_array([], reader="third", answers=[])


def test_two_ratings_of_one_answer_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one rating per answer and reader, got two of \('t1', 'a'\) by 'first'"):
        rating_array([*RATINGS, RATINGS[0]], reader="first", answers=[])
