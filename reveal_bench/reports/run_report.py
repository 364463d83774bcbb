"""What every report of runs has, whatever kind of benchmark they answer: tables of runs and costs, notices, files.

A report of one kind is a subclass of :class:`RunReport` with sections and a summary of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import reveal_bench
from reveal_bench.evaluation.published import OwnScores
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.reports.anatomy import Regions
from reveal_bench.reports.page import Csv, Figure, Note, Page, Part, Section, Table, Text, render_page
from reveal_bench.reports.run_controls import EXPLAINED, controlled_runs, controls_table, draw_controls
from reveal_bench.reports.run_errors import Reviews
from reveal_bench.reports.run_tables import costs_table, published_parts, runs_table
from reveal_bench.reports.runs import Progress, ReportRun, World
from reveal_bench.reports.style import Illustration, missing_glyphs
from reveal_bench.words import count_text

PAGE = "report.html"
FIGURES, TABLES = "figures", "tables"


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
    """The page of runs of one kind of benchmark, and its files.

    Attributes
    ----------
    files : path relative to the folder of the report -> content; filled while sections are made
    """

    what: ClassVar[str] = "Answers"
    """What the runs were asked for, in the page's title."""
    unanswered: ClassVar[str] = "misses"
    """What questions without a prediction count as."""
    world: World
    runs: Sequence[ReportRun]
    options: Options
    files: dict[str, str | bytes] = field(default_factory=dict)
    n_figures: int = 0
    n_tables: int = 0

    def write(self) -> list[str]:
        """Make all files; what a reader of the report should know before using it."""
        warnings = self.warnings()
        info, world = self.world.info, self.world
        sections = [
            *self.sections(),
            *self.published_sections(),
            *self.control_sections(),
            self.run_section(),
            Section("methods", "Methods", self.methods()),
        ]
        title = f"{self.what} on {world.title}: {count_text(len(self.runs), 'run')} compared"
        made = f"{info.benchmark} {info.version}, split {world.split}; reveal-bench {reveal_bench.__version__}."
        notices = [Note("Synthetic: every picture and every reference was drawn by a program.")] * info.synthetic
        notices.append(Note("Not for clinical use."))
        notices += [Note(f"{text[0].upper()}{text[1:]}.", is_warning=True) for text in warnings]
        lead = f"{info.benchmark} {info.version}, split {world.split}"
        page = Page(title, lead, sections, notices, self.summary(), made)
        self.files[PAGE] = render_page(page)
        return warnings

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
        parts = [self.table(part) if isinstance(part, Table) else part for part in self._published()]
        return [Section("published", "Beside published rows", parts)] if parts else []

    def _published(self) -> Iterator[Part]:
        own = self.own_scores()
        return published_parts(own, self.world) if own else iter(())

    def control_sections(self) -> list[Section]:
        """Whether the models look at the film, if controls were asked for."""
        asked = self.options
        found = controlled_runs(self.runs, self.world, asked.resampling, asked.findings)
        if not found:
            return []
        drawn = draw_controls(found, asked.resampling.by(self.world.kind.scoring.intervals[0]))
        parts = [Text(EXPLAINED), *([] if drawn is None else [self.figure(drawn)]), self.table(controls_table(found))]
        return [Section("controls", "Does it look?", parts)]

    def run_section(self) -> Section:
        """What each run is, what became of its questions, and what it cost."""
        costs = costs_table(self.runs, self.means_by_epoch(), self.unanswered)
        tables = [runs_table(self.runs, *self.own_columns()), costs]
        parts = [self.table(table) for table in tables if table is not None]
        return Section("runs", "Runs, failures and costs", parts)

    def figure(self, drawn: Illustration) -> Figure:
        """The illustration with its number and files."""
        self.n_figures += 1
        files = {f"{FIGURES}/{drawn.name}.{kind}": drawn.file(kind) for kind in ("png", "svg")}
        self.files.update(files)
        return Figure(drawn, f"Figure {self.n_figures}.", tuple(files))

    def table(self, table: Table) -> Table:
        """The table with its number and file."""
        self.n_tables += 1
        file = "" if table.plain is None else self.add_csv(table.plain)
        return replace(table, label=f"Table {self.n_tables}.", file=file)

    def add_csv(self, content: Csv) -> str:
        """Path of a table that is a file alone."""
        name = f"{TABLES}/{content.name}.csv"
        self.files[name] = content.text()
        return name

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
