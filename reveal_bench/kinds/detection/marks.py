"""Marks of detections, see :mod:`reveal_bench.kinds.marks`, and signs that a file is not a model's.

A score is part of an answer: it decides what counts. Items are coarse places with the score in tenths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reveal_bench.kinds.localization.marks import case_answer, case_items, signs_of
from reveal_bench.kinds.localization.records import LocalizationPrediction, Manifest
from reveal_bench.kinds.marks import Marks, exact

__all__ = ["marks_of_detections", "signs_of_detections"]

MANY = 20
"""Detections of one finding on an image, on average, above which a file looks like a search."""


def marks_of_detections(predictions: Sequence[LocalizationPrediction], manifest: Manifest) -> Marks:
    """Place and score of each detection, in one order; items are coarse."""
    answers = sorted(([*case_answer(p), exact(p.score or 0.0)] for p in predictions), key=repr)
    return Marks([tuple(answer) for answer in answers], set(case_items(predictions, manifest)))


def signs_of_detections(predictions: Sequence[LocalizationPrediction], manifest: Manifest) -> list[str]:
    """Those of localization; findings marked on every image or often on one; scores that hardly differ."""
    signs = signs_of(predictions, manifest)
    pairs = Counter((p.image_id, p.finding) for p in predictions)
    if pairs and len(predictions) >= MANY * len(pairs):
        signs.append(f"{MANY} detections or more of a finding on an image, on average.")
    if len(predictions) >= MANY and len({p.score for p in predictions}) <= 2:
        signs.append("All detections have one or two scores.")
    return signs
