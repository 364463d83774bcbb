"""Jackknife intervals over patients in closed form, for scores whose percentiles of replicates are too narrow.

`left_out` are the scores without each resampled unit in turn, (n_units, n_columns). They give the score's standard
error, ``sqrt((n - 1) / n * sum d**2)`` with d their deviations from their mean; its bias, ``(n - 1) (mean - value)``;
and the degrees of freedom of the squared standard error (Satterthwaite), ``2 V**2 / (sum d**4 - V**2 / n)`` with ``V =
sum d**2``. These are few if a few patients decide the score.

* The hit rate of one finding, a mean of rows that are 0 or 1, has a Wilson score interval with its effective sample
  size ``value (1 - value) / se**2``, which allows for patients with several rows. The same interval is used for the F1
  of one finding, which is the proportion 2 TP / (2 TP + FP + FN). For the kappa of one finding, it is used on a scale
  that ends at 1 and begins at the lowest kappa possible with the raters' rates
  (:func:`~reveal_bench.metrics.agreement.lowest_kappa`). For another mean of one finding, such as IoU, t replaces the
  normal quantile. The interval is also used for every score at an end of its scale, or with constant rows, because its
  standard error is 0. In these last cases, the effective sample size is the number of supporting patients; for an F1
  of 0 or the lowest kappa it is the proportion :data:`OF_NO_OVERLAP` of them, because F1 is 2 / (k + 1) if both call
  one of k patients positive.
* Wilson's interval of a proportion covers too rarely, in 0.84 of samples at worst, if its expected number of events, or
  of non-events, is so small that most samples have none. So the lower bound is at most 0.0834 / n if there is one event
  among n >= :data:`LEAST_OF_RARE`, and at most 0.466 / n if there are two. At these expected numbers, a Poisson
  variable is below one, and below two, in 0.92 of samples. Brown, Cai and DasGupta (2001) do the same with 0.95.
* A macro of scores that do not go below 0 has the Wilson interval of its effective sample size, with t instead of the
  normal quantile. The jackknife estimates the variance of a finding with few patients badly; for a rare finding
  without errors, it is 0. So a finding's variance is ``c g(m) / n``. n is the number of its supporting patients, and
  g is ``m (1 - m)``, or for F1 the variance of 2 TP / (2 TP + FP + FN) if TP is binomial among n patients. m is the
  finding's score, shrunk towards the macro as if by :data:`PRIOR_UNITS` further patients. c is the design effect, the
  ratio of the jackknife's variance to ``g(value) / n``, averaged with the design effect of all findings, which counts
  for :data:`POOLED_FREEDOM` degrees of freedom. For a mean such as IoU, n v / (g + v) replaces the ratio, because its
  variance v is far below g / n. All pairs of findings have the same correlation, the mean of the jackknife's,
  weighted by the weights that the findings' own design effects have; single covariances of rare findings are mostly
  noise, and their sum is near 0 in too many samples. Degrees of freedom of the macro follow by Satterthwaite's
  formula. A variance of proportions is known no better than their number of errors: if this number is Poisson with
  mean E, the variance has 2 E degrees of freedom. So a macro of proportions other than F1 has at most
  :data:`FREEDOM_PER_ERROR` degrees of freedom for each expected error; the expected number of errors is ``sum n m (1
  - m)``, and at least :data:`LEAST_ERRORS`. With few patients, F1 is too low on average, because 2 TP / (2 TP + FP +
  FN) is concave in TP; the centre of the interval is raised by this bias, computed at m.
* A macro of a score without bounds, or with a scale that goes below 0, such as kappa or AC1, is ``value - bias +- t
  se`` on its own scale. In this case, g is constant, the bias is the mean of the findings' biases by the jackknife, and
  t has at most the degrees of freedom of the macro's own jackknife, but at least :data:`LEAST_FREEDOM` of them.
  The scale of the macro of kappa begins at the mean of its findings' lowest kappas.
* Every other score has ``value - bias +- t se`` on the arcsine scale of its bounds, with the t quantile of its degrees
  of freedom; or on its own scale if it has no bounds, such as a difference.
* The macro of one finding has the interval of that finding.

No interval is printed (both bounds are NaN) below the limits of the constants, as docs/statistics.md explains.
`benchmarks/calibration.py` measures the coverage of these rules; docs/statistics.md has its table.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 11; Wilson (1927), J. Am. Stat. Assoc.
22; Brown, Cai and DasGupta (2001), Statist. Sci. 16; effective sample sizes as in Rao and Scott (1992), Biometrics 48;
Wilson intervals of stratified proportions as in Yan and Su (2010), Stat. Biopharm. Res. 2; degrees of freedom as in
Bell and McCaffrey (2002), Survey Methodology 28.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, pi
from statistics import NormalDist

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.resampled import mean_of_defined

FEW = "too few patients"
"""Reason for a missing interval if the number of patients that it needs is not known."""

LEAST_UNITS = 10
"""Smallest number of supporting patients for an interval of a score."""
LEAST_UNITS_OF_SHARE, LEAST_UNITS_OF_F1, LEAST_UNITS_OF_KAPPA, LEAST_UNITS_OF_MEAN = 5, 8, 12, 15
"""The same limit for scores of one finding, in this order: a mean of rows that are 0 or 1; F1; kappa, or another score
whose scale goes below 0; and IoU, or another mean of rows that are not 0 or 1.
"""
LEAST_UNITS_IN_MACRO = 5
"""The same limit for every finding of a score that is derived from macros."""
PRIOR_UNITS = 2.0
"""Number of further patients with the macro's score by which a finding's score is shrunk for its variance in a macro.
"""
POOLED_FREEDOM = 2.0
"""Degrees of freedom of the findings' common design effect when it is averaged with that of one finding in a macro."""
FREEDOM_PER_ERROR = 2.0
"""Largest number of degrees of freedom of a macro of proportions for each expected error."""
LEAST_ERRORS = 2.0
"""Smallest number of expected errors for these degrees of freedom; without any error, Wilson's bounds do not need them.
"""
LEAST_FREEDOM = 3.0
"""Smallest number of degrees of freedom to which the jackknife of a macro itself limits t, if g is constant."""
LEAST_EVEN = 0.7
"""Smallest effective proportion of patients for an interval if there are fewer than :data:`MANY_UNITS`. For comparison,
the proportion is 0.80 if 1 to 7 images are equally frequent, and at least 0.75 if no patient has more than 3."""
MANY_UNITS = 2000
"""Smallest number of patients with which intervals hold for any numbers of images per patient."""
UNEVEN = "numbers of images per patient too unequal"
LEAST_REPEATS, REPEATED = 3, 2.0
"""Smallest number of patients with several supporting studies for an interval of precision or F1 of a finding, and the
mean number of studies per patient from which this applies: scores of samples without such patients are mostly too low.
"""
UNREPEATED = f"fewer than {LEAST_REPEATS} patients with several supporting studies"
WIDEST = 0.75
"""Largest proportion of its scale that an interval may cover. With three patients, of whom one or two are hits, the
interval would cover 0.74.
"""
TOO_WIDE = f"wider than {WIDEST:.0%} of its scale"
"""Reason for a missing interval that would be wider."""
LEAST_OF_RARE = 11
"""Smallest effective sample size at which the bounds of a proportion next to 0 or 1 are moved outwards."""
OF_NO_OVERLAP = 0.75
"""Proportion of patients used as the sample size for the interval of an F1 of 0, or of the lowest kappa. This would be
1 for F1 as a proportion of k patients, and 0.5 for TP / (TP + FP + FN) on the scale of F1; simulations fit values from
0.65 to 0.8.
"""

Z = NormalDist().inv_cdf(0.975)
"""Distance of a 95 % interval's bounds from the centre of a normal distribution, in standard errors."""
_NO_SPREAD = 1e-12  # smaller differences between proportions of a scale are due to rounding
_INSIDE = 1e-6  # where variances are proportional to p (1 - p), a value at an end of its scale is moved this far inside
# Smallest proportion of a macro's variance that a negative correlation may leave; a larger reduction is noise
_LEAST_PART = 0.25
_RARE_EVENTS = 0.0, 0.08338, 0.46575, 0.99836
_LOG_T = -0.0394592, 0.1168138, -0.0245318, -0.2607371, 0.1601912, 0.7064658, 1.2104212, 0.6729257


@dataclass(frozen=True, slots=True)
class Evidence:
    """Inputs of the interval of every column, which is a score.

    Attributes
    ----------
    left_out : float array (n_units, n_columns)
        The score without each unit.
    n_units : int array (n_columns,)
        Number of units that support a value; for a macro, the largest number of any finding that it averages; for a
        score derived from macros, the smallest.
    enough : bool array (n_columns,)
        True if there are enough units for an interval.
    is_share : bool array (n_columns,)
        True if the score is a mean of rows that are 0 or 1, or F1.
    bounds : lowest and highest value of the scale, infinite if it has none
    lowest : float array (n_columns,), lowest possible value of each column, if that is above the scale's lower bound:
        for kappa, see :func:`~reveal_bench.metrics.agreement.lowest_kappa`
    averaged : columns that the first column averages, as a macro; None if it is not a mean of other columns
    least : int array (n_columns,), smallest number of units for an interval, if `enough` depends on it
    is_uneven : True if the units' numbers of rows are too unequal for any interval
    lacks_repeats : True for columns with too few units that have several supporting rows
    of_means : True if scores are means over rows, such as hit rates and IoU, False for other ratios
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
    least: IntArray | None = None
    is_uneven: bool = False
    lacks_repeats: BoolArray | bool = False

    def ends(self, values: FloatArray) -> FloatArray:
        """Return both bounds of every column, (2, n_columns); NaN if there is no interval."""
        bias, errors, freedom = spread(values, self)
        low, high = self.bounds
        if np.isfinite([low, high]).all():
            lowest = np.full(values.shape, low) if self.lowest is None else self.lowest
            ends = _ends_of_scale(values, self, lowest, (bias, errors, freedom))
            ends = np.where(ends[1] - ends[0] <= WIDEST * (high - lowest), ends, np.nan)
            if self.averaged is not None and len(self.averaged) == 1:
                ends[:, 0] = ends[:, self.averaged[0]]
        else:
            reach = t_quantile(freedom) * errors
            ends = np.clip([values - bias - reach, values - bias + reach], low, high)  # a scale may have only one end
            ends = np.where(reach > 0, ends, np.nan)
        has_interval = self.enough & ~np.isnan(values) & ~(self.is_uneven | np.asarray(self.lacks_repeats))
        return np.where(has_interval, ends, np.nan)

    def missing_reasons(self, values: FloatArray, ends: FloatArray) -> list[str]:
        """Return, for each column, why it has no interval; empty if it has an interval, or no value."""
        reasons, is_single = [""] * len(values), np.broadcast_to(self.lacks_repeats, values.shape)
        for column in np.flatnonzero(np.isnan(ends).all(axis=0) & ~np.isnan(values)).tolist():
            if not self.enough[column]:
                reasons[column] = _few(self, column)
            elif self.is_uneven:
                reasons[column] = UNEVEN
            elif is_single[column]:
                reasons[column] = UNREPEATED
            else:
                reasons[column] = TOO_WIDE if np.isfinite(self.bounds).all() else "constant"
        return reasons

    def over(self, averaged: IntArray) -> Evidence:
        """Return the evidence with the mean of the `averaged` groups, numbered from 0, as the first column."""
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
            is_uneven=self.is_uneven,
            lacks_repeats=np.broadcast_to(self.lacks_repeats, self.n_units.shape)[1:],
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
    is_uneven: bool = False,
    lacks_repeats: BoolArray | bool = False,
) -> Evidence:
    """Return the inputs of the intervals of a macro and its groups.

    Parameters
    ----------
    left_out : float array (n_units, 1 + n_groups), the macro first
    n_units : int array (n_groups,), numbers of units that support each group
    averaged : groups in the macro; by default all that a unit supports
    is_share : True for groups whose score is a mean of rows that are 0 or 1, or F1
    bounds : lowest and highest value of the scale
    lowest : lowest possible value of each group, as in :class:`Evidence`
    is_mean : True if the first column is the groups' mean, not otherwise derived from macros
    of_means, of_overlap, is_uneven : as in :class:`Evidence`
    lacks_repeats : as in :class:`Evidence`, for each group; a macro of several groups has an interval
    """
    averaged = np.flatnonzero(n_units) if averaged is None else averaged
    behind = n_units[averaged]
    of_macro, least_of_macro = (behind.max(initial=0), LEAST_UNITS) if is_mean else (
        behind.min() if len(behind) else 0, LEAST_UNITS_IN_MACRO
    )  # fmt: skip
    of_group = LEAST_UNITS
    # A difference, which has no bounds, needs only the smallest of these numbers, as its p does
    if np.isfinite(bounds).all():
        of_group = LEAST_UNITS_OF_KAPPA if bounds[0] < 0 else LEAST_UNITS_OF_MEAN if of_means else LEAST_UNITS
    of_share = LEAST_UNITS_OF_F1 if of_overlap else LEAST_UNITS_OF_SHARE
    least = np.broadcast_to(np.where(is_share, of_share, of_group), n_units.shape)
    if is_mean and len(averaged) == 1:  # a macro of one finding is the score of that finding
        least_of_macro = int(least[averaged[0]])
    lacking = np.concatenate([[False], np.broadcast_to(lacks_repeats, n_units.shape)])
    lacking[0] = is_mean and len(averaged) == 1 and lacking[1 + averaged[0]]
    least = np.concatenate([[least_of_macro], least])
    behind = np.concatenate([[of_macro], n_units])
    lowest_of_macro = bounds[:1] if lowest is None or not is_mean or not len(averaged) else [lowest[averaged].mean()]
    return Evidence(
        left_out,
        behind,
        behind >= least,
        np.concatenate([[False], np.broadcast_to(is_share, n_units.shape)]),
        bounds,
        None if lowest is None else np.concatenate([lowest_of_macro, lowest]),
        averaged + 1 if is_mean else None,
        of_means,
        of_overlap,
        least,
        is_uneven,
        lacking,
    )


def has_uneven_rows(rows: FloatArray | IntArray) -> bool:
    """Return True if the units have too unequal numbers of rows for an interval.

    The effective number of units is ``(sum r)^2 / sum r^2`` (Kish, Survey Sampling, 1965).

    Parameters
    ----------
    rows : array (n_units, n_groups), numbers of rows; the largest of each unit counts
    """
    most = rows.max(axis=1, initial=0)
    n_units = int((most > 0).sum())
    return bool(0 < n_units < MANY_UNITS and most.sum() ** 2 < LEAST_EVEN * n_units * (most**2).sum())


def standard_errors(left_out: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return jackknife standard errors and their degrees of freedom, (n_columns,) each; NaN if a value is undefined."""
    n = len(left_out)
    deviations = left_out - left_out.mean(axis=0)
    squares = deviations**2
    total = squares.sum(axis=0)
    spread = (squares**2).sum(axis=0) - total**2 / n
    freedom = np.divide(2 * total**2, spread, out=np.full(total.shape, inf), where=spread > 0)
    return np.sqrt((n - 1) / n * total), freedom


def safety(n: int) -> float:
    """Return the factor of the standard error of a macro of average precision, and of a difference between macros of
    several findings, for `n` patients: constant up to 60, near 1 for many.

    Without it, the worse of two systems was called non-inferior in up to 0.035 of simulated trials with 60 or 100
    patients, at a margin equal to the true difference, instead of in 0.025.
    """
    return 1 + 5 / max(n, 60)


def t_quantile(freedom: FloatArray) -> FloatArray:
    """Return the 97.5th percentile of Student's t for any real degrees of freedom; values below 1 are raised to 1.

    The logarithm of the percentile is a polynomial in the inverse degrees of freedom, fitted to SciPy's values; the
    relative error is below 2e-6.

    Examples
    --------
    >>> t_quantile(np.array([1.0, 5.0, 30.0, np.inf])).round(3).tolist()
    [12.706, 2.571, 2.042, 1.96]
    """
    quantile: FloatArray = np.exp(np.polyval(_LOG_T, 1 / np.maximum(freedom, 1.0)))
    return quantile


def _few(evidence: Evidence, column: int) -> str:
    if evidence.least is None:
        return FEW
    is_macro = column == 0 and evidence.averaged is not None and len(evidence.averaged) != 1
    least = evidence.least[column]
    return f"no finding with {least} supporting patients" if is_macro else f"fewer than {least} supporting patients"


def _ends_of_scale(
    values: FloatArray, evidence: Evidence, lowest: FloatArray, spreads: tuple[FloatArray, FloatArray, FloatArray]
) -> FloatArray:
    """Return the bounds on a scale with two ends, from the bias, standard error and degrees of freedom of columns."""
    low, high = evidence.bounds
    width = high - lowest
    shares, bias, errors, t = (values - lowest) / width, spreads[0] / width, spreads[1] / width, t_quantile(spreads[2])
    is_still = (errors < _NO_SPREAD) | (shares < _NO_SPREAD) | (shares > 1 - _NO_SPREAD)
    still = evidence.n_units * np.where(evidence.of_overlap & (shares < 0.5), OF_NO_OVERLAP, 1)
    effective = np.where(is_still, still, _divide(shares * (1 - shares), errors**2))
    is_single = np.full(values.shape, True)
    is_single[0] = evidence.averaged is None
    is_share = evidence.is_share | is_still | (is_single & (evidence.lowest is not None))
    quantiles = np.where(is_share, Z, t)
    has_wilson = is_share | (is_single & evidence.of_means)
    other = _on_arcsine(shares, bias, errors, quantiles)
    if low < 0:
        plain = np.clip([shares - bias - quantiles * errors, shares - bias + quantiles * errors], 0, 1)
        other = np.where(is_single, other, plain)
    effective = np.where(evidence.enough, effective, inf)  # without a patient, there is no effective sample size
    proportions = wilson(shares, effective, quantiles)
    rare = _with_rare_events(proportions, shares, effective)
    proportions = np.where(evidence.is_share & evidence.enough, rare, proportions)
    ends: FloatArray = np.where(has_wilson, proportions, other)
    if not is_single[0] and low >= 0 and errors[0] > 0:
        centre = np.clip(shares[:1] - bias[:1], 0, 1)
        inside = np.clip(centre, _INSIDE, 1 - _INSIDE)
        ends[:, :1] = wilson(centre, inside * (1 - inside) / errors[:1] ** 2, t[:1])
    below, above = np.clip(lowest + width * ends, low, high)
    return np.stack([np.minimum(below, values), np.maximum(above, values)])  # against rounding


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
    """Return the standard error of a macro, its degrees of freedom and its bias, as the module docstring describes."""
    low, high = evidence.bounds
    has_shares = low >= 0 and high < inf
    width = high - low if has_shares else 1.0
    n, k, behind = len(evidence.left_out), len(averaged), np.maximum(evidence.n_units[averaged], 1)
    left_out = evidence.left_out[:, averaged]
    # With only one patient, a finding has no deviation
    left_out = np.where(np.isnan(left_out) | (behind == 1), values[averaged], left_out)
    centre = left_out.mean(axis=0)
    deviations = (left_out - centre) / width
    covariance = (n - 1) / n * deviations.T @ deviations
    variances = np.diag(covariance)
    own = np.where(np.isin(values[averaged], evidence.bounds), 0, behind - 1)
    bias = (n - 1) * (centre - values[averaged]).sum() / k
    of_value = of_likely = np.ones(k)
    if has_shares:
        shares = (values[averaged] - low) / width
        likely = (behind * shares + PRIOR_UNITS * shares.mean()) / (behind + PRIOR_UNITS)
        shares, likely = (np.clip(x, _INSIDE, 1 - _INSIDE) for x in (shares, likely))
        of_value, of_likely = shares * (1 - shares), likely * (1 - likely)
        if evidence.of_overlap:
            of_value, of_likely = _f1_moments(shares, inf)[0], _f1_moments(likely, behind)[0]
    effects = variances * (behind - has_shares) / of_value  # the jackknife's variance of k of n is k (n - k) / (n - 1)
    if has_shares and evidence.of_means:  # for IoU, the mean of g(value) is below g by far less than a proportion's
        is_share = evidence.is_share[averaged]
        effects = np.where(is_share, effects, variances * behind / (of_value + variances))
    pooled = (own * effects).sum() / max(own.sum(), 1)
    pooled = pooled if pooled > _NO_SPREAD or not has_shares else 1.0
    effects = (own * effects + POOLED_FREEDOM * pooled) / (own + POOLED_FREEDOM)
    steadied = effects * of_likely / behind
    correlation = _common_correlation(covariance, own / (own + POOLED_FREEDOM))
    total = (1 - correlation) * steadied.sum() + correlation * np.sqrt(steadied).sum() ** 2
    spread = (steadied**2 / (own + POOLED_FREEDOM)).sum()
    freedom = min(steadied.sum() ** 2 / spread, n - 1) if spread > 0 else inf
    if not has_shares:
        of_macro = float(standard_errors(left_out.mean(axis=1, keepdims=True))[1][0])
        freedom = min(freedom, max(of_macro, LEAST_FREEDOM))
    is_of_shares = has_shares and not evidence.of_overlap and evidence.is_share[averaged].all()
    if is_of_shares:
        errors = float((behind * of_likely).sum())
        freedom = min(freedom, FREEDOM_PER_ERROR * max(errors, LEAST_ERRORS))
    if has_shares and evidence.of_overlap:
        bias = width * (effects * _f1_moments(likely, behind)[1]).sum() / k
    elif is_of_shares or (has_shares and evidence.of_means):
        bias = 0.0
    error = width * np.sqrt(max(total, _LEAST_PART * steadied.sum())) / k
    return float(error), float(freedom), float(bias)


def _common_correlation(covariance: FloatArray, weights: FloatArray) -> float:
    """Return the mean correlation of all pairs of findings; a pair counts with the product of its findings' weights.

    Findings without variance are left out.

    Examples
    --------
    >>> _common_correlation(np.array([[4.0, 1, 0], [1, 1, 0], [0, 0, 0]]), np.array([1.0, 0.5, 1.0]))
    0.5
    """
    errors = np.sqrt(np.diag(covariance))
    own = np.where(errors > 0, weights, 0)
    pairs = own.sum() ** 2 - (own**2).sum()
    scaled = np.divide(weights, errors, out=np.zeros(errors.shape), where=errors > 0)
    products = scaled @ covariance @ scaled - (own**2).sum()
    return float(products / pairs) if pairs > 0 else 0.0


def _f1_moments(f1: FloatArray, n: IntArray | float) -> tuple[FloatArray, FloatArray]:
    """Return n times the variance, and the bias, of 2 TP / (2 TP + FP + FN) with TP binomial among n = TP + FP + FN.

    Both are exact for n = 1, where F1 is 0 or 1, and for large n, as in the delta method; for n from 2 to 10, the error
    is at most a quarter.
    """
    rest = 2 - f1  # the probability of TP is f1 / rest
    variance = f1 * (1 - f1) * rest**2 / 2 * (1 + (4 / rest**4 - 1) / n)
    bias = -f1 * (1 - f1) * rest / (2 * n) * (1 + (2 / rest**2 - 1) / n)
    return variance, bias


def wilson(shares: FloatArray, sizes: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Return both bounds (2, n) of Wilson's score interval of proportions among `sizes` units, with these normal
    quantiles.
    """
    added = _divide(quantiles**2, sizes)
    centre = (shares + added / 2) / (1 + added)
    reach = np.sqrt(added * shares * (1 - shares) + added**2 / 4) / (1 + added)
    return np.stack([centre - reach, centre + reach])


def share_bounds(shares: FloatArray, errors: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return both bounds (2, n) of proportions with these standard errors, each among at most `sizes` units.

    The bounds are Wilson's for the effective number of units, ``share (1 - share) / error^2``, moved outwards next to 0
    and 1 like those of other proportions.
    """
    # Nearer to 0 or 1, for example between two points of a curve, the variance would be too small
    half = 0.5 / np.maximum(sizes, 1)
    inside = shares.clip(half, 1 - half)
    effective = np.minimum(sizes, _divide(inside * (1 - inside), errors**2))
    effective = np.where((shares > 0) & (shares < 1), effective, sizes)
    low, high = _with_rare_events(wilson(shares, effective, np.full_like(shares, Z)), shares, effective).clip(0, 1)
    return np.stack([np.minimum(low, shares), np.maximum(high, shares)])  # against rounding


def _with_rare_events(ends: FloatArray, shares: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return Wilson bounds, moved outwards next to 0 and 1 if only one or two of many patients differ."""
    low, high = ends
    for _ in range(2):
        with np.errstate(invalid="ignore"):  # columns without an interval have infinite sizes
            events = sizes * shares
        rate = np.interp(events, range(len(_RARE_EVENTS)), _RARE_EVENTS) / sizes
        low = np.where((events < len(_RARE_EVENTS) - 1) & (sizes >= LEAST_OF_RARE), np.minimum(low, rate), low)
        low, high, shares = 1 - high, 1 - low, 1 - shares  # mirror the scale for the other end, then back
    return np.stack([low, high])


def _on_arcsine(shares: FloatArray, bias: FloatArray, errors: FloatArray, quantiles: FloatArray) -> FloatArray:
    centre = np.arcsin(np.sqrt(np.clip(shares - bias, 0, 1)))
    inside = np.clip(shares, 0, 1)
    reach = quantiles * _divide(errors, 2 * np.sqrt(inside * (1 - inside)))
    ends: FloatArray = np.sin(np.clip([centre - reach, centre + reach], 0, pi / 2)) ** 2
    return ends


def _divide(a: FloatArray, b: FloatArray) -> FloatArray:
    quotient: FloatArray = np.divide(a, b, out=np.full(np.shape(a), inf), where=b > 0)
    return quotient
