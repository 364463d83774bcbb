"""The figures of a report, each with its caption: what it shows, of how many, and what its error bars are.

Which runs a figure shows is said in its caption. Numbering follows the order on the page; paper 000's figures of the
same kind are named in :mod:`reveal_bench.reports.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from reveal_bench.geometry import Grid
from reveal_bench.metrics.bootstrap import MACRO
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
from reveal_bench.reports.heat import FEW, AveragePicture, Truth, prediction_shares
from reveal_bench.reports.run_hits import HitRun, Scores
from reveal_bench.reports.runs import World, short_names
from reveal_bench.reports.style import Illustration, Paint, paints, percent

__all__ = ["ErrorShares", "by_difference", "draw_errors", "draw_grids", "draw_heat", "draw_hit_rates",
           "draw_prompts"]  # fmt: skip

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
    return (
        f"Error bars: standard deviation over {scores.n_resamples:,} bootstrap resamples of {scores.unit}s "
        f"(seed {scores.seed})."
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
    return f"Average of {picture.n} frontal image{'s' * (picture.n != 1)} only." if picture.n_patients < FEW else ""


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
        f"Mean hit rate over {len(scores.findings)} pathologies by prompt style. Lines: 95 % percentile interval over "
        f"{scores.n_resamples:,} bootstrap resamples of {scores.unit}s (seed {scores.seed}). Dashed: chance level."
    )
    alt = f"Dot plot of mean hit rates by model and prompt style. {_means(scores, shown)}"
    draw = partial(
        dots, list(rows.items()), axis="Mean hit rate over pathologies (%)", kinds=styles,
        rule=(100 * chance, "chance level"),
    )  # fmt: skip
    return Illustration("prompts", "Hit rate by prompt style", caption, alt, draw)
