"""Python functions for all commands: ``import reveal_bench as rb``, then ``rb.load``, ``rb.score`` and others.

A function has the name and options of its command. Functions also accept Python objects (tables, lists, mappings)
instead of files, and return an object that prints as a small table. The command line calls these functions and prints
their results.

The first use of a name imports its module, so that a command only waits for the modules that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.lazy import getter

if TYPE_CHECKING:
    from reveal_bench.api.accumulator import Accumulator
    from reveal_bench.api.analyses import (
        Confidence,
        DetectorCurves,
        FindingCurves,
        PixelStatistics,
        confidence,
        curves,
        pixels,
    )
    from reveal_bench.api.bench import Bench, load
    from reveal_bench.api.comparison_tables import Comparisons, Ranking
    from reveal_bench.api.conversion import Conversion, convert
    from reveal_bench.api.heat_maps import saliency, tune_gates, tune_saliency
    from reveal_bench.api.inputs import lint
    from reveal_bench.api.map_scores import MapScores, score_maps
    from reveal_bench.api.operating import OperatingPoints, ThresholdTuning, operating_points, tune_thresholds
    from reveal_bench.api.pages import WrittenReport, report
    from reveal_bench.api.reader_agreement import Agreement, agreement
    from reveal_bench.api.reader_study import (
        ReaderPlan,
        ReaderStudyResult,
        ReadingsTable,
        plan_readers,
        readers,
        readings,
    )
    from reveal_bench.api.score_tables import Scores
    from reveal_bench.api.scoring import compare, rank, score
    from reveal_bench.api.shape_features import Shapes, shapes

_NAMES = {
    "accumulator": ("Accumulator",),
    "analyses": (
        "Confidence", "DetectorCurves", "FindingCurves", "PixelStatistics", "confidence", "curves", "pixels",
    ),
    "bench": ("Bench", "load"),
    "conversion": ("Conversion", "convert"),
    "inputs": ("lint",),
    "map_scores": ("MapScores", "score_maps"),
    "heat_maps": ("saliency", "tune_gates", "tune_saliency"),
    "operating": ("OperatingPoints", "ThresholdTuning", "operating_points", "tune_thresholds"),
    "pages": ("WrittenReport", "report"),
    "reader_agreement": ("Agreement", "agreement"),
    "reader_study": ("ReaderPlan", "ReaderStudyResult", "ReadingsTable", "plan_readers", "readers", "readings"),
    "score_tables": ("Scores",),
    "shape_features": ("Shapes", "shapes"),
    "comparison_tables": ("Comparisons", "Ranking"),
    "scoring": ("compare", "rank", "score"),
}  # fmt: skip
"""Module -> names that are imported from the module on first use."""

__all__ = [
    "Accumulator", "Agreement", "Bench", "Comparisons", "Confidence", "Conversion", "DetectorCurves",
    "FindingCurves", "MapScores", "OperatingPoints", "PixelStatistics", "Ranking", "ReaderPlan",
    "ReaderStudyResult", "ReadingsTable", "Scores", "Shapes", "ThresholdTuning", "WrittenReport", "agreement",
    "compare", "confidence", "convert", "curves", "lint", "load", "operating_points", "pixels", "plan_readers",
    "rank", "readers", "readings", "report", "saliency", "score", "score_maps", "shapes", "tune_gates",
    "tune_saliency", "tune_thresholds",
]  # fmt: skip

if not TYPE_CHECKING:  # hidden from type checkers, so that they report misspelt names
    __getattr__ = getter(__name__, {name: module for module, names in _NAMES.items() for name in names})


def __dir__() -> list[str]:
    return sorted(__all__)
