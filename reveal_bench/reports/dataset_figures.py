"""Figures and tables of the report, as HTML and SVG written by hand.

Text keeps its size on every screen: horizontal places in a figure are percentages of its width, vertical ones pixels.
Colours are CSS variables, so that the page is legible in the dark as well; every figure has a text for those who
cannot see it.

Shares with 95 % Wilson score intervals (Wilson 1927, J Am Stat Assoc 22:209).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Share", "bars", "co_occurrence", "from_markdown", "table", "wilson_interval"]

Z = 1.959963984540054
"""Standard normal quantile of 0.975."""


@dataclass(frozen=True, slots=True)
class Share:
    """`n` of `of`, with the interval of the share; `value` is NaN of none."""

    name: str
    n: int
    of: int

    @property
    def value(self) -> float:
        """The share in [0, 1]."""
        return self.n / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high)."""
        return wilson_interval(self.n, self.of)

    @property
    def text(self) -> str:
        """Such as ``187 of 668, 28.0 % (24.7 to 31.5)``."""
        if not self.of:
            return "0 of 0"
        low, high = self.interval
        return f"{self.n:,} of {self.of:,}, {100 * self.value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def wilson_interval(n: int, of: int) -> tuple[float, float]:
    """95 % Wilson score interval of the share n / of; (NaN, NaN) of none.

    Raises
    ------
    ValueError
        If `n` does not lie in [0, `of`].

    Examples
    --------
    >>> [round(bound, 4) for bound in wilson_interval(0, 10)]
    [0.0, 0.2775]
    """
    if not 0 <= n <= of:
        raise ValueError(f"`n` must lie in [0, {of}], got {n}")
    if of == 0:
        return math.nan, math.nan
    share, square = n / of, Z * Z
    centre = (share + square / (2 * of)) / (1 + square / of)
    half = Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    return max(0.0, centre - half), min(1.0, centre + half)


ROW_PX, BAR_PX, TOP_PX, AXIS_PX = 40, 12, 4, 40
LEFT, RIGHT = 1.0, 97.0
"""Where the axis begins and ends, in percent of the width."""


def bars(shares: Sequence[Share], *, unit: str, label: str) -> str:
    """Horizontal bars with whiskers for the 95 % interval.

    Parameters
    ----------
    unit : what the share is of, for the axis: "images"
    label : what the figure shows, for those who cannot see it
    """
    top = max((share.interval[1] for share in shares if share.of), default=0.0)
    limit, step = _axis(max(top, 0.01))
    bottom = TOP_PX + ROW_PX * len(shares)
    ticks = [step * i for i in range(round(limit / step) + 1)]
    parts = [_tick(tick, limit, bottom) for tick in ticks]
    parts += [_bar(share, limit, TOP_PX + ROW_PX * i) for i, share in enumerate(shares)]
    title = f"share of {unit} in percent, with 95 % interval"
    parts.append(f'<text class="axis" x="50%" y="{bottom + AXIS_PX - 6}" text-anchor="middle">{escape(title)}</text>')
    spoken = f"{label}. " + "; ".join(f"{share.name} {share.text}" for share in shares)
    height = bottom + AXIS_PX
    return f'<svg class="bars" role="img" aria-label="{escape(spoken)}" height="{height}">{"".join(parts)}</svg>'


def _axis(top: float) -> tuple[float, float]:
    """End and step of an axis from 0 that reaches `top`, with three to six ticks."""
    for step in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2):
        if top / step <= 5:
            return min(1.0, step * math.ceil(top / step - 1e-9)), step
    return 1.0, 0.2


def _place(value: float, limit: float) -> str:
    return f"{LEFT + (RIGHT - LEFT) * value / limit:.2f}%"


def _tick(value: float, limit: float, bottom: int) -> str:
    x = _place(value, limit)
    anchor = "start" if value == 0 else ("end" if abs(value - limit) < 1e-9 else "middle")
    percent = f"{100 * value:g}" + (" %" if abs(value - limit) < 1e-9 else "")
    return (
        f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP_PX}" y2="{bottom}"/>'
        f'<text class="axis" x="{x}" y="{bottom + 14}" text-anchor="{anchor}">{percent}</text>'
    )


def _bar(share: Share, limit: float, y: int) -> str:
    name = f'<text x="{LEFT}%" y="{y + 14}">{escape(share.name)}</text>'
    value = f"{share.n:,}" + (f" · {100 * share.value:.1f} %" if share.of else "")
    name += f'<text class="value" x="{RIGHT}%" y="{y + 14}" text-anchor="end">{value}</text>'
    if not share.of:
        return name
    low, high = (_place(bound, limit) for bound in share.interval)
    width = (RIGHT - LEFT) * share.value / limit
    top, middle = y + 19, y + 19 + BAR_PX / 2
    return (
        f'{name}<rect class="bar" x="{LEFT}%" y="{top}" width="{width:.2f}%" height="{BAR_PX}" rx="2"/>'
        f'<line class="whisker" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>'
        f'<line class="whisker" x1="{low}" x2="{low}" y1="{middle - 4}" y2="{middle + 4}"/>'
        f'<line class="whisker" x1="{high}" x2="{high}" y1="{middle - 4}" y2="{middle + 4}"/>'
    )


def co_occurrence(names: Sequence[str], positives: Mapping[int, int], pairs: Mapping[tuple[int, int], int]) -> str:
    """How often two findings are there together; the shade is the share of the row's finding.

    Findings that never occur are left out. Empty text if fewer than two are left.
    """
    used = [i for i in range(len(names)) if positives.get(i, 0)]
    if len(used) < 2:
        return ""
    heads = "".join(f'<th scope="col" title="{escape(names[j])}">{n}</th>' for n, j in enumerate(used, start=1))
    rows = []
    for n, i in enumerate(used, start=1):
        cells = []
        for j in used:
            both = positives[i] if i == j else pairs.get((min(i, j), max(i, j)), 0)
            share = both / positives[i]
            spoken = f"{both:,} of {positives[i]:,} with {names[i]} also have {names[j]}"
            kind = ' class="self"' if i == j else f' style="--share:{100 * share:.0f}%"'
            cells.append(f'<td{kind} title="{escape(spoken)}">{both:,}</td>')
        rows.append(f'<tr><th scope="row">{n} {escape(names[i])}</th>{"".join(cells)}</tr>')
    return (
        f'<div class="scroll"><table class="heat"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column names the row; cells are text."""
    top = "".join(f'<th scope="col">{_inline(head)}</th>' for head in heads)
    body = ""
    for row in rows:
        first = f'<th scope="row">{_inline(row[0])}</th>'
        body += f"<tr>{first}{''.join(_cell(cell) for cell in row[1:])}</tr>"
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def from_markdown(text: str) -> str:
    """The Markdown that the card's tables are written in: tables, bullets, paragraphs, code."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
            clean = [[cell.strip().replace("\\|", "|") for cell in line] for line in cells]
            parts.append(table(clean[0], clean[2:]))
        elif lines[0].startswith("* "):
            parts.append("<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>")
        else:
            parts.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "".join(parts)


def _cell(text: str) -> str:
    is_number = re.fullmatch(r"[\d.,]+( %)?", text) is not None
    return f'<td class="number">{text}</td>' if is_number else f"<td>{_inline(text)}</td>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
