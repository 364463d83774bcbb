"""Records, manifest, predictions and rows of the toy kind; its only metric is accuracy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics.bootstrap import BootstrapMeans, bootstrap_means, estimates_from, resampling_counts
from reveal_bench.metrics.intervals import Estimate, Resampling

GROUPS = ("Tube",)
METRIC = "percent_agreement"


@dataclass(frozen=True)
class TubeRecord:
    """The reference of a film."""

    film_id: str
    study_id: str
    patient_id: str
    is_right: bool


@dataclass(frozen=True)
class TubeManifest:
    """The films asked."""

    kind: ClassVar[str] = "tubes"

    benchmark: str
    version: str
    split: str
    films: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """A model's answer for a film."""

    film_id: str
    is_right: bool
    line: int = 0


@dataclass(frozen=True, repr=False)
class TubeRows(Rows):
    """Correctness of the answer for each film, in order."""

    kind: ClassVar[str] = "tubes"

    films: tuple[str, ...]
    patient_ids: tuple[str, ...]
    is_correct: npt.NDArray[np.float64]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.films)

    @property
    def groups(self) -> tuple[str, ...]:
        return GROUPS

    def metrics(self) -> list[str]:
        return [METRIC]

    def estimates(
        self,
        resampling: Resampling,
        *,
        stratum: str | None = None,
        groups: Sequence[str] | None = None,
        metrics: Collection[str] | None = None,
    ) -> list[Estimate]:
        (means,) = self.resample([self], resampling, metrics=[METRIC], groups=GROUPS)
        recipe = resampling.signature(METRIC, 1)
        return estimates_from(means[METRIC], GROUPS, recipe=recipe, interval=resampling.interval)

    def strata(self) -> dict[str, npt.NDArray[np.bool_]]:
        return {}

    def to_table(self) -> pa.Table:
        return pa.table({"film_id": self.films, "patient_id": self.patient_ids, METRIC: self.is_correct})

    @classmethod
    def resample(
        cls, systems: Sequence[TubeRows], resampling: Resampling, *, metrics: Sequence[str], groups: Sequence[str]
    ) -> list[dict[str, BootstrapMeans]]:
        names = systems[0].patient_ids if resampling.unit == "patient" else systems[0].films
        code = {name: i for i, name in enumerate(sorted(set(names)))}
        units, one_group = np.array([code[name] for name in names]), np.zeros(len(names), np.int64)
        counts = resampling_counts(len(code), resampling)
        per_system = [bootstrap_means(rows.is_correct, one_group, units, n_groups=1, counts=counts) for rows in systems]
        return [{METRIC: means} for means in per_system]

    @classmethod
    def answers(cls, systems: Sequence[TubeRows], metric: str, groups: Sequence[str]) -> npt.NDArray[np.float64]:
        return np.array([rows.is_correct for rows in systems])

    def patients(self) -> frozenset[str]:
        return frozenset(self.patient_ids)

    def without(self, questions: Collection[tuple[str, str]]) -> TubeRows:
        return self._of([i for i, film in enumerate(self.films) if (film, "") not in questions])

    def of_patients(self, patients: Collection[str]) -> TubeRows:
        return self._of([i for i, patient in enumerate(self.patient_ids) if patient in patients])

    def _of(self, kept: list[int]) -> TubeRows:
        films, owners = (tuple(column[i] for i in kept) for column in (self.films, self.patient_ids))
        return TubeRows(films, owners, self.is_correct[kept])

    @staticmethod
    def flags(values: Iterable[bool]) -> npt.NDArray[np.bool_]:
        return np.array(list(values), np.bool_)


def score_tubes(predictions: Sequence[Answer], records: Sequence[TubeRecord]) -> TubeRows:
    """Score the predictions; a film without an answer counts as wrong."""
    answers = {p.film_id: p.is_right for p in predictions}
    is_correct = np.array([float(answers.get(record.film_id) is record.is_right) for record in records])
    return TubeRows(tuple(r.film_id for r in records), tuple(r.patient_id for r in records), is_correct)
