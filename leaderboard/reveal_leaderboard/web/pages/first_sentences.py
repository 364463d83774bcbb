"""Every page's name, heading and first sentence.

`OPENINGS` has the openings that are the same for all visitors. A board opens with its result (:func:`board_opening`),
and so does an entry (:func:`entry_opening`); their markup is in ``templates/first_sentences.html``.
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
"""Kinds of published rows shown next to the entries where space is short."""


class Opening(NamedTuple):
    """A page's name in menus and window titles, its heading, and its first sentence."""

    name: str
    heading: str
    sentence: str = ""


OPENINGS: Mapping[str, Opening] = {
    "/": Opening(
        "Board",
        SITE,
        "Findings on chest radiographs, scored against holdouts whose references this server cannot open.",
    ),
    "/submit": Opening(
        "Submit",
        "Submit predictions",
        "Files are checked when you drop them, as often as you like; only a released score is charged.",
    ),
    "/mine": Opening("My submissions", "My submissions"),
    "/compare": Opening(
        "Compare",
        "Compare two entries",
        "Differences between the scores shown for both entries, with intervals computed from theirs: a comparison "
        "reveals nothing new about the held-out labels.",
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
        "Score each answer on its own, by the definitions of the scale. You do not see whose answer it is.",
    ),
}


def opening(path: str, *, markup: str = "") -> str:
    """Return the heading and first sentence of the page at `path`; `markup` is HTML that follows the sentence."""
    page = OPENINGS[path]
    return page_head(page.heading, f"{page.sentence} " if markup else page.sentence, markup=markup)


def board_opening(board: Standings, thumbnails: Sequence[tuple[str, str, str]] = ()) -> str:
    """Return the opening of a board: its question, its leader, and the interval.

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
    """Return (name, value) pairs to compare a macro with: chance on this holdout, and values from papers."""
    chance = [("Chance", board.chance[metric])] if metric in board.chance else []
    kinds = [kind for kind in REFERENCE_KINDS_SHOWN if not (chance and kind == "chance")] if board.comparable else []
    rows = [row for row in board.references if row.kind in kinds and metric in row.macro]
    return [*chance, *((row.name, row.macro[metric][0]) for row in rows)]


def entry_title(submission: Submission) -> str:
    """Return the entry's model and team."""
    return f"{submission.model_name}, {submission.team}"


def entry_opening(submission: Submission, version: str | None, result: SharedResult | None) -> str:
    """Return an entry's model and team and, where visitors may see them, its rank and score."""
    lead = draw(PAGE, "entry", submission, version or submission.version)
    head = page_head(entry_title(submission), markup=lead)
    return head if result is None else head + draw(PAGE, "headline", result)
