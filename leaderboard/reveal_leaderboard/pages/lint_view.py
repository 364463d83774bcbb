"""The linter's report as HTML: the verdict, the problems with their lines, what the file holds."""

from __future__ import annotations

from collections.abc import Mapping

from reveal_bench.predictions import LintReport, Problem
from reveal_leaderboard.pages.drawing import badge, detail, facts, message, plural, table, text

__all__ = ["lint_view"]

LINT_ROWS_SHOWN = 50


def lint_view(report: LintReport) -> str:
    """A lint report; every text of the file is escaped."""
    if report.ok:
        found = f"{plural(report.n_entries, 'prediction')}, {plural(report.n_warnings, 'warning')}"
        verdict = message("good", f"The file can be sent: {found}.")
    else:
        advice = "Nothing was queued and nothing was charged. Mend what is listed and drop the file again."
        verdict = message("bad", f"The file cannot be sent: {report.verdict}.", advice)
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
        f'<tr class="rv-{text(problem.severity)}"><th scope="row"><span class="rv-line">{text(line)}</span>'
        f"{badge(problem.severity)}</th><td>{text(problem.message)}{hint}</td>"
        f"<td><code>{text(problem.field)}</code></td><td><code>{text(problem.value)}</code></td>"
        f"<td><code>{text(problem.rule)}</code></td></tr>"
    )


def _statistics(statistics: Mapping[str, object]) -> str:
    items = {}
    for name, value in statistics.items():
        pairs = value.items() if isinstance(value, Mapping) else [("", value)]
        shown = ", ".join(f"{key} {_number(number)}".strip() for key, number in pairs)
        items[name.replace("_", " ")] = text(shown) or "none"
    return detail("What the file holds", facts(items)) if items else ""


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
