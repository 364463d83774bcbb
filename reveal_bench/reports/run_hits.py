"""Compute hit rates of runs on a localization benchmark, and draw their tables and figures.

Conventions
-----------
An unanswered question is a miss. The hit metric depends on the output of a run (paper 000, section 3.3), as in `score`:
`grid_hit` at the run's grid for cells, `point_hit` for points, boxes and masks; each has its own chance level. Answers
that all name a cell count by it if another run answers with cells. Two runs with different metrics are compared by
`point_hit`, for which a cell counts by its centre. The first epoch of a run is scored. All runs use the same resampled
patients, so that replicates are paired. A run's standard deviation is that of its replicates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.evaluation.compare import PERMUTATION, compare_resampled
from reveal_bench.evaluation.permutation import draw_signs
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.kinds.localization.scoring import CaseRows, resample_systems, score_localization
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, BootstrapMeans, estimates_from
from reveal_bench.metrics.intervals import UNDEFINED, Estimate, Resampling
from reveal_bench.metrics.scales import intervals_text
from reveal_bench.reports.figures import BarGroup, dashed_line, forest, legend, legend_height, patch
from reveal_bench.reports.page import Csv, PageTable, leading
from reveal_bench.reports.runs import ReportRun, Split, short_names
from reveal_bench.reports.style import (
    DASHED,
    INK,
    LINE,
    NOTHING,
    WIDE,
    Illustration,
    Paint,
    columns_for,
    cut,
    difference_of,
    interval_of,
    new_figure,
    paints,
    percent,
    percent_cell,
    place_axes,
    plain_axes,
    style,
    wrap,
)
from reveal_bench.words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class HitRun(ReportRun):
    """A run with the hits of its cases.

    Attributes
    ----------
    protocol : type of prediction: "cell", "point", "box", "mask", or "none" if no question was answered
    epochs : values of `grid_hit`, `point_hit` and their chance levels per case, of each epoch
    n_missing : number of questions that have a reference but no prediction, over all epochs
    """

    protocol: str
    epochs: tuple[CaseRows, ...]

    @property
    def rows(self) -> CaseRows:
        """Values of the first epoch, which is scored."""
        return self.epochs[0]

    @property
    def metric(self) -> str:
        """Hit metric for the run's type of prediction."""
        return "grid_hit" if self.protocol == "cell" else "point_hit"

    @property
    def chance_metric(self) -> str:
        """Chance level of the hit metric."""
        return "grid_chance" if self.metric == "grid_hit" else "point_chance"

    @property
    def guess(self) -> str:
        """Random guess whose hit rate is the chance level, in words: a cell of the run's grid, or a point."""
        return f"{self.grid} × {self.grid}" if self.metric == "grid_hit" else "points"


def hit_runs(runs: Sequence[ReportRun], split: Split) -> list[HitRun]:
    """Return the runs with the hits of their cases; answers that all name a cell are cells if another run's are."""
    scored = [_scored(run, split) for run in runs]
    if all(run.metric != "grid_hit" for run in scored):
        return scored
    return [replace(run, protocol="cell") if _name_cells(run) else run for run in scored]


def _name_cells(run: ReportRun) -> bool:
    answers = [one for part in run.predictions for one in part]
    return bool(answers) and all(one.cell is not None for one in answers)


def _scored(run: ReportRun, split: Split) -> HitRun:
    cases = {(record.image_id, finding) for record in split.records for finding in record.asked("present")}
    answered = ({(one.image_id, one.finding) for one in part} for part in run.predictions)
    settings = None if run.run is None else run.run.info.settings
    form = "" if settings is None else settings.form
    epochs = tuple(_rows(part, split, run.grid, form) for part in run.predictions)
    own_fields = {item.name: getattr(run, item.name) for item in fields(ReportRun)}
    return HitRun(
        **own_fields | {"n_missing": sum(len(cases - pairs) for pairs in answered)},
        protocol=next((rows.protocol for rows in epochs if rows.leading), "none"),
        epochs=epochs,
    )


@dataclass(frozen=True)
class HitRates:
    """Hit rates of all runs on the same findings and replicates.

    Attributes
    ----------
    findings : findings with at least one case, in the benchmark's order
    hits, chance : hit rates and chance levels per run, with one group per finding
    points : hit rates of the points of all runs, for differences of runs with different metrics
    """

    runs: Sequence[HitRun]
    findings: tuple[str, ...]
    hits: Sequence[BootstrapMeans]
    chance: Sequence[BootstrapMeans]
    points: Sequence[BootstrapMeans]
    resampling: Resampling

    @property
    def rate(self) -> str:
        """Name of the runs' hit metrics: "grid hit rate" for cells, "hit rate" for other answers, or both."""
        return " or ".join(sorted({METRICS[run.metric].title.lower() for run in self.runs}))

    def recipe(self, metric: str) -> str:
        """Return the signature of a metric: version and resampling settings."""
        return self.resampling.signature(metric)

    def estimates(self, index: int, *, chance: bool = False) -> dict[str, Estimate]:
        """Return the estimates of a run's hit rates or chance levels, by finding and "macro"."""
        means = (self.chance if chance else self.hits)[index]
        metric = self.runs[index].chance_metric if chance else self.runs[index].metric
        estimates = estimates_from(means, self.findings, recipe=self.recipe(metric), interval=self.resampling.interval)
        return {estimate.finding: estimate for estimate in estimates}

    def deviations(self, index: int, *, chance: bool = False) -> dict[str, float]:
        """Return standard deviations (ddof 1) over defined replicates, by finding and "macro"."""
        means = (self.chance if chance else self.hits)[index]
        columns = {MACRO: means.macro()[1], **dict(zip(self.findings, means.replicates.T, strict=True))}
        return {name: _deviation(column) for name, column in columns.items()}

    def difference(self, a: int, b: int) -> Estimate:
        """Return the paired difference in mean hit rate, run `a` minus run `b`, by a metric that both have."""
        metric = self.runs[a].metric if self.runs[a].metric == self.runs[b].metric else "point_hit"
        hits = self.hits if self.runs[a].metric == self.runs[b].metric else self.points
        own, other = hits[a], hits[b]
        signs = draw_signs(len(own.rows), self.resampling)
        recipe = self.resampling.signature(metric, method=PERMUTATION)
        macro, *_ = compare_resampled(own, other, self.findings, recipe=recipe, signs=signs)
        return macro.estimate


def _deviation(replicates: FloatArray) -> float:
    defined = replicates[~np.isnan(replicates)]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else float("nan")


def _rows(predictions: Sequence[LocalizationPrediction], split: Split, grid: int, form: str) -> CaseRows:
    """Return each case's hits and chance level; without predictions, every case with a chance level is a miss."""
    rows = score_localization(predictions, split.records, findings=split.dataset.findings, grid=grid, form=form)
    names = ("grid_chance", "point_chance", "grid_hit", "point_hit")
    return replace(rows, values={name: rows.values[name] for name in names})


def score_runs(
    runs: Sequence[HitRun],
    split: Split,
    *,
    findings: Sequence[str] | None = None,
    resampling: Resampling = Resampling(),
) -> HitRates:
    """Return hit rates and chance levels of all runs on the same resampled patients.

    Parameters
    ----------
    findings : findings to report and to include in the macro; by default all findings of the benchmark

    Raises
    ------
    ValueError
        If a finding is not in the benchmark, or no finding has a case.
    """
    requested = tuple(split.dataset.findings if findings is None else findings)
    unknown = [name for name in requested if name not in split.dataset.findings]
    if unknown:
        raise ArgumentError("findings", f"must be among {list(split.dataset.findings)}", unknown)
    have = runs[0].rows.n_defined("grid_chance")
    reported = tuple(name for name in requested if have[name])
    if not reported:
        raise ArgumentError("findings", f"must have at least one case in split {split.name!r}", "none")
    columns = [{"hit": run.metric, "chance": run.chance_metric, "point": "point_hit"} for run in runs]
    systems = [
        replace(run.rows, values={name: run.rows.values[metric] for name, metric in own.items()})
        for run, own in zip(runs, columns, strict=True)
    ]
    drawn = resampling.by("percentile")  # standard deviations are those of replicates
    means = resample_systems(systems, drawn, metrics=["hit", "chance", "point"], findings=reported)
    hits, chance, points = ([one[name] for one in means] for name in ("hit", "chance", "point"))
    return HitRates(runs, reported, hits, chance, points, resampling)


def macro_of(rows: CaseRows, metric: str, findings: Sequence[str]) -> float:
    """Return the mean of `metric` over `findings` for one epoch."""
    (means,) = resample_systems([rows], Resampling(1, unit="image"), metrics=[metric], findings=findings)
    return means[metric].macro()[0]


def core_runs(runs: Sequence[HitRun], main_grid: int) -> list[int]:
    """Return the indices of the runs in the main figures: on the main grid, in each model's first prompt style.

    Separate figures compare a model's other prompt styles and other grids.
    """
    indices: list[int] = []
    first_style: dict[str, str | None] = {}
    for number, run in enumerate(runs):
        if run.grid == main_grid and first_style.setdefault(run.model, run.style) == run.style:
            indices.append(number)
    return indices


def _both(estimate: Estimate) -> str:
    return f"{percent_cell(estimate.value)}\n{interval_of(estimate.low, estimate.high)}"


def random_guesses(scores: HitRates, indices: Sequence[int] | None = None) -> dict[str, int]:
    """Return random guess in words -> index of the first run that it is for: cells of coarser grids first, then points.

    Parameters
    ----------
    indices : runs to consider; by default all
    """
    chosen = range(len(scores.runs)) if indices is None else indices
    order = sorted(chosen, key=lambda i: (scores.runs[i].metric != "grid_hit", scores.runs[i].grid))
    guesses: dict[str, int] = {}
    for i in order:
        guesses.setdefault(scores.runs[i].guess, i)
    return guesses


def means_table(scores: HitRates, reference: int) -> PageTable:
    """Return a table of mean hit rates and their paired differences from the reference run."""
    rows: list[tuple[str, ...]] = []
    plain: list[tuple[Any, ...]] = []
    for guess, i in random_guesses(scores).items():
        chance, spread = scores.estimates(i, chance=True)[MACRO], scores.deviations(i, chance=True)[MACRO]
        cells, grid, form = (guess, scores.runs[i].grid, "cell") if guess != "points" else (NOTHING, None, "point")
        rows.append(
            (f"Expected by chance, {guess}", NOTHING, cells, form, _both(chance), percent_cell(spread), NOTHING)
        )
        plain.append(("chance", "", grid, form, chance.value, spread, chance.low, chance.high, None, None, None,
                      chance.signature))  # fmt: skip
    for i, run in enumerate(scores.runs):
        macro, spread = scores.estimates(i)[MACRO], scores.deviations(i)[MACRO]
        gain = scores.difference(i, reference) if i != reference else UNDEFINED
        bounds = gain.low, gain.high
        difference = "reference" if i == reference else difference_of(gain.value, *bounds)
        on = f"{run.grid} × {run.grid}" if run.metric == "grid_hit" else NOTHING
        rows.append((run.label, run.style or NOTHING, on, run.protocol, _both(macro), percent_cell(spread), difference))
        plain.append((run.label, run.style or "", run.grid, run.protocol, macro.value, spread, macro.low, macro.high,
                      gain.value, *bounds, macro.signature))  # fmt: skip
    label = scores.runs[reference].label
    caption = (
        f"Mean {scores.rate} over {len(scores.findings)} pathologies, in percent, with 95% interval and bootstrap "
        f"standard deviation; difference from {label} in percentage points with its paired 95% interval."
        + " Differences between cells and other answers are of the hit rate, for which a cell counts by its centre."
        * (len({run.metric for run in scores.runs}) > 1)
    )
    head = ("Run", "Prompt", "Grid", "Answers", f"Mean {scores.rate} (%)", "SD", "Difference")
    plain_head = ("run", "style", "grid", "protocol", "mean_hit_rate", "sd", "low", "high", "difference",
                  "difference_low", "difference_high", "signature")  # fmt: skip
    return PageTable(head, rows, caption, f"Mean {scores.rate}", csv=Csv.of("mean-hit-rates", plain_head, plain))


def rates_table(scores: HitRates, order: Sequence[str]) -> PageTable:
    """Return a table of hit rates by run and pathology, with chance levels and numbers of questions."""
    names = [MACRO, *order]
    by_run = [scores.estimates(i) for i in range(len(scores.runs))]
    guesses = random_guesses(scores)
    chances = [scores.estimates(i, chance=True) for i in guesses.values()]
    counts = dict(zip(scores.findings, scores.chance[0].n.tolist(), strict=True))
    rows, best = [], set()
    for row, name in enumerate(names):
        cells = ("Mean", NOTHING) if name == MACRO else (name, f"{counts[name]:,}")
        rows.append((*cells, *(_both(estimates[name]) for estimates in (*by_run, *chances))))
        values = {2 + i: estimates[name].value for i, estimates in enumerate(by_run)}
        n_cases = sum(counts.values()) if name == MACRO else counts[name]
        best |= {(row, column) for column in leading(values, n_cases)}
    caption = (
        f"{scores.rate.capitalize()} in percent by run and pathology, with 95% interval. The highest is bold for "
        "pathologies with ten questions or more. Each question is one image with one pathology."
    )
    plain_head = ("run", "model", "style", "grid", "protocol", "metric", "finding", "value", "sd", "low", "high", "n",
                  "n_undefined", "n_empty_replicates", "signature")  # fmt: skip
    plain = tuple(row for i in range(len(scores.runs)) for row in _plain_rates(scores, i, names))
    expected = (f"Expected by chance, {guess}" for guess in guesses)
    head = ("Pathology", "Questions", *(run.label for run in scores.runs), *expected)
    file = Csv.of("hit-rates", plain_head, plain)
    return PageTable(head, rows, caption, f"{scores.rate.capitalize()} by pathology", frozenset(best), csv=file)


def _plain_rates(scores: HitRates, index: int, names: Sequence[str]) -> list[tuple[Any, ...]]:
    run = scores.runs[index]
    rows: list[tuple[Any, ...]] = []
    for is_chance in (False, True):
        estimates, deviations = scores.estimates(index, chance=is_chance), scores.deviations(index, chance=is_chance)
        for name in names:
            e = estimates[name]
            rows.append((run.label, run.model, run.style, run.grid, run.protocol, e.metric, name, e.value,
                         deviations[name], e.low, e.high, e.n, e.n_undefined, e.n_empty_replicates,
                         e.signature))  # fmt: skip
    return rows


def by_difference(scores: HitRates, first: int, reference: int) -> list[str]:
    """Return the findings in decreasing order of the difference run `first` minus run `reference`."""
    a, b = scores.hits[first].values, scores.hits[reference].values
    gains = dict(zip(scores.findings, (a - b).tolist(), strict=True))
    return sorted(scores.findings, key=lambda name: -math.inf if math.isnan(gains[name]) else -gains[name])


def _groups(scores: HitRates, order: Sequence[str]) -> list[BarGroup]:
    counts = dict(zip(scores.findings, scores.chance[0].n.tolist(), strict=True))
    named = [BarGroup(name, name, (f"n = {counts[name]}",)) for name in order]
    if len(order) == 1:
        return named
    return [BarGroup(MACRO, f"Mean of {len(order)} pathologies"), *named]


def _series(scores: HitRates, index: int, label: str, paint: Paint) -> BarSeries:
    values = {name: e.value for name, e in scores.estimates(index).items()}
    chance = {name: e.value for name, e in scores.estimates(index, chance=True).items()}
    return BarSeries(label, paint, values, scores.deviations(index), chance)


def _spread(scores: HitRates) -> str:
    draw = scores.resampling
    return (
        f"Error bars: standard deviation over {draw.n_resamples:,} bootstrap resamples of {plural(draw.unit)} "
        f"(seed {draw.seed})."
    )


def _means(scores: HitRates, indices: Sequence[int]) -> str:
    means = [f"{scores.runs[i].label}: {percent(scores.estimates(i)[MACRO].value)}" for i in indices]
    return f"Mean {scores.rate}: {', '.join(means)}."


def draw_hit_rates(
    scores: HitRates, split: Split, indices: Sequence[int], order: Sequence[str], ranked: str
) -> Illustration:
    """Return a figure of hit rates by pathology and run; `ranked` is a sentence on the order of pathologies."""
    looks = paints(len(indices))
    names = short_names([scores.runs[i] for i in indices])
    series = [_series(scores, i, name, look) for i, name, look in zip(indices, names, looks, strict=True)]
    grid = scores.runs[indices[0]].grid
    points = [name for i, name in zip(indices, names, strict=True) if scores.runs[i].metric == "point_hit"]
    hits = (
        f"A cell of the {grid} × {grid} grid is a hit if the reference covers at least half of the cell; if the "
        "reference covers less than half of every cell, any overlap is a hit."
    )
    if points:
        hits += f" For {', '.join(points)}, a point is a hit if it is inside the reference."
    caption = (
        f"Share of questions answered with a hit, by pathology (n = questions), on {split.title} "
        f"{split.info.version}, split {split.name}. {hits} Unanswered questions are misses. {_spread(scores)} Dashed: "
        f"chance level, the expected {scores.rate} of a random {'cell, or point' if points else 'cell'}. {ranked}"
    )
    if others := [run.label for i, run in enumerate(scores.runs) if i not in indices]:
        caption += f" Omitted runs, with other prompts or grids: {', '.join(others)}."
    alt = (
        f"Bar chart of the {scores.rate} of {len(indices)} runs for {len(order)} pathologies. {_means(scores, indices)}"
    )
    draw = partial(grouped_bars, _groups(scores, order), series, rate=scores.rate.capitalize())
    return Illustration("hit-rates", f"{scores.rate.capitalize()} by pathology", caption, alt, draw)


def draw_grids(scores: HitRates, order: Sequence[str], pairs: Sequence[Sequence[int]]) -> Illustration:
    """Return a figure of models on several grids; `pairs` has each model's runs, coarsest grid first."""
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
        "Grid hit rates of the same models with grids of different resolution (finer grids hatched). Dashed: the "
        f"chance level of each grid. {_spread(scores)}"
    )
    flat = [i for indices in pairs for i in indices]
    alt = f"Bar chart of grid hit rates by grid size. {_means(scores, flat)}"
    draw = partial(grouped_bars, _groups(scores, order), series, rate="Grid hit rate")
    return Illustration("grids", "Grid hit rate by grid size", caption, alt, draw)


def draw_prompts(scores: HitRates, indices: Sequence[int]) -> Illustration:
    """Return a figure of mean hit rates of models that ran with several prompt styles."""
    styles = list(dict.fromkeys(scores.runs[i].style or "no prompt" for i in indices))
    rows: dict[str, list[tuple[int, Estimate]]] = {}
    for i in indices:
        macro, run = scores.estimates(i)[MACRO], scores.runs[i]
        kind = styles.index(run.style or "no prompt")
        rows.setdefault(run.model, []).append((kind, macro))
    chance = scores.estimates(indices[0], chance=True)[MACRO].value
    caption = (
        f"Mean {scores.rate} over {len(scores.findings)} pathologies by prompt style. Dashed: chance level. "
        f"Lines: {intervals_text(scores.resampling)}."
    )
    alt = f"Dot plot of the mean {scores.rate} by model and prompt style. {_means(scores, indices)}"
    draw = partial(
        forest, list(rows.items()), axis=f"Mean {scores.rate} over pathologies (%)", scale=100, kinds=styles,
        rule=(100 * chance, "chance level"),
    )  # fmt: skip
    return Illustration("prompts", f"{scores.rate.capitalize()} by prompt style", caption, alt, draw)


ROW_HEIGHT = 48.0


BAR_SHARE = 0.82
"""Proportion of a group's width that is filled by bars."""


@dataclass(frozen=True)
class BarSeries:
    """One series of a grouped bar chart.

    Attributes
    ----------
    values, deviations, chance : group key -> fraction; NaN and missing values are not drawn
    """

    label: str
    paint: Paint
    values: Mapping[str, float]
    deviations: Mapping[str, float]
    chance: Mapping[str, float]


def grouped_bars(
    groups: Sequence[BarGroup], series: Sequence[BarSeries], width: float = WIDE, *, rate: str = "Hit rate"
) -> Figure:
    """Draw grouped bars of a `rate` with error bars and a dashed line at chance, in rows of a few groups each.

    Neighbouring bars with the same chance level share a line. All rows have the same scale.
    """
    columns = columns_for(len(groups), 5 if width == WIDE else 2)
    n_rows = math.ceil(len(groups) / columns)
    slot = (width - 17) / columns
    labels = {group.key: "\n".join([wrap(group.label, slot - 2, most=3), *group.below]) for group in groups}
    lines = max(label.count("\n") + 1 for label in labels.values())
    with style():
        handles = [patch(cut(one.label, width - 16), one.paint) for one in series]
        handles += [dashed_line("chance level")] * any(one.chance for one in series)
        top, bottom = legend_height([handle.get_label() for handle in handles], width), 3 + LINE * lines
        height = n_rows * ROW_HEIGHT + top + 2
        figure = new_figure(height, width)
        tops = [_end(s, g.key) for s in series for g in groups]
        highest = min(1.0, max([0.1, *(t for t in tops if not math.isnan(t))]) * 1.06)
        for row in range(n_rows):
            own = groups[row * columns : (row + 1) * columns]
            low = height - top - (row + 1) * ROW_HEIGHT + bottom
            axes = place_axes(figure, 15, low, slot * len(own), ROW_HEIGHT - bottom - 2)
            _draw_groups(axes, own, series)
            axes.set_xticks(range(len(own)), [labels[group.key] for group in own])
            axes.set_xlim(-0.5, len(own) - 0.5)
            axes.set_ylim(0, 100 * highest)
            axes.set_ylabel(f"{rate} (%)")
        legend(figure, handles)
    return figure


def _end(series: BarSeries, key: str) -> float:
    deviation = series.deviations.get(key, 0.0)
    value = series.values.get(key, math.nan)
    return max(value + (0.0 if math.isnan(deviation) else deviation), series.chance.get(key, value))


def _draw_groups(axes: Axes, groups: Sequence[BarGroup], series: Sequence[BarSeries]) -> None:
    width = BAR_SHARE / len(series)
    places = np.arange(len(groups))
    for number, one in enumerate(series):
        left = places - BAR_SHARE / 2 + number * width
        values = np.array([one.values.get(group.key, math.nan) for group in groups])
        spread = np.array([one.deviations.get(group.key, math.nan) for group in groups])
        axes.bar(left, 100 * values, width * 0.94, align="edge", label=one.label, **one.paint.options)
        has = ~np.isnan(spread) & ~np.isnan(values)
        middle = left + width * 0.47
        if has.any():
            # Clip error bars to [0, 1], the range of a proportion
            reach = np.array([np.minimum(spread, values)[has], np.minimum(spread, 1 - values)[has]])
            for colour, thick in (("white", 1.9), (INK, 0.8)):  # a white outline keeps error bars visible on dark bars
                axes.errorbar(
                    middle[has], 100 * values[has], yerr=100 * reach, fmt="none",
                    ecolor=colour, elinewidth=thick, capsize=1.3, capthick=thick,
                )  # fmt: skip
    for place, group in zip(places, groups, strict=True):
        _draw_chance(axes, float(place), [one.chance.get(group.key, math.nan) for one in series], width)
    axes.tick_params(axis="x", length=0)
    plain_axes(axes)


def _draw_chance(axes: Axes, place: float, chance: Sequence[float], width: float) -> None:
    start = 0
    for stop in range(1, len(chance) + 1):
        if stop < len(chance) and chance[stop] == chance[start]:
            continue
        if not math.isnan(chance[start]):
            ends = [place - BAR_SHARE / 2 + start * width, place - BAR_SHARE / 2 + (stop - 0.06) * width]
            level = [100 * chance[start]] * 2
            axes.plot(ends, level, color="white", linewidth=1.8, solid_capstyle="butt")
            axes.plot(ends, level, color=INK, linewidth=1.0, linestyle=DASHED)
        start = stop
