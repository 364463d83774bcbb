"""Readers of prediction files: accepted formats, size limits and the report of problems.

This package does not depend on the kind of benchmark. ``kinds/<kind>/lint.py`` checks the fields of an entry for one
kind of benchmark, and
:func:`reveal_bench.evaluation.score.lint_file` finds the kind that a dataset folder has.
"""

from __future__ import annotations

from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.report import LintProblem, LintReport
from reveal_bench.predictions.rules import RULES

__all__ = ["RULES", "Limits", "LintProblem", "LintReport"]
