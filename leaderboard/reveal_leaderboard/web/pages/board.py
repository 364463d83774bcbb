"""The page of a board: ranks, scores with drawn intervals, and published rows.

The page's address contains the benchmark, version, columns, filters and order, so that people can link to a view.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import gradio as gr

from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.boards.standings import Standings, UnknownVersionError, standings
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.metadata import KINDS
from reveal_leaderboard.web.pages import board_notes, drawing
from reveal_leaderboard.web.pages.board_view import OVERVIEW, View, column_groups, render
from reveal_leaderboard.web.pages.drawing import ACTIONS, PRIVATE, QUIET, REMEMBER, draw, message
from reveal_leaderboard.web.pages.first_sentences import board_opening, opening
from reveal_leaderboard.web.pages.handlers import Click, Handlers, unavailable
from reveal_leaderboard.web.pages.header import build_header
from reveal_leaderboard.web.pages.rubric_view import render_board
from reveal_leaderboard.web.services import Services

SEARCH, BOARD = 3, 6  # positions of the outputs in a handler's answer
ALL_KINDS, ALL_TEAMS = "All kinds", "All teams"
LOADING = message("busy", "Reading the board …")
N_THUMBNAILS = 6
FILTERS = draw("pieces.html", "filters")
# On a phone all choices except the first are collapsed, so that the board is visible; wider pages hide the button.
FOLD = """const button = element.querySelector('button');
button.addEventListener('click', () => {
  const isOpen = document.querySelector('.rv-controls').classList.toggle('rv-open');
  button.setAttribute('aria-expanded', String(isOpen));
});"""

log = logging.getLogger(__name__)


def build(services: Services, page: gr.Blocks) -> None:
    """Build the page inside `page`, the current `gr.Blocks`."""
    names = services.names
    build_header(services, page)
    films = ["rv-with-films"] if services.galleries.names else []
    first = gr.HTML(opening("/"), elem_id="opening", elem_classes=films)
    with gr.Row(elem_classes="rv-controls"):
        benchmark = gr.Dropdown(names, value=names[0], label="Benchmark", min_width=160, scale=2)
        version = gr.Dropdown([], label="Version", min_width=120)
        columns = gr.Dropdown([("Overview", OVERVIEW)], value=OVERVIEW, label="Columns", min_width=150)
        search = gr.Textbox(label="Search", placeholder="model or team", max_length=100, min_width=160)
        kind = gr.Dropdown([(ALL_KINDS, "")], value="", label="Kind", min_width=150)
        organization = gr.Dropdown([(ALL_TEAMS, "")], value="", label="Team", min_width=150)
    gr.HTML(FILTERS, js_on_load=FOLD)
    table = gr.HTML(LOADING, elem_id="board", js_on_load=ACTIONS)
    order = gr.Textbox("", visible=False)
    query = gr.Textbox("", visible=False)
    handlers = BoardHandlers(services)
    choices: list[Any] = [benchmark, version, columns, search, kind, organization]
    outputs = [*choices, table, order, query, first]
    steps = [
        page.load(handlers.open, None, outputs, **QUIET),
        benchmark.input(handlers.other_board, benchmark, outputs, **QUIET),
        gr.on(
            [c.input for c in choices[1:]],
            handlers.show,
            [*choices, order],
            outputs,
            trigger_mode="always_last",
            **QUIET,
        ),
        table.click(handlers.sort, [*choices, order], outputs, **QUIET),
    ]
    for step in steps:
        step.then(None, query, query, js=REMEMBER, **PRIVATE)


class BoardHandlers(Handlers):
    """Handlers of the page's events; each returns the values of all outputs."""

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """Return the board that the page's address names."""
        query = {str(name): str(value) for name, value in dict(request.query_params or {}).items()}
        name = query.get("benchmark", "")
        known = name in self.services.names
        version = query.get("version") if known else None
        answer = self._answer(name if known else self.services.names[0], version, View.from_query(query))
        return answer if known or not name else _instead(answer, name)

    def other_board(self, benchmark: str) -> tuple[Any, ...]:
        """Return another benchmark at its current version, unfiltered."""
        return self._answer(benchmark, None, View())

    def show(self, *choices: str | None) -> tuple[Any, ...]:
        """Return another view of the same board."""
        return _keep_search(self._answer(str(choices[0]), choices[1], _view(*choices[2:])))

    def sort(self, event: gr.EventData, *choices: str | None) -> tuple[Any, ...]:
        """Return the same rows in another order."""
        view = _view(*choices[2:])
        column = Click.of(event).subject[:100]
        return _keep_search(self._answer(str(choices[0]), choices[1], view.sorted_by(column) if column else view))

    def _answer(self, benchmark: str, version: str | None, view: View) -> tuple[Any, ...]:
        try:
            board = self._standings(benchmark, version)
            view = _known(view, board)
            renderer = render_board if board.scored_by == "readers" else render
            table = self._closed(benchmark) + renderer(board, view) + self._moves(board)
            first = board_opening(board, self.services.galleries.strip(benchmark, N_THUMBNAILS))
        except UnknownBenchmarkError as error:
            return (
                *[gr.skip()] * 6,
                message("bad", "This board does not exist.", str(error)),
                gr.skip(),
                "",
                gr.skip(),
            )
        except Exception:
            log.exception("the board of %s could not be drawn", benchmark)
            return (*[gr.skip()] * 6, unavailable("The board"), gr.skip(), gr.skip(), gr.skip())
        return (*self._choices(board, view), table, _order(view), drawing.query_text(_query(board, view)), first)

    def _standings(self, benchmark: str, version: str | None) -> Standings:
        """Return the board of a version, or of the current version if the board never showed the requested one."""
        published = self.services.catalogue.current(benchmark)
        try:
            return standings(self.services.store, published, version=version or None)
        except UnknownVersionError:
            return standings(self.services.store, published)

    def _closed(self, benchmark: str) -> str:
        """Return the notice of a board that accepts no submissions, or only until a stated time."""
        with self.services.store.read() as connection:
            row = boards.board(connection, benchmark)
            times = self.services.settings.of(benchmark).round
            shown = ("open", "") if row is None else boards.shown_state(connection, row, times)
        return board_notes.closed(*shown) or (drawing.message("info", times.sentence) if times.sentence else "")

    def _moves(self, board: Standings) -> str:
        """Return the rank changes from the previous version to this one."""
        with self.services.store.read() as connection:
            rows = boards.list_versions(connection, board.benchmark)
        changes = next((row.facts.get("rank_changes") for row in rows if row.version == board.version), None)
        names = {entry.submission_id: f"{entry.model}, {entry.team}" for entry in board.entries}
        return board_notes.moves(changes, names) if changes else ""

    def _choices(self, board: Standings, view: View) -> list[Any]:
        versions = list(board.versions)
        kinds = [(KINDS.get(kind, kind), kind) for kind in dict.fromkeys(e.kind for e in board.entries)]
        teams = sorted({entry.team for entry in board.entries}, key=str.casefold)
        groups = [(title, name) for name, title in column_groups(board).items()]
        return [
            gr.update(value=board.benchmark),
            gr.update(choices=versions, value=board.version),
            gr.update(choices=groups, value=view.columns),
            gr.update(value=view.search),
            gr.update(choices=[(ALL_KINDS, ""), *kinds], value=view.kind),
            gr.update(choices=[(ALL_TEAMS, ""), *((team, team) for team in teams)], value=view.organization),
        ]


def _instead(answer: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Return the answer for another board, with a notice that the requested board does not exist."""
    notice = message("bad", f"There is no board {name[:100]!r}.", "This is the first board instead.")
    return (*answer[:BOARD], notice + answer[BOARD], *answer[BOARD + 1 :])


def _keep_search(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the answer without an update of the search field, since the person may have typed more text."""
    return (*answer[:SEARCH], gr.skip(), *answer[SEARCH + 1 :])


def _view(columns: str | None, search: str | None, kind: str | None, team: str | None, order: str | None) -> View:
    sort, _, direction = (order or "rank").partition(" ")
    return View(columns or OVERVIEW, (search or "")[:100], kind or "", team or "", sort, direction == "down")


def _order(view: View) -> str:
    return f"{view.sort} {'down' if view.descending else 'up'}"


def _known(view: View, board: Standings) -> View:
    """Return the view with defaults for values that this board does not have."""
    if view.columns not in column_groups(board):
        view = replace(view, columns=OVERVIEW)
    if view.kind not in {entry.kind for entry in board.entries}:
        view = replace(view, kind="")
    if view.organization not in {entry.team for entry in board.entries}:
        view = replace(view, organization="")
    metric, _, finding = view.sort.partition(":")
    keys = {"rank", "model", "date"}
    is_figure = metric in {m.name for m in board.metrics} and finding in ("macro", *board.findings)
    return view if view.sort in keys or is_figure else replace(view, sort="rank", descending=False)


def _query(board: Standings, view: View) -> dict[str, str]:
    return {"benchmark": board.benchmark, "version": board.version, **view.to_query()}
