"""Operating points: thresholds of a score chosen by a criterion, and the rates at these thresholds.

A case is called positive if its score is at least the threshold. Candidate thresholds are the scores that occur, so
equal scores are always on the same side. The threshold that is reported is between the chosen score and the next lower
one (:meth:`Cuts.threshold`). Calling no case positive is also a point of the ROC curve, but not a
threshold.

Criteria
--------
* "sensitivity", "specificity", "ppv" with a target: among the thresholds whose rate is at least the target, the one
  with the highest specificity (if the target is a sensitivity) or the highest sensitivity (if it is a specificity or
  PPV); of several, the one with the highest rate of the targeted kind
* "youden": the highest sensitivity + specificity - 1, which must be above 0; "cohen_kappa" likewise
* "f1": the highest F1

If several thresholds have the same Youden's index, kappa or F1, the highest threshold is chosen.

Predictive values at another prevalence follow from sensitivity and specificity by Bayes' theorem. Intervals of
predictive values combine the intervals of sensitivity and specificity by the method of variance estimates recovery
(MOVER).

Sources: Youden 1950, Cancer 3; Donner and Zou 2012, Stat Methods Med Res 21 (ratio of two independent estimates).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.agreement import divide

CriterionName = Literal["f1", "youden", "cohen_kappa", "sensitivity", "specificity", "ppv"]
RATES = ("sensitivity", "specificity", "ppv", "npv")
"""Rates at a threshold, in the order of the last axis of :meth:`Cuts.rates`."""
_TARGETED = ("sensitivity", "specificity", "ppv")
_TITLES = {"f1": "highest F1", "youden": "highest Youden's index", "cohen_kappa": "highest Cohen's kappa"}
_NO_THRESHOLD = {
    "youden": "no threshold has a Youden's index above 0",
    "cohen_kappa": "no threshold has a kappa above 0",
    "specificity": "no threshold reaches the target with a true positive",
    "ppv": "no threshold reaches the target",
}
Bounded = tuple[float, float, float]
"""Rate with the bounds of its interval."""
_EXACT = 1e-12  # targets such as 0.9 are not exact in binary


@dataclass(frozen=True, slots=True)
class Criterion:
    """Rule that chooses a threshold.

    Attributes
    ----------
    name : {"f1", "youden", "cohen_kappa", "sensitivity", "specificity", "ppv"}
    target : smallest allowed value of the rate, in (0, 1]; only for "sensitivity", "specificity" and "ppv"

    Examples
    --------
    >>> Criterion("youden").in_words, Criterion("sensitivity", 0.9).in_words
    ("highest Youden's index", 'sensitivity of at least 0.9')
    """

    name: CriterionName
    target: float | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(CriterionName):
            raise ArgumentError("metric", f"must be one of {', '.join(_TITLES)}", repr(self.name))
        if (self.name in _TARGETED) != (self.target is not None):
            rule = f"must be given for {', '.join(_TARGETED)}, and only for these"
            raise ArgumentError("target", rule, f"{self.target} for {self.name}")
        if self.target is not None and not 0 < self.target <= 1:
            raise ArgumentError(self.name, "must be in (0, 1]", self.target)

    @property
    def in_words(self) -> str:
        """Rule in words."""
        if self.target is None:
            return _TITLES[self.name]
        return f"{'PPV' if self.name == 'ppv' else self.name} of at least {self.target:g}"


@dataclass(frozen=True)
class Cuts:
    """Numbers of cases called positive at every candidate threshold of one finding, in the data or in replicates.

    Attributes
    ----------
    thresholds : float array (n_cuts,), the scores that occur, falling
    tp, fp : float arrays (..., n_cuts), numbers of cases called positive, with the finding and without it
    n_positive, n_negative : float arrays (...,)
    """

    thresholds: FloatArray
    tp: FloatArray
    fp: FloatArray
    n_positive: FloatArray
    n_negative: FloatArray

    def choose(self, criterion: Criterion) -> IntArray:
        """Return the index of the chosen threshold, (...,); -1 if there is none, such as for cases of only one class or
        with equal scores.
        """
        tp, fp, p, n = self.tp, self.fp, self.n_positive[..., None], self.n_negative[..., None]
        target = criterion.target or 0.0
        if criterion.name == "sensitivity":
            # Choose the last of the thresholds with the fewest false positives, because sensitivity does not fall along
            # the axis
            value = np.where(tp >= (target - _EXACT) * p, -fp, -np.inf)
            index = tp.shape[-1] - 1 - np.argmax(value[..., ::-1], axis=-1)
        else:
            if criterion.name == "specificity":
                value = np.where((tp > 0) & (n - fp >= (target - _EXACT) * n), tp, -np.inf)
            elif criterion.name == "ppv":
                value = np.where((tp + fp > 0) & (tp >= (target - _EXACT) * (tp + fp)), tp, -np.inf)
            elif criterion.name == "f1":
                value = divide(2 * tp, tp + fp + p)
            else:
                value, total, called = tp * n - fp * p, p + n, tp + fp  # Youden's index times p times n
                if criterion.name == "cohen_kappa":
                    value = divide(value, p * total + total * called - 2 * p * called)
                value = np.where(value > 0, value, -np.inf)
            index = np.argmax(np.nan_to_num(value, nan=-np.inf), axis=-1)
        best = np.take_along_axis(value, index[..., None], axis=-1)[..., 0]
        possible = (self.n_positive > 0) & (self.n_negative > 0) & np.isfinite(best) & (len(self.thresholds) > 1)
        chosen: IntArray = np.where(possible, index, -1)
        return chosen

    def rates(self, chosen: IntArray, criterion: Criterion) -> FloatArray:
        """Return :data:`RATES` at the chosen thresholds, (..., 4); NaN where a rate is undefined.

        Without a threshold, all rates are NaN, with one exception: a target specificity is reached without a positive
        call. Then sensitivity is 0, specificity 1, and PPV undefined.
        """
        at = np.maximum(chosen, 0)[..., None]
        tp, fp = (np.take_along_axis(counts, at, axis=-1)[..., 0] for counts in (self.tp, self.fp))
        none = chosen < 0
        tp, fp = np.where(none, 0, tp), np.where(none, 0, fp)
        tn, fn = self.n_negative - fp, self.n_positive - tp
        rates = np.stack([divide(tp, tp + fn), divide(tn, tn + fp), divide(tp, tp + fp), divide(tn, tn + fn)], axis=-1)
        undefined = none & (criterion.name != "specificity") | (self.n_positive == 0) | (self.n_negative == 0)
        return np.where(undefined[..., None], np.nan, rates)

    def threshold(self, index: int) -> float:
        """Return a threshold between the candidate at `index` and the next lower one.

        It is the decimal number with the fewest digits in the middle half of the gap, so that scores which were stored
        as float16, float32 or text are on the same side. Below the lowest candidate, the gap extends to 0, or to 1 less
        for scores of at most 0; a score of 0 itself is the threshold if it is the lowest candidate.

        Examples
        --------
        >>> cuts = cuts_of(np.array([0.7471137642860413, 0.7421, -2.0]), np.array([True, False, True]))
        >>> cuts.threshold(0), cuts.threshold(1), cuts.threshold(2)
        (0.745, -0.6, -2.5)
        """
        upper = float(self.thresholds[index])
        is_lowest = index == len(self.thresholds) - 1
        if is_lowest and upper == 0:
            return 0.0
        lower = (0.0 if upper > 0 else upper - 1) if is_lowest else float(self.thresholds[index + 1])
        middle = lower + (upper - lower) / 2
        rounded = (float(f"{middle:.{digits}g}") for digits in range(1, 17))
        return next((one for one in rounded if abs(one - middle) <= (upper - lower) / 4), upper)

    @property
    def one_class(self) -> str:
        """Reason why one sample of data has no threshold if it has cases of only one class; empty if it has both."""
        return "no case has it" if not self.n_positive else "" if self.n_negative else "all cases have it"

    def why_none(self, criterion: Criterion) -> str:
        """Return the reason why a criterion gives no threshold on the data; empty if it gives one."""
        if self.one_class:
            return self.one_class
        if len(self.thresholds) == 1:
            return "all probabilities are equal"
        return _NO_THRESHOLD[criterion.name] if self.choose(criterion) < 0 else ""


def cuts_of(scores: FloatArray, present: BoolArray, weights: FloatArray | None = None) -> Cuts:
    """Return the candidate thresholds of one finding with the numbers of cases called positive.

    Parameters
    ----------
    scores : float array (n_cases,), at least one
    present : bool array (n_cases,), True for cases with the finding
    weights : float array (n_replicates, n_cases), how often each case is drawn; once by default

    Examples
    --------
    >>> cuts = cuts_of(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    >>> cuts.thresholds.tolist(), cuts.tp.tolist(), cuts.fp.tolist()
    ([0.8, 0.4, 0.35, 0.1], [1.0, 1.0, 2.0, 2.0], [0.0, 1.0, 1.0, 2.0])
    """
    if not len(scores):
        raise ArgumentError("scores", "must hold at least one case", "none")
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.flatnonzero(np.append(np.diff(ordered) != 0, True))  # of equal scores
    weight = np.ones(len(scores)) if weights is None else weights.astype(np.float64)
    positive = weight * present
    tp, fp = (part[..., order].cumsum(axis=-1)[..., last] for part in (positive, weight - positive))
    return Cuts(ordered[last], tp, fp, tp[..., -1], fp[..., -1])


def at_prevalence(sensitivity: ArrayLike, specificity: ArrayLike, prevalence: ArrayLike) -> FloatArray:
    """Return positive and negative predictive values at a prevalence, (..., 2); NaN if no case would be called so.

    Examples
    --------
    A test with sensitivity 0.9 and specificity 0.8 at a prevalence of 0.1: 0.09 / (0.09 + 0.18), 0.72 / (0.72 + 0.01)

    >>> at_prevalence(0.9, 0.8, 0.1).round(4).tolist()
    [0.3333, 0.9863]
    """
    se, sp, p = (np.asarray(values, np.float64) for values in (sensitivity, specificity, prevalence))
    tp, fp, tn, fn = p * se, (1 - p) * (1 - sp), (1 - p) * sp, p * (1 - se)
    return np.stack([divide(tp, tp + fp), divide(tn, tn + fn)], axis=-1)


def ratio_bounds(top: Bounded, bottom: Bounded) -> tuple[float, float]:
    """Return the bounds of the ratio of two independent estimates that are not negative.

    The upper bound is infinite if the lower bound of `bottom` is 0.
    """
    (a, a_low, a_high), (b, b_low, b_high) = top, bottom
    product = a * b
    least = a_low * (2 * a - a_low)
    root = math.sqrt(max(0.0, product**2 - least * b_high * (2 * b - b_high)))
    low = least / (product + root) if product + root > 0 else 0.0
    divisor = b_low * (2 * b - b_low)
    root = math.sqrt(max(0.0, product**2 - a_high * (2 * a - a_high) * divisor))
    return low, (product + root) / divisor if divisor > 0 else math.inf


def predictive_bounds(
    sensitivity: Bounded, specificity: Bounded, prevalence: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the bounds of positive and of negative predictive value at a prevalence.

    PPV is ``1 / (1 + odds * (1 - specificity) / sensitivity)``, with the odds against the finding; NPV is computed in
    the same way. The cases with and without the finding are assumed to be independent.
    """
    odds = (1 - prevalence) / prevalence
    ppv = ratio_bounds(_complement(specificity), sensitivity)
    npv = ratio_bounds(_complement(sensitivity), specificity)
    return (1 / (1 + odds * ppv[1]), 1 / (1 + odds * ppv[0])), (1 / (1 + npv[1] / odds), 1 / (1 + npv[0] / odds))


def _complement(rate: Bounded) -> Bounded:
    value, low, high = rate
    return 1 - value, 1 - high, 1 - low
