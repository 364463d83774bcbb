"""A submission as HTML: progress, released score next to published human readers, and the team's budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reveal_bench.analyses.published import ReferenceRow
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.words import count_text
from reveal_leaderboard.boards.standings import BoardEntry
from reveal_leaderboard.release.release import ReleasedScore
from reveal_leaderboard.store.queue import QueuePosition
from reveal_leaderboard.store.quota import LedgerEntry, QuotaBalance
from reveal_leaderboard.store.store import Score, Submission
from reveal_leaderboard.web.pages.board_notes import authors, rounding
from reveal_leaderboard.web.pages.drawing import draw, message
from reveal_leaderboard.web.pages.plots import PlotRow, forest
from reveal_leaderboard.web.pages.rubric_view import is_rubric, render_score

PAGE = "submission.html"


def score_view(score: ReleasedScore, titles: Mapping[str, str], *, human: ReferenceRow | None = None) -> str:
    """Return a table of macros with intervals, then of every finding; `titles` maps metric names to column heads.

    Parameters
    ----------
    human : published scores of human readers on the same data, shown in separate columns
    """
    if is_rubric(score):
        return render_score(score)
    if not score.shown:
        return message("info", "This score has no value that can be shown.", score.note)
    metrics = [name for name in titles if any(figure.metric == name for figure in score.figures)]
    humans = [name for name in metrics if human is not None and name in human.figures]
    rows = []
    released = {figure.finding for figure in score.figures if figure.metric in metrics}
    for finding in (name for name in (MACRO, *score.shown) if name in released):
        cells = [
            (score.figure(metric, finding), metric if metric in humans else "", _published(human, metric, finding))
            for metric in metrics
        ]
        rows.append(("Macro" if finding == MACRO else finding, _count(score, finding, metrics, titles), cells))
    source = f" Human readers: {authors(human.citation)}, {human.place}." if human and humans else ""
    first = "Scores are followed by their 95% interval from resampled patients. Numbers of cases are given as ranges."
    how = rounding(score.policy, score.figures[0].metric)
    note = " ".join([first, how, *_on_average_only(score, titles, metrics), score.note]) + source
    columns = [(titles[name], name in humans) for name in metrics]
    return draw(PAGE, "score", columns, rows, note)


def _on_average_only(score: ReleasedScore, titles: Mapping[str, str], metrics: Sequence[str]) -> list[str]:
    """Return a sentence that lists metrics shown only as an average and, if all are, the averaged findings."""
    of_findings = {figure.metric for figure in score.figures if figure.finding != MACRO}
    averaged = [titles[name] for name in metrics if name not in of_findings]
    if not averaged:
        return []
    over = "" if len(averaged) < len(metrics) else f", over {', '.join(score.shown)}"
    return [f"Only as an average: {', '.join(averaged)}{over}."]


def _count(score: ReleasedScore, finding: str, metrics: Sequence[str], titles: Mapping[str, str]) -> str:
    """Return the number of cases of a finding as ranges; for a macro, the number of findings per metric."""
    counts = {metric: figure.n for metric in metrics if (figure := score.figure(metric, finding)) is not None}
    if finding != MACRO:
        return " / ".join(sorted(set(counts.values())))
    first = next(iter(counts.values()))
    others = [f"{titles[metric]}: {n}" for metric, n in counts.items() if n != first]
    return "; ".join([f"{first} findings", *others])


def _published(human: ReferenceRow | None, metric: str, finding: str) -> float | None:
    """Return the published value of human readers, or None."""
    if human is None or metric not in human.figures:
        return None
    return human.macro[metric][0] if finding == MACRO and metric in human.macro else human.figures[metric].get(finding)


def finding_plot(score: ReleasedScore, metric: str, title: str, *, human: ReferenceRow | None = None) -> str:
    """Return a plot of a metric's scores per finding, with human readers' values; empty without a score.

    The result is also empty for readers' ratings, which the table draws.
    """
    marks: list[PlotRow] = []
    if is_rubric(score) or not any(score.figure(metric, finding) for finding in score.shown):
        return ""
    for finding in (MACRO, *score.shown):
        figure = score.figure(metric, finding)
        if figure is None:
            continue
        name = "Macro" if finding == MACRO else finding
        marks.append(PlotRow(name, figure.value, figure.interval))
        values = {} if human is None else human.figures.get(metric, {})
        if finding in values:
            marks.append(PlotRow("human readers", values[finding], kind="human"))
    note = "Filled dot: this entry, with its 95% interval."
    note += " Hollow square: human readers, published." if any(mark.kind == "human" for mark in marks) else ""
    return forest(marks, metric=metric, title=f"{title} by finding, %", note=note)


def changes_view(old: ReleasedScore, new: ReleasedScore, titles: Mapping[str, str], names: Sequence[str]) -> str:
    """Return a table that compares the macros of two versions; `names` are the versions, the older one first."""
    words = {metric: METRICS[metric].in_words if metric in METRICS else title for metric, title in titles.items()}
    macros = [(title, old.figure(metric), new.figure(metric)) for metric, title in words.items()]
    rows = [row for row in macros if row[1:] != (None, None)]
    return draw(PAGE, "changes", rows, list(names)) if rows else ""


FINAL = ("scored", "refused", "failed", "withdrawn")


STEPS = ("queued", "scoring", "scored")


def progress_view(
    submission: Submission,
    waiting: QueuePosition | None,
    score: Score | None,
    why: str = "",
    place: tuple[BoardEntry, int] | None = None,
) -> str:
    """Return the submission's progress and, once it is scored, its score.

    Parameters
    ----------
    waiting : queue position of a queued submission
    why : reason of the last event of a submission that ended without a score
    place : the submission's row on the board and the number of rows; None if it is not on the board
    """
    parts = [steps(submission.status), _state(submission, waiting, why, place)]
    if score is not None and submission.status == "scored":
        released = ReleasedScore.from_json(score.released)
        if score.is_held:
            parts.append(draw("pieces.html", "held", score.shown_of))
        parts.append(score_view(released, shown_metrics(released)))
    return "".join(parts)


def steps(status: str) -> str:
    """Return the three steps of the progress, each with a symbol and a word."""
    ended = status in FINAL and status != "scored"
    names = ("queued", status) if status == "withdrawn" else (*STEPS[:2], status) if ended else STEPS
    names = ("queued", "reading", "scored") if status == "reading" else names
    at = names.index(status) if status in names else 0
    items = []
    for i, name in enumerate(names):
        state = "done" if i < at or (i == at and status in FINAL) else "now" if i == at else "to-come"
        mark = "✕" if ended and i == at else {"done": "✓", "now": "●", "to-come": "○"}[state]
        items.append((name, state, mark, i == at))
    return draw(PAGE, "steps", items)


def _state(
    submission: Submission, waiting: QueuePosition | None, why: str, place: tuple[BoardEntry, int] | None
) -> str:
    if submission.status in ("received", "linted", "queued"):
        parts = ("busy", _place(waiting), _expected(waiting))
    elif submission.status == "scoring":
        parts = ("busy", "Scoring in progress.", _expected(waiting, "It should finish"))
    elif submission.status == "reading":
        parts = ("info", "The answers are waiting for readers.", "This may take days. You can close the page.")
    elif submission.status == "scored":
        parts = ("good", f"{submission.model_name} is scored.", "" if place is None else rank_in_words(*place))
    elif submission.status == "withdrawn":
        parts = ("info", "You withdrew this submission. Nothing was charged.", "")
    else:
        number = f" Incident {submission.incident}." if submission.incident else ""
        state = "failed" if submission.status == "failed" else f"was {submission.status}"
        parts = ("bad", f"The submission {state}.", f"{why}{number} Nothing was charged.")
    return draw(PAGE, "state", *parts, submission)


def rank_in_words(row: BoardEntry, n_rows: int) -> str:
    """Return an entry's rank on its board, such as "Rank 2–3 of 8, tier B." """
    if row.tier is None:
        return f"On the board: {row.place}."
    return f"Rank {row.place.replace('-', '–')} of {n_rows}, tier {row.tier}."


def _place(waiting: QueuePosition | None) -> str:
    if waiting is None or waiting.position is None:
        return "In the queue."
    return f"In the queue, position {waiting.position}."


def _expected(waiting: QueuePosition | None, event: str = "It should start") -> str:
    if waiting is not None and waiting.is_paused:
        return "The board is paused, and nothing is scored until it opens again."
    if waiting is None or waiting.expected_seconds is None:
        return "The start time is not known yet." if event.endswith("start") else ""
    return f"{event} {duration(waiting.expected_seconds)}."


def duration(seconds: float) -> str:
    """Return a waiting time in words, rounded to 10 seconds, minutes or hours."""
    if seconds < 5:
        return "in a moment"
    if seconds < 90:
        return f"in about {max(10, round(seconds, -1)):.0f} seconds"
    if seconds < 5400:
        return f"in about {count_text(round(seconds / 60), 'minute')}"
    return f"in about {count_text(round(seconds / 3600), 'hour')}"


def balance_view(balance: QuotaBalance, team: str) -> str:
    """Return the team's remaining budget as numbers, a row of boxes, and a sentence."""
    boxes = ["used"] * balance.charged + ["pending"] * balance.pending + ["left"] * balance.left
    return draw(PAGE, "balance", balance, team, boxes[:40])


def ledger_view(rows: Sequence[LedgerEntry], balance: QuotaBalance) -> str:
    """Return the ledger's entries, newest first, each with the used total after the entry."""
    if not rows:
        return message("info", "Nothing has been charged yet.", balance.why)
    used, lines = 0, []
    for row in rows:
        used += 0 if row.kind == "granted" else row.amount
        change = "0" if not row.amount else f"{-row.amount:+d}".replace("-", "−")
        lines.append((row, row.kind, change, used))
    return draw(PAGE, "ledger", lines[::-1], balance)


def shown_metrics(score: ReleasedScore) -> dict[str, str]:
    """Return name -> title of the metrics of a score in their order, without chance values."""
    names = dict.fromkeys(figure.metric for figure in score.figures)
    return {name: METRICS[name].title if name in METRICS else name for name in names if name not in NOT_ON_BOARDS}


NOT_ON_BOARDS = ("grid_chance", "point_chance")
