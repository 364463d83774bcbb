"""CheXlocalize's result tables, exactly as its published code writes them, computed from the scores of cases.

Conventions
-----------
The three tables are those that `eval.py` of rajpurkarlab/cheXlocalize writes (paper 002):

* per image: one row per image of the ground-truth file, sorted by id; one column per finding, in alphabetical order,
  then ``img_id``; undefined values are empty
* replicates: one row per replicate, one column per finding in the benchmark's order; row b averages the defined values
  of the images ``RandomState(seed).randint(0, n, (n_resamples, n))[b]``, drawn once for all findings
* summary: columns ``name,lower,mean,upper``, sorted by name. The bounds are the elements int(0.025 B) - 1 and int(0.975
  B) - 1 of the B sorted replicates, with undefined ones last. The mean is that of the replicates. Bounds and mean are
  rounded to three digits

Resampling is by image. The ground-truth file lists the images with at least one positive finding (499 of the 668 of the
test split), and a different list changes the draw. Pass `images` if your ground-truth file lists other images.

:func:`published_tables` computes the tables from a scored file: with "chexlocalize" for hits and for the IoU of true
positives, with "chexlocalize-full" for the IoU of all images, which needs a dataset that asks every finding of every
image. As in the published code, a finding without an answer is a miss for the hit rate, and undefined for the IoU of
true positives.

There are two intended differences. Rows are joined by id, whereas the published code joins hits by position. Numbers in
the per-image table are always written as floats.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.metrics.intervals import Resampling, check_interval, find_intervals
from reveal_bench.metrics.resampled import mean_of_defined

COMPAT: dict[str, tuple[str, ...]] = {
    "chexlocalize": ("point_hit", "mask_iou"),
    "chexlocalize-full": ("mask_iou_all",),
}
"""Published convention -> metrics that have tables, if the predictions support them."""


_PUBLISHED_NAMES = {"mask_iou": "iou", "mask_iou_all": "iou", "point_hit": "hitmiss"}


@dataclass(frozen=True)
class ChexlocalizeTables:
    """Three published tables of one metric.

    Attributes
    ----------
    metric : str
        Name in METRICS.
    findings : tuple of str
        Columns of `per_image` and `replicates`; rows of `summary`.
    image_ids : list of str (n_images,)
    per_image : float array (n_images, n_findings)
    replicates : float array (n_resamples, n_findings)
    summary : float array (n_findings, 3): lower, mean, upper
    """

    metric: str
    findings: tuple[str, ...]
    image_ids: list[str]
    per_image: FloatArray
    replicates: FloatArray
    summary: FloatArray

    def write(self, folder: Path, *, human: bool = False) -> list[Path]:
        """Write the three CSV files under their published names; with `human`, the names for the human benchmark."""
        start = _PUBLISHED_NAMES.get(self.metric, self.metric) + ("_humanbenchmark" if human else "")
        columns = sorted(range(len(self.findings)), key=self.findings.__getitem__)
        names = [self.findings[i] for i in columns]
        per_image = (
            [*map(_text, row), name] for row, name in zip(self.per_image[:, columns], self.image_ids, strict=True)
        )
        summary = ([name, *map(_text, row)] for name, row in zip(names, self.summary[columns], strict=True))
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _write(folder / f"{start}_results_per_cxr.csv", [*names, "img_id"], per_image),
            _write(
                folder / f"{start}_bootstrap_results_per_cxr.csv",
                self.findings,
                (map(_text, row) for row in self.replicates),
            ),
            _write(folder / f"{start}_summary_results.csv", ["name", "lower", "mean", "upper"], summary),
        ]


def _text(value: float) -> str:
    """Return the shortest text that parses to the same number; empty for NaN."""
    return "" if np.isnan(value) else repr(float(value))


def _write(path: Path, header: Sequence[str], rows: Iterable[Iterable[str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return path


def published_tables(scored: ScoredFile, form: str, resampling: Resampling | None = None) -> list[ChexlocalizeTables]:
    """Return CheXlocalize's tables for a scored file, resampled as in its protocol or by `resampling`.

    Raises
    ------
    ArgumentError
        If `form` is not one of :data:`COMPAT`, the kind of benchmark has no such tables, the dataset does not ask every
        finding of every image although `form` needs it, or no metric applies.
    """
    if form not in COMPAT:
        raise ArgumentError("compat", f"must be one of {', '.join(COMPAT)}", repr(form))
    if "chexlocalize" not in KINDS[scored.rows.kind].scoring.intervals:
        raise ArgumentError("compat", "must be used with a localization benchmark", f"one of {scored.rows.kind}")
    if form == "chexlocalize-full" and scored.options.asks != "all":
        rule = "needs a dataset that asks every finding of every image: build one with `asks` set to all"
        raise ArgumentError("compat", rule, f"one that asks {scored.options.asks!r}", ("asks",))
    rows = cast(CaseRows, scored.rows)
    metrics = [metric for metric in COMPAT[form] if metric in rows.metrics()]
    if not metrics:
        raise ArgumentError(
            "compat", f"must be used with predictions that have {' or '.join(COMPAT[form])}", ", ".join(rows.metrics())
        )
    missing = set(scored.report.missing_pairs)
    unanswered = np.array([pair in missing for pair in zip(rows.image_ids, rows.case_findings, strict=True)], bool)
    values = dict(rows.values)
    if "mask_iou" in values:
        values["mask_iou"] = np.where(unanswered, np.nan, values["mask_iou"])
    resampling = scored.resampling if resampling is None else resampling
    return [chexlocalize_tables(replace(rows, values=values), metric, resampling) for metric in metrics]


def chexlocalize_tables(
    rows: CaseRows,
    metric: str,
    resampling: Resampling = Resampling(),
    *,
    images: Sequence[str] | None = None,
) -> ChexlocalizeTables:
    """Return CheXlocalize's tables for one metric.

    Parameters
    ----------
    rows : CaseRows
    metric : a metric of `rows`
    resampling : resampling of images; the published code has seed 0
    images : ids of the images in the ground-truth file; by default all images with a score, which is correct if the
        benchmark asks only for present findings

    Raises
    ------
    ValueError
        If the metric or an image is unknown, no image is given, or there are fewer than 40 replicates.
    """
    check_interval("chexlocalize", resampling.n_resamples)
    if metric not in rows.values:
        raise ArgumentError("metric", f"must be among {list(rows.values)}", repr(metric))
    ids = sorted(set(rows.image_ids if images is None else images))
    unknown = sorted(set(ids) - {image_id for image_id, _ in rows.all_images})
    if unknown or not ids:
        raise ArgumentError(
            "images", "must be images of the split, at least one", repr(unknown[0] if unknown else "none")
        )
    place = {image_id: i for i, image_id in enumerate(ids)}
    column = {finding: i for i, finding in enumerate(rows.findings)}
    per_image = np.full((len(ids), len(column)), np.nan)
    for image_id, finding, value in zip(rows.image_ids, rows.case_findings, rows.values[metric], strict=True):
        if image_id in place:
            per_image[place[image_id], column[finding]] = value
    # The published code uses NumPy's legacy random generator
    draws = np.random.RandomState(resampling.seed).randint(0, len(ids), (resampling.n_resamples, len(ids)))
    # Loop over findings, so that each replicate sums its rows in the order drawn, as pandas does
    replicates = np.stack([mean_of_defined(per_image[:, i][draws]) for i in range(len(column))], axis=1)
    intervals = find_intervals(np.full(len(column), np.nan), replicates, interval="chexlocalize")
    summary = np.stack([intervals.low, intervals.values, intervals.high], axis=1)
    return ChexlocalizeTables(metric, tuple(rows.findings), ids, per_image, replicates, summary)
