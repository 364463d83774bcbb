"""Scores of heat maps themselves, instead of predictions made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reveal_bench.api.bench import AnyBench, as_whole_bench
from reveal_bench.api.heat_maps import Maps, asked_of, found_maps
from reveal_bench.api.inputs import name_of
from reveal_bench.api.result_table import TableResult
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, estimate_cases
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.map_scores import TOLERANCE
from reveal_bench.metrics.scales import ends_text, groups_text, value_text
from reveal_bench.saliency_maps.scores import MapRows
from reveal_bench.saliency_maps.scores import score_maps as rows_of_maps


@dataclass(frozen=True, repr=False)
class MapScores(TableResult):
    """Scores of heat maps.

    Attributes
    ----------
    title : the maps and the split, in words
    rows : scores of each map
    estimates : macros, then findings, with 95% intervals by the jackknife over patients
    """

    title: str
    rows: MapRows
    estimates: Sequence[Estimate]

    @property
    def caption(self) -> str:
        """Predictions, split and method."""
        return self.title

    @property
    def records(self) -> list[dict[str, Any]]:
        """Unrounded values of every estimate."""
        return [asdict(one) for one in self.estimates]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return macros first, then the findings, in percent; the contrast-to-noise ratio on its own scale."""
        return [
            {
                "metric": METRICS[one.metric].title,
                "finding": one.finding,
                "value": value_text(one.metric, one.value),
                "95% interval": ends_text(one.metric, one.low, one.high),
                "n": groups_text(one.metric, one.n) if one.finding == MACRO else str(one.n),
            }
            for one in sorted(self.estimates, key=lambda one: one.finding != MACRO)  # stable
        ]


def score_maps(
    maps: Maps,
    bench: AnyBench,
    *,
    split: str | None = None,
    tolerance: float = TOLERANCE,
    in_mm: bool = False,
    names: Sequence[str] = (),
    n_processes: int = 1,
    progress: Callable[..., None] | None = None,
) -> MapScores:
    """Score heat maps: pointing game with a tolerance, energy inside, average precision of pixels per image and pooled
    (PxAP), and IoU at thresholds and contrast-to-noise ratio of phrase grounding.

    Parameters
    ----------
    maps, names, progress : as in :func:`saliency`
    bench, split : a split with references
    tolerance : tolerance of the pointing game in pixels, or in mm with `in_mm`
    n_processes : number of processes that read maps

    Raises
    ------
    ArgumentError
        If an argument breaks its rule, or the maps do not fit the split.
    ValueError
        If a map is damaged; the message names its file.
    """
    opened = as_whole_bench(bench, split)
    manifest = asked_of(opened)
    files = found_maps(maps, manifest, names)
    records = list(opened.kind.data.read_references(opened.dataset, manifest.split))
    rows = rows_of_maps(files, records, tolerance=tolerance, in_mm=in_mm, n_processes=n_processes, progress=progress)
    everybody = sorted({record.patient_id for record in records})
    estimates = []
    for metric, values in rows.values.items():
        own: dict[str, Any] = {"findings": rows.findings, "patients": rows.patients, "all_patients": everybody}
        estimates += estimate_cases(metric, METRICS[metric].version, values, **own)
    estimates += rows.pooled_estimates(everybody, Resampling())
    place = f"{manifest.benchmark} {manifest.version}, split {manifest.split}"
    missing = f"; {rows.n_missing:,} questions without a map are misses" if rows.n_missing else ""
    unit = "mm" if in_mm else "pixels"
    title = (
        f"{name_of(maps, 'maps')} on {place}: scores of maps, hits within {tolerance:g} {unit}, "
        f"95% intervals by the jackknife over patients{missing}"
    )
    return MapScores(title, rows, estimates)
