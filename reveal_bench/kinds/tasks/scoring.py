"""Scores of tasks-type benchmarks: rows of tasks from readers' ratings of one submission's answers, and estimates from
rows.

Conventions
-----------
There is one row per task. Each reader scores an answer on six criteria from 1 to 5. An answer's score on a criterion is
the mean over its readers. Its *content* is the smallest of process, execution and synthesis after averaging, as in
:mod:`reveal_bench.metrics.ordinal`. An answer's *overall* score is the mean of its four text criteria: every answer has
these, while picture criteria are scored only if boxes were drawn, which the sender decides.

An answer is *completely correct* if its content score is 5. Paper 001 counts such answers as clinically sound ("free of
content errors", 4.9 to 10% of answers), and names no other threshold of acceptance.

A task without an answer scores 1 on the rated text criteria and has no score on the picture criteria. If such a task
were left out, as in paper 001, a sender could choose the tasks that count. ``missing="leave_out"`` follows the paper. A
text criterion that no rating has is not asked, and enters no macro. Scores of answers without a rating are undefined.
While there are any, tasks without an answer are left out: beside a sample of the answers, they would weigh too much.

Agreement of readers is computed over all pairs of readers of an answer, in the order of their names; with two readers
this is the agreement of paper 001's Table 3.

A board may show these scores: the overall score if there are at least `min_cell` tasks; a criterion or a category of
tasks if it has at least as many scored answers; the proportion of completely correct answers (a content score of 5);
and, for the agreement of readers, their quadratic-weighted kappa.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.scored import Disclosure, Rows
from reveal_bench.kinds.tasks.records import CATEGORIES, Rating, TaskRecord
from reveal_bench.metrics.agreement import difference_from_tables, kappa_from_tables, resample_tables, unit_tables
from reveal_bench.metrics.bootstrap import (
    MACRO,
    BootstrapMeans,
    bootstrap_means,
    bounds_of,
    estimates_from,
    macro_first,
    resampling_counts,
)
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.jackknife import evidence_of_groups
from reveal_bench.metrics.ordinal import CONTENT, CRITERIA, HIGHEST, LOWEST, REPORTED, content_score
from reveal_bench.metrics.resampled import Figures, mean_of_defined
from reveal_bench.words import count_text

if TYPE_CHECKING:
    import pyarrow as pa

Missing = Literal["lowest", "leave_out"]

OVERALL_CRITERIA = CRITERIA[:4]
"""The text criteria, whose mean is the overall score."""
_K = HIGHEST - LOWEST + 1
_AGREEMENT: dict[str, Callable[[FloatArray], FloatArray]] = {
    "cohen_kappa_quadratic": partial(kappa_from_tables, weights="quadratic"),
    "mean_absolute_difference": difference_from_tables,
}


@dataclass(frozen=True, repr=False)
class RubricRows(Rows):
    """Ratings of one submission, one row per task.

    Attributes
    ----------
    task_ids, patient_ids, categories : tuples of str (n_tasks,)
    ratings : float array (n_tasks, n_readers, 6), columns as in CRITERIA, NaN if a reader gave no score
    is_answered : bool array (n_tasks,)
    missing : how a task without an answer is scored, see :func:`score_ratings`
    """

    kind: ClassVar[str] = "tasks"

    task_ids: tuple[str, ...]
    patient_ids: tuple[str, ...]
    categories: tuple[str, ...]
    ratings: FloatArray
    is_answered: npt.NDArray[np.bool_]
    missing: Missing = "lowest"

    @override
    def __len__(self) -> int:
        return len(self.task_ids)

    @property
    @override
    def groups(self) -> tuple[str, ...]:
        """The criteria of REPORTED."""
        return REPORTED

    @override
    def macro_over(self, groups: Sequence[str]) -> tuple[str, ...]:
        """Return the text criteria, whose mean is the overall score, for any reported `groups`."""
        return OVERALL_CRITERIA

    @override
    def metrics(self) -> list[str]:
        """Return the mean score, the only metric that a single system has."""
        return ["rubric_mean"]

    @override
    def estimates(
        self,
        resampling: Resampling,
        *,
        stratum: str | None = None,
        groups: Sequence[str] | None = None,
        metrics: Collection[str] | None = None,
    ) -> list[Estimate]:
        """Return the estimates of :func:`summarize_rubric`.

        For a stratum, only units that have its tasks are resampled. The overall score always averages its four
        criteria, for any `groups`. There is only one metric.

        Raises
        ------
        ValueError
            If the stratum, unit or interval is unknown.
        """
        rows = self if stratum is None else self.take(self.stratum(stratum))
        estimates = summarize_rubric(rows, resampling)
        return estimates if groups is None else [one for one in estimates if one.finding in (MACRO, *groups)]

    @override
    def strata(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Return the tasks by category: bool arrays (n_tasks,)."""
        category = np.array(self.categories, object)
        return {f"category: {name}": category == name for name in CATEGORIES if (category == name).any()}

    @override
    def to_table(self) -> pa.Table:
        """Return one row per task: task_id, patient_id, category, whether it is answered, and its mean scores."""
        import pyarrow as pa

        scores = {name: pa.array(self.scores[:, i], from_pandas=True) for i, name in enumerate(REPORTED)}
        facts = {"task_id": self.task_ids, "patient_id": self.patient_ids, "category": self.categories}
        return pa.table(facts | {"is_answered": self.is_answered} | scores)

    @classmethod
    @override
    def resample(
        cls, systems: Sequence[RubricRows], resampling: Resampling, *, metrics: Sequence[str], groups: Sequence[str]
    ) -> list[dict[str, BootstrapMeans]]:
        """See :func:`resample_rubrics`.

        Raises
        ------
        ValueError
            If a metric is not the mean score, or for the reasons of :func:`resample_rubrics`.
        """
        unknown = sorted(set(metrics) - {"rubric_mean"})
        if unknown:
            raise ArgumentError("metrics", "must be among ['rubric_mean']", unknown)
        resampled = resample_rubrics(systems, resampling, groups)
        return [{"rubric_mean": figures} for figures in resampled]

    @classmethod
    @override
    def answers(cls, systems: Sequence[RubricRows], metric: str, groups: Sequence[str]) -> FloatArray:
        """Return each system's scores on the criteria among `groups`, (n_systems, n_tasks * n_criteria)."""
        columns = [rows.columns() for rows in systems]
        table: FloatArray = np.array(
            [np.concatenate([own[name] for name in groups if name in REPORTED]) for own in columns]
        )
        return np.where(np.isnan(table), -1.0, table)

    @override
    def patients(self) -> frozenset[str]:
        """Return all patients of the split."""
        return frozenset(self.patient_ids)

    @override
    def of_patients(self, patients: Collection[str]) -> RubricRows:
        """Return the rows as if the split contained only `patients`."""
        chosen = frozenset(patients)
        return self.take(np.array([patient in chosen for patient in self.patient_ids], bool))

    @override
    def without(self, questions: Collection[tuple[str, str]]) -> RubricRows:
        """Return the rows without the tasks of `questions`."""
        chosen = {task_id for task_id, _ in questions}
        return self.take(np.array([task_id not in chosen for task_id in self.task_ids], bool))

    @property
    @override
    def notes(self) -> tuple[str, ...]:
        """Notes on answers without a rating, and on text criteria that no rating has."""
        n_rated, n_unrated, n_unanswered = (
            int(tasks.sum()) for tasks in (self._is_rated, self.is_answered & ~self._is_rated, ~self.is_answered)
        )
        rated = f"scores are of the {count_text(n_rated, 'rated task')}: {count_text(n_unrated, 'answered task')}"
        unrated = f"{rated} {'has' if n_unrated == 1 else 'have'} no rating"
        rest = f", and {count_text(n_unanswered, 'task')} {'has' if n_unanswered == 1 else 'have'} no answer"
        names = [name for name in OVERALL_CRITERIA if name not in self._asked_criteria]
        unasked = f"no rating has {', '.join(names)}, which enter{'s' if len(names) == 1 else ''} no macro"
        return (*((unrated + rest * bool(n_unanswered),) if n_unrated else ()), *((unasked,) if names else ()))

    @property
    @override
    def settled(self) -> dict[str, Any]:
        """Treatment of tasks without an answer."""
        return {"missing": self.missing}

    @property
    def _is_rated(self) -> BoolArray:
        """Tasks with a rating, (n_tasks,)."""
        rated: BoolArray = np.count_nonzero(~np.isnan(self.ratings), axis=(1, 2)) > 0
        return rated

    @property
    def _asked_criteria(self) -> tuple[str, ...]:
        """Criteria that a rating has; all of them without ratings."""
        rated: BoolArray = np.count_nonzero(~np.isnan(self.ratings), axis=(0, 1)) > 0
        return tuple(name for name, has in zip(CRITERIA, rated, strict=True) if has or not rated.any())

    @property
    def scores(self) -> FloatArray:
        """Score of each task on each criterion, (n_tasks, 7), columns as in REPORTED; NaN where undefined."""
        means = mean_of_defined(np.swapaxes(self.ratings, 1, 2))
        if self.missing == "lowest":
            for i, name in enumerate(OVERALL_CRITERIA):
                if name in self._asked_criteria:
                    means[~self.is_answered, i] = LOWEST
        return np.column_stack([content_score(*means[:, :3].T), means])

    @property
    def overall(self) -> FloatArray:
        """Mean of the text criteria asked of each task, (n_tasks,); NaN unless all of them are defined."""
        asked = [REPORTED.index(name) for name in OVERALL_CRITERIA if name in self._asked_criteria]
        overall: FloatArray = self.scores[:, asked].mean(axis=1)
        return overall

    def columns(self) -> dict[str, FloatArray]:
        """Return name -> values per task: the criteria of REPORTED, then each category with its tasks' overall
        scores."""
        scores, overall = self.scores, self.overall
        of_criteria = {name: scores[:, i] for i, name in enumerate(REPORTED)}
        category = np.array(self.categories, object)
        return of_criteria | {name: np.where(category == name, overall, np.nan) for name in CATEGORIES}

    def take(self, kept: npt.NDArray[np.bool_]) -> RubricRows:
        """Return the tasks for which `kept` is True."""
        chosen = np.flatnonzero(kept).tolist()
        return RubricRows(
            tuple(self.task_ids[i] for i in chosen),
            tuple(self.patient_ids[i] for i in chosen),
            tuple(self.categories[i] for i in chosen),
            self.ratings[kept],
            self.is_answered[kept],
            self.missing,
        )


def score_ratings(
    ratings: Iterable[Rating],
    tasks: Sequence[TaskRecord],
    *,
    answered: Collection[str] | None = None,
    missing: Missing = "lowest",
) -> RubricRows:
    """Return rows from the ratings of one submission's answers.

    Parameters
    ----------
    ratings : ratings of one model, one per task and reader
    tasks : all tasks of the split, in order
    answered : ids of the tasks that have an answer; by default the tasks that have a rating
    missing : "lowest" scores a task without an answer 1 on the rated text criteria if all answers are rated;
        "leave_out" leaves it undefined, and so does "lowest" if an answer has no rating

    Raises
    ------
    ValueError
        If tasks are missing, `missing` is unknown, or a rating is for a second model, an unknown task or a task
        without an answer, is given twice by a reader, or has a score that is not a whole number from 1 to 5.
    """
    if not tasks:
        raise ArgumentError("tasks", "must hold at least one task", "none")
    if missing not in ("lowest", "leave_out"):
        raise ArgumentError("missing", "must be 'lowest' or 'leave_out'", repr(missing))
    rating_list = list(ratings)
    place = {task.task_id: i for i, task in enumerate(tasks)}
    has_answer = {rating.task_id for rating in rating_list} if answered is None else set(answered)
    _check(rating_list, place, has_answer)
    readers = {name: i for i, name in enumerate(sorted({rating.reader for rating in rating_list}))}
    array = np.full((len(tasks), len(readers), len(CRITERIA)), np.nan)
    for rating in rating_list:
        values = [getattr(rating, name) for name in CRITERIA]
        array[place[rating.task_id], readers[rating.reader]] = [np.nan if v is None else v for v in values]
    if not has_answer <= {rating.task_id for rating in rating_list}:
        missing = "leave_out"
    return RubricRows(
        tuple(task.task_id for task in tasks),
        tuple(task.patient_id for task in tasks),
        tuple(task.category for task in tasks),
        array,
        np.array([task.task_id in has_answer for task in tasks], bool),
        missing,
    )


def _check(ratings: Sequence[Rating], place: dict[str, int], has_answer: Collection[str]) -> None:
    if len({rating.model for rating in ratings}) > 1:
        raise ArgumentError("ratings", "must all rate the same model", sorted({rating.model for rating in ratings}))
    seen = set()
    for rating in ratings:
        key = (rating.task_id, rating.reader)
        if rating.task_id not in place:
            raise ArgumentError("ratings", "must rate tasks of the split", repr(rating.task_id))
        if rating.task_id not in has_answer:
            raise ArgumentError("ratings", "must rate answered tasks", f"a rating of {rating.task_id!r}")
        if key in seen:
            raise ArgumentError("ratings", "must hold one per task and reader", f"two of {key}")
        seen.add(key)
        for name in CRITERIA:
            score = getattr(rating, name)
            if score is not None and (type(score) is not int or not LOWEST <= score <= HIGHEST):
                raise ValueError(f"`{name}` must be a whole number from 1 to 5 or None, got {score!r} of {key}")
    unknown = sorted(set(has_answer) - set(place))
    if unknown:
        raise ArgumentError("answered", "must be tasks of the split", repr(unknown[0]))


def summarize_rubric(rows: RubricRows, resampling: Resampling = Resampling()) -> list[Estimate]:
    """Return mean scores, proportions and readers' agreement, with intervals from resampling patients (or tasks).

    Returns
    -------
    list of Estimate
        * ``rubric_mean``: "macro" is the overall score; then the criteria of REPORTED, then the task categories (the
          overall score of their tasks);
        * ``share_of_5``, ``share_below_3``: per criterion of REPORTED; ``share_of_5`` of "content" is the proportion of
          completely correct answers;
        * ``cohen_kappa_quadratic``, ``mean_absolute_difference``: "macro" is the mean over the four text criteria;
          then the six criteria. n counts pairs of ratings.

        Undefined values are NaN, and n_undefined counts the tasks left out.

    Raises
    ------
    ValueError
        If `unit` is unknown.
    """
    units, n_units = _units(rows, resampling.unit)
    counts = resampling_counts(n_units, resampling)
    names = [*REPORTED, *CATEGORIES]
    means = _means_of(rows, names, units, counts)
    sizes = np.array([len(rows)] * len(REPORTED) + [rows.categories.count(name) for name in CATEGORIES])
    estimates = _estimates("rubric_mean", replace(means, n_undefined=sizes - means.n), names, resampling)
    scores = rows.scores
    for metric, is_counted in (("share_of_5", scores == HIGHEST), ("share_below_3", scores < 3)):
        shares = _means(np.where(np.isnan(scores), np.nan, is_counted), units, counts)
        estimates += _estimates(metric, shares, REPORTED, resampling)[1:]
    tables = _pair_tables(rows, units, n_units)
    total, drawn = tables.sum(axis=0), resample_tables(counts, tables)
    n = total.sum(axis=(-2, -1)).astype(np.int64)
    n_paired = (tables.sum(axis=(-2, -1)) > 0).sum(axis=0)
    for metric, statistic in _AGREEMENT.items():
        values, without = statistic(total), statistic(total - tables)
        undefined = np.isnan(values)
        support = evidence_of_groups(macro_first(without), n_paired, bounds=bounds_of(metric))
        n_defined, n_undefined = np.where(undefined, 0, n), np.where(undefined, n, 0)
        figures = Figures(values, statistic(drawn), n_defined, without, support=support, n_undefined=n_undefined)
        estimates += _estimates(metric, figures, CRITERIA, resampling)
    return estimates


def resample_rubrics(
    systems: Sequence[RubricRows],
    resampling: Resampling = Resampling(),
    columns: Sequence[str] = OVERALL_CRITERIA,
) -> list[BootstrapMeans]:
    """Return mean scores of several systems on the same tasks, in the same replicates.

    Parameters
    ----------
    columns : names of :meth:`RubricRows.columns`; with the default their macro is the overall score

    Raises
    ------
    ValueError
        If `systems` is empty, a column is unknown, or the systems answered different tasks.
    """
    if not systems:
        raise ArgumentError("systems", "must hold at least one system", "none")
    unknown = sorted(set(columns) - {*REPORTED, *CATEGORIES})
    if unknown or not columns:
        raise ArgumentError("columns", f"must be among {[*REPORTED, *CATEGORIES]}", unknown or "none")
    first = systems[0]
    for rows in systems:
        if (rows.task_ids, rows.patient_ids) != (first.task_ids, first.patient_ids):
            raise ValueError("all systems must be rated on the same tasks, in the same order")
    units, n_units = _units(first, resampling.unit)
    counts = resampling_counts(n_units, resampling)
    return [_means_of(rows, columns, units, counts) for rows in systems]


def _means_of(
    rows: RubricRows, columns: Sequence[str], units: IntArray, counts: npt.NDArray[np.float32]
) -> BootstrapMeans:
    by_name = rows.columns()
    means = _means(np.column_stack([by_name[name] for name in columns]), units, counts)
    return replace(means, bounds=bounds_of("rubric_mean"))


def _means(values: FloatArray, units: IntArray, counts: npt.NDArray[np.float32]) -> BootstrapMeans:
    n_tasks, n_columns = values.shape
    groups = np.tile(np.arange(n_columns), n_tasks)
    return bootstrap_means(values.ravel(), groups, np.repeat(units, n_columns), n_groups=n_columns, counts=counts)


def _units(rows: RubricRows, unit: str) -> tuple[IntArray, int]:
    if unit not in ("patient", "task"):
        raise ArgumentError("unit", "must be 'patient' or 'task'", repr(unit))
    names = rows.patient_ids if unit == "patient" else rows.task_ids
    code = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([code[name] for name in names], np.int64), len(code)


def _pair_tables(rows: RubricRows, units: IntArray, n_units: int) -> FloatArray:
    """Return the contingency tables of all pairs of readers, (n_units, 6, 5, 5)."""
    tables = np.zeros((n_units, len(CRITERIA), _K, _K))
    for a, b in combinations(range(rows.ratings.shape[1]), 2):
        for i in range(len(CRITERIA)):
            pair = rows.ratings[:, [a, b], i]
            both = ~np.isnan(pair).any(axis=1)
            one, two = (pair[both, j] - LOWEST for j in (0, 1))
            tables[:, i] += unit_tables(one, two, n_categories=_K, units=units[both], n_units=n_units)
    return tables


def _estimates(
    metric: str, figures: BootstrapMeans | Figures, names: Sequence[str], resampling: Resampling
) -> list[Estimate]:
    """Return the mean over the four text criteria as "macro", then each name; a macro's n counts criteria."""
    text = np.array([names.index(name) for name in OVERALL_CRITERIA])
    recipe = resampling.signature(metric)
    return estimates_from(figures, names, recipe=recipe, interval=resampling.interval, averaged=text)


def disclose_ratings(
    rows: RubricRows,
    released: Collection[str],
    resampling: Resampling,
    *,
    min_cell: int,
    left_out: Collection[str] = (),
) -> Disclosure:
    """Return scores of the criteria and categories with at least `min_cell` scored answers."""
    names = (*REPORTED, *CATEGORIES)
    if len(rows) < min_cell:
        return Disclosure((), (), names, f"Nothing can be shown: this split has fewer than {min_cell} tasks.")
    # A board's scores keep percentile intervals, whatever the default of `reveal-bench score`
    estimates = summarize_rubric(rows, resampling.by("percentile"))
    counts = {e.finding: e.n for e in estimates if e.metric == "rubric_mean"}
    visible = tuple(name for name in names if counts[name] >= min_cell and name not in left_out)
    hidden = tuple(name for name in names if name not in visible)
    listed = ", ".join(name.replace("_", " ") for name in hidden)
    note = f"Fewer than {min_cell} scored answers, not shown: {listed}." if hidden else "All is shown."
    allowed = (e for e in _allowed(estimates, visible, min_cell) if e.metric in released and not math.isnan(e.value))
    return Disclosure(tuple(allowed), visible, hidden, note)


def _allowed(estimates: Sequence[Estimate], visible: Collection[str], min_cell: int) -> Iterator[Estimate]:
    pairs = {e.finding: e.n for e in estimates if e.metric == "cohen_kappa_quadratic"}
    for e in estimates:
        if e.metric == "share_of_5":
            is_allowed = e.finding == CONTENT and CONTENT in visible
        elif e.metric == "cohen_kappa_quadratic":
            counted = OVERALL_CRITERIA if e.finding == MACRO else (e.finding,)
            is_allowed = all(name in visible and pairs[name] >= min_cell for name in counted)
        elif e.metric == "rubric_mean":
            is_allowed = set(OVERALL_CRITERIA) <= set(visible) if e.finding == MACRO else e.finding in visible
        else:
            continue
        if is_allowed:
            yield e
