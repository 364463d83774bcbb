"""The page of a board: ranks, scores with drawn intervals, and published rows.

The page's address contains the benchmark, version, columns, filters and order, so that people can link to a view.
"""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from markupsafe import Markup

from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.boards.standings import Standings, UnknownVersionError, standings
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.metadata import KINDS
from reveal_leaderboard.web.link_preview import Preview
from reveal_leaderboard.web.pages import board_notes
from reveal_leaderboard.web.pages.board_view import OVERVIEW, View, column_groups, render
from reveal_leaderboard.web.pages.drawing import draw, message, query_text
from reveal_leaderboard.web.pages.first_sentences import SITE, board_opening, opening
from reveal_leaderboard.web.pages.plain import ReadPage, titled
from reveal_leaderboard.web.pages.rubric_view import render_board
from reveal_leaderboard.web.services import Services

N_THUMBNAILS = 6


def show(services: Services, request: Request) -> ReadPage:
    """Return the board that the address names, or else the first board with a notice."""
    query = dict(request.query_params)
    name = query.get("benchmark", "")
    is_known = name in services.names or not name
    try:
        version = query.get("version") if name in services.names else None
        page = _page(services, name if name in services.names else services.names[0], version, View.from_query(query))
    except UnknownBenchmarkError as error:  # the board's current version is on another server
        return titled("/", opening("/") + message("bad", "This board does not exist.", str(error)))
    if is_known:
        return page
    notice = message("bad", f"There is no board {name[:100]!r}.", "This is the first board instead.")
    return titled("/", notice + page.content, 404)


def _page(services: Services, benchmark: str, version: str | None, view: View) -> ReadPage:
    board = _standings(services, benchmark, version)
    view = _known(view, board)
    first = board_opening(board, services.galleries.strip(benchmark, N_THUMBNAILS))
    renderer = render_board if board.scored_by == "readers" else render
    table = _closed(services, benchmark) + renderer(board, view) + _moves(services, board)
    content = f'<div id="opening">{first}</div>{_controls(services, board, view)}<div id="board">{table}</div>'
    words = " ".join(Markup(first).striptags().split())
    address = f"/?{query_text({'benchmark': board.benchmark})}"
    return ReadPage(Preview(address, f"{board.title} · {SITE}", words), content)


def _standings(services: Services, benchmark: str, version: str | None) -> Standings:
    """Return the board of a version, or of the current version if the board never showed the requested one."""
    published = services.catalogue.current(benchmark)
    try:
        return standings(services.store, published, version=version or None)
    except UnknownVersionError:
        return standings(services.store, published)


def _closed(services: Services, benchmark: str) -> str:
    """Return the notice of a board that accepts no submissions, or only until a stated time."""
    with services.store.read() as connection:
        row = boards.board(connection, benchmark)
        times = services.settings.of(benchmark).round
        shown = ("open", "") if row is None else boards.shown_state(connection, row, times)
    return board_notes.closed(*shown) or (message("info", times.sentence) if times.sentence else "")


def _moves(services: Services, board: Standings) -> str:
    """Return the rank changes from the previous version to this one."""
    with services.store.read() as connection:
        rows = boards.list_versions(connection, board.benchmark)
    changes = next((row.facts.get("rank_changes") for row in rows if row.version == board.version), None)
    names = {entry.submission_id: f"{entry.model}, {entry.team}" for entry in board.entries}
    return board_notes.moves(changes, names) if changes else ""


def _controls(services: Services, board: Standings, view: View) -> str:
    kinds = [(KINDS.get(kind, kind), kind) for kind in dict.fromkeys(entry.kind for entry in board.entries)]
    teams = sorted({entry.team for entry in board.entries}, key=str.casefold)
    groups = [(title, name) for name, title in column_groups(board).items()]
    return draw("board.html", "controls", services.names, board, view, groups, kinds, teams)


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
