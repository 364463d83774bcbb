"""``rb.curves``: what a detector finds at every threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reveal_bench.api.bench import AnyBench, as_bench
from reveal_bench.api.given import name_of
from reveal_bench.api.shown import FigureTable, Shown, ShownTables
from reveal_bench.api.verbs import ONE_REPLICATE, score_given
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.kinds.scored import Curve, Curves

if TYPE_CHECKING:
    from reveal_bench.reports.style import Illustration

__all__ = ["DetectorCurves", "curves"]


@dataclass(frozen=True, repr=False)
class DetectorCurves(ShownTables):
    """Curves of one system; shown as its sensitivity at 1/8 to 8 false alarms per image.

    Attributes
    ----------
    scored : the detections as they were scored
    curves : every curve with its bands
    name : of the system, in figures
    beside : name -> curves of the other systems that figures show
    """

    scored: ScoredFile
    curves: Curves
    name: str
    beside: Mapping[str, Curves]

    @property
    def caption(self) -> str:
        """What was judged on what, and how."""
        return (
            f"{self.scored.report.file} on {self.scored.place}: share of lesions found "
            "at so many false alarms of the finding per image, in percent"
        )

    @cached_property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Of every finding and rate: sensitivity with the ends of its 95 % interval."""
        return [asdict(one) for one in self.curves.bands]

    def rows_shown(self) -> list[dict[str, str]]:
        """A row per finding, a column per rate."""
        rows: dict[str, dict[str, str]] = {}
        for one in self.curves.bands:
            row = rows.setdefault(one.finding, {"finding": one.finding})
            row[f"{one.false_alarms:g}"] = f"{100 * one.sensitivity:.1f}"
        return list(rows.values())

    @property
    def tables(self) -> dict[str, Shown]:
        """Name -> table: FROC at its rates, every point of it, precision and recall, sensitivity by size."""
        froc = _points(self.curves.froc, "false_alarms", "sensitivity")
        precision = _points(self.curves.precision, "recall", "precision")
        found: dict[str, Shown] = {
            "froc": self,
            "froc_points": FigureTable("FROC: every threshold", froc),
            "precision_recall": FigureTable("Precision and recall of hits by an IoU of 0.5 or more", precision),
            "sizes": FigureTable("Share of lesions found, by size", [asdict(one) for one in self.curves.sizes]),
        }
        return {name: table for name, table in found.items() if table.records}

    def drawn(self) -> Sequence[Illustration]:
        """The figures of the tables."""
        from reveal_bench.reports.detection import figures_of

        return figures_of({self.name: self.curves, **self.beside})


def _points(curves: Mapping[str, Curve], x: str, y: str) -> list[dict[str, Any]]:
    return [
        {"finding": finding, x: a, y: b}
        for finding, (across, up) in curves.items()
        for a, b in zip(across.tolist(), up.tolist(), strict=True)
    ]


def curves(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    thresholds: float | Mapping[str, float] = 0.5,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: str = "patient",
    name: str | None = None,
    beside: Mapping[str, Any] | None = None,
) -> DetectorCurves:
    """What a detector finds at every threshold: FROC with bands, precision and recall, sensitivity by size.

    Parameters
    ----------
    predictions, bench, split, name : as of :func:`lint`
    thresholds : score from which a detection counts, for the sensitivity by size: one number, or one per finding
    n_resamples, seed, unit : as of :func:`score`
    beside : name -> predictions of other systems, which the figures show too; tables are of `predictions` alone

    Raises
    ------
    LintError
        If the predictions have errors.
    ArgumentError
        If the benchmark is not one of detection, or no finding has a lesion.
    """
    opened = as_bench(bench, split)
    name = name_of(predictions, "predictions") if name is None else name
    if name in (beside or {}):
        raise ArgumentError("beside", "must name other systems", repr(name))
    options = {**ONE_REPLICATE, "thresholds": thresholds}
    scored, found = {}, {}
    for system, given in {name: predictions, **(beside or {})}.items():
        scored[system] = score_given(given, opened, "predictions", system, None, False, None, options)
        curved = opened.kind.curves(scored[system].rows, n_resamples=n_resamples, seed=seed, unit=unit)
        if curved is None or not curved.bands:
            raise ArgumentError("bench", "must be one of detection, with lesions in the split", opened.kind.name)
        found[system] = curved
    return DetectorCurves(scored[name], found.pop(name), name, found)
