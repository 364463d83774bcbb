"""Implement ``rb.shapes``, which measures shapes of references and relates localization to shape and confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from reveal_bench.analyses.shapes import (
    FEATURES,
    MODELS,
    Assurance,
    MaskShape,
    Scale,
    Slope,
    assurances,
    regress,
    shapes_of,
)
from reveal_bench.api.bench import AnyBench, Bench, as_whole_bench
from reveal_bench.api.inputs import name_of
from reveal_bench.api.result_table import RoundedTable, TableResult, TablesResult
from reveal_bench.api.scoring import once, score_inputs, two_names
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.kinds.localization.records import each_localization
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.metrics.intervals import as_record
from reveal_bench.words import percent_text

if TYPE_CHECKING:
    from reveal_bench.reports.style import Illustration


@dataclass(frozen=True, repr=False)
class Shapes(TablesResult):
    """Shapes of a split's reference masks, printed as medians per finding.

    Attributes
    ----------
    bench : the split of the references
    shapes : one shape per image and finding
    findings : in the order of the tables
    slopes : regressions of the model's outcomes on shape features; empty without a model
    assurances : slopes and correlations of the model's outcomes with its confidence; empty without scores
    how : description of the slopes' outcomes and features
    """

    bench: Bench
    shapes: Sequence[MaskShape]
    findings: Sequence[str]
    slopes: Sequence[Slope]
    assurances: Sequence[Assurance]
    how: str

    @property
    def caption(self) -> str:
        """Number of masks, and the split."""
        return f"Shapes of {len(self.shapes):,} reference masks of {self.bench.folder.name}, split {self.bench.split}"

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Features of every mask, NaN where undefined."""
        return [asdict(shape) for shape in self.shapes]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return medians per finding, with the size in percent of the image."""
        rows = []
        for finding in self.findings:
            own = [shape for shape in self.shapes if shape.finding == finding]
            if own:
                row = {"finding": finding, "n": str(len(own)), "polygons": f"{_median(own, 'polygons'):g}"}
                row |= {"components": f"{_median(own, 'components'):g}", "size": percent_text(_median(own, "size"))}
                row |= {name: f"{_median(own, name):.2f}" for name in ("elongation", "irrectangularity")}
                rows.append(row)
        return rows

    @property
    def regressions(self) -> RoundedTable:
        """Slopes of all features in all regression models, with interval, p, stars and number of cases."""
        return self.regressions_of(*MODELS)

    def regressions_of(self, *models: str) -> RoundedTable:
        """Return the slopes of the named regression models."""
        idle = {"model"} if len(models) == 1 else set()
        idle |= set() if "multiple" in models else {"inflation"}
        rows = [_spread(as_record(one), "value") for one in self.slopes if one.model in models]
        kept = [{name: value for name, value in row.items() if name not in idle} for row in rows]
        return RoundedTable(f"Slopes of {self.how}", kept)

    @property
    def confidence(self) -> RoundedTable:
        """Slope and Spearman's correlation of each outcome with the confidence score."""
        return confidence_table(self.assurances)

    @property
    def tables(self) -> dict[str, TableResult]:
        """Name -> table, without empty tables."""
        tables: dict[str, TableResult] = {
            "shapes": self,
            "regressions": self.regressions,
            "confidence": self.confidence,
        }
        return {name: table for name, table in tables.items() if table.records}

    def drawn(self) -> Sequence[Illustration]:
        """Return the figures of the tables."""
        from reveal_bench.reports.beside_readers import figure_of_shapes

        return [figure_of_shapes(self.shapes, self.findings)]


def _median(shapes: Sequence[MaskShape], name: str) -> float:
    values = [float(getattr(shape, name)) for shape in shapes]
    return median([value for value in values if value == value] or [float("nan")])


def _spread(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a row with `low` and `high` renamed to the value's name, so that a table shows them as its interval."""
    return {f"{name}_{key}" if key in ("low", "high") else key: value for key, value in row.items()}


def shapes(
    bench: AnyBench,
    model: Any = None,
    human: Any = None,
    *,
    split: str | None = None,
    missing: str | None = None,
    scale: Scale = "minmax",
    score_scale: Scale = "raw",
) -> Shapes:
    """Measure shapes of reference masks, and relate a model's localization to shape and confidence.

    Parameters
    ----------
    bench, split : as in :func:`lint`, for localization with masks
    model : predictions of any type that :func:`lint` accepts; without a model, only shapes are measured
    human : predictions of the benchmark readers, for the gap between readers and model
    missing : as in :func:`score`, for both
    scale : scaling of the features: "minmax" as in the published code, "zscore" as in the text of the paper, or "raw"
    score_scale : scaling of the scores: "raw", or "minmax" per finding

    Raises
    ------
    LintError
        If predictions have errors.
    ArgumentError
        Without masks, or if an argument breaks its rule.
    ImportError
        Without OpenCV (extra [saliency]) or statsmodels (extra [report]).
    """
    for name, value in (("scale", scale), ("score_scale", score_scale)):
        if value not in ("minmax", "zscore", "raw"):
            raise ArgumentError(name, "must be 'minmax', 'zscore' or 'raw'", repr(value))
    if human is not None and model is None:
        raise ArgumentError("human", "needs `model`, because the gap between the two is measured", None, ("model",))
    opened = as_whole_bench(bench, split)
    if not opened.kind.questions.uses_grid:
        raise ArgumentError("bench", "must be a localization benchmark with masks as references", opened.kind.name)
    measured = shapes_of(
        each_localization(opened.dataset, opened.split)
    )  # drop all contours, which take more memory than the masks
    if not measured:
        raise ArgumentError("bench", "must have reference masks, whose shapes are measured", str(opened.folder))
    findings = opened.info.findings
    if model is None:
        return Shapes(opened, measured, findings, [], [], "")
    of_model = _scored(model, opened, "model", missing)
    of_human = None if human is None else _scored(human, opened, "human", missing)
    pool = [shape for shape in measured if shape.polygons > 0]
    if not pool:
        raise ArgumentError("bench", "must have drawn contours, whose number is a feature", str(opened.folder))
    names = [shape.finding for shape in pool]
    features = {name: np.array([float(getattr(shape, name)) for shape in pool]) for name in FEATURES}
    outcomes = _outcomes(of_model, of_human, pool)
    slopes = regress(outcomes, features, names, [shape.patient_id for shape in pool], scale=scale)
    confidence = assurances_of(cast(CaseRows, of_model.rows), score_scale)
    named, beside = (of_model.report.file, "") if of_human is None else two_names(model, human)
    against = f", and of the gap between {beside} and the model" if beside else ""
    how = f"{named}{against} on shape features scaled by {scale}"
    return Shapes(opened, measured, findings, slopes, confidence, how)


def _scored(predictions: Any, bench: Bench, argument: str, missing: str | None) -> ScoredFile:
    name = name_of(predictions, argument)
    return score_inputs(predictions, bench, once(ScoringOptions(missing=missing)), argument=argument, name=name)


def confidence_table(assurances: Sequence[Assurance]) -> RoundedTable:
    """Return slope and Spearman's correlation with the score for each outcome and finding."""
    return RoundedTable("Slopes and rank correlations with the score", [as_record(one) for one in assurances])


def assurances_of(rows: CaseRows, scale: Scale = "raw") -> list[Assurance]:
    """Return slopes on the score over all the model's cases, not only true positives; empty without scores."""
    if np.isnan(rows.scores).all():
        return []
    outcomes = {
        name: rows.values[of] for name, of in (("IoU", "mask_iou_all"), ("hit", "point_hit")) if of in rows.values
    }
    return assurances(outcomes, rows.scores, rows.case_findings, order=rows.findings, scale=scale)


def _outcomes(model: ScoredFile, human: ScoredFile | None, pool: Sequence[MaskShape]) -> dict[str, FloatArray]:
    """Return the outcomes of every case: the model's IoU and hit, and the readers' lead in both."""
    outcomes = {}
    for metric, name in (("mask_iou", "IoU"), ("point_hit", "hit")):
        of_model = cast(CaseRows, model.rows).values.get(metric)
        if of_model is None:
            continue
        outcomes[name] = _column(model, of_model, pool)
        of_human = None if human is None else cast(CaseRows, human.rows).values.get(metric)
        if human is not None and of_human is not None:
            outcomes[f"{name} gap"] = _column(human, of_human, pool) - outcomes[name]
    return outcomes


def _column(scored: ScoredFile, values: FloatArray, pool: Sequence[MaskShape]) -> FloatArray:
    rows = cast(CaseRows, scored.rows)
    by_case: Mapping[tuple[str, str], float] = dict(
        zip(zip(rows.image_ids, rows.case_findings, strict=True), values.tolist(), strict=True)
    )
    return np.array([by_case.get((shape.image_id, shape.finding), np.nan) for shape in pool])
