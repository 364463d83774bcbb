"""Bounds and one-sided p of a difference that swapped answers do not determine, by exponential tilting.

Conventions
-----------
Each of n units (patients or images) moves the estimated difference by its influence; the influences add up to 0. Their
sum of squares, increased if findings have few units, is the squared standard error. If the true difference were
`distance` below the estimate, the units would have other frequencies. These are modelled by weights ``exp(-k *
influence)``, with k such that the weighted mean is the true difference (exponential tilting). If a system loses on rare
patients, the variance under these weights is larger than in the data. So the statistic of a distance is the smaller of
two ratios:

* distance / standard error of the data
* distance / standard error under the weights

The statistic is compared with Student's t, with degrees of freedom from Satterthwaite's formula. The bound is at the
distance whose statistic is the critical t, so bound and one-sided p always agree.

Sources: tilting as in Efron (1981), Canadian Journal of Statistics 9, section 11; variance under the hypothesis as in
Liu, Hsueh, Hsieh and Chen (2002), Statistics in Medicine 21, for two proportions; t by Wallace (1959), Annals of
Mathematical Statistics 30.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.metrics.jackknife import Z

_NORMAL = NormalDist()
_LEAST_FREEDOM = 3.0
_STEPS = np.concatenate([[0.0], 0.25 * 1.2 ** np.arange(32)])  # values of k, in units of 1 / standard error
_AT_EXTREME = 1e3  # statistic of the farthest possible distance, which would be infinite


@dataclass(frozen=True, slots=True)
class Student:
    """Student's t distribution with real degrees of freedom, by a transformation to the normal distribution.

    Examples
    --------
    >>> t = Student(10.0)
    >>> round(t.critical, 2), round(t.upper_tail(t.critical), 6)
    (2.23, 0.025)
    """

    freedom: float

    @property
    def critical(self) -> float:
        """97.5th percentile."""
        return self._at(Z)

    def quantile(self, alpha: float) -> float:
        """Return the value that Student's t exceeds in either direction with probability `alpha`."""
        return self._at(_NORMAL.inv_cdf(1 - alpha / 2))

    def _at(self, z: float) -> float:
        return math.sqrt(self.freedom * math.expm1((z / self._scale) ** 2 / self.freedom))

    @property
    def _scale(self) -> float:
        return (8 * self.freedom + 1) / (8 * self.freedom + 3)

    def upper_tail(self, t: float) -> float:
        """Return the probability of a value above `t`, which must not be negative."""
        return _NORMAL.cdf(-self._scale * math.sqrt(self.freedom * math.log1p(t**2 / self.freedom)))


def student_of(influences: FloatArray) -> Student:
    """Return Student's t with the degrees of freedom of the squared standard error, at least 3."""
    squares = influences**2
    total = float(squares.sum())
    spread = float((squares**2).sum()) - total**2 / len(influences)
    freedom = 2 * total**2 / spread if spread > 0 else math.inf
    return Student(min(max(freedom, _LEAST_FREEDOM), 1e6))


@dataclass(frozen=True, slots=True)
class Distances:
    """Statistics as a function of the distance to one side of an estimate.

    Attributes
    ----------
    error : standard error of the data
    distances, statistics : rising float arrays: some distances, and their statistics under the weights, interpolated
        linearly
    """

    error: float
    distances: FloatArray
    statistics: FloatArray

    def statistic(self, distance: float) -> float:
        """Return the statistic of a distance, which must be 0 or more."""
        if self.error <= 0:
            return math.inf
        return min(distance / self.error, float(np.interp(distance, self.distances, self.statistics)))

    def reach(self, statistic: float) -> float:
        """Return the distance that has this statistic."""
        return max(statistic * self.error, float(np.interp(statistic, self.statistics, self.distances)))


def distances_of(influences: FloatArray, error: float, side: int) -> Distances:
    """Return the statistics of distances below (`side` is -1) or above (1) an estimate.

    Parameters
    ----------
    influences : float array (n_units,), which add up to 0
    error : standard error, not smaller than the root of the sum of their squares
    """
    total = float((influences**2).sum())
    if total <= 0:
        return Distances(error, np.array([0.0, _AT_EXTREME * error]), np.array([0.0, _AT_EXTREME]))
    n = len(influences)
    own = side * n * influences
    weights = np.multiply.outer(_STEPS / (n * math.sqrt(total)), own)
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    means = weights @ own
    variances = np.maximum(weights @ own**2 - means**2, 0) / n * (error**2 / total)
    farthest = max(own.max(), means[-1]) * (1 + 1e-9)
    statistics = np.divide(means, np.sqrt(variances), out=np.full(len(means), _AT_EXTREME), where=variances > 0)
    statistics = np.minimum(np.maximum.accumulate(statistics), _AT_EXTREME)
    return Distances(error, np.append(means, farthest), np.append(statistics, _AT_EXTREME))
