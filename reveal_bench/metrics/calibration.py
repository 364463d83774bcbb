"""Calibration and usefulness of stated probabilities, for one group of cases at a time.

Conventions
-----------
`probabilities` are probabilities of an event in [0, 1], `happened` is True for cases with the event; both are
(n_cases,), with at least one case.

* Brier score: mean of (probability - outcome)^2, in [0, 1]; always stating the event's rate r scores r (1 - r).
* Reliability: cases in bins of their probability; per bin the mean probability and the rate of the event.
* Expected calibration error (ECE): mean over the cases of their bin's |mean probability - rate|, in [0, 1]. It depends
  on the bins and is above 0 even for correct probabilities, the more so the fewer the cases.
* Risk and coverage: if only the most confident cases are answered, coverage is their proportion and risk the proportion
  of wrong answers among them. The area under that curve (AURC) is the mean of the risks with 1, 2, ... n answers.
* Net benefit of acting from a probability t on: (TP - FP t / (1 - t)) / n; at most the rate of the event.

Sources: Brier (1950), Mon. Weather Rev. 78; Murphy and Winkler (1977), Appl. Stat. 26; Naeini, Cooper and Hauskrecht
(2015), AAAI; Geifman and El-Yaniv (2017), NeurIPS; Vickers and Elkin (2006), Med. Decis. Making 26.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray

Binning = Literal["width", "count"]
_MOST_BINS = 100


@dataclass(frozen=True, slots=True)
class Bin:
    """Cases with similar probabilities.

    Attributes
    ----------
    low, high : bounds of the bin; for bins of equal counts, the lowest and the highest probability in it
    n : number of cases, at least one
    said : their mean probability
    rate : proportion of them with the event
    """

    low: float
    high: float
    n: int
    said: float
    rate: float


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
        If there is no case, a probability is outside [0, 1], or an option breaks its rule.

    Examples
    --------
    >>> p, y = np.array([0.1, 0.15, 0.8, 0.9]), np.array([False, True, True, True])
    >>> [(one.n, round(one.said, 3), one.rate) for one in reliability(p, y, n_bins=2)]
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
        rate = float(happened[places == place].mean())
        bins.append(Bin(float(ends[0]), float(ends[1]), len(own), float(own.mean()), rate))
    return bins


def calibration_error(bins: list[Bin]) -> float:
    """Return the expected calibration error with these bins.

    Examples
    --------
    >>> round(calibration_error([Bin(0.0, 0.5, 3, 0.2, 0.0), Bin(0.5, 1.0, 1, 0.9, 1.0)]), 3)
    0.175
    """
    return sum(one.n * abs(one.said - one.rate) for one in bins) / sum(one.n for one in bins)


def risk_coverage(sureness: FloatArray, right: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return coverage and risk if all cases at least as confident as some case are answered, (n_levels,) each.

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
    """Return each case's contribution to the net benefit of acting from a threshold on, (n_cases, n_thresholds).

    Their mean is the net benefit; thresholds are inside (0, 1).

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
        raise ArgumentError(names[0], "must be in [0, 1]", outside[0])
