"""Score heat maps against references, one map at a time, with :mod:`reveal_bench.metrics.map_scores`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import pack_regions
from reveal_bench.metrics.map_scores import energy_inside, pixel_average_precision, tolerant_hit
from reveal_bench.saliency_maps.maps import FoundMaps, MapFile, read_map

MAP_METRICS = ("tolerant_hit", "energy_inside", "pixel_average_precision")
_Case = tuple[LocalizationRecord, Annotation, MapFile | None]


@dataclass(frozen=True)
class MapRows:
    """Scores of all cases; a case is an image and a finding that is present.

    Attributes
    ----------
    findings, patients : lists (n_cases,)
    values : metric -> float array (n_cases,), NaN where undefined
    n_missing : number of cases without a map, which score 0 in every metric
    """

    findings: list[str]
    patients: list[str]
    values: dict[str, FloatArray]
    n_missing: int


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
    rest = iter(cases)
    with ProcessPoolExecutor(n_processes) as pool:
        while batch := list(islice(rest, 16 * n_processes)):
            rows += pool.map(judge, batch, chunksize=4) if n_processes > 1 else map(judge, batch)
            if progress is not None:
                progress("maps", len(rows), len(cases))
    values = dict(zip(MAP_METRICS, np.array(rows).T, strict=True))
    return MapRows(
        [annotation.finding for _, annotation, _ in cases],
        [record.patient_id for record, *_ in cases],
        values,
        sum(file is None for *_, file in cases),
    )


def _case(record: LocalizationRecord, finding: str, maps: FoundMaps) -> _Case:
    annotation = record.reference(finding)
    assert annotation is not None
    return record, annotation, maps.files.get((record.image_id, finding))


def _judged(case: _Case, *, tolerance: float, in_mm: bool) -> tuple[float, ...]:
    record, annotation, file = case
    if file is None:
        return 0.0, 0.0, 0.0
    values = read_map(file).values
    reference = pack_regions([annotation.rle or annotation.boxes_xywh], [record.size]).dense(0).astype(bool)
    spacing = record.spacing_mm if in_mm and record.spacing_mm is not None else (1.0, 1.0)
    hit = tolerant_hit(values, reference, tolerance=tolerance, spacing=spacing)
    return hit, energy_inside(values, reference), pixel_average_precision(values, reference)
