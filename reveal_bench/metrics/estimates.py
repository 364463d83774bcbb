"""Label metrics with their intervals, for data that do not come from a dataset folder.

Patients are resampled in the sorted order of their names, so that the same seed gives the same replicates for every
metric, label and rater. Intervals have 95% confidence. An Estimate's `n` is the number of cases of one label or
finding; for a macro, the number of defined labels or findings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.agreement import (
    lowest_kappa,
)
from reveal_bench.metrics.bootstrap import (
    MACRO,
    Counts,
    bootstrap_columns,
    bounds_of,
    estimates_from,
    leave_one_out,
    macro_first,
    needed_blocks,
    replicates_of,
)
from reveal_bench.metrics.intervals import (
    Estimate,
    Interval,
    Resampling,
    find_intervals,
)
from reveal_bench.metrics.jackknife import (
    LEAST_REPEATS,
    LEAST_UNITS,
    REPEATED,
    Evidence,
    evidence_of_groups,
    has_uneven_rows,
)
from reveal_bench.metrics.labels import (
    LabelSums,
    Ranking,
    Ratio,
    auroc,
    average_precision,
    exact_match_from_sums,
    hamming_from_sums,
    kappa_from_sums,
    label_sums,
    lowest_mcc,
    mcc_from_sums,
    ranking_replicates,
    ratio_from_sums,
    ratio_parts,
    sum_by_unit,
    tables_from_sums,
)
from reveal_bench.metrics.probabilities import log_losses
from reveal_bench.metrics.ranking_intervals import ranking_evidence
from reveal_bench.metrics.resampled import Figures

POOLED = "all"
"""Finding in the Estimate of all decisions or studies together."""

OF_SUMS: dict[str, Callable[[LabelSums], FloatArray]] = {
    **{
        f"{ratio}_{average}" if average else ratio: partial(ratio_from_sums, ratio, average=average)
        for ratio in ("f1", "precision", "recall")
        for average in (None, "micro", "weighted", "samples")
    },
    "specificity": partial(ratio_from_sums, "specificity"),
    "npv": partial(ratio_from_sums, "npv"),
    "exact_match": exact_match_from_sums,
    "hamming_loss": partial(hamming_from_sums, average="micro"),
    "cohen_kappa": kappa_from_sums,
    "mcc": mcc_from_sums,
}
"""Metric of decisions -> its function of sums (...), which returns a value per label, or one over all labels."""
_OF_SCORES: dict[Ranking, Callable[..., FloatArray]] = {"auroc": auroc, "average_precision": average_precision}
PER_LABEL = ("f1", "precision", "recall", "specificity", "npv", "cohen_kappa", "mcc")
"""Metrics of decisions with a score for each label, computed from :class:`~reveal_bench.metrics.labels.LabelSums`."""
SHOWN_LAST = ("mcc", "balanced_accuracy", "log_loss")
"""Metrics that tables show after the others, which then fit on a narrow terminal."""
_OF_DEPENDENCE = ("cohen_kappa", "mcc")
"""Metrics on a scale from below 0 to 1 that depend most on the rarer category."""
_SHARES = ("f1", "precision", "recall", "f1_micro", "precision_micro", "recall_micro", "exact_match", "hamming_loss")
"""Metrics that are proportions: means of rows that are 0 or 1, or F1, which is 2 TP / (2 TP + FP + FN)."""
_OF_EVERY_STUDY = ("exact_match", "hamming_loss")
"""Metrics over all labels for which every study counts, whether it has a label or not."""
OF_ABSENCE = ("specificity", "npv", "balanced_accuracy", "exact_match", "hamming_loss")
"""Metrics that credit the absence of a label: a study without a prediction is wrong for every label."""


@dataclass(frozen=True)
class DecisionSums:
    """Counts of decisions, and those with the decisions on unanswered studies wrong, for :data:`OF_ABSENCE`."""

    plain: LabelSums
    missed: LabelSums

    @classmethod
    def of(
        cls,
        predictions: npt.ArrayLike,
        references: npt.ArrayLike,
        answered: npt.ArrayLike | None,
        units: IntArray,
        n_units: int,
        asked: BoolArray | None = None,
    ) -> DecisionSums:
        """Return the counts of each resampled unit; `answered` and `asked` as for :func:`estimate_labels`."""
        plain = label_sums(predictions, references, units=units, n_units=n_units, asked=asked)
        if answered is None or np.all(answered):
            return cls(plain, plain)
        missed = missed_decisions(predictions, references, answered)
        return cls(plain, label_sums(missed, references, units=units, n_units=n_units, asked=asked))

    def for_metric(self, metric: str) -> LabelSums:
        """Return the counts from which `metric` is computed."""
        return self.missed if metric in OF_ABSENCE else self.plain

    def resample(self, counts: Counts) -> DecisionSums:
        """Return the sums in every replicate of `counts` (n_resamples, n_units)."""
        plain = self.plain.resample(counts)
        return DecisionSums(plain, plain if self.missed is self.plain else self.missed.resample(counts))


def missed_decisions(
    predictions: npt.ArrayLike, references: npt.ArrayLike, answered: npt.ArrayLike | None
) -> BoolArray:
    """Return the decisions, with those on studies that are not `answered` (n_studies,) wrong for every label."""
    decisions, present = np.asarray(predictions, bool), np.asarray(references, bool)
    return decisions if answered is None else np.where(np.asarray(answered, bool)[:, None], decisions, ~present)


def estimate_labels(
    predictions: npt.ArrayLike | None,
    references: npt.ArrayLike,
    *,
    labels: Sequence[str],
    scores: npt.ArrayLike | None = None,
    patients: Sequence[str] | None = None,
    all_patients: Sequence[str] | None = None,
    answered: npt.ArrayLike | None = None,
    asked: BoolArray | None = None,
    resampling: Resampling = Resampling(),
    metrics: Collection[str] | None = None,
) -> list[Estimate]:
    """Return metrics of label sets and, with scores, metrics of scores.

    F1, precision and recall are returned with every average, other metrics with those listed below.

    Parameters
    ----------
    predictions, references : bool arrays (n_studies, n_labels); `predictions` is None for the metrics of scores alone
    labels : names of the columns
    scores : float array (n_studies, n_labels), optional: adds "auroc" and "average_precision", and "log_loss" if all
        scores are in [0, 1]
    patients : a name per study; by default, every study is its own patient
    all_patients : all patients of the split, needed if some have no study
    answered : bool array (n_studies,), by default all True. A study without a prediction (False) is wrong for every
        label in the metrics that credit absence: specificity, NPV, balanced accuracy, exact match and Hamming loss
    asked : bool array (n_studies, n_labels), False where a study has no reference for a label
    resampling : resampling of `patients`, named by its unit; interval "jackknife", "percentile" or "bca". With
        "jackknife", ranking metrics have the intervals of :mod:`reveal_bench.metrics.ranking_intervals`.
    metrics : metrics to return, by default all

    Returns
    -------
    list of Estimate: for the metrics of :data:`PER_LABEL` (kappa against the references), "balanced_accuracy", "auroc",
    "average_precision" and "log_loss" the macro, then one per label; for other averages, exact match and Hamming loss
    one Estimate, whose finding is :data:`POOLED`

    Raises
    ------
    ValueError
        If the input is empty, shapes or lengths differ, or a value is neither true nor false.

    Examples
    --------
    >>> estimates = estimate_labels([[1, 0], [1, 1]], [[1, 0], [0, 1]], labels=["Edema", "Nodule"])
    >>> [(e.metric, e.finding, round(e.value, 3)) for e in estimates[:4]]
    [('f1', 'macro', 0.833), ('f1', 'Edema', 0.667), ('f1', 'Nodule', 1.0), ('f1_micro', 'all', 0.8)]
    """
    n_studies = len(np.asarray(references))
    units, n_units = resampled_units(n_studies, patients, all_patients)
    sums = DecisionSums.of(
        references if predictions is None else predictions, references, answered, units, n_units, asked
    )
    n_labels = sums.plain.confusion.shape[1]
    if n_labels != len(labels):
        raise ArgumentError("labels", f"must name the {n_labels} columns of `references`", len(labels), ("references",))
    ranked = ranked_scores(None if predictions is None else missed_decisions(predictions, references, answered), scores)
    ranked = {name: own for name, own in ranked.items() if metrics is None or name in metrics}
    statistics = {} if predictions is None else {k: f for k, f in OF_SUMS.items() if metrics is None or k in metrics}
    interval = resampling.interval

    def replicates(counts: Counts) -> dict[str, FloatArray]:
        drawn = sums.resample(counts)
        of_sums = {name: statistic(drawn.for_metric(name)) for name, statistic in statistics.items()}
        return of_sums | rankings_resampled(ranked, references, counts, units, asked)

    drawn = replicates_of(replicates, needed_blocks(n_units, resampling))
    estimates: list[Estimate] = []
    for name, of_replicates in drawn.items():
        if name in PER_LABEL:
            figures = figures_of_labels(name, sums.for_metric(name), of_replicates)
            estimates += estimates_from(figures, labels, recipe=resampling.signature(name), interval=interval)
        elif name in OF_SUMS:
            estimates += _pooled(name, sums.for_metric(name), of_replicates, n_studies, resampling)
    for name, (ranking, column) in ranked.items():
        of_counts = partial(ranking_replicates, ranking, column, references, units=units, asked=asked)
        without = leave_one_out(of_counts, n_units) if interval == "bca" else None
        figures = figures_of_ranking(ranking, column, references, units, n_units, drawn[name], asked)
        figures = replace(figures, without=without)
        estimates += estimates_from(figures, labels, recipe=resampling.signature(name), interval=interval)
    if scores is not None and (metrics is None or "log_loss" in metrics) and are_probabilities(scores):
        losses = figures_of_losses(scores, references, units, n_units, resampling, asked)
        estimates += estimates_from(losses, labels, recipe=resampling.signature("log_loss"), interval=interval)
    estimates.sort(key=lambda one: one.metric in SHOWN_LAST)
    return estimates


Ranked = tuple[Ranking, FloatArray]


def ranked_scores(predictions: npt.ArrayLike | None, scores: npt.ArrayLike | None) -> dict[str, Ranked]:
    """Return metric -> (kind of ranking, values (n_studies, n_labels) that it ranks), for the inputs that are not None.

    Balanced accuracy is the AUROC of decisions, so it has the same intervals and tests.
    """
    ranked: dict[str, Ranked] = {}
    if predictions is not None:
        ranked["balanced_accuracy"] = "auroc", np.asarray(predictions, np.float64)
    if scores is not None:
        ranked |= {name: (name, np.asarray(scores, np.float64)) for name in _OF_SCORES}
    return ranked


def rankings_resampled(
    ranked: Mapping[str, Ranked], references: npt.ArrayLike, counts: Counts, units: IntArray, asked: BoolArray | None
) -> dict[str, FloatArray]:
    """Return metric -> values in every replicate, (n_resamples, n_labels)."""
    return {
        name: ranking_replicates(*own, references, counts, units=units, asked=asked) for name, own in ranked.items()
    }


def are_probabilities(scores: npt.ArrayLike) -> bool:
    """Return True if all scores are in [0, 1]."""
    values = np.asarray(scores, np.float64)
    return bool(((values >= 0) & (values <= 1)).all())


def figures_of_losses(
    probabilities: npt.ArrayLike,
    references: npt.ArrayLike,
    units: IntArray,
    n_units: int,
    resampling: Resampling,
    asked: BoolArray | None = None,
) -> Figures:
    """Return the log loss of every label, with the inputs of its intervals: the mean of one loss per study.

    The supporting patients are those of the rarer class, whose few large losses decide the mean.

    Parameters
    ----------
    probabilities, references : (n_studies, n_labels)
    units : unit of each study
    """
    losses = log_losses(probabilities, references)
    n_studies, n_labels = losses.shape
    kept = slice(None) if asked is None else np.flatnonzero(asked)
    (means,) = bootstrap_columns(
        [losses.ravel()[kept]],
        np.tile(np.arange(n_labels), n_studies)[kept],
        np.repeat(units, n_labels)[kept],
        n_groups=n_labels,
        n_units=n_units,
        blocks=needed_blocks(n_units, resampling),
    )
    n_units_of_rarer, without = units_of_both(references, units, asked), means.left_out()
    support = evidence_of_groups(
        macro_first(without),
        n_units_of_rarer,
        averaged=np.arange(n_labels),
        bounds=bounds_of("log_loss"),
        is_uneven=has_uneven_rows(means.rows),
    )
    return Figures(
        means.values,
        means.replicates,
        means.n,
        without,
        weights=means.rows,
        behind=n_units_of_rarer,
        parts=means.ratio_parts(),
        support=support,
    )


def figures_of_labels(metric: str, sums: LabelSums, replicates: FloatArray) -> Figures:
    """Return the scores of every label by a metric of :data:`PER_LABEL`, with the inputs of their intervals."""
    statistic, total = OF_SUMS[metric], sums.total
    values, left_out, has_lowest = statistic(total), statistic(sums.left_out()), metric in _OF_DEPENDENCE
    # Without its last unit that is positive, or called so, MCC is undefined; its limit is 0, as kappa is there
    left_out = np.where(np.isnan(left_out) & ~np.isnan(values), 0.0, left_out) if metric == "mcc" else left_out
    n, undefined = total.confusion.sum(axis=-1).astype(np.int64), np.isnan(values)
    support = evidence_of_groups(
        macro_first(left_out),
        units_behind(metric, sums),
        averaged=np.flatnonzero(~undefined),
        is_share=not has_lowest,
        bounds=bounds_of(metric),
        lowest=_lowest(metric, total) if has_lowest else None,
        of_overlap=metric == "f1" or has_lowest,
        is_uneven=has_uneven_rows(sums.studies[:, :1]),
        lacks_repeats=_lacks_repeats(metric, sums),
    )
    parts = None if metric == "mcc" else ratio_parts(metric, sums)  # MCC is no ratio of sums over units
    return Figures(
        values,
        replicates,
        np.where(undefined, 0, n),
        left_out,
        weights=studies_behind(metric, sums),
        positive_units=units_behind("specificity" if metric in ("specificity", "npv") else "recall", sums),
        behind=units_behind(metric, sums) if parts is None else None,
        parts=None if parts is None else (parts[0], parts[1]),
        support=support,
        n_undefined=np.where(undefined, n, 0),
    )


def _lacks_repeats(metric: str, sums: LabelSums) -> BoolArray | bool:
    """Return True for labels with too few units that have several supporting studies for precision or F1."""
    studies = sums.studies[:, 0]
    if metric not in ("f1", "precision") or studies.sum() < REPEATED * np.count_nonzero(studies):
        return False
    scarce: BoolArray = (studies_behind(metric, sums) > 1).sum(axis=0) < LEAST_REPEATS
    return scarce


def _lowest(metric: str, total: LabelSums) -> FloatArray:
    return lowest_mcc(total) if metric == "mcc" else lowest_kappa(tables_from_sums(total))


def figures_of_ranking(
    metric: Ranking,
    scores: FloatArray,
    references: npt.ArrayLike,
    units: IntArray,
    n_units: int,
    replicates: FloatArray,
    asked: BoolArray | None = None,
) -> Figures:
    """Return AUROC or average precision of every label, with the inputs of their intervals.

    Parameters
    ----------
    scores, references : (n_studies, n_labels)
    units : unit of each study
    replicates : float array (n_resamples, n_labels)
    """
    present = np.asarray(references, bool)
    counts = np.ones(present.shape, bool) if asked is None else asked
    values = ranking_replicates(metric, scores, present, np.ones((1, len(scores))), asked=asked)[0]
    columns = [(scores[kept, i], present[kept, i], units[kept]) for i, kept in enumerate(counts.T)]
    support = ranking_evidence(metric, columns, values, n_units)
    undefined, n = np.isnan(values), counts.sum(axis=0)
    return Figures(
        values,
        replicates,
        np.where(undefined, 0, n),
        behind=support.n_smaller,
        parts=support.ratio_parts(values),
        support=support,
        n_undefined=np.where(undefined, n, 0),
    )


def estimate_ranking(
    ranking: Ranking,
    scores: npt.ArrayLike,
    references: npt.ArrayLike,
    *,
    findings: Sequence[str],
    groups: Sequence[str],
    patients: Sequence[str],
    all_patients: Sequence[str] | None = None,
    resampling: Resampling = Resampling(),
) -> list[Estimate]:
    """Return AUROC or average precision of each finding, for cases that each belong to one finding.

    Parameters
    ----------
    scores : float array (n_cases,)
    references : bool array (n_cases,)
    findings, patients : a name per case
    groups : the findings to report, in their order
    all_patients, resampling : as for :func:`estimate_labels`, but with percentiles instead of "bca"

    Returns
    -------
    list of Estimate: the macro, then one per finding. The value is NaN if all cases are in one class.

    Examples
    --------
    >>> estimates = estimate_ranking("auroc", [0.9, 0.1, 0.2], [1, 0, 0], findings=["Edema", "Edema", "Mass"],
    ...                              groups=["Edema", "Mass"], patients=["a", "b", "b"])
    >>> [(e.finding, e.value, e.n, e.n_undefined) for e in estimates]
    [('macro', 1.0, 1, 1), ('Edema', 1.0, 2, 0), ('Mass', nan, 0, 1)]
    """
    score, present = np.asarray(scores, np.float64)[:, None], np.asarray(references, bool)[:, None]
    units, n_units = resampled_units(len(score), patients, all_patients)
    of_case = np.array(findings)
    parts = [np.flatnonzero(of_case == name) for name in groups]
    values = [_OF_SCORES[ranking](score[part], present[part])[0] if len(part) else np.nan for part in parts]

    def replicates(counts: Counts) -> dict[str, FloatArray]:
        columns = [
            ranking_replicates(ranking, score[part], present[part], counts, units=units[part])[:, 0]
            if len(part)
            else np.full(len(counts), np.nan)
            for part in parts
        ]
        return {ranking: np.stack(columns, axis=1)}

    drawn = replicates_of(replicates, needed_blocks(n_units, resampling))[ranking]
    n = np.array([len(part) for part in parts])
    columns = [(score[part, 0], present[part, 0], units[part]) for part in parts]
    figures = Figures(
        np.array(values),
        drawn,
        np.where(np.isnan(values), 0, n),
        support=ranking_evidence(ranking, columns, np.array(values), n_units),
        n_undefined=np.where(np.isnan(values), n, 0),
    )
    interval: Interval = "percentile" if resampling.interval == "bca" else resampling.interval
    return estimates_from(figures, groups, recipe=resampling.by(interval).signature(ranking), interval=interval)


def units_of_both(references: npt.ArrayLike, units: IntArray, asked: BoolArray | None = None) -> IntArray:
    """Return the number of units with each label or without it, whichever is smaller, (n_labels,)."""
    present = np.asarray(references, bool)
    counts = np.ones(present.shape, bool) if asked is None else asked
    n_units = int(units.max()) + 1
    n_with = [(sum_by_unit(part & counts, units, n_units) > 0).sum(axis=0) for part in (present, ~present)]
    fewer: IntArray = np.minimum(n_with[0], n_with[1])
    return fewer


def as_flat_result(
    estimates: Sequence[Estimate], *, groups: str, macros: Mapping[str, Sequence[Estimate]] | None = None
) -> dict[str, Any]:
    """Return estimates of several metrics as the dictionary of `evaluate` modules.

    Macros and pooled scores are at the top level as ``<metric>``, ``<metric>_low``, ``<metric>_high`` and
    ``<metric>_n``; the others are under `groups`, by finding. `macros`, a result of
    :func:`~reveal_bench.metrics.bootstrap.macros_over_groups`, are under "per_group".
    """

    def flat(estimate: Estimate) -> dict[str, Any]:
        name = estimate.metric
        bounds = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        return {name: estimate.value, **bounds, f"{name}_n": estimate.n}

    result: dict[str, Any] = {}
    by_group: dict[str, dict[str, Any]] = {}
    with_macro = {estimate.metric for estimate in estimates if estimate.finding == MACRO}
    for estimate in estimates:
        is_top = estimate.finding == MACRO or estimate.metric not in with_macro
        place = result if is_top else by_group.setdefault(estimate.finding, {})
        place.update(flat(estimate))
    result |= {"signatures": sorted({estimate.signature for estimate in estimates}), groups: by_group}
    per_group = {name: {k: v for one in own for k, v in flat(one).items()} for name, own in (macros or {}).items()}
    return result | ({"per_group": per_group} if per_group else {})


def resampled_units(
    n_cases: int, patients: Sequence[str] | None, all_patients: Sequence[str] | None
) -> tuple[IntArray, int]:
    """Return the code of each case's patient, and the number of patients; by default, every case is its own patient.

    Raises
    ------
    ValueError
        If `n_cases` is 0, or `patients` has another length or contains a patient that is not in `all_patients`.
    """
    if n_cases == 0:
        raise ValueError("`predictions` and `references` must hold at least one case, got none")
    if patients is None:
        return np.arange(n_cases), n_cases
    check_length("patients", patients, n_cases)
    names = sorted(set(patients if all_patients is None else all_patients))
    code = {name: i for i, name in enumerate(names)}
    unlisted = sorted(set(patients) - set(code))
    if unlisted:
        raise ArgumentError(
            "all_patients", f"must hold every patient of `patients`, {unlisted[0]!r} is missing", None, ("patients",)
        )
    return np.array([code[name] for name in patients], np.int64), len(names)


def units_behind(name: str, sums: LabelSums) -> IntArray:
    """Return the number of units that support a metric, which have a study counted by :func:`studies_behind`.

    For kappa and MCC, units without the label, or called negative, count instead if these are fewer.
    """
    n_units = (studies_behind(name, sums) > 0).sum(axis=0)
    if name in _OF_DEPENDENCE:
        n_units = np.minimum(n_units, (sums.confusion[..., 1:].sum(axis=-1) > 0).sum(axis=0))
    return np.asarray(n_units, np.int64)


def studies_behind(name: str, sums: LabelSums) -> FloatArray:
    """Return the number of each unit's studies that support a metric, (n_units, n_labels).

    For recall, these studies have the label; for specificity, they lack it; for precision, they are called positive;
    for NPV, they are called negative. For other metrics, such as F1 and kappa, they have the label or are called
    positive.
    """
    tp, fp, fn, tn = np.moveaxis(sums.confusion, -1, 0)
    by_metric = {"recall": tp + fn, "precision": tp + fp, "specificity": tn + fp, "npv": tn + fn}
    held: FloatArray = by_metric.get(name.split("_")[0], tp + fp + fn)
    return held


def _pooled(
    name: str, sums: LabelSums, replicates: FloatArray, n_studies: int, resampling: Resampling
) -> list[Estimate]:
    """Return the estimate over all labels together; it is supported by the patients who support any label's score."""
    statistic = OF_SUMS[name]
    values, left_out = statistic(sums.total)[None], statistic(sums.left_out())[:, None]
    studies = sums.studies[:, :1] if name in _OF_EVERY_STUDY else studies_behind(name, sums)
    n_units = np.array([(studies > 0).any(axis=1).sum()])
    evidence = Evidence(
        left_out,
        n_units,
        n_units >= LEAST_UNITS,
        np.array([name in _SHARES]),
        bounds_of(name),
        of_overlap=name in ("f1_micro", "f1_weighted"),
        is_uneven=has_uneven_rows(sums.studies[:, :1]),
    )
    intervals = find_intervals(
        values, replicates[:, None], interval=resampling.interval, left_out=left_out, evidence=evidence
    )
    ratio, _, average = name.rpartition("_")
    n = 0 if np.isnan(values[0]) else n_studies
    n = int(sums.total.ratios[get_args(Ratio).index(ratio), 1]) if average == "samples" else n
    return intervals.estimates([POOLED], [n], [n_studies - n], metric=name, signature=resampling.signature(name))


def check_length(name: str, values: Any, n_cases: int, *, of: str = "predictions") -> None:
    """Raise ValueError unless `values` has as many entries as `of`, `n_cases`."""
    if len(values) != n_cases:
        raise ValueError(f"`{name}` must have the length of `{of}` ({n_cases}), got {len(values)}")
