"""Categorize predicted cells as full hit, partial hit, position error or anatomy error (paper 000, section 3.4).

Conventions
-----------
A case is an image and a finding with a reference in the split
(:func:`~reveal_bench.kinds.localization.references.list_cases`). Predictions are assigned to cells as in scoring
(:mod:`reveal_bench.kinds.localization.scoring`). If a prediction has several points, its cell is the one that the
reference covers most. A case therefore is a full hit exactly if its `grid_hit` is 1.

==================  ====================================================================================================
``full_hit``        `grid_hit` is 1
``partial_hit``     no hit, but the reference covers some of the cell
``position``        no overlap; the finding could be there
``anatomy``         no overlap; anatomy rules the finding out there
``miss_unreviewed`` no overlap, and neither reader nor anatomy decides between the two
``outside``         points outside the central square, which have no cell to judge
``no_answer``       no prediction, or an empty mask: included, because an absent answer is a miss
==================  ====================================================================================================

If there is no overlap, a reader's answer decides (in paper 000, a radiologist's). Without an answer, the image's
anatomy decides if it is known (:mod:`reveal_bench.reports.anatomy`). Two groups of cases are omitted and counted:
lateral images, because paper 000 only reviewed frontal ones (an unknown view counts as frontal), and cases whose
`grid_hit` is undefined because the reference is entirely outside the central square.

The shares of categories have intervals. Paper 000 (section 4.2) reviewed at most 50 misses per model and pathology, and
extrapolated the shares of position and anatomy errors from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.points import cells_of, points_of
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.references import Reference, list_cases
from reveal_bench.masks import pack_regions
from reveal_bench.metrics.bootstrap import MACRO, resampling_counts
from reveal_bench.metrics.intervals import Estimate, Resampling, drop_sparse_intervals, find_intervals, with_width
from reveal_bench.metrics.localization import cell_coverage, hit_cells
from reveal_bench.metrics.resampled import mean_of_defined
from reveal_bench.reports.anatomy import MIN_SHARE, PLAUSIBLE, Regions, check_share, is_enough, plausible_shares
from reveal_bench.reports.figures import BarGroup, legend, legend_height, patch, row_names
from reveal_bench.reports.page import Csv, PageTable
from reveal_bench.reports.style import (
    LINE,
    WIDE,
    Illustration,
    Paint,
    columns_for,
    interval_of,
    new_figure,
    percent,
    percent_cell,
    place_axes,
    plain_axes,
    style,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CATEGORIES = ("full_hit", "partial_hit", "position", "anatomy", "miss_unreviewed", "outside", "no_answer")

MISSES = ("position", "anatomy", "miss_unreviewed")
"""Categories of predicted cells that the reference does not touch."""

ReviewKey = tuple[str, str, int, str]
"""A predicted cell that readers judged, whatever the model: (image_id, finding, cells per side, cell)."""
Reviews = Mapping[ReviewKey, str]
"""Judged cell -> "position" or "anatomy"."""


@dataclass(frozen=True, slots=True)
class CaseError:
    """A case with its category.

    Attributes
    ----------
    category : one of :data:`CATEGORIES`
    cell : predicted cell; None without a prediction, or if it is outside the central square
    coverage : proportion of the cell that the reference covers, in [0, 1]; 0 without a cell
    source : {"overlap", "reader", "anatomy", "none"}
        Evidence for the category: overlap with the reference, a reader, known anatomy, or nothing yet.
    """

    image_id: str
    patient_id: str
    finding: str
    view: str
    category: str
    cell: str | None
    coverage: float
    source: str


class CaseErrors(list[CaseError]):
    """The categorized cases of one set of predictions, and counts of omitted cases.

    Attributes
    ----------
    grid : cells per side
    patients : all patients of the examined images, even without cases; intervals resample these patients
    n_lateral, n_undefined : numbers of cases omitted as lateral, or because `grid_hit` is undefined
    """

    def __init__(self, *, grid: int, patients: Sequence[str] = ()) -> None:
        super().__init__()
        self.grid, self.patients = grid, tuple(patients)
        self.n_lateral = self.n_undefined = 0


def categorize(
    predictions: Sequence[LocalizationPrediction],
    records: Sequence[LocalizationRecord],
    *,
    grid: int,
    anatomy: Mapping[str, Regions] | None = None,
    reviews: Reviews | None = None,
    frontal_only: bool = True,
    min_share: float = MIN_SHARE,
) -> CaseErrors:
    """Return the category of every case, in the order of the records.

    Parameters
    ----------
    predictions : at most one per (image, finding); predictions without a case are ignored
    records : references; only ground truth is used
    grid : cells per side
    anatomy : known regions by image (:func:`~reveal_bench.reports.anatomy.read_anatomy`)
    reviews : readers' answers (:func:`~reveal_bench.reports.misses.read_reviews`)
    frontal_only : omit lateral images
    min_share : minimum proportion of a plausible cell, see :data:`~reveal_bench.reports.anatomy.MIN_SHARE`

    Raises
    ------
    ValueError
        If a pair is predicted twice, an image is listed twice, a review is neither "position" nor "anatomy", or the
        size in an anatomy differs from the image's.
    """
    check_share(min_share)
    judge = _Judge(Grid(grid), anatomy or {}, reviews or {}, min_share)
    by_pair: dict[tuple[str, str], LocalizationPrediction] = {}
    for prediction in predictions:
        pair = (prediction.image_id, prediction.finding)
        if pair in by_pair:
            raise ArgumentError("predictions", "must name each (image, finding) once", f"{pair} twice")
        by_pair[pair] = prediction
    looked_at = {record.patient_id for record in records if not (frontal_only and record.view == "LATERAL")}
    cases = CaseErrors(grid=grid, patients=sorted(looked_at))
    for record, finding, reference in list_cases(records):
        if frontal_only and record.view == "LATERAL":
            cases.n_lateral += 1
            continue
        case = judge.case(record, finding, reference, by_pair.get((record.image_id, finding)))
        if case is None:
            cases.n_undefined += 1
        else:
            cases.append(case)
    return cases


class _Judge:
    """Decide a case's category by the reference, then by a reader's answer, then by the anatomy."""

    def __init__(self, grid: Grid, anatomy: Mapping[str, Regions], reviews: Reviews, min_share: float) -> None:
        for key, answer in reviews.items():
            if answer not in ("position", "anatomy"):
                raise ValueError(f"`reviews[{key}]` must be 'position' or 'anatomy', got {answer!r}")
        self.grid, self._anatomy, self._reviews, self._min_share = grid, anatomy, reviews, min_share

    def case(
        self, record: LocalizationRecord, finding: str, reference: Reference, prediction: LocalizationPrediction | None
    ) -> CaseError | None:
        """Return one categorized case; None if the reference is entirely outside the central square."""
        regions = pack_regions([reference.region], [reference.size])
        covered = cell_coverage(regions, 0, self.grid)
        if not covered.any():
            return None
        by_cell = covered / (2 * min(reference.size)) ** 2
        points = points_of(prediction, grid=self.grid, size=reference.size)
        cells = cells_of(prediction, points, grid=self.grid, size=reference.size)
        cell = max(cells, key=lambda name: by_cell[self._place(name)], default=None)
        coverage = 0.0 if cell is None else float(by_cell[self._place(cell)])
        if not points:
            category, source = "no_answer", "none"
        elif cell is None:
            category, source = "outside", "none"
        elif coverage > 0:
            is_hit = hit_cells(regions, self.grid)[0][self._place(cell)]
            category, source = ("full_hit" if is_hit else "partial_hit"), "overlap"
        else:
            category, source = self._decide(record, finding, cell)
        return CaseError(record.image_id, record.patient_id, finding, record.view, category, cell, coverage, source)

    def _place(self, cell: str) -> tuple[int, int]:
        """Return (row, column) of a cell's name."""
        column, row = self.grid.parse(cell)
        return row, column

    def _decide(self, record: LocalizationRecord, finding: str, cell: str) -> tuple[str, str]:
        """Return (category, source) of a cell that the reference does not touch."""
        review = self._reviews.get((record.image_id, finding, self.grid.n, cell))
        if review is not None:
            return review, "reader"
        by_cell = self._plausible(record, finding)
        if by_cell is None:
            return "miss_unreviewed", "none"
        is_possible = is_enough(float(by_cell[self._place(cell)]), self._min_share)
        return ("position" if is_possible else "anatomy"), "anatomy"

    def _plausible(self, record: LocalizationRecord, finding: str) -> FloatArray | None:
        regions, structures = self._anatomy.get(record.image_id), PLAUSIBLE.get(finding)
        if regions is None or structures is None:
            return None
        if regions.size != record.size:
            raise ValueError(
                f"`anatomy[{record.image_id!r}]` must have the image's size {list(record.size)} [height, width], "
                f"got {list(regions.size)}"
            )
        return plausible_shares(regions, structures, self.grid)


def reading_order(case: CaseError, seed: int) -> bytes:
    """Return a sort key that orders misses randomly, but equally for every model.

    A miss that models share is thus read once, and each model's first misses are a random sample of its misses.
    """
    return sha256(f"{seed}\0{case.image_id}\0{case.finding}\0{case.cell}".encode()).digest()


@dataclass(frozen=True, slots=True)
class ErrorShare:
    """The share of one category among a finding's cases, and the numbers of cases.

    Attributes
    ----------
    finding : finding, or "macro" for the unweighted mean over findings
    category : one of :data:`CATEGORIES`
    estimate, sd : Estimate and float in [0, 1]
        The share with its interval, and the standard deviation of its replicates; NaN if undefined.
    n : int
        Number of cases; for the macro, number of findings with a defined share.
    n_misses, n_reviewed : int
        Number of predicted cells without overlap, and how many of these a reader or the anatomy classified.
    """

    finding: str
    category: str
    estimate: Estimate
    sd: float
    n: int
    n_misses: int
    n_reviewed: int


def shares(
    case_errors: Sequence[CaseError],
    *,
    findings: Sequence[str] | None = None,
    max_reviewed: int = 50,
    resampling: Resampling = Resampling(),
) -> list[ErrorShare]:
    """Return the share of each category per finding, and its unweighted mean over findings (paper 000, 3.4 and 4.2).

    If readers judged some of a finding's misses, their judgements are extrapolated to its undecided misses. Only the
    first `max_reviewed` judged misses in :func:`reading_order` are used, so that misses read for another model do not
    weigh more. Cases decided by the anatomy are not extrapolated. If readers judged none of the misses, undecided ones
    stay ``miss_unreviewed``. If no miss of a finding is decided, its shares of position and anatomy errors are
    undefined, not 0.

    Intervals are percentiles over replicates: patients are resampled and the extrapolation is repeated. Replicates
    without a judged miss are omitted. As in ``reveal-bench score``, a finding with fewer than
    :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients has no interval, nor has the macro if all findings have
    fewer. Defined shares of a finding sum to 1. The macro's shares also sum to 1 if all are defined for the same
    findings.

    Parameters
    ----------
    case_errors : cases of one set of predictions, from :func:`categorize`
    findings : findings to report, in order; by default all findings with cases, in order of appearance
    max_reviewed : maximum number of misses per finding given to readers, at least 1 (50 in the paper)
    resampling : resampling of patients; use the same seed for :func:`.misses.write_misses`

    Returns
    -------
    list of ErrorShare: first the macro's, then each finding's, in the order of :data:`CATEGORIES`

    Raises
    ------
    ValueError
        If `max_reviewed` is below 1.
    """
    if max_reviewed < 1:
        raise ArgumentError("max_reviewed", "must be at least 1", max_reviewed)
    names = list(dict.fromkeys(case.finding for case in case_errors) if findings is None else findings)
    units = sorted({*getattr(case_errors, "patients", ()), *(case.patient_id for case in case_errors)}) or [""]
    tally = _tally(case_errors, names, units, max_reviewed, resampling.seed)
    counts = resampling_counts(len(units), resampling)
    # Single precision is exact because counts are whole numbers far below 2**24
    resampled = (counts @ tally.reshape(len(units), -1)).astype(np.float64).reshape(len(counts), *tally.shape[1:])
    data = tally.sum(axis=0, dtype=np.float64)
    known_p, known_a, rest, read_p, read_a = data.T[4:9]
    is_read = read_p + read_a > 0
    values, replicates = _divide(data, is_read), _divide(resampled, is_read)
    is_dark = (rest > 0) & ~is_read & (known_p + known_a == 0)
    for part in (values, replicates):
        part[..., is_dark, CATEGORIES.index("position")] = part[..., is_dark, CATEGORIES.index("anatomy")] = np.nan
    n_misses, n_reviewed = known_p + known_a + rest, known_p + known_a + read_p + read_a
    n_defined = (~np.isnan(values)).sum(axis=0)
    n_patients = (tally[:, :, 0] > 0).sum(axis=0)
    macro = _figures(
        mean_of_defined(values.T), mean_of_defined(replicates.swapaxes(1, 2)), int(n_patients.max(initial=0))
    )
    rows = [
        ErrorShare(MACRO, category, *macro[i], int(n_defined[i]), int(n_misses.sum()), int(n_reviewed.sum()))
        for i, category in enumerate(CATEGORIES)
    ]
    for k, name in enumerate(names):
        evidence = int(data[k, 0]), int(n_misses[k]), int(n_reviewed[k])
        figures = _figures(values[k], replicates[:, k], int(n_patients[k]))
        rows += [ErrorShare(name, category, *figures[i], *evidence) for i, category in enumerate(CATEGORIES)]
    return rows


_COLUMNS = 10
"""Number of count columns: cases; full hits, partial hits, no answer; position and anatomy errors by the anatomy;
misses that the anatomy does not decide; position and anatomy errors among these misses by readers; outside."""


def _tally(
    case_errors: Sequence[CaseError], names: Sequence[str], units: Sequence[str], max_reviewed: int, seed: int
) -> npt.NDArray[np.float32]:
    """Return the counts, shape (n_units, n_findings, :data:`_COLUMNS`)."""
    tally = np.zeros((len(units), len(names), _COLUMNS), np.float32)
    unit_code = {unit: i for i, unit in enumerate(units)}
    plain = {"full_hit": 1, "partial_hit": 2, "no_answer": 3, "outside": 9}
    by_anatomy, by_reader = {"position": 4, "anatomy": 5}, {"position": 7, "anatomy": 8}
    for k, name in enumerate(names):
        cases = [case for case in case_errors if case.finding == name]
        rest = [case for case in cases if case.category in MISSES and case.source != "anatomy"]
        read = [case for case in rest if case.source == "reader"]
        if len(read) < len(rest):
            read = sorted(read, key=lambda case: reading_order(case, seed))[:max_reviewed]
        for case in cases:
            tally[unit_code[case.patient_id], k, 0] += 1
            if case.category in plain:
                tally[unit_code[case.patient_id], k, plain[case.category]] += 1
            elif case.source == "anatomy":
                tally[unit_code[case.patient_id], k, by_anatomy[case.category]] += 1
        for case in rest:
            tally[unit_code[case.patient_id], k, 6] += 1
        for case in read:
            tally[unit_code[case.patient_id], k, by_reader[case.category]] += 1
    return tally


def _divide(sums: FloatArray, is_read: npt.NDArray[np.bool_]) -> FloatArray:
    """Return shares (..., n_findings, n_categories) from summed counts; NaN without cases or judged misses."""
    n, full, partial, none, known_p, known_a, rest, read_p, read_a, outside = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_read = np.where(is_read & (rest > 0), rest / (read_p + read_a), 0.0)
        position, anatomy = known_p + per_read * read_p, known_a + per_read * read_a
        parts = np.stack([full, partial, position, anatomy, np.where(is_read, 0.0, rest), outside, none], axis=-1)
        divided: FloatArray = parts / n[..., None]
    return divided


def _figures(values: FloatArray, replicates: FloatArray, n_patients: int) -> list[tuple[Estimate, float]]:
    """Return (estimate, standard deviation) of each category, a column of `replicates`; no interval of few patients."""
    every = np.full(len(values) - 1, n_patients)  # all categories have the same patients
    intervals = with_width(drop_sparse_intervals(find_intervals(values, replicates), every))
    defined = [column[~np.isnan(column)] for column in replicates.T]
    spread = [float(column.std(ddof=1)) if len(column) > 1 else float("nan") for column in defined]
    return list(zip(intervals.estimates(), spread, strict=True))


def errors_table(shares: Mapping[str, Sequence[Sequence[ErrorShare]]]) -> PageTable:
    """Return a table of each run's mean share per error category; its CSV file also has every pathology.

    Parameters
    ----------
    shares : run label -> :func:`shares` of each epoch; the page shows the first epoch
    """
    first_epochs = [share for run in shares.values() for share in run[0]]
    used = [c for c in CATEGORIES if any(s.category == c and s.estimate.value > 0 for s in first_epochs)]
    rows, plain = [], []
    for label, epochs in shares.items():
        macro = {share.category: share.estimate for share in epochs[0] if share.finding == MACRO}
        cells = [f"{percent_cell(macro[c].value)}\n{interval_of(macro[c].low, macro[c].high)}" for c in used]
        rows.append((label + (" (epoch 1)" if len(epochs) > 1 else ""), *cells))
        plain += [
            (label, number, s.finding, s.category, own.value, s.sd, own.low, own.high, s.n, s.n_misses, s.n_reviewed)
            for number, epoch in enumerate(epochs, start=1)
            for s, own in ((s, s.estimate) for s in epoch)
        ]
    head = ("Run", *(CATEGORY_PAINTS[c][0].capitalize() for c in used))
    plain_head = ("run", "epoch", "finding", "category", "share", "sd", "low", "high", "n", "n_misses", "n_reviewed")
    caption = (
        "Mean share of each category over pathologies, in percent of the questions on frontal images, with 95% "
        "percentile interval over resampled patients. A share is undefined for a pathology without a reviewed miss."
    )
    return PageTable(head, rows, caption, "Error categories", csv=Csv.of("error-categories", plain_head, plain))


PAGE_HEIGHT = 215.0
"""Maximum height in millimetres of a figure of error categories."""


@dataclass(frozen=True)
class ErrorShares:
    """Shares on frontal images (run label -> finding -> category -> share), and number of cases `n` per finding."""

    shares: Mapping[str, Mapping[str, Mapping[str, float]]]
    n: Mapping[str, int]


def draw_errors(errors: ErrorShares, order: Sequence[str]) -> Iterator[Illustration]:
    """Yield figures of stacked error categories by pathology and run; each fits a printed page."""
    named = [name for name in order if errors.n.get(name)]
    groups = [BarGroup(name, f"{name} (n\u00a0=\u00a0{errors.n[name]})") for name in named]
    categories = "; ".join(_MEANINGS[name] for name in _drawn_categories(errors.shares))
    caption = f"Predictions on frontal images (n = questions) by category. {categories}."
    on_page = PANELS * max(1, int(PAGE_HEIGHT / (5.5 * len(errors.shares) + 16)))
    for number, start in enumerate(range(0, len(groups), on_page), start=1):
        part = groups[start : start + on_page]
        full = {
            label: sum(shares.get(group.key, {}).get("full_hit", 0.0) for group in part) / len(part)
            for label, shares in errors.shares.items()
        }
        alt = "Stacked bars of error categories. Mean share of full hits: " + ", ".join(
            f"{label}: {percent(share)}" for label, share in full.items()
        )
        name = "error-categories" if len(groups) <= on_page else f"error-categories-{number}"
        yield Illustration(name, "Error categories", caption, alt + ".", partial(error_bars, part, errors.shares))


PANELS = 3
"""Number of panels of stacked shares in a row."""


CATEGORY_PAINTS: dict[str, tuple[str, Paint]] = {
    "full_hit": ("full hit", Paint("#0b4f48")),
    "partial_hit": ("partial hit", Paint("#8fd0c6")),
    "position": ("position error", Paint("#f6e08a")),
    "anatomy": ("anatomy error", Paint("#c4512d", "////")),
    "miss_unreviewed": ("miss, not reviewed", Paint("#e3e6ea", "....")),
    "outside": ("outside the square", Paint("#9aa5b1")),
    "no_answer": ("no answer", Paint("#ffffff")),
}
"""Category -> (name, look), in the order in which bars are stacked."""
_MEANINGS = {
    "full_hit": "Full hit: the predicted cell is a hit",
    "partial_hit": "partial hit: some overlap, but no hit",
    "position": "position error: no overlap, plausible anatomy",
    "anatomy": "anatomy error: no overlap, implausible anatomy",
    "miss_unreviewed": "miss, not reviewed: no overlap, plausibility unknown",
    "outside": "outside the square: a point outside the central square",
    "no_answer": "no answer: refused, unreadable or failed",
}


def _drawn_categories(shares: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Return the categories of which a run has a share, in the order in which bars are stacked."""
    return [name for name in CATEGORY_PAINTS if any(g.get(name) for run in shares.values() for g in run.values())]


def error_bars(
    groups: Sequence[BarGroup],
    shares: Mapping[str, Mapping[str, Mapping[str, float]]],
    width: float = WIDE,
) -> Figure:
    """Draw the shares of error categories as stacked bars: one panel per group, one bar per run.

    Parameters
    ----------
    shares : run label -> group key -> category -> share; a group without shares stays empty
    """
    labels, left = row_names(list(shares), width, 3)
    used = _drawn_categories(shares)
    columns = columns_for(len(groups), PANELS if width == WIDE else 1)
    panel = (width - left - 3) / columns
    with style():
        line = 1.0 + 1.05 * LINE * max(label.count("\n") + 1 for label in labels)
        titles = ["\n".join([wrap(group.label, panel - 4), *group.below]) for group in groups]
        rows = [titles[start : start + columns] for start in range(0, len(titles), columns)]
        heights = [LINE * max(title.count("\n") + 1 for title in row) + 12.0 + line * len(shares) for row in rows]
        handles = [patch(*CATEGORY_PAINTS[name]) for name in used]
        top = legend_height([CATEGORY_PAINTS[name][0] for name in used], width)
        height = top + sum(heights) + 2
        figure = new_figure(height, width)
        for number, group in enumerate(groups):
            row, column = divmod(number, columns)
            low = height - top - sum(heights[: row + 1]) + 8
            axes = place_axes(figure, left + column * panel, low, panel - 8, line * len(shares))
            axes.set_title(titles[number], fontsize=8, loc="left", pad=3)
            last = number + columns >= len(groups)
            _draw_stack(axes, group, list(shares.values()), used, labels if column == 0 else None, named=last)
        legend(figure, handles)
    return figure


def _draw_stack(
    axes: Axes,
    group: BarGroup,
    runs: Sequence[Mapping[str, Mapping[str, float]]],
    used: Sequence[str],
    labels: Sequence[str] | None,
    *,
    named: bool,
) -> None:
    places = np.arange(len(runs))
    starts = np.zeros(len(runs))
    for name in used:
        widths = np.array([100 * run.get(group.key, {}).get(name, 0.0) for run in runs])
        axes.barh(places, widths, 0.74, left=starts, label=name, **CATEGORY_PAINTS[name][1].options)
        starts += widths
    axes.set_xlim(0, 100)
    axes.set_ylim(len(runs) - 0.45, -0.55)
    axes.set_xticks([0, 50, 100])
    axes.set_yticks(places, labels if labels is not None else [""] * len(runs))
    if named:
        axes.set_xlabel("Predictions (%)", labelpad=1)
    plain_axes(axes)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
