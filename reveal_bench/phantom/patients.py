"""Generate synthetic patients: their studies, the images of each study, and the findings in each image.

Study j of a split depends only on the seed, the split and j, so image k does not depend on the number of images. The
prevalence of findings per image is that of the test set in paper 002, Extended Data Fig. 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reveal_bench.phantom.anatomy import Anatomy, draw_anatomy
from reveal_bench.phantom.choices import choose
from reveal_bench.phantom.findings_drawn import Drawn, draw_findings

N_TEST = 668
PREVALENCE = {
    "Airspace Opacity": 309,
    "Atelectasis": 177,
    "Cardiomegaly": 175,
    "Consolidation": 35,
    "Edema": 83,
    "Enlarged Cardiomediastinum": 297,
    "Lung Lesion": 14,
    "Pleural Effusion": 120,
    "Pneumothorax": 10,
    "Support Devices": 314,
}
"""Finding -> number of images with the finding, among the test set's 668 images; 169 images have no finding."""
N_NORMAL = 169

FIRST_PATIENT = {"val": 64541, "test": 64741}
"""First patient numbers.

The source numbers its 200 validation and 500 test patients without a gap; further validation patients get larger
numbers than all of these.
"""
MANY_VAL, FURTHER_VAL = 200, 1_000_000
FILMS = {"val": {1: 0.84, 2: 0.15, 3: 0.01}, "test": {1: 0.70, 2: 0.265, 3: 0.035}}
"""Probabilities of one, two and three images per study; the source has 234 images of 200 patients, and 668 of 500."""
LATERAL_CHANCE = 0.52
"""Probability that an image after the first is lateral, which makes about 13% of all images lateral."""
SIZES = ((0.8204, 1.0), (1.0, 0.8204), (1.0, 0.8325), (0.88, 1.0))
"""(height, width) of images relative to the long side; 2320 x 2828 is the most common size."""


@dataclass(frozen=True, slots=True)
class Study:
    """The only study of one patient."""

    split: str
    index: int
    findings: frozenset[str]
    sex: str
    age: int
    n_films: int

    @property
    def patient(self) -> str:
        """Name of the patient, numbered as in the source."""
        number = FIRST_PATIENT[self.split] + self.index
        return f"patient{number + FURTHER_VAL if self.split == 'val' and self.index >= MANY_VAL else number}"


@dataclass(frozen=True, slots=True)
class PhantomFilm:
    """One image of a study; `number` counts from 1."""

    study: Study
    number: int
    view: str
    size: tuple[float, float]
    seed: tuple[int, ...]

    @property
    def image_id(self) -> str:
        """Id of the image, such as ``patient64741_study1_view1_frontal``."""
        return f"{self.study.patient}_study1_{self.name}"

    @property
    def name(self) -> str:
        """File name without suffix."""
        return f"view{self.number}_{'lateral' if self.view == 'LATERAL' else 'frontal'}"

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the random generator for a purpose: 0 for anatomy and findings, 1 for pixels, 2 for the reader."""
        return np.random.default_rng([*self.seed, purpose])


def films(split: str, *, seed: int) -> Iterator[PhantomFilm]:
    """Yield the images of a split, endlessly."""
    index = 0
    while True:
        key = (seed, sorted(FIRST_PATIENT).index(split), index)
        rng = np.random.default_rng(key)
        n_films = choose(rng, FILMS[split])
        sex, age = str(rng.choice(["Female", "Male"])), int(np.clip(rng.normal(62, 17), 18, 90))
        study = Study(split, index, _sample_findings(rng), sex, age, n_films)
        first = "PA" if rng.random() < 0.25 else "AP"
        for number in range(1, n_films + 1):
            view = "LATERAL" if number > 1 and rng.random() < LATERAL_CHANCE else first
            chances = (0.62, 0.16, 0.1, 0.12) if view == "AP" else (0.08, 0.6, 0.27, 0.05)
            size = choose(rng, dict(zip(SIZES, chances, strict=True))) if view != "LATERAL" else SIZES[1]
            yield PhantomFilm(study, number, view, size, (*key, number))
        index += 1


def draw_film(film: PhantomFilm, *, without: frozenset[str] = frozenset()) -> tuple[Anatomy, Drawn]:
    """Return the patient's body and findings; findings in `without` are not drawn, all else stays the same."""
    rng = film.rng(0)
    findings = film.study.findings
    heart = rng.uniform(1.22, 1.5) if "Cardiomegaly" in findings else 1.0
    mediastinum = rng.uniform(1.35, 1.85) if "Enlarged Cardiomediastinum" in findings else 1.0
    state = rng.bit_generator.state
    anatomy = draw_anatomy(rng, *film.size, film.view, heart=heart, mediastinum=mediastinum)
    drawn = draw_findings(rng, anatomy, set(findings), without=without)
    if without:
        heart = 1.0 if "Cardiomegaly" in without else heart
        mediastinum = 1.0 if "Enlarged Cardiomediastinum" in without else mediastinum
        rng.bit_generator.state = state
        anatomy = draw_anatomy(rng, *film.size, film.view, heart=heart, mediastinum=mediastinum)
    return anatomy, drawn


def _sample_findings(rng: np.random.Generator) -> frozenset[str]:
    """Choose the findings of a study at random, with the paper's prevalence and CheXpert's hierarchy.

    Cardiomegaly implies Enlarged Cardiomediastinum; a more specific opacity implies Airspace Opacity.
    """
    abnormal = (N_TEST - N_NORMAL) / N_TEST

    def chance(finding: str, within: float) -> bool:
        return bool(rng.random() < PREVALENCE[finding] / N_TEST / within)

    if rng.random() >= abnormal:
        return frozenset()
    while True:
        # about one set in twenty is empty and drawn again, which raises every probability; divide by this factor
        findings = set()
        whole = abnormal / 0.955
        findings |= {name for name in ("Support Devices", "Pleural Effusion", "Pneumothorax") if chance(name, whole)}
        if chance("Enlarged Cardiomediastinum", whole):
            findings.add("Enlarged Cardiomediastinum")
            if rng.random() < PREVALENCE["Cardiomegaly"] / PREVALENCE["Enlarged Cardiomediastinum"]:
                findings.add("Cardiomegaly")
        if chance("Airspace Opacity", whole):
            findings.add("Airspace Opacity")
            for name in ("Atelectasis", "Edema", "Consolidation", "Lung Lesion"):
                if rng.random() < PREVALENCE[name] / PREVALENCE["Airspace Opacity"]:
                    findings.add(name)
        if findings:
            return frozenset(findings)
