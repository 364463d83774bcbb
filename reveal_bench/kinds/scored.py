"""Scored rows, and what kinds tell of them beside estimates: what may be shown, how sure a system was, curves.

Each kind says which figures a board may show, the board how finely. A *cell* is what a figure counts: the cases of a
finding, the scored answers of a criterion. Those with fewer than `min_cell` are hidden. Which ones are hidden follows
from the references alone, never from the submission.

The width of an exact interval depends on which cases a submission had right, so it reveals more of the labels than the
value does. If a score counts right answers, a kind therefore gives a *spread* instead: the standard error that the
score would have for each possible true value. It is computed from facts that the sender knows (the numbers called) and
facts that never change (the numbers of cases and patients). An interval made of it and the rounded value reveals
nothing more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.metrics.bootstrap import Resampled
from reveal_bench.metrics.intervals import Estimate, Resampling

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Spread = Callable[[FloatArray], FloatArray]
"""True values of a figure -> the standard error that it would have, both in the unit of its metric."""


class Rows(ABC):
    """Scored cases of one submission: the rows from which every figure, interval and comparison derives.

    Shown as the number and the columns of their Arrow table.

    Attributes
    ----------
    kind : key in KINDS
    """

    kind: ClassVar[str]

    def __repr__(self) -> str:
        table = self.to_table()
        return f"<{table.num_rows:,} rows: {', '.join(table.column_names)}>"

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The findings, labels or criteria that have scores, in table order."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the scores for people; empty unless a kind has some."""
        return ()

    @property
    def positives(self) -> Mapping[str, int]:
        """Cases per group that have it, where the n of a figure counts those without, too; here none to tell."""
        return {}

    @abstractmethod
    def metrics(self) -> list[str]:
        """Return metrics that apply, with a figure per group, in the order of METRICS."""

    def macro_over(self, groups: Sequence[str]) -> tuple[str, ...]:
        """Return the groups that the macro averages if `groups` are reported: all, unless a kind says otherwise."""
        return tuple(groups)

    @abstractmethod
    def estimates(
        self, resampling: Resampling, *, stratum: str | None = None, groups: Sequence[str] | None = None
    ) -> list[Estimate]:
        """Every figure with its interval, of all cases or of one of the :meth:`strata`, and of all groups or some.

        Raises
        ------
        ValueError
            If the stratum, unit, group or interval is unknown.
        """

    @abstractmethod
    def strata(self) -> dict[str, BoolArray]:
        """Parts of the cases that are reported by themselves; those without a case are left out."""

    def stratum(self, name: str) -> BoolArray:
        """Return one of the :meth:`strata`; raises ArgumentError if the name is unknown."""
        parts = self.strata()
        if name not in parts:
            raise ArgumentError("stratum", f"must be one of {list(parts)}", repr(name))
        return parts[name]

    @abstractmethod
    def to_table(self) -> pa.Table:
        """Return the rows as an Arrow table."""

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame."""
        frame: pd.DataFrame = self.to_table().to_pandas()
        return frame

    @classmethod
    @abstractmethod
    def resample(
        cls, systems: Sequence[Self], resampling: Resampling, *, metrics: Sequence[str], groups: Sequence[str]
    ) -> Sequence[Mapping[str, Resampled]]:
        """Per system, metric -> figures of the groups, on the data and in replicates that all systems share."""

    @classmethod
    @abstractmethod
    def answers(cls, systems: Sequence[Self], metric: str, groups: Sequence[str]) -> FloatArray:
        """Return the systems' answers to the same cases of `groups` as numbers, (n_systems, n_cases)."""

    @abstractmethod
    def patients(self) -> frozenset[str]:
        """Return all patients of the split, whether or not they have a case."""

    @abstractmethod
    def of_patients(self, patients: Collection[str]) -> Self:
        """Return the rows of `patients` alone, as if the split held nobody else."""

    @abstractmethod
    def without(self, questions: Collection[tuple[str, str]]) -> Self:
        """Return the rows without some questions, as a lint report names them: as if these had not been asked."""

    def comparable(self) -> Self:
        """Return the rows as they are compared with others': without what a system added to the cases asked."""
        return self

    def chance(self, groups: Sequence[str]) -> dict[str, float]:
        """Metric -> the macro over `groups` that answers drawn at random are expected to have: of the references alone.

        Metrics for which that says nothing are left out; here all.
        """
        return {}

    def confidences(self) -> Confidences | None:
        """How sure the system was of its answers, and what came of them; None where it did not say."""
        return None


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Figures that may be shown.

    Attributes
    ----------
    estimates : those that may be shown; `n` is the size of the cell, of a macro the groups in it
    shown, hidden : groups, in table order
    note : the hidden groups and the reason, for people
    spreads : (metric, group) -> the spread for its interval; other intervals are in the estimates
    """

    estimates: Sequence[Estimate]
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    note: str
    spreads: Mapping[tuple[str, str], Spread] = field(default_factory=dict)


def effective_size(units: Iterable[str]) -> float:
    """Return the least number of independent cases equal in information, if all cases of a unit are right or wrong
    together: ``(sum m)^2 / sum m^2`` for m cases of a unit (Kish 1965, Survey Sampling, on weights).

    Examples
    --------
    >>> effective_size("aabcd"), effective_size("abcd")  # 25 / (4 + 1 + 1 + 1)
    (3.5714285714285716, 4.0)
    """
    _, counts = np.unique(list(units), return_counts=True)
    return float(counts.sum() ** 2 / (counts**2).sum())


def spread_of_share(n: float) -> Spread:
    """Return the spread of a proportion of `n` independent cases.

    Examples
    --------
    >>> spread_of_share(25)(np.array([0.5, 1.0])).tolist()
    [0.1, 0.0]
    """
    return lambda truth: np.sqrt(truth * (1 - truth) / n)


def disclosure_of_findings(
    estimates: Sequence[Estimate], findings: Sequence[str], visible: Sequence[str], *, counted: str, min_cell: int
) -> Disclosure:
    """Return a disclosure of findings, or of labels, with its note; `counted` says what a cell holds."""
    hidden = tuple(finding for finding in findings if finding not in visible)
    if not visible:
        note = f"Nothing can be shown: every finding has fewer than {min_cell} {counted} in this split."
    elif not hidden:
        note = "All findings are shown."
    else:
        note = f"Fewer than {min_cell} {counted}, not shown and not in any macro: {', '.join(hidden)}."
    return Disclosure(estimates, tuple(visible), hidden, note)


@dataclass(frozen=True, slots=True)
class Confidences:
    """The cases of a split for which a system said how sure it was.

    Attributes
    ----------
    event : what a probability is of, such as "findings present"
    whole_split : True if the cases are all of the split, with and without the event, so that they show what decisions
        by the probabilities are worth; not so where a case is there because its finding is
    groups : of the benchmark, in table order
    case_groups, case_patients : sequences of str (n_cases,)
    all_patients : every patient of the split, with cases or not
    probabilities : float array (n_cases,) in [0, 1], of the event
    happened : bool array (n_cases,)
    sureness : float array (n_cases,) in [0, 1], how sure the system was that its own answer is right
    right : bool array (n_cases,), whether it was
    n_without_confidence : cases of the split without a confidence, which have no part
    """

    event: str
    whole_split: bool
    groups: tuple[str, ...]
    case_groups: Sequence[str]
    case_patients: Sequence[str]
    all_patients: frozenset[str]
    probabilities: FloatArray
    happened: BoolArray
    sureness: FloatArray
    right: BoolArray
    n_without_confidence: int

    def __len__(self) -> int:
        return len(self.probabilities)


Curve = tuple[FloatArray, FloatArray]
"""x and y of the points of a curve, in order."""


@dataclass(frozen=True, slots=True)
class Band:
    """Sensitivity at a rate of false alarms per image."""

    finding: str
    false_alarms: float
    sensitivity: Estimate


@dataclass(frozen=True, slots=True)
class SizeStratum:
    """Share of the lesions of a size that are found at the threshold fixed beforehand."""

    finding: str
    size: str
    n: int
    sensitivity: Estimate


@dataclass(frozen=True)
class Curves:
    """Curves of the findings that have a lesion.

    Attributes
    ----------
    froc : finding -> false alarms per image, and share of lesions found
    bands : of the macro, then of every finding at the rates of FROC
    precision : finding -> recall, and precision, of hits by an IoU of a half
    average_precision : macro and finding -> of the same hits
    sizes : of every finding; a macro would be over other findings in each size, some with a single lesion
    threshold : score from which a detection counts in `sizes`; NaN where findings have their own
    """

    froc: Mapping[str, Curve]
    bands: Sequence[Band]
    precision: Mapping[str, Curve]
    average_precision: Mapping[str, float]
    sizes: Sequence[SizeStratum]
    threshold: float
