"""Implement ``rb.agreement``, which measures inter-reader agreement from a table of ratings of the same cases.

Ratings are categories, as numbers or names. Pairs of readers are compared on the cases that both rated
(:func:`~reveal_bench.metrics.agreement_estimates.estimate_agreement`). Agreement of all readers together is computed by
:func:`~reveal_bench.metrics.reliability_estimates.estimate_reliability`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np

from reveal_bench.api.conversion import rows_of
from reveal_bench.api.result_table import TableResult
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import IntArray
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.agreement_estimates import code_ratings, estimate_agreement
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.estimates import POOLED
from reveal_bench.metrics.intervals import UNDEFINED, Estimate, Resampling, as_record
from reveal_bench.metrics.reliability_estimates import NOMINAL, estimate_reliability
from reveal_bench.words import interval_text, number_text

PAIR_METRICS = tuple(name for name, metric in METRICS.items() if metric.family == "agreement")
"""Agreement metrics of two readers."""
READER_METRICS = tuple(name for name, metric in METRICS.items() if metric.family == "reliability")
"""Agreement metrics of all readers together."""
AGREEMENT_METRICS = PAIR_METRICS + READER_METRICS
COLUMNS = ("reader", "case", "score", "patient", "finding")
"""Columns read. Without `patient`, every case is a different patient; without `finding`, there is one finding."""
_NEED_ORDER = (
    "cohen_kappa_linear",
    "cohen_kappa_quadratic",
    "mean_absolute_difference",
    *(name for name in READER_METRICS if name not in NOMINAL),
)

_WHOLE = re.compile(r"-?\d{1,9}(\.0+)?")
_NO_CATEGORY = re.compile(r"-?\d*\.\d+|nan|na|n/a|null", re.IGNORECASE)
"""Texts that are not categories: missing values and decimal numbers."""

Rating = int | str


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Agreement of two readers over the `n` cases that both rated."""

    reader_a: str
    reader_b: str
    finding: str
    n: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class ReadersAgreement:
    """Agreement of all `n_readers` readers over the `n` cases that the metric uses."""

    n_readers: int
    finding: str
    n: int
    estimate: Estimate


@dataclass(frozen=True, repr=False)
class Agreement(TableResult):
    """Agreement of every pair of readers, or of all readers together.

    Attributes
    ----------
    pairs : agreement of each pair of readers, in the order of the table; with findings, the macro and each finding.
        Empty for metrics of all readers together
    together : agreement of all readers; with findings, the macro and each finding. Empty for metrics of pairs
    metric : name of the metric in `value`
    categories : all possible ratings, in order if they are ordered
    n_cases, n_patients : numbers of cases and patients rated by at least one reader
    """

    pairs: tuple[PairAgreement, ...]
    together: tuple[ReadersAgreement, ...]
    metric: str
    categories: tuple[Rating, ...]
    n_cases: int
    n_patients: int

    @property
    def caption(self) -> str:
        """Metric, number of cases and method of intervals."""
        if self.together:
            readers = f"{self.together[0].n_readers:,} readers together"
        else:
            names = dict.fromkeys(name for pair in self.pairs for name in (pair.reader_a, pair.reader_b))
            readers = f"every two of {len(names):,} readers"
        subject = f"{METRICS[self.metric].title} of {readers}, {self.n_cases:,} cases of "
        subject += f"{self.n_patients:,} patients: 95% intervals by the jackknife over patients"
        has_gap = any(row.estimate.missing_interval for row in self._rows)
        return subject + ("; none if too few patients support a score" if has_gap else "")

    @property
    def _rows(self) -> tuple[PairAgreement | ReadersAgreement, ...]:
        return self.together or self.pairs

    @property
    def records(self) -> list[dict[str, Any]]:
        """One row per pair of readers, or one for all readers; with findings, one per finding each."""
        return [as_record(row) for row in self._rows]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return the rows as text with three decimals."""
        has_findings = any(row.finding != POOLED for row in self._rows)
        return [
            _reader_columns(row)
            | ({"finding": row.finding} if has_findings else {})
            | {
                "n": f"{row.n:,}",
                "value": number_text(row.estimate.value),
                "95% interval": interval_text(row.estimate.low, row.estimate.high),
            }
            for row in self._rows
        ]


def _reader_columns(row: PairAgreement | ReadersAgreement) -> dict[str, str]:
    if isinstance(row, PairAgreement):
        return {"reader": row.reader_a, "and": row.reader_b}
    return {"readers": f"{row.n_readers:,}"}


def agreement(
    table: Any,
    *,
    metric: str = "cohen_kappa",
    categories: Sequence[Rating] | None = None,
    columns: Mapping[str, str] | None = None,
) -> Agreement:
    """Measure inter-reader agreement on the same cases, for every pair of readers or for all readers together.

    Parameters
    ----------
    table : one row per reader and case, with the columns ``reader``, ``case`` and ``score`` (a whole number or a name),
        ``patient`` if a patient has several cases, and ``finding`` if readers rate several findings per case. A path
        (CSV, TSV, XLSX, Parquet, JSON), a DataFrame or a list of mappings
    metric : "cohen_kappa"; for ordered categories also "cohen_kappa_linear", "cohen_kappa_quadratic",
        "mean_absolute_difference"; "gwet_ac1", "percent_agreement". For all readers together: "fleiss_kappa",
        "krippendorff_alpha"; for ordered categories also "krippendorff_alpha_ordinal", "krippendorff_alpha_interval"
        and the intraclass correlations "icc_1_1", "icc_2_1", "icc_3_1" (one reader) and "icc_1_k", "icc_2_k", "icc_3_k"
        (mean over readers)
    categories : all categories in order; by default all whole numbers from the smallest to the largest score, or the
        names that occur, without an order
    columns : one of these column names -> column name in the table

    Raises
    ------
    ArgumentError
        If the table lacks a column, or the metric needs an order that the categories lack.
    """
    if metric not in AGREEMENT_METRICS:
        raise ArgumentError("metric", f"must be one of {', '.join(AGREEMENT_METRICS)}", repr(metric))
    read = _read(rows_of(table, [*COLUMNS, *(columns or {}).values()]), columns or {})
    readers = list(dict.fromkeys(reader for reader, _, _ in read))
    if len(readers) < 2:
        raise ArgumentError("table", "must have at least two readers", ", ".join(readers))
    ratings = [rating for rating, _ in read.values()]
    if any(isinstance(rating, str) for rating in ratings):
        ratings = [str(rating) for rating in ratings]
    known = None if categories is None else [_rating(category, "categories") for category in categories]
    if known is not None and not {*ratings} <= {*known}:
        odd = next(rating for rating in ratings if rating not in known)
        raise ArgumentError("categories", f"must include every score in the table, such as {odd!r}", known)
    codes, _, scale, is_ordered = code_ratings(ratings, [], categories=known)
    if metric in _NEED_ORDER and not is_ordered:
        raise ArgumentError("categories", f"must be given in their order for {metric}", "none")
    code_of = dict(zip(read, codes.tolist(), strict=True))
    patient_of = {key[1:]: patient for key, (_, patient) in read.items()}
    cases, patients = {case for case, _ in patient_of}, set(patient_of.values())
    if metric in READER_METRICS:
        columns_of = [[code_of.get((reader, *place), -1) for reader in readers] for place in patient_of]
        together = _together(metric, np.array(columns_of), patient_of, max(len(scale), 2))
        return Agreement((), tuple(together), metric, tuple(scale), len(cases), len(patients))
    pairs: list[PairAgreement] = []
    for a, b in combinations(readers, 2):
        both = [place for place in patient_of if (a, *place) in code_of and (b, *place) in code_of]
        ours, theirs = ([code_of[reader, *place] for place in both] for reader in (a, b))
        pairs += _of_pair(a, b, metric, ours, theirs, both, [patient_of[place] for place in both], max(len(scale), 2))
    return Agreement(tuple(pairs), (), metric, tuple(scale), len(cases), len(patients))


def _of_pair(
    a: str,
    b: str,
    metric: str,
    ours: Sequence[int],
    theirs: Sequence[int],
    both: Sequence[tuple[str, str]],
    patients: Sequence[str],
    n_categories: int,
) -> list[PairAgreement]:
    """Return a pair's agreement: the macro and each finding; without findings, one row for all cases."""
    if not both:
        return [PairAgreement(a, b, POOLED, 0, UNDEFINED)]
    agreement = estimate_agreement(
        np.array(ours),
        np.array(theirs),
        n_categories=n_categories,
        findings=[finding for _, finding in both],
        patients=patients,
        resampling=Resampling(1),  # the jackknife needs no replicates
    )
    own = [one for one in agreement if one.metric == metric]
    has_findings = any(finding != POOLED for _, finding in both)
    n = len({case for case, _ in both})
    return [
        PairAgreement(a, b, one.finding, n if one.finding == MACRO else one.n + one.n_undefined, one)
        for one in own
        if has_findings or one.finding != MACRO
    ]


def _together(
    metric: str, codes: IntArray, patient_of: Mapping[tuple[str, str], str], n_categories: int
) -> list[ReadersAgreement]:
    """Return all readers' agreement: the macro and each finding; without findings, one row for all cases."""
    estimates = estimate_reliability(
        codes,
        n_categories=n_categories,
        metrics=[metric],
        findings=[finding for _, finding in patient_of],
        patients=list(patient_of.values()),
        resampling=Resampling(1),  # the jackknife needs no replicates
    )
    has_findings = any(finding != POOLED for _, finding in patient_of)
    n_ratings = (codes >= 0).sum(axis=1)
    is_used = n_ratings >= (codes.shape[1] if metric.startswith("icc") else 2)
    n_used = len({case for (case, _), used in zip(patient_of, is_used.tolist(), strict=True) if used})
    return [
        ReadersAgreement(codes.shape[1], one.finding, n_used if one.finding == MACRO else one.n + one.n_undefined, one)
        for one in estimates
        if has_findings or one.finding != MACRO
    ]


def _read(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]
) -> dict[tuple[str, str, str], tuple[Rating, str]]:
    """Return ((reader, case, finding) -> rating, case -> patient)."""
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ArgumentError("columns", f"must name {', '.join(COLUMNS)}", unknown)
    if not rows:
        raise ArgumentError("table", "must contain at least one rating", "none")
    named = {name: columns.get(name, name) for name in COLUMNS}
    needed = [named[name] for name in COLUMNS if name in ("reader", "case", "score") or name in columns]
    missing = [name for name in needed if all(name not in row for row in rows)]
    if missing:
        raise ArgumentError("table", f"must have the columns {', '.join(needed)}", f"no {missing[0]}")
    has = {name for name in COLUMNS if any(named[name] in row for row in rows)}
    read: dict[tuple[str, str, str], tuple[Rating, str]] = {}
    patients: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        fields = {name: row.get(named[name]) for name in has}
        fields = {name: value.strip() if isinstance(value, str) else value for name, value in fields.items()}
        empty = [name for name, value in fields.items() if value is None or not str(value).strip()]
        if empty:
            raise ArgumentError("table", f"must have a `{named[empty[0]]}` in row {number}", "none")
        case, patient = str(fields["case"]), str(fields.get("patient", fields["case"]))
        if patients.setdefault(case, patient) != patient:
            rule = (
                f"must give each case one patient, but row {number} gives case {case!r} another than {patients[case]!r}"
            )
            raise ArgumentError("table", rule, repr(patient))
        key = str(fields["reader"]), case, str(fields.get("finding", POOLED))
        if key in read:
            raise ArgumentError("table", f"must have each rating once, but row {number} repeats one", key)
        read[key] = _rating(fields["score"], f"table[{number}].{named['score']}"), patient
    return read


def _rating(value: Any, name: str) -> Rating:
    """Return a rating as a whole number (also if it is written as text) or as a name."""
    if isinstance(value, str):
        text = value.strip()
        if _WHOLE.fullmatch(text):
            return int(float(text))
        if not _NO_CATEGORY.fullmatch(text):
            return text
    if isinstance(value, Real | np.bool_) and float(value).is_integer():
        return int(float(value))
    raise ArgumentError(name, "must be a category, a whole number or a name; omit rows of unrated cases", repr(value))
