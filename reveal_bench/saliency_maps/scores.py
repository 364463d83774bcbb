"""Score heat maps against references, one map at a time, with :mod:`reveal_bench.metrics.map_scores`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import pack_regions
from reveal_bench.metrics.bootstrap import bounds_of, estimates_from, macro_first
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.jackknife import evidence_of_groups
from reveal_bench.metrics.map_scores import (
    average_precision_of,
    contrast_to_noise,
    energy_inside,
    grounding_iou,
    pixel_average_precision,
    pixel_counts,
    tolerant_hit,
)
from reveal_bench.metrics.resampled import Figures
from reveal_bench.saliency_maps.maps import FoundMaps, MapFile, read_map

MAP_METRICS = ("tolerant_hit", "energy_inside", "pixel_average_precision", "grounding_iou", "contrast_to_noise")
"""Metrics with a value per map."""
POOLED = "pooled_pixel_ap"
_Case = tuple[LocalizationRecord, Annotation, MapFile | None]


@dataclass(frozen=True)
class MapRows:
    """Scores of all cases; a case is an image and a finding that is present.

    Attributes
    ----------
    findings, patients : lists (n_cases,)
    values : metric -> float array (n_cases,), NaN where undefined
    n_missing : number of cases without a map, which score 0 in every metric
    pixels : (finding, patient) -> pixels at each level, as of :func:`~reveal_bench.metrics.map_scores.pixel_counts`
    """

    findings: list[str]
    patients: list[str]
    values: dict[str, FloatArray]
    n_missing: int
    pixels: dict[tuple[str, str], IntArray]

    def pooled_estimates(self, all_patients: Sequence[str], resampling: Resampling) -> list[Estimate]:
        """Return the pooled average precision of pixels with the jackknife over patients: the macro, then findings."""
        names = list(dict.fromkeys(self.findings))
        unit = {patient: i for i, patient in enumerate(all_patients)}
        values, n_units = np.full(len(names), np.nan), np.zeros(len(names), np.int64)
        without = np.full((len(unit), len(names)), np.nan)
        for i, finding in enumerate(names):
            own = {unit[patient]: counts for (name, patient), counts in self.pixels.items() if name == finding}
            total = np.sum(list(own.values()), axis=0)
            n_units[i], values[i] = len(own), average_precision_of(total)
            without[:, i] = values[i]
            for place, counts in own.items():
                without[place, i] = average_precision_of(total - counts)
        support = evidence_of_groups(macro_first(without), n_units, bounds=bounds_of(POOLED))
        n = np.array([self.findings.count(finding) for finding in names])
        figures = Figures(values, values[None], n, without, support=support)
        return estimates_from(figures, names, recipe=resampling.signature(POOLED), interval="jackknife")


def score_maps(
    maps: FoundMaps,
    records: Sequence[LocalizationRecord],
    *,
    tolerance: float,
    in_mm: bool = False,
    n_processes: int = 1,
    progress: Callable[..., None] | None = None,
) -> MapRows:
    """Score every case with a reference; one map is in memory at a time.

    Parameters
    ----------
    tolerance : tolerance of the pointing game, in pixels or mm
    in_mm : True if the tolerance is in mm, converted by the spacing of each image
    n_processes : number of processes that read maps
    progress : called with ("maps", number done, total)

    Raises
    ------
    ArgumentError
        If no map has a reference, or the tolerance is in mm and an image has no spacing.
    ValueError
        If a map is damaged; the message names its file.
    """
    cases = [_case(record, finding, maps) for record in records for finding in record.asked("present")]
    if not any(file is not None for *_, file in cases):
        raise ArgumentError("maps", "must include maps of the split that have a reference", "none")
    bare = [record.image_id for record, *_ in cases if in_mm and record.spacing_mm is None]
    if bare:
        raise ArgumentError("tolerance", "must be in pixels if an image has no spacing", f"mm for {bare[0]}")
    judge = partial(_judged, tolerance=tolerance, in_mm=in_mm)
    rows: list[tuple[float, ...]] = []
    pixels: dict[tuple[str, str], IntArray] = {}
    rest = iter(cases)
    with ProcessPoolExecutor(n_processes) as pool:
        while batch := list(islice(rest, 16 * n_processes)):
            judged = pool.map(judge, batch, chunksize=4) if n_processes > 1 else map(judge, batch)
            for (record, annotation, _), (values, counts) in zip(batch, judged, strict=True):
                rows.append(values)
                key = annotation.finding, record.patient_id
                pixels[key] = pixels[key] + counts if key in pixels else counts
            if progress is not None:
                progress("maps", len(rows), len(cases))
    by_metric = dict(zip(MAP_METRICS, np.array(rows).T, strict=True))
    return MapRows(
        [annotation.finding for _, annotation, _ in cases],
        [record.patient_id for record, *_ in cases],
        by_metric,
        sum(file is None for *_, file in cases),
        pixels,
    )


def _case(record: LocalizationRecord, finding: str, maps: FoundMaps) -> _Case:
    annotation = record.reference(finding)
    assert annotation is not None
    return record, annotation, maps.files.get((record.image_id, finding))


def _judged(case: _Case, *, tolerance: float, in_mm: bool) -> tuple[tuple[float, ...], IntArray]:
    """Return the values of one case by :data:`MAP_METRICS`, and its pixels; a case without a map has a constant one."""
    record, annotation, file = case
    reference = pack_regions([annotation.rle or annotation.boxes_xywh], [record.size]).dense(0).astype(bool)
    if file is None:
        return (0.0,) * len(MAP_METRICS), pixel_counts([[0.0]], reference)
    values = read_map(file).values
    spacing = record.spacing_mm if in_mm and record.spacing_mm is not None else (1.0, 1.0)
    hit = tolerant_hit(values, reference, tolerance=tolerance, spacing=spacing)
    others = (energy_inside, pixel_average_precision, grounding_iou, contrast_to_noise)
    return (hit, *(metric(values, reference) for metric in others)), pixel_counts(values, reference)
