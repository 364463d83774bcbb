"""The report of runs that locate findings: hit rates, errors, heat maps, grids and prompts.

It shows what paper 000 shows in Figures 2 to 4 and 6 to 8 and Tables 1 and 2, in this project's own look. The numbers
are those of ``reveal-bench score``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.geometry import Grid
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.reports.heat import average_picture, prediction_shares, truth_shares
from reveal_bench.reports.page import Csv, Lines, Part, Section, Text
from reveal_bench.reports.run_errors import CATEGORIES, Share, categorize
from reveal_bench.reports.run_errors import shares as shares_of
from reveal_bench.reports.run_figures import (
    ErrorShares,
    by_difference,
    draw_errors,
    draw_grids,
    draw_heat,
    draw_hit_rates,
    draw_prompts,
)
from reveal_bench.reports.run_hits import Scores, core_runs, hit_runs, macro_of, score_runs
from reveal_bench.reports.run_report import RunReport
from reveal_bench.reports.run_tables import errors_table, heat_rows, means_table, rates_table
from reveal_bench.reports.runs import World, short_names
from reveal_bench.reports.style import percent

__all__ = ["HitReport"]


@dataclass
class HitReport(RunReport):
    """Hit rates by pathology."""

    what: ClassVar[str] = "Localization"

    @cached_property
    def scores(self) -> Scores:
        """Hit rates and chance of all runs."""
        asked = self.options
        return score_runs(
            hit_runs(self.runs, self.world), self.world,
            findings=asked.findings, n_resamples=asked.n_resamples, seed=asked.seed,
        )  # fmt: skip

    @cached_property
    def core(self) -> list[int]:
        """The runs of the main figures."""
        runs, grid = self.scores.runs, self.world.info.grid
        return core_runs(runs, grid if grid in [run.grid for run in runs] else runs[0].grid)

    @cached_property
    def order(self) -> list[str]:
        """The findings as figures and tables have them."""
        return by_difference(self.scores, 0, self.options.reference)

    def sections(self) -> list[Section]:
        """Hit rates, errors, places, and the comparisons that the runs allow."""
        return [
            Section("hit-rates", "Hit rates", self._hit_rates()),
            Section("errors", "Errors", self._error_parts()),
            Section("places", "Where", self._heat_parts()),
            *self._comparisons(),
        ]

    def own_columns(self) -> tuple[tuple[str, ...], Sequence[tuple[object, ...]]]:
        """Grid, what is predicted, and what a hit is."""
        return ("grid", "protocol", "hit_metric"), [(run.grid, run.protocol, run.metric) for run in self.scores.runs]

    def means_by_epoch(self) -> Mapping[str, Sequence[float]]:
        """Mean hit rate by epoch."""
        found = self.scores.findings
        return {run.label: [macro_of(rows, run.metric, found) for rows in run.epochs] for run in self.scores.runs}

    @cached_property
    def errors(self) -> dict[str, list[list[Share]]]:
        """Run label -> per epoch, the shares of the error categories."""
        found = {}
        scores, asked = self.scores, self.options
        options: dict[str, Any] = {"n_resamples": scores.n_resamples, "seed": scores.seed}
        for run in (scores.runs[i] for i in self.core):
            epochs = [
                categorize(part, self.world.records, grid=run.grid, anatomy=asked.anatomy, reviews=asked.reviews)
                for part in run.predictions
            ]
            present = {case.finding for case in epochs[0]}
            names = [name for name in scores.findings if name in present]
            if names:
                found[run.label] = [shares_of(cases, findings=names, **options) for cases in epochs]
        return found

    def _hit_rates(self) -> list[Part]:
        scores, order, reference = self.scores, self.order, self.options.reference
        first, last = scores.runs[0].label, scores.runs[reference].label
        ranked = (
            "" if reference == 0 else f"Pathologies are in falling order of the difference between {first} and {last}."
        )
        return [
            self.figure(draw_hit_rates(scores, self.world, self.core, order, ranked)),
            self.table(means_table(scores, reference)),
            self.table(rates_table(scores, order)),
        ]

    def _error_parts(self) -> list[Part]:
        if not self.errors:
            return [Text("No question is on a frontal image; errors are categorized on frontal images alone.")]
        names = dict(zip(self.errors, short_names([self.scores.runs[i] for i in self.core]), strict=True))
        n: dict[str, int] = {}
        means: dict[str, dict[str, dict[str, float]]] = {}
        for label, epochs in self.errors.items():
            table = means.setdefault(names[label], {})
            for share in (share for epoch in epochs for share in epoch if share.finding != MACRO):
                n[share.finding] = share.n
                part = table.setdefault(share.finding, dict.fromkeys(CATEGORIES, 0.0))
                part[share.category] += (0.0 if math.isnan(share.value) else share.value) / len(epochs)
        is_reviewed = self.options.anatomy is not None or self.options.reviews is not None
        drawn = draw_errors(ErrorShares(means, n, is_reviewed), self.order)
        return [*map(self.figure, drawn), self.table(errors_table(self.errors))]

    def _heat_parts(self) -> list[Part]:
        world, runs = self.world, [self.scores.runs[i] for i in self.core]
        grid = Grid(runs[0].grid)
        truths = truth_shares(world.records, self.scores.findings, grid)
        if not truths:
            return [Text("No question is on a frontal image; heat maps are drawn of frontal images alone.")]
        picture = average_picture(world.folder, world.split, progress=self.options.progress)
        if not world.info.synthetic:
            picture = picture.without_few()
        n = {name: len(truth.image_ids) for name, truth in truths.items()}
        sizes = {record.image_id: record.size for record in world.records}
        rows = heat_rows("ground truth", {name: truth.shares for name, truth in truths.items()}, n)
        for run in runs:
            rows += heat_rows(run.label, prediction_shares(run.predictions, sizes, truths, grid), n)
        file = self.add_csv(Csv("heat-maps", ("run", "finding", "cell", "share", "n"), rows))
        drawn = draw_heat(runs, world, truths, picture, self.order)
        return [*map(self.figure, drawn), Text("The share of every cell is in a table of its own.", file=file)]

    def _comparisons(self) -> Iterator[Section]:
        """Grids and prompts, where runs of one model differ in nothing else."""
        runs = self.scores.runs
        by_grid: dict[tuple[str, str | None], dict[int, int]] = {}
        by_style: dict[str, dict[str | None, int]] = {}
        for i, run in enumerate(runs):
            if run.run is None:
                continue
            by_grid.setdefault((run.model, run.style), {}).setdefault(run.grid, i)
            if run.grid == runs[self.core[0]].grid:
                by_style.setdefault(run.model, {}).setdefault(run.style, i)
        pairs = [[places[grid] for grid in sorted(places)] for places in by_grid.values() if len(places) > 1]
        if pairs:
            yield Section("grids", "Grid size", [self.figure(draw_grids(self.scores, self.order, pairs))])
        if any(len(places) > 1 for places in by_style.values()):
            shown = [i for places in by_style.values() for i in places.values()]
            yield Section("prompts", "Prompts", [self.figure(draw_prompts(self.scores, shown))])

    def summary(self) -> str:
        """Mean hit rates of the main runs, and chance."""
        scores, world = self.scores, self.world
        n_patients = len({record.patient_id for record in world.records})
        n_questions = int(scores.chance[0].n.sum())
        names = short_names([scores.runs[i] for i in self.core])
        macros = [(scores.estimates(i)[MACRO], name) for i, name in zip(self.core, names, strict=True)]
        ranked = sorted(
            macros, key=lambda pair: -math.inf if math.isnan(pair[0].value) else pair[0].value, reverse=True
        )
        told = "; ".join(f"{name} {percent(e.value)} ({100 * e.low:.1f} to {100 * e.high:.1f})" for e, name in ranked)
        others = len(scores.runs) - len(self.core)
        told += f". {others} more, with other prompts or grids, in Table 1" if others else ""
        chance = scores.estimates(self.core[0], chance=True)[MACRO].value
        grid = scores.runs[self.core[0]].grid
        return (
            f"{len(scores.runs)} run{'s' * (len(scores.runs) != 1)} located {len(scores.findings)} pathologies in "
            f"{world.title} {world.info.version}, split {world.split}: {n_questions:,} questions with a reference on "
            f"{len(world.records):,} images of {n_patients:,} patients. Mean hit rate over pathologies, with 95 % "
            f"interval: {told}. Chance is {percent(chance)} on the {grid} × {grid} grid. Intervals: "
            f"{scores.n_resamples:,} bootstrap resamples of {scores.unit}s, seed {scores.seed}."
        )

    def warnings(self) -> list[str]:
        """Those of every report, and whether the average image may be passed on."""
        info = self.world.info
        known = BENCHMARKS.get(info.benchmark)
        is_restricted = not info.synthetic and (known is None or known.licence == "restricted")
        words = "the average image and the heat maps come from data whose terms may forbid passing them on"
        return [*super().warnings(), *[words] * is_restricted]

    def methods(self) -> list[Part]:
        """What hits, chance and categories are, as this package computes them."""
        metrics = sorted({run.metric for run in self.scores.runs} | {"grid_chance"})
        recipes = [self.scores.recipe(metric) for metric in metrics]
        words = _method_words(self.scores, self.world)
        return [*map(Text, words), Text("Signatures of the numbers:"), Lines(recipes)]


def _method_words(scores: Scores, world: World) -> list[str]:
    grids = sorted({run.grid for run in scores.runs})
    named = " and ".join(f"{grid} × {grid}" for grid in grids)
    several = max(len(run.epochs) for run in scores.runs) > 1
    what = (
        "Each question names one image and one finding that is present in it"
        if world.info.asks == "present"
        else "Scored are the pairs of an image and a finding that have a reference"
    )
    return [
        f"{what}. The central square of the image, whose side is its short side, is divided into {named} equal cells. "
        "A predicted cell is a hit if the reference covers at least half of its area; where the reference covers half "
        "of no cell, any cell that it touches is a hit. A run that predicts points, boxes or masks is scored by the "
        "point that it names, or else the centre of its box or the pixel deepest in its mask: a hit if the point lies "
        "in the reference. Questions without a usable answer are misses. The mean hit rate is the unweighted mean over "
        "pathologies."
        + (" A run of several epochs has, for each question, the mean of its epochs." if several else ""),
        "The chance level of an image is the share of its cells that would be hits; of a pathology, the mean over its "
        "images.",
        f"Patients, all {len({record.patient_id for record in world.records}):,} of the split, were resampled with "
        f"replacement {scores.n_resamples:,} times (seed {scores.seed}); one draw serves all runs, so that differences "
        "are paired. Standard deviations are those of the resampled means; intervals run from their 2.5th to their "
        "97.5th percentile.",
        "Errors were categorized on frontal images: full hit, as above; partial hit, a cell that the reference touches "
        "but that is no hit; else position error if the finding could lie in the cell, and anatomy error if it could "
        "not, as readers or known anatomy say; what neither says is not reviewed.",
        "The definitions follow Gosai et al., Beyond Diagnosis: Evaluating Multimodal LLMs for Pathology Localization "
        "in Chest Radiographs (arXiv 2509.18015), sections 3.3, 3.4 and 4.1, except that patients are resampled, "
        "not images.",
    ]
