"""Generate the studies of a synthetic REVEAL-CXR download: images, labels and patients.

A study depends only on the seed, the stage and its index, so study k does not depend on the number of studies.

There are two stages.

* ``benchmark``: the studies that a finished benchmark releases. A study has 1 to 4 labels, with rare labels more
  frequent; each patient has one study. Demographics are from Table 1 of paper 004 (released half). The weights of the
  labels are the prevalences in the paper's Table S3, raised for less common findings, which the paper's selection
  prefers. The weights are chosen, because the paper shows the benchmark's own prevalence only in a figure.
* ``pool``: the studies from which such a benchmark is selected. A third of the studies have no label, and some have
  six. Every sixth study is another study of the previous patient. All rates of the pool are chosen.

The labels are the truth, because they are drawn into the images.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.choices import choose

Stage = Literal["benchmark", "pool"]
STAGES: tuple[Stage, ...] = ("benchmark", "pool")

N_LABELS = {1: 0.13, 2: 0.33, 3: 0.37, 4: 0.17}
"""Probabilities of one, two, three and four labels in the stage `benchmark`."""

WEIGHTS = {
    "Airspace opacity": 0.846,
    "Pleural effusion": 0.455,
    "Cardiomegaly": 0.460,
    "Interstitial opacity": 1.5 * 0.230,
    "COPD": 2 * 0.055,
    "Pleural thickening": 2 * 0.048,
    "Lung nodule": 2 * 0.049,
    "Lung mass": 2 * 0.033,
    "Aneurysm": 2 * 0.025,
    "Pneumothorax": 2 * 0.018,
    "Hiatal hernia": 2 * 0.017,
    "Lymphadenopathy": 2 * 0.013,
}
"""Relative probabilities of labels in the stage `benchmark`, from Table S3.

Labels that the paper calls less common have twice the weight, and the most common of these labels one and a half times.
"""

POOL = {
    "Airspace opacity": 0.40,
    "Pleural effusion": 0.24,
    "Cardiomegaly": 0.22,
    "Interstitial opacity": 0.12,
    "COPD": 0.05,
    "Pleural thickening": 0.03,
    "Lung nodule": 0.04,
    "Lung mass": 0.02,
    "Aneurysm": 0.015,
    "Pneumothorax": 0.02,
    "Hiatal hernia": 0.015,
    "Lymphadenopathy": 0.012,
}
"""Probability of each label in the stage `pool`, independent of other labels."""

FURTHER = 6
"""In the pool, a study whose number is a multiple of this is another study of the previous patient."""

AGES = {(80, 96): 0.23, (70, 79): 0.26, (60, 69): 0.22, (50, 59): 0.15, (40, 49): 0.125, (20, 39): 0.01, None: 0.005}
SEXES = {"F": 0.5, "M": 0.495, "unknown": 0.005}
RACES = {"Asian": 0.06, "Black or African American": 0.14, "White": 0.46, "Other": 0.03, "unknown": 0.31}
PATIENT_CLASSES = {"inpatient": 0.885, "outpatient": 0.11, "unknown": 0.005}
"""Demographics from Table 1 of paper 004; the few unknown values are those of the paper's holdout half."""

SECOND_IMAGE = 0.09
"""Probability of a second image, from Table S2: 100 studies have 109 images, 10 of them lateral."""
LATERAL = 0.95
"""Probability that the second image of a study is lateral."""
LANDSCAPE, PORTRAIT = (0.8325, 1.0), (1.0, 0.8325)
"""(height, width) relative to the long side, for the common detector of 35 x 43 cm."""


@dataclass(frozen=True, slots=True)
class RevealImage:
    """One image of a study; `number` counts from 1, `size` is (height, width) relative to the long side."""

    number: int
    view: str
    size: tuple[float, float]


@dataclass(frozen=True, slots=True)
class RevealStudy:
    """One study; `labels` are drawn into its images, in the order of REVEAL_LABELS; `age` is in years."""

    seed: int
    stage: Stage
    index: int
    patient: int
    labels: tuple[str, ...]
    age: int | None
    sex: str
    race: str
    patient_class: str
    images: tuple[RevealImage, ...]

    @property
    def case_id(self) -> str:
        """The patient's pseudonym, in the numbering of a collection."""
        return f"999999-{self.patient:06d}"

    @property
    def study_uid(self) -> str:
        """StudyInstanceUID."""
        return self.uid("study")

    def uid(self, *what: object) -> str:
        """Return a UID for an object of this study."""
        return made_uid(self.seed, self.stage, self.index, *what)

    def rng(self, *purpose: int) -> np.random.Generator:
        """Return the random generator for a purpose; purpose 0 generates the study itself."""
        return np.random.default_rng((self.seed, STAGES.index(self.stage), self.index, *purpose))


def made_uid(*what: object) -> str:
    """Return a reproducible, unique UID under 2.25 (UUID as a number), from a hash of `what`."""
    digest = hashlib.sha256("\0".join(("reveal-bench phantom", *map(str, what))).encode()).digest()
    return f"2.25.{uuid.UUID(bytes=digest[:16], version=4).int}"


def studies(stage: Stage = "benchmark", *, seed: int) -> Iterator[RevealStudy]:
    """Yield the studies of a stage, endlessly."""
    index = 0
    while True:
        yield _study(stage, seed, index)
        index += 1


def _study(stage: Stage, seed: int, index: int) -> RevealStudy:
    rng = np.random.default_rng((seed, STAGES.index(stage), index, 0))
    is_further = stage == "pool" and index % FURTHER == FURTHER - 1
    patient = index - is_further
    who = np.random.default_rng((seed, STAGES.index(stage), patient, 0, 1))
    age_band = choose(who, AGES)
    patient_class = choose(rng, PATIENT_CLASSES)
    return RevealStudy(
        seed=seed,
        stage=stage,
        index=index,
        patient=patient,
        labels=_labels(rng, stage),
        age=None if age_band is None else int(who.integers(age_band[0], age_band[1] + 1)),
        sex=choose(who, SEXES),
        race=choose(who, RACES),
        patient_class=patient_class,
        images=_images(rng, at_bedside=patient_class != "outpatient"),
    )


def _labels(rng: np.random.Generator, stage: Stage) -> tuple[str, ...]:
    if stage == "pool":
        chances = rng.random(len(REVEAL_LABELS))
        return tuple(label for label, chance in zip(REVEAL_LABELS, chances, strict=True) if chance < POOL[label])
    n_labels = choose(rng, N_LABELS)
    weights = np.array([WEIGHTS[label] for label in REVEAL_LABELS])
    drawn = rng.choice(len(REVEAL_LABELS), n_labels, replace=False, p=weights / weights.sum())
    return tuple(REVEAL_LABELS[i] for i in sorted(drawn))


def _images(rng: np.random.Generator, *, at_bedside: bool) -> tuple[RevealImage, ...]:
    frontal = "AP" if rng.random() < (0.97 if at_bedside else 0.25) else "PA"
    size = LANDSCAPE if rng.random() < (0.8 if frontal == "AP" else 0.15) else PORTRAIT
    images = [RevealImage(1, frontal, size)]
    if rng.random() < SECOND_IMAGE:
        view = "LATERAL" if rng.random() < LATERAL else frontal
        images.append(RevealImage(2, view, PORTRAIT if view == "LATERAL" else size))
    return tuple(images)
