"""Relative decrease of a model from the human benchmark, ordered as in paper 002 and computed as in its code.

Conventions
-----------
The decrease of a model from the human benchmark is ``(human - model) / human``.
:func:`reveal_bench.evaluation.compare.relative_decrease` computes it with paired intervals. The published code computes
a different decrease from the same replicates (:mod:`reveal_bench.analyses.compat`), which :func:`published_decreases`
reproduces:

* for a finding, the decrease of the means over the replicates. Its interval comes from the decrease in each replicate,
  with the same images drawn for both systems: order statistics 25 and 975 of 1,000, rounded to three digits *before*
  conversion to percent
* for "Average", the decrease of the mean of the ten findings' scores, each mean rounded to three digits. Its interval
  comes from the decrease of the means over findings in each replicate, rounded to three digits *after* conversion to
  percent

A decrease is significant if its interval excludes 0. The order of the paper's Extended Data Figs. 5 and 6 is:
significant decreases, then changes that are not significant, then significant gains, each by size.

There is one intended difference: the published code writes the interval of "Average" under misspelled names, so its
columns stay empty; here, this interval is in the same columns as the others. A decrease or bound that is infinite
because the human benchmark is 0 is left empty.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

import numpy as np

from reveal_bench.analyses.compat import ChexlocalizeTables, published_tables
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.evaluation.compare import Comparison, as_records
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Intervals, Resampling, find_intervals
from reveal_bench.metrics.resampled import mean_of_defined

_PUBLISHED_NAMES = {"mask_iou": "miou", "mask_iou_all": "miou", "point_hit": "hitrate"}


def excludes_zero(decrease: Estimate) -> bool:
    """Return True if the interval of a decrease is defined and excludes 0."""
    return decrease.has_interval and (decrease.low > 0 or decrease.high < 0)


def in_printed_order(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return decreases in the order of paper 002: by metric, first the findings by direction and size, then the macro.

    A finding has a direction if its adjusted interval excludes 0. Published decreases have only an unadjusted interval.
    """
    metrics = list(dict.fromkeys(one.metric for one in comparisons))

    def key(one: Comparison) -> tuple[int, bool, int, float]:
        side = 0 if not excludes_zero(one.adjusted) else 1 if one.estimate.value < 0 else -1
        size = math.inf if math.isnan(one.estimate.value) else -one.estimate.value
        return metrics.index(one.metric), one.finding == MACRO, side, size

    return sorted(comparisons, key=key)


def decreases_csv(comparisons: Sequence[Comparison]) -> str:
    """Return CSV text of the decreases in the printed order, with columns for intervals that exclude 0."""
    ordered = in_printed_order(comparisons)
    rows = [
        record | {"excludes_zero": excludes_zero(one.estimate), "excludes_zero_adjusted": excludes_zero(one.adjusted)}
        for record, one in zip(as_records(ordered), ordered, strict=True)
    ]
    with io.StringIO(newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue()


def published_decreases(
    model: ScoredFile,
    human: ScoredFile,
    form: str,
    *,
    resampling: Resampling = Resampling(),
    metrics: Sequence[str] | None = None,
) -> list[Comparison]:
    """Return decreases by the published convention: per metric the macro ("Average"), then the findings, as fractions.

    Parameters
    ----------
    model, human : two systems scored on the same split
    form : one of :data:`~reveal_bench.analyses.compat.COMPAT`
    metrics : metrics of `form`; by default those that both systems have

    Raises
    ------
    ArgumentError
        For the reasons of :func:`~reveal_bench.analyses.compat.published_tables`, or if the systems share none of
        `metrics`.
    """
    of_model, of_human = ({t.metric: t for t in published_tables(one, form, resampling)} for one in (model, human))
    shared = [name for name in of_model if name in of_human and (metrics is None or name in metrics)]
    if not shared:
        rule = f"must be a metric with tables in {form!r}, for both systems: {', '.join(of_model) or 'none'}"
        raise ArgumentError("metric", rule, ", ".join(metrics or ["none"]))
    return [one for name in shared for one in _of_metric(of_model[name], of_human[name], resampling)]


def _of_metric(model: ChexlocalizeTables, human: ChexlocalizeTables, resampling: Resampling) -> list[Comparison]:
    if model.image_ids != human.image_ids:
        raise ValueError("both systems must be scored on the same images, because they share the resampled images")
    recipe = f"{model.metric}|decrease:chexlocalize|b:{resampling.n_resamples}|seed:{resampling.seed}|unit:image"
    a, b = (mean_of_defined(side.replicates.T) for side in (model, human))
    n = np.array([(~np.isnan(side.per_image)).sum(axis=0) for side in (model, human)])
    shares = _intervals(_decrease(model.replicates, human.replicates))
    rows = _rows(model.metric, model.findings, a, b, _decrease(a, b), shares, n, recipe)
    # "Average" uses means rounded to three digits; its interval uses percents rounded to three digits
    mean_a, mean_b = (np.round(mean_of_defined(side[None]), 3) for side in (a, b))
    of_model, of_human = (mean_of_defined(side.replicates)[:, None] for side in (model, human))
    percents = _intervals(100 * _decrease(of_model, of_human))
    ends = Intervals(percents.values, percents.low / 100, percents.high / 100, percents.n_empty)
    n_findings = np.array([[(~np.isnan(side)).sum()] for side in (a, b)])
    return _rows(model.metric, [MACRO], mean_a, mean_b, _decrease(mean_a, mean_b), ends, n_findings, recipe) + rows


def _decrease(model: FloatArray, human: FloatArray) -> FloatArray:
    """Return the decrease as published, dividing by 0 if the human benchmark is 0: a gain is then minus infinity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share: FloatArray = (human - model) / human
    return share


def _intervals(replicates: FloatArray) -> Intervals:
    with np.errstate(invalid="ignore"):  # no warning about means of infinities, which are not used
        return find_intervals(np.full(replicates.shape[1], np.nan), replicates, interval="chexlocalize")


def _rows(
    metric: str,
    findings: Sequence[str],
    a: FloatArray,
    b: FloatArray,
    values: FloatArray,
    ends: Intervals,
    n: IntArray,
    recipe: str,
) -> list[Comparison]:
    values, low, high = (np.where(np.isfinite(x), x, np.nan) for x in (values, ends.low, ends.high))
    return [
        Comparison(
            metric=metric,
            finding=finding,
            a=float(a[i]),
            b=float(b[i]),
            estimate=Estimate(float(values[i]), float(low[i]), float(high[i])),
            p=math.nan,
            n_a=int(n[0, i]),
            n_b=int(n[1, i]),
            n_empty_replicates=int(ends.n_empty[i]),
            signature=recipe,
        )
        for i, finding in enumerate(findings)
    ]


def published_csv(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Return file name -> text of decreases as the published code writes them: percents, the largest first, then
    Average.
    """
    files = {}
    for metric in dict.fromkeys(one.metric for one in comparisons):
        own = [one for one in comparisons if one.metric == metric]
        findings = (one for one in own if one.finding != MACRO)
        ordered = sorted(findings, key=lambda one: (math.isnan(one.estimate.value), -one.estimate.value))
        lines = [",hb,pred,pct_diff,pct_diff_lower,pct_diff_upper"]
        for one in [*ordered, *(one for one in own if one.finding == MACRO)]:
            shares = one.estimate.value, one.estimate.low, one.estimate.high
            figures = one.b, one.a, *(round(100 * share, 3) for share in shares)
            name = "Average" if one.finding == MACRO else one.finding
            lines.append(",".join([name, *("" if math.isnan(x) else repr(x) for x in figures)]))
        files[f"{_PUBLISHED_NAMES[metric]}_pct_decrease.csv"] = "\n".join(lines) + "\n"
    return files
