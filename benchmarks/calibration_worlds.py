"""Simulate studies and systems with known true scores ("worlds") for `calibration.py`.

A world draws trials. Each trial is an independent study: patients with one or more images, present and absent findings,
and each system's score, call, hit and IoU for every image and finding. All are computed from normal variables that are
correlated within a patient and between systems. The number of a patient's images is independent of all other variables,
so every true value has a closed form.

A finding's score is normal with variance 1, and its mean is higher by ``d`` in images with the finding. Calls are
scores above ``t``, so the specificity is ``Phi(t)``, the sensitivity ``Phi(d - t)`` and the AUROC ``Phi(d / sqrt 2)``.
Worlds of other generators only need the members of :class:`AnyWorld`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_NORMAL = NormalDist()
_GRID = np.linspace(-7, 13, 8001)


@dataclass(frozen=True)
class System:
    """One system's results, each (n_images, n_findings): `scores` in [0, 1], `calls` True or False, `hits` 0 or 1 and
    `ious` in [0, 1], hits and IoU NaN if the finding is absent.
    """

    scores: Array
    calls: Array
    hits: Array
    ious: Array


@dataclass(frozen=True)
class Trial:
    """One simulated study: each image's patient (n_images,), counted from 0, and `present` (n_images, n_findings)."""

    patients: Array
    present: Array
    systems: list[System]


class AnyWorld(Protocol):
    """Interface of worlds that `calibration.py` can simulate."""

    @property
    def name(self) -> str:
        """Name of the world, on the command line and in tables."""
        ...

    @property
    def findings(self) -> tuple[str, ...]:
        """Unique names of the findings."""
        ...

    def draw(self, n_patients: int, n_trials: int, n_systems: int, rng: np.random.Generator) -> Iterator[Trial]:
        """Yield independent trials."""
        ...

    def true_values(self, n_systems: int) -> dict[str, Array]:
        """Return metric -> value in the whole population, (n_systems, n_findings)."""
        ...


def phi(x: npt.ArrayLike) -> Array:
    """Return the normal distribution function, interpolated in a table."""
    return np.interp(np.asarray(x, np.float64), _table()[0], _table()[1])


@cache
def _table() -> tuple[Array, Array]:
    grid = np.linspace(-9, 9, 18001)
    return grid, np.array([_NORMAL.cdf(x) for x in grid])


def quantile(p: npt.ArrayLike) -> Array:
    """Return the quantiles of the normal distribution."""
    return np.vectorize(_NORMAL.inv_cdf, otypes=[np.float64])(p)


@dataclass(frozen=True)
class World:
    """A population of patients, and the systems that read their images.

    Attributes
    ----------
    prevalence : of each finding
    sensitivity, specificity, hit_rate : of calls and hits, one number or one per finding
    images : smallest and largest number of a patient's images, all numbers equally likely
    within : correlation between a patient's images
    between : correlation between systems
    skew : IoU is a uniform variable raised to this power; above 1, most values are low
    steps : scores are rounded to multiples of 1 / steps; 0 if they are not rounded
    worse, worse_in : `d` of the first system is lower by `worse`, and its hit rate by `worse_in`
    spreads : if set, each system's IoU is uniform around 0.5, in ranges whose widths rise evenly over systems from the
        first number to the second
    """

    name: str
    prevalence: tuple[float, ...]
    sensitivity: float | tuple[float, ...] = 0.76
    specificity: float | tuple[float, ...] = 0.9
    hit_rate: float | tuple[float, ...] = 0.7
    images: tuple[int, int] = (1, 1)
    within: float = 0.0
    between: float = 0.5
    skew: float = 1.0
    steps: int = 0
    worse: float = 0.0
    worse_in: float = 0.0
    spreads: tuple[float, float] | None = None
    findings: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = [f"{100 * p:g} %" for p in self.prevalence]
        unique = (name + " bis" * names[:i].count(name) for i, name in enumerate(names))
        object.__setattr__(self, "findings", tuple(unique))

    def of_system(self, system: int) -> tuple[Array, Array, Array]:
        """Return ``d``, ``t`` and the hit rate of a system, each (n_findings,)."""
        k = len(self.prevalence)
        sensitivity, specificity, hit_rate = (
            np.broadcast_to(x, k) for x in (self.sensitivity, self.specificity, self.hit_rate)
        )
        t, is_first = quantile(specificity), system == 0
        return t + quantile(sensitivity) - self.worse * is_first, t, hit_rate - self.worse_in * is_first

    def draw(self, n_patients: int, n_trials: int, n_systems: int, rng: np.random.Generator) -> Iterator[Trial]:
        """Yield trials; in trials of the same call, patients have the same numbers of images."""
        patients = np.repeat(np.arange(n_patients), rng.integers(self.images[0], self.images[1] + 1, n_patients))
        shape = (n_trials, len(patients), len(self.prevalence))

        def latent() -> Array:
            own = rng.standard_normal(shape, np.float32)
            if not self.within:
                return own
            shared = rng.standard_normal((n_trials, n_patients, shape[-1]), np.float32)[:, patients]
            return np.sqrt(self.within) * shared + np.sqrt(1 - self.within) * own

        present = latent() < quantile(self.prevalence)
        common = [latent() for _ in range(3)]
        systems = []
        for i in range(n_systems):
            call, hit, iou = (np.sqrt(self.between) * c + np.sqrt(1 - self.between) * latent() for c in common)
            d, t, hit_rate = self.of_system(i)
            moved = call + d * present - t
            scores = phi(moved)
            scores = np.round(scores * self.steps) / self.steps if self.steps else scores
            hits = np.where(present, hit < quantile(hit_rate), np.nan)
            ious = np.where(present, self._iou(phi(iou), i, n_systems), np.nan)
            systems.append((scores, moved > 0, hits, ious))
        for trial in range(n_trials):
            yield Trial(patients, present[trial], [System(*(part[trial] for part in own)) for own in systems])

    def _iou(self, uniform: Array, system: int, n_systems: int) -> Array:
        if self.spreads is None:
            return uniform**self.skew
        width = np.linspace(*self.spreads, n_systems)[system]
        return 0.5 + width * (uniform - 0.5)

    def true_values(self, n_systems: int) -> dict[str, Array]:
        """Return metric -> value in the whole population, (n_systems, n_findings)."""
        prevalence = np.array(self.prevalence)
        systems = []
        for i in range(n_systems):
            d, t, hit_rate = self.of_system(i)
            iou = np.full(len(d), 0.5 if self.spreads else 1 / (1 + self.skew))
            systems.append(
                rates_of_calls(prevalence, phi(d - t), phi(t))
                | self._rates_of_scores(d, t)
                | {"point_hit": hit_rate, "mask_iou": iou}
            )
        return {name: np.array([own[name] for own in systems]) for name in systems[0]}

    def _rates_of_scores(self, d: Array, t: Array) -> dict[str, Array]:
        values = [self._rates_of_score(*one) for one in zip(self.prevalence, d, t, strict=True)]
        return {"auroc": np.array([v[0] for v in values]), "average_precision": np.array([v[1] for v in values])}

    def _rates_of_score(self, prevalence: float, d: float, t: float) -> tuple[float, float]:
        edges = _GRID
        if self.steps:
            edges = np.concatenate([[-np.inf], t + quantile((np.arange(self.steps) + 0.5) / self.steps), [np.inf]])
        positive, negative = (np.diff(phi(np.clip(edges - shift, -9, 9))) for shift in (d, 0.0))
        below = np.cumsum(negative) - negative
        area = float((positive * (below + negative / 2)).sum())
        true, false = (np.cumsum(p[::-1])[::-1] * w for p, w in ((positive, prevalence), (negative, 1 - prevalence)))
        return area, float((positive * np.divide(true, true + false, out=np.zeros_like(true), where=true > 0)).sum())


def rates_of_calls(prevalence: Array, sensitivity: Array, specificity: Array) -> dict[str, Array]:
    """Return metric -> value in a population with these rates."""
    tp, fp = prevalence * sensitivity, (1 - prevalence) * (1 - specificity)
    fn, tn = prevalence - tp, (1 - prevalence) * specificity
    called = tp + fp
    chance = called * prevalence + (1 - called) * (1 - prevalence)
    return {
        "recall": sensitivity,
        "specificity": specificity,
        "precision": tp / called,
        "npv": tn / (tn + fn),
        "f1": 2 * tp / (2 * tp + fp + fn),
        "cohen_kappa": (tp + tn - chance) / (1 - chance),
    }


_OLD = (0.03, 0.1, 0.2, 0.35, 0.6)
_STEPS = np.linspace(0, 1, 5)
_OLD_SKILL: dict[str, Any] = {
    "sensitivity": 0.758,
    "specificity": tuple(1 - phi(-1.5 + 0.6 * _STEPS)),
    "hit_rate": tuple(0.45 + 0.35 * _STEPS),
    "images": (1, 3),
    "within": 0.3,
}
REVEAL = (0.8, 0.6, 0.45, 0.35, 0.25, 0.18, 0.13, 0.09, 0.06, 0.05, 0.03, 0.02)
SIX = (0.5, 0.35, 0.25, 0.2, 0.15, 0.1)
_UNEQUAL = (0.7, 0.95, 0.8, 0.97, 0.5, 0.9, 0.96, 0.6, 0.85, 0.97, 0.75, 0.9)
_EXCELLENT: dict[str, Any] = {"sensitivity": 0.96, "specificity": 0.99, "hit_rate": 0.96, "skew": 0.15}
_GOOD: dict[str, Any] = {"sensitivity": 0.85, "specificity": 0.902, "hit_rate": 0.85, "skew": 0.4}

WORLDS: tuple[World, ...] = (
    World("plain", _OLD, **_OLD_SKILL),
    World("clustered", _OLD, **_OLD_SKILL | {"images": (2, 3), "within": 0.6}, skew=4.0, between=0.3),
    World("alike", _OLD, **_OLD_SKILL, skew=0.5, between=0.8),
    World("imbalanced", (0.03, 0.05, 0.05, 0.1, 0.6), **_OLD_SKILL | {"within": 0.5}),
    World("reveal-chance", REVEAL, sensitivity=0.3, specificity=0.7, hit_rate=0.1, skew=6.0),
    World("reveal-poor", REVEAL, sensitivity=0.6, specificity=0.758, hit_rate=0.5),  # AUROC 0.75
    World("reveal-good", REVEAL, **_GOOD),  # AUROC 0.95
    World("reveal-very-good", REVEAL, sensitivity=0.95, specificity=0.95, hit_rate=0.93, skew=0.25),  # AUROC 0.99
    World("reveal-excellent", REVEAL, **_EXCELLENT),  # AUROC 0.998
    World("reveal-unequal", REVEAL, sensitivity=_UNEQUAL, hit_rate=_UNEQUAL),
    World("reveal-ties", REVEAL, **_GOOD, steps=10),
    World("reveal-clusters", REVEAL, **_GOOD, images=(1, 7), within=0.5),
    World("reveal-alike", REVEAL, **_EXCELLENT, between=0.9),
    World("reveal-worse", REVEAL, **_EXCELLENT, worse=0.6, worse_in=0.05),
    World("six-good", SIX, **_GOOD),
    World("six-excellent", SIX, **_EXCELLENT),
    World("six-worse", SIX, **_EXCELLENT, worse=0.6, worse_in=0.05),
    World("spread", SIX, spreads=(0.1, 1.0)),
)
