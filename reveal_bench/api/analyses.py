"""Analyses of one system beyond its score: confidence, curves over thresholds, pixel statistics, heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reveal_bench.analyses.calibration import Binning
from reveal_bench.analyses.confidence import CalibrationResult, judge_confidences
from reveal_bench.analyses.operating import confidences_of_decisions
from reveal_bench.analyses.pixels import PixelStatistic, pixel_statistics
from reveal_bench.analyses.roc import LabelCurves, ReaderPoint, count_below, label_curves, reader_points
from reveal_bench.api.bench import AnyBench, as_asked_bench
from reveal_bench.api.inputs import name_of, named_systems
from reveal_bench.api.keywords import suggest_keywords
from reveal_bench.api.result_table import RoundedTable, TableResult, TablesResult
from reveal_bench.api.scoring import once, score_inputs, score_readers
from reveal_bench.arguments import PROBABILITY_RULE, ArgumentError
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.kinds.options import ScoringOptions, Thresholds
from reveal_bench.kinds.scored import Curve, Curves
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling, as_record
from reveal_bench.words import interval_text, number_text, percent_interval, percent_number, with_interval

if TYPE_CHECKING:
    from reveal_bench.reports.style import Illustration


@dataclass(frozen=True, repr=False)
class Confidence(TablesResult):
    """Evaluation of one system's confidence, printed as a table of calibration.

    Attributes
    ----------
    scored : the scored predictions
    judged : all results
    n_bins, binning : number and kind of bins of the reliability diagram
    """

    scored: ScoredFile
    judged: CalibrationResult
    n_bins: int
    binning: Binning

    @property
    def caption(self) -> str:
        """Predictions, split and method."""
        confidences = self.judged.confidences
        bins = f"{self.n_bins} bins of equal {self.binning}"
        unsaid = (
            f"; {confidences.n_without_confidence:,} cases without a confidence are omitted"
            if confidences.n_without_confidence
            else ""
        )
        slopes = {one.finding: one.undefined for one in self.judged.calibration if one.finding != MACRO}
        return (
            f"{self.scored.report.file} on {self.scored.place}: "
            f"calibration of the probability of {confidences.event}: Brier score, mean probability minus the rate "
            "(excess, in percent), and slope and intercept of the logistic recalibration with 95% intervals by the "
            f"jackknife over patients, and ECE with {bins}{unsaid}{_lacking('slope', slopes)}"
        )

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Brier scores of system and base rate, excess, ECE, slope and intercept: the macro, then every finding."""
        return [as_record(row) for row in self.judged.calibration]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return Brier scores with three decimals, mean excess and ECE in percent, slope and intercept with two."""
        return [
            {
                "finding": one.finding,
                "events": "" if one.finding == MACRO else f"{one.n_events} of {one.n}",
                "Brier": number_text(one.brier.value),
                "95% interval": interval_text(one.brier.low, one.brier.high),
                "excess": percent_number(one.excess.value, signed=True),
                "its interval": percent_interval(one.excess.low, one.excess.high),
                "ECE": percent_number(one.error),
                "slope": _fit_text(one.slope),
                "intercept": _fit_text(one.intercept),
            }
            for one in self.judged.calibration
        ]

    @property
    def reliability(self) -> RoundedTable:
        """Predicted probabilities and observed rates in every bin of every finding."""
        rows = [{"finding": finding} | as_record(one) for finding, bins in self.judged.bins.items() for one in bins]
        return RoundedTable(f"Reliability: rate of {self.judged.confidences.event} by predicted probability", rows)

    @property
    def coverage(self) -> RoundedTable:
        """Share of wrong answers if only the most confident cases are answered, for "all" findings and each finding."""
        return self.coverage_of(*self.judged.curves)

    def coverage_of(self, *findings: str) -> RoundedTable:
        """Return :attr:`coverage` for the named findings, or for "all" together."""
        rows = [as_record(row) for row in self.judged.answered if row.finding in findings]
        if len(findings) > 1:
            rows = [row | {"area_under_risk": self.judged.areas[row["finding"]]} for row in rows]
        area = "" if len(findings) > 1 else f"; area under the curve {self.judged.areas[findings[0]]:.4f}"
        title = f"Risk: share of wrong answers among the most confident cases, if a reader answers all others{area}"
        return RoundedTable(title, rows)

    @property
    def net_benefit(self) -> RoundedTable:
        """Net benefit per finding and threshold, without rows for undefined values."""
        title = "Net benefit of acting at or above a probability (never acting has a net benefit of 0)"
        return RoundedTable(title, [as_record(row) for row in self.judged.benefits])

    @property
    def tables(self) -> dict[str, TableResult]:
        """Name -> table, without empty tables."""
        tables: dict[str, TableResult] = {
            "calibration": self,
            "reliability": self.reliability,
            "coverage": self.coverage,
            "net_benefit": self.net_benefit,
        }
        return {name: table for name, table in tables.items() if table.records}

    def drawn(self) -> Sequence[Illustration]:
        """Return the figures of the tables."""
        from reveal_bench.reports.curves import confidence_figures

        return confidence_figures(self.judged)


def _lacking(what: str, reasons: Mapping[str, str]) -> str:
    """Return a note on the findings that lack `what`, by reason; `reasons` are empty for other findings."""
    findings: dict[str, list[str]] = {}
    for finding, reason in reasons.items():
        findings.setdefault(reason, []).append(finding)
    return "".join(f"; no {what} for {', '.join(names)}: {reason}" for reason, names in findings.items() if reason)


def _fit_text(estimate: Estimate) -> str:
    return with_interval(number_text(estimate.value, 2), interval_text(estimate.low, estimate.high, 2))


@suggest_keywords
def confidence(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    thresholds: Thresholds | None = None,
    allow_missing: bool = False,
    n_bins: int = 10,
    binning: Binning = "width",
    name: str | None = None,
) -> Confidence:
    """Evaluate a system's confidence: calibration, risk without the least confident cases, net benefit.

    Parameters
    ----------
    predictions, bench, split, allow_missing, name : as in :func:`lint`
    thresholds : for findings, probability at or above which a label counts as predicted: one number (0.5 by default),
        or one per label
    n_bins : number of bins of probabilities, at most 100
    binning : "width" for bins of equal width, or "count" for bins with numbers of cases as equal as possible

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the predictions have no confidences, or an argument breaks its rule.
    """
    opened = as_asked_bench(bench, split, runs=[predictions])
    field = opened.kind.predictions.confidence_field
    if field is None:
        raise ArgumentError("bench", "must have answers with confidences", opened.kind.name)
    name = name_of(predictions, "predictions") if name is None else name
    options = once(ScoringOptions(thresholds=thresholds, allow_missing=allow_missing))
    scored = score_inputs(predictions, opened, options, argument="predictions", name=name)
    confidences = scored.rows.confidences()
    if confidences is None:
        rule = f"must have confidences, in the field `{field}`"
        raise ArgumentError("predictions", rule, f"{scored.report.file}, which has none")
    if not confidences.are_probabilities:
        raise ArgumentError("predictions", PROBABILITY_RULE, f"other scores in {scored.report.file}")
    return Confidence(scored, judge_confidences(confidences, n_bins=n_bins, binning=binning), n_bins, binning)


@dataclass(frozen=True, repr=False)
class DetectorCurves(TablesResult):
    """FROC and other curves of one detection system, printed as sensitivity at 1/8 to 8 false alarms per image.

    Attributes
    ----------
    scored : the scored detections
    curves : all curves with their bands
    name : name of the system in figures
    beside : name -> curves of the other systems that figures show
    """

    scored: ScoredFile
    curves: Curves
    name: str
    beside: Mapping[str, Curves]

    @property
    def caption(self) -> str:
        """Predictions, split and method."""
        return (
            f"{self.scored.report.file} on {self.scored.place}: lesions found at each number of false alarms for the "
            "finding per image, in percent"
        )

    @cached_property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Sensitivity with its 95% interval, by finding and rate."""
        return list(map(_sensitivity_record, self.curves.bands))

    def printed_rows(self) -> list[dict[str, str]]:
        """Return one row per finding, with one column per number of false alarms."""
        rows: dict[str, dict[str, str]] = {}
        for one in self.curves.bands:
            row = rows.setdefault(one.finding, {"finding": one.finding})
            row[f"{one.false_alarms:g}"] = percent_number(one.sensitivity.value)
        return list(rows.values())

    @property
    def tables(self) -> dict[str, TableResult]:
        """Name -> table: FROC at 1/8 to 8 false alarms, all points, precision and recall, sensitivity by size."""
        froc = _points(self.curves.froc, "false_alarms", "sensitivity")
        precision = _points(self.curves.precision, "recall", "precision")
        tables: dict[str, TableResult] = {
            "froc": self,
            "froc_points": RoundedTable("FROC: every threshold", froc),
            "precision_recall": RoundedTable(
                "Precision and recall; a box is a hit at an IoU of 0.5 or more", precision
            ),
            "sizes": RoundedTable("Share of lesions found, by size", list(map(_sensitivity_record, self.curves.sizes))),
        }
        return {name: table for name, table in tables.items() if table.records}

    def drawn(self) -> Sequence[Illustration]:
        """Return the figures of the tables."""
        from reveal_bench.reports.curves import detection_figures

        return detection_figures({self.name: self.curves, **self.beside})


@dataclass(frozen=True, repr=False)
class FindingCurves(TablesResult):
    """ROC and precision-recall curves of one system's probabilities, printed as partial areas under the ROC curves.

    Attributes
    ----------
    scored : the scored predictions
    curves : all curves with their bands
    name : name of the system in figures
    beside : name -> curves of the other systems that figures show
    readers : readers' operating points beside the system's ROC curves
    """

    scored: ScoredFile
    curves: LabelCurves
    name: str
    beside: Mapping[str, LabelCurves]
    readers: Sequence[ReaderPoint]

    @property
    def caption(self) -> str:
        """Predictions, split and method."""
        intervals = {one.finding: one.area.missing_interval for one in self.curves.areas}
        below = "".join(
            f"; readers below the curve, mean over findings: {row['n_below']:.2f} of {row['n_readers']}"
            for row in self.readers_below[:1]
        )
        return (
            f"{self.scored.report.file} on {self.scored.place}: partial area under the ROC curve, with 95% intervals "
            f"from resampled patients{below}{_lacking('curve', self.curves.left_out)}{_lacking('interval', intervals)}"
        )

    @cached_property
    def readers_below(self) -> list[dict[str, Any]]:
        """Number of readers below the ROC curve: the mean over the findings (macro), then every finding."""
        n_readers = len({point.reader for point in self.readers})
        if not n_readers:
            return []
        counts = count_below(self.readers, self.curves.roc)
        return [{"finding": name, "n_below": n, "n_readers": n_readers} for name, n in counts.items()]

    @cached_property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Partial areas by finding, as areas and standardized, with intervals."""
        return list(map(as_record, self.curves.areas))

    def printed_rows(self) -> list[dict[str, str]]:
        """Return one row per finding, with the number of readers below the ROC curve if readers were given."""
        below = {
            row["finding"]: {"readers below the curve": f"{round(row['n_below'], 2)} of {row['n_readers']}"}
            for row in self.readers_below
        }
        return [
            {
                "finding": one.finding,
                "false positive rate": f"up to {one.max_fpr:g}",
                "partial area": f"{one.area.value:.4f}",
                "standardized": with_interval(
                    f"{one.standardized.value:.3f}", interval_text(one.standardized.low, one.standardized.high)
                ),
                **below.get(one.finding, {}),
            }
            for one in self.curves.areas
        ]

    @property
    def tables(self) -> dict[str, TableResult]:
        """Name -> table: partial areas, all points of both curves and their bands, readers and how many are below."""
        curves = self.curves
        bands = {"roc_bands": curves.roc_bands, "precision_recall_bands": curves.precision_bands}
        of_roc = _points(curves.roc, "false_positive_rate", "sensitivity")
        of_precision = _points(curves.precision_recall, "recall", "precision")
        readers = {
            "readers": RoundedTable("Readers", list(map(as_record, self.readers))),
            "readers_below": RoundedTable("Readers below the ROC curve", self.readers_below),
        }
        return (readers if self.readers else {}) | {
            "partial_areas": self,
            "roc": RoundedTable("ROC: every threshold", of_roc),
            "precision_recall": RoundedTable("Precision and recall: every threshold", of_precision),
            **{name: RoundedTable("Pointwise 95% bands", list(map(as_record, own))) for name, own in bands.items()},
        }

    def drawn(self) -> Sequence[Illustration]:
        """Return the figures of both curves."""
        from reveal_bench.reports.curves import label_figures

        return label_figures({self.name: self.curves, **self.beside}, self.readers)


def _sensitivity_record(row: Any) -> dict[str, Any]:
    """Return a row's fields, with the bounds of its sensitivity as `low` and `high`."""
    return {name.removeprefix("sensitivity_"): value for name, value in as_record(row).items()}


def _points(curves: Mapping[str, Curve], x: str, y: str) -> list[dict[str, Any]]:
    return [
        {"finding": finding, x: a, y: b}
        for finding, (across, up) in curves.items()
        for a, b in zip(across.tolist(), up.tolist(), strict=True)
    ]


@suggest_keywords
def curves(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    thresholds: Thresholds | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: str = "patient",
    name: str | None = None,
    beside: Mapping[str, Any] | Sequence[Any] | None = None,
    max_fpr: float = 0.1,
    readers: Any = None,
) -> DetectorCurves | FindingCurves:
    """Compute a system's curves over all thresholds.

    For detections, these are FROC with intervals, precision-recall curves, and sensitivity by lesion size. For
    probabilities of findings, these are ROC and precision-recall curves with pointwise bands, and partial areas under
    ROC curves.

    Parameters
    ----------
    predictions, bench, split, name : as in :func:`lint`
    thresholds : score at or above which a detection counts, for sensitivity by size: one number (0.5 by default), or
        one per finding
    n_resamples, seed, unit : as in :func:`score`
    beside : name -> predictions of other systems, or a list of predictions, which only the figures show
    max_fpr : for findings, the false positive rate (1 - specificity) up to which partial areas are computed
    readers : for findings, readers to show as points of the ROC plot: True for all readers of the dataset folder, or
        name -> a reader's predictions (None: those of the folder's reader with this name)

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the predictions are neither detections nor probabilities of findings, the split has no lesion, or `max_fpr`
        is not in (0, 1].
    """
    opened = as_asked_bench(bench, split, runs=[predictions])
    name = name_of(predictions, "predictions") if name is None else name
    others = named_systems(beside, "beside")
    if name in others:
        raise ArgumentError("beside", "must name other systems", repr(name))
    options = once(ScoringOptions(thresholds=thresholds))
    resampling, scored, curves_of = Resampling(n_resamples, seed, unit), {}, {}
    of_labels: dict[str, LabelCurves] = {}
    for system, inputs in {name: predictions, **others}.items():
        scored[system] = score_inputs(inputs, opened, options, argument="predictions", name=system)
        rows = scored[system].rows
        if "average_precision" in rows.metrics():
            of_labels[system] = label_curves(confidences_of_decisions(rows), resampling, max_fpr)
            continue
        curved = opened.kind.scoring.curves(rows, resampling)
        if curved is None or not curved.bands:
            rule = (
                "must be a detection benchmark with lesions in the split, or one whose predictions have probabilities "
                "of findings"
            )
            raise ArgumentError("bench", rule, opened.kind.name)
        curves_of[system] = curved
    if of_labels:
        own, points = of_labels.pop(name), []
        for reader, rows in score_readers(readers, opened, scored[name]).items():
            points += reader_points(own.roc, reader, rows.estimates(resampling))
        return FindingCurves(scored[name], own, name, of_labels, points)
    if readers:
        raise ArgumentError("readers", "must be omitted for detections, whose curves cannot show readers", None)
    return DetectorCurves(scored[name], curves_of.pop(name), name, curves_of)


@dataclass(frozen=True, repr=False)
class PixelStatistics(TableResult):
    """Precision, recall, specificity and negative predictive value of mask pixels.

    Attributes
    ----------
    scored : the scored predictions
    statistics : all results
    """

    scored: ScoredFile
    statistics: Sequence[PixelStatistic]

    @property
    def caption(self) -> str:
        """Predictions, split and method."""
        asks_all = self.scored.options.asks == "all"
        how = "in percent with 95% intervals by the jackknife over patients"
        pooled = f"pixels pooled over the images with a finding, {how}"
        asked = "" if asks_all else "; false positives are counted on images where the finding is asked about"
        return f"{self.scored.report.file} on {self.scored.place}: {pooled}{asked}"

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Pooled ratio, mean over images, and number of pixels; for each statistic, the macro, then every finding."""
        return [as_record(one) for one in self.statistics]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return one row per finding, with pooled ratios in percent."""
        table: dict[str, dict[str, str]] = {}
        for one in self.statistics:
            row = table.setdefault(one.finding, {"finding": one.finding})
            row[one.statistic.upper() if one.statistic == "npv" else one.statistic] = _share_text(one.pooled)
        return list(table.values())


def _share_text(mean: Estimate) -> str:
    return with_interval(percent_number(mean.value), percent_interval(mean.low, mean.high))


def pixels(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    allow_missing: bool = False,
    name: str | None = None,
) -> PixelStatistics:
    """Compute pixel precision, recall, specificity and negative predictive value of predicted masks, per finding.

    Parameters
    ----------
    predictions, bench, split, allow_missing, name : as in :func:`lint`; missing masks count as empty

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the benchmark is not a localization benchmark, or predictions or references have no masks.
    """
    opened = as_asked_bench(bench, split, runs=[predictions])
    if not opened.kind.questions.uses_grid:
        raise ArgumentError("bench", "must be a localization benchmark", opened.kind.name)
    name = name_of(predictions, "predictions") if name is None else name
    options = once(ScoringOptions(allow_missing=allow_missing))
    scored = score_inputs(predictions, opened, options, argument="predictions", name=name)
    records = list(opened.kind.data.read_references(opened.dataset, opened.split))
    statistics = pixel_statistics(scored.report.predictions, records, scored.rows.groups)
    return PixelStatistics(scored, statistics)
