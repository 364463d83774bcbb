"""Render a board as HTML from its standings and the reader's choice of columns, filters and order.

Conventions
-----------
A :class:`View` is encoded in the page's address. Unknown values in an address are replaced by defaults, so that old
links never break. Rows are ordered by rank by default; the head of the column marks any other order. Rows without a
score come last in every order. Published rows are separate and unranked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from reveal_bench.analyses.published import ReferenceRow
from reveal_bench.metrics import METRICS, Metric
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.words import count_text
from reveal_leaderboard.boards.standings import BoardEntry, Standings, filtered, sorted_by
from reveal_leaderboard.release.release import ReleasedEstimate
from reveal_leaderboard.store.metadata import KINDS
from reveal_leaderboard.web.pages import board_notes
from reveal_leaderboard.web.pages.drawing import draw, message, percent, positions

PAGE = "board.html"
OVERVIEW = "overview"
FACTS = {"kind": "Kind", "date": "Date"}
BY_TEXT = ("model", "date")
NO_BREAK = "\N{NO-BREAK SPACE}"
REFERENCE_KINDS = {"human": "human readers", "chance": "chance", **KINDS}


@dataclass(frozen=True)
class View:
    """Columns, filters and order of a board.

    Attributes
    ----------
    columns : "overview" for the macros of all metrics, or the name of a metric to show its findings
    search, kind, organization : filters of rows; an empty filter keeps all rows
    sort : "rank", "model", "date", or "<metric>:<finding>"
    descending : whether the largest value comes first
    """

    columns: str = OVERVIEW
    search: str = ""
    kind: str = ""
    organization: str = ""
    sort: str = "rank"
    descending: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> View:
        """Return the view from an address's parameters; long texts are cut."""
        names = [f.name for f in fields(cls) if f.name in query and f.name != "descending"]
        values = {name: str(query[name])[:100] for name in names}
        return cls(**values, descending=query.get("descending") == "1")

    def to_query(self) -> dict[str, str]:
        """Return the view as parameters of an address, without default values."""
        default = asdict(View())
        changed = {name: value for name, value in asdict(self).items() if value != default[name]}
        return {name: "1" if value is True else str(value) for name, value in changed.items()}

    def sorted_by(self, column: str) -> View:
        """Return the view after a click on the head of `column`: best values first, then worst first."""
        if self.sort == column:
            return replace(self, descending=not self.descending)
        metric = METRICS.get(column.partition(":")[0])
        best_is_high = column == "date" or (metric is not None and metric.better == "higher")
        return replace(self, sort=column, descending=best_is_high)


@dataclass(frozen=True)
class _Column:
    """A column of scores; with `is_public`, of the public scores beside final ones."""

    metric: Metric
    finding: str
    title: str
    chance: float | None = None
    is_public: bool = False

    def figure(self, entry: BoardEntry) -> ReleasedEstimate | None:
        """Return the entry's score; None if it is not shown."""
        score = entry.public if self.is_public else entry.score
        return None if score is None else score.figure(self.metric.name, self.finding)

    @property
    def key(self) -> str:
        return f"{self.metric.name}:{self.finding}"

    @property
    def label(self) -> str:
        """Label that phones show above each score."""
        return f"{self.title}, %"

    @property
    def explained(self) -> str:
        """Text below the title: type of mean, chance value, and whether higher or lower is better."""
        if self.finding != MACRO:
            return ""
        mean = "mean over findings" + (", a missing mask counts 0" if self.metric.name == "mask_iou_all" else "")
        chance = "" if self.chance is None else f"chance {percent(self.chance)}"
        arrow = {"higher": "↑ higher is better", "lower": "↓ lower is better"}.get(self.metric.better, "")
        return "\n".join(line for line in (mean, chance, arrow) if line)


def column_groups(board: Standings) -> dict[str, str]:
    """Return the choices for `View.columns`, name -> title: the overview, then each metric with a score."""
    scored = {figure.metric for entry in board.entries for figure in entry.score.figures}
    return {OVERVIEW: "Overview", **{m.name: m.title for m in board.metrics if m.name in scored}}


def render(board: Standings, view: View | None = None) -> str:
    """Return the board as HTML; all texts of submitters are escaped."""
    view = view or View()
    entries = _in_order(board, view)
    columns, left_out = _columns(board, view)
    parts = [head_of(board, len(entries), f"{board.primary.in_words}, the mean over findings")]
    if entries or (board.comparable and columns):
        parts.append(_table(board, entries, columns, view))
    parts += [draw(PAGE, "downloads", board), board_notes.left_out(left_out, board.min_cell)]
    if not board.comparable and board.references:
        parts.append(_other_data(board))
    parts += [board_notes.plots_of(board, entries, view.columns), board_notes.legend(board)]
    return "".join(parts)


def _in_order(board: Standings, view: View) -> tuple[BoardEntry, ...]:
    """Return the matching entries in the order of the view; equal scores by rank, entries without a score last."""
    matching = filtered(board, search=view.search, kind=view.kind, organization=view.organization)
    entries = matching.entries
    if view.sort in BY_TEXT:
        key = view.sort
        return tuple(sorted(entries, key=lambda e: str(getattr(e, key)).casefold(), reverse=view.descending))
    metric, _, finding = view.sort.partition(":")
    better = next((m.better for m in board.metrics if m.name == metric), None)
    if better is not None and finding in (MACRO, *board.findings):
        return sorted_by(matching, metric, finding, worst_first=view.descending != (better == "higher")).entries
    placed = tuple(entry for entry in entries if entry.rank is not None)
    return (placed[::-1] if view.descending else placed) + tuple(entry for entry in entries if entry.rank is None)


def _columns(board: Standings, view: View) -> tuple[list[_Column], list[str]]:
    """Return the columns with a score in any row, and the titles of the other columns."""
    metric = next((m for m in board.metrics if m.name == view.columns), None)
    candidates = [_Column(m, MACRO, f"Macro {m.in_words}", board.chance.get(m.name)) for m in board.metrics]
    if metric is not None:
        candidates = [column for column in candidates if column.metric is metric]
        candidates += [_Column(metric, finding, finding) for finding in board.findings]
    if board.ranked_part == "final":
        first = candidates[0].metric
        candidates.insert(1, _Column(first, MACRO, f"Public macro {first.in_words}", is_public=True))
    rows = board.comparable_references
    columns = [c for c in candidates if _has_figure(c, board.entries, rows)]
    if not columns and not board.entries:
        return candidates[:1] if metric is None else candidates, []
    return columns, [c.title for c in candidates if c not in columns]


def _has_figure(column: _Column, entries: Sequence[BoardEntry], rows: Sequence[ReferenceRow]) -> bool:
    if any(column.figure(entry) is not None for entry in entries):
        return True
    return not entries and any(column.finding in row.figures.get(column.metric.name, {}) for row in rows)


def head_of(board: Standings, n_shown: int, ranked_by: str) -> str:
    """Return the part above the table: a summary, notes, and the reason for an empty table."""
    n = len(board.entries)
    counted = (
        count_text(n, "scored submission") if n_shown == n else f"{n_shown} of {count_text(n, 'scored submission')}"
    )
    above = draw(PAGE, "summary", board, counted, ranked_by) + board_notes.synthetic(board) + board_notes.notes(board)
    if not board.entries:
        return above + draw(PAGE, "none_yet")
    if not n_shown:
        return above + message("info", "No entry matches.", "Clear the search and the filters to see all entries.")
    return above


def _table(board: Standings, entries: Sequence[BoardEntry], columns: Sequence[_Column], view: View) -> str:
    has_facts = view.columns not in {m.name for m in board.metrics}
    heads: list[_Head | str] = [
        _head(board, "rank", "Rank", view, "rv-rank", "and tier"),
        _head(board, "model", "Model", view, "rv-model"),
    ]
    heads += [_figure_head(board, column, view) for column in columns]
    if has_facts:
        heads += [_head(board, key, title, view) if key in BY_TEXT else title for key, title in FACTS.items()]
    rows, tier = [], None
    for entry in entries:
        starts_tier = view.sort == "rank" and tier is not None and entry.tier != tier
        cells = [_entry_cell(entry, column, board) for column in columns]
        rows.append((entry, KINDS.get(entry.kind, entry.kind), cells, starts_tier))
        tier = entry.tier
    published = _published(board.comparable_references, columns)
    frozen = board.version if board.is_frozen else None
    return draw(PAGE, "table", f"Board of {board.benchmark}", heads, rows, published, frozen, has_facts)


@dataclass(frozen=True)
class _Head:
    """The head of a sortable column; `query` is the address of the sorted view."""

    query: Mapping[str, str]
    title: str
    state: str
    arrow: str
    css_class: str = ""
    direction: str = ""


def _head(board: Standings, key: str, title: str, view: View, css_class: str = "", direction: str = "") -> _Head:
    state, arrow = "none", "↕"
    if view.sort == key:
        state, arrow = ("descending", "▼") if view.descending else ("ascending", "▲")
    query = {"benchmark": board.benchmark, "version": board.version, **view.sorted_by(key).to_query()}
    return _Head(query, title, state, arrow, css_class, direction)


def _figure_head(board: Standings, column: _Column, view: View) -> _Head | str:
    if column.is_public:
        return f"{column.title},{NO_BREAK}%"
    return _head(board, column.key, f"{column.title},{NO_BREAK}%", view, direction=column.explained)


_Cell = tuple[ReleasedEstimate | None, str, str, str, float | None]


def _entry_cell(entry: BoardEntry, column: _Column, board: Standings) -> _Cell:
    """Return a cell: the score, or a placeholder with the reason for its absence; the column's title; the position of
    chance.
    """
    figure = column.figure(entry)
    chance = None if column.chance is None else positions(column.metric.name, column.chance)[0]
    has_metric = any(figure.metric == column.metric.name for figure in entry.score.figures)
    if column.finding in entry.score.hidden:
        return figure, "–", f"fewer than {board.min_cell} cases: not shown", column.label, chance
    if has_metric:
        return figure, "–", "shown only as an average, or only for findings with more cases", column.label, chance
    return figure, "n/a", "not in the file, or not shown: see the entry's page", column.label, chance


def _published(rows: Sequence[ReferenceRow], columns: Sequence[_Column]) -> list[tuple[Any, ...]]:
    """Return (row, source, kind, year, cells) for each published row with a score in any of the columns."""
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
    """Return the published value or None, its origin, the column's title, and the metric."""
    metric, finding = column.metric.name, column.finding
    if column.is_public:
        return None, "", column.label, metric
    if finding == MACRO and metric in row.macro:
        return (*row.macro[metric], column.label, metric)
    return row.figures.get(metric, {}).get(finding), "", column.label, metric


def _other_data(board: Standings) -> str:
    """Return a collapsed list of the published rows of another dataset."""
    columns = [_Column(m, MACRO, f"Macro {m.in_words}") for m in board.metrics]
    columns = [c for c in columns if any(c.metric.name in row.figures for row in board.references)]
    if not columns:
        return ""
    dataset = "this synthetic benchmark" if board.synthetic else board.title
    rows = _published(board.references, columns)
    first = {row.kind: row.name for row, *_ in reversed(rows)}  # one example per kind
    kinds = [kind for kind in ("human", "multimodal_llm", "saliency", "cnn") if kind in first]
    named = " and ".join(first[kind] for kind in kinds[:2])
    return draw(PAGE, "other_data", [c.label for c in columns], rows, named, dataset)
