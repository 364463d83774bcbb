"""Scores of detectors after matching marks with lesions: by rank, at a threshold, and in bootstrap replicates.

Scores are computed for one finding (:class:`Matched`): from the images in which its presence and location are known,
marks with confidences, lesions, and the lesion that each mark hits by each rule
(:mod:`reveal_bench.metrics.detection_matching`). A replicate gives each image a whole number as its weight, the number
of draws of its patient. The replicate's score is that of a dataset that contains each image as often (for marks on one
image with the same score, all copies of one precede all copies of the next); nothing is matched or sorted again.
Undefined values are NaN.

Scores
------
* average precision at an IoU: COCO's, the mean over the recalls 0, 0.01, ..., 1 of the best precision at that recall or
  a higher one. Marks of equal score are in the order of the images, then of the file. Undefined without a lesion.
* average precision of PASCAL VOC at an IoU: the area under the best precision at each recall or a higher one, with hits
  by VOC's rule (:mod:`reveal_bench.metrics.detection_matching`). Undefined without a lesion.
* FROC: the curve of the proportion of lesions found against false alarms per image over all thresholds, whose points
  are joined by straight lines. A mark that hits no lesion is a false alarm; further marks on the same lesion count
  neither as hits nor as false alarms. Undefined without a lesion.
* AFROC and wAFROC: how often a lesion is scored above the highest false alarm of an image without the finding. An
  unmarked lesion or image is below all marks; ties count half. In wAFROC each image with the finding has equal weight
  (Chakraborty 2017, chapters 13 and 14). Undefined without a lesion or without an image free of lesions.
* LROC: as wAFROC, but an image with the finding has only its highest mark, and only if that mark hits (Swensson 1996).
* image AUROC: AUROC of the highest mark on each image, wherever it is; an image without a mark scores 0. Undefined
  without a lesion or without an image free of lesions.
* at a threshold fixed beforehand: the proportion of lesions found, and false alarms per image.
* panoptic quality of masks at a threshold, and its factors: recognition, TP / (TP + FP / 2 + FN / 2), and segmentation,
  the mean IoU of the matched masks, whose IoU is above a half (Kirillov et al. 2019).
* RSNA's precision: true positives / (true + false positives + lesions missed) at a threshold, mean over IoU 0.4 to 0.75
  and over images that have a lesion or a mark (RSNA Pneumonia Detection Challenge 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.masks import kernels
from reveal_bench.metrics.bootstrap import weighted_sums
from reveal_bench.metrics.detection_matching import (
    CENTRE,
    RULES,
    VOC_RULES,
    Hits,
    box_overlaps,
    match_marks,
    match_masks,
)

FROC_RATES = {
    "froc_0125": 0.125,
    "froc_025": 0.25,
    "froc_05": 0.5,
    "froc_1": 1.0,
    "froc_2": 2.0,
    "froc_4": 4.0,
    "froc_8": 8.0,
}
"""False alarms per image at which sensitivity is reported; CPM is the mean of these sensitivities (LUNA16)."""
VOC_METRICS = {f"voc_ap_{rule.removeprefix('voc_')}": rule for rule in VOC_RULES}
"""Average precision of PASCAL VOC -> its rule of matching."""
RANKED = ("ap_40", "ap_50", "ap", *VOC_METRICS, *FROC_RATES, "cpm", "afroc", "wafroc", "lroc", "image_auroc")
"""Metrics that depend on the order of marks; all other metrics depend on a threshold fixed beforehand."""
_AT_ONCE = 1 << 22  # largest number of values in memory for a block of replicates

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Matched:
    """Marks and lesions of one finding.

    Attributes
    ----------
    units : int array (n_images,), the resampled patient (or image) of each image for which the finding is known
    mark_image : int array (n_marks,), in [0, n_images); marks come in the order of the images, then of the file
    score : float array (n_marks,)
    hit : int32 array (n_rules, n_marks), a row for each of RULES: index of the lesion, or -1
    lesion_image : int array (n_lesions,)
    threshold : lowest score at which a mark counts, for metrics at a threshold
    mask_hit, mask_iou : int32 and float arrays (n_marks,), the lesion whose mask each mark matches, and their IoU; None
        without masks
    by : row of `hit` that decides hits for FROC, related metrics and metrics at a threshold
    """

    units: IntArray
    mark_image: IntArray
    score: FloatArray
    hit: Hits
    lesion_image: IntArray
    threshold: float = 0.5
    mask_hit: Hits | None = None
    mask_iou: FloatArray | None = None
    by: int = CENTRE

    @property
    def n_images(self) -> int:
        """Number of images for which the finding is known."""
        return len(self.units)

    @property
    def n_lesions(self) -> int:
        """Number of instances of the finding."""
        return len(self.lesion_image)


def detection_figures(matched: Matched, metrics: Sequence[str], counts: Weights) -> dict[str, tuple[float, FloatArray]]:
    """Return the metrics of one finding, in the data and in replicates.

    Parameters
    ----------
    metrics : any of :data:`RANKED`, and ``rsna_precision``, ``lesion_sensitivity``, ``false_alarms``
    counts : float32 array (n_resamples, n_units), how often each unit is drawn

    Returns
    -------
    dict from metric to (value, replicates (n_resamples,)); NaN if undefined

    Raises
    ------
    ValueError
        If a metric is unknown.
    """
    unknown = [name for name in metrics if name not in _FIGURES]
    if unknown:
        raise ArgumentError("metrics", f"must be among {list(_FIGURES)}", unknown)
    makers = dict.fromkeys(_FIGURES[name] for name in metrics)
    prepared = [maker(matched) for maker in makers]
    parts: dict[str, list[FloatArray]] = {name: [] for name in metrics}
    for weights in _blocks(matched, counts):
        made = {name: column for figure in prepared for name, column in figure(weights).items()}
        for name in metrics:
            parts[name].append(made[name])
    columns = {name: np.concatenate(blocks) for name, blocks in parts.items()}
    return {name: (float(column[0]), column[1:]) for name, column in columns.items()}


def detection_figure(
    predictions: Sequence[Sequence[tuple[Sequence[float], float]]],
    references: Sequence[Sequence[Sequence[float]]],
    *,
    metric: str,
    threshold: float = 0.5,
) -> float:
    """Return one metric of one finding, computed from boxes.

    Parameters
    ----------
    predictions : per image, (box, score) of each mark; boxes are [x, y, width, height] in pixels, and are also used as
        masks
    references : per image, the box of each lesion
    metric : a metric of METRICS, family "lesions"
    threshold : lowest score at which a mark counts, for metrics at a threshold

    Returns
    -------
    float, NaN if undefined

    Raises
    ------
    ValueError
        If the lengths differ, a score is not finite or the metric is unknown.

    Examples
    --------
    One lesion is found, and the image without one has a false alarm that scores less.

    >>> box = [0, 0, 10, 10]
    >>> detection_figure([[(box, 0.9)], [(box, 0.6)]], [[box], []], metric="ap_50")
    1.0
    >>> detection_figure([[(box, 0.9)], [(box, 0.6)]], [[box], []], metric="false_alarms")
    0.5
    """
    if len(predictions) != len(references):
        rule = f"`predictions` must have the length of `references` ({len(references)})"
        raise ValueError(f"{rule}, got {len(predictions)}")
    n = len(references)
    image = np.repeat(np.arange(n), [len(marks) for marks in predictions])
    lesion_image = np.repeat(np.arange(n), [len(boxes) for boxes in references])
    boxes = np.array([box for marks in predictions for box, _ in marks], np.float64).reshape(-1, 4)
    scores = np.array([score for marks in predictions for _, score in marks], np.float64)
    lesions = np.array([box for boxes in references for box in boxes], np.float64).reshape(-1, 4)
    hit = match_marks(boxes, boxes[:, :2] + boxes[:, 2:] / 2, scores, image, lesions, lesion_image)
    mark, lesion = (
        part.ravel() for part in np.meshgrid(np.arange(len(scores)), np.arange(len(lesions)), indexing="ij")
    )
    same = image[mark] == lesion_image[lesion]
    mark, lesion = mark[same], lesion[same]
    overlaps = box_overlaps(boxes[mark], lesions[lesion])
    masks = match_masks(overlaps, mark, lesion, scores, image, len(lesions))
    matched = Matched(np.arange(n), image, scores, hit, lesion_image, threshold, *masks)
    return detection_figures(matched, [metric], np.ones((0, n), np.float32))[metric][0]


def _blocks(matched: Matched, counts: Weights) -> Iterator[Weights]:
    """Yield weights (block, n_units): first for the data, with each unit counted once, then for the replicates."""
    n_units = counts.shape[1]
    step = max(8, _AT_ONCE // max(1, len(matched.score) + matched.n_images))
    yield np.ones((1, n_units), np.float32)
    for start in range(0, len(counts), step):
        yield counts[start : start + step]


Figure = Callable[[Weights], dict[str, FloatArray]]
"""Function from weights (n_replicates, n_units) to metric -> values (n_replicates,)."""


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    shares: FloatArray = np.divide(top, bottom, out=np.full(np.shape(bottom), np.nan), where=bottom > 0)
    return shares


def _summed(weights: Weights, units: IntArray, *columns: FloatArray | IntArray) -> FloatArray:
    """Return the sums of `columns` in every replicate, (n_columns, n_replicates); `units` are the rows' units."""
    of_units = [np.bincount(units, column, minlength=weights.shape[1]) for column in columns]
    sums: FloatArray = weighted_sums(weights, np.column_stack(of_units)).T
    return sums


def _counted(weights: Weights, units: IntArray) -> FloatArray:
    """Return how often all `units` together occur in each replicate, counting repetitions, (n_replicates,)."""
    sums: FloatArray = _summed(weights, units, np.ones(len(units)))[0]
    return sums


def _average_precisions(matched: Matched) -> Figure:
    order = np.argsort(-matched.score, kind="stable")
    hit = matched.hit[[RULES.index("iou_40"), *range(RULES.index("iou_50"), CENTRE)]][:, order] >= 0
    near = np.flatnonzero(hit.any(axis=0))
    units = matched.units[matched.mark_image[order]]
    hits, near_units, lesion_units = hit[:, near], units[near], matched.units[matched.lesion_image]
    rows = {"ap_40": [0], "ap_50": [1], "ap": list(range(1, len(hit)))}

    def figures(weights: Weights) -> dict[str, FloatArray]:
        n_lesions = _counted(weights, lesion_units)
        n_marks = kernels.running_weights(weights, units, near + 1)
        by_row = kernels.average_precisions(weights, near_units, hits, n_marks, np.maximum(n_lesions, 1))
        by_row[n_lesions == 0] = np.nan
        return {name: by_row[:, several].mean(axis=1) for name, several in rows.items()}

    return figures


def _voc_average_precisions(matched: Matched) -> Figure:
    order = np.argsort(-matched.score, kind="stable")
    units = matched.units[matched.mark_image[order]]
    lesion_units = matched.units[matched.lesion_image]
    places = {name: np.flatnonzero(matched.hit[RULES.index(rule), order] >= 0) for name, rule in VOC_METRICS.items()}

    def area(weights: Weights, places: IntArray) -> FloatArray:
        drawn = np.take(weights, units[places], axis=1).astype(np.float64)
        n_marks = kernels.running_weights(weights, units, places + 1)
        precision = np.cumsum(drawn, axis=1) / np.maximum(n_marks, 1)
        best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        return _ratio((drawn * best).sum(axis=1), _counted(weights, lesion_units))

    return lambda weights: {name: area(weights, own) for name, own in places.items()}


def precision_recall(matched: Matched, rule: str) -> tuple[FloatArray, FloatArray]:
    """Return recall and precision after each mark that hits under `rule`, by falling score, (n_hits,) each."""
    order = np.argsort(-matched.score, kind="stable")
    places = np.flatnonzero(matched.hit[RULES.index(rule), order] >= 0)
    true = np.arange(1, len(places) + 1)
    return true / max(matched.n_lesions, 1), true / (places + 1)


@dataclass(frozen=True)
class _Steps:
    """Steps of a FROC curve by falling score; marks of equal score form one step, lesions before false alarms.

    Attributes
    ----------
    lesions, alarms : indices of the marks that find lesions, and of false alarms
    lesion_stops, alarm_stops : numbers of these marks before, and up to, each score that finds a lesion, (2 *
        n_scores,)
    """

    lesions: IntArray
    alarms: IntArray
    lesion_stops: IntArray
    alarm_stops: IntArray

    @classmethod
    def of(cls, matched: Matched) -> _Steps:
        order = np.argsort(-matched.score, kind="stable")
        hit = matched.hit[matched.by, order]
        alarms = order[hit < 0]
        hitting = np.flatnonzero(hit >= 0)
        _, first = np.unique(hit[hitting], return_index=True)  # the best mark of each lesion
        lesions = order[hitting[np.sort(first)]]
        falling, scores = -matched.score[alarms], -np.unique(-matched.score[lesions])
        stops = [
            (np.searchsorted(-matched.score[lesions], -scores, side=side), np.searchsorted(falling, -scores, side=side))
            for side in ("left", "right")
        ]
        return cls(
            lesions,
            alarms,
            np.column_stack([stops[0][0], stops[1][0]]).ravel(),
            np.column_stack([stops[0][1], stops[1][1]]).ravel(),
        )


def _froc(matched: Matched) -> Figure:
    steps = _Steps.of(matched)
    lesion_units = matched.units[matched.mark_image[steps.lesions]]
    alarm_units = matched.units[matched.mark_image[steps.alarms]]
    all_lesions = matched.units[matched.lesion_image]

    def figures(weights: Weights) -> dict[str, FloatArray]:
        n_lesions, n_images = _counted(weights, all_lesions), _counted(weights, matched.units)
        true = kernels.running_weights(weights, lesion_units, steps.lesion_stops)
        false = kernels.running_weights(weights, alarm_units, steps.alarm_stops)
        made = {name: _ratio(_read_off(true, false, rate * n_images), n_lesions) for name, rate in FROC_RATES.items()}
        return {**made, "cpm": np.mean(list(made.values()), axis=0)}

    return figures


def _read_off(true: FloatArray, false: FloatArray, allowed: FloatArray) -> FloatArray:
    """Return the number of true positives on the curve at a number of false alarms, (n_replicates,).

    `true` and `false` (n_replicates, 2 n_scores) are the end points of the rising lines, one line for each score that
    finds a lesion. Between these lines, and after the last, the curve is level.
    """
    n_replicates, n = true.shape
    if n == 0:
        return np.zeros(n_replicates)
    row = np.arange(n_replicates)
    before = _counts_up_to(false, allowed)
    last, following = np.maximum(before - 1, 0), np.minimum(before, n - 1)
    y, x, y_next, x_next = true[row, last], false[row, last], true[row, following], false[row, following]
    rising = (before < n) & (y_next > y) & (x_next > x)
    share = np.divide(allowed - x, x_next - x, out=np.zeros(n_replicates), where=rising)
    return np.where(before > 0, y + share * (y_next - y), 0.0)


def _counts_up_to(rising: FloatArray, limits: FloatArray) -> IntArray:
    """Return how many numbers of each row are at most the row's limit, by bisection; rows must be ascending."""
    n_rows, n = rising.shape
    row, counts = np.arange(n_rows), np.zeros(n_rows, np.int64)
    for step in (1 << k for k in reversed(range(n.bit_length()))):
        further = np.minimum(counts + step, n)
        counts = np.where(rising[row, further - 1] <= limits, further, counts)
    return counts


def froc_points(matched: Matched) -> tuple[FloatArray, FloatArray]:
    """Return false alarms per image and the proportion of lesions found at every threshold, from (0, 0)."""
    steps = _Steps.of(matched)
    scores = -np.unique(-np.concatenate([matched.score[steps.lesions], matched.score[steps.alarms]]))
    n_false = np.searchsorted(np.sort(-matched.score[steps.alarms]), -scores, side="right")
    n_true = np.searchsorted(np.sort(-matched.score[steps.lesions]), -scores, side="right")
    alarms, share = n_false / max(matched.n_images, 1), n_true / max(matched.n_lesions, 1)
    return np.append(0.0, alarms), np.append(0.0, share)


def _areas(matched: Matched) -> Figure:
    """Return the areas under AFROC, wAFROC and LROC: how often a lesion, or image, outscores a negative image."""
    n_lesions = np.bincount(matched.lesion_image, minlength=matched.n_images)
    normal = np.flatnonzero(n_lesions == 0)
    alarm = np.full(matched.n_images, -np.inf)
    is_alarm = matched.hit[matched.by] < 0
    np.maximum.at(alarm, matched.mark_image[is_alarm], matched.score[is_alarm])
    lesion = np.full(matched.n_lesions, -np.inf)
    np.maximum.at(lesion, matched.hit[matched.by][~is_alarm], matched.score[~is_alarm])
    having = np.flatnonzero(n_lesions)
    best = np.full(matched.n_images, -np.inf)
    np.maximum.at(best, matched.mark_image, matched.score)
    hitting = np.full(matched.n_images, -np.inf)
    np.maximum.at(hitting, matched.mark_image[~is_alarm], matched.score[~is_alarm])
    is_right = (hitting == best) & (hitting > alarm) & np.isfinite(hitting)
    of_normal = matched.units[normal[np.argsort(alarm[normal], kind="stable")]]
    competing, place = np.unique(np.concatenate([lesion, hitting[having]]), return_inverse=True)
    # Numbers of false alarms below each score, and up to it
    stops = np.column_stack(_ranks(competing, alarm[normal])).ravel()
    units = np.concatenate([matched.units[matched.lesion_image], matched.units[having]])
    n, shares, counted = len(lesion), 1 / n_lesions[matched.lesion_image], is_right[having].astype(np.float64)

    def figures(weights: Weights) -> dict[str, FloatArray]:
        below = kernels.running_weights(weights, of_normal, stops)
        drawn = np.take(weights, units, axis=1)
        won = np.take((below[:, 0::2] + below[:, 1::2]) / 2, place, axis=1) * drawn
        n_normal, n_having = _counted(weights, of_normal), drawn[:, n:].sum(axis=1)
        return {
            "afroc": _ratio(won[:, :n].sum(axis=1), n_normal * drawn[:, :n].sum(axis=1)),
            "wafroc": _ratio(np.einsum("rk,k->r", won[:, :n], shares), n_normal * n_having),
            "lroc": _ratio(np.einsum("rk,k->r", won[:, n:], counted), n_normal * n_having),
        }

    return figures


def _image_auroc(matched: Matched) -> Figure:
    """Return how often an image with the finding has a higher score than an image without; ties count half."""
    score = np.where(np.bincount(matched.mark_image, minlength=matched.n_images) > 0, -np.inf, 0.0)
    np.maximum.at(score, matched.mark_image, matched.score)
    has_lesion = np.bincount(matched.lesion_image, minlength=matched.n_images) > 0
    having, normal = np.flatnonzero(has_lesion), np.flatnonzero(~has_lesion)
    of_having, of_normal = matched.units[having], matched.units[normal[np.argsort(score[normal], kind="stable")]]
    competing, place = np.unique(score[having], return_inverse=True)
    stops = np.column_stack(_ranks(competing, score[normal])).ravel()

    def figures(weights: Weights) -> dict[str, FloatArray]:
        below = kernels.running_weights(weights, of_normal, stops)
        drawn = np.take(weights, of_having, axis=1)
        won = np.take((below[:, 0::2] + below[:, 1::2]) / 2, place, axis=1) * drawn
        return {"image_auroc": _ratio(won.sum(axis=1), _counted(weights, of_normal) * drawn.sum(axis=1))}

    return figures


def _panoptic(detections: Matched) -> Figure:
    """Return panoptic quality and its two factors."""
    counted = detections.score >= detections.threshold
    n = detections.n_images
    if detections.mask_hit is None or detections.mask_iou is None:
        raise ArgumentError("metrics", "must leave out panoptic quality without masks", "pq, sq or rq")
    matched = counted & (detections.mask_hit >= 0)
    marks = detections.mark_image[counted]
    sums = (
        np.bincount(detections.mark_image[matched], detections.mask_iou[matched], minlength=n),
        np.bincount(detections.mark_image[matched], minlength=n),
        (np.bincount(marks, minlength=n) + np.bincount(detections.lesion_image, minlength=n)) / 2,
    )

    def figures(weights: Weights) -> dict[str, FloatArray]:
        # TP + FP / 2 + FN / 2 is half of all marks and lesions
        overlap, true, halves = _summed(weights, detections.units, *sums)
        return {"pq": _ratio(overlap, halves), "sq": _ratio(overlap, true), "rq": _ratio(true, halves)}

    return figures


def _ranks(values: FloatArray, others: FloatArray) -> tuple[IntArray, IntArray]:
    """Return how many of `others` are below each of `values`, and how many are not above."""
    ordered = np.sort(others)
    return np.searchsorted(ordered, values, side="left"), np.searchsorted(ordered, values, side="right")


def _at_threshold(matched: Matched) -> Figure:
    """Return a function of weights that computes the metrics at a threshold as ratios of sums over images."""
    counted = matched.score >= matched.threshold
    n = matched.n_images

    def per_image(images: IntArray) -> FloatArray:
        return np.bincount(images, minlength=n).astype(np.float64)

    centre = matched.hit[matched.by]
    found_lesions = np.unique(centre[counted & (centre >= 0)])
    n_found, n_lesions = per_image(matched.lesion_image[found_lesions]), per_image(matched.lesion_image)
    n_false = per_image(matched.mark_image[counted & (centre < 0)])
    n_marks = per_image(matched.mark_image[counted])
    shares = np.zeros(n)
    rows = range(RULES.index("iou_75") + 1)
    for row in rows:
        true = per_image(matched.mark_image[counted & (matched.hit[row] >= 0)])
        shares += np.divide(true, n_marks + n_lesions - true, out=np.zeros(n), where=n_marks + n_lesions > 0)
    sums = (n_found, n_lesions, n_false, np.ones(n), shares / len(rows), (n_marks + n_lesions > 0).astype(np.float64))

    def figures(weights: Weights) -> dict[str, FloatArray]:
        true, lesions, false, images, precision, judged = _summed(weights, matched.units, *sums)
        return {
            "lesion_sensitivity": _ratio(true, lesions),
            "false_alarms": _ratio(false, images),
            "rsna_precision": _ratio(precision, judged),
        }

    return figures


_FIGURES: dict[str, Callable[[Matched], Figure]] = {
    **dict.fromkeys(("ap_40", "ap_50", "ap"), _average_precisions),
    **dict.fromkeys(VOC_METRICS, _voc_average_precisions),
    **dict.fromkeys((*FROC_RATES, "cpm"), _froc),
    **dict.fromkeys(("afroc", "wafroc", "lroc"), _areas),
    "image_auroc": _image_auroc,
    **dict.fromkeys(("pq", "sq", "rq"), _panoptic),
    **dict.fromkeys(("rsna_precision", "lesion_sensitivity", "false_alarms"), _at_threshold),
}
