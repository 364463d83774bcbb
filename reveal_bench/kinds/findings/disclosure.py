"""Scores of one submission to a findings benchmark that a board may show.

A label is shown if at least `min_cell` studies have it and as many do not. `precision` and `npv` are computed over
studies that a submission chooses, so they are not released. `specificity` is not released, either: F1, recall and kappa
are rounded values of the same number of true positives, and each further value narrows that number down. Averages over
decisions or studies ("micro", exact match) are not shown, because they would include hidden labels. AUROC is shown only
as a macro over at least :data:`RANKED_LABELS` labels, because the ranking of the studies would be a second answer per
label, in addition to the decisions.

Intervals of labels are computed from spreads (standard errors), see :mod:`reveal_bench.kinds.scored`. These reveal
nothing new, because the sender knows how many studies were called, and the patients and the studies that have the label
never change.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.findings.scoring import StudyRows, summarize_studies
from reveal_bench.kinds.scored import (
    Disclosure,
    Spread,
    disclosure_of_findings,
    effective_size,
    spread_of_share,
)
from reveal_bench.metrics.agreement import kappa_from_tables
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling

RANKED_LABELS = 5


def disclose_studies(
    rows: StudyRows, released: Sequence[str], resampling: Resampling, *, min_cell: int, left_out: Collection[str] = ()
) -> Disclosure:
    """Return scores of the labels shown, and macros over these labels; a label's cell is the set of studies that have
    it.

    AUROC is disclosed only as a macro.
    """
    per_label = [metric for metric in released if metric != "auroc"]
    visible_labels = tuple(label for label in shown_labels(rows, min_cell) if label not in left_out)
    allowed: list[Estimate] = []
    if visible_labels:
        kept = _only_labels(rows, visible_labels)
        positives = dict(zip(visible_labels, kept.present.sum(axis=0).tolist(), strict=True))
        # A board's scores keep percentile intervals, whatever the default of `reveal-bench score`
        estimates = summarize_studies(kept, resampling.by("percentile"))
        allowed = [replace(e, n=positives.get(e.finding, e.n)) for e in estimates if e.metric in per_label]
        if len(visible_labels) >= RANKED_LABELS and "auroc" in released:
            allowed += [e for e in estimates if (e.metric, e.finding) == ("auroc", MACRO)]
    counted = "studies with it or without it"
    disclosure = disclosure_of_findings(allowed, rows.labels, visible_labels, counted=counted, min_cell=min_cell)
    return replace(disclosure, spreads=_spreads(rows, visible_labels, per_label))


def _spreads(rows: StudyRows, visible_labels: Sequence[str], released: Sequence[str]) -> dict[tuple[str, str], Spread]:
    """Return each label's spread, from its numbers of positive and of called studies, widened for shared patients."""
    n = len(rows)
    clustering = math.sqrt(n / effective_size(study.patient_id for study in rows.studies))
    spreads: dict[tuple[str, str], Spread] = {}
    for label in visible_labels:
        column = rows.labels.index(label)
        n_with, n_called = int(rows.present[:, column].sum()), int(rows.predicted[:, column].sum())
        for metric in released:
            spreads[metric, label] = partial(SPREADS[metric], n=n, n_with=n_with, n_called=n_called, by=clustering)
    return spreads


def _spread_of_recall(truth: FloatArray, *, n: int, n_with: int, n_called: int, by: float) -> FloatArray:
    return by * spread_of_share(n_with)(truth)


def _spread_of_f1(truth: FloatArray, *, n: int, n_with: int, n_called: int, by: float) -> FloatArray:
    """Return sqrt(F (1 - F) (2 - F) / S), by the delta method for Poisson counts, with S = 2 TP + FP + FN."""
    spread: FloatArray = by * np.sqrt(truth * (1 - truth) * (2 - truth) / (n_with + n_called))
    return spread


def _spread_of_kappa(truth: FloatArray, *, n: int, n_with: int, n_called: int, by: float) -> FloatArray:
    """Return kappa's standard error by the delta method, from its change with each cell of the table with these
    margins.
    """
    chance = n_with * n_called / n
    both = chance + truth * ((n_with + n_called) / 2 - chance)
    both = np.clip(both, max(0, n_with + n_called - n), min(n_with, n_called))
    cells = np.stack([n - n_with - n_called + both, n_called - both, n_with - both, both], axis=-1)
    more = kappa_from_tables((cells[:, None] + _LITTLE * np.eye(4)).reshape(-1, 4, 2, 2))
    changes = more - kappa_from_tables(cells.reshape(-1, 1, 2, 2))
    spread: FloatArray = by * np.sqrt((cells * (changes / _LITTLE) ** 2).sum(axis=-1))
    return spread


_LITTLE = 1e-4
SPREADS = {"recall": _spread_of_recall, "f1": _spread_of_f1, "cohen_kappa": _spread_of_kappa}
"""Metric -> function that returns the standard error of a label's score for each possible true value.

Its parameter `by` is the factor by which studies of the same patient increase the standard error.
"""


def shown_labels(rows: StudyRows, min_cell: int) -> tuple[str, ...]:
    """Return the labels that at least `min_cell` studies have and as many lack, according to the references."""
    positives = rows.present.sum(axis=0)
    smaller = np.minimum(positives, len(rows) - positives)
    return tuple(label for label, n in zip(rows.labels, smaller.tolist(), strict=True) if n >= min_cell)


def _only_labels(rows: StudyRows, labels: Sequence[str]) -> StudyRows:
    columns = [rows.labels.index(label) for label in labels]
    return replace(
        rows,
        labels=tuple(labels),
        predicted=rows.predicted[:, columns],
        present=rows.present[:, columns],
        probabilities=None if rows.probabilities is None else rows.probabilities[:, columns],
    )
