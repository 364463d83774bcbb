"""Images of a detection benchmark as cases that are shown: what is there, what a system marked, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reveal_bench.kinds.cases import CaseAnswer, Mark
from reveal_bench.kinds.detection.scoring import RULES, DetectionRows
from reveal_bench.kinds.localization.records import LocalizationPrediction

__all__ = ["answers_of_detections"]

SHOWN_BY = "iou_50"
"""Rule by which a detection is shown as a hit."""


def answers_of_detections(
    predictions: Sequence[LocalizationPrediction], rows: DetectionRows
) -> dict[str, list[CaseAnswer]]:
    """What a system marked, by image: one answer for each finding that it marked at its threshold, or that is there.

    An answer is right if every lesion of the finding is hit, by IoU of a half, and nothing else is marked.
    """
    hits = rows.mark_hit[RULES.index(SHOWN_BY)]
    lesions = np.zeros(rows.known.shape, np.int64)
    np.add.at(lesions, (rows.lesion_image, rows.lesion_finding), 1)
    drawn: dict[tuple[int, int], list[int]] = {}
    shown = rows.mark_score >= rows.thresholds[rows.mark_finding]
    for i in np.flatnonzero(shown).tolist():
        drawn.setdefault((int(rows.mark_image[i]), int(rows.mark_finding[i])), []).append(i)
    answers: dict[str, list[CaseAnswer]] = {}
    for image, (image_id, _) in enumerate(rows.images):
        for finding, name in enumerate(rows.findings):
            marked, n = drawn.get((image, finding), []), int(lesions[image, finding])
            if not marked and not n:
                continue
            n_hit = int((hits[marked] >= 0).sum())
            n_false = len(marked) - n_hit
            is_known = bool(rows.known[image, finding])
            is_right = (n_hit == n and not n_false) if is_known else None
            words = _words(n, n_hit, n_false) if is_known else f"not judged, {len(marked)} marked"
            marks = tuple(_mark(predictions[rows.place_of[i]]) for i in marked)
            answers.setdefault(image_id, []).append(CaseAnswer(name, is_right, words, marks))
    return answers


def _mark(one: LocalizationPrediction) -> Mark:
    boxes = () if one.box is None else (one.box,)
    return Mark(0, one.finding, () if one.mask is None else (one.mask,), boxes, one.points)


def _words(n: int, n_hit: int, n_false: int) -> str:
    """Such as "1 of 2 found, 3 false alarms"."""
    found = f"{n_hit} of {n} found" if n else "absent"
    alarms = f"{n_false} false alarm{'' if n_false == 1 else 's'}"
    return found if not n_false else f"{found}, {alarms}"
