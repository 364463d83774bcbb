"""Second generator of simulated worlds for `calibration.py`, written without knowledge of the methods under test.

The generator simulates how a benchmark of chest radiographs is made, instead of drawing sensitivities:

* Patients have five disease processes with skewed (gamma) intensities. Inpatients have stronger processes, more images
  and worse images. Labels are therefore correlated, and the number of images depends on disease.
* A finding has a continuous severity, the sum of loadings on the processes, a patient effect and an image effect.
* Three readers see the severity with noise, and with a strictness that varies by reader and patient. The reference
  label is the majority of the readers, so labels of subtle cases are noisy.
* A system sees the severity with noise, which is larger in poor images. The noise has a part common to all systems
  (difficult cases), a patient effect and an image effect. Systems also tend to call sick patients positive. Scores are
  an overconfident logistic transform, rounded to a few digits. A call is a score of 0.5 or more, even if another
  threshold would be better.
* Hits and IoU depend on the size of the lesion, on the system, and on a difficulty common to all systems. The IoU of a
  missed lesion is 0; other IoUs have a beta distribution.

The unit of severity is about one standard deviation of the part that is specific to a finding. True values come from
one simulation of at least 2,000,000 images. Prevalences follow REVEAL-CXR (12 findings of 80% to 2%, 80% to 89%
inpatients), hit rates follow CheXlocalize (0.3 for lesions, 0.9 for cardiomegaly).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from calibration_worlds import Array, System, Trial  # in this folder

_SEED = 20_261_127
_PILOT_PATIENTS = 40_000
_POPULATION_IMAGES = 2_000_000
_MOST_IMAGES = 40
_SHARED, _OF_PATIENT, _OF_IMAGE = np.sqrt(np.array([0.3, 0.2, 0.5], np.float32))
"""Proportions of a system's noise: common to all systems, per patient, and per image."""


@dataclass(frozen=True)
class Finding:
    """One finding's nature.

    `loadings` on heart failure, infection, chronic lung disease, tumour and age; `lasting`, the proportion of the
    remaining variance of severity that is common to a patient's images; `ease` of localization, a logit.
    """

    loadings: tuple[float, float, float, float, float]
    lasting: float
    ease: float


NATURE = {
    "airspace-opacity": Finding((0.5, 0.9, 0.1, 0.3, 0.0), 0.2, 0.3),
    "pleural-effusion": Finding((0.8, 0.4, 0.0, 0.4, 0.0), 0.4, 0.5),
    "cardiomegaly": Finding((1.0, 0.0, 0.1, 0.0, 0.4), 0.9, 2.2),
    "interstitial-opacity": Finding((0.6, 0.3, 0.6, 0.1, 0.0), 0.5, 0.8),
    "pleural-thickening": Finding((0.0, 0.2, 0.4, 0.4, 0.2), 0.9, -0.3),
    "copd": Finding((0.0, 0.1, 1.2, 0.2, 0.1), 0.95, 1.2),
    "lung-nodule": Finding((0.0, 0.0, 0.2, 0.7, 0.2), 0.7, -0.9),
    "lung-mass": Finding((0.0, 0.0, 0.2, 1.0, 0.0), 0.8, 0.1),
    "aneurysm": Finding((0.2, 0.0, 0.0, 0.0, 0.8), 0.95, 1.5),
    "pneumothorax": Finding((0.0, 0.3, 0.5, 0.2, -0.2), 0.1, -0.6),
    "hiatal-hernia": Finding((0.0, 0.0, 0.0, 0.0, 0.7), 0.95, 1.0),
    "lymphadenopathy": Finding((0.0, 0.2, 0.1, 0.8, 0.0), 0.7, -0.2),
}
REVEAL = (0.80, 0.55, 0.48, 0.32, 0.14, 0.11, 0.09, 0.07, 0.06, 0.045, 0.035, 0.025)
RARE = (0.15, 0.12, 0.10, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.025, 0.02, 0.015)
SIX = (0.50, 0.40, 0.30, 0.22, 0.15, 0.10)
_LEANING = (1.05, 0.8, 1.3, 0.6, 1.6, 0.7, 0.5, 1.2, 0.5, 1.9, 0.8, 0.4)
"""Number of calls per positive image at the threshold 0.5: systems over-call some findings and under-call others."""


@dataclass(frozen=True)
class _Images:
    """Radiographs: `patients` (n_images,); `vigour`, the evidence per finding, and `present`, both (n_images, k);
    `murk`, the image's factor on noise, and `sickness` of the patient, both (n_images, 1).
    """

    patients: Array
    vigour: Array
    present: Array
    murk: Array
    sickness: Array


@dataclass(frozen=True)
class SecondWorld:
    """A population of patients, and the systems that read their radiographs.

    `noise` of systems, and optionally `factors` on it per finding; `gap` in severity between absent and subtle
    findings; `readers`: noise of a reader; `stays`: mean and standard deviation of the log number of an outpatient's
    additional images; `digits` of scores; `is_tuned`: as many calls as positive images, otherwise :data:`_LEANING`;
    `place`: localization skill, a logit; `loss`: additional noise of system 0; `is_chance`: scores ignore the image;
    `dead`: the finding whose score is always 0.
    """

    name: str
    prevalence: tuple[float, ...] = REVEAL
    noise: float = 1.0
    factors: tuple[float, ...] = ()
    gap: float = 0.0
    readers: float = 0.3
    stays: tuple[float, float] = (-1.2, 0.8)
    digits: int = 4
    is_tuned: bool = False
    place: float = 0.0
    loss: float = 0.0
    is_chance: bool = False
    dead: str = ""

    @property
    def findings(self) -> tuple[str, ...]:
        """Names of the findings, with their prevalences."""
        return tuple(NATURE)[: len(self.prevalence)]

    def draw(self, n_patients: int, n_trials: int, n_systems: int, rng: np.random.Generator) -> Iterator[Trial]:
        """Yield independent trials of `n_patients` patients with one image or more."""
        images = _radiographs(self, n_patients * n_trials, rng, _thresholds(self))
        shared = _normals(rng, *images.present.shape) * _SHARED
        size = _by_patient(images, rng, 0.8) + _normals(rng, *images.present.shape) * 0.6 + 0.3 * images.vigour
        size -= 0.5 * _normals(rng, *images.present.shape) + 0.3 * (images.murk - 1)  # difficulty common to all systems
        systems = [self._system(images, shared, size, i, rng) for i in range(n_systems)]
        ends = np.searchsorted(images.patients, np.arange(n_trials + 1) * n_patients)
        for i, (start, end) in enumerate(pairwise(ends)):
            part = slice(start, end)
            own = [System(s.scores[part], s.calls[part], s.hits[part], s.ious[part]) for s in systems]
            yield Trial(images.patients[part] - i * n_patients, images.present[part], own)

    def true_values(self, n_systems: int) -> dict[str, Array]:
        """Return metric -> value in the whole population, (n_systems, n_findings)."""
        pair = population(self)
        return {metric: values[np.minimum(np.arange(n_systems), 1)] for metric, values in pair.items()}

    def _system(self, images: _Images, shared: Array, size: Array, i: int, rng: np.random.Generator) -> System:
        """Return the results of system `i`."""
        is_worse = self.loss > 0 and i == 0
        evidence = _evidence(self, images, shared, rng, is_worse=is_worse)
        logits = (evidence - _offsets(self, is_worse=is_worse)) * (3 / (1 + self.noise))
        top = 10**self.digits
        codes = np.rint(top / (1 + np.exp(-logits, dtype=np.float64)))
        if self.dead:
            codes[:, self.findings.index(self.dead)] = 0
        place = self.place - self.loss * is_worse
        hits, ious = _localizations(self, images, size, place, rng)
        return System(codes / top, 2 * codes >= top, hits, ious)


def _normals(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def _by_patient(images: _Images, rng: np.random.Generator, scale: float) -> Array:
    """Return normal values per finding that are equal in all images of a patient."""
    return _normals(rng, int(images.patients[-1]) + 1, images.present.shape[1])[images.patients] * np.float32(scale)


def _radiographs(
    world: SecondWorld, n_patients: int, rng: np.random.Generator, thresholds: Array | None = None
) -> _Images:
    """Draw radiographs; without thresholds, `vigour` is the severity and `present` is False."""
    natures = [NATURE[name] for name in world.findings]
    loadings = np.array([nature.loadings for nature in natures], np.float32).T
    lasting = np.array([nature.lasting for nature in natures], np.float32)
    is_inpatient = rng.random(n_patients) < 0.8
    processes = rng.standard_gamma(0.7, (n_patients, 5), np.float32)
    processes *= np.where(is_inpatient, 1.2, 0.6).astype(np.float32)[:, None]
    sickness = (processes.sum(axis=1) - 3.8) / 2.2  # mean and standard deviation of the sum
    mean, deviation = world.stays
    further = np.exp(mean + 0.5 * is_inpatient + 0.15 * sickness + deviation * rng.standard_normal(n_patients))
    n_images = 1 + np.minimum(further, _MOST_IMAGES - 1).astype(int)
    patients = np.repeat(np.arange(n_patients), n_images)
    stable = processes @ loadings + np.sqrt(lasting) * _normals(rng, n_patients, len(natures))
    severity = stable[patients] + np.sqrt(1 - lasting) * _normals(rng, len(patients), len(natures))
    murk = np.exp(0.3 * _normals(rng, len(patients), 1) + 0.2 * is_inpatient[patients, None]).astype(np.float32)
    ill = sickness[patients, None]
    if thresholds is None:
        return _Images(patients, severity, np.zeros(severity.shape, bool), murk, ill)
    excess = severity - thresholds
    vigour = excess + np.float32(world.gap) * np.sign(excess)
    votes = np.zeros(vigour.shape, np.int8)
    for strictness in _normals(rng, 3, n_patients, 1) * np.float32(0.6):
        seen = strictness[patients] + _normals(rng, *vigour.shape) * np.float32(0.8)
        votes += vigour + np.float32(world.readers) * murk * seen > 0
    return _Images(patients, vigour, votes >= 2, murk, ill)


def _evidence(world: SecondWorld, images: _Images, shared: Array, rng: np.random.Generator, *, is_worse: bool) -> Array:
    """Return a system's evidence for each finding; higher values mean that the finding is more probable."""
    noise: Array = shared + _by_patient(images, rng, _OF_PATIENT) + _OF_IMAGE * _normals(rng, *shared.shape)
    if world.is_chance:
        return noise
    factors = np.array(world.factors or (1.0,) * shared.shape[1], np.float32)
    scale = np.float32(world.noise * (1 + world.loss * is_worse)) * factors
    seen: Array = 3 * np.tanh(images.vigour / 3)  # above 3, a finding does not become more obvious
    return seen + scale * (images.murk * noise + np.float32(0.3) * images.sickness)


def _localizations(
    world: SecondWorld, images: _Images, size: Array, place: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return a system's hits and IoU, NaN if a finding is absent."""
    image, finding = np.nonzero(images.present)
    ease = np.array([NATURE[name].ease for name in world.findings])[finding] + place
    own = ease + size[image, finding] + _by_patient(images, rng, 0.6)[image, finding]
    has_hit = own + rng.logistic(0, 0.8, len(own)) > 0
    is_lost = ~has_hit & (rng.random(len(own)) < 0.7)
    mean = 1 / (1 + np.exp(0.7 - 0.4 * own - 0.8 * has_hit))
    overlap = rng.beta(7 * mean, 7 * (1 - mean))
    hits, ious = np.full((2, *images.present.shape), np.nan)
    hits[image, finding] = has_hit
    ious[image, finding] = np.where(is_lost, 0, overlap)
    return hits, ious


@cache
def _thresholds(world: SecondWorld) -> Array:
    """Return the severity at which an ideal reader calls each finding present, derived from its prevalence."""
    pilot = _radiographs(world, _PILOT_PATIENTS, np.random.default_rng(_SEED))
    quantiles = 1 - np.array(world.prevalence)
    return np.array([np.quantile(pilot.vigour[:, j], q) for j, q in enumerate(quantiles)], np.float32)


@cache
def _offsets(world: SecondWorld, *, is_worse: bool) -> Array:
    """Return the evidence that corresponds to a score of 0.5 for each finding, derived from the number of calls."""
    rng = np.random.default_rng(_SEED + 1)
    pilot = _radiographs(world, _PILOT_PATIENTS, rng, _thresholds(world))
    shared = _normals(rng, *pilot.present.shape) * _SHARED
    evidence = _evidence(world, pilot, shared, rng, is_worse=is_worse)
    leaning = np.ones(len(world.findings)) if world.is_tuned else np.array(_LEANING[: len(world.findings)])
    quantiles = 1 - np.array(world.prevalence) * leaning
    return np.array([np.quantile(evidence[:, j], q) for j, q in enumerate(quantiles)], np.float32)


@cache
def population(world: SecondWorld, n_images: int = _POPULATION_IMAGES) -> dict[str, Array]:
    """Return metric -> true values (2, n_findings) of system 0 and of the other systems, from at least `n_images`
    images.

    In a world without `loss`, both systems are pooled and have the same values. Undefined values are NaN.
    """
    rng = np.random.default_rng(_SEED + 2)
    k, levels = len(world.findings), 10**world.digits + 1
    counts = np.zeros((2, 2, k, levels))  # axes: system, absent or present, finding, score
    located = np.zeros((2, 2, k))  # axes: system, hits or IoU, finding
    n_drawn = 0
    while n_drawn < n_images:
        for trial in world.draw(10_000, 1, 2, rng):
            n_drawn += len(trial.patients)
            for i, system in enumerate(trial.systems):
                codes = np.rint(system.scores * (levels - 1)).astype(int) + levels * np.arange(k)
                for present in (False, True):
                    of_label = np.bincount(codes[trial.present == present], minlength=k * levels)
                    counts[i, int(present)] += of_label.reshape(k, levels)
                located[i] += np.nansum([system.hits, system.ious], axis=1)
    if world.loss == 0:
        counts[:], located[:] = counts.sum(axis=0), located.sum(axis=0)
    values = values_of_counts(counts[:, 1], counts[:, 0])
    positives = counts[:, 1].sum(axis=-1)
    return values | {"point_hit": located[:, 0] / positives, "mask_iou": located[:, 1] / positives}


def values_of_counts(present: Array, absent: Array) -> dict[str, Array]:
    """Return the metrics from numbers of images per score (..., n_scores), for scores rising evenly from 0 to 1.

    Calls are scores of 0.5 or more. AUROC counts ties as half. Average precision is the mean over positive images of
    the precision among all images with at least the same score. Undefined values are NaN.
    """
    half = (present.shape[-1] - 1) // 2
    tp, fp = (x[..., half:].sum(axis=-1) for x in (present, absent))
    fn, tn = (x[..., :half].sum(axis=-1) for x in (present, absent))
    n = tp + fp + fn + tn
    by_chance = ((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)) / n**2
    lower = absent.cumsum(axis=-1) - absent / 2
    n_above = (present + absent)[..., ::-1].cumsum(axis=-1)[..., ::-1]
    precisions = present[..., ::-1].cumsum(axis=-1)[..., ::-1] / np.maximum(n_above, 1)
    with np.errstate(invalid="ignore"):
        return {
            "recall": tp / (tp + fn),
            "specificity": tn / (tn + fp),
            "precision": tp / (tp + fp),
            "npv": tn / (tn + fn),
            "f1": 2 * tp / (2 * tp + fp + fn),
            "cohen_kappa": ((tp + tn) / n - by_chance) / (1 - by_chance),
            "auroc": (present * lower).sum(axis=-1) / ((tp + fn) * (fp + tn)),
            "average_precision": (present * precisions).sum(axis=-1) / (tp + fn),
        }


SECOND_WORLDS = (
    SecondWorld("second-ordinary", noise=1.3),
    SecondWorld("second-good", noise=0.8, gap=0.2, digits=2, place=0.6),
    SecondWorld("second-excellent", noise=0.5, gap=0.8, readers=0.25, is_tuned=True, place=2.0),
    SecondWorld("second-chance", is_chance=True, place=-2.0),
    SecondWorld("second-clusters", noise=1.2, stays=(0.3, 1.1), place=0.3),
    SecondWorld("second-stays", noise=1.2, stays=(0.3, 0.5), place=0.3),
    SecondWorld("fresh-stays", noise=0.9, gap=0.1, readers=0.4, stays=(0.6, 0.4), digits=3, place=0.4),
    SecondWorld(
        "second-uneven",
        noise=1.0,
        factors=(1.5, 0.5, 0.3, 2.5, 1.0, 0.2, 3.0, 0.8, 0.3, 1.0, 1.5, 0.4),
        digits=3,
        dead="pneumothorax",
    ),
    SecondWorld("second-worse", noise=0.8, gap=0.2, is_tuned=True, place=0.8, loss=0.6),
    SecondWorld("second-six", SIX, noise=1.0, gap=0.2, place=0.3),
    SecondWorld("second-rare", RARE, noise=1.0, gap=0.3, place=0.3),
)
"""All systems of a world have equal skill, except in ``second-worse``."""
