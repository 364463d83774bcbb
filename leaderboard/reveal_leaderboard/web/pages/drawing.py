"""Pieces of HTML that the pages are made of.

Every function takes plain values and escapes every text it is given, so that what comes out can be put into a page;
parameters called `cells`, `rows`, `body` or `markup` are HTML already. Figures are fractions on the way in and percents
on the page; moments are seconds since 1970 UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import quote, urlencode

from reveal_leaderboard.release.release import Figure

__all__ = [
    "ACTIONS", "SHOW_ANSWER", "action", "badge", "detail", "facts", "figure_cell", "figure_span", "interval_bar",
    "link", "message", "none_cell", "outside_link", "page_head", "part", "percent", "plural", "query_text", "table",
    "text", "when",
]  # fmt: skip

SHOW_ANSWER = "() => document.getElementById('answer')?.scrollIntoView({block: 'nearest'})"
"""What an answer above a long list needs: to be seen."""

# Clicks on our own buttons inside a gr.HTML reach its handler as an event with `act` and `id`.
ACTIONS = """element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-act]');
  if (button && !button.disabled) trigger('click', {act: button.dataset.act, id: button.dataset.id});
});"""


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
    word = {"info": "", "good": "OK. ", "bad": "Problem. ", "busy": "Working. "}[kind]
    more = (f"<p>{text(body)}</p>" if body else "") + markup
    role = "alert" if kind == "bad" else "status"
    return f'<div class="rv-message rv-{kind}" role="{role}"><strong>{word}{text(title)}</strong>{more}</div>'


def badge(label: str) -> str:
    """A small outlined word."""
    return f'<span class="rv-badge">{text(label)}</span>'


def page_head(title: str, lead: str = "", *, markup: str = "") -> str:
    """The page's one heading and a sentence; the window's title follows the heading."""
    lead = (text(lead) if lead else "") + markup
    sentence = f"<p>{lead}</p>" if lead else ""
    return f'<header class="rv-head"><h1 data-title="{text(title)}">{text(title)}</h1>{sentence}</header>'


def part(title: str, *, note: str = "") -> str:
    """A heading inside the page, with a sentence below it."""
    shown = f'<p class="rv-note">{text(note)}</p>' if note else ""
    return f'<h2 class="rv-part">{text(title)}</h2>{shown}'


def query_text(query: Mapping[str, object]) -> str:
    """Parameters as they stand in an address; those that are None are left out."""
    return urlencode({name: str(value) for name, value in query.items() if value is not None})


def link(path: str, label: object, **query: object) -> str:
    """A link inside the site."""
    asked = query_text(query)
    address = quote(path) + (f"?{asked}" if asked else "")
    return f'<a href="{text(address)}">{text(label)}</a>'


def outside_link(url: str, label: str = "") -> str:
    """A link to another site; what is not https is shown as text."""
    if not url.startswith("https://"):
        return text(label or url)
    return f'<a href="{text(url)}" rel="noopener nofollow ugc">{text(label or url)}</a>'


def action(label: str, act: str, subject: object = "", *, describe: str = "", tone: str = "") -> str:
    """A button that :data:`ACTIONS` reports; `describe` names the row for those who hear the page."""
    spoken = f' aria-label="{text(f"{label}: {describe}")}"' if describe else ""
    tone = f" rv-{tone}" if tone else ""
    return (
        f'<button type="button" class="rv-action{tone}" data-act="{text(act)}" data-id="{text(subject)}"'
        f"{spoken}>{text(label)}</button>"
    )


def interval_bar(value: float, low: float | None = None, high: float | None = None) -> str:
    """A line from 0 to 100 % with the interval as a bar and the value as a tick; its text stands beside it."""
    bar = ""
    if low is not None and high is not None:
        left, right = _inside(low), _inside(high)
        bar = f'<i style="left:{100 * left:.0f}%;width:{max(100 * (right - left), 1):.0f}%"></i>'
    return f'<span class="rv-bar" aria-hidden="true">{bar}<b style="left:{100 * _inside(value):.1f}%"></b></span>'


def _inside(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)


def figure_span(figure: Figure, digits: int = 0) -> str:
    """Value, interval in figures, interval drawn."""
    interval = ""
    if figure.low is not None and figure.high is not None:
        low, high = percent(figure.low, digits), percent(figure.high, digits)
        interval = f'<span class="rv-ci">{low}–{high}</span>'
    bar = interval_bar(figure.value, figure.low, figure.high)
    return f'<span class="rv-value">{percent(figure.value, digits)}</span>{interval}{bar}'


def figure_cell(figure: Figure, digits: int = 0) -> str:
    """A table cell with :func:`figure_span`."""
    return f'<td class="rv-figure">{figure_span(figure, digits)}</td>'


def none_cell(shown: str, why: str) -> str:
    """A cell without a figure, and why, for eyes and ears."""
    return f'<td class="rv-none"><span title="{text(why)}">{text(shown)}</span></td>'


def table(head: Sequence[str], body: Iterable[str], *, label: str, css_class: str = "") -> str:
    """A table that scrolls inside its own box; `head` holds cells' contents, or whole ``th`` elements."""
    cells = "".join(cell if cell.startswith("<th") else f'<th scope="col">{cell}</th>' for cell in head)
    return (
        f'<div class="rv-scroll {css_class}" role="region" aria-label="{text(label)}" tabindex="0">'
        f"<table><thead><tr>{cells}</tr></thead>{''.join(body)}</table></div>"
    )


def facts(items: Mapping[str, str]) -> str:
    """A list of names and values; the values are HTML already, empty ones are left out."""
    rows = "".join(f"<dt>{text(name)}</dt><dd>{markup}</dd>" for name, markup in items.items() if markup)
    return f'<dl class="rv-facts-list">{rows}</dl>'


def detail(summary: str, markup: str, *, is_open: bool = False) -> str:
    """A part that opens on demand."""
    state = " open" if is_open else ""
    return f'<details class="rv-details"{state}><summary>{text(summary)}</summary>{markup}</details>'
