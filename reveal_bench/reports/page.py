"""A report's page: sections of figures, tables, notes and text, made into HTML by the templates.

A page is one HTML file that holds all it shows: no script, no network. It follows the reader's choice of light and
dark, fits a telephone, and prints on A4. Templates escape every text that they are given; what is HTML already is the
SVG that matplotlib wrote.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.reports.style import NOTHING, Illustration, check_extra, plain
from reveal_bench.words import NBSP

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_ON_ONE_PAGE = 20
"""Rows of a table that is not divided in print."""
MOST_ON_PORTRAIT = 9
"""Columns of a table that fit on upright paper; wider ones are printed across."""
FEWEST_CASES = 10
"""Behind values of which the best is stressed: below, it is the best by a case or two."""
_NUMBER = re.compile(r"(<\s)?\(?[−+-]?\d|n =")  # or an interval
_NO_NUMBER = ("", NOTHING, "undefined", "not tested", "not shown", "∞", "reference")


@dataclass(frozen=True)
class Part:
    """What a section holds; `form` names its macro in ``macros.html``, "" if it is not on the page."""

    form: ClassVar[str] = ""


@dataclass(frozen=True)
class Csv(Part):
    """A table as a file: NaN and None are empty fields."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def text(self) -> str:
        """One line per row; a text that a spreadsheet would take for a formula gets an apostrophe before it."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows([_field(value) for value in row] for row in self.rows)
        return out.getvalue()


def _field(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


@dataclass(frozen=True)
class Text(Part):
    """A paragraph; `file` is the path of one that belongs to it, relative to the page."""

    form: ClassVar[str] = "text"
    words: str
    is_note: bool = False
    file: str = ""


@dataclass(frozen=True)
class Lines(Part):
    """A list."""

    form: ClassVar[str] = "lines"
    lines: Sequence[str]


@dataclass(frozen=True)
class Note(Part):
    """A box with a sentence."""

    form: ClassVar[str] = "note"
    title: str
    body: str = ""
    is_warning: bool = False


@dataclass(frozen=True)
class Figure(Part):
    """An illustration; `label` is its number, `files` are the paths of its files relative to the page."""

    form: ClassVar[str] = "figure"
    drawn: Illustration
    label: str = ""
    files: Sequence[str] = ()


def leading(values: Mapping[int, float], n_cases: int, *, lowest: bool = False) -> set[int]:
    """Places of the best of a row's values, which is stressed; none where fewer than ten cases are behind them.

    Examples
    --------
    >>> leading({0: 0.5, 1: 0.7, 3: math.nan, 4: 0.7}, 12), leading({0: 1.0}, 9)
    ({1, 4}, set())
    """
    told = [value for value in values.values() if not math.isnan(value)]
    if not told or n_cases < FEWEST_CASES:
        return set()
    best = min(told) if lowest else max(told)
    return {place for place, value in values.items() if value == best}


@dataclass(frozen=True)
class Table(Part):
    """A table.

    Attributes
    ----------
    head, rows : text; the first cell of a row names it; further lines of a cell are smaller
    best : (row, column) of cells to stress
    groups, inside : rows that head a group, and rows that belong to one
    label : its number, as "Table 1"
    file : path of its CSV relative to the page
    plain : what that file holds
    is_caption_shown : or else it is only heard
    """

    form: ClassVar[str] = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    title: str = ""
    best: frozenset[tuple[int, int]] = frozenset()
    groups: Sequence[int] = ()
    inside: Sequence[int] = ()
    label: str = ""
    file: str = ""
    plain: Csv | None = None
    is_caption_shown: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether print keeps it on one page."""
        return len(self.rows) <= MOST_ON_ONE_PAGE

    @property
    def is_across(self) -> bool:
        """Whether print turns the paper."""
        return len(self.head) > MOST_ON_PORTRAIT

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers, which are set right."""
        cells = [str(row[column]).partition("\n")[0] for row in self.rows]
        told = [cell for cell in cells if cell not in _NO_NUMBER]
        return column > 0 and bool(told) and all(_NUMBER.match(cell) for cell in told)


@dataclass(frozen=True)
class Tables(Part):
    """Small tables, side by side where there is room."""

    form: ClassVar[str] = "tables"
    title: str
    tables: Sequence[Table]


@dataclass(frozen=True)
class Form(Part):
    """Anything that a template of its own shows: `values` are what its macro asks for."""

    macro: str
    values: Any

    @property
    def form(self) -> str:  # type: ignore[override]
        """Its macro."""
        return self.macro


@dataclass(frozen=True)
class Section:
    """A part of the page; `key` is its anchor, `source` names the table or figure of a paper."""

    key: str
    title: str
    parts: Sequence[Part]
    source: str = ""


@dataclass(frozen=True)
class Page:
    """All that the base template asks for; `notices` stand above everything, `made` below."""

    title: str
    lead: str
    sections: Sequence[Section]
    notices: Sequence[Note] = ()
    summary: str = ""
    made: str = ""
    columns: str = field(default="")


def section(key: str, title: str, source: str, *parts: Part | Illustration) -> Section:
    """A section of parts in order; illustrations become figures."""
    return Section(key, title, [Figure(part) if isinstance(part, Illustration) else part for part in parts], source)


def figures_of(sections: Sequence[Section]) -> list[Illustration]:
    """Every illustration of the sections."""
    return [part.drawn for one in sections for part in one.parts if isinstance(part, Figure)]


def check_target(folder: Path, out: Path) -> None:
    """Raise ImportError unless pages can be drawn, ArgumentError if `out` lies in the dataset `folder`."""
    check_extra()
    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise ArgumentError("out", "must not lie in the dataset folder: it would become part of it", out)


def render_page(page: Page) -> str:
    """The HTML file."""
    return render("base.html", page=page)


def render(template: str, **values: Any) -> str:
    """What a template makes of these values."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return value if isinstance(value, Markup) else plain(value).replace(" × ", f"{NBSP}×{NBSP}")

    environment = Environment(
        loader=PackageLoader("reveal_bench.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters["svg"] = Markup
    return environment
