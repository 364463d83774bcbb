"""Places and paired differences of systems on one holdout, reduced to what may be shown.

Conventions
-----------
Everything here is of the rows of one version and part of a holdout, all systems in the same replicates of the patients.
What enters is what :mod:`reveal_leaderboard.release` shows: its findings, its metrics. What leaves are letters, whole
ranks, and numbers rounded as released figures are.

Places. Two systems are *told apart* by a joint test of all pairs: their difference of macros exceeds its bootstrap
spread by more than the largest such excess of any pair does in 95 % of the replicates, and by somewhat more where
patients are few. A system's rank lies between 1 + those told apart as better and the number of all less those told
apart as worse; with 95 % confidence that is right for all systems at once. The percentiles of bootstrapped ranks would
be narrower and are not used: among near-equal systems they miss the true rank too often. A *tier* is a run of systems
of which no two are told apart, from the best downwards; its members share a place and the union of their intervals, so
that no order inside a tier is claimed.

Differences. A difference is that of the two released figures, never a finer one: the exact differences from many others
would give away the exact figure. Systems whose answers differ in fewer than :data:`FEWEST_DIFFERING` cases are not
compared: the interval of a difference made by one case says whether that case is a hit.

Only rows whose own figures are released may be passed in: not those that the ladder holds back.

Source: joint rank intervals from all pairs as in Al Mohamad, Goeman and van Zwet (2022, Biometrics 78) and Mogstad,
Romano, Shaikh and Wilhelm (2024, Review of Economic Studies 91); percentile ranks fail at ties: Hall and Miller (2009,
Annals of Statistics 37).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.comparison import ALPHA, Comparison, Resampled, compare, holm, side_by_side
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.scoring import CaseRows, resample_systems
from reveal_bench.study_comparison import compare_studies, resample_studies
from reveal_bench.study_scoring import StudyRows
from reveal_leaderboard.release import PRIMARY, ReleasedScore, ReleasePolicy, release, release_studies

__all__ = ["FEWEST_DIFFERING", "Rows", "compare_document", "rank_document"]

Rows = CaseRows | StudyRows
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

FEWEST_DIFFERING = 10
COMPARE_RESAMPLES = 10_000
"""At least: with fewer, no p could be small enough after the correction for some dozens of rows."""

_SAME = 1e-12
_PRODUCTS = 1 << 22  # pairs x replicates at a time: some 32 MB


def rank_document(systems: Mapping[str, Rows], policy: ReleasePolicy) -> dict[str, Any]:
    """Place every system by the macro of the primary metric.

    Parameters
    ----------
    systems : submission id -> rows, all of one kind and scored on the same cases
    policy : which findings are shown, and the replicates

    Returns
    -------
    dict of plain JSON values
        ``entries`` has, per id, ``rank`` (that of its tier), ``rank_low``, ``rank_high`` and ``tier`` ("A" is best);
        an id of ``computed_for`` that is not in it has no released primary figure and is not placed.

    Raises
    ------
    ValueError
        If kinds differ, or the systems were scored on different cases.
    """
    kind = _kind(list(systems.values()))
    systems = {name: _true_cases(systems[name]) for name in sorted(systems)}
    metric = PRIMARY[kind]
    document: dict[str, Any] = {
        "schema": 1,
        "metric": metric,
        "n_resamples": policy.n_resamples,
        "seed": policy.seed,
        "findings": [],
        "entries": {},
        "computed_for": sorted(systems),
    }
    placed = {name: rows for name, rows in systems.items() if _has(rows, metric)}
    if not placed:
        return document
    score = _release(next(iter(placed.values())), policy)
    if score.figure(metric) is None:
        return document
    values, replicates = side_by_side(_resample(list(placed.values()), metric, score.shown, policy))
    values, macros = values[:, 0], replicates[:, :, 0]
    if METRICS[metric].better == "lower":
        values, macros = -values, -macros
    is_tested = _differing(list(placed.values()), metric, score.shown) >= FEWEST_DIFFERING
    apart = _told_apart(values, macros, is_tested, _n_patients(next(iter(placed.values()))))
    places = _places(values, apart)
    return document | {"findings": list(score.shown), "entries": dict(zip(placed, places, strict=True))}


def compare_document(a: Rows, b: Rows, policy: ReleasePolicy, *, ids: tuple[str, str] = ("a", "b")) -> dict[str, Any]:
    """Paired differences ``a - b`` of all figures that are released of both.

    Parameters
    ----------
    a, b : rows of one kind, scored on the same cases
    policy : what is shown, and the seed
    ids : their submission ids

    Returns
    -------
    dict of plain JSON values
        ``rows`` has, per metric, the macro and then the findings: the released figures ``a`` and ``b``, their
        difference ``value``, the ends of its 95 % interval rounded outwards (None where too few cases differ) and
        ``told_apart``: whether Holm's correction over all rows of the document leaves it.

    Raises
    ------
    ValueError
        If kinds differ, or the systems were scored on different cases.
    """
    kind = _kind([a, b])
    a, b = _true_cases(a), _true_cases(b)
    score_a, score_b = _release(a, policy), _release(b, policy)
    shown = [f for f in score_a.figures if _is_compared(f.metric) and score_b.figure(f.metric, f.finding) is not None]
    metrics = list(dict.fromkeys(figure.metric for figure in shown))
    compared = _compare(a, b, metrics, score_a.shown, policy) if shown else {}
    testable = {
        (metric, finding): int(_differing([a, b], metric, [finding] if finding != MACRO else score_a.shown)[0, 1])
        >= FEWEST_DIFFERING
        for metric, finding in compared
    }
    tested = [(f.metric, f.finding) for f in shown if testable[f.metric, f.finding]]
    is_apart = dict(zip(tested, _is_told_apart([compared[key].p for key in tested]), strict=True))
    steps = _steps(score_a, policy)
    rows = []
    for figure in shown:
        key = figure.metric, figure.finding
        other = score_b.figure(*key)
        assert other is not None
        value = policy.round(figure.value - other.value, steps[key]) or 0.0
        low, high = _ends(compared[key], value, steps[key], policy) if key in is_apart else (None, None)
        rows.append({
            "metric": figure.metric, "finding": figure.finding, "a": figure.value, "b": other.value, "value": value,
            "low": low, "high": high, "told_apart": bool(is_apart.get(key, False) and value != 0),
        })  # fmt: skip
    return {"schema": 1, "kind": kind, "a": ids[0], "b": ids[1], "rows": rows, "note": _note(rows, len(tested))}


def _note(rows: Sequence[Mapping[str, Any]], n_tested: int) -> str:
    if not rows:
        return "Nothing is released of both, so there is nothing to compare."
    return (
        "Differences of the released figures, A - B. Intervals: 95 %, from patients drawn anew, the same for both; "
        "rounded outwards. Told apart: p at most 0.05 after Holm's correction over all "
        f"{n_tested} intervals shown. No interval: A and B differ in fewer than {FEWEST_DIFFERING} cases."
    )


# Both kinds of rows ---------------------------------------------------------------------------------------------------


def _kind(systems: Sequence[Rows]) -> str:
    kinds = {"findings" if isinstance(rows, StudyRows) else "localization" for rows in systems}
    if len(kinds) > 1:
        raise ValueError("all systems must be of one kind of benchmark, got both localization and findings")
    return kinds.pop() if kinds else "localization"


def _true_cases(rows: Rows) -> Rows:
    """`rows` with nothing defined where there is no reference, as release takes such cases out."""
    if isinstance(rows, StudyRows) or "point_hit" not in rows.values:
        return rows
    is_true = ~np.isnan(rows.values["point_hit"])
    return replace(rows, values={name: np.where(is_true, values, np.nan) for name, values in rows.values.items()})


def _n_patients(rows: Rows) -> int:
    patients = (s.patient_id for s in rows.studies) if isinstance(rows, StudyRows) else (p for _, p in rows.all_images)
    return len(set(patients))


def _release(rows: Rows, policy: ReleasePolicy) -> ReleasedScore:
    return release_studies(rows, policy) if isinstance(rows, StudyRows) else release(rows, policy)


def _has(rows: Rows, metric: str) -> bool:
    return isinstance(rows, StudyRows) or metric in rows.values


def _is_compared(metric: str) -> bool:
    return METRICS[metric].better != "neither"


def _resample(systems: Sequence[Rows], metric: str, shown: Sequence[str], policy: ReleasePolicy) -> list[Resampled]:
    n, seed = policy.n_resamples, policy.seed
    studies = [rows for rows in systems if isinstance(rows, StudyRows)]
    if studies:
        return [
            of[metric] for of in resample_studies(studies, metrics=[metric], labels=shown, n_resamples=n, seed=seed)
        ]
    cases = [rows for rows in systems if isinstance(rows, CaseRows)]
    of_cases = resample_systems(cases, metrics=[metric], findings=shown, n_resamples=n, seed=seed, unit="patient")
    return [of[metric] for of in of_cases]


def _compare(
    a: Rows, b: Rows, metrics: Sequence[str], shown: Sequence[str], policy: ReleasePolicy
) -> dict[tuple[str, str], Comparison]:
    n_resamples = max(policy.n_resamples, COMPARE_RESAMPLES)
    if isinstance(a, StudyRows) and isinstance(b, StudyRows):
        found = compare_studies(a, b, metrics=metrics, labels=shown, n_resamples=n_resamples, seed=policy.seed)
    else:
        assert isinstance(a, CaseRows)
        assert isinstance(b, CaseRows)
        found = compare(a, b, metrics=metrics, findings=shown, n_resamples=n_resamples, seed=policy.seed)
    return {(comparison.metric, comparison.finding): comparison for comparison in found}


def _differing(systems: Sequence[Rows], metric: str, findings: Sequence[str]) -> npt.NDArray[np.int64]:
    """Cases of `findings` in which each two systems differ, (n_systems, n_systems): in their answers to studies, in
    what they scored on images."""
    answers = [_answers(rows, metric, findings) for rows in systems]
    keys = sorted(set().union(*answers)) if isinstance(answers[0], dict) else []
    table = np.array([[own.get(key, np.nan) for key in keys] if isinstance(own, dict) else own for own in answers])
    table = np.nan_to_num(table, nan=-1.0)
    return np.stack([(table != own).sum(axis=1) for own in table])


def _answers(rows: Rows, metric: str, findings: Sequence[str]) -> dict[tuple[str, str], float] | FloatArray:
    if isinstance(rows, CaseRows):
        wanted = set(findings)
        cases = zip(rows.image_ids, rows.case_findings, rows.values[metric].tolist(), strict=True)
        return {(image, finding): value for image, finding, value in cases if finding in wanted}
    columns = [rows.labels.index(label) for label in findings]
    if metric in ("auroc", "average_precision") and rows.probabilities is not None:
        return rows.probabilities[:, columns].ravel()
    return rows.predicted[:, columns].ravel().astype(np.float64)


# Places ---------------------------------------------------------------------------------------------------------------


def _told_apart(values: FloatArray, macros: FloatArray, is_tested: BoolArray, n_patients: int) -> BoolArray:
    """Pairs (n_systems, n_systems) that the joint test tells apart; of `macros` (n_systems, n_resamples)."""
    apart = np.zeros(is_tested.shape, bool)
    i, j = np.nonzero(np.triu(is_tested, 1))
    macros = macros[:, ~np.isnan(macros).any(axis=0)]
    if not len(i) or not macros.shape[1] or n_patients < 2:
        return apart
    differences = values[i] - values[j]
    spreads, largest = np.empty(len(i)), np.zeros(macros.shape[1])
    step = max(1, _PRODUCTS // macros.shape[1])
    for part in (slice(start, start + step) for start in range(0, len(i), step)):
        drawn = macros[i[part]] - macros[j[part]]
        spreads[part] = drawn.std(axis=1)
        excess = np.abs(drawn - differences[part, None])
        varies = spreads[part] > _SAME
        if varies.any():
            largest = np.maximum(largest, (excess[varies] / spreads[part][varies, None]).max(axis=0))
    limit = _for_few(float(np.quantile(largest, 1 - ALPHA, method="higher")), n_patients)
    found = np.abs(differences) > limit * spreads + _SAME
    apart[i[found], j[found]] = apart[j[found], i[found]] = True
    return apart


def _for_few(limit: float, n: int) -> float:
    """`limit` on the scale of the normal distribution, for a spread that is known from `n` patients only.

    The quantile of Student's t with n - 1 degrees of freedom at the same share (Abramowitz and Stegun, 26.7.5), where
    the bootstrap's spread divides by n and not by n - 1.
    """
    z, freedom = limit * math.sqrt(n / (n - 1)), n - 1
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _places(values: FloatArray, apart: BoolArray) -> list[dict[str, Any]]:
    """Rank, interval and tier of each system; members of a tier share all three."""
    better = values[None, :] > values[:, None]
    low = 1 + (apart & better).sum(axis=1)
    high = len(values) - (apart & ~better).sum(axis=1)
    tiers: list[list[int]] = []
    for i in np.argsort(-values, kind="stable").tolist():
        if not tiers or apart[i, tiers[-1]].any():
            tiers.append([])
        tiers[-1].append(i)
    places: dict[int, dict[str, Any]] = {}
    n_before = 0
    for number, members in enumerate(tiers):
        place = {
            "rank": n_before + 1,
            "rank_low": int(low[members].min()),
            "rank_high": int(high[members].max()),
            "tier": _letters(number),
        }
        places |= {i: dict(place) for i in members}
        n_before += len(members)
    return [places[i] for i in range(len(values))]


def _letters(number: int) -> str:
    """A, B ... Z, AA, AB ... of 0, 1, 2 ..."""
    letters = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters


# Differences ----------------------------------------------------------------------------------------------------------


def _is_told_apart(p: Sequence[float]) -> list[bool]:
    return [] if not p else [bool(corrected <= ALPHA) for corrected in holm(np.nan_to_num(p, nan=1.0))]


def _steps(score: ReleasedScore, policy: ReleasePolicy) -> dict[tuple[str, str], float]:
    """What each released figure is a multiple of; a difference is shown no finer."""
    begins = {policy.band(start): start for start in policy.bands}
    n_cases = {f.finding: begins.get(f.n, 0) for f in score.figures if f.finding != MACRO}
    macro_step = policy.macro_step(list(n_cases.values()))
    return {
        (f.metric, f.finding): macro_step if f.finding == MACRO else policy.step_of(begins.get(f.n, 0))
        for f in score.figures
    }


def _ends(
    comparison: Comparison, value: float, step: float, policy: ReleasePolicy
) -> tuple[float | None, float | None]:
    """The interval's ends, rounded outwards to `step` and so far that the shown `value` lies between them."""
    if math.isnan(comparison.low) or math.isnan(comparison.high):
        return None, None
    low = policy.round(step * math.floor(comparison.low / step + 1e-9), step)
    high = policy.round(step * math.ceil(comparison.high / step - 1e-9), step)
    assert low is not None
    assert high is not None
    return min(low, value), max(high, value)
