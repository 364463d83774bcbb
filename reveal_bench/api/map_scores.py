"""``rb.score_maps``: heat maps judged as they are, without a threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reveal_bench.api.bench import AnyBench, as_bench
from reveal_bench.api.given import name_of
from reveal_bench.api.heat_maps import Maps, asked_of, found_maps
from reveal_bench.api.shown import Shown
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, Estimate, estimate_cases
from reveal_bench.metrics.map_scores import TOLERANCE
from reveal_bench.metrics.words import groups_text, interval_text, value_text
from reveal_bench.saliency_maps.scores import MapRows
from reveal_bench.saliency_maps.scores import score_maps as rows_of_maps

__all__ = ["MapScores", "score_maps"]


@dataclass(frozen=True, repr=False)
class MapScores(Shown):
    """Figures of heat maps.

    Attributes
    ----------
    title : what was judged on what
    rows : every map's figures
    estimates : macros, and findings, with 95 % intervals by the jackknife over patients
    """

    title: str
    rows: MapRows
    estimates: Sequence[Estimate]

    @property
    def caption(self) -> str:
        """What was judged on what, and how."""
        return self.title

    @property
    def records(self) -> list[dict[str, Any]]:
        """The fields of each estimate."""
        return [asdict(one) for one in self.estimates]

    def rows_shown(self) -> list[dict[str, str]]:
        """Macros first, then the findings, in percent."""
        return [
            {
                "metric": METRICS[one.metric].title,
                "finding": one.finding,
                "value": value_text(one.metric, one.value),
                "95 % interval": interval_text(one.metric, one.low, one.high),
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
    """Judge heat maps as they are: pointing game with a tolerance, share of energy inside, average precision of pixels.

    Parameters
    ----------
    maps, names, progress : as of :func:`saliency`
    bench, split : with references
    tolerance : of the pointing game, in pixels, or in mm with `in_mm`
    n_processes : that read maps

    Raises
    ------
    ArgumentError
        If an argument is not what it must be, or the maps do not fit the split.
    ValueError
        If a map is damaged; the message names its file.
    """
    opened = as_bench(bench, split)
    manifest = asked_of(opened)
    found = found_maps(maps, manifest, names)
    records = opened.kind.read_references(opened.folder, manifest.split)
    rows = rows_of_maps(found, records, tolerance=tolerance, in_mm=in_mm, n_processes=n_processes, progress=progress)
    everybody = sorted({record.patient_id for record in records})
    estimates = []
    for metric, values in rows.values.items():
        own: dict[str, Any] = {"findings": rows.findings, "patients": rows.patients, "all_patients": everybody}
        estimates += estimate_cases(metric, METRICS[metric].version, values, **own)
    place = f"{manifest.benchmark} {manifest.version}, split {manifest.split}"
    missing = f"; {rows.n_missing:,} questions have no map and are misses" if rows.n_missing else ""
    unit = "mm" if in_mm else "pixels"
    title = (
        f"{name_of(maps, 'maps')} on {place}: maps without a threshold, hits within {tolerance:g} {unit}, "
        f"95 % intervals by the jackknife over patients{missing}"
    )
    return MapScores(title, rows, estimates)
