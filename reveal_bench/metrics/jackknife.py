"""Intervals from the jackknife over patients: closed forms that hold where percentiles of replicates are too short.

Conventions
-----------
`left_out` are the scores without each resampled unit in turn, (n_units, n_columns). They give its standard
error, ``sqrt((n - 1) / n * sum d**2)`` with d their deviations from their mean; its bias, ``(n - 1) (mean - value)``;
and the degrees of freedom of the squared standard error (Satterthwaite), ``2 V**2 / (sum d**4 - V**2 / n)`` with
``V = sum d**2``: few if a few patients decide the score.

* The hit rate of one finding, a mean of rows that are 0 or 1, has a Wilson score interval with its effective sample
  size ``value (1 - value) / se**2``, which allows for patients with several rows. The same interval is used for the F1
  of one finding, which is the proportion 2 TP / (2 TP + FP + FN); for the kappa of one finding, on the scale from the
  lowest kappa of raters who call it as often (:func:`~reveal_bench.metrics.agreement.lowest_kappa`) to 1; for another
  mean of one finding, such as IoU, with t instead of the normal quantile; and for every score at an end of its scale,
  or with constant rows, whose standard error is 0. The effective sample size of the last is the number of supporting
  patients, but for an F1 of 0 or the lowest kappa only the proportion :data:`OF_NO_OVERLAP` of it: F1 is 2 / (k + 1) if
  one of k patients is called by both.
* A macro's variance is the variance of a mean of its findings, with their covariances. The variance of a finding with
  few patients is unreliable, so per patient it is averaged with the pooled variance of all findings, which counts for
  :data:`POOLED_FREEDOM` degrees of freedom; a finding at an end of the scale, such as an F1 of 0, gets the pooled
  variance. Degrees of freedom of the macro follow by Satterthwaite's formula. Its bias is the mean of the
  findings' biases. The macro of one finding has the interval of that finding.
* Every other score has ``value - bias +- t se`` on the arcsine scale of its bounds, with the t quantile of its degrees
  of freedom; on its own scale if it has no bounds, as a difference has none here. A macro of a score whose scale goes
  down to -1, such as kappa or AC1, has the same on its own scale.

No interval is printed (both bounds are NaN)

* for a constant score on a scale without two bounds, such as the difference of two systems that agree: identical
  results on some patients do not show how rarely the systems differ;
* if fewer than :data:`LEAST_UNITS` patients support a score, or every finding of a macro;
* if fewer than :data:`LEAST_UNITS_OF_KAPPA` patients support a finding's kappa, or :data:`LEAST_UNITS_OF_MEAN` its IoU
  or another mean of rows that are not 0 or 1;
* if a score derived from macros, such as their relative decrease, depends on a finding with fewer than
  :data:`LEAST_UNITS_IN_MACRO`.

`benchmarks/calibration.py` measures the coverage of these rules; docs/statistics.md has its table.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 11; Wilson (1927), J. Am. Stat. Assoc.
22; effective sample sizes as in Rao and Scott (1992), Biometrics 48; degrees of freedom as in Bell and McCaffrey
(2002), Survey Methodology 28; the t quantile by Abramowitz and Stegun (1964), 26.7.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, pi
from statistics import NormalDist

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray, mean_of_defined

LEAST_UNITS = 10
"""Number of supporting patients below which a score has no interval."""
LEAST_UNITS_OF_KAPPA, LEAST_UNITS_OF_MEAN = 12, 15
"""The same limit for a finding's kappa, or another score whose scale goes below 0; and for IoU, or another mean of rows
that are not 0 or 1."""
LEAST_UNITS_IN_MACRO = 5
"""The same limit for every finding of a score that is derived from macros."""
POOLED_FREEDOM, POOLED_FREEDOM_OF_RATIOS = 5.0, 2.0
"""Degrees of freedom of the pooled variance when it is averaged with a finding's own variance in a macro: for means
over rows (hit rates, IoU, scores), and for ratios such as F1 and kappa, whose variances differ more between
findings."""
OF_NO_OVERLAP = 0.75
"""Proportion of patients that counts for the interval of an F1 of 0, or of the lowest kappa. It would be 1 for F1 as a
proportion of k patients, and 0.5 for TP / (TP + FP + FN) on the scale of F1; simulations fit values from 0.65 to
0.8."""

Z = NormalDist().inv_cdf(0.975)
"""Distance of a 95 % interval's bounds from the centre of a normal distribution, in standard errors."""
_NO_SPREAD = 1e-12  # shares of a scale that differ by less differ by rounding alone
_LEAST_FREEDOM = 3.0  # the expansion of the t quantile is good from here on


@dataclass(frozen=True, slots=True)
class Evidence:
    """Inputs of the interval of every column.

    Attributes
    ----------
    left_out : float array (n_units, n_columns)
        The score without each unit.
    n_units : int array (n_columns,)
        Units that support a value; for a macro, the most of any finding that it averages; for a score derived from
        macros, the fewest.
    enough : bool array (n_columns,)
        True if there are enough units for an interval.
    is_share : bool array (n_columns,)
        True if the score is a mean of rows that are 0 or 1, or F1.
    bounds : ends of the scale, infinite if it has none
    lowest : float array (n_columns,), lowest possible value of each column, if that is above the scale's lower bound:
        for kappa, see :func:`~reveal_bench.metrics.agreement.lowest_kappa`
    averaged : columns whose mean the first one is, as a macro; None if it is not a mean of others
    of_means : True if scores are means over rows, such as hit rates and IoU, and not other ratios
    of_overlap : True if scores are F1 or kappa of presence: one hit among k units raises them by about 2 / k
    """

    left_out: FloatArray
    n_units: IntArray
    enough: BoolArray
    is_share: BoolArray
    bounds: tuple[float, float]
    lowest: FloatArray | None = None
    averaged: IntArray | None = None
    of_means: bool = False
    of_overlap: bool = False

    def over(self, averaged: IntArray) -> Evidence:
        """Return the evidence with the mean of the `averaged` groups, counted from 0, as the first column."""
        groups = self.left_out[:, 1:]
        return evidence_of_groups(
            np.column_stack([mean_of_defined(groups[:, averaged]), groups]),
            self.n_units[1:],
            averaged=averaged,
            is_share=self.is_share[1:],
            bounds=self.bounds,
            lowest=None if self.lowest is None else self.lowest[1:],
            of_means=self.of_means,
            of_overlap=self.of_overlap,
        )


def evidence_of_groups(
    left_out: FloatArray,
    n_units: IntArray,
    *,
    averaged: IntArray | None = None,
    is_share: BoolArray | bool = False,
    bounds: tuple[float, float] = (0.0, 1.0),
    lowest: FloatArray | None = None,
    is_mean: bool = True,
    of_means: bool = False,
    of_overlap: bool = False,
) -> Evidence:
    """Return the evidence of a macro and its groups.

    Parameters
    ----------
    left_out : float array (n_units, 1 + n_groups), the macro first
    n_units : int array (n_groups,), units that support each group
    averaged : groups in the macro, all with a unit by default
    is_share : True for groups whose score is a mean of rows that are 0 or 1, or F1
    bounds : ends of the scale
    lowest : the least that each group can be, as :class:`Evidence` has it
    is_mean : True if the first column is the groups' mean, not otherwise derived from macros
    of_means, of_overlap : as :class:`Evidence` has them
    """
    averaged = np.flatnonzero(n_units) if averaged is None else averaged
    behind = n_units[averaged]
    of_macro, least = (behind.max(initial=0), LEAST_UNITS) if is_mean else (
        behind.min() if len(behind) else 0, LEAST_UNITS_IN_MACRO
    )  # fmt: skip
    of_group = LEAST_UNITS
    if np.isfinite(bounds).all():  # a difference is held to the least of all, as its p is
        of_group = LEAST_UNITS_OF_KAPPA if bounds[0] < 0 else LEAST_UNITS_OF_MEAN if of_means else LEAST_UNITS
    enough = n_units >= np.where(is_share, LEAST_UNITS, of_group)
    is_enough = enough[averaged[0]] if is_mean and len(averaged) == 1 else of_macro >= least  # of one, it is that one
    return Evidence(
        left_out,
        np.concatenate([[of_macro], n_units]),
        np.concatenate([[is_enough], enough]),
        np.concatenate([[False], np.broadcast_to(is_share, n_units.shape)]),
        bounds,
        None if lowest is None else np.concatenate([bounds[:1], lowest]),
        averaged + 1 if is_mean else None,
        of_means,
        of_overlap,
    )


def standard_errors(left_out: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return jackknife standard errors and their degrees of freedom, (n_columns,) each; NaN if a value is undefined."""
    n = len(left_out)
    deviations = left_out - left_out.mean(axis=0)
    squares = deviations**2
    total = squares.sum(axis=0)
    spread = (squares**2).sum(axis=0) - total**2 / n
    freedom = np.divide(2 * total**2, spread, out=np.full(total.shape, inf), where=spread > 0)
    return np.sqrt((n - 1) / n * total), freedom


def t_quantile(freedom: FloatArray) -> FloatArray:
    """Return the 97.5th percentile of Student's t for real degrees of freedom; values below 3 count as 3.

    Examples
    --------
    >>> t_quantile(np.array([5.0, 30.0, np.inf])).round(3).tolist()
    [2.57, 2.042, 1.96]
    """
    z, inverse = Z, 1 / np.maximum(freedom, _LEAST_FREEDOM)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    quantile: FloatArray = sum((term * inverse**i for i, term in enumerate(terms)), np.zeros_like(inverse))
    return quantile


def jackknife_ends(values: FloatArray, evidence: Evidence) -> FloatArray:
    """Return both bounds of the 95 % interval of every column, (2, n_columns); NaN if no interval is printed."""
    bias, errors, freedom = spread(values, evidence)
    low, high = evidence.bounds
    if np.isfinite([low, high]).all():
        lowest = np.full(values.shape, low) if evidence.lowest is None else evidence.lowest
        width = high - lowest
        shares, errors, bias = (values - lowest) / width, errors / width, bias / width
        is_still = (errors < _NO_SPREAD) | (shares < _NO_SPREAD) | (shares > 1 - _NO_SPREAD)
        still = evidence.n_units * np.where(evidence.of_overlap & (shares < 0.5), OF_NO_OVERLAP, 1)
        effective = np.where(is_still, still, _divide(shares * (1 - shares), errors**2))
        is_single = np.full(values.shape, True)
        is_single[0] = evidence.averaged is None
        is_share = evidence.is_share | is_still | (is_single & (evidence.lowest is not None))
        quantiles = np.where(is_share, Z, t_quantile(freedom))
        has_wilson = is_share | (is_single & evidence.of_means)
        shifted = _on_arcsine(shares, bias, errors, quantiles)
        if low < 0:
            plain = np.clip([shares - bias - quantiles * errors, shares - bias + quantiles * errors], 0, 1)
            shifted = np.where(is_single, shifted, plain)
        effective = np.where(evidence.enough, effective, inf)  # no patient, no effective size
        ends = lowest + width * np.where(has_wilson, _wilson(shares, effective, quantiles), shifted)
        if evidence.averaged is not None and len(evidence.averaged) == 1:
            ends[:, 0] = ends[:, evidence.averaged[0]]
    else:
        reach = t_quantile(freedom) * errors
        ends = np.clip([values - bias - reach, values - bias + reach], low, high)  # a scale may end on one side
        ends = np.where(reach > 0, ends, np.nan)
    return np.where(evidence.enough & ~np.isnan(values), ends, np.nan)


def spread(values: FloatArray, evidence: Evidence) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the bias, the standard error and its degrees of freedom for every column."""
    errors, freedom = standard_errors(evidence.left_out)
    n = len(evidence.left_out)
    bias = (n - 1) * (evidence.left_out.mean(axis=0) - values)
    averaged = evidence.averaged
    if averaged is not None and len(averaged):
        alone = [column[averaged[0]] for column in (errors, freedom, bias)]
        errors[0], freedom[0], bias[0] = alone if len(averaged) == 1 else _of_mean(values, evidence, averaged)
    return np.clip(bias, -errors, errors), errors, freedom


def _of_mean(values: FloatArray, evidence: Evidence, averaged: IntArray) -> tuple[float, float, float]:
    """Return standard error, its degrees of freedom, and bias of the mean of some columns, as described for macros."""
    n, k = len(evidence.left_out), len(averaged)
    pooled_freedom = POOLED_FREEDOM if evidence.of_means else POOLED_FREEDOM_OF_RATIOS
    behind = evidence.n_units[averaged]
    own = np.maximum(behind - 1, 0)
    left_out = evidence.left_out[:, averaged]
    left_out = np.where(np.isnan(left_out) | (own == 0), values[averaged], left_out)  # its only patient: no deviation
    centre = left_out.mean(axis=0)
    deviations = left_out - centre
    covariance = (n - 1) / n * deviations.T @ deviations
    variances = np.diag(covariance)
    per_patient = variances * behind
    pooled = (own * per_patient).sum() / max(own.sum(), 1)
    own = np.where(np.isin(values[averaged], evidence.bounds), 0, own)
    steadied = (own * per_patient + pooled_freedom * pooled) / (own + pooled_freedom) / np.maximum(behind, 1)
    variance = max(steadied.sum() + covariance.sum() - variances.sum(), 0.0) / k**2
    spread = (steadied**2 / (own + pooled_freedom)).sum()
    freedom = min(steadied.sum() ** 2 / spread, n - 1) if spread > 0 else inf
    return float(np.sqrt(variance)), float(freedom), float((n - 1) * (centre - values[averaged]).sum() / k)


def _wilson(shares: FloatArray, sizes: FloatArray, quantiles: FloatArray) -> FloatArray:
    added = _divide(quantiles**2, sizes)
    centre = (shares + added / 2) / (1 + added)
    reach = np.sqrt(added * shares * (1 - shares) + added**2 / 4) / (1 + added)
    return np.stack([centre - reach, centre + reach])


def _on_arcsine(shares: FloatArray, bias: FloatArray, errors: FloatArray, quantiles: FloatArray) -> FloatArray:
    centre = np.arcsin(np.sqrt(np.clip(shares - bias, 0, 1)))
    inside = np.clip(shares, 0, 1)
    reach = quantiles * _divide(errors, 2 * np.sqrt(inside * (1 - inside)))
    ends: FloatArray = np.sin(np.clip([centre - reach, centre + reach], 0, pi / 2)) ** 2
    return ends


def _divide(a: FloatArray, b: FloatArray) -> FloatArray:
    quotient: FloatArray = np.divide(a, b, out=np.full(np.shape(a), inf), where=b > 0)
    return quotient
