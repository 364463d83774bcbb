"""Pieces of the report's HTML: the page itself, sections, tables, figures and messages.

Every function escapes the texts it is given; parameters called `markup` are HTML already. A page needs no other file,
no script and no network, follows the reader's choice of light and dark, and prints on A4.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reveal_bench.reports.drawing import STYLE, Drawing, text

__all__ = [
    "Section", "Table", "figure", "interval", "message", "number", "page", "paragraph", "percent", "section", "share",
    "table",
]  # fmt: skip

NBSP = "\u00a0"
MOST_ON_ONE_PAGE = 20
"""Rows of a table that is not divided in print."""

CSS = """:root { color-scheme: light dark; --ink: #16202b; --soft: #4c5a69; --grid: #dfe5ea; --line: #c4ced7;
  --page: #ffffff; --band: #f1f4f7; --link: #0b5f57; --warn: #8a1c1c; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e9eef3; --soft: #b3bfcb; --grid: #33404c;
  --line: #465463; --page: #11181f; --band: #1b242d; --link: #7fd8cd; --warn: #ff9c9c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; overflow-wrap: anywhere; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1.1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .8rem 0 .2rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.6rem 0 .2rem; padding-top: .7rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
a { color: var(--link); }
a:focus-visible, [tabindex]:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
p { margin: .4rem 0; max-width: 46rem; }
.lead, .source, .note, caption, figcaption span { color: var(--soft); }
.source { font-size: .88rem; margin: 0 0 .6rem; }
.note { font-size: .88rem; }
nav ul { columns: 2; column-gap: 2rem; margin: .6rem 0; padding-left: 1.1rem; max-width: 40rem; }
.message { border: 1px solid var(--line); border-left: 5px solid var(--soft); border-radius: 4px;
  background: var(--band); padding: .55rem .8rem; margin: .8rem 0; max-width: 46rem; }
.message.warn { border-left-color: var(--warn); } .message.warn strong { color: var(--warn); }
figure { margin: 1rem 0 1.4rem; } figcaption { font-weight: 600; margin-bottom: .5rem; max-width: 46rem; }
figcaption span { display: block; font-weight: 400; font-size: .88rem; }
.cu-svg { display: block; width: 100%; height: auto; max-width: 720px; } .cu-narrow { display: none; }
@media screen and (max-width: 700px) { .cu-wide { display: none; } .cu-narrow { display: block; max-width: 480px; }
  nav ul { columns: 1; } table td.n { white-space: normal; } main { padding-left: .8rem; padding-right: .8rem; }
  h1 { font-size: 1.4rem; } }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .35rem; font-size: .9rem; }
th, td { padding: .26rem .7rem .26rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--grid);
  font-weight: 400; overflow-wrap: break-word; }
thead th { font-weight: 600; vertical-align: bottom; border-bottom: 1.5px solid var(--ink); }
td.n, th.n { text-align: right; padding-left: .5rem; } td.n { white-space: nowrap; }
tr.group th { font-weight: 600; padding-top: .6rem; } tr.group td { padding-top: .6rem; }
tr.in th { padding-left: 1.1rem; }
.blocks { columns: 2 22rem; column-gap: 2.4rem; margin: .6rem 0; }
.blocks .scroll { break-inside: avoid; margin: 0 0 1.1rem; padding: .2rem 0; }
.blocks table { width: 100%; } .blocks tbody th { overflow-wrap: anywhere; min-width: 8.5rem; }
caption span { display: block; max-width: calc(100vw - 2rem); }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@page { size: A4; margin: 16mm 15mm; }
@media print { body { font-size: 10.5pt; } main { max-width: none; padding: 0; } nav { display: none; }
  h1 { font-size: 17pt; } h2 { font-size: 13.5pt; margin-top: 1.6rem; }
  h2, h3, figcaption, caption, .source { break-after: avoid; }
  figure, tr, .message { break-inside: avoid; } thead { display: table-header-group; } .scroll { overflow: visible; }
  .scroll.whole { break-inside: avoid; }
  .blocks { columns: 2; } a { color: inherit; text-decoration: none; } }
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table for a page and for a CSV file: heads, and rows of texts; None stands for undefined."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def csv(self) -> str:
        """As CSV. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.heads)
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return out.getvalue()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: `source` names the table or figure of the paper; drawings and tables become files, too."""

    key: str
    title: str
    source: str
    markup: str
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()


def page(title: str, lead: str, notice: str, sections: Sequence[Section]) -> str:
    """The whole page; `notice` is HTML above all sections."""
    links = "".join(f'<li><a href="#{text(one.key)}">{text(one.title)}</a></li>' for one in sections)
    parts = "".join(
        f'<section id="{text(one.key)}" aria-labelledby="{text(one.key)}-h"><h2 id="{text(one.key)}-h">'
        f'{text(one.title)}</h2><p class="source">{text(one.source)}</p>{one.markup}</section>\n'
        for one in sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="robots" content="noindex">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{text(title)}</title>\n<style>\n{CSS}{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1>{text(title)}</h1><p class="lead">{text(lead)}</p>{notice}</header>\n'
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n{parts}</main>\n</body>\n</html>\n'
    )


def section(key: str, title: str, source: str, *parts: str | Drawing | Table) -> Section:
    """A section of parts in order; a drawing comes with :func:`figure`, a table is only written as a file."""
    markup = "".join(
        figure(part) if isinstance(part, Drawing) else part for part in parts if not isinstance(part, Table)
    )
    return Section(
        key,
        title,
        source,
        markup,
        tuple(part for part in parts if isinstance(part, Drawing)),
        tuple(part for part in parts if isinstance(part, Table)),
    )


def figure(drawing: Drawing) -> str:
    """A drawing with its title."""
    return f"<figure><figcaption>{text(drawing.title)}</figcaption>{drawing.inline()}</figure>"


def message(title: str, body: str = "", *, is_warning: bool = False) -> str:
    """A box with a sentence."""
    kind = "message warn" if is_warning else "message"
    return f'<div class="{kind}" role="note"><strong>{text(title)}</strong> {text(body)}</div>'


def paragraph(words: str, *, is_note: bool = False) -> str:
    """A paragraph."""
    kind = ' class="note"' if is_note else ""
    return f"<p{kind}>{text(words)}</p>"


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    n_texts: int = 1,
    groups: Sequence[int] = (),
    inside: Sequence[int] = (),
    words: Sequence[int] = (),
    is_caption_shown: bool = True,
) -> str:
    """A table; the first column names the row, columns from `n_texts` on are numbers.

    Parameters
    ----------
    groups, inside : rows that head a group, and rows that belong to one
    words : columns that are texts all the same
    is_caption_shown : or else it is only heard
    """
    kinds = ["" if i < n_texts or i in words else ' class="n"' for i in range(len(heads))]
    head = "".join(f'<th scope="col"{kind}>{text(one)}</th>' for one, kind in zip(heads, kinds, strict=True))
    seen = "" if is_caption_shown else ' class="unseen"'
    body = []
    for i, row in enumerate(rows):
        first, *others = row
        cells = "".join(f"<td{kind}>{text(one)}</td>" for one, kind in zip(others, kinds[1:], strict=True))
        kind = ' class="group"' if i in groups else ' class="in"' if i in inside else ""
        body.append(f'<tr{kind}><th scope="row">{text(first)}</th>{cells}</tr>')
    spoken = text(caption)
    whole = " whole" if len(body) <= MOST_ON_ONE_PAGE else ""
    return (
        f'<div class="scroll{whole}" role="region" tabindex="0" aria-label="{spoken}"><table>'
        f"<caption{seen}><span>{spoken}</span></caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def number(value: float | None, digits: int = 3) -> str:
    """A number with its digits and a true minus; "undefined" without one."""
    if value is None or value != value:
        return "undefined"
    shown = f"{value:.{digits}f}"
    return (shown.removeprefix("-") if not float(shown) else shown).replace("-", "−")


def interval(estimate: Mapping[str, Any], digits: int = 3, *, scale: float = 1.0) -> str:
    """`value`, `low` and `high`, times `scale`, as the paper prints them: 0.484 [0.440, 0.524]."""
    value, low, high = (None if estimate[end] is None else scale * estimate[end] for end in ("value", "low", "high"))
    if value is None or low is None or high is None:
        return number(value, digits)
    return f"{number(value, digits)} [{number(low, digits)},{NBSP}{number(high, digits)}]"


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction as a percent."""
    return "undefined" if fraction is None or fraction != fraction else f"{number(100 * fraction, digits)} %"


def share(n: int, of: int) -> str:
    """A count and its share, as 23 (23 %)."""
    if not of:
        return f"{n:,}"
    shown = percent(n / of, 0).replace(" ", NBSP)
    return f"{n:,} (<{NBSP}1{NBSP}%)" if n and shown.startswith("0") else f"{n:,} ({shown})"


def _cell(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
