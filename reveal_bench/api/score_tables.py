"""Result tables of ``rb.score``: scores and, on request, groups of patients, single readers and published rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reveal_bench.analyses.published import (
    GRID,
    OwnScores,
    ReferenceRow,
    ReferenceValue,
    explain_not_comparable,
    read_reference_rows,
    rows_beside,
)
from reveal_bench.analyses.reader_reference import AgainstReference
from reveal_bench.analyses.subgroups import Subgroup
from reveal_bench.api.result_table import TableResult
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.finding_groups import named_macros
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.kinds.folder import FolderInfo
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Interval, Resampling, as_record
from reveal_bench.metrics.scales import ends_text, estimate_text, groups_text, intervals_text, scale_text, value_text
from reveal_bench.words import count_text, interval_text, number_text, p_text, part_text, with_interval

if TYPE_CHECKING:
    from reveal_bench.kinds.localization.scoring import CaseRows


@dataclass(frozen=True, repr=False)
class Scores(TableResult):
    """Scores of one system, with their intervals.

    Attributes
    ----------
    scored : the scored predictions, with lint report, protocol and all cases
    subgroups : groups of patients and their differences from the rest, if requested
    readers : scores against single readers and their agreement, if requested
    published : published rows of the same metrics, if requested
    selected : the metrics of `estimates`, in this order; all metrics if empty
    """

    scored: ScoredFile
    subgroups: Subgroups | None = None
    readers: AgainstReaders | None = None
    published: BesidePublished | None = None
    selected: tuple[str, ...] = ()

    @property
    def estimates(self) -> Sequence[Estimate]:
        """Scores of the selected metrics with intervals and numbers of cases."""
        return self._selected(self.scored.estimates)

    @property
    def finding_groups(self) -> dict[str, Sequence[Estimate]]:
        """Macros of the selected metrics over groups of findings, by the name of the group."""
        return {name: self._selected(part) for name, part in self.scored.finding_groups.items()}

    def _selected(self, estimates: Sequence[Estimate]) -> Sequence[Estimate]:
        own = [e for metric in self.selected for e in estimates if e.metric == metric]
        return own if self.selected else estimates

    @property
    def rows(self) -> Rows:
        """Values per case from which all scores are computed: ``result.rows.to_pandas()``."""
        return self.scored.rows

    @property
    def records(self) -> list[dict[str, Any]]:
        """Columns metric, finding, value, low, high, n, n_undefined and flag: fractions, NaN where undefined.

        `flag` is the reason why a value has no interval, otherwise empty. Macros over groups of findings come last.
        """
        return [_record(estimate) for estimate in (*self.estimates, *named_macros(self.finding_groups))]

    @property
    def part_asked(self) -> str:
        """Part of the split that was scored; empty for the whole split."""
        return self.scored.options.part

    @property
    def strata(self) -> list[dict[str, Any]]:
        """Rows as in `records` for each stratum of the split, with its name in `stratum`."""
        return [{"stratum": name} | _record(e) for name, part in self.scored.strata.items() for e in part]

    @property
    def answered(self) -> list[dict[str, Any]]:
        """Rows as in `records` for the answered questions only; empty unless the system abstained.

        `scored.answered` has the number and share of answered questions. In `records`, abstentions are misses.
        """
        return [_record(one) for one in self.answered_estimates]

    @property
    def answered_estimates(self) -> Sequence[Estimate]:
        """Scores of the selected metrics for the answered questions only; empty unless the system abstained."""
        return [] if self.scored.answered is None else self._selected(self.scored.answered.estimates)

    @property
    def caption(self) -> str:
        """Predictions, split, method of intervals, where thresholds were tuned, and the number of lint warnings."""
        report = self.scored.report
        n = sum(problem.severity == "warning" for problem in report.problems)
        warned = f"; {count_text(n, 'warning')} of the linter, in `.scored.report`" if n else ""
        scale = scale_text(one.metric for one in self.estimates)
        declined = f"; {self.scored.answered.in_words}: `answered`" if self.scored.answered else ""
        how = "; ".join([intervals_text(self.scored.resampling), *self.scored.tuning_notes])
        return f"{report.file} on {self.scored.place}: {scale} with {how}{declined}{warned}"

    @property
    def remarks(self) -> list[str]:
        """Sentence that counts questions without an answer; none if all are answered."""
        return unanswered_questions([(self.scored.report.file, self.scored)])

    def printed_rows(self) -> list[dict[str, str]]:
        """Return macros, then findings: values and intervals in percent, ratings on their own scale."""
        of_groups = named_macros(self.finding_groups)
        macros = [e for e in self.estimates if e.finding == MACRO]
        ordered = [*macros, *of_groups, *(e for e in self.estimates if e.finding != MACRO)]
        n_macros = len(macros) + len(of_groups)
        positives = self.rows.positives
        return [
            {
                "metric": METRICS[e.metric].title,
                "finding": e.finding,
                "value": value_text(e.metric, e.value),
                "95% interval": ends_text(e.metric, e.low, e.high),
                "n": groups_text(e.metric, e.n) if i < n_macros else _cases_text(e, positives.get(e.finding)),
            }
            for i, e in enumerate(ordered)
        ]

    def to_document(self) -> dict[str, Any]:
        """Return the stable JSON document of ``reveal-bench score --json``, including other requested results."""
        parts = {"subgroups": self.subgroups, "readers": self.readers, "published": self.published}
        return self.scored.to_document() | {name: part.plain for name, part in parts.items() if part is not None}


def unanswered_questions(systems: Iterable[tuple[str, ScoredFile]]) -> list[str]:
    """Return a sentence for each system, (name, scores), that lacks answers to some questions."""
    counts = [(name, len(scored.report.missing_pairs), scored.report.n_questions) for name, scored in systems]
    return [f"{name}: no answer to {n:,} of {count_text(n_all, 'question')}" for name, n, n_all in counts if n]


def _cases_text(estimate: Estimate, n_positive: int | None) -> str:
    """Return the number of cases as text, with the number of positive cases if known."""
    return str(estimate.n) if n_positive is None else part_text(n_positive, estimate.n_rows)


def _record(estimate: Estimate) -> dict[str, Any]:
    names = ("metric", "finding", "value", "low", "high", "n", "n_undefined")
    return {name: getattr(estimate, name) for name in names} | {"flag": estimate.missing_interval}


_MOST_LISTED = 5


@dataclass(frozen=True, repr=False)
class Subgroups(TableResult):
    """Groups of patients, each compared with all other patients: the macro of every metric, then its findings.

    Attributes
    ----------
    groups : all results, ordered by metric, column, finding and group
    n_patients : number of patients in the split, including patients without a scored case
    """

    groups: Sequence[Subgroup]
    n_patients: int

    @property
    def records(self) -> list[dict[str, Any]]:
        """Fields of each :class:`~reveal_bench.analyses.subgroups.Subgroup`."""
        return [as_record(group) for group in self.groups]

    @property
    def has_odds_ratios(self) -> bool:
        """True if at least one group has an odds ratio."""
        return any(not math.isnan(group.odds_ratio.value) for group in self.groups)

    @property
    def caption(self) -> str:
        """Metrics, columns, and the correction for multiple comparisons."""
        first = self.groups[0]
        metrics = dict.fromkeys(METRICS[group.metric].title for group in self.groups)
        columns = dict.fromkeys(group.by for group in self.groups)
        counted = [g.n for g in self.groups if (g.by, g.metric, g.finding) == (first.by, first.metric, first.finding)]
        n_out = self.n_patients - sum(counted)
        out = f" ({n_out} of {self.n_patients} patients have no such case)" if n_out else ""
        odds = "; odds ratio of a right answer, patients as clusters, not corrected" if self.has_odds_ratios else ""
        return (
            f"{', '.join(metrics)} by {' and by '.join(columns)}, with 95% intervals; difference from all other "
            "patients, its interval and p corrected for all groups, those of findings for all groups and findings; n: "
            f"patients with a case that counts in the score{out}{odds}{self._undivided}"
        )

    @property
    def _undivided(self) -> str:
        """Note on columns with a single group, for which no difference can be computed."""
        groups = {by: [g.group for g in self.groups if g.by == by and g.n] for by in {g.by: 0 for g in self.groups}}
        return "".join(
            f"; no difference by {by} because all patients are in the group {names[0]!r}"
            for by, names in groups.items()
            if len(set(names)) == 1
        )

    @property
    def requested(self) -> Sequence[str]:
        """Columns that a narrow terminal keeps: value, difference and p."""
        return "value", "difference", "p"

    def printed_rows(self) -> list[dict[str, str]]:
        """Return each group with cases, in percent, below a heading row for its finding."""
        rows: list[dict[str, str]] = []
        heading = ""
        for g in (one for one in self.groups if one.n or one.finding == MACRO):
            row = {
                "group": f"  {g.group}",
                "n": str(g.n),
                "value": estimate_text(g.metric, g.estimate.value, g.estimate.low, g.estimate.high),
                "difference": estimate_text(g.metric, g.difference.value, g.difference.low, g.difference.high),
                "p": p_text(g.p),
            }
            if self.has_odds_ratios:
                ratio = g.odds_ratio
                row["odds ratio"] = with_interval(number_text(ratio.value, 2), interval_text(ratio.low, ratio.high, 2))
            title = self._title(g)
            if title != heading:
                rows.append({name: title if name == "group" else "" for name in row})
                heading = title
            rows.append(row)
        return rows

    def _title(self, group: Subgroup) -> str:
        """Return a heading: the finding, the metric and column if there are several, and a note for macros."""
        metric = [METRICS[group.metric].title] * (len({g.metric for g in self.groups}) > 1)
        column = [f"by {group.by}"] * (len({g.by for g in self.groups}) > 1)
        title = ", ".join([*metric, group.finding, *column])
        return title + self._compared(group) if group.finding == MACRO else title

    def _compared(self, group: Subgroup) -> str:
        """Return a note on the findings that differences of macros cover, unless these are all findings."""
        of = group.by, group.metric
        macros = [g for g in self.groups if (g.by, g.metric, g.finding) == (*of, MACRO) and g.n]
        if len(macros) == 1:
            return ""
        n = [g.n_compared for g in macros]
        findings = {g.finding for g in self.groups if g.metric == group.metric} - {MACRO}
        least, most = min(n, default=0), max(n, default=0)
        if not most:
            return "; no differences because too few patients have each finding"
        each = ", ".join(f"{g.n_compared} ({g.group})" for g in macros)
        some = f"{most}" if least == most else each if len(macros) < _MOST_LISTED else f"{least} to {most}"
        of_all = count_text(len(findings), "finding")
        return "" if least == len(findings) else f"; differences over {some} of {of_all}"


@dataclass(frozen=True, repr=False)
class AgainstReaders(TableResult):
    """Scores of a system against single readers and their consensus, beside scores of each reader against the others.

    Attributes
    ----------
    references : results against every reference
    """

    references: Sequence[AgainstReference]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Fields of each :class:`~reveal_bench.analyses.reader_reference.AgainstReference`."""
        return [as_record(one) for one in self.references]

    @property
    def caption(self) -> str:
        """Metric, references and method of intervals."""
        title = METRICS[self.references[0].metric].title
        return (
            f"{title}, macro, against single readers, with 95% intervals over patients; beside the system, each reader "
            "on the same cases, and the difference system minus reader"
        )

    def printed_rows(self) -> list[dict[str, str]]:
        """Return one row per reference, in percent."""
        return [
            {
                "reference": one.reference,
                "n": str(one.n),
                "value": value_text(one.metric, one.estimate.value),
                "95% interval": ends_text(one.metric, one.estimate.low, one.estimate.high),
                "reader": "" if one.reader is None else value_text(one.metric, one.reader_value),
                "difference": "" if one.reader is None else value_text(one.metric, one.difference.value),
                "its interval": ends_text(one.metric, one.difference.low, one.difference.high),
                "p": "" if one.reader is None else p_text(one.p),
            }
            for one in self.references
        ]


@dataclass(frozen=True, repr=False)
class BesidePublished(TableResult):
    """A system beside published results in the same metrics, averaged over the findings that all rows have.

    Attributes
    ----------
    tables : metric -> the system's row, then the published rows
    part : the split that the system answered
    protocols : methods of the papers
    """

    tables: Mapping[str, Sequence[ReferenceValue]]
    part: str
    protocols: Sequence[str]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Columns metric, system, source, finding ("mean" first) and value, as fractions."""
        return [
            {"metric": metric, "system": line.system, "source": line.source, "finding": finding, "value": value}
            for metric, lines in self.tables.items()
            for line in lines
            for finding, value in {"mean": line.mean, **line.values}.items()
        ]

    @property
    def caption(self) -> str:
        """Origin of the rows, and the methods of the papers."""
        part = f" (this system answered the subset {self.part})" * (self.part != "test")
        return (
            f"published rows as printed, for the whole test split{part}, in percent; means over the findings that "
            f"every row has. Methods of the papers: {' '.join(self.protocols)}"
        )

    def printed_rows(self) -> list[dict[str, str]]:
        """Return a row per system and metric, in percent."""
        findings = dict.fromkeys(name for lines in self.tables.values() for line in lines for name in line.values)
        return [
            {"metric": METRICS[metric].title, "system": line.system, "mean": value_text(metric, line.mean)}
            | {name: value_text(metric, line.values[name]) if name in line.values else "" for name in findings}
            | {"source": line.source}
            for metric, lines in self.tables.items()
            for line in lines
        ]


def beside_published(scored: ScoredFile, info: FolderInfo, name: str, metric: str | None = None) -> BesidePublished:
    """Return published rows beside a system's scores, for one metric, or for every metric that both have.

    Raises
    ------
    ArgumentError
        If no published row is comparable; the message states the reason.
    """
    rows = read_reference_rows(info.benchmark)
    why = (
        explain_not_comparable(rows, info, scored.manifest.split)
        if rows
        else f"There are no published rows of {info.benchmark}."
    )
    own = [one for one in _own_scores(scored, name) if metric in (None, one.metric)]
    beside = {one.metric: [row for row in rows if one.metric in row.figures] for one in own}
    if not why and not any(beside.values()):
        why = f"No published row has a metric of these predictions; grid hit rates need {GRID} cells per side."
    if why:
        raise ArgumentError("published", f"must be omitted: no published row is comparable. {why}")
    references: list[ReferenceRow] = [row for group in beside.values() for row in group]
    tables = {one.metric: rows_beside(one.metric, [one], beside[one.metric])[1] for one in own if beside[one.metric]}
    return BesidePublished(tables, scored.manifest.split, list(dict.fromkeys(row.protocol for row in references)))


def _own_scores(scored: ScoredFile, name: str) -> list[OwnScores]:
    """Return each metric's scores by finding, without grid hit rates on a grid other than the published one."""
    values: dict[str, dict[str, float]] = {}
    for one in scored.estimates:
        if one.finding in scored.rows.groups and (one.metric != "grid_hit" or scored.options.grid == GRID):
            values.setdefault(one.metric, {})[one.finding] = one.value
    return [OwnScores(name, metric, by_finding) for metric, by_finding in values.items()]


def summarize(
    rows: CaseRows,
    *,
    metrics: Sequence[str] | None = None,
    findings: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: str = "patient",
    interval: Interval = "jackknife",
) -> list[Estimate]:
    """Return the mean per finding and the macro of every metric, with 95% intervals from the same replicates.

    Parameters
    ----------
    rows : result of :func:`~reveal_bench.kinds.localization.scoring.score_localization`
    metrics : names of metrics to report; by default those that apply
    findings : findings to report and to include in the macro
    n_resamples, seed, unit, interval : as in :func:`score`; unit "patient" or "image"

    Returns
    -------
    list of Estimate, as :func:`reveal_bench.kinds.localization.scoring.summarize` gives them

    Raises
    ------
    ValueError
        If a metric or finding is unknown, or an option breaks its rule.
    """
    from reveal_bench.kinds.localization import scoring

    resampling = Resampling(n_resamples, seed, unit, interval)
    return scoring.summarize(rows, resampling, metrics=metrics, findings=findings)
