"""Systems against each other on the studies of one split: figures in the same replicates, and paired differences.

Conventions
-----------
As in :mod:`reveal_bench.comparison`: ONE draw of patients (or studies) serves all systems, metrics and labels, so that
differences are paired; a macro averages the labels for which all compared systems are defined. Replicates come from
counts that weigh the patients, see :mod:`reveal_bench.metrics.labels`; nothing is scored again per replicate.

Metrics of decisions apply to every system, those of probabilities where a system gave probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.comparison import Comparison, compare_resampled
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import resampling_counts, signature
from reveal_bench.metrics.labels import (
    LabelSums,
    Ranking,
    auroc,
    average_precision,
    kappa_from_sums,
    label_sums,
    ranking_replicates,
    ratio_from_sums,
)
from reveal_bench.study_scoring import StudyRows

__all__ = ["LabelFigures", "StudyUnit", "compare_studies", "resample_studies", "study_metrics"]

FloatArray = npt.NDArray[np.float64]
StudyUnit = Literal["patient", "study"]

_OF_SUMS: dict[str, Callable[[LabelSums], FloatArray]] = {
    "f1": partial(ratio_from_sums, "f1"),
    "precision": partial(ratio_from_sums, "precision"),
    "recall": partial(ratio_from_sums, "recall"),
    "cohen_kappa": kappa_from_sums,
}
_OF_PROBABILITIES: dict[str, Callable[..., FloatArray]] = {"auroc": auroc, "average_precision": average_precision}


@dataclass(frozen=True)
class LabelFigures:
    """Figures of one system and metric per label, on the data and in every replicate.

    Attributes
    ----------
    values : float array (n_labels,), replicates : float array (n_resamples, n_labels)
        NaN where the metric is undefined.
    n : int array (n_labels,)
        Studies behind each label; 0 where the metric is undefined on the data.
    """

    values: FloatArray
    replicates: FloatArray
    n: npt.NDArray[np.int64]


def study_metrics(systems: Sequence[StudyRows]) -> list[str]:
    """Metrics that apply to all of the systems.

    Examples
    --------
    >>> study_metrics([])
    ['f1', 'precision', 'recall', 'cohen_kappa', 'auroc', 'average_precision']
    """
    has_probabilities = all(rows.probabilities is not None for rows in systems)
    return [*_OF_SUMS, *(_OF_PROBABILITIES if has_probabilities else ())]


def resample_studies(
    systems: Sequence[StudyRows],
    *,
    metrics: Sequence[str],
    labels: Sequence[str],
    n_resamples: int,
    seed: int,
    unit: StudyUnit = "patient",
) -> list[dict[str, LabelFigures]]:
    """Figures per label of several systems on one split, on the data and in the same replicates.

    Parameters
    ----------
    systems : StudyRows of the same studies in the same order, scored against the same labels
    metrics : of :func:`study_metrics`
    labels : those to report

    Returns
    -------
    list, per system, of dict from metric to LabelFigures

    Raises
    ------
    ValueError
        If there is no system or study, a metric does not apply to all or a label is unknown, or the systems were scored
        on different studies or references.
    """
    _check_systems(systems, metrics, labels, unit)
    first = systems[0]
    columns = [first.labels.index(label) for label in labels]
    names = [study.patient_id if unit == "patient" else study.study_id for study in first.studies]
    code = {name: i for i, name in enumerate(sorted(set(names)))}
    units = np.array([code[name] for name in names], np.int64)
    counts = resampling_counts(len(code), n_resamples=n_resamples, seed=seed)
    present = first.present[:, columns]
    results = []
    for rows in systems:
        sums = label_sums(rows.predicted[:, columns], present, units=units, n_units=len(code))
        total, drawn = sums.total(), sums.resample(counts)
        figures = {}
        for metric in metrics:
            if metric in _OF_SUMS:
                values, replicates = _OF_SUMS[metric](total), _OF_SUMS[metric](drawn)
            else:
                assert rows.probabilities is not None
                scores, ranking = rows.probabilities[:, columns], _ranking(metric)
                values = _OF_PROBABILITIES[metric](scores, present)
                replicates = ranking_replicates(ranking, scores, present, counts, units=units)
            figures[metric] = LabelFigures(values, replicates, np.where(np.isnan(values), 0, len(rows)))
        results.append(figures)
    return results


def _ranking(metric: str) -> Ranking:
    return "auroc" if metric == "auroc" else "average_precision"


def _check_systems(
    systems: Sequence[StudyRows], metrics: Sequence[str], labels: Sequence[str], unit: StudyUnit
) -> None:
    if unit not in ("patient", "study"):
        raise ValueError(f"`unit` must be 'patient' or 'study', got {unit!r}")
    if not systems:
        raise ValueError("`systems` must hold at least one system, got none")
    first = systems[0]
    if not len(first):
        raise ValueError("`systems` must be scored on at least one study, got none")
    unknown = [label for label in labels if label not in first.labels]
    if unknown or not labels:
        raise ValueError(f"`labels` must be among {list(first.labels)}, got {unknown or 'none'}")
    missing = [name for name in metrics if name not in study_metrics(systems)]
    if missing:
        raise ValueError(f"`metrics` must be among {study_metrics(systems)}, got {missing}")
    studies = [(study.study_id, study.patient_id) for study in first.studies]
    for rows in systems:
        if rows.labels != first.labels or [(s.study_id, s.patient_id) for s in rows.studies] != studies:
            raise ValueError("all systems must be scored on the same studies and labels, in the same order")
        if not np.array_equal(rows.present, first.present):
            raise ValueError("all systems must be scored against the same references")


def compare_studies(
    a: StudyRows,
    b: StudyRows,
    *,
    metrics: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: StudyUnit = "patient",
) -> list[Comparison]:
    """Paired difference ``a - b`` per metric: its macro first, then its labels.

    Parameters
    ----------
    a, b : StudyRows of two systems on the same split
    metrics : those that apply to both by default
    labels : the vocabulary by default

    Raises
    ------
    ValueError
        As :func:`resample_studies`.
    """
    names = study_metrics([a, b]) if metrics is None else list(metrics)
    chosen = tuple(a.labels if labels is None else labels)
    of_a, of_b = resample_studies([a, b], metrics=names, labels=chosen, n_resamples=n_resamples, seed=seed, unit=unit)
    comparisons = []
    for name in names:
        recipe = signature(name, METRICS[name].version, n_resamples=n_resamples, seed=seed, unit=unit)
        comparisons += compare_resampled(of_a[name], of_b[name], chosen, recipe=recipe)
    return comparisons
