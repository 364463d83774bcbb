"""The page of a report: one HTML file that holds all it shows, for screen, telephone and paper, without a script.

Every text that comes from a run is escaped. Figures are PNG in data URIs on white cards; figures and tables that are
wider than the screen scroll in boxes of their own, which the keyboard reaches.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import reveal_bench
from reveal_bench.analysis.runs import Scores, World
from reveal_bench.analysis.tables import NOTHING, Table

__all__ = ["Section", "ShownFigure", "figure_html", "methods_html", "page_html", "table_html"]

MOST_ON_PORTRAIT = 9
"""Columns of a table that fit on upright paper; wider ones are printed across."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --line: #d0d7de; --link: #1f5fa8;
  --panel: #f6f8fa; --warn: #6b4200; --warn-paper: #fff4db; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #a3adb8; --paper: #0f1318; --line: #333c46;
  --link: #7db8f0; --panel: #171d24; --warn: #ffd58a; --warn-paper: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 1rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.65rem; line-height: 1.2; margin: .6rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
a { color: var(--link); }
.sub, figcaption, .made { color: var(--soft); }
.sub { margin: .3rem 0 .8rem; }
.notice { margin: .4rem 0; padding: .5rem .8rem; color: var(--warn); background: var(--warn-paper); border-radius: 6px;
  font-weight: 600; }
.abstract { margin: 1rem 0; padding: .2rem 1rem; background: var(--panel); border-radius: 8px; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .8rem; }
p, li, figcaption, .abstract { max-width: 54rem; }
figure { margin: 1.4rem 0 2.2rem; max-width: 54rem; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.card { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; padding: .6rem; }
.card img { display: block; width: 100%; min-width: 660px; height: auto; }
figcaption { margin-top: .5rem; font-size: .92em; }
figcaption strong, .head strong { color: var(--ink); }
.head { margin: 1.4rem 0 .4rem; font-size: .92em; color: var(--soft); }
table { border-collapse: collapse; font-size: .84em; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .3rem .45rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { vertical-align: bottom; font-weight: 600; border-bottom: 2px solid var(--soft); max-width: 9rem; }
tbody th { font-weight: 400; min-width: 8.5rem; max-width: 14rem; position: sticky; left: 0; background: var(--paper); }
thead th:first-child, tbody th, .words td, .words thead th { text-align: left; }
td small { display: block; color: var(--soft); white-space: nowrap; font-size: .9em; }
td.best { font-weight: 700; }
td.best small { font-weight: 400; }
code { font-size: .88em; }
@page wide { size: A4 landscape; }
@media print { .wide { page: wide; }
  body { max-width: none; font-size: 10pt; } .card { border: 0; padding: 0; }
  nav { display: none; }
  figure, tr { break-inside: avoid; } .scroll { overflow: visible; } .card img { min-width: 0; }
  table { font-size: 7pt; } tbody th { position: static; min-width: 0; } th, td { padding: .15rem .3rem; } }
"""


@dataclass(frozen=True)
class ShownFigure:
    """A figure on the page: its PNG, and the paths of its files relative to the page."""

    title: str
    caption: str
    alt: str
    png: bytes
    files: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it; `key` is its anchor."""

    key: str
    heading: str
    html: str


def figure_html(number: int, figure: ShownFigure) -> str:
    """The figure with its number, caption and links to its files."""
    data = base64.b64encode(figure.png).decode("ascii")
    links = ", ".join(
        f'<a href="{escape(file)}">{escape(file.rpartition(".")[2].upper())}</a>' for file in figure.files
    )
    return (
        f'<figure><div class="card scroll" tabindex="0" role="group" aria-label="Figure {number}">'
        f'<img alt="{escape(figure.alt)}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption><strong>Figure {number}. {escape(figure.title)}.</strong> {_text(figure.caption)} "
        f"Files: {links}.</figcaption></figure>\n"
    )


def table_html(number: int, table: Table, file: str) -> str:
    """The table with its number, caption and a link to its CSV; words are set left, numbers right."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "".join(_row_html(table, i) for i in range(len(table.rows)))
    label = f"Table {number}. {table.title}"
    kind = ' class="words"' if table.is_words else ""
    wide = " wide" if len(table.head) > MOST_ON_PORTRAIT else ""
    return (
        f'<p class="head"><strong>{escape(label)}.</strong> {_text(table.caption)} '
        f'File: <a href="{escape(file)}">CSV</a>.</p>'
        f'<div class="scroll{wide}" tabindex="0" role="group" aria-label="{escape(label)}"><table{kind}>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )


def _text(text: str) -> str:
    """Escaped; a grid such as 8 × 8 is not broken."""
    return escape(text.replace(" × ", "\u00a0×\u00a0"))


def _row_html(table: Table, index: int) -> str:
    first, *rest = table.rows[index]
    cells = []
    for column, text in enumerate(rest, start=1):
        value, *below = text.split("\n")
        small = "".join(f"<small>{escape(line)}</small>" for line in below if line != NOTHING)
        best = ' class="best"' if (index, column) in table.best else ""
        cells.append(f"<td{best}>{_text(value)}{small}</td>")
    return f'<tr><th scope="row">{_text(first)}</th>{"".join(cells)}</tr>'


def page_html(title: str, subtitle: str, notices: Sequence[str], abstract: str, sections: Sequence[Section]) -> str:
    """The whole page; `abstract` and the sections are HTML, the rest is text."""
    told = "".join(f'<p class="notice">{escape(text)}</p>' for text in notices)
    links = "".join(f'<a href="#{section.key}">{escape(section.heading)}</a>' for section in sections)
    parts = "".join(
        f'<section id="{section.key}"><h2>{escape(section.heading)}</h2>\n{section.html}</section>\n'
        for section in sections
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f'<style>{STYLE}</style></head>\n<body><header><h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p>'
        f'{told}<div class="abstract">{abstract}</div><nav aria-label="Sections">{links}</nav></header>\n'
        f"<main>{parts}</main></body></html>\n"
    )


def methods_html(scores: Scores, world: World) -> str:
    """HTML paragraphs; what they say of hits, chance and categories is how this package computes them."""
    grids = sorted({run.grid for run in scores.runs})
    named = " and ".join(f"{grid} × {grid}" for grid in grids)
    metrics = sorted({run.metric for run in scores.runs} | {"grid_chance"})
    several = max(len(run.epochs) for run in scores.runs) > 1
    what = (
        "Each question names one image and one finding that is present in it"
        if world.info.asks == "present"
        else "Scored are the pairs of an image and a finding that have a reference"
    )
    paragraphs = [
        f"{what}. The central square of the image, whose side is its short side, is divided into {named} equal cells. "
        "A predicted cell is a hit if the reference covers at least half of its area; where the reference covers half "
        "of no cell, any cell that it touches is a hit. A run that predicts points, boxes or masks is scored by the "
        "point that it names, or else the centre of its box or the pixel deepest in its mask: a hit if the point lies "
        "in the reference. Questions without a usable answer are misses. The mean hit rate is the unweighted mean over "
        "pathologies."
        + (" A run of several epochs has, for each question, the mean of its epochs." if several else ""),
        "The chance level of an image is the share of its cells that would be hits; of a pathology, the mean over its "
        "images.",
        f"Patients, all {len({record.patient_id for record in world.records}):,} of the split, were resampled with "
        f"replacement {scores.n_resamples:,} times (seed {scores.seed}); one draw serves all runs, so that differences "
        "are paired. Standard deviations are those of the resampled means; intervals run from their 2.5th to their "
        "97.5th percentile.",
        "Errors were categorized on frontal images: full hit, as above; partial hit, a cell that the reference touches "
        "but that is no hit; else position error if the finding could lie in the cell, and anatomy error if it could "
        "not, as readers or known anatomy say; what neither says is not reviewed.",
        "The definitions follow Gosai et al., Beyond Diagnosis: Evaluating Multimodal LLMs for Pathology Localization "
        "in Chest Radiographs (arXiv 2509.18015), sections 3.3, 3.4 and 4.1, except that patients are resampled, "
        "not images.",
    ]
    recipes = "".join(f"<li><code>{escape(scores.recipe(metric))}</code></li>" for metric in metrics)
    made = f"{world.info.benchmark} {world.info.version}, split {world.split}; reveal-bench {reveal_bench.__version__}."
    return (
        "".join(f"<p>{escape(text)}</p>\n" for text in paragraphs)
        + f'<p>Signatures of the numbers:</p><ul>{recipes}</ul>\n<p class="made">{escape(made)}</p>\n'
    )
