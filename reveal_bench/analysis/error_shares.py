"""How often each kind of error is made: shares of the categories, with intervals (paper 000, sections 3.4 and 4.2).

Paper 000 reviewed at most 50 misses of a model and pathology, and estimated the shares of position and anatomy errors
from these. The categories are those of :mod:`reveal_bench.analysis.errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reveal_bench.analysis.anatomy import FloatArray
from reveal_bench.analysis.errors import CATEGORIES, MISSES, CaseError, reading_order
from reveal_bench.metrics.bootstrap import MACRO, resampling_counts
from reveal_bench.metrics.intervals import find_intervals, mean_of_defined

__all__ = ["Share", "shares"]


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one category among the cases of a finding, with its evidence.

    Attributes
    ----------
    finding : finding, or "macro" for the unweighted mean over findings
    category : one of :data:`CATEGORIES`
    value, low, high, sd : float in [0, 1]
        On the data; the ends of the 95 % interval and the standard deviation of the replicates. NaN where undefined.
    n : int
        Cases; for a macro, findings in which the share is defined.
    n_misses, n_reviewed : int
        Cases without overlap, and those of them of which is known (by a reader or the anatomy) what error they are.
    """

    finding: str
    category: str
    value: float
    low: float
    high: float
    sd: float
    n: int
    n_misses: int
    n_reviewed: int


def shares(
    case_errors: Sequence[CaseError],
    *,
    findings: Sequence[str] | None = None,
    max_reviewed: int = 50,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Share]:
    """Share of every category per finding, and their unweighted mean over findings (paper 000, sections 3.4 and 4.2).

    Where readers judged some of a finding's misses and others are not judged, these are divided as those that readers
    judged: at most `max_reviewed`, the first by :func:`reading_order`, so that those that were read for another model
    do not weigh more. What the anatomy decided counts as it is and stands for nothing else. Where readers judged none,
    the undecided stay ``miss_unreviewed``; if nothing at all is decided of a finding's misses, its shares of position
    and anatomy errors are undefined, not 0.

    Intervals are percentiles over replicates in which patients are resampled and the division is made anew; a
    replicate without any judged miss is left out. The shares of a finding that are defined sum to 1; so do those of
    the macro if they are defined in the same findings.

    Parameters
    ----------
    case_errors : of one set of predictions, from :func:`categorize`
    findings : those to report, in order; by default those that have cases, in order of appearance
    max_reviewed : at least 1; how many misses of a finding a reader was given (50 in the paper)
    seed : of the resampling, and of the order in which misses are read: give :func:`.misses.write_misses` the same

    Returns
    -------
    list of Share: the macro's categories first, then those of each finding; in the order of :data:`CATEGORIES`

    Raises
    ------
    ValueError
        If `max_reviewed` or `n_resamples` is below 1.
    """
    if max_reviewed < 1:
        raise ValueError(f"`max_reviewed` must be at least 1, got {max_reviewed}")
    names = list(dict.fromkeys(case.finding for case in case_errors) if findings is None else findings)
    units = sorted({*getattr(case_errors, "patients", ()), *(case.patient_id for case in case_errors)}) or [""]
    tally = _tally(case_errors, names, units, max_reviewed, seed)
    counts = resampling_counts(len(units), n_resamples=n_resamples, seed=seed)
    # Whole numbers far below 2**24: exact in single precision
    drawn = (counts @ tally.reshape(len(units), -1)).astype(np.float64).reshape(n_resamples, *tally.shape[1:])
    data = tally.sum(axis=0, dtype=np.float64)
    _, _, _, _, known_p, known_a, rest, read_p, read_a = data.T
    is_read = read_p + read_a > 0
    values, replicates = _divide(data, is_read), _divide(drawn, is_read)
    is_dark = (rest > 0) & ~is_read & (known_p + known_a == 0)
    for part in (values, replicates):
        part[..., is_dark, CATEGORIES.index("position")] = part[..., is_dark, CATEGORIES.index("anatomy")] = np.nan
    n_misses, n_reviewed = known_p + known_a + rest, known_p + known_a + read_p + read_a
    n_defined = (~np.isnan(values)).sum(axis=0)
    macro = _figures(mean_of_defined(values.T), mean_of_defined(replicates.swapaxes(1, 2)))
    rows = [
        Share(MACRO, category, *macro[i], int(n_defined[i]), int(n_misses.sum()), int(n_reviewed.sum()))
        for i, category in enumerate(CATEGORIES)
    ]
    for k, name in enumerate(names):
        evidence = int(data[k, 0]), int(n_misses[k]), int(n_reviewed[k])
        figures = _figures(values[k], replicates[:, k])
        rows += [Share(name, category, *figures[i], *evidence) for i, category in enumerate(CATEGORIES)]
    return rows


_COLUMNS = 9
"""Of a tally: cases; full hits, partial hits, no answer; by the anatomy position, anatomy; misses it does not decide;
of these by readers position, anatomy."""


def _tally(
    case_errors: Sequence[CaseError], names: Sequence[str], units: Sequence[str], max_reviewed: int, seed: int
) -> npt.NDArray[np.float32]:
    """Counts (n_units, n_findings, :data:`_COLUMNS`); whole numbers."""
    tally = np.zeros((len(units), len(names), _COLUMNS), np.float32)
    unit_code = {unit: i for i, unit in enumerate(units)}
    plain = {"full_hit": 1, "partial_hit": 2, "no_answer": 3}
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
    """Shares (..., n_findings, n categories) of sums of tallies; NaN without cases, or if none of the read is drawn."""
    n, full, partial, none, known_p, known_a, rest, read_p, read_a = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_read = np.where(is_read & (rest > 0), rest / (read_p + read_a), 0.0)
        position, anatomy = known_p + per_read * read_p, known_a + per_read * read_a
        parts = np.stack([full, partial, position, anatomy, np.where(is_read, 0.0, rest), none], axis=-1)
        divided: FloatArray = parts / n[..., None]
    return divided


def _figures(values: FloatArray, replicates: FloatArray) -> list[tuple[float, float, float, float]]:
    """Value, low, high and standard deviation per column."""
    found = find_intervals(values, replicates)
    defined = [column[~np.isnan(column)] for column in replicates.T]
    spread = [float(column.std(ddof=1)) if len(column) > 1 else float("nan") for column in defined]
    return list(zip(values.tolist(), found.low.tolist(), found.high.tolist(), spread, strict=True))
