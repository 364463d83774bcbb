"""A released score as HTML: every finding with its intervals, beside the published human readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reveal_leaderboard.boards.references import ReferenceRow
from reveal_leaderboard.release.release import Figure, ReleasedScore
from reveal_leaderboard.web.pages.board_notes import authors, rounding
from reveal_leaderboard.web.pages.drawing import figure_cell, interval_bar, message, none_cell, percent, table, text
from reveal_leaderboard.web.pages.plots import Mark, forest
from reveal_leaderboard.web.pages.rubric_view import is_rubric, render_score

__all__ = ["changes_view", "finding_plot", "score_view"]

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
