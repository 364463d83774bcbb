"""Rubric scores from one to five: summaries by model and criterion, and comparisons of models and of readers.

Conventions
-----------
Ratings are float arrays (n_tasks, 6), columns as in :data:`CRITERIA`, integers 1 (poor) to 5 (excellent), NaN if there
is no rating (no answer, no image). Scores are ratings or means of two readers' ratings. The content score is never an
input. It is always the minimum of the task's process, execution and synthesis scores, after averaging over readers
(paper 001 does not give the order), and NaN unless all three are present.

Metrics
-------
* :func:`content_score`       weakest of three scores (paper 001, section 3.3)
* :func:`rubric_summary`      mean, SD, and proportions of fives and of scores below three (Tables 1 and 2)
* :func:`compare_models`      Wilcoxon signed-rank with Benjamini-Hochberg (section 3.4)
* :func:`reader_agreement`    quadratic-weighted kappa and mean absolute difference (Table 3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.metrics.agreement import cohen_kappa, mean_absolute_difference

CRITERIA = ("process", "execution", "synthesis", "language", "image_content", "image_style")
"""Columns of ratings."""
CONTENT_CRITERIA = CRITERIA[:3]
"""Criteria whose smallest score is the content score."""
CONTENT = "content"
REPORTED = (CONTENT, *CRITERIA)
REPORTED_OF_TEXT = REPORTED[:5]
"""The five text criteria on which paper 001 compares models, with Benjamini-Hochberg's correction over all five."""

LOWEST, HIGHEST = 1, 5


@dataclass(frozen=True, slots=True)
class RubricSummary:
    """Scores of one model on one criterion.

    Attributes
    ----------
    mean, sd : float
        SD with the denominator n - 1, as for all twelve in paper 001's Table 3; NaN for n = 1. All are NaN for n = 0.
    share_of_5, share_below_3 : float
        Proportions of the n scores; a mean of two readers counts as 5 if both gave 5.
    n, n_undefined : int
        Number of tasks with and without a score.
    """

    model: str
    criterion: str
    mean: float
    sd: float
    share_of_5: float
    share_below_3: float
    n: int
    n_undefined: int


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """Difference of two models on one criterion.

    Attributes
    ----------
    mean_difference : float
        Mean of a - b over the n tasks that both answered; NaN for n = 0.
    n, n_differ : int
        Number of tasks that both answered, and number of those on which the scores differ.
    statistic, p_value : float
        Wilcoxon signed-rank test, two-sided; NaN if the scores do not differ on any task.
    p_adjusted : float
        p adjusted by Benjamini-Hochberg over the criteria with a p value.
    """

    criterion: str
    mean_difference: float
    n: int
    n_differ: int
    statistic: float
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, slots=True)
class ReaderAgreement:
    """Agreement of two readers on one criterion.

    Attributes
    ----------
    kappa : float
        Quadratic-weighted, in [-1, 1]; NaN if both always gave one and the same score, or for n = 0.
    mean_absolute_difference : float
        In [0, 4]; NaN for n = 0.
    n : int
        Number of tasks that both rated.
    """

    criterion: str
    kappa: float
    mean_absolute_difference: float
    n: int


def content_score(process: npt.ArrayLike, execution: npt.ArrayLike, synthesis: npt.ArrayLike) -> FloatArray:
    """Return the minimum of the three scores of each task; NaN if a score is missing.

    Examples
    --------
    >>> content_score([5, 4], [2, 4.5], [4, np.nan]).tolist()
    [2.0, nan]
    """
    columns = (np.asarray(column, np.float64) for column in (process, execution, synthesis))
    content: FloatArray = np.minimum.reduce(list(columns))
    return content


def rubric_summary(scores: Mapping[str, npt.ArrayLike], *, criteria: Sequence[str] = REPORTED) -> list[RubricSummary]:
    """Return mean, SD and proportions per model and criterion.

    Parameters
    ----------
    scores : model -> score array (n_tasks, 6); models may have answered different tasks
    criteria : names from :data:`REPORTED`

    Returns
    -------
    list of RubricSummary: models in order, criteria within

    Raises
    ------
    ValueError
        If a shape is wrong, a score is outside [1, 5], or a criterion is unknown.

    Examples
    --------
    >>> scores = [[5, 4, 3, 5, 2, 2], [5, 5, 5, 4, 3, 3]]  # two tasks, six criteria
    >>> (content,) = rubric_summary({"model": scores}, criteria=["content"])
    >>> content.mean, content.share_of_5, content.n
    (4.0, 0.5, 2)
    """
    rows = []
    for model, ratings in scores.items():
        array = _check_scores(f"scores[{model!r}]", ratings)
        for criterion in criteria:
            column = _column(array, criterion)
            values = column[~np.isnan(column)]
            n = len(values)
            mean, fives, low = (float(v.mean()) if n else np.nan for v in (values, values == HIGHEST, values < 3))
            sd = float(values.std(ddof=1)) if n > 1 else np.nan
            rows.append(RubricSummary(model, criterion, mean, sd, fives, low, n, len(column) - n))
    return rows


def compare_models(
    scores_a: npt.ArrayLike, scores_b: npt.ArrayLike, *, criteria: Sequence[str] = REPORTED_OF_TEXT
) -> list[ModelDifference]:
    """Return a Wilcoxon signed-rank test per criterion on the tasks that both models answered, with p adjusted over
    criteria.

    The test is scipy's `wilcoxon` with its defaults (equal scores left out; exact for few tasks, else asymptotic with
    correction for ties), followed by `false_discovery_control`.

    Parameters
    ----------
    scores_a, scores_b : score arrays (n_tasks, 6), same tasks in the same order, NaN if not answered
    criteria : names from :data:`REPORTED`; p are adjusted over these

    Returns
    -------
    list of ModelDifference, in the order of `criteria`

    Raises
    ------
    ValueError
        If a shape is wrong, a score is outside [1, 5], or a criterion is unknown.
    """
    from scipy.stats import false_discovery_control, wilcoxon

    a, b = _check_scores("scores_a", scores_a), _check_scores("scores_b", scores_b)
    _check_tasks("scores_b", b, "scores_a", a)
    differences = [_column(a, criterion) - _column(b, criterion) for criterion in criteria]
    differences = [column[~np.isnan(column)] for column in differences]
    tests = [wilcoxon(column) if column.any() else (np.nan, np.nan) for column in differences]
    p_values = np.array([p for _, p in tests], np.float64)
    adjusted, tested = np.full(len(criteria), np.nan), ~np.isnan(p_values)
    if tested.any():
        adjusted[tested] = false_discovery_control(p_values[tested])
    return [
        ModelDifference(
            criterion=criterion,
            mean_difference=float(column.mean()) if len(column) else np.nan,
            n=len(column),
            n_differ=int(np.count_nonzero(column)),
            statistic=float(statistic),
            p_value=float(p_value),
            p_adjusted=float(p_adjusted),
        )
        for criterion, column, (statistic, p_value), p_adjusted in zip(
            criteria, differences, tests, adjusted, strict=True
        )
    ]


def reader_agreement(
    first: npt.ArrayLike, second: npt.ArrayLike, *, criteria: Sequence[str] = CRITERIA
) -> list[ReaderAgreement]:
    """Return quadratic-weighted kappa and mean absolute difference of two readers per criterion, on tasks that both
    rated.

    Parameters
    ----------
    first, second : rating arrays (n_tasks, 6), same tasks in the same order
    criteria : names from :data:`REPORTED`

    Raises
    ------
    ValueError
        If a shape is wrong, a rating is not an integer from 1 to 5 (or NaN), or a criterion is unknown.
    """
    a, b = _check_ratings("first", first), _check_ratings("second", second)
    _check_tasks("second", b, "first", a)
    rows, k = [], HIGHEST - LOWEST + 1
    for criterion in criteria:
        pair = np.stack([_column(a, criterion), _column(b, criterion)])
        one, two = pair[:, ~np.isnan(pair).any(axis=0)] - LOWEST
        kappa = cohen_kappa(one, two, n_categories=k, weights="quadratic")
        rows.append(ReaderAgreement(criterion, kappa, mean_absolute_difference(one, two, n_categories=k), len(one)))
    return rows


def _column(scores: FloatArray, criterion: str) -> FloatArray:
    if criterion not in REPORTED:
        raise ArgumentError("criteria", f"must be among {', '.join(REPORTED)}", repr(criterion))
    if criterion == CONTENT:
        return content_score(*(scores[:, CRITERIA.index(part)] for part in CONTENT_CRITERIA))
    return scores[:, CRITERIA.index(criterion)]


def _check_scores(name: str, scores: npt.ArrayLike) -> FloatArray:
    array = np.asarray(scores, np.float64)
    if array.ndim != 2 or array.shape[1] != len(CRITERIA):
        raise ValueError(f"`{name}` must have shape (n_tasks, {len(CRITERIA)}), got {array.shape}")
    bad = array[(array < LOWEST) | (array > HIGHEST)]
    if len(bad):
        raise ValueError(f"`{name}` must be in [{LOWEST}, {HIGHEST}] or be NaN, got {bad[0]}")
    return array


def _check_ratings(name: str, ratings: npt.ArrayLike) -> FloatArray:
    array = _check_scores(name, ratings)
    bad = array[~np.isnan(array) & (array != np.floor(array))]
    if len(bad):
        raise ValueError(f"`{name}` must hold integers from {LOWEST} to {HIGHEST} or NaN, got {bad[0]}")
    return array


def _check_tasks(name: str, got: FloatArray, other: str, expected: FloatArray) -> None:
    if len(got) != len(expected):
        raise ValueError(f"`{name}` must have the length of `{other}` ({len(expected)}), got {len(got)}")
