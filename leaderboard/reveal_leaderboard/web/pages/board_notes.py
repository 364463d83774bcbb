"""Notes, legend and plots around the table of a board, as HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from reveal_bench.analyses.published import ReferenceRow
from reveal_bench.metrics import Metric
from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.boards.standings import BoardEntry, Standings
from reveal_leaderboard.release.rounding import is_positional
from reveal_leaderboard.web.pages import plots
from reveal_leaderboard.web.pages.drawing import draw, message
from reveal_leaderboard.web.pages.first_sentences import REFERENCE_KINDS_SHOWN
from reveal_leaderboard.web.pages.plots import Day, HeatRow, PlotRow

PAGE = "board.html"
MAX_ROWS = 40
RANK_SENTENCE = (
    "Entries with the same letter (tier) do not differ significantly on this many patients. They "
    "share a rank and a range of ranks. With 95% confidence, the ranges of all entries contain their "
    "true ranks. The order within a tier has no meaning. While a board is open, its tiers are "
    "computed from rounded scores, with unpaired tests, because paired tests would reveal answers. "
    "So fewer entries differ significantly than with the command reveal-bench rank."
)


def synthetic(board: Standings) -> str:
    """Return the notice of a synthetic benchmark; empty for others."""
    return draw(PAGE, "synthetic") if board.synthetic else ""


def closed(state: str, why: str) -> str:
    """Return the notice of a board that accepts no submissions; empty for an open one."""
    if state == "open":
        return ""
    word = {"paused": "Submissions are paused.", "closed": "This board is closed to submissions."}.get(state, state)
    return message("info", word, why)


def notes(board: Standings) -> str:
    """Return the notes on a board; for a frozen board, the first note is in a separate box."""
    sentences = list(board.notes)
    banner = _frozen(board, sentences.pop(0)) if board.is_frozen and sentences else ""
    return banner + draw(PAGE, "notes", sentences)


def _frozen(board: Standings, note: str) -> str:
    current = next((version.version for version in board.history if version.is_current), None)
    return draw(PAGE, "frozen", note, board.benchmark, current)


def left_out(titles: Sequence[str], min_cell: int) -> str:
    """Return the note that lists columns without any score."""
    return draw(PAGE, "left_out", titles, min_cell) if titles else ""


def legend(board: Standings) -> str:
    """Return the legend of the table."""
    has_masks = any(metric.name == "mask_iou_all" for metric in board.metrics)
    policy = board.entries[0].score.policy if board.entries else {}
    how = f"{average_only(policy, board.primary.name)} {rounding(policy, board.primary.name)}".lstrip()
    is_signed = any(metric.low < 0 for metric in board.metrics)
    values = (RANK_SENTENCE, board.min_cell, board.hidden, has_masks, is_signed, how, bool(board.chance))
    return draw(PAGE, "legend", *values)


def average_only(policy: Mapping[str, Any], metric: str) -> str:
    """Return a sentence on findings that count only in the averages of `metric`; empty if there are none."""
    least = policy.get("place_cell", 0) if is_positional(metric) else 0
    is_needed = least > policy.get("min_cell", 0)
    return f"Findings with fewer than {least} cases count only in averages." if is_needed else ""


def rounding(policy: Mapping[str, Any], metric: str) -> str:
    """Return a sentence on the rounding of the scores of `metric`, with steps in percentage points."""
    factor, least = (policy.get("place_factor", 1), policy.get("place_cell", 0)) if is_positional(metric) else (1, 0)
    steps = [factor * step for step in policy.get("band_resolution") or ()]
    bands = [int(begin) for begin in policy.get("bands") or ()]
    if not steps or len(steps) != len(bands):  # scored under an earlier policy format
        return "Scores are rounded."
    if len(set(steps)) == 1:
        return f"Scores are rounded to steps of {in_points(steps[0])}."
    n_below = sum(begin <= least for begin in bands[1:])  # ranges of case numbers in which no score is shown
    steps, bands = steps[n_below:], [max(bands[n_below], least), *bands[n_below + 1 :]]
    ranges = [
        f"{in_points(step)} from {begin} cases"
        for before, step, begin in zip((None, *steps), steps, bands, strict=False)
        if step != before
    ]
    of_findings = f"Scores of findings are rounded to steps of {', '.join(ranges)}."
    return f"{of_findings} The steps of averages follow from those of their findings."


def in_points(step: float) -> str:
    """Return a step in percentage points."""
    return "1 point" if step == 0.01 else f"{100 * step:g} points"


def moves(changes: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the rank changes between two versions; `names` maps submission ids to "model, team"."""
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
    """Return the plots of a metric, by default the primary one: entries next to published rows, findings, and the best
    score over time.
    """
    metric = next((m for m in board.metrics if m.name == columns), board.metrics[0])
    rows = board.comparable_references
    plotted = entries[:MAX_ROWS]
    return draw(
        PAGE,
        "plots",
        Markup(_forest(plotted, rows, metric, _cut(entries))),
        Markup(_heat_map(board, plotted, rows, metric, _cut(entries))),
        Markup(_over_time(board, metric)),
    )


def _forest(entries: Sequence[BoardEntry], rows: Sequence[ReferenceRow], metric: Metric, cut: str) -> str:
    """Return the plot of entries and published rows; empty without published rows, since the table also draws
    intervals.
    """
    marks = [mark for entry in entries if (mark := _entry_mark(entry, metric.name, MACRO))]
    if not marks or not rows:
        return ""
    marks += [mark for row in rows if (mark := _reference_mark(row, metric.name, MACRO))]
    note = (
        "Filled dot: submission, with its 95% interval. Hollow square: human readers; hollow diamond: other published "
        f"rows, without interval.{cut}"
    )
    return plots.forest(marks, metric=metric.name, title=f"Macro {metric.in_words}, %", note=note)


def _heat_map(
    board: Standings, entries: Sequence[BoardEntry], rows: Sequence[ReferenceRow], metric: Metric, cut: str
) -> str:
    table = [
        HeatRow(e.model, e.team, _marks(board, partial(_entry_mark, e, metric.name)), key=e.submission_id)
        for e in entries
    ]
    table += [
        HeatRow(r.name, "reference", _marks(board, partial(_reference_mark, r, metric.name)), kind=r.kind)
        for r in rows
        if r.kind in REFERENCE_KINDS_SHOWN
    ]
    if not any(row.cells for row in table if row.kind == "submission"):
        return ""
    note = f"Point at a score to see its 95% interval, which is also on the entry's page.{cut}"
    return plots.heat_map(table, board.findings, title=f"{metric.title} by finding, %", note=note)


def _marks(board: Standings, mark_of: Callable[[str], PlotRow | None]) -> dict[str, PlotRow]:
    return {finding: mark for finding in board.findings if (mark := mark_of(finding)) is not None}


def _over_time(board: Standings, metric: Metric) -> str:
    days = [
        Day(entry.date, f"{entry.model}, {entry.team}", figure.value)
        for entry in board.entries
        if (figure := entry.figure(metric.name)) is not None
    ]
    return plots.best_over_time(days, better=metric.better, title=f"Macro {metric.in_words}: the best over time, %")


def _cut(entries: Sequence[BoardEntry]) -> str:
    return f" Only the first {MAX_ROWS} of {len(entries)} entries are drawn." if len(entries) > MAX_ROWS else ""


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
    """Return the first author and year of a citation."""
    return f"{citation.split()[0]} et al. {year(citation)}" if citation.strip() else "–"


def year(citation: str) -> str:
    """Return the last year in a citation."""
    years = re.findall(r"\b(?:19|20)\d\d\b", citation)
    return years[-1] if years else "–"
