"""Pieces of HTML that the pages are made of, and how their templates are filled.

Conventions
-----------
Markup stands in ``web/templates`` alone; a template escapes every text that it is given. A page's template holds one
macro per part of the page, which :func:`draw` fills. The functions here take plain values; parameters called `cells`,
`rows`, `body` or `markup` are HTML already. Figures are fractions on the way in and percents on the page; moments are
seconds since 1970 UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

__all__ = [
    "ACTIONS", "SHOW_ANSWER", "action", "badge", "detail", "draw", "interval_bar", "link", "message", "none_cell",
    "outside_link", "page_head", "part", "percent", "plural", "query_text", "table", "text", "when",
]  # fmt: skip

SHOW_ANSWER = "() => document.getElementById('answer')?.scrollIntoView({block: 'nearest'})"
"""What an answer above a long list needs: to be seen."""

# Clicks on our own buttons inside a gr.HTML reach its handler as an event with `act` and `id`.
ACTIONS = """element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-act]');
  if (button && !button.disabled) trigger('click', {act: button.dataset.act, id: button.dataset.id});
});"""


def draw(template: str, macro: str, *values: Any, **named: Any) -> str:
    """What a macro of a template makes of these values."""
    return str(getattr(_macros(template), macro)(*values, **named))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reveal_leaderboard.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {"address": _address, "inside": _inside, "percent": percent, "plural": plural}
    environment.globals["when"] = lambda moment, **options: Markup(when(moment, **options))
    return environment


@cache
def _macros(template: str) -> Any:
    return _environment().get_template(template).module


def _piece(macro: str, *values: Any, **named: Any) -> str:
    return draw("pieces.html", macro, *values, **named)


def text(value: object) -> str:
    """Any value as text that cannot be markup."""
    return escape(str(value), quote=True)


def percent(fraction: float, digits: int = 0) -> str:
    """A fraction as a percent, without the sign; a minus is a true minus, and there is no minus zero."""
    shown = f"{100 * fraction:.{digits}f}"
    if not float(shown):
        shown = shown.removeprefix("-")
    return shown.replace("-", "−")


def plural(n: int, noun: str) -> str:
    """A count with its noun, such as "1 entry" and "2 entries"."""
    if n == 1:
        return f"1 {noun}"
    return f"{n} {noun[:-1]}ies" if noun.endswith("y") else f"{n} {noun}s"


def when(moment: float | None, *, date_only: bool = False) -> str:
    """A moment as a `time` element in UTC, or a dash."""
    if moment is None:
        return "–"
    at = datetime.fromtimestamp(moment, UTC)
    shown = at.strftime("%Y-%m-%d") if date_only else at.strftime("%Y-%m-%d %H:%M UTC")
    return f'<time datetime="{at.strftime("%Y-%m-%dT%H:%M:%SZ")}">{shown}</time>'


def message(kind: str, title: str, body: str = "", *, markup: str = "") -> str:
    """A box: `kind` is "info", "good", "bad" or "busy"; the word before the title says the same as the colour."""
    return _piece("message", kind, title, body, Markup(markup))


def badge(label: str) -> str:
    """A small outlined word."""
    return _piece("badge", label)


def page_head(title: str, lead: str = "", *, markup: str = "") -> str:
    """The page's one heading and a sentence; the window's title follows the heading."""
    return _piece("page_head", title, lead, Markup(markup))


def part(title: str, *, note: str = "") -> str:
    """A heading inside the page, with a sentence below it."""
    return _piece("part", title, note)


def query_text(query: Mapping[str, object]) -> str:
    """Parameters as they stand in an address; those that are None are left out."""
    return urlencode({name: str(value) for name, value in query.items() if value is not None})


def _address(path: str, query: Mapping[str, object]) -> str:
    asked = query_text(query)
    return quote(path) + (f"?{asked}" if asked else "")


def link(path: str, label: object, **query: object) -> str:
    """A link inside the site."""
    return _piece("link", path, label, **query)


def outside_link(url: str, label: str = "") -> str:
    """A link to another site; what is not https is shown as text."""
    return _piece("outside_link", url, label)


def action(label: str, act: str, subject: object = "", *, describe: str = "", tone: str = "") -> str:
    """A button that :data:`ACTIONS` reports; `describe` names the row for those who hear the page."""
    return _piece("action", label, act, subject, describe, tone)


def interval_bar(value: float, low: float | None = None, high: float | None = None) -> str:
    """A line from 0 to 100 % with the interval as a bar and the value as a tick; its text stands beside it."""
    return _piece("interval_bar", value, low, high)


def _inside(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)


def none_cell(shown: str, why: str) -> str:
    """A cell without a figure, and why, for eyes and ears."""
    return _piece("none_cell", shown, why)


def table(head: Sequence[str], body: Iterable[str], *, label: str, css_class: str = "") -> str:
    """A table that scrolls inside its own box; `head` holds cells' contents, or whole ``th`` elements."""
    cells = [Markup(cell if cell.startswith("<th") else f'<th scope="col">{cell}</th>') for cell in head]
    return _piece("table", cells, label, css_class, caller=lambda: Markup("".join(body)))


def detail(summary: str, markup: str, *, is_open: bool = False) -> str:
    """A part that opens on demand."""
    return _piece("detail", summary, Markup(markup), is_open)
