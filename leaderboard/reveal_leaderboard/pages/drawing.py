"""Pieces of HTML that the pages are made of.

Every function takes plain values and escapes every text it is given, so that what comes out can be put into a page.
Figures are fractions on the way in and percents on the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from reveal_bench.predictions import LintReport, Problem
from reveal_leaderboard.release import Figure, ReleasedScore

__all__ = ["badge", "figure_cell", "interval_bar", "lint_view", "message", "percent", "score_view", "table", "text"]

LINT_ROWS_SHOWN = 50


def text(value: object) -> str:
    """Any value as text that cannot be markup."""
    return escape(str(value), quote=True)


def percent(fraction: float, digits: int = 0) -> str:
    """A fraction as a percent, without the sign."""
    return f"{100 * fraction:.{digits}f}"


def message(kind: str, title: str, body: str = "") -> str:
    """A box: `kind` is "info", "good", "bad" or "busy"; the word before the title says the same as the colour."""
    word = {"info": "", "good": "OK. ", "bad": "Problem. ", "busy": "Working. "}[kind]
    detail = f"<p>{text(body)}</p>" if body else ""
    role = "alert" if kind == "bad" else "status"
    return f'<div class="rv-message rv-{kind}" role="{role}"><strong>{word}{text(title)}</strong>{detail}</div>'


def badge(label: str) -> str:
    """A small outlined word."""
    return f'<span class="rv-badge">{text(label)}</span>'


def interval_bar(value: float, low: float | None = None, high: float | None = None) -> str:
    """A line from 0 to 100 % with the interval as a bar and the value as a tick; its text stands beside it."""
    bar = ""
    if low is not None and high is not None:
        bar = f'<i style="left:{100 * low:.0f}%;width:{max(100 * (high - low), 1):.0f}%"></i>'
    return f'<span class="rv-bar" aria-hidden="true">{bar}<b style="left:{100 * value:.1f}%"></b></span>'


def figure_cell(figure: Figure) -> str:
    """A table cell: value, interval in figures, interval drawn."""
    interval = ""
    if figure.low is not None and figure.high is not None:
        interval = f'<span class="rv-ci">{percent(figure.low)}–{percent(figure.high)}</span>'
    bar = interval_bar(figure.value, figure.low, figure.high)
    return f'<td class="rv-figure"><span class="rv-value">{percent(figure.value)}</span>{interval}{bar}</td>'


def table(head: Sequence[str], body: Iterable[str], *, label: str, css_class: str = "") -> str:
    """A table that scrolls inside its own box; `head` and `body` are cells and groups of rows, already escaped."""
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return (
        f'<div class="rv-scroll {css_class}" role="region" aria-label="{text(label)}" tabindex="0">'
        f"<table><thead><tr>{cells}</tr></thead>{''.join(body)}</table></div>"
    )


def score_view(score: ReleasedScore, titles: Mapping[str, str]) -> str:
    """A released score: its macros with intervals, then every finding."""
    if not score.shown:
        return message("info", "No figure of this score can be shown", score.note)
    metrics = [name for name in titles if any(figure.metric == name for figure in score.figures)]
    rows = []
    for finding in ("macro", *score.shown, *score.hidden):
        name = "Macro" if finding == "macro" else finding
        cells = [
            figure_cell(figure) if (figure := score.figure(metric, finding)) else '<td class="rv-none">–</td>'
            for metric in metrics
        ]
        rows.append(f'<tr><th scope="row">{text(name)}</th>{"".join(cells)}</tr>')
    head = ["Finding", *(f"{text(titles[name])}, %" for name in metrics)]
    body = [f"<tbody>{''.join(rows)}</tbody>"]
    note = f'<p class="rv-note">95 % intervals, resampling patients. {text(score.note)}</p>'
    return table(head, body, label="Score", css_class="rv-score") + note


def lint_view(report: LintReport) -> str:
    """A lint report: verdict, problems as a table, statistics."""
    if report.ok:
        found = f"{report.n_entries} predictions, {report.n_warnings} warnings"
        verdict = message("good", f"The file can be sent: {found}.")
    else:
        found = report.verdict
        advice = "Nothing was queued. Mend what is listed and drop the file again."
        verdict = message("bad", f"The file cannot be sent: {found}.", advice)
    known = f'<p class="rv-note">{text(report.file)}, read as {text(report.format)}.</p>'
    return verdict + known + _problem_table(report) + _statistics(report.statistics)


def _problem_table(report: LintReport) -> str:
    if not report.problems:
        return ""
    ordered = sorted(report.problems, key=lambda p: (p.severity == "warning", p.line is None, p.line))
    rows = "".join(_problem_row(problem) for problem in ordered[:LINT_ROWS_SHOWN])
    head = ["Line", "What is wrong", "Field", "Value", "Rule"]
    shown = table(head, [f"<tbody>{rows}</tbody>"], label="Problems found", css_class="rv-lint")
    if len(ordered) > LINT_ROWS_SHOWN:
        shown += f'<p class="rv-note">{LINT_ROWS_SHOWN} of {len(ordered)} are shown, errors first.</p>'
    return shown


def _problem_row(problem: Problem) -> str:
    hint = f'<span class="rv-hint">{text(problem.hint)}</span>' if problem.hint else ""
    line = "" if problem.line is None else problem.line
    return (
        f'<tr class="rv-{problem.severity}"><th scope="row"><span class="rv-line">{text(line)}</span>'
        f"{badge(problem.severity)}</th><td>{text(problem.message)}{hint}</td><td><code>{text(problem.field)}</code></td>"
        f"<td><code>{text(problem.value)}</code></td><td><code>{text(problem.rule)}</code></td></tr>"
    )


def _statistics(statistics: Mapping[str, object]) -> str:
    items = []
    for name, value in statistics.items():
        pairs = value.items() if isinstance(value, Mapping) else [("", value)]
        shown = ", ".join(f"{key} {_number(number)}".strip() for key, number in pairs)
        items.append(f"<dt>{text(name.replace('_', ' '))}</dt><dd>{text(shown) or 'none'}</dd>")
    if not items:
        return ""
    return f'<details class="rv-details"><summary>What the file holds</summary><dl>{"".join(items)}</dl></details>'


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
