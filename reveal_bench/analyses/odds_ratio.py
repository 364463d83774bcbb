"""Odds ratio of right answers in two groups of patients, with patients as clusters.

Each case is answered rightly or wrongly. With a right and b wrong answers in the first group, and c and d in the
second, the odds ratio is ``a d / (b c)``. Its 95% interval is symmetric on the logarithmic scale (Woolf), where the
variance of a group with a proportion p of right answers to n cases is ``sum (right_u - p asked_u)**2 / (n p (1 -
p))**2`` over its patients. If every patient has one case, this is Woolf's ``1 / a + 1 / b``; if patients have several,
they are clusters, and the sum is multiplied by m / (m - 1) for m patients.

If one of the four counts is 0, 0.5 is added to each of them (Haldane, Anscombe). The counts then no longer belong to
patients, so there is an interval only if no patient has more than one case.

Sources: Woolf (1955), Ann. Hum. Genet. 19; Haldane (1956), Ann. Hum. Genet. 20; Anscombe (1956), Biometrika 43;
variances of clusters as in Rao and Scott (1992), Biometrics 48.
"""

from __future__ import annotations

import math

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.metrics.intervals import UNDEFINED, Estimate
from reveal_bench.metrics.jackknife import LEAST_UNITS, Z


def odds_ratio(right: FloatArray, asked: FloatArray, right_of_rest: FloatArray, asked_of_rest: FloatArray) -> Estimate:
    """Return the odds ratio of a right answer in a group and in all other patients, with the interval described above.

    The odds ratio is undefined if fewer than :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients of either
    side have a case, or if all cases of both sides are answered rightly, or all wrongly.

    Parameters
    ----------
    right, asked : float arrays (n_patients,), number of right answers and of cases of each patient of the group
    right_of_rest, asked_of_rest : the same for all other patients

    Examples
    --------
    12 right and 5 wrong, against 6 right and 9 wrong: 12 * 9 / (5 * 6), and exp(+-1.96 * sqrt(1/12 + 1/5 + 1/6 + 1/9)):

    >>> ones, others = np.ones(17), np.ones(15)
    >>> ratio = odds_ratio(np.arange(17) < 12, ones, np.arange(15) < 6, others)
    >>> round(ratio.value, 3), round(ratio.low, 3), round(ratio.high, 3)
    (3.6, 0.829, 15.628)
    """
    sides = [(right[asked > 0], asked[asked > 0]), (right_of_rest[asked_of_rest > 0], asked_of_rest[asked_of_rest > 0])]
    counts = np.array([[own.sum(), cases.sum() - own.sum()] for own, cases in sides], np.float64)
    if min(len(own) for own, _ in sides) < LEAST_UNITS or not counts.sum(axis=0).all():
        return UNDEFINED
    has_clusters = any((cases > 1).any() for _, cases in sides)
    has_zero = not counts.all()
    if has_zero:
        counts += 0.5
    value = float(counts[0, 0] * counts[1, 1] / (counts[0, 1] * counts[1, 0]))
    if has_zero and has_clusters:
        return Estimate(value)
    if has_clusters:
        variance = sum(_clustered_variance(own.astype(np.float64), cases) for own, cases in sides)
    else:
        variance = float((1 / counts).sum())
    reach = Z * math.sqrt(variance)
    return Estimate(value, value * math.exp(-reach), value * math.exp(reach))


def _clustered_variance(right: FloatArray, asked: FloatArray) -> float:
    """Return the variance of the logarithm of a group's odds."""
    n, m = asked.sum(), len(asked)
    share = right.sum() / n
    return float(m / (m - 1) * ((right - share * asked) ** 2).sum() / (n * share * (1 - share)) ** 2)
