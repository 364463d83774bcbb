"""Formatting of numbers, percentages, intervals, p values and counts for terminals, pages and cards.

Conventions
-----------
An interval is written as "72 to 84", and after its value as "78 (72 to 84)". An undefined number is "-", and an
undefined interval is empty. Texts are plain ASCII; :func:`typeset` converts them for web pages.
:mod:`reveal_bench.metrics.scales` defines the scale of each metric. Unrounded numbers are in the JSON and CSV output.
"""

from __future__ import annotations

import re

UNDEFINED = "-"
NBSP = "\u00a0"
_MINUS = re.compile(r"(?<![\w)])-(?=[\d.])")


def plural(noun: str) -> str:
    """Return the plural of a regular noun.

    Examples
    --------
    >>> plural("patient"), plural("study"), plural("box")
    ('patients', 'studies', 'boxes')
    """
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def count_text(n: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural.

    Examples
    --------
    >>> count_text(1, "case"), count_text(0, "case"), count_text(2000, "study")
    ('1 case', '0 cases', '2,000 studies')
    """
    return f"{n:,} {noun if n == 1 else plural(noun)}"


def number_text(value: float | None, decimals: int = 3, *, signed: bool = False) -> str:
    """Return a rounded number as text; zero has no sign.

    Examples
    --------
    >>> number_text(1234.5, 1), number_text(-0.0001), number_text(0.25, 2, signed=True), number_text(None)
    ('1,234.5', '0.000', '+0.25', '-')
    """
    if value is None or value != value:
        return UNDEFINED
    text = f"{value:{'+' if signed else ''},.{decimals}f}"
    return text if float(text.replace(",", "")) else text.lstrip("+-")


def percent_number(fraction: float | None, decimals: int = 1, *, signed: bool = False) -> str:
    """Return a fraction in percent, or a difference in percentage points, without the percent sign.

    Examples
    --------
    >>> percent_number(0.78125), percent_number(-0.05, 0), percent_number(0.05, signed=True)
    ('78.1', '-5', '+5.0')
    """
    return number_text(None if fraction is None else 100 * fraction, decimals, signed=signed)


def percent_text(fraction: float | None, decimals: int = 1) -> str:
    """Return a fraction in percent with the percent sign.

    Examples
    --------
    >>> percent_text(0.78125), percent_text(0.5, 0), percent_text(float("nan"))
    ('78.1%', '50%', '-')
    """
    number = percent_number(fraction, decimals)
    return number if number == UNDEFINED else f"{number}%"


def share_text(n: int, total: int) -> str:
    """Return `n` in percent of `total`, or empty text if `total` is 0.

    Examples
    --------
    >>> share_text(187, 668), share_text(0, 0)
    ('28.0%', '')
    """
    return f"{number_text(100 * n / total, 1)}%" if total else ""


def interval_text(low: float | None, high: float | None, decimals: int = 3, *, signed: bool = False) -> str:
    """Return an interval, or empty text if neither bound is defined.

    Examples
    --------
    >>> interval_text(0.44, 0.524), interval_text(-20, 4.5, 1, signed=True), interval_text(None, None)
    ('0.440 to 0.524', '-20.0 to +4.5', '')
    >>> interval_text(0.44, float("nan"))
    '0.440 to -'
    """
    bounds = [number_text(bound, decimals, signed=signed) for bound in (low, high)]
    return "" if bounds == [UNDEFINED, UNDEFINED] else " to ".join(bounds)


def percent_interval(low: float | None, high: float | None, decimals: int = 1, *, signed: bool = False) -> str:
    """Return an interval of fractions in percent, or empty text if neither bound is defined.

    Examples
    --------
    >>> percent_interval(0.72, 0.84), percent_interval(0.72, 0.84, 0)
    ('72.0 to 84.0', '72 to 84')
    """
    low, high = (None if bound is None else 100 * bound for bound in (low, high))
    return interval_text(low, high, decimals, signed=signed)


def with_interval(value: str, interval: str) -> str:
    """Return a value followed by its interval.

    Examples
    --------
    >>> with_interval("78", "72 to 84"), with_interval("78", "")
    ('78 (72 to 84)', '78')
    """
    return f"{value} ({interval})" if interval else value


def p_text(p: float | None) -> str:
    """Return a p value with three decimals, never rounded to 0.

    Examples
    --------
    >>> p_text(0.0316), p_text(0.0002), p_text(float("nan"))
    ('0.032', '<0.001', '-')
    """
    return "<0.001" if p is not None and p < 0.0005 else number_text(p)


def part_text(part: int | None, total: int) -> str:
    """Return a text such as "7 of 100", or only the total if the part is unknown.

    Examples
    --------
    >>> part_text(7, 100), part_text(None, 100)
    ('7 of 100', '100')
    """
    return f"{total}" if part is None else f"{part} of {total}"


def typeset(text: str) -> str:
    """Return a text for a web page, with typographic minus signs, and a dash for an undefined number.

    Examples
    --------
    >>> typeset("-5.0 to 4.2%, well-known"), typeset("-")
    ('−5.0 to 4.2%, well-known', '–')
    """
    if text == UNDEFINED:
        return "–"
    return _MINUS.sub("−", text)
