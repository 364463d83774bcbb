"""Fill the pages' templates, format scores, and build pieces of HTML that several pages use.

Conventions
-----------
Markup is only in ``web/templates``; templates escape every text. A template has one macro per section of its page,
which :func:`draw` fills. Functions accept plain texts, except for parameters named `markup`, which are HTML. Scores are
fractions in code and percents on pages; times are seconds since 1970 UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reveal_bench.metrics import METRICS
from reveal_bench.words import count_text, number_text, percent_number, typeset
from reveal_leaderboard.store.database import iso_time
from reveal_leaderboard.store.metadata import versioned

if TYPE_CHECKING:
    from reveal_leaderboard.release.release import ReleasedEstimate

RATING, CORRECT, AGREEMENT = "rubric_mean", "share_of_5", "cohen_kappa_quadratic"
"""Metrics of readers' ratings, which have their own scales."""

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
QUIET: dict[str, Any] = PRIVATE | {"show_progress": "hidden"}
"""Options of page events: `PRIVATE` keeps an event out of Gradio's API, `QUIET` also hides the progress display."""

SHOW_ANSWER = "() => document.getElementById('answer')?.scrollIntoView({block: 'nearest'})"
"""Script that scrolls to the message above a long list."""

# Sends clicks on buttons inside a `gr.HTML` to its handler, as an event with `act`, `id` and, if a reason was entered,
# `why`.
ACTIONS = """element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-act]');
  const why = button?.closest('.rv-why')?.querySelector('input')?.value || '';
  if (button && !button.disabled) trigger('click', {act: button.dataset.act, id: button.dataset.id, why});
});"""


def draw(template: str, macro: str, *values: Any, **named: Any) -> str:
    """Return a template's macro filled with these values."""
    return str(getattr(_macros(template), macro)(*values, **named))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reveal_leaderboard.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {
        "address": _address, "in_words": in_words, "inside": _inside,
        "interval_in_words": interval_in_words, "percent": percent, "positions": positions,
        "count_text": count_text, "versioned": versioned, "with_code": with_code,
    }  # fmt: skip
    environment.globals["day"] = lambda moment: iso_time(moment)[:10]
    environment.globals["when"] = lambda moment, **options: Markup(when(moment, **options))
    return environment


def whole_page(
    title: str, text: str, note: str, links: Sequence[tuple[str, str]], button: tuple[str, str, str] | None = None
) -> str:
    """Return a page without Gradio; `links` are (address, label) pairs below the text.

    `button` is the address to post to, the `key` to send, and the label.
    """
    page = _environment().get_template("page.html")
    return page.render(title=title, text=text, note=note, links=links, button=button, style=Markup(page_style()))


@cache
def page_style() -> str:
    """Return the stylesheet of a page without Gradio."""
    return (files("reveal_leaderboard.web") / "templates" / "page.css").read_text(encoding="utf-8")


@cache
def _macros(template: str) -> Any:
    return _environment().get_template(template).module


def _piece(macro: str, *values: Any, **named: Any) -> str:
    return draw("pieces.html", macro, *values, **named)


def percent(fraction: float, digits: int = 0, *, signed: bool = False) -> str:
    """Return a fraction in percent, without the percent sign."""
    return typeset(percent_number(fraction, digits, signed=signed))


def rating(value: float, *, signed: bool = False) -> str:
    """Return a rating or a coefficient with two decimals."""
    return typeset(number_text(value, 2, signed=signed))


@dataclass(frozen=True)
class FigureText:
    """A released score for display: value and interval as text, and their :func:`positions` on a line."""

    value: str
    interval: str
    line: tuple[float | None, ...] = ()


def in_words(figure: ReleasedEstimate) -> FigureText:
    """Return a score on the scale of its metric: ratings from 1 to 5, agreement from -1 to 1, others in percent."""
    numbers = (figure.value, *(figure.interval or ()))
    if figure.metric == AGREEMENT:
        return _figure_text(numbers, rating, ())
    line = positions(figure.metric, *numbers)
    if figure.metric == RATING:
        return _figure_text(numbers, rating, line)
    return _figure_text(numbers, percent, line, unit="%" if figure.metric == CORRECT else "")


def _figure_text(
    numbers: tuple[float, ...], words: Callable[[float], str], line: tuple[float | None, ...], unit: str = ""
) -> FigureText:
    value, *ends = (words(number) for number in numbers)
    return FigureText(value + unit, interval_in_words(*ends) if ends else "", line)


def interval_in_words(low: str, high: str) -> str:
    """Return an interval, such as "72 to 84"."""
    return "no variation" if low == high else f"{low} to {high}"


def positions(
    metric: str, value: float, low: float | None = None, high: float | None = None
) -> tuple[float | None, ...]:
    """Return the positions of a value, its interval and zero on the metric's scale, from 0 (lowest) to 1 (highest).

    The position of zero is None on scales without negative values.
    """
    scale = METRICS[metric]
    begin, length = (scale.low, scale.high - scale.low) if scale.low else (0.0, 1.0)
    ends = (None if number is None else (number - begin) / length for number in (value, low, high))
    return (*ends, -begin / length if begin < 0 else None)


def with_code(text: str) -> Markup:
    """Return a text as HTML, with texts between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def when(moment: float | None, *, date_only: bool = False) -> str:
    """Return a time as an HTML `time` element in UTC, or a dash if there is none."""
    if moment is None:
        return "–"
    iso = iso_time(moment)
    text = iso[:10] if date_only else f"{iso[:10]} {iso[11:16]} UTC"
    return f'<time datetime="{iso}">{text}</time>'


def message(kind: str, title: str, body: str = "") -> str:
    """Return a message box; `kind` ("info", "good", "bad", "busy") sets its colour and the word before the title."""
    return _piece("message", kind, title, body)


def page_head(title: str, lead: str = "", *, markup: str = "") -> str:
    """Return the page's heading and a sentence; the heading also sets the window's title."""
    return _piece("page_head", title, lead, Markup(markup))


def sign_in(path: str, body: str = "") -> str:
    """Return a box that asks people to sign in; `path` is the page to open afterwards."""
    return _piece("sign_in", path, body=body)


def note(text: str) -> str:
    """Return a sentence in small print."""
    return _piece("note", text)


def part(title: str, *, note: str = "") -> str:
    """Return a section heading and a sentence."""
    return _piece("part", title, note)


def query_text(query: Mapping[str, object]) -> str:
    """Return the query of an address; parameters that are None are omitted."""
    return urlencode({name: str(value) for name, value in query.items() if value is not None})


def _address(path: str, query: Mapping[str, object]) -> str:
    text = query_text(query)
    return quote(path) + (f"?{text}" if text else "")


def link(path: str, label: object, **query: object) -> str:
    """Return an HTML link to a page of this site."""
    return _piece("link", path, label, **query)


def _inside(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)
