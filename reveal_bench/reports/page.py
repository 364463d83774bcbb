"""Assemble a report: one HTML file from sections of figures, tables, notes and text, plus SVG, PNG and CSV files.

A page has sections, and sections have parts. :func:`write_page` numbers figures and tables in order, writes them as
PNG, SVG and CSV, and links these files.

The HTML file is self-contained, without scripts or network requests. The page follows the browser's light or dark
theme, fits a telephone, and prints on A4. Templates escape every text except SVG written by matplotlib. The files are
reproducible: they contain no time of day and no path.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import reveal_bench
from reveal_bench.arguments import ArgumentError
from reveal_bench.files import write_all
from reveal_bench.reports.style import NOTHING, Illustration, check_extra, plain
from reveal_bench.words import NBSP, typeset

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "report.html"
FIGURES, TABLES = "figures", "tables"
MOST_ON_ONE_PAGE = 20
"""Maximum rows of a table that is kept on one printed page."""
MOST_ON_PORTRAIT = 9
"""Maximum columns of a table printed in portrait; wider tables are printed in landscape."""
FEWEST_CASES = 10
"""Minimum cases for highlighting the best value; with fewer, one or two cases decide which value is best."""
_NUMBER = re.compile(r"(<\s)?\(?[−+-]?\d|n =")  # or an interval
_NO_NUMBER = ("", NOTHING, "undefined", "not tested", "not shown", "∞", "reference")
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Csv:
    """A table that is only written as a CSV file; `name` has no suffix."""

    form: ClassVar[str] = ""
    name: str
    text: str

    @classmethod
    def of(cls, name: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Csv:
        """Return a CSV file; NaN and None become empty, texts that look like formulas get a leading apostrophe."""
        lines: list[str] = []
        # Before Python 3.13, `csv` quotes a text with a carriage return only if the lines end with one.
        writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
        writer.writerow(head)
        writer.writerows([_field(value) for value in row] for row in rows)
        return cls(name, "".join(line.removesuffix("\r\n") + "\n" for line in lines))


def _field(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


@dataclass(frozen=True)
class Text:
    """A paragraph, optionally with a CSV file of the numbers that it describes."""

    form: ClassVar[str] = "text"
    words: str
    is_note: bool = False
    csv: Csv | None = None


@dataclass(frozen=True)
class Lines:
    """A list."""

    form: ClassVar[str] = "lines"
    lines: Sequence[str]


@dataclass(frozen=True)
class Note:
    """A highlighted box with a sentence."""

    form: ClassVar[str] = "note"
    title: str
    body: str = ""
    is_warning: bool = False


@dataclass(frozen=True)
class PageTable:
    """A table on the page.

    Attributes
    ----------
    head, rows : texts of the cells; the first cell names its row, and lines after the first of a cell are in smaller
        type
    title : title; an untitled table is not numbered
    best : (row, column) of highlighted cells
    groups, inside : rows that are headings of groups, and rows that belong to a group
    csv : CSV file of the table with unrounded numbers
    is_caption_shown : False if the caption is only read aloud
    """

    form: ClassVar[str] = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    title: str = ""
    best: frozenset[tuple[int, int]] = frozenset()
    groups: Sequence[int] = ()
    inside: Sequence[int] = ()
    csv: Csv | None = None
    is_caption_shown: bool = True

    @property
    def is_whole(self) -> bool:
        """True if print keeps the table on one page."""
        return len(self.rows) <= MOST_ON_ONE_PAGE

    @property
    def is_landscape(self) -> bool:
        """True if the table is printed in landscape."""
        return len(self.head) > MOST_ON_PORTRAIT

    def is_number(self, column: int) -> bool:
        """Return True if a column contains numbers, and so is right-aligned."""
        cells = [str(row[column]).partition("\n")[0] for row in self.rows]
        numbers = [cell for cell in cells if cell not in _NO_NUMBER]
        return column > 0 and bool(numbers) and all(_NUMBER.match(cell) for cell in numbers)


@dataclass(frozen=True)
class TableBlock:
    """Small tables, shown side by side if the page is wide enough."""

    form: ClassVar[str] = "tables"
    title: str
    tables: Sequence[PageTable]


@dataclass(frozen=True)
class Custom:
    """A part for which the template has a special macro, named `form`, called with `values`."""

    form: str
    values: Any


Part = Csv | Text | Lines | Note | PageTable | TableBlock | Custom | Illustration
"""A part of a section. `form` names its macro in ``macros.html``; "" if the part is only a file."""


@dataclass(frozen=True)
class Section:
    """A section of the page; `key` is its HTML anchor, `source` cites the table or figure of a paper."""

    key: str
    title: str
    parts: Sequence[Part]
    source: str = ""


@dataclass(frozen=True)
class Page:
    """The contents of a page; `notices` are shown above the text."""

    title: str
    lead: str
    sections: Sequence[Section]
    notices: Sequence[Note] = ()
    summary: str = ""


def section(key: str, title: str, source: str, *parts: Part | str) -> Section:
    """Return a section with parts in order; strings become paragraphs."""
    return Section(key, title, [Text(part) if isinstance(part, str) else part for part in parts], source)


def notices(*, synthetic: bool, warnings: Sequence[str] = ()) -> list[Note]:
    """Return the notices above a page: synthetic data, warnings, not for clinical use."""
    notes = [Note("Synthetic: every image and every reference was drawn by a program.")] * synthetic
    sentences = (f"{text[0].upper()}{text[1:].removesuffix('.')}." for text in warnings)
    return [*notes, Note("Not for clinical use."), *(Note(text, is_warning=True) for text in sentences)]


def printed_table(name: str, title: str, caption: str, rows: Sequence[Mapping[str, str]], unrounded: str) -> PageTable:
    """Return a page table of rows as printed in the terminal; `unrounded` is its CSV file."""
    head = [column.strip() or "95% interval" for column in rows[0]] if rows else []
    cells = [tuple(_cell(column, text) for column, text in row.items()) for row in rows]
    return PageTable(head, cells, f"{caption}.", title, csv=Csv(name, unrounded))


def _cell(column: str, text: str) -> str:
    """Return a cell's text, or a dash if it is undefined."""
    return NOTHING if text in ("", "-") and column != "stars" else typeset(text)


def leading(values: Mapping[int, float], n_cases: int, *, lowest: bool = False) -> set[int]:
    """Return the keys of the best values to highlight in a row; none with fewer than :data:`FEWEST_CASES` cases.

    Examples
    --------
    >>> leading({0: 0.5, 1: 0.7, 3: math.nan, 4: 0.7}, 12), leading({0: 1.0}, 9)
    ({1, 4}, set())
    """
    defined = [value for value in values.values() if not math.isnan(value)]
    if not defined or n_cases < FEWEST_CASES:
        return set()
    best = min(defined) if lowest else max(defined)
    return {key for key, value in values.items() if value == best}


def check_target(folder: Path, out: Path) -> None:
    """Raise ImportError if plotting libraries are missing, ArgumentError if `out` is in the dataset `folder`."""
    check_extra()
    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise ArgumentError("out", "must not be in the dataset folder: it would become part of it", out)


def write_page(out: Path, page: Page) -> Path:
    """Write the page and the folders of its figures and tables into `out`; return the page's path.

    All new files are complete before any file of an earlier page is replaced. Figures and tables of an earlier page are
    removed if this page has none of that name.
    """
    files = page_files(page)
    write_all({out / name: content for name, content in files.items()})
    for part, suffixes in ((FIGURES, (".png", ".svg")), (TABLES, (".csv",))):
        for path in (out / part).glob("*"):
            if path.suffix in suffixes and f"{part}/{path.name}" not in files:
                path.unlink()
    return out / PAGE


def page_files(page: Page, name: str = PAGE, *, is_flat: bool = False) -> dict[str, str | bytes]:
    """Return path -> content of the page and its files.

    Parameters
    ----------
    name : name of the page
    is_flat : put all files beside the page, figures only as SVG, without links, because the page may be shared without
        its files
    """
    files: dict[int, dict[str, str | bytes]] = {}
    for part in (part for one in page.sections for part in one.parts):
        files[id(part)] = _files_of(part, is_flat=is_flat)
    links = {} if is_flat else {key: list(own) for key, own in files.items()}
    return {path: content for own in files.values() for path, content in own.items()} | {name: _render(page, links)}


def _files_of(part: Part, *, is_flat: bool) -> dict[str, str | bytes]:
    if isinstance(part, Illustration):
        folder, kinds = ("", ("svg",)) if is_flat else (f"{FIGURES}/", ("png", "svg"))
        return {f"{folder}{part.name}.{kind}": part.file(kind) for kind in kinds}
    table = part if isinstance(part, Csv) else getattr(part, "csv", None)
    return {} if table is None else {f"{'' if is_flat else f'{TABLES}/'}{table.name}.csv": table.text}


def render_page(page: Page) -> str:
    """Return the HTML of a page without linked files."""
    return _render(page, {})


def _render(page: Page, links: Mapping[int, Sequence[str]]) -> str:
    """Return the HTML; `links` maps the ``id()`` of a part to the paths of its files."""
    n: Counter[str] = Counter()
    sections = [
        (one, [(part, _label(part, n), links.get(id(part), ())) for part in one.parts if part.form])
        for one in page.sections
    ]
    return render("base.html", page=page, sections=sections, version=reveal_bench.__version__)


def _label(part: Part, n: Counter[str]) -> str:
    """Return the label of a figure or titled table, such as "Figure 2.", and advance its counter in `n`."""
    word = "Figure" if isinstance(part, Illustration) else "Table" if isinstance(part, PageTable) and part.title else ""
    n[word] += 1
    return f"{word} {n[word]}." if word else ""


def render(template: str, **values: Any) -> str:
    """Return a template filled in with `values`."""
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
