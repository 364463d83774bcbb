"""Implement ``rb.tune_thresholds`` and ``rb.operating_points``: choose probability thresholds, and report rates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from reveal_bench.analyses.operating import (
    OperatingPoint,
    TunedThreshold,
    confidences_of_decisions,
    points_at,
    points_chosen,
    tune,
)
from reveal_bench.analyses.thresholds import Criterion, CriterionName
from reveal_bench.api.bench import AnyBench, as_asked_bench
from reveal_bench.api.inputs import name_of
from reveal_bench.api.keywords import suggest_keywords
from reveal_bench.api.result_table import TableResult
from reveal_bench.api.scoring import once, score_inputs
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.files import file_sha256, replacing
from reveal_bench.kinds.options import ScoringOptions, Thresholds, TunedThresholds, Tuning
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling, as_record
from reveal_bench.metrics.scales import intervals_text
from reveal_bench.words import number_text, part_text, percent_interval, percent_number, with_interval


@dataclass(frozen=True, repr=False)
class ThresholdTuning(TableResult):
    """Thresholds of all findings by one criterion, with the rates on the cases used for tuning.

    Attributes
    ----------
    scored : the scored predictions on which thresholds were tuned
    criterion : rule that chose the thresholds
    tuned : threshold and rates of every finding
    otherwise : threshold of findings for which the criterion gives none; None if there are no such findings
    """

    scored: ScoredFile
    criterion: Criterion
    tuned: Sequence[TunedThreshold]
    otherwise: float | None

    @property
    def thresholds(self) -> TunedThresholds:
        """Finding -> threshold, with a record of the tuning, for the argument `thresholds` of `score`."""
        report, manifest, path = self.scored.report, self.scored.manifest, self.scored.path
        digest = None if path is None else file_sha256(path)
        name = report.file if path is None else path.name
        about = (manifest.benchmark, manifest.version, manifest.split, len(self.scored.rows), self.criterion.in_words)
        by_finding = {one.finding: cast("float", self.otherwise) if one.reason else one.threshold for one in self.tuned}
        return TunedThresholds(by_finding, Tuning(*about, name, digest))

    @property
    def caption(self) -> str:
        """Predictions, split and criterion."""
        return (
            f"{self.scored.report.file} on {self.scored.place}: thresholds (criterion: {self.criterion.in_words}), and "
            "rates in percent on these cases, which are too good because the thresholds were chosen on them"
        )

    @property
    def warnings(self) -> list[str]:
        """Warning about findings whose thresholds depend on few cases."""
        sparse = [f"{one.finding} ({one.sparse})" for one in self.tuned if one.sparse]
        return [f"few cases determine the thresholds of {', '.join(sparse)}"] if sparse else []

    @property
    def requested(self) -> Sequence[str]:
        """Columns that a narrow terminal keeps: threshold and note."""
        return "threshold", "note"

    @property
    def records(self) -> list[dict[str, Any]]:
        """Fields of each :class:`~reveal_bench.analyses.operating.TunedThreshold`, unrounded."""
        thresholds = self.thresholds
        return [asdict(one) | {"threshold": thresholds[one.finding]} for one in self.tuned]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return thresholds with three decimals, and rates in percent."""
        thresholds, with_note = self.thresholds, any(one.reason or one.sparse for one in self.tuned)
        return [
            {
                "finding": one.finding,
                "positive": part_text(one.n_positive, one.n),
                "threshold": number_text(thresholds[one.finding]),
                "sensitivity": percent_number(one.sensitivity),
                "specificity": percent_number(one.specificity),
                "PPV": percent_number(one.ppv),
                "NPV": percent_number(one.npv),
            }
            | ({"note": f"as given: {one.reason}" if one.reason else one.sparse} if with_note else {})
            for one in self.tuned
        ]

    def write(self, path: str | Path) -> str:
        """Write `thresholds` and `tuning` into a ``submission.json``, and keep its other fields.

        Returns
        -------
        sentence on the thresholds that the file had; empty if it had none

        Raises
        ------
        ValueError
            If the file exists and is not a JSON object.
        """
        path = Path(path)
        document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if not isinstance(document, dict):
            raise ValueError(f"{path}: must contain one JSON object, got {type(document).__name__}")
        replaced = _replaced(document)
        thresholds = self.thresholds
        document |= {"thresholds": dict(thresholds), "tuning": asdict(thresholds.tuning)}
        with replacing(path) as new:
            new.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return replaced


def _replaced(document: Mapping[str, Any]) -> str:
    if "thresholds" not in document:
        return ""
    tuning = document.get("tuning")
    if not isinstance(tuning, Mapping):
        return f"replaced its thresholds, which were {json.dumps(document['thresholds'])[:100]}"
    benchmark, version, split, criterion, file = (
        tuning.get(name) for name in ("benchmark", "version", "split", "criterion", "file")
    )
    return f"replaced its thresholds, which were tuned on {benchmark} {version}, split {split} ({criterion}, {file})"


@dataclass(frozen=True, repr=False)
class OperatingPoints(TableResult):
    """Sensitivity, specificity and predictive values of findings, each at one threshold.

    Attributes
    ----------
    scored : the scored predictions
    criterion : rule that chose the thresholds on the same cases; None for prespecified thresholds
    points : the macro, then every finding
    resampling : number of replicates, unit and seed
    """

    scored: ScoredFile
    criterion: Criterion | None
    points: Sequence[OperatingPoint]
    resampling: Resampling

    @property
    def caption(self) -> str:
        """Predictions, split, origin of the thresholds and method of intervals."""
        if self.criterion is None:
            tuning = self.scored.tuning_notes
            how = f"fixed thresholds, {intervals_text(self.resampling)}{''.join(f'; {note}' for note in tuning)}"
        else:
            n, seed = self.resampling.n_resamples, self.resampling.seed
            how = (
                f"thresholds chosen on these cases, with a {self.criterion.in_words}, and again in each of {n:,} "
                f"resamples of patients (seed {seed}), from which the 95% intervals come"
            )
        return f"{self.scored.report.file} on {self.scored.place}: rates in percent at {how}{self._there}"

    @property
    def _there(self) -> str:
        """Note on how predictive values at another prevalence are computed; empty without them."""
        if not self._with_prevalence:
            return ""
        rates = "the row's sensitivity and specificity"
        if self.criterion is not None:
            other = "specificity" if self.criterion.name == "sensitivity" else "sensitivity"
            rates = f"a {self.criterion.name} of exactly {self.criterion.target:g} and the row's {other}"
        return f"; PPV there and NPV there are at the row's prevalence, from {rates}, and have no macro"

    @property
    def _with_prevalence(self) -> bool:
        return any(not math.isnan(point.prevalence) for point in self.points)

    @property
    def no_interval(self) -> str:
        """Note on rates without an interval; empty for prespecified thresholds."""
        if self.criterion is None:
            return ""
        rates = "sensitivity and NPV" if self.criterion.name == "sensitivity" else "specificity, PPV and NPV"
        return f"no interval of macros, of {rates} on these cases, or if too few patients support a rate"

    @property
    def requested(self) -> Sequence[str]:
        """Columns that a narrow terminal keeps: predictive values at the given prevalence, and the other rate."""
        there = ("PPV there", "NPV there") if self._with_prevalence else ()
        if self.criterion is None:
            return there
        return *there, "specificity" if self.criterion.name == "sensitivity" else "sensitivity", "note"

    @property
    def records(self) -> list[dict[str, Any]]:
        """Fields of each :class:`~reveal_bench.analyses.operating.OperatingPoint`, unrounded."""
        return [as_record(point) for point in self.points]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return rates in percent with their intervals, thresholds with three decimals."""
        with_note = any(point.reason for point in self.points)
        return [
            _printed(point, with_prevalence=self._with_prevalence) | ({"note": point.reason} if with_note else {})
            for point in self.points
        ]


def _printed(point: OperatingPoint, *, with_prevalence: bool) -> dict[str, str]:
    row = {
        "finding": point.finding,
        "positive": "" if point.finding == MACRO else part_text(point.n_positive, point.n),
        "threshold": "" if point.finding == MACRO else number_text(point.threshold),
        "sensitivity": _rate_text(point.sensitivity),
        "specificity": _rate_text(point.specificity),
        "PPV": _rate_text(point.ppv),
        "NPV": _rate_text(point.npv),
    }
    if with_prevalence:
        row |= {
            "prevalence": percent_number(point.prevalence),
            "PPV there": _rate_text(point.ppv_at_prevalence),
            "NPV there": _rate_text(point.npv_at_prevalence),
        }
    return row


def _rate_text(rate: Estimate) -> str:
    return with_interval(percent_number(rate.value), percent_interval(rate.low, rate.high))


@suggest_keywords
def tune_thresholds(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    metric: str | None = None,
    sensitivity: float | None = None,
    specificity: float | None = None,
    ppv: float | None = None,
    otherwise: float | None = None,
    name: str | None = None,
) -> ThresholdTuning:
    """Choose a threshold per finding by a criterion, for scoring another split.

    Give one criterion. Candidates are the probabilities that occur. Probabilities at or above the threshold are called
    positive. :mod:`reveal_bench.analyses.thresholds` defines criteria and the handling of ties.

    Parameters
    ----------
    predictions, bench, split, name : as in :func:`lint`; `split` is for tuning and must not be scored later
    metric : "f1", "youden" or "cohen_kappa": the threshold with the highest value
    sensitivity : the threshold with the highest specificity among those with at least this sensitivity
    specificity : the threshold with the highest sensitivity among those with at least this specificity
    ppv : the threshold with the highest sensitivity among those with at least this positive predictive value
    otherwise : threshold of findings for which the criterion gives none, such as findings without a positive case

    Returns
    -------
    ThresholdTuning; `score` accepts it as `thresholds`, and its `write` adds them to a ``submission.json``

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the predictions have no probabilities, an argument breaks its rule, or a finding has no threshold and
        `otherwise` is not given.
    """
    criterion = _criterion_of(metric, sensitivity, specificity, ppv)
    if criterion is None:
        rule = "must be given, as in `metric`='youden', or `sensitivity`, `specificity` or `ppv`"
        raise ArgumentError("metric", rule, others=("metric", "sensitivity", "specificity", "ppv"))
    scored = _scored(predictions, bench, split, name, ScoringOptions())
    confidences = confidences_of_decisions(scored.rows)
    if otherwise is not None and not (
        0 <= otherwise <= 1 if confidences.are_probabilities else math.isfinite(otherwise)
    ):
        raise ArgumentError("otherwise", "must be in [0, 1], or finite for logits", otherwise)
    tuned = tune(confidences, criterion)
    lacking = {one.finding: one.reason for one in tuned if one.reason}
    if lacking and otherwise is None:
        named = "; ".join(f"{finding}: {reason}" for finding, reason in lacking.items())
        n = f"{len(lacking)} of {len(tuned)} findings have no threshold"
        rule = f"must be given, as in `otherwise`=0.5, because {n}"
        raise ArgumentError("otherwise", rule, named, ("otherwise",))
    return ThresholdTuning(scored, criterion, tuned, otherwise if lacking else None)


@suggest_keywords
def operating_points(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    thresholds: Thresholds | None = None,
    sensitivity: float | None = None,
    specificity: float | None = None,
    prevalence: float | Mapping[str, float] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    name: str | None = None,
) -> OperatingPoints:
    """Return sensitivity, specificity and predictive values with intervals, at one threshold per finding.

    By default, the thresholds are prespecified and the intervals are those of :func:`score`. If `sensitivity` or
    `specificity` is given, thresholds that reach this rate are chosen on the same cases, and again in every replicate.
    The result then is the sensitivity at a fixed specificity, or specificity and PPV at a fixed sensitivity.

    Parameters
    ----------
    predictions, bench, split, name : as of :func:`lint`
    thresholds : one number (0.5 by default), or one per finding, such as :attr:`ThresholdTuning.thresholds`
    sensitivity, specificity : minimum rate in (0, 1], as in :func:`tune_thresholds`; at most one of the two
    prevalence : also return predictive values at this prevalence in (0, 1), one number or one per finding
    n_resamples, seed : number of replicates of the patients, and their seed

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the predictions have no probabilities, or an argument breaks its rule.
    """
    criterion = _criterion_of(None, sensitivity, specificity, None)
    if criterion is not None and thresholds is not None:
        rule = "must not be given with `sensitivity` or `specificity`, which choose thresholds"
        raise ArgumentError("thresholds", rule, repr(thresholds), ("sensitivity", "specificity"))
    if criterion is not None and n_resamples < 2:
        raise ArgumentError("n_resamples", "must be at least 2 to choose thresholds again", n_resamples)
    scored = _scored(predictions, bench, split, name, ScoringOptions(thresholds=thresholds))
    confidences = confidences_of_decisions(scored.rows)
    prevalences = _prevalences(prevalence, scored.rows.groups)
    resampling = Resampling(n_resamples, seed)
    if criterion is None:
        points = points_at(scored.rows, scored.options.plain_thresholds, resampling, prevalences)
    else:
        points = points_chosen(confidences, criterion, resampling, prevalences)
    return OperatingPoints(scored, criterion, points, resampling)


def _scored(
    predictions: Any, bench: AnyBench, split: str | None, name: str | None, options: ScoringOptions
) -> ScoredFile:
    opened = as_asked_bench(bench, split, runs=[predictions])
    name = name_of(predictions, "predictions") if name is None else name
    return score_inputs(predictions, opened, once(options), argument="predictions", name=name)


def _criterion_of(
    metric: str | None, sensitivity: float | None, specificity: float | None, ppv: float | None
) -> Criterion | None:
    targets = {"sensitivity": sensitivity, "specificity": specificity, "ppv": ppv}
    named: list[tuple[str, float | None]] = [(name, target) for name, target in targets.items() if target is not None]
    named += [] if metric is None else [(metric, None)]
    if len(named) > 1:
        words = ", ".join(name for name, _ in named)
        raise ArgumentError(
            "metric", "must be given without another criterion", words, ("sensitivity", "specificity", "ppv")
        )
    return Criterion(cast("CriterionName", named[0][0]), named[0][1]) if named else None


def _prevalences(prevalence: float | Mapping[str, float] | None, findings: Sequence[str]) -> dict[str, float]:
    if prevalence is None:
        return {}
    by_finding = dict(prevalence) if isinstance(prevalence, Mapping) else dict.fromkeys(findings, prevalence)
    unknown = sorted(set(by_finding) - set(findings))
    if unknown:
        raise ArgumentError("prevalence", "must name findings of the benchmark", unknown)
    outside = [value for value in by_finding.values() if not 0 < value < 1]
    if outside:
        raise ArgumentError("prevalence", "must be in (0, 1)", outside[0])
    return by_finding
