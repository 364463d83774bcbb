"""Drawings as SVG, made here: marks with intervals, bars, columns, and the words in them.

Conventions
-----------
A drawing is laid out for a width, in CSS pixels: :data:`WIDE` for a desk and for paper, :data:`NARROW` for a telephone.
The first series is filled, the second hollow: shape says it, colour repeats it. Colours are variables of :data:`STYLE`,
light and dark. Text is real text, as wide as Arial sets it; characters that XML forbids, or that turn the direction of
writing, become U+FFFD. The same input gives the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = [
    "NARROW", "STYLE", "WIDE", "Drawing", "Point", "bars", "columns", "dots", "shortened", "strip", "text",
    "text_width", "wrapped", "written",
]  # fmt: skip

WIDE, NARROW = 720, 340
SIZE = 13
LINE = 16
LEGEND = 24

STYLE = """.cu-svg { --ink: #16202b; --soft: #4c5a69; --grid: #dfe5ea; --page: #ffffff; --first: #0b5f57;
  --second: #8f3d00; --band: #f1f4f7; font: 13px Arial, "Liberation Sans", Helvetica, sans-serif; fill: var(--ink); }
@media screen and (prefers-color-scheme: dark) { .cu-svg { --ink: #e9eef3; --soft: #b3bfcb; --grid: #33404c;
  --page: #11181f; --first: #5fcabd; --second: #f0a868; --band: #1b242d; } }
.cu-svg .soft { fill: var(--soft); } .cu-svg .bold { font-weight: bold; }
.cu-svg .grid { stroke: var(--grid); stroke-width: 1; } .cu-svg .rule { stroke: var(--ink); stroke-dasharray: 4 3; }
.cu-svg .line { stroke: var(--ink); stroke-width: 1.3; fill: none; }
.cu-svg .a { fill: var(--first); stroke: var(--first); stroke-width: 1.6; }
.cu-svg .b { fill: var(--page); stroke: var(--second); stroke-width: 1.8; }
.cu-svg .tick { stroke: var(--second); stroke-width: 2; }
.cu-svg .box { fill: var(--page); stroke: var(--ink); stroke-width: 1.2; } .cu-svg .aside { fill: var(--band); }
.cu-svg .open { stroke-dasharray: 5 4; stroke: var(--soft); }
"""

_WIDTHS = {
    222: "ijl'", 278: " !,./:;It[]\\f|", 333: "()-r`", 389: '*"{}', 500: "Jckrsvxyz", 584: "+<=>~^", 611: "FTZ",
    667: "ABEKPSVXY&", 722: "CDHNRUw", 778: "GOQ", 833: "Mm", 889: "%", 944: "W", 1015: "@",
}  # fmt: skip
_THOUSANDTHS = {letter: width for width, letters in _WIDTHS.items() for letter in letters}
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)  # and what follows becomes a space
_BLANK = re.compile(r"[ \t\r\n]+")  # one that does not break stays


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure; `draw` gives its shapes and its height for a width. `name` is that of its file."""

    name: str
    title: str
    description: str
    draw: Callable[[int], tuple[str, float]]

    def svg(self, width: int, *, css_class: str = "", style: str = "") -> str:
        """One SVG element, with title and description for those who do not see it."""
        shapes, height = self.draw(width)
        key = f"{self.name}-{width}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="cu-svg {css_class}" viewBox="0 0 {width} {height:.0f}" '
            f'role="img" aria-labelledby="{key}-t {key}-d"><title id="{key}-t">{text(self.title)}</title>'
            f'<desc id="{key}-d">{text(self.description)}</desc>{style}{shapes}</svg>'
        )

    def inline(self) -> str:
        """For a page, which shows one of the two by its width."""
        return self.svg(WIDE, css_class="cu-wide") + self.svg(NARROW, css_class="cu-narrow")

    def file(self) -> str:
        """For a file of its own."""
        return self.svg(WIDE, style=f"<style>{STYLE}</style>") + "\n"


@dataclass(frozen=True, slots=True)
class Point:
    """A value with its interval; a value of None is undefined, an infinite one is drawn at the end of the scale.

    `kind` is the place of its series.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    kind: int = 0


def text(value: object) -> str:
    """Any value as text that cannot be markup."""
    return escape(_BLANK.sub(" ", _FORBIDDEN.sub("\ufffd", str(value))), quote=True)


def text_width(words: str, size: float = SIZE) -> float:
    """How wide Arial sets `words`; letters that it does not know count as wide."""
    return sum(_THOUSANDTHS.get(letter, 556 if letter.isascii() else 1000) for letter in words) * size / 1000


def wrapped(words: str, width: float, size: float = SIZE) -> list[str]:
    """Lines no wider than `width`; a word that is wider is broken.

    Examples
    --------
    >>> wrapped("Interstitial opacity", 80)
    ['Interstitial', 'opacity']
    """
    lines = [""]
    for word in words.split():
        if text_width(f"{lines[-1]} {word}".strip(), size) <= width:
            lines[-1] = f"{lines[-1]} {word}".strip()
            continue
        lines += [""] if lines[-1] else []
        for letter in word:
            if lines[-1] and text_width(lines[-1] + letter, size) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def shortened(words: str, width: float, n_lines: int, size: float = SIZE) -> list[str]:
    """The first `n_lines` of :func:`wrapped`; three dots say that there is more."""
    lines = wrapped(words, width, size)
    if len(lines) <= n_lines:
        return lines
    last = lines[n_lines - 1]
    while last and text_width(last + "…", size) > width:
        last = last[:-1]
    return [*lines[: n_lines - 1], last.rstrip() + "…"]


def written(x: float, y: float, words: object, *, anchor: str = "start", css_class: str = "") -> str:
    """Words at a place; y is the baseline."""
    kind = f' class="{css_class}"' if css_class else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{text(words)}</text>'


def dots(
    name: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[Point]]],
    *,
    axis: str,
    kinds: Sequence[str],
    ends: tuple[float, float],
    step: float,
    rules: Mapping[float, str] | None = None,
) -> Drawing:
    """A row per name, in it a mark with its interval per point: a forest plot, or a plot of balance.

    Parameters
    ----------
    kinds : names of the series
    ends, step : of the scale, and between its ticks
    rules : place -> what a dashed line there is
    """

    def draw(width: int) -> tuple[str, float]:
        left, right = _gutter(width, [row for row, _ in rows]), width - 14
        heights = [max(len(points), 1) * 13 + 11 for _, points in rows]
        top, bottom = LEGEND * len(_legend_lines(kinds, width)) + 6, 0.0
        bottom = top + sum(heights)

        def at(value: float) -> float:
            share = (min(max(value, ends[0]), ends[1]) - ends[0]) / (ends[1] - ends[0])
            return left + share * (right - left)

        shapes = [_legend(kinds, width), _scale(_ticks(*ends, step), at, top, bottom, step)]
        for place, words in (rules or {}).items():
            shapes.append(f'<line x1="{at(place):.1f}" x2="{at(place):.1f}" y1="{top}" y2="{bottom}" class="rule"/>')
            shapes.append(written(at(place) + 4, top + 10, words, css_class="soft"))
        y = float(top)
        for (row, points), height in zip(rows, heights, strict=True):
            shapes.append(_row_name(row, left, y + height / 2, height))
            for i, point in enumerate(points):
                shapes.append(_mark(point, at, y + 12 + 13 * i, ends))
            y += height
        lines = wrapped(axis, right - left)
        shapes += [
            written((left + right) / 2, bottom + 36 + LINE * i, line, anchor="middle") for i, line in enumerate(lines)
        ]
        return "".join(shapes), bottom + 28 + LINE * len(lines)

    return Drawing(name, title, description, draw)


def bars(
    name: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[int | None]]],
    *,
    axis: str,
    kinds: Sequence[str],
    hidden: str = "",
) -> Drawing:
    """Horizontal bars, one per series and row; None is written as `hidden`."""

    def draw(width: int) -> tuple[str, float]:
        left, right = _gutter(width, [row for row, _ in rows]), width - 34
        height = 13 * len(kinds) + 9
        top = LEGEND * len(_legend_lines(kinds, width)) + 6
        bottom, most = top + height * len(rows), _most(rows)
        step = _step(most, 5 if width == WIDE else 3)
        end = max(math.ceil(most / step), 1) * step

        def at(value: float) -> float:
            return left + value / end * (right - left)

        shapes = [_legend(kinds, width, is_bar=True), _scale(_ticks(0, end, step), at, top, bottom, step)]
        for i, (row, values) in enumerate(rows):
            y = top + i * height
            shapes.append(_row_name(row, left, y + height / 2, height))
            for k, value in enumerate(values):
                place = y + 5 + 13 * k
                if value is None:
                    shapes.append(written(left + 4, place + 10, hidden, css_class="soft"))
                    continue
                wide = at(value) - left
                shapes.append(
                    f'<rect x="{left}" y="{place}" width="{wide:.1f}" height="10" class="{"ab"[k]}"/>'
                    + written(at(value) + 5, place + 10, value)
                )
        shapes.append(written((left + right) / 2, bottom + 36, axis, anchor="middle"))
        return "".join(shapes), bottom + 44

    return Drawing(name, title, description, draw)


def columns(
    name: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[int | None]]],
    *,
    across: str,
    upwards: str,
    kinds: Sequence[str],
    hidden: str = "",
) -> Drawing:
    """Upright bars, one per series and row; None is written as `hidden`."""

    def draw(width: int) -> tuple[str, float]:
        left, right, high = 52, width - 8, 200
        top = LEGEND * len(_legend_lines(kinds, width)) + 20
        bottom, most = top + high, _most(rows)
        step = _step(most, 5)
        end = max(math.ceil(most / step), 1) * step
        slot = (right - left) / max(len(rows), 1)
        wide = min(34.0, (slot - 6) / max(len(kinds), 1) - 4)
        shapes = [_legend(kinds, width, is_bar=True)]
        for tick in _ticks(0, end, step):
            y = bottom - tick / end * high
            shapes.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            shapes.append(written(left - 6, y + 4, f"{tick:.0f}", anchor="end", css_class="soft"))
        for i, (row, values) in enumerate(rows):
            middle = left + slot * (i + 0.5)
            for k, value in enumerate(values):
                x = middle + (k - len(values) / 2) * (wide + 4) + 2
                tall = 0.0 if value is None else value / end * high
                shapes.append(
                    f'<rect x="{x:.1f}" y="{bottom - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
                    f'class="{"ab"[k]}"/>'
                    + written(x + wide / 2, bottom - tall - 5, hidden if value is None else value, anchor="middle")
                )
            shapes.append(written(middle, bottom + 17, row, anchor="middle"))
        shapes.append(written((left + right) / 2, bottom + 38, across, anchor="middle"))
        middle = (top + bottom) / 2
        shapes.append(f'<g transform="rotate(-90 14 {middle})">{written(14, middle, upwards, anchor="middle")}</g>')
        return "".join(shapes), bottom + 46

    return Drawing(name, title, description, draw)


def strip(name: str, title: str, description: str, values: Sequence[float | None], taken: int, *, axis: str) -> Drawing:
    """Every value as a tick on one scale from 0, the one numbered `taken` (from 1) as a filled dot."""

    def draw(width: int) -> tuple[str, float]:
        left, right, top, bottom = 20, width - 20, 34, 70
        known = [value for value in values if value is not None]
        step = _fine_step(max([*known, 0.1]))
        end = math.ceil(round(max([*known, 0.1]) / step, 6)) * step

        def at(value: float) -> float:
            return left + value / end * (right - left)

        shapes = [_scale(_ticks(0, end, step), at, top, bottom, step)]
        shapes += [f'<line x1="{at(one):.1f}" x2="{at(one):.1f}" y1="42" y2="62" class="tick"/>' for one in known]
        chosen = values[taken - 1] if values else None
        if chosen is not None:
            shapes.append(f'<circle cx="{at(chosen):.1f}" cy="52" r="6" class="a"/>')
            x = min(max(at(chosen), 50), width - 50)
            shapes.append(written(x, 26, f"taken: {chosen:.3f}", anchor="middle", css_class="bold"))
        shapes += [written(width / 2, bottom + 36 + LINE * i, line, anchor="middle") for i, line in
                   enumerate(wrapped(axis, width - 20))]  # fmt: skip
        return "".join(shapes), bottom + 28 + LINE * len(wrapped(axis, width - 20))

    return Drawing(name, title, description, draw)


def _gutter(width: int, names: Sequence[str]) -> float:
    """Room for the names of rows."""
    most = 190 if width == WIDE else 108
    return min(max([text_width(name) for name in names] + [40]), most) + 10


def _row_name(name: str, left: float, middle: float, height: float) -> str:
    lines = shortened(name, left - 8, 2 if height >= 2 * LINE - 4 else 1)
    y = middle + 5 - LINE / 2 * (len(lines) - 1)
    whole = f"<title>{text(name)}</title>"
    drawn = "".join(written(left - 8, y + LINE * i, line, anchor="end") for i, line in enumerate(lines))
    return f"<g>{whole}{drawn}</g>"


def _mark(point: Point, at: Callable[[float], float], y: float, ends: tuple[float, float]) -> str:
    if point.value is None or math.isnan(point.value):
        return written(at(ends[0]) + 4, y + 4, "undefined", css_class="soft")
    kind, shapes = "ab"[point.kind], ""
    if point.low is not None and point.high is not None:
        shapes = f'<line x1="{at(point.low):.1f}" x2="{at(point.high):.1f}" y1="{y}" y2="{y}" class="line"/>'
    x = at(point.value)
    if kind == "a":
        return shapes + f'<circle cx="{x:.1f}" cy="{y}" r="4" class="a"/>'
    return shapes + f'<path d="M{x:.1f} {y - 5}l5 5l-5 5l-5 -5z" class="b"/>'


def _legend_lines(kinds: Sequence[str], width: int) -> list[list[int]]:
    """The places of series, line by line."""
    lines: list[list[int]] = []
    room = 0.0
    for k, kind in enumerate(kinds):
        need = text_width(kind) + 44
        if not lines or room < need:
            lines.append([])
            room = width
        lines[-1].append(k)
        room -= need
    return lines


def _legend(kinds: Sequence[str], width: int, *, is_bar: bool = False) -> str:
    shapes = []
    for i, line in enumerate(_legend_lines(kinds, width)):
        x, y = 8.0, 12 + LEGEND * i
        for k in line:
            if is_bar:
                shapes.append(f'<rect x="{x}" y="{y - 5}" width="16" height="10" class="{"ab"[k]}"/>')
            else:
                shapes.append(_mark(Point(x + 8, kind=k), float, y, (0, 1)))
            shapes.append(written(x + 24, y + 5, kinds[k]))
            x += text_width(kinds[k]) + 44
    return "".join(shapes)


def _scale(ticks: Sequence[float], at: Callable[[float], float], top: float, bottom: float, step: float) -> str:
    digits = 0 if step >= 1 else 2 if step < 0.1 else 1
    return "".join(
        f'<line x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{top}" y2="{bottom + 4}" class="grid"/>'
        + written(at(tick), bottom + 18, f"{tick:.{digits}f}".replace("-", "−"), anchor="middle", css_class="soft")
        for tick in ticks
    )


def _ticks(low: float, high: float, step: float) -> list[float]:
    found = [low + i * step for i in range(round((high - low) / step) + 1)]
    return [0.0 if abs(tick) < step / 1000 else tick for tick in found]


def _most(rows: Sequence[tuple[str, Sequence[int | None]]]) -> int:
    return max([value for _, values in rows for value in values if value is not None], default=1) or 1


def _step(most: float, wanted: int) -> float:
    """1, 2 or 5 times a power of ten, at least 1: about `wanted` steps."""
    size = 10.0 ** math.floor(math.log10(max(most / wanted, 1)))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor * wanted >= most)


def _fine_step(most: float) -> float:
    return next((step for step in (0.02, 0.05, 0.1, 0.2, 0.5) if step * 8 >= most), _step(most, 6))
