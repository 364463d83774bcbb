"""Result tables of ``rb.compare`` and ``rb.rank``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reveal_bench.api.result_table import TableResult, written
from reveal_bench.api.score_tables import unanswered_questions
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.compare import Comparison, RankedSystem, as_records
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, interval_of
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.scales import ends_text, groups_text, value_text
from reveal_bench.words import UNDEFINED, count_text, p_text, plural


@dataclass(frozen=True, repr=False)
class Comparisons(TableResult):
    """Comparison of two systems on one split, for each metric and finding.

    Attributes
    ----------
    a, b : names of the systems
    scored_a, scored_b : the scored predictions
    comparisons : all differences, with intervals and p
    relative : True if values are relative decreases from B, (B - A) / B, instead of differences A - B
    resampling : number of replicates, unit and seed
    compat : name of the published code whose relative decreases are computed; None for this package's own method
    """

    a: str
    b: str
    scored_a: ScoredFile
    scored_b: ScoredFile
    comparisons: Sequence[Comparison]
    relative: bool
    resampling: Resampling
    compat: str | None = None

    @property
    def records(self) -> list[dict[str, Any]]:
        """The fields of each :class:`~reveal_bench.evaluation.compare.Comparison`; undefined is None."""
        return as_records(self.comparisons)

    def write(self, folder: str | Path) -> list[Path]:
        """Write relative decreases as CSV, in the order of paper 002, and figures of decreases and scores.

        There are two figures per metric, each as SVG and PNG. With `compat`, also write the tables of the published
        code. Return all paths.

        Raises
        ------
        ArgumentError
            If the values are differences instead of relative decreases.
        ImportError
            Without matplotlib, which the extra [report] brings.
        """
        from reveal_bench.analyses.relative_decrease import decreases_csv, published_csv
        from reveal_bench.reports.beside_readers import figures_of_both, figures_of_decreases

        if not self.relative:
            raise ArgumentError(
                "relative", "must be True, because only tables of relative decreases can be written", "differences"
            )
        files = {"decrease.csv": decreases_csv(self.comparisons)}
        if self.compat is not None:
            files |= published_csv(self.comparisons)
        both = {name: one.estimates for name, one in ((self.b, self.scored_b), (self.a, self.scored_a))}
        drawn = [*figures_of_decreases(self.comparisons, self.a, self.b), *figures_of_both(self.comparisons, both)]
        return written(Path(folder), {name: text.encode() for name, text in files.items()}, drawn)

    @property
    def part_asked(self) -> str:
        """Part of the split that was scored; empty for the whole split."""
        return self.scored_a.options.part

    @property
    def caption(self) -> str:
        """Systems, split and method of intervals."""
        what = "decrease from B, (B - A) / B" if self.relative else "difference A - B"
        if self.compat is not None:
            what = f"decrease from B as computed by the published code of {self.compat}"
            draw = f"{self.resampling.n_resamples} resamples of images, seed {self.resampling.seed}"
            return f"A {self.a}, B {self.b} on {self.scored_a.place}: {what} with 95% interval, {draw}"
        kinds = _interval_kinds(self.comparisons)
        return (
            f"A {self.a}, B {self.b} on {self.scored_a.place}: {what} with 95% interval ({kinds}) and two-sided p, "
            f"those of findings adjusted for all findings of a metric, {self.resampling.n_resamples} resamples of "
            f"{plural(self.resampling.unit)}, seed {self.resampling.seed}"
        )

    def printed_rows(self) -> list[dict[str, str]]:
        """Return each difference in percent, the macro of a metric first; with a margin, also p and verdict."""
        return [
            {
                "metric": METRICS[c.metric].title,
                "finding": c.finding,
                "A": value_text(c.metric, c.a),
                "B": value_text(c.metric, c.b),
                "decrease" if self.relative else "A - B": value_text(c.metric, c.estimate.value),
                "95% interval": ends_text(c.metric, c.adjusted.low, c.adjusted.high),
                "p": p_text(c.p_adjusted),
            }
            | ({"p of margin": p_text(c.verdict.p), "verdict": c.verdict.word} if c.verdict else {})
            for c in self.comparisons
        ]

    @property
    def verdicts(self) -> list[str]:
        """Sentences with the verdict on each metric's macro; empty without a margin."""
        return [
            f"{METRICS[c.metric].title}, {c.finding}: {c.verdict.sentence}."
            for c in self.comparisons
            if c.verdict and c.finding == MACRO
        ]

    @property
    def remarks(self) -> list[str]:
        """Sentences that count unanswered questions, and name the findings on which only one system has a score."""
        grids = differing_grids({self.a: self.scored_a, self.b: self.scored_b})
        return [*self.unanswered, *grids, *unshared_findings(self.comparisons), *self.left_out]

    @property
    def left_out(self) -> list[str]:
        """Sentence for each system on the metrics that are not compared because only the other system has them."""
        of_a, of_b = self.scored_a.rows.metrics(), self.scored_b.rows.metrics()
        shared = {name for name in of_a if name in of_b and METRICS[name].better != "neither"}
        if shared != {c.metric for c in self.comparisons}:
            return []  # one metric was asked for
        return [
            f"not compared, because {name} lacks them: {'; '.join(METRICS[one].title for one in lacking)}{why}"
            for name, why, lacking in (
                (self.a, scale_reason(self.scored_a), [one for one in of_b if one not in of_a]),
                (self.b, scale_reason(self.scored_b), [one for one in of_a if one not in of_b]),
            )
            if lacking
        ]

    @property
    def unanswered(self) -> list[str]:
        """Sentences that count the questions without an answer."""
        return unanswered_questions([(self.a, self.scored_a), (self.b, self.scored_b)])


def scale_reason(scored: ScoredFile) -> str:
    """Return the linter's message and advice if scores are not probabilities; empty for other predictions."""
    own = [one for one in scored.report.problems if one.rule == "score-scale"]
    return f" ({own[0].message}; {own[0].hint})" if own else ""


def on_one_grid(scored: Sequence[ScoredFile]) -> list[ScoredFile]:
    """Return the scores; if the systems answered on different grids, without the scores of grid cells."""
    is_one = len({one.options.grid for one in scored}) == 1
    return [one if is_one else replace(one, rows=one.rows.without_cells()) for one in scored]


def differing_grids(scored: Mapping[str, ScoredFile]) -> list[str]:
    """Return a sentence that names the systems' grids if they differ, because their cells cannot be compared."""
    grids = {name: one.options.grid for name, one in scored.items()}
    named = ", ".join(f"{n} x {n} of {name}" for name, n in grids.items())
    return [f"scores of cells are left out, because the grids differ: {named}"] if len(set(grids.values())) > 1 else []


def unshared_findings(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a sentence per metric whose macros omit findings, because only one of both systems has a score there."""
    sentences = []
    for macro in (c for c in comparisons if c.finding == MACRO):
        own = [c for c in comparisons if c.metric == macro.metric and c.finding != MACRO]
        values = {"A": {c.finding: c.a for c in own}, "B": {c.finding: c.b for c in own}}
        sentences += _unshared(macro.metric, "both macros are", macro.n_a, "A and B", values)
    return sentences


def _unshared(metric: str, macros: str, n: int, of: str, values: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the sentence on findings without a score (NaN) of some systems; `values`: system -> finding -> score."""
    scored = {finding for own in values.values() for finding, value in own.items() if not math.isnan(value)}
    lacking = [
        f"{name} has none for {', '.join(missing)}"
        for name, own in values.items()
        if (missing := [finding for finding, value in own.items() if finding in scored and math.isnan(value)])
    ]
    over = f"{METRICS[metric].title}: {macros} over the {count_text(n, 'finding')} with a score of {of}"
    return [f"{over}; {'; '.join(lacking)}"] if lacking else []


_MOST_DIFFERENCES = 28
"""Number of differences that are printed without --wide, so that a comparison fits on a screen like a score."""


def in_short(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the differences that fit on a screen: the first metric's, and the macros of metrics with other values."""
    if len(comparisons) <= _MOST_DIFFERENCES:
        return list(comparisons)
    by_metric: dict[str, list[Comparison]] = {}
    for c in comparisons:
        by_metric.setdefault(c.metric, []).append(c)
    first, *others = by_metric.values()
    distinct = {str([(c.finding, c.a, c.b) for c in own]): own for own in reversed(others)}
    summaries = [next((c for c in own if c.finding == MACRO), own[0]) for own in reversed(distinct.values())]
    summaries = summaries[: _MOST_DIFFERENCES - 1]
    return first[: _MOST_DIFFERENCES - len(summaries)] + summaries


@dataclass(frozen=True, repr=False)
class Ranking(TableResult):
    """Ranking of several systems on one split, best first.

    Attributes
    ----------
    ranked : each system's score, rank and tier
    scored : name -> scored predictions, also of systems without `metric`
    metric : metric of the ranks
    left_out : names of systems without `metric`
    resampling : number of replicates, unit and seed
    by_group : group of findings -> ranking by the group's macro; empty without groups
    empty : names of systems without any prediction, which are not ranked
    beside : further column -> system -> value, such as the number of readers below its ROC curve
    not_ranked : systems in the table of a printed board that are not among the ranked ones
    group : group whose macro decides the ranks; empty for all findings
    """

    ranked: Sequence[RankedSystem]
    scored: Mapping[str, ScoredFile]
    metric: str
    left_out: Sequence[str]
    resampling: Resampling
    by_group: Mapping[str, Sequence[RankedSystem]] = field(default_factory=dict)
    empty: Sequence[str] = ()
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_ranked: Sequence[str] = ()
    group: str = ""

    @property
    def records(self) -> list[dict[str, Any]]:
        """The fields of each :class:`~reveal_bench.evaluation.compare.RankedSystem`, and the further columns."""
        return [
            record | {name: values.get(record["name"]) for name, values in self.beside.items()}
            for record in as_records(self.ranked)
        ]

    @property
    def requested(self) -> tuple[str, ...]:
        """The further columns."""
        return tuple(self.beside)

    def of_group(self, name: str) -> Ranking:
        """Return the ranking by the macro of one group of findings."""
        return replace(self, ranked=self.by_group[name], by_group={}, beside={}, group=name)

    @property
    def part_asked(self) -> str:
        """Part of the split that was scored; empty for the whole split."""
        return next(iter(self.scored.values())).options.part

    @property
    def caption(self) -> str:
        """Split, findings of the macro and method of intervals."""
        n, place = len(self.ranked), next(iter(self.scored.values())).place
        return (
            f"{count_text(n, 'system')} on {place}: macro over "
            f"{groups_text(self.metric, self.ranked[0].n)}, 95% intervals ({_interval_kinds(self.ranked)}), "
            f"{self.resampling.n_resamples} resamples of {plural(self.resampling.unit)}, "
            f"seed {self.resampling.seed}"
        )

    @property
    def note(self) -> str:
        """Reason why the systems have no tiers; empty if they have tiers."""
        reason = self.ranked[0].reason
        return f"not tested, so there are no tiers: {reason}; --finding-groups ranks by other macros" if reason else ""

    @property
    def remarks(self) -> list[str]:
        """Sentences on unanswered questions, and on findings that only some systems score; none for a group."""
        if self.group:
            return []
        values = {}
        for one in self.ranked:
            rows, resampling = self.scored[one.name].rows, self.scored[one.name].resampling
            own = rows.estimates(resampling, metrics=[one.metric])
            values[one.name] = {e.finding: e.value for e in own if e.finding != MACRO}
        n = self.ranked[0].n
        unshared = _unshared(self.metric, "macros are", n, "every system", values)
        counted = unanswered_questions((name, self.scored[name]) for name in values)
        return [*counted, *differing_grids(self.scored), *unshared, *self.not_applying]

    @property
    def not_applying(self) -> list[str]:
        """Sentences that name the systems to which `metric` does not apply."""
        return [f"{name} is not ranked: {self.metric!r} does not apply to it" for name in self.left_out]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return each system with its ranks, its tier and its score in percent."""
        return [
            {
                "system": one.name,
                "rank": str(one.rank),
                "95% ranks": UNDEFINED if one.tier is None else f"{one.rank_low} to {one.rank_high}",
                "tier": UNDEFINED if one.tier is None else str(one.tier),
                METRICS[one.metric].title: value_text(one.metric, one.estimate.value),
                "95% interval": ends_text(one.metric, one.estimate.low, one.estimate.high),
                **{name: str(values.get(one.name, UNDEFINED)) for name, values in self.beside.items()},
            }
            for one in self.ranked
        ]


def _interval_kinds(results: Sequence[Comparison] | Sequence[RankedSystem]) -> str:
    """Return the methods of the intervals, from the scores' signatures."""
    return " or ".join(dict.fromkeys(interval_of(one.signature) for one in results))
