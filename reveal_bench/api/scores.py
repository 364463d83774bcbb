"""What ``rb.score`` returns: figures, and where they are asked for, groups of patients and single readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from reveal_bench.api.shown import Shown
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.evaluation.single_readers import AgainstReference
from reveal_bench.evaluation.subgroups import Subgroup
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.metrics.words import (
    groups_text,
    interval_text,
    intervals_text,
    n_text,
    p_text,
    scale_text,
    value_text,
)

if TYPE_CHECKING:
    from reveal_bench.kinds.scored import Rows

__all__ = ["AgainstReaders", "Scores", "Subgroups"]

FEW = "too few patients"
"""Why a figure has no interval, see docs/statistics.md."""


@dataclass(frozen=True, repr=False)
class Scores(Shown):
    """Scores of one system, with their intervals.

    Attributes
    ----------
    scored : the predictions as they were scored, with the lint report, the protocol and all cases
    subgroups : groups of patients and their differences from the rest, where they were asked for
    readers : scores against single readers and their agreement, where they were asked for
    """

    scored: ScoredFile
    subgroups: Subgroups | None = None
    readers: AgainstReaders | None = None

    @property
    def estimates(self) -> Sequence[Estimate]:
        """Every figure with its evidence."""
        return self.scored.estimates

    @property
    def rows(self) -> Rows:
        """The cases from which all figures derive: ``result.rows.to_pandas()``."""
        return self.scored.rows

    @property
    def records(self) -> list[dict[str, Any]]:
        """Columns metric, finding, value, low, high, n, n_undefined, flag: fractions, NaN where undefined.

        `flag` says why a figure that has a value has no interval; else it is empty.
        """
        return [_record(estimate) for estimate in self.estimates]

    @property
    def strata(self) -> list[dict[str, Any]]:
        """As `records`, of each part of the split that was scored by itself, with its name as `stratum`."""
        return [{"stratum": name} | _record(e) for name, part in self.scored.strata.items() for e in part]

    @property
    def caption(self) -> str:
        """What was scored on what, how intervals were made, and whether the linter warns of anything."""
        how = {name: self.scored.protocol[name] for name in ("interval", "n_resamples", "unit", "seed")}
        report = self.scored.report
        n = sum(problem.severity == "warning" for problem in report.problems)
        warned = f"; {n} warning{'s' * (n > 1)} of the linter: scored.report" if n else ""
        scale = scale_text(one.metric for one in self.scored.estimates)
        return f"{report.file} on {self.scored.place}: {scale} with {intervals_text(**how)}{warned}"

    def rows_shown(self) -> list[dict[str, str]]:
        """Macros first, then the findings: value and interval in percent, ratings on their scale."""
        ordered = sorted(self.estimates, key=lambda e: e.finding != MACRO)  # stable
        positives = self.rows.positives
        return [
            {
                "metric": METRICS[e.metric].title,
                "finding": e.finding,
                "value": value_text(e.metric, e.value),
                "95 % interval": interval_text(e.metric, e.low, e.high),
                "n": groups_text(e.metric, e.n) if e.finding == MACRO else n_text(e.n, positives.get(e.finding)),
            }
            for e in ordered
        ]

    def to_document(self) -> dict[str, Any]:
        """The stable JSON document of ``reveal-bench score --json``; `subgroups` and `readers` where asked for."""
        parts = {"subgroups": self.subgroups, "readers": self.readers}
        return self.scored.to_document() | {name: part.plain for name, part in parts.items() if part is not None}


def _record(estimate: Estimate) -> dict[str, Any]:
    names = ("metric", "finding", "value", "low", "high", "n", "n_undefined")
    is_bare = estimate.value == estimate.value and estimate.low != estimate.low
    return {name: getattr(estimate, name) for name in names} | {"flag": FEW if is_bare else ""}


@dataclass(frozen=True, repr=False)
class Subgroups(Shown):
    """Groups of patients on one metric, each against all other patients.

    Attributes
    ----------
    groups : every group with its evidence
    """

    groups: Sequence[Subgroup]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The fields of each :class:`~reveal_bench.evaluation.subgroups.Subgroup`."""
        return [asdict(group) for group in self.groups]

    @property
    def caption(self) -> str:
        """What is shown of which groups."""
        first = self.groups[0]
        return (
            f"{METRICS[first.metric].title}, macro, by {first.by}: 95 % intervals by the jackknife over patients; "
            "difference from all other patients, p corrected for all groups"
        )

    def rows_shown(self) -> list[dict[str, str]]:
        """Each group in percent."""
        return [
            {
                "group": g.group,
                "patients": str(g.n),
                "value": value_text(g.metric, g.value),
                "95 % interval": interval_text(g.metric, g.low, g.high),
                "difference": value_text(g.metric, g.difference),
                "its interval": interval_text(g.metric, g.difference_low, g.difference_high),
                "p": p_text(g.p),
            }
            for g in self.groups
        ]


@dataclass(frozen=True, repr=False)
class AgainstReaders(Shown):
    """A system against each reader and their agreement, and beside each reader against the others.

    Attributes
    ----------
    references : every reference with its evidence
    """

    references: Sequence[AgainstReference]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The fields of each :class:`~reveal_bench.evaluation.single_readers.AgainstReference`."""
        return [asdict(one) for one in self.references]

    @property
    def caption(self) -> str:
        """What is shown against whom."""
        title = METRICS[self.references[0].metric].title
        return (
            f"{title}, macro, against single readers: 95 % intervals over patients; beside a reader, who answers the "
            "same cases, with the difference, system less reader"
        )

    def rows_shown(self) -> list[dict[str, str]]:
        """Each reference in percent."""
        return [
            {
                "reference": one.reference,
                "n": str(one.n),
                "value": value_text(one.metric, one.value),
                "95 % interval": interval_text(one.metric, one.low, one.high),
                "reader": "" if one.reader is None else value_text(one.metric, one.reader_value),
                "difference": "" if one.reader is None else value_text(one.metric, one.difference),
                "its interval": interval_text(one.metric, one.difference_low, one.difference_high),
                "p": "" if one.reader is None else p_text(one.p),
            }
            for one in self.references
        ]
