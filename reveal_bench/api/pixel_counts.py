"""``rb.pixels``: pixel statistics of predicted masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reveal_bench.api.bench import AnyBench, as_bench
from reveal_bench.api.given import name_of
from reveal_bench.api.shown import Shown
from reveal_bench.api.verbs import ONE_REPLICATE, score_given
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.confidence import Mean
from reveal_bench.evaluation.pixels import PixelStatistic, pixel_statistics
from reveal_bench.evaluation.score import ScoredFile

__all__ = ["PixelStatistics", "pixels"]


@dataclass(frozen=True, repr=False)
class PixelStatistics(Shown):
    """Precision, recall, specificity and negative predictive value of the pixels of masks.

    Attributes
    ----------
    scored : the predictions as they were scored
    statistics : every figure with its evidence
    """

    scored: ScoredFile
    statistics: Sequence[PixelStatistic]

    @property
    def caption(self) -> str:
        """What was counted on what."""
        asks_all = self.scored.protocol["asks"] == "all"
        how = "in percent with 95 % intervals by the jackknife over patients"
        pooled = f"pixels pooled over the images with a finding, {how}"
        asked = "" if asks_all else "; false positives are counted where a finding is asked"
        return f"{self.scored.report.file} on {self.scored.place}: {pooled}{asked}"

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Per statistic the macro, then every finding: the pooled ratio, the mean over images, pixels behind them."""
        return [
            {"finding": one.finding, "statistic": one.statistic}
            | _columns("pooled", one.pooled)
            | _columns("mean_of_images", one.mean)
            | {"n": one.n, "right_px": one.right, "wrong_px": one.wrong}
            for one in self.statistics
        ]

    def rows_shown(self) -> list[dict[str, str]]:
        """A row per finding, pooled ratios in percent."""
        table: dict[str, dict[str, str]] = {}
        for one in self.statistics:
            row = table.setdefault(one.finding, {"finding": one.finding})
            row[one.statistic.upper() if one.statistic == "npv" else one.statistic] = _text(one.pooled)
        return list(table.values())


def _columns(name: str, mean: Mean) -> dict[str, float]:
    return {name: mean.value, f"{name}_low": mean.low, f"{name}_high": mean.high}


def _text(mean: Mean) -> str:
    if mean.value != mean.value:
        return "-"
    ends = "" if mean.low != mean.low else f" ({100 * mean.low:.1f} to {100 * mean.high:.1f})"
    return f"{100 * mean.value:.1f}{ends}"


def pixels(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    allow_missing: bool = False,
    name: str | None = None,
) -> PixelStatistics:
    """Count pixels of predicted masks: precision, recall, specificity and negative predictive value per finding.

    Parameters
    ----------
    predictions, bench, split, allow_missing, name : as of :func:`lint`; a mask that is missing is empty

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the benchmark is not of localization, or predictions or references have no masks.
    """
    opened = as_bench(bench, split)
    if not opened.kind.uses_grid:
        raise ArgumentError("bench", "must be of localization, whose predictions may be masks", opened.kind.name)
    name = name_of(predictions, "predictions") if name is None else name
    scored = score_given(predictions, opened, "predictions", name, None, allow_missing, None, ONE_REPLICATE)
    records = opened.kind.read_references(opened.folder, opened.split)
    statistics = pixel_statistics(scored.report.predictions, records, scored.rows.groups)
    return PixelStatistics(scored, statistics)
