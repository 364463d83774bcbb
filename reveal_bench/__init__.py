"""reveal-bench: benchmark datasets, metrics with intervals and a leaderboard for chest-radiograph AI.

Nothing heavy is imported here; public names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.lazy import getter
from reveal_bench.version import __version__ as __version__

if TYPE_CHECKING:
    from reveal_bench.api import (
        agreement,
        compare,
        confidence,
        convert,
        curves,
        lint,
        load,
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
    )
    from reveal_bench.api.scores import summarize
    from reveal_bench.benchmarks import BENCHMARKS
    from reveal_bench.evaluate_modules import load_metric
    from reveal_bench.evaluation.score import LintError
    from reveal_bench.kinds.localization.records import read_localization, read_manifest
    from reveal_bench.kinds.localization.scoring import score_localization
    from reveal_bench.metrics import METRICS
    from reveal_bench.models.callables import run_callable
    from reveal_bench.predictions import lint_predictions

_HOME = {
    "BENCHMARKS": "benchmarks",
    "LintError": "evaluation.score",
    "METRICS": "metrics",
    "agreement": "api",
    "compare": "api",
    "confidence": "api",
    "convert": "api",
    "curves": "api",
    "lint": "api",
    "lint_predictions": "predictions",
    "load": "api",
    "load_metric": "evaluate_modules",
    "pixels": "api",
    "plan_readers": "api",
    "rank": "api",
    "read_localization": "kinds.localization.records",
    "read_manifest": "kinds.localization.records",
    "readers": "api",
    "readings": "api",
    "report": "api",
    "run_callable": "models.callables",
    "saliency": "api",
    "score": "api",
    "score_maps": "api",
    "score_localization": "kinds.localization.scoring",
    "shapes": "api",
    "summarize": "api.scores",
    "tune_gates": "api",
    "tune_saliency": "api",
}

__all__ = [
    "BENCHMARKS",
    "LintError",
    "METRICS",
    "agreement",
    "compare",
    "confidence",
    "convert",
    "curves",
    "lint",
    "lint_predictions",
    "load",
    "load_metric",
    "pixels",
    "plan_readers",
    "rank",
    "read_localization",
    "read_manifest",
    "readers",
    "readings",
    "report",
    "run_callable",
    "saliency",
    "score",
    "score_maps",
    "score_localization",
    "shapes",
    "summarize",
    "tune_gates",
    "tune_saliency",
]

__getattr__ = getter(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
