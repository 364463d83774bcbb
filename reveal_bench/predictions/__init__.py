"""Prediction files: limits, formats, entries, and the report of problems.

Nothing here depends on the kind of benchmark. ``kinds/<kind>/lint.py`` checks what an entry must contain, and
:func:`reveal_bench.evaluation.score.lint_file` finds the kind of a dataset folder.
"""

from __future__ import annotations

from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.report import LintProblem, LintReport
from reveal_bench.predictions.rules import RULES

__all__ = ["RULES", "Limits", "LintProblem", "LintReport"]
