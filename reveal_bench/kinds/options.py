"""Scoring options that commands and functions pass to the kind of benchmark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from reveal_bench.arguments import ArgumentError
from reveal_bench.metrics.intervals import Interval, Resampling

Thresholds = float | Mapping[str, float]
"""One threshold for all findings, or finding -> threshold."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Cases on which thresholds were tuned, as in the field `tuning` of a ``submission.json``.

    Attributes
    ----------
    benchmark, version, split : dataset and split of the references
    n : number of cases
    criterion : rule that chose the thresholds, in words
    file : name of the prediction file
    file_sha256 : SHA-256 of that file; None for predictions that are not in a file
    """

    benchmark: str
    version: str
    split: str
    n: int
    criterion: str
    file: str
    file_sha256: str | None = None

    def note(self, benchmark: str, split: str) -> str:
        """Return a sentence for scores of a split: where the thresholds were tuned, and if this biases the scores."""
        place = (
            f"{self.benchmark} {self.version}, split {self.split} ({self.n:,} studies, {self.criterion}, {self.file})"
        )
        if (self.benchmark, self.split) == (benchmark, split):
            return f"thresholds were tuned on this split, so scores of decisions are too good: {place}"
        return f"thresholds were tuned on {place}"


class TunedThresholds(Mapping[str, float]):
    """Finding -> threshold, with `tuning`, the cases on which the thresholds were tuned."""

    def __init__(self, thresholds: Mapping[str, float], tuning: Tuning) -> None:
        self._thresholds = dict(thresholds)
        self.tuning = tuning

    def __getitem__(self, finding: str) -> float:
        return self._thresholds[finding]

    def __iter__(self) -> Iterator[str]:
        return iter(self._thresholds)

    def __len__(self) -> int:
        return len(self._thresholds)

    def __repr__(self) -> str:
        return f"<thresholds of {len(self)} findings tuned on {self.tuning.benchmark}, split {self.tuning.split}>"


def plain_thresholds(thresholds: Any, findings: Sequence[str]) -> Thresholds | None:
    """Return thresholds as Python numbers: one, or one per finding; None if none are given.

    Parameters
    ----------
    thresholds : a number or a mapping of findings to numbers, from any library; the result of `tune_thresholds`; or a
        vector with a number for each of `findings`, in their order

    Raises
    ------
    ArgumentError
        If a vector has another length.
    """
    thresholds = getattr(thresholds, "thresholds", thresholds)  # the result of `tune_thresholds`
    if hasattr(thresholds, "to_dict") and all(isinstance(name, str) for name in thresholds.index):
        thresholds = thresholds.to_dict()  # a pandas Series by finding
    if isinstance(thresholds, TunedThresholds):
        return thresholds
    if isinstance(thresholds, Mapping):
        return {name: value.item() if hasattr(value, "item") else value for name, value in thresholds.items()}
    values = thresholds.tolist() if hasattr(thresholds, "tolist") else thresholds
    if not isinstance(values, list | tuple):
        return cast("Thresholds | None", values)
    if len(values) != len(findings):
        rule = f"must be one number, or one for each of {len(findings)} findings"
        raise ArgumentError("thresholds", rule, f"{len(values)} numbers")
    return {
        name: value.item() if hasattr(value, "item") else value for name, value in zip(findings, values, strict=True)
    }


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """All options on which scores depend, besides predictions and references.

    A command or a function sets the options that the user gave; :meth:`Kind.resolve <reveal_bench.kinds.kind.Kind>`
    checks these options and adds the defaults of the kind of benchmark and of the dataset folder.

    Attributes
    ----------
    n_resamples, seed : number of replicates, and seed of the bootstrap
    unit : unit that is resampled: "patient", or depending on the kind "image", "study" or "task"
    interval : one of :attr:`Scoring.intervals <reveal_bench.kinds.parts.Scoring.intervals>`, by default the first
    grid : number of grid cells per side (localization); by default the folder's grid
    thresholds : lowest probability at which a label or a detection counts: one number, or one per finding. None is 0.5
        for probabilities; scores on another scale then make no decisions
    allow_missing : True if questions may be left unanswered
    missing : what a missing answer counts as, one of :attr:`Scoring.missing_as
        <reveal_bench.kinds.parts.Scoring.missing_as>`, by default the first; if set, answers may be missing
    criterion : rule by which a detection is a hit, one of :attr:`Scoring.criteria
        <reveal_bench.kinds.parts.Scoring.criteria>`, by default the first
    strata : True to score the kind's strata of the split; by default the kind decides
    finding_groups : groups of findings with their own macros, in a format that
        :func:`~reveal_bench.kinds.finding_groups.parse_finding_groups` reads; by default the folder's groups. Resolved
        options have a mapping of names to findings
    form : form of answers that a run asked for, such as "cell"; empty if unknown
    part : text that names the part of the split that is asked; empty for the whole split
    asks : which findings the folder asks, "present" or "all"; :meth:`Kind.resolve` always sets the folder's own
    """

    n_resamples: int = 1000
    seed: int = 0
    unit: str = "patient"
    interval: str | None = None
    grid: int | None = None
    thresholds: Thresholds | None = None
    allow_missing: bool = False
    missing: str | None = None
    criterion: str | None = None
    strata: bool | None = None
    asks: str = "present"
    finding_groups: Any = None
    form: str = ""
    part: str = ""

    @property
    def resampling(self) -> Resampling:
        """The method of intervals."""
        interval = cast("Interval", self.interval or "jackknife")
        return Resampling(self.n_resamples, self.seed, self.unit, interval, self.part)

    @property
    def plain_thresholds(self) -> float | dict[str, float]:
        """The thresholds for JSON, 0.5 by default."""
        if isinstance(self.thresholds, Mapping):
            return dict(self.thresholds)
        return 0.5 if self.thresholds is None else self.thresholds

    def thresholds_of(self, findings: Collection[str], others: Collection[str]) -> Thresholds | None:
        """Return the thresholds without those of `others`, findings of the benchmark that are not in `findings`."""
        if not isinstance(self.thresholds, Mapping):
            return self.thresholds
        left_out = set(others) - set(findings)
        return {name: value for name, value in self.thresholds.items() if name not in left_out}

    @property
    def tuning(self) -> Tuning | None:
        """Cases on which the thresholds were tuned; None if they were not tuned, or if this is unknown."""
        return self.thresholds.tuning if isinstance(self.thresholds, TunedThresholds) else None

    @property
    def n_cells(self) -> int:
        """Cells per side; only for resolved options."""
        assert self.grid is not None
        return self.grid

    @classmethod
    def of_protocol(cls, protocol: Mapping[str, Any]) -> Self:
        """Return the options in the `protocol` of a scored document, as `Kind.protocol` writes it."""
        return cls(**{name: value for name, value in protocol.items() if name in cls.__dataclass_fields__})
