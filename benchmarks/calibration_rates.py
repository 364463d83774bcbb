"""Compute error rates of simulated trials for `calibration.py`: coverage, p, verdicts on a margin, tiers.

The functions behind `reveal-bench score`, `compare` and `rank` compute all intervals, p, verdicts and tiers. This
module converts a trial to rows of the kind of benchmark that has the metric, and counts trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from calibration_worlds import AnyWorld, Array, System, Trial  # in this folder

from reveal_bench.evaluation.compare import compare, rank
from reveal_bench.evaluation.margin import Margin
from reveal_bench.evaluation.permutation import blocks_of_signs, pairs_p
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics.bootstrap import MACRO, bounds_of, intervals_of
from reveal_bench.metrics.intervals import Resampling

IN_PLACES = ("point_hit", "mask_iou")
OF_SCORES = ("auroc", "average_precision")
TASKS = ("score", "compare", "margin", "tiers")
BATCH = 50
MANY_SYSTEMS, FIRST_FLIPS = 10, 1000
"""With so many systems, tiers of a trial are computed only if so many flips leave a pair with a small p."""
POSITIVES = (5, 8)
"""Also count the proportion of printed intervals among findings with at least these numbers of patients."""


@dataclass(frozen=True)
class Cell:
    """One simulated setting: `task` is one of :data:`TASKS`; `n_systems` is only used for tiers."""

    world: str
    n_patients: int
    task: str
    metric: str
    interval: str = "jackknife"
    n_systems: int = 2


@dataclass
class Outcomes:
    """Results with one row per trial and columns for the macro and each finding; NaN if not printed or undefined."""

    value: list[Array] = field(default_factory=list)
    low: list[Array] = field(default_factory=list)
    high: list[Array] = field(default_factory=list)
    true: list[Array] = field(default_factory=list)
    p: list[Array] = field(default_factory=list)
    adjusted: list[Array] = field(default_factory=list)
    positives: list[Array] = field(default_factory=list)


def measure(cells: Sequence[Cell], world: AnyWorld, n_trials: int, seed: int, n_resamples: int) -> list[dict[str, Any]]:
    """Return the rates, a row per figure, for cells of one world, number of patients and task, on the same trials."""
    first = cells[0]
    n_systems = {"score": 1, "tiers": first.n_systems}.get(first.task, 2)
    true = world.true_values(n_systems)
    resampling = Resampling(n_resamples, interval=first.interval)  # type: ignore[arg-type]
    rng = np.random.default_rng([seed, first.n_patients, *world.name.encode()])
    outcomes: dict[str, Any] = {cell.metric: [] if first.task == "tiers" else Outcomes() for cell in cells}
    for trial in _trials(world, first.n_patients, n_trials, n_systems, rng):
        if first.task == "score":
            _score(trial, true, resampling, outcomes)
        elif first.task == "tiers":
            for metric, parted in outcomes.items():
                parted.append(_is_parted(trial, metric, resampling))
        else:
            _compare(trial, true, resampling, outcomes, with_margin=first.task == "margin")
    names = (MACRO, *world.findings)
    rows: list[dict[str, Any]] = []
    for metric, own in outcomes.items():
        if first.task == "tiers":
            rows.append({"metric": metric, "figure": MACRO, "parted": _mean(np.array(own)[:, 0])})
            rows[-1]["worse_parted"] = _mean(np.array(own)[:, 1])
        elif first.task == "margin":
            rows.append({"metric": metric, "figure": MACRO} | margin_rates(own))
        else:
            rates = interval_rates if first.task == "score" else difference_rates
            rows += [{"metric": metric, "figure": name} | rates(own, i) for i, name in enumerate(names)]
            if first.task == "compare":
                rows[-len(names)] |= _any_finding(own)
    return rows


def _trials(
    world: AnyWorld, n_patients: int, n_trials: int, n_systems: int, rng: np.random.Generator
) -> Iterator[Trial]:
    for start in range(0, n_trials, BATCH):
        yield from world.draw(n_patients, min(BATCH, n_trials - start), n_systems, rng)


def _score(trial: Trial, true: dict[str, Array], resampling: Resampling, outcomes: dict[str, Outcomes]) -> None:
    names = _finding_names(trial.present.shape[1])
    for metrics in _by_kind(outcomes):
        (rows,) = rows_of(trial, metrics, trial.systems[:1])
        (figures,) = rows.resample([rows], resampling, metrics=metrics, groups=names)
        # `score` does the same for every metric of the kind, which would take three times as long
        for metric in metrics:
            own = intervals_of(figures[metric], resampling.interval, bounds=bounds_of(metric))
            _add(outcomes[metric], trial, own.values, own.low, own.high, true[metric][0])


def _compare(
    trial: Trial, true: dict[str, Array], resampling: Resampling, outcomes: dict[str, Outcomes], *, with_margin: bool
) -> None:
    for metrics in _by_kind(outcomes):
        a, b = rows_of(trial, metrics, trial.systems[:2])
        if with_margin:
            for metric in metrics:
                _judge(trial, a, b, metric, true[metric][1] - true[metric][0], resampling, outcomes[metric])
            continue
        compared = compare(a, b, resampling, metrics=metrics)
        for metric in metrics:
            mine = [c for c in compared if c.metric == metric]
            value, low, high = (np.array([getattr(c.estimate, x) for c in mine]) for x in ("value", "low", "high"))
            _add(outcomes[metric], trial, value, low, high, true[metric][0] - true[metric][1])
            outcomes[metric].p.append(np.array([c.p for c in mine]))
            outcomes[metric].adjusted.append(np.array([getattr(c, "p_adjusted", math.nan) for c in mine]))


def _judge(
    trial: Trial, a: Rows, b: Rows, metric: str, loss: Array, resampling: Resampling, outcomes: Outcomes
) -> None:
    """Add a trial's verdicts at a margin equal to A's true loss, over findings that are defined for both systems."""
    margin = float(loss.mean())
    compared = compare(a, b, resampling, metrics=[metric], margin=Margin(margin))
    has_both = ~np.isnan([c.estimate.value for c in compared[1:]])
    if has_both.any() and not np.isclose(loss[has_both].mean(), margin):
        compared = compare(a, b, resampling, metrics=[metric], margin=Margin(float(loss[has_both].mean())))
    verdicts = [c.verdict.word if c.verdict else "-" for c in compared]
    ends = [np.array([getattr(c.estimate, x) for c in compared]) for x in ("value", "low", "high")]
    _add(outcomes, trial, *ends, -loss)
    outcomes.p.append(np.array([math.nan if word == "-" else float(word == "non-inferior") for word in verdicts]))


def _is_parted(trial: Trial, metric: str, resampling: Resampling) -> tuple[bool, bool]:
    """Return (True if any two systems differ significantly, True if the first differs from all others)."""
    systems = rows_of(trial, [metric], trial.systems)
    if not _may_part(systems, metric, resampling):
        return False, False
    ranked = rank({f"{i:02d}": rows for i, rows in enumerate(systems)}, metric=metric, resampling=resampling)
    first = next(system for system in ranked if system.name == "00")
    if first.rank_low is None or first.rank_high is None:  # the systems are not tested
        return False, False
    n_beyond = max(first.rank_low - 1, len(ranked) - first.rank_high)
    return any((system.tier or 1) > 1 for system in ranked), n_beyond == len(ranked) - 1


def _may_part(systems: Sequence[Rows], metric: str, resampling: Resampling) -> bool:
    """Return False if 1,000 flips show that `rank`, which uses ten times as many, finds no significant pair.

    Among ten systems, a significant pair has p of at most 0.0011. Six or more of 1,000 flips are then beyond the data
    in one of 1,000 trials.
    """
    if len(systems) < MANY_SYSTEMS or metric in OF_SCORES:
        return True
    first = systems[0]
    figures = [own[metric] for own in first.resample(systems, resampling, metrics=[metric], groups=first.groups)]
    parts = figures[0].ratio_parts()
    p = None if parts is None else pairs_p(figures, blocks_of_signs(len(parts[0]), Resampling(FIRST_FLIPS)))
    return p is None or bool(p.min() <= 6 / FIRST_FLIPS)


def _add(own: Outcomes, trial: Trial, value: Array, low: Array, high: Array, true: Array) -> None:
    own.value.append(value)
    own.low.append(low)
    own.high.append(high)
    defined = np.where(np.isnan(value[1:]), np.nan, true)
    own.true.append(np.append(np.nan if np.isnan(defined).all() else np.nanmean(defined), defined))
    having = np.zeros((int(trial.patients.max()) + 1, trial.present.shape[1]), bool)
    np.logical_or.at(having, trial.patients, trial.present)
    own.positives.append(np.append(having.sum(axis=0).min(), having.sum(axis=0)))


def _by_kind(metrics: Any) -> list[list[str]]:
    parts = [[m for m in metrics if m in IN_PLACES], [m for m in metrics if m not in IN_PLACES]]
    return [part for part in parts if part]


def rows_of(trial: Trial, metrics: Sequence[str], systems: Sequence[System]) -> list[Rows]:
    """Return the systems' rows, in the kind of benchmark that has the metrics."""
    patients, k = tuple(trial.patients.tolist()), trial.present.shape[1]
    names = _finding_names(k)
    if metrics[0] not in IN_PLACES:
        with_scores = any(metric in OF_SCORES for metric in metrics)
        everybody = np.ones(len(patients), bool)
        return [
            StudyRows(
                names, _studies(patients), own.calls, trial.present, own.scores if with_scores else None, everybody
            )
            for own in systems
        ]
    images = _images(patients)
    image, finding = np.nonzero(trial.present)
    ids, of_patient = [images[i][0] for i in image], [images[i][1] for i in image]
    of_case, kinds = [names[j] for j in finding], ["mask"] * len(image)
    return [
        CaseRows(
            names,
            ids,
            of_patient,
            of_case,
            kinds,
            kinds,
            {"point_hit": own.hits[image, finding], "mask_iou": own.ious[image, finding]},
            images,
        )
        for own in systems
    ]


@lru_cache(maxsize=4)
def _studies(patients: tuple[int, ...]) -> tuple[StudyRecord, ...]:
    return tuple(StudyRecord(f"s{i:06d}", f"p{patient:06d}", ()) for i, patient in enumerate(patients))


@lru_cache(maxsize=4)
def _images(patients: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((f"i{i:06d}", f"p{patient:06d}") for i, patient in enumerate(patients))


@lru_cache
def _finding_names(k: int) -> tuple[str, ...]:
    return tuple(f"f{i:02d}" for i in range(k))


def interval_rates(own: Outcomes, i: int) -> dict[str, Any]:
    """Return how often a figure has an interval, and how often this interval covers the true value."""
    low, high, true, value, positives = (
        np.array(part)[:, i] for part in (own.low, own.high, own.true, own.value, own.positives)
    )
    printed = ~np.isnan(low) & ~np.isnan(true)
    rates: dict[str, Any] = {"defined": _mean(~np.isnan(value)), "printed": _mean(printed)}
    for least in POSITIVES:
        if (positives >= least).any():
            rates[f"printed_{least}"] = _mean(printed[positives >= least])
    if printed.any():
        below, above = ((miss > 1e-9)[printed] for miss in (low - true, true - high))
        rates |= {"coverage": _mean(~below & ~above), "below": _mean(below), "above": _mean(above)}
        rates |= {"width": _mean((high - low)[printed]), "bias": _mean((value - true)[printed])}
    return rates


def difference_rates(own: Outcomes, i: int) -> dict[str, Any]:
    """Return :func:`interval_rates` of a difference, and how often p is small or disagrees with the interval."""
    p, low, high = (np.array(part)[:, i] for part in (own.p, own.low, own.high))
    defined = ~np.isnan(p)
    rates = interval_rates(own, i) | {"p_printed": _mean(defined)}
    if defined.any():
        rates |= {f"p_{name}": _mean(p[defined] <= level) for name, level in (("05", 0.05), ("01", 0.01))}
        both = defined & ~np.isnan(low)
        excludes = (low > 0) | (high < 0)
        rates["disagree"] = _mean((excludes != (p <= 0.05))[both]) if both.any() else 0.0
    return rates


def margin_rates(own: Outcomes) -> dict[str, Any]:
    """Return how often the macro has a verdict, and how often the verdict is "non-inferior"."""
    verdicts = np.array(own.p)[:, 0]
    reached = ~np.isnan(verdicts)
    rates = {"p_printed": _mean(reached)}
    return rates | ({"non_inferior": _mean(verdicts[reached])} if reached.any() else {})


def _any_finding(own: Outcomes) -> dict[str, Any]:
    """Return how often any finding has a small p, unadjusted and adjusted for all findings."""
    rates = {}
    for name, part in (("any_finding", own.p), ("any_finding_adjusted", own.adjusted)):
        p = np.array(part)[:, 1:]
        if not np.isnan(p).all():
            rates[name] = _mean((p <= 0.05).any(axis=1))
    return rates


def _mean(values: Array) -> float:
    return round(float(np.mean(values)), 5)
