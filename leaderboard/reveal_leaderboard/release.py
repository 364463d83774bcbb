"""What of a score may be shown.

Conventions
-----------
Holdouts are small, and an exact score on ten cases gives the cases away within some tens of submissions. So

* a finding with fewer than `min_cell` cases is hidden. Which findings are, follows from the references alone, never
  from what was submitted;
* a macro is over the shown findings only, else the hidden ones could be had by subtraction;
* only metrics in which every asked case counts are released (:data:`RELEASED`). `mask_iou` leaves out the cases for
  which a submission hands in an empty mask, so that its sender could choose the cases that count, down to one;
* values and the ends of intervals are rounded to `resolution`; counts of cases are given in bands.

Nothing else leaves the worker. The policy's figures travel with the score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reveal_bench.metrics.bootstrap import Estimate
from reveal_bench.scoring import CaseRows, summarize

__all__ = ["POLICY", "Figure", "ReleasePolicy", "ReleasedScore", "release"]

MACRO = "macro"
RELEASED = ("point_hit", "grid_hit", "grid_chance", "mask_iou_all")
"""Metrics from which a submission can take no case away. Where a benchmark asks for all findings, a mask without a
reference adds a case to `mask_iou_all`, scored 0: what is present is then probed by it, as by any such metric."""


@dataclass(frozen=True, slots=True)
class ReleasePolicy:
    """The settings of release.

    Attributes
    ----------
    min_cell : int
        Fewest cases of a finding for which its figures are shown.
    resolution : float
        Values are rounded to a multiple of this.
    bands : lower ends of the bands in which counts of cases are shown, ascending, the first is `min_cell`
    n_resamples, seed : of the intervals
    """

    min_cell: int = 30
    resolution: float = 0.01
    bands: tuple[int, ...] = (30, 60, 120)
    n_resamples: int = 1000
    seed: int = 0

    def round(self, value: float) -> float | None:
        """The nearest multiple of `resolution`; None for NaN."""
        if math.isnan(value):
            return None
        digits = max(0, math.ceil(-math.log10(self.resolution)))
        return round(round(value / self.resolution) * self.resolution, digits)

    def band(self, n: int) -> str:
        """The band that holds `n`, such as "60-119"; "fewer than 30" below the first."""
        reached = [start for start in self.bands if start <= n]
        if not reached:
            return f"fewer than {self.bands[0]}"
        rest = self.bands[len(reached) :]
        return f"{reached[-1]}-{rest[0] - 1}" if rest else f"{reached[-1]}+"


POLICY = ReleasePolicy()


@dataclass(frozen=True, slots=True)
class Figure:
    """A released number: rounded value and interval, and behind it a band of cases (findings for a macro)."""

    metric: str
    finding: str
    value: float
    low: float | None
    high: float | None
    n: str
    signature: str


@dataclass(frozen=True)
class ReleasedScore:
    """All that is shown of a score.

    Attributes
    ----------
    figures : macros and findings, by metric
    shown, hidden : findings, in the order of the vocabulary
    note : what is not shown and why, for people
    policy : its settings
    """

    figures: tuple[Figure, ...]
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    note: str
    policy: Mapping[str, Any]

    def figure(self, metric: str, finding: str = MACRO) -> Figure | None:
        """One figure, if it is shown."""
        return next((f for f in self.figures if (f.metric, f.finding) == (metric, finding)), None)

    @property
    def signature(self) -> str:
        """The recipes of all figures."""
        return " ".join(sorted({figure.signature for figure in self.figures}))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ReleasedScore:
        """Back from :meth:`to_json`."""
        figures = tuple(Figure(**figure) for figure in raw["figures"])
        return cls(figures, tuple(raw["shown"]), tuple(raw["hidden"]), raw["note"], raw["policy"])


def release(rows: CaseRows, policy: ReleasePolicy = POLICY) -> ReleasedScore:
    """Reduce per-case rows to what may be shown of them.

    Examples
    --------
    >>> ReleasePolicy().band(74), ReleasePolicy().round(0.4649)
    ('60-119', 0.46)
    """
    n_cases = _cases_with_reference(rows)
    shown = [finding for finding in rows.findings if n_cases[finding] >= policy.min_cell]
    hidden = [finding for finding in rows.findings if finding not in shown]
    figures: list[Figure] = []
    if shown:
        metrics = [name for name in RELEASED if name in rows.values]
        estimates = summarize(rows, metrics=metrics, findings=shown, n_resamples=policy.n_resamples, seed=policy.seed)
        figures = _figures(estimates, policy)
    return ReleasedScore(tuple(figures), tuple(shown), tuple(hidden), _note(shown, hidden, policy), asdict(policy))


def _cases_with_reference(rows: CaseRows) -> dict[str, int]:
    """Cases per finding whose reference is not empty: the rows in which a point could hit."""
    return rows.n_defined("point_hit" if "point_hit" in rows.values else "grid_chance")


def _figures(estimates: Sequence[Estimate], policy: ReleasePolicy) -> list[Figure]:
    thin = {e.metric for e in estimates if e.finding != MACRO and e.n < policy.min_cell}
    figures = []
    for e in estimates:
        value = policy.round(e.value)
        is_hidden = e.metric in thin if e.finding == MACRO else e.n < policy.min_cell
        if value is None or is_hidden:
            continue
        n = str(e.n) if e.finding == MACRO else policy.band(e.n)
        figures.append(Figure(e.metric, e.finding, value, policy.round(e.low), policy.round(e.high), n, e.signature))
    return figures


def _note(shown: Sequence[str], hidden: Sequence[str], policy: ReleasePolicy) -> str:
    if not shown:
        return f"Nothing can be shown: every finding has fewer than {policy.min_cell} cases in this split."
    if not hidden:
        return "All findings are shown."
    return f"Fewer than {policy.min_cell} cases, not shown and not in any macro: {', '.join(hidden)}."
