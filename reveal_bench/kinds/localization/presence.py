"""Presence of findings: scores of images with and without a finding, if a benchmark asks for all findings.

A case is an image and a finding that is labelled present or absent, with a prediction that has a score. Other pairs are
left out, and a note says how many. The metric is AUROC (paper 002 prints it beside each finding of Fig. 2), with the
intervals of :mod:`reveal_bench.metrics.ranking_intervals`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.metrics.intervals import Estimate, Resampling


@dataclass(frozen=True)
class Presence:
    """Confidence scores and presence labels of findings.

    Attributes
    ----------
    image_ids, findings : lists (n_cases,)
    scores : float array (n_cases,)
    present : bool array (n_cases,)
    n_without_confidence : number of labelled pairs of image and finding without a score
    """

    image_ids: list[str]
    findings: list[str]
    scores: FloatArray
    present: BoolArray
    n_without_confidence: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentence on the number of questions without a score, if there are any."""
        n = len(self.findings) + self.n_without_confidence
        return (f"{self.n_without_confidence:,} of {n:,} questions have no score, and do not count in AUROC",) * (
            self.n_without_confidence > 0
        )

    def of_images(self, image_ids: Collection[str]) -> Presence:
        """Return the cases of some images."""
        kept = [i for i, image_id in enumerate(self.image_ids) if image_id in image_ids]
        names = [self.image_ids[i] for i in kept], [self.findings[i] for i in kept]
        return Presence(*names, self.scores[kept], self.present[kept], 0)

    def estimates(
        self, findings: Sequence[str], all_images: Sequence[tuple[str, str]], resampling: Resampling
    ) -> list[Estimate]:
        """Return AUROC of each finding, and the macro.

        Parameters
        ----------
        all_images : (image_id, patient_id) of all images of the split
        resampling : unit "patient" or "image"
        """
        from reveal_bench.metrics.estimates import estimate_ranking

        unit_of = {image: patient if resampling.unit == "patient" else image for image, patient in all_images}
        return estimate_ranking(
            "auroc",
            self.scores,
            self.present,
            findings=self.findings,
            groups=findings,
            patients=[unit_of[image_id] for image_id in self.image_ids],
            all_patients=list(unit_of.values()),
            resampling=resampling,
        )


def presence_of(
    predictions: Mapping[tuple[str, str], LocalizationPrediction], records: Sequence[LocalizationRecord]
) -> Presence | None:
    """Return the scores of all labelled images and findings; None if no prediction has a score."""
    cases = [
        (record.image_id, finding, status == 1, predictions.get((record.image_id, finding)))
        for record in records
        for finding, status in record.label_status.items()
        if status in (0, 1)
    ]
    scored = [(*case, one.score) for *case, one in cases if one is not None and one.score is not None]
    if not scored:
        return None
    image_ids, findings, present, scores = (list(column) for column in zip(*scored, strict=True))
    return Presence(
        image_ids, findings, np.array(scores, np.float64), np.array(present, bool), len(cases) - len(scored)
    )
