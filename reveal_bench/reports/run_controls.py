"""Whether models look at the film: their answers under controls beside those to the film, with paired differences.

A run folder holds a run for each control that was asked for (:mod:`reveal_bench.models.controls`). Scores are those of
``reveal-bench score``, differences those of ``reveal-bench compare``: control minus film, paired by patient, with what
was not answered a miss in both. Beside them stands the share of answers that are the same as to the film, which needs
no reference: of a model that does not look, and answers without chance, it is near 1. Of several epochs the first
counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reveal_bench.evaluation.compare import ALPHA, Comparison, compare
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.scales import intervals_text
from reveal_bench.models.controls import CONTROLS
from reveal_bench.models.run_folder import Exchange, Run
from reveal_bench.reports.figures import Point, dots
from reveal_bench.reports.page import Csv, PageTable
from reveal_bench.reports.runs import ReportRun, World, load_controls
from reveal_bench.reports.style import NOTHING, Illustration, interval_of, percent, signed

EXPLAINED = (
    "Each control asks the same questions with one thing changed. The score of a model that looks at the film falls "
    "where the film is gone, is another patient's or lacks the finding, and stays where the change does not matter. A "
    "model that answers from what is usual gives the same answers without the film, and loses on mirrored ones, whose "
    "answers are mirrored back before they are scored. A grey patch can be seen: a model that points at it keeps its "
    "hits over the finding and loses them beside it. Where nothing was answered there is no score to compare."
)


@dataclass(frozen=True)
class Controlled:
    """A run under one control.

    Attributes
    ----------
    label : of the run
    control : its name
    n_asked, n_answered : questions
    same : share of the questions answered both ways whose answers are the same; NaN if there is none
    difference : control minus film; None where readers score, and where one of the two has no answer at all
    """

    label: str
    control: str
    n_asked: int
    n_answered: int
    same: float
    difference: Comparison | None

    @property
    def says(self) -> str:
        """What the difference says of the model, in words."""
        found = self.difference
        if not self.n_answered:
            return "nothing answered"
        if found is None or (math.isnan(found.low) and math.isnan(found.p)):
            return NOTHING
        # Without any spread, such as that of the same answers, there is a p and no interval
        is_shown = found.p <= ALPHA if math.isnan(found.low) else not found.low <= 0 <= found.high
        falls, rises = is_shown and found.value < 0, is_shown and found.value > 0
        if CONTROLS[self.control].falls:
            return "falls, as it must" if falls else "no fall is shown"
        return "falls, as it must not" if falls else "rises" if rises else "no change is shown"


def controlled_runs(
    runs: Sequence[ReportRun], world: World, resampling: Resampling, findings: Sequence[str] | None = None
) -> list[Controlled]:
    """Every run under every control that its folder holds.

    Parameters
    ----------
    resampling, findings : as of :func:`reveal_bench.evaluation.compare.compare`, but for the interval

    Raises
    ------
    ValueError
        If a control was asked with other settings than the run, or of another dataset.
    """
    found = []
    for run in runs:
        if run.run is None:
            continue
        for control, under in load_controls(run, world).items():
            if under.run is None:
                continue
            found.append(
                Controlled(
                    run.label,
                    control,
                    under.run.info.n_asked,
                    _n_answered(under),
                    _same_share(run.run, under.run),
                    _difference(run, under, world, resampling, findings),
                )
            )
    return found


def _n_answered(run: ReportRun) -> int:
    return 0 if run.run is None else run.run.summary.by_status.get("answered", 0)


def _difference(
    run: ReportRun, under: ReportRun, world: World, resampling: Resampling, findings: Sequence[str] | None
) -> Comparison | None:
    """The macro of the metric that ranks, or stands in for it."""
    if world.kind.scoring.scored_by != "program" or not all(_n_answered(one) for one in (run, under)):
        return None
    film, control = (_rows(one, world) for one in (run, under))
    kind = world.kind
    ranked = (kind.release.primary, *kind.release.fallback_metrics, *film.metrics())
    metric = next(name for name in ranked if name in film.metrics())
    resampling = resampling.by("jackknife" if kind.scoring.intervals[0] == "jackknife" else "percentile")
    found = compare(control, film, resampling, metrics=[metric], findings=findings)
    return next(one for one in found if one.finding == MACRO)


def _rows(run: ReportRun, world: World) -> Rows:
    protocol = world.kind.scoring.protocol(world.info, grid=run.grid, thresholds=0.5)
    rows: Rows = world.kind.scoring.score(run.predictions[0], world.records, world.manifest, protocol)
    return rows


def _same_share(film: Run, control: Run) -> float:
    one, other = (
        {e.question: _answer(e) for e in run.exchanges if e.epoch == 1 and e.status == "answered"}
        for run in (film, control)
    )
    both = one.keys() & other.keys()
    return sum(one[question] == other[question] for question in both) / len(both) if both else math.nan


def _answer(exchange: Exchange) -> tuple[Any, ...]:
    """What was answered, places to the pixel."""
    places = (tuple(round(v) for v in place) if place else None for place in (exchange.point, exchange.box))
    return (exchange.cell, *places, exchange.labels, exchange.answer)


def controls_table(found: Sequence[Controlled]) -> PageTable:
    """A row for each run and control."""
    rows = [
        (
            one.label,
            one.control,
            f"{one.n_answered:,} of {one.n_asked:,}",
            *_scores(one.difference),
            percent(one.same, 0) if one.same == one.same else NOTHING,
            one.says,
        )
        for one in found
    ]
    plain = [
        (one.label, one.control, CONTROLS[one.control].shows, one.n_asked, one.n_answered, one.same, *_plain(one))
        for one in found
    ]
    heads = (
        "run", "control", "shows", "asked", "answered", "same_answers", "metric", "film", "score", "difference", "low",
        "high", "p", "signature",
    )  # fmt: skip
    metrics = sorted({METRICS[one.difference.metric].title for one in found if one.difference is not None})
    scored = f"{' and '.join(metrics)}, mean over findings, in percent; " if metrics else ""
    caption = f"{scored}difference, control minus film in points, with paired 95 % interval; same, of answers to both."
    head = ("Run", "Control", "Answered", "Film", "Control", "Difference", "Same", "What it says")
    return PageTable(head, rows, caption, "The same questions under controls", csv=Csv.of("controls", heads, plain))


def _scores(found: Comparison | None) -> tuple[str, str, str]:
    if found is None:
        return NOTHING, NOTHING, NOTHING
    return percent(found.b), percent(found.a), f"{signed(found.value)}\n{interval_of(found.low, found.high)}"


def _plain(one: Controlled) -> tuple[Any, ...]:
    found = one.difference
    if found is None:
        return (None,) * 8
    return found.metric, found.b, found.a, found.value, found.low, found.high, found.p, found.signature


def draw_controls(found: Sequence[Controlled], resampling: Resampling) -> Illustration | None:
    """The differences by control and run; None if there is none."""
    scored = [one for one in found if one.difference is not None]
    if not scored:
        return None
    labels = list(dict.fromkeys(one.label for one in scored))
    names = [name for name in CONTROLS if any(one.control == name for one in scored)]
    rows = [
        (name, [_point(one.difference, labels.index(one.label)) for one in scored if one.control == name])
        for name in names
    ]
    return Illustration(
        "controls",
        "Score under each control, less that on the film",
        f"Lines: {intervals_text(resampling)}. First the controls under which the score of a model that looks falls, "
        "then those that should not matter to it.",
        "; ".join(f"{one.label}, {one.control}: {one.says}" for one in scored),
        partial(dots, rows, axis="Difference (points)", kinds=labels, rule=(0.0, "as on the film")),
    )


def _point(found: Comparison | None, kind: int) -> Point:
    if found is None:
        return Point(None, kind=kind)
    low, high = (None if math.isnan(v) else 100 * v for v in (found.low, found.high))
    return Point(100 * found.value, low, high, kind)
