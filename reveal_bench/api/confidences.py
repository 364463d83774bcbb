"""``rb.confidence``: what a system's confidences are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reveal_bench.api.bench import AnyBench, as_bench
from reveal_bench.api.given import name_of
from reveal_bench.api.shown import FigureTable, Shown, ShownTables
from reveal_bench.api.verbs import ONE_REPLICATE, score_given
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.confidence import Judged, Mean, judge_confidences
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.calibration import Binning

if TYPE_CHECKING:
    from reveal_bench.reports.style import Illustration

__all__ = ["Confidence", "confidence"]


def _flat(row: Any) -> dict[str, Any]:
    """The fields of a dataclass, a mean as three columns."""
    flat: dict[str, Any] = {}
    for name, value in asdict(row).items():
        if isinstance(getattr(row, name), Mean):
            flat |= {name: value["value"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        else:
            flat[name] = value
    return flat


@dataclass(frozen=True, repr=False)
class Confidence(ShownTables):
    """What the confidences of one system are worth; shown as their calibration.

    Attributes
    ----------
    scored : the predictions as they were scored
    judged : every figure with its evidence
    n_bins, binning : of the reliability
    """

    scored: ScoredFile
    judged: Judged
    n_bins: int
    binning: Binning

    @property
    def caption(self) -> str:
        """What was judged on what, and how."""
        given = self.judged.confidences
        bins = f"{self.n_bins} bins of equal {self.binning}"
        unsaid = f"; {given.n_unsaid:,} cases without a confidence have no part" if given.n_unsaid else ""
        return (
            f"{self.scored.report.file} on {self.scored.place}: "
            f"calibration of the probability of {given.event}: Brier score, mean probability less the rate (excess, in "
            f"percent) with 95 % intervals by the jackknife over patients, and ECE with {bins}{unsaid}"
        )

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Of the macro and every finding: Brier score, that of always saying the rate, mean excess and ECE."""
        return [_flat(row) for row in self.judged.calibration]

    def rows_shown(self) -> list[dict[str, str]]:
        """Brier scores with three decimals, mean excess and ECE in percent."""
        return [
            {
                "finding": one.finding,
                "events": "" if one.finding == MACRO else f"{one.n_events} of {one.n}",
                "Brier": f"{one.brier.value:.3f}",
                "95 % interval": _interval(one.brier),
                "excess": f"{100 * one.excess.value:+.1f}",
                "its interval": _interval(one.excess, 100, 1),
                "ECE": f"{100 * one.error:.1f}",
            }
            for one in self.judged.calibration
        ]

    @property
    def reliability(self) -> FigureTable:
        """Every bin of every finding."""
        rows = [{"finding": finding} | asdict(one) for finding, bins in self.judged.bins.items() for one in bins]
        return FigureTable(f"Reliability: rate of {self.judged.confidences.event} where a probability was said", rows)

    @property
    def coverage(self) -> FigureTable:
        """The share of wrong answers where the surest cases alone are answered: of all findings together, then each."""
        return self.coverage_of(*self.judged.curves)

    def coverage_of(self, *findings: str) -> FigureTable:
        """The same of some findings, or of "all" together."""
        rows = [_flat(row) for row in self.judged.answered if row.finding in findings]
        if len(findings) > 1:
            rows = [row | {"area_under_risk": self.judged.areas[row["finding"]]} for row in rows]
        area = "" if len(findings) > 1 else f"; area under the curve {self.judged.areas[findings[0]]:.4f}"
        title = f"Risk: share of wrong answers among the surest cases, the others left to a reader{area}"
        return FigureTable(title, rows)

    @property
    def net_benefit(self) -> FigureTable:
        """Net benefit per finding and threshold; without rows where it is not defined."""
        title = "Net benefit of acting from a probability on; never acting has 0"
        return FigureTable(title, [_flat(row) for row in self.judged.benefits])

    @property
    def tables(self) -> dict[str, Shown]:
        """Name -> table, all that have rows."""
        found: dict[str, Shown] = {
            "calibration": self,
            "reliability": self.reliability,
            "coverage": self.coverage,
            "net_benefit": self.net_benefit,
        }
        return {name: table for name, table in found.items() if table.records}

    def drawn(self) -> Sequence[Illustration]:
        """The figures of the tables."""
        from reveal_bench.reports.confidence import figures_of

        return figures_of(self.judged)


def _interval(mean: Mean, scale: float = 1, decimals: int = 3) -> str:
    return "" if mean.low != mean.low else f"({scale * mean.low:.{decimals}f} to {scale * mean.high:.{decimals}f})"


def confidence(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    thresholds: float | Mapping[str, float] = 0.5,
    allow_missing: bool = False,
    n_bins: int = 10,
    binning: Binning = "width",
    name: str | None = None,
) -> Confidence:
    """Judge how sure a system says it is: calibration, risk where unsure cases are left out, net benefit.

    Parameters
    ----------
    predictions, bench, split, allow_missing, name : as of :func:`lint`
    thresholds : probability from which a label counts as predicted (findings): one number, or one per label
    n_bins : bins of the probabilities, at most 100
    binning : "width", of equal width, or "count", with cases as equal in number as can be

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the predictions do not say how sure they are, or an argument is not what it must be.
    """
    opened = as_bench(bench, split)
    field = opened.kind.confidence_field
    if field is None:
        raise ArgumentError("bench", "must be of a kind whose answers say how sure they are", opened.kind.name)
    name = name_of(predictions, "predictions") if name is None else name
    options = {**ONE_REPLICATE, "thresholds": thresholds}
    scored = score_given(predictions, opened, "predictions", name, None, allow_missing, None, options)
    given = scored.rows.confidences()
    if given is None:
        rule = f"must say how sure they are, in the field `{field}`"
        raise ArgumentError("predictions", rule, f"{scored.report.file}, which does not")
    return Confidence(scored, judge_confidences(given, n_bins=n_bins, binning=binning), n_bins, binning)
