"""Compute the ranks and tiers of a board, without revealing more than the released scores do.

Conventions
-----------
All per-case rows belong to one version and part of a holdout, and all systems are resampled on the same replicates of
the patients. The findings and the primary metric are those released by :mod:`reveal_leaderboard.release.release`. The
results are letters (tiers) and integer ranks.

Two systems *differ significantly* by tests corrected for all pairs. Tiers and rank intervals follow from the pairs that
differ significantly (:mod:`reveal_bench.evaluation.tiers`); the intervals of all systems together contain the true
ranks with 95% confidence. Percentiles of bootstrapped ranks would be narrower, but are not used, because among nearly
equal systems they miss the true rank too often. The members of a tier share a rank and the union of their intervals, so
that no order inside a tier is claimed.

While a board is open, tests are *unpaired*: the standard error of a difference assumes independent systems, and the
limit is Bonferroni's. Values and standard errors are first rounded to steps of :data:`OPEN_STEP`, so that ranks reveal
a macro at most to this step, which the simulated teams in docs/operating.md receive as well. The standard error of a
*paired* difference would reveal in how many cases two systems differ and, with both scores, how many of the cases that
both predict have the finding. This would be one more disclosed number per pair of entries: 45 for a team with ten
entries. So ranks depend only on the scores of each system. Once a board is closed, disclosed labels are of no use, and
ranks are computed from *paired* tests, as in :func:`reveal_bench.evaluation.compare.rank`. Readers' ratings are not
held-out labels, so their tests are always paired. In paired tests, systems that differ in fewer than
:data:`FEWEST_DIFFERING` cases do not differ significantly.

Callers must pass only rows of submissions that show their own scores, never of a submission that the ladder held back.

Source: joint rank intervals from all pairs as in Al Mohamad, Goeman and van Zwet (2022, Biometrics 78) and Mogstad,
Romano, Shaikh and Wilhelm (2024, Review of Economic Studies 91); percentile ranks fail at ties: Hall and Miller (2009,
Annals of Statistics 37).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.evaluation.compare import side_by_side
from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.evaluation.tiers import compare_pairs, find_tiers, rank_bounds, significant_pairs
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.resampled import Resampled
from reveal_leaderboard.release.release import ranking_metric, release
from reveal_leaderboard.settings import ReleasePolicy

SAME = 1e-12
"""Numbers that differ by less than this count as equal."""
OPEN_STEP = 0.005
"""Rounding step of macros and standard errors from which the ranks of an open board are computed."""


def differ_unpaired(values: FloatArray, macros: FloatArray, n_patients: int) -> BoolArray:
    """Return a boolean matrix (n_systems, n_systems) of the pairs that differ significantly, tested as independent
    systems.

    Parameters
    ----------
    values : (n_systems,), the macro of each system
    macros : (n_systems, n_resamples), the macro of each system in each replicate of the patients
    n_patients : number of resampled patients
    """
    differs = np.zeros((len(values), len(values)), bool)
    i, j = np.triu_indices(len(values), 1)
    macros = macros[:, ~np.isnan(macros).any(axis=0)]
    if not len(i) or not macros.shape[1] or n_patients < 2:
        return differs
    alone = np.maximum(np.round(macros.std(axis=1) / OPEN_STEP), 1) * OPEN_STEP
    limit = _for_few(NormalDist().inv_cdf(1 - ALPHA / (2 * len(i))), n_patients)
    exceeds = np.abs(values[i] - values[j]) > limit * np.hypot(alone[i], alone[j]) + SAME
    differs[i[exceeds], j[exceeds]] = differs[j[exceeds], i[exceeds]] = True
    return differs


def _for_few(limit: float, n: int) -> float:
    """Return a normal quantile `limit`, adjusted for a standard error that is estimated from `n` patients.

    The result is the quantile of Student's t with n - 1 degrees of freedom at the same probability (Abramowitz and
    Stegun, 26.7.5), with a correction because the bootstrap's variance divides by n and not by n - 1.
    """
    z, freedom = limit * math.sqrt(n / (n - 1)), n - 1
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def ranks(values: FloatArray, differs: BoolArray) -> list[dict[str, Any]]:
    """Return rank, rank interval and tier of each system; members of a tier share all three."""
    low, high = rank_bounds(values[None, :] > values[:, None], differs)
    by_system: dict[int, dict[str, Any]] = {}
    for number, members in enumerate(find_tiers(np.argsort(-values, kind="stable").tolist(), differs)):
        rank = {
            "rank": len(by_system) + 1,
            "rank_low": int(low[members].min()),
            "rank_high": int(high[members].max()),
            "tier": _letters(number),
        }
        by_system |= {i: dict(rank) for i in members}
    return [by_system[i] for i in range(len(values))]


def _letters(number: int) -> str:
    """Return the letters of a tier: A, B ... Z, AA, AB ... for 0, 1, 2 ..."""
    letters = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters


FEWEST_DIFFERING = 10


def rank_document(
    systems: Mapping[str, Rows], policy: ReleasePolicy, *, paired: bool = False, other: Rows | None = None
) -> dict[str, Any]:
    """Rank all systems by the macro of the board's metric (:func:`~reveal_leaderboard.release.release.ranking_metric`).

    Parameters
    ----------
    systems : submission id -> rows, all of one kind and scored on the same cases
    policy : release policy, with the settings of the replicates
    paired : True for paired tests, once the board is closed; tests of readers' ratings are always paired
    other : any system's rows on the other part of the holdout, see :func:`~reveal_leaderboard.release.release.release`

    Returns
    -------
    dict of plain JSON values
        ``entries`` has, for each submission id, ``rank`` (of its tier), ``rank_low``, ``rank_high`` and ``tier`` ("A"
        is best). An id in ``computed_for`` but not in ``entries`` has no released primary score and so no rank.
        ``n_patients`` is the number of patients in the part. ``chance`` has, for each metric, the expected macro of
        random answers over the released findings, in whole percent. ``n_patients`` and ``chance`` depend only on the
        holdout.

    Raises
    ------
    ValueError
        If the systems belong to different kinds of benchmarks, or were scored on different cases.
    """
    kind = _kind(list(systems.values()))
    paired = paired or not kind.scoring.can_be_probed
    systems = {name: systems[name].comparable() for name in sorted(systems)}
    metric = ranking_metric(kind, policy)
    document: dict[str, Any] = {
        "schema": 1,
        "metric": metric,
        "n_resamples": policy.n_resamples,
        "seed": policy.seed,
        "paired": paired,
        "findings": [],
        "entries": {},
        "computed_for": sorted(systems),
        "n_patients": 0,
        "chance": {},
    }
    placed = {name: rows for name, rows in systems.items() if metric in rows.metrics()}
    if not placed:
        return document
    first = next(iter(placed.values()))
    score = release(first, policy, other=other)
    if score.figure(metric) is None:
        return document
    rows, n_patients = list(placed.values()), len(first.patients())
    figures = _resample(rows, metric, score.shown, policy)
    scores, replicates = side_by_side(figures)
    values, macros = scores[:, 0], replicates[:, :, 0]
    if paired:
        p = compare_pairs(figures, scores, macros, Resampling(policy.n_resamples, policy.seed)).p
        p[_differing(rows, metric, score.shown) < FEWEST_DIFFERING] = 1.0
        differs = significant_pairs(p)
    else:
        values = np.round(values / OPEN_STEP) * OPEN_STEP
        differs = differ_unpaired(values, macros, n_patients)
    if METRICS[metric].better == "lower":
        values = -values
    return document | {
        "findings": list(score.shown),
        "entries": dict(zip(placed, ranks(values, differs), strict=True)),
        "n_patients": n_patients,
        "chance": _chance(rows, score.shown),
    }


def _chance(systems: Sequence[Rows], findings: Sequence[str]) -> dict[str, int]:
    """Return metric -> chance level in percent, for metrics that have a chance level in any system's rows."""
    levels: dict[str, float] = {}
    for rows in systems:
        levels = rows.chance(findings) | levels
    return {metric: round(100 * value) for metric, value in levels.items()}


def _kind(systems: Sequence[Rows]) -> AnyKind:
    """Return the common kind of all systems; without systems, an arbitrary kind."""
    names = sorted({rows.kind for rows in systems}, reverse=True)
    if len(names) > 1:
        raise ValueError(f"all systems must belong to one kind of benchmark, got {' and '.join(names)}")
    return KINDS[names[0]] if names else next(iter(KINDS.values()))


def _resample(systems: Sequence[Rows], metric: str, findings: Sequence[str], policy: ReleasePolicy) -> list[Resampled]:
    first = systems[0]
    resampling = Resampling(policy.n_resamples, policy.seed, interval="percentile")  # open boards need replicates
    resampled = type(first).resample(systems, resampling, metrics=[metric], groups=first.macro_over(findings))
    return [of_system[metric] for of_system in resampled]


def _differing(systems: Sequence[Rows], metric: str, findings: Sequence[str]) -> IntArray:
    """Return the number of cases of `findings` in which each two systems differ, (n_systems, n_systems).

    Systems differ by their answers for studies, or by their scores on images.
    """
    table = type(systems[0]).answers(systems, metric, findings)
    return np.stack([(table != own).sum(axis=1) for own in table])
