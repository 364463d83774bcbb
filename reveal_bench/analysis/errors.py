"""What every prediction is: full hit, partial hit, position error or anatomy error (paper 000, section 3.4).

Conventions
-----------
A case is a pair of an image and a finding that the split draws (:func:`~reveal_bench.cases.list_cases`). What becomes
the cell of a prediction is scoring's rule (:mod:`reveal_bench.scoring`); of several points' cells the one that the
reference covers most stands for the prediction, so that a case is a full hit exactly where `grid_hit` is 1.

==================  ====================================================================================================
``full_hit``        `grid_hit` is 1
``partial_hit``     no hit, but the reference covers some of the cell
``position``        no overlap; the finding could be there
``anatomy``         no overlap; anatomy rules the finding out there
``miss_unreviewed`` no overlap, and nobody and nothing told which of the two it is; also a point outside the central
                    square, which has no cell that could be judged
``no_answer``       no prediction, or an empty mask: kept, for an absent answer is a miss
==================  ====================================================================================================

Without overlap a reader's answer decides (paper 000: a radiologist), else the image's anatomy where it is known
(:mod:`reveal_bench.analysis.anatomy`). Left out and counted: laterals (paper 000 reviews frontal radiographs alone;
a view that the source does not name counts as frontal), and cases in which `grid_hit` is undefined because the
reference lies wholly outside the central square.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from reveal_bench.analysis.anatomy import (
    MIN_SHARE,
    PLAUSIBLE,
    FloatArray,
    Regions,
    check_share,
    is_enough,
    plausible_shares,
)
from reveal_bench.boxes import pack_regions
from reveal_bench.cases import Reference, list_cases
from reveal_bench.geometry import Grid
from reveal_bench.metrics.localization import cell_coverage, hit_cells
from reveal_bench.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.scoring import cells_of, points_of

__all__ = [
    "CATEGORIES",
    "MISSES",
    "CaseError",
    "CaseErrors",
    "ReviewKey",
    "Reviews",
    "categorize",
    "reading_order",
]

CATEGORIES = ("full_hit", "partial_hit", "position", "anatomy", "miss_unreviewed", "no_answer")

MISSES = ("position", "anatomy", "miss_unreviewed")
"""Categories of a cell that the reference does not touch."""

ReviewKey = tuple[str, str, int, str]
"""What a reader judged: image_id, finding, cells per side, and the cell; whoever named it."""
Reviews = Mapping[ReviewKey, str]
"""Judged miss -> "position" or "anatomy"."""


@dataclass(frozen=True, slots=True)
class CaseError:
    """One case with its category.

    Attributes
    ----------
    category : one of :data:`CATEGORIES`
    cell : what stands for the prediction; None without an answer, and outside the central square
    coverage : share of the cell that the reference covers, in [0, 1]; 0 without a cell
    source : {"overlap", "reader", "anatomy", "none"}
        What decided: the reference alone, a reader, the known anatomy, or nothing yet.
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
    """The cases of one set of predictions, and what was left out.

    Attributes
    ----------
    grid : cells per side
    patients : every patient of the images looked at, with cases or without: the units that are resampled
    n_lateral, n_undefined : cases left out
    """

    def __init__(self, cases: Iterable[CaseError] = (), *, grid: int, patients: Sequence[str] = ()) -> None:
        super().__init__(cases)
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
    """The category of every case, in the order of the records.

    Parameters
    ----------
    predictions : at most one per (image, finding); those for pairs without a case are ignored
    records : references; ground truth only is used
    grid : cells per side
    anatomy : known regions by image (:func:`~reveal_bench.analysis.anatomy.read_anatomy`)
    reviews : readers' answers (:func:`~reveal_bench.analysis.misses.read_reviews`)
    frontal_only : leave laterals out
    min_share : least share of a cell in a plausible structure, see :data:`~reveal_bench.analysis.anatomy.MIN_SHARE`

    Raises
    ------
    ValueError
        If a pair is predicted twice, an image is listed twice, a review is neither "position" nor "anatomy", or an
        anatomy is of another size than its image.
    """
    check_share(min_share)
    judge = _Judge(Grid(grid), anatomy or {}, reviews or {}, min_share)
    by_pair: dict[tuple[str, str], LocalizationPrediction] = {}
    for prediction in predictions:
        pair = (prediction.image_id, prediction.finding)
        if pair in by_pair:
            raise ValueError(f"`predictions` must name each (image, finding) once, got {pair} twice")
        by_pair[pair] = prediction
    looked_at = {record.patient_id for record in records if not (frontal_only and record.view == "LATERAL")}
    found = CaseErrors(grid=grid, patients=sorted(looked_at))
    for record, finding, reference in list_cases(records):
        if frontal_only and record.view == "LATERAL":
            found.n_lateral += 1
            continue
        case = judge.case(record, finding, reference, by_pair.get((record.image_id, finding)))
        if case is None:
            found.n_undefined += 1
        else:
            found.append(case)
    return found


class _Judge:
    """What there is to decide by: the reference, then a reader's answer, then the anatomy."""

    def __init__(self, grid: Grid, anatomy: Mapping[str, Regions], reviews: Reviews, min_share: float) -> None:
        for key, answer in reviews.items():
            if answer not in ("position", "anatomy"):
                raise ValueError(f"`reviews[{key}]` must be 'position' or 'anatomy', got {answer!r}")
        self.grid, self._anatomy, self._reviews, self._min_share = grid, anatomy, reviews, min_share

    def case(
        self, record: LocalizationRecord, finding: str, reference: Reference, prediction: LocalizationPrediction | None
    ) -> CaseError | None:
        """One case; None where the reference lies wholly outside the central square."""
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
            category, source = "miss_unreviewed", "none"
        elif coverage > 0:
            is_hit = hit_cells(regions, self.grid)[0][self._place(cell)]
            category, source = ("full_hit" if is_hit else "partial_hit"), "overlap"
        else:
            category, source = self._decide(record, finding, cell)
        return CaseError(record.image_id, record.patient_id, finding, record.view, category, cell, coverage, source)

    def _place(self, cell: str) -> tuple[int, int]:
        """Row and column."""
        column, row = self.grid.parse(cell)
        return row, column

    def _decide(self, record: LocalizationRecord, finding: str, cell: str) -> tuple[str, str]:
        """Category and source of a cell without overlap."""
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
                f"`anatomy[{record.image_id!r}]` must be of the image's size {list(record.size)} [height, width], "
                f"got {list(regions.size)}"
            )
        return plausible_shares(regions, structures, self.grid)


def reading_order(case: CaseError, seed: int) -> bytes:
    """What misses are sorted by to draw those that are read: at random, but the same for every model.

    So misses that models have in common are read once, and each model's first ones are still a random sample of its
    own.
    """
    return sha256(f"{seed}\0{case.image_id}\0{case.finding}\0{case.cell}".encode()).digest()
