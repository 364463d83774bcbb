"""Multi-label classification metrics, and their replicates by weighted counts.

Conventions
-----------
`predictions` and `references` are bool arrays (n_studies, n_labels), `scores` float arrays of the same shape, where a
higher score means that the label is more likely to be present. Probabilities become predictions by thresholds fixed
before scoring (:func:`apply_thresholds`). Undefined values are NaN and are left out of averages; results without
studies are NaN. `asked` (n_studies, n_labels) is False where a study has no reference for a label; None if it has all.

``average``: None, one value per label; "macro", unweighted mean over the labels that are defined; "micro", all
decisions pooled; "weighted", mean over the defined labels weighted by their positive references, for specificity and
NPV by their negative references (NaN without any); "samples", mean over the defined studies. Results have shape
(n_labels,) for None, and are a number otherwise.

Replicates: :func:`label_sums` adds up the counts that these metrics need for each resampled unit (patient).
``sums.resample(counts)`` computes the sums of every replicate by one matrix product. The ``*_from_sums`` functions
accept the sums of units or of replicates. :func:`ranking_replicates` weights the studies by the counts. All labels,
metrics and systems share the same :func:`~reveal_bench.metrics.bootstrap.resampling_counts`; replicates need no loop.

Metrics
-------
* :func:`multilabel_f1`, :func:`precision`, :func:`recall`    from true and false positives and false negatives
* :func:`specificity`, :func:`npv`                           recall and precision of the absence of labels
* :func:`balanced_accuracy`                                  mean of recall and specificity: the AUROC of decisions
* :func:`mcc`                                                Matthews' correlation of decisions with references
* :func:`exact_match`, :func:`hamming_loss`                  whole label sets; single decisions
* :func:`kappa_from_sums`                                    Cohen's kappa of predictions against references
* :func:`auroc`, :func:`average_precision`                   from scores, ties counted half and together, no thresholds

Source: scikit-learn's definitions, except for undefined values, which are NaN here (in scikit-learn 0 or 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from reveal_bench.arguments import PROBABILITY_RULE, ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.agreement import Counts, check_codes, divide, kappa_from_tables, resample_tables

Average = Literal["macro", "micro", "weighted", "samples"]
Ratio = Literal["f1", "precision", "recall", "specificity", "npv"]
Ranking = Literal["auroc", "average_precision"]

NAN = float("nan")


def multilabel_f1(
    predictions: ArrayLike, references: ArrayLike, *, average: Average | None = None, zero_division: float = NAN
) -> FloatArray:
    """Return F1 = 2 TP / (2 TP + FP + FN).

    Parameters
    ----------
    predictions, references : bool arrays (n_studies, n_labels)
    average : see the module docstring
    zero_division : NaN, 0 or 1
        Value for a label (study, pool) without a positive prediction or reference, for which F1 is undefined.

    Returns
    -------
    float array (n_labels,) or number in [0, 1], NaN if undefined

    Raises
    ------
    ValueError
        If shapes differ, a value is neither true nor false, or an option is unknown.

    Examples
    --------
    >>> multilabel_f1([[True, False], [False, False]], [[True, False], [True, False]]).round(3).tolist()
    [0.667, nan]
    """
    return ratio_from_sums("f1", label_sums(predictions, references).total, average, zero_division)


def precision(
    predictions: ArrayLike, references: ArrayLike, *, average: Average | None = None, zero_division: float = NAN
) -> FloatArray:
    """Return TP / (TP + FP); undefined without a positive prediction. Otherwise as :func:`multilabel_f1`.

    Examples
    --------
    >>> precision([[1, 0], [1, 1]], [[1, 0], [0, 1]]).tolist()
    [0.5, 1.0]
    """
    return ratio_from_sums("precision", label_sums(predictions, references).total, average, zero_division)


def recall(
    predictions: ArrayLike, references: ArrayLike, *, average: Average | None = None, zero_division: float = NAN
) -> FloatArray:
    """Return TP / (TP + FN); undefined without a positive reference. Otherwise as :func:`multilabel_f1`.

    Examples
    --------
    >>> recall([[1, 0], [0, 1]], [[1, 0], [1, 1]]).tolist()
    [0.5, 1.0]
    """
    return ratio_from_sums("recall", label_sums(predictions, references).total, average, zero_division)


def specificity(
    predictions: ArrayLike, references: ArrayLike, *, average: Average | None = None, zero_division: float = NAN
) -> FloatArray:
    """Return TN / (TN + FP); undefined without a negative reference. Otherwise as :func:`multilabel_f1`.

    Examples
    --------
    >>> specificity([[1, 0], [0, 1], [0, 0]], [[1, 0], [0, 1], [0, 1]]).tolist()
    [1.0, 1.0]
    >>> specificity([[1, 1], [0, 1], [0, 0]], [[1, 0], [0, 1], [0, 0]]).tolist()
    [1.0, 0.5]
    """
    return ratio_from_sums("specificity", label_sums(predictions, references).total, average, zero_division)


def npv(
    predictions: ArrayLike, references: ArrayLike, *, average: Average | None = None, zero_division: float = NAN
) -> FloatArray:
    """Return the negative predictive value, TN / (TN + FN); undefined without a negative prediction. Otherwise as
    :func:`multilabel_f1`.

    Examples
    --------
    >>> npv([[1, 0], [0, 0], [1, 1]], [[1, 0], [0, 1], [0, 1]]).tolist()
    [1.0, 0.5]
    """
    return ratio_from_sums("npv", label_sums(predictions, references).total, average, zero_division)


def balanced_accuracy(predictions: ArrayLike, references: ArrayLike, *, average: Average | None = None) -> FloatArray:
    """Return the mean of recall and specificity, which is the AUROC of the decisions.

    NaN if the references have only one class. `predictions` are a bool array (n_studies, n_labels); otherwise as for
    :func:`auroc`.

    Examples
    --------
    >>> balanced_accuracy([[1], [0], [1], [0]], [[1], [0], [0], [1]]).tolist()
    [0.5]
    """
    return auroc(check_codes("predictions", predictions, low=0, limit=2, n_dims=(2,)), references, average=average)


def mcc(
    predictions: ArrayLike, references: ArrayLike, *, average: Literal["macro", "micro"] | None = None
) -> FloatArray:
    """Return Matthews' correlation coefficient, the correlation of decisions with references.

    NaN if decisions or references have only one class. Otherwise as for :func:`multilabel_f1`.

    Examples
    --------
    >>> mcc([[1], [1], [0], [0]], [[1], [0], [0], [0]]).round(3).tolist()
    [0.577]
    """
    return mcc_from_sums(label_sums(predictions, references).total, average=average)


def exact_match(predictions: ArrayLike, references: ArrayLike) -> float:
    """Return the proportion of studies with all labels right, in [0, 1]. Arguments and errors as for
    :func:`multilabel_f1`.

    Examples
    --------
    >>> exact_match([[1, 0], [0, 1]], [[1, 0], [1, 1]])
    0.5
    """
    return float(exact_match_from_sums(label_sums(predictions, references).total))


def hamming_loss(predictions: ArrayLike, references: ArrayLike) -> float:
    """Return the proportion of wrong decisions, in [0, 1]. Arguments and errors as for :func:`multilabel_f1`.

    Examples
    --------
    >>> hamming_loss([[1, 0], [0, 1]], [[1, 0], [1, 1]])
    0.25
    """
    return float(hamming_from_sums(label_sums(predictions, references).total, average="micro"))


def auroc(scores: ArrayLike, references: ArrayLike, *, average: Average | None = None) -> FloatArray:
    """Return the area under the ROC curve: how often a positive outscores a negative, ties counting half.

    Parameters
    ----------
    scores : float array (n_studies, n_labels), finite (else a ValueError)
    references : bool array (n_studies, n_labels)
    average : None, "macro", "micro" or "weighted"

    Returns
    -------
    float array (n_labels,) or number in [0, 1]; NaN if the references have one class only

    Examples
    --------
    Three of the four pairs of a positive and a negative are in order:

    >>> auroc([[0.1], [0.4], [0.35], [0.8]], [[0], [0], [1], [1]]).tolist()
    [0.75]
    """
    once = np.ones((1, len(np.asarray(references))))
    return ranking_replicates("auroc", scores, references, once, average=average)[0, ...]


def average_precision(scores: ArrayLike, references: ArrayLike, *, average: Average | None = None) -> FloatArray:
    """Return the average precision; cases with equal scores rank together.

    NaN if the references have only one class. Otherwise as for :func:`auroc`.

    Examples
    --------
    >>> average_precision([[0.9], [0.8], [0.1]], [[1], [0], [1]]).round(3).tolist()
    [0.833]
    """
    once = np.ones((1, len(np.asarray(references))))
    return ranking_replicates("average_precision", scores, references, once, average=average)[0, ...]


_CUT_RULE = "must be in [0, 1], because the scores are probabilities"


def apply_thresholds(probabilities: ArrayLike, thresholds: ArrayLike = 0.5) -> BoolArray:
    """Return the predictions ``probabilities >= thresholds``; thresholds must be fixed before scoring.

    `probabilities` are (n_studies, n_labels), `thresholds` one number or (n_labels,). Values outside [0, 1], NaN and
    other shapes raise ValueError.
    """
    array, cut = np.asarray(probabilities, np.float64), np.asarray(thresholds, np.float64)
    if array.ndim != 2 or cut.shape not in ((), array.shape[1:]):
        shapes = f"{cut.shape} for `probabilities` {array.shape}"
        raise ArgumentError("thresholds", "must be () or (n_labels,) for (n_studies, n_labels)", shapes)
    for name, values, rule in (("probabilities", array, PROBABILITY_RULE), ("thresholds", cut, _CUT_RULE)):
        bad = values[~((values >= 0) & (values <= 1))]
        if len(bad):
            raise ArgumentError(name, rule, bad[0])
    return array >= cut


@dataclass(frozen=True)
class LabelSums:
    """Counts for decision metrics, which can be added, for each unit, each replicate, or in total.

    Attributes
    ----------
    confusion : float array (..., n_labels, 4)
        True positives, false positives, false negatives, true negatives.
    studies : float array (..., 2)
        Number of studies, and number of studies with all labels right.
    ratios : float array (..., 5, 2)
        For F1, precision, recall, specificity and NPV of single studies: their sum over the studies for which they are
        defined, and the number of these studies.
    """

    confusion: FloatArray
    studies: FloatArray
    ratios: FloatArray

    @cached_property
    def total(self) -> LabelSums:
        """Sum over the units, which is needed by every metric."""
        return LabelSums(self.confusion.sum(axis=0), self.studies.sum(axis=0), self.ratios.sum(axis=0))

    def left_out(self) -> LabelSums:
        """Return the counts without each unit in turn, for the jackknife."""
        total = self.total
        return LabelSums(total.confusion - self.confusion, total.studies - self.studies, total.ratios - self.ratios)

    def resample(self, counts: Counts) -> LabelSums:
        """Return the sums in every replicate of `counts` (n_resamples, n_units)."""
        confusion, studies = (resample_tables(counts, part) for part in (self.confusion, self.studies))
        ratios = counts @ self.ratios.reshape(len(self.ratios), math.prod(self.ratios.shape[1:]))
        return LabelSums(confusion, studies, ratios.reshape(len(counts), *self.ratios.shape[1:]))


def label_sums(
    predictions: ArrayLike,
    references: ArrayLike,
    *,
    units: ArrayLike | None = None,
    n_units: int | None = None,
    asked: BoolArray | None = None,
) -> LabelSums:
    """Return the counts of each resampled unit.

    Parameters
    ----------
    predictions, references : bool arrays (n_studies, n_labels)
    units : int array (n_studies,), values in [0, n_units); by default, each study is its own unit
    asked : bool array (n_studies, n_labels), False for labels of a study that do not count

    Raises
    ------
    ValueError
        If shapes differ, a value is neither true nor false, or a unit is out of range.
    """
    a = check_codes("predictions", predictions, low=0, limit=2, n_dims=(2,)).astype(np.bool_)
    b = check_pair("predictions", a, references)
    unit, n = _check_units(units, n_units, len(a))
    counts = np.ones(a.shape, np.bool_) if asked is None else asked
    outcomes = [part & counts for part in (a & b, a & ~b, ~a & b, ~(a | b))]
    per_study = np.stack([part.sum(axis=1) for part in outcomes], axis=-1).astype(np.float64)
    of_study = [_parts(ratio, per_study) for ratio in get_args(Ratio)]
    numerators, denominators = (np.stack(parts, axis=-1) for parts in zip(*of_study, strict=True))
    defined = denominators > 0
    values = np.divide(numerators, denominators, out=np.zeros_like(numerators), where=defined)
    studies = np.stack([np.ones(len(a)), ((a == b) | ~counts).all(axis=1)], axis=-1)
    ratios = np.stack([values, defined], axis=-1)
    # Each outcome is contiguous, because metrics sum whole outcomes, and contiguous sums are several times as fast
    confusion = np.moveaxis(np.stack([sum_by_unit(part, unit, n) for part in outcomes]), 0, -1)
    return LabelSums(confusion, *(sum_by_unit(part, unit, n) for part in (studies, ratios)))


def ratio_from_sums(
    metric: Ratio, sums: LabelSums, average: Average | None = None, zero_division: float = NAN
) -> FloatArray:
    """Return :func:`multilabel_f1` ("f1"), :func:`precision`, :func:`recall`, :func:`specificity` or :func:`npv` of
    sums; (..., n_labels) or (...).
    """
    _check_option("metric", metric, get_args(Ratio))
    _check_option("average", average, (None, "macro", "micro", "weighted", "samples"))
    if not (np.isnan(zero_division) or zero_division in (0, 1)):
        raise ArgumentError("zero_division", "must be NaN, 0 or 1", zero_division)
    if average == "samples":
        total, n_defined = np.moveaxis(sums.ratios[..., get_args(Ratio).index(metric), :], -1, 0)
        n_undefined = 0 if np.isnan(zero_division) else sums.studies[..., 0] - n_defined
        return divide(total + np.nan_to_num(zero_division) * n_undefined, n_defined + n_undefined)
    confusion = sums.confusion.sum(axis=-2) if average == "micro" else sums.confusion
    numerators, denominators = _parts(metric, confusion)
    values = np.where(denominators > 0, divide(numerators, denominators), zero_division)
    if average in (None, "micro"):
        return values
    supports = "specificity" if metric in ("specificity", "npv") else "recall"
    return _mean(values, _parts(supports, confusion)[1] if average == "weighted" else None)


def exact_match_from_sums(sums: LabelSums) -> FloatArray:
    """Return :func:`exact_match` from sums (...); shape (...)."""
    return divide(sums.studies[..., 1], sums.studies[..., 0])


def hamming_from_sums(sums: LabelSums, *, average: Literal["micro"] | None = None) -> FloatArray:
    """Return :func:`hamming_loss` from sums (...): per label (..., n_labels), or over all decisions (...)."""
    _check_option("average", average, (None, "micro"))
    loss = divide(sums.confusion[..., 1] + sums.confusion[..., 2], sums.confusion.sum(axis=-1))
    return loss if average is None else _mean(loss)


def kappa_from_sums(sums: LabelSums, *, average: Literal["macro", "micro"] | None = None) -> FloatArray:
    """Return Cohen's kappa of predictions against references (a consensus), in [-1, 1], from sums (...).

    Per label (..., n_labels), or (...): mean over defined labels ("macro"), all decisions pooled ("micro"). NaN for a
    label that predictions and references both call always present, or always absent.
    """
    _check_option("average", average, (None, "macro", "micro"))
    tables = tables_from_sums(sums)
    if average == "micro":
        return kappa_from_tables(tables.sum(axis=-3))
    kappa = kappa_from_tables(tables)
    return kappa if average is None else _mean(kappa)


def mcc_from_sums(sums: LabelSums, *, average: Literal["macro", "micro"] | None = None) -> FloatArray:
    """Return :func:`mcc` from sums (...): per label (..., n_labels), or (...): mean over defined labels ("macro"), all
    decisions pooled ("micro").
    """
    _check_option("average", average, (None, "macro", "micro"))
    values, _ = _correlations(sums.confusion.sum(axis=-2) if average == "micro" else sums.confusion)
    return _mean(values) if average == "macro" else values


def lowest_mcc(sums: LabelSums) -> FloatArray:
    """Return the lowest possible :func:`mcc` with as many positive references and decisions, (..., n_labels).

    Examples
    --------
    >>> lowest_mcc(label_sums([[1], [0], [0]], [[1], [0], [0]]).total).round(3).tolist()  # no overlap
    [-0.5]
    """
    return _correlations(sums.confusion)[1]


def _correlations(confusion: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return Matthews' correlation of (..., 4) TP, FP, FN, TN, and the lowest one with the same margins."""
    tp, fp, fn, tn = np.moveaxis(confusion, -1, 0)
    n, positive, called = tp + fp + fn + tn, tp + fn, tp + fp
    scale = np.sqrt(positive * (n - positive)) * np.sqrt(called * (n - called))
    fewest = np.maximum(positive + called - n, 0)
    return divide(n * tp - positive * called, scale), divide(n * fewest - positive * called, scale)


def tables_from_sums(sums: LabelSums) -> FloatArray:
    """Return the contingency tables of predictions (rows) and references from sums (...): (..., n_labels, 2, 2)."""
    tp, fp, fn, tn = np.moveaxis(sums.confusion, -1, 0)
    return np.moveaxis(np.stack([tn, fn, fp, tp]), 0, -1).reshape(*tp.shape, 2, 2)


def ratio_parts(metric: str, sums: LabelSums) -> FloatArray:
    """Return numerators and denominators (2, n_units, n_labels); a label's score is the ratio of their sums.

    Cohen's kappa is ``2 (n TP - P C) / (n P + n C - 2 P C)`` for n studies, of which P are positive and C are called
    positive. P and n are the same for all systems, so both parts of kappa are sums over units.

    Parameters
    ----------
    metric : {"f1", "precision", "recall", "specificity", "npv", "cohen_kappa"}
    sums : counts of each unit

    Examples
    --------
    >>> sums = label_sums([[1], [1], [0], [0]], [[1], [0], [0], [0]])
    >>> of_kappa, rows = ratio_parts("cohen_kappa", sums)
    >>> float(of_kappa.sum() / rows.sum()), float(kappa_from_sums(sums.total)[0])
    (0.5, 0.5)
    """
    if metric != "cohen_kappa":
        return np.stack(_parts(metric, sums.confusion))
    tp, fp, fn, _ = np.moveaxis(sums.confusion, -1, 0)
    studies, called = sums.confusion.sum(axis=-1), tp + fp
    n, positive = studies.sum(axis=0), (tp + fn).sum(axis=0)
    return np.stack([2 * (n * tp - positive * called), positive * studies + (n - 2 * positive) * called])


def ranking_influences(metric: Ranking, scores: FloatArray, positive: BoolArray) -> FloatArray:
    """Return the derivative of a ranking score by the weight of each study, (n_studies,); NaN for a single class."""
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return np.full(len(scores), np.nan)
    order = np.argsort(scores)
    lower, up_to = _counts_up_to(scores, positive, order)
    influences = np.empty(len(scores))
    if metric == "auroc":
        both = lower + up_to
        of_wins = both[1, positive] / 2 / n_negative, 1 - both[0, ~positive] / 2 / n_positive
        area = of_wins[0].mean()
        influences[positive], influences[~positive] = (
            (wins - area) / n for wins, n in zip(of_wins, (n_positive, n_negative), strict=True)
        )
        return influences
    below_p, below_n = lower[:, order[positive[order]]]  # in the order of the positives' scores
    above_p, above_n = n_positive - below_p, n_negative - below_n
    called = above_p + above_n
    precision = above_p / called
    lost, gained = (_sums_below((part / called**2)[:, None])[:, 0] for part in (above_p, above_n))
    at_most, own = up_to[0], precision[lower[0, positive]]  # positives whose precision depends on a study
    influences[~positive] = -lost[at_most[~positive]] / n_positive
    influences[positive] = (own - precision.mean() + gained[at_most[positive]]) / n_positive
    return influences


def _counts_up_to(scores: FloatArray, positive: BoolArray, order: IntArray) -> tuple[IntArray, IntArray]:
    """Return the numbers of positives and of negatives with a lower score than each study, and with a score at most as
    high: two int arrays (2, n_studies).
    """
    ordered, n_positive = scores[order], np.append(0, positive[order].cumsum())
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, len(scores))  # ends of runs of equal scores
    group = np.empty(len(scores), np.int64)
    group[order] = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    up_to = np.stack([n_positive[ends], ends - n_positive[ends]])
    lower = np.column_stack([[0, 0], up_to[:, :-1]])
    return lower[:, group], up_to[:, group]


def ranking_replicates(
    metric: Ranking,
    scores: ArrayLike,
    references: ArrayLike,
    counts: Counts,
    *,
    units: ArrayLike | None = None,
    average: Average | None = None,
    asked: BoolArray | None = None,
) -> FloatArray:
    """Return :func:`auroc` or :func:`average_precision` in every replicate, exactly; the counts weight the studies.

    Arguments and errors as for :func:`auroc`; `counts` (n_resamples, n_units), `units` and `asked` as for
    :func:`label_sums`.

    Returns
    -------
    float array (n_resamples, n_labels) for ``average=None``, else (n_resamples,); NaN if a replicate has one class
    """
    _check_option("metric", metric, get_args(Ranking))
    _check_option("average", average, (None, "macro", "micro", "weighted"))
    score = np.asarray(scores, np.float64)
    positive = check_pair("scores", score, references)
    if not np.isfinite(score).all():
        raise ArgumentError("scores", "must be finite", score[~np.isfinite(score)][0])
    unit, _ = _check_units(units, counts.shape[1], len(score))
    if average == "micro":
        unit = np.repeat(unit, score.shape[1])
        score, positive = score.reshape(-1, 1), positive.reshape(-1, 1)
        asked = None if asked is None else asked.reshape(-1, 1)
    values = np.empty((len(counts), score.shape[1]))
    step = max(1, 2**21 // max(1, len(score)))  # number of replicates at a time, with about 16 MB of weights
    for block in (slice(start, start + step) for start in range(0, len(counts), step)):
        weights = counts[block].T.astype(np.float64, order="C")[unit]
        for i in range(score.shape[1]):
            rows = slice(None) if asked is None else asked[:, i]
            values[block, i] = _rank(metric, score[rows, i], positive[rows, i], weights[rows])
    if average is None:
        return values
    if average != "weighted":
        return _mean(values)
    return _mean(values, counts @ sum_by_unit(positive if asked is None else positive & asked, unit, counts.shape[1]))


def _parts(metric: str, confusion: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return numerator and denominator (...) of a ratio, from (..., 4) TP, FP, FN, TN."""
    tp, fp, fn, tn = (confusion[..., i] for i in range(4))
    if metric == "f1":
        return 2 * tp, 2 * tp + fp + fn
    if metric in ("precision", "recall"):
        return tp, tp + (fp if metric == "precision" else fn)
    return tn, tn + (fp if metric == "specificity" else fn)


def _rank(metric: Ranking, scores: FloatArray, positive: BoolArray, weights: FloatArray) -> FloatArray:
    """Return AUROC or average precision (n_replicates,) of one label; `weights` (n_studies, n_replicates) of the
    studies.
    """
    rows = (np.flatnonzero(part) for part in (positive, ~positive))
    positives, negatives = (part[np.argsort(scores[part], kind="stable")] for part in rows)
    of_positive, of_negative, weight = scores[positives], scores[negatives], weights[positives]
    below_p, below_n = _sums_below(weight), _sums_below(weights[negatives])
    n_positive, n_negative = below_p[-1], below_n[-1]
    lower = below_n[np.searchsorted(of_negative, of_positive, side="left")]
    if metric == "auroc":
        lower_or_tied = below_n[np.searchsorted(of_negative, of_positive, side="right")]
        return divide((weight * (lower + lower_or_tied)).sum(axis=0), 2 * n_positive * n_negative)
    above_p = n_positive - below_p[np.searchsorted(of_positive, of_positive, side="left")]
    above_n = n_negative - lower
    at_least = np.divide(above_p, above_p + above_n, out=np.zeros_like(above_p), where=weight > 0)
    return np.where(n_negative > 0, divide((weight * at_least).sum(axis=0), n_positive), np.nan)


def _sums_below(weights: FloatArray) -> FloatArray:
    """Return the sum of the rows before each row, and of all rows."""
    return np.concatenate([np.zeros((1, weights.shape[1])), weights.cumsum(axis=0)])


def _mean(values: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the mean of the defined values over the last axis; NaN if no value has a weight."""
    weight = np.where(np.isnan(values), 0.0, 1.0 if weights is None else weights)
    return divide((np.where(weight > 0, values, 0.0) * weight).sum(axis=-1), weight.sum(axis=-1))


def sum_by_unit(values: npt.NDArray[Any], units: IntArray, n_units: int) -> FloatArray:
    """Return the sums (n_units, ...) of `values` (n_studies, ...)."""
    columns = values.reshape(len(values), math.prod(values.shape[1:]))
    sums = np.empty((n_units, columns.shape[1]))
    for i, column in enumerate(columns.T):
        sums[:, i] = np.bincount(units, column, n_units)
    return sums.reshape(n_units, *values.shape[1:])


def check_pair(name: str, values: npt.NDArray[Any], references: ArrayLike) -> BoolArray:
    """Return the references as a bool array of the shape of `values`, (n_studies, n_labels).

    Raises
    ------
    ValueError
        If the shapes differ, or a reference is neither true nor false.
    """
    labels = check_codes("references", references, low=0, limit=2, n_dims=(2,)).astype(np.bool_)
    if values.shape != labels.shape:
        raise ValueError(f"`{name}` must have the shape of `references` {labels.shape}, got {values.shape}")
    return labels


def _check_units(units: ArrayLike | None, n_units: int | None, n_studies: int) -> tuple[IntArray, int]:
    n = n_studies if n_units is None else n_units
    if units is None and n != n_studies:
        raise ArgumentError(
            "units", f"must be given unless there is one per study ({n_studies})", f"none for {n} units"
        )
    codes = check_codes("units", np.arange(n) if units is None else units, low=0, limit=n)
    if len(codes) != n_studies:
        raise ArgumentError("units", f"must have the length of `references` ({n_studies})", len(codes))
    return codes, n


def _check_option(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {value!r}")
