"""Marks of findings predictions, see :mod:`reveal_bench.kinds.marks`, and signs that a file is not a model's.

Thresholds take part: whatever could change a single decision must. An answer that a model gives to nearly every study,
a probability below 0.1, is not an item, else two models of rare findings would always look alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.kinds.marks import Item, Marks, exact

__all__ = ["marks_of", "signs_of"]


def marks_of(
    predictions: Sequence[FindingsPrediction], manifest: StudyManifest, thresholds: float | Mapping[str, float]
) -> Marks:
    """Labels or probabilities of each study; items are labels, or probabilities in tenths."""
    studies = sorted(predictions, key=lambda p: p.study_id)
    return Marks(_study_answers(studies, manifest, thresholds), set(_study_items(studies)))


def signs_of(studies: Sequence[FindingsPrediction], manifest: StudyManifest) -> list[str]:
    """No label at all, the same ones everywhere, or one in every study."""
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


def _study_answers(
    studies: Sequence[FindingsPrediction], manifest: StudyManifest, thresholds: float | Mapping[str, float]
) -> list[Item]:
    """A study without any label is scored as an absent one, so neither has an entry; probabilities always have one."""
    answers: list[Item] = []
    for p in studies:
        if p.probabilities is not None:
            answers.append((p.study_id, *(exact(p.probabilities[label]) for label in manifest.labels)))
        elif p.labels:
            answers.append((p.study_id, sorted(p.labels)))
    if any(p.probabilities is not None for p in studies):
        by_label = thresholds if isinstance(thresholds, Mapping) else dict.fromkeys(manifest.labels, thresholds)
        answers.append(("thresholds", *(exact(by_label.get(label, 0.5)) for label in manifest.labels)))
    return answers


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
