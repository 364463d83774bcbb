"""The commands as Python functions: ``import reveal_bench as rb``, then ``rb.load``, ``rb.score`` and the others.

A function has the name and the options of its command, takes what Python users hold (tables, lists, mappings) where
the command takes a file, and returns an object that shows itself as a small table. The command line calls the same
functions and prints.
"""

from __future__ import annotations

from reveal_bench.api.bench import Bench, load
from reveal_bench.api.confidences import Confidence, confidence
from reveal_bench.api.conversion import Conversion, convert
from reveal_bench.api.detector_curves import DetectorCurves, curves
from reveal_bench.api.heat_maps import saliency, tune_gates, tune_saliency
from reveal_bench.api.map_scores import MapScores, score_maps
from reveal_bench.api.pages import WrittenReport, report
from reveal_bench.api.pixel_counts import PixelStatistics, pixels
from reveal_bench.api.reader_plan import ReaderPlan, plan_readers
from reveal_bench.api.reader_study import ReaderStudyResult, readers
from reveal_bench.api.reading_rows import ReadingsTable, readings
from reveal_bench.api.scores import Scores
from reveal_bench.api.shape_features import Shapes, shapes
from reveal_bench.api.verbs import Comparisons, Ranking, compare, lint, rank, score

__all__ = [
    "Bench", "Comparisons", "Confidence", "Conversion", "DetectorCurves", "MapScores", "PixelStatistics", "Ranking",
    "ReaderPlan", "ReaderStudyResult", "ReadingsTable", "Scores", "Shapes", "WrittenReport", "compare",
    "confidence", "convert", "curves", "lint", "load", "pixels", "plan_readers", "rank", "readers", "readings",
    "report", "saliency", "score", "score_maps", "shapes", "tune_gates", "tune_saliency",
]  # fmt: skip
