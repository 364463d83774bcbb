"""The report of runs that locate findings: hit rates, errors, heat maps, grids and prompts.

It shows what paper 000 shows in Figures 2 to 8 and Tables 1 and 2, in this project's own look. The numbers
are those of ``reveal-bench score``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.published import OwnScores
from reveal_bench.geometry import Grid
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.scales import intervals_text
from reveal_bench.models.pictures import FolderPictures
from reveal_bench.reports.figures import (
    COLUMNS_ABREAST,
    PANELS,
    ROWS_ON_PAGE,
    BarSeries,
    Group,
    HeatColumn,
    Point,
    dots,
    error_bars,
    grouped_bars,
    heat_maps,
)
from reveal_bench.reports.heat import FEW, AveragePicture, Truth, average_picture, prediction_shares, truth_shares
from reveal_bench.reports.page import Csv, Lines, Part, Section, Text
from reveal_bench.reports.run_cells import cell_counts, fallback_counts, fallback_table, repeated, top_cells_table
from reveal_bench.reports.run_errors import CATEGORIES, CaseErrors, Share, categorize
from reveal_bench.reports.run_errors import shares as shares_of
from reveal_bench.reports.run_examples import draw_examples
from reveal_bench.reports.run_hits import HitRun, Scores, core_runs, hit_runs, macro_of, score_runs
from reveal_bench.reports.run_report import RunReport
from reveal_bench.reports.run_tables import errors_table, heat_rows, means_table, rates_table
from reveal_bench.reports.runs import World, short_names
from reveal_bench.reports.style import Illustration, Paint, interval_of, paints, percent
from reveal_bench.words import count_text, plural


@dataclass
class HitReport(RunReport):
    """Hit rates by pathology."""

    what: ClassVar[str] = "Localization"

    @cached_property
    def scores(self) -> Scores:
        """Hit rates and chance of all runs."""
        runs, asked = hit_runs(self.runs, self.world), self.options
        return score_runs(runs, self.world, findings=asked.findings, resampling=asked.resampling)

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

    def own_scores(self) -> list[OwnScores]:
        """Hit rates by finding."""
        runs = self.scores.runs
        found = [self.scores.estimates(i) for i in range(len(runs))]
        return [
            OwnScores(run.label, run.metric, {name: of_run[name].value for name in self.scores.findings}, run.grid)
            for run, of_run in zip(runs, found, strict=True)
        ]

    @cached_property
    def cases(self) -> dict[str, list[CaseErrors]]:
        """Label of a main run -> per epoch, what kind of answer each is."""
        asked = self.options
        known: dict[str, Any] = {"anatomy": asked.anatomy, "reviews": asked.reviews}
        return {
            run.label: [categorize(part, self.world.records, grid=run.grid, **known) for part in run.predictions]
            for run in (self.scores.runs[i] for i in self.core)
        }

    @cached_property
    def errors(self) -> dict[str, list[list[Share]]]:
        """Run label -> per epoch, the shares of the error categories."""
        found, scores = {}, self.scores
        for label, epochs in self.cases.items():
            present = {case.finding for case in epochs[0]}
            names = [name for name in scores.findings if name in present]
            if names:
                found[label] = [shares_of(cases, findings=names, resampling=scores.resampling) for cases in epochs]
        return found

    @cached_property
    def cells(self) -> dict[str, Counter[str]]:
        """Label of a run -> how often it answers each cell."""
        sizes = {record.image_id: record.size for record in self.world.records}
        return {run.label: cell_counts(run, sizes) for run in self.scores.runs}

    def _hit_rates(self) -> list[Part]:
        scores, order, reference = self.scores, self.order, self.options.reference
        grid = scores.runs[self.core[0]].grid
        first, last = scores.runs[0].label, scores.runs[reference].label
        ranked = (
            "" if reference == 0 else f"Pathologies are in falling order of the difference between {first} and {last}."
        )
        return [
            draw_hit_rates(scores, self.world, self.core, order, ranked),
            means_table(scores, reference),
            rates_table(scores, order),
            fallback_table(fallback_counts(self.world.records, scores.findings, grid), grid),
        ]

    def _error_parts(self) -> list[Part]:
        if not self.errors:
            return [Text("No question is on a frontal image; errors are categorized only on frontal images.")]
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
        return [*drawn, errors_table(self.errors), *self._example_parts()]

    def _example_parts(self) -> list[Part]:
        if not self.options.examples:
            return []
        names = short_names([self.scores.runs[i] for i in self.core])
        own = zip(names, self.cases.values(), strict=True)
        first = {name: [c for c in epochs[0] if c.finding in self.order] for name, epochs in own}
        pictures, grid = FolderPictures(self.world.folder), self.scores.runs[self.core[0]].grid
        drawn = draw_examples(first, self.world.records, pictures.open, self.options.examples, grid)
        return [Text("No run missed a reference altogether.") if drawn is None else drawn]

    def _heat_parts(self) -> list[Part]:
        world, runs = self.world, [self.scores.runs[i] for i in self.core]
        grid = Grid(runs[0].grid)
        truths = truth_shares(world.records, self.scores.findings, grid)
        if not truths:
            return [
                top_cells_table(self.cells),
                Text("No question is on a frontal image; heat maps are drawn only for frontal images."),
            ]
        picture = average_picture(world.folder, world.split, progress=self.options.progress)
        if not world.info.synthetic:
            picture = picture.without_few()
        n = {name: len(truth.image_ids) for name, truth in truths.items()}
        sizes = {record.image_id: record.size for record in world.records}
        rows = heat_rows("ground truth", {name: truth.shares for name, truth in truths.items()}, n)
        for run in runs:
            rows += heat_rows(run.label, prediction_shares(run.predictions, sizes, truths, grid), n)
        file = Csv.of("heat-maps", ("run", "finding", "cell", "share", "n"), rows)
        drawn = draw_heat(runs, world, truths, picture, self.order)
        told = Text("The share of every cell is in a table of its own.", csv=file)
        return [*drawn, told, top_cells_table(self.cells)]

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
            yield Section("grids", "Grid size", [draw_grids(self.scores, self.order, pairs)])
        if any(len(places) > 1 for places in by_style.values()):
            shown = [i for places in by_style.values() for i in places.values()]
            yield Section("prompts", "Prompts", [draw_prompts(self.scores, shown)])

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
        told = "; ".join(f"{name} {percent(e.value)} ({interval_of(e.low, e.high)})" for e, name in ranked)
        others = len(scores.runs) - len(self.core)
        told += f". {others} more, with other prompts or grids, in Table 1" if others else ""
        chance = scores.estimates(self.core[0], chance=True)[MACRO].value
        grid = scores.runs[self.core[0]].grid
        return (
            f"{count_text(len(scores.runs), 'run')} located {len(scores.findings)} pathologies in "
            f"{world.title} {world.info.version}, split {world.split}: {n_questions:,} questions with a reference on "
            f"{len(world.records):,} images of {n_patients:,} patients. Mean hit rate over pathologies, with 95 % "
            f"interval: {told}. Chance is {percent(chance)} on the {grid} × {grid} grid. In parentheses: "
            f"{intervals_text(scores.resampling)}."
        )

    def warnings(self) -> list[str]:
        """Those of every report, which answers are nearly always the same, and whether films may be passed on."""
        info = self.world.info
        known = BENCHMARKS.get(info.benchmark)
        is_restricted = not info.synthetic and (known is None or known.licence == "restricted")
        films = "the example films" if self.options.examples else "the average image"
        words = f"{films} and the heat maps come from data whose terms may forbid passing them on"
        return [*super().warnings(), *repeated(self.cells), *[words] * is_restricted]

    def methods(self) -> list[Part]:
        """What hits, chance and categories are, as this package computes them."""
        metrics = sorted({run.metric for run in self.scores.runs} | {"grid_chance"})
        recipes = [self.scores.recipe(metric) for metric in metrics]
        words = _method_words(self.scores, self.world)
        return [*map(Text, words), Text("Signatures of the numbers:"), Lines(recipes)]


def _method_words(scores: Scores, world: World) -> list[str]:
    grids = sorted({run.grid for run in scores.runs})
    named = " and ".join(f"{grid} × {grid}" for grid in grids)
    n_patients = len({record.patient_id for record in world.records})
    several, draw = max(len(run.epochs) for run in scores.runs) > 1, scores.resampling
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
        f"In parentheses: {intervals_text(draw)}, of scores and of differences, which are paired by patient. "
        f"Standard deviations are those of means when patients, all {n_patients:,} of the split, are resampled with "
        f"replacement {draw.n_resamples:,} times (seed {draw.seed}).",
        "Errors were categorized on frontal images: full hit, as above; partial hit, a cell that the reference touches "
        "but that is not a hit; else position error if the finding could lie in the cell, and anatomy error if it "
        "could not, as readers or known anatomy say; what neither says is not reviewed.",
        "The definitions follow Gosai et al., Beyond Diagnosis: Evaluating Multimodal LLMs for Pathology Localization "
        "in Chest Radiographs (arXiv 2509.18015), sections 3.3, 3.4 and 4.1, except that the units are patients, "
        "not images, and intervals not those of resampled images.",
    ]


# Figures, each with its caption: what it shows, of how many, and what its error bars are ------------------------------

PAGE_HEIGHT = 215.0
"""Millimetres that panels of error categories may fill from top to bottom."""


@dataclass(frozen=True)
class ErrorShares:
    """Categories of the predictions on frontal images: run label -> finding -> category -> share, and cases."""

    shares: Mapping[str, Mapping[str, Mapping[str, float]]]
    n: Mapping[str, int]
    reviewed: bool


def by_difference(scores: Scores, first: int, reference: int) -> list[str]:
    """The findings in falling order of what run `first` has more than the run `reference`."""
    a, b = scores.hits[first].values, scores.hits[reference].values
    gains = dict(zip(scores.findings, (a - b).tolist(), strict=True))
    return sorted(scores.findings, key=lambda name: -math.inf if math.isnan(gains[name]) else -gains[name])


def _groups(scores: Scores, order: Sequence[str]) -> list[Group]:
    counts = dict(zip(scores.findings, scores.chance[0].n.tolist(), strict=True))
    named = [Group(name, name, (f"n = {counts[name]}",)) for name in order]
    if len(order) == 1:
        return named
    return [Group(MACRO, f"Mean of {len(order)} pathologies"), *named]


def _series(scores: Scores, index: int, label: str, paint: Paint) -> BarSeries:
    values = {name: e.value for name, e in scores.estimates(index).items()}
    of_cells = scores.runs[index].metric == "grid_hit"
    chance = {name: e.value for name, e in scores.estimates(index, chance=True).items()} if of_cells else {}
    return BarSeries(label, paint, values, scores.deviations(index), chance)


def _spread(scores: Scores) -> str:
    draw = scores.resampling
    return (
        f"Error bars: standard deviation over {draw.n_resamples:,} bootstrap resamples of {plural(draw.unit)} "
        f"(seed {draw.seed})."
    )


def _means(scores: Scores, shown: Sequence[int]) -> str:
    told = [f"{scores.runs[i].label}: {percent(scores.estimates(i)[MACRO].value)}" for i in shown]
    return "Mean hit rates: " + ", ".join(told) + "."


def draw_hit_rates(
    scores: Scores, world: World, shown: Sequence[int], order: Sequence[str], ranked: str
) -> Illustration:
    """Hit rates of the runs `shown` by pathology; `ranked` says in which order the pathologies come."""
    looks = paints(len(shown))
    names = short_names([scores.runs[i] for i in shown])
    series = [_series(scores, i, name, look) for i, name, look in zip(shown, names, looks, strict=True)]
    grid = scores.runs[shown[0]].grid
    points = [name for i, name in zip(shown, names, strict=True) if scores.runs[i].metric == "point_hit"]
    hits = (
        f"A cell of the {grid} × {grid} grid is a hit if the reference covers at least half of it; where it covers "
        "half of none, any part."
    )
    if points:
        hits += f" Of {', '.join(points)} a point is a hit if it lies in the reference; chance is not shown for it."
    caption = (
        f"Share of questions answered with a hit, by pathology (n = questions), on {world.title} "
        f"{world.info.version}, split {world.split}. {hits} Unanswered questions are misses. {_spread(scores)} Dashed: "
        f"chance level, the expected hit rate of a cell drawn uniformly. {ranked}"
    )
    if others := [run.label for i, run in enumerate(scores.runs) if i not in shown]:
        caption += f" Not shown here, with other prompts or grids: {', '.join(others)}."
    alt = f"Bar chart of hit rates of {len(shown)} runs for {len(order)} pathologies. {_means(scores, shown)}"
    groups = _groups(scores, order)
    return Illustration("hit-rates", "Hit rate by pathology", caption, alt, partial(grouped_bars, groups, series))


def draw_errors(errors: ErrorShares, order: Sequence[str]) -> Iterator[Illustration]:
    """Stacked error categories by pathology and run, as many figures as it takes pages."""
    named = [name for name in order if errors.n.get(name)]
    groups = [Group(name, f"{name} (n\u00a0=\u00a0{errors.n[name]})") for name in named]
    told = (
        "no overlap with the reference but plausible anatomy (position error), or implausible anatomy (anatomy error)"
        if errors.reviewed
        else "no overlap with the reference; whether the place is plausible was not reviewed"
    )
    caption = (
        "Predictions on frontal images (n = questions) by category: full hit (its cell is a hit), partial hit "
        f"(overlap, but too little for a hit), {told}. No answer: refused, unreadable or failed."
    )
    on_page = PANELS * max(1, int(PAGE_HEIGHT / (5.5 * len(errors.shares) + 16)))
    for number, start in enumerate(range(0, len(groups), on_page), start=1):
        part = groups[start : start + on_page]
        full = {
            label: sum(shares.get(group.key, {}).get("full_hit", 0.0) for group in part) / len(part)
            for label, shares in errors.shares.items()
        }
        alt = "Stacked bars of error categories. Mean share of full hits: " + ", ".join(
            f"{label}: {percent(share)}" for label, share in full.items()
        )
        name = "error-categories" if len(groups) <= on_page else f"error-categories-{number}"
        yield Illustration(name, "Error categories", caption, alt + ".", partial(error_bars, part, errors.shares))


def draw_heat(
    runs: Sequence[HitRun],
    world: World,
    truths: Mapping[str, Truth],
    picture: AveragePicture,
    order: Sequence[str],
) -> Iterator[Illustration]:
    """Heat maps of truth and runs, as many figures as it takes."""
    grid = Grid(runs[0].grid)
    sizes = {record.image_id: record.size for record in world.records}
    columns = [
        HeatColumn(name, prediction_shares(run.predictions, sizes, truths, grid))
        for name, run in zip(short_names(runs), runs, strict=True)
    ]
    truth = HeatColumn("Ground truth", {name: found.shares for name, found in truths.items()})
    named = [name for name in order if name in truths]
    groups = [Group(name, name, (f"n = {len(truths[name].image_ids)}",)) for name in named]
    note, caption = _behind(picture), _heat_caption(grid, picture)
    number = 0
    for start in range(0, len(groups), ROWS_ON_PAGE):
        for first in range(0, len(columns), COLUMNS_ABREAST - 1):
            number += 1
            abreast = columns[first : first + COLUMNS_ABREAST - 1]
            part = groups[start : start + ROWS_ON_PAGE]
            pathologies = ", ".join(group.key for group in part)
            alt = (
                f"Heat maps over {'a plain background' if picture.pixels is None else 'the average frontal image'}: "
                "columns ground truth, "
                f"{', '.join(c.title for c in abreast)}; rows {pathologies}. The shares of all cells are in "
                "heat-maps.csv."
            )
            draw = partial(heat_maps, part, [truth, *abreast], picture.pixels, note=note)
            yield Illustration(f"heat-maps-{number}", f"Where: {pathologies}", caption, alt, draw, has_narrow=False)


def _behind(picture: AveragePicture) -> str:
    if picture.n == 0:
        return "The folder holds no pictures: plain background."
    if picture.pixels is None:
        return f"Fewer than {FEW} patients: plain background, as an average could show one of them."
    return f"Average of {count_text(picture.n, 'frontal image')} only." if picture.n_patients < FEW else ""


def _heat_caption(grid: Grid, picture: AveragePicture) -> str:
    behind = (
        f"over the average of the {picture.n} frontal images (central squares)"
        if picture.pixels is not None
        else "over a plain background, as the folder holds no pictures"
        if picture.n == 0
        else f"over a plain background, as the pictures are of fewer than {FEW} patients"
    )
    return (
        f"Frontal images only (n = questions), {behind}. Ground truth: share of questions in which the cell of the "
        f"{grid.n} × {grid.n} grid is a hit cell, that is, the hit rate of always answering it. Runs: share of "
        "questions answered with this cell (of points, with the cell that holds them). Below each panel its "
        "largest share. One scale for all panels, by square root."
    )


def draw_grids(scores: Scores, order: Sequence[str], pairs: Sequence[Sequence[int]]) -> Illustration:
    """The same models on several grids; `pairs` holds the runs of each model, coarse grid first."""
    looks = paints(len(pairs))
    models = [scores.runs[indices[0]].model for indices in pairs]
    series = []
    for look, indices in zip(looks, pairs, strict=True):
        for place, i in enumerate(indices):
            run = scores.runs[i]
            paint = Paint(look.colour, ("", "////", "....")[min(place, 2)])
            name = run.model if models.count(run.model) == 1 else f"{run.model}, {run.style}"
            series.append(_series(scores, i, f"{name}, {run.grid} × {run.grid}", paint))
    caption = (
        "The same models asked with grids of different resolution (finer grids hatched). Dashed: the chance level of "
        f"each grid. {_spread(scores)}"
    )
    flat = [i for indices in pairs for i in indices]
    alt = f"Bar chart of hit rates by grid size. {_means(scores, flat)}"
    draw = partial(grouped_bars, _groups(scores, order), series)
    return Illustration("grids", "Hit rate by grid size", caption, alt, draw)


def draw_prompts(scores: Scores, shown: Sequence[int]) -> Illustration:
    """The mean hit rates of models that were asked in several styles."""
    styles = list(dict.fromkeys(scores.runs[i].style or "no prompt" for i in shown))
    rows: dict[str, list[Point]] = {}
    for i in shown:
        macro, run = scores.estimates(i)[MACRO], scores.runs[i]
        kind = styles.index(run.style or "no prompt")
        rows.setdefault(run.model, []).append(Point(100 * macro.value, 100 * macro.low, 100 * macro.high, kind))
    chance = scores.estimates(shown[0], chance=True)[MACRO].value
    caption = (
        f"Mean hit rate over {len(scores.findings)} pathologies by prompt style. Dashed: chance level. "
        f"Lines: {intervals_text(scores.resampling)}."
    )
    alt = f"Dot plot of mean hit rates by model and prompt style. {_means(scores, shown)}"
    draw = partial(
        dots, list(rows.items()), axis="Mean hit rate over pathologies (%)", kinds=styles,
        rule=(100 * chance, "chance level"),
    )  # fmt: skip
    return Illustration("prompts", "Hit rate by prompt style", caption, alt, draw)
