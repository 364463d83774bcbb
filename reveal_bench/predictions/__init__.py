"""Checking prediction files: the public face of what :mod:`reveal_bench.entries` reads and each kind checks.

:func:`lint_predictions` (localization), :func:`lint_findings` and :func:`lint_tasks` give a
:class:`~reveal_bench.entries.report.LintReport` with all problems at once; :data:`RULES` lists every rule. Which of
them a dataset folder asks for, :func:`reveal_bench.evaluation.score.lint_file` finds out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.lazy import getter

if TYPE_CHECKING:
    from reveal_bench.entries.report import LintProblem, LintReport
    from reveal_bench.entries.source import Limits
    from reveal_bench.kinds.findings.lint import findings_to_jsonl, lint_findings
    from reveal_bench.kinds.localization.formats import predictions_to_jsonl
    from reveal_bench.kinds.localization.lint import lint_predictions
    from reveal_bench.kinds.tasks.lint import answers_to_jsonl, lint_tasks
    from reveal_bench.predictions.rules import RULES

_HOME = {
    "Limits": "entries.source",
    "LintProblem": "entries.report",
    "LintReport": "entries.report",
    "RULES": "predictions.rules",
    "answers_to_jsonl": "kinds.tasks.lint",
    "findings_to_jsonl": "kinds.findings.lint",
    "lint_findings": "kinds.findings.lint",
    "lint_predictions": "kinds.localization.lint",
    "lint_tasks": "kinds.tasks.lint",
    "predictions_to_jsonl": "kinds.localization.formats",
}

__all__ = [
    "RULES", "Limits", "LintReport", "LintProblem", "answers_to_jsonl", "findings_to_jsonl", "lint_findings",
    "lint_predictions", "lint_tasks", "predictions_to_jsonl",
]  # fmt: skip

if not TYPE_CHECKING:  # a checker then refuses a name that is misspelt
    __getattr__ = getter("reveal_bench", _HOME)
