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
from typing import Any

from reveal_bench.evaluation.published import ReferenceRow
from reveal_bench.metrics import METRICS, Metric
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.words import count_text
from reveal_leaderboard.boards.standings import BoardEntry, Standings, filtered, sorted_by
from reveal_leaderboard.release.release import ReleasedEstimate
from reveal_leaderboard.store.metadata import KINDS
from reveal_leaderboard.web.pages import board_notes
from reveal_leaderboard.web.pages.drawing import draw, message, percent, places

PAGE = "board.html"
OVERVIEW = "overview"
FACTS = {"kind": "Kind", "date": "Date"}
BY_TEXT = ("model", "date")
NO_BREAK = "\N{NO-BREAK SPACE}"
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
    chance: float | None = None

    @property
    def key(self) -> str:
        return f"{self.metric.name}:{self.finding}"

    @property
    def label(self) -> str:
        """What a phone shows above each figure."""
        return f"{self.title}, %"

    @property
    def explained(self) -> str:
        """What stands below the title: over what it is the mean, what chance has, and which end is the better one."""
        if self.finding != MACRO:
            return ""
        mean = "mean over findings" + (", missing masks count 0" if self.metric.name == "mask_iou_all" else "")
        chance = "" if self.chance is None else f"chance {percent(self.chance)}"
        arrow = {"higher": "↑ higher is better", "lower": "↓ lower is better"}.get(self.metric.better, "")
        return "\n".join(line for line in (mean, chance, arrow) if line)


def column_groups(board: Standings) -> dict[str, str]:
    """The choices of columns, name -> title: the overview, then each metric that has a shown figure."""
    shown = {figure.metric for entry in board.entries for figure in entry.score.figures}
    return {OVERVIEW: "Overview", **{m.name: m.title for m in board.metrics if m.name in shown}}


def render(board: Standings, view: View | None = None) -> str:
    """The board as HTML; every text of a submitter is escaped."""
    view = view or View()
    entries = _in_order(board, view)
    columns, left_out = _columns(board, view)
    parts = [head_of(board, len(entries), f"{board.primary.in_words}, the mean over findings")]
    if entries or (board.comparable and columns):
        parts.append(_table(board, entries, columns, view))
    parts += [draw(PAGE, "downloads", board), board_notes.left_out(left_out, board.min_cell)]
    if not board.comparable and board.references:
        parts.append(_apart(board))
    parts += [board_notes.plots_of(board, entries, view.columns), board_notes.legend(board)]
    return "".join(parts)


def _in_order(board: Standings, view: View) -> tuple[BoardEntry, ...]:
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
    wanted = [_Column(m, MACRO, f"Macro {m.in_words}", board.chance.get(m.name)) for m in board.metrics]
    if metric is not None:
        wanted = [column for column in wanted if column.metric is metric]
        wanted += [_Column(metric, finding, finding) for finding in board.findings]
    rows = board.references if board.comparable else ()
    kept = [c for c in wanted if _has_figure(c, board.entries, rows)]
    if not kept and not board.entries:
        return wanted[:1] if metric is None else wanted, []
    return kept, [c.title for c in wanted if c not in kept]


def _has_figure(column: _Column, entries: Sequence[BoardEntry], rows: Sequence[ReferenceRow]) -> bool:
    if any(entry.figure(column.metric.name, column.finding) is not None for entry in entries):
        return True
    return not entries and any(column.finding in row.figures.get(column.metric.name, {}) for row in rows)


def head_of(board: Standings, n_shown: int, ranked_by: str) -> str:
    """What stands above the table: what board it is, its notes, and why it has no row if it has none."""
    n = len(board.entries)
    counted = (
        count_text(n, "scored submission") if n_shown == n else f"{n_shown} of {count_text(n, 'scored submission')}"
    )
    above = draw(PAGE, "summary", board, counted, ranked_by) + board_notes.synthetic(board) + board_notes.notes(board)
    if not board.entries:
        return above + draw(PAGE, "none_yet")
    if not n_shown:
        return above + message("info", "No entry matches.", "Clear the search and the filters to see all of them.")
    return above


def _table(board: Standings, entries: Sequence[BoardEntry], columns: Sequence[_Column], view: View) -> str:
    has_facts = view.columns not in {m.name for m in board.metrics}
    heads: list[_Head | str] = [
        _head("rank", "Rank", view, "rv-rank", "and tier"),
        _head("model", "Model", view, "rv-model"),
    ]
    heads += [_figure_head(column, view) for column in columns]
    if has_facts:
        heads += [_head(key, title, view) if key in BY_TEXT else title for key, title in FACTS.items()]
    rows, tier = [], None
    for entry in entries:
        starts_tier = view.sort == "rank" and tier is not None and entry.tier != tier
        cells = [_entry_cell(entry, column, board) for column in columns]
        rows.append((entry, KINDS.get(entry.kind, entry.kind), cells, starts_tier))
        tier = entry.tier
    published = _published(board.references, columns) if board.comparable else []
    frozen = board.version if board.is_frozen else None
    return draw(PAGE, "table", f"Board of {board.benchmark}", heads, rows, published, frozen, has_facts)


@dataclass(frozen=True)
class _Head:
    """The head of a column by which the board can be sorted."""

    key: str
    title: str
    state: str
    arrow: str
    css_class: str = ""
    direction: str = ""


def _head(key: str, title: str, view: View, css_class: str = "", direction: str = "") -> _Head:
    state, arrow = "none", "↕"
    if view.sort == key:
        state, arrow = ("descending", "▼") if view.descending else ("ascending", "▲")
    return _Head(key, title, state, arrow, css_class, direction)


def _figure_head(column: _Column, view: View) -> _Head:
    return _head(column.key, f"{column.title},{NO_BREAK}%", view, direction=column.explained)


_Cell = tuple[ReleasedEstimate | None, str, str, str, float | None]


def _entry_cell(entry: BoardEntry, column: _Column, board: Standings) -> _Cell:
    """The figure of a cell, or what stands in its place and why; the title of its column, and where chance lies."""
    figure = entry.figure(column.metric.name, column.finding)
    chance = None if column.chance is None else places(column.metric.name, column.chance)[0]
    has_metric = any(figure.metric == column.metric.name for figure in entry.score.figures)
    if column.finding in entry.score.hidden:
        return figure, "–", f"fewer than {board.min_cell} cases: not shown", column.label, chance
    if has_metric:
        return figure, "–", "shown on average, or for findings with more cases", column.label, chance
    return figure, "n/a", "not in the file, or not shown: the page of the entry says why", column.label, chance


def _published(rows: Sequence[ReferenceRow], columns: Sequence[_Column]) -> list[tuple[Any, ...]]:
    """Published rows that have a figure in one of the columns: row, source, kind, year, cells."""
    metrics = {column.metric.name for column in columns}
    return [
        (
            row,
            f"{board_notes.authors(row.citation)}, {row.place}",
            REFERENCE_KINDS.get(row.kind, row.kind),
            board_notes.year(row.citation),
            [_reference_cell(row, column) for column in columns],
        )
        for row in rows
        if metrics & set(row.figures)
    ]


def _reference_cell(row: ReferenceRow, column: _Column) -> tuple[float | None, str, str, str]:
    """A published value, if there is one, and where it comes from; the title of its column, and its metric."""
    metric, finding = column.metric.name, column.finding
    if finding == MACRO and metric in row.macro:
        return (*row.macro[metric], column.label, metric)
    return row.figures.get(metric, {}).get(finding), "", column.label, metric


def _apart(board: Standings) -> str:
    """The published rows of another data set, folded away."""
    columns = [_Column(m, MACRO, f"Macro {m.in_words}") for m in board.metrics]
    columns = [c for c in columns if any(c.metric.name in row.figures for row in board.references)]
    if not columns:
        return ""
    what = "this synthetic benchmark" if board.synthetic else board.title
    rows = _published(board.references, columns)
    first = {row.kind: row.name for row, *_ in reversed(rows)}  # one of each kind
    kinds = [kind for kind in ("human", "multimodal_llm", "saliency", "cnn") if kind in first]
    named = " and ".join(first[kind] for kind in kinds[:2])
    return draw(PAGE, "apart", [c.label for c in columns], rows, named, what)
