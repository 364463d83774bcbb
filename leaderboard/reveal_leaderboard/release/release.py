"""What of a score may be shown.

Conventions
-----------
Holdouts are small, and an exact score on ten cases gives the cases away within some tens of submissions. So

* a finding with fewer than `min_cell` cases is hidden; of whole studies, both those that have it and those that do not
  must be as many. Which findings are hidden follows from the references alone, never from what was submitted;
* the only totals are macros, and these are over the shown findings. So no total holds a hidden finding, and there is
  nothing from which one could be subtracted: hidden columns are cut off before anything is computed;
* only metrics in which every asked case counts are released. `mask_iou` leaves out the cases for which a submission
  hands in an empty mask, `precision` those that it does not call: their sender would choose the cases that count, down
  to one. Averages over decisions or studies ("micro", exact match) mix the hidden labels in, strata are too small;
* AUROC is shown as a macro only, over at least :data:`RANKED_LABELS` labels. Beside the decisions, an order of the
  studies would be a second answer per label and submission;
* where a benchmark asks for all findings, a mask without a reference would add a case and thereby tell what is absent.
  Such rows are taken out: a wrong mask elsewhere costs nothing, and hits are averaged over the true cases alone;
* values are rounded to `resolution`, the ends of intervals outwards; the figures of findings in the lowest band to
  `small_resolution`, which is what their intervals, some 0.3 wide, support; macros so that no finding shows finer in
  one than by itself; counts of cases are given in bands.

Nothing else leaves the worker. The policy's figures travel with the score. What is left is a *counting query*: how many
of the cases I name have it? Rounding to 0.01 does not hide that (one case of 30 moves a figure by 0.03); the quota and
the ladder bound how often it is answered. Measured with a prober whose model has an AUROC of 0.95 and ten submissions:
with 30 to 35 cases he gains 0.04 to 0.07 of F1 where figures are shown at 0.01, up to 0.06 at 0.05, and at most about
0.05 at 0.1; with 60 cases or more, 0.03 or less at 0.01. Intervals come from one fixed draw, so their ends depend a
little on which cases were hit.

What of a submission's ratings may be shown.

Conventions
-----------
Ratings are readers' judgements of answers, not held-out labels, so nothing can be probed by asking again; yet a figure
of few answers is no figure, and names of readers stay with the maintainer. So

* the overall score is shown from `min_cell` tasks on; a criterion or a category of tasks from as many scored answers;
* values are rounded to `resolution`, the ends of intervals outwards; counts of answers are given in bands;
* of the shares only that of completely correct answers is shown (a content score of 5), see
  :mod:`reveal_bench.kinds.tasks.scoring`; of the agreement of readers their quadratic-weighted kappa.

In place of findings stand the criteria of the rubric and the categories of tasks.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from reveal_bench.kinds.findings.scoring import StudyRows, summarize_studies
from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.kinds.tasks.records import CATEGORIES
from reveal_bench.kinds.tasks.scoring import RubricRows, summarize_rubric
from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.metrics.ordinal import CONTENT, CRITERIA, REPORTED
from reveal_leaderboard.settings import ReleasePolicy

__all__ = [
    "Figure",
    "POLICY",
    "PRIMARY",
    "RANKED_LABELS",
    "RELEASED",
    "RELEASED_OF_STUDIES",
    "RELEASED_OF_TASKS",
    "ReleasedScore",
    "climb",
    "part_of",
    "primary_figure",
    "release",
    "release_rubric",
    "release_studies",
    "shown_labels",
    "split_final",
]

RELEASED = ("point_hit", "grid_hit", "grid_chance", "mask_iou_all", "box_iou")
"""Metrics of cases from which a submission can take no case away. `box_iou` only where no mask is compared."""
RELEASED_OF_STUDIES = ("f1", "recall", "cohen_kappa")
"""Metrics of labels that are shown per label: all three tell the same, how many of the studies called have it."""
RANKED_LABELS = 5
PRIMARY = {"localization": "point_hit", "findings": "f1", "tasks": "rubric_mean"}
"""Kind of benchmark -> the metric whose macro ranks."""


POLICY = ReleasePolicy()


@dataclass(frozen=True, slots=True)
class Figure:
    """A released number: rounded value and interval, and behind it a band of cases (findings for a macro)."""

    metric: str
    finding: str
    value: float
    low: float | None
    high: float | None
    n: str
    signature: str


@dataclass(frozen=True)
class ReleasedScore:
    """All that is shown of a score.

    Attributes
    ----------
    figures : macros and findings, by metric
    shown, hidden : findings, in the order of the vocabulary
    note : what is not shown and why, for people
    policy : its settings
    """

    figures: tuple[Figure, ...]
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    note: str
    policy: Mapping[str, Any]

    def figure(self, metric: str, finding: str = MACRO) -> Figure | None:
        """One figure, if it is shown."""
        return next((f for f in self.figures if (f.metric, f.finding) == (metric, finding)), None)

    @property
    def signature(self) -> str:
        """The recipes of all figures."""
        return " ".join(sorted({figure.signature for figure in self.figures}))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ReleasedScore:
        """Back from :meth:`to_json`."""
        figures = tuple(Figure(**figure) for figure in raw["figures"])
        return cls(figures, tuple(raw["shown"]), tuple(raw["hidden"]), raw["note"], raw["policy"])


def release(rows: CaseRows, policy: ReleasePolicy = POLICY) -> ReleasedScore:
    """Reduce per-case rows of a localization benchmark to what may be shown of them.

    Parameters
    ----------
    rows : of one submission, from :func:`reveal_bench.kinds.localization.scoring.score_localization`
    policy : ReleasePolicy

    Examples
    --------
    >>> ReleasePolicy().band(74), ReleasePolicy().round(0.4649)
    ('60-119', 0.46)
    """
    rows = _true_cases(rows)
    # Where chance is defined follows from the references alone; a row made by hand may lack it.
    n_cases = rows.n_defined("grid_chance" if "grid_chance" in rows.values else "point_hit")
    shown = tuple(finding for finding in rows.findings if n_cases[finding] >= policy.min_cell)
    metrics = [name for name in RELEASED if name in rows.values]
    if "mask_iou_all" in metrics and "box_iou" in metrics:
        metrics.remove("box_iou")
    figures: list[Figure] = []
    if shown:
        estimates = summarize(rows, metrics=metrics, findings=shown, n_resamples=policy.n_resamples, seed=policy.seed)
        thin = {e.metric for e in estimates if e.finding != MACRO and e.n < policy.min_cell}
        allowed = [e for e in estimates if (e.metric not in thin if e.finding == MACRO else e.n >= policy.min_cell)]
        figures = _figures(allowed, policy)
    return _released(figures, rows.findings, shown, "cases", policy)


def release_studies(rows: StudyRows, policy: ReleasePolicy = POLICY) -> ReleasedScore:
    """Reduce per-study rows of a findings-type benchmark to what may be shown of them.

    The band of a label's figures is that of the studies which have it.

    Parameters
    ----------
    rows : of one submission on all studies, from :func:`reveal_bench.kinds.findings.scoring.score_studies`
    policy : ReleasePolicy
    """
    shown = shown_labels(rows, policy)
    figures: list[Figure] = []
    if shown:
        kept = _only_labels(rows, shown)
        positives = dict(zip(shown, kept.present.sum(axis=0).tolist(), strict=True))
        estimates = summarize_studies(kept, n_resamples=policy.n_resamples, seed=policy.seed)
        allowed = [replace(e, n=positives.get(e.finding, e.n)) for e in estimates if e.metric in RELEASED_OF_STUDIES]
        if len(shown) >= RANKED_LABELS:
            allowed += [e for e in estimates if (e.metric, e.finding) == ("auroc", MACRO)]
        figures = _figures(allowed, policy)
    return _released(figures, rows.labels, shown, "studies with it or without it", policy)


def shown_labels(rows: StudyRows, policy: ReleasePolicy = POLICY) -> tuple[str, ...]:
    """Labels with at least `min_cell` studies that have them and as many that do not: references alone decide."""
    positives = rows.present.sum(axis=0)
    smaller = np.minimum(positives, len(rows) - positives)
    return tuple(label for label, n in zip(rows.labels, smaller.tolist(), strict=True) if n >= policy.min_cell)


def primary_figure(score: ReleasedScore) -> Figure | None:
    """The macro that ranks and climbs: hit rate, or grid hit rate where there is none; F1 of studies; mean rating."""
    found = (score.figure(metric) for metric in ("point_hit", "grid_hit", "f1", "rubric_mean"))
    return next((figure for figure in found if figure is not None), None)


def climb(new: ReleasedScore, best: ReleasedScore | None, policy: ReleasePolicy = POLICY) -> bool:
    """Whether `new` is shown: its primary macro, as rounded, is more than `ladder_step` above that of `best`.

    The first score is. Only what is shown takes part, so that holding a score back tells no more than its figure would.
    """
    before = None if best is None else primary_figure(best)
    now = primary_figure(new)
    if before is None or now is None:
        return before is None
    return now.value - before.value > policy.ladder_step + 1e-9


def split_final(patient_ids: Iterable[str], key: bytes, share: float) -> frozenset[str]:
    """Patients of the final part: about `share` of them.

    The keyed hash of a patient's id decides, so that a patient stays in its part when others come or go, and nobody
    without the key can tell the parts apart.

    Raises
    ------
    ValueError
        If `share` is not in [0, 1) or the key is shorter than 16 bytes.
    """
    if not 0 <= share < 1:
        raise ValueError(f"`share` must lie in [0, 1), got {share}")
    if len(key) < 16:
        raise ValueError(f"`key` must have at least 16 bytes, got {len(key)}")
    limit = int(share * 2**64)
    return frozenset(patient for patient in patient_ids if _place(patient, key) < limit)


def _place(patient: str, key: bytes) -> int:
    digest = hmac.new(key, b"final part\0" + patient.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big")


@overload
def part_of(rows: CaseRows, patients: Collection[str]) -> CaseRows: ...
@overload
def part_of(rows: StudyRows, patients: Collection[str]) -> StudyRows: ...
@overload
def part_of(rows: RubricRows, patients: Collection[str]) -> RubricRows: ...
def part_of(rows: CaseRows | StudyRows | RubricRows, patients: Collection[str]) -> CaseRows | StudyRows | RubricRows:
    """The rows of `patients` alone, as if the split held nobody else."""
    chosen = frozenset(patients)
    if isinstance(rows, RubricRows):
        return rows.take(np.array([patient in chosen for patient in rows.patient_ids], bool))
    if isinstance(rows, StudyRows):
        return rows.take(np.array([study.patient_id in chosen for study in rows.studies], bool))
    images = tuple(pair for pair in rows.all_images if pair[1] in chosen)
    kept = np.array([patient in chosen for patient in rows.patient_ids], bool)
    return replace(_take(rows, kept), all_images=images)


def _true_cases(rows: CaseRows) -> CaseRows:
    """The rows with a reference; those of a submission without any prediction all have one."""
    if "point_hit" not in rows.values:
        return rows
    return _take(rows, ~np.isnan(rows.values["point_hit"]))


def _take(rows: CaseRows, kept: npt.NDArray[np.bool_]) -> CaseRows:
    chosen = np.flatnonzero(kept).tolist()
    return replace(
        rows,
        image_ids=[rows.image_ids[i] for i in chosen],
        patient_ids=[rows.patient_ids[i] for i in chosen],
        case_findings=[rows.case_findings[i] for i in chosen],
        point_kinds=[rows.point_kinds[i] for i in chosen],
        cell_kinds=[rows.cell_kinds[i] for i in chosen],
        values={metric: values[kept] for metric, values in rows.values.items()},
    )


def _only_labels(rows: StudyRows, labels: Sequence[str]) -> StudyRows:
    columns = [rows.labels.index(label) for label in labels]
    return replace(
        rows,
        labels=tuple(labels),
        predicted=rows.predicted[:, columns],
        present=rows.present[:, columns],
        probabilities=None if rows.probabilities is None else rows.probabilities[:, columns],
    )


def _figures(estimates: Sequence[Estimate], policy: ReleasePolicy) -> list[Figure]:
    """Rounded figures: values to the nearest step, the ends of intervals outwards."""
    n_cases = {e.finding: e.n for e in estimates if e.finding != MACRO}
    macro_step = policy.macro_step(list(n_cases.values()))
    figures = []
    for e in estimates:
        step = macro_step if e.finding == MACRO else policy.step_of(e.n)
        value = policy.round(e.value, step)
        if value is not None:
            low, high = policy.round_outwards(e.low, e.high, step)
            n = str(e.n) if e.finding == MACRO else policy.band(e.n)
            figures.append(Figure(e.metric, e.finding, value, low, high, n, e.signature))
    return figures


def _released(
    figures: Sequence[Figure], findings: Sequence[str], shown: Sequence[str], counted: str, policy: ReleasePolicy
) -> ReleasedScore:
    hidden = tuple(finding for finding in findings if finding not in shown)
    if not shown:
        note = f"Nothing can be shown: every finding has fewer than {policy.min_cell} {counted} in this split."
    elif not hidden:
        note = "All findings are shown."
    else:
        note = f"Fewer than {policy.min_cell} {counted}, not shown and not in any macro: {', '.join(hidden)}."
    return ReleasedScore(tuple(figures), tuple(shown), hidden, note, asdict(policy))


RELEASED_OF_TASKS = ("rubric_mean", "share_of_5", "cohen_kappa_quadratic")
"""Metrics of ratings that are shown."""


def release_rubric(rows: RubricRows, policy: ReleasePolicy = POLICY) -> ReleasedScore:
    """Reduce the ratings of one submission to what may be shown of them.

    Parameters
    ----------
    rows : of one submission on all tasks, from :func:`reveal_bench.kinds.tasks.scoring.score_ratings`
    policy : ReleasePolicy
    """
    names = (*REPORTED, *CATEGORIES)
    if len(rows) < policy.min_cell:
        note = f"Nothing can be shown: this split has fewer than {policy.min_cell} tasks."
        return ReleasedScore((), (), names, note, asdict(policy))
    estimates = summarize_rubric(rows, n_resamples=policy.n_resamples, seed=policy.seed)
    counts = {e.finding: e.n for e in estimates if e.metric == "rubric_mean"}
    shown = tuple(name for name in names if counts[name] >= policy.min_cell)
    figures = tuple(_figure(e, policy) for e in _allowed(estimates, shown, policy))
    hidden = tuple(name for name in names if name not in shown)
    listed = ", ".join(name.replace("_", " ") for name in hidden)
    note = f"Fewer than {policy.min_cell} scored answers, not shown: {listed}." if hidden else "All is shown."
    return ReleasedScore(figures, shown, hidden, note, asdict(policy))


def _allowed(estimates: list[Estimate], shown: tuple[str, ...], policy: ReleasePolicy) -> Iterator[Estimate]:
    pairs = {e.finding: e.n for e in estimates if e.metric == "cohen_kappa_quadratic"}
    for e in estimates:
        if e.metric not in RELEASED_OF_TASKS or math.isnan(e.value):
            continue
        if e.metric == "share_of_5":
            is_allowed = e.finding == CONTENT and CONTENT in shown
        elif e.metric == "cohen_kappa_quadratic":
            counted = CRITERIA[:4] if e.finding == MACRO else (e.finding,)
            is_allowed = all(name in shown and pairs[name] >= policy.min_cell for name in counted)
        else:
            is_allowed = set(CRITERIA[:4]) <= set(shown) if e.finding == MACRO else e.finding in shown
        if is_allowed:
            yield e


def _figure(e: Estimate, policy: ReleasePolicy) -> Figure:
    value = policy.round(e.value)
    assert value is not None, "undefined figures were taken out"
    low, high = policy.round_outwards(e.low, e.high)
    n = str(e.n) if e.finding == MACRO else policy.band(e.n)
    return Figure(e.metric, e.finding, value, low, high, n, e.signature)
