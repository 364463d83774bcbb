"""Pieces of HTML that the pages are made of, and how their templates are filled.

Conventions
-----------
Markup stands in ``web/templates`` alone; a template escapes every text that it is given. A page's template holds one
macro per part of the page, which :func:`draw` fills. The functions here take plain values; a parameter called `markup`
is HTML already. Figures are fractions on the way in and percents on the page; moments are
seconds since 1970 UTC.
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
"""Metrics of readers' ratings, which are shown on their own scales."""

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
QUIET: dict[str, Any] = PRIVATE | {"show_progress": "hidden"}
"""Options of every event of a page, as it is not part of an API; and of those that show no progress."""

SHOW_ANSWER = "() => document.getElementById('answer')?.scrollIntoView({block: 'nearest'})"
"""What an answer above a long list needs: to be seen."""

# Writes what is shown into the address; the last input is the query that the server made of it.
REMEMBER = """(query) => {
  history.replaceState(null, '', location.pathname + (query ? '?' + query : ''));
  return [query];
}"""

# Clicks on our own buttons inside a gr.HTML reach its handler as an event with `act`, `id` and, where a reason is asked
# for beside the button, `why`.
ACTIONS = """element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-act]');
  const why = button?.closest('.rv-why')?.querySelector('input')?.value || '';
  if (button && !button.disabled) trigger('click', {act: button.dataset.act, id: button.dataset.id, why});
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
    environment.globals |= {
        "address": _address, "in_words": in_words, "inside": _inside,
        "interval_in_words": interval_in_words, "percent": percent, "places": places,
        "count_text": count_text, "versioned": versioned, "with_code": with_code,
    }  # fmt: skip
    environment.globals["day"] = lambda moment: iso_time(moment)[:10]
    environment.globals["when"] = lambda moment, **options: Markup(when(moment, **options))
    return environment


def whole_page(
    title: str, text: str, note: str, ways: Sequence[tuple[str, str]], button: tuple[str, str, str] | None = None
) -> str:
    """A page that stands alone, without Gradio; `ways` are addresses and labels of the links below the text.

    A `button` is the address that it posts to, the `key` that it sends, and its label.
    """
    page = _environment().get_template("page.html")
    return page.render(title=title, text=text, note=note, ways=ways, button=button, style=Markup(page_style()))


@cache
def page_style() -> str:
    """The stylesheet of such a page."""
    return (files("reveal_leaderboard.web") / "templates" / "page.css").read_text(encoding="utf-8")


@cache
def _macros(template: str) -> Any:
    return _environment().get_template(template).module


def _piece(macro: str, *values: Any, **named: Any) -> str:
    return draw("pieces.html", macro, *values, **named)


def percent(fraction: float, digits: int = 0, *, signed: bool = False) -> str:
    """Return a fraction in percent, without the sign of percent."""
    return typeset(percent_number(fraction, digits, signed=signed))


def rating(value: float, *, signed: bool = False) -> str:
    """Return a rating or a coefficient with two decimals."""
    return typeset(number_text(value, 2, signed=signed))


@dataclass(frozen=True)
class ShownFigure:
    """A released figure as it is shown: its value and interval in words, and their :func:`places` on its line."""

    value: str
    interval: str
    line: tuple[float | None, ...] = ()


def in_words(figure: ReleasedEstimate) -> ShownFigure:
    """A figure on the scale of its metric: ratings from 1 to 5, agreement as a coefficient, all others in percent."""
    numbers = (figure.value, *(figure.interval or ()))
    if figure.metric == AGREEMENT:
        return _shown(numbers, rating, ())
    line = places(figure.metric, *numbers)
    if figure.metric == RATING:
        return _shown(numbers, rating, line)
    return _shown(numbers, percent, line, unit=" %" if figure.metric == CORRECT else "")


def _shown(
    numbers: tuple[float, ...], words: Callable[[float], str], line: tuple[float | None, ...], unit: str = ""
) -> ShownFigure:
    value, *ends = (words(number) for number in numbers)
    return ShownFigure(value + unit, interval_in_words(*ends) if ends else "", line)


def interval_in_words(low: str, high: str) -> str:
    """Return an interval, such as "72 to 84"."""
    return "no spread" if low == high else f"{low} to {high}"


def places(metric: str, value: float, low: float | None = None, high: float | None = None) -> tuple[float | None, ...]:
    """Where a value, the ends of its interval and zero lie on the line of a metric, from 0 (its lowest) to 1.

    Zero has no place where the scale does not go below it.
    """
    scale = METRICS[metric]
    begin, length = (scale.low, scale.high - scale.low) if scale.low else (0.0, 1.0)
    found = (None if number is None else (number - begin) / length for number in (value, low, high))
    return (*found, -begin / length if begin < 0 else None)


def with_code(text: str) -> Markup:
    """A plain text in which what stands between backticks is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def when(moment: float | None, *, date_only: bool = False) -> str:
    """A moment as a `time` element in UTC, or a dash."""
    if moment is None:
        return "–"
    iso = iso_time(moment)
    shown = iso[:10] if date_only else f"{iso[:10]} {iso[11:16]} UTC"
    return f'<time datetime="{iso}">{shown}</time>'


def message(kind: str, title: str, body: str = "") -> str:
    """A box: `kind` is "info", "good", "bad" or "busy"; the word before the title says the same as the colour."""
    return _piece("message", kind, title, body)


def page_head(title: str, lead: str = "", *, markup: str = "") -> str:
    """The page's one heading and a sentence; the window's title follows the heading."""
    return _piece("page_head", title, lead, Markup(markup))


def sign_in(path: str, body: str = "") -> str:
    """The box that says to sign in first; `path` is where to go afterwards."""
    return _piece("sign_in", path, body=body)


def note(text: str) -> str:
    """A sentence in small print."""
    return _piece("note", text)


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


def _inside(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)
