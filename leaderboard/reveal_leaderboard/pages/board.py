"""The board: who stands where, with intervals drawn, and the papers' rows beside."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import gradio as gr

from reveal_bench.metrics import Metric
from reveal_leaderboard.intake import Intake
from reveal_leaderboard.metadata import KINDS
from reveal_leaderboard.pages import drawing
from reveal_leaderboard.pages.drawing import text
from reveal_leaderboard.references import ReferenceRow
from reveal_leaderboard.standings import METRIC_NAMES, Entry, Standings, standings

__all__ = ["build", "render"]

OVERVIEW = "Overview"
VIEWS = {OVERVIEW: None, "Hit rate": "point_hit", "Grid hit": "grid_hit", "IoU": "mask_iou_all"}
REFERENCE_KINDS = {"human": "human readers", "chance": "chance", **KINDS}
FACTS = ("Kind", "Prompt", "Date")
LOADING = drawing.message("busy", "Reading the board …")

# Keeps the choice in the address, so that a view can be linked to.
REMEMBER = """(benchmark, view) => {
  const query = new URLSearchParams({benchmark: benchmark, view: view});
  history.replaceState(null, "", "?" + query.toString());
  return [benchmark, view];
}"""

log = logging.getLogger(__name__)


def build(intake: Intake, page: gr.Blocks) -> None:
    """Lay out `page`, which is the present Blocks."""
    names = list(intake.published)
    gr.HTML(
        "<header class='rv-head'><h1>REVEAL leaderboard</h1><p>Localization of findings on chest radiographs, "
        "scored against a holdout whose references this server cannot open.</p></header>"
    )
    with gr.Row(elem_classes="rv-controls"):
        benchmark = gr.Dropdown(names, value=names[0], label="Benchmark", min_width=220)
        view = gr.Radio(list(VIEWS), value=OVERVIEW, label="Columns", min_width=320)
    shown = gr.HTML(LOADING, elem_id="board")

    def show(benchmark: str, view: str) -> str:
        if benchmark not in intake.published or view not in VIEWS:
            return drawing.message("bad", "This board does not exist.", f"Served here: {', '.join(names)}.")
        try:
            return render(standings(intake.store, intake.published[benchmark]), view)
        except Exception:
            log.exception("the board of %s could not be drawn", benchmark)
            return drawing.message("bad", "The board cannot be read now.", "Please reload the page in a moment.")

    def open_page(request: gr.Request) -> tuple[str, str, str]:
        asked = request.query_params
        name = asked.get("benchmark") if asked.get("benchmark") in intake.published else names[0]
        columns = asked.get("view") if asked.get("view") in VIEWS else OVERVIEW
        return name, columns, show(name, columns)

    gr.on([benchmark.input, view.input], show, [benchmark, view], shown, js=REMEMBER, api_visibility="private")
    page.load(open_page, None, [benchmark, view, shown], api_visibility="private")


def render(board: Standings, view: str = OVERVIEW) -> str:
    """The board as HTML; every text of a submitter is escaped."""
    metric = next((m for m in board.metrics if m.name == VIEWS[view]), None)
    columns = _columns(board, metric)
    head = [_head_model(), *(title for title, _, _ in columns), *(() if metric else FACTS)]
    groups = []
    if board.entries:
        rows = "".join(_entry_row(entry, columns, board, has_facts=metric is None) for entry in board.entries)
        groups.append(f"<tbody>{rows}</tbody>")
    if board.comparable:
        groups.append(_reference_group(board.references, columns, len(head), has_facts=metric is None))
    parts = [_summary(board)]
    if board.synthetic:
        made_up = "A program drew the images and the findings: no figure here says anything about patients."
        parts.append(drawing.message("info", "This benchmark is synthetic.", made_up))
    if not board.entries:
        parts.append(
            drawing.message("info", "No submission is scored yet.", "The first one is sent on the page “Submit”.")
        )
    if groups:
        parts.append(drawing.table(head, groups, label=f"Board of {board.benchmark}, {view}", css_class="rv-board"))
    parts.append(_legend(board))
    if not board.comparable and board.references:
        parts.append(_apart(board, columns, has_facts=metric is None))
    return "".join(parts)


Column = tuple[str, Metric, str]


def _columns(board: Standings, metric: Metric | None) -> list[Column]:
    """(heading, metric, finding) of every column of figures."""
    if metric is None:
        return [(_head_metric(m, f"Macro {m.title}"), m, "macro") for m in board.metrics]
    macro = (_head_metric(metric, f"Macro {metric.title}"), metric, "macro")
    return [macro, *((text(finding), metric, finding) for finding in board.findings)]


def _head_metric(metric: Metric, title: str) -> str:
    arrow = {"higher": "↑", "lower": "↓", "neither": ""}[metric.better]
    direction = f'<span class="rv-direction">{arrow} {metric.better} is better</span>' if arrow else ""
    return f"{text(title)}, %{direction}"


def _head_model() -> str:
    return '<span class="rv-rank">#</span>Model'


def _summary(board: Standings) -> str:
    n = len(board.entries)
    counted = f"{n} scored submission{'' if n == 1 else 's'}"
    exports = " · ".join(
        f'<a href="/api/v1/leaderboard?benchmark={text(board.benchmark)}&amp;format={form}">{form.upper()}</a>'
        for form in ("csv", "json")
    )
    return (
        f'<p class="rv-summary"><strong>{text(board.benchmark)}</strong> {text(board.version)}, split '
        f"{text(board.split)} · {counted} · ranked by macro {text(board.metrics[0].title.lower())} · "
        f"download {exports}</p>"
    )


def _entry_row(entry: Entry, columns: Sequence[Column], board: Standings, *, has_facts: bool) -> str:
    rank = "–" if entry.rank is None else str(entry.rank)
    version = f" {text(entry.model_version)}" if entry.model_version else ""
    name = f'<span class="rv-rank">{rank}</span><span class="rv-name">{text(entry.model)}{version}</span>'
    model = f'<th scope="row">{name}<span class="rv-team">{text(entry.team)}</span></th>'
    facts = (KINDS.get(entry.kind, entry.kind), entry.prompt_style or "–", entry.date)
    cells = [_entry_cell(entry, metric, finding, board) for _, metric, finding in columns]
    return f"<tr>{model}{''.join(cells)}{_fact_cells(facts) if has_facts else ''}</tr>"


def _fact_cells(facts: Sequence[str]) -> str:
    return "".join(f'<td class="rv-facts">{text(fact)}</td>' for fact in facts)


def _entry_cell(entry: Entry, metric: Metric, finding: str, board: Standings) -> str:
    figure = entry.figure(metric.name, finding)
    if figure is not None:
        return drawing.figure_cell(figure)
    has_metric = any(figure.metric == metric.name for figure in entry.score.figures)
    if has_metric or finding in entry.score.hidden:
        return f'<td class="rv-none" title="fewer than {board.min_cell} cases: not shown">–</td>'
    return '<td class="rv-none" title="the file has nothing that this metric needs">n/a</td>'


def _reference_group(rows: Sequence[ReferenceRow], columns: Sequence[Column], width: int, *, has_facts: bool) -> str:
    """Published rows that have a figure in one of the columns."""
    metrics = {metric.name for _, metric, _ in columns}
    body = "".join(_reference_row(row, columns, has_facts=has_facts) for row in rows if metrics & set(row.figures))
    title = "Published rows, measured on the whole CheXlocalize test set: for reference, not ranked"
    head = f'<tr class="rv-group"><th colspan="{width}"><span>{title}</span></th></tr>'
    return f'<tbody class="rv-reference">{head}{body}</tbody>'


def _reference_row(row: ReferenceRow, columns: Sequence[Column], *, has_facts: bool) -> str:
    source = f"{_authors(row.citation)}, {row.place}"
    link = f'<a href="{text(row.url)}" title="{text(row.protocol)}" rel="noopener">{text(source)}</a>'
    style = f", {text(row.prompt_style)}" if row.prompt_style else ""
    model = (
        f'<th scope="row"><span class="rv-name">{text(row.name)}{style}</span>'
        f'<span class="rv-team">{drawing.badge("reference")}{link}</span></th>'
    )
    facts = (REFERENCE_KINDS[row.kind], row.prompt_style or "–", _year(row.citation))
    cells = [_reference_cell(row, metric.name, finding) for _, metric, finding in columns]
    return f"<tr>{model}{''.join(cells)}{_fact_cells(facts) if has_facts else ''}</tr>"


def _reference_cell(row: ReferenceRow, metric: str, finding: str) -> str:
    if finding == "macro" and metric in row.macro:
        value, origin = row.macro[metric]
        note = f'<span class="rv-origin">{text(origin)}</span>'
    elif finding in row.figures.get(metric, {}):
        value, note = row.figures[metric][finding], ""
    else:
        return '<td class="rv-none" title="not published">n/a</td>'
    shown = drawing.percent(value, 1)
    return f'<td class="rv-figure"><span class="rv-value">{shown}</span>{drawing.interval_bar(value)}{note}</td>'


def _authors(citation: str) -> str:
    return f"{citation.split()[0]} et al. {_year(citation)}"


def _year(citation: str) -> str:
    years = re.findall(r"\b(?:19|20)\d\d\b", citation)
    return years[-1] if years else "–"


def _legend(board: Standings) -> str:
    hidden = f" Here: {', '.join(text(finding) for finding in board.hidden)}." if board.hidden else ""
    return (
        '<ul class="rv-legend">'
        f"<li>{drawing.interval_bar(0.6, 0.5, 0.7)} value (tick) and 95 % interval (bar) on a line from 0 to 100 %; "
        "in figures: value, then low–high. Rows whose intervals overlap may not differ; "
        "equal figures share a rank.</li>"
        f"<li><b>–</b> fewer than {board.min_cell} cases: not shown, and not in any macro.{hidden}</li>"
        "<li><b>n/a</b> the file has nothing that this metric needs, such as masks for IoU.</li>"
        "<li><b>mIoU, all</b>: an empty or missing mask counts as 0. The papers’ rows leave such images out.</li>"
        "<li>Figures are rounded to whole percents. That alone does not keep a holdout secret: each further submission "
        "tells a little more, so open a board to people you trust until it limits them.</li></ul>"
    )


def _apart(board: Standings, columns: Sequence[Column], *, has_facts: bool) -> str:
    wanted = {finding for row in board.references for figures in row.figures.values() for finding in figures}
    kept = [column for column in columns if column[2] == "macro" or column[2] in wanted]
    heads = [_head_model(), *(title for title, _, _ in kept), *(FACTS if has_facts else ())]
    group = _reference_group(board.references, kept, len(heads), has_facts=has_facts)
    shown = drawing.table(heads, [group], label="Published rows", css_class="rv-board")
    what = "this synthetic benchmark" if board.synthetic else board.benchmark
    return (
        '<details class="rv-details"><summary>Published rows, measured on the real CheXlocalize test set '
        f"(not comparable with {text(what)})</summary>{shown}</details>"
    )


assert set(VIEWS.values()) - {None} == set(METRIC_NAMES)
