"""Parse a reader study's table of ratings, and compute figures of merit with the covariance of their errors.

Conventions
-----------
A rating is one reader's score of one case with one modality: a confidence (larger is more confident), or 0 or 1. The
truth of a case is 0 or 1. A study is fully crossed: every reader reads every case with every modality, once. With
`partly_crossed`, readers may read different cases, but each reader must read the same cases with every modality; a
figure of merit then covers the cases that the reader read. The errors of figures come from the sample of cases; the
jackknife over patients estimates the errors' covariance. A patient may have several cases, and readers without a common
patient have a covariance of 0.

================  ====================================================================================================
figure of merit   of one reader and modality
================  ====================================================================================================
``auc``           area under the empirical ROC curve: the proportion of pairs of a positive and a negative case in which
                  the positive one has the higher score, ties counting half
``lroc``          area under the empirical LROC curve: the same proportion, in which a positive case whose finding the
                  reader did not locate never has the higher score
``sensitivity``   proportion of the positive cases that were called 1
``specificity``   proportion of the negative cases that were called 0
``accuracy``      proportion of all cases that were called correctly
``kappa``         Cohen's kappa of the reader and the truth
``hit_rate``      mean of the scores, which are 0 or 1; the truth is not used
================  ====================================================================================================

:func:`beside_readers` compares a system with readers: the system becomes a second modality, in which every reader has
the system's ratings. Analysing this study gives the same interval and p as analysing the readers' differences from the
system, because the system's ratings do not vary between readers.

If readers are nested in modalities (split plot), each reader reads with one modality; the other figures are NaN.

The same formulas apply to readers of different cases, because a mean figure needs the mean covariance of all pairs of
readers, including zeros (marginal means, Hillis 2014).

Source: Hillis, Berbaum and Metz (2008), Academic Radiology 15; Hanley and McNeil (1982), Radiology 143; Hillis (2014),
Statistics in Medicine 33; Chakraborty (2017), Observer Performance Methods for Diagnostic Imaging, chapter 22.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray

COLUMNS = {"reader": "reader", "case": "case", "modality": "modality", "score": "score", "truth": "truth",
           "patient": "patient", "located": "located"}  # fmt: skip
"""Field -> default name of its column; `modality`, `truth`, `patient` and `located` are optional."""
_MOST_NAMED = 10
Key = tuple[str, str, str]
"""Modality, reader and case of a reading."""


@dataclass(frozen=True)
class ReaderStudy:
    """The ratings of a reader study, as arrays.

    Attributes
    ----------
    modalities, readers, cases : names, in order of appearance
    scores : float array (n_modalities, n_readers, n_cases), NaN where a reader did not read a case
    truth : int array (n_cases,), 0 or 1; all -1 if the table has no such column
    patients : int array (n_cases,), code of each case's patient
    located : bool array of the shape of `scores`, True if the reader located the finding of a positive case; None
        without such a column
    """

    modalities: tuple[str, ...]
    readers: tuple[str, ...]
    cases: tuple[str, ...]
    scores: FloatArray
    truth: IntArray
    patients: IntArray
    located: BoolArray | None = None


def read_study(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str] | None = None,
    *,
    partly_crossed: bool = False,
    nested: bool = False,
) -> ReaderStudy:
    """Parse a long table: a row per reader, case and modality.

    Parameters
    ----------
    rows : rows with the columns of :data:`COLUMNS`. Without a column of modalities there is one modality; without a
        column of patients every case is another patient. A column that is blank in every row counts as absent.
        `located` may be blank where `truth` is 0; every other column must have a value in every row
    columns : field in :data:`COLUMNS` -> name of the column in the table
    partly_crossed : allow readers to have read different cases
    nested : True if each reader read with only one modality

    Raises
    ------
    ValueError
        If a column is missing or blank in some rows, a score or truth is not a number, a case has two truths or
        patients, or a rating is duplicated or missing; the message names the first such problem.
    """
    named = {**COLUMNS, **_checked(columns or {})}
    if not rows:
        raise ArgumentError("rows", "must have a reading", "none")
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if not _is_blank(value)))
    needed = [named[name] for name in ("reader", "case", "score")] + [*(columns or {}).values()]
    missing = [name for name in needed if name not in names]
    if missing:
        name_list = ", ".join(map(str, names[:_MOST_NAMED]))
        column_list = ", ".join(dict.fromkeys(needed))
        raise ArgumentError("rows", f"must have the columns {column_list}", f"no {missing[0]} among {name_list}")
    for field in ("reader", "case", "modality", "truth", "patient"):
        if named[field] in names:
            _refuse_blanks(enumerate(rows, start=1), named[field])
    places: dict[Key, int] = {}
    truth: dict[str, int] = {}
    patients: dict[str, str] = {}
    scores: dict[Key, float] = {}
    for number, row in enumerate(rows, start=1):
        modality, reader, case, patient = (
            str(row[named[name]]) if named[name] in names else None
            for name in ("modality", "reader", "case", "patient")
        )
        assert reader is not None
        assert case is not None
        key = modality or "all", reader, case
        if key in places:
            hint = "" if modality else f", and no column `{named['modality']}` names the modalities"
            rule = f"must have each reading once, but row {number} repeats row {places[key]}{hint}"
            raise ArgumentError("rows", rule, key)
        places[key] = number
        scores[key] = _score(row.get(named["score"]), number)
        if named["truth"] in names:
            _same(truth, case, _zero_or_one(row.get(named["truth"]), "truth", number), "truth", number)
        _same(patients, case, patient or case, "patient", number)
    study = _crossed(scores, truth, patients, partly_crossed, nested)
    if named["located"] not in names:
        return study
    located = _located(rows, places, truth, named["located"])
    is_located = [[[(m, r, c) in located for c in study.cases] for r in study.readers] for m in study.modalities]
    return replace(study, located=np.array(is_located))


def _located(
    rows: Sequence[Mapping[str, Any]], places: Mapping[Key, int], truth: Mapping[str, int], name: str
) -> set[Key]:
    """Return the readings of positive cases in which the reader located the finding; only these need a value."""
    positive = {key: number for key, number in places.items() if truth.get(key[2]) == 1}
    _refuse_blanks(((number, rows[number - 1]) for number in positive.values()), name, "row with truth 1")
    return {key for key, number in positive.items() if _zero_or_one(rows[number - 1][name], "located", number)}


def _checked(columns: Mapping[str, str]) -> Mapping[str, str]:
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ArgumentError("columns", f"must name {', '.join(COLUMNS)}", unknown)
    return columns


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, Real) and math.isnan(value)) or not str(value).strip()


def _refuse_blanks(numbered: Iterable[tuple[int, Mapping[str, Any]]], name: str, which: str = "row") -> None:
    """Raise ArgumentError if the column `name` is blank in some rows; it names these rows."""
    blank = [number for number, row in numbered if _is_blank(row.get(name))]
    if blank:
        n_more = len(blank) - _MOST_NAMED
        numbers = ", ".join(map(str, blank[:_MOST_NAMED])) + (f" and {n_more:,} more" if n_more > 0 else "")
        plural = "s" if len(blank) > 1 else ""
        raise ArgumentError("rows", f"must have a `{name}` in every {which}", f"none in row{plural} {numbers}")


def _score(value: Any, number: int) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise ArgumentError("rows", f"must have a number as `score`, in row {number}", repr(value))
    return score


def _zero_or_one(value: Any, what: str, number: int) -> int:
    text = str(value).strip().lower()
    known = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
    if text not in known:
        raise ArgumentError("rows", f"must have 0 or 1 as `{what}`, in row {number}", repr(value))
    return known[text]


def _same(known: dict[str, Any], case: str, value: Any, what: str, number: int) -> None:
    if known.setdefault(case, value) != value:
        rule = (
            f"must give each case one {what}, but row {number} contradicts the earlier {known[case]!r} of case {case!r}"
        )
        raise ArgumentError("rows", rule, repr(value))


def _crossed(
    scores: Mapping[Key, float],
    truth: Mapping[str, int],
    patients: Mapping[str, str],
    partly_crossed: bool,
    nested: bool,
) -> ReaderStudy:
    modalities, readers, cases = (tuple(dict.fromkeys(key[i] for key in scores)) for i in range(3))
    modality_of = _modality_of(scores)
    if nested and (len(modality_of) < len(readers) or len(modalities) < 2):
        names = ", ".join(r for r in readers if r not in modality_of) or "one modality"
        raise ArgumentError("nested", "needs several modalities and readers who read with one of them", names)
    if not nested and len(modality_of) == len(readers) and len(modalities) > 1:
        rule = "must have every reader with every modality, or `nested` must be set"
        raise ArgumentError("rows", rule, "one modality for each reader", ("nested",))
    read = {key[1:] for key in scores} if partly_crossed else {(r, c) for r in readers for c in cases}
    expected = [(m, r, c) for m in modalities for r, c in sorted(read) if not nested or modality_of[r] == m]
    missing = [key for key in expected if key not in scores]
    if missing:
        m, r, c = missing[0]
        place = f"none of case {c!r} by reader {r!r} with modality {m!r}"
        of = f"{len(missing):,} of {len(expected):,} readings are missing"
        if partly_crossed:
            rule = f"must have the same cases of a reader with every modality; {of}"
            raise ArgumentError("rows", rule, place)
        rule = f"must have every case by every reader with every modality, or `partly_crossed` must be set; {of}"
        raise ArgumentError("rows", rule, place, ("partly_crossed",))
    code = {name: i for i, name in enumerate(dict.fromkeys(patients[case] for case in cases))}
    table = [[[scores.get((m, r, c), math.nan) for c in cases] for r in readers] for m in modalities]
    return ReaderStudy(
        modalities, readers, cases, np.array(table),
        np.array([truth.get(case, -1) for case in cases]), np.array([code[patients[case]] for case in cases]),
    )  # fmt: skip


def _modality_of(readings: Iterable[Key]) -> dict[str, str]:
    """Return reader -> modality, of the readers who read with only one."""
    modalities: dict[str, set[str]] = {}
    for modality, reader, _ in readings:
        modalities.setdefault(reader, set()).add(modality)
    return {reader: min(own) for reader, own in modalities.items() if len(own) == 1}


def beside_readers(study: ReaderStudy, system: str) -> ReaderStudy:
    """Return a study of two modalities: `system`, one of the study's readers, and all other readers.

    Raises
    ------
    ValueError
        If `system` is not a reader or is the only reader, or if the readers read with several modalities.
    """
    if system not in study.readers:
        raise ArgumentError("system", f"must be one of the readers {', '.join(study.readers)}", repr(system))
    if len(study.modalities) > 1:
        rule = "must be one of the readers of a table with one modality"
        raise ArgumentError("system", rule, f"{len(study.modalities)} modalities: {', '.join(study.modalities)}")
    at = study.readers.index(system)
    others = np.delete(study.scores[0], at, axis=0)
    if not len(others):
        raise ArgumentError("system", "must be compared with at least one other reader", f"{system!r} alone")
    # The system's ratings of the cases that each other reader read.
    of_system = np.where(np.isnan(others), math.nan, study.scores[0, at])
    unread = np.flatnonzero((np.isnan(of_system) & ~np.isnan(others)).any(axis=0))
    if len(unread):
        rule = f"must have read every case that another reader read, but {len(unread):,} are missing"
        raise ArgumentError("system", rule, f"no reading of case {study.cases[unread[0]]!r} by {system!r}")
    scores, located = np.stack([of_system, others]), study.located
    if located is not None:
        of_others = np.delete(located[0], at, axis=0)
        located = np.stack([np.broadcast_to(located[0, at], of_others.shape), of_others])
    readers = study.readers[:at] + study.readers[at + 1 :]
    return replace(study, modalities=(system, "readers"), readers=readers, scores=scores, located=located)


@dataclass(frozen=True, slots=True)
class TwoValuedReadings:
    """Readers with at most two different scores, in a study in which `others` have more.

    Attributes
    ----------
    readers, others : names, with the modality if the study has several
    specificity : mean proportion of negative cases with the lower score; NaN without a truth
    """

    readers: tuple[str, ...]
    others: tuple[str, ...]
    specificity: float


def two_valued_readings(study: ReaderStudy) -> TwoValuedReadings | None:
    """Return the readers whose ROC curves have a single point, or None unless other readers gave more than two scores.

    Such a curve is two straight lines, and its area is (sensitivity + specificity) / 2. It is below the area of the
    ratings from which the reader decided, so it should not be compared with areas of scores.
    """
    names: dict[bool, list[str]] = {True: [], False: []}
    rates = []
    for i, modality in enumerate(study.modalities):
        for j, reader in enumerate(study.readers):
            scores = study.scores[i, j]
            levels = np.unique(scores[~np.isnan(scores)])
            if not len(levels):  # a reader nested in another modality
                continue
            names[len(levels) <= 2].append(f"{reader} with {modality}" if len(study.modalities) > 1 else reader)
            negative = (study.truth == 0) & ~np.isnan(scores)
            if len(levels) == 2 and negative.any():
                rates.append(float((scores[negative] == levels[0]).mean()))
    if not names[True] or not names[False]:
        return None
    return TwoValuedReadings(tuple(names[True]), tuple(names[False]), float(np.mean(rates)) if rates else math.nan)


def figures_of(study: ReaderStudy, merit: str) -> tuple[FloatArray, FloatArray]:
    """Return figures of merit (n_modalities, n_readers), and the covariance of their errors over modality x reader.

    The figure of a reader who did not read with a modality is NaN, and its covariances are 0.

    Raises
    ------
    ValueError
        If the figure of merit is unknown, needs a truth or scores of 0 and 1, is undefined, or would be undefined
        without one of the patients.
    """
    if merit not in FIGURES:
        raise ArgumentError("merit", f"must be one of {', '.join(FIGURES)}", repr(merit))
    if merit != "hit_rate" and (study.truth < 0).any():
        raise ArgumentError("truth", f"must be a column of the table for {merit}", "none")
    scores = study.scores
    if merit == "lroc":
        if study.located is None:
            raise ArgumentError("located", f"must be a column of the table for {merit}", "none")
        scores = np.where((study.truth == 1) & ~study.located & ~np.isnan(scores), -math.inf, scores)
    defined = scores[~np.isnan(scores)]
    if merit not in ("auc", "lroc") and not np.isin(defined, (0, 1)).all():
        odd = defined[~np.isin(defined, (0, 1))][0]
        raise ArgumentError("score", f"must be 0 or 1 for {merit}", f"{odd:g}")
    t, r, _ = scores.shape
    n_patients = int(study.patients.max()) + 1
    if n_patients < 2:
        raise ArgumentError("rows", "must have at least two patients", n_patients)
    values, left_out = np.full((t, r), np.nan), np.zeros((n_patients, t * r))
    is_read = ~np.isnan(scores)
    for i, j in np.argwhere(is_read.any(axis=2)):
        read = is_read[i, j]
        own = scores[i, j, read], study.truth[read], study.patients[read]
        values[i, j], left_out[:, i * r + j] = FIGURES[merit](*own, n_patients)
    if np.isnan(values[is_read.any(axis=2)]).any() or np.isnan(left_out).any():
        rule = f"must define {merit} even without any single patient: each reader needs positive and negative cases"
        raise ArgumentError("rows", rule, f"{int((study.truth == 1).sum())} positive cases")
    deviations = left_out - left_out.mean(axis=0)
    return values, (n_patients - 1) / n_patients * deviations.T @ deviations


Figure = Callable[[FloatArray, IntArray, IntArray, int], tuple[float, FloatArray]]


def _auc(scores: FloatArray, truth: IntArray, patients: IntArray, n_patients: int) -> tuple[float, FloatArray]:
    """Return the area, and the areas without each patient, from which the patient's pairs are subtracted."""
    with_, without = np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    n_with, n_without = (np.bincount(patients[part], minlength=n_patients) for part in (with_, without))
    ranked = np.sort(scores[without]), np.sort(scores[with_])
    won = (np.searchsorted(ranked[0], scores[with_], "left") + np.searchsorted(ranked[0], scores[with_], "right")) / 2
    lost = (
        len(with_)
        - (np.searchsorted(ranked[1], scores[without], "left") + np.searchsorted(ranked[1], scores[without], "right"))
        / 2
    )
    of_patient = np.bincount(patients[with_], won, n_patients) + np.bincount(patients[without], lost, n_patients)
    for patient in np.flatnonzero((n_with > 0) & (n_without > 0)):  # subtract pairs within a patient only once
        a, b = (scores[part[patients[part] == patient]] for part in (with_, without))
        of_patient[patient] -= (a[:, None] > b).sum() + (a[:, None] == b).sum() / 2
    pairs = (len(with_) - n_with) * (len(without) - n_without)
    left_out = np.divide(won.sum() - of_patient, pairs, out=np.full(n_patients, np.nan), where=pairs > 0)
    area = float(won.sum() / (len(with_) * len(without))) if len(with_) and len(without) else math.nan
    return area, left_out


def _of_counts(statistic: Callable[[FloatArray], FloatArray]) -> Figure:
    """Return a figure of merit computed by `statistic` from counts (..., called, true)."""

    def figure(scores: FloatArray, truth: IntArray, patients: IntArray, n_patients: int) -> tuple[float, FloatArray]:
        place = 4 * patients + 2 * scores.astype(np.int64) + np.maximum(truth, 0)
        counts = np.bincount(place, minlength=4 * n_patients).reshape(n_patients, 2, 2).astype(np.float64)
        total = counts.sum(axis=0)
        return float(statistic(total)), statistic(total - counts)

    return figure


def _share(part: FloatArray, of: FloatArray) -> FloatArray:
    share: FloatArray = np.divide(part, of, out=np.full(np.shape(part), np.nan), where=np.asarray(of) > 0)
    return share


def _kappa(counts: FloatArray) -> FloatArray:
    n = counts.sum(axis=(-2, -1))
    agreed = _share(counts[..., 0, 0] + counts[..., 1, 1], n)
    called, true = (_share(counts.sum(axis=axis), n[..., None]) for axis in (-1, -2))
    expected = (called * true).sum(axis=-1)
    return _share(agreed - expected, 1 - expected)


FIGURES: dict[str, Figure] = {
    "auc": _auc,
    "lroc": _auc,  # `figures_of` sets scores of unlocated findings to minus infinity
    "sensitivity": _of_counts(lambda c: _share(c[..., 1, 1], c[..., :, 1].sum(axis=-1))),
    "specificity": _of_counts(lambda c: _share(c[..., 0, 0], c[..., :, 0].sum(axis=-1))),
    "accuracy": _of_counts(lambda c: _share(c[..., 0, 0] + c[..., 1, 1], c.sum(axis=(-2, -1)))),
    "kappa": _of_counts(_kappa),
    "hit_rate": _of_counts(lambda c: _share(c[..., 1, :].sum(axis=-1), c.sum(axis=(-2, -1)))),
}
"""Figure of merit -> function that returns its value, and its values without each patient."""
