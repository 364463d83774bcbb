"""Hugging Face `evaluate` modules: thin wrappers over :mod:`reveal_bench.metrics`, one folder each.

``evaluate.load("reveal_bench/evaluate_modules/hit_rate")`` from a checkout and :func:`load_metric` from anywhere give
the same module, and both the figures of ``reveal-bench score``. (`evaluate` copies a module's file elsewhere before it
imports it, and finds what the file needs with a regular expression: imports there are absolute, one on a line.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["load_metric"]


def load_metric(name: str, **options: Any) -> Any:
    """Load one of this package's `evaluate` modules by name.

    Parameters
    ----------
    name : {"hit_rate", "mask_iou"}
    options : passed to ``evaluate.load``

    Returns
    -------
    evaluate.EvaluationModule

    Raises
    ------
    ValueError
        If there is no such module; the message lists those there are.
    ImportError
        If `evaluate` is not installed.
    """
    folder = Path(__file__).parent
    known = sorted(path.parent.name for path in folder.glob("*/README.md"))
    if name not in known:
        raise ValueError(f"`name` must be one of {known}, got {name!r}")
    try:
        import evaluate
    except ImportError:
        raise ImportError("load_metric needs the extra [evaluate]: pip install 'reveal-bench[evaluate]'") from None
    return evaluate.load(str(folder / name), **options)
