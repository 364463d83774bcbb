"""Sections of every report of model runs: settings, costs, published results, image controls and warnings.

Each kind of benchmark has a subclass of :class:`RunReport` with further sections and a summary. Tables on the page are
in percent; their CSV files have unrounded fractions with the signature of each metric. No table names an image or a
patient.

Published results are shown beside the user's runs if dataset and metric are the same
(:mod:`reveal_bench.analyses.published`). Published results were measured on the whole test split. If runs answer only
a part of it (`released` or the holdout), the caption says so.

Controls repeat the questions with changed images to show whether models use the image
(:mod:`reveal_bench.models.controls`). A run folder contains one run per requested control. Scores equal those of
``reveal-bench score``, differences those of ``reveal-bench compare``: control minus original image, paired by patient.
Unanswered questions are misses in both. The proportion of answers that equal those on the original image needs no
reference. This proportion is near 1 for a deterministic model that ignores the image. Only first epochs are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from reveal_bench.analyses.published import (
    GRID,
    OwnScores,
    ReferenceRow,
    explain_not_comparable,
    read_reference_rows,
    rows_beside,
)
from reveal_bench.evaluation.compare import Comparison, compare
from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.scales import intervals_text
from reveal_bench.models.answer_words import STATUSES
from reveal_bench.models.controls import CONTROLS
from reveal_bench.models.run_folder import QuestionOutcome, Run, RunSummary
from reveal_bench.predictions.files import shortest_runs
from reveal_bench.reports.anatomy import Regions
from reveal_bench.reports.figures import forest
from reveal_bench.reports.page import Csv, Page, PageTable, Part, Progress, Section, Text, notices, section
from reveal_bench.reports.run_errors import Reviews
from reveal_bench.reports.runs import ReportRun, Split, control_runs, load_controls, unfinished_controls
from reveal_bench.reports.style import NOTHING, Illustration, interval_of, missing_glyphs, percent, percent_cell, signed
from reveal_bench.words import count_text


@dataclass(frozen=True)
class Options:
    """Options of :func:`reveal_bench.reports.run_page.write_run_report`."""

    reference: int
    anatomy: Mapping[str, Regions] | None = None
    reviews: Reviews | None = None
    findings: Sequence[str] | None = None
    examples: int = 0
    resampling: Resampling = field(default_factory=Resampling)
    progress: Progress | None = None


@dataclass
class RunReport:
    """Report of runs on one kind of benchmark."""

    what: ClassVar[str] = "Answers"
    """Name of the runs' task for the page's title."""
    unanswered: ClassVar[str] = "misses"
    """Score of questions without a prediction, in words."""
    split: Split
    runs: Sequence[ReportRun]
    options: Options

    def page(self, warnings: Sequence[str]) -> Page:
        """Return the page with all sections."""
        sections = [
            *self.sections(),
            *self.published_sections(),
            *self.control_sections(),
            self.run_section(),
            Section("methods", "Methods", self.methods()),
        ]
        title = f"{self.what} on {self.split.title}: {count_text(len(self.runs), 'run')} compared"
        notes = notices(synthetic=self.split.info.synthetic, warnings=warnings)
        return Page(title, self.split.description, sections, notes, self.summary())

    def sections(self) -> Sequence[Section]:
        """Return the sections specific to this kind of benchmark."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return the summary at the top of the report; "" if there is none."""
        return ""

    def methods(self) -> Sequence[Part]:
        """Return the methods section: how the numbers are computed."""
        raise NotImplementedError

    def own_columns(self) -> tuple[tuple[str, ...], Sequence[tuple[object, ...]]]:
        """Return (names, values of each run) of the columns that this kind of benchmark adds to ``runs.csv``."""
        return (), [()] * len(self.runs)

    def means_by_epoch(self) -> Mapping[str, Sequence[float]]:
        """Return run label -> mean score of each epoch, for the table of costs."""
        return {}

    def own_scores(self) -> Sequence[OwnScores]:
        """Return the runs' scores to show beside published results."""
        return ()

    def published_sections(self) -> list[Section]:
        """Return tables of published results for the same dataset and metric, or the reason why there are none."""
        own = self.own_scores()
        parts = list(published_parts(own, self.split)) if own else []
        return [Section("published", "Beside published rows", parts)] if parts else []

    def control_sections(self) -> list[Section]:
        """Return the section on controls; nothing if no control was run."""
        options = self.options
        controlled = controlled_runs(self.runs, self.split, options.resampling, options.findings)
        if not controlled:
            return []
        figure = draw_controls(controlled, options.resampling.by(self.split.kind.scoring.intervals[0]))
        drawings = [] if figure is None else [figure]
        return [section("controls", "Do models use the image?", "", EXPLAINED, *drawings, controls_table(controlled))]

    def run_section(self) -> Section:
        """Return the section on the runs' settings, failures and costs."""
        costs = costs_table(self.runs, self.means_by_epoch(), self.unanswered)
        tables = [runs_table(self.runs, *self.own_columns()), costs]
        return Section("runs", "Runs, failures and costs", [table for table in tables if table is not None])

    def warnings(self) -> list[str]:
        """Return warnings for readers of the report."""
        warnings = []
        for run in self.runs:
            if run.run is None:
                if run.n_missing:
                    words = f"{run.label} leaves {run.n_missing:,} questions without a prediction"
                    warnings.append(f"{words}: {self.unanswered}")
                continue
            n_left = run.run.summary.by_status.get("not_asked", 0)
            if n_left:
                warnings.append(f"{run.label} is not finished: {n_left:,} questions were not asked")
            for name in unfinished_controls(run):
                repeat = f"repeat the `run` command with --control {name}"
                warnings.append(f"control {name} of {run.label} is left out, because it is not finished: {repeat}")
        if self.split.part:
            asked = "every run" if len(self.runs) > 1 else self.runs[0].label
            warnings.append(f"scores are over the questions that {asked} asked: {self.split.part}")
            paths = {run.label: run.path for run in self.runs}
            warnings += filter(None, [shortest_runs(paths, self.split.name, self.split.kind.key)])
        lacking = missing_glyphs(run.label for run in self.runs)
        if lacking:
            warnings.append(f"PNG figures show boxes for {lacking}: give such runs another LABEL=PATH")
        if self.split.info.splits[self.split.name].get("references") == "private":
            warnings.append(
                "this page shows the references of a private holdout: only the dataset's maintainer may see it"
            )
        return warnings


OWN = "this report"
"""Name shown as the source of the user's runs, where published rows cite a paper."""


def runs_table(
    runs: Sequence[ReportRun], own_names: Sequence[str] = (), own: Sequence[tuple[object, ...]] = ()
) -> PageTable:
    """Return a table of the runs: model, settings, versions, file hashes, and `own` columns of the kind."""
    rows, plain = [], []
    for run, own_values in zip(runs, own or [()] * len(runs), strict=True):
        info = run.run.info if run.run is not None else None
        settings = info.settings if info is not None else None
        sent = {} if info is None else {k: v for k, v in info.parameters.items() if v is not None}
        harness = {} if info is None else dict(info.harness)
        how = [f"{settings.shots} shots from {settings.shots_split}"] if settings is not None and settings.shots else []
        how += [f"{key} {value}" for key, value in sent.items()]
        n_epochs = len(run.predictions)
        versions = ", ".join(f"{name} {version}" for name, version in harness.items())
        picture = "" if settings is None else f"{settings.side} px, prompt {settings.prompt_version}"
        rows.append((run.label, run.model if info is not None else "prediction file", run.style or NOTHING,
                     picture or NOTHING, "; ".join(how) or NOTHING, f"{n_epochs}", f"{run.n_missing:,}",
                     versions or NOTHING, "\n".join(value[:12] for value in run.sha256)))  # fmt: skip
        plain.append((run.label, run.model, run.style, *own_values, n_epochs, run.n_missing,
                      picture, "; ".join(how), versions, " ".join(run.sha256)))  # fmt: skip
    head = ("Run", "Model", "Prompt", "Picture", "Settings", "Epochs", "Without prediction", "Harness", "SHA-256")
    plain_head = ("run", "model", "style", *own_names, "epochs", "n_missing", "picture",
                  "settings", "harness", "sha256")  # fmt: skip
    caption = (
        "Runs. Without prediction: number of unanswered questions over all epochs. SHA-256: first digits of the hash "
        "of each prediction file."
    )
    return PageTable(head, rows, caption, "Runs", csv=Csv.of("runs", plain_head, plain))


def costs_table(runs: Sequence[ReportRun], means: Mapping[str, Sequence[float]], unanswered: str) -> PageTable | None:
    """Return a table of the run folders' failures and costs; None if all runs are prediction files.

    Parameters
    ----------
    means : run label -> mean hit rate of each epoch; empty for other kinds
    unanswered : score of questions without an answer, in words
    """
    rows, plain = [], []
    counted = [(run, *one) for run in runs for one in _summaries(run)]
    used = [
        status for status in (*STATUSES, "not_asked") if any(summary.by_status.get(status) for *_, summary in counted)
    ]
    for run, part, summary in counted:
        label = f"{run.label}{part}"
        cost = None if summary.cost is None else f"{summary.cost.normalize():f}"
        counts = [summary.by_status.get(status, 0) for status in used]
        tokens = (summary.tokens_in, summary.tokens_cached, summary.tokens_out)
        row = (label, f"{summary.n_expected:,}", *(f"{n:,}" for n in (*counts, *tokens, summary.without_usage)))
        epoch_cells, values = _by_epoch(() if part else means[run.label]) if means else ((), ())
        rows.append((*row, cost or NOTHING, *epoch_cells))
        plain.append((label, summary.n_expected, *counts, *tokens, summary.without_usage, cost, *values))
    if not rows:
        return None
    head = ("Run", "Asked", *(status.replace("_", " ").capitalize() for status in used), "Tokens in", "of these cached",
            "Tokens out", "Without usage", "Cost", *["Mean score by epoch (%)"] * bool(means))  # fmt: skip
    plain_head = ("run", "asked", *used, "tokens_in", "tokens_cached", "tokens_out", "without_usage", "cost",
                  *(("epochs", "macro_mean_over_epochs", "macro_sd_over_epochs") if means else ()))  # fmt: skip
    caption = (
        "Outcomes of all questions, in all epochs, and cost in the currency of the prices; a row each for the drawings "
        "that showed a model's coordinates, and for controls. Without usage: number of replies without token counts, "
        f"which the cost omits. Questions without an answer are {unanswered}."
        + (" SD: standard deviation over epochs." if means else "")
    )
    return PageTable(head, rows, caption, "Failures and costs", csv=Csv.of("failures-and-costs", plain_head, plain))


def _summaries(run: ReportRun) -> Iterator[tuple[str, RunSummary]]:
    """Yield (part, counts) of all that a run asked: the questions (""), the drawings, the questions of each control."""
    if run.run is None:
        return
    yield "", run.run.summary
    if run.run.drawings is not None:
        yield ", drawings", run.run.drawings
    for name, under in control_runs(run).items():
        if under is not None:
            yield f", control {name}", under.summary


def _by_epoch(means: Sequence[float]) -> tuple[tuple[str], tuple[int | None, float, float]]:
    if not means:
        return (NOTHING,), (None, math.nan, math.nan)
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else math.nan
    mean = float(np.mean(means))
    cell = percent_cell(mean) + ("" if math.isnan(spread) else f"\nSD {percent_cell(spread)} of {len(means)}")
    return (cell,), (len(means), mean, spread)


def published_parts(own: Sequence[OwnScores], split: Split) -> Iterator[Part]:
    """Yield tables of published results and the runs' scores, one per metric, and reasons for omitted rows."""
    rows = read_reference_rows(split.info.benchmark)
    if not rows:
        return
    if split.part:
        yield Text("Not comparable with published rows, because only a part of the split was asked.")
        return
    whole = explain_not_comparable(rows, split.info, split.name)
    if whole:
        yield Text(whole)
        return
    used = set()
    for metric in dict.fromkeys(one.metric for one in own):
        beside = [row for row in rows if metric in row.figures]
        of_grid = [one for one in own if one.metric == metric and (metric != "grid_hit" or one.grid == GRID)]
        others = [one.label for one in own if one.metric == metric and one not in of_grid]
        if beside and of_grid:
            used |= {id(row) for row in beside}
            yield _published_table(metric, beside, of_grid, split)
        if beside and others:
            cells = f"{GRID} × {GRID}"
            yield Text(
                f"Not comparable: {', '.join(others)}, because their grid is not the {cells} grid of the published "
                "rows."
            )
    unused = [row for row in rows if id(row) not in used]
    if unused:
        metrics = "; ".join(sorted({METRICS[name].title for row in unused for name in row.figures}))
        names = "; ".join(dict.fromkeys(row.name for row in unused))
        yield Text(f"Systems published only with metrics that no run here has ({metrics}): {names}.")


def _published_table(metric: str, beside: Sequence[ReferenceRow], own: Sequence[OwnScores], split: Split) -> PageTable:
    findings, lines = rows_beside(metric, own, beside)
    rows, plain = [], []
    for line in lines:
        name, source, figures = line.system, line.source or OWN, [line.values[finding] for finding in findings]
        label = f"{name} ({source})" if line.source else name
        rows.append((label, *map(percent_cell, (line.mean, *figures))))
        plain.append((name, source, metric, "mean", line.mean))
        plain += [(name, source, metric, finding, value) for finding, value in zip(findings, figures, strict=True)]
    part = f"; these runs answer its subset {split.name}, {len(split.records):,} images" * (split.name != "test")
    caption = (
        f"{METRICS[metric].title} in percent; published rows as printed, for the whole test split{part}. Mean: over "
        f"the {len(findings)} findings of every row. Methods of the papers: "
        f"{' '.join(dict.fromkeys(row.protocol for row in beside))}"
    )
    csv = Csv.of(f"published-{metric.replace('_', '-')}", ("system", "source", "metric", "finding", "value"), plain)
    head = ("System", "Mean", *(name.replace("mediastinum", "\u00admediastinum") for name in findings))
    return PageTable(head, rows, caption, f"Published {METRICS[metric].title.lower()}", csv=csv)


EXPLAINED = (
    "Each control asks the same questions with one change. If a model uses the image, its score falls when the image "
    "is missing, another patient's or without the finding, and stays the same when the change is irrelevant. A model "
    "that answers from prior knowledge gives the same answers without the image. The score of such a model falls on "
    "mirrored images, because answers are mirrored back before scoring. Grey patches are visible. A model that points "
    "at the patch keeps its hits when the patch covers the finding, and loses them when the patch is beside the "
    "finding. Without answers, no score can be compared."
)


@dataclass(frozen=True)
class Controlled:
    """A run compared with its repetition under one control.

    Attributes
    ----------
    label : label of the run
    control : name of the control
    n_asked, n_answered : numbers of questions asked and answered
    same : proportion of equal answers among questions answered on both images; NaN without such questions
    difference : score on control images minus score on original images; None if readers score the answers, or either
        run has no answer
    """

    label: str
    control: str
    n_asked: int
    n_answered: int
    same: float
    difference: Comparison | None

    @property
    def says(self) -> str:
        """Conclusion from the difference, in words."""
        comparison = self.difference
        if not self.n_answered:
            return "nothing answered"
        if comparison is None or (math.isnan(comparison.estimate.low) and math.isnan(comparison.p)):
            return NOTHING
        # A constant difference, such as 0 between equal answers, has a p value but no interval
        change = comparison.estimate
        is_shown = not change.low <= 0 <= change.high if change.has_interval else comparison.p <= ALPHA
        falls, rises = is_shown and change.value < 0, is_shown and change.value > 0
        if CONTROLS[self.control].falls:
            return "falls, as it should" if falls else "no fall is shown"
        return "falls, but should not" if falls else "rises" if rises else "no change is shown"


def controlled_runs(
    runs: Sequence[ReportRun], split: Split, resampling: Resampling, findings: Sequence[str] | None = None
) -> list[Controlled]:
    """Return the comparison of every run with each control in its folder.

    Parameters
    ----------
    resampling, findings : as in :func:`reveal_bench.evaluation.compare.compare`, except for the interval

    Raises
    ------
    ValueError
        If a control has other settings than the run, or another dataset.
    """
    controlled = []
    for run in runs:
        if run.run is None:
            continue
        for control, under in load_controls(run, split).items():
            if under.run is None:
                continue
            controlled.append(
                Controlled(
                    run.label,
                    control,
                    under.run.info.n_asked,
                    _n_answered(under),
                    _same_share(run.run, under.run),
                    _difference(run, under, split, resampling, findings),
                )
            )
    return controlled


def _n_answered(run: ReportRun) -> int:
    return 0 if run.run is None else run.run.summary.by_status.get("answered", 0)


def _difference(
    run: ReportRun, under: ReportRun, split: Split, resampling: Resampling, findings: Sequence[str] | None
) -> Comparison | None:
    """Return the difference in the macro mean of the ranking metric, or of its fallback metric."""
    if split.kind.scoring.scored_by != "program" or not all(_n_answered(one) for one in (run, under)):
        return None
    film, control = (_rows(one, split) for one in (run, under))
    kind = split.kind
    ranked = (film.leading, kind.release.primary, *kind.release.fallback_metrics, *film.metrics())
    metric = next(name for name in ranked if name in film.metrics())
    resampling = resampling.by("jackknife" if kind.scoring.intervals[0] == "jackknife" else "percentile")
    comparisons = compare(control, film, resampling, metrics=[metric], findings=findings)
    return next(one for one in comparisons if one.finding == MACRO)


def _rows(run: ReportRun, split: Split) -> Rows:
    options = split.kind.resolve(ScoringOptions(grid=run.grid), split.info)
    rows: Rows = split.kind.scoring.score(run.predictions[0], split.records, split.manifest, options)
    return rows


def _same_share(film: Run, control: Run) -> float:
    one, other = (
        {e.question: _answer(e) for e in run.exchanges if e.epoch == 1 and e.status == "answered"}
        for run in (film, control)
    )
    both = one.keys() & other.keys()
    return sum(one[question] == other[question] for question in both) / len(both) if both else math.nan


def _answer(exchange: QuestionOutcome) -> tuple[Any, ...]:
    """Return an answer for comparison, with positions rounded to pixels."""
    places = (tuple(round(v) for v in place) if place else None for place in (exchange.point, exchange.box))
    return (exchange.cell, *places, exchange.labels, exchange.answer)


def controls_table(controlled: Sequence[Controlled]) -> PageTable:
    """Return a table with one row per run and control."""
    rows = [
        (
            one.label,
            one.control,
            f"{one.n_answered:,} of {one.n_asked:,}",
            *_scores(one.difference),
            percent(one.same, 0) if one.same == one.same else NOTHING,
            one.says,
        )
        for one in controlled
    ]
    plain = [
        (one.label, one.control, CONTROLS[one.control].shows, one.n_asked, one.n_answered, one.same, *_plain(one))
        for one in controlled
    ]
    heads = (
        "run", "control", "shows", "asked", "answered", "same_answers", "metric", "film", "score", "difference", "low",
        "high", "p", "signature",
    )  # fmt: skip
    metrics = sorted({METRICS[one.difference.metric].title for one in controlled if one.difference is not None})
    scored = f"{' and '.join(metrics)}, mean over findings, in percent. " if metrics else ""
    caption = (
        f"{scored}Difference: control minus original in percentage points, with paired 95% interval. Same: share of "
        "equal answers among questions answered on both images."
    )
    head = ("Run", "Control", "Answered", "Original", "Control", "Difference", "Same", "Conclusion")
    return PageTable(head, rows, caption, "The same questions under controls", csv=Csv.of("controls", heads, plain))


def _scores(comparison: Comparison | None) -> tuple[str, str, str]:
    if comparison is None:
        return NOTHING, NOTHING, NOTHING
    change = comparison.estimate
    return (
        percent(comparison.b),
        percent(comparison.a),
        f"{signed(change.value)}\n{interval_of(change.low, change.high)}",
    )


def _plain(one: Controlled) -> tuple[Any, ...]:
    comparison = one.difference
    if comparison is None:
        return (None,) * 8
    change = comparison.estimate
    return (
        comparison.metric,
        comparison.b,
        comparison.a,
        change.value,
        change.low,
        change.high,
        comparison.p,
        comparison.signature,
    )


def draw_controls(controlled: Sequence[Controlled], resampling: Resampling) -> Illustration | None:
    """Return a figure of the differences by control and run; None without differences."""
    scored = [(one.label, one.control, one.difference.estimate) for one in controlled if one.difference is not None]
    if not scored:
        return None
    labels = list(dict.fromkeys(label for label, *_ in scored))
    rows: dict[str, list[tuple[int, Estimate]]] = {name: [] for name in CONTROLS}
    for label, control, change in scored:
        rows[control].append((labels.index(label), change))
    drawn_rows = [(name, own) for name, own in rows.items() if own]
    return Illustration(
        "controls",
        "Score under each control minus the score on the original image",
        f"Lines: {intervals_text(resampling)}. Controls that should lower the score of a model that uses the image "
        "come first, then irrelevant changes.",
        "; ".join(f"{one.label}, {one.control}: {one.says}" for one in controlled if one.difference is not None),
        partial(forest, drawn_rows, axis="Difference (points)", scale=100, kinds=labels, rule=(0.0, "no difference")),
    )
