"""A submission as HTML: how far it is, its released score beside the published human readers, and the team's budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reveal_bench.metrics import METRICS
from reveal_leaderboard.boards.references import ReferenceRow
from reveal_leaderboard.release.release import Figure, ReleasedScore
from reveal_leaderboard.store.queue import Waiting
from reveal_leaderboard.store.quota import Balance, LedgerRow
from reveal_leaderboard.store.store import Score, Submission
from reveal_leaderboard.web.pages.board_notes import authors, rounding
from reveal_leaderboard.web.pages.drawing import (
    figure_cell,
    interval_bar,
    link,
    message,
    none_cell,
    percent,
    plural,
    table,
    text,
    when,
)
from reveal_leaderboard.web.pages.plots import Mark, forest
from reveal_leaderboard.web.pages.rubric_view import is_rubric, render_score

__all__ = [
    "FINAL", "balance_view", "changes_view", "duration", "finding_plot", "ledger_view", "progress_view", "score_view",
    "shown_metrics", "steps",
]  # fmt: skip

MACRO = "macro"


def score_view(score: ReleasedScore, titles: Mapping[str, str], *, human: ReferenceRow | None = None) -> str:
    """Macros with intervals, then every finding; `titles` maps metric names to column heads, in order.

    Parameters
    ----------
    human : a published row of human readers measured on the same data; its figures stand in columns of their own
    """
    if is_rubric(score):
        return render_score(score)
    if not score.shown:
        return message("info", "No figure of this score can be shown.", score.note)
    metrics = [name for name in titles if any(figure.metric == name for figure in score.figures)]
    humans = [name for name in metrics if human is not None and name in human.figures]
    rows = []
    for finding in (MACRO, *score.shown):
        cells = "".join(_cells(score, metric, finding, human if metric in humans else None) for metric in metrics)
        n = _count(score, finding)
        name = "Macro" if finding == MACRO else finding
        rows.append(f'<tr><th scope="row">{text(name)}</th><td class="rv-count">{text(n)}</td>{cells}</tr>')
    why = f"fewer than {score.policy.get('min_cell', 30)} cases: not shown"
    width = 1 + len(metrics) + len(humans)
    unshown = f'<td class="rv-none" colspan="{width}">{why}</td></tr>'
    rows += [f'<tr class="rv-unshown"><th scope="row">{text(finding)}</th>{unshown}' for finding in score.hidden]
    head = ["Finding", "Cases"]
    for name in metrics:
        head += [f"{text(titles[name])}, %", *(["Human readers, %"] if name in humans else [])]
    shown = table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="Score", css_class="rv-score")
    source = f" Human readers: {text(authors(human.citation))}, {text(human.place)}." if human and humans else ""
    note = "Value, then its 95\u00a0% interval from patients drawn anew. Cases are told in bands."
    note = f"{note} {rounding(score.policy)}"
    return f'{shown}<p class="rv-note">{text(note)} {text(score.note)}{source}</p>'


def _count(score: ReleasedScore, finding: str) -> str:
    """The bands of cases behind a row; of a macro the number of findings."""
    counts = sorted({figure.n for figure in score.figures if figure.finding == finding})
    if not counts:
        return "–"
    return f"{counts[0]} findings" if finding == MACRO else " / ".join(counts)


def _cells(score: ReleasedScore, metric: str, finding: str, human: ReferenceRow | None) -> str:
    figure = score.figure(metric, finding)
    cell = figure_cell(figure) if figure else none_cell("–", "not shown")
    if human is None:
        return cell
    value = human.macro[metric][0] if finding == MACRO and metric in human.macro else human.figures[metric].get(finding)
    if value is None:
        return cell + none_cell("n/a", "not published")
    published = f'<span class="rv-value">{percent(value, 1)}</span>{interval_bar(value)}'
    return f'{cell}<td class="rv-figure rv-human">{published}</td>'


def finding_plot(score: ReleasedScore, metric: str, title: str, *, human: ReferenceRow | None = None) -> str:
    """The findings of one metric on a common scale, each with the human readers' value below it."""
    marks: list[Mark] = []
    if is_rubric(score):  # a scale of its own, which the table draws
        return ""
    for finding in (MACRO, *score.shown):
        figure = score.figure(metric, finding)
        if figure is None:
            continue
        name = "Macro" if finding == MACRO else finding
        marks.append(Mark(name, figure.value, figure.low, figure.high))
        values = {} if human is None else human.figures.get(metric, {})
        if finding in values:
            marks.append(Mark("human readers", values[finding], kind="human"))
    note = "Filled dot: this entry, with its 95 % interval."
    note += " Hollow square: human readers, published." if any(mark.kind == "human" for mark in marks) else ""
    return forest(marks, title=f"{title} by finding, %", note=note)


def changes_view(old: ReleasedScore, new: ReleasedScore, titles: Mapping[str, str], names: Sequence[str]) -> str:
    """The macros of two versions side by side; `names` are the versions, the old one first."""
    rows = []
    for metric, title in titles.items():
        before, after = old.figure(metric), new.figure(metric)
        if before is None and after is None:
            continue
        rows.append(f'<tr><th scope="row">Macro {text(title)}, %</th>{_or_none(before)}{_or_none(after)}</tr>')
    if not rows:
        return ""
    head = ["Metric", *(text(name) for name in names)]
    return table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="What changed", css_class="rv-score")


def _or_none(figure: Figure | None) -> str:
    return none_cell("–", "not shown") if figure is None else figure_cell(figure)


FINAL = ("scored", "refused", "failed", "withdrawn")


STEPS = ("queued", "scoring", "scored")


def progress_view(submission: Submission, waiting: Waiting | None, score: Score | None, why: str = "") -> str:
    """The whole box.

    Parameters
    ----------
    waiting : the place in the queue, while there is one
    why : the reason of the last event, for a submission that ended without a score
    """
    parts = [steps(submission.status), _state(submission, waiting, why)]
    if score is not None and submission.status == "scored":
        released = ReleasedScore.from_json(score.released)
        if score.is_held:
            better = link("/entry", "your earlier one", id=score.shown_of)
            told = (
                f"<p>It is not better than {better} by more than the board’s step, or holds the same predictions.</p>"
            )
            parts.append(message("info", "The figures of an earlier submission are shown again.", markup=told))
        parts.append(score_view(released, shown_metrics(released)))
    return "".join(parts)


def steps(status: str) -> str:
    """The three steps with a mark and a word for each."""
    ended = status in FINAL and status != "scored"
    names = ("queued", status) if status == "withdrawn" else (*STEPS[:2], status) if ended else STEPS
    names = ("queued", "reading", "scored") if status == "reading" else names
    at = names.index(status) if status in names else 0
    items = []
    for i, name in enumerate(names):
        state = "done" if i < at or (i == at and status in FINAL) else "now" if i == at else "to come"
        mark = {"done": "✓", "now": "●", "to come": "○"}[state]
        if ended and i == at:
            mark = "✕"
        current = ' aria-current="step"' if i == at else ""
        css_class = f"rv-step-{state.replace(' ', '-')}"
        items.append(f'<li class="{css_class}"{current}><span aria-hidden="true">{mark}</span> {text(name)}</li>')
    return f'<ol class="rv-steps">{"".join(items)}</ol>'


def _state(submission: Submission, waiting: Waiting | None, why: str) -> str:
    sent = f"<p>Submission <code>{text(submission.id)}</code>, sent {when(submission.created_at)}.</p>"
    if submission.status in ("received", "linted", "queued"):
        return message("busy", _place(waiting), _expected(waiting), markup=sent)
    if submission.status == "scoring":
        return message("busy", "Being scored.", _expected(waiting, "It should be done"), markup=sent)
    if submission.status == "reading":
        told = "This may take days; you need not wait here."
        return message("info", "The answers wait for readers.", told, markup=sent)
    if submission.status == "scored":
        board = link("/", "the board", benchmark=submission.benchmark)
        see = f"<p>{link('/entry', 'Its page', id=submission.id)} · {board}</p>"
        return message("good", f"{submission.model_name} is scored.", markup=sent + see)
    if submission.status == "withdrawn":
        return message("info", "You have withdrawn it; nothing was charged.", markup=sent)
    number = f" Incident {submission.incident}." if submission.incident else ""
    refund = " Nothing was charged."
    return message("bad", f"The submission was {submission.status}.", f"{why}{number}{refund}", markup=sent)


def _place(waiting: Waiting | None) -> str:
    if waiting is None or waiting.position is None:
        return "In the queue."
    return f"In the queue, position {waiting.position}."


def _expected(waiting: Waiting | None, what: str = "It should start") -> str:
    if waiting is None or waiting.expected_seconds is None:
        return "When it starts cannot be told yet." if what.endswith("start") else ""
    return f"{what} {duration(waiting.expected_seconds)}."


def duration(seconds: float) -> str:
    """A time to come in words, no finer than it can be known."""
    if seconds < 5:
        return "in a moment"
    if seconds < 90:
        return f"in about {max(10, round(seconds, -1)):.0f} seconds"
    if seconds < 5400:
        return f"in about {plural(round(seconds / 60), 'minute')}"
    return f"in about {plural(round(seconds / 3600), 'hour')}"


MEANING = {"reserved": "set aside", "charged": "charged", "refunded": "given back", "granted": "granted"}


def balance_view(balance: Balance, team: str) -> str:
    """What is left, shown before anything is sent: as figures, as a row of boxes, and as a sentence."""
    spent, pending = balance.charged, balance.pending
    boxes = ["used"] * spent + ["pending"] * pending + ["left"] * balance.left
    drawn = "".join(f'<i class="rv-box-{state}"></i>' for state in boxes[:40])
    today = f"today {min(balance.left, balance.left_today)} left"
    figures = f"<b>{balance.left} of {balance.total} left</b> for this holdout version; {today}."
    under_way = f" {pending} under way." if pending else ""
    again = ""
    if not balance.may_send and balance.next_at is not None:
        again = f" Next possible: {when(balance.next_at)}."
    why = "" if balance.may_send else message("bad", "Nothing more can be sent now.", balance.why)
    return (
        f'<div class="rv-balance"><span class="rv-boxes" aria-hidden="true">{drawn}</span>'
        f"<span>{text(team)}: {figures}{under_way}{again}</span></div>{why}"
    )


def ledger_view(rows: Sequence[LedgerRow], balance: Balance) -> str:
    """Every line, the newest first, with the balance after it."""
    if not rows:
        return message("info", "Nothing was spent yet.", balance.why)
    used, lines = 0, []
    for row in rows:
        used += 0 if row.kind == "granted" else row.amount
        change = "0" if not row.amount else f"{-row.amount:+d}".replace("-", "−")
        about = "" if row.submission_id is None else link("/entry", row.submission_id[:8], id=row.submission_id)
        lines.append(
            f'<tr><td>{when(row.at)}</td><th scope="row">{text(MEANING.get(row.kind, row.kind))}</th>'
            f'<td class="rv-number">{change}</td><td class="rv-number">{used}</td><td>{about}</td>'
            f"<td>{text(row.why)}</td></tr>"
        )
    numbers = [f'<th scope="col" class="rv-number">{title}</th>' for title in ("Change", "Used after")]
    head = ["When", "What", *numbers, "Submission", "Why"]
    shown = table(head, [f"<tbody>{''.join(reversed(lines))}</tbody>"], label="Ledger", css_class="rv-ledger")
    is_over = not balance.may_send and balance.next_at is not None
    reset = f" Next possible: {when(balance.next_at)}." if is_over else ""
    return f'<p class="rv-note">{text(balance.why)}{reset}</p>{shown}'


def shown_metrics(score: ReleasedScore) -> dict[str, str]:
    """Metrics of a score, name -> title, in the order of its figures; chance expectations are left out."""
    names = dict.fromkeys(figure.metric for figure in score.figures)
    return {name: METRICS[name].title if name in METRICS else name for name in names if name not in NOT_ON_BOARDS}


NOT_ON_BOARDS = ("grid_chance",)
