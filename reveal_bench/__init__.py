"""reveal-bench: benchmark datasets, metrics with intervals and a leaderboard for chest-radiograph AI.

Importing this package is fast, because public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.lazy import getter
from reveal_bench.version import __version__ as __version__

if TYPE_CHECKING:
    from reveal_bench.api import (
        Accumulator,
        agreement,
        compare,
        confidence,
        convert,
        curves,
        lint,
        load,
        operating_points,
        pixels,
        plan_readers,
        rank,
        readers,
        readings,
        report,
        saliency,
        score,
        score_maps,
        shapes,
        tune_gates,
        tune_saliency,
        tune_thresholds,
    )
    from reveal_bench.api.score_tables import summarize
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_bench.evaluate_modules import load_metric
    from reveal_bench.evaluation.score import LintError
    from reveal_bench.kinds.localization.lint import lint_predictions
    from reveal_bench.kinds.localization.records import read_localization, read_manifest
    from reveal_bench.kinds.localization.scoring import score_localization
    from reveal_bench.metrics import METRICS
    from reveal_bench.models.callables import run_callable

__all__ = [
    "Accumulator", "BENCHMARKS", "LintError", "METRICS", "agreement", "compare", "confidence", "convert", "curves",
    "lint", "lint_predictions", "load", "load_metric", "operating_points", "pixels", "plan_readers", "rank",
    "read_localization", "read_manifest", "readers", "readings", "report", "run_callable", "saliency", "score",
    "score_maps", "score_localization", "shapes", "summarize", "tune_gates", "tune_saliency", "tune_thresholds",
]  # fmt: skip

_HOME = dict.fromkeys(__all__, "api") | {
    "BENCHMARKS": "benchmarks",
    "LintError": "evaluation.score",
    "METRICS": "metrics",
    "lint_predictions": "kinds.localization.lint",
    "load_metric": "evaluate_modules",
    "read_localization": "kinds.localization.records",
    "read_manifest": "kinds.localization.records",
    "run_callable": "models.callables",
    "score_localization": "kinds.localization.scoring",
    "summarize": "api.score_tables",
}

if not TYPE_CHECKING:  # so that a type checker rejects misspelt names
    __getattr__ = getter(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
