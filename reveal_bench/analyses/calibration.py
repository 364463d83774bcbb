"""Calibration and usefulness of stated probabilities, for one group of cases at a time.

Conventions
-----------
`probabilities` are probabilities of an event in [0, 1], `happened` is True for cases with the event; both are
(n_cases,), with at least one case.

* Brier score: mean of (probability - outcome)^2, in [0, 1]; always stating the event's rate r scores r (1 - r).
* Reliability: cases are grouped into bins by their probability; each bin has a mean probability and a rate of the
  event.
* Expected calibration error (ECE): mean over the cases of their bin's |mean probability - rate|, in [0, 1]. It depends
  on the bins and is above 0 even for correct probabilities, especially with few cases.
* Recalibration: the logistic regression of the event on logit(probability), by maximum likelihood. Its slope is 1 for
  correct probabilities, below 1 if they are too extreme, and above 1 if they are not extreme enough. The intercept is
  that of a regression whose slope is fixed at 1 (calibration-in-the-large): 0 for correct probabilities, below 0 if
  they are too high.
* Risk and coverage: if only the most confident cases are answered, coverage is their proportion and risk the proportion
  of wrong answers among them. The area under that curve (AURC) is the mean of the risks with 1, 2, ... n answers.
* Net benefit of acting if the probability is at least t: (TP - FP t / (1 - t)) / n; at most the rate of the event.

Sources: Brier (1950), Mon. Weather Rev. 78; Cox (1958), Biometrika 45; Van Calster et al. (2019), BMC Med. 17; Murphy
and Winkler (1977), Appl. Stat. 26; Naeini, Cooper and Hauskrecht (2015), AAAI; Geifman and El-Yaniv (2017), NeurIPS;
Vickers and Elkin (2006), Med. Decis. Making 26.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from reveal_bench.arguments import PROBABILITY_RULE, ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.intervals import Estimate

Binning = Literal["width", "count"]
_MOST_BINS = 100
_MOST_STEPS = 100  # iterations of Newton's method, which needs about ten


@dataclass(frozen=True, slots=True)
class Bin:
    """Cases with similar probabilities.

    Attributes
    ----------
    low, high : bounds of the bin; for bins of equal counts, the lowest and the highest probability in it
    n : number of cases, at least one
    said : mean probability of the cases
    rate : proportion of the cases with the event; without interval from :func:`reliability`
    """

    low: float
    high: float
    n: int
    said: float
    rate: Estimate


def reliability(
    probabilities: FloatArray, happened: BoolArray, *, n_bins: int = 10, binning: Binning = "width"
) -> list[Bin]:
    """Return the bins that have cases, in order of rising probability.

    Parameters
    ----------
    binning : "width" for bins of equal width, each excluding its upper bound except the last; or "count" for bins of
        counts as equal as possible, with equal probabilities in the same bin

    Raises
    ------
    ArgumentError
        If the input is empty, a probability is outside [0, 1], or an option breaks its rule.

    Examples
    --------
    >>> p, y = np.array([0.1, 0.15, 0.8, 0.9]), np.array([False, True, True, True])
    >>> [(one.n, round(one.said, 3), one.rate.value) for one in reliability(p, y, n_bins=2)]
    [(2, 0.125, 0.5), (2, 0.85, 1.0)]
    """
    _check(probabilities, happened)
    if isinstance(n_bins, bool) or not isinstance(n_bins, int) or not 1 <= n_bins <= _MOST_BINS:
        raise ArgumentError("n_bins", f"must be a whole number in [1, {_MOST_BINS}]", repr(n_bins))
    if binning not in get_args(Binning):
        raise ArgumentError("binning", "must be 'width' or 'count'", repr(binning))
    if binning == "width":
        places = np.searchsorted(np.arange(1, n_bins) / n_bins, probabilities, side="right")
    else:
        values, first = np.unique(np.sort(probabilities), return_index=True)
        places = (first * n_bins // len(probabilities))[np.searchsorted(values, probabilities)]
    bins = []
    for place in np.unique(places):
        own = probabilities[places == place]
        ends = (place / n_bins, (place + 1) / n_bins) if binning == "width" else (own.min(), own.max())
        rate = Estimate(float(happened[places == place].mean()))
        bins.append(Bin(float(ends[0]), float(ends[1]), len(own), float(own.mean()), rate))
    return bins


def calibration_error(bins: list[Bin]) -> float:
    """Return the expected calibration error with these bins.

    Examples
    --------
    >>> round(calibration_error([Bin(0.0, 0.5, 3, 0.2, Estimate(0)), Bin(0.5, 1.0, 1, 0.9, Estimate(1))]), 3)
    0.175
    """
    return sum(one.n * abs(one.said - one.rate.value) for one in bins) / sum(one.n for one in bins)


@dataclass(frozen=True)
class Recalibration:
    """Logistic recalibration of stated probabilities.

    Attributes
    ----------
    slope : maximum-likelihood slope of the event on logit(probability), with its own intercept
    intercept : calibration-in-the-large: the maximum-likelihood intercept with the slope fixed at 1
    reason : reason why the slope, or both, are NaN; empty if both are defined
    slopes, intercepts : float arrays (n_units,), slope and intercept without each unit in turn, by one Newton step from
        the fit of all cases; NaN if the value is undefined
    """

    slope: float
    intercept: float
    reason: str
    slopes: FloatArray
    intercepts: FloatArray


def recalibration(
    probabilities: FloatArray, happened: BoolArray, *, units: IntArray | None = None, n_units: int | None = None
) -> Recalibration:
    """Return the logistic recalibration of one group of cases.

    Probabilities are not clipped: slope and intercept are undefined if a probability is 0 or 1, which has no logit.
    Slope and intercept are also undefined if all cases have the event, or if no case has it. The slope alone is
    undefined if all probabilities are equal, or if a threshold separates the cases with the event from the others, ties
    at the threshold allowed, because the likelihood then has no maximum.

    Parameters
    ----------
    units : int array (n_cases,), in [0, n_units), such as patients; by default, every case is its own unit

    Raises
    ------
    ArgumentError
        If the input is empty, the lengths differ or a probability is outside [0, 1].

    Examples
    --------
    Two groups have probabilities of 1/5 and 4/5, and rates of 1/3 and 2/3: the logits, -log 4 and log 4, should be
    -log 2 and log 2.

    >>> fit = recalibration(np.array([0.2] * 3 + [0.8] * 3), np.array([1, 0, 0, 1, 1, 0], bool))
    >>> round(fit.slope, 6), abs(round(fit.intercept, 6))
    (0.5, 0.0)
    """
    _check(probabilities, happened)
    n_cases = len(probabilities)
    units = np.arange(n_cases) if units is None else units
    n_units = n_cases if n_units is None else n_units
    undefined = np.full(n_units, np.nan)
    if ((probabilities == 0) | (probabilities == 1)).any():
        return Recalibration(np.nan, np.nan, "a probability is 0 or 1", undefined, undefined)
    if happened.all() or not happened.any():
        reason = "all cases have the event" if happened.all() else "no case has the event"
        return Recalibration(np.nan, np.nan, reason, undefined, undefined)
    logits = np.log(probabilities) - np.log1p(-probabilities)
    ones = np.ones((n_cases, 1))
    (intercept,), without = _logistic(ones, logits, happened, units, n_units)
    reason = _no_slope(logits, happened)
    if reason:
        return Recalibration(np.nan, float(intercept), reason, undefined, without[:, 0])
    # standardised, so that both columns have the same scale
    centre, scale = float(logits.mean()), float(logits.std())
    columns = np.column_stack([ones, (logits - centre) / scale])
    (_, slope), slopes = _logistic(columns, np.zeros(n_cases), happened, units, n_units)
    return Recalibration(float(slope / scale), float(intercept), "", slopes[:, 1] / scale, without[:, 0])


def _no_slope(logits: FloatArray, happened: BoolArray) -> str:
    """Return the reason why the likelihood of a slope has no unique maximum; empty if there is a unique maximum."""
    with_event, without = logits[happened], logits[~happened]
    if logits.min() == logits.max():
        return "all probabilities are equal"
    if with_event.min() >= without.max() or with_event.max() <= without.min():
        return "a threshold separates the cases with the event from the others"
    return ""


def _logistic(
    columns: FloatArray, offsets: FloatArray, happened: BoolArray, units: IntArray, n_units: int
) -> tuple[FloatArray, FloatArray]:
    """Return the maximum-likelihood coefficients, and those without each unit by one Newton step, (n_units, k)."""
    k = columns.shape[1]
    coefficients = np.zeros(k)

    def log_likelihood(at: FloatArray) -> float:
        linear = offsets + columns @ at
        return float((happened * linear - np.logaddexp(0, linear)).sum())

    for _ in range(_MOST_STEPS):
        errors, weights = _residuals(offsets + columns @ coefficients, happened)
        step = np.linalg.solve(columns.T @ (weights[:, None] * columns), columns.T @ errors)
        before = log_likelihood(coefficients)
        while log_likelihood(coefficients + step) < before - 1e-12 * abs(before):
            step /= 2
        coefficients = coefficients + step
        if np.abs(step).max() <= 1e-12 * max(1.0, np.abs(coefficients).max()):
            break
    errors, weights = _residuals(offsets + columns @ coefficients, happened)
    scores, informations = np.zeros((n_units, k)), np.zeros((n_units, k, k))
    np.add.at(scores, units, errors[:, None] * columns)
    np.add.at(informations, units, weights[:, None, None] * columns[:, :, None] * columns[:, None, :])
    remaining = informations.sum(axis=0) - informations
    is_regular = np.linalg.det(remaining) > 1e-12 * np.linalg.det(informations.sum(axis=0))
    without = np.full((n_units, k), np.nan)
    steps = np.linalg.solve(remaining[is_regular], scores[is_regular][:, :, None])[:, :, 0]
    without[is_regular] = coefficients - steps
    return coefficients, without


def _residuals(linear: FloatArray, happened: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return, for each case, the event minus its probability, and the variance of the event."""
    chance = np.exp(-np.logaddexp(0, -linear))
    return happened - chance, chance * np.exp(-np.logaddexp(0, linear))


def risk_coverage(sureness: FloatArray, right: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return coverage and risk at each level of confidence, if all cases at least as confident are answered,
    (n_levels,) each.

    Cases of equal confidence are answered together; the last coverage is 1.

    Examples
    --------
    >>> coverage, risk = risk_coverage(np.array([0.9, 0.6, 0.6, 0.8]), np.array([True, False, True, True]))
    >>> coverage.tolist(), risk.tolist()
    ([0.25, 0.5, 1.0], [0.0, 0.0, 0.25])
    """
    _check(sureness, right, names=("sureness", "right"))
    order = np.argsort(-sureness, kind="stable")
    last = np.flatnonzero(np.append(np.diff(sureness[order]) != 0, True))
    answered = last + 1
    wrong = np.cumsum(~right[order])[last]
    return answered / len(right), wrong / answered


def area_under_risk(sureness: FloatArray, right: BoolArray) -> float:
    """Return the mean risk of answering the 1, 2, ... n most confident cases; ties are averaged over their orders.

    Examples
    --------
    >>> round(area_under_risk(np.array([0.9, 0.5]), np.array([True, False])), 3)  # (0/1 + 1/2) / 2
    0.25
    """
    coverage, risk = risk_coverage(sureness, right)
    n = len(right)
    answered = np.rint(np.concatenate([[0], coverage * n]))
    wrong = np.rint(np.concatenate([[0], coverage * risk * n]))
    each = np.arange(1, n + 1)
    return float((np.interp(each, answered, wrong) / each).mean())


def net_benefits(probabilities: FloatArray, happened: BoolArray, thresholds: FloatArray) -> FloatArray:
    """Return each case's contribution to the net benefit of acting at or above each threshold, (n_cases, n_thresholds).

    The mean over the cases is the net benefit; thresholds are inside (0, 1).

    Examples
    --------
    >>> p, y = np.array([0.9, 0.6, 0.1]), np.array([True, False, True])
    >>> net_benefits(p, y, np.array([0.2, 0.5])).mean(axis=0).round(4).tolist()  # (1 - 1/4) / 3, (1 - 1) / 3
    [0.25, 0.0]
    """
    _check(probabilities, happened)
    if not ((thresholds > 0) & (thresholds < 1)).all():
        raise ArgumentError("thresholds", "must be between 0 and 1, both excluded", thresholds.tolist())
    acted = probabilities[:, None] >= thresholds
    return np.where(acted, np.where(happened[:, None], 1.0, -thresholds / (1 - thresholds)), 0.0)


def _check(
    probabilities: FloatArray, happened: BoolArray, names: tuple[str, str] = ("probabilities", "happened")
) -> None:
    if len(probabilities) == 0 or probabilities.shape != happened.shape:
        shapes = f"{probabilities.shape} and {happened.shape}"
        raise ArgumentError(names[0], f"must be as many as `{names[1]}`, at least one", shapes, (names[1],))
    outside = probabilities[~((probabilities >= 0) & (probabilities <= 1))]
    if len(outside):
        raise ArgumentError(names[0], PROBABILITY_RULE, outside[0])
