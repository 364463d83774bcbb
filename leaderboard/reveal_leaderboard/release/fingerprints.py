"""Fingerprints of predictions, and label-blind signs that a submission is no model's.

Conventions
-----------
`content` is a keyed hash of what would be scored, to the last bit: the same answers have the same content whatever the
file's format, order, line ends or confidences. Nothing is rounded, and thresholds take part: equal content is answered
again at no cost, so whatever could change a single decision must change it. `sketch` is a MinHash of the answers as a
set of items (id, finding, answer): positions in 16ths of the image, probabilities in tenths. An answer that a model
gives to nearly every case, "absent" or a probability below 0.1, is no item, else two models of rare findings would
always look alike.

Both are keyed, so that a stolen database does not tell predictions by trial. Nothing here sees a reference. Tripwires
are for moderators: they deter, they do not bound anything, and they never refuse a submission.

Source: Broder 1997, On the resemblance and containment of documents.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.kinds.localization.records import LocalizationPrediction, Manifest
from reveal_bench.kinds.tasks.records import TaskAnswer, TaskManifest
from reveal_bench.masks import pack_masks

__all__ = ["NEAR", "Fingerprint", "fingerprint", "is_near", "similarity", "tripwires"]

NEAR = 0.95
"""Share of answers in which near-identical predictions agree."""
N_HASHES = 128
PARTS = 16  # an image's side, for positions
MANY_POINTS = 4  # points for one finding of one image, on average
_MASKS_AT_ONCE = 256
Predictions = Sequence[LocalizationPrediction] | Sequence[FindingsPrediction] | Sequence[TaskAnswer]
Item = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of one submission.

    Attributes
    ----------
    content : 64 hexadecimal digits
    sketch : 128 whole numbers below 2**32; none for predictions without an item
    """

    content: str
    sketch: tuple[int, ...]


def fingerprint(
    predictions: Predictions,
    manifest: Manifest | StudyManifest | TaskManifest,
    key: bytes,
    *,
    thresholds: float | Mapping[str, float] = 0.5,
) -> Fingerprint:
    """The fingerprint of checked predictions.

    Parameters
    ----------
    predictions : of the linter
    manifest : what they answer
    key : secret of the installation, at least 16 bytes
    thresholds : from which probabilities of labels count as calls: one number, or one per label (0.5 for the others)

    Raises
    ------
    ValueError
        If the key is too short.
    """
    if len(key) < 16:
        raise ValueError(f"`key` must have at least 16 bytes, got {len(key)}")
    if isinstance(manifest, StudyManifest):
        studies = _of_studies(predictions)
        answers, items = _study_answers(studies, manifest, thresholds), set(_study_items(studies))
    elif isinstance(manifest, TaskManifest):
        told = _of_tasks(predictions)
        answers, items = _task_answers(told), set(_task_items(told))
    else:
        cases = _of_cases(predictions)
        answers, items = _case_answers(cases), set(_case_items(cases, manifest))
    text = json.dumps([manifest.benchmark, answers], separators=(",", ":"))
    content = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return Fingerprint(content, _sketch(items, key))


def similarity(a: Fingerprint, b: Fingerprint) -> float:
    """Estimated share of answers in which two submissions agree, in [0, 1]; standard error about 0.015 near 0.95.

    With a share s of equal items in each of two sets of one size, the Jaccard index is s / (2 - s).
    """
    if not a.sketch or not b.sketch:
        return float(a.sketch == b.sketch)
    jaccard = float(np.mean(np.array(a.sketch) == np.array(b.sketch)))
    return 2 * jaccard / (1 + jaccard)


def is_near(a: Fingerprint, b: Fingerprint, near: float = NEAR) -> bool:
    """Whether two submissions are the same or differ in less than 1 - `near` of their answers."""
    return a.content == b.content or similarity(a, b) >= near


def _sketch(items: set[Item], key: bytes) -> tuple[int, ...]:
    if not items:
        return ()
    key = hashlib.sha256(b"sketch\0" + key).digest()
    digests = (hashlib.blake2b(json.dumps(item).encode(), digest_size=8, key=key).digest() for item in items)
    hashes = np.frombuffer(b"".join(digests), np.uint64)
    salts = np.random.default_rng(0).integers(0, 2**64, N_HASHES, np.uint64)
    return tuple(int((_mixed(hashes ^ salt) >> np.uint64(32)).min()) for salt in salts)


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer: every bit of the result depends on every bit of `x`."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


# Findings of studies --------------------------------------------------------------------------------------------------


def _of_studies(predictions: Predictions) -> list[FindingsPrediction]:
    studies = [p for p in predictions if isinstance(p, FindingsPrediction)]
    return sorted(studies, key=lambda p: p.study_id)


def _study_answers(
    studies: Sequence[FindingsPrediction], manifest: StudyManifest, thresholds: float | Mapping[str, float]
) -> list[Item]:
    """A study without any label is scored as an absent one, so neither has an entry; probabilities always have one."""
    answers: list[Item] = []
    for p in studies:
        if p.probabilities is not None:
            answers.append((p.study_id, *(_exact(p.probabilities[label]) for label in manifest.labels)))
        elif p.labels:
            answers.append((p.study_id, sorted(p.labels)))
    if any(p.probabilities is not None for p in studies):
        by_label = thresholds if isinstance(thresholds, Mapping) else dict.fromkeys(manifest.labels, thresholds)
        answers.append(("thresholds", *(_exact(by_label.get(label, 0.5)) for label in manifest.labels)))
    return answers


def _exact(number: float) -> str:
    """All bits of a number; zero has one sign."""
    return (float(number) + 0.0).hex()


def _study_items(studies: Sequence[FindingsPrediction]) -> Iterator[Item]:
    for p in studies:
        if p.probabilities is None:
            yield from ((p.study_id, label) for label in p.labels or ())
        else:
            yield from ((p.study_id, label, int(10 * x)) for label, x in p.probabilities.items() if x >= 0.1)


def _calls(study: FindingsPrediction) -> tuple[str, ...]:
    if study.probabilities is None:
        return tuple(sorted(study.labels or ()))
    return tuple(sorted(label for label, x in study.probabilities.items() if x >= 0.5))


# Answers to tasks -----------------------------------------------------------------------------------------------------


def _of_tasks(predictions: Predictions) -> list[TaskAnswer]:
    return sorted((p for p in predictions if isinstance(p, TaskAnswer)), key=lambda p: p.task_id)


def _task_answers(answers: Sequence[TaskAnswer]) -> list[Item]:
    """Runs of white space count as one space."""
    return [
        (p.task_id, " ".join(p.answer.split()), *((b.image_id, b.label, [f"{v:.9g}" for v in b.box]) for b in p.boxes))
        for p in answers
    ]


def _task_items(answers: Sequence[TaskAnswer]) -> Iterator[Item]:
    return ((p.task_id, " ".join(p.answer.casefold().split())) for p in answers)


def _task_signs(answers: Sequence[TaskAnswer]) -> list[str]:
    texts = {text for _, text in _task_items(answers)}
    return ["Every task has the same answer."] if len(answers) > 1 and len(texts) == 1 else []


# Cases of images ------------------------------------------------------------------------------------------------------


def _of_cases(predictions: Predictions) -> list[LocalizationPrediction]:
    cases = [p for p in predictions if isinstance(p, LocalizationPrediction)]
    return sorted(cases, key=lambda p: (p.image_id, p.finding))


def _case_answers(cases: Sequence[LocalizationPrediction]) -> list[Item]:
    """A confidence is not scored, so it has no part."""
    return [
        (
            p.image_id,
            p.finding,
            sorted((_exact(x), _exact(y)) for x, y in p.points),
            p.cell,
            None if p.box is None else [_exact(side) for side in p.box],
            None if p.mask is None else (p.mask.size, p.mask.counts),
        )
        for p in cases
    ]


def _case_items(cases: Sequence[LocalizationPrediction], manifest: Manifest) -> Iterator[Item]:
    for p in cases:
        case, size = (p.image_id, p.finding), manifest.rows[p.image_id].size
        if p.points:
            yield (*case, "point", *sorted({_place(point, size) for point in p.points}))
        if p.cell is not None:
            yield (*case, "cell", p.cell)
        if p.box is not None:
            yield (*case, "box", *_corners(p.box, size))
    for p, size, area, box in _masks(cases):
        full = max(box[2] * box[3], 1.0)
        yield (p.image_id, p.finding, "mask", *_corners(box, size), round(8 * area / full))


def _masks(
    cases: Sequence[LocalizationPrediction],
) -> Iterator[tuple[LocalizationPrediction, tuple[int, int], int, tuple[float, ...]]]:
    """Every mask: its prediction, size, area in pixels and tight box (zeros if empty); some at a time are unpacked."""
    remaining = iter([(p, p.mask) for p in cases if p.mask is not None])
    while batch := list(islice(remaining, _MASKS_AT_ONCE)):
        packed = pack_masks([mask for _, mask in batch])
        boxes = np.nan_to_num(packed.boxes_xywh())
        for (p, mask), area, box in zip(batch, packed.areas.tolist(), boxes.tolist(), strict=True):
            yield p, mask.size, area, tuple(box)


def _place(point: tuple[float, float], size: tuple[int, int]) -> tuple[int, int]:
    height, width = size
    return int(PARTS * point[0] / width), int(PARTS * point[1] / height)


def _corners(box: Sequence[float], size: tuple[int, int]) -> Item:
    x, y, width, height = box
    return *_place((x, y), size), *_place((x + width, y + height), size)


# Tripwires ------------------------------------------------------------------------------------------------------------


def tripwires(
    predictions: Predictions,
    manifest: Manifest | StudyManifest | TaskManifest,
    *,
    now: Fingerprint | None = None,
    earlier: Sequence[Fingerprint] = (),
    near: float = NEAR,
) -> list[str]:
    """Signs, for moderators, that a submission asks the scorer rather than answers for a model; none is empty.

    Parameters
    ----------
    predictions, manifest : as for :func:`fingerprint`
    now : this submission's fingerprint
    earlier : those of the same team's submissions before; identical ones cost no new answer and do not count
    near : share of answers in which near-identical predictions agree
    """
    if isinstance(manifest, StudyManifest):
        signs = _study_signs(_of_studies(predictions), manifest)
    elif isinstance(manifest, TaskManifest):
        signs = _task_signs(_of_tasks(predictions))
    else:
        signs = _case_signs(_of_cases(predictions), manifest)
    if now is not None and any(is_near(now, past, near) and now.content != past.content for past in earlier):
        share = 100 * (1 - near)
        signs.append(
            f"Differs from an earlier submission of the team in fewer than about {share:.0f} % of its answers."
        )
    return signs


def _study_signs(studies: Sequence[FindingsPrediction], manifest: StudyManifest) -> list[str]:
    calls = Counter(_calls(study) for study in studies)
    n_calls = Counter(label for study in studies for label in _calls(study))
    if not n_calls:
        return ["No label is called in any study."]
    signs = []
    if len(manifest.studies) > 1 and len(calls) == 1 and len(studies) == len(manifest.studies):
        signs.append("Every study has the same labels.")
    always = [label for label in manifest.labels if n_calls[label] == len(manifest.studies) > 1]
    if always:
        signs.append(f"Called in every study: {', '.join(always)}.")
    return signs


def _case_signs(cases: Sequence[LocalizationPrediction], manifest: Manifest) -> list[str]:
    if not cases:
        return ["Nothing is predicted."]
    signs = []
    points = [(p, point) for p in cases for point in p.points]
    n_pointed = len({(p.image_id, p.finding) for p, _ in points})
    places = Counter(_place(point, manifest.rows[p.image_id].size) for p, point in points)
    if n_pointed >= 20 and max(places.values()) >= NEAR * n_pointed:
        signs.append("Nearly all points lie at the same place of their images.")
    if n_pointed and len(points) >= MANY_POINTS * n_pointed:
        signs.append(f"{MANY_POINTS} points or more for a finding, on average.")
    masks = [(size[0] * size[1], area, box[2] * box[3]) for _, size, area, box in _masks(cases)]
    if masks and not any(area for _, area, _ in masks):
        signs.append("Every mask is empty.")
    if sum(area >= 0.95 * pixels for pixels, area, _ in masks) >= max(1, 0.05 * len(masks)):
        signs.append("At least one mask in twenty covers the whole image.")
    if sum(area == full > 0 for _, area, full in masks) >= max(1, 0.5 * len(masks)):
        signs.append("At least half of the masks are plain rectangles.")
    boxes = [(p.box[2] * p.box[3], manifest.rows[p.image_id].size) for p in cases if p.box is not None]
    if sum(area >= 0.95 * height * width for area, (height, width) in boxes) >= max(1, 0.05 * len(boxes)):
        signs.append("At least one box in twenty covers the whole image.")
    return signs
