"""What stands round the table of a board: notes, the legend and the plots, as HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from reveal_bench.evaluation.published import ReferenceRow
from reveal_bench.metrics import Metric
from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.boards.standings import BoardEntry, Standings
from reveal_leaderboard.release.rounding import is_of_places
from reveal_leaderboard.web.pages import plots
from reveal_leaderboard.web.pages.drawing import draw, message
from reveal_leaderboard.web.pages.first_sentences import REFERENCE_KINDS_SHOWN
from reveal_leaderboard.web.pages.plots import Day, HeatRow, PlotRow

PAGE = "board.html"
MOST_ROWS = 40
RANK_SENTENCE = (
    "Entries with the same letter do not differ significantly on this many patients, so they share a place and a "
    "range: with 95 % confidence, for all entries at once, the true rank lies within it. The order within a tier means "
    "nothing."
)


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
    policy = board.entries[0].score.policy if board.entries else {}
    how = f"{average_only(policy, board.primary.name)} {rounding(policy, board.primary.name)}".lstrip()
    is_signed = any(metric.low < 0 for metric in board.metrics)
    told = (RANK_SENTENCE, board.min_cell, board.hidden, has_masks, is_signed, how, bool(board.chance))
    return draw(PAGE, "legend", *told)


def average_only(policy: Mapping[str, Any], metric: str) -> str:
    """Which of the findings shown have no figures such as `metric` of their own, as a sentence; empty if all have."""
    least = policy.get("place_cell", 0) if is_of_places(metric) else 0
    is_needed = least > policy.get("min_cell", 0)
    return f"Findings with fewer than {least} cases count in averages only." if is_needed else ""


def rounding(policy: Mapping[str, Any], metric: str) -> str:
    """How a release policy rounds figures such as `metric`, as a sentence, in percent as they stand on the pages."""
    factor, least = (policy.get("place_factor", 1), policy.get("place_cell", 0)) if is_of_places(metric) else (1, 0)
    steps = [factor * step for step in policy.get("band_resolution") or ()]
    bands = [int(begin) for begin in policy.get("bands") or ()]
    if not steps or len(steps) != len(bands):  # scored under an earlier form of the policy
        return "Figures are rounded."
    if len(set(steps)) == 1:
        return f"Figures are rounded to steps of {in_points(steps[0])}."
    n_below = sum(begin <= least for begin in bands[1:])  # bands without a figure, but for the end of the last
    steps, bands = steps[n_below:], [max(bands[n_below], least), *bands[n_below + 1 :]]
    told = [
        f"{in_points(step)} from {begin} cases"
        for before, step, begin in zip((None, *steps), steps, bands, strict=False)
        if step != before
    ]
    return f"Figures of findings are rounded to steps of {', '.join(told)} on; averages as their parts require."


def in_points(step: float) -> str:
    """A step in percentage points."""
    return "1 point" if step == 0.01 else f"{100 * step:g} points"


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


def plots_of(board: Standings, entries: Sequence[BoardEntry], columns: str) -> str:
    """The primary metric (or the one chosen): of all rows if some are published, by finding, and over time."""
    metric = next((m for m in board.metrics if m.name == columns), board.metrics[0])
    rows = board.references if board.comparable else ()
    shown = entries[:MOST_ROWS]
    return draw(
        PAGE,
        "plots",
        Markup(_forest(shown, rows, metric, _cut(entries))),
        Markup(_heat_map(board, shown, rows, metric, _cut(entries))),
        Markup(_over_time(board, metric)),
    )


def _forest(entries: Sequence[BoardEntry], rows: Sequence[ReferenceRow], metric: Metric, cut: str) -> str:
    """Entries and published rows; without any of these it would only repeat the table, whose cells draw intervals."""
    marks = [mark for entry in entries if (mark := _entry_mark(entry, metric.name, MACRO))]
    if not marks or not rows:
        return ""
    marks += [mark for row in rows if (mark := _reference_mark(row, metric.name, MACRO))]
    note = (
        "Filled dot: submission, with its 95 % interval. Hollow square: human readers; hollow diamond: other published "
        f"rows, without an interval.{cut}"
    )
    return plots.forest(marks, metric=metric.name, title=f"Macro {metric.in_words}, %", note=note)


def _heat_map(
    board: Standings, entries: Sequence[BoardEntry], rows: Sequence[ReferenceRow], metric: Metric, cut: str
) -> str:
    table = [
        HeatRow(e.model, e.team, _found(board, partial(_entry_mark, e, metric.name)), key=e.submission_id)
        for e in entries
    ]
    table += [
        HeatRow(r.name, "reference", _found(board, partial(_reference_mark, r, metric.name)), kind=r.kind)
        for r in rows
        if r.kind in REFERENCE_KINDS_SHOWN
    ]
    if not any(row.cells for row in table if row.kind == "submission"):
        return ""
    note = f"Point at a figure for its 95 % interval, which the page of the entry has, too.{cut}"
    return plots.heat_map(table, board.findings, title=f"{metric.title} by finding, %", note=note)


def _found(board: Standings, mark_of: Callable[[str], PlotRow | None]) -> dict[str, PlotRow]:
    return {finding: mark for finding in board.findings if (mark := mark_of(finding)) is not None}


def _over_time(board: Standings, metric: Metric) -> str:
    days = [
        Day(entry.date, f"{entry.model}, {entry.team}", figure.value)
        for entry in board.entries
        if (figure := entry.figure(metric.name)) is not None
    ]
    return plots.best_over_time(days, better=metric.better, title=f"Macro {metric.in_words}: the best over time, %")


def _cut(entries: Sequence[BoardEntry]) -> str:
    return f" The first {MOST_ROWS} of {len(entries)} entries of the table." if len(entries) > MOST_ROWS else ""


def _entry_mark(entry: BoardEntry, metric: str, finding: str) -> PlotRow | None:
    figure = entry.figure(metric, finding)
    if figure is None:
        return None
    return PlotRow(entry.model, figure.value, figure.interval, note=entry.team, key=entry.submission_id)


def _reference_mark(row: ReferenceRow, metric: str, finding: str) -> PlotRow | None:
    if finding == MACRO:
        value = row.macro[metric][0] if metric in row.macro else None
    else:
        value = row.figures.get(metric, {}).get(finding)
    if value is None:
        return None
    style = f", {row.prompt_style}" if row.prompt_style else ""
    kind = "human" if row.kind == "human" else "reference"
    return PlotRow(f"{row.name}{style}", value, kind=kind, note=f"reference, {authors(row.citation)}")


def authors(citation: str) -> str:
    """A citation in short: first author and year."""
    return f"{citation.split()[0]} et al. {year(citation)}" if citation.strip() else "–"


def year(citation: str) -> str:
    """The last year that a citation names."""
    years = re.findall(r"\b(?:19|20)\d\d\b", citation)
    return years[-1] if years else "–"
