"""Hit rates of runs on a localization benchmark, resampled together.

Conventions
-----------
An unanswered question is a miss. What is a hit depends on what a run predicts, as in paper 000 (section 3.3): for cells
`grid_hit` at the run's own grid, for points, boxes and masks `point_hit`. A run of several epochs has, for each
question, the mean of its epochs; a run that answered nothing at all has a miss everywhere. One draw of resampled units
serves all runs, so that they can be compared replicate by replicate; the standard deviation of a run is that of its
replicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.evaluation.compare import compare_resampled
from reveal_bench.evaluation.permutation import draw_signs
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.kinds.localization.scoring import CaseRows, resample_systems, score_localization
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import (
    MACRO,
    BootstrapMeans,
    Estimate,
    estimates_from,
)
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.reports.runs import ReportRun, World

PROTOCOLS = ("cell", "point", "box", "mask")


@dataclass(frozen=True, kw_only=True)
class HitRun(ReportRun):
    """A run with its scored cases.

    Attributes
    ----------
    protocol : what it predicts: "cell", "point", "box", "mask", or "none" if it answered nothing
    rows : cases; `grid_hit`, `point_hit` and `grid_chance` alone, means over epochs
    epochs : the same per epoch
    n_missing : questions with a reference and without a prediction, over all epochs
    """

    protocol: str
    rows: CaseRows
    epochs: tuple[CaseRows, ...]

    @property
    def metric(self) -> str:
        """What a hit of this run is."""
        return "point_hit" if self.protocol in ("point", "box", "mask") else "grid_hit"


def hit_runs(runs: Sequence[ReportRun], world: World) -> list[HitRun]:
    """The runs with their cases."""
    return [_scored(run, world) for run in runs]


def _scored(run: ReportRun, world: World) -> HitRun:
    cases = {(record.image_id, finding) for record in world.records for finding in record.asked("present")}
    answered = ({(one.image_id, one.finding) for one in part} for part in run.predictions)
    epochs = tuple(_rows(part, world, run.grid) for part in run.predictions)
    kinds = Counter(kind for rows in epochs for kind in rows.cell_kinds if kind != "none")
    given = {item.name: getattr(run, item.name) for item in fields(ReportRun)}
    return HitRun(
        **given | {"n_missing": sum(len(cases - pairs) for pairs in answered)},
        protocol=next((kind for kind in PROTOCOLS if kinds[kind]), "none"),
        rows=_mean(epochs),
        epochs=epochs,
    )


@dataclass(frozen=True)
class Scores:
    """Hit rates of runs on the findings that have cases, from one draw.

    Attributes
    ----------
    findings : those with at least one case, in the order of the vocabulary
    hits, chance : per run, a group per finding
    """

    runs: Sequence[HitRun]
    findings: tuple[str, ...]
    hits: Sequence[BootstrapMeans]
    chance: Sequence[BootstrapMeans]
    resampling: Resampling

    def recipe(self, metric: str) -> str:
        """The signature of every number of `metric` here."""
        return self.resampling.signature(metric, METRICS[metric].version)

    def estimates(self, index: int, *, chance: bool = False) -> dict[str, Estimate]:
        """Estimates of a run, or of its chance level, by finding and "macro"."""
        means = (self.chance if chance else self.hits)[index]
        metric = "grid_chance" if chance else self.runs[index].metric
        found = estimates_from(means, self.findings, recipe=self.recipe(metric), interval=self.resampling.interval)
        return {estimate.finding: estimate for estimate in found}

    def deviations(self, index: int, *, chance: bool = False) -> dict[str, float]:
        """Standard deviation (ddof 1) over the defined replicates, by finding and "macro"."""
        means = (self.chance if chance else self.hits)[index]
        columns = {MACRO: means.macro()[1], **dict(zip(self.findings, means.replicates.T, strict=True))}
        return {name: _deviation(column) for name, column in columns.items()}

    def difference(self, a: int, b: int) -> tuple[float, float, float]:
        """Macro of run `a` minus that of run `b` with the ends of its paired 95 % interval."""
        own, other = self.hits[a], self.hits[b]
        signs = draw_signs(len(own.rows), self.resampling)
        macro, *_ = compare_resampled(own, other, self.findings, recipe=self.recipe(self.runs[a].metric), signs=signs)
        return macro.value, macro.low, macro.high


def _deviation(replicates: FloatArray) -> float:
    defined = replicates[~np.isnan(replicates)]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else float("nan")


def _rows(predictions: Sequence[LocalizationPrediction], world: World, grid: int) -> CaseRows:
    """The cases; of their values what a report shows. Without any prediction, a miss wherever chance is defined."""
    # Rows without a reference, which some benchmarks add for masks, have neither a hit nor a chance level
    rows = score_localization(predictions, world.records, findings=world.info.findings, grid=grid, asks="present")
    chance = rows.values["grid_chance"]
    misses = np.where(np.isnan(chance), np.nan, 0.0)
    shown = {name: rows.values.get(name, misses) for name in ("grid_hit", "point_hit")}
    return replace(rows, values={"grid_chance": chance, **shown})


def _mean(epochs: Sequence[CaseRows]) -> CaseRows:
    """The mean of each case over epochs; which cases are defined depends on the references alone."""
    if len(epochs) == 1:
        return epochs[0]
    names = epochs[0].values
    return replace(epochs[0], values={n: np.mean([rows.values[n] for rows in epochs], axis=0) for n in names})


def score_runs(
    runs: Sequence[HitRun],
    world: World,
    *,
    findings: Sequence[str] | None = None,
    resampling: Resampling = Resampling(),
) -> Scores:
    """Hit rates and chance levels of all runs on the same replicates of patients.

    Parameters
    ----------
    findings : those to report; the macro is over these alone. All of the benchmark by default

    Raises
    ------
    ValueError
        If a finding is not of the benchmark, or none has a case.
    """
    asked = tuple(world.info.findings if findings is None else findings)
    unknown = [name for name in asked if name not in world.info.findings]
    if unknown:
        raise ArgumentError("findings", f"must be among {list(world.info.findings)}", unknown)
    have = runs[0].rows.n_defined("grid_chance")
    shown = tuple(name for name in asked if have[name])
    if not shown:
        raise ArgumentError("findings", f"must have at least one case in split {world.split!r}", "none")
    systems = [
        replace(run.rows, values={"hit": run.rows.values[run.metric], "chance": run.rows.values["grid_chance"]})
        for run in runs
    ]
    means = resample_systems(systems, resampling, metrics=["hit", "chance"], findings=shown)
    return Scores(runs, shown, [m["hit"] for m in means], [m["chance"] for m in means], resampling)


def macro_of(rows: CaseRows, metric: str, findings: Sequence[str]) -> float:
    """The macro of one epoch over `findings`, without an interval."""
    (means,) = resample_systems([rows], Resampling(1, unit="image"), metrics=[metric], findings=findings)
    return means[metric].macro()[0]


def core_runs(runs: Sequence[HitRun], main_grid: int) -> list[int]:
    """Which runs the main figures show: those on the main grid, of each model those in the style it comes with first.

    A model's other styles are shown in the comparison of prompts, its other grids in that of grids.
    """
    chosen: list[int] = []
    first_style: dict[str, str | None] = {}
    for number, run in enumerate(runs):
        if run.grid == main_grid and first_style.setdefault(run.model, run.style) == run.style:
            chosen.append(number)
    return chosen
