"""A page of chapters, such as that of a model beside benchmark readers; its figures and tables as files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import reveal_bench
from reveal_bench.reports.page import Figure, Note, Page, Part, Section, Table, Text, render_page
from reveal_bench.reports.run_page import write_files
from reveal_bench.reports.run_report import FIGURES, PAGE, TABLES
from reveal_bench.reports.style import NOTHING, Illustration


@dataclass(frozen=True)
class PrintedTable:
    """A table of a result: its name, what it is, its rows as people read them, and all its figures as CSV."""

    name: str
    title: str
    caption: str
    rows: Sequence[Mapping[str, str]]
    csv: str


@dataclass(frozen=True)
class Chapter:
    """A section: its title, where the paper has the like, a sentence on it, figures, tables, what else."""

    key: str
    title: str
    source: str
    words: str
    figures: Sequence[Illustration] = ()
    tables: Sequence[PrintedTable] = ()
    others: Sequence[Part] = ()


def write_chapters(
    out: Path, title: str, lead: str, chapters: Sequence[Chapter], *, synthetic: bool, warnings: Sequence[str]
) -> Path:
    """Write ``report.html`` and the folders ``figures`` and ``tables`` into `out`; the path of the page.

    The page and its files depend on what was given alone: no time of day, no path.
    """
    files: dict[str, str | bytes] = {}
    n_figures = n_tables = 0
    sections = []
    for chapter in chapters:
        parts: list[Part] = [Text(chapter.words)]
        for drawn in chapter.figures:
            n_figures += 1
            own = {f"{FIGURES}/{drawn.name}.{kind}": drawn.file(kind) for kind in ("png", "svg")}
            files.update(own)
            parts.append(Figure(drawn, f"Figure {n_figures}.", tuple(own)))
        for table in chapter.tables:
            n_tables += 1
            name = f"{TABLES}/{table.name}.csv"
            files[name] = table.csv
            parts.append(_table(table, f"Table {n_tables}.", name))
        parts += chapter.others
        sections.append(Section(chapter.key, chapter.title, parts, chapter.source))
    notices = [Note("Synthetic: every picture and every reference was drawn by a program.")] * synthetic
    notices += [Note("Not for clinical use."), *(Note(text, is_warning=True) for text in warnings)]
    made = f"{lead}; reveal-bench {reveal_bench.__version__}."
    files[PAGE] = render_page(Page(title, lead, sections, notices, made=made))
    write_files(out, files)
    return out / PAGE


def _table(table: PrintedTable, label: str, file: str) -> Table:
    head = [name.strip() or "95 % interval" for name in table.rows[0]] if table.rows else []
    cells = [tuple(_cell(name, text) for name, text in row.items()) for row in table.rows]
    return Table(head, cells, f"{table.caption}.", table.title, label=label, file=file)


_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def _cell(column: str, text: str) -> str:
    """Text as pages have it: a true minus, a dash for what is undefined, and no p of 0."""
    if column.split()[:1] == ["p"] or column.endswith(" p"):
        text = "< 0.001" if text == "0.000" else text
    return NOTHING if text in ("", "-") and column != "stars" else _MINUS.sub("−", text)
