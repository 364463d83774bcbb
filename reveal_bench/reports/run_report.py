"""What every report of runs has, whatever kind of benchmark they answer: tables of runs and costs, notices, files.

A report of one kind is a subclass of :class:`RunReport` with sections and a summary of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from reveal_bench.evaluation.published import OwnScores
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.reports.anatomy import Regions
from reveal_bench.reports.page import Page, Part, Progress, Section, notices, section
from reveal_bench.reports.run_controls import EXPLAINED, controlled_runs, controls_table, draw_controls
from reveal_bench.reports.run_errors import Reviews
from reveal_bench.reports.run_tables import costs_table, published_parts, runs_table
from reveal_bench.reports.runs import ReportRun, World
from reveal_bench.reports.style import missing_glyphs
from reveal_bench.words import count_text


@dataclass(frozen=True)
class Options:
    """What a report is asked for, see :func:`reveal_bench.reports.run_page.write_run_report`."""

    reference: int
    anatomy: Mapping[str, Regions] | None = None
    reviews: Reviews | None = None
    findings: Sequence[str] | None = None
    examples: int = 0
    resampling: Resampling = field(default_factory=Resampling)
    progress: Progress | None = None


@dataclass
class RunReport:
    """The page of runs of one kind of benchmark."""

    what: ClassVar[str] = "Answers"
    """What the runs were asked for, in the page's title."""
    unanswered: ClassVar[str] = "misses"
    """What questions without a prediction count as."""
    world: World
    runs: Sequence[ReportRun]
    options: Options

    def page(self, warnings: Sequence[str]) -> Page:
        """Return the whole page."""
        sections = [
            *self.sections(),
            *self.published_sections(),
            *self.control_sections(),
            self.run_section(),
            Section("methods", "Methods", self.methods()),
        ]
        title = f"{self.what} on {self.world.title}: {count_text(len(self.runs), 'run')} compared"
        notes = notices(synthetic=self.world.info.synthetic, warnings=warnings)
        return Page(title, self.world.description, sections, notes, self.summary())

    def sections(self) -> Sequence[Section]:
        """What this kind of benchmark shows, before runs and methods."""
        raise NotImplementedError

    def summary(self) -> str:
        """A paragraph at the top, "" for none."""
        return ""

    def methods(self) -> Sequence[Part]:
        """How the numbers came about."""
        raise NotImplementedError

    def own_columns(self) -> tuple[tuple[str, ...], Sequence[tuple[object, ...]]]:
        """Columns of ``runs.csv`` that this kind adds: their names, and their values by run."""
        return (), [()] * len(self.runs)

    def means_by_epoch(self) -> Mapping[str, Sequence[float]]:
        """Label -> the score of each epoch of a run, for the table of costs."""
        return {}

    def own_scores(self) -> Sequence[OwnScores]:
        """What stands beside published rows."""
        return ()

    def published_sections(self) -> list[Section]:
        """Published rows of the same dataset and metric, or why there are none beside these runs."""
        own = self.own_scores()
        parts = list(published_parts(own, self.world)) if own else []
        return [Section("published", "Beside published rows", parts)] if parts else []

    def control_sections(self) -> list[Section]:
        """Whether the models look at the film, if controls were asked for."""
        asked = self.options
        found = controlled_runs(self.runs, self.world, asked.resampling, asked.findings)
        if not found:
            return []
        drawn = draw_controls(found, asked.resampling.by(self.world.kind.scoring.intervals[0]))
        drawings = [] if drawn is None else [drawn]
        return [section("controls", "Does it look?", "", EXPLAINED, *drawings, controls_table(found))]

    def run_section(self) -> Section:
        """What each run is, what became of its questions, and what it cost."""
        costs = costs_table(self.runs, self.means_by_epoch(), self.unanswered)
        tables = [runs_table(self.runs, *self.own_columns()), costs]
        return Section("runs", "Runs, failures and costs", [table for table in tables if table is not None])

    def warnings(self) -> list[str]:
        """What a reader of the report should know before using it."""
        warnings = []
        for run in self.runs:
            if run.run is None:
                if run.n_missing:
                    words = f"{run.label} leaves {run.n_missing:,} questions without a prediction"
                    warnings.append(f"{words}: {self.unanswered}")
                continue
            info, left = run.run.info, run.run.summary.by_status.get("not_asked", 0)
            if info.n_asked < info.n_questions:
                words = f"{run.label} asked {info.n_asked:,} of {info.n_questions:,} questions"
                warnings.append(f"{words}: the rest are {self.unanswered}")
            if left:
                words = f"{run.label} is not finished: {left:,} questions were not asked"
                warnings.append(f"{words} and are {self.unanswered}")
        lacking = missing_glyphs(run.label for run in self.runs)
        if lacking:
            warnings.append(f"PNG figures show boxes for {lacking}: give such runs another LABEL=PATH")
        if self.world.info.splits[self.world.split].get("references") == "private":
            warnings.append("this shows the references of a private holdout: nobody but the maintainer may see it")
        return warnings
