"""The board as HTML: a pure function of the standings and of what the reader asked to see.

Conventions
-----------
A :class:`View` is what stands in the page's address. Unknown values in an address fall back to the default, so that an
old link never breaks. Rows come in the order of rank; another order is the reader's wish and is marked at its column.
Whatever the order, a row without the figure comes last, and the published rows stand apart, unranked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from urllib.parse import quote

from reveal_bench.metrics import METRICS, Metric
from reveal_leaderboard.boards.references import ReferenceRow
from reveal_leaderboard.boards.standings import Entry, Standings, filtered, sorted_by
from reveal_leaderboard.store.metadata import KINDS
from reveal_leaderboard.web.pages import board_notes, drawing
from reveal_leaderboard.web.pages.drawing import figure_cell, link, message, none_cell, plural, text

__all__ = ["OVERVIEW", "View", "column_groups", "render"]

OVERVIEW = "overview"
MACRO = "macro"
FACTS = {"kind": "Kind", "date": "Date"}
BY_TEXT = ("model", "date")
REFERENCE_KINDS = {"human": "human readers", "chance": "chance", **KINDS}


@dataclass(frozen=True)
class View:
    """What the reader asked to see.

    Attributes
    ----------
    columns : "overview", or the name of a metric whose findings are the columns
    search, kind, organization : keep the rows that match; empty keeps all
    sort : "rank", "model", "date", or "<metric>:<finding>"
    descending : the direction; a rank counts up, a figure starts with its best end
    """

    columns: str = OVERVIEW
    search: str = ""
    kind: str = ""
    organization: str = ""
    sort: str = "rank"
    descending: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> View:
        """From the parameters of an address; texts are cut to a sane length."""
        names = [f.name for f in fields(cls) if f.name in query and f.name != "descending"]
        given = {name: str(query[name])[:100] for name in names}
        return cls(**given, descending=query.get("descending") == "1")

    def to_query(self) -> dict[str, str]:
        """The parameters that differ from the default."""
        default = asdict(View())
        given = {name: value for name, value in asdict(self).items() if value != default[name]}
        return {name: "1" if value is True else str(value) for name, value in given.items()}

    def sorted_by(self, column: str) -> View:
        """The view after a click on the head of `column`: its best end first, then the other end."""
        if self.sort == column:
            return replace(self, descending=not self.descending)
        metric = METRICS.get(column.partition(":")[0])
        best_is_high = column == "date" or (metric is not None and metric.better == "higher")
        return replace(self, sort=column, descending=best_is_high)


@dataclass(frozen=True)
class _Column:
    """A column of figures."""

    metric: Metric
    finding: str
    title: str

    @property
    def key(self) -> str:
        return f"{self.metric.name}:{self.finding}"


def column_groups(board: Standings) -> dict[str, str]:
    """The choices of columns, name -> title: the overview, then each metric that has a shown figure."""
    shown = {figure.metric for entry in board.entries for figure in entry.score.figures}
    return {OVERVIEW: "Overview", **{m.name: m.title for m in board.metrics if m.name in shown}}


def render(board: Standings, view: View | None = None) -> str:
    """The board as HTML; every text of a submitter is escaped."""
    view = view or View()
    entries = _in_order(board, view)
    columns, left_out = _columns(board, view)
    parts = [_summary(board, len(entries)), board_notes.synthetic(board)]
    parts.append(board_notes.notes(board))
    if not board.entries:
        first = link("/submit", "Send the first one")
        parts.append(
            message("info", "No submission is scored yet.", markup=f"<p>{first}: checking a file is free.</p>")
        )
    elif not entries:
        parts.append(message("info", "No entry matches.", "Clear the search and the filters to see all of them."))
    if entries or (board.comparable and columns):
        parts.append(_table(board, entries, columns, view))
    parts += [board_notes.left_out(left_out, board.min_cell), board_notes.plots_of(board, entries, view.columns)]
    parts.append(board_notes.legend(board))
    if not board.comparable and board.references:
        parts.append(_apart(board))
    return "".join(parts)


def _in_order(board: Standings, view: View) -> tuple[Entry, ...]:
    """The rows that match, as asked; equal rows keep the order of rank, those without the figure come last."""
    kept = filtered(board, search=view.search, kind=view.kind, organization=view.organization)
    entries = kept.entries
    if view.sort in BY_TEXT:
        key = view.sort
        return tuple(sorted(entries, key=lambda e: str(getattr(e, key)).casefold(), reverse=view.descending))
    metric, _, finding = view.sort.partition(":")
    better = next((m.better for m in board.metrics if m.name == metric), None)
    if better is not None and finding in (MACRO, *board.findings):
        return sorted_by(kept, metric, finding, worst_first=view.descending != (better == "higher")).entries
    placed = tuple(entry for entry in entries if entry.rank is not None)
    return (placed[::-1] if view.descending else placed) + tuple(entry for entry in entries if entry.rank is None)


def _columns(board: Standings, view: View) -> tuple[list[_Column], list[str]]:
    """The columns that have a figure in any row, and the titles of those that have none and are left out."""
    metric = next((m for m in board.metrics if m.name == view.columns), None)
    if metric is None:
        wanted = [_Column(m, MACRO, f"Macro {m.title}") for m in board.metrics]
    else:
        wanted = [_Column(metric, MACRO, f"Macro {metric.title}")]
        wanted += [_Column(metric, finding, finding) for finding in board.findings]
    rows = board.references if board.comparable else ()
    kept = [c for c in wanted if _has_figure(c, board.entries, rows)]
    if not kept and not board.entries:
        return wanted[:1] if metric is None else wanted, []
    return kept, [c.title for c in wanted if c not in kept]


def _has_figure(column: _Column, entries: Sequence[Entry], rows: Sequence[ReferenceRow]) -> bool:
    if any(entry.figure(column.metric.name, column.finding) is not None for entry in entries):
        return True
    return not entries and any(column.finding in row.figures.get(column.metric.name, {}) for row in rows)


def _summary(board: Standings, n_shown: int) -> str:
    n = len(board.entries)
    counted = plural(n, "scored submission") if n_shown == n else f"{n_shown} of {plural(n, 'scored submission')}"
    where = {"benchmark": board.benchmark, "version": board.version}
    exports = " · ".join(
        link("/api/v1/leaderboard", title, **where, format=form)
        for form, title in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
    )
    return (
        f'<p class="rv-summary"><strong>{text(board.title)}</strong> {text(board.version)}, split '
        f"{text(board.split)} · {counted} · ranked by macro {text(board.primary.title)} · download {exports}</p>"
    )


def _table(board: Standings, entries: Sequence[Entry], columns: Sequence[_Column], view: View) -> str:
    has_facts = view.columns not in {m.name for m in board.metrics}
    head = [
        _sort_head("rank", "Rank", view, css_class="rv-rank"),
        _sort_head("model", "Model", view, css_class="rv-model"),
        *(_figure_head(column, view) for column in columns),
    ]
    if has_facts:
        head += [_sort_head(key, title, view) if key in BY_TEXT else title for key, title in FACTS.items()]
    rows, tier = [], None
    for entry in entries:
        starts = view.sort == "rank" and tier is not None and entry.tier != tier
        rows.append(_entry_row(entry, columns, board, has_facts=has_facts, starts_tier=starts))
        tier = entry.tier
    groups = [f"<tbody>{''.join(rows)}</tbody>"] if rows else []
    if board.comparable:
        groups.append(_reference_group(board.references, columns, len(head), has_facts=has_facts))
    return drawing.table(head, groups, label=f"Board of {board.benchmark}", css_class="rv-board")


def _sort_head(key: str, title: str, view: View, *, css_class: str = "", note: str = "") -> str:
    """A column head with a button; the arrow says the direction, `aria-sort` says it to those who hear the page."""
    state, arrow = "none", "↕"
    if view.sort == key:
        state, arrow = ("descending", "▼") if view.descending else ("ascending", "▲")
    button = (
        f'<button type="button" class="rv-sort" data-act="sort" data-id="{text(key)}">{text(title)}&nbsp;'
        f'<span aria-hidden="true" class="rv-arrow">{arrow}</span></button>'
    )
    return f'<th scope="col" class="{css_class}" aria-sort="{state}">{button}{note}</th>'


def _figure_head(column: _Column, view: View) -> str:
    arrow = {"higher": "↑ higher is better", "lower": "↓ lower is better", "neither": ""}[column.metric.better]
    note = f'<span class="rv-direction">{arrow}</span>' if arrow and column.finding == MACRO else ""
    return _sort_head(column.key, f"{column.title},\N{NO-BREAK SPACE}%", view, note=note)


def _entry_row(
    entry: Entry, columns: Sequence[_Column], board: Standings, *, has_facts: bool, starts_tier: bool
) -> str:
    version = f' <span class="rv-version">{text(entry.model_version)}</span>' if entry.model_version else ""
    frozen = f"&amp;version={text(quote(board.version))}" if board.is_frozen else ""
    address = f"/entry?id={text(entry.submission_id)}{frozen}"
    permalink = f'<a class="rv-name" href="{address}">{text(entry.model)}</a>{version}'
    model = f'<th scope="row" class="rv-model">{permalink}<span class="rv-team">{text(entry.team)}</span></th>'
    facts = (_kind_cell(KINDS.get(entry.kind, entry.kind), entry.prompt_style), text(entry.date))
    cells = [_entry_cell(entry, column, board) for column in columns]
    css_class = ' class="rv-new-tier"' if starts_tier else ""
    return f"<tr{css_class}>{_rank_cell(entry)}{model}{''.join(cells)}{_fact_cells(facts) if has_facts else ''}</tr>"


def _rank_cell(entry: Entry) -> str:
    if entry.rank is None:
        shown, why = ("new", entry.place) if entry.is_new else ("–", "not placed: no shown macro of the primary metric")
        return f'<td class="rv-rank"><span title="{text(why)}">{shown}</span></td>'
    low, high = entry.rank_low, entry.rank_high
    spread = entry.place.replace("-", "–")
    spoken = f"rank {low}" if low == high else f"rank between {low} and {high}"
    tier = f'<span class="rv-tier" aria-hidden="true">{text(entry.tier)}</span>' if entry.tier else ""
    spoken += f", tier {entry.tier}" if entry.tier else ""
    return (
        f'<td class="rv-rank"><span class="rv-spread" aria-hidden="true">{spread}</span>{tier}'
        f'<span class="rv-spoken">{text(spoken)}</span></td>'
    )


def _kind_cell(kind: str, prompt_style: str | None) -> str:
    """The kind, and below it how a model was prompted, if it was."""
    return text(kind) + (f'<span class="rv-team">{text(prompt_style)}</span>' if prompt_style else "")


def _fact_cells(facts: Sequence[str]) -> str:
    return "".join(f'<td class="rv-fact">{fact}</td>' for fact in facts)


def _entry_cell(entry: Entry, column: _Column, board: Standings) -> str:
    figure = entry.figure(column.metric.name, column.finding)
    if figure is not None:
        return figure_cell(figure)
    has_metric = any(figure.metric == column.metric.name for figure in entry.score.figures)
    if has_metric or column.finding in entry.score.hidden:
        return none_cell("–", f"fewer than {board.min_cell} cases: not shown")
    return none_cell("n/a", "the file has nothing that this metric needs")


def _reference_group(rows: Sequence[ReferenceRow], columns: Sequence[_Column], width: int, *, has_facts: bool) -> str:
    """Published rows that have a figure in one of the columns."""
    metrics = {column.metric.name for column in columns}
    body = "".join(_reference_row(row, columns, has_facts=has_facts) for row in rows if metrics & set(row.figures))
    if not body:
        return ""
    title = "Published rows, measured on the whole test set of their paper: for reference, not ranked"
    head = f'<tr class="rv-group"><th colspan="{width}" scope="rowgroup"><span>{title}</span></th></tr>'
    return f'<tbody class="rv-reference">{head}{body}</tbody>'


def _reference_row(row: ReferenceRow, columns: Sequence[_Column], *, has_facts: bool) -> str:
    source = f"{board_notes.authors(row.citation)}, {row.place}"
    address = text(row.url) if row.url.startswith("https://") else "#"
    source = f'<a href="{address}" title="{text(row.protocol)}" rel="noopener">{text(source)}</a>'
    style = f", {text(row.prompt_style)}" if row.prompt_style else ""
    model = (
        f'<td class="rv-rank"><span class="rv-spoken">not ranked</span></td><th scope="row" class="rv-model">'
        f'<span class="rv-name">{text(row.name)}{style}</span>'
        f'<span class="rv-team">{drawing.badge("reference")}{source}</span></th>'
    )
    facts = (_kind_cell(REFERENCE_KINDS.get(row.kind, row.kind), row.prompt_style), board_notes.year(row.citation))
    cells = [_reference_cell(row, column) for column in columns]
    return f"<tr>{model}{''.join(cells)}{_fact_cells(facts) if has_facts else ''}</tr>"


def _reference_cell(row: ReferenceRow, column: _Column) -> str:
    metric, finding = column.metric.name, column.finding
    if finding == MACRO and metric in row.macro:
        value, origin = row.macro[metric]
        note = f'<span class="rv-origin">{text(origin)}</span>'
    elif finding in row.figures.get(metric, {}):
        value, note = row.figures[metric][finding], ""
    else:
        return none_cell("n/a", "not published")
    shown = drawing.percent(value, 1)
    return f'<td class="rv-figure"><span class="rv-value">{shown}</span>{drawing.interval_bar(value)}{note}</td>'


def _apart(board: Standings) -> str:
    """The published rows of another data set, folded away."""
    columns = [_Column(m, MACRO, f"Macro {m.title}") for m in board.metrics]
    columns = [c for c in columns if any(c.metric.name in row.figures for row in board.references)]
    if not columns:
        return ""
    heads = ["", '<th scope="col" class="rv-model">Model</th>', *(f"{text(c.title)}, %" for c in columns)]
    group = _reference_group(board.references, columns, len(heads), has_facts=False)
    shown = drawing.table(heads, [group], label="Published rows", css_class="rv-board")
    what = "this synthetic benchmark" if board.synthetic else board.benchmark
    return drawing.detail(f"Published rows, measured on other data (not comparable with {what})", shown)
