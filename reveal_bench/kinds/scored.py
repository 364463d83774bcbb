"""Scored rows, and the disclosed scores, confidences and curves that kinds compute from them.

Each kind decides which scores a board may show, and the board decides how they are rounded. A *cell* is the set of
items that a score counts: the cases of a finding, the scored answers of a criterion. Scores whose cell has fewer than
`min_cell` items are hidden. Only the references decide which scores are hidden, never the submission.

The width of an exact interval depends on which cases a submission had right, so it reveals more of the labels than the
value does. If a score counts right answers, a kind therefore provides a *spread* instead: the standard error that the
score would have for each possible true value. The spread is computed from facts that the sender knows (the numbers of
cases called positive) and facts that never change (the numbers of cases and patients). An interval computed from the
spread and the rounded value reveals nothing more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.resampled import Resampled

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from reveal_bench.findings import FindingGroups

Spread = Callable[[FloatArray], FloatArray]
"""Function that maps true values of a score to the standard errors that the score would then have, in the metric's
unit.
"""


class Rows(ABC):
    """Scored cases of one submission, from which all scores, intervals and comparisons are computed.

    Their `repr` shows the number of rows and the columns of their Arrow table.

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
        """Findings, labels or criteria that have scores, in table order."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that explain the scores; empty by default."""
        return ()

    @property
    def settled(self) -> Mapping[str, Any]:
        """Options of the protocol that the ratings settle; empty by default."""
        return {}

    @property
    def positives(self) -> Mapping[str, int]:
        """Group -> number of cases that have it, if n also counts cases without it; empty otherwise."""
        return {}

    @abstractmethod
    def metrics(self) -> list[str]:
        """Return the metrics that apply, in the order of METRICS; each has a score per group."""

    @property
    def leading(self) -> str:
        """Metric of the protocol that the answers follow; "" for the metric of the kind's leaderboard."""
        return ""

    def macro_over(self, groups: Sequence[str]) -> tuple[str, ...]:
        """Return the groups that the macro averages if `groups` are reported; by default all."""
        return tuple(groups)

    @abstractmethod
    def estimates(
        self,
        resampling: Resampling,
        *,
        stratum: str | None = None,
        groups: Sequence[str] | None = None,
        metrics: Collection[str] | None = None,
    ) -> list[Estimate]:
        """Return every score with its interval, for all cases or a stratum, all groups or some, and all metrics or the
        given ones that apply.

        Raises
        ------
        ValueError
            If the stratum, unit, group or interval is unknown.
        """

    def group_macros(self, resampling: Resampling, groups: FindingGroups) -> dict[str, list[Estimate]]:
        """Return the name of each group of findings -> the macro of every metric over its findings."""
        return {
            name: [one for one in self.estimates(resampling, groups=findings) if one.finding == MACRO]
            for name, findings in groups.items()
        }

    @abstractmethod
    def strata(self) -> dict[str, BoolArray]:
        """Return stratum -> bool array over the cases, for the non-empty parts that are reported separately."""

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
        """Return, for each system, metric -> scores of the groups, in the data and in replicates that all systems
        share.
        """

    @classmethod
    @abstractmethod
    def answers(cls, systems: Sequence[Self], metric: str, groups: Sequence[str]) -> FloatArray:
        """Return each system's answers to the cases of `groups` as numbers, (n_systems, n_cases).

        Column i belongs to the same case for all systems."""

    @abstractmethod
    def patients(self) -> frozenset[str]:
        """Return all patients of the split, whether or not they have a case."""

    @abstractmethod
    def of_patients(self, patients: Collection[str]) -> Self:
        """Return the rows as if the split contained only `patients`."""

    @abstractmethod
    def without(self, questions: Collection[tuple[str, str]]) -> Self:
        """Return the rows as if `questions`, identified as in a lint report, had not been asked."""

    def comparable(self) -> Self:
        """Return the rows for comparison with other systems, without values that its answers added."""
        return self

    def without_cells(self) -> Self:
        """Return the rows without scores that depend on the grid of cells."""
        return self

    def chance(self, groups: Sequence[str]) -> dict[str, float]:
        """Return metric -> expected macro over `groups` of random answers, which depends only on the references.

        Metrics without a meaningful expectation are left out. The default implementation returns none.
        """
        return {}

    def confidences(self) -> Confidences | None:
        """Return the system's confidences and the outcomes of its answers; None if it gave no confidences."""
        return None


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Scores that may be shown.

    Attributes
    ----------
    estimates : estimates that may be shown; `n` is the size of the cell, or for a macro its number of groups
    shown, hidden : groups, in table order
    note : sentence on the hidden groups and the reason
    spreads : (metric, group) -> the spread from which its interval is computed; other intervals are in the estimates
    """

    estimates: Sequence[Estimate]
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    note: str
    spreads: Mapping[tuple[str, str], Spread] = field(default_factory=dict)


def effective_size(units: Iterable[str]) -> float:
    """Return the number of independent cases that carry as much information, if all cases of a unit are right or all
    are wrong.

    This lower bound is ``(sum m)^2 / sum m^2`` for units with m cases (Kish 1965, Survey Sampling, on weights).

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
    """Return a disclosure of findings or labels, with its note; `counted` names the items of a cell."""
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
    """The cases of a split for which a system gave a confidence.

    Attributes
    ----------
    event : event that a probability predicts, such as "findings present"
    whole_split : True if the cases are the whole split, with and without the event, so that the value of decisions by
        the probabilities can be computed; False if only cases with the finding are included
    groups : groups of the benchmark, in table order
    case_groups, case_patients : sequences of str (n_cases,)
    all_patients : every patient of the split, with or without cases
    probabilities : float array (n_cases,) in [0, 1], probability of the event
    happened : bool array (n_cases,)
    sureness : float array (n_cases,) in [0, 1], the system's confidence that its own answer is right
    right : bool array (n_cases,), True if the answer is right
    n_without_confidence : number of cases of the split without a confidence, which are left out
    are_probabilities : False if `probabilities` are scores on another scale, of which only the order counts
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
    are_probabilities: bool = True

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
    """Proportion of the lesions of a size that are found at the threshold fixed beforehand."""

    finding: str
    size: str
    n: int
    sensitivity: Estimate


@dataclass(frozen=True)
class Curves:
    """Curves of the findings that have a lesion.

    Attributes
    ----------
    froc : finding -> (false alarms per image, proportion of lesions found)
    bands : sensitivities at the rates of FROC, first of the macro, then of every finding
    precision : finding -> (recall, precision), for hits by an IoU of 0.5
    average_precision : "macro" or finding -> average precision of the same hits
    sizes : strata of every finding; no macro, since it would average different findings for each size, some with a
        single lesion
    threshold : lowest score at which a detection counts in `sizes`; NaN if findings have different thresholds
    without_lesions : the other findings
    """

    froc: Mapping[str, Curve]
    bands: Sequence[Band]
    precision: Mapping[str, Curve]
    average_precision: Mapping[str, float]
    sizes: Sequence[SizeStratum]
    threshold: float
    without_lesions: Sequence[str] = ()
