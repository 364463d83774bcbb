"""reveal-bench: benchmark datasets, metrics with intervals and a leaderboard for chest-radiograph AI.

Nothing heavy is imported here; public names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_bench.evaluate_modules import load_metric
    from reveal_bench.metrics import METRICS
    from reveal_bench.predictions import lint_predictions
    from reveal_bench.records import read_localization, read_manifest
    from reveal_bench.runner.callables import run_callable
    from reveal_bench.scoring import score_localization, summarize

__all__ = [
    "BENCHMARKS",
    "METRICS",
    "lint_predictions",
    "load_metric",
    "read_localization",
    "read_manifest",
    "run_callable",
    "score_localization",
    "summarize",
]

_HOME = {
    "BENCHMARKS": "benchmarks",
    "METRICS": "metrics",
    "lint_predictions": "predictions",
    "load_metric": "evaluate_modules",
    "read_localization": "records",
    "read_manifest": "records",
    "run_callable": "runner.callables",
    "score_localization": "scoring",
    "summarize": "scoring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'reveal_bench' has no attribute {name!r}")
    return getattr(importlib.import_module(f"reveal_bench.{_HOME[name]}"), name)
