"""Matching of a detector's marks with lesions, under several rules at once.

Conventions
-----------
A *mark* is a detector's prediction on an image: a box with a score, or a point. A *lesion* is an instance in the
reference, given as a box. Boxes are [x, y, width, height] float64 in pixels, see :mod:`reveal_bench.geometry`. Marks
and lesions are compared within the same *case*, a pair of an image and a finding that is coded as a whole number.

* ``iou_40`` ... ``iou_95``: marks are processed by falling score, and marks of equal score in their order. Each mark
  takes the free lesion with the largest IoU (the last of equal ones) if this IoU is at least the threshold: the greedy
  rule of COCO's evaluation.
* ``centre``: the point of a mark, or the centre of its box, is in the lesion's box; if in several, the lesion with the
  nearest centre is hit. A lesion may be hit by several marks, of which the best counts (FROC, as LUNA16 and MONAI
  count).
* ``iobb_50``: at least half of the mark's box is in the lesion's box, for findings with generous boxes; if in several,
  the lesion that contains most of the box is hit. Otherwise as ``centre``.
* ``mask``: the point of a mark, or the centre of its box, is in the lesion's mask (:func:`match_points`). Several marks
  may hit a lesion, as for ``centre``. Without masks, no mark hits.
* ``voc_40``, ``voc_50``: a mark is compared only with the lesion of the largest IoU (the first of equal ones). It hits
  if this IoU is above the threshold and no earlier mark hit that lesion (PASCAL VOC).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray

IOUS = tuple(k / 20 for k in range(8, 20))
"""Thresholds of IoU: 0.4, 0.45, ..., 0.95."""
VOC_RULES = {"voc_40": 0.4, "voc_50": 0.5}
"""Rules of PASCAL VOC and the thresholds that an IoU must exceed."""
RULES = (*(f"iou_{round(100 * iou)}" for iou in IOUS), "centre", "iobb_50", "mask", *VOC_RULES)
"""Rules by which a mark hits a lesion, in the order of the rows that :func:`match_marks` returns."""
CENTRE = RULES.index("centre")
_BELOW_ONE = 1 - 1e-10  # as in COCO's code, an IoU of 1 minus rounding


Hits = npt.NDArray[np.int32]
"""Index of the lesion that a mark hits by each rule, or -1."""


@dataclass(frozen=True)
class _Pairs:
    """All pairs of a mark and a lesion in the same case."""

    mark: IntArray
    lesion: IntArray


def match_marks(
    boxes: FloatArray,
    points: FloatArray,
    scores: FloatArray,
    cases: IntArray,
    lesion_boxes: FloatArray,
    lesion_cases: IntArray,
) -> Hits:
    """Return the lesion that each mark hits.

    Parameters
    ----------
    boxes : float array (n_marks, 4), NaN for a mark that is a point
    points : float array (n_marks, 2), (x, y) of the mark's point, or of the centre of its box
    scores : float array (n_marks,)
    cases : int array (n_marks,)
    lesion_boxes : float array (n_lesions, 4)
    lesion_cases : int array (n_lesions,)

    Returns
    -------
    int32 array (n_rules, n_marks), a row for each of :data:`RULES`: index of the lesion, or -1

    Raises
    ------
    ValueError
        If lengths differ or a score is not finite.

    Examples
    --------
    Two marks are on one lesion: by IoU only the better-scored hits, by their centres both hit.

    >>> box = np.array([[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 8.0]])
    >>> case = np.zeros(2, np.int64)
    >>> hits = match_marks(box, box[:, :2] + box[:, 2:] / 2, np.array([0.5, 0.9]), case, box[:1], case[:1])
    >>> hits[RULES.index("iou_50")].tolist(), hits[CENTRE].tolist()
    ([-1, 0], [0, 0])
    """
    n = len(scores)
    if not len(boxes) == len(points) == len(cases) == n or len(lesion_boxes) != len(lesion_cases):
        raise ValueError("marks must have as many boxes, points and cases as scores, lesions as many boxes as cases")
    if not np.isfinite(scores).all():
        raise ArgumentError("scores", "must be finite", scores[~np.isfinite(scores)][0])
    hits = np.full((len(RULES), n), -1, np.int32)
    pairs = _pairs_of(cases, lesion_cases)
    overlaps = box_overlaps(boxes[pairs.mark], lesion_boxes[pairs.lesion])
    _match_by_overlap(hits, pairs, overlaps, scores, cases, len(lesion_boxes))
    for rule, threshold in VOC_RULES.items():
        _match_as_voc(hits[RULES.index(rule)], pairs, overlaps, scores, threshold)
    _match_by_centre(hits[CENTRE], pairs, points, lesion_boxes)
    _match_by_share(hits[RULES.index("iobb_50")], pairs, boxes, lesion_boxes)
    return hits


def match_points(is_inside: BoolArray, marks: IntArray, lesions: IntArray, n_marks: int) -> Hits:
    """Return the results of the rule ``mask``: for each mark, the first lesion whose mask contains its point, or -1.

    Parameters
    ----------
    is_inside : bool array (n_pairs,), True if the mark's point is in the lesion's mask, for pairs in the same case
    marks, lesions : int arrays (n_pairs,), indices of the pair's mark and lesion
    n_marks : number of marks
    """
    hits = np.full(n_marks, -1, np.int32)
    hits[marks[is_inside][::-1]] = lesions[is_inside][::-1]
    return hits


def match_masks(
    overlaps: FloatArray, marks: IntArray, lesions: IntArray, scores: FloatArray, cases: IntArray, n_lesions: int
) -> tuple[Hits, FloatArray]:
    """Return the lesion that each mask matches with an IoU above a half, and this IoU.

    Parameters
    ----------
    overlaps : float array (n_pairs,), IoU of pairs in the same case
    marks, lesions : int arrays (n_pairs,), indices of the pair's mark and lesion
    scores, cases : score and case of each mark
    n_lesions : int

    Returns
    -------
    hits : int32 array (n_marks,), index of the lesion, or -1; each lesion is matched once, by the best-scored
    ious : float array (n_marks,), the IoU, 0 without a match
    """
    hits = np.full((1, len(scores)), -1, np.int32)
    _match_by_overlap(hits, _Pairs(marks, lesions), overlaps, scores, cases, n_lesions, (np.nextafter(0.5, 1),))
    ious = np.zeros(len(scores))
    matched = hits[0, marks] == lesions
    ious[marks[matched]] = overlaps[matched]
    return hits[0], ious


def _match_by_share(hits: Hits, pairs: _Pairs, boxes: FloatArray, lesion_boxes: FloatArray) -> None:
    shares = box_shares(boxes[pairs.mark], lesion_boxes[pairs.lesion])
    enough = np.flatnonzero(shares >= 0.5)
    mark, lesion, share = pairs.mark[enough], pairs.lesion[enough], shares[enough]
    # Among a mark's lesions, the one that contains most of the mark comes last
    order = np.lexsort((-lesion, share, mark))
    hits[mark[order]] = lesion[order]


def _shared(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """Return the area of box i inside `other` i; 0 if a box is NaN."""
    wide = np.minimum(boxes[:, 0] + boxes[:, 2], others[:, 0] + others[:, 2]) - np.maximum(boxes[:, 0], others[:, 0])
    high = np.minimum(boxes[:, 1] + boxes[:, 3], others[:, 1] + others[:, 3]) - np.maximum(boxes[:, 1], others[:, 1])
    area: FloatArray = np.where((wide > 0) & (high > 0), wide * high, 0.0)
    return area


def box_overlaps(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """Return the IoU of box i with `other` i, both [x, y, width, height], (n, 4); 0 if a box is NaN or has no area.

    Examples
    --------
    >>> box_overlaps(np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[1.0, 0.0, 2.0, 2.0]])).round(3).tolist()
    [0.333]
    """
    shared = _shared(boxes, others)
    whole = boxes[:, 2] * boxes[:, 3] + others[:, 2] * others[:, 3] - shared
    shares: FloatArray = np.divide(shared, whole, out=np.zeros(len(boxes)), where=(shared > 0) & (whole > 0))
    return shares


def box_shares(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """Return the proportion of box i inside `other` i (IoBB), as :func:`box_overlaps`."""
    area = boxes[:, 2] * boxes[:, 3]
    shares: FloatArray = np.divide(_shared(boxes, others), area, out=np.zeros(len(boxes)), where=area > 0)
    return shares


def _pairs_of(cases: IntArray, lesion_cases: IntArray) -> _Pairs:
    order = np.argsort(lesion_cases, kind="stable")
    of_case = lesion_cases[order]
    first = np.searchsorted(of_case, cases, side="left")
    n_lesions = np.searchsorted(of_case, cases, side="right") - first
    mark = np.repeat(np.arange(len(cases)), n_lesions)
    within = np.arange(len(mark)) - np.repeat(np.cumsum(n_lesions) - n_lesions, n_lesions)
    return _Pairs(mark, order[first[mark] + within])


def _match_by_overlap(
    hits: Hits,
    pairs: _Pairs,
    overlaps: FloatArray,
    scores: FloatArray,
    cases: IntArray,
    n_lesions: int,
    thresholds: tuple[float, ...] = IOUS,
) -> None:
    """Match the marks of all cases at once: in round r, the r-th mark of each case chooses a lesion."""
    near = np.flatnonzero(overlaps >= thresholds[0])
    mark, lesion, overlap = pairs.mark[near], pairs.lesion[near], overlaps[near]
    turn = _turns(mark, scores, cases)
    order = np.lexsort((lesion, overlap, mark, turn))  # among a mark's lesions, the best comes last
    mark, lesion, overlap, turn = mark[order], lesion[order], overlap[order], turn[order]
    rounds = np.searchsorted(turn, np.arange(turn.max(initial=-1) + 2))
    for row, threshold in enumerate(thresholds):
        taken = np.zeros(n_lesions, bool)
        enough = overlap >= min(threshold, _BELOW_ONE)
        for start, stop in zip(rounds[:-1].tolist(), rounds[1:].tolist(), strict=True):
            free = start + np.flatnonzero(enough[start:stop] & ~taken[lesion[start:stop]])
            if len(free):
                chosen = free[np.append(mark[free][1:] != mark[free][:-1], True)]
                hits[row, mark[chosen]] = lesion[chosen]
                taken[lesion[chosen]] = True


def _match_as_voc(hits: Hits, pairs: _Pairs, overlaps: FloatArray, scores: FloatArray, threshold: float) -> None:
    near = np.flatnonzero(overlaps > threshold)
    mark, lesion = pairs.mark[near], pairs.lesion[near]
    order = np.lexsort((-lesion, overlaps[near], mark))  # among a mark's lesions, the best comes last
    mark, lesion = mark[order], lesion[order]
    best = np.append(mark[1:] != mark[:-1], True)[: len(mark)]
    mark, lesion = mark[best], lesion[best]
    order = np.lexsort((mark, -scores[mark]))
    lesions, first = np.unique(lesion[order], return_index=True)
    hits[mark[order][first]] = lesions


def _turns(mark: IntArray, scores: FloatArray, cases: IntArray) -> IntArray:
    """Return for each pair how many marks of its case come before its mark, counting only marks that are in a pair."""
    choosing = np.unique(mark)
    order = choosing[np.lexsort((choosing, -scores[choosing], cases[choosing]))]
    of_case = cases[order]
    starts = np.flatnonzero(np.append(True, of_case[1:] != of_case[:-1])) if len(order) else order
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    turn = np.zeros(len(scores), np.int64)
    turn[order] = place
    return turn[mark]


def _match_by_centre(hits: Hits, pairs: _Pairs, points: FloatArray, lesion_boxes: FloatArray) -> None:
    x, y = points[pairs.mark].T
    left, top, wide, high = lesion_boxes[pairs.lesion].T
    inside = np.flatnonzero((left <= x) & (x < left + wide) & (top <= y) & (y < top + high))
    mark, lesion = pairs.mark[inside], pairs.lesion[inside]
    far = np.hypot(x - left - wide / 2, y - top - high / 2)[inside]
    # Among a mark's lesions, the nearest comes last; of equally near lesions, the first
    order = np.lexsort((-lesion, -far, mark))
    mark, lesion = mark[order], lesion[order]
    hits[mark] = lesion
