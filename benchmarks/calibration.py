"""Simulate coverage and error rates: ``python benchmarks/calibration.py`` writes docs/statistics.md's table.

A cell is a world with a number of patients. In each of its 6,000 trials six systems of equal skill are drawn: intervals
are for the first, p compares the first two, and tiers use all six. Hits, IoU and labels come from normal variables that
share a part within a patient, and a part between systems; the true value is the score in the same world with 200,000
patients. A macro should cover the mean true value of the findings that are defined in its trial.

All scores come from the package (`bootstrap_means`, `label_sums`, `find_intervals`, `compare_resampled`,
`step_down_p`). Trials of a batch are the groups of one call; they share how many images each patient has, and the draw.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.evaluation.compare import _significantly_different, compare_resampled, side_by_side
from reveal_bench.evaluation.permutation import contributions, draw_signs, step_down_p
from reveal_bench.metrics.agreement import lowest_kappa
from reveal_bench.metrics.bootstrap import (
    Figures,
    are_means,
    bootstrap_means,
    bounds_of,
    macro_first,
    resampling_counts,
)
from reveal_bench.metrics.estimates import units_behind
from reveal_bench.metrics.intervals import Resampling, find_intervals
from reveal_bench.metrics.jackknife import Evidence, evidence_of_groups
from reveal_bench.metrics.labels import kappa_from_sums, label_sums, ratio_from_sums, tables_from_sums

HERE = Path(__file__).parent
RESULTS, PAGE, FIGURE = HERE / "calibration.json", HERE.parent / "docs/statistics.md", HERE.parent / "docs/coverage.svg"
BEGIN, END = "<!-- Written by benchmarks/calibration.py: change that. -->", "<!-- End of what it writes. -->"

Array = npt.NDArray[Any]
METRIC_NAMES = ("point_hit", "mask_iou", "f1", "cohen_kappa")
SIZES = (30, 50, 100, 300)
N_SYSTEMS, BATCH, N_RESAMPLES = 6, 50, 1000
INTERVAL_SEED = 6
"""Seed of the trials that judge intervals; they had no part in the choice between methods."""
LEAST_PRINTED = 200
"""Trials with an interval or p below which a cell is not judged."""


@dataclass(frozen=True)
class World:
    """Parameters of a simulated population of patients and systems.

    Attributes
    ----------
    prevalence : of each finding
    least_images : a patient has this many images to three
    within : correlation of a patient's images
    skew : exponent of a uniform variable that is the IoU: above 1 most are low
    between : correlation of the systems
    """

    name: str
    prevalence: tuple[float, ...] = (0.03, 0.1, 0.2, 0.35, 0.6)
    least_images: int = 1
    within: float = 0.3
    skew: float = 1.0
    between: float = 0.5


WORLDS = (
    World("plain"),
    World("clustered", least_images=2, within=0.6, skew=4.0, between=0.3),
    World("alike", skew=0.5, between=0.8),
    World("imbalanced", prevalence=(0.03, 0.05, 0.05, 0.1, 0.6), within=0.5),
)


@dataclass(frozen=True)
class Drawn:
    """Studies of a batch: the unit of each (n_studies,), and each system's results, (n_studies, n_columns)."""

    units: Array
    present: Array
    hits: list[Array]
    ious: list[Array]
    calls: list[Array]


def draw(world: World, n_patients: int, n_trials: int, rng: np.random.Generator, n_systems: int = N_SYSTEMS) -> Drawn:
    """Draw a batch of studies; columns are trial x finding."""
    n_images = rng.integers(world.least_images, 4, n_patients)
    units = np.repeat(np.arange(n_patients), n_images)
    shape = (n_trials, len(world.prevalence))

    def latent() -> Array:
        own = rng.standard_normal((len(units), *shape), np.float32)
        shared = rng.standard_normal((n_patients, *shape), np.float32)[units]
        return np.sqrt(world.within) * shared + np.sqrt(1 - world.within) * own

    def flat(values: Array) -> Array:
        return values.reshape(len(units), -1)

    quantile = NormalDist().inv_cdf
    spread = np.linspace(0, 1, shape[1])
    present = latent() < [quantile(p) for p in world.prevalence]
    common = [latent() for _ in range(3)]
    hits, ious, calls = [], [], []
    for _ in range(n_systems):
        hit, iou, call = (np.sqrt(world.between) * c + np.sqrt(1 - world.between) * latent() for c in common)
        hits.append(flat(np.where(present, hit < [quantile(0.45 + 0.35 * s) for s in spread], np.nan)))
        ious.append(flat(np.where(present, _uniform(iou) ** world.skew, np.nan)))
        calls.append(flat(np.where(present, call < 0.7, call < -1.5 + 0.6 * spread)))
    return Drawn(units, flat(present), hits, ious, calls)


def _uniform(normal: Array) -> Array:
    """Return the normal distribution function, by a table."""
    grid = np.linspace(-6, 6, 4001)
    return np.interp(normal, grid, [NormalDist().cdf(x) for x in grid])


def figures_of(drawn: Drawn, system: int, counts: Array) -> dict[str, tuple[Figures, Array, Array | None]]:
    """Return metric -> scores of every column, the supporting units of each, and the lowest possible kappa of each."""
    n_units, n_columns = counts.shape[1], drawn.present.shape[1]
    measured: dict[str, tuple[Figures, Array, Array | None]] = {}
    for name, values in (("point_hit", drawn.hits[system]), ("mask_iou", drawn.ious[system])):
        units, groups = np.repeat(drawn.units, n_columns), np.tile(np.arange(n_columns), len(drawn.units))
        is_defined = ~np.isnan(values.ravel())
        values, groups, units = values.ravel()[is_defined], groups[is_defined], units[is_defined]
        means = bootstrap_means(values, groups, units, n_groups=n_columns, counts=counts)
        figures = Figures(means.values, means.replicates, means.n, means.left_out(), means.rows)
        measured[name] = figures, (means.rows > 0).sum(axis=0), None
    sums = label_sums(drawn.calls[system], drawn.present, units=drawn.units, n_units=n_units)
    total, resampled, without = sums.total(), sums.resample(counts), sums.left_out()
    statistics: dict[str, Callable[[Any], Array]] = {
        "f1": lambda s: ratio_from_sums("f1", s),
        "cohen_kappa": kappa_from_sums,
    }
    for name, statistic in statistics.items():
        values = statistic(total)
        n = np.where(np.isnan(values), 0, len(drawn.units))
        positive = units_behind("recall", sums)
        figures = Figures(values, statistic(resampled), n, statistic(without), sums.confusion.sum(axis=-1), positive)
        lowest = lowest_kappa(tables_from_sums(total)) if name == "cohen_kappa" else None
        measured[name] = figures, units_behind(name, sums), lowest
    return measured


def of_trial(figures: Figures, columns: slice) -> Figures:
    """Return the columns of one trial."""
    assert figures.without is not None
    assert figures.weights is not None
    return Figures(
        figures.values[columns],
        figures.replicates[:, columns],
        figures.n[columns],
        figures.without[:, columns],
        figures.weights[:, columns],
        None if figures.positive_units is None else figures.positive_units[columns],
    )


def evidence_for(metric: str, figures: Figures, behind: Array, lowest: Array | None) -> Evidence:
    """Return the evidence as :func:`reveal_bench.kinds.localization.scoring.summarize` and `estimate_labels` do."""
    left_out = figures.left_out()
    assert left_out is not None
    defined = np.flatnonzero(~np.isnan(figures.values))
    is_share = metric in ("point_hit", "f1")
    return evidence_of_groups(
        macro_first(left_out),
        behind,
        averaged=defined,
        is_share=is_share,
        bounds=bounds_of(metric),
        lowest=lowest,
        of_means=are_means(metric),
        of_overlap=not are_means(metric),
    )


def truths(world: World, rng: np.random.Generator) -> dict[str, Array]:
    """Return metric -> the true value of each finding."""
    parts = []
    one = np.ones((1, 20_000), np.float32)
    for _ in range(10):
        drawn = draw(world, 20_000, 1, rng, n_systems=1)
        parts.append({name: figures.values for name, (figures, *_) in figures_of(drawn, 0, one).items()})
    return {name: np.mean([part[name] for part in parts], axis=0) for name in METRIC_NAMES}


def measure(world: World, n_patients: int, n_trials: int) -> dict[str, Any]:
    """Return all rates of one cell."""
    start = time.process_time()
    rng = np.random.default_rng([WORLDS.index(world), n_patients])
    true = truths(world, rng)
    counts = resampling_counts(n_patients, Resampling(N_RESAMPLES))
    signs = draw_signs(n_patients, Resampling(N_RESAMPLES))
    rows: dict[tuple[str, str], list[Any]] = {}
    for _ in range(n_trials // BATCH):
        drawn = draw(world, n_patients, BATCH, rng)
        systems = [figures_of(drawn, i, counts) for i in range(N_SYSTEMS)]
        for key, row in _trials(systems, len(world.prevalence), true, signs):
            rows.setdefault(key, []).append(row)
    cell: dict[str, Any] = {"world": world.name, "n_patients": n_patients, "n_trials": n_trials, "figures": []}
    names = ["macro", *(f"{100 * p:g} %" for p in world.prevalence)]
    for metric in METRIC_NAMES:
        for i, name in enumerate(names):
            figure: dict[str, Any] = {"metric": metric, "figure": name}
            for method in ("new", "old"):
                ends = np.array(rows[metric, f"{method} interval"])[:, :, i]
                p = np.array(rows[metric, f"{method} p"])[:, i]
                figure[method] = _interval_rates(*ends.T) | _p_rates(p)
                if name == "macro":
                    figure[method]["family"] = float(np.mean(rows[metric, f"{method} family"]))
            cell["figures"].append(figure)
    return cell | {"seconds": round(time.process_time() - start, 1)}


def measure_intervals(world: World, n_patients: int, n_trials: int) -> list[dict[str, Any]]:
    """Return the new intervals' rates for one system in separate trials, in the order of `measure`."""
    rng = np.random.default_rng([WORLDS.index(world), n_patients, INTERVAL_SEED])
    true = truths(world, rng)
    one, k = np.ones((1, n_patients), np.float32), len(world.prevalence)
    rows: dict[str, list[Array]] = {name: [] for name in METRIC_NAMES}
    for _ in range(n_trials // BATCH):
        system = figures_of(draw(world, n_patients, BATCH, rng, n_systems=1), 0, one)
        for metric, figures in system.items():
            for trial in range(BATCH):
                columns = slice(trial * k, (trial + 1) * k)
                rows[metric].append(_new_ends(metric, figures, columns, true[metric]))
    return [_interval_rates(*np.array(rows[metric])[:, :, i].T) for metric in METRIC_NAMES for i in range(k + 1)]


def measure_tiers(world: World, n_patients: int, n_trials: int, metric: str) -> float:
    """Return the proportion of separate trials in which tiers separate any of six equal systems."""
    rng = np.random.default_rng([WORLDS.index(world), n_patients, 2])
    one, k = np.ones((1, n_patients), np.float32), len(world.prevalence)
    signs = draw_signs(n_patients, Resampling(N_RESAMPLES))
    separations = []
    for _ in range(n_trials // BATCH):
        drawn = draw(world, n_patients, BATCH, rng)
        systems = [figures_of(drawn, i, one)[metric][0] for i in range(N_SYSTEMS)]
        for trial in range(BATCH):
            own = [of_trial(figures, slice(trial * k, (trial + 1) * k)) for figures in systems]
            separations.append(_has_tiers(own, signs))
    return float(np.mean(separations))


def _has_tiers(own: list[Figures], signs: Array) -> bool:
    parts = contributions(own)
    assert parts is not None
    return bool((step_down_p(parts[0][:, :, 0], signs) <= 0.05).any())


def _new_ends(metric: str, systems: tuple[Figures, Array, Array | None], columns: slice, true: Array) -> Array:
    """Return the bounds of a trial's macro and findings, and the values to cover, (3, 1 + n_findings)."""
    own, behind, lowest = of_trial(systems[0], columns), systems[1][columns], systems[2]
    evidence = evidence_for(metric, own, behind, None if lowest is None else lowest[columns])
    ends = find_intervals(macro_first(own.values), macro_first(own.replicates), interval="jackknife", evidence=evidence)
    return np.stack([ends.low, ends.high, _true_values(own, true)])


def _true_values(own: Figures, true: Array) -> Array:
    """Return the true macro over the defined findings, and the true value of each."""
    return macro_first(np.where(np.isnan(own.values), np.nan, true))


def _trials(
    systems: list[dict[str, tuple[Figures, Array, Array | None]]], n_findings: int, true: dict[str, Array], signs: Array
) -> Iterator[tuple[tuple[str, str], Any]]:
    for metric in METRIC_NAMES:
        for trial in range(BATCH):
            columns = slice(trial * n_findings, (trial + 1) * n_findings)
            own = [of_trial(system[metric][0], columns) for system in systems]
            yield (metric, "new interval"), _new_ends(metric, systems[0][metric], columns, true[metric])
            old = find_intervals(macro_first(own[0].values), macro_first(own[0].replicates))
            yield (metric, "old interval"), np.stack([old.low, old.high, _true_values(own[0], true[metric])])
            names = [str(i) for i in range(n_findings)]
            for method, flips in (("new", signs), ("old", None)):
                compared = compare_resampled(own[0], own[1], names, recipe=metric, signs=flips)
                yield (metric, f"{method} p"), [c.p for c in compared]
            macros = side_by_side(own)[1][:, :, 0]
            yield (metric, "old family"), bool(_significantly_different(macros[:, ~np.isnan(macros[0])]).any())
            yield (metric, "new family"), _has_tiers(own, signs)


def _interval_rates(low: Array, high: Array, true: Array) -> dict[str, Any]:
    printed = ~np.isnan(low) & ~np.isnan(true)
    below, above = (true < low - 1e-12)[printed], (true > high + 1e-12)[printed]
    if not printed.any():
        return {"printed": 0.0}
    rates = {"coverage": 1 - below.mean() - above.mean(), "below": below.mean(), "above": above.mean()}
    return {"printed": float(printed.mean())} | {name: round(float(rate), 4) for name, rate in rates.items()}


_P_RATES = ("p_printed", "p_05", "p_01", "p_trials", "family", "family_again")


def _p_rates(p: Array) -> dict[str, Any]:
    defined = p[~np.isnan(p)]
    rates = {"p_printed": float(len(defined) / len(p))}
    return rates | (
        {"p_05": float((defined <= 0.05).mean()), "p_01": float((defined <= 0.01).mean())} if len(defined) else {}
    )


def renew_intervals(n_trials: int) -> None:
    """Simulate the new intervals of the cells of calibration.json again; each finished cell is written at once."""
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))["cells"]
    worlds = {world.name: world for world in WORLDS}
    for cell in sorted(cells, key=lambda one: one["n_patients"]):
        start = time.process_time()
        rates = measure_intervals(worlds[cell["world"]], cell["n_patients"], n_trials)
        for figure, own in zip(cell["figures"], rates, strict=True):
            p_rates = {name: rate for name, rate in figure["new"].items() if name in _P_RATES}
            figure["new"] = own | {"interval_trials": n_trials} | p_rates
        print(cell["world"], cell["n_patients"], round(time.process_time() - start, 1), "s", flush=True)
        _write(cells)


def check_tiers() -> None:
    """Simulate other trials for cells whose tiers clearly miss the goal."""
    from calibration_page import misses_tiers  # the file beside this one

    cells = json.loads(RESULTS.read_text(encoding="utf-8"))["cells"]
    worlds = {world.name: world for world in WORLDS}
    for cell in cells:
        for figure in cell["figures"]:
            if misses_tiers(cell, figure["new"]):
                world, n_trials = worlds[cell["world"]], cell["n_trials"]
                again = measure_tiers(world, cell["n_patients"], n_trials, figure["metric"])
                print(cell["world"], cell["n_patients"], figure["metric"], figure["new"]["family"], again, flush=True)
                figure["new"]["family_again"] = again
    _write(cells)


def _write(cells: list[dict[str, Any]]) -> None:
    text = ",\n".join(json.dumps(cell) for cell in cells)
    RESULTS.write_text(f'{{"cells": [\n{text}\n]}}\n', encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=6000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--intervals-only", action="store_true", help="simulate the new intervals alone")
    parser.add_argument("--tiers-again", action="store_true", help="simulate cells whose tiers miss the goal again")
    parser.add_argument("--draw-only", action="store_true", help="write page and figure from calibration.json")
    options = parser.parse_args()
    if options.intervals_only:
        renew_intervals(options.trials)
    elif options.tiers_again:
        check_tiers()
    elif not options.draw_only:
        cells = [(world, n, options.trials) for n in SIZES[::-1] for world in WORLDS]
        done = []
        with ProcessPoolExecutor(options.processes) as pool:
            for cell in pool.map(measure, *zip(*cells, strict=True)):
                print(cell["world"], cell["n_patients"], cell["seconds"], "s", flush=True)
                done.append(cell)
        order = [world.name for world in WORLDS]
        done.sort(key=lambda cell: (order.index(cell["world"]), cell["n_patients"]))
        _write(done)
    from calibration_page import write_page  # the file beside this one

    write_page(json.loads(RESULTS.read_text(encoding="utf-8"))["cells"])


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
