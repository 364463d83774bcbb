"""What may be shown of the studies of one submission.

A label is shown if at least `min_cell` studies have it and as many do not. `precision` leaves out the studies that a
submission does not call, so it is not released; averages over decisions or studies ("micro", exact match) would mix the
hidden labels in. AUROC is shown as a macro only, over at least :data:`RANKED_LABELS` labels: beside the decisions, an
order of the studies would be a second answer per label and submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reveal_bench.kinds.disclosure import Disclosure, disclosure_of_findings
from reveal_bench.kinds.findings.scoring import StudyRows, summarize_studies
from reveal_bench.metrics.bootstrap import MACRO, Estimate

__all__ = ["RANKED_LABELS", "disclose_studies", "shown_labels"]

RANKED_LABELS = 5


def disclose_studies(
    rows: StudyRows, released: Sequence[str], *, min_cell: int, n_resamples: int, seed: int
) -> Disclosure:
    """Figures of the labels shown, and the macros over these; the cell of a label is the studies that have it.

    `released` are the metrics that are shown per label."""
    shown = shown_labels(rows, min_cell)
    allowed: list[Estimate] = []
    if shown:
        kept = _only_labels(rows, shown)
        positives = dict(zip(shown, kept.present.sum(axis=0).tolist(), strict=True))
        estimates = summarize_studies(kept, n_resamples=n_resamples, seed=seed)
        allowed = [replace(e, n=positives.get(e.finding, e.n)) for e in estimates if e.metric in released]
        if len(shown) >= RANKED_LABELS:
            allowed += [e for e in estimates if (e.metric, e.finding) == ("auroc", MACRO)]
    counted = "studies with it or without it"
    return disclosure_of_findings(allowed, rows.labels, shown, counted=counted, min_cell=min_cell)


def shown_labels(rows: StudyRows, min_cell: int) -> tuple[str, ...]:
    """Labels with at least `min_cell` studies that have them and as many that do not: references alone decide."""
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
