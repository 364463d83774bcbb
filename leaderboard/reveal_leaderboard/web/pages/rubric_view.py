"""Ratings as HTML: the board of a tasks-type benchmark, one released score, and what a reader is shown.

Conventions
-----------
Mean ratings are shown on their own scale, 1 (poor) to 5 (excellent), with two digits; lines run from 1 to 5. Shares are
percents, agreement of readers is a coefficient. Every text of a submitter is escaped and stays plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reveal_bench.kinds.tasks.records import CATEGORIES, TaskQuestion, meaning
from reveal_bench.metrics.ordinal import CONTENT, CRITERIA, HIGHEST, LOWEST, REPORTED
from reveal_leaderboard.boards.reading import ReadingProgress
from reveal_leaderboard.boards.standings import Entry, Standings, filtered
from reveal_leaderboard.release.release import Figure, ReleasedScore
from reveal_leaderboard.store.metadata import KINDS
from reveal_leaderboard.store.ratings import StoredAnswer
from reveal_leaderboard.web.pages import board_notes
from reveal_leaderboard.web.pages.board_view import View
from reveal_leaderboard.web.pages.drawing import (
    interval_bar,
    link,
    message,
    none_cell,
    percent,
    plural,
    table,
    text,
)  # fmt: skip

__all__ = [
    "TITLES", "answer_view", "choices", "is_rubric", "progress_bar", "rating_cell", "rating_span", "render_board",
    "render_comparison", "render_score",
]  # fmt: skip

MACRO = "macro"
MEAN, CORRECT, KAPPA = "rubric_mean", "share_of_5", "cohen_kappa_quadratic"
TITLES = {
    MACRO: "Overall", CONTENT: "Content", "process": "Process", "execution": "Execution", "synthesis": "Synthesis",
    "language": "Language", "image_content": "Image content", "image_style": "Image style",
    "broad_abnormality": "Broad abnormality queries", "diagnosis_support": "Diagnostic reasoning",
    "measurement_temporal": "Measurements, comparisons over time",
}  # fmt: skip
"""Criteria and categories for people."""
COLUMNS = ((MEAN, MACRO), *((MEAN, name) for name in REPORTED), (CORRECT, CONTENT), (KAPPA, MACRO))
LEGEND = (
    "Mean of the readers’ scores from 1 (poor) to 5 (excellent); in figures: value, then low–high of the 95 % interval "
    "from patients drawn anew. The line runs from 1 to 5.",
    "Overall: the mean of process, execution, synthesis and language. A task without an answer scores 1 on these.",
    "Content: the least of process, execution and synthesis. Completely correct: answers whose content is 5.",
    "Pictures are scored only where an answer draws boxes, and do not enter the overall score.",
    "Readers’ agreement: quadratic-weighted kappa of all pairs of readers, mean over the four text criteria; 1 is full "
    "agreement, 0 that of chance. It says how firm a score is, not how good a model is.",
)


def is_rubric(score: ReleasedScore) -> bool:
    """Whether a score is of readers' ratings."""
    return any(figure.metric == MEAN for figure in score.figures) or CONTENT in (*score.shown, *score.hidden)


def rating_span(figure: Figure) -> str:
    """Value and interval in figures and drawn, on the scale of the metric."""
    if figure.metric == MEAN:
        low, high = figure.low, figure.high
        ends = (None, None) if low is None or high is None else (_along(low), _along(high))
        shown, bar = f"{figure.value:.2f}", interval_bar(_along(figure.value), *ends)
        interval = "" if low is None or high is None else f"{low:.2f}–{high:.2f}"
    elif figure.metric == KAPPA:
        shown, bar = _signed(figure.value), ""
        has_ends = figure.low is not None and figure.high is not None
        interval = f"{_signed(figure.low or 0)} to {_signed(figure.high or 0)}" if has_ends else ""
    else:
        shown, bar = f"{percent(figure.value)} %", interval_bar(figure.value, figure.low, figure.high)
        has_ends = figure.low is not None and figure.high is not None
        interval = f"{percent(figure.low or 0)}–{percent(figure.high or 0)}" if has_ends else ""
    ends_shown = f'<span class="rv-ci">{interval}</span>' if interval else ""
    return f'<span class="rv-value">{shown}</span>{ends_shown}{bar}'


def rating_cell(figure: Figure | None, why: str = "too few scored answers: not shown") -> str:
    """A table cell with :func:`rating_span`, or a dash and why."""
    return none_cell("–", why) if figure is None else f'<td class="rv-figure">{rating_span(figure)}</td>'


def _along(value: float) -> float:
    """Where a rating lies between the ends of the scale, 0 to 1."""
    return (value - LOWEST) / (HIGHEST - LOWEST)


def _signed(value: float, *, plus: bool = False) -> str:
    return (f"{value:+.2f}" if plus and value else f"{value:.2f}").replace("-", "−")


# The board and one score ----------------------------------------------------------------------------------------------


def render_board(board: Standings, view: View | None = None) -> str:
    """The board of a tasks-type benchmark as HTML, in the order of rank; of `view` what is searched for counts."""
    view = view or View()
    entries = filtered(board, search=view.search, kind=view.kind, organization=view.organization).entries
    where = {"benchmark": board.benchmark, "version": board.version}
    exports = " · ".join(
        link("/api/v1/leaderboard", title, **where, format=form)
        for form, title in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
    )
    title = f"<strong>{text(board.title)}</strong> {text(board.version)}, split {text(board.split)}"
    parts = [
        f'<p class="rv-summary">{title} · '
        f"{plural(len(board.entries), 'scored submission')} · ranked by overall score, 1 to 5 · download {exports}</p>",
        board_notes.synthetic(board),
        board_notes.notes(board),
    ]
    if not board.entries:
        first = f"<p>{link('/submit', 'Send the first one')}: checking a file is free.</p>"
        parts.append(message("info", "No submission is scored yet.", markup=first))
        return "".join(parts)
    if not entries:
        parts.append(message("info", "No entry matches.", "Clear the search and the filters to see all of them."))
        return "".join(parts)
    columns = [c for c in COLUMNS if any(entry.figure(*c) is not None for entry in entries)]
    head = ['<th scope="col" class="rv-rank">Rank</th>', '<th scope="col" class="rv-model">Model</th>']
    head += [_title(*column) for column in columns] + ["Kind", "Date"]
    rows = "".join(_row(entry, columns, board) for entry in entries)
    parts.append(table(head, [f"<tbody>{rows}</tbody>"], label=f"Board of {board.benchmark}", css_class="rv-board"))
    items = "".join(f"<li>{text(item)}</li>" for item in (board_notes.RANK_SENTENCE, *LEGEND))
    parts.append(f'<section aria-label="How to read the board"><ul class="rv-legend">{items}</ul></section>')
    return "".join(parts)


def _title(metric: str, finding: str) -> str:
    if metric == MEAN:
        direction = '<span class="rv-direction">↑ higher is better, 1 to 5</span>' if finding == MACRO else ""
        return f"{text(TITLES[finding])}{direction}"
    return "Completely correct" if metric == CORRECT else "Readers’ agreement, κ"


def _row(entry: Entry, columns: Sequence[tuple[str, str]], board: Standings) -> str:
    version = f" {text(entry.model_version)}" if entry.model_version else ""
    frozen = {"version": board.version} if board.is_frozen else {}
    permalink = link("/entry", entry.model, id=entry.submission_id, **frozen)
    model = f'<th scope="row" class="rv-model">{permalink}{version}<span class="rv-team">{text(entry.team)}</span></th>'
    spoken = entry.place if entry.rank is None else f"rank {entry.place}, tier {entry.tier}"
    tier = f'<span class="rv-tier" aria-hidden="true">{text(entry.tier)}</span>' if entry.tier else ""
    shown = "–" if entry.rank is None else entry.place.replace("-", "–")
    rank = (
        f'<td class="rv-rank"><span class="rv-spread" aria-hidden="true">{text(shown)}</span>{tier}'
        f'<span class="rv-spoken">{text(spoken)}</span></td>'
    )
    cells = "".join(rating_cell(entry.figure(*column)) for column in columns)
    facts = "".join(
        f'<td class="rv-fact">{text(fact)}</td>' for fact in (KINDS.get(entry.kind, entry.kind), entry.date)
    )
    return f"<tr>{rank}{model}{cells}{facts}</tr>"


def render_score(score: ReleasedScore) -> str:
    """One released score: overall, every criterion, every category of tasks."""
    if not score.figures:
        return message("info", "No figure of this score can be shown.", score.note)
    rows = []
    for name in (MACRO, *REPORTED, *CATEGORIES):
        mean, kappa = score.figure(MEAN, name), score.figure(KAPPA, name)
        n = "–" if mean is None else f"{mean.n} criteria" if name == MACRO else mean.n
        correct = rating_cell(score.figure(CORRECT, name)) if name == CONTENT else none_cell("", "not of this row")
        cells = f"{rating_cell(mean)}{correct}{rating_cell(kappa, 'no agreement to be told')}"
        kind = "Tasks: " if name in CATEGORIES else ""
        rows.append(
            f'<tr><th scope="row">{kind}{text(TITLES[name])}</th><td class="rv-count">{text(n)}</td>{cells}</tr>'
        )
    head = ["Criterion", "Answers", "Mean score, 1 to 5", "Completely correct", "Readers’ agreement, κ"]
    shown = table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="Score", css_class="rv-score")
    return f'{shown}<p class="rv-note">{text(LEGEND[0])} {text(score.note)}</p>'


def render_comparison(document: Mapping[str, Any], a: Entry, b: Entry) -> str:
    """Two entries, criterion by criterion; differences are A minus B, in points of the scale."""
    if not document["rows"]:
        return message("info", "These two have no shown figure in common.", str(document.get("note", "")))
    rows = []
    for row in document["rows"]:
        ends = (row["low"], row["high"])
        interval = none_cell("–", "too few answers differ") if None in ends else _ends_cell(*ends)
        told = "<b>yes</b>" if row["told_apart"] else "no"
        cells = "".join(rating_cell(entry.figure(row["metric"], row["finding"])) for entry in (a, b))
        cells += (
            f'<td class="rv-figure"><span class="rv-value">{_signed(row["value"], plus=True)}</span></td>{interval}'
        )
        rows.append(f'<tr><th scope="row">{text(TITLES[row["finding"]])}</th>{cells}<td>{told}</td></tr>')
    names = " · ".join(
        link("/entry", f"{n}: {one.model}, {one.team}", id=one.submission_id) for n, one in (("A", a), ("B", b))
    )
    n_told = sum(bool(row["told_apart"]) for row in document["rows"])
    verdict = f"{n_told} of {plural(len(rows), 'difference')} told apart." if n_told else "No difference is told apart."
    head = ["Criterion", "A, 1 to 5", "B, 1 to 5", "A − B, points", "95 % interval", "Told apart"]
    shown = table(head, [f"<tbody>{''.join(rows)}</tbody>"], label="Paired differences", css_class="rv-compare")
    note = f'<p class="rv-note">{text(document.get("note", ""))}</p>'
    return f'<p class="rv-summary">{names}</p>{message("info", verdict)}{shown}{note}'


def _ends_cell(low: float, high: float) -> str:
    return (
        f'<td class="rv-figure"><span class="rv-ci">{_signed(low, plus=True)} to {_signed(high, plus=True)}</span></td>'
    )


# What a reader is shown -----------------------------------------------------------------------------------------------


def choices(criterion: str) -> list[tuple[str, int]]:
    """The five scores of a criterion with their words, the best first."""
    return [(f"{score} – {meaning(criterion, score)}", score) for score in range(HIGHEST, LOWEST - 1, -1)]


def progress_bar(progress: ReadingProgress) -> str:
    """How far the reader is, in words and drawn."""
    total = progress.rated + progress.left
    words = f"{progress.rated} of {plural(total, 'answer')} scored by you; {progress.left} left."
    bar = (
        f'<progress value="{progress.rated}" max="{max(total, 1)}" aria-label="Answers scored" '
        'style="accent-color: var(--rv-tick); vertical-align: middle"></progress>'
    )
    return f'<p class="rv-note">{bar} {text(words)}</p>'


def answer_view(task: TaskQuestion | None, answer: StoredAnswer) -> str:
    """A task and an answer to it: plain text, boxes as a list; nothing of whose answer it is."""
    asked = text(answer.task_id) if task is None else text(task.prompt)
    parts = [f'<h2 class="rv-part" id="task" tabindex="-1">Task</h2><p style="{_PLAIN}">{asked}</p>']
    if task is not None:
        if task.indication:
            parts.append(f'<p class="rv-note">Indication: {text(task.indication)}</p>')
        images = ", ".join(f"{name} ({width} x {height})" for name, (height, width) in task.images.items())
        wanted = "The task asks for boxes." if task.requires_boxes else "The task asks for no boxes."
        parts.append(f'<p class="rv-note">Images: {text(images)}. {wanted}</p>')
    parts.append(f'<h2 class="rv-part">Answer</h2><div class="rv-toml" style="{_PLAIN}">{text(answer.answer)}</div>')
    parts.append(_boxes(answer.boxes))
    return "".join(parts)


_PLAIN = "white-space: pre-wrap; overflow-wrap: anywhere; max-height: none; font-family: inherit; font-size: 1rem"


def _boxes(boxes: Sequence[Mapping[str, Any]]) -> str:
    if not boxes:
        return '<p class="rv-note">The answer draws no boxes.</p>'
    rows = "".join(
        f'<tr><th scope="row">{text(box["label"])}</th><td>{text(box["image_id"])}</td>'
        f"{''.join(f'<td>{side:g}</td>' for side in box['box'])}</tr>"
        for box in boxes
    )
    head = ["Label", "Image", "Left", "Top", "Width", "Height"]
    note = '<p class="rv-note">Boxes, in pixels from the top left corner of the image.</p>'
    return note + table(head, [f"<tbody>{rows}</tbody>"], label="Boxes of the answer")


assert set(TITLES) == {MACRO, *REPORTED, *CATEGORIES}
assert set(CRITERIA) < set(TITLES)
