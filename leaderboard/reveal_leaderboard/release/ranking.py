"""Places and paired differences of systems on one holdout, reduced to what may be shown.

Conventions
-----------
Everything here is of the rows of one version and part of a holdout, all systems in the same replicates of the patients.
What enters is what :mod:`reveal_leaderboard.release.release` shows: its findings, its metrics. What leaves are letters,
whole ranks, and numbers rounded as released figures are.

Places. Two systems are *told apart* by a joint test of all pairs: their difference of macros exceeds its bootstrap
spread by more than the largest such excess of any pair does in 95 % of the replicates, and by somewhat more where
patients are few. A system's rank lies between 1 + those told apart as better and the number of all less those told
apart as worse; with 95 % confidence that is right for all systems at once. The percentiles of bootstrapped ranks would
be narrower and are not used: among near-equal systems they miss the true rank too often. A *tier* is a run of systems
of which no two are told apart, from the best downwards; its members share a place and the union of their intervals, so
that no order inside a tier is claimed.

Differences. A difference is that of the two released figures, never a finer one: the exact differences from many others
would give away the exact figure. Systems that differ in fewer than :data:`FEWEST_DIFFERING` cases are not compared: the
interval of a difference made by one case says whether that case is a hit. Of images those are cases scored differently,
which depends on the references; so "no interval" says something, too, but less than the interval would.

Groups. The width of a paired interval tells in how many cases two systems differ; with both scores known, how many of
the cases that *both* name have the finding. That is another answer, for every pair: 45 to whoever has ten entries. So
entries of one group, teams that may be one, are never paired with each other. Their differences have intervals made of
the two released intervals alone, so that such a comparison is a function of figures already shown. Among places a tier
is one coarse step of the same; inside a group the test takes the spread that independent systems of these two spreads
would have, and Bonferroni's limit: neither depends on how the two overlap. Ratings by readers are not held-out labels;
they are paired.

Only rows whose own figures are released may be passed in: not those that the ladder holds back.

Source: joint rank intervals from all pairs as in Al Mohamad, Goeman and van Zwet (2022, Biometrics 78) and Mogstad,
Romano, Shaikh and Wilhelm (2024, Review of Economic Studies 91); percentile ranks fail at ties: Hall and Miller (2009,
Annals of Statistics 37); intervals of differences from those of both parts: Zou and Donner (2008, Statistics in
Medicine 27).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.evaluation.compare import ALPHA, Comparison, compare, holm, side_by_side
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.kind import Kind, Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, Resampled
from reveal_leaderboard.release.release import Figure, ReleasedScore, release
from reveal_leaderboard.settings import ReleasePolicy

__all__ = ["FEWEST_DIFFERING", "Rows", "compare_document", "rank_document"]

SAME = 1e-12
"""Numbers that differ by less are one number."""
_PRODUCTS = 1 << 22  # pairs x replicates at a time: some 32 MB


def pairable(names: Sequence[str], groups: Mapping[str, object]) -> BoolArray:
    """Which two of `names` are not of one group, (n, n)."""
    code = {group: i for i, group in enumerate(dict.fromkeys(groups.values()))}
    own = np.array([code[groups[name]] if name in groups else -1 - i for i, name in enumerate(names)])
    different: BoolArray = own[:, None] != own[None, :]
    return different


def told_apart(
    values: FloatArray, macros: FloatArray, is_tested: BoolArray, is_paired: BoolArray, n_patients: int
) -> BoolArray:
    """Pairs (n_systems, n_systems) that the joint test tells apart.

    Parameters
    ----------
    values : (n_systems,), the macros
    macros : (n_systems, n_resamples), the same in replicates of the patients
    is_tested : (n_systems, n_systems), pairs to test; the others are not told apart
    is_paired : (n_systems, n_systems), pairs whose spread is that of their difference; of the others it is that of two
        independent systems
    n_patients : behind the replicates
    """
    apart = np.zeros(is_tested.shape, bool)
    i, j = np.nonzero(np.triu(is_tested, 1))
    macros = macros[:, ~np.isnan(macros).any(axis=0)]
    if not len(i) or not macros.shape[1] or n_patients < 2:
        return apart
    differences = values[i] - values[j]
    spreads, largest = np.empty(len(i)), np.zeros(macros.shape[1])
    alone = macros.var(axis=1)
    step = max(1, _PRODUCTS // macros.shape[1])
    for part in (slice(start, start + step) for start in range(0, len(i), step)):
        drawn = macros[i[part]] - macros[j[part]]
        spreads[part] = np.where(
            is_paired[i[part], j[part]], drawn.std(axis=1), np.sqrt(alone[i[part]] + alone[j[part]])
        )
        excess = np.abs(drawn - differences[part, None])
        varies = (spreads[part] > SAME) & is_paired[i[part], j[part]]
        if varies.any():
            largest = np.maximum(largest, (excess[varies] / spreads[part][varies, None]).max(axis=0))
    joint = float(np.quantile(largest, 1 - ALPHA, method="higher"))
    alone_limit = NormalDist().inv_cdf(
        1 - ALPHA / (2 * len(i))
    )  # Bonferroni: no replicate of a difference is looked at
    limits = np.where(is_paired[i, j], _for_few(joint, n_patients), _for_few(alone_limit, n_patients))
    found = np.abs(differences) > limits * spreads + SAME
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


def places(values: FloatArray, apart: BoolArray) -> list[dict[str, Any]]:
    """Rank, interval and tier of each system; members of a tier share all three."""
    better = values[None, :] > values[:, None]
    low = 1 + (apart & better).sum(axis=1)
    high = len(values) - (apart & ~better).sum(axis=1)
    tiers: list[list[int]] = []
    for i in np.argsort(-values, kind="stable").tolist():
        if not tiers or apart[i, tiers[-1]].any():
            tiers.append([])
        tiers[-1].append(i)
    found: dict[int, dict[str, Any]] = {}
    n_before = 0
    for number, members in enumerate(tiers):
        place = {
            "rank": n_before + 1,
            "rank_low": int(low[members].min()),
            "rank_high": int(high[members].max()),
            "tier": _letters(number),
        }
        found |= {i: dict(place) for i in members}
        n_before += len(members)
    return [found[i] for i in range(len(values))]


def _letters(number: int) -> str:
    """A, B ... Z, AA, AB ... of 0, 1, 2 ..."""
    letters = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters


FEWEST_DIFFERING = 10
COMPARE_RESAMPLES = 10_000
"""At least: with fewer, no p could be small enough after the correction for some dozens of rows."""


def rank_document(
    systems: Mapping[str, Rows], policy: ReleasePolicy, *, groups: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Place every system by the macro of the primary metric.

    Parameters
    ----------
    systems : submission id -> rows, all of one kind and scored on the same cases
    policy : which findings are shown, and the replicates
    groups : submission id -> its group; one that is not in it is a group of its own

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
    systems = {name: systems[name].comparable() for name in sorted(systems)}
    metric = kind.primary
    document: dict[str, Any] = {
        "schema": 1,
        "metric": metric,
        "n_resamples": policy.n_resamples,
        "seed": policy.seed,
        "findings": [],
        "entries": {},
        "computed_for": sorted(systems),
    }
    placed = {name: rows for name, rows in systems.items() if metric in rows.metrics()}
    if not placed:
        return document
    first = next(iter(placed.values()))
    score = release(first, policy)
    if score.figure(metric) is None:
        return document
    values, replicates = side_by_side(_resample(list(placed.values()), metric, score.shown, policy))
    values, macros = values[:, 0], replicates[:, :, 0]
    if METRICS[metric].better == "lower":
        values, macros = -values, -macros
    is_paired = pairable(list(placed), groups or {} if kind.can_be_probed else {})
    is_tested = ~is_paired | (_differing(list(placed.values()), metric, score.shown) >= FEWEST_DIFFERING)
    apart = told_apart(values, macros, is_tested, is_paired, len(first.patients()))
    found = places(values, apart)
    return document | {"findings": list(score.shown), "entries": dict(zip(placed, found, strict=True))}


def compare_document(
    a: Rows, b: Rows, policy: ReleasePolicy, *, ids: tuple[str, str] = ("a", "b"), paired: bool = True
) -> dict[str, Any]:
    """Differences ``a - b`` of all figures that are released of both.

    Parameters
    ----------
    a, b : rows of one kind, scored on the same cases
    policy : what is shown, and the seed
    ids : their submission ids
    paired : False for two of one group, see the module: intervals then follow from the released ones

    Returns
    -------
    dict of plain JSON values
        ``rows`` has, per metric, the macro and then the findings: the released figures ``a`` and ``b``, their
        difference ``value``, the ends of its 95 % interval rounded outwards (None where too few cases differ, or
        unpaired where a figure has none) and ``told_apart``: whether Holm's correction over all rows of the document
        leaves it.

    Raises
    ------
    ValueError
        If kinds differ, or the systems were scored on different cases.
    """
    kind = _kind([a, b])
    a, b = a.comparable(), b.comparable()
    score_a, score_b = release(a, policy), release(b, policy)
    pairs = {
        (figure.metric, figure.finding): (figure, other)
        for figure in score_a.figures
        if _is_compared(figure, a) and (other := score_b.figure(figure.metric, figure.finding)) is not None
    }
    if paired or not kind.can_be_probed:
        spans, note = _paired_spans(a, b, list(pairs), score_a.shown, policy), _PAIRED
    else:
        spans, note = {key: span for key, pair in pairs.items() if (span := _released_span(*pair))}, _UNPAIRED
    is_apart = dict(zip(spans, _is_told_apart([span.p for span in spans.values()]), strict=True))
    steps = _steps(score_a, policy, kind)
    rows = []
    for key, (own, other) in pairs.items():
        value = policy.round(own.value - other.value, steps[key]) or 0.0
        low, high = _ends(spans[key], value, steps[key], policy) if key in spans else (None, None)
        rows.append({
            "metric": own.metric, "finding": own.finding, "a": own.value, "b": other.value, "value": value,
            "low": low, "high": high, "told_apart": bool(is_apart.get(key, False) and value != 0),
        })  # fmt: skip
    told = note.format(n=len(spans)) if rows else "Nothing is released of both, so there is nothing to compare."
    return {"schema": 1, "kind": kind.name, "a": ids[0], "b": ids[1], "rows": rows, "note": told}


_PAIRED = (
    "Differences of the released figures, A - B. Intervals: 95 %, from patients drawn anew, the same for both; rounded "
    "outwards. Told apart: p at most 0.05 after Holm's correction over all {n} intervals shown. No interval: A and B "
    f"differ in fewer than {FEWEST_DIFFERING} cases."
)
_UNPAIRED = (
    "Differences of the released figures, A - B. These two entries belong together, so they are not paired: intervals "
    "of 95 % are made of the two intervals shown, as if each were of patients of its own; mostly they are wider. Told "
    "apart: p at most 0.05 after Holm's correction over all {n} of them."
)


def _kind(systems: Sequence[Rows]) -> Kind:
    """The kind of all systems; of none any will do, for there is nothing to rank."""
    names = sorted({rows.kind for rows in systems}, reverse=True)
    if len(names) > 1:
        raise ValueError(f"all systems must be of one kind of benchmark, got both {' and '.join(names)}")
    return KINDS[names[0]] if names else next(iter(KINDS.values()))


def _is_compared(figure: Figure, rows: Rows) -> bool:
    """Of tasks the mean scores of the criteria: a share follows from them, and agreement says nothing of it."""
    is_merit = figure.metric in rows.metrics() and METRICS[figure.metric].better != "neither"
    return is_merit and figure.finding in (MACRO, *rows.groups)


def _resample(systems: Sequence[Rows], metric: str, shown: Sequence[str], policy: ReleasePolicy) -> list[Resampled]:
    first = systems[0]
    options: dict[str, Any] = {"n_resamples": policy.n_resamples, "seed": policy.seed, "unit": "patient"}
    found = type(first).resample(systems, metrics=[metric], groups=first.macro_over(shown), **options)
    return [of_system[metric] for of_system in found]


def _compare(
    a: Rows, b: Rows, metrics: Sequence[str], shown: Sequence[str], policy: ReleasePolicy
) -> dict[tuple[str, str], Comparison]:
    n_resamples = max(policy.n_resamples, COMPARE_RESAMPLES)
    groups = [name for name in shown if name in a.groups]
    found = compare(a, b, metrics=metrics, findings=groups, n_resamples=n_resamples, seed=policy.seed)
    return {(comparison.metric, comparison.finding): comparison for comparison in found}


def _differing(systems: Sequence[Rows], metric: str, findings: Sequence[str]) -> npt.NDArray[np.int64]:
    """Cases of `findings` in which each two systems differ, (n_systems, n_systems): in their answers to studies, in
    what they scored on images."""
    table = type(systems[0]).answers(systems, metric, findings)
    return np.stack([(table != own).sum(axis=1) for own in table])


# Differences ----------------------------------------------------------------------------------------------------------


class _Span(NamedTuple):
    """Ends of the interval of a difference, and its p for none."""

    low: float
    high: float
    p: float


def _paired_spans(
    a: Rows, b: Rows, keys: Sequence[tuple[str, str]], shown: Sequence[str], policy: ReleasePolicy
) -> dict[tuple[str, str], _Span]:
    """Of patients drawn anew for both together, where enough cases differ."""
    metrics = list(dict.fromkeys(metric for metric, _ in keys))
    compared = _compare(a, b, metrics, shown, policy) if keys else {}
    spans = {}
    for metric, finding in keys:
        n_differing = _differing([a, b], metric, [finding] if finding != MACRO else shown)[0, 1]
        if n_differing >= FEWEST_DIFFERING:
            found = compared[metric, finding]
            spans[metric, finding] = _Span(found.low, found.high, found.p)
    return spans


def _released_span(own: Figure, other: Figure) -> _Span | None:
    """Of two released intervals and nothing else, as if they were independent; None if one has none."""
    if own.low is None or own.high is None or other.low is None or other.high is None:
        return None
    value = own.value - other.value
    below = math.hypot(own.value - own.low, other.high - other.value)
    above = math.hypot(own.high - own.value, other.value - other.low)
    towards_none = below if value > 0 else above
    if abs(value) < SAME or towards_none < SAME:
        return _Span(value - below, value + above, float(abs(value) < SAME))
    z = NormalDist().inv_cdf(1 - ALPHA / 2) * abs(value) / towards_none
    return _Span(value - below, value + above, math.erfc(z / math.sqrt(2)))


def _is_told_apart(p: Sequence[float]) -> list[bool]:
    return [] if not p else [bool(corrected <= ALPHA) for corrected in holm(np.nan_to_num(p, nan=1.0))]


def _steps(score: ReleasedScore, policy: ReleasePolicy, kind: Kind) -> dict[tuple[str, str], float]:
    """What each released figure is a multiple of; a difference is shown no finer."""
    if not kind.can_be_probed:
        return {(f.metric, f.finding): policy.resolution for f in score.figures}
    begins = {policy.band(start): start for start in policy.bands}
    n_cases = {f.finding: begins.get(f.n, 0) for f in score.figures if f.finding != MACRO}
    macro_step = policy.macro_step(list(n_cases.values()))
    return {
        (f.metric, f.finding): macro_step if f.finding == MACRO else policy.step_of(begins.get(f.n, 0))
        for f in score.figures
    }


def _ends(span: _Span, value: float, step: float, policy: ReleasePolicy) -> tuple[float | None, float | None]:
    """The interval's ends, rounded outwards to `step` and so far that the shown `value` lies between them."""
    if math.isnan(span.low) or math.isnan(span.high):
        return None, None
    low, high = policy.round_outwards(span.low, span.high, step)
    assert low is not None
    assert high is not None
    return min(low, value), max(high, value)
