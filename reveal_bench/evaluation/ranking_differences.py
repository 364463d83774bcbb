"""Interval, p and one-sided p of differences in AUROC or average precision, in closed form.

Conventions
-----------
The squared standard error of ``a - b`` is the larger of two:

* the sum of both systems' variances (:meth:`~reveal_bench.metrics.ranking_intervals.RankingEvidence.variances`), minus
  twice the covariance of their influences. It is above 0 even if no patient of a small sample happens to be misranked;
* the sum of the squared differences of the influences, which for AUROC is DeLong's. For a finding, this sum is
  multiplied by ``m / (m - 1)``, where m is the number of patients in the smaller class.

Average precision is biased upwards, more so for the worse system. So the lower bound of ``a - b`` is computed from A's
bias-corrected centre and B's value, and the upper bound from A's value and B's centre. For AUROC, the centres are the
values. The variances of a macro of several findings are multiplied by the square of
:func:`~reveal_bench.metrics.jackknife.safety`.

p is 1 minus the confidence level at which the interval just touches 0, so interval, p and verdicts on a margin agree.
For several findings together, intervals and p are corrected by Bonferroni. The interval of a relative decrease ``(b -
a) / b`` is computed by Fieller's method and has the same p.

A difference has neither interval nor p if either system has no interval because of too few patients.

Sources: DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44; Newcombe (2006), Stat. Med. 25, method 5; Fieller
(1954), J. R. Stat. Soc. B 16. `benchmarks/calibration.py` measures the error rates of these intervals and p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.evaluation.differences import Tested
from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.evaluation.tilting import Student
from reveal_bench.metrics.jackknife import safety
from reveal_bench.metrics.ranking_intervals import RankingEvidence
from reveal_bench.metrics.resampled import Resampled


def ranking_of(figures: Resampled) -> RankingEvidence | None:
    """Return the evidence (influences and variances) of AUROC or average precision; None for other scores."""
    evidence = figures.evidence()
    return evidence if isinstance(evidence, RankingEvidence) else None


@dataclass(frozen=True, slots=True)
class RankingTest:
    """Test of one difference ``a - b``.

    Attributes
    ----------
    values, centres : scores of A and of B, and the centres of their intervals
    variances, covariance : variances of A and of B, and their covariance, which give the variance of the difference
    student : distribution of the difference in standard errors
    """

    values: tuple[float, float]
    centres: tuple[float, float]
    variances: tuple[float, float]
    covariance: float
    student: Student

    @property
    def error(self) -> float:
        """Standard error of the difference."""
        return math.sqrt(max(sum(self.variances) - 2 * self.covariance, 0.0))

    @property
    def p(self) -> float:
        """Two-sided p of the hypothesis that the true difference is 0."""
        return min(1.0, 2 * min(self.tails(0.0)))

    def tails(self, margin: float) -> tuple[float, float]:
        """Return the one-sided p of the hypotheses that the true difference is at most ``-margin``, and at least
        `margin`.
        """
        below, above = self.centres[0] - self.values[1], self.values[0] - self.centres[1]
        return self._tail(below + margin), self._tail(margin - above)

    def _tail(self, distance: float) -> float:
        if self.error <= 0:
            return 0.0 if distance > 0 else 1.0
        tail = self.student.upper_tail(abs(distance) / self.error)
        return tail if distance >= 0 else 1 - tail

    def ends(self, alpha: float) -> tuple[float, float]:
        """Return the interval of the difference with error rate `alpha`; NaN if the interval has no length."""
        reach = self.student.quantile(alpha) * self.error
        if reach <= 0:
            return math.nan, math.nan
        return self.centres[0] - self.values[1] - reach, self.values[0] - self.centres[1] + reach

    def ends_of_decrease(self, alpha: float) -> tuple[float, float]:
        """Return the interval of ``(b - a) / b`` with error rate `alpha`; NaN if the interval would be unbounded."""
        squared = self.student.quantile(alpha) ** 2
        (var_a, var_b), ratios = self.variances, []
        for a, b, sign in ((self.values[0], self.centres[1], 1), (self.centres[0], self.values[1], -1)):
            rest = b**2 - squared * var_b
            middle = a * b - squared * self.covariance
            root = middle**2 - rest * (a**2 - squared * var_a)
            if rest <= 0 or root < 0:
                return math.nan, math.nan
            ratios.append((middle + sign * math.sqrt(root)) / rest)
        return 1 - ratios[0], 1 - ratios[1]


def ranking_tests(
    a: RankingEvidence, b: RankingEvidence, values: tuple[FloatArray, FloatArray]
) -> list[RankingTest | None]:
    """Return the tests of the macro and of every finding; None if too few patients support a test.

    Parameters
    ----------
    a, b : evidence of both systems, on the same units
    values : scores of both systems, (1 + n_groups,) each, macro first; NaN for a finding if a system has no score
    """
    shared = np.flatnonzero(~np.isnan(values[0][1:] + values[1][1:]))
    a, b = a.over(shared), b.over(shared)
    (var_a, free_a), (var_b, free_b) = a.variances(values[0]), b.variances(values[1])
    n = len(a.influences)
    correction = n / max(n - 1, 1)
    of_a, of_b = (side.macro_first(side.influences, own) for side, own in zip((a, b), values, strict=True))
    covariance = correction * (of_a * of_b).sum(axis=0)
    of_macro = a.n_smaller[shared[0]] if len(shared) == 1 else np.inf
    smaller = np.maximum(np.append(of_macro, a.n_smaller), 2)
    least = correction * ((of_a - of_b) ** 2).sum(axis=0) / (1 - 1 / smaller)
    added = np.maximum(least - (var_a + var_b - 2 * covariance), 0) / 2
    centres = a.macro_first(a.centres, values[0]), b.macro_first(b.centres, values[1])
    few = [one or other for one, other in zip(a.few(values[0]), b.few(values[1]), strict=True)]
    factors = np.where(np.arange(len(values[0])) == 0, safety(n) ** 2 if len(values[0]) > 2 else 1.0, 1.0)
    return [
        None
        if few[i] or math.isnan(values[0][i] + values[1][i])
        else RankingTest(
            (float(values[0][i]), float(values[1][i])),
            (float(centres[0][i]), float(centres[1][i])),
            (float(factors[i] * (var_a[i] + added[i])), float(factors[i] * (var_b[i] + added[i]))),
            float(factors[i] * covariance[i]),
            Student(float(min(free_a[i], free_b[i]))),
        )
        for i in range(len(values[0]))
    ]


def ranking_differences(
    a: RankingEvidence,
    b: RankingEvidence,
    values: tuple[FloatArray, FloatArray],
    *,
    relative: bool = False,
    margin: float | None = None,
) -> Tested:
    """Return intervals and p of all differences between two systems; parameters as for :func:`ranking_tests`.

    Parameters
    ----------
    relative : True for the relative decrease ``(b - a) / b``, False for ``a - b``
    margin : margin for the one-sided p
    """
    tests = ranking_tests(a, b, values)
    m = max(sum(test is not None for test in tests[1:]), 1)
    result, tails = np.full((6, len(tests)), np.nan), np.full((len(tests), 2), np.nan)
    for i, test in enumerate(tests):
        if test is None:
            continue
        together = 1 if i == 0 else m
        for row, count in ((0, 1), (3, together)):
            alpha = ALPHA / count
            ends = test.ends_of_decrease(alpha) if relative else test.ends(alpha)
            result[row : row + 3, i] = *ends, min(1.0, count * test.p)
        if margin is not None:
            tails[i] = np.minimum(1, together * np.array(test.tails(margin)))
    return Tested(result[0], result[1], result[2], result[3], result[4], result[5], tails)


def untested_ranking(evidence: RankingEvidence, values: FloatArray) -> str:
    """Return why the macros of systems on these patients are not tested; empty if they are tested.

    Parameters
    ----------
    values : (1 + n_groups,), macro first; NaN for a finding if a system has no score
    """
    return evidence.over(np.flatnonzero(~np.isnan(values[1:]))).few(values)[0]


def ranking_pairs_p(systems: Sequence[RankingEvidence], values: FloatArray) -> FloatArray:
    """Return the p of the macro's difference for every pair of systems, (n_systems, n_systems), not corrected for
    pairs.

    Parameters
    ----------
    values : (n_systems, 1 + n_groups), macro first; NaN for a finding if a system has no score
    """
    p_values = np.ones((len(systems), len(systems)))
    for i, one in enumerate(systems):
        for j in range(i):
            test = ranking_tests(one, systems[j], (values[i], values[j]))[0]
            if test is not None:
                p_values[i, j] = p_values[j, i] = test.p
    return p_values
