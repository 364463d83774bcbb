"""Name, heading and first sentence of every page.

`OPENINGS` has the fixed texts. Boards (:func:`board_opening`) and entries (:func:`entry_opening`) begin with their
result, whose markup is in ``templates/first_sentences.html``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reveal_bench.kinds import KINDS
from reveal_leaderboard.web.pages.drawing import draw, page_head

if TYPE_CHECKING:
    from reveal_leaderboard.boards.standings import Standings
    from reveal_leaderboard.store.store import Submission
    from reveal_leaderboard.web.shared_result import SharedResult

PAGE = "first_sentences.html"
SITE = "REVEAL leaderboard"
REFERENCE_KINDS_SHOWN = ("human", "chance")
"""Kinds of published rows that are shown even where space is limited."""


class Opening(NamedTuple):
    """A page's name (for menus and window titles), heading, and first sentence."""

    name: str
    heading: str
    sentence: str = ""


OPENINGS: Mapping[str, Opening] = {
    "/": Opening(
        "Board",
        SITE,
        "Findings on chest radiographs, scored against references that this web server cannot open.",
    ),
    "/submit": Opening(
        "Submit",
        "Submit predictions",
        "Files are checked when you drop them, as often as you like. Only a released score is charged to your budget.",
    ),
    "/mine": Opening("My submissions", "My submissions"),
    "/compare": Opening(
        "Compare",
        "Compare two entries",
        "Differences between the shown scores of two entries. Differences and their intervals are "
        "computed from these scores and their intervals, so they reveal nothing new about the held-out labels.",
    ),
    "/about": Opening(
        "About", "About this leaderboard", "How scores are computed, which of them are shown, and which are not."
    ),
    "/entry": Opening("Entry", "Entry"),
    "/submission": Opening("Submission", "Your submission"),
    "/admin": Opening("Admin", "Admin"),
    "/read": Opening(
        "Read answers",
        "Read answers",
        "Score each answer separately, by the definitions of the scale. The author of an answer is hidden.",
    ),
}


def opening(path: str, *, markup: str = "") -> str:
    """Return the heading and first sentence of the page at `path`, followed by the HTML `markup`."""
    page = OPENINGS[path]
    return page_head(page.heading, f"{page.sentence} " if markup else page.sentence, markup=markup)


def board_opening(board: Standings, thumbnails: Sequence[tuple[str, str, str]] = ()) -> str:
    """Return the first sentences of a board: its task, the leading entry, and the leader's score with its interval.

    Parameters
    ----------
    thumbnails : (address, thumbnail, alternative text) of cases
    """
    kind = KINDS[board.kind]
    placed = [entry for entry in board.entries if entry.rank is not None]
    first = [entry for entry in placed if entry.tier == placed[0].tier]
    figure = first[0].figure(board.primary.name) if first else None
    references = reference_values(board, board.primary.name)
    question = re.split(r"(?<=[?.]) ", kind.display.question)[0]
    return draw(PAGE, "board", board, question, kind.items, first, figure, references, thumbnails)


def reference_values(board: Standings, metric: str) -> list[tuple[str, float]]:
    """Return (name, value) pairs as references for a macro: chance on this holdout, and values from papers."""
    chance = [("Chance", board.chance[metric])] if metric in board.chance else []
    kinds = [kind for kind in REFERENCE_KINDS_SHOWN if not (chance and kind == "chance")] if board.comparable else []
    rows = [row for row in board.references if row.kind in kinds and metric in row.macro]
    return [*chance, *((row.name, row.macro[metric][0]) for row in rows)]


def entry_title(submission: Submission) -> str:
    """Return the entry's model and team."""
    return f"{submission.model_name}, {submission.team}"


def entry_opening(submission: Submission, version: str | None, result: SharedResult | None) -> str:
    """Return the first sentences of an entry: model, team and, if public, rank and score."""
    lead = draw(PAGE, "entry", submission, version or submission.version)
    head = page_head(entry_title(submission), markup=lead)
    return head if result is None else head + draw(PAGE, "headline", result)
