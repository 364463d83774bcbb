"""What stands round the table of a board: notes, the legend and the plots, as HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

from markupsafe import Markup

from reveal_bench.kinds import KINDS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.boards.references import ReferenceRow
from reveal_leaderboard.boards.standings import Entry, Standings
from reveal_leaderboard.web.pages import plots
from reveal_leaderboard.web.pages.drawing import draw, message
from reveal_leaderboard.web.pages.plots import Mark

__all__ = [
    "RANK_SENTENCE",
    "authors",
    "closed",
    "left_out",
    "legend",
    "moves",
    "notes",
    "opening",
    "plots_of",
    "rounding",
    "synthetic",
    "year",
]

PAGE = "board.html"
MOST_IN_PANEL = 12
MOST_IN_FOREST = 40
PANEL_ROWS = {"human": "H", "chance": "C"}  # published rows that stand in the small panels too, and their letters
RANK_SENTENCE = (
    "Entries with the same letter cannot be told apart on this many patients, so they share a place and a range: with "
    "95 % confidence, for all entries at once, the true rank lies within it. The order inside a tier claims nothing."
)


def opening(board: Standings, films: Sequence[tuple[str, str, str]] = ()) -> str:
    """What is ranked, who leads and how sure that is; `films` are (address, thumbnail, alternative text) of cases."""
    kind = KINDS[board.kind]
    placed = [entry for entry in board.entries if entry.rank is not None]
    first = [entry for entry in placed if entry.tier == placed[0].tier]
    figure = first[0].figure(board.primary.name) if first else None
    rows = [row for row in board.references if row.kind in PANEL_ROWS] if board.comparable else []
    beside = [(row.name, row.macro[board.primary.name][0]) for row in rows if board.primary.name in row.macro]
    question = re.split(r"(?<=[?.]) ", kind.question)[0]
    return draw(PAGE, "opening", board, question, kind.items, first, figure, beside, films)


def synthetic(board: Standings) -> str:
    """The box that a made-up benchmark carries."""
    return draw(PAGE, "synthetic") if board.synthetic else ""


def closed(state: str, why: str) -> str:
    """What a board says that takes no submissions now; nothing of one that does."""
    if state == "open":
        return ""
    word = {"paused": "Submissions are paused.", "closed": "This board is closed to submissions."}.get(state, state)
    return message("info", word, why)


def notes(board: Standings) -> str:
    """What a reader of this board should know first; that it is frozen, in a box of its own."""
    told = list(board.notes)
    banner = _frozen(board, told.pop(0)) if board.is_frozen and told else ""
    return banner + draw(PAGE, "notes", told)


def _frozen(board: Standings, note: str) -> str:
    current = next((one.version for one in board.history if one.is_current), None)
    return draw(PAGE, "frozen", note, board.benchmark, current)


def left_out(titles: Sequence[str], min_cell: int) -> str:
    """The columns without any figure."""
    return draw(PAGE, "left_out", titles, min_cell) if titles else ""


def legend(board: Standings) -> str:
    """What the marks of the table mean."""
    has_masks = any(metric.name == "mask_iou_all" for metric in board.metrics)
    how = rounding(board.entries[0].score.policy if board.entries else {})
    return draw(PAGE, "legend", RANK_SENTENCE, board.min_cell, board.hidden, has_masks, how)


def rounding(policy: Mapping[str, Any]) -> str:
    """How a release policy rounds, as a sentence, in percent as figures stand on the pages."""
    steps, bands = policy.get("band_resolution") or (), policy.get("bands") or ()
    if not steps or len(steps) != len(bands):  # scored under an earlier form of the policy
        return "Figures are rounded."
    if len(set(steps)) == 1:
        return f"Figures are rounded to {100 * steps[0]:g}\u00a0%."
    told = [f"{100 * step:g}\u00a0% from {begin} cases" for step, begin in zip(steps, bands, strict=True)]
    return f"Figures of findings are rounded to {', '.join(told)} on; averages as their parts require."


def moves(changes: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """How a refresh moved the board, for everybody; `names` maps submission ids to "model, team"."""
    rows = []
    for change in changes.get("changes", ()):
        before, after = change["before"], change["after"]
        if before is None and after is None:
            continue
        moved = "no longer listed" if after is None else "new" if before is None else _moved(before - after)
        name = names.get(change["submission_id"], "an entry that left the board")
        rows.append((name, before, after, moved))
    return draw(PAGE, "moves", rows, changes["old"], changes["new"]) if rows else ""


def _moved(up: int) -> str:
    return "same" if not up else f"▲ up {up}" if up > 0 else f"▼ down {-up}"


def plots_of(board: Standings, entries: Sequence[Entry], columns: str) -> str:
    """The primary metric (or the one chosen) of every row with intervals, and a small panel per finding."""
    metric = next((m for m in board.metrics if m.name == columns), board.metrics[0])
    rows = board.references if board.comparable else ()
    marks = [mark for entry in entries[:MOST_IN_FOREST] if (mark := _entry_mark(entry, metric.name, MACRO))]
    marks += [mark for row in rows if (mark := _reference_mark(row, metric.name, MACRO))]
    if not entries or not marks:
        return ""
    shapes = "Filled dot: submission, with its 95 % interval."
    if rows:
        shapes += " Hollow square: human readers; hollow diamond: other published rows, without an interval."
    shapes += _cut(entries, MOST_IN_FOREST)
    # without published rows it would only repeat the table, whose cells draw every interval
    main = plots.forest(marks, title=f"Macro {metric.title}, %", note=shapes) if rows else ""
    few = dict(zip(ascii_lowercase, entries[:MOST_IN_PANEL], strict=False))
    beside = [row for row in rows if row.kind in PANEL_ROWS]
    panels = []
    for finding in board.findings:
        inside = [mark for key, entry in few.items() if (mark := _entry_mark(entry, metric.name, finding, key))]
        inside += [mark for row in beside if (mark := _reference_mark(row, metric.name, finding))]
        if any(mark.kind == "submission" for mark in inside):
            panels.append((finding, inside))
    letters = f"Rows in the order of the table: {_key(few, beside)}.{_cut(entries, MOST_IN_PANEL)}"
    each = plots.small_multiples(panels, title=f"{metric.title} by finding, %", note=letters)
    return draw(PAGE, "plots", Markup(main), Markup(each))


def _cut(entries: Sequence[Entry], most: int) -> str:
    return f" The first {most} of {len(entries)} entries of the table." if len(entries) > most else ""


def _key(entries: Mapping[str, Entry], rows: Sequence[ReferenceRow]) -> str:
    named = [f"{letter} {entry.model}" for letter, entry in entries.items()]
    return ", ".join([*named, *(f"{PANEL_ROWS[row.kind]} {row.name}" for row in rows)])


def _entry_mark(entry: Entry, metric: str, finding: str, short: str = "") -> Mark | None:
    figure = entry.figure(metric, finding)
    if figure is None:
        return None
    return Mark(entry.model, figure.value, figure.low, figure.high, note=entry.team, short=short)


def _reference_mark(row: ReferenceRow, metric: str, finding: str) -> Mark | None:
    if finding == MACRO:
        value = row.macro[metric][0] if metric in row.macro else None
    else:
        value = row.figures.get(metric, {}).get(finding)
    if value is None:
        return None
    style = f", {row.prompt_style}" if row.prompt_style else ""
    kind = "human" if row.kind == "human" else "reference"
    name = f"{row.name}{style}"
    return Mark(name, value, kind=kind, note=f"reference, {authors(row.citation)}", short=PANEL_ROWS.get(row.kind, ""))


def authors(citation: str) -> str:
    """A citation in short: first author and year."""
    return f"{citation.split()[0]} et al. {year(citation)}" if citation.strip() else "–"


def year(citation: str) -> str:
    """The last year that a citation names."""
    years = re.findall(r"\b(?:19|20)\d\d\b", citation)
    return years[-1] if years else "–"
