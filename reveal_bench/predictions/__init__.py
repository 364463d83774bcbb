"""Prediction files of every accepted format -> checked predictions; the label-blind linter.

Start at :func:`lint_predictions` (localization), :func:`lint_findings` or :func:`lint_tasks`. The modules, in the order
a file passes them: ``source`` (bytes, limits), ``formats`` (which format), ``jsonl``, ``documents`` and ``tables``
(entries), ``checks`` (one prediction), ``patterns`` (the whole file), ``linter`` (all of it) and ``report`` (what was
found); ``findings`` is the linter of studies, ``tasks`` that of answers to tasks. ``rules`` lists every rule.
"""

from reveal_bench.entries.jsonl import findings_to_jsonl, predictions_to_jsonl
from reveal_bench.entries.report import LintReport, Problem
from reveal_bench.entries.source import Limits
from reveal_bench.kinds.findings.lint import lint_findings
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.tasks.lint import answers_to_jsonl, lint_tasks
from reveal_bench.predictions.rules import RULES

__all__ = [
    "RULES",
    "Limits",
    "LintReport",
    "Problem",
    "answers_to_jsonl",
    "findings_to_jsonl",
    "lint_findings",
    "lint_predictions",
    "lint_tasks",
    "predictions_to_jsonl",
]
