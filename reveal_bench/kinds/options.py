"""Options of scoring, which commands and functions pass to the kind of benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from reveal_bench.metrics.intervals import Interval, Resampling

Thresholds = float | Mapping[str, float]
"""One threshold for all findings, or finding -> threshold."""


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """Everything that scores depend on, except predictions and references.

    A command or a function fills in what the user set; :meth:`Kind.resolve <reveal_bench.kinds.kind.Kind>` checks these
    options and adds the defaults of the kind of benchmark and of the dataset folder.

    Attributes
    ----------
    n_resamples, seed : number of replicates, and seed of the bootstrap
    unit : unit that is resampled: "patient", or the kind's own: "image", "study" or "task"
    interval : one of :attr:`Scoring.intervals <reveal_bench.kinds.parts.Scoring.intervals>`, the first unless given
    grid : cells per side (localization); the folder's own unless given
    thresholds : lowest probability at which a label or a detection counts: one number, or one per finding
    allow_missing : True if questions may be left unanswered
    missing : what a missing answer counts as, of :attr:`Scoring.missing_as
        <reveal_bench.kinds.parts.Scoring.missing_as>`, the first unless given; if given, answers may be missing
    criterion : by which a detection is a hit, of :attr:`Scoring.criteria <reveal_bench.kinds.parts.Scoring.criteria>`,
        the first unless given
    strata : True to score the parts of the split that the kind names; the kind's choice unless given
    asks : which findings the folder asks, "present" or "all"; :meth:`Kind.resolve` always sets the folder's own
    """

    n_resamples: int = 1000
    seed: int = 0
    unit: str = "patient"
    interval: str | None = None
    grid: int | None = None
    thresholds: Thresholds = 0.5
    allow_missing: bool = False
    missing: str | None = None
    criterion: str | None = None
    strata: bool | None = None
    asks: str = "present"

    @property
    def resampling(self) -> Resampling:
        """The method of intervals."""
        return Resampling(self.n_resamples, self.seed, self.unit, cast("Interval", self.interval or "jackknife"))

    @property
    def n_cells(self) -> int:
        """Cells per side; only for resolved options."""
        assert self.grid is not None
        return self.grid

    @classmethod
    def of_protocol(cls, protocol: Mapping[str, Any]) -> Self:
        """Return the options of the `protocol` of a scored document, as `Kind.protocol` makes it."""
        return cls(**{name: value for name, value in protocol.items() if name in cls.__dataclass_fields__})
