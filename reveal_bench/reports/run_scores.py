"""Reports of runs with scores per finding, and of runs whose answers wait for readers' scores.

Scores equal those of ``reveal-bench score``, differences those of ``reveal-bench compare``. All runs use the same
resampled patients. Only the first epoch of a run is scored. The kind of benchmark determines the metrics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

from reveal_bench.analyses.operating import confidences_of_decisions
from reveal_bench.analyses.published import OwnScores
from reveal_bench.analyses.roc import LabelCurves, label_curves
from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.compare import Comparison, compare
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.scored import Curves, Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.scales import intervals_text
from reveal_bench.reports.curves import detection_figures, label_figures
from reveal_bench.reports.figures import forest
from reveal_bench.reports.page import Csv, Lines, Note, PageTable, Part, Section, Text, leading
from reveal_bench.reports.run_report import RunReport
from reveal_bench.reports.runs import short_names
from reveal_bench.reports.style import NOTHING, Illustration, difference_of, interval_of, percent
from reveal_bench.words import count_text, interval_text, p_text


@dataclass
class ScoreReport(RunReport):
    """Report of all metrics per finding and run, and of differences from the reference run."""

    what: ClassVar[str] = "Findings"
    unanswered: ClassVar[str] = "counted as negative"

    @cached_property
    def rows(self) -> list[Rows]:
        """Scored cases of each run."""
        kind, split = self.split.kind, self.split
        options = kind.resolve(ScoringOptions(), split.info)
        return [kind.scoring.score(run.predictions[0], split.records, split.manifest, options) for run in self.runs]

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Findings in the report.

        Raises
        ------
        ValueError
            If a finding is not in the benchmark.
        """
        known = self.rows[0].groups
        unknown = [name for name in self.options.findings or () if name not in known]
        if unknown:
            raise ArgumentError("findings", f"must be among {list(known)}", unknown)
        return tuple(self.options.findings or known)

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics of the benchmark that at least one run has, in the order of METRICS."""
        known = BENCHMARKS.get(self.split.info.benchmark)
        own = {name for rows in self.rows for name in rows.metrics() if known is None or name in known.metrics}
        return [name for name, metric in METRICS.items() if name in own and metric.better != "neither"]

    @cached_property
    def scores(self) -> dict[str, dict[int, dict[str, Estimate]]]:
        """Metric -> index of a run with that metric -> "macro" or finding -> estimate."""
        scores: dict[str, dict[int, dict[str, Estimate]]] = {metric: {} for metric in self.metrics}
        for place, rows in enumerate(self.rows):
            for one in rows.estimates(self._resampling, groups=self.groups, metrics=self.metrics):
                if one.finding in (MACRO, *self.groups):
                    scores[one.metric].setdefault(place, {})[one.finding] = one
        return scores

    @cached_property
    def comparisons(self) -> dict[int, list[Comparison]]:
        """Index of a run -> differences from the reference run, for the metrics of both."""
        reference = self.options.reference
        paired = self._resampling.by("jackknife" if self._resampling.interval == "jackknife" else "percentile")
        return {
            i: compare(rows, self.rows[reference], paired, findings=self.groups, metrics=self._shared(i))
            for i, rows in enumerate(self.rows)
            if i != reference
        }

    def _shared(self, place: int) -> list[str]:
        """Return the metrics that both the run and the reference run have."""
        own, others = self.rows[place].metrics(), self.rows[self.options.reference].metrics()
        return [name for name in self.metrics if name in own and name in others]

    @property
    def _resampling(self) -> Resampling:
        """Resampling for intervals, with the defaults of `score` and `compare`."""
        return self.options.resampling.by(self.split.kind.scoring.intervals[0])

    def own_scores(self) -> list[OwnScores]:
        """Return each run's values of all metrics by finding."""
        return [
            OwnScores(self.runs[place].label, metric, {name: of_run[name].value for name in self.groups})
            for metric, by_run in self.scores.items()
            for place, of_run in by_run.items()
        ]

    def sections(self) -> list[Section]:
        """Return the sections on means and differences, then on single findings."""
        file = self._plain_scores()
        parts: list[Part] = [self._means(), *self._means_of_groups(), self._draw(self._main)]
        if self.without_cases:
            parts.append(
                Text(
                    f"{metric_name(self._main)} is undefined without cases for: {', '.join(self.without_cases)}. These "
                    "findings are missing from figures, and from tables of scores that are undefined without cases."
                )
            )
        tables = [self._by_finding(metric) for metric in self.metrics]
        sections = [
            Section("scores", "Scores", parts),
            Section("findings", "Scores by finding", [*tables, Text("A separate table has all scores.", csv=file)]),
        ]
        if curves := self._curves():
            sections.append(Section("curves", "At every threshold", curves))
        if self.comparisons:
            sections.append(Section("differences", "Differences", [self._differences()]))
        return sections

    def _curves(self) -> list[Illustration]:
        """Return figures of curves over all thresholds, if answers have confidence scores."""
        of_detections: dict[str, Curves] = {}
        of_labels: dict[str, LabelCurves] = {}
        for name, rows in zip(short_names(self.runs), self.rows, strict=True):
            if "average_precision" in rows.metrics():
                curves = label_curves(confidences_of_decisions(rows), self.options.resampling)
                of_labels[name] = curves.of(self.groups)
            elif (detected := self.split.kind.scoring.curves(rows, self.options.resampling)) and detected.bands:
                of_detections[name] = detected
        figures = detection_figures(of_detections) if of_detections else []
        return [*figures, *(label_figures(of_labels) if any(one.roc for one in of_labels.values()) else [])]

    @property
    def _main(self) -> str:
        """Metric of the main figure: the ranking metric if a run has it."""
        return self.split.kind.release.primary if self.split.kind.release.primary in self.metrics else self.metrics[0]

    @cached_property
    def without_cases(self) -> list[str]:
        """Findings for which the main metric is undefined in every run."""
        return [name for name in self.groups if not self._is_defined(self._main, name)]

    def _is_defined(self, metric: str, group: str) -> bool:
        return any(not math.isnan(of_run[group].value) for of_run in self.scores[metric].values())

    def _reported_groups(self, metric: str) -> list[str]:
        """Return "macro" and the findings, except those without cases whose `metric` is undefined."""
        left_out = {name for name in self.without_cases if not self._is_defined(metric, name)}
        return [MACRO, *(name for name in self.groups if name not in left_out)]

    def _means(self) -> PageTable:
        rows = [
            (run.label, *(self._score(metric, i, MACRO) for metric in self.metrics)) for i, run in enumerate(self.runs)
        ]
        fewer: dict[int, list[str]] = {}
        for metric in self.metrics:
            n = max(of_run[MACRO].n for of_run in self.scores[metric].values())
            if n < len(self.groups):
                fewer.setdefault(n, []).append(metric_name(metric))
        parts = "; ".join(f"{n} for {', '.join(names)}" for n, names in sorted(fewer.items()))
        caption = (
            f"Mean over the {len(self.groups)} findings{f' (with a defined score: {parts})' * bool(parts)}, with 95% "
            "interval."
        )
        return _scores_table(("Run", *map(metric_name, self.metrics)), rows, caption, "Mean scores")

    def _means_of_groups(self) -> list[PageTable]:
        """Return a table of means over the benchmark's groups of findings; nothing without groups."""
        stated = self.split.info.finding_groups
        groups = {name: [finding for finding in self.groups if finding in own] for name, own in stated.items()}
        groups = {name: findings for name, findings in groups.items() if findings}
        if not groups:
            return []
        rows = []
        for run, own_rows in zip(self.runs, self.rows, strict=True):
            for name, macros in own_rows.group_macros(self._resampling, groups).items():
                cells = {one.metric: _cell(one) for one in macros}
                rows.append((run.label, name, *(cells.get(metric, NOTHING) for metric in self.metrics)))
        members = "; ".join(f"{name}: {', '.join(findings)}" for name, findings in groups.items())
        caption = f"Mean over the findings with a defined score in each group, with 95% interval. {members}."
        head = ("Run", "Group", *map(metric_name, self.metrics))
        return [_scores_table(head, rows, caption, "Mean scores of groups of findings")]

    def _score(self, metric: str, place: int, group: str) -> str:
        of_run = self.scores[metric].get(place)
        return NOTHING if of_run is None else _cell(of_run[group])

    def _by_finding(self, metric: str) -> PageTable:
        rows, best = [], set()
        is_lower = METRICS[metric].better == "lower"
        for row, group in enumerate(self._reported_groups(metric)):
            scores = {i: of_run[group] for i, of_run in self.scores[metric].items()}
            name = "Mean" if group == MACRO else group
            rows.append((name, *(_cell(scores[i]) if i in scores else NOTHING for i in range(len(self.runs)))))
            values = {1 + i: score.value for i, score in scores.items()}
            best |= {(row, column) for column in leading(values, self._n_cases(group), lowest=is_lower)}
        scale = "" if METRICS[metric].high > 1 else ", in percent"
        which = "lowest" if is_lower else "highest"
        bold = f" The {which} score is bold for findings with ten cases or more."
        caption = f"By finding and run{scale}, with 95% interval.{bold * bool(best)}"
        head = ("Finding", *(run.label for run in self.runs))
        return _scores_table(head, rows, caption, metric_name(metric), frozenset(best))

    def _n_cases(self, group: str) -> int:
        """Return the number of cases with a finding, also for metrics that count cases without it."""
        if group == MACRO:
            return len(self.split.records)
        counted = max(of_run[group].n for of_run in self.scores[self._main].values())
        return self.rows[0].positives.get(group, counted)

    def _plain_scores(self) -> Csv:
        rows = [
            (self.runs[i].label, metric, group, score.value, score.low, score.high, score.n, score.signature)
            for metric, of_runs in self.scores.items()
            for i, of_run in of_runs.items()
            for group, score in of_run.items()
        ]
        return Csv.of("scores", ("run", "metric", "finding", "value", "low", "high", "n", "signature"), rows)

    def _draw(self, metric: str) -> Illustration:
        of_runs = self.scores[metric]
        names = short_names(self.runs)
        rows = [
            (
                "Mean" if group == MACRO else group,
                [(i, of_run[group]) for i, of_run in of_runs.items()],
            )
            for group in self._reported_groups(metric)
        ]
        means = ", ".join(f"{names[i]}: {percent(of_run[MACRO].value)}" for i, of_run in of_runs.items())
        return Illustration(
            metric.replace("_", "-"),
            f"{metric_name(metric)} by finding",
            f"Lines: {self._intervals()}.",
            f"{metric_name(metric)} by finding and run. Mean: {means}.",
            partial(forest, rows, axis=f"{metric_name(metric)} (%)", scale=100, kinds=names),
        )

    def _differences(self) -> PageTable:
        reference = self.runs[self.options.reference].label
        rows = []
        for i, comparisons in self.comparisons.items():
            macros: Mapping[str, Comparison] = {one.metric: one for one in comparisons if one.finding == MACRO}
            rows.append((self.runs[i].label, *(_difference_text(macros.get(metric)) for metric in self.metrics)))
        plain = [
            (self.runs[i].label, reference, one.metric, one.finding, difference.value, difference.low, difference.high,
             one.p, one.low_adjusted, one.high_adjusted, one.p_adjusted, one.signature)
            for i, comparisons in self.comparisons.items()
            for one, difference in ((one, one.estimate) for one in comparisons)
        ]  # fmt: skip
        caption = (
            f"Mean over findings, run minus {reference}, in percentage points, with paired 95% interval and two-sided "
            "p value, not corrected for several metrics or runs. The CSV file also has p values and simultaneous "
            "intervals over all findings of a metric."
        )
        heads = ("run", "reference", "metric", "finding", "difference", "low", "high", "p", "low_adjusted",
                 "high_adjusted", "p_adjusted", "signature")  # fmt: skip
        head = ("Run", *map(metric_name, self.metrics))
        return PageTable(head, rows, caption, f"Differences from {reference}", csv=Csv.of("differences", heads, plain))

    def _intervals(self) -> str:
        return intervals_text(self._resampling)

    def summary(self) -> str:
        """Return a summary of every run's mean in the main metric."""
        scores = {i: of_run[MACRO] for i, of_run in self.scores[self._main].items()}
        names = short_names(self.runs)
        ranked = sorted(scores, key=lambda i: -math.inf if math.isnan(scores[i].value) else scores[i].value)
        means = "; ".join(
            f"{names[i]} {percent(scores[i].value)} ({interval_of(scores[i].low, scores[i].high)})"
            for i in reversed(ranked)
        )
        split = self.split
        return (
            f"{count_text(len(self.runs), 'run')} answered for {len(self.groups)} findings in "
            f"{split.title} {split.info.version}, split {split.name}: {len(split.records):,} "
            f"{split.kind.counted.removeprefix('n_')}. Mean {metric_name(self._main)}, with 95% interval: {means}."
        )

    def methods(self) -> list[Part]:
        """Return paragraphs that define scores and intervals."""
        several = any(len(run.predictions) > 1 for run in self.runs)
        words = (
            "Scores equal reveal-bench score; the mean is unweighted, over findings for which it is defined. "
            f"{self.split.kind.display.scored_in_words} In parentheses: {self._intervals()}"
            f"{self.split.kind.display.compared_in_words.format(n=f'{self.options.resampling.n_resamples:,}')}"
        )
        words += " Only the first epoch of a run is scored." * several
        notes = dict.fromkeys(note for rows in self.rows for note in rows.notes)
        recipes = sorted({one[MACRO].signature for of_runs in self.scores.values() for one in of_runs.values()})
        return [Text(words), *map(Text, notes), Text("Signatures of the numbers:"), Lines(recipes)]


@dataclass
class AnswerReport(RunReport):
    """Report of runs whose answers wait for readers' scores: numbers of answers only."""

    what: ClassVar[str] = "Tasks"
    unanswered: ClassVar[str] = "given the lowest scores"

    def sections(self) -> list[Section]:
        """Return the section on numbers of answers by category of tasks."""
        kind, split = self.split.kind, self.split
        benchmark = BENCHMARKS[split.info.benchmark]
        key_of, asked_of = kind.data.key_of, kind.questions.asked
        asks = {key_of(record): asked_of(record, benchmark, split.info.asks)[0] for record in split.records}
        answered = [Counter(asks[key_of(one)] for one in run.predictions[0]) for run in self.runs]
        in_all = Counter(asks.values())
        rows = [
            (name.replace("_", " "), f"{n:,}", *(f"{counts[name]:,}" for counts in answered))
            for name, n in in_all.items()
        ]
        rows.append(("All", f"{len(asks):,}", *(f"{counts.total():,}" for counts in answered)))
        plain = [
            (run.label, name, n, counts[name])
            for run, counts in zip(self.runs, answered, strict=True)
            for name, n in in_all.items()
        ]
        file = Csv.of("answers", ("run", "category", "tasks", "answered"), plain)
        caption = "Answers that wait for readers, by category of tasks."
        table = PageTable(("Category", "Asked", *(run.label for run in self.runs)), rows, caption, "Answers", csv=file)
        note = Note("These answers wait for readers.", "Scores appear once readers have given them.")
        return [Section("answers", "Answers that wait for readers", [note, table])]

    def summary(self) -> str:
        """Return a summary of the number of answers without readers' scores."""
        counts = "; ".join(f"{run.label} {len(run.predictions[0]):,}" for run in self.runs)
        return f"Answers waiting for readers, of {len(self.split.records):,} tasks: {counts}."

    def methods(self) -> list[Part]:
        """Return a paragraph on why scores are missing."""
        return [
            Text(
                "Readers, not a program, score the answers to open tasks on a rubric (paper 001). A missing "
                "answer gets the lowest scores."
            )
        ]


def _scores_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str,
    title: str,
    best: frozenset[tuple[int, int]] = frozenset(),
) -> PageTable:
    """Return a table of scores whose caption explains dashes and missing intervals if there are any."""
    cells = {cell for row in rows for cell in row}
    caption += f" {NOTHING}: undefined." * (NOTHING in cells)
    caption += " Scores without interval have too few patients." * any(cell.endswith(f"\n{NOTHING}") for cell in cells)
    return PageTable(head, rows, caption, title, best)


def _cell(score: Estimate) -> str:
    """Return a score with its interval on a second line; in percent unless the metric is unbounded."""
    if math.isnan(score.value):
        return NOTHING
    if METRICS[score.metric].high > 1:
        interval = interval_text(score.low, score.high, 2)
        return f"{score.value:.2f}" + f"\n{interval}" * bool(interval)
    return f"{percent(score.value)}\n{interval_of(score.low, score.high)}"


def metric_name(metric: str) -> str:
    """Return a metric's title for headings.

    Examples
    --------
    >>> metric_name("average_precision"), metric_name("auroc")
    ('Average precision', 'AUROC')
    """
    return METRICS[metric].title.replace("'", "’")


def _difference_text(one: Comparison | None) -> str:
    if one is None or math.isnan(one.estimate.value):
        return NOTHING
    own = one.estimate
    if METRICS[one.metric].high > 1:
        interval = interval_text(own.low, own.high, 2, signed=True)
        difference = f"{own.value:+.2f}" + f"\n{interval}" * bool(interval)
    else:
        difference = difference_of(own.value, own.low, own.high)
    return difference + f"\np = {p_text(one.p)}" * (not math.isnan(one.p))
